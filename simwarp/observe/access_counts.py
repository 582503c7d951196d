"""Base of the observers of memory accesses: counters by source line, opcode and kind of access."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Generic, TypeVar

from simwarp.engine.events import AccessEvent, Observer
from simwarp.observe.line_counts import Counts, LineTable, line_of

C = TypeVar("C", bound=Counts)


class AccessCounts(Observer, Generic[C]):
    """Counts the accesses to one state space; ``counts["bmm.cu:42"]`` is the value of the field ``column``.

    The counts by opcode and by kind of access are in ``opcodes`` and ``kinds``.
    """

    def __init__(self, space: str, kind: type[C], column: str) -> None:
        self.space, self._kind = space, kind
        self._table = LineTable(kind, f"accesses to {space} memory")
        self._lines = self._table.columns[column]
        self.opcodes: dict[str, C] = {}
        self.kinds: dict[str, C] = {}

    def count(self, event: AccessEvent) -> C:
        """The counters of one access."""
        raise NotImplementedError

    def on_access(self, event: AccessEvent) -> None:
        """Count an access to this state space; ignore others."""
        if event.space != self.space or event.lanes.size == 0:
            return
        counts, instruction = self.count(event), event.step.instruction
        self._table.add(line_of(instruction), *vars(counts).values())
        for table, key in ((self.opcodes, instruction.opcode), (self.kinds, event.kind)):
            table[key] = table.get(key, self._kind()) + counts

    def clear(self) -> None:
        """Discard all counters."""
        for table in (self._table, self.opcodes, self.kinds):
            table.clear()

    def __getitem__(self, line: str) -> int:
        return self._lines[line]

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def counts(self, line: str) -> C:
        """The counters of a line."""
        return self._table[line]

    @property
    def total(self) -> int:
        """The total over all lines."""
        return self._lines.total

    def to_json(self) -> dict[str, Any]:
        """Tables by line and by opcode, with the total, as plain data."""
        opcodes = {opcode: asdict(counts) for opcode, counts in sorted(self.opcodes.items())}
        return {**self._table.to_json(), "opcodes": opcodes}
