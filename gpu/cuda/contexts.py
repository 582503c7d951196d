"""The primary contexts of NVIDIA GPUs, which torch and CuPy share, and their pools of memory."""

from __future__ import annotations

import atexit
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import Any

from gpu.cuda.driver import load, started
from reference.errors import NoGpuError


@cache
def driver() -> Any:
    """PyCUDA's driver module or its stand-in, initialised."""
    return started(load(), "simwarp.Device()")


@cache
def primary(ordinal: int) -> Any:
    """The primary context of a device; the first one is current until the process ends."""
    cuda = driver()
    if ordinal >= cuda.Device.count():
        raise NoGpuError(
            f"there is no CUDA device {ordinal}; {cuda.Device.count()} found\n"
            "choose another, or use simwarp.Device()"
        )
    context = cuda.Device(ordinal).retain_primary_context()
    if not _FIRST:
        _FIRST.append(ordinal)
        context.push()
        atexit.register(context.pop)
    return context


_FIRST: list[int] = []
"""The device whose context is current unless `current` sets another."""


@contextmanager
def current(ordinal: int) -> Generator[None]:
    """Make a device's context current in the thread, which must not end with one of PyCUDA's."""
    context = primary(ordinal)
    context.push()
    try:
        yield
    finally:
        context.pop()


@cache
def pools(ordinal: int) -> dict[int, Any]:
    """The pools of a device, by the number of the stream whose work they are for."""
    primary(ordinal)
    return {}


def pool(ordinal: int, queue: int = 0) -> Any:
    """A pool of device memory that freed arrays return to; an allocation by the driver takes 60 us."""
    of_streams = pools(ordinal)
    memory = of_streams.get(queue)
    if memory is None:
        with current(ordinal):  # which the pool keeps for its allocations
            memory = of_streams[queue] = driver().DeviceMemoryPool()
        atexit.register(memory.stop_holding)  # before the context goes
    return memory
