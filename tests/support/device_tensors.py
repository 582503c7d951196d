"""Tensors in a machine's memory, between bytes that nothing may change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from gpu.machine import Tile
from gpu.outofcore import DeviceTensor

MARGIN = 48
"""Bytes before and behind a tensor."""


def put(machine: Any, x: Any, device: int = 0, margin: int = MARGIN) -> DeviceTensor:
    """A tensor of a device with the values of an array."""
    host = np.full(x.nbytes + 2 * margin, 0x5A, np.uint8)
    host[margin : margin + x.nbytes] = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
    memory = machine.allocate(device, host.nbytes)
    _copied(machine, memory, host, "copy_in")
    return DeviceTensor(memory, x.shape, x.dtype, offset=margin)


def get(machine: Any, of: DeviceTensor) -> Any:
    """The values of a tensor; the bytes around it are as `put` left them."""
    host = np.zeros(of.memory.nbytes, np.uint8)
    _copied(machine, of.memory, host, "copy_out")
    end = of.offset + of.size * of.itemsize
    assert (host[: of.offset] == 0x5A).all(), "the bytes before a tensor have changed"
    assert (host[end:] == 0x5A).all(), "the bytes behind a tensor have changed"
    return host[of.offset : end].view(of.dtype).reshape(of.shape)


def _copied(machine: Any, memory: Any, host: Any, way: str) -> None:
    stream, column = machine.stream(memory.device), host[:, None]
    tile = Tile(memory, 0, len(host), 1, len(host), host.dtype)
    machine.pin(host)
    getattr(machine, way)(stream, *((column, tile) if way == "copy_in" else (tile, column)))
    machine.run([])
    machine.unpin(host)


@contextmanager
def placed(
    machine: Any, names: Collection[str], margin: int = MARGIN
) -> Iterator[tuple[Callable[[str, Any], Any], Callable[[Any], Any]]]:
    """Functions that put arguments with these names on the device, and get a result beside them unchanged."""
    made: dict[str, tuple[DeviceTensor, Any]] = {}

    def given(name: str, x: Any) -> Any:
        if name not in names:
            return x
        made[name] = put(machine, x, margin=margin), x.copy()
        return made[name][0]

    def got(result: Any) -> Any:
        found = get(machine, result) if isinstance(result, DeviceTensor) else result
        for name, (tensor, before) in made.items():
            if name != "out":
                np.testing.assert_array_equal(get(machine, tensor), before, err_msg=name)
        return found

    try:
        yield given, got
    finally:
        for tensor, _ in made.values():
            machine.free(tensor.memory)
