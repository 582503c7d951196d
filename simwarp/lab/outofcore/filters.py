"""The time of a convolution over its filters, which devices compute in steps (ooc_cuDNN, figure 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpu.outofcore.arguments import problem_of
from gpu.outofcore.calibration import measured_step
from gpu.outofcore.problem import Problem
from gpu.outofcore.rates import rates_of, step_of
from simwarp.lab.machines import Host
from simwarp.lab.network_studies import Facts
from simwarp.testing import golden

COUNTS = tuple(sorted({*range(8, 257, 8), *range(33, 257, 32)}))
"""Numbers of filters: in steps of 8, and one above each multiple of 32."""


def curve(on: Host, images: tuple[int, ...], counts: Sequence[int] = COUNTS) -> Facts:
    """The seconds of a convolution of images (N, C, H, W) with numbers of filters of 3 x 3, and the step.

    A simulated machine has them from its rates. A GPU is measured, with all data on it; its step is kept, and
    goes into the rates of later plans.
    """
    problems = {count: _problem(images, count) for count in counts}
    if on.device == "cuda":
        found = measured_step(on.machine, problems[max(counts)], counts)
    else:
        rates = rates_of(on.machine)
        found = [(count, rates.routine(problems[count].operations, count)) for count in counts]
    return {
        "bench": "filters",
        "device": on.device,
        "machine": on.name,
        "commit": golden.commit(),
        "images": list(images),
        "step": step_of(found),
        "rows": [
            {"filters": count, "seconds": seconds, "rate": problems[count].operations / seconds}
            for count, seconds in found
        ],
    }


def _problem(images: tuple[int, ...], filters: int) -> Problem:
    """The convolution of images with some filters, with padding for equal sizes."""
    how: dict[str, Any] = {"stride": 1, "padding": "SAME", "dilation": 1, "groups": 1, "layout": "NCHW"}
    return problem_of("conv2d", images, (filters, images[1], 3, 3), **how)
