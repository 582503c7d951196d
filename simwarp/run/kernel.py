"""One launch of a kernel: its request, its outputs, and the findings of checks and observers."""

from __future__ import annotations

import io
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from types import MappingProxyType
from typing import Any, NamedTuple, TextIO, TypedDict, Unpack, cast

import numpy as np
import numpy.typing as npt

from gpu.device import check_device
from reference.devices.launch import Extent, three
from reference.errors import HostMemoryError, SchemeError, SimwarpError
from reference.values import not_an_array, shortened
from simwarp.chips.chips import multiprocessors_of
from simwarp.device.array import DeviceArray
from simwarp.device.device import Device
from simwarp.faults import KernelFault, LaunchError
from simwarp.observe import Observer
from simwarp.observe.report import Report
from simwarp.ptx.mangled_names import readable
from simwarp.run.arguments import Argument
from simwarp.run.binding import Arguments
from simwarp.run.both.compare import hold
from simwarp.run.both.devices import check_target, second_device, with_equal_bytes
from simwarp.run.both.results import Compared
from simwarp.run.both.settings import Both, NotComparedError
from simwarp.run.frameworks import adapt
from simwarp.run.not_seen import NotSeen, find_not_seen
from simwarp.run.outcome import Unwritten, find_unwritten
from simwarp.run.source import Source, from_text, load
from simwarp.run.tolerance import FloatOperations
from simwarp.run.work import Work

_BLOCK = 1 << 20
"""Bytes that are compared at once."""


class DeviceOptions(TypedDict, total=False):
    """The keyword arguments that `run` passes to a new `Device`."""

    cc: tuple[int, int]
    chunk_lanes: int
    workers: int
    instruction_budget: int | None
    checks: str | Mapping[str, str]
    observe: str | Sequence[str]
    schedule: str
    seed: int
    engine: str
    multiprocessors: int
    stack: int
    heap: int
    stdout: TextIO | None
    observers: Sequence[Observer]


class NoSuchOutputError(SimwarpError, KeyError):
    """Access to an output by a name or position that no array argument has."""

    __str__ = Exception.__str__


@not_an_array("pass one of its arrays by its name")
class Outputs(Mapping[str, npt.NDArray[Any]]):
    """The array arguments of a kernel after the launch, by name or by position among the arguments.

    A name is that of the argument, of its `Out`, or of the parameter in the source.

    Examples
    --------
    >>> import numpy as np
    >>> outputs = Outputs([Argument(2, "y", None)], [np.zeros(3)])
    >>> outputs[2] is outputs["y"], list(outputs)
    (True, ['y'])
    >>> outputs["x"]
    Traceback (most recent call last):
    ...
    simwarp.run.kernel.NoSuchOutputError: no array argument is called 'x'
    there are y (argument 2)
    """

    def __init__(self, arguments: Sequence[Argument], arrays: Sequence[npt.NDArray[Any]]) -> None:
        self._positions = {argument.name: argument.position for argument in arguments}
        self._parameters = {argument.parameter: argument.position for argument in arguments}
        self._arrays = {a.position: array for a, array in zip(arguments, arrays, strict=True)}

    def __getitem__(self, key: str | int) -> npt.NDArray[Any]:
        position = key if isinstance(key, int) else self._positions.get(key, self._parameters.get(key))
        if position is None or position not in self._arrays:
            known = ", ".join(f"{name} (argument {at})" for name, at in self._positions.items()) or "none"
            raise NoSuchOutputError(f"no array argument is called {key!r}\nthere are {known}")
        return self._arrays[position]

    def __iter__(self) -> Iterator[str]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)

    @property
    def by_position(self) -> dict[int, tuple[str, npt.NDArray[Any]]]:
        """Each array with its name, by the position of its argument."""
        names = {position: name for name, position in self._positions.items()}
        return {at: (names.get(at, f"argument {at}"), array) for at, array in self._arrays.items()}


@not_an_array("pass outputs[name] of it")
@shortened
@dataclass(frozen=True)
class Result:
    """The result of a launch.

    Attributes
    ----------
    kernel : str
        Its name in the source.
    outputs : Outputs
        Every array argument after the launch, as a new NumPy array; the arrays passed in are not changed.
    changed : tuple of str
        The names of arrays in which the kernel changed a byte, and of all arrays without content before.
    unwritten : tuple of Unwritten
        The `Out` arrays with elements that the kernel did not write, whose bytes are 0xA5. Empty on hardware.
    notes : tuple of str
        Possible mistakes: ``__constant__`` variables that the kernel reads and that have no value.
    warnings : str
        The compiler's warnings.
    report : Report
        The report of the device's observers (`simwarp.observe`); empty on hardware.
    faults : list of KernelFault
        The faults that checks collected instead of raising them.
    stdout : str
        The output of ``printf`` in the kernel; "" on hardware, which prints directly.
    executed : int
        The number of thread-instructions; 0 on hardware.
    not_seen : tuple of NotSeen
        The limits of the checks of a launch without findings, if cheap to find; the most important first.
    both : Compared, optional
        The comparison with the second device, of a launch with ``device="both"``.
    """

    kernel: str
    outputs: Outputs
    changed: tuple[str, ...]
    unwritten: tuple[Unwritten, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: str = ""
    report: Report = field(default_factory=Report)
    faults: list[KernelFault] = field(default_factory=list[KernelFault])
    stdout: str = ""
    executed: int = 0
    not_seen: tuple[NotSeen, ...] = ()
    both: Compared | None = None


def run(
    source: Any,
    kernel: str | None = None,
    *,
    grid: Extent,
    block: Extent,
    args: Arguments = (),
    shared: int = 0,
    cooperative: bool = False,
    cluster: Extent | None = None,
    set: Mapping[str, Any] = MappingProxyType({}),
    device: Any = None,
    defines: Mapping[str, str | int] | None = None,
    include: Sequence[str | PathLike[str]] = (),
    options: Sequence[str] = (),
    **of_device: Unpack[DeviceOptions],
) -> Result:
    """Run a kernel of a ``.cu`` or ``.ptx`` file, of CUDA C++ in a string, or of another framework.

    Parameters
    ----------
    source : path, str, Source or kernel
        A file, see `load`; CUDA C++ with a ``__global__`` function; a kernel of ``numba.cuda.jit``, whose
        arguments are those of the Python function; a compiled kernel of Triton; a ``cupy.RawKernel`` or
        ``cupy.RawModule``.
    kernel : str, optional
        Its name, see `Source.kernel`. May be omitted if there is only one kernel.
    grid, block : int or up to three ints
        The number of blocks, and of threads per block.
    args : sequence, or mapping by name or position
        A sequence is in the order of the parameters. `Source.parameters` gives their names. An argument is a
        NumPy array, a torch tensor on the CPU or another object with ``__dlpack__`` or
        ``__array_interface__``; an `Out`, for an output array; a number, which is converted to the
        parameter's type; or bytes or a NumPy scalar, for a structure.
    shared : int
        Bytes of dynamic shared memory per block.
    cooperative : bool
        Whether all blocks are resident at once, as grid-wide barriers need.
    cluster : int or up to three ints, optional
        The number of blocks per cluster, for a kernel that does not require one itself.
    set : mapping of str to array or number
        Values of ``__constant__`` and ``__device__`` variables by name; arrays must have the variable's size.
    device : optional
        A `simwarp.Device` or `gpu.CudaDevice`; by default a new `simwarp.Device` for the PTX's target. "both"
        or a `Both` holds a new `simwarp.Device` and a GPU against each other, see `Result.both`.
    defines, include, options
        Passed to `load`.
    **of_device
        Passed to the new `simwarp.Device`: ``checks``, ``observe``, ``schedule``, ``cc`` ….

    Returns
    -------
    Result

    Raises
    ------
    KernelFault
        If a check fails, with the place. The output of ``printf`` up to then is written to `sys.stdout`.
    NotComparedError
        With "both", if the simulator finds undefined behaviour, or if the GPU does not answer.
    SimwarpError
        If an argument is invalid.

    Examples
    --------
    Run a kernel of a file, with its grid, its block and its arguments:

    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from simwarp.run import run
    >>> code = '''
    ... __global__ void saxpy(int n, float a, const float* x, float* y) {
    ...     int i = blockIdx.x * blockDim.x + threadIdx.x;
    ...     if (i < n) y[i] = a * x[i] + y[i];
    ... }'''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "saxpy.cu"
    ...     _ = path.write_text(code)
    ...     x, y = np.arange(5, dtype=np.float32), np.ones(5, np.float32)
    ...     result = run(path, "saxpy", grid=1, block=32, args={"n": 5, "a": 2, "x": x, "y": y})
    >>> result.outputs["y"].tolist(), result.changed, result.faults
    ([1.0, 3.0, 5.0, 7.0, 9.0], ('y',), [])
    """
    launch = _Request(kernel, grid, block, args, shared, cooperative, cluster, set, defines, include, options)
    if isinstance(device, Both) or device == "both":
        return _run_on_both(device if isinstance(device, Both) else Both(), source, launch, of_device)
    if device is not None:
        check_device(device)
    if device is not None and of_device:
        raise SchemeError(
            f"run: device is given together with {', '.join(of_device)}, which are for a new device\n"
            "pass these to the device, or omit device"
        )
    work = launch.of(source, of_device.get("cc", (9, 0)) if device is None else device.compute_capability)
    return run_on(_simulator(work, of_device) if device is None else device, work)


class _Request(NamedTuple):
    """The arguments of `run` that describe the launch."""

    kernel: str | None
    grid: Extent
    block: Extent
    args: Arguments
    shared: int
    cooperative: bool
    cluster: Extent | None
    set: Mapping[str, Any]
    defines: Mapping[str, str | int] | None
    include: Sequence[str | PathLike[str]]
    options: Sequence[str]

    def of(self, source: Any, cc: tuple[int, int]) -> Work:
        """The launch of a kernel of ``source``, compiled for a compute capability."""
        kernel, args, shared = self.kernel, self.args, self.shared
        adapted = None if isinstance(source, Source | str | PathLike) else adapt(source, kernel, args, cc)
        if adapted is not None:
            source, kernel, args, needed = adapted
            shared = shared or needed
        source = self._compiled(source, kernel, cc)
        return Work(
            source,
            source.kernel(kernel),
            three("run: grid", self.grid, LaunchError),
            three("run: block", self.block, LaunchError),
            args,
            shared,
            self.cooperative,
            None if self.cluster is None else three("run: cluster", self.cluster, LaunchError),
            dict(self.set),  # one that goes to another process
        )

    def _compiled(self, source: Any, kernel: str | None, cc: tuple[int, int]) -> Source:
        """The source as it is loaded: a compiled one, a file's, or a text's."""
        given: dict[str, Any] = {"defines": self.defines, "include": self.include, "options": self.options}
        if isinstance(source, Source):
            if any(given.values()):
                raise SchemeError(
                    "run: this source is already compiled\npass defines, include and options to load"
                )
            return source
        if isinstance(source, str) and "__global__" in source:
            return from_text(source, cc=cc, kernel=kernel, **given)
        if not isinstance(source, str | PathLike):
            raise SchemeError(
                f"run: {type(source).__name__} is not a source\n"
                "give a .cu or .ptx file, CUDA C++, or a kernel of numba, Triton or CuPy"
            )
        return load(cast("str | PathLike[str]", source), cc=cc, kernel=kernel, **given)


def _simulator(work: Work, of_device: DeviceOptions) -> Device:
    """A new simulated device for a launch; ``of_device`` receives what was chosen for it."""
    chosen = of_device.setdefault("cc", max(work.source.target, (9, 0)))
    of_device.setdefault("multiprocessors", multiprocessors_of(chosen))
    return Device(**of_device)


def _run_on_both(both: Both, source: Any, launch: _Request, of_device: DeviceOptions) -> Result:
    """Run the launch on the simulator and on a second device, and compare the outputs."""
    counted = FloatOperations() if both.bound else None
    if both.anyway:
        of_device.setdefault("checks", "report")
    if counted is not None:
        of_device["observers"] = [*of_device.get("observers", ()), counted]
    with second_device(both) as chip:
        work = launch.of(source, of_device.setdefault("cc", chip.compute_capability))
        check_target(work.source.module, chip)
        with_equal_bytes(work)  # an argument that only one device can take is an error before it runs
        device = _simulator(work, of_device)
        try:
            result = run_on(device, work)
        except KernelFault as fault:
            raise NotComparedError.of([fault], readable(work.kernel.name)) from fault
        watching = ("observers", "observe", "workers")
        make = partial(Device, **{name: x for name, x in of_device.items() if name not in watching})
        return replace(result, both=hold(work, result, both, chip, make, counted=counted))


def run_on(device: Any, work: Work) -> Result:
    """Launch a kernel on a device, and collect outputs, faults and the report."""
    try:
        return _run_on(device, work)
    except MemoryError as error:
        if isinstance(error, SimwarpError):
            raise
        reason = str(error) or "no reason is known"
        raise HostMemoryError(
            f"{readable(work.kernel.name)}: the memory of this machine ended ({reason})\n"
            "make arrays or grid smaller: two to three bytes of memory are needed for each byte of an array"
        ) from error


def _run_on(device: Any, work: Work) -> Result:
    """Run the launch on a device; `run_on` adds advice to a MemoryError from here."""
    executed = getattr(device, "executed", 0)
    with _captured(device) as printed:
        arguments = work.launch(device)
    outputs = [a for a in arguments if a.is_array]
    unwritten = find_unwritten(outputs)
    arrays = [_downloaded(a) for a in outputs]
    executed = getattr(device, "executed", 0) - executed
    after = zip(outputs, arrays, strict=True)
    changed = tuple(a.name for a, array in after if a.before is None or differ(a.before, array))
    return Result(
        readable(work.kernel.name),
        Outputs(outputs, arrays),
        changed,
        unwritten,
        work.notes,
        work.source.log,
        getattr(device, "report", None) or Report(),
        list(getattr(device, "faults", [])),
        printed.getvalue(),
        executed,
        find_not_seen(device, work, arguments, changed, executed),
    )


def _downloaded(argument: Argument) -> npt.NDArray[Any]:
    """Copy an array to the host after the launch, unless its memory is already there."""
    is_own = argument.before is not None or argument.to_fill
    if is_own and isinstance(argument.value, DeviceArray):
        return argument.value.detach()
    return argument.value.download()


def differ(before: npt.NDArray[Any], after: npt.NDArray[Any]) -> bool:
    """True if two arrays of one shape and dtype differ in a byte, compared block by block."""
    if before.flags.c_contiguous:
        before, after = before.reshape(-1), after.reshape(-1)
    rows = max(_BLOCK * len(before) // max(before.nbytes, 1), 1)
    for first in range(0, len(before), rows):
        blocks = (np.ascontiguousarray(x[first : first + rows]) for x in (before, after))
        old, new = (block.reshape(-1).view(np.uint8) for block in blocks)
        if not np.array_equal(old, new):
            return True
    return False


@contextmanager
def _captured(device: Any) -> Generator[io.StringIO]:
    """Capture the output of ``printf`` on a simulated device; also write it to the device's stream, if any.

    After a fault, which leaves no result to hold the output, write it to `sys.stdout` instead.
    """
    printed = io.StringIO()
    before = getattr(device, "stdout", None)
    if isinstance(device, Device):
        device.stdout = printed
    after = before or sys.stdout
    try:
        yield printed
        after = before
    finally:
        if isinstance(device, Device):
            device.stdout = before
        if after is not None:
            after.write(printed.getvalue())
