"""Every schedule of out-of-core convolutions on small worlds: a few pieces, one to three buffers for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpu.outofcore import MaxPool, Options, Pieces, Rates
from simwarp.machine import Machine
from support import outofcore_faults as faults
from support.exploring_machine import ExploringMachine, explore
from support.outofcore_calls import NAMES, Layer, pooled

RATES = Rates(1e-6, 5e10, 1e-6, 5e10, 5e-6, 5e13)
LAYER = Layer((2, 2, 2, 2), (2, 2, 3, 1))
SPLITS = {
    "conv2d": Pieces(1, 2, 1, 1),  # four pieces of two terms
    "conv2d_backward_data": Pieces(1, 1, 2, 1),  # four pieces of two terms, with a halo
    "conv2d_backward_filter": Pieces(1, 2, 1, 2),  # two pieces of two terms
}


def world(
    routine: str, depth: int, on_device: tuple[str, ...] = (), **options: Any
) -> Callable[[ExploringMachine], None]:
    """A call: the same bits each time, and nothing left behind."""
    chosen = Options(depth=depth, rates=RATES, **options)
    results: list[Any] = []

    def run(machine: Any) -> None:
        result = LAYER.run(routine, machine, pieces=SPLITS[routine], options=chosen, on_device=on_device)
        if not results:
            assert LAYER.error(routine, result) <= 1
            results.append(result)
        assert np.array_equal(result, results[0])
        assert not machine.memories
        assert not machine.pinned

    return run


@pytest.mark.parametrize("filters", ["resident", "streamed"])
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("routine", SPLITS)
def test_every_schedule_gives_the_same_bits(routine: str, depth: int, filters: str) -> None:
    report = explore(world(routine, depth, filters=filters), cap=2000, devices=1)
    assert report.is_all
    assert report.complete + report.merged >= 3 * depth, report


@pytest.mark.parametrize("on_device", [("x",), ("out",), ("w", "out"), ("gradient", "out")])
@pytest.mark.parametrize("routine", SPLITS)
def test_every_schedule_with_arrays_on_the_device_gives_the_same_bits(routine: str, on_device: Any) -> None:
    if set(on_device) <= {*NAMES[routine], "out"}:
        report = explore(world(routine, 2, on_device), cap=2000, devices=1)
        assert report.is_all
        assert report.complete + report.merged >= 2, report


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("on_device", [(), ("out",), ("x", "w")])
def test_every_schedule_with_pooling_gives_the_same_bits(on_device: Any, depth: int) -> None:
    layer, options = Layer((2, 2, 4, 2), (2, 2, 3, 1)), Options(depth=depth, rates=RATES)
    expected = pooled(MaxPool(2), layer.run("conv2d", Machine(), pieces=Pieces(1, 4, 1, 1)))

    def run(machine: Any) -> None:
        given: Any = {"pieces": Pieces(1, 1, 1, 2), "options": options, "on_device": on_device}
        np.testing.assert_array_equal(layer.run("conv2d", machine, pool=MaxPool(2), **given), expected)
        assert not machine.memories
        assert not machine.pinned

    assert explore(run, cap=2000, devices=1).is_all


@pytest.mark.parametrize(
    "plant", [faults.operand_reused_early, faults.output_reused_early, faults.routine_before_its_copy]
)
def test_some_schedule_finds_a_missing_wait(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        explore(world("conv2d", 2, filters="streamed"), cap=2000, devices=1)
