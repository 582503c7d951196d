"""The records of a lane on two devices, read side by side up to the first one that differs.

Addresses differ between devices. A value that differs by as much as the addresses of an array (or of a
variable, or of a state space) is the same address. What is computed from an address in another way is not
compared, and neither is what is computed from a clock, from a place on the chip, or from what the simulator
knows to be undefined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simwarp.lanes import WARP_SIZE
from simwarp.observe.fidelity import reads_the_chip
from simwarp.program.liveness import registers_in
from simwarp.ptx.syntax import Symbol
from simwarp.run.both.devices import Words
from simwarp.run.both.instrument import COUNTS, EXECUTED, HEADER, PART, Part, Point

_WORD = (1 << 64) - 1
_KEEPS = {"displace", "move", "convert", "generic", "remote"}
"""Traits of rows whose result is an address if an operand is one."""
_OF_DRIVER = ("%envreg", "%reserved_smem", "%total_smem", "%aggr_smem", "%current_graph")
"""Special registers with addresses and sizes that the driver chooses."""
_NEW = {"generic", "remote"}
"""Traits of rows that make an address in another state space."""


@dataclass(frozen=True)
class Window:
    """The records of a warp from one launch: of each lane those from ``first`` on, and how many it has."""

    first: int
    counts: npt.NDArray[np.uint64]  # (32,), records of the whole launch
    records: npt.NDArray[np.uint64]  # (32, many, 2)

    @classmethod
    def of(cls, words: Words, first: int, many: int) -> Window:
        """Read a buffer."""
        records = words[HEADER:].reshape(WARP_SIZE, many, 2)
        return cls(first, words[COUNTS : COUNTS + WARP_SIZE], records)

    def lane(self, lane: int) -> npt.NDArray[np.uint64]:
        """The records of a lane: (n, 2)."""
        count = max(int(self.counts[lane]) - self.first, 0)
        return self.records[lane, : min(count, self.records.shape[1])]


class Parted(NamedTuple):
    """The first record of a lane that differs.

    ``position`` counts the lane's records; ``part`` is None where other instructions come next.
    """

    lane: int
    position: int
    what: str
    point: Point
    part: Part | None
    simulator: int | None
    other: int | None
    iteration: int


class Lane:
    """The two records of one lane, window by window; ``parted`` is their first difference."""

    def __init__(self, lane: int, points: Sequence[Point], differences: set[int]) -> None:
        self.lane, self.points = lane, points
        self.differences = differences  # of addresses on the two devices; it grows
        self.parted: Parted | None = None
        self.last: Point | None = None  # that both executed
        self.executed: Counter[int] = Counter()
        self.positions: dict[int, list[int]] = {}  # of an instruction's executions
        self.position = 0
        self._state: dict[tuple[str, str], str] = {}  # "address" or "unknown"; else equal
        self._strays = False  # after a branch that depends on something unknown

    def read(self, here: Any, there: Any, undefined: npt.NDArray[np.bool_], whole: tuple[int, int]) -> None:
        """Read the records of a window; ``whole`` are the numbers of records of the two launches."""
        both = min(len(here), len(there))
        for i in range(both):
            self._record(here[i], there[i], bool(undefined[i]))
            if self.parted is not None:
                return
        if len(here) != len(there) or (self.position == min(whole) and whole[0] != whole[1]):
            ahead = here if len(here) > both else there
            following = self._line(int(ahead[both][0])) if len(ahead) > both else None
            lines = (following, None) if ahead is here else (None, following)
            self._part("path", self.last or self.points[0], None, *lines)

    def _record(self, here: Any, there: Any, undefined: bool) -> None:
        (first, value), (other_first, other) = (tuple(map(int, record)) for record in (here, there))
        number, part_number = first & (1 << EXECUTED) - 1, first >> PART
        point = self.points[number]
        mask = ~(1 << EXECUTED)
        if first & mask != other_first & mask:
            lines = self._line(first), self._line(other_first)
            self._part("path", self.last or point, None, *lines)
            return
        part, executed = point.parts[part_number], first >> EXECUTED & 1
        if part_number == 0:
            self.last = point
            if executed:
                self.positions.setdefault(number, []).append(self.position)
        if executed != other_first >> EXECUTED & 1:
            if self._is("unknown", point, (point.guard,)):
                self._set(point, "unknown")
            else:
                self._part("guard", point, part, int(executed), 1 - int(executed))
                return
        elif executed:
            self._value(point, part, value, other, undefined)
        if self.parted is None:
            self.position += 1
            if part_number == len(point.parts) - 1:
                self.executed[number] += executed

    def _value(self, point: Point, part: Part, here: int, there: int, undefined: bool) -> None:
        """Compare a value, and note whether its register now holds an address, or something unknown."""
        found = self._found(point, part, here, there, undefined)
        if found == "different":
            self._part(part.what, point, part, here, there)
        elif part.what == "register":
            self._put(point.function, part.name, found)

    def _found(self, point: Point, part: Part, here: int, there: int, undefined: bool) -> str:
        """What a value is: "" for the same, "address", "unknown" or "different"."""
        if undefined:
            return "unknown"
        if here == there:
            return ""
        if part.what in ("address", "stored", "taken"):
            if self._is("unknown", point, (part.name,)):
                self._strays |= part.what == "taken"
                return "unknown"
            return "address" if self._differs_as_addresses(part, here, there) else "different"
        reads = point.reads | point.address_registers | {point.guard}
        if self._is("unknown", point, reads) or _reads_the_machine(point):
            return "unknown"
        if self._differs_as_addresses(part, here, there):
            return "address"
        traits = point.row.traits if point.row is not None else frozenset[str]()
        if traits & _NEW or any(isinstance(o, Symbol) for o in point.instruction.operands[1:]):
            self.differences.add((there - here) & _WORD)
            return "address"
        if self._is("address", point, point.reads) and not traits & _KEEPS:
            return "unknown"
        return "different"

    def _differs_as_addresses(self, part: Part, here: int, there: int) -> bool:
        """Whether two values differ by as much as addresses do on the two devices, within the register."""
        word = {"b32": 1 << 32, "u32": 1 << 32, "s32": 1 << 32}.get(part.type, 1 << 64)
        return part.type not in ("pred", "") and any((there - here - d) % word == 0 for d in self.differences)

    def _is(self, state: str, point: Point, names: Iterable[str]) -> bool:
        return any(self._state.get((point.function, name)) == state for name in names)

    def _put(self, function: str, name: str, state: str) -> None:
        if state:
            self._state[function, name] = state
        else:
            self._state.pop((function, name), None)

    def _set(self, point: Point, state: str) -> None:
        for name in point.writes:
            self._put(point.function, name, state)

    def _line(self, first: int) -> int:
        return self.points[first & (1 << EXECUTED) - 1].instruction.line

    def _part(self, what: str, point: Point, part: Part | None, here: int | None, there: int | None) -> None:
        iteration = self.executed[point.number] - (1 if what == "path" else 0)
        what = "lost" if what == "path" and self._strays else what
        self.parted = Parted(self.lane, self.position, what, point, part, here, there, max(iteration, 0))


def _reads_the_machine(point: Point) -> bool:
    """Whether an instruction reads a clock, a place on the chip, or what the driver alone decides."""
    names = registers_in(point.instruction.operands[1:])
    return reads_the_chip(point.instruction) or any(name.startswith(_OF_DRIVER) for name in names)


def differences_of(here: dict[int, int], there: dict[int, int]) -> set[int]:
    """How much addresses differ on the two devices, those of arrays and of the distances between arrays."""
    each = {(there[position] - address) & _WORD for position, address in here.items()}
    return each | {(x - y) & _WORD for x in each for y in each if x != y}
