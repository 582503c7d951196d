"""The tile routines of training other than convolutions: each is a `gpu.machine.Routine`.

They compute with NumPy in double precision and round once. Sums over images go image by image and row by row,
from whatever the accumulators hold: so no cut changes a bit.

On GPUs they are kernels: see `gpu.outofcore.networks.on_cuda`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.cuda_machine.queues import Queue
from gpu.machine import Tile
from gpu.outofcore.networks import on_cuda
from gpu.outofcore.networks.stages import Stage
from gpu.outofcore.on_host import ACTIVATE, Window, rounded_to_tf32
from gpu.outofcore.problem import Activation
from gpu.outofcore.routines import TileRoutine

Array = npt.NDArray[Any]
Double = npt.NDArray[np.float64]
Shape = tuple[int, int, int, int]


@dataclass(frozen=True)
class Routine:
    """The base of the routines: tiles are matrices of rows x columns for each image and channel."""

    name: str
    reads: tuple[Tile, ...]
    writes: tuple[Tile, ...]
    shapes: tuple[Shape, ...]  # shapes of image tiles, (images, channels, rows, columns): reads, then writes
    operations: float
    # key of the routine's rate: operation and stage; "" for routines that only move memory
    kind: str = field(default="", kw_only=True)
    workspace: Tile | None = field(default=None, kw_only=True)  # workspace of the computation on GPUs


@dataclass(frozen=True)
class StageRoutine(TileRoutine):
    """The convolution of a stage, or its data gradient; ``kind`` is as in `Routine`."""

    kind: str = ""


@dataclass(frozen=True)
class Pool(Routine):
    """Pooling; ``outputs`` are the result rows that a piece has."""

    stage: Stage
    window: Window
    outputs: range

    def queue_on(self, queue: Queue) -> None:
        """Queue the kernels for the pooling on a GPU."""
        on_cuda.queue_pool(queue, self)

    def compute(self, reads: Sequence[Array], writes: Sequence[Array]) -> None:
        """Compute the pooling on the host with NumPy."""
        x, y = _images(reads[0], self.shapes[0]), _images(writes[0], self.shapes[1])
        taps = self.window.taps(x.shape, self.stage.filters, y.shape)
        if self.stage.kind == "max_pool":
            y[...] = maxima(taps, x, y.shape)
            return
        sums = np.zeros(y.shape)
        for _, _, pixels, outputs in taps:
            sums[outputs] += x[pixels]
        y[...] = sums / pixels_inside(self.stage, self.outputs)


@dataclass(frozen=True)
class MaxPoolGradient(Routine):
    """The gradient of max pooling, from its gradient and images; the first of equal pixels receives it."""

    stage: Stage
    window: Window  # window of the images that are read
    skip: int  # rows of the images above those of the gradient that is written
    of_relu: bool  # whether relu made the images; the gradient then goes back through relu

    def queue_on(self, queue: Queue) -> None:
        """Queue the kernels for the max-pooling gradient on a GPU."""
        on_cuda.queue_max_pool_gradient(queue, self)

    def compute(self, reads: Sequence[Array], writes: Sequence[Array]) -> None:
        """Compute the max-pooling gradient on the host with NumPy."""
        dy, x, dx = (
            _images(array, shape) for array, shape in zip((*reads, *writes), self.shapes, strict=True)
        )
        y = maxima(self.window.taps(x.shape, self.stage.filters, dy.shape), x, dy.shape)
        sums, is_open = np.zeros(x.shape), np.ones(dy.shape, np.bool_)
        for _, _, pixels, outputs in self.window.taps(x.shape, self.stage.filters, dy.shape):
            is_same = (x[pixels] == y[outputs]) | (np.isnan(x[pixels]) & np.isnan(y[outputs]))
            is_first = is_open[outputs] & is_same
            sums[pixels] += np.where(is_first, dy[outputs], 0.0)
            is_open[outputs] &= ~is_first
        rows = slice(self.skip, self.skip + dx.shape[2])
        dx[...] = np.where(x[:, :, rows] > 0, sums[:, :, rows], 0.0) if self.of_relu else sums[:, :, rows]


@dataclass(frozen=True)
class AveragePoolGradient(Routine):
    """The gradient of average pooling, from its gradient."""

    stage: Stage
    window: Window  # window of the gradient that is written
    outputs: range  # rows of the gradient that is read

    def queue_on(self, queue: Queue) -> None:
        """Queue the kernels for the average-pooling gradient on a GPU."""
        on_cuda.queue_average_pool_gradient(queue, self)

    def compute(self, reads: Sequence[Array], writes: Sequence[Array]) -> None:
        """Compute the average-pooling gradient on the host with NumPy."""
        dy, dx = _images(reads[0], self.shapes[0]), _images(writes[0], self.shapes[1])
        part = dy / pixels_inside(self.stage, self.outputs)
        gradient = np.zeros(dx.shape)
        for _, _, pixels, outputs in self.window.taps(dx.shape, self.stage.filters, dy.shape):
            gradient[pixels] += part[outputs]
        dx[...] = gradient


@dataclass(frozen=True)
class ActivationGradient(Routine):
    """The gradient of an activation, in place, from the activation's result."""

    activation: Activation

    def queue_on(self, queue: Queue) -> None:
        """Queue the kernels for the activation gradient on a GPU."""
        on_cuda.queue_activation_gradient(queue, self)

    def compute(self, reads: Sequence[Array], writes: Sequence[Array]) -> None:
        """Compute the activation gradient on the host with NumPy."""
        y, gradient = reads[1].astype(np.float64), writes[0].astype(np.float64)
        if self.activation == "relu":
            gradient = np.where(y > 0, gradient, 0.0)
        else:
            gradient *= 1 - y * y if self.activation == "tanh" else y * (1 - y)
        writes[0][...] = gradient


@dataclass(frozen=True)
class FilterGradient(Routine):
    """The gradients of filters and bias, added to accumulators in double precision.

    The accumulators are tiles of float32 with two elements for each number, because the products are of
    float32, and a device's rate goes by the dtype that is written. ``starts``: these are the first terms.
    """

    stage: Stage
    window: Window
    starts: bool
    transforms: bool = field(default=False, kw_only=True)
    tf32: bool = field(default=False, kw_only=True)

    def queue_on(self, queue: Queue) -> None:
        """Queue the kernels for the filter gradient on a GPU."""
        on_cuda.queue_filter_gradient(queue, self)

    def prepare_on(self, queue: Queue) -> None:
        """Choose cuDNN's engine by its measured time on these pieces."""
        on_cuda.choose_filter_gradient(queue, self)

    def compute(self, reads: Sequence[Array], writes: Sequence[Array]) -> None:
        """Compute the filter gradient on the host with NumPy."""
        x, dy = (
            _images(rounded_to_tf32(array) if self.tf32 else array, shape).astype(np.float64)
            for array, shape in zip(reads[:2], self.shapes, strict=True)
        )
        weights, bias = (doubles(array) for array in writes)
        if self.starts:
            weights[...], bias[...] = 0.0, 0.0
        for image, of_image in zip(x, dy, strict=True):
            for of_weights, of_bias in zip(*self._rows(image, of_image), strict=True):
                weights += of_weights.reshape(-1)
                bias += of_bias

    def _rows(self, x: Double, dy: Double) -> tuple[Double, Double]:
        """The terms of each row of an image's result, for the filters and for the bias."""
        groups, filters = self.window.groups, self.stage.filters
        count, channels, _, _ = filters
        terms = np.zeros((dy.shape[1], groups, count // groups, channels, *filters[2:]))
        by_group = x.reshape(groups, channels, *x.shape[1:]), dy.reshape(groups, -1, *dy.shape[1:])
        for r, s, pixels, outputs in self.window.taps(x.shape, filters, dy.shape):
            read, of_outputs = by_group[0][pixels], by_group[1][outputs]
            products = np.multiply(of_outputs[:, :, None], read[:, None], order="C")
            terms[outputs[1], ..., r, s] = np.moveaxis(products.sum(-1), -1, 0)
        return terms, np.ascontiguousarray(dy).sum(-1).T


@dataclass(frozen=True)
class BiasGradient(Routine):
    """The sums of each channel's pixels, added to accumulators of double precision."""

    starts: bool  # whether these are the first terms of the sums

    def queue_on(self, queue: Queue) -> None:
        """Queue the kernels for the sums on a GPU."""
        on_cuda.queue_bias_gradient(queue, self)

    def compute(self, reads: Sequence[Array], writes: Sequence[Array]) -> None:
        """Compute the sums on the host with NumPy."""
        sums = doubles(writes[0]).reshape(1, -1)
        if self.starts:
            sums[...] = 0.0
        add_rows(sums, (_images(reads[0], self.shapes[0]).astype(np.float64, order="C"),))


@dataclass(frozen=True)
class Moments(Routine):
    """The sums of each channel's pixels and of their squares, added to accumulators of double precision."""

    starts: bool  # whether these are the first terms of the sums

    def queue_on(self, queue: Queue) -> None:
        """Queue the kernels for the batch statistics on a GPU."""
        on_cuda.queue_moments(queue, self)

    def compute(self, reads: Sequence[Array], writes: Sequence[Array]) -> None:
        """Compute the batch statistics on the host with NumPy."""
        sums = doubles(writes[0]).reshape(2, -1)
        if self.starts:
            sums[...] = 0.0
        x = _images(reads[0], self.shapes[0]).astype(np.float64, order="C")
        add_rows(sums, (x, x * x))


@dataclass(frozen=True)
class Norm(Routine):
    """Batch normalization, followed by an activation."""

    stage: Stage
    count: int  # pixels per channel in the whole batch

    def queue_on(self, queue: Queue) -> None:
        """Queue the kernels for the batch normalization on a GPU."""
        on_cuda.queue_norm(queue, self)

    def compute(self, reads: Sequence[Array], writes: Sequence[Array]) -> None:
        """Compute the batch normalization on the host with NumPy."""
        x, y = _images(reads[0], self.shapes[0]), _images(writes[0], self.shapes[1])
        gamma, beta = (array.reshape(-1, 1, 1).astype(np.float64) for array in reads[2:])
        result = gamma * normalized(x, reads[1], self.count, self.stage.epsilon)[0] + beta
        y[...] = ACTIVATE[self.stage.activation](result) if self.stage.activation else result


@dataclass(frozen=True)
class NormParameterGradient(Routine):
    """The gradients of batch normalization's parameters, added to accumulators in double precision.

    It keeps the weight, which is updated before `NormGradient` needs it.
    """

    stage: Stage
    count: int  # pixels per channel in the whole batch
    starts: bool  # whether these are the first terms of the sums

    def queue_on(self, queue: Queue) -> None:
        """Queue the kernels for the gradients with respect to scale and shift on a GPU."""
        on_cuda.queue_norm_parameter_gradient(queue, self)

    def compute(self, reads: Sequence[Array], writes: Sequence[Array]) -> None:
        """Compute the gradients with respect to scale and shift on the host with NumPy."""
        x, dy = (_images(array, shape) for array, shape in zip(reads[:2], self.shapes, strict=True))
        sums = [doubles(array) for array in writes]
        if self.starts:
            sums[0][...], sums[1][...] = 0.0, 0.0
            sums[2][...] = reads[3].reshape(-1)
        gradient = dy.astype(np.float64, order="C")
        normal = normalized(x, reads[2], self.count, self.stage.epsilon)[0]
        add_rows(sums[:2], (np.multiply(gradient, normal, order="C"), gradient))


@dataclass(frozen=True)
class NormGradient(Routine):
    """The gradient with respect to the input of batch normalization, from sums over the whole batch."""

    stage: Stage
    count: int  # pixels per channel in the whole batch

    def queue_on(self, queue: Queue) -> None:
        """Queue the kernels for the gradient with respect to the images on a GPU."""
        on_cuda.queue_norm_gradient(queue, self)

    def compute(self, reads: Sequence[Array], writes: Sequence[Array]) -> None:
        """Compute the gradient with respect to the images on the host with NumPy."""
        dy, x = (_images(array, shape) for array, shape in zip(reads[:2], self.shapes[:2], strict=True))
        weights, biases, gamma = (doubles(array)[:, None, None] for array in reads[3:])
        normal, factor = normalized(x, reads[2], self.count, self.stage.epsilon)
        centred = dy - (biases + normal * weights) * (1 / self.count)
        _images(writes[0], self.shapes[2])[...] = gamma * factor * centred


@dataclass(frozen=True)
class Loss(Routine):
    """The softmax cross-entropy of each image, and its gradient with respect to the whole batch's logits."""

    batch: int

    def queue_on(self, queue: Queue) -> None:
        """Queue the kernels for the loss and its gradient on a GPU."""
        on_cuda.queue_loss(queue, self)

    def compute(self, reads: Sequence[Array], writes: Sequence[Array]) -> None:
        """Compute the loss and its gradient on the host with NumPy."""
        logits, labels = reads[0].T.astype(np.float64, order="C"), reads[1].reshape(-1)
        below = logits - logits.max(1, keepdims=True)
        small = np.exp(below)
        total = small.sum(1, keepdims=True)
        at = np.arange(len(labels)), labels
        p = small / total
        p[at] -= 1
        writes[0][...] = (p / self.batch).T
        writes[1].reshape(-1)[...] = np.log(total[:, 0]) - below[at]


@dataclass(frozen=True)
class Update(Routine):
    """A step of gradient descent: `reference.training.sgd`, with the velocity rounded before its use."""

    rate: float = field(kw_only=True)
    momentum: float = field(kw_only=True)
    decay: float = field(kw_only=True)

    def queue_on(self, queue: Queue) -> None:
        """Queue the kernels for the parameter update on a GPU."""
        on_cuda.queue_update(queue, self)

    def compute(self, reads: Sequence[Array], writes: Sequence[Array]) -> None:
        """Compute the parameter update on the host with NumPy."""
        w, velocity = (array.reshape(-1).astype(np.float64) for array in reads[:2])
        gradient = doubles(reads[2]) + self.decay * w
        writes[1][:, 0] = self.momentum * velocity + gradient
        writes[0][:, 0] = w - self.rate * writes[1][:, 0].astype(np.float64)


def normalized(x: Array, moments: Array, count: int, epsilon: float) -> tuple[Double, Double]:
    """Images normalized by the sums of the whole batch, and the scale factor that was used."""
    sums, squares = doubles(moments).reshape(2, -1, 1, 1)
    mean = sums / count
    factor = 1 / np.sqrt(np.maximum(squares / count - mean * mean, 0.0) + epsilon)
    return (x - mean) * factor, factor


def add_rows(sums: Any, terms: tuple[Double, ...]) -> None:
    """Add the sum of each row of each image, in order, to the sums of its channel."""
    for target, images in zip(sums, terms, strict=True):
        for image in images.sum(-1):
            for row in image.T:
                target += row


def maxima(taps: Any, x: Array, shape: Shape) -> Array:
    """The largest pixel of each pooling window."""
    y = np.full(shape, -np.inf, x.dtype)
    for _, _, pixels, outputs in taps:
        y[outputs] = np.maximum(y[outputs], x[pixels])
    return y


def pixels_inside(stage: Stage, outputs: range) -> Double:
    """The pixels of each window that are inside the image."""
    plane = stage.plane
    down = _inside(outputs, plane.stride_h, plane.pad_top, plane.filter_height, plane.height)
    across = range(plane.out_width)
    return np.outer(down, _inside(across, plane.stride_w, plane.pad_left, plane.filter_width, plane.width))


def _inside(outputs: range, stride: int, pad: int, window: int, size: int) -> Double:
    start = np.asarray(outputs) * stride - pad
    return (np.minimum(start + window, size) - np.maximum(start, 0)).astype(np.float64)


def doubles(array: Array) -> Double:
    """The numbers of double precision in a tile of float32."""
    return array.reshape(-1).view(np.float64)


def _images(array: Array, shape: Shape) -> Array:
    """A view of a tile as images of a 4D shape."""
    return array.T.reshape(shape)
