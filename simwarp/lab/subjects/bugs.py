r"""The subject that records compute-sanitizer's findings in ``examples/bugs``; tables of ``docs/bugs.md``.

Each kernel and its corrected version become a program, which runs alone and under each tool.
``python -m simwarp.lab.subjects.bugs`` writes the tables from the recording. The asynchronous bugs have a
part of their own in it.

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
import textwrap
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import product, repeat
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

import numpy as np
import numpy.typing as npt

from simwarp.lab.recording import CHECKOUT, Answers, Asking, Subject, example, recorded

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
VARIANTS: tuple[str, ...] = ("buggy", "fixed")
SECONDS = 20
"""The time limit of a program; those that end take a few seconds."""
_WIDTH = 140
"""Columns of a line of the page."""


def bugs() -> dict[str, Any]:
    """The example bugs by name, except `asynchronous`."""
    return example("bugs", "bugs").BUGS


def asynchronous() -> dict[str, Any]:
    """The example bugs of asynchronous kernels by name."""
    return example("bugs", "asynchronous").BUGS


# ---- programs --------------------------------------------------------------------------------------------

PROGRAM = """\
#include "{bug.name}.cu"

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
{launch}
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
LAUNCH = "    {bug.name}<<<{bug.blocks}, {bug.threads}>>>({arguments});"
DEPENDENT = """\
    {bug.before}<<<{bug.blocks}, {bug.threads}>>>({arguments});
    cudaLaunchAttribute overlaps = {{}};
    overlaps.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlaps.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {{}};
    config.gridDim = {bug.blocks}, config.blockDim = {bug.threads};
    config.attrs = &overlaps, config.numAttrs = 1;
    if (failed(cudaLaunchKernelEx(&config, {bug.name}, {arguments}))) return 1;"""
MAP = """\
    CUtensorMap {name};
    {{
        const cuuint64_t shape[] = {{{shape}}}, strides[] = {{{strides}}};
        const cuuint32_t box[] = {{{box}}}, ones[] = {{1, 1, 1, 1, 1}};
        void* encode;
        cudaDriverEntryPointQueryResult found;
        const char* wanted = "cuTensorMapEncodeTiled";
        if (failed(cudaGetDriverEntryPointByVersion(wanted, &encode, 12000, cudaEnableDefault, &found)))
            return 1;
        const CUresult made = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(encode)(
            &{name}, CU_TENSOR_MAP_DATA_TYPE_{kind}, {rank}, {name}_array, shape, strides, box, ones,
            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_{swizzle}, CU_TENSOR_MAP_L2_PROMOTION_NONE,
            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
        if (made != CUDA_SUCCESS) return std::puts("error: cuTensorMapEncodeTiled"), 1;
    }}"""
TYPES = {"uint8": "unsigned char", "uint32": "unsigned", "int32": "int", "float32": "float"}


def program(bug: Any) -> str:
    """CUDA C++ that runs a bug's kernel on its arguments and prints "right", "wrong" or "error: …"."""
    words, before, arguments = list[str](), list[str](), list[str]()
    for argument, value in bug.arguments.items():
        if isinstance(value, np.generic):
            arguments.append(f"{value}u")
            continue
        name, box, swizzle = argument, getattr(value, "box", None), 0
        if box is not None:
            name, swizzle, value = f"{argument}_array", value.swizzle, value.array
        dtype: np.dtype[Any] = np.dtype(value.dtype)
        size = math.prod(value.shape) * dtype.itemsize
        before.append(ALLOCATE.format(type=TYPES[dtype.name], name=name, size=size))
        arguments.append(argument)
        if type(value) is np.ndarray:
            words.append(constant(f"{name}_given", value))
            before.append(UPLOAD.format(name=name))
        if box is not None:
            before.append(tensor_map(argument, value, box, swizzle))
    words += [constant(f"{name}_right", right) for name, right in bug.right.items()]
    after = [COMPARE.format(name=name) for name in bug.right]
    text = {"words": "\n".join(words), "before": "\n".join(before), "after": "\n".join(after)}
    launch = (DEPENDENT if bug.before else LAUNCH).format(bug=bug, arguments=", ".join(arguments))
    return PROGRAM.format(bug=bug, launch=launch, **text)


def tensor_map(name: str, array: npt.NDArray[Any], box: tuple[int, ...], swizzle: int) -> str:
    """C++ that encodes an array's tensor map; the driver counts dimensions from the innermost."""
    shape, strides, sizes = (
        ", ".join(map(str, numbers[::-1])) for numbers in (array.shape, array.strides[:-1], box)
    )
    kind, span = array.dtype.name.upper(), f"{swizzle}B" if swizzle else "NONE"
    text = {"name": name, "kind": kind, "rank": array.ndim, "shape": shape, "strides": strides}
    return MAP.format(**text, box=sizes, swizzle=span)


def constant(name: str, array: npt.NDArray[Any]) -> str:
    """C++ that defines a constant array with the bits of a NumPy array."""
    words = ", ".join(map(hex, array.reshape(-1).view(np.uint32).tolist()))
    return f"static const unsigned {name}[] = {{{words}}};"


def build(bug: Any, variant: str, folder: Path) -> Path:
    """Compile the program of a kernel or of its corrected version."""
    main, binary = folder / f"{bug.name}_{variant}.cu", folder / f"{bug.name}_{variant}"
    main.write_text(program(bug))
    defines, target = ["-DFIXED"] if variant == "fixed" else [], f"-arch={bug.arch}"
    if bug.arch.endswith("a"):  # -arch would also embed PTX for sm_90, which lacks the instructions
        target = f"-gencode=arch={bug.arch.replace('sm', 'compute')},code={bug.arch}"
    options = [
        "-std=c++17",
        target,
        "-lineinfo",
        "-fmad=false",
        f"-I{bug.path.parent}",
        *defines,
    ]
    subprocess.run(["nvcc", *options, "-o", str(binary), str(main)], check=True, cwd=folder)
    return binary


# ---- runs ------------------------------------------------------------------------------------------------


def observe(binary: Path, tool: str, name: str) -> dict[str, Any]:
    """Run a program, alone or under a tool; returns its exit code and the tool's findings."""
    sanitizer = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9"] if tool else []
    output = limited([*sanitizer, str(binary)])
    return {"ends": ending(output)} | (findings(output, name) if tool else {})


def limited(command: list[str], seconds: float = SECONDS) -> str:
    """The output of a command; the command and its child processes are killed at the time limit."""
    with TemporaryFile("w+") as output:  # a child process that survives would keep a pipe open
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
    """How a program ended, by its output: "right", "wrong", "error" or "never"."""
    printed = re.findall(r"^(right|wrong|never)$", output, re.MULTILINE)
    return printed[-1] if printed else "error"


def findings(output: str, name: str) -> dict[str, Any]:
    """The verdict of a tool, its first message, and the lines of the kernel's file in its output."""
    messages = [found[1].strip() for found in re.finditer(r"^=========(.*)$", output, re.MULTILINE)]
    messages = [text for text in messages if text and not re.match("COMPUTE-SANITIZER|.*SUMMARY:", text)]
    counts = [int(count) for count in re.findall(r"SUMMARY: (\d+)", output)]
    lines = {int(line) for line in re.findall(rf"\b{name}\.cu:(\d+)", output)}
    found = any(counts) or (not counts and bool(lines))
    return {"found": found, "message": messages[0] if messages else "", "lines": sorted(lines)}


def ask(asking: Asking) -> Answers:
    """Build every program and run it, alone and under every tool."""
    every = bugs() | asynchronous()
    cases, runs = list(product(every, VARIANTS)), list(product(every, VARIANTS, ("", *TOOLS)))
    results: dict[str, Any] = {name: {variant: {} for variant in VARIANTS} for name in every}
    with TemporaryDirectory() as scratch, ThreadPoolExecutor(asking.processes) as pool:
        sources, variants = [every[name] for name, _ in cases], [variant for _, variant in cases]
        binaries = dict(zip(cases, pool.map(build, sources, variants, repeat(Path(scratch))), strict=True))
        files = [binaries[name, variant] for name, variant, _ in runs]
        observed = pool.map(observe, files, [tool for *_, tool in runs], [name for name, *_ in runs])
        for (name, variant, tool), result in zip(asking.each(runs), observed, strict=True):
            results[name][variant][tool or "alone"] = result
    versions = {"sanitizer": _version("compute-sanitizer"), "nvcc": _version("nvcc")}
    own, copying = ({name: results[name] for name in some} for some in (bugs(), asynchronous()))
    part = {"sources": digests(asynchronous()), "bugs": copying}
    return Answers({**versions, "sources": digests(), "bugs": own, "asynchronous": part})


def _version(program: str) -> str:
    """The last line of a program's ``--version``."""
    done = subprocess.run([program, "--version"], check=True, capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if line][-1]


def digests(some: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Name → the SHA-256 of the program and kernel of each of `bugs`, or of ``some``."""
    return {
        name: hashlib.sha256("".join([bug.source, *bug.headers.values(), program(bug)]).encode()).hexdigest()
        for name, bug in (bugs() if some is None else some).items()
    }


# ---- the table -------------------------------------------------------------------------------------------

HEADER = (
    f"| bug | file and line | simwarp | {' | '.join(TOOLS)} | result on the GPU |\n"
    f"|---|---|---|{'---|' * len(TOOLS)}---|"
)
TABLE = re.compile(r"(?<=<!-- what each tool finds -->\n).*?(?=<!-- end -->)", re.DOTALL)
ASYNCHRONOUS = re.compile(r"(?<=<!-- asynchronous bugs -->\n).*?(?=<!-- end -->)", re.DOTALL)


def table(recorded: dict[str, Any]) -> str:
    """The Markdown table of the tools' findings in each bug."""
    return _table(bugs(), recorded["bugs"], recorded)


def asynchronous_table(recorded: dict[str, Any]) -> str:
    """The Markdown table of the tools' findings in each asynchronous bug."""
    return _table(asynchronous(), recorded["asynchronous"]["bugs"], recorded)


def _table(some: Mapping[str, Any], results: dict[str, Any], recorded: dict[str, Any]) -> str:
    rows = [row(bug, results[name]["buggy"]) for name, bug in some.items()]
    return "\n".join(["", HEADER, *rows, "", source(results, recorded), "", ""])


def row(bug: Any, results: dict[str, Any]) -> str:
    """The row of one bug in the Markdown table."""
    cells = [f"{bug.title}", f"`{bug.name}.cu:{bug.line}`", f"`{bug.fault}`"]
    cells += [cell(bug, results[tool]) for tool in TOOLS]
    return "| " + " | ".join([*cells, results["alone"]["ends"]]) + " |"


def cell(bug: Any, result: dict[str, Any]) -> str:
    """The table cell for one tool's verdict on one bug."""
    if not result["found"]:
        return "never ends" if result["ends"] == "never" else "–"
    return "found" if {bug.line, bug.other_line} & set(result["lines"]) else "found, line not named"


def source(results: dict[str, Any], recorded: dict[str, Any]) -> str:
    """The lines below a table: GPU, versions, date, and the tools' findings in corrected twins."""
    alarms = [
        f"`{name}` ({tool})" for name, of in results.items() for tool in TOOLS if of["fixed"][tool]["found"]
    ]
    text = (
        f"{recorded['gpu']['name']}, driver {recorded['driver']}, {recorded['sanitizer']}, "
        f"{recorded['date']}. Findings in the corrected twins: {', '.join(alarms) or 'none'}."
    )
    return textwrap.fill(text, _WIDTH, break_on_hyphens=False)


_NEEDS = "nvcc", "compute-sanitizer"
SUBJECTS = [Subject("sanitizer", "compute-sanitizer's findings in examples/bugs", ask, _NEEDS)]

if __name__ == "__main__":
    page = CHECKOUT / "docs" / "bugs.md"
    meta = recorded("sanitizer").meta
    text = TABLE.sub(lambda _: table(meta), page.read_text())
    page.write_text(ASYNCHRONOUS.sub(lambda _: asynchronous_table(meta), text))
