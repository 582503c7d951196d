"""The best size of pieces of a phase within a limit of memory."""

from __future__ import annotations

from gpu.outofcore.networks.phases import Cut, Phase
from gpu.outofcore.networks.plan import TrainingPlan
from gpu.outofcore.networks.strips import target_of
from gpu.outofcore.planners import candidates

MUCH_WORSE = 1.05
Timed = tuple[float, Cut]
"""Seconds, and the cut that takes them."""


class Cuts:
    """The best cuts of phases, each searched once, for any plan that has the phases."""

    def __init__(self, plan: TrainingPlan) -> None:
        self._plan, self._images = plan, candidates(plan.batch)
        self._found: dict[tuple[int, int, int], Timed | None] = {}

    def best(self, phase: Phase, limit: int, extra: int = 0) -> Timed | None:
        """The fastest cut whose block fits in ``limit`` bytes; rows are cut only if whole images do not fit.

        ``extra`` bytes are needed for each image of a piece beside the block.
        """
        key = id(phase.shared), limit, extra  # the plan keeps its phases alive, so the id stays unique
        if key not in self._found:
            cut = self._of_images(phase, limit, extra)
            self._found[key] = (
                self._of_rows(phase, limit) if cut is None and not phase.tensors.on_device else cut
            )
        return self._found[key]

    def _of_images(self, phase: Phase, limit: int, extra: int) -> Timed | None:
        plan, height = self._plan, self._height(phase)
        single = plan.recut(phase, Cut(1, height))
        if "images" not in phase.shared:
            sizes = ((plan.phase_seconds(single, images), images) for images in self._images)
            phase.shared["images"] = [(seconds, Cut(images, height)) for seconds, images in sorted(sizes)]
        fastest: list[Timed] = phase.shared["images"]
        for seconds, cut in fastest:
            other, free = plan.recut(phase, cut), limit - cut.images * extra
            if other.least_bytes <= free and plan.block(other) <= free:
                return seconds, cut
        return None

    def _of_rows(self, phase: Phase, limit: int) -> Timed | None:
        best: Timed | None = None
        for cut in (Cut(1, rows) for rows in self._rows(phase)[1:]):
            other = self._plan.recut(phase, cut)
            seconds = self._plan.phase_seconds(other)
            if best is not None and seconds > MUCH_WORSE * best[0]:
                break  # smaller pieces would need more launches
            is_better = best is None or seconds < best[0]
            if is_better and other.least_bytes <= limit and self._plan.block(other) <= limit:
                best = seconds, cut
        return best

    def _height(self, phase: Phase) -> int:
        """The rows that a phase may be cut along."""
        tensor = phase.last if phase.kind == "forward" else target_of(self._plan.network, phase.first)
        return self._plan.network.shape(tensor)[1]

    def _rows(self, phase: Phase) -> list[int]:
        """The strip heights in rows that the search tries for a phase."""
        height, stages = self._height(phase), self._plan.network.stages
        first, last = (
            (phase.tensors.source, phase.last)
            if phase.kind == "forward"
            else (phase.first - 1, phase.tensors.top)
        )
        return [height] if any(stage.kind == "dense" for stage in stages[first:last]) else candidates(height)
