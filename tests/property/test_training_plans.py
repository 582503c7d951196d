"""Drawn networks, plans and machines: each gives the bits of the training in one piece; and all schedules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpu.outofcore import (
    AveragePool,
    BatchNorm,
    Conv,
    Cut,
    Dense,
    Flatten,
    MaxPool,
    Network,
    Rates,
    Segment,
    Trainer,
)
from gpu.outofcore.networks.phases import Key
from gpu.outofcore.networks.plan import TrainingPlan
from reference.errors import LaunchError, SchemeError, ShapeError
from simwarp.machine import Machine
from support.exploring_machine import ExploringMachine, explore
from support.training_faults import loaded_buffer_reused_early, stored_buffer_reused_early
from support.training_networks import Sample, by_definition, same_bits

RATES = Rates(1e-6, 5e10, 1e-6, 5e10, 5e-6, 5e13)
ACTIVATIONS = st.sampled_from([None, "relu", "tanh", "sigmoid"])
WINDOWS = st.integers(1, 3)
PADDINGS = st.sampled_from(["SAME", "VALID", ((1, 0), (0, 1))])
LAYERS = st.one_of(
    st.builds(Conv, WINDOWS, WINDOWS, WINDOWS, PADDINGS, st.integers(1, 2), activation=ACTIVATIONS),
    st.builds(MaxPool, WINDOWS, WINDOWS, st.sampled_from(["SAME", "VALID"])),
    st.builds(AveragePool, WINDOWS, WINDOWS, st.sampled_from(["SAME", "VALID"])),
    st.builds(BatchNorm, st.sampled_from([1e-3, 0.5]), activation=ACTIVATIONS),
)


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """A network of some layers that can be cut into strips, and one or two dense ones."""
    layers = draw(st.lists(LAYERS, min_size=1, max_size=4))
    hidden = [Dense(3, draw(ACTIVATIONS))] if draw(st.booleans()) else []
    image = draw(st.integers(1, 2)), draw(st.integers(5, 9)), draw(st.integers(5, 7))
    try:
        return Network(image, (*layers, Flatten(), *hidden, Dense(3, draw(ACTIVATIONS))))
    except (ShapeError, SchemeError):  # sizes that do not fit, or batch normalization of images
        assume(False)
        raise


@st.composite
def segments(draw: st.DrawFn, network: Network) -> tuple[Segment, ...]:
    """Segments of a network, with any cuts that they can have."""
    count = len(network.stages)
    norms = {number - 1 for number in range(2, count + 1) if network.normalizes(number)}
    borders = sorted(draw(st.sets(st.integers(1, count - 1))) | norms) if count > 1 else []
    found: list[Segment] = []
    for first, last in zip([1, *(one + 1 for one in borders)], [*borders, count], strict=True):
        has_dense = any(stage.kind == "dense" for stage in network.stages[first - 1 : last])
        rows = st.just(99) if has_dense else st.integers(1, 9)
        height, norm = draw(rows), network.normalizes(last + 1)
        is_strip = norm and height < network.shape(last)[1]
        forward = Cut(1 if is_strip else draw(st.integers(1, 4)), height)
        strips = draw(rows)
        whole = strips >= network.shape(max(first - 1, 1))[1]
        backward = Cut(draw(st.integers(1, 4)) if whole else 1, strips)
        end = last - (not norm)
        inner = st.sets(st.integers(first, end)) if first <= end and last < count else st.just(set[int]())
        result = "kept" if last == count else draw(st.sampled_from(["kept", "passed", "again"]))
        found.append(Segment(first, last, forward, backward, frozenset(draw(inner)), result))
    return with_tops(draw, network, found)


def with_tops(draw: st.DrawFn, network: Network, found: list[Segment]) -> tuple[Segment, ...]:
    """Segments with any gradients that their backward phases can begin with."""
    for index in reversed(range(len(found) - 1)):
        tops = TrainingPlan(network, 3, tuple(found), frozenset(), True, 2, 1 << 30, RATES).tops(index)
        found[index] = replace(found[index], above=draw(st.sampled_from([None, *tops])))
    return tuple(found)


@st.composite
def places(draw: st.DrawFn, network: Network, cut: tuple[Segment, ...]) -> frozenset[Key]:
    """What may stay on the device."""
    plan = TrainingPlan(network, 3, cut, frozenset(), True, 2, 1 << 30, RATES)
    keys = frozenset(key for key, _, _ in plan.lifetimes() if key.tensor)
    strips = [one.tensors.on_device for one in replace(plan, on_device=keys).phases if len(one.strips) > 1]
    free = sorted(keys.difference(*strips))
    return frozenset(draw(st.sets(st.sampled_from(free)))) if free else frozenset()


def check_plan(data: st.DataObject) -> None:
    """A drawn plan has the bits of the training in one piece."""
    network = data.draw(networks())
    sample, whole = Sample(network, 3), Cut(9, 99)
    expected = sample.trained(Machine(), segments=sample.few_segments(whole))
    cut = data.draw(segments(network))
    machine = Machine(seed=data.draw(st.integers(0, 99)), jitter=data.draw(st.sampled_from([0.0, 20.0])))
    found = sample.trained(
        machine,
        segments=cut,
        on_device=data.draw(places(network, cut)),
        parameters=data.draw(st.sampled_from(["device", "host"])),
        depth=data.draw(st.integers(1, 3)),
    )
    assert same_bits(found, expected)


@pytest.mark.gate
@settings(max_examples=25)
@given(st.data())
def test_a_drawn_plan_gives_the_bits_of_the_training_in_one_piece(data: st.DataObject) -> None:
    check_plan(data)


@pytest.mark.gate
@settings(max_examples=120)
@given(st.data())
def test_many_drawn_plans_give_the_bits_of_the_training_in_one_piece(data: st.DataObject) -> None:
    check_plan(data)


@pytest.mark.gate
@settings(max_examples=40)
@given(networks())
def test_the_least_budget_that_an_error_names_is_enough(network: Network) -> None:
    sample = Sample(network, 3)
    with pytest.raises(LaunchError) as refused:
        Trainer(network, 3, device=Machine(), memory_budget=1)
    least = int(str(refused.value).split("memory_budget=")[1].split()[0])
    expected = sample.trained(Machine(), 1, segments=sample.few_segments(Cut(9, 99)))
    assert same_bits(sample.trained(Machine(), 1, least), expected)


@pytest.mark.slow
@settings(max_examples=100)
@given(networks())
def test_any_network_is_trained_as_by_the_definitions(network: Network) -> None:
    sample = Sample(network, 3)
    found, expected = sample.trained(Machine(), 1), by_definition(sample, 1)
    for name, value in expected.items():
        scale = max(1.0, float(np.abs(value).max()))
        assert np.abs(found[name] - value).max() < 200 * 2.0**-24 * scale, name


# ------------------------------------------------------------------------------------------- schedules

TINY = Network((1, 2, 1), (Conv(1, 1, activation="relu"), Flatten(), Dense(2)))
WORLDS = {
    "images": (Segment(1, 1, Cut(1, 2), Cut(1, 2)), Segment(2, 2, Cut(1, 1), Cut(1, 2))),
    "accumulation": (Segment(1, 2, Cut(1, 1), Cut(1, 2)),),
}


def world(name: str, depth: int, parameters: str) -> Callable[[ExploringMachine], None]:
    """A step: the same bits each time, and nothing left behind."""
    results: list[dict[str, Any]] = []
    sample = Sample(TINY, 2)

    def run(machine: Any) -> None:
        with sample.trainer(
            machine, 1 << 20, segments=WORLDS[name], depth=depth, parameters=parameters, rates=RATES
        ) as trainer:
            trainer.step(sample.x, sample.labels)
            results.append({key: w.copy() for key, w in trainer.parameters.items()})
        assert same_bits(results[-1], results[0])
        assert not machine.memories
        assert not machine.pinned

    return run


@pytest.mark.at_most(2)
@pytest.mark.parametrize("parameters", ["device", "host"])
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("name", WORLDS)
def test_every_schedule_gives_the_same_bits(name: str, depth: int, parameters: str) -> None:
    report = explore(world(name, depth, parameters), cap=2000, devices=1)
    assert report.is_all
    assert report.complete + report.merged >= 2, report


@pytest.mark.parametrize("plant", [loaded_buffer_reused_early, stored_buffer_reused_early])
def test_some_schedule_finds_a_missing_wait(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        explore(world("images", 1, "device"), cap=2000, devices=1)
