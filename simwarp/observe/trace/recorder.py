"""`Trace`, the observer that records the events of launches."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from simwarp.engine.events import AccessEvent, Observer
from simwarp.faults import KernelFault
from simwarp.lanes import LANE, WARP_SIZE, mask_word
from simwarp.observe.trace.io import save
from simwarp.observe.trace.model import (
    ADDRESS_BYTES,
    KINDS,
    ROW,
    SPACES,
    Block,
    Record,
    Recording,
    TracedLaunch,
    TraceError,
    block_number,
    gather,
    lengths,
)
from simwarp.observe.trace.registers import StepReader, readers

if TYPE_CHECKING:
    from simwarp.engine.events import Chunk, Launch, Mask
    from simwarp.program.program import Program, Step

_LIMIT = 256 << 20
_MOST = {"lanes": WARP_SIZE, "warps": 32}


class Trace(Observer):
    """Records the steps of every warp: lanes, written values, memory accesses, barriers and faults.

    Parameters
    ----------
    blocks : list of int or (x, y, z), optional
        Record only these blocks; None records all.
    warps, lanes : list of int, optional
        Record only these warps of each block, and these lanes of each warp.
    kernels : list of str, optional
        Record only kernels whose names contain one of these texts.
    lines : list of int or str, optional
        Record only instructions of these lines: 17 of the PTX, or "mm.cu:42" of the source.
    registers, memory : bool
        Whether to record the values of registers, and the accesses to memory.
    limit : int
        The largest size of the trace in bytes.

    Raises
    ------
    TraceError
        For a wrong argument; during a launch, if the trace reaches its limit.

    Examples
    --------
    >>> import numpy as np
    >>> import simwarp
    >>> trace = Trace(warps=[0])
    >>> device = simwarp.Device(observers=[trace])
    >>> kernel = device.load('''.version 9.0
    ... .target sm_90
    ... .visible .entry scale(.param .u64 data) {
    ...     .reg .b32 %r<3>; .reg .b64 %a<3>;
    ...     ld.param.u64 %a1, [data]; mov.u32 %r1, %laneid; mul.wide.u32 %a2, %r1, 4;
    ...     add.u64 %a1, %a1, %a2;
    ...     ld.global.u32 %r2, [%a1];
    ...     mul.lo.u32 %r2, %r2, 3;
    ...     st.global.u32 [%a1], %r2; ret; }
    ... ''').kernel("scale")
    >>> kernel((1, 1, 1), (2, 1, 1), device.upload(np.array([5, 7], np.uint32)))
    >>> record = trace.warp(block=0, warp=0)[5]
    >>> record.instruction.text, record.lanes, record.value("%r2", lane=1)
    ('mul.lo.u32 %r2, %r2, 3;', [0, 1], 21)
    """

    def __init__(
        self,
        *,
        blocks: Iterable[Block] | None = None,
        warps: Iterable[int] | None = None,
        lanes: Iterable[int] | None = None,
        kernels: Iterable[str] | None = None,
        lines: Iterable[str | int] | None = None,
        registers: bool = True,
        memory: bool = True,
        limit: int = _LIMIT,
    ) -> None:
        lists = {"blocks": blocks, "warps": warps, "lanes": lanes, "kernels": kernels, "lines": lines}
        self.selection: dict[str, Any] = {name: _checked(name, given) for name, given in lists.items()}
        self.selection |= {"registers": bool(registers), "memory": bool(memory)}
        self.limit = limit
        chosen = self.selection["lanes"]
        self._lanes = np.isin(LANE, range(WARP_SIZE) if chosen is None else chosen)
        self.clear()

    def clear(self) -> None:
        """Discard all records of the trace."""
        self._rows, self._data = bytearray(), bytearray()
        self._launches: list[TracedLaunch] = []
        self._faults: list[str] = []
        self._codes: dict[int, tuple[Program, int, list[StepReader]]] = {}
        self._launch: Launch | None = None
        self._chunk: weakref.ref[Chunk] | None = None
        self._recording: Recording | None = None

    # ---- events --------------------------------------------------------------------------------------

    def on_launch(self, launch: Launch) -> None:
        """Begin to record a launch, if its kernel is selected."""
        self._launch = self._chunk = None
        program, chosen = launch.program, self.selection
        if chosen["kernels"] is not None and not any(part in program.name for part in chosen["kernels"]):
            return
        if id(program) not in self._codes:  # _codes keeps the program alive, so that its id stays unique
            self._codes[id(program)] = program, len(self._codes), readers(program)
        _, code, self._readers = self._codes[id(program)]
        self._launch = launch
        lines = chosen["lines"]
        self._chosen_steps = [
            lines is None or any(map(reader.instruction.stands_at, lines)) for reader in self._readers
        ]
        self._blocks = [block_number(block, launch.grid) for block in chosen["blocks"] or ()]
        self._launches.append(TracedLaunch(program.name, launch.grid, launch.block, code))
        self._recording = None

    def on_step(self, chunk: Chunk, step: Step, mask: Mask) -> None:
        """Record the lanes of a step and the registers that they wrote."""
        if self._launch is None or not self._chosen_steps[step.number]:
            return
        rows, mask = self._chosen(chunk, mask)
        if rows.size:
            reader = self._readers[step.number]
            item, data = reader.read(chunk, rows, mask) if self.selection["registers"] else (0, b"")
            self._add("step", chunk, rows, mask, data, step=step.number, item=item)

    def on_access(self, event: AccessEvent) -> None:
        """Record the addresses of a memory access by lanes; a row has one address for each lane."""
        number, chunk = event.step.number, event.chunk
        if (
            event.unit != "lanes"
            or self._launch is None
            or not self.selection["memory"]
            or not self._chosen_steps[number]
        ):
            return
        mask, addresses = (np.zeros((chunk.warps, WARP_SIZE), dtype) for dtype in (np.bool_, "<u8"))
        mask.reshape(-1)[event.lanes] = True
        addresses.reshape(-1)[event.lanes] = event.addresses
        rows, mask = self._chosen(chunk, mask)
        if rows.size:
            data, space = addresses[rows][mask].tobytes(), SPACES.index(event.space)
            about = {"step": number, "item": ADDRESS_BYTES, "width": event.width, "space": space}
            self._add(event.kind, chunk, rows, mask, data, **about)

    def on_barrier(self, chunk: Chunk, mask: Mask) -> None:
        """Record that the lanes of ``mask`` passed a barrier."""
        if self._launch is not None:
            rows, mask = self._chosen(chunk, mask)
            if rows.size:
                self._add("barrier", chunk, rows, mask, b"", step=-1)

    def on_fault(self, fault: KernelFault) -> None:
        """Record a fault in the rows of its warp."""
        place, launch = fault.place, self._launch
        if launch is None or place.block is None or place.warp is None:
            return
        block = block_number(place.block, launch.grid)
        if self._chosen_warps(block, np.array(place.warp)):
            mask = 0 if place.lane is None else 1 << place.lane
            self._extend(1, "fault", block=block, warp=place.warp, step=len(self._faults), mask=mask)
            self._faults.append(str(fault))

    def on_end(self, launch: Launch) -> None:
        """Drop the reference to the launch, which has ended."""
        self._launch = self._chunk = None

    def _chosen(self, chunk: Chunk, mask: Mask) -> tuple[npt.NDArray[np.intp], Mask]:
        """The selected warps with a lane in the mask, and their lanes: (rows, 32)."""
        if self._chunk is None or self._chunk() is not chunk:
            self._chunk = weakref.ref(chunk)
            self._chunk_mask = self._chosen_warps(chunk.block, chunk.warp_in_block) & self._lanes
        mask = mask & self._chunk_mask
        rows = np.flatnonzero(mask.any(axis=1))
        return rows, mask[rows]

    def _chosen_warps(self, blocks: Any, warps: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        chosen = np.ones(warps.shape, np.bool_)
        if self.selection["blocks"] is not None:
            chosen &= np.isin(blocks, self._blocks)
        if self.selection["warps"] is not None:
            chosen &= np.isin(warps, self.selection["warps"])
        return chosen

    # ---- rows ----------------------------------------------------------------------------------------

    def _add(
        self, kind: str, chunk: Chunk, rows: npt.NDArray[np.intp], mask: Mask, data: bytes, **columns: Any
    ) -> None:
        block, warp = chunk.block[rows, 0], chunk.warp_in_block[rows, 0]
        self._extend(rows.size, kind, block=block, warp=warp, mask=mask_word(mask)[:, 0], **columns)
        self._data += data
        if len(self._rows) + len(self._data) > self.limit:
            count, launches = len(self._rows) // ROW.itemsize, len(self._launches)
            raise TraceError(
                f"the trace has reached its limit of {self.limit} bytes: "
                f"{chunk.place(int(rows[0]) * WARP_SIZE)}\n"
                f"it holds {count} steps, accesses and barriers, of {launches} launches\n"
                "record less with blocks=, warps=, lanes=, kernels=, lines=, registers=False or "
                "memory=False; or raise limit="
            )

    def _extend(self, count: int, kind: str, **columns: Any) -> None:
        rows = np.zeros(count, ROW)
        rows["launch"], rows["kind"] = len(self._launches) - 1, KINDS.index(kind)
        for name, values in columns.items():
            rows[name] = values
        self._rows += rows.tobytes()
        self._recording = None

    # ---- the recording -------------------------------------------------------------------------------

    def recording(self) -> Recording:
        """All records so far, in an order that does not depend on the schedule."""
        if self._recording is None:
            # copy the bytes: a bytearray with a view cannot grow
            rows = np.frombuffer(bytes(self._rows), ROW)
            data = np.frombuffer(bytes(self._data), np.uint8)
            order = np.lexsort((rows["warp"], rows["block"], rows["launch"]))
            sizes = lengths(rows)
            data = gather(data, (np.cumsum(sizes) - sizes)[order], sizes[order])
            codes = [[reader.instruction for reader in code] for _, _, code in self._codes.values()]
            self._recording = Recording(
                rows[order], data, list(self._launches), codes, list(self._faults), self.selection
            )
        return self._recording

    def warp(self, block: Block, warp: int, launch: int = 0) -> list[Record]:
        """The records of a warp, in program order: see `Recording.warp`."""
        return self.recording().warp(block, warp, launch)

    def to_text(self, block: Block = 0, warp: int = 0, launch: int = 0, **options: Any) -> str:
        """The records of a warp as a table: see `Recording.to_text`."""
        return self.recording().to_text(block, warp, launch, **options)

    def save(self, path: Path | str) -> None:
        """Write all records so far to a file: see `simwarp.observe.trace.save`."""
        save(self.recording(), path)


def _checked(name: str, given: Iterable[Any] | None) -> list[Any] | None:
    """A list argument of `Trace` as plain data without duplicates; raises TraceError if it is invalid."""
    if given is None:
        return None
    if isinstance(given, str | int):
        raise TraceError(f"Trace({name}={given!r}): expected a list\ngive {name}=[{given!r}]")
    chosen: list[Any] = list({str(one): one for one in map(_plain, given)}.values())
    for one in chosen:
        if name in _MOST and not 0 <= one < _MOST[name]:
            raise TraceError(
                f"Trace({name}=…): there is no {name[:-1]} {one}\ngive numbers from 0 to {_MOST[name] - 1}"
            )
        if name == "blocks" and isinstance(one, list) and len(cast("list[int]", one)) != 3:
            raise TraceError(
                f"Trace(blocks=…): {one} is not a block\ngive its number, or its index (x, y, z)"
            )
    return chosen


def _plain(one: Any) -> Any:
    """An entry of an argument for JSON: a string unchanged, numbers as Python integers."""
    if isinstance(one, str):
        return one
    return list(map(int, cast("Sequence[Any]", one))) if isinstance(one, Sequence) else int(one)
