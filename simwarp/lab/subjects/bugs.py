r"""What compute-sanitizer finds of the bugs in ``examples/bugs``, and the table of it in ``docs/bugs.md``.

Each kernel and its corrected twin become a program that runs by itself and under each tool.
``python -m simwarp.lab.subjects.bugs`` writes the table of the recording.

>>> ending("right\n========= ERROR SUMMARY: 0 errors")
'right'
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

import numpy as np
import numpy.typing as npt

from simwarp.lab.recording import CHECKOUT, Answers, Asking, Subject, example, examples, recorded

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
VARIANTS: tuple[str, ...] = ("buggy", "fixed")
SECONDS = 20
"""A program that runs longer never ends: the others take a few."""


def bugs() -> dict[str, Any]:
    """The bugs by name."""
    return example("bugs", "bugs").BUGS


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
    words, before, arguments = list[str](), list[str](), list[str]()
    for name, value in bug.arguments.items():
        if isinstance(value, np.generic):
            arguments.append(f"{value}u")
            continue
        dtype: np.dtype[Any] = np.dtype(value.dtype)
        size = math.prod(value.shape) * dtype.itemsize
        before.append(ALLOCATE.format(type=TYPES[dtype.name], name=name, size=size))
        arguments.append(name)
        if type(value) is np.ndarray:
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
    options = ["-std=c++17", "-arch=sm_90", "-lineinfo", "-fmad=false", f"-I{examples('bugs')}", *defines]
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


def ask(asking: Asking) -> Answers:
    """Build and run everything."""
    cases = list(product(bugs(), VARIANTS))
    runs = list(product(cases, ("", *TOOLS)))
    with TemporaryDirectory() as scratch, ThreadPoolExecutor(asking.processes) as pool:

        def built(case: tuple[str, str]) -> Path:
            return build(bugs()[case[0]], case[1], Path(scratch))

        binaries = dict(zip(cases, pool.map(built, cases), strict=True))

        def observed(run: tuple[tuple[str, str], str]) -> dict[str, Any]:
            return observe(binaries[run[0]], run[1], run[0][0])

        results: dict[str, Any] = {name: {variant: {} for variant in VARIANTS} for name in bugs()}
        for ((name, variant), tool), result in zip(asking.each(runs), pool.map(observed, runs), strict=True):
            results[name][variant][tool or "alone"] = result
    versions = {"sanitizer": _version("compute-sanitizer"), "nvcc": _version("nvcc")}
    return Answers({**versions, "sources": digests(), "bugs": results})


def _version(program: str) -> str:
    """The last line that it prints about itself."""
    done = subprocess.run([program, "--version"], check=True, capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if line][-1]


def digests() -> dict[str, str]:
    """The SHA-256 of each program, kernel included."""
    return {
        name: hashlib.sha256((bug.source + program(bug)).encode()).hexdigest() for name, bug in bugs().items()
    }


# ---- the table -------------------------------------------------------------------------------------------

HEADER = (
    f"| bug | file and line | simwarp | {' | '.join(TOOLS)} | result on the GPU |\n"
    f"|---|---|---|{'---|' * len(TOOLS)}---|"
)
TABLE = re.compile(r"(?<=<!-- what each tool finds -->\n).*?(?=<!-- end -->)", re.DOTALL)


def table(recorded: dict[str, Any]) -> str:
    """What each tool finds of each bug, as Markdown."""
    rows = [row(bug, recorded["bugs"][name]["buggy"]) for name, bug in bugs().items()]
    return "\n".join(["", HEADER, *rows, "", source(recorded), "", ""])


def row(bug: Any, results: dict[str, Any]) -> str:
    """One bug's line of the table."""
    cells = [f"{bug.title}", f"`{bug.name}.cu:{bug.line}`", f"`{bug.fault}`"]
    cells += [cell(bug, results[tool]) for tool in TOOLS]
    return "| " + " | ".join([*cells, results["alone"]["ends"]]) + " |"


def cell(bug: Any, result: dict[str, Any]) -> str:
    """What one tool finds of one bug."""
    if not result["found"]:
        return "never ends" if result["ends"] == "never" else "–"
    return "found" if {bug.line, bug.other_line} & set(result["lines"]) else "found, line not named"


def source(recorded: dict[str, Any]) -> str:
    """The origin of the table."""
    false_alarms = sum(
        results["fixed"][tool]["found"] for results in recorded["bugs"].values() for tool in TOOLS
    )
    return (
        f"{recorded['gpu']['name']}, driver {recorded['driver']}, {recorded['sanitizer']}, "
        f"{recorded['date']}. Findings in the corrected twins: {false_alarms}."
    )


SUBJECTS = [
    Subject(
        "sanitizer",
        "compute-sanitizer's findings in examples/bugs",
        ask,
        needs=("nvcc", "compute-sanitizer"),
    )
]

if __name__ == "__main__":
    page = CHECKOUT / "docs" / "bugs.md"
    page.write_text(TABLE.sub(lambda _: table(recorded("sanitizer").meta), page.read_text()))
