"""Building of the runtime, once per machine into the cache, and of programs from CUDA C++."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from gpu.compile import check_architecture
from gpu.compiler.cache import cache_folder
from gpu.compiler.cuda_headers import cuda_folders, release
from reference.errors import CompileError, MissingExtraError
from reference.files import write_whole
from simwarp.exec.protocol import c_header
from simwarp.run.nvcc import architecture, host_compiler, run_nvcc

SONAME = "libcudart.so.13"
DRIVER, LINKER = "libcuda.so.1", "libnvJitLink.so.13"
"""The driver and its linker are the same file by other names, so that a program has one of all."""
_SOURCES = Path(__file__).parent / "runtime"
_FLAGS = (
    *("-std=gnu11", "-O2", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra", "-Werror=implicit"),
    # calls within the library resolve to it, even if a package has loaded a libcudart of its own
    "-Wl,-Bsymbolic",
)
_API = re.compile(r"^\s*extern\s[^;{]*?\bCUDARTAPI(?:_CDECL)?\s+(\w+)\s*\(", re.MULTILINE)
_PER_THREAD = re.compile(r"__CUDART_API_(PTDS|PTSZ)\((\w+)\)")
_DRIVER_API = re.compile(r"\bCUresult\s+CUDAAPI\s+(cu\w+)\s*\(")
_DRIVER_NEWEST = re.compile(
    r"^\s*#\s*define\s+(cu\w+)[ \t]+(?:__CUDA_API_(PTDS|PTSZ)\()?(cu\w+)", re.MULTILINE
)
_DRIVER_ERROR = re.compile(r"^\s*(CUDA_(?:SUCCESS|ERROR_\w+))\s*=", re.MULTILINE)


def runtime_folder() -> Path:
    """The folder with our ``libcudart.so.13`` and ``libcuda.so.1``; builds them if the cache lacks them.

    MissingExtraError without the headers of the CUDA runtime or a C compiler; CompileError if that fails.
    """
    compiler, include = host_compiler("cc", "gcc"), _include()
    sources = {path.name: path.read_bytes() for path in sorted(_SOURCES.iterdir()) if path.is_file()}
    inputs = (sources, c_header(), _FLAGS, release(include), _version(compiler))
    folder = cache_folder("exec") / hashlib.sha256(repr(inputs).encode()).hexdigest()[:32]
    if not (folder / SONAME).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as work:
            built = _build_runtime(Path(work), compiler, include)
            write_whole(folder / SONAME, lambda file: file.write(built.read_bytes()), durable=False)
    # the linker looks for the names without a version number
    for name in ("libcudart.so", DRIVER, "libcuda.so", LINKER):
        if not (folder / name).is_symlink():
            with suppress(FileExistsError):
                (folder / name).symlink_to(SONAME)
    return folder


def build_program(source: Path, output: Path, cc: tuple[int, int], options: Sequence[str] = ()) -> None:
    """Compile and link a CUDA program, with its PTX embedded and our runtime.

    MissingExtraError without nvcc or the host's C++ compiler; SchemeError if CUDA 13 does not compile for
    ``cc``; CompileError, with nvcc's output, if that fails.
    """
    with suppress(MissingExtraError):  # without NVRTC, the error of nvcc says which header is missing
        check_architecture(cc)
    arch = architecture(cc)
    flags = [
        *("-gencode", f"arch={arch},code={arch}", "-lineinfo", "--no-compress"),
        *("-cudart", "shared", "-cudadevrt", "none", f"-L{runtime_folder()}"),
    ]
    run_nvcc([*flags, *options], source, output, source)


def read_options(text: str) -> list[str]:
    """The words of ``--nvcc``; CompileError if a quotation does not end."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise CompileError(
            f"--nvcc {text!r}: {error}\nit is read as a shell does\nclose the quotation"
        ) from None


def _build_runtime(work: Path, compiler: str, include: Path) -> Path:
    runtime = (include / "cuda_runtime_api.h").read_text(encoding="latin-1")
    driver = (include / "cuda.h").read_text(encoding="latin-1")
    (work / "protocol.h").write_text(c_header())
    (work / "driver_names.inc").write_text(_driver_names(driver))
    (work / "exports.map").write_text(
        f"{SONAME} {{ global: cuda*; __cuda*; local: *; }};\n{DRIVER} {{ global: cu[A-Z]*; nvJitLink*; }};\n"
    )
    folders = (work, include, _SOURCES, *cuda_folders())  # a separate package may install the headers of crt/
    common = [compiler, *_FLAGS, *(f"-I{folder}" for folder in folders)]
    link = [f"-Wl,-soname,{SONAME}", f"-Wl,--version-script={work / 'exports.map'}"]
    sources = sorted(map(str, _SOURCES.glob("*.c")))
    first = work / "first.so"
    _run([*common, *sources, *link, "-o", str(first)], {})
    defined = _defined(first)
    newest = _DRIVER_NEWEST.findall(driver)
    wanted = {*_API.findall(runtime), *_DRIVER_API.findall(driver), *(target for _, _, target in newest)}
    missing = sorted(wanted - defined)
    stubs = work / "stubs.c"
    stubs.write_text('#include "missing.h"\n' + "".join(f"MISSING({name})\n" for name in missing))
    pairs = [*_PER_THREAD.findall(runtime), *((suffix, name) for _, suffix, name in newest if suffix)]
    twins = {(name, f"{name}_{suffix.lower()}") for suffix, name in pairs}
    known = defined | set(missing)
    aliases = [
        f"-Wl,--defsym={twin}={name}" for name, twin in sorted(twins) if name in known and twin not in known
    ]
    _run([*common, *sources, str(stubs), *link, *aliases, "-o", str(work / SONAME)], {})
    return work / SONAME


def _driver_names(header: str) -> str:
    """The functions and the errors of the driver's header, for tables in C."""
    current, _, _ = header.partition("#if defined(__CUDA_API_VERSION_INTERNAL)\n    #undef")
    functions, errors = sorted(set(_DRIVER_API.findall(current))), _DRIVER_ERROR.findall(header)
    return "\n".join(
        [
            "#ifdef ENTRY",
            *(f"ENTRY({name})" for name in functions),
            "#else",
            *(f"DRIVER_ERROR({name})" for name in errors),
            "#endif\n",
        ]
    )


def _defined(library: Path) -> set[str]:
    """The names of the functions that a shared library exports."""
    from simwarp.exec.elf import read_elf

    return set(read_elf(library).defined())


def _run(command: Sequence[str], more: Mapping[str, str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **more})
    if done.returncode:
        raise CompileError(
            f"the runtime of simwarp exec does not compile:\n{command[0]} ended with {done.returncode}:\n"
            f"{done.stderr}",
            done.stderr,
        )


@cache
def _version(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout


def _include() -> Path:
    """The folder of the CUDA runtime's headers."""
    for folder in cuda_folders():
        if (folder / "cuda_runtime_api.h").is_file():
            return folder
    raise MissingExtraError(
        "simwarp exec needs the headers of the CUDA runtime\nthey are in no package and no toolkit here\n"
        "pip install 'simwarp[compile]'"
    )
