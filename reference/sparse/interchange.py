"""Conversion to and from the sparse tensors of SciPy, pydata/sparse and PyTorch.

The packages are imported when a function needs them; none is a dependency. Coordinates and values are
copied as they are; only `to_pydata` adds values of equal coordinates.
"""

from __future__ import annotations

import math
import warnings
from importlib import import_module
from typing import Any

import numpy as np

from reference.errors import DtypeError, MissingExtraError, ShapeError
from reference.sparse.convert import to_coo
from reference.sparse.formats.coo import coalesce
from reference.types import Coo, SparseTensor
from reference.types.libraries import read_pydata, read_scipy, read_torch

_MOST_ELEMENTS_OF_TORCH = 2**63 - 1
_NAMES = {"scipy": "SciPy", "sparse": "pydata/sparse", "torch": "PyTorch"}
"""The packages' names in messages, by their names on PyPI."""


def to_scipy(tensor: SparseTensor) -> Any:
    """Convert a sparse tensor to a ``scipy.sparse.coo_array`` of the same shape.

    Parameters
    ----------
    tensor : Coo or another format
        On the host.

    Returns
    -------
    scipy.sparse.coo_array
        In lexicographic order; repeated coordinates stay repeated.

    Raises
    ------
    MissingExtraError
        If SciPy is not installed. More than two dimensions need SciPy 1.15.
    FormatError, DtypeError, ShapeError
        As `to_coo`.

    Examples
    --------
    >>> matrix = to_scipy(Coo([[0, 1], [2, 0]], [5.0, 7.0], (2, 3)))
    >>> matrix.toarray()
    array([[0., 0., 5.],
           [7., 0., 0.]])
    """
    scipy_sparse = _package("scipy")
    coo = to_coo(tensor)
    return scipy_sparse.coo_array((coo.values, tuple(coo.coords.astype(np.int64))), shape=coo.shape)


def from_scipy(array: Any, *, nonfinite: bool = False) -> Coo:
    """Convert a SciPy sparse array or matrix of any format to a Coo.

    Parameters
    ----------
    array : scipy.sparse array or matrix
        Of float32, float64 or integers, which become float64.
    nonfinite : bool
        Whether NaN and infinite values are meant.

    Returns
    -------
    Coo

    Raises
    ------
    MissingExtraError
        If SciPy is not installed.
    DtypeError
        For anything else, or another type of values.
    ShapeError, NotANumberError
        As `Coo`: for an array of one dimension, or without a stored value.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> from_scipy(csr_array([[0.0, 0.0, 5.0], [7.0, 0.0, 0.0]])).coords.tolist()
    [[0, 1], [2, 0]]
    """
    if not _package("scipy").issparse(array):
        raise _not_sparse(array, "SciPy sparse array", "scipy.sparse.coo_array")
    return read_scipy(array, nonfinite)


def to_pydata(tensor: SparseTensor) -> Any:
    """Convert a sparse tensor to a ``sparse.COO`` of pydata/sparse, without repeated coordinates.

    Values of equal coordinates are added, as by `coalesce`.

    Parameters
    ----------
    tensor : Coo or another format
        On the host.

    Returns
    -------
    sparse.COO
        With the fill value 0.

    Raises
    ------
    MissingExtraError
        If pydata/sparse is not installed.
    FormatError, DtypeError, ShapeError
        As `to_coo`.
    NotANumberError
        As `coalesce`.

    Examples
    --------
    >>> to_pydata(Coo([[0, 1], [2, 0]], [5.0, 7.0], (2, 3))).todense()
    array([[0., 0., 5.],
           [7., 0., 0.]])
    """
    sparse = _package("sparse")
    coo = coalesce(to_coo(tensor))
    # COO sorts unsorted coordinates by a linear index, which overflows for a large shape.
    return sparse.COO(
        coo.coords.astype(np.int64), coo.values, shape=coo.shape, has_duplicates=False, sorted=True
    )


def from_pydata(array: Any, *, nonfinite: bool = False) -> Coo:
    """Convert a pydata/sparse array of any format to a Coo.

    Parameters
    ----------
    array : sparse.COO, sparse.GCXS or sparse.DOK
        Of float32, float64 or integers, which become float64; with the fill value 0.
    nonfinite : bool
        Whether NaN and infinite values are meant.

    Returns
    -------
    Coo

    Raises
    ------
    MissingExtraError
        If pydata/sparse is not installed.
    DtypeError
        For anything else, or another type of values.
    FormatError
        For another fill value.
    ShapeError, NotANumberError
        As `Coo`: for an array of one dimension, or without a stored value.

    Examples
    --------
    >>> import sparse
    >>> from_pydata(sparse.COO([[0, 1], [2, 0]], [5.0, 7.0], shape=(2, 3))).values
    array([5., 7.])
    """
    sparse = _package("sparse")
    if not isinstance(array, sparse.SparseArray):
        raise _not_sparse(array, "pydata/sparse array", "sparse.COO")
    return read_pydata(array, nonfinite)


def to_torch(tensor: SparseTensor) -> Any:
    """Convert a sparse tensor to a ``torch.sparse_coo_tensor`` on the CPU.

    Parameters
    ----------
    tensor : Coo or another format
        On the host.

    Returns
    -------
    torch.Tensor
        Of layout ``torch.sparse_coo``, in lexicographic order; repeated coordinates stay repeated.

    Raises
    ------
    MissingExtraError
        If PyTorch is not installed.
    ShapeError
        If the product of the shape exceeds 2**63 - 1, or as `to_coo`.
    FormatError, DtypeError
        As `to_coo`.

    Examples
    --------
    >>> to_torch(Coo([[0, 1], [2, 0]], [5.0, 7.0], (2, 3))).to_dense().tolist()  # doctest: +SKIP
    [[0.0, 0.0, 5.0], [7.0, 0.0, 0.0]]
    """
    torch = _package("torch")
    coo = to_coo(tensor)
    if math.prod(coo.shape) > _MOST_ELEMENTS_OF_TORCH:
        raise ShapeError(
            f"shape {coo.shape} has more than 2**63 - 1 elements\n"
            "PyTorch counts the elements of a sparse tensor in 64 bits\n"
            "give a shape that fits the indices more tightly"
        )
    indices, values = torch.from_numpy(coo.coords.astype(np.int64)), torch.from_numpy(coo.values)
    with warnings.catch_warnings():  # torch 2.11 warns that a choice is missing even if the call states it
        warnings.filterwarnings("ignore", "Sparse invariant checks", UserWarning)
        return torch.sparse_coo_tensor(indices, values, coo.shape, check_invariants=True)


def from_torch(tensor: Any, *, nonfinite: bool = False) -> Coo:
    """Convert a sparse PyTorch tensor of any layout, on any device, to a Coo.

    Parameters
    ----------
    tensor : torch.Tensor
        Sparse in all its dimensions; of float32, float64 or integers, which become float64. It need not be
        coalesced: repeated coordinates stay repeated.
    nonfinite : bool
        Whether NaN and infinite values are meant.

    Returns
    -------
    Coo

    Raises
    ------
    MissingExtraError
        If PyTorch is not installed.
    DtypeError
        For anything else, or another type of values.
    FormatError
        For a dense tensor, or one with dense dimensions.
    ShapeError, NotANumberError
        As `Coo`: for a tensor of one dimension, or without a stored value.

    Examples
    --------
    >>> import torch  # doctest: +SKIP
    >>> matrix = torch.tensor([[0.0, 0.0, 5.0], [7.0, 0.0, 0.0]])  # doctest: +SKIP
    >>> from_torch(matrix.to_sparse()).coords.tolist()  # doctest: +SKIP
    [[0, 1], [2, 0]]
    """
    torch = _package("torch")
    if not isinstance(tensor, torch.Tensor):
        raise _not_sparse(tensor, "sparse PyTorch tensor", "torch.sparse_coo_tensor")
    return read_torch(tensor.cpu(), nonfinite)


def _package(name: str) -> Any:
    """Import an optional package by its name on PyPI; raise MissingExtraError if it is not installed."""
    try:
        if name == "scipy":
            return import_module("scipy.sparse")
        return import_module("sparse") if name == "sparse" else import_module("torch")
    except ImportError as error:
        called = _NAMES[name]
        raise MissingExtraError(
            f"tensors of {called} need {called}, which is not installed ({error})\npip install {name}"
        ) from None


def _not_sparse(given: object, expected: str, constructor: str) -> DtypeError:
    """The error for an argument that is not a sparse tensor of the package."""
    return DtypeError(
        f"expected a {expected}, got {type(given).__name__}\nconvert it first, e.g. with {constructor}"
    )
