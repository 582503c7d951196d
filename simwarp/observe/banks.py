"""Bank conflicts: wavefronts of each warp-wide shared-memory access, and the excess over the minimum.

Shared memory has 32 banks of 4 bytes; a *wavefront* reads or writes one word of each. An access of up to 4
bytes per lane has one phase of 32 lanes; one of 8 bytes has two phases of a half warp; one of 16 bytes has
four. The wavefronts of a phase are the largest number of distinct words in one bank: lanes with the same
word share it. Two phases of a load, but not of a store, merge if all pairs of lanes i and i ^ 1, or all
pairs i and i ^ 2, have equal addresses or an inactive lane. Lanes of an atomic operation do not share
words, except in an increment by 1 whose result is unused: the chip has an instruction that counts the lanes
of each word. Source of the banks: the CUDA C++ Programming Guide (compute capability 5.x, shared memory);
the other rules were measured with an H200's counters, see ``docs/costs.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simwarp.engine.events import AccessEvent
from simwarp.lanes import WARP_SIZE
from simwarp.observe.line_counts import AccessCounts, Counts
from simwarp.ptx.syntax import Immediate, Register

if TYPE_CHECKING:
    from simwarp.program.program import Program, Step

BANKS, BANK_BYTES = 32, 4


@dataclass(frozen=True)
class BankCounts(Counts):
    """The cost of shared-memory accesses: wavefronts and conflicts."""

    requests: int = 0  # one request for each warp that executes an instruction
    wavefronts: int = 0
    conflicts: int = 0  # the wavefronts beyond one for each phase


_ELEMENT_BITS = 40
_ELEMENT = (1 << _ELEMENT_BITS) - 1


def count_banks(
    lanes: npt.NDArray[np.int64], addresses: npt.NDArray[np.uint64], width: int, kind: str = "load"
) -> BankCounts:
    """The wavefronts and conflicts of one access by some warps; ``kind`` as in `BankConflicts`, or "count".

    ``lanes``, (n,), ascending, are 32 times the warp's number, plus the lane; ``addresses`` are multiples of
    ``width``, the 1, 2, 4, 8 or 16 bytes per lane. "count" is an increment by 1 whose result is unused. In
    the examples lanes read every second float; all read one float, or add to it; they read 16 bytes, in four
    phases, or in two if neighbours read the same address.

    >>> lanes = np.arange(32)
    >>> count_banks(lanes, 8 * lanes, 4)
    BankCounts(requests=1, wavefronts=2, conflicts=1)
    >>> count_banks(lanes, 0 * lanes, 4), count_banks(lanes, 0 * lanes, 4, "atomic").wavefronts
    (BankCounts(requests=1, wavefronts=1, conflicts=0), 32)
    >>> count_banks(lanes, 16 * lanes, 16), count_banks(lanes, lanes // 2 * 16, 16).wavefronts
    (BankCounts(requests=1, wavefronts=4, conflicts=0), 2)
    """
    if lanes.size == 0:
        return BankCounts()
    row = lanes // WARP_SIZE
    warp = np.cumsum(np.diff(row, prepend=row[0]) != 0)  # warps numbered from 0, without gaps
    phase = _phases(warp, lanes % WARP_SIZE, addresses, width, kind)
    unit = max(width, BANK_BYTES)
    element = (addresses // unit).astype(np.int64)
    if kind in ("load", "store", "count"):
        phase, element = _distinct(phase, element)
    slot = element % (BANKS * BANK_BYTES // unit)  # the group of adjacent banks that holds an element
    in_bank = np.bincount(phase * BANKS + slot, minlength=(int(phase.max()) + 1) * BANKS)
    wavefronts = in_bank.reshape(-1, BANKS).max(axis=1)
    total = int(wavefronts.sum())
    return BankCounts(int(warp[-1]) + 1, total, total - int(np.count_nonzero(wavefronts)))


def _phases(
    warp: npt.NDArray[np.intp], lane: npt.NDArray[Any], addresses: npt.NDArray[Any], width: int, kind: str
) -> npt.NDArray[Any]:
    """The phase of each lane, numbered across all warps."""
    count = max(width // BANK_BYTES, 1)
    phase = lane * count // WARP_SIZE
    if kind == "load" and count > 1:
        phase = np.where(_pairs_agree(warp, lane, addresses)[warp], phase // 2, phase)
    return warp * count + phase


def _pairs_agree(
    warp: npt.NDArray[np.intp], lane: npt.NDArray[Any], addresses: npt.NDArray[Any]
) -> npt.NDArray[np.bool_]:
    """A mask of the warps whose pairs of phases merge."""
    shape = (int(warp.max()) + 1, WARP_SIZE)
    active, at = np.zeros(shape, np.bool_), np.zeros(shape, addresses.dtype)
    active[warp, lane], at[warp, lane] = True, addresses
    agree = np.zeros(shape[0], np.bool_)
    for distance in (1, 2):
        partner = np.arange(WARP_SIZE) ^ distance
        both = active & active[:, partner]
        agree |= ((at == at[:, partner]) | ~both).all(axis=1)
    return agree


def _distinct(
    phase: npt.NDArray[Any], element: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The distinct pairs of phase and element, as two arrays."""
    keys = np.sort(phase << _ELEMENT_BITS | element & _ELEMENT)  # faster than np.unique
    keys = keys[np.diff(keys, prepend=-1) != 0]
    return keys >> _ELEMENT_BITS, keys & _ELEMENT


def _only_counts(program: Program, step: Step) -> bool:
    """True if a step is an atomic increment of shared words by the constant 1 whose result is unused."""
    form, operands = step.form, step.instruction.operands
    if step.space != "shared" or not form.has("add") or form.T not in ("u32", "s32"):
        return False
    if operands[-1] != Immediate(1):
        return False
    old = operands[0]
    if not any(step.destinations) or not isinstance(old, Register):
        return True
    return not program.live[step.number + 1] >> program.registers.index(old.name) & 1


class BankConflicts(AccessCounts[BankCounts]):
    """Counts the wavefronts of accesses to shared memory: ``banks["bmm.cu:42"]`` is a line's conflicts.

    ``opcodes`` has the cost of each opcode, such as "st.shared.u32", ``kinds`` of each kind of access:
    "load", "store", "atomic", "reduction"; ``total`` is the conflicts of all lines.

    Two warps store to every second word:

    >>> import simwarp
    >>> device = simwarp.Device(observe="banks")
    >>> kernel = device.load('''
    ... .version 9.0 .target sm_90 .address_size 64
    ... .visible .entry two_apart() {
    ...     .shared .b32 cells[64]; .reg .b32 %r, %at;
    ...     mov.u32 %r, %laneid; shl.b32 %r, %r, 3; mov.u32 %at, cells; add.u32 %at, %at, %r;
    ...     st.shared.u32 [%at], %r; ret; }
    ... ''').kernel("two_apart")
    >>> kernel((1, 1, 1), (64, 1, 1))
    >>> banks = device.report.bank_conflicts
    >>> banks["ptx:6"], banks.counts("ptx:6")
    (2, BankCounts(requests=2, wavefronts=4, conflicts=2))
    >>> banks.opcodes
    {'st.shared.u32': BankCounts(requests=2, wavefronts=4, conflicts=2)}
    """

    def __init__(self) -> None:
        super().__init__("shared", BankCounts, "conflicts")

    def on_access(self, event: AccessEvent) -> None:
        """Count an access of lanes; tiles of copies and products do not cause conflicts."""
        if event.unit == "lanes":
            super().on_access(event)

    def count(self, event: AccessEvent) -> BankCounts:
        """The wavefronts and conflicts of one access to shared memory."""
        kind = "count" if _only_counts(event.chunk.program, event.step) else event.kind
        return count_banks(event.lanes, event.addresses, event.width, kind)
