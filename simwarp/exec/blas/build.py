"""Building of ``libsimwarpblas.so`` by the compiler of the system, for the Python that builds it."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from gpu.blas3.on_host import LARGEST
from reference.errors import CompileError, MissingExtraError
from reference.files import write_output
from simwarp.exec.blas.names import c_functions, exported
from simwarp.run.nvcc import host_compiler

SONAME = "libsimwarpblas.so"
_SOURCE = Path(__file__).parent / "blas.c"
_ROOT = Path(__file__).parents[3]
"""The folder of the packages."""
_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra", "-Werror=implicit")
_BOOTSTRAP = """
def start():
    import os, sys
    if not sys.argv:
        sys.argv = ['']
    if {root!r} not in sys.path:
        sys.path.insert(0, {root!r})
    try:
        from simwarp.exec.blas.calls import give
    except BaseException as error:
        os.write(2, f'simwarp: {{type(error).__name__}}: {{error}}\\n'.encode())
    else:
        give(int('%p', 16))
start()
del start
"""


def build_library(output: Path) -> None:
    """Compile the library to a file; it starts the Python, and finds the packages, that build it.

    Raises
    ------
    MissingExtraError
        Without a C compiler, or if this Python has no shared library.
    CompileError
        With the compiler's output, if that fails.
    OutputFileError
        If the file cannot be written.
    """
    compiler, library = host_compiler("cc", "gcc", "clang"), libpython()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "functions.inc").write_text(c_functions())
        names = "".join(f" {name};" for name in exported())
        (work / "exports.map").write_text(f"{{ global:{names} local: *; }};\n")
        made = work / SONAME
        settings = {
            "LIBPYTHON": _quoted(str(library)),
            "PYTHON": f"L{_quoted(sys.executable)}",
            "PYTHON_TEXT": _quoted(sys.executable),
            "BOOTSTRAP": _quoted(_BOOTSTRAP.format(root=str(_ROOT).replace("%", "%%"))),
            "ABOVE": str(LARGEST),
        }
        lines = (f"#define {name} {text}\n" for name, text in settings.items())
        (work / "settings.h").write_text("".join(lines))
        command = [
            *(compiler, *_FLAGS, f"-I{work}", "-include", str(work / "settings.h"), str(_SOURCE)),
            *(f"-Wl,-soname,{SONAME}", f"-Wl,--version-script={work / 'exports.map'}"),
            *("-ldl", "-o", str(made)),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CompileError(
                f"{SONAME} does not compile: {compiler} ended with {done.returncode}:\n{done.stderr}",
                done.stderr,
            )
        write_output(output, lambda file: file.write(made.read_bytes()))


def libpython() -> Path:
    """The shared library of this Python; MissingExtraError if it has none."""
    name, multiarch = sysconfig.get_config_var("INSTSONAME"), sysconfig.get_config_var("MULTIARCH")
    folders = [Path(sysconfig.get_config_var("LIBDIR") or "/"), Path(sys.base_prefix, "lib")]
    folders += [folder / multiarch for folder in folders if multiarch]
    for folder in folders:
        if ".so" in str(name) and (folder / str(name)).is_file():
            return folder / str(name)
    raise MissingExtraError(
        f"{SONAME} runs Python within programs, which needs its shared library\n"
        f"{sys.executable} has none: {name} is not in {', '.join(map(str, folders))}\n"
        "install it (Debian: libpython3-dev), or build with a Python configured with --enable-shared"
    )


def _quoted(text: str) -> str:
    """A string as a literal of C."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}
    return '"' + "".join(escapes.get(letter, letter) for letter in text) + '"'
