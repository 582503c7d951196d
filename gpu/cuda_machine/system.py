"""The driver and cuBLAS, on which a `CudaMachine` runs; the rest of the package gets them from here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from gpu.cuda_machine.library import CUBLAS
from reference.errors import MissingExtraError, NoGpuError


@dataclass(frozen=True)
class System:
    """The libraries of a computer with GPUs: `cuda.bindings.driver`, initialised, and cuBLAS."""

    driver: Any
    cublas: Any


@cache
def system() -> System:
    """Load this computer's CUDA driver, cuBLAS and cuDNN libraries."""
    driver = _driver()
    return System(driver, CUBLAS.load())


def _driver() -> Any:
    """The driver's functions; NoGpuError if there is no GPU."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise MissingExtraError(
            f"a machine of GPUs needs cuda-bindings, which is not installed ({error})\n"
            "pip install 'simwarp[gpu]'"
        ) from None
    try:
        (status,) = driver.cuInit(0)
        why = status.name if status else ""
    except RuntimeError as error:  # libcuda is missing
        why = str(error).partition("\n")[0]
    if why:
        raise NoGpuError(f"CUDA cannot start: {why}\ncheck nvidia-smi, or use simwarp.Machine()")
    return driver
