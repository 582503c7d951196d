"""The rows of ``simwarp bench mttkrp``: one sparse tensor in each format, all modes one after another.

A row is a format: its bytes, the seconds of making it, and what the kernels of each mode take: seconds on a
GPU, instructions and sectors on the simulator. Each result is held against the reference first. Speeds are in
the operations of COO, as the paper counts them for every format.

Source: MM-CSF (SC'19), section 6, tables 6 and 7, figures 6, 7 and 9.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

import reference
import simwarp
from gpu.mttkrp import formats, plan, upload
from reference.errors import SchemeError
from reference.sparse import index_bytes, mttkrp_work
from reference.types import Coo, SparseTensor
from simwarp.lab.bench.rounds import Rounds
from simwarp.lab.bench.table import WrongAnswerError, facts
from simwarp.lab.network_studies import Counter, Facts, Progress, Timer, room

Build = Callable[[Coo], SparseTensor]

TOGETHER = 10
"""Calls in one graph."""


def builders(names: str, order: int) -> dict[str, Build]:
    """The formats of a comma-separated list, or "all" of them; raises SchemeError for others.

    ``mm-csf-along-0`` and so on, which "all" leaves out, have the fibers of one direction only (figure 6).

    >>> list(builders("mm-csf,mm-csf-along-1", 3))
    ['mm-csf', 'mm-csf-along-1']
    """
    one_way = {f"mm-csf-along-{n}": partial(formats.mm_csf, directions=(n,)) for n in range(order)}
    known: dict[str, Build] = {**formats.FORMATS, **one_way}
    chosen = list(formats.FORMATS) if names == "all" else names.split(",")
    for name in chosen:
        if name not in known:
            raise SchemeError(
                f"there is no format {name!r}\n{', '.join(known)} are known\nchoose some, or all"
            )
    return {name: known[name] for name in chosen}


@dataclass(frozen=True)
class Problem:
    """A tensor without repeated coordinates, its factors, and the results that are right."""

    name: str
    tensor: Coo
    factors: list[npt.NDArray[Any]]
    expected: list[tuple[npt.NDArray[Any], npt.NDArray[Any]]]  # for each mode, the result and its error bound

    @classmethod
    def of(cls, name: str, tensor: Coo, rank: int) -> Problem:
        """The problem of a tensor, with random factors of its values' dtype."""
        tensor, dtype = formats.coalesce(tensor), tensor.values.dtype
        random = np.random.default_rng(rank)
        with room(f"{name}: factors of {rank} columns", "give a smaller --rank"):
            factors = [random.standard_normal((n, rank)).astype(dtype) for n in tensor.shape]
            expected = [
                (reference.mttkrp(tensor, factors, m), reference.mttkrp_bound(tensor, factors, m, dtype))
                for m in range(len(tensor.shape))
            ]
        return cls(name, tensor, factors, expected)

    @property
    def rank(self) -> int:
        """The columns of the factors."""
        return self.factors[0].shape[1]

    @property
    def operations(self) -> int:
        """Those of COO, for all modes."""
        return mttkrp_work(self.tensor, self.rank).flops


class Held:
    """A format on a device: one call for each mode."""

    def __init__(self, problem: Problem, name: str, build: Build, device: Any) -> None:
        self.name, self._problem = name, problem
        tensor = problem.tensor
        build(Coo(tensor.coords[:, :1], tensor.values[:1], tensor.shape))  # compiles what is not compiled yet
        begin = time.perf_counter()
        made = build(tensor)
        self.seconds = time.perf_counter() - begin
        self.bytes = {"paper": index_bytes(made), "held": index_bytes(made, by="held")}
        self.work = asdict(mttkrp_work(made, problem.rank))
        with room(f"{problem.name} as {name}", "give fewer --formats, or a smaller --rank"):
            self._factors = [device.upload(factor) for factor in problem.factors]
            placed = upload(made, device)
            self.calls = [self._call(placed, mode, device) for mode in range(len(problem.tensor.shape))]

    def _call(self, placed: Any, mode: int, device: Any) -> Callable[[], None]:
        """The call of a mode, after its result is found to be right."""
        problem, dtype = self._problem, self._problem.tensor.values.dtype
        launch = plan(placed, mode, problem.rank, dtype, device)
        out = device.allocate((problem.tensor.shape[mode], problem.rank), dtype, "out")
        call = partial(launch, self._factors, out)
        call()
        expected, bound = problem.expected[mode]
        if not (abs(out.download().astype(np.float64) - expected) <= bound).all():
            raise WrongAnswerError(
                f"{problem.name}: the result of mode {mode} as {self.name} is wrong\n"
                "the time of a wrong answer means nothing\nrun simwarp verify, and report what it finds"
            )
        return call

    def row(self) -> Facts:
        """The format and its size, without what its calls take."""
        return {
            "format": self.name,
            "build_seconds": self.seconds,
            "index_bytes": self.bytes,
            "work": self.work,
        }


def timed(
    problem: Problem, builds: Mapping[str, Build], device: Any, rounds: int, progress: Progress
) -> Facts:
    """The seconds of the kernels of each mode on a GPU, in every format; each is measured once a round."""
    held = [Held(problem, name, build, device) for name, build in builds.items()]
    on, meter = Rounds(), Timer(device)

    def of_modes(calls: Sequence[Callable[[], None]]) -> tuple[float, ...]:
        return tuple(meter.cost(call, TOGETHER)["seconds"] for call in calls)

    timings = [on.timing(partial(of_modes, one.calls)) for one in held]
    count = on.measure(rounds, progress)
    rows: list[Facts] = []
    for one, timing in zip(held, timings, strict=True):
        seconds = sum(timing.medians)
        rate = problem.operations / seconds
        rows.append(one.row() | {"modes": list(timing.medians), "seconds": seconds, "rate": rate})
    measured = {"rounds": count, "of": rounds, "statistic": "median of the rounds' medians"}
    return _about(problem, device, rows) | {"measured": measured, "unit": "seconds"}


def counted(problem: Problem, builds: Mapping[str, Build], progress: Progress) -> Facts:
    """The instructions, sectors and requested bytes of each mode on the simulator, in every format."""
    rows: list[Facts] = []
    for done, (name, build) in enumerate(builds.items()):
        progress(done, len(builds))
        held = Held(problem, name, build, device := simwarp.Device(observe=("traffic", "sectors")))
        modes: list[Facts] = []
        for call in held.calls:
            sectors, requested = device.report.sectors.total, device.report.traffic.requested
            cost = Counter(device).cost(call)
            report = device.report
            now = {"sectors": report.sectors.total - sectors, "bytes": report.traffic.requested - requested}
            modes.append(cost | now)
        sums = {what: sum(mode[what] for mode in modes) for what in modes[0]}
        rows.append(held.row() | sums | {"modes": modes})
    return _about(problem, simwarp.Device(), rows) | {"unit": "instructions"}


def _about(problem: Problem, device: Any, rows: list[Facts]) -> Facts:
    tensor = problem.tensor
    about = {
        "tensor": problem.name,
        "shape": list(tensor.shape),
        "nonzeros": tensor.values.size,
        "rank": problem.rank,
        "dtype": str(tensor.values.dtype),
        "operations": problem.operations,
    }
    return facts("mttkrp", device, rows, **about)
