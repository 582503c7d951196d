"""A simulated GPU: loads PTX and runs it, bit for bit, on NumPy.

`Device` has the same methods as `gpu.CudaDevice`; host code written to one runs on the other.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol, TextIO, cast

import numpy as np
import numpy.typing as npt

from reference.devices.launch import Extent, shape_of, uploadable
from reference.devices.tensor_map import Im2col, TensorMap, tensor_map_of
from reference.devices.texture import image_of, sampler_of
from reference.errors import DtypeError, SchemeError
from reference.types.arguments import dtype_of
from simwarp.checks import Checks
from simwarp.device.array import DeviceArray, Owner, check_room
from simwarp.device.graph import Graph, capture, refuse
from simwarp.device.streams import Event, InStream, Stream, no_stream_of
from simwarp.device.textures import DeviceImage, Handle, Handles, SurfaceHandle, own, texture_of
from simwarp.elements import Shape
from simwarp.engine.schedule.host_functions import Heap
from simwarp.faults import KernelFault
from simwarp.memory import Memory
from simwarp.observe import Observer
from simwarp.observe.report import Report
from simwarp.tensormaps import encode

if TYPE_CHECKING:
    from simwarp.device.module import Kernel, Module

SCHEDULES = ("lowest pc", "stack", "random")
ENGINES = ("auto", "numpy", "compiled")
_BUDGET = 10**8
_STACK = 16 * 1024
_HEAP = 8 << 20
_WORKSPACE = 8


class HasText(Protocol):
    """An object with PTX text, such as the result of ``gpu.compile``."""

    @property
    def text(self) -> str:
        """The PTX text of the module."""
        ...


class Device:
    """A GPU simulated in NumPy.

    Parameters
    ----------
    cc : (int, int)
        The compute capability that kernels are compiled for.
    chunk_lanes : int
        Number of lanes that are simulated at a time.
    workers : int
        Number of processes that execute the blocks of a launch in parallel. Cooperative launches, whose
        blocks all run together, kernels that call ``malloc``, and devices with observers always use one. With
        more than one, the order of atomic operations of different blocks is arbitrary, and races between
        blocks of different processes are not detected.
    instruction_budget : int, optional
        Most steps of one launch in each process; after that it is stopped with `RunawayKernel`. An
        instruction that any number of lanes execute together is one step. None for no limit.
    checks : str, or mapping of str to str
        The action for a kernel's faults: "raise", "report" (in `faults`) or "off", for all or by kind;
        see `simwarp.checks`.
    observe : str, or sequence of str
        The counters of `report`: any of "coverage", "fidelity", "banks", "sectors", "divergence",
        "traffic", "pipeline"; or "all".
    schedule : str
        Order of divergent paths: "lowest pc"; "stack", with reconvergence points, as on chips before
        Volta; or "random".
    seed : int
        The seed of the random schedule.
    engine : str
        "auto": kernels whose loops run long are compiled, by llvmlite if it is installed; "numpy": none;
        "compiled": each one, at once. Results, counts and findings are the same.
    multiprocessors : int
        Number of multiprocessors, by which host code sizes its grids; 132 as on an H200.
    stack, heap : int
        Bytes of local memory per thread for recursive functions, and bytes of the heap of ``malloc`` in
        kernels.
    stdout : text stream, optional
        The stream that ``printf`` in kernels writes to, at the end of a launch; `sys.stdout` if None.
    observers : sequence of Observer
        Observers of every launch; see `simwarp.observe`.
    memory : Memory, optional
        Its global memory; by default an empty one.

    Attributes
    ----------
    executed : int
        Thread-instructions executed so far: per instruction, the active lanes whose predicate held.
    faults : list of KernelFault
        The faults that checks found and did not raise, each once, with its ``count``.
    report : Report
        The counts of all launches so far.
    plans : dict
        A cache for the host code of `gpu`.

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
        engine: str = "auto",
        multiprocessors: int = 132,
        stack: int = _STACK,
        heap: int = _HEAP,
        stdout: TextIO | None = None,
        observers: Sequence[Observer] = (),
        memory: Memory | None = None,
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
        if engine not in ENGINES:
            raise SchemeError(f"Device: there is no engine {engine!r}\nchoose among {', '.join(ENGINES)}")
        self.engine = engine
        self.report = Report(observe)
        self.observers = [*observers, *self.report.observers]
        self.memory, self.constants = memory or Memory("global", shared=workers > 1), Memory("const", 256)
        self.heap = Heap(self.memory, _count("heap", heap, 0))
        self.executed = self.launches = 0
        self.plans: dict[Any, Any] = {}
        self.default_stream, self.capturing = Stream(), cast("Graph | None", None)
        self._streams: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._names = itertools.count()
        self.textures = Handles()
        self._checks: list[Callable[[], None]] = []

    @property
    def name(self) -> str:
        """The device's name in reports, such as "simwarp simulator (sm_90)"."""
        major, minor = self.compute_capability
        return f"simwarp simulator (sm_{major}{minor})"

    @property
    def faults(self) -> list[KernelFault]:
        """The faults that checks found and did not raise."""
        return self.checks.faults

    def current(self) -> AbstractContextManager[None]:
        """Do nothing: any thread may work on a simulated device, one at a time."""
        return nullcontext()

    def allocate(
        self,
        shape: Extent,
        dtype: npt.DTypeLike,
        name: str = "",
        *,
        memory: Memory | None = None,
    ) -> DeviceArray:
        """Allocate an array; its contents are undefined until written, and reading them is a fault.

        The array is in global memory, unless ``memory`` is given.

        Raises
        ------
        ShapeError
            If the shape is not of non-negative integers, or larger than this machine's memory.
        DtypeError
            If the element type is unknown.
        """
        memory = memory or self.memory
        dtype, shape = dtype_of("allocate", dtype), shape_of("allocate", shape)
        size = math.prod(shape) * dtype.itemsize
        check_room(name or "an array", shape, dtype)
        allocation = memory.allocate(size, name or f"array {next(self._names)}")
        allocation.find_shape = partial(Shape, dtype.itemsize, shape)
        return DeviceArray(self, Owner(memory, allocation), shape, dtype)

    def upload(self, host: Any, name: str = "") -> DeviceArray:
        """Copy a host array to the device: of NumPy, of torch on the CPU, or any with ``__dlpack__``.

        Raises
        ------
        DtypeError
            If it is not a host array, or is a masked array, whose mask a kernel could not read.
        """
        host = uploadable(host, name or "the array")
        refuse(self, f"an upload of {name or 'an array'}")
        array = self.allocate(host.shape, host.dtype, name)
        array.upload(host)
        return array

    def tensor_map(
        self,
        array: DeviceArray,
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
        """The 128 bytes of a tensor map, which the simulator reads; see `gpu.device.Device.tensor_map`."""
        found = tensor_map_of(
            array,
            box,
            shape=shape,
            strides=strides,
            element_strides=element_strides,
            data_type=data_type,
            interleave=interleave,
            swizzle=swizzle,
            l2_promotion=l2_promotion,
            fill=fill,
            im2col=im2col,
        )
        return encode(found)

    def allocate_image(
        self,
        shape: Extent,
        dtype: npt.DTypeLike,
        name: str = "",
        *,
        channels: int = 1,
        layered: bool = False,
        cubemap: bool = False,
    ) -> DeviceImage:
        """Reserve an image, for textures and surfaces; see `gpu.device.Device.allocate_image`."""
        form = image_of(shape, dtype, channels=channels, layered=layered, cubemap=cubemap)
        return DeviceImage(self, form, name or f"image {next(self._names)}")

    def upload_image(
        self, host: Any, name: str = "", *, channels: int = 1, layered: bool = False, cubemap: bool = False
    ) -> DeviceImage:
        """Copy a host array to an image of its shape; see `gpu.device.Device.allocate_image`."""
        host = uploadable(host, name or "the image")
        image = self.allocate_image(
            host.shape, host.dtype, name, channels=channels, layered=layered, cubemap=cubemap
        )
        image.upload(host)
        return image

    def texture(
        self,
        source: DeviceImage | DeviceArray,
        *,
        address_mode: str | Sequence[str] = "clamp",
        filter_mode: str = "point",
        read_mode: str = "element",
        normalized: bool = False,
        border: float | Sequence[float] = 0.0,
        channels: int = 1,
    ) -> Handle:
        """A texture of an image, or of an array as linear memory; see `gpu.device.Device.texture`."""
        own(self, source, "texture")
        sampler = sampler_of(address_mode, filter_mode, read_mode, normalized, border)
        return self.textures.add(texture_of(source, sampler, channels), source)

    def surface(self, image: DeviceImage) -> SurfaceHandle:
        """A surface of an image; see `gpu.device.Device.surface`."""
        own(self, image, "surface")
        return self.textures.surface(image)

    def load(self, ptx: str | HasText) -> Module:
        """Load PTX: its text, or the result of ``gpu.compile``, whose source faults then quote.

        For a kernel that this version cannot execute, `Module.kernel` raises `UnsupportedInstruction`; if it
        is the only kernel, this method does.
        """
        from simwarp.device.module import Module

        text = getattr(ptx, "text", ptx)
        if not isinstance(text, str):
            raise DtypeError(
                f"load: expected PTX text, got {type(ptx).__name__}\n"
                "compile with nvcc -ptx; machine code (.cubin) cannot be simulated"
            )
        return Module(self, text, getattr(ptx, "sources", {}))

    def kernel(self, ptx: str, name: str) -> Kernel:
        """Load PTX text and return one of its kernels."""
        return self.load(ptx).kernel(name)

    def launch(self, plan: Any, arrays: Sequence[DeviceArray], stream: Stream | None = None) -> None:
        """Launch a plan of `gpu.device`; ``arrays`` replace the None and the tensor maps in its arguments."""
        args = _filled(plan.args, arrays)
        kernel = self.kernel(plan.ptx, plan.name)
        names = "shared", "cluster", "dependent", "cooperative"
        options = {name: getattr(plan, name) for name in names}
        kernel(plan.grid, plan.block, *args, **options, stream=stream)
        if self.capturing is not None:
            self.capturing.keep(arrays)

    def flag(self) -> DeviceArray:
        """Allocate one int32, set to 0, for kernels to set."""
        return self.upload(np.zeros(1, np.int32), "flag")

    def launch_all(self, chain: Any, arrays: Sequence[Sequence[DeviceArray]]) -> None:
        """Launch the plans of a chain of `gpu.device` in order."""
        for plan, given in zip(chain.plans, arrays, strict=True):
            self.launch(plan, given)

    def capture(self) -> AbstractContextManager[Graph]:
        """Capture the launches of a ``with`` block into a graph; arguments are checked during the block."""
        return capture(self)

    @cached_property
    def workspace(self) -> DeviceArray:
        """The grid barrier's workspace, whose address is in ``%envreg1`` and ``%envreg2``."""
        array = self.allocate((_WORKSPACE // 4,), np.uint32, "grid barrier")
        array.put(np.array([_WORKSPACE, 0], np.uint32))
        return array

    def pinned(self, shape: Extent, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A host array with undefined contents; all host memory is alike here."""
        return np.empty(shape_of("pinned", shape), dtype_of("pinned", dtype))

    def is_pinned(self, host: npt.NDArray[Any]) -> bool:
        """True: a copy is done immediately, from any host memory."""
        return True

    def stream(self, *, independent: bool = False) -> Stream:
        """Create a stream; simulated work is done as soon as it is queued, so all are independent."""
        stream = Stream()
        self._streams.add(stream)
        return stream

    def in_stream(self, stream: Any) -> Any:
        """The device with its plans launched in a stream; in a capture the device itself.

        Raises
        ------
        LaunchError
            For a stream of another device.
        DtypeError
            For anything that is not a stream of a simulated device.
        """
        if stream is not self.default_stream and not (isinstance(stream, Stream) and stream in self._streams):
            raise no_stream_of(self, stream)
        return self if self.capturing is not None else InStream(self, stream)

    @property
    def queue(self) -> int:
        """The stream of the device's launches; work is done when it is queued, so all streams are equal."""
        return 0

    def wait(self) -> None:
        """Wait for the launches so far, which are already done."""

    def event(self) -> Event:
        """Create an event, which can be recorded in a stream."""
        return Event()

    def adopt(self, foreign: Any) -> DeviceArray:
        """Refuse another library's device array, which `gpu.CudaDevice` would take."""
        raise DtypeError(
            f"{type(foreign).__name__}: the simulator cannot use an array on a GPU\ncopy it to the host first"
        )

    def defer(self, check: Callable[[], None]) -> None:
        """Call ``check``, which may raise, at the next synchronisation."""
        refuse(self, "a check of the host")
        self._checks.append(check)

    def synchronize(self) -> None:
        """Run the deferred checks; all work is already done."""
        refuse(self, "a synchronisation")
        self.end_overlaps()
        while self._checks:  # if one check raises, the next synchronisation runs the others
            self._checks.pop(0)()

    def end_overlaps(self) -> None:
        """Prevent later launches from overlapping earlier ones, which the host or a copy has waited for."""
        for stream in (self.default_stream, *self._streams):
            stream.unfinished = ()


def _filled(args: Sequence[Any], arrays: Sequence[DeviceArray]) -> Iterator[Any]:
    """The arguments of a plan, with the arrays of a call or their tensor maps filled in."""
    remaining = iter(arrays)
    for value in args:
        if isinstance(value, TensorMap):
            yield encode(value.at(next(remaining).pointer))
        else:
            yield next(remaining) if value is None else value


def is_integer(value: object) -> bool:
    """True if a value is an integer of Python or NumPy."""
    return isinstance(value, int | np.integer)


def _count(name: str, value: int, least: int | None = None) -> int:
    """Check that an argument of `Device` is an integer, and at least ``least``."""
    if not is_integer(value) or (least is not None and value < least):
        bound = "" if least is None else f", {least} or more"
        raise SchemeError(f"Device: {name}={value!r}\ngive an integer{bound}")
    return int(value)


def _capability(given: tuple[int, int]) -> tuple[int, int]:
    """Check that an argument of `Device` is the compute capability of an existing chip."""
    from simwarp.ptx.parse import TARGETS

    numbers = {int(target.removeprefix("sm_").rstrip("af")) for target in TARGETS}
    is_pair = isinstance(given, tuple | list) and len(given) == 2 and all(map(is_integer, given))  # pyright: ignore[reportUnnecessaryIsInstance]
    if not is_pair or not 0 <= given[1] <= 9 or 10 * given[0] + given[1] not in numbers:
        known = ", ".join(f"({number // 10}, {number % 10})" for number in sorted(numbers))
        is_plain = isinstance(given, tuple | list | int | float | str)  # pyright: ignore[reportUnnecessaryIsInstance]
        found = f"={given!r} is not a" if is_plain else f" is a {type(given).__name__}, not a"
        raise SchemeError(f"Device: cc{found} compute capability\nchoose among {known}")
    return int(given[0]), int(given[1])
