"""Out-of-core training on simulated machines: any plan gives the bits of the training in one piece."""

from itertools import product
from typing import Any

import numpy as np
import pytest

import simwarp
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
    TrainingOptions,
    vgg16,
)
from gpu.outofcore.networks.checks import check_segments
from gpu.outofcore.networks.phases import Key
from gpu.outofcore.networks.rehearsal import rehearse
from reference.errors import DtypeError, LaunchError, RangeError, SchemeError, ShapeError
from simwarp.machine import (
    H100,
    H200,
    AllocationFails,
    CopyError,
    CopyFails,
    DeviceLost,
    DeviceLostError,
    DeviceMemoryError,
    Machine,
)
from support.training_networks import (
    NETWORKS,
    Sample,
    by_definition,
    gradients_of,
    is_clean,
    passing,
    same_bits,
    state_of,
    tape_of,
)

WHOLE = Cut(99, 99)


def in_core(name: str) -> tuple[Sample, dict[str, Any]]:
    """A sample, and its training in one piece."""
    sample = Sample(NETWORKS[name])
    return sample, sample.trained(Machine(), segments=sample.few_segments(WHOLE))


# ------------------------------------------------------------------------------------------------- bits


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize("name", NETWORKS)
def test_pieces_of_images_do_not_change_a_bit(name: str) -> None:
    sample, expected = in_core(name)
    for images, depth in product((1, 2, 4, 5), (1, 2, 3)):
        segments = sample.few_segments(Cut(images, 99))
        machine = Machine(seed=images, jitter=20.0)
        assert same_bits(sample.trained(machine, segments=segments, depth=depth), expected)


def layered(count: int, rows: int, kept: frozenset[int]) -> tuple[Segment, ...]:
    """Two segments of the layers that can be cut into strips of rows, and one of the others."""
    one, two = Cut(1, rows), Cut(1, max(1, rows - 1))
    return (
        Segment(1, 2, one, two, kept & {1}),
        Segment(3, count, two, one, kept & {*range(3, count)}),
        Segment(count + 1, count + 1, WHOLE, Cut(4, 99)),
    )


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize("parameters", ["device", "host"])
@pytest.mark.parametrize("rows", [1, 2, 3, 99])
def test_strips_of_rows_do_not_change_a_bit(rows: int, parameters: str) -> None:
    sample, expected = in_core("strided")
    for seed, kept in enumerate((frozenset[int](), frozenset({1}), frozenset({1, 3}))):
        machine = Machine(seed=seed, jitter=20.0)
        segments = layered(4, rows, kept)
        assert same_bits(sample.trained(machine, segments=segments, parameters=parameters), expected)


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_strips_of_windows_with_gaps_do_not_change_a_bit(rows: int) -> None:
    sample, expected = in_core("gaps")
    cut = Cut(1, rows)
    segments = Segment(1, 2, cut, cut, frozenset({1})), Segment(3, 3, WHOLE, WHOLE)
    assert same_bits(sample.trained(Machine(seed=1, jitter=20.0), segments=segments), expected)


@pytest.mark.slow
def test_what_stays_on_the_device_does_not_change_a_bit() -> None:
    sample, expected = in_core("mixed")
    segments = (
        Segment(1, 3, Cut(2, 99), Cut(4, 99), frozenset({1, 2})),
        Segment(4, 5, Cut(1, 99), Cut(2, 99), frozenset({4})),
        Segment(6, 7, WHOLE, Cut(5, 99)),
    )
    keys = [Key("x", 1), Key("x", 3), Key("g", 3), Key("x", 4), Key("x", 5), Key("g", 5)]
    for count, parameters in product(range(len(keys) + 1), ("device", "host")):
        machine = Machine(seed=count, jitter=20.0)
        options = {"on_device": frozenset(keys[:count]), "parameters": parameters}
        assert same_bits(sample.trained(machine, segments=segments, **options), expected)


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize("parameters", ["device", "host"])
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_statistics_of_the_batch_do_not_depend_on_pieces(rows: int, parameters: str) -> None:
    sample, expected = in_core("normalized")
    cut, whole = Cut(1, rows), Cut(4, 99)
    for seed, kept in enumerate(({1, 2, 3, 4, 5}, {1, 3}, set[int]())):
        segments = (
            Segment(1, 1, cut, cut, frozenset(kept & {1})),
            Segment(2, 4, cut, cut, frozenset(kept & {2, 3, 4})),
            Segment(5, 5, whole, cut, frozenset(kept & {5})),
            Segment(6, 7, whole, whole),
        )
        machine = Machine(seed=seed, jitter=20.0)
        assert same_bits(sample.trained(machine, segments=segments, parameters=parameters), expected)


RESULTS = ("kept", "passed", "again")


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.singly
@pytest.mark.parametrize("parameters", ["device", "host"])
@pytest.mark.parametrize("results", [*product(RESULTS, RESULTS), ("again", "again", "again")])
def test_computing_again_across_segments_does_not_change_a_bit(results: Any, parameters: str) -> None:
    sample, expected = in_core("normalized")
    results = (*results, "passed")[:3]
    cases = ((set[int](), (2, 5, 6)), ({1, 3, 4}, (3, 6, 6)), ({1, 2, 4, 5}, (3, 5, 6)))
    for seed, (kept, tops) in enumerate(cases):
        segments = passing(results, frozenset(kept), tops)
        plan = sample.trainer(Machine(), segments=segments).explain()
        keys = frozenset(key for key, _, _ in plan.lifetimes() if key.tensor)
        for places in (frozenset[Key](), keys):
            options: Any = {"parameters": parameters, "on_device": places}
            machine = Machine(seed=seed, jitter=20.0)
            assert same_bits(sample.trained(machine, segments=segments, **options), expected)


def test_a_gradient_takes_the_place_of_the_activation_that_it_needs() -> None:
    sample = Sample(NETWORKS["normalized"])
    segments = passing(("passed", "again", "kept"), frozenset({1, 4}), (2, 5, 6))
    keys = frozenset({Key("x", 1), Key("r", 1), Key("g", 2)})
    plan = sample.trainer(Machine(), segments=segments, on_device=keys).explain()
    alone = [sample.trainer(Machine(), segments=segments, on_device=frozenset({key})) for key in keys]
    most = max(one.explain().device.nbytes for one in alone)
    assert plan.device.nbytes < most + plan.nbytes(Key("x", 1))


def test_logits_normalize_by_running_means() -> None:
    sample = Sample(NETWORKS["normalized"])
    with sample.trainer(Machine(seed=1, jitter=20.0), None) as trainer:
        weights: dict[str, Any] = {name: w.astype(float) for name, w in trainer.parameters.items()}
        trainer.step(sample.x, sample.labels)
        running = trainer._states()["batch_norm2.running"]
        y = tape_of(sample.network, weights, sample.x)[1][2]
        np.testing.assert_allclose(running[0], 0.1 * y.mean((0, 2, 3)), rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(running[1], 0.9 + 0.1 * y.var((0, 2, 3), ddof=0) * 252 / 251, rtol=1e-5)
        found = trainer.logits(sample.x)
        assert np.array_equal(trainer.logits(sample.x[2:4]), found[2:4])  # no image depends on another one


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize("accumulation", [True, False])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_planner_fits_each_budget_and_does_not_change_a_bit(name: str, accumulation: bool) -> None:
    sample, expected = in_core(name)
    with pytest.raises(LaunchError, match="memory_budget=") as refused:
        sample.trained(Machine(), budget=1)
    least = int(str(refused.value).split("memory_budget=")[1].split()[0])
    for budget in (least, 2 * least, 8 * least):
        options: dict[str, Any] = {"accumulation": accumulation}
        plan = sample.trainer(Machine(), budget, **options).explain()
        check_segments(plan, accumulation=accumulation)
        assert plan.device.nbytes <= budget
        assert accumulation or not plan.accumulates
        options |= {"parameters": "device" if plan.resident else "host", "depth": plan.depth}
        options |= {"segments": plan.segments, "on_device": plan.on_device}
        assert same_bits(sample.trained(Machine(seed=3, jitter=20.0), budget=budget, **options), expected)


@pytest.mark.gate
def test_a_gradient_that_three_segments_share_stays_on_the_device_for_none_that_cuts_its_rows() -> None:
    layers = Conv(2, 2, dilation=2), BatchNorm(activation="tanh"), BatchNorm(), MaxPool(), Flatten(), Dense(3)
    sample = Sample(Network((2, 9, 6), layers), 3)
    slow = Rates(1e-7, 1e8, 1e-7, 1e8, 1e-7, 1e10)
    expected = sample.trained(Machine(), segments=sample.few_segments(WHOLE))
    for budget in (5500, 7750, 11_000):
        plan = sample.trainer(Machine(), budget, rates=slow).explain()
        check_segments(plan, accumulation=True)
        assert same_bits(sample.trained(Machine(), 2, budget, rates=slow), expected)


def test_parameters_stay_on_the_device_if_they_fit() -> None:
    sample = Sample(NETWORKS["dense"])
    least = sample.trainer(Machine(), None, parameters="device").explain()
    assert sample.trainer(Machine(), least.device.nbytes).explain().resident
    assert not sample.trainer(Machine(), None, parameters="host").explain().resident


# ------------------------------------------------------------------------------------------ definitions


@pytest.mark.parametrize("name", NETWORKS)
def test_training_is_that_of_the_definitions(name: str) -> None:
    # Each number is rounded once, by 2**-24 of itself. A gradient goes through at most 7 layers forward and
    # back, and two steps, so about 30 roundings change it. Terms may cancel: 4 times as much is allowed.
    sample, found = in_core(name)
    expected = by_definition(sample)
    for key, value in expected.items():
        error = np.abs(found[key] - value).max() / max(0.1, np.abs(value).max())
        assert error < 120 * 2.0**-24, key


def test_gradients_are_those_of_finite_differences() -> None:
    sample = Sample(NETWORKS["mixed"])
    with sample.trainer(Machine(), None) as trainer:
        first: dict[str, Any] = {name: w.astype(float) for name, w in trainer.parameters.items()}
        trainer.step(sample.x, sample.labels)
        velocity = state_of(trainer)
    for name, w in first.items():
        at = tuple(size // 2 for size in w.shape)
        gradient, step = velocity[f"{name} v"][at] - sample.sgd.decay * w[at], 1e-5
        losses = []
        for sign in (1, -1):
            moved = w.copy()
            moved[at] += sign * step
            losses.append(gradients_of(sample, first | {name: moved})[0])
        difference = (losses[0] - losses[1]) / (2 * step)
        assert abs(difference - gradient) < 1e-5 * max(1.0, np.abs(velocity[f"{name} v"]).max()), name


def test_logits_are_those_of_the_definition() -> None:
    sample = Sample(NETWORKS["mixed"])
    x = np.concatenate([sample.x, sample.x[:4] + 1])
    segments = Segment(1, 3, Cut(1, 2), Cut(1, 3)), Segment(4, 7, Cut(2, 99), Cut(3, 99))
    with sample.trainer(Machine(seed=5, jitter=20.0), None, segments=segments) as trainer:
        found = trainer.logits(x)
        weights: dict[str, Any] = {k: v.astype(float) for k, v in trainer.parameters.items()}
    expected = tape_of(sample.network, weights, x)[-1][3]
    np.testing.assert_allclose(found, expected, rtol=0, atol=30 * 2.0**-24 * np.abs(expected).max())


# --------------------------------------------------------------------------------------------- failures

SEGMENTS = Segment(1, 3, Cut(2, 99), Cut(4, 99), frozenset({1})), Segment(4, 7, WHOLE, Cut(4, 99))


def failing(machine: Machine, error: type[Exception], steps_before: int, **options: Any) -> None:
    """A step fails by an error, leaves parameters as they were, and nothing else."""
    sample, segments = Sample(NETWORKS["mixed"]), SEGMENTS
    trainer = sample.trainer(machine, None, segments=segments, **options)
    for _ in range(steps_before):
        trainer.step(sample.x, sample.labels)
    before = state_of(trainer)
    with pytest.raises(error):
        trainer.step(sample.x, sample.labels)
    assert not machine.pinned()
    assert not machine.allocated(0)
    assert trainer.steps == steps_before
    assert same_bits(state_of(trainer), before)


def copies(steps: int) -> tuple[int, int]:
    """The copies in and out of so many steps."""
    machine = Machine()
    Sample(NETWORKS["mixed"]).trained(machine, steps, segments=SEGMENTS)
    kinds = [one.kind for one in machine.timeline]
    return kinds.count("in"), kinds.count("out")


@pytest.mark.at_most(1)
@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("kind", ["in", "out"])
def test_a_copy_that_fails_leaves_parameters_and_nothing_else(kind: str, steps: int) -> None:
    index = 0 if kind == "in" else 1
    first, end = copies(steps)[index] if steps else 0, copies(steps + 1)[index]
    for after in range(first, end, 3):
        failing(Machine(seed=after, jitter=20.0, injections=[CopyFails(kind, 0, after)]), CopyError, steps)  # type: ignore[arg-type]


def test_a_device_that_is_lost_leaves_parameters_and_nothing_else() -> None:
    machine = Machine()
    Sample(NETWORKS["mixed"]).trained(machine, 2, segments=SEGMENTS)
    end = machine.seconds()
    for part in (0.55, 0.7, 0.9, 0.99):
        failing(Machine(injections=[DeviceLost(0, part * end)]), DeviceLostError, 1)


def test_no_memory_leaves_nothing_pinned_and_a_later_step_works() -> None:
    sample = Sample(NETWORKS["mixed"])
    machine = Machine(injections=[AllocationFails(0)])
    trainer = sample.trainer(machine, None)
    with pytest.raises(DeviceMemoryError):
        trainer.step(sample.x, sample.labels)
    assert is_clean(machine)
    trainer.step(sample.x, sample.labels)
    assert trainer.steps == 1
    trainer.close()
    assert is_clean(machine)


def test_training_goes_on_behind_a_failure_with_the_same_bits() -> None:
    sample = Sample(NETWORKS["mixed"])
    expected = sample.trained(Machine(), 3, segments=SEGMENTS)
    machine = Machine(injections=[CopyFails("out", 0, copies(2)[1] - 5)])
    trainer = sample.trainer(machine, None, segments=SEGMENTS)
    losses, failures = list[float](), 0
    while len(losses) < 3:
        try:
            losses.append(trainer.step(sample.x, sample.labels))
        except CopyError:
            failures += 1
    assert failures == 1
    assert same_bits(state_of(trainer) | {"losses": np.array(losses)}, expected)


def test_ctrl_c_leaves_nothing_allocated_or_pinned() -> None:
    sample, machine = Sample(NETWORKS["dense"]), Machine()
    trainer = sample.trainer(machine, None)

    def interrupt(progress: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer.train(sample.x, sample.labels, epochs=2, progress=interrupt)
    assert is_clean(machine)


def test_an_interrupt_inside_a_step_leaves_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    sample, machine = Sample(NETWORKS["dense"]), Machine()
    trainer = sample.trainer(machine, None)
    before = state_of(trainer)

    def interrupted(self: Any, reads: Any, writes: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gpu.outofcore.networks.routines.Loss.compute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trainer.step(sample.x, sample.labels)
    assert is_clean(machine)
    assert same_bits(state_of(trainer), before)


# ---------------------------------------------------------------------------------------- bytes and time


@pytest.mark.parametrize("parameters", ["device", "host"])
def test_statistics_are_those_of_the_machine(parameters: str) -> None:
    sample, machine = Sample(NETWORKS["mixed"]), Machine()
    with sample.trainer(machine, None, segments=SEGMENTS, parameters=parameters) as trainer:
        for _ in range(2):
            machine.timeline.clear()
            trainer.step(sample.x, sample.labels)
            counts = trainer.statistics
            assert (counts.bytes_in, counts.bytes_out) == (
                machine.timeline.nbytes("in"),
                machine.timeline.nbytes("out"),
            )
            assert abs(counts.model_error) < 0.1


def test_no_memory_is_taken_inside_a_step() -> None:
    sample = Sample(NETWORKS["mixed"])
    machine = Machine(injections=[AllocationFails(0, after=1)])
    sample.trained(machine, 3, segments=SEGMENTS)


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize("topology", [H100, H200])
@pytest.mark.parametrize("accumulation", [True, False])
def test_a_step_of_vgg16_is_near_the_time_in_core(topology: Any, accumulation: bool) -> None:
    machine = Machine(topology, values=False)
    options = TrainingOptions(accumulation=accumulation)
    trainer = Trainer(vgg16(), 1024, device=machine, memory_budget=16 * 10**9, options=options)
    plan = trainer.explain()
    seconds = rehearse(plan, machine)
    assert plan.accumulates == accumulation
    assert seconds <= 1.05 * plan.in_core_seconds
    assert abs(plan.timeline.seconds / seconds - 1) < 0.01
    assert is_clean(machine)


@pytest.mark.at_most(1)
@pytest.mark.gate
@pytest.mark.parametrize("topology", [H100, H200])
def test_batch_normalization_out_of_core_is_near_the_time_in_core(topology: Any) -> None:
    machine = Machine(topology, values=False)
    trainer = Trainer(vgg16(norm=True), 1024, device=machine, memory_budget=16 * 10**9)
    plan = trainer.explain()
    seconds = rehearse(plan, machine)
    assert seconds <= 1.2 * plan.in_core_seconds
    assert abs(plan.seconds / seconds - 1) < 0.02


@pytest.mark.slow
def test_an_image_larger_than_the_budget_is_cut_into_strips_of_rows() -> None:
    *convolutions, _, _, _, _ = vgg16().layers
    layers = *convolutions[:6], AveragePool(512), Flatten(), Dense(10)
    machine, network = Machine(values=False), Network((3, 2048, 2048), layers)
    trainer = Trainer(network, 1, device=machine, memory_budget=500 * 10**6)
    plan = trainer.explain()
    assert any(len(phase.strips) > 1 for phase in plan.phases)
    assert rehearse(plan, machine) < 1.6 * plan.in_core_seconds


# ----------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("segments", "reason"),
    [
        ((Segment(1, 2, WHOLE, WHOLE),), "segments end"),
        ((Segment(2, 7, WHOLE, WHOLE),), "follow one another"),
        ((Segment(1, 7, WHOLE, Cut(1, 1)),), "a dense layer"),
        ((Segment(1, 7, WHOLE, WHOLE, frozenset({1})),), "nothing"),
        ((Segment(1, 3, WHOLE, Cut(2, 1)), Segment(4, 7, WHOLE, WHOLE)), "sums keep their order"),
        ((Segment(1, 3, WHOLE, WHOLE, frozenset({3})), Segment(4, 7, WHOLE, WHOLE)), "can keep 1, 2"),
        ((Segment(1, 3, Cut(0, 1), WHOLE), Segment(4, 7, WHOLE, WHOLE)), "at least one"),
        ((Segment(1, 3, WHOLE, WHOLE, above=5), Segment(4, 7, WHOLE, WHOLE)), "above is one of 3"),
        ((Segment(1, 3, WHOLE, WHOLE, above=2), Segment(4, 7, WHOLE, WHOLE)), "above is one of 3"),
        ((Segment(1, 7, WHOLE, WHOLE, result="again"),), "passes nothing on"),
        ((Segment(1, 3, WHOLE, WHOLE, result="lost"), Segment(4, 7, WHOLE, WHOLE)), "result"),
    ],
)
def test_segments_that_no_step_can_have_are_refused(segments: Any, reason: str) -> None:
    with pytest.raises(SchemeError, match=reason):
        Sample(NETWORKS["mixed"]).trainer(Machine(), segments=segments)


def test_batch_normalization_within_a_segment_or_of_images_is_refused() -> None:
    sample = Sample(NETWORKS["normalized"])
    with pytest.raises(SchemeError, match="begins a segment"):
        sample.trainer(Machine(), segments=(Segment(1, 7, WHOLE, WHOLE),))
    strips = Segment(1, 1, Cut(2, 1), WHOLE), *sample.few_segments(WHOLE)[1:]
    with pytest.raises(SchemeError, match="sums keep their order"):
        sample.trainer(Machine(), segments=strips)
    with pytest.raises(SchemeError, match="the first layer is BatchNorm"):
        Network((1, 4, 4), (BatchNorm(), Flatten(), Dense(2)))
    for wrong in ({"epsilon": 0.0}, {"momentum": 2.0}, {"epsilon": float("nan")}):
        with pytest.raises(SchemeError, match="epsilon must be above 0"):
            Network((1, 4, 4), (MaxPool(), BatchNorm(**wrong), Flatten(), Dense(2)))


def test_places_that_no_step_can_have_are_refused() -> None:
    sample = Sample(NETWORKS["mixed"])
    strips = Segment(1, 3, Cut(1, 1), WHOLE), Segment(4, 7, WHOLE, WHOLE)
    with pytest.raises(SchemeError, match="kept between phases"):
        sample.trainer(Machine(), segments=SEGMENTS, on_device=frozenset({Key("x", 2)}))
    with pytest.raises(SchemeError, match="cut into strips of rows"):
        sample.trainer(Machine(), segments=strips, on_device=frozenset({Key("x", 3)}))
    with pytest.raises(LaunchError, match="pass memory_budget="):
        sample.trainer(Machine(), 1000, segments=SEGMENTS)
    with pytest.raises(SchemeError, match="one segment accumulates gradients"):
        sample.trainer(Machine(), segments=(Segment(1, 7, WHOLE, WHOLE),), accumulation=False)


def test_images_and_labels_that_do_not_fit_are_refused() -> None:
    sample, machine = Sample(NETWORKS["dense"]), Machine()
    trainer = sample.trainer(machine)
    for x, labels, error in [
        (sample.x[:3], sample.labels[:3], ShapeError),
        (sample.x[:, :2], sample.labels, ShapeError),
        (sample.x.astype(float), sample.labels, DtypeError),
        (sample.x.tolist(), sample.labels, DtypeError),
        (sample.x, sample.labels[:3], ShapeError),
        (sample.x, sample.labels.astype(float), DtypeError),
        (sample.x, sample.labels + 3, RangeError),
    ]:
        with pytest.raises(error):
            trainer.step(x, labels)
    with pytest.raises(ShapeError, match="smaller batch"):
        trainer.train(sample.x[:3], sample.labels[:3], epochs=1)
    for name, value in (("batch", 0), ("seed", -1), ("seed", 0.5)):
        with pytest.raises(ShapeError, match=f"{name} is {value}"):
            Trainer(**{"network": sample.network, "batch": 1, "device": machine, name: value})  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="epochs is -1"):
        trainer.train(sample.x, sample.labels, epochs=-1)
    with pytest.raises(SchemeError, match="give all of them"):
        Trainer(sample.network, 1, device=machine, parameters={})
    wrong = {name: w.astype(float) for name, w in sample.network.initial().items()}
    with pytest.raises(ShapeError, match="must be float32"):
        Trainer(sample.network, 1, device=machine, parameters=wrong)
    assert is_clean(machine)


def test_a_nan_stays_one() -> None:
    sample = Sample(NETWORKS["mixed"])
    x = sample.x.copy()
    x[0, 0, 0, 0] = np.nan
    with sample.trainer(simwarp.Machine()) as trainer:
        assert np.isnan(trainer.step(x, sample.labels))
