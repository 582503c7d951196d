"""The state of the warps that are in flight: whole blocks, all their registers and their lanes.

A register is one value for all lanes of the chunk: an array of unsigned words (bool for a
predicate) that broadcasts to (warps, 32). Where all lanes agree it may stay a single number, and
where the lanes of each warp agree a column of shape (warps, 1): loop counters and pointers then
cost next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simwarp.faults import KernelFault, Place, UninitialisedRegister
from simwarp.lanes import LANE, WARP_SIZE
from simwarp.memory import Memory
from simwarp.ptx.program import Program, Step

if TYPE_CHECKING:
    from simwarp.ptx.execute import Launch

Mask = npt.NDArray[np.bool_]


class Chunk:
    """Blocks ``first … first + blocks - 1`` of a launch, their warps in order.

    Attributes
    ----------
    live : (warps, 32) bool
        The lanes that exist and have not exited.
    mask : (warps, 32) bool
        The lanes that execute the current step.
    active : mask, or None if it holds everywhere
        For operations that take all 32 lanes faster.
    alone : bool
        Whether the current lanes are all that are live: what they write may then replace a
        register whole, since nobody can read the others' part.
    executed : int
        Thread-instructions so far.
    """

    def __init__(self, launch: Launch, first: int, blocks: int) -> None:
        self.launch, self.first, self.blocks = launch, first, blocks
        self.program: Program = launch.program
        self.warps_per_block = -(-launch.threads // WARP_SIZE)
        self.warps = blocks * self.warps_per_block
        thread = np.arange(self.warps_per_block * WARP_SIZE) < launch.threads
        self.live: Mask = np.tile(thread.reshape(-1, WARP_SIZE), (blocks, 1))
        self.registers: list[Any] = [None] * len(self.program.registers)
        self.partial: dict[int, Mask] = {}
        """The lanes for which a register is defined, for those not defined everywhere."""
        self.shared = Memory("shared", 0)
        self.shared_stride = -(-launch.shared_size // 16) * 16
        if launch.shared_size:
            # One window behind the other; `Launch` checks each access against its window first.
            self.shared.allocate(
                self.shared_stride * blocks, f"shared memory of kernel {launch.program.name}"
            )
        self.executed = 0
        self.step: Step = self.program.steps[0]
        self._special: dict[str, Any] = {}
        self.enter(self.live, alone=True)

    # ---- which lanes execute -----------------------------------------------------------------------

    def enter(self, mask: Mask, alone: bool) -> None:
        """Let these lanes execute from now on."""
        self.mask, self.alone = mask, alone
        self.count = int(np.count_nonzero(mask))
        self.active = None if self.count == mask.size else mask

    # ---- registers ---------------------------------------------------------------------------------

    def write(self, slot: int, value: Any) -> None:
        """Give the executing lanes of a register their value."""
        if self.alone:
            self.registers[slot] = value
            if slot in self.partial:
                del self.partial[slot]
            return
        old = self.registers[slot]
        if old is None:
            self.registers[slot], self.partial[slot] = value, self.mask
            return
        if slot in self.partial:
            defined = self.partial[slot] | self.mask
            self.partial[slot] = defined
            if (defined | ~self.live).all():
                del self.partial[slot]
        self.registers[slot] = np.where(self.mask, value, old)

    def check_defined(self, slot: int) -> None:
        """Refuse the read of a register that an executing lane was not given."""
        defined = self.partial.get(slot)
        bad = self.mask if defined is None else self.mask & ~defined
        if not bad.any():
            return
        lane = int(bad.argmax())
        name = self.program.registers[slot]
        fault = UninitialisedRegister(
            f"read of register {name}, which nothing wrote",
            "",
            "write the register on every path that leads here",
        )
        fault.register = name
        raise self.placed(fault, lane)

    def special(self, name: str) -> Any:
        """A special register (PTX ISA chapter 10)."""
        if name not in self._special:
            self._special[name] = self._make_special(name)
        return self._special[name]

    def _make_special(self, name: str) -> Any:
        group, _, axis = name[1:].partition(".")
        if group in ("ntid", "nctaid"):
            size = self.launch.block if group == "ntid" else self.launch.grid
            return np.uint32(size["xyz".index(axis)])
        if group in ("tid", "ctaid"):
            if group == "ctaid":
                linear = self.first + np.arange(self.warps).reshape(-1, 1) // self.warps_per_block
                size = self.launch.grid
            else:
                warp = np.arange(self.warps).reshape(-1, 1) % self.warps_per_block
                linear = warp * WARP_SIZE + LANE.astype(np.int64)
                size = self.launch.block
            x, y, _ = size
            index = {"x": linear % x, "y": linear // x % y, "z": linear // (x * y)}[axis]
            return index.astype(np.uint32)
        if group == "nwarpid":
            return np.uint32(self.warps_per_block)
        if group == "warpid":
            return (np.arange(self.warps).reshape(-1, 1) % self.warps_per_block).astype(np.uint32)
        lane = LANE.reshape(1, -1)
        if group == "laneid":
            return lane
        below = (np.left_shift(np.uint64(1), lane.astype(np.uint64)) - np.uint64(1)).astype(np.uint32)
        own = np.left_shift(np.uint32(1), lane)
        return {
            "lanemask_eq": own,
            "lanemask_lt": below,
            "lanemask_le": below | own,
            "lanemask_gt": ~(below | own),
            "lanemask_ge": ~below,
        }[group]

    # ---- places ------------------------------------------------------------------------------------

    def place(self, lane: int) -> Place:
        """Where the current step stands, for a lane numbered through the whole chunk."""
        warp = lane // WARP_SIZE
        block, warp_in_block = divmod(warp, self.warps_per_block)
        thread = warp_in_block * WARP_SIZE + lane % WARP_SIZE
        instruction = self.step.instruction
        return Place(
            kernel=self.program.name,
            block=_index(self.first + block, self.launch.grid),
            warp=warp_in_block,
            lane=lane % WARP_SIZE,
            thread=_index(thread, self.launch.block),
            line=instruction.line,
            source_file=instruction.source.file if instruction.source else None,
            source_line=instruction.source.line if instruction.source else None,
            text=" ".join(instruction.text.split()),
        )

    def placed(self, fault: KernelFault, lane: int) -> KernelFault:
        """The fault with its place filled in."""
        fault.place = self.place(lane)
        return fault


def _index(linear: int, size: tuple[int, int, int]) -> tuple[int, int, int]:
    x, y, _ = size
    return linear % x, linear // x % y, linear // (x * y)
