"""Out-of-core convolutions on a driver and a cuDNN without a GPU, which find wrong uses of theirs."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpu.blas3
import gpu.outofcore
from gpu.cuda_machine import CudaMachine, RoutineError, convolutions
from gpu.cuda_machine import machine as machine_module
from gpu.cuda_machine.convolutions import View
from gpu.cuda_machine.layers import Layers
from gpu.cuda_machine.library import CUDNN, Library
from gpu.cuda_machine.pointwise import finish
from gpu.outofcore import Options, Pieces, Rates, explain
from gpu.outofcore.arguments import problem_of
from gpu.outofcore.on_host import SUMS, Window
from gpu.outofcore.padding import axis_of
from gpu.outofcore.problem import FORMS
from gpu.outofcore.workspace import SMALL, workspace_of
from reference.errors import LaunchError, MissingExtraError
from reference.training import ACTIVATIONS, error_of
from simwarp.machine import Machine
from support.fake_gpus import gpus
from support.outofcore_calls import LAYERS, WHOLE, Layer, parts_of

__all__ = ["gpus"]

RATES = Rates(1e-6, 5e10, 1e-6, 5e10, 5e-6, 5e13)
OPTIONS = Options(rates=RATES)
SPLITS = [Pieces(*sizes) for sizes in product((1, 2, 99), (1, 2, 99), (1, 3, 99), (1, 4, 99))]


@pytest.mark.at_most(2)
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("routine", FORMS)
def test_a_split_is_within_the_bound_and_leaves_nothing_behind(gpus, routine: str, name: str) -> None:
    layer, turn = LAYERS[name], len(LAYERS) * [*FORMS].index(routine) + [*LAYERS].index(name)
    for seed, pieces in enumerate((WHOLE, *SPLITS[turn::41])):
        found, machine = gpus(1, seed), CudaMachine()
        result = layer.run(routine, machine, pieces=pieces, options=OPTIONS)
        assert layer.error(routine, result) <= 1, pieces
        machine.close()
        assert found.is_clean()


@pytest.mark.at_most(1)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_bias_and_activation_follow_the_last_term(gpus, activation: Any, layout: Any, dtype: Any) -> None:
    layer = Layer(options={"layout": layout}, dtype=dtype)
    x, w, _ = layer.operands()
    bias = np.linspace(-2, 2, 6).astype(dtype)
    gpus()
    call = {"activation": activation, "layout": layout}
    with CudaMachine() as machine:
        for pieces in (WHOLE, Pieces(1, 2, 1, 5)):
            found = gpu.outofcore.conv2d(x, w, bias, device=machine, pieces=pieces, options=OPTIONS, **call)
            parts = parts_of("conv2d", layer, pieces)
            assert error_of("conv2d", found, x, w, bias, parts=parts, **call) <= 1


@pytest.mark.at_most(3)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_bias_and_activation_round_once(gpus, dtype: str, layout: str) -> None:
    gpus()
    rng, sizes = np.random.default_rng(3), (3, 5, 7, 90)
    y, bias = ((4 * rng.standard_normal(shape)).astype(np.float32) for shape in (sizes, 5))
    y[0, 0, 0, :3] = np.nan, np.inf, -np.inf
    y, bias = (decoded(encoded(x, dtype), dtype) for x in (y, bias))
    for name, with_bias in product(("", *ACTIVATIONS), (True, False)):
        exact = y.astype(float) + (bias.astype(float)[:, None, None] if with_bias else 0)
        expected = ACTIVATIONS[name][0](exact) if name else exact
        given = encoded(y, dtype), encoded(bias, dtype) if with_bias else None
        found = decoded(finished(*given, layout, name, dtype), dtype)
        bits = {"float32": 24, "float16": 11, "bfloat16": 8}[dtype]
        np.testing.assert_allclose(found, expected, 2.0 ** (1 - bits), 1e-7, err_msg=f"{name} {with_bias}")


def encoded(x: Any, dtype: str) -> Any:
    """Numbers in a dtype; of bfloat16, which NumPy does not have, the bits."""
    return (x.view(np.uint32) >> 16).astype(np.uint16) if dtype == "bfloat16" else x.astype(dtype)


def decoded(x: Any, dtype: str) -> Any:
    return (x.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else x.astype(np.float32)


def finished(y: Any, bias: Any, layout: str, activation: str, dtype: str) -> Any:
    """Images of (N, C, H, W) behind bias and activation in a layout."""
    laid = y if layout == "NCHW" else np.ascontiguousarray(y.transpose(0, 2, 3, 1))
    end = laid.nbytes + 64
    host = np.zeros(end, np.uint8)
    host[: laid.nbytes] = laid.reshape(-1).view(np.uint8)
    if bias is not None:
        host[laid.nbytes :][: bias.nbytes] = bias.view(np.uint8)
    _, c, h, w = y.shape
    strides = (c * h * w, h * w, w, 1) if layout == "NCHW" else (c * h * w, 1, w * c, c)
    with CudaMachine() as machine:
        memory = machine.allocate(0, end)
        tile, stream = memory.tile(end, 1, np.uint8), machine.stream(0)

        def queue_on(queue: Any) -> None:
            start = queue.address(tile)
            behind = 0 if bias is None else start + laid.nbytes
            finish(queue, View(y.shape, strides), dtype, start, behind, activation)

        machine.pin(host)
        machine.copy_in(stream, host[:, None], tile)
        machine.launch(stream, SimpleNamespace(name="finish", operations=0, queue_on=queue_on))
        machine.copy_out(stream, tile, host[:, None])
        machine.settle()
        machine.unpin(host)
        machine.free(memory)
    found = host[: laid.nbytes].view(y.dtype).reshape(laid.shape)
    return found if layout == "NCHW" else found.transpose(0, 3, 1, 2)


def test_engines_of_tf32_are_for_those_who_ask(gpus) -> None:
    found, layer = gpus(), Layer()
    with CudaMachine() as machine:
        layer.run("conv2d", machine, options=OPTIONS)
        assert {engine for engine, _ in found.cudnn.executed} <= {6, 7}
        rough = layer.run("conv2d", machine, options=Options(rates=RATES, math="tf32"))
        assert 5 in {engine for engine, _ in found.cudnn.executed}
        assert layer.error("conv2d", rough, tf32=True) <= 1


def test_engines_with_transforms_are_for_those_who_ask(gpus) -> None:
    layer = Layer()
    for routine in FORMS:
        found = gpus()
        with CudaMachine() as machine:
            layer.run(routine, machine, options=Options(rates=RATES, math="tf32", transforms=True))
            assert not {8, 17} & {engine for engine, _ in found.cudnn.executed}
            found.cudnn.refuses = (6, 7)
            rough = layer.run(routine, machine, options=Options(rates=RATES, transforms=True))
        assert found.cudnn.executed[-1][0] in (8, 17)
        assert layer.error(routine, rough, transforms=True) <= 1
        assert layer.error(routine, rough) > 1


def test_winograd_is_for_filters_of_up_to_three_rows(gpus) -> None:
    found, layer = gpus(), Layer((2, 3, 8, 8), (4, 3, 5, 3))
    with CudaMachine() as machine:
        layer.run("conv2d", machine, options=Options(rates=RATES, transforms=True))
    assert {engine for engine, _ in found.cudnn.executed} == {6}


@pytest.mark.parametrize("routine", FORMS)
def test_transforms_have_a_workspace(gpus, routine: str) -> None:
    gpus()
    call: Any = {"memory_budget": 1 << 26}
    with CudaMachine() as machine:
        plans = [
            explain(routine, (8, 6, 9, 8), (10, 6, 3, 3), device=machine, options=options, **call)
            for options in (OPTIONS, replace(OPTIONS, transforms=True))
        ]
    assert plans[0].buffers.workspace < plans[1].buffers.workspace
    assert plans[1].buffers.total <= 1 << 26
    simulated = explain(
        routine, (8, 6, 9, 8), (10, 6, 3, 3), device=Machine(), options=Options(transforms=True)
    )
    assert simulated.buffers.workspace == 0


@pytest.mark.parametrize(
    ("routine", "images", "mebibytes"),
    [
        ("conv2d", 7, 0), ("conv2d", 8, 72), ("conv2d", 16, 72), ("conv2d", 17, 108), ("conv2d", 64, 180),
        ("conv2d_backward_data", 22, 108), ("conv2d_backward_filter", 64, 180),
        ("conv2d_backward_filter", 8, 54),
    ],
)  # fmt: skip
def test_the_workspace_is_what_winograds_engines_of_cudnn_ask_for(
    routine: str, images: int, mebibytes: int
) -> None:
    """Those of cuDNN 9.19, for 512 channels and filters of 14 x 14 pixels."""
    shapes = (images, 512, 14, 14), (512, 512, 3, 3)
    how: Any = {"stride": 1, "padding": "SAME", "dilation": 1, "groups": 1, "layout": "NCHW"}
    problem = replace(problem_of(routine, *shapes, **how), transforms=True, workspace=None)
    nbytes: Any = {
        "x": 4 * math.prod(shapes[0]),
        "w": 4 * math.prod(shapes[1]),
        "y": 4 * math.prod(shapes[0]),
    }
    found = workspace_of(problem, nbytes, images * 512, None, images)
    assert found == (mebibytes << 20) + SMALL


def test_an_engine_is_chosen_once(gpus) -> None:
    found, layer = gpus(), Layer()
    with CudaMachine() as machine:
        layer.run("conv2d", machine, options=OPTIONS)
        before = len(found.cudnn.executed)
        layer.run("conv2d", machine, options=OPTIONS)
        assert len(found.cudnn.executed) == before + 1
        assert len(found.cudnn.handles) == 1


@pytest.mark.parametrize("least", [1e-3, 1e-5])
def test_slow_engines_are_not_timed_with_more_images(gpus, least: float, monkeypatch: Any) -> None:
    gpus()
    timed: list[int] = []

    def seconds(layers: Any, queue: Any, engine: Any, *args: Any) -> float:
        timed.append(engine.number)
        return least * (1 if engine.number == 5 else 9)

    monkeypatch.setattr(Layers, "_seconds", seconds)
    with CudaMachine() as machine:
        options = Options(rates=RATES, math="tf32")
        Layer((2, 4, 7, 6)).run("conv2d", machine, options=options)
        assert len({*timed}) > 1
        timed.clear()
        Layer((5, 4, 7, 6)).run("conv2d", machine, options=options)
        assert len({*timed}) == (0 if least > 1e-4 else 2)


def test_an_engine_keeps_the_addresses_of_its_last_calls(gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolutions, "_PACKS", 2)
    found, layer = gpus(), Layer((9, 4, 7, 6))
    with CudaMachine() as machine:
        result = layer.run("conv2d", machine, pieces=Pieces(2, 9, 9, 9), options=OPTIONS)
        assert layer.error("conv2d", result) <= 1
        kept = len(found.cudnn.descriptors)
        for _ in range(3):
            layer.run("conv2d", machine, pieces=Pieces(2, 9, 9, 9), options=OPTIONS)
        assert len(found.cudnn.descriptors) <= kept + 1
    assert found.is_clean()


def test_routines_that_nobody_prepared_are_right(gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CudaMachine, "prepare", lambda *given: None)
    found, layer = gpus(), Layer()
    with CudaMachine() as machine:
        result = layer.run("conv2d", machine, pieces=Pieces(9, 9, 1, 9), options=OPTIONS)
    assert layer.error("conv2d", result) <= 1
    assert len(found.cudnn.executed) == layer.images[1]


def test_without_a_workspace_only_engines_that_need_none_run(gpus) -> None:
    found, layer = gpus(), Layer(options={"padding": "VALID"})
    with CudaMachine() as machine:
        layer.run("conv2d", machine, options=Options(rates=RATES, workspace=0))
    assert {engine for engine, _ in found.cudnn.executed} == {7}


@pytest.mark.parametrize("routine", FORMS)
def test_padding_that_differs_on_opposite_sides_is_in_a_copy(gpus, routine: str) -> None:
    """On an H100, an engine of cuDNN 9.19 left out the last column of the last filter here."""
    layer, found = Layer((2, 1, 2, 6), (5, 1, 1, 3), {"padding": ((1, 0), (1, 2))}), gpus()
    with CudaMachine() as machine:
        for pieces in (Pieces(1, 1, 1, 4), Pieces(2, 3, 1, 5)):
            result = layer.run(routine, machine, pieces=pieces, options=OPTIONS)
            assert layer.error(routine, result, parts=6) <= 1
    assert found.cudnn.executed


def test_without_an_engine_nothing_is_written(gpus) -> None:
    found, layer = gpus(), Layer()
    found.cudnn.refuses = (5, 6, 7)
    x, w = layer.arguments("conv2d")
    out = np.full(layer.operands()[2].shape, 7, np.float32)
    with CudaMachine(keep_pinned=False) as machine:
        with pytest.raises(RoutineError, match=r"cuDNN has no engine for it[\s\S]*other layout"):
            gpu.outofcore.conv2d(x, w, device=machine, out=out, options=OPTIONS)
        assert not machine.allocated(0)
        assert not machine.pinned()
    assert (out == 7).all()
    assert found.is_clean()


def test_images_with_padding_need_a_workspace(gpus) -> None:
    layer = LAYERS["asymmetric"]
    gpus()
    options = Options(rates=RATES, workspace=0)
    with CudaMachine() as machine, pytest.raises(LaunchError, match="workspace of 0 bytes"):
        layer.run("conv2d_backward_filter", machine, options=options)


@pytest.mark.parametrize("call", ["cuMemcpy3DAsync", "cuMemsetD8Async", "cuStreamSynchronize"])
def test_a_failure_leaves_nothing_behind(gpus, call: str) -> None:
    layer = LAYERS["asymmetric"]
    for number in (1, 2, 3):
        found = gpus(failing=(call, number, "INVALID_VALUE"))
        machine = CudaMachine()
        with pytest.raises(Exception, match=call):
            layer.run("conv2d_backward_filter", machine, pieces=Pieces(1, 2, 2, 9), options=OPTIONS)
        assert not machine.allocated(0)
        assert not machine.pinned()
        machine.close()
        assert found.is_clean()


# ----------------------------------------------------------------------------------- page-locked memory


def test_arrays_are_page_locked_for_the_call_unless_they_are_already(gpus) -> None:
    found, layer = gpus(), Layer((3, 4, 21, 19))
    x, w = layer.arguments("conv2d")
    at = x.ctypes.data
    found.driver.foreign.append((at, at + x.nbytes))  # as pinned by torch, CuPy or the user
    with CudaMachine(keep_pinned=False) as machine:
        locked: list[Any] = []
        register = machine._pins._register
        machine._pins._register = lambda made: locked.append((made.start, made.end)) or register(made)  # type: ignore[method-assign]
        y = gpu.outofcore.conv2d(x, w, device=machine, options=OPTIONS, pieces=Pieces(2, 5, 4, 6))
        assert error_of("conv2d", y, x, w) <= 1
        assert {*locked} == {(one.ctypes.data, one.ctypes.data + one.nbytes) for one in (w, y)}
        assert not found.driver.registrations
        assert found.driver.foreign == [(at, at + x.nbytes)]
    with CudaMachine() as machine:  # kept for the next call, as long as the arrays live
        for _ in range(2):
            gpu.outofcore.conv2d(x, w, device=machine, options=OPTIONS, out=y)
            assert not machine.pinned()
        assert machine.registered() == w.nbytes + y.nbytes


# ---------------------------------------------------------------------------------------------- padding


def test_padding_of_pieces_is_that_of_their_windows() -> None:
    """Each output reads the same pixels through padding as through the window, by one-dimensional sums."""
    rng = np.random.default_rng(0)
    cases = product((1, 2, 5, 7), (1, 2, 3), range(-4, 5), (1, 2, 3), (1, 2, 3), (1, 2))
    for size, outputs, offset, stride, taps, dilation in cases:
        x, w = rng.standard_normal((1, 1, size, 1)), rng.standard_normal((1, 1, taps, 1))
        window = Window((offset, 0), (stride, 1), (dilation, 1), 1)
        expected = SUMS["conv2d"](window, x, w, (1, 1, outputs, 1))[0, 0, :, 0]
        span = (taps - 1) * dilation + 1
        axis = axis_of(size, outputs, offset, stride, span)
        if axis is None:
            assert not expected.any()
            continue
        assert min(axis.before, axis.after, axis.first) >= 0
        seen = x[0, 0, axis.first : axis.first + axis.size, 0]
        padded = np.concatenate([np.zeros(axis.before), seen, np.zeros(axis.after)])
        assert (len(padded) - span) // stride + 1 == outputs
        found = [
            sum(w[0, 0, tap, 0] * padded[p * stride + tap * dilation] for tap in range(taps))
            for p in range(outputs)
        ]
        np.testing.assert_allclose(found, expected, atol=1e-12)


# ---------------------------------------------------------------------------------------------- libraries


def test_a_missing_library_is_reported_with_what_to_install() -> None:
    library = Library("libnothing.so.1", "nothing/lib", "nothing needs it", "nothing")
    with pytest.raises(MissingExtraError, match=r"nothing needs it[\s\S]*pip install nothing"):
        library.load()


def test_a_library_is_looked_for_in_packages_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    toolkit, package = tmp_path / "toolkit" / "lib64", tmp_path / "nvidia" / "cudnn" / "lib"
    for folder in (toolkit, package):
        folder.mkdir(parents=True)
        (folder / CUDNN.file).write_text("")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path / "nvidia")])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    assert list(CUDNN.candidates()) == [
        str(package / "libcudnn.so.9"), str(toolkit / "libcudnn.so.9"), "libcudnn.so.9",
    ]  # fmt: skip


def test_blas3_does_not_load_cudnn(gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus()
    monkeypatch.setattr(machine_module, "CUDNN", None)
    a = np.ones((3, 3), order="F")
    with CudaMachine() as machine:
        np.testing.assert_array_equal(gpu.blas3.dgemm(1.0, a, a, device=machine), 3 * a)
