"""Reading of other libraries' sparse tensors into a Coo; no library is imported.

A tensor is recognised by the names of its classes and read with its own methods. Coordinates and values are
copied as they are: values of equal coordinates are not added.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from reference.errors import DtypeError, FormatError
from reference.types.sparse import Coo


def read_sparse(tensor: Any) -> Any:
    """Read a tensor of SciPy, pydata/sparse, PyTorch or pyttb into a Coo; return anything else unchanged.

    >>> from scipy.sparse import csr_array
    >>> read_sparse(csr_array([[0.0, 0.0, 5.0], [7.0, 0.0, 0.0]])).coords.tolist()
    [[0, 1], [2, 0]]
    >>> read_sparse(5)
    5
    """
    for kind in type(tensor).__mro__:
        read = _READERS.get((kind.__module__.partition(".")[0], kind.__name__))
        if read is not None:
            return read(tensor)
    return tensor


def read_scipy(array: Any, nonfinite: bool = False) -> Coo:
    """Read a SciPy sparse array or matrix of any format."""
    given = array.tocoo()
    return Coo(np.stack(given.coords), given.data.copy(), given.shape, nonfinite)


def read_pydata(array: Any, nonfinite: bool = False) -> Coo:
    """Read a pydata/sparse array of any format; raise FormatError for a fill value other than 0."""
    if array.fill_value != 0:
        raise FormatError(
            f"the array has the fill value {array.fill_value}\n"
            "all other elements of a sparse tensor are 0\n"
            "subtract the fill value first"
        )
    given = array.asformat("coo")
    return Coo(given.coords.copy(), given.data.copy(), given.shape, nonfinite)


def read_torch(tensor: Any, nonfinite: bool = False) -> Coo:
    """Read a PyTorch tensor of any sparse layout; raise FormatError if it is dense or on a GPU."""
    if str(tensor.layout) == "torch.strided" or tensor.dense_dim():
        raise FormatError(
            f"the tensor has layout {tensor.layout} and {tensor.dense_dim()} dense dimensions\n"
            "every dimension has to be sparse\n"
            "call its to_sparse() first"
        )
    if tensor.device.type != "cpu":
        raise FormatError(
            f"the tensor is on {tensor.device}\nsparse PyTorch tensors are read on the host\n"
            "call its cpu() first"
        )
    given = tensor.detach().to_sparse_coo()
    # indices() and values() accept only a coalesced tensor, in which equal coordinates have been added.
    indices, values = given._indices(), given._values()
    try:
        copied = values.numpy().copy()
    except TypeError:  # a type that NumPy does not have
        raise DtypeError(
            f"the values are {values.dtype}\nfloat32 and float64 are supported\nconvert them"
        ) from None
    return Coo(indices.numpy().copy(), copied, tuple(given.shape), nonfinite)


def read_pyttb(tensor: Any) -> Coo:
    """Read a ``pyttb.sptensor``, whose arrays have one row per nonzero."""
    values = np.array(tensor.vals).reshape(-1)
    coords = tensor.subs.T if values.size else np.empty((len(tensor.shape), 0), np.int64)
    return Coo(coords.copy(), values, tensor.shape)


_READERS: dict[tuple[str, str], Callable[[Any], Coo]] = {
    ("scipy", "sparray"): read_scipy,
    ("scipy", "spmatrix"): read_scipy,
    ("sparse", "SparseArray"): read_pydata,
    ("torch", "Tensor"): read_torch,
    ("pyttb", "sptensor"): read_pyttb,
}
"""The functions that read tensors, by the package and the name of a base class."""
