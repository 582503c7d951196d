"""The runtime on a machine whose streams and workers go on in a random order."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpu.blas3.execute import execute
from gpu.blas3.options import Options
from gpu.blas3.plan import plan_of
from gpu.blas3.statistics import Statistics
from gpu.blas3.table import ROWS
from reference.errors import LaunchError, SchemeError
from support.blas3_calls import draw_call, draw_options, judged, product
from support.shuffled_machine import InjectedError, ShuffledMachine


def check(draw: random.Random, routine: str, seed: int) -> None:
    drawn, options = draw_call(draw, routine), draw_options(draw)
    before = {name: x.copy() for name, x in drawn.matrices.items()}
    call, tile, devices = drawn.call(), draw.randint(1, 6), draw.randint(1, 3)
    needed = plan_of(call.problem, tile, [1 << 30] * devices, options).needed
    budget = max(needed, 1) * draw.choice([1, 1, 2, 100])
    machine = ShuffledMachine(devices, seed, peers=draw.random() < 0.8)
    execute(call, machine, tile, budget, options, None)
    assert judged(drawn, before, drawn.matrices[drawn.result]) <= 1, (drawn, options)
    assert not machine.live
    assert not machine.pinned


@pytest.mark.parametrize("routine", ROWS)
def test_any_order_of_events_gives_the_right_result(routine: str) -> None:
    draw = random.Random(f"runtime of {routine}")
    for seed in range(12):
        check(draw, routine, seed)


@pytest.mark.at_most(2)
@pytest.mark.slow
@pytest.mark.gate_cases("400-*")
@pytest.mark.parametrize("routine", ROWS)
@pytest.mark.parametrize("count", [100, 400])
def test_many_orders_of_events_give_the_right_result(routine: str, count: int) -> None:
    draw = random.Random(f"long runtime of {routine}")
    for seed in range(count):
        check(draw, routine, seed)


def counts(machine: ShuffledMachine, n: int, tile: int, **options: Any) -> Statistics:
    statistics = Statistics()
    execute(product(n).call(), machine, tile, None, Options(**options), statistics)
    return statistics


def test_each_block_comes_from_the_host_once_on_one_device() -> None:
    statistics = counts(ShuffledMachine(), 24, 4)
    plan = plan_of(product(24).call().problem, 4, [1 << 30], Options())
    assert statistics.total("bytes_in") + statistics.total("bytes_out") == plan.bytes_least
    assert statistics.devices[0].misses == 72 + 16  # operands, and C of the first tiles
    assert statistics.devices[0].hits == 2 * 6**3 - 72
    assert statistics.devices[0].evictions == 0


def test_without_a_cache_each_use_is_a_copy() -> None:
    statistics = counts(ShuffledMachine(), 24, 4, cache=False)
    plan = plan_of(product(24).call().problem, 4, [1 << 30], Options())
    assert statistics.total("bytes_in") + statistics.total("bytes_out") == plan.bytes_without_reuse


def test_blocks_come_from_the_host_once_for_all_devices_with_peers() -> None:
    shared = counts(ShuffledMachine(3), 24, 4)
    assert shared.total("misses") == 72 + 16
    assert shared.total("peer_hits") > 0
    assert counts(ShuffledMachine(3), 24, 4, peer="none").total("misses") > 72
    assert counts(ShuffledMachine(3, peers=False), 24, 4).total("peer_hits") == 0


def test_a_small_budget_evicts() -> None:
    statistics = Statistics()
    call, options = product(40).call(), Options()
    needed = plan_of(call.problem, 4, [1 << 30], options).needed
    execute(call, ShuffledMachine(), 4, needed, options, statistics)
    assert statistics.devices[0].evictions > 0
    assert statistics.devices[0].stalls > 0


def test_every_device_computes_when_tasks_are_few() -> None:
    statistics = counts(ShuffledMachine(4), 16, 8)
    assert [device.tasks for device in statistics.devices] == [1, 1, 1, 1]
    assert statistics.total("stolen") == 3
    assert counts(ShuffledMachine(4), 16, 8, steal=False).devices[0].tasks in (0, 4)


def test_results_have_the_same_bits_on_any_number_of_devices() -> None:
    results: list[Any] = []
    paper = replace(Options.paper(), addend="late")
    for devices, options in ((1, Options()), (2, paper), (3, Options(streams=1, cache=False))):
        drawn = product(30)
        execute(drawn.call(), ShuffledMachine(devices, seed=devices), 7, None, options, None)
        results.append(drawn.matrices["c"])
    assert all(np.array_equal(results[0], other) for other in results[1:])


@pytest.mark.parametrize("allocation", ["heap", "native"])
@pytest.mark.parametrize("fail_at", [1, 2, 20, 60])
def test_a_failure_leaves_no_memory_and_no_pinned_array(fail_at: int, allocation: Any) -> None:
    machine = ShuffledMachine(2, fail_at=fail_at)
    with pytest.raises(InjectedError):
        execute(product(24).call(), machine, 4, None, Options(allocation=allocation), None)
    assert not machine.live
    assert not machine.pinned


def test_a_budget_below_one_batch_is_refused_before_anything_happens() -> None:
    machine, call = ShuffledMachine(), product(24).call()
    needed = plan_of(call.problem, 4, [1 << 30], Options()).needed
    before = call.matrices["c"].copy()
    with pytest.raises(LaunchError, match=f"a batch of tiles of 4 needs {needed}"):
        execute(call, machine, 4, needed - 1, None, None)
    np.testing.assert_array_equal(call.matrices["c"], before)
    assert machine.count == 0


def test_a_budget_for_another_number_of_devices_is_refused() -> None:
    with pytest.raises(LaunchError, match="3 numbers for 2 devices"):
        execute(product(4).call(), ShuffledMachine(2), 4, [1, 2, 3], None, None)


@pytest.mark.parametrize("wrong", [{"peer": "some"}, {"streams": 9}, {"streams": 0}, {"advance": "all"}])
def test_an_unknown_option_is_refused(wrong: Any) -> None:
    with pytest.raises(SchemeError):
        Options(**wrong)
