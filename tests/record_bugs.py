"""Record what compute-sanitizer finds of the bugs in `examples/bugs`.

    python tests/record_bugs.py --out tests/golden

makes a program of each kernel and of its corrected twin, runs it by itself and under each tool on the first
GPU, and writes ``sanitizer.json``.

    python tests/record_bugs.py --table

writes the table of ``docs/bugs.md`` from that file; `tests/unit/test_bugs.py` holds them together.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from reference.files import write_whole

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "examples" / "bugs"
GOLDEN, PAGE = ROOT / "tests" / "golden" / "sanitizer.json", ROOT / "docs" / "bugs.md"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
VARIANTS = ("buggy", "fixed")
SECONDS = 20
"""A program that runs longer never ends: the others take a few."""


def example(name: str) -> ModuleType:
    """A module of ``examples/bugs``, imported as its script finds it: with that folder on the path."""
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(FOLDER))


BUGS: dict[str, Any] = example("bugs").BUGS

# ---- programs --------------------------------------------------------------------------------------------

PROGRAM = """\
#include "{name}.cu"

#include <cstdio>
#include <cstring>

static bool failed(cudaError_t error)
{{
    if (error != cudaSuccess) std::printf("error: %s\\n", cudaGetErrorString(error));
    return error != cudaSuccess;
}}

{words}
int main()
{{
{before}
    {name}<<<{blocks}, {threads}>>>({arguments});
    if (failed(cudaGetLastError()) || failed(cudaDeviceSynchronize())) return 1;
    bool right = true;
{after}
    std::puts(right ? "right" : "wrong");
    return 0;
}}
"""
ALLOCATE = "    {type}* {name}; if (failed(cudaMalloc(&{name}, {size}))) return 1;"
UPLOAD = (
    "    if (failed(cudaMemcpy({name}, {name}_given, sizeof {name}_given, cudaMemcpyHostToDevice))) return 1;"
)
COMPARE = """\
    static unsigned {name}_got[sizeof {name}_right / 4];
    if (failed(cudaMemcpy({name}_got, {name}, sizeof {name}_right, cudaMemcpyDeviceToHost))) return 1;
    right = right && !std::memcmp({name}_got, {name}_right, sizeof {name}_right);"""
TYPES = {"uint32": "unsigned", "int32": "int", "float32": "float"}


def program(bug: Any) -> str:
    """CUDA C++ that runs the kernel on its arguments and prints "right", "wrong" or "error: …"."""
    words, before, arguments = [], [], []
    for name, value in bug.arguments.items():
        if isinstance(value, np.generic):
            arguments.append(f"{value}u")
            continue
        dtype = np.dtype(value.dtype)
        size = int(np.prod(value.shape)) * dtype.itemsize
        before.append(ALLOCATE.format(type=TYPES[dtype.name], name=name, size=size))
        arguments.append(name)
        if isinstance(value, np.ndarray):
            words.append(constant(f"{name}_given", value))
            before.append(UPLOAD.format(name=name))
    words += [constant(f"{name}_right", right) for name, right in bug.right.items()]
    return PROGRAM.format(
        name=bug.name,
        words="\n".join(words),
        before="\n".join(before),
        blocks=bug.blocks,
        threads=bug.threads,
        arguments=", ".join(arguments),
        after="\n".join(COMPARE.format(name=name) for name in bug.right),
    )


def constant(name: str, array: npt.NDArray[Any]) -> str:
    """The bits of an array as C++."""
    return f"static const unsigned {name}[] = {{{', '.join(map(hex, array.view(np.uint32).tolist()))}}};"


def build(bug: Any, variant: str, folder: Path) -> Path:
    """Compile the program of a kernel or of its corrected twin."""
    main, binary = folder / f"{bug.name}_{variant}.cu", folder / f"{bug.name}_{variant}"
    main.write_text(program(bug))
    defines = ["-DFIXED"] if variant == "fixed" else []
    options = ["-std=c++17", "-arch=sm_90", "-lineinfo", "-fmad=false", f"-I{FOLDER}", *defines]
    subprocess.run(["nvcc", *options, "-o", str(binary), str(main)], check=True, cwd=folder)
    return binary


# ---- runs ------------------------------------------------------------------------------------------------


def observe(binary: Path, tool: str, name: str) -> dict[str, Any]:
    """How a program ends; under a tool, also what that found."""
    command = [str(binary)]
    if tool:
        command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", *command]
    output = limited(command)
    return {"ends": ending(output)} | (findings(output, name) if tool else {})


def limited(command: list[str], seconds: float = SECONDS) -> str:
    """What a command prints; one that does not end in time is killed with all that it started."""
    with TemporaryFile("w+") as output:  # no pipe, which a process that is left over would keep open
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            output.seek(0, os.SEEK_END)
            output.write("\nnever\n")
        output.seek(0)
        return output.read()


def ending(output: str) -> str:
    """How a program ended: "right", "wrong", "error" or "never"."""
    said = re.findall(r"^(right|wrong|never)$", output, re.MULTILINE)
    return said[-1] if said else "error"


def findings(output: str, name: str) -> dict[str, Any]:
    """Whether a tool found anything, its first message, and the lines of the kernel's file that it names."""
    messages = [found[1].strip() for found in re.finditer(r"^=========(.*)$", output, re.MULTILINE)]
    messages = [text for text in messages if text and not re.match("COMPUTE-SANITIZER|.*SUMMARY:", text)]
    counts = [int(count) for count in re.findall(r"SUMMARY: (\d+)", output)]
    lines = {int(line) for line in re.findall(rf"\b{name}\.cu:(\d+)", output)}
    found = any(counts) or (not counts and bool(lines))
    return {"found": found, "message": messages[0] if messages else "", "lines": sorted(lines)}


def record(folder: Path, jobs: int = 8) -> Path:
    """Build and run everything, and write ``sanitizer.json``."""
    cases = list(product(BUGS.values(), VARIANTS))
    results: dict[str, Any] = {name: {variant: {} for variant in VARIANTS} for name in BUGS}
    with TemporaryDirectory() as scratch, ThreadPoolExecutor(jobs) as pool:
        binaries = list(pool.map(lambda case: build(*case, Path(scratch)), cases))
        runs = [
            (*case, binary, tool)
            for case, binary in zip(cases, binaries, strict=True)
            for tool in ("", *TOOLS)
        ]
        observed = pool.map(lambda run: observe(run[2], run[3], run[0].name), runs)
        for (bug, variant, _, tool), result in zip(runs, observed, strict=True):
            results[bug.name][variant][tool or "alone"] = result
    text = json.dumps({"meta": provenance(), "bugs": results}, indent=2).encode() + b"\n"
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "sanitizer.json", lambda file: file.write(text))
    return folder / "sanitizer.json"


def provenance() -> dict[str, Any]:
    """What the findings come from."""
    name, uuid, driver = printed(
        "nvidia-smi", "--query-gpu=name,uuid,driver_version", "--format=csv,noheader"
    )[0].split(", ")
    return {
        "gpu": {"name": name, "uuid": uuid},
        "driver": driver,
        "sanitizer": printed("compute-sanitizer", "--version")[-1],
        "nvcc": printed("nvcc", "--version")[-1],
        "sources": digests(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": "python tests/record_bugs.py",
    }


def printed(*command: str) -> list[str]:
    """The lines that a command prints."""
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if line]


def digests() -> dict[str, str]:
    """The SHA-256 of each program, kernel included."""
    return {
        name: hashlib.sha256((bug.source + program(bug)).encode()).hexdigest() for name, bug in BUGS.items()
    }


# ---- the table -------------------------------------------------------------------------------------------

HEADER = (
    f"| bug | file and line | simwarp | {' | '.join(TOOLS)} | result on the GPU |\n"
    f"|---|---|---|{'---|' * len(TOOLS)}---|"
)
TABLE = re.compile(r"(?<=<!-- what each tool finds -->\n).*?(?=<!-- end -->)", re.DOTALL)


def table(recorded: dict[str, Any] | None) -> str:
    """What each tool finds of each bug, as Markdown; without a recording, what simwarp finds."""
    rows = [row(bug, recorded and recorded["bugs"][name]["buggy"]) for name, bug in BUGS.items()]
    return "\n".join(["", HEADER, *rows, "", source(recorded), "", ""])


def row(bug: Any, results: dict[str, Any] | None) -> str:
    """One bug's line of the table."""
    cells = [f"{bug.title}", f"`{bug.name}.cu:{bug.line}`", f"`{bug.fault}`"]
    cells += [cell(bug, results[tool]) if results else "" for tool in TOOLS]
    return "| " + " | ".join([*cells, results["alone"]["ends"] if results else ""]) + " |"


def cell(bug: Any, result: dict[str, Any]) -> str:
    """What one tool finds of one bug."""
    if not result["found"]:
        return "never ends" if result["ends"] == "never" else "–"
    return "found" if {bug.line, bug.other_line} & set(result["lines"]) else "found, line not named"


def source(recorded: dict[str, Any] | None) -> str:
    """Where the table comes from."""
    if recorded is None:
        return "The columns of compute-sanitizer are not recorded yet."
    meta = recorded["meta"]
    false_alarms = sum(
        results["fixed"][tool]["found"] for results in recorded["bugs"].values() for tool in TOOLS
    )
    return (
        f"{meta['gpu']['name']}, driver {meta['driver']}, {meta['sanitizer']}, {meta['date']}. "
        f"Findings in the corrected twins: {false_alarms}."
    )


def recording() -> dict[str, Any] | None:
    """The stored recording, if there is one."""
    return json.loads(GOLDEN.read_text()) if GOLDEN.exists() else None


# ---- the command line ------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description="Record what compute-sanitizer finds in examples/bugs.")
    task = parser.add_mutually_exclusive_group(required=True)
    task.add_argument("--out", type=Path, help="the folder to write sanitizer.json to; needs a GPU")
    task.add_argument("--table", action="store_true", help="write the table of docs/bugs.md")
    chosen = parser.parse_args()
    if chosen.table:
        PAGE.write_text(TABLE.sub(lambda _: table(recording()), PAGE.read_text()))
        return
    if lacking := [tool for tool in ("nvcc", "compute-sanitizer", "nvidia-smi") if not shutil.which(tool)]:
        parser.error(f"needs {', '.join(lacking)}: run it where the CUDA toolkit and a GPU are")
    sys.stdout.write(f"{record(chosen.out)}\n")


if __name__ == "__main__":
    main()
