"""``wgmma.fence``: checks whether a product's registers were written since the warpgroup's last fence.

Nothing changes an array of registers in place, so a register whose array is the one of the fence was not
written. Products of one shape may use the same accumulators without a fence between them (PTX ISA 9.0,
section 9.7.15.7.1), and so may a copy of their result, which compilers make between the turns of a loop.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simwarp.faults import Place, ProductInFlight
from simwarp.lanes import WARP_SIZE

if TYPE_CHECKING:
    from simwarp.engine.state import Chunk
    from simwarp.engine.tensor_core.registers_in_flight import RegistersInFlight
    from simwarp.engine.tensor_core.warpgroups import Plan
    from simwarp.program.program import Step

_Warps = npt.NDArray[np.intp]


@dataclass
class _Fenced:
    """The values of products' registers when some warps executed a fence.

    Attributes
    ----------
    warps : (n,) int
        The warps that ``values`` have, numbered through the whole chunk.
    values : dict of int to array
    step : Step
        The fence.
    results : set of int
        The slots whose value a product has written since.
    shapes : dict of int to tuple
        Slot → the shape of the products that used it as an accumulator since.
    """

    warps: _Warps
    values: dict[int, Any]
    step: Step
    results: set[int] = field(default_factory=set[int])
    shapes: dict[int, tuple[str, str]] = field(default_factory=dict[int, tuple[str, str]])


class RegisterFences:
    """The last fence of each warp of a chunk; ``slots`` are the registers of all products."""

    def __init__(self, names: list[str], slots: tuple[int, ...], size: int) -> None:
        self._names, self._slots = names, slots
        self._latest = np.zeros(size, np.int64)
        """The number of each warp's last fence, or 0."""
        self._count = 0
        self._fenced: dict[int, _Fenced] = {}

    def fence(self, chunk: Chunk, warps: _Warps) -> None:
        """Remember the current registers of some warps."""
        values = {slot: chunk.registers[slot] for slot in self._slots}
        self._note(warps, _Fenced(chunk.warp[:, 0], values, chunk.step))

    def _note(self, warps: _Warps, fenced: _Fenced) -> None:
        self._count += 1
        self._latest[warps] = self._count
        self._fenced[self._count] = fenced
        for number in self._fenced.keys() - set(self._latest.tolist()):
            del self._fenced[number]

    def check(self, chunk: Chunk, plan: Plan, warps: _Warps, flying: RegistersInFlight) -> None:
        """Report warps that issue a product of registers that they wrote after their fence."""
        for number in np.unique(self._latest[warps]).tolist():
            mine = warps[self._latest[warps] == number]
            if not number:
                self._find(chunk, mine, "a product before the warpgroup's first wgmma.fence")
                self.fence(chunk, mine)
                continue
            fenced = self._fenced[number]
            for slot in (*plan.d, *plan.a):
                if chunk.registers[slot] is not fenced.values[slot]:
                    self._compare(chunk, fenced, slot, mine, flying)
            shapes = {fenced.shapes.get(slot, plan.shape) for slot in plan.d} - {plan.shape}
            if shapes:
                values = f"{' '.join(shapes.pop())}, now {' '.join(plan.shape)}"
                what = "accumulators of products of two shapes without wgmma.fence between them"
                self._find(chunk, mine, what, values)
            fenced.shapes |= dict.fromkeys(plan.d, plan.shape)

    def _compare(
        self, chunk: Chunk, fenced: _Fenced, slot: int, warps: _Warps, flying: RegistersInFlight
    ) -> None:
        """Report a register that differs from its value at the fence, unless it copies a product's result.

        A write to one in flight is a fault of its own.
        """
        now = _of_warps(chunk.registers[slot], chunk.warp[:, 0], warps)
        before = _of_warps(fenced.values[slot], fenced.warps, warps)
        if now is None or (before is not None and np.array_equal(now, before)):
            return
        if before is None and not self._is_written(chunk, slot, warps):
            return
        if flying.lanes(chunk, slot)[np.isin(chunk.warp[:, 0], warps)].all():
            return
        results = (_of_warps(fenced.values[other], fenced.warps, warps) for other in fenced.results - {slot})
        if not any(other is not None and np.array_equal(now, other) for other in results):
            name = self._names[slot]
            what = f"register {name} of a product was written after the last wgmma.fence"
            first = int(np.isin(chunk.warp, warps).argmax()) * WARP_SIZE
            self._find(chunk, warps, what, register=name, fence=chunk.place(first, fenced.step))

    @staticmethod
    def _is_written(chunk: Chunk, slot: int, warps: _Warps) -> bool:
        """Whether any of these warps has a defined value in the register of a slot."""
        defined = chunk.partial.get(slot)
        return defined is None or bool(_of_warps(defined, chunk.warp[:, 0], warps).any())

    @staticmethod
    def _find(
        chunk: Chunk,
        warps: _Warps,
        what: str,
        values: str = "",
        register: str = "",
        fence: Place | None = None,
    ) -> None:
        lanes = chunk.mask & np.isin(chunk.warp, warps)
        fault = ProductInFlight(
            what, values, "execute wgmma.fence after the last write and before the product"
        )
        if fence is not None:
            fault.note("the last one was executed here by", fence)
        fault.product, fault.register = chunk.place(int(lanes.argmax())), register
        chunk.found(fault, lanes)

    def note_results(self, chunk: Chunk, slots: tuple[int, ...], warps: _Warps) -> None:
        """Note that products of some warps were the last to write accumulators."""
        for number in np.unique(self._latest[warps]).tolist():
            if number not in self._fenced:
                continue
            fenced, mine = self._fenced[number], warps[self._latest[warps] == number]
            if mine.size < np.count_nonzero(self._latest == number) or fenced.warps.size != len(chunk.warp):
                values = {slot: self._translated(chunk, fenced, slot) for slot in self._slots}
                fenced = _Fenced(
                    chunk.warp[:, 0], values, fenced.step, set(fenced.results), dict(fenced.shapes)
                )
                self._note(mine, fenced)
            for slot in slots:
                fenced.values[slot] = chunk.registers[slot]
            fenced.results |= set(slots)

    @staticmethod
    def _translated(chunk: Chunk, fenced: _Fenced, slot: int) -> Any:
        """A value at a fence, of the warps of this part of the chunk."""
        value = fenced.values[slot]
        if value is None or fenced.warps.size == len(chunk.warp):
            return value
        known = np.isin(chunk.warp[:, 0], fenced.warps)
        made = np.array(np.broadcast_to(chunk.registers[slot], chunk.live.shape))
        made[known] = _of_warps(value, fenced.warps, chunk.warp[known, 0])
        return made


def _of_warps(value: Any, known: _Warps, warps: _Warps) -> Any:
    """The rows of a register that belong to ``warps``, of rows for the warps ``known``; None if unwritten."""
    if value is None:
        return None
    rows = np.searchsorted(known, warps).clip(max=known.size - 1)
    return np.broadcast_to(value, (known.size, WARP_SIZE))[rows]
