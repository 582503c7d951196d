"""Other libraries' arrays on GPUs: where they lie, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np

from reference.errors import DtypeError


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
