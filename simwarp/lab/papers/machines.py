"""What simulated machines, or GPUs, do by the clock, for BLASX and ooc_cuDNN."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from simwarp.lab.blas.applications import APPLICATIONS, predicted
from simwarp.lab.blas.cpu_parts import cpu_parts
from simwarp.lab.blas.gemm_shares import gemm_shares
from simwarp.lab.blas.report import run
from simwarp.lab.blas.request import Request
from simwarp.lab.blas.table import ROUTINES, Grid, measured
from simwarp.lab.blas.variants import variant
from simwarp.lab.machines import opened, topology_of
from simwarp.lab.network_studies import Facts
from simwarp.lab.outofcore.paper import FIGURES
from simwarp.lab.papers.entries import Made, Maker, Making
from simwarp.lab.unbacked import unbacked
from simwarp.machine import Machine

EVEREST = "EVEREST"
ALLOCATION = 0.0005
"""Seconds of an allocation and of a free; assumed."""
PROBED = 1 << 28
"""Bytes of a copy whose bandwidth is that of a route."""
MEGA = 1e6


def blas(
    sizes: Sequence[int],
    rows: Callable[[Sequence[Facts]], list[Facts]],
    *,
    routines: Sequence[str] = ROUTINES,
    devices: Sequence[int] | None = None,
    tiles: Sequence[int] = (1024,),
    variants: Sequence[str] = ("paper",),
    allocation: float = 0.0,
    machine: str = EVEREST,
) -> Maker:
    """Calls of level-3 BLAS of the sizes, whose rows ``rows`` makes of those of ``simwarp blas bench``."""

    def make(making: Making) -> Made:
        device = "sim" if making.device is None else "cuda"
        grid = Grid(machine, routines, sizes, devices, tiles, variants, device, allocation)
        if grid not in making.kept:
            making.kept[grid] = measured(grid, making.progress)
        found = making.kept[grid]
        clock = (
            f"by the clock of the simulated {found['machine']}"
            if device == "sim"
            else f"on {found['machine']}"
        )
        shown = ", ".join(f"{n:,}" for n in sizes)
        return Made(rows(found["rows"]), f"N = {shown}, tiles of {', '.join(map(str, tiles))}, {clock}")

    return make


def rates(found: Sequence[Facts]) -> list[Facts]:
    """TFLOP/s by routine, N and number of GPUs (figure 7)."""
    names = ("routine", "n", "devices", "variant")
    return [{**{name: row[name] for name in names}, "TFLOP/s": row["rate"] / 1e12} for row in found]


def efficiencies(found: Sequence[Facts]) -> list[Facts]:
    """Mean parallel efficiencies in percent, by routine and number of GPUs (table III)."""
    of: dict[tuple[str, int], list[float]] = {}
    for row in found:
        if row["devices"] > 1 and row["efficiency"] is not None:
            of.setdefault((row["routine"], row["devices"]), []).append(100 * row["efficiency"])
    return [
        {"routine": routine, "devices": devices, "percent": sum(each) / len(each)}
        for (routine, devices), each in of.items()
    ]


def allocations(found: Sequence[Facts]) -> list[Facts]:
    """TFLOP/s of the heap beside the driver's allocations, by N (figure 5)."""
    rate = {(row["n"], row["variant"]): row["rate"] / 1e12 for row in found}
    return [
        {
            "n": n,
            "heap, TFLOP/s": rate[n, "paper"],
            "driver's": rate[n, "native"],
            "gain": rate[n, "paper"] / rate[n, "native"],
        }
        for n in sorted({n for n, _ in rate})
    ]


def parts_of_cpu(found: Sequence[Facts]) -> list[Facts]:
    """GFLOP/s that the host's cores add, by policy and N (figure 9)."""
    return [
        {
            "policy": part["variant"],
            "n": part["n"],
            "without the CPU, GFLOP/s": part["without"] / 1e9,
            "it adds": part["part"] / 1e9,
        }
        for part in cpu_parts(found)
    ]


def shares(making: Making) -> Made:
    """Percent of the operations that are of GEMM, by routine and N (table I)."""
    making.progress(0, 1)
    rows = [
        {"routine": row["routine"], "n": row["n"], "percent": 100 * row["share"]} for row in gemm_shares()
    ]
    return Made(rows, "counted from the plans, in tiles of 1,024")


def applications(making: Making) -> Made:
    """How much faster products of applications are on simulated GPUs than on their cores (table VI)."""
    rows = list[Facts]()
    for done, one in enumerate(APPLICATIONS):
        making.progress(done, len(APPLICATIONS))
        rows += [
            {
                "application": row["application"],
                "dtype": row["dtype"],
                "n": row["size"],
                "speedup": row["speedup"],
            }
            for row in predicted([one])
        ]
    return Made(rows, "products alone, by the clock of the simulated machine that print has for each")


def by_tile(found: Sequence[Facts]) -> list[Facts]:
    """TFLOP/s by the tile and policy (figure 10)."""
    rate = {(row["tile"], row["variant"]): row["rate"] / 1e12 for row in found}
    names = dict.fromkeys(name for _, name in rate)
    return [
        {"tile": tile, **{f"{name}, TFLOP/s": rate[tile, name] for name in names}}
        for tile in sorted({tile for tile, _ in rate})
    ]


def volumes(found: Sequence[Facts]) -> list[Facts]:
    """Megabytes that move, by routine: the paper's policy, and without a cache, as cuBLAS-XT (table V)."""
    moved = {(row["routine"], row["variant"]): sum(row["bytes"].values()) / MEGA for row in found}
    names = {"paper": "BLASX", "no-cache": "cuBLAS-XT"}
    return [
        {"routine": routine, "library": names[policy], "MB": megabytes}
        for (routine, policy), megabytes in moved.items()
    ]


def profile(n: int, routines: Sequence[str] = ROUTINES) -> Maker:
    """How long each GPU computes, copies beside nothing else, and waits (figure 8)."""

    def make(making: Making) -> Made:
        rows, device = list[Facts](), "sim" if making.device is None else "cuda"
        name = ""
        for done, routine in enumerate(routines):
            making.progress(done, len(routines))
            with opened(device, EVEREST) as on:
                name = on.name
                found = run(Request.of(routine, n), 1024, on, variant("paper"))
            for part in found["devices"]:
                times = {kind: part[kind] for kind in ("compute", "communication", "other")}
                rows.append({"routine": routine, "gpu": part["device"] + 1, **times})
        return Made(rows, f"N = {n:,}, tiles of 1,024, seconds on {name}")

    return make


def bandwidths(making: Making) -> Made:
    """GB/s of a copy from and to the host, and between two GPUs, of the simulated Everest (table IV)."""
    rows, topology = list[Facts](), topology_of(EVEREST)
    for done, (name, source, target) in enumerate((("host and GPU", None, 1), ("GPU to GPU", 1, 2))):
        making.progress(done, 2)
        seconds = _copied(Machine(topology, values=False), source, target)
        rows.append({"route": name, "GB/s": PROBED / seconds / 1e9})
    return Made(rows, f"a copy of {PROBED:,} bytes on the simulated {topology.name}")


def _copied(machine: Machine, source: int | None, target: int) -> float:
    """The seconds of a copy of `PROBED` bytes from the host, or from a GPU, to a GPU."""
    tile = machine.allocate(target, PROBED).tile(PROBED // 8, 1, np.dtype(np.float64))
    stream = machine.stream(target)
    if source is None:
        array = unbacked((PROBED // 8, 1), np.dtype(np.float64))
        machine.pin(array)
        machine.copy_in(stream, array, tile)
    else:
        there = machine.allocate(source, PROBED).tile(PROBED // 8, 1, np.dtype(np.float64))
        machine.copy_peer(stream, there, tile)
    machine.run([])
    return machine.seconds()


def ooc(figure: str, rows: Callable[[Facts], Facts], *, rate: float | None = None) -> Maker:
    """A figure of ``simwarp ooc bench`` on the simulated P100; ``rows`` makes a row of each of its rows.

    With ``rate`` only those runs whose GPU computes so fast.
    """

    def make(making: Making) -> Made:
        found = list[Facts]()
        runs = [one for one in FIGURES[figure] if rate is None or rate in getattr(one, "args", ())]
        for done, one in enumerate(runs):
            making.progress(done, len(runs))
            found.append(rows(one()))
        return Made(found, "by the clock of the simulated P100")

    return make
