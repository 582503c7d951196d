"""What a wrong sum of ±1 would mean: simple bugs, each with the answer that it would give.

A bug explains an answer only if it gives every element of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

import reference
from reference.types import PackedTensor
from simwarp.verify.geometries import Geometry, Pair

Sums: TypeAlias = npt.NDArray[Any]
Bug: TypeAlias = tuple[str, Sums]
"""What a bug does, and the sums that it gives."""

_MOST = 3
"""The most bugs that are named: a few elements are explained by many."""


def as_if(bugs: Iterable[Bug], gives: Callable[[Sums], bool]) -> str:
    """The bugs whose sums are the wrong ones, in words; "" if none is.

    >>> right, wrong = np.array([3, 1]), np.array([-3, -1])
    >>> as_if(bugs_of_sums(3, right), lambda sums: np.array_equal(sums, wrong))
    'as if equal bits were -1 and different ones +1'
    """
    found: list[str] = []
    for text, sums in bugs:
        if gives(sums):
            found.append(text)
        if len(found) == _MOST:
            break
    return f"as if {', or '.join(found)}" if found else ""


def in_words(apart: int) -> str:
    """By how much an integer is off, in decimal, after its values."""
    return f", {abs(apart)} {'more' if apart > 0 else 'less'}"


def listed(bits: Sequence[int]) -> str:
    """The first eight of some bits, and the number of all."""
    return ", ".join(map(str, bits[:8])) + (f" … ({len(bits)} in all)" if len(bits) > 8 else "")


def bugs_of_sums(products: Sums | int, sums: Sums) -> Iterator[Bug]:
    """Bugs of any sum of so many products ±1, of which ``sums`` are right."""
    yield "equal bits were -1 and different ones +1", -sums
    yield "the raw popc were the sum", (products - sums) // 2
    yield "equal bits were counted, and different ones left out", (products + sums) // 2
    for bits in (8, 16):
        yield f"sums had {bits} bits", sums.astype(f"int{bits}")


def bugs_of_products(length: int, sums: Sums) -> Iterator[Bug]:
    """Bugs of dot products of vectors of a length."""
    for whole in _whole_words(length):
        yield f"K were {whole}, not {length}", sums + (whole - length)
    yield from bugs_of_sums(length, sums)


def bugs_of_convolutions(
    geometry: Geometry, sums: Sums, operands: tuple[Any, Any] | None = None
) -> Iterator[Bug]:
    """Bugs of a convolution of a geometry; those that need images and filters, too, if they are given."""
    rows, columns, channels, _ = geometry.filters
    outside = geometry.excluded[..., None]
    inside = rows * columns - outside
    for whole in _whole_words(channels):
        yield f"{whole} bits a tap were counted, not {channels}", sums + inside * (whole - channels)
    yield f"taps outside the image were counted, {channels} each", sums + outside * channels
    if operands is not None:
        yield from _bugs_of_padding(geometry, *map(_signs, operands))
    for bits in range(2, 9):
        counted = outside % (1 << bits)
        yield f"taps outside were counted in {bits} bits", sums + (outside - counted) * channels
    yield from bugs_of_sums(inside * channels, sums)
    if operands is not None:
        yield from _bugs_of_windows(geometry, *map(_signs, operands))


def _bugs_of_padding(geometry: Geometry, x: Sums, w: Sums) -> Iterator[Bug]:
    pads = ((0, 0), *geometry.pads, (0, 0))
    for sign in (-1, 1):
        padded = np.pad(x, pads, constant_values=sign)
        yield f"the padding were {sign:+d}", _convolved(geometry, padded, w, (0, 0))
    wrapped, repeated = np.pad(x, pads, "wrap"), np.pad(x, pads, "edge")
    yield "the padding wrapped to the image's other side", _convolved(geometry, wrapped, w, (0, 0))
    yield "the padding repeated the image's edge", _convolved(geometry, repeated, w, (0, 0))


def _bugs_of_windows(geometry: Geometry, x: Sums, w: Sums) -> Iterator[Bug]:
    (top, bottom), (left, right) = geometry.pads
    rows, columns = geometry.filters[:2]
    half = rows // 2, columns // 2
    moved = {
        "padding above and below, left and right were exchanged": (bottom, right),
        "rows were padded as columns, and columns as rows": (left, top),
        f"{half[0]} rows were added above and {half[1]} columns on the left": half,
    }
    for text, before in moved.items():
        yield text, _convolved(geometry, x, w, before)
    (down, across), (below, beside) = geometry.stride, geometry.dilation
    for text, stride in (("were 1", (1, 1)), ("of rows and of columns were exchanged", (across, down))):
        yield f"stride {text}", _convolved(geometry, x, w, (top, left), stride=stride)
    for text, dilation in (("were 1", (1, 1)), ("of rows and of columns were exchanged", (beside, below))):
        yield f"dilation {text}", _convolved(geometry, x, w, (top, left), dilation=dilation)
    yield "the filter were turned by 180 degrees", _convolved(geometry, x, w[::-1, ::-1], (top, left))
    if rows == columns:
        yield "the filter were transposed", _convolved(geometry, x, w.swapaxes(0, 1), (top, left))


def _convolved(
    geometry: Geometry,
    x: Sums,
    w: Sums,
    before: Pair,
    stride: Pair | None = None,
    dilation: Pair | None = None,
) -> Sums:
    """As many outputs as the geometry has, with another padding before, stride, or dilation."""
    stride, dilation = stride or geometry.stride, dilation or geometry.dilation
    pads: list[Pair] = []
    for axis in (0, 1):
        reach = (geometry.out[axis] - 1) * stride[axis] + (w.shape[axis] - 1) * dilation[axis] + 1
        pads.append((before[axis], max(reach - x.shape[1 + axis] - before[axis], 0)))
    answer = reference.bconv2d(
        x, w, stride=stride, padding=(pads[0], pads[1]), dilation=dilation, groups=geometry.groups
    )
    return answer[:, : geometry.out[0], : geometry.out[1]]


def _whole_words(bits: int) -> list[int]:
    """So many bits rounded up to whole words of 32, 64 and 128, as far as they differ."""
    return sorted({-(-bits // word) * word for word in (32, 64, 128)} - {bits})


def _signs(x: Any) -> Sums:
    """Signs of an operand, real or packed."""
    positive = reference.unpack_tensor(x) > 0 if isinstance(x, PackedTensor) else np.asarray(x) >= 0
    return np.where(positive, 1, -1).astype(np.int8)
