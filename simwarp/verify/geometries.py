"""Random geometries of convolutions, of the classes that expose bugs of implementations.

A class is a predicate and a recipe that draws geometries which satisfy it. Numbers and choices come from a
`Chooser`: counters in the harness (`simwarp.verify.draw.Draw`), Hypothesis in the test kit, which then
shrinks them. All recipes draw the same numbers in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from simwarp.draw import exclude_picture
from simwarp.draw.picture import Picture

T = TypeVar("T")
Pair: TypeAlias = tuple[int, int]
Padding: TypeAlias = "str | tuple[Pair, Pair]"


class Chooser(Protocol):
    """A source of random numbers and choices: `simwarp.verify.draw.Draw`, or Hypothesis."""

    def integer(self, low: int, high: int) -> int:
        """Draw an integer from low to high, both included."""
        ...

    def choice(self, options: Sequence[T]) -> T:
        """Draw one of the options, which are sorted from simple to complex."""
        ...


@dataclass(frozen=True)
class Geometry:
    """The shapes and options of one call of ``bconv2d``, without the values.

    >>> same = Geometry((1, 5, 5, 1), (3, 3, 1, 1), stride=(2, 2), padding="SAME")
    >>> same.spans, same.pads, same.out
    ((3, 3), ((1, 1), (1, 1)), (3, 3))
    """

    images: tuple[int, int, int, int]  # (N, H, W, C)
    filters: tuple[int, int, int, int]  # (R, S, C, O)
    stride: Pair = (1, 1)  # for rows and for columns
    padding: Padding = "VALID"  # or (vertical, horizontal), or ((top, bottom), (left, right))
    dilation: Pair = (1, 1)

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of ``bconv2d``: stride, padding and dilation."""
        return {"stride": self.stride, "padding": self.padding, "dilation": self.dilation}

    @property
    def spans(self) -> Pair:
        """The numbers of rows and of columns that the dilated filter spans."""
        (rows, columns), (down, across) = self.filters[:2], self.dilation
        return (rows - 1) * down + 1, (columns - 1) * across + 1

    @property
    def pads(self) -> tuple[Pair, Pair]:
        """The padding as ((top, bottom), (left, right))."""
        if not isinstance(self.padding, str):
            return self.padding
        top, left = (self._pad(axis) for axis in (0, 1))
        return top, left

    def _pad(self, axis: int) -> Pair:
        """The padding before and after along an axis, for a name of padding."""
        if self.padding == "VALID":
            return 0, 0
        size, stride = self.images[1 + axis], self.stride[axis]
        total = max((-(-size // stride) - 1) * stride + self.spans[axis] - size, 0)
        return total // 2, total - total // 2

    @property
    def out(self) -> Pair:
        """The numbers of rows and of columns of the output, (P, Q)."""
        rows, columns = (
            (self.images[1 + axis] + sum(self.pads[axis]) - self.spans[axis]) // self.stride[axis] + 1
            for axis in (0, 1)
        )
        return rows, columns

    @property
    def excluded(self) -> npt.NDArray[np.intp]:
        """The number of taps outside the image for each output pixel, (P, Q).

        >>> Geometry((1, 3, 3, 1), (3, 3, 1, 1), padding="SAME").excluded.tolist()
        [[5, 3, 5], [3, 0, 3], [5, 3, 5]]
        """
        rows, columns = (self._inside(axis) for axis in (0, 1))
        return self.filters[0] * self.filters[1] - np.outer(rows, columns)

    def _inside(self, axis: int) -> npt.NDArray[np.intp]:
        """The number of taps inside the image along an axis, for each output row or column."""
        first = np.arange(self.out[axis]) * self.stride[axis] - self.pads[axis][0]
        taps = first[:, None] + np.arange(self.filters[axis]) * self.dilation[axis]
        return ((taps >= 0) & (taps < self.images[1 + axis])).sum(axis=1)

    def __str__(self) -> str:
        (n, h, w, c), (r, s, _, o) = self.images, self.filters
        padding = self.padding if isinstance(self.padding, str) else str(self.padding).replace(" ", "")
        return (
            f"{n} x {h} x {w} x {c} by {r} x {s} to {o} channels, padding {padding}, "
            f"stride {self.stride[0]},{self.stride[1]}, dilation {self.dilation[0]},{self.dilation[1]}"
        )


def window_picture(geometry: Geometry, element: Sequence[int], result: int) -> Picture:
    """Draw the window of an output (n, p, q, o) over the image, and the terms of its sum."""
    _, p, q, _ = element
    taps, channels = geometry.filters[0] * geometry.filters[1], geometry.images[3]
    (top, _), (left, _) = geometry.pads
    return exclude_picture(
        geometry.images[1:3],
        geometry.filters[:2],
        geometry.out,
        pad=(top, left),
        stride=geometry.stride,
        dilation=geometry.dilation,
        pixel=(p, q),
        channels=channels,
        popc=((taps - int(geometry.excluded[p, q])) * channels - result) // 2,
    )


# --------------------------------------------------------------------------------------------------
# The predicates of classes
# --------------------------------------------------------------------------------------------------

_TINY = 4


def _no_border(g: Geometry) -> bool:
    return bool(g.excluded.max() == 0)


def _all_border(g: Geometry) -> bool:
    return bool(g.excluded.min() > 0)


def _interior(g: Geometry) -> bool:
    return not _no_border(g) and not _all_border(g)


def _window(g: Geometry) -> bool:
    return any(span > size for span, size in zip(g.spans, g.images[1:3], strict=True))


def _stride(g: Geometry) -> bool:
    return any(stride > span for stride, span in zip(g.stride, g.spans, strict=True))


def _asymmetric(g: Geometry) -> bool:
    return any(before != after for before, after in g.pads)


def _beyond(g: Geometry) -> bool:
    return any(max(pads) >= span for pads, span in zip(g.pads, g.spans, strict=True))


def _skips(g: Geometry) -> bool:
    sizes = zip(g.filters[:2], g.dilation, g.images[1:3], strict=True)
    return any(taps > 1 and dilation >= size for taps, dilation, size in sizes)


def classes_of(geometry: Geometry) -> tuple[str, ...]:
    """The classes that a geometry belongs to, at least one.

    ================================= ====================================================================
    class                             condition
    ================================= ====================================================================
    ``no border``                     no window has a tap outside the image
    ``1x1``                           one tap
    ``odd batch``                     1, 3, 5, … images
    ``prime and tiny channels``       C and O each prime, or at most 4
    ``interior``                      some windows are inside the image, others are not
    ``asymmetric padding``            top and bottom differ, or left and right
    ``window larger than the image``  the dilated filter spans more rows, or columns, than the image has
    ``stride larger than the filter`` windows leave out rows, or columns, between them
    ``padding beyond the filter``     on some side, a window fits into the padding
    ``dilation that skips the image`` at most one of two taps in a column, or row, is inside
    ``all border``                    every window has a tap outside
    ================================= ====================================================================

    >>> classes_of(Geometry((2, 2, 2, 6), (3, 3, 6, 6), padding="SAME"))
    ('window larger than the image', 'all border')
    """
    return tuple(name for name, (belongs, _) in _KINDS.items() if belongs(geometry))


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))


# --------------------------------------------------------------------------------------------------
# Drawing geometries: first the numbers, in the same way for all classes, which the recipe then adjusts
# --------------------------------------------------------------------------------------------------

_BATCHES = (1, 2, 3, 4, 5)
_SIZES = (1, 2, 3, 4, 5, 5, 6, 7, 9)
_TAPS = (1, 2, 2, 3, 3, 3, 4, 5)
_CHANNELS = (1, 2, 3, 5, 8, 13, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 129, 130)
_FILTERS = (1, 2, 3, 6, 8, 9, 16, 20, 31, 32, 33, 40)
_PRIME_CHANNELS = (1, 2, 3, 4, 5, 7, 31, 37, 61, 67, 127)
_PRIME_FILTERS = (1, 2, 3, 4, 5, 7, 17, 31, 37)
_AXES = ((0, 1), (0,), (1,))
_MOST_TAPS = 300
"""The limit of taps of all output pixels, for more than two images."""


class _Numbers(NamedTuple):
    """The random numbers for a geometry of any class; pairs are for rows and columns."""

    batch: int
    size: Pair
    taps: Pair
    channels: int
    filters: int
    stride: Pair
    dilation: Pair
    padding: str
    before: Pair
    after: Pair
    axes: tuple[int, ...]
    turn: bool


def draw_geometry(draw: Chooser, name: str) -> Geometry:
    """Draw a geometry of a class of `CLASSES`, small enough for the simulator.

    At most about 9 × 9 pixels, 130 channels, 40 filters, and 5 images, or 9 small ones.

    >>> from simwarp.verify.draw import Draw
    >>> geometry = draw_geometry(Draw(0, "docs", 0), "dilation that skips the image")
    >>> "dilation that skips the image" in classes_of(geometry)
    True
    """
    tiny = name == "prime and tiny channels"

    def pair(low: int, high: int) -> Pair:
        return draw.integer(low, high), draw.integer(low, high)

    numbers = _Numbers(
        batch=draw.choice((1, 3, 5, 9) if name == "odd batch" else _BATCHES),
        size=(draw.choice(_SIZES), draw.choice(_SIZES)),
        taps=(draw.choice(_TAPS), draw.choice(_TAPS)),
        channels=draw.choice(_PRIME_CHANNELS if tiny else _CHANNELS),
        filters=draw.choice(_PRIME_FILTERS if tiny else _FILTERS),
        stride=pair(1, 3),
        dilation=(draw.choice((1, 1, 2, 3)), draw.choice((1, 1, 2, 3))),
        padding=draw.choice(("VALID", "SAME", "explicit")),
        before=pair(0, 3),
        after=pair(0, 3),
        axes=draw.choice(_AXES),
        turn=bool(draw.integer(0, 1)),
    )
    return _affordable(_KINDS[name][1](numbers))


def _affordable(geometry: Geometry) -> Geometry:
    """Reduce the number of images, by steps of two, until the taps are few enough to simulate."""
    batch, *image = geometry.images
    taps = geometry.filters[0] * geometry.filters[1] * geometry.out[0] * geometry.out[1]
    while batch > 2 and batch * taps > _MOST_TAPS:
        batch -= 2
    return replace(geometry, images=(batch, *image))


def _plain(x: _Numbers) -> Geometry:
    """A geometry from drawn numbers; the image is enlarged where it is too small for a window."""
    top, left = zip(x.before, x.after, strict=True)
    geometry = Geometry(
        (x.batch, *x.size, x.channels),
        (*x.taps, x.channels, x.filters),
        x.stride,
        x.padding if x.padding != "explicit" else (top, left),
        x.dilation,
    )
    if x.padding == "SAME":
        return geometry
    height, width = (
        max(size, span - sum(pads))
        for size, span, pads in zip(x.size, geometry.spans, geometry.pads, strict=True)
    )
    return replace(geometry, images=(x.batch, height, width, x.channels))


def _padded(x: _Numbers) -> Geometry:
    """Make a geometry of the numbers; add padding where the image is too small for a window."""
    spans = _spans(x)
    after = (
        max(after, span - size - before)
        for after, span, size, before in zip(x.after, spans, x.size, x.before, strict=True)
    )
    return _plain(x._replace(after=_pair(after), padding="SAME" if x.padding == "VALID" else x.padding))


def _draw_no_border(x: _Numbers) -> Geometry:
    if x.padding != "explicit":
        return _plain(x._replace(padding="VALID"))
    inside = _plain(x._replace(padding="VALID"))
    unused = (
        stride - 1 - (size - span) % stride
        for stride, size, span in zip(x.stride, inside.images[1:3], inside.spans, strict=True)
    )
    down, across = (min(after, most) for after, most in zip(x.after, unused, strict=True))
    return replace(inside, padding=((0, down), (0, across)))  # no window reaches this padding


def _draw_interior(x: _Numbers) -> Geometry:
    x = x._replace(
        taps=_pair(max(taps, 2) for taps in x.taps), padding="explicit" if x.padding == "explicit" else "SAME"
    )
    sizes = (span + size // 2 for span, size in zip(_spans(x), x.size, strict=True))
    geometry = _plain(x._replace(size=_pair(sizes)))
    return geometry if _interior(geometry) else replace(geometry, stride=(1, 1), padding="SAME")


def _draw_asymmetric(x: _Numbers) -> Geometry:
    same = _plain(x._replace(padding="SAME"))
    if x.padding == "SAME" and _asymmetric(same):
        return same
    x = x._replace(padding="explicit")
    after = _bent(x, x.after, lambda axis: x.before[axis] + 1 + x.after[axis] % 2)
    return _plain(x._replace(before=after, after=x.before) if x.turn else x._replace(after=after))


def _draw_window(x: _Numbers) -> Geometry:
    x = x._replace(taps=_bent(x, x.taps, lambda axis: max(x.taps[axis], 2)))
    spans = _spans(x)
    return _padded(x._replace(size=_bent(x, x.size, lambda axis: 1 + x.size[axis] % (spans[axis] - 1))))


def _draw_stride(x: _Numbers) -> Geometry:
    x = x._replace(taps=_pair(min(taps, 3) for taps in x.taps))
    spans = _spans(x)
    x = x._replace(stride=_bent(x, x.stride, lambda axis: spans[axis] + x.stride[axis]))
    more = (size + stride * x.turn for size, stride in zip(x.size, x.stride, strict=True))
    return _plain(x._replace(size=_pair(more)))


def _draw_beyond(x: _Numbers) -> Geometry:
    size, taps = _pair(min(n, 4) for n in x.size), _pair(min(n, 3) for n in x.taps)
    x = x._replace(size=size, taps=taps, padding="explicit")
    spans = _spans(x)
    if x.turn:
        return _plain(x._replace(before=_bent(x, x.before, lambda axis: spans[axis] + x.before[axis])))
    return _plain(x._replace(after=_bent(x, x.after, lambda axis: spans[axis] + x.after[axis])))


def _draw_skips(x: _Numbers) -> Geometry:
    x = x._replace(size=_pair(min(n, 4) for n in x.size), taps=_pair(min(n, 3) for n in x.taps))
    taps = _bent(x, x.taps, lambda axis: max(x.taps[axis], 2))
    dilation = _bent(x, x.dilation, lambda axis: x.size[axis] + x.dilation[axis] - 1)
    return _padded(x._replace(taps=taps, dilation=dilation))


def _draw_all_border(x: _Numbers) -> Geometry:
    if not x.turn:  # a window larger than the image
        return _draw_window(x)
    # One row, or column, of windows, all of which reach outside.
    x = x._replace(
        padding="explicit", before=_bent(x, x.before, lambda axis: 1 + x.before[axis] % x.taps[axis])
    )
    whole = _plain(x)
    padded = _pair(size + sum(pads) for size, pads in zip(whole.images[1:3], whole.pads, strict=True))
    return replace(
        whole, stride=_bent(x, x.stride, lambda axis: max(padded[axis] - whole.spans[axis] + 1, 1))
    )


_KINDS: dict[str, tuple[Callable[[Geometry], bool], Callable[[_Numbers], Geometry]]] = {
    "no border": (_no_border, _draw_no_border),
    "1x1": (lambda g: g.filters[:2] == (1, 1), lambda x: _plain(x._replace(taps=(1, 1)))),
    "odd batch": (
        lambda g: g.images[0] % 2 == 1,
        lambda x: _plain(x if x.batch < 9 else x._replace(size=_pair(min(n, 4) for n in x.size))),
    ),
    "prime and tiny channels": (lambda g: all(n <= _TINY or _is_prime(n) for n in g.filters[2:]), _plain),
    "interior": (_interior, _draw_interior),
    "asymmetric padding": (_asymmetric, _draw_asymmetric),
    "window larger than the image": (_window, _draw_window),
    "stride larger than the filter": (_stride, _draw_stride),
    "padding beyond the filter": (_beyond, _draw_beyond),
    "dilation that skips the image": (_skips, _draw_skips),
    "all border": (_all_border, _draw_all_border),
}
"""The predicate and the recipe of each class."""

CLASSES: tuple[str, ...] = tuple(_KINDS)
"""The classes, the one with the simplest members first."""


def _bent(x: _Numbers, pair: Pair, value: Callable[[int], int]) -> Pair:
    """Replace the values of a pair along the drawn axes."""
    return _pair(value(axis) if axis in x.axes else pair[axis] for axis in (0, 1))


def _spans(x: _Numbers) -> Pair:
    """The numbers of rows and of columns that the dilated filter spans."""
    return _pair((taps - 1) * dilation + 1 for taps, dilation in zip(x.taps, x.dilation, strict=True))


def _pair(numbers: Any) -> Pair:
    first, second = numbers
    return first, second
