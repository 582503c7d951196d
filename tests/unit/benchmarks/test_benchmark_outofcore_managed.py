"""The benchmark of managed memory: its rows on a GPU that is not there, and what it refuses."""

from pathlib import Path

import pytest

from benchmark_scripts import scripts
from gpu.cuda_machine import CudaMachine
from gpu.outofcore import calibration
from support.fake_gpus import gpus

__all__ = ["gpus"]

(managed,) = scripts("outofcore_managed")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SIMWARP_CACHE", str(tmp_path))
    monkeypatch.setattr(calibration, "COPY_BYTES", 1 << 14)
    monkeypatch.setattr(calibration, "ROUTINE_BYTES", 1 << 17)
    monkeypatch.setattr(managed, "CHANNELS", 3)
    monkeypatch.setattr(managed, "PIECES", 4)


def test_a_row_has_the_rivals_and_their_prefetches(gpus):
    found = gpus()
    with CudaMachine([0]) as machine:
        (row,) = managed.measure(machine, ["58x50"], 1)
    assert list(row.peers) == ["managed", "managed, prefetch", "managed, prefetch, pieces", "in core"]
    assert min(row.ours, *row.peers.values()) > 0
    assert row.params["budget"] == row.params["bytes"] // 2 == 4 * 3 * 58 * 50
    # 4 pieces: of x 3 planes each, of y 3 in and 3 out
    assert row.params["prefetch_calls"] == 4 * 9
    to = found.driver.real.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
    parts = {nbytes for _, nbytes, kind in found.driver.prefetches if kind == to}
    assert parts == {4 * 15 * 50, 4 * 13 * 50, 4 * 3 * 58 * 50}
    assert found.is_clean()


def test_more_managed_memory_than_half_of_what_is_free_is_refused(gpus):
    found = gpus()
    found.driver.free_bytes = 2 * 2 * 4 * 3 * 58 * 50 - 1
    with CudaMachine([0]) as machine, pytest.raises(SystemExit, match="half of what is free"):
        list(managed.measure(machine, ["58x50"], 1))
    assert "cuMemAllocManaged" not in found.driver.calls
    assert found.is_clean()
