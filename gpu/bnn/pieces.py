"""Images of the host in pieces: one comes to the device while another runs and the answer to a third goes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from gpu.bnn.images import can_be_strange, refuse_strange
from gpu.bnn.plan import IMAGES
from gpu.device import Array, Device
from reference.types.network import Answer, Input

AT_ONCE = 3
"""Pieces that are on their way together."""

MOST_KEPT = 8
"""Batches and pieces, by size and place, whose buffers are kept."""

Made = TypeVar("Made")


@dataclass(eq=False)
class Batch:
    """Images on the device, and after their second run its launches as a graph."""

    images: Array
    graph: Any = None
    answer: Any = None


class _Place:
    """What a piece of some size takes: arrays of the device, page-locked ones of the host, and events.

    Attributes
    ----------
    came, ran, returned : Event
        The images are on the device; the launches have read them; the answer is on the host.
    staged : array, optional
        Page-locked copy of images that are not.
    answer : Answer, optional
        On the host.
    flag : array of one int32
        The device's flag of images, after the launches.
    """

    def __init__(self, device: Device, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.batch = Batch(device.allocate(shape, dtype, IMAGES))
        self.came, self.ran, self.returned = device.event(), device.event(), device.event()
        self.ran.record()  # behind all work that had this memory before
        self.staged: npt.NDArray[Any] | None = None
        self.answer: Any = None
        self.flag = device.pinned((1,), np.int32)


@dataclass(eq=False)
class _Piece:
    """Images on their way, of which the first has a number for errors."""

    images: npt.NDArray[Any]
    first: int
    key: Hashable
    place: _Place = field(repr=False)


class Pieces:
    """The way of images through a device, in three streams: copies there, launches, copies back.

    Launches are in the device's own stream. A launch waits for its images; a copy there waits for the
    launches that read what it overwrites; a copy back waits for the launches that make it. A place is taken
    again when the host has its answer.
    """

    def __init__(self, device: Device, given: Input, flag: Array) -> None:
        self._device, self._input, self._flag = device, given, flag
        self._there, self._back = device.stream(independent=True), device.stream(independent=True)
        self._places: dict[Hashable, _Place] = {}
        self._taken: set[Hashable] = set()

    def answers(
        self, pieces: Iterable[tuple[npt.NDArray[Any], int]], run: Callable[[Batch], Answer]
    ) -> Generator[Answer]:
        """The answer to each piece, in order, on the host; the next one may overwrite it.

        A piece comes with the number of its first image. However it ends, nothing is on its way behind it.
        """
        waiting: deque[_Piece] = deque()
        try:
            for images, first in pieces:
                waiting.append(self._piece(images, first))
                self._start(waiting[-1], run)
                if len(waiting) == AT_ONCE:
                    yield self._finished(waiting[0])
                    self._taken.discard(waiting.popleft().key)
            while waiting:
                yield self._finished(waiting[0])
                self._taken.discard(waiting.popleft().key)
        except BaseException:
            self._abandon(waiting)
            raise

    def _piece(self, images: npt.NDArray[Any], first: int) -> _Piece:
        """A piece with a place that no other has."""
        dtype = images.dtype.newbyteorder("=")
        keys = ((images.shape[0], dtype, number) for number in count())
        key = next(key for key in keys if key not in self._taken)
        place = kept(self._places, key, lambda: _Place(self._device, images.shape, dtype))
        self._taken.add(key)
        return _Piece(images, first, key, place)

    def _start(self, piece: _Piece, run: Callable[[Batch], Answer]) -> None:
        """Queue the copies and launches of one piece of the batch."""
        place = piece.place
        source = self._page_locked(piece)
        place.ran.wait(self._there)
        place.batch.images.upload(source, self._there)
        place.came.record(self._there)
        place.came.wait()
        answer = run(place.batch)
        place.ran.record()
        place.ran.wait(self._back)
        if place.answer is None:
            place.answer = Answer(*(self._device.pinned(each.shape, each.dtype) for each in answer))
        for there, here in zip(answer, place.answer, strict=True):
            there.copy_to(here, self._back)
        if can_be_strange(self._input, piece.images):
            self._flag.copy_to(place.flag, self._back)
        place.returned.record(self._back)

    def _page_locked(self, piece: _Piece) -> npt.NDArray[Any]:
        """The images in page-locked memory, where they are or as a copy."""
        images, place = piece.images, piece.place
        native = images.dtype.isnative and images.flags.c_contiguous
        if native and self._device.is_pinned(images):
            return images
        if place.staged is None:
            place.staged = self._device.pinned(images.shape, place.batch.images.dtype)
        np.copyto(place.staged, images)
        return place.staged

    def _finished(self, piece: _Piece) -> Answer:
        """The answer to a piece; raises for a number of its images that is refused."""
        place = piece.place
        place.returned.synchronize()
        if can_be_strange(self._input, piece.images) and place.flag[0]:  # by this piece or one behind it
            refuse_strange(self._input, piece.images, piece.first)
        return place.answer

    def _abandon(self, waiting: Iterable[_Piece]) -> None:
        """Wait until nothing is on its way; nobody will ask for these answers."""
        for piece in waiting:
            self._taken.discard(piece.key)
        self._there.synchronize()
        self._device.wait()
        self._back.synchronize()
        if any(can_be_strange(self._input, piece.images) for piece in waiting):
            self._flag.upload(np.zeros(1, np.int32))


def kept(known: dict[Any, Made], key: Hashable, make: Callable[[], Made]) -> Made:
    """``known[key]``, made at the first request; few are kept."""
    made = known.get(key)
    if made is None:
        made = make()
        while len(known) >= MOST_KEPT:
            del known[next(iter(known))]
        known[key] = made
    return made
