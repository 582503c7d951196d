"""Whether arrays fit one another, and the complaint if not; the words that `check` is written in."""

from __future__ import annotations

from typing import Any

import numpy as np

from reference.errors import FormatError
from reference.sparse.arguments import LARGEST_DIMENSION, is_integer
from reference.types.sparse import LEAST_ORDER, MOST_NONZEROS, MOST_ORDER


def wrong(tensor: object, found: str, expected: str) -> FormatError:
    return FormatError(f"{type(tensor).__name__}: {found}\n{expected}\nbuild the format again from a Coo")


def order(tensor: Any) -> int:
    """The number of modes of a tensor whose shape is one."""
    shape = tensor.shape
    if not is_tuple(shape, int | np.integer):
        raise wrong(tensor, f"shape is {shape!r}", "it is a tuple of integers")
    if not LEAST_ORDER <= len(shape) <= MOST_ORDER or not 1 <= min(shape) <= max(shape) <= LARGEST_DIMENSION:
        limits = f"it has {LEAST_ORDER} to {MOST_ORDER} modes, each dimension 1 to 2**32"
        raise wrong(tensor, f"shape is {shape}", limits)
    return len(shape)


def dimensions(tensor: Any) -> list[int]:
    """The dimensions by level, of a tensor whose shape and modes fit."""
    number, modes = order(tensor), tensor.modes
    if not is_tuple(modes, int | np.integer) or sorted(modes) != [*range(number)]:
        raise wrong(tensor, f"modes is {modes!r}", f"it is a tuple of the modes 0 to {number - 1}, each once")
    return [tensor.shape[mode] for mode in modes]


def nonzeros(tensor: Any) -> int:
    """The number of values."""
    values = tensor.values
    if not _is(values, np.ndarray) or values.ndim != 1 or not 1 <= values.size <= MOST_NONZEROS:
        raise wrong(tensor, f"values is {describe(values)}", "it is a host array (M,) with M at least 1")
    if values.dtype not in (np.float32, np.float64):
        raise wrong(tensor, f"values is {describe(values)}", "it is of float32 or float64")
    return int(values.size)


def nodes(tensor: object, name: str, vector: Any) -> int:
    """The length of a vector that has one entry per node."""
    if not _is(vector, np.ndarray) or vector.ndim != 1 or not vector.size:
        raise wrong(tensor, f"{name} is {describe(vector)}", "it is a host array of one axis, not empty")
    return int(vector.size)


def integer(tensor: object, name: str, number: object, multiple_of: int = 1) -> int:
    """A count of at least 1."""
    if not is_integer(number) or number < 1 or number % multiple_of:
        raise wrong(tensor, f"{name} is {number!r}", f"it is a positive multiple of {multiple_of}")
    return int(number)


def tuple_of(tensor: object, name: str, items: Any, count: int) -> None:
    if not _is(items, tuple) or len(items) != count:
        raise wrong(tensor, f"{name} is {describe(items)}", f"it is a tuple of {count}")


def array(
    tensor: object, name: str, given: Any, shape: tuple[int, ...], dtype: type[np.generic] = np.uint32
) -> None:
    if not _is(given, np.ndarray) or given.shape != shape or given.dtype != dtype:
        expected = f"it is a host array {shape} of {np.dtype(dtype)}"
        raise wrong(tensor, f"{name} is {describe(given)}", expected)


def vector_below(tensor: object, name: str, indices: Any, length: int, dimension: int) -> None:
    """Indices of one mode, one per node."""
    array(tensor, name, indices, (length,))
    largest = int(indices.max())
    if largest >= dimension:
        raise wrong(tensor, f"{name} has the index {largest}", f"its mode has dimension {dimension}")


def rows_below(tensor: object, name: str, indices: Any, length: int, dimensions: list[int]) -> None:
    """Indices of several modes, a row for each."""
    array(tensor, name, indices, (len(dimensions), length))
    for level, dimension in enumerate(dimensions):
        vector_below(tensor, f"{name}[{level}]", indices[level], length, dimension)


def pointers(
    tensor: object,
    name: str,
    given: Any,
    parents: int,
    children: int,
    dtype: type[np.generic] = np.uint32,
) -> None:
    """Pointers of parents to their children, of which each has at least one."""
    array(tensor, name, given, (parents + 1,), dtype)
    if not parents or given[0] != 0 or not (given[1:] > given[:-1]).all():
        raise wrong(tensor, f"{name} does not ascend from 0", "every node has at least one child")
    if int(given[-1]) != children:
        raise wrong(tensor, f"{name} ends at {given[-1]}", f"it points to {children} nodes or nonzeros")


def split_fibers(tensor: Any, name: str, given: Any, children: int) -> int:
    """The number of fibers, by pointers that fit and span at most ``tensor.split`` nonzeros each."""
    number = nodes(tensor, name, given) - 1
    pointers(tensor, name, given, number, children)
    split = integer(tensor, "split", tensor.split)
    longest = int(np.diff(given).max())
    if longest > split:
        raise wrong(tensor, f"{name} has a fiber of {longest} nonzeros", f"split is {split}")
    return number


def is_tuple(items: Any, kind: Any) -> bool:
    return _is(items, tuple) and all(_is(item, kind) for item in items)


def describe(thing: Any) -> str:
    if _is(thing, np.ndarray):
        return f"an array {thing.shape} of {thing.dtype}"
    if _is(thing, tuple):
        return f"a tuple of {len(thing)}"
    return f"a {type(thing).__name__}"


def _is(thing: Any, kind: Any) -> bool:
    """``isinstance`` that leaves ``thing`` of any type, as whatever a caller may have put there."""
    return isinstance(thing, kind)
