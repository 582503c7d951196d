"""What host code may ask of a GPU: the small protocol that the host code of `gpu` is written to.

`gpu.CudaDevice` and `simwarp.Device` both have it, so the same host code launches the same PTX on
hardware and on the simulator. A device loads PTX and nothing else: CUDA C++ is compiled by
`gpu.compile` for the device's compute capability.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from reference.types.launch import Dim, Extent

Plan = TypeVar("Plan")

ONE = (1, 1, 1)
"""The grid of one block, or the block of one thread."""


class Stream(Protocol):
    """A queue of work."""

    def synchronize(self) -> None:
        """Wait for the work in the queue."""


class Event(Protocol):
    """A mark in a stream."""

    def record(self, stream: Any = None) -> None:
        """Put the mark behind the work queued so far."""

    def synchronize(self) -> None:
        """Wait until the mark is reached."""

    def seconds_since(self, earlier: Any) -> float:
        """The time between two marks."""
        ...


class Array(Protocol):
    """An array in a device's memory, C order.

    Attributes
    ----------
    shape, dtype, device
    pointer : int
        The address of the first element.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def device(self) -> Device:
        """The device that holds it."""
        ...

    @property
    def pointer(self) -> int:
        """The address of the first element."""
        ...

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        ...

    def upload(self, host: Any, stream: Any = None) -> None:
        """Copy from a host array of the same shape and dtype."""

    def download(self, stream: Any = None) -> npt.NDArray[Any]:
        """Copy to the host."""
        ...

    def view(self, shape: Extent, dtype: npt.DTypeLike | None = None) -> Any:
        """The same bytes with another shape or dtype."""

    def free(self) -> None:
        """Give the memory back."""


class Kernel(Protocol):
    """A kernel that can be launched."""

    def __call__(
        self,
        grid: Extent,
        block: Extent,
        *args: Any,
        shared: int = 0,
        stream: Any = None,
        cooperative: bool = False,
    ) -> None:
        """Launch. Arguments are device arrays, numbers, and bytes or NumPy scalars of structures."""


class Module(Protocol):
    """Loaded PTX."""

    def kernel(self, name: str) -> Kernel:
        """A kernel by its name in the PTX."""
        ...


@dataclass(eq=False)
class LaunchPlan:
    """A launch of which only the arrays change from call to call.

    Attributes
    ----------
    ptx, name : str
        The text, and the kernel in it.
    grid, block : (int, int, int)
    args : tuple
        NumPy scalars, and None where an array comes.
    bound : object
        What a device has made of it.
    """

    ptx: str
    name: str
    grid: Dim
    block: Dim
    args: tuple[Any, ...]
    bound: Any = None


@dataclass(eq=False)
class LaunchChain:
    """Launches one behind the other, and what a device has made of them."""

    plans: tuple[LaunchPlan, ...]
    bound: Any = None


class Device(Protocol):
    """A GPU, real or simulated.

    Attributes
    ----------
    name : str
    compute_capability : (int, int)
    multiprocessors : int
    plans : dict
        What host code prepares once and uses again; see `planned`.
    """

    compute_capability: tuple[int, int]
    multiprocessors: int
    plans: dict[Any, Any]

    @property
    def name(self) -> str:
        """What the device calls itself in reports."""
        ...

    def allocate(self, shape: Extent, dtype: npt.DTypeLike, name: str = "") -> Any:
        """Reserve an array; its contents are undefined until written."""

    def upload(self, host: Any, name: str = "") -> Any:
        """Copy a host array to the device."""

    def adopt(self, foreign: Any) -> Any:
        """Another library's device array as an array of this device, without a copy."""

    def load(self, ptx: Any) -> Any:
        """Load PTX: its text, or what ``gpu.compile`` returned."""

    def kernel(self, ptx: str, name: str) -> Any:
        """A kernel of PTX text; where that is possible, the text is loaded once."""

    def launch(self, plan: LaunchPlan, arrays: Sequence[Any]) -> None:
        """Launch what a plan says, with these arrays where it has none."""

    def launch_all(self, chain: LaunchChain, arrays: Sequence[Sequence[Any]]) -> None:
        """Launch several plans one behind the other, each with its arrays."""

    def flag(self) -> Any:
        """One int32, 0 unless a kernel has changed it; cheap to read after a synchronisation."""

    def stream(self) -> Any:
        """A new queue of work."""

    def event(self) -> Any:
        """A mark in a stream."""

    def defer(self, check: Callable[[], None]) -> None:
        """Call ``check`` at the next synchronisation; it may raise."""

    def synchronize(self) -> None:
        """Wait for all work, then run the deferred checks."""


def is_array(x: Any) -> bool:
    """Whether ``x`` lies on a device of this protocol.

    Examples
    --------
    >>> is_array(np.zeros(3))
    False
    """
    return hasattr(x, "pointer") and hasattr(x, "download")


def is_foreign(x: Any) -> bool:
    """Whether ``x`` is another library's device array (torch, CuPy, Numba …).

    Examples
    --------
    >>> is_foreign(np.zeros(3))
    False
    """
    if isinstance(x, np.ndarray) or is_array(x):
        return False
    if hasattr(x, "__cuda_array_interface__"):
        return True
    kind = x.__dlpack_device__()[0] if hasattr(x, "__dlpack_device__") else 1
    return int(kind) == 2  # kDLCUDA


MOST_PLANS = 1024
"""Of a device: a program that uses more sizes than this makes them anew."""


def planned(device: Device, key: Hashable, make: Callable[[], Plan]) -> Plan:
    """What depends on ``key`` alone, made at the first call for this device.

    Plans must not refer to the device: it would then live until the garbage collector finds it.

    Examples
    --------
    >>> import simwarp
    >>> device = simwarp.Device()
    >>> planned(device, ("squares", 3), lambda: [0, 1, 4]) is planned(device, ("squares", 3), list)
    True
    """
    plan = device.plans.get(key)
    if plan is None:
        if len(device.plans) >= MOST_PLANS:
            device.plans.clear()
        plan = device.plans[key] = make()
    return plan


def launch(device: Device, key: Hashable, make: Callable[[], LaunchPlan], *arrays: Any) -> None:
    """Launch a kernel; all but the arrays depends on ``key`` alone and is made at the first call.

    Examples
    --------
    >>> import simwarp
    >>> from gpu.compile import compile
    >>> ptx = compile('extern "C" __global__ void f(int* x, int y) { *x = y; }', "f.cu").text
    >>> device = simwarp.Device()
    >>> x = device.allocate((1,), np.int32)
    >>> launch(device, "five", lambda: LaunchPlan(ptx, "f", ONE, ONE, (None, np.int32(5))), x)
    >>> x.download()
    array([5], dtype=int32)
    """
    plan: LaunchPlan | None = device.plans.get(key)
    device.launch(planned(device, key, make) if plan is None else plan, arrays)


def fixed(
    kernel: Kernel, grid: Dim, block: Dim, leading: Sequence[int], args: Sequence[Any]
) -> Callable[[bytes, Any], None]:
    """A launch of which all is fixed, except the first parameters: structures of so many bytes each.

    Returns
    -------
    callable
        (the bytes of the first parameters, one behind the other; a stream or None) -> None

    Examples
    --------
    >>> import simwarp
    >>> from gpu.compile import compile
    >>> source = 'extern "C" __global__ void f(long long x, int* y) { *y = x; }'
    >>> device = simwarp.Device()
    >>> y = device.allocate((1,), np.int32)
    >>> store = fixed(device.kernel(compile(source, "f.cu").text, "f"), ONE, ONE, [8], [y])
    >>> store((5).to_bytes(8, "little"), None)
    >>> y.download()
    array([5], dtype=int32)
    """
    fix = getattr(kernel, "fix", None)
    if fix is not None:
        return fix(grid, block, sum(leading), *args)
    ends = [sum(leading[: i + 1]) for i in range(len(leading))]

    def launch(first: bytes, stream: Any) -> None:
        pieces = (np.void(first[end - size : end]) for end, size in zip(ends, leading, strict=True))
        kernel(grid, block, *pieces, *args, stream=stream)

    return launch


Chain: TypeAlias = Callable[[Hashable, Callable[[], Sequence[bytes]]], None]
"""Takes a key and what makes the first parameters of each launch; for one key these are always the same."""


def chained(launches: Sequence[Callable[[bytes, Any], None]]) -> Chain:
    """Launches of `fixed` one behind the other, as one where the device can do that.

    Examples
    --------
    >>> import simwarp
    >>> from gpu.compile import compile
    >>> source = 'extern "C" __global__ void f(long long x, int* y) { *y = *y * 10 + x; }'
    >>> device = simwarp.Device()
    >>> y = device.upload(np.zeros(1, np.int32))
    >>> store = fixed(device.kernel(compile(source, "f.cu").text, "f"), ONE, ONE, [8], [y])
    >>> chained([store, store])("4, 2", lambda: [x.to_bytes(8, "little") for x in (4, 2)])
    >>> y.download()
    array([42], dtype=int32)
    """
    chain = getattr(launches[0], "chain", None)
    if chain is not None:
        return chain(launches)

    def launch(_: Hashable, firsts: Callable[[], Sequence[bytes]]) -> None:
        for each, first in zip(launches, firsts(), strict=True):
            each(first, None)

    return launch
