"""The ±1 products of Hopper's kernels: packed operands to bits, int32 and int16; packing; few rows.

    python benchmarks/bits.py [--rows bmm-bits pack …] [--sustained SECONDS] [--json PATH]

``bmm-OUTPUT/N`` is the kernel alone, from lines of bits with their ones, in the burst protocol: an idle gap
before each of eleven graphs, after one to warm up, and the median; up to N = 4096 with programmatic dependent
launches. A graph goes through as many sets of random operands as exceed L2 by far, so that they come from
DRAM. The figure is the median of three such measurements. ``…-sustained`` is launched back to back for some
seconds, as the power limit allows. Rows of every answer are compared with a product of integers by torch.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from common import Row, about_this_run, parser_of, publish
from hopper import seconds

import gpu
from gpu.bmm.lines import clear_plan, lines_plan, lines_ptx
from gpu.bmm.output import Output
from gpu.bmm.skinny import SKINNY_SCHEMES
from gpu.bmm.warpgroups import BITS, WARPGROUP_SCHEMES, Tile
from gpu.compile import compiler_version
from gpu.device import LaunchPlan
from gpu.tensor_map import encoded
from reference.types.tensor_map import TensorMap

WGMMA, SKINNY = WARPGROUP_SCHEMES["wgmma"], SKINNY_SCHEMES["skinny"]
TARGETS = {
    "bmm-bits": {16384: 13500.0, 8192: 12300.0, 4096: 9300.0, 2048: 3800.0},
    "bmm-int32": {16384: 11500.0, 8192: 9500.0, 4096: 6000.0, 2048: 2600.0},
    "bmm-int16": {16384: 12500.0, 8192: 10500.0, 4096: 7300.0, 2048: 3100.0},
    "bmm-lines": dict.fromkeys((16384, 8192, 4096, 2048)),
}
OUTPUTS = {"bmm-bits": "words", "bmm-int32": "int32", "bmm-int16": "int16", "bmm-lines": "lines"}
SUSTAINED = 12000.0
"""TOPS, to bits, at 16384."""
CHECKED = 64
"""Rows of a product that are compared."""
MEASUREMENTS = 3
_COLD = 192 << 20


class Product:
    """One product: its operands, sets of them that rotate, and its launches on a stream."""

    def __init__(
        self, device: Any, sizes: tuple[int, int, int], output: str, tile: Tile | None = None
    ) -> None:
        m, n, k = self.sizes = sizes
        self.device, self.output = device, output
        random = np.random.default_rng()
        pieces = -(-k // 128)
        sets = max(2, -(-_COLD // ((m + n) * pieces * 16)))
        self.host = [
            [random.integers(0, 2**32, (lines, pieces * 4), dtype=np.uint32) for lines in (m, n)]
            for _ in range(sets)
        ]
        spread = int(k**0.5)
        self.thresholds = random.integers(-spread, spread, n).astype(np.int32)
        self.flip = random.integers(0, 2, n).astype(np.uint8)
        rule = tuple(map(device.upload, (self.thresholds, self.flip))) if output in BITS else ()
        self.made = Output(output, rule).allocate(m, n, WGMMA, device)
        plan = WGMMA.plan(sizes, output, device.multiprocessors, tile=tile)
        self.clear = clear_plan(m, (9, 0)) if output == "lines" else None
        arrays = [self._placed(one, rule) for one in self.host]
        self.launches = [launch_of(device, plan, each) for each in arrays]
        self._turn = itertools.cycle(self.launches)

    def _placed(self, host: Any, rule: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arrays of one set, as the kernel takes them."""
        of_lines = [
            x
            for lines in host
            for x in (
                self.device.upload(lines),
                self.device.upload(np.bitwise_count(lines).sum(axis=1, dtype=np.uint32)),
            )
        ]
        return (*of_lines, *self.made, *rule)

    @property
    def sets(self) -> int:
        """How many sets of operands there are."""
        return len(self.host)

    def launch(self, stream: Any, *, dependent: bool = False) -> None:
        """Launch with the next set of operands."""
        if self.clear is not None:
            launch_of(self.device, self.clear, (self.made[1],))(stream, dependent=dependent)
        next(self._turn)(stream, dependent=dependent or self.clear is not None)

    def check(self) -> None:
        """Launch the first set, and compare some rows with a product of integers."""
        self._turn = itertools.cycle(self.launches)
        self.launch(None)
        m, n, k = self.sizes
        rows = np.unique(np.linspace(0, m - 1, CHECKED).astype(int))
        a, b = (signs(lines, k) for lines in (self.host[0][0][rows], self.host[0][1]))
        dots = integer_product(a, b)
        found = self.made[0].download()
        if self.output in BITS:
            ones = (dots >= self.thresholds) != (self.flip != 0)
            words = found.reshape(m, -1)[rows] if self.output == "lines" else found.T[rows]
            bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1, bitorder="little")
            right = np.array_equal(bits[:, :n], ones)
        else:
            right = np.array_equal(found[rows], dots)
        if not right:
            raise SystemExit(f"{self.sizes} to {self.output}: the answer is wrong")


def launch_of(device: Any, plan: LaunchPlan, arrays: tuple[Any, ...]) -> Callable[..., None]:
    """The launch of a plan with its arrays on a stream, with tensor maps made once."""
    given = iter(arrays)
    args = [
        encoded(value.at(next(given).pointer), (9, 0))
        if isinstance(value, TensorMap)
        else next(given)
        if value is None
        else value
        for value in plan.args
    ]
    kernel = device.kernel(plan.ptx, plan.name)

    def launch(stream: Any, *, dependent: bool, kept: tuple[Any, ...] = arrays) -> None:
        """Launch; a map holds an address, so the arrays are ``kept``."""
        kernel(plan.grid, plan.block, *args, shared=plan.shared, stream=stream, dependent=dependent)

    return launch


def signs(lines: Any, k: int) -> Any:
    """Lines of bits as ±1, int8."""
    bits = np.unpackbits(np.ascontiguousarray(lines).view(np.uint8), axis=1, bitorder="little")[:, :k]
    return 2 * bits.astype(np.int8) - 1


def integer_product(a: Any, b: Any) -> Any:
    """The product of ±1, exact: by torch where it can, else by NumPy."""
    try:
        import torch
    except ImportError:
        return (a.astype(np.float32) @ b.astype(np.float32).T).astype(np.int32)
    if len(a) <= 16 or a.shape[1] % 8 or len(b) % 8:
        return (a.astype(np.float32) @ b.astype(np.float32).T).astype(np.int32)
    return torch._int_mm(torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda().t()).cpu().numpy()


def burst(device: Any, product: Product) -> float:
    """The median time of one launch in the burst protocol; the median of several measurements."""
    small = product.sizes[0] <= 4096
    launch = partial(product.launch, dependent=small)
    gap = 0.06 if small else 0.3
    times = [seconds(device, launch, inner=product.sets, samples=11, gap=gap) for _ in range(MEASUREMENTS)]
    return statistics.median(times)


def sustained(device: Any, product: Product, duration: float) -> float:
    """The time of one launch while launches follow one another for some seconds, without the first half."""
    stream, done, start = device.stream(), 0, time.perf_counter()
    half = None
    while (passed := time.perf_counter() - start) < duration:
        for _ in range(20):
            product.launch(stream)
        stream.synchronize()
        done += 20
        if half is None and passed > duration / 2:
            half = done, time.perf_counter()
    if half is None:
        raise SystemExit("a sustained measurement needs a longer --sustained")
    return (time.perf_counter() - half[1]) / (done - half[0])


def tera(sizes: tuple[int, int, int], time_of_one: float) -> float:
    m, n, k = sizes
    return 2 * m * n * k / time_of_one / 1e12


def product_rows(device: Any, case: str, duration: float) -> Iterator[Row]:
    """The rows of one kind of output."""
    for n, target in TARGETS[case].items():
        product = Product(device, (n, n, n), OUTPUTS[case])
        speed = tera(product.sizes, burst(device, product))
        tile = WGMMA.tile(n, n, n, OUTPUTS[case], device.multiprocessors)
        params = {"n": n, "tile": [tile.rows, tile.columns], "sets": product.sets, "dependent": n <= 4096}
        yield Row(f"{case}/{n}", params, "TOPS", "higher", speed, target=target)
        if duration and n >= 8192:
            held = tera(product.sizes, sustained(device, product, duration))
            goal = SUSTAINED if (case, n) == ("bmm-bits", 16384) else None
            yield Row(
                f"{case}/{n}-sustained", {"n": n, "seconds": duration}, "TOPS", "higher", held, target=goal
            )
        product.check()


def skinny_rows(device: Any) -> Iterator[Row]:
    """Few rows of A, packed to bits and to int32."""
    for (m, n, k), output in itertools.product(((8, 4096, 4096), (8, 16384, 16384)), ("bits", "int")):
        random, pieces = np.random.default_rng(), k // 128
        plan = SKINNY.plan((m, n, k), output, (9, 0), device.multiprocessors)
        rule = (np.zeros(n, np.int32), np.zeros(n, np.uint8)) if output == "bits" else ()
        shape, dtype = ((n // 32, m), np.uint32) if output == "bits" else ((m, n), np.int32)
        launches = list[Callable[..., None]]()
        sets = max(2, -(-_COLD // (n * pieces * 16)))
        for _ in range(sets):
            lines = [random.integers(0, 2**32, (x, pieces * 4), dtype=np.uint32) for x in (m, n)]
            ones = [np.bitwise_count(x).sum(axis=1, dtype=np.uint32) for x in lines]
            c = device.allocate(shape, dtype)
            given = map(device.upload, (lines[0], ones[0], lines[1], ones[1]))
            launches.append(launch_of(device, plan, (*given, c, *map(device.upload, rule))))
        turn = itertools.cycle(launches)

        def launch(stream: Any, turn: Iterator[Callable[..., None]] = turn) -> None:
            next(turn)(stream, dependent=False)

        found = statistics.median(
            seconds(device, launch, inner=sets, samples=11, gap=0.06) for _ in range(MEASUREMENTS)
        )
        target = 3.4 if (n, output) == (4096, "bits") else None
        case = f"bmm-skinny{'' if output == 'bits' else '-int32'}/{m}x{n}x{k}"
        yield Row(case, {"sets": sets}, "us", "lower", 1e6 * found, target=target)


def pack_rows(device: Any, side: int = 16384) -> Iterator[Row]:
    """Real matrices to lines and ones, as a share of the speed of a copy of as many bytes."""
    for dtype, name in ((np.float32, "f32"), (np.float16, "f16")):
        host = np.random.default_rng().standard_normal((side, side), np.float32).astype(dtype)
        x = device.upload(host)
        words, ones = (device.allocate(shape, np.uint32) for shape in ((side, side // 128, 4), (side,)))
        kernel, grid, block = lines_plan(x, 0, device.multiprocessors)
        ptx, flag = lines_ptx(np.dtype(dtype).name, (9, 0)), device.upload(np.zeros(1, np.int32))
        plan = LaunchPlan(ptx.text, kernel, grid, block, (None, None, None, side, side, None))
        launch = partial(launch_of(device, plan, (x, words, ones, flag)), dependent=False)
        ours = statistics.median(
            seconds(device, launch, inner=4, samples=11, gap=0.1) for _ in range(MEASUREMENTS)
        )
        moved = x.nbytes + words.nbytes + ones.nbytes
        copied = statistics.median(
            seconds(device, copy_of(device, moved), inner=4, samples=11, gap=0.1) for _ in range(MEASUREMENTS)
        )
        right = np.packbits(host[:CHECKED] >= 0, axis=1, bitorder="little")
        if not np.array_equal(words.download()[:CHECKED].reshape(CHECKED, -1).view(np.uint8), right):
            raise SystemExit(f"pack/{name}: the answer is wrong")
        params = {
            "side": side,
            "TB/s": round(moved / ours / 1e12, 3),
            "copy TB/s": round(moved / copied / 1e12, 3),
        }
        yield Row(f"pack/{name}", params, "of a copy", "higher", copied / ours, target=0.95)


def copy_of(device: Any, moved: int) -> Callable[[Any], None]:
    """A copy on the device that reads and writes as many bytes, together."""
    from cuda.bindings import driver

    half = moved // 2
    source, to = (device.allocate((half,), np.uint8) for _ in "ab")

    def launch(stream: Any) -> None:
        driver.cuMemcpyDtoDAsync(to.pointer, source.pointer, half, stream.handle)

    return launch


def rows_of(device: Any, names: list[str], duration: float) -> Iterator[Row]:
    """The rows that the options name."""
    for name in names:
        if name in TARGETS:
            yield from product_rows(device, name, duration)
    if "bmm-skinny" in names:
        yield from skinny_rows(device)
    if "pack" in names:
        yield from pack_rows(device)


def main() -> None:
    parser = parser_of(__doc__)
    known = [*TARGETS, "bmm-skinny", "pack"]
    parser.add_argument("--rows", nargs="+", choices=known, default=known, help="measure these")
    parser.add_argument("--sustained", type=float, default=0.0, metavar="SECONDS", help="and so for as long")
    options = parser.parse_args()
    device = gpu.CudaDevice()
    meta = about_this_run(gpu=device.name, nvrtc=compiler_version())
    publish(options.json, meta, list(rows_of(device, options.rows, options.sustained)))


if __name__ == "__main__":
    main()
