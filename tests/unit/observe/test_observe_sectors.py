"""Memory sectors, compared with a count lane by lane and with hand-computed counts."""

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simwarp
from simwarp.observe.line_counts import ReportError
from simwarp.observe.sectors import SectorCounts, count_sectors

LANES = np.arange(32)
BASE = 0x7F00_0000_0000


def by_lanes(addresses, width, kind):
    """The sectors moved by one warp's access, from the addresses of its lanes."""
    sectors = defaultdict(Counter)
    for at in addresses:
        sectors[at // 32][at] += 1
    turns = (max(lanes.values()) for lanes in sectors.values())
    moved = len(sectors) if kind in ("load", "store") else sum(turns)
    return SectorCounts(1, moved, len({at // 128 for at in addresses}), len(set(addresses)) * width)


@pytest.mark.slow
@given(
    st.lists(
        st.one_of(
            st.dictionaries(st.integers(0, 31), st.integers(0, 40), min_size=1),
            st.dictionaries(st.integers(0, 31), st.integers(0, 2000), min_size=1),
        ),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from([1, 2, 4, 8, 16]),
    st.sampled_from(["load", "store", "atomic", "reduction"]),
)
def test_sectors_of_each_warp_equal_a_count_by_lane(warps, width, kind):
    rows = [3 * row for row in range(len(warps))]  # warps between them do not take part
    lanes = [32 * row + lane for row, warp in zip(rows, warps, strict=True) for lane in sorted(warp)]
    at = [BASE + warp[lane] * width for warp in warps for lane in sorted(warp)]
    expected = SectorCounts()
    for warp in warps:
        expected += by_lanes([BASE + place * width for place in warp.values()], width, kind)
    assert count_sectors(np.array(lanes), np.array(at, np.uint64), width, kind) == expected


MOVED = {
    (1, 1, 0): (1, 1),
    (1, 1, 1): (2, 1),
    (1, 8, 0): (8, 2),
    (4, 0, 0): (1, 1),
    (4, 1, 0): (4, 1),
    (4, 1, 1): (5, 2),
    (4, 2, 0): (8, 2),
    (4, 8, 0): (32, 8),
    (4, 32, 0): (32, 32),
    (8, 1, 0): (8, 2),
    (16, 1, 0): (16, 4),
    (16, 1, 1): (17, 5),
}
"""Sectors and lines, by the width of an element, and stride and offset in elements."""


@pytest.mark.parametrize("how", MOVED)
def test_strides_have_known_sectors_and_lines(how):
    width, stride, offset = how
    counts = count_sectors(LANES, BASE + (LANES * stride + offset) * width, width)
    assert (counts.sectors, counts.lines) == MOVED[how]
    assert counts.bytes == (32 if stride else 1) * width


def test_efficiency_is_the_requested_share_of_moved_bytes():
    assert count_sectors(LANES, BASE + 4 * LANES, 4).efficiency == 1
    assert count_sectors(LANES, BASE + 32 * LANES, 4).efficiency == 0.125
    assert SectorCounts().efficiency == 1


def test_accesses_at_invalid_addresses_are_counted():
    wild = np.full(32, 2**64 - 16, np.uint64)
    assert count_sectors(LANES, wild, 16) == SectorCounts(1, 1, 1, 16)
    assert count_sectors(LANES[:0], wild[:0], 4) == SectorCounts()


KERNEL = """.version 9.0 .target sm_90 .address_size 64
.visible .entry k(.param .u64 a) {
.shared .b32 cell; .reg .b32 %i, %r<4>; .reg .b64 %a, %at, %x; .reg .pred %p;
ld.param.u64 %a, [a]; mov.u32 %i, %tid.x; mul.wide.u32 %at, %i, 4; add.u64 %at, %at, %a;
ld.global.u32 %r0, [%at];
setp.lt.u32 %p, %i, 8;
@%p ld.u32 %r1, [%at+4];
atom.global.add.u32 %r2, [%a+256], 0;
st.shared.u32 [cell], 1;
ret; }
"""


def observed(threads, blocks=1, **options):
    device = simwarp.Device(observe=("sectors",), **options)
    kernel = device.load(KERNEL).kernel("k")
    array = device.upload(np.zeros(65, np.uint32))
    kernel((blocks, 1, 1), (threads, 1, 1), array)
    return device, kernel, array


def test_a_kernel_of_one_warp_is_counted_by_line_and_kind():
    sectors = observed(32)[0].report.sectors
    assert sectors.counts("ptx:5") == SectorCounts(1, 4, 1, 128)
    assert sectors.counts("ptx:7") == SectorCounts(1, 2, 1, 32)
    assert sectors.counts("ptx:7").efficiency == 0.5
    assert sectors.counts("ptx:8") == SectorCounts(1, 32, 1, 4)
    assert sectors["ptx:5"] == 4
    assert sectors.total == 38
    assert list(sectors) == ["ptx:5", "ptx:7", "ptx:8"]
    assert sectors.kinds == {"load": SectorCounts(2, 6, 2, 160), "atomic": SectorCounts(1, 32, 1, 4)}
    assert sectors.opcodes["ld.u32"] == SectorCounts(1, 2, 1, 32)


@pytest.mark.parametrize("chunk_lanes", [64, 32768])
def test_partial_warps_chunks_and_launches_add_up(chunk_lanes):
    device, kernel, array = observed(40, blocks=5, chunk_lanes=chunk_lanes)
    sectors = device.report.sectors
    assert sectors.counts("ptx:5") == SectorCounts(10, 25, 10, 800)
    assert sectors.counts("ptx:7") == SectorCounts(5, 10, 5, 160)
    assert sectors.counts("ptx:8") == SectorCounts(10, 200, 10, 40)
    kernel((1, 1, 1), (32, 1, 1), array)
    assert sectors.counts("ptx:5") == SectorCounts(11, 29, 11, 928)
    device.report.clear()
    assert sectors.total == 0
    assert sectors.kinds == sectors.opcodes == {}


def test_a_line_without_accesses_is_an_error():
    sectors = observed(32)[0].report.sectors
    with pytest.raises(ReportError, match="no accesses to global memory at ptx:9"):
        sectors["ptx:9"]


def test_json_has_lines_and_opcodes():
    report = observed(32)[0].report
    data = report.to_json()["sectors"]
    assert data["lines"]["ptx:7"] == {"requests": 1, "sectors": 2, "lines": 1, "bytes": 32}
    assert data["total"] == {"requests": 3, "sectors": 38, "lines": 3, "bytes": 164}
    assert data["opcodes"]["atom.global.add.u32"]["sectors"] == 32
    assert "38" in report.to_text()
