"""How fast the PTX executor is, in thread-instructions per second on one core, beside numba's simulator.

    python benchmarks/ptx.py [--json benchmarks/results/cpu/ptx.json]

Only launches are timed; compiling, parsing and copying are not. Every repetition has new random operands
and a new device with its default checks on, and its answer is compared with the reference. The cases take
turns, so that what disturbs the machine for a while does not fall on one of them; Python's garbage
collector and the allocator run as they always do.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np
from common import Row, about_this_run, show, use_one_core, write

import gpu
import reference
import simwarp
from gpu.compile import compiler_version
from simwarp.device import Module

REPETITIONS = 31
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
        """Load PTX text."""
        return TimedModule(self, ptx)


class TimedModule(Module):
    """PTX whose launches are timed."""

    device: TimedDevice

    def kernel(self, name: str) -> Any:
        """A kernel by its name in the PTX, to be launched against the clock."""
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


CASES: dict[str, tuple[Callable[..., Sample], dict[str, int]]] = {
    "bmm32-512": (multiply, {"m": 512, "n": 512, "k": 512}),
    "bmm32-ragged": (multiply, {"m": 513, "n": 511, "k": 500}),
    "pack_column-1024": (pack, {"rows": 1024, "columns": 1024}),
}
AT_LEAST = {"bmm32-512": 300.0}


def sample_all() -> dict[str, list[Sample]]:
    random = np.random.default_rng()
    samples: dict[str, list[Sample]] = {name: [] for name in CASES}
    for repetition in range(1 + REPETITIONS):
        for name, (sample, size) in CASES.items():
            taken = sample(random, **size)
            if repetition > 0:  # the first one compiles, parses and links
                samples[name].append(taken)
    return samples


def speed_row(name: str, samples: list[Sample]) -> Row:
    speeds = [instructions / seconds / 1e6 for seconds, instructions in samples]
    lower, _, upper = quantiles(speeds, n=4)
    params: dict[str, Any] = {
        **CASES[name][1],
        "thread_instructions": samples[0][1],
        "repetitions": len(samples),
        "quartiles": [lower, upper],
    }
    wanted = AT_LEAST.get(name)
    return Row(f"ptx/{name}", params, UNIT, "higher", median(speeds), target=wanted)


def time_row(name: str, samples: list[Sample]) -> Row:
    """The seconds of one product, ours and numba's."""
    random, size = np.random.default_rng(), CASES[name][1]
    peer = median(multiply_with_numba(random, **size) for _ in range(PEER_REPETITIONS))
    params = {**size, "repetitions": len(samples), "peer_repetitions": PEER_REPETITIONS}
    ours = median(seconds for seconds, _ in samples)
    return Row(f"ptx/{name}-time", params, "s", "lower", ours, {"numba cudasim": peer})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the results to this file, too")
    path = parser.parse_args().json
    use_one_core()
    meta = about_this_run(nvrtc=compiler_version().removeprefix("NVRTC "))
    samples = sample_all()
    rows = [speed_row(name, samples[name]) for name in CASES]
    rows.append(time_row("bmm32-512", samples["bmm32-512"]))
    show(rows)
    if path:
        write(path, meta, rows)


if __name__ == "__main__":
    main()
