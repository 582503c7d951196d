"""Sparse tensors of SciPy, pydata/sparse, PyTorch and pyttb as arguments of `mttkrp` and `cpd_als`."""

from types import SimpleNamespace

import numpy as np
import pytest

import gpu
import reference
import simwarp
from gpu.mttkrp import download, plan, upload
from reference.errors import DtypeError, FormatError, NotANumberError, ShapeError
from reference.types import Coo
from reference.types.libraries import read_sparse

CUBE, MATRIX = (4, 3, 5), (6, 7)
pytestmark = pytest.mark.filterwarnings(
    "ignore:Sparse (CSR|CSC|BSR) tensor support is in beta", "ignore:Sparse invariant checks"
)


class sptensor:  # noqa: N801 - pyttb's name
    """The attributes of ``pyttb.sptensor`` that are read."""

    def __init__(self, subs, vals, shape):
        self.subs, self.vals, self.shape = subs, vals, shape


class Tensor:
    """The attributes of a ``torch.Tensor`` on a GPU that are read."""

    layout, device = "torch.sparse_coo", SimpleNamespace(type="cuda")

    def dense_dim(self):
        return 0


sptensor.__module__, Tensor.__module__ = "pyttb.sptensor", "torch"


def scattered(shape, dtype=np.float64):
    """A tensor in random order, with repeated coordinates, all indices used."""
    generator = np.random.default_rng(len(shape))
    coords = np.array([generator.permutation(np.arange(40) % n) for n in shape])
    coords[:, 30:] = coords[:, :10]
    return Coo(coords, generator.standard_normal(40).astype(dtype), shape)


def of_scipy(coo, form="coo", kind="array"):
    scipy_sparse = pytest.importorskip("scipy.sparse")
    given = scipy_sparse.coo_array((coo.values, tuple(coo.coords)), shape=coo.shape)
    given = given if form == "coo" and kind == "array" else getattr(scipy_sparse, f"{form}_{kind}")(given)
    by_hand = given.tocoo()
    return given, Coo(np.array(by_hand.coords), by_hand.data, by_hand.shape)


def of_pydata(coo, form="COO"):
    sparse = pytest.importorskip("sparse")
    given = getattr(sparse, form)(sparse.COO(coo.coords, coo.values, shape=coo.shape))
    by_hand = given.asformat("coo")
    return given, Coo(by_hand.coords, by_hand.data, by_hand.shape)


def of_torch(coo, form="coo"):
    torch = pytest.importorskip("torch")
    coords, values = torch.from_numpy(coo.coords), torch.from_numpy(coo.values)
    given = torch.sparse_coo_tensor(coords, values, coo.shape, check_invariants=True).to_sparse(
        layout=getattr(torch, f"sparse_{form}")
    )
    by_hand = given.to_sparse_coo()
    return given, Coo(by_hand._indices().numpy(), by_hand._values().numpy(), coo.shape)


def of_pyttb(coo, stand_in):
    kind = sptensor if stand_in else pytest.importorskip("pyttb").sptensor
    given = kind(coo.coords.T.copy(), coo.values[:, None].copy(), coo.shape)
    return given, coo


TENSORS = {
    "scipy-coo": lambda: of_scipy(scattered(CUBE)),
    **{
        f"scipy-{form}-{kind}": lambda form=form, kind=kind: of_scipy(scattered(MATRIX), form, kind)
        for form in ("coo", "csr", "csc", "bsr", "dia", "dok", "lil")
        for kind in ("array", "matrix")
    },
    **{
        f"pydata-{form}": lambda form=form: of_pydata(scattered(CUBE), form)
        for form in ("COO", "GCXS", "DOK")
    },
    "torch-coo": lambda: of_torch(scattered(CUBE)),
    "torch-csr": lambda: of_torch(scattered(MATRIX), "csr"),
    "torch-csc": lambda: of_torch(scattered(MATRIX), "csc"),
    "pyttb": lambda: of_pyttb(scattered(CUBE), stand_in=False),
    "pyttb-stand-in": lambda: of_pyttb(scattered(CUBE), stand_in=True),
}


def on_device(tensor, factors, mode):
    return gpu.mttkrp(tensor, factors, mode, device=simwarp.Device(), deterministic=True)


def cpd_on_device(tensor):
    return gpu.cpd_als(tensor, 2, iterations=2, device=simwarp.Device(), deterministic=True)


def bits_of(model):
    return [x.tobytes() for x in (model.weights, *model.factors)], model.fits


def factors_of(shape, dtype=np.float64):
    generator = np.random.default_rng(7)
    return [generator.standard_normal((n, 3)).astype(dtype) for n in shape]


@pytest.mark.at_most(3)
@pytest.mark.parametrize("name", TENSORS)
def test_mttkrp_has_the_bits_of_the_tensor_converted_by_hand(name):
    tensor, coo = TENSORS[name]()
    original, factors = scattered(coo.shape), factors_of(coo.shape)
    for mode in range(len(coo.shape)):
        y = reference.mttkrp(tensor, factors, mode)
        assert y.tobytes() == reference.mttkrp(coo, factors, mode).tobytes()
        bound = reference.mttkrp_bound(tensor, factors, mode, np.float64)
        assert bound.tobytes() == reference.mttkrp_bound(coo, factors, mode, np.float64).tobytes()
        np.testing.assert_allclose(y, reference.mttkrp(original, factors, mode), rtol=1e-10, atol=1e-12)
    assert on_device(tensor, factors, 0).tobytes() == on_device(coo, factors, 0).tobytes()


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize("name", ["scipy-coo", "pydata-GCXS", "torch-csr", "pyttb", "pyttb-stand-in"])
def test_cpd_als_has_the_bits_of_the_tensor_converted_by_hand(name):
    tensor, coo = TENSORS[name]()
    expected = reference.cpd_als(coo, 2, iterations=2)
    assert bits_of(reference.cpd_als(tensor, 2, iterations=2)) == bits_of(expected)
    assert bits_of(cpd_on_device(tensor)) == bits_of(cpd_on_device(coo))


@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.bool_])
@pytest.mark.parametrize("make", [of_scipy, of_pydata, of_torch, lambda coo: of_pyttb(coo, stand_in=True)])
def test_float32_stays_and_integers_become_float64(make, dtype):
    coords = np.array([[0, 1], [2, 0]])
    raw = SimpleNamespace(coords=coords, values=np.array([1, 0], dtype), shape=(2, 3))
    tensor, _ = make(raw)
    expected = np.float32 if dtype == np.float32 else np.float64
    assert read_sparse(tensor).values.dtype == expected
    factors = factors_of((2, 3), expected)
    assert on_device(tensor, factors, 0).tobytes() == on_device(Coo(**vars(raw)), factors, 0).tobytes()


def test_prepare_upload_and_plan_take_them():
    tensor, coo = of_pyttb(reference.sparse.coalesce(scattered(CUBE)), stand_in=True)
    factors, device = factors_of(CUBE), simwarp.Device()
    expected = on_device(coo, factors, 1)
    for scheme in ("auto", "mm-csf"):
        prepared = gpu.prepare(tensor, scheme=scheme, device=device)
        np.testing.assert_allclose(gpu.mttkrp(prepared, factors, 1), expected, rtol=1e-10)
    assert download(upload(tensor, device)).coords.tolist() == coo.coords.tolist()
    out = device.allocate(expected.shape, np.float64)
    plan(tensor, 1, 3, np.float64, device, True)([device.upload(x) for x in factors], out)
    assert out.download().tobytes() == expected.tobytes()


def test_the_arrays_are_copied():
    tensor, _ = of_pyttb(scattered(CUBE), stand_in=True)
    coo = read_sparse(tensor)
    assert not np.shares_memory(coo.coords, tensor.subs)
    assert not np.shares_memory(coo.values, tensor.vals)


def test_subclasses_are_read_and_namesakes_are_not():
    csr_array = pytest.importorskip("scipy.sparse").csr_array

    class Mine(csr_array):
        pass

    assert isinstance(read_sparse(Mine(np.eye(3))), Coo)
    namesake = type("Tensor", (), {})()
    assert read_sparse(namesake) is namesake


def scipy_of(*arguments):
    return pytest.importorskip("scipy.sparse").coo_array(*arguments)


REFUSED = {
    "scipy-nan": (lambda: scipy_of([[0.0, np.nan]]), NotANumberError, r"nonzero 0, at \(0, 1\), is nan"),
    "scipy-complex": (lambda: scipy_of([[0.0, 1j]]), DtypeError, "values is complex128"),
    "scipy-empty": (lambda: scipy_of((2, 3)), ShapeError, "the tensor has 0 nonzeros"),
    "scipy-vector": (lambda: scipy_of([1.0, 2.0]), ShapeError, "has 1 modes"),
    "pydata-fill": (
        lambda: pytest.importorskip("sparse").COO(np.eye(2), fill_value=1),
        FormatError,
        "the array has the fill value 1",
    ),
    "torch-dense": (
        lambda: pytest.importorskip("torch").ones(2, 3),
        FormatError,
        r"layout torch.strided and 2 dense dimensions\n.*\ncall its to_sparse\(\) first",
    ),
    "torch-bfloat16": (
        lambda: pytest.importorskip("torch").ones(2, 3).bfloat16().to_sparse(),
        DtypeError,
        "the values are torch.bfloat16",
    ),
    "torch-on-a-gpu": (Tensor, FormatError, r"the tensor is on .*\n.*\ncall its cpu\(\) first"),
    "pyttb-infinite": (
        lambda: sptensor(np.array([[1, 2]]), np.array([[np.inf]]), (2, 3)),
        NotANumberError,
        r"at \(1, 2\), is inf",
    ),
    "pyttb-empty": (
        lambda: sptensor(np.array([], int, ndmin=2), np.array([], ndmin=2), (2, 3)),
        ShapeError,
        "the tensor has 0 nonzeros",
    ),
    "pyttb-float-indices": (
        lambda: sptensor(np.array([[1.0, 2.0]]), np.array([[5.0]]), (2, 3)),
        DtypeError,
        "coords is float64",
    ),
    "pyttb-outside": (
        lambda: sptensor(np.array([[1, 3]]), np.array([[5.0]]), (2, 3)),
        ShapeError,
        "has index 3 in mode 1",
    ),
    "pyttb-two-columns": (
        lambda: sptensor(np.array([[1, 2]]), np.array([[5.0, 6.0]]), (2, 3)),
        ShapeError,
        r"coords \(2, 1\) and values \(2,\) do not fit",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsuitable_tensors_are_refused_by_every_function(name):
    make, error, match = REFUSED[name]
    tensor, factors = make(), factors_of((2, 3))
    for call in (
        lambda: on_device(tensor, factors, 0),
        lambda: reference.mttkrp(tensor, factors, 0),
        lambda: reference.mttkrp_bound(tensor, factors, 0, np.float64),
        lambda: cpd_on_device(tensor),
        lambda: reference.cpd_als(tensor, 1),
    ):
        with pytest.raises(error, match=match):
            call()


def test_other_objects_of_the_libraries_are_refused():
    operator = pytest.importorskip("scipy.sparse.linalg").aslinearoperator(np.eye(3))
    for other in (operator, np.eye(3)):
        with pytest.raises(FormatError, match=r"got \w+\n.*\n.* SciPy, pydata/sparse, PyTorch or pyttb"):
            on_device(other, factors_of((3, 3)), 0)
        with pytest.raises(DtypeError, match="the tensor is a"):
            reference.mttkrp(other, factors_of((3, 3)), 0)
