"""Strips of rows through the layers of a segment: the rows that each strip computes, reads and owns.

A strip of a layer's result needs more rows of what the layer reads: the halo. Going through several layers it
grows, and neighbouring strips compute its rows both. Each row is owned by one strip, which stores it and adds
its part of the gradients of parameters.

The rows of all strips of a tensor are two arrays, because the planner compares many cuts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpu.outofcore.halo import image_bounds, image_rows, output_bounds
from gpu.outofcore.networks.layers import Network
from gpu.outofcore.networks.stages import Stage

Ints = npt.NDArray[np.int64]
Rows = Mapping[int, range]
"""Number of a tensor → its rows."""


class Ranges(NamedTuple):
    """A range of rows for each strip; it is empty where its start is not below its stop."""

    starts: Ints
    stops: Ints

    @property
    def sizes(self) -> Ints:
        """The number of rows in each strip's range."""
        return np.maximum(self.stops - self.starts, 0)


@dataclass(frozen=True)
class Strip:
    """The rows of each tensor that a piece needs, by tensor; other tensors are left out."""

    held: Rows  # rows of activations on the device
    gradients: Rows  # rows of gradients on the device
    owned: Rows  # rows that only this strip computes: activations forward, gradients backward; may be empty


@dataclass(frozen=True)
class Strips:
    """All strips of a phase, in order, by tensor; see `Strip`."""

    count: int
    held: Mapping[int, Ranges]
    gradients: Mapping[int, Ranges]
    owned: Mapping[int, Ranges]

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Strip]:
        every = [
            {tensor: _listed(ranges) for tensor, ranges in of.items()}
            for of in (self.held, self.gradients, self.owned)
        ]
        for index in range(self.count):
            held, gradients, owned = ({t: ranges[index] for t, ranges in of.items()} for of in every)
            yield Strip({tensor: rows for tensor, rows in held.items() if rows}, gradients, owned)


def forward_strips(network: Network, first: int, last: int, rows: int) -> Strips:
    """The strips of a forward pass through stages ``first`` to ``last``, by rows of the last result.

    ``first`` is the first stage that it computes, which may be of a segment before.
    """
    of = {last: _cut(network.shape(last)[1], rows)}
    for number in range(last, first - 1, -1):
        height = network.shape(number - 1)[1]
        of[number - 1] = covering(_read(network.stages[number - 1], of[number], height), height)
    owned = {tensor: owners(ranges, network.shape(tensor)[1]) for tensor, ranges in of.items()}
    return Strips(len(of[last].starts), of, {}, owned)


def backward_strips(
    network: Network, first: int, last: int, top: int, rows: int, kept: Collection[int]
) -> Strips:
    """The strips of a backward pass through stages ``last`` to ``first``, by rows of its last gradient.

    That is the gradient with respect to the first stage's input, or by its result if the former is not
    computed, as mostly for the images. The first gradient is that of ``top``. Activations that are not kept
    are computed again.
    """
    target = target_of(network, first)
    of = {target: _cut(network.shape(target)[1], rows)}
    for number in range(target + 1, top + 1):
        height = network.shape(number)[1]
        of[number] = covering(_written(network.stages[number - 1], of[number - 1], height), height)
    owned = {tensor: owners(ranges, network.shape(tensor)[1]) for tensor, ranges in of.items()}
    if network.normalizes(first):
        owned[first - 1] = owned[first]
    count = len(of[target].starts)
    held = _held(network, range(first, last + 1), of, owned, kept)
    return Strips(count, held, of, owned)


def target_of(network: Network, first: int) -> int:
    """The tensor of the last gradient that the backward pass of a segment computes.

    The gradient with respect to the input of batch normalization needs sums over the whole batch: the segment
    before has it.
    """
    has_none = first == 1 and not network.image_gradient
    return first if has_none or network.normalizes(first) else first - 1


def _held(
    network: Network,
    segment: range,
    gradients: Mapping[int, Ranges],
    owned: Mapping[int, Ranges],
    kept: Collection[int],
) -> dict[int, Ranges]:
    """The rows of activations that the pieces of a backward pass need."""
    held, last, top = dict[int, Ranges](), segment[-1], max(gradients)
    if network.loss is not None and last == len(network.stages):
        held = {last: _whole(network.shape(last)[1], len(owned[last].starts))}
    for number in range(top, 0, -1):
        stage, tensor, needed = network.stages[number - 1], number - 1, list[Ranges]()
        height = network.shape(tensor)[1]
        if stage.parameters and number in segment:
            needed.append(_read(stage, owned[number], height))
        if stage.kind == "batch_norm" and tensor in gradients:
            needed.append(gradients[tensor])
        if stage.kind == "max_pool" and tensor in gradients:
            needed += [_read(stage, gradients[number], height), gradients[tensor]]
        if tensor and tensor in gradients and network.stages[tensor - 1].activation:
            needed.append(gradients[tensor])
        if number in held and number not in kept:
            needed.append(_read(stage, held[number], height))
        if needed:
            held[tensor] = _hull(needed)
    return held


# ---------------------------------------------------------------------------------------- ranges of rows


def read_rows(stage: Stage, outputs: range, height: int) -> range:
    """The rows that a stage reads for some rows of its result."""
    return range(height) if stage.kind == "dense" else image_rows(stage.plane, outputs)


def hull(*ranges: range) -> range:
    """The least range that holds all ranges.

    >>> hull(range(2, 4), range(7, 8))
    range(2, 8)
    """
    return range(min(one.start for one in ranges), max(one.stop for one in ranges))


def _read(stage: Stage, outputs: Ranges, height: int) -> Ranges:
    """`read_rows` of all strips; a single strip has all rows, and an empty range stays empty."""
    if len(outputs.starts) == 1:
        return _whole(height)
    if stage.kind == "dense":
        rows = _whole(height, len(outputs.starts))
    else:
        rows = _clipped(*image_bounds(stage.plane, *outputs), height)
    is_empty = outputs.stops <= outputs.starts
    if not is_empty.any():
        return rows
    return Ranges(np.where(is_empty, height, rows.starts), np.where(is_empty, 0, rows.stops))


def _written(stage: Stage, rows: Ranges, height: int) -> Ranges:
    """The rows of a stage's result that depend on these rows of its input."""
    if stage.kind == "dense" or len(rows.starts) == 1:
        return _whole(height, len(rows.starts))
    return _clipped(*output_bounds(stage.plane, *rows), height)


def _clipped(starts: Ints, stops: Ints, size: int) -> Ranges:
    """The rows that exist, at least one: `gpu.outofcore.halo` for all strips."""
    first = np.minimum(np.maximum(starts, 0), size - 1)
    return Ranges(first, np.maximum(np.minimum(stops, size), first + 1))


def _hull(ranges: list[Ranges]) -> Ranges:
    """For each strip, the smallest range that contains all ranges; an empty one is marked by start > stop."""
    if len(ranges) == 1 or len(ranges[0].starts) == 1:
        return ranges[0]
    starts, stops = ranges[0]
    for one in ranges[1:]:
        starts, stops = np.minimum(starts, one.starts), np.maximum(stops, one.stops)
    return Ranges(starts, stops)


def covering(ranges: Ranges, size: int) -> Ranges:
    """Extend ranges down to the next one, so that they cover the axis.

    >>> covering(Ranges(np.array([1, 4]), np.array([2, 6])), 8)
    Ranges(starts=array([0, 4]), stops=array([4, 8]))
    """
    owned = owners(ranges, size)
    if len(ranges.starts) == 1:
        return owned
    return Ranges(owned.starts, np.maximum(ranges.stops, owned.stops))


def owners(ranges: Ranges, size: int) -> Ranges:
    """Assign each row to the last of the ranges that hold it.

    >>> owners(Ranges(np.array([0, 2]), np.array([4, 6])), 6)
    Ranges(starts=array([0, 2]), stops=array([2, 6]))
    """
    if len(ranges.starts) == 1:
        return _whole(size)
    starts = ranges.starts.copy()
    starts[0] = 0
    stops = np.empty_like(starts)
    stops[:-1], stops[-1] = starts[1:], size
    return Ranges(starts, stops)


def _cut(size: int, piece: int) -> Ranges:
    """Cut an axis of ``size`` rows into ranges of ``piece`` rows."""
    starts = np.arange(0, size, piece)
    return Ranges(starts, np.minimum(starts + piece, size))


@cache
def _whole(size: int, count: int = 1) -> Ranges:
    """The range of all ``size`` rows, once for each of ``count`` strips."""
    return Ranges(np.zeros(count, np.int64), np.full(count, size))


def _listed(ranges: Ranges) -> list[range]:
    return [
        range(start, max(stop, start)) for start, stop in zip(*map(np.ndarray.tolist, ranges), strict=True)
    ]
