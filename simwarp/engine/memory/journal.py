"""Records the changes of memory while an endless loop is suspected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from simwarp.engine.state import Chunk
    from simwarp.memory import Memory
    from simwarp.program.program import Step

_LONGEST = 1 << 20
"""Most bytes that the journal holds."""

Addresses = npt.NDArray[np.uint64]
_Bytes = npt.NDArray[np.uint8]


class Write:
    """The bytes that lanes wrote together, perhaps often, and their values before the first time."""

    def __init__(self, memory: Memory, addresses: Addresses, width: int) -> None:
        self.memory, self.bytes = memory, _bytes_of(addresses, width)
        self.before = self.now()
        self.changed = False
        """Whether any of these writes changed a value, as far as it is known."""
        self.steps: set[int] = set()
        """The steps that wrote them; -1 for an asynchronous operation."""

    def compare(self, old: npt.NDArray[Any], new: npt.NDArray[Any]) -> None:
        """Record whether overwriting old values with new ones changes any."""
        self.changed |= old.tobytes() != new.tobytes()

    def now(self) -> _Bytes:
        """(n,) uint8: the current values of the written bytes."""
        return self.memory.read(self.bytes, np.dtype(np.uint8))


class Journal:
    """The changes of memory since the journal began, and what some loads read.

    Attributes
    ----------
    full : bool
        Whether there were too many to remember.
    timed : bool
        Whether a counter such as ``%clock`` was read: the loop may wait for time to pass.
    loads : frozenset of int
        The steps whose loads are recorded.
    reads : dict
        What these loads read: memory, width and addresses.
    went : (warps, 32) bool
        The lanes of the chunk that have gone around a loop.
    """

    def __init__(self, went: npt.NDArray[np.bool_], loads: frozenset[int] = frozenset()) -> None:
        self.loads, self.went = loads, np.zeros_like(went)
        self.full = self.timed = False
        self._writes: dict[tuple[int, int, bytes], Write] = {}
        self.reads: dict[tuple[int, int, bytes], Memory] = {}
        self._size = 0

    def note(
        self, memory: Memory, addresses: Addresses, width: int, step: Step | None = None, data: Any = None
    ) -> Write | None:
        """Record that bytes are about to be overwritten; ``data`` is the new value if it is known."""
        if self.full or not addresses.size:
            return None
        memory = memory.whole
        key = id(memory), width, addresses.tobytes()
        write = self._writes.get(key)
        if write is None:
            write = self._writes[key] = Write(memory, addresses, width)
            self._grow(addresses.size * width)
        write.steps.add(-1 if step is None else step.number)
        # an atomic operation reads the bytes that it writes
        if step is not None and step.number in self.loads:
            self.read(memory, addresses, width)
        if data is not None and not write.changed:
            write.compare(memory.read(addresses, data.dtype), data)
        return write

    def read(self, memory: Memory, addresses: Addresses, width: int) -> None:
        """Record the bytes that a load reads, if its step is in ``loads``."""
        key = id(memory.whole), width, addresses.tobytes()
        if not self.full and key not in self.reads:
            self.reads[key] = memory.whole
            self._grow(addresses.size * width)

    def go(self, chunk: Chunk) -> None:
        """Record that the executing lanes go around a loop."""
        self.went[chunk.warp[:, 0]] |= chunk.mask

    def is_as_before(self) -> bool:
        """Whether all changed bytes have their old values again; False if that is unknown."""
        return not self.full and not self.timed and _as_before(list(self._writes.values()))

    def writers_of_reads(self, private: Memory) -> tuple[set[int], bool]:
        """The steps that wrote bytes that loads read, and whether any such byte ever changed.

        In ``private`` memory, which only the lane itself can write, values may change and return.
        """
        read: dict[int, list[Addresses]] = {}
        for memory, width, addresses in self.reads:
            read.setdefault(memory, []).append(_bytes_of(np.frombuffer(addresses, np.uint64), width))
        together = {memory: np.unique(np.concatenate(parts)) for memory, parts in read.items()}
        relevant = [
            write
            for (memory, _, _), write in self._writes.items()
            if memory in together and np.isin(write.bytes, together[memory]).any()
        ]
        own = [write for write in relevant if write.memory is private]
        changed = any(write.changed or -1 in write.steps for write in relevant if write.memory is not private)
        steps = set[int]().union(*(write.steps for write in relevant))
        return steps, changed or not _as_before(own)

    def _grow(self, size: int) -> None:
        self._size += size
        self.full = self._size > _LONGEST


def _as_before(writes: list[Write]) -> bool:
    """Whether all bytes have the values from before these writes, which are in order of time."""
    # if several writes hit a byte, only the first one saw its old value
    for number, write in enumerate(writes):
        other = write.bytes[write.before != write.now()]
        for earlier in writes[:number] if other.size else ():
            if earlier.memory is write.memory:
                other = other[~np.isin(other, earlier.bytes)]
        if other.size:
            return False
    return True


def _bytes_of(addresses: Addresses, width: int) -> Addresses:
    """The address of each byte of accesses, each once."""
    return np.unique(addresses[:, None] + np.arange(width, dtype=np.uint64))
