"""The registers of a chunk as compiled code sees them: an array (warps, 32) for each.

An array that nobody else holds is written in place; one number for all lanes, or one for each warp, is
spread over an array that stays until the register has another value.
"""

from __future__ import annotations

from sys import getrefcount
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simwarp.compiled.segments import Key
    from simwarp.compiled.state import Chunk, Mask, Table


def address(array: Table) -> int:
    """The address of an array."""
    return array.__array_interface__["data"][0]


def bits(word: int) -> list[int]:
    """The numbers of the bits that are 1."""
    found = list[int]()
    while word:
        low = word & -word
        found.append(low.bit_length() - 1)
        word ^= low
    return found


def _references(registers: list[Any], slot: int) -> int:
    """The references to a register's array."""
    return getrefcount(registers[slot])


def _own() -> int:
    """The references to an array that is here and in the chunk alone; interpreters count differently."""
    array = np.zeros(1)
    registers, _kept = [array], ({0: array}, {0: array})
    return _references(registers, 0)


_OWN = _own()


class Registers:
    """The arrays of a chunk's registers and special registers, and tables of their addresses."""

    def __init__(self, chunk: Chunk, types: Sequence[Any], inputs: dict[Key, int]) -> None:
        self._chunk, self._types, self._inputs = chunk, types, inputs
        self._shape = chunk.live.shape
        self.table = np.zeros(len(types), np.uint64)
        self.inputs = np.zeros(max(len(inputs), 1), np.uint64)
        self._arrays: dict[int, Table] = {}
        self._values: dict[int, Any] = {}
        """The register's value that an array has."""
        self._special: dict[Key, Table] = {}

    def are_defined(self, slots: int, lanes: Sequence[tuple[int, Mask]]) -> bool:
        """Whether lanes have values in all registers of ``slots`` that they may still read.

        ``lanes`` are registers, one bit per slot, and the lanes that may read them.
        """
        chunk, live = self._chunk, 0
        for some, _ in lanes:
            live |= some
        registers, partial = chunk.registers, chunk.partial
        for slot in bits(slots & live):
            if registers[slot] is None:
                return False
            defined = partial.get(slot) if partial else None
            if defined is not None and any(
                some >> slot & 1 and (mask & ~defined).any() for some, mask in lanes
            ):
                return False
        return True

    def enter(self, reads: int, writes: int, keys: frozenset[Key]) -> None:
        """Make arrays of registers and special registers; those of ``writes`` may be written."""
        chunk, arrays, values = self._chunk, self._arrays, self._values
        registers = chunk.registers
        for slot in bits(reads | writes):
            written, array = writes >> slot & 1, arrays.get(slot)
            if array is not None and array is registers[slot]:
                if not written or (array.base is None and _references(registers, slot) <= _OWN):
                    continue
            elif array is not None and values[slot] is registers[slot] is not None:
                continue  # the array is here alone
            self._make(slot, registers[slot], written)
        for key in keys - self._special.keys():
            kind, name = key
            value = np.uint64(chunk.launch.symbols[name]) if kind == "symbol" else chunk.special(name)
            value = np.broadcast_to(value, self._shape)
            array = self._special[key] = np.ascontiguousarray(value)
            self.inputs[self._inputs[key]] = address(array)

    def _make(self, slot: int, value: Any, written: int) -> None:
        """Make the array of a register."""
        if value is None:
            array = np.zeros(self._shape, self._types[slot])
        elif written or np.shape(value) != self._shape:
            array = np.empty(self._shape, self._types[slot])
            array[...] = value
        else:
            array = np.ascontiguousarray(value)
        self._arrays[slot], self._values[slot] = array, value
        self.table[slot] = address(array)

    def leave(self, writes: int) -> None:
        """Give the written registers back."""
        chunk = self._chunk
        for slot in bits(writes):
            chunk.registers[slot] = self._values[slot] = self._arrays[slot]
            chunk.partial.pop(slot, None)
            chunk.bits.pop(slot, None)
