"""Nsight Compute's counters of the kernels in ``examples/counters``: for each case those that are not 0.

>>> METRICS["global load sectors"]
'l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum'
"""

from __future__ import annotations

import csv
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import numpy as np

from simwarp.lab.recording import Answers, Asking, Subject, example

METRICS = {
    **{
        f"shared {kind} {what}": metric.format(operation)
        for kind, operation in {"load": "ld", "store": "st", "atomic": "atom"}.items()
        for what, metric in {
            "requests": "smsp__inst_executed_op_shared_{}_pred_on_any.sum",
            "wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum",
            "conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum",
        }.items()
    },
    **{
        f"global {kind} {what}": f"l1tex__t_{what}_pipe_lsu_mem_global_op_{operation}.sum"
        for kind, operation in {"load": "ld", "store": "st", "atomic": "atom", "reduction": "red"}.items()
        for what in ("requests", "sectors")
    },
}
"""What is counted, and ncu's name for it. A reduction in shared memory is an atomic operation to ncu."""


def counted_kernels() -> ModuleType:
    """The host code of ``examples/counters``: its cases, its files."""
    return example("counters", "counters")


def digest(output: np.ndarray) -> str:
    """The SHA-256 of a kernel's output."""
    return hashlib.sha256(output.tobytes()).hexdigest()


def ptx_digests(arch: tuple[int, int]) -> dict[str, str]:
    """The SHA-256 of each file's PTX."""
    kernels = counted_kernels()
    return {file: kernels.ptx(file, arch).sha256 for file in kernels.FILES}


def count(command: list[str], metrics: list[str]) -> list[dict[str, float]]:
    """Run a command under Nsight Compute; the metrics of each kernel it launches, in order."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.csv"
        options = ["--clock-control", "none", "--cache-control", "none", "--print-units", "base"]
        options += ["--csv", "--page", "raw", "--log-file", str(log), "--metrics", ",".join(metrics)]
        subprocess.run(["ncu", *options, *command], check=True)
        lines = log.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith('"ID"'))
    rows = [row for row in csv.DictReader(lines[start:]) if row["ID"]]  # without the line of units
    return [{name: float(row[name].replace(",", "")) for name in metrics} for row in rows]


def ask(asking: Asking) -> Answers:
    """Launch each case once, in another process under ncu."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "outputs.json"
        rows = count([sys.executable, "-m", __name__, str(written)], list(METRICS.values()))
        outputs = json.loads(written.read_text())
    if len(rows) != len(outputs):
        raise RuntimeError(f"{len(outputs)} kernels were launched, ncu counted {len(rows)}")
    cases = {
        name: {
            "output": output,
            "counters": {key: int(row[metric]) for key, metric in METRICS.items() if row[metric]},
        }
        for (name, output), row in zip(outputs.items(), rows, strict=True)
    }
    version = subprocess.run(["ncu", "--version"], check=True, capture_output=True, text=True).stdout
    facts = {"ncu": version.split("Version ")[1].split()[0], "metrics": METRICS, "cases": cases}
    return Answers(facts, ptx=ptx_digests(asking.device.compute_capability))


def launch_all(outputs: Path) -> None:
    """What runs under ncu: each case once, on the GPU."""
    from gpu.cuda import default_device

    device = default_device()
    answers = {name: digest(case(device)) for name, case in counted_kernels().CASES.items()}
    outputs.write_text(json.dumps(answers))


SUBJECTS = [Subject("counters", "Nsight Compute's counters of examples/counters", ask, needs=("ncu",))]

if __name__ == "__main__":
    launch_all(Path(sys.argv[1]))
