"""CUDA's own headers: their folders, their release, and the files that they include from other folders."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from gpu.compiler.directives import named

_PACKAGES = {
    r"thrust/.+|cub/.+|cuda/.+|nv/.+": "nvidia-cuda-cccl",
    r"curand\w*\.h": "nvidia-curand",
    r"cublas\w*\.h(pp)?": "nvidia-cublas",
    r"cusparseLt\.h": "nvidia-cusparselt-cu13",
    r"cusparse\w*\.h": "nvidia-cusparse",
    r"cufft\w*\.h": "nvidia-cufft",
    r"cusolver\w*\.h": "nvidia-cusolver",
    r"npp\w*\.h": "nvidia-npp",
    r"nvtx3/.+|nvToolsExt\w*\.h": "nvidia-nvtx",
    r"nvjpeg\w*\.h": "nvidia-nvjpeg",
    r"cufile\w*\.h": "nvidia-cufile",
    r"cupti\w*\.h": "nvidia-cuda-cupti",
    r"nvml\.h": "nvidia-nvml-dev",
    r"cuda_profiler_api\.h|cudaProfiler\.h": "nvidia-cuda-profiler-api",
    r"nvJitLink\.h": "nvidia-nvjitlink",
    r"nvrtc\.h": "nvidia-cuda-nvrtc",
    r"cudnn\w*\.h": "nvidia-cudnn-cu13",
    r"nccl\w*\.h": "nvidia-nccl-cu13",
    r"nvshmem\w*\.h": "nvidia-nvshmem-cu13",
    r"cutensor\w*\.h|cutensor/.+": "cutensor-cu13",
    r"crt/.+": "nvidia-cuda-crt",
    r"cooperative_groups(/.+|\.h)|cuda_\w+\.h(pp)?|cuda\.h|cuComplex\.h|mma\.h": "nvidia-cuda-runtime",
}
"""Header → the package that has it, for CUDA 13."""
_BY_THEMSELVES = ("nvidia-cudnn-cu13", "nvidia-nccl-cu13", "nvidia-nvshmem-cu13", "cutensor-cu13")
"""Packages whose headers are in a folder of their own, and are not found without ``-I``."""


def advice_for(header: str) -> str:
    """The advice of an error: the package of a missing header; "" if no package is known.

    >>> advice_for("curand_kernel.h"), advice_for("my.h")
    ('pip install nvidia-curand, which has curand_kernel.h', '')
    """
    package = next((name for pattern, name in _PACKAGES.items() if re.fullmatch(pattern, header)), "")
    folder = ", and add the package's include folder (-I)" if package in _BY_THEMSELVES else ""
    return f"pip install {package}, which has {header}{folder}" if package else ""


def cuda_folders() -> tuple[Path, ...]:
    """The folders of headers of CUDA, its C++ library and its compiler, from pip packages or a toolkit."""
    return _folders(os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda")


@cache
def _folders(toolkit: str) -> tuple[Path, ...]:
    """The folders with CUDA's headers; see `cuda_folders`."""
    spec = importlib.util.find_spec("nvidia")
    packages = [Path(folder) / "cu13" for folder in spec.submodule_search_locations or []] if spec else []
    candidates = [root / "include" for root in (*packages, Path(toolkit).absolute())]
    runtime = next((c for c in candidates if (c / "cuda_runtime.h").exists()), None)
    library = next((c / "cccl" for c in candidates if (c / "cccl" / "nv" / "target").exists()), None)
    compiler = next((c for c in candidates if (c / "crt" / "mma.h").exists()), None)
    return tuple(dict.fromkeys(folder for folder in (runtime, library, compiler) if folder))


@cache
def release(folder: Path) -> str:
    """A text that identifies a release of headers: the folder, its packages, and its files' sizes."""
    return "\n".join([str(folder), *_packages(folder), *_sizes(folder), *_sizes(folder / "crt")])


def _packages(folder: Path) -> list[str]:
    """Names and versions of the packages, or of the toolkit, to which a folder of headers belongs."""
    for root in folder.parents[:4]:
        packages = sorted(path.name for path in (*root.glob("nvidia*.dist-info"), *root.glob("dist-info/*")))
        versions = root / "version.json"
        if packages or versions.is_file():
            return [*packages, versions.read_text(errors="replace") if versions.is_file() else ""]
    return []


def _sizes(folder: Path) -> list[str]:
    """Names and sizes of the files in a folder."""
    try:
        with os.scandir(folder) as entries:
            return sorted(f"{entry.name} {entry.stat().st_size}" for entry in entries if entry.is_file())
    except OSError:
        return []


@cache
def find_in_cuda(name: str, folders: tuple[Path, ...]) -> Path | None:
    """The file of that name in the first of the folders that has one."""
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def not_of_cuda(headers: Iterable[Path], folders: tuple[Path, ...]) -> tuple[str, ...]:
    """Names of files that some of CUDA's headers look for outside CUDA's folders.

    If a macro names the file, as in Thrust, the file is beside the header: the header's folder stands for it.
    """
    waiting, seen, missing = list(headers), set(headers), set[str]()
    while waiting:
        inside, outside = _asked_by(waiting.pop(), folders)
        missing |= outside
        waiting += inside - seen
        seen |= inside
    return tuple(sorted(missing))


@cache
def _asked_by(header: Path, folders: tuple[Path, ...]) -> tuple[frozenset[Path], frozenset[str]]:
    """Files of CUDA that a header includes, and names of other files that it looks for."""
    included, wanted, computed = named(header.read_text(encoding="latin-1"))
    inside, outside = set[Path](), set[str]()
    for asked in (*included, *wanted):
        beside = header.parent / asked.name
        path = beside if asked.quoted and beside.is_file() else find_in_cuda(asked.name, folders)
        if path is None:
            outside.add(asked.name)
        elif asked in included:
            inside.add(path)
    if computed:
        nearest = next(folder for folder in sorted(folders, reverse=True) if header.is_relative_to(folder))
        outside.add(header.relative_to(nearest).parts[0])
    return frozenset(inside), frozenset(outside)
