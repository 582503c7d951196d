"""The contents of a network's file: a description in JSON, and named arrays.

The JSON has every field of a network that is not an array, and the size of each that is. Array ``field`` of
the layer with path ``3.body.0`` is ``layers.3.body.0.field``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import Field, dataclass, field, fields
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from reference import bits, tensors
from reference.errors import FormatError, SchemeError
from reference.types.fields import is_integer
from reference.types.layers import LAYERS, Layer, Residual
from reference.types.network import BitPlanes, Network, Pixels, Reals, Signs
from reference.types.packed import (
    FILTER_LAYOUTS,
    WORD_DTYPES,
    PackedBits,
    PackedTensor,
    check_format,
    words_shape,
)

Array: TypeAlias = npt.NDArray[Any]
Json: TypeAlias = dict[str, Any]
Take: TypeAlias = Callable[[str, tuple[int, ...], Any], Array]
"""The array of a name, which must have the shape and dtype."""

VERSION = 1
DEEPEST = 8
"""The most residuals within one another."""

_INPUTS = {kind.__name__: kind for kind in (Pixels, Reals, Signs, BitPlanes)}
_LAYERS = {kind.__name__: kind for kind in LAYERS}
_TEXTS = ("name", "about")
_FORMAT = ("shape", "layout", "word", "first")
_WAYS = ("body", "shortcut")


# ---- from a network ------------------------------------------------------------------------------


@dataclass
class Writer:
    """Makes the JSON of a network, and collects its arrays."""

    arrays: dict[str, Array] = field(default_factory=dict[str, Array])

    def network(self, network: Network) -> Json:
        """Describe a network as a JSON value."""
        return {
            "version": VERSION,
            **{name: _text(getattr(network, name), name) for name in _TEXTS},
            "classes": [_text(name, "a name in classes") for name in network.classes],
            "input": self._one(network.input, "input."),
            "layers": self._layers(network.layers, "layers.", DEEPEST),
            **{name: self._vector(getattr(network, name), name) for name in _vectors(Network)},
        }

    def _layers(self, layers: tuple[Layer, ...], prefix: str, deeper: int) -> list[Json]:
        return [self._layer(layer, f"{prefix}{i}.", deeper) for i, layer in enumerate(layers)]

    def _layer(self, layer: Layer, prefix: str, deeper: int) -> Json:
        if not isinstance(layer, Residual):
            return self._one(layer, prefix)
        if not deeper:
            raise SchemeError(f"{prefix[:-1]}: files hold up to {DEEPEST} residuals within one another")
        ways = {name: self._layers(getattr(layer, name), f"{prefix}{name}.", deeper - 1) for name in _WAYS}
        return {"type": "Residual", **ways}

    def _one(self, given: Any, prefix: str) -> Json:
        vectors = _vectors(given)
        made: Json = {"type": type(given).__name__}
        for one in fields(given):
            value: Any = getattr(given, one.name)
            if one.metadata.get("later") and value == one.default:
                continue
            if one.name in vectors:
                value = self._vector(value, prefix + one.name)
            elif isinstance(value, PackedBits | PackedTensor):
                value = self._packed(value, prefix + one.name)
            made[one.name] = value
        return made

    def _vector(self, vector: Array, name: str) -> int:
        stored = np.packbits(vector, bitorder="little") if vector.dtype == np.bool_ else vector
        self.arrays[name] = np.ascontiguousarray(stored)
        return vector.size

    def _packed(self, packed: PackedBits | PackedTensor, name: str) -> Json:
        if isinstance(packed, PackedBits):
            bits.check_packed(packed)
        else:
            tensors.check_packed_tensor(packed, name, FILTER_LAYOUTS)
        self.arrays[name] = np.ascontiguousarray(packed.words)
        return {key: getattr(packed, key) for key in _FORMAT}


# ---- to a network --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reader:
    """Builds a network from its JSON and arrays; invalid parts raise a FormatError with their path."""

    take: Take

    def network(self, given: Any) -> Network:
        """Build a network from its JSON value."""
        version = _tag(given, "version")
        if is_integer(version) and version != VERSION:
            raise FormatError(
                f"it has version {version}, and this simwarp reads version {VERSION}: install a newer simwarp"
            )
        names = {"version", *_TEXTS, "classes", "input", "layers", "scale", "offset"}
        entries = _fields(given, names, "the network")
        if not is_integer(version):
            raise FormatError(f"version is {_shown(version)}, not a number")
        classes = _list(entries["classes"], "classes")
        return Network(
            name=_text(entries["name"], "name"),
            about=_text(entries["about"], "about"),
            classes=tuple(_text(name, "a name in classes") for name in classes),
            input=self._one(entries["input"], _INPUTS, "input"),
            layers=self._layers(entries["layers"], "layers", DEEPEST),
            **{name: self._vector(entries[name], name, dtype) for name, dtype in _vectors(Network).items()},
        )

    def _layers(self, given: Any, where: str, deeper: int) -> tuple[Layer, ...]:
        return tuple(
            self._layer(layer, f"{where}.{i}", deeper) for i, layer in enumerate(_list(given, where))
        )

    def _layer(self, given: Any, where: str, deeper: int) -> Layer:
        if _tag(given, "type") != "Residual":
            return self._one(given, _LAYERS, where)
        if not deeper:
            raise FormatError(f"{where}: more than {DEEPEST} residuals are within one another")
        entries = _fields(given, {"type", *_WAYS}, where)
        return Residual(**{way: self._layers(entries[way], f"{where}.{way}", deeper - 1) for way in _WAYS})

    def _one(self, given: Any, kinds: dict[str, type], where: str) -> Any:
        name = _tag(given, "type")
        kind = kinds.get(name) if isinstance(name, str) else None
        if kind is None:
            raise FormatError(f"{where} has the type {_shown(name)}: known are {', '.join(kinds)}")
        later = {one.name for one in fields(kind) if one.metadata.get("later")}
        known = {one.name: one for one in fields(kind)}
        entries = _fields(given, {"type", *known}, where, later)
        held = {name: one for name, one in known.items() if name in entries}
        return kind(
            **{name: self._value(one, entries[name], f"{where}.{name}") for name, one in held.items()}
        )

    def _value(self, one: Field[Any], given: Any, where: str) -> Any:
        if "dtype" in one.metadata:
            return self._vector(given, where, one.metadata["dtype"])
        packed = {"PackedBits": self._matrix, "PackedTensor": self._filters}.get(str(one.type))
        return packed(given, where) if packed else _plain(given, where)

    def _vector(self, size: Any, name: str, dtype: Any) -> Array:
        if not is_integer(size) or size < 1:
            raise FormatError(f"{name} has the size {size!r}: at least 1 is needed")
        if dtype is not np.bool_:
            return self.take(name, (size,), dtype)
        octets = self.take(name, (-(-size // 8),), np.uint8)
        vector = np.unpackbits(octets, bitorder="little")
        if vector[size:].any():
            raise FormatError(f"{name} has size {size}, but bits beyond it are set")
        return vector[:size].astype(np.bool_)

    def _matrix(self, given: Any, where: str) -> PackedBits:
        size, layout, word, first = _format(given, where, 2)
        check_format(layout, word, first)
        words = self.take(where, words_shape(layout, word, size), WORD_DTYPES[word])
        ones = np.ones((size[0], 1) if layout == "row" else (1, size[1]), np.uint8)
        _check_padding(words, bits.pack_bits(ones, layout, word, first), where)
        return PackedBits(words, size, layout, word, first)

    def _filters(self, given: Any, where: str) -> PackedTensor:
        size, layout, word, first = _format(given, where, 4)
        check_format(layout, word, first, FILTER_LAYOUTS)
        words = self.take(where, words_shape(layout, word, size), WORD_DTYPES[word])
        ones = np.ones((1, 1, *size[2:]), np.uint8)
        _check_padding(words, tensors.pack_tensor_bits(ones, layout, word, first), where)
        return PackedTensor(words, size, layout, word, first)


def _format(given: Any, where: str, axes: int) -> tuple[Any, ...]:
    """Read the shape, layout, word and first bit of packed weights from a JSON object."""
    entries = _fields(given, set(_FORMAT), where)
    size: Any = _plain(entries["shape"], f"{where}.shape")
    if (
        not isinstance(size, tuple)
        or len(cast("Json", size)) != axes
        or min(map(_count, cast("Json", size))) < 1
    ):
        raise FormatError(f"{where} has the shape {_shown(size)}: {axes} sizes of at least 1 are needed")
    return cast("Any", size), *(_plain(entries[name], f"{where}.{name}") for name in _FORMAT[1:])


def _check_padding(words: Array, ones: PackedBits | PackedTensor, where: str) -> None:
    """Raise for bits set outside the matrix: they would change its products."""
    if (words & ~ones.words).any():
        raise FormatError(f"{where} has bits outside its shape")


def _tag(given: Any, name: str) -> Any:
    """A field of a JSON value; None if the value is not an object."""
    return cast("Json", given).get(name) if isinstance(given, dict) else None


def _vectors(given: Any) -> dict[str, Any]:
    """The array fields of one dimension, and their dtypes."""
    return {one.name: one.metadata["dtype"] for one in fields(given) if "dtype" in one.metadata}


def _fields(given: Any, names: set[str], where: str, later: Collection[str] = ()) -> Json:
    """Check that a JSON object has exactly these fields; the newer ones in ``later`` may be missing."""
    if not isinstance(given, dict):
        raise FormatError(f"{where} is {_shown(given)}, not an object")
    entries = cast("Json", given)
    for what, wrong in (
        ("lacks", names - entries.keys() - {*later}),
        ("has an unknown", entries.keys() - names),
    ):
        if wrong:
            raise FormatError(f"{where} {what} field {_shown(min(wrong))}")
    return entries


def _list(given: Any, where: str) -> list[Any]:
    if not isinstance(given, list):
        raise FormatError(f"{where} is {_shown(given)}, not a list")
    return cast("list[Any]", given)


def _text(given: Any, where: str) -> str:
    if not isinstance(given, str) or any("\ud800" <= letter <= "\udfff" for letter in given):
        raise FormatError(f"{where} is {_shown(given)}, not text")
    return given


def _plain(given: Any, where: str, deeper: int = 2) -> Any:
    """A JSON number, text or null, or a list of them as a tuple; `Network` checks the values."""
    if isinstance(given, list) and deeper:
        return tuple(_plain(one, where, deeper - 1) for one in cast("list[Any]", given))
    if given is None or isinstance(given, str) or is_integer(cast("Any", given)):
        return cast("Any", given)
    raise FormatError(f"{where} is {_shown(given)}: integers, texts and lists of them are known")


def _count(given: Any) -> int:
    return given if is_integer(given) else 0


def _shown(given: Any) -> str:
    """A value of JSON, short enough for a message."""
    shown = ascii(given)
    return shown if len(shown) <= 60 else f"{shown[:57]}…"
