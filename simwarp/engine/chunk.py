"""The state of the warps in flight: their registers, and which of their lanes live and execute.

A register is one value for all lanes of the chunk: an array of unsigned words (bool for a
predicate) that broadcasts to (warps, 32). Where all lanes agree it may be a single number, and
where the lanes of each warp agree a column of shape (warps, 1): loop counters and pointers then
cost next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from simwarp.engine import special_registers
from simwarp.engine.asynchronous.copies import AsyncCopies
from simwarp.engine.asynchronous.swizzled_tiles import SwizzledTiles
from simwarp.engine.asynchronous.transfers import Transfers
from simwarp.engine.places import callers_of
from simwarp.engine.schedule.calls import Activations
from simwarp.engine.sync.mbarriers import MBarriers
from simwarp.engine.sync.register_pool import RegisterPool
from simwarp.engine.tensor_core.async_products import AsyncProducts
from simwarp.engine.tensor_core.registers_in_flight import InFlight
from simwarp.engine.undefined.foreign_pointers import Foreign
from simwarp.engine.undefined.values import DividedByZero, Unwritten, all_undefined, of_result, use
from simwarp.faults import KernelFault, MemoryFault, Place
from simwarp.lanes import WARP_SIZE
from simwarp.memory import Memory
from simwarp.program.liveness import EVERY_REGISTER
from simwarp.program.program import Step
from simwarp.ptx.mangled_names import readable
from simwarp.ptx.spaces import RESERVED

if TYPE_CHECKING:
    from simwarp.engine.components import Missing, Origin, Undefined
    from simwarp.engine.schedule.missing_lanes import Attendance
    from simwarp.engine.state import Launch, Mask

_where: Callable[..., Any] = np.where
"""`numpy.where`, typed to accept operands of any type."""


class Chunk:
    """The warps of some blocks of a launch, in order; or a part of them, see `part`.

    `simwarp.engine.state.Chunk` describes the members that others use.
    """

    order: Callable[[int], npt.NDArray[np.intp]] | None = None
    special = special_registers.value

    def __init__(self, launch: Launch, blocks: npt.NDArray[np.int64]) -> None:
        self.launch, self.program = launch, launch.program
        self.warps_per_block = -(-launch.threads // WARP_SIZE)
        thread = np.arange(self.warps_per_block * WARP_SIZE) < launch.threads
        self.live: Mask = np.tile(thread.reshape(-1, WARP_SIZE), (blocks.size, 1))
        self.blocks, self.block_numbers = blocks.size, blocks
        self.warps = self.blocks * self.warps_per_block
        self.warp = np.arange(self.warps).reshape(-1, 1)
        self.block = np.repeat(blocks, self.warps_per_block).reshape(-1, 1)
        warp = self.block * self.warps_per_block + self.warp_in_block
        self.thread = warp * WARP_SIZE + np.arange(WARP_SIZE)
        self.registers: list[Any] = [None] * len(self.program.registers)
        self.partial: dict[int, Mask] = {}
        """Register slot → the lanes where it is defined, for registers undefined in some lane."""
        self.defined_here: set[int] = set()
        """The slots of registers known to be defined in all executing lanes."""
        self.bits: dict[int, npt.NDArray[Any]] = {}
        """Register slot → the undefined bits of each lane of ``partial``, if not all; 0 stands for all."""
        self.origins: dict[int, Origin] = {}
        self.carried: dict[tuple[str, int], Origin] = {}
        self.loaded: Missing | None = None
        self.tables: Any = None
        """What `simwarp.compiled.memory` knows of the chunk's memory."""
        self.undefined: Mask | None = None
        """The value of `undefined_now`, as long as ``executed`` equals ``undefined_at``."""
        self.undefined_at = -1
        self.special_values: dict[str, Any] = {}
        self.frame: Any = np.uint64(0)
        self.activations = Activations()
        self.is_part = False
        self.executed = launch.clock
        self.step: Step = self.program.steps[self.program.start]
        self.undefined_from: Origin = Unwritten("", self.step)
        self.undefined_parts: list[npt.NDArray[Any]] | None = None
        """The undefined bits of each result of a load or of a step with several results."""
        self.part_written = 0
        """The index in ``undefined_parts`` of the result that is being written."""
        self._make_memory()
        self.enter(self.live, alone=True)
        self.copies = AsyncCopies(self) if self.program.copies_asynchronously else None
        self.products = AsyncProducts(self) if self.program.has_warpgroup_products else None
        self.register_pool = RegisterPool(self) if self.program.changes_register_counts else None
        self.mbarriers = MBarriers(self) if self.program.has_mbarriers else None
        self.transfers = Transfers(self) if self.program.has_transfers else None
        fills = self.program.has_transfers and self.program.has_warpgroup_products
        self.tiles = SwizzledTiles(self) if fills else None

    def _make_memory(self) -> None:
        """Allocate shared and local memory: one window per block, or per lane, in order."""
        launch, name = self.launch, readable(self.program.name)
        self.reserved_start = -(-launch.shared_size // 16) * 16
        reserved = RESERVED if self.program.reserves_shared else 0
        self.shared, self.shared_stride = Memory("shared", 0), self.reserved_start + reserved
        if self.shared_stride:
            windows = self.shared.allocate(
                self.shared_stride * self.blocks, f"shared memory of kernel {name}"
            )
            windows.written_bits.reshape(self.blocks, -1)[:, launch.shared_size :] = 0xFF
            windows.bytes.reshape(self.blocks, -1)[:, self.reserved_start :] = 0
        self.shared_start = (self.block_in_chunk * self.shared_stride).astype(np.uint64)
        self.local, self.local_stride = Memory("local", 0), -(-launch.local_size // 16) * 16
        if self.local_stride:
            self.local.allocate(self.local_stride * self.warps * WARP_SIZE, f"local memory of kernel {name}")

    @property
    def warp_in_block(self) -> npt.NDArray[np.int64]:
        """(warps, 1): the number of each warp in its block."""
        return self.warp % self.warps_per_block

    @property
    def block_in_chunk(self) -> npt.NDArray[np.int64]:
        """(warps, 1): the number of each warp's block among those in flight."""
        return self.warp // self.warps_per_block

    @property
    def local_start(self) -> npt.NDArray[np.uint64]:
        """(warps, 32): the start of each lane's window in the chunk's local memory."""
        return ((self.warp * WARP_SIZE + np.arange(WARP_SIZE)) * self.local_stride).astype(np.uint64)

    # ---- a part of the warps -----------------------------------------------------------------------

    def part(self, warps: npt.NDArray[np.intp]) -> Chunk:
        """Copy some of the warps into a chunk of their own, to run without the others."""
        other = object.__new__(Chunk)
        other.__dict__.update(self.__dict__)
        other.warps, other.is_part = warps.size, True
        other.special_values, other.defined_here = {}, set()
        other.live, other.warp, other.block = self.live[warps], self.warp[warps], self.block[warps]
        other.thread = self.thread[warps]
        other.shared_start = self.shared_start[warps]
        other.registers = [_of_warps(value, warps) for value in self.registers]
        other.partial = {slot: mask[warps] for slot, mask in self.partial.items()}
        other.bits = {slot: bits[warps] for slot, bits in self.bits.items()}
        other.began_with = list(other.registers)
        return other

    def absorb(self, part: Chunk, warps: npt.NDArray[np.intp], needed: int) -> None:
        """Copy the state of `part` back, with the registers whose bits are set in ``needed``."""
        self.live = self.live.copy()
        self.live[warps] = part.live
        self.executed = part.executed
        for slot, (before, after) in enumerate(zip(part.began_with, part.registers, strict=True)):
            if needed >> slot & 1 and (after is not before or slot in part.partial):
                self._put_back(slot, after, part.partial.get(slot), warps)
                if slot in self.bits or slot in part.bits:
                    word = part.registers[slot].dtype
                    bits = self.bits.get(slot, np.zeros(self.live.shape, word)).copy()
                    bits[warps] = part.bits.get(slot, 0)
                    self.bits[slot] = bits

    def _put_back(self, slot: int, value: Any, defined: Mask | None, warps: npt.NDArray[np.intp]) -> None:
        """Copy a register of a part, and its mask of defined lanes, back to these warps of the chunk."""
        old = self.registers[slot]
        if old is None:
            self.partial[slot] = np.zeros_like(self.live)
        if slot in self.partial or defined is not None:
            whole = self.partial.get(slot, np.ones_like(self.live)).copy()
            whole[warps] = True if defined is None else defined
            self.partial[slot] = whole
        new = np.empty(self.live.shape, value.dtype)
        new[...] = value.dtype.type(0) if old is None else old
        new[warps] = value
        self.registers[slot] = new

    began_with: list[Any]
    """The registers of a part when it was made."""
    attendance: Attendance
    """The missing lanes that the chunk's scheduler knows."""

    # ---- which lanes execute -----------------------------------------------------------------------

    def enter(self, mask: Mask, alone: bool, needed: int = EVERY_REGISTER) -> None:
        """Set the executing lanes; ``alone``: no other lane is live; ``needed``: registers, by slot."""
        self.mask, self.alone, self.needed = mask, alone, 0 if alone else needed
        self.count = int(np.count_nonzero(mask))
        self.active = None if self.count == mask.size else mask
        self.undefined = None
        self.defined_here.clear()

    # ---- registers ---------------------------------------------------------------------------------

    def write(self, slot: int, value: Any) -> None:
        """Write the register in a slot, in the executing lanes only."""
        if self.products is not None:
            self.products.registers.check_write(self, slot)
        undefined = self.undefined_now()
        if undefined is not None and isinstance(self.undefined_from, Foreign):
            undefined = self.undefined_from.kept(undefined, value)
        if undefined is not None or slot in self.bits:
            undefined = self._keep_bits(slot, value.dtype, undefined)
        given = self.mask if undefined is None else self.mask & ~undefined
        if undefined is not None:
            self.origins[slot] = self.undefined_from
            self.defined_here.discard(slot)
            if isinstance(self.undefined_from, InFlight):
                self.undefined_from.registers.copied(self, self.undefined_from.slot, slot, undefined)
        if not self.needed >> slot & 1:
            self.registers[slot] = value
            if undefined is not None:
                self.partial[slot] = given
            elif slot in self.partial:
                del self.partial[slot]
            return
        old = self.registers[slot]
        if undefined is None:
            self.defined_here.add(slot)
        if old is None:
            self.registers[slot], self.partial[slot] = value, given
            return
        if slot in self.partial or undefined is not None:
            defined = given | (self.partial.get(slot, self.live) & ~self.mask)
            self.partial[slot] = defined
            if (defined | ~self.live).all():
                del self.partial[slot]
        self.registers[slot] = np.where(self.mask, value, old)

    def _keep_bits(self, slot: int, word: np.dtype[Any], undefined: Mask | None) -> Mask | None:
        """Record the undefined bits that a register receives; returns the lanes with any, or None."""
        bits: Any = None
        if undefined is not None and self.undefined_parts is not None:
            bits = self.undefined_parts[self.part_written]
        elif undefined is not None:
            bits = of_result(self, self.step)
        if undefined is not None and bits is not None:
            bits = bits.astype(f"{bits.dtype.kind}{word.itemsize}").view(word)
            undefined = undefined & (bits != 0)
            bits = _where(undefined, bits, word.type(0))
        if slot in self.bits and self.needed >> slot & 1:
            bits = _where(self.mask, word.type(0) if bits is None else bits, self.bits[slot])
        self.bits.pop(slot, None)
        if bits is not None:
            self.bits[slot] = bits
        return undefined if undefined is not None and undefined.any() else None

    # ---- undefined values: see `simwarp.engine.undefined.values` ---------------------------------------

    def undefined_now(self) -> Mask | None:
        """Lanes that read an undefined operand in the current step."""
        if self.undefined is not None and self.undefined_at != self.executed:
            self.undefined = None
        return self.undefined

    def undefined_bits(self, slot: int) -> npt.NDArray[Any] | None:
        """The undefined bits of a register in each lane; None if all bits are defined."""
        if slot not in self.partial:
            return None
        every, bits = all_undefined(self.registers[slot]), self.bits.get(slot)
        bits = every if bits is None else np.where(bits == 0, every, bits)
        return np.where(self.partial[slot], every & ~every, bits)

    def follow(self, slot: int, dtype: np.dtype[Any]) -> Any:
        """Read a register; where it is undefined, the current step's result becomes undefined."""
        missing = self._missing(slot)
        if missing is not None:
            origin = self._origin(slot)
            if isinstance(origin, InFlight):
                missing = origin.read(self, missing)
            if missing is not None:
                self._lack(missing, origin)
        return self._value(slot, dtype)

    def follow_load(self, loaded: Missing) -> None:
        """Make the current step's results undefined where the loaded words are undefined."""
        self._lack(loaded.lanes, loaded.origin)
        self.undefined_parts, self.loaded = loaded.bits, None

    def split_undefined(self, bits: int, count: int) -> None:
        """Split the undefined bits of the current step's result into ``count`` results of ``bits`` bits."""
        undefined = self.undefined_now()
        whole = None if undefined is None else of_result(self, self.step)
        if whole is not None:
            piece, word = np.dtype(f"u{bits // 8}"), whole.dtype.type
            self.undefined_parts = [(whole >> word(i * bits)).astype(piece) for i in range(count)]

    def has_no_value(self, lanes: Any) -> None:
        """Make the current step's result undefined in ``lanes``, which divide by zero."""
        missing = self.mask & lanes
        if missing.any() and self.launch.checks.action("division") != "off":
            self._lack(missing, DividedByZero(self.step))

    def _lack(self, lanes: Mask, origin: Origin) -> None:
        """Make the current step's result at least partly undefined in these lanes, too."""
        before = self.undefined_now()
        self.undefined = lanes if before is None else before | lanes
        self.undefined_at, self.undefined_from = self.executed, origin
        self.undefined_parts, self.part_written = None, 0

    def _origin(self, slot: int) -> Origin:
        """The origin of a register's undefined values; `Unwritten` if nothing wrote it."""
        return self.origins.get(slot) or Unwritten(self.program.registers[slot], self.step)

    def use_undefined(self, slot: int, lanes: Mask, origin: Origin | None) -> None:
        """Report that lanes use a register that is undefined; `Unwritten` without an origin."""
        use(self, lanes, origin or Unwritten(self.program.registers[slot], self.step))

    def undefined_fault(self, slot: int, origin: Origin | None, lane: int) -> KernelFault:
        """The fault for a lane that uses a register that is undefined; `Unwritten` without an origin."""
        if origin is None or isinstance(origin, Foreign):
            origin = Unwritten(self.program.registers[slot], self.step)
        return cast("Undefined", origin).fault(self, lane)

    def check_defined(self, slot: int, dtype: np.dtype[Any]) -> Any:
        """Read the register in a slot; report a fault if it is undefined in an executing lane."""
        missing = self._missing(slot)
        if missing is not None:
            use(self, missing, self._origin(slot))
        self.defined_here.add(slot)
        return self._value(slot, dtype)

    def _missing(self, slot: int) -> Mask | None:
        """The executing lanes where a register is undefined; None if there are none."""
        if slot in self.defined_here:
            return None
        if slot in self.partial:
            missing = self.mask & ~self.partial[slot]
        elif self.registers[slot] is None:
            missing = self.mask
        else:
            return None
        if missing.any():
            return missing
        self.defined_here.add(slot)
        return None

    def _value(self, slot: int, dtype: np.dtype[Any]) -> Any:
        """The value of a register; an unwritten one becomes 0, undefined in all lanes."""
        if self.registers[slot] is None:
            self.registers[slot] = dtype.type(0)
            self.partial[slot] = np.zeros_like(self.live)
        return self.registers[slot]

    # ---- places ------------------------------------------------------------------------------------

    def place(self, lane: int, step: Step | None = None) -> Place:
        """The location, for a fault, of a lane of the chunk at a step; by default the current step."""
        callers = callers_of(self, lane) if step is None or step is self.step else ()
        return self.launch.geometry.place(int(self.thread.reshape(-1)[lane]), step or self.step, callers)

    def place_of(self, thread: int, step: Step) -> Place:
        """The location, for a fault, of a launch's thread at a step, without the calls that led there."""
        return self.launch.geometry.place(thread, step)

    def placed(self, fault: KernelFault, lanes: int | Mask) -> KernelFault:
        """Set the location of a fault to that of a lane, or of the first lane of a mask."""
        fault.place = self.place(lanes if isinstance(lanes, int) else int(lanes.argmax()))
        return fault

    def within(self, fault: MemoryFault, memory: Memory) -> None:
        """Turn a fault's address in shared or local memory into an offset in its window."""
        for mine, stride, size, what in (
            (self.shared, self.shared_stride, self.launch.shared_size, "the block's shared memory"),
            (self.local, self.local_stride, self.launch.local_size, "the thread's local memory"),
        ):
            if memory is mine:
                fault.address = fault.offset = fault.offset % stride
                fault.values = f"byte {fault.offset} of {what} ({size} bytes)"
        if memory is self.shared:
            fault.name_element(self.shared_element(fault.offset, fault.width))

    def shared_element(self, offset: int, width: int) -> str:
        """The element of a shared variable at an offset in the block's window; "" if it is not known."""
        launch = self.launch
        return self.program.shared_element(offset, width, launch.shared_size, launch.sources)

    def found(self, fault: KernelFault, lanes: int | Mask) -> None:
        """Report a fault of a lane, or of all lanes of a mask; its check raises, collects or ignores it."""
        if not isinstance(lanes, int):
            fault.count = int(np.count_nonzero(lanes))
        self.launch.found(self.placed(fault, lanes))


def _of_warps(value: Any, warps: npt.NDArray[np.intp]) -> Any:
    """The rows of a register's value that belong to these warps."""
    return value if value is None or np.ndim(value) < 2 or value.shape[0] == 1 else value[warps]
