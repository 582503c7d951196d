"""CUDA programs, ours and others', under `simwarp exec`, by themselves on a GPU, and under compute-sanitizer.

    python benchmarks/exec_programs.py build FOLDER... --count 160 --into BUILT       # where nvcc is
    python benchmarks/exec_programs.py run BUILT... --columns exec --json exec.json      # anywhere
    python benchmarks/exec_programs.py run BUILT... --columns alone memcheck racecheck --json gpu.json

A folder holds programs: single ``.cu`` files (``tests/exec/programs``), or folders as HeCBench's ``src``
(``NAME-cuda`` with a Makefile) and the cuda-samples (``Samples/…/NAME``) have them. ``build`` draws some by a
seed. Fetch programs of others first; nothing of them is kept here. Their arguments, those of the Makefile,
are for a GPU: ``--largest`` replaces larger integers among them.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from common import about_this_run

from reference.files import write_whole
from simwarp.exec.build import runtime_folder
from simwarp.run.nvcc import nvcc_command

WRAPPER = """#!/usr/bin/env python3
import os, re, sys
ours = "-gencode arch=compute_90a,code=compute_90a -cudart shared -cudadevrt none -lineinfo -L{runtime}"
words = [w for w in sys.argv[1:] if not re.match(r"-arch|-gencode|--gpu-arch|arch=|-lineinfo|-cudart", w)]
os.execv({nvcc!r}, [{nvcc!r}, *ours.split(), *words])
"""
USES = {
    "streams or events": r"cudaStreamCreate|cudaEventCreate|cudaStreamBegin",
    "cooperative groups": r"cooperative_groups|cudaLaunchCooperative",
    "Thrust or CUB": r"thrust/|cub/",
}
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
_TOOLKIT = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
_WRONG = re.compile(r"(?<!0 )\bfail(ed|ure)?\b|mismatch|incorrect|\bwrong\b", re.IGNORECASE)
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")
_LINE = re.compile(r"in ([\w.]+\.cuh?):(\d+)")


def programs_in(folder: Path) -> Iterator[Path]:
    """The programs below a folder: folders, or ``.cu`` files."""
    for path in sorted(folder.iterdir()):
        if (
            path.is_dir() and (list(path.glob("*.cu")) or path.name.endswith("-cuda"))
        ) or path.suffix == ".cu":
            yield path


def build(program: Path, into: Path, wrapper: Path) -> dict[str, object]:
    """Build a program in a folder of its own: a row with its arguments, or why it was not built."""
    work = into / program.stem
    if program.is_file():
        work.mkdir()
        shutil.copy(program, work)
    else:
        shutil.copytree(program, work)
    sources = [path for path in work.rglob("*") if path.suffix in (".cu", ".cuh", ".cpp", ".h", ".hpp")]
    text = "".join(path.read_text(errors="replace") for path in sources)
    binary, words, log = _compile(work, program, wrapper)
    row: dict[str, object] = {
        "program": program.stem,
        "binary": binary and binary.name,
        "arguments": words,
        "uses": [name for name, pattern in USES.items() if re.search(pattern, text)],
    }
    if binary is None:
        lines = [line for line in log.splitlines() if "error" in line or "cannot find" in line]
        row["why"] = (lines or log.strip().splitlines() or ["?"])[0 if lines else -1][-160:]
    for path in (*work.rglob("*.o"), *sources):
        path.unlink(missing_ok=True)
    return row


def _compile(work: Path, program: Path, wrapper: Path) -> tuple[Path | None, list[str], str]:
    """Compile: the binary, the arguments of the Makefile, and the compiler's output."""
    include = [f"-I{parent / 'Common'}" for parent in program.parents if (parent / "Common").is_dir()]
    if (work / "Makefile").exists():
        folders = "EXTRA_CFLAGS=" + " ".join(
            f"-I{each}" for each in (program, program.parent, program.parent / "include")
        )
        log = _output(["make", "-s", f"CC={wrapper}", folders], work, 300)
        line = _output(["make", "-s", "-n", f"CC={wrapper}", "run"], work, 20)
        found = re.search(r"^[^\n#]*?\./([\w.-]+)([^\n]*)$", line, re.MULTILINE)
        binary = work / (found[1] if found else "main")
        return (binary if binary.is_file() else None), found[2].split() if found else [], log
    sources = [path.name for path in (*work.glob("*.cu"), *work.glob("*.cpp"))]
    log = _output(
        [str(wrapper), *include, f"-I{program}", f"-I{program.parent}", "-o", "main", *sources], work, 300
    )
    return (work / "main" if (work / "main").exists() else None), [], log


def under_exec(command: list[str], folder: Path, seconds: float) -> dict[str, object]:
    """Run a program under `simwarp exec`; its exit code, findings and time."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        ours = [sys.executable, "-m", "simwarp", "exec", "--report", str(report), *command]
        code, text, taken = _ran(ours, folder, seconds)
        if not report.exists():
            return {"exit_code": code, "seconds": taken, "refused": text.strip()[:300]}
        found = json.loads(report.read_text())
    places = [(one["check"] or one["class"], one.get("place") or {}) for one in found["findings"]]
    return {
        "exit_code": None if found["stopped"] else found["exit_code"],
        "right": not found["stopped"] and found["exit_code"] == 0 and not _WRONG.search(text),
        "seconds": taken,
        "launches": sum(found["kernels"].values()),
        "findings": [f"{kind} {at.get('source_file')}:{at.get('source_line')}" for kind, at in places],
        "missing": sorted(found["missing"]),
        "notes": [note.splitlines()[0] for note in found["notes"]][:2],
        "output": text[-400:],
    }


def on_gpu(tool: str, command: list[str], folder: Path, seconds: float) -> dict[str, object]:
    """Run a program on a GPU ``alone``, or under a tool of compute-sanitizer; exit code, findings, time."""
    sanitizer = [str(_TOOLKIT / "bin" / "compute-sanitizer"), "--tool", tool]
    code, text, taken = _ran(command if tool == "alone" else [*sanitizer, *command], folder, seconds)
    count = _SUMMARY.search(text)
    return {
        "exit_code": code,
        "right": code == 0 and not _WRONG.search(text),
        "seconds": taken,
        "findings": int(count[1]) if count else None,
        "lines": sorted({f"{file}:{line}" for file, line in _LINE.findall(text)})[:8],
        "output": text[-400:],
    }


def _ran(command: list[str], folder: Path, seconds: float) -> tuple[int | None, str, float]:
    """Run a command: its exit code, None after the time limit; its output; and the seconds."""
    began = time.monotonic()
    libraries = f"{_TOOLKIT / 'lib64'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    child = subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | {"LD_LIBRARY_PATH": libraries},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    code: int | None = None
    try:
        output, _ = child.communicate(timeout=seconds)
        code = child.returncode
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGTERM)  # a background process may ignore SIGINT
        try:
            output, _ = child.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            output, _ = child.communicate()
    return code, output.decode(errors="replace"), round(time.monotonic() - began, 2)


def _output(command: list[str], folder: Path, seconds: float) -> str:
    """The output of a command; also if it fails."""
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


def build_all(given: argparse.Namespace) -> None:
    """Draw programs, build them, and write the list."""
    known = [program.absolute() for folder in given.folders for program in programs_in(folder)]
    drawn = sorted(random.Random(given.seed).sample(known, min(given.count, len(known))))
    into = given.into.absolute()
    into.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(given.jobs) as pool:
        wrapper = Path(scratch) / "nvcc"
        wrapper.write_text(WRAPPER.format(nvcc=nvcc_command()[0], runtime=runtime_folder()))
        wrapper.chmod(0o755)
        rows = []
        for row in pool.map(lambda program: build(program, into, wrapper), drawn):
            rows.append(row)
            print(row["program"], row.get("why", "built"), sep=" | ", flush=True)
            if row["binary"] is None:
                shutil.rmtree(into / str(row["program"]))
    text = json.dumps(
        {"seed": given.seed, "drawn": len(drawn), "known": len(known), "programs": rows}, indent=1
    )
    write_whole(into / "programs.json", lambda file: file.write(text.encode()))


def run_all(given: argparse.Namespace) -> None:
    """Run the programs that were built, column by column, and write the table after each."""
    drawn: list[dict[str, object]] = []
    rows: list[dict[str, object]] = []
    for built in given.built:
        table = json.loads((built / "programs.json").read_text())
        for row in table.pop("programs"):
            rows.append({"set": built.name, **row})
        drawn.append({"set": built.name, **table})
    folders = {built.name: built.absolute() for built in given.built}
    chosen = [row for row in rows if row["binary"] and re.search(given.only, str(row["program"]))]

    def one(row: dict[str, object], column: str) -> None:
        folder = folders[str(row["set"])] / str(row["program"])
        words = [_at_most(word, given.largest) for word in row["arguments"]]  # type: ignore[attr-defined]
        command = [str(folder / str(row["binary"])), *words]
        row["arguments"] = words
        runs = under_exec if column == "exec" else (lambda *each: on_gpu(column, *each))
        row[column] = runs(command, folder, given.seconds)
        print(row["program"], column, json.dumps(row[column])[:240], sep=" | ", flush=True)

    for column in given.columns:
        with ThreadPoolExecutor(given.jobs) as pool:
            list(pool.map(lambda row, column=column: one(row, column), chosen))
        limits = {"largest": given.largest, "seconds": given.seconds, "jobs": given.jobs}
        found = {"meta": about_this_run(), "drawn": drawn, **limits, "programs": rows}
        text = as_lines(found)
        write_whole(given.json, lambda file, text=text: file.write(text.encode()))


def as_lines(found: dict[str, object]) -> str:
    """The table as JSON, a program on each line."""
    lines = ",\n".join(json.dumps(row) for row in found["programs"])  # type: ignore[attr-defined]
    head = json.dumps({key: value for key, value in found.items() if key != "programs"}, indent=1)
    return f'{head[:-2]},\n "programs": [\n{lines}\n]\n}}\n'


def _at_most(word: str, largest: int) -> str:
    return str(min(int(word), largest)) if word.isdigit() else word


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    builds = commands.add_parser("build", help="draw programs and build them")
    builds.add_argument("folders", type=Path, nargs="+")
    builds.add_argument("--seed", type=int, default=1)
    builds.add_argument("--count", type=int, default=40, help="programs to draw")
    builds.add_argument("--into", type=Path, required=True, help="a new folder")
    builds.set_defaults(does=build_all)
    runs = commands.add_parser("run", help="run what was built")
    runs.add_argument("built", type=Path, nargs="+")
    runs.add_argument("--columns", nargs="+", choices=("exec", "alone", *TOOLS), default=["exec"])
    runs.add_argument("--only", default="", help="a regular expression for names")
    runs.add_argument("--seconds", type=float, default=30, help="the most for one program")
    runs.add_argument("--largest", type=int, default=2**63, help="the largest integer argument")
    runs.add_argument("--json", type=Path, required=True)
    runs.set_defaults(does=run_all)
    for each in (builds, runs):
        each.add_argument("--jobs", type=int, default=1, help="programs at a time")
    given = parser.parse_args()
    given.does(given)


if __name__ == "__main__":
    main()
