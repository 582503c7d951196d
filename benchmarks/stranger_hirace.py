"""Races found in the Indigo kernels of HiRace's artifact, beside the published figures of three other tools.

Of the 590 CUDA kernels of github.com/JohnJacobsonIII/HiRace-Artifact-SC24 (HiRace: arXiv 2401.04701) 346 have
a race by their name (``atomicBug``, ``guardBug``, ``raceBug``, ``syncBug``) and 244 have none. Each runs once
on each graph of the artifact with its data and geometry: 1024 blocks of 256 threads, 4 blocks for
``boundsBug``, all checks in collecting mode.

``races/<graph>``: kernels with a race in which one is reported. ``false_alarms``: races reported in the
others. On the graphs of five nodes the bugs of some kernels cannot be reached. The peers' figures are those
of table 1 of the artifact, measured on a GPU.
"""

from __future__ import annotations

import ctypes
import re
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from common import Row
from rich.progress import track
from stranger_sources import StrangerError

import simwarp
from gpu.compile import compile
from simwarp.faults import OutOfBounds, Race

PROJECT = "JohnJacobsonIII/HiRace-Artifact-SC24"
GRAPHS = (
    "DAG_100n_200e",
    "DAG_200n_400e",
    "counterDAG_200n_1000e",
    "power_law_200n_1000e",
    "DAG_5n_5e",
    "counterDAG_5n_5e",
)
PUBLISHED = {
    "HiRace (published 2024-11)": (346, 346, 346, 346, 182, 295),
    "iGUARD (published 2024-11)": (298, 298, 298, 297, 118, 148),
    "compute-sanitizer (published 2024-11)": (92, 92, 56, 128, 92, 92),
}
REACHABLE = (346, 346, 346, 346, 186, 300)
"""Kernels whose race some launch of that geometry can reach, by enumeration of each thread's accesses."""
RACY = re.compile("(atomic|guard|race|sync)Bug")
KERNELS = 590
HOST_CODE = "void serial_code("
THREADS = 256


class Graph(NamedTuple):
    """A graph as the artifact stores it, and the two arrays of data that its programs draw."""

    nodes: int
    index: npt.NDArray[np.int32]
    neighbours: npt.NDArray[np.int32]
    first: npt.NDArray[np.int32]
    second: npt.NDArray[np.int32]


class Outcome(NamedTuple):
    """The races and faults that one launch reported."""

    race: bool
    out_of_bounds: bool
    milliseconds: float


def read_graph(path: Path) -> Graph:
    """Read nodes, edges, the index and the neighbours; draw the data by the C library's generator."""
    words = np.fromfile(path, np.int32)
    nodes, edges = (int(word) for word in words[:2])
    size = max(nodes, edges, 1)
    libc = ctypes.CDLL(None)
    libc.srand(1)  # the programs do not seed it
    data = [[0] + [libc.rand() % below for _ in range(size - 1)] for below in (nodes, max(edges, 1))]
    first, second = (np.array(each, np.int32) for each in data)
    return Graph(nodes, words[2 : nodes + 3], words[nodes + 3 :], first, second)


def run(ptx: str, name: str, graph: Graph) -> Outcome:
    """Launch a kernel on fresh arrays."""
    device = simwarp.Device(checks="report")
    arrays = [device.upload(array) for array in graph[1:]]
    kernel = device.load(ptx).kernel("_Z11test_kernelPiS_S_S_i")
    blocks = 4 if "boundsBug" in name else 1024
    start = time.perf_counter()
    kernel((blocks, 1, 1), (THREADS, 1, 1), *arrays, np.int32(graph.nodes))
    took = 1000 * (time.perf_counter() - start)
    kinds = {type(fault) for fault in device.faults}
    return Outcome(Race in kinds, OutOfBounds in kinds, took)


def compiled(artifact: Path) -> dict[str, str]:
    """The PTX of every kernel; host code is cut off."""
    sources = sorted((artifact / "indigo" / "indigo_sources").rglob("*.cu"))
    if len(sources) != KERNELS:
        raise StrangerError(
            f"{artifact} holds {len(sources)} kernels, not {KERNELS}\ncheck out github.com/{PROJECT} there"
        )
    result: dict[str, str] = {}
    for path in track(sources, "compiling"):
        text = path.read_text().partition(HOST_CODE)[0].replace('#include "indigo_cuda.h"', "")
        result[path.stem] = compile(text, path.name).text
    return result


def row_of(name: str, kernels: dict[str, str], graph: Graph) -> Row:
    """Run all kernels on one graph."""
    outcomes = {kernel: run(ptx, kernel, graph) for kernel, ptx in track(kernels.items(), name)}
    at, racy = GRAPHS.index(name), {kernel for kernel in kernels if RACY.search(kernel)}
    bounds = {kernel for kernel in kernels if "boundsBug" in kernel}
    times = [outcome.milliseconds for outcome in outcomes.values()]
    params = {
        "kernels": len(kernels),
        "racy": len(racy),
        "false_alarms": sum(outcomes[kernel].race for kernel in outcomes.keys() - racy),
        "out_of_bounds": sum(outcomes[kernel].out_of_bounds for kernel in bounds),
        "false_out_of_bounds": sum(outcomes[kernel].out_of_bounds for kernel in outcomes.keys() - bounds),
        "milliseconds": {"median": median(times), "most": max(times)},
    }
    peers = {peer: figures[at] for peer, figures in PUBLISHED.items()}
    found = sum(outcomes[kernel].race for kernel in racy)
    missed = sorted(kernel for kernel in racy if not outcomes[kernel].race)
    if REACHABLE[at] == len(racy) and missed:
        print(f"missed on {name}: {', '.join(missed)}")
    return Row(f"races/{name}", params, "kernels", "higher", found, peers, target=REACHABLE[at])


def rows_of(folder: Path, words: Sequence[str] = ("",)) -> list[Row]:
    """A row for each graph whose name contains a word; ``folder`` holds the checkout."""
    artifact = folder / PROJECT.rpartition("/")[2]
    kernels, graphs = compiled(artifact), artifact / "indigo" / "input"
    chosen = [name for name in GRAPHS if any(word in name for word in words)]
    return [row_of(name, kernels, read_graph(graphs / f"{name}.egr")) for name in chosen]
