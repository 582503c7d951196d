"""Messages of faults in a compiler's form: location, kind and event, then the source line with a caret.

A message is lines of pieces, each a text with a style, so that a terminal can show them in colour.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeAlias

from simwarp.places import Caller, Note, Place, abridged

STYLES = {
    "place": "bold",
    "kind": "bold red",
    "note": "bold cyan",
    "what": "bold",
    "caret": "bold green",
    "quiet": "dim",
}
"""Style of a piece → how `rich` shows it."""
_TAB = 4
_LONGEST = 120
"""Most characters of an instruction of PTX in a message."""
_ASSIGNED = re.compile(r"\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)|\s*(?:\+\+|--)")
_OF_REGISTERS = ("registers", "products")
"""Checks whose faults name registers, which only the PTX shows."""

Line: TypeAlias = "list[tuple[str, str]]"
"""Pieces of a line: text and style."""


class Fault(Protocol):
    """The fields of a `simwarp.faults.KernelFault` or a finding that a message shows."""

    @property
    def what(self) -> str:
        """The event that the message reports, without its location."""
        ...

    @property
    def values(self) -> str:
        """The values that prove the fault, such as an index and a size; "" if there are none."""
        ...

    @property
    def advice(self) -> str:
        """The advice that ends the message; "" if there is none."""
        ...

    @property
    def element(self) -> str:
        """The accessed element of an array, such as "x[128]"; "" if it is not known."""
        ...

    @property
    def check(self) -> str:
        """The kind of check that found the fault, such as "bounds"."""
        ...

    @property
    def kind(self) -> str:
        """The kind of fault in words, such as "out of bounds"."""
        ...

    @property
    def severity(self) -> str:
        """Either "error", or "note" for a finding that does not prove a mistake."""
        ...

    @property
    def place(self) -> Place:
        """The location of the event: source line, PTX line and thread."""
        ...

    @property
    def notes(self) -> tuple[Note, ...]:
        """Further places that the message lists, each with a label."""
        ...


class _Quoted(NamedTuple):
    """A line of CUDA C++ or PTX: its number, its text, and the columns of the caret."""

    number: int
    text: str
    start: int = -1
    end: int = -1


def message(fault: Fault, paths: Mapping[str, str] = MappingProxyType({})) -> Iterator[Line]:
    """The lines of a fault's message, without its count; ``paths`` maps names of source files to paths."""
    place, first = fault.place, _location(fault.place, paths)
    head: Line = [(f"{first}: ", "place")] if first else []
    if fault.severity == "note":
        head.append(("note: ", "note"))
    if fault.kind not in fault.what:
        head.append((f"{fault.kind}: ", "kind"))
    yield [*head, (fault.what, "what")]
    array = fault.element.partition("[")[0]
    yield from _excerpt(place, array, _verb(fault.what))
    for line in (_who(place), fault.values):
        if line:
            yield [(f"  {line}", "")]
    for caller in place.callers:
        yield from _call(caller, paths)
    for note in fault.notes:
        yield from _note(fault, note.label, note.place, array, paths)
    if fault.advice:
        yield [("help: ", "note"), (fault.advice, "")]
    helps = fault.check in _OF_REGISTERS or not place.source_text
    if place.source_line is not None and place.text and helps:
        yield [(f"  PTX line {place.line}: {_shortened(place.text)}", "quiet")]


def plain(fault: Fault) -> str:
    """A fault's whole message as text without colours."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in message(fault))


def words_of(name: str) -> str:
    """The kind of a fault, in words: the name of its class.

    >>> words_of("OutOfBounds"), words_of("KernelFault")
    ('out of bounds', 'fault')
    """
    words = re.sub(r"(?<!^)(?=[A-Z])", " ", name).lower()
    return words.removeprefix("kernel ").removesuffix(" fault")


def _note(fault: Fault, label: str, place: Place, array: str, paths: Mapping[str, str]) -> Iterator[Line]:
    """The lines of a second location; its source line only if it differs from the first."""
    same = (place.kernel, place.block, place.thread) == (
        fault.place.kernel,
        fault.place.block,
        fault.place.thread,
    )
    who, first = "the same thread" if same else _who(place, fault.place), _location(place, paths)
    yield [(f"{first}: " if first else "", "place"), (f"{label} ", "note"), (who, "")]
    if _line_of(place) != _line_of(fault.place):
        yield from _excerpt(place, array, _verb(label))


def _line_of(place: Place) -> tuple[str | None, int | None]:
    return place.source_file, place.line if place.source_line is None else place.source_line


def _call(caller: Caller, paths: Mapping[str, str]) -> Iterator[Line]:
    """The lines about a call that leads to the fault's location."""
    where = _source(caller, paths)
    label = "inlined here" if caller.inlined else "called here"
    called = f"{caller.function or 'a function'}() is {label}"
    yield [(f"{where}: " if where else "", "place"), (called, "note")]
    if caller.source_text:
        column = caller.source_column or 0
        line = _untabbed(caller.source_text, column, column + 1)
        yield from _shown(_Quoted(caller.source_line or 0, *line))


def _location(place: Place, paths: Mapping[str, str]) -> str:
    """The first words of a line about a location: file and line, or the line of the PTX."""
    if (where := _source(place, paths)) or place.line is None:
        return where
    return f"PTX line {place.line}" if place.text else f"line {place.line}"


def _source(place: Place | Caller, paths: Mapping[str, str]) -> str:
    if place.source_line is None:
        return ""
    file = place.source_file or ""
    return f"{paths.get(file, file)}:{place.source_line}"


def _who(place: Place, known: Place | None = None) -> str:
    """The thread of a location as text, without the parts that it shares with the location ``known``."""
    parts: list[str] = []
    if place.kernel and (known is None or known.kernel != place.kernel):
        parts.append(f"kernel {abridged(place.kernel)}")
    if place.block is not None and (known is None or known.block != place.block):
        parts.append(f"block {place.block}")
    if place.thread is not None and place.lane is not None:
        parts.append(f"thread {place.thread}")
    if place.warp is not None:
        parts.append(f"warp {place.warp}")
    if place.lane is not None:
        parts.append(f"lane {place.lane}")
    return ", ".join(parts)


def _verb(text: str) -> str:
    """The verb of a text about an access: read or write."""
    return "write" if re.match(r"(?:misaligned )?(?:writ|update|atomic)", text) else "read"


# ---- lines with carets ---------------------------------------------------------------------------------


def _excerpt(place: Place, array: str, verb: str) -> Iterator[Line]:
    """A location's source line, with a caret below the array element, or else below the statement."""
    if place.source_text:
        text = place.source_text
        indent = len(text) - len(text.lstrip())
        column = max(place.source_column, indent + 1) if place.source_column else 0
        start, end = _element(text, array, verb) or (column, column + 1)
        yield from _shown(_Quoted(place.source_line or 0, *_untabbed(text, start, end)))
    elif place.text and place.line is not None and place.source_line is None:
        yield from _shown(_Quoted(place.line, _shortened(place.text)))


def _shortened(text: str) -> str:
    """A PTX instruction, shortened to fit on a line."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1].rstrip()}…"


def _shown(quoted: _Quoted) -> Iterator[Line]:
    yield [(f"{quoted.number:5} | ", "quiet"), (quoted.text, "")]
    if quoted.start >= 0:
        marks = "^" + "~" * (quoted.end - quoted.start - 1)
        yield [("      | ", "quiet"), (" " * quoted.start + marks, "caret")]


def _untabbed(text: str, start: int, end: int) -> tuple[str, int, int]:
    """A line with spaces instead of tabs; columns from 1 on become positions, -1 for an unknown one."""
    shown = text.rstrip().expandtabs(_TAB)
    if not 0 < start <= len(text):
        return shown, -1, -1
    first, last = (len(text[: at - 1].expandtabs(_TAB)) for at in (start, end))
    return shown, first, max(first + 1, last)


def _element(text: str, array: str, verb: str) -> tuple[int, int] | None:
    """The first and end column of ``array[…]`` in a source line; None unless it occurs exactly once."""
    if not array:
        return None
    opened = re.finditer(rf"\b{re.escape(array)}\[", text)
    found = [(at.start() + 1, _closed(text, at.end()) + 1) for at in opened]
    stored = [span for span in found if _ASSIGNED.match(text, span[1] - 1)]
    meant = stored if verb == "write" else [span for span in found if span not in stored]
    meant = meant or found
    return meant[0] if len(meant) == 1 else None


def _closed(text: str, at: int) -> int:
    """The position behind the brackets opened before ``at``, and any brackets that follow directly."""
    depth = 1
    while at < len(text) and (depth or text[at] == "["):
        depth += (text[at] == "[") - (text[at] == "]")
        at += 1
    return at
