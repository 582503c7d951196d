"""The reference CPD: planted factors, dense models, singular systems, invariances, and pyttb's fits."""

import itertools
import math

import numpy as np
import pytest

from oracles.exact_fits import exact_residual
from reference import DtypeError, NotANumberError, SchemeError, ShapeError
from reference.cpd import cpd_als
from reference.mttkrp import mttkrp
from reference.residual import precise_fit
from reference.sparse import mm_csf
from reference.types import Coo, Cpd

SHAPES = [(9, 7), (6, 7, 5), (5, 4, 3, 6), (3, 2, 3, 2, 4), (2, 3, 2, 2, 1, 2, 2, 2)]


def coo_of(full):
    """All elements of a dense array as a Coo, zeros included."""
    places = np.indices(full.shape).reshape(full.ndim, -1)
    return Coo(places, full.reshape(-1), full.shape)


def dense(tensor):
    full = np.zeros(tensor.shape)
    np.add.at(full, tuple(tensor.coords), tensor.values)
    return full


def outer(weights, factors):
    letters = "abcdefgh"[: len(factors)]
    return np.einsum(f"z,{','.join(f'{letter}z' for letter in letters)}->{letters}", weights, *factors)


def full(model: Cpd):
    return outer(model.weights, model.factors)


def planted(shape, rank, *, noise=0.0, seed=0):
    """A sum of random outer products plus noise, and the fit of the noiseless model."""
    generator = np.random.default_rng([*shape, seed])
    exact = outer(np.ones(rank), [generator.standard_normal((size, rank)) for size in shape])
    error = generator.standard_normal(shape)
    error *= noise * np.linalg.norm(exact) / np.linalg.norm(error)
    return coo_of(exact + error), 1.0 - np.linalg.norm(error) / np.linalg.norm(exact + error)


def sparse(shape, seed=0, *, filled=0.3):
    generator = np.random.default_rng([*shape, seed])
    places = generator.permutation(math.prod(shape))[: round(filled * math.prod(shape))]
    return Coo(np.array(np.unravel_index(places, shape)), 1 + generator.random(places.size), shape)


def start_of(shape, rank, seed=7):
    generator = np.random.default_rng([*shape, seed])
    return [generator.random((size, rank)) for size in shape]


def assert_sound(model, shape, rank):
    """Assert finite values, shapes, columns of norm 1 or 0, and a fit of at most 1."""
    assert [factor.shape for factor in model.factors] == [(size, rank) for size in shape]
    for array in (model.weights, *model.factors):
        assert array.dtype == np.float64
        assert np.isfinite(array).all()
    assert (model.weights >= 0).all()
    for factor in model.factors:
        norms = np.linalg.norm(factor, axis=0)
        assert (np.isclose(norms, 1.0, atol=1e-12) | (norms == 0)).all()
    assert np.isfinite(model.fits).all()
    assert max(model.fits) <= 1.0


# --------------------------------------------------------------------------------------------------
# What it finds
# --------------------------------------------------------------------------------------------------


@pytest.mark.at_most(2)
@pytest.mark.slow_cases("2-(2, 3, 2, 2, 1, 2, 2, 2)")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("rank", [1, 2])
def test_planted_factors_are_recovered(shape, rank):
    tensor, _ = planted(shape, rank)
    model = max((cpd_als(tensor, rank, seed=s, iterations=300, tolerance=1e-12) for s in range(3)), key=fit)
    assert_sound(model, shape, rank)
    assert fit(model) > 1 - 1e-6
    np.testing.assert_allclose(full(model), dense(tensor), atol=1e-5 * np.abs(tensor.values).max())


def fit(model):
    return model.fits[-1]


@pytest.mark.at_most(2)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_noisy_tensor_is_fitted_up_to_its_noise(shape):
    tensor, planted_fit = planted(shape, 2, noise=0.1)
    model = max((cpd_als(tensor, 2, seed=s, iterations=300, tolerance=1e-9) for s in range(3)), key=fit)
    assert planted_fit - 1e-6 <= fit(model) <= planted_fit + 0.05
    assert planted_fit == pytest.approx(0.9, abs=0.01)


def test_a_rank_1_model_of_a_matrix_is_its_first_singular_vectors():
    tensor = sparse((9, 7))
    model = cpd_als(tensor, 1, iterations=500, tolerance=0)
    left, values, right = np.linalg.svd(dense(tensor))
    assert model.weights[0] == pytest.approx(values[0])
    np.testing.assert_allclose(np.abs(model.factors[0][:, 0]), np.abs(left[:, 0]), atol=1e-9)
    np.testing.assert_allclose(np.abs(model.factors[1][:, 0]), np.abs(right[0]), atol=1e-9)
    assert fit(model) == pytest.approx(1 - np.linalg.norm(values[1:]) / np.linalg.norm(values))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("iterations", [1, 2, 7])
def test_the_fit_equals_that_of_the_dense_model(shape, iterations):
    tensor = sparse(shape)
    model = cpd_als(tensor, 3, iterations=iterations, tolerance=0)
    residual = np.linalg.norm(dense(tensor) - full(model)) / np.linalg.norm(tensor.values)
    assert fit(model) == pytest.approx(1 - residual, abs=1e-7)
    assert len(model.fits) == iterations


@pytest.mark.at_most(2)
@pytest.mark.parametrize(
    ("shape", "nonzeros", "rank", "draws"),
    [
        ((2, 5), 12, 2, 60),
        ((3, 4), 9, 3, 10),
        ((3, 2, 4), 40, 6, 5),
        ((2, 3, 2, 2), 12, 2, 5),
        ((1, 1), 1, 1, 2),
    ],
    ids=str,
)
def test_the_fit_is_exact_under_cancellation(shape, nonzeros, rank, draws):
    """Compared with fractions: small residuals, cancelling weights, and random models."""
    for seed in range(draws):
        generator = np.random.default_rng([*shape, seed])
        coords = [generator.integers(0, size, nonzeros) for size in shape]
        tensor = Coo(coords, generator.standard_normal(nonzeros), shape)
        for iterations in (1, 4):
            model = cpd_als(tensor, rank, seed=seed, iterations=iterations, tolerance=0)
            assert_exact(model, tensor)


def assert_exact(model, tensor):
    expected = exact_residual(tensor, model)
    assert abs(fit(model) - (1 - expected)) <= 1e-15 + 1e-12 * expected


@pytest.mark.at_most(3)
@pytest.mark.parametrize("shape", [(60, 40, 50), (2000, 3)], ids=str)
@pytest.mark.parametrize("noise", [1e-13, 1e-10, 1e-7])
def test_the_residual_of_a_nearly_exact_model_is_accurate(shape, noise):
    """More rows and nonzeros than one chunk; the residual is the planted noise."""
    generator = np.random.default_rng(list(shape))
    factors = [np.abs(generator.standard_normal((size, 3))) for size in shape]
    factors = [factor / np.linalg.norm(factor, axis=0) for factor in factors]
    weights = np.array([3.0, 2.0, 1.0])
    tensor = coo_of(outer(weights, factors))
    values, change = tensor.values, generator.standard_normal(tensor.values.size)
    change *= noise * np.linalg.norm(values) / np.linalg.norm(change)
    changed = Coo(tensor.coords, values + change, shape)
    change = changed.values - values  # the one that was stored, exact
    expected = np.linalg.norm(change) / np.linalg.norm(changed.values)
    found = 1 - precise_fit(changed, factors, weights)
    # The model's own elements are rounded: 1e-16 of each.
    assert found == pytest.approx(expected, rel=0.02 if noise == 1e-13 else 1e-5)


@pytest.mark.parametrize(("apart", "precision"), [(1, 1e-9), (1e-5, 1e-4)])
def test_an_iteration_equals_explicit_least_squares(apart, precision):
    """Equation 2 by matricization, Khatri-Rao product and least squares."""
    shape, rank = (4, 5, 3), 2
    tensor, factors = sparse(shape, filled=0.6), start_of(shape, rank)
    for factor in factors:  # with distinct columns, or so similar that V is nearly singular
        factor[:, 1] = factor[:, 0] + apart * (factor[:, 1] - factor[:, 0])
    model = cpd_als(tensor, rank, start=factors, iterations=1)
    for mode in range(3):
        first, second = (factors[n] for n in range(3) if n != mode)
        khatri_rao = (first[:, None] * second[None]).reshape(-1, rank)
        matrix = np.moveaxis(dense(tensor), mode, 0).reshape(shape[mode], -1)
        solved = np.linalg.lstsq(khatri_rao, matrix.T, rcond=None)[0].T
        weights = np.linalg.norm(solved, axis=0)
        factors[mode] = solved / weights
        np.testing.assert_allclose(model.factors[mode], factors[mode], atol=precision)
    np.testing.assert_allclose(model.weights, weights, rtol=precision)


def test_the_fit_never_falls():
    for seed in range(4):
        fits = cpd_als(sparse((8, 9, 7), seed), 4, seed=seed, tolerance=0).fits
        assert len(fits) == 50
        assert min(np.diff(fits)) > -1e-9


def test_the_gradient_is_zero_at_convergence():
    """In every mode MTTKRP equals the factor times V."""
    tensor, _ = planted((6, 7, 5), 2, noise=0.1)
    model = cpd_als(tensor, 2, seed=1, iterations=400, tolerance=0)
    for mode in range(3):
        v = np.prod([f.T @ f for n, f in enumerate(model.factors) if n != mode], axis=0)
        y = mttkrp(tensor, model.factors, mode)
        np.testing.assert_allclose(model.factors[mode] * model.weights @ v, y, atol=1e-6)


# --------------------------------------------------------------------------------------------------
# Systems without a unique solution
# --------------------------------------------------------------------------------------------------


@pytest.mark.at_most(2)
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 2), (1, 4, 1), (2, 2, 1, 3)], ids=str)
def test_more_components_than_rows_fit_exactly(shape):
    tensor = sparse(shape, filled=0.7)
    model = cpd_als(tensor, 9, tolerance=0)
    assert_sound(model, shape, 9)
    assert fit(model) > 1 - 1e-6


def test_two_equal_columns_stay_equal():
    tensor, start = sparse((6, 7, 5)), start_of((6, 7, 5), 3)
    for factor in start:
        factor[:, 2] = factor[:, 0]
    model = cpd_als(tensor, 3, start=start, iterations=20, tolerance=0)
    assert_sound(model, (6, 7, 5), 3)
    for factor in model.factors:
        np.testing.assert_allclose(factor[:, 2], factor[:, 0], atol=1e-9)
    # Equal components share the weight of one.
    alone = cpd_als(tensor, 2, start=[f[:, :2] for f in start], iterations=20, tolerance=0)
    np.testing.assert_allclose(model.fits, alone.fits, atol=1e-9)
    np.testing.assert_allclose(full(model), full(alone), atol=1e-8)


def test_a_column_of_zeros_stays_zero():
    tensor, start = sparse((6, 7, 5)), start_of((6, 7, 5), 3)
    start[1][:, 1] = 0
    model = cpd_als(tensor, 3, start=start, iterations=5)
    assert_sound(model, (6, 7, 5), 3)
    assert model.weights[1] == 0
    assert not any(factor[:, 1].any() for factor in model.factors)
    alone = cpd_als(tensor, 2, start=[f[:, ::2] for f in start], iterations=5)
    np.testing.assert_allclose(model.fits, alone.fits, atol=1e-12)


def test_a_start_of_zeros_gives_the_empty_model():
    model = cpd_als(sparse((6, 7, 5)), 2, start=[np.zeros((size, 2)) for size in (6, 7, 5)])
    assert_sound(model, (6, 7, 5), 2)
    assert model.fits == (0.0, 0.0)
    assert model.converged


def test_slices_of_zeros_have_rows_of_zeros():
    small = sparse((4, 5, 3), filled=0.7)
    wide = Coo(small.coords * np.array([[2], [1], [3]]), small.values, (9, 6, 8))
    model = cpd_als(wide, 2, iterations=10)
    assert_sound(model, (9, 6, 8), 2)
    for n, factor in enumerate(model.factors):
        unused = np.setdiff1d(np.arange(wide.shape[n]), wide.coords[n])
        assert unused.size
        assert not factor[unused].any()


def test_a_tensor_of_one_nonzero_is_fitted_exactly():
    model = cpd_als(Coo([[1], [0], [2]], [-3.0], (2, 2, 4)), 2)
    assert_sound(model, (2, 2, 4), 2)
    assert fit(model) == pytest.approx(1)
    np.testing.assert_allclose(full(model)[1, 0, 2], -3)


# --------------------------------------------------------------------------------------------------
# Laws
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", [-1000, -3, 5, 1000])
def test_scaling_the_tensor_scales_the_weights(exponent):
    tensor = sparse((6, 7, 5))
    model = cpd_als(tensor, 3, iterations=4)
    scaled = cpd_als(Coo(tensor.coords, np.ldexp(tensor.values, exponent), tensor.shape), 3, iterations=4)
    assert scaled.fits == model.fits
    np.testing.assert_array_equal(scaled.weights, np.ldexp(model.weights, exponent))
    for factor, expected in zip(scaled.factors, model.factors, strict=True):
        np.testing.assert_array_equal(factor, expected)


@pytest.mark.parametrize("scale", [1e-12, 1e9])
def test_scaling_columns_of_the_start_changes_nothing(scale):
    tensor, start = sparse((6, 7, 5)), start_of((6, 7, 5), 3)
    columns = np.array([1, scale, 1 / scale])
    model = cpd_als(tensor, 3, start=start, iterations=4)
    scaled = cpd_als(tensor, 3, start=[start[0], start[1] * columns, start[2]], iterations=4)
    np.testing.assert_allclose(scaled.fits, model.fits, atol=1e-9)
    np.testing.assert_allclose(scaled.weights, model.weights, rtol=1e-6)


def test_permuting_the_start_permutes_the_components():
    tensor, start = sparse((6, 7, 5)), start_of((6, 7, 5), 3)
    model = cpd_als(tensor, 3, start=start, iterations=5)
    for order in itertools.permutations(range(3)):
        other = cpd_als(tensor, 3, start=[factor[:, list(order)] for factor in start], iterations=5)
        np.testing.assert_allclose(other.weights, model.weights[list(order)], rtol=1e-9)
        for factor, expected in zip(other.factors, model.factors, strict=True):
            np.testing.assert_allclose(factor, expected[:, list(order)], atol=1e-9)


def test_permuting_indices_permutes_rows():
    tensor, start = sparse((6, 7, 5)), start_of((6, 7, 5), 3)
    places = np.array([3, 5, 0, 6, 4, 1, 2])
    coords = np.vstack([tensor.coords[0], places[tensor.coords[1]], tensor.coords[2]])
    renamed = [start[0], start[1][np.argsort(places)], start[2]]
    model = cpd_als(tensor, 3, start=start, iterations=5)
    other = cpd_als(Coo(coords, tensor.values, tensor.shape), 3, start=renamed, iterations=5)
    np.testing.assert_allclose(other.fits, model.fits, atol=1e-12)
    np.testing.assert_allclose(other.factors[1][places], model.factors[1], atol=1e-9)


def test_permuting_modes_permutes_a_converged_model():
    """The solves have another order, but the best rank-1 model is the same."""
    tensor = sparse((6, 7, 5))
    model = cpd_als(tensor, 1, iterations=80, tolerance=0)
    for order in itertools.permutations(range(3)):
        permuted = Coo(tensor.coords[list(order)], tensor.values, tuple(tensor.shape[n] for n in order))
        other = cpd_als(permuted, 1, iterations=80, tolerance=0)
        assert fit(other) == pytest.approx(fit(model), abs=1e-9)
        for factor, n in zip(other.factors, order, strict=True):
            np.testing.assert_allclose(np.abs(factor), np.abs(model.factors[n]), atol=1e-6)


def test_duplicate_coordinates_are_summed():
    tensor = sparse((6, 7, 5))
    halves = Coo(np.hstack([tensor.coords] * 2), np.tile(tensor.values / 2, 2), tensor.shape)
    once, twice = (cpd_als(given, 2, iterations=5) for given in (tensor, halves))
    assert once.fits == twice.fits
    np.testing.assert_array_equal(once.weights, twice.weights)


def test_the_order_of_nonzeros_and_the_format_do_not_matter():
    tensor = sparse((6, 7, 5))
    mixed = Coo(tensor.coords[:, ::-1], tensor.values[::-1], tensor.shape)
    expected = cpd_als(tensor, 2, iterations=5)
    for given in (mixed, mm_csf(tensor)):
        assert cpd_als(given, 2, iterations=5).fits == expected.fits


def test_float32_values_are_decomposed_in_float64():
    tensor = sparse((6, 7, 5))
    single = Coo(tensor.coords, tensor.values.astype(np.float32), tensor.shape)
    model = cpd_als(single, 2, iterations=3)
    assert_sound(model, (6, 7, 5), 2)
    widened = Coo(tensor.coords, single.values.astype(np.float64), tensor.shape)
    assert cpd_als(widened, 2, iterations=3).fits == model.fits


# --------------------------------------------------------------------------------------------------
# Start, progress, end
# --------------------------------------------------------------------------------------------------


def test_the_seeded_start_equals_its_documentation():
    tensor, rank = sparse((6, 7, 5)), 3
    words = [np.random.Philox(key=[11, n]).random_raw(size * rank) for n, size in enumerate((6, 7, 5))]
    start = [np.array([int(w) >> 11 for w in ws]).reshape(-1, rank) / 2.0**53 for ws in words]
    assert cpd_als(tensor, rank, seed=11).fits == cpd_als(tensor, rank, start=start).fits


def test_a_seed_is_reproducible_and_seeds_differ():
    tensor = sparse((6, 7, 5))
    first, again, other = (cpd_als(tensor, 3, seed=seed, iterations=3) for seed in (5, 5, 2**64 - 1))
    assert first.fits == again.fits
    np.testing.assert_array_equal(first.factors[2], again.factors[2])
    assert first.fits != other.fits


def test_the_start_is_not_modified():
    tensor, start = sparse((6, 7, 5)), start_of((6, 7, 5), 2)
    copies = [factor.copy() for factor in start]
    cpd_als(tensor, 2, start=start, iterations=2)
    for factor, copy in zip(start, copies, strict=True):
        np.testing.assert_array_equal(factor, copy)


def test_a_decomposition_continues_from_a_model():
    tensor = sparse((6, 7, 5))
    through = cpd_als(tensor, 2, iterations=8, tolerance=0)
    half = cpd_als(tensor, 2, iterations=4, tolerance=0)
    rest = cpd_als(tensor, 2, start=half.factors, iterations=4, tolerance=0)
    np.testing.assert_allclose(half.fits + rest.fits, through.fits, atol=1e-12)


def test_a_start_may_be_lists_of_integers():
    tensor = Coo([[0, 1], [0, 1]], [1.0, 2.0], (2, 2))
    model = cpd_als(tensor, 1, start=[[[0], [0]], [[1], [1]]], iterations=2)
    assert fit(model) == cpd_als(tensor, 1, start=[np.zeros((2, 1)), np.ones((2, 1))], iterations=2).fits[-1]


def test_iterations_end_when_the_fit_stops_changing():
    tensor = sparse((6, 7, 5))
    everything = cpd_als(tensor, 2, iterations=40, tolerance=0)
    assert not everything.converged
    assert len(everything.fits) == 40
    changes = np.abs(np.diff(everything.fits))
    tolerance = float(changes[9]) * 1.0001
    model = cpd_als(tensor, 2, iterations=40, tolerance=tolerance)
    assert model.converged
    last = 2 + int(np.argmax(changes < tolerance))
    assert model.fits == everything.fits[:last]


def test_the_last_iteration_may_converge():
    tensor = sparse((6, 7, 5))
    assert not cpd_als(tensor, 2, iterations=1, tolerance=10).converged
    assert cpd_als(tensor, 2, iterations=2, tolerance=10).converged


def test_progress_is_reported_and_an_exception_stops_the_run():
    tensor, reported = sparse((6, 7, 5)), []

    def progress(iteration, fit):
        reported.append((iteration, fit))
        if iteration == 3:
            raise KeyboardInterrupt

    model = cpd_als(tensor, 2, iterations=2, tolerance=0, progress=progress)
    assert reported == [*enumerate(model.fits, 1)]
    with pytest.raises(KeyboardInterrupt):
        cpd_als(tensor, 2, tolerance=0, progress=progress)
    assert [iteration for iteration, _ in reported] == [1, 2, 1, 2, 3]


# --------------------------------------------------------------------------------------------------
# A library
# --------------------------------------------------------------------------------------------------


@pytest.mark.at_most(1)
@pytest.mark.slow_cases("shape0-2")
@pytest.mark.parametrize(
    ("shape", "rank"),
    [((9, 7), 2), ((8, 9, 7), 3), ((20, 30, 11), 5), ((5, 6, 4, 7), 4), ((3, 4, 3, 2, 5), 2)],
)
def test_fits_equal_those_of_pyttb(shape, rank):
    pyttb = pytest.importorskip("pyttb")
    tensor, start = sparse(shape), start_of(shape, rank)
    other = pyttb.sptensor(tensor.coords.T.copy(), tensor.values[:, None], shape)
    model = cpd_als(tensor, rank, start=start, iterations=12, tolerance=0)
    factors = start
    for mine in model.fits:  # an iteration starts from the previous factors, independent of their norms
        begin = pyttb.ktensor([factor.copy() for factor in factors])
        found, _, info = pyttb.cp_als(
            other, rank, init=begin, maxiters=1, stoptol=0.0, printitn=0, fixsigns=False
        )
        assert info["iters"] + 1 == 1
        assert info["fit"] == pytest.approx(mine, abs=1e-5)
        factors = found.factor_matrices
    np.testing.assert_allclose(found.full().data, full(model), atol=1e-5)


# --------------------------------------------------------------------------------------------------
# Errors
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rank", "iterations"])
@pytest.mark.parametrize("number", [0, -1])
def test_a_rank_or_iteration_count_below_1_is_refused(name, number):
    with pytest.raises(ShapeError, match=rf"^{name} is {number}\nit must be at least 1\n"):
        cpd_als(sparse((6, 7, 5)), **{"rank": 2, name: number})


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seeds_out_of_range_are_refused(seed):
    with pytest.raises(SchemeError, match=rf"^seed is {seed}\nseeds are 0 to 2\*\*64 - 1\n"):
        cpd_als(sparse((6, 7, 5)), 2, seed=seed)


def test_a_tolerance_that_is_not_a_number_is_refused():
    with pytest.raises(NotANumberError, match=r"^tolerance is NaN\n"):
        cpd_als(sparse((6, 7, 5)), 2, tolerance=float("nan"))


@pytest.mark.parametrize(
    ("shapes", "complaint"),
    [
        ([(6, 2), (7, 2)], r"^start has 2 matrices\nthe tensor has 3 modes"),
        ([(6, 2), (5, 2), (7, 2)], r"^start\[1\] has shape \(5, 2\)\n\(7, 2\) is needed: .* the rank is 2\n"),
        ([(6, 2), (7, 2), (5, 3)], r"^start\[2\] has shape \(5, 3\)\n\(5, 2\) is needed"),
        ([(6,), (7, 2), (5, 2)], r"^start\[0\] has shape \(6,\)\n"),
    ],
    ids=str,
)
def test_starts_of_wrong_shapes_are_refused(shapes, complaint):
    with pytest.raises(ShapeError, match=complaint):
        cpd_als(sparse((6, 7, 5)), 2, start=[np.ones(shape) for shape in shapes])


def test_starts_with_unsuitable_elements_are_refused():
    start = start_of((6, 7, 5), 2)
    with pytest.raises(DtypeError, match=r"^start\[1\] is complex128\n"):
        cpd_als(sparse((6, 7, 5)), 2, start=[start[0], start[1] + 0j, start[2]])
    start[2][3, 1] = np.inf
    with pytest.raises(NotANumberError, match=r"^start\[2\]\[3, 1\] is inf\n"):
        cpd_als(sparse((6, 7, 5)), 2, start=start)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nonfinite_values_are_refused(value):
    tensor = Coo([[1, 0], [0, 2]], [value, 1.0], (2, 3), nonfinite=True)
    with pytest.raises(NotANumberError, match=rf"^the value at \(1, 0\) is {value}\n"):
        cpd_als(tensor, 1)


@pytest.mark.parametrize("values", [[0.0, -0.0], [2.0, -2.0]])
def test_a_tensor_of_zeros_is_refused(values):
    with pytest.raises(ShapeError, match=r"values of the tensor are 0: there is nothing to decompose\n"):
        cpd_als(Coo([[1, 1], [0, 0]], values, (2, 3)), 1)
