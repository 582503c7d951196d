"""A CUDA driver that keeps the calls of launches instead of making them; with types of cuda.bindings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpu.cuda.driver import Bindings
from gpu.cuda.kernels import CudaKernel
from reference.devices.launch import Dim


class CudaDriver:
    """The driver; a call that it does not keep is looked up in `cuda.bindings.driver`.

    ``set`` has the attributes of functions that were set, ``launched`` the arguments of each launch,
    ``nodes`` the attributes of kernel nodes that were set: node, attribute, value.
    """

    def __init__(self, real: Any, required: Dim = (0, 0, 0), clusters: int = 1) -> None:
        self.real, self.success = real, real.CUresult.CUDA_SUCCESS
        self.set: list[tuple[str, int]] = []
        self.launched: list[tuple[Any, ...]] = []
        self.nodes: list[tuple[str, str, Any]] = []
        which = real.CUfunction_attribute
        attributes = {
            which.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: 48 * 1024,
            which.CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH: required[0],
            which.CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT: required[1],
            which.CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH: required[2],
        }
        self.calls: dict[str, Callable[..., Any]] = {
            "cuModuleGetFunction": lambda *_: (self.success, real.CUfunction(7)),
            "cuFuncGetParamInfo": lambda *_: (real.CUresult.CUDA_ERROR_INVALID_VALUE, 0, 0),
            "cuFuncGetAttribute": lambda attribute, _: (self.success, attributes.get(attribute, 0)),
            "cuFuncSetAttribute": self._set,
            "cuCtxGetDevice": lambda: (self.success, 0),
            "cuDeviceGetAttribute": lambda *_: (self.success, clusters),
            "cuGraphCreate": lambda _: (self.success, "graph"),
            "cuGraphInstantiate": lambda *_: (self.success, "executable"),
            "cuGraphAddKernelNode": lambda *args: (self.success, f"node of {args[-1].sharedMemBytes} bytes"),
            "cuGraphKernelNodeSetAttribute": self._set_of_node,
        }
        launches = ("cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel")
        self.calls |= dict.fromkeys(launches, self._launch)
        self.calls |= dict.fromkeys(("cuGraphExecDestroy", "cuGraphDestroy"), lambda _: (self.success,))

    def __getattr__(self, name: str) -> Any:
        return self.calls.get(name) or getattr(self.real, name)

    def _set(self, _: Any, which: Any, value: int) -> tuple[Any]:
        self.set.append((which.name, value))
        refused = "SHARED" in which.name and value > 227 * 1024
        return (self.real.CUresult.CUDA_ERROR_INVALID_VALUE if refused else self.success,)

    def _set_of_node(self, node: str, which: Any, value: Any) -> tuple[Any]:
        self.nodes.append((node, which.name, value))
        return (self.success,)

    def _launch(self, *args: Any) -> tuple[Any]:
        self.launched.append(args)
        return (self.success,)


def replace_driver(monkeypatch: pytest.MonkeyPatch, driver: Any) -> None:
    """Let every call of the driver go to another object."""
    monkeypatch.setattr(Bindings, "__getattribute__", lambda _, name: getattr(driver, name), raising=False)


@pytest.fixture
def cuda_kernel(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[CudaKernel, CudaDriver]]:
    """Make a kernel without parameters, on a `CudaDriver` with some properties."""
    real = pytest.importorskip("cuda.bindings.driver")

    def make(**properties: Any) -> tuple[CudaKernel, CudaDriver]:
        driver = CudaDriver(real, **properties)
        replace_driver(monkeypatch, driver)
        return CudaKernel("module", "f", []), driver

    return make
