"""A layer that reads maps and writes one, or its gradient: bias and activation, or pooling. Pieces and times.

A piece is contiguous in all maps: some images; of one image some channels in NCHW, some rows in NHWC; of one
channel some rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from gpu.outofcore.halo import image_rows, output_rows
from gpu.outofcore.networks.stages import Stage
from gpu.outofcore.networks.strips import hull
from gpu.outofcore.options import Options
from gpu.outofcore.pieces import Piece, cut
from gpu.outofcore.planners import candidates
from gpu.outofcore.problem import Activation, Layout
from gpu.outofcore.rates import Rates
from gpu.outofcore.workspace import aligned
from reference.errors import LaunchError

Four: TypeAlias = tuple[int, int, int, int]
Sizes: TypeAlias = tuple[int, int, int]
"""The images, channels and rows in a piece: rows of the result."""
Parts: TypeAlias = dict[str, Piece]
"""A piece of each map, by the name of its argument; their tensor is "y" for the shape of pooled images."""


@dataclass(frozen=True)
class Map:
    """The shapes and options of one call, without its arrays."""

    name: str  # the name of its routine, for timelines and errors
    layout: Layout
    images: Four  # (N, C, H, W), in either layout
    dtype: np.dtype[np.generic]
    reads: tuple[str, ...] = ("x",)  # the maps that are read
    stage: Stage | None = None  # the pooling
    has_bias: bool = False
    activation: Activation | None = None
    workspace: int = 0  # the bytes in which GPUs add up the gradient of a bias
    on_device: frozenset[str] = frozenset()  # the reads, "bias" and "out" that the caller has on the device

    @property
    def is_gradient(self) -> bool:
        """True if the call computes a gradient."""
        return "gradient" in self.reads

    @property
    def is_sum(self) -> bool:
        """True if the result is the sum of each channel: the gradient of a bias."""
        return self.is_gradient and not (self.stage or self.activation)

    @property
    def is_in_place(self) -> bool:
        """True if a piece of the result takes the place of that of the first map."""
        return not (self.stage or self.is_sum)

    @property
    def maps(self) -> tuple[str, ...]:
        """The names of all maps."""
        return self.reads if self.is_sum else (*self.reads, "out")

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of an array of the call, in the layout."""
        batch, channels, rows, columns = self.images
        if name == "bias" or (name == "out" and self.is_sum):
            return (channels,)
        if self._is_pooled(name):
            assert self.stage is not None
            rows, columns = self.stage.plane.out_height, self.stage.plane.out_width
        return (batch, channels, rows, columns) if self.layout == "NCHW" else (batch, rows, columns, channels)

    def _is_pooled(self, name: str) -> bool:
        """True if a map has the shape of the pooled images."""
        return self.stage is not None and name == ("gradient" if self.is_gradient else "out")

    @property
    def rows(self) -> int:
        """The rows that pieces cut: those of the result."""
        return self.stage.plane.out_height if self.stage and not self.is_gradient else self.images[2]

    @property
    def bias_bytes(self) -> int:
        """The bytes of the device that hold a copy of the bias, or its gradient and the workspace."""
        if self.is_sum:
            return aligned(8 * self.images[1]) + self.workspace
        is_copied = self.has_bias and "bias" not in self.on_device
        return aligned(self.images[1] * self.dtype.itemsize) if is_copied else 0

    def operations(self, parts: Parts) -> float:
        """The floating-point operations of a step."""
        each = int(self.has_bias) + bool(self.activation) + self.is_sum
        if self.stage:
            each = self.stage.plane.filter_height * self.stage.plane.filter_width
            pooled = next(piece for name, piece in parts.items() if self._is_pooled(name))
            return float(each * self.elements(pooled))
        return float(each * self.elements(parts[self.maps[-1]]))

    def elements(self, piece: Piece) -> int:
        """The elements of a piece."""
        assert piece.rows is not None
        width = self.stage.plane.out_width if self.stage and piece.tensor == "y" else self.images[3]
        return len(piece.first) * len(piece.channels) * len(piece.rows) * width

    def pieces(self, sizes: Sizes) -> Iterator[Parts]:
        """The pieces of each step, in order."""
        images, channels, rows = map(cut, (*self.images[:2], self.rows), sizes)
        for first in images:
            for second in channels:
                for part in rows:
                    yield self.parts(first, second, part)

    def parts(self, first: range, second: range, rows: range) -> Parts:
        """The pieces of all maps for some rows of the result."""
        pooled, read = rows, rows
        if self.stage and self.is_gradient:
            pooled = output_rows(self.stage.plane, rows)
            read = hull(rows, image_rows(self.stage.plane, pooled))
        elif self.stage:
            read = image_rows(self.stage.plane, rows)
        found: Parts = {}
        for name in self.maps:
            if self._is_pooled(name):
                found[name] = Piece("y", first, second, pooled)
            else:
                found[name] = Piece("x", first, second, rows if name == "out" else read)
        return found

    def sizes(self) -> list[Sizes]:
        """All sizes that the planner compares, the largest first.

        A piece that is finished where it lies needs no buffer, and its kernel no gaps: only images are cut.
        """
        (batch, channels, *_), rows = self.images, self.rows
        found = [(size, channels, rows) for size in candidates(batch)]
        if "out" in self.on_device and self.is_in_place:
            return found
        if self.layout == "NCHW":
            found += [(1, size, rows) for size in candidates(channels)]
        return found + [(1, 1 if self.layout == "NCHW" else channels, size) for size in candidates(rows)]


@dataclass(frozen=True)
class MapPlan:
    """The sizes of a call's pieces, and their buffers, each with a place for a piece of some maps."""

    map: Map
    sizes: Sizes
    depth: int  # the number of buffers
    nbytes: dict[str, int]  # the bytes in a buffer, by map; maps whose pieces need none are left out

    @property
    def total(self) -> int:
        """The bytes of the device that the call needs."""
        return self.map.bias_bytes + self.depth * sum(self.nbytes.values())


def map_plan_of(of: Map, budget: int, rates: Rates, options: Options) -> MapPlan:
    """The fastest plan by the model; LaunchError if not even the smallest pieces fit the budget."""
    plans = [plan for sizes in of.sizes() if (plan := _fitting(of, sizes, budget, options.depth))]
    if not plans:
        least = _plan(of, of.sizes()[-1], 1).total
        raise LaunchError(
            f"{of.name} with a budget of {budget} bytes\nthe smallest pieces need {least} bytes\n"
            f"pass memory_budget={least} or more"
        )
    return min(plans, key=lambda plan: _seconds(plan, rates))


def _fitting(of: Map, sizes: Sizes, budget: int, depth: int) -> MapPlan | None:
    """The plan with the most buffers within the budget; None if there is none."""
    most = _plan(of, sizes, depth)
    plans = (replace(most, depth=count) for count in range(most.depth, 0, -1))
    return next((plan for plan in plans if plan.total <= budget), None)


def _plan(of: Map, sizes: Sizes, depth: int) -> MapPlan:
    """The plan with some buffers, or fewer for fewer pieces."""
    largest = _largest(of, sizes)
    nbytes = {
        name: aligned(of.dtype.itemsize * of.elements(largest[name]))
        for name in of.maps[of.is_in_place :]
        if name not in of.on_device
    }
    return MapPlan(of, sizes, min(depth, _count(of, sizes)), nbytes)


def _largest(of: Map, sizes: Sizes) -> Parts:
    """The pieces with the most rows of each map: the first ones may lack rows that are padding."""
    images, channels, rows = sizes
    first, second = range(min(images, of.images[0])), range(min(channels, of.images[1]))
    every = [of.parts(first, second, part) for part in cut(of.rows, rows)]
    return {name: max((parts[name] for parts in every), key=of.elements) for name in of.maps}


def _count(of: Map, sizes: Sizes) -> int:
    """The number of pieces."""
    count = 1
    for whole, size in zip((*of.images[:2], of.rows), sizes, strict=True):
        count *= -(-whole // size)
    return count


def _seconds(plan: MapPlan, rates: Rates) -> float:
    """The time of a call by the paper's formula, in which each sum has one term."""
    of, largest = plan.map, _largest(plan.map, plan.sizes)
    times = dict.fromkeys((True, False), 0.0)
    for name, piece in largest.items():
        if name not in of.on_device:
            copied = rates.out if name == "out" else rates.into
            times[name == "out"] += copied(of.dtype.itemsize * of.elements(piece))
    out, into = times[True], times[False]
    compute, steps = rates.routine(of.operations(largest)), _count(of, plan.sizes)
    if plan.depth == 1 and sum(plan.nbytes.values()):
        return steps * (into + compute + out)
    return into + compute + out + (steps - 1) * max(compute, rates.together(into, out))
