"""Checks of the fields and arrays of sparse tensors; each raises a FormatError that names the invalid one.

>>> from reference.types import PerMode
>>> check_fields(PerMode(None, (2, 3)))
Traceback (most recent call last):
...
reference.errors.FormatError: PerMode: tensors is None
a tuple of tensors is needed
build the format again from a Coo
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, NoReturn, TypeGuard

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, FormatError, ShapeError

LEAST_ORDER, MOST_ORDER = 2, 8
MOST_NONZEROS = 2**32 - 1
LARGEST_DIMENSION = 2**32


def check_fields(tensor: Any) -> None:
    """Check that all fields have their declared types and fit the shape, without reading arrays."""
    for field in fields(tensor):
        value = getattr(tensor, field.name)
        fits, needed = _DECLARED.get(str(field.type), (_is_tuple, "a tuple of tensors"))
        if not fits(value):
            refuse(tensor, f"{field.name} is {_described(value)}", f"{needed} is needed")
    shape = tensor.shape
    if not LEAST_ORDER <= len(shape) <= MOST_ORDER or not all(1 <= n <= LARGEST_DIMENSION for n in shape):
        refuse(
            tensor, f"shape is {shape}", f"{LEAST_ORDER} to {MOST_ORDER} modes of 1 to 2**32 are supported"
        )
    every = range(len(shape))
    if hasattr(tensor, "modes") and sorted(tensor.modes) != [*every]:
        refuse(tensor, f"modes is {tensor.modes}", f"each of the modes 0 to {every[-1]} must occur once")
    for part in tensor.parts:
        if not isinstance(part, tensor.made_of):
            names = ", ".join(kind.__name__ for kind in tensor.made_of)
            refuse(tensor, f"a part is a {type(part).__name__}", f"parts must be {names}")
        check_fields(part)
        if part.shape != shape:
            refuse(
                tensor, f"shape is {shape}, a part has {part.shape}", "all parts must have the tensor's shape"
            )
        if part.values.dtype != tensor.parts[0].values.dtype:
            found = f"a part has values of {part.values.dtype}, the first of {tensor.parts[0].values.dtype}"
            refuse(tensor, found, "all parts must have values of one dtype")
    tensor.check_parts()


def refuse(tensor: object, found: str, expected: str) -> NoReturn:
    """Raise the FormatError for an invalid field: what was found, and what is expected."""
    raise FormatError(f"{type(tensor).__name__}: {found}\n{expected}\nbuild the format again from a Coo")


def nonzeros(tensor: Any) -> int:
    """Check that ``values`` is a vector on the host; return its size."""
    values = tensor.values
    if not _is_on_host(values) or values.dtype not in (np.float32, np.float64):
        refuse(tensor, f"values is {_described(values)}", "a host array of float32 or float64 is needed")
    if values.ndim != 1 or not 1 <= values.size <= MOST_NONZEROS:
        refuse(tensor, f"values is {_described(values)}", "(M,) with M from 1 to 2**32 - 1 is needed")
    return int(values.size)


def check_array(
    tensor: object, name: str, given: Any, shape: tuple[int, ...], dtype: Any = np.uint32
) -> None:
    """Check that a field is a host array of this shape and dtype."""
    if not _is_on_host(given) or given.shape != shape or given.dtype != dtype:
        needed = f"a host array {shape} of {np.dtype(dtype)} is needed"
        refuse(tensor, f"{name} is {_described(given)}", needed)


def check_indices(tensor: Any, name: str, given: Any, count: int, mode: int) -> None:
    """Check that a field is a vector of ``count`` indices of a mode."""
    check_array(tensor, name, given, (count,))
    check_below(tensor, name, int(given.max(initial=0)), mode)


def check_levels(tensor: Any, name: str, given: Any, count: int, modes: tuple[int, ...]) -> None:
    """Check that a field is a matrix with one row of ``count`` indices per mode."""
    check_array(tensor, name, given, (len(modes), count))
    for level, mode in enumerate(modes):
        check_indices(tensor, f"{name}[{level}]", given[level], count, mode)


def check_below(tensor: Any, name: str, largest: int, mode: int) -> None:
    """Check that the largest index of a field is below the dimension of its mode."""
    dimension = tensor.shape[mode]
    if largest >= dimension:
        expected = f"its dimension is {dimension}: indices count from 0 to {dimension - 1}"
        refuse(tensor, f"{name} has the index {largest} in mode {mode}", expected)


def check_pointers(
    tensor: object, name: str, given: Any, parents: int, children: int, dtype: Any = np.uint32
) -> None:
    """Check that pointers ascend strictly from 0 to the number of children."""
    check_array(tensor, name, given, (max(parents, 0) + 1,), dtype)
    ends = [int(given[0]), int(given[-1])]
    if parents < 1 or ends != [0, children] or not (given[1:] > given[:-1]).all():
        expected = f"each pointer is larger than the one before; first and last are {ends}"
        refuse(tensor, f"{name} does not ascend from 0 to {children}", expected)


def check_fibers(tensor: Any, name: str, given: Any, children: int) -> int:
    """Check that fibers have at most ``split`` nonzeros each; return the number of fibers."""
    number = np.size(given) - 1
    check_pointers(tensor, name, given, number, children)
    check_count(tensor, "split", tensor.split)
    longest = int(np.diff(given).max())
    if longest > tensor.split:
        refuse(tensor, f"{name} has a fiber of {longest} nonzeros", f"split is {tensor.split}")
    return number


def check_count(tensor: object, name: str, number: int, multiple: int = 1) -> None:
    """Check that a field is a positive multiple of ``multiple``."""
    if number < 1 or number % multiple:
        refuse(tensor, f"{name} is {number}", f"it is a positive multiple of {multiple}")


def as_array(given: Any, name: str, needed: str) -> npt.NDArray[Any]:
    """Convert a value to an array of any dtype; raise ShapeError for ragged rows."""
    try:
        return np.asarray(given)
    except DtypeError as error:  # raised by a value that describes numbers
        raise DtypeError(f"{name}: {error}") from None
    except ValueError as error:
        message = f"{name} is not an array: {error}\n{needed} is needed\ngive all rows the same length"
        raise ShapeError(message) from None


def is_integer(number: object) -> TypeGuard[int]:
    """True if a value is a Python or NumPy integer, and not a bool."""
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def _is_tuple(value: object) -> bool:
    return isinstance(value, tuple)


def _is_tuple_of(kind: Callable[[object], bool]) -> Callable[[Any], bool]:
    """A check for tuples whose elements all pass the check ``kind``."""
    return lambda value: _is_tuple(value) and all(map(kind, value))


def _is_on_host(value: object) -> bool:
    return isinstance(value, np.ndarray)


def _is_array(value: object) -> bool:
    """Whether a value is a host or device array."""
    return hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, type | np.generic)


def _described(value: Any) -> str:
    """An invalid value as the error message shows it."""
    if _is_on_host(value):
        return f"an array {value.shape} of {value.dtype}"
    shown = repr(value)
    return shown if len(shown) <= 80 and not hasattr(value, "dtype") else f"a {type(value).__name__}"


_DECLARED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "Any": (_is_array, "an array"),
    "int": (is_integer, "an integer"),
    "tuple[int, ...]": (_is_tuple_of(is_integer), "a tuple of integers"),
    "tuple[Any, ...]": (_is_tuple_of(_is_array), "a tuple of arrays"),
}
"""The check of each declared type of a field, and its name in error messages."""
