"""The rows of ``simwarp bench``: times of calls and of their kernels, or simulated instruction counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import simwarp
from gpu.compile import compiler_version
from reference.errors import SimwarpError
from simwarp.chips.chips import CHIPS, Chip, chip
from simwarp.lab.bench.peers import PEERS, LeftOutError
from simwarp.lab.bench.problems import Case, Convolution, Product
from simwarp.lab.bench.rounds import Rounds, Timing, medians
from simwarp.lab.network_studies import Counter, Facts, Progress, Timer, room

Problem = Product | Convolution

SIZES = {"bmm": (1024, 2048, 4096, 8192), "bconv": (128, 256, 512)}
SMALL = {"bmm": (64, 128), "bconv": (32, 64)}
"""Sizes for the simulator."""


class WrongAnswerError(SimwarpError):
    """A call of a benchmark gave a wrong answer."""


@dataclass(frozen=True)
class Measured:
    """A case with the timings of its call and of its kernels."""

    problem: Problem
    case: Case
    call: Timing
    kernels: Timing | None


def timed(
    kind: str,
    sizes: Sequence[int],
    device: Any,
    rounds: int,
    progress: Progress,
    peers: Iterable[Callable[[], Any]] = PEERS,
) -> Facts:
    """The times of our calls and of the peers' on a GPU."""
    have, left_out = _peers(peers)
    each_round, cases = Rounds(), list[Measured]()
    for size in sizes:
        problem = _problem(kind, size)
        with room(f"{problem.name}: operands of {size}", "give smaller --sizes"):
            for case in _cases(problem, device, have, left_out):
                _check(problem, case)
                cases.append(_measured(each_round, problem, case))
    count = each_round.measure(rounds, progress)
    rows = [_row(one.problem, one.case) | _times(one) for one in cases]
    versions = {peer.name: peer.version for peer in have}
    measured = {"rounds": count, "of": rounds, "statistic": "median of the rounds' medians"}
    found = facts(kind, device, rows, left_out=left_out, measured=measured)
    return found | {"unit": "seconds", "versions": found["versions"] | versions}


def counted(kind: str, sizes: Sequence[int], device: Any, progress: Progress) -> Facts:
    """The instructions of our own calls on the simulator, without times and other libraries."""
    rows = list[Facts]()
    for done, size in enumerate(sizes):
        progress(done, len(sizes))
        problem = Product(size) if kind == "bmm" else Convolution(size, images=1, side=8)
        for case in problem.ours(device, None):
            _check(problem, case)
            rows.append(_row(problem, case) | Counter(device).cost(case.call))
    return facts(kind, device, rows, measured=Counter(device).about()) | {"unit": "instructions"}


def roof_of(device_name: str, named: str | None) -> Facts | None:
    """The limits of a chip by its name, or by a device's name that contains it; None if unknown."""
    if named is not None:
        return _limits(chip(named))
    name = device_name.lower()
    known = (one for one in CHIPS.values() if all(word in name for word in one.name.lower().split()))
    return next((roof for one in known if (roof := _limits(one))), None)


def _limits(one: Chip) -> Facts | None:
    if "b1" not in one.rates:
        return None
    bandwidth = one.copy_bandwidth or one.bandwidth
    return {
        "chip": one.name,
        "peak": one.peak("b1"),
        "bandwidth": bandwidth,
        "ridge": one.peak("b1") / bandwidth,
    }


def _problem(kind: str, size: int) -> Problem:
    return Product(size) if kind == "bmm" else Convolution(size)


def _peers(makers: Iterable[Callable[[], Any]]) -> tuple[list[Any], dict[str, str]]:
    """The installed peers, and the reason for each one that is left out."""
    have, left_out = list[Any](), dict[str, str]()
    for make in makers:
        try:
            have.append(make())
        except LeftOutError as error:
            left_out[getattr(make, "name", make.__name__)] = str(error)
    return have, left_out


def _cases(problem: Problem, device: Any, peers: Sequence[Any], left_out: dict[str, str]) -> Iterator[Case]:
    """Yield the cases of our library, then of others, without cases that their library refuses."""
    yield from problem.ours(device, Timer(device))
    for peer in peers:
        try:
            cases = peer.products(problem) if isinstance(problem, Product) else peer.convolutions(problem)
            for case in cases:
                case.call()
                yield case
        except RuntimeError as error:
            left_out[f"{peer.name} {problem.name}"] = str(error).partition("\n")[0]


def _measured(rounds: Rounds, problem: Problem, case: Case) -> Measured:
    """Measure a case in every round: its call, and its kernels if it has a meter."""
    call = rounds.timing(partial(medians, case.call, case.wait))
    if case.meter is None:
        return Measured(problem, case, call, None)
    return Measured(problem, case, call, rounds.timing(lambda: case.meter.cost(case.call, 10)["seconds"]))


def _row(problem: Problem, case: Case) -> Facts:
    """The case and the work of a row, without its times."""
    about = {"case": problem.name, "who": case.who, "operands": case.operands, "output": case.output}
    work = {
        "operations": problem.operations,
        "bytes": case.moved,
        "intensity": problem.operations / case.moved,
    }
    return {**about, **work}


def _times(one: Measured) -> Facts:
    """The times of a row (until the result, until the call returns, of the kernels), and its rates."""
    seconds, returns = one.call.medians
    kernels = None if one.kernels is None else one.kernels.medians[0]
    rates = {
        "rate": one.problem.operations / seconds,
        "kernels_rate": kernels and one.problem.operations / kernels,
    }
    return {"seconds": seconds, "returns": returns, "kernels": kernels, **rates}


def facts(kind: str, device: Any, rows: list[Facts], **others: Any) -> Facts:
    """The results of a benchmark as a JSON object: device, versions and rows."""
    versions = {"simwarp": simwarp.__version__, "nvrtc": compiler_version().removeprefix("NVRTC ")}
    cc = "sm_{}{}".format(*device.compute_capability)
    return {"bench": kind, "device": device.name, "chip": cc, "versions": versions, **others, "rows": rows}


def _check(problem: Problem, case: Case) -> None:
    """Run the call once; raise WrongAnswerError if its answer is wrong."""
    if not case.right(case.call()):
        raise WrongAnswerError(
            f"{problem.name}: the answer of {case.who}, {case.operands} to {case.output}, is wrong\n"
            "the time of a wrong answer means nothing\nrun simwarp verify, and report what it finds"
        )
