"""Reads the chip's counters for MTTKRP, by Nsight Compute: table 6 of MM-CSF, occupancy, loads and DRAM.

    python benchmarks/counters_mttkrp.py [--tensors nell2 …] [--formats b-csf …] [--scale 1.0] [--json PATH]

Tensors, rank and formats are those of ``mttkrp.py``. ``ncu`` runs this script again and counts the second
call of each mode, all launches of it, with cold caches. Figures are sums over launches and modes; occupancy
and the hit rate of L2 are means, weighted by the launches' times. Loads are of global memory, in bytes of the
sectors that they ask L1 for, as nvprof's ``gld_transactions`` are. A smaller ``--scale`` makes fewer
nonzeros; with ``--beside-simulator`` each row then has what the simulator counts for the same calls: sectors,
those of loads, instructions and requested bytes.
"""

from __future__ import annotations

import csv
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from common import Row, about_this_run, parser_of, show, write
from counters import TIME, launches_of, ncu
from tensors import TENSORS, make

import gpu
from gpu.compile import compiler_version
from gpu.mttkrp import formats, plan, upload
from simwarp.lab.bench import mttkrp as simulated

RANK = 32
FORMATS = ("b-csf", "mm-csf")
"""Those of the table: BCSF-ALL and MM-CSF."""
NAMES = ("nell2", "darpa", "fr_s")
"""Its tensors whose look-alikes we have."""
GIB = 2**30
SECTORS = {
    kind: f"l1tex__t_sectors_pipe_lsu_mem_global_op_{kind}.sum" for kind in ("ld", "st", "red", "atom")
}
"""Sectors of 32 bytes, by the kind of access to global memory."""
BYTES = {"dram_read": "dram__bytes_read.sum", "dram_write": "dram__bytes_write.sum"}
MEANS = {
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "L2 hits": "lts__t_sector_hit_rate.pct",
}
"""In percent."""
INSTRUCTIONS = "smsp__thread_inst_executed.sum"
UNITS = {"": 1.0, "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "sector": 1.0, "inst": 1.0, "%": 1.0}
SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "nsecond": 1e-9, "usecond": 1e-6, "msecond": 1e-3}
METRICS = (TIME, INSTRUCTIONS, *SECTORS.values(), *BYTES.values(), *MEANS.values())


def launch_all(names: Sequence[str], forms: Sequence[str], scale: float, counts: Path) -> None:
    """Call each mode of each format, the second time between marks; write the launches of each call."""
    start, stop = marks()
    device, found = gpu.CudaDevice(), list[tuple[str, str, int, int]]()
    stream = device.stream()
    for name in names:
        tensor, random = make(name, scale), np.random.default_rng(1)
        factors = [
            device.upload(random.uniform(-1, 1, (size, RANK)).astype(np.float32)) for size in tensor.shape
        ]
        for form in forms:
            held = upload(formats.FORMATS[form](tensor), device)
            for mode, size in enumerate(tensor.shape):
                call, out = (
                    plan(held, mode, RANK, np.float32, device),
                    device.allocate((size, RANK), np.float32),
                )
                call(factors, out, stream)
                device.synchronize()
                start()
                call(factors, out, stream)  # in a stream: launch by launch, and no graph
                device.synchronize()
                stop()
                found.append((name, form, mode, len(call._launches)))
                out.free()
    counts.write_text(json.dumps(found))


def marks() -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The driver's calls between which ``ncu`` counts."""
    try:
        from cuda.bindings import driver
    except ImportError:
        import pycuda.driver as driver

        return driver.start_profiler, driver.stop_profiler
    return driver.cuProfilerStart, driver.cuProfilerStop


def counted(names: Sequence[str], forms: Sequence[str], scale: float) -> list[Row]:
    """The rows, from a run of this script under ``ncu``."""
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "calls.json"
        script = [__file__, "--launch", str(counts), "--scale", str(scale)]
        script += ["--tensors", *names, "--formats", *forms]
        text = ncu(["--profile-from-start", "off", "--print-units", "base"], METRICS, script)
        return rows_of(json.loads(counts.read_text()), text)


def rows_of(calls: Sequence[tuple[str, str, int, int]], text: str) -> list[Row]:
    """The rows of tensors and formats, from the launches of each call and what ``ncu`` printed."""
    launches, units = launches_of(text), units_of(text)
    if len(launches) != sum(count for *_, count in calls):
        raise SystemExit(f"{len(launches)} launches were counted: {calls} are expected")
    by_case: dict[str, list[dict[str, Any]]] = {}
    for name, form, mode, count in calls:
        mine, launches = launches[:count], launches[count:]
        kernels = [line["Kernel Name"] for line in mine]
        found = summed([numbers_of(line, units) for line in mine])
        by_case.setdefault(f"counters-{form}/{name}/r{RANK}-f32", []).append(
            {"mode": mode, "kernels": kernels, **found}
        )
    return [
        Row(case, {**summed(modes), "modes": modes}, "ms", "lower", sum(mode["ms"] for mode in modes))
        for case, modes in by_case.items()
    ]


def units_of(text: str) -> Mapping[str, str]:
    """The unit of each counter: the line behind the header."""
    lines = csv.DictReader(line for line in text.splitlines() if line.startswith('"'))
    return next(iter(lines), {})


def numbers_of(line: Mapping[str, str], units: Mapping[str, str]) -> dict[str, float]:
    """The numbers of a launch."""

    def number(counter: str, scales: Mapping[str, float] = UNITS) -> float:
        return float(line[counter].replace(",", "")) * scales[units.get(counter, "")]

    return {
        "ms": 1e3 * number(TIME, SECONDS),
        "instructions": number(INSTRUCTIONS),
        **{f"{kind}_sectors": number(counter) for kind, counter in SECTORS.items()},
        **{f"{what}_gib": number(counter) / GIB for what, counter in BYTES.items()},
        **{what: number(counter) for what, counter in MEANS.items()},
    }


def summed(parts: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Sums over launches or modes, means weighted by their times, and loads in GiB."""
    every = list(parts)
    time = sum(one["ms"] for one in every)
    names = [name for name in every[0] if name not in ("mode", "kernels", "ms", "loads_gib", *MEANS)]
    means = {name: sum(one[name] * one["ms"] for one in every) / time for name in MEANS}
    sums = {name: sum(one[name] for one in every) for name in names}
    return {"ms": time, **means, "loads_gib": 32 * sums["ld_sectors"] / GIB, **sums}


def beside(names: Sequence[str], forms: Sequence[str], scale: float) -> dict[str, Any]:
    """What the simulator counts for the same calls, by case."""
    found: dict[str, Any] = {}
    for name in names:
        tensor = make(name, scale)
        problem = simulated.Problem.of(name, tensor, RANK)
        builds = simulated.builders(",".join(forms), len(tensor.shape))
        for row in simulated.counted(problem, builds, lambda done, total: None)["rows"]:
            counts = {what: row[what] for what in ("instructions", "sectors", "load_sectors", "bytes")}
            found[f"counters-{row['format']}/{name}/r{RANK}-f32"] = counts | {"modes": row["modes"]}
    return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--tensors", nargs="+", choices=TENSORS, default=[*NAMES], help="count these")
    parser.add_argument("--formats", nargs="+", choices=formats.FORMATS, default=[*FORMATS], help="in these")
    parser.add_argument("--scale", type=float, default=1.0, help="nonzeros, of those of the benchmark")
    parser.add_argument(
        "--beside-simulator", action="store_true", help="simulate the calls, too: small scales"
    )
    parser.add_argument("--launch", type=Path, metavar="PATH", help="launch them, for ncu")
    options = parser.parse_args()
    chosen = options.tensors, options.formats, options.scale
    if options.launch:
        launch_all(*chosen, options.launch)
        return
    device = gpu.CudaDevice()
    meta = about_this_run(gpu=device.name, driver=device.driver_version, nvrtc=compiler_version())
    rows = counted(*chosen)
    if options.beside_simulator:
        counts = beside(*chosen)
        rows = [replace(row, params={**row.params, "simulated": counts[row.case]}) for row in rows]
    show(rows)
    if options.json:
        write(options.json, {**meta, "scale": options.scale}, rows)


if __name__ == "__main__":
    main()
