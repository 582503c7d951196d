"""Other libraries' arrays on GPUs: where they lie, without a copy."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import numpy as np

from reference.errors import DtypeError

_NAMES = (
    "float64",
    "float32",
    "float16",
    "bool",
    *(f"{kind}{8 << n}" for kind in ("int", "uint") for n in range(4)),
)


def place_of(foreign: Any) -> tuple[int, int, tuple[int, ...], np.dtype[Any]] | None:
    """GPU, address, shape and dtype of a dense torch tensor, in 1 us; None for all that needs `view_of`."""
    torch = sys.modules.get("torch")
    if torch is None or foreign.__class__ is not torch.Tensor or foreign.requires_grad or foreign.is_neg():
        return None
    dtype, home = _dtypes(torch).get(foreign.dtype), foreign.device
    if dtype is None or home.type != "cuda" or foreign.layout is not torch.strided:
        return None
    address = foreign.data_ptr()
    if not foreign.is_contiguous() or address % dtype.itemsize or not address:
        return None
    return home.index, address, tuple(foreign.shape), dtype


@cache
def _dtypes(torch: Any) -> dict[Any, np.dtype[Any]]:
    """The dtypes of torch that NumPy has, too."""
    return {getattr(torch, name): np.dtype(name) for name in _NAMES if hasattr(torch, name)}


def view_of(foreign: Any) -> tuple[Any, np.dtype[Any]]:
    """The view and the dtype of another library's array; the view's strides are in elements.

    DtypeError for an array that its library does not share, or whose elements NumPy does not know.
    """
    what = f"a device array ({type(foreign).__name__})"
    if getattr(foreign, "requires_grad", False):
        raise DtypeError(f"{what} requires a gradient, which is not computed here\ndetach it from autograd")
    from cuda.core.utils import StridedMemoryView

    try:  # -1: the caller's work on the array is in the stream of ours, or done
        view = StridedMemoryView.from_any_interface(foreign, stream_ptr=-1)
        return view, np.dtype(view.dtype)
    except (BufferError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        raise DtypeError(
            f"{what} cannot be taken: {str(error).partition(chr(10))[0]}\n"
            "convert it, or detach it from autograd"
        ) from None
