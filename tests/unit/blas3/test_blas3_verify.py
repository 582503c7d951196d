"""The case blas3 of the harness."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpu.blas3 import products, routines
from gpu.cuda_machine import CudaMachine
from simwarp.verify.cases import blas3
from simwarp.verify.cases.blas3 import CASES, VARIANTS, differs
from simwarp.verify.compare import check, simulator
from simwarp.verify.draw import Draw
from support.fake_gpus import gpus

__all__ = ["gpus"]

CASE = CASES[0]


def found(numbers: range, seed: int = 0) -> list[str]:
    checked = [check(CASE, seed, k, {"simulator": simulator}) for k in numbers]
    return [str(mismatch) for each in checked for mismatch in each.mismatches]


def test_some_inputs_agree_with_the_definition() -> None:
    assert found(range(0, len(VARIANTS), 9)) == []


@pytest.mark.gate
def test_every_variant_agrees_with_the_definition() -> None:
    assert found(range(2 * len(VARIANTS)), seed=1) == []


def test_the_first_inputs_cover_every_variant() -> None:
    drawn = [CASE.draw(Draw(0, "blas3", k)) for k in range(CASE.covering)]
    assert len({(item.routine, *item.flags.values()) for item in drawn}) == 380


def test_a_wrong_number_is_located() -> None:
    item = CASE.draw(Draw(0, "blas3", 0))
    k = next(k for k in range(99) if CASE.answers["reference"](CASE.draw(Draw(0, "blas3", k))).size > 4)
    item = CASE.draw(Draw(0, "blas3", k))
    expected = CASE.answers["reference"](item)
    got = expected.copy()
    got[0, 1] += 1
    assert np.argwhere(differs(item, expected, got)).tolist() == [[0, 1]]
    assert not differs(item, expected, expected).any()


def test_beta_applied_at_each_step_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with_beta = products._with_beta

    def wrong(problem: Any, *given: Any) -> Iterator[products.Step]:
        for step in with_beta(problem, *given):
            yield products.Step(replace(step.kernel, beta=problem.beta), step.reads)

    monkeypatch.setattr(products, "_with_beta", wrong)
    messages = found(range(36))
    assert any("simulator differs from reference in" in message for message in messages)
    assert any("element" in message for message in messages)


def test_a_product_in_both_triangles_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = [k for k, (routine, _) in enumerate(VARIANTS) if routine.endswith("gemmt")]
    monkeypatch.setattr(routines, "_triangle", lambda order, uplo: np.ones((order, order), np.bool_))
    assert any(found(range(k, k + 1)) for k in ours)


def test_a_cuda_device_takes_machines_of_one_and_more_gpus(
    gpus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, made = gpus(3), dict[int, CudaMachine]()
    whole = CudaMachine()

    def first(count: int) -> CudaMachine:
        return made.setdefault(count, CudaMachine(range(count)))

    monkeypatch.setattr(blas3, "default_machine", lambda: whole)
    monkeypatch.setattr(blas3, "_first_gpus", first)
    for k in (*range(0, 90, 3), 561):  # 561: a copy within a device, of what BLAS does not read
        assert not check(CASE, 1, k, {"cuda": object}).mismatches
    assert sorted(made) == [1, 2, 3]
    assert found.driver.calls["cuMemAlloc"] > 3
