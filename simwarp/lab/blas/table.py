"""The rows of ``simwarp blas bench``: square calls by every policy, on 1, 2 … devices of a machine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import product
from typing import Any, NamedTuple

import simwarp
from reference.errors import SchemeError, ShapeError
from simwarp.lab.blas.cpu_parts import cpu_parts
from simwarp.lab.blas.report import run
from simwarp.lab.blas.request import Request
from simwarp.lab.blas.variants import variant
from simwarp.lab.machines import Host, allocating, host, opened, topology_of
from simwarp.lab.network_studies import Facts, Progress
from simwarp.testing import golden

ROUTINES = ("dgemm", "dsymm", "dsyrk", "dsyr2k", "dtrmm", "dtrsm")
"""Those of the paper."""
_COUNTS = ("tasks", "stolen", "hits", "peer_hits", "misses", "evictions", "stalls")


class Grid(NamedTuple):
    """The runs: each routine with each size, number of devices, tile and policy."""

    topology: str  # a topology of `simwarp.machine`, for the simulated machine
    routines: Sequence[str]
    sizes: Sequence[int]
    devices: Sequence[int] | None  # None: all devices
    tiles: Sequence[int]
    variants: Sequence[str]
    device: str = "sim"  # "sim", or "cuda" for GPUs
    allocation: float = 0.0  # seconds of each allocation and each free, on the simulated machine


def measured(grid: Grid, progress: Progress) -> Facts:
    """Run every combination, simulated ones without values; names and sizes are checked before the first."""
    _check(grid)
    with opened(grid.device, grid.topology) as whole:
        name, gpus = whole.name, whole.gpus
    counts = grid.devices or (len(gpus),)
    combinations = [*product(grid.routines, grid.sizes, counts, grid.tiles, grid.variants)]
    rows = list[Facts]()
    for done, each in enumerate(combinations):
        progress(done, len(combinations))
        rows.append(_row(grid, *each))
    _add_efficiencies(rows, is_uniform=len(set(gpus)) == 1)
    return {
        "bench": "blas",
        "device": grid.device,
        "machine": name,
        **({"allocation": grid.allocation} if grid.allocation else {}),
        "commit": golden.commit(),
        "versions": {"simwarp": simwarp.__version__},
        "rows": rows,
        **({"cpu_parts": parts} if (parts := cpu_parts(rows)) else {}),
    }


def _check(grid: Grid) -> None:
    """Raise for an invalid routine, size, tile, device count or variant, before anything runs."""
    for routine, size in product(grid.routines, grid.sizes):
        Request.of(routine, size)
    if grid.allocation and grid.device != "sim":
        raise SchemeError(
            "--allocation on GPUs\nit is a cost of simulated machines\nleave it out, or simulate a --topology"
        )
    allocating(topology_of(grid.topology), grid.allocation)
    for devices in grid.devices or ():
        with opened(grid.device, grid.topology, devices=devices):
            pass
    for name in grid.variants:
        variant(name)
    if wrong := [number for number in (*grid.sizes, *grid.tiles) if number < 1]:
        raise ShapeError(
            f"a size or a tile is {wrong[0]}\nsizes and tiles must be 1 or more\n"
            "give other --sizes or --tiles"
        )


def _row(grid: Grid, routine: str, size: int, devices: int, tile: int, name: str) -> Facts:
    """A run as a row, on a new machine."""
    with _machine(grid, devices) as on:
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
        **({"cpu": cpu} if (cpu := found["cpu"]) else {}),
    }


def _machine(grid: Grid, devices: int) -> AbstractContextManager[Host]:
    """A new machine of the first devices."""
    if not grid.allocation:
        return opened(grid.device, grid.topology, devices=devices)
    return nullcontext(host(allocating(topology_of(grid.topology, devices), grid.allocation)))


def _add_efficiencies(rows: Sequence[Facts], *, is_uniform: bool) -> None:
    """Add to each row its parallel efficiency: its rate over the one-device rate times the devices.

    None without a row of one device, and on a machine of different devices.
    """
    alone = {_same(row): row["rate"] for row in rows if row["devices"] == 1}
    for row in rows:
        one = alone.get(_same(row)) if is_uniform else None
        row["efficiency"] = row["rate"] / (row["devices"] * one) if one else None


def _same(row: Facts) -> tuple[Any, ...]:
    """The routine, size, tile and variant of a row: the key of its one-device row."""
    return row["routine"], row["n"], row["tile"], row["variant"]
