"""A convolution whose maps lie in managed (unified) memory, beside ours: figure 14 of ooc_cuDNN on a GPU.

    python benchmarks/outofcore_managed.py [--sizes 512x512 …] [--json PATH]

One image, 64 channels and filters, float32; maps begin and end on the host. The managed memory is at most
half of what is free on the GPU, so nothing leaves it for want of room; ours has a budget of half the maps in
place of that. ``managed`` has no hints: the routine faults its maps in, the host the result out. ``prefetch``
prefetches each map, and the result back; ``pieces`` does so for each contiguous part of a piece, on streams
of its own. ``in core`` is the routine alone, on device memory. Figures are of the median of some calls, after
one that does not count; sampled entries of the results are compared with sums in float64.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
from common import Row, about_this_run, parser_of, show, write
from outofcore import Layer

import gpu
import gpu.outofcore
from gpu.machine import Tile
from gpu.outofcore import DeviceTensor, Options, Pieces, Plan, explain
from gpu.outofcore.pipeline import Pipeline
from gpu.outofcore.predicted import Slab
from gpu.outofcore.routines import TileRoutine

SIZES = ("512x512", "1024x1024", "2048x2048", "4096x4096")
CHANNELS = 64
PIECES = 16
"""The pieces of rows, as of our plans of these maps on the simulated P100."""
SMALL_PAGE = 4096


@dataclass
class Prepared:
    """Work in the context of a machine's first device."""

    work: Callable[[], Any]
    result: Any = None

    def prepare_on(self, queue: Any) -> None:
        """Do the work."""
        del queue
        self.result = self.work()


@dataclass
class Prefetch:
    """Prefetches of the columns of a tile, which are contiguous, each by a call: a routine of a machine."""

    driver: Any
    tile: Tile
    to_host: bool
    name: str = "prefetch"
    operations: float = 0.0
    reads: tuple[Tile, ...] = ()
    writes: tuple[Tile, ...] = ()
    calls: int = 0
    seconds: float = 0.0

    def queue_on(self, queue: Any) -> None:
        """Queue the calls, and note how long the host takes for them."""
        tile, item, api = self.tile, self.tile.dtype.itemsize, self.driver.api
        start, is_whole = queue.address(tile), tile.columns == 1 or tile.stride == tile.rows
        columns = 1 if is_whole else tile.columns
        kinds, place = api.CUmemLocationType, api.CUmemLocation()
        place.type = kinds.CU_MEM_LOCATION_TYPE_HOST if self.to_host else kinds.CU_MEM_LOCATION_TYPE_DEVICE
        place.id = 0
        # the bindings of CUDA 12 have this form under another name
        name = "cuMemPrefetchAsync_v2" if hasattr(api, "cuMemPrefetchAsync_v2") else "cuMemPrefetchAsync"
        begin = time.perf_counter()
        for column in range(columns):
            at, nbytes = start + column * tile.stride * item, tile.nbytes // columns
            self.driver.call(name, at, nbytes, place, 0, queue.stream)
        self.calls, self.seconds = columns, time.perf_counter() - begin


class Hinted:
    """A machine that prefetches what a routine reads and writes, and its result back, on other streams."""

    def __init__(self, machine: Any, moved: Mapping[int, str]) -> None:
        self._machine, self._moved = machine, moved  # the addresses of managed memory
        self._loads, self._stores = machine.stream(0), machine.stream(0)
        self.calls, self.seconds = 0, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)

    def launch(self, stream: Any, routine: Any) -> None:
        """Queue a routine between the prefetches of its maps."""
        if not isinstance(routine, TileRoutine):
            self._machine.launch(stream, routine)
            return
        for tile in (*routine.operands, routine.output):
            self._prefetch(self._loads, tile, to_host=False)
        self._machine.wait(stream, self._machine.record(self._loads))
        self._machine.launch(stream, routine)
        self._machine.wait(self._stores, self._machine.record(stream))
        self._prefetch(self._stores, routine.output, to_host=True)

    def _prefetch(self, stream: Any, tile: Tile, *, to_host: bool) -> None:
        if getattr(tile.memory, "address", 0) in self._moved:
            prefetch = Prefetch(self._machine.driver, tile, to_host)
            self._machine.launch(stream, prefetch)
            self.calls, self.seconds = self.calls + prefetch.calls, self.seconds + prefetch.seconds


class Managed:
    """The maps of a convolution in managed memory, its filters on the device, and the calls of the rivals."""

    def __init__(self, machine: Any, rows: int, columns: int, w: Any) -> None:
        self.machine = machine
        shape = (1, CHANNELS, rows, columns)
        nbytes = 4 * math.prod(shape)
        room = machine.budget(0) // 2
        if 2 * nbytes > room:
            raise SystemExit(
                f"{rows}x{columns}: the maps have {2 * nbytes} bytes, half of what is free is {room}\n"
                "more managed memory than a GPU has free can hang it\ngive smaller --sizes"
            )
        self._addresses: dict[int, str] = {}
        self.x, self.y = (self._allocated(name, nbytes, shape) for name in ("x", "y"))
        self._filters = machine.allocate(0, w.nbytes)
        self.layer = Layer(self._host(self.x), w, self._host(self.y))
        fill(self.layer.x)
        self._w = DeviceTensor(self._filters, w.shape, np.float32)
        machine.pin(w)
        stream, flat = machine.stream(0), w.reshape(-1, 1)
        machine.copy_in(stream, flat, Tile(self._filters, 0, w.size, 1, w.size, w.dtype))
        machine.run([])
        machine.unpin(w)
        self._plans = {cut: self._plan(rows, cut) for cut in (1, PIECES)}

    def _allocated(self, name: str, nbytes: int, shape: tuple[int, ...]) -> DeviceTensor:
        driver = self.machine.driver
        everywhere = int(driver.api.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL)
        address = int(self._now(lambda: driver.call("cuMemAllocManaged", nbytes, everywhere)))
        self._addresses[address] = name
        return DeviceTensor(self.machine.borrow(address, nbytes), shape, np.dtype(np.float32))

    def _now(self, work: Callable[[], Any]) -> Any:
        """What some work returns that calls the driver."""
        prepared = Prepared(work)
        self.machine.prepare(0, [prepared])
        return prepared.result

    def _host(self, x: DeviceTensor) -> Any:
        memory: Any = x.memory
        raw: Any = (ctypes.c_float * x.size).from_address(memory.address)
        return np.frombuffer(raw, np.float32).reshape(x.shape)

    def _plan(self, rows: int, cut: int) -> Plan:
        """The plan of the convolution where it lies, in pieces of rows."""
        sizes = self.x.shape, self._w.shape
        pieces = Pieces(1, -(-rows // cut), CHANNELS, CHANNELS)
        return explain("conv2d", *sizes, device=self.machine, pieces=pieces, on_device=("x", "w", "out"))

    def run(self, machine: Any, cut: int = 1) -> None:
        """The convolution, in a number of pieces of rows, on this machine or one that adds prefetches."""
        plan = self._plans[cut]
        total = plan.buffers.total
        memory = self.machine.allocate(0, total) if total else Slab(0)
        pipeline = Pipeline(
            machine, plan.problem, plan.buffers, memory, {"x": self.x, "w": self._w, "y": self.y}
        )
        self.machine.prepare(0, pipeline.routines(plan.tasks()))  # cached behind the first call
        self.machine.run([pipeline.work(plan.tasks())])
        if total:
            self.machine.free(memory)

    def to_host(self, *maps: DeviceTensor) -> None:
        """Bring maps to the host, by one prefetch each."""
        self._move(maps, to_host=True)

    def _move(self, maps: tuple[DeviceTensor, ...], *, to_host: bool) -> None:
        stream = self.machine.stream(0)
        for x in maps:
            tile = Tile(x.memory, 0, x.size, 1, x.size, x.dtype)
            self.machine.launch(stream, Prefetch(self.machine.driver, tile, to_host))
        self.machine.run([])

    def faults(self) -> None:
        """Without hints."""
        self.run(self.machine)
        touched = self.layer.y.reshape(-1)[:: SMALL_PAGE // 4]
        if not np.isfinite(touched.sum()):
            raise SystemExit("the result is not finite")

    def prefetches(self) -> None:
        """With a prefetch of each map."""
        self._move((self.x, self.y), to_host=False)
        self.run(self.machine)
        self.to_host(self.y)

    def prefetches_pieces(self) -> Hinted:
        """In pieces, with prefetches of their contiguous parts."""
        hinted = Hinted(self.machine, self._addresses)
        self.run(hinted, PIECES)
        return hinted

    def close(self) -> None:
        """Free the memory."""
        driver = self.machine.driver
        for address in self._addresses:
            self._now(lambda address=address: driver.call("cuMemFree", address))
        self.machine.free(self._filters)


def fill(x: Any) -> None:
    """Uniform numbers between -0.5 and 0.5."""
    planes = x.reshape(-1, *x.shape[-2:])
    seeds = np.random.SeedSequence(0).spawn(len(planes))

    def of(plane: Any, seed: np.random.SeedSequence) -> None:
        np.random.default_rng(seed).random(out=plane, dtype=np.float32)
        plane -= np.float32(0.5)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(of, planes, seeds))


def timed(calls: int, before: Callable[[], None], call: Callable[[], Any]) -> tuple[list[float], Any]:
    """The seconds of some calls after a first one, each behind ``before``; and the last result."""
    seconds, result = list[float](), None
    for _ in range(calls + 1):
        before()
        start = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - start)
    return seconds[1:], result


def row_of(machine: Any, size: str, calls: int) -> Row:
    """Measure the rivals, the routine in core, and ours, of one size of maps."""
    rows, columns = map(int, size.split("x"))
    w = np.empty((CHANNELS, CHANNELS, 3, 3), np.float32)
    fill(w)
    managed = Managed(machine, rows, columns, w)
    try:
        found, hinted = measured(managed, calls)
        runs, plan = ours(machine, managed.layer, calls)
    finally:
        managed.close()
    operations = managed.layer.operations
    rates = {name: operations / median(of) / 1e9 for name, of in found.items()}
    params = {
        "bytes": managed.layer.x.nbytes + managed.layer.y.nbytes,
        "budget": plan.budget,
        "pieces": vars(plan.pieces),
        "runs": {**found, "ours": runs},
        "prefetch_calls": hinted.calls,
        "prefetch_call_us": round(1e6 * hinted.seconds / hinted.calls, 3),
    }
    return Row(f"managed/{size}", params, "GFLOP/s", "higher", operations / median(runs) / 1e9, rates)


def measured(managed: Managed, calls: int) -> tuple[dict[str, list[float]], Hinted]:
    """The seconds of the rivals and in core, and how the pieces were prefetched."""
    found: dict[str, list[float]] = {}

    def home() -> None:
        managed.to_host(managed.x, managed.y)

    ways: dict[str, Callable[[], Any]] = {
        "managed": managed.faults,
        "managed, prefetch": managed.prefetches,
        "managed, prefetch, pieces": managed.prefetches_pieces,
    }
    hinted: Any = None
    for name, call in ways.items():
        home()
        managed.layer.y[...] = np.nan
        found[name], hinted = timed(calls, home, call)
        managed.layer.error(False)
    managed.prefetches()
    managed.run(managed.machine)
    found["in core"], _ = timed(calls, lambda: None, lambda: managed.run(managed.machine))
    return found, hinted


def ours(machine: Any, layer: Layer, calls: int) -> tuple[list[float], Plan]:
    """The seconds of the call out of core, from page-locked arrays, within half of the maps' bytes."""
    x, y = layer.x.copy(), np.empty_like(layer.y)
    budget = (x.nbytes + y.nbytes) // 2
    for array in (x, y):
        machine.pin(array)
    try:
        limits: dict[str, Any] = {"device": machine, "memory_budget": budget, "options": Options()}
        seconds, _ = timed(calls, lambda: None, lambda: gpu.outofcore.conv2d(x, layer.w, out=y, **limits))
        replace(layer, x=x, y=y).error(False)
        return seconds, explain("conv2d", x.shape, layer.w.shape, **limits)
    finally:
        for array in (x, y):
            machine.unpin(array)


def measure(machine: Any, sizes: list[str], calls: int) -> Iterator[Row]:
    """The rows."""
    for size in sizes:
        yield row_of(machine, size, calls)
        machine.trim()


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", nargs="+", default=[*SIZES], metavar="ROWSxCOLUMNS", help="of the maps")
    parser.add_argument("--calls", type=int, default=3, help="timed calls of each row")
    options = parser.parse_args()
    done: list[Row] = []
    with gpu.CudaMachine([0]) as machine:
        meta = about_this_run(gpu=machine.name(0), cudnn=machine.layers.cudnn.version)
        for row in measure(machine, options.sizes, options.calls):
            done.append(row)  # written one by one: an interrupted run leaves its rows
            show([row])
            if options.json:
                write(options.json, meta, done)


if __name__ == "__main__":
    main()
