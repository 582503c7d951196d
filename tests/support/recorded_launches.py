"""The launches of host code, each as a launch of its own with the bytes that its arrays had."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import gpu
from gpu.device import is_array
from simwarp.device.device import Device
from simwarp.lab.recording import example
from simwarp.lab.subjects import kernels
from simwarp.run import Result
from simwarp.run.binding import bind
from simwarp.run.both.compare import writer_of
from simwarp.run.both.devices import Second, with_equal_bytes
from simwarp.run.both.parting import Found, find_parting
from simwarp.run.kernel import run_on
from simwarp.run.source import from_ptx
from simwarp.run.work import Work


class RecordingDevice(Device):
    """A simulated device that keeps each launch of a kernel as a `Work`, up to a number of them by kernel."""

    def __init__(self, most: int = 2, **options: Any) -> None:
        super().__init__(**options)
        self.most, self.recorded = most, list[Work]()

    def load(self, ptx: Any) -> Any:
        """Load PTX, and record the launches of its kernels."""
        return _Module(self, super().load(ptx), getattr(ptx, "text", ptx))


class _Module:
    def __init__(self, device: RecordingDevice, module: Any, ptx: str) -> None:
        self._device, self._module, self._ptx = device, module, ptx

    def kernel(self, name: str) -> Any:
        kernel, source = self._module.kernel(name), from_ptx(self._ptx)
        device = self._device

        def launch(grid: Any, block: Any, *args: Any, stream: Any = None, **options: Any) -> None:
            function = source.entries[kernel.name]
            known = sum(work.kernel.name == function.name for work in device.recorded)
            if known < device.most:
                given = [x.download() if is_array(x) else x for x in args]
                threads = [_three(extent) for extent in (grid, block)]
                how = {key: x for key, x in options.items() if key != "dependent"}
                device.recorded.append(Work(source, function, *threads, given, **how))
            kernel(grid, block, *args, stream=stream, **options)

        return launch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _three(extent: Any) -> tuple[int, int, int]:
    sizes = (extent,) if isinstance(extent, int) else tuple(extent)
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


@cache
def recorded(name: str) -> tuple[Work, ...]:
    """The launches of an example of ``examples/kernels``, or of a scheme of `gpu.bmm`."""
    device = RecordingDevice()
    if name in SCHEMES:
        draw = np.random.default_rng(3)
        gpu.bmm(draw.standard_normal((40, 70)), draw.standard_normal((70, 24)), device=device, scheme=name)
    else:
        example("kernels", name).run(device, 0)
    return tuple(device.recorded)


SCHEMES = ("bmm32", "bmm64", "bmms32", "btc1", "btc2", "btc3")
NAMES = (*kernels.names(), *SCHEMES)


def assert_not_parted(work: Work, chip: Second) -> None:
    """Assert that the writer of an element that a launch changes computes the same on both devices."""
    result, plain = run_on(Device(), work), with_equal_bytes(work)
    position, offset = _changed(plain, result)
    writer = writer_of(plain, position, offset, 1, Device)[0]
    part = find_parting(Found(plain, plain, chip, Device, position, offset, writer, str))
    assert part.what == "lost", f"{work.kernel.name}\n{part}"
    assert "computes the same on both devices" in part.note, f"{work.kernel.name}\n{part}"


def _changed(work: Work, result: Result) -> tuple[int, int]:
    """The position of an array that a launch changed, and a byte in the middle of the changed ones."""
    given = {at: one.value for at, one in enumerate(bind(work.kernel, names_of(work), work.args))}
    for position, (name, array) in result.outputs.by_position.items():
        if name in result.changed:
            before = np.ascontiguousarray(given[position]).reshape(-1).view(np.uint8)
            changed = np.flatnonzero(before != array.reshape(-1).view(np.uint8))
            return position, int(changed[changed.size // 2])
    raise AssertionError(f"{work.kernel.name} changes nothing")


def names_of(work: Work) -> tuple[str, ...]:
    """The names of a kernel's parameters."""
    return work.source.parameters(work.kernel)
