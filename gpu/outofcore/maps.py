"""A layer that reads one map and writes one: bias and activation, or pooling. Its pieces, and their times.

A piece is contiguous in both maps: some images; of one image some channels in NCHW, some rows in NHWC; of one
channel some rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from gpu.outofcore.halo import image_rows
from gpu.outofcore.networks.stages import Stage
from gpu.outofcore.options import Options
from gpu.outofcore.pieces import Piece, cut
from gpu.outofcore.planners import candidates
from gpu.outofcore.problem import Activation, Layout
from gpu.outofcore.rates import Rates
from gpu.outofcore.workspace import aligned
from reference.errors import LaunchError

Four: TypeAlias = tuple[int, int, int, int]
Sizes: TypeAlias = tuple[int, int, int]
"""The images, channels and rows of the result in a piece."""


@dataclass(frozen=True)
class Map:
    """The shapes and options of one call, without its arrays."""

    name: str  # the name of its routine, for timelines and errors
    layout: Layout
    images: Four  # (N, C, H, W), in either layout
    dtype: np.dtype[np.generic]
    stage: Stage | None = None  # the pooling
    has_bias: bool = False
    activation: Activation | None = None
    on_device: frozenset[str] = frozenset()  # "x", "y" and "bias", if the caller has them on the device

    @property
    def rows(self) -> int:
        """The rows of the result."""
        return self.stage.plane.out_height if self.stage else self.images[2]

    @property
    def width(self) -> int:
        """The columns of the result."""
        return self.stage.plane.out_width if self.stage else self.images[3]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result, in the layout."""
        batch, channels = self.images[:2]
        nchw = batch, channels, self.rows, self.width
        return nchw if self.layout == "NCHW" else (batch, *nchw[2:], channels)

    @property
    def bias_bytes(self) -> int:
        """The bytes of the device that hold a copy of the bias."""
        is_copied = self.has_bias and "bias" not in self.on_device
        return aligned(self.images[1] * self.dtype.itemsize) if is_copied else 0

    def operations(self, y: Piece) -> float:
        """The floating-point operations of a piece of the result."""
        each = int(self.has_bias) + bool(self.activation)
        if self.stage:
            each = self.stage.plane.filter_height * self.stage.plane.filter_width
        return float(each * self.elements(y))

    def elements(self, piece: Piece) -> int:
        """The elements of a piece."""
        assert piece.rows is not None
        width = self.images[3] if piece.tensor == "x" else self.width
        return len(piece.first) * len(piece.channels) * len(piece.rows) * width

    def pieces(self, sizes: Sizes) -> Iterator[tuple[Piece, Piece]]:
        """The pieces of both maps, in order."""
        images, channels, rows = map(cut, (*self.images[:2], self.rows), sizes)
        for first in images:
            for second in channels:
                for part in rows:
                    read = image_rows(self.stage.plane, part) if self.stage else part
                    yield Piece("x", first, second, read), Piece("y", first, second, part)

    def sizes(self) -> list[Sizes]:
        """All sizes that the planner compares, the largest first.

        A piece that is finished where it lies needs no buffer, and its kernel no gaps: only images are cut.
        """
        (batch, channels, *_), rows = self.images, self.rows
        found = [(size, channels, rows) for size in candidates(batch)]
        if "y" in self.on_device and not self.stage:
            return found
        if self.layout == "NCHW":
            found += [(1, size, rows) for size in candidates(channels)]
        return found + [(1, 1 if self.layout == "NCHW" else channels, size) for size in candidates(rows)]


@dataclass(frozen=True)
class MapPlan:
    """The sizes of a call's pieces, and their buffers, each for a piece of y and, with pooling, one of x."""

    map: Map
    sizes: Sizes
    depth: int  # the number of buffers
    nbytes: tuple[int, int]  # the bytes in a buffer for x and for y; 0 for pieces that need none

    @property
    def total(self) -> int:
        """The bytes of the device that the call needs."""
        return self.map.bias_bytes + self.depth * sum(self.nbytes)


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
    plans = (_plan(of, sizes, count) for count in range(depth, 0, -1))
    return next((plan for plan in plans if plan.total <= budget), None)


def _plan(of: Map, sizes: Sizes, depth: int) -> MapPlan:
    item, (x, y) = of.dtype.itemsize, _largest(of, sizes)
    reads = of.stage is not None and "x" not in of.on_device
    nbytes = (
        aligned(item * of.elements(x)) if reads else 0,
        aligned(item * of.elements(y)) if "y" not in of.on_device else 0,
    )
    return MapPlan(of, sizes, min(depth, _count(of, sizes)), nbytes)


def _largest(of: Map, sizes: Sizes) -> tuple[Piece, Piece]:
    """The pieces with the most rows of x: the first ones may lack rows that are padding."""
    images, channels, rows = sizes
    pairs = (range(start, min(start + rows, of.rows)) for start in range(0, of.rows, rows))
    reads = [(image_rows(of.stage.plane, part) if of.stage else part, part) for part in pairs]
    first, second = range(min(images, of.images[0])), range(min(channels, of.images[1]))
    x, y = max((x for x, _ in reads), key=len), max((y for _, y in reads), key=len)
    return Piece("x", first, second, x), Piece("y", first, second, y)


def _count(of: Map, sizes: Sizes) -> int:
    """The number of pieces."""
    count = 1
    for whole, size in zip((*of.images[:2], of.rows), sizes, strict=True):
        count *= -(-whole // size)
    return count


def _seconds(plan: MapPlan, rates: Rates) -> float:
    """The time of a call by the paper's formula, in which each sum has one term."""
    of, (x, y) = plan.map, _largest(plan.map, plan.sizes)
    into = 0.0 if "x" in of.on_device else rates.into(of.dtype.itemsize * of.elements(x))
    out = 0.0 if "y" in of.on_device else rates.out(of.dtype.itemsize * of.elements(y))
    compute, steps = rates.routine(of.operations(y)), _count(of, plan.sizes)
    if plan.depth == 1 and sum(plan.nbytes):
        return steps * (into + compute + out)
    return into + compute + out + (steps - 1) * max(compute, rates.together(into, out))
