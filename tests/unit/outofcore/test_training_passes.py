"""Forward and backward passes without a loss: gradients are those of the definitions, whatever the pieces."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from gpu.outofcore import (
    AveragePool,
    BatchNorm,
    Conv,
    Cut,
    Dense,
    Flatten,
    MaxPool,
    Network,
    Segment,
    Trainer,
    TrainingOptions,
)
from gpu.outofcore.networks.passes import Passes
from gpu.outofcore.networks.phases import Key
from gpu.outofcore.networks.trainer import planned
from reference.errors import LaunchError, SchemeError
from simwarp.machine import CopyError, CopyFails, Machine
from support.training_networks import NETWORKS, backward, is_clean, passing, tape_of

LASTS: dict[str, Network] = {
    "convolution": Network((2, 9, 7), (Conv(3, activation="relu"), MaxPool(), Conv(4, stride=2)), None, True),
    "pooling": Network((2, 9, 7), (Conv(3, activation="tanh"), AveragePool(3, 2, "SAME")), None),
    "normalization": Network(
        (2, 6, 5), (Conv(3), BatchNorm(activation="relu"), Conv(3), BatchNorm(), BatchNorm(0.1)), None
    ),
    "flat": Network((2, 6, 5), (Conv(3), MaxPool(2), Flatten()), None),
    "nothing to learn": Network((2, 6, 5), (MaxPool(2), AveragePool(2, 1)), None, True),
    "rows": Network((3, 2, 2), (Flatten(), Dense(6, "tanh"), Dense(4)), None, True),
}
ALL = LASTS | {
    name: replace(network, loss=None)
    for name, network in NETWORKS.items()
    if not network.stages[-1].activation
}
BATCH = 5


class Case:
    """A network with a batch and the gradient by its result."""

    def __init__(self, network: Network) -> None:
        rng = np.random.default_rng(5)
        self.network = network
        self.x = rng.standard_normal((BATCH, *network.image)).astype(np.float32)
        self.dy = rng.standard_normal((BATCH, *network.shape(len(network.stages)))).astype(np.float32)
        self.parameters = {
            name: (w + 0.1 * rng.standard_normal(w.shape)).astype(np.float32)
            for name, w in network.initial(3).items()
        }

    def passes(self, machine: Machine, budget: int | None = None, **options: Any) -> Passes:
        return Passes(machine, planned(self.network, BATCH, machine, budget, TrainingOptions(**options)))

    def found(self, machine: Machine, budget: int | None = None, **options: Any) -> dict[str, Any]:
        """The result and all gradients of one pass each; the machine must be clean then."""
        passes = self.passes(machine, budget, **options)
        ahead = passes.forward(self.x, self.parameters)
        gradients, images = passes.backward(ahead.number, self.dy)
        passes.close()
        assert is_clean(machine)
        moments = {f"{name} {i}": one for name, pair in ahead.moments.items() for i, one in enumerate(pair)}
        assert (images is not None) == self.network.image_gradient
        return gradients | moments | {"result": ahead.result} | ({} if images is None else {"images": images})

    def expected(self) -> dict[str, Any]:
        """The same by definition, in double precision."""
        weights = {name: w.astype(float) for name, w in self.parameters.items()}
        tape = tape_of(self.network, weights, self.x)
        found = {"result": tape[-1][3].reshape(self.dy.shape)}
        gradient: Any = self.dy.astype(float).reshape(tape[-1][3].shape)
        for name, layer, x, y in reversed(tape):
            gradient, gradients = backward(layer, gradient, x, y, weights, name)
            found |= gradients
        return found | ({"images": gradient} if self.network.image_gradient else {})


def same(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    return all(np.array_equal(found[name], expected[name]) for name in expected)


@pytest.mark.at_most(3)
@pytest.mark.parametrize("name", ALL)
def test_gradients_are_those_of_the_definitions(name: str) -> None:
    # As in test_training: about 20 roundings of 2**-24, 4 times as much for terms that cancel. The terms of a
    # bias before batch normalization cancel to 0; they are about 1.
    case = Case(ALL[name])
    found = case.found(Machine())
    for key, value in case.expected().items():
        assert np.abs(found[key] - value).max() < 80 * 2.0**-24 * max(1.0, np.abs(value).max()), key


@pytest.mark.at_most(1)
@pytest.mark.parametrize("name", ALL)
def test_no_budget_changes_a_bit(name: str) -> None:
    case = Case(ALL[name])
    expected = case.found(Machine())
    with pytest.raises(LaunchError, match="memory_budget=") as refused:
        case.found(Machine(), 1)
    least = int(str(refused.value).split("memory_budget=")[1].split()[0])
    for budget, accumulation in ((least, True), (3 * least, False)):
        machine = Machine(seed=budget, jitter=20.0)
        plan = case.passes(machine, budget, accumulation=accumulation).plan
        assert plan.device.nbytes <= budget
        assert accumulation or not plan.accumulates
        assert same(case.found(machine, budget, accumulation=accumulation), expected)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("parameters", ["device", "host"])
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_neither_images_nor_rows_that_are_cut_change_a_bit(rows: int, parameters: str) -> None:
    case = Case(LASTS["convolution"])
    expected = case.found(Machine())
    strip, images = Cut(1, rows), Cut(2, 99)
    for seed, (kept, cut) in enumerate(product(({1, 2}, {1}, {2}, set[int]()), (strip, images))):
        for segments in (
            (Segment(1, 3, cut, cut, frozenset(kept)),),
            (Segment(1, 1, cut, images), Segment(2, 3, images, cut, frozenset(kept - {1}))),
        ):
            machine = Machine(seed=seed, jitter=20.0)
            assert same(case.found(machine, segments=segments, parameters=parameters), expected)


def assert_no_place_changes_a_bit(
    case: Case, segments: tuple[Segment, ...], parameters: str, expected: dict[str, Any]
) -> None:
    """The result and all gradients are those in one piece, with all on the host, and on the device."""
    plan = case.passes(Machine(), segments=segments).plan
    keys = frozenset(key for key, _, _ in plan.lifetimes() if key.tensor)
    for places in (frozenset[Key](), keys):
        machine = Machine(seed=len(places), jitter=20.0)
        options: Any = {"segments": segments, "parameters": parameters, "on_device": places}
        assert same(case.found(machine, **options), expected)


RESULTS = ("kept", "passed", "again")


@pytest.mark.at_most(1)
@pytest.mark.singly
@pytest.mark.parametrize("parameters", ["device", "host"])
@pytest.mark.parametrize("results", [*product(RESULTS, RESULTS), ("again", "again", "again")])
def test_computing_again_across_segments_does_not_change_a_bit(results: Any, parameters: str) -> None:
    case = Case(replace(NETWORKS["normalized"], loss=None, image_gradient=True))
    results, expected = (*results, "passed")[:3], case.found(Machine())
    for kept, tops in ((set[int](), (2, 5, 6)), ({1, 3, 4}, (3, 6, 6)), ({1, 2, 4, 5}, (3, 5, 6))):
        *before, last = passing(results, frozenset(kept), tops)
        last = replace(last, forward=Cut(3, 99), kept=frozenset({6} if kept else ()))
        assert_no_place_changes_a_bit(case, (*before, last), parameters, expected)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("parameters", ["device", "host"])
@pytest.mark.parametrize("above", [(2, 3, 4), (2, 5, 5), (4, 4, 4), (5, 5, 5)])
def test_several_segments_may_begin_with_the_last_gradient(above: tuple[int, ...], parameters: str) -> None:
    layers = Conv(3, activation="relu"), MaxPool(2, 1), BatchNorm(0.1, activation="tanh")
    case = Case(Network((2, 7, 6), (*layers, AveragePool(2, 1), MaxPool(2)), None, image_gradient=True))
    expected = case.found(Machine())
    for result in RESULTS:
        ends = ((1, 1, above[0]), (2, 2, above[1]), (3, 3, above[2]))
        cuts = (Cut(2, 99), Cut(3, 99))
        before = [Segment(a, b, *cuts, frozenset(), result, top) for a, b, top in ends]
        segments = *before, Segment(4, 5, Cut(4, 99), Cut(2, 99), frozenset({4}))
        assert_no_place_changes_a_bit(case, segments, parameters, expected)


def test_each_forward_pass_loads_the_parameters_anew() -> None:
    case, machine = Case(LASTS["convolution"]), Machine()
    passes = case.passes(machine)
    for _ in range(2):
        case.parameters = {name: w * np.float32(1.5) for name, w in case.parameters.items()}
        ahead = passes.forward(case.x, case.parameters)
        gradients, images = passes.backward(ahead.number, case.dy)
    passes.close()
    assert same(gradients | {"result": ahead.result, "images": images}, case.found(Machine()))


def test_running_means_normalize_without_a_backward_pass() -> None:
    case, machine = Case(LASTS["normalization"]), Machine()
    passes = case.passes(machine, 5000)
    running = {
        name: (np.full(shape, 0.5, np.float32), np.full(shape, 2.0, np.float32))
        for name, shape in case.network.running.items()
    }
    ahead = passes.forward(case.x, case.parameters, running)
    again = passes.forward(case.x[::-1], case.parameters, running)
    assert np.array_equal(ahead.result, again.result[::-1])  # no image depends on another one
    assert not ahead.moments
    with pytest.raises(SchemeError, match="backward"):
        passes.backward(again.number, case.dy)
    passes.close()
    assert is_clean(machine)


def test_a_backward_pass_belongs_to_the_latest_forward_pass_and_takes_place_once() -> None:
    case, machine = Case(LASTS["flat"]), Machine()
    passes = case.passes(machine)
    first = passes.forward(case.x, case.parameters).number
    second = passes.forward(case.x, case.parameters).number
    for number in (first, second, second):
        if number == second and passes._pending:
            passes.backward(number, case.dy)
        else:
            with pytest.raises(SchemeError, match=r"no backward pass left\n.*\n.*before close"):
                passes.backward(number, case.dy)
    third = passes.forward(case.x, case.parameters).number
    passes.close()
    with pytest.raises(SchemeError, match="before close"):
        passes.backward(third, case.dy)


def steps(passes: Passes, case: Case, count: int) -> None:
    for _ in range(count):
        passes.backward(passes.forward(case.x, case.parameters).number, case.dy)


@pytest.mark.at_most(3)
@pytest.mark.parametrize("kind", ["in", "out"])
@pytest.mark.parametrize("after", [0, 1, 5, 12, 20])
def test_a_copy_that_fails_leaves_nothing(kind: Any, after: int) -> None:
    case = Case(LASTS["convolution"])
    machine = Machine(seed=after, jitter=20.0, injections=[CopyFails(kind, 0, after)])
    passes = case.passes(machine, 4000)
    with pytest.raises(CopyError):
        steps(passes, case, 20)
    assert is_clean(machine)
    ahead = passes.forward(case.x, case.parameters)
    gradients, _ = passes.backward(ahead.number, case.dy)
    passes.close()
    assert same(gradients, {name: w for name, w in case.found(Machine()).items() if name in gradients})


def test_plans_without_a_loss_are_shown() -> None:
    plan = Case(LASTS["convolution"]).passes(Machine(), 4000).plan
    lines = str(plan).splitlines()
    assert sum("forward" in line for line in lines) == sum("backward" in line for line in lines)
    assert len(plan.phases) == 2 * len(plan.segments)
    assert plan.timeline.seconds >= plan.in_core_seconds


def test_velocities_are_only_with_a_loss() -> None:
    network = NETWORKS["dense"]
    names = tuple(network.parameters)
    with_loss, without = (
        planned(one, BATCH, Machine(), None, TrainingOptions()).parameters(names)[1]
        for one in (network, replace(network, loss=None))
    )
    assert without < with_loss


def test_networks_that_cannot_be_are_refused() -> None:
    with pytest.raises(SchemeError, match="activation, and no loss"):
        Network((1, 4, 4), (Flatten(), Dense(3, "relu")), None)
    with pytest.raises(SchemeError, match="no layers"):
        Network((1, 4, 4), (Flatten(),), None)
    with pytest.raises(SchemeError, match="loss"):
        Network((1, 4, 4), (Flatten(), Dense(3)), "hinge")  # type: ignore[arg-type]
    with pytest.raises(SchemeError, match="image_gradient"):
        Network((1, 4, 4), (Flatten(), Dense(3)), image_gradient=True)
    with pytest.raises(SchemeError, match="no loss"):
        Trainer(LASTS["flat"], 2, device=Machine())
