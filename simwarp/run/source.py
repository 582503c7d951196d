"""Reading of kernels from a ``.cu`` file with device code only, or from a ``.ptx`` file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from gpu.compile import compile, normalise
from gpu.compiler.cuda_headers import advice_for
from gpu.compiler.options import read_options
from reference.errors import CompileError, InputFileError, SchemeError
from reference.values import shortened
from simwarp.faults import LaunchError
from simwarp.program.bind import target_number
from simwarp.ptx.mangled_names import choose, listed, plain, readable
from simwarp.ptx.parse import parse
from simwarp.ptx.syntax import Function, Module
from simwarp.run.headers import HEADERS, PRELUDE
from simwarp.run.nvcc import INSTANCES, compile_kernels, has_nvcc
from simwarp.run.parameters import parameter_names, parameter_types, variable_type, without_literals

OPTIONS = (f"--pre-include={PRELUDE}", "-fmad=true")
"""The defaults of nvcc: its implicit includes, and fused multiply-add."""

_MOST = 1 << 28
"""The largest size of a source file, in bytes."""
_HOST_CODE = re.compile(
    r"<<<|\bint\s+main\s*\(|\bcuda(?:Malloc|Memcpy|Free|Event|Stream|DeviceSynchronize|SetDevice|GetLast)\w*\s*\("
)
_HOST_HEADERS = re.compile(
    r"(thrust|boost|opencv2|sys)/.*|helper_\w+\.h|cu(blas|fft|sparse|solver|dnn)\w*\.h|curand\.h|cuda_profiler_api\.h|"
    r"vector|string|memory|map|set|list|deque|queue|stack|thread|mutex|future|random|exception|stdexcept|"
    r"unordered_\w+|[iof]?stream|iostream|fstream|sstream|iomanip|filesystem|locale|regex|any"
)
_MISSING = re.compile(r'cannot open source file "([^"]+)"')
_UNINITIALISED = "is used before its value is set"
_DEBUG = {"-G", "--device-debug"}
_LITERAL = re.compile(r"\(\s*\w[\w:<>, ]*\)\s*\{")
_IN_JIT_MODE = "not allowed in JIT mode"


class HostCodeError(CompileError):
    """A ``.cu`` file with host code, which only nvcc compiles; ``log`` is NVRTC's output."""


class Loadable(NamedTuple):
    """The text of PTX, and the sources that faults quote."""

    text: str
    sources: Mapping[str, str]


@shortened
@dataclass(frozen=True)
class Source:
    """The kernels of a file, compiled to PTX.

    Attributes
    ----------
    name : str
        The name of the file.
    ptx : str
        The PTX that a device loads.
    entries : mapping of str to Function
        The kernels by their names in the PTX.
    target : (int, int)
        The compute capability that the PTX targets.
    text : str
        The CUDA C++, or "" for a ``.ptx`` file.
    module : Module
        The parsed PTX.
    log : str
        The compiler's warnings.
    files : mapping of str to str
        The CUDA C++, and that of included files with code of a kernel, by file name.
    path : str
        The path of the file as it was given; messages show it.
    defined : frozenset of str
        The macros that options of the compiler define.
    unoptimised : callable, optional
        Compiles the same CUDA C++ without optimisation; None for PTX, and where it is not optimised.
    asked : mapping of str to str
        The name in the PTX of the instance of a template that was made for a spelling of its arguments.
    """

    name: str
    ptx: str
    entries: Mapping[str, Function]
    target: tuple[int, int]
    text: str = ""
    module: Module = field(default_factory=Module, repr=False)
    log: str = ""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    path: str = ""
    defined: frozenset[str] = frozenset()
    unoptimised: Callable[[], Source] | None = field(default=None, repr=False, compare=False)
    asked: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def loadable(self) -> Loadable:
        """The PTX with its sources, as a device loads it."""
        return Loadable(self.ptx, self.files)

    @property
    def kernels(self) -> list[str]:
        """The names of the kernels in the source, with namespaces and template arguments."""
        return [readable(name) for name in self.entries]

    def kernel(self, name: str | None = None) -> Function:
        """Find a kernel by its name in the PTX, or in the source with or without namespaces and arguments.

        See `simwarp.ptx.mangled_names.choose`.

        Parameters
        ----------
        name : str, optional
            May be omitted if there is only one kernel.

        Raises
        ------
        LaunchError
            If there is no such kernel, or several; the message lists the kernels.

        Examples
        --------
        >>> source = from_ptx(
        ...     ".version 9.0 .target sm_90 .address_size 64 .entry _Z4fillIfEvPT_(.param .u64 x) { ret; }"
        ... )
        >>> source.kernels, source.kernel("fill").name
        (['fill<float>'], '_Z4fillIfEvPT_')
        >>> source.kernel("full")
        Traceback (most recent call last):
        ...
        reference.errors.LaunchError: my.ptx has no kernel 'full'
        it has fill<float>
        """
        found = list(self.entries) if name is None else choose(name, self.entries)
        if not found and name is not None and name in self.asked:
            found = [self.asked[name]]
        if len(found) == 1:
            return self.entries[found[0]]
        if not self.entries:
            what, advice = "has no kernel", "write a __global__ function"
        elif not found:
            what, advice = f"has no kernel {name!r}", f"it has {listed(self.entries)}"
        else:
            called = "" if name is None else f" called {name!r}"
            what, advice = f"has {len(found)} kernels{called}", f"choose among {listed(found)}"
        raise LaunchError(f"{self.name} {what}\n{advice}{self._template(name or '')}")

    def parameters(self, kernel: Function) -> tuple[str, ...]:
        """The names of a kernel's parameters; () if they are not known, as for compiled PTX."""
        return parameter_names(kernel, self.files)

    def types(self, kernel: Function) -> tuple[str, ...]:
        """The types of a kernel's parameters, "" for an unknown one; () if none is known."""
        return parameter_types(kernel, self.files, self.defined)

    def variable_type(self, name: str) -> str:
        """The type of a variable by its name in the PTX, "float*" for an array; "" if it is not known."""
        return variable_type(name, self.files, self.defined)

    def _template(self, name: str) -> str:
        """Advice for the error, if the missing kernel is a template that is not instantiated; else ""."""
        called = re.escape(plain(name)) or r"\w+"
        found = re.search(rf"template\s*<[^;{{}}]*__global__[^;{{}}]*?\b({called})\s*\(", self.text)
        if found is None or any(plain(kernel) == found[1] for kernel in self.kernels):
            return ""
        return f"\n{found[1]} is a template: give its arguments, e.g. {found[1]}<float>"


def load(
    path: str | PathLike[str],
    *,
    cc: tuple[int, int] = (9, 0),
    defines: Mapping[str, str | int] | None = None,
    include: Sequence[str | PathLike[str]] = (),
    options: Sequence[str] = (),
    kernel: str | None = None,
) -> Source:
    """Read a ``.cu`` or ``.ptx`` file.

    Parameters
    ----------
    path : path
        CUDA C++ is compiled with the defaults of nvcc and with line numbers. It may include files beside it,
        CUDA's headers, and the C and C++ headers of which device code can use a part.
    cc : (int, int)
        The compute capability to compile for.
    defines : mapping
        Macros to define; ``""`` defines one as nothing; ``-D NAME`` of a compiler is 1.
    include : sequence of path
        More folders to search for included files.
    options : sequence of str
        More options of NVRTC, e.g. ``"-fmad=false"``.
    kernel : str, optional
        The kernel that will run; a template with its arguments, ``"fill<float>"``, is instantiated.

    Raises
    ------
    InputFileError
        If the file cannot be read, or is neither ``.cu`` nor ``.ptx``.
    HostCodeError
        If the file has host code, and nvcc, which leaves it out, is not installed.
    CompileError
        If it does not compile; has the compiler's log.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "fill.cu"
    ...     _ = path.write_text("__global__ void fill(float* x, float a) { x[threadIdx.x] = a; }")
    ...     load(path).kernels
    ['fill']
    """
    path = Path(path)
    if path.suffix not in (".cu", ".ptx"):
        raise InputFileError(f"{path} is neither CUDA C++ nor PTX\ngive a .cu or .ptx file")
    text = _read(path)
    if path.suffix == ".ptx":
        if defines or include or options:
            raise SchemeError(
                f"{path} is PTX, which is not compiled here\npass defines, include and options to nvcc"
            )
        return from_ptx(_with_lines_of_calls(text), path.name)
    return from_text(text, path, cc=cc, defines=defines, include=include, options=options, kernel=kernel)


def from_text(
    text: str,
    path: str | PathLike[str] = "source.cu",
    *,
    cc: tuple[int, int] = (9, 0),
    defines: Mapping[str, str | int] | None = None,
    include: Sequence[str | PathLike[str]] = (),
    options: Sequence[str] = (),
    kernel: str | None = None,
) -> Source:
    """Compile CUDA C++; see `load`. ``path`` is its name in messages, and includes start from its folder."""
    path, folders = Path(path), [Path(folder).absolute() for folder in include]
    options = [*(f"-D{name}={value}" for name, value in (defines or {}).items()), *options]

    def by_nvrtc(*instances: str) -> tuple[str, str]:
        places: dict[str, Any] = {"headers": HEADERS, "folder": path.parent, "include": folders}
        flags = [*OPTIONS, *options]
        ptx = compile(text, path.name, None, cc, **places, options=flags, instances=instances)
        return ptx.text, _advised(ptx.log.strip(), options)

    def by_nvcc(*instances: str) -> tuple[str, str]:
        return compile_kernels(text, path, cc, folders, options, instances)

    again = None
    try:
        source = _with_instance(kernel, path.name, text, by_nvrtc)
        if not _DEBUG & {*options}:
            given: dict[str, Any] = {"cc": cc, "defines": defines, "include": include, "kernel": kernel}
            again = partial(from_text, text, path, **given, options=[*options, "-G"])
    except CompileError as error:
        explained = _explained(error, path, text, cc)
        taken = isinstance(explained, HostCodeError) or _only_of_nvcc(error, text)
        if not taken or not has_nvcc():
            raise explained from None
        source = _with_instance(kernel, path.name, text, by_nvcc)
    files = {**_included(source, [path.parent, *folders]), path.name: text}
    defined = frozenset(re.findall(r"(?m)^#define (\w+)", "\n".join(read_options(options).text)))
    return replace(source, files=files, path=str(path), defined=defined, unoptimised=again)


def _with_instance(kernel: str | None, name: str, text: str, build: Callable[..., tuple[str, str]]) -> Source:
    """Build a source; if it lacks ``kernel``, build it with that instance of a template, if one exists."""
    ptx, log = build()
    source = replace(from_ptx(ptx, name, text), log=log)
    if kernel is None or "<" not in kernel or choose(kernel, source.entries):
        return source
    try:
        ptx, log = build(kernel)
    except CompileError as error:
        errors = [line for line in error.log.splitlines() if " error: " in line]
        if all(line.startswith(INSTANCES) for line in errors):
            return source
        raise
    whole = replace(from_ptx(ptx, name, text), log=log)
    made = [entry for entry in whole.entries if entry not in source.entries]
    return replace(whole, asked={kernel: made[0]}) if len(made) == 1 else whole


def with_named_files(ptx: str) -> Loadable:
    """PTX with normalised paths, and the texts of its source files on this machine, except CUDA's own."""
    paths = map(Path, re.findall(r'^\s*\.file\s+\d+\s+"([^"]+)"', ptx, re.MULTILINE))
    own = [path for path in paths if path.is_file() and "/include/" not in str(path)]
    texts = {path.name: path.read_text(encoding="utf-8", errors="replace") for path in own}
    return Loadable(normalise(_with_lines_of_calls(ptx), list(texts)), texts)


def _with_lines_of_calls(ptx: str) -> str:
    """The PTX with every line of an inline assembly attributed to the line of its ``asm`` statement."""
    locations = re.compile(r"\.loc\s[^\n]*")

    def at_the_first(assembly: re.Match[str]) -> str:
        first = locations.search(assembly[0])
        return locations.sub(lambda _: first[0] if first else "", assembly[0])

    return re.sub(r"// begin inline asm.*?// end inline asm", at_the_first, ptx, flags=re.DOTALL)


def from_ptx(ptx: str, name: str = "my.ptx", text: str = "") -> Source:
    """Parse PTX into a `Source`."""
    module: Module = parse(ptx)
    return Source(name, ptx, module.entries, divmod(target_number(module), 10), text, module)


def _advised(log: str, options: Sequence[str]) -> str:
    """The compiler's warnings; advice follows if the optimiser may have removed the read of a variable."""
    if _UNINITIALISED not in log or _DEBUG & {*options}:
        return log
    return (
        f"{log}\n\nthe optimiser may have removed what depends on this variable, so that no check sees it\n"
        'compile with -G (options=["-G"]), and the read of the variable is a fault'
    )


def _included(source: Source, folders: Sequence[Path]) -> dict[str, str]:
    """Read the user's included files that contain code of kernels, by file name."""
    lines = (i.source for kernel in source.entries.values() for i in kernel.instructions)
    found: dict[str, str] = {}
    for name in {line.file for line in lines if line is not None and line.file}:
        for path in (folder / name for folder in folders):
            if name not in found and path.is_file():
                found[name] = _read(path)
    return found


def _read(path: Path) -> str:
    """Read a source file; raise InputFileError for a directory, a device or a pipe, or if it is too large."""
    try:
        if not path.is_file():
            path.stat()
            raise InputFileError(f"{path} is not a regular file\ngive a .cu or .ptx file")
        if path.stat().st_size > _MOST:
            raise InputFileError(f"{path} has more than {_MOST >> 20} MiB\ngive a .cu or .ptx file")
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputFileError(
            f"{path} cannot be read: {error.strerror or error}\ngive a .cu or .ptx file"
        ) from None


def _explained(error: CompileError, path: Path, text: str, cc: tuple[int, int]) -> CompileError:
    """Add advice to a compile error: compile host code with nvcc, or add a folder of included files."""
    code = without_literals(text)
    host, missing = _HOST_CODE.search(code), _MISSING.search(error.log)
    ptx = quote(str(path.with_suffix(".ptx")))
    advice = f"{nvcc_line(path, cc)}\nthen run that: simwarp run {ptx} …"
    package = advice_for(missing[1]) if missing else ""
    if host or _IN_JIT_MODE in error.log or (missing and _HOST_HEADERS.fullmatch(missing[1])):
        line = next(line for line in error.log.splitlines() if "error" in line).partition(". Consider")[0]
        what = f"`{host[0].strip()}` in line {_line(code, host.start())}" if host else line
        also = f"{package}\n" if package else ""
        return HostCodeError(
            f"{path.name} has code for the host: {what}\n{also}"
            "pip install 'simwarp[nvcc]' to run its kernels, or, with simwarp exec, the whole\n"
            f"or compile it to PTX elsewhere: {advice}",
            error.log,
        )
    if _only_of_nvcc(error, text):
        return CompileError(
            f"{error}\nnvcc takes it: pip install 'simwarp[nvcc]'\nor compile it elsewhere: {advice}",
            error.log,
        )
    if missing:
        what = f"{path.name} includes {missing[1]}, which is not found"
        remedy = package or "add its folder to the include folders (-I)"
        return CompileError(f"{what}\n{remedy}\nor compile it to PTX elsewhere: {advice}", error.log)
    return error


def _only_of_nvcc(error: CompileError, text: str) -> bool:
    """Whether nvcc may take what NVRTC refuses: an older standard, or a literal of a structure, as of C."""
    if "libcu++ requires at least C++" in error.log:
        return True
    lines = text.splitlines()
    numbers = [int(found) for found in re.findall(r"\((\d+)\): error: expected an expression", error.log)]
    return any(n <= len(lines) and _LITERAL.search(lines[n - 1]) for n in numbers)


def _line(text: str, at: int) -> int:
    """The line number of an offset in a text."""
    return text.count("\n", 0, at) + 1


def nvcc_line(path: Path, cc: tuple[int, int] = (9, 0)) -> str:
    """The nvcc command that compiles a ``.cu`` file to PTX."""
    output, source = (quote(str(name)) for name in (path.with_suffix(".ptx"), path))
    return f"nvcc -ptx -arch=sm_{cc[0]}{cc[1]} -lineinfo -o {output} {source}"
