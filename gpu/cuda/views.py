"""Other libraries' arrays on GPUs: where they lie, without a copy."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from reference.errors import DtypeError

_NAMES = (
    "float64",
    "float32",
    "float16",
    "bool",
    *(f"{kind}{8 << n}" for kind in ("int", "uint") for n in range(4)),
)

BFLOAT16 = np.dtype([("bfloat16", "<u2")])
"""The dtype of torch's bfloat16 tensors, as NumPy has none: the bits."""

Seen: TypeAlias = tuple[Any, Any]
"""The kind of an operand, and its device: the object, or the number of a GPU."""


def of_torch(x: Any, arrays: list[Any]) -> Seen | None:
    """Kind and GPU of a dense torch tensor, whose address is added to ``arrays``; None for any other."""
    if x.layout is not _strided() or x.requires_grad or x.is_neg() or not x.is_contiguous():
        return None
    address = x.data_ptr()
    arrays.append(address)
    return ((x.shape, x.dtype, address & 15), x.get_device()) if address else None


def of_cupy(x: Any, arrays: list[Any]) -> Seen | None:
    """Kind and GPU of a CuPy array in C order, whose address is added to ``arrays``; None for any other."""
    memory = x.data
    arrays.append(memory.ptr)
    return ((x.shape, x.dtype, memory.ptr & 15), memory.device_id) if x.flags.c_contiguous else None


FOREIGN = {("torch", "Tensor"): of_torch, ("cupy", "ndarray"): of_cupy}
"""What a recorded call sees of other libraries' arrays, by the package and the name of their class."""


def place_of(foreign: Any) -> tuple[int, int, tuple[int, ...], np.dtype[Any]] | None:
    """GPU, address, shape and dtype of a dense torch tensor, in 1 us; None for all that needs `view_of`."""
    torch, addresses = sys.modules.get("torch"), list[int]()
    seen = of_torch(foreign, addresses) if torch and foreign.__class__ is torch.Tensor else None
    dtype = None if seen is None else _dtypes(torch).get(foreign.dtype)
    if seen is None or dtype is None or seen[1] < 0 or addresses[0] % dtype.itemsize:
        return None
    return seen[1], addresses[0], tuple(foreign.shape), dtype


@cache
def _strided() -> Any:
    return sys.modules["torch"].strided


@cache
def _dtypes(torch: Any) -> dict[Any, np.dtype[Any]]:
    """NumPy's dtypes of torch's."""
    known = {getattr(torch, name): np.dtype(name) for name in _NAMES if hasattr(torch, name)}
    return known | {torch.bfloat16: BFLOAT16}


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
