"""Parts of out-of-core convolutions: rows, pieces, matrices, buffers, the model and the planners."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import gpu.outofcore
from gpu.bconv.geometry import conv_shape
from gpu.outofcore import AveragePool, MaxPool, Options, Pieces, Rates, explain
from gpu.outofcore.arguments import problem_of
from gpu.outofcore.halo import image_rows, output_rows
from gpu.outofcore.matrices import matrices_of, view_of
from gpu.outofcore.model import TENSORS, Model
from gpu.outofcore.pieces import Piece, piece_at, tasks_of
from gpu.outofcore.planners import SEARCHES, candidates
from gpu.outofcore.problem import FORMS, Problem
from reference.errors import LaunchError, SchemeError, ShapeError
from simwarp.machine import H200, Machine
from support.offenders import every_case

RATES = Rates(1e-6, 5e10, 1e-6, 5e10, 5e-6, 5e13)
ROWS = list(product((1, 2, 3, 5), (1, 2, 3), (1, 2), ((0, 0), (1, 1), (4, 3))))
"""Filters, strides, dilations and paddings down."""


def problem(routine: str = "conv2d", groups: int = 1, **options: Any) -> Problem:
    """Images of 12 channels and 9 x 7 pixels, 18 filters of 3 x 3."""
    given: dict[str, Any] = {"stride": 1, "padding": "SAME", "dilation": 1, "layout": "NCHW", **options}
    images = (5, 12, 9, 7) if given["layout"] == "NCHW" else (5, 9, 7, 12)
    filters = (18, 12 // groups, 3, 3) if given["layout"] == "NCHW" else (18, 3, 3, 12 // groups)
    return problem_of(routine, images, filters, groups=groups, **given)


# ----------------------------------------------------------------------------------------------- rows


@pytest.mark.parametrize(
    ("given", "meant"), [("same", "SAME"), (1, ((1, 1), (1, 1))), ((2, 0), ((2, 2), (0, 0)))]
)
def test_paddings_and_windows_are_written_as_frameworks_write_them(given: Any, meant: Any) -> None:
    assert problem(padding=given, stride=2) == problem(padding=meant, stride=(2, 2))
    for pool in (MaxPool, AveragePool):
        found, expected = (pool(3, 2, padding) for padding in (given, meant))
        assert problem(pool=found).pool == problem(pool=expected).pool
        assert problem(pool=pool([3, 2])).pool == problem(pool=pool((3, 2))).pool


@every_case(("rows", "stride", "dilation", "padding"), ROWS)
def test_rows_of_pieces_are_those_that_taps_connect(
    rows: int, stride: int, dilation: int, padding: tuple[int, int]
) -> None:
    height = 11
    options: dict[str, Any] = {"padding": (padding, (0, 0)), "dilation": (dilation, 1)}
    plane = conv_shape((1, height, 4, 1), (rows, 1, 1, 1), stride=(stride, 1), **options)
    tops = [p * plane.stride_h - plane.pad_top for p in range(plane.out_height)]
    windows = [range(top, top + (rows - 1) * plane.dilation_h + 1) for top in tops]
    for some in parts(height):
        found = output_rows(plane, some)
        over = [p for p, window in enumerate(windows) if set(window) & set(some)]
        assert [*found] == over if over else len(found) == 1
    for some in parts(plane.out_height):
        found = image_rows(plane, some)
        under = range(max(windows[some.start].start, 0), min(windows[some.stop - 1].stop, height))
        assert found == under if under else len(found) == 1


def parts(size: int) -> list[range]:
    return [range(start, stop) for stop in range(1, size + 1) for start in range(stop)]


# --------------------------------------------------------------------------------------------- pieces


@pytest.mark.at_most(2)
@pytest.mark.parametrize("groups", [1, 2, 3, 6])
@pytest.mark.parametrize("routine", FORMS)
def test_tasks_compute_each_number_and_each_term_once(routine: str, groups: int) -> None:
    of = problem(routine, groups)
    for sizes in product((2, 5), (4, 9), (1, 4, 5, 12), (2, 6, 18)):
        written = np.zeros(of.shape(of.form.output), int)
        terms = np.zeros((of.batch, of.filters, of.group_channels, of.rows), int)
        for task in tasks_of(of, Pieces(*sizes)):
            view_of(written, task.output, "NCHW")[...] += 1
            for step in task.steps:
                pieces = {piece.tensor: piece for piece in (*step, task.output)}
                x, w, y = (pieces[tensor] for tensor in TENSORS)
                assert w.first == y.channels
                assert {*x.channels} == {
                    f // of.group_filters * of.group_channels + c for f in w.first for c in w.channels
                }
                rows = x.rows if of.form.output == "x" else y.rows
                assert rows is not None
                terms[np.ix_(y.first, w.first, w.channels, rows)] += 1
        assert (written == 1).all()
        assert (terms == 1).all()


def test_the_last_pieces_are_smaller() -> None:
    of = problem()
    pieces = [task.output for task in tasks_of(of, Pieces(2, 4, 5, 7))]
    assert {len(piece.first) for piece in pieces} == {2, 1}
    assert {len(piece.channels) for piece in pieces} == {7, 4}
    assert {piece.rows and len(piece.rows) for piece in pieces} == {4, 1}


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_matrices_have_the_elements_of_a_piece_in_order(layout: Any) -> None:
    of, least = problem(layout=layout), 1 if layout == "NCHW" else 0
    array = np.arange(np.prod(of.shape("x"))).reshape(of.shape("x"))
    for n, channels, rows in product((1, 5), (1, 4, 12), (1, 3, 9)):
        view = view_of(array, Piece("x", range(n), range(channels), range(9 - rows, 9)), layout)
        found = [*matrices_of(view)]
        np.testing.assert_array_equal(np.concatenate([m.T.ravel() for m in found]), view.ravel())
        assert len(found) == (n if least < channels < 12 and rows < 9 else 1)
        for matrix in found:
            assert matrix.shape[0] == 1 or matrix.strides[0] == matrix.itemsize
            assert np.shares_memory(matrix, array)


# ------------------------------------------------------------------------------------ model and plans


@pytest.mark.at_most(2)
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("routine", FORMS)
@pytest.mark.parametrize("stride", [1, 2])
def test_buffers_hold_the_largest_pieces(routine: str, layout: Any, groups: int, stride: int) -> None:
    of = problem(routine, groups, layout=layout, stride=stride)
    arrays = {tensor: np.zeros(of.shape(tensor), np.float32) for tensor in TENSORS}
    for sizes in product((1, 2, 5), (1, 4, 9), (1, 4, 12), (1, 6, 18)):
        buffers = Model(of, Pieces(*sizes), RATES, Options()).with_depth(1)
        for task in tasks_of(of, Pieces(*sizes)):
            for piece in (task.output, *(piece for step in task.steps for piece in step)):
                needed = view_of(arrays[piece.tensor], piece, layout).nbytes
                assert needed <= buffers.nbytes[piece.tensor]


def test_deeper_buffers_come_with_more_memory_and_filters_stay_if_they_fit() -> None:
    of, pieces = problem(), Pieces(1, 3, 6, 6)
    model = Model(of, pieces, RATES, Options())
    totals = [model.with_depth(depth).total for depth in (1, 2, 3)]
    assert model.buffers(totals[0] - 1) is None
    depths = [model.buffers(total) for total in totals]
    assert [found and found.depth for found in depths] == [1, 2, 3]
    assert [found and found.counts["w"] for found in depths] == [1, 2, 3]
    resident = model.buffers(1 << 30)
    assert resident is not None
    assert dict(resident.counts) == {"x": 3, "w": 6, "y": 3}
    streamed = Model(of, pieces, RATES, Options(filters="streamed")).buffers(1 << 30)
    assert streamed is not None
    assert streamed.counts["w"] == 3


LAYERS = {"conv1_2": (64, 224), "conv3_3": (256, 56), "conv5_3": (512, 14)}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("routine", FORMS)
def test_the_greedy_planner_is_as_good_as_an_exhaustive_search(routine: str, name: str) -> None:
    channels, side = LAYERS[name]
    layer: Any = (512, channels, side, side), (channels, channels, 3, 3)
    plan = explain(routine, *layer, device=Machine(), memory_budget=1 << 30)
    assert plan.buffers.total <= 1 << 30
    assert plan.timeline.seconds == pytest.approx(plan.seconds, rel=0.02)
    nbytes = {tensor: np.prod(plan.problem.shape(tensor), dtype=float) * 4 for tensor in TENSORS}
    out = nbytes[plan.problem.form.output] / plan.rates.out_bytes_per_second
    into = sum(nbytes[tensor] for tensor in plan.problem.form.operands) / plan.rates.in_bytes_per_second
    compute = plan.problem.operations / plan.rates.operations_per_second
    assert plan.seconds <= 1.1 * max(compute, plan.rates.together(into, out))


@pytest.mark.at_most(1)
@pytest.mark.gate
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("routine", FORMS)
def test_planners_agree_within_three_percent(routine: str, name: str) -> None:
    channels, side = LAYERS[name]
    layer: Any = (512, channels, side, side), (channels, channels, 3, 3)
    plans = {
        planner: explain(
            routine, *layer, device=Machine(), memory_budget=1 << 30, options=Options(planner=planner)
        )
        for planner in ("greedy", "steepest", "exhaustive")
    }
    assert plans["exhaustive"].seconds <= plans["greedy"].seconds <= 1.03 * plans["exhaustive"].seconds
    assert plans["exhaustive"].seconds <= plans["steepest"].seconds <= 1.6 * plans["exhaustive"].seconds


@pytest.mark.parametrize("planner", SEARCHES)
@pytest.mark.parametrize("routine", FORMS)
def test_every_planner_finds_pieces_for_the_least_budget(routine: str, planner: Any) -> None:
    shapes: Any = (3, 6, 12, 8), (8, 6, 3, 3)
    options = Options(planner=planner)
    with pytest.raises(LaunchError, match="smallest pieces need") as error:
        explain(routine, *shapes, device=Machine(), memory_budget=1, options=options)
    least = int(str(error.value).rpartition("=")[2].split()[0])
    plan = explain(routine, *shapes, device=Machine(), memory_budget=least, options=options)
    assert plan.buffers.total <= least
    with pytest.raises(LaunchError, match=f"pass memory_budget={least} or more"):
        explain(routine, *shapes, device=Machine(), memory_budget=least - 1, options=options)


def test_candidates_end_with_pieces_of_one() -> None:
    for size in range(1, 200):
        found = candidates(size)
        assert (found[0], found[-1]) == (size, 1)
        assert found == sorted({*found}, reverse=True)


def test_a_split_that_is_not_needed_is_not_made() -> None:
    plan = explain("conv2d", (1, 4, 8, 8), (4, 4, 3, 3), device=Machine())
    assert plan.pieces == Pieces(1, 8, 4, 4)
    assert (plan.bytes_in, plan.bytes_out) == (4 * (4 * 64 + 4 * 36), 4 * 4 * 64)


def test_more_than_two_to_the_31_elements_are_planned() -> None:
    layer = (1 << 22, 64, 224, 224), (64, 64, 3, 3)
    plan = explain("conv2d", *layer, device=Machine(), pieces=Pieces(1 << 10, 224, 64, 64))
    assert plan.problem.operations == 2 * (1 << 22) * 64 * 224 * 224 * 64 * 9
    assert plan.bytes_out == (1 << 22) * 64 * 224 * 224 * 4
    assert plan.buffers.nbytes["x"] == (1 << 10) * 64 * 224 * 224 * 4


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        ({"pieces": Pieces(0, 1, 1, 1)}, ShapeError, "pieces of 0 images"),
        ({"pieces": Pieces(1, 1, 1, True)}, ShapeError, "pieces of True filters"),
        ({"pieces": Pieces(9, 9, 9, 9), "memory_budget": 4096}, LaunchError, "need [0-9]+\none buffer"),
        ({"memory_budget": 1.5}, LaunchError, "memory_budget is 1.5"),
        ({"activation": "gelu"}, SchemeError, "activation='gelu'"),
        ({"layout": "CHWN"}, SchemeError, "layout='CHWN'"),
        ({"groups": 5}, ShapeError, "groups=5"),
        ({"stride": 0}, ShapeError, "stride=0"),
    ],
)
def test_bad_plans_are_refused(call: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        explain("conv2d", (3, 6, 12, 8), (8, 6, 3, 3), device=Machine(), **call)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"planner": "best"}, "planner='best'"),
        ({"depth": 0}, "depth is 0"),
        ({"filters": "host"}, "filters='host'"),
    ],
)
def test_bad_options_are_refused(options: Any, message: str) -> None:
    with pytest.raises(SchemeError, match=message):
        Options(**options)


def test_what_a_routine_or_a_machine_does_not_have_is_refused() -> None:
    with pytest.raises(SchemeError, match="routine='conv3d'"):
        explain("conv3d", (1, 1, 1, 1), (1, 1, 1, 1), device=Machine())
    for fused in ({"bias": True}, {"activation": "relu"}):
        with pytest.raises(SchemeError, match="only conv2d has them"):
            explain("conv2d_backward_data", (1, 1, 1, 1), (1, 1, 1, 1), device=Machine(), **fused)
    only_double = replace(H200, gpus=(replace(H200.gpus[0], rates={"float64": 1e12}),))
    with pytest.raises(LaunchError, match="no rate for float32"):
        explain("conv2d", (1, 1, 1, 1), (1, 1, 1, 1), device=Machine(only_double))
    machine: Any = type("Bare", (), {"budget": lambda self, device: 1 << 20})()
    with pytest.raises(LaunchError, match="a Bare has no topology"):
        explain("conv2d", (1, 1, 1, 1), (1, 1, 1, 1), device=machine)
    plan = gpu.outofcore.explain(
        "conv2d", (1, 1, 1, 1), (1, 1, 1, 1), device=machine, options=Options(rates=RATES)
    )
    assert plan.rates is RATES


def test_a_piece_of_several_groups_has_filters_with_all_their_channels() -> None:
    of = problem(groups=3)
    at = {"n": range(5), "g": range(1, 3), "c": range(8), "f": range(12), "h": range(9)}
    assert piece_at(of, "w", at) == Piece("w", range(6, 18), range(4))
    assert piece_at(of, "x", at).channels == range(4, 12)
