"""Orders of modes, and checks of the builders' arguments.

>>> ascending((7, 3, 7, 2)), rooted((7, 3, 7, 2), 2), along((7, 3, 7, 2), 3)
((3, 1, 0, 2), (2, 3, 1, 0), (1, 0, 2, 3))
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from reference.errors import ShapeError


def ascending(shape: Sequence[int]) -> tuple[int, ...]:
    """The modes by dimension, the shortest first; of equal dimensions the lower mode."""
    return tuple(sorted(range(len(shape)), key=lambda n: (shape[n], n)))


def rooted(shape: Sequence[int], root: int) -> tuple[int, ...]:
    """A mode, then the others ascending."""
    return (root, *(n for n in ascending(shape) if n != root))


def along(shape: Sequence[int], leaf: int) -> tuple[int, ...]:
    """The others ascending, then a mode."""
    return (*(n for n in ascending(shape) if n != leaf), leaf)


def checked_modes(modes: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """All modes, in the order that was asked for.

    Raises
    ------
    ShapeError
        Unless each mode is there once.
    """
    given = tuple(modes)
    if any(_whole(n) is None for n in given) or sorted(given) != list(range(len(shape))):
        raise ShapeError(
            f"modes={given!r} for a tensor of shape {shape}\n"
            f"each of the modes 0 to {len(shape) - 1} occurs once\ngive them from the root to the leaf"
        )
    return tuple(operator.index(n) for n in given)


def checked_count(name: str, count: Any, multiple: int = 1) -> int:
    """A positive number, a multiple of another.

    Raises
    ------
    ShapeError
    """
    whole = _whole(count)
    if whole is None or whole < 1 or whole % multiple:
        of = f"a multiple of {multiple}, " if multiple > 1 else ""
        raise ShapeError(
            f"{name}={count!r}\nit counts nonzeros: {of}at least {multiple}\ngive a whole number"
        )
    return whole


def _whole(number: Any) -> int | None:
    try:
        return operator.index(number)
    except TypeError:
        return None
