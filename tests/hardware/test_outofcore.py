"""Out-of-core convolutions on real GPUs: layers of all kinds, cut in any way, in all dtypes."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpu
import gpu.outofcore
from gpu.cuda_machine import default_machine
from gpu.outofcore import AveragePool, MaxPool, Options, Pieces, Rates, Statistics, explain
from gpu.outofcore.problem import FORMS
from reference import training
from reference.errors import LaunchError
from reference.training import ACTIVATIONS, bounded, error_of
from support.outofcore_calls import LAYERS, NAMES, WHOLE, Layer, bfloat16, parts_of, pooled

pytestmark = pytest.mark.gpu

DTYPES = ("float32", "tf32", "float16", "bfloat16")
RATES = Rates(3e-6, 5e10, 3e-6, 5e10, 1e-5, 3e13)
"""No rates are measured for layers of a few pixels."""
PLAIN = Options(rates=RATES)
SPLITS = [Pieces(*sizes) for sizes in product((1, 2, 99), (1, 2, 99), (1, 3, 99), (1, 4, 99))]


@pytest.fixture(scope="module")
def machine() -> Any:
    default_machine()
    with gpu.CudaMachine([0]) as made:
        yield made


def of_dtype(layer: Layer, dtype: str) -> tuple[Layer, Options, bool]:
    """A layer in a dtype, the options for it, and whether it is TF32."""
    found = {"float16": lambda: np.float16, "bfloat16": bfloat16}.get(dtype, lambda: np.float32)()
    is_tf32 = dtype == "tf32"
    return (
        Layer(layer.images, layer.filters, layer.options, dtype=found),
        replace(PLAIN, math="tf32" if is_tf32 else "fp32"),
        is_tf32,
    )


def is_clean(machine: Any) -> bool:
    return not machine.pinned() and not machine.allocated(0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("routine", FORMS)
def test_a_split_is_within_the_bound(machine: Any, routine: str, name: str, dtype: str) -> None:
    layer, options, tf32 = of_dtype(LAYERS[name], dtype)
    for pieces in (WHOLE, *SPLITS[4::16]):
        found = layer.run(routine, machine, pieces=pieces, options=options)
        assert is_clean(machine)
        assert layer.error(routine, found, tf32=tf32, parts=parts_of(routine, layer, pieces)) <= 1, pieces


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_bias_and_activation_follow_the_last_term(
    machine: Any, activation: Any, layout: Any, dtype: str
) -> None:
    layer, options, tf32 = of_dtype(Layer(options={"layout": layout}), dtype)
    x, w, _ = layer.operands()
    bias = np.linspace(-2, 2, 6).astype(layer.dtype)
    for pieces in (WHOLE, Pieces(2, 3, 4, 4), Pieces(1, 2, 1, 5)):
        call = {"activation": activation, "layout": layout}
        found = gpu.outofcore.conv2d(x, w, bias, device=machine, pieces=pieces, options=options, **call)
        parts = parts_of("conv2d", layer, pieces)
        assert error_of("conv2d", found, x, w, bias, tf32=tf32, parts=parts, **call) <= 1, pieces


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("routine", FORMS)
def test_a_layer_of_real_size_in_a_small_budget(machine: Any, routine: str, layout: Any, dtype: str) -> None:
    images, filters = (6, 32, 40, 44), (48, 32, 3, 3)
    layer, options, tf32 = of_dtype(Layer(images, filters, {"layout": layout}), dtype)
    statistics = Statistics()
    found = layer.run(routine, machine, memory_budget=1_500_000, options=options, statistics=statistics)
    assert layer.error(routine, found, tf32=tf32, parts=240) <= 1
    assert statistics.bytes_out == found.nbytes
    again = layer.run(routine, machine, memory_budget=1_500_000, options=options)
    np.testing.assert_array_equal(found.view(np.uint8), again.view(np.uint8))


def test_a_machine_repeats_its_bits_and_another_one_is_right(machine: Any) -> None:
    layer, call = Layer((4, 16, 30, 30), (16, 16, 3, 3)), {"pieces": Pieces(1, 7, 16, 16), "options": PLAIN}
    first = layer.run("conv2d_backward_filter", machine, **call)
    for _ in range(3):
        np.testing.assert_array_equal(layer.run("conv2d_backward_filter", machine, **call), first)
    with gpu.CudaMachine([0]) as other:
        found = layer.run("conv2d_backward_filter", other, **call)
    assert layer.error("conv2d_backward_filter", found) <= 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("routine", FORMS)
def test_tensors_on_the_device_are_used_where_they_lie(
    machine: Any, routine: str, name: str, dtype: str
) -> None:
    layer, options, tf32 = of_dtype(LAYERS[name], dtype)
    operands = NAMES[routine]
    for pieces, names in product(
        (WHOLE, *SPLITS[4::22]), ((*operands, "out"), operands[:1], operands[1:], ("out",))
    ):
        found = layer.run(routine, machine, on_device=names, pieces=pieces, options=options)
        assert is_clean(machine)
        error = layer.error(routine, found, tf32=tf32, parts=parts_of(routine, layer, pieces))
        assert error <= 1, (pieces, names)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_bias_and_activation_follow_on_the_device(machine: Any, layout: Any) -> None:
    layer, bias = Layer(options={"layout": layout}), np.linspace(-2, 2, 6, dtype=np.float32)
    for pieces in (WHOLE, Pieces(2, 3, 4, 4), Pieces(1, 2, 1, 5)):
        call: Any = {"bias": bias, "activation": "relu"}
        found = layer.run("conv2d", machine, on_device=("bias", "out"), pieces=pieces, options=PLAIN, **call)
        assert layer.error("conv2d", found, **call) <= 1


@pytest.mark.parametrize("library", ["torch", "cupy"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("routine", FORMS)
def test_arrays_of_other_libraries_are_used_where_they_lie(
    machine: Any, routine: str, layout: Any, library: str
) -> None:
    module = pytest.importorskip(library)
    layer, counts = Layer((6, 32, 40, 44), (48, 32, 3, 3), {"layout": layout}), Statistics()
    upload = (lambda x: module.from_numpy(x).cuda()) if library == "torch" else module.asarray
    first, second, *shape = layer.arguments(routine)
    x, w, dy = layer.operands()
    like = {"x": x, "w": w, "y": dy}[FORMS[routine].output]
    for place in (upload, lambda x: x):
        for pieces in (None, Pieces(4, 17, 32, 48), Pieces(4, 17, 16, 48)):
            out = upload(np.full_like(like, np.nan))
            result = getattr(gpu.outofcore, routine)(
                upload(first), place(second), *shape, device=machine, out=out, pieces=pieces,
                options=PLAIN, statistics=counts, layout=layout,
            )  # fmt: skip
            assert result is out
            host = out.cpu().numpy() if library == "torch" else out.get()
            assert layer.error(routine, host, parts=3) <= 1
            assert counts.bytes_out == 0
            assert counts.bytes_in == 0 or place is not upload
    assert is_clean(machine)


@pytest.mark.parametrize("routine", FORMS)
def test_padding_that_differs_on_opposite_sides_is_in_a_copy(machine: Any, routine: str) -> None:
    layer = Layer((2, 1, 2, 6), (5, 1, 1, 3), {"padding": ((1, 0), (1, 2))})
    for pieces in (Pieces(1, 1, 1, 4), Pieces(2, 3, 1, 5)):
        assert layer.error(routine, layer.run(routine, machine, pieces=pieces, options=PLAIN), parts=6) <= 1


POOLS = [MaxPool(2), AveragePool((3, 2)), MaxPool(3, stride=2, padding=((1, 1), (1, 1)))]


@pytest.mark.parametrize("math", ["fp32", "tf32"])
@pytest.mark.parametrize("pool", POOLS, ids=str)
def test_pooling_is_the_host_s_definition_of_it(machine: Any, pool: Any, math: Any) -> None:
    layer, bias = Layer((6, 32, 42, 44), (48, 32, 3, 3)), np.linspace(-1, 1, 48, dtype=np.float32)
    counts, (x, w, _) = Statistics(), layer.operands()
    how: Any = {"activation": "relu", "tf32": math == "tf32", "parts": 2, "dtype": x.dtype}
    expected, bound = bounded("conv2d", x, w, bias, **how)
    windows = MaxPool(pool.window, pool.stride, pool.padding)
    call: Any = {"bias": bias, "activation": "relu", "options": replace(PLAIN, math=math)}
    for pieces, names in product((WHOLE, Pieces(2, 7, 32, 20), Pieces(3, 9, 16, 48)), ((), ("out",))):
        found = layer.run(
            "conv2d", machine, pool=pool, pieces=pieces, on_device=names, statistics=counts, **call
        )
        assert is_clean(machine)
        assert counts.bytes_out == (0 if names else found.nbytes)
        limit = pooled(windows, bound) + np.finfo(np.float32).eps * np.abs(found)
        assert (np.abs(found - pooled(pool, expected)) <= limit).all(), (pieces, names)
    whole = layer.run("conv2d", machine, pieces=WHOLE, **call)
    fused = layer.run("conv2d", machine, pieces=WHOLE, pool=pool, **call)
    np.testing.assert_allclose(fused, pooled(pool, whole), rtol=2.0**-23)  # means have another order


def test_page_locked_arrays_are_used_as_they_are(machine: Any) -> None:
    torch = pytest.importorskip("torch")
    layer = Layer((6, 32, 40, 44), (48, 32, 3, 3))
    x, w, dy = layer.operands()
    pinned = [torch.from_numpy(one).pin_memory().numpy() for one in (x, w, np.zeros_like(dy))]
    before = machine.registered()
    found = gpu.outofcore.conv2d(*pinned[:2], device=machine, out=pinned[2], options=PLAIN)
    assert machine.registered() == before
    assert layer.error("conv2d", found) <= 1
    registered = gpu.outofcore.conv2d(x, w, device=machine, options=PLAIN)
    assert machine.registered() >= before + x.nbytes
    assert layer.error("conv2d", registered) <= 1


def test_a_workspace_that_is_too_small_is_refused_before_anything_is_written(machine: Any) -> None:
    layer = LAYERS["asymmetric"]
    x, dy, shape = layer.arguments("conv2d_backward_filter")
    out = np.full(shape, 7, np.float32)
    with pytest.raises(LaunchError, match="workspace of 0 bytes"):
        gpu.outofcore.conv2d_backward_filter(
            x, dy, shape, device=machine, out=out, options=Options(workspace=0, rates=RATES), **layer.options
        )
    assert (out == 7).all()
    assert is_clean(machine)


def test_float32_is_not_rounded_to_tf32(machine: Any) -> None:
    layer = Layer((8, 64, 28, 28), (64, 64, 3, 3))
    for routine in FORMS:
        plain = layer.run(routine, machine, options=PLAIN)
        rough = layer.run(routine, machine, options=replace(PLAIN, math="tf32"))
        exact = layer.run(routine, machine, options=replace(PLAIN, workspace=1 << 28))
        for found, least, most in ((plain, 0, 1e-5), (exact, 0, 1e-5), (rough, 1e-5, 1e-2)):
            error = distance(layer, routine, found)
            assert least <= error < most, (routine, error)


LARGE: list[tuple[Any, Any]] = [
    ((6, 32, 28, 30), (48, 32, 3, 3)),
    ((16, 64, 14, 14), (64, 64, 3, 3)),
    ((5, 16, 33, 31), (24, 16, 5, 5)),
    ((4, 24, 17, 19), (24, 12, 3, 3)),
]
"""Layers that have engines with transforms, and one of two groups."""


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("shapes", LARGE, ids=str)
@pytest.mark.parametrize("routine", FORMS)
def test_transforms_are_within_their_bound(machine: Any, routine: str, shapes: Any, layout: Any) -> None:
    groups = shapes[0][1] // shapes[1][1]
    layer, options = Layer(*shapes, {"layout": layout, "groups": groups}), replace(PLAIN, transforms=True)
    for pieces in (WHOLE, Pieces(3, 99, 99, 99), Pieces(3, 9, 16, 99)):
        found = layer.run(routine, machine, pieces=pieces, options=options)
        assert is_clean(machine)
        assert layer.error(routine, found, transforms=True) <= 1, pieces
        assert distance(layer, routine, found) < 1e-4
    again = layer.run(routine, machine, pieces=pieces, options=options)
    np.testing.assert_array_equal(found, again)


@pytest.mark.parametrize("shapes", LARGE, ids=str)
@pytest.mark.parametrize("routine", FORMS)
def test_exact_engines_do_not_spread_a_large_pixel(machine: Any, routine: str, shapes: Any) -> None:
    """An engine with transforms that has no note on it would be found here."""
    layer = Layer(*shapes, {"groups": shapes[0][1] // shapes[1][1]})
    first, *others = layer.arguments(routine)
    first[0, :, 0, 0] = 1e7
    call = {"device": machine, "options": replace(PLAIN, workspace=1 << 30)}
    found = getattr(gpu.outofcore, routine)(first, *others, **call, **layer.options)
    assert error_of(routine, found, first, *others, **layer.options) <= 1


def distance(layer: Layer, routine: str, found: Any) -> float:
    """The largest error over the largest number."""
    expected = getattr(training, routine)(*layer.arguments(routine), **layer.options)
    return float(np.abs(found - expected).max() / np.abs(expected).max())


POOLS = {"pairs": MaxPool(2), "overlaps": MaxPool(3, stride=2, padding=1), "means": AveragePool(3)}


@pytest.mark.parametrize("budget", [400_000, None])
@pytest.mark.parametrize("name", [*ACTIVATIONS, *POOLS, "bias", "dense"])
def test_gradients_of_layers_are_those_of_the_definition(machine: Any, name: str, budget: int | None) -> None:
    """Each number is rounded once; sums of a dense layer are of float32."""
    rng, how = np.random.default_rng(7), {"device": machine, "memory_budget": budget, "options": PLAIN}
    x, shape = rng.standard_normal((5, 7, 57, 61)).astype(np.float32), (5, 7, 57, 61)
    if name in ACTIVATIONS:
        forward, backward = ACTIVATIONS[name]
        dy, y = rng.standard_normal(shape).astype(np.float32), forward(x).astype(np.float32)
        found, expected = gpu.outofcore.activate_backward(dy, y, name, **how), backward(dy, y)
    elif name in POOLS:
        pool = POOLS[name]
        y = gpu.outofcore.pool2d(x, pool, **how)
        dy = rng.standard_normal(y.shape).astype(np.float32)
        found = gpu.outofcore.pool2d_backward(dy, x, pool, **how)
        options: Any = {"stride": pool.stride, "padding": pool.padding}
        if isinstance(pool, MaxPool):
            expected = training.max_pool2d_backward(dy, x, pool.window, **options)
        else:
            expected = training.average_pool2d_backward(dy, shape, pool.window, **options)
    elif name == "bias":
        found, expected = gpu.outofcore.conv2d_backward_bias(x, **how), training.conv2d_backward_bias(x)
    else:
        rows = [rng.standard_normal(size).astype(np.float32) for size in ((93, 57), (93, 211), (57, 211))]
        answers = gpu.outofcore.dense_backward(*rows, **how)
        for one, right in zip(answers, training.dense_backward(*rows), strict=True):
            np.testing.assert_allclose(one, right, rtol=0, atol=93 * 2**-23 * np.abs(right).max())
        return
    np.testing.assert_allclose(found, expected, rtol=2**-23, atol=1e-12)
    assert is_clean(machine)


def test_rates_are_measured_once(machine: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SIMWARP_CACHE", str(tmp_path))
    layer = (16, 64, 56, 56), (64, 64, 3, 3)
    rates = explain("conv2d", *layer, device=machine).rates
    assert min(rates.in_bytes_per_second, rates.out_bytes_per_second) > 1e8
    assert rates.both_bytes_per_second > 1e8
    assert rates.operations_per_second > 1e10
    assert explain("conv2d", *layer, device=machine).rates == rates
    assert explain("conv2d", *layer, device=machine, dtype="float16").rates != rates
    assert is_clean(machine)


def test_explain_has_the_workspace(machine: Any) -> None:
    layer = (8, 16, 14, 14), (16, 16, 3, 3)
    plan = explain("conv2d", *layer, device=machine, memory_budget=1 << 20, options=PLAIN)
    assert plan.buffers.workspace > 0
    assert plan.buffers.total <= 1 << 20
