"""Bias, activation, pooling, dense and their gradients as calls of their own: in any budget as defined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import gpu.outofcore
from gpu.cuda_machine import CudaMachine
from gpu.outofcore import (
    AveragePool,
    DeviceTensor,
    MaxPool,
    Options,
    Rates,
    Statistics,
    activate,
    activate_backward,
    add_bias,
    conv2d_backward_bias,
    dense,
    dense_backward,
    map_pipeline,
    maps,
    pool2d,
    pool2d_backward,
)
from gpu.outofcore import calibration as gpu_rates
from gpu.outofcore.halo import output_rows
from gpu.outofcore.networks.routines import BiasGradient
from reference import training
from reference.errors import (
    DtypeError,
    FormatError,
    FreedMemoryError,
    LaunchError,
    NoGpuError,
    SchemeError,
    ShapeError,
)
from reference.training import ACTIVATIONS, average_pool2d, error_of, max_pool2d
from simwarp.machine import EVEREST, P100, CopyError, CopyFails, DeviceLost, DeviceLostError, Machine
from support.device_tensors import get, placed, put
from support.fake_gpus import gpus
from support.outofcore_calls import bfloat16

__all__ = ["gpus"]

RATES = Rates(1e-6, 5e10, 1e-6, 5e10, 5e-6, 5e13)
SHAPE = (3, 4, 13, 11)
DTYPES = {"float32": lambda: np.float32, "float16": lambda: np.float16, "bfloat16": bfloat16}
POOLS = {
    "pairs": MaxPool(2),
    "means of triples": AveragePool(3),
    "gaps between windows": AveragePool((2, 1), stride=(3, 2)),
    "padding": MaxPool(2, padding="SAME"),
    "overlaps": MaxPool(3, stride=2, padding=((1, 1), (1, 1))),
    "means that overlap": AveragePool((3, 2), stride=1),
}
BUDGETS = (256, 512, 1024, 3000, 20_000, None)
"""Some rows of a channel, some channels, some images, all."""


@dataclass(frozen=True)
class Call:
    """A call, its arrays by name, and its definition on arrays in double precision."""

    function: Any
    arrays: dict[str, Any]
    options: dict[str, Any]
    expected: Any

    def run(self, machine: Any, on_device: tuple[str, ...] = (), **how: Any) -> Any:
        """The result, in memory that was NaN; the arrays named lie on the device."""
        out = np.full(self.expected.shape, np.nan, self.expected.dtype)
        with placed(machine, on_device) as (given, got):
            arrays = [given(name, x) for name, x in self.arrays.items()]
            call = self.options | {"device": machine, "out": given("out", out)} | how
            return got(self.function(*arrays, **call))


def values(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def biased(layout: str = "NCHW", dtype: Any = np.float32) -> Call:
    shape = SHAPE if layout == "NCHW" else (SHAPE[0], *SHAPE[2:], SHAPE[1])
    x, bias = values(*shape, dtype=dtype), values(SHAPE[1], dtype=dtype, seed=1)
    added = bias.reshape(-1, 1, 1) if layout == "NCHW" else bias
    expected = (x.astype(np.float64) + added.astype(np.float64)).astype(dtype)
    return Call(add_bias, {"x": x, "bias": bias}, {"layout": layout}, expected)


def activated(activation: str, layout: str = "NCHW", dtype: Any = np.float32) -> Call:
    x = values(*SHAPE, dtype=dtype)
    expected = getattr(training, activation)(x.astype(np.float64)).astype(dtype)
    return Call(activate, {"x": x}, {"activation": activation, "layout": layout}, expected)


def pooled(pool: Any, shape: tuple[int, ...] = SHAPE) -> Call:
    x = values(*shape)
    define = max_pool2d if isinstance(pool, MaxPool) else average_pool2d
    expected = define(x, pool.window, stride=pool.stride, padding=pool.padding).astype(np.float32)
    return Call(pool2d, {"x": x}, {"pool": pool}, expected)


def summed() -> Call:
    dy = values(*SHAPE)
    return Call(
        conv2d_backward_bias,
        {"gradient": dy},
        {},
        training.conv2d_backward_bias(dy).astype(np.float32),
    )


def of_activation(activation: str) -> Call:
    forward, backward = ACTIVATIONS[activation]
    dy, y = values(*SHAPE, seed=3), forward(values(*SHAPE)).astype(np.float32)
    expected = backward(dy, y).astype(np.float32)
    return Call(activate_backward, {"gradient": dy, "y": y}, {"activation": activation}, expected)


def of_pooling(pool: Any, x: Any = None) -> Call:
    x = values(*SHAPE) if x is None else x
    how = {"stride": pool.stride, "padding": pool.padding}
    dy = values(*pooled(pool).expected.shape, seed=3)
    if isinstance(pool, MaxPool):
        expected = training.max_pool2d_backward(dy, x, pool.window, **how)
    else:
        expected = training.average_pool2d_backward(dy, x.shape, pool.window, **how)
    return Call(pool2d_backward, {"gradient": dy, "x": x}, {"pool": pool}, expected.astype(np.float32))


GRADIENTS = {
    "gradient of bias": summed(),
    **{f"gradient of {name}": of_activation(name) for name in ("relu", "tanh", "sigmoid")},
    **{f"gradient of {name}": of_pooling(pool) for name, pool in POOLS.items()},
}
CALLS = {
    "bias": biased(),
    "bias, channels last": biased("NHWC"),
    **{name: activated(name) for name in ("relu", "tanh", "sigmoid")},
    "relu, channels last": activated("relu", "NHWC"),
    **{name: pooled(pool) for name, pool in POOLS.items()},
    **GRADIENTS,
}


def is_clean(machine: Machine) -> bool:
    return not machine.pinned() and not machine.allocated(0)


@pytest.mark.at_most(2)
@pytest.mark.parametrize("name", CALLS)
def test_every_budget_gives_the_bits_of_the_definition(name: str) -> None:
    call = CALLS[name]
    for seed, budget in enumerate(BUDGETS):
        machine = Machine(seed=seed, jitter=20.0)
        try:
            found = call.run(machine, memory_budget=budget, options=Options(depth=1 + seed % 3))
        except LaunchError as error:
            least = int(str(error).rpartition("memory_budget=")[2].split()[0])
            assert budget is not None
            assert budget < least
            found = call.run(machine, memory_budget=least)
        np.testing.assert_array_equal(found, call.expected, err_msg=f"{budget}")
        assert is_clean(machine)


@pytest.mark.at_most(2)
@pytest.mark.parametrize("name", CALLS)
def test_where_arrays_lie_changes_no_bit(name: str) -> None:
    call = CALLS[name]
    names = *call.arrays, "out"
    for mask in range(1 << len(names)):
        there = tuple(one for bit, one in enumerate(names) if mask >> bit & 1)
        machine, counts = Machine(seed=mask, jitter=20.0), Statistics()
        for budget in (4000, None):
            found = call.run(machine, there, memory_budget=budget, statistics=counts)
            np.testing.assert_array_equal(found, call.expected, err_msg=f"{there} {budget}")
            assert (counts.bytes_out == 0) == ("out" in there and call.function is not conv2d_backward_bias)
            is_mean = name in GRADIENTS and isinstance(call.options.get("pool"), AveragePool)
            read = {*call.arrays} - ({"x"} if is_mean else set())
            assert (counts.bytes_in == 0) == (read <= {*there})
        assert is_clean(machine)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_dtypes_are_rounded_once(dtype: str) -> None:
    kind = DTYPES[dtype]()
    for call in (biased(dtype=kind), biased("NHWC", kind), activated("tanh", dtype=kind)):
        found = call.run(Machine(), memory_budget=1500)
        np.testing.assert_array_equal(found.view(np.uint16), call.expected.view(np.uint16))


def test_a_result_may_take_the_place_of_its_operand() -> None:
    machine, call = Machine(), CALLS["bias"]
    x, bias = call.arrays["x"].copy(), call.arrays["bias"]
    assert add_bias(x, bias, device=machine, out=x, memory_budget=2000) is x
    np.testing.assert_array_equal(x, call.expected)
    there = put(machine, call.arrays["x"])
    assert add_bias(there, bias, device=machine, out=there) is there
    np.testing.assert_array_equal(get(machine, there), call.expected)
    assert activate(there, "relu", device=machine, out=there, memory_budget=0) is there
    np.testing.assert_array_equal(get(machine, there), np.maximum(call.expected, 0))


def test_parts_of_arrays_are_read_and_written() -> None:
    whole, out = values(3, 8, 26, 11), np.zeros((3, 9, 13, 11), np.float32)
    x = whole[:, 2:6, ::2]
    assert not x.flags.c_contiguous
    activate(x, "relu", device=Machine(), out=out[:, 1:5], memory_budget=2000)
    np.testing.assert_array_equal(out[:, 1:5], np.maximum(x, 0))
    assert not out[:, :1].any()
    assert not out[:, 5:].any()
    found = pool2d(x, MaxPool(2), device=Machine(), memory_budget=1500)
    np.testing.assert_array_equal(found, max_pool2d(x, 2).astype(np.float32))


def test_three_calls_are_the_fused_one_and_copy_the_map_three_times() -> None:
    x, w, bias = values(4, 8, 16, 16), values(8, 8, 3, 3, seed=1), values(8, seed=2)
    machine, counts = Machine(P100), [Statistics() for _ in range(4)]
    call: Any = {"device": machine, "memory_budget": 40_000}
    y = gpu.outofcore.conv2d(x, w, **call, statistics=counts[0])
    add_bias(y, bias, **call, out=y, statistics=counts[1])
    activate(y, "relu", **call, out=y, statistics=counts[2])
    fused = gpu.outofcore.conv2d(x, w, bias, activation="relu", **call, statistics=counts[3])
    assert error_of("conv2d", fused, x, w, bias, activation="relu") <= 1
    np.testing.assert_allclose(y, fused, rtol=1e-5, atol=1e-5)
    assert [one.bytes_out for one in counts] == [y.nbytes] * 4
    assert [one.bytes_in for one in counts[1:3]] == [y.nbytes + bias.nbytes, y.nbytes]
    assert counts[3].seconds < 0.6 * sum(one.seconds for one in counts[:3])


@pytest.mark.parametrize("topology", [P100, EVEREST])
@pytest.mark.parametrize("name", CALLS)
def test_the_model_has_the_bytes_and_seconds_of_the_clock(name: str, topology: Any) -> None:
    call, counts = CALLS[name], Statistics()
    for there in ((), (next(iter(call.arrays)),), ("out",)):
        for depth in (1, 2, 3):
            machine = Machine(topology)
            call.run(machine, there, memory_budget=4000, options=Options(depth=depth), statistics=counts)
            assert counts.model_error == pytest.approx(0, abs=1e-9), (there, depth)


def test_pieces_overlap_and_fit_the_budget() -> None:
    x = np.zeros((64, 16, 64, 64), np.float32)
    machine, used = Machine(P100, values=False), list[int]()
    allocate = machine.allocate
    machine.allocate = lambda device, nbytes: used.append(nbytes) or allocate(device, nbytes)
    counts = Statistics()
    activate(x, "relu", device=machine, memory_budget=4 << 20, statistics=counts)
    assert used[0] <= 4 << 20
    both = 2 * x.nbytes / 19e9
    assert both < counts.seconds < 1.2 * both


@pytest.mark.parametrize("function", ["bias", "relu", "pairs", "gradient of relu", "gradient of pairs"])
def test_a_batch_without_images_has_no_result(function: str) -> None:
    call, machine, counts = CALLS[function], Machine(), Statistics()
    arrays = {name: x[:0] if x.ndim == 4 else x for name, x in call.arrays.items()}
    found = call.function(*arrays.values(), **call.options, device=machine, statistics=counts)
    assert found.shape == (0, *call.expected.shape[1:])
    assert (counts.bytes_in, counts.seconds, machine.timeline.seconds) == (0, 0, 0)


# ------------------------------------------------------------------------------------------- gradients


def layers_of(name: str) -> tuple[Any, Any]:
    """The layer of a gradient as a function of its images in double precision, and these."""
    call = GRADIENTS[f"gradient of {name}"]
    if name == "bias":
        return lambda b: b.reshape(-1, 1, 1) + np.zeros(SHAPE), np.zeros(SHAPE[1])
    if name in ACTIVATIONS:
        return ACTIVATIONS[name][0], values(*SHAPE).astype(np.float64)
    pool = call.options["pool"]
    define = max_pool2d if isinstance(pool, MaxPool) else average_pool2d
    x = call.arrays["x"].astype(np.float64)
    return lambda x: define(x, pool.window, stride=pool.stride, padding=pool.padding), x


@pytest.mark.parametrize("name", ["bias", *ACTIVATIONS, *POOLS])
def test_gradients_are_central_differences(name: str) -> None:
    layer, at = layers_of(name)
    call, step = GRADIENTS[f"gradient of {name}"], 1e-5
    found = call.run(Machine(), memory_budget=5000 if name != "bias" else None)
    weights = call.arrays["gradient"].astype(np.float64)
    for index in np.random.default_rng(4).integers(at.size, size=12):
        up, down = at.copy(), at.copy()
        up.flat[index] += step
        down.flat[index] -= step
        difference = ((layer(up) - layer(down)) * weights).sum() / (2 * step)
        assert found.flat[index] == pytest.approx(difference, rel=1e-3, abs=1e-4)


def shorter(plane: Any, rows: range) -> range:
    """A halo one row short."""
    found = output_rows(plane, rows)
    return range(found.start, max(found.stop - 1, found.start + 1))


@pytest.mark.parametrize(
    ("name", "module", "attribute", "fault"),
    [
        ("overlaps", maps, "output_rows", shorter),
        ("means that overlap", maps, "output_rows", shorter),
        ("overlaps", maps, "hull", lambda rows, read: range(rows.start, max(rows.stop, read.stop))),
        ("bias", map_pipeline, "BiasGradient", lambda *args, **how: BiasGradient(*args[:5], True, **how)),
    ],
)
def test_a_planted_fault_changes_a_gradient(
    monkeypatch: Any, name: str, module: Any, attribute: str, fault: Any
) -> None:
    call = GRADIENTS[f"gradient of {name}"]
    np.testing.assert_array_equal(call.run(Machine(), memory_budget=1500), call.expected)
    monkeypatch.setattr(module, attribute, fault)
    assert (call.run(Machine(), memory_budget=1500) != call.expected).any()


def test_a_gradient_may_take_the_place_of_its_operand() -> None:
    machine, call = Machine(), GRADIENTS["gradient of tanh"]
    dy, y = call.arrays["gradient"].copy(), call.arrays["y"]
    assert activate_backward(dy, y, "tanh", device=machine, out=dy, memory_budget=2000) is dy
    np.testing.assert_array_equal(dy, call.expected)
    there = put(machine, call.arrays["gradient"])
    assert activate_backward(there, y, "tanh", device=machine, out=there, memory_budget=4000) is there
    np.testing.assert_array_equal(get(machine, there), call.expected)


def test_means_need_the_shape_alone() -> None:
    call, counts = GRADIENTS["gradient of means of triples"], Statistics()
    dy, how = call.arrays["gradient"], {"device": Machine(), "statistics": counts}
    found = pool2d_backward(dy, SHAPE, call.options["pool"], **how)
    np.testing.assert_array_equal(found, call.expected)
    assert counts.bytes_in == dy.nbytes


def test_gradients_of_parts_of_arrays() -> None:
    whole = values(3, 8, 26, 11)
    y = np.maximum(values(3, 9, 13, 11, seed=1), 0)
    dy, out = whole[:, 2:6, ::2], np.zeros((3, 9, 13, 11), np.float32)
    activate_backward(dy, y[:, 3:7], "relu", device=Machine(), out=out[:, 1:5], memory_budget=2000)
    np.testing.assert_array_equal(out[:, 1:5], np.where(y[:, 3:7] > 0, dy, 0))
    assert not out[:, :1].any()
    assert not out[:, 5:].any()
    np.testing.assert_allclose(conv2d_backward_bias(dy, device=Machine()), dy.sum((0, 2, 3)), rtol=1e-4)


@pytest.mark.at_most(2)
@pytest.mark.parametrize("there", [(), ("gradient", "x", "w"), ("out",)])
def test_gradients_of_a_dense_layer_are_within_their_bounds(there: tuple[str, ...]) -> None:
    arrays = {"gradient": values(9, 12, seed=2), "x": values(9, 40), "w": values(12, 40, seed=1)}
    expected, machine, counts = training.dense_backward(*arrays.values()), Machine(), Statistics()
    memory = {name: put(machine, x) if name in there else x for name, x in arrays.items()}
    out: Any = (None,) * 3
    if there == ("out",):
        out = tuple(put(machine, one.astype(np.float32)) for one in expected)
    how: Any = {"device": machine, "memory_budget": 3000, "statistics": counts}
    found = dense_backward(*memory.values(), out=out, **how)
    assert counts.bytes_in + counts.bytes_out > 0
    for one, right, depth in zip(found, expected, (12, 9, 9), strict=True):
        got = get(machine, one) if isinstance(one, DeviceTensor) else one
        np.testing.assert_allclose(got, right, rtol=0, atol=depth * 2**-23 * 12)


# ----------------------------------------------------------------------------------------------- dense


@pytest.mark.at_most(1)
@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_a_dense_layer_is_within_its_bound(activation: Any) -> None:
    x, w, bias = values(9, 40), values(12, 40, seed=1), values(12, seed=2)
    names = ("x", "w", "bias", "out")
    for mask in range(16):
        there = tuple(one for bit, one in enumerate(names) if mask >> bit & 1)
        call = Call(dense, {"x": x, "w": w, "bias": bias}, {"activation": activation}, x @ w.T)
        machine = Machine(seed=mask, jitter=20.0)
        found = call.run(machine, there, memory_budget=(3000, None)[mask % 2])
        wide: Any = (found[:, :, None, None], x[:, :, None, None], w[:, :, None, None], bias)
        assert error_of("conv2d", *wide, activation=activation) <= 1
        assert is_clean(machine)


def test_dense_rows_may_be_a_part_of_an_array() -> None:
    x, w, out = values(9, 50)[:, 3:43], values(12, 40, seed=1), np.zeros((9, 20), np.float32)
    found = dense(x, w, device=Machine(), out=out[:, 2:14])
    np.testing.assert_allclose(found, x @ w.T, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(out[:, 2:14], found)
    assert not out[:, :2].any()
    np.testing.assert_array_equal(dense(x, w, device=Machine()), found)


# ---------------------------------------------------------------------------------- failures, bad input


@pytest.mark.parametrize(
    ("injection", "kind"), [(CopyFails("in", 0, after=3), CopyError), (DeviceLost(0, 2e-5), DeviceLostError)]
)
@pytest.mark.parametrize("name", ["bias", "relu", "pairs", "gradient of overlaps"])
def test_a_failure_leaves_nothing_behind(name: str, injection: Any, kind: type[Exception]) -> None:
    machine, call = Machine(injections=[injection]), CALLS[name]
    before = {key: x.copy() for key, x in call.arrays.items()}
    with pytest.raises(kind, match="device 0"):
        call.run(machine, memory_budget=1000)
    assert is_clean(machine)
    for key, x in before.items():
        np.testing.assert_array_equal(call.arrays[key], x)


def test_what_is_refused() -> None:
    machine, other = Machine(), Machine()
    x, bias = values(*SHAPE), values(4)
    how: Any = {"device": Machine()}
    wrong: Any = "softmax"
    two: Any = 2
    frozen = x.copy()
    frozen.flags.writeable = False
    there = put(other, x)
    for error, message, call in (
        (ShapeError, "the images have shape", lambda: add_bias(x[0], bias, **how)),
        (ShapeError, r"bias has shape \(3,\)", lambda: add_bias(x, bias[:3], **how)),
        (ShapeError, r"bias has shape \(4,\)", lambda: add_bias(x, bias, layout="NHWC", **how)),
        (DtypeError, "bias is of float16", lambda: add_bias(x, bias.astype(np.float16), **how)),
        (DtypeError, "x is a list", lambda: activate([1.0], "relu", **how)),
        (SchemeError, "softmax", lambda: activate(x, wrong, **how)),
        (SchemeError, "softmax", lambda: activate(x, "relu", layout=wrong, **how)),
        (SchemeError, "pool is 2", lambda: pool2d(x, two, **how)),
        (SchemeError, "float32 in NCHW", lambda: pool2d(x.astype(np.float16), MaxPool(2), **how)),
        (ShapeError, "outside the image", lambda: pool2d(x, MaxPool(2, padding=3), **how)),
        (ShapeError, "out has shape", lambda: activate(x, "relu", out=x[:2].copy(), **how)),
        (FormatError, "out is read-only", lambda: activate(frozen, "relu", out=frozen, **how)),
        (FormatError, "out shares memory with x", lambda: activate(x, "relu", out=x.view(), **how)),
        (FormatError, "out shares memory with x", lambda: pool2d(x, MaxPool(1), out=x, **how)),
        (FreedMemoryError, "of another machine", lambda: activate(there, "relu", device=machine)),
        (LaunchError, "smallest pieces need 256 bytes", lambda: activate(x, "relu", memory_budget=9, **how)),
        (ShapeError, "dense layer has two axes", lambda: dense(x, x, **how)),
        (ShapeError, "x has rows of 4 numbers, w of 3", lambda: dense(values(2, 4), values(2, 3), **how)),
        (DtypeError, "x is a list", lambda: dense([[1.0]], values(1, 1), **how)),
        (SchemeError, "are for float32", lambda: conv2d_backward_bias(x.astype(np.float16), **how)),
        (
            SchemeError,
            "are for float32",
            lambda: activate_backward(*2 * [x.astype(np.float16)], "relu", **how),
        ),
        (ShapeError, "y has shape", lambda: activate_backward(x, x[:1], "relu", **how)),
        (SchemeError, "softmax", lambda: activate_backward(x, x, wrong, **how)),
        (
            FormatError,
            "shares memory with y",
            lambda: activate_backward(x, there, "relu", out=there, device=other),
        ),
        (ShapeError, "gradient has shape", lambda: pool2d_backward(x, x, MaxPool(2), **how)),
        (DtypeError, "x is a tuple", lambda: pool2d_backward(x, SHAPE, MaxPool(2), **how)),
        (SchemeError, "pool is 2", lambda: pool2d_backward(x, x, two, **how)),
        (ShapeError, "out has shape", lambda: conv2d_backward_bias(x, out=bias[:2].copy(), **how)),
        (ShapeError, "gradient has shape", lambda: dense_backward(*3 * [values(2, 3)], **how)),
        (ShapeError, "w has shape", lambda: dense_backward(values(2, 3), values(2, 3), values(3, 4), **how)),
    ):
        with pytest.raises(error, match=message):
            call()


def test_without_a_gpu_a_machine_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for call in (
        lambda: add_bias(values(*SHAPE), values(4)),
        lambda: activate(values(*SHAPE), "relu"),
        lambda: pool2d(values(*SHAPE), MaxPool(2)),
        lambda: conv2d_backward_bias(values(*SHAPE)),
        lambda: dense(values(2, 4), values(3, 4)),
    ):
        with pytest.raises(NoGpuError, match="needs a GPU"):
            call()


# ------------------------------------------------------------------------------------------------- GPUs


@pytest.mark.slow
@pytest.mark.at_most(6)
@pytest.mark.parametrize("name", CALLS)
def test_a_gpu_computes_pieces_wherever_they_lie(gpus: Any, name: str) -> None:
    call, found = CALLS[name], gpus()
    least = 40_000 if call.function is conv2d_backward_bias else 4000  # GPUs add up parts of the sums
    with CudaMachine() as machine:
        for there in ((), (next(iter(call.arrays)),), ("out",), (*call.arrays, "out")):
            for budget in (least, None):
                options = Options(rates=RATES)
                result = call.run(machine, there, memory_budget=budget, options=options)
                np.testing.assert_allclose(result, call.expected, rtol=1e-6, atol=1e-6)
        assert not machine.allocated(0)
        assert not machine.pinned()
    assert found.is_clean()


def test_gradients_of_a_dense_layer_take_another_library_s_memory(gpus: Any) -> None:
    found = gpus()
    arrays = {"gradient": values(9, 12, seed=2), "x": values(9, 40), "w": values(12, 40, seed=1)}
    expected = training.dense_backward(*arrays.values())
    with CudaMachine() as machine:
        held = {name: put(machine, x) for name, x in arrays.items()}
        lent = [
            DeviceTensor(
                machine.borrow(x.memory.address, x.memory.nbytes), x.shape, x.dtype, x.offset, given=held
            )
            for x in held.values()
        ]
        for found_here, right in zip(
            dense_backward(*lent, device=machine, options=Options(rates=RATES)), expected, strict=True
        ):
            np.testing.assert_allclose(found_here, right, rtol=1e-4, atol=1e-4)
        for x in held.values():
            machine.free(x.memory)
    assert found.is_clean()


def test_a_gpu_s_copies_are_measured_once(gpus: Any, monkeypatch: Any, tmp_path: Any) -> None:
    monkeypatch.setenv("SIMWARP_CACHE", str(tmp_path))
    monkeypatch.setattr(gpu_rates, "COPY_BYTES", 1 << 14)
    gpus()
    with CudaMachine() as machine:
        first, again = (gpu_rates.copy_rates(machine, 1 << 20) for _ in range(2))
        assert first == again
        assert first.in_bytes_per_second > 0
        np.testing.assert_array_equal(CALLS["relu"].run(machine), CALLS["relu"].expected)
    assert len([*tmp_path.rglob("*.json")]) == 1
