"""The steps and routines of a linked kernel; `simwarp.program.program.Program` contains them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from simwarp.program.operands import Compute, Read, Write
from simwarp.ptx.kinds import BRANCH, PURE, Kind
from simwarp.ptx.rows import Form, Row
from simwarp.ptx.syntax import Instruction


@dataclass
class Step:
    """One instruction, bound to its registers, labels and memory, ready to execute.

    Attributes
    ----------
    kind : Kind
        The row's kind, except that a return of the kernel itself is an exit.
    sources, destinations
        Closures in the order of the row's operands; None for a destination ``_``.
    guard
        The closure that reads the predicate; None without one.
    target : int
        The target step of a branch.
    table : tuple of int
        The target steps of an indexed branch.
    base, offset, space, symbol
        For a memory access: the closure that reads the address, the offset in the kernel parameter, the
        state space ("generic" if none is written), and the kernel parameter's name.
    polls, meets : bool
        For a backward branch: whether its loop reads memory that other threads write, and whether it
        contains a barrier.
    call
        For a call: its function, arguments and results.
    compute
        For a step that only computes on registers: the closure that executes all of it.
    source, barrier
        For an asynchronous copy: the load of what it copies, and the access to the mbarrier that counts it.
    coordinates, offsets
        For a copy through a tensor map: the closures of its coordinates and im2col offsets; for a texture or
        surface, of its coordinates, a layer first.
    handle
        For a texture or surface: the closure that reads its handle.
    number : int
        The step's index in the program.
    runs_off : bool
        For the added end of a function: whether a compiler left the end out as unreachable.
    """

    instruction: Instruction
    row: Row
    form: Form
    function: Callable[..., Any]
    kind: Kind = PURE
    sources: tuple[Read, ...] = ()
    destinations: tuple[Write | None, ...] = ()
    guard: Read | None = None
    target: int = -1
    table: tuple[int, ...] = ()
    base: Read | None = None
    offset: int = 0
    space: str = ""
    symbol: str = ""
    polls: bool = False
    meets: bool = False
    call: Call | None = None
    compute: Compute | None = None
    coordinates: tuple[Read, ...] = ()
    offsets: tuple[Read, ...] = ()
    handle: Read | None = None
    source: Step | None = None
    barrier: Step | None = None
    number: int = -1
    runs_off: bool = False

    @property
    def following(self) -> list[int]:
        """The steps of the same function that can execute next."""
        ways = [*((self.target,) if self.kind is BRANCH else ()), *self.table]
        if self.guard is not None or not self.kind.ends:
            ways.append(self.number + 1)
        return ways


@dataclass
class Argument:
    """An argument or result of a call, or a parameter or return value of a function: in memory or a register.

    Attributes
    ----------
    offset : int
        Offset in the caller's or the function's frame, or -1 for a register.
    size : int
        Size in bytes of a function's parameter or return value.
    read, write
        Closures on the register; None for memory.
    """

    offset: int = -1
    size: int = 0
    read: Read | None = None
    write: Write | None = None


@dataclass
class Call:
    """The function, arguments and results of a call instruction.

    Attributes
    ----------
    function : str
        The name of the device or host function; "" for an indirect call.
    address
        For an indirect call: the closure that reads the function's address.
    arguments, returns : list of Argument
        The arguments and the results, in order.
    """

    function: str = ""
    address: Read | None = None
    arguments: list[Argument] = field(default_factory=list[Argument])
    returns: list[Argument] = field(default_factory=list[Argument])


@dataclass
class Routine:
    """A kernel or device function within a linked program.

    Attributes
    ----------
    first : int
        The routine's first step.
    frame : int
        Bytes of local memory per call.
    slots : range
        The routine's register slots.
    recursive : bool
        Whether the routine may be called while a call of it runs.
    local_variables : dict of str to (int, int)
        Start and end of each local variable in the frame.
    """

    name: str
    first: int = 0
    frame: int = 0
    slots: range = range(0)
    parameters: list[Argument] = field(default_factory=list[Argument])
    returns: list[Argument] = field(default_factory=list[Argument])
    recursive: bool = False
    local_variables: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])


class Linked(Protocol):
    """The members of a `simwarp.program.program.Program` that analyses use."""

    @property
    def name(self) -> str: ...
    @property
    def steps(self) -> list[Step]: ...
    @property
    def start(self) -> int: ...
    @property
    def registers(self) -> list[str]: ...
    @property
    def routines(self) -> dict[str, Routine]: ...
    @cached_property
    def live(self) -> list[int]: ...

    def routine_at(self, number: int) -> Routine:
        """The kernel or device function that a step belongs to."""
        ...
