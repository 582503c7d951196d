"""The devices that have copies of each host block: the protocol MESI-X (BLASX, section IV.B and figure 3).

I: no device has a copy. E: one device has. S: several have. M: one device has written the block, and its
write-back has not ended; until then no other device may read the block, not even from the host. M ends as I,
or as E if the writer keeps its copy.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, Literal, TypeAlias, TypeVar

from gpu.blas3.policy_error import PolicyError

State: TypeAlias = Literal["M", "E", "S", "I"]
Key = TypeVar("Key", bound=Hashable)


class Directory(Generic[Key]):
    """The holders of all blocks.

    >>> directory = Directory()
    >>> directory.read("B00", 0), directory.read("B00", 1), directory.state("B00")
    (None, None, 'S')
    >>> sorted(directory.write("B00", 1)), directory.state("B00")
    ([0, 1], 'M')
    >>> directory.written("B00"), directory.state("B00")
    (None, 'I')
    """

    def __init__(self) -> None:
        self._holders: dict[Key, set[int]] = {}
        self._writers: dict[Key, int] = {}

    def state(self, key: Key) -> State:
        """The coherence state of a block's copies."""
        if key in self._writers:
            return "M"
        return ("I", "E", "S")[min(len(self.holders(key)), 2)]

    def holders(self, key: Key) -> frozenset[int]:
        """The devices that hold a copy of the block."""
        return frozenset(self._holders.get(key, ()))

    def read(self, key: Key, device: int) -> None:
        """A device gets a copy, from a peer or from the host."""
        writer = self._writers.get(key, device)
        if writer != device:
            raise PolicyError(
                f"device {device} reads {key}\ndevice {writer} has not written it back\n"
                "wait for the write-back"
            )
        self._holders.setdefault(key, set()).add(device)

    def evicted(self, key: Key, device: int) -> None:
        """Note that a device has evicted its copy of a block."""
        holders = self._holders.get(key, set())
        if device not in holders:
            raise PolicyError(f"device {device} evicts {key}\nit has no copy\nevict each copy once")
        holders.remove(device)
        if not holders:
            del self._holders[key]

    def write(self, key: Key, device: int) -> frozenset[int]:
        """A device writes the block: all copies are void. Returns the devices that must drop theirs."""
        if key in self._writers:
            raise PolicyError(
                f"device {device} writes {key}\ndevice {self._writers[key]} is writing it\n"
                "wait for the write-back"
            )
        self._writers[key] = device
        return frozenset(self._holders.pop(key, ()))

    def written(self, key: Key) -> None:
        """Note that a block's write-back to the host has ended."""
        if self._writers.pop(key, None) is None:
            raise PolicyError(f"the write-back of {key} has ended\nnobody has written it\nwrite first")
