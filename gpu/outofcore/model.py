"""The performance model: memory and time of a call as functions of its piece sizes.

Source: ooc_cuDNN, sections 4.1 to 4.3.
A piece that is still in a buffer is not copied again; the paper copies each one at each use, as
``Options(reuse=False)`` does. Copies in both directions slow each other, which the paper leaves out. As
there, ragged last pieces count as whole ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from gpu.outofcore.halo import span
from gpu.outofcore.options import Options
from gpu.outofcore.pieces import Pieces, block_of, rows_at
from gpu.outofcore.problem import AXES, Problem, Tensor
from gpu.outofcore.rates import Rates
from gpu.outofcore.workspace import aligned, workspace_of

TENSORS: tuple[Tensor, ...] = ("x", "w", "y")


@dataclass(frozen=True)
class Buffers:
    """Counts and sizes of the device buffers that hold pieces of tensors."""

    depth: int  # most buffers of each tensor, except resident filters
    counts: Mapping[Tensor, int]  # buffers; 0 for tensors whose pieces are used where they lie
    nbytes: Mapping[Tensor, int]  # bytes of a piece of each tensor
    bias: int  # bytes of the bias
    workspace: int = 0  # bytes for the routines
    reuses: bool = True  # whether a piece that is still in a buffer is not copied again

    @property
    def total(self) -> int:
        """The bytes of all device buffers together."""
        return (
            self.workspace
            + self.bias
            + sum(count * self.nbytes[tensor] for tensor, count in self.counts.items())
        )


class Model:
    """The model of one problem with one size of pieces."""

    def __init__(self, problem: Problem, pieces: Pieces, rates: Rates, options: Options) -> None:
        self._problem, self._rates, self._options = problem, rates, options
        groups, self._channels, self._filters = block_of(problem, pieces)
        self._images, self._rows = min(pieces.images, problem.batch), min(pieces.rows, problem.rows)
        self.counts = {
            "n": -(-problem.batch // self._images),
            "g": -(-problem.groups // groups),
            "c": -(-groups * problem.group_channels // self._channels),
            "f": -(-groups * problem.group_filters // self._filters),
            "h": -(-problem.rows // self._rows),
        }
        self._inner = self._channels // groups
        """The channels that a filter of a piece has."""

    # ------------------------------------------------------------------------------------------ memory

    def buffers(self, budget: int, least: int = 1) -> Buffers | None:
        """The most buffers that fit in the budget; None if fewer than ``least`` per tensor fit."""
        for depth in range(self._options.depth, least - 1, -1):
            buffers = self.with_depth(depth)
            if buffers.total <= budget:
                break
        else:
            return None
        stays = self._options.filters == "resident" and self._options.reuse
        if stays and buffers.counts["w"] and self._problem.form.output != "w":
            resident = replace(buffers, counts={**buffers.counts, "w": self._distinct("w")})
            return resident if resident.total <= budget else buffers
        return buffers

    def with_depth(self, depth: int) -> Buffers:
        """``depth`` buffers for each tensor, or fewer if it has fewer pieces."""
        item, problem = self._problem.dtype.itemsize, self._problem
        tensors: tuple[Tensor, ...] = (*TENSORS, "z") if problem.pool else TENSORS
        counts: dict[Tensor, int] = {
            tensor: 0 if self.is_in_place(tensor) else min(depth, self._uses(tensor)) for tensor in tensors
        }
        if problem.pool:
            counts["y"] = 1  # routines and pooling take turns
        nbytes: dict[Tensor, int] = {tensor: aligned(item * self._elements[tensor]) for tensor in tensors}
        copies_bias = problem.has_bias and "bias" not in problem.on_device
        bias = aligned(item * problem.filters * copies_bias)
        heights = self._heights["x" if problem.form.output == "x" else "y"]
        rows = heights if self.counts["h"] > 1 else None
        planes = self._images * self._channels
        workspace = workspace_of(problem, {one: nbytes[one] for one in TENSORS}, planes, rows, self._images)
        return Buffers(depth, counts, nbytes, bias, workspace, self._options.reuse)

    def is_in_place(self, tensor: Tensor) -> bool:
        """True if pieces of a device tensor are read or written in place, without a buffer.

        Engines of cuDNN allow gaps between the planes of images in NCHW, and no others. The kernel of bias
        and activation needs an output without gaps, and the padded copies for gradients of filters need whole
        pixels.
        """
        problem = self._problem
        if tensor not in problem.on_device:
            return False
        if tensor == "z":
            return True
        is_output, cuts_channels = tensor == problem.form.output, self._has_some_channels(tensor)
        if is_output and (problem.has_bias or problem.activation):
            return self._columns(tensor) == 1
        if tensor == "x" and problem.form.output == "w" and cuts_channels:
            return False
        if tensor == "w":
            return not cuts_channels
        if problem.layout == "NCHW":
            return self._images == 1 or not cuts_channels
        return not cuts_channels and (self._images == 1 or not self._cuts_rows(tensor))

    def _distinct(self, tensor: Tensor) -> int:
        """The number of pieces of a tensor."""
        return math.prod(self.counts[axis] for axis in AXES[tensor])

    def _uses(self, tensor: Tensor) -> int:
        """The number of pieces that are put into buffers: without reuse, an operand's again at each use."""
        again = not self._options.reuse and tensor in self._problem.form.operands
        return math.prod(self.counts.values()) if again else self._distinct(tensor)

    @cached_property
    def _heights(self) -> dict[Tensor, int]:
        """The rows of the largest pieces of x, y and z."""
        plane, pool = self._problem.plane, self._problem.pool
        if self._problem.form.output == "x":
            outputs = min((self._rows + span(plane) - 2) // plane.stride_h + 1, plane.out_height)
            return {"x": self._rows, "y": outputs}
        rows = self._rows
        if pool:
            rows = min((rows - 1) * pool.plane.stride_h + span(pool.plane), plane.out_height)
        height = min((rows - 1) * plane.stride_h + span(plane), plane.height)
        return {"x": height, "y": rows, "z": self._rows}

    @cached_property
    def _elements(self) -> dict[Tensor, int]:
        """The elements of the largest piece of each tensor."""
        plane, heights = self._problem.plane, self._heights
        width = self._problem.pool.plane.out_width if self._problem.pool else 0
        return {
            "x": self._images * self._channels * heights["x"] * plane.width,
            "w": self._filters * self._inner * plane.filter_height * plane.filter_width,
            "y": self._images * self._filters * heights["y"] * plane.out_width,
            "z": self._images * self._filters * heights.get("z", 0) * width,
        }

    # -------------------------------------------------------------------------------------------- time

    def seconds(self, buffers: Buffers) -> float:
        """The time of a call: its first step, its other terms, and other steps at the slowest stream's rate.

        A step is a piece of the output; the three are copies in, routines and copies out. With one buffer for
        each tensor only the copy of a result overlaps with that of the next operands.
        """
        form, rates = self._problem.form, self._rates
        terms = math.prod(self.counts[axis] for axis in form.inner)
        steps = self._distinct(form.output)
        here = self._problem.on_device
        each = {tensor: rates.into(*self.copy(tensor)) for tensor in form.operands if tensor not in here}
        copies = {tensor: self._copies(tensor, buffers) / (terms * steps) for tensor in form.operands}
        into = sum(copies[tensor] * each[tensor] for tensor in each)
        moves = sum(copies[tensor] * self._moving(tensor, buffers) for tensor in form.operands)
        compute = moves + rates.routine(self._operations, self._stepped)
        result = self._problem.result
        out = 0.0 if result in here else rates.out(*self.copy(result))
        behind = self._moving(result, buffers) + self._pooling
        first = sum(each.values()) + compute + behind + out
        if buffers.depth == 1:
            first += (terms - 1) * (into + compute)
            often = max((copies[tensor] for tensor in each), default=0.0)
            before = into / often if often else 0.0  # time of the copies before a step; some steps have none
            if self._problem.pool:  # only pooling waits until the previous result is copied
                pooled = max(terms * compute, out) + behind
                step = [max(terms * (copy + compute), pooled) for copy in (before, 0.0)]
                return first + (steps - 1) * (often * step[0] + (1 - often) * step[1])
            between = often * rates.together(before, out) + (1 - often) * out
            return first + (steps - 1) * ((terms - 1) * into + terms * compute + behind + between)
        first += (terms - 1) * max(into, compute)
        return first + (steps - 1) * max(terms * compute + behind, rates.together(terms * into, out))

    @property
    def _pooling(self) -> float:
        """The time to pool a piece: one routine, or for a result on the device one for each image."""
        pool, images = self._problem.pool, self._images
        if pool is None:
            return 0.0
        each = "z" in self._problem.on_device and self._has_some_channels("z") and self._filters > 1
        operations = self._elements["z"] * pool.plane.filter_height * pool.plane.filter_width
        launches = images if each else 1
        return launches * self._rates.routine(operations / launches)

    def _moving(self, tensor: Tensor, buffers: Buffers) -> float:
        """The time to copy a piece within the device; 0 for pieces used in place, and for host tensors."""
        is_moved = tensor in self._problem.on_device and buffers.counts[tensor] > 0
        return self._matrices(tensor) * self._rates.routine(0.0) if is_moved else 0.0

    @property
    def _operations(self) -> int:
        """The floating-point operations of one tile routine."""
        plane = self._problem.plane
        return 2 * self._elements["y"] * self._inner * plane.filter_height * plane.filter_width

    @property
    def _stepped(self) -> int:
        """The filters per group if the routine computes filters in steps; else 0."""
        groups = self._channels // self._inner
        return self._filters // groups if self._problem.routine == "conv2d" else 0

    def copy(self, tensor: Tensor) -> tuple[int, int, int]:
        """The bytes, matrices and columns of a piece: see `gpu.outofcore.matrices`."""
        nbytes = self._problem.dtype.itemsize * self._elements[tensor]
        return nbytes, self._matrices(tensor), self._columns(tensor)

    def _has_some_channels(self, tensor: Tensor) -> bool:
        """True if pieces have only some of the channels of the images or filters."""
        if tensor == "w":
            return self._inner < self._problem.group_channels
        return self.counts["g"] * self.counts["c" if tensor == "x" else "f"] > 1

    def _has_some_rows(self, tensor: Tensor) -> bool:
        plane = self._problem.plane
        if tensor == "z":
            return self.counts["h"] > 1
        return self._heights[tensor] < (plane.height if tensor == "x" else plane.out_height)

    def _cuts_rows(self, tensor: Tensor) -> bool:
        """True if a piece of x or y lacks rows: pieces are cut, or no window reads these rows."""
        plane, problem = self._problem.plane, self._problem
        x, y = rows_at(problem, range(problem.rows))
        is_whole = len(x) == plane.height if tensor == "x" else len(y) == plane.out_height
        return self.counts["h"] > 1 or not is_whole

    def _matrices(self, tensor: Tensor) -> int:
        """The number of matrices that a piece is copied as."""
        both = tensor != "w" and self._has_some_channels(tensor) and self._has_some_rows(tensor)
        return self._images if both else 1

    def _columns(self, tensor: Tensor) -> int:
        """The number of columns, each contiguous, that a piece is copied as."""
        plane, last = self._problem.plane, self._problem.layout == "NHWC"
        if tensor == "w":
            taps = plane.filter_height * plane.filter_width if last else 1
            return self._filters * taps if self._has_some_channels(tensor) else 1
        channels = self._channels if tensor == "x" else self._filters
        if last and self._has_some_channels(tensor):
            return self._elements[tensor] // channels
        if self._has_some_rows(tensor):
            return self._images * (1 if last else channels)
        return self._images if self._has_some_channels(tensor) else 1

    def _copies(self, tensor: Tensor, buffers: Buffers) -> int:
        """The number of copies of an operand's pieces; loops over more pieces than buffers copy them again.

        Half the buffers of images are for the next ones; filters are small, and one copy of each suffices.
        """
        if not buffers.reuses:
            return self._uses(tensor)
        form, kept = self._problem.form, buffers.counts[tensor]
        kept = kept if tensor == "w" else max(1, kept // 2)
        copies = distinct = 1
        for axis in reversed(form.outer + form.inner):
            if axis in AXES[tensor]:
                copies, distinct = copies * self.counts[axis], distinct * self.counts[axis]
            elif distinct > kept:
                copies *= self.counts[axis]
        return copies
