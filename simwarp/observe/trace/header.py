r"""The JSON header of a recording's file, checked word by word.

>>> read_header(b'{"format": "a picture"}', "simwarp trace", 1)
Traceback (most recent call last):
...
simwarp.observe.trace.header.HeaderError: its header is that of another format
>>> printable("a\x1b[2Jb")
'a?[2Jb'
"""

from __future__ import annotations

import json
from typing import Any, TypeAlias, cast

from simwarp.observe.trace.code import TracedInstruction
from simwarp.observe.trace.recording import TracedLaunch
from simwarp.ptx.rows import DTYPES

_MOST = 1 << 31
_MOST_THREADS = 1024
_MOST_BYTES = 255
"""What the registers of one instruction can take in a lane."""

Header: TypeAlias = "tuple[list[TracedLaunch], list[list[TracedInstruction]], list[str], dict[str, Any]]"


class HeaderError(ValueError):
    """A file that says something about itself that is not so."""


def read_header(text: bytes, wanted_format: str, version: int) -> Header:
    """The launches, codes, faults and selection of a recording.

    Raises
    ------
    HeaderError
        If something is missing, or not what it must be.
    """
    header = _fields(json.loads(text))
    if header.get("format") != wanted_format:
        raise HeaderError("its header is that of another format")
    if header.get("version") != version:
        raise HeaderError(f"it is of version {header.get('version')!r}, this reads version {version}")
    codes = [[_instruction(one) for one in _list(code)] for code in _list(header.get("codes"))]
    launches = [_launch(one, len(codes)) for one in _list(header.get("launches"))]
    faults = [_text(one) for one in _list(header.get("faults"))]
    return launches, codes, faults, _fields(header.get("selection"))


def printable(text: str) -> str:
    """Text in which nothing steers a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def _launch(given: Any, codes: int) -> TracedLaunch:
    launch = _fields(given)
    grid, block = _size(launch.get("grid")), _size(launch.get("block"))
    if block[0] * block[1] * block[2] > _MOST_THREADS:
        raise HeaderError(f"no block has {block} threads")
    return TracedLaunch(_text(launch.get("kernel")), grid, block, _number(launch.get("code"), codes))


def _instruction(given: Any) -> TracedInstruction:
    it = _fields(given)
    opcode, text, file = (_text(it.get(name)) for name in ("opcode", "text", "source_file"))
    line, source_line = (_number(it.get(name), _MOST) for name in ("line", "source_line"))
    registers = tuple(_register(one) for one in _list(it.get("registers")))
    if sum(DTYPES[kind].itemsize for _, kind in registers) > _MOST_BYTES:
        raise HeaderError(f"no instruction writes {len(registers)} registers")
    return TracedInstruction(line, opcode, text, file, source_line, registers)


def _register(given: Any) -> tuple[str, str]:
    pair = [_text(part) for part in _list(given)]
    if len(pair) != 2 or pair[1] not in DTYPES:
        raise HeaderError(f"{pair} is no register")
    return pair[0], pair[1]


def _size(given: Any) -> tuple[int, int, int]:
    numbers = [_number(one, _MOST) for one in _list(given)]
    if len(numbers) != 3 or min(numbers) < 1:
        raise HeaderError(f"{numbers} is no size")
    return numbers[0], numbers[1], numbers[2]


def _number(given: Any, count: int) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given < count:
        raise HeaderError(
            f"its header has {printable(repr(given)[:40])} where a number below {count} belongs"
        )
    return given


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise HeaderError(f"its header has a {type(given).__name__} where text belongs")
    return printable(given)


def _list(given: Any) -> list[Any]:
    if not isinstance(given, list):
        raise HeaderError(f"its header has a {type(given).__name__} where a list belongs")
    return cast("list[Any]", given)


def _fields(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise HeaderError(f"its header has a {type(given).__name__} where named values belong")
    return cast("dict[str, Any]", given)
