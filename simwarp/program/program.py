"""A kernel made ready to run: registers have slots, labels are step numbers, rows are bound.

`simwarp.program.link` makes a `Program` of syntax; `simwarp.engine.schedule` and `simwarp.engine.launch` run
it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from simwarp.program.exits import ways_out
from simwarp.program.liveness import EVERY_REGISTER, live_registers
from simwarp.program.operands import Compute, Read, Write
from simwarp.program.postdominators import reconvergence
from simwarp.ptx.rows import ENDS_BLOCK, Form, Row
from simwarp.ptx.syntax import Instruction, Register, Variable


@dataclass
class Step:
    """One instruction, ready to run.

    Attributes
    ----------
    kind : str
        The row's, but "exit" for a "return" of the kernel itself.
    sources, destinations
        Closures in the order of the row's operands. A destination that is not wanted is None.
    guard
        Reads the predicate, or None.
    target : int
        The step a branch goes to.
    table : tuple of int
        The steps an indexed branch can go to.
    base, offset, space, symbol
        Of a memory access: the closure that reads the base address, the offset, the
        state space ("generic" if none is written), and the kernel parameter's name.
    polls, meets : bool
        Of a backward branch: whether its loop reads what other lanes write; whether it holds a
        barrier.
    call
        Of a call: its function, arguments and results.
    compute
        Of a step that only computes on registers: all of it.
    number : int
        Its place in the program.
    runs_off : bool
        Of an end that is not written: whether a compiler left it out as unreachable.
    """

    instruction: Instruction
    row: Row
    form: Form
    function: Callable[..., Any]
    kind: str = ""
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
    number: int = -1
    runs_off: bool = False

    @property
    def following(self) -> list[int]:
        """The steps of the same function that can come next."""
        ways = [*((self.target,) if self.kind == "branch" else ()), *self.table]
        if self.guard is not None or self.kind not in ENDS_BLOCK:
            ways.append(self.number + 1)
        return ways


@dataclass
class Argument:
    """One value that a call passes, or takes back: in ``.param`` memory, or in a register.

    Attributes
    ----------
    offset : int
        In the caller's frame, or -1 for a register.
    read, write
        The caller's register.
    """

    offset: int = -1
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
        Of an indirect call: the closure that reads the function's address.
    arguments, returns : list of Argument
        In order.
    """

    function: str = ""
    address: Read | None = None
    arguments: list[Argument] = field(default_factory=list[Argument])
    returns: list[Argument] = field(default_factory=list[Argument])


@dataclass
class Formal:
    """A parameter or return value as a device function sees it.

    Attributes
    ----------
    offset, size : int
        In the function's frame, in bytes; an offset of -1 for a register.
    read, write
        The register.
    """

    offset: int
    size: int
    read: Read | None = None
    write: Write | None = None


@dataclass
class Routine:
    """A kernel or device function within a program.

    Attributes
    ----------
    first : int
        Its first step.
    frame : int
        Bytes of local memory that one activation takes.
    slots : range
        Its register slots.
    recursive : bool
        Whether an activation of it may be under way when it is called.
    local_variables : dict of str to (int, int)
        Where in its frame they start and end.
    """

    name: str
    first: int = 0
    frame: int = 0
    slots: range = range(0)
    parameters: list[Formal] = field(default_factory=list[Formal])
    returns: list[Formal] = field(default_factory=list[Formal])
    recursive: bool = False
    local_variables: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])


class HostFunction(NamedTuple):
    """A function that no module defines and `simwarp.engine.host_functions` runs: the bytes of each value."""

    arguments: tuple[int, ...]
    returns: tuple[int, ...] = ()


HOST_FUNCTIONS = {
    "vprintf": HostFunction((8, 8), (4,)),
    "__assertfail": HostFunction((8, 8, 4, 8, 8)),
    "malloc": HostFunction((8,), (8,)),
    "free": HostFunction((8,)),
}


@dataclass
class Program:
    """A kernel, and the device functions it can reach, as a list of steps.

    Attributes
    ----------
    start : int
        The kernel's first step; device functions stand before it, so that "lowest step first"
        lets lanes come back from a call before the others go on.
    registers : list of str
        The name of each register slot.
    parameters : list of Variable
    parameter_offsets : dict of str to int
        Where each parameter starts in the parameter space.
    shared_size, dynamic_shared_at : int
        Bytes of static shared memory; where the dynamic part starts.
    shared_variables : dict of str to (int, int)
        Where each shared variable starts and ends; dynamic ones end with the block's window.
    local_size : int
        Bytes of local memory per thread, without recursion.
    routines : dict of str to Routine
    addresses : dict of int to str
        The function at each function address.
    """

    name: str
    steps: list[Step]
    registers: list[str]
    parameters: list[Variable]
    parameter_offsets: dict[str, int] = field(default_factory=dict[str, int])
    start: int = 0
    shared_size: int = 0
    dynamic_shared_at: int = 0
    local_size: int = 0
    max_threads: int | None = None
    cluster: tuple[int, int, int] | None = None
    routines: dict[str, Routine] = field(default_factory=dict[str, Routine])
    addresses: dict[int, str] = field(default_factory=dict[int, str])
    shared_variables: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])

    def routine_at(self, number: int) -> Routine:
        """The kernel or function that a step belongs to."""
        return self._in_order[bisect_right(self._in_order, number, key=lambda r: r.first) - 1]

    def steps_of(self, routine: Routine) -> list[Step]:
        """The steps of the kernel or of a function."""
        later = [other.first for other in self.routines.values() if other.first > routine.first]
        return self.steps[routine.first : min(later, default=len(self.steps))]

    @cached_property
    def _in_order(self) -> list[Routine]:
        return sorted(self.routines.values(), key=lambda r: r.first)

    @cached_property
    def recursive(self) -> bool:
        """Whether a function of it may call itself."""
        return any(routine.recursive for routine in self.routines.values())

    @cached_property
    def calls_heap(self) -> bool:
        """Whether it may call ``malloc`` or ``free``."""
        names = {step.call.function for step in self.steps if step.call is not None}
        return bool(names & {"malloc", "free", ""})

    @cached_property
    def reserves_shared(self) -> bool:
        """Whether it may use the reserved part of shared memory: it reads the registers that locate it."""
        operands = (operand for step in self.steps for operand in step.instruction.operands)
        return any(isinstance(o, Register) and o.name.startswith("%reserved_smem") for o in operands)

    @cached_property
    def live(self) -> list[int]:
        """The registers that lanes at each step may still read; of a program with device functions, all."""
        if len(self.routines) > 1:
            return [EVERY_REGISTER] * (len(self.steps) + 1)
        return live_registers(self.steps, self.registers)

    @cached_property
    def reconvergence(self) -> dict[int, int]:
        """For each branch the step where lanes that part there meet again: its immediate post-dominator."""
        return reconvergence(self.steps)

    @cached_property
    def ways_out(self) -> dict[int, tuple[dict[int, int], dict[int, int]]]:
        """For each step where lanes leave for good, its edges: past barriers, and past warp operations."""
        block, warp = ways_out(
            self,
            lambda step: step.kind == "barrier" and not step.form.has("arrive"),
            lambda step: step.kind in ("warp", "warp barrier"),
        )
        return {at: (block.get(at, {}), warp.get(at, {})) for at in (block | warp)}
