"""Blocks of memory with lifetimes, packed into one slab: blocks that live at the same time do not overlap."""

from __future__ import annotations

from bisect import insort
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from gpu.outofcore.workspace import aligned

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Block(Generic[K]):
    """A block of memory that lives from time ``first`` to time ``last``, both included.

    A block whose last time is its first may overlap the block ``takes``, unless it starts behind it.
    """

    key: K
    nbytes: int
    first: int
    last: int
    takes: K | None = None


class Packed(NamedTuple, Generic[K]):
    """The start of each block, and the bytes of all together."""

    offsets: dict[K, int]
    nbytes: int


def pack(blocks: Sequence[Block[K]]) -> Packed[K]:
    """Place blocks, largest first, each in the first gap between blocks that live at the same time.

    Those that live all the time come before others, so that they have one gap between them and the end.

    >>> pack([Block("a", 256, 0, 1), Block("b", 512, 1, 2), Block("c", 256, 2, 3)])
    Packed(offsets={'b': 0, 'a': 512, 'c': 512}, nbytes=768)
    """
    placed: list[tuple[int, Block[K]]] = []  # (start, block), ordered by start
    begin, end = (
        min((one.first for one in blocks), default=0),
        max((one.last for one in blocks), default=0),
    )
    for block in sorted(blocks, key=lambda one: ((one.first, one.last) != (begin, end), -one.nbytes)):
        near = [(at, of) for at, of in placed if of.first <= block.last and block.first <= of.last]
        insort(placed, (_start(block, near), block), key=lambda one: one[0])
    ends = (start + aligned(block.nbytes) for start, block in placed)
    return Packed({block.key: start for start, block in placed}, max(ends, default=0))


def _start(block: Block[K], near: Sequence[tuple[int, Block[K]]]) -> int:
    """The lowest start for a block among the blocks that live at the same time."""
    for start, of in near:
        if block.key == of.takes or (block.takes is not None and block.takes == of.key):
            end = start + aligned(block.nbytes)
            others = [(at, one) for at, one in near if one is not of]
            if all(end <= at or at + aligned(one.nbytes) <= start for at, one in others):
                return start
    start = 0
    for other, of in near:
        if start + block.nbytes <= other:
            break
        start = max(start, other + aligned(of.nbytes))
    return start
