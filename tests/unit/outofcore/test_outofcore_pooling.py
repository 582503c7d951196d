"""Convolutions with pooling behind them: the bits of pooling the result, of which only that is copied."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import gpu.outofcore
from gpu.cuda_machine import CudaMachine
from gpu.outofcore import AveragePool, MaxPool, Options, Pieces, Rates, Statistics, explain
from gpu.outofcore.arguments import problem_of
from gpu.outofcore.model import Model
from gpu.outofcore.pieces import tasks_of
from reference.errors import SchemeError, ShapeError
from simwarp.machine import EVEREST, CopyError, CopyFails, DeviceLost, DeviceLostError, Machine
from simwarp.verify.draw import Draw
from support.fake_gpus import gpus
from support.outofcore_calls import WHOLE, Layer, pooled

__all__ = ["gpus"]

RATES = Rates(1e-6, 5e10, 1e-6, 5e10, 5e-6, 5e13)
LAYER = Layer((3, 4, 13, 11), (6, 4, 3, 2))
POOLS = {
    "pairs": MaxPool(2),
    "means of triples": AveragePool(3),
    "of one axis": MaxPool((1, 3)),
    "gaps between windows": AveragePool((2, 1), stride=(3, 2)),
    "padding": MaxPool(2, padding="SAME"),
    "means with padding": AveragePool((2, 3), padding=((1, 1), (2, 0))),
    "overlaps": MaxPool(3, stride=2, padding=((1, 1), (1, 1))),
    "means that overlap": AveragePool((3, 2), stride=1),
}
SPLITS = [Pieces(*sizes) for sizes in product((1, 2, 99), (1, 2, 99), (1, 3, 99), (1, 4, 99))]
Pool = MaxPool | AveragePool


def check(layer: Layer, pool: Pool, pieces: Pieces | None, machine: Machine, **call: Any) -> Any:
    """The result of a call with pooling, which has the bits of pooling the result without."""
    on_device = call.pop("on_device", ())
    found = layer.run("conv2d", machine, pool=pool, pieces=pieces, on_device=on_device, **call)
    call.pop("memory_budget", None)
    bare = layer.run("conv2d", Machine(), pieces=pieces or WHOLE, **call)
    np.testing.assert_array_equal(found, pooled(pool, bare), err_msg=f"{pool} {pieces}")
    assert not machine.pinned()
    assert not machine.allocated(0)
    return found


@pytest.mark.at_most(2)
@pytest.mark.parametrize("name", POOLS)
def test_a_split_has_the_bits_of_pooling_the_result(name: str) -> None:
    bias = np.linspace(-1, 1, 6, dtype=np.float32)
    for seed, pieces in enumerate((WHOLE, *SPLITS[len(name) :: 19])):
        options = Options(depth=1 + seed % 3)
        machine = Machine(seed=seed, jitter=20.0)
        check(LAYER, POOLS[name], pieces, machine, options=options, bias=bias, activation="relu")


@pytest.mark.gate
@pytest.mark.parametrize("name", POOLS)
def test_every_split_has_the_bits_of_pooling_the_result(name: str) -> None:
    for seed, pieces in enumerate(SPLITS):
        places = [(), ("out",), ("x", "w"), ("x", "out")][seed % 4]
        check(LAYER, POOLS[name], pieces, Machine(seed=seed, jitter=20.0), on_device=places)


def drawn(draw: Draw) -> tuple[Layer, Pool, Pieces]:
    """A layer, windows and pieces; some windows or filters do not fit."""
    groups = draw.choice((1, 1, 2, 3))
    channels, filters = groups * draw.integer(1, 4), groups * draw.integer(1, 3)
    images = draw.integer(1, 3), channels, draw.choice((1, 5, 11, 12)), draw.choice((1, 7, 8))
    window = filters, channels // groups, draw.integer(1, 3), draw.integer(1, 3)
    options = {"stride": draw.choice((1, 1, 2)), "padding": draw.choice(("SAME", "VALID")), "groups": groups}
    kind = draw.choice((MaxPool, AveragePool))
    pool = kind(
        (draw.integer(1, 3), draw.integer(1, 3)),
        draw.choice((None, None, 1, (2, 3))),
        draw.choice(("VALID", "VALID", "SAME")),
    )
    sizes = (draw.choice((99, 1, draw.integer(1, 4))) for _ in range(4))
    return Layer(images, window, options), pool, Pieces(*sizes)


@pytest.mark.at_most(2)
@pytest.mark.parametrize("seed", range(4))
def test_drawn_layers_have_the_bits_of_pooling_the_result(seed: int) -> None:
    count = 0
    for k in range(30):
        layer, pool, pieces = drawn(Draw(seed, "pooling", k))
        try:
            pooled(pool, layer.operands()[2])
        except ShapeError:
            continue
        places = [(), (), ("out",), ("x", "w"), ("w", "out")][k % 5]
        check(layer, pool, pieces, Machine(seed=k, jitter=20.0), on_device=places)
        count += 1
    assert count > 15


def test_budgets_are_kept_and_whole_sums_do_not_change_a_bit() -> None:
    layer, pool = Layer((4, 8, 12, 9), (8, 8, 3, 3)), MaxPool(2)
    call: Any = {"device": Machine(), "pool": pool}
    least = explain("conv2d", layer.images, layer.filters, pieces=Pieces(1, 1, 8, 1), **call).buffers.total
    for budget in (least, 2 * least, 20 * least):
        machine, used = Machine(), list[int]()
        allocate = machine.allocate
        machine.allocate = lambda device, nbytes, allocate=allocate, used=used: (
            used.append(nbytes) or allocate(device, nbytes)
        )
        found = layer.run("conv2d", machine, pool=pool, memory_budget=budget)
        assert used[0] <= budget
        bare = layer.run("conv2d", Machine())
        np.testing.assert_allclose(found, pooled(pool, bare), rtol=1e-5, atol=1e-5)


# --------------------------------------------------------------------------------------------- traffic


@pytest.mark.at_most(2)
@pytest.mark.parametrize("name", POOLS)
def test_only_the_pooled_result_is_copied_and_the_model_counts_it(name: str) -> None:
    pool, counts, bare = POOLS[name], Statistics(), Statistics()
    for pieces in (WHOLE, Pieces(2, 2, 3, 4), Pieces(1, 99, 4, 3)):
        for places in ((), ("x",), ("out",)):
            machine = Machine(EVEREST)
            on_device = {"on_device": places}
            found = LAYER.run("conv2d", machine, pool=pool, pieces=pieces, statistics=counts, **on_device)
            assert counts.model_error == pytest.approx(0, abs=1e-9), (pieces, places)
            assert counts.bytes_out == (0 if places == ("out",) else found.nbytes)
        LAYER.run("conv2d", Machine(EVEREST), pieces=pieces, statistics=bare)
        assert counts.bytes_out < bare.bytes_out


def test_the_convolution_has_one_buffer() -> None:
    plan = explain(
        "conv2d",
        (8, 16, 28, 28),
        (16, 16, 3, 3),
        device=Machine(),
        pool=MaxPool(2),
        pieces=Pieces(1, 7, 8, 8),
    )
    assert plan.buffers.counts["y"] == 1
    assert plan.buffers.counts["z"] == 3
    assert plan.buffers.nbytes["y"] >= 8 * 14 * 28 * 4 >= 4 * plan.buffers.nbytes["z"] - 4 * 256
    assert plan.bytes_out * 4 == 8 * 16 * 28 * 28 * 4
    assert "max_pool to z 8 x 16 x 14 x 14" in str(plan)
    there = explain(
        "conv2d", (8, 16, 28, 28), (16, 16, 3, 3), device=Machine(), pool=MaxPool(2), on_device=["out"]
    )
    assert there.buffers.counts["z"] == there.bytes_out == 0
    assert there.problem.on_device == {"z"}


@pytest.mark.parametrize("name", POOLS)
def test_buffers_hold_the_largest_pieces(name: str) -> None:
    of = problem_of(
        "conv2d", LAYER.images, LAYER.filters, stride=1, padding="SAME", dilation=1, groups=1, layout="NCHW",
        pool=POOLS[name],
    )  # fmt: skip
    shapes = {tensor: of.shape(tensor) for tensor in "xwyz"}  # type: ignore[arg-type]
    for sizes in product((1, 3), (1, 2, 3, 99), (1, 4), (2, 6)):
        buffers = Model(of, Pieces(*sizes), RATES, Options()).with_depth(1)
        rows = set[int]()
        for task in tasks_of(of, Pieces(*sizes)):
            assert task.pooled is not None
            rows |= {*task.pooled.rows} if task.pooled.rows else set()
            for piece in (task.output, task.pooled, *(piece for step in task.steps for piece in step)):
                height = len(piece.rows) if piece.rows else shapes["w"][2]
                elements = len(piece.first) * len(piece.channels) * height * shapes[piece.tensor][3]
                assert 4 * elements <= buffers.nbytes[piece.tensor], (piece, sizes)
        assert rows == {*range(shapes["z"][2])}


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_formula_is_the_timeline_s_where_pieces_are_equal(depth: int) -> None:
    layer: Any = (32, 64, 56, 56), (64, 64, 3, 3)
    for pieces, places in product(
        (Pieces(2, 28, 64, 64), Pieces(2, 28, 16, 64), Pieces(2, 28, 64, 32), Pieces(4, 7, 64, 64)),
        ((), ("out",)),
    ):
        plan = explain(
            "conv2d", *layer, device=Machine(), pieces=pieces, pool=MaxPool(2), on_device=places,
            options=Options(depth=depth),
        )  # fmt: skip
        assert -0.08 < plan.seconds / plan.timeline.seconds - 1 < 0.09, (pieces, places)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("planner", ["greedy", "steepest", "exhaustive"])
def test_planners_count_what_pooling_leaves(planner: Any) -> None:
    layer: Any = (64, 64, 56, 56), (64, 64, 3, 3)
    call: Any = {"device": Machine(), "memory_budget": 1 << 25, "options": Options(planner=planner)}
    bare, fused = (explain("conv2d", *layer, pool=pool, **call) for pool in (None, MaxPool(2)))
    assert fused.buffers.total <= 1 << 25
    assert fused.bytes_out * 4 == bare.bytes_out
    assert fused.timeline.seconds < bare.timeline.seconds


# ---------------------------------------------------------------------------------- failures, bad input


@pytest.mark.parametrize(
    ("injection", "kind"),
    [
        (CopyFails("in", 0, after=7), CopyError),
        (CopyFails("out", 0, after=2), CopyError),
        (DeviceLost(0, 3e-5), DeviceLostError),
    ],
)
def test_a_failure_leaves_nothing_behind(injection: Any, kind: type[Exception]) -> None:
    machine = Machine(injections=[injection])
    with pytest.raises(kind, match="device 0"):
        LAYER.run("conv2d", machine, pool=MaxPool(2), pieces=Pieces(1, 2, 2, 2))
    assert not machine.pinned()
    assert not machine.allocated(0)


X, W, Y = (np.ones(shape, np.float32) for shape in ((2, 4, 6, 6), (3, 4, 3, 3), (2, 3, 6, 6)))


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        ({"pool": ("max", 2)}, SchemeError, r"pool is \('max', 2\)\n.*\npass gpu.outofcore.MaxPool"),
        ({"pool": MaxPool(7)}, ShapeError, "does not fit"),
        ({"pool": MaxPool(0)}, ShapeError, "layer 2, max_pool: window is 0"),
        ({"pool": AveragePool(2, stride=0)}, ShapeError, "stride=0"),
        ({"pool": MaxPool(2, padding=((2, 2), (0, 0)))}, ShapeError, "is outside the image"),
        ({"pool": MaxPool(2), "out": Y}, ShapeError, r"out has shape \(2, 3, 6, 6\).*\n.*\(2, 3, 3, 3\)"),
        ({"pool": MaxPool(2), "layout": "NHWC"}, SchemeError, "pool of float32 in NHWC"),
        ({"pool": MaxPool(2), "dtype": "f2"}, SchemeError, "pool of float16 in NCHW"),
    ],
)
def test_pooling_that_is_not_supported_is_refused(
    call: dict[str, Any], kind: type[Exception], message: str
) -> None:
    dtype = call.pop("dtype", "f4") if "dtype" in call else "f4"
    x, w = X.astype(dtype), W.astype(dtype)
    if call.get("layout") == "NHWC":
        x, w = (np.ascontiguousarray(np.moveaxis(one, 1, -1)) for one in (x, w))
    machine = Machine()
    with pytest.raises(kind, match=message):
        gpu.outofcore.conv2d(x, w, device=machine, **call)
    assert machine.seconds() == 0


def test_gradients_have_no_pooling() -> None:
    with pytest.raises(SchemeError, match="a bias, an activation or pooling\nonly conv2d"):
        explain("conv2d_backward_data", X.shape, W.shape, device=Machine(), pool=MaxPool(2))


def test_a_nan_is_the_result_of_its_window() -> None:
    x = np.zeros((1, 1, 8, 8), np.float32)
    x[0, 0, 5, 2] = np.nan
    w = np.ones((1, 1, 1, 1), np.float32)
    for pool in (MaxPool(2), AveragePool(2)):
        found = gpu.outofcore.conv2d(x, w, device=Machine(), pool=pool, pieces=Pieces(1, 1, 1, 1))
        assert np.argwhere(np.isnan(found[0, 0])).tolist() == [[2, 1]]


# ------------------------------------------------------------------------------------------------- GPUs


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize("name", POOLS)
def test_a_gpu_pools_what_it_has_computed(gpus, name: str) -> None:
    pool, options, bias = POOLS[name], Options(rates=RATES), np.linspace(-1, 1, 6, dtype=np.float32)
    call: Any = {"bias": bias, "activation": "relu", "options": options}
    for seed, pieces in enumerate((WHOLE, Pieces(2, 2, 3, 4), Pieces(1, 3, 4, 6))):
        found = gpus(1, seed)
        with CudaMachine() as machine:
            bare = LAYER.run("conv2d", machine, **call)
            assert LAYER.error("conv2d", bare, bias=bias, activation="relu") <= 1
            for places in ((), ("out",)):
                got = LAYER.run("conv2d", machine, pool=pool, pieces=pieces, on_device=places, **call)
                np.testing.assert_allclose(got, pooled(pool, bare), rtol=1e-5, atol=1e-5)
        assert found.is_clean()


def test_a_failed_launch_of_a_gpu_leaves_nothing_behind(gpus) -> None:
    found, machine = gpus(failing=("cuLaunchKernel", 2, "INVALID_VALUE")), CudaMachine()
    with pytest.raises(Exception, match="cuLaunchKernel"):
        LAYER.run("conv2d", machine, pool=MaxPool(2), pieces=Pieces(1, 2, 4, 6), options=Options(rates=RATES))
    assert not machine.allocated(0)
    assert not machine.pinned()
    machine.close()
    assert found.is_clean()
