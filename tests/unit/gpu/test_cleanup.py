"""What a call takes of a machine, and gives back however it ends."""

import linecache
import sys
from types import FrameType
from typing import Any

import numpy as np
import pytest

from gpu import blas3, outofcore
from gpu.cleanup import leaving_nothing
from reference.errors import DeviceMemoryError
from simwarp.machine import H200x2, Machine


def test_what_was_there_before_stays() -> None:
    machine, x, y = Machine(H200x2), np.zeros(3), np.zeros(4)
    mine = machine.allocate(1, 8)
    machine.pin(x)

    def fail() -> None:
        with leaving_nothing(machine, [x, y, y]):
            assert (machine.pins(x), machine.pins(y)) == (2, 2)
            machine.allocate(0, 16), machine.allocate(1, 16)
            machine.allocate(1, 1 << 60)

    with pytest.raises(DeviceMemoryError):
        fail()
    assert (machine.pins(x), machine.pins(y)) == (1, 0)
    assert machine.allocated(0) == ()
    assert machine.allocated(1) == (mine,)


MANY = 1 << 40


class Interrupt:
    """A trace function that raises at the n-th line of a call, those of the clean-up itself left out."""

    def __init__(self, line: int) -> None:
        self.left = line

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        code = frame.f_code
        if "/gpu/" not in code.co_filename:
            return None
        if event == "line" and self._counts(code.co_filename, code.co_name, frame.f_lineno):
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt
        return self

    @staticmethod
    def _counts(path: str, name: str, line: int) -> bool:
        if path.endswith("cleanup.py"):
            return name == "leaving_nothing" and "machine.pin(" in linecache.getline(path, line)
        if path.endswith("slabs.py"):
            return name != "close"
        return path.endswith(("run.py", "pools.py", "worker.py", "pipeline.py"))


def product(machine: Machine) -> None:
    blas3.dgemm(1.0, np.ones((6, 6)), np.ones((6, 6)), device=machine, tile=3)


def convolution(machine: Machine) -> None:
    x, w = np.ones((1, 2, 4, 4), np.float32), np.ones((2, 2, 3, 3), np.float32)
    outofcore.conv2d(x, w, device=machine)


def training(machine: Machine) -> None:
    network = outofcore.Network((1, 4, 4), (outofcore.Conv(2), outofcore.Flatten(), outofcore.Dense(2)))
    with outofcore.Trainer(network, 2, device=machine) as trainer:
        trainer.step(np.ones((2, 1, 4, 4), np.float32), [0, 1])


def lines_of(call: Any) -> int:
    """The lines that a call executes; Pythons differ in what they count as one."""
    counter, before = Interrupt(MANY), sys.gettrace()
    sys.settrace(counter)
    try:
        call(Machine(H200x2))
    finally:
        sys.settrace(before)
    return MANY - counter.left


@pytest.mark.at_most(1)
@pytest.mark.parametrize(("call", "least"), [(product, 119), (convolution, 119), (training, 20)])
def test_an_interrupt_at_any_line_leaves_nothing(call: Any, least: int) -> None:
    lines = min(lines_of(call), 119)
    assert lines >= least
    for line in range(1, lines + 1):
        machine, before = Machine(H200x2), sys.gettrace()
        sys.settrace(Interrupt(line))
        try:
            with pytest.raises(KeyboardInterrupt):
                call(machine)
        finally:
            sys.settrace(before)
        assert not machine.pinned()
        assert not any(map(machine.allocated, range(2)))
