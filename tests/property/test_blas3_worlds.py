"""Every schedule of level-3 BLAS on small worlds: two devices, four tiles, caches of two or three blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpu.blas3.execute import execute
from gpu.blas3.options import Options
from gpu.blas3.plan import plan_of
from gpu.blas3.worker import DeviceWorker
from gpu.machine import Tile
from support.blas3_calls import Drawn, judged, product
from support.exploring_machine import ExploringMachine, Report, ScheduleError, explore

TILE = 2


def outer_product() -> Drawn:
    """Four tasks of one step, which share two blocks of A and two of B."""
    rng = np.random.default_rng(1)
    shapes = {"a": (4, 2), "b": (2, 4), "c": (4, 4)}
    matrices: Any = {name: np.asfortranarray(rng.standard_normal(shape)) for name, shape in shapes.items()}
    return Drawn("dgemm", 1.0, 0.5, {"trans_a": "N", "trans_b": "N"}, matrices)


def square_product() -> Drawn:
    """Four tasks of two steps."""
    return product(4)


def solution() -> Drawn:
    """Two tasks of two tiles each, which share three blocks of A."""
    rng = np.random.default_rng(3)
    a = np.asfortranarray(rng.standard_normal((4, 4)) + 4 * np.eye(4))
    b = np.asfortranarray(rng.standard_normal((4, 4)))
    return Drawn("dtrsm", 1.5, 0.0, {"uplo": "U", "trans_a": "N"}, {"a": a, "b": b})


def world(make: Callable[[], Drawn], spare: int = 0, **options: Any) -> Callable[[ExploringMachine], None]:
    """A call in the least memory and some spare blocks: the same bits each time, and nothing left behind."""
    chosen = Options(**{"streams": 1, **options})
    results: list[Any] = []

    def run(machine: ExploringMachine) -> None:
        drawn = make()
        before = {name: x.copy() for name, x in drawn.matrices.items()}
        call = drawn.call()
        plan = plan_of(call.problem, TILE, [1 << 30] * machine.devices, chosen)
        execute(call, machine, TILE, plan.needed + spare * plan.segment, chosen, None)
        result = drawn.matrices[drawn.result]
        if not results:
            assert judged(drawn, before, result) <= 1
            results.append(result)
        assert np.array_equal(result, results[0])
        assert not machine.memories
        assert not machine.pinned

    return run


@pytest.mark.at_most(1)
@pytest.mark.parametrize(
    ("make", "options"),
    [
        (outer_product, {}),
        (outer_product, {"spare": 1}),
        (outer_product, {"allocation": "native"}),
        (outer_product, {"advance": "batch", "peer": "completed"}),
        (solution, {"copies": "stream"}),
        (solution, {"copies": "stream", "spare": 1}),
    ],
)
def test_every_schedule_of_operations_gives_the_right_result(make: Any, options: Any) -> None:
    report = explore(world(make, **options), cap=1000)
    assert report.is_all
    assert report.complete >= 50, report


@pytest.mark.slow
def test_every_schedule_of_operations_and_late_workers_gives_the_right_result() -> None:
    report = explore(world(outer_product), cap=1000, is_prompt=False)
    assert report.is_all
    assert report.complete >= 100, report


@pytest.mark.gate
@pytest.mark.parametrize(
    ("make", "options", "is_prompt", "least"),
    [
        (square_product, {}, True, 1000),
        (square_product, {"spare": 1}, True, 1500),
        (outer_product, {"copies": "stream", "streams": 2}, True, 200),
        (outer_product, {"copies": "stream", "streams": 2}, False, 400),
        (solution, {"copies": "stream"}, False, 400),
    ],
)
def test_every_schedule_of_larger_worlds_gives_the_right_result(
    make: Any, options: Any, is_prompt: bool, least: int
) -> None:
    report = explore(world(make, **options), cap=20000, is_prompt=is_prompt)
    assert report.is_all
    assert report.complete >= least, report


@pytest.mark.gate
@pytest.mark.parametrize(
    ("make", "options", "is_prompt"),
    [
        (square_product, {"advance": "batch", "peer": "completed"}, True),
        (square_product, {}, False),
        (outer_product, {"streams": 2}, False),
        (solution, {}, False),
        (solution, {"copies": "stream", "spare": 1, "allocation": "native"}, False),
    ],
)
def test_the_first_schedules_of_worlds_with_too_many_give_the_right_result(
    make: Any, options: Any, is_prompt: bool
) -> None:
    report = explore(world(make, **options), cap=2000, is_prompt=is_prompt)
    assert report.complete + report.merged == 2000


def test_a_peer_copy_without_a_reader_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    copy_from = DeviceWorker._copy_from

    def wrong(self: Any, peer: Any, *rest: Any) -> None:
        copy_from(self, peer, *rest)
        peer.cache.release(peer.loans.pop()[0])

    monkeypatch.setattr(DeviceWorker, "_copy_from", wrong)
    with pytest.raises(AssertionError):
        explore(world(outer_product), cap=1000)
    with pytest.raises(ScheduleError, match="freed in use"):
        explore(world(outer_product, allocation="native"), cap=1000)


# ------------------------------------------------------------------------------------ the search itself


def copies(is_ordered: bool, found: list[float]) -> Callable[[ExploringMachine], None]:
    """Two copies of different numbers to one tile."""

    def run(machine: ExploringMachine) -> None:
        memory: Any = machine.allocate(0, 8)
        tile = Tile(memory, 0, 1, 1, 1, np.dtype(np.float64))
        first, second = machine.stream(0), machine.stream(0)
        machine.copy_in(first, np.array([[1.0]]), tile)
        if is_ordered:
            machine.wait(second, machine.record(first))
        machine.copy_in(second, np.array([[2.0]]), tile)
        machine.run([])
        found.append(memory.data.view(np.float64)[0])

    return run


def test_both_orders_of_a_race_are_run() -> None:
    found: list[float] = []
    assert explore(copies(False, found), cap=9) == Report(complete=2, merged=0, is_all=True)
    assert found == [2.0, 1.0]


def test_an_event_leaves_one_order() -> None:
    found: list[float] = []
    assert explore(copies(True, found), cap=9) == Report(complete=1, merged=0, is_all=True)
    assert found == [2.0]


def test_the_cap_holds() -> None:
    assert explore(copies(False, []), cap=1) == Report(complete=1, merged=0, is_all=False)


@pytest.mark.parametrize("length", [2, 5])
def test_schedules_that_reach_one_state_are_continued_once(length: int) -> None:
    """Two streams of independent copies: each state with both streams unfinished has one more way out."""

    def run(machine: ExploringMachine) -> None:
        for device in range(2):
            memory, stream = machine.allocate(device, 8), machine.stream(device)
            for number in range(length):
                tile = Tile(memory, 0, 1, 1, 1, np.dtype(np.float64))
                machine.copy_in(stream, np.array([[float(number)]]), tile)
        machine.run([])

    report = explore(run, cap=1000)
    assert report.is_all
    assert report.complete + report.merged == 1 + length**2


def test_waiting_for_what_cannot_happen_is_a_deadlock() -> None:
    def run(machine: ExploringMachine) -> None:
        event = machine.record(machine.stream(0))
        event.has_happened = False
        machine.run([iter([event])])

    with pytest.raises(ScheduleError, match="deadlock"):
        explore(run, cap=1)


def test_an_error_has_its_schedule() -> None:
    found: list[float] = []

    def run(machine: ExploringMachine) -> None:
        copies(False, found)(machine)
        assert found[-1] == 2.0

    with pytest.raises(AssertionError) as caught:
        explore(run, cap=9)
    assert "schedule [1]" in caught.value.__notes__[0]
    copies(False, found)(ExploringMachine([1]))
    assert found[-1] == 1.0
