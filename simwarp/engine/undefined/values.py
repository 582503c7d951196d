"""Undefined values, bit by bit: their origins, and their propagation through instructions.

Uninitialised registers and memory may be copied and computed with: compilers do so where the result is not
used. They must not decide branches or addresses, nor reach global memory, except as the padding of a copied
structure or as the neighbours of a bit field.

The undefined bits of the result of a bitwise instruction are those in which its results differ when it is
executed with zeros and with ones in place of its undefined input bits.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from simwarp.engine.tensor_core.registers_in_flight import InFlight
from simwarp.engine.undefined.foreign_pointers import Foreign
from simwarp.faults import DivisionByZero, MemoryFault, UninitialisedRead, UninitialisedRegister
from simwarp.program.copies import Copies
from simwarp.program.liveness import registers_in
from simwarp.ptx.kinds import MATRIX

if TYPE_CHECKING:
    from simwarp.allocation import Addresses
    from simwarp.engine import components
    from simwarp.engine.components import Origin, Target
    from simwarp.engine.state import Chunk, Mask
    from simwarp.memory import Memory
    from simwarp.program.program import Step

_PADDING = 15
"""Most bytes of padding after a value: alignments go up to 16."""


class Unwritten(NamedTuple):
    """Origin of undefined values: a register never written, and the step that read it first."""

    register: str
    step: Step

    def fault(self, chunk: Chunk, lane: int) -> UninitialisedRegister:
        """The fault for a lane that uses the undefined value in the current step."""
        place = chunk.place(lane, self.step)
        what, advice = self._words()
        return UninitialisedRegister(what, "", advice, place, register=self.register)

    def _words(self) -> tuple[str, str]:
        """The first line and the advice of the fault; an accumulator is named in the terms of CUDA C++."""
        operands = self.step.instruction.operands
        if self.step.kind is MATRIX and self.register in registers_in(operands[3:4]):
            advice = (
                f"fill the accumulator before the product: wmma::fill_fragment(c, 0), or set {self.register}"
            )
            return f"read of an accumulator fragment that nothing filled ({self.register})", advice
        advice = "write the register on every path that leads here"
        return f"read of register {self.register}, which nothing wrote", advice


class UnwrittenMemory(NamedTuple):
    """Origin of undefined values: memory never written, and the step that read it.

    Attributes
    ----------
    threads : (n,) int64
        The threads that read it, numbered in the launch.
    addresses : (n,) uint64
        The addresses in ``memory`` that they read.
    width : int
        Bytes read at each address.
    whole : (n,) bool
        Whether a value was read of which no bit was written.
    """

    step: Step
    memory: Memory
    threads: npt.NDArray[np.int64]
    addresses: Addresses
    width: int
    whole: npt.NDArray[np.bool_]

    def of(self, threads: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
        """For each thread, the index of its read, and whether it made one."""
        order = np.argsort(self.threads)
        at = order[np.searchsorted(self.threads, threads, sorter=order).clip(max=order.size - 1)]
        return at, self.threads[at] == threads

    def is_part_of_value(
        self, memory: Memory | None, threads: npt.NDArray[np.int64], addresses: Addresses
    ) -> npt.NDArray[np.bool_]:
        """Whether threads store a partly written value: some of its bits were written at the load.

        With ``memory``, a value stored back to its own address counts, too.
        """
        at, known = self.of(threads)
        stays = (self.addresses[at] == addresses) & (memory is self.memory.whole)
        return known & (stays | ~self.whole[at])

    def is_padding(self, chunk: Chunk, threads: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Whether the bytes that threads read may be padding: a written value lies close before them."""
        at, known = self.of(threads)
        stride = chunk.local_stride if self.memory is chunk.local else 0
        for i in np.flatnonzero(known).tolist():
            address = int(self.addresses[at[i]])
            allocation = self.memory.find(address)
            if allocation is None:
                continue
            offset = address - allocation.base
            before = min(_PADDING, offset % stride if stride else offset)
            known[i] = allocation.written_bits[offset - before : offset + self.width].any()
        return known

    def fault(self, chunk: Chunk, lane: int) -> MemoryFault:
        """The fault for a lane that uses the undefined value in the current step."""
        which = int(self.of(chunk.thread.reshape(-1)[[lane]])[0][0])  # any, if another lane passed it on
        fault = self.memory.unwritten(int(self.addresses[which]), self.width)
        chunk.within(fault, self.memory)
        fault.place = chunk.place_of(int(self.threads[which]), self.step)
        return fault


class DividedByZero(NamedTuple):
    """Origin of undefined values: an integer division by zero."""

    step: Step

    def fault(self, chunk: Chunk, lane: int) -> DivisionByZero:
        """The fault for a lane that uses the undefined value in the current step."""
        what = "remainder" if "remainder" in self.step.row.traits else "quotient"
        return DivisionByZero(
            f"integer division by zero: its {what} is unspecified",
            "",
            "check the divisor, and use the result only after that check",
            chunk.place(lane, self.step),
        )


_Undefined: TypeAlias = Unwritten | UnwrittenMemory | DividedByZero | InFlight


class Missing(NamedTuple):
    """The undefined bits of the values that a step loaded.

    Attributes
    ----------
    lanes : (warps, 32) bool
        The lanes with undefined bits.
    bits : list of (warps, 32)
        The undefined bits as unsigned words, one array per loaded element.
    origin : Origin
    """

    lanes: Mask
    bits: list[npt.NDArray[Any]]
    origin: Origin

    def also(self, other: components.Missing | None) -> Missing:
        """Combine these with the undefined bits that other lanes of the same step loaded."""
        if other is None:
            return self
        bits = [a | b for a, b in zip(self.bits, other.bits, strict=True)]
        return Missing(self.lanes | other.lanes, bits, self.origin)


def of_load(chunk: Chunk, step: Step, place: Target, dtype: np.dtype[Any], count: int) -> Missing | None:
    """The undefined bits of ``count`` elements that each executing lane loads; None if there are none."""
    memory, at = place.memory, np.broadcast_to(place.address, chunk.mask.shape)[chunk.mask]
    width = dtype.itemsize * count
    unwritten = memory.unwritten_bits(at, width)
    bad = unwritten.any(axis=1)
    if not bad.any():
        return None
    words = unwritten.view(f"u{dtype.itemsize}").reshape(-1, count)
    whole = (words == all_undefined(words)).any(axis=1)
    bits = [np.zeros(chunk.mask.shape, words.dtype) for _ in range(count)]
    for i, element in enumerate(bits):
        element[chunk.mask] = words[:, i]
    lanes = np.logical_or.reduce([element != 0 for element in bits])
    bits = [element.view(dtype) if dtype.kind == "i" else element for element in bits]
    offset = int(np.broadcast_to(place.within, chunk.mask.shape)[chunk.mask][bad.argmax()])
    origin = chunk.carried.get((place.space, offset))
    if origin is None:
        origin = UnwrittenMemory(step, memory, chunk.thread[chunk.mask][bad], at[bad], width, whole[bad])
    return Missing(lanes, bits, origin)


class Stored(NamedTuple):
    """The undefined bits of the values that a step stores.

    Attributes
    ----------
    bits : list of (warps, 32)
        The undefined bits as unsigned words, one array per stored element.
    origin : Origin
    """

    bits: list[npt.NDArray[Any]]
    origin: Origin

    @classmethod
    def of(cls, chunk: Chunk, step: Step, dtype: np.dtype[Any], count: int) -> Stored | None:
        """The undefined bits that a store of ``count`` elements writes, once its operand is read; or None."""
        if chunk.undefined_now() is None or isinstance(chunk.undefined_from, Foreign):
            return None
        return cls(_of_operand(chunk, step.sources[0], count, dtype), chunk.undefined_from)

    def kept(self, chunk: Chunk, step: Step, place: Target) -> npt.NDArray[np.uint8] | None:
        """(n, bytes): the undefined bits that the n executing lanes store, byte by byte; None without any.

        Global memory counts as a result: undefined bits there may only be padding or neighbours of a bit
        field.
        """
        bits = np.stack([element[chunk.mask] for element in self.bits], axis=-1)
        counts = self._counts(chunk, step, place, bits)
        if place.space not in ("local", "shared"):
            if counts.any():
                lanes = np.zeros_like(chunk.mask)
                lanes[chunk.mask] = counts.any(axis=1)
                use(chunk, lanes, self.origin)
                bits = np.where(counts, bits.dtype.type(0), bits)
        else:
            offsets = np.broadcast_to(place.within, chunk.mask.shape)[chunk.mask]
            for offset in np.unique(offsets).tolist():
                chunk.carried.pop((place.space, offset), None)
            for offset in np.unique(offsets[counts.any(axis=1)]).tolist():
                chunk.carried[place.space, offset] = self.origin
        by_byte = np.ascontiguousarray(bits).view(np.uint8)
        return by_byte if by_byte.any() else None

    def _counts(
        self, chunk: Chunk, step: Step, place: Target, bits: npt.NDArray[Any]
    ) -> npt.NDArray[np.bool_]:
        """(n, elements): whether undefined bits are more than padding or neighbours of a bit field."""
        whole = bits == all_undefined(bits)
        some, copies = (bits != 0) & ~whole, Copies.of(chunk.program)
        if isinstance(self.origin, UnwrittenMemory):
            threads = chunk.thread[chunk.mask]
            if some.any():
                at = np.broadcast_to(place.address, chunk.mask.shape)[chunk.mask]
                memory = place.memory.whole if step.number in copies.fields else None
                some &= ~self.origin.is_part_of_value(memory, threads, at)[:, None]
            if whole.any() and step.number in copies.stores:
                whole &= ~self.origin.is_padding(chunk, threads)[:, None]
        elif not whole.all():
            for i in range(bits.shape[1]):
                whole[:, i] &= (step.number, i) not in copies.fills
        return whole | some


class _Filled:
    """A view of a chunk's registers with zeros, or ones, in place of their undefined bits."""

    def __init__(self, chunk: Chunk, ones: bool) -> None:
        self._chunk, self._ones = chunk, ones
        self.registers, self.partial = self, ()

    def __getitem__(self, slot: int) -> Any:
        value, undefined = self._chunk.registers[slot], self._chunk.undefined_bits(slot)
        if undefined is None:
            return value
        return value | undefined if self._ones else value & ~undefined

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chunk, name)


def of_result(chunk: Chunk, step: Step) -> npt.NDArray[Any] | None:
    """The undefined bits of a step's single result, in its dtype; None if all bits are undefined."""
    data = step.row.bitwise
    if not data or step.compute is None or step.form.has("sat"):
        return None
    low, high = ([read(filled) for read in step.sources] for filled in _both(chunk))
    choices = [(a,) if np.array_equal(a, b) else (a, b) for a, b in zip(low[:data], high[:data], strict=True)]
    results = [np.asarray(step.function(*chosen, *low[data:])) for chosen in product(*choices)]
    word = results[0].dtype if results[0].dtype == np.bool_ else np.dtype(f"u{results[0].dtype.itemsize}")
    bits = np.zeros(chunk.mask.shape, word)
    for result in results[1:]:
        bits |= result.view(word) ^ results[0].view(word)
    for a, b in zip(low[data:], high[data:], strict=True):
        bits = np.where(np.not_equal(a, b), ~word.type(0), bits)
    return bits.view(results[0].dtype)


def _of_operand(chunk: Chunk, read: Any, count: int, dtype: np.dtype[Any]) -> list[npt.NDArray[Any]]:
    """The undefined bits of an operand's ``count`` elements, as unsigned words."""
    low, high = ([value] if count == 1 else value for value in (read(filled) for filled in _both(chunk)))
    word, shape = np.dtype(f"u{dtype.itemsize}"), chunk.mask.shape
    pairs = [(np.broadcast_to(a, shape), np.broadcast_to(b, shape)) for a, b in zip(low, high, strict=True)]
    return [np.ascontiguousarray(a).view(word) ^ np.ascontiguousarray(b).view(word) for a, b in pairs]


def _both(chunk: Chunk) -> tuple[Any, Any]:
    """The chunk with zeros, and with ones, in place of undefined bits."""
    return _Filled(chunk, False), _Filled(chunk, True)


def all_undefined(value: Any) -> Any:
    """A word of ``value``'s dtype, unsigned or bool, with every bit set."""
    return ~value.dtype.type(0)


def use(chunk: Chunk, lanes: Mask, origin: Origin) -> None:
    """Report that lanes use an undefined value in the current step."""
    if isinstance(origin, Foreign):
        return  # the pointer has a value; only accesses through it are faults
    undefined, lane = cast("_Undefined", origin), int(lanes.argmax())
    fault, place = undefined.fault(chunk, lane), chunk.place(lane)
    if isinstance(undefined, InFlight):
        chunk.found(fault, lanes)
        return
    if undefined.step is not chunk.step:
        fault.note("what came of it is used here by", place)
    fault.count = int(np.count_nonzero(lanes))
    if isinstance(fault, UninitialisedRead | UninitialisedRegister | DivisionByZero):
        fault.use = place
    chunk.launch.found(fault)


def check_given(chunk: Chunk, lane: tuple[int, ...], memory: Memory, address: int, size: int) -> None:
    """Report that a host function reads undefined bytes of a lane's memory in the current step."""
    at = np.array([address], np.uint64)
    if not memory.unwritten_bits(at, size).any() or chunk.launch.checks.action("uninitialised") == "off":
        return
    lanes = np.zeros_like(chunk.mask)
    lanes[lane] = True
    origin: Origin | None = None
    if memory is chunk.local:
        origin = chunk.carried.get(("local", address % chunk.local_stride))
    if origin is None:
        origin = UnwrittenMemory(chunk.step, memory, chunk.thread[lanes], at, size, np.ones(1, np.bool_))
    use(chunk, lanes, origin)
