"""Protocols of the parts of a chunk, a launch and a scheduler; see `simwarp.engine.state`.

The class of a component stands in the module of its subject, with its reasons.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from simwarp.engine.state import Chunk, Mask
    from simwarp.faults import Caller, KernelFault, Place
    from simwarp.fragments.descriptors import Descriptors
    from simwarp.memory import Allocation, Memory
    from simwarp.program.program import Routine, Step

_Lanes: TypeAlias = npt.NDArray[np.int64]
_Addresses: TypeAlias = npt.NDArray[np.uint64]
_Warps: TypeAlias = npt.NDArray[np.intp]

Ways: TypeAlias = Mapping[int, tuple[Mapping[int, int], Mapping[int, int]]]
"""Step where lanes leave for good → its edges past all barriers, and past all warp operations."""

# ---- undefined values: see `simwarp.engine.undefined.values` -----------------------------------------


class Undefined(Protocol):
    """The origin of undefined values: the instruction or memory that they came from."""

    def fault(self, chunk: Chunk, lane: int) -> KernelFault:
        """The fault for a lane that uses the undefined value in the current step."""
        ...


class Foreign(Protocol):
    """Origin of foreign pointers: the step that loaded them; see `engine.undefined.foreign_pointers`."""

    @property
    def step(self) -> Step: ...

    def of(self, threads: _Lanes) -> tuple[_Warps, npt.NDArray[np.bool_]]:
        """For each thread, the index of the load that gave it a foreign pointer, and whether it has one."""
        ...


Origin: TypeAlias = Undefined | Foreign
"""Origin of values that may not be used like others."""


class Missing(Protocol):
    """The undefined bits of the values that a step loaded: the lanes, and one array of words per element."""

    @property
    def lanes(self) -> Mask: ...
    @property
    def bits(self) -> list[npt.NDArray[Any]]: ...
    @property
    def origin(self) -> Origin: ...


class Target(Protocol):
    """The executing lanes' addresses in a state space: in its memory, and ``within`` the lane's window."""

    @property
    def space(self) -> str: ...
    @property
    def memory(self) -> Memory: ...
    @property
    def address(self) -> Any: ...
    @property
    def within(self) -> Any: ...


# ---- asynchronous operations -------------------------------------------------------------------------


class Copies(Protocol):
    """The ``cp.async`` of a chunk that no wait has ended yet."""

    @property
    def in_flight(self) -> bool: ...

    def issue(self, chunk: Chunk, step: Step, size: int, counts: Any, sources: Any) -> None:
        """Issue the ``cp.async`` copies of the executing lanes."""

    def commit(self, chunk: Chunk) -> None:
        """Close the current copy group (``cp.async.commit_group``) of each executing lane."""

    def wait(self, chunk: Chunk, pending: int | None) -> None:
        """End all groups of the executing lanes except the latest ``pending``; None: all copies."""

    def arrive(self, chunk: Chunk, step: Step) -> None:
        """Make the executing lanes arrive at an mbarrier when their copies so far have ended."""

    def deliver(self, chunk: Chunk, address: int) -> None:
        """Complete the copies that will arrive at an mbarrier."""

    def check(
        self, chunk: Chunk, memory: Memory, lanes: _Lanes, addresses: _Addresses, width: int, verb: str
    ) -> None:
        """Report an access to bytes that a copy in flight writes, or a write to bytes that one reads."""


class Transfer(Protocol):
    """An operation of the asynchronous proxy; `engine.asynchronous.transfers.Transfer` describes it."""

    @property
    def step(self) -> Step: ...
    @property
    def thread(self) -> int: ...
    @property
    def writes(self) -> _Addresses: ...
    @property
    def swizzle(self) -> int | None: ...
    @property
    def barrier(self) -> int | None: ...
    @property
    def bytes(self) -> int: ...
    @property
    def time(self) -> int: ...


class Transfers(Protocol):
    """The transfers of a chunk that no thread has waited for yet."""

    @property
    def in_flight(self) -> bool: ...

    def issue(self, chunk: Chunk, transfer: Any) -> None:
        """Issue a `simwarp.engine.asynchronous.transfers.Transfer` whose addresses have been checked."""

    def commit(self, chunk: Chunk) -> None:
        """End the current bulk group of each executing thread."""

    def wait(self, chunk: Chunk, pending: int, reads_only: bool) -> None:
        """Complete the executing threads' bulk groups, or only their reads, except the latest ``pending``."""

    def deliver(self, chunk: Chunk, barrier: int) -> None:
        """Move the bytes of all transfers that the mbarrier at an address counts."""

    def waited(self, chunk: Chunk, barrier: int, phase: int) -> None:
        """Forget the transfers of a phase that a thread observed as complete."""

    def uncounted(self, barrier: int, phase: int) -> Sequence[Transfer]:
        """The pending transfers whose bytes count in a phase of an mbarrier."""
        ...


class MBarriers(Protocol):
    """The mbarriers in a chunk's shared memory, by address."""

    def execute(self, chunk: Chunk, step: Step) -> Any:
        """Execute an operation in each executing lane; returns the results, (warps, 32)."""

    def expect(self, chunk: Chunk, transfer: Transfer) -> int:
        """The phase of the barrier that will count a transfer."""
        ...

    def count(self, chunk: Chunk, transfer: Transfer) -> None:
        """Subtract the bytes of a completed transfer from those that its mbarrier expects."""

    def expect_late(self, chunk: Chunk, address: int, count: int) -> bool:
        """Add ``count`` arrivals to an mbarrier's current phase; return False if there is no mbarrier."""
        ...

    def arrive_late(self, chunk: Chunk, address: int, count: int, time: int) -> None:
        """Count arrivals of threads whose copies have ended; ``time`` is the race detector's, of the last."""

    def note_unheeded(self, chunk: Chunk, fault: KernelFault, lane: int, address: int | None = None) -> None:
        """Add the warp's last wait to a lane's fault, if that wait ordered nothing."""


class Products(Protocol):
    """The products of a chunk's warpgroups that no wait has ended yet."""

    @property
    def in_flight(self) -> bool: ...

    def issue(self, chunk: Chunk, step: Step, rows: _Warps) -> None:
        """Begin the products of warpgroups; ``rows`` (n, 4) are the chunk's rows of their warps."""

    def fence(self, chunk: Chunk) -> None:
        """Order accesses to registers before the next products of the executing warps."""

    def commit(self, chunk: Chunk) -> None:
        """Close the current ``wgmma`` group of each executing warp."""

    def wait(self, chunk: Chunk, pending: int) -> None:
        """End all groups of the executing warps except the latest ``pending``."""


class Tiles(Protocol):
    """The swizzles of the tiles in a chunk's shared memory that tensor maps filled."""

    def fill(self, chunk: Chunk, transfer: Transfer) -> None:
        """Record the swizzle mode of the shared-memory bytes that a transfer wrote."""

    def forget(self, addresses: _Addresses) -> None:
        """Forget the swizzle of bytes that an ordinary instruction wrote."""

    def check(self, chunk: Chunk, at: Any, descriptors: Descriptors, warps: Any, name: str) -> None:
        """Report matrices whose descriptor does not fit the tile that a tensor map filled."""


class RegisterPool(Protocol):
    """The registers of the blocks in flight, for ``setmaxnreg``."""

    def request(self, chunk: Chunk, step: Step, warp: int) -> bool:
        """Change the number of registers of a warp; return whether the warp may continue."""
        ...


# ---- meetings, calls and places ----------------------------------------------------------------------


class Opening(Protocol):
    """Complete barriers of one number: passing lanes, arrived lanes, and whether all lanes wait there."""

    @property
    def waiting(self) -> Mask: ...
    @property
    def arrived(self) -> Mask: ...
    @property
    def whole(self) -> bool: ...


class Barriers(Protocol):
    """The barriers of the blocks in a chunk; `simwarp.engine.sync.barriers.Barriers` describes the arrays."""

    @property
    def waits_at(self) -> _Lanes: ...
    @property
    def expects(self) -> _Lanes: ...
    @property
    def arrived(self) -> Mapping[int, _Lanes]: ...

    def come(self, step: Step, mask: Mask) -> None:
        """Record that the lanes of ``mask`` execute a barrier instruction."""

    def complete(self) -> Sequence[Opening]:
        """Return the barriers that are complete and mark their lanes as no longer waiting."""
        ...

    def reduce(self, operation: str, predicate: Any, lanes: Mask) -> Any:
        """``bar.red``: reduce the predicates of the lanes that pass a barrier together."""


class ClusterBarrier(Protocol):
    """``barrier.cluster`` of the clusters in a chunk; ``arrived`` lanes are at one that is incomplete."""

    @property
    def arrived(self) -> Mask: ...

    def arrive(self, mask: Mask, step: Step) -> None:
        """Record arrivals at a step; the lanes of a complete cluster may then pass their wait."""

    def check_wait(self, mask: Mask) -> None:
        """Report lanes at ``barrier.cluster.wait`` without a ``barrier.cluster.arrive`` before."""

    def pass_(self, mask: Mask) -> None:
        """Record that lanes pass ``barrier.cluster.wait``."""


class Gone(Protocol):
    """The lanes that left for good; ``settled`` are the live lanes when last none was missing."""

    @property
    def settled(self) -> Mask | None: ...


class Attendance(Protocol):
    """Detects lanes that are missing at barriers of blocks and at operations of warps.

    ``agreed`` are member masks that agree across their lanes, and the live lanes at that time.
    """

    agreed: tuple[Any, Any]

    @property
    def ways(self) -> Ways: ...
    @property
    def block(self) -> Gone: ...
    @property
    def warp(self) -> Gone: ...

    def part(self, chunk: Chunk, at: int, ways: Mapping[int, Mask]) -> None:
        """Record the lanes that leave the others for good at a branch, by branch target."""

    def at_barrier(
        self, chunk: Chunk, waiting: Mask, counted: Mask | None = None, aligned: Mask | None = None
    ) -> None:
        """Report lanes missing at a barrier that the ``waiting`` lanes of a whole chunk pass."""

    def meet(self, step: Step, lanes: Mask) -> None:
        """Remember that lanes pass a barrier, if others may return to it from a loop."""

    def at_operation(self, chunk: Chunk, lanes: Mask, members: Any) -> None:
        """Report members missing at a warp operation that ``lanes`` execute."""

    def passed(self, chunk: Chunk, lanes: Mask, members: Any) -> None:
        """Record member masks of lanes that pass a warp operation while lanes with other masks still wait."""


class Activation(Protocol):
    """One active call of a device function; `simwarp.engine.schedule.calls` describes its members."""

    lanes: int

    @property
    def step(self) -> Step: ...
    @property
    def goes_on_at(self) -> int: ...
    @property
    def routine(self) -> Routine: ...
    @property
    def caller(self) -> _Lanes: ...
    @property
    def frame(self) -> Any: ...
    @property
    def saved(self) -> Mapping[int, tuple[Any, Any]]: ...


class Activations(Protocol):
    """The activations of a chunk by number, and the number for each lane (-1 in the kernel itself)."""

    current: _Lanes | None
    made: int

    @property
    def under_way(self) -> dict[int, Activation]: ...

    def of(self, lane: int) -> Iterator[tuple[str, Step]]:
        """The functions that a lane is in, from the innermost outwards, each with its call step."""
        ...


class Geometry(Protocol):
    """Maps threads of a launch to the locations (block, thread, source line) that faults show."""

    def place(self, thread: int, step: Step, callers: tuple[Caller, ...] = ()) -> Place:
        """The location of a thread at a step; ``callers`` are the calls that led to the step's function."""
        ...


# ---- memory of a launch ------------------------------------------------------------------------------


class Write(Protocol):
    """Bytes that lanes wrote together, whose old values a `Journal` keeps."""

    def compare(self, old: npt.NDArray[Any], new: npt.NDArray[Any]) -> None:
        """Record whether overwriting old values with new ones changes any."""


class Journal(Protocol):
    """Memory changes since it began, and the bytes some loads read; see `simwarp.engine.memory.journal`.

    An operation that writes memory calls `note` first, one that reads a clock sets ``timed``, and a load
    whose number is in ``loads`` calls `read`.
    """

    timed: bool

    @property
    def full(self) -> bool: ...
    @property
    def loads(self) -> frozenset[int]: ...
    @property
    def reads(self) -> Mapping[tuple[int, int, bytes], Memory]: ...
    @property
    def went(self) -> Mask: ...

    def note(
        self, memory: Memory, addresses: _Addresses, width: int, step: Step | None = None, data: Any = None
    ) -> Write | None:
        """Record that bytes are about to be overwritten; ``data`` is the new value if it is known."""
        ...

    def read(self, memory: Memory, addresses: _Addresses, width: int) -> None:
        """Record the bytes that a load reads, if its step is in ``loads``."""

    def go(self, chunk: Chunk) -> None:
        """Record that the executing lanes go around a loop."""

    def is_as_before(self) -> bool:
        """Whether all changed bytes have their old values again; False if that is unknown."""
        ...

    def writers_of_reads(self, private: Memory) -> tuple[set[int], bool]:
        """The steps that wrote bytes that loads read, and whether any such byte ever changed."""
        ...


class Lent(Protocol):
    """The addresses in shared or local memory that threads of a launch stored for others to load.

    Attributes
    ----------
    steps : set of int
        The numbers of the stores that may store such an address; other stores call `forget`.
    cells : mapping
        Memory → the words in it that hold such an address.
    followed : bool
        Whether a register may hold a foreign pointer.
    """

    @property
    def steps(self) -> frozenset[int]: ...
    @property
    def cells(self) -> Mapping[Memory, object]: ...
    @property
    def followed(self) -> bool: ...

    def lenders(self, chunk: Chunk) -> tuple[_Lanes, _Lanes]:
        """(warps, 32) each: the thread and the step that each address to be stored came from."""
        ...

    def note(self, chunk: Chunk, memory: Memory, given: Any, threads: _Lanes) -> None:
        """Record which stored values, `Cells` of foreign pointers, are a lender's addresses."""

    def forget(self, memory: Memory, at: Any, width: int) -> None:
        """Remove the recorded words that a store overwrites."""

    def loaded(self, chunk: Chunk, step: Step, memory: Memory, at: _Addresses, value: Any) -> Foreign | None:
        """The foreign pointers among the values that the executing lanes load; None if there are none."""
        ...

    def check(self, chunk: Chunk, step: Step, space: str, address: Any, width: int) -> None:
        """Report lanes that access shared or local memory through a foreign pointer."""


class ChangedMaps(Protocol):
    """The tensor maps in global memory that a launch changed, and the bytes that its blocks have seen."""

    def change(self, chunk: Chunk, step: Step, address: int, lane: int, released: bool) -> None:
        """Record that a lane changed the tensor map at an address."""

    def release(self, chunk: Chunk) -> None:
        """Release the map changes that threads of the executing blocks made."""

    def acquire(self, chunk: Chunk, address: int, lane: int) -> None:
        """Make the released changes of a map visible to a lane's block."""

    def check(self, chunk: Chunk, address: int, lane: int, data: bytes) -> None:
        """Report a lane that uses a map without the fences since its change."""


class Heap(Protocol):
    """The heap of device-side ``malloc``."""

    def allocate(self, size: int) -> int:
        """Allocate ``size`` bytes; returns their address, or 0 if the heap is full."""
        ...

    def block(self, address: int) -> Allocation | None:
        """The allocation made by `allocate` that begins at an address."""
        ...

    def free(self, address: int) -> None:
        """Free an allocation made by `allocate`, given its first address."""
