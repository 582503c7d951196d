"""Convolutions of VGG16 out of core, from pinned host memory within a budget, beside torch.

    python benchmarks/outofcore.py [--rows ooc/conv1_2 …] [--images N] [--transforms] [--json PATH] …
    python benchmarks/outofcore.py --merge PATH… --json PATH

Forward, 512 images, float32 without TF32, in a budget of 8 GB: seconds of the median of some
calls, after one that does not count. Images and results are page-locked before, apart (``pinning_seconds``).
``bound_seconds`` is what nobody can beat: torch's convolution of data in the device's memory, or the copies,
in both directions at once at the measured rates, whichever takes longer. Peers: ``in-core`` is that
convolution, and ``torch, split`` torch over parts of the batch with three streams, at the best of some sizes.
Sampled entries of the last call are compared with sums in float64.

Torch takes Fourier transforms where they are faster. With ``--transforms`` ours are those with
``Options(transforms=True)``, and ``exact`` has what is measured without.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from common import Row, about_this_run, merged, parser_of, publish, show, write

import gpu
import gpu.outofcore
from gpu.outofcore import Options, Rates, Statistics, explain
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
    """The arrays of a row, float32."""

    x: Any
    w: Any
    y: Any

    @property
    def operations(self) -> float:
        """Floating-point operations, taps outside the images included."""
        return 2.0 * self.y.size * self.w[0].size

    def error(self, transforms: bool, seed: int = 0) -> float:
        """The largest error of sampled entries, in units of the bound; above 1 the benchmark ends.

        The bound with transforms is of the largest pixel under a window, which is less than that of a plane.
        """
        rng = np.random.default_rng(seed)
        errors: list[float] = []
        for _ in range(SAMPLES):
            image, filters, row, column = (int(rng.integers(size)) for size in self.y.shape)
            rows, columns = (slice(max(at - 1, 0), at + 2) for at in (row, column))
            near = self.x[image : image + 1, :, rows, columns]
            expected, bound = bounded("conv2d", near, self.w[filters : filters + 1], transforms=transforms)
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


class Runner:
    """Calls on a machine with some options."""

    def __init__(self, machine: Any, layer: Layer, options: Options) -> None:
        self.machine, self.layer, self.options = machine, layer, options

    def __call__(self, **more: Any) -> float:
        """The seconds of a call."""
        layer, start = self.layer, time.perf_counter()
        given = {"device": self.machine, "memory_budget": BUDGET, "options": self.options, **more}
        gpu.outofcore.conv2d(layer.x, layer.w, out=layer.y, **given)
        return time.perf_counter() - start

    def phases(self) -> dict[str, float]:
        """The seconds in which a call prepares the machine, in which it runs, and the others."""
        found = dict.fromkeys(("prepare", "run"), 0.0)

        def timed(name: str) -> Callable[..., None]:
            of = getattr(self.machine, name)

            def call(*given: Any) -> None:
                start = time.perf_counter()
                of(*given)
                found[name] = time.perf_counter() - start

            return call

        for name in found:
            setattr(self.machine, name, timed(name))
        try:
            seconds = self()
        finally:
            for name in found:
                delattr(self.machine, name)
        return {**found, "others": seconds - sum(found.values())}

    def measured(self, calls: int) -> dict[str, Any]:
        """The times of some calls after a first one, and their plan."""
        shapes, start = (self.layer.x.shape, self.layer.w.shape), time.perf_counter()
        plan = explain("conv2d", *shapes, device=self.machine, memory_budget=BUDGET, options=self.options)
        calibration, counts = time.perf_counter() - start, Statistics()
        runs = [self() for _ in range(calls + 1)][1:]
        error = self.layer.error(self.options.transforms)
        self(statistics=counts)
        return {
            "seconds": median(runs),
            "runs": runs,
            "phase_seconds": self.phases(),
            "tflops": float(f"{self.layer.operations / median(runs) / 1e12:.4g}"),
            "run_seconds": counts.seconds,
            "model_seconds": counts.predicted_seconds,
            "model_error": round(counts.model_error, 4),
            "pieces": vars(plan.pieces),
            "workspace": plan.buffers.workspace,
            "bytes_in": counts.bytes_in,
            "bytes_out": counts.bytes_out,
            "rates": vars(plan.rates),
            "calibration_seconds": round(calibration, 3),
            "error": round(error, 4),
        }


def busy_seconds(layer: Layer, options: Options) -> dict[str, float]:
    """The seconds of each kind of operation in a recorded call, and of all together."""
    with gpu.CudaMachine([0], record=True) as machine:
        run = Runner(machine, layer, options)
        run()
        begin = len(machine.timeline)
        run()
        records = [*machine.timeline][begin:]
    busy = {kind: sum(one.end - one.start for one in records if one.kind == kind) for kind in KINDS}
    return {**busy, "all": max(one.end for one in records) - min(one.start for one in records)}


def measured(options: argparse.Namespace) -> Iterator[Row]:
    """The rows."""
    for name in options.rows:
        layer = layer_of(name, options.images)
        with gpu.CudaMachine([0]) as machine:
            row = row_of(machine, name, layer, options)
        busy = busy_seconds(layer, Options(transforms=options.transforms))
        yield replace(row, params={**row.params, "busy_seconds": busy})


def row_of(machine: Any, name: str, layer: Layer, options: argparse.Namespace) -> Row:
    """Measure a row."""
    start = time.perf_counter()
    for array in (layer.x, layer.w, layer.y):
        machine.pin(array)
    pinning = time.perf_counter() - start
    try:
        ours = exact = Runner(machine, layer, Options()).measured(options.calls)
        if options.transforms:
            ours = Runner(machine, layer, Options(transforms=True)).measured(options.calls) | {"exact": exact}
        found, parts = ({}, {}) if options.no_peers else beside(layer, options.calls)
    finally:
        for array in (layer.x, layer.w, layer.y):
            machine.unpin(array)
    rates = Rates(**ours["rates"])
    copies = rates.together(rates.into(ours["bytes_in"]), rates.out(ours["bytes_out"]))
    compute = found.get("in-core", layer.operations / rates.operations_per_second)
    seconds = ours.pop("seconds")
    params = {
        "images": len(layer.x),
        "budget": BUDGET,
        "bound_seconds": max(copies, compute),
        "copy_seconds": copies,
        "compute_seconds": compute,
        "pinning_seconds": round(pinning, 3),
        **ours,
        **parts,
    }
    return Row(name, params, "s", "lower", seconds, found)


# --------------------------------------------------------------------------------------------------
# Peers
# --------------------------------------------------------------------------------------------------


def beside(layer: Layer, calls: int) -> tuple[dict[str, float], dict[str, Any]]:
    """Seconds of the peers, and of torch split by the images of a part."""
    import torch

    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    x, w, y = (torch.from_numpy(array) for array in (layer.x, layer.w, layer.y))
    images = len(layer.x)
    sizes = [size for size in (4, 8, 16, 32, 64) if size <= images]
    by_size = {size: median(split_seconds(torch, x, w, y, size, calls)) for size in sizes}
    layer.error(True, seed=1)
    seconds = median(in_core_seconds(torch, x, w, calls))
    torch.cuda.empty_cache()
    peers = {"in-core": seconds, "torch, split": min(by_size.values())}
    return peers, {"torch_split_by_images": {str(size): each for size, each in by_size.items()}}


def in_core_seconds(torch: Any, x: Any, w: Any, calls: int) -> list[float]:
    """Times of a convolution of images in the device's memory; part by part if they do not fit."""
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
    parser.add_argument("--transforms", action="store_true", help="take transforms, and exact engines beside")
    parser.add_argument("--no-peers", action="store_true", help="measure ours only")
    parser.add_argument("--merge", nargs="+", type=Path, metavar="PATH", help="join these files instead")
    options = parser.parse_args()
    if options.merge:
        publish(options.json, *merged(options.merge))
        return
    with gpu.CudaMachine([0]) as machine:
        meta = about_this_run(gpu=machine.name(0), cudnn=machine.layers.cudnn.version)
    done: list[Row] = []
    for row in measured(options):
        done.append(row)  # written one by one: an interrupted run leaves its rows
        show([replace(row, case=f"{row.case} on {meta['gpu']}")])
        if options.json:
            write(options.json, meta, done)


if __name__ == "__main__":
    main()
