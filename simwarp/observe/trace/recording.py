"""What a trace recorded, warp by warp."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from simwarp.observe.trace.code import TracedInstruction
from simwarp.observe.trace.record import NO_INSTRUCTION, Access, Record, Written
from simwarp.observe.trace.rows import KINDS, SPACES, Bytes, Rows, gather, starts, take
from simwarp.observe.trace.selection import Block, TraceError, block_index, block_number
from simwarp.observe.trace.table import table

_STEP, _BARRIER, _FAULT = KINDS.index("step"), KINDS.index("barrier"), KINDS.index("fault")
_NAMED = 8


@dataclass(frozen=True)
class TracedLaunch:
    """One launch: ``code`` is the number of its kernel's instructions among those of the recording."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    code: int


@dataclass(frozen=True, eq=False)
class Recording:
    """What was recorded, by launch, block and warp, each warp's steps in its own order.

    So it does not depend on how the executor mixed the warps of a launch.

    Attributes
    ----------
    rows : (rows,) of `simwarp.observe.trace.rows.ROW`
    data : (bytes,) uint8
        What belongs to the rows, one behind the other.
    launches : list of TracedLaunch
    codes : list of list of TracedInstruction
        The instructions of each kernel.
    faults : list of str
        What each fault said.
    selection : dict
        What was taken in, as plain data.

    Examples
    --------
    See `simwarp.observe.trace.Trace`. A recording of nothing has no warps:

    >>> from simwarp.observe.trace import Trace
    >>> Trace().recording().warp(0, 0)
    Traceback (most recent call last):
    ...
    simwarp.observe.trace.selection.TraceError: nothing was recorded of launch 0, block 0, warp 0
    no launch was traced
    """

    rows: Rows
    data: Bytes
    launches: list[TracedLaunch]
    codes: list[list[TracedInstruction]]
    faults: list[str]
    selection: dict[str, Any]

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:
        """(rows + 1,): where the data of each row starts."""
        return starts(self.rows)

    @cached_property
    def warps(self) -> dict[tuple[int, int, int], slice]:
        """The rows of each warp, by the numbers of launch, block and warp."""
        rows = self.rows
        new = np.zeros(rows.size, np.bool_)
        new[:1] = True
        for name in ("launch", "block", "warp"):
            new[1:] |= rows[name][1:] != rows[name][:-1]
        first = np.flatnonzero(new)
        keys = zip(*(rows[name][first].tolist() for name in ("launch", "block", "warp")), strict=True)
        ends = [*first.tolist(), rows.size][1:]
        return {key: slice(at, end) for key, at, end in zip(keys, first.tolist(), ends, strict=True)}

    def block_of(self, launch: int, number: int) -> tuple[int, int, int]:
        """The place of a block in the grid of a launch."""
        return block_index(number, self.launches[launch].grid)

    def find(self, block: Block, warp: int, launch: int = 0) -> tuple[int, int, int]:
        """The numbers of a warp that was recorded.

        Raises
        ------
        TraceError
            If nothing was recorded of it.
        """
        if 0 <= launch < len(self.launches):
            key = launch, block_number(block, self.launches[launch].grid), warp
            if key in self.warps:
                return key
        had = [f"block {b}, warp {w}" for at, b, w in self.warps if at == launch]
        count = len(self.launches)
        known = f"{count} launches were traced, from 0 on" if count else "no launch was traced"
        if had:
            known = (
                "of this launch there are " + "; ".join(had[:_NAMED]) + ("; …" if len(had) > _NAMED else "")
            )
        raise TraceError(f"nothing was recorded of launch {launch}, block {block}, warp {warp}\n{known}")

    def warp(self, block: Block, warp: int, launch: int = 0) -> list[Record]:
        """What a warp did, in its order.

        Parameters
        ----------
        block : int or (x, y, z)
        warp : int
            In its block.
        launch : int
            Among those that were traced.

        Raises
        ------
        TraceError
            If nothing was recorded of it.
        """
        return list(self.records(self.find(block, warp, launch)))

    def records(self, key: tuple[int, int, int]) -> Iterator[Record]:
        """The records of a warp by its numbers, see `warps`."""
        number, before = 0, list[Access]()
        code = self.codes[self.launches[key[0]].code]
        place = self.warps[key]
        instruction = NO_INSTRUCTION
        for i in range(place.start, place.stop):
            row = self.rows[i]
            kind, step, mask = int(row["kind"]), int(row["step"]), int(row["mask"])
            if kind in (_BARRIER, _FAULT):
                message = self.faults[step] if kind == _FAULT else ""
                yield Record(KINDS[kind], number, NO_INSTRUCTION, mask, message=message)
                continue
            instruction = code[step]
            if kind != _STEP:
                before.append(self._access(i))
                continue
            yield Record("step", number, instruction, mask, self._written(i, instruction), before)
            number, before = number + 1, []
        if before:
            yield Record("stopped", number, instruction, before[0].mask, [], before)

    def _access(self, i: int) -> Access:
        row = self.rows[i]
        addresses = self.row_data(i).view("<u8")
        kind, space = KINDS[int(row["kind"])], SPACES[int(row["space"])]
        return Access(kind, space, int(row["mask"]), int(row["width"]), addresses)

    def _written(self, i: int, instruction: TracedInstruction) -> list[Written]:
        if not self.rows[i]["item"]:
            return []
        layout = instruction.layout
        words = self.row_data(i).view(layout)
        fields = zip(instruction.registers, layout.names or (), strict=True)
        return [Written(name, kind, words[field]) for (name, kind), field in fields]

    def instruction(self, i: int) -> TracedInstruction | None:
        """The instruction that a row belongs to; a barrier or fault has none."""
        row = self.rows[i]
        if int(row["kind"]) in (_BARRIER, _FAULT):
            return None
        return self.codes[self.launches[int(row["launch"])].code][int(row["step"])]

    def rows_of(self, key: tuple[int, int, int]) -> npt.NDArray[np.int64]:
        """The numbers of a warp's rows; none if nothing was recorded of it."""
        place = self.warps.get(key, slice(0, 0))
        return np.arange(int(place.start), int(place.stop), dtype=np.int64)

    def steps_before(self, key: tuple[int, int, int], i: int) -> int:
        """How many steps a warp had executed before one of its rows."""
        return int(np.count_nonzero(self.rows["kind"][self.warps[key].start : i] == _STEP))

    def words(self, rows: npt.NDArray[np.int64], lane: int | None = None) -> Bytes:
        """The data of rows, one behind the other; of one lane, if it is given, which all of them have."""
        if lane is None:
            return take(self.data, self.starts, rows)
        items: npt.NDArray[np.int64] = self.rows["item"][rows].astype(np.int64)
        before = np.bitwise_count(self.rows["mask"][rows] & np.uint32((1 << lane) - 1))
        begins = self.starts[rows] + before * items
        return gather(self.data, begins, items)

    def row_data(self, i: int) -> Bytes:
        """The bytes that belong to a row."""
        return self.data[self.starts[i] : self.starts[i + 1]]

    def to_text(
        self,
        block: Block = 0,
        warp: int = 0,
        launch: int = 0,
        *,
        lanes: tuple[int, ...] = (),
        lines: tuple[str | int, ...] = (),
    ) -> str:
        """A warp's steps as a table.

        Parameters
        ----------
        block, warp, launch
            See `warp`.
        lanes : sequence of int
            Those whose values are shown; else the first few that executed a step.
        lines : sequence
            Only steps of these lines, as for `Trace`.
        """
        key = self.find(block, warp, launch)
        return table(self, key, lanes, lines)
