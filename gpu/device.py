"""The protocols of devices, their arrays and their kernels, which the host code of `gpu` relies on.

`gpu.CudaDevice` and `simwarp.Device` both implement them, so the same host code launches the same PTX on
hardware and on the simulator. A device loads PTX and nothing else: CUDA C++ is compiled by
`gpu.compile` for the device's compute capability.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from operator import itemgetter
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

from gpu.images import Images
from reference.devices.launch import Dim, Extent
from reference.devices.tensor_map import Im2col
from reference.errors import DtypeError

Made = TypeVar("Made")

ONE = (1, 1, 1)
"""The dimensions of a grid of one block, or of a block of one thread."""


class Array(Protocol):
    """An array in a device's memory, in C order."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def device(self) -> Device:
        """The device whose memory holds the array."""
        ...

    @property
    def pointer(self) -> int:
        """The device address of the array's first element."""
        ...

    @property
    def nbytes(self) -> int:
        """The size of the array in bytes."""
        ...

    def upload(self, host: Any, stream: Any = None) -> None:
        """Copy from a host array of the same shape and dtype.

        In a stream, page-locked memory is read later, when the stream gets there.
        """

    def download(self, stream: Any = None) -> npt.NDArray[Any]:
        """A copy of the array on the host."""
        ...

    def copy_to(self, host: npt.NDArray[Any], stream: Any) -> None:
        """Queue a copy to page-locked host memory of the same shape and dtype; it completes in stream order.

        The host does not wait, and deferred checks do not run.
        """

    def view(self, shape: Extent, dtype: npt.DTypeLike | None = None, offset: int = 0) -> Any:
        """View the array's memory from byte ``offset`` on with another shape or dtype."""

    def free(self) -> None:
        """Return the array's memory to the device."""


class Kernel(Protocol):
    """A compiled kernel that can be launched."""

    def __call__(
        self,
        grid: Extent,
        block: Extent,
        *args: Any,
        shared: int = 0,
        stream: Any = None,
        cooperative: bool = False,
        cluster: Extent | None = None,
        dependent: bool = False,
    ) -> None:
        """Launch the kernel.

        Arguments are device arrays and numbers; structures are bytes or NumPy scalars. ``cluster`` is the
        blocks per cluster: an int, or up to three. A ``dependent`` launch may overlap the one before in its
        stream, until it waits for it (programmatic dependent launch).
        """


class Graph(Protocol):
    """Captured launches; the graph keeps their arrays alive."""

    def launch(self, stream: Any = None) -> None:
        """Execute all captured launches, in their order, with the same arguments."""


@dataclass(eq=False)
class LaunchPlan:
    """A launch whose arguments are fixed, except arrays and structures that each call passes.

    ``args`` has None for each argument that a call passes. For a `TensorMap` without an address a call passes
    the array that it describes.
    """

    ptx: str
    name: str
    grid: Dim
    block: Dim
    args: tuple[Any, ...]
    shared: int = 0  # bytes of dynamic shared memory per block
    cluster: Dim | None = None  # blocks per cluster
    # whether the launch may overlap the launch before in its chain, until it waits for that one
    dependent: bool = False
    cooperative: bool = False  # whether all blocks must run at once, so that they can wait for one another
    bound: Any = None  # the plan with its loaded kernel; private to the device


@dataclass(eq=False)
class LaunchChain:
    """Plans to be launched in order; ``bound`` is private to the device, as in `LaunchPlan`.

    The plans of ``settled``, by their numbers, have the same arrays in all launches of the chain.
    """

    plans: tuple[LaunchPlan, ...]
    settled: frozenset[int] = frozenset()
    bound: Any = None


@dataclass(frozen=True)
class Wanted:
    """An array that a call allocates."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    name: str

    @cached_property
    def nbytes(self) -> int:
        """The size of the array in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(eq=False)
class Recorded:
    """A recorded call: what it allocates, and its launches.

    ``numbers`` says which arrays each launch takes: those of the call, the NaN flag if it ``packs``, the
    workspace, the results, and the ``constants``, numbered in this order. ``finish`` makes the call's answer
    of its results.
    """

    workspace: list[Wanted]
    results: list[Wanted]
    chain: LaunchChain
    numbers: list[list[int]]
    constants: list[Any]
    packs: bool
    finish: Callable[..., Any] | None
    pick: Callable[[Sequence[Any]], tuple[Any, ...]] = field(init=False)
    """Gives the arrays of all launches, one launch after the other, of the numbered ones."""
    offsets: list[int] = field(init=False)
    """Where each array of the workspace begins, if one piece of memory has them all."""
    room: int = field(init=False)
    """The bytes of that piece; 0 without a workspace."""
    places: list[tuple[int, tuple[int, ...], np.dtype[Any]]] = field(init=False)
    """Offset, shape and dtype of each result in a piece of memory."""
    nbytes: int = field(init=False)
    """The bytes of that piece."""
    addresses: list[int] = field(init=False)
    """Those of the constants."""
    at_once: bool = field(init=False)
    """Whether no other launch in the stream comes between those of the call."""

    def __post_init__(self) -> None:
        first, *rest = [number for each in self.numbers for number in each]
        self.pick = itemgetter(first, *rest) if rest else lambda known: (known[first],)
        self.offsets, self.room = _side_by_side(self.workspace)
        offsets, self.nbytes = _side_by_side(self.results)
        self.places = [(at, x.shape, x.dtype) for at, x in zip(offsets, self.results, strict=True)]
        self.addresses = [array.pointer for array in self.constants]
        self.at_once = not any(plan.cooperative for plan in self.chain.plans)


def _side_by_side(wanted: Sequence[Wanted]) -> tuple[list[int], int]:
    """Where arrays begin in one piece of memory, and the size of the piece."""
    sizes = [max(each.nbytes, 1) for each in wanted]
    offsets = [0, *accumulate(-(-size // 256) * 256 for size in sizes)][: len(sizes)]
    return offsets, offsets[-1] + sizes[-1] if sizes else 0


class Device(Images, Protocol):
    """A GPU, real or simulated.

    Attributes
    ----------
    name : str
    compute_capability : (int, int)
    multiprocessors : int
    plans : dict
        Results of host code that later calls use again; see `planned`.
    """

    compute_capability: tuple[int, int]
    multiprocessors: int
    plans: dict[Any, Any]

    @property
    def capturing(self) -> object:
        """Something true while launches are captured, and not made."""
        ...

    @property
    def queue(self) -> int:
        """The stream of the device's launches, as a number; 0 is the default stream."""
        ...

    @property
    def name(self) -> str:
        """The device's name in reports."""
        ...

    def current(self) -> AbstractContextManager[None]:
        """Make the device current in the calling thread, for a ``with`` block.

        The first device of a process is that of the main thread; work on another one, or in another thread,
        needs this. A device is for one thread at a time.
        """
        ...

    def allocate(self, shape: Extent, dtype: npt.DTypeLike, name: str = "") -> Any:
        """Reserve an array; its contents are undefined until written."""

    def upload(self, host: Any, name: str = "") -> Any:
        """Copy a host array to the device."""

    def adopt(self, foreign: Any) -> Any:
        """Wrap another library's device array as an array of this device, without a copy."""

    def tensor_map(
        self,
        array: Any,
        box: Extent | None = None,
        *,
        shape: Extent | None = None,
        strides: Sequence[int] | None = None,
        element_strides: Sequence[int] | None = None,
        data_type: str | None = None,
        interleave: int = 0,
        swizzle: int = 0,
        l2_promotion: int = 0,
        fill: str = "zeros",
        im2col: Im2col | None = None,
    ) -> bytes:
        """Describe a tensor, and the box that one copy moves, for ``cp.async.bulk.tensor``.

        The result is the argument of a parameter ``const __grid_constant__ CUtensorMap``; it may also be
        uploaded. It holds the array's address: keep the array.

        Dimensions are in the array's order, outermost first; PTX names coordinates in the other order.

        Parameters
        ----------
        array : Array
            The tensor, or the memory that holds it. Bits go as uint8.
        box : tuple of int, optional
            Elements of each dimension, up to 256; either this or ``im2col``.
        shape : tuple of int, optional
            The dimensions of the tensor, 1 to 5; those of the array by default.
        strides : sequence of int, optional
            Bytes from one element to the next in each dimension except the last one; multiples of 16. By
            default the tensor is dense.
        element_strides : sequence of int, optional
            The step of a copy in each dimension, 1 to 8.
        data_type : str, optional
            A name of ``CUtensorMapDataType``, such as "bfloat16"; by default the array's dtype.
        interleave, swizzle : int
            Bytes of a slice of channels: 0 (none), 16 or 32; span of the swizzle: 0 (none), 32, 64 or 128.
        l2_promotion : int
            Bytes by which L2 fetches: 0, 64, 128 or 256.
        fill : str
            What a copy takes for elements outside the tensor: "zeros" or "nan".
        im2col : Im2col, optional
            The box of an im2col copy; the tensor is then (images, …, channels).

        Returns
        -------
        bytes
            128 of them, which only this kind of device understands.

        Raises
        ------
        ShapeError, DtypeError, SchemeError
            For what the copy engine cannot take; see `reference.devices.tensor_map.TensorMap`.

        Examples
        --------
        >>> import numpy as np
        >>> from simwarp import Device
        >>> device = Device()
        >>> matrix = device.upload(np.zeros((100, 64), np.float16))
        >>> len(device.tensor_map(matrix, (16, 64), swizzle=128))
        128
        >>> device.tensor_map(matrix, (16, 63))
        Traceback (most recent call last):
        ...
        reference.errors.ShapeError: tensor map: the box has 126 bytes in the innermost dimension
        they must be a multiple of 16
        make it 64 elements; what leaves the tensor is filled
        """
        ...

    def load(self, ptx: Any) -> Any:
        """Load PTX, as text or from ``gpu.compile``; ``kernel(name)`` of the result is a `Kernel`."""

    def kernel(self, ptx: str, name: str) -> Any:
        """A kernel of PTX text; hardware loads each text once."""

    def launch(self, plan: LaunchPlan, arrays: Sequence[Any]) -> None:
        """Launch a plan; ``arrays`` (or bytes of structures) replace the None and maps in its arguments."""

    def launch_all(self, chain: LaunchChain, arrays: Sequence[Sequence[Any]]) -> None:
        """Launch the plans of a chain in order, each with its arrays; see `launch`."""

    def capture(self) -> Any:
        """A context manager that gives a `Graph`: launches of its block are captured, not executed.

        Uploads, downloads, synchronisation, flags and deferred checks are a CaptureError there.
        """

    def flag(self) -> Any:
        """An array of one int32 that is 0 until a kernel writes it; cheap to read after a synchronisation."""

    def pinned(self, shape: Extent, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A host array in page-locked memory, which copies in a stream use; undefined until written."""
        ...

    def is_pinned(self, host: npt.NDArray[Any]) -> bool:
        """True if asynchronous copies can read a host array in place, since it is page-locked."""
        ...

    def stream(self, *, independent: bool = False) -> Any:
        """A new stream with ``synchronize()``; an independent one does not wait for the default stream."""

    def in_stream(self, stream: Any) -> Any:
        """The device with ``stream`` as the stream of its launches, uploads and allocations.

        In a capture it is the device itself. `LaunchError` for a stream of another device, `DtypeError` for
        what is not a stream.
        """

    def wait(self) -> None:
        """Wait for the launches in the device's stream, without the deferred checks."""

    def event(self) -> Any:
        """A new event, with ``record(stream)``, ``synchronize()`` and ``seconds_since(earlier)``.

        What is queued in a stream after ``wait(stream)`` begins when the event as last recorded has happened.
        """

    def defer(self, check: Callable[[], None]) -> None:
        """Call ``check`` at the next synchronisation; it may raise."""

    def synchronize(self) -> None:
        """Wait for all work, then run the deferred checks."""


def is_array(x: Any) -> bool:
    """True if ``x`` is an `Array`, of hardware or of the simulator."""
    return hasattr(x, "pointer") and hasattr(x, "download")


def is_foreign(x: Any) -> bool:
    """True if ``x`` is another library's device array (torch, CuPy, Numba …)."""
    # an attribute of torch tensors; making their CUDA array interface takes 5 us
    of_gpu = getattr(x, "is_cuda", None)
    if of_gpu.__class__ is bool:
        return cast("bool", of_gpu)
    if isinstance(x, np.ndarray) or is_array(x):
        return False
    try:
        if hasattr(x, "__cuda_array_interface__"):
            return True
    except RuntimeError:  # torch raises it for a tensor on a GPU that requires a gradient
        return True
    kind = x.__dlpack_device__()[0] if hasattr(x, "__dlpack_device__") else 1
    return int(kind) == 2  # 2 is kDLCUDA


def check_device(given: Any, option: str = "device") -> None:
    """Raise DtypeError unless an argument is a device; the message shows how to create one."""
    if hasattr(given, "compute_capability") and not isinstance(given, type):
        return
    known = getattr(given, "ordinals", None)
    cuda = f"gpu.CudaDevice({known[0]})" if isinstance(known, tuple) else "gpu.CudaDevice() for a GPU"
    raise DtypeError(
        f"{option} is {name_of(given)}\nit must be one device, a GPU or a simulated one\n"
        f"pass {cuda}, or simwarp.Device() to simulate one"
    )


def name_of(given: object) -> str:
    """The name of an argument, for the error that refuses it.

    >>> name_of(2), name_of("cuda"), name_of(int), name_of([])
    ('2', "'cuda'", 'the class int', 'a list')
    """
    if isinstance(given, type):
        return f"the class {given.__name__}"
    return repr(given) if isinstance(given, bool | int | float | str) else f"a {type(given).__name__}"


MOST_PLANS = 1024
"""The most entries of ``Device.plans``; when it is full, it is cleared."""


def planned(plans: dict[Any, Any], key: Hashable, make: Callable[[], Made], most: int = MOST_PLANS) -> Made:
    """Return ``plans[key]``, or make it; a dictionary that holds ``most`` plans is cleared first.

    An entry of ``Device.plans`` must depend on its key alone, and must not refer to the device, which would
    then live until the garbage collector finds it.
    """
    plan = plans.get(key)
    if plan is None:
        plan = make()
        if len(plans) >= most:
            plans.clear()
        plans[key] = plan
    return plan


def launch(device: Device, key: Hashable, make: Callable[[], LaunchPlan], *arrays: Any) -> None:
    """Launch the plan of ``key`` with these arrays; ``make()`` creates the plan on first use."""
    plan: LaunchPlan | None = device.plans.get(key)
    device.launch(planned(device.plans, key, make) if plan is None else plan, arrays)
