"""The result of a comparison of two devices: what differs, who wrote it, and how exact it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import Any

from reference.values import not_an_array, shortened
from simwarp.findings import Finding
from simwarp.places import Note, Place

_LISTED = 4
"""The most reasons that a text lists."""


@shortened
@dataclass(frozen=True)
class Parting:
    """Where two devices part: the first instruction of a thread with another result.

    Attributes
    ----------
    what : str
        "register": another value in a register; "address" or "stored": another address or value of a store;
        "taken": a branch goes another way; "guard": one device executes the instruction and the other does
        not; "path": another instruction comes next; "lost": see ``note``.
    place : Place
        The thread and the instruction; with "path" the last one that both executed.
    register, type : str
        The register with the value, and its declared type; "" without one.
    simulator, other : int or None
        The bits of the two values, or the PTX lines that come next.
    iteration : int
        How often the thread had executed the instruction before.
    executed : str
        The instruction on the other device, if that ran other PTX; else "".
    steps : tuple of Note
        The instructions with the difference that were followed back to this one, the last first.
    note : str
        What else is known; why no instruction is named.
    launches : int
        The launches on the other device.

    Examples
    --------
    >>> place = Place("k", line=5, text="add.s32 %r3, %r1, %r2;")
    >>> print(Parting("register", place, "%r3", "b32", 7, 8, launches=2))
    the devices part at line 5 `add.s32 %r3, %r1, %r2;`: kernel k
    %r3 is 0x00000007 on the simulator, 0x00000008 on the other device
    """

    what: str
    place: Place
    register: str = ""
    type: str = ""
    simulator: int | None = None
    other: int | None = None
    iteration: int = 0
    executed: str = ""
    steps: tuple[Note, ...] = ()
    note: str = ""
    launches: int = 0

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        if self.what == "lost":
            yield f"no instruction parts the devices: {self.note}"
            return
        of_thread = replace(self.place, line=None, text="", source_line=None)
        time = f", executed {self.iteration} times before" if self.iteration else ""
        yield f"the devices part at {_instruction(self.place)}: {of_thread}{time}"
        yield self._values()
        if self.executed:
            yield f"the other device executed `{self.executed}`"
        yield from (f"{step.label} {_instruction(step.place)}, {_thread(step.place)}" for step in self.steps)
        if self.note:
            yield self.note

    def _values(self) -> str:
        here, there = (self._shown(value) for value in (self.simulator, self.other))
        if self.what == "guard":
            return f"its guard holds on the {'simulator' if self.simulator else 'other device'} alone"
        if self.what == "taken":
            return f"it leaves here on the {'simulator' if self.simulator else 'other device'} alone"
        if self.what == "path":
            return f"behind it comes {here} on the simulator, {there} on the other device"
        named = {"address": "its address", "stored": f"the stored {self.register or 'literal'}"}
        return (
            f"{named.get(self.what, self.register)} is {here} on the simulator, {there} on the other device"
        )

    def _shown(self, value: int | None) -> str:
        """A value as text: the bits of a register, or a line of the PTX."""
        from simwarp.observe.trace.text import in_hex

        if self.what == "path":
            return "the end" if value is None else f"line {value}"
        if value is None:
            return "nothing"
        return str(bool(value)).lower() if self.type == "pred" else in_hex(value, self.type or "b64")


@not_an_array("pass result.outputs[name]")
@shortened
@dataclass(frozen=True)
class ArrayDifference:
    """The elements of an output that differ between two devices.

    Attributes
    ----------
    array : str
    count, size : int
        The number of elements that differ, and of all elements.
    first : tuple of int
        The index of the first one.
    simulator, other
        Its values on the two devices.
    bits : (str, str)
        Their bits, in hex.
    unwritten : bool
        Whether no thread of the launch wrote it on the simulator.

    Examples
    --------
    >>> print(ArrayDifference("y", 1, 8, (0, 3), 1.0, 2.0, ("0x3f800000", "0x40000000")))
    y: 1 of 8 elements differs, the first is y[0, 3]
    1.0 (0x3f800000) on the simulator, 2.0 (0x40000000) on the other device
    """

    array: str
    count: int
    size: int
    first: tuple[int, ...]
    simulator: Any
    other: Any
    bits: tuple[str, str]
    unwritten: bool = False

    @property
    def element(self) -> str:
        """The first element, as the source would name it."""
        return f"{self.array}[{', '.join(map(str, self.first))}]" if self.first else self.array

    @property
    def values(self) -> str:
        """The two values, in words."""
        here, there = self.bits
        nobody = ", where the launch did not write it" if self.unwritten else ""
        return (
            f"{self.simulator} ({here}) on the simulator{nobody}, {self.other} ({there}) on the other device"
        )

    def __str__(self) -> str:
        differ = "differs" if self.count == 1 else "differ"
        return (
            f"{self.array}: {self.count} of {self.size} elements {differ}, the first is {self.element}\n"
            f"{self.values}"
        )

    def to_json(self) -> dict[str, Any]:
        """The difference as plain data; numbers that JSON lacks as text."""
        data = asdict(self)
        for name in ("simulator", "other"):
            value = data[name]
            plain = isinstance(value, int) or (isinstance(value, float) and isfinite(value))
            data[name] = value if plain else str(value)
        return data


@not_an_array("pass result.outputs[name]")
@shortened
@dataclass(frozen=True)
class Compared:
    """The outputs of one launch on the simulator, held against those of a second device.

    Attributes
    ----------
    simulator, other : str
        The names of the devices.
    arrays : tuple of str
        The arrays that were compared.
    allowed : str
        The differences that are allowed, in words: "equal bits", or the tolerance of each array.
    differences : tuple of ArrayDifference
        The arrays that differ, in the order of the arguments.
    writer : Place, optional
        The last writer of the first element that differs, on the simulator.
    register : str
        The register that held its value.
    exactness : str
        "exact": each instruction behind the element has one result; "bounded": PTX bounds the error of one;
        "free": PTX, ptxas or the order of threads may change it. "" without a difference.
    reasons : tuple of str
        Why it is not exact: the instructions, and what may change.
    unwritten : tuple of str
        What the kernel did not write on the simulator: bytes 0xA5 on both devices.
    ignored : tuple of str
        The simulator's findings, if the kernel was compared all the same.
    parting : Parting, optional
        Where the devices part, if that was looked for.
    legal : str
        The schedule of the simulator that gives all bits of the other device, if one was found: "random,
        seed 3". The differences are then no fault of either.
    schedules : int
        The number of schedules that were to be tried.
    replay : str
        The command that compares again; "" for a call from Python.

    Examples
    --------
    >>> same = Compared("simulator", "NVIDIA H200", ("y",), "equal bits")
    >>> print(same)
    y: equal bits on both devices
    >>> same.equal
    True
    """

    simulator: str
    other: str
    arrays: tuple[str, ...]
    allowed: str = ""
    differences: tuple[ArrayDifference, ...] = ()
    writer: Place | None = None
    register: str = ""
    exactness: str = ""
    reasons: tuple[str, ...] = ()
    unwritten: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    parting: Parting | None = None
    legal: str = ""
    schedules: int = 0
    replay: str = ""

    @property
    def equal(self) -> bool:
        """Whether all outputs agree, within what is allowed, or are one of the legal answers."""
        return not self.differences or bool(self.legal)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for one in self.ignored:
            yield f"compared in spite of {one}"
        if not self.differences:
            yield f"{', '.join(self.arrays) or 'no array'}: {self.allowed} on both devices"
        for one in self.differences:
            yield str(one)
            if one is self.differences[0]:
                yield from self._of_first()
        yield from (f"{one} (0xA5 bytes on both devices)" for one in self.unwritten)
        if self.parting is not None:
            yield str(self.parting)
        if not self.equal and self.replay:
            yield f"replay: {self.replay}"

    def _of_first(self) -> Iterator[str]:
        """Lines about the first difference: its writer, its exactness, the tolerance."""
        if self.writer is not None:
            register = f" from {self.register}" if self.register else ""
            yield f"written last{register} by {self.writer}"
        more = f" and {len(self.reasons) - _LISTED} more" if len(self.reasons) > _LISTED else ""
        because = f": {'; '.join(self.reasons[:_LISTED])}{more}" if self.reasons else ""
        yield f"the simulator calls it {self.exactness}{because}"
        if self.allowed != "equal bits":
            yield f"allowed: {self.allowed}"
        if self.legal:
            yield f"one of the legal answers: schedule {self.legal} gives it"
        elif self.schedules:
            yield f"none of {self.schedules} other schedules gives the other device's bits"

    @property
    def finding(self) -> Finding | None:
        """The first difference as a finding, for the reports; None without one."""
        if self.equal:
            return None
        first = self.differences[0]
        what, _, _ = str(first).partition("\n")
        place = self.writer if self.parting is None or self.parting.what == "lost" else self.parting.place
        return Finding(
            f"{self.other} and the simulator differ: {what}",
            "DevicesDiffer",
            "devices",
            place=place or Place(),
            element=first.element,
            values=first.values,
            advice=f"replay: {self.replay}" if self.replay else "",
            fields={"array": first.array, "elements": first.count, "size": first.size},
        )

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain data, with its text."""
        data = asdict(self)
        data["differences"] = [one.to_json() for one in self.differences]
        return {**data, "equal": self.equal, "text": str(self)}


def _instruction(place: Place) -> str:
    line = f"line {place.line} `{place.text}`"
    return f"{place.source_file}:{place.source_line}, {line}" if place.source_line is not None else line


def _thread(place: Place) -> str:
    return f"block {place.block}, warp {place.warp}, lane {place.lane}"
