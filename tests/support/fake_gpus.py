"""`CudaMachine` on a `FakeDriver`, a `FakeCublas` and a `FakeCudnn`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from gpu.cuda_machine import CudaMachine, machine
from gpu.cuda_machine.driver import Driver
from support.fake_cublas import FakeCublas
from support.fake_cudnn import FakeCudnn
from support.fake_driver import FakeDriver


@dataclass
class Gpus:
    """The fakes that a machine runs on."""

    driver: FakeDriver
    cublas: FakeCublas
    cudnn: FakeCudnn

    def is_clean(self) -> bool:
        """True if nothing is left behind after the machine was closed."""
        return self.driver.is_clean() and not any(
            (self.cublas.handles, self.cudnn.handles, self.cudnn.descriptors)
        )


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Gpus]:
    """Replace the driver and cuBLAS of the machines that are made from now on."""
    pytest.importorskip("cuda.bindings.driver")

    def make(devices: int = 1, seed: int = 0, refused: Any = None, **properties: Any) -> Gpus:
        driver = FakeDriver(devices, seed, **properties)
        found = Gpus(driver, FakeCublas(driver, refused), FakeCudnn(driver))
        monkeypatch.setattr(machine, "Driver", lambda: Driver(found.driver))
        monkeypatch.setattr(machine, "CUBLAS", SimpleNamespace(load=lambda: found.cublas))
        monkeypatch.setattr(machine, "CUDNN", SimpleNamespace(load=lambda: found.cudnn))
        return found

    return make


def closed(found: CudaMachine) -> None:
    """Close a machine whose devices may be lost or refuse to."""
    for _ in range(3):
        try:
            found.close()
        except Exception:  # the planted failure of a release
            continue
        return
