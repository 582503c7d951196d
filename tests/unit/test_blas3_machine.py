"""Level-3 BLAS on simulated machines with a clock, which find races, leaks and unwritten bytes."""

import random
from typing import Any

import numpy as np
import pytest

import gpu.blas3
from gpu.blas3.execute import execute
from gpu.blas3.options import Options
from gpu.blas3.plan import plan_of
from gpu.blas3.problem import ROUTINES
from gpu.blas3.statistics import Statistics
from simwarp.machine import (
    EIGHT,
    EVEREST,
    H200,
    MAKALU,
    AllocationFails,
    CopyFails,
    DeviceLost,
    H200x2,
    H200x4,
    Machine,
)
from support.blas3_calls import draw_call, draw_options, judged, product

TOPOLOGIES = (H200, H200x2, H200x4, EIGHT, EVEREST, MAKALU)


def is_clean(machine: Machine) -> bool:
    return not machine.pinned() and not any(machine.allocated(d) for d in range(machine.devices))


def check(draw: random.Random, routine: str, seed: int) -> None:
    drawn, options = draw_call(draw, routine), draw_options(draw)
    before = {name: x.copy() for name, x in drawn.matrices.items()}
    call, tile = drawn.call(), draw.randint(1, 6)
    is_real = call.problem.dtype.kind == "f"  # the paper's machines have no rates of complex numbers
    topology = draw.choice(TOPOLOGIES if is_real else TOPOLOGIES[:4])
    machine = Machine(topology, seed=seed, jitter=draw.choice([0.0, 0.5, 20.0]))
    needed = plan_of(call.problem, tile, [1 << 30] * machine.devices, options).needed
    execute(call, machine, tile, max(needed, 1) * draw.choice([1, 1, 2, 100]), options, None)
    assert judged(drawn, before, drawn.matrices[drawn.result]) <= 1, (drawn, options)
    assert is_clean(machine)


@pytest.mark.parametrize("routine", ROUTINES)
def test_calls_on_simulated_machines_are_right(routine: str) -> None:
    draw = random.Random(f"machine of {routine}")
    for seed in range(10):
        check(draw, routine, seed)


@pytest.mark.gate
@pytest.mark.parametrize("routine", ROUTINES)
def test_many_calls_on_simulated_machines_are_right(routine: str) -> None:
    draw = random.Random(f"machines of {routine}")
    for seed in range(250):
        check(draw, routine, seed)


@pytest.mark.parametrize("injection", [CopyFails("in", 0, after=5), DeviceLost(0, 3e-5), AllocationFails(1)])
def test_a_lost_device_or_copy_leaves_nothing_behind(injection: Any) -> None:
    machine = Machine(H200x2, injections=[injection])
    with pytest.raises(Exception, match=r"device [01]"):
        execute(product(40).call(), machine, 4, None, None, None)
    assert is_clean(machine)


def seconds(machine: Machine, options: Options, n: int = 8192, tile: int = 1024) -> Statistics:
    """A large product without values: its times and counts."""
    matrices: dict[Any, Any] = {name: np.empty((n, n), order="F") for name in "abc"}
    statistics = Statistics()
    call = gpu.blas3.arguments.call_of("dgemm", 1.0, 0.5, matrices, {})
    execute(call, machine, tile, None, options, statistics)
    return statistics


def test_todays_order_is_faster_than_the_papers() -> None:
    ours, paper = (
        seconds(Machine(H200x2, values=False), options) for options in (Options(), Options.paper())
    )
    assert ours.seconds < paper.seconds
    assert ours.total("bytes_in") <= paper.total("bytes_in")


def test_cache_and_peers_pay() -> None:
    by_option = {
        name: seconds(Machine(H200x4, values=False), Options(**option)).seconds
        for name, option in {"all": {}, "no peer": {"peer": "none"}, "no cache": {"cache": False}}.items()
    }
    assert by_option["all"] < by_option["no peer"] < by_option["no cache"]


def test_devices_share_the_work_by_their_speed() -> None:
    statistics = seconds(Machine(MAKALU, values=False), Options(), 8192, 512)
    k40, titan = statistics.devices[0].tasks, statistics.devices[-1].tasks
    assert k40 > 3 * titan, [device.tasks for device in statistics.devices]
