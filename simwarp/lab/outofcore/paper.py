"""Results of the paper on ooc_cuDNN, on a simulated P100: tables 2 and 4, figures 6, 9, 10 and 12 to 14.

Filters are of 3 x 3, images and results in the host's memory. The simulated GPU computes at one rate, where
cuDNN is slower for few channels and small images.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import simwarp
from gpu.outofcore import Options, Plan, Statistics, activate, add_bias, conv2d
from reference.errors import SchemeError
from simwarp.lab.machines import host
from simwarp.lab.network_studies import Facts, Progress
from simwarp.lab.outofcore.filters import curve
from simwarp.lab.outofcore.managed import rates_of_rivals
from simwarp.lab.outofcore.report import Request, busy, ran
from simwarp.lab.unbacked import unbacked
from simwarp.machine import P100
from simwarp.testing import golden

Run: TypeAlias = Callable[[], Facts]

PROBLEMS = {
    "n=1, c=64, 8192×4096": (1, 64, 8192, 4096),
    "n=1, c=256, 1024×1024": (1, 256, 1024, 1024),
    "n=512, c=64, 256×256": (512, 64, 256, 256),
}
"""Those of table 4: images, channels and filters, rows and columns."""
PLANNERS = ("greedy", "steepest", "exhaustive")
TABLE_4 = ((2574, 2522, 2654), (6787, 5142, 7024), (2681, 2383, 2721))
"""The printed GFLOPS of each problem, by greedy, steepest descent, and the best of all."""
CHANNELS = (64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 2560)
BATCHES = (32, 64, 128, 192, 256, 512, 1024)
VGG_RATE = 2.805e12
"""The most that the paper's VGG16 reached in core, in operations per second."""
IMAGES_6 = (8, 64, 224, 224)
"""The print of figure 6 has no sizes; these take as long as its 60 ms for 1,024 filters."""
FILTERS_6 = (*range(8, 257, 8), *range(288, 1025, 32))
FIGURE_14 = {
    "managed": (390e9, 584e9),
    "managed, prefetch": (660e9, 906e9),
    "managed, prefetch, pieces": (39e9, 326e9),
    "ours": (1350e9, 2599e9),
}
"""The printed least and most operations per second; its bars have no numbers."""
SIZES_14 = tuple((512 << (step + 1) // 2, 512 << step // 2) for step in range(8))
"""Rows and columns of its maps; printed are 8190 × 4095 for the last, which we take for 8192 × 4096."""
BUFFERS = 1 << 30
"""The budget of a layer of VGG16, in bytes."""
RESERVED = 2 << 30
"""Bytes beside the maps in core: filters and gradients, those of dense layers included, and workspace."""


class Layer(NamedTuple):
    """A convolution of VGG16: its channels, filters, and rows (equal to its columns)."""

    name: str
    channels: int
    filters: int
    rows: int

    def request(self, batch: int, routine: str = "conv2d", budget: int | None = None) -> Request:
        """The request of this layer's convolution; with bias and ReLU if the routine is `conv2d`."""
        fused = {"bias": True, "activation": "relu"} if routine == "conv2d" else {}
        images = batch, self.channels, self.rows, self.rows
        return Request(routine, images, (self.filters, self.channels, 3, 3), fused, {"memory_budget": budget})


VGG16 = tuple(
    Layer(f"conv{block}_{number}", before if number == 1 else filters, filters, rows)
    for block, (before, filters, rows, count) in enumerate(
        ((3, 64, 224, 2), (64, 128, 112, 2), (128, 256, 56, 3), (256, 512, 28, 3), (512, 512, 14, 3)), 1
    )
    for number in range(1, count + 1)
)


# --------------------------------------------------------------------------------------------------
# Calls
# --------------------------------------------------------------------------------------------------


def in_core(plan: Plan) -> float:
    """The time of a call whose data are on the device in one piece, without copies."""
    problem = plan.problem
    filters = problem.group_filters if problem.routine == "conv2d" else 0
    return plan.rates.routine(problem.operations, filters)


def _table_4(number: int, planner: Any) -> Facts:
    case = [*PROBLEMS][number]
    batch, channels, *image = PROBLEMS[case]
    limits = {"options": Options(planner=planner)}
    sizes = (batch, channels, *image), (channels, channels, 3, 3)
    machine = host(P100).machine
    plan = Request("conv2d", *sizes, {}, limits).plan(machine)
    counts = ran(plan, machine)
    return {
        "figure": "table 4",
        "case": case,
        "planner": planner,
        "pieces": list(vars(plan.pieces).values()),
        "rate": plan.problem.operations / counts.seconds,
        "printed": TABLE_4[number][PLANNERS.index(planner)] * 1e9,
        "model_error": counts.model_error,
    }


def _figure_6(filters: int) -> Facts:
    return {"figure": "figure 6", **curve(host(P100), IMAGES_6, (filters,))["rows"][0]}


def _figure_9(channels: int) -> Facts:
    machine = host(P100).machine
    plan = Request("conv2d", (1, channels, 1024, 1024), (channels, channels, 3, 3)).plan(machine)
    nbytes = 4 * sum(math.prod(plan.problem.shape(tensor)) for tensor in ("x", "w", "y"))
    fits, operations = nbytes <= machine.budget(0), plan.problem.operations
    counts = ran(plan, machine)
    return {
        "figure": "figure 9",
        "channels": channels,
        "bytes": nbytes,
        "in_core": operations / in_core(plan) if fits else None,
        "out_of_core": operations / counts.seconds,
        "model_error": counts.model_error,
    }


def _figure_10(size: int) -> Facts:
    """Seconds of convolution, bias and activation as three calls, and as one, of 64 channels."""
    image = 1, 64, size, size
    x, w, y, bias = (unbacked(shape, np.float32, "C") for shape in (image, (64, 64, 3, 3), image, (64,)))
    calls: dict[str, Callable[..., Any]] = {
        "convolution": partial(conv2d, x, w, out=y),
        "add bias": partial(add_bias, y, bias, out=y),
        "activation": partial(activate, y, "relu", out=y),
        "fused": partial(conv2d, x, w, bias, activation="relu", out=y),
    }
    seconds = dict[str, float]()
    for name, call in calls.items():
        counts = Statistics()
        call(device=host(P100).machine, statistics=counts)
        seconds[name] = counts.seconds
    whole = sum(seconds.values()) - seconds["fused"]
    return {
        "figure": "figure 10",
        "case": f"n=1, c=64, {size}×{size}",
        "busy": seconds,
        "share": {"layers": 1 - seconds["convolution"] / whole, "fused": seconds["fused"] / whole},
    }


def _figure_13(layer: Layer) -> Facts:
    machine = host(P100).machine
    plan = layer.request(1024).plan(machine)
    counts = ran(plan, machine)
    return {
        "figure": "figure 13",
        "layer": f"{layer.name} ({layer.channels} × {layer.filters})",
        "busy": busy(machine.timeline),
        "seconds": counts.seconds,
        "model_error": counts.model_error,
    }


def _figure_14(rows: int, columns: int) -> Facts:
    """Operations per second with managed memory, by three ways, beside data in core and ours."""
    machine = host(P100).machine
    budget, plan = machine.budget(0), Request("conv2d", (1, 64, rows, columns), (64, 64, 3, 3)).plan(machine)
    operations = plan.problem.operations
    nbytes = 4 * sum(math.prod(plan.problem.shape(tensor)) for tensor in ("x", "w", "y"))
    core = {"in core": operations / in_core(plan)} if nbytes <= budget else {}
    rivals = rates_of_rivals(plan, budget)
    return {
        "figure": "figure 14",
        "case": f"{rows}×{columns}",
        "bytes": nbytes,
        "rates": {**core, **rivals, "ours": operations / ran(plan, machine).seconds},
        "printed_least_and_most": FIGURE_14,
    }


# --------------------------------------------------------------------------------------------------
# VGG16
# --------------------------------------------------------------------------------------------------


def _figure_12(batch: int, rate: float) -> Facts:
    """Times of VGG16's forward and backward convolutions in sequence: out of core, and in core."""
    [gpu] = P100.gpus
    topology = replace(P100, gpus=(replace(gpu, rates={**gpu.rates, "float32": rate}),))
    times, operations = {"in_core": 0.0, "out_of_core": 0.0}, 0
    for number, layer in enumerate(VGG16):
        for routine in ("conv2d", "conv2d_backward_filter", "conv2d_backward_data"):
            if routine == "conv2d_backward_data" and number == 0:
                continue
            machine = host(topology).machine
            plan = layer.request(batch, routine, BUFFERS).plan(machine)
            operations += plan.problem.operations
            times["in_core"] += in_core(plan)
            times["out_of_core"] += ran(plan, machine).seconds
    nbytes = map_bytes(batch)
    return {
        "figure": "figure 12",
        "batch": batch,
        "rate": rate,
        "bytes": nbytes,
        "in_core": operations / times["in_core"] if nbytes + RESERVED <= gpu.memory_bytes else None,
        "out_of_core": operations / times["out_of_core"],
        "overhead": times["out_of_core"] / times["in_core"] - 1,
    }


def _table_2(layer: Layer) -> Facts:
    """The bytes of a convolution's images, filters and results, of 1,024 images."""
    batch, pixels = 1024, layer.rows**2
    elements = {
        "x": batch * layer.channels * pixels,
        "w": layer.filters * layer.channels * 9,
        "y": batch * layer.filters * pixels,
    }
    sizes = {tensor: 4 * count for tensor, count in elements.items()}
    return {
        "figure": "table 2",
        "layer": layer.name,
        "sizes": sizes,
        "bytes": sum(sizes.values()),
        "exceeds": sum(sizes.values()) > P100.gpus[0].memory_bytes,
    }


def map_bytes(batch: int) -> int:
    """The bytes of all maps of VGG16: the images, each result, and the pooled ones.

    A map and its gradient have one memory, as in the paper.

    >>> map_bytes(1024)
    62375591936
    """
    found = batch * VGG16[0].channels * VGG16[0].rows ** 2
    for number, layer in enumerate(VGG16):
        result = batch * layer.filters * layer.rows**2
        is_pooled = number + 1 == len(VGG16) or VGG16[number + 1].rows < layer.rows
        found += result + (result // 4 if is_pooled else 0)
    return 4 * found


# --------------------------------------------------------------------------------------------------
# All of it
# --------------------------------------------------------------------------------------------------

FIGURES: dict[str, list[Run]] = {
    "table2": [partial(_table_2, layer) for layer in VGG16],
    "table4": [partial(_table_4, number, planner) for number in range(len(PROBLEMS)) for planner in PLANNERS],
    "figure6": [partial(_figure_6, filters) for filters in FILTERS_6],
    "figure9": [partial(_figure_9, channels) for channels in CHANNELS],
    "figure10": [partial(_figure_10, size) for size in (1024, 2048, 4096)],
    "figure12": [
        partial(_figure_12, batch, rate)
        for rate in (VGG_RATE, P100.gpus[0].rates["float32"])
        for batch in BATCHES
    ],
    "figure13": [partial(_figure_13, layer) for layer in VGG16],
    "figure14": [partial(_figure_14, *size) for size in SIZES_14],
}
"""The runs of each figure."""


def measured(figures: Sequence[str], progress: Progress) -> Facts:
    """The rows of some figures; raises SchemeError for an unknown one before the first run."""
    if unknown := [name for name in figures if name not in FIGURES]:
        raise SchemeError(
            f"the figure {unknown[0]!r} is unknown\nknown are {', '.join(FIGURES)}\nchoose some of them"
        )
    runs, rows = [run for name in figures for run in FIGURES[name]], list[Facts]()
    for done, run in enumerate(runs):
        progress(done, len(runs))
        rows.append(run())
    return {
        "bench": "outofcore",
        "device": "sim",
        "machine": P100.name,
        "commit": golden.commit(),
        "versions": {"simwarp": simwarp.__version__},
        "rows": rows,
    }
