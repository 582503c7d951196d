"""The report of one call on a machine, as plain data: times by device, bytes by route, the timeline."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import gpu.blas3
from gpu.blas3.arguments import call_of
from gpu.blas3.execute import execute
from gpu.machine import HOST
from reference.devices.timeline import Timeline
from reference.errors import InputFileError, SimwarpError
from reference.files import open_input
from simwarp.lab.blas.request import Request
from simwarp.lab.machines import Host
from simwarp.lab.network_studies import Facts

ROUTES = ("in", "out", "peer")
_KINDS = (*ROUTES, "routine")
_ADVICE = "give a file that simwarp blas trace --json wrote"


class WrongResultError(SimwarpError):
    """A call on a machine gave a wrong result."""


def planned(request: Request, tile: int | None, on: Host, options: gpu.blas3.Options) -> Facts:
    """A call and its plan for a machine, as plain data."""
    machine = on.machine
    plan = request.plan(tile, [machine.budget(device) for device in range(machine.devices)], options)
    problem = plan.problem
    return {
        "routine": request.routine,
        "m": problem.m,
        "n": problem.n,
        "k": problem.k,
        "alpha": problem.alpha,
        "beta": problem.beta,
        "flags": request.flags,
        "device": on.device,
        "machine": on.name,
        "gpus": list(on.gpus),
        "options": {name: value for name, value in asdict(options).items() if name != "progress"},
        "tile": plan.tile,
        "width": plan.width,
        "tasks": len(plan.tasks),
        "streams": plan.streams,
        "operations": problem.operations,
        "gemm_share": plan.gemm_share,
        "needed": plan.needed,
        "bytes_least": plan.bytes_least,
        "bytes_without_reuse": plan.bytes_without_reuse,
    }


def run(
    request: Request,
    tile: int | None,
    on: Host,
    options: gpu.blas3.Options,
    *,
    values: bool = False,
) -> Facts:
    """Run a call on a new machine; with values the result is checked.

    GPUs always compute with numbers, and run the call once before, which page-locks its matrices.

    Raises
    ------
    WrongResultError
    """
    is_real = on.device != "sim"
    counts, matrices = gpu.blas3.Statistics(), request.matrices(values=values or is_real)
    problem = request.problem
    call = call_of(request.routine, problem.alpha, problem.beta, matrices, request.flags)
    if is_real:
        execute(call, on.machine, tile, None, options, None)
        on.machine.timeline.clear()
    given = {name: x.copy(order="F") for name, x in matrices.items()} if values else {}
    execute(call, on.machine, tile, None, options, counts)
    if values:
        _check(request, given, matrices[problem.result])
    return {**outcome(on, counts, problem.operations), "values": values}


def traced(
    request: Request,
    tile: int | None,
    on: Host,
    options: gpu.blas3.Options,
    *,
    values: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Facts:
    """Run a call on a new machine; returns its plan, the devices' work and the timeline as a JSON object."""
    facts = planned(request, tile, on, options) | run(
        request, tile, on, replace(options, progress=progress), values=values
    )
    return facts | {"timeline": json.loads(on.machine.timeline.to_json())}


def _check(request: Request, given: Any, result: Any) -> None:
    """Raise WrongResultError for a result that rounding does not explain."""
    error = request.error(given, result)
    if not error <= 1:
        raise WrongResultError(
            f"{request.routine} of {request.problem.m} x {request.problem.n} is wrong: {error:.3g} times the"
            " bound of its rounding errors\ntimes of a wrong result mean nothing\n"
            "run simwarp verify --case blas3"
        )


def outcome(on: Host, counts: gpu.blas3.Statistics, operations: float) -> Facts:
    """Seconds, bytes and counts of a machine's first call."""
    timeline: Timeline = on.machine.timeline
    ends = _ends(timeline, on.machine.devices)
    return {
        "seconds": counts.seconds,
        "rate": operations / counts.seconds if counts.seconds else 0.0,
        "bytes": {route: timeline.nbytes(route) for route in ROUTES},
        "imbalance": max(ends) - min(ends),
        "devices": [
            {
                "device": number,
                **timeline.profile(number)._asdict(),
                "end": ends[number],
                **(asdict(counts.devices[number]) if counts.devices else {}),
            }
            for number in range(on.machine.devices)
        ],
        "cpu": _cpu(timeline, counts),
    }


def _cpu(timeline: Timeline, counts: gpu.blas3.Statistics) -> Facts | None:
    """The seconds, the operations and the tasks of the host's cores; None if they had none."""
    if not counts.cpu.tasks:
        return None
    begin = min((one.start for one in timeline), default=0.0)
    end = max((one.end for one in timeline if one.device == HOST), default=begin)
    return {
        "compute": timeline.busy(HOST),
        "end": end - begin,
        "operations": timeline.operations(HOST),
        "tasks": counts.cpu.tasks,
        "stolen": counts.cpu.stolen,
    }


def _ends(timeline: Timeline, devices: int) -> list[float]:
    """When each GPU finished, from the first start of all; 0 without any work."""
    begin = min((one.start for one in timeline), default=0.0)
    ends = [0.0] * devices
    for one in timeline:
        if one.device != HOST:
            ends[one.device] = max(ends[one.device], one.end - begin)
    return ends


def read(path: Path) -> Facts:
    """Read the report of another run; raise InputFileError for any other file."""
    with open_input(path, _ADVICE) as file:
        text = file.read()
    try:
        found: Any = json.loads(text)
        _check_report(found)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputFileError(f"{path} is not a report of a trace: {error!r}\n{_ADVICE}") from None
    return found


def _check_report(found: Any) -> None:
    """Raise ValueError, TypeError or KeyError unless a report can be drawn."""
    words: list[object] = [found[name] for name in ("routine", "machine", "device")]
    gpus: list[object] = [*found["gpus"]]
    numbers: list[float] = [found[name] for name in ("m", "n", "k", "tile", "seconds", "rate")]
    if not all(isinstance(word, str) for word in [*words, *gpus]):
        raise TypeError("a name of the routine, of the machine or of a GPU is not a text")
    if not all(math.isfinite(number) for number in numbers):
        raise ValueError("a size or a time is not finite")
    for one in Timeline.from_json(json.dumps(found["timeline"])):
        if (
            one.kind not in _KINDS
            or one.device not in range(HOST, len(gpus))
            or one.stream != int(one.stream)
        ):
            raise ValueError(f"unknown device or kind: {one}")
        if not (math.isfinite(one.start) and math.isfinite(one.end) and one.start <= one.end):
            raise ValueError(f"a time is not finite, or the end is before the start: {one}")
