"""Counters per line of CUDA C++ or PTX, for assertions about a kernel's cost.

>>> from simwarp.ptx.syntax import SourceLine
>>> line_of(Instruction("ret", (), None, 17, "ret", SourceLine("bmm/bmm.cu", 42)))
'bmm/bmm.cu:42'
>>> find_line("bmm.cu:42", ["bmm/bmm.cu:42", "bmm/bmm.cu:43"], "accesses")
'bmm/bmm.cu:42'
>>> sorted_lines(["b.cu:2", "a.cu:10", "a.cu:9"])
['a.cu:9', 'a.cu:10', 'b.cu:2']
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from operator import add
from typing import Any, Generic, Self, TypeVar

from reference.errors import SimwarpError
from simwarp.engine.events import AccessEvent, Observer
from simwarp.ptx.syntax import Instruction

_LISTED = 12
"""The most lines that an error lists."""

_OF_COMPILER = "__nv_nvrtc_builtin_header.h"
"""The header that NVRTC holds: it is part of no package."""


class ReportError(SimwarpError, LookupError):
    """A requested number was not observed; the message names the option or the lines to use."""


class CountingObserver(Observer):
    """Base of the observers of a `simwarp.observe.Report`."""

    def clear(self) -> None:
        """Reset all counters."""
        vars(self).update(vars(type(self)()))

    def to_json(self) -> dict[str, Any]:
        """The counters as a JSON object."""
        raise NotImplementedError


def line_of(instruction: Instruction) -> str:
    """The key of an instruction's line: "bmm/bmm.cu:42" with line information, else "ptx:17".

    Code that the compiler's own header inlines, such as a read of a texture, counts for the line that calls
    it.
    """
    source = instruction.source
    while source is not None and source.file == _OF_COMPILER and source.caller is not None:
        source = source.caller
    return f"ptx:{instruction.line}" if source is None else f"{source.file}:{source.line}"


def find_line(line: str, known: Collection[str], what: str) -> str:
    """The known line that a key, with or without folders, names; raises ReportError unless it is unique."""
    if line in known:
        return line
    found = [key for key in known if key.endswith(f"/{line}")]
    if len(found) == 1:
        return found[0]
    if found:
        raise ReportError(
            f"{line} is ambiguous\nit matches {_listed(found)}\ngive more of the path, as one of these"
        )
    raise ReportError(
        f"no {what} at {line}\nthere were some at {_listed(known) or 'no line'}\n"
        f"ask for one of these lines, or launch a kernel that executes {line}"
    )


class LineCounts:
    """A number for each line; lines without a counted event are absent, not 0.

    Instructions without line information are counted by their PTX line. If kernels of several PTX texts ran,
    line 17 of all of them shares one number.

    Parameters
    ----------
    what : str
        The counted events, for error messages: "shared-memory accesses".

    Attributes
    ----------
    total : int
        The sum over all lines.

    Examples
    --------
    >>> conflicts = LineCounts("shared-memory accesses")
    >>> conflicts.add("bmm/bmm.cu:42", 3); conflicts.add("bmm/bmm.cu:42", 1); conflicts.add("bmm/bmm.cu:7", 0)
    >>> conflicts["bmm.cu:42"], conflicts["bmm.cu:7"], conflicts.total, list(conflicts)
    (4, 0, 4, ['bmm/bmm.cu:7', 'bmm/bmm.cu:42'])
    """

    def __init__(self, what: str = "events") -> None:
        self.what = what
        self._counts: dict[str, int] = {}

    def add(self, line: str, count: int = 1) -> None:
        """Add to a line's number; a ``count`` of 0 adds the line itself."""
        self._counts[line] = self._counts.get(line, 0) + int(count)

    def __getitem__(self, line: str) -> int:
        return self._counts[find_line(line, self._counts, self.what)]

    def __contains__(self, line: str) -> bool:
        try:
            find_line(line, self._counts, self.what)
        except ReportError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(sorted_lines(self._counts))

    def __len__(self) -> int:
        return len(self._counts)

    @property
    def total(self) -> int:
        """The sum of the numbers of all lines."""
        return sum(self._counts.values())

    def clear(self) -> None:
        """Reset the numbers of all lines."""
        self._counts.clear()

    def to_json(self) -> dict[str, int]:
        """Source line → its count, as a JSON object."""
        return {line: self._counts[line] for line in self}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.what!r}, {self.to_json()})"


@dataclass(frozen=True)
class Counts:
    """Base of dataclasses of integer counters; + adds field by field."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*map(add, vars(self).values(), vars(other).values()))


T = TypeVar("T", bound=Counts)


class LineTable(Generic[T]):
    """A dataclass of counters for each line; lines without a counted event are absent.

    >>> from simwarp.observe.banks import BankCounts
    >>> table = LineTable(BankCounts, "accesses")
    >>> table.add("bmm/bmm.cu:42", BankCounts(1, 4, 3))
    >>> table["bmm.cu:42"]
    BankCounts(requests=1, wavefronts=4, conflicts=3)
    """

    def __init__(self, kind: type[T], what: str) -> None:
        self.kind, self.what = kind, what
        self._counts: dict[str, T] = {}

    def add(self, line: str, counts: T) -> None:
        """Add counts to the counters of a source line."""
        self._counts[line] = self._counts.get(line, self.kind()) + counts

    def __getitem__(self, line: str) -> T:
        return self._counts[find_line(line, self._counts, self.what)]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted_lines(self._counts))

    @property
    def total(self) -> T:
        """The counters summed over all source lines."""
        return sum(self._counts.values(), self.kind())

    def to_json(self) -> dict[str, Any]:
        """The table as plain data: ``{"lines": {line: {column: number}}, "total": {column: number}}``."""
        return {"lines": {line: asdict(self._counts[line]) for line in self}, "total": asdict(self.total)}


class AccessCounts(CountingObserver, Generic[T]):
    """Counts the accesses to one state space; ``counts["bmm.cu:42"]`` is the main counter of a line.

    ``opcodes`` and ``kinds`` hold the counts by opcode and by kind of access.
    """

    def __init__(self, space: str, kind: type[T], column: str) -> None:
        self.space, self._kind, self._column = space, kind, column
        self._table = LineTable(kind, f"accesses to {space} memory")
        self.opcodes: dict[str, T] = {}
        self.kinds: dict[str, T] = {}

    def count(self, event: AccessEvent) -> T:
        """The counts of one memory access, which are added to those of its line."""
        raise NotImplementedError

    def on_access(self, event: AccessEvent) -> None:
        """Count an access to this state space; ignore other accesses."""
        if event.space != self.space or event.lanes.size == 0:
            return
        counts, instruction = self.count(event), event.step.instruction
        self._table.add(line_of(instruction), counts)
        for table, key in ((self.opcodes, instruction.opcode), (self.kinds, event.kind)):
            table[key] = table.get(key, self._kind()) + counts

    def __getitem__(self, line: str) -> int:
        return getattr(self._table[line], self._column)

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def counts(self, line: str) -> T:
        """The counters of a source line."""
        return self._table[line]

    @property
    def total(self) -> int:
        """The counted number summed over all source lines."""
        return getattr(self._table.total, self._column)

    def to_json(self) -> dict[str, Any]:
        """The counts by line and by opcode, and the total, as plain data."""
        opcodes = {opcode: asdict(counts) for opcode, counts in sorted(self.opcodes.items())}
        return {**self._table.to_json(), "opcodes": opcodes}


def sorted_lines(lines: Iterable[str]) -> list[str]:
    """Line keys ("mm.cu:42") sorted by file, then by line number."""

    def order(line: str) -> tuple[str, int]:
        file, _, number = line.rpartition(":")
        return file, int(number)

    return sorted(lines, key=order)


def listed(texts: Sequence[str], most: int) -> str:
    """The first ``most`` texts, and the number of the others: "a, b and 3 more"."""
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more} more" if more > 0 else "")


def _listed(lines: Collection[str]) -> str:
    return listed(sorted_lines(lines), _LISTED)
