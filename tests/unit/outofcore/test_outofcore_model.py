"""The model of out-of-core convolutions: columns, steps of filters, shared bandwidth, the clock."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from gpu.outofcore import Options, Pieces, Rates, Statistics, explain
from gpu.outofcore.arguments import problem_of
from gpu.outofcore.matrices import matrices_of, view_of
from gpu.outofcore.model import TENSORS, Model
from gpu.outofcore.pieces import tasks_of
from gpu.outofcore.plan import Plan
from gpu.outofcore.predicted import addresses
from gpu.outofcore.problem import FORMS, Problem
from gpu.outofcore.rates import rates_of
from gpu.outofcore.run import compute, planned
from simwarp.machine import EVEREST, H100, H200, P100, Gpu, H200x2, Link, Machine, Topology
from simwarp.machine.topology import host_group
from simwarp.verify.draw import Draw
from support.offenders import every_case
from support.outofcore_calls import Layer

SHARED = (H200, H100, P100, H200x2)
ROUTINES = tuple(FORMS)


def drawn(draw: Draw) -> tuple[Problem, Pieces | None, Options]:
    """A problem of up to 2 GFLOP, its pieces (None: the planner's), and options."""
    groups, layout = draw.choice((1, 1, 2)), draw.choice(("NCHW", "NHWC"))
    channels, filters = groups * draw.choice((3, 8, 32)), groups * draw.choice((8, 33, 64))
    batch, height, width = draw.integer(1, 16), draw.choice((14, 28, 57)), draw.choice((14, 56))
    taps = draw.choice((1, 3, 5))
    images, window = (batch, channels, height, width), (filters, channels // groups, taps, taps)
    if layout == "NHWC":
        images, window = (batch, height, width, channels), (filters, taps, taps, channels // groups)
    geometry: dict[str, Any] = {
        "stride": draw.choice((1, 2)),
        "padding": "SAME",
        "dilation": draw.choice((1, 2)),
    }
    few = draw.integer(-(-channels // 4), channels), draw.integer(-(-filters // 4), filters)
    pieces = Pieces(draw.integer(1, batch), draw.integer(7, 57), *few)
    options = Options(
        depth=draw.choice((1, 2, 3)),
        filters=draw.choice(("resident", "streamed")),
        planner=draw.choice(("greedy", "steepest")),
    )
    of = problem_of(draw.choice(ROUTINES), images, window, groups=groups, layout=layout, **geometry)
    return of, draw.choice((None, pieces)), options


def ran(plan: Plan, machine: Machine) -> Statistics:
    """What the machine's clock says of a plan, without values."""
    of, found = plan.problem, Statistics()
    compute(machine, plan, {tensor: np.empty(of.shape(tensor), np.float32) for tensor in TENSORS}, found)
    return found


@pytest.mark.parametrize("k", range(48))
def test_the_predicted_timeline_is_the_clock_s_where_copies_share_bandwidth(k: int) -> None:
    draw = Draw(5, "model", k)
    of, pieces, options = drawn(draw)
    machine = Machine(SHARED[k % len(SHARED)], values=False)
    budget = draw.choice((1, 4, 64)) << 20 if pieces is None else None
    plan = planned(of, machine, budget, pieces, options)
    found = ran(plan, machine)
    assert abs(found.model_error) < 1e-9
    assert [(one.kind, one.nbytes, one.operations) for one in plan.timeline] == [
        (one.kind, one.nbytes, one.operations) for one in machine.timeline
    ]
    if pieces is None:  # the formula takes ragged pieces for whole ones, which planners avoid
        assert abs(plan.seconds / found.seconds - 1) < 0.25


@pytest.mark.slow
@every_case("depth", [1, 2, 3])
@every_case("topology", [H200, P100, EVEREST])
@every_case("routine", ROUTINES)
def test_the_formula_is_the_timeline_s_where_pieces_are_equal(
    routine: str, topology: Topology, depth: int
) -> None:
    layer: Any = (32, 64, 56, 56), (64, 64, 3, 3)
    for pieces in (
        Pieces(2, 56, 64, 64),
        Pieces(2, 56, 16, 64),
        Pieces(2, 56, 64, 32),
        Pieces(4, 14, 64, 64),
    ):
        plan = explain(routine, *layer, device=Machine(topology), pieces=pieces, options=Options(depth=depth))
        # with cuts of rows, the first and the last piece have no halo on one side
        assert -0.005 < plan.seconds / plan.timeline.seconds - 1 < 0.09


def test_a_model_without_shared_bandwidth_would_be_too_fast() -> None:
    layer: Any = (64, 64, 56, 56), (64, 64, 3, 3)
    machine = Machine(H200, values=False)
    plan = explain("conv2d", *layer, device=machine, pieces=Pieces(2, 56, 64, 64))
    alone = replace(plan, rates=replace(plan.rates, both_bytes_per_second=float("inf")))
    assert 0.05 < 1 - alone.timeline.seconds / ran(plan, machine).seconds < 0.15


def test_copies_in_both_directions_share_what_the_topology_says() -> None:
    gpu, routes = Gpu("small", 1 << 30, {"float32": 1e18}), range(1)
    shared = host_group(routes, 8.0, 10.0, 12.0)
    machine = Machine(Topology("shared", (gpu,), (Link(0, 10.0),), (Link(0, 10.0),), shared=shared))
    rates = rates_of(machine)
    assert (rates.in_bytes_per_second, rates.out_bytes_per_second) == (8.0, 10.0)
    assert rates.slowdowns == pytest.approx((8 / 6, 10 / 6))
    # 80 bytes in and 60 out: 60 of each at 6, then 20 at 8
    assert rates.together(80 / 8, 60 / 10) == pytest.approx(60 / 6 + 20 / 8)
    # 40 bytes in and 60 out: 40 of each at 6, then 20 at 10
    assert rates.together(40 / 8, 60 / 10) == pytest.approx(40 / 6 + 20 / 10)
    assert rates_of(Machine(EVEREST)).together(3.0, 2.0) == 3.0


@pytest.mark.at_most(1)
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("routine", ROUTINES)
def test_the_model_counts_matrices_and_columns_of_pieces(routine: str, layout: Any, groups: int) -> None:
    shapes = [(4, 12, 24, 6), (12, 12 // groups, 3, 2)]
    images, filters = (shape if layout == "NCHW" else (shape[0], *shape[2:], shape[1]) for shape in shapes)
    for stride, sizes in product((1, 2), product((1, 4), (3, 24), (2, 4, 12), (2, 4, 12))):
        of = problem_of(
            routine, images, filters, stride=stride, padding="SAME", dilation=1, groups=groups, layout=layout
        )
        model = Model(of, Pieces(*sizes), Rates(0, 1, 0, 1, 0, 1), Options())
        found: dict[str, set[tuple[int, ...]]] = {tensor: set() for tensor in TENSORS}
        for task in tasks_of(of, Pieces(*sizes)):
            for piece in {task.output, *(piece for step in task.steps for piece in step)}:
                matrices = [*matrices_of(view_of(addresses(of.shape(piece.tensor)), piece, layout))]
                columns = sum(matrix.shape[1] for matrix in matrices)
                nbytes = sum(matrix.size for matrix in matrices) * 4
                found[piece.tensor].add((nbytes, len(matrices), columns))
        for tensor in TENSORS:
            assert model.copy(tensor) == max(found[tensor]), (tensor, sizes, stride)


def test_short_columns_take_longer_if_the_rates_have_them() -> None:
    layer: Any = (8, 56, 56, 256), (256, 3, 3, 256)
    budget, plans = 6 << 20, dict[float, Plan]()
    for seconds in (0.0, 1e-6):
        rates = replace(rates_of(Machine(H200)), column_seconds=seconds)
        plans[seconds] = explain(
            "conv2d",
            *layer,
            device=Machine(),
            layout="NHWC",
            memory_budget=budget,
            pieces=Pieces(1, 14, 64, 64),
            options=Options(rates=rates),
        )
    columns = sum(
        sum(matrix.shape[1] for matrix in matrices_of(view_of(addresses(layer[0]), piece, "NHWC")))
        for task in plans[0.0].tasks()
        for piece in (task.output, task.steps[0][0])
    )
    assert columns > 20_000
    assert plans[1e-6].seconds > 5 * plans[0.0].seconds
    assert plans[1e-6].timeline.seconds == pytest.approx(plans[1e-6].seconds, rel=0.1)


@pytest.mark.parametrize(("filters", "whole"), [(32, 32), (33, 64), (40, 64), (64, 64), (8, 32)])
def test_filters_are_computed_in_the_device_s_steps(filters: int, whole: int) -> None:
    layer: Any = (1, 64, 56, 56), (64, 64, 3, 3)
    machine, pieces = Machine(P100, values=False), Pieces(1, 56, 64, filters)
    plan = explain("conv2d", *layer, device=machine, pieces=pieces)
    found = ran(plan, machine)
    first = next(one for one in machine.timeline if one.kind == "routine")
    operations = 2 * 56 * 56 * 64 * 9 * 64
    assert first.end - first.start == pytest.approx(8e-6 + operations * whole / 64 / 7.629e12)
    assert first.operations == operations * filters / 64
    assert abs(found.model_error) < 1e-9


def test_gradients_have_no_steps_of_filters() -> None:
    layer: Any = (1, 64, 56, 56), (40, 64, 3, 3)
    machine = Machine(P100, values=False)
    ran(explain("conv2d_backward_data", *layer, device=machine, pieces=Pieces(1, 56, 64, 40)), machine)
    routine = next(one for one in machine.timeline if one.kind == "routine")
    assert routine.end - routine.start == pytest.approx(8e-6 + 2 * 56 * 56 * 64 * 9 * 40 / 7.629e12)


@pytest.mark.parametrize("routine", ROUTINES)
def test_the_steepest_descent_ends_with_two_buffers_where_they_fit(routine: str) -> None:
    layer: Any = (512, 64, 224, 224), (64, 64, 3, 3)
    options = Options(planner="steepest")
    plan = explain(routine, *layer, device=Machine(), memory_budget=1 << 30, options=options)
    assert plan.buffers.depth >= 2
    alone = Options(planner="steepest", depth=1)
    assert explain(routine, *layer, device=Machine(), memory_budget=1 << 30, options=alone).buffers.depth == 1


# ----------------------------------------------------------------------------------------------- reuse


def printed_seconds(rates: Rates, plan: Plan, on_host: tuple[str, ...]) -> float:
    """Section 4.3 of the paper, with pieces that divide their axes, written from its formulas (1) to (3)."""
    of, pieces = plan.problem, plan.pieces
    (n, c_x, height, width), (c_y, _, r, s) = of.shape("x"), of.shape("w")
    d_n, d_h, d_cx, d_cy = vars(pieces).values()
    rows = min(d_h + r - 1, height)
    into = sum(
        4 * elements / rates.in_bytes_per_second + rates.in_seconds
        for name, elements in (("x", d_n * d_cx * rows * width), ("w", d_cy * d_cx * r * s))
        if name in on_host
    )
    out = 4 * d_n * d_cy * d_h * width / rates.out_bytes_per_second + rates.out_seconds
    steps_of_filters = rates.filters_step * -(-d_cy // rates.filters_step)
    operations = 2 * d_n * steps_of_filters * d_h * width * d_cx * r * s
    compute = operations / rates.operations_per_second + rates.launch_seconds
    terms = c_x // d_cx
    steps = n // d_n * (c_y // d_cy) * (height // d_h)
    first = into + compute + out + (terms - 1) * max(into, compute)
    return first + (steps - 1) * max(terms * into, terms * compute, out)


@pytest.mark.parametrize(
    ("sizes", "on_host"),
    [
        *(((n, h, 64, f), ("x",)) for n, h, f in ((4, 28, 48), (1, 14, 32), (1, 7, 16))),
        *((sizes, ("x", "w")) for sizes in ((2, 28, 16, 64), (1, 14, 32, 32), (4, 28, 64, 48))),
    ],
)
def test_without_reuse_the_formula_is_the_printed_one(sizes: Any, on_host: tuple[str, ...]) -> None:
    rates = Rates(1e-5, 1.2e10, 2e-5, 1e10, 8e-6, 7.6e12, filters_step=32)
    there = tuple({"x", "w"} - {*on_host})
    plan = explain(
        "conv2d", (8, 64, 28, 28), (192, 64, 3, 3), device=Machine(P100), pieces=Pieces(*sizes),
        on_device=there, options=Options(rates=rates, reuse=False, filters="streamed"),
    )  # fmt: skip
    assert plan.seconds == pytest.approx(printed_seconds(rates, plan, on_host), rel=1e-12)


@pytest.mark.at_most(2)
@pytest.mark.parametrize("k", range(6))
def test_without_reuse_every_use_of_a_piece_is_a_copy(k: int) -> None:
    of, pieces, options = drawn(Draw(6, "reuse", k))
    pieces = pieces or Pieces(8, 30, 16, 30)
    machine = Machine(SHARED[k % len(SHARED)], values=False)
    plan = planned(of, machine, None, pieces, replace(options, reuse=False))
    found = ran(plan, machine)
    assert abs(found.model_error) < 1e-9
    uses = [piece for task in plan.tasks() for step in task.steps for piece in step]
    arrays = {tensor: addresses(of.shape(tensor)) for tensor in TENSORS}
    nbytes = sum(view_of(arrays[piece.tensor], piece, of.layout).nbytes for piece in uses)
    assert found.bytes_in == nbytes
    kept = planned(of, machine, None, pieces, options)
    assert kept.bytes_in <= nbytes


def test_reuse_changes_no_bit_and_only_what_is_copied() -> None:
    layer, counts = Layer((4, 8, 12, 9), (10, 8, 3, 3)), [Statistics(), Statistics()]
    some, whole = Pieces(2, 4, 4, 5), Pieces(2, 99, 99, 5)
    for routine, pieces in zip(FORMS, (some, some, whole), strict=True):
        results = [
            layer.run(
                routine, Machine(seed=7, jitter=20.0), pieces=pieces, statistics=one,
                options=Options(reuse=reuse, depth=2),
            )
            for reuse, one in zip((True, False), counts, strict=True)
        ]  # fmt: skip
        np.testing.assert_array_equal(*results)
        assert counts[0].bytes_in < counts[1].bytes_in
        assert counts[0].bytes_out == counts[1].bytes_out
