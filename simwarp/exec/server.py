"""The server: requests of the program's runtime, answered by a simulated device."""

from __future__ import annotations

import io
import os
import re
import struct
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import prod
from typing import cast

from reference.devices.launch import Dim
from reference.errors import FormatError, MissingExtraError, SimwarpError
from simwarp.chips.chips import chip_of
from simwarp.device.device import Device
from simwarp.device.limits import registers_of_thread, resident
from simwarp.device.module import Kernel, Module
from simwarp.device.textures import Handle
from simwarp.exec.argument_names import ArgumentNames
from simwarp.exec.chip_facts import pack_facts
from simwarp.exec.codes import Error, error_of, error_of_launch
from simwarp.exec.device_memory import CallFault, DeviceMemory
from simwarp.exec.fatbin import image_text
from simwarp.exec.grid_library import is_device_runtime, with_grid_library
from simwarp.exec.holder import Holder
from simwarp.exec.link import limit_registers, link_texts
from simwarp.exec.protocol import Kind, Message, Reply, Request
from simwarp.exec.report import Report
from simwarp.exec.snapshot import Asked, Snapshot
from simwarp.exec.texture_objects import read_surface, read_texture
from simwarp.exec.tiled_maps import encode_tiled
from simwarp.faults import (
    KernelFault,
    LaunchError,
    NeedsIndependentProgress,
    PtxSyntaxError,
    UnsupportedInstruction,
)
from simwarp.program.link import size_of
from simwarp.ptx.mangled_names import readable
from simwarp.ptx.spaces import to_generic
from simwarp.run.source import Loadable, with_named_files
from simwarp.textures import Surface, Texture

_SIZE = struct.Struct("=Q")
_LAUNCH = struct.Struct("=3Q10I")
_COOPERATIVE, _DEPENDENT = 1, 2
_WITHOUT_OPT_IN = 48 << 10
"""Bytes of shared memory per block that a kernel may use without cudaFuncSetAttribute."""
_CANNOT_RUN = (UnsupportedInstruction, NeedsIndependentProgress, PtxSyntaxError, MissingExtraError)
_STACK_LIMIT, _HEAP_LIMIT = 0, 2
"""``cudaLimitStackSize`` and ``cudaLimitMallocHeapSize``."""


@dataclass
class Function:
    """A kernel that the program uses, and the dynamic shared memory that it may use."""

    kernel: Kernel
    sizes: list[int]
    dynamic: int
    names: ArgumentNames
    loaded: Loadable  # its module's text


class RequestError(Exception):
    """A request of the program that is answered with a CUDA error code."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.name)
        self.error = error


class Server:
    """Answers requests of a program on a device, whose global memory is a `DeviceMemory.new_space()`."""

    def __init__(self, device: Device, report: Report, memory_limit: int) -> None:
        self.device, self.report = device, report
        self.memory = DeviceMemory(device, memory_limit)
        self.modules: list[Module] = []
        self.holder: Holder | None = None
        self.functions: list[Function] = []
        self._loaded: list[Loadable] = []
        self._objects: dict[int, Handle] = {}
        self._shown = 0
        self._printed = io.StringIO()
        device.stdout = self._printed
        self._answers: dict[Request, Callable[[Message], Reply | None]] = {
            request: getattr(self, f"_{request.name.lower()}") for request in Request
        }

    def answer(self, message: Message) -> Reply:
        """Answer a request; an error becomes an error code and a line of the report."""
        try:
            reply = self._answers[message.request](message) or Reply()
        except RequestError as failure:
            reply = Reply(failure.error)
        except CallFault as fault:
            self.report.add(fault)
            reply = Reply(Error.InvalidValue)
        except _CANNOT_RUN as error:
            self.report.note(
                f"the simulator cannot run this: {error}\n"
                "what it would have written is missing: reads of unwritten memory may follow from that"
            )
            reply = Reply(Error.NotSupported)
        except KernelFault as fault:
            self.report.add(fault)
            reply = Reply(error_of(fault))
        except MemoryError:
            reply = Reply(Error.MemoryAllocation)
        # an error of simwarp itself: the program gets an error code, its user a full report
        except Exception as error:
            self.report.note(f"simwarp failed in {message.request.name}: {error}\n{traceback.format_exc()}")
            reply = Reply(Error.LaunchFailure)
        reply.text = self._take_printed()
        return reply

    def finish(self) -> None:
        """Store the executed instructions and the unfreed bytes in the report, when the program has ended."""
        self.report.executed = self.device.executed
        self.report.unfreed = self.memory.used

    def _take_printed(self) -> str:
        text = self._printed.getvalue()
        self._printed.seek(0)
        self._printed.truncate()
        return text

    # ---- modules and kernels ----

    def _hello(self, message: Message) -> Reply:
        self.report.connected = True
        return Reply(data=pack_facts(self.device, self.memory.limit))

    def _load(self, message: Message) -> Reply:
        try:
            loaded = with_named_files(image_text(bytes(message.data), self.device.compute_capability))
            self.modules.append(self.device.load(loaded))
            self._loaded.append(loaded)
        except (FormatError, LaunchError) as error:
            self.report.note(str(error))
            raise RequestError(Error.NoKernelImageForDevice) from None
        return Reply(values=[len(self.modules)])

    def _link(self, message: Message) -> Reply:
        texts, at, data = list[str](), 0, bytes(message.data)
        try:
            while at < len(data):
                (size,) = _SIZE.unpack_from(data, at)
                at += _SIZE.size
                image, at = data[at : at + size], at + size
                if not is_device_runtime(image):
                    texts.append(image_text(image, self.device.compute_capability))
            linked = with_grid_library(link_texts(texts))
            if most := message.arguments[0]:
                linked = limit_registers(linked, most)
        except FormatError as error:
            self.report.note(str(error))
            raise RequestError(Error.InvalidKernelImage) from None
        return Reply(data=linked.encode() + b"\0")

    def _function(self, message: Message) -> Reply:
        module, name = self.modules[message.arguments[0] - 1], message.data.decode()
        if name not in module.kernels:
            raise RequestError(Error.InvalidDeviceFunction)
        kernel = module.kernel(name)
        sizes = [size_of(parameter) for parameter in kernel.program.parameters]
        dynamic = max(_WITHOUT_OPT_IN - kernel.program.shared_size, 0)
        loaded = self._loaded[message.arguments[0] - 1]
        self.functions.append(Function(kernel, sizes, dynamic, ArgumentNames(kernel), loaded))
        offsets = [kernel.program.parameter_offsets[one.name] for one in kernel.program.parameters]
        return Reply(values=[len(self.functions)], data=struct.pack(f"={2 * len(sizes)}I", *sizes, *offsets))

    def _variable(self, message: Message) -> Reply:
        module, name = self.modules[message.arguments[0] - 1], message.data.decode()
        if name not in module.symbols:
            raise RequestError(Error.InvalidSymbol)
        array = module.variable(name)
        return Reply(values=[self._generic(module, name), array.nbytes])

    def _generic(self, module: Module, name: str) -> int:
        """The generic address of a module's variable, by name."""
        address = module.symbols[name]
        is_constant = self.device.memory.find(address) is None
        return int(to_generic(address, "const")) if is_constant else address

    def _called(self, message: Message) -> Function:
        return self.functions[message.arguments[0] - 1]

    def _attributes(self, message: Message) -> Reply:
        function = self._called(message)
        program, chip = function.kernel.program, chip_of(self.device.compute_capability)
        constant, threads = (
            function.kernel.module.constant_size,
            program.max_threads or chip.threads_per_block,
        )
        sizes = [program.shared_size, program.local_size, threads, constant]
        return Reply(values=[registers_of_thread(program, chip), *sizes])

    def _dynamic_shared(self, message: Message) -> None:
        function, wanted = self._called(message), message.arguments[1]
        most = chip_of(self.device.compute_capability).shared_per_block
        if wanted + function.kernel.program.shared_size > most:
            raise RequestError(Error.InvalidValue)
        function.dynamic = wanted

    def _occupancy(self, message: Message) -> Reply:
        function, (threads, shared) = self._called(message), message.arguments[1:3]
        chip = chip_of(self.device.compute_capability)
        try:
            return Reply(values=[resident(function.kernel.program, chip, threads, shared).blocks])
        except LaunchError:
            return Reply(values=[0])

    # ---- launches ----

    def _launch(self, message: Message) -> None:
        number, shared, _, *rest = cast("tuple[int, ...]", _LAUNCH.unpack_from(message.data))
        grid, block, cluster = (rest[i : i + 3] for i in (0, 3, 6))
        function, flags = self.functions[number - 1], rest[9]
        self._check_opt_in(function, shared)
        arguments, at = list[bytes](), _LAUNCH.size
        for size in function.sizes:
            arguments.append(bytes(message.data[at : at + size]))
            at += size
        self.memory.mark_written()
        function.names.give(arguments, self.device.memory)
        asked = Asked(
            cast("Dim", tuple(grid)),
            cast("Dim", tuple(block)),
            tuple(arguments),
            shared,
            bool(flags & _COOPERATIVE),
            cast("Dim", tuple(cluster)) if prod(cluster) else None,
        )
        refused = False
        try:
            with self._held(function, asked):
                function.kernel(
                    grid,
                    block,
                    *arguments,
                    shared=shared,
                    cooperative=asked.cooperative,
                    cluster=asked.cluster,
                    dependent=bool(flags & _DEPENDENT),
                )
        except LaunchError as error:
            refused, name = True, function.kernel.name
            self.report.note(str(error).replace(name, readable(name)))
            raise RequestError(error_of_launch(error)) from None
        finally:
            if not refused:
                self.report.launched(function.kernel.name)
            self._show_collected()

    def _held(self, function: Function, asked: Asked) -> AbstractContextManager[None]:
        """A ``with`` block whose launch is held against a second device, if that was asked for."""
        if self.holder is None:
            return nullcontext()
        snapshot = Snapshot(function.kernel, self.modules, function.loaded)
        return self.holder.holds(snapshot, asked, function.names)

    def _check_opt_in(self, function: Function, shared: int) -> None:
        """Raise for more dynamic shared memory than the program has opted in to."""
        if shared > function.dynamic:
            self.report.note(
                f"kernel {readable(function.kernel.name)}: {shared} bytes of dynamic shared memory\n"
                f"it may use {function.dynamic}\nraise that with cudaFuncSetAttribute"
            )
            raise RequestError(Error.InvalidValue)

    def _show_collected(self) -> None:
        """Add the faults that checks collected without raising them to the report."""
        collected = self.device.faults
        for fault in collected[self._shown :]:
            self.report.add(fault)
        self._shown = len(collected)

    # ---- memory ----

    def _malloc(self, message: Message) -> Reply:
        try:
            return Reply(values=[self.memory.allocate(*message.arguments[:2])])
        except SimwarpError:
            raise RequestError(Error.MemoryAllocation) from None

    def _share(self, message: Message) -> Reply:
        size, kind, address = message.arguments[:3]
        assert message.descriptor is not None
        if address and self.memory.kind(address)[2]:
            os.close(message.descriptor)
            raise RequestError(Error.HostMemoryAlreadyRegistered)
        return Reply(values=[self.memory.share(size, Kind(kind), address, message.descriptor)])

    def _share_variable(self, message: Message) -> Reply:
        module = self.modules[message.arguments[0] - 1]
        assert message.descriptor is not None
        variable = module.symbols[message.data.decode()]
        return Reply(values=[self.memory.share_variable(variable, message.descriptor)])

    def _free(self, message: Message) -> None:
        self.memory.free(message.arguments[0])

    def _write(self, message: Message) -> None:
        address, pitch, width, height = message.arguments[:4]
        self.memory.write(address, pitch, width, height, message.data)

    def _read(self, message: Message) -> Reply:
        return Reply(data=self.memory.read(*message.arguments[:4]))

    def _copy(self, message: Message) -> None:
        self.memory.copy(*message.arguments[:6])

    def _fill(self, message: Message) -> None:
        self.memory.fill(*message.arguments[:6])

    def _find(self, message: Message) -> Reply:
        return Reply(values=self.memory.kind(message.arguments[0]))

    def _memory(self, message: Message) -> Reply:
        return Reply(values=[self.memory.limit - self.memory.used, self.memory.limit])

    def _host_access(self, message: Message) -> None:
        self.report.add(self.memory.host_access(message.arguments[0], bool(message.arguments[1])))

    def _tensor_map(self, message: Message) -> Reply:
        try:
            return Reply(data=encode_tiled(bytes(message.data)))
        except SimwarpError as error:
            self.report.note(str(error))
            raise RequestError(Error.InvalidValue) from None

    def _texture(self, message: Message) -> Reply:
        return self._object(read_texture, message)

    def _surface(self, message: Message) -> Reply:
        return self._object(read_surface, message)

    def _object(self, read: Callable[[Device, bytes], Texture | Surface], message: Message) -> Reply:
        try:
            made = self.device.textures.add(read(self.device, bytes(message.data)))
        except SimwarpError as error:
            self.report.note(str(error))
            raise RequestError(Error.InvalidValue) from None
        self._objects[made.handle] = made
        return Reply(values=[made.handle])

    def _forget(self, message: Message) -> None:
        if self._objects.pop(message.arguments[0], None) is None:
            raise RequestError(Error.InvalidValue)

    # ---- what else the report tells ----

    def _limit(self, message: Message) -> None:
        limit, value = message.arguments[:2]
        if limit == _STACK_LIMIT:
            self.device.stack = max(self.device.stack, value)
        elif limit == _HEAP_LIMIT:
            self.device.heap.limit = value

    def _missing(self, message: Message) -> None:
        self.report.lacks(message.data.decode())

    def _failed(self, message: Message) -> None:
        function, _, error = message.data.decode().partition(" ")
        # the driver's header declares the function without this suffix
        function = re.sub(r"_v\d+$", "", function)
        self.report.failed[function, error] += 1
