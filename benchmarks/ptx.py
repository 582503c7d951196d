"""How fast the PTX executor is, in thread-instructions per second on one core, beside numba's simulator.

    python benchmarks/ptx.py [--json benchmarks/results/cpu/ptx.json]

Only launches are timed; compiling, parsing and copying are not. Every repetition has new random operands
and a new device with its default checks on, and its answer is compared with the reference.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from common import Row, about_this_run, show, use_one_core, write

import gpu
import reference
import simwarp
from gpu.bmm.product import product_ptx
from simwarp.device import Module

REPETITIONS = 11
PEER_REPETITIONS = 3
UNIT = "M thread-instructions/s"
Sample = tuple[float, int]
"""The seconds of a launch, and how many thread-instructions it executed."""


class TimedDevice(simwarp.Device):
    """A simulated device that takes the time of each launch."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: list[Sample] = []

    def load(self, ptx: str) -> TimedModule:
        return TimedModule(self, ptx)


class TimedModule(Module):
    """PTX whose launches are timed."""

    device: TimedDevice

    def kernel(self, name: str) -> Any:
        launch = super().kernel(name)

        def timed(*args: Any, **options: Any) -> None:
            before, start = self.device.executed, time.perf_counter()
            launch(*args, **options)
            seconds = time.perf_counter() - start
            self.device.launches.append((seconds, self.device.executed - before))

        return timed


def operands(random: np.random.Generator, m: int, n: int, k: int) -> tuple[Any, Any]:
    a = reference.pack(random.standard_normal((m, k)), layout="column")
    b = reference.pack(random.standard_normal((k, n)), layout="row")
    return a, b


def multiply(random: np.random.Generator, m: int, n: int, k: int) -> Sample:
    a, b = operands(random, m, n, k)
    device = TimedDevice()
    check(gpu.bmm(a, b, device=device), reference.bmm(a, b))
    return device.launches[-1]


def pack(random: np.random.Generator, rows: int, columns: int) -> Sample:
    x = random.standard_normal((rows, columns), dtype=np.float32)
    device = TimedDevice()
    check(gpu.pack(x, layout="column", device=device).words, reference.pack(x, layout="column").words)
    return device.launches[-1]


def multiply_with_numba(random: np.random.Generator, m: int, n: int, k: int) -> float:
    """The seconds of the same product in numba's CUDA simulator, in a process of its own."""
    a, b = operands(random, m, n, k)
    with tempfile.TemporaryDirectory() as folder:
        for name, value in (("a", a.words), ("b", b.words), ("k", k)):
            np.save(Path(folder, f"{name}.npy"), value)
        script = Path(__file__).with_name("numba_cudasim.py")
        done = subprocess.run([sys.executable, script, folder], stdout=subprocess.PIPE, text=True, check=True)
        check(np.load(Path(folder, "c.npy")), reference.bmm(a, b))
    return float(done.stdout)


def check(answer: Any, expected: Any) -> None:
    if not np.array_equal(answer, expected):
        raise SystemExit("the answer is wrong: its time means nothing")


def row(case: str, sample: Callable[..., Sample], size: dict[str, int], at_least: float | None = None) -> Row:
    """The median speed over all repetitions."""
    random = np.random.default_rng()
    _, instructions = sample(random, **size)  # warms up: compiles, parses and links
    seconds = median(sample(random, **size)[0] for _ in range(REPETITIONS))
    params = {**size, "thread_instructions": instructions, "repetitions": REPETITIONS}
    speed = instructions / seconds / 1e6
    return Row(f"ptx/{case}", params, UNIT, "higher", speed, floor=at_least, target=at_least)


def row_beside_numba(ours: Row, size: dict[str, int]) -> Row:
    """The seconds of one product, ours and numba's."""
    random = np.random.default_rng()
    seconds = median(multiply_with_numba(random, **size) for _ in range(PEER_REPETITIONS))
    params = {**ours.params, "peer_repetitions": PEER_REPETITIONS}
    own_seconds = ours.params["thread_instructions"] / ours.ours / 1e6
    return Row(f"{ours.case}-time", params, "s", "lower", own_seconds, {"numba cudasim": seconds})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the results to this file, too")
    path = parser.parse_args().json
    use_one_core()
    meta = about_this_run(nvrtc=product_ptx((9, 0)).compiler.removeprefix("NVRTC "))

    square = {"m": 512, "n": 512, "k": 512}
    product = row("bmm32-512", multiply, square, at_least=300)
    rows = [
        product,
        row_beside_numba(product, square),
        row("bmm32-ragged", multiply, {"m": 513, "n": 511, "k": 500}),
        row("pack_column-1024", pack, {"rows": 1024, "columns": 1024}),
    ]
    show(rows)
    if path:
        write(path, meta, rows)


if __name__ == "__main__":
    main()
