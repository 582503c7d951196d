"""How cost grows with the size of the work: the exponents of places that once grew faster.

    python benchmarks/growth.py [--only ROW …] [--json benchmarks/results/cpu/growth.json]

``growth/…``: the exponent of the CPU seconds between the last two sizes: 1 is proportional to the work, 0
does not depend on it. The parameters have the sizes, the CPU seconds of each, and the MB by which the peak
memory grows over that of a process that has everything imported and compiled. Each size has its own process.
"""

from __future__ import annotations

import argparse
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import ROOT, Row, about_this_run, parser_of, show, use_one_core, write
from rich.progress import Progress

import reference
from gpu import blas3
from gpu.compile import compile as compile_cuda
from gpu.mttkrp import formats
from gpu.outofcore import Conv, Dense, Flatten, Network, Trainer
from reference.types import Coo
from simwarp import Device, Machine

Work = Callable[[], object]
LAUNCHES = 50
BATCH, SIDE, CHANNELS = 64, 32, 16


@dataclass(frozen=True)
class Case:
    """What is done at a size, once ``prepare`` has prepared it, and the exponent that is aimed at."""

    prepare: Callable[[int], Work]
    sizes: tuple[int, ...]
    of: str  # what a size counts
    target: float = 1.0


def kernel(name: str, device: Device) -> Any:
    """A kernel of ``growth.cu``."""
    return device.load(compile_cuda(Path(__file__).with_name("growth.cu").read_text(), "growth.cu")).kernel(
        name
    )


def launches(count: int) -> Work:
    """Launches that write one array, while a device has many others."""
    device = Device()
    array, run = device.allocate((32,), np.uint32), kernel("store", device)
    others = [device.allocate((8,), np.float32) for _ in range(count)]
    run(1, 32, array)
    return lambda: ([run(1, 32, array) for _ in range(LAUNCHES)], others)


def unwritten(size: int) -> Work:
    """Launches that write one array, while a device has a large one that nothing wrote."""
    device = Device()
    array, run = device.allocate((32,), np.uint32), kernel("store", device)
    other = device.allocate((size,), np.uint8)
    run(1, 32, array)
    return lambda: ([run(1, 32, array) for _ in range(LAUNCHES)], other)


def allocations(count: int) -> Work:
    """Arrays that are allocated, all kept, then all dropped."""
    device = Device()

    def work() -> None:
        arrays = [device.allocate((8,), np.float32) for _ in range(count)]
        arrays.clear()
        device.memory.settle()

    return work


def variables(count: int) -> Work:
    """A module with many variables."""
    head = ".version 8.0\n.target sm_80\n.address_size 64\n"
    text = head + "".join(f".global .u32 v{i};\n" for i in range(count)) + ".visible .entry k() { ret; }\n"
    return lambda: Device().load(text)


def mallocs(count: int) -> Work:
    """32 threads that keep as many blocks of ``malloc`` each."""
    device = Device()
    run, sums = kernel("allocate", device), device.allocate((32,), np.uint32)
    return lambda: run(1, 32, np.int32(count), sums)


def polling(name: str) -> Callable[[int], Work]:
    """Blocks that wait for one another in flight, with the race detector."""

    def prepare(blocks: int) -> Work:
        device = Device()
        run, words = kernel(name, device), device.upload(np.zeros(blocks + 1, np.uint32))
        return lambda: run(blocks, 32, words)

    return prepare


def planning(depth: int) -> Work:
    """The plan of a network of equal convolutions, within an eighth of its activations and its parameters."""
    layers = [Conv(CHANNELS, activation="relu") for _ in range(depth)]
    network = Network((CHANNELS, SIDE, SIDE), (*layers, Flatten(), Dense(10)))
    image = CHANNELS * SIDE * SIDE * 4
    budget = depth * BATCH * image // 8 + 4 * (depth * CHANNELS**2 * 9 + 10 * image)
    return lambda: Trainer(network, BATCH, device=Machine(), memory_budget=budget)


def explaining(n: int) -> Work:
    """The plan of a product of matrices; its steps are the cube of the tiles along an edge."""
    return lambda: blas3.explain("dgemm", n, tile=512, beta=1.0)


def reading(count: int) -> Work:
    """Copies of one array of the host, each in a stream of its own."""
    machine = Machine()
    host = np.zeros((8, 8), order="F")
    machine.pin(host)
    tiles = [machine.allocate(0, host.nbytes).tile(8, 8, host.dtype) for _ in range(count)]

    def work() -> None:
        for tile in tiles:
            machine.copy_in(machine.stream(0), host, tile)
        machine.run([])

    return work


def sparse(count: int) -> Coo:
    """A tensor with about as many nonzeros, at random places."""
    coords = np.random.default_rng(0).integers(0, 1000, (3, count))
    coords = np.unique(coords, axis=1)
    return Coo(coords, np.ones(coords.shape[1]), (1000,) * 3)


def mttkrp(count: int) -> Work:
    """The reference's MTTKRP, the first of its process."""
    tensor = sparse(count)
    factors = [np.ones((1000, 8))] * 3
    return lambda: reference.mttkrp(tensor, factors, 0)


def csf(count: int) -> Work:
    """A tree of a sparse tensor, the first of its process."""
    tensor = sparse(count)
    return lambda: formats.csf(tensor)


def bconv2d(images: int) -> Work:
    """The reference's convolution of bits, the first of its process."""
    random = np.random.default_rng(0)
    x, w = random.standard_normal((images, 16, 16, 64)), random.standard_normal((3, 3, 64, 64))
    return lambda: reference.bconv2d(x, w)


CASES = {
    "launch-among-arrays": Case(launches, (10, 1000, 10_000, 30_000), "live arrays", 0.0),
    "launch-beside-bytes": Case(unwritten, (10**5, 10**7, 10**8), "unwritten bytes", 0.0),
    "allocate-and-free": Case(allocations, (3000, 10_000, 30_000), "arrays"),
    "variables": Case(variables, (3000, 10_000, 30_000), "variables"),
    "malloc": Case(mallocs, (100, 300, 1000), "blocks of each thread"),
    "flags": Case(polling("flags"), (64, 256, 512), "blocks"),
    "flags-volatile": Case(polling("volatile_flags"), (64, 256, 512), "blocks"),
    "lock": Case(polling("lock"), (64, 128, 256), "blocks"),
    "trainer": Case(planning, (8, 16, 32), "convolutions"),
    "explain": Case(explaining, (8192, 16_384, 32_768), "rows", 3.0),
    "unordered-reads": Case(reading, (300, 1000, 3000), "copies"),
    "first-mttkrp": Case(mttkrp, (10**5, 10**6, 3 * 10**6), "nonzeros"),
    "first-csf": Case(csf, (10**4, 10**5, 10**6), "nonzeros"),
    "first-bconv2d": Case(bconv2d, (16, 64, 256), "images"),
}


def measure(name: str, size: int) -> tuple[float, float]:
    """The CPU seconds of a case at a size, and the MB that it adds, in a process of its own."""
    command = [sys.executable, __file__, "--serve", name, str(size)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(f"growth/{name} failed at {size}:\n{run.stderr}run {' '.join(command[1:])}")
    seconds, megabytes = map(float, run.stdout.split())
    return seconds, megabytes


def serve(name: str, size: int) -> None:
    """Do the work of a case once; print its CPU seconds, and the MB by which the peak memory grew."""
    kernel("store", Device())  # compiles, or reads what was compiled: does not count
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    work = CASES[name].prepare(size)
    start = time.process_time()
    kept = work()
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    del kept
    print(seconds, (peak - before) / 1024)


def row_of(name: str, found: Mapping[int, tuple[float, float]]) -> Row:
    """The row of a case, from the seconds and MB at each size."""
    (small, (least, _)), (large, (most, _)) = list(found.items())[-2:]
    params = {
        "of": CASES[name].of,
        "sizes": list(found),
        "seconds": [round(seconds, 4) for seconds, _ in found.values()],
        "megabytes": [round(megabytes, 1) for _, megabytes in found.values()],
    }
    exponent = round(math.log(most / least) / math.log(large / small), 2)
    return Row(f"growth/{name}", params, "exponent", "lower", exponent, target=CASES[name].target)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=CASES, default=[*CASES], metavar="ROW", help="these rows"
    )
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve[0], int(options.serve[1]))
        return
    use_one_core()
    meta, rows = about_this_run(), list[Row]()
    with Progress(transient=True) as progress:
        task = progress.add_task("growth", total=sum(len(CASES[name].sizes) for name in options.only))
        for name in options.only:
            found: dict[int, tuple[float, float]] = {}
            for size in CASES[name].sizes:
                progress.update(task, description=f"{name}, {size:,} {CASES[name].of}")
                found[size] = measure(name, size)
                progress.advance(task)
            rows.append(row_of(name, found))
    show(rows)
    if options.json:
        write(options.json, meta, rows)


if __name__ == "__main__":
    main()
