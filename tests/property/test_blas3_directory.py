"""The directory MESI-X against the copies of three devices and their contents."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gpu.blas3.directory import Directory
from gpu.blas3.policy_error import PolicyError

KEYS = ("x", "y")
DEVICES = st.integers(0, 2)


class DirectoryMachine(RuleBasedStateMachine):
    """A read that the directory allows never gets an old version."""

    def __init__(self) -> None:
        super().__init__()
        self.directory: Directory[str] = Directory()
        self.host = dict.fromkeys(KEYS, 0)
        self.newest = dict.fromkeys(KEYS, 0)
        self.copies: dict[tuple[str, int], int] = {}
        self.writer: dict[str, int] = {}

    @rule(key=st.sampled_from(KEYS), device=DEVICES)
    def read(self, key: str, device: int) -> None:
        if (key, device) in self.copies:
            return
        if self.writer.get(key, device) != device:
            with pytest.raises(PolicyError):
                self.directory.read(key, device)
            return
        holders = self.directory.holders(key)
        self.directory.read(key, device)
        got = {self.copies[key, holder] for holder in holders} or {self.host[key]}
        if key in self.writer:  # the writer keeps what it has written
            got = {self.newest[key]}
        assert got == {self.newest[key]}
        self.copies[key, device] = self.newest[key]

    @rule(key=st.sampled_from(KEYS), device=DEVICES)
    def evict(self, key: str, device: int) -> None:
        if self.copies.pop((key, device), None) is None:
            with pytest.raises(PolicyError):
                self.directory.evicted(key, device)
        else:
            self.directory.evicted(key, device)

    @rule(key=st.sampled_from(KEYS), device=DEVICES)
    def write(self, key: str, device: int) -> None:
        if key in self.writer:
            with pytest.raises(PolicyError):
                self.directory.write(key, device)
            return
        dropped = self.directory.write(key, device)
        assert dropped == {holder for other, holder in self.copies if other == key}
        self.copies = {at: version for at, version in self.copies.items() if at[0] != key}
        self.newest[key] += 1
        self.writer[key] = device

    @rule(key=st.sampled_from(KEYS))
    def write_back(self, key: str) -> None:
        if self.writer.pop(key, None) is None:
            with pytest.raises(PolicyError):
                self.directory.written(key)
        else:
            self.directory.written(key)
            self.host[key] = self.newest[key]

    @invariant()
    def states_are_those_of_the_copies(self) -> None:
        for key in KEYS:
            holders = {device for other, device in self.copies if other == key}
            assert self.directory.holders(key) == holders
            state = "M" if key in self.writer else "IESS"[len(holders)]
            assert self.directory.state(key) == state
            assert all(self.copies[key, device] == self.newest[key] for device in holders)


TestDirectory = DirectoryMachine.TestCase
TestDirectory.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
