"""A heap inside one allocation of a device: first fit, with merging (BLASX, section IV.E and figure 6)."""

from __future__ import annotations

from bisect import bisect_left, insort

from gpu.blas3.policy_error import PolicyError


class Heap:
    """Segments of one allocation, of sizes rounded up to a multiple of ``alignment``.

    >>> heap = Heap(1024)
    >>> heap.allocate(300), heap.allocate(300), heap.allocate(1)
    (0, 512, None)
    >>> heap.free(0)
    >>> heap.free(512)
    >>> heap.empty
    [(0, 1024)]
    """

    def __init__(self, nbytes: int, alignment: int = 256) -> None:
        self.alignment = alignment
        nbytes -= nbytes % alignment
        self.empty: list[tuple[int, int]] = [(0, nbytes)] if nbytes else []
        """Offset and length of each free segment, by offset; no two are neighbours."""
        self.occupied: dict[int, int] = {}
        """The length of each segment in use, by its offset."""

    def allocate(self, nbytes: int) -> int | None:
        """The offset of a new segment, in the first free one that is large enough; None if there is none."""
        needed = -(-max(nbytes, 1) // self.alignment) * self.alignment
        for index, (offset, length) in enumerate(self.empty):
            if length >= needed:
                rest = [(offset + needed, length - needed)] if length > needed else []
                self.empty[index : index + 1] = rest
                self.occupied[offset] = needed
                return offset
        return None

    def free(self, offset: int) -> None:
        """Return a segment, and merge it with free neighbours."""
        length = self.occupied.pop(offset, None)
        if length is None:
            raise PolicyError(
                f"offset {offset} of the device heap is freed\nit is not in use\nfree each segment once"
            )
        index = bisect_left(self.empty, (offset, 0))
        if index < len(self.empty) and self.empty[index][0] == offset + length:
            length += self.empty.pop(index)[1]
        if index and sum(self.empty[index - 1]) == offset:
            offset, before = self.empty.pop(index - 1)
            length += before
        insort(self.empty, (offset, length))
