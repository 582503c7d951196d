"""Every form of every PTX row, run as a kernel, against its scalar twin.

With ``--simwarp-device=cuda`` (or ``both``) a GPU answers instead of the simulator.
"""

from fnmatch import fnmatchcase

import numpy as np
import pytest

import simwarp
from oracles import scalar_ptx_memory as memory
from reference.errors import SchemeError
from simwarp.lab.evidence.bounds import Bound, measure, parse_bound, ulps, values
from simwarp.lab.evidence.catalogue import operands_of, probe_of
from simwarp.lab.evidence.forms import required
from simwarp.lab.evidence.judge import comparable, judge
from simwarp.lab.evidence.launch import ask, batches
from simwarp.lab.subjects.form_answers import trapped
from simwarp.ptx import kinds
from simwarp.ptx.instructions import ROWS
from support import run_ptx_rows as rows

COMPUTING = [name for name in ROWS if name in rows.TWINS or name in rows.BOUNDED]

DEAR = (
    "set (f64)",
    "set (signed)",
    "setp",
    "set.f16 (f32)",
    "set.f16 (signed)",
    "set (bf16x2)",
    "setp (f16)",
    "setp (f16x2)",
    "lop3.b32",
    "lop3.BoolOp.b32",
    "ldu",
    "cvt (f32 to integer)",
    "atom (bits)",
    "atom (min, max)",
    "atom (add)",
    "atom (add, f32 vector)",
    "atom (add, f64)",
    "atom (packed vector)",
    "atom (half vector)",
    "atom (add, half)",
    "atom (cas)",
    "red (inc, dec)",
    "red (packed vector)",
    "red (half vector)",
    "red (add, bf16)",
    "wmma.load.a.bf16",
    "wmma.load.c.s32",
    "wmma.store.d.f32",
    "vmax4",
    "ld",
    "st",
    "wmma.mma.*",
    "mma.m8n8k4.f16",
    "mma.f8",
    "mma.f64",
    "wmma.load.b.s8",
    "wmma.store.d.s32",
    "cvt (integer to f32)",
    "atom (add, bf16)",
    "red (add, half)",
    "red (min, max)",
    "set.bf16 (float)",
)
"""Rows with many forms, or dear ones, as patterns; CI runs some of their forms."""


def check(device, name, every=1):
    """Compare every form of a row, or every second, third … of them."""
    if name in rows.ADDRESSES and not isinstance(device, simwarp.Device):
        pytest.skip("a chip has its own addresses")
    for batch in batches([rows.probe_of(opcode) for opcode in required(ROWS[name])[::every]]):
        operands = [rows.some_sets(probe) for probe in batch]
        for probe, given, got in zip(batch, operands, rows.run(device, batch, operands), strict=True):
            assert rows.differences(probe, given, got) == [], probe.form


@pytest.mark.gate_cases(*(f"*-{name}" for name in DEAR))
@pytest.mark.parametrize("name", COMPUTING)
def test_computing_rows_equal_their_twins(simwarp_device, name):
    check(simwarp_device, name)


@pytest.mark.at_most(25)
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in COMPUTING if any(fnmatchcase(name, x) for x in DEAR)])
def test_every_fifth_form_of_dear_rows_equals_its_twin(simwarp_device, name):
    check(simwarp_device, name, every=5)


@pytest.mark.parametrize("name", ["div", "rem"])
def test_division_by_zero_does_not_crash(simwarp_device, name):
    for opcode in required(ROWS[name]):
        probe = probe_of(opcode)
        operands = operands_of(probe).copy()
        operands[:, 1] = 0
        (got,) = rows.run(simwarp_device, [probe], [operands])
        assert len(got) == len(operands)


# ------------------------------------------------------------------------------------------ control
# Expected output of each probe of `simwarp.lab.evidence.control`.


def ones(bits):
    return np.uint64((1 << bits) - 1)


def inverted(a):
    return ~a & ones(32)


def threads(a):
    return np.arange(len(a)) % 128


def written(a):
    """The word that each thread writes before the barrier: its operand, inverted in even threads."""
    return np.where(threads(a) % 2 == 1, a, inverted(a))


def branched(opcode, a, taken=None):
    return a if ".uni" in opcode or taken is None else np.where(taken == 1, a, inverted(a))


def indexed(opcode, a):
    index = (np.arange(len(a)) // 128 if ".uni" in opcode else a) % 3
    return np.choose(
        index.astype(np.intp), [inverted(a), (a + np.uint64(7)) & ones(32), a ^ np.uint64(0x12345678)]
    )


def called(opcode, a):
    doubled = np.where(a > 0x7FFFFFFF, a, (a + a) & ones(32))
    return doubled, doubled


def met(opcode, a):
    """The word of the opposite thread in the block or the warp."""
    other = np.arange(len(a)) ^ (31 if "warp" in opcode else 127)
    return written(a)[other]


def arrived(opcode, a):
    below = np.arange(len(a)) - 64
    return np.where(threads(a) >= 64, a[below], a)


def reduced(opcode, a):
    """Expected reductions: in even blocks one thread's predicate is true, in odd ones all are."""
    everyone = np.arange(len(a)) // 128 % 2 == 1
    holds = np.where(everyone, 128, 1)
    value = {"popc": lambda n: n, "and": lambda n: n == 128, "or": lambda n: n > 0}
    count = value[next(word for word in opcode.split(".") if word in value)]
    return count(holds).astype(np.uint64), count(128 - holds).astype(np.uint64)


def same(opcode, a):
    return a


def copied(opcode, a, b, count, none):
    """Of each size: all bytes, then as many as the count, then none where the predicate holds."""
    source = np.stack([a, b], axis=1).view(np.uint8)
    results = []
    for size in (16,) if ".cg." in opcode else (4, 8, 16):
        whole = np.full(len(a), size)
        for read in (whole, np.minimum((count & 31).astype(int), size), np.where(none == 1, 0, size)):
            data = np.zeros_like(source)
            for row, given, n in zip(data, source, read, strict=True):
                row[:n] = given[:n]
            results += list(data.view(np.uint64).T[: max(1, size // 8)])
    return tuple(results)


def copied_in_groups(opcode, a, b, count, none):
    return a, b


def moved_in_bulk(opcode, a, b, c, d):
    """16 bytes, or as many as the type and vector have, written over c and d or combined with them."""
    words = opcode.split(".")
    bits = int(words[-1].lstrip("bfsu")) if words[-1][1:].isdigit() or words[-1] == "bf16" else 128
    many = 1 if words[1] == "async" and words[0] in ("st", "red") else 128 // bits
    many = next((int(word[1:]) for word in words if word in ("v2", "v4")), many)
    new, old = (np.stack(pair, axis=1).view(np.uint8) for pair in ((a, b), (c, d)))
    stored = words[0] in ("st", "red") and "shared::cta" not in words
    if stored or "shared::cluster.shared::cta" in opcode:
        new = new[np.arange(len(new)) ^ 128]  # from the other block of the cluster
    if not any(word in REDUCES for word in words):
        return tuple(np.hstack([new[:, : many * bits // 8], old[:, many * bits // 8 :]]).view(np.uint64).T)
    kind = np.dtype(f"u{bits // 8}")
    plain = ".".join(["red", "global", *words[next(i for i, w in enumerate(words) if w in REDUCES) :]])
    # A bulk reduction keeps subnormals even in global memory, as red does in shared memory.
    there = "red.shared" if "shared::cluster" in words or words[-1] == "f32" else "red.global"
    plain = plain.replace("red.global", there)
    combined = old.view(kind).copy()
    for row, given in zip(combined, new.view(kind), strict=True):
        row[:many] = [
            int(memory.red(plain, int(x), int(y))[0]) for x, y in zip(row[:many], given, strict=False)
        ]
    return tuple(combined.view(np.uint64).T)


def moved_as_tensor(opcode, a, old=None):
    """A load begins a pixel, two words, late; a store arrives as it is, or combined with what was there."""
    words = opcode.split(".")
    if "bulk_group" not in words:
        rows = a.reshape(-1, 256 if {"1d", "2d"} & {*words} or "tensor" not in words else 16)
        return np.pad(rows[:, 2:], ((0, 0), (0, 2))).reshape(-1)
    operation = next((word for word in words if word in REDUCES), "")
    kind = {"min": "i8", "max": "i8", "inc": "u4", "dec": "u4"}.get(operation, "u8")
    x, y = old.copy().view(kind), a.copy().view(kind)
    combined = {
        "": lambda: y,
        "add": lambda: x + y,
        "min": lambda: np.minimum(x, y),
        "max": lambda: np.maximum(x, y),
        "inc": lambda: np.where(x >= y, 0, x + 1).astype(kind),
        "dec": lambda: np.where((x == 0) | (x > y), y, x - 1).astype(kind),
        "and": lambda: x & y,
        "or": lambda: x | y,
        "xor": lambda: x ^ y,
    }[operation]()
    return combined.view(np.uint64)


def through_two_phases(opcode, count, given):
    """A barrier of n arrivals through its first phase, then the pending count and parity of the next one."""
    words = opcode.split(".")
    zeros = np.zeros(len(count), np.uint64)
    n, yes = (count & np.uint64(7)) + np.uint64(3), zeros + np.uint64(1)
    first, expected, complete = [], n, True
    if "init" in words or "inval" in words:
        complete = False
    elif "pending_count" in words:
        first, expected, complete = [n], n - np.uint64(1), False
    elif "test_wait" in words or "try_wait" in words:
        first = [yes] * ("parity" in words) + [zeros] * ("test_wait" in words) + [yes]
    else:
        first = [n] * (words[1].startswith("arrive") and "shared::cluster" not in words)
        if "expect_tx" in words or "complete_tx" in words:
            first.append(((given & np.uint64(0xFFF)) == 0).astype(np.uint64))
        expected = n - np.uint64("arrive_drop" in words)
    return (*first, expected, zeros + np.uint64(complete), zeros + np.uint64(not complete))


REDUCES = {"add", "inc", "dec", "min", "max", "and", "or", "xor"}
EXPECTED = {
    kinds.MBARRIER: through_two_phases,
    kinds.ASYNC_COPY: copied,
    kinds.BULK_COPY: moved_in_bulk,
    kinds.BULK_REDUCTION: moved_in_bulk,
    kinds.BULK_GROUP: moved_in_bulk,
    **dict.fromkeys((kinds.TENSOR_COPY, kinds.TENSOR_REDUCTION, kinds.TENSOR_MAP), moved_as_tensor),
    kinds.ASYNC_GROUP: copied_in_groups,
    kinds.BRANCH: branched,
    kinds.INDEXED_BRANCH: indexed,
    kinds.CALL: called,
    kinds.EXIT: branched,
    kinds.RETURN: branched,
    kinds.WARP_BARRIER: met,
    kinds.CLUSTER_BARRIER: met,
    kinds.FENCE: same,
    kinds.REGISTER_COUNT: same,
}
BY_NAME = dict.fromkeys(
    ("cp.async.mbarrier.arrive", "cp.async.mbarrier.arrive.noinc", "cp.async.bulk.prefetch.L2.global"),
    lambda opcode, a, b, c, d: (a, b),
)
BY_NAME |= dict.fromkeys(
    ("cp.async.bulk.prefetch.tensor (tile)", "cp.async.bulk.prefetch.tensor (im2col)", "prefetch.tensormap"),
    same,
)
OF_WARPGROUPS = [name for name, row in ROWS.items() if row.section.startswith("9.7.15")]
"""Rows whose twins are in `test_wgmma.py`."""
OF_TEXTURES = [name for name, row in ROWS.items() if row.section.startswith(("9.7.10", "9.7.11"))]
"""Rows whose twins are in `test_textures.py`."""
BARRIERS = {"sync": met, "arrive": arrived, "red": reduced}


OTHERS = [name for name in ROWS if name not in {*COMPUTING, *OF_WARPGROUPS, *OF_TEXTURES}]
DEAR_OTHERS = ("cp.reduce.*", "red.async *", "mbarrier.*")


def check_other(device, name, every=1):
    """Compare the forms of a row that moves, waits or traps, or every second, third … of them."""
    row = ROWS[name]
    for batch in batches([probe_of(opcode) for opcode in required(row)[::every]]):
        if batch[0].faults:
            assert trapped(device, batch[0]).tolist() == [[1]]
            continue
        for probe, got in zip(batch, ask(device, batch), strict=True):
            words = probe.form.split(".")
            does = (
                BY_NAME.get(name)
                or EXPECTED.get(row.kind)
                or next(BARRIERS[word] for word in BARRIERS if word in words)
            )
            columns = operands_of(probe).T
            expected = does(probe.form, *columns)
            expected = expected if isinstance(expected, tuple) else (expected,)
            for column, wanted in zip(got.T, expected, strict=True):
                assert column.tolist() == wanted.tolist(), probe.form


@pytest.mark.gate_cases("*-st.async", *(f"*-{name}" for name in DEAR_OTHERS))
@pytest.mark.parametrize("name", OTHERS)
def test_other_rows_equal_their_twins_or_fault(simwarp_device, name):
    check_other(simwarp_device, name)


@pytest.mark.at_most(17)
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in OTHERS if any(fnmatchcase(name, x) for x in DEAR_OTHERS)])
def test_every_third_form_of_dear_other_rows_equals_its_twin(simwarp_device, name):
    check_other(simwarp_device, name, every=3)


# --------------------------------------------------------------------------------------- comparison


def words(*values):
    return np.array(values, np.uint64)


def test_bounds_are_parsed():
    assert parse_bound("2 ulp") == Bound("ulp", 2.0)
    assert parse_bound("2^-3 of it") == Bound("relative", 0.125)
    assert parse_bound("2^-3") == Bound("absolute", 0.125)
    assert parse_bound("2^-20 within 2 pi of 0").domain == 2 * np.pi
    assert parse_bound("2^-22, of it outside 0.5 to 2").relative_outside == (0.5, 2.0)
    with pytest.raises(SchemeError, match='the bound "small"'):
        parse_bound("small")


def test_an_error_is_measured_in_the_unit_of_its_bound():
    one = words(0x3F800000)
    error, allowed = measure(Bound("ulp", 2), "f32", one, one, one + np.uint64(2))
    assert (error.tolist(), allowed.tolist()) == ([2.0], [True])
    error, allowed = measure(Bound("relative", 2**-23), "f32", one, one, one + np.uint64(2))
    assert (error.tolist(), allowed.tolist()) == ([2.0**-22], [False])
    assert ulps("f32", words(1), words(0x80000001)).tolist() == [2.0]
    assert values("bf16", words(0x3F80)).tolist() == [1.0]


def test_the_first_wrong_answer_is_reported():
    verdict = judge(probe_of("popc.b32"), words([7]), words([3]), words([2]))
    assert str(verdict) == "popc.b32: 1 of 1 sets differ\na=0x7: expected d=0x3, got d=0x2"


def test_uncompared_results_are_zeroed():
    operands = words([7, 0], [7, 1])
    assert comparable(probe_of("div.u32"), operands, words([9], [7])).tolist() == [[0], [7]]


def test_a_module_holds_at_most_32_probes():
    assert [len(batch) for batch in batches([probe_of("popc.b32")] * 100)] == [32, 32, 32, 4]


def test_an_unknown_form_is_refused():
    with pytest.raises(SchemeError, match=r"no row has the form 'pop\.b64'"):
        probe_of("pop.b64")
