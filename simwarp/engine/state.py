"""Protocols: the members of a chunk, of its launch and of the scheduler that an operation may use.

`simwarp.engine.operations` has a function for each kind of step: of a `Chunk` and the step, or of a
`Scheduler`, the number of the step and the step. It may read what is a property here, write what is an
attribute, and use nothing else. `simwarp.engine.chunk`, ``launch`` and ``schedule.scheduler`` have the
classes; who needs only the type imports it from here. This module, `simwarp.engine.components` and
`simwarp.engine.events` import no other module of the engine.

Lanes are numbered through the chunk, and threads through the launch. A chunk may be a part of another one,
with some of its warps. It has registers and masks of its own; memory and components are those of the whole
chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from simwarp.program.operands import Registers

if TYPE_CHECKING:
    from simwarp.checks import Checks
    from simwarp.compiled.run import Kernel
    from simwarp.compiled.state import Group
    from simwarp.engine import events
    from simwarp.engine.components import (
        Activations,
        Attendance,
        Barriers,
        ChangedMaps,
        ClusterBarrier,
        Copies,
        Geometry,
        Heap,
        Journal,
        Lent,
        MBarriers,
        Missing,
        Origin,
        Products,
        RegisterPool,
        Tiles,
        Transfers,
        Ways,
    )
    from simwarp.faults import KernelFault, MemoryFault, Place
    from simwarp.memory import Memory
    from simwarp.program.program import Program, Step
    from simwarp.textures import Objects

Mask: TypeAlias = npt.NDArray[np.bool_]
"""(warps, 32): some of the lanes."""
_Lanes: TypeAlias = npt.NDArray[np.int64]
_Addresses: TypeAlias = npt.NDArray[np.uint64]
_Warps: TypeAlias = npt.NDArray[np.intp]
_Dim: TypeAlias = tuple[int, int, int]


class Chunk(Registers, Protocol):
    """The warps of some blocks of a launch, in order; or some of these warps, see ``is_part``.

    An operation reads its operands by ``step.sources`` and writes its results by ``step.destinations``; it
    need not touch the registers itself.

    Attributes
    ----------
    launch : Launch
    program : Program
    step : Step
        The current step; who executes others on the way sets it, and puts it back.
    live : (warps, 32) bool
        The lanes that exist and have not exited.
    mask : (warps, 32) bool
        The lanes that execute the current step; `enter` sets it, with the next four.
    active : (warps, 32) bool or None
        The same as ``mask``; None if all lanes execute, which is the faster path.
    count : int
        How many lanes execute.
    alone : bool
        Whether all live lanes execute: their results may then replace whole registers.
    needed : int
        The registers, one bit for each slot, that the other lanes may still read.
    executed : int
        Thread-instructions executed so far.
    order : callable, or None
        ``order(n)`` is the order in which n lanes of one instruction access memory; None: ascending.
    is_part : bool
        Whether this is some warps of a chunk, run by themselves.
    warps, warps_per_block, blocks : int
        How many warps and, of the whole chunk, blocks.
    warp : (warps, 1) int
        The number of each warp in the whole chunk, of which this may be a part.
    warp_in_block, block_in_chunk : (warps, 1) int
        The number of each warp in its block, and of its block among those in flight.
    block : (warps, 1) int
        The number of each warp's block in the grid.
    block_numbers : (blocks,) int
        The number in the grid of each block of the whole chunk.
    thread : (warps, 32) int
        The number of each thread in the launch, if every warp had 32 threads.
    shared, local : Memory
        One window per block of the whole chunk, or per lane, of so many bytes: ``shared_stride``,
        ``local_stride``.
    shared_start : (warps, 1) uint64
        Start of the block's window in ``shared``.
    reserved_start : int
        Start of the reserved part in that window.
    local_start : (warps, 32) uint64
        Start of the thread's window in ``local``.
    frame : uint64, or (warps, 32) of it
        Start of the current function's stack frame in the thread's local memory.
    special_values : dict
        The special registers that were read, of those that are constant while a block runs.
    partial : dict
        Register slot → the lanes where it is defined, for registers undefined in some lane.
    bits : dict
        Register slot → the undefined bits of each lane of ``partial``, if not all; 0 stands for all.
    origins : dict
        Register slot → the origin of its undefined values.
    carried : dict
        Space and offset in the window → the origin of the undefined value stored there.
    defined_here : set
        The slots of registers known to be defined in all executing lanes.
    undefined : (warps, 32) bool or None
        The lanes that read an undefined operand, as long as ``executed`` equals ``undefined_at``.
    undefined_from : Origin
        Where its value comes from.
    loaded : Missing or None
        The undefined bits that the current step loaded.
    """

    step: Step
    executed: int
    undefined: Mask | None
    undefined_at: int
    loaded: Missing | None

    @property
    def launch(self) -> Launch: ...
    @property
    def program(self) -> Program: ...
    @property
    def live(self) -> Mask: ...
    @property
    def mask(self) -> Mask: ...
    @property
    def active(self) -> Mask | None: ...
    @property
    def count(self) -> int: ...
    @property
    def needed(self) -> int: ...
    @property
    def order(self) -> Callable[[int], npt.NDArray[np.intp]] | None: ...
    @property
    def is_part(self) -> bool: ...
    @property
    def warps(self) -> int: ...
    @property
    def warps_per_block(self) -> int: ...
    @property
    def blocks(self) -> int: ...
    @property
    def warp(self) -> _Lanes: ...
    @property
    def warp_in_block(self) -> _Lanes: ...
    @property
    def block_in_chunk(self) -> _Lanes: ...
    @property
    def block(self) -> _Lanes: ...
    @property
    def block_numbers(self) -> _Lanes: ...
    @property
    def thread(self) -> _Lanes: ...
    @property
    def shared(self) -> Memory: ...
    @property
    def shared_stride(self) -> int: ...
    @property
    def shared_start(self) -> _Addresses: ...
    @property
    def reserved_start(self) -> int: ...
    @property
    def local(self) -> Memory: ...
    @property
    def local_stride(self) -> int: ...
    @property
    def local_start(self) -> _Addresses: ...
    @property
    def frame(self) -> Any: ...
    @frame.setter
    def frame(self, value: Any, /) -> None: ...
    @property
    def special_values(self) -> dict[str, Any]: ...
    @property
    def partial(self) -> dict[int, Mask]: ...
    @property
    def bits(self) -> dict[int, npt.NDArray[Any]]: ...
    @property
    def origins(self) -> dict[int, Origin]: ...
    @property
    def carried(self) -> dict[tuple[str, int], Origin]: ...
    @property
    def defined_here(self) -> set[int]: ...
    @property
    def undefined_from(self) -> Origin: ...
    @property
    def activations(self) -> Activations: ...
    @property
    def attendance(self) -> Attendance: ...
    @property
    def copies(self) -> Copies | None: ...
    @property
    def transfers(self) -> Transfers | None: ...
    @property
    def mbarriers(self) -> MBarriers | None: ...
    @property
    def products(self) -> Products | None: ...
    @property
    def register_pool(self) -> RegisterPool | None: ...
    @property
    def tiles(self) -> Tiles | None: ...

    def enter(self, mask: Mask, alone: bool, needed: int = ...) -> None:
        """Set the executing lanes; a caller that narrows them must restore all three values afterwards."""

    def undefined_bits(self, slot: int) -> npt.NDArray[Any] | None:
        """The undefined bits of a register in each lane; None if all bits are defined."""
        ...

    def follow_load(self, loaded: Missing) -> None:
        """Make the current step's results undefined where the loaded words are undefined."""

    def use_undefined(self, slot: int, lanes: Mask, origin: Origin | None) -> None:
        """Report that lanes use an undefined register; without an origin, one that was never written."""

    def undefined_fault(self, slot: int, origin: Origin | None, lane: int) -> KernelFault:
        """The fault of a lane that uses an undefined register; without ``origin``, one never written."""
        ...

    def place(self, lane: int, step: Step | None = None) -> Place:
        """The location, for a fault, of a lane of the chunk at a step; by default the current step."""
        ...

    def place_of(self, thread: int, step: Step) -> Place:
        """The location, for a fault, of a launch's thread at a step, without the calls that led there."""
        ...

    def placed(self, fault: KernelFault, lanes: int | Mask) -> KernelFault:
        """Set the location of a fault to that of a lane, or of the first lane of a mask."""
        ...

    def within(self, fault: MemoryFault, memory: Memory) -> None:
        """Turn a fault's address in shared or local memory into an offset in its window."""

    def shared_element(self, offset: int, width: int) -> str:
        """The element of a shared variable at an offset in the block's window; "" if it is not known."""
        ...

    def found(self, fault: KernelFault, lanes: int | Mask) -> None:
        """Report a fault of a lane, or of all lanes of a mask; its check raises, collects or ignores it."""


class Launch(Protocol):
    """One launch of a kernel; `simwarp.engine.launch.Launch` describes the members that its caller sets.

    Attributes
    ----------
    threads, blocks_per_cluster : int
        Threads per block, and blocks per cluster.
    steps_left, units_left : float
        The budget of steps that is left, and that once lanes go on with poison.
    spent : int
        Steps executed so far.
    engine : str
        "numpy", "compiled" or "auto".
    compiled : Kernel or None
        The compiled kernel, if there is one.
    on_step, on_access, on_write, on_stage, on_barrier : sequence of callables
        The observers of each event. Make no event that nobody observes.
    races : OrderListener or None
        The race detector, which receives accesses and what orders them.
    watched_loads : set of int
        The numbers of the loads that the race detector must see.
    journal : Journal or None
        Receives changes of memory while an endless loop is suspected.
    lent : Lent
        The addresses in shared or local memory that threads stored.
    reach : mapping of int to Memory
        Step → the global memory that it may access.
    windows, frames : mapping of int to (int, int, str)
        Step → the bytes of the block's shared memory, or of its function's frame, that it may access: start,
        end and name.
    parameter_memory : Memory
        The kernel's parameters as memory, for accesses with computed addresses.
    atomics : context manager
        Held during an atomic operation, which other chunks may not interrupt.
    """

    steps_left: float
    units_left: float
    spent: int
    journal: Journal | None
    compiled: Kernel | None

    @property
    def program(self) -> Program: ...
    @property
    def grid(self) -> _Dim: ...
    @property
    def block(self) -> _Dim: ...
    @property
    def cluster(self) -> _Dim: ...
    @property
    def explicit_cluster(self) -> bool: ...
    @property
    def threads(self) -> int: ...
    @property
    def blocks_per_cluster(self) -> int: ...
    @property
    def parameters(self) -> Mapping[str, bytes]: ...
    @property
    def symbols(self) -> Mapping[str, int]: ...
    @property
    def textures(self) -> Objects: ...
    @property
    def memory(self) -> Memory: ...
    @property
    def constants(self) -> Memory: ...
    @cached_property
    def parameter_memory(self) -> Memory: ...
    @property
    def heap(self) -> Heap: ...
    @property
    def shared_size(self) -> int: ...
    @property
    def dynamic_shared(self) -> int: ...
    @property
    def local_size(self) -> int: ...
    @property
    def workspace(self) -> int: ...
    @property
    def workers(self) -> int: ...
    @property
    def instruction_budget(self) -> int | None: ...
    @property
    def checks(self) -> Checks: ...
    @property
    def schedule(self) -> str: ...
    @property
    def engine(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def multiprocessors(self) -> int: ...
    @property
    def cc(self) -> tuple[int, int]: ...
    @property
    def number(self) -> int: ...
    @property
    def clock(self) -> int: ...
    @property
    def print(self) -> Callable[[str], object]: ...
    @property
    def sources(self) -> Mapping[str, str]: ...
    @property
    def on_step(self) -> Sequence[Callable[[Chunk, Step, Mask], None]]: ...
    @property
    def on_access(self) -> Sequence[Callable[[events.AccessEvent], None]]: ...
    @property
    def on_write(self) -> Sequence[Callable[[events.WriteEvent], None]]: ...
    @property
    def on_stage(self) -> Sequence[Callable[[events.StageEvent], None]]: ...
    @property
    def on_barrier(self) -> Sequence[Callable[[Chunk, Mask], None]]: ...
    @property
    def races(self) -> events.OrderListener | None: ...
    @property
    def watched_loads(self) -> set[int]: ...
    @property
    def lent(self) -> Lent: ...
    @property
    def changed_maps(self) -> ChangedMaps: ...
    @cached_property
    def reach(self) -> Mapping[int, Memory]: ...
    @cached_property
    def windows(self) -> Mapping[int, tuple[int, int, str]]: ...
    @cached_property
    def frames(self) -> Mapping[int, tuple[int, int, str]]: ...
    @cached_property
    def geometry(self) -> Geometry: ...
    @property
    def atomics(self) -> AbstractContextManager[Any]: ...

    def compile(self, hot: bool = False) -> Kernel | None:
        """The compiled kernel, if the engine and the steps spent so far ask for one."""
        ...

    def found(self, fault: KernelFault) -> None:
        """Report a fault to the observers and raise or collect it; ignore it if its check is off."""


class Scheduler(Protocol):
    """Selects the lanes of a chunk that execute each step: a *group*, the lanes at one step.

    A function of ``CONTROL`` executes a step for the current group, ``chunk.mask``. It returns the group's
    next step, or None if the group has split, waits or has ended: each lane has then been given to `put`,
    `park`, `leave` or `leave_at`.

    Attributes
    ----------
    steps : sequence of Step
        Those of the program.
    groups : mapping of int to Group
        Step → the other group there, which may run.
    parked : dict of int to (warps, 32) bool
        Step → the lanes that wait there for others.
    turns, loops : int
        Those of the current group: how often it yielded to others, and the backward branches it took.
    ways_out : dict
        Step where lanes leave for good → its edges, see `simwarp.program.exits`.
    attendance : Attendance
        Finds lanes missing at barriers and operations of warps.
    """

    turns: int
    loops: int

    @property
    def chunk(self) -> Chunk: ...
    @property
    def launch(self) -> Launch: ...
    @property
    def steps(self) -> Sequence[Step]: ...
    @property
    def groups(self) -> Mapping[int, Group]: ...
    @property
    def parked(self) -> dict[int, Mask]: ...
    @property
    def ways_out(self) -> Ways: ...
    @property
    def attendance(self) -> Attendance: ...
    @property
    def barriers(self) -> Barriers: ...
    @property
    def cluster_barrier(self) -> ClusterBarrier: ...

    def spend(self, steps: int) -> None:
        """Subtract steps from the launch's budget."""

    def take_over(self, groups: Mapping[int, tuple[Mask, int, bool, int]]) -> None:
        """Replace the groups: their lanes, turns, whether they loop, and their rounds, by step."""

    def taken(self, step: Step) -> Mask:
        """The executing lanes whose guard predicate for a step is true."""
        ...

    def executed(self, step: Step, mask: Mask) -> None:
        """Count the lanes that executed a step, and notify the observers."""

    def enter(self, mask: Mask) -> None:
        """Make the lanes of ``mask`` the current group and the executing lanes."""

    def put(self, pc: int, mask: Mask, loops: bool = False) -> None:
        """Add lanes to the group of lanes whose next step is ``pc``."""

    def park(self, pc: int, mask: Mask) -> None:
        """Make lanes wait at step ``pc``."""

    def unpark(self, pc: int, mask: Mask) -> Mask:
        """Release the lanes of ``mask`` that wait at a step; returns them."""
        ...

    def part(self, pc: int, ways: Mapping[int, Mask]) -> None:
        """Record lanes that leave the others for good at a branch, by branch target."""

    def go_on(self, pc: int, mask: Mask) -> int | None:
        """Continue the current group with these lanes at ``pc``; return ``pc``, or None for an empty mask."""
        ...

    def leave_at(self, pc: int, mask: Mask) -> None:
        """Put lanes into the group at a step; do nothing for an empty mask."""

    def leave(self, mask: Mask) -> None:
        """Mark lanes as exited; lanes that waited for them may continue."""

    def may_loop(self, branch: Step) -> bool:
        """Count a backward branch; False when the group should yield, or run as a compact copy."""
        ...

    def can_run(self) -> Mask:
        """The lanes that do not wait for other lanes of their warp."""
        ...

    def needed(self) -> int:
        """The registers that lanes of other groups may still read, as one bit per slot."""
        ...

    def standing(self, lanes: Mapping[int, Mask]) -> list[tuple[int, Place]]:
        """The number of lanes at each step, and the location of the first of them."""
        ...

    def livelock(self, whole: bool = True) -> KernelFault:
        """The fault when lanes loop while the whole state, or all that leads out of the loops, repeats."""
        ...

    def stop(self, fault: KernelFault) -> None:
        """Report a fault and end the launch, even if the check collects faults."""
