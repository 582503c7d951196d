"""Timelines of a machine, simulated or real: each operation with its start and end, and sums of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple, overload

from reference.values import shortened


@shortened
@dataclass(frozen=True, slots=True)
class Record:
    """A copy or a routine that has ended.

    Attributes
    ----------
    device : int
    peer : int
        The device that a "peer" copy read; -1 for all others.
    stream : int
    kind : str
        "in", "out", "peer" or "routine".
    name : str
    nbytes : int
        Of a copy.
    start, end : float
        In seconds of the machine's clock.
    operations : float
        Floating-point operations of a routine.
    """

    device: int
    peer: int
    stream: int
    kind: Literal["in", "out", "peer", "routine"]
    name: str
    nbytes: int
    start: float
    end: float
    operations: float


class Profile(NamedTuple):
    """The time of a device, divided as in the paper on BLASX.

    Attributes
    ----------
    compute : float
        Seconds in which a routine ran (COMPT).
    communication : float
        Seconds in which a copy of the device and no routine ran (COMM).
    other : float
        The remaining seconds (OTHER).
    """

    compute: float
    communication: float
    other: float


class Timeline(Sequence[Record]):
    """The records of a machine, sorted by their ends.

    Examples
    --------
    >>> timeline = Timeline()
    >>> timeline.append(Record(0, -1, 0, "in", "copy in", 4000, 0.0, 2.0, 0.0))
    >>> timeline.append(Record(0, -1, 1, "routine", "gemm", 0, 1.0, 4.0, 1e6))
    >>> timeline.nbytes("in"), timeline.seconds, timeline.busy(0)
    (4000, 4.0, 3.0)
    >>> timeline.profile(0)
    Profile(compute=3.0, communication=1.0, other=0.0)
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._records = list(records)

    def append(self, record: Record) -> None:
        """Append a record to the timeline."""
        self._records.append(record)

    def clear(self) -> None:
        """Remove all records from the timeline."""
        self._records.clear()

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        return self._records[index]

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records)

    @property
    def seconds(self) -> float:
        """The seconds from the first start to the last end."""
        if not self._records:
            return 0.0
        return max(one.end for one in self) - min(one.start for one in self)

    def nbytes(self, kind: str, device: int | None = None) -> int:
        """The bytes of all copies of one kind, on one device or on all."""
        return sum(one.nbytes for one in self if one.kind == kind and device in (None, one.device))

    def operations(self, device: int | None = None) -> float:
        """The floating-point operations of all routines, of one device or of all."""
        return sum(one.operations for one in self if device in (None, one.device))

    def busy(self, device: int) -> float:
        """The seconds in which a routine of a device ran."""
        return _length(_union((one.start, one.end) for one in self._of(device) if one.kind == "routine"))

    def profile(self, device: int) -> Profile:
        """The time of a device, split into computing, communicating only, and idle."""
        compute = self.busy(device)
        active = _length(_union((one.start, one.end) for one in self._of(device)))
        return Profile(compute, active - compute, self.seconds - active)

    def to_json(self) -> str:
        """The records as a JSON array of objects."""
        return json.dumps([asdict(one) for one in self])

    @classmethod
    def from_json(cls, text: str) -> Timeline:
        """The timeline that `to_json` wrote.

        Examples
        --------
        >>> len(Timeline.from_json("[]"))
        0
        """
        return cls(Record(**one) for one in json.loads(text))

    def _of(self, device: int) -> Iterator[Record]:
        return (one for one in self if one.device == device)


def _union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Merge overlapping spans of time into disjoint ones."""
    joined: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return joined


def _length(spans: Iterable[tuple[float, float]]) -> float:
    return sum(end - start for start, end in spans)
