"""Source locations of instructions: the directives ``.file`` and ``.loc``.

Source: PTX ISA 9.0, sections 11.5.3 (``.file``) and 11.5.4 (``.loc``).
"""

from __future__ import annotations

from functools import cached_property
from typing import TypeAlias

from simwarp.ptx.grammar.constants import number
from simwarp.ptx.grammar.tokens import Cursor
from simwarp.ptx.mangled_names import readable
from simwarp.ptx.syntax import SourceLine

_Place: TypeAlias = tuple[str, int, int]
"""The number of a file, a line and a column."""


class Locations:
    """The files of a module, and the source lines read so far.

    Code from CUDA's own headers is attributed to the line where it was inlined, also through several headers.
    """

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.files = _files(cursor.texts)
        self.inlined: dict[_Place, SourceLine | None] = {}

    def read(self) -> SourceLine | None:
        """Read the source line after ``.loc``; None for code without a line."""
        cursor, place, caller, function = self.cursor, self._place(), None, ""
        while cursor.accept(","):
            attribute = cursor.name()
            if attribute == "function_name":
                function = self._function()
            elif attribute == "inlined_at":
                caller = self._place()
            else:
                cursor.at -= 1
                raise cursor.error("expected function_name or inlined_at")
        if caller is None:
            return self._line(place)
        outer = self.inlined.get(caller) or self._line(caller)
        of_cuda = "include/" in self.files.get(place[0], "")
        self.inlined[place] = line = outer if of_cuda else self._line(place, function, outer)
        return line

    def _function(self) -> str:
        """Read the name of an inlined function: a label of the debug strings, and an offset."""
        label, offset = self.cursor.name(), 0
        if self.cursor.accept("+"):
            offset = number(self.cursor)
        name = self._strings.get(label, b"")[offset:].partition(b"\0")[0].decode(errors="replace")
        return readable(name)

    def _place(self) -> _Place:
        return str(number(self.cursor)), number(self.cursor), number(self.cursor)

    def _line(self, place: _Place, function: str = "", caller: SourceLine | None = None) -> SourceLine | None:
        file, line, column = place
        return SourceLine(self.files.get(file, ""), line, column, function, caller) if line else None

    @cached_property
    def _strings(self) -> dict[str, bytes]:
        """Label → the zero-terminated string after it, from the debug sections."""
        texts, data = self.cursor.texts, dict[str, bytearray]()
        at = texts.index(".debug_str") if ".debug_str" in texts else len(texts)
        string = bytearray()
        for text, following in zip(texts[at:], texts[at + 1 :], strict=False):
            if text == "}":
                break
            if following == ":":
                string = data[text] = bytearray()
            elif text.isdigit() and int(text) < 256:
                string.append(int(text))
        return {label: bytes(string) for label, string in data.items()}


def skip_file(cursor: Cursor) -> None:
    """Skip a ``.file`` directive, which `Locations` has already read at the end of the module."""
    number(cursor)
    cursor.string()
    while cursor.accept(","):
        number(cursor)


def _files(texts: list[str]) -> dict[str, str]:
    """File number → file name, from all ``.file`` directives."""
    at = [i for i, text in enumerate(texts) if text == ".file"]
    return {texts[i + 1]: texts[i + 2].strip('"') for i in at if i + 2 < len(texts)}
