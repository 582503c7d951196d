"""Schedules: the stack of reconvergence points, the random order, and results that depend on neither."""

from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import gpu
import simwarp
from gpu.bmm.schemes import SCHEMES
from simwarp.engine.schedule.livelock import Progress
from simwarp.engine.schedule.random_scheduler import Dice, shuffled
from simwarp.engine.schedule.stack_scheduler import Stacks
from simwarp.faults import (
    Deadlock,
    InactiveSource,
    Livelock,
    MemberMaskFault,
    NeedsIndependentProgress,
    OutOfBounds,
    RunawayKernel,
)
from simwarp.lab import fuzz
from simwarp.lab.recording import example
from simwarp.lab.subjects import kernels
from simwarp.observe import Observer
from simwarp.program.link import link
from simwarp.program.postdominators import immediate_dominators, reconvergence
from simwarp.ptx.kinds import BRANCH, CALL, RETURN
from simwarp.ptx.parse import parse
from simwarp.testing import assert_same_bits
from simwarp.verify import Draw
from support import small_kernels as small

TESTS = Path(__file__).parents[2]
STORE, NOTHING, text, line_of = small.STORE, small.NOTHING, small.text, small.line_of
WITHOUT_RACES = {"races": "off"}
"""For kernels whose races are the point."""


def device(schedule="stack", **options):
    return simwarp.Device(schedule=schedule, instruction_budget=2_000_000, **options)


def run(body, schedule="stack", seed=0, checks="raise", chunk_lanes=32768, **options):
    made = device(schedule, seed=seed, checks=checks, chunk_lanes=chunk_lanes)
    return small.run(body, device=made, **options)


def declined(body, **options):
    with pytest.raises(NeedsIndependentProgress) as caught:
        run(body, **options)
    return caught.value


# ---- where sides meet ------------------------------------------------------------------------------------


def reconvergence_points(body, before=""):
    """The reconvergence point of each step, by the texts of the steps; "" for none."""
    module = parse(text(body, before))
    steps = link(module, module.entries["k"]).steps
    names = [step.instruction.text.rpartition(":")[2].split(";")[0].strip() for step in steps] + [""]
    assert all(name for name in names[:-1])
    return {names[at]: names[meets] for at, meets in reconvergence(steps).items()}


SET = [f"mov.u32 %r{i}, {i}" for i in range(30)]
"""Instructions to tell apart."""


def ptx(*parts):
    """A kernel with one instruction per line, so that each has its own text."""
    return "\n".join(part if part.endswith(":") else f"{part};" for part in parts)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param(
            ["@%p1 bra JOIN", SET[1], "JOIN:", SET[2], "ret"], {"@%p1 bra JOIN": SET[2]}, id="if"
        ),
        pytest.param(
            ["@%p1 bra OTHER", SET[1], "bra JOIN", "OTHER:", SET[2], "JOIN:", SET[3], "ret"],
            {"@%p1 bra OTHER": SET[3]},
            id="if and else",
        ),
        pytest.param(
            ["@%p1 bra JOIN", SET[1], "@%p2 bra IN", SET[2], "IN:", SET[3], "JOIN:", SET[4], "ret"],
            {"@%p1 bra JOIN": SET[4], "@%p2 bra IN": SET[3]},
            id="nested",
        ),
        pytest.param(
            ["LOOP:", SET[1], "@%p1 bra LOOP", SET[2], "ret"], {"@%p1 bra LOOP": SET[2]}, id="loop"
        ),
        pytest.param(
            ["LOOP:", SET[1], "@%p1 bra OUT", SET[2], "@%p2 bra LOOP", SET[3], "OUT:", SET[4], "ret"],
            {"@%p1 bra OUT": SET[4], "@%p2 bra LOOP": SET[4]},
            id="break",
        ),
        pytest.param(
            ["LOOP:", SET[1], "@%p1 bra LOOP", SET[2], "@%p2 bra LOOP", SET[3], "ret"],
            {"@%p1 bra LOOP": SET[2], "@%p2 bra LOOP": SET[3]},
            id="continue",
        ),
        pytest.param(
            ["LOOP:", SET[1], "@%p1 bra OUT", SET[2], "bra LOOP", "OUT:", SET[3], "ret"],
            {"@%p1 bra OUT": SET[3]},
            id="loop left in the middle",
        ),
        pytest.param(
            ["@%p1 bra JOIN", "@%p2 bra ON", SET[1], "exit", "ON:", SET[2], "JOIN:", SET[3], "ret"],
            {"@%p1 bra JOIN": SET[3], "@%p2 bra ON": SET[2]},
            id="early exit within",
        ),
        pytest.param(
            ["@%p1 bra JOIN", SET[1], "@%p2 bra END", SET[2], "JOIN:", SET[3], "END:", "ret"],
            {"@%p1 bra JOIN": SET[3], "@%p2 bra END": SET[2]},
            id="branch to the end",
        ),
        pytest.param(
            ["@%p1 bra JOIN", SET[1], "@%p2 exit", SET[2], "JOIN:", SET[3], "ret"],
            {"@%p1 bra JOIN": SET[3]},
            id="exit under a predicate",
        ),
        pytest.param(
            ["@%p1 bra ON", SET[1], "trap", "ON:", SET[2], "ret"], {"@%p1 bra ON": SET[2]}, id="trap"
        ),
        pytest.param(
            ["LOOP:", SET[1], "@%p1 bra FAIL", "@%p2 bra LOOP", SET[2], "ret", "FAIL:", SET[3], "exit"],
            {"@%p1 bra FAIL": "@%p2 bra LOOP", "@%p2 bra LOOP": SET[2]},
            id="failure within a loop",
        ),
        pytest.param(
            ["@%p1 bra OTHER", SET[1], "exit", "OTHER:", SET[2], SET[3], "@%p2 bra ON", SET[4], "ON:", "ret"],
            {"@%p1 bra OTHER": SET[2], "@%p2 bra ON": SET[4]},
            id="two ways out, of which the short one leaves",
        ),
        pytest.param(
            ["@%p1 bra OTHER", SET[1], SET[2], SET[3], "exit", "OTHER:", "bar.sync 0", "ret"],
            {"@%p1 bra OTHER": "bar.sync 0"},
            id="two ways out, of which one has a barrier",
        ),
        pytest.param(
            ["@%p1 bra SPIN", SET[1], "ret", "SPIN:", "bra SPIN"],
            {"@%p1 bra SPIN": SET[1]},
            id="a side that never ends",
        ),
        pytest.param(["LOOP:", SET[1], "@%p1 bra LOOP", "bra LOOP"], {"@%p1 bra LOOP": ""}, id="no end"),
        pytest.param(
            ["T: .branchtargets A, B, C", "brx.idx %r0, T", "A:", SET[1], "bra JOIN",
             "B:", SET[2], "bra JOIN", "C:", SET[3], "JOIN:", SET[4], "ret"],
            {"brx.idx %r0, T": SET[4]},
            id="indexed branch",
        ),
    ],
)  # fmt: skip
def test_reconvergence_points_are_immediate_post_dominators(parts, expected):
    assert reconvergence_points(ptx(*parts)) == expected


def test_reconvergence_points_within_a_function_are_found():
    function = ".func f() { .reg .pred %p; .reg .b32 %r; @%p bra A; mov.u32 %r, 40; ret;\n A: mov.u32 %r, 50;"
    module = parse(text("call f;\n" + STORE, function + "\n @%p ret;\n mov.u32 %r, 60; ret; }"))
    steps = link(module, module.entries["k"]).steps
    meets = reconvergence(steps)
    call = next(step.number for step in steps if step.kind is CALL)
    branch = next(step.number for step in steps if step.kind is BRANCH)
    guarded = next(s.number for s in steps if s.kind is RETURN and s.guard is not None)
    assert meets == {branch: len(steps), guarded: len(steps), call: call + 1}


def test_reconvergence_of_an_exiting_side_is_the_return():
    function = (
        ".func f() { .reg .pred %p; .reg .b32 %r; @%p bra A; mov.u32 %r, 4; mov.u32 %r, 5; exit; A: ret; }"
    )
    module = parse(text("call f;\n" + STORE, function))
    steps = link(module, module.entries["k"]).steps
    branch = next(step.number for step in steps if step.kind is BRANCH)
    assert steps[reconvergence(steps)[branch]].kind is RETURN


@pytest.mark.parametrize("n", [1, 500])
def test_dominators_of_a_straight_chain_are_its_predecessors(n):
    chain = [[i + 1] for i in range(n - 1)] + [[]]
    assert immediate_dominators(chain, 0) == {i: max(i - 1, 0) for i in range(n)}


# ---- the stack: the same results -------------------------------------------------------------------------


@pytest.mark.at_most(1)
@pytest.mark.slow_cases("random-jacobi", "random-bitonic_sort", "random-gemm*")
@pytest.mark.parametrize("name", kernels.names())
@pytest.mark.parametrize("schedule", ["stack", "random"])
def test_example_kernels_give_the_same_bits_under_every_schedule(name, schedule):
    expected = example("kernels", name).run(device("lowest pc"), 0)
    for key, right in expected.items():
        assert_same_bits(right, example("kernels", name).run(device(schedule), 0)[key])


@pytest.mark.at_most(2)
@pytest.mark.slow_cases("random-bmm64", "stack-bmm64")
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("schedule", ["stack", "random"])
def test_bmm_gives_the_same_bits_under_every_schedule(scheme, schedule):
    draw = Draw(3, "schedules", 0)
    a, b = draw.matrix(67, 70, "float32"), draw.matrix(70, 33, "float32")
    right = gpu.bmm(a, b, scheme=scheme, device=device("lowest pc"))
    assert_same_bits(right, gpu.bmm(a, b, scheme=scheme, device=device(schedule)))


FACTORIAL = """.func (.reg .b32 product) factorial(.reg .b32 n) {
.reg .b32 %r; .reg .pred %last;
setp.ne.u32 %last, n, 0; @%last bra MORE;
mov.b32 product, 1; ret;
MORE: sub.u32 %r, n, 1; call (%r), factorial, (%r); mul.lo.u32 product, %r, n; ret; }"""


def test_lanes_and_warps_recurse_to_different_depths():
    body = """shr.u32 %r3, %i, 5; add.u32 %r3, %r3, %lane; rem.u32 %r3, %r3, 7;
call (%r2), factorial, (%r3); bar.sync 0;
"""
    factorials = [1, 1, 2, 6, 24, 120, 720]
    expected = [factorials[(i // 32 + i % 32) % 7] for i in range(128)]
    assert run(body + STORE, block=128, before=FACTORIAL) == expected


def test_lanes_that_return_separately_reconverge_after_the_call():
    function = """.func (.reg .b32 r) f(.reg .b32 lane) {
.reg .pred %p, %q; .reg .b32 %t;
mov.u32 r, 100; setp.lt.u32 %p, lane, 5; @%p ret;
setp.lt.u32 %q, lane, 9; @!%q bra REST; mov.u32 r, 200; ret;
REST: mov.u32 r, 300; ret; }"""
    body = "call (%r2), f, (%lane); redux.sync.add.u32 %r3, %r2, 0xFFFFFFFF; add.u32 %r2, %r2, %r3;\n"
    total = 5 * 100 + 4 * 200 + 23 * 300
    expected = [total + r for r in [100] * 5 + [200] * 4 + [300] * 23]
    assert run(body + STORE, before=function) == expected


def test_lanes_reconverge_after_a_divergent_indirect_call():
    functions = "\n".join(
        f".func (.reg .b32 r) f{k}(.reg .b32 n) {{ add.u32 r, n, {k}00; ret; }}" for k in (1, 2)
    )
    body = """setp.lt.u32 %p1, %lane, 10; mov.u64 %rd1, f1; mov.u64 %rd2, f2; selp.b64 %rd3, %rd1, %rd2, %p1;
P: .callprototype (.reg .b32 _) _ (.reg .b32 _);
call (%r2), %rd3, (%lane), P; bar.warp.sync 0xFFFFFFFF;
"""
    assert run(body + STORE, before=functions) == [i + (100 if i < 10 else 200) for i in range(32)]


# ---- the stack: its order --------------------------------------------------------------------------------

TICKETS = "atom.shared.add.u32 %r2, [cells], 1;"
CELLS = ".shared .align 4 .b32 cells[64];"
ZERO = "mov.u32 %r9, 0; mov.u32 %r10, cells; st.shared.u32 [%r10], %r9; bar.warp.sync 0xFFFFFFFF;\n"


def test_the_stack_runs_the_higher_side_of_a_branch_first():
    body = f"""{ZERO}setp.lt.u32 %p1, %lane, 8; @%p1 bra LOW;
{TICKETS} bra END;
LOW: {TICKETS}
END: """
    assert run(body + STORE, before=CELLS) == [*range(8), *range(8, 32)]
    lowest = run(body + STORE, schedule="lowest pc", before=CELLS)
    assert lowest == [*range(24, 32), *range(24)]


class Steps(Observer):
    """Records opcodes and active lanes in execution order."""

    def __init__(self):
        self.seen = []

    def on_step(self, chunk, step, mask):
        self.seen.append((step.instruction.opcode, mask.sum(axis=1).tolist()))


def steps_of(body, **options):
    observer = Steps()
    small.run(body, device=device(observers=[observer]), **options)
    return observer.seen


def test_each_warp_reconverges_at_its_own_post_dominator():
    """Warp 0 diverges, warp 1 does not and runs with warp 0 where possible."""
    body = """setp.lt.u32 %p1, %i, 8; @%p1 bra LOW;
not.b32 %r2, %i; bra.uni END;
LOW: neg.s32 %r2, %i;
END: """
    seen = [(opcode, lanes) for opcode, lanes in steps_of(body + STORE, block=64)]
    assert ("neg.s32", [8, 0]) in seen
    halves = [lanes for opcode, lanes in seen if opcode == "not.b32"]
    assert np.sum(halves, axis=0).tolist() == [24, 32]
    assert seen[-2:] == [("st.global.u32", [32, 32]), ("ret", [32, 32])]


def test_lanes_that_leave_a_loop_reconverge_after_it():
    body = """mov.u32 %r2, 0;
LOOP: add.u32 %r2, %r2, 1; setp.le.u32 %p1, %r2, %lane; @%p1 bra LOOP;
xor.b32 %r2, %r2, 64;
"""
    seen = [lanes for opcode, (lanes,) in steps_of(body + STORE) if opcode in ("add.u32", "xor.b32")]
    assert seen == [*range(32, 0, -1), 32]
    assert run(body + STORE) == [64 ^ (i + 1) for i in range(32)]


def test_lanes_may_exit_on_one_side_of_a_branch():
    """Of lanes 0 to 15 every third exits; the others join lanes 16 to 31 at a ballot."""
    body = """setp.ge.u32 %p1, %lane, 16; rem.u32 %r3, %lane, 3; setp.ne.u32 %p2, %r3, 0; mov.u32 %r5, 1;
@%p1 bra JOIN; @%p2 bra ON;
mov.u32 %r2, 77; st.global.u32 [%at], %r2; exit;
ON: mov.u32 %r5, 2;
JOIN: activemask.b32 %r6; vote.sync.ballot.b32 %r2, 1, 0xFFFFFFFF; setp.ne.u32 %p3, %r6, %r2;
@%p3 mov.u32 %r2, 0; shl.b32 %r5, %r5, 0; add.u32 %r2, %r2, %r5;
"""
    voters = sum(1 << i for i in range(32) if i >= 16 or i % 3)
    expected = [77 if i < 16 and i % 3 == 0 else (voters + (1 if i >= 16 else 2)) % 2**32 for i in range(32)]
    assert run(body + STORE, checks={"members": "off"}) == expected


def test_a_barrier_after_an_early_exit_completes():
    """The barrier does not wait for exited lanes."""
    body = """setp.ge.u32 %p1, %lane, 20; @%p1 bra GONE;
bar.sync 0; mov.u32 %r2, 4;
st.global.u32 [%at], %r2; ret;
GONE: mov.u32 %r2, 5; st.global.u32 [%at], %r2; ret;"""
    assert run(body, block=64, checks={"barriers": "off"}) == ([4] * 20 + [5] * 12) * 2


def test_warps_synchronise_at_barriers_in_different_branches():
    body = """setp.lt.u32 %p1, %i, 32; @%p1 bra FIRST;
barrier.sync 0; ld.shared.u32 %r2, [cells]; bra END;
FIRST: mov.u32 %r2, 9; st.shared.u32 [cells], %r2; barrier.sync 0;
END: """
    assert run(body + STORE, block=96, before=CELLS) == [9] * 96


def test_a_warp_spins_until_another_warp_writes():
    body = f"""{ZERO}bar.sync 0; setp.lt.u32 %p1, %i, 32; @%p1 bra WAIT;
mov.u32 %r2, 3; st.volatile.shared.u32 [cells], %r2; bra END;
WAIT: ld.volatile.shared.u32 %r2, [cells]; setp.eq.u32 %p2, %r2, 0; @%p2 bra WAIT;
END: """
    body = body.replace("bar.warp.sync 0xFFFFFFFF;\n", "\n")
    assert run(body + STORE, block=64, before=CELLS) == [3] * 64


# ---- the stack: what it declines -------------------------------------------------------------------------


def assert_lanes_named(fault, body, waiting, awaited):
    """Each a lane and a part of the line where it stands."""
    for places, expected in ((fault.waiting, waiting), (fault.awaited, awaited)):
        found = [(place.lane, place.line) for place in places]
        assert found == [(lane, line_of(part, body)) for lane, part in expected]
    assert fault.place == fault.waiting[0]
    assert [note.place for note in fault.notes] == [*fault.waiting, *fault.awaited]
    assert str(fault).startswith(f"PTX line {fault.place.line}: ")


@pytest.mark.parametrize(
    "operation", ["bar.warp.sync 0xFFFFFFFF", "redux.sync.add.u32 %r2, %i, 0xFFFFFFFF", "barrier.sync 0"]
)
def test_the_stack_declines_lanes_that_wait_for_the_other_side(operation):
    body = (
        f"""mov.u32 %r2, 1; setp.lt.u32 %p1, %lane, 8; @%p1 bra LOW;
{operation}; bra END;
LOW: {operation};
END: """
        + STORE
    )
    fault = declined(body)
    assert_lanes_named(fault, body, [(0, "LOW: ")], [(8, "bra END")])
    assert [note.label.partition(" lanes")[0] for note in fault.notes] == ["8", "24"]
    assert run(body, schedule="lowest pc")


def test_the_stack_declines_although_another_warp_spins():
    """Warp 1 spins for warp 0, whose lanes wait for each other."""
    body = (
        """mov.u32 %r3, 0; setp.ge.u32 %p1, %i, 32; @%p1 bra SPIN; setp.lt.u32 %p2, %i, 8; @%p2 bra LOW;
bar.warp.sync 0xFFFFFFFF; bra DONE;
LOW: bar.warp.sync -1;
DONE: mov.u32 %r2, 1; st.volatile.global.u32 [%in], %r2; bra END;
SPIN: ld.volatile.global.u32 %r2, [%in]; add.u32 %r3, %r3, 1; setp.eq.u32 %p2, %r2, 0; @%p2 bra SPIN;
END: """
        + STORE
    )
    fault = declined(body, block=64, checks=WITHOUT_RACES)
    assert_lanes_named(fault, body, [(0, "LOW: bar")], [(8, "bra DONE")])
    assert fault.place.warp == 0
    assert run(body, "lowest pc", block=64, checks=WITHOUT_RACES) == [1] * 64


LOCK = """LOOP: atom.global.cas.b32 %r3, [%in], 0, 1; setp.ne.u32 %p1, %r3, 0;
@%p1 bra LOOP;
ld.volatile.global.u32 %r2, [%in+4]; add.u32 %r4, %r2, 1; st.volatile.global.u32 [%in+4], %r4;
membar.gl; atom.global.exch.b32 %r3, [%in], 0;
"""


@pytest.mark.slow
def test_the_stack_declines_a_lock_contended_within_a_warp():
    fault = declined(LOCK + STORE, given=(0, 0), checks=WITHOUT_RACES)
    assert_lanes_named(fault, LOCK + STORE, [(1, "atom.global.cas")], [(0, "ld.volatile")])
    assert sorted(run(LOCK + STORE, "lowest pc", given=(0, 0), checks=WITHOUT_RACES)) == [*range(32)]


def test_the_stack_runs_a_lock_contended_between_warps():
    body = "setp.ne.u32 %p2, %lane, 0; @%p2 exit; mov.u32 %r2, 0;\n" + LOCK
    tickets = run(body + STORE, given=(0, 0), checks=WITHOUT_RACES, block=256)
    assert sorted(tickets[::32]) == [*range(8)]


def test_a_counted_barrier_completes_without_the_other_side():
    """8 lanes of warp 0, 24 of warp 1 and later warp 2 make the 64 threads."""
    body = """setp.ge.u32 %p3, %i, 64; mov.u32 %r2, 3; @%p3 bra LATE;
setp.lt.u32 %p1, %i, 8; setp.ge.u32 %p2, %i, 40; or.pred %p1, %p1, %p2;
@%p1 bra COME; mov.u32 %r2, 4; bra END;
COME: barrier.sync 1, 64; bra END;
LATE: barrier.sync 1, 64; mov.u32 %r2, 5;
END: """
    assert run(body + STORE, block=96) == [3] * 8 + [4] * 32 + [3] * 24 + [5] * 32


def test_the_stack_declines_a_warp_with_one_waiting_lane():
    """Lanes 0 to 3 wait, 4 to 7 arrive; only the other side could complete the barrier."""
    body = (
        """setp.lt.u32 %p1, %lane, 8; setp.lt.u32 %p2, %lane, 4; mov.u32 %r2, 3; @%p1 bra LOW;
barrier.sync 1, 32; bra END;
LOW: @!%p2 barrier.arrive 1, 32;
WAIT: @%p2 barrier.sync 1, 32;
END: """
        + STORE
    )
    assert_lanes_named(declined(body), body, [(0, "WAIT: ")], [(8, "bra END"), (4, "END: ")])
    assert run(body, "lowest pc") == [3] * 32


def test_the_stack_declines_a_counted_barrier_no_other_warp_can_complete():
    """Two of warps 0 to 2 complete it; in diverged warp 0 only one side arrives."""
    body = (
        """setp.lt.u32 %p1, %i, 8; mov.u32 %r2, 3; @%p1 bra LOW; setp.lt.u32 %p1, %i, 32; @%p1 bra END;
barrier.sync 1, {threads}; bra END;
LOW: barrier.sync 1, {threads}; mov.u32 %r2, 2;
END: """
        + STORE
    )
    fault = declined(body.format(threads=96), block=96)
    assert [place.line for place in fault.waiting] == [line_of("LOW: ", body)]


# ---- faults stay what they are ---------------------------------------------------------------------------

BOTH = pytest.mark.parametrize("schedule", ["lowest pc", "stack", "random"])


@BOTH
def test_a_deadlock_is_reported_under_both_schedules(schedule):
    """Warp 0 waits at barrier 1, warp 1 at barrier 2."""
    body = (
        """setp.lt.u32 %p1, %i, 32; @%p1 bra LOW;
bar.sync 2;
bra END;
LOW: bar.sync 1;
END: """
        + STORE
    )
    with pytest.raises(Deadlock) as caught:
        run(body, schedule, block=64)
    found = [(place.warp, place.line) for place in caught.value.waiting]
    assert found == [(1, line_of("bar.sync 2", body)), (0, line_of("bar.sync 1", body))]


@pytest.mark.at_most(1)
@pytest.mark.slow_cases("random")
@BOTH
def test_a_livelock_is_reported_under_both_schedules(schedule):
    """All lanes poll a word that no lane writes."""
    body = "SPIN: ld.volatile.global.u32 %r2, [%in]; setp.eq.u32 %p1, %r2, 0; @%p1 bra SPIN;\n"
    with pytest.raises(Livelock) as caught:
        run(body + STORE, schedule, block=64)
    assert caught.value.place.line == line_of("ld.volatile", body + STORE)


@BOTH
def test_an_endless_counting_loop_is_a_runaway_kernel(schedule):
    body = "mov.u32 %r2, 0; LOOP: add.u32 %r2, %r2, 1; bra LOOP;\n"
    with pytest.raises(RunawayKernel):
        small.run(body, device=simwarp.Device(schedule=schedule, instruction_budget=10_000))


@BOTH
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (OutOfBounds, "ld.global.u32 %r2, [%in+4];"),
        (MemberMaskFault, "shfl.sync.idx.b32 %r2, %i, 0, 31, 1;"),
        (InactiveSource, "setp.ge.u32 %p1, %lane, 1; @%p1 shfl.sync.idx.b32 %r2, %i, 0, 31, 0xFFFFFFFE;"),
    ],
)
def test_faults_are_raised_under_both_schedules(schedule, kind, body):
    with pytest.raises(kind) as caught:
        run(body + STORE, schedule)
    assert caught.value.place.line == line_of(body, body + STORE)


# ---- the random order ------------------------------------------------------------------------------------


def results(body, seeds=20, **options):
    """Outputs of a kernel under each seed."""
    return [tuple(run(body, "random", seed, WITHOUT_RACES, **options)) for seed in range(seeds)]


DEPENDENT = {
    "unordered atomicExch": ("atom.global.exch.b32 %r2, [%in], %i;\n", {}),
    "tickets": ("atom.global.add.u32 %r2, [%in], 1;\n", {}),
    "order of float additions": (
        """cvt.rn.f32.u32 %f1, %i; add.f32 %f1, %f1, 0f3DCCCCCD; mul.f32 %f1, %f1, %f1;
red.global.add.f32 [%in], %f1; bar.sync 0; ld.global.u32 %r2, [%in];
""",
        {},
    ),
    "lost update": (
        "ld.global.u32 %r3, [%in]; add.u32 %r3, %r3, 1; st.global.u32 [%in], %r3; mov.u32 %r2, %r3;\n",
        {"block": 128},
    ),
    "the last store stays": (
        "st.global.u32 [%in], %i; bar.sync 0; ld.global.u32 %r2, [%in];\n",
        {},
    ),
    "last block decides": (
        """mov.u32 %r2, 0; mov.u32 %r4, %ctaid.x; setp.ne.u32 %p1, %lane, 0; @%p1 bra END;
atom.global.add.u32 %r3, [%in], 1; setp.eq.u32 %p2, %r3, 3; selp.b32 %r2, 1, 0, %p2;
END: """,
        {"grid": 4},
    ),
    "last block decides, one block in flight": (
        "atom.global.add.u32 %r3, [%in], 1; setp.ge.u32 %p2, %r3, 96; selp.b32 %r2, 1, 0, %p2;\n",
        {"grid": 4, "chunk_lanes": 32},
    ),
}


@pytest.mark.parametrize("name", DEPENDENT)
def test_order_dependent_kernels_differ_between_seeds(name):
    body, options = DEPENDENT[name]
    assert len(set(results(body + STORE, **options))) >= 2


@pytest.mark.parametrize("name", DEPENDENT)
def test_one_seed_gives_one_result(name):
    body, options = DEPENDENT[name]
    first, second = (results(body + STORE, seeds=5, **options) for _ in range(2))
    assert first == second


def test_each_launch_of_a_device_has_its_own_random_order():
    made, seen = device("random", checks=WITHOUT_RACES), []
    for _ in range(10):
        seen.append(tuple(small.run("atom.global.add.u32 %r2, [%in], 1;\n" + STORE, device=made)))
    assert len(set(seen)) > 5


INDEPENDENT = {
    "block reduction": (
        """mov.u32 %r9, cells; shl.b32 %r10, %r1, 2; add.u32 %r9, %r9, %r10; mov.u32 %r8, 64;
mul.lo.u32 %r4, %r1, %r1; st.shared.u32 [%r9], %r4;
LOOP: bar.sync 0; shr.u32 %r8, %r8, 1; setp.eq.u32 %p1, %r8, 0; @%p1 bra OUT;
setp.ge.u32 %p2, %r1, %r8; @%p2 bra LOOP;
shl.b32 %r10, %r8, 2; add.u32 %r10, %r10, %r9; ld.shared.u32 %r4, [%r10]; ld.shared.u32 %r5, [%r9];
add.u32 %r4, %r4, %r5; st.shared.u32 [%r9], %r4; bra LOOP;
OUT: ld.shared.u32 %r2, [cells];
""",
        [sum(i * i for i in range(64))] * 64,
    ),
    "lanes meet from both sides": (
        """setp.lt.u32 %p1, %lane, 9; @%p1 bra LOW;
vote.sync.ballot.b32 %r2, %p1, 0xFFFFFFFF; bra END;
LOW: vote.sync.ballot.b32 %r2, %p1, 0xFFFFFFFF;
END: """,
        [511] * 64,
    ),
    "integer atomics": (
        """red.global.add.u32 [%in], %i; red.global.xor.b32 [%in+4], %i; bar.sync 0;
ld.global.u32 %r2, [%in]; ld.global.u32 %r3, [%in+4]; mad.lo.u32 %r2, %r3, 10000, %r2;
""",
        [sum(range(64))] * 64,
    ),
    "a lock": (LOCK + "bar.sync 0; ld.volatile.global.u32 %r2, [%in+4];\n", [9] * 9),
}


@pytest.mark.at_most(2)
@pytest.mark.slow_cases("a lock")
@pytest.mark.parametrize("name", INDEPENDENT)
def test_order_independent_kernels_agree_under_50_seeds(name):
    body, expected = INDEPENDENT[name]
    found = results(body + STORE, seeds=50, block=len(expected), given=(0, 0), before=CELLS)
    assert set(found) == {tuple(expected)}


@pytest.mark.at_most(1)
@pytest.mark.gate
@pytest.mark.parametrize("number", range(4))
def test_generated_programs_agree_under_50_seeds(number):
    program = fuzz.generate(5, number)
    (right,) = fuzz.outputs(simwarp.Device(), [program])
    found = {fuzz.outputs(device("random", seed=seed), [program])[0] for seed in range(50)}
    assert found == {right}


@pytest.mark.gate
def test_livelocks_are_not_searched_while_the_order_is_random(monkeypatch):
    """A repeated state proves a livelock only under a deterministic order."""
    seen = []
    monkeypatch.setattr(Progress, "look", lambda self, scheduler: seen.append(scheduler.chunk.order is None))
    body = """setp.ge.u32 %p1, %i, 32; @%p1 bra WORK;
SPIN: ld.volatile.global.u32 %r2, [%in]; setp.eq.u32 %p2, %r2, 0; @%p2 bra SPIN; bra END;
WORK: mov.u32 %r2, 0;
LOOP: add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, {rounds}; @%p2 bra LOOP; st.volatile.global.u32 [%in], %r2;
END: """
    assert run(body.format(rounds=1000) + STORE, "random", 0, WITHOUT_RACES, block=64) == [1000] * 64
    assert seen == []
    assert run(body.format(rounds=20_000) + STORE, "random", 0, WITHOUT_RACES, block=64) == [20_000] * 64
    assert seen
    assert all(seen)


def test_blocks_run_in_a_random_order():
    def blocks(seed):
        body = "atom.global.add.u32 %r2, [%in], 1;\n" + STORE
        tickets = run(body, "random", seed, WITHOUT_RACES, block=1, grid=6, chunk_lanes=32)
        return tuple(np.argsort(tickets).tolist())

    orders = {blocks(seed) for seed in range(12)}
    assert len(orders) > 6
    assert all(sorted(order) == [*range(6)] for order in orders)


@pytest.mark.parametrize("seed", [-1, 2**64, 2**200 + 7, 0])
def test_any_integer_is_a_seed(seed):
    body = "atom.global.add.u32 %r2, [%in], 1;\n" + STORE
    assert sorted(run(body, "random", seed, WITHOUT_RACES)) == [*range(32)]


def test_random_turns_have_30_steps_on_average():
    dice = Dice(0, 0)
    lengths = np.array([dice.length() for _ in range(20_000)])
    assert lengths.min() == 1
    assert abs(lengths.mean() - 30) < 1
    assert abs((lengths > 30).mean() - (29 / 30) ** 30) < 0.015


def test_random_choices_are_uniform_and_never_empty():
    dice = Dice(1, 2)
    chosen = np.array([dice.some(3) for _ in range(3000)])
    assert chosen.any(axis=1).all()
    assert len({tuple(row) for row in chosen.tolist()}) == 7
    assert (np.abs(chosen.mean(axis=0) - (0.5 + 0.5 / 3)) < 0.05).all()
    orders = [tuple(dice.order(3).tolist()) for _ in range(3000)]
    assert min(orders.count(order) for order in set(orders)) > 400
    assert len(set(orders)) == 6
    counts = np.bincount([dice.below(5) for _ in range(5000)], minlength=5)
    assert (abs(counts - 1000) < 150).all()


def test_the_order_of_chunks_depends_on_seed_and_launch():
    launch = partial(SimpleNamespace, number=1)
    orders = [list(shuffled(launch(seed=seed), range(8))) for seed in range(6)]
    assert all(sorted(order) == [*range(8)] for order in orders)
    assert all(a != b for a, b in pairwise(orders))
    assert list(shuffled(SimpleNamespace(seed=0, number=2), range(8))) != orders[0]


def test_stack_entries_are_pushed_and_popped_per_warp():
    both = np.ones((2, 32), np.bool_)
    stacks = Stacks(both, nowhere=100)
    stacks.push(np.array([True, False]), both & (np.arange(32) < 8), np.array([17, 17]), np.array([-1, -1]))
    assert (stacks.top.sum(axis=1).tolist(), stacks.meets_at.tolist()) == ([8, 32], [17, 100])
    stacks.pop(np.array([True, True]))
    assert stacks.top.sum(axis=1).tolist() == [32, 0]


@pytest.mark.parametrize("counter", ["%clock", "%globaltimer_lo"])
def test_a_loop_that_waits_for_a_counter_is_not_a_livelock(counter, monkeypatch):
    monkeypatch.setattr("simwarp.engine.schedule.scheduler._TURN", 64)
    body = f"""mov.u32 %r3, {counter};
AGAIN: mov.u32 %r4, {counter}; sub.u32 %r4, %r4, %r3; setp.lt.u32 %p1, %r4, 400000; @%p1 bra AGAIN;
mov.u32 %r2, 7;"""
    assert small.run(body + STORE, device=device("lowest pc")) == [7] * 32
