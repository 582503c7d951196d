"""A simulated GPU: loads PTX and runs it, bit for bit, on NumPy.

`Device` has the same methods as `gpu.CudaDevice`; host code written to one runs on the other.
"""

from __future__ import annotations

import itertools
import math
import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, SchemeError, ShapeError
from reference.types.launch import Extent, dtype_of, shape_of, uploadable
from simwarp.checks import Checks
from simwarp.engine.host_functions import Heap
from simwarp.faults import KernelFault
from simwarp.memory import Allocation, Memory
from simwarp.observe import Observer
from simwarp.observe.report import Report

if TYPE_CHECKING:
    from simwarp.device.module import Kernel, Module

SCHEDULES = ("lowest pc", "stack", "random")
_BUDGET = 10**8
_STACK = 16 * 1024
_HEAP = 8 << 20
_WORKSPACE = 8
_SMALL = 1 << 28
"""Bytes that every machine has."""
_KEPT = 2
"""Bytes of the host for each byte of an array: itself, and whether it was written."""


class HasText(Protocol):
    """Compiled PTX, as ``gpu.compile`` returns it."""

    @property
    def text(self) -> str:
        """The PTX."""
        ...


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
        Order of divergent paths: "lowest pc"; "stack", with points of reconvergence, as chips before
        Volta; or "random".
    seed : int
        Of the random schedule.
    multiprocessors : int
        Their number; 132, as an H200. Host code sizes its grids by it.
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
    plans : dict
        What the host code of `gpu` prepares once and uses again.

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
        self.compute_capability = _capability(cc)
        self.multiprocessors = _count("multiprocessors", multiprocessors, 1)
        self.chunk_lanes = _count("chunk_lanes", chunk_lanes, 1)
        self.workers = workers = _count("workers", workers, 1)
        self.stack, self.stdout = _count("stack", stack, 0), stdout
        budget = instruction_budget
        self.instruction_budget = None if budget is None else _count("instruction_budget", budget, 1)
        self.checks = Checks(checks)
        if schedule not in SCHEDULES:
            raise SchemeError(
                f"Device: there is no schedule {schedule!r}\nchoose among {', '.join(SCHEDULES)}"
            )
        self.schedule, self.seed = schedule, _count("seed", seed)
        self.report = Report(observe)
        self.observers = [*observers, *self.report.observers]
        self.memory, self.constants = Memory("global", shared=workers > 1), Memory("const", 256)
        self.heap = Heap(self.memory, _count("heap", heap, 0))
        self.executed = self.launches = 0
        self.plans: dict[Any, Any] = {}
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
        shape: Extent,
        dtype: npt.DTypeLike,
        name: str = "",
        *,
        memory: Memory | None = None,
    ) -> DeviceArray:
        """Reserve an array; its contents are undefined until written, and reading them is a fault.

        It lies in global memory, unless ``memory`` is given.

        Raises
        ------
        ShapeError
            For a shape with negative or other than whole numbers, or larger than this machine's memory.
        DtypeError
            For an unknown element type.
        """
        memory = memory or self.memory
        dtype, shape = dtype_of("allocate", dtype), shape_of("allocate", shape)
        size = math.prod(shape) * dtype.itemsize
        check_room(name or "an array", shape, dtype)
        allocation = memory.allocate(size, name or f"array {next(self._names)}")
        return DeviceArray(self, _Owner(memory, allocation), shape, dtype)

    def upload(self, host: Any, name: str = "") -> DeviceArray:
        """Copy a host array to the device: NumPy's, torch's on the CPU, any with ``__dlpack__``.

        Raises
        ------
        DtypeError
            For anything else, and for a masked array, whose mask a kernel cannot see.
        """
        host = uploadable(host, name or "the array")
        array = self.allocate(host.shape, host.dtype, name)
        array.upload(host)
        return array

    def load(self, ptx: str | HasText) -> Module:
        """Load PTX: its text, or what ``gpu.compile`` returned.

        A kernel that this version cannot execute raises `UnsupportedInstruction` where it is asked for, or
        here if it is the only one.
        """
        from simwarp.device.module import Module

        text = getattr(ptx, "text", ptx)
        if not isinstance(text, str):
            raise DtypeError(
                f"load takes PTX text; this is a {type(ptx).__name__}\n"
                "nvcc -ptx writes it; machine code (.cubin) cannot be simulated"
            )
        return Module(self, text)

    def kernel(self, ptx: str, name: str) -> Kernel:
        """A kernel of PTX text."""
        return self.load(ptx).kernel(name)

    def launch(self, plan: Any, arrays: Sequence[DeviceArray]) -> None:
        """Launch a plan of `gpu.device`, with these arrays where it has None."""
        given = iter(arrays)
        args = [next(given) if value is None else value for value in plan.args]
        self.kernel(plan.ptx, plan.name)(plan.grid, plan.block, *args)

    def flag(self) -> DeviceArray:
        """One int32, 0 unless a kernel has changed it."""
        return self.upload(np.zeros(1, np.int32), "flag")

    def launch_all(self, chain: Any, arrays: Sequence[Sequence[DeviceArray]]) -> None:
        """Launch several plans of `gpu.device` one behind the other."""
        for plan, given in zip(chain.plans, arrays, strict=True):
            self.launch(plan, given)

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
    """An allocation that is released with the last array or view that refers to this."""

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

    def upload(self, host: Any, stream: Stream | None = None) -> None:
        """Copy from the host; shape and dtype must be the array's."""
        host = uploadable(host, "the array")
        if host.shape != self.shape or host.dtype != self.dtype:
            alike = self.dtype == np.uint8 and host.nbytes == self.nbytes
            raise ShapeError(
                f"upload to {self.name}: {host.dtype} {host.shape} into {self.dtype} {self.shape}\n"
                + (
                    f"take it as such elements: .view({host.shape}, {str(host.dtype)!r}).upload(…)"
                    if alike
                    else "convert or reshape the host array first"
                )
            )
        self._allocation.fill(np.ascontiguousarray(host).reshape(-1).view(np.uint8))

    def download(self, stream: Stream | None = None) -> npt.NDArray[Any]:
        """Copy to the host, after all work that writes it."""
        self.device.synchronize()
        return self._allocation.bytes[: self.nbytes].copy().view(self.dtype).reshape(self.shape)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """What NumPy takes it for: its `download`."""
        if copy is False:
            raise ValueError(f"{self.name} lies on a device: np.asarray copies it")
        return self.download() if dtype is None else self.download().astype(dtype)

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

    def view(self, shape: Extent, dtype: npt.DTypeLike | None = None) -> DeviceArray:
        """The same bytes with another shape or dtype."""
        shape, dtype = shape_of("view", shape), self.dtype if dtype is None else dtype_of("view", dtype)
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


def is_integer(value: object) -> bool:
    """Whether a value counts something: an integer of Python's or NumPy's."""
    return isinstance(value, int | np.integer)


def _count(name: str, value: int, least: int | None = None) -> int:
    """An integer that is large enough."""
    if not is_integer(value) or (least is not None and value < least):
        bound = "" if least is None else f", {least} or more"
        raise SchemeError(f"Device: {name}={value!r}\ngive an integer{bound}")
    return int(value)


def _capability(given: tuple[int, int]) -> tuple[int, int]:
    """The compute capability of a chip that there is."""
    from simwarp.ptx.parse import TARGETS

    numbers = {int(target.removeprefix("sm_").rstrip("af")) for target in TARGETS}
    is_pair = isinstance(given, tuple | list) and len(given) == 2 and all(map(is_integer, given))  # pyright: ignore[reportUnnecessaryIsInstance]
    if not is_pair or not 0 <= given[1] <= 9 or 10 * given[0] + given[1] not in numbers:
        known = ", ".join(f"({number // 10}, {number % 10})" for number in sorted(numbers))
        raise SchemeError(f"Device: cc={given!r} is not a compute capability\nchoose among {known}")
    return int(given[0]), int(given[1])


def check_room(name: str, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
    """Refuse an array that this machine's memory cannot hold, with what is kept of each of its bytes."""
    size = math.prod(shape) * dtype.itemsize
    if size > _SMALL and size * _KEPT > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
        raise ShapeError(f"{name} would take {size} bytes, more than this machine has\nmake it smaller")


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
