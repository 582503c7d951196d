"""A model of an mbarrier: the state after each operation (PTX ISA 9.7.13.15).

>>> barrier = Barrier()
>>> barrier.make(2)
>>> barrier.arrive(1, "%s0"), barrier.passed("%s0")
(2, False)
>>> barrier.transact(16)  # the phase waits for an arrival and 16 bytes
>>> barrier.arrive(1)
1
>>> barrier.phase
0
>>> barrier.transact(-16)
>>> barrier.phase, barrier.pending, barrier.passed("%s0")
(1, 2, True)
"""

from __future__ import annotations

from dataclasses import dataclass, field

MOST = (1 << 20) - 1
"""The largest count of arrivals, and of bytes, that a barrier holds."""


@dataclass(kw_only=True)
class Barrier:
    """A model of an mbarrier: its pending arrivals and bytes, and its phase."""

    expected: int = 0  # arrivals that complete each phase
    pending: int = 0  # arrivals that are missing from the current phase
    # bytes missing from the phase (tx-count); negative if more bytes arrived than were announced
    bytes: int = 0
    phase: int = 0
    states: dict[str, int] = field(default_factory=dict[str, int])
    """By name, the phase of a state that an arrival returned."""

    def make(self, count: int) -> None:
        """Set the counts to those after ``mbarrier.init``."""
        self.expected = self.pending = count
        self.bytes = self.phase = 0
        self.states.clear()

    def arrive(self, count: int, state: str = "", *, drops: bool = False, expects: int = 0) -> int:
        """Count arrivals, which may also drop out or announce bytes; return the pending count before them."""
        before = self.pending
        if state:
            self.states[state] = self.phase
        if drops:
            self.expected -= count
        self.bytes += expects
        self.pending -= count
        assert self.pending >= 0
        self._advance()
        return before

    def transact(self, count: int) -> None:
        """Change the expected bytes; a negative count is of bytes that arrived."""
        self.bytes += count
        self._advance()

    def _advance(self) -> None:
        """Begin the next phase if neither arrivals nor bytes are pending."""
        if not self.pending and not self.bytes:
            self.pending, self.phase = self.expected, self.phase + 1

    @property
    def room(self) -> int:
        """The arrivals that the phase accepts now; one is held back while bytes arrived unannounced."""
        return self.pending - (self.bytes < 0)

    @property
    def testable(self) -> list[str]:
        """The states of the current and of the previous phase; only these may be tested."""
        return [state for state, phase in self.states.items() if phase >= self.phase - 1]

    def passed(self, state: str) -> bool:
        """True if the phase of a state is complete."""
        return self.states[state] < self.phase

    def passed_parity(self, parity: int) -> bool:
        """True if the latest phase with a parity is complete."""
        return parity != self.phase % 2
