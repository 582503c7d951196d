"""Python scripts as programs: the command that runs them, and the libraries that Numba and PyCUDA search."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpu.compiler.cuda_headers import cuda_folders
from simwarp.exec.build import runtime_folder
from simwarp.run.nvcc import has_nvcc, nvcc_command

_START = Path(__file__).parent / "python_start.py"
NO_NVVM = (
    "Numba compiles with NVVM, which is in no package and no toolkit here\n"
    "scripts without kernels of Numba need none\npip install nvidia-nvvm nvidia-cuda-nvcc"
)


def script_command(script: Path, arguments: Sequence[str]) -> list[str]:
    """The command that runs a script with this Python and makes Numba keep source lines."""
    return [sys.executable, str(_START), str(script), *arguments]


def pycuda_settings() -> dict[str, str]:
    """Environment variables with which PyCUDA finds nvcc and compiles with line information."""
    flags = os.environ.get("PYCUDA_DEFAULT_NVCC_FLAGS", "")
    settings = {"PYCUDA_DEFAULT_NVCC_FLAGS": f"{flags} -lineinfo".strip()}
    if has_nvcc():
        settings["PATH"] = os.pathsep.join([os.environ.get("PATH", ""), str(Path(nvcc_command()[0]).parent)])
    return settings


def numba_home(folder: Path) -> dict[str, str]:
    """Create a ``CUDA_HOME`` for Numba in a folder; {} if NVVM or libdevice is missing.

    Numba knows a toolkit's folders and those of conda, not those of packages.
    """
    compiler = next((path for root in _roots() for path in _compilers(root)), None)
    library = next((path for root in _roots() if (path := root / "nvvm" / "libdevice").is_dir()), None)
    if compiler is None or library is None:
        return {}
    home = folder / "cuda"
    (home / "nvvm" / "lib64").mkdir(parents=True)
    (home / "lib64").mkdir()
    (home / "nvvm" / "lib64" / "libnvvm.so").symlink_to(compiler)
    (home / "nvvm" / "libdevice").symlink_to(library)
    (home / "lib64" / "libcudart.so").symlink_to(runtime_folder() / "libcudart.so")
    for part in _runtime_compiler():
        (home / "lib64" / part.name).symlink_to(part)
        if re.fullmatch(r"libnvrtc\.so\.\d+", part.name):
            (home / "lib64" / "libnvrtc.so").symlink_to(part)
    # an empty file is enough: the server has the functions of that library
    (home / "lib64" / "libcudadevrt.a").touch()
    return {"CUDA_HOME": str(home), **_settings()}


def _settings() -> dict[str, str]:
    """Environment variables for Numba; values that the user has set win.

    Numba does not seek headers in ``CUDA_HOME``; its architecture for no device, 5.0, is unknown to NVVM 13.
    """
    settings = {"NUMBA_CUDA_DEFAULT_PTX_CC": "7.5"}
    if cuda_folders():
        settings["NUMBA_CUDA_INCLUDE_PATH"] = str(cuda_folders()[0])
    return {name: os.environ.get(name, value) for name, value in settings.items()}


def _roots() -> Iterator[Path]:
    """CUDA root folders: ``CUDA_HOME``, then those of Python packages, then ``/usr/local/cuda``."""
    if os.environ.get("CUDA_HOME"):
        yield Path(os.environ["CUDA_HOME"]).absolute()
    for include in cuda_folders():
        yield include.parent
    yield Path("/usr/local/cuda")


def _runtime_compiler() -> list[Path]:
    """NVRTC and its parts, with which Numba compiles CUDA C++, from the first folder that has them."""
    for root in _roots():
        for folder in (root / "lib", root / "lib64"):
            if found := sorted(folder.glob("libnvrtc*.so.[0-9]*")):
                return found
    return []


def _compilers(root: Path) -> list[Path]:
    """The paths of ``libnvvm.so`` in the usual folders below a CUDA root."""
    folders = (root / "nvvm" / "lib64", root / "nvvm" / "lib", root / "lib", root / "lib64")
    return [path for folder in folders for path in sorted(folder.glob("libnvvm.so*"))]
