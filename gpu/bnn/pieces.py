"""Host images in pieces: the copy of one, the run of another, and the answer of a third overlap."""

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
    """Images on the device; from their second run on, with a graph of the launches."""

    images: Array
    graph: Any = None
    answer: Any = None


class _Place:
    """The resources of a piece: device arrays, page-locked host arrays, and events.

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
        self.ran.record()  # after all earlier work on this memory
        self.staged: npt.NDArray[Any] | None = None
        self.answer: Any = None
        self.flag = device.pinned((1,), np.int32)


@dataclass(eq=False)
class _Piece:
    """A piece in progress, with the number of its first image for errors."""

    images: npt.NDArray[Any]
    first: int
    key: Hashable
    place: _Place = field(repr=False)


class Pieces:
    """Runs pieces of images in three streams: copies to the device, launches, copies back.

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
        """Yield the answer to each piece in order, on the host; it is valid until the next one.

        A piece comes with the number of its first image. All work has ended when the generator ends, also
        after an error.
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
        """A piece whose resources no other piece uses."""
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
        """The images in page-locked memory, either in place or as a copy."""
        images, place = piece.images, piece.place
        native = images.dtype.isnative and images.flags.c_contiguous
        if native and self._device.is_pinned(images):
            return images
        if place.staged is None:
            place.staged = self._device.pinned(images.shape, place.batch.images.dtype)
        np.copyto(place.staged, images)
        return place.staged

    def _finished(self, piece: _Piece) -> Answer:
        """The answer to a piece; raises if one of its images has a refused number."""
        place = piece.place
        place.returned.synchronize()
        # the flag was set by this piece or by a later one
        if can_be_strange(self._input, piece.images) and place.flag[0]:
            refuse_strange(self._input, piece.images, piece.first)
        return place.answer

    def _abandon(self, waiting: Iterable[_Piece]) -> None:
        """Wait for all pieces in progress, and drop their answers."""
        for piece in waiting:
            self._taken.discard(piece.key)
        self._there.synchronize()
        self._device.wait()
        self._back.synchronize()
        if any(can_be_strange(self._input, piece.images) for piece in waiting):
            self._flag.upload(np.zeros(1, np.int32))


def kept(known: dict[Any, Made], key: Hashable, make: Callable[[], Made]) -> Made:
    """Return ``known[key]``, or make it; the cache holds few entries."""
    made = known.get(key)
    if made is None:
        made = make()
        while len(known) >= MOST_KEPT:
            del known[next(iter(known))]
        known[key] = made
    return made
