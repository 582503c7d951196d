"""`simwarp.verify`: the inputs it draws, how it compares, and how it spends its time."""

import inspect
import itertools
import json
import linecache
import time
from dataclasses import asdict, replace

import numpy as np
import pytest

import simwarp
from simwarp.faults import Deadlock, Place
from simwarp.verify import CASES, Case, Draw, Mismatch, Outcome, Row, check, verify
from simwarp.verify.cases.bmm import Input as Product
from simwarp.verify.compare import last_write, tiers_of
from simwarp.verify.draw import DTYPES
from simwarp.verify.runner import LEAST_SHAPES

SIMULATORS = {"simulator": simwarp.Device}
BMM = CASES["bmm32"]


# Draw: the streams never change


def test_the_words_are_those_of_ever():
    assert [int(w) for w in Draw(0, "bmm32", 0).words(2)] == [5515470973514680835, 12111503320184006140]
    assert [int(w) for w in Draw(7, "pack-row", 123).words(1)] == [13401612314439374685]


def test_the_numbers_are_those_of_ever():
    draw = Draw(3, "pinned", 11)
    assert [draw.integer(1, 100) for _ in range(6)] == [45, 77, 65, 81, 61, 75]
    assert draw.choice("abcdefgh") == "e"


def test_the_sizes_are_those_of_ever():
    assert [Draw(0, "bmm32", k).sizes(3) for k in range(6)] == [
        (7, 109, 101),
        (129, 65, 31),
        (9, 6, 4),
        (95, 102, 51),
        (2, 23, 1363),
        (109, 89, 79),
    ]


@pytest.mark.parametrize(
    ("dtype", "digest"),
    [
        (
            "float64",
            (
                "1c89b8ca7cecc531a7b32ab8d6ab15fcb8ae6c1c51b3bd1cd5cd0b0a3124011861b1adea8e010ccc"
                "000000000000f0ff46369166a3cfbb17000000000000f0ffbba143ad4b54c07aaafa7147f15c13ae"
                "60362df280cba36e11dec0da3a292fd0c888fc1ab32de0ad9f6efa752aee9651d57a8a2825addfab"
            ),
        ),
        (
            "float32",
            (
                "1c89b8ca7cecc531a7b32ab8d6ab15fcb8ae6c1c51b3bd1cd5cd0b0a3124011861b1adea8e010ccc"
                "ae2f4371c1bcdd9746369166a3cfbb1701000080"
            ),
        ),
        ("float16", "1c89b8ca7cecc531a7b30080007c00bcb8ae6c1c51b3bd1cd5cd0b0a3124"),
        ("int8", "1c89b8807cecc580a7b37fffd6ab01"),
    ],
)
def test_the_matrices_are_those_of_ever(dtype, digest):
    x = Draw(0, "pinned", 5).matrix(3, 5, dtype)
    assert x.astype(x.dtype.newbyteorder("<")).tobytes().hex() == digest


def test_the_packed_words_are_those_of_ever():
    assert Draw(0, "pinned", 5).bits(2, 3, 40).tolist() == [
        [3401091356, 835054716, 3089806247],
        [4227858432, 469762048, 469762048],
    ]


def test_the_inputs_of_the_cases_are_those_of_ever():
    drawn = [CASES[name].describe(CASES[name].draw(Draw(0, name, k))) for name in CASES for k in (0, 4)]
    assert drawn == [
        "int8 37 x 107, column-major, first msb",
        "float32 1358 x 27, column-major, first msb",
        "int8 73 x 47, row-major, first msb",
        "float64 6 x 1478, row-major, first msb",
        "int8 23 x 127, column-major, first lsb",
        "int8 17 x 1264, column-major, first lsb",
        "float16 7 x 101 by float16 109 x 101 transposed",
        "int8 2 x 1363 by packed 1363 x 23",
    ]


def test_what_makes_streams_differ():
    words = [
        int(Draw(seed, case, k).words(1)[0])
        for seed, case, k in itertools.product((0, 1, 2**32), ("a", "b"), (0, 1, 2**63 - 1))
    ]
    assert len(set(words)) == len(words)


def test_inputs_of_a_case_do_not_overlap():
    first, second = Draw(0, "a", 0).words(4096), Draw(0, "a", 1).words(4096)
    assert not set(first.tolist()) & set(second.tolist())


@pytest.mark.parametrize(("low", "high"), [(1, 1), (1, 9), (-3, 3), (1001, 1600)])
def test_whole_numbers_reach_both_ends(low, high):
    draw = Draw(0, "range", 0)
    drawn = {draw.integer(low, high) for _ in range(20 * (high - low + 1))}
    assert (min(drawn), max(drawn)) == (low, high)


def is_prime(n):
    return n > 1 and all(n % d for d in range(2, n))


@pytest.mark.parametrize("count", [2, 3])
def test_kinds_of_sizes(count):
    drawn = [Draw(0, "bmm32", k).sizes(count) for k in range(500)]
    assert all(min(sizes) >= 1 and len(sizes) == count for sizes in drawn)
    assert sum(max(sizes) > 1000 for sizes in drawn) == 100
    assert sum(all(map(is_prime, sizes)) for sizes in drawn) >= 100
    assert all(all(map(is_prime, sizes)) for sizes in drawn[::5])
    edges = {n for sizes in drawn[1::5] for n in sizes}
    assert {31, 32, 33, 63, 64, 65} <= edges
    assert {1, 2} <= {n for sizes in drawn[2::5] for n in sizes}
    longest = {int(np.argmax(sizes)) for sizes in drawn[4::5]}
    assert longest == set(range(count))


@pytest.mark.parametrize("name", CASES)
def test_cases_try_enough_shapes_and_all_kinds(name):
    case = CASES[name]
    items = [case.draw(Draw(0, name, k)) for k in range(150)]
    assert len({case.shape(item) for item in items}) >= LEAST_SHAPES


def test_products_are_of_all_kinds():
    items = [BMM.draw(Draw(0, "bmm32", k)) for k in range(200)]
    assert {(item.transpose_a, item.transpose_b) for item in items} == set(
        itertools.product([False, True], repeat=2)
    )
    words = " ".join(map(BMM.describe, items))
    assert all(kind in words for kind in (*DTYPES, "packed"))
    assert any(BMM.describe(item).count("packed") == 2 for item in items)


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_are_special_and_never_nan(dtype):
    x = Draw(0, "specials", 0).matrix(200, 300, dtype)
    assert (x.shape, x.dtype, x.flags.c_contiguous) == ((200, 300), np.dtype(dtype), True)
    assert not np.isnan(x).any()
    assert 0.4 < (x >= 0).mean() < 0.65
    if dtype == "int8":
        assert {-128, -1, 0, 1, 127} <= set(x.ravel().tolist())
        return
    tiny = np.finfo(dtype).smallest_normal
    assert ((x == 0) & np.signbit(x)).any()
    assert ((x == 0) & ~np.signbit(x)).any()
    assert np.isposinf(x).any()
    assert np.isneginf(x).any()
    for sign in (-1, 1):
        assert ((sign * x > 0) & (np.abs(x) < tiny)).any()


@pytest.mark.parametrize("length", [1, 31, 32, 33, 63, 64])
def test_packed_words_end_in_zeros(length):
    words = -(-length // 32)
    raw = Draw(0, "bits", length).bits(words, 50, length)
    assert (raw.shape, raw.dtype) == ((words, 50), np.uint32)
    spare = words * 32 - length
    assert not (raw[-1] & np.uint32((1 << spare) - 1)).any()
    assert np.bitwise_or.reduce(raw, axis=1).tolist() == [0xFFFFFFFF] * (words - 1) + [
        0xFFFFFFFF << spare & 0xFFFFFFFF
    ]


# Case


@pytest.mark.parametrize(
    ("got", "equal"),
    [
        (np.zeros((2, 3), np.int32), True),
        (np.zeros((2, 3), np.int32, order="F"), True),
        (np.zeros((2, 3), np.int64), False),
        (np.zeros((2, 3), np.uint32), False),
        (np.zeros((3, 2), np.int32), False),
        (np.zeros((1, 3), np.int32), False),
        (np.zeros(3, np.int32), False),
        (np.int32(0), False),
        (np.array([[0, 0, 0], [0, 0, 1]], np.int32), False),
    ],
)
def test_equal_is_in_shape_type_and_every_bit(got, equal):
    assert BMM.equal(np.zeros((2, 3), np.int32), got) is equal


def test_every_case_is_complete():
    for name, case in CASES.items():
        assert case.name == name
        assert {"reference", "gpu"} <= set(case.answers)
        assert set(case.outputs) >= set(case.answers) - {"reference"}
        assert all(len(digest) == 64 for digest in case.kernels((9, 0)).values())


def test_the_tiers_of_a_case():
    assert tiers_of(BMM, SIMULATORS) == ["reference", "listing", "simulator"]
    assert tiers_of(BMM, {"simulator": None, "cuda": None})[-2:] == ["simulator", "cuda"]
    assert tiers_of(BMM, {}) == ["reference", "listing"]


# Check: a tier that lies


class Counted:
    """A question about small arrays that is answered at once, with all answers counted."""

    def __init__(self, name="counted", wait=0.0, answers=None):
        self.asked = []

        def answer(item, *device):
            self.asked.append(item)
            time.sleep(wait)
            return np.arange(6, dtype=np.int32).reshape(2, 3) + item

        self.case = Case(
            name=name,
            draw=lambda draw: draw.k,
            shape=lambda item: (item,),
            describe=lambda item: f"number {item}",
            answers={"reference": answer, **(answers or {"gpu": answer})},
            outputs={"gpu": "c", "listing": "C"},
            explain=lambda item, element, bits: f"element {element} of {item}, bits {bits}",
            kernels=lambda arch: {},
        )


def lie(case, answer="gpu", element=(0, 0), flip=1):
    """The case, with one element of one answer wrong."""
    honest = case.answers[answer]

    def wrong(item, *device):
        result = honest(item, *device).copy()
        result[element] ^= flip
        return result

    return replace(case, answers={**case.answers, answer: wrong})


def test_honest_tiers():
    found = check(BMM, 0, 2, SIMULATORS)
    assert found.mismatches == []
    assert found.shape == BMM.draw(Draw(0, "bmm32", 2)).sizes
    assert set(found.seconds) == {"reference", "listing", "simulator"}
    assert all(seconds > 0 for seconds in found.seconds.values())


def test_only_the_tiers_that_are_asked():
    assert set(check(BMM, 0, 2, SIMULATORS, ["listing"]).seconds) == {"reference", "listing"}


@pytest.mark.parametrize("answer", ["gpu", "listing"], ids=["kernel", "python"])
def test_one_flipped_element(answer):
    seed, k = 4, 3
    item = BMM.draw(Draw(seed, "bmm32", k))
    m, n, _ = item.sizes
    element, flip = (m - 1, n - 1), 0b1010
    right = BMM.answers["reference"](item)
    tier = "simulator" if answer == "gpu" else answer
    (found,) = check(lie(BMM, answer, element, flip), seed, k, SIMULATORS).mismatches
    expected = int(right[element])
    assert (found.case, found.seed, found.input, found.tier) == ("bmm32", seed, k, tier)
    assert found.problem == BMM.describe(item)
    assert (found.element, found.bits) == (element, (1, 3))
    assert (found.expected, found.got) == (expected, expected ^ flip)
    assert (found.wrong, found.total) == (1, m * n)
    assert found.meaning == f"C{list(element)}"
    assert found.fault == ""
    assert "bmm32" in found.place.kernel.lower()
    assert bool(found.register) == (answer == "gpu")
    assert found.command == f"simwarp verify --case bmm32 --seed {seed} --input {k}"
    first, second, third = str(found).splitlines()
    assert first.startswith(
        f"bmm32, input {k} ({found.problem}): {tier} differs from reference in 1 of {m * n}"
    )
    assert second == (
        f"expected {expected} ({expected & 0xFFFFFFFF:#010x}), got {expected ^ flip} "
        f"({(expected ^ flip) & 0xFFFFFFFF:#010x}): bits 1, 3 differ"
    )
    assert third == f"replay: {found.command}"


def test_a_sign_bit_of_a_negative_number():
    case = lie(Counted().case, flip=np.int32(-(2**31)))
    (found,) = check(case, 0, 0, SIMULATORS).mismatches
    assert (found.expected, found.got, found.bits) == (0, -(2**31), (31,))
    assert "which nothing wrote" in str(found)


def test_many_bits_are_shortened():
    (found,) = check(lie(Counted().case, flip=-1), 0, 0, SIMULATORS).mismatches
    assert found.bits == tuple(range(32))
    assert "bits 0, 1, 2, 3, 4, 5, 6, 7 … (32 in all) differ" in str(found)


@pytest.mark.parametrize("change", [lambda c: c[:1], lambda c: c.ravel(), lambda c: c.astype(np.int64)])
def test_a_tier_that_answers_in_another_shape_or_type(change):
    case = Counted().case
    right = case.answers["reference"](0)
    wrong = replace(case, answers={**case.answers, "gpu": lambda item, device: change(right)})
    (found,) = check(wrong, 0, 0, SIMULATORS).mismatches
    got = change(right)
    assert found.meaning == f"expected int32 (2, 3), got {got.dtype} {got.shape}"
    assert (found.expected, found.got, found.element, found.place) == (None, None, (), None)
    first, second, third = str(found).splitlines()
    assert (second, third) == (found.meaning, f"replay: {found.command}")
    assert "simulator differs" in first


def test_a_fault_is_a_mismatch():
    def fall(item, device):
        raise Deadlock(
            "every lane waits", "lanes 0 to 31", "let one go", Place(kernel="k", block=(1, 0, 0), warp=2)
        )

    case = replace(BMM, answers={**BMM.answers, "gpu": fall})
    found = check(case, 0, 2, SIMULATORS)
    (mismatch,) = found.mismatches
    assert (mismatch.tier, mismatch.place.block, mismatch.place.warp) == ("simulator", (1, 0, 0), 2)
    assert mismatch.fault.startswith("every lane waits: kernel k, block (1, 0, 0), warp 2")
    assert str(mismatch).splitlines()[1:] == [*mismatch.fault.splitlines(), f"replay: {mismatch.command}"]
    assert "simulator" in found.seconds


def test_hardware_that_lies_is_replayed_on_hardware_and_placed_by_the_simulator():
    honest = BMM.answers["gpu"]

    class Broken(simwarp.Device):
        """Stands for hardware whose answers are off by one."""

    def answer(item, device):
        return honest(item, device) + (1 if isinstance(device, Broken) else 0)

    case = replace(BMM, answers={**BMM.answers, "gpu": answer})
    (found,) = check(case, 0, 2, {"simulator": simwarp.Device, "cuda": Broken}).mismatches
    assert (found.tier, found.element, found.wrong) == ("cuda", (0, 0), found.total)
    assert found.command.endswith("--input 2 --device cuda")
    assert (found.place.kernel, found.place.block, found.place.warp, found.place.lane) == (
        "bmm32",
        (0, 0, 0),
        0,
        0,
    )


def test_a_mismatch_is_plain_data():
    (found,) = check(lie(BMM, "gpu", (0, 0), 4), 0, 2, SIMULATORS).mismatches
    assert json.loads(json.dumps(asdict(found)))["place"]["lane"] == 0


# Who wrote it


def product(m, n, k):
    draw = Draw(9, "last_write", 0)
    return Product(draw.matrix(m, k, "float32"), draw.matrix(k, n, "int8"), False, False, (m, n, k))


@pytest.mark.parametrize("element", [(0, 0), (33, 64), (31, 95), (69, 99)])
def test_the_lane_that_wrote_an_element_of_a_kernel(element):
    item = product(70, 100, 45)
    row, column = element
    tile = row // 32 * 4 + column // 32  # 100 columns make four tiles across, a block takes four warps
    place, register = last_write(BMM, "gpu", item, element, np.zeros((70, 100), np.int32))
    assert (place.kernel, place.block, place.warp, place.lane) == (
        "bmm32",
        (tile // 4, 0, 0),
        tile % 4,
        column % 32,
    )
    assert (place.source_file, place.text.split()[0]) == ("bmm/bmm32.cu", "st.global.u32")
    assert register in place.text


@pytest.mark.parametrize("element", [(0, 0), (33, 64), (31, 95), (69, 99)])
def test_the_line_of_python_that_wrote_an_element_of_a_listing(element):
    item = product(70, 100, 45)
    place, register = last_write(BMM, "listing", item, element, np.zeros((70, 100), np.int32))
    source = inspect.getsourcefile(simwarp.listings.bmm32)
    line = linecache.getline(source, place.line)
    assert "store(" in line
    assert place.text in line
    assert register == ""
    assert place.lane in (element[0] % 32, element[1] % 32)


def test_nobody_wrote_it():
    case = Counted().case
    assert last_write(case, "gpu", 0, (0, 0), np.zeros((2, 3), np.int32)) == (None, "")


# The runner


def test_the_same_inputs_for_every_tier():
    outcome = verify([BMM], SIMULATORS, inputs=4)
    assert [(r.tier, r.inputs, r.shapes, r.mismatches) for r in outcome.rows] == [
        ("reference", 4, 4, 0),
        ("listing", 4, 4, 0),
        ("simulator", 4, 4, 0),
    ]
    assert outcome.mismatches == []


def test_the_budget_is_kept():
    counted = Counted(wait=0.01)
    start = time.perf_counter()
    outcome = verify([counted.case], SIMULATORS, budget=0.3)
    spent = time.perf_counter() - start
    assert 0.3 <= outcome.seconds <= spent < 3
    assert 1 <= outcome.rows[0].inputs <= 15


def test_no_budget_no_input():
    counted = Counted()
    outcome = verify([counted.case], SIMULATORS, budget=0)
    assert counted.asked == []
    assert not outcome.agreed


def test_the_case_that_had_the_least_time_is_next():
    slow, quick = Counted("slow", wait=0.02), Counted("quick", wait=0.001)
    outcome = verify([slow.case, quick.case], SIMULATORS, budget=0.6)
    seconds = {name: sum(r.seconds for r in outcome.rows if r.case == name) for name in ("slow", "quick")}
    tried = {r.case: r.inputs for r in outcome.rows}
    assert tried["quick"] > 3 * tried["slow"]
    assert 0.5 < seconds["slow"] / seconds["quick"] < 2


def test_inputs_come_in_their_order():
    counted = Counted()
    verify([counted.case], {}, inputs=5)
    assert counted.asked == [0, 1, 2, 3, 4]


def test_only_one_input():
    counted = Counted()
    outcome = verify([counted.case], {}, only_input=77, seed=5)
    assert counted.asked == [77]
    assert (outcome.agreed, outcome.short, outcome.seed) == (True, [], 5)
    assert not verify([lie(counted.case)], SIMULATORS, only_input=77).agreed


def test_only_some_tiers():
    outcome = verify([BMM], SIMULATORS, inputs=1, tiers=["simulator"])
    assert [row.tier for row in outcome.rows] == ["reference", "simulator"]
    assert [row.tier for row in verify([BMM], SIMULATORS, inputs=1, tiers=[]).rows] == ["reference"]


@pytest.mark.parametrize(("inputs", "agreed"), [(LEAST_SHAPES - 1, False), (LEAST_SHAPES, True)])
def test_too_few_shapes_are_no_agreement(inputs, agreed):
    outcome = verify([Counted().case, Counted("other").case], SIMULATORS, inputs=inputs)
    assert outcome.agreed is agreed
    assert outcome.short == ([] if agreed else ["counted", "other"])


def test_inputs_of_one_shape_count_once():
    case = replace(Counted().case, shape=lambda item: (1,))
    outcome = verify([case], SIMULATORS, inputs=120)
    assert [(row.inputs, row.shapes) for row in outcome.rows] == [(120, 1)] * 2
    assert not outcome.agreed


def test_all_mismatches_are_counted_and_three_kept():
    outcome = verify([lie(Counted("liar").case), Counted("honest").case], SIMULATORS, inputs=LEAST_SHAPES)
    assert {(r.case, r.tier): r.mismatches for r in outcome.rows} == {
        ("liar", "reference"): 0,
        ("liar", "simulator"): LEAST_SHAPES,
        ("honest", "reference"): 0,
        ("honest", "simulator"): 0,
    }
    assert [(m.case, m.input) for m in outcome.mismatches] == [("liar", 0), ("liar", 1), ("liar", 2)]
    assert not outcome.agreed
    assert outcome.short == []


def test_an_interruption_keeps_what_was_done():
    def stop(item, device):
        if item == 3:
            raise KeyboardInterrupt
        return np.arange(6, dtype=np.int32).reshape(2, 3) + item

    case = replace(Counted().case, answers={**Counted().case.answers, "gpu": stop})
    outcome = verify([case], SIMULATORS)
    assert (outcome.interrupted, outcome.agreed) == (True, False)
    assert [row.inputs for row in outcome.rows] == [3, 3]
    assert outcome.seconds > 0


def test_progress_is_told_after_every_input():
    told = []
    verify(
        [Counted().case], SIMULATORS, inputs=3, progress=lambda outcome: told.append(outcome.rows[0].inputs)
    )
    assert told == [1, 2, 3]
    verify([Counted().case], SIMULATORS, only_input=3, progress=lambda outcome: told.append(outcome.single))
    assert told[-1] is True


def test_the_outcome_as_json():
    outcome = verify([lie(BMM)], SIMULATORS, inputs=2, seed=6)
    plain = json.loads(json.dumps(outcome.to_json()))
    assert set(plain) == {"agreed", "seed", "seconds", "interrupted", "too_few_shapes", "rows", "mismatches"}
    assert (plain["agreed"], plain["seed"], plain["interrupted"]) == (False, 6, False)
    assert plain["too_few_shapes"] == ["bmm32"]
    assert [Row(**row) for row in plain["rows"]] == outcome.rows
    assert len(plain["mismatches"]) == 2
    for mismatch, kept in zip(plain["mismatches"], outcome.mismatches, strict=True):
        assert mismatch.pop("replay") == kept.command
        assert mismatch.pop("message") == str(kept)
        assert set(mismatch) == set(Mismatch.__dataclass_fields__)
        assert tuple(mismatch["element"]) == kept.element


@pytest.mark.parametrize(
    ("change", "agreed"),
    [
        ({}, True),
        ({"interrupted": True}, False),
        ({"rows": [Row("c", "t", 100, 99)]}, False),
        ({"rows": [Row("c", "t", 100, 99)], "single": True}, True),
        ({"rows": [Row("c", "t", 200, 200, mismatches=1)]}, False),
        ({"rows": [Row("c", "t", 200, 200), Row("c", "u", 200, 200)]}, True),
    ],
)
def test_what_agreement_takes(change, agreed):
    assert Outcome(0, **change).agreed is agreed
