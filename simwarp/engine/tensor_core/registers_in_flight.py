"""The registers of asynchronous products between issue and wait.

An accumulator *in flight* counts as undefined (`simwarp.engine.undefined.values`), with `InFlight` as its
origin, so that registers without products cost nothing. Only other products may use it. A ``mov`` may pass it
on, as compilers do between products: the product then happens, and the copy is in flight, too. Registers that
hold A may be read, but not written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from simwarp.faults import KernelFault, ProductInFlight
from simwarp.lanes import WARP_SIZE

if TYPE_CHECKING:
    from simwarp.engine.components import Origin
    from simwarp.engine.state import Chunk, Mask
    from simwarp.program.program import Program, Step

_Numbers = npt.NDArray[np.int64]
_Warps = npt.NDArray[np.intp]


@dataclass
class _Accumulators:
    """Accumulator registers of one ``wgmma`` product, in flight together.

    Attributes
    ----------
    slots : tuple of int
    latest : (warps of the whole chunk,) int64
        The number of the latest product in flight, or 0.
    """

    slots: tuple[int, ...]
    latest: _Numbers


class InFlight(NamedTuple):
    """Origin of undefined values: a register that is an accumulator in flight."""

    registers: RegistersInFlight
    slot: int

    def read(self, chunk: Chunk, lanes: Mask) -> Mask | None:
        """Read the accumulator in undefined lanes; returns the lanes where the result is undefined, too."""
        return self.registers.read(chunk, self.slot, lanes)

    def fault(self, chunk: Chunk, lane: int) -> KernelFault:
        """The fault for a lane that reads it in the current step."""
        return self.registers.fault(chunk, self.slot, lane, "read of an accumulator")


class RegistersInFlight:
    """The registers of a chunk that products in flight read or write.

    Parameters
    ----------
    size : int
        The warps of the whole chunk.
    happen : callable
        Lets the products of some warps happen, up to a number.
    """

    def __init__(self, program: Program, size: int, happen: Callable[[Chunk, _Warps, int], None]) -> None:
        self._program, self._size, self._happen = program, size, happen
        self._steps: dict[int, Step] = {}
        """Number of a product in flight → its instruction."""
        self._accumulators: dict[int, _Accumulators] = {}
        """Slot → the accumulators in flight that it belongs to."""
        self._inputs: dict[int, _Numbers] = {}
        """Slot → by warp, the number of the latest product in flight that reads A from it, or 0."""
        self._origins: dict[int, InFlight] = {}
        self._before: dict[int, Origin] = {}
        """Slot → the origin of its undefined values in warps where it is not in flight."""

    def lanes(self, chunk: Chunk, slot: int) -> Mask:
        """The lanes in which a register is an accumulator in flight."""
        made = self._accumulators.get(slot)
        latest = np.zeros(self._size, np.int64) if made is None else made.latest
        return np.broadcast_to(latest[chunk.warp] > 0, chunk.live.shape)

    # ---- products --------------------------------------------------------------------------------

    def mark(
        self, chunk: Chunk, step: Step, d: tuple[int, ...], a: tuple[int, ...], warps: _Warps, number: int
    ) -> None:
        """Put the registers of the products of some warps in flight."""
        self._steps[number] = step
        first = self._accumulators.get(d[0])
        if first is None or first.slots != d:
            first = self._regroup(d)
        fresh = not first.latest[warps].all()
        first.latest = first.latest.copy()
        first.latest[warps] = number
        if fresh or chunk.is_part:
            self._hide(chunk, first)
        if a:
            latest = self._inputs.get(a[0], np.zeros(self._size, np.int64)).copy()
            latest[warps] = number
            guard = np.ones_like(chunk.live)
            for slot in a:  # an entry in `partial` makes writes go through `Chunk.write`
                self._inputs[slot] = latest
                chunk.partial.setdefault(slot, guard)

    def _regroup(self, slots: tuple[int, ...]) -> _Accumulators:
        """Merge the accumulators of a product into one entry; they may have belonged to several."""
        latest = np.zeros(self._size, np.int64)
        for slot in slots:
            old = self._accumulators.get(slot)
            if old is not None:
                latest = np.maximum(latest, old.latest)
                old.slots = tuple(other for other in old.slots if other != slot)
        made = _Accumulators(slots, latest)
        self._accumulators |= dict.fromkeys(slots, made)
        return made

    def _hide(self, chunk: Chunk, made: _Accumulators) -> None:
        """Mark accumulators as undefined in the warps where their product is in flight."""
        ready = np.broadcast_to(made.latest[chunk.warp] == 0, chunk.live.shape)
        for slot in made.slots:
            defined, origin = chunk.partial.get(slot), chunk.origins.get(slot)
            if chunk.registers[slot] is None:
                chunk.registers[slot] = np.uint32(0)
                chunk.partial[slot] = np.zeros_like(chunk.live)
            else:
                chunk.partial[slot] = ready if defined is None else defined & ready
            if defined is not None and origin is not None and not isinstance(origin, InFlight):
                self._before[slot] = origin
            chunk.origins[slot] = self._origin(slot)
            if slot in chunk.bits:
                chunk.bits[slot] = np.where(ready, chunk.bits[slot], chunk.bits[slot].dtype.type(0))
            chunk.defined_here.discard(slot)

    def _origin(self, slot: int) -> InFlight:
        return self._origins.setdefault(slot, InFlight(self, slot))

    def unmark(self, chunk: Chunk, done: _Numbers) -> None:
        """Mark registers as defined again once their latest product has ended; ``done`` is by warp."""
        for made in {id(made): made for made in self._accumulators.values()}.values():
            ended = (made.latest > 0) & (made.latest <= done)
            if ended.any():
                made.latest = np.where(ended, 0, made.latest)
                self._reveal(chunk, made, ended[chunk.warp])
                if not made.latest.any():
                    for slot in made.slots:
                        del self._accumulators[slot]
        for slot, latest in list(self._inputs.items()):
            left = np.where(latest <= done, 0, latest)
            if left.any():
                self._inputs[slot] = left
                continue
            del self._inputs[slot]
            if slot in chunk.partial and chunk.partial[slot].all():
                del chunk.partial[slot]
        if not self._accumulators and not self._inputs:
            self._steps.clear()

    @staticmethod
    def _reveal(chunk: Chunk, made: _Accumulators, ended: npt.NDArray[np.bool_]) -> None:
        """Make accumulators defined in the lanes of some warps, (warps, 1)."""
        known: dict[int, tuple[Mask, Mask | None]] = {}
        for slot in made.slots:
            defined = chunk.partial.get(slot)
            if defined is None:
                continue
            if id(defined) not in known:
                more = defined | ended
                known[id(defined)] = (defined, None if (more | ~chunk.live).all() else more)
            _, rest = known[id(defined)]
            if rest is not None:
                chunk.partial[slot] = rest
            else:
                del chunk.partial[slot]
                chunk.origins.pop(slot, None)
                chunk.bits.pop(slot, None)
            if chunk.is_part:  # copy the register, so that `Chunk.absorb` detects the change
                chunk.registers[slot] = np.array(np.broadcast_to(chunk.registers[slot], chunk.live.shape))

    def check_defined(self, chunk: Chunk, d: tuple[int, ...], added: Mask) -> None:
        """Report uninitialised accumulators that a product adds to in some lanes."""
        first = self._accumulators.get(d[0])
        if first is not None and first.slots == d and not (added & ~self.lanes(chunk, d[0])).any():
            return  # the undefined accumulators are those of a product in flight
        known = set[tuple[int, int]]()
        for slot in d:
            if chunk.registers[slot] is None or slot in chunk.partial:
                made, defined = self._accumulators.get(slot), chunk.partial.get(slot)
                if (id(made), id(defined)) in known:
                    continue
                missing = added & ~self.lanes(chunk, slot)
                missing = missing if defined is None else missing & ~defined
                if missing.any():
                    chunk.use_undefined(slot, missing, self._before.get(slot))
                elif defined is not None:
                    known.add((id(made), id(defined)))

    # ---- other instructions ------------------------------------------------------------------------

    def read(self, chunk: Chunk, slot: int, lanes: Mask) -> Mask | None:
        """An instruction that may pass on undefined values reads a register, undefined in these lanes.

        Returns the lanes in which its result is undefined or in flight, too.
        """
        flying = lanes & self.lanes(chunk, slot)
        if not flying.any():
            return lanes
        if "move" in chunk.step.row.traits:
            warps = chunk.warp[flying.any(axis=1), 0]
            self._happen(chunk, warps, int(self._accumulators[slot].latest[warps].max()))
            return lanes
        chunk.found(self.fault(chunk, slot, int(flying.argmax()), "read of an accumulator"), flying)
        rest = lanes & ~flying
        return rest if rest.any() else None

    def copied(self, chunk: Chunk, source: int, slot: int, lanes: Mask) -> None:
        """Mark the destination of a ``mov`` from an accumulator in flight as in flight, too."""
        warps = chunk.warp[(lanes & self.lanes(chunk, source)).any(axis=1), 0]
        latest, old = np.zeros(self._size, np.int64), self._accumulators.get(slot)
        if old is not None:
            latest = old.latest.copy()
            old.slots = tuple(other for other in old.slots if other != slot)
        latest[warps] = self._accumulators[source].latest[warps]
        self._accumulators[slot] = _Accumulators((slot,), latest)
        chunk.origins[slot] = self._origin(slot)

    def check_write(self, chunk: Chunk, slot: int) -> None:
        """Report a write to a register that a product in flight reads or writes."""
        inputs = self._inputs.get(slot)
        if slot not in self._accumulators and inputs is None:
            return
        flying, what = chunk.mask & self.lanes(chunk, slot), "write to an accumulator"
        if not flying.any() and inputs is not None:
            flying, what = chunk.mask & (inputs[chunk.warp] > 0), "write to a register of A"
        if flying.any():
            chunk.found(self.fault(chunk, slot, int(flying.argmax()), what), flying)

    def check_inputs(self, chunk: Chunk, d: tuple[int, ...]) -> None:
        """Report accumulators of a new product that a product in flight reads as A."""
        for slot in self._inputs.keys() & set(d):
            self.check_write(chunk, slot)

    def fault(self, chunk: Chunk, slot: int, lane: int, what: str) -> KernelFault:
        """The fault of a lane that uses a register in flight, or a register undefined for another reason."""
        warp, name = int(chunk.warp[lane // WARP_SIZE, 0]), self._program.registers[slot]
        made, inputs = self._accumulators.get(slot), self._inputs.get(slot)
        number = 0 if made is None else int(made.latest[warp])
        if not number and inputs is not None:
            number = int(inputs[warp])
        if not number:
            return chunk.undefined_fault(slot, self._before.get(slot), lane)
        other = chunk.place(lane, self._steps[number])
        fault = ProductInFlight(
            f"{what} of a product in flight, register {name}",
            "no wait for it has ended",
            "wait for the product's group first (wgmma.wait_group)",
            product=other,
            register=name,
        )
        fault.note("issued here by", other)
        return fault
