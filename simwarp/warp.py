"""Kernels written in Python: one warp at a time, its registers NumPy arrays of 32 lanes.

A kernel is a function whose first argument is the `Warp` that executes it; `launch` runs it once for
every warp of every block.

>>> def saxpy(warp, n, a, x, y):
...     i = warp.block.x * warp.block_dim.x + warp.thread.x
...     with warp.where(i < n):
...         warp.store(y, i, a * warp.load(x, i) + warp.load(y, i))
>>> x = GlobalArray.of("x", np.arange(40, dtype=np.float32))
>>> y = GlobalArray.of("y", np.ones(40, np.float32))
>>> launch(saxpy, 2, 32, 40, np.float32(2), x, y)
>>> y.numpy()[[0, 1, 39]].tolist()
[1.0, 3.0, 79.0]

*Registers* are arrays of shape (32,): ``i`` above holds 32 indices. What is the same in all lanes
may be a plain number. Arithmetic is NumPy's, bit operations are in `simwarp.lanes`.

*Divergence* is ``with warp.where(predicate):``, CUDA's ``if``. In it only the lanes for which the
predicate holds are active: loads, stores and operations across lanes concern them alone. The body
runs even if no lane is left. An assignment, though, is Python's and replaces all 32 lanes; one that
must keep the others' old value says so: ``x = warp.select(new, x)``. What an operation would leave in
the register of a lane that did not take part is poison, 0xA5 bytes, so that its use is seen.

*Barriers*: a kernel that needs ``__syncthreads()`` is a generator function with ``yield`` for each.

>>> def reverse(warp, x):
...     tile, i = warp.shared["tile"], warp.thread.x
...     warp.store(tile, i, warp.load(x, i))
...     yield
...     warp.store(x, i, warp.load(tile, 63 - i))
>>> x = GlobalArray.of("x", np.arange(64))
>>> launch(reverse, 1, 64, x, shared={"tile": (np.int64, 64)})
>>> x.numpy()[:3].tolist()
[63, 62, 61]

*Faults* (`simwarp.faults`) are undefined behaviour on a GPU: they name the kernel, the block, the
warp, the lane and the line of Python.

Source: PTX ISA 9.0, section 9.7 (the ``.sync`` operations); CUDA C++ Programming Guide, warp vote,
match, reduce and shuffle functions.
"""

from __future__ import annotations

import inspect
import itertools
import linecache
import math
import operator
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from types import GeneratorType
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, SchemeError, ShapeError
from reference.types.launch import Extent, sizes
from simwarp import lanes
from simwarp.arrays import Array, GlobalArray, SharedArray
from simwarp.faults import (
    BarrierFault,
    InactiveSource,
    KernelFault,
    LaunchError,
    MemberMaskFault,
    MemoryFault,
    Place,
)
from simwarp.lanes import ALL_LANES, LANE, LANE_BIT, WARP_SIZE, Reduction, ShuffleMode
from simwarp.memory import POISON

__all__ = ["Array", "Extent", "GlobalArray", "SharedArray", "Warp", "Xyz", "launch", "watch"]

Register: TypeAlias = npt.NDArray[Any]
"""One value per lane, shape (32,)."""
PerLane: TypeAlias = Any
"""A register, or a number that is the same in every lane."""

GRID_LIMITS = (2**31 - 1, 65535, 65535)
BLOCK_LIMITS = (1024, 1024, 64)
MAX_THREADS = 1024
"""The most threads in a block."""

T = TypeVar("T")
_Run: TypeAlias = "GeneratorType[Any, Any, Any]"


class Xyz(NamedTuple, Generic[T]):
    """Three dimensions, as CUDA's ``dim3``."""

    x: T
    y: T
    z: T


# --------------------------------------------------------------------------------------------------
# The warp
# --------------------------------------------------------------------------------------------------


class _Launch(NamedTuple):
    """Common to all warps of a launch."""

    name: str
    code: Any
    grid: Xyz[int]
    block_dim: Xyz[int]


class _Watched(NamedTuple):
    """An element whose writers are collected."""

    array: str
    element: int
    places: list[Place]


_WATCHED: list[_Watched] = []


@contextmanager
def watch(array: str, element: int) -> Generator[list[Place]]:
    """Collect the places that store to one element, in every launch inside the block.

    Parameters
    ----------
    array : str
        The array's name.
    element : int
        Into the flat array, in C order.

    Examples
    --------
    >>> out = GlobalArray("out", 32, np.uint32)
    >>> with watch("out", 5) as places:
    ...     launch(lambda warp: warp.store(out, warp.lane, warp.lane), 1, 32)
    >>> places[0].lane
    5
    """
    watched = _Watched(array, element, [])
    _WATCHED.append(watched)
    try:
        yield watched.places
    finally:
        _WATCHED.remove(watched)


class Warp:
    """The 32 lanes that execute a kernel together.

    `launch` makes it; a kernel only uses it. Operations across lanes take ``mask``, the member mask:
    the lanes that must execute them, ``0xffffffff`` for all, or one word per lane where groups of
    lanes have masks of their own. Lanes that have exited (those which a partial last warp does not
    have) count as arrived. A lane outside its mask, or a named lane that does not execute, is a
    `MemberMaskFault`.

    Attributes
    ----------
    lane : array of uint32, (32,)
        0 … 31.
    index : int
        The warp within its block.
    block, grid, block_dim : (x, y, z) of int
        CUDA's ``blockIdx``, ``gridDim`` and ``blockDim``.
    thread : (x, y, z) of arrays of uint32, (32,)
        CUDA's ``threadIdx``.
    active : array of bool, (32,)
        The lanes that execute at this point; read-only, see `where`.
    alive : array of bool, (32,)
        The lanes that have not exited.
    shared : dict of SharedArray
        The block's shared memory, by name.
    """

    def __init__(
        self, launch: _Launch, block: Xyz[int], index: int, shared: Mapping[str, SharedArray]
    ) -> None:
        self.index, self.block, self.shared = index, block, shared
        self.grid, self.block_dim = launch.grid, launch.block_dim
        self._launch = launch
        width, height, _ = launch.block_dim
        number = np.uint32(index * WARP_SIZE) + LANE
        self.lane = LANE.copy()
        self.thread = Xyz(number % width, number // width % height, number // (width * height))
        for register in (self.lane, *self.thread):
            register.flags.writeable = False  # so that `i = warp.lane; i += 1` cannot renumber the lanes
        self.alive = number < math.prod(launch.block_dim)
        self._activate(self.alive)

    def _activate(self, active: npt.NDArray[np.bool_]) -> None:
        active.flags.writeable = False
        self.active = active
        self._executing = None if active.all() else active  # as simwarp.lanes takes it

    # Divergence

    @contextmanager
    def where(self, predicate: PerLane) -> Generator[None]:
        """Let only the lanes for which ``predicate`` (bool) holds execute the block; nests.

        Examples
        --------
        >>> def count(warp, out):
        ...     with warp.where(warp.lane < 8):
        ...         with warp.where(warp.lane % 2 == 0):
        ...             warp.store(out, warp.lane, np.uint32(1))
        >>> out = GlobalArray.of("out", np.zeros(32, np.uint32))
        >>> launch(count, 1, 32, out)
        >>> int(out.numpy().sum())
        4
        """
        outer = self.active
        self._activate(outer & self._predicate("where", predicate))
        try:
            yield
        finally:
            self._activate(outer)

    def select(self, new: PerLane, old: PerLane) -> Register:
        """An assignment under the mask: ``new`` in the active lanes, ``old`` in the others.

        ``if (p) x = f(x);`` is ``with warp.where(p): x = warp.select(f(x), x)``.
        """
        return cast("Register", np.where(self.active, new, old))

    # Memory

    def load(self, array: Array, index: PerLane) -> Register:
        """Each active lane's ``array[index]``.

        Parameters
        ----------
        array : GlobalArray or SharedArray
        index : integers
            Into the flat array, in C order.

        Raises
        ------
        OutOfBounds, Misaligned, UninitialisedRead
            For the first active lane that may not read there; a negative index is out of bounds.
        """
        at = self._index(array, index)
        with self._located(array, at):
            loaded = array.memory.load(array.addresses(at), array.dtype)
        if self._executing is None:
            return loaded
        register = _poison(array.dtype)
        register[self.active] = loaded
        return register

    def store(self, array: Array, index: PerLane, values: PerLane) -> None:
        """Write each active lane's ``values`` to ``array[index]``; of equal indices the last lane wins.

        Parameters
        ----------
        array : GlobalArray or SharedArray
        index : integers
            Into the flat array, in C order.
        values : of the array's dtype, or one that converts to it without loss

        Raises
        ------
        OutOfBounds, Misaligned, ReadOnlyWrite
            For the first active lane that may not write there.
        DtypeError
            For values that the conversion would change.
        """
        at, offered = self._index(array, index), self._offered("store", array, values)
        with self._located(array, at):
            array.memory.store(array.addresses(at), offered)
        self._note_store(array, at)

    def atomic_add(self, array: Array, index: PerLane, values: PerLane) -> None:
        """Add each active lane's ``values`` to ``array[index]``; lanes with one index do so by turns.

        The lanes of a warp, and the warps of a launch, add in ascending order: one of the orders that
        hardware may take. Unlike ``atomicAdd`` it returns nothing, as ``red`` in PTX.

        Parameters
        ----------
        array : GlobalArray or SharedArray
        index : integers
            Into the flat array, in C order.
        values : of the array's dtype, or one that converts to it without loss

        Raises
        ------
        OutOfBounds, Misaligned, ReadOnlyWrite, UninitialisedRead
            For the first active lane that may not read and write there.
        DtypeError
            For values that the conversion would change.

        Notes
        -----
        Source: PTX ISA 9.0, section 9.7.13.6 (``red``).

        Examples
        --------
        >>> sums = GlobalArray.of("sums", np.zeros(2, np.int32))
        >>> launch(lambda warp: warp.atomic_add(sums, warp.lane % 2, np.int32(1)), 3, 32)
        >>> sums.numpy().tolist()
        [48, 48]
        """
        at, offered = self._index(array, index), self._offered("atomic_add", array, values)
        with self._located(array, at):
            held = array.memory.load(array.addresses(at), array.dtype)
            _, first, which = np.unique(at, return_index=True, return_inverse=True)
            sums = held[first]
            np.add.at(sums, which, offered)
            array.memory.store(array.addresses(at), sums[which])
        self._note_store(array, at)

    # Across lanes

    def ballot(self, predicate: PerLane, mask: PerLane = ALL_LANES) -> Register:
        """``__ballot_sync``: the word whose bit i is lane i's predicate → uint32."""
        self._meet("ballot", mask)
        votes = lanes.ballot(self._predicate("ballot", predicate), mask, self._executing)
        return self._received(votes.value)

    def any(self, predicate: PerLane, mask: int = ALL_LANES) -> bool:
        """``__any_sync``: whether the predicate holds in an active lane; one answer, fit for ``if``.

        The mask is one number for all lanes, also in `all` and `uni`.
        """
        return self._vote("any", lanes.vote_any, predicate, mask)

    def all(self, predicate: PerLane, mask: int = ALL_LANES) -> bool:
        """``__all_sync``: whether the predicate holds in every active lane."""
        return self._vote("all", lanes.vote_all, predicate, mask)

    def uni(self, predicate: PerLane, mask: int = ALL_LANES) -> bool:
        """``vote.uni``: whether the predicate is the same in every active lane."""
        return self._vote("uni", lanes.vote_uni, predicate, mask)

    def shfl(self, value: PerLane, source: PerLane, width: int = 32, mask: PerLane = ALL_LANES) -> Register:
        """``__shfl_sync``: the value of lane ``source``, counted within segments of ``width`` lanes.

        Parameters
        ----------
        value : register
            The value of each lane.
        source : integer
        width : 1, 2, 4, 8, 16 or 32

        Raises
        ------
        InactiveSource
            If an active lane reads one that is inactive or outside the mask.
        MemberMaskFault
            See `Warp`.

        Examples
        --------
        >>> def broadcast(warp, out):
        ...     warp.store(out, warp.lane, warp.shfl(warp.lane * np.uint32(10), 3))
        >>> out = GlobalArray("out", 32, np.uint32)
        >>> launch(broadcast, 1, 32, out)
        >>> out.numpy()[:3].tolist()
        [30, 30, 30]
        """
        return self._shuffle("shfl", "idx", value, source, width, mask)

    def shfl_up(self, value: PerLane, delta: PerLane, width: int = 32, mask: PerLane = ALL_LANES) -> Register:
        """``__shfl_up_sync``: the value ``delta`` lanes lower, or else one's own. See `shfl`."""
        return self._shuffle("shfl_up", "up", value, delta, width, mask)

    def shfl_down(
        self, value: PerLane, delta: PerLane, width: int = 32, mask: PerLane = ALL_LANES
    ) -> Register:
        """``__shfl_down_sync``: the value ``delta`` lanes higher, or else one's own. See `shfl`."""
        return self._shuffle("shfl_down", "down", value, delta, width, mask)

    def shfl_xor(
        self, value: PerLane, lane_mask: PerLane, width: int = 32, mask: PerLane = ALL_LANES
    ) -> Register:
        """``__shfl_xor_sync``: the value of lane ``lane ^ lane_mask``, the butterfly. See `shfl`."""
        return self._shuffle("shfl_xor", "bfly", value, lane_mask, width, mask)

    def match_any(self, value: PerLane, mask: PerLane = ALL_LANES) -> Register:
        """``__match_any_sync``: the mask of the lanes that hold the same bits → uint32."""
        self._meet("match_any", mask)
        return self._received(lanes.match_any(self._bits(value), mask, self._executing).value)

    def match_all(self, value: PerLane, mask: PerLane = ALL_LANES) -> Register:
        """``__match_all_sync``: the mask of all, if all hold the same bits, else 0 → uint32."""
        self._meet("match_all", mask)
        return self._received(lanes.match_all(self._bits(value), mask, self._executing).value)

    def reduce(self, operation: Reduction, value: PerLane, mask: PerLane = ALL_LANES) -> Register:
        """``__reduce_add_sync`` and its kin, PTX's ``redux.sync``: one result for every lane.

        Parameters
        ----------
        operation : "add", "min", "max", "and", "or" or "xor"
        value : uint32 or int32
            ``add`` wraps at 32 bits.
        """
        self._meet("reduce", mask)
        offered = self._register("reduce", value)
        if offered.dtype.kind not in "iu" or offered.dtype.itemsize != 4:
            raise DtypeError(
                f"reduce of {offered.dtype}: redux takes uint32 and int32; convert the value first"
            )
        return self._received(lanes.redux(operation, offered, mask, self._executing).value)

    # Faults

    def place(self, fault: KernelFault, lane: int | None = None, frame: Any = None) -> KernelFault:
        """Complete a fault with where the kernel stands: in ``frame``, or in the call under way."""
        frame = frame or inspect.currentframe()
        while frame is not None and frame.f_code is not self._launch.code:
            frame = frame.f_back
        if frame is not None:
            line = int(frame.f_lineno)
            text = linecache.getline(frame.f_code.co_filename, line, frame.f_globals).strip()
            fault.at(line=line, text=text)
        if lane is not None:
            fault.at(lane=lane, thread=tuple(int(axis[lane]) for axis in self.thread))
        return fault.at(kernel=self._launch.name, block=tuple(self.block), warp=self.index)

    # Behind them

    def _vote(self, name: str, vote: Callable[..., lanes.Voted], predicate: PerLane, mask: int) -> bool:
        self._meet(name, operator.index(mask))
        return bool(vote(self._predicate(name, predicate), mask, self._executing).value[0])

    def _shuffle(
        self, name: str, mode: ShuffleMode, value: PerLane, b: PerLane, width: int, mask: PerLane
    ) -> Register:
        if width not in (1, 2, 4, 8, 16, 32):
            raise SchemeError(f"{name} has width={width}: give a power of two from 1 to 32")
        self._meet(name, mask)
        c = lanes.shuffle_c(width, mode)
        result, _, defined = lanes.shfl(self._register(name, value), b, c, mode, mask, self._executing)
        undefined = self.active & ~defined
        if undefined.any():
            reader = int(undefined.argmax())
            source, _ = lanes.shuffle_source(b, c, mode)
            source = int(np.broadcast_to(source, WARP_SIZE)[reader])
            present = "is not in the mask" if self.active[source] else "is inactive"
            state = present if self.alive[source] else "has exited"
            raise self._fault(
                InactiveSource,
                f"{name} reads lane {source}, which {state}",
                f"{_hex_mask(mask, reader)}, executing {_word_of(self.active):#010x}",
                "read a lane that executes the shuffle with the same mask",
                reader,
            )
        return self._received(result)

    def _meet(self, name: str, mask: PerLane) -> None:
        """Check the member masks of an operation that the active lanes execute."""
        if self._executing is None and isinstance(mask, int) and mask == ALL_LANES:
            return
        masks = np.broadcast_to(np.asarray(mask, np.uint32), WARP_SIZE)
        outside = self.active & (masks & LANE_BIT == 0)
        if outside.any():
            lane = int(outside.argmax())
            raise self._fault(
                MemberMaskFault,
                f"{name} executed by a lane that is not in its own member mask",
                f"{_hex_mask(mask, lane)}, executing {_word_of(self.active):#010x}",
                "name every lane that executes the operation in its mask",
                lane,
            )
        # (executing lane, lane that its mask names)
        named = self.active[:, None] & self.alive & (masks[:, None] & LANE_BIT != 0)
        absent = named & ~(self.active & (masks == masks[:, None]))
        if absent.any():
            lane, missing = (int(i) for i in np.argwhere(absent)[0])
            how = "executes it with another mask" if self.active[missing] else "never executes it"
            raise self._fault(
                MemberMaskFault,
                f"{name} waits for a lane that {how}: a deadlock on hardware",
                f"lane {lane} has {_hex_mask(mask, lane)}, executing {_word_of(self.active):#010x}",
                "leave the lane out of the mask, or let it execute the operation with the same mask",
                missing,
            )

    def _register(self, name: str, value: PerLane) -> Register:
        value = np.asarray(value)
        if value.shape == (WARP_SIZE,):
            return value
        if value.shape not in ((), (1,)):
            raise ShapeError(
                f"{name}: a register has shape (32,), one value per lane, but this has {value.shape}"
            )
        return np.broadcast_to(value, WARP_SIZE)

    def _predicate(self, name: str, value: PerLane) -> npt.NDArray[np.bool_]:
        register = self._register(name, value)
        if register.dtype != np.bool_:
            raise DtypeError(
                f"{name} needs a predicate, not {register.dtype}: write the comparison, `x != 0`"
            )
        return register

    def _bits(self, value: PerLane) -> Register:
        register = self._register("match", value)
        return register.view(f"u{register.dtype.itemsize}")

    def _index(self, array: Array, index: PerLane) -> npt.NDArray[Any]:
        """The indices of the active lanes."""
        register = self._register(array.name, index)
        if register.dtype.kind not in "iu":
            raise DtypeError(f"the index into {array.name} is {register.dtype}: an index is an integer")
        return register if self._executing is None else register[self.active]

    def _received(self, value: npt.NDArray[Any]) -> Register:
        register = np.broadcast_to(value, WARP_SIZE).copy()
        if self._executing is not None:
            register[~self.active] = _poison(register.dtype)[~self.active]
        return register

    def _offered(self, name: str, array: Array, values: PerLane) -> npt.NDArray[Any]:
        """The active lanes' values for an array, in its type."""
        if np.result_type(values, array.dtype) != array.dtype:
            raise DtypeError(
                f"{name} of {np.result_type(values)} to {array.name}, which holds {array.dtype}: "
                f"convert it first, with .astype(np.{array.dtype})"
            )
        return self._register(name, values).astype(array.dtype)[self.active]

    def _note_store(self, array: Array, at: npt.NDArray[Any]) -> None:
        """Collect the writers of watched elements of the array."""
        for watched in _WATCHED:
            if watched.array != array.name:
                continue
            for position in np.flatnonzero(at == watched.element):
                lane = int(np.flatnonzero(self.active)[position])
                watched.places.append(self.place(KernelFault(""), lane).place)

    @contextmanager
    def _located(self, array: Array, index: npt.NDArray[Any]) -> Generator[None]:
        try:
            yield
        except MemoryFault as fault:
            fault.values += f"; index {int(index[fault.position])} into {array.name}, size {array.size}"
            self.place(fault, int(np.flatnonzero(self.active)[fault.position]))
            raise

    def _fault(self, kind: type[KernelFault], what: str, values: str, advice: str, lane: int) -> KernelFault:
        return self.place(kind(what, values, advice), lane)


def _poison(dtype: np.dtype[Any]) -> Register:
    octets = np.full(WARP_SIZE * dtype.itemsize, POISON, np.uint8)
    return octets.astype(np.bool_) if dtype.kind == "b" else octets.view(dtype)


def _word_of(active: npt.NDArray[np.bool_]) -> int:
    return int(lanes.ballot(active).value[0])


def _hex_mask(mask: PerLane, lane: int) -> str:
    return f"mask {int(np.broadcast_to(mask, WARP_SIZE)[lane]):#010x}"


# --------------------------------------------------------------------------------------------------
# The launch
# --------------------------------------------------------------------------------------------------


def launch(
    kernel: Callable[..., object],
    grid: Extent,
    block: Extent,
    *args: object,
    shared: Mapping[str, tuple[npt.DTypeLike, Extent]] | None = None,
) -> None:
    """Run a kernel: ``kernel<<<grid, block>>>(*args)``.

    Blocks run one after another, and within a block its warps, each up to the next barrier.

    Parameters
    ----------
    kernel : callable
        ``kernel(warp, *args)``. With barriers, a generator function with ``yield`` for each.
    grid, block : int or up to three of them, (x, y, z)
        Blocks, and threads of a block. Thread (x, y, z) is number ``x + X * (y + Y * z)``; each 32
        make a warp, and the lanes that the last warp has too many have exited.
    *args
        Numbers and `GlobalArray`.
    shared : mapping of name to (dtype, shape)
        Each block's shared memory, ``warp.shared[name]``.

    Raises
    ------
    LaunchError
        For a grid or block that CUDA would refuse, and for NumPy arrays among ``args``.
    KernelFault
        The kernel's fault, and its place.

    Notes
    -----
    Source: CUDA C++ Programming Guide, thread hierarchy and execution configuration.

    Examples
    --------
    >>> def hello(warp, out):
    ...     warp.store(out, warp.block.x, np.int32(warp.block.x))
    >>> out = GlobalArray("out", 3, np.int32)
    >>> launch(hello, 3, 32, out)
    >>> out.numpy().tolist()
    [0, 1, 2]
    """
    grid, block = _extent("grid", grid, GRID_LIMITS), _extent("block", block, BLOCK_LIMITS)
    threads = math.prod(block)
    if threads > MAX_THREADS:
        raise LaunchError(f"block {tuple(block)} has {threads} threads: give a block at most {MAX_THREADS}")
    for position, arg in enumerate(args):
        if isinstance(arg, np.ndarray):
            raise LaunchError(
                f"argument {position} is a NumPy array: give the kernel a GlobalArray.of(name, array)"
            )
    code = getattr(inspect.unwrap(kernel), "__code__", None)
    common = _Launch(getattr(kernel, "__name__", type(kernel).__name__), code, grid, block)
    for z, y, x in itertools.product(*(range(n) for n in reversed(grid))):
        arrays = {name: SharedArray(name, shape, dtype) for name, (dtype, shape) in (shared or {}).items()}
        warps = [Warp(common, Xyz(x, y, z), i, arrays) for i in range(-(-threads // WARP_SIZE))]
        _run_block(kernel, warps, args)


def _run_block(kernel: Callable[..., object], warps: list[Warp], args: tuple[object, ...]) -> None:
    """Run the warps in turn, from barrier to barrier; a kernel without one ends in its call."""
    runs: dict[Warp, _Run] = {}
    for warp in warps:
        run = kernel(warp, *args)
        if inspect.isgenerator(run):
            runs[warp] = run
    while runs:
        runs = {warp: run for warp, run in runs.items() if _reaches_barrier(warp, run)}
        if runs and len(runs) < len(warps):
            waiting = [warp.index for warp in runs]
            ended = [warp.index for warp in warps if warp not in runs]
            fault = BarrierFault(
                "barrier that some warps of the block never reach",
                f"waiting: warps {waiting}; ended: warps {ended}",
                "let every warp of the block pass the same number of barriers",
            )
            warp, run = next(iter(runs.items()))
            raise warp.place(fault, frame=run.gi_frame)


def _reaches_barrier(warp: Warp, run: _Run) -> bool:
    """Run a warp on to its next barrier, or to its end."""
    ended = object()
    if next(run, ended) is ended:
        return False
    missing = warp.alive & ~warp.active
    if missing.any():
        fault = BarrierFault(
            "barrier that some lanes of the warp do not reach",
            f"waiting {_word_of(warp.active):#010x}, not exited {_word_of(warp.alive):#010x}",
            "move the barrier out of the `where`, so that every lane reaches it",
        )
        raise warp.place(fault, int(missing.argmax()), run.gi_frame)
    return True


def _extent(what: str, given: Extent, limits: tuple[int, int, int]) -> Xyz[int]:
    axes = sizes(given)
    padded = (*axes, 1, 1)[:3]
    if not 1 <= len(axes) <= 3 or not all(1 <= n <= limit for n, limit in zip(padded, limits, strict=True)):
        raise LaunchError(f"{what} {given}: give one to three numbers from 1 to at most {limits}")
    return Xyz(*padded)
