"""Faults planted in one place of `gpu.outofcore.networks`, each found by its type; without it none is found.

A fault of the pipeline has a typed error of the machine. One of the pieces has other bits than the training
in one piece, or than the definitions.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from gpu.outofcore import SGD, Cut, Segment
from gpu.outofcore.networks.phases import Key
from reference.errors import LaunchError, MachineError, SimwarpError
from simwarp.machine import Machine, TileRaceError, UnwrittenTileError
from support import training_faults as faults
from support.training_networks import NETWORKS, Sample, by_definition, passing, same_bits

SAMPLE = Sample(NETWORKS["strided"])
STRIPS = (
    Segment(1, 2, Cut(1, 2), Cut(1, 3), frozenset({1})),
    Segment(3, 4, Cut(1, 2), Cut(1, 2)),
    Segment(5, 5, Cut(6, 99), Cut(4, 99)),
)
IMAGES = (
    Segment(1, 2, Cut(2, 99), Cut(2, 99), frozenset({1})),
    Segment(3, 4, Cut(2, 99), Cut(2, 99)),
    Segment(5, 5, Cut(6, 99), Cut(2, 99)),
)


class WrongResultError(SimwarpError):
    """Other bits, or a result that is not that of the definitions."""


@cache
def expected() -> dict[str, Any]:
    return SAMPLE.trained(Machine(), segments=(Segment(1, 5, Cut(6, 99), Cut(6, 99)),))


@cache
def definition() -> dict[str, Any]:
    return by_definition(SAMPLE)


def run(segments: tuple[Segment, ...], seed: int, parameters: str) -> None:
    machine = Machine(seed=seed, jitter=20.0)
    found = SAMPLE.trained(machine, segments=segments, parameters=parameters)
    if not same_bits(found, expected()):
        raise WrongResultError("other bits than in one piece")
    for name, value in definition().items():
        if not np.abs(found[name] - value).max() <= 1e-5 * np.abs(value).max():
            raise WrongResultError(f"{name} is not that of the definition")


def found(segments: tuple[Segment, ...], parameters: str = "device") -> list[SimwarpError]:
    """The error of each seed that has one."""
    errors: list[SimwarpError] = []
    expected()
    for seed in range(4):
        try:
            run(segments, seed, parameters)
        except (MachineError, LaunchError, WrongResultError) as error:
            errors.append(error)
    return errors


ANY = (WrongResultError, TileRaceError, UnwrittenTileError)
CASES = [
    (faults.halo_one_row_short, STRIPS, WrongResultError),
    (faults.halo_of_gradients_one_row_short, STRIPS, WrongResultError),
    (faults.gradients_without_accumulation, IMAGES, WrongResultError),
    (faults.gradients_without_accumulation, STRIPS, WrongResultError),
    (faults.accumulation_from_the_first_piece, IMAGES, UnwrittenTileError),
    (faults.gradients_rounded_in_each_piece, IMAGES, WrongResultError),
    (faults.loaded_buffer_reused_early, IMAGES, TileRaceError),
    (faults.loaded_buffer_reused_early, STRIPS, TileRaceError),
    (faults.copy_out_before_its_routine, IMAGES, (TileRaceError, UnwrittenTileError)),
    (faults.stored_buffer_reused_early, IMAGES, TileRaceError),
    (faults.stored_buffer_reused_early, STRIPS, TileRaceError),
    (faults.routine_before_its_copy, IMAGES, (TileRaceError, UnwrittenTileError)),
    (faults.phases_that_do_not_wait, IMAGES, (TileRaceError, UnwrittenTileError)),
    (faults.wrong_last_piece, IMAGES, ANY),
    (faults.lifetimes_ignored, IMAGES, LaunchError),
    (faults.host_lifetimes_ignored, IMAGES, ANY),
    (faults.padding_of_strips, STRIPS, WrongResultError),
]
"""The fault, where it is planted, and the errors that find it."""


@pytest.mark.at_most(1)
@pytest.mark.parametrize("parameters", ["device", "host"])
@pytest.mark.parametrize("segments", [STRIPS, IMAGES], ids=["strips", "images"])
def test_the_same_seeds_without_a_fault_find_nothing(segments: Any, parameters: str) -> None:
    assert found(segments, parameters) == []


@pytest.mark.at_most(2)
@pytest.mark.parametrize(
    ("plant", "segments", "kinds"),
    CASES,
    ids=[f"{plant.__name__}-{'strips' if of is STRIPS else 'images'}" for plant, of, _ in CASES],
)
def test_a_planted_fault_is_found(plant: Any, segments: Any, kinds: Any, monkeypatch: Any) -> None:
    expected()
    definition()
    plant(monkeypatch)
    errors = found(segments)
    assert len(errors) == 4, "some seeds find nothing"
    for error in errors:
        assert isinstance(error, kinds), error


@pytest.mark.parametrize("plant", [faults.statistics_of_the_last_piece, faults.weight_after_its_update])
def test_a_planted_fault_of_batch_normalization_is_found(plant: Any, monkeypatch: Any) -> None:
    sample = Sample(NETWORKS["normalized"])
    pieces = sample.few_segments(Cut(2, 99))
    right = by_definition(sample)["conv1.w w"]
    sound = sample.trained(Machine(), segments=pieces)["conv1.w w"]
    plant(monkeypatch)
    wrong = sample.trained(Machine(), segments=pieces)["conv1.w w"]
    assert np.abs(sound - right).max() < 1e-5 < 1e-4 < np.abs(wrong - right).max()


@pytest.mark.at_most(1)
@pytest.mark.parametrize(
    "plant", [faults.places_taken_before_they_are_read, faults.parameters_updated_before_their_last_use]
)
def test_a_planted_fault_of_computing_again_is_found(plant: Any, monkeypatch: Any) -> None:
    sample = Sample(NETWORKS["normalized"], sgd=SGD(3.0))
    segments = passing(("passed", "again", "kept"), frozenset({1, 4}), (3, 5, 6))
    places = frozenset({Key("g", 6), Key("r", 4)})
    right = sample.trained(Machine(), segments=sample.few_segments(Cut(6, 99)))
    assert same_bits(sample.trained(Machine(), segments=segments, on_device=places), right)
    plant(monkeypatch)
    assert not same_bits(sample.trained(Machine(), segments=segments, on_device=places), right)


def test_a_fault_of_every_plan_is_found_by_the_definitions(monkeypatch: pytest.MonkeyPatch) -> None:
    definition()
    faults.activation_gradient_left_out(monkeypatch)
    wrong = SAMPLE.trained(Machine())
    assert np.abs(wrong["conv1.w w"] - definition()["conv1.w w"]).max() > 1e-3
