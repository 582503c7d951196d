"""A simulated GPU: loads PTX and runs it, bit for bit, on NumPy.

`Device` has the same methods as `gpu.CudaDevice`; host code written to one runs on the other.
"""

from __future__ import annotations

import itertools
import time
import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, ShapeError
from simwarp.faults import LaunchError
from simwarp.memory import Allocation, Memory
from simwarp.observe import Observer
from simwarp.ptx.execute import Launch
from simwarp.ptx.parse import parse
from simwarp.ptx.program import Program, link
from simwarp.ptx.rows import DTYPES
from simwarp.ptx.syntax import Module as Syntax
from simwarp.ptx.syntax import Variable

_MAX_THREADS = 1024
_MAX_GRID = (2**31 - 1, 65535, 65535)
_MAX_SHARED = 227 * 1024


class Device:
    """A GPU in NumPy.

    Parameters
    ----------
    cc : (int, int)
        The compute capability that kernels are compiled for.
    chunk_lanes : int
        How many lanes are simulated at a time.
    instruction_budget : int, optional
        Instructions (of all lanes together) that one launch may execute before it is stopped with
        `RunawayKernel`; None does not stop it.
    multiprocessors : int
        How many the device says it has; 132, as an H200. Host code sizes its grids by it.
    observers : sequence of Observer
        See `simwarp.observe`.

    Attributes
    ----------
    executed : int
        Thread-instructions executed so far: active lanes whose predicate held, one per
        instruction.

    Examples
    --------
    >>> device = Device()
    >>> module = device.load('''
    ... .version 9.0
    ... .target sm_90
    ... .address_size 64
    ... .visible .entry lane_numbers(.param .u64 out) {
    ...     .reg .b32 %r<2>; .reg .b64 %rd<4>;
    ...     ld.param.u64 %rd1, [out];
    ...     mov.u32 %r1, %laneid;
    ...     mul.wide.u32 %rd2, %r1, 4;
    ...     add.s64 %rd3, %rd1, %rd2;
    ...     st.global.u32 [%rd3], %r1;
    ...     ret; }
    ... ''')
    >>> out = device.allocate((32,), np.uint32)
    >>> module.kernel("lane_numbers")((1, 1, 1), (32, 1, 1), out)
    >>> out.download()[:5].tolist()
    [0, 1, 2, 3, 4]
    """

    def __init__(
        self,
        cc: tuple[int, int] = (9, 0),
        *,
        chunk_lanes: int = 32768,
        instruction_budget: int | None = None,
        multiprocessors: int = 132,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.compute_capability = cc
        self.multiprocessors = multiprocessors
        self.chunk_lanes = chunk_lanes
        self.instruction_budget = instruction_budget
        self.observers = list(observers)
        self.memory = Memory("global")
        self.executed = 0
        self._names = itertools.count()
        self._checks: list[Callable[[], None]] = []

    @property
    def name(self) -> str:
        """What this device calls itself in reports."""
        major, minor = self.compute_capability
        return f"simwarp simulator (sm_{major}{minor})"

    def allocate(self, shape: tuple[int, ...], dtype: npt.DTypeLike, name: str = "") -> DeviceArray:
        """Reserve an array; its contents are undefined until written, and reading them is a fault."""
        dtype = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        allocation = self.memory.allocate(size, name or f"array {next(self._names)}")
        return DeviceArray(self, _Owner(self.memory, allocation), shape, dtype)

    def upload(self, host: npt.NDArray[Any], name: str = "") -> DeviceArray:
        """Copy a host array to the device."""
        array = self.allocate(host.shape, host.dtype, name)
        array.upload(host)
        return array

    def load(self, ptx: str) -> Module:
        """Load PTX text. What this version cannot execute raises `UnsupportedInstruction` here."""
        return Module(self, ptx)

    def stream(self) -> Stream:
        """A queue of work; here work is done when it is queued."""
        return Stream()

    def event(self) -> Event:
        """A mark in a stream."""
        return Event()

    def adopt(self, foreign: Any) -> DeviceArray:
        """Take another library's device array; a simulated device has no such arrays."""
        raise DtypeError(
            f"a {type(foreign).__name__} on a GPU cannot be used by the simulator\ncopy it to the host first"
        )

    def defer(self, check: Callable[[], None]) -> None:
        """Call ``check`` at the next synchronisation; it may raise."""
        self._checks.append(check)

    def synchronize(self) -> None:
        """Wait for all work, which is done already, then run the deferred checks."""
        while self._checks:  # one that raises leaves the others for the next time
            self._checks.pop(0)()


class _Owner:
    """An allocation that is released when nobody refers to this any more: no array and no view of one."""

    def __init__(self, memory: Memory, allocation: Allocation) -> None:
        self.allocation = allocation
        weakref.finalize(self, memory.release, allocation.base).atexit = False


class DeviceArray:
    """An array in a simulated device's global memory, C order.

    The memory is given back when the last of the array and its views is gone, at the latest by the
    next allocation or launch; `free` gives it back at once.

    Attributes
    ----------
    shape, dtype, device
    pointer : int
        Its address, as a kernel sees it.
    name : str
        How faults speak of it.
    """

    def __init__(self, device: Device, owner: _Owner, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.device, self.shape, self.dtype = device, tuple(shape), dtype
        self._owner, self._allocation = owner, owner.allocation

    @property
    def pointer(self) -> int:
        """The address of the first element."""
        return self._allocation.base

    @property
    def name(self) -> str:
        """How faults speak of it."""
        return self._allocation.name

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def upload(self, host: npt.NDArray[Any], stream: Stream | None = None) -> None:
        """Copy from the host; shape and dtype must be the array's."""
        if host.shape != self.shape or host.dtype != self.dtype:
            raise ShapeError(
                f"upload to {self.name}: {host.dtype} {host.shape} into {self.dtype} {self.shape}\n"
                "convert or reshape the host array first"
            )
        self._allocation.fill(np.ascontiguousarray(host).reshape(-1).view(np.uint8))

    def download(self, stream: Stream | None = None) -> npt.NDArray[Any]:
        """Copy to the host, after all work that writes it."""
        self.device.synchronize()
        return self._allocation.bytes[: self.nbytes].copy().view(self.dtype).reshape(self.shape)

    def view(self, shape: tuple[int, ...], dtype: npt.DTypeLike | None = None) -> DeviceArray:
        """The same bytes with another shape or dtype."""
        dtype = self.dtype if dtype is None else np.dtype(dtype)
        other = DeviceArray(self.device, self._owner, shape, dtype)
        if other.nbytes > self._allocation.size:
            raise ShapeError(
                f"view of {self.name}: {shape} of {dtype} needs {other.nbytes} bytes, "
                f"it has {self._allocation.size}\nview no more elements than it holds"
            )
        return other

    def free(self) -> None:
        """Give the memory back; later accesses, by kernels and by the host, are faults."""
        self.device.memory.free(self._allocation)


class Stream:
    """A queue of work. Simulated work is done when it is queued."""

    def synchronize(self) -> None:
        """Wait for the work in the queue."""


class Event:
    """A mark in a stream, stamped with the host's clock."""

    def __init__(self) -> None:
        self._time = 0.0

    def record(self, stream: Stream | None = None) -> None:
        """Put the mark behind the work queued so far."""
        self._time = time.perf_counter()

    def synchronize(self) -> None:
        """Wait until the mark is reached."""

    def seconds_since(self, earlier: Event) -> float:
        """The time between two marks."""
        return self._time - earlier._time


class Module:
    """Loaded PTX."""

    def __init__(self, device: Device, ptx: str) -> None:
        self.device = device
        self._programs = _programs(ptx)

    @property
    def kernels(self) -> list[str]:
        """The names of its kernels."""
        return list(self._programs)

    def kernel(self, name: str) -> Kernel:
        """A kernel by its name in the PTX."""
        if name not in self._programs:
            raise LaunchError(f"no kernel {name!r} in this module; it has {', '.join(self._programs)}")
        return Kernel(self.device, self._programs[name])


class Kernel:
    """A kernel that can be launched."""

    def __init__(self, device: Device, program: Program) -> None:
        self.device, self.program = device, program
        self.name = program.name

    def __call__(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        *args: Any,
        shared: int = 0,
        stream: Stream | None = None,
        cooperative: bool = False,
    ) -> None:
        """Launch; returns when the kernel has ended.

        Parameters
        ----------
        grid, block : (x, y, z)
            Blocks, and threads per block.
        *args
            Device arrays, and NumPy scalars of the parameters' sizes.
        shared : int
            Bytes of dynamic shared memory per block.
        cooperative : bool
            Keep all blocks in flight at once.

        Raises
        ------
        LaunchError
            Geometry or arguments that do not fit.
        KernelFault
            What the kernel did wrong, with the place.
        """
        self._check_geometry(grid, block, shared)
        self.device.memory.settle()
        dynamic = self.program.dynamic_shared_at + shared if shared else 0
        launch = Launch(
            self.program,
            grid,
            block,
            _parameters(self, args),
            self.device.memory,
            max(self.program.shared_size, dynamic),
            self.device.chunk_lanes,
            cooperative,
            self.device.instruction_budget,
            self.device.observers,
        )
        self.device.executed += launch.run()

    def _check_geometry(self, grid: tuple[int, int, int], block: tuple[int, int, int], shared: int) -> None:
        if len(grid) != 3 or len(block) != 3:
            raise LaunchError(f"kernel {self.name}: grid {grid}, block {block}; give each as (x, y, z)")
        threads = int(np.prod(block, dtype=np.int64))
        limit = min(self.program.max_threads or _MAX_THREADS, _MAX_THREADS)
        if not 1 <= threads <= limit or min(block) < 1:
            raise LaunchError(
                f"kernel {self.name}: a block of {block} has {threads} threads; it takes 1 to {limit}"
            )
        if min(grid) < 1 or any(g > most for g, most in zip(grid, _MAX_GRID, strict=True)):
            raise LaunchError(f"kernel {self.name}: a grid of {grid}; each part must be 1 to {_MAX_GRID}")
        most = _MAX_SHARED - self.program.shared_size
        if not 0 <= shared <= most:
            raise LaunchError(
                f"kernel {self.name}: {shared} bytes of dynamic shared memory; it takes 0 to {most}"
            )


@lru_cache(maxsize=64)
def _programs(ptx: str) -> dict[str, Program]:
    """Parsed and linked kernels of a text; the same text is met again and again."""
    syntax: Syntax = parse(ptx)
    return {name: link(syntax, entry) for name, entry in syntax.entries.items()}


def _parameters(kernel: Kernel, args: tuple[Any, ...]) -> dict[str, bytes]:
    """The bytes of each parameter."""
    wanted = kernel.program.parameters
    if len(args) != len(wanted):
        raise LaunchError(f"kernel {kernel.name} takes {len(wanted)} arguments, {len(args)} given")
    return {p.name: _parameter(kernel, i, p, a) for i, (p, a) in enumerate(zip(wanted, args, strict=True))}


def _parameter(kernel: Kernel, i: int, parameter: Variable, value: Any) -> bytes:
    """One argument as the bytes of its parameter."""
    size = DTYPES[parameter.type].itemsize * parameter.count
    given: Any = value
    if isinstance(value, DeviceArray):
        if value.device is not kernel.device:
            raise LaunchError(
                f"kernel {kernel.name}: argument {i}, {value.name}, lies on another device\n"
                "upload it to the device that runs the kernel"
            )
        given = np.uint64(value.pointer)
    if isinstance(given, np.generic | np.ndarray) and given.nbytes == size:
        return given.tobytes()
    raise LaunchError(
        f"kernel {kernel.name}: argument {i} is a {type(value).__name__}; parameter {parameter.name} "
        f"takes {size} bytes of {parameter.type}\npass a device array, or a NumPy scalar of that size"
    )
