"""Conversion of a model's tensors: bits or integers, with functions that are not yet part of a layer.

A batch normalisation, a ReLU or an average only joins a stream's *steps*: a function of the integers that the
last layer gave. The layer after them decides whether they become thresholds, an `Affine` and `Clip`, or
logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.bnn.chains import (
    INT32_MAX,
    Clamp,
    Step,
    chain_thresholds,
    fixed_point,
    linear,
    lines,
    runs,
    slopes,
)
from reference.errors import ExportError, RangeError
from reference.types.layers import (
    Affine,
    Clip,
    Conv,
    Dense,
    Flatten,
    Layer,
    PadChannels,
    Pool,
    Residual,
    Threshold,
)
from reference.types.network_values import Value, after

Order: TypeAlias = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Node:
    """A layer after others; the input has neither layer nor parent."""

    value: Value
    layer: Layer | None = None
    parent: Node | None = None
    depth: int = 0

    def then(self, *layers: Layer) -> Node:
        """The node that results from applying more layers."""
        node = self
        for layer in layers:
            node = Node(after(layer, node.value), layer, node, node.depth + 1)
        return node

    def layers_from(self, ancestor: Node | None) -> tuple[Layer, ...]:
        """The layers between an ancestor and here; from the input, all."""
        node, layers = self, list[Layer]()
        while node is not ancestor and node.layer is not None and node.parent is not None:
            layers.append(node.layer)
            node = node.parent
        return tuple(reversed(layers))


def common_ancestor(a: Node, b: Node) -> Node:
    """The last node from which both nodes descend."""
    while a is not b:
        if a.depth < b.depth:
            a, b = b, a
        assert a.parent is not None, "nodes of one input"
        a = a.parent
    return a


@dataclass(frozen=True, eq=False)
class Stream:
    """A tensor of a model: ``later(pool(steps(x)))`` of the bits or integers x of a node.

    Attributes
    ----------
    steps, later : tuple of steps
        Bits have none.
    pool : Pool, optional
        A maximum that may yet become an OR or an AND of bits.
    order : array of int, optional
        Of a vector: element i of the node is element ``order[i]`` of the tensor.
    """

    node: Node
    steps: tuple[Step, ...] = ()
    pool: Pool | None = None
    later: tuple[Step, ...] = ()
    order: Order | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one image's value: (H, W, C) or (F,)."""
        if self.pool is None:
            return self.node.value.shape
        return after(self.pool, self.node.value).shape

    @property
    def is_bits(self) -> bool:
        """True if the stream's elements are signs, stored as bits."""
        return self.node.value.kind == "bits"

    def with_step(self, step: Step) -> Stream:
        """Append an elementwise step to the stream."""
        stream = as_integers(self)
        if stream.pool is None:
            return replace(stream, steps=(*stream.steps, step))
        return replace(stream, later=(*stream.later, step))


class Builder:
    """Layers of streams; keeps the largest rounding.

    Attributes
    ----------
    digits : int, optional
        Binary digits after the point of values that have to be rounded.
    error : Fraction
        The largest rounding so far.
    """

    def __init__(self, digits: int | None) -> None:
        self.digits = digits
        self.error = Fraction(0)

    def sign(self, stream: Stream) -> Stream:
        """Bits of a stream: one threshold for each channel, before or after its maximum."""
        if stream.is_bits:
            return stream
        channels = stream.node.value.shape[-1]
        if stream.pool is not None:
            later = slopes(stream.later, channels)
            if min(later) < 0 < max(later):
                stream = pooled(stream)
        node = stream.node.then(Threshold(*chain_thresholds((*stream.steps, *stream.later), channels)))
        if stream.pool is not None:
            falls = min(slopes(stream.later, channels)) < 0
            node = node.then(replace(stream.pool, kind="and" if falls else "or"))
        return Stream(node, order=stream.order)

    def maximum(self, stream: Stream, pool: Pool) -> Stream:
        """Pool a stream by the maximum of each window."""
        if stream.is_bits:
            return replace(stream, node=stream.node.then(replace(pool, kind="or")))
        return replace(pooled(stream), pool=pool)

    def average(self, stream: Stream, pool: Pool, divisor: int) -> Stream:
        """Average each window: the sum of its elements, with the divisor in the scale of the later steps."""
        stream = pooled(as_integers(stream))
        changes = pool.padding != ((0, 0), (0, 0)) or divisor != pool.window[0] * pool.window[1]
        if changes or any(isinstance(step, Clamp) for step in stream.steps):
            stream = self.whole(stream)
        channels = stream.node.value.shape[-1]
        steps = (linear([Fraction(1, divisor)] * channels), *stream.steps)
        return replace(stream, node=stream.node.then(replace(pool, kind="sum")), steps=steps)

    def product(self, stream: Stream, layer: Conv | Dense) -> Stream:
        """A convolution or a product; taps outside the image contribute nothing."""
        if not stream.is_bits:
            stream = self.whole(stream)
        node = stream.node.then(layer)
        unit = () if stream.is_bits else (linear([_unit(stream)] * node.value.shape[-1]),)
        return Stream(node, unit)

    def padded_product(self, stream: Stream, layer: Conv, sums: npt.NDArray[np.int64], value: int) -> Stream:
        """Convolve with pixels outside the image of ``value``, -1 or 1; ``sums`` are the sums of each filter.

        With z = (1 - value x) / 2, which is 0 outside, it is ``value * (sums - 2 Σ w z)``.
        """
        if not stream.is_bits:
            raise ExportError(
                f"padding with {value} of a tensor that is not ±1\nput a sign before, or pad with 0"
            )
        zero_or_one = _zero_or_one(stream.node)
        if value == 1:
            channels = zero_or_one.value.shape[-1]
            zero_or_one = zero_or_one.then(_affine([-1] * channels, [1] * channels))
        node = zero_or_one.then(layer)
        return Stream(node, (linear([-2 * value] * len(sums), (value * sums).tolist()),))

    def flatten(self, stream: Stream, *, channels_first: bool = False) -> Stream:
        """Flatten to the network's order (H, W, C), also from a tensor in the order (C, H, W)."""
        stream = pooled(stream)
        shape = stream.node.value.shape
        if len(shape) == 1:
            return stream
        height, width, channels = shape
        order: Order | None = None
        if channels_first and height * width > 1:
            order = np.arange(channels * height * width).reshape(channels, height, width)
            order = order.transpose(1, 2, 0).ravel()
        expand = list(range(channels)) * (height * width)
        steps = tuple(step if isinstance(step, Clamp) else step.taken(expand) for step in stream.steps)
        return Stream(stream.node.then(Flatten()), steps, order=order)

    def pad_channels(self, stream: Stream, before: int, behind: int) -> Stream:
        """Pad a stream with channels of zeros before and after its own."""
        stream = self.whole(as_integers(stream))
        node = stream.node.then(PadChannels(before, behind))
        return Stream(node, (linear([_unit(stream)] * node.value.shape[-1]),))

    def sum(self, a: Stream, b: Stream) -> Stream:
        """Add two streams of the same network input, in one common unit."""
        if a.shape != b.shape or not np.array_equal(_order(a), _order(b)):
            raise ExportError(f"a sum of {a.shape} and {b.shape} (H, W, C)\nboth must have one shape")
        first, second = self._in_one_unit([as_integers(a), as_integers(b)])
        if len(first.node.layers_from(None)) < len(second.node.layers_from(None)):
            first, second = second, first
        start = common_ancestor(first.node, second.node)
        ways = (stream.node.layers_from(start) for stream in (first, second))
        return replace(first, node=start.then(Residual(*ways)))

    def logits(self, stream: Stream) -> tuple[Node, Any, Any]:
        """The last node, with scale and offset of its sums."""
        if stream.is_bits:
            raise ExportError(
                "the model gives signs\nend it with a dense layer of ±1, and a batch normalisation"
            )
        if len(stream.shape) != 1 or stream.order is not None:
            raise ExportError(
                f"the model gives {stream.shape} (H, W, C) for an image\n"
                "one number for each class is needed: end with a dense layer of ±1, or averages flattened"
            )
        stream = pooled(stream)
        if any(isinstance(step, Clamp) for step in stream.steps):
            stream = self.whole(stream)
        per_channel = lines(stream.steps, stream.node.value.shape[-1])
        return (
            stream.node,
            np.array([float(line.scale) for line in per_channel], np.float32),
            np.array([float(line.offset) for line in per_channel], np.float32),
        )

    def whole(self, stream: Stream) -> Stream:
        """Round a stream to integers whose only remaining step is one common scale."""
        return self._in_one_unit([stream])[0]

    def _in_one_unit(self, streams: Sequence[Stream]) -> list[Stream]:
        streams = [self._without_clamps(pooled(stream)) for stream in streams]
        return self._rounded(streams, ())

    def _without_clamps(self, stream: Stream) -> Stream:
        """Turn a stream's steps up to its last clamp into layers."""
        *clamped, (rest, _) = runs(stream.steps)
        before: tuple[Step, ...] = ()
        for run, clamp in clamped:
            assert clamp is not None
            limits = [limit for limit in (clamp.low, clamp.high) if limit is not None]
            (stream,) = self._rounded([replace(stream, steps=(*before, *run))], limits)
            low, high = (self._limit(limit, _unit(stream)) for limit in (clamp.low, clamp.high))
            stream = replace(stream, node=stream.node.then(Clip(low, high)))
            before = stream.steps
        return replace(stream, steps=(*before, *rest))

    def _limit(self, limit: Fraction | None, unit: Fraction) -> int | None:
        """A clamp's limit as an integer; None if no integer can reach it."""
        if limit is None or abs(limit / unit) > INT32_MAX:
            return None
        self.error = max(self.error, abs(limit - round(limit / unit) * unit))
        return round(limit / unit)

    def _rounded(self, streams: Sequence[Stream], limits: Sequence[Fraction]) -> list[Stream]:
        """Streams without clamps as integers in one unit; the limits are multiples of that unit, too."""
        groups = [lines(stream.steps, stream.node.value.shape[-1]) for stream in streams]
        values = [stream.node.value for stream in streams]
        largest = [max(-value.low, value.high, 1) for value in values]
        try:
            unit, scales, offsets, error = fixed_point(groups, largest, limits, self.digits)
        except RangeError as reason:
            raise ExportError(
                f"{reason}\ngive fixed_point=16, or fewer digits: values that flow on are rounded"
            ) from None
        self.error = max(self.error, error)
        rounded: list[Stream] = []
        for stream, scale, offset in zip(streams, scales, offsets, strict=True):
            same = (scale == 1).all() and not offset.any()
            node = stream.node if same else stream.node.then(Affine(scale, offset))
            rounded.append(replace(stream, node=node, steps=(linear([unit] * len(scale)),)))
        return rounded


def _order(stream: Stream) -> Order:
    return np.arange(stream.shape[-1]) if stream.order is None else stream.order


def _unit(stream: Stream) -> Fraction:
    """The scale of a stream of integers whose only step is that scale."""
    (step,) = stream.steps
    assert not isinstance(step, Clamp)
    return step.gamma[0]


def pooled(stream: Stream) -> Stream:
    """The stream after a maximum; channels whose steps fall are negated, so that the maximum is right."""
    if stream.pool is None:
        return stream
    signs = [sign or 1 for sign in slopes(stream.steps, stream.node.value.shape[-1])]
    node, steps = stream.node, (*stream.steps, *stream.later)
    if min(signs) < 0:
        node = node.then(_affine(signs, [0] * len(signs)))
        steps = (linear(signs), *steps)
    return Stream(node.then(stream.pool), steps, order=stream.order)


def as_integers(stream: Stream) -> Stream:
    """A stream of integers: bits become 0 and 1, and a step maps these to -1 and 1."""
    if not stream.is_bits:
        return stream
    channels = stream.node.value.shape[-1]
    return replace(stream, node=_zero_or_one(stream.node), steps=(linear([2] * channels, [-1] * channels),))


def _zero_or_one(node: Node) -> Node:
    """A layer that turns bits into the integers 0 and 1, by a clamp."""
    layer, parent = node.layer, node.parent
    if layer is None or parent is None:
        raise ExportError(
            "the image's signs are used as numbers, other than by a layer of ±1 with padding 0\n"
            "begin the model with images as numbers, and a sign"
        )
    match layer:
        case Threshold(thresholds=thresholds, flip=flip):
            low, high = parent.value.low, parent.value.high
            t = np.clip(thresholds.astype(np.int64), low, high + 1)
            return parent.then(_affine(np.where(flip, -1, 1), np.where(flip, t, 1 - t)), Clip(0, 1))
        case Pool(kind="or"):
            return _zero_or_one(parent).then(replace(layer, kind="max"))
        case Pool():
            channels = parent.value.shape[-1]
            turned = _affine([-1] * channels, [1] * channels)
            return _zero_or_one(parent).then(turned, replace(layer, kind="max"), turned)
        case _:
            return _zero_or_one(parent).then(layer)


def _affine(scale: Any, offset: Any) -> Affine:
    return Affine(np.asarray(scale, np.int32), np.asarray(offset, np.int32))
