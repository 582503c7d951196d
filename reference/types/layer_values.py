"""A value between two layers of a binarized network, and checks of a layer's parameters and input."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import prod
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, RangeError, ShapeError
from reference.types.fields import is_integer

Kind: TypeAlias = Literal["bits", "integers"]

PerSide: TypeAlias = tuple[tuple[int, int], tuple[int, int]]
"""((top, bottom), (left, right))."""

INT16_MIN, INT16_MAX = -(2**15), 2**15 - 1
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
LARGEST_SIZE = 2**31 - 1

OF_BOOL, OF_INT32, OF_FLOAT32 = ({"dtype": dtype} for dtype in (np.bool_, np.int32, np.float32))
"""Of a field that is a vector with one number for each channel."""


@dataclass(frozen=True)
class Value:
    """The shape, kind and range of a value between two layers, for one image.

    Attributes
    ----------
    kind : {"bits", "integers"}
    shape : (H, W, C) or (F,)
    low, high : int
        The range of integers; -1 and 1 for bits.
    """

    kind: Kind
    shape: tuple[int, ...]
    low: int = -1
    high: int = 1

    def __str__(self) -> str:
        return f"{self.kind} {self.shape}"


def sums(shape: tuple[int, ...], terms: int, value: Value) -> Value:
    """Sums of up to ``terms`` numbers with either sign."""
    largest = terms * max(-value.low, value.high)
    return Value("integers", shape, -largest, largest)


def count_windows(
    image: tuple[int, ...], window: tuple[int, ...], stride: tuple[int, int], padding: PerSide
) -> tuple[int, int]:
    """The numbers of windows down and across an image."""
    check_counts("stride", stride, 1)
    padded = [size + before + after for size, (before, after) in zip(image, padding, strict=True)]
    if prod(padded) > LARGEST_SIZE:
        raise ShapeError(f"padding {padding} makes an image of {padded}: an image has less than 2**31 pixels")
    counts = [
        (size + before + after - span) // step + 1
        for size, (before, after), span, step in zip(image, padding, window, stride, strict=True)
    ]
    if min(counts) < 1:
        raise ShapeError(f"a window of {window} is larger than the image {image} with padding {padding}")
    return counts[0], counts[1]


def packed_shape(weights: Any, kind: type, axes: int) -> tuple[int, ...]:
    """Check the class of packed weights and their number of axes; return their shape."""
    if not isinstance(weights, kind):
        raise DtypeError(f"weights are a {type(weights).__name__}: give {kind.__name__}")
    shape: Any = getattr(weights, "shape", None)
    if not are_counts(shape, 1, (axes,)):
        raise ShapeError(f"weights have shape {shape}: give {axes} sizes of at least 1")
    return shape


def check_vector(given: Any, name: str, dtype: Any, size: int) -> Any:
    """Check a vector of a layer; return integers as int64, and floats unchanged."""
    if not isinstance(given, np.ndarray):
        raise DtypeError(f"{name} is a {type(given).__name__}: give an array of {np.dtype(dtype)}")
    vector = cast("npt.NDArray[Any]", given)
    if vector.dtype != dtype:
        raise DtypeError(f"{name} is of {vector.dtype}: give an array of {np.dtype(dtype)}")
    if vector.shape != (size,):
        raise ShapeError(f"{name} has shape {vector.shape}: give one for each channel, ({size},)")
    if vector.dtype.kind != "f":
        return vector.astype(np.int64)
    if not np.isfinite(vector).all():
        raise RangeError(f"{name} has an element that is not finite: give finite numbers")
    return vector


def check_vectors(layer: Any, channels: int) -> dict[str, Any]:
    """The vectors of a layer with one number for each channel, checked; integers as int64."""
    dtypes = {one.name: one.metadata["dtype"] for one in fields(layer) if "dtype" in one.metadata}
    return {name: check_vector(getattr(layer, name), name, of, channels) for name, of in dtypes.items()}


def check_value(value: Value, kind: Kind | None, axes: int | None = None) -> None:
    """Refuse a value of another kind, or with other axes."""
    if (kind and value.kind != kind) or (axes and len(value.shape) != axes):
        form = {None: "of any shape", 1: "(F,)", 3: "(H, W, C)"}[axes]
        raise ShapeError(f"{kind or 'bits or integers'} {form} are needed")


def check_same(what: str, given: int, needed: int) -> None:
    """Raise an error for weights whose number of inputs does not fit."""
    if given != needed:
        raise ShapeError(f"it takes {given} input {what}, and the layer before has {needed}")


def check_counts(name: str, given: Any, least: int) -> None:
    """Raise unless a value is two integers of at least ``least``."""
    if not are_counts(given, least, (2,)):
        raise ShapeError(f"{name} is {given!r}: give two integers of at least {least}, below 2**31")


def are_counts(given: Any, least: int, lengths: tuple[int, ...]) -> bool:
    """True for a tuple of ints in [least, 2**31 - 1] whose length is one of ``lengths``."""
    numbers = cast("tuple[Any, ...]", given)
    return (
        isinstance(given, tuple)
        and len(numbers) in lengths
        and all(is_integer(number) and least <= number <= LARGEST_SIZE for number in numbers)
    )


def check_sides(padding: Any) -> None:
    """Raise unless a padding is ((top, bottom), (left, right)) of numbers of at least 0."""
    try:
        (top, bottom), (left, right) = padding
    except (TypeError, ValueError):
        top = bottom = left = right = None
    if not all(is_integer(n) and n >= 0 for n in (top, bottom, left, right)):
        raise ShapeError(
            f"padding is {padding!r}: give an int, (vertical, horizontal) or ((top, bottom), (left, right))"
        )
