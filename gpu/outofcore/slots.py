"""Buffers of one tensor's pieces: the least recently used one is filled next."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from gpu.machine import Event
from gpu.outofcore.pieces import Piece


@dataclass(eq=False)
class Slot:
    """A device buffer for one piece of a tensor."""

    offset: int  # bytes from the start of the call's memory
    filled: Event | None = None  # the copy that fills the slot
    used: Event | None = None  # the last operation queued on the slot; the next copy waits for it


class Slots:
    """The buffers of one tensor.

    >>> slots, (a, b) = Slots(0, 2, 256), (Piece("y", range(n, n + 1), range(4)) for n in range(2))
    >>> [slots.next(piece).offset for piece in (a, b, a)]
    [0, 256, 0]
    >>> slots.find(b).offset, slots.find(a).offset
    (256, 0)
    """

    def __init__(self, offset: int, count: int, nbytes: int, *, reuses: bool = True) -> None:
        self._reuses = reuses  # False: a piece is never found again
        self._empty = [Slot(offset + index * nbytes) for index in reversed(range(count))]
        self._held: OrderedDict[object, Slot] = OrderedDict()

    @property
    def first(self) -> Slot:
        """The buffer that the first piece is copied to."""
        return self._empty[-1]

    def find(self, piece: Piece) -> Slot | None:
        """The buffer that holds a piece, made the most recently used one; None if there is none."""
        if piece not in self._held:
            return None
        self._held.move_to_end(piece)
        return self._held[piece]

    def next(self, piece: Piece) -> Slot:
        """The buffer that a piece is to be put in."""
        slot = self._empty.pop() if self._empty else self._held.popitem(last=False)[1]
        self._held[piece if self._reuses else slot] = slot
        return slot
