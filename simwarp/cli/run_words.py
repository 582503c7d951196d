"""The words of ``simwarp run``: arguments, dimensions and checks as a command line writes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reference.errors import SchemeError
from reference.types.launch import Dim, three
from simwarp.cli.files import read_array
from simwarp.device.device import check_room
from simwarp.run.arguments import Out

_NAMED = re.compile(r"([A-Za-z_$%][\w$]*|[0-9]+)=(.*)", re.DOTALL)
_MADE = re.compile(r"(out|zeros):([^:]+):([0-9x,]+)")
_FORMS = (
    "A.npy, A.npy:inout, out:float32:1024, zeros:int32:64x64, 2.5; each may be for a named parameter: n=1000"
)


@dataclass(frozen=True)
class Word:
    """One ``--arg``.

    Attributes
    ----------
    name : str
        What outputs and faults call it: as given, or the file's, or "out"; "" if there is none.
    value
        What `simwarp.run.run` takes.
    key : str, int or None
        The parameter's name or position, if it was given.
    written : bool
        Whether the array is to be written to a file afterwards.
    """

    name: str
    value: Any
    written: bool = False
    key: str | int | None = None


def read_argument(text: str) -> Word:
    """One argument of the kernel."""
    named = _NAMED.fullmatch(text)
    given, value = (named[1], named[2]) if named else ("", text)
    numbered = given.isdecimal()
    key = int(given) if numbered else given or None
    name = "" if numbered else given
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


def name_all(words: Sequence[Word]) -> dict[str, Word]:
    """A name of its own for each: what has none, or one that came before, gets its position."""
    named: dict[str, Word] = {}
    for position, word in enumerate(words):
        taken = not word.name or word.name in named
        named[f"{word.name or 'arg'}{position}" if taken else word.name] = word
    return named


def read_extent(option: str, text: str) -> Dim:
    """One to three numbers."""
    if not re.fullmatch(r"[1-9][0-9]*([x,][1-9][0-9]*){0,2}", text):
        raise SchemeError(
            f"{option} {text}: up to three numbers from 1 on are needed\nfor example {option} 4,1,1"
        )
    return three(option, _numbers(text))


def read_capability(text: str) -> tuple[int, int] | None:
    """A compute capability; None if there is none."""
    found = re.fullmatch(r"([0-9]+)\.([0-9])", text)
    if text and not found:
        raise SchemeError(f"--cc {text}: not a compute capability\nfor example --cc 8.0")
    return (int(found[1]), int(found[2])) if found else None


def read_macros(texts: Sequence[str]) -> dict[str, str | int]:
    """Macros: ``NAME`` or ``NAME=VALUE``."""
    return {name: value for name, _, value in (text.partition("=") for text in texts)}


def read_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Values of variables: ``NAME=FILE.npy`` or ``NAME=NUMBER``."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise SchemeError(f"--set {text}: a variable and its value are needed\nfor example --set c=c.npy")
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
    raise SchemeError(f"{text}: this is not a file, number or array to be made\ngive one of {_FORMS}")
