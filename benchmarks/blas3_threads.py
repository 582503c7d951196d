"""A thread of the host for each GPU beside one for all: whether BLASX's section IV.C pays in Python.

    python benchmarks/blas3_threads.py [--devices 0 1] [--sizes N …] [--tiles T …] [--rounds N] [--json PATH]

Row ``step/WAY/D``, without GPUs: microseconds of the host for a step of DGEMM on D devices that do nothing
and are done at once. Way ``one`` is one thread, as ours; ``each`` a thread for each device, with a share of
the columns of C. With ``--devices`` also ``dgemm/N/TILE``: milliseconds of a call on these GPUs by one
thread, and beside it by a thread for each; a number twice is one GPU by two threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
from common import Row, about_this_run, parser_of, show, write

import gpu
from gpu import blas3
from simwarp.lab.unbacked import unbacked

DEVICES = (1, 2, 4)
TILES_A_SIDE = 24


class Done:
    """An event that has happened, a stream, and memory: nothing of them is used."""

    done = True

    def __init__(self, device: int = 0, nbytes: int = 0) -> None:
        self.device, self.nbytes = device, nbytes


class Idle:
    """A machine whose devices do nothing and are done at once."""

    has_cpu = False

    def __init__(self, devices: int) -> None:
        self.devices, self.operations = devices, 0
        self._memories: list[Done] = []

    def budget(self, device: int) -> int:
        """Enough bytes."""
        return 1 << 40

    def reaches(self, device: int, peer: int) -> bool:
        """Any other device."""
        return device != peer

    def allocate(self, device: int, nbytes: int) -> Done:
        """Memory without bytes."""
        self._memories.append(Done(device, nbytes))
        return self._memories[-1]

    def allocated(self, device: int) -> list[Done]:
        """The memory of a device."""
        return [memory for memory in self._memories if memory.device == device]

    def free(self, memory: Any) -> None:
        """Forget memory."""
        self._memories.remove(memory)

    def pin(self, array: Any) -> None:
        """Nothing."""

    unpin = pin

    def pins(self, array: Any) -> int:
        """None."""
        return 0

    def stream(self, device: int) -> Done:
        """A stream."""
        return Done(device)

    def copy_in(self, *_: Any) -> None:
        """Nothing."""

    copy_out = copy_peer = wait = copy_in

    def launch(self, *_: Any) -> None:
        """Count a step."""
        self.operations += 1

    def record(self, stream: Done) -> Done:
        """An event that has happened."""
        return Done(stream.device)

    def run(self, workers: Sequence[Iterator[Any]]) -> None:
        """Resume the workers in turn to their ends."""
        waiting = [*workers]
        while waiting:
            waiting = [worker for worker in waiting if next(worker, None) is not None]

    def seconds(self) -> float:
        """The host's clock."""
        return time.perf_counter()


def seconds_of(calls: Sequence[Callable[[], object]]) -> float:
    """The seconds of calls, each in a thread of its own."""
    threads = [threading.Thread(target=call) for call in calls]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begin


def product(machine: Any, a: Any, b: Any, c: Any, tile: int) -> Callable[[], object]:
    """A call of DGEMM in place."""
    return lambda: blas3.dgemm(1.0, a, b, 0.0, c, overwrite_c=1, device=machine, tile=tile)


def parts(matrix: Any, count: int) -> list[Any]:
    """A matrix in as many groups of columns."""
    bounds = np.linspace(0, matrix.shape[1], count + 1).astype(int)
    return [matrix[:, begin:end] for begin, end in pairwise(bounds)]


def products(machines: Sequence[Any], a: Any, b: Any, c: Any, tile: int) -> list[Callable[[], object]]:
    """A call for each machine, on its share of the columns."""
    count = len(machines)
    of_b, of_c = parts(b, count), parts(c, count)
    return [product(machines[at], a, of_b[at], of_c[at], tile) for at in range(count)]


def steps(devices: int, rounds: int) -> Iterator[Row]:
    """The host's time for a step, by one thread and by one for each device."""
    n = 64 * TILES_A_SIDE
    a, b, c = (unbacked((n, n), np.dtype("f8")) for _ in range(3))
    found: dict[str, list[float]] = {"one": [], "each": []}
    for _ in range(rounds):
        one = Idle(devices)
        seconds = seconds_of([product(one, a, b, c, 64)])
        found["one"].append(1e6 * seconds / one.operations)
        each = [Idle(1) for _ in range(devices)]
        calls = [
            product(*given, 64)
            for given in zip(each, [a] * devices, parts(b, devices), parts(c, devices), strict=True)
        ]
        seconds = seconds_of(calls)
        found["each"].append(1e6 * seconds / sum(machine.operations for machine in each))
    for way, times in found.items():
        yield Row(
            f"step/{way}/{devices}",
            {"devices": devices, "steps": TILES_A_SIDE**3},
            "us",
            "lower",
            round(min(times), 2),
        )


def on_gpus(devices: list[int], n: int, tile: int, rounds: int) -> Row:
    """A call on GPUs by one thread, and by one for each."""
    rng = np.random.default_rng(n)
    a, b, c = (np.asfortranarray(rng.standard_normal((n, n))) for _ in range(3))
    expected = a[:64] @ b
    found: dict[str, list[float]] = {"one": [], "each": []}
    with gpu.CudaMachine(sorted(set(devices))) as whole:
        for _ in range(rounds + 1):
            found["one"].append(1e3 * seconds_of([product(whole, a, b, c, tile)]))
        np.testing.assert_allclose(c[:64], expected, atol=1e-9 * n)
    budget = 100 << 30
    machines = [gpu.CudaMachine([device], budget // devices.count(device)) for device in devices]
    try:
        count = len(devices)
        calls = [
            product(*given, tile)
            for given in zip(machines, [a] * count, parts(b, count), parts(c, count), strict=True)
        ]
        for _ in range(rounds + 1):
            found["each"].append(1e3 * seconds_of(calls))
        np.testing.assert_allclose(c[:64], expected, atol=1e-9 * n)
    finally:
        for machine in machines:
            machine.close()
    times = {way: round(median(each[1:]), 3) for way, each in found.items()}  # the first locks pages
    return Row(
        f"dgemm/{n}/{tile}",
        {"n": n, "tile": tile, "devices": devices},
        "ms",
        "lower",
        times["one"],
        {"a thread each": times["each"]},
    )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--devices", nargs="+", type=int, default=[], help="GPUs, by their numbers")
    parser.add_argument("--sizes", nargs="+", type=int, default=[8192, 16384], help="rows and columns")
    parser.add_argument("--tiles", nargs="+", type=int, default=[1024, 2048, 4096], help="of a tile")
    parser.add_argument("--rounds", type=int, default=5, help="calls of each kind")
    options = parser.parse_args()
    meta = about_this_run()
    if options.devices:
        with gpu.CudaMachine(sorted(set(options.devices))) as machine:
            meta |= {"gpu": machine.name(0), "devices": options.devices}
    rows = [row for devices in DEVICES for row in steps(devices, options.rounds)]
    show(rows)
    for n in options.sizes if options.devices else ():
        for tile in options.tiles:
            rows.append(on_gpus(options.devices, n, tile, options.rounds))
            show(rows[-1:])
    if options.json:
        write(options.json, meta, rows)


if __name__ == "__main__":
    main()
