"""The cases of `ptx.py` on the simulated device: each draws operands, launches, and checks its result.

A case takes a random generator and its sizes, and returns what the launch took. A wrong answer ends
the run: its time would mean nothing.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

import gpu
import reference
import simwarp
from gpu.compile import compile
from simwarp.device.module import Module
from simwarp.lab.recording import example

ROOT = Path(__file__).resolve().parents[1]
WARP_SIZE = 32

Sample: TypeAlias = tuple[float, int]
"""The seconds of a launch, and the thread-instructions that it executed."""
Matrix: TypeAlias = npt.NDArray[Any]


class TimedDevice(simwarp.Device):
    """A simulated device that measures the time of each launch."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.samples: list[Sample] = []

    def load(self, ptx: str) -> TimedModule:
        """Load PTX text."""
        return TimedModule(self, ptx)


class TimedModule(Module):
    """PTX whose launches are timed."""

    device: TimedDevice

    def kernel(self, name: str) -> Any:
        """A kernel by its name in the PTX, whose launches are timed."""
        launch = super().kernel(name)

        def timed(*args: Any, **options: Any) -> None:
            before, start = self.device.executed, time.perf_counter()
            launch(*args, **options)
            seconds = time.perf_counter() - start
            self.device.samples.append((seconds, self.device.executed - before))

        return timed


# ---- kernels of gpu ------------------------------------------------------------------------------


def multiply(random: np.random.Generator, m: int, n: int, k: int, **options: Any) -> Sample:
    """The ±1 product of (m, k) and (k, n) by BMM-32."""
    a, b = packed(random, m, n, k)
    device = TimedDevice(**options)
    check_equal(gpu.bmm(a, b, device=device), reference.bmm(a, b))
    return device.samples[-1]


def pack(random: np.random.Generator, rows: int, columns: int) -> Sample:
    """Pack a float32 matrix."""
    x = random.standard_normal((rows, columns), dtype=np.float32)
    device = TimedDevice()
    check_equal(gpu.pack(x, layout="column", device=device).words, reference.pack(x, layout="column").words)
    return device.samples[-1]


# ---- other kernels -------------------------------------------------------------------------------


def popc(random: np.random.Generator, m: int, n: int, k: int) -> Sample:
    """The product of `multiply`, with one thread per element."""
    a, b = packed(random, m, n, k)
    device = TimedDevice()
    c = device.allocate((m, n), np.int32)
    kernel = device.load(ptx("benchmarks/popc.cu")).kernel("popc")
    operands = device.upload(a.words), device.upload(b.words), c
    kernel((1, m, 1), (n, 1, 1), *operands, np.uint32(m), np.uint32(n), np.uint32(k))
    check_equal(c.download(), reference.bmm(a, b))
    return device.samples[-1]


def chain(random: np.random.Generator, rounds: int, **options: Any) -> Sample:
    """One warp, whose lanes follow a linear congruential generator."""
    device = TimedDevice(**options)
    rounds = int(rounds + random.integers(WARP_SIZE))
    result = device.allocate((WARP_SIZE,), np.uint32)
    kernel = device.load(ptx("benchmarks/loops.cu")).kernel("chain")
    kernel((1, 1, 1), (WARP_SIZE, 1, 1), result, np.uint32(rounds))
    factor, addend = 1, 0  # of ``rounds`` steps at once, by squaring
    for bit in f"{rounds:b}":
        factor, addend = factor * factor % 2**32, addend * (factor + 1) % 2**32
        if bit == "1":
            factor, addend = factor * 1664525 % 2**32, (addend * 1664525 + 1013904223) % 2**32
    expected = [(factor * x + addend) % 2**32 for x in range(WARP_SIZE)]
    check_equal(result.download(), np.array(expected, np.uint32))
    return device.samples[-1]


def collatz(random: np.random.Generator, threads: int, each: int, **options: Any) -> Sample:
    """The lengths of Collatz sequences, some added by each lane: it leaves its loop at another time."""
    device = TimedDevice(**options)
    first = int(random.integers(1, 1 << 20))
    result = device.allocate((threads,), np.uint32)
    kernel = device.load(ptx("benchmarks/loops.cu")).kernel("collatz")
    kernel((1, 1, 1), (threads, 1, 1), result, np.uint32(first), np.uint32(each))
    x = np.arange(first, first + threads * each, dtype=np.uint64)
    steps = np.zeros(x.shape, np.uint32)
    while (going := x > 1).any():
        steps += going
        x = np.where(going, np.where(x & 1, 3 * x + 1, x >> np.uint64(1)), x)
    check_equal(result.download(), steps.reshape(threads, each).sum(axis=1, dtype=np.uint32))
    return device.samples[-1]


def queens(random: np.random.Generator, n: int, **options: Any) -> Sample:
    """The ways to put n queens on a board, a thread for each pair of first rows."""
    device = TimedDevice(**options)
    counts = device.allocate((128,), np.uint32)
    device.load(ptx("benchmarks/narrow.cu")).kernel("queens")((1, 1, 1), (128, 1, 1), counts, np.uint32(n))
    check_equal(counts.download().sum(dtype=np.int64), np.array({4: 2, 6: 4, 8: 92, 9: 352, 10: 724}[n]))
    return device.samples[-1]


def fft(random: np.random.Generator, blocks: int, **options: Any) -> Sample:
    """The Fourier transforms of rows of 1,024 numbers, a block each."""
    x = (random.standard_normal((blocks, 1024)) + 1j * random.standard_normal((blocks, 1024))).astype(
        np.complex64
    )
    roots = np.exp(-2j * np.pi * np.arange(512) / 1024).astype(np.complex64)
    device = TimedDevice(**options)
    y = device.allocate((blocks, 2048), np.float32)
    kernel = device.load(ptx("benchmarks/narrow.cu")).kernel("fft")
    kernel((blocks, 1, 1), (256, 1, 1), *(device.upload(a.view(np.float32)) for a in (x, roots)), y)
    exact = np.fft.fft(x.astype(np.complex128))
    check_close(y.download(), exact.view(np.float64), np.full((1, 2048), 1e-5 * np.abs(exact).max()))
    return device.samples[-1]


def merge_sort(random: np.random.Generator, blocks: int, **options: Any) -> Sample:
    """Rows of 1,024 numbers, each sorted by a block."""
    x = random.integers(0, 1 << 16, (blocks, 1024), dtype=np.uint32)
    device = TimedDevice(**options)
    y = device.allocate(x.shape, np.uint32)
    kernel = device.load(ptx("benchmarks/narrow.cu")).kernel("merge_sort")
    kernel((blocks, 1, 1), (256, 1, 1), device.upload(x), y)
    check_equal(y.download(), np.sort(x))
    return device.samples[-1]


def shuffles(random: np.random.Generator, warps: int, rounds: int, **options: Any) -> Sample:
    """Sums of 32 numbers by shuffles, many one after another in each warp."""
    x = random.integers(0, 1 << 20, (warps, rounds, WARP_SIZE), dtype=np.uint32)
    device = TimedDevice(**options)
    y = device.allocate((warps, rounds), np.uint32)
    kernel = device.load(ptx("benchmarks/narrow.cu")).kernel("shuffles")
    kernel((1, 1, 1), (warps * WARP_SIZE, 1, 1), device.upload(x), y, np.uint32(rounds))
    check_equal(y.download(), x.sum(axis=2, dtype=np.uint32))
    return device.samples[-1]


def sort(random: np.random.Generator, size: int, **options: Any) -> Sample:
    """A bitonic sort, one short launch per step: the mean of its launches."""
    x = random.integers(0, 1 << 32, size, dtype=np.uint32)
    device = TimedDevice(**options)
    array, threads = device.upload(x), min(size, 256)
    kernel = device.load(ptx("benchmarks/sort.cu")).kernel("bitonic")
    stages = range(1, size.bit_length())
    for k, j in ((1 << stage, 1 << step) for stage in stages for step in reversed(range(stage))):
        kernel(size // threads, threads, array, np.uint32(j), np.uint32(k))
    check_equal(array.download(), np.sort(x))
    seconds, instructions = np.mean(device.samples, axis=0)
    return float(seconds), int(instructions)


def spmv(random: np.random.Generator, rows: int, zipf: float, longest: int, **options: Any) -> Sample:
    """A sparse matrix (rows, rows), with rows of very different lengths, times a vector; a warp per row."""
    lengths = np.minimum(random.zipf(zipf, rows), longest)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint32)
    columns = random.integers(0, rows, int(starts[-1]), dtype=np.uint32)
    values = random.standard_normal(columns.size, dtype=np.float32)
    x = random.standard_normal(rows, dtype=np.float32)
    device = TimedDevice(**options)
    y = device.allocate((rows,), np.float32)
    kernel = device.load(ptx("examples/kernels/spmv.cu")).kernel("spmv")
    operands = [device.upload(array) for array in (starts, columns, values, x)]
    threads = 4 * WARP_SIZE
    grid = -(-rows * WARP_SIZE // threads), 1, 1
    kernel(grid, (threads, 1, 1), *operands, y, np.uint32(rows))
    products = values.astype(np.float64) * x[columns]
    sums, magnitudes = (np.add.reduceat(p, starts[:-1]) for p in (products, np.abs(products)))
    check_close(y.download(), sums, gamma(lengths) * magnitudes)
    return device.samples[-1]


def gemm(random: np.random.Generator, m: int, n: int, k: int, **options: Any) -> Sample:
    """A float32 product through tiles of shared memory, by one chain of fused multiply-adds per element."""
    a = random.standard_normal((m, k), dtype=np.float32)
    b = random.standard_normal((k, n), dtype=np.float32)
    device = TimedDevice(**options)
    c, tile = device.allocate((m, n), np.float32), 16
    kernel = device.load(ptx("examples/kernels/gemm.cu")).kernel("gemm")
    operands = device.upload(a), device.upload(b), c
    grid = -(-n // tile), -(-m // tile), 1
    kernel(grid, (tile, tile, 1), *operands, np.uint32(m), np.uint32(n), np.uint32(k))
    a, b = a.astype(np.float64), b.astype(np.float64)
    check_close(c.download(), a @ b, gamma(k) * (np.abs(a) @ np.abs(b)))
    return device.samples[-1]


def wmma_f16(random: np.random.Generator, m: int, n: int, k: int) -> Sample:
    """A product of halves by the WMMA API; the operands are multiples of 1/8, so the sums are exact."""
    a, b = random.integers(-16, 16, (m, k)), random.integers(-16, 16, (k, n))
    device, tile, warps = TimedDevice(), 16, 4
    c = device.allocate((m, n), np.float32)
    kernel = device.load(ptx("benchmarks/wmma.cu")).kernel("wmma_f16")
    operands = (device.upload((x / 8).astype(np.float16)) for x in (a, b))
    grid = n // (warps * tile), m // tile, 1
    kernel(grid, (WARP_SIZE, warps, 1), *operands, c, np.uint32(n), np.uint32(k))
    check_equal(c.download(), a.astype(np.float64) @ b / 64)
    return device.samples[-1]


def wgmma_f16(random: np.random.Generator, m: int, n: int, k: int) -> Sample:
    """A product of halves by warpgroups; the operands are multiples of 1/8, so the sums are exact."""
    a, b = random.integers(-16, 16, (m, k)), random.integers(-16, 16, (k, n))
    device = TimedDevice()
    c = example("pipelines", "gemm_wgmma_f16").gemm(device, *((x / 8).astype(np.float16) for x in (a, b)))
    check_equal(c, a.astype(np.float64) @ b / 64)
    return device.samples[-1]


def wgmma_b1(random: np.random.Generator, m: int, n: int, k: int) -> Sample:
    """A ±1 product by warpgroups."""
    a, b = (random.integers(0, 2, shape).astype(np.bool_) for shape in ((m, k), (k, n)))
    device = TimedDevice()
    c = example("pipelines", "gemm_wgmma_b1").gemm(device, a, b)
    check_equal(c, np.where(a, 1.0, -1.0) @ np.where(b, 1.0, -1.0))
    return device.samples[-1]


def cp_async(random: np.random.Generator, m: int, n: int, k: int) -> Sample:
    """A product of halves on tensor cores, whose tiles arrive by ``cp.async``."""
    a, b = random.integers(-16, 16, (m, k)), random.integers(-16, 16, (k, n))
    device = TimedDevice(cc=(8, 0))
    c = example("pipelines", "gemm_cp_async").gemm(device, *((x / 8).astype(np.float16) for x in (a, b)))
    check_equal(c, a.astype(np.float64) @ b / 64)
    return device.samples[-1]


def filter_ldg(random: np.random.Generator, blocks: int, threads: int) -> Sample:
    """A filter of seven taps, by ``__ldg``; the operands are integers, so the sums are exact."""
    x, taps = (random.integers(-16, 16, size).astype(np.float32) for size in (blocks * threads, 7))
    device = TimedDevice()
    y = device.allocate((x.size,), np.float32)
    kernel = device.load(ptx("benchmarks/accesses.cu")).kernel("filter")
    kernel((blocks, 1, 1), (threads, 1, 1), device.upload(x), device.upload(taps), y, np.uint32(x.size))
    check_equal(y.download(), np.sum([tap * np.roll(x, -k) for k, tap in enumerate(taps)], axis=0))
    return device.samples[-1]


def reduction(random: np.random.Generator, blocks: int, threads: int, kernel: str, folds: int) -> Sample:
    """The sum of each block, or ``folds`` times each thread's element, in shared memory."""
    x = random.integers(0, 1 << 20, (blocks, threads), dtype=np.uint32)
    expected = x.sum(axis=1, dtype=np.uint32) if not folds else np.uint32(folds) * x
    device = TimedDevice()
    y = device.allocate(expected.shape, np.uint32)
    launch = device.load(ptx("benchmarks/accesses.cu")).kernel(kernel)
    launch((blocks, 1, 1), (threads, 1, 1), device.upload(x), y)
    check_equal(y.download(), expected)
    return device.samples[-1]


# ---- operands and answers ------------------------------------------------------------------------


def packed(random: np.random.Generator, m: int, n: int, k: int) -> tuple[Any, Any]:
    """Two random matrices, (m, k) and (k, n), packed along k."""
    a = reference.pack(random.standard_normal((m, k)), layout="column")
    b = reference.pack(random.standard_normal((k, n)), layout="row")
    return a, b


@cache
def ptx(path: str) -> str:
    """Compile a ``.cu`` file of this repository."""
    return compile((ROOT / path).read_text(), path).text


def gamma(n: Any) -> Any:
    """A bound on the relative error of ``n`` roundings of float32 (Higham, "Accuracy and Stability", 3.1)."""
    unit = 2.0**-24
    return n * unit / (1 - n * unit)


def check_equal(answer: Matrix, expected: Matrix) -> None:
    """Refuse a result that differs from the expected one in any bit."""
    if not np.array_equal(answer, expected):
        raise SystemExit("the answer is wrong: its time means nothing")


def check_close(answer: Matrix, expected: Matrix, bound: Matrix) -> None:
    """Refuse a result whose error exceeds the bound of its roundings; also a NaN."""
    if not np.all(np.abs(answer - expected) <= bound):
        raise SystemExit("the answer is wrong: its time means nothing")
