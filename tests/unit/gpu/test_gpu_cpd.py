"""`gpu.cpd_als` on the simulator: its kernels against NumPy, decompositions against the reference."""

import functools
import io
import itertools

import numpy as np
import pytest

import simwarp
from gpu.cpd import cpd_als
from gpu.cpd.kernels import LARGEST_RANK, MOST_BLOCKS, Grid
from gpu.cpd.model import Model
from gpu.cpd.residual import Residual
from gpu.mttkrp.formats import FORMATS
from gpu.mttkrp.upload import upload
from oracles.exact_fits import exact_residual
from reference.cpd import cpd_als as reference_cpd_als
from reference.errors import DtypeError, FormatError, NotANumberError, SchemeError, ShapeError
from reference.sparse import FORMATS as REFERENCE_FORMATS
from reference.sparse import coalesce
from reference.types import Coo, Cpd
from simwarp.device import DeviceArray

FLOATS = (np.float32, np.float64)
# Rows: one, fewer than a tile, ragged, of several blocks. Ranks: in one tile of each width, and in several.
SIZES = [(1, 1), (5, 1), (64, 7), (33, 8), (131, 9), (257, 32), (130, 33)]
STEPS = [*itertools.product(SIZES, FLOATS), ((1, 64), np.float64), ((67, 100), np.float32)]


def random(*shape, seed=0):
    return np.random.Generator(np.random.Philox(seed)).random(shape)


def planted(shape, rank, noise=0.0, dtype=np.float64, seed=0):
    """All elements of ``rank`` outer products plus noise, as a Coo, and the factors."""
    factors = [random(n, rank, seed=seed + k) for k, n in enumerate(shape)]
    letters = "abcd"[: len(shape)]
    dense = np.einsum(",".join(f"{m}r" for m in letters) + f"->{letters}", *factors)
    error = random(*shape, seed=seed + 10) - 0.5
    dense += noise * error * np.linalg.norm(dense) / np.linalg.norm(error)
    return Coo(np.indices(shape).reshape(len(shape), -1), dense.reshape(-1).astype(dtype), shape), factors


def sparse(shape, nonzeros, dtype=np.float64, seed=0):
    """A random tensor; coordinates may repeat."""
    coords = [(random(nonzeros, seed=seed + n) * size).astype(np.int64) for n, size in enumerate(shape)]
    return Coo(coords, (random(nonzeros, seed=seed + 20) - 0.25).astype(dtype), shape)


def given_start(shape, rank, seed=0):
    return [random(n, rank, seed=seed + 30 + k) for k, n in enumerate(shape)]


def assert_unit_columns(result, tolerance):
    for factor in result.factors:
        norms = np.linalg.norm(factor.astype(np.float64), axis=0)
        np.testing.assert_allclose(norms, result.weights != 0, atol=tolerance)


# Kernels


@pytest.mark.at_most(1)
@pytest.mark.slow_cases("size11-float64", "size12-float32", "size15-*", "size14-*", "size13-*")
@pytest.mark.parametrize(("size", "dtype"), STEPS)
def test_one_update_step_equals_numpy(size, dtype):
    """Known Gram matrices give inverse, norms, factor and new Gram matrix."""
    rows, rank = size
    others = (rank + 3, 2 * rank + 1)
    model = Model((rows, *others), rank, np.dtype(dtype), simwarp.Device())
    starts = [random(n, rank, seed=k).astype(dtype) for k, n in enumerate(others)]
    v = np.ones((rank, rank))
    for mode, start in enumerate(starts, 1):
        model.start(mode, start)
        gram = start.astype(np.float64).T @ start.astype(np.float64)
        np.testing.assert_allclose(model.grams.download()[mode], gram, rtol=1e-14)
        np.testing.assert_array_equal(model.factors[mode].download(), start)
        v *= gram
    y = (random(rows, rank, seed=5) - 0.5).astype(dtype)
    model.factors[0].upload(y)
    model.solve(0)

    assert model.singular.download()[0] == 0
    inverse = model.inverse.download()[0]
    np.testing.assert_array_equal(inverse, inverse.T)
    np.testing.assert_allclose(inverse @ v, np.eye(rank), atol=1e-15 * rank * np.linalg.cond(v))
    unscaled = (y.astype(np.float64) @ inverse).astype(dtype).astype(np.float64)
    norms = np.linalg.norm(unscaled, axis=0)
    close = {"rtol": 4 * np.finfo(dtype).eps, "atol": 100 * np.finfo(dtype).eps}
    np.testing.assert_allclose(model.weights.download(), norms, **close)
    factor = model.factors[0].download()
    assert factor.dtype == dtype
    np.testing.assert_allclose(factor, unscaled / norms, **close)
    gram = model.grams.download()[0]
    np.testing.assert_array_equal(gram, gram.T)
    np.testing.assert_allclose(gram, factor.astype(np.float64).T @ factor.astype(np.float64), atol=1e-14)

    # The fit as if this were the last mode.
    product, square = np.sum(y * unscaled), norms @ (v * gram) @ norms
    expected = 1 - np.sqrt((3 * square + square - 2 * product) / (3 * square))
    fit, left = model.fit(3 * square)
    np.testing.assert_allclose(fit, expected, rtol=1e-6 if dtype == np.float32 else 1e-11)
    largest = (np.sqrt(3 * square) + norms.sum()) ** 2
    np.testing.assert_allclose(left, (4 * square - 2 * product) / largest, rtol=1e-6)


@pytest.mark.at_most(2)
@pytest.mark.slow_cases("shape0-1-coo-float32", "shape3-5-mm-csf-float64", "shape6-3-csf-all-float32")
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("shape", "rank", "format_name"),
    [
        ((1, 1), 1, "coo"),
        ((300, 2), 2, "csf-one"),
        ((9, 7), 33, "b-csf"),
        ((4, 5, 3, 2), 5, "mm-csf"),
        ((3, 70), 64, "f-coo"),
        ((5, 4, 3), 1, "hicoo"),
        ((2,) * 8, 3, "csf-all"),
    ],
)
def test_the_residual_equals_exact_fractions(shape, rank, format_name, dtype):
    """The tensor is the model itself, with every eighth element left out or rounded."""
    model = Model(shape, rank, np.dtype(dtype), simwarp.Device())
    factors = [(random(n, rank, seed=k) - 0.5).astype(dtype) for k, n in enumerate(shape)]
    weights = random(rank, seed=9) * 1000
    for array, factor in zip((*model.factors, model.weights), (*factors, weights), strict=True):
        array.upload(factor)
    letters = "abcdefgh"[: len(shape)]
    wide = [factor.astype(np.float64) for factor in factors]
    dense = np.einsum(f"z,{','.join(f'{m}z' for m in letters)}->{letters}", weights, *wide)
    for kept in (np.ones(dense.size, bool), random(dense.size, seed=8) < 0.875):
        kept[0] = True
        values = dense.reshape(-1)[kept].astype(dtype)
        coo = Coo(np.indices(shape).reshape(len(shape), -1)[:, kept], values, shape)
        tensor = REFERENCE_FORMATS[format_name](coo)
        square = float(np.sum(np.square(values, dtype=np.float64)))
        expected = exact_residual(coo, Cpd(weights, tuple(factors), (), converged=False))
        found = 1 - Residual(tensor, square, model).fit()
        assert abs(found - expected) <= 4e-16 + 1e-12 * expected


@pytest.mark.slow
def test_a_small_grid_covers_all_nonzeros():
    """More nonzeros and rows than a small grid processes at once."""
    shape, rank = (700, 6), 20
    model = Model(shape, rank, np.dtype(np.float64), simwarp.Device())
    for n, factor in enumerate(model.factors):
        factor.upload(random(*factor.shape, seed=n))
    model.weights.upload(random(rank))
    tensor = coalesce(sparse(shape, 2000))
    residual = Residual(tensor, 1.0, model)
    expected = residual.fit()
    residual._grid = SmallGrid(rank)
    assert residual.fit() == pytest.approx(expected, rel=1e-15)


@pytest.mark.slow
def test_a_small_grid_covers_all_rows():
    """More rows than a small grid processes at once: every block has several tiles."""
    rank, rows = 33, 700
    model = Model((rows, rank), rank, np.dtype(np.float32), simwarp.Device())
    model._grid = SmallGrid(rank)
    model.grams.upload(np.stack([np.eye(rank)] * 2))
    y = random(rows, rank).astype(np.float32)
    model.factors[0].upload(y)
    model.solve(0)
    norms = np.linalg.norm(y.astype(np.float64), axis=0)
    np.testing.assert_allclose(model.weights.download(), norms, rtol=1e-13)
    np.testing.assert_allclose(model.factors[0].download(), y / norms, rtol=1e-6)
    expected = (y / norms).T @ (y / norms)
    np.testing.assert_allclose(model.grams.download()[0], expected, atol=1e-7)


class SmallGrid(Grid):
    def apply_blocks(self, rows):
        return min(3, super().apply_blocks(rows))

    def gram_blocks(self, rows):
        return min(5, super().gram_blocks(rows))

    def residual_parts(self, rows):
        return min(3, super().residual_parts(rows))


def test_grid_sizes_depend_only_on_the_problem_and_are_bounded():
    for rank, rows in itertools.product((1, 8, 9, 16, 17, 32, 33, 100, 256, 1000, LARGEST_RANK), (1, 2**32)):
        grid = Grid(rank)
        assert grid.tiles * grid.tile >= rank > (grid.tiles - 1) * grid.tile
        assert 1 <= grid.apply_blocks(rows) * grid.tiles <= MOST_BLOCKS
        assert 1 <= grid.gram_blocks(rows) * grid.gram_tiles <= max(MOST_BLOCKS, grid.gram_tiles)


def singular_matrices():
    columns = random(40, 12, seed=3)
    twice, zero = columns[:, [0, 1, 2, 1, 0]], columns[:, :3] * [1, 0, 1]
    yield "one equal pair", twice.T @ twice
    yield "a column of zeros", zero.T @ zero
    yield "more columns than rows", columns[:3].T @ columns[:3]
    yield "rank one, odd size", np.outer(columns[:33, 0], columns[:33, 0])
    yield "nothing", np.zeros((2, 2))
    yield "one zero", np.zeros((1, 1))
    yield "scales far apart", np.diag([1e30, 1e-30, 0.0, 1.0])
    yield "indefinite by rounding", np.array([[1.0, 1.0], [1.0, 1.0 - 2.0**-53]])


@pytest.mark.at_most(1)
@pytest.mark.slow_cases(
    "float32-more columns than rows", "float32-rank one, odd size", "float64-more columns than rows"
)
@pytest.mark.parametrize("name", [name for name, _ in singular_matrices()])
@pytest.mark.parametrize("dtype", FLOATS)
def test_singular_matrices_use_the_pseudo_inverse(name, dtype):
    v = dict(singular_matrices())[name]
    rank = len(v)
    model = Model((3, 4), rank, np.dtype(dtype), simwarp.Device())
    model.grams.upload(np.stack([v, v]))
    model.factors[0].upload(random(3, rank).astype(dtype))
    model.solve(0)
    assert model.singular.download()[0] == 1
    expected = np.linalg.pinv(v, rcond=rank * np.finfo(dtype).eps, hermitian=True)
    inverse = model.inverse.download()[0]
    np.testing.assert_allclose(inverse, expected, atol=1e-10 * np.abs(expected).max(initial=0))
    assert np.isfinite(model.factors[0].download()).all()


@pytest.mark.gate
def test_the_pseudo_inverse_of_a_regular_matrix_is_its_inverse():
    """The eigenvalue kernel gives what the Cholesky kernel would have."""
    rank = 10
    model = Model((3, 20), rank, np.dtype(np.float64), simwarp.Device())
    model.start(1, random(20, rank))
    model.factors[0].upload(random(3, rank))
    model.solve(0)
    assert model.singular.download()[0] == 0
    expected = model.inverse.download()
    model.singular.upload(np.ones(1, np.int32))
    model._kernels = model._kernels | {"invert": lambda *args, **options: None}
    model.solve(0)
    assert (model.inverse.download() != expected).any()
    np.testing.assert_allclose(model.inverse.download(), expected, rtol=1e-9, atol=1e-9)


def test_the_pseudo_inverse_is_for_singular_matrices_only():
    """If the Cholesky factorisation succeeds, `inverse` is not overwritten."""
    model = Model((3, 4), 2, np.dtype(np.float64), simwarp.Device())
    model.grams.upload(np.stack([np.eye(2), np.diag([2.0, 4.0])]))
    model.factors[0].upload(random(3, 2))
    model.solve(0)
    np.testing.assert_array_equal(model.inverse.download()[0], np.diag([1 / np.sqrt(2) ** 2, 0.25]))


def test_a_column_of_zeros_has_weight_zero():
    model = Model((3, 4), 2, np.dtype(np.float32), simwarp.Device())
    model.grams.upload(np.stack([np.eye(2)] * 2))
    model.factors[0].upload(np.array([[3, 0], [0, 0], [4, 0]], np.float32))
    model.solve(0)
    assert model.weights.download().tolist() == [5, 0]
    np.testing.assert_allclose(model.factors[0].download(), [[0.6, 0], [0, 0], [0.8, 0]], rtol=1e-7)
    assert model.grams.download()[0, 1].tolist() == [0, 0]


# Decompositions


@functools.cache
def tensors(dtype):
    return {
        "order 2": (sparse((9, 14), 60, dtype), 3),
        "order 3": (sparse((12, 7, 15), 150, dtype), 4),
        "order 4": (sparse((5, 8, 4, 9), 200, dtype), 3),
    }


@pytest.mark.at_most(1)
@pytest.mark.slow_cases("float32-order 3", "*-order 4", "float64-order 3")
@pytest.mark.parametrize("name", ["order 2", "order 3", "order 4"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_order_equals_the_reference(name, dtype):
    coo, rank = tensors(dtype)[name]
    expected = reference_cpd_als(coo, rank, iterations=2, tolerance=0, seed=3)
    result = cpd_als(coo, rank, iterations=2, tolerance=0, seed=3, device=simwarp.Device())
    assert_close(result, expected, dtype)


@pytest.mark.at_most(1)
@pytest.mark.slow_cases("f-coo", "hicoo")
@pytest.mark.parametrize("format_name", FORMATS)
def test_every_format_equals_the_reference(format_name):
    coo, rank = tensors(np.float64)["order 3"]
    expected = reference_cpd_als(coo, rank, iterations=1)
    tensor = FORMATS[format_name](FORMATS["coo"](coo))
    result = cpd_als(tensor, rank, iterations=1, device=simwarp.Device())
    assert_close(result, expected, np.float64)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("format_name", ["csf-one", "f-coo", "mm-csf"])
def test_tensors_on_the_device_are_decomposed(format_name):
    coo, rank = tensors(np.float64)["order 3"]
    expected = reference_cpd_als(coo, rank, iterations=1)
    tensor = upload(FORMATS[format_name](FORMATS["coo"](coo)), simwarp.Device())
    assert_close(cpd_als(tensor, rank, iterations=1), expected, np.float64)


def assert_close(result, expected, dtype):
    atol = 1e-10 if dtype == np.float64 else 1e-4
    assert len(result.fits) == len(expected.fits)
    np.testing.assert_allclose(result.fits, expected.fits, rtol=0, atol=atol)
    assert result.converged == expected.converged
    assert (result.weights.dtype, {factor.dtype for factor in result.factors}) == (
        np.float64,
        {np.dtype(dtype)},
    )
    # A component's weight and factors agree as well as V's condition allows.
    np.testing.assert_allclose(result.weights, expected.weights, rtol=100 * atol)
    for factor, other in zip(result.factors, expected.factors, strict=True):
        np.testing.assert_allclose(factor, other, atol=100 * atol)
    assert_unit_columns(result, 1e-6 if dtype == np.float32 else 1e-14)


@pytest.mark.gate
@pytest.mark.at_most(1)
@pytest.mark.slow_cases("float32-0.1", "float64-0.0", "float64-0.1", "float32-0.0")
@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("dtype", FLOATS)
def test_planted_factors_are_recovered(noise, dtype):
    shape, rank = (7, 9, 6), 3
    coo, factors = planted(shape, rank, noise, dtype)
    start = [factor + 0.05 * other for factor, other in zip(factors, given_start(shape, rank), strict=True)]
    options = {"start": start, "iterations": 2, "tolerance": 0}
    expected = reference_cpd_als(coo, rank, **options)
    result = cpd_als(coo, rank, **options, device=simwarp.Device())
    atol = {np.float32: 1e-4, np.float64: 1e-10}[dtype]
    np.testing.assert_allclose(result.fits, expected.fits, rtol=0, atol=atol)
    assert result.fits[-1] > 0.99 if noise == 0 else 0.88 < result.fits[-1] < 0.93
    precision = 1e-13 if dtype == np.float64 else 1e-7  # of Y, if the terms do not cancel too much
    assert abs(1 - exact_residual(coo, result) - result.fits[-1]) < precision


@pytest.mark.gate
def test_a_rank_above_a_dimension_equals_the_reference():
    coo = sparse((3, 11, 10), 90)
    expected = reference_cpd_als(coo, 5, iterations=3, tolerance=0)
    result = cpd_als(coo, 5, iterations=3, tolerance=0, device=simwarp.Device())
    np.testing.assert_allclose(result.fits, expected.fits, rtol=0, atol=1e-8)


@pytest.mark.slow
def test_a_matrix_smaller_than_the_rank_equals_the_reference():
    """V is singular at every step, in both modes."""
    coo = sparse((3, 12), 30)
    expected = reference_cpd_als(coo, 5, iterations=2, tolerance=0)
    result = cpd_als(coo, 5, iterations=2, tolerance=0, device=simwarp.Device())
    assert min(result.fits) > 1 - 1e-6
    np.testing.assert_allclose(result.fits, expected.fits, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_equal_columns_in_the_start_equal_the_reference():
    shape, rank = (6, 7, 5), 3
    start = [factor[:, [0, 1, 1]] for factor in given_start(shape, rank)]
    coo = sparse(shape, 80)
    expected = reference_cpd_als(coo, rank, start=start, iterations=2, tolerance=0)
    result = cpd_als(coo, rank, start=start, iterations=2, tolerance=0, device=simwarp.Device())
    np.testing.assert_allclose(result.fits, expected.fits, rtol=0, atol=1e-8)


@pytest.mark.slow
def test_empty_slices_and_a_zero_component_equal_the_reference():
    coo = sparse((8, 9, 7), 60)
    wide = Coo(coo.coords * 3 + 1, coo.values, (26, 29, 22))
    start = given_start(wide.shape, 2)
    start[1][:, 1] = 0
    expected = reference_cpd_als(wide, 2, start=start, iterations=2, tolerance=0)
    result = cpd_als(wide, 2, start=start, iterations=2, tolerance=0, device=simwarp.Device())
    np.testing.assert_allclose(result.fits, expected.fits, rtol=0, atol=1e-10)
    assert result.weights[1] == 0
    for factor in result.factors:
        assert not factor[np.arange(len(factor)) % 3 != 1].any()
    assert_unit_columns(result, 1e-14)


@pytest.mark.slow
def test_duplicate_coordinates_are_summed_first():
    coo = sparse((5, 6, 4), 40)
    halves = Coo(np.tile(coo.coords, 2), np.tile(coo.values / 2, 2), coo.shape)
    device = simwarp.Device()
    expected = cpd_als(FORMATS["coo"](coo), 2, iterations=1, device=device)
    for tensor in (halves, upload(halves, device)):
        result = cpd_als(tensor, 2, iterations=1, device=device)
        np.testing.assert_allclose(result.fits, expected.fits, rtol=0, atol=1e-12)


@pytest.mark.at_most(1)
@pytest.mark.gate
@pytest.mark.parametrize("format_name", ["coo", "mm-csf"])
def test_deterministic_runs_give_the_same_bits(format_name):
    coo, rank = tensors(np.float32)["order 3"]
    tensor = FORMATS[format_name](FORMATS["coo"](coo))
    options = {"iterations": 1, "deterministic": True}
    first = cpd_als(tensor, rank, **options, device=simwarp.Device())
    # Another order of execution, and another number of multiprocessors.
    device = simwarp.Device(schedule="random", seed=1, multiprocessors=7)
    second = cpd_als(tensor, rank, **options, device=device)
    assert first.fits == second.fits
    for one, other in zip((first.weights, *first.factors), (second.weights, *second.factors), strict=True):
        assert one.tobytes() == other.tobytes()


# The iteration


def test_progress_is_reported_until_convergence():
    coo, _ = planted((5, 4), 1, 0.1)
    reported = []
    result = cpd_als(
        coo, 1, tolerance=1e-4, progress=lambda *now: reported.append(now), device=simwarp.Device()
    )
    assert result.converged
    assert reported == list(enumerate(result.fits, 1))
    changes = np.abs(np.diff(result.fits))
    assert changes[-1] < 1e-4 <= changes[:-1].min()


def test_the_iteration_limit_ends_the_run():
    coo, _ = planted((5, 4), 1, 0.1)
    result = cpd_als(coo, 1, iterations=2, tolerance=0, device=simwarp.Device())
    assert len(result.fits) == 2
    assert not result.converged


def test_one_iteration_never_converges():
    coo, _ = planted((3, 4), 1)
    assert not cpd_als(coo, 1, iterations=1, tolerance=10, device=simwarp.Device()).converged


@pytest.mark.slow
def test_the_fit_of_an_exact_model_is_accurate():
    """A 2 x 5 tensor is fitted exactly, so the terms cancel to about 1e-16."""
    coo = Coo(np.indices((2, 5)).reshape(2, -1), random(10) - 0.5, (2, 5))
    for iterations in (1, 2):
        result = cpd_als(coo, 2, iterations=iterations, tolerance=0, device=simwarp.Device())
        expected = exact_residual(coo, result)
        assert expected < 1e-12
        assert abs(1 - expected - result.fits[-1]) <= 2.0**-52


def test_two_numbers_are_downloaded_in_an_iteration(monkeypatch):
    sizes, download = [], DeviceArray.download

    def counting(self, stream=None):
        sizes.append(self.nbytes)
        return download(self, stream)

    monkeypatch.setattr(DeviceArray, "download", counting)
    coo, rank = tensors(np.float64)["order 3"]
    marks = []
    cpd_als(
        coo,
        rank,
        iterations=2,
        tolerance=0,
        device=simwarp.Device(),
        progress=lambda *_: marks.append(len(sizes)),
    )
    assert [sizes[a:b] for a, b in itertools.pairwise([0, *marks])] == [[16]] * 2


def test_an_interrupted_run_leaves_the_device_usable():
    coo, _ = planted((5, 4), 2, 0.1)
    device = simwarp.Device()
    expected = cpd_als(coo, 2, iterations=1, device=device)

    def interrupt(iteration, fit):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cpd_als(coo, 2, device=device, progress=interrupt)
    assert cpd_als(coo, 2, iterations=1, device=device).fits == pytest.approx(expected.fits, abs=1e-12)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("seed", [0, 5, 2**64 - 1])
def test_the_start_is_drawn_from_the_seed(seed):
    coo = FORMATS["coo"](sparse((5, 6), 20))
    keys = [np.array([seed, n], np.uint64) for n in range(2)]
    words = [
        np.random.Philox(key=key).random_raw(size * 2) for key, size in zip(keys, coo.shape, strict=True)
    ]
    start = [(w >> 11).reshape(-1, 2) * 2.0**-53 for w in words]
    start[0][:] = 0  # not read
    options = {"iterations": 1, "deterministic": True, "device": simwarp.Device()}
    assert cpd_als(coo, 2, seed=seed, **options).fits == cpd_als(coo, 2, start=start, **options).fits


@pytest.mark.slow
def test_a_start_may_be_integers_or_device_arrays():
    coo, _ = planted((3, 4), 1)
    device = simwarp.Device()
    start = [np.ones((3, 1)), np.arange(1, 5).reshape(4, 1)]
    options = {"iterations": 1, "device": device}
    expected = cpd_als(coo, 1, start=[factor.astype(np.float64) for factor in start], **options)
    placed = [start[0], device.upload(start[1].astype(np.float32))]
    for given in (start, placed):
        assert cpd_als(coo, 1, start=given, **options).fits == pytest.approx(expected.fits, abs=1e-12)


# Errors


GOOD, _ = planted((3, 4), 1)
NOT_FINITE = np.ones((4, 1)) * np.nan


@pytest.mark.parametrize(
    ("options", "error", "part"),
    [
        ({"rank": 0}, ShapeError, "0"),
        ({"rank": -1}, ShapeError, "-1"),
        ({"rank": 1.5}, ShapeError, "1.5"),
        ({"rank": LARGEST_RANK + 1}, ShapeError, "2049"),
        ({"iterations": 0}, ShapeError, "iterations is 0"),
        ({"seed": -1}, SchemeError, "seed is -1"),
        ({"seed": 2**64}, SchemeError, "2\\*\\*64 - 1"),
        ({"tolerance": np.nan}, NotANumberError, "tolerance"),
        ({"start": [np.ones((3, 1))]}, ShapeError, r"start has 1 matrices\nthe tensor has 2 modes"),
        ({"start": [np.ones((3, 1)), np.ones((1, 4))]}, ShapeError, r"\(1, 4\)"),
        ({"start": [np.ones((3, 1)), np.ones((4, 1), np.complex64)]}, DtypeError, r"start\[1\] is complex64"),
        ({"start": [np.ones((3, 1)), NOT_FINITE]}, NotANumberError, r"start\[1\]\[0, 0\] is nan"),
        ({"tensor": np.ones((3, 4))}, FormatError, "expected a sparse tensor, got "),
        (
            {"tensor": Coo(GOOD.coords, GOOD.values * 0, GOOD.shape)},
            ShapeError,
            "all values of the tensor are 0",
        ),
        ({"tensor": Coo([[0, 0], [0, 0]], [1.0, -1.0], (3, 4))}, ShapeError, "nothing to decompose"),
        ({"tensor": Coo(GOOD.coords, GOOD.values * np.inf, GOOD.shape, True)}, NotANumberError, "inf"),
        ({"tensor": Coo(GOOD.coords, GOOD.values * np.nan, GOOD.shape, True)}, NotANumberError, "nan"),
        ({"tensor": lambda: FORMATS["f-coo"](GOOD).tensors[1]}, FormatError, "mode 1, not for mode 0"),
    ],
)
def test_bad_arguments_are_refused(options, error, part):
    arguments = {"tensor": GOOD, "rank": 1} | options
    if callable(arguments["tensor"]):  # slow arguments are not computed during collection
        arguments["tensor"] = arguments["tensor"]()
    with pytest.raises(error, match=part) as caught:
        cpd_als(arguments.pop("tensor"), arguments.pop("rank"), **arguments, device=simwarp.Device())
    assert str(caught.value).count("\n") == 2


def test_an_overflow_of_float32_is_reported():
    coo = Coo(GOOD.coords, (GOOD.values * 1e3).astype(np.float32), GOOD.shape)
    with pytest.raises(NotANumberError, match="too large for float32") as caught:
        cpd_als(coo, 1, start=[np.ones((3, 1)), np.full((4, 1), 1e38)], device=simwarp.Device())
    assert str(caught.value).count("\n") == 2


def test_a_long_call_shows_a_sign_of_life_on_a_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr("gpu.cpd.cpd._SHORT", 0.0)
    tensor = Coo([[0, 1], [1, 0]], [1.0, 2.0], (2, 2))
    for stderr, options, is_shown in (
        (Terminal(), {}, True),
        (Terminal(), {"progress": False}, False),
        (Terminal(), {"progress": lambda done, fit: None}, False),
        (io.StringIO(), {}, False),
    ):
        monkeypatch.setattr("sys.stderr", stderr)
        cpd_als(tensor, 1, iterations=1, device=simwarp.Device(), **options)
        assert ("cpd_als: iteration 1 of at most 1, fit " in stderr.getvalue()) == is_shown
        assert bool(stderr.getvalue()) == is_shown


PLACES = np.array([[0, 1, 1], [0, 1, 0], [0, 1, 1]])


@pytest.mark.at_most(1)
@pytest.mark.parametrize("scale", [1e160, 1e-170, 5e-324])
def test_very_large_and_very_small_values_are_decomposed_as_by_the_definition(scale):
    tensor = Coo(PLACES, np.array([1.0, 2.0, 1.0]) * scale, (2, 2, 2))
    found = cpd_als(tensor, 2, iterations=2, seed=1, device=simwarp.Device())
    expected = reference_cpd_als(tensor, 2, iterations=2, seed=1)
    np.testing.assert_allclose(found.fits, expected.fits, rtol=1e-9)
    np.testing.assert_allclose(found.weights, expected.weights, rtol=1e-9)


def test_weights_beyond_float64_are_refused_by_both_tiers():
    tensor = Coo(PLACES, np.array([1.0, 2.0, 1.0]) * 8e307, (2, 2, 2))
    for decompose in (reference_cpd_als, functools.partial(cpd_als, device=simwarp.Device())):
        with pytest.raises(NotANumberError, match=r"\* 2\*\*1024.* more than float64 holds"):
            decompose(tensor, 2, iterations=1, seed=1)
