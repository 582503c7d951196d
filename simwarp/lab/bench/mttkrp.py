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

    @property
    def row_bytes(self) -> int:
        """The bytes of rows that each mode has to read once, and of its result, for all modes."""
        tensor, shape = self.tensor, self.tensor.shape
        read = [np.unique(of_mode).size for of_mode in tensor.coords]
        rows = sum(sum(read) - own + size for own, size in zip(read, shape, strict=True))
        return rows * self.rank * tensor.values.dtype.itemsize


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
    """What the simulator counts for each mode, in every format: instructions, sectors, requested bytes."""
    rows: list[Facts] = []
    for done, (name, build) in enumerate(builds.items()):
        progress(done, len(builds))
        held = Held(problem, name, build, device := simwarp.Device(observe=("traffic", "sectors")))
        modes: list[Facts] = []
        for call in held.calls:
            before = _moved(device)
            cost = Counter(device).cost(call)
            modes.append(cost | {what: count - before[what] for what, count in _moved(device).items()})
        sums = {what: sum(mode[what] for mode in modes) for what in modes[0]}
        rows.append(held.row() | sums | {"modes": modes})
    return _about(problem, simwarp.Device(), rows) | {"unit": "instructions"}


def _moved(device: Any) -> dict[str, int]:
    """The sectors of all accesses and of loads, and the requested bytes, that a device has counted."""
    sectors = device.report.sectors
    loads = sectors.kinds["load"].sectors if "load" in sectors.kinds else 0
    return {"sectors": sectors.total, "load_sectors": loads, "bytes": device.report.traffic.requested}


def _about(problem: Problem, device: Any, rows: list[Facts]) -> Facts:
    tensor = problem.tensor
    about = {
        "tensor": problem.name,
        "shape": list(tensor.shape),
        "nonzeros": tensor.values.size,
        "rank": problem.rank,
        "dtype": str(tensor.values.dtype),
        "operations": problem.operations,
        "row_bytes": problem.row_bytes,
    }
    return facts("mttkrp", device, rows, **about)


# --------------------------------------------------------------------------------------------------
# The figures, from reports of `timed` or `counted`
# --------------------------------------------------------------------------------------------------


def directions(report: Facts) -> list[Facts]:
    """Figure 6: all nonzeros along one direction, and each along its own, as times of the latter.

    >>> rows = [{"format": "mm-csf", "seconds": 2.0}, {"format": "mm-csf-along-0", "seconds": 3.0}]
    >>> directions({"tensor": "t", "unit": "seconds", "rows": rows})[1]
    {'tensor': 't', 'format': 'mm-csf-along-0', 'seconds': 3.0, 'of_mixed': 1.5}
    """
    what = _cost(report)
    mixed = _row(report, "mm-csf")[what]
    return [
        {"tensor": report["tensor"], "format": row["format"], what: row[what], "of_mixed": row[what] / mixed}
        for row in report["rows"]
        if row["format"].startswith("mm-csf")
    ]


def speedups(report: Facts) -> list[Facts]:
    """Figure 7: how many times as long as MM-CSF B-CSF-ALL takes, by mode.

    >>> rows = [{"format": "b-csf", "modes": [2.0, 3.0]}, {"format": "mm-csf", "modes": [1.0, 4.0]}]
    >>> speedups({"tensor": "t", "unit": "seconds", "rows": rows})[1]
    {'tensor': 't', 'mode': 1, 'speedup': 0.75}
    """
    balanced, mixed = (_modes(report, name) for name in ("b-csf", "mm-csf"))
    return [
        {"tensor": report["tensor"], "mode": mode, "speedup": theirs / ours}
        for mode, (theirs, ours) in enumerate(zip(balanced, mixed, strict=True))
    ]


def roofline(report: Facts, bytes_per_second: float) -> Facts:
    """Figure 8: the operational intensity of MM-CSF, its bound by memory, and what was reached of it.

    The intensity is COO's operations over the bytes that each mode has to move once: indices, values, rows of
    factors, and the result.
    """
    row, order = _row(report, "mm-csf"), len(report["shape"])
    values = report["nonzeros"] * np.dtype(report["dtype"]).itemsize
    nbytes = order * (row["index_bytes"]["held"] + values) + report["row_bytes"]
    intensity = report["operations"] / nbytes
    found = {"bytes": nbytes, "intensity": intensity, "bound": intensity * bytes_per_second}
    reached = {"rate": row["rate"], "share": row["rate"] / found["bound"]} if "rate" in row else {}
    return {"tensor": report["tensor"], "operations": report["operations"], **found, **reached}


def _cost(report: Facts) -> str:
    """What a report's rows are compared by: seconds of a GPU, sectors of the simulator."""
    return "seconds" if report["unit"] == "seconds" else "sectors"


def _modes(report: Facts, name: str) -> list[float]:
    """What each mode costs in a format."""
    modes = _row(report, name)["modes"]
    return list(modes) if report["unit"] == "seconds" else [mode[_cost(report)] for mode in modes]


def _row(report: Facts, name: str) -> Facts:
    """The row of a format."""
    for row in report["rows"]:
        if row["format"] == name:
            return row
    raise SchemeError(
        f"the report on {report['tensor']} has no row of {name}\n"
        f"it has {', '.join(row['format'] for row in report['rows'])}\nmeasure again with {name} in --formats"
    )
