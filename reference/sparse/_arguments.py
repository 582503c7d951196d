"""Arguments of the builders: a Coo on the host, existing modes, positive counts.

>>> check_mode(3, (4, 5, 6))
Traceback (most recent call last):
...
reference.errors.ShapeError: there is no mode 3
shape (4, 5, 6) has the modes 0 to 2
choose one of them
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from reference.errors import DtypeError, FormatError, ShapeError
from reference.types import Coo
from reference.types.fields import LARGEST_DIMENSION, is_integer


def check_coo(coo: object) -> None:
    """Raise unless ``coo`` is a Coo on the host whose indices fit into uint32."""
    check_host(coo)
    for mode, dimension in enumerate(coo.shape if isinstance(coo, Coo) else ()):
        if dimension > LARGEST_DIMENSION:
            raise ShapeError(
                f"mode {mode} has dimension {dimension}\n"
                "indices are uint32, dimensions at most 2**32\n"
                "split the mode into two"
            )


def check_host(coo: object) -> None:
    """Raise unless ``coo`` is a Coo on the host."""
    if not isinstance(coo, Coo):
        raise DtypeError(
            f"coo is a {type(coo).__name__}\na Coo is expected\n"
            "give Coo(coords, values, shape), or to_coo(tensor) of another format"
        )
    if not isinstance(coo.coords, np.ndarray) or not isinstance(coo.values, np.ndarray):
        raise FormatError("coo lies on a device\nthe reference works on the host\ndownload its arrays")


def check_mode(mode: object, shape: tuple[int, ...]) -> None:
    """Raise ShapeError unless ``mode`` counts one of the dimensions."""
    if not is_integer(mode) or not 0 <= mode < len(shape):
        raise ShapeError(
            f"there is no mode {mode!r}\n"
            f"shape {shape} has the modes 0 to {len(shape) - 1}\n"
            "choose one of them"
        )


def every_mode(modes: Iterable[int], shape: tuple[int, ...]) -> tuple[int, ...]:
    """``modes`` as a tuple of Python ints; raise ShapeError unless it is every mode once."""
    modes = tuple(modes)
    for mode in modes:
        check_mode(mode, shape)
    if len(modes) != len(shape) or len(set(modes)) != len(shape):
        raise ShapeError(
            f"modes is {modes}\nshape {shape} has the modes 0 to {len(shape) - 1}\ngive each of them once"
        )
    return tuple(map(int, modes))


def check_at_least_one(number: object, name: str) -> None:
    """Raise ShapeError unless ``number`` is an integer of at least 1."""
    if not is_integer(number) or number < 1:
        raise ShapeError(f"{name} is {number!r}\nit counts nonzeros, at least 1\ngive a positive integer")
