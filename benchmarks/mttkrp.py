"""MTTKRP and decompositions of large sparse tensors on a GPU, in every format, beside the peers' figures.

    python benchmarks/mttkrp.py [--tensors nell2,darpa] [--formats mm-csf,f-coo] [--json PATH]

The tensors are synthetic, of the shape of known ones (`tensors.py`); R = 32, float32. Each format has a plan
for each mode, and all that it reads lies on the device. One sample is twenty calls in one CUDA graph, the
result cleared in each; the figure is the median of samples. ``mttkrp-<format>/<tensor>`` is the sum over the
modes, ``mttkrp/<tensor>`` that of the best format. ``mm-csf-along-N`` has all fibers along mode N (figure 6
of MM-CSF). Every answer is held against the reference, element by element. Making a format is not in these
figures; their parameters say how long it took. ``cpd/<tensor>`` is an iteration of alternating least squares
in the best format.

The peers' figures are quoted: each peer's best configuration by mode, the result cleared outside their time.
The floor is the time to move every byte that has to be moved, at 4.3 TB/s.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from common import Row, about_this_run, parser_of, show, write
from hopper import seconds
from tensors import make

import gpu
import reference
from gpu.compile import compiler_version
from gpu.cpd import cpd_als
from gpu.mttkrp import plan, upload
from reference.sparse import index_bytes
from reference.types import Coo, SparseTensor
from simwarp.lab.bench.mttkrp import builders

RANK = 32
FORMATS = ("coo", "csf-one", "fibers-all", "b-csf-one", "b-csf", "f-coo", "hicoo", "mm-csf")
QUOTED = "2026-11-20"
"""The date of the peers' measurement, on another H200."""
PEERS = {
    "nell2": {"MM-CSF, repaired": 3.00, "B-CSF": 5.06, "COO atomics": 6.55, "BLCO": 5.23},
    "darpa": {"MM-CSF, repaired": 2.56, "B-CSF": 5.57, "COO atomics": 8.08, "BLCO": 2.83},
    "fr_s": {"MM-CSF, repaired": 5.90, "B-CSF": 13.86, "COO atomics": 12.4, "BLCO": 5.13},
    "flick4d": {"MM-CSF, repaired": 5.57, "B-CSF": 20.5, "COO atomics": 6.46},
    "uber4d": {"MM-CSF": 1.13, "B-CSF": 1.57, "COO atomics": 3.71, "BLCO": 1.23},
}
"""Milliseconds, all modes."""
FLOORS = {"nell2": 0.117, "darpa": 0.268, "fr_s": 0.692, "flick4d": 0.389, "uber4d": 0.024}
CPD_PEERS = {"nell2": 7.3, "darpa": 6.2, "fr_s": 11.1, "uber4d": 4.0}
"""Milliseconds of an iteration of BLCO's."""
ITERATIONS = 21


class Problem:
    """A tensor, its factors on host and device, and the expected result of each mode."""

    def __init__(self, device: Any, name: str, random: np.random.Generator) -> None:
        self.device, self.name = device, name
        self.tensor: Coo = make(name)
        shape = self.tensor.shape
        self.host = [random.uniform(-1, 1, (size, RANK)).astype(np.float32) for size in shape]
        self.factors = [device.upload(factor) for factor in self.host]
        self.right = [
            (
                reference.mttkrp(self.tensor, self.host, mode),
                reference.mttkrp_bound(self.tensor, self.host, mode, np.float32),
            )
            for mode in range(len(shape))
        ]

    def check(self, what: str, mode: int, got: npt.NDArray[np.float32]) -> None:
        """Compare a result with the reference."""
        expected, bound = self.right[mode]
        wrong = ~(abs(got - expected) <= bound)
        if wrong.any():
            raise SystemExit(f"{self.name}, {what}, mode {mode}: {wrong.sum()} of {wrong.size} are wrong")


class Timed:
    """A problem in one format: the time to build it, its size, and the time of each mode."""

    def __init__(self, problem: Problem, name: str) -> None:
        self.name = name
        device, make_format = problem.device, builders(name, len(problem.tensor.shape))[name]
        make_format(_small(problem.tensor))  # compiles
        start = time.perf_counter()
        tensor = make_format(problem.tensor)
        self.build_seconds = time.perf_counter() - start
        self.index_bytes = index_bytes(tensor, "held")
        self.tensor: SparseTensor = upload(tensor, device)
        self.modes = [self._time(problem, mode) for mode in range(len(problem.tensor.shape))]

    def _time(self, problem: Problem, mode: int) -> float:
        """Measure a mode, in milliseconds."""
        device = problem.device
        launch = plan(self.tensor, mode, RANK, np.float32, device)
        out = device.allocate((problem.tensor.shape[mode], RANK), np.float32)
        milliseconds = 1e3 * seconds(device, lambda stream: launch(problem.factors, out, stream=stream))
        problem.check(self.name, mode, out.download())
        out.free()
        return milliseconds

    @property
    def params(self) -> dict[str, Any]:
        """The parameters that a row shows."""
        return {
            "format": self.name,
            "modes_ms": [round(ms, 4) for ms in self.modes],
            "index_mb": round(self.index_bytes / 1e6, 2),
            "build_s": round(self.build_seconds, 3),
            "rank": RANK,
            "dtype": "float32",
        }


def _small(tensor: Coo) -> Coo:
    return Coo(tensor.coords[:, :100], tensor.values[:100], tensor.shape)


def rows_of(device: Any, name: str, formats: Sequence[str], random: np.random.Generator) -> list[Row]:
    problem = Problem(device, name, random)
    timed = [Timed(problem, each) for each in formats]
    best = min(timed, key=lambda one: sum(one.modes))
    peers = {f"{peer} ({QUOTED})": ms for peer, ms in PEERS[name].items()}
    floor, target = FLOORS[name], min(peers.values())
    cases = {f"mttkrp/{name}/r{RANK}-f32": best}
    cases |= {f"mttkrp-{one.name}/{name}/r{RANK}-f32": one for one in timed}
    rows = [
        Row(case, one.params, "ms", "lower", sum(one.modes), peers, floor, target)
        for case, one in cases.items()
    ]
    return [*rows, cpd_row(problem, best)]


def cpd_row(problem: Problem, best: Timed) -> Row:
    """An iteration: the median time from one to the next, which the host sees when the fit arrives."""
    stamps: list[float] = []
    cpd = cpd_als(
        best.tensor,
        RANK,
        iterations=ITERATIONS,
        tolerance=0.0,
        device=problem.device,
        progress=lambda iteration, fit: stamps.append(time.perf_counter()),
    )
    ms = 1e3 * statistics.median(end - start for start, end in pairwise(stamps))
    known = CPD_PEERS.get(problem.name)
    peers = {} if known is None else {f"BLCO ({QUOTED})": known}
    params = {"format": best.name, "rank": RANK, "dtype": "float32", "fit": round(cpd.fits[-1], 4)}
    return Row(f"cpd/{problem.name}/r{RANK}-f32", params, "ms", "lower", ms, peers, target=known)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--tensors", default=",".join(PEERS), metavar="NAMES", help="of " + ", ".join(PEERS))
    parser.add_argument(
        "--formats", default=",".join(FORMATS), metavar="NAMES", help="of " + ", ".join(FORMATS)
    )
    options = parser.parse_args()
    device, random = gpu.CudaDevice(), np.random.default_rng()
    meta = about_this_run(
        gpu=device.name,
        driver=device.driver_version,
        nvrtc=compiler_version().removeprefix("NVRTC "),
    )
    rows: list[Row] = []
    for name in options.tensors.split(","):
        rows += rows_of(device, name, options.formats.split(","), random)
        show(rows[-len(options.formats.split(",")) - 2 :])
    if options.json:
        write(options.json, meta, rows)


if __name__ == "__main__":
    main()
