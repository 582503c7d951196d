"""Programs of others under `simwarp exec`: a draw by a seed, a table of what becomes of each.

    python benchmarks/exec_programs.py FOLDER... --seed 1 --count 40 --seconds 30 --output exec.json

A folder holds programs, each in a folder of its own: HeCBench's ``src`` (``NAME-cuda`` with a Makefile), or
one of the cuda-samples (``Samples/…/NAME`` with ``.cu`` files). Fetch them first; nothing is kept of them.
Arguments are those of the Makefile; they are for a GPU, so ``--largest`` replaces larger integers among them.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from simwarp.exec.build import nvcc_command

WRAPPER = """#!/usr/bin/env python3
import os, re, sys
ours = "-gencode arch=compute_90a,code=compute_90a -cudart shared -lineinfo --no-compress".split()
words = [w for w in sys.argv[1:] if not re.match(r"-arch|-gencode|--gpu-arch|arch=|-lineinfo|-cudart", w)]
os.execv({nvcc!r}, [{nvcc!r}, *ours, *words])
"""
_HOST_LIBRARY = re.compile(
    r"-l(cu\w+|nccl|mpi\w*|GL\w*|glut)|#include\s*[<\"](cublas|cufft|curand|cusparse|cusolver|GL/|mpi)"
)


def programs_in(folder: Path) -> Iterator[Path]:
    """The folders of programs below a folder."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and (list(path.glob("*.cu")) or path.name.endswith("-cuda")):
            yield path


def build(program: Path, wrapper: Path) -> tuple[Path | None, list[str], str]:
    """Build a program in its folder: the binary, the arguments of its Makefile, and the compiler's output."""
    if (program / "Makefile").exists():
        log = _output(["make", "-s", f"CC={wrapper}"], program, 300)
        line = _output(["make", "-s", "-n", f"CC={wrapper}", "run"], program, 20)
        found = re.search(r"^[^\n#]*?\./([\w.-]+)([^\n]*)$", line, re.MULTILINE)
        binary = program / (found[1] if found else "main")
        return (binary if binary.is_file() else None), found[2].split() if found else [], log
    sources = [*program.glob("*.cu"), *program.glob("*.cpp")]
    include = [f"-I{parent / 'Common'}" for parent in program.parents if (parent / "Common").is_dir()]
    log = _output([str(wrapper), *include, "-o", "main", *(path.name for path in sources)], program, 300)
    return (program / "main" if (program / "main").exists() else None), [], log


def measure(program: Path, wrapper: Path, seconds: float, largest: int) -> dict[str, object]:
    """Build and run one program; what became of it."""
    binary, words, log = build(program, wrapper)
    arguments = [str(min(int(word), largest)) if word.isdigit() else word for word in words]
    row: dict[str, object] = {"program": program.name, "arguments": arguments}
    if binary is None:
        lines = [line for line in log.splitlines() if "error" in line or "cannot find" in line]
        needs = any(
            _HOST_LIBRARY.search(path.read_text(errors="replace")) for path in program.rglob("*.[ch]*")
        )
        return row | {
            "result": "not built",
            "why": (lines or log.strip().splitlines() or ["?"])[-1 if not lines else 0][-160:],
            "library": needs,
        }
    with tempfile.TemporaryDirectory() as folder:
        report, began = Path(folder) / "report.json", time.monotonic()
        command = [sys.executable, "-m", "simwarp", "exec", "--report", str(report), str(binary), *arguments]
        child = subprocess.Popen(command, cwd=program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            output, _ = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGTERM)  # a background process may ignore SIGINT
            output, _ = child.communicate()
        text = output.decode(errors="replace")
        row |= {"seconds": round(time.monotonic() - began, 1), "output": text[-600:]}
        if not report.exists():
            return row | {"result": "refused", "why": text.strip().splitlines()[0] if text.strip() else "?"}
        found = json.loads(report.read_text())
    result = "too long" if found["stopped"] else f"exit code {found['exit_code']}"
    kinds = sorted({one["check"] or one["class"] for one in found["findings"]})
    return row | {
        "result": result,
        "launches": sum(found["kernels"].values()),
        "findings": kinds,
        "first": [one["message"].splitlines()[0] for one in found["findings"]][:2],
        "missing": sorted(found["missing"]),
        "notes": [note.splitlines()[0] for note in found["notes"]][:2],
    }


def _output(command: list[str], folder: Path, seconds: float) -> str:
    """What a command prints; also if it fails."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"error: {error}"
    return done.stdout + done.stderr


def main() -> None:
    """Draw, build, run, and write the table."""
    parser = argparse.ArgumentParser(description="Programs of others under simwarp exec.")
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40, help="programs to draw")
    parser.add_argument("--seconds", type=float, default=30, help="the most for one program")
    parser.add_argument("--largest", type=int, default=2**63, help="the largest integer argument")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    known = [program.absolute() for folder in given.folders for program in programs_in(folder)]
    drawn = sorted(random.Random(given.seed).sample(known, min(given.count, len(known))))
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        wrapper = Path(folder) / "nvcc"
        wrapper.write_text(WRAPPER.format(nvcc=nvcc_command()[0]))
        wrapper.chmod(0o755)
        for program in drawn:
            rows.append(measure(program, wrapper, given.seconds, given.largest))
            row = rows[-1]
            print(
                *(row.get(key, "") for key in ("program", "result", "seconds", "findings", "missing", "why")),
                sep=" | ",
            )
            sys.stdout.flush()
            given.output.write_text(json.dumps({"seed": given.seed, "programs": rows}, indent=1))


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
