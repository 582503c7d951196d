"""The events of a simulated launch, and the interfaces of observers and of the race detector.

The executor looks once per launch for the events that an observer overrides, so that the others cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.values import shortened

if TYPE_CHECKING:
    from simwarp.engine.state import Chunk, Launch, Mask
    from simwarp.faults import KernelFault
    from simwarp.memory import Memory
    from simwarp.program.program import Step


@shortened
@dataclass(frozen=True)
class WriteEvent:
    """A write to global memory: its lanes, addresses and values.

    Attributes
    ----------
    chunk : Chunk
        The state at that moment; `Chunk.place` gives the place of a lane.
    lanes : (n,) int
        The writing lanes, numbered through the chunk.
    addresses : (n,) uint64
    values : (n,) of the written type
    register : str
        The register that holds the values.
    """

    chunk: Chunk
    lanes: npt.NDArray[np.int64]
    addresses: npt.NDArray[np.uint64]
    values: npt.NDArray[Any]
    register: str


UNITS = ("lanes", "remote stores", "bulk copies", "tensor copies", "products")
"""Who accesses memory: lanes themselves, or what they issue; ``st.async`` is a remote store."""


@shortened
@dataclass(frozen=True)
class AccessEvent:
    """A memory access of some lanes, or of an asynchronous operation that they issued, after it happened.

    Attributes
    ----------
    chunk : Chunk
    step : Step
    kind : str
        "load", "store", "atomic" or "reduction".
    space : str
        "global", "shared", "local", "const" or "param"; for a generic address the space that it points to.
    lanes : (n,) int
        The lanes, numbered through the chunk: 32 times the row, plus the lane; ascending. Of copies and
        products the lane that issues, once for each address.
    addresses : (n,) uint64
        In shared memory offsets in the block's window, in local memory offsets in the thread's.
    width : int
        Bytes that each lane accesses, all elements of a vector together.
    unit : str
        One of `UNITS`.
    """

    chunk: Chunk
    step: Step
    kind: str
    space: str
    lanes: npt.NDArray[np.int64]
    addresses: npt.NDArray[np.uint64]
    width: int
    unit: str = "lanes"


class StageEvent(NamedTuple):
    """An event of a pipeline stage in shared memory: a write begins, its data may be read, or it is read.

    Attributes
    ----------
    moment : str
        "issued": a copy into it begins; "filled": a wait for the copies into it has ended;
        "read": an asynchronous product of it begins, or a wait for one has ended.
    stage : str
        Its name: the mbarrier that counts the bytes, or the place of a group's first byte; "" for "read".
    block : int
        The number of the block in the grid.
    addresses : (n,) uint64
        The bytes written or read, by their offsets in the block's window, as units of ``width`` bytes.
    """

    chunk: Chunk
    step: Step
    moment: str
    stage: str
    block: int
    addresses: npt.NDArray[np.uint64]
    width: int


class Observer:
    """Base class of observers; override the events to observe.

    Examples
    --------
    >>> class CountSteps(Observer):
    ...     steps = 0
    ...     def on_step(self, chunk, step, mask):
    ...         self.steps += 1
    >>> CountSteps().wants("on_step"), CountSteps().wants("on_write")
    (True, False)
    """

    def on_launch(self, launch: Launch) -> None:
        """A launch is about to begin."""

    def on_step(self, chunk: Chunk, step: Step, mask: Mask) -> None:
        """The lanes of ``mask``, whose guard was true, have executed a step; its results are written."""

    def on_access(self, event: AccessEvent) -> None:
        """Lanes read or wrote memory."""

    def on_write(self, event: WriteEvent) -> None:
        """Lanes wrote to global memory."""

    def on_stage(self, event: StageEvent) -> None:
        """An asynchronous copy into shared memory begins or has been waited for."""

    def on_barrier(self, chunk: Chunk, mask: Mask) -> None:
        """The lanes of ``mask`` passed a barrier of their block."""

    def on_fault(self, fault: KernelFault) -> None:
        """A fault was found; it is raised next, unless checks collect it."""

    def on_end(self, launch: Launch) -> None:
        """A launch has ended normally."""

    def wants(self, event: str) -> bool:
        """Whether this observer overrides the method of an event, such as "on_step"."""
        return getattr(type(self), event) is not getattr(Observer, event)


class OrderedAccess(NamedTuple):
    """An access to global or shared memory: a read is reported after it, a write or atomic update before.

    Attributes
    ----------
    kind : str
        "read", "write" or "atomic".
    lanes : (n,) int64
        Numbered through the chunk.
    addresses : (n,) uint64
        Addresses in ``memory``, perhaps outside every allocation.
    width : int
        Bytes per lane, 1 to 16.
    data : (n,) of that width, or None
        The values to write.
    kept : dict, or None
        Where the listener may keep what it computes, if this very access comes again.
    """

    chunk: Chunk
    step: Step
    kind: str
    memory: Memory
    lanes: npt.NDArray[np.int64]
    addresses: npt.NDArray[np.uint64]
    width: int
    data: npt.NDArray[Any] | None = None
    kept: dict[str, Any] | None = None


Agent: TypeAlias = tuple[str, int]
"""Who performs asynchronous accesses: a word, and the address of the mbarrier that counts them or the number
of the thread or warp that waits for them."""


class OrderListener(Protocol):
    """Receives accesses to global and shared memory and the events that order them; see `simwarp.races`.

    Lanes are numbered through the chunk; masks are (warps, 32) bool.

    Attributes
    ----------
    watched : set of int
        The step numbers of the loads passed to `access`; the set may grow during a launch.
    """

    watched: set[int]

    def enter(self, chunk: Chunk, /) -> None:
        """Begin a chunk of blocks; the previous chunk has ended."""

    def access(self, access: OrderedAccess, /) -> None:
        """Lanes read, write or update global or shared memory."""

    def block_barrier(
        self, chunk: Chunk, mask: Mask, whole: bool, arrived: Mask | None, mixed: bool, /
    ) -> None:
        """Lanes pass a barrier of their block; the lanes of ``arrived`` arrived without waiting."""

    def block_arrive(self, chunk: Chunk, mask: Mask, /) -> None:
        """Lanes arrive at a barrier of their block without waiting (``barrier.arrive``)."""

    def moment(self, step: Step, /) -> int:
        """The time of an event that accesses nothing, for `follows`."""
        ...

    def follows(self, warps: npt.NDArray[np.intp], others: npt.NDArray[np.intp], times: Any, /) -> Any:
        """Whether events of warps ``others`` at ``times`` are ordered before the next events of ``warps``."""
        ...

    def warp_barrier(self, chunk: Chunk, mask: Mask, members: Any, /) -> None:
        """Lanes pass ``bar.warp.sync``, each with its own member mask."""

    def fence(self, chunk: Chunk, mask: Mask, scope: str, /) -> None:
        """Lanes execute a fence of scope "cta", "cluster", "gpu" or "sys", or "mbarrier_init"."""

    def cluster_arrive(self, chunk: Chunk, mask: Mask, relaxed: bool, /) -> None:
        """Lanes arrive at the barrier of their cluster; a relaxed arrival releases nothing."""

    def mbarrier_arrive(
        self, chunk: Chunk, lanes: npt.NDArray[np.int64], phase: tuple[int, int], relaxed: bool, wide: bool, /
    ) -> None:
        """Lanes arrive at a barrier in shared memory; ``phase`` is its address and the phase's number.

        A relaxed arrival releases nothing by itself, one that is not ``wide`` only to its own block.
        """

    def mbarrier_wait(
        self, chunk: Chunk, lanes: npt.NDArray[np.int64], phase: tuple[int, int], relaxed: bool, wide: bool, /
    ) -> None:
        """Lanes find a phase of a barrier in shared memory complete; see `mbarrier_arrive`."""

    def mbarrier_settled(
        self, chunk: Chunk, lanes: npt.NDArray[np.int64], phase: tuple[int, int], /
    ) -> npt.NDArray[np.bool_]:
        """For each lane, whether all work that completed a phase is ordered before its next access."""
        ...

    def cluster_wait(self, chunk: Chunk, mask: Mask, /) -> None:
        """Lanes pass ``barrier.cluster.wait``, the barrier of their cluster."""

    def leave(self, chunk: Chunk, mask: Mask, /) -> None:
        """Lanes exit the kernel."""

    def issue(self, access: OrderedAccess, agent: Agent, phase: int | None = None, /) -> int:
        """Lanes begin an asynchronous access, of an agent; returns its time.

        ``phase`` is that in which an mbarrier counts it.
        """
        ...

    def retire(self, chunk: Chunk, lanes: npt.NDArray[np.int64], agent: Agent, time: int, /) -> None:
        """Lanes have waited for an agent's accesses up to a time."""

    def complete(self, agent: Agent, time: int, phase: tuple[int, int], /) -> None:
        """An agent's accesses up to a time end within a phase of a barrier in shared memory."""

    def proxy_fence(self, chunk: Chunk, mask: Mask, /) -> None:
        """Lanes execute ``fence.proxy.async``: later asynchronous accesses see the writes that lanes know."""

    def grid_control(self, chunk: Chunk, mask: Mask, waits: bool, /) -> None:
        """Lanes execute ``griddepcontrol.wait`` if ``waits``, else ``griddepcontrol.launch_dependents``."""
