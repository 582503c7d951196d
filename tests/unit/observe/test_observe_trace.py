"""Traces are exact, independent of execution order, safe to load, and comparable."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

import simwarp
from reference.errors import InputFileError, SchemeError
from simwarp.engine.schedule.scheduler import Scheduler
from simwarp.faults import OutOfBounds
from simwarp.observe.trace import Trace, TraceError, compare, differences, load
from simwarp.observe.trace.model import ROW
from support import small_kernels as small

STORE, text = "st.global.u32 [%at], %r2;\nret;", small.text
HEAD = 9
"""Steps of the frame before a body."""


def traced(body, *, device=None, chosen=None, **options):
    """The trace of a small kernel, and its device."""
    trace = Trace(**(chosen or {}))
    device = simwarp.Device(observers=[trace], **(device or {}))
    run(body, device=device, **options)
    return trace, device


def run(body, **options):
    """Run a small kernel with one instruction per line."""
    small.run(one_per_line(body), **options)


def one_per_line(body):
    return body.replace("; ", ";\n")


def line_of(part, body):
    """PTX line of a part of the kernel body."""
    return small.line_of(part, one_per_line(body))


def steps(trace, block=0, warp=0, launch=0):
    """The steps of a warp after the prologue of the frame."""
    return [record for record in trace.warp(block, warp, launch) if record.number >= HEAD]


def one(trace, opcode):
    """The only record with this opcode."""
    (found,) = [record for record in trace.warp(0, 0) if record.instruction.opcode == opcode]
    return found


def words(record, name):
    (found,) = [written for written in record.written if written.name == name]
    return found.words.tolist()


# ---- what is recorded ----------------------------------------------------------------------------

COLLATZ = """mov.u32 %r2, 0; add.u32 %r3, %i, 1;
L: setp.eq.u32 %p1, %r3, 1; @%p1 bra END;
and.b32 %r4, %r3, 1; setp.eq.u32 %p2, %r4, 1; shr.u32 %r5, %r3, 1;
@%p2 mad.lo.u32 %r5, %r3, 3, 1;
mov.u32 %r3, %r5; add.u32 %r2, %r2, 1; bra L;
END: """


def collatz(i):
    """Successive values of ``%r3``."""
    values = [i + 1]
    while values[-1] != 1:
        values.append(values[-1] * 3 + 1 if values[-1] % 2 else values[-1] // 2)
    return values


def lane_values(trace, opcode, register, lane, block=0, warp=0):
    """Successive values that a lane wrote to a register."""
    records = [r for r in trace.warp(block, warp) if r.instruction.opcode == opcode and r.mask >> lane & 1]
    return [r.value(register, lane) for r in records if register in [w.name for w in r.written]]


def test_every_value_of_every_lane_is_recorded_in_order():
    trace, device = traced(COLLATZ + STORE, block=40, grid=2)
    for block, warp, lane in ((0, 0, 0), (0, 0, 26), (0, 1, 7), (1, 0, 31), (1, 1, 0)):
        i = 40 * block + 32 * warp + lane
        assert lane_values(trace, "mov.u32", "%r3", lane, block, warp) == collatz(i)[1:]
        assert lane_values(trace, "setp.eq.u32", "%p1", lane, block, warp) == [n == 1 for n in collatz(i)]
        assert lane_values(trace, "st.global.u32", "%r2", lane, block, warp) == [len(collatz(i)) - 1]
    rows = trace.recording().rows
    executed = rows["mask"][rows["kind"] == 0]
    assert int(np.bitwise_count(executed).sum()) == device.executed
    assert (rows["mask"][rows["warp"] == 1] & 0xFFFFFF00 == 0).all()  # eight threads are in the second warp


def test_a_record_has_instruction_line_and_values():
    trace, _ = traced("add.u32 %r2, %i, 5;\n" + STORE, block=2, grid=3)
    record = steps(trace, (2, 0, 0))[0]
    assert (record.kind, record.number, record.mask, record.lanes) == ("step", HEAD, 3, [0, 1])
    assert record.instruction.text == "add.u32 %r2, %i, 5;"
    assert record.instruction.line == line_of("add.u32 %r2, %i, 5;", "add.u32 %r2, %i, 5;\n" + STORE)
    assert [(w.name, w.type, w.words.tolist()) for w in record.written] == [("%r2", "u32", [9, 10])]
    assert record.to_json()["written"] == [
        {"name": "%r2", "type": "u32", "words": ["0x00000009", "0x0000000a"]}
    ]
    with pytest.raises(TraceError, match=r"did not write %r2 in lane 2") as caught:
        record.value("%r2", 2)
    assert "it wrote %r2, in lanes 0x00000003" in str(caught.value)


def test_predicated_steps_record_only_active_lanes():
    body = (
        "setp.lt.u32 %p1, %lane, 3; @%p1 mov.u32 %r2, 4; @!%p1 mov.u32 %r2, 6; setp.gt.u32 %p2, %lane, 40;\n"
    )
    trace, _ = traced(body + "@%p2 mov.u32 %r2, 7;\n" + STORE)
    moves = [r for r in steps(trace) if r.instruction.opcode == "mov.u32"]
    assert [(r.mask, words(r, "%r2")) for r in moves] == [(7, [4] * 3), (0xFFFFFFF8, [6] * 29)]


def test_vectors_pairs_halves_and_carries_are_recorded():
    body = """ld.global.v2.u32 {%r2, %r3}, [%in]; mov.b64 %rd1, {%r2, %r3}; mov.b64 {%r4, _}, %rd1;
mov.b32 {%rs1, %rs2}, %r3; setp.lt.s32 %p2|%p3, %r2, %r3;
add.cc.u32 %r6, %r2, %r3; addc.u32 %r7, %r2, 0; ld.global.u8 %r8, [%in+3]; ld.global.s8 %rs3, [%in];
mov.f32 %f1, 0f40400000; cvt.rn.f16.f32 %rs4, %f1; st.global.v2.u32 [%in], {%r3, 9};
red.global.add.u32 [%in], %r3; atom.global.exch.b32 %r9, [%in], %r2;
"""
    trace, _ = traced(body + STORE, block=1, given=(0xFFFFFFFE, 0x00020001))
    got = {
        r.instruction.opcode: [(w.name, w.type, *w.words.tolist()) for w in r.written] for r in steps(trace)
    }
    assert got["ld.global.v2.u32"] == [("%r2", "u32", 0xFFFFFFFE), ("%r3", "u32", 0x20001)]
    assert got["mov.b64"] == [("%r4", "b32", 0xFFFFFFFE)]
    assert got["mov.b32"] == [("%rs1", "b16", 1), ("%rs2", "b16", 2)]
    assert got["setp.lt.s32"] == [("%p2", "pred", 1), ("%p3", "pred", 0)]
    assert got["add.cc.u32"] == [("%r6", "u32", 0x1FFFF), ("%carry", "pred", 1)]
    assert got["addc.u32"] == [("%r7", "u32", 0xFFFFFFFF)]
    assert got["ld.global.u8"] == [("%r8", "u32", 0xFF)]
    assert got["ld.global.s8"] == [("%rs3", "s16", 0xFFFE)]
    assert got["cvt.rn.f16.f32"] == [("%rs4", "f16", 0x4200)]
    assert got["st.global.v2.u32"] == [("%r3", "u32", 0x20001)]  # the other element is a literal
    assert got["red.global.add.u32"] == [("%r3", "u32", 0x20001)]
    assert got["atom.global.exch.b32"] == [("%r9", "b32", 0x40002)]


def test_both_results_of_a_shuffle_are_recorded():
    trace, _ = traced("shfl.sync.down.b32 %r2|%p1, %lane, 30, 31, -1;\n" + STORE)
    record = one(trace, "shfl.sync.down.b32")
    assert words(record, "%r2") == [30, 31, *range(2, 32)]
    assert words(record, "%p1") == [1, 1] + [0] * 30


def test_a_barrier_in_memory_is_made_by_a_store():
    trace, device = traced(
        ".shared .align 8 .b64 bar;\nsetp.eq.u32 %p1, %lane, 3; @%p1 mbarrier.init.shared.b64 [bar], 1;\n"
        f"mov.u32 %r2, 1; {STORE}",
        device={"observe": "traffic"},
    )
    (access,) = one(trace, "mbarrier.init.shared.b64").accesses
    assert (access.kind, access.space, access.mask, access.width) == ("store", "shared", 8, 8)
    assert device.report.traffic.stored["shared"] == 8
    assert not device.report.traffic.atomics


def test_accesses_are_recorded_with_space_width_and_addresses():
    body = """mov.u32 %r3, pad; mov.u32 %r3, cell; cvt.u64.u32 %rd1, %r3; cvta.shared.u64 %rd1, %rd1;
shl.b32 %r4, %lane, 3; add.u32 %r4, %r4, %r3; mov.b64 %rd2, {%lane, %i};
st.shared.u64 [%r4], %rd2; bar.warp.sync 7; setp.lt.u32 %p1, %lane, 2; selp.b64 %rd3, %rd1, %in, %p1;
ld.u32 %r2, [%rd3];
"""
    trace, _ = traced(body + STORE, before=".shared .align 8 .b8 pad[16], cell[512];", block=3)
    (access,) = one(trace, "st.shared.u64").accesses
    assert (access.kind, access.space, access.mask, access.width) == ("store", "shared", 7, 8)
    assert access.addresses.tolist() == [16, 24, 32]
    generic = {a.space: a for a in one(trace, "ld.u32").accesses}
    assert sorted(generic) == ["global", "shared"]
    assert (generic["shared"].mask, generic["shared"].addresses.tolist()) == (3, [16, 16])
    assert generic["global"].mask == 4
    pointer = one(trace, "st.global.u32").accesses[0].addresses.tolist()
    assert [at - pointer[0] for at in pointer] == [0, 4, 8]
    assert one(trace, "selp.b64").accesses == []


def test_barriers_are_recorded_in_order_of_the_warp():
    body = "st.shared.u32 [cell], 1;\nbar.sync 0;\nld.shared.u32 %r2, [cell];\n"
    trace, _ = traced(body + STORE, before=".shared .u32 cell;", block=64)
    kinds = [record.instruction.opcode or record.kind for record in steps(trace, warp=1)]
    assert kinds == ["st.shared.u32", "bar.sync", "barrier", "ld.shared.u32", "st.global.u32", "ret"]


def test_a_raised_fault_is_recorded_and_the_trace_is_kept():
    trace = Trace()
    body = "setp.eq.u32 %p1, %i, 37; @%p1 add.u64 %in, %in, 4096;\nld.global.u32 %r2, [%in];\n" + STORE
    fault = small.fault_of(OutOfBounds, body, block=64, device=simwarp.Device(observers=[trace]))
    last = trace.warp(0, 1)[-1]
    assert (last.kind, last.lanes, last.message) == ("fault", [5], str(fault))
    assert [record.kind for record in trace.warp(0, 0)] == ["step"] * (HEAD + 1)
    assert trace.recording().faults == [str(fault)]


def test_reported_faults_are_recorded_between_the_steps():
    body = "setp.eq.u32 %p1, %i, 3; @%p1 add.u64 %in, %in, 4096;\nld.global.u32 %r2, [%in];\n" + STORE
    trace, _ = traced(body, device={"checks": "report"})
    kinds = [record.instruction.opcode or record.kind for record in steps(trace)]
    assert kinds == ["setp.eq.u32", "add.u64", "fault", "ld.global.u32", "st.global.u32", "ret"]
    assert one(trace, "ld.global.u32").value("%r2", 3) == 0xA5A5A5A5


FUNCTIONS = """.func (.reg .b32 %r2) twice(.reg .b32 %r3) { .reg .b32 %r4;
add.u32 %r4, %r3, %r3;
mov.u32 %r2, %r4; ret; }
.func (.param .b32 back) odd(.param .b32 given) { .reg .b32 %r2; .reg .pred %p1;
ld.param.b32 %r2, [given]; and.b32 %r2, %r2, 1; setp.eq.u32 %p1, %r2, 0; @%p1 bra OUT;
call (%r2), twice, (%r2);
OUT: st.param.b32 [back], %r2; ret; }
"""
CALLS = """.param .b32 to, from; and.b32 %r5, %lane, 3; setp.eq.u32 %p1, %r5, 3; mov.u32 %r2, 77;
@%p1 bra END;
st.param.b32 [to], %lane; call (from), odd, (to); ld.param.b32 %r2, [from];
END: """


def test_device_functions_have_registers_of_their_own():
    trace, device = traced(CALLS + STORE, before=FUNCTIONS, block=64)
    first = next(record for record in trace.warp(0, 1) if record.instruction.opcode == "and.b32")
    assert words(first, "%r5") == [n % 4 for n in range(32)]
    in_twice = [r for r in trace.warp(0, 0) if "%r4, %r3, %r3" in r.instruction.text]
    assert [words(r, "%r4") for r in in_twice] == [[2] * 8]
    assert in_twice[0].lanes == list(range(1, 32, 4))
    loaded = [r for r in trace.warp(0, 0) if r.instruction.text.endswith("[from];")]
    assert [words(r, "%r2") for r in loaded] == [[n % 2 * 2 for n in range(32) if n % 4 != 3]]
    rows = trace.recording().rows
    assert int(np.bitwise_count(rows["mask"][rows["kind"] == 0]).sum()) == device.executed


# ---- the same, however the executor ran it -------------------------------------------------------

MEETING = """setp.lt.u32 %p1, %lane, 8; @%p1 bra LOW;
vote.sync.ballot.b32 %r2, %p1, -1; bra.uni END;
LOW: vote.sync.ballot.b32 %r2, %p1, -1;
END: add.u32 %r2, %r2, %i; """
SHARED = """shl.b32 %r3, %r1, 2; mov.u32 %r4, cell; add.u32 %r3, %r3, %r4; st.shared.u32 [%r3], %i;
bar.sync 0; xor.b32 %r5, %r1, 33; shl.b32 %r5, %r5, 2; add.u32 %r5, %r5, %r4; ld.shared.u32 %r2, [%r5]; """
TRIPS = """mul.lo.u32 %r3, %i, 2654435761; shr.u32 %r3, %r3, 29;
shr.u32 %r4, %i, 5; rem.u32 %r5, %r4, 9; setp.eq.u32 %p8, %r5, 4; @%p8 mad.lo.u32 %r3, %r3, 9, 40;
mov.u32 %r2, %i; mov.u32 %r6, 0;
L: setp.ge.u32 %p1, %r6, %r3; @%p1 bra END; mad.lo.u32 %r2, %r2, 5, %r6; add.u32 %r6, %r6, 1; bra L;
END: """
KERNELS = {
    "loops": (COLLATZ, {"block": 40, "grid": 5}),
    "meeting": (MEETING, {"block": 96, "grid": 4}),
    "shared memory": (SHARED, {"before": ".shared .u32 cell[64];", "block": 64, "grid": 6}),
    "functions": (CALLS, {"before": FUNCTIONS, "block": 33, "grid": 4}),
    "long loops": (TRIPS, {"block": 64, "grid": 12}),
}


@pytest.mark.at_most(2)
@pytest.mark.parametrize("name", KERNELS)
def test_chunks_do_not_change_the_trace(name, tmp_path):
    body, options = KERNELS[name]
    traces = [traced(body + STORE, device={"chunk_lanes": n}, **options)[0] for n in (32, 128, 32768)]
    for other in traces[1:]:
        assert compare(traces[0], other) is None
    for i, trace in enumerate(traces):
        trace.save(tmp_path / f"{i}.npz")
    assert len({(tmp_path / f"{i}.npz").read_bytes() for i in range(3)}) == 1


def test_compact_copies_do_not_change_the_trace(monkeypatch):
    body, options = KERNELS["long loops"]
    made, part = [], simwarp.engine.chunk.Chunk.part
    monkeypatch.setattr(
        simwarp.engine.chunk.Chunk, "part", lambda self, rows: made.append(1) or part(self, rows)
    )
    with_copies, _ = traced(body + STORE, **options)
    assert made
    monkeypatch.setattr(Scheduler, "is_sparse", lambda self: False)
    assert compare(with_copies, traced(body + STORE, **options)[0]) is None


@pytest.mark.parametrize("name", ["shared memory", "loops", "long loops"])
def test_the_stack_schedule_gives_the_same_trace(name):
    body, options = KERNELS[name]
    lowest, stack = (
        traced(body + STORE, device={"schedule": schedule}, **options)[0]
        for schedule in ("lowest pc", "stack")
    )
    assert compare(lowest, stack) is None


@pytest.mark.at_most(2)
@pytest.mark.slow_cases("loops")
@pytest.mark.parametrize("name", KERNELS)
def test_traces_by_lane_do_not_depend_on_the_schedule(name):
    body, options = KERNELS[name]
    lowest, _ = traced(body + STORE, **options)
    apart = [
        traced(body + STORE, device={"schedule": "random", "seed": seed}, **options)[0] for seed in range(2)
    ]
    for other in apart:
        assert compare(lowest, other, by="lane") is None
    if name in ("loops", "meeting"):  # the lanes of a warp were grouped differently
        assert any(compare(lowest, other) is not None for other in apart)


def test_workers_do_not_change_the_trace():
    body, options = KERNELS["shared memory"]
    one_process, _ = traced(body + STORE, **options)
    two, _ = traced(body + STORE, device={"workers": 2, "chunk_lanes": 64}, **options)
    assert compare(one_process, two) is None


# ---- what is taken in ----------------------------------------------------------------------------


def plain(records):
    return [json.dumps(record.to_json()) for record in records]


def test_blocks_and_warps_can_be_selected():
    everything, _ = traced(COLLATZ + STORE, block=64, grid=(2, 3, 1))
    some, _ = traced(
        COLLATZ + STORE, block=64, grid=(2, 3, 1), chosen={"blocks": [(1, 2, 0), 0], "warps": [1]}
    )
    assert list(some.recording().warps) == [(0, 0, 1), (0, 5, 1)]
    assert plain(some.warp(5, 1)) == plain(everything.warp((1, 2, 0), 1))
    with pytest.raises(TraceError, match=r"block \(2, 2, 0\), warp 1"):
        everything.warp((2, 2, 0), 1)  # not the block with this linear index
    with pytest.raises(TraceError) as caught:
        some.warp(4, 1)
    assert str(caught.value).splitlines() == [
        "nothing was recorded of launch 0, block 4, warp 1",
        "this launch has records of warp 1 of block 0, warp 1 of block 5",
    ]


def test_lanes_can_be_selected():
    trace, _ = traced(COLLATZ + STORE, chosen={"lanes": np.array([26, 3])})
    assert json.loads(json.dumps(trace.recording().selection))["lanes"] == [26, 3]
    assert {record.mask & ~(1 << 3 | 1 << 26) for record in trace.warp(0, 0)} == {0}
    assert lane_values(trace, "mov.u32", "%r3", 26) == collatz(26)[1:]
    assert collatz(3) == [4, 2, 1]
    assert sum(record.mask >> 3 & 1 for record in trace.warp(0, 0)) == HEAD + 2 + 2 * 7 + 2 + 2


def test_lines_registers_and_memory_can_be_selected():
    line = line_of("L: setp", COLLATZ + STORE)
    trace, _ = traced(COLLATZ + STORE, chosen={"lines": [line]})
    assert {r.instruction.opcode for r in trace.warp(0, 0)} == {"setp.eq.u32"}
    bare, _ = traced(COLLATZ + STORE, chosen={"registers": False, "memory": False})
    assert not any(r.written or r.accesses for r in bare.warp(0, 0))
    assert bare.recording().data.size == 0
    everything, _ = traced(COLLATZ + STORE)
    assert [r.mask for r in bare.warp(0, 0)] == [r.mask for r in everything.warp(0, 0)]


def test_kernels_can_be_selected_by_a_part_of_their_name():
    module = (
        ".version 9.0 .target sm_90 .visible .entry _Z3addPf() { ret; } .visible .entry _Z3mulPf() { ret; }"
    )
    trace = Trace(kernels=["mul"])
    loaded = simwarp.Device(observers=[trace]).load(module)
    for name in ("_Z3addPf", "_Z3mulPf", "_Z3addPf"):
        loaded.kernel(name)((1, 1, 1), (1, 1, 1))
    assert [launch.kernel for launch in trace.recording().launches] == ["_Z3mulPf"]
    assert len(trace.recording().rows) == 1


def test_launches_are_numbered_and_cleared():
    trace = Trace()
    device = simwarp.Device(observers=[trace])
    for i in range(3):
        run(f"mov.u32 %r2, {i};\n" + STORE, device=device)
    assert [words(steps(trace, launch=i)[0], "%r2")[0] for i in range(3)] == [0, 1, 2]
    with pytest.raises(TraceError, match="3 launches were traced"):
        trace.warp(0, 0, 3)
    trace.clear()
    run("mov.u32 %r2, 9;\n" + STORE, device=device)
    assert words(steps(trace)[0], "%r2")[0] == 9


def test_a_recording_does_not_change_while_the_trace_grows():
    trace = Trace()
    device = simwarp.Device(observers=[trace])
    run("mov.u32 %r2, 1;\n" + STORE, device=device)
    before = trace.recording()
    run("mov.u32 %r2, 2;\n" + STORE, device=device)
    assert (len(before.launches), len(trace.recording().launches)) == (1, 2)
    assert compare(before, trace).what == "launch"


def test_a_full_trace_advises_how_to_narrow_it():
    with pytest.raises(TraceError) as caught:
        traced(COLLATZ + STORE, block=64, chosen={"limit": 5000})
    first, second, third = str(caught.value).splitlines()
    assert first.startswith(
        "the trace has reached its limit of 5000 bytes: kernel k, block (0, 0, 0), warp 0"
    )
    assert "of 1 launches" in second
    assert all(name in third for name in ("blocks=", "warps=", "lanes=", "registers=False", "limit="))


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"lanes": [32]}, "there is no lane 32"),
        ({"warps": [-1]}, "there is no warp -1"),
        ({"blocks": [(1, 2)]}, "[1, 2] is not a block"),
        ({"blocks": 3}, "Trace(blocks=3): expected a list"),
        ({"kernels": "mm"}, "give kernels=['mm']"),
    ],
)
def test_wrong_arguments_are_refused(chosen, message):
    with pytest.raises(TraceError) as caught:
        Trace(**chosen)
    assert message in str(caught.value)


# ---- comparing -----------------------------------------------------------------------------------


def test_a_different_register_is_found():
    first, second = (
        traced(f"mul.lo.u32 %r2, %i, 3;\nadd.u32 %r2, %r2, {n};\n" + STORE, block=40) for n in ("7", "%r1")
    )
    found = compare(first[0], second[0])
    assert (found.what, found.number, found.register, found.type) == ("register", HEAD + 1, "%r2", "u32")
    assert (found.place.block, found.place.warp, found.place.lane) == ((0, 0, 0), 0, 0)
    assert (found.first, found.second, found.lanes) == (7, 0, 0xFFFFFFFF & ~(1 << 7))
    assert (found.place.text, found.other.text) == ("add.u32 %r2, %r2, 7;", "add.u32 %r2, %r2, %r1;")
    assert found.place.line == line_of(
        "add.u32 %r2, %r2, 7;", "mul.lo.u32 %r2, %i, 3;\nadd.u32 %r2, %r2, 7;\n"
    )
    assert str(found).splitlines()[1] == "first 0x00000007 (7), second 0x00000000 (0); in 31 of 32 lanes"
    assert [d.place.warp for d in differences(first[0], second[0])] == [0, 1]
    assert found.to_json()["message"] == str(found)


def test_float_registers_are_shown_as_floats():
    first, second = (
        traced(f"mov.f32 %f1, 0f3F800000; add.f32 %f2, %f1, 0f{n}; mov.b32 %r2, %f2;\n" + STORE)[0]
        for n in ("40000000", "40400000")
    )
    found = compare(first, second)
    assert (found.register, found.type) == ("%f2", "f32")
    assert "first 0x40400000 (3.0), second 0x40800000 (4.0)" in str(found)


def test_a_difference_in_the_second_result_is_found():
    body = "ld.global.u32 %r3, [%in]; shfl.sync.up.b32 %r4|%p1, 7, %r3, 0, -1; mov.u32 %r2, 0; "
    lines = [line_of("shfl", body)]
    first, second = (traced(body + STORE, given=[n], chosen={"lines": lines})[0] for n in (1, 2))
    found = compare(first, second)
    assert (found.register, found.place.lane, found.first, found.second) == ("%p1", 1, 1, 0)
    assert "first true, second false; in 1 of 32 lanes" in str(found)


def test_a_different_predicate_is_found():
    body = "ld.global.u32 %r3, [%in]; setp.eq.u32 %p1|%p2, %lane, %r3; mov.u32 %r2, 0; "
    lines = [line_of("setp", body)]
    first, second = (traced(body + STORE, given=[n], chosen={"lines": lines})[0] for n in (40, 5))
    found = compare(first, second)
    assert (found.register, found.type, found.place.lane, found.lanes) == ("%p1", "pred", 5, 1 << 5)
    assert "first false, second true; in 1 of 32 lanes" in str(found)


def test_a_different_address_is_found():
    body = """mov.u32 %r4, cell; mov.u32 %r2, 0; st.shared.u32 [%r4], %r2; st.shared.u32 [%r4+4], %r2;
add.u32 %r4, %r4, {}; ld.shared.u32 %r2, [%r4];
"""
    chosen = {"lines": [line_of("ld.shared", body)]}
    first, second = (
        traced(body.format(n) + STORE, before=".shared .u32 cell[2];", block=1, chosen=chosen)[0]
        for n in (0, 4)
    )
    found = compare(first, second)
    assert (found.what, found.first, found.second, found.number) == ("address", 0, 4, 0)
    assert str(found).splitlines()[:2] == [
        "the address differs in step 0: kernel k, block (0, 0, 0), warp 0, lane 0, "
        f"line {chosen['lines'][0]} `ld.shared.u32 %r2, [%r4];`",
        "first 0x0, second 0x4; in 1 of 1 lanes",
    ]


def test_different_lanes_or_paths_are_reported_before_values():
    body = "setp.lt.u32 %p1, %lane, %r3; @%p1 add.u32 %r2, %r3, 1;\n" + STORE
    first, second = (
        traced(f"mov.u32 %r2, 0; mov.u32 %r3, {n};\n" + body, chosen={"registers": False})[0] for n in (4, 6)
    )
    found = compare(first, second)
    assert (found.what, found.first, found.second, found.lanes) == ("mask", 0xF, 0x3F, 0x30)
    assert found.place.lane == 4
    assert "first lanes 0x0000000f, second lanes 0x0000003f" in str(found)
    assert "by='lane'" in found.advice
    missing = compare(
        first, traced("mov.u32 %r2, 0; mov.u32 %r3, 0;\n" + body, chosen={"registers": False})[0]
    )
    assert (missing.what, missing.place.text, missing.other.text) == (
        "path",
        "@%p1 add.u32 %r2, %r3, 1;",
        "st.global.u32 [%at], %r2;",
    )


def test_a_warp_that_ends_early_is_a_difference():
    body = "mov.u32 %r2, 1; ld.global.u32 %r3, [%in]; setp.eq.u32 %p1, %r3, 1; @%p1 exit;\n" + STORE
    first, second = (traced(body, given=[n], chosen={"registers": False})[0] for n in (0, 1))
    found = compare(first, second)
    assert found.what == "path"
    assert found.values.startswith("first: store of 4 bytes of global memory, line ")
    assert found.values.endswith("`@%p1 exit;`")
    assert compare(second, first).place.text == "@%p1 exit;"


def test_different_launches_warps_and_selections_are_found():
    first, second = traced(COLLATZ + STORE, block=32)[0], traced(COLLATZ + STORE, block=64)[0]
    found = compare(first, second)
    assert (found.what, str(found).splitlines()[0]) == ("launch", "the launch differs: kernel k")
    assert "grid (1, 1, 1) of blocks (32, 1, 1)" in found.values
    with pytest.raises(TraceError, match="recorded with different lanes, registers"):
        compare(first, traced(COLLATZ + STORE, chosen={"lanes": [1], "registers": False})[0])
    with pytest.raises(SchemeError, match="choose by='ptx'"):
        compare(first, first, by="line")
    body = "setp.eq.u32 %p1, %i, {}; mov.u32 %r2, 1; @%p1 st.global.u32 [%at], %r2; ret; "
    chosen = {"lines": [line_of("@%p1 st", body)], "registers": False}
    first, second = (traced(body.format(n), block=64, chosen=chosen)[0] for n in (3, 40))
    assert [(d.what, d.place.warp, d.values) for d in differences(first, second)] == [
        ("warp", 0, "the second has no step of this warp"),
        ("warp", 1, "the first has no step of this warp"),
    ]


def test_the_earliest_difference_of_all_warps_is_reported():
    """Warp 1 writes what warp 0 reads after the barrier; the write has fewer steps before it."""
    body = """shr.u32 %r3, %r1, 5; setp.eq.u32 %p1, %r3, 1; setp.eq.u32 %p2, %r3, 0;
@%p1 mul.lo.u32 %r4, %lane, FACTOR; @%p1 st.shared.u32 [cell], 5; @%p1 st.shared.u32 [cell+4], %r4;
bar.sync 0; mov.u32 %r2, 0; @%p2 ld.shared.u32 %r2, [cell+4];
"""
    first, second = (
        traced(
            body.replace("FACTOR", n) + STORE,
            before=".shared .u32 cell[2];",
            block=64,
            device={"checks": "report"},
        )[0]
        for n in ("2", "3")
    )
    every = list(differences(first, second))
    assert [(d.place.warp, d.register) for d in every] == [(0, "%r2"), (1, "%r4")]
    assert compare(first, second) == every[1]


LOC = '.file 1 "/somewhere/{0}.cu"\n'


def with_lines(name, *lines):
    """A kernel of PTX lines with given source lines, in a file called ``name``."""
    body = "\n".join(f".loc 1 {number} 1\n{one_per_line(ptx)}" for number, ptx in lines)
    return text(body + "\n.loc 1 90 1\n" + STORE) + LOC.format(name)


def traced_lines(name, *lines, **chosen):
    trace = Trace(**chosen)
    device = simwarp.Device(observers=[trace])
    out, data = device.upload(np.zeros(32, np.uint32), "out"), device.upload(np.zeros(1, np.uint32), "in")
    device.load(with_lines(name, *lines)).kernel("k")((1, 1, 1), (32, 1, 1), out, data)
    return trace


CORRECT = [
    (4, "mov.u32 %r3, 10;"),
    (5, "add.u32 %r4, %r3, %lane;"),
    (6, "shl.b32 %r5, %r4, 1;"),
    (7, "mov.u32 %r2, %r5;"),
]


def test_comparison_by_source_ignores_instructions_but_not_their_results():
    first = traced_lines("twin", *CORRECT)
    edited = [
        CORRECT[0],
        (5, "mul.lo.u32 %r9, %lane, 2; add.u32 %r4, %r3, %r9; mov.u32 %r8, 1;"),
        *CORRECT[2:],
    ]
    second = traced_lines("twin", *edited)
    assert compare(first, second).what == "path"
    assert "by='source'" in compare(first, second).advice
    found = compare(first, second, by="source")
    assert (found.what, found.register, found.place.source_line, found.other.source_line) == (
        "register",
        "%r5",
        6,
        6,
    )
    assert (found.place.lane, found.first, found.second) == (1, 22, 24)
    assert (found.place.source_file, found.number) == ("/somewhere/twin.cu", HEAD + 2)


def test_comparison_by_source_accepts_equal_effects_and_renamed_files():
    longer = [*CORRECT[:2], (6, "mov.u32 %r9, %r4; add.u32 %r5, %r9, %r4;"), CORRECT[3]]
    assert compare(traced_lines("twin", *CORRECT), traced_lines("fixed", *longer), by="source") is None
    assert compare(traced_lines("twin", *CORRECT), traced_lines("fixed", *CORRECT), by="source") is None


def test_comparison_by_source_finds_different_stores_of_an_edited_line():
    first = traced_lines("twin", *CORRECT, (9, "add.u32 %r2, %r2, 1; st.global.u32 [%at], %r2;"))
    second = traced_lines(
        "twin", *CORRECT, (9, "add.u32 %r6, %r2, %r2; and.b32 %r2, %r6, -1; st.global.u32 [%at], %r2;")
    )
    found = compare(first, second, by="source")
    assert (found.register, found.place.source_line, found.first, found.second) == ("%r2", 9, 21, 40)
    assert (found.what, found.place.text) == ("register", "st.global.u32 [%at], %r2;")


def test_comparison_by_source_finds_different_trip_counts():
    loop = [
        (4, "mov.u32 %r3, 0; mov.u32 %r2, 0;"),
        (5, "L: add.u32 %r3, %r3, 1;"),
        (6, "add.u32 %r2, %r2, %r3;"),
    ]
    first = traced_lines("twin", *loop, (7, "setp.lt.u32 %p1, %r3, 3; @%p1 bra L;"))
    second = traced_lines("twin", *loop, (7, "setp.le.u32 %p1, %r3, 3; @%p1 bra L;"))
    found = compare(first, second, by="source")
    assert (found.what, found.place.line, found.other.source_line) == ("path", None, 5)
    assert found.number == HEAD + 2 + 3 * 4
    assert found.values == f"first: nothing more; second: line {found.other.line} `L: add.u32 %r3, %r3, 1;`"
    assert compare(second, first, by="source").place == found.other


def test_comparison_by_lane_finds_order_dependent_values():
    body = "atom.global.add.u32 %r2, [%in], 1;\n" + STORE
    lowest, _ = traced(body, block=64, grid=4, device={"chunk_lanes": 64})
    apart, _ = traced(body, block=64, grid=4, device={"chunk_lanes": 64, "schedule": "random", "seed": 1})
    found = compare(lowest, apart, by="lane")
    assert (found.what, found.register, found.place.text) == ("register", "%r2", body.splitlines()[0])
    assert found.first != found.second
    assert found.lanes == 1 << found.place.lane


# ---- files ---------------------------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path):
    body = (
        "setp.eq.u32 %p1, %i, 3; @%p1 add.u64 %in, %in, 4096;\nld.global.u32 %r2, [%in];\nbar.sync 0;\n"
        + STORE
    )
    trace, _ = traced(body, block=40, grid=2, device={"checks": "report"})
    trace.save(tmp_path / "trace.npz")
    return trace, tmp_path / "trace.npz"


def test_a_stored_trace_is_read_back_unchanged(stored):
    trace, path = stored
    again, before = load(path), trace.recording()
    assert again.rows.tobytes() == before.rows.tobytes()
    assert again.data.tobytes() == before.data.tobytes()
    assert (again.launches, again.codes, again.faults) == (before.launches, before.codes, before.faults)
    assert again.selection == before.selection
    assert compare(trace, again) is None
    assert again.to_text(1, 1) == trace.to_text(1, 1)
    assert [p.name for p in path.parent.iterdir()] == ["trace.npz"]  # no temporary file is left


def test_an_unwritable_trace_is_reported(tmp_path):
    with pytest.raises(InputFileError, match=r"cannot be written"):
        Trace().save(tmp_path / "no" / "folder.npz")


def changed(path, **arrays):
    """Replace arrays in the stored file."""
    with np.load(path) as file:
        held = dict(file)
    for name, array in arrays.items():
        held[name] = array(held[name]) if callable(array) else array
    np.savez(path, **{name: array for name, array in held.items() if array is not None})


def with_header(path, change):
    def other(text_of):
        header = json.loads(text_of.tobytes())
        change(header)
        return np.frombuffer(json.dumps(header).encode(), np.uint8)

    changed(path, header=other)


def set_at(index, value):
    def change(array):
        array = array.copy()
        array[index] = value
        return array

    return change


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"mask": None}, "its arrays are not those of a trace"),
        ({"more": np.zeros(1)}, "its arrays are not those of a trace"),
        ({"mask": lambda a: a[:-1]}, "its columns have different lengths"),
        ({"mask": lambda a: a.astype(np.float32)}, "mask.npy is not one array of uint32"),
        ({"mask": lambda a: a.reshape(1, -1)}, "mask.npy is not one array"),
        ({"data": lambda a: a[:-1]}, "its data has another length"),
        ({"mask": set_at(3, 1)}, "its data has another length"),
        ({"kind": set_at(0, 7)}, "it refers to a kind"),
        ({"space": set_at(0, 9)}, "it refers to a space"),
        ({"step": set_at(0, 1000)}, "it refers to a step"),
        ({"step": set_at(0, -1)}, "it refers to a step"),
        ({"launch": set_at(-1, 1)}, "it refers to a launch"),
        ({"block": set_at(-1, 2)}, "it refers to a block"),
        ({"warp": set_at(-1, 2)}, "it refers to a warp"),
        ({"warp": set_at(0, 1)}, "its rows are not in order"),
        ({"warp": set_at(-1, 0)}, "its rows are not in order"),
        ({"item": set_at(0, 3)}, "data of another width"),
        ({"header": np.frombuffer(b"[]", np.uint8)}, "its header has [], expected dict"),
        ({"header": np.frombuffer(b"{", np.uint8)}, "holds no trace"),
        ({"header": np.frombuffer(b"\xff\xfe{", np.uint8)}, "holds no trace"),
        ({"header": np.frombuffer(b"[" * 100_000, np.uint8)}, "holds no trace"),
        ({"mask": np.array([None])}, "mask.npy is not one array"),
    ],
)
def test_files_with_wrong_arrays_are_refused(stored, arrays, reason):
    changed(stored[1], **arrays)
    with pytest.raises(InputFileError) as caught:
        load(stored[1])
    assert reason in str(caught.value)
    assert str(caught.value).endswith("give a file that Trace.save wrote")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda h: h.update(format="x"), "another format"),
        (lambda h: h.update(version=2), "it has version 2, expected 1"),
        (lambda h: h.pop("faults"), "its header has None, expected list"),
        (lambda h: h["faults"].clear(), "it refers to a fault"),
        (lambda h: h["launches"][0].update(code=1), "it refers to a kernel that it does not have"),
        (lambda h: h["launches"][0].update(grid=[1, 1]), "its header has [1, 1], expected 3 values"),
        (lambda h: h["launches"][0].update(block=[2048, 1, 1]), "blocks (2048, 1, 1) is not a launch"),
        (lambda h: h["launches"][0].update(kernel=3), "its header has 3, expected str"),
        (lambda h: h["codes"][0][0].update(line=-1), "its header has -1, expected int from 0"),
        (lambda h: h["codes"][0][0].update(line=True), "its header has True, expected int from 0"),
        (
            lambda h: h["codes"][0][0].update(registers=[["%r1", "u128"]]),
            "register %r1 has the unknown type u128",
        ),
        (
            lambda h: h["codes"][0][0].update(registers=[["%r1", "u64"]] * 40),
            "data of another width",
        ),
        (lambda h: h["codes"][0][0].update(registers=[["%r1", "u64"]]), "data of another width"),
    ],
)
def test_files_with_wrong_headers_are_refused(stored, change, reason):
    with_header(stored[1], change)
    with pytest.raises(InputFileError) as caught:
        load(stored[1])
    assert reason in str(caught.value)


def test_control_characters_of_a_file_are_not_printed(stored):
    with_header(stored[1], lambda h: h["codes"][0][0].update(text="\x1b[2Jmov"))
    assert "\x1b" not in load(stored[1]).to_text()
    assert "?[2Jmov" in load(stored[1]).to_text()


def test_a_file_beyond_the_size_limit_is_refused_before_reading(stored, tmp_path):
    with pytest.raises(InputFileError, match=r"more than largest=1000"):
        load(stored[1], largest=1000)
    bomb = tmp_path / "bomb.npz"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "|u1", "fortran_order": False, "shape": (1 << 40,)}
    )
    with zipfile.ZipFile(stored[1]) as good, zipfile.ZipFile(bomb, "w") as bad:
        for member in good.infolist():
            bad.writestr(
                member.filename, header.getvalue() if member.filename == "data.npy" else good.read(member)
            )
    with pytest.raises(InputFileError, match=r"data.npy is not as long as its header claims"):
        load(bomb)


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_unsupported_compressions_are_refused(stored, tmp_path, compression):
    with zipfile.ZipFile(stored[1]) as good, zipfile.ZipFile(tmp_path / "other.npz", "w", compression) as bad:
        for member in good.infolist():
            bad.writestr(member.filename, good.read(member))
    with pytest.raises(InputFileError, match="compressed in an unknown way"):
        load(tmp_path / "other.npz")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"not a trace at all" * 20, b"\x93NUMPY\x01\x00"])
def test_files_of_other_kinds_are_refused(tmp_path, content):
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(InputFileError, match="holds no trace"):
        load(tmp_path / "other")


def test_damaged_files_are_refused_or_read_completely(stored):
    _, path = stored
    good = path.read_bytes()
    draw = np.random.Generator(np.random.Philox(5))
    refused = 0
    for _ in range(300):
        damaged = bytearray(good)
        for at in draw.integers(0, len(good), 3):
            damaged[at] = int(draw.integers(0, 256))
        path.write_bytes(
            bytes(damaged[: int(draw.integers(1, len(good)))] if draw.integers(0, 4) == 0 else damaged)
        )
        try:
            load(path).to_text()
        except InputFileError:
            refused += 1
    assert refused > 200


def test_pickles_are_not_loaded(stored):
    class Harmful:
        def __reduce__(self):
            return (Path(stored[1]).unlink, ())

    with np.load(stored[1]) as file:
        held = dict(file)
    held["mask"] = np.array([Harmful()], object)
    np.savez(stored[1], **held, allow_pickle=True)
    with pytest.raises(InputFileError):
        load(stored[1])
    assert stored[1].exists()


# ---- the table -----------------------------------------------------------------------------------


def test_a_warp_is_printed_as_a_table():
    body = "setp.lt.u32 %p1, %lane, 2; @%p1 bra L; mov.u32 %r2, 4; bra.uni END; L: mul.lo.u32 %r2, %lane, 5; "
    body += "END: "
    trace, _ = traced(body + "bar.sync 0;\n" + STORE)
    shown = trace.to_text().splitlines()
    assert shown[0] == "kernel k, launch 0, block (0, 0, 0), warp 0"
    assert shown[1].split() == ["step", "line", "source", "lanes", "instruction", "values"]
    assert any(line.split()[0] == "9" and "true, true, false, …" in line for line in shown)
    assert any("00000003  mul.lo.u32" in line.replace("L: ", "") and "%r2 = 0, 5" in line for line in shown)
    assert any(line.split() == ["all", "passed", "a", "barrier"] for line in shown)
    assert any("writes 4 bytes of global memory at 0x" in line for line in shown)
    only = trace.to_text(lanes=(1, 7), lines=(line_of("L: mul", body + "bar.sync 0;\n" + STORE),))
    assert only.splitlines()[0].endswith("values of lanes 1, 7")
    assert "%r2 = 5, -" in only
    assert "mov.u32" not in only


def test_files_hold_one_plain_array_for_each_column(stored):
    with np.load(stored[1], allow_pickle=False) as file:
        assert {name: file[name].dtype for name in file.files if name not in ("data", "header")} == {
            name: ROW[name] for name in ROW.names
        }
        assert int((np.bitwise_count(file["mask"]).astype(int) * file["item"]).sum()) == file["data"].size
