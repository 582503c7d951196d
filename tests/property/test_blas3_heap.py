"""The device heap against a set of bytes."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from gpu.blas3.heap import Heap

UNITS = 24


class HeapMachine(RuleBasedStateMachine):
    """Each byte is free or in one segment; a request fails only if no gap is long enough."""

    segments = Bundle("segments")

    def __init__(self) -> None:
        super().__init__()
        self.heap = Heap(UNITS * 8 + 5, alignment=8)
        self.owner: list[int | None] = [None] * UNITS

    def gaps(self) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for unit, owner in enumerate(self.owner):
            if owner is None and found and sum(found[-1]) == unit:
                found[-1] = found[-1][0], found[-1][1] + 1
            elif owner is None:
                found.append((unit, 1))
        return found

    @rule(target=segments, nbytes=st.integers(0, 60))
    def allocate(self, nbytes: int) -> int | None:
        units = -(-max(nbytes, 1) // 8)
        fitting = [start for start, length in self.gaps() if length >= units]
        offset = self.heap.allocate(nbytes)
        assert offset == (fitting[0] * 8 if fitting else None)
        if offset is not None:
            self.owner[offset // 8 : offset // 8 + units] = [offset] * units
        return offset

    @rule(offset=consumes(segments))
    def free(self, offset: int | None) -> None:
        if offset is not None:
            self.heap.free(offset)
            self.owner = [None if owner == offset else owner for owner in self.owner]

    @invariant()
    def free_segments_are_the_gaps(self) -> None:
        assert self.heap.empty == [(start * 8, length * 8) for start, length in self.gaps()]


TestHeap = HeapMachine.TestCase
TestHeap.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
