"""Cleanup: a call frees its memory and undoes its pins of a machine, however it ends."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy.typing as npt

from gpu.machine import Machine

Array = npt.NDArray[Any]


@contextmanager
def leaving_nothing(machine: Machine, arrays: Sequence[Array]) -> Generator[None]:
    """Pin arrays for a block, which may also allocate; at its end, restore the pins and free the new memory.

    The machine's own lists say what is new: Ctrl-C may come between an allocation and any note of it.
    """
    devices = range(machine.devices)
    known = {id(memory) for device in devices for memory in machine.allocated(device)}
    pins = [(array, machine.pins(array)) for array in arrays]
    try:
        for array in arrays:
            machine.pin(array)
        yield
    finally:
        with ExitStack() as stack:
            for array, count in pins:
                stack.callback(_unpin, machine, array, count)
            for memory in [memory for device in devices for memory in machine.allocated(device)]:
                if id(memory) not in known:
                    stack.callback(machine.free, memory)


def _unpin(machine: Machine, array: Array, count: int) -> None:
    """Undo the pins of an array beyond the first ``count``."""
    while machine.pins(array) > count:
        machine.unpin(array)
