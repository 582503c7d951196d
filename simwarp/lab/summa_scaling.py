"""The scaling of `gpu.blas3.summa`: a model of many hosts, from the simulated one and a network.

A step multiplies one panel on each host, in the time that a machine with a clock gives, while the next panel
is broadcast along the rows and the columns of the grid; it lasts as long as the longer of both. The first
broadcast is not hidden.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2, sqrt
from typing import Literal

from gpu.blas3 import ProcessGrid, Statistics, dgemm
from simwarp.lab.unbacked import unbacked
from simwarp.machine import H200x4, Machine, Topology

PANELS = (4096, 8192, 16384, 32768)
"""The widths that are tried by default."""


@dataclass(frozen=True)
class Network:
    """The network of the hosts: each has one link, equally fast in both directions.

    By default 400 Gb/s and 5 µs, which are assumed. A broadcast goes from host to host in the best number of
    segments, "pipeline", or sends the whole panel along a binomial tree, "tree".
    """

    latency_seconds: float = 5e-6
    bytes_per_second: float = 50e9
    broadcast: Literal["pipeline", "tree"] = "pipeline"

    def broadcast_seconds(self, nbytes: float, hosts: int) -> float:
        """The time of a broadcast to ``hosts`` hosts, including the root.

        >>> Network(0.0, 1e9).broadcast_seconds(1e9, 2), Network(0.0, 1e9, "tree").broadcast_seconds(1e9, 8)
        (1.0, 3.0)
        """
        if hosts == 1 or not nbytes:
            return 0.0
        seconds = nbytes / self.bytes_per_second
        if self.broadcast == "tree":
            return ceil(log2(hosts)) * (self.latency_seconds + seconds)
        best = sqrt((hosts - 2) * seconds / self.latency_seconds) if self.latency_seconds else 1.0
        segments = max(1, round(best))
        return (hosts - 2 + segments) * (self.latency_seconds + seconds / segments)


@dataclass(frozen=True)
class Prediction:
    """The predicted times of a product of square float64 matrices over several hosts."""

    n: int
    hosts: int
    panel: int
    seconds: float
    exposed_seconds: float  # the part of ``seconds`` in which the network works and no device computes
    bytes_per_host: int  # bytes of the three blocks and of both buffers of panels

    @property
    def tflops(self) -> float:
        """The rate of all hosts together, in 10¹² operations per second."""
        return 2 * self.n**3 / self.seconds / 1e12

    def efficiency(self, one: Prediction) -> float:
        """The rate per host divided by that of the one-host prediction ``one``."""
        return self.tflops / self.hosts / one.tflops


class Model:
    """Predictions for equal hosts, from the times of a simulated machine.

    >>> one, four = (Model().predict(2048, hosts, 2048) for hosts in (1, 4))
    >>> one.exposed_seconds, 0 < four.efficiency(one) < 0.5
    (0.0, True)
    """

    def __init__(self, topology: Topology = H200x4, network: Network | None = None) -> None:
        self._topology, self._network = topology, network or Network()
        self._seconds: dict[tuple[int, int, int], float] = {}

    def fastest(self, n: int, hosts: int) -> Prediction:
        """The prediction for the panel width that takes the least time."""
        widths = sorted({min(panel, n) for panel in PANELS})
        return min((self.predict(n, hosts, panel) for panel in widths), key=lambda one: one.seconds)

    def predict(self, n: int, hosts: int, panel: int) -> Prediction:
        """Predict the time of one distributed product, for a panel width."""
        grid = ProcessGrid.of(hosts)
        rows, columns = ceil(n / grid.rows), ceil(n / grid.columns)
        widths = [min(panel, n - start) for start in range(0, n, panel)]
        arrivals = [self._arrival(grid, rows, columns, width) for width in widths]
        seconds = exposed = arrivals[0]
        for width, coming in zip(widths, [*arrivals[1:], 0.0], strict=True):
            computing = self._product(rows, columns, width)
            seconds += max(computing, coming)
            exposed += max(0.0, coming - computing)
        nbytes = 8 * (3 * rows * columns + 2 * widths[0] * (rows + columns))
        return Prediction(n, hosts, panel, seconds, exposed, nbytes)

    def _arrival(self, grid: ProcessGrid, rows: int, columns: int, width: int) -> float:
        """The time on a link to broadcast a panel of A along a host row and one of B along a host column."""
        of_a = self._network.broadcast_seconds(8.0 * rows * width, grid.columns)
        return of_a + self._network.broadcast_seconds(8.0 * columns * width, grid.rows)

    def _product(self, m: int, n: int, k: int) -> float:
        """The time of one host for ``C + A B``."""
        if (m, n, k) not in self._seconds:
            a, b, c = (unbacked(shape, "float64") for shape in ((m, k), (k, n), (m, n)))
            counts, machine = Statistics(), Machine(self._topology, values=False)
            dgemm(1.0, a, b, 1.0, c, overwrite_c=1, device=machine, statistics=counts)
            self._seconds[m, n, k] = counts.seconds
        return self._seconds[m, n, k]
