"""Decorators of values: a repr of bounded length, ``==`` on arrays, and a refusal to become an array."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import Any, TypeVar, cast

from reference.errors import DtypeError

Kind = TypeVar("Kind", bound=type[Any])

LONGEST = 4000
"""The most characters of a shortened repr."""
_LIMITS = ((LONGEST, LONGEST), (6, 200), (2, 60))
"""Items of a collection and letters of a string: as many as fit, then fewer and fewer."""


def shortened(kind: Kind) -> Kind:
    """Limit the repr of a dataclass or NamedTuple to 4000 characters; shorter ones are Python's own.

    >>> from dataclasses import dataclass
    >>> @shortened
    ... @dataclass
    ... class Plan:
    ...     tasks: tuple[int, ...]
    >>> Plan((1, 2)), Plan(tuple(range(100_000)))
    (Plan(tasks=(1, 2)), Plan(tasks=(0, 1, 2, 3, 4, 5, … 100000 in all)))
    """
    cast("Any", kind).__repr__ = short_repr
    return kind


def short_repr(value: object) -> str:
    """The repr of a value, or if that is too long a repr with the first items of its collections."""
    text = ""
    for limits in _LIMITS:
        text = ""
        for piece in _pieces(value, *limits):
            text += piece
            if len(text) > LONGEST:
                break
        else:
            return text
    return f"{text[: LONGEST - 1]}…"


def _pieces(value: Any, items: int, letters: int) -> Iterator[str]:
    """Yield the parts of a value's repr, in order."""
    kind = cast("type[Any]", type(value))
    if kind.__repr__ is short_repr:
        names = value._fields if issubclass(kind, tuple) else [f.name for f in fields(value) if f.repr]
        given = ((f"{name}=", getattr(value, name)) for name in names)
        yield from _listed(f"{kind.__qualname__}(", given, ")", len(names), items, letters)
    elif kind is tuple or kind is list:
        ends = "[]" if kind is list else ("(", ",)") if len(value) == 1 else "()"
        yield from _listed(ends[0], (("", one) for one in value), ends[1], items, items, letters, len(value))
    elif kind is dict:
        given = ((f"{key!r}: ", one) for key, one in value.items())
        yield from _listed("{", given, "}", items, items, letters, len(value))
    elif kind is MappingProxyType:
        yield "mappingproxy("
        yield from _pieces(dict(value), items, letters)
        yield ")"
    else:
        yield _leaf(value, items, letters)


def _listed(
    begin: str,
    given: Iterator[tuple[str, Any]],
    end: str,
    most: int,
    items: int,
    letters: int,
    count: int = 0,
) -> Iterator[str]:
    """The parts of a collection's repr: the first items, and the total number if there are more."""
    yield begin
    for number, (name, one) in enumerate(given):
        if number:
            yield ", "
        if number >= most:
            yield f"… {count} in all"
            break
        yield name
        yield from _pieces(one, items, letters)
    yield end


def _leaf(value: Any, items: int, letters: int) -> str:
    """The repr of a value that is not a collection."""
    if isinstance(value, str | bytes):
        return repr(value) if len(value) <= letters else f"{value[:letters]!r}…"
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if isinstance(shape, tuple) and dtype is not None and items < LONGEST and not is_dataclass(value):
        return f"<{type(value).__name__} of {dtype} {shape}>"
    text = repr(value)
    return text if len(text) <= letters else f"{text[:letters]}…"


def compared(kind: Kind) -> Kind:
    """Let ``==`` compare the fields of a dataclass, arrays as a whole; like arrays, it has no hash.

    >>> import numpy as np
    >>> from dataclasses import dataclass
    >>> @compared
    ... @dataclass(eq=False)
    ... class Bits:
    ...     words: object
    >>> Bits(np.arange(2)) == Bits(np.arange(2)), Bits(np.arange(2)) == Bits(np.arange(3)), Bits(1) == 1
    (True, False, False)
    """

    def equal(self: Any, other: Any) -> Any:
        if type(self) is not type(other):
            return NotImplemented
        return all(_are_equal(getattr(self, one.name), getattr(other, one.name)) for one in fields(self))

    cast("Any", kind).__eq__ = equal
    cast("Any", kind).__hash__ = None
    return kind


def _are_equal(one: Any, other: Any) -> bool:
    """True if two values of a field are equal; arrays must have the same dtype, and may be on devices."""
    if one is other:
        return True
    if hasattr(one, "dtype") and hasattr(other, "dtype"):
        from numpy import array_equal, asarray

        return bool(one.dtype == other.dtype) and array_equal(asarray(one), asarray(other))
    if isinstance(one, tuple) and isinstance(other, tuple):
        ours, theirs = cast("tuple[Any, ...]", one), cast("tuple[Any, ...]", other)
        return len(ours) == len(theirs) and all(map(_are_equal, ours, theirs))
    return bool(one == other)


def not_an_array(advice: str) -> Callable[[Kind], Kind]:
    """Let ``numpy.asarray`` refuse a value, with advice; else it would make an array of one object.

    >>> import numpy as np
    >>> @not_an_array("pass its words")
    ... class Bits:
    ...     shape = 2, 3
    >>> np.asarray(Bits())
    Traceback (most recent call last):
    ...
    reference.errors.DtypeError: Bits of shape (2, 3) is used as an array of numbers
    it describes numbers, but is not an array
    pass its words
    """

    def refuse(self: Any, dtype: Any = None, copy: bool | None = None) -> Any:
        shape = getattr(self, "shape", None)
        of_shape = f" of shape {shape}" if isinstance(shape, tuple) else ""
        raise DtypeError(
            f"{type(self).__name__}{of_shape} is used as an array of numbers\n"
            f"it describes numbers, but is not an array\n{advice}"
        )

    def decorated(kind: Kind) -> Kind:
        cast("Any", kind).__array__ = refuse
        return kind

    return decorated
