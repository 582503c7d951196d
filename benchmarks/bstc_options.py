"""BSTC's options beside the listings without them: cache bypass, short counters, warps a block, approaches.

    python benchmarks/bstc_options.py [--json benchmarks/results/h200/bstc-options.json]

``bypass/C-LOAD`` is listing 6 for one image of 64 × 64 with C channels and filters, whose filters are loaded
as named, beside the plain load (section 8 (i)). ``counters/O-short`` has counters of 16 bits in shared memory
for O filters, beside 32 bits (8 (iii)); ``warps/…`` four warps a block, beside one (section 3).
``approach/…`` are the cycles of a warp alone for one tile of 32 × 32 with K = 2048, beside the paper's of a
P100 (section 5.1), with the microseconds of a product of 1024³ in the parameters. Times are medians over
launches whose operands take turns; every answer is first compared with the reference.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import Row, about_this_run, parser_of, publish
from hopper import seconds

import gpu
import reference
from gpu.compile import compile, compiler_version

SOURCE = Path(__file__).with_suffix(".cu")
SETS = 4
"""Operands that take turns."""
FILTERS = ("nc", "cg", "no_allocate")
CHANNELS = (128, 256, 512)
MANY_FILTERS = (512, 2048, 4096)
SIDE = 64
APPROACHES = {
    "row-by-column": (0, 1, 28_000),
    "row-by-row": (0, 0, 20_000),
    "column-by-row": (1, 0, 28_000),
    "column-by-column": (1, 1, 56_000),
}
"""Whether lanes hold columns of A, of B; the paper's cycles."""
DEPTH, SIZES = 2048, (1024, 4096)
LISTING = {"WARPS": 1, "FILTER_PLAIN": "", "COUNTER": "unsigned", "A_COLUMNS": 0, "B_COLUMNS": 0}
"""As printed."""


def kernel(device: Any, name: str, **options: Any) -> Any:
    """A kernel of the file, as printed except for some options."""
    if "filter" in options:
        options[f"FILTER_{options.pop('filter').upper()}"] = ""
    ptx = compile(SOURCE.read_text(), SOURCE.name, {**LISTING, **options}, device.compute_capability)
    return device.load(ptx).kernel(name)


def packed(bits: np.ndarray, axis: int) -> np.ndarray:
    """32 bits along an axis in each word, the first in the most significant bit; 0 past the end."""
    lines = np.moveaxis(bits, axis, -1)
    lines = np.pad(lines, [(0, 0)] * (lines.ndim - 1) + [(0, -lines.shape[-1] % 32)])
    words = np.ascontiguousarray(np.packbits(lines, axis=-1)).view(">u4").astype(np.uint32)
    return np.ascontiguousarray(np.moveaxis(words, -1, axis))


class Convolution:
    """Listing 6 of one image, with thresholds; ``launch`` takes the sets of operands in turn."""

    def __init__(self, device: Any, side: int, channels: int, filters: int, **options: Any) -> None:
        warps, width = options.get("WARPS", 1), 2 if "short" in options.get("COUNTER", "") else 4
        self.shared = warps * filters * width
        self.kernel, self.grid, self.block = (
            kernel(device, "bconv", **options),
            -(-side * side // warps),
            32 * warps,
        )
        self.shape = np.array([side, side, channels, filters], np.uint32).tobytes()
        random = np.random.default_rng()
        self.host = [
            (
                random.integers(0, 2, (side, side, channels), np.uint8),
                random.integers(0, 2, (3, 3, channels, filters), np.uint8),
                random.integers(-3 * channels, 3 * channels, filters, np.int32),
            )
            for _ in range(SETS)
        ]
        words = side, side, -(-filters // 32)
        self.sets = [
            (*map(device.upload, (packed(x, 2), packed(w, 2), t)), device.allocate(words, np.uint32))
            for x, w, t in self.host
        ]
        self._turn = itertools.cycle(self.sets)

    def launch(self, stream: Any) -> None:
        """Launch with the next set."""
        self.kernel(self.grid, self.block, *next(self._turn), self.shape, shared=self.shared, stream=stream)

    def check(self) -> None:
        """Compare the first set's answer with the reference; SystemExit if it is another."""
        self.kernel(self.grid, self.block, *self.sets[0], self.shape, shared=self.shared)
        (x, w, limits), answer = self.host[0], self.sets[0][-1].download()
        sums = reference.bconv2d(2.0 * x[None] - 1, 2.0 * w - 1, padding=1)[0]
        if not np.array_equal(answer, packed((sums >= limits).astype(np.uint8), 2)):
            raise SystemExit("a convolution is wrong")


class Product:
    """A product by one of the approaches; ``launch`` takes the sets of operands in turn."""

    def __init__(self, device: Any, sizes: tuple[int, int, int], **options: Any) -> None:
        self.sizes = m, n, k = sizes
        warps, tiles = options.get("WARPS", 1), -(-m // 32) * -(-n // 32)
        self.kernel, self.grid, self.block = kernel(device, "bmm", **options), -(-tiles // warps), 32 * warps
        random = np.random.default_rng()
        self.host = [
            (random.integers(0, 2, (m, k), np.uint8), random.integers(0, 2, (k, n), np.uint8))
            for _ in range(SETS)
        ]
        lies = options.get("A_COLUMNS", 0), options.get("B_COLUMNS", 0)
        self.sets = [
            (
                device.upload(packed(a, 0) if lies[0] else packed(a, 1).T.copy()),
                device.upload(packed(b, 1).T.copy() if lies[1] else packed(b, 0)),
                device.allocate((m, n), np.int32),
                device.allocate((tiles,), np.int64),
            )
            for a, b in self.host
        ]
        self._turn = itertools.cycle(self.sets)

    def launch(self, stream: Any) -> None:
        """Launch with the next set."""
        self.kernel(self.grid, self.block, *next(self._turn), *map(np.uint32, self.sizes), stream=stream)

    def check(self) -> None:
        """Compare the first set's answer with the reference; SystemExit if it is another."""
        self.kernel(self.grid, self.block, *self.sets[0], *map(np.uint32, self.sizes))
        (a, b), answer = self.host[0], self.sets[0][2].download()
        if not np.array_equal(answer, reference.bmm(2.0 * a - 1, 2.0 * b - 1)):
            raise SystemExit("a product is wrong")

    def cycles(self) -> float:
        """The median cycles of a warp, over all sets."""
        for operands in self.sets:
            self.kernel(self.grid, self.block, *operands, *map(np.uint32, self.sizes))
        return float(np.median([operands[3].download() for operands in self.sets]))


def timed(device: Any, case: Convolution | Product) -> float:
    """Microseconds of a launch, once its answer is right."""
    case.check()
    return 1e6 * seconds(device, case.launch, inner=5 * SETS)


def option_row(
    device: Any, name: str, make: Callable[..., Any], beside: str, options: Mapping[str, Any], **params: Any
) -> Row:
    """A row of an option's time, beside that of the listing without it."""
    ours, printed = timed(device, make(**options)), timed(device, make())
    return Row(name, params, "us", "lower", ours, {beside: printed})


def rows(device: Any) -> Iterator[Row]:
    """All rows."""
    for channels in CHANNELS:
        make = partial(Convolution, device, SIDE, channels, channels)
        for load in FILTERS:
            yield option_row(device, f"bypass/{channels}-{load}", make, "plain", {"filter": load}, side=SIDE)
        yield option_row(device, f"warps/bconv-{channels}-4", make, "one", {"WARPS": 4}, side=SIDE)
    for filters in MANY_FILTERS:
        make = partial(Convolution, device, SIDE, CHANNELS[0], filters)
        shared = {"shared": 4 * filters, "shared_short": 2 * filters}
        short = {"COUNTER": "unsigned short"}
        yield option_row(device, f"counters/{filters}-short", make, "int", short, side=SIDE, **shared)
    for side in SIZES:
        make = partial(Product, device, (side, side, side))
        yield option_row(device, f"warps/bmm-{side}-4", make, "one", {"WARPS": 4}, n=side)
    for name, (a, b, printed) in APPROACHES.items():
        alone = Product(device, (32, 32, DEPTH), A_COLUMNS=a, B_COLUMNS=b)
        alone.check()
        whole = timed(device, Product(device, (SIZES[0],) * 3, A_COLUMNS=a, B_COLUMNS=b))
        params = {"k": DEPTH, "n": SIZES[0], "us": whole}
        yield Row(f"approach/{name}", params, "cycles", "lower", alone.cycles(), {"printed (P100)": printed})


def main() -> None:
    options = parser_of(__doc__).parse_args()
    device = gpu.CudaDevice()
    meta = about_this_run(gpu=device.name, nvrtc=compiler_version())
    publish(options.json, meta, list(rows(device)))


if __name__ == "__main__":
    main()
