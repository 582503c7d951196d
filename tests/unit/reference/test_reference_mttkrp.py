"""The reference MTTKRP equals dense tensors, its Numba version and pyttb; and its error bound holds."""

import importlib
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference import DtypeError, ShapeError
from reference.mttkrp import _add_terms_numba, _add_terms_numpy, mttkrp, mttkrp_bound
from reference.sparse import csf, mm_csf
from reference.types import Coo

MODULE = importlib.import_module("reference.mttkrp")
SHAPES = [(3, 5), (1, 7), (4, 3, 5), (7, 1, 2), (2, 3, 4, 5), (3, 2, 1, 4, 2), (2, 3, 2, 1, 2, 2, 3, 2)]
MODES = [(shape, mode) for shape in SHAPES for mode in range(len(shape))]


def sparse(shape, seed=0, *, filled=0.4, dtype=np.float64):
    """A tensor with the given share of nonzeros, in random order."""
    generator = np.random.default_rng([*shape, seed])
    size = math.prod(shape)
    places = generator.permutation(size)[: max(1, round(filled * size))]
    values = generator.standard_normal(places.size).astype(dtype)
    return Coo(np.array(np.unravel_index(places, shape)), values, shape)


def factors_of(shape, rank=4, seed=1, dtype=np.float64):
    generator = np.random.default_rng([*shape, seed])
    return [generator.standard_normal((size, rank)).astype(dtype) for size in shape]


def dense(tensor):
    full = np.zeros(tensor.shape)
    np.add.at(full, tuple(tensor.coords), tensor.values)
    return full


def by_einsum(tensor, factors, mode):
    letters = "abcdefgh"[: len(factors)]
    rows = [f"{letter}z" for n, letter in enumerate(letters) if n != mode]
    others = [factor for n, factor in enumerate(factors) if n != mode]
    return np.einsum(f"{letters},{','.join(rows)}->{letters[mode]}z", dense(tensor), *others)


def by_matricization(tensor, factors, mode):
    """Equation 2: the mode-n matricization times the Khatri-Rao product, both explicit."""
    others = [factor for n, factor in enumerate(factors) if n != mode]
    product = others[0]
    for factor in others[1:]:
        product = (product[:, None, :] * factor[None, :, :]).reshape(-1, product.shape[1])
    return np.moveaxis(dense(tensor), mode, 0).reshape(tensor.shape[mode], -1) @ product


def assert_within(result, expected, bound):
    assert result.shape == expected.shape == bound.shape
    assert (np.abs(result - expected) <= bound).all(), np.max(np.abs(result - expected) - bound)


@pytest.fixture(params=["numpy", "numba"])
def path(request, monkeypatch):
    """Force every tensor onto the NumPy or the Numba path."""
    monkeypatch.setattr(MODULE, "_LARGE", 0 if request.param == "numba" else 1 << 62)


# --------------------------------------------------------------------------------------------------
# Values
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "mode"), MODES, ids=str)
@pytest.mark.usefixtures("path")
def test_mttkrp_equals_the_dense_definition(shape, mode):
    tensor, factors = sparse(shape), factors_of(shape)
    y = mttkrp(tensor, factors, mode)
    assert y.dtype == np.float64
    assert y.flags.c_contiguous
    bound = mttkrp_bound(tensor, factors, mode, np.float64)
    assert_within(y, by_einsum(tensor, factors, mode), bound)
    assert_within(y, by_matricization(tensor, factors, mode), bound)


@pytest.mark.usefixtures("path")
def test_mttkrp_equals_a_hand_computed_example():
    tensor = Coo([[0, 2, 2], [1, 0, 1], [0, 1, 0]], [2, 3, 5], (3, 2, 2))
    factors = [np.array([[1, 2], [4, 8], [16, 32]]), np.array([[3, 1], [5, 7]]), np.array([[1, 10], [2, 20]])]
    factors = [factor.astype(np.float64) for factor in factors]
    assert mttkrp(tensor, factors, 0).tolist() == [[10, 140], [0, 0], [43, 410]]
    assert mttkrp(tensor, factors, 1).tolist() == [[96, 1920], [82, 1640]]
    assert mttkrp(tensor, factors, 2).tolist() == [[410, 1148], [144, 96]]


@pytest.mark.parametrize("rank", [1, 2, 31, 33])
@pytest.mark.usefixtures("path")
def test_each_column_equals_a_rank_1_mttkrp(rank):
    tensor, factors = sparse((5, 4, 3)), factors_of((5, 4, 3), rank)
    together = mttkrp(tensor, factors, 1)
    for r in range(rank):
        column = mttkrp(tensor, [factor[:, r : r + 1] for factor in factors], 1)
        np.testing.assert_array_equal(together[:, r : r + 1], column)


@pytest.mark.usefixtures("path")
def test_duplicate_coordinates_add_up():
    tensor = sparse((4, 5, 3))
    z = np.array([0, 3, 3, 7, 7, 7])
    twice = Coo(
        np.hstack([tensor.coords, tensor.coords[:, z]]), np.r_[tensor.values, tensor.values[z]], (4, 5, 3)
    )
    for mode in range(3):
        factors = factors_of((4, 5, 3))
        bound = mttkrp_bound(twice, factors, mode, np.float64)
        assert_within(mttkrp(twice, factors, mode), by_einsum(twice, factors, mode), bound)


def test_every_format_gives_the_same_result():
    tensor, factors = sparse((6, 4, 5)), factors_of((6, 4, 5))
    for built, mode in itertools.product((csf(tensor), mm_csf(tensor)), range(3)):
        expected = mttkrp(tensor, factors, mode)
        bound = mttkrp_bound(tensor, factors, mode, np.float64)
        assert_within(mttkrp(built, factors, mode), expected, bound)
        np.testing.assert_allclose(mttkrp_bound(built, factors, mode, np.float64), bound)


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_results_do_not_depend_on_the_chunk_size(monkeypatch, chunk):
    tensor, factors = sparse((5, 7, 3)), factors_of((5, 7, 3))
    monkeypatch.setattr(MODULE, "_CHUNK", chunk)
    for mode in range(3):
        bound = mttkrp_bound(tensor, factors, mode, np.float64)
        assert_within(mttkrp(tensor, factors, mode), by_einsum(tensor, factors, mode), bound)


@given(
    shape=st.lists(st.integers(1, 9), min_size=2, max_size=5).map(tuple),
    rank=st.integers(1, 5),
    seed=st.integers(0, 9),
    single=st.booleans(),
)
def test_numpy_and_numba_agree(shape, rank, seed, single):
    dtype = np.float32 if single else np.float64
    tensor, factors = sparse(shape, seed, dtype=dtype), factors_of(shape, rank, seed, dtype)
    for mode, size in enumerate(shape):
        others = [n for n in range(len(shape)) if n != mode]
        rows, indices = tensor.coords[mode], [tensor.coords[n] for n in others]
        results = np.zeros((2, size, rank))
        for add_terms, y in zip((_add_terms_numpy, _add_terms_numba), results, strict=True):
            add_terms(rows, indices, tensor.values, [factors[n] for n in others], y)
        assert_within(*results, mttkrp_bound(tensor, factors, mode, np.float64))


def test_the_size_selects_the_numpy_or_numba_path(monkeypatch):
    taken = []
    for path in ("_add_terms_numpy", "_add_terms_numba"):
        monkeypatch.setattr(MODULE, path, lambda *_, path=path: taken.append(path))
    tensor, factors = sparse((4, 4, 4), filled=1), factors_of((4, 4, 4), 3)
    monkeypatch.setattr(MODULE, "_LARGE", 64 * 2 * 3)
    mttkrp(tensor, factors, 0)
    mttkrp(tensor, [factor[:, :2] for factor in factors], 0)
    assert taken == ["_add_terms_numba", "_add_terms_numpy"]


@pytest.mark.parametrize("dtype", ["u1", ">u2", "u4", "<i8", ">i8", "u8"])
@pytest.mark.usefixtures("path")
def test_index_types_and_memory_orders_do_not_matter(dtype):
    tensor, factors = sparse((5, 4, 3)), factors_of((5, 4, 3))
    expected = [mttkrp(tensor, factors, mode) for mode in range(3)]
    other = Coo(tensor.coords.astype(dtype), tensor.values, tensor.shape)
    strange = [factors[0], np.asfortranarray(factors[1]), np.repeat(factors[2], 2, axis=0)[::2]]
    strange[0].flags.writeable = False
    for mode in range(3):
        np.testing.assert_array_equal(mttkrp(other, strange, mode), expected[mode])


@pytest.mark.usefixtures("path")
def test_float32_is_computed_in_float64():
    tensor, factors = sparse((5, 4, 3), dtype=np.float32), factors_of((5, 4, 3), dtype=np.float32)
    exact = Coo(tensor.coords, tensor.values.astype(np.float64), tensor.shape)
    wide = [factor.astype(np.float64) for factor in factors]
    np.testing.assert_array_equal(mttkrp(tensor, factors, 2), mttkrp(exact, wide, 2), strict=True)


@pytest.mark.usefixtures("path")
def test_the_factor_of_the_mode_is_not_read():
    tensor, factors = sparse((5, 4, 3)), factors_of((5, 4, 3))
    for mode in range(3):
        poisoned = [np.full_like(f, np.nan) if n == mode else f for n, f in enumerate(factors)]
        np.testing.assert_array_equal(mttkrp(tensor, poisoned, mode), mttkrp(tensor, factors, mode))
        bounds = (mttkrp_bound(tensor, given, mode, np.float32) for given in (poisoned, factors))
        np.testing.assert_array_equal(*bounds)


@pytest.mark.usefixtures("path")
def test_nonfinite_operands_follow_ieee():
    tensor = Coo([[0, 1, 2, 2], [0, 1, 0, 1]], [1, 1, 0, 1], (4, 2))
    factors = [np.ones((4, 2)), np.array([[np.inf, 1.0], [np.nan, -np.inf]])]
    y = mttkrp(tensor, factors, 0)
    np.testing.assert_array_equal(y, [[np.inf, 1], [np.nan, -np.inf], [np.nan, -np.inf], [0, 0]])
    values = Coo([[0, 1], [0, 1]], [np.inf, 1.0], (2, 2), nonfinite=True)
    np.testing.assert_array_equal(mttkrp(values, [np.ones((2, 1))] * 2, 0), [[np.inf], [1]])


def test_results_equal_those_of_pyttb():
    pyttb = pytest.importorskip("pyttb")
    for shape in [(3, 5), (7, 11, 13), (5, 6, 4, 3), (2, 3, 4, 3, 2)]:
        tensor, factors = sparse(shape), factors_of(shape, 6)
        other = pyttb.sptensor(tensor.coords.T.copy(), tensor.values[:, None], shape)
        for mode in range(len(shape)):
            bound = mttkrp_bound(tensor, factors, mode, np.float64)
            assert_within(other.mttkrp(factors, mode), mttkrp(tensor, factors, mode), bound)


# --------------------------------------------------------------------------------------------------
# Relations
# --------------------------------------------------------------------------------------------------


def test_permuting_the_modes_keeps_the_result():
    tensor, factors = sparse((5, 4, 3)), factors_of((5, 4, 3))
    for order in itertools.permutations(range(3)):
        permuted = Coo(tensor.coords[list(order)], tensor.values, tuple(tensor.shape[n] for n in order))
        y = mttkrp(permuted, [factors[n] for n in order], order.index(1))
        assert_within(y, mttkrp(tensor, factors, 1), mttkrp_bound(tensor, factors, 1, np.float64))


def test_permuting_rows_permutes_rows():
    tensor, factors = sparse((5, 4, 3)), factors_of((5, 4, 3))
    places = np.array([3, 0, 4, 1, 2])
    moved = Coo(np.vstack([places[tensor.coords[0]], tensor.coords[1:]]), tensor.values, tensor.shape)
    renamed = [factors[0][np.argsort(places)], *factors[1:]]
    np.testing.assert_array_equal(mttkrp(moved, renamed, 0)[places], mttkrp(tensor, factors, 0))
    bound = mttkrp_bound(tensor, factors, 1, np.float64)
    assert_within(mttkrp(moved, renamed, 1), mttkrp(tensor, factors, 1), bound)


def test_scaling_by_powers_of_two_is_exact():
    tensor, factors = sparse((5, 4, 3)), factors_of((5, 4, 3))
    scaled = Coo(tensor.coords, 4 * tensor.values, tensor.shape)
    columns = np.array([1, 2, 0.5, -8])
    y = mttkrp(scaled, [factors[0], factors[1] * columns, factors[2]], 0)
    np.testing.assert_array_equal(y, 4 * columns * mttkrp(tensor, factors, 0))


def test_sums_over_parts_of_the_nonzeros_add_up():
    tensor, factors = sparse((5, 4, 3)), factors_of((5, 4, 3))
    parts = [Coo(tensor.coords[:, z], tensor.values[z], tensor.shape) for z in (np.s_[:9], np.s_[9:])]
    for mode in range(3):
        y = sum(mttkrp(part, factors, mode) for part in parts)
        bound = mttkrp_bound(tensor, factors, mode, np.float64)
        assert_within(y, mttkrp(tensor, factors, mode), bound)


def test_every_mode_gives_the_same_inner_product_with_the_model():
    """The inner product does not depend on the mode of MTTKRP."""
    tensor, factors = sparse((5, 4, 3)), factors_of((5, 4, 3))
    products = [np.sum(mttkrp(tensor, factors, n) * factors[n]) for n in range(3)]
    model = np.einsum("az,bz,cz->abc", *factors)
    np.testing.assert_allclose(products, np.sum(dense(tensor) * model), rtol=1e-12)


# --------------------------------------------------------------------------------------------------
# The bound
# --------------------------------------------------------------------------------------------------


def in_order(tensor, factors, mode, sequence, dtype=np.float32):
    """A plain sum in the given type, in the given order of the nonzeros."""
    y = np.zeros((tensor.shape[mode], factors[0].shape[1]), dtype)
    for z in sequence:
        term = np.full(y.shape[1], tensor.values[z], dtype)
        for n, factor in enumerate(factors):
            term = term if n == mode else term * factor[tensor.coords[n, z]]
        y[tensor.coords[mode, z]] += term
    assert y.dtype == dtype
    return y


@pytest.mark.parametrize("shape", [(2, 300), (3, 20, 30), (2, 8, 9, 7)], ids=str)
def test_float32_sums_in_any_order_stay_within_the_bound(shape):
    tensor, factors = sparse(shape, dtype=np.float32), factors_of(shape, dtype=np.float32)
    bound = mttkrp_bound(tensor, factors, 0, np.float32)
    expected = mttkrp(tensor, factors, 0)
    by_size = np.argsort(np.abs(tensor.values))
    for sequence in (range(tensor.values.size), by_size, by_size[::-1]):
        y = in_order(tensor, factors, 0, sequence)
        assert_within(y, expected, bound)
        assert (y != expected).any()


def test_rounded_products_stay_within_the_bound():
    """Order 8 with one term per row: up to seven roundings of products and none of a sum."""
    shape = (300, 1, 1, 1, 1, 1, 1, 1)
    tensor, factors = sparse(shape, filled=1, dtype=np.float32), factors_of(shape, dtype=np.float32)
    expected = mttkrp(tensor, factors, 0)
    error = np.abs(in_order(tensor, factors, 0, range(300)) - expected)
    assert_within(error, np.zeros_like(error), mttkrp_bound(tensor, factors, 0, np.float32))
    assert (error > 1.5 * 2.0**-24 * np.abs(expected)).any()


def test_a_dropped_or_doubled_term_exceeds_the_bound():
    tensor, factors = sparse((4, 9, 5), dtype=np.float32), factors_of((4, 9, 5), dtype=np.float32)
    tensor = Coo(tensor.coords, np.sign(tensor.values) * (1 + np.abs(tensor.values)), tensor.shape)
    factors = [np.sign(factor) * (1 + np.abs(factor)) for factor in factors]
    bound = mttkrp_bound(tensor, factors, 0, np.float32)
    expected = mttkrp(tensor, factors, 0)
    everything = range(tensor.values.size)
    for z in everything:
        for sequence in ([x for x in everything if x != z], [*everything, z]):
            wrong = np.abs(in_order(tensor, factors, 0, sequence) - expected) > bound
            assert wrong[tensor.coords[0, z]].all()
            assert np.delete(wrong, tensor.coords[0, z], axis=0).sum() == 0


def test_a_worst_case_error_is_close_to_the_bound():
    """2**k + 1 with every 1 lost: γ without the products' part, within the factor 2 of magnitudes."""
    terms = 1000
    tensor = Coo([[0] * terms, range(terms)], np.r_[2.0**24, np.ones(terms - 1)], (1, terms))
    factors = [np.ones((1, 1)), np.ones((terms, 1))]
    single = [factor.astype(np.float32) for factor in factors]
    error = mttkrp(tensor, factors, 0) - in_order(tensor, single, 0, range(terms))
    bound = mttkrp_bound(tensor, factors, 0, np.float32)
    assert error == terms - 1
    assert error <= bound < 1.1 * error


def test_the_float64_bound_is_smaller_and_holds():
    tensor, factors = sparse((3, 20, 30)), factors_of((3, 20, 30))
    single, double = (mttkrp_bound(tensor, factors, 0, dtype) for dtype in (np.float32, np.float64))
    np.testing.assert_allclose(double, single * 2.0**-28, rtol=1e-4)
    y = in_order(tensor, factors, 0, range(tensor.values.size)[::-1], np.float64)
    assert_within(y, mttkrp(tensor, factors, 0), double)


def test_the_bound_covers_underflow():
    tiny = float(np.finfo(np.float32).tiny)
    tensor = Coo([[0, 1], [0, 0], [0, 0]], np.array([tiny, 0.0], np.float32), (3, 1, 1))
    factors = [np.ones((3, 1)), np.full((1, 1), 0.3), np.full((1, 1), 64.0)]
    factors = [factor.astype(np.float32) for factor in factors]
    bound = mttkrp_bound(tensor, factors, 0, np.float32)
    lost = mttkrp(tensor, factors, 0)[0]  # tiny * 0.3, flushed to 0, times 64
    assert lost > 0
    assert lost <= bound[0] <= 20 * lost
    assert bound[2] == 0


def test_a_row_of_too_many_terms_has_an_infinite_bound(monkeypatch):
    tensor = Coo([[0, 0, 1], [0, 1, 0]], [1.0, 2.0, 0.0], (2, 2))
    factors = [np.ones((2, 1)), np.ones((2, 1))]
    monkeypatch.setattr(MODULE.np, "bincount", lambda *_, minlength: np.full(minlength, 2**24))
    single, double = (mttkrp_bound(tensor, factors, 0, dtype) for dtype in (np.float32, np.float64))
    assert np.isinf(single[0])
    assert single[1] < 1e-20  # its one term is 0
    assert np.isfinite(double).all()


def test_nonfinite_terms_have_no_finite_bound():
    tensor = Coo([[0, 1, 2], [0, 0, 1]], [1.0, 2.0, 3.0], (3, 2))
    factors = [np.ones((3, 1)), np.array([[np.inf], [1.0]])]
    assert not np.isfinite(mttkrp_bound(tensor, factors, 0, np.float32)[:2]).any()


# --------------------------------------------------------------------------------------------------
# Errors
# --------------------------------------------------------------------------------------------------


@pytest.fixture(params=[mttkrp, lambda *a: mttkrp_bound(*a, np.float32)], ids=["mttkrp", "bound"])
def call(request):
    return request.param


@pytest.mark.parametrize("mode", [-1, 3, 1.0, "1", None])
def test_modes_out_of_range_are_refused(call, mode):
    with pytest.raises(ShapeError, match=r"^mode=.* of a tensor of order 3\nmodes count from 0 to 2"):
        call(sparse((5, 4, 3)), factors_of((5, 4, 3)), mode)


@pytest.mark.parametrize(
    ("shapes", "complaint"),
    [
        ([(5, 2), (4, 2)], r"^factors has 2 matrices\nthe tensor has 3 modes"),
        ([(5, 2), (4, 2), (3, 2), (1, 2)], r"^factors has 4 matrices"),
        (
            [(5, 2), (3, 2), (4, 2)],
            r"^factors\[1\] has shape \(3, 2\)\n\(4, 2\) is needed: mode 1 has d",
        ),
        (
            [(5, 2), (4, 2), (3, 1)],
            r"^factors\[2\] has shape \(3, 1\)\n\(3, 2\) is needed: .*\[0\] has 2 col",
        ),
        ([(5, 2), (4,), (3, 2)], r"^factors\[1\] has shape \(4,\)\n\(4, 2\) is needed"),
        (
            [(5,), (4, 2), (3, 2)],
            r"^factors\[0\] has shape \(5,\)\n\(5, R\) is needed: .* has R >= 1 ",
        ),
        ([(5, 0), (4, 0), (3, 0)], r"^factors\[0\] has shape \(5, 0\)\n\(5, R\) is needed: .* has R >= 1"),
    ],
    ids=str,
)
def test_factors_of_wrong_shapes_are_refused(call, shapes, complaint):
    for mode in range(3):
        with pytest.raises(ShapeError, match=complaint):
            call(sparse((5, 4, 3)), [np.ones(shape) for shape in shapes], mode)


@pytest.mark.parametrize(
    ("dtypes", "complaint"),
    [
        (("i8", "i8", "i8"), r"^factors are int64\nfloat32 and float64 are supported"),
        (("f8", "f4", "f8"), r"^factors\[1\] is float32\nfactors\[0\] is float64"),
        (("f4", "f4", "i4"), r"^factors\[2\] is int32"),
        (("f2", "f2", "f2"), r"^factors are float16"),
        (("c8", "c8", "c8"), r"^factors are complex64"),
    ],
    ids=str,
)
def test_factors_of_other_types_are_refused(call, dtypes, complaint):
    factors = [
        f.astype(dtype) for f, dtype in zip(map(np.ones, [(5, 2), (4, 2), (3, 2)]), dtypes, strict=True)
    ]
    with pytest.raises(DtypeError, match=complaint):
        call(sparse((5, 4, 3)), factors, 0)


def test_a_bound_of_an_unsupported_type_is_refused():
    with pytest.raises(DtypeError, match=r"^dtype is float16\n"):
        mttkrp_bound(sparse((5, 4, 3)), factors_of((5, 4, 3)), 0, np.float16)
