"""The public kernels of `strangers.py` as cases, and the part of their files that is compiled."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stranger_problems import Generator, Problem

from gpu.compile import Ptx, compile
from reference.errors import SimwarpError

HOST_HEADERS = (
    "algorithm assert.h cassert cstdint cstdio cstdlib float.h iostream stdint.h stdio.h stdlib.h vector "
    "cublas_v2.h helper_cuda.h helper_functions.h torch/extension.h torch/types.h "
    "thrust/host_vector.h thrust/device_vector.h cutlass/util/print_error.hpp cutlass/util/GPU_Clock.hpp "
    "cutlass/util/helper_cuda.hpp cudaTypedefs.h"
)
"""Headers that kernels of host programs include, of which device code needs nothing but `PRELUDE`."""
PRELUDE = """
#include <cuda/std/cstdint>
#define FLT_MAX 3.402823466e+38f
#define INFINITY __int_as_float(0x7f800000)
typedef unsigned int uint;
using cuda::std::int8_t, cuda::std::int16_t, cuda::std::int32_t, cuda::std::int64_t, cuda::std::uintptr_t;
using cuda::std::uint8_t, cuda::std::uint16_t, cuda::std::uint32_t, cuda::std::uint64_t;
namespace std {
template <class T> __device__ constexpr T min(T a, T b) { return b < a ? b : a; }
template <class T> __device__ constexpr T max(T a, T b) { return a < b ? b : a; }
}
"""
"""The declarations of `HOST_HEADERS` that device code uses."""


class StrangerError(SimwarpError, ValueError):
    """A source that differs from the table's description."""


@dataclass(frozen=True)
class Bug:
    """A bug of a published kernel, and its correction as a regular expression with a replacement."""

    what: str
    fix: tuple[str, str]


@dataclass(frozen=True)
class Case:
    """A public kernel."""

    project: str  # owner/name of the repository
    file: str  # a path in it
    name: str  # of the kernel
    form: str  # the way it copies
    problem: Callable[[Generator], Problem]
    before: str = ""  # lines in front of the file
    after: str = ""  # lines behind the kernel: an explicit instantiation
    entry: str = ""  # the name of the launched kernel, if it is another
    # regular expressions of the host functions in front of the kernel, which are left blank
    host: Sequence[str] = ()
    edits: Sequence[tuple[str, str]] = ()  # changes of sizes: regular expression, replacement
    include: Sequence[str] = ()  # the repository's folders of headers
    options: Sequence[str] = ()
    arch: tuple[int, int] = (8, 0)
    bugs: Sequence[Bug] = ()
    waits: str = ""  # features that the simulator lacks for it, as far as known

    @property
    def repository(self) -> str:
        """The repository's own name, and that of its folder."""
        return self.project.rpartition("/")[2]


def source_of(folder: Path, case: Case, corrected: bool = False) -> str:
    """The part of a file that is compiled: up to the end of the kernel, without the host code before it."""
    path = folder / case.repository / case.file
    if not path.exists():
        raise StrangerError(f"{path} does not exist\ncheck out github.com/{case.project} in {folder}")
    text = path.read_text()
    hosts = [(rf"^(?:template\b.*\n)?(?:{host})[\s\S]*?^\}}", blank) for host in case.host]
    for pattern, replacement in [*hosts, *case.edits, *(bug.fix for bug in case.bugs if corrected)]:
        text, count = re.subn(pattern, replacement, text, flags=re.MULTILINE)
        if not count:
            raise StrangerError(f"{path}: nothing matches {pattern!r}\nthe file is not the one of the table")
    lines = text.split("\n")
    start = first(lines, rf"\b{case.name}\s*\(", path)
    end = first(lines, r"^\}", path, start)
    return "\n".join([PRELUDE, case.before, f'#line 1 "{label(case)}"', *lines[: end + 1], case.after, ""])


def blank(found: re.Match[str]) -> str:
    """Empty lines, as many as the text has."""
    return "\n" * found[0].count("\n")


def first(lines: Sequence[str], pattern: str, path: Path, start: int = 0) -> int:
    """The number of the first line that matches."""
    for number in range(start, len(lines)):
        if re.search(pattern, lines[number]):
            return number
    raise StrangerError(f"{path}: no line matches {pattern!r}\nthe file is not the one of the table")


def label(case: Case) -> str:
    """The file's name in messages."""
    return Path(case.file).name


def compiled(folder: Path, case: Case, corrected: bool = False) -> Ptx:
    """The PTX of a case."""
    path = folder / case.repository / case.file
    return compile(
        source_of(folder, case, corrected),
        label(case),
        arch=case.arch,
        headers=dict.fromkeys(HOST_HEADERS.split(), ""),
        folder=path.parent,
        include=[folder / case.repository / name for name in case.include],
        options=["-default-device", *case.options],
    )


def entry_of(ptx: str, name: str) -> str:
    """The kernel's name in the PTX: itself, or mangled."""
    names = re.findall(r"\.entry\s+([\w$]+)", ptx)
    entries = [entry for entry in names if entry == name or f"{len(name)}{name}" in entry]
    if len(entries) != 1:
        raise StrangerError(f"{len(entries)} kernels are called {name!r}\nthe PTX has {', '.join(names)}")
    return entries[0]


_ASYNCHRONOUS = re.compile(r"^\s*(?:@\S+\s+)?((?:cp\.|mbarrier|wgmma|(?:red|st)\.async)[\w.]+)", re.MULTILINE)
_QUALIFIERS = re.compile(
    r"\.(?:shared|global|b64|ca|cg|L2|release|acquire|relaxed|cta|cluster|m\d+n\d+k\d+).*"
)


def async_instructions(ptx: str) -> list[str]:
    """The asynchronous instructions in a PTX text, without their qualifiers."""
    return sorted({_QUALIFIERS.sub("", name) for name in _ASYNCHRONOUS.findall(ptx)})
