"""Loads NVIDIA's libraries: from pip packages, the CUDA toolkit, or the system's paths."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reference.errors import MissingExtraError


@dataclass(frozen=True)
class Library:
    """A library that is loaded when it is needed."""

    file: str  # its name for the loader
    folder: str  # in pip's ``nvidia`` packages
    needs: str  # what needs it, for the message if it is missing
    install: str  # the package for pip

    def load(self) -> Any:
        """Load the shared library; raise `MissingExtraError` if no candidate loads."""
        errors: list[str] = []
        for path in self.candidates():
            try:
                return ctypes.CDLL(path)
            except OSError as error:
                errors.append(str(error))
        raise MissingExtraError(
            f"{self.needs}, which cannot be loaded ({errors[-1]})\npip install {self.install}"
        )

    def candidates(self) -> Iterator[str]:
        """Paths of existing files, and then the bare name."""
        spec = importlib.util.find_spec("nvidia")
        packages = list(spec.submodule_search_locations or []) if spec else []
        toolkit = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
        folders = [Path(package) / self.folder for package in packages]
        folders += [Path(toolkit) / "lib64", Path(toolkit) / "targets" / "x86_64-linux" / "lib"]
        yield from (str(folder / self.file) for folder in folders if (folder / self.file).is_file())
        yield self.file


CUBLAS = Library("libcublas.so.13", "cu13/lib", "level-3 BLAS on GPUs needs cuBLAS", "'simwarp[gpu]'")
CUDNN = Library("libcudnn.so.9", "cudnn/lib", "convolution on GPUs needs cuDNN 9", "nvidia-cudnn-cu13")
