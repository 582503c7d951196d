"""Measures the PTX executor in thread-instructions per second on one core, beside numba's simulator.

    python benchmarks/ptx.py [--json benchmarks/results/cpu/ptx.json]

Only launches are timed; compiling, parsing and copying are not. Every repetition has new random operands
and a new device with its default checks on, and its answer is compared with the reference. The cases take
turns, so that what disturbs the machine for a while does not fall on one of them; Python's garbage
collector and the allocator run as they always do.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from unittest.mock import patch

import numpy as np
from common import Row, measure
from ptx_cases import (
    Sample,
    chain,
    check_equal,
    collatz,
    fft,
    gemm,
    merge_sort,
    multiply,
    pack,
    packed,
    popc,
    queens,
    shuffles,
    sort,
    spmv,
    wgmma_b1,
    wgmma_f16,
    wmma_f16,
)

import reference
from gpu.compile import compiler_version
from simwarp.engine.schedule.scheduler import Scheduler

SPEED = "M thread-instructions/s"
PEER_REPETITIONS = 3


@contextmanager
def all_cores() -> Iterator[None]:
    """Let this process use every core of the machine again."""
    one = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    try:
        yield
    finally:
        os.sched_setaffinity(0, one)


def without_compaction() -> AbstractContextManager[Any]:
    """Disable the compact copy on which a few warps are run."""
    return patch.object(Scheduler, "is_sparse", lambda _: False)


@dataclass(frozen=True)
class Case:
    """One thing to measure."""

    sample: Callable[..., Sample]  # a function of `ptx_cases`, called with size and options
    size: Mapping[str, Any]
    small: Mapping[str, Any]  # the size of a first call, which compiles, parses and links, and does not count
    repetitions: int = 31
    target: float | None = None  # in `SPEED`, or in seconds
    options: Mapping[str, Any] = field(default_factory=dict)
    within: Callable[[], AbstractContextManager[Any]] = nullcontext  # makes the context in which it runs
    in_seconds: bool = False  # the time is the result, not the speed


CUBE, TINY = {"m": 512, "n": 512, "k": 512}, {"m": 64, "n": 64, "k": 64}
SPARSE = {"rows": 65536, "zipf": 1.2, "longest": 4096}
FEW_ROWS = {**SPARSE, "rows": 256}
ONE_WARP, SEQUENCES = {"rounds": 100_000}, {"threads": 128, "each": 32}
NUMPY, COMPILED = {"engine": "numpy"}, {"engine": "compiled"}
SUMS, FEW_SUMS = {"warps": 4, "rounds": 2000}, {"warps": 4, "rounds": 4}
CASES = {
    "bmm32": Case(
        multiply, {"m": 1024, "n": 1024, "k": 1024}, TINY, 15, 800.0, options={"chunk_lanes": 16384}
    ),
    "bmm32-512": Case(multiply, CUBE, TINY, target=300.0),
    "bmm32-ragged": Case(multiply, {"m": 513, "n": 511, "k": 500}, TINY),
    "pack_column-1024": Case(pack, {"rows": 1024, "columns": 1024}, {"rows": 32, "columns": 32}),
    "spmv": Case(spmv, SPARSE, FEW_ROWS, 5, target=150.0),
    "spmv-without-compaction": Case(spmv, SPARSE, FEW_ROWS, 3, within=without_compaction),
    "spmv-two-workers": Case(spmv, SPARSE, FEW_ROWS, 3, options={"workers": 2}, within=all_cores),
    "gemm-1024": Case(gemm, {"m": 1024, "n": 1024, "k": 1024}, TINY, 3, target=60.0, in_seconds=True),
    "wmma-f16-256": Case(wmma_f16, {"m": 256, "n": 256, "k": 256}, TINY, 15, in_seconds=True),
    "wgmma-f16-256": Case(wgmma_f16, {"m": 256, "n": 256, "k": 256}, TINY, 15, 2.0, in_seconds=True),
    "wgmma-b1-1024": Case(wgmma_b1, {"m": 1024, "n": 1024, "k": 1024}, TINY, 15, 1.5, in_seconds=True),
    "chain": Case(chain, ONE_WARP, ONE_WARP, 15, 8850.0),
    "chain-numpy": Case(chain, ONE_WARP, {"rounds": 10}, 5, options=NUMPY),
    "collatz": Case(collatz, SEQUENCES, SEQUENCES, 15, 200.0),
    "collatz-numpy": Case(collatz, SEQUENCES, {"threads": 1, "each": 1}, 3, options=NUMPY),
    "queens": Case(queens, {"n": 9}, {"n": 6}, options=COMPILED),
    "queens-numpy": Case(queens, {"n": 9}, {"n": 4}, 3, options=NUMPY),
    "gemm-256": Case(gemm, {"m": 256, "n": 256, "k": 256}, TINY, 9, options=COMPILED),
    "gemm-256-numpy": Case(gemm, {"m": 256, "n": 256, "k": 256}, TINY, 9, options=NUMPY),
    "fft": Case(fft, {"blocks": 2}, {"blocks": 1}, 9, options=COMPILED),
    "fft-numpy": Case(fft, {"blocks": 2}, {"blocks": 1}, 9, options=NUMPY),
    "merge-sort": Case(merge_sort, {"blocks": 2}, {"blocks": 1}, 9, options=COMPILED),
    "merge-sort-numpy": Case(merge_sort, {"blocks": 2}, {"blocks": 1}, 9, options=NUMPY),
    "shuffles": Case(shuffles, SUMS, FEW_SUMS, 9, options=COMPILED),
    "shuffles-numpy": Case(shuffles, SUMS, FEW_SUMS, 5, options=NUMPY),
    "spmv-compiled": Case(spmv, {**SPARSE, "rows": 8192}, FEW_ROWS, 5, options=COMPILED),
    "spmv-numpy": Case(spmv, {**SPARSE, "rows": 8192}, FEW_ROWS, 5, options=NUMPY),
    "bmm32-compiled": Case(multiply, CUBE, TINY, 9, options=COMPILED),
    "bmm32-numpy": Case(multiply, CUBE, TINY, 9, options=NUMPY),
    "sort": Case(sort, {"size": 1024}, {"size": 64}, 5, in_seconds=True),
    "popc": Case(popc, {"m": 128, "n": 128, "k": 128}, TINY, in_seconds=True),
}
NEEDS_TWO_CORES = {"spmv-two-workers"}
BESIDE_NUMBA = {"bmm32-512": "bmm32-512-time", "popc": "popc"}
"""The cases that numba's simulator runs too, and the rows that show both times."""


def sample_all(cases: Mapping[str, Case]) -> dict[str, list[Sample]]:
    """Sample the cases in turns, each as often as its ``repetitions``."""
    random = np.random.default_rng()
    samples: dict[str, list[Sample]] = {name: [] for name in cases}
    for case in cases.values():
        case.sample(random, **case.small, **case.options)
    for repetition in range(max(case.repetitions for case in cases.values())):
        for name, case in cases.items():
            if repetition < case.repetitions:
                with case.within():
                    samples[name].append(case.sample(random, **case.size, **case.options))
    return samples


def multiply_with_numba(random: np.random.Generator, m: int, n: int, k: int) -> float:
    """Measure a ±1 product in numba's CUDA simulator, in a separate process, in seconds."""
    a, b = packed(random, m, n, k)
    with tempfile.TemporaryDirectory() as folder:
        for name, value in (("a", a.words), ("b", b.words), ("k", k)):
            np.save(Path(folder, f"{name}.npy"), value)
        script = Path(__file__).with_name("numba_cudasim.py")
        done = subprocess.run([sys.executable, script, folder], stdout=subprocess.PIPE, text=True, check=True)
        check_equal(np.load(Path(folder, "c.npy")), reference.bmm(a, b))
    return float(done.stdout)


# ---- rows ----------------------------------------------------------------------------------------


def row(name: str, case: Case, samples: Sequence[Sample]) -> Row:
    """The row of a case: its median speed, or its median time."""
    if case.in_seconds:
        return _row(name, case, samples, [seconds for seconds, _ in samples], "s", target=case.target)
    speeds = [instructions / seconds / 1e6 for seconds, instructions in samples]
    return _row(name, case, samples, speeds, SPEED, target=case.target)


def row_beside_numba(name: str, case: Case, samples: Sequence[Sample]) -> Row:
    """The row of one product in our simulator and numba's, in seconds; both start one thread per element."""
    random = np.random.default_rng()
    peer = median(multiply_with_numba(random, **case.size) for _ in range(PEER_REPETITIONS))
    seconds = [seconds for seconds, _ in samples]
    more: dict[str, Any] = {
        "peer_threads": case.size["m"] * case.size["n"],
        "peer_repetitions": PEER_REPETITIONS,
        "times_as_fast": peer / median(seconds),
    }
    return _row(BESIDE_NUMBA[name], case, samples, seconds, "s", {"numba cudasim": peer}, more)


def _row(
    name: str,
    case: Case,
    samples: Sequence[Sample],
    values: Sequence[float],
    unit: str,
    peers: Mapping[str, float] | None = None,
    more: Mapping[str, Any] | None = None,
    target: float | None = None,
) -> Row:
    lower, _, upper = quantiles(values, n=4)
    params: dict[str, Any] = {
        **case.size,
        **case.options,
        "thread_instructions": median(instructions for _, instructions in samples),
        "repetitions": len(values),
        "quartiles": [lower, upper],
        **(more or {}),
    }
    better = "lower" if unit == "s" else "higher"
    return Row(f"ptx/{name}", params, unit, better, median(values), peers or {}, target=target)


def rows(cases: Mapping[str, Case]) -> Iterator[Row]:
    """Measure the cases in turns; those that need two cores are left out on one core."""
    with all_cores():
        several = len(os.sched_getaffinity(0)) > 1
    cases = {name: case for name, case in cases.items() if several or name not in NEEDS_TWO_CORES}
    samples = sample_all(cases)
    yield from (row(name, case, samples[name]) for name, case in cases.items() if name != "popc")
    for name in BESIDE_NUMBA:
        if name in cases:
            yield row_beside_numba(name, cases[name], samples[name])


if __name__ == "__main__":
    measure(__doc__, CASES, rows, nvrtc=compiler_version().removeprefix("NVRTC "))
