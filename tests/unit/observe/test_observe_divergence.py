"""Active lanes and divergent branches, compared with a count lane by lane."""

from pathlib import Path

import pytest

import simwarp
from simwarp.observe.divergence import Divergence, LaneUse
from simwarp.observe.report import ReportError
from support import observed_loops as loops
from support import small_kernels as small

TESTS = Path(__file__).parents[2]


def observed(body, block=32, grid=1, **options):
    device = simwarp.Device(observe="divergence", **options)
    small.run(body, block, grid, device=device)
    return device.report.divergence


def line(part, body):
    return f"ptx:{small.line_of(part, body)}"


def expected_loop():
    """Expected counts of the loop: its active lanes, by warp and iteration."""
    warp_instructions = thread_instructions = odd = divergent = 0
    for warp in loops.warps():
        for turn in range(1, max(rounds for _, rounds in warp) + 1):
            there = [(lane, rounds) for lane, rounds in warp if rounds >= turn]
            stay = [lane for lane, rounds in there if rounds > turn]
            warp_instructions += 1
            thread_instructions += len(there)
            divergent += 0 < len(stay) < len(there)
    for thread in range(loops.BLOCK * loops.GRID):
        odd += loops.rounds(thread) if thread % 2 else 0
    return warp_instructions, thread_instructions, odd, divergent


@pytest.mark.parametrize("launches", [1, 2])
def test_a_loop_left_lane_by_lane_is_counted(launches):
    found = loops.run("divergence", launches=launches).report.divergence
    warps, threads, odd, divergent = (launches * number for number in expected_loop())
    assert found["loops.cu:1"] == LaneUse(warps, threads)
    assert found["loops.cu:2"] == LaneUse(warps, odd, threads - odd)
    assert found["loops.cu:1"].active_lanes == found["loops.cu:2"].active_lanes == threads / warps
    stayed = threads - launches * loops.BLOCK * loops.GRID
    branch = found["loops.cu:4"]  # setp and bra
    assert (branch.branches, branch.divergent_branches) == (warps, divergent)
    assert (branch.thread_instructions, branch.predicated_off) == (threads + stayed, threads - stayed)


def test_the_total_is_what_the_device_executed():
    device = loops.run("divergence")
    assert device.report.divergence.total.thread_instructions == device.executed


def test_a_partial_warp_counts_only_its_lanes():
    body = "mov.u32 %r2, 1; " + small.STORE
    total = observed(body, block=40, grid=3).total
    assert total.active_lanes == 20
    assert total.warp_instructions * 20 == total.thread_instructions
    assert (total.branches, total.predicated_off) == (0, 0)
    assert observed(body, block=64).total.active_lanes == 32


def test_an_instruction_whose_guard_is_false_in_all_lanes_is_counted():
    body = "setp.gt.u32 %p1, %lane, 99;\n@%p1 mov.u32 %r3, 7;\nmov.u32 %r2, 1; " + small.STORE
    assert observed(body, block=64)[line("mov.u32 %r3, 7", body)] == LaneUse(2, 0, 64)


def test_a_warp_uniform_branch_is_not_divergent():
    body = "setp.lt.u32 %p1, %i, 32;\n@%p1 bra A;\nmov.u32 %r3, 7;\nA: mov.u32 %r2, 1; " + small.STORE
    assert observed(body, block=64)[line("bra A", body)] == LaneUse(2, 32, 32, 2, 0)
    assert observed(body, block=64)[line("mov.u32 %r3", body)] == LaneUse(1, 32)


def test_a_branch_to_the_end_of_the_kernel_is_divergent():
    body = "setp.lt.u32 %p1, %lane, 5;\n@%p1 bra END;\nmov.u32 %r2, 1; st.global.u32 [%at], %r2;\nEND: ret;"
    found = observed(body)
    assert found[line("bra END", body)] == LaneUse(1, 5, 27, 1, 1)
    end = found[line("END:", body)]
    assert (end.thread_instructions, end.predicated_off) == (32, 0)


def test_an_unconditional_branch_is_not_divergent():
    body = "bra A;\nmov.u32 %r3, 7;\nA: mov.u32 %r2, 1; " + small.STORE
    found = observed(body)
    assert found[line("bra A", body)] == LaneUse(1, 32)
    with pytest.raises(ReportError, match="no instructions at"):
        found[line("mov.u32 %r3", body)]


@pytest.mark.parametrize(
    ("index", "divergent"),
    [("mov.u32 %r3, 1;", 0), ("and.b32 %r3, %lane, 1;", 2), ("shr.u32 %r3, %i, 5;", 0)],
)
def test_indexed_branches_diverge_by_target(index, divergent):
    body = f"T: .branchtargets A, B, A;\n{index}\nbrx.idx %r3, T;\nA: mov.u32 %r2, 1;\nB: mov.u32 %r2, 2;"
    found = observed(body + small.STORE, block=64)[line("brx.idx", body)]
    assert (found.branches, found.divergent_branches) == (2, divergent)


def test_an_indexed_branch_to_one_target_is_not_divergent():
    body = "T: .branchtargets A, A;\nand.b32 %r3, %lane, 1;\nbrx.idx %r3, T;\nA: mov.u32 %r2, 1;"
    assert observed(body + small.STORE)[line("brx.idx", body)].divergent_branches == 0


def test_a_shuffle_by_half_of_a_warp_is_counted():
    body = """setp.lt.u32 %p1, %lane, 16;
@!%p1 bra A;
shfl.sync.idx.b32 %r3, %lane, 0, 31, 0xFFFF;
A: mov.u32 %r2, 1; """
    assert observed(body + small.STORE)[line("shfl", body)] == LaneUse(1, 16)


def test_json_has_totals_and_lines():
    data = observed("mov.u32 %r2, 1; " + small.STORE, block=40).to_json()
    assert data["total"]["active_lanes"] == 20
    assert {"warp_instructions", "divergent_branches"} <= next(iter(data["lines"].values())).keys()
    assert Divergence().to_json()["lines"] == {}
