"""Compilation of CUDA C++ to PTX by NVRTC, without nvcc, a GPU or a toolkit.

All PTX of the project comes from `compile`, and is *normalised*: paths of ``.file`` are relative and comments
are removed, so that the same source gives the same text on every machine. This text is cached, hashed,
recorded in goldens and loaded by devices.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from gpu.compiler.apart import call_apart, lasts
from gpu.compiler.cache import Entry, read, write
from gpu.compiler.cuda_headers import cuda_folders, not_of_cuda, release
from gpu.compiler.includes import Includes
from gpu.compiler.options import last_of_each, read_options
from gpu.compiler.signals import keep_handlers
from reference.errors import CompileError, MissingExtraError, SchemeError

OPTIONS = ("-std=c++17", "-fmad=false", "-lineinfo")
"""NVRTC's options for every source. With ``-fmad=false`` the PTX determines every rounding; with
``-lineinfo`` faults can name lines of CUDA C++."""

_PACKAGE = Path(__file__).parent
_FILE = re.compile(r'^(\s*\.file\s+\d+\s+)"([^"]*)".*$', re.MULTILINE)


@dataclass(frozen=True)
class Ptx:
    """The PTX of a CUDA C++ source, with its origin.

    Attributes
    ----------
    text : str
        Normalised PTX.
    name : str
        The name of the source, with its defines.
    arch : (int, int)
        The compute capability it was compiled for.
    compiler : str
        E.g. ``"NVRTC 13.0"``.
    log : str
        The compiler's warnings, except those about CUDA's own headers.
    sources : mapping of str to str
        The source and the headers that it includes from memory, by file name.
    """

    text: str
    name: str
    arch: tuple[int, int]
    compiler: str
    log: str = ""
    sources: Mapping[str, str] = field(default_factory=dict[str, str], compare=False, repr=False)

    @property
    def sha256(self) -> str:
        """The SHA-256 digest of the text, which identifies it in goldens."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def compile(
    source: str,
    name: str,
    defines: Mapping[str, str | int] | None = None,
    arch: tuple[int, int] = (9, 0),
    *,
    headers: Mapping[str, str] | None = None,
    folder: Path | None = None,
    include: Sequence[Path] = (),
    options: Sequence[str] = (),
    instances: Sequence[str] = (),
) -> Ptx:
    """Compile CUDA C++ to PTX, or read the PTX from the cache.

    Parameters
    ----------
    source : str
        CUDA C++. ``#include "…"`` finds the headers of this package, relative to ``gpu/``.
    name : str
        The source's name in messages and in PTX, e.g. ``"bmm/bmm.cu"``.
    defines : mapping
        Macros.
    arch : (int, int)
        The compute capability to compile for.
    headers : mapping of str to str
        The texts of more headers, by their names in an ``#include``.
    folder : Path, optional
        The folder of the source, which ``#include "…"`` searches first.
    include : sequence of Path
        Folders that every ``#include`` searches last.
    options : sequence of str
        More options for NVRTC, which override `OPTIONS`.
    instances : sequence of str
        Kernel templates to instantiate, with their arguments: ``"fill<float>"``.

    Raises
    ------
    CompileError
        With the compiler's log.
    InputFileError
        If the source includes a FIFO, a device or a socket.
    SchemeError
        If the compiler does not compile for ``arch``.
    MissingExtraError
        If NVRTC is not installed.

    Examples
    --------
    >>> ptx = compile('extern "C" __global__ void f(int* x) { *x = ANSWER; }', "f.cu", {"ANSWER": 42})
    >>> ".entry f" in ptx.text
    True
    """
    nvrtc = _nvrtc()
    check_architecture(arch)
    macros = [f"-D{key}={value}" if value != "" else f"-D{key}" for key, value in (defines or {}).items()]
    chosen = last_of_each([*OPTIONS, *macros, f"--gpu-architecture=compute_{arch[0]}{arch[1]}", *options])
    folder, cuda = folder and folder.absolute(), cuda_folders()
    includes = Includes(_PACKAGE, headers or {}, folder, cuda, [path.absolute() for path in include])
    asked = read_options(chosen)
    includes.follow(name, source, *asked.text)
    known = includes.key
    key = _key(cuda, source, name, known, chosen, *instances) if includes.complete and asked.known else None
    entry = read(key) if key else None
    if entry is None or includes.borrowed(entry.elsewhere):
        places = [f"--include-path={path}" for path in (*cuda, *includes.include)]
        ptx, log = _run(nvrtc, source, name, includes.in_memory, [*chosen, *places], folder, instances)
        text, log = normalise(ptx, [name, *includes.names]), _without_cudas_own(log, cuda)
        entry = Entry(text, log, not_of_cuda(includes.of_cuda, cuda))
        includes.follow(name, source, *asked.text)
        unchanged = includes.key == known  # no included file changed while the compiler read it
        if key and unchanged and not includes.borrowed(entry.elsewhere):
            write(key, entry)
    sources = {**includes.in_memory, name: source}
    return Ptx(entry.text, " ".join([name, *macros]), arch, compiler_version(), entry.log, sources)


def _key(cuda: Sequence[Path], *depends_on: object) -> str:
    """The key of a cache entry: a digest of the compilation's inputs and of the compiler."""
    made_by = compiler_version(), _library(), *map(release, cuda)
    return hashlib.sha256(repr((*depends_on, *made_by)).encode()).hexdigest()


def _without_cudas_own(log: str, cuda: Sequence[Path]) -> str:
    """Remove messages about CUDA's own headers from a log; unlike nvcc, NVRTC has no system headers."""
    if not any(str(folder) in log for folder in cuda):
        return log
    parts = [part for part in log.split("\n\n") if not part.startswith(tuple(map(str, cuda)))]
    return "".join(f"{part}\n\n" for part in parts if part.strip() and not part.startswith("Remark:"))


def compile_file(
    path: str,
    defines: Mapping[str, str | int] | None = None,
    arch: tuple[int, int] = (9, 0),
    *,
    options: Sequence[str] = (),
) -> Ptx:
    """Compile a ``.cu`` file of this package, once in a process.

    Parameters
    ----------
    path : str
        Relative to ``gpu/``.
    defines : mapping, optional
        The macros and their values.
    arch : (int, int)
        The compute capability.
    options : sequence of str
        More options for NVRTC; see `compile`.

    Examples
    --------
    >>> compile_file("bmm/pack.cu", {"ELEMENT_INT8": "", "WORD_32": "", "FIRST_MSB": ""}).name
    'bmm/pack.cu -DELEMENT_INT8 -DWORD_32 -DFIRST_MSB'
    """
    return _compiled(_PACKAGE, path, tuple((defines or {}).items()), arch, tuple(options))


@cache
def _compiled(
    package: Path,
    path: str,
    defines: tuple[tuple[str, str | int], ...],
    arch: tuple[int, int],
    options: tuple[str, ...],
) -> Ptx:
    """Compile a source file of a package; see `compile_file`."""
    return compile((package / path).read_text(), path, dict(defines), arch, options=options)


def normalise(ptx: str, names: Sequence[str] = ()) -> str:
    r"""Remove from PTX the parts that differ between machines: absolute paths and the compiler's banner.

    Parameters
    ----------
    names : sequence of str
        Names of the source and its headers; a path that ends with one of them becomes that name.

    Examples
    --------
    >>> normalise('// Build ID\n.file 1 "/home/me/bmm/bmm.cu"\n', ["bmm/bmm.cu"])
    '.file 1 "bmm/bmm.cu"\n'
    """
    lines = [line.rstrip() for line in ptx.splitlines() if not line.startswith("//")]
    text = "\n".join(lines).strip("\n") + "\n"
    return _FILE.sub(lambda found: f'{found[1]}"{_relative(found[2], names)}"', text)


def _relative(path: str, names: Sequence[str]) -> str:
    """The part of a path that is the same on every machine."""
    path = re.sub(r"[\\/]+", "/", f"/{path}")
    for name in names:
        if path.endswith(f"/{name}"):
            return name
    if "/include/" in path:  # a header of CUDA's own
        return path[path.rindex("/include/") + 1 :]
    return path.rsplit("/", 1)[-1]


@cache
def _nvrtc() -> Any:
    """Import NVRTC's bindings, and compile an empty source to try them."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        raise MissingExtraError(
            f"compiling CUDA C++ needs NVRTC 13.0, which is not installed ({error})\n"
            "pip install 'simwarp[compile]'"
        ) from None
    return nvrtc


@cache
def compiler_version() -> str:
    """The name and version of the compiler.

    Examples
    --------
    >>> compiler_version()
    'NVRTC 13.0'
    """
    _, major, minor = _nvrtc().nvrtcVersion()
    return f"NVRTC {major}.{minor}"


def check_architecture(arch: tuple[int, int]) -> None:
    """Raise SchemeError for a compute capability that the compiler does not compile for.

    Examples
    --------
    >>> check_architecture((7, 0))
    Traceback (most recent call last):
    ...
    reference.errors.SchemeError: NVRTC 13.0 does not compile for compute capability 7.0
    it does for 7.5, 8.0, 8.6, 8.7, 8.8, 8.9, 9.0, 10.0, 10.3, 11.0, 12.0, 12.1
    choose one of these; PTX that another compiler made for an older chip runs, too
    """
    known = _architectures()
    if 10 * arch[0] + arch[1] not in known:
        listed = ", ".join(f"{number // 10}.{number % 10}" for number in known)
        raise SchemeError(
            f"{compiler_version()} does not compile for compute capability {arch[0]}.{arch[1]}\n"
            f"it does for {listed}\n"
            "choose one of these; PTX that another compiler made for an older chip runs, too"
        )


@cache
def _architectures() -> tuple[int, ...]:
    """The compute capabilities that NVRTC compiles for, times ten."""
    _, numbers = _nvrtc().nvrtcGetSupportedArchs()
    return tuple(numbers)


@cache
def _library() -> str:
    """Path and size of the NVRTC library; builds of one version differ in size. "" if it is not found."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib  # pyright: ignore[reportMissingTypeStubs]

        path = Path(load_nvidia_dynamic_lib("nvrtc").abs_path or "")
        return f"{path} {path.stat().st_size}"
    except (ImportError, OSError, RuntimeError):
        return ""


def _run(
    nvrtc: Any,
    source: str,
    name: str,
    headers: dict[str, str],
    options: list[str],
    folder: Path | None,
    instances: Sequence[str],
) -> tuple[str, str]:
    """Compile one source with NVRTC, and return its PTX and the compiler's log."""
    if lasts(options):
        answer = call_apart(name, _answer, source, name, headers, options, folder, instances)
        if isinstance(answer, CompileError):
            raise answer
        return answer
    return _run_here(nvrtc, source, name, headers, options, folder, instances)


def _answer(*arguments: Any) -> tuple[str, str] | CompileError:
    """Return the result of `_run_here`, or the error that it raises."""
    try:
        return _run_here(_nvrtc(), *arguments)
    except CompileError as error:
        return error


def _run_here(
    nvrtc: Any,
    source: str,
    name: str,
    headers: dict[str, str],
    options: list[str],
    folder: Path | None,
    instances: Sequence[str],
) -> tuple[str, str]:
    """Compile one source with NVRTC in this process; see `_run`."""
    keep_handlers(lambda: _compile_nothing(nvrtc))
    names = [header.encode() for header in headers]
    texts = [text.encode() for text in headers.values()]
    program_name = name
    if folder is not None:  # NVRTC searches this folder for includes; #line keeps its path out of PTX
        program_name, source = str(folder / name), f'#line 1 "{name}"\n{source}'
    status, program = nvrtc.nvrtcCreateProgram(
        source.encode(), program_name.encode(), len(names), texts, names
    )
    _check(nvrtc, status, name)
    try:
        for instance in instances:
            _check(nvrtc, nvrtc.nvrtcAddNameExpression(program, instance.encode())[0], name)
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
        log = _fetch(nvrtc, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program, name)
        log = log.replace(program_name, name)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(f"{name} does not compile:\n{log}\ncorrect the source lines named above", log)
        return _fetch(nvrtc, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program, name), log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _compile_nothing(nvrtc: Any) -> None:
    """Compile an empty source, which fails if NVRTC does not work."""
    _, program = nvrtc.nvrtcCreateProgram(b"", b"nothing.cu", 0, [], [])
    nvrtc.nvrtcCompileProgram(program, 1, [b"--minimal"])
    nvrtc.nvrtcDestroyProgram(program)


def _fetch(nvrtc: Any, size_of: Any, fetch: Any, program: Any, name: str) -> str:
    """Fetch the PTX or the log of a program from NVRTC."""
    status, size = size_of(program)
    _check(nvrtc, status, name)
    buffer = bytearray(
        size + 16
    )  # a bytes object of its own: Python shares short ones, and NVRTC writes into it
    data = bytes(buffer)
    (status,) = fetch(program, data)
    _check(nvrtc, status, name)
    return data.split(b"\0", 1)[0].decode(errors="replace")  # a log may quote headers in any encoding


def _check(nvrtc: Any, status: Any, name: str) -> None:
    """Raise the error for a call of NVRTC that failed."""
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        _, text = nvrtc.nvrtcGetErrorString(status)
        raise CompileError(f"{name}: NVRTC failed: {text.decode()}\nplease report this", text.decode())
