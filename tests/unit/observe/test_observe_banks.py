"""Bank conflicts, compared with a count lane by lane and with hand-computed counts."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simwarp
from simwarp.observe.banks import BankConflicts, BankCounts, count_banks
from simwarp.observe.line_counts import ReportError

LANES = np.arange(32)


def by_lanes(addresses, width, kind):
    """The cost of one warp's access, ``{lane: address}``, by phase and bank."""
    count = max(width // 4, 1)

    def alike(distance):
        return all(addresses.get(lane ^ distance, at) == at for lane, at in addresses.items())

    if kind == "load" and count > 1 and (alike(1) or alike(2)):
        count //= 2
    phases = defaultdict(lambda: defaultdict(list))
    for lane, at in addresses.items():
        for byte in range(0, width, 4):
            word = (at + byte) // 4
            phases[lane * count // 32][word % 32].append(word)
    costs = []
    for banks in phases.values():
        shared = kind in ("load", "store")
        costs.append(max(len(set(words)) if shared else len(words) for words in banks.values()))
    return BankCounts(1, sum(costs), sum(costs) - len(costs))


WIDTHS = st.sampled_from([1, 2, 4, 8, 16])
KINDS = st.sampled_from(["load", "store", "atomic", "reduction"])
PLACES = st.one_of(
    st.dictionaries(st.integers(0, 31), st.integers(0, 7), min_size=1),
    st.dictionaries(st.integers(0, 31), st.integers(0, 1023), min_size=1),
    st.builds(lambda at, by: {lane: at[lane // by] for lane in range(32)},
              st.lists(st.integers(0, 60), min_size=32, max_size=32), st.sampled_from([2, 4])),
    st.builds(lambda at: {lane: at[lane & ~2] for lane in range(32)},
              st.lists(st.integers(0, 60), min_size=32, max_size=32)),
)  # fmt: skip


@given(st.lists(PLACES, min_size=1, max_size=3), WIDTHS, KINDS)
def test_wavefronts_of_each_warp_equal_a_count_by_lane(warps, width, kind):
    rows = [3 * row for row in range(len(warps))]  # warps between them do not take part
    lanes = [32 * row + lane for row, warp in zip(rows, warps, strict=True) for lane in sorted(warp)]
    places = [warp[lane] for warp in warps for lane in sorted(warp)]
    got = count_banks(np.array(lanes), np.array(places, np.uint64) * np.uint64(width), width, kind)
    expected = BankCounts()
    for warp in warps:
        expected += by_lanes({lane: place * width for lane, place in warp.items()}, width, kind)
    assert got == expected


WAVEFRONTS = {
    1: {1: 1, 4: 1, 128: 32},
    2: {2: 1, 64: 32},
    4: {0: 1, 1: 1, 2: 2, 3: 1, 4: 4, 8: 8, 32: 32, 33: 1},
    8: {0: 1, 1: 2, 2: 4, 16: 32},
    16: {0: 2, 1: 4, 2: 8, 8: 32},
}
"""Of a load, by the width of an element and by the stride in elements."""


@pytest.mark.parametrize(("width", "strides"), WAVEFRONTS.items())
def test_strides_have_known_wavefronts(width, strides):
    counts = {stride: count_banks(LANES, LANES * stride * width, width) for stride in strides}
    assert {stride: found.wavefronts for stride, found in counts.items()} == strides


def test_wide_loads_merge_phases_when_all_lane_pairs_agree():
    pairs, over_one = LANES // 2, LANES // 4 * 2 + LANES % 2
    for places in (pairs, over_one):
        assert count_banks(LANES, 16 * places, 16, "load").wavefronts == 2
        assert count_banks(LANES, 16 * places, 16, "store").wavefronts == 4
    mixed = np.where(LANES < 16, pairs, over_one)  # each half agrees, in its own way
    assert count_banks(LANES, 16 * mixed, 16).wavefronts == 4
    odd = LANES[1::2]  # missing partner lanes count as agreeing
    assert count_banks(odd, 16 * (odd // 2), 16).wavefronts == 2
    assert count_banks(odd, 16 * odd, 16) == BankCounts(1, 4, 2)


def test_accesses_at_invalid_addresses_are_counted():
    wild = np.full(32, 2**64 - 16, np.uint64)
    assert count_banks(LANES, wild, 16) == BankCounts(1, 2, 0)
    assert count_banks(LANES[:0], wild[:0], 4) == BankCounts()


HEAD = ".version 9.0 .target sm_90 .address_size 64\n"
KERNEL = (
    HEAD
    + """.visible .entry k() {
.shared .align 16 .b8 cells[4096]; .reg .b32 %i, %at, %r<5>; .reg .b64 %x; .reg .pred %p;
mov.u32 %i, %tid.x; mov.u32 %at, cells; mad.lo.u32 %at, %i, 8, %at;
st.shared.u32 [%at], 0; st.shared.u32 [%at+4], 0;
bar.sync 0;
and.b32 %r1, %i, 1; setp.eq.u32 %p, %r1, 0;
@%p ld.shared.v2.u32 {%r1, %r2}, [%at];
cvt.u64.u32 %x, %at; cvta.shared.u64 %x, %x; ld.u32 %r3, [%x];
bar.sync 0;
atom.shared.add.u32 %r4, [cells], 0; red.shared.add.u32 [cells+4], 0;
ret; }
"""
)


def observed(threads, blocks=1, **options):
    device = simwarp.Device(observe="banks", **options)
    kernel = device.load(KERNEL).kernel("k")
    kernel((blocks, 1, 1), (threads, 1, 1))
    return device, kernel


def test_a_kernel_of_one_warp_is_counted_by_line_and_kind():
    banks = observed(32)[0].report.bank_conflicts
    assert banks.counts("ptx:5") == BankCounts(2, 4, 2)  # two stores on this line
    assert banks.counts("ptx:8") == BankCounts(1, 2, 1)  # merges: half of the lanes do not take part
    assert banks.counts("ptx:9") == BankCounts(1, 2, 1)
    assert banks.counts("ptx:11") == BankCounts(2, 64, 62)
    assert banks["ptx:11"] == 62
    assert banks.total == 66
    assert list(banks) == ["ptx:5", "ptx:8", "ptx:9", "ptx:11"]
    assert banks.kinds == {
        "store": BankCounts(2, 4, 2),
        "load": BankCounts(2, 4, 2),
        "atomic": BankCounts(1, 32, 31),
        "reduction": BankCounts(1, 32, 31),
    }
    assert banks.opcodes["ld.shared.v2.u32"] == BankCounts(1, 2, 1)


@pytest.mark.parametrize("chunk_lanes", [64, 32768])
def test_partial_warps_chunks_and_launches_add_up(chunk_lanes):
    device, kernel = observed(40, blocks=5, chunk_lanes=chunk_lanes)
    banks = device.report.bank_conflicts
    last = [BankCounts(1, 32, 31), BankCounts(1, 8, 7)]  # of the atomic: 32 lanes, then 8
    assert banks.kinds["atomic"] == sum(5 * last, BankCounts())
    assert banks.counts("ptx:9") == BankCounts(10, 15, 5)  # 8 lanes, two apart: no conflict
    kernel((1, 1, 1), (32, 1, 1))
    assert banks.counts("ptx:9") == BankCounts(11, 17, 6)
    device.report.clear()
    assert banks.total == 0
    assert banks.kinds == banks.opcodes == {}
    kernel((1, 1, 1), (32, 1, 1))
    assert banks.total == 66


def test_a_line_without_accesses_is_an_error():
    banks = observed(32)[0].report.bank_conflicts
    with pytest.raises(ReportError, match="no accesses to shared memory at ptx:6"):
        banks["ptx:6"]


def test_json_has_lines_and_opcodes():
    report = observed(32)[0].report
    data = report.to_json()["banks"]
    assert data["lines"]["ptx:8"] == {"requests": 1, "wavefronts": 2, "conflicts": 1}
    assert data["total"] == {"requests": 6, "wavefronts": 72, "conflicts": 66}
    assert data["opcodes"]["red.shared.add.u32"] == {"requests": 1, "wavefronts": 32, "conflicts": 31}
    assert "72" in report.to_text()


COUNTING = {
    "atom.shared.add.u32 %old, [cells], 1;": 1,
    "red.shared.add.s32 [cells], 1;": 1,
    "atom.shared.add.u32 _, [cells], 1;": 1,
    "atom.shared.add.u32 %old, [cells], 1; mov.u32 %r, %old;": 32,
    "red.shared.add.u32 [cells], 2;": 32,
    "red.shared.add.u32 [cells], %one;": 32,
    "red.shared.max.u32 [cells], 1;": 32,
    "red.shared.add.u64 [cells], 1;": 32,
    "red.add.u32 [%generic], 1;": 32,
}
"""Operations of 32 lanes on one word, and their wavefronts."""


@pytest.mark.parametrize("operation", COUNTING)
def test_only_an_atomic_add_of_one_merges_lanes(operation):
    device = simwarp.Device(observe="banks")
    text = """.visible .entry k() { .shared .align 8 .b8 cells[8];
    .reg .b32 %r, %old, %one; .reg .b64 %cells, %generic; .reg .pred %first;
    mov.u32 %r, %tid.x; setp.eq.u32 %first, %r, 0; mov.u32 %one, 1;
    mov.u64 %cells, cells; cvta.shared.u64 %generic, %cells;
    @%first st.shared.u64 [cells], 0; bar.sync 0;
    OPERATION
    ret; }"""
    device.load(HEAD + text.replace("OPERATION", operation)).kernel("k")((1, 1, 1), (32, 1, 1))
    kinds = device.report.bank_conflicts.kinds
    assert [counts.wavefronts for kind, counts in kinds.items() if kind != "store"] == [COUNTING[operation]]


def test_global_accesses_have_no_bank_conflicts():
    observer = BankConflicts()
    device = simwarp.Device(observers=[observer])
    text = """.visible .entry k(.param .u64 a) { .reg .b64 %a; .reg .b32 %r;
    ld.param.u64 %a, [a]; ld.u32 %r, [%a]; st.global.u32 [%a], %r; ret; }"""
    device.load(HEAD + text).kernel("k")((1, 1, 1), (1, 1, 1), device.upload(np.zeros(1, np.uint32)))
    assert observer.kinds == {}
