"""The observer that records a full trace."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simwarp.engine.events import AccessEvent, Observer
from simwarp.faults import KernelFault
from simwarp.lanes import WARP_SIZE, mask_word
from simwarp.observe.trace.code import StepReader, readers
from simwarp.observe.trace.files import save
from simwarp.observe.trace.record import Record
from simwarp.observe.trace.recording import Recording, TracedLaunch
from simwarp.observe.trace.rows import KINDS, SPACES, GrowingRows, in_order
from simwarp.observe.trace.selection import Block, TraceError, block_number, selection

if TYPE_CHECKING:
    from simwarp.engine.chunk import Chunk, Mask
    from simwarp.engine.launch import Launch
    from simwarp.program.program import Program, Step

_LIMIT = 256 << 20
_ADDRESS = 8


class _Code:
    """The steps of one program: how to read what each wrote."""

    def __init__(self, program: Program, number: int) -> None:
        self.program, self.number = program, number
        self.readers: list[StepReader] = readers(program)
        self.numbers = {id(step): number for number, step in enumerate(program.steps)}


class Trace(Observer):
    """Records what every warp executed: steps, lanes, values written, memory touched, barriers, faults.

    Parameters
    ----------
    blocks : list of int or (x, y, z), optional
        Only these blocks; None takes all of them.
    warps, lanes : list of int, optional
        Only these warps of each block, and these lanes of each warp.
    kernels : list of str, optional
        Only kernels with one of these names; a part of a mangled name is enough.
    lines : list of int or str, optional
        Only instructions of these lines: 17 of the PTX, or "mm.cu:42" of the source.
    registers, memory : bool
        Whether to take the values in registers, and the accesses to memory.
    limit : int
        Bytes that the trace may take.

    Raises
    ------
    TraceError
        At once for a selection that is none; during a launch when the limit is reached.

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
        self.selection = selection(
            blocks=blocks,
            warps=warps,
            lanes=lanes,
            kernels=kernels,
            lines=lines,
            registers=registers,
            memory=memory,
        )
        self.limit = limit
        self._lanes = np.array(
            [self.selection.lane_mask() >> lane & 1 for lane in range(WARP_SIZE)], np.bool_
        )
        self.clear()

    def clear(self) -> None:
        """Forget what was recorded."""
        self._rows = GrowingRows()
        self._launches: list[TracedLaunch] = []
        self._faults: list[str] = []
        self._codes: dict[int, _Code] = {}
        self._launch: Launch | None = None
        self._chunk: weakref.ref[Chunk] | None = None
        self._recording: Recording | None = None

    # ---- events --------------------------------------------------------------------------------------

    def on_launch(self, launch: Launch) -> None:
        """Get ready for a kernel, if it is chosen."""
        self._launch = self._chunk = None
        if not self.selection.takes_kernel(launch.program.name):
            return
        program = launch.program
        if id(program) not in self._codes:
            self._codes[id(program)] = _Code(program, len(self._codes))
        code = self._codes[id(program)]
        self._code, self._launch = code, launch
        self._taken = [self.selection.takes(reader.facts()) for reader in code.readers]
        self._blocks = self.selection.numbers(launch.grid)
        self._launches.append(TracedLaunch(program.name, launch.grid, launch.block, code.number))
        self._recording = None

    def on_step(self, chunk: Chunk, step: Step, mask: Mask) -> None:
        """Take the lanes of a step and what they wrote."""
        if self._launch is None:
            return
        number = self._code.numbers[id(step)]
        rows, mask = self._chosen(chunk, mask)
        if rows.size and self._taken[number]:
            reader = self._code.readers[number]
            item, data = reader.read(chunk, rows, mask) if self.selection.registers else (0, b"")
            self._add("step", chunk, rows, mask, data, step=number, item=item)

    def on_access(self, event: AccessEvent) -> None:
        """Take the addresses of an access to memory."""
        if self._launch is None or not self.selection.memory:
            return
        number = self._code.numbers[id(event.step)]
        chunk = event.chunk
        mask, addresses = (
            np.zeros((chunk.warps, WARP_SIZE), np.bool_),
            np.zeros((chunk.warps, WARP_SIZE), "<u8"),
        )
        mask.reshape(-1)[event.lanes] = True
        addresses.reshape(-1)[event.lanes] = event.addresses
        rows, mask = self._chosen(chunk, mask)
        if rows.size and self._taken[number]:
            data = addresses[rows][mask].tobytes()
            about = {
                "step": number,
                "item": _ADDRESS,
                "width": event.width,
                "space": SPACES.index(event.space),
            }
            self._add(event.kind, chunk, rows, mask, data, **about)

    def on_barrier(self, chunk: Chunk, mask: Mask) -> None:
        """Take that lanes passed a barrier."""
        if self._launch is not None:
            rows, mask = self._chosen(chunk, mask)
            if rows.size:
                self._add("barrier", chunk, rows, mask, b"", step=-1)

    def on_fault(self, fault: KernelFault) -> None:
        """Take what a fault says, at the warp that it was found in."""
        place, launch = fault.place, self._launch
        if launch is None or place.block is None or place.warp is None:
            return
        block = block_number(place.block, launch.grid)
        if not self._takes_warp(block, place.warp):
            return
        mask = 0 if place.lane is None else 1 << place.lane
        about = {"launch": len(self._launches) - 1, "block": block, "warp": place.warp}
        self._rows.extend(1, b"", **about, kind=KINDS.index("fault"), step=len(self._faults), mask=mask)
        self._faults.append(str(fault))
        self._recording = None

    def on_end(self, launch: Launch) -> None:
        """Let go of the launch."""
        self._launch = self._chunk = None

    # ---- what is taken -------------------------------------------------------------------------------

    def _chosen(self, chunk: Chunk, mask: Mask) -> tuple[npt.NDArray[np.intp], Mask]:
        """The warps that are taken and have a lane in the mask, and their lanes: (rows, 32)."""
        if self._chunk is None or self._chunk() is not chunk:
            self._chunk, self._chunk_rows = weakref.ref(chunk), self._rows_of(chunk)
        mask = mask & self._chunk_rows & self._lanes
        rows = np.flatnonzero(mask.any(axis=1))
        return rows, mask[rows]

    def _rows_of(self, chunk: Chunk) -> Mask:
        """(warps, 1): the warps of a chunk that are taken."""
        taken = np.ones((chunk.warps, 1), np.bool_)
        if self.selection.blocks is not None:
            taken &= np.isin(chunk.block, self._blocks)
        if self.selection.warps is not None:
            taken &= np.isin(chunk.warp_in_block, self.selection.warps)
        return taken

    def _takes_warp(self, block: int, warp: int) -> bool:
        chosen = self.selection
        return (chosen.blocks is None or block in self._blocks) and (
            chosen.warps is None or warp in chosen.warps
        )

    def _add(
        self, kind: str, chunk: Chunk, rows: npt.NDArray[np.intp], mask: Mask, data: bytes, **columns: Any
    ) -> None:
        self._recording = None
        self._rows.extend(
            rows.size,
            data,
            launch=len(self._launches) - 1,
            block=chunk.block[rows, 0],
            warp=chunk.warp_in_block[rows, 0],
            mask=mask_word(mask)[:, 0],
            kind=KINDS.index(kind),
            **columns,
        )
        if self._rows.nbytes > self.limit:
            raise self._full(chunk, int(rows[0]) * WARP_SIZE)

    def _full(self, chunk: Chunk, lane: int) -> TraceError:
        held, launches = self._rows.rows().size, len(self._launches)
        return TraceError(
            f"the trace has reached its limit of {self.limit} bytes: {chunk.place(lane)}\n"
            f"it holds {held} steps, accesses and barriers, of {launches} launches\n"
            "trace less: blocks=, warps=, lanes=, kernels=, lines=, registers=False, memory=False; or limit="
        )

    # ---- what was recorded ---------------------------------------------------------------------------

    def recording(self) -> Recording:
        """Everything so far, in an order that does not depend on how warps were scheduled."""
        if self._recording is None:
            rows, data = in_order(self._rows.rows(), self._rows.data)
            codes = [[reader.facts() for reader in code.readers] for code in self._codes.values()]
            chosen = self.selection.to_json()
            self._recording = Recording(rows, data, list(self._launches), codes, list(self._faults), chosen)
        return self._recording

    def warp(self, block: Block, warp: int, launch: int = 0) -> list[Record]:
        """What a warp did, in its order: see `Recording.warp`."""
        return self.recording().warp(block, warp, launch)

    def to_text(self, block: Block = 0, warp: int = 0, launch: int = 0, **options: Any) -> str:
        """A warp's steps as a table: see `Recording.to_text`."""
        return self.recording().to_text(block, warp, launch, **options)

    def save(self, path: Path | str) -> None:
        """Write everything so far to a file: see `simwarp.observe.trace.save`."""
        save(self.recording(), path)
