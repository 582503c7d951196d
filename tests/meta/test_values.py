"""Every public value: a repr of bounded length, and no array of one object made of it."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import Any, get_args, get_origin

import numpy as np
import pytest

import gpu
import reference
import simwarp
from reference.errors import DtypeError
from reference.types import Coo
from reference.values import LONGEST

PACKAGES = (reference, simwarp, gpu)
INNER = re.compile(r"\.(lab|cli)\b")
"""Packages without an interface in Python."""
LONG = 20_000


@cache
def public_classes() -> dict[str, type[Any]]:
    """The classes that packages name in ``__all__``, by their own names."""
    found: dict[str, type[Any]] = {}
    names = (one.name for root in PACKAGES for one in walk_packages(root.__path__, f"{root.__name__}."))
    for name in (*(root.__name__ for root in PACKAGES), *names):
        if INNER.search(name) or name.endswith("__main__"):
            continue
        try:
            module = import_module(name)
        except ImportError:  # MissingExtraError is one
            continue
        for public in getattr(module, "__all__", ()):
            one = getattr(module, public)
            if inspect.isclass(one) and not issubclass(one, BaseException):
                found[f"{one.__module__}.{one.__qualname__}"] = one
    return found


def fields_of(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """The fields of a dataclass or NamedTuple, with their types."""
    module = vars(import_module(kind.__module__))
    space = {**vars(typing), "Mapping": Mapping, "Sequence": Sequence, **module}
    names = kind._fields if issubclass(kind, tuple) else [one.name for one in fields(kind) if one.repr]
    annotations = {name: text for base in reversed(kind.__mro__) for name, text in _annotations(base)}
    for name in names:
        declared = getattr(annotations[name], "__forward_arg__", annotations[name])
        try:
            declared = eval(declared, space) if isinstance(declared, str) else declared
        except (NameError, TypeError):  # imported for type checkers alone
            declared = Any
        yield name, declared


def _annotations(base: type[Any]) -> list[tuple[str, Any]]:
    return [*getattr(base, "__annotations__", {}).items()]


def large(declared: Any, depth: int = 3) -> Any:
    """A value of a type that is large, with values in it to a depth."""
    if not depth:
        return 12345
    depth -= 1
    origin, arguments = get_origin(declared), get_args(declared)
    if declared is str:
        return "x" * LONG
    if declared is Any or origin is np.ndarray:
        return np.linspace(0, 1, 1000).reshape(10, 100)
    if origin is tuple and arguments[-1:] == (...,):
        return (large(arguments[0], depth),) * (LONG if arguments[0] in (int, str, float) else 100)
    if origin in (list, Sequence):
        return [large(arguments[0], depth)] * 100
    if origin in (dict, Mapping):
        return {f"key {number}": large(arguments[1], depth) for number in range(100)}
    if origin is tuple:
        return tuple(large(one, depth) for one in arguments)
    if arguments and origin is not typing.Literal:
        return max((large(one, depth) for one in arguments), key=lambda one: len(repr(one)))
    if inspect.isclass(declared) and has_fields(declared):
        return filled(declared, depth)
    return 12345


def has_fields(kind: type[Any]) -> bool:
    return is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


@cache
def filled(kind: type[Any], depth: int = 3) -> Any:
    """An object whose fields are large, made without its checks."""
    values = {name: large(declared, depth) for name, declared in fields_of(kind)}
    if issubclass(kind, tuple):
        return kind._make(values.values())
    made = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


@pytest.mark.slow
def test_reprs_are_at_most_4000_characters() -> None:
    long = {name: len(repr(filled(kind))) for name, kind in public_classes().items() if has_fields(kind)}
    assert not {name: length for name, length in long.items() if length > LONGEST}


HOLD_NUMBERS = re.compile(r"ndarray|NDArray|\bAny\b|Packed")
OF_NO_NUMBERS = {
    *("Access", "AccessEvent", "Event", "Recording", "Stream", "WriteEvent", "Written"),
    *("Case", "Execution", "Finding", "Given", "Golden", "Units"),
    *("AveragePool", "Conv", "MaxPool"),  # of gpu.outofcore
    *("Element", "Holder"),  # tuples of indices, which may be stacked
}
"""Classes with fields of any type that nobody takes for an array."""


def test_no_array_of_one_object_is_made_of_a_value() -> None:
    wrong: list[str] = []
    for name, kind in public_classes().items():
        is_exempt = kind.__name__ in OF_NO_NUMBERS and not name.startswith("reference.")
        if is_exempt or not has_fields(kind):
            continue
        if any(HOLD_NUMBERS.search(str(declared)) for _, declared in fields_of(kind)):
            wrong += _made_of(name, filled(kind))
    assert not wrong


def _made_of(name: str, value: Any) -> list[str]:
    """What `numpy.asarray` makes of a value, unless it refuses it with three lines."""
    try:
        made = np.asarray(value)
    except DtypeError as error:
        return [f"{name}: {error}"] * (len(str(error).splitlines()) != 3)
    return [f"{name}: {made.dtype} {made.shape}"]


BITS = reference.pack(np.ones((2, 3)), layout="column")


@pytest.mark.parametrize(
    "call", [np.asarray, np.array, np.sum, np.stack, np.add], ids=lambda call: call.__name__
)
def test_packed_bits_are_not_numbers(call: Any) -> None:
    with pytest.raises(
        DtypeError, match=r"^PackedBits of shape \(2, 3\) is used as an array(?s:.*)reference\.unpack"
    ):
        call([BITS, BITS]) if call is np.stack else call(*[BITS] * getattr(call, "nin", 1))


def test_packed_bits_are_not_a_sequence() -> None:
    for call in (len, iter, lambda x: x[0], lambda x: x + 1, lambda x: 1 in x):
        with pytest.raises(TypeError):
            call(BITS)


def test_a_short_repr_is_as_python_writes_it() -> None:
    assert repr(BITS) == (
        "PackedBits(words=array([[3758096384, 3758096384]], dtype=uint32), shape=(2, 3), layout='column',"
        " word=32, first='msb')"
    )
    large = reference.pack(np.ones((2, 10**5)), layout="column")
    assert repr(large).startswith("PackedBits(words=array([[")
    many = reference.pack(np.ones((30, 1000)), layout="column")
    assert repr(many).startswith("PackedBits(words=<ndarray of uint32 (32, 30)>, shape=(30, 1000), ")
    plan = gpu.blas3.explain("dgemm", 16384, tile=1024)
    assert len(repr(plan)) <= LONGEST
    assert "… 256 in all" in repr(plan)


def test_packed_bits_are_equal_if_their_words_and_format_are() -> None:
    x = np.linspace(-1, 1, 90).reshape(2, 45)
    bits = reference.pack(x, layout="column")
    assert bits == reference.pack(x.copy(), layout="column")
    assert bits == gpu.pack(x, layout="column", device=simwarp.Device())
    for other in (reference.pack(-x, layout="column"), reference.pack(x, layout="row"), bits.words, None):
        assert not _is_equal(bits, other)
    with pytest.raises(TypeError, match="unhashable"):
        hash(bits)
    coo = Coo([[0, 1], [1, 0]], [1.0, 2.0], (2, 2))
    assert coo == Coo([[0, 1], [1, 0]], [1.0, 2.0], (2, 2))
    assert coo != Coo([[0, 1], [1, 0]], [1.0, 3.0], (2, 2))


def _is_equal(one: object, other: object) -> bool:
    try:
        return bool(one == other)
    except DtypeError:  # an array is asked first
        return False
