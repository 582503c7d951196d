"""Under any schedule, random control flow is followed correctly and order-free results agree."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simwarp
from simwarp.engine.schedule.random_scheduler import Dice
from simwarp.lab import fuzz
from simwarp.program.postdominators import immediate_dominators

# ---- dominators ------------------------------------------------------------------------------------------


@st.composite
def graphs(draw):
    n = draw(st.integers(1, 9))
    return [draw(st.lists(st.integers(0, n - 1), max_size=3, unique=True)) for _ in range(n)]


def reached(graph, without=None):
    found, new = set(), [0] if without != 0 else []
    while new:
        node = new.pop()
        if node not in found and node != without:
            found.add(node)
            new += graph[node]
    return found


@given(graphs())
@settings(max_examples=200)
def test_immediate_dominators_satisfy_their_definition(graph):
    """A node dominates those unreachable without it; all dominators of a node dominate the nearest one."""
    dominated = {node: reached(graph) - reached(graph, without=node) for node in reached(graph)}
    expected = {0: 0}
    for node in reached(graph) - {0}:
        above = {other for other in dominated if node in dominated[other]} - {node}
        (expected[node],) = (a for a in above if all(a in dominated[other] for other in above))
    assert immediate_dominators(graph, 0) == expected


# ---- any control flow ------------------------------------------------------------------------------------

FUEL = 12
"""Blocks that a lane may execute before it leaves."""


@st.composite
def flows(draw):
    """Two successors for each basic block; the index after the last block is the exit."""
    n = draw(st.integers(1, 7))
    block = st.integers(0, n)
    return draw(st.lists(st.tuples(block, block), min_size=n, max_size=n))


def kernel(flow):
    """Each lane walks from block to block by the bits of its own number and counts its steps."""
    end = len(flow)
    lines = [
        ".version 9.0\n.target sm_90\n.visible .entry walk(.param .u64 out) {",
        ".reg .b32 %i, %n, %fuel, %bits, %way; .reg .b64 %a, %at; .reg .pred %p, %q;",
        "ld.param.u64 %a, [out]; mov.u32 %i, %ctaid.x; mov.u32 %n, %ntid.x; mov.u32 %way, %tid.x;",
        "mad.lo.u32 %i, %i, %n, %way; mul.wide.u32 %at, %i, 4; add.u64 %at, %at, %a;",
        f"mul.lo.u32 %bits, %i, 0x9E3779B1; mov.u32 %way, 0; mov.u32 %fuel, {FUEL};",
    ]
    for number, (yes, no) in enumerate(flow):
        lines += [
            f"B{number}: mad.lo.u32 %way, %way, 31, {number + 1}; sub.u32 %fuel, %fuel, 1;",
            f"setp.eq.u32 %p, %fuel, 0; @%p bra B{end}; shr.u32 %bits, %bits, 1; and.b32 %n, %bits, 1;",
            f"setp.ne.u32 %q, %n, 0; @%q bra B{yes}; bra B{no};",
        ]
    return "\n".join([*lines, f"B{end}: st.global.u32 [%at], %way; ret; }}"])


def walked(flow, lane):
    bits, way, block = lane * 0x9E3779B1 % 2**32, 0, 0
    for step in range(FUEL, 0, -1):
        if block == len(flow):
            break
        way = (way * 31 + block + 1) % 2**32
        bits = bits // 2 if step > 1 else bits
        block = flow[block][0 if bits % 2 else 1]
    return way


@pytest.mark.slow
@given(flows(), st.integers(0, 2**64))
@settings(max_examples=40)
def test_every_lane_follows_its_path_in_any_control_flow(flow, seed):
    executed = set()
    for schedule in ("lowest pc", "stack", "random"):
        device = simwarp.Device(schedule=schedule, seed=seed, instruction_budget=1_000_000)
        out = device.allocate((96,), np.uint32)
        device.load(kernel(flow)).kernel("walk")((2, 1, 1), (48, 1, 1), out)
        assert out.download().tolist() == [walked(flow, lane) for lane in range(96)]
        executed.add(device.executed)
    assert len(executed) == 1


# ---- generated programs ----------------------------------------------------------------------------------

programs = st.builds(fuzz.generate, st.integers(0, 2**64 - 1), st.integers(0, 2**63 - 1))


@pytest.mark.gate
@given(programs, st.integers(0, 2**64))
@settings(max_examples=25)
def test_generated_programs_do_not_depend_on_the_schedule(program, seed):
    right = fuzz.outputs(simwarp.Device(), [program])
    assert fuzz.outputs(simwarp.Device(schedule="stack"), [program]) == right
    assert fuzz.outputs(simwarp.Device(schedule="random", seed=seed), [program]) == right


@given(st.integers(0, 2**64), st.integers(0, 2**64), st.integers(1, 70))
def test_random_choices_are_deterministic_and_within_bounds(a, b, n):
    dice, same = Dice(a, b), Dice(a, b)
    assert 0 <= dice.below(n) < n
    assert sorted(dice.order(n).tolist()) == [*range(n)]
    assert dice.some(n).any()
    assert dice.length() >= 1
    same.below(n), same.order(n), same.some(n), same.length()
    assert dice.below(2**60) == same.below(2**60)
