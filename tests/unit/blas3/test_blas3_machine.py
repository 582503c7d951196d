"""Level-3 BLAS on simulated machines with a clock, which find races, leaks and unwritten bytes."""

import random
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import gpu.blas3
from gpu.blas3 import run as runs
from gpu.blas3.execute import execute
from gpu.blas3.options import Options
from gpu.blas3.plan import plan_of
from gpu.blas3.statistics import Statistics
from gpu.blas3.table import ROWS
from simwarp.machine import (
    EIGHT,
    EVEREST,
    H200,
    MAKALU,
    AllocationFails,
    CopyFails,
    DeviceLost,
    DeviceLostError,
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
    machine = Machine(draw.choice(TOPOLOGIES), seed=seed, jitter=draw.choice([0.0, 0.5, 20.0]))
    needed = plan_of(call.problem, tile, [1 << 30] * machine.devices, options).needed
    execute(call, machine, tile, max(needed, 1) * draw.choice([1, 1, 2, 100]), options, None)
    assert judged(drawn, before, drawn.matrices[drawn.result]) <= 1, (drawn, options)
    assert is_clean(machine)


@pytest.mark.at_most(3)
@pytest.mark.parametrize("routine", ROWS)
def test_calls_on_simulated_machines_are_right(routine: str) -> None:
    draw = random.Random(f"machine of {routine}")
    for seed in range(10):
        check(draw, routine, seed)


@pytest.mark.gate
@pytest.mark.parametrize("routine", ROWS)
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


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.gate_cases("symm", "hemm", "herk", "syr2k", "her2k")  # tasks of gemm and syrk
@pytest.mark.parametrize("routine", ROWS)
def test_the_others_finish_what_a_lost_device_leaves(routine: str) -> None:
    draw, lost = random.Random(f"losses of {routine}"), 0
    for seed in range(40):
        drawn, options = draw_call(draw, routine, 30), replace(draw_options(draw), on_device_loss="continue")
        before = {name: x.copy() for name, x in drawn.matrices.items()}
        call, tile = drawn.call(), draw.randint(2, 8)
        losses = [DeviceLost(device, draw.uniform(0, 2e-4)) for device in draw.sample(range(4), 2)]
        machine = Machine(H200x4, seed=seed, jitter=draw.choice([0.0, 20.0]), injections=losses)
        execute(call, machine, tile, None, options, None)
        assert judged(drawn, before, drawn.matrices[drawn.result]) <= 1, (drawn, options, losses)
        assert is_clean(machine)
        lost += any(loss.seconds < machine.seconds() for loss in losses)
    assert lost > 20


@pytest.mark.parametrize("routine", ["dgemm", "dtrsm"])
def test_without_any_device_the_result_is_as_before(routine: str) -> None:
    rng = np.random.default_rng(1)
    a, b, c = (np.asfortranarray(rng.standard_normal((40, 40)) + 40 * np.eye(40)) for _ in range(3))
    for at in (1e-5, 5e-5, 2e-4):
        losses = [DeviceLost(0, at), DeviceLost(1, at * 1.5)]
        machine, result = Machine(H200x2, jitter=2.0, injections=losses), c.copy(order="F")
        options: dict[str, Any] = {
            "device": machine,
            "tile": 8,
            "options": Options(on_device_loss="continue"),
        }
        product, solution = gpu.blas3.dgemm, gpu.blas3.dtrsm
        call = partial(product, 1.0, a, b, 0.5, result, overwrite_c=1)
        if routine == "dtrsm":
            call = partial(solution, 1.0, a, result, overwrite_b=1)
        with pytest.raises(DeviceLostError):
            call(**options)
        np.testing.assert_array_equal(result, c)
        assert is_clean(machine)


def test_a_device_that_is_lost_again_ends_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[Any] = []

    def lost(run: Any, call: Any, plan: Any, devices: Any, counts: Any) -> None:
        attempts.append(tuple(devices))
        call.matrices["c"][...] = np.nan
        raise DeviceLostError("device 0 is lost", device=0)

    monkeypatch.setattr(runs, "_run", lost)
    drawn, options = product(12), Options(on_device_loss="continue")
    before = drawn.matrices["c"].copy()
    with pytest.raises(DeviceLostError):
        execute(drawn.call(), Machine(H200x4), 4, None, options, None)
    assert attempts == [(0, 1, 2, 3), (1, 2, 3)]
    np.testing.assert_array_equal(drawn.matrices["c"], before)


def test_a_loss_changes_no_bit() -> None:
    results: list[Any] = []
    for losses in ([], [DeviceLost(1, 5e-5)]):
        drawn, statistics = product(60), Statistics()
        options = Options(on_device_loss="continue")
        execute(drawn.call(), Machine(H200x2, injections=losses), 8, None, options, statistics)
        results.append((drawn.matrices["c"], statistics.total("tasks")))
    (whole, tasks), (mended, more) = results
    np.testing.assert_array_equal(whole, mended)
    assert tasks == 64 < more <= 2 * 64


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


@pytest.mark.slow
def test_devices_share_the_work_by_their_speed() -> None:
    statistics = seconds(Machine(MAKALU, values=False), Options(), 8192, 512)
    k40, titan = statistics.devices[0].tasks, statistics.devices[-1].tasks
    assert k40 > 3 * titan, [device.tasks for device in statistics.devices]


@pytest.mark.parametrize("topology", [H200, H200x2], ids=lambda topology: topology.name)
def test_progress_counts_the_tiles_that_the_host_has(topology: Any) -> None:
    seen: list[tuple[int, int]] = []
    drawn = product(24)
    options = Options(progress=lambda *counts: seen.append(counts))
    execute(drawn.call(), Machine(topology), 6, None, options, None)
    assert seen == [(done, 16) for done in range(1, 17)]


def test_what_progress_raises_ends_the_call_cleanly() -> None:
    def stop(done: int, _: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    machine = Machine(H200x2)
    with pytest.raises(KeyboardInterrupt):
        execute(product(24).call(), machine, 6, None, Options(progress=stop), None)
    assert not machine.pinned()
    assert not any(map(machine.allocated, range(2)))
