"""Conversion of sparse tensors to and from SciPy, pydata/sparse and PyTorch, where installed."""

import sys

import numpy as np
import pytest

from reference.errors import DtypeError, FormatError, MissingExtraError, NotANumberError, ShapeError
from reference.sparse import (
    FORMATS,
    Coo,
    coalesce,
    from_pydata,
    from_scipy,
    from_torch,
    to_coo,
    to_pydata,
    to_scipy,
    to_torch,
)

SHAPES = [(1, 1), (7, 5), (3, 1, 11), (4, 5, 6, 7), (2, 3, 1, 2, 3, 2, 1, 3)]
DTYPES = [np.float32, np.float64]
PAIRS = {"scipy": (to_scipy, from_scipy), "sparse": (to_pydata, from_pydata), "torch": (to_torch, from_torch)}
NAME_OF = {"scipy": "scipy.sparse", "sparse": "sparse", "torch": "torch"}

MATRIX = np.array([[0.0, 0.0, 5.0], [7.0, 0.0, -1.0]])


@pytest.fixture(params=PAIRS)
def pair(request):
    pytest.importorskip(NAME_OF[request.param])
    return PAIRS[request.param]


def random_coo(shape, dtype, seed=0):
    """About half of the elements, in random order, with one explicit zero."""
    generator = np.random.default_rng(seed)
    coords = np.argwhere(generator.random(shape) < 0.6).T
    coords = coords if coords.size else np.zeros((len(shape), 1), np.int64)
    coords = coords[:, generator.permutation(coords.shape[1])]
    values = generator.standard_normal(coords.shape[1]).astype(dtype)
    values[-1] = 0
    return Coo(coords, values, shape)


def dense(coo):
    array = np.zeros(coo.shape, coo.values.dtype)
    np.add.at(array, tuple(coo.coords), coo.values)
    return array


def same(left, right):
    """Assert equal nonzeros, bit by bit, in any order."""
    left, right = to_coo(left), to_coo(right)
    assert left.shape == right.shape
    assert left.coords.tolist() == right.coords.tolist()
    assert (left.values.dtype, left.values.tobytes()) == (right.values.dtype, right.values.tobytes())


# --------------------------------------------------------------------------------------------------
# Common to all three libraries
# --------------------------------------------------------------------------------------------------


@pytest.mark.at_most(5)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_conversions_to_libraries_round_trip(pair, shape, dtype):
    there, back = pair
    coo = random_coo(shape, dtype)
    same(back(there(coo)), coo)


def test_every_sparse_format_is_converted(pair):
    there, back = pair
    coo = random_coo((5, 4, 9), np.float64)
    for build in FORMATS.values():
        same(back(there(build(coo))), coo)


def test_the_result_shares_no_memory(pair):
    there, back = pair
    coo = coalesce(random_coo((5, 4), np.float64))
    other = there(coo)
    again = back(other)
    before = again.values.copy()
    again.values[:] = 0
    again.coords[:] = 0
    np.testing.assert_array_equal(back(other).values, before)
    assert not np.shares_memory(coo.values, again.values)
    assert coo.values.tobytes() == before.tobytes()


def test_nonfinite_values_need_an_option(pair):
    there, back = pair
    other = there(Coo([[0, 1], [1, 2]], [np.nan, 1.0], (2, 3), nonfinite=True))
    with pytest.raises(NotANumberError, match=r"at \(0, 1\)"):
        back(other)
    assert np.isnan(back(other, nonfinite=True).values[0])


def test_other_types_are_refused(pair):
    there, back = pair
    for thing in (MATRIX.tolist(), MATRIX, None):
        with pytest.raises(DtypeError, match=r"got \w+\n"):
            back(thing)
    with pytest.raises(DtypeError, match="the tensor is a list"):
        there(MATRIX.tolist())


@pytest.mark.parametrize("name", PAIRS)
def test_a_missing_package_is_named(name, monkeypatch):
    for module in {name, NAME_OF[name]}:
        monkeypatch.setitem(sys.modules, module, None)
    there, back = PAIRS[name]
    for call in (lambda: there(random_coo((2, 3), np.float64)), lambda: back(MATRIX)):
        with pytest.raises(MissingExtraError, match=rf"is not installed \(.*\)\npip install {name}$"):
            call()


# --------------------------------------------------------------------------------------------------
# SciPy
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_scipy_has_the_same_elements(shape, dtype):
    pytest.importorskip("scipy.sparse")
    coo = random_coo(shape, dtype)
    array = to_scipy(coo)
    np.testing.assert_array_equal(array.toarray(), dense(coo), strict=True)


@pytest.mark.parametrize("name", ["bsr", "coo", "csc", "csr", "dia", "dok", "lil"])
@pytest.mark.parametrize("kind", ["array", "matrix"])
def test_every_scipy_format_is_read(name, kind):
    scipy_sparse = pytest.importorskip("scipy.sparse")
    coo = from_scipy(getattr(scipy_sparse, f"{name}_{kind}")(MATRIX))
    np.testing.assert_array_equal(dense(coo), MATRIX, strict=True)


def test_scipy_keeps_duplicate_coordinates():
    pytest.importorskip("scipy.sparse")
    coo = Coo([[1, 1, 0], [2, 2, 0]], [5.0, 7.0, 1.0], (2, 3))
    assert to_scipy(coo).nnz == 3
    same(from_scipy(to_scipy(coo)), coo)


@pytest.mark.parametrize(
    "there_and_back", [("scipy.sparse", to_scipy, from_scipy), ("sparse", to_pydata, from_pydata)]
)
def test_shapes_whose_size_exceeds_64_bits_are_converted(there_and_back):
    package, there, back = there_and_back
    pytest.importorskip(package)
    largest = 2**32 - 1
    coords = np.array([[largest, 0, 5], [0, largest, 5], [largest, largest, 5], [1, 2, 3]])
    coo = Coo(coords, [1.0, 2.0, 3.0], (2**32,) * 4)
    same(back(there(coo)), coo)


def test_scipy_integers_become_float64_and_complex_is_refused():
    scipy_sparse = pytest.importorskip("scipy.sparse")
    assert from_scipy(scipy_sparse.coo_array(MATRIX.astype(np.int8))).values.dtype == np.float64
    with pytest.raises(DtypeError, match="complex128"):
        from_scipy(scipy_sparse.coo_array(MATRIX * 1j))
    with pytest.raises(ShapeError, match="0 nonzeros"):
        from_scipy(scipy_sparse.coo_array((2, 3)))
    with pytest.raises(ShapeError, match="1 modes"):
        from_scipy(scipy_sparse.coo_array(MATRIX[0]))


# --------------------------------------------------------------------------------------------------
# pydata/sparse
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_pydata_has_the_same_elements(shape, dtype):
    sparse = pytest.importorskip("sparse")
    coo = random_coo(shape, dtype)
    array = to_pydata(coo)
    assert isinstance(array, sparse.COO)
    np.testing.assert_array_equal(array.todense(), dense(coo), strict=True)


@pytest.mark.parametrize("name", ["COO", "GCXS", "DOK"])
def test_every_pydata_format_is_read(name):
    sparse = pytest.importorskip("sparse")
    coo = from_pydata(getattr(sparse, name)(sparse.COO(MATRIX)))
    np.testing.assert_array_equal(dense(coo), MATRIX, strict=True)


def test_pydata_sums_duplicate_coordinates():
    pytest.importorskip("sparse")
    array = to_pydata(Coo([[1, 1, 0], [2, 2, 0]], [5.0, 7.0, 1.0], (2, 3)))
    assert array.nnz == 2
    assert array.todense().tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 12.0]]


@pytest.mark.parametrize("fill", [1.0, np.nan])
def test_pydata_fill_values_other_than_0_are_refused(fill):
    sparse = pytest.importorskip("sparse")
    with pytest.raises(FormatError, match=f"fill value {fill}"):
        from_pydata(sparse.COO(MATRIX, fill_value=fill))


# --------------------------------------------------------------------------------------------------
# PyTorch
# --------------------------------------------------------------------------------------------------


@pytest.mark.at_most(3)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_torch_has_the_same_elements(shape, dtype):
    torch = pytest.importorskip("torch")
    coo = random_coo(shape, dtype)
    tensor = to_torch(coo)
    assert tensor.layout == torch.sparse_coo
    np.testing.assert_array_equal(tensor.to_dense().numpy(), dense(coo), strict=True)


@pytest.mark.filterwarnings("ignore:Sparse (CSR|CSC|BSR) tensor support is in beta")
@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr"])
def test_every_torch_layout_is_read(layout):
    torch = pytest.importorskip("torch")
    blocks = {"blocksize": (1, 1)} if layout == "sparse_bsr" else {}
    tensor = torch.from_numpy(MATRIX).to_sparse(layout=getattr(torch, layout), **blocks)
    np.testing.assert_array_equal(dense(from_torch(tensor)), MATRIX, strict=True)


def test_torch_keeps_duplicate_coordinates():
    pytest.importorskip("torch")
    coo = Coo([[1, 1, 0], [2, 2, 0]], [5.0, 7.0, 1.0], (2, 3))
    tensor = to_torch(coo)
    same(from_torch(tensor), coo)
    same(from_torch(tensor.coalesce()), coalesce(coo))


def test_torch_tensors_with_gradients_or_integers_are_read():
    torch = pytest.importorskip("torch")
    matrix = torch.from_numpy(MATRIX)
    learned = matrix.clone().requires_grad_().to_sparse()
    np.testing.assert_array_equal(dense(from_torch(learned)), MATRIX)
    assert from_torch(matrix.int().to_sparse()).values.dtype == np.float64
    for dtype in (torch.float16, torch.bfloat16, torch.complex64):
        with pytest.raises(DtypeError, match=str(dtype).removeprefix("torch.")):
            from_torch(matrix.to_sparse().to(dtype))


def test_torch_dense_dimensions_are_refused():
    torch = pytest.importorskip("torch")
    for tensor in (torch.from_numpy(MATRIX), torch.from_numpy(MATRIX).to_sparse(1)):
        with pytest.raises(FormatError, match=r"[12] dense dimensions\n.*\n.*to_sparse"):
            from_torch(tensor)


def test_torch_tensors_beyond_64_bit_sizes_are_refused():
    pytest.importorskip("torch")
    coords = np.array([[5, 0], [2**31 - 2, 1]])
    same(
        from_torch(to_torch(Coo(coords, [1.0, 2.0], (2**32, 2**31 - 1)))),
        Coo(coords, [1.0, 2.0], (2**32, 2**31 - 1)),
    )
    with pytest.raises(ShapeError, match="PyTorch counts"):
        to_torch(Coo(coords, [1.0, 2.0], (2**32, 2**31)))
