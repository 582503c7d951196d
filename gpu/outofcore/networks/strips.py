"""Strips of rows through the layers of a segment: what each one computes, reads and owns.

A strip of a layer's result needs more rows of what the layer reads: the halo. Going through several layers it
grows, and neighbouring strips compute its rows both. Each row is owned by one strip, which stores it and adds
its part of the gradients of parameters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from gpu.outofcore.halo import image_rows, output_rows
from gpu.outofcore.networks.layers import Network
from gpu.outofcore.networks.stages import Stage
from gpu.outofcore.pieces import cut

Rows = Mapping[int, range]
"""By the number of the tensor."""


@dataclass(frozen=True)
class Strip:
    """The rows of each tensor in a piece.

    Attributes
    ----------
    held : Rows
        Of activations, by tensor. Those that a piece does not need are left out.
    gradients : Rows
        Of gradients.
    owned : Rows
        Of activations in a forward phase, of gradients in a backward one; may be empty.
    """

    held: Rows
    gradients: Rows
    owned: Rows


def forward_strips(network: Network, first: int, last: int, rows: int) -> list[Strip]:
    """The strips of a forward pass through stages ``first`` to ``last``, by the rows of the last result."""
    of = {last: cut(network.shape(last)[1], rows)}
    for number in range(last, first - 1, -1):
        height = network.shape(number - 1)[1]
        needed = [read_rows(network.stages[number - 1], outputs, height) for outputs in of[number]]
        of[number - 1] = covering(needed, height)
    owned = {tensor: owners(ranges, network.shape(tensor)[1]) for tensor, ranges in of.items()}
    return [Strip(_at(of, index), {}, _at(owned, index)) for index in range(len(of[last]))]


def backward_strips(network: Network, first: int, last: int, rows: int, kept: Collection[int]) -> list[Strip]:
    """The strips of a backward pass through stages ``last`` to ``first``, by the rows of the first gradient.

    It is that of what the first stage reads, except where that is not computed, as mostly of the images: then
    it is that of the first stage's result. What is not kept, nor read by the first stage, is computed again.
    """
    target = target_of(network, first)
    of = {target: cut(network.shape(target)[1], rows)}
    for number in range(target + 1, last + 1):
        height = network.shape(number)[1]
        needed = [_written(network.stages[number - 1], reads, height) for reads in of[number - 1]]
        of[number] = covering(needed, height)
    owned = {tensor: owners(ranges, network.shape(tensor)[1]) for tensor, ranges in of.items()}
    count, found = len(of[target]), list[Strip]()
    for index in range(count):
        gradients, own = _at(of, index), _at(owned, index)
        if network.normalizes(last + 1):
            gradients[last + 1] = gradients[last]
        held = _held(network, first, last, gradients, own, kept)
        if count == 1:
            held = {tensor: range(network.shape(tensor)[1]) for tensor in held}
        found.append(Strip(held, gradients, own))
    return found


def target_of(network: Network, first: int) -> int:
    """The last gradient that the backward pass of a segment computes.

    That of what batch normalization reads needs sums over the whole batch, and is left to the segment before.
    """
    has_none = first == 1 and not network.image_gradient
    return first if has_none or network.normalizes(first) else first - 1


def _held(
    network: Network, first: int, last: int, gradients: Rows, owned: Rows, kept: Collection[int]
) -> dict[int, range]:
    """The rows of activations that a piece of a backward pass needs."""
    has_loss = network.loss is not None and last == len(network.stages)
    held = {last: range(network.shape(last)[1])} if has_loss else dict[int, range]()
    if last + 1 in gradients:  # batch normalization
        held = {last: gradients[last]}
    for number in range(last, first - 1, -1):
        stage, tensor, needed = network.stages[number - 1], number - 1, list[range]()
        height = network.shape(tensor)[1]
        if stage.parameters and owned[number]:
            needed.append(read_rows(stage, owned[number], height))
        if stage.kind == "max_pool" and tensor in gradients:
            needed += [read_rows(stage, gradients[number], height), gradients[tensor]]
        if tensor and tensor in gradients and network.stages[tensor - 1].activation:
            needed.append(gradients[tensor])
        if number in held and number not in kept:
            needed.append(read_rows(stage, held[number], height))
        if needed:
            held[tensor] = hull(*needed)
    return held


def read_rows(stage: Stage, outputs: range, height: int) -> range:
    """The rows that rows of a stage's result need."""
    return range(height) if stage.kind == "dense" else image_rows(stage.plane, outputs)


def _written(stage: Stage, rows: range, height: int) -> range:
    """The rows of a stage's result that need rows of what it reads."""
    return range(height) if stage.kind == "dense" else output_rows(stage.plane, rows)


def hull(*ranges: range) -> range:
    """The least range that holds all.

    >>> hull(range(2, 4), range(7, 8))
    range(2, 8)
    """
    return range(min(one.start for one in ranges), max(one.stop for one in ranges))


def covering(ranges: Sequence[range], size: int) -> list[range]:
    """Ranges in order, each grown down to the next one, so that they cover the axis.

    >>> covering([range(1, 2), range(4, 6)], 8)
    [range(0, 4), range(4, 8)]
    """
    starts = [0, *(one.start for one in ranges[1:]), size]
    return [
        range(start, max(one.stop, end)) for start, one, end in zip(starts, ranges, starts[1:], strict=False)
    ]


def owners(ranges: Sequence[range], size: int) -> list[range]:
    """Each row to the last of the ranges that hold it.

    >>> owners([range(0, 4), range(2, 6)], 6)
    [range(0, 2), range(2, 6)]
    """
    ends = [*(one.start for one in ranges[1:]), size]
    return [range(one.start, end) for one, end in zip(ranges, ends, strict=True)]


def _at(of: Mapping[int, Sequence[range]], index: int) -> dict[int, range]:
    return {tensor: ranges[index] for tensor, ranges in of.items()}
