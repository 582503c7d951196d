"""Blocks of memory with lifetimes, packed into one slab: those that live at the same time do not overlap."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from gpu.outofcore.workspace import aligned

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Block(Generic[K]):
    """A block.

    Attributes
    ----------
    key : hashable
    nbytes : int
    first, last : int
        The times between which it lives, both included.
    """

    key: K
    nbytes: int
    first: int
    last: int


class Packed(NamedTuple, Generic[K]):
    """Where blocks start, and the bytes of all."""

    offsets: dict[K, int]
    nbytes: int


def pack(blocks: Sequence[Block[K]]) -> Packed[K]:
    """Put blocks, the largest first, where the first gap is between those that live at the same time.

    >>> pack([Block("a", 256, 0, 1), Block("b", 512, 1, 2), Block("c", 256, 2, 3)])
    Packed(offsets={'b': 0, 'a': 512, 'c': 512}, nbytes=768)
    """
    placed: list[tuple[int, Block[K]]] = []
    for block in sorted(blocks, key=lambda one: -one.nbytes):
        start = 0
        for other, of in placed:  # in the order of their starts
            if of.first <= block.last and block.first <= of.last:
                if start + block.nbytes <= other:
                    break
                start = max(start, other + aligned(of.nbytes))
        placed.append((start, block))
        placed.sort(key=lambda one: one[0])
    ends = (start + aligned(block.nbytes) for start, block in placed)
    return Packed({block.key: start for start, block in placed}, max(ends, default=0))
