"""The report of one out-of-core call on a machine, as plain data: plan, prediction and measured times."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

import gpu.outofcore
from gpu.host_memory import shown
from gpu.outofcore.networks.plan import TrainingPlan
from gpu.outofcore.networks.rehearsal import rehearse
from gpu.outofcore.run import compute
from reference.devices.timeline import Timeline
from simwarp.lab.machines import Host
from simwarp.lab.network_studies import Facts, room
from simwarp.lab.unbacked import unbacked

KINDS = ("in", "routine", "out")


@dataclass(frozen=True)
class Request:
    """An out-of-core convolution without its arrays: routine, shapes, keywords and memory limits.

    >>> import simwarp
    >>> Request("conv2d", (8, 64, 28, 28), (64, 64, 3, 3)).plan(simwarp.Machine()).problem.batch
    8
    """

    routine: str
    images: tuple[int, ...]  # the images' shape, in the layout
    filters: tuple[int, ...]  # the filters' shape, in the layout
    keywords: dict[str, Any] = field(default_factory=dict[str, Any])
    """Bias, activation, stride … of `gpu.outofcore.explain`."""
    limits: dict[str, Any] = field(default_factory=dict[str, Any])
    """``memory_budget``, ``pieces`` and ``options``."""

    def plan(self, machine: Any) -> gpu.outofcore.Plan:
        """The plan of pieces and copies for the convolution, on a machine."""
        sizes = self.images, self.filters
        return gpu.outofcore.explain(self.routine, *sizes, device=machine, **self.keywords, **self.limits)


def ran(plan: gpu.outofcore.Plan, machine: Any) -> gpu.outofcore.Statistics:
    """Run a plan on a simulated machine without values; its statistics."""
    counts = gpu.outofcore.Statistics()
    compute(machine, plan, _arrays(plan, lambda shape: unbacked(shape, np.float32, "C")), counts)
    return counts


def _arrays(plan: gpu.outofcore.Plan, made: Callable[[Any], Any]) -> dict[str, Any]:
    """The arrays that a plan reads and writes, by name; ``made`` makes an array of a shape."""
    problem = plan.problem
    with room(f"{problem.routine} of {problem.batch} images", "give smaller sizes"):
        arrays = {name: made(problem.shape(name)) for name in ("x", "w", "y")}
    bias = {"bias": np.zeros(problem.filters, np.float32)} if problem.has_bias else {}
    return arrays | bias


def planned(plan: gpu.outofcore.Plan, on: Host) -> Facts:
    """The plan of a call and the model's predicted times as a JSON object, without the timeline."""
    problem = plan.problem
    return {
        "routine": problem.routine,
        "layout": problem.layout,
        "x": problem.shape("x"),
        "w": problem.shape("w"),
        "y": problem.shape("y"),
        "operations": problem.operations,
        "device": on.device,
        "machine": on.name,
        "gpus": list(on.gpus),
        "budget": plan.budget,
        "pieces": asdict(plan.pieces),
        "buffers": dict(plan.buffers.counts),
        "buffer_bytes": plan.buffers.total,
        "bytes": {"in": plan.bytes_in, "out": plan.bytes_out},
        "formula_seconds": plan.seconds,
        "predicted": _outcome(plan.timeline, problem.operations),
    }


def traced(request: Request, on: Host) -> Facts:
    """The plan of a call, its predicted timeline, and the timeline of a new machine that ran it."""
    plan = request.plan(on.machine)
    timeline, counts = (
        (on.machine.timeline, ran(plan, on.machine)) if on.device == "sim" else _second(plan, on.machine)
    )
    facts = planned(plan, on)
    facts["predicted"]["timeline"] = _records(plan.timeline)
    facts["measured"] = _outcome(timeline, plan.problem.operations)
    facts["measured"]["timeline"] = _records(timeline)
    return {**facts, "model_error": counts.model_error}


def _second(plan: gpu.outofcore.Plan, machine: Any) -> tuple[Timeline, gpu.outofcore.Statistics]:
    """The timeline and counts of a second call on GPUs; a first one chooses engines and locks pages."""
    arrays, counts = _arrays(plan, lambda shape: np.zeros(shape, np.float32)), gpu.outofcore.Statistics()
    compute(machine, plan, arrays, None)
    before = len(machine.timeline)
    compute(machine, plan, arrays, counts)
    records, timeline = [*machine.timeline][before:], Timeline()
    start = min(one.start for one in records)
    for one in records:
        timeline.append(replace(one, start=one.start - start, end=one.end - start))
    return timeline, counts


def runs_of(facts: Facts) -> list[Facts]:
    """The two timelines of a traced call, as `simwarp.draw.machine` draws them."""
    sizes = (" × ".join(map(str, facts[tensor])) for tensor in ("x", "w"))
    call = "{}, x {}, w {}".format(facts["routine"], *sizes)
    both = (("model", facts["predicted"]), (facts["device"], facts["measured"]))
    names = {name: facts[name] for name in ("machine", "gpus")}
    return [{"call": call, "device": device, **names, **found} for device, found in both]


def step_of(plan: TrainingPlan, on: Host) -> list[Facts]:
    """The timelines of a training step, predicted and simulated without values, as runs to draw."""
    rehearse(plan, on.machine)
    call = f"a step of {plan.batch} images, {len(plan.segments)} segments, {shown(plan.device.nbytes)}"
    names = {"call": call, "machine": on.name, "gpus": list(on.gpus)}
    both = (("model", plan.timeline), (on.device, on.machine.timeline))
    operations = sum(one.operations for one in plan.timeline)
    return [
        {"device": device, **names, **_outcome(timeline, operations), "timeline": _records(timeline)}
        for device, timeline in both
    ]


def busy(timeline: Timeline) -> dict[str, float]:
    """The seconds of all copies in, routines and copies out."""
    return {kind: sum(one.end - one.start for one in timeline if one.kind == kind) for kind in KINDS}


def _outcome(timeline: Timeline, operations: float) -> Facts:
    """The time, the rate, and the seconds of each kind of operation."""
    seconds = timeline.seconds
    return {"seconds": seconds, "rate": operations / seconds if seconds else 0.0, "busy": busy(timeline)}


def _records(timeline: Timeline) -> Any:
    return json.loads(timeline.to_json())
