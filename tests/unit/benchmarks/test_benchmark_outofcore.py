"""The benchmark of out-of-core convolutions: its rows on a GPU that is not there, and its checks."""

from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from benchmark_scripts import scripts
from gpu.outofcore import calibration
from reference.training import conv2d
from support.fake_gpus import gpus

__all__ = ["gpus"]

(outofcore,) = scripts("outofcore")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SIMWARP_CACHE", str(tmp_path))
    monkeypatch.setattr(calibration, "COPY_BYTES", 1 << 14)
    monkeypatch.setattr(calibration, "ROUTINE_BYTES", 1 << 17)
    monkeypatch.setitem(outofcore.ROWS, "ooc/small", (3, 4, 6))
    monkeypatch.setattr(outofcore, "BUDGET", 40_000)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("transforms", [False, True])
def test_a_row_has_times_bounds_and_the_model(gpus, transforms):
    found = gpus()
    options = {"rows": ["ooc/small"], "images": 5, "calls": 2, "no_peers": True, "transforms": transforms}
    (row,) = outofcore.measured(Namespace(**options))
    assert len(row.params["runs"]) == 2
    assert ("exact" in row.params) == transforms
    for ours in (row.params, row.params.get("exact", row.params)):
        assert ours["error"] <= 1
        assert set(ours["phase_seconds"]) == {"prepare", "run", "others"}
        assert min(ours["phase_seconds"].values()) > 0
    assert row.ours > 0
    assert row.params["bytes_out"] == 4 * 5 * 4 * 36
    assert row.params["bound_seconds"] >= row.params["copy_seconds"] > 0
    assert row.params["model_seconds"] > 0
    assert max(row.params["busy_seconds"].values()) == row.params["busy_seconds"]["all"] > 0
    assert found.is_clean()


def test_answers_are_checked():
    layer = outofcore.layer_of("ooc/small", 2)
    layer.y[...] = conv2d(layer.x, layer.w)
    assert layer.error(transforms=False) <= 1
    layer.y *= np.float32(1.001)
    with pytest.raises(SystemExit, match="the answer is wrong"):
        layer.error(transforms=False)
    assert layer.error(transforms=True) <= 1
    layer.y[...] = 0
    with pytest.raises(SystemExit, match="the answer is wrong"):
        layer.error(transforms=True)
