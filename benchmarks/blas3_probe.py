"""The topology of a machine of GPUs, measured in a few seconds: what `blas3.py` predicts its rows from."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np
from blas3_cases import ALPHA, BETA, CALLS, filled

from gpu.blas3.routines import TileRoutine
from gpu.blas3.tasks import Kernel
from gpu.cuda_machine.timing import seconds_of
from gpu.machine import Tile
from simwarp.machine.topology import Gpu, Link, Route, Shared, Topology, all_pairs

SIDE = 4096
"""The side of the tiles: the default for large problems."""
COPIES, PRODUCTS, TIMES = 8, 60, 3
"""Of one measurement, copies of each route and products; and measurements: of copies the shortest counts, of
products the median, as a chip that is warm is slower."""
LATENCY, LAUNCH = 3e-6, 6e-6
"""Seconds of a copy and of a launch beside their work, which tiles of this size do not show."""


class Probe:
    """Measures a machine: three tiles on each device, and two in larger matrices of the host.

    Tiles have ``side`` rows and columns.
    """

    def __init__(self, machine: Any, side: int) -> None:
        self._machine, self._side = machine, side
        self._tiles: list[list[Tile]] = []
        self._host = [filled(2 * side, side, np.float64, seed) for seed in range(2 * machine.devices)]

    def topology(self) -> Topology:
        """Rates, links and shared bandwidths."""
        machine, devices = self._machine, range(self._machine.devices)
        nbytes = 8 * self._side**2
        memories = [machine.allocate(device, 3 * nbytes) for device in devices]
        for x in self._host:
            machine.pin(x)
        try:
            self._tiles = [
                [memory.tile(self._side, self._side, np.float64, k * nbytes) for k in range(3)]
                for memory in memories
            ]
            return self._topology(devices)
        finally:
            for x in self._host:
                machine.unpin(x)
            for memory in memories:
                machine.free(memory)

    def _topology(self, devices: range) -> Topology:
        machine = self._machine
        ways = [[Route("in", device)] for device in devices], [[Route("out", device)] for device in devices]
        inward, outward = (tuple(Link(LATENCY, self.bandwidth(way)) for way in each) for each in ways)
        groups = [[Route("in", device), Route("out", device)] for device in devices]
        pairs = [pair for pair in all_pairs(devices, inward[0]) if machine.reaches(*pair)]
        peers = {pair: Link(LATENCY, self.bandwidth([Route("peer", *pair)])) for pair in pairs}
        if len(devices) > 1:
            groups += [[Route(kind, device) for device in devices] for kind in ("in", "out")]
            groups.append([route for device in devices for route in groups[device]])
        shared = tuple(Shared(tuple(group), self.bandwidth(group)) for group in groups)
        double, single = (self.rate(dtype) for dtype in (np.float64, np.float32))
        rates = {"float64": double, "complex128": double, "float32": single, "complex64": single}
        gpus = tuple(Gpu(machine.name(device), machine.budget(device), rates, LAUNCH) for device in devices)
        return Topology("as probed", gpus, inward, outward, peers, shared)

    def bandwidth(self, routes: Sequence[Route]) -> float:
        """Bytes per second of some routes together."""
        streams = [self._machine.stream(route.device) for route in routes]

        def copies() -> None:
            for _ in range(COPIES):
                for route, stream in zip(routes, streams, strict=True):
                    self._copy(route, stream)

        return COPIES * len(routes) * 8 * self._side**2 / min(seconds_of(self._machine, copies, TIMES))

    def _copy(self, route: Route, stream: Any) -> None:
        tiles, device = self._tiles, route.device
        if route.kind == "in":
            self._machine.copy_in(stream, self._host[2 * device][: self._side], tiles[device][0])
        elif route.kind == "out":
            self._machine.copy_out(stream, tiles[device][1], self._host[2 * device + 1][: self._side])
        else:
            self._machine.copy_peer(stream, tiles[route.peer][1], tiles[device][2])

    def rate(self, dtype: Any) -> float:
        """Operations per second of products on all devices: of the slowest one, when all are warm."""
        machine, side = self._machine, self._side
        kernel = Kernel("gemm", ALPHA, BETA, **CALLS["gemm"][1])
        values = filled(side, side, dtype, 0)  # products of zeros take less power
        machine.pin(values)
        work: list[tuple[Any, TileRoutine]] = []
        for device, tiles in enumerate(self._tiles):
            a, b, c = (Tile(x.memory, x.offset, side, side, side, np.dtype(dtype)) for x in tiles)
            stream = machine.stream(device)
            for tile in (a, b, c):
                machine.copy_in(stream, values, tile)
            work.append((stream, TileRoutine(kernel, (a, b), c)))
        machine.run([])
        machine.unpin(values)

        def products() -> None:
            for _ in range(PRODUCTS):
                for stream, routine in work:
                    machine.launch(stream, routine)

        return PRODUCTS * work[0][1].operations / median(seconds_of(machine, products, TIMES))
