"""The subject that records Nsight Compute's nonzero counters for the kernels in ``examples/counters``.

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

_OPERATIONS = {"load": "ld", "store": "st", "atomic": "atom", "reduction": "red"}
_SHARED = {
    "requests": "smsp__inst_executed_op_shared_{}_pred_on_any.sum",
    "wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum",
    "conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum",
}
_GLOBAL = {what: f"l1tex__t_{what}_pipe_lsu_mem_global_op_{{}}.sum" for what in ("requests", "sectors")}
METRICS = {
    f"{space} {kind} {what}": metric.format(operation)
    for space, metrics in (("shared", _SHARED), ("global", _GLOBAL))
    for kind, operation in _OPERATIONS.items()
    if (space, kind) != ("shared", "reduction")
    for what, metric in metrics.items()
}
"""By name, ncu's name of each counter. Ncu counts a reduction in shared memory as an atomic operation."""


def counted_kernels() -> ModuleType:
    """The host module of ``examples/counters``, with its cases and files."""
    return example("counters", "counters")


def digest(output: np.ndarray) -> str:
    """The SHA-256 of a kernel's output array, in hexadecimal."""
    return hashlib.sha256(output.tobytes()).hexdigest()


def ptx_digests(arch: tuple[int, int]) -> dict[str, str]:
    """File of ``examples/counters`` → the SHA-256 of its PTX."""
    kernels = counted_kernels()
    return {file: kernels.ptx(file, arch).sha256 for file in kernels.FILES}


def count(command: list[str], metrics: list[str]) -> list[dict[str, float]]:
    """Run a command under Nsight Compute; return the metrics of each kernel launch, in order."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.csv"
        options = ["--clock-control", "none", "--cache-control", "none", "--print-units", "base"]
        options += ["--csv", "--page", "raw", "--log-file", str(log), "--metrics", ",".join(metrics)]
        subprocess.run(["ncu", *options, *command], check=True)
        lines = log.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith('"ID"'))
    rows = [row for row in csv.DictReader(lines[start:]) if row["ID"]]  # the line of units has no ID
    return [{name: float(row[name].replace(",", "")) for name in metrics} for row in rows]


def ask(asking: Asking) -> Answers:
    """Launch each case once under ncu, in another process."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "outputs.json"
        rows = count([sys.executable, "-m", __name__, str(written)], list(METRICS.values()))
        outputs = json.loads(written.read_text())
    if len(rows) != len(outputs):
        raise RuntimeError(f"{len(outputs)} kernels were launched, but ncu has counters of {len(rows)}")
    counted = [{key: int(row[name]) for key, name in METRICS.items() if row[name]} for row in rows]
    cases = {
        name: {"output": output, "counters": counters}
        for (name, output), counters in zip(outputs.items(), counted, strict=True)
    }
    version = subprocess.run(["ncu", "--version"], check=True, capture_output=True, text=True).stdout
    facts = {"ncu": version.split("Version ")[1].split()[0], "metrics": METRICS, "cases": cases}
    return Answers(facts, ptx=ptx_digests(asking.device.compute_capability))


def launch_all(outputs: Path) -> None:
    """Launch each case once on the GPU, and write the digests of the outputs; runs under ncu."""
    from gpu.cuda import default_device

    device = default_device()
    answers = {name: digest(case(device)) for name, case in counted_kernels().CASES.items()}
    outputs.write_text(json.dumps(answers))


SUBJECTS = [Subject("counters", "Nsight Compute's counters of examples/counters", ask, needs=("ncu",))]

if __name__ == "__main__":
    launch_all(Path(sys.argv[1]))
