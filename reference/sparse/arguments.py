"""What the builders of formats take: a Coo on the host, modes that exist, counts of at least 1."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeGuard

import numpy as np

from reference.errors import DtypeError, FormatError, ShapeError
from reference.types import Coo

LARGEST_DIMENSION = 2**32


def is_integer(number: object) -> TypeGuard[int]:
    """Whether it is an integer of Python or NumPy, and no bool.

    Examples
    --------
    >>> is_integer(np.uint8(3)), is_integer(3.0), is_integer(True)
    (True, False, False)
    """
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def check_coo(coo: object) -> None:
    """Raise unless ``coo`` is a Coo on the host whose indices fit into uint32.

    Examples
    --------
    >>> check_coo(Coo([[0], [2**40]], [1.0], (1, 2**41)))
    Traceback (most recent call last):
    ...
    reference.errors.ShapeError: mode 1 has dimension 2199023255552
    indices are uint32, dimensions at most 2**32
    split the mode into two
    """
    if not isinstance(coo, Coo):
        raise DtypeError(
            f"coo is a {type(coo).__name__}\na Coo is expected\n"
            "give Coo(coords, values, shape), or to_coo(tensor) of another format"
        )
    if not isinstance(coo.coords, np.ndarray) or not isinstance(coo.values, np.ndarray):
        raise FormatError("coo lies on a device\nthe reference works on the host\ndownload its arrays")
    for mode, dimension in enumerate(coo.shape):
        if dimension > LARGEST_DIMENSION:
            raise ShapeError(
                f"mode {mode} has dimension {dimension}\n"
                "indices are uint32, dimensions at most 2**32\n"
                "split the mode into two"
            )


def check_mode(mode: object, shape: tuple[int, ...]) -> None:
    """Raise ShapeError unless ``mode`` counts one of the dimensions.

    Examples
    --------
    >>> check_mode(2, (4, 5, 6))
    """
    if not is_integer(mode) or not 0 <= mode < len(shape):
        raise ShapeError(
            f"there is no mode {mode!r}\n"
            f"shape {shape} has the modes 0 to {len(shape) - 1}\n"
            "choose one of them"
        )


def every_mode(modes: Iterable[int], shape: tuple[int, ...]) -> tuple[int, ...]:
    """``modes`` as a tuple of Python ints; raise ShapeError unless it is every mode once.

    Examples
    --------
    >>> every_mode(np.array([2, 0, 1]), (4, 5, 6))
    (2, 0, 1)
    """
    modes = tuple(modes)
    for mode in modes:
        check_mode(mode, shape)
    if len(modes) != len(shape) or len(set(modes)) != len(shape):
        raise ShapeError(
            f"modes is {modes}\nshape {shape} has the modes 0 to {len(shape) - 1}\ngive each of them once"
        )
    return tuple(map(int, modes))


def check_at_least_one(number: object, name: str) -> None:
    """Raise ShapeError unless ``number`` is an integer of at least 1.

    Examples
    --------
    >>> check_at_least_one(128, "split")
    """
    if not is_integer(number) or number < 1:
        raise ShapeError(f"{name} is {number!r}\nit counts nonzeros, at least 1\ngive a positive integer")
