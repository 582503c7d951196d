"""The protocol of a GPU, to which the host code of `gpu` is written.

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


@dataclass(eq=False)
class LaunchPlan:
    """A launch with other arrays from call to call, and all else fixed.

    Attributes
    ----------
    ptx, name : str
        The text, and the kernel in it.
    grid, block : (int, int, int)
    args : tuple
        NumPy scalars, and None where an array comes.
    bound : object
        The device's own form of the plan.
    """

    ptx: str
    name: str
    grid: Dim
    block: Dim
    args: tuple[Any, ...]
    bound: Any = None


@dataclass(eq=False)
class LaunchChain:
    """Launches one behind the other, and the device's own form of them."""

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
        Results of host code that are used again; see `planned`.
    """

    compute_capability: tuple[int, int]
    multiprocessors: int
    plans: dict[Any, Any]

    @property
    def name(self) -> str:
        """The name of the device in reports."""
        ...

    def allocate(self, shape: Extent, dtype: npt.DTypeLike, name: str = "") -> Any:
        """Reserve an array; its contents are undefined until written."""

    def upload(self, host: Any, name: str = "") -> Any:
        """Copy a host array to the device."""

    def adopt(self, foreign: Any) -> Any:
        """Another library's device array as an array of this device, without a copy."""

    def load(self, ptx: Any) -> Any:
        """Load PTX, as text or from ``gpu.compile``; ``kernel(name)`` of the result is a `Kernel`."""

    def kernel(self, ptx: str, name: str) -> Any:
        """A kernel of PTX text; where that is possible, the text is loaded once."""

    def launch(self, plan: LaunchPlan, arrays: Sequence[Any]) -> None:
        """Launch a plan, with these arrays in its empty places."""

    def launch_all(self, chain: LaunchChain, arrays: Sequence[Sequence[Any]]) -> None:
        """Launch several plans one behind the other, each with its arrays."""

    def flag(self) -> Any:
        """One int32, 0 unless a kernel has changed it; cheap to read after a synchronisation."""

    def stream(self) -> Any:
        """A new queue of work, with ``synchronize()``."""

    def event(self) -> Any:
        """A mark in a stream, with ``record(stream)``, ``synchronize()`` and ``seconds_since(earlier)``."""

    def defer(self, check: Callable[[], None]) -> None:
        """Call ``check`` at the next synchronisation; it may raise."""

    def synchronize(self) -> None:
        """Wait for all work, then run the deferred checks."""


def is_array(x: Any) -> bool:
    """Whether ``x`` lies on a device of this protocol."""
    return hasattr(x, "pointer") and hasattr(x, "download")


def is_foreign(x: Any) -> bool:
    """Whether ``x`` is another library's device array (torch, CuPy, Numba …)."""
    if isinstance(x, np.ndarray) or is_array(x):
        return False
    if hasattr(x, "__cuda_array_interface__"):
        return True
    kind = x.__dlpack_device__()[0] if hasattr(x, "__dlpack_device__") else 1
    return int(kind) == 2  # kDLCUDA


MOST_PLANS = 1024
"""Of a device: a program with more sizes makes them anew."""


def planned(device: Device, key: Hashable, make: Callable[[], Plan]) -> Plan:
    """The result of ``make``, which depends on ``key`` alone: made at the first call for this device.

    Plans must not refer to the device: it would then live until the garbage collector finds it.
    """
    plan = device.plans.get(key)
    if plan is None:
        if len(device.plans) >= MOST_PLANS:
            device.plans.clear()
        plan = device.plans[key] = make()
    return plan


def launch(device: Device, key: Hashable, make: Callable[[], LaunchPlan], *arrays: Any) -> None:
    """Launch a kernel; all but the arrays depends on ``key`` alone and is made at the first call."""
    plan: LaunchPlan | None = device.plans.get(key)
    device.launch(planned(device, key, make) if plan is None else plan, arrays)


def fixed(
    kernel: Kernel, grid: Dim, block: Dim, leading: Sequence[int], args: Sequence[Any]
) -> Callable[[bytes, Any], None]:
    """A launch with all fixed except the first parameters: structures of so many bytes each."""
    fix = getattr(kernel, "fix", None)
    if fix is not None:
        return fix(grid, block, sum(leading), *args)
    ends = [sum(leading[: i + 1]) for i in range(len(leading))]

    def launch(first: bytes, stream: Any) -> None:
        pieces = (np.void(first[end - size : end]) for end, size in zip(ends, leading, strict=True))
        kernel(grid, block, *pieces, *args, stream=stream)

    return launch


Chain: TypeAlias = Callable[[Hashable, Callable[[], Sequence[bytes]]], None]
"""Takes a key, and a function for the first parameters of each launch, which depend on the key alone."""


def chained(launches: Sequence[Callable[[bytes, Any], None]]) -> Chain:
    """Launches of `fixed` one behind the other, as one where the device can do that."""
    chain = getattr(launches[0], "chain", None)
    if chain is not None:
        return chain(launches)

    def launch(_: Hashable, firsts: Callable[[], Sequence[bytes]]) -> None:
        for each, first in zip(launches, firsts(), strict=True):
            each(first, None)

    return launch
