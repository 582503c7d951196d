"""Memory traffic and operation counts, compared with hand-computed and lane-by-lane counts."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import simwarp
from simwarp.memory import Memory
from simwarp.observe import AccessEvent
from simwarp.observe.traffic import Traffic, operations
from simwarp.ptx.instructions import ROWS, TABLE
from support import observed_loops as loops
from support import small_kernels as small
from support.offenders import every_case

TESTS = Path(__file__).parents[2]


def observed(body, block=32, grid=1, given=(0,), **options):
    device = simwarp.Device(observe="traffic")
    small.run(body, block, grid, given, device, **options)
    return device.report.traffic


@pytest.mark.parametrize("launches", [1, 3])
def test_a_loop_left_lane_by_lane_is_counted(launches):
    found = loops.run("traffic", launches=launches).report.traffic
    threads = loops.BLOCK * loops.GRID
    rounds = sum(map(loops.rounds, range(threads)))
    odd = sum(loops.rounds(thread) for thread in range(1, threads, 2))
    assert found.loaded == {"global": 4 * rounds * launches}
    assert found.stored == {"global": 4 * threads * launches}
    assert (found.compulsory_read, found.compulsory_written) == (4 * launches, 4 * threads * launches)
    guarded = sum(thread % 97 == 5 for thread in range(threads))
    # mad.lo counts twice; rem, add, rem, and; in the loop an add for all and one for odd threads
    assert found.operations["i32"] == (7 * threads + guarded + rounds + odd) * launches
    assert found.operations["i64"] == threads * launches


def test_state_spaces_are_counted_separately():
    body = """.shared .align 16 .b8 s[640]; .local .align 16 .b8 l[16];
mov.u32 %r3, s; mad.lo.u32 %r3, %r1, 16, %r3; mov.u32 %r2, 5;
st.shared.v4.u32 [%r3], {%r2, %r2, %r2, %r2}; ld.shared.v2.u32 {%r4, %r5}, [%r3];
st.local.u16 [l], %r2; ld.local.u8 %r6, [l+1];
mov.u64 %rd1, out; ld.param.u64 %rd2, [%rd1];
ld.const.u32 %r7, [table]; """
    found = observed(body + small.STORE, block=40, before=".const .u32 table = 7;")
    assert found.stored == {"shared": 40 * 16, "local": 40 * 2, "global": 40 * 4}
    assert found.loaded == {"shared": 40 * 8, "local": 40, "const": 40 * 4, "param": 40 * 8}
    assert found.requested == 160


def test_generic_accesses_count_in_the_space_they_reach():
    body = """.shared .b32 s; mov.u64 %rd1, s; cvta.shared.u64 %rd1, %rd1;
setp.lt.u32 %p1, %lane, 5; selp.b64 %rd2, %rd1, %at, %p1; mov.u32 %r2, 1; st.u32 [%rd2], %r2; """
    found = observed(body + small.STORE)
    assert found.stored == {"shared": 20, "global": 4 * 27 + 128}
    assert found.compulsory_written == 128


def test_atomics_count_as_read_and_write():
    body = ".shared .b32 s; st.shared.u32 [s], 0; bar.sync 0; atom.shared.add.u32 %r2, [s], 1;"
    body += "red.global.add.u64 [%in], 1; mov.u32 %r2, 1;"
    found = observed(body + small.STORE, block=40, given=(0, 0))
    assert found.atomics == {"shared": 40, "global": 40}
    assert found.atomic_bytes == {"shared": 160, "global": 320}
    assert (found.compulsory_read, found.compulsory_written) == (8, 8 + 160)
    assert found.requested == 160 + 2 * 320


def test_bytes_written_before_their_read_are_not_compulsory_reads():
    found = observed("mov.u32 %r2, 1; st.global.u32 [%at], %r2; ld.global.u32 %r3, [%at]; " + small.STORE)
    assert (found.loaded["global"], found.stored["global"]) == (128, 256)
    assert (found.compulsory_read, found.compulsory_written) == (0, 128)


def event(memory, kind, addresses, width):
    chunk = SimpleNamespace(launch=SimpleNamespace(memory=memory))
    at = np.array(addresses, np.uint64)
    return AccessEvent(chunk, None, kind, "global", np.arange(at.size), at, width)


def test_distinct_bytes_are_counted_for_every_width():
    """Random accesses to two arrays, counted byte by byte in Python."""
    random = np.random.default_rng(3)
    memory = Memory()
    arrays = [memory.allocate(size, name) for size, name in ((200, "a"), (77, "b"))]
    traffic, read, written = Traffic(), set(), set()
    for _ in range(60):
        kind, width = random.choice(["load", "store", "atomic"]), int(2 ** random.integers(0, 5))
        places = []
        for _ in range(random.integers(1, 9)):
            array = arrays[random.integers(0, 2)]
            places.append(array.base + width * int(random.integers(0, array.size // width)))
        traffic.on_access(event(memory, kind, places, width))
        touched = {place + i for place in places for i in range(width)}
        read |= (touched - written) if kind != "store" else set()
        written |= touched if kind != "load" else set()
        assert (traffic.compulsory_read, traffic.compulsory_written) == (len(read), len(written))
    assert 0 < len(read) < len(written) < 277


def test_accesses_outside_every_allocation_are_not_counted():
    memory = Memory()
    array = memory.allocate(8, "a")
    traffic = Traffic()
    traffic.on_access(event(memory, "load", [array.base + 8, array.base, 16, array.base + 4], 4))
    assert (traffic.loaded["global"], traffic.compulsory) == (16, 8)


@every_case(
    ("opcode", "expected"),
    [
        ("add.f32", ("f32", 1)),
        ("fma.rn.f32", ("f32", 2)),
        ("fma.rn.f64", ("f64", 2)),
        ("mul.f16x2", ("f16", 2)),
        ("fma.rn.bf16x2", ("bf16", 4)),
        ("min.f32", ("f32", 1)),
        ("div.rn.f32", ("f32", 1)),
        ("div.approx.f32", ("approximate", 1)),
        ("rsqrt.approx.ftz.f64", ("approximate", 1)),
        ("ex2.approx.f16x2", ("approximate", 2)),
        ("mad.lo.s32", ("i32", 2)),
        ("mad.wide.u16", ("i16", 2)),
        ("madc.hi.u32", ("i32", 2)),
        ("sub.u64", ("i64", 1)),
        ("add.u16x2", ("i16", 2)),
        ("add.sat.s32", ("i32", 1)),
        ("dp4a.s32.u32", ("i32", 8)),
        ("dp2a.lo.u32.u32", ("i32", 4)),
        ("vadd4.u32.u32.u32", ("i32", 4)),
        ("popc.b64", ("i64", 1)),
        ("xor.b32", ("i32", 1)),
        ("lop3.b32", ("i32", 1)),
        ("shl.b16", ("i16", 1)),
        ("and.pred", None),
        ("setp.lt.f32", None),
        ("selp.f32", None),
        ("mov.f32", None),
        ("neg.f32", None),
        ("abs.f16x2", None),
        ("cvt.rn.f32.s32", None),
        ("ld.global.f32", None),
        ("atom.global.add.f32", None),
        ("shfl.sync.idx.b32", None),
    ],
)
def test_instructions_have_known_operation_counts(opcode, expected):
    row, form = TABLE.find(opcode)
    assert operations(row, form.T) == expected


def test_every_row_has_an_operation_count():
    for row in ROWS.values():
        for kind in row.types or ("",):
            found = operations(row, kind)
            assert found is None or found.number >= 1
