"""The executor: active lanes, synchronisation, memory, faults and their place."""

import itertools

import numpy as np
import pytest

import simwarp
from simwarp.faults import (
    BarrierFault,
    Deadlock,
    InactiveSource,
    LaunchError,
    MemberMaskFault,
    Misaligned,
    OutOfBounds,
    PtxSyntaxError,
    RunawayKernel,
    Trap,
    UninitialisedRead,
    UninitialisedRegister,
    UnsupportedInstruction,
)
from simwarp.observe import Observer, WriteObserver
from support.offenders import every_case

HEAD = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in) {
.reg .pred %p<9>; .reg .b16 %rs<9>; .reg .f32 %f<9>;
.reg .b32 %i, %lane, %r<30>; .reg .b64 %at, %out, %in, %rd<9>;
mov.u32 %lane, %laneid; mov.u32 %i, %ctaid.x; mov.u32 %r0, %ntid.x; mov.u32 %r1, %tid.x;
mad.lo.u32 %i, %i, %r0, %r1; ld.param.u64 %out, [out]; ld.param.u64 %in, [in];
mul.wide.u32 %at, %i, 4; add.u64 %at, %at, %out;
"""
"""``%i`` is the thread, ``%at`` its word of ``out``; the body starts in line 10."""
FIRST = 10
STORE = "st.global.u32 [%at], %r2; ret;"


def text(body):
    return HEAD + body + "\n}"


def run(body, block=32, grid=1, words=None, given=(0,), device=None, dtype=np.uint32, **launch):
    """The words that a kernel leaves in ``out``, initially all ones."""
    device = device or simwarp.Device()
    block = block if isinstance(block, tuple) else (block, 1, 1)
    grid = grid if isinstance(grid, tuple) else (grid, 1, 1)
    size = words or int(np.prod(block) * np.prod(grid))
    out = device.upload(np.full(size, 0xFFFFFFFF, dtype), "out")
    data = device.upload(np.array(given, np.uint32), "in")
    device.load(text(body)).kernel("k")(grid, block, out, data, **launch)
    return out.download().tolist()


def fault_of(kind, body, **options):
    with pytest.raises(kind) as caught:
        run(body, **options)
    return caught.value


def line_of(body, part):
    return FIRST + body[: body.index(part)].count("\n")


# --------------------------------------------------------------------------------- divergence

IF_ELSE = """setp.lt.u32 %p1, %lane, 7;
@%p1 bra THEN;
mov.u32 %r2, 200;
bra END;
THEN: mov.u32 %r2, 100;
END: add.u32 %r2, %r2, %lane;
"""


def test_if_else_runs_each_side_with_its_lanes():
    assert run(IF_ELSE + STORE) == [(100 if i < 7 else 200) + i for i in range(32)]


def test_a_negated_guard_inverts_the_lanes():
    body = IF_ELSE.replace("@%p1", "@!%p1")
    assert run(body + STORE) == [(200 if i < 7 else 100) + i for i in range(32)]


NESTED = """and.b32 %r3, %i, 1; setp.ne.u32 %p1, %r3, 0; and.b32 %r4, %i, 2; setp.ne.u32 %p2, %r4, 0;
mov.u32 %r2, 0;
@!%p1 bra EVEN;
@!%p2 bra ODD_LOW;
add.u32 %r2, %r2, 3; bra JOIN;
ODD_LOW: add.u32 %r2, %r2, 1;
JOIN: add.u32 %r2, %r2, 10; bra END;
EVEN: @%p2 bra EVEN_HIGH;
bra END;
EVEN_HIGH: add.u32 %r2, %r2, 2;
END: add.u32 %r2, %r2, 1000;
"""


@pytest.mark.parametrize("block", [1, 31, 32, 33, 128])
def test_nested_branches_intersect_their_lanes(block):
    assert run(NESTED + STORE, block=block) == [1000 + i % 4 + (10 if i % 2 else 0) for i in range(block)]


COLLATZ = """add.u32 %r3, %i, 1; mov.u32 %r2, 0;
LOOP: setp.eq.u32 %p1, %r3, 1;
@%p1 bra END;
add.u32 %r2, %r2, 1;
and.b32 %r4, %r3, 1; setp.eq.u32 %p2, %r4, 0;
@%p2 shr.u32 %r3, %r3, 1;
@%p2 bra LOOP;
mad.lo.u32 %r3, %r3, 3, 1;
bra LOOP;
END:
"""


def collatz(n):
    steps = 0
    while n != 1:
        n, steps = n // 2 if n % 2 == 0 else 3 * n + 1, steps + 1
    return steps


@pytest.mark.parametrize(
    ("block", "grid", "chunk"), [(32, 1, 32), (50, 7, 64), (128, 3, 256), (96, 5, 100_000)]
)
def test_per_lane_trip_counts_work_at_any_chunk_size(block, grid, chunk):
    got = run(COLLATZ + STORE, block=block, grid=grid, device=simwarp.Device(chunk_lanes=chunk))
    assert got == [collatz(i + 1) for i in range(block * grid)]


def test_thread_instructions_do_not_depend_on_the_chunk():
    counts = set()
    for chunk in (32, 64, 1000, 32768):
        device = simwarp.Device(chunk_lanes=chunk)
        run(COLLATZ + STORE, block=70, grid=9, device=device)
        counts.add(device.executed)
    assert len(counts) == 1


def test_ret_exit_and_a_branch_to_the_end_end_lanes():
    body = """mov.u32 %r2, 1; st.global.u32 [%at], %r2;
setp.lt.u32 %p1, %i, 5; @%p1 ret;
mov.u32 %r2, 2; st.global.u32 [%at], %r2;
setp.lt.u32 %p1, %i, 9; @%p1 exit;
mov.u32 %r2, 3; st.global.u32 [%at], %r2;
setp.lt.u32 %p1, %i, 20; @%p1 bra END;
mov.u32 %r2, 4; st.global.u32 [%at], %r2;
END: ret;"""
    assert run(body, block=40) == [1] * 5 + [2] * 4 + [3] * 11 + [4] * 20


def test_falling_off_the_end_is_an_exit():
    assert run("mov.u32 %r2, 5; st.global.u32 [%at], %r2;") == [5] * 32


def test_a_branch_to_a_label_after_the_last_instruction_exits():
    body = "setp.lt.u32 %p1, %i, 5; mov.u32 %r2, 5; @%p1 bra END; st.global.u32 [%at], %r2;\nEND:"
    assert run(body) == [0xFFFFFFFF] * 5 + [5] * 27
    body = "setp.lt.u32 %p1, %i, 5; mov.u32 %r2, 5; @%p1 bra END; st.global.u32 [%at], %r2; ret;\nEND:"
    assert run(body) == [0xFFFFFFFF] * 5 + [5] * 27


def test_special_registers_are_right_in_three_dimensional_launches():
    names = [f"{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"]
    names += ["laneid", "warpid", "nwarpid"] + [f"lanemask_{r}" for r in ("eq", "le", "lt", "ge", "gt")]
    block, grid = (3, 5, 4), (2, 3, 2)
    linear = """mov.u32 %r1, %ctaid.z;
mov.u32 %r2, %nctaid.y; mov.u32 %r3, %ctaid.y; mad.lo.u32 %r1, %r1, %r2, %r3;
mov.u32 %r2, %nctaid.x; mov.u32 %r3, %ctaid.x; mad.lo.u32 %r1, %r1, %r2, %r3;
mov.u32 %r2, %ntid.z; mov.u32 %r3, %tid.z; mad.lo.u32 %r1, %r1, %r2, %r3;
mov.u32 %r2, %ntid.y; mov.u32 %r3, %tid.y; mad.lo.u32 %r1, %r1, %r2, %r3;
mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r1, %r1, %r2, %r3;
mul.lo.u32 %r1, %r1, NUMBER; mul.wide.u32 %rd1, %r1, 4; add.u64 %rd1, %rd1, %out;
""".replace("NUMBER", str(len(names)))
    stores = "".join(f"mov.u32 %r2, %{n}; st.global.u32 [%rd1+{4 * i}], %r2;\n" for i, n in enumerate(names))
    threads = int(np.prod(block) * np.prod(grid))
    for chunk in (64, 32768):
        device = simwarp.Device(chunk_lanes=chunk)
        got = run(linear + stores, block, grid, words=threads * len(names), device=device)
        got = np.array(got).reshape(threads, len(names)).tolist()
        expected = []
        for z, y, x in itertools.product(*(range(n) for n in reversed(grid))):
            places = itertools.product(*(range(n) for n in reversed(block)))
            for thread, (w, v, u) in enumerate(places):
                lane, bit = thread % 32, 1 << thread % 32
                masks = [bit, 2 * bit - 1, bit - 1, 2**32 - bit, 2**32 - 2 * bit]
                expected.append([u, v, w, *block, x, y, z, *grid, lane, thread // 32, 2, *masks])
        assert got == expected


def test_predicated_instructions_change_only_active_lanes():
    body = """mov.u32 %r2, 1; setp.gt.u32 %p1, %lane, 29;
@%p1 mov.u32 %r2, 2; @!%p1 add.u32 %r2, %r2, 4; @%p1 st.global.u32 [%at], %r2; ret;"""
    assert run(body) == [0xFFFFFFFF] * 30 + [2, 2]


# -------------------------------------------------------------------------------- registers


def test_mov_packs_and_unpacks_registers():
    body = (
        """mov.u32 %r3, 7; mov.b64 %rd1, {%lane, %r3}; add.u64 %rd1, %rd1, 4294967296;
mov.b64 {%r4, %r5}, %rd1;
mad.lo.u32 %r6, %r5, 1000, %r4; mov.b32 {%rs1, %rs2}, %r6; mov.b32 %r7, {%rs2, %rs1}; shr.u32 %r2, %r7, 16;
"""
        + STORE
    )
    assert run(body) == [8000 + i for i in range(32)]


def test_literals_are_converted_to_the_width_of_the_instruction():
    body = "mov.f32 %f1, 0d3FF0000000000000; mov.b32 %r2, %f1;\n"
    assert run(body + STORE) == [0x3F800000] * 32
    body = "mov.f64 %rd1, 0f3F800000; mov.b64 {%r3, %r2}, %rd1;\n"
    assert run(body + STORE) == [0x3FF00000] * 32
    assert run("mov.u32 %r2, 4294967297; add.u32 %r2, %r2, -1;\n" + STORE) == [0] * 32


@pytest.mark.parametrize("vector", ["%rs1, %rs2, %rs3", "%r3, %r4"])
def test_vector_operands_that_do_not_fill_the_word_are_refused(vector):
    with pytest.raises(PtxSyntaxError, match=f"line {FIRST}"):
        simwarp.Device().load(text(f"mov.b32 {{{vector}}}, %lane;"))
    with pytest.raises(PtxSyntaxError, match=f"line {FIRST}"):
        simwarp.Device().load(text(f"mov.b32 %r2, {{{vector}}};"))


def test_ld_param_past_the_end_of_a_parameter_is_refused():
    with pytest.raises(PtxSyntaxError, match=f"line {FIRST}"):
        simwarp.Device().load(text("ld.param.u64 %rd1, [out+4];"))


def test_a_vector_load_discards_elements_written_as_underscore():
    body = "ld.global.v2.u32 {_, %r2}, [%in];\n" + STORE
    assert run(body, given=(3, 4)) == [4] * 32


def test_registers_declared_in_inline_assembly_work():
    body = (
        "{ .reg .pred p; .reg .b32 t; add.u32 t, %lane, 1; setp.lt.u32 p, t, 4; selp.u32 %r2, t, 0, p; }\n"
        + STORE
    )
    assert run(body) == [1, 2, 3] + [0] * 29


def test_reading_an_uninitialised_register_is_a_fault():
    fault = fault_of(UninitialisedRegister, "add.u32 %r2, %r3, 1;\n" + STORE)
    assert (fault.register, fault.place.lane, fault.place.line) == ("%r3", 0, FIRST)


def test_a_register_written_by_some_lanes_is_uninitialised_in_the_others():
    body = """setp.ne.u32 %p1, %lane, 13;
@%p1 mov.u32 %r2, 3;
add.u32 %r2, %r2, 1;
"""
    fault = fault_of(UninitialisedRegister, body + STORE, block=64)
    assert (fault.register, fault.place.warp, fault.place.lane) == ("%r2", 0, 13)
    assert fault.place.line == line_of(body, "add")
    assert run(body.replace("add.u32", "@%p1 add.u32") + "@%p1 " + STORE)[12:15] == [4, 0xFFFFFFFF, 4]


def test_a_register_written_on_both_sides_of_a_branch_is_initialised():
    body = "setp.lt.u32 %p1, %lane, 9; @%p1 mov.u32 %r2, 1; @!%p1 mov.u32 %r2, 2;\n" + STORE
    assert run(body) == [1] * 9 + [2] * 23


def test_exited_lanes_need_not_initialise_a_register():
    body = (
        "setp.lt.u32 %p1, %lane, 9; @!%p1 mov.u32 %r2, 2; @%p1 bra END; add.u32 %r2, %r2, 1;\n"
        + STORE
        + "END: ret;"
    )
    assert run(body) == [0xFFFFFFFF] * 9 + [3] * 23


def test_an_uninitialised_guard_is_a_fault():
    assert fault_of(UninitialisedRegister, "@%p1 bra END; END: ret;").register == "%p1"


# --------------------------------------------------------------------------------- .sync operations

ALL = "0xFFFFFFFF"


def test_ballot_waits_for_lanes_on_another_path():
    body = f"""setp.lt.u32 %p1, %lane, 7; setp.ne.u32 %p3, %lane, 40;
@%p1 bra MEET;
mov.u32 %r3, 5; mul.lo.u32 %r3, %r3, %r3;
MEET: vote.sync.ballot.b32 %r2, %p3, {ALL};
"""
    assert run(body + STORE) == [0xFFFFFFFF] * 32
    assert run(body.replace("%p3, %lane, 40", "%p3, %lane, 3") + STORE) == [0xFFFFFFF7] * 32


def test_lanes_with_different_trip_counts_meet_at_a_ballot():
    body = f"""mov.u32 %r3, %lane;
LOOP: setp.eq.u32 %p1, %r3, 0; @%p1 bra MEET; sub.u32 %r3, %r3, 1; bra LOOP;
MEET: vote.sync.ballot.b32 %r2, %p1, {ALL};
"""
    assert run(body + STORE, block=64) == [0xFFFFFFFF] * 64


def test_exited_lanes_do_not_block_a_ballot():
    body = "setp.lt.u32 %p1, %lane, 4; @%p1 exit; setp.ge.u32 %p2, %lane, 0;\n"
    body += f"vote.sync.ballot.b32 %r2, %p2, {ALL};\n"
    assert run(body + STORE) == [0xFFFFFFFF] * 4 + [0xFFFFFFF0] * 28
    late = f"""setp.lt.u32 %p1, %lane, 4; setp.ge.u32 %p2, %lane, 0; @!%p1 bra MEET; mov.u32 %r3, 1; bra OUT;
MEET: vote.sync.ballot.b32 %r2, %p2, {ALL}; st.global.u32 [%at], %r2; ret;
OUT: ret;"""
    assert run(late) == [0xFFFFFFFF] * 4 + [0xFFFFFFF0] * 28


def test_redux_under_disjoint_masks_sums_separately():
    body = """setp.lt.u32 %p1, %lane, 16; selp.b32 %r3, 0xFFFF, 0xFFFF0000, %p1;
redux.sync.add.u32 %r2, %lane, %r3;
"""
    assert run(body + STORE) == [sum(range(16))] * 16 + [sum(range(16, 32))] * 16


def test_a_ballot_in_a_partial_warp_waits_only_for_its_lanes():
    body = f"setp.ge.u32 %p1, %lane, 0; vote.sync.ballot.b32 %r2, %p1, {ALL};\n"
    assert run(body + STORE, block=35) == [0xFFFFFFFF] * 32 + [7] * 3


def test_a_predicated_ballot_runs_only_its_active_lanes():
    body = "setp.lt.u32 %p1, %lane, 4; mov.u32 %r2, 9; @%p1 vote.sync.ballot.b32 %r2, %p1, 15;\n"
    assert run(body + STORE) == [15] * 4 + [9] * 28


def test_a_lane_outside_its_own_member_mask_is_a_fault():
    body = "setp.lt.u32 %p1, %lane, 9;\nvote.sync.ballot.b32 %r2, %p1, 0xFFFFFDFF;\n"
    fault = fault_of(MemberMaskFault, body + STORE, block=64)
    assert (fault.place.block, fault.place.warp, fault.place.lane) == ((0, 0, 0), 0, 9)
    assert fault.place.line == line_of(body, "vote")
    assert "0xfffffdff" in fault.values


def test_a_shuffle_from_an_inactive_lane_is_a_fault():
    body = "setp.eq.u32 %p1, %lane, 3; @%p1 exit;\nshfl.sync.idx.b32 %r2, %lane, 3, 31, -1;\n"
    fault = fault_of(InactiveSource, body + STORE)
    assert (fault.place.lane, fault.place.line) == (0, line_of(body, "shfl"))
    body = "setp.lt.u32 %p1, %lane, 8;\n@%p1 shfl.sync.down.b32 %r2, %lane, 1, 31, 0xFF;\n"
    assert fault_of(InactiveSource, body + "ret;").place.lane == 7


def test_lanes_synchronise_at_different_instructions_of_one_opcode():
    body = f"""setp.lt.u32 %p1, %lane, 4; @%p1 bra HERE;
mov.u32 %r3, 100; vote.sync.ballot.b32 %r2, %p1, {ALL}; bra END;
HERE: mov.u32 %r3, 7; vote.sync.ballot.b32 %r2, %p1, {ALL};
END: add.u32 %r2, %r2, %r3; """
    assert run(body + STORE) == [15 + 7] * 4 + [15 + 100] * 28


def test_lanes_at_different_shuffles_exchange_their_own_operands():
    """As on an H200 (tests/golden): each side reads the other's value and lane number."""
    body = f"""setp.lt.u32 %p1, %lane, 16; @%p1 bra LOW;
add.u32 %r3, %lane, 1000; shfl.sync.bfly.b32 %r2, %r3, 16, 31, {ALL}; bra END;
LOW: add.u32 %r4, %lane, 2000; shfl.sync.bfly.b32 %r2, %r4, 16, 31, {ALL};
END: """
    expected = [1000 + (lane ^ 16) if lane < 16 else 2000 + (lane ^ 16) for lane in range(32)]
    assert run(body + STORE) == expected


def test_lanes_synchronise_only_under_the_same_mask():
    """Found by `simwarp fuzz` on an H200: a lane that waits under another mask has not arrived."""
    body = f"""setp.lt.u32 %p1, %lane, 16; @%p1 bra LOW;
vote.sync.ballot.b32 %r3, 1, 0xFFFF0000;
vote.sync.ballot.b32 %r2, 1, {ALL}; bra END;
LOW: vote.sync.ballot.b32 %r2, 1, {ALL};
END: """
    assert run(body + STORE) == [0xFFFFFFFF] * 32


def test_lanes_waiting_at_different_votes_are_a_deadlock():
    body = f"""setp.lt.u32 %p1, %lane, 4; @%p1 bra HERE;
vote.sync.ballot.b32 %r2, %p1, {ALL}; bra END;
HERE: vote.sync.any.pred %p2, %p1, {ALL};
END: ret;"""
    fault = fault_of(Deadlock, body)
    assert [note.label.partition(" wait")[0] for note in fault.notes] == ["28 lanes", "4 lanes"]
    assert fault.place.line == line_of(body, "vote")


def test_an_aligned_barrier_in_a_divergent_warp_is_a_fault():
    body = "setp.lt.u32 %p1, %i, 4; @%p1 bra HERE;\nbar.sync 0; bra END;\nHERE: bar.sync 0;\nEND: ret;"
    fault = fault_of(BarrierFault, body, block=64)
    assert fault.place.line == line_of(body, "HERE:")
    assert fault.place.warp == 0


def test_an_unaligned_barrier_may_be_reached_at_two_instructions():
    body = "setp.lt.u32 %p1, %i, 4; mov.u32 %r2, 1; @%p1 bra HERE;"
    body += "barrier.sync 0; bra END; HERE: barrier.sync 0; END: "
    assert run(body + STORE, block=64) == [1] * 64


# --------------------------------------------------------------------- shared memory and barriers

REVERSE = """mov.u32 %r3, %tid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, cells; mad.lo.u32 %r6, %r3, 4, %r5;
mul.lo.u32 %r7, %i, 3; st.shared.u32 [%r6], %r7;
bar.sync 0;
sub.u32 %r8, %r4, %r3; mad.lo.u32 %r6, %r8, 4, %r5; ld.shared.u32 %r2, [%r6+-4];
"""
STATIC = ".shared .align 4 .b8 cells[512];\n"
DYNAMIC = (".visible .entry", ".extern .shared .align 16 .b8 cells[];\n.visible .entry")


@pytest.mark.parametrize(
    ("block", "grid", "chunk"), [(32, 1, 32), (128, 6, 128), (128, 6, 32768), (70, 3, 256)]
)
def test_static_shared_memory_is_shared_by_the_warps_of_a_block(block, grid, chunk):
    got = run(STATIC + REVERSE + STORE, block, grid, device=simwarp.Device(chunk_lanes=chunk))
    assert got == [3 * (b * block + block - 1 - t) for b in range(grid) for t in range(block)]


def dynamic(body, shared, block=64, grid=2):
    device = simwarp.Device()
    out = device.upload(np.zeros(block * grid, np.uint32))
    kernel = device.load(text(body).replace(*DYNAMIC)).kernel("k")
    kernel((grid, 1, 1), (block, 1, 1), out, out, shared=shared)
    return out.download().tolist()


def test_dynamic_shared_memory_is_shared_by_the_warps_of_a_block():
    assert dynamic(REVERSE + STORE, 256) == [3 * (b * 64 + 63 - t) for b in range(2) for t in range(64)]


def test_dynamic_shared_memory_follows_static_shared_memory():
    body = (
        ".shared .align 4 .b8 other[20]; mov.u32 %r2, 1; st.shared.u32 [other+16], %r2;\n" + REVERSE + STORE
    )
    assert dynamic(body, 256) == [3 * (b * 64 + 63 - t) for b in range(2) for t in range(64)]
    with pytest.raises(OutOfBounds):
        dynamic(body, 252)


def test_shared_accesses_out_of_bounds_are_reported():
    with pytest.raises(OutOfBounds) as caught:
        dynamic(REVERSE + STORE, 252)
    fault = caught.value
    assert (fault.space, fault.offset, fault.width) == ("shared", 252, 4)
    assert (fault.place.thread, fault.place.warp, fault.place.lane) == ((63, 0, 0), 1, 31)
    with pytest.raises(OutOfBounds):
        dynamic(REVERSE + STORE, 0)
    below = STATIC + "mov.u32 %r3, cells; ld.shared.u32 %r2, [%r3-4];"
    assert fault_of(OutOfBounds, below).place.lane == 0


def test_misaligned_and_uninitialised_shared_accesses_are_reported():
    fault = fault_of(Misaligned, STATIC + "mov.u32 %r2, 1; st.shared.u32 [cells+2], %r2;")
    assert (fault.place.lane, fault.width, fault.space) == (0, 4, "shared")
    fault = fault_of(UninitialisedRead, STATIC + "ld.shared.u32 %r2, [cells+8];" + STORE)
    assert (fault.place.lane, fault.offset) == (0, 8)


def test_shared_memory_of_each_block_starts_uninitialised():
    body = (
        STATIC
        + """mov.u32 %r3, %ctaid.x; setp.eq.u32 %p1, %r3, 0; @%p1 st.shared.u32 [cells], %r3; bar.sync 0;
ld.shared.u32 %r2, [cells];"""
    )
    for chunk in (32, 32768):
        fault = fault_of(UninitialisedRead, body + STORE, grid=2, device=simwarp.Device(chunk_lanes=chunk))
        assert fault.place.block == (1, 0, 0)


def test_barriers_in_a_loop_do_not_wait_for_exited_threads():
    """In each iteration the next warp adds to the cell."""
    body = (
        STATIC
        + """setp.ge.u32 %p5, %i, 120; @%p5 exit;
mov.u32 %r3, 0; setp.eq.u32 %p1, %i, 0; @%p1 st.shared.u32 [cells], %r3; mov.u32 %r6, %warpid; bar.sync 0;
LOOP: setp.eq.u32 %p2, %r6, %r3; setp.eq.and.u32 %p3, %lane, 5, %p2;
@%p3 ld.shared.u32 %r4, [cells]; @%p3 mad.lo.u32 %r4, %r4, 10, %r3; @%p3 st.shared.u32 [cells], %r4;
bar.sync 0;
add.u32 %r3, %r3, 1; setp.lt.u32 %p4, %r3, 4; @%p4 bra LOOP;
ld.shared.u32 %r2, [cells];
"""
    )
    assert run(body + STORE, block=128) == [123] * 120 + [0xFFFFFFFF] * 8


def test_blocks_may_execute_different_numbers_of_barriers():
    """Block b executes b + 1 iterations; a lane of warp 1 writes what warp 0 reads."""
    body = (
        STATIC
        + """mov.u32 %r3, %ctaid.x; mov.u32 %r4, 0; mov.u32 %r2, 0;
mov.u32 %r5, %tid.x; setp.eq.u32 %p1, %r5, 32;
LOOP: @%p1 st.shared.u32 [cells], %r4; bar.sync 0;
ld.shared.u32 %r6, [cells]; mad.lo.u32 %r2, %r2, 10, %r6; bar.sync 0;
add.u32 %r4, %r4, 1; setp.le.u32 %p2, %r4, %r3; @%p2 bra LOOP;
"""
    )
    expected = [value for value in (0, 1, 12, 123, 1234) for _ in range(64)]
    for chunk in (64, 192, 32768):
        assert run(body + STORE, block=64, grid=5, device=simwarp.Device(chunk_lanes=chunk)) == expected


def test_a_barrier_skipped_by_exited_warps_completes():
    body = """setp.lt.u32 %p1, %i, 32; mov.u32 %r2, 1; @!%p1 bra END;
bar.sync 0; mov.u32 %r2, 2;
END: st.global.u32 [%at], %r2; ret;"""
    assert run(body, block=64, device=simwarp.Device(checks={"barriers": "off"})) == [2] * 32 + [1] * 32


# --------------------------------------------------------------------------------- atomics


@pytest.mark.parametrize("chunk", [64, 32768])
def test_contended_atomic_adds_are_exact(chunk):
    """The sum is exact, and the old values are a permutation of partial sums."""
    body = "atom.global.add.u32 %r2, [%in], 1;\n" + STORE
    device = simwarp.Device(chunk_lanes=chunk)
    out = device.upload(np.zeros(200 * 5, np.uint32), "out")
    count = device.upload(np.array([10], np.uint32), "count")
    device.load(text(body)).kernel("k")((5, 1, 1), (200, 1, 1), out, count)
    assert count.download().tolist() == [1010]
    assert sorted(out.download().tolist()) == list(range(10, 1010))


def test_contended_shared_atomics_are_exact():
    body = (
        STATIC
        + """mov.u32 %r3, 100; setp.eq.u32 %p1, %i, 0; @%p1 st.shared.u32 [cells], %r3; bar.sync 0;
mul.lo.u32 %r4, %lane, 3; atom.shared.min.u32 %r5, [cells], %r4; bar.sync 0; ld.shared.u32 %r2, [cells];
"""
    )
    assert run(body + STORE, block=64) == [0] * 64


def test_atomic_exchanges_keep_every_value():
    body = "atom.global.exch.b32 %r2, [%in], %i;\n" + STORE
    device = simwarp.Device()
    out, cell = device.upload(np.zeros(64, np.uint32)), device.upload(np.array([999], np.uint32))
    device.load(text(body)).kernel("k")((1, 1, 1), (64, 1, 1), out, cell)
    assert sorted([*out.download().tolist(), *cell.download().tolist()]) == [*range(64), 999]


def test_a_predicated_atomic_without_a_result_adds_for_its_lanes():
    body = "setp.lt.u32 %p1, %lane, 5; @%p1 atom.global.add.u32 _, [%out], 2; ret;"
    assert run(body, words=1) == [(0xFFFFFFFF + 10) % 2**32]


# --------------------------------------------------------------------------------- vectors


@pytest.mark.parametrize(
    ("vector", "kind"), [("v2", "u32"), ("v4", "u32"), ("v2", "u64"), ("v4", "u8"), ("v4", "f32")]
)
def test_misaligned_vector_accesses_are_a_fault(vector, kind):
    size = int(vector[1]) * int(kind[1:]) // 8
    registers = ", ".join(
        f"%{'rd' if kind == 'u64' else 'f' if kind == 'f32' else 'r'}{i}"
        for i in range(3, 3 + int(vector[1]))
    )
    step = int(kind[1:]) // 8
    load = f"ld.global.{vector}.{kind} {{{registers}}}"
    body = f"{load}, [%in+{size}];\n{load}, [%in+{step}];\nret;"
    fault = fault_of(Misaligned, body, given=range(16))
    assert (fault.width, fault.place.lane, fault.place.line) == (size, 0, FIRST + 1)


def test_vector_loads_past_the_end_are_a_fault():
    body = "ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%in+8];"
    assert fault_of(Misaligned, body, given=range(8)).place.lane == 0
    body = "shl.b32 %r3, %lane, 4; cvt.u64.u32 %rd1, %r3; add.u64 %rd1, %rd1, %in;\n"
    body += "ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%rd1];"
    assert fault_of(OutOfBounds, body, given=range(100)).place.lane == 25


def test_a_guarded_exit_ends_only_its_active_lanes():
    body = """mov.u32 %r2, 5; setp.lt.u32 %p1, %lane, 4; setp.lt.u32 %p2, %lane, 2;
@%p1 bra LOW; st.global.u32 [%at], %r2; ret;
LOW: @%p2 exit; st.global.u32 [%at], %r2; ret;"""
    assert run(body) == [0xFFFFFFFF] * 2 + [5] * 30


# --------------------------------------------------------------------------------- fairness

FLAG = """setp.ne.u32 %p1, %lane, 0; @%p1 bra SET;
POLL: {load}.u32 %r2, [%in]; setp.eq.u32 %p2, %r2, 0; @%p2 bra POLL;
st.global.u32 [%at], %r2; ret;
SET: mov.u32 %r2, 7; st.volatile.global.u32 [%in], %r2; st.global.u32 [%at], %r2; ret;"""


@pytest.mark.parametrize(
    "load",
    ["ld.volatile.global", "ld.acquire.gpu.global", "ld.global.acquire.gpu", "ld.relaxed.gpu.global"],
)
def test_lanes_poll_a_flag_that_another_lane_of_the_warp_sets(load):
    assert run(FLAG.format(load=load), device=simwarp.Device(instruction_budget=20_000)) == [7] * 32


def test_lanes_poll_a_flag_with_an_atomic():
    body = FLAG.replace("{load}.u32 %r2, [%in];", "atom.global.or.b32 %r2, [%in], 0;")
    assert run(body, device=simwarp.Device(instruction_budget=20_000)) == [7] * 32


@pytest.mark.slow
def test_a_spin_lock_within_a_warp_makes_progress():
    """A textbook spin lock: the owner increments without an atomic and unlocks."""
    body = """LOCK: atom.global.exch.b32 %r3, [%in], 1; setp.ne.u32 %p1, %r3, 0; @%p1 bra LOCK;
ld.volatile.global.u32 %r4, [%in+4]; add.u32 %r4, %r4, 1; st.volatile.global.u32 [%in+4], %r4;
atom.global.exch.b32 %r3, [%in], 0; ret;"""
    device = simwarp.Device(instruction_budget=500_000)
    data = device.upload(np.zeros(2, np.uint32))
    device.load(text(body)).kernel("k")((2, 1, 1), (20, 1, 1), data, data)
    assert data.download().tolist() == [0, 40]


def test_a_grid_barrier_completes_in_a_cooperative_launch():
    body = """mov.u32 %r5, %tid.x; setp.ne.u32 %p1, %r5, 0; mov.u32 %r6, %nctaid.x; @%p1 bra WAIT;
atom.global.add.u32 %r3, [%in], 1;
WAIT: ld.volatile.global.u32 %r2, [%in]; setp.ne.u32 %p2, %r2, %r6; @%p2 bra WAIT;
"""
    device = simwarp.Device(chunk_lanes=64, instruction_budget=100_000)
    assert run(body + STORE, block=64, grid=6, device=device, cooperative=True) == [6] * 384


def test_an_endless_loop_stops_at_the_instruction_budget():
    body = "LOOP: add.u32 %r3, %lane, 1;\nbra LOOP;"
    fault = fault_of(RunawayKernel, body, device=simwarp.Device(instruction_budget=1000))
    assert fault.place.line in (FIRST, FIRST + 1)
    assert "1000" in str(fault)
    assert run("mov.u32 %r2, 1;" + STORE, device=simwarp.Device(instruction_budget=12)) == [1] * 32
    assert fault_of(RunawayKernel, "mov.u32 %r2, 1;" + STORE, device=simwarp.Device(instruction_budget=11))


# --------------------------------------------------------------------------------- counts, places, observers

PRELUDE = 9
"""Instructions in `HEAD`."""


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("ret;", 32),
        ("mov.u32 %r2, 1; st.global.u32 [%at], %r2; ret;", 96),
        ("setp.lt.u32 %p1, %lane, 5; @%p1 mov.u32 %r2, 1; @!%p1 mov.u32 %r2, 2; ret;", 32 + 5 + 27 + 32),
        ("setp.lt.u32 %p1, %lane, 5; @%p1 bra END; mov.u32 %r2, 1; END: ret;", 32 + 5 + 27 + 32),
        ("setp.lt.u32 %p1, %lane, 5; @%p1 ret; mov.u32 %r2, 1; ret;", 32 + 5 + 27 + 27),
        # 3 iterations for lanes 0–7, 1 for the others: 2 instructions and the taken branch back.
        (
            "setp.lt.u32 %p1, %lane, 8; selp.u32 %r2, 3, 1, %p1;\n"
            "LOOP: sub.u32 %r2, %r2, 1; setp.ne.u32 %p2, %r2, 0; @%p2 bra LOOP; ret;",
            64 + (8 * 3 + 24) * 2 + 8 * 2 + 32,
        ),
        (
            "setp.lt.u32 %p1, %lane, 4; @%p1 vote.sync.ballot.b32 %r2, %p1, 15; bar.sync 0; ret;",
            32 + 4 + 32 + 32,
        ),
    ],
)
def test_executed_thread_instructions_equal_a_hand_count(body, count):
    device = simwarp.Device()
    run(body, device=device)
    assert device.executed == 32 * PRELUDE + count


def test_a_fault_names_block_thread_and_source_line():
    body = """mov.u32 %r3, %ctaid.y; mov.u32 %r4, %tid.z; setp.eq.u32 %p1, %r3, 2;
setp.eq.and.u32 %p1, %r4, 1, %p1;
mov.u64 %rd1, 16;
.loc 1 77 3
@%p1 ld.global.u32  %r2,
 [%rd1];
ret;"""
    device = simwarp.Device(chunk_lanes=64)
    out = device.upload(np.zeros(1, np.uint32))
    kernel = device.load(text(body) + '\n.file 1 "kernels/demo.cu"').kernel("k")
    with pytest.raises(OutOfBounds) as caught:
        kernel((2, 3, 1), (4, 5, 2), out, out)
    place = caught.value.place
    # Thread 20 of the block is the first with z = 1.
    assert (place.kernel, place.block, place.warp, place.lane, place.thread) == (
        "k",
        (0, 2, 0),
        0,
        20,
        (0, 0, 1),
    )
    assert (place.line, place.source_file, place.source_line) == (
        line_of(body, "@%p1"),
        "kernels/demo.cu",
        77,
    )
    assert caught.value.address == 16
    first, who, values, advice, *_ = str(caught.value).splitlines()
    assert first.startswith("kernels/demo.cu:77: ")
    assert who == "  kernel k, block (0, 2, 0), thread (0, 0, 1), warp 0, lane 20"
    assert "0x10" in values
    assert advice == f"help: {caught.value.advice}"


def test_a_fault_in_a_partly_active_warp_names_warp_lane_and_thread():
    body = """setp.ge.u32 %p1, %i, 40; @!%p1 ret;
shl.b32 %r3, %i, 2; cvt.u64.u32 %rd1, %r3; add.u64 %rd1, %rd1, %in;
ld.global.u32 %r2, [%rd1];
"""
    fault = fault_of(OutOfBounds, body + STORE, block=64, given=range(50))
    assert (fault.place.warp, fault.place.lane, fault.place.thread) == (1, 18, (50, 0, 0))
    assert (fault.allocation, fault.offset) == ("in", 200)
    fault = fault_of(
        OutOfBounds, body.replace("ld.global.u32 %r2, [%rd1]", "st.global.u32 [%rd1], %i"), block=64
    )
    assert (fault.place.warp, fault.place.lane) == (1, 8)


def test_a_trap_names_block_warp_lane_and_line():
    body = "setp.eq.u32 %p1, %i, 37;\n@%p1 trap;\nret;"
    place = fault_of(Trap, body, block=64, grid=2).place
    assert (place.block, place.warp, place.lane, place.line) == ((0, 0, 0), 1, 5, FIRST + 1)
    assert run("setp.eq.u32 %p1, %i, 99; @%p1 trap; mov.u32 %r2, 1;" + STORE) == [1] * 32


def test_an_unsupported_instruction_names_its_line_and_similar_forms():
    body = "ret;\nshfl.sync.rotate.b32 %r2, %r3, 1, 31, -1;"
    with pytest.raises(UnsupportedInstruction) as caught:
        simwarp.Device().load(text(body))
    assert f"line {FIRST + 1}" in str(caught.value)
    assert "shfl.sync<.idx|.up|.down|.bfly>.b32" in str(caught.value)
    with pytest.raises(UnsupportedInstruction, match="no form of this instruction"):
        simwarp.Device().load(text("sured.p.2d.add.u32;"))


@every_case(
    "instruction",
    [
        "add.u32 %r2, %r3;",
        "add.u32 %r2, %r3, %r4, %r5;",
        "add.u32 %r2, %r99, 1;",
        "add.u32 3, %r2, 1;",
        "add.u32 %r2, nowhere, 1;",
        "add.u32 %r2, [%rd1], 1;",
        "add.u32 %r2|%r3, %r4, 1;",
        "ld.global.u32 %r2, %rd1;",
        "ld.param.u32 %r2, [nothing];",
        "bra NOWHERE;",
        "bra %r2;",
        "@%p99 ret;",
        "ret 3;",
        "setp.eq.and.u32 %p1, %r2, 1;",
        "setp.eq.u32 %p1, %r2, 1, %p2;",
        "setp.eq.f32 %p1, %f1, 1;",
        "setp.eq.ftz.f32 %p1, %f1, %f2, %p2;",
        "lop3.b32 %r2, %r3, %r4, %r5, %r6;",
        "ld.global.v2.u32 {%r2, %r3, %r4}, [%rd1];",
        "ld.global.v4.u32 %r2, [%rd1];",
    ],
)
def test_wrong_operands_are_refused_at_load(instruction):
    with pytest.raises(PtxSyntaxError, match=f"line {FIRST + 1}"):
        simwarp.Device().load(text("mov.u32 %r3, 0;\n" + instruction))


def test_impossible_launches_are_refused():
    for options in ({"block": 1025}, {"block": (0, 1, 1), "words": 1}, {"grid": (1, 65536, 1), "words": 1}):
        with pytest.raises(LaunchError):
            run("ret;", **options)
    with pytest.raises(LaunchError, match="shared"):
        run("ret;", shared=300_000)
    device = simwarp.Device()
    kernel = device.load(text("ret;")).kernel("k")
    out = device.allocate((1,), np.uint32)
    for arguments in ((out,), (out, out, out), (out, 3.0), (out, np.float32(3))):
        with pytest.raises(LaunchError):
            kernel((1, 1, 1), (1, 1, 1), *arguments)
    with pytest.raises(LaunchError, match="no kernel"):
        device.load(text("ret;")).kernel("other")


def writes(body, offset, size, **options):
    observer = WriteObserver("out", offset=offset, size=size)
    run(body, device=simwarp.Device(observers=[observer], checks={"races": "off"}), **options)
    return [(w.place.block[0], w.place.thread[0], w.register, w.value) for w in observer.writes]


def test_a_write_observer_names_every_writer_in_order():
    body = "add.u32 %r3, %i, 100; st.global.u32 [%at], %r3; mov.u32 %r2, 1; st.global.u32 [%at+-4], %r2; ret;"
    body = body.replace("st.global.u32 [%at+-4]", "setp.ne.u32 %p1, %i, 0; @%p1 st.global.u32 [%at+-4]")
    assert writes(body, 4 * 33, 4, block=64) == [(0, 33, "%r3", 133), (0, 34, "%r2", 1)]
    assert writes(body, 4 * 33 + 3, 2, block=20, grid=3) == [
        (1, 13, "%r3", 133),
        (1, 14, "%r3", 134),
        (1, 14, "%r2", 1),
        (1, 15, "%r2", 1),
    ]


def test_a_write_observer_names_the_register_of_a_vector():
    body = "shl.b32 %r4, %i, 3; cvt.u64.u32 %rd1, %r4; add.u64 %rd1, %rd1, %out; mov.u32 %r5, 9;\n"
    body += "st.global.v2.u32 [%rd1], {%i, %r5}; ret;"
    assert writes(body, 8, 8, words=64) == [(0, 1, "%i", 1), (0, 1, "%r5", 9)]


def test_a_write_observer_sees_atomics():
    """Each lane's new value, in execution order."""
    got = writes("atom.global.add.u32 %r2, [%out], 2; ret;", 0, 4, block=3, words=1)
    assert [(thread, value) for _, thread, _, value in got] == [(0, 1), (1, 3), (2, 5)]


def test_a_write_observer_sees_stores_that_reach_two_arrays():
    body = "setp.lt.u32 %p1, %i, 3; selp.b64 %rd1, %in, %at, %p1; st.global.u32 [%rd1], %i; ret;"
    assert writes(body, 16, 4) == [(0, 4, "%i", 4)]


def test_a_step_observer_sees_every_instruction_and_its_active_lanes():
    class Fetches(Observer):
        def __init__(self):
            self.seen = []

        def on_step(self, chunk, step, mask):
            self.seen.append((step.instruction.opcode, int(chunk.count)))

    observer = Fetches()
    run(IF_ELSE + STORE, device=simwarp.Device(observers=[observer]))
    assert observer.seen[PRELUDE:] == [
        ("setp.lt.u32", 32),
        ("bra", 32),
        ("mov.u32", 25),
        ("bra", 25),
        ("mov.u32", 7),
        ("add.u32", 32),
        ("st.global.u32", 32),
        ("ret", 32),
    ]
