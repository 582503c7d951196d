"""The driver as a machine calls it: the error for each call that fails, and the devices that are lost."""

from __future__ import annotations

import time
from typing import Any, Protocol

from gpu.cuda import driver as cuda_driver
from reference.errors import DeviceLostError, MachineError

_LOST = {
    f"CUDA_ERROR_{name}"
    for name in (
        "CONTEXT_IS_DESTROYED", "DEVICE_UNAVAILABLE", "ECC_UNCORRECTABLE", "EXTERNAL_DEVICE", "CONTAINED",
        "HARDWARE_STACK_ERROR", "ILLEGAL_ADDRESS", "ILLEGAL_INSTRUCTION", "INVALID_ADDRESS_SPACE",
        "INVALID_PC", "LAUNCH_FAILED", "LAUNCH_TIMEOUT", "MISALIGNED_ADDRESS", "NVLINK_UNCORRECTABLE",
        "TENSOR_MEMORY_LEAK", "UNKNOWN",
    )
}  # fmt: skip
"""Statuses after which a context is unusable."""


class DriverError(MachineError, RuntimeError):
    """A call of the driver that failed; ``call`` is its function, ``status`` the name of its status."""

    call: str = ""
    status: str = ""
    device: int = -1


class DriverStream(Protocol):
    """A stream of the driver and its device, as `gpu.cuda_machine.queues.Queue` has them."""

    device: int
    stream: Any


class Driver:
    """The driver's functions, each of which raises if it fails.

    ``api`` has them: the bindings, or what replaces them in tests. ``lost`` holds the devices whose context
    has failed.
    """

    def __init__(self, api: Any = None) -> None:
        self.api = api or cuda_driver.started(cuda_driver, "simwarp.Machine()").bindings
        self.lost: set[int] = set()

    def call(self, name: str, *args: Any, device: int = -1) -> Any:
        """The value of a call, or None; `DriverError` or `DeviceLostError` if it fails."""
        return cuda_driver.value_of(getattr(self.api, name)(*args), self.error, name, device)

    def error(self, status: Any, call: str, device: int) -> MachineError:
        """The error for a status; notes the loss of a device."""
        name, where = str(status.name), f"device {device}" if device >= 0 else "the driver"
        if name in _LOST:
            self.lost.add(device)
            return DeviceLostError(
                f"{where} is lost",
                f"{call} returned {name}, which all later work of this process on it returns, too",
                "end the process, or leave out the device, and repeat what it had not copied to the host",
                device=device,
                seconds=time.perf_counter(),
            )
        return DriverError(
            f"{call} of {where} failed",
            f"it returned {name}",
            "nothing that was queued later runs; see the CUDA driver API for this status",
            call=call,
            status=name,
            device=device,
        )
