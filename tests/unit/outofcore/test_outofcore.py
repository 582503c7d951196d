"""Out-of-core convolutions on simulated machines: any split, machines with jitter, failures, bad input."""

from itertools import product
from typing import Any

import numpy as np
import pytest

import gpu.outofcore
from gpu.outofcore import Options, Pieces, Statistics, explain, plan
from gpu.outofcore.problem import FORMS
from reference.errors import DtypeError, FormatError, LaunchError, SchemeError, ShapeError
from reference.training import ACTIVATIONS, error_of
from simwarp.lab.unbacked import unbacked
from simwarp.machine import (
    EVEREST,
    H200,
    AllocationFails,
    CopyError,
    CopyFails,
    DeviceLost,
    DeviceLostError,
    DeviceMemoryError,
    Machine,
)
from support.offenders import every_case
from support.outofcore_calls import LAYERS, WHOLE, Layer, bfloat16, is_whole, parts_of

SPLITS = [Pieces(*sizes) for sizes in product((1, 2, 99), (1, 2, 99), (1, 3, 99), (1, 4, 99))]


def is_clean(machine: Machine) -> bool:
    return not machine.pinned() and not machine.allocated(0)


def check_splits(routine: str, layer: Layer, splits: list[Pieces]) -> None:
    expected = layer.run(routine, Machine(), pieces=WHOLE)
    assert layer.error(routine, expected) <= 1
    for seed, pieces in enumerate(splits):
        machine = Machine(seed=seed, jitter=20.0)
        found = layer.run(routine, machine, pieces=pieces, options=Options(depth=1 + seed % 3))
        assert is_clean(machine)
        if is_whole(routine, pieces, layer):
            np.testing.assert_array_equal(found, expected, err_msg=str(pieces))
        assert layer.error(routine, found) <= 1, pieces


@pytest.mark.at_most(2)
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("routine", FORMS)
def test_a_split_gives_the_unsplit_result(routine: str, name: str) -> None:
    check_splits(routine, LAYERS[name], SPLITS[::12])


@pytest.mark.gate
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("routine", FORMS)
def test_every_split_gives_the_unsplit_result(routine: str, name: str) -> None:
    check_splits(routine, LAYERS[name], SPLITS)


@pytest.mark.at_most(15)
@pytest.mark.parametrize("filters", ["resident", "streamed"])
@pytest.mark.parametrize("depth", [1, 2, 3, 5])
@pytest.mark.parametrize("routine", FORMS)
def test_buffers_do_not_change_a_bit(routine: str, depth: int, filters: Any) -> None:
    layer = Layer()
    expected = layer.run(routine, Machine(), pieces=Pieces(1, 2, 2, 4))
    machine = Machine(seed=depth, jitter=20.0)
    options = Options(depth=depth, filters=filters)
    found = layer.run(routine, machine, pieces=Pieces(1, 2, 2, 4), options=options)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("routine", FORMS)
def test_no_more_memory_is_used_than_the_budget(routine: str) -> None:
    layer = Layer((4, 8, 9, 7), (8, 8, 3, 3))
    whole = explain(routine, layer.images, layer.filters, device=Machine()).buffers.total
    for budget in (3000, 5000, 9000, whole):
        machine = Machine()
        used: list[int] = []
        allocate = machine.allocate
        machine.allocate = lambda device, nbytes, allocate=allocate, used=used: (
            used.append(nbytes) or allocate(device, nbytes)
        )
        assert layer.error(routine, layer.run(routine, machine, memory_budget=budget)) <= 1
        assert len(used) == 1
        assert used[0] <= budget


# -------------------------------------------------------------------------------------- fused functions


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_bias_and_activation_follow_the_last_term(activation: Any, layout: Any) -> None:
    layer = Layer(options={"layout": layout})
    x, w, _ = layer.operands()
    bias = np.linspace(-2, 2, 6, dtype=np.float32)
    results: list[Any] = []
    for pieces in (WHOLE, Pieces(2, 3, 4, 4), Pieces(1, 2, 1, 5)):
        found = gpu.outofcore.conv2d(
            x, w, bias, device=Machine(), activation=activation, layout=layout, pieces=pieces
        )
        assert error_of("conv2d", found, x, w, bias, activation=activation, layout=layout) <= 1
        results.append(found)
    np.testing.assert_array_equal(results[0], results[1])


def test_fused_functions_add_no_copies_except_the_bias() -> None:
    layer = (8, 16, 14, 14), (16, 16, 3, 3)
    bare = explain("conv2d", *layer, device=Machine())
    fused = explain("conv2d", *layer, device=Machine(), bias=True, activation="relu")
    assert (fused.bytes_in, fused.bytes_out) == (bare.bytes_in + 16 * 4, bare.bytes_out)


# ------------------------------------------------------------------------------- traffic and the model


@pytest.mark.parametrize("routine", FORMS)
def test_the_model_predicts_a_machine_whose_links_share_nothing(routine: str) -> None:
    layer, statistics = Layer((6, 8, 12, 9), (10, 8, 3, 3)), Statistics()
    for pieces in (None, Pieces(2, 4, 4, 5), Pieces(1, 12, 8, 10)):
        machine = Machine(EVEREST)
        layer.run(routine, machine, pieces=pieces, statistics=statistics)
        assert statistics.model_error == pytest.approx(0, abs=1e-9)
        for kind, nbytes in (("in", statistics.bytes_in), ("out", statistics.bytes_out)):
            assert machine.timeline.nbytes(kind) == nbytes


def test_the_timeline_is_predicted_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, statistics, predicted = Layer(seed=17), Statistics(), list[object]()
    predict = plan.predict
    monkeypatch.setattr(plan, "predict", lambda *given: (predicted.append(given), predict(*given))[1])
    layer.run("conv2d", Machine(), memory_budget=20_011, statistics=statistics)
    assert statistics.seconds > 0
    assert not predicted
    assert min(statistics.bytes_in, statistics.bytes_out, statistics.predicted_seconds) > 0
    assert len(predicted) == 1


def test_filters_and_pieces_that_stay_are_copied_once() -> None:
    layer = Layer((4, 8, 8, 8), (16, 8, 3, 3))
    machine, pieces = Machine(), Pieces(1, 99, 99, 4)
    layer.run("conv2d", machine, pieces=pieces)
    assert machine.timeline.nbytes("in") == 4 * (4 * 8 * 64 + 16 * 8 * 9)
    machine = Machine()
    layer.run("conv2d", machine, pieces=pieces, options=Options(filters="streamed"))
    assert machine.timeline.nbytes("in") == 4 * (4 * 8 * 64 + 4 * 16 * 8 * 9)


def test_copies_overlap_the_computation() -> None:
    layer: Any = (64, 64, 56, 56), (64, 64, 3, 3)
    arrays = [unbacked(shape, np.float32, "C") for shape in layer]
    for depth in (1, 2, 3):
        machine = Machine(EVEREST, values=False)
        options = Options(depth=depth)
        gpu.outofcore.conv2d(*arrays, device=machine, pieces=Pieces(4, 56, 64, 64), options=options)
        kinds = {"in": 0.0, "routine": 0.0, "out": 0.0, "peer": 0.0}
        for one in machine.timeline:
            kinds[one.kind] += one.end - one.start
        if depth == 1:
            assert machine.seconds() > 0.9 * (kinds["in"] + kinds["routine"])
        else:
            assert machine.seconds() < 1.2 * max(kinds.values())


def test_more_than_two_to_the_31_elements() -> None:
    layer: Any = (700, 64, 224, 224), (64, 64, 3, 3)
    x, w, y = (unbacked(shape, np.float32, "C") for shape in (*layer, layer[0]))
    assert x.size > 2**31
    machine, statistics = Machine(H200, values=False), Statistics()
    gpu.outofcore.conv2d(x, w, device=machine, out=y, memory_budget=1 << 32, statistics=statistics)
    assert statistics.bytes_out == machine.timeline.nbytes("out") == y.nbytes
    assert abs(statistics.model_error) < 0.1


def test_parts_of_arrays_are_read_and_written_in_place() -> None:
    whole, w = Layer((4, 6, 9, 8), (8, 6, 3, 3)).operands()[0], Layer().operands()[1]
    x, out = whole[1:4, 1:5, 2:8, :6], np.full((3, 8, 6, 8), 7, np.float32)
    y = gpu.outofcore.conv2d(x, w, device=Machine(), out=out[:, 2:, :, 1:7], pieces=Pieces(2, 2, 2, 4))
    assert error_of("conv2d", y, x, w) <= 1
    assert np.shares_memory(y, out)
    assert (out[:, :2] == 7).all()
    assert (out[..., 0] == 7).all()
    assert (out[..., 7] == 7).all()


# ---------------------------------------------------------------------------------- failures, bad input


@pytest.mark.parametrize(
    ("injection", "kind"),
    [
        (CopyFails("in", 0, after=7), CopyError),
        (CopyFails("out", 0, after=2), CopyError),
        (DeviceLost(0, 3e-5), DeviceLostError),
        (AllocationFails(0), DeviceMemoryError),
    ],
)
@pytest.mark.parametrize("routine", FORMS)
def test_a_failure_leaves_operands_as_they_were_and_nothing_behind(
    routine: str, injection: Any, kind: type[Exception]
) -> None:
    layer, machine = Layer(), Machine(injections=[injection])
    given = layer.arguments(routine)
    before = [x.copy() for x in given if isinstance(x, np.ndarray)]
    with pytest.raises(kind, match="device 0"):
        getattr(gpu.outofcore, routine)(*given, device=machine, pieces=Pieces(1, 2, 2, 2))
    for x, old in zip(given, before, strict=False):
        np.testing.assert_array_equal(x, old)
    assert is_clean(machine)


X, W = np.ones((2, 4, 6, 6), np.float32), np.ones((3, 4, 3, 3), np.float32)
Y = np.ones((2, 3, 6, 6), np.float32)
FROZEN = Y.copy()
FROZEN.flags.writeable = False
CONV, DATA, FILTER = (getattr(gpu.outofcore, routine) for routine in FORMS)


@every_case(
    ("call", "kind", "message"),
    [
        (lambda device: CONV(X.tolist(), W, device=device), DtypeError, "x is a list"),
        (lambda device: CONV(X.astype("f8"), W, device=device), DtypeError, "x is of float64"),
        (lambda device: CONV(X, W.astype("f2"), device=device), DtypeError, "w is of float16"),
        (lambda device: CONV(X[0], W, device=device), ShapeError, r"the images have shape \(4, 6, 6\)"),
        (lambda device: CONV(X[:, :3], W, device=device), ShapeError, "the images have 3 channels"),
        (lambda device: CONV(X, W, np.ones(4, "f4"), device=device), ShapeError, "bias has shape"),
        (lambda device: CONV(X, W, device=device, groups=2), ShapeError, "groups=2"),
        (lambda device: CONV(X, W, device=device, stride=0), ShapeError, "stride=0"),
        (lambda device: CONV(X, W, device=device, padding="FULL"), SchemeError, "FULL"),
        (lambda device: CONV(X[:, :, :2, :2], W, device=device, padding="VALID"), ShapeError, "does not fit"),
        (lambda device: CONV(X[..., ::2], W, device=device), FormatError, "x has strides"),
        (lambda device: CONV(X.T, W, device=device), FormatError, "ascontiguousarray"),
        (lambda device: CONV(X, W, device=device, out=FROZEN), FormatError, "out is read-only"),
        (lambda device: CONV(X, W, device=device, out=X[:, :3]), FormatError, "out shares memory with x"),
        (lambda device: CONV(X, W, device=device, out=Y[:1]), ShapeError, "out has shape"),
        (lambda device: CONV(X, W, device=device, out=Y.astype("f8")), DtypeError, "out is of float64"),
        (
            lambda device: CONV(X, W, device=device, memory_budget=99),
            LaunchError,
            "pass memory_budget=[0-9]+",
        ),
        (lambda device: DATA(Y[:1], W, X.shape, device=device), ShapeError, "gradient has shape"),
        (lambda device: DATA(Y, W, X.shape[1:], device=device), ShapeError, "the images have shape"),
        (lambda device: DATA(Y, W, (2, 4, 6, 0), device=device), ShapeError, "at least 1"),
        (lambda device: FILTER(X, Y[:, :2], W.shape, device=device), ShapeError, "gradient has shape"),
        (lambda device: FILTER(X, Y, W.shape, device=device, out=W.T), FormatError, "out has strides"),
    ],
)
def test_bad_input_is_refused_before_anything_happens(call: Any, kind: type[Exception], message: str) -> None:
    machine = Machine()
    with pytest.raises(kind, match=message):
        call(machine)
    assert machine.seconds() == 0
    assert is_clean(machine)


def test_nan_and_infinity_go_where_their_windows_are() -> None:
    x = np.zeros((1, 1, 9, 9), np.float32)
    x[0, 0, 4, 4] = np.nan
    w = np.ones((1, 1, 3, 3), np.float32)
    for pieces in (WHOLE, Pieces(1, 2, 1, 1)):
        found = gpu.outofcore.conv2d(x, w, device=Machine(), pieces=pieces)
        assert np.argwhere(np.isnan(found[0, 0])).min(0).tolist() == [3, 3]
        assert np.isnan(found).sum() == 9


# ---------------------------------------------------------------------------------------------- dtypes


def of_dtype(name: str) -> Any:
    return bfloat16() if name == "bfloat16" else np.dtype(name)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("routine", FORMS)
def test_sixteen_bits_are_rounded_once_for_each_part(routine: str, layout: Any, dtype: str) -> None:
    layer = Layer(options={"layout": layout, "stride": (1, 2)}, dtype=of_dtype(dtype))
    for pieces in (WHOLE, Pieces(2, 3, 2, 3), Pieces(1, 1, 1, 1)):
        machine, statistics = Machine(EVEREST), Statistics()
        found = layer.run(routine, machine, pieces=pieces, statistics=statistics)
        assert found.dtype == layer.dtype
        parts = parts_of(routine, layer, pieces)
        assert layer.error(routine, found, parts=parts) <= 1, pieces
        assert statistics.bytes_out == 2 * found.size
        assert statistics.model_error == pytest.approx(0, abs=1e-9)
        assert layer.error(routine, found, parts=parts) > 0.01


def test_a_result_that_is_rounded_too_often_is_outside_the_bound() -> None:
    layer = Layer((3, 12, 7, 6), (6, 12, 3, 2), dtype=np.float16)
    found = layer.run("conv2d", Machine(), pieces=Pieces(3, 99, 1, 99))
    assert layer.error("conv2d", found, parts=12) <= 1
    wrong = (found.astype(np.float32) * (1 + 2**-6)).astype(np.float16)
    assert layer.error("conv2d", wrong, parts=12) > 1


@pytest.mark.parametrize("routine", FORMS)
def test_operands_are_rounded_to_tf32_if_asked(routine: str) -> None:
    layer, options = Layer((2, 8, 9, 9), (8, 8, 3, 3)), Options(math="tf32")
    found = layer.run(routine, Machine(), options=options)
    assert layer.error(routine, found, tf32=True) <= 1 < layer.error(routine, found)
    half = Layer((2, 8, 9, 9), (8, 8, 3, 3), dtype=np.float16)
    np.testing.assert_array_equal(half.run(routine, Machine(), options=options), half.run(routine, Machine()))


def test_numbers_beyond_the_largest_are_infinite() -> None:
    x, w = np.full((1, 4, 3, 3), 250, np.float16), np.full((1, 4, 3, 3), 250, np.float16)
    assert np.isinf(gpu.outofcore.conv2d(x, w, device=Machine())).all()


def test_dtypes_are_not_mixed() -> None:
    with pytest.raises(DtypeError, match="bias is of float16"):
        gpu.outofcore.conv2d(X, W, np.ones(3, np.float16), device=Machine())
    with pytest.raises(DtypeError, match="tile routines are for float32, float16, bfloat16"):
        explain("conv2d", X.shape, W.shape, device=Machine(), dtype=">f4")
    plan = explain("conv2d", X.shape, W.shape, device=Machine(), dtype="float16")
    assert plan.bytes_out * 2 == explain("conv2d", X.shape, W.shape, device=Machine()).bytes_out


@pytest.mark.parametrize("options", [{"math": "fp16"}, {"workspace": -1}])
def test_options_out_of_range_are_refused(options: Any) -> None:
    with pytest.raises(SchemeError):
        Options(**options)
