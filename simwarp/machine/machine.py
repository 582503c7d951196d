"""`Machine`: several simulated devices and their host, on a clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy.typing as npt

from reference.devices.timeline import Timeline
from reference.errors import DtypeError, LaunchError, SchemeError, ShapeError
from simwarp.machine.conflicts import error_of
from simwarp.machine.execution import Execution
from simwarp.machine.faults import AccessError, DeviceMemoryError, FreedMemoryError, MemoryInUseError
from simwarp.machine.host import Host
from simwarp.machine.injections import Injection, injections_of
from simwarp.machine.memory import DeviceMemory, TileLike, checked, describe, footprint_of
from simwarp.machine.moves import (
    CpuRoutineLike,
    RoutineLike,
    between,
    check_aliases,
    computed,
    from_host,
    to_host,
)
from simwarp.machine.operations import Event, Operation, Stream, Wait
from simwarp.machine.order import Order
from simwarp.machine.queueing import Queueing
from simwarp.machine.topology import H200, HOST, Route, Topology, topology_of
from simwarp.machine.workers import Crew

CHECKS = ("raise", "report", "off")


class Machine:
    """Several devices and their host, simulated: work is asynchronous, and a clock counts simulated seconds.

    A copy takes the latency of its link and its bytes over the bandwidth, a routine the launch time of its
    device and its operations over the rate. A copy or a routine reads when it starts, except that a copy from
    the host reads when it ends; all write when they end. Nothing happens outside `run`.

    Parameters
    ----------
    topology : Topology or str
        Devices and links: `H100`, `H100x2`, `H200`, `H200x2`, `H200x4`, `EIGHT`, `EVEREST`, `MAKALU`,
        `P100`, their names, or your own.
    seed : int, optional
        Orders at random what is ready at the same time, and draws the jitter. Without a seed workers and
        operations go in the order in which they became ready.
    jitter : float
        Each duration is multiplied by a random factor between 1 / (1 + jitter) and 1 + jitter.
    injections : sequence of Injection
        Faults of the hardware, such as `CopyFails`.
    checks : str
        What to do with a `TileRaceError` or an `UnwrittenTileError`: "raise", "report" (in `faults`) or
        "off".
    values : bool
        Whether copies and routines move and compute values. Without, only their times and their order are
        simulated, and reads of unwritten bytes are not found: for sizes that the computer has no memory for.

    Attributes
    ----------
    topology : Topology
    timeline : Timeline
        The finished operations.
    faults : list of AccessError
        With ``checks="report"``, the faults so far.

    Raises
    ------
    LaunchError
        For a device, a peer, a stream or an event that this machine does not have.
    ShapeError, DtypeError
        For tiles and host matrices that do not fit one another, and for anything but a topology or faults.
    SchemeError
        For an unknown name.
    MachineError
        For any other error; see `simwarp.machine`.

    Examples
    --------
    >>> import numpy as np
    >>> import simwarp
    >>> machine = simwarp.Machine()
    >>> a = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    >>> b = np.zeros_like(a)
    >>> machine.pin(a), machine.pin(b)
    (None, None)
    >>> tile = machine.allocate(0, a.nbytes).tile(2, 3, a.dtype)
    >>> stream = machine.stream(0)
    >>> machine.copy_in(stream, a, tile)
    >>> machine.copy_out(stream, tile, b)
    >>> machine.run([])
    >>> b.tolist()
    [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    >>> f"{machine.seconds() * 1e6:.3f} µs"
    '6.002 µs'
    """

    def __init__(
        self,
        topology: Topology | str = H200,
        *,
        seed: int | None = None,
        jitter: float = 0.0,
        injections: Sequence[Injection] = (),
        checks: str = "raise",
        values: bool = True,
    ) -> None:
        if checks not in CHECKS:
            raise SchemeError(f"checks= is {checks!r}\nthere are {', '.join(CHECKS)}\npass one of them")
        if jitter < 0:
            raise LaunchError(
                f"jitter= is {jitter}\na duration is multiplied by up to 1 + jitter\npass 0 or more"
            )
        self.topology = topology = topology_of(topology)
        injections = injections_of(injections)
        for one in injections:
            if not (one.device == HOST and topology.cpu):
                self._device(one.device)
        self.order = Order()
        self.execution = Execution(topology, seed, jitter, injections, self._found)
        self.faults: list[AccessError] = []
        self._checks = checks
        self._host = Host(self.order)
        self._queueing = Queueing(self.order, self.execution, self._host, values)
        self._memories: dict[DeviceMemory, None] = {}
        self._used = [0] * self.devices
        self._allocations = [0] * self.devices
        self._numbers = {"memory": 0, "stream": 0, "event": 0}
        self._cores: Stream | None = None
        self._running = False

    # ----------------------------------------------------------------------------------------- devices

    @property
    def devices(self) -> int:
        """The number of devices."""
        return len(self.topology.gpus)

    @property
    def timeline(self) -> Timeline:
        """The finished operations, in the order of their ends."""
        return self.execution.timeline

    def budget(self, device: int) -> int:
        """The bytes of a device that can be allocated now."""
        return self.topology.gpus[self._device(device)].memory_bytes - self._used[device]

    def reaches(self, device: int, peer: int) -> bool:
        """True if a device can copy from a peer without the host."""
        return Route("peer", self._device(device), self._device(peer)) in self.execution.links

    def seconds(self) -> float:
        """The machine's simulated time, in seconds."""
        return self.execution.clock.now

    def allocated(self, device: int) -> tuple[DeviceMemory, ...]:
        """The memory of a device that is not freed."""
        self._device(device)
        return tuple(memory for memory in self._memories if memory.device == device)

    def pinned(self) -> int:
        """The number of host arrays that are pinned."""
        return self._host.pinned()

    def queued(self) -> int:
        """The number of queued operations that have not ended."""
        return self.execution.unfinished()

    # ------------------------------------------------------------------------------------------ memory

    def allocate(self, device: int, nbytes: int) -> DeviceMemory:
        """Allocate memory on a device; a read before a write is a fault.

        Raises
        ------
        DeviceMemoryError
            If the device has no room.
        ShapeError
            If ``nbytes`` is not positive.
        """
        self._usable(device)
        if nbytes < 1:
            raise ShapeError(f"allocation of {nbytes} bytes\na memory has at least one byte\nask for more")
        number = self._allocations[device]
        self._allocations[device] += 1
        fails = any(one.fails_allocation(number) for one in self.execution.injected(device))
        budget = 0 if fails else self.budget(device)
        if nbytes > budget:
            raise DeviceMemoryError(
                f"allocation of {nbytes} bytes on device {device} ({self.topology.gpus[device].name})",
                f"{budget} bytes are free, {self._used[device]} in {len(self.allocated(device))} allocations",
                "ask for less than Machine.budget, or free memory first",
                device=device,
                asked=nbytes,
                budget=budget,
            )
        memory = DeviceMemory(device, nbytes, self._number("memory"), self.order)
        self._memories[memory] = None
        self._used[device] += nbytes
        self.execution.hold(device, self.topology.gpus[device].allocate_seconds)
        return memory

    def free(self, memory: object) -> None:
        """Free memory; the host must have waited for all work on it.

        Raises
        ------
        FreedMemoryError
            If it is freed already.
        MemoryInUseError
            If the host has not waited for an operation on it.
        """
        if not isinstance(memory, DeviceMemory):
            raise DtypeError(
                f"free of a {type(memory).__name__}\nfree takes what allocate() returned\n"
                "pass the memory, not a tile"
            )
        if memory not in self._memories:
            raise FreedMemoryError(
                f"free of {memory}",
                "it is freed already" if memory.freed else "it is of another machine",
                "free each memory once, on its machine",
            )
        if operation := memory.accesses.unfinished(0, memory.nbytes):
            raise MemoryInUseError(
                f"free of {memory}, which {operation} uses",
                "the host has not waited for that operation",
                "record an event behind it, and wait for the event first",
                operation=str(operation),
            )
        del self._memories[memory]
        self._used[memory.device] -= memory.nbytes
        self.execution.hold(memory.device, self.topology.gpus[memory.device].free_seconds)
        memory.release()

    def pin(self, array: npt.NDArray[Any]) -> None:
        """Page-lock a host array, as copies require; several pins of one array are counted."""
        self._host.pin(array)

    def unpin(self, array: npt.NDArray[Any]) -> None:
        """Undo one `pin`; before the last one, the host must have waited for the array's copies.

        Raises
        ------
        UnpinnedError
            If it is not pinned.
        MemoryInUseError
            If the host has not waited for a copy of the array.
        """
        self._host.unpin(array)

    def pins(self, array: npt.NDArray[Any]) -> int:
        """The pins of an array that no `unpin` has undone."""
        return self._host.pins(array)

    # ------------------------------------------------------------------------------------------ streams

    def stream(self, device: int) -> Stream:
        """Create a stream of a device."""
        self._usable(device)
        return Stream(self, device, self._number("stream"))

    def copy_in(self, stream: object, source: npt.NDArray[Any], target: TileLike) -> None:
        """Queue a copy of a host matrix, in a pinned array, to a tile of the stream's device.

        Parameters
        ----------
        stream : Stream
        source : ndarray, (rows, columns)
            Column-major; it may be a part of a larger matrix. Its values are read when the copy ends.
        target : Tile
        """
        queue = self._stream(stream)
        self._tile(target, "the target", queue.device)
        addresses = self._host.matrix(source, target, "the source")
        operation = self._queueing.copy(queue, "in", target, from_host(source, target))
        self._queueing.host(operation, source, addresses, False)
        self._queueing.writes(operation, target)
        self._queueing.add(operation)

    def copy_out(self, stream: object, source: TileLike, target: npt.NDArray[Any]) -> None:
        """Queue a copy of a tile of the stream's device to a host matrix in a pinned array.

        Parameters
        ----------
        stream : Stream
        source : Tile
        target : ndarray, (rows, columns)
            Column-major; it may be a part of a larger matrix. It is poison while the copy runs.
        """
        queue = self._stream(stream)
        self._tile(source, "the source", queue.device)
        addresses = self._host.matrix(target, source, "the target")
        if not target.flags.writeable:
            raise ShapeError(
                f"the target is a read-only {target.dtype} matrix\na copy writes it\npass a writeable array"
            )
        operation = self._queueing.copy(queue, "out", source, to_host(source, target))
        self._queueing.reads(operation, source)
        self._queueing.host(operation, target, addresses, True)
        self._queueing.add(operation)

    def copy_peer(self, stream: object, source: TileLike, target: TileLike) -> None:
        """Queue a copy of a peer's tile to a tile on the stream's device, which must have a link to the peer.

        Parameters
        ----------
        stream : Stream
        source, target : Tile
            Of one shape and dtype.
        """
        queue = self._stream(stream)
        self._tile(target, "the target", queue.device)
        peer = self._tile(source, "the source").device
        self._usable(peer)
        if not self.reaches(queue.device, peer):
            raise LaunchError(
                f"copy from device {peer} to device {queue.device}\n"
                f"{self.topology.name} has no link between them\nask reaches() first, and go through the host"
            )
        if (source.rows, source.columns, source.dtype) != (target.rows, target.columns, target.dtype):
            raise ShapeError(
                f"the source is {describe(source)}\nthe target is {describe(target)}\n"
                "copy between tiles of one shape and dtype"
            )
        operation = self._queueing.copy(queue, "peer", target, between(source, target), peer)
        self._queueing.reads(operation, source)
        self._queueing.writes(operation, target)
        self._queueing.add(operation)

    def launch(self, stream: object, routine: RoutineLike) -> None:
        """Queue a routine on tiles of the stream's device.

        Its ``compute`` is called when it starts; what it writes appears when it ends.

        Parameters
        ----------
        stream : Stream
        routine : Routine
            With ``name``, ``operations``, ``reads``, ``writes`` and ``compute``; see `gpu.machine.Routine`.
            A convolution may have ``filters``, those of a group, which its device computes in steps.
        """
        queue = self._stream(stream)
        for what, tiles in (("reads", routine.reads), ("writes", routine.writes)):
            for number, tile in enumerate(tiles):
                self._tile(tile, f"{what}[{number}] of {routine.name}", queue.device)
        if not routine.writes:
            raise LaunchError(
                f"{routine.name} writes no tile\na routine has a result\ngive its tiles in writes"
            )
        seconds = self.topology.gpus[queue.device].routine_seconds(
            routine.operations, routine.writes[0].dtype.name, getattr(routine, "filters", 0)
        )
        check_aliases(routine)
        operation = self._queueing.operation(queue, routine.name, computed(routine))
        operation.operations, operation.seconds = routine.operations, seconds
        written = {(tile.memory, footprint_of(tile)) for tile in routine.writes}
        for tile in routine.reads:
            too = (tile.memory, footprint_of(tile)) in written
            (self._queueing.needs if too else self._queueing.reads)(operation, tile)
        for tile in routine.writes:
            self._queueing.writes(operation, tile)
        self._queueing.add(operation)

    @property
    def has_cpu(self) -> bool:
        """True if the host's cores compute routines, too."""
        return self.topology.cpu is not None

    def compute(self, routine: CpuRoutineLike) -> Event:
        """Queue a routine of the host's cores behind their earlier ones; the event of its end.

        It reads and writes parts of pinned arrays when it ends.

        Parameters
        ----------
        routine : CpuRoutine
            With ``name``, ``operations``, ``dtype``, ``reads``, ``writes`` and ``compute``; see
            `gpu.machine.CpuRoutine`.

        Raises
        ------
        LaunchError
            If the topology has no `Cpu`.
        """
        cpu = self.topology.cpu
        if cpu is None:
            raise LaunchError(
                f"{routine.name} on the host's cores\n{self.topology.name} has no cpu\n"
                "give the topology a Cpu with the rates of its cores"
            )
        if loss := self.execution.lost(HOST):
            raise self.execution.lost_error(loss)
        if self._cores is None:
            self._cores = Stream(self, HOST, self._number("stream"))
        operation = self._queueing.cpu(self._cores, routine)
        operation.seconds = cpu.routine_seconds(routine.operations, routine.dtype.name)
        self._queueing.add(operation)
        return self._record(self._cores)

    def record(self, stream: object) -> Event:
        """Record an event behind all work now in the stream."""
        return self._record(self._stream(stream))

    def _record(self, queue: Stream) -> Event:
        """Record an event behind all work of a stream."""
        known = dict(self.order.before(queue))
        event = Event(self, queue, self._number("event"), known, self.order.epoch)
        self.execution.add(queue, event)
        return event

    def wait(self, stream: object, event: object) -> None:
        """Hold back later work of the stream until an event, of any device, has happened."""
        queue = self._stream(stream)
        if not isinstance(event, Event):
            raise DtypeError(
                f"wait for a {type(event).__name__}\na stream waits for what record() returned\npass an event"
            )
        if event.machine is not self or event.stream is self._cores:
            whose = "of another machine" if event.machine is not self else "of the host's cores"
            raise LaunchError(
                f"wait for {event}\nthe event is {whose}\n"
                "pass an event of a stream of this machine; a worker yields others to wait for them"
            )
        self.order.wait(queue, event)
        self.execution.add(queue, Wait(event))

    def run(self, workers: Sequence[Iterator[Any]]) -> None:
        """Run workers to their ends, then all queued work.

        A worker is resumed when the event that it yielded has happened. After a failure no worker is
        resumed and no queued operation starts; running ones end, and the first error is raised.

        Parameters
        ----------
        workers : sequence of iterator of Event

        Raises
        ------
        TileRaceError, UnwrittenTileError
            If an operation starts that may not; see ``checks``.
        WorkerDeadlockError
            If workers or streams wait for events that can no longer happen.
        CopyError, DeviceLostError
            If an injected fault happens.
        """
        if self._running:
            raise LaunchError("run in a worker\nthe machine runs already\nyield an event to wait for it")
        self._running = True
        try:
            Crew(self, workers).run()
        except BaseException:
            self.execution.stop()
            raise
        finally:
            self._running = False
            self.order.next_epoch()

    # --------------------------------------------------------------------------------------- arguments

    def _found(self, operation: Operation) -> None:
        """Raise or collect the conflict of an operation that starts."""
        if self._checks == "off" or operation.conflict is None:
            return
        error = error_of(operation, operation.conflict)
        if self._checks == "raise":
            raise error
        self.faults.append(error)

    def _number(self, of: str) -> int:
        self._numbers[of] += 1
        return self._numbers[of] - 1

    def _device(self, device: int) -> int:
        if not 0 <= device < self.devices:
            raise LaunchError(
                f"there is no device {device}\n{self.topology.name} has devices 0 to {self.devices - 1}\n"
                "pass one of them"
            )
        return device

    def _usable(self, device: int) -> None:
        """Check that a device exists and is not lost."""
        if loss := self.execution.lost(self._device(device)):
            raise self.execution.lost_error(loss)

    def _stream(self, stream: object) -> Stream:
        if not isinstance(stream, Stream):
            raise DtypeError(
                f"the stream is a {type(stream).__name__}\nwork is queued in what stream() returned\n"
                "pass a stream"
            )
        if stream.machine is not self:
            raise LaunchError(
                f"stream {stream.number} of device {stream.device}\nthe stream belongs to another machine\n"
                "pass a stream of this machine"
            )
        self._usable(stream.device)
        return stream

    def _tile(self, tile: TileLike, what: str, device: int | None = None) -> DeviceMemory:
        """Check a tile, and that it is on ``device`` unless None; return its memory."""
        memory = checked(tile, self._memories.__contains__, what)
        if device not in (None, memory.device):
            raise LaunchError(
                f"{what} is {describe(tile)}\nthe stream is of device {device}\n"
                "use tiles of the stream's device; copy_peer reads those of a peer"
            )
        return memory
