"""Kernels written in Python: they run one warp at a time; registers are NumPy arrays of 32 lanes.

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

*Registers* are arrays of shape (32,): ``i`` above holds 32 indices. A value that is the same in all lanes
may be a plain number. Arithmetic is NumPy's, bit operations are in `simwarp.lanes`.

*Divergence* is ``with warp.where(predicate):``, CUDA's ``if``. In the block only the lanes whose
predicate holds are active: only they load, store and take part in operations across lanes. The block
runs even if no lane is active. An assignment is Python's and replaces all 32 lanes; to keep the old
value of inactive lanes, write ``x = warp.select(new, x)``. The result of an operation in a lane that
does not execute it is poison, 0xA5 bytes, so that its use is visible.

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

In a cooperative launch ``yield GRID`` waits for all warps of all blocks, CUDA's ``grid.sync()``.

>>> def total(warp, x, sums):
...     warp.atomic_add(sums, 0, warp.load(x, warp.block.x * 32 + warp.lane))
...     yield GRID
...     warp.store(x, warp.block.x * 32 + warp.lane, warp.load(sums, 0))
>>> x, sums = GlobalArray.of("x", np.arange(96)), GlobalArray.of("sums", np.zeros(1, np.int64))
>>> launch(total, 3, 32, x, sums, cooperative=True)
>>> x.numpy()[::40].tolist()
[4560, 4560, 4560]

*Faults* (`simwarp.faults`) report undefined behaviour: they name the kernel, the block, the warp, the
lane and the line of Python.

Source: PTX ISA 9.0, section 9.7 (the ``.sync`` operations); CUDA C++ Programming Guide, warp vote,
match, reduce and shuffle functions.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import linecache
import math
import operator
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt

from reference.devices.launch import Extent, sizes
from reference.errors import DtypeError, SchemeError, ShapeError
from simwarp import lanes
from simwarp.arrays import Array, GlobalArray, SharedArray
from simwarp.faults import (
    InactiveSource,
    KernelFault,
    LaunchError,
    MemberMaskFault,
    MemoryFault,
    Place,
)
from simwarp.lanes import ALL_LANES, LANE, LANE_BIT, WARP_SIZE, Reduction, ShuffleMode
from simwarp.memory import POISON
from simwarp.warp_barriers import Barrier, Block, run_together, word_of

__all__ = ["GRID", "Array", "Extent", "GlobalArray", "SharedArray", "Warp", "Xyz", "launch", "watch"]


def __dir__() -> list[str]:
    return sorted(__all__)


Register: TypeAlias = npt.NDArray[Any]
"""One value per lane, shape (32,)."""
PerLane: TypeAlias = Any
"""A register, or one number for all lanes."""

_OF_BITS = ("_and", "_or", "_xor")
"""Ends of the names of atomic operations on bits."""
GRID_LIMITS = (2**31 - 1, 65535, 65535)
BLOCK_LIMITS = (1024, 1024, 64)
MAX_THREADS = 1024
"""The most threads in a block."""

GRID = Barrier.GRID
"""What a kernel yields to wait for the whole grid; see `launch`."""

T = TypeVar("T")


class Xyz(NamedTuple, Generic[T]):
    """Three dimensions, as in CUDA's ``dim3``."""

    x: T
    y: T
    z: T


# --------------------------------------------------------------------------------------------------
# The warp
# --------------------------------------------------------------------------------------------------


class _Launch(NamedTuple):
    """The kernel's name and code object, and the launch's sizes: common to all its warps."""

    name: str
    code: Any
    grid: Xyz[int]
    block_dim: Xyz[int]


_WATCHED: list[tuple[str, int, list[Place]]] = []
"""The array and element of each active `watch`, and the places that stored to it."""


@contextmanager
def watch(array: str, element: int) -> Generator[list[Place]]:
    """Collect the locations of stores to one element, in all launches inside the ``with`` block.

    Parameters
    ----------
    array : str
        The array's name.
    element : int
        The index into the flat array, in C order.

    Examples
    --------
    >>> out = GlobalArray("out", 32, np.uint32)
    >>> with watch("out", 5) as places:
    ...     launch(lambda warp: warp.store(out, warp.lane, warp.lane), 1, 32)
    >>> places[0].lane
    5
    """
    watched = array, element, list[Place]()
    _WATCHED.append(watched)
    try:
        yield watched[2]
    finally:
        _WATCHED.remove(watched)


class Warp:
    """The 32 lanes that execute a kernel together.

    `launch` makes it and passes it to the kernel. Operations across lanes take ``mask``, the member mask of
    the lanes that must execute them: ``0xffffffff`` for all, or one word per lane if groups of lanes have
    different masks. The mask may name exited lanes (those missing in a partial last warp). A lane that is
    not in its own mask, or a lane of the mask that does not execute the operation, is a `MemberMaskFault`.

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
        The lanes that execute now, set by `where`; read-only.
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
            # read-only, so that `i = warp.lane; i += 1` cannot renumber the lanes
            register.flags.writeable = False
        self.alive = number < math.prod(launch.block_dim)
        self._activate(self.alive)

    def _activate(self, active: npt.NDArray[np.bool_]) -> None:
        active.flags.writeable = False
        self.active = active
        # the value for the argument ``active`` of simwarp.lanes
        self._executing = None if active.all() else active

    def as_block(self, block: tuple[int, ...], grid: tuple[int, ...]) -> Warp:
        """The same warp, which computes what this block of this grid would (BSTC's warp delegation).

        Its active lanes are those of this moment. Faults name the given block, since that is the task.

        Examples
        --------
        >>> def fill(warp, x):
        ...     warp.store(x, warp.block.x, np.int32(warp.block.x))
        >>> def delegated(warp, x):
        ...     for task in range(warp.block.x, 5, warp.grid.x):
        ...         fill(warp.as_block((task, 0, 0), (5, 1, 1)), x)
        >>> x = GlobalArray("x", 5, np.int32)
        >>> launch(delegated, 2, 32, x)
        >>> x.numpy().tolist()
        [0, 1, 2, 3, 4]
        """
        other = copy.copy(self)
        other.block, other.grid = Xyz(*block), Xyz(*grid)
        return other

    # Divergence

    @contextmanager
    def where(self, predicate: PerLane) -> Generator[None]:
        """Execute the ``with`` block only in lanes whose ``predicate`` (bool) is true; blocks may nest.

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
        """Assign in the active lanes only: ``new`` in the active lanes, ``old`` in the others.

        ``if (p) x = f(x);`` is ``with warp.where(p): x = warp.select(f(x), x)``.
        """
        return cast("Register", np.where(self.active, new, old))

    # Memory

    def load(self, array: Array, index: PerLane) -> Register:
        """Load each active lane's ``array[index]``.

        Parameters
        ----------
        array : GlobalArray or SharedArray
        index : integers
            Index into the flat array, in C order.

        Raises
        ------
        OutOfBounds, Misaligned, UninitialisedRead
            For the first active lane with such an access; a negative index is out of bounds.
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
        """Store each active lane's ``values`` to ``array[index]``; of lanes with one index the last wins.

        Parameters
        ----------
        array : GlobalArray or SharedArray
        index : integers
            Index into the flat array, in C order.
        values : of the array's dtype, or of one that converts to it without loss

        Raises
        ------
        OutOfBounds, Misaligned, ReadOnlyWrite
            For the first active lane with such an access.
        DtypeError
            For values whose dtype does not convert without loss.
        """
        at, offered = self._index(array, index), self._offered("store", array, values)
        with self._located(array, at):
            array.memory.store(array.addresses(at), offered)
        self._note_store(array, at)

    def atomic_add(self, array: Array, index: PerLane, values: PerLane) -> None:
        """Add each active lane's ``values`` to ``array[index]``; lanes may share an index.

        Lanes of a warp, and warps of a launch, add in ascending order, one of the orders that hardware may
        choose. Unlike ``atomicAdd`` it returns nothing, as ``red`` in PTX. So do the other atomic operations.

        Parameters
        ----------
        array : GlobalArray or SharedArray
        index : integers
            Index into the flat array, in C order.
        values : of the array's dtype, or of one that converts to it without loss

        Raises
        ------
        OutOfBounds, Misaligned, ReadOnlyWrite, UninitialisedRead
            For the first active lane with such an access.
        DtypeError
            For values whose dtype does not convert without loss.

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
        self._update("atomic_add", np.add, array, index, values)

    def atomic_min(self, array: Array, index: PerLane, values: PerLane) -> None:
        """``atomicMin``: the smaller of the element and each active lane's value. See `atomic_add`."""
        self._update("atomic_min", np.minimum, array, index, values)

    def atomic_max(self, array: Array, index: PerLane, values: PerLane) -> None:
        """``atomicMax``: the larger of the element and each active lane's value. See `atomic_add`."""
        self._update("atomic_max", np.maximum, array, index, values)

    def atomic_and(self, array: Array, index: PerLane, values: PerLane) -> None:
        """``atomicAnd``: clear the bits that are 0 in an active lane's value. See `atomic_add`.

        Of integers; other elements are a DtypeError. So are those of `atomic_or` and `atomic_xor`.
        """
        self._update("atomic_and", np.bitwise_and, array, index, values)

    def atomic_or(self, array: Array, index: PerLane, values: PerLane) -> None:
        """``atomicOr``: set the bits that are 1 in an active lane's value. See `atomic_and`.

        Examples
        --------
        >>> word = GlobalArray.of("word", np.zeros(1, np.uint32))
        >>> launch(lambda warp: warp.atomic_or(word, 0, np.uint32(1) << warp.lane), 1, 4)
        >>> word.numpy().tolist()
        [15]
        """
        self._update("atomic_or", np.bitwise_or, array, index, values)

    def atomic_xor(self, array: Array, index: PerLane, values: PerLane) -> None:
        """``atomicXor``: flip the bits that are 1 in an active lane's value. See `atomic_and`."""
        self._update("atomic_xor", np.bitwise_xor, array, index, values)

    def _update(self, name: str, function: np.ufunc, array: Array, index: PerLane, values: PerLane) -> None:
        if name.endswith(_OF_BITS) and array.dtype.kind not in "iu":
            raise DtypeError(
                f"{name} to {array.name}\nit has elements of {array.dtype}, and bits are those of integers\n"
                "give an array of integers, perhaps by view"
            )
        at, offered = self._index(array, index), self._offered(name, array, values)
        with self._located(array, at):
            held = array.memory.load(array.addresses(at), array.dtype)
            _, first, which = np.unique(at, return_index=True, return_inverse=True)
            updated = held[first]
            function.at(updated, which, offered)
            array.memory.store(array.addresses(at), updated[which])
        self._note_store(array, at)

    # Across lanes

    def ballot(self, predicate: PerLane, mask: PerLane = ALL_LANES) -> Register:
        """``__ballot_sync``: a word whose bit i is lane i's predicate → uint32."""
        return self._across("ballot", lanes.ballot, self._predicate("ballot", predicate), mask)

    def any(self, predicate: PerLane, mask: int = ALL_LANES) -> bool:
        """``__any_sync``: whether the predicate is true in an active lane, as one bool for Python's ``if``.

        The mask is one number for all lanes; so it is in `all` and `uni`.
        """
        return self._vote("any", lanes.vote_any, predicate, mask)

    def all(self, predicate: PerLane, mask: int = ALL_LANES) -> bool:
        """``__all_sync``: whether the predicate is true in every active lane."""
        return self._vote("all", lanes.vote_all, predicate, mask)

    def uni(self, predicate: PerLane, mask: int = ALL_LANES) -> bool:
        """``vote.uni``: whether the predicate is the same in every active lane."""
        return self._vote("uni", lanes.vote_uni, predicate, mask)

    def shfl(self, value: PerLane, source: PerLane, width: int = 32, mask: PerLane = ALL_LANES) -> Register:
        """``__shfl_sync``: the value of lane ``source`` of each segment of ``width`` lanes.

        Parameters
        ----------
        value : register
            The value of each lane.
        source : integer
        width : 1, 2, 4, 8, 16 or 32

        Raises
        ------
        InactiveSource
            If an active lane reads a lane that is inactive or not in the mask.
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
        """``__shfl_up_sync``: the value ``delta`` lanes lower, or the lane's own. See `shfl`."""
        return self._shuffle("shfl_up", "up", value, delta, width, mask)

    def shfl_down(
        self, value: PerLane, delta: PerLane, width: int = 32, mask: PerLane = ALL_LANES
    ) -> Register:
        """``__shfl_down_sync``: the value ``delta`` lanes higher, or the lane's own. See `shfl`."""
        return self._shuffle("shfl_down", "down", value, delta, width, mask)

    def shfl_xor(
        self, value: PerLane, lane_mask: PerLane, width: int = 32, mask: PerLane = ALL_LANES
    ) -> Register:
        """``__shfl_xor_sync``: the value of lane ``lane ^ lane_mask``, a butterfly. See `shfl`."""
        return self._shuffle("shfl_xor", "bfly", value, lane_mask, width, mask)

    def match_any(self, value: PerLane, mask: PerLane = ALL_LANES) -> Register:
        """``__match_any_sync``: a mask of the lanes with the same bits as each lane → uint32."""
        return self._across("match_any", lanes.match_any, self._bits(value), mask)

    def match_all(self, value: PerLane, mask: PerLane = ALL_LANES) -> Register:
        """``__match_all_sync``: the mask of the active members if all have the same bits, else 0 → uint32."""
        return self._across("match_all", lanes.match_all, self._bits(value), mask)

    def reduce(self, operation: Reduction, value: PerLane, mask: PerLane = ALL_LANES) -> Register:
        """``__reduce_add_sync`` and the like (PTX's ``redux.sync``): every lane receives the result.

        Parameters
        ----------
        operation : "add", "min", "max", "and", "or" or "xor"
        value : uint32 or int32
            ``add`` wraps at 32 bits.
        """
        offered = self._register("reduce", value)
        if offered.dtype.kind not in "iu" or offered.dtype.itemsize != 4:
            raise DtypeError(
                f"reduce of {offered.dtype}\nredux takes uint32 and int32\nconvert the value first"
            )
        return self._across("reduce", partial(lanes.redux, operation), offered, mask)

    # Faults

    def place(self, fault: KernelFault, lane: int | None = None, frame: Any = None) -> KernelFault:
        """Complete a fault's place with the kernel's line in ``frame``, or in the current call stack."""
        frame = frame or inspect.currentframe()
        while frame is not None and frame.f_code is not self._launch.code:
            frame = frame.f_back
        if frame is not None:
            line = int(frame.f_lineno)
            text = linecache.getline(frame.f_code.co_filename, line, frame.f_globals).strip()
            file = Path(frame.f_code.co_filename).name
            fault.at(line=line, text=text, source_file=file, source_line=line, source_text=text)
        if lane is not None:
            fault.at(lane=lane, thread=tuple(int(axis[lane]) for axis in self.thread))
        return fault.at(kernel=self._launch.name, block=tuple(self.block), warp=self.index)

    # Checks and conversions

    def _across(self, name: str, operation: Callable[..., Any], value: Register, mask: PerLane) -> Register:
        """Check the member masks, and apply an operation of `simwarp.lanes` to the active lanes."""
        self._check_members(name, mask)
        return self._received(operation(value, mask, self._executing).value)

    def _vote(self, name: str, vote: Callable[..., lanes.Voted], predicate: PerLane, mask: int) -> bool:
        self._check_members(name, operator.index(mask))
        return bool(vote(self._predicate(name, predicate), mask, self._executing).value[0])

    def _shuffle(
        self, name: str, mode: ShuffleMode, value: PerLane, b: PerLane, width: int, mask: PerLane
    ) -> Register:
        if width not in (1, 2, 4, 8, 16, 32):
            raise SchemeError(f"{name} has width={width}\na segment has 1 to 32 lanes\ngive a power of two")
        self._check_members(name, mask)
        c = lanes.shuffle_c(width, mode)
        result, _, defined = lanes.shfl(self._register(name, value), b, c, mode, mask, self._executing)
        undefined = self.active & ~defined
        if undefined.any():
            reader = int(undefined.argmax())
            source, _ = lanes.shuffle_source(b, c, mode)
            source = int(np.broadcast_to(source, WARP_SIZE)[reader])
            present = "is not in the mask" if self.active[source] else "is inactive"
            state = present if self.alive[source] else "has exited"
            fault = InactiveSource(
                f"{name} reads lane {source}, which {state}",
                f"{_hex_mask(mask, reader)}, executing {word_of(self.active):#010x}",
                "read a lane that executes the shuffle with the same mask",
            )
            raise self.place(fault, reader)
        return self._received(result)

    def _check_members(self, name: str, mask: PerLane) -> None:
        """Check the member masks of an operation that the active lanes execute."""
        if self._executing is None and isinstance(mask, int) and mask == ALL_LANES:
            return
        masks = np.broadcast_to(np.asarray(mask, np.uint32), WARP_SIZE)
        outside = self.active & (masks & LANE_BIT == 0)
        if outside.any():
            lane = int(outside.argmax())
            fault = MemberMaskFault(
                f"{name} executed by a lane that is not in its own member mask",
                f"{_hex_mask(mask, lane)}, executing {word_of(self.active):#010x}",
                "name every lane that executes the operation in its mask",
            )
            raise self.place(fault, lane)
        # (executing lane, lane that its mask names)
        named = self.active[:, None] & self.alive & (masks[:, None] & LANE_BIT != 0)
        absent = named & ~(self.active & (masks == masks[:, None]))
        if absent.any():
            lane, missing = (int(i) for i in np.argwhere(absent)[0])
            how = "executes it with another mask" if self.active[missing] else "never executes it"
            fault = MemberMaskFault(
                f"{name} waits for a lane that {how}: a deadlock on hardware",
                f"lane {lane} has {_hex_mask(mask, lane)}, executing {word_of(self.active):#010x}",
                "leave the lane out of the mask, or let it execute the operation with the same mask",
            )
            raise self.place(fault, missing)

    def _register(self, name: str, value: PerLane) -> Register:
        value = np.asarray(value)
        if value.shape == (WARP_SIZE,):
            return value
        if value.shape not in ((), (1,)):
            raise ShapeError(
                f"{name} of an array of shape {value.shape}\na register has one value per lane\n"
                "give shape (32,), or one number for all lanes"
            )
        return np.broadcast_to(value, WARP_SIZE)

    def _predicate(self, name: str, value: PerLane) -> npt.NDArray[np.bool_]:
        register = self._register(name, value)
        if register.dtype != np.bool_:
            raise DtypeError(f"{name} of {register.dtype}\na predicate is bool\ncompare it, `x != 0`")
        return register

    def _bits(self, value: PerLane) -> Register:
        register = self._register("match", value)
        return register.view(f"u{register.dtype.itemsize}")

    def _index(self, array: Array, index: PerLane) -> npt.NDArray[Any]:
        """The elements of an index register in the active lanes; DtypeError unless it has integers."""
        register = self._register(array.name, index)
        if register.dtype.kind not in "iu":
            raise DtypeError(
                f"the index into {array.name} is {register.dtype}\nan index is an integer\nconvert it"
            )
        return register if self._executing is None else register[self.active]

    def _received(self, value: npt.NDArray[Any]) -> Register:
        register = np.broadcast_to(value, WARP_SIZE).copy()
        if self._executing is not None:
            register[~self.active] = _poison(register.dtype)[~self.active]
        return register

    def _offered(self, name: str, array: Array, values: PerLane) -> npt.NDArray[Any]:
        """The active lanes' values for an array, converted to its dtype."""
        if np.result_type(values, array.dtype) != array.dtype:
            raise DtypeError(
                f"{name} of {np.result_type(values)} to {array.name}\nit has elements of {array.dtype}\n"
                f"convert the values first, with .astype(np.{array.dtype})"
            )
        return self._register(name, values).astype(array.dtype)[self.active]

    def _note_store(self, array: Array, at: npt.NDArray[Any]) -> None:
        """Add the location of this store to each `watch` of an element that it writes."""
        for name, element, places in _WATCHED:
            for position in np.flatnonzero(at == element) if name == array.name else ():
                lane = int(np.flatnonzero(self.active)[position])
                places.append(self.place(KernelFault(""), lane).place)

    @contextmanager
    def _located(self, array: Array, index: npt.NDArray[Any]) -> Generator[None]:
        """Complete a memory fault of the ``with`` block with index, size and place."""
        try:
            yield
        except MemoryFault as fault:
            fault.values += f"; index {int(index[fault.position])} into {array.name}, size {array.size}"
            self.place(fault, int(np.flatnonzero(self.active)[fault.position]))
            raise


def _poison(dtype: np.dtype[Any]) -> Register:
    octets = np.full(WARP_SIZE * dtype.itemsize, POISON, np.uint8)
    return octets.astype(np.bool_) if dtype.kind == "b" else octets.view(dtype)


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
    cooperative: bool = False,
) -> None:
    """Run a kernel: ``kernel<<<grid, block>>>(*args)``.

    Blocks run one after another; the warps of a block run one after another from barrier to barrier. The
    blocks of a cooperative launch do so from barrier to barrier of the grid.

    Parameters
    ----------
    kernel : callable
        ``kernel(warp, *args)``. With barriers, a generator function with ``yield`` for each of the block, and
        ``yield GRID`` for each of the grid.
    grid, block : int or up to three of them, (x, y, z)
        Blocks, and threads of a block. Thread (x, y, z) is number ``x + X * (y + Y * z)``; 32 consecutive
        threads make a warp, and the surplus lanes of the last warp have exited.
    *args
        Numbers and `GlobalArray`.
    shared : mapping of name to (dtype, shape)
        Each block's shared memory, ``warp.shared[name]``.
    cooperative : bool, default False
        All blocks run at once, so that they can wait for one another.

    Raises
    ------
    LaunchError
        For a grid or block that CUDA would refuse, and for NumPy arrays among ``args``.
    KernelFault
        For undefined behaviour of the kernel, with its place: a `BarrierFault` where a barrier is not reached
        by all warps of its block, or all blocks of the grid; `NotCooperative` for ``yield GRID`` in a launch
        that is not cooperative.

    Notes
    -----
    Source: CUDA C++ Programming Guide, thread hierarchy, execution configuration and grid synchronization.

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
        raise LaunchError(
            f"block {tuple(block)} has {threads} threads\na block has at most {MAX_THREADS}\n"
            "launch more and smaller blocks"
        )
    for position, arg in enumerate(args):
        if isinstance(arg, np.ndarray):
            raise LaunchError(
                f"argument {position} is a NumPy array\na kernel accesses simulated memory\n"
                "give GlobalArray.of(name, array)"
            )
    code = getattr(inspect.unwrap(kernel), "__code__", None)
    common = _Launch(getattr(kernel, "__name__", type(kernel).__name__), code, grid, block)

    def blocks() -> Iterator[Block]:
        for z, y, x in itertools.product(*(range(n) for n in reversed(grid))):
            arrays = {
                name: SharedArray(name, shape, dtype) for name, (dtype, shape) in (shared or {}).items()
            }
            warps = [Warp(common, Xyz(x, y, z), i, arrays) for i in range(-(-threads // WARP_SIZE))]
            yield Block(kernel, warps, args)

    if cooperative:
        run_together(list(blocks()))
    else:
        for each in blocks():
            each.waits_for_the_grid(cooperative=False)


def _extent(what: str, given: Extent, limits: tuple[int, int, int]) -> Xyz[int]:
    axes = sizes(given)
    padded = (*axes, 1, 1)[:3]
    if not 1 <= len(axes) <= 3 or not all(1 <= n <= limit for n, limit in zip(padded, limits, strict=True)):
        raise LaunchError(
            f"{what} is {given}\nits dimensions are 1 to {limits}\ngive one to three numbers in these limits"
        )
    return Xyz(*padded)
