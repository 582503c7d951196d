"""The executor: runs a `Program` over a grid, chunk by chunk; all warps of a chunk run together.

`Launch` holds the grid, parameters and memory of one launch; `simwarp.engine.schedule.scheduler` selects the
lanes that execute each step, and `simwarp.engine.memory.accesses` executes their memory accesses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simwarp.checks import KINDS, POISONING, STRICT, Checks
from simwarp.compiled.run import Kernel, kernel_of
from simwarp.engine.asynchronous.tensor_maps import ChangedMaps
from simwarp.engine.chunk import Chunk
from simwarp.engine.events import Observer, OrderListener
from simwarp.engine.memory.reach import Frames, Reach, Windows
from simwarp.engine.places import Geometry
from simwarp.engine.schedule import workers
from simwarp.engine.schedule.host_functions import Heap
from simwarp.engine.schedule.random_scheduler import RandomScheduler, shuffled
from simwarp.engine.schedule.scheduler import LaunchEnded, Scheduler
from simwarp.engine.schedule.stack_scheduler import StackScheduler
from simwarp.engine.undefined.foreign_pointers import Lent
from simwarp.faults import KernelFault
from simwarp.lanes import WARP_SIZE
from simwarp.memory import Memory
from simwarp.program.program import Program
from simwarp.ptx.mangled_names import readable
from simwarp.textures import Objects, Surface, Texture

if TYPE_CHECKING:
    from simwarp.engine.components import Journal

Dim = tuple[int, int, int]
_LARGEST_REUSED = 30 << 20
"""Bytes of the block that `keep_freed_pages` allocates and frees."""
_PATIENCE = 50
"""Once lanes go on with poison, which may be a loop count, the budget is divided by this."""
_HOT, _HOT_PER_STEP = 50_000, 700
"""Work of a kernel's launches, about a tenth of a second, before it is compiled; if it is long, about as much
as LLVM takes for each of its steps."""
_LOCAL_AT_ONCE = 1 << 28
"""Most bytes of local memory in flight, unless one block needs more."""


@dataclass
class Launch:
    """One launch of a kernel: the program, its grid and block, memory, checks and observers.

    Attributes
    ----------
    grid, block, cluster : (x, y, z)
        Number of blocks, of threads per block and of blocks per cluster.
    parameters : mapping of name to bytes
    symbols : mapping of name to int
        The addresses of the module's variables.
    textures : mapping of int to Texture or Surface
        By handle.
    memory, constants, heap
        Global memory, constant memory, and the heap of device-side ``malloc``.
    shared_size, dynamic_shared : int
        Bytes of shared memory per block: in all, and the dynamic part.
    local_size : int
        Bytes of local memory per thread.
    workspace : int
        Address of the grid barrier's workspace in a cooperative launch, else 0.
    chunk_lanes : int
        Number of lanes in flight at a time; registers of this size should fit the cache.
    workers : int
        Number of chunks that run at a time, each in a process of its own.
    instruction_budget : int or None
        Most steps to execute; `RunawayKernel` after that.
    schedule, seed : str, int
        The order of lanes, warps and blocks; one of `SCHEDULERS`.
    cc : (int, int)
        The compute capability, which sets how matrix instructions add floats.
    number, clock : int
        The launch's number on the device, and the start value of ``%clock``.
    print
        Called with each text that the kernel prints.
    sources : mapping of str to str
        The texts of CUDA C++ that the kernel was compiled from, by file name, for faults.
    overlaps : bool
        Whether it runs while the launches before it may, or lets those after it start before its end.
    find_races
        Makes the race detector, unless its checks are off; None for none.
    engine : str
        "numpy"; "compiled": compiled code wherever it can run; "auto": where it pays, once its kernel is hot.
    """

    program: Program
    grid: Dim
    block: Dim
    parameters: Mapping[str, bytes]
    memory: Memory
    constants: Memory
    heap: Heap
    symbols: Mapping[str, int] = field(default_factory=dict[str, int])
    textures: Objects = field(default_factory=dict[int, Texture | Surface])
    shared_size: int = 0
    dynamic_shared: int = 0
    local_size: int = 0
    cluster: Dim = (1, 1, 1)
    explicit_cluster: bool = False
    workspace: int = 0
    chunk_lanes: int = 32768
    cooperative: bool = False
    workers: int = 1
    instruction_budget: int | None = None
    checks: Checks = field(default_factory=Checks)
    schedule: str = "lowest pc"
    seed: int = 0
    observers: Sequence[Observer] = ()
    multiprocessors: int = 132
    cc: tuple[int, int] = (9, 0)
    number: int = 0
    clock: int = 0
    print: Callable[[str], object] = print
    sources: Mapping[str, str] = field(default_factory=dict[str, str])
    overlaps: bool = False
    find_races: Callable[[Launch], OrderListener] | None = None
    engine: str = "numpy"

    def __post_init__(self) -> None:
        self.threads = self.block[0] * self.block[1] * self.block[2]
        self.blocks_per_cluster = self.cluster[0] * self.cluster[1] * self.cluster[2]
        self.steps_left = math.inf if self.instruction_budget is None else self.instruction_budget
        self.units_left = math.inf
        """The budget left once lanes go on with poison after a fault; see `Scheduler.spend`."""
        self.on_step = [o.on_step for o in self.observers if o.wants("on_step")]
        self.on_access = [o.on_access for o in self.observers if o.wants("on_access")]
        self.on_write = [o.on_write for o in self.observers if o.wants("on_write")]
        self.on_stage = [o.on_stage for o in self.observers if o.wants("on_stage")]
        self.on_barrier = [o.on_barrier for o in self.observers if o.wants("on_barrier")]
        self.ended = False
        """Whether a reported fault ended the launch."""
        self.journal: Journal | None = None
        """Records changes of memory while a livelock is suspected."""
        self.races = None
        watching = [
            "races",
            *(
                ("copies", "proxies")
                if self.program.has_transfers or self.program.has_warpgroup_products
                else ()
            ),
        ]
        watching += ["dependents"] if self.overlaps else []
        if self.find_races is not None and any(self.checks.action(kind) != "off" for kind in watching):
            self.races = self.find_races(self)
        self.watched_loads = self.races.watched if self.races is not None else set[int]()
        self.spent: int = vars(self.program).get("_spent", 0)
        """Steps of the kernel executed so far, those of many lanes counted as often as they take time."""
        self.compiled = self.compile()
        self.lent = Lent(self)
        self.changed_maps = ChangedMaps()
        self.atomics: AbstractContextManager[Any] = nullcontext()

    def compile(self, hot: bool = False) -> Kernel | None:
        """The compiled kernel, if the engine and the steps spent so far ask for one."""
        if self.engine == "numpy" or self.schedule != "lowest pc" or self.on_step:
            return None
        usual = (kind for kind in KINDS if kind not in STRICT)
        if self.program.exchanges and any(self.checks.action(kind) != "raise" for kind in usual):
            return None  # after a fault an exchange may read lanes that have ended, which have no value here
        enough = max(_HOT, _HOT_PER_STEP * len(self.program.steps))
        is_asked = self.engine == "compiled" or (hot and self.spent >= enough)
        return kernel_of(self.program, make=is_asked)

    @cached_property
    def reach(self) -> Reach:
        """The global memory that each step may access."""
        return Reach(self)

    @cached_property
    def windows(self) -> Windows:
        """The part of a block's shared memory that each step may access."""
        return Windows(self)

    @cached_property
    def frames(self) -> Frames:
        """The part of a function's frame that each step may access."""
        return Frames(self)

    @cached_property
    def geometry(self) -> Geometry:
        """Maps the launch's threads to the places (block, thread, source line) that faults show."""
        return Geometry(self.program.name, self.grid, self.block, self.sources)

    @cached_property
    def parameter_memory(self) -> Memory:
        """The kernel's parameters as memory, for accesses with computed addresses."""
        memory, places = Memory("param", 0), self.program.parameter_offsets
        size = max((places[name] + len(data) for name, data in self.parameters.items()), default=0)
        allocation = memory.allocate(
            size, f"parameters of kernel {readable(self.program.name)}", read_only=True
        )
        for name, data in self.parameters.items():
            allocation.fill(np.frombuffer(data, np.uint8), places[name])
        return memory

    def run(self) -> int:
        """Execute every block of the grid; returns the number of thread-instructions executed."""
        keep_freed_pages()
        chunks = self.chunks()
        ordered = shuffled(self, chunks) if self.schedule == "random" else chunks
        for observer in self.observers:
            observer.on_launch(self)
        needs_order = bool(self.observers) or self.program.calls_heap or self.schedule == "random"
        executed = 0
        if self.workers == 1 or needs_order or len(chunks) == 1:
            for chunk in ordered:
                executed += self.run_chunk(chunk)
                if self.ended:
                    break
        else:
            executed = workers.run(self, chunks)
        vars(self.program)["_spent"] = self.spent
        for observer in self.observers:
            observer.on_end(self)
        return executed

    def found(self, fault: KernelFault) -> None:
        """Report a fault to the observers and raise or collect it; ignore it if its check is off."""
        if self.checks.action(fault.check) == "off":
            return
        for observer in self.observers:
            observer.on_fault(fault)
        self.checks.found(fault)
        if fault.check in POISONING and math.isinf(self.units_left) and self.instruction_budget is not None:
            self.units_left = self.instruction_budget // _PATIENCE

    def chunks(self) -> Chunks:
        """The blocks of the grid, split into the chunks that execute at once, with whole clusters."""
        lanes_per_block = -(-self.threads // WARP_SIZE) * WARP_SIZE
        lanes = self.chunk_lanes
        if self.local_size:
            lanes = min(lanes, _LOCAL_AT_ONCE // self.local_size)
        blocks = math.prod(self.grid)
        at_once = blocks if self.cooperative else max(1, lanes // lanes_per_block)
        at_once = -(-at_once // self.blocks_per_cluster) * self.blocks_per_cluster
        return Chunks(self.grid, self.cluster, at_once)

    def run_chunk(self, blocks: npt.NDArray[np.int64]) -> int:
        """Execute some blocks together; returns the number of thread-instructions."""
        if self.compiled is None:
            self.compiled = self.compile(hot=True)
        with np.errstate(all="ignore"):
            self.journal, chunk = None, Chunk(self, blocks)
            self.lent.enter(self.memory)
            if self.races is not None:
                self.races.enter(chunk)
            try:
                SCHEDULERS[self.schedule](self, chunk).run()
                if chunk.copies is not None:
                    chunk.copies.finish(chunk)
                if chunk.transfers is not None:
                    chunk.transfers.finish(chunk)
            except LaunchEnded:
                self.ended = True
            finally:
                if chunk.products is not None:
                    chunk.products.forget()
        return chunk.executed - self.clock


class Chunks(Sequence[npt.NDArray[np.int64]]):
    """The blocks of a grid, ``at_once`` per chunk; the blocks of a cluster follow one another by rank."""

    def __init__(self, grid: Dim, cluster: Dim, at_once: int) -> None:
        self.grid, self.cluster, self.at_once = grid, cluster, at_once
        self.blocks = math.prod(grid)

    def __len__(self) -> int:
        return -(-self.blocks // self.at_once)

    def __getitem__(self, number: Any) -> Any:
        """The linear indices of the blocks of chunk ``number``."""
        first = range(len(self))[int(number)] * self.at_once
        blocks = np.arange(first, min(first + self.at_once, self.blocks))
        size = math.prod(self.cluster)
        if size == 1:
            return blocks
        clusters = tuple(g // c for g, c in zip(self.grid, self.cluster, strict=True))
        of_cluster = np.unravel_index(blocks // size, clusters[::-1])
        within = np.unravel_index(blocks % size, self.cluster[::-1])
        z, y, x = (i * c + j for i, j, c in zip(of_cluster, within, self.cluster[::-1], strict=True))
        return x + self.grid[0] * (y + self.grid[1] * z)


SCHEDULERS: dict[str, type[Scheduler]] = {
    "lowest pc": Scheduler,
    "stack": StackScheduler,
    "random": RandomScheduler,
}
"""Name of a schedule → its scheduler."""


@cache
def keep_freed_pages() -> None:
    """Make the C library keep the memory of freed registers, once per process.

    By default glibc returns an array of 128 KiB or more to the system as soon as it is freed, and the page
    faults of the next one cost more than the arithmetic. After a larger block was freed, glibc keeps them.
    """
    np.empty(_LARGEST_REUSED, np.uint8)
