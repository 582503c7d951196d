"""The lines of CUDA C++ that instructions come from: ``.file`` and ``.loc``.

Source: PTX ISA 9.0, sections 11.5.3 (``.file``) and 11.5.4 (``.loc``).
"""

from __future__ import annotations

from typing import TypeAlias

from simwarp.ptx.grammar.constants import number
from simwarp.ptx.grammar.tokens import Cursor
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
        cursor, place, caller = self.cursor, self._place(), None
        while cursor.accept(","):
            attribute = cursor.name()
            if attribute == "function_name":
                cursor.name()
                if cursor.accept("+"):
                    number(cursor)
            elif attribute == "inlined_at":
                caller = self._place()
            else:
                cursor.at -= 1
                raise cursor.error("expected function_name or inlined_at")
        if caller is None or "include/" not in self.files.get(place[0], ""):
            return self._line(place)
        self.inlined[place] = line = self.inlined.get(caller) or self._line(caller)
        return line

    def _place(self) -> _Place:
        return str(number(self.cursor)), number(self.cursor), number(self.cursor)

    def _line(self, place: _Place) -> SourceLine | None:
        file, line, _ = place
        return SourceLine(self.files.get(file, ""), line) if line else None


def skip_file(cursor: Cursor) -> None:
    """Skip a ``.file``: `Locations` has read all of them before, as they are at the end of a module."""
    number(cursor)
    cursor.string()
    while cursor.accept(","):
        number(cursor)


def _files(texts: list[str]) -> dict[str, str]:
    """File number → file name, from all ``.file`` directives."""
    at = [i for i, text in enumerate(texts) if text == ".file"]
    return {texts[i + 1]: texts[i + 2].strip('"') for i in at if i + 2 < len(texts)}
