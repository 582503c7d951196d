"""A plan as a table: for each segment its phases, kept tensors, bytes and predicted times."""

from __future__ import annotations

from gpu.host_memory import shown
from gpu.outofcore.networks.phases import Key, Phase
from gpu.outofcore.networks.plan import TrainingPlan

HEADS = (
    "segment",
    "pass",
    "pieces",
    "on host",
    "on device",
    "again",
    "in",
    "out",
    "compute ms",
    "copies ms",
    "ms",
)


def table_of(plan: TrainingPlan) -> str:
    """Format a plan as a text table."""
    rows = [HEADS, *(_row(plan, phase) for phase in plan.phases)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join([heading(plan), *lines, _total(plan)])


def heading(plan: TrainingPlan) -> str:
    """A plan's segments, batch and memory in words."""
    kind = "gradient accumulation: only the batch is cut" if plan.accumulates else "segment by segment"
    where = "device" if plan.resident else "host"
    return (
        f"{_counted(len(plan.segments), 'segment')}, {_counted(plan.batch, 'image')}, {kind}\n"
        f"parameters on the {where}; {shown(plan.device.nbytes)} of {shown(plan.budget)}"
    )


def _total(plan: TrainingPlan) -> str:
    timeline = plan.timeline
    return (
        f"{shown(timeline.nbytes('in'))} in, {shown(timeline.nbytes('out'))} out; predicted"
        f" {timeline.seconds * 1e3:.4g} ms, {timeline.seconds / plan.in_core_seconds:.3f} times the routines"
        " in core"
    )


def _row(plan: TrainingPlan, phase: Phase) -> tuple[str, ...]:
    costs = phase.costs(plan.rates)
    stages = plan.network.stages
    first, last = stages[phase.first - 1].name, stages[phase.last - 1].name
    kept = {phase.storage(Key("x", tensor)) for tensor in phase.tensors.kept if tensor}
    again = [
        tensor for tensor in phase.strips.held if phase.first <= tensor and tensor not in phase.tensors.kept
    ]
    return (
        first if first == last else f"{first} to {last}",
        phase.kind,
        f"{costs.pieces} of {_counted(min(phase.cut.images, plan.batch), 'image')}{_strip(phase)}",
        _names(plan, kept - phase.tensors.on_device),
        _names(plan, kept & phase.tensors.on_device),
        _names(plan, {Key("x", tensor) for tensor in again} if _recomputes(plan, phase) else set()),
        shown(costs.bytes_in),
        shown(costs.bytes_out),
        f"{costs.compute * 1e3:.4g}",
        f"{max(costs.into, costs.out) * 1e3:.4g}",
        f"{plan.phase_seconds(phase) * 1e3:.4g}",
    )


def _recomputes(plan: TrainingPlan, phase: Phase) -> bool:
    """True if a backward phase repeats results of a forward phase."""
    return phase.kind == "backward" and not phase.is_last


def _strip(phase: Phase) -> str:
    return f" x {phase.cut.rows} rows" if len(phase.strips) > 1 else ""


def _names(plan: TrainingPlan, keys: set[Key] | frozenset[Key]) -> str:
    names = [plan.network.stages[key.tensor - 1].name for key in sorted(keys)]
    return ", ".join(names) or "-"


def _counted(count: int, of: str) -> str:
    return f"{count} {of}{'s' * (count != 1)}"
