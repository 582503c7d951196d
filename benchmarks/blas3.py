"""Level-3 BLAS from pinned host memory on one or two GPUs, beside cublasXt and cuBLAS on the device.

    python benchmarks/blas3.py [--rows dgemm/16384 dsyrk/16384/2 …] [--json PATH] [--no-peers]
    python benchmarks/blas3.py --predict [--rows …] --json PATH
    python benchmarks/blas3.py --merge PATH… --json PATH

``ROUTINE/N`` is on one GPU, ``ROUTINE/N/2`` on two: TFLOP/s of the median of some calls, after one that does
not count. Operands are random, beta is 0.5, the result is computed in place. Page-locking is reported apart,
``pinning_seconds``, and held while all calls of a size run, those of cublasXt too. Its figure is that of its
best tile among 2048, 4096 and 8192; ``in-core`` is one routine of cuBLAS on matrices of one device.
``dgemm/80000/2`` has a budget of 24 GB for each GPU.

Rows of one size follow one another, with the same matrices. Sampled entries of the last call are compared
with sums in float64. Before the rows the machine's links and rates are probed; from these the model predicts
the seconds of each row (`simwarp.Machine`). ``--predict`` needs no GPU: it gives the seconds of the same
plans on `H200` and `H200x2`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from blas3_cases import Case, Operands
from blas3_peers import TILES, Xt, in_core_seconds, xt_seconds
from blas3_probe import SIDE, Probe
from common import Row, about_this_run, merged, parser_of, publish, show, write

import gpu
import gpu.blas3

TARGETS: dict[str, float | None] = {
    "dgemm/16384": 51.0,
    "dgemm/16384/2": 92.0,
    "dsyrk/16384": None,
    "dsyrk/16384/2": None,
    "dsyr2k/16384": None,
    "dsyr2k/16384/2": None,
    "dsymm/16384": None,
    "dsymm/16384/2": None,
    "dtrmm/16384": None,
    "dtrmm/16384/2": None,
    "dtrsm/16384": None,
    "dtrsm/16384/2": None,
    "dgemm/32768": 50.0,
    "dgemm/32768/2": 98.0,
    "sgemm/32768": 51.0,
    "sgemm/32768/2": 100.0,
    "dgemm/80000/2": None,
}
"""TFLOP/s; None: what peers allow, see `target_of`."""
BUDGETS = {"dgemm/80000/2": 24_000_000_000}
"""Bytes for each GPU, by row; other rows may use all free memory."""


def parts_of(row: str) -> tuple[str, str, int, int]:
    """Prefix, routine, size and GPUs of a row."""
    routine, size, *devices = row.split("/")
    return routine[0], routine[1:], int(size), int(devices[0]) if devices else 1


def target_of(row: str, peers: dict[str, float], devices: int) -> float | None:
    """The row's target: for most routines, the lesser of 1.35 times cublasXt and 0.93 of cuBLAS in core."""
    if TARGETS[row] is not None or len(peers) < 2:
        return TARGETS[row]
    return round(min(1.35 * peers["cublasXt"], 0.93 * devices * peers["in-core"]), 1)


def rate(case: Case, seconds: float) -> float:
    """TFLOP/s, to four digits."""
    return float(f"{case.operations / seconds / 1e12:.4g}")


def seconds_of(case: Case, machine: Any, calls: int, **options: Any) -> tuple[list[float], Any, float]:
    """The times of some calls after one, the counts of the last, and its error in units of the bound."""
    case.run(machine, **options)
    times, counts = [], gpu.blas3.Statistics()
    for _ in range(calls):
        samples = case.sample()
        start = time.perf_counter()
        case.run(machine, statistics=counts, **options)
        times.append(time.perf_counter() - start)
    return times, counts, samples.check(case.name)


class Bench:
    """The machines and matrices of a run; a row is the median of ``calls`` timed calls."""

    def __init__(self, calls: int, peers: bool, tile: int | None) -> None:
        self._calls, self._peers, self._tile = calls, peers, tile
        self._machine: Any = None
        self._topology: Any = None
        self._operands: Operands | None = None

    def machine(self, devices: int) -> Any:
        """The machine of ``devices`` GPUs; another is closed first: its locked pages would not count."""
        if self._machine is None or self._machine.devices != devices:
            if self._machine is not None:
                self._machine.close()
            self._machine = gpu.CudaMachine(range(devices))
            self._topology = Probe(self._machine, SIDE).topology()
        return self._machine

    def row(self, name: str) -> Row:
        """Measure a row."""
        prefix, kind, n, devices = parts_of(name)
        machine = self.machine(devices)
        case = Case(self._matrices(prefix, n), kind)
        options: dict[str, Any] = {"tile": self._tile}
        if name in BUDGETS:
            options["memory_budget"] = BUDGETS[name]
        start = time.perf_counter()
        for x in case.of.arrays:
            machine.pin(x)
        pinning = time.perf_counter() - start
        try:
            times, counts, error = seconds_of(case, machine, self._calls, **options)
            peers, tiles = self._beside(case, machine)
        finally:
            for x in case.of.arrays:
                machine.unpin(x)
        runs = [rate(case, each) for each in times]
        params = {
            "n": n,
            "devices": devices,
            "runs": runs,
            "seconds": median(times),
            "pinning_seconds": round(pinning, 3),
            "error": round(error, 4),
            **self._plan(case, machine, options),
            **{f"bytes_{way}": counts.total(f"bytes_{way}") for way in ("in", "out", "peer")},
            **tiles,
        }
        params["model_seconds"] = predicted(name, self._topology, self._tile)[1]
        params["probed"] = about(self._topology)
        return Row(
            name, params, "TFLOP/s", "higher", median(runs), peers, target=target_of(name, peers, devices)
        )

    def _plan(self, case: Case, machine: Any, options: dict[str, Any]) -> dict[str, Any]:
        """The tile, and the bytes between host and devices that no order of tasks avoids."""
        budget = options.get("memory_budget", 1 << 60)
        budgets = [min(machine.budget(device), budget) for device in range(machine.devices)]
        plan = case.plan(budgets, self._tile)
        return {"tile": plan.tile, "tasks": len(plan.tasks), "bytes_least": plan.bytes_least}

    def _beside(self, case: Case, machine: Any) -> tuple[dict[str, float], dict[str, Any]]:
        """TFLOP/s of the peers, and of cublasXt by tile."""
        if not self._peers or case.n > 40_000:
            return {}, {}
        in_core = median(in_core_seconds(machine, case, self._calls))
        found: dict[str, float] = {}
        xt = Xt(machine.cublas.library, machine.ordinals)
        try:
            for tile in TILES:
                if tile < case.n <= 8 * tile:  # with more tiles it is many times slower than with its best
                    seconds = median(xt_seconds(xt, case, tile, 2))
                    found[str(tile)] = rate(case, seconds)
        finally:
            xt.close()
        peers = {"in-core": rate(case, in_core)}
        if found:
            peers["cublasXt"] = max(found.values())
        return peers, {"cublasXt_by_tile": found}

    def _matrices(self, prefix: str, n: int) -> Operands:
        """The matrices of a size; those of another one are dropped first."""
        if self._operands is None or (self._operands.n, self._operands.prefix) != (n, prefix):
            self._operands = None
            self._operands = Operands(n, prefix)
        return self._operands


def predicted(name: str, topology: Any, tile: int | None) -> tuple[Case, float]:
    """A row's case on matrices without memory, and its seconds by the model."""
    import simwarp
    from simwarp.lab.unbacked import unbacked

    prefix, kind, n, _ = parts_of(name)
    operands = object.__new__(Operands)
    operands.n, operands.prefix = n, prefix
    dtype = "float64" if prefix == "d" else "float32"
    operands.a, operands.b, operands.c = (unbacked((n, n), dtype) for _ in range(3))
    case, counts = Case(operands, kind), gpu.blas3.Statistics()
    machine = simwarp.Machine(topology, values=False)
    case.run(machine, tile=tile, statistics=counts, memory_budget=BUDGETS.get(name))
    return case, counts.seconds


def predictions(rows: Sequence[str], tile: int | None) -> Iterator[Row]:
    """The rows of the model on H200s."""
    from simwarp.machine import H200, H200x2

    for name in rows:
        _, _, n, devices = parts_of(name)
        case, seconds = predicted(name, (H200, H200x2)[devices - 1], tile)
        params = {"n": n, "devices": devices, "seconds": seconds}
        yield Row(name, params, "TFLOP/s", "higher", rate(case, seconds), target=TARGETS[name])


def about(topology: Any) -> dict[str, Any]:
    """The figures of a probed topology: GB/s, and TFLOP/s of products."""
    links = {str(route): link.bytes_per_second for route, link in topology.routes().items()}
    shared = {" + ".join(map(str, one.routes)): one.bytes_per_second for one in topology.shared}
    rates = {kind: round(topology.gpus[0].rates[kind] / 1e12, 2) for kind in ("float64", "float32")}
    return {**{name: round(each / 1e9, 2) for name, each in {**links, **shared}.items()}, **rates}


def measured(names: Sequence[str], bench: Bench) -> Iterator[Row]:
    """The rows of an option, those of one size and number of GPUs together."""
    order = sorted(names, key=lambda name: (parts_of(name)[2], parts_of(name)[0], parts_of(name)[3]))
    for name in order:
        yield bench.row(name)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--rows", nargs="+", choices=TARGETS, default=None, help="measure these")
    parser.add_argument("--calls", type=int, default=3, help="timed calls of each row")
    parser.add_argument("--tile", type=int, help="the side of the tiles instead of the default")
    parser.add_argument("--no-peers", action="store_true", help="measure ours only")
    parser.add_argument("--predict", action="store_true", help="ask the model instead of a GPU")
    parser.add_argument("--merge", nargs="+", type=Path, metavar="PATH", help="join these files instead")
    options = parser.parse_args()
    if options.merge:
        publish(options.json, *merged(options.merge))
        return
    if options.predict:
        meta = about_this_run(gpu="model")
        rows = predictions(options.rows or [*TARGETS], options.tile)
    else:
        machine = gpu.CudaMachine()
        count, name = machine.devices, machine.name(0)
        version = int(machine.driver.call("cuDriverGetVersion"))
        machine.close()
        meta = about_this_run(
            gpu=name, devices=count, driver=f"CUDA {version // 1000}.{version % 1000 // 10}"
        )
        bench = Bench(options.calls, not options.no_peers, options.tile)
        able = [row for row in TARGETS if parts_of(row)[3] <= count and row not in BUDGETS]
        rows = measured(options.rows or able, bench)
    done: list[Row] = []
    for row in rows:
        done.append(row)  # written one by one: an interrupted run leaves its rows
        show([replace(row, case=f"{row.case} on {meta['gpu']}")])
        if options.json:
            write(options.json, meta, done)


if __name__ == "__main__":
    main()
