"""The ±1 products and convolutions of Hopper's kernels, the packing of operands, and the first call.

    python benchmarks/bits.py [--rows bmm-bits pack …] [--sustained SECONDS] [--json PATH]
                              [--cutlass FOLDER] [--fp-cuda FOLDER] [--no-peers]
    python benchmarks/bits.py --merge PATH… --json PATH

``bmm-OUTPUT/N`` and ``bconv-OUTPUT/C`` are the kernel alone, from packed operands with their ones, in the
burst protocol: an idle gap before each of thirteen graphs, two of them to warm up, and the median of eleven;
up to N = 4096 and C = 512 with programmatic dependent launches. A graph goes through as many sets of random
operands as exceed L2 by far, so that they come from DRAM. The figure is the median of three such
measurements, ``runs``. ``…-sustained`` is launched back to back for some seconds, as the power limit allows.

``bmm-f16/N`` packs both float16 matrices in the same graph; in ``bmm-f16-transposed/N`` the columns of B lie
as rows. ``pack/…`` is a share of the speed of a kernel that copies. ``first-call`` is the time from the
imports of a process to its first result, without the context, when processes before it have filled the caches
of PTX and of the driver; ``first-call-cold`` that of the process that fills them.

``--merge`` joins files of one commit. Of a row that several of them hold it takes the median, and keeps all.
Every answer is compared: some rows of products with those of integers, an image with `reference`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from bits_cases import SKINNY, WGMMA, Case, Convolution, Copy, Packing, Product, Whole, burst
from bits_peers import Peers
from common import Row, about_this_run, merged, parser_of, publish, show, write

import gpu
from gpu.compile import compiler_version

PRODUCTS = {
    "bmm-bits": {16384: 13500.0, 8192: 12300.0, 4096: 9300.0, 2048: 3800.0},
    "bmm-int32": {16384: 11500.0, 8192: 9500.0, 4096: 6000.0, 2048: 2600.0},
    "bmm-int16": {16384: 12500.0, 8192: 10500.0, 4096: 7300.0, 2048: 3100.0},
    "bmm-lines": dict.fromkeys((16384, 8192, 4096, 2048)),
}
CONVOLUTIONS = {
    "bconv-bits": {128: 2500.0, 256: 6000.0, 512: 9500.0, 1024: 11500.0},
    "bconv-int32": {128: 1500.0, 256: 3000.0, 512: 6000.0, 1024: 8500.0},
}
"""Targets in TOPS, by size."""
OUTPUTS = {
    "bmm-bits": "words",
    "bmm-int32": "int32",
    "bmm-int16": "int16",
    "bmm-lines": "lines",
    "bconv-bits": "bits",
    "bconv-int32": "int",
}
FLOATS = {"bmm-f16": (8192, 1, 4500.0), "bmm-f16-transposed": (8192, 0, None)}
"""Side, the axis of B's lines, and TOPS."""
FEW_ROWS = {"bmm-skinny": "words", "bmm-skinny-int32": "int32"}
SKINNY_SIZES = ((8, 4096, 4096), (8, 16384, 16384))
SKINNY_TARGETS = {"bmm-skinny/8x4096x4096": 3.4}
"""Microseconds."""
PACKED = {"f32": np.float32, "f16": np.float16}
SUSTAINED = {"bmm-bits/16384-sustained": 12000.0}
ROWS = (*PRODUCTS, *CONVOLUTIONS, "bmm-f16", "bmm-skinny", "pack", "first-call")
PROCESSES = 3


def sustained(case: Case, device: Any, duration: float) -> float:
    """The time of one launch while launches follow one another for some seconds, without the first half."""
    stream, done, start = device.stream(), 0, time.perf_counter()
    half = None
    while (passed := time.perf_counter() - start) < duration:
        for _ in range(20):
            case.launch(stream)
        stream.synchronize()
        done += 20
        if half is None and passed > duration / 2:
            half = done, time.perf_counter()
    if half is None:
        raise SystemExit("a sustained measurement needs a longer --sustained")
    return (time.perf_counter() - half[1]) / (done - half[0])


def speed_row(
    name: str,
    case: Case,
    times: list[float],
    target: float | None,
    params: Mapping[str, Any],
    peers: Mapping[str, float] | None = None,
) -> Row:
    """The row of a speed in TOPS."""
    runs = [round(case.operations / each / 1e12, 1) for each in times]
    params = {**params, "sets": len(case.launches), "dependent": case.dependent, "runs": runs}
    return Row(name, params, "TOPS", "higher", statistics.median(runs), dict(peers or {}), target=target)


def product_rows(device: Any, kind: str, duration: float, peers: Peers | None = None) -> Iterator[Row]:
    """The rows of one kind of output of a product."""
    for n, target in PRODUCTS[kind].items():
        case = Product(device, (n, n, n), OUTPUTS[kind])
        tile = WGMMA.tile(n, n, n, OUTPUTS[kind], device.multiprocessors)
        params, beside = {"n": n, "tile": [tile.rows, tile.columns]}, peers and peers.products(n)
        yield speed_row(f"{kind}/{n}", case, burst(device, case), target, params, beside)
        if duration and n >= 8192:
            name, held = f"{kind}/{n}-sustained", sustained(case, device, duration)
            case.check()
            params |= {"seconds": duration}
            yield speed_row(name, case, [held], SUSTAINED.get(name), params)


def convolution_rows(device: Any, kind: str, peers: Peers | None = None, **sizes: Any) -> Iterator[Row]:
    """The rows of one kind of output of a convolution."""
    for channels, target in CONVOLUTIONS[kind].items():
        case = Convolution(device, channels, OUTPUTS[kind], **sizes)
        params = {"channels": channels, "images": list(case.images[:3])}
        beside = peers and peers.convolutions(channels)
        yield speed_row(f"{kind}/{channels}", case, burst(device, case), target, params, beside)


def float_rows(device: Any, peers: Peers | None = None) -> Iterator[Row]:
    """Measure products of float16 matrices to int32, packing included."""
    for name, (side, axis, target) in FLOATS.items():
        case = Whole(device, np.float16, side, axis)
        beside = peers and {k: v for k, v in peers.numbers(side).items() if k.endswith("f16")}
        yield speed_row(f"{name}/{side}", case, burst(device, case), target, {"n": side}, beside)


def skinny_rows(device: Any) -> Iterator[Row]:
    """Measure products of few rows of A, in microseconds."""
    for sizes in SKINNY_SIZES:
        for kind, output in FEW_ROWS.items():
            name = f"{kind}/{'x'.join(map(str, sizes))}"
            case = Product(device, sizes, output, scheme=SKINNY)
            runs = [round(1e6 * each, 3) for each in burst(device, case)]
            params = {"sets": len(case.launches), "runs": runs}
            yield Row(name, params, "us", "lower", statistics.median(runs), target=SKINNY_TARGETS.get(name))


def pack_rows(device: Any, side: int = 16384) -> Iterator[Row]:
    """Measure the packing of real matrices, as a share of the speed of a copy of the same bytes."""
    for name, dtype in PACKED.items():
        case = Packing(device, dtype, side)
        ours, copied = burst(device, case), burst(device, Copy(device, case.moved))
        runs = [round(of_copy / mine, 4) for mine, of_copy in zip(ours, copied, strict=True)]
        speeds = {
            what: [round(case.moved / each / 1e12, 3) for each in times]
            for what, times in (("TB/s", ours), ("copy TB/s", copied))
        }
        params = {"side": side, **speeds, "runs": runs}
        yield Row(f"pack/{name}", params, "of a copy", "higher", statistics.median(runs), target=0.95)


def first_call_rows() -> Iterator[Row]:
    """The seconds from a process's imports to its first result; the first process has empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        parts = [first_call(Path(folder)) for _ in range(1 + PROCESSES)]
    for name, calls, target in (("first-call", parts[1:], 1.0), ("first-call-cold", parts[:1], None)):
        runs = [round(each["imports"] + each["call"], 3) for each in calls]
        medians = {what: round(statistics.median(each[what] for each in calls), 3) for what in calls[0]}
        params = {"n": 2048, **medians, "runs": runs}
        yield Row(name, params, "s", "lower", statistics.median(runs), target=target)


def first_call(folder: Path) -> dict[str, float]:
    """The parts of a first call in a process of its own, whose caches lie in a folder."""
    root = Path(__file__).resolve().parent
    caches = {"SIMWARP_CACHE": str(folder / "ptx"), "CUDA_CACHE_PATH": str(folder / "driver")}
    paths = os.pathsep.join(filter(None, [str(root.parent), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, **caches, "PYTHONPATH": paths}
    command = [sys.executable, str(root / "first_call.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"first-call: {done.stderr}")
    parts: dict[str, float] = json.loads(done.stdout)
    return parts


def rows_of(device: Any, names: list[str], duration: float, peers: Peers | None = None) -> Iterator[Row]:
    """The rows that the options name."""
    for name in names:
        if name in PRODUCTS:
            yield from product_rows(device, name, duration, peers)
        elif name in CONVOLUTIONS:
            yield from convolution_rows(device, name, peers)
        elif name == "bmm-f16":
            yield from float_rows(device, peers)
        elif name == "bmm-skinny":
            yield from skinny_rows(device)
        elif name == "pack":
            yield from pack_rows(device)
        else:
            yield from first_call_rows()


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS, help="measure these")
    parser.add_argument("--sustained", type=float, default=0.0, metavar="SECONDS", help="and so for as long")
    parser.add_argument("--merge", nargs="+", type=Path, metavar="PATH", help="join these files instead")
    parser.add_argument("--cutlass", type=Path, metavar="FOLDER", help="CUTLASS's headers, for its products")
    parser.add_argument("--fp-cuda", type=Path, metavar="FOLDER", help="fp-cuda's kernels")
    parser.add_argument("--no-peers", action="store_true", help="measure ours only")
    options = parser.parse_args()
    if options.merge:
        publish(options.json, *merged(options.merge))
        return
    device = gpu.CudaDevice()
    meta = about_this_run(gpu=device.name, driver=device.driver_version, nvrtc=compiler_version())
    peers = None if options.no_peers else Peers(device, options.cutlass, options.fp_cuda)
    rows: list[Row] = []
    for row in rows_of(device, options.rows, options.sustained, peers):
        rows.append(row)  # written one by one: an interrupted run leaves its rows
        show([row])
        if options.json:
            write(options.json, meta, rows)


if __name__ == "__main__":
    main()
