"""What every test shares: the Hypothesis profile, and the skip of hardware tests without hardware."""

import ctypes
import os

import pytest
from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None, database=None)
settings.register_profile("dev", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def _why_no_gpu() -> str | None:
    try:
        status = ctypes.CDLL("libcuda.so.1").cuInit(0)
    except OSError as error:
        return f"needs an NVIDIA GPU, and the CUDA driver cannot be loaded: {error}"
    return f"needs an NVIDIA GPU, but cuInit returned {status}" if status else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    hardware = [item for item in items if item.get_closest_marker("gpu")]
    reason = _why_no_gpu() if hardware else None
    if reason:
        for item in hardware:
            item.add_marker(pytest.mark.skip(reason=reason))
