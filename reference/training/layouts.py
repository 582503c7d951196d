"""Layouts of images and filters; conversion to NCHW and OIHW in double precision."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, ShapeError
from reference.types.arguments import check_option
from reference.types.fields import as_array

Array: TypeAlias = npt.NDArray[np.float64]
Layout: TypeAlias = Literal["NCHW", "NHWC"]
Shape: TypeAlias = tuple[int, int, int, int]

_AXES = {"NCHW": ("(N, C, H, W)", "(O, I, R, S)"), "NHWC": ("(N, H, W, C)", "(O, R, S, I)")}


def doubles(x: npt.ArrayLike, name: str) -> Array:
    """Convert real numbers to an array of float64."""
    array = as_array(x, name, "an array of numbers")
    if array.dtype.kind not in "fiu" and array.dtype.name != "bfloat16":
        raise DtypeError(f"{name} is of {array.dtype}\nreal numbers are needed\nconvert it")
    return array.astype(np.float64)


def images(x: npt.ArrayLike, layout: Layout, name: str = "x", *, least: int = 1) -> Array:
    """Images as (N, C, H, W), at least ``least`` of them."""
    array = doubles(x, name)
    _check(array.shape, layout, name, 0, least)
    return to_nchw(array, layout)


def filters(w: npt.ArrayLike, layout: Layout, name: str = "w") -> Array:
    """Convert filters from a layout to (O, I, R, S)."""
    array = doubles(w, name)
    _check(array.shape, layout, name, 1)
    return to_nchw(array, layout)


def to_nchw(x: Array, layout: Layout) -> Array:
    """Convert images from a layout to (N, C, H, W)."""
    return x if layout == "NCHW" else np.moveaxis(x, -1, 1)


def from_nchw(x: Array, layout: Layout) -> Array:
    """Move the channels to their axis in the layout; return an array in C order."""
    return np.ascontiguousarray(x if layout == "NCHW" else np.moveaxis(x, 1, -1))


def shape_of(
    shape: tuple[int, ...], layout: Layout, name: str, *, is_filters: bool = False, least: int = 1
) -> Shape:
    """A shape from the caller, with the channels second, of at least ``least`` images."""
    known = tuple(map(int, shape))
    _check(known, layout, name, int(is_filters), least)
    first, *rest = known
    return cast("Shape", known if layout == "NCHW" else (first, rest[2], rest[0], rest[1]))


def _check(shape: tuple[int, ...], layout: Any, name: str, kind: int, least: int = 1) -> None:
    """Raise unless a shape has four dimensions of at least 1 (``least``), and the layout is known."""
    check_option("layout", layout, tuple(_AXES), "where the channels of images and filters are")
    if len(shape) != 4 or min(shape[1:]) < 1 or shape[0] < least:
        empty = "" if least else ", except that a batch may be empty"
        raise ShapeError(
            f"{name} has shape {shape}\n{_AXES[layout][kind]} is needed, each at least 1{empty}\n"
            "reshape it, or leave the call out where there is nothing to compute"
        )
