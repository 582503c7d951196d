"""The case conv of the harness."""

from typing import Any

import numpy as np
import pytest

from gpu.cuda_machine import CudaMachine
from gpu.outofcore import AveragePool, MaxPool
from simwarp.verify.cases import conv
from simwarp.verify.cases.conv import CASES, VARIANTS, WHOLE, differs
from simwarp.verify.compare import check, simulator
from simwarp.verify.draw import Draw
from support import outofcore_faults as faults
from support.fake_gpus import gpus

__all__ = ["gpus"]

CASE = CASES[0]


def found(numbers: range, seed: int = 0) -> list[str]:
    checked = [check(CASE, seed, k, {"simulator": simulator}) for k in numbers]
    return [str(mismatch) for each in checked for mismatch in each.mismatches]


@pytest.mark.slow
def test_some_inputs_agree_with_the_definition() -> None:
    assert found(range(30)) == []


@pytest.mark.gate
@pytest.mark.gate_cases("1000")
@pytest.mark.parametrize("count", [250, 1000])
def test_many_inputs_agree_with_the_definition(count: int) -> None:
    assert found(range(count), seed=1) == []


def test_inputs_cover_every_variant_and_every_kind_of_split() -> None:
    drawn = [CASE.draw(Draw(0, "conv", k)) for k in range(400)]
    first = {(item.routine, item.options["layout"], item.activation) for item in drawn[: CASE.covering]}
    assert first == {*VARIANTS}
    assert {type(item.pool) for item in drawn} == {type(None), MaxPool, AveragePool}
    for routine in ("conv2d", "conv2d_backward_data", "conv2d_backward_filter"):
        of = [item for item in drawn if item.routine == routine]
        assert {item.has_whole_sums for item in of} == {False, True}
        assert {item.options["groups"] for item in of} == {1, 2, 3}
        assert {name for item in of for name in item.on_device} == {
            name for item in of for name in item.names
        } | {"out"}
        for axis in ("images", "rows", "channels", "filters"):
            sizes = {getattr(item.pieces, axis) == WHOLE for item in of if item.pieces}
            assert sizes == {False, True}


def test_a_wrong_number_is_located() -> None:
    item = CASE.draw(Draw(0, "conv", 0))
    expected = CASE.answers["reference"](item)
    got = expected.copy()
    got[0, 0, 0, 0] += 1
    assert np.argwhere(differs(item, expected, got)).tolist() == [[0, 0, 0, 0]]
    assert differs(item, expected, got * np.nan).all()


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize(
    ("plant", "text"),
    [
        (faults.halo_one_row_short, "simulator differs from reference in"),
        (faults.partial_sums_without_accumulation, "simulator differs from reference in"),
        (faults.operand_reused_early, "writes tile"),
        (faults.output_reused_early, "copy out of device 0"),
        (faults.wrong_last_piece, "got nan"),
        (faults.offset_of_filters, "simulator differs from reference in"),
        (faults.places_on_the_device_of_the_piece_before, "on the device: "),
        (faults.gaps_on_the_device_are_ignored, "on the device: "),
        (faults.pooling_one_row_late, "Pool(window="),
        (faults.pooled_result_reused_early, "_pool of device 0"),
        (faults.gradient_that_ignores_the_stride, "conv2d_backward_data"),
        (faults.stale_buffer, "have not the bits of the call in one piece"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_planted_fault_is_reported(plant: Any, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    gradients = range(len(VARIANTS) - 4, 120, len(VARIANTS))
    messages = found(gradients if "gradient" in plant.__name__ else range(50))
    assert any(text in message for message in messages), messages


@pytest.mark.gate
def test_a_cuda_device_stands_for_a_gpu(gpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for k in range(20):
        gpus(1, k)
        with CudaMachine() as machine:
            monkeypatch.setattr(conv, "default_machine", lambda machine=machine: machine)
            item = CASE.draw(Draw(0, "conv", k))
            got = CASE.answers["gpu"](item, "a CUDA device")
        assert not differs(item, CASE.answers["reference"](item), got).any(), k
