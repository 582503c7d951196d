"""The timeline of a pipeline: when the stages in shared memory are filled, read and free.

A stage is what one mbarrier counts, or what one group of ``cp.async`` writes; its bytes are those of its
copies. Time is the simulator's: thread-instructions executed so far.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simwarp.engine.events import AccessEvent, StageEvent
from simwarp.observe.line_counts import CountingObserver

_UNIT = 4
"""Bytes of the units by which reads are ascribed to a stage."""
_COLUMNS = 72
_NONE = -1


@dataclass
class Turn:
    """One turn of a stage: its copies, and the reads of the copied bytes. Times are -1 for never."""

    stage: str
    issued: int  # the first copy began
    filled: int = _NONE  # a wait for the last copy ended
    read_from: int = _NONE  # the first read
    read_to: int = _NONE  # the last read
    bytes: int = 0

    @property
    def end(self) -> int:
        """The time of the turn's last copy or read."""
        return max(self.issued, self.filled, self.read_to)


class Pipeline(CountingObserver):
    """Records the turns of the stages of block ``block``, in the order of their first copies.

    See ``examples/pipelines``.
    """

    block = 0

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self._open: dict[str, Turn] = {}
        self._units: dict[str, list[npt.NDArray[np.int64]]] = {}
        self._turn_of = np.zeros(0, np.int64)
        """For each unit of the block's shared memory, the index of the turn that wrote it, or -1."""

    def on_stage(self, event: StageEvent) -> None:
        """Begin a turn, or note that its copies have ended."""
        if event.block != self.block:
            return
        now, key = int(event.chunk.executed), event.stage
        if event.moment == "read":
            self._read_by_product(event, now)
            return
        turn = self._open.get(key)
        if event.moment == "issued":
            if turn is None or turn.filled != _NONE:
                turn = self._open[key] = Turn(key, now)
                self.turns.append(turn)
                self._units[key] = []
            self._write(turn, event)
        elif turn is not None:
            turn.filled = now

    def _read_by_product(self, event: StageEvent, now: int) -> None:
        units = _units(event.addresses, event.width)
        self.read(units[units < self._turn_of.size], now)

    def _write(self, turn: Turn, event: StageEvent) -> None:
        turn.bytes += event.addresses.size * event.width
        units = _units(event.addresses, event.width)
        if not units.size:
            return
        if int(units.max()) >= self._turn_of.size:
            grown = np.full(int(units.max()) + 1, _NONE)
            grown[: self._turn_of.size] = self._turn_of
            self._turn_of = grown
        self._turn_of[units] = self.turns.index(turn)
        self._units[event.stage].append(units)
        if not turn.stage.startswith("mbarrier"):
            turn.stage = f"bytes from {_UNIT * min(int(part.min()) for part in self._units[event.stage])}"

    def on_access(self, event: AccessEvent) -> None:
        """Ascribe reads of shared memory to the turns that copied the bytes."""
        if event.space != "shared" or not self.turns or event.kind != "load":
            return
        blocks = event.chunk.block[event.lanes // 32, 0]
        units = _units(event.addresses[blocks == self.block], event.width)
        self.read(units[units < self._turn_of.size], int(event.chunk.executed))

    def read(self, units: npt.NDArray[np.int64], now: int) -> None:
        """Record reads of units of shared memory at a time."""
        indices: list[int] = np.unique(self._turn_of[units]).tolist()
        for index in indices:
            if index != _NONE:
                turn = self.turns[index]
                turn.read_from = now if turn.read_from == _NONE else turn.read_from
                turn.read_to = now

    # ---- pictures ------------------------------------------------------------------------------------

    def cells(self, columns: int = _COLUMNS) -> dict[str, str]:
        """A row for each stage: ``.`` free, ``~`` a copy in flight, ``=`` filled, ``#`` between its reads."""
        if not self.turns:
            return {}
        first, last = self.turns[0].issued, max(turn.end for turn in self.turns) + 1
        scale = columns / max(1, last - first)
        rows: dict[str, list[str]] = {}
        for turn in self.turns:
            row = rows.setdefault(turn.stage, ["."] * columns)
            filled = turn.filled if turn.filled != _NONE else turn.end
            parts = [("~", turn.issued, filled), ("=", filled, max(filled, turn.read_from))]
            if turn.read_from != _NONE:
                parts.append(("#", turn.read_from, turn.read_to))
            for sign, begin, end in parts:
                left, right = int((begin - first) * scale), int((end - first) * scale)
                right = min(max(right, left + (sign != "=")), columns)
                row[left:right] = sign * (right - left)
        return {stage: "".join(row) for stage, row in rows.items()}

    def to_text(self) -> str:
        """The timeline as text, one line for each stage."""
        from simwarp.draw.report import to_text

        return to_text({"pipeline": self.to_json()})

    def to_svg(self, columns: int = 2 * _COLUMNS) -> str:
        """The timeline as one self-contained SVG element."""
        from simwarp.draw.pipeline import timeline
        from simwarp.draw.svg import to_svg

        return to_svg(timeline(self.cells(columns)))

    def to_json(self) -> dict[str, Any]:
        """The turns, and the rows of the timeline, as plain data."""
        turns = [asdict(turn) for turn in self.turns]
        return {"block": self.block, "turns": turns, "rows": self.cells()}


def _units(addresses: npt.NDArray[np.uint64], width: int) -> npt.NDArray[np.int64]:
    """The units that hold the bytes of accesses, each once."""
    pieces = np.arange(0, max(width, 1), _UNIT, dtype=np.int64)
    return np.unique((addresses.astype(np.int64)[:, None] + pieces) // _UNIT)
