"""Reads the chip's counters for products and convolutions of bits, by Nsight Compute, to see their limits.

    python benchmarks/counters.py [--rows bmm-bits bconv-int32 …] [--json PATH]

The rows are those of ``bits.py``. ``ncu``, of the CUDA toolkit, runs this script again and counts the second
launch of each case: its time, and how busy parts of the chip were, in percent of what they can (shared
memory: by threads). It stops the kernel before and after, with cold caches, and repeats it to count
everything; a launch takes longer than in ``bits.py``. Of the warps' stalls there are the four most frequent,
in cycles for each instruction.
"""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

from bits import CONVOLUTIONS, OUTPUTS, PRODUCTS
from bits_cases import Case, Convolution, Product
from common import Row, about_this_run, parser_of, publish

import gpu
from gpu.compile import compiler_version

BUSY = {
    "tensor cores": "sm__pipe_tensor_op_imma_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "L2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "memory": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "shared memory": "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed",
    "instructions": "smsp__issue_active.avg.pct_of_peak_sustained_active",
}
"""Name of a unit → its counter, in percent."""
TIME, CYCLES = "gpu__time_duration.sum", "sm__cycles_elapsed.avg"
STALLS = (
    *("long_scoreboard", "short_scoreboard", "barrier", "math_pipe_throttle", "mio_throttle", "wait"),
    *("gmma", "sleeping", "branch_resolve", "lg_throttle"),
)
LAUNCHES = 2
"""Launches of a case; the last one counts."""
LARGEST = 8192
"""The largest product; a larger one has the same limits, and takes long to repeat."""


def cases(kinds: list[str]) -> list[str]:
    """The names of the cases of some kinds."""
    sizes = {**PRODUCTS, **CONVOLUTIONS}
    return [f"{kind}/{size}" for kind in kinds for size in sizes[kind] if size <= LARGEST]


def case_of(device: Any, name: str) -> Case:
    """A case by its name."""
    kind, _, size = name.partition("/")
    if kind in CONVOLUTIONS:
        return Convolution(device, int(size), OUTPUTS[kind])
    return Product(device, (int(size),) * 3, OUTPUTS[kind])


def launch_all(names: list[str]) -> None:
    """Launch each case some times."""
    device = gpu.CudaDevice()
    for name in names:
        case = case_of(device, name)
        for _ in range(LAUNCHES):
            case.launch(None)
        device.synchronize()


def counted(names: list[str]) -> str:
    """The output of ``ncu`` for the launches of the cases."""
    stalls = (f"smsp__average_warps_issue_stalled_{stall}_per_issue_active.ratio" for stall in STALLS)
    options = ["-k", "regex:^(wgmma|direct)$"]
    return ncu(options, (TIME, CYCLES, *BUSY.values(), *stalls), [__file__, "--launch", *names])


def ncu(options: list[str], metrics: Iterable[str], script: list[str]) -> str:
    """What ``ncu`` prints for the launches of a script."""
    tool = shutil.which("ncu")
    if tool is None:
        raise SystemExit("ncu is not on the path\nit counts\ninstall Nsight Compute, of the CUDA toolkit")
    how = ["--clock-control", "none", "--csv", "--page", "raw", "--metrics", ",".join(metrics)]
    done = subprocess.run([tool, *how, *options, sys.executable, *script], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"ncu ended with {done.returncode}\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def launches_of(text: str) -> list[dict[str, str]]:
    """The counters of each launch that ``ncu`` printed."""
    lines = csv.DictReader(line for line in text.splitlines() if line.startswith('"'))
    return [line for line in lines if line["ID"]]  # the first line has units


def rows_of(names: list[str], text: str) -> list[Row]:
    """The rows of the cases, from what ``ncu`` printed."""
    launches = launches_of(text)
    if len(launches) != LAUNCHES * len(names):
        raise SystemExit(f"{len(launches)} launches were counted: {LAUNCHES} of each case are expected")
    return [row_of(name, line) for name, line in zip(names, launches[LAUNCHES - 1 :: LAUNCHES], strict=True)]


def row_of(name: str, line: dict[str, str]) -> Row:
    """The row of a launch."""

    def number(counter: str) -> float:
        return float(line[counter].replace(",", ""))

    shares = {
        stall: number(f"smsp__average_warps_issue_stalled_{stall}_per_issue_active.ratio")
        for stall in STALLS
        if f"smsp__average_warps_issue_stalled_{stall}_per_issue_active.ratio" in line
    }
    stalls = dict(sorted(shares.items(), key=lambda each: -each[1])[:4])
    busy = {what: round(number(counter), 1) for what, counter in BUSY.items()}
    params = {"kernel": line["Kernel Name"], "cycles": round(number(CYCLES)), "busy": busy, "stalls": stalls}
    return Row(name, params, "us", "lower", number(TIME) / 1e3)


def main() -> None:
    parser = parser_of(__doc__)
    kinds = [*PRODUCTS, *CONVOLUTIONS]
    parser.add_argument("--rows", nargs="+", choices=kinds, default=kinds, help="count these")
    parser.add_argument("--launch", nargs="+", metavar="CASE", help="launch these cases, for ncu")
    options = parser.parse_args()
    if options.launch:
        launch_all(options.launch)
        return
    device = gpu.CudaDevice()
    meta = about_this_run(gpu=device.name, driver=device.driver_version, nvrtc=compiler_version())
    names = cases(options.rows)
    publish(options.json, meta, rows_of(names, counted(names)))


if __name__ == "__main__":
    main()
