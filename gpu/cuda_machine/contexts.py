"""The primary contexts of devices, and which of them is current."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from gpu.cuda_machine.driver import Driver
from gpu.device import name_of
from reference.errors import DtypeError, LaunchError, MachineError, NoGpuError
from reference.types.fields import is_integer


def check_ordinals(given: Any) -> None:
    """Raise DtypeError unless the argument is a sequence of numbers of GPUs."""
    is_sequence = isinstance(cast("object", given), Sequence)
    if given is None or (is_sequence and all(map(is_integer, given))):
        return
    is_count = is_integer(given) and given > 0
    first = f"range({given}) for the first {given}" if is_count else "[0] for the first one"
    raise DtypeError(
        f"CudaMachine: devices is {name_of(given)}\nit must be a sequence of numbers of GPUs, from 0 on\n"
        f"pass {first}, or leave devices out for all"
    )


class Contexts:
    """The contexts of a machine's devices; `on` makes one current for a ``with`` block.

    The thread's own context is current again only at the end of the outermost block: an inner block does not
    restore its outer block's context, so each call enters `on` first. ``ordinals`` are the driver's numbers
    of the devices.
    """

    def __init__(self, driver: Driver, ordinals: Sequence[int] | None) -> None:
        self._driver = driver
        count = int(driver.call("cuDeviceGetCount"))
        self.ordinals = tuple(range(count) if ordinals is None else ordinals)
        wrong = [ordinal for ordinal in self.ordinals if not 0 <= ordinal < count]
        if wrong or not self.ordinals or len(set(self.ordinals)) < len(self.ordinals):
            raise NoGpuError(
                f"CUDA devices {list(self.ordinals)}; {count} found\n"
                "a machine has at least one device, and each once\n"
                "choose others, or use simwarp.Machine()"
            )
        self.devices = [driver.call("cuDeviceGet", ordinal) for ordinal in self.ordinals]
        self.handles: list[Any] = []
        self._depth, self._now = 0, -1
        try:
            for device, handle in enumerate(self.devices):
                self.handles.append(driver.call("cuDevicePrimaryCtxRetain", handle, device=device))
        except BaseException:
            self.release()
            raise

    def on(self, device: int) -> Contexts:
        """Make a device's context current, until the end of the outermost block."""
        if not self._depth:
            if not self.handles:
                raise LaunchError("work on a machine\nit is closed\nmake another CudaMachine")
            self._driver.call("cuCtxPushCurrent", self.handles[device], device=device)
            self._now = device
        elif self._now != device:
            self._driver.call("cuCtxSetCurrent", self.handles[device], device=device)
            self._now = device
        self._depth += 1
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._driver.api.cuCtxPopCurrent()

    @contextmanager
    def apart(self, device: int = 0) -> Generator[None]:
        """Like `on`, for a finaliser, which any thread runs at any time."""
        (status,) = self._driver.api.cuCtxPushCurrent(self.handles[device])
        try:
            yield
        finally:
            if not status:
                self._driver.api.cuCtxPopCurrent()

    def peers(self) -> set[tuple[int, int]]:
        """Let devices reach their peers; returns pairs (device, peer) that can copy."""
        pairs: set[tuple[int, int]] = set()
        for device, handle in enumerate(self.devices):
            for peer, other in enumerate(self.devices):
                if device != peer and self._driver.call("cuDeviceCanAccessPeer", handle, other):
                    with self.on(device):
                        (status,) = self._driver.api.cuCtxEnablePeerAccess(self.handles[peer], 0)
                    if not status or status.name == "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED":
                        pairs.add((device, peer))
                    elif status.name != "CUDA_ERROR_TOO_MANY_PEERS":
                        raise self._driver.error(status, "cuCtxEnablePeerAccess", device)
        return pairs

    def release(self) -> None:
        """Release all contexts, and then raise the first error."""
        errors: list[MachineError] = []
        while self.handles:
            self.handles.pop()
            device = len(self.handles)
            try:
                self._driver.call("cuDevicePrimaryCtxRelease", self.devices[device], device=device)
            except MachineError as error:
                if device not in self._driver.lost:
                    errors.append(error)
        if errors:
            raise errors[0]
