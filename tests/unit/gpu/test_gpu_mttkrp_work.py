"""`reference.sparse.mttkrp_work` is what the kernels do, as observers of the simulator count it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import simwarp
from gpu.mttkrp.plan import plan
from reference.sparse import (
    Coo,
    FCoo,
    PerMode,
    b_csf,
    b_csf_all,
    csf,
    csf_all,
    f_coo_all,
    fibers,
    fibers_all,
    hi_coo,
    mm_csf,
    mttkrp_work,
)
from simwarp.observe import AccessEvent, Observer
from simwarp.observe.sectors import SECTOR_BYTES, count_sectors
from support import scattered_tensors

RANK, BYTES = 128, 4
"""A row is one access of a warp, so that no warp works on two rows."""
SHAPES = ((7, 11, 13), (6, 40), (5, 6, 4, 7))
BUILDERS = {
    "coo": lambda coo: coo,
    "hicoo": hi_coo,
    "f-coo": f_coo_all,
    "csf-one": csf,
    "csf-all": csf_all,
    "fibers-all": lambda coo: fibers_all(coo, split=3),
    "b-csf-one": lambda coo: b_csf(coo, split=3),
    "b-csf": lambda coo: b_csf_all(coo, split=3),
    "fibers": lambda coo: fibers(coo, tuple(range(len(coo.shape))), split=3),
    "mm-csf": lambda coo: mm_csf(coo, split=3),
}


class Rows(Observer):
    """Counts elements and sectors that are read of arrays with a name, and atomic additions."""

    def __init__(self) -> None:
        self.elements: Counter[tuple[str, str]] = Counter()
        self.sectors: Counter[tuple[str, str]] = Counter()

    def on_access(self, event: AccessEvent) -> None:
        if event.space != "global":
            return
        memory = event.chunk.launch.memory
        names = np.array([memory.find(address).name for address in event.addresses.tolist()])
        for name in set(names.tolist()):
            mine = names == name
            key = name, "load" if event.kind == "load" else "store" if event.kind == "store" else "add"
            self.elements[key] += int(mine.sum()) * event.width // BYTES
            found = count_sectors(event.lanes[mine], event.addresses[mine], event.width, event.kind)
            self.sectors[key] += found.sectors


def observed(tensor: Any, shape: tuple[int, ...], mode: int) -> tuple[Rows, int]:
    """What one MTTKRP reads and adds, by array, and its operations on floats."""
    rows = Rows()
    device = simwarp.Device(observe="traffic", observers=(rows,))
    factors = [device.upload(np.ones((n, RANK), np.float32), "factor") for n in shape]
    out = device.allocate((shape[mode], RANK), np.float32, "out")
    plan(tensor, mode, RANK, np.float32, device)(factors, out)
    return rows, device.report.traffic.operations["f32"]


def parts_of(tensor: Any, mode: int) -> tuple[Any, ...]:
    tensor = tensor.tensors[mode] if isinstance(tensor, PerMode) else tensor
    return tensor.parts or (tensor,)


@pytest.mark.at_most(8)
@pytest.mark.slow_cases("shape2*")
@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_work_of_the_algorithms_is_what_the_simulator_counts(shape: tuple[int, ...], name: str) -> None:
    coo = scattered_tensors.scattered(shape, 90)
    tensor, last = BUILDERS[name](coo), len(shape) - 1
    for mode in range(len(shape)):
        rows, operations = observed(tensor, shape, mode)
        work = mttkrp_work(tensor, RANK, mode)
        assert rows.elements["factor", "load"] == work.reads
        assert rows.sectors["factor", "load"] == work.reads * BYTES // SECTOR_BYTES
        # What is added to the result is an addition of the algorithm, except where it has none of its own.
        parts = parts_of(tensor, mode)
        once = [part for part in parts if hasattr(part, "modes") and not isinstance(part, FCoo)]
        added = sum(mttkrp_work(p, RANK, mode).writes for p in once if p.modes.index(mode) in (0, last))
        assert operations == work.flops - added


@pytest.mark.at_most(8)
@pytest.mark.parametrize("shape", SHAPES)
def test_writes_of_the_kernels_are_within_those_of_the_algorithms(shape: tuple[int, ...]) -> None:
    coo = scattered_tensors.scattered(shape, 90)
    tree = fibers(coo, tuple(range(len(shape))), split=3)
    pieces = RANK * tree.uppers.shape[1]
    for mode, level in enumerate(tree.modes):
        added = observed(tree, shape, mode)[0].elements["out", "add"]
        writes = mttkrp_work(tree, RANK, mode).writes
        if level == 0:  # the fewest: as many more as groups of lanes end within a slice
            assert writes <= added <= pieces
        elif level == len(shape) - 1:
            assert added == writes
        else:  # the most: fibers with one row after another are added up before
            assert 0 < added <= writes
    assert 0 < observed(coo, shape, 0)[0].elements["out", "add"] <= mttkrp_work(coo, RANK, 0).writes


def test_the_table_bounds_the_writes_of_mm_csf() -> None:
    shape = SHAPES[0]
    coo = scattered_tensors.scattered(shape, 90)
    tensor = mm_csf(coo)
    assert len(tensor.partitions) > 1
    added = sum(observed(tensor, shape, mode)[0].elements["out", "add"] for mode in range(3))
    least, most = mttkrp_work(tensor, RANK).writes, mttkrp_work(tensor, RANK, by="paper").writes
    assert least <= added <= most


def test_a_row_too_many_is_seen() -> None:
    coo = scattered_tensors.scattered(SHAPES[0], 90)
    fewer = Coo(coo.coords[:, 1:], coo.values[1:], coo.shape)
    rows, _ = observed(coo, coo.shape, 1)
    assert rows.elements["factor", "load"] != mttkrp_work(fewer, RANK, 1).reads
