"""A simulated GPU: loads PTX and runs it, bit for bit, on NumPy.

`Device` has the same methods as `gpu.CudaDevice`; host code written to one runs on the other.
"""

from __future__ import annotations

import itertools
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, SchemeError, ShapeError
from simwarp.checks import Checks
from simwarp.faults import KernelFault
from simwarp.memory import Allocation, Memory
from simwarp.observe import Observer
from simwarp.observe.report import Report
from simwarp.ptx.host import Heap

if TYPE_CHECKING:
    from simwarp.module import Module

SCHEDULES = ("lowest pc", "stack", "random")
_BUDGET = 10**8
_STACK = 16 * 1024
_HEAP = 8 << 20
_WORKSPACE = 8


class Device:
    """A GPU in NumPy.

    Parameters
    ----------
    cc : (int, int)
        The compute capability that kernels are compiled for.
    chunk_lanes : int
        How many lanes are simulated at a time.
    workers : int
        On how many processes the blocks of a launch run side by side. Cooperative launches, whose blocks
        all run together, kernels that call ``malloc``, and devices with observers always have one. With more
        than one, atomic operations of different blocks come in any order, and races between blocks of
        different processes are not seen.
    instruction_budget : int, optional
        Steps that one launch may execute, on each process, before it is stopped with `RunawayKernel`; one
        instruction that any number of lanes execute together is one step. None does not stop it.
    checks : str, or mapping of str to str
        What becomes of a kernel's mistakes: "raise", "report" (in `faults`) or "off", for all or by kind;
        see `simwarp.checks`.
    observe : str, or sequence of str
        What to count for `report`: any of "coverage", "fidelity", "banks", "sectors", "divergence",
        "traffic"; or "all".
    schedule : str
        Who goes when: "lowest pc"; "stack", with points of reconvergence, as chips before Volta; or
        "random".
    seed : int
        Of the random schedule.
    multiprocessors : int
        How many the device says it has; 132, as an H200. Host code sizes its grids by it.
    stack, heap : int
        Bytes of local memory per thread for recursive functions, and bytes that ``malloc`` in
        kernels can give altogether.
    stdout : text stream, optional
        Where ``printf`` in kernels writes, at the end of a launch; `sys.stdout` if None.
    observers : sequence of Observer
        See `simwarp.observe`.

    Attributes
    ----------
    executed : int
        Thread-instructions executed so far: active lanes whose predicate held, one per
        instruction.
    faults : list of KernelFault
        What checks found and did not raise, each once, with its ``count``.
    report : Report
        What was counted in all launches so far.

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
        workers: int = 1,
        instruction_budget: int | None = _BUDGET,
        checks: str | Mapping[str, str] = "raise",
        observe: str | Sequence[str] = (),
        schedule: str = "lowest pc",
        seed: int = 0,
        multiprocessors: int = 132,
        stack: int = _STACK,
        heap: int = _HEAP,
        stdout: TextIO | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.compute_capability = cc
        self.multiprocessors = multiprocessors
        self.chunk_lanes = chunk_lanes
        self.workers = workers
        self.stack, self.stdout = stack, stdout
        self.instruction_budget = instruction_budget
        self.checks = Checks(checks)
        if schedule not in SCHEDULES:
            raise SchemeError(
                f"Device: there is no schedule {schedule!r}\nchoose among {', '.join(SCHEDULES)}"
            )
        self.schedule, self.seed = schedule, seed
        self.report = Report(observe)
        self.observers = [*observers, *self.report.observers]
        self.memory, self.constants = Memory("global", shared=workers > 1), Memory("const", 256)
        self.heap = Heap(self.memory, heap)
        self.executed = self.launches = 0
        self._names = itertools.count()
        self._checks: list[Callable[[], None]] = []

    @property
    def name(self) -> str:
        """What this device calls itself in reports."""
        major, minor = self.compute_capability
        return f"simwarp simulator (sm_{major}{minor})"

    @property
    def faults(self) -> list[KernelFault]:
        """What checks found and did not raise."""
        return self.checks.faults

    def allocate(
        self,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike,
        name: str = "",
        *,
        memory: Memory | None = None,
    ) -> DeviceArray:
        """Reserve an array; its contents are undefined until written, and reading them is a fault.

        It lies in global memory, unless ``memory`` is given.
        """
        memory = memory or self.memory
        dtype = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        allocation = memory.allocate(size, name or f"array {next(self._names)}")
        return DeviceArray(self, _Owner(memory, allocation), shape, dtype)

    def upload(self, host: npt.NDArray[Any], name: str = "") -> DeviceArray:
        """Copy a host array to the device."""
        array = self.allocate(host.shape, host.dtype, name)
        array.upload(host)
        return array

    def load(self, ptx: str) -> Module:
        """Load PTX text.

        A kernel that this version cannot execute raises `UnsupportedInstruction` where it is asked for, or
        here if it is the only one.
        """
        from simwarp.module import Module

        return Module(self, ptx)

    @cached_property
    def workspace(self) -> DeviceArray:
        """The words of the grid barrier, which ``%envreg1`` and ``%envreg2`` of a cooperative launch name."""
        array = self.allocate((_WORKSPACE // 4,), np.uint32, "grid barrier")
        array.upload(np.array([_WORKSPACE, 0], np.uint32))
        return array

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
        self.memory, self.allocation = memory, allocation
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

    def unwritten(self) -> npt.NDArray[np.bool_]:
        """Which elements hold a byte that nothing ever wrote, neither a kernel nor the host.

        The padding of a structure does not count.

        Examples
        --------
        >>> Device().allocate((2,), np.uint32).unwritten().tolist()
        [True, True]
        """
        self.device.synchronize()
        missing = self._allocation.never_written(self.nbytes).reshape(*self.shape, self.dtype.itemsize)
        return np.asarray(missing[..., _meaningful(self.dtype)].any(axis=-1))

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
        self._owner.memory.free(self._allocation)


def _meaningful(dtype: np.dtype[Any]) -> npt.NDArray[np.bool_]:
    """Which bytes of an element hold a value: all, apart from the padding of a structure."""
    if dtype.subdtype is not None:
        of_one = _meaningful(dtype.subdtype[0])
        return np.tile(of_one, dtype.itemsize // of_one.size)
    found = np.full(dtype.itemsize, dtype.fields is None)
    for inner, offset, *_ in (dtype.fields or {}).values():
        found[offset : offset + inner.itemsize] |= _meaningful(inner)
    return found


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
