"""The faults of simulated kernels: one exception per kind, with the place as fields.

A fault prints as three lines: what happened and where; the values; what to do about it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from reference.errors import SimwarpError

_LONG, _PART = 500, 200
"""Characters of a message's line that are shown whole, and of a longer one at either end."""


@dataclass(frozen=True)
class Place:
    """Where in a launch something happened; None where it is not known.

    Attributes
    ----------
    kernel : str
    block : (x, y, z)
    warp, lane : int
        The warp within its block, the lane within its warp.
    thread : (x, y, z)
        The thread's index within its block.
    line : int
        The line of the PTX text, or of the Python source for a kernel written in Python.
    source_file, source_line
        The line of CUDA C++ that the PTX line was compiled from.
    text : str
        The instruction.
    """

    kernel: str = ""
    block: tuple[int, int, int] | None = None
    warp: int | None = None
    lane: int | None = None
    thread: tuple[int, int, int] | None = None
    line: int | None = None
    source_file: str | None = None
    source_line: int | None = None
    text: str = ""

    def __str__(self) -> str:
        parts = [f"kernel {self.kernel}"] if self.kernel else []
        if self.block is not None:
            parts.append(f"block {self.block}")
        if self.warp is not None:
            parts.append(f"warp {self.warp}")
        if self.lane is not None:
            parts.append(f"lane {self.lane}")
        if self.line is not None:
            parts.append(f"line {self.line}" + (f" `{self.text}`" if self.text else ""))
        if self.source_line is not None:
            parts.append(f"({self.source_file}:{self.source_line})")
        return ", ".join(parts)


class KernelFault(SimwarpError):
    """Something a kernel must not do.

    Parameters
    ----------
    what : str
        The fault, without its place.
    values : str
        The values that show it.
    advice : str
        How to correct the kernel.
    place : Place
    **fields
        Values of the attributes of its class.

    Attributes
    ----------
    check : str
        The check that found it, by which it is switched off or collected (`simwarp.checks`); "" for a fault
        that belongs to none.
    count : int
        How often it was found, of a fault that is collected instead of raised.
    """

    check = ""
    count = 1

    def __init__(
        self, what: str, values: str = "", advice: str = "", place: Place | None = None, **fields: Any
    ) -> None:
        super().__init__(what)
        self.what, self.values, self.advice = what, values, advice
        self.place = place or Place()
        for name, value in fields.items():
            setattr(self, name, value)

    def __str__(self) -> str:
        first = f"{self.what}: {self.place}" if str(self.place) else self.what
        return "\n".join(line for line in (first, self.values, self.advice) if line)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self).splitlines()[0]!r})"

    def at(self, **fields: object) -> KernelFault:
        """The same fault, its place completed."""
        self.place = replace(self.place, **fields)  # pyright: ignore[reportArgumentType]
        return self


class MemoryFault(KernelFault):
    """A bad access to memory.

    Attributes
    ----------
    address, width : int
        In bytes.
    space : str
        "global", "shared" …
    allocation : str
        The allocation that holds the address, or the nearest one; "" if there is none.
    offset : int
        The access's offset in bytes from the start of ``allocation``.
    position : int
        Which of the addresses of one vector access was the first bad one.
    """

    address: int = 0
    width: int = 0
    space: str = ""
    allocation: str = ""
    offset: int = 0
    position: int = 0


class OutOfBounds(MemoryFault):
    """An access outside every live allocation."""

    check = "bounds"


class ForeignPointer(OutOfBounds):
    """An access to shared or local memory by an address that another block, or thread, stored and meant.

    Attributes
    ----------
    stored, loaded : Place
        Where the other stored the address, and where it was loaded.
    """

    stored: Place | None = None
    loaded: Place | None = None


class UseAfterFree(OutOfBounds):
    """An access to memory that was given back."""

    check = "freed"


class Misaligned(MemoryFault):
    """An access whose address is not a multiple of its width."""

    check = "alignment"


class WrongStride(Misaligned):
    """A matrix in memory whose rows, or columns, are not all aligned as the instruction needs."""


class UninitialisedRead(MemoryFault):
    """A use of uninitialised memory, or of a value computed from it.

    ``place`` is that of the read. For uses see `UninitialisedRegister`; an atomic operation, a matrix
    instruction and a kernel written in Python use all values that they read.

    Attributes
    ----------
    use : Place
        The instruction that used the value, unless it is the one that read it.
    """

    check = "uninitialised"
    use: Place = Place()


class ReadOnlyWrite(MemoryFault):
    """A write to memory that a kernel can only read."""

    check = "bounds"


class DoubleFree(MemoryFault):
    """A free, by the host or a kernel, of memory that is not allocated: most often its second."""

    check = "freed"


class Race(MemoryFault):
    """Two accesses of the same bytes, one of them a write, that nothing puts in order.

    Attributes
    ----------
    earlier, later : str
        "read", "write" or "atomic": the two accesses, in the order of this run.
    other : Place
        Where the earlier one was made; ``place`` is that of the later one.
    """

    check = "races"
    earlier: str = ""
    later: str = ""
    other: Place = Place()


class UninitialisedRegister(KernelFault):
    """A use of an uninitialised register, or of a value computed from it.

    A branch, an address or a store to global memory is a use; ``place`` is that of the first read.

    Attributes
    ----------
    register : str
        The register that nothing wrote.
    use : Place
        The instruction that used its value.
    """

    check = "registers"
    register: str = ""
    use: Place = Place()


class DivisionByZero(KernelFault):
    """An integer division by zero, or remainder, with a result that is used as `UninitialisedRegister` says.

    Attributes
    ----------
    use : Place
        The instruction that used it; ``place`` is that of the division.
    """

    check = "division"
    use: Place = Place()


class MemberMaskFault(KernelFault):
    """A ``.sync`` operation executed by a lane outside its own member mask, or masks that differ."""

    check = "members"


class InactiveSource(KernelFault):
    """A shuffle that reads a lane which does not take part."""

    check = "sources"


class BarrierFault(KernelFault):
    """A barrier that cannot be passed as written."""

    check = "barriers"


class SkippedBarrier(BarrierFault):
    """A barrier that lanes pass although others that it names skipped it.

    Attributes
    ----------
    left : Place
        Where the first of those went another way.
    lanes : int
        Those of its warp, one bit each.
    """

    left: Place = Place()
    lanes: int = 0


class SkippedMember(MemberMaskFault):
    """A ``.sync`` operation that lanes execute although others of its mask skipped it.

    Attributes
    ----------
    left, lanes
        See `SkippedBarrier`.
    """

    left: Place = Place()
    lanes: int = 0


class EarlyExit(KernelFault):
    """Lanes that returned before a barrier or a ``.sync`` operation that names them.

    Attributes
    ----------
    left, lanes
        See `SkippedBarrier`.
    """

    check = "exits"
    left: Place = Place()
    lanes: int = 0


class DivergentMatrix(BarrierFault):
    """A matrix instruction that the lanes of a warp do not execute as one, with the same operands."""


class Deadlock(KernelFault):
    """Every lane that is left waits for another.

    Attributes
    ----------
    waiting : tuple of Place
        For each instruction at which lanes wait, the first of them.
    """

    check = "deadlock"
    waiting: tuple[Place, ...] = ()


class Trap(KernelFault):
    """The kernel executed ``trap``."""


class NotCooperative(Trap):
    """Grid sync in a launch that is not cooperative: it has no workspace, so cooperative groups trap."""


class Unreachable(KernelFault):
    """Control that ran off the end of a function, where its compiler left no return."""

    check = "unreachable"


class AssertionFailed(KernelFault):
    """An ``assert`` of the kernel that does not hold."""


class RunawayKernel(KernelFault):
    """A launch that executed more instructions than it was given."""

    check = "runaway"


class Livelock(RunawayKernel):
    """A loop that came back to exactly the state it had: it will never end."""


class NeedsIndependentProgress(KernelFault):
    """A kernel that the stack of reconvergence points cannot run: lanes wait for others of their warp.

    Attributes
    ----------
    waiting, awaited : tuple of Place
        For each instruction at which lanes wait, and at which those stand that they wait for, the first of
        them.
    """

    waiting: tuple[Place, ...] = ()
    awaited: tuple[Place, ...] = ()


class _OfText(SimwarpError):
    """An error that quotes PTX; of a line that is very long only a part."""

    def __init__(self, message: str) -> None:
        lines = (
            line if len(line) <= _LONG else f"{line[:_PART]} … {line[-_PART:]}"
            for line in message.split("\n")
        )
        super().__init__("\n".join(lines))


class UnsupportedInstruction(_OfText):
    """PTX that this version cannot execute; names the line.

    Attributes
    ----------
    source_file, source_line
        The line of CUDA C++ that the PTX line was compiled from; None if the PTX does not say.
    """

    source_file: str | None = None
    source_line: int | None = None


class PtxSyntaxError(_OfText, ValueError):
    """Text that is not PTX; names the line."""


class LaunchError(SimwarpError, ValueError):
    """A launch whose geometry or arguments do not fit the kernel."""
