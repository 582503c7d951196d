"""The rows of ``simwarp blas bench``: square calls by every policy, on some of a machine's devices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import simwarp
from reference.errors import ShapeError
from simwarp.lab.blas.machines import host, topology_of
from simwarp.lab.blas.report import run
from simwarp.lab.blas.request import Request
from simwarp.lab.blas.variants import variant
from simwarp.lab.network_studies import Facts, Progress
from simwarp.testing import golden

ROUTINES = ("dgemm", "dsymm", "dsyrk", "dsyr2k", "dtrmm", "dtrsm")
"""Those of the paper."""
_COUNTS = ("tasks", "stolen", "hits", "peer_hits", "misses", "evictions", "stalls")


class Grid(NamedTuple):
    """What is run: each routine with each size, number of devices, tile and policy.

    Attributes
    ----------
    topology : str
    routines : sequence of str
    sizes : sequence of int
    devices : sequence of int
    tiles : sequence of int
    variants : sequence of str
    """

    topology: str
    routines: Sequence[str]
    sizes: Sequence[int]
    devices: Sequence[int]
    tiles: Sequence[int]
    variants: Sequence[str]


def measured(grid: Grid, progress: Progress) -> Facts:
    """Run every combination, without values; names and sizes are checked before the first."""
    combinations = [*product(grid.routines, grid.sizes, grid.devices, grid.tiles, grid.variants)]
    _check(grid)
    rows = list[Facts]()
    for done, each in enumerate(combinations):
        progress(done, len(combinations))
        rows.append(_row(grid.topology, *each))
    _add_efficiencies(rows, topology_of(grid.topology).gpus)
    return {
        "bench": "blas",
        "device": "sim",
        "machine": topology_of(grid.topology).name,
        "commit": golden.commit(),
        "versions": {"simwarp": simwarp.__version__},
        "rows": rows,
    }


def _check(grid: Grid) -> None:
    """Raise for what no run can have."""
    for routine, size in product(grid.routines, grid.sizes):
        Request.of(routine, size)
    for devices in grid.devices:
        topology_of(grid.topology, devices)
    for name in grid.variants:
        variant(name)
    if wrong := [number for number in (*grid.sizes, *grid.tiles) if number < 1]:
        raise ShapeError(f"a size or a tile is {wrong[0]}\nthey are 1 or more\ngive other --sizes or --tiles")


def _row(topology: str, routine: str, size: int, devices: int, tile: int, name: str) -> Facts:
    """A run as a row."""
    on = host(topology_of(topology, devices))
    found = run(Request.of(routine, size), tile, on, variant(name))
    parts: list[dict[str, Any]] = found["devices"]
    return {
        "routine": routine,
        "n": size,
        "devices": devices,
        "tile": tile,
        "variant": name,
        "seconds": found["seconds"],
        "rate": found["rate"],
        "bytes": found["bytes"],
        "imbalance": found["imbalance"],
        "communication": max(part["communication"] for part in parts),
        **{count: sum(part[count] for part in parts) for count in _COUNTS},
    }


def _add_efficiencies(rows: Sequence[Facts], gpus: Sequence[Any]) -> None:
    """Add the parallel efficiency to each row: its rate over that of one device times the devices.

    None without a row of one device, and on a machine of different devices.
    """
    alone = {_same(row): row["rate"] for row in rows if row["devices"] == 1}
    for row in rows:
        one = alone.get(_same(row)) if len(set(map(id, gpus))) == 1 else None
        row["efficiency"] = row["rate"] / (row["devices"] * one) if one else None


def _same(row: Facts) -> tuple[Any, ...]:
    """What a row has in common with that of one device."""
    return row["routine"], row["n"], row["tile"], row["variant"]
