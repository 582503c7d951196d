"""The faults of simulated kernels: one exception per kind, with the location as fields.

A fault prints in the form of a compiler's message; see `simwarp.messages`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from reference.errors import LaunchError as LaunchError
from reference.errors import SimwarpError
from simwarp import messages
from simwarp.places import Caller as Caller
from simwarp.places import Note as Note
from simwarp.places import Place as Place

_BYTES = re.compile(
    r"(?<!only )\b(?:(?:\d+ bytes? of )?(?:shared |global )?memory|\d+ bytes?)\b"
    r"(?P<that> that)?(?P<were> were)?"
)
"""The text for an access whose element is not known."""


_LONG, _PART = 500, 200
"""The longest line that a message shows whole, and the characters shown at either end of a longer one."""


class KernelFault(SimwarpError):
    """A fault of a kernel, such as an invalid access, a race or a deadlock.

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
        Its kind in `simwarp.checks`, by which it is raised, collected or ignored; "" for a fault that is
        always raised.
    severity : str
        "error"; or "note" for a fault that does not prove a mistake, which is collected and never raised.
    count : int
        The occurrences of a fault that is collected.
    notes : tuple of Note
        The other places that the message shows.
    element : str
        The element of the array that was accessed, in the source's words, such as ``t[127]``; "" if unknown.
    more : str
        How to see more, for a fault that was raised and that could be collected; else "".
    """

    check = ""
    severity = "error"
    count = 1
    notes: tuple[Note, ...] = ()
    element = ""
    more = ""

    def __init__(
        self, what: str, values: str = "", advice: str = "", place: Place | None = None, **fields: Any
    ) -> None:
        super().__init__(what)
        self.what, self.values, self.advice = what, values, advice
        self.place = place or Place()
        for name, value in fields.items():
            setattr(self, name, value)

    def __str__(self) -> str:
        return messages.plain(self)

    def __repr__(self) -> str:
        what = f"{self.what}: {self.place}" if str(self.place) else self.what
        return f"{type(self).__name__}({what!r})"

    @property
    def kind(self) -> str:
        """The kind of fault in words, made from the name of its class."""
        return messages.words_of(type(self).__name__)

    def at(self, **fields: object) -> KernelFault:
        """Set fields of the fault's place, and return the fault."""
        self.place = replace(self.place, **fields)  # pyright: ignore[reportArgumentType]
        return self

    def note(self, label: str, place: Place) -> None:
        """Add another location to the message, with a label."""
        self.notes = (*self.notes, Note(label, place))

    def note_standing(self, what: str, standing: Iterable[tuple[int, Place]]) -> None:
        """Add the steps where lanes stand: the number of lanes, and the location of the first one."""
        for count, place in standing:
            self.note(f"{count} lane{'s' * (count > 1)} {what}, the first is", place)


class MemoryFault(KernelFault):
    """An invalid access to memory.

    Attributes
    ----------
    address, width : int
        In bytes.
    space : str
        "global", "shared" …
    allocation : str
        The allocation that holds the address, or the nearest one; "" without allocations.
    offset : int
        The offset of the access in ``allocation``, in bytes.
    position : int
        The index of the first bad address among those of the executing lanes.
    """

    address: int = 0
    width: int = 0
    space: str = ""
    allocation: str = ""
    offset: int = 0
    position: int = 0

    def name_element(self, element: str) -> None:
        """Name the accessed element in the message, instead of a number of bytes; "" changes nothing."""
        if element:
            self.element = element
            words = {"that": ", which", "were": " was"}
            self.what = _BYTES.sub(
                lambda of: element + "".join(new for old, new in words.items() if of[old]), self.what, count=1
            )


class OutOfBounds(MemoryFault):
    """An access outside every live allocation."""

    check = "bounds"


class ForeignPointer(OutOfBounds):
    """An access by a pointer to the shared memory of another block or the local memory of another thread.

    Attributes
    ----------
    stored, loaded : Place
        The instructions that stored the pointer there, and loaded it here.
    """

    stored: Place | None = None
    loaded: Place | None = None


class UseAfterFree(OutOfBounds):
    """An access to freed memory."""

    check = "freed"


class BlockLifetime(MemoryFault):
    """An access to another block's shared memory; the block may not have started, or may have exited."""

    check = "freed"


class Misaligned(MemoryFault):
    """An access whose address is not a multiple of its width."""

    check = "alignment"


class WrongStride(Misaligned):
    """A matrix in memory with a row or column that is not aligned as the instruction requires."""


class WrongDescriptor(Misaligned):
    """A matrix descriptor with meaningless bits, or whose start or tile does not fit its swizzle."""


class UninitialisedRead(MemoryFault):
    """A use of uninitialised memory, or of a value computed from it.

    ``place`` is the location of the read. Uses are listed under `UninitialisedRegister`; an atomic operation,
    a matrix instruction and a kernel written in Python use every value that they read.

    Attributes
    ----------
    use : Place
        The instruction that used the value, unless it also read it.
    """

    check = "uninitialised"
    use: Place = Place()


class ReadOnlyWrite(MemoryFault):
    """A write to read-only memory."""

    check = "bounds"


class DoubleFree(MemoryFault):
    """A free, by the host or a kernel, of memory that is not allocated: most often a second free."""

    check = "freed"


class Race(MemoryFault):
    """Two unordered accesses of the same bytes, one of them a write.

    Attributes
    ----------
    earlier, later : str
        The kinds of the two accesses, in the order of this run: "read", "write" or "atomic".
    other : Place
        The earlier access; ``place`` is the later one.
    """

    check = "races"
    earlier: str = ""
    later: str = ""
    other: Place = Place()


class StaleRead(MemoryFault):
    """A read of bytes that the same launch writes, through a cache that does not see these writes.

    Attributes
    ----------
    other : Place
        The write, before the read or after it; ``place`` is the location of the read.
    """

    check = "races"
    other: Place = Place()


class CopyInFlight(MemoryFault):
    """An access to memory while an asynchronous copy of it is in flight, or a copy that is not waited for.

    Attributes
    ----------
    copy : Place
        The copy; ``place`` is that of the access.
    exit : Place
        The exit of the thread, or of the last one of the block, if that is the fault; ``place`` is then that
        of the copy.
    """

    check = "copies"
    copy: Place = Place()
    exit: Place = Place()


class MissingProxyFence(MemoryFault):
    """An asynchronous read of bytes that an ordinary instruction wrote, without a fence of the two proxies.

    Attributes
    ----------
    other : Place
        The ordinary write; ``place`` is that of the asynchronous copy or product.
    """

    check = "proxies"
    other: Place = Place()


class DependentAccess(MemoryFault):
    """An access by a dependent launch, before its wait, to memory that the previous launch accesses.

    Attributes
    ----------
    earlier, later : str
        The kinds of the two accesses: "read", "write" or "atomic"; an earlier atomic one counts as a write.
    other : Place
        The access of the launch before; ``place`` is that of the dependent launch.
    """

    check = "dependents"
    earlier: str = ""
    later: str = ""
    other: Place = Place()


class TensorMapFault(KernelFault):
    """A copy that its tensor map does not allow, or bytes that are not a tensor map."""

    check = "copies"


class TextureFault(KernelFault):
    """A use of a texture or surface with an invalid handle, or by an instruction that does not fit it."""

    check = "textures"


class ProductInFlight(KernelFault):
    """A use of a product's registers between issue and wait, or of registers written without a fence.

    Attributes
    ----------
    product : Place
        The product; ``place`` is that of the use.
    register : str
        The register; "" if it is not about a single one.
    """

    check = "products"
    product: Place = Place()
    register: str = ""


class UninitialisedRegister(KernelFault):
    """A use of an uninitialised register, or of a value computed from it.

    Uses are branches, addresses and stores to global memory; ``place`` is the location of the first read.

    Attributes
    ----------
    register : str
        The uninitialised register.
    use : Place
        The instruction that used its value.
    """

    check = "registers"
    register: str = ""
    use: Place = Place()


class DivisionByZero(KernelFault):
    """An integer division or remainder by zero whose result is used (see `UninitialisedRegister`).

    Attributes
    ----------
    use : Place
        The instruction that used the result; ``place`` is that of the division.
    """

    check = "division"
    use: Place = Place()


class MemberMaskFault(KernelFault):
    """A ``.sync`` operation whose member mask lacks the executing lane, or differs between its lanes."""

    check = "members"


class InactiveSource(KernelFault):
    """A shuffle that reads from a lane that does not execute the shuffle."""

    check = "sources"


class BarrierFault(KernelFault):
    """A barrier that not all of its threads reach, or that they reach with different operands.

    Attributes
    ----------
    other : Place
        For a phase of an mbarrier that completes too early, where its bytes were last expected; ``place`` is
        that of a copy which the phase should have waited for. For a barrier of a block that is used with
        different counts, the other use.
    """

    check = "barriers"
    other: Place = Place()


class SkippedBarrier(BarrierFault):
    """A barrier that some of its lanes skipped and others passed.

    Attributes
    ----------
    left : Place
        The branch at which the first lane to skip it left.
    lanes : int
        The lanes of that warp that skipped it, one bit each.
    """

    left: Place = Place()
    lanes: int = 0


class SkippedMember(MemberMaskFault):
    """A ``.sync`` operation that some lanes of its mask skipped and others executed.

    Attributes
    ----------
    left, lanes
        See `SkippedBarrier`.
    """

    left: Place = Place()
    lanes: int = 0


class EarlyExit(KernelFault):
    """A barrier or ``.sync`` operation that names lanes that returned before it.

    Attributes
    ----------
    left : Place
        The return of the first of those lanes.
    lanes : int
        The lanes of its warp that returned, one bit each.
    """

    check = "exits"
    left: Place = Place()
    lanes: int = 0


class DivergentMatrix(BarrierFault):
    """A matrix instruction that a warp's lanes do not execute together, or with different operands."""


class RegisterCountFault(BarrierFault):
    """A ``setmaxnreg`` that a warp's lanes, or a warpgroup's warps, do not all execute with one count."""


class Deadlock(KernelFault):
    """All remaining lanes wait for one another.

    Attributes
    ----------
    waiting : tuple of Place
        The first waiting lane of each instruction at which lanes wait.
    """

    check = "deadlock"
    waiting: tuple[Place, ...] = ()


class RegisterShortage(Deadlock):
    """A ``setmaxnreg.inc`` that waits for registers that no warp of its block releases.

    Attributes
    ----------
    registers, asked : int
        The registers of the block, and those that its warps own or wait for.
    """

    registers: int = 0
    asked: int = 0


class Trap(KernelFault):
    """The kernel executed ``trap``."""


class NotCooperative(Trap):
    """A grid sync in a launch that is not cooperative: without its workspace, cooperative groups trap."""


class NotClustered(Trap):
    """A copy between blocks of a cluster in a launch without clusters: an illegal instruction there."""


class Unreachable(KernelFault):
    """Execution that ran past the end of a function, where the compiler left no return."""

    check = "unreachable"


class AssertionFailed(KernelFault):
    """A failed ``assert`` of the kernel."""


class RunawayKernel(KernelFault):
    """A launch that executed more instructions than its budget.

    Attributes
    ----------
    waiting : tuple of Place
        Threads that wait for a phase of an mbarrier: the first one of each barrier and instruction.
    """

    check = "runaway"
    waiting: tuple[Place, ...] = ()


class Livelock(RunawayKernel):
    """An infinite loop: the kernel returned to an earlier state."""


class NeedsIndependentProgress(KernelFault):
    """A kernel that ``schedule="stack"`` cannot run: lanes wait for other lanes of their warp.

    Attributes
    ----------
    waiting, awaited : tuple of Place
        The waiting lanes, and the lanes that they wait for: the first lane of each instruction.
    """

    waiting: tuple[Place, ...] = ()
    awaited: tuple[Place, ...] = ()


class _OfText(SimwarpError):
    """An error that quotes PTX; the middle of a very long line is left out."""

    def __init__(self, message: str) -> None:
        lines = (
            line if len(line) <= _LONG else f"{line[:_PART]} … {line[-_PART:]}"
            for line in message.split("\n")
        )
        super().__init__("\n".join(lines))


class UnsupportedInstruction(_OfText):
    """PTX that this version cannot execute; the message names the line.

    Attributes
    ----------
    source_file, source_line
        The line of CUDA C++ that the PTX line was compiled from; None if the PTX has no line information.
    """

    source_file: str | None = None
    source_line: int | None = None


class PtxSyntaxError(_OfText, ValueError):
    """Text that is not PTX; the message names the line."""
