"""Inference of a binarized network by definition: exact integers, layer by layer.

Source: BSTC (SC'19), section 6; BTC (TPDS'20), section 6.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.bconv import bconv2d
from reference.bits import unpack
from reference.bmm import bmm
from reference.bnn.images import checked_images, first_value
from reference.conv_geometry import ConvGeometry, conv_geometry, inside
from reference.tensors import unpack_tensor
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
from reference.types.network import Answer, Network

Array: TypeAlias = npt.NDArray[Any]

INT32_MIN = -(2**31)
_IMAGES_AT_ONCE = 1 << 24
"""Elements of the images that go through the network together."""


def run(network: Network, images: npt.ArrayLike) -> Answer:
    """Run a binarized network on images, in exact integers.

    ``gpu.bnn.run`` answers the same question.

    Parameters
    ----------
    network : Network
    images : array_like, (N, *network.input.shape)
        uint8 for `Pixels` and `BitPlanes`, float32 for `Reals`, either for `Signs`.

    Returns
    -------
    Answer
        Sums, logits and classes.

    Raises
    ------
    ShapeError, DtypeError
        For images of another shape or dtype.
    NotANumberError, RangeError
        For a NaN or an infinity; for a float that the input's integers cannot hold.

    Notes
    -----
    Source: BSTC (SC'19), section 6; BTC (TPDS'20), section 6.1 and figure 15.

    Examples
    --------
    Two pixels, and one class for each sign of their difference:

    >>> from reference import pack
    >>> from reference.bnn import Dense, Network, Pixels
    >>> network = Network(
    ...     "brighter",
    ...     Pixels((2,), np.array([1, 1], np.int32), np.array([0, 0], np.int32)),
    ...     (Dense(pack([[1.0, -1.0], [-1.0, 1.0]], layout="row")),),
    ...     np.ones(2, np.float32),
    ...     np.zeros(2, np.float32),
    ... )
    >>> run(network, np.array([[9, 200]], np.uint8)).sums
    array([[-191,  191]], dtype=int32)
    """
    images = checked_images(network.input, images)
    step = max(1, _IMAGES_AT_ONCE // images[0].size)
    parts: list[Array] = []
    for start in range(0, len(images), step):
        value = first_value(network.input, images[start : start + step])
        for layer in network.layers:
            value = _apply(layer, value)
        parts.append(value)
    return answer(network, np.concatenate(parts))


def answer(network: Network, sums: npt.NDArray[np.int32]) -> Answer:
    """The logits and classes for the last layer's sums."""
    logits = sums.astype(np.float32) * network.scale + network.offset
    return Answer(sums, logits, logits.argmax(axis=1))


def values(network: Network, images: npt.ArrayLike) -> Iterator[tuple[str, Array]]:
    """Yield each layer's path and output: bits as uint8, integers as int32.

    The first is the input's, with the path "input". Layers of a residual come before it; paths are those of
    `reference.types.network_values.follow`.

    Examples
    --------
    >>> from reference.bnn import Flatten, Network, Pixels, Pool
    >>> one, none = np.ones(1, np.int32), np.zeros(1, np.int32)
    >>> logits = np.ones(1, np.float32), np.zeros(1, np.float32)
    >>> network = Network("brightness", Pixels((2, 2, 1), one, none), (Pool("sum"), Flatten()), *logits)
    >>> image = np.array([[[[1], [2]], [[3], [4]]]], np.uint8)
    >>> [(path, value.tolist()) for path, value in values(network, image)][1:]
    [('0', [[[[10]]]]), ('1', [[10]])]
    """
    value = first_value(network.input, checked_images(network.input, images))
    yield "input", value
    yield from _values(network.layers, value, "")


def _values(layers: tuple[Layer, ...], value: Array, prefix: str) -> Iterator[tuple[str, Array]]:
    for i, layer in enumerate(layers):
        if isinstance(layer, Residual):
            ends: list[Array] = []
            for name, way in (("body", layer.body), ("shortcut", layer.shortcut)):
                end = value
                depth = f"{prefix}{i}.{name}.".count(".")
                for path, inner in _values(way, value, f"{prefix}{i}.{name}."):
                    yield path, inner
                    end = inner if path.count(".") == depth else end
                ends.append(end)
            value = ends[0] + ends[1]
        else:
            value = _apply(layer, value)
        yield f"{prefix}{i}", value


def _apply(layer: Layer, value: Array) -> Array:
    """Apply a layer to its input; bits are uint8, integers int32."""
    return ANSWERS[type(layer)](layer, value)


def _residual(layer: Residual, value: Array) -> Array:
    return _through(layer.body, value) + _through(layer.shortcut, value)


def _through(layers: tuple[Layer, ...], value: Array) -> Array:
    for layer in layers:
        value = _apply(layer, value)
    return value


def _conv(layer: Conv, value: Array) -> Array:
    names = "stride", "padding", "dilation", "groups"
    options: dict[str, Any] = {name: getattr(layer, name) for name in names}
    if value.dtype == np.uint8:
        return bconv2d(_signs(value), layer.filters, **options)
    geometry = conv_geometry(value.shape, layer.filters.shape, **options)
    weights = 2 * unpack_tensor(layer.filters).astype(np.int64) - 1
    groups = zip(*(np.split(each, layer.groups, axis=-1) for each in (value, weights)), strict=True)
    return np.concatenate([_tap_by_tap(x, w, geometry) for x, w in groups], axis=-1)


def _dense(layer: Dense, value: Array) -> Array:
    if value.dtype == np.uint8:
        return bmm(_signs(value), layer.weights)
    return _product(value, 2 * unpack(layer.weights).astype(np.int64) - 1)


def _threshold(layer: Threshold, value: Array) -> Array:
    return ((value >= layer.thresholds) ^ layer.flip).astype(np.uint8)


def _flatten(layer: Flatten, value: Array) -> Array:
    return value.reshape(len(value), -1)


def _affine(layer: Affine, value: Array) -> Array:
    return (value.astype(np.int64) * layer.scale + layer.offset).astype(np.int32)


def _clip(layer: Clip, value: Array) -> Array:
    low, high = layer.low, layer.high
    return value if low is None and high is None else np.clip(value, low, high)


def _pad_channels(layer: PadChannels, value: Array) -> Array:
    return np.pad(value, ((0, 0), (0, 0), (0, 0), (layer.before, layer.after)))


def _tap_by_tap(x: Array, w: Array, g: ConvGeometry) -> Array:
    """Integers times ±1, by definition; exact, as each partial sum is below 2**31 in float64."""
    y = np.zeros((g.batch, g.out_height, g.out_width, g.filters))
    for r in range(g.filter_height):
        for s in range(g.filter_width):
            rows, columns = g.rows(r), g.columns(s)
            p, q = np.flatnonzero(inside(rows, g.height)), np.flatnonzero(inside(columns, g.width))
            y[:, p[:, None], q] += x[:, rows[p][:, None], columns[q]].astype(np.float64) @ w[r, s]
    return y.astype(np.int32)


def _product(x: Array, w: Array) -> Array:
    return (x.astype(np.float64) @ w).astype(np.int32)


def _pool(layer: Pool, value: Array) -> Array:
    """The pixels of each window along a new axis; pixels outside the image are left out."""
    joined = {"or": np.maximum, "and": np.minimum, "max": np.maximum, "sum": np.add}[layer.kind]
    outside = {"or": 0, "and": 1, "max": INT32_MIN, "sum": 0}[layer.kind]
    value = np.pad(value, ((0, 0), *layer.padding, (0, 0)), constant_values=outside)
    counts = [
        (size - span) // step + 1
        for size, span, step in zip(value.shape[1:3], layer.window, layer.stride, strict=True)
    ]
    windows = [
        value[:, i : i + (counts[0] - 1) * layer.stride[0] + 1 : layer.stride[0]][
            :, :, j : j + (counts[1] - 1) * layer.stride[1] + 1 : layer.stride[1]
        ]
        for i in range(layer.window[0])
        for j in range(layer.window[1])
    ]
    return np.ascontiguousarray(joined.reduce(windows)).astype(value.dtype)


def _signs(bits: Array) -> npt.NDArray[np.int8]:
    """Convert bits (0 or 1) to signs (-1 or 1)."""
    return (2 * bits.astype(np.int8) - 1).astype(np.int8)


ANSWERS: dict[type[Layer], Callable[[Any, Array], Array]] = {
    Conv: _conv,
    Dense: _dense,
    Threshold: _threshold,
    Pool: _pool,
    Flatten: _flatten,
    Affine: _affine,
    Clip: _clip,
    PadChannels: _pad_channels,
    Residual: _residual,
}
"""Each layer's answer: what it makes of a value."""
