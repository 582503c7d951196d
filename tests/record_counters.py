"""Record what a GPU's counters say of the kernels in `examples/counters`.

    python tests/record_counters.py --out tests/golden       (on a GPU with Nsight Compute)

writes ``counters.json``: for each case the counters that are not 0, by the names below, and the digest of
what it put out. ``tests/replay/test_counters.py`` holds the simulator's counts against them.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import hashlib
import json
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from reference.files import write_whole

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "counters"
counters = SimpleNamespace(**runpy.run_path(str(FOLDER / "counters.py")))

METRICS = {
    "shared load requests": "smsp__inst_executed_op_shared_ld_pred_on_any.sum",
    "shared load wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared load conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "shared store requests": "smsp__inst_executed_op_shared_st_pred_on_any.sum",
    "shared store wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "shared store conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "shared atomic requests": "smsp__inst_executed_op_shared_atom_pred_on_any.sum",
    "shared atomic wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum",
    "shared atomic conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_atom.sum",
    **{
        f"global {kind} {what}": f"l1tex__t_{what}_pipe_lsu_mem_global_op_{operation}.sum"
        for kind, operation in {"load": "ld", "store": "st", "atomic": "atom", "reduction": "red"}.items()
        for what in ("requests", "sectors")
    },
}
"""What is counted, and ncu's name for it. A reduction in shared memory is an atomic operation to ncu."""


def digest(output: np.ndarray[Any, Any]) -> str:
    """Of what a kernel put out."""
    return hashlib.sha256(output.tobytes()).hexdigest()


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


def ncu_version() -> str:
    """E.g. ``"2025.3.1.0"``."""
    said = subprocess.run(["ncu", "--version"], check=True, capture_output=True, text=True).stdout
    return said.split("Version ")[1].split()[0]


def launch_all(outputs: Path) -> None:
    """What runs under ncu: each case once."""
    import gpu

    device = gpu.CudaDevice()
    answers = {name: digest(case(device)) for name, case in counters.CASES.items()}
    meta = {"gpu": {"name": device.name, "uuid": device.uuid}, "driver": device.driver_version}
    outputs.write_text(json.dumps({**meta, "outputs": answers}))


def record() -> dict[str, Any]:
    """The golden."""
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder) / "outputs.json"
        command = [sys.executable, __file__, "--launch", str(said)]
        rows = count(command, list(METRICS.values()))
        told = json.loads(said.read_text())
    outputs = told.pop("outputs")
    if len(rows) != len(outputs):
        raise RuntimeError(f"{len(outputs)} kernels were launched, ncu counted {len(rows)}")
    cases = {
        name: {
            "output": output,
            "counters": {key: int(row[metric]) for key, metric in METRICS.items() if row[metric]},
        }
        for (name, output), row in zip(outputs.items(), rows, strict=True)
    }
    return {
        **told,
        "ncu": ncu_version(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": "python tests/record_counters.py",
        "ptx": {file: counters.ptx(file, (9, 0)).sha256 for file in counters.FILES},
        "metrics": METRICS,
        "cases": cases,
    }


def main() -> None:
    """Record, or be what is recorded."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, metavar="FOLDER")
    what.add_argument("--launch", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.launch:
        launch_all(options.launch)
        return
    golden = record()
    options.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(golden).replace('"cases": {', '"cases": {\n').replace("}}, ", "}},\n") + "\n"
    write_whole(options.out / "counters.json", lambda file: file.write(text.encode()))


if __name__ == "__main__":
    main()
