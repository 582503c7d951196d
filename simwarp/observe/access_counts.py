"""What observers of memory accesses share: their numbers by line, by opcode and by kind of access."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from simwarp.engine.events import AccessEvent, Observer
from simwarp.observe.line_counts import LineCounts, line_of, table_of


class _Counts(Protocol):
    """A dataclass of whole numbers that can be added up, 0 by default."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __add__(self, other: Any) -> Any: ...


C = TypeVar("C", bound=_Counts)


class AccessCounts(Observer, Generic[C]):
    """Counts something about the accesses to one state space; made for `BankConflicts` and `Sectors`.

    Parameters
    ----------
    space : str
        The state space.
    kind : type
        The dataclass of the numbers.
    column : str
        The number that ``counts["bmm.cu:42"]`` and ``total`` mean.

    Attributes
    ----------
    opcodes : dict of str to the numbers
        For each opcode, as it is written in PTX.
    kinds : dict of str to the numbers
        For loads, stores, atomic operations and reductions.

    Examples
    --------
    >>> from simwarp.observe.sectors import SectorCounts
    >>> AccessCounts("global", SectorCounts, "sectors").total
    0
    """

    def __init__(self, space: str, kind: type[C], column: str) -> None:
        self.space, self._kind, self._column = space, kind, column
        names = [field.name for field in fields(kind)]
        self._lines = {name: LineCounts(f"accesses to {space} memory") for name in names}
        self.opcodes: dict[str, C] = {}
        self.kinds: dict[str, C] = {}

    def count(self, event: AccessEvent) -> C:
        """The numbers of one access."""
        raise NotImplementedError

    def on_access(self, event: AccessEvent) -> None:
        """Count an access, if it is one to this space."""
        if event.space != self.space or event.lanes.size == 0:
            return
        counts, instruction = self.count(event), event.step.instruction
        for name, column in self._lines.items():
            column.add(line_of(instruction), getattr(counts, name))
        for table, key in ((self.opcodes, instruction.opcode), (self.kinds, event.kind)):
            table[key] = table.get(key, self._kind()) + counts

    def clear(self) -> None:
        """Forget all numbers."""
        for table in (*self._lines.values(), self.opcodes, self.kinds):
            table.clear()

    def __getitem__(self, line: str) -> int:
        return self._lines[self._column][line]

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines[self._column])

    def counts(self, line: str) -> C:
        """All numbers of a line."""
        return self._kind(**{name: column[line] for name, column in self._lines.items()})

    @property
    def total(self) -> int:
        """The number over all lines."""
        return self._lines[self._column].total

    def to_json(self) -> dict[str, Any]:
        """A table by line, the total, and a table by opcode, as plain data."""
        opcodes = {opcode: asdict(counts) for opcode, counts in sorted(self.opcodes.items())}
        return {**table_of(self._lines), "opcodes": opcodes}
