"""A phase: the forward or the backward pass of the whole batch through a segment, piece by piece."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from gpu.outofcore.networks.engines import ROUTINES, SIMULATED, Engines, kind_of, workspace_bytes
from gpu.outofcore.networks.layers import Network
from gpu.outofcore.networks.lifetimes import Block, Packed, pack
from gpu.outofcore.networks.stages import Stage
from gpu.outofcore.networks.strips import Ranges, Strip, Strips, backward_strips, forward_strips, target_of
from gpu.outofcore.pieces import cut
from gpu.outofcore.rates import Rates

ITEM = 4
T = TypeVar("T")


class Key(NamedTuple):
    """The contents of a buffer.

    Kinds: "x", an activation; "g", a gradient with respect to it, behind its own activation function; "r", an
    activation that a backward phase computes again for the next one; "moments", the sums of a batch
    normalization.
    """

    kind: Literal["x", "g", "r", "labels", "loss", "moments"]
    tensor: int


LABELS, LOSS = Key("labels", 0), Key("loss", 0)
Action: TypeAlias = Literal[
    "load", "store", "forward", "moments", "norm", "filters", "data", "activation", "loss"
]


class Op(NamedTuple):
    """An operation on each piece; ``key`` is copied or computed, or for "filters" the gradient that is read.

    Actions: a copy to the device or to the host; a stage's result; sums for batch normalization, and the
    gradient with respect to its input; the gradients with respect to a stage's parameters, and to its input;
    the gradient of an activation function, in place; the loss with its gradient.
    """

    action: Action
    key: Key


class Cut(NamedTuple):
    """The size of the pieces of a phase.

    Attributes
    ----------
    images : int
    rows : int
        Of the last result in a forward phase, of the first gradient in a backward one.
    """

    images: int
    rows: int


class Costs(NamedTuple):
    """The predicted costs of a phase; times in seconds."""

    pieces: int
    bytes_in: int
    bytes_out: int
    into: float  # seconds of all copies to the device
    compute: float  # seconds of all routines
    out: float  # seconds of all copies to the host
    both: float  # seconds of all copies, with both directions at once

    def seconds(self, depth: int) -> float:
        """Predicted seconds; after the first piece, copies and routines overlap; with one buffer, never."""
        total = self.into + self.compute + self.out
        if depth == 1:
            return total
        slowest = max(self.compute, self.both)
        return (total + (self.pieces - 1) * slowest) / self.pieces


class Work(NamedTuple):
    """The work of a phase for pieces that have all images."""

    loads: int  # number of copies to the device, over all strips
    stores: int  # number of copies to the host, over all strips
    bytes_in: int
    bytes_out: int
    routines: dict[str, tuple[int, int]]  # kind of routine, as in rates → count over all strips, operations


class Tensors(NamedTuple):
    """The input tensors of a phase, and those that it leaves for later phases."""

    kept: frozenset[int]  # activations that the forward phase stores, and that the backward phase may load
    on_device: frozenset[Key]  # tensors that stay on the device for the whole batch
    source: int  # number of the activation that a forward phase begins with
    top: int = 0  # number of the gradient that a backward phase loads first
    below: int = 0  # number of the gradient that a backward phase stores
    # activations from the backward phase before, or stored for the next one
    again: frozenset[int] = frozenset()


class Piece(NamedTuple):
    """A piece: some images, and a strip of rows of each tensor."""

    images: range
    strip: Strip


@dataclass(frozen=True)
class Phase:
    """A pass through a segment; the backward phase of the last segment computes it forward, too."""

    network: Network
    batch: int
    kind: Literal["forward", "backward"]
    first: int  # first stage of the segment
    last: int  # last stage of the segment
    cut: Cut
    depth: int  # buffers of each tensor that is copied
    tensors: Tensors
    engines: Engines = SIMULATED  # engines for convolutions
    shared: dict[Any, Any] = field(default_factory=dict[Any, Any], repr=False, compare=False)
    """Results shared by phases that differ only in their cut."""

    @property
    def is_last(self) -> bool:
        """True if the segment is the last one, so that the loss follows."""
        return self.network.loss is not None and self.last == len(self.network.stages)

    @property
    def feeds_norm(self) -> bool:
        """True if the segment's last activation is read by a batch normalization."""
        return self.network.normalizes(self.last + 1)

    def _once(self, name: str, found: Callable[[], T]) -> T:
        """Compute a value once for all phases with as many rows in a piece."""
        key = name, self.cut.rows
        if key not in self.shared:
            self.shared[key] = found()
        return self.shared[key]

    @cached_property
    def strips(self) -> Strips:
        """The strips of rows that the phase computes one after another."""
        return self._once("strips", self._strips)

    def _strips(self) -> Strips:
        if self.kind == "forward":
            return forward_strips(self.network, self.tensors.source + 1, self.last, self.cut.rows)
        return backward_strips(
            self.network, self.first, self.last, self.tensors.top, self.cut.rows, self.tensors.kept
        )

    def pieces(self) -> Iterator[Piece]:
        """The pieces in order: one image at a time if rows are cut, so that sums have a fixed order."""
        strips = list(self.strips)
        for images in cut(self.batch, self.cut.images):
            for strip in strips:
                yield Piece(images, strip)

    @cached_property
    def ops(self) -> tuple[Op, ...]:
        """The operations on a piece, in order; a strip skips operations for which it has no rows."""
        return self._once(
            "ops", lambda: tuple(self._forward() if self.kind == "forward" else self._backward())
        )

    def _forward(self) -> Iterator[Op]:
        yield from self._copies("load", Key("x", self.tensors.source))
        for number in range(self.tensors.source + 1, self.last + 1):
            yield Op("forward", Key("x", number))
            if number in self.tensors.kept:
                yield from self._copies("store", Key("x", number))
        if self.feeds_norm:
            yield Op("moments", Key("x", self.last))

    def _backward(self) -> Iterator[Op]:
        stages, top = self.network.stages, Key("g", self.tensors.top)
        yield from self._copies("load", LABELS if self.is_last else top)
        held = set(self.strips.held)
        for tensor in sorted(held & self.tensors.kept, reverse=True):
            yield from self._copies("load", Key("x", tensor))
        for tensor in sorted(held - self.tensors.kept):
            yield Op("forward", Key("x", tensor))
            if tensor in self.tensors.again:
                yield from self._copies("store", Key("x", tensor))
        if self.is_last:
            yield Op("loss", top)
            yield Op("store", LOSS)
            yield from self._activation(top)
        for number in range(self.tensors.top, self.first - 1, -1):
            if number <= self.last and stages[number - 1].parameters:
                yield Op("filters", Key("g", number))
            if number > target_of(self.network, self.first):
                gradient = Key("g", number - 1)
                yield Op("norm" if self.network.normalizes(number) else "data", gradient)
                yield from self._activation(gradient)
        is_wanted = self.first > 1 or self.network.image_gradient
        if is_wanted and self.tensors.below != self.tensors.top:
            yield from self._copies("store", Key("g", self.tensors.below))

    def _activation(self, gradient: Key) -> Iterator[Op]:
        """The gradient of an activation function; a following max pooling includes relu's."""
        tensor = gradient.tensor
        activation = self.network.stages[tensor - 1].activation if tensor else None
        if activation and not self.network.pools_relu(tensor):
            yield Op("activation", gradient)

    def _copies(self, action: Action, key: Key) -> Iterator[Op]:
        if self.storage(key) not in self.tensors.on_device:
            yield Op(action, key)

    def storage(self, key: Key) -> Key:
        """The key of the memory that a buffer's rows are copied from or to."""
        return Key("r", key.tensor) if key.kind == "x" and key.tensor in self.tensors.again else key

    @property
    def again_stages(self) -> tuple[int, ...]:
        """The stages whose forward results the phase computes again."""
        return tuple(op.key.tensor for op in self.ops if op.action == "forward")

    def uses(self, op: Op) -> tuple[Key, ...]:
        """The buffers that an operation reads or writes."""
        key, before = op.key, Key("x", op.key.tensor - 1)
        if op.action in ("load", "store", "moments"):
            return (key,)
        if op.action == "norm":
            return Key("g", key.tensor + 1), Key("x", key.tensor), key
        if op.action == "forward":
            return before, key
        if op.action == "filters":
            return before, key
        if op.action == "activation":
            return key, Key("x", key.tensor)
        if op.action == "loss":
            return Key("x", key.tensor), LABELS, key, LOSS
        stage = self.network.stages[key.tensor]
        above = Key("g", key.tensor + 1)
        return (above, Key("x", key.tensor), key) if stage.kind == "max_pool" else (above, key)

    def rows(self, op: Op, strip: Strip) -> range:
        """The rows of a strip on which an operation works; empty if the strip skips it."""
        kind, tensor = op.key
        if op.action in ("filters", "moments") or (op.action == "store" and kind in "xg"):
            return strip.owned[tensor]
        if kind == "x":
            return strip.held.get(tensor, range(0))
        return strip.gradients[tensor] if kind == "g" else range(1)

    # ------------------------------------------------------------------------------------------ memory

    def nbytes(self, key: Key, images: int, rows: int) -> int:
        """The bytes of some rows of a buffer's tensor."""
        return nbytes_of(self.network, key, images, rows)

    @cached_property
    def buffers(self) -> Packed[tuple[Key, int]]:
        """Offsets of buffers: several for a copied tensor; other tensors share memory if lifetimes allow."""
        images = min(self.cut.images, self.batch)
        return pack(
            [
                Block((key, copy), self.nbytes(key, images, rows), first, last)
                for key, rows, first, last, copies in self._lives
                for copy in range(copies)
            ]
        )

    @property
    def least_bytes(self) -> int:
        """A lower bound of the block's bytes: the most of buffers in use at one time, and the workspace."""
        return min(self.cut.images, self.batch) * self._once("least", self._least) + self.workspace

    def _least(self) -> int:
        """The most bytes of buffers in use at one time, for each image."""
        at = [0] * (len(self.ops) + 1)
        for key, rows, first, last, copies in self._lives:
            size = copies * self.nbytes(key, 1, rows)
            at[first] += size
            at[last + 1] -= size
        return max(accumulate(at))

    @cached_property
    def _lives(self) -> tuple[tuple[Key, int, int, int, int], ...]:
        """For each buffered tensor: rows per buffer, first and last operation that use it, buffer count."""
        return self._once("lives", lambda: tuple(self._found_lives()))

    def _found_lives(self) -> Iterator[tuple[Key, int, int, int, int]]:
        life: dict[Key, tuple[int, int]] = {}
        for index, op in enumerate(self.ops):
            for key in self.uses(op):
                if self.storage(key) not in self.tensors.on_device:
                    life[key] = life.get(key, (index, index))[0], index
        copied = {op.key for op in self.ops if op.action in ("load", "store")}
        for key, times in life.items():
            ranges = self._held_rows(key)
            rows = int(ranges.sizes.max()) if ranges else 1
            is_copied = key in copied
            first, last = (0, len(self.ops) - 1) if is_copied else times
            yield key, rows, first, last, self.depth if is_copied else 1

    @cached_property
    def workspace(self) -> int:
        """The bytes of workspace that the phase's routines need."""
        if not self.engines.need_memory:
            return 0
        return max((workspace_bytes(self, op, self.engines) for op in self.ops), default=0)

    def _held_rows(self, key: Key) -> Ranges | None:
        """The rows in the buffers of a tensor; None for labels and losses."""
        if key.kind == "x":
            return self.strips.held[key.tensor]
        return self.strips.gradients[key.tensor] if key.kind == "g" else None

    # -------------------------------------------------------------------------------------------- time

    def operations(self, op: Op, images: int, rows: int) -> float:
        """The floating-point operations of a routine on some images and rows."""
        stages, tensor = self.network.stages, op.key.tensor
        if op.action in ("forward", "filters"):
            return stages[tensor - 1].operations(images, rows)
        if op.action == "data":
            return stages[tensor].operations(images, rows)
        return float(self.nbytes(op.key, images, rows) // ITEM * (5 if op.action == "loss" else 2))

    def rate_kind(self, op: Op) -> str:
        """The key of an operation's routine in a table of rates."""
        return kind_of(self.stage(op), op.action) if op.action in ROUTINES else op.action

    def stage(self, op: Op) -> Stage:
        """The stage of an operation; for an input gradient or moments, the next stage."""
        return self.network.stages[op.key.tensor - (op.action in ("forward", "filters"))]

    def costs(self, rates: Rates, images: int | None = None) -> Costs:
        """The costs of the phase, without its parameters, with ``images`` in a piece."""
        work, parts = self._once("work", self._work), -(-self.batch // (images or self.cut.images))
        into = rates.into(work.bytes_in, parts * work.loads)
        out = rates.out(work.bytes_out, parts * work.stores)
        return Costs(
            parts * len(self.strips),
            work.bytes_in,
            work.bytes_out,
            into,
            sum(
                parts * count * seconds + operations / rate
                for kind, (count, operations) in work.routines.items()
                for seconds, rate in [rates.of(kind)]
            ),
            out,
            rates.together(into, out),
        )

    def _work(self) -> Work:
        counts, sums, routines = Counter[str](), Counter[str](), dict[str, tuple[int, int]]()
        for op in self.ops:
            times, rows = self._worked(op)
            if op.action in ("load", "store"):
                counts[op.action] += times
                sums[op.action] += self.nbytes(op.key, self.batch, rows)
            else:
                count, operations = routines.get(kind := self.rate_kind(op), (0, 0))
                more = int(self.operations(op, self.batch, rows))
                routines[kind] = count + times, operations + more
        return Work(counts["load"], counts["store"], sums["load"], sums["store"], routines)

    def _worked(self, op: Op) -> tuple[int, int]:
        """The number of strips that have an operation, and the rows of all."""
        if len(self.strips) == 1 and op.key.kind in "xg":
            return 1, self.network.shape(op.key.tensor + (op.action == "data"))[1]
        sizes = self.worked_rows(op)
        return int(np.count_nonzero(sizes)), int(sizes.sum())

    def worked_rows(self, op: Op) -> npt.NDArray[np.int64]:
        """For each strip, the rows that `worked` returns for an operation."""
        kind, tensor = op.key
        if kind not in "xg":
            return np.ones(len(self.strips), np.int64)
        if op.action in ("filters", "moments", "store"):
            of = self.strips.owned[tensor]
        elif op.action == "data":
            of = self.strips.gradients[tensor + 1]
        else:
            of = (self.strips.held if kind == "x" else self.strips.gradients)[tensor]
        return of.sizes

    def worked(self, op: Op, strip: Strip) -> int:
        """The rows that count as an operation's work; for an input gradient, the rows of the result."""
        of = strip.gradients[op.key.tensor + 1] if op.action == "data" else self.rows(op, strip)
        return len(of)


def nbytes_of(network: Network, key: Key, images: int, rows: int) -> int:
    """The bytes of some rows of a buffer's tensor."""
    if key.kind in ("labels", "loss"):
        return images * (ITEM if key.kind == "labels" else 2 * ITEM)
    channels, _, width = network.shape(key.tensor)
    return images * channels * rows * width * ITEM
