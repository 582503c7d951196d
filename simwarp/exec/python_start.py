"""Runs a script as Python would, in the script's process; imports no other module of simwarp.

Kernels of ``numba.cuda`` keep the lines of their source, unless they are compiled for debugging. PyCUDA
compiles to PTX.
"""

from __future__ import annotations

import ctypes
import os
import re
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any

LIBRARIES = ("libcuda.so.1", "libcudart.so.13", "libnvJitLink.so.13")


def compiler_parts() -> list[str]:
    """The libraries that NVRTC opens by name only, so that it does not find them in its own folder."""
    folder = Path(os.environ.get("CUDA_HOME", ""), "lib64")
    return [str(part) for part in folder.glob("libnvrtc-builtins.so.*")]


def keep_lines() -> None:
    """Make Numba compile to PTX and with ``lineinfo=True`` by default; the generated code is the same.

    Link-time optimisation (numba-cuda's default) is on NVIDIA's intermediate code, which only a driver takes.
    """
    try:
        from numba.cuda.dispatcher import CUDADispatcher
    except ImportError:  # the script needs no Numba, or fails by itself
        return
    dispatcher: Any = CUDADispatcher
    construct = dispatcher.__init__

    def with_lines(self: Any, py_func: Any, targetoptions: dict[str, Any], *rest: Any, **more: Any) -> None:
        if not targetoptions.get("debug"):
            targetoptions = {**targetoptions, "lineinfo": True}
        if "lto" in targetoptions:
            targetoptions = {**targetoptions, "lto": False}
        construct(self, py_func, targetoptions, *rest, **more)

    dispatcher.__init__ = with_lines


def compile_to_ptx() -> None:
    """Make PyCUDA compile to PTX instead of machine code, and keep the source, which findings quote."""
    try:
        from pycuda import compiler
    except ImportError:  # the script needs no PyCUDA, or fails by itself
        return
    plain, folder = compiler.compile_plain, tempfile.TemporaryDirectory(prefix="simwarp-exec-")

    def to_ptx(source: str, options: Any, keep: Any, nvcc: Any, cache: Any, target: str = "cubin") -> bytes:
        made: bytes = plain(source, options, keep, nvcc, cache, "ptx" if target == "cubin" else target)
        kept = Path(tempfile.mkdtemp(dir=folder.name), "kernel.cu")
        kept.write_text(source)
        return re.sub(rb'(\.file\s+\d+\s+)"[^"]*/kernel\.cu"', rb'\1"%b"' % str(kept).encode(), made)

    compiler.compile_plain = to_ptx


if __name__ == "__main__":
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))  # noqa: PTH100, PTH120 - as Python has it
    # once loaded, packages use these libraries, and not their own
    for name in (*LIBRARIES, *compiler_parts()):
        ctypes.CDLL(name, ctypes.RTLD_LOCAL)
    keep_lines()
    compile_to_ptx()
    runpy.run_path(sys.argv[0], run_name="__main__")
