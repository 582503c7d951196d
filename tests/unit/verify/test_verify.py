"""`simwarp.verify`: drawn inputs, comparison of the tiers, and use of the time budget."""

import inspect
import itertools
import json
import linecache
import multiprocessing
import os
import time
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest

import reference
import simwarp
from gpu.bmm.lines import lines_plan
from gpu.bmm.packing import packing_plan
from gpu.bmm.schemes import SCHEMES
from reference.errors import FormatError, SimwarpError
from reference.types import PackedBits
from simwarp.faults import Deadlock, Place
from simwarp.verify import CASES, Case, Draw, Mismatch, Outcome, Row, check, simulator, verify
from simwarp.verify.cases.bmm import Input as Product
from simwarp.verify.compare import last_write, tiers_of
from simwarp.verify.draw import DTYPES
from simwarp.verify.hypotheses import in_words
from simwarp.verify.runner import LEAST_SHAPES
from support.offenders import every_case

SIMULATORS = {"simulator": simulator}
BMM = CASES["bmm"]


# Draw: the streams never change


def test_drawn_words_are_pinned():
    assert [int(w) for w in Draw(0, "bmm", 0).words(2)] == [15323812720349140210, 10686883762761815577]
    assert [int(w) for w in Draw(7, "pack-row", 123).words(1)] == [16443474173237199263]


def test_drawn_numbers_are_pinned():
    draw = Draw(3, "pinned", 11)
    assert [draw.integer(1, 100) for _ in range(6)] == [45, 77, 65, 81, 61, 75]
    assert draw.choice("abcdefgh") == "e"


def test_drawn_sizes_are_pinned():
    assert [Draw(0, "bmm", k).sizes(3) for k in range(6)] == [
        (67, 101, 13),
        (32, 65, 31),
        (8, 9, 3),
        (58, 118, 2),
        (1293, 27, 4),
        (127, 47, 79),
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
def test_drawn_matrices_are_pinned(dtype, digest):
    x = Draw(0, "pinned", 5).matrix(3, 5, dtype)
    assert x.astype(x.dtype.newbyteorder("<")).tobytes().hex() == digest


def test_drawn_packed_words_are_pinned():
    assert Draw(0, "pinned", 5).bits(3, 40, 32, "msb").tolist() == [
        [3401091356, 835054716, 3089806247],
        [4227858432, 469762048, 469762048],
    ]
    assert Draw(0, "pinned", 5).bits(3, 40, 64, "lsb").tolist() == [
        [0x7CCAB8891C, 0xD6B82AB3A7, 0x511C6CAEB8]
    ]


def test_inputs_of_every_case_are_pinned():
    drawn = [CASES[name].describe(CASES[name].draw(Draw(0, name, k))) for name in CASES for k in (0, 4)]
    assert drawn == [
        "float16 37 x 112, column-major-32, first msb",
        "float64 1358 x 32, column-major-32, first msb",
        "float64 19 x 64, row-major-32, first msb",
        "float64 16 x 1152, row-major-32, first msb",
        "float32 2 x 79, column-major-32, first lsb",
        "float16 24 x 1587, row-major-32, first lsb",
        "float64 31 x 32, column-major-128, first lsb",
        "float64 18 x 1588, row-major-128, first msb",
        "float16 31 x 16, row-major-32, first lsb",
        "int8 30 x 1171, column-major-32, first lsb",
        "bmm32, packed 67 x 13 by packed 13 x 101 to int32",
        "bmm32, int8 1293 x 4 by int8 4 x 27 to int32",
        "btc1, packed 31 x 7 by packed 7 x 103 to int32",
        "btc1, float32 26 x 25 by packed 25 x 1361 to int32",
        "wgmma, float32 113 x 67 by int8 67 x 127 to int32",
        "wgmma, packed 3 x 1094 by packed 1094 x 13 to int32",
        "skinny, packed 31 x 109 by float64 109 x 3 to int32",
        "skinny, float64 3 x 36 by packed 36 x 1457 to int32",
        "mma, int8 23 x 29 by float16 29 x 101 to int32",
        "mma, float32 37 x 32 by packed 32 x 1077 to int32",
        "bmm32, float64 2 x 7 by int8 7 x 127: and",
        "bmm32, float64 26 x 36 by packed 36 x 1518: and",
        "wgmma, float32 79 x 83 by packed 83 x 53: and",
        "wgmma, float32 7 x 1421 by float32 1421 x 36: and",
        "bconv32, int8 by float64 to int32: 4 x 7 x 5 x 13 by 4 x 3 to 33 channels, padding VALID, "
        "stride 2,2, dilation 2,2",
        "bconv32, float16 by int8 to bits: 3 x 2 x 7 x 33 by 2 x 5 to 16 channels, padding SAME, "
        "stride 3,1, dilation 1,1",
        "wgmma, float32 by float32 to int32: 4 x 3 x 2 x 5 by 3 x 2 to 33 channels, padding VALID, "
        "stride 1,2, dilation 1,1",
        "wgmma, packed NHWC by packed HWOI to int32: 2 x 7 x 4 x 31 by 4 x 2 to 1 channels, padding SAME, "
        "stride 3,1, dilation 1,2",
        "bconv32, float16 by float16 to int32: 3 x 10 x 5 x 99 by 4 x 3 to 3 channels, padding VALID, "
        "stride 2,2, dilation 3,2, in 3 groups",
        "wgmma, float64 by int8 to int32: 2 x 8 x 6 x 66 by 3 x 3 to 62 channels, padding SAME, "
        "stride 1,2, dilation 2,1, in 2 groups",
        "bconv32, float32 by float64 to int32: 1 x 11 x 9 x 5 by 11 x 8 to 3 channels, "
        "padding ((3,2),(0,2)), stride 3,2, dilation 1,1",
        "wgmma, float32 by float32 to int32: 2 x 3 x 7 x 2 by 3 x 13 to 16 channels, "
        "padding ((0,2),(2,16)), stride 2,3, dilation 2,2",
        "coo, mode 0 of 9 x 1 with 1 nonzeros (tiny), R = 1, float32",
        "f-coo, mode 2 of 2442 x 2057 x 2512 with 160 nonzeros (hypersparse), R = 64, float32, deterministic",
        "fibers-all, mode 0 of 8 x 5 with 5 nonzeros (tiny), R = 1, float32",
        "fibers-all, mode 2 of 2516 x 1911 x 2513 with 146 nonzeros (hypersparse), "
        "R = 64, float32, deterministic",
        "3 images of BitPlanes (7, 8, 3): Pool, Flatten, Dense; bconv32 and auto",
        "3 images of Reals (5, 6, 2): Threshold, Pool, Conv, Threshold, Conv, Flatten, Dense; "
        "bconv32 and bmms32",
        "1 images of Reals (7, 4, 3): Pool, Conv, Residual, Conv, Flatten, Dense; btc1 and mma",
        "1 images of BitPlanes (4, 5, 4): Conv, Conv, Flatten, Threshold, Dense; bconv32 and mma",
        "2 images of Signs (2, 5, 98): Conv, Threshold, Conv, Threshold, Conv, Threshold, Flatten, "
        "Dense, Threshold, Dense, Threshold, Dense; "
        "bconv64 and bconv32 and bconv64 and btc1 and auto and bmm32",
        "3 images of Signs (5, 5, 133): Pool, Conv, Threshold, Flatten, Dense; bconv64 and bmms64",
        "1 images of Signs (8, 2, 10): Conv, Threshold, Flatten, Dense; whole and bconv64 and bmm64, "
        "blocks=2, threads=32",
        "3 images of BitPlanes (7, 6, 4): Conv, Threshold, Flatten, Dense; whole and bconv32 and bmm32, "
        "blocks=1, threads=32",
        "3 images of BitPlanes (8, 8, 2): Conv, Threshold, Flatten, Dense; whole and btc2 and btc3, "
        "blocks=1, threads=256",
        "1 images of Signs (1, 2, 74): Flatten, Dense, Threshold, Dense, Threshold, Dense, Threshold, Dense; "
        "whole and btc3 and btc3 and btc3 and btc3, blocks=None, threads=32",
        "sgemm trans_a=N trans_b=N, alpha 0.0, beta -1.0, a 1 x 18 F, b 18 x 1 C, c 1 x 1 F, tiles of 5, "
        "H200, 1 x the least budget",
        "sgemm trans_a=T trans_b=T, alpha -1.0, beta 0.75, a 1 x 4 C, b 8 x 1 C, c 4 x 8 C, tiles of 8, "
        "H200, 2 x the least budget, cache False, order fifo, steal False, streams 8, allocation native, "
        "advance batch, addend first, station 3, cpu True",
        "conv2d, x (2, 4, 4, 2), w (1, 4, 1, 1), stride (2, 3), padding SAME, dilation (2, 1), groups 1,"
        " layout NCHW, bias True, activation None, pieces of 1 images, all rows, 4 channels, 1 filters, "
        "5 x the least budget, exhaustive, depth 2, filters resident, no reuse, float16, Everest",
        "conv2d, x (4, 4, 9, 3), w (15, 1, 4, 1), stride (3, 2), padding ((0, 0), (1, 1)), dilation (1, "
        "1), groups 3, layout NHWC, bias True, activation None, pieces of 3 images, 2 rows, 2 channels, "
        "1 filters, 2 x the least budget, steepest, depth 2, filters streamed, float32, Everest, "
        "on the device: bias",
    ]


def test_seed_case_and_number_give_different_streams():
    words = [
        int(Draw(seed, case, k).words(1)[0])
        for seed, case, k in itertools.product((0, 1, 2**32), ("a", "b"), (0, 1, 2**63 - 1))
    ]
    assert len(set(words)) == len(words)


def test_inputs_of_a_case_do_not_overlap():
    first, second = Draw(0, "a", 0).words(4096), Draw(0, "a", 1).words(4096)
    assert not set(first.tolist()) & set(second.tolist())


@pytest.mark.at_most(2)
@pytest.mark.parametrize(("low", "high"), [(1, 1), (1, 9), (-3, 3), (1001, 1600)])
def test_drawn_integers_reach_both_ends(low, high):
    draw = Draw(0, "range", 0)
    drawn = {draw.integer(low, high) for _ in range(20 * (high - low + 1))}
    assert (min(drawn), max(drawn)) == (low, high)


def is_prime(n):
    return n > 1 and all(n % d for d in range(2, n))


@pytest.mark.parametrize("count", [2, 3])
def test_drawn_sizes_cover_every_kind(count):
    drawn = [Draw(0, "bmm", k).sizes(count) for k in range(500)]
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
def test_every_case_draws_enough_shapes(name):
    case = CASES[name]
    items = [case.draw(Draw(0, name, k)) for k in range(150)]
    assert len({case.shape(item) for item in items}) >= LEAST_SHAPES


def test_products_cover_transposes_formats_and_outputs():
    items = [BMM.draw(Draw(0, "bmm", k)) for k in range(200)]
    assert {(item.transpose_a, item.transpose_b) for item in items} == set(
        itertools.product([False, True], repeat=2)
    )
    words = " ".join(map(BMM.describe, items))
    assert all(kind in words for kind in (*DTYPES, "packed"))
    assert any(BMM.describe(item).count("packed") == 2 for item in items)


@pytest.mark.parametrize("dtype", DTYPES)
def test_matrices_contain_special_values_and_no_nan(dtype):
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


@every_case("length", [1, 31, 32, 33, 63, 64, 65])
@every_case("word", [32, 64])
@every_case("first", ["msb", "lsb"])
def test_padding_bits_of_packed_words_are_zero(length, word, first):
    words = -(-length // word)
    raw = Draw(0, "bits", length).bits(50, length, word, first)
    assert (raw.shape, raw.dtype) == ((words, 50), np.dtype(f"u{word // 8}"))
    ones = "1" * (length - word * (words - 1))
    last = int(ones.ljust(word, "0") if first == "msb" else ones, 2)
    assert np.bitwise_or.reduce(raw, axis=1).tolist() == [2**word - 1] * (words - 1) + [last]


def combination(item):
    return item.scheme, item.transpose_a, item.transpose_b, item.thresholds is not None


@pytest.mark.parametrize("seed", [0, 1])
def test_the_first_160_products_cover_all_combinations(seed):
    tried = {(*combination(BMM.draw(Draw(seed, "bmm", k))), k % 5) for k in range(160)}
    assert tried == set(itertools.product(SCHEMES, *[[False, True]] * 3, range(5)))


def test_products_reach_the_bound_of_16_bit_counters():
    drawn = [BMM.draw(Draw(0, "bmm", k)) for k in range(9, 260 * 40, 260)]
    assert {item.sizes[2] for item in drawn} == set(range(2**16 - 3, 2**16 + 2))
    assert {combination(item) for item in drawn} == set(itertools.product(["bmm64"], *[[False, True]] * 3))
    assert {drawn[0].thresholds is None, drawn[1].thresholds is None} == {False, True}
    assert all(max(item.sizes[:2]) <= 3 for item in drawn)


def test_packed_operands_and_thresholds_fit_the_product():
    seen = set()
    for k in range(400):
        item = BMM.draw(Draw(0, "bmm", k))
        m, n, length = item.sizes
        assert item.a.shape == ((length, m) if item.transpose_a else (m, length))
        assert item.b.shape == ((n, length) if item.transpose_b else (length, n))
        operands = [x for x in (item.a, item.b) if isinstance(x, PackedBits)]
        for x in operands:
            assert x.word == SCHEMES[item.scheme].word
            np.testing.assert_array_equal(
                reference.pack(
                    2 * reference.unpack(x).astype(np.int8) - 1, layout=x.layout, word=x.word, first=x.first
                ).words,
                x.words,
            )
        if len(operands) == 1:  # layout in which a real operand is packed on the device
            assert operands[0].first == "msb"
        seen |= {(len(operands), x.layout, x.word, x.first) for x in operands}
        if item.thresholds is not None:
            assert item.thresholds.shape == item.flip.shape == (n,)
            assert (item.thresholds.dtype, item.flip.dtype) == (np.int32, np.bool_)
    assert seen == {
        *itertools.product([2], ["row", "column"], [32, 64], ["msb", "lsb"]),
        *itertools.product([1], ["row", "column"], [32, 64], ["msb"]),
    }


def test_thresholds_often_equal_a_dot_product():
    on_edge = total = 0
    for k in range(80, 160):
        item = BMM.draw(Draw(0, "bmm", k))
        if item.sizes[2] < 2000:
            dots = reference.bmm(item.a, item.b, transpose_a=item.transpose_a, transpose_b=item.transpose_b)
            on_edge, total = on_edge + (dots == item.thresholds).any(), total + 1
    assert on_edge > total // 2


@pytest.mark.parametrize("name", ["pack-column", "pack-row", "pack-lsb"])
def test_packing_inputs_cover_word_sizes_and_row_alignments(name):
    items = [CASES[name].draw(Draw(0, name, k)) for k in range(100)]
    aligned = {(item.word, str(item.x.dtype), item.x[0].nbytes % 16 == 0) for item in items}
    assert aligned >= {(word, dtype, True) for word in (32, 64) for dtype in DTYPES}
    assert aligned >= {(word, "int8", False) for word in (32, 64)}
    plans = {packing_plan(simulator().upload(x.x), x.layout, x.word, 1)[0] for x in items}
    layouts = {x.layout for x in items}
    assert plans == {f"pack_{layout}{kind}" for layout in layouts for kind in ("", "_vector")}
    assert {item.first for item in items} == {"lsb" if name == "pack-lsb" else "msb"}


def test_inputs_of_long_words_cover_layouts_orders_and_row_alignments():
    case = CASES["pack-128"]
    items = [case.draw(Draw(0, case.name, k)) for k in range(100)]
    assert {item.word for item in items} == {128}
    formats = {(item.layout, item.first, str(item.x.dtype)) for item in items}
    assert formats == set(itertools.product(("row", "column"), ("msb", "lsb"), DTYPES))
    plans = {packing_plan(simulator().upload(x.x), x.layout, x.word, 1)[0] for x in items}
    assert len(plans) == 4
    item = replace(items[0], x=np.ones((3, 150)), layout="column", first="lsb")
    assert case.explain(item, (1, 2, 0), 12) == "element (2, 140) = 1.0"
    assert case.explain(replace(item, first="msb"), (0, 2, 0), 0) == "element (2, 127) = 1.0"


def test_inputs_of_lines_cover_every_kernel_and_type():
    items = [CASES["pack-lines"].draw(Draw(0, "pack-lines", k)) for k in range(100)]
    plans = {
        (lines_plan(simulator().upload(x.x), int(x.layout == "row"), 1)[0], str(x.x.dtype)) for x in items
    }
    either = itertools.product(("lines_of_rows", "lines_of_rows_vector", "lines_of_columns_vector"), DTYPES)
    assert plans == {*either, ("lines_of_columns", "float16"), ("lines_of_columns", "int8")}


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
def test_equality_compares_shape_type_and_every_bit(got, equal):
    assert BMM.equal(None, np.zeros((2, 3), np.int32), got) is equal


@pytest.mark.slow
def test_every_case_has_tiers_outputs_and_kernels():
    for name, case in CASES.items():
        assert case.name == name
        assert {"reference", "gpu"} <= set(case.answers)
        assert set(case.outputs) >= set(case.answers) - {"reference"}
        assert all(len(digest) == 64 for digest in case.kernels((9, 0)).values())


def test_tiers_depend_on_the_given_devices():
    assert tiers_of(BMM, SIMULATORS) == ["reference", "listing", "simulator"]
    assert tiers_of(BMM, {"simulator": None, "cuda": None})[-2:] == ["simulator", "cuda"]
    assert tiers_of(BMM, {}) == ["reference", "listing"]


# Check: a wrong tier


class Counted:
    """A fast case on small arrays that counts its calls."""

    def __init__(self, name="counted", wait=0.0, answers=None, clock=None):
        self.calls = []

        def answer(item, *device):
            self.calls.append(item)
            if clock:
                clock.seconds += wait
            return np.arange(6, dtype=np.int32).reshape(2, 3) + item

        self.case = Case(
            name=name,
            draw=lambda draw: draw.k,
            shape=lambda item: (item,),
            describe=lambda item: f"number {item}",
            answers={"reference": answer, **(answers or {"gpu": answer})},
            outputs={"gpu": "c", "listing": "C"},
            explain=lambda item, element, bit: f"element {element} of {item}, bit {bit}",
            lead=lambda item, bits: min(bits),
            kernels=lambda arch: {},
        )


def with_wrong_element(case, answer="gpu", element=(0, 0), flip=1):
    """The case, with one wrong element in one tier."""
    honest = case.answers[answer]

    def wrong(item, *device):
        result = honest(item, *device).copy()
        result[element] ^= flip
        return result

    return replace(case, answers={**case.answers, answer: wrong})


def test_correct_tiers_agree():
    found = check(BMM, 0, 2, SIMULATORS)
    assert found.mismatches == []
    assert found.shape == BMM.draw(Draw(0, "bmm", 2)).sizes
    assert set(found.seconds) == {"reference", "listing", "simulator"}
    assert all(seconds > 0 for seconds in found.seconds.values())


def test_check_runs_only_the_selected_tiers():
    assert set(check(BMM, 0, 2, SIMULATORS, ["listing"]).seconds) == {"reference", "listing"}


@pytest.mark.parametrize("answer", ["gpu", "listing"], ids=["kernel", "python"])
def test_one_flipped_element_is_located(answer):
    seed, k = 4, 3
    item = BMM.draw(Draw(seed, "bmm", k))
    m, n, _ = item.sizes
    element, flip = (m - 1, n - 1), 0b1010
    right = BMM.answers["reference"](item)
    tier = "simulator" if answer == "gpu" else answer
    (found,) = check(with_wrong_element(BMM, answer, element, flip), seed, k, SIMULATORS).mismatches
    expected = int(right[element])
    assert (found.case, found.seed, found.input, found.tier) == ("bmm", seed, k, tier)
    assert found.problem == BMM.describe(item)
    assert (found.element, found.bits) == (element, (1, 3))
    assert (found.expected, found.got) == (expected, expected ^ flip)
    assert (found.wrong, found.total) == (1, m * n)
    assert found.meaning == f"C{list(element)}"
    assert found.fault == ""
    assert "bmm32" in found.place.kernel.lower()
    assert bool(found.register) == (answer == "gpu")
    assert found.command == f"simwarp verify --case bmm --seed {seed} --input {k}"
    first, second, third = str(found).splitlines()
    assert first.startswith(
        f"bmm, input {k} ({found.problem}): {tier} differs from reference in 1 of {m * n}"
    )
    assert second == (
        f"expected {expected} ({expected & 0xFFFFFFFF:#010x}), got {expected ^ flip} "
        f"({(expected ^ flip) & 0xFFFFFFFF:#010x}){in_words((expected ^ flip) - expected)}: bits 1, 3 differ"
    )
    assert third == f"replay: {found.command}"


def test_a_flipped_sign_bit_is_reported():
    case = with_wrong_element(Counted().case, flip=np.int32(-(2**31)))
    (found,) = check(case, 0, 0, SIMULATORS).mismatches
    assert (found.expected, found.got, found.bits) == (0, -(2**31), (31,))
    assert "which nothing wrote" in str(found)


def test_a_long_list_of_bits_is_shortened():
    (found,) = check(with_wrong_element(Counted().case, flip=-1), 0, 0, SIMULATORS).mismatches
    assert found.bits == tuple(range(32))
    assert "bits 0, 1, 2, 3, 4, 5, 6, 7 … (32 in all) differ" in str(found)


@pytest.mark.parametrize("change", [lambda c: c[:1], lambda c: c.ravel(), lambda c: c.astype(np.int64)])
def test_a_wrong_shape_or_type_is_a_mismatch(change):
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
    assert mismatch.fault.startswith("deadlock: every lane waits\n  kernel k, block (1, 0, 0), warp 2\n")
    assert str(mismatch).splitlines()[1:] == [*mismatch.fault.splitlines(), f"replay: {mismatch.command}"]
    assert "simulator" in found.seconds


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("3 is no 4"), "ValueError: 3 is no 4"),
        (AssertionError(), "AssertionError: "),
        (MemoryError("too much"), "MemoryError: too much"),
        (FormatError("a is packed wrongly\npack it anew"), "a is packed wrongly\npack it anew"),
    ],
)
@pytest.mark.parametrize("answer", ["gpu", "listing"])
def test_any_exception_of_a_tier_is_a_mismatch(error, text, answer):
    def fail(*args):
        raise error

    case = replace(BMM, answers={**BMM.answers, answer: fail})
    found = check(case, 0, 2, SIMULATORS)
    (mismatch,) = found.mismatches
    assert (mismatch.tier, mismatch.fault) == ("simulator" if answer == "gpu" else answer, text)
    assert mismatch.place is None
    assert str(mismatch).splitlines()[1:] == [*text.splitlines(), f"replay: {mismatch.command}"]
    assert set(found.seconds) == {"reference", "listing", "simulator"}
    json.dumps(asdict(mismatch))


def test_an_exception_of_the_reference_ends_the_run():
    def fail(item):
        raise ValueError("no answer")

    with pytest.raises(ValueError, match="no answer"):
        check(replace(BMM, answers={**BMM.answers, "reference": fail}), 0, 2, SIMULATORS)


def bits_of(word, first):
    """The first bmm input with bit output in this word format, and its number."""
    for k in range(80, 400):
        item = BMM.draw(Draw(0, "bmm", k))
        if (SCHEMES[item.scheme].word, getattr(item.a, "first", "msb")) == (word, first) and (
            item.thresholds is not None and item.sizes[1] % word and item.sizes[2] < 2000
        ):
            return item, k
    raise AssertionError


@pytest.mark.at_most(1)
@pytest.mark.slow_cases("listing-msb-64", "gpu-msb-64")
@pytest.mark.parametrize("word", [32, 64])
@pytest.mark.parametrize("first", ["msb", "lsb"])
@pytest.mark.parametrize("answer", ["gpu", "listing"])
def test_one_flipped_bit_of_packed_output_is_located(word, first, answer):
    item, k = bits_of(word, first)
    m, n, _ = item.sizes
    for column in (0, n - 1, n):
        bit = word - 1 - column % word if first == "msb" else column % word
        element = (column // word, m - 1)
        flip = np.array(1 << bit, f"u{word // 8}")
        found = next(
            one
            for one in check(with_wrong_element(BMM, answer, element, flip), 0, k, SIMULATORS).mismatches
            if one.tier == ("simulator" if answer == "gpu" else answer)
        )
        assert (found.element, found.bits, found.wrong) == (element, (bit,), 1)
        padding = ", which is padding" if column == n else ""
        assert found.meaning == f"bit of C{[m - 1, column]}{padding}"
        assert item.scheme in found.place.kernel.lower()
        assert found.expected ^ found.got == 1 << bit
        assert f"({found.expected:#010x}), got {found.got} ({found.got:#010x})" in str(found)


@pytest.mark.parametrize("name", ["pack-column", "pack-row"])
@pytest.mark.parametrize("column", [3, 35])
def test_the_wrong_half_of_a_64_bit_word_is_located(name, column):
    """Packing kernels store a 64-bit word in two halves, by different lanes or at different times."""
    k = 67  # of word 64
    item = replace(
        CASES[name].draw(Draw(0, name, k)), x=Draw(0, "halves", 0).matrix(70, 73, "float32"), word=64
    )
    case = with_wrong_element(
        replace(CASES[name], draw=lambda draw: item), "gpu", (0, 1), np.uint64(1 << (63 - column))
    )
    (found,) = check(case, 0, k, SIMULATORS, ["simulator"]).mismatches
    at = (1, column) if name == "pack-column" else (column, 1)
    assert found.meaning.startswith(f"element {at}")
    warps = {"pack-column": {3: 0, 35: 1}, "pack-row": {3: 0, 35: 3}}
    place = found.place
    assert (place.block[0] * 4 + place.warp, place.lane) == (warps[name][column], 1)


def test_a_hardware_mismatch_is_replayed_there_and_located_by_the_simulator():
    honest = BMM.answers["gpu"]

    class Broken(simwarp.Device):
        """A stand-in for hardware whose results are off by one."""

    def answer(item, device):
        return honest(item, device) + (1 if isinstance(device, Broken) else 0)

    case = replace(BMM, answers={**BMM.answers, "gpu": answer})
    (found,) = check(case, 0, 2, {"simulator": simulator, "cuda": Broken}).mismatches
    assert (found.tier, found.element, found.wrong) == ("cuda", (0, 0), found.total)
    assert found.command.endswith("--input 2 --device cuda")
    assert (found.place.kernel, found.place.block, found.place.warp, found.place.lane) == (
        "bmm32",
        (0, 0, 0),
        0,
        0,
    )


def test_a_mismatch_is_plain_json_data():
    (found,) = check(with_wrong_element(BMM, "gpu", (0, 0), 4), 0, 2, SIMULATORS).mismatches
    assert json.loads(json.dumps(asdict(found)))["place"]["lane"] == 0


def test_floats_are_compared_by_the_rule_of_the_case():
    def differs(item, expected, got):
        return ~(abs(got - expected) <= 0.25)

    def answer(*_):
        return np.array([1.0, 2.125, 3.5, np.nan], np.float32)

    case = replace(
        Counted().case,
        answers={"reference": lambda _: np.arange(1.0, 5.0), "gpu": answer},
        differs=differs,
        explain=lambda item, element, bit: f"number {element[0]}",
    )
    (found,) = check(case, 0, 0, SIMULATORS).mismatches
    assert (found.element, found.expected, found.got, found.bits, found.wrong) == ((2,), 3.0, 3.5, (), 2)
    assert "expected 3.0, got 3.5: 0.5 apart" in str(found)
    assert json.loads(json.dumps(asdict(found)))["got"] == 3.5


# Who wrote it


def product(m, n, k):
    draw = Draw(9, "last_write", 0)
    return Product(draw.matrix(m, k, "float32"), draw.matrix(k, n, "int8"), False, False, (m, n, k))


@pytest.mark.parametrize("element", [(0, 0), (33, 64), (31, 95), (69, 99)])
def test_the_lane_that_wrote_an_element_is_found(element):
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
    assert (place.source_file, place.text.split()[0]) == ("bmm/output.cuh", "st.global.u32")
    assert register in place.text


@pytest.mark.parametrize("element", [(0, 0), (33, 64), (31, 95), (69, 99)])
def test_the_listing_line_that_wrote_an_element_is_found(element):
    item = product(70, 100, 45)
    place, register = last_write(BMM, "listing", item, element, np.zeros((70, 100), np.int32))
    source = inspect.getsourcefile(simwarp.listings.bmm32)
    line = linecache.getline(source, place.line)
    assert "store(" in line
    assert place.text in line
    assert register == ""
    assert place.lane in (element[0] % 32, element[1] % 32)


def test_an_unwritten_element_has_no_place():
    case = Counted().case
    assert last_write(case, "gpu", 0, (0, 0), np.zeros((2, 3), np.int32)) == (None, "")


# The runner


def test_every_tier_gets_the_same_inputs():
    outcome = verify([BMM], SIMULATORS, inputs=4)
    assert [(r.tier, r.inputs, r.shapes, r.mismatches) for r in outcome.rows] == [
        ("reference", 4, 4, 0),
        ("listing", 4, 4, 0),
        ("simulator", 4, 4, 0),
    ]
    assert outcome.mismatches == []


@pytest.fixture
def clock(monkeypatch):
    """A clock that only the test advances."""
    clock = SimpleNamespace(seconds=0.0)
    for module in ("runner", "compare"):
        fake_time = SimpleNamespace(perf_counter=lambda: clock.seconds)
        monkeypatch.setattr(f"simwarp.verify.{module}.time", fake_time)
    return clock


def test_the_budget_is_kept(clock):
    counted = Counted(wait=0.01, clock=clock)
    outcome = verify([counted.case], SIMULATORS, budget=0.295)
    assert outcome.seconds == clock.seconds == pytest.approx(0.3)
    assert len(counted.calls) == 30
    assert outcome.rows[0].inputs == 15


def test_a_budget_of_0_runs_no_input():
    counted = Counted()
    outcome = verify([counted.case], SIMULATORS, budget=0)
    assert counted.calls == []
    assert not outcome.agreed


def test_the_case_with_the_least_time_runs_next(clock):
    slow, quick = Counted("slow", wait=0.02, clock=clock), Counted("quick", wait=0.001, clock=clock)
    outcome = verify([slow.case, quick.case], SIMULATORS, budget=0.6)
    seconds = {name: sum(r.seconds for r in outcome.rows if r.case == name) for name in ("slow", "quick")}
    tried = {r.case: r.inputs for r in outcome.rows}
    assert tried["quick"] > 3 * tried["slow"]
    assert 0.5 < seconds["slow"] / seconds["quick"] < 2


def test_inputs_run_in_order():
    counted = Counted()
    verify([counted.case], {}, inputs=5)
    assert counted.calls == [0, 1, 2, 3, 4]


def test_a_single_input_is_run():
    counted = Counted()
    outcome = verify([counted.case], {}, only_input=77, seed=5)
    assert counted.calls == [77]
    assert (outcome.agreed, outcome.short, outcome.seed) == (True, [], 5)
    assert not verify([with_wrong_element(counted.case)], SIMULATORS, only_input=77).agreed


def test_selected_tiers_are_run():
    outcome = verify([BMM], SIMULATORS, inputs=1, tiers=["simulator"])
    assert [row.tier for row in outcome.rows] == ["reference", "simulator"]
    assert [row.tier for row in verify([BMM], SIMULATORS, inputs=1, tiers=[]).rows] == ["reference"]


@pytest.mark.parametrize(("shapes", "agreed"), [(LEAST_SHAPES - 1, False), (LEAST_SHAPES, True)])
def test_too_few_shapes_prevent_agreement(shapes, agreed):
    cases = [replace(Counted(name).case, shape=lambda item: (item % shapes,)) for name in ("one", "other")]
    outcome = verify(cases, SIMULATORS, inputs=LEAST_SHAPES + 10)
    assert outcome.agreed is agreed
    assert outcome.short == ([] if agreed else ["one", "other"])
    assert outcome.used_up


def test_a_requested_number_of_inputs_suffices_for_agreement(clock):
    outcome = verify([Counted().case], SIMULATORS, inputs=3)
    assert (outcome.agreed, outcome.short, outcome.few, outcome.used_up) == (True, [], 3, True)
    outcome = verify([Counted(wait=0.02, clock=clock).case], SIMULATORS, inputs=50, budget=0.1)
    assert (outcome.agreed, outcome.short, outcome.few, outcome.used_up) == (False, ["counted"], 50, False)
    assert not verify([with_wrong_element(Counted().case)], SIMULATORS, inputs=3).agreed


def test_each_case_may_have_its_own_number_of_inputs():
    cases = [Counted(name).case for name in ("one", "other", "third")]
    outcome = verify(cases, SIMULATORS, inputs={"one": 3, "other": LEAST_SHAPES + 1, "third": 4})
    assert {row.case: row.inputs for row in outcome.rows} == {"one": 3, "other": LEAST_SHAPES + 1, "third": 4}
    assert (outcome.agreed, outcome.few, outcome.used_up) == (True, 3, True)


def test_inputs_of_one_shape_count_once():
    case = replace(Counted().case, shape=lambda item: (1,))
    outcome = verify([case], SIMULATORS, inputs=120)
    assert [(row.inputs, row.shapes) for row in outcome.rows] == [(120, 1)] * 2
    assert not outcome.agreed


def test_all_mismatches_are_counted_and_three_are_kept():
    outcome = verify(
        [with_wrong_element(Counted("liar").case), Counted("honest").case], SIMULATORS, inputs=LEAST_SHAPES
    )
    assert {(r.case, r.tier): r.mismatches for r in outcome.rows} == {
        ("liar", "reference"): 0,
        ("liar", "simulator"): LEAST_SHAPES,
        ("honest", "reference"): 0,
        ("honest", "simulator"): 0,
    }
    assert [(m.case, m.input) for m in outcome.mismatches] == [("liar", 0), ("liar", 1), ("liar", 2)]
    assert not outcome.agreed
    assert outcome.short == []


def test_an_interruption_keeps_partial_results():
    def stop(item, device):
        if item == 3:
            raise KeyboardInterrupt
        return np.arange(6, dtype=np.int32).reshape(2, 3) + item

    case = replace(Counted().case, answers={**Counted().case.answers, "gpu": stop})
    outcome = verify([case], SIMULATORS)
    assert (outcome.interrupted, outcome.agreed) == (True, False)
    assert [row.inputs for row in outcome.rows] == [3, 3]
    assert outcome.seconds > 0


# Side by side


def found(outcome):
    """All parts of an outcome that do not depend on the clock."""
    plain = outcome.to_json()
    del plain["seconds"]
    for row in plain["rows"]:
        assert row.pop("seconds") >= 0
    return plain


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize("processes", [2, 5])
def test_any_number_of_processes_gives_the_same_outcome(processes):
    def cases():
        slow_start = replace(
            Counted("slow").case, draw=lambda draw: time.sleep(0.2 * (draw.k == 0)) or draw.k
        )
        return [
            with_wrong_element(slow_start),
            Counted("honest").case,
            with_wrong_element(Counted("other").case),
        ]

    expected = verify(cases(), SIMULATORS, inputs=LEAST_SHAPES)
    assert [m.input for m in expected.mismatches] == [0, 1, 2] * 2
    assert found(verify(cases(), SIMULATORS, inputs=LEAST_SHAPES, processes=processes)) == found(expected)


def test_processes_run_inputs_in_parallel():
    both = multiprocessing.get_context("fork").Barrier(2)
    case = replace(
        Counted().case, shape=lambda item: (both.wait(60), item)
    )  # each input waits for another process
    assert verify([case], {}, inputs=4, processes=2).rows[0].inputs == 4


def test_processes_keep_the_budget():
    slow = replace(Counted().case, shape=lambda item: (time.sleep(0.05), item))
    for budget in (0.3, 3, 30):  # on a busy machine, starting the processes may use up the budget
        outcome = verify([slow], {}, budget=budget, processes=2)
        assert budget <= outcome.seconds < budget + 60
        assert not outcome.interrupted
        if outcome.rows[0].inputs:
            return
    pytest.fail("no input within any budget")


def test_processes_end_with_an_interruption():
    def stop(outcome):
        raise KeyboardInterrupt

    outcome = verify([Counted().case], {}, inputs=50, processes=2, progress=stop)
    assert outcome.interrupted
    assert multiprocessing.active_children() == []


def test_an_error_in_a_worker_process_is_raised():
    case = replace(Counted().case, shape=lambda item: 1 // (item - 3))
    with pytest.raises(ZeroDivisionError):
        verify([case], {}, inputs=9, processes=2)
    assert multiprocessing.active_children() == []


def test_a_dead_worker_process_is_reported():
    case = replace(Counted().case, shape=lambda item: (item,) if item != 3 else os._exit(9))
    with pytest.raises(SimwarpError, match=r"^a process ended while it ran input 3 .*\nits exit code is 9\n"):
        verify([case], {}, inputs=9, processes=2)


def test_progress_is_reported_after_every_input():
    reported = []
    verify(
        [Counted().case],
        SIMULATORS,
        inputs=3,
        progress=lambda outcome: reported.append(outcome.rows[0].inputs),
    )
    assert reported == [1, 2, 3]
    verify(
        [Counted().case], SIMULATORS, only_input=3, progress=lambda outcome: reported.append(outcome.single)
    )
    assert reported[-1] is True


def test_the_outcome_is_plain_json_data():
    outcome = verify([with_wrong_element(BMM)], SIMULATORS, inputs=2, seed=6)
    plain = json.loads(json.dumps(outcome.to_json()))
    assert set(plain) == {"agreed", "seed", "seconds", "interrupted", "too_few_shapes", "rows", "mismatches"}
    assert (plain["agreed"], plain["seed"], plain["interrupted"]) == (False, 6, False)
    assert plain["too_few_shapes"] == []
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
def test_agreement_needs_enough_inputs_and_no_mismatch(change, agreed):
    assert Outcome(0, **change).agreed is agreed
