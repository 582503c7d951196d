"""Out-of-core convolutions whose arrays lie on the device: read and written there, and not copied."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, combinations, product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpu.outofcore
from gpu import device_tensor
from gpu.cuda_machine import CudaMachine
from gpu.outofcore import DeviceTensor, Options, Pieces, Rates, Statistics, explain
from gpu.outofcore.problem import FORMS
from reference.errors import (
    DtypeError,
    FormatError,
    FreedMemoryError,
    LaunchError,
    MachineError,
    SchemeError,
    ShapeError,
)
from reference.training import ACTIVATIONS
from simwarp.machine import EVEREST, CopyError, CopyFails, DeviceLost, DeviceLostError, H200x2, Machine
from support.device_tensors import get, placed, put
from support.fake_gpus import gpus
from support.outofcore_calls import LAYERS, NAMES, WHOLE, Layer, bfloat16

__all__ = ["gpus"]

RATES = Rates(1e-6, 5e10, 1e-6, 5e10, 5e-6, 5e13)
SPLITS = [Pieces(*sizes) for sizes in product((1, 2, 99), (1, 2, 99), (1, 3, 99), (1, 4, 99))]


def some(routine: str) -> list[tuple[str, ...]]:
    """All choices of arguments."""
    names = *NAMES[routine], "out"
    return [*chain.from_iterable(combinations(names, count) for count in range(1, 4))]


def check(routine: str, layer: Layer, splits: list[Pieces]) -> None:
    for seed, pieces in enumerate(splits):
        options = Options(depth=1 + seed % 3)
        expected = layer.run(routine, Machine(), pieces=pieces, options=options)
        machine = Machine(seed=seed, jitter=20.0)
        names = some(routine)[(seed + len(splits)) % 7]
        found = layer.run(routine, machine, on_device=names, pieces=pieces, options=options)
        np.testing.assert_array_equal(found, expected, err_msg=f"{names} {pieces}")
        assert not machine.pinned()
        assert not machine.allocated(0)


@pytest.mark.at_most(4)
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("routine", FORMS)
def test_where_arrays_lie_changes_no_bit(routine: str, name: str) -> None:
    check(routine, LAYERS[name], SPLITS[len(name) % 9 :: 20])


@pytest.mark.gate
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("routine", FORMS)
def test_where_arrays_lie_changes_no_bit_in_any_split(routine: str, name: str) -> None:
    check(routine, LAYERS[name], [pieces for pieces in SPLITS for _ in range(2)])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "tf32"])
@pytest.mark.parametrize("routine", FORMS)
def test_dtypes_have_the_bits_that_they_have_from_the_host(routine: str, dtype: str) -> None:
    kind = {"float16": lambda: np.float16, "bfloat16": bfloat16}.get(dtype, lambda: np.float32)()
    layer, options = Layer(dtype=kind), Options(math="tf32" if dtype == "tf32" else "fp32")
    names, pieces = (*NAMES[routine], "out"), Pieces(2, 3, 3, 4)
    expected = layer.run(routine, Machine(), pieces=pieces, options=options)
    found = layer.run(routine, Machine(), on_device=names, pieces=pieces, options=options)
    np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))


@pytest.mark.at_most(2)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_bias_and_activation_follow_the_last_term(activation: Any, layout: Any) -> None:
    layer, bias = Layer(options={"layout": layout}), np.linspace(-2, 2, 6, dtype=np.float32)
    for pieces in (WHOLE, Pieces(2, 3, 4, 4), Pieces(1, 2, 1, 5)):
        call: Any = {"bias": bias, "activation": activation, "pieces": pieces}
        expected = layer.run("conv2d", Machine(), **call)
        for names in (("bias",), ("bias", "out"), ("x", "w", "bias", "out"), ("out",)):
            found = layer.run("conv2d", Machine(), on_device=names, **call)
            np.testing.assert_array_equal(found, expected, err_msg=f"{names} {pieces}")


# --------------------------------------------------------------------------------------------- traffic


@pytest.mark.parametrize("routine", FORMS)
def test_nothing_is_copied_and_no_buffer_is_needed_if_all_arrays_lie_there(routine: str) -> None:
    layer, machine, counts = Layer((6, 8, 12, 9), (10, 8, 3, 3)), Machine(), Statistics()
    names = *NAMES[routine], "out"
    with placed(machine, names) as (given, got):
        x, w, dy = layer.operands()
        arrays = {"x": x, "w": w, "gradient": dy, "out": {"y": dy, "x": x, "w": w}[FORMS[routine].output]}
        tensors = {name: given(name, arrays[name]) for name in names}
        out, before = tensors.pop("out"), len(machine.timeline)
        shape = () if routine == "conv2d" else ({"x": x, "w": w}[FORMS[routine].output].shape,)
        result = getattr(gpu.outofcore, routine)(
            *tensors.values(), *shape, device=machine, out=out, statistics=counts, memory_budget=0
        )
        assert result is out
        assert [one.kind for one in machine.timeline][before:] == ["routine"]
        assert counts.bytes_in == counts.bytes_out == 0
        assert counts.model_error == pytest.approx(0, abs=1e-9)
        assert layer.error(routine, got(result)) <= 1
    plan = explain(routine, layer.images, layer.filters, device=machine, on_device=names, memory_budget=0)
    assert plan.buffers.total == 0
    assert f"buffers: none; 0 bytes of 0 bytes; {', '.join('wxy')} on the device" in str(plan)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("routine", FORMS)
def test_the_model_counts_what_moves(routine: str) -> None:
    layer, counts = Layer((6, 8, 12, 9), (10, 8, 3, 3)), Statistics()
    for names, pieces in product(some(routine), (None, Pieces(2, 4, 4, 5), Pieces(1, 12, 8, 10))):
        machine = Machine(EVEREST)
        with placed(machine, names) as (given, _):
            x, w, dy = layer.operands()
            first, second, *shape = layer.arguments(routine)
            operands = [given(name, one) for name, one in zip(NAMES[routine], (first, second), strict=True)]
            out = given("out", np.empty_like({"y": dy, "x": x, "w": w}[FORMS[routine].output]))
            before = {kind: machine.timeline.nbytes(kind) for kind in ("in", "out")}
            getattr(gpu.outofcore, routine)(
                *operands, *shape, device=machine, out=out, pieces=pieces, statistics=counts
            )
            assert counts.model_error == pytest.approx(0, abs=1e-9), (names, pieces)
            assert counts.bytes_in == machine.timeline.nbytes("in") - before["in"]
            assert counts.bytes_out == machine.timeline.nbytes("out") - before["out"]
        assert (counts.bytes_out == 0) == ("out" in names)


def moves(plan: Any) -> int:
    return sum(one.name == "copy" for one in plan.timeline)


def test_pieces_with_gaps_that_engines_do_not_take_are_copied_within_the_device() -> None:
    layer: Any = (6, 8, 12, 9), (10, 8, 3, 3)
    call: Any = {"device": Machine(), "on_device": ("x", "out")}
    rows, channels = Pieces(6, 4, 8, 10), Pieces(6, 12, 4, 10)
    for pieces in (rows, Pieces(1, 12, 4, 10), Pieces(1, 4, 4, 10)):
        plan = explain("conv2d", *layer, pieces=pieces, **call)
        assert moves(plan) == plan.buffers.counts["x"] == plan.buffers.counts["y"] == 0
    some = explain("conv2d", *layer, pieces=channels, **call)
    assert moves(some) == 2
    assert some.buffers.counts["x"] > 0 == some.buffers.counts["y"]
    last = explain("conv2d", (6, 12, 9, 8), (10, 3, 3, 8), pieces=rows, layout="NHWC", **call)
    assert moves(last) == 6
    both = explain("conv2d", *layer, pieces=Pieces(6, 4, 4, 10), **call)
    assert moves(both) == 6 * 6  # six pieces of x, of six images each
    assert both.buffers.counts["x"] > 0
    fused = explain("conv2d", *layer, pieces=rows, activation="relu", **call)
    assert moves(fused) == 3
    assert fused.buffers.counts["x"] == 0 < fused.buffers.counts["y"]
    assert fused.bytes_in == 10 * 8 * 9 * 4
    filters = explain("conv2d_backward_filter", *layer, pieces=channels, **call)
    assert moves(filters) == 4  # of x, and of the two parts of the result


@pytest.mark.at_most(1)
@pytest.mark.parametrize("planner", ["greedy", "steepest", "exhaustive"])
@pytest.mark.parametrize("routine", FORMS)
def test_planners_cut_nothing_that_lies_on_the_device(routine: str, planner: Any) -> None:
    plan = explain(
        routine, (64, 64, 56, 56), (128, 64, 3, 3), device=Machine(), memory_budget=1 << 10,
        on_device=(*NAMES[routine], "out"), options=Options(planner=planner),
    )  # fmt: skip
    assert plan.pieces == Pieces(64, 56, 64, 128)
    assert plan.seconds == pytest.approx(plan.timeline.seconds)


def test_the_formula_is_the_timeline_s_where_some_arrays_lie_on_the_device() -> None:
    layer: Any = (32, 64, 56, 56), (64, 64, 3, 3)
    for depth, names in product((1, 2, 3), (("x",), ("out",), ("w", "out"), ("x", "out"))):
        for pieces in (Pieces(2, 56, 64, 64), Pieces(2, 56, 16, 64), Pieces(4, 14, 64, 64)):
            plan = explain(
                "conv2d", *layer, device=Machine(), pieces=pieces, on_device=names,
                options=Options(depth=depth),
            )  # fmt: skip
            assert -0.05 < plan.seconds / plan.timeline.seconds - 1 < 0.09, (depth, names, pieces)


# ---------------------------------------------------------------------------------- failures, bad input


@pytest.mark.parametrize(
    ("injection", "kind"), [(CopyFails("in", 0, after=7), CopyError), (DeviceLost(0, 6e-5), DeviceLostError)]
)
def test_a_failure_leaves_the_caller_s_memory_alone(injection: Any, kind: type[Exception]) -> None:
    layer, machine = Layer(), Machine(injections=[injection])
    x, w, dy = layer.operands()
    filters, out = put(machine, w), put(machine, dy)
    with pytest.raises(kind, match="device 0"):
        gpu.outofcore.conv2d(x, filters, device=machine, out=out, pieces=Pieces(1, 2, 2, 2))
    assert machine.allocated(0) == (filters.memory, out.memory)
    assert not machine.pinned()


X, W = np.ones((2, 4, 6, 6), np.float32), np.ones((3, 4, 3, 3), np.float32)
Y = np.ones((2, 3, 6, 6), np.float32)


def freed(machine: Machine) -> DeviceTensor:
    tensor = put(machine, X)
    machine.free(tensor.memory)
    return tensor


def nothing(_: Machine) -> DeviceTensor:
    memory: Any = "no memory"
    return DeviceTensor(memory, X.shape, np.dtype(np.float32))


def on_gpu(_: Machine) -> Any:
    return SimpleNamespace(
        __cuda_array_interface__={"shape": X.shape, "typestr": "<f4", "data": (4096, False), "version": 3}
    )


def test_what_is_not_a_tensor_of_four_axes() -> None:
    machine = Machine()
    with pytest.raises(ShapeError, match=r"the images have shape \(4, 6, 6\)"):
        gpu.outofcore.conv2d(put(machine, X[0]), W, device=machine)


def whole(machine: Machine, **of: Any) -> DeviceTensor:
    given: Any = {"shape": X.shape, "dtype": np.float32, **of}
    return DeviceTensor(machine.allocate(0, X.nbytes), **given)


REFUSED: list[tuple[type[Exception], str, Callable[[Machine], Any]]] = [
    (FreedMemoryError, r"x of shape \(2, 4, 6, 6\).*\nthe memory is freed, or of another", freed),
    (FreedMemoryError, "is freed, or of another machine", lambda machine: put(Machine(H200x2), X)),
    (FreedMemoryError, "is freed, or of another machine", nothing),
    (LaunchError, "x lies on device 1\nthe machine's first device", lambda machine: put(machine, X, 1)),
    (
        ShapeError,
        r"at byte 4, up to byte 1156\nits memory has 1152",
        lambda machine: whole(machine, offset=4),
    ),
    (ShapeError, "at byte -4", lambda machine: whole(machine, offset=-4)),
    (ShapeError, "at a multiple of an element", lambda machine: whole(machine, offset=2, shape=(1, 4, 3, 3))),
    (FormatError, "without gaps", lambda machine: whole(machine, strides=(576, 4, 96, 16))),
    (DtypeError, "x is of float64", lambda machine: put(machine, X.astype("f8"))),
    (DtypeError, "given to a Machine\nonly gpu.CudaMachine computes there", on_gpu),
]


@pytest.mark.parametrize(("error", "message", "make"), REFUSED)
def test_what_is_not_a_tensor_of_the_first_device(
    error: type[Exception], message: str, make: Callable[[Machine], Any]
) -> None:
    machine = Machine(H200x2)
    x = make(machine)
    with pytest.raises(error, match=message):
        gpu.outofcore.conv2d(x, W, device=machine)
    with pytest.raises(error, match=message.replace("x", "out", 1) if message.startswith("x") else message):
        gpu.outofcore.conv2d_backward_data(Y, W, X.shape, device=machine, out=make(machine))


def test_a_result_that_shares_memory_with_an_operand() -> None:
    machine = Machine()
    memory = machine.allocate(0, X.nbytes + Y.nbytes)
    x = DeviceTensor(memory, X.shape, X.dtype)
    over = DeviceTensor(memory, Y.shape, Y.dtype, offset=X.nbytes - 4)
    with pytest.raises(FormatError, match="out shares memory with x"):
        gpu.outofcore.conv2d(x, W, device=machine, out=over)
    frozen = DeviceTensor(memory, Y.shape, Y.dtype, is_writeable=False)
    with pytest.raises(FormatError, match="out is read-only"):
        gpu.outofcore.conv2d(X, W, device=machine, out=frozen)


def test_explain_knows_the_arguments_of_a_routine() -> None:
    call: Any = {"device": Machine()}
    with pytest.raises(SchemeError, match="gradient"):
        explain("conv2d", X.shape, W.shape, on_device=["gradient"], **call)
    with pytest.raises(SchemeError, match="bias"):
        explain("conv2d", X.shape, W.shape, on_device=["bias"], **call)
    plan = explain("conv2d_backward_filter", X.shape, W.shape, on_device=["gradient"], **call)
    assert plan.problem.on_device == {"y"}
    assert plan.bytes_in == X.nbytes


# ------------------------------------------------------------------------------------------------- GPUs


@pytest.mark.at_most(3)
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("routine", FORMS)
def test_a_gpu_reads_and_writes_tensors_where_they_lie(gpus, routine: str, name: str) -> None:
    layer, options = LAYERS[name], Options(rates=RATES)
    turn = len(LAYERS) * [*FORMS].index(routine) + [*LAYERS].index(name)
    for seed, pieces in enumerate((WHOLE, *SPLITS[turn::41])):
        found, machine = gpus(1, seed), CudaMachine()
        names = some(routine)[6 - seed % 7]
        result = layer.run(routine, machine, on_device=names, pieces=pieces, options=options)
        assert layer.error(routine, result) <= 1, (pieces, names)
        machine.close()
        assert found.is_clean()


@pytest.mark.at_most(1)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_gpu_fuses_bias_and_activation_where_the_result_lies(gpus, layout: str) -> None:
    layer, bias = Layer(options={"layout": layout}), np.linspace(-2, 2, 6, dtype=np.float32)
    gpus()
    with CudaMachine() as machine:
        for pieces, names in product((WHOLE, Pieces(2, 3, 3, 4)), (("out",), ("bias", "out"), ("x", "w"))):
            call: Any = {"bias": bias, "activation": "relu"}
            result = layer.run(
                "conv2d", machine, on_device=names, pieces=pieces, options=Options(rates=RATES), **call
            )
            assert layer.error("conv2d", result, **call) <= 1


class Shared:
    """Another library's array on a fake GPU, a few bytes behind the start of its memory."""

    def __init__(self, found: Any, values: Any, device: int = 0, behind: int = 4) -> None:
        found.driver.retained[device] += 1  # its library has a context, too
        found.driver.stack.append(100 + device)
        _, address = found.driver.cuMemAlloc(values.nbytes + behind)
        found.driver.stack.pop()
        found.driver.retained[device] -= 1
        self.ptr, self.shape, self.dtype, self.readonly = (
            int(address) + behind,
            values.shape,
            values.dtype,
            False,
        )
        self.strides = None
        data = found.driver.allocation(self.ptr, 1).data[behind:]
        self.values = data.view(values.dtype).reshape(values.shape)
        self.values[...] = values

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.ptr, False), "version": 3}


@pytest.mark.at_most(1)
@pytest.mark.parametrize("routine", FORMS)
def test_arrays_of_other_libraries_are_used_where_they_lie(gpus, monkeypatch: Any, routine: str) -> None:
    monkeypatch.setattr(device_tensor, "view_of", lambda array: (array, array.dtype))
    found, layer, counts = gpus(2), Layer((3, 4, 7, 5)), Statistics()
    with CudaMachine([0]) as machine:
        for pieces in (WHOLE, Pieces(2, 3, 3, 4), Pieces(1, 2, 4, 6)):
            first, second, *shape = layer.arguments(routine)
            x, w, dy = layer.operands()
            out = Shared(found, np.full_like({"y": dy, "x": x, "w": w}[FORMS[routine].output], np.nan))
            given: Any = {"device": machine, "out": out, "pieces": pieces, "statistics": counts}
            result = getattr(gpu.outofcore, routine)(
                Shared(found, first), Shared(found, second, behind=16), *shape,
                options=Options(rates=RATES), **given,
            )  # fmt: skip
            assert result is out
            assert layer.error(routine, out.values) <= 1
            assert counts.bytes_in == counts.bytes_out == 0
            assert not machine.allocated(0)
        out.readonly = True
        with pytest.raises(FormatError, match="out is read-only"):
            getattr(gpu.outofcore, routine)(first, second, *shape, **given)
        with pytest.raises(LaunchError, match="of CUDA device 1"):
            getattr(gpu.outofcore, routine)(Shared(found, first, 1), second, *shape, device=machine)


@pytest.mark.parametrize("call", ["cuMemcpy3DAsync", "cuMemcpy2DAsync", "cuStreamSynchronize"])
def test_a_failure_of_a_gpu_leaves_the_caller_s_memory_alone(gpus, call: str) -> None:
    layer = Layer()
    x, w, dy = layer.operands()
    found, machine = gpus(), CudaMachine(keep_memory=False, keep_pinned=False)
    images, out = put(machine, x), put(machine, dy)
    found.driver.failing = call, found.driver.calls.get(call, 0) + 1, "INVALID_VALUE"
    with pytest.raises(MachineError, match=f"{call}|the copy of"):
        gpu.outofcore.conv2d(
            images, w, device=machine, out=out, activation="relu", pieces=Pieces(2, 2, 2, 6),
            options=Options(rates=RATES),
        )  # fmt: skip
    assert machine.allocated(0) == (images.memory, out.memory)
    assert not machine.pinned()
    np.testing.assert_array_equal(get(machine, images), x)
    machine.close()
    assert found.is_clean()
