"""Parse the option values of ``simwarp run``: arguments, dimensions, macros and variables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reference.errors import SchemeError
from simwarp.cli.files import read_array

if TYPE_CHECKING:
    from reference.types.launch import Dim

_NAMED = re.compile(r"([A-Za-z_$%][\w$]*|[0-9]+)=(.*)", re.DOTALL)
_MADE = re.compile(r"(out|zeros):([^:]+):([0-9x,]+)")
_FORMS = "A.npy, A.npy:inout, out:float32:1024, zeros:int32:64x64, 2.5; with a parameter's name: n=1000"


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
    """The value of one ``--arg``.

    Attributes
    ----------
    name : str
        The name in outputs and faults: as given, of the file, or "out"; "" for an unnamed number.
    value : array, Out or number
        An argument of `simwarp.run.run`.
    key : str, int or None
        The parameter's name or position, if given.
    written : bool
        Whether to write the array to a file after the launch.
    """

    name: str
    value: Any
    written: bool = False
    key: str | int | None = None


def read_argument(text: str) -> Word:
    """The kernel argument of one ``--arg``."""
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
        return Word(
            name or Path(read[1]).stem, _reads(text, array, read[2], words), read[2] == "surface", key
        )
    path, _, mode = value.rpartition(":") if value.endswith(":inout") else (value, "", "")
    if path.endswith(".npy"):
        return Word(name or Path(path).stem, read_array(Path(path)), bool(mode), key)
    made = _MADE.fullmatch(value)
    if made:
        out = Out(made[2], _numbers(made[3]), name or made[1])
        check_room(f"--arg {text}", out.shape, out.dtype)
        array = out if made[1] == "out" else np.zeros(out.shape, out.dtype)
        return Word(out.name, array, written=True, key=key)
    return Word(name, _number(f"--arg {text}", value), key=key)


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
    from reference.types.launch import three

    if not re.fullmatch(r"[1-9][0-9]*([x,][1-9][0-9]*){0,2}", text):
        raise SchemeError(
            f"{option} {text}: not one to three positive integers\ngive for example {option} 4,1,1"
        )
    return three(option, _numbers(text))


def read_capability(text: str) -> tuple[int, int] | None:
    """The compute capability in ``--cc``; None for an empty text."""
    found = re.fullmatch(r"([0-9]+)\.([0-9])", text)
    if text and not found:
        raise SchemeError(f"--cc {text}: not a compute capability\ngive for example --cc 8.0")
    return (int(found[1]), int(found[2])) if found else None


def read_settings(texts: Sequence[str]) -> dict[str, Any]:
    """The device variables of ``--set``: ``NAME=FILE.npy`` or ``NAME=NUMBER``."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise SchemeError(f"--set {text}: not NAME=VALUE\ngive for example --set c=c.npy")
        if name in found:
            raise SchemeError(f"--set {text}: {name} is set twice\ngive it one value")
        found[name] = read_array(Path(value)) if value.endswith(".npy") else _number(f"--set {text}", value)
    return found


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.split("[x,]", text) if number)


def _number(text: str, value: str) -> int | float:
    for read in (lambda: int(value, 0), lambda: float(value)):
        try:
            if value.isascii():
                return read()
        except ValueError:
            pass
    raise SchemeError(f"{text}: not a .npy file, a number, or an array to allocate\ngive one of {_FORMS}")
