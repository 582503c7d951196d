"""Convolutions of VGG16 out of core, from pinned host memory within a budget, beside torch.

    python benchmarks/outofcore.py [--rows ooc/conv1_2 …] [--images N] [--json PATH] [--no-peers]
    python benchmarks/outofcore.py --merge PATH… --json PATH

Forward, 512 images, float32 without TF32, in a budget of 8 GB: seconds of the median of some
calls, after one that does not count. Images and results are page-locked before, apart (``pinning_seconds``).
``bound_seconds`` is what nobody can beat: torch's convolution of data in the device's memory, or the copies,
in both directions at once at the measured rates, whichever takes longer. Peers: ``in-core`` is that
convolution, and ``torch, split`` torch over parts of the batch with three streams, at the best of some sizes.
Sampled entries of the last call are compared with sums in float64.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from common import Row, about_this_run, merged, parser_of, publish, show, write

import gpu
import gpu.outofcore
from gpu.outofcore import Statistics, explain
from reference.training import bounded

ROWS = {
    "ooc/conv1_2": (64, 64, 224),
    "ooc/conv2_2": (128, 128, 112),
    "ooc/conv3_3": (256, 256, 56),
    "ooc/conv4_3": (512, 512, 28),
    "ooc/conv5_3": (512, 512, 14),
}
"""Channels, filters, and rows of a square image."""
BUDGET = 8_000_000_000
SAMPLES = 24
KINDS = ("in", "routine", "out")


@dataclass
class Layer:
    """The arrays of a row.

    Attributes
    ----------
    x, w, y : array of float32
    """

    x: Any
    w: Any
    y: Any

    @property
    def operations(self) -> float:
        """Floating-point operations, taps outside the images included."""
        return 2.0 * self.y.size * self.w[0].size

    def error(self, seed: int = 0) -> float:
        """The largest error of sampled entries, in units of the bound; above 1 the benchmark ends."""
        rng = np.random.default_rng(seed)
        errors: list[float] = []
        for _ in range(SAMPLES):
            image, filters, row, column = (int(rng.integers(size)) for size in self.y.shape)
            rows, columns = (slice(max(at - 1, 0), at + 2) for at in (row, column))
            near = self.x[image : image + 1, :, rows, columns]
            expected, bound = bounded("conv2d", near, self.w[filters : filters + 1])
            at = 0, 0, row - rows.start, column - columns.start
            errors.append(abs(float(self.y[image, filters, row, column]) - expected[at]) / bound[at])
        worst = max(errors)
        if not worst <= 1:
            raise SystemExit(f"the answer is wrong by {worst:.3g} bounds")
        return worst


def layer_of(row: str, images: int) -> Layer:
    """The arrays of a row, of uniform numbers between -0.5 and 0.5."""
    channels, filters, size = ROWS[row]
    x = np.empty((images, channels, size, size), np.float32)
    seeds = np.random.SeedSequence(0).spawn(images + 1)

    def fill(part: Any, seed: np.random.SeedSequence) -> None:
        np.random.default_rng(seed).random(out=part, dtype=np.float32)
        part -= np.float32(0.5)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(fill, x, seeds))
    w = np.empty((filters, channels, 3, 3), np.float32)
    fill(w, seeds[-1])
    return Layer(x, w, np.empty((images, filters, size, size), np.float32))


def seconds_of(machine: Any, layer: Layer, calls: int) -> tuple[list[float], Statistics]:
    """The times of some calls after one, and the counts of another."""
    counts, times = Statistics(), list[float]()
    for number in range(calls + 2):
        start = time.perf_counter()
        gpu.outofcore.conv2d(
            layer.x,
            layer.w,
            device=machine,
            out=layer.y,
            memory_budget=BUDGET,
            statistics=counts if number == calls + 1 else None,
        )
        times.append(time.perf_counter() - start)
    return times[1:-1], counts


def busy_seconds(layer: Layer) -> dict[str, float]:
    """For how long each kind of operation runs in a call whose operations are recorded, and all together."""
    with gpu.CudaMachine([0], record=True) as machine:
        for _ in range(2):
            begin = len(machine.timeline)
            gpu.outofcore.conv2d(layer.x, layer.w, device=machine, out=layer.y, memory_budget=BUDGET)
        records = [*machine.timeline][begin:]
    busy = {kind: sum(one.end - one.start for one in records if one.kind == kind) for kind in KINDS}
    return {**busy, "all": max(one.end for one in records) - min(one.start for one in records)}


def measured(names: Sequence[str], images: int, calls: int, peers: bool) -> Iterator[Row]:
    """The rows."""
    for name in names:
        layer = layer_of(name, images)
        with gpu.CudaMachine([0]) as machine:
            row = row_of(machine, name, layer, calls, peers)
        yield replace(row, params={**row.params, "busy_seconds": busy_seconds(layer)})


def row_of(machine: Any, name: str, layer: Layer, calls: int, peers: bool) -> Row:
    """Measure a row."""
    start = time.perf_counter()
    for array in (layer.x, layer.w, layer.y):
        machine.pin(array)
    pinning = time.perf_counter() - start
    try:
        shapes = layer.x.shape, layer.w.shape
        start = time.perf_counter()
        plan = explain("conv2d", *shapes, device=machine, memory_budget=BUDGET)
        calibration = time.perf_counter() - start
        times, counts = seconds_of(machine, layer, calls)
        error = layer.error()
        found, parts = beside(machine, layer, calls) if peers else ({}, {})
    finally:
        for array in (layer.x, layer.w, layer.y):
            machine.unpin(array)
    rates, pieces, seconds = plan.rates, plan.pieces, median(times)
    copies = rates.together(rates.into(counts.bytes_in), rates.out(counts.bytes_out))
    compute = found.get("in-core", layer.operations / rates.operations_per_second)
    params = {
        "images": len(layer.x),
        "budget": BUDGET,
        "runs": times,
        "tflops": float(f"{layer.operations / seconds / 1e12:.4g}"),
        "bound_seconds": max(copies, compute),
        "copy_seconds": copies,
        "compute_seconds": compute,
        "run_seconds": counts.seconds,
        "model_seconds": counts.predicted_seconds,
        "model_error": round(counts.model_error, 4),
        "pieces": vars(pieces),
        "bytes_in": counts.bytes_in,
        "bytes_out": counts.bytes_out,
        "rates": vars(rates),
        "pinning_seconds": round(pinning, 3),
        "calibration_seconds": round(calibration, 3),
        "error": round(error, 4),
        **parts,
    }
    return Row(name, params, "s", "lower", seconds, found)


# --------------------------------------------------------------------------------------------------
# Peers
# --------------------------------------------------------------------------------------------------


def beside(machine: Any, layer: Layer, calls: int) -> tuple[dict[str, float], dict[str, Any]]:
    """Seconds of the peers, and of torch split by the images of a part."""
    import torch

    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    x, w, y = (torch.from_numpy(array) for array in (layer.x, layer.w, layer.y))
    images = len(layer.x)
    sizes = [size for size in (4, 8, 16, 32, 64) if size <= images]
    by_size = {size: median(split_seconds(torch, x, w, y, size, calls)) for size in sizes}
    if (error := layer.error(1)) > 1:
        raise SystemExit(f"torch is wrong by {error} bounds")
    seconds = median(in_core_seconds(torch, x, w, calls))
    torch.cuda.empty_cache()
    peers = {"in-core": seconds, "torch, split": min(by_size.values())}
    return peers, {"torch_split_by_images": {str(size): each for size, each in by_size.items()}}


def in_core_seconds(torch: Any, x: Any, w: Any, calls: int) -> list[float]:
    """Times of the convolution of data that are in the device's memory, part by part if they do not fit."""
    images, w = len(x), w.cuda()
    free, _ = torch.cuda.mem_get_info()
    size = images
    while 3 * size * x[0].nbytes > free:
        size = -(-size // 2)
    part = x[:size].cuda()
    times: list[float] = []
    for _ in range(calls + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for first in range(0, images, size):
            torch.nn.functional.conv2d(part[: images - first], w, padding=1)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return times[1:]


def split_seconds(torch: Any, x: Any, w: Any, y: Any, size: int, calls: int) -> list[float]:
    """Times of a convolution part by part, with a stream for each kind of work and three buffers."""
    loads, computes, stores = (torch.cuda.Stream() for _ in range(3))
    with torch.cuda.stream(computes):
        kernel = w.cuda()
        inputs = [torch.empty_like(x[:size], device="cuda") for _ in range(3)]
    torch.cuda.synchronize()
    times: list[float] = []
    for _ in range(calls + 1):
        start = time.perf_counter()
        used: list[Any] = [None] * 3
        for number, first in enumerate(range(0, len(x), size)):
            part = inputs[number % 3][: len(x) - first]
            with torch.cuda.stream(loads):
                if used[number % 3]:
                    loads.wait_event(used[number % 3])
                part.copy_(x[first : first + size], non_blocking=True)
            computes.wait_stream(loads)
            with torch.cuda.stream(computes):
                result = torch.nn.functional.conv2d(part, kernel, padding=1)
                used[number % 3] = computes.record_event()
            stores.wait_stream(computes)
            with torch.cuda.stream(stores):
                y[first : first + size].copy_(result, non_blocking=True)
                result.record_stream(stores)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return times[1:]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=[*ROWS], help="measure these")
    parser.add_argument("--images", type=int, default=512, help="images of each row")
    parser.add_argument("--calls", type=int, default=3, help="timed calls of each row")
    parser.add_argument("--no-peers", action="store_true", help="measure ours only")
    parser.add_argument("--merge", nargs="+", type=Path, metavar="PATH", help="join these files instead")
    options = parser.parse_args()
    if options.merge:
        publish(options.json, *merged(options.merge))
        return
    with gpu.CudaMachine([0]) as machine:
        meta = about_this_run(gpu=machine.name(0), cudnn=machine.layers.cudnn.version)
    done: list[Row] = []
    for row in measured(options.rows, options.images, options.calls, not options.no_peers):
        done.append(row)  # written one by one: an interrupted run leaves its rows
        show([replace(row, case=f"{row.case} on {meta['gpu']}")])
        if options.json:
            write(options.json, meta, done)


if __name__ == "__main__":
    main()
