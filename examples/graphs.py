"""Triangles, breadth-first levels and the transitive closure of a graph, by products of bits.

BTC (TPDS) names graphs as future work for bit tensor cores. An edge is a bit of the adjacency matrix E. The
0/1 product E E counts the paths of two edges, of which those that an edge closes are triangles. The Boolean
product of the nodes of a level and E is where one more edge leads: the next level. Squaring E or 1, again and
again, gives where any path leads. SciPy's sparse graphs have the same answers.
"""

import sys
from argparse import ArgumentParser

import numpy as np
from scipy.sparse.csgraph import shortest_path

import gpu
import reference
import simwarp

NODES, SOURCES = 150, 8


def boolean_product(a: np.ndarray, b: object, device: gpu.Device) -> np.ndarray:
    c = gpu.bmm(device.upload(a.astype(np.int8)), b, kind="or", device=device)
    words = reference.PackedBits(c.words.download(), c.shape, c.layout, c.word, c.first)
    return reference.unpack(words) != 0


def triangles(edges: np.ndarray, device: gpu.Device) -> int:
    """Each is counted at its three nodes, in both directions."""
    return int((gpu.bmm(edges, edges, kind="and", device=device) * edges).sum()) // 6


def levels(edges: np.ndarray, sources: np.ndarray, device: gpu.Device) -> np.ndarray:
    """How many edges each node is away from each source; infinity where no path leads."""
    graph = gpu.prepare(edges, "b", kind="or", device=device)
    level, new, steps = np.full(sources.shape, np.inf), sources, 0
    while new.any():
        level[new], steps = steps, steps + 1
        new = boolean_product(new, graph, device) & np.isinf(level)
    return level


def closure(edges: np.ndarray, device: gpu.Device) -> np.ndarray:
    """Where paths of any length lead: those of up to 1, 2, 4, 8 … edges."""
    reached, before = edges | np.eye(len(edges), dtype=bool), edges
    while not np.array_equal(reached, before):
        reached, before = boolean_product(reached, reached, device), reached
    return reached


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("sim", "cuda"), default="sim")
    device = gpu.CudaDevice() if parser.parse_args().device == "cuda" else simwarp.Device()
    half = np.triu(np.random.default_rng(0).random((NODES, NODES)) < 0.015, 1)
    edges, away = half | half.T, shortest_path(half, directed=False, unweighted=True)
    searched = levels(edges, np.eye(SOURCES, NODES, dtype=bool), device)
    same = {
        "triangles": triangles(edges, device) == np.trace(np.linalg.matrix_power(edges.astype(int), 3)) // 6,
        "levels": np.array_equal(searched, away[:SOURCES]),
        "closure": np.array_equal(closure(edges, device), np.isfinite(away)),
    }
    for name, right in same.items():
        print(f"{device.name}: {name} {'equal' if right else 'DIFFER FROM'} SciPy's")
    sys.exit(not all(same.values()))
