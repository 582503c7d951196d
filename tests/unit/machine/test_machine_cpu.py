"""The host's cores of a simulated machine: times, races with copies, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from reference.errors import DeviceLostError, LaunchError, ShapeError
from simwarp.machine import Cpu, DeviceLost, Machine, Slow, TileRaceError, UnpinnedError
from simwarp.machine.topology import HOST
from support.machines import column, pinned, small, tile

FLOAT64 = np.dtype("f8")
WITH_CORES = small(cpu=Cpu("cores", {"float64": 10.0}))


@dataclass(frozen=True)
class Doubled:
    """``target = 2 source``, in the host's memory."""

    source: Any
    target: Any
    operations: float = 20.0
    name: str = "double"
    dtype: Any = FLOAT64

    @property
    def reads(self) -> Any:
        return (self.source,)

    @property
    def writes(self) -> Any:
        return (self.target,)

    def compute(self) -> None:
        self.target[...] = 2 * self.source


def waits(*events: Any) -> Any:
    """A worker that waits for events."""
    yield from events


def test_routines_of_the_cores_follow_one_another_beside_a_device():
    machine = Machine(WITH_CORES)
    first, second, third = pinned(machine, column(), column(value=0.0), column(value=0.0))
    machine.copy_in(machine.stream(0), first, tile(machine))
    machine.run([waits(machine.compute(Doubled(first, second)), machine.compute(Doubled(second, third)))])
    assert np.array_equal(third, 4 * first)
    own = [(one.start, one.end) for one in machine.timeline if one.device == HOST]
    assert own == [(0.0, 2.0), (2.0, 4.0)]  # 20 operations at 10 a second
    assert machine.timeline.busy(HOST) == 4.0
    assert machine.seconds() == 5.0  # the copy: 1 s, and 1 s for each two doubles


def test_a_slow_host_takes_longer():
    machine = Machine(WITH_CORES, injections=[Slow(HOST, 3.0)])
    first, second = pinned(machine, column(), column())
    machine.run([waits(machine.compute(Doubled(first, second)))])
    assert machine.seconds() == 6.0


@pytest.mark.parametrize("is_ordered", [False, True])
def test_a_copy_and_the_cores_race_unless_a_worker_waits(is_ordered):
    machine = Machine(WITH_CORES)
    first, second = pinned(machine, column(), column())
    stream, target = machine.stream(0), tile(machine)

    def worker() -> Any:
        event = machine.compute(Doubled(first, second))
        if is_ordered:
            yield event
        machine.copy_in(stream, second, target)
        yield machine.record(stream)

    if is_ordered:
        machine.run([worker()])
        return
    with pytest.raises(TileRaceError) as caught:
        machine.run([worker()])
    assert (caught.value.operation, caught.value.other, caught.value.other_device) == (
        "copy in",
        "double",
        HOST,
    )
    assert "double of the host's cores" in str(caught.value)


def test_what_the_cores_cannot_do_is_refused():
    machine = Machine(WITH_CORES)
    first, second = pinned(machine, column(), column())
    with pytest.raises(UnpinnedError, match="a matrix of double"):
        machine.compute(Doubled(first, column()))
    with pytest.raises(ShapeError, match="strides"):
        machine.compute(Doubled(pinned(machine, np.zeros((4, 6))).T[::2], second))
    with pytest.raises(LaunchError, match="no rate for float32"):
        machine.compute(Doubled(first, second, dtype=np.dtype("f4")))
    with pytest.raises(LaunchError, match="the event is of the host's cores"):
        machine.wait(machine.stream(0), machine.compute(Doubled(first, second)))
    with pytest.raises(LaunchError, match="1 small has no cpu"):
        Machine(small()).compute(Doubled(first, second))
    with pytest.raises(LaunchError, match="no device -1"):
        Machine(small(), injections=[DeviceLost(HOST, 1.0)])
    with pytest.raises(LaunchError, match="a bandwidth, a rate or a step is 0"):
        small(cpu=Cpu("none", {"float64": 0.0}))


def test_lost_cores_take_nothing_more():
    machine = Machine(WITH_CORES, injections=[DeviceLost(HOST, 1.0)])
    first, second = pinned(machine, column(), column(value=0.0))
    with pytest.raises(DeviceLostError, match=r"failed at 1\.0 s, while they ran double of the host's cores"):
        machine.run([waits(machine.compute(Doubled(first, second)))])
    assert not second.any()
    with pytest.raises(DeviceLostError):
        machine.compute(Doubled(first, second))
