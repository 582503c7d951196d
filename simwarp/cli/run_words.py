"""Parse the option values of ``simwarp run``: arguments, dimensions, macros and variables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reference.errors import SchemeError
from simwarp.cli.files import read_array
from simwarp.cli.output import integers

if TYPE_CHECKING:
    from reference.devices.launch import Dim

_NAMED = re.compile(r"([A-Za-z_$%][\w$]*|[0-9]+)=(.*)", re.DOTALL)
_MADE = re.compile(r"(out|zeros):([^:]+):([0-9x×,]+)")
_FORMS = (
    "A.npy, A.npy:inout, out:float32:1024, zeros:int32:64x64, 2.5, float16:2.5, {int32:1,float64:2.5}; "
    "with a parameter's name: n=1000"
)
_TYPED = re.compile(r"([a-z]+[0-9]+|bool):(.*)")


_READ = re.compile(r"(.+\.npy):(texture|surface)((?:,[\w-]+)*)")
_OF_IMAGES: dict[str, dict[str, Any]] = {
    "layered": {"layered": True},
    "cubemap": {"cubemap": True},
    "2-channels": {"channels": 2},
    "4-channels": {"channels": 4},
}
_OF_TEXTURES: dict[str, dict[str, Any]] = {
    **{mode: {"address_mode": mode} for mode in ("clamp", "border", "wrap", "mirror")},
    "linear": {"filter_mode": "linear"},
    "normalized": {"normalized": True},
    "floats": {"read_mode": "normalized"},
    "memory": {"linear": True},
}
"""Words behind ``:texture`` and ``:surface`` → the options that they stand for."""


@dataclass(frozen=True)
class Word:
    """One parsed ``--arg``: a kernel argument, its name and whether to write it out."""

    name: str  # in outputs and faults: as typed, of the file, or "out"; "" for an unnamed number
    value: Any  # an argument of `simwarp.run.run`
    written: bool = False  # write the array to a file after the launch
    key: str | int | None = None  # the parameter's name or position
    from_file: bool = False  # then only an array that the kernel changed is written


def read_argument(text: str) -> Word:
    """Parse one ``--arg`` into the kernel argument that it describes."""
    import numpy as np

    from simwarp.device.array import check_room
    from simwarp.run.values import Out

    named = _NAMED.fullmatch(text)
    given, value = (named[1], named[2]) if named else ("", text)
    numbered = given.isdecimal()
    key = int(given) if numbered else given or None
    name = "" if numbered else given
    read = _READ.fullmatch(value)
    if read:
        array, words = read_array(Path(read[1])), read[3].split(",")[1:]
        value = _reads(text, array, read[2], words)
        return Word(name or Path(read[1]).stem, value, read[2] == "surface", key, from_file=True)
    path, _, mode = value.rpartition(":") if value.endswith(":inout") else (value, "", "")
    if path.endswith(".npy"):
        return Word(name or Path(path).stem, read_array(Path(path)), bool(mode), key, from_file=True)
    made = _MADE.fullmatch(value)
    if made:
        extent = integers(made[3].rstrip("x×,"), digits=99)
        if not extent:
            raise SchemeError(f"--arg {text}: {made[3]} is not a shape\ngive for example out:float32:64x64")
        out = Out(made[2], extent, name or made[1])
        check_room(f"--arg {text}", out.shape, out.dtype)
        array = out if made[1] == "out" else np.zeros(out.shape, out.dtype)
        return Word(out.name, array, written=True, key=key)
    return Word(name, _value(f"--arg {text}", value), key=key)


def _reads(text: str, array: Any, what: str, words: Sequence[str]) -> Any:
    """The texture or surface of ``FILE.npy:texture,linear,wrap,normalized`` and its like."""
    from simwarp.run.values import Surface, Texture

    known = _OF_IMAGES if what == "surface" else _OF_IMAGES | _OF_TEXTURES
    options: dict[str, Any] = {}
    for word in words:
        if word not in known:
            raise SchemeError(f"--arg {text}: {word!r} of a {what}\nchoose among {', '.join(known)}")
        options |= known[word]
    return (Surface if what == "surface" else Texture)(array, **options)


def name_all(words: Sequence[Word]) -> dict[str, Word]:
    """The arguments by unique name; one without a name, or with an earlier one's, gets its position added."""
    named: dict[str, Word] = {}
    for position, word in enumerate(words):
        taken = not word.name or word.name in named
        named[f"{word.name or 'arg'}{position}" if taken else word.name] = word
    return named


def read_extent(option: str, text: str) -> Dim:
    """The x, y and z of ``--grid`` or ``--block``, from one to three numbers."""
    from reference.devices.launch import three

    found = integers(text)
    if not 1 <= len(found) <= 3 or min(found) < 1:
        raise SchemeError(
            f"{option} {text}: not one to three positive integers\ngive for example {option} 4,1,1"
        )
    return three(option, found)


def read_capability(text: str) -> tuple[int, int] | None:
    """The compute capability in ``--cc``; None for an empty text."""
    found = re.fullmatch(r"([0-9]+)\.([0-9])", text)
    if text and not found:
        raise SchemeError(f"--cc {text}: not a compute capability\ngive for example --cc 8.0")
    return (int(found[1]), int(found[2])) if found else None


def read_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Parse ``--set NAME=FILE.npy`` and ``NAME=NUMBER`` into values of device variables by name."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise SchemeError(f"--set {text}: not NAME=VALUE\ngive for example --set c=c.npy")
        if name in found:
            raise SchemeError(f"--set {text}: {name} is set twice\ngive it one value")
        found[name] = read_array(Path(value)) if value.endswith(".npy") else _value(f"--set {text}", value)
    return found


def _value(text: str, value: str) -> Any:
    """A number, a number of a type, a structure in braces, or bytes."""
    if value.startswith("{") and value.endswith("}"):
        return _structure(text, value)
    if value.startswith("bytes:"):
        return _bytes(text, value.removeprefix("bytes:"))
    typed = _TYPED.fullmatch(value)
    return _typed(text, typed[1], typed[2]) if typed else _number(text, value)


def _structure(text: str, value: str) -> Any:
    """The structure of ``{int8:7,float64:2.5,{float32:1,2}}``: a type holds until the next one.

    Members lie as in C++, each at a multiple of its own size.
    """
    import numpy as np

    members: list[Any] = []
    kind = ""
    for part in _members(value[1:-1]):
        if part.startswith("{"):
            members.append(_structure(text, part))
            continue
        typed = _TYPED.fullmatch(part)
        kind, number = (typed[1], typed[2]) if typed else (kind, part)
        if not kind:
            raise SchemeError(
                f"{text}: the first member, {number or 'nothing'}, has no type\n"
                "a type holds for the members up to the next type\ngive for example {int32:1,2,float64:2.5}"
            )
        members.append(_typed(text, kind, number))
    dtype = np.dtype([(f"f{i}", member.dtype) for i, member in enumerate(members)], align=True)
    return np.array(tuple(members), dtype)[()]


def _members(text: str) -> list[str]:
    """Split a text at its commas outside of braces."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "{") - (letter == "}")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _bytes(text: str, value: str) -> bytes:
    try:
        return bytes.fromhex(value.removeprefix("0x"))
    except ValueError:
        raise SchemeError(
            f"{text}: {value!r} is not bytes\ntwo hexadecimal digits are a byte, in the order of memory\n"
            "give for example bytes:0100803f"
        ) from None


def _typed(text: str, kind: str, value: str) -> Any:
    """The number of ``float16:2.5``, as a NumPy scalar; of bfloat16 its bits."""
    from simwarp.run.pointees import number_type

    wanted = number_type(kind)
    if wanted is None or kind.startswith("float8"):
        raise SchemeError(
            f"{text}: {kind!r} is not a type of numbers\n"
            "there are bool, int8 to int64, uint8 to uint64, float16, bfloat16, float32, float64\n"
            "give for example float16:2.5"
        )
    number = _number(text, value)
    try:
        return wanted.number(number)
    except OverflowError:
        what = "does not fit"
    except TypeError:
        what = "is not an integer, as for"
    raise SchemeError(f"{text}: {number} {what} {kind}\ngive a number of this type, or another type")


def _number(text: str, value: str) -> int | float:
    for read in (lambda: int(value, 0), lambda: float(value)):
        try:
            if value.isascii():
                return read()
        except ValueError:
            pass
    raise SchemeError(f"{text}: not a .npy file, a number, or an array to allocate\ngive one of {_FORMS}")
