"""The ±1 matrix products and the packing kernels on an H200, beside the authors' figures and cuBLASLt.

    python benchmarks/bmm.py [--json benchmarks/results/h200/bmm.json]

Two rows for each scheme and size: ``bstc/bmm32b/1024`` takes packed operands and gives bits (Table 2's
-B), ``bstc/bmm32/1024`` takes float32 and gives int32, packing included. One sample is twenty products
in one CUDA graph; the figure is the median of samples. Operands are random and the answers are checked.

``btc3/8192`` and the like are the schemes for bit tensor cores, from operands as their kernels take them to
int32; ``btc3b/8192`` to bits.

The floor of a product on CUDA cores is what the population count allows if every word needs one: 16 per
clock and multiprocessor. Carry-save counting needs one for two words, so ours may be above it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import sleep
from typing import Any

import numpy as np
import torch
from common import Row, about_this_run, parser_of, publish
from hopper import seconds

import gpu
import reference
from gpu.bmm.fsb import arrange
from gpu.bmm.packing import WARPS_PER_BLOCK, packing_plan, packing_ptx
from gpu.bmm.schemes import (
    SCHEMES,
    TENSOR_CORE_SCHEMES,
    Scheme,
    TensorCoreScheme,
    product_ptx,
)
from gpu.compile import compiler_version
from reference.types import PackedBits

SIZES = (1024, 2048, 4096, 8192)
ONE_COUNT_PER_WORD = 265.0
"""TOPS: 132 multiprocessors, 1.98 GHz, 16 counts of 32 bits, two operations a bit."""
AUTHORS = "authors' code (2026-11-20)"
PUBLISHED = {
    "bmm32b": (111, 209, 240, 253),
    "bmm64b": (55, 196, 232, 247),
    "bmms64b": (149, 218, 235, 246),
    "bmm32": (72, 165, 216, 242),
    "bmm64": (33, 115, 190, 230),
    "bmms64": (99, 179, 200, 235),
}
"""TOPS of the published kernels at the four sizes, on another H200."""
BTC_TARGETS = {"btc3/8192": 1500.0}
PACKED_SIDE = 16384
DTYPES = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "int8": np.int8}


def tera(n: int, time: float) -> float:
    return 2 * n**3 / time / 1e12


class Product:
    """The launches of one product, on buffers of its own."""

    def __init__(
        self, device: Any, scheme: Scheme | TensorCoreScheme, n: int, random: np.random.Generator
    ) -> None:
        self.device, self.scheme, self.n = device, scheme, n
        dtype = np.dtype(f"u{scheme.word // 8}")
        shape = (n // scheme.word, n)
        self.host = [random.integers(0, 2**scheme.word, shape, dtype=dtype) for _ in "ab"]
        self.a, self.b = (device.upload(words) for words in self.host)
        self.bits = device.allocate(shape, dtype)
        self.ints = device.allocate((n, n), np.int32)
        spread = int(n**0.5)
        self.thresholds = random.integers(-spread, spread, n).astype(np.int32)
        self.flip = random.integers(0, 2, n).astype(np.uint8)
        self.rule = [device.upload(self.thresholds), device.upload(self.flip)]
        self.operands: list[Any] = [self.a, self.b]
        if isinstance(scheme, TensorCoreScheme):
            packed = [
                PackedBits(self.a, (n, n), "column", 32, "lsb"),
                PackedBits(self.b, (n, n), "row", 32, "lsb"),
            ]
            self.operands = [x for one in packed for x in arrange(one, "x", scheme.form, device)]
        self.grid, self.block = scheme.launch(n, n)
        self.kernels = {
            output: device.load(self.ptx(output)).kernel(scheme.name) for output in ("int", "bits")
        }
        self.sizes = [np.uint32(n)] * 3

    def ptx(self, output: str) -> str:
        """The kernel of one output."""
        return product_ptx(self.scheme, output, self.scheme.first, (9, 0)).text

    def launch(self, output: str, stream: Any) -> None:
        """Launch the kernel of one output."""
        c = self.bits if output == "bits" else self.ints
        rule = self.rule if output == "bits" else []
        self.kernels[output](self.grid, self.block, *self.operands, c, *self.sizes, *rule, stream=stream)

    def check(self, output: str) -> None:
        """Compare some rows of the result with the reference."""
        rows = np.unique(np.linspace(0, self.n - 1, 24).astype(int))
        word, first = self.scheme.word, self.scheme.first
        a = PackedBits(
            np.ascontiguousarray(self.host[0][:, rows]), (rows.size, self.n), "column", word, first
        )
        b = PackedBits(self.host[1], (self.n, self.n), "row", word, first)
        expected: Any = reference.bmm(a, b)
        if output == "bits":
            rule = self.thresholds, self.flip != 0
            expected = reference.threshold(expected, *rule, word=word, first=first).words
            got = self.bits.download()[:, rows]
        else:
            got = self.ints.download()[rows]
        if not np.array_equal(got, expected):
            raise SystemExit(f"{self.scheme.name} {output} {self.n}: the answer is wrong")


class Packing:
    """The launch that packs one matrix."""

    def __init__(self, device: Any, host: Any, layout: Any, word: Any, words: Any = None) -> None:
        self.host, self.layout, self.word = host, layout, word
        rows, columns = host.shape
        shape = (-(-columns // word), rows) if layout == "column" else (-(-rows // word), columns)
        self.source = device.upload(host)
        self.words = device.allocate(shape, f"u{word // 8}") if words is None else words
        name, warps = packing_plan(self.source, layout, word, device.multiprocessors)
        ptx = packing_ptx(np.dtype(host.dtype).name, word, "msb", (9, 0))
        self.kernel = device.load(ptx.text).kernel(name)
        self.grid = (-(-warps // WARPS_PER_BLOCK), 1, 1)
        self.rest = [np.uint32(rows), np.uint32(columns), device.upload(np.zeros(1, np.int32))]

    def launch(self, stream: Any) -> None:
        """Launch the kernel."""
        block = (WARPS_PER_BLOCK * 32, 1, 1)
        self.kernel(self.grid, block, self.source, self.words, *self.rest, stream=stream)

    def check(self) -> None:
        """Compare the first rows and columns of the result with the reference."""
        part = self.host[:, :256] if self.layout == "row" else self.host[:256]
        expected = reference.pack(part, layout=self.layout, word=self.word).words
        if not np.array_equal(self.words.download()[:, :256], expected):
            raise SystemExit(f"packing {self.host.dtype} {self.layout}: the answer is wrong")


def product_rows(
    device: Any, random: np.random.Generator, libraries: dict[int, dict[str, float]]
) -> list[Row]:
    rows: list[Row] = []
    for scheme in SCHEMES.values():
        for i, n in enumerate(SIZES):
            product = Product(device, scheme, n, random)
            time = seconds(device, partial(product.launch, "bits"))
            product.check("bits")
            rows.append(row(f"{scheme.name}b", i, tera(n, time), "packed to bits", libraries[n]))
            packings = [
                Packing(device, random.standard_normal((n, n), dtype=np.float32), layout, scheme.word, words)
                for layout, words in (("column", product.a), ("row", product.b))
            ]

            def whole(stream: Any, packings: Any = packings, product: Any = product) -> None:
                for packing in packings:
                    packing.launch(stream)
                product.launch("int", stream)

            time = seconds(device, whole, inner=10)
            product.host = [packing.words.download() for packing in packings]
            product.check("int")
            rows.append(row(scheme.name, i, tera(n, time), "float32 to int32", libraries[n]))
    return rows


def tensor_core_rows(
    device: Any, random: np.random.Generator, libraries: dict[int, dict[str, float]]
) -> list[Row]:
    rows: list[Row] = []
    for scheme in TENSOR_CORE_SCHEMES.values():
        for n in SIZES:
            product = Product(device, scheme, n, random)
            for output, suffix in (("int", ""), ("bits", "b")):
                time = seconds(device, partial(product.launch, output))
                product.check(output)
                case = f"{scheme.name}{suffix}/{n}"
                operands = f"packed to {'int32' if output == 'int' else 'bits'}"
                params = {"n": n, "operands": operands, "format": scheme.form}
                speed, target = tera(n, time), BTC_TARGETS.get(case)
                rows.append(Row(case, params, "TOPS", "higher", speed, libraries[n], target=target))
    return rows


def row(name: str, i: int, ours: float, operands: str, libraries: dict[str, float]) -> Row:
    peers = dict(libraries)
    if name in PUBLISHED:
        peers = {AUTHORS: float(PUBLISHED[name][i]), **peers}
    target = float(PUBLISHED[name][i]) if name in PUBLISHED else None
    params = {"n": SIZES[i], "operands": operands}
    return Row(f"bstc/{name}/{SIZES[i]}", params, "TOPS", "higher", ours, peers, ONE_COUNT_PER_WORD, target)


def library_speeds(random: np.random.Generator) -> dict[int, dict[str, float]]:
    """The speeds of cuBLASLt through torch: int8 to int32, and float16."""
    speeds: dict[int, dict[str, float]] = {}
    for n in SIZES:
        a, b = (torch.from_numpy(random.integers(-127, 127, (n, n), dtype=np.int8)).cuda() for _ in "ab")
        half = a.half() / 127, b.half() / 127
        times = {
            "cuBLASLt s8": graph_time(lambda a=a, b=b: torch._int_mm(a, b.t())),
            "cuBLASLt f16": graph_time(lambda half=half: half[0] @ half[1]),
        }
        speeds[n] = {name: tera(n, time) for name, time in times.items()}
    return speeds


def graph_time(
    work: Callable[[], Any], inner: int = 20, samples: int = 15, *, gap: float = 0.0, warm: int = 1
) -> float:
    """The median time in a CUDA graph, as `hopper.seconds`, of work that torch launches."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(inner):
            work()
    times: list[float] = []
    for _ in range(warm + samples):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in "ab")
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1000 / inner)
        sleep(gap)
    return float(np.median(times[warm:]))


def eager_time(work: Callable[[], Any], inner: int = 20, samples: int = 15) -> float:
    """The median time of long work without a graph, in which copies would use a copy engine."""
    times: list[float] = []
    for _ in range(samples + 1):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in "ab")
        start.record()
        for _ in range(inner):
            work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1000 / inner)
    return float(np.median(times[1:]))


def packing_rows(device: Any, random: np.random.Generator) -> list[Row]:
    n = PACKED_SIDE
    source = torch.empty(n * n, dtype=torch.float32, device="cuda").normal_()
    target = torch.empty_like(source)
    copy = 2 * source.nbytes / eager_time(partial(target.copy_, source)) / 1e12
    rows: list[Row] = []
    for name, dtype in DTYPES.items():
        strip = random.standard_normal((n // 16, n), dtype=np.float32) * 30
        host = np.tile(strip.astype(dtype), (16, 1))
        for layout in ("column", "row"):
            packing = Packing(device, host, layout, 32)
            time = seconds(device, packing.launch, inner=10)
            packing.check()
            speed = (host.nbytes + n * n / 8) / time / 1e12
            wanted = 0.9 * copy if name == "f32" else None
            params = {"rows": n, "columns": n, "layout": layout, "bytes": host.nbytes + n * n // 8}
            rows.append(
                Row(f"pack/{name}-{layout}", params, "TB/s", "higher", speed, {"copy": copy}, copy, wanted)
            )
    return rows


def main() -> None:
    path = parser_of(__doc__).parse_args().json
    device, random = gpu.CudaDevice(), np.random.default_rng()
    meta = about_this_run(
        gpu=device.name,
        driver=device.driver_version,
        cuda=torch.version.cuda,
        nvrtc=compiler_version().removeprefix("NVRTC "),
    )
    libraries = library_speeds(random)
    rows = product_rows(device, random, libraries) + tensor_core_rows(device, random, libraries)
    rows += packing_rows(device, random)
    publish(path, meta, rows)


if __name__ == "__main__":
    main()
