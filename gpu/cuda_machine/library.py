"""Where cuBLAS is: in a pip package, in the CUDA toolkit, or where the system's loader looks."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reference.errors import MissingExtraError

NAME = "libcublas.so.13"


def library() -> Any:
    """CuBLAS, loaded."""
    found: list[str] = []
    for path in candidates():
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            found.append(str(error))
    raise MissingExtraError(
        f"level-3 BLAS on GPUs needs cuBLAS, which cannot be loaded ({found[-1]})\npip install 'simwarp[gpu]'"
    )


def candidates() -> Iterator[str]:
    """Paths of files that exist, and at last the bare name."""
    spec = importlib.util.find_spec("nvidia")
    packages = list(spec.submodule_search_locations or []) if spec else []
    toolkit = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    folders = [Path(folder) / "cu13" / "lib" for folder in packages]
    folders += [Path(toolkit) / "lib64", Path(toolkit) / "targets" / "x86_64-linux" / "lib"]
    yield from (str(folder / NAME) for folder in folders if (folder / NAME).is_file())
    yield NAME
