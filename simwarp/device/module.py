"""Loaded PTX modules, their kernels and variables, and the launch of a kernel."""

from __future__ import annotations

import gc
import sys
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from reference.devices.launch import Dim, Extent, three
from reference.errors import HostMemoryError
from simwarp.chips.chips import CONSTANTS, check_size, chip_of
from simwarp.device.array import DeviceArray
from simwarp.device.device import is_integer
from simwarp.device.limits import Geometry, check_launch
from simwarp.device.parameters import is_pointer, misfit, scalar, signature
from simwarp.device.streams import Stream
from simwarp.device.textures import Handle
from simwarp.elements import declared_shape
from simwarp.engine.launch import Launch
from simwarp.faults import LaunchError
from simwarp.program.bind import target_number
from simwarp.program.call_graph import CallGraph
from simwarp.program.link import link, size_of, symbol_of
from simwarp.program.program import Program
from simwarp.ptx.mangled_names import choose, listed, plain_variable, readable
from simwarp.ptx.parse import parse
from simwarp.ptx.rows import DTYPES
from simwarp.ptx.spaces import to_generic
from simwarp.ptx.syntax import Immediate, Reference, Variable
from simwarp.ptx.syntax import Module as Syntax
from simwarp.races import Dependents, Footprint, Races

if TYPE_CHECKING:
    from simwarp.device.device import Device


class Module:
    """A loaded PTX module.

    ``sources`` has the texts of CUDA C++ that it was compiled from, by file name; faults quote their lines.
    """

    def __init__(self, device: Device, ptx: str, sources: Mapping[str, str] = MappingProxyType({})) -> None:
        self.device, self.sources = device, sources
        self._text = _text(ptx)
        self._check_target(self._text.syntax)
        self._functions, self._variables = self._text.graph.addresses, self._text.variables
        self._arrays = {name: self._allocate(v) for name, v in self._variables.items()}
        self.symbols = {name: array.pointer for name, array in self._arrays.items()}
        for name, variable in self._variables.items():
            self._initialise(self._arrays[name], variable)

    def _check_target(self, syntax: Syntax) -> None:
        """Raise an error for a module whose target is newer than this device, or of another ``a`` variant."""
        major, minor = self.device.compute_capability
        have, wanted = 10 * major + minor, target_number(syntax)
        if wanted > have or (syntax.target.endswith("a") and wanted != have):
            raise LaunchError(
                f"this module is for {syntax.target}, the device is sm_{have}\n"
                f"compile for sm_{have} or older, or simulate Device(cc=({wanted // 10}, {wanted % 10}))"
            )

    def _allocate(self, variable: Variable) -> DeviceArray:
        plain, size = plain_variable(variable.name), size_of(variable)
        name = f"variable {plain}"
        memory = self.device.constants if variable.space == "const" else self.device.memory
        try:
            array = self.device.allocate((size,), np.uint8, name, memory=memory)
        except MemoryError:
            raise LaunchError(
                f"{name} has {size} bytes, more than this machine has left\n"
                "give the kernel an array as large as the test needs"
            ) from None
        shape = partial(declared_shape, plain, size, self.sources)
        array.describe(shape, read_only=variable.space == "const")
        return array

    def _initialise(self, array: DeviceArray, variable: Variable) -> None:
        """Fill a variable with its initial value, zero by default (PTX ISA 5.4.4)."""
        unit = DTYPES[variable.type].itemsize
        data = bytearray()
        for value in variable.initial:
            number = value.value if isinstance(value, Immediate) else self._address(value)
            data += (number & ((1 << unit * 8) - 1)).to_bytes(unit, "little")
        host = np.zeros(array.shape, np.uint8)
        host[: len(data)] = np.frombuffer(bytes(data), np.uint8)
        array.put(host)

    def _address(self, value: Reference) -> int:
        """The address, or the byte of an address, that an initial value refers to."""
        known = self.symbols | self._functions
        if value.name not in known:
            raise LaunchError(
                f"an initial value refers to {value.name}, which this module does not define\n"
                "define it in the same module"
            )
        address = known[value.name] + value.offset
        if value.generic and value.name in self._variables:
            address = int(to_generic(np.uint64(address), self._variables[value.name].space))
        if not value.mask:
            return address
        shift = (value.mask & -value.mask).bit_length() - 1
        return (address & value.mask) >> shift

    @property
    def syntax(self) -> Syntax:
        """The parsed PTX."""
        return self._text.syntax

    @property
    def constant_size(self) -> int:
        """The bytes of the module's variables in constant memory."""
        return self._text.constant_size

    @property
    def kernels(self) -> list[str]:
        """The names of the module's kernels in the PTX."""
        return list(self._text.syntax.entries)

    def variable(self, name: str) -> DeviceArray:
        """A ``__device__`` or ``__constant__`` variable, by its name in the PTX or in the source.

        It is an array of bytes: ``variable("c").view((4,), "float32")`` gives its elements. LaunchError if no
        variable, or more than one, has that name.
        """
        return self._arrays[_one("variable", name, self._arrays)]

    def kernel(self, name: str) -> Kernel:
        """A kernel by its name in the PTX, or by its name in the source if that is unique.

        The rules for names are in `simwarp.ptx.mangled_names`. LaunchError if no kernel, or more than one,
        has that name; UnsupportedInstruction or PtxSyntaxError if this kernel cannot be executed, which does
        not affect the module's other kernels.
        """
        return Kernel(self, self._text.program(_one("kernel", name, self._text.syntax.entries)))


def _one(what: str, name: str, known: Collection[str]) -> str:
    """The unique name in the PTX that a given name refers to."""
    found = choose(name, known) if isinstance(name, str) else []  # pyright: ignore[reportUnnecessaryIsInstance]
    if len(found) == 1:
        return found[0]
    if found:
        raise LaunchError(
            f"{len(found)} {what}s of this module are called {name!r}\nchoose among {listed(found)}"
        )
    raise LaunchError(f"no {what} {name!r} in this module; it has {listed(known) or 'none'}")


class _Request(NamedTuple):
    """A launch whose geometry and arguments were checked; it keeps the arrays of its arguments alive."""

    grid: Dim
    block: Dim
    args: tuple[Any, ...]
    parameters: dict[str, bytes]
    shared: int
    cooperative: bool
    cluster: Dim | None
    dependent: bool


class Kernel:
    """A kernel that can be launched."""

    def __init__(self, module: Module, program: Program) -> None:
        self.module, self.device, self.program = module, module.device, program
        self.name, self.shown = program.name, readable(program.name)

    def __call__(
        self,
        grid: Extent,
        block: Extent,
        *args: Any,
        shared: int = 0,
        stream: Stream | None = None,
        cooperative: bool = False,
        cluster: Extent | None = None,
        dependent: bool = False,
    ) -> None:
        """Launch the kernel; returns when it has ended.

        ``grid`` and ``block`` are a number or up to three, (x, y, z), of blocks and of threads per block, and
        ``cluster`` of blocks per cluster, which a kernel that requires a size can do without. ``args`` are
        device arrays for pointers; numbers of Python or NumPy, converted to the parameter's type; bytes or
        NumPy scalars for structures. ``shared`` is bytes of dynamic shared memory per block. With
        ``cooperative`` all blocks run at once, so that they can wait for one another; a ``dependent`` launch
        may overlap the one before in its stream, until ``griddepcontrol.wait``.

        Raises LaunchError if the geometry or the arguments do not fit, its `simwarp.device.limits.LimitError`
        beyond a limit, and the KernelFault of a check, with its place.
        """
        grid = three(f"kernel {self.shown}: grid", grid, LaunchError)
        block = three(f"kernel {self.shown}: block", block, LaunchError)
        if not is_integer(shared):
            raise LaunchError(f"kernel {self.shown}: shared={shared!r}\ngive a number of bytes")
        asked = Geometry(grid, block, shared, cooperative, cluster)
        chip = chip_of(self.device.compute_capability)
        clusters = check_launch(self.program, asked, chip, self.device.multiprocessors)
        parameters = _parameters(self, args)
        request = _Request(grid, block, args, parameters, shared, cooperative, clusters, dependent)
        if self.device.capturing is None:
            self._run(request, stream)
        else:
            self.device.capturing.add(partial(self._run, request), stream)

    def _run(self, request: _Request, stream: Stream | None) -> None:
        """Run the launch of a request on the device, in a stream."""
        self.device.memory.settle()
        printed: list[str] = []
        queue = stream or self.device.default_stream
        launch = self._launch(request, queue.unfinished if request.dependent else (), printed)
        try:
            self.device.executed += launch.run()
        except MemoryError:
            raise self._memory_ended(request, launch) from None
        finally:
            queue.unfinished = ()
            if isinstance(launch.races, Dependents):
                launch.races.show()
                queue.unfinished = launch.races.unfinished
            if printed:
                (self.device.stdout or sys.stdout).write("".join(printed))

    def _memory_ended(self, request: _Request, launch: Launch) -> HostMemoryError:
        """The error of a launch that needs more memory than the host has left."""
        together = "; all blocks are in flight at once" if request.cooperative else ""
        arrays = sum(allocation.size for allocation in self.device.memory.allocations)
        return HostMemoryError(
            f"kernel {self.shown}: {request.grid} blocks of {request.block} need more memory than this "
            f"machine has left (arrays have {arrays} bytes, a thread's local memory {launch.local_size}, "
            f"a block's shared memory {launch.shared_size}{together})\n"
            "give smaller arrays, launch fewer blocks together, or check without races, which need most of it"
        )

    def _launch(self, request: _Request, before: tuple[Footprint, ...], printed: list[str]) -> Launch:
        device, program = self.device, self.program
        device.launches += 1
        overlaps = bool(before) or program.launches_dependents
        dynamic = program.dynamic_shared_at + request.shared if request.shared else 0
        if request.cooperative:
            device.workspace.put(np.array([8, 0], np.uint32))
        return Launch(
            program,
            request.grid,
            request.block,
            request.parameters,
            device.memory,
            device.constants,
            device.heap,
            symbols=self.module.symbols,
            textures=device.textures,
            shared_size=max(program.shared_size, dynamic),
            dynamic_shared=request.shared,
            local_size=program.local_size + (device.stack if program.recursive else 0),
            cluster=request.cluster or (1, 1, 1),
            explicit_cluster=request.cluster is not None,
            workspace=device.workspace.pointer if request.cooperative else 0,
            chunk_lanes=device.chunk_lanes,
            cooperative=request.cooperative,
            workers=1 if overlaps else device.workers,
            instruction_budget=device.instruction_budget,
            checks=device.checks,
            schedule=device.schedule,
            seed=device.seed,
            engine=device.engine,
            observers=device.observers,
            multiprocessors=device.multiprocessors,
            cc=device.compute_capability,
            number=device.launches,
            clock=device.executed,
            print=printed.append,
            sources=self.module.sources,
            overlaps=overlaps,
            find_races=partial(Dependents, before=before) if overlaps else Races,
        )


class _Text:
    """The part of a module that depends on the PTX text alone, cached per text.

    A kernel is linked on first use, so that one that cannot be executed does not affect the others; a single
    kernel is linked at once. ``variables`` has the variables in global and constant memory by symbol, and
    ``constant_size`` the bytes of those in constant memory.
    """

    def __init__(self, ptx: str) -> None:
        self.syntax = syntax = parse(ptx)
        self.graph = CallGraph(syntax)
        functions = (*syntax.entries.values(), *syntax.functions.values())
        variables = {symbol_of(v): v for v in syntax.variables}
        variables |= {symbol_of(v, f): v for f in functions for v in f.variables}
        self.variables = {name: v for name, v in variables.items() if v.space in ("global", "const")}
        self.constant_size = sum(size_of(v) for v in self.variables.values() if v.space == "const")
        check_size(
            0,
            "the constant memory of this module",
            self.constant_size,
            CONSTANTS,
            "keep large tables in .global memory",
        )
        self._programs: dict[str, Program] = {}
        if len(syntax.entries) == 1:
            self.program(*syntax.entries)

    def program(self, name: str) -> Program:
        """The linked program of a kernel, by name; it is linked on first use."""
        if name not in self._programs:
            with _uncollected():
                self._programs[name] = link(self.syntax, self.syntax.entries[name], self.graph)
        return self._programs[name]


def linked(ptx: str, kernel: str) -> Program:
    """The program of a kernel, as all devices share it."""
    return _text(ptx).program(kernel)


@lru_cache(maxsize=256)
def _text(ptx: str) -> _Text:
    """The parsed text of a module, cached because the same text is often loaded again.

    `simwarp verify` takes more than a hundred texts in turn. One is about 2 MB.
    """
    with _uncollected():
        return _Text(ptx)


@contextmanager
def _uncollected() -> Generator[None]:
    """Disable the garbage collector for a while: nearly all new objects stay, and visiting them is slow."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _parameters(kernel: Kernel, args: tuple[Any, ...]) -> dict[str, bytes]:
    """Convert the arguments of a launch to bytes, by the names of the parameters."""
    wanted = kernel.program.parameters
    if len(args) != len(wanted):
        raise LaunchError(
            f"kernel {signature(kernel.program)} takes {len(wanted)} arguments, {len(args)} given\n"
            "give one per parameter, in order"
        )
    return {p.name: _parameter(kernel, i, a) for i, (p, a) in enumerate(zip(wanted, args, strict=True))}


def _parameter(kernel: Kernel, i: int, value: Any) -> bytes:
    """Convert one argument to the bytes of its parameter."""
    if isinstance(value, Handle):
        value = np.uint64(value.handle)
    if not isinstance(value, DeviceArray):
        return scalar(kernel.program, i, value).tobytes()
    if value.device is not kernel.device:
        raise LaunchError(
            f"kernel {kernel.shown}: argument {i}, {value.name}, is on another device\n"
            "upload it to the device that runs the kernel"
        )
    if not is_pointer(kernel.program.parameters[i]):
        what = f"{value.name}, an array; parameter {i} is not a pointer"
        raise misfit(kernel.program, i, what, "pass a number, or for a structure its bytes")
    return np.uint64(value.pointer).tobytes()
