"""What came of holding the launches of a program against a second device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from reference.values import shortened
from simwarp.findings import Finding
from simwarp.run.both.results import Compared
from simwarp.run.both.settings import NotComparedError


@shortened
@dataclass(frozen=True)
class HeldLaunch:
    """A launch of a program that differs on the second device.

    Attributes
    ----------
    number : int
        Its number in the program, from 1 on.
    kernel : str
        The kernel's name in the source.
    compared : Compared
        The differences; writer and exactness are known for the first launch of a kernel.

    Examples
    --------
    >>> from simwarp.run import ArrayDifference
    >>> y = ArrayDifference("y", 1, 8, (3,), 1.0, 2.0, ("0x3f800000", "0x40000000"))
    >>> compared = Compared("simulator", "NVIDIA H200", ("y",), "equal bits", (y,), exactness="exact")
    >>> print(HeldLaunch(2, "scale", compared))
    launch 2, scale: NVIDIA H200 and the simulator differ
    y: 1 of 8 elements differs, the first is y[3]
    1.0 (0x3f800000) on the simulator, 2.0 (0x40000000) on the other device
    the simulator calls it exact
    """

    number: int
    kernel: str
    compared: Compared

    def __str__(self) -> str:
        other = self.compared.other
        return f"launch {self.number}, {self.kernel}: {other} and the simulator differ\n{self.compared}"

    def to_json(self) -> dict[str, Any]:
        """The launch as plain data."""
        return {"launch": self.number, "kernel": self.kernel, **self.compared.to_json()}


@shortened
@dataclass
class HeldLaunches:
    """The launches of a program, held against a second device.

    Attributes
    ----------
    other : str
        The name of the second device.
    equal : int
        The launches without a difference.
    legal : list of HeldLaunch
        Those that differ, where another schedule of the simulator gives the other device's bits.
    different : dict of str to HeldLaunch
        The first launch of each kernel that differs.
    counts : Counter of str
        How many launches of each kernel differ.
    refused : dict of str to list of int
        Why launches were not compared, and their numbers.

    Examples
    --------
    >>> held = HeldLaunches("NVIDIA H200", equal=3)
    >>> held.refuse(4, NotComparedError("sample is not compared: it reads a texture or a surface"))
    >>> print(held)
    held against NVIDIA H200: 3 launches equal, 1 not compared
    launch 4: sample is not compared: it reads a texture or a surface
    """

    other: str
    equal: int = 0
    legal: list[HeldLaunch] = field(default_factory=list[HeldLaunch])
    different: dict[str, HeldLaunch] = field(default_factory=dict[str, HeldLaunch])
    counts: Counter[str] = field(default_factory=Counter[str])
    refused: dict[str, list[int]] = field(default_factory=dict[str, list[int]])

    def add(self, launch: HeldLaunch) -> bool:
        """Add a launch with differences; True if it is the first of its kernel that differs."""
        if launch.compared.equal:
            self.legal.append(launch)
            return False
        self.counts[launch.kernel] += 1
        return self.different.setdefault(launch.kernel, launch) is launch

    def refuse(self, number: int, error: NotComparedError) -> None:
        """Add a launch that was not compared."""
        self.refused.setdefault(str(error), []).append(number)

    @property
    def findings(self) -> Iterator[Finding]:
        """The first difference of each kernel as a finding, with its count."""
        for kernel, launch in self.different.items():
            found = launch.compared.finding
            assert found is not None
            fields = {**found.fields, "launch": launch.number, "kernel": kernel}
            yield replace(found, count=self.counts[kernel], fields=fields)

    def __str__(self) -> str:
        parts = [f"{_launches(self.equal)} equal"]
        parts += [f"{len(self.legal)} one of the legal answers"] if self.legal else []
        differ = self.counts.total()
        parts += [f"{differ} {'differs' if differ == 1 else 'differ'}"] if differ else []
        refused = sum(map(len, self.refused.values()))
        parts += [f"{refused} not compared"] if refused else []
        lines = [f"held against {self.other}: {', '.join(parts)}"]
        for reason, numbers in self.refused.items():
            more = f" and {len(numbers) - 1} more" if len(numbers) > 1 else ""
            lines.append(f"launch {numbers[0]}{more}: {reason}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain data."""
        return {
            "other": self.other,
            "equal": self.equal,
            "legal": [one.to_json() for one in self.legal],
            "different": [
                {**one.to_json(), "launches": self.counts[kernel]} for kernel, one in self.different.items()
            ],
            "not_compared": [
                {"reason": reason, "launches": numbers} for reason, numbers in self.refused.items()
            ],
        }


def _launches(count: int) -> str:
    return f"{count} launch" if count == 1 else f"{count} launches"
