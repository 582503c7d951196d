"""A read of a texture: the texels that it takes, and the four values that it returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from simwarp.textures.filtering import mean, normalized, normalized_mean
from simwarp.textures.objects import Texture
from simwarp.textures.positions import ONE, Tap, one_tap, taps

Array: TypeAlias = npt.NDArray[Any]

CHANNELS = 4
"""The values of one read; channels that a texture does not have are 0."""
_GATHERED = ((0, 1), (1, 1), (1, 0), (0, 0))
"""The texels of a square in the order of ``tld4``."""


def footprint(texture: Texture, coordinates: Sequence[Array], layer: Array | None = None) -> list[Tap]:
    """The texels that each lane reads at float coordinates (x, y, z), or at a direction in a cube."""
    places, slices = _placed(texture, coordinates, layer)
    axes = texture.axes
    if texture.sampler.filter_mode == "point":
        x, y, z = (axis.nearest(place) for axis, place in zip(axes, places, strict=True))
        return [one_tap(axes, (x, y, z if slices is None else slices))]
    dimensions = _filtered(texture)
    first, fraction = zip(
        *(
            axis.between(place) if i < dimensions else (np.zeros(place.shape, np.int64),) * 2
            for i, (axis, place) in enumerate(zip(axes, places, strict=True))
        ),
        strict=True,
    )
    return taps(axes, (first[0], first[1], first[2] if slices is None else slices), fraction)


def _filtered(texture: Texture) -> int:
    """The number of dimensions along which texels are mixed; a row also has a border above it."""
    geometry = texture.texels.geometry
    if geometry == "3d":
        return 3
    return 1 if geometry == "a1d" or (geometry == "1d" and texture.axes[1].mode != "border") else 2


def fetched(texture: Texture, numbers: Sequence[Array], layer: Array | None = None) -> list[Tap]:
    """The texel that each lane reads at integer coordinates; outside, the border in every address mode."""
    places = [*numbers, *[np.zeros_like(numbers[0])] * (3 - len(numbers))]
    if layer is not None:
        places[2] = layer
    inside = np.ones(places[0].shape, np.bool_)
    for place, size in zip(places, texture.texels.sizes, strict=True):
        inside &= (place >= 0) & (place < size)
    x, y, z = (np.where(inside, place, 0).astype(np.int64) for place in places)
    return [Tap((x, y, z), np.full(inside.shape, ONE), inside, inside)]


def gathered(texture: Texture, coordinates: Sequence[Array], layer: Array | None = None) -> list[Tap]:
    """The four texels that a linear filter would mix, counter-clockwise from the lower left one."""
    (x, y, _), slices = _placed(texture, coordinates, layer)
    axes = texture.axes
    i, j = axes[0].position(x) >> 8, axes[1].position(y) >> 8
    z = np.zeros_like(i) if slices is None else slices
    return [one_tap(axes, (i + right, j + down, z)) for right, down in _GATHERED]


def _placed(
    texture: Texture, coordinates: Sequence[Array], layer: Array | None
) -> tuple[list[Array], Array | None]:
    """Coordinates x, y and z without subnormal numbers, and the slice of a layer or face."""
    given = [
        np.where(np.abs(c) < np.finfo(np.float32).smallest_normal, np.float32(0), c) for c in coordinates
    ]
    texels = texture.texels
    slices = None
    if "cube" in texels.geometry:
        face, *given = _on_face(*given)
        layer = np.zeros(face.shape, np.int64) if layer is None else _nearest_layer(layer, texels.depth // 6)
        slices = 6 * layer + face
    elif layer is not None:
        slices = _nearest_layer(layer, texels.depth)
    return [*given, *[np.zeros_like(given[0])] * (3 - len(given))], slices


def _nearest_layer(layer: Array, count: int) -> Array:
    """The layer with an unsigned 32-bit number, clamped to the last layer."""
    return np.minimum(layer.astype(np.uint32), count - 1).astype(np.int64)


def _on_face(x: Array, y: Array, z: Array) -> tuple[Array, Array, Array]:
    """The face of a cube that a direction hits (+x, -x, +y, -y, +z, -z), and the position on it, 0 … 1.

    A chip multiplies by an approximate reciprocal; here it is the nearest float.
    """
    over_x, over_y, over_z = np.abs(x), np.abs(y), np.abs(z)
    on_z = (over_z >= over_x) & (over_z >= over_y)
    on_y = ~on_z & (over_y >= over_x)
    axis = np.where(on_z, 2, np.where(on_y, 1, 0))
    major = np.choose(axis, [x, y, z])
    face = 2 * axis + (major < 0)
    right = np.choose(face, [-z, z, x, x, x, -x])
    down = np.choose(face, [-y, -y, z, -z, -y, -y])
    with np.errstate(all="ignore"):
        reciprocal = np.float32(1) / np.abs(major)
        u, v = ((place * reciprocal).astype(np.float64) / 2 + 0.5 for place in (right, down))
    return face, u, v


def values(texture: Texture, found: Sequence[Tap], texels: Sequence[Array], *, filtered: bool) -> list[Array]:
    """The four 32-bit words of each lane, from one (channels, lanes) array of texels per tap.

    ``filtered``: the filter makes their mean. It changes a single texel, too: subnormal numbers, integers.
    """
    results = [np.zeros(found[0].weight.size, np.uint32) for _ in range(CHANNELS)]
    for channel in range(texture.texels.channels):
        given = [_channel(texture, channel, tap, texel) for tap, texel in zip(found, texels, strict=True)]
        results[channel] = _mean(texture, found, given) if filtered else _alone(texture, found[0], given[0])
    return results


def component(texture: Texture, channel: int, found: Sequence[Tap], texels: Sequence[Array]) -> list[Array]:
    """One channel of each of four texels, as the 32-bit word that filtering that texel alone gives."""
    pairs = zip(found, texels, strict=True)
    return [_mean(texture, [tap], [_channel(texture, channel, tap, texel)]) for tap, texel in pairs]


def _channel(texture: Texture, channel: int, tap: Tap, texel: Array) -> Array:
    """One channel of a tap's texels; the border colour where the tap is outside the texture."""
    dtype = texture.texels.dtype
    if channel >= len(texel):
        return np.zeros(tap.weight.size, dtype)
    if tap.inside.all() or not tap.read.any():
        return texel[channel]
    found = np.full(tap.weight.size, border(texture, channel), dtype)
    np.copyto(found, texel[channel], where=tap.inside)
    return found


def border(texture: Texture, channel: int) -> Any:
    """One channel of the border colour, converted to the texture's dtype."""
    dtype, colour = texture.texels.dtype, np.float32(texture.sampler.border[channel])
    if dtype == np.float32:
        return colour
    if dtype == np.float16:
        most = np.finfo(np.float16).max
        near = np.clip(colour, -most, most).astype(np.float16)
        return np.where(np.abs(near) > np.abs(colour), np.nextafter(near, np.float16(0)), near)
    if not texture.is_float:
        return colour.view(np.uint32).astype(f"u{dtype.itemsize}").view(dtype)
    most = np.iinfo(dtype).max
    least = 0 if dtype.kind == "u" else -most
    return np.clip(np.floor(np.float64(colour) * most + 0.5), least, most).astype(dtype)


def _alone(texture: Texture, tap: Tap, given: Array) -> Array:
    """One channel of a single tap as 32-bit words; 0 where no texel is read."""
    return np.where(tap.read, _words(texture, given), np.uint32(0))


def _mean(texture: Texture, found: Sequence[Tap], given: Sequence[Array]) -> Array:
    """The filtered mean of one channel of the taps, as 32-bit words; integers are not filtered."""
    if not texture.is_float:
        return _words(texture, given[0])
    dtype, weights = texture.texels.dtype, np.array([tap.weight for tap in found])
    read = np.array([tap.read for tap in found])
    if dtype.kind != "f":
        return normalized_mean(np.array(given), weights, dtype).view(np.uint32)
    squares = np.array([tap.slice for tap in found])
    return mean(np.array(given, np.float64), weights, read, squares, dtype).view(np.uint32)


def _words(texture: Texture, given: Array) -> Array:
    """Values of one channel as the 32-bit words that a point read gives."""
    dtype = given.dtype
    if dtype == np.float32:
        return given.view(np.uint32)
    if dtype == np.float16:
        half = given.view(np.uint16).astype(np.uint32)
        nan = (half & 0x8000) << 16 | 0x7F800000 | (half & 0x3FF) << 13
        return np.where(np.isnan(given), nan, given.astype(np.float32).view(np.uint32))
    if texture.is_float:
        return normalized(given, dtype).view(np.uint32)
    return given.astype(np.int32 if dtype.kind == "i" else np.uint32).view(np.uint32)
