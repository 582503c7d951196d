"""Base of `BankConflicts` and `Sectors`: counters of memory accesses by line, opcode and kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Generic, TypeVar

from simwarp.engine.events import AccessEvent
from simwarp.observe.line_counts import CountingObserver, Counts, LineTable, line_of

C = TypeVar("C", bound=Counts)


class AccessCounts(CountingObserver, Generic[C]):
    """Counts the accesses to one state space; ``counts["bmm.cu:42"]`` is a line's value of field ``column``.

    ``opcodes`` and ``kinds`` hold the counts by opcode and by kind of access.
    """

    def __init__(self, space: str, kind: type[C], column: str) -> None:
        self.space, self._kind, self._column = space, kind, column
        self._table = LineTable(kind, f"accesses to {space} memory")
        self.opcodes: dict[str, C] = {}
        self.kinds: dict[str, C] = {}

    def count(self, event: AccessEvent) -> C:
        """The counters of one access."""
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

    def counts(self, line: str) -> C:
        """The counters of a line."""
        return self._table[line]

    @property
    def total(self) -> int:
        """The total over all lines."""
        return getattr(self._table.total, self._column)

    def to_json(self) -> dict[str, Any]:
        """The counts by line and by opcode, and the total, as plain data."""
        opcodes = {opcode: asdict(counts) for opcode, counts in sorted(self.opcodes.items())}
        return {**self._table.to_json(), "opcodes": opcodes}
