"""Classes of convolutions that expose bugs of implementations, and random geometries of each.

A class is a predicate and a recipe that draws geometries which satisfy it. Numbers and choices come from a
`Chooser`, such as `simwarp.verify.draw.Draw`. All recipes draw the same numbers in the same order; those of
large windows and of many products draw three more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeVar

from simwarp.verify.geometries import Geometry, Pair

T = TypeVar("T")


class Chooser(Protocol):
    """A source of random numbers and choices: `simwarp.verify.draw.Draw`, or Hypothesis."""

    def integer(self, low: int, high: int) -> int:
        """Draw an integer from low to high, both included."""
        ...

    def choice(self, options: Sequence[T]) -> T:
        """Draw one of the options, which are sorted from simple to complex."""
        ...


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


def _large(g: Geometry) -> bool:
    return max(g.filters[:2]) >= _LARGE[0]


def _line(g: Geometry) -> bool:
    return _large(g) and 1 in g.filters[:2]


def _first_layer(g: Geometry) -> bool:
    (rows, columns), (down, across) = g.filters[:2], g.stride
    return rows == columns and down == across and (rows, down) in _FIRST_LAYERS


def _outside(g: Geometry) -> bool:
    return bool(g.excluded.max() >= min(_OUTSIDE))


def _strided_dilation(g: Geometry) -> bool:
    axes = zip(g.filters[:2], g.stride, g.dilation, strict=True)
    return any(min(axis) > 1 for axis in axes)


def _one_side(g: Geometry) -> bool:
    return sum(before_or_after > 0 for pads in g.pads for before_or_after in pads) == 1


def _at_a_power(g: Geometry) -> bool:
    return g.filters[:3] in _SUMS


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
    ``large window``                  6 rows or columns of taps, or more
    ``window of one line``            such a window, of one row or one column
    ``first layer``                   7 × 7 or 11 × 11 taps at stride 2 or 4
    ``many taps outside``             some window has 8 taps outside, or more
    ``dilation and stride``           along an axis, several taps, and both more than 1
    ``padding on one side``           only above, below, left or right
    ``sums at a power of two``        2ⁿ - 1, 2ⁿ or 2ⁿ + 1 products, n from 8 to 16
    ================================= ====================================================================

    >>> classes_of(Geometry((2, 2, 2, 6), (3, 3, 6, 6), padding="SAME"))
    ('window larger than the image', 'all border')
    """
    return tuple(name for name, (belongs, _) in (_KINDS | _MORE).items() if belongs(geometry))


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
_MOST_TAPS, MOST_LARGE_TAPS = 300, 4000
"""The limits of taps of all output pixels: for more than two images, and of an image with a large window."""
_LARGE = (6, 7, 8, 9, 11, 13, 15, 16, 17)
"""Rows and columns of large windows; copies by im2col reach 15."""
_LINES = (9, 15, 16, *(17,) * 7)
"""Taps of a window of one line."""
_FIRST_LAYERS = ((7, 2), (7, 4), (11, 2), *((11, 4),) * 5)
"""Taps along an axis, and stride."""
_OUTSIDE = {8: (3, 4), 16: (5, 4), 32: (6, 6), 64: (9, 8), 128: (11, 13), 256: (17, 16)}
"""Edges of counters of taps outside, with a window of more taps."""


def _shapes_of_sums() -> dict[tuple[int, int, int], int]:
    """Taps and channels of 2ⁿ - 1, 2ⁿ and 2ⁿ + 1 products, with n; of each number the fewest channels."""
    found: dict[tuple[int, int, int], int] = {}
    for n in range(8, 17):
        for products in (2**n - 1, 2**n, 2**n + 1):
            windows = [(r, s) for r in range(1, 18) for s in range(1, 18) if products % (r * s) == 0]
            rows, columns = max(windows, key=lambda taps: (taps[0] * taps[1], taps))
            if products // (rows * columns) <= _MOST_CHANNELS:
                found[rows, columns, products // (rows * columns)] = n
    return found


_MOST_CHANNELS = 5000
_SUMS = _shapes_of_sums()
"""Rows and columns of taps, and channels, with the power of two that their product is at."""
_DRAWN_SUMS = [*_SUMS, *[shape for shape, n in _SUMS.items() if n > 14] * 16]
"""Those at the edge of 16 bits are drawn more often."""


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
    large: Pair = (1, 1)  # taps of a large window
    edge: int = 0  # the number of an edge among those of a class


def draw_geometry(draw: Chooser, name: str) -> Geometry:
    """Draw a geometry of a class of `CLASSES`, small enough for the simulator.

    At most about 9 × 9 pixels, 130 channels, 40 filters, and 5 images, or 9 small ones. Sums at a power of
    two have up to 5,000 channels, and up to 3 filters.

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
    if name in _MORE:
        numbers = numbers._replace(
            large=(draw.choice(_LARGE), draw.choice(_LARGE)), edge=draw.integer(0, 2**16 - 1)
        )
        return _with_fewer_windows(_MORE[name][1](numbers))
    return _affordable(_KINDS[name][1](numbers))


def _affordable(geometry: Geometry) -> Geometry:
    """Reduce the number of images, by steps of two, until the taps are few enough to simulate."""
    batch, *image = geometry.images
    taps = taps_of_windows(geometry)
    while batch > 2 and batch * taps > _MOST_TAPS:
        batch -= 2
    return replace(geometry, images=(batch, *image))


def _with_fewer_windows(geometry: Geometry) -> Geometry:
    """At most two images; enlarge the stride until the taps are few enough to simulate."""
    batch, *image = geometry.images
    geometry = replace(geometry, images=(min(batch, 2), *image))
    while (windows := max(geometry.out)) > 1 and taps_of_windows(geometry) > MOST_LARGE_TAPS:
        stride = (n + (out == windows) for n, out in zip(geometry.stride, geometry.out, strict=True))
        geometry = replace(geometry, stride=pair_of(stride))
    return geometry


def taps_of_windows(geometry: Geometry) -> int:
    """The number of taps of all windows over an image."""
    return geometry.filters[0] * geometry.filters[1] * geometry.out[0] * geometry.out[1]


def _plain(x: _Numbers) -> Geometry:
    """Make a geometry of the numbers; enlarge the image where it is too small for a window."""
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
    return _plain(x._replace(after=pair_of(after), padding="SAME" if x.padding == "VALID" else x.padding))


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
        taps=pair_of(max(taps, 2) for taps in x.taps),
        padding="explicit" if x.padding == "explicit" else "SAME",
    )
    sizes = (span + size // 2 for span, size in zip(_spans(x), x.size, strict=True))
    geometry = _plain(x._replace(size=pair_of(sizes)))
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
    x = x._replace(taps=pair_of(min(taps, 3) for taps in x.taps))
    spans = _spans(x)
    x = x._replace(stride=_bent(x, x.stride, lambda axis: spans[axis] + x.stride[axis]))
    more = (size + stride * x.turn for size, stride in zip(x.size, x.stride, strict=True))
    return _plain(x._replace(size=pair_of(more)))


def _draw_beyond(x: _Numbers) -> Geometry:
    size, taps = pair_of(min(n, 4) for n in x.size), pair_of(min(n, 3) for n in x.taps)
    x = x._replace(size=size, taps=taps, padding="explicit")
    spans = _spans(x)
    if x.turn:
        return _plain(x._replace(before=_bent(x, x.before, lambda axis: spans[axis] + x.before[axis])))
    return _plain(x._replace(after=_bent(x, x.after, lambda axis: spans[axis] + x.after[axis])))


def _draw_skips(x: _Numbers) -> Geometry:
    x = x._replace(size=pair_of(min(n, 4) for n in x.size), taps=pair_of(min(n, 3) for n in x.taps))
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
    padded = pair_of(size + sum(pads) for size, pads in zip(whole.images[1:3], whole.pads, strict=True))
    return replace(
        whole, stride=_bent(x, x.stride, lambda axis: max(padded[axis] - whole.spans[axis] + 1, 1))
    )


def _draw_large(x: _Numbers) -> Geometry:
    return _around(x._replace(taps=_bent(x, x.taps, lambda axis: x.large[axis]), dilation=_small(x.dilation)))


def _draw_line(x: _Numbers) -> Geometry:
    taps = _LINES[x.edge % len(_LINES)]
    taps = (taps, 1) if x.edge // len(_LINES) % 3 == 0 else (1, taps)
    return _around(x._replace(taps=taps, dilation=_small(x.dilation)))


def _around(x: _Numbers) -> Geometry:
    """A geometry whose window is larger than the image, or whose image is a little larger than the window."""
    larger = pair_of(span + n // 3 for span, n in zip(_spans(x), x.size, strict=True))
    return _padded(x._replace(size=larger) if x.turn else x)


def _draw_first_layer(x: _Numbers) -> Geometry:
    taps, step = _FIRST_LAYERS[x.edge % len(_FIRST_LAYERS)]
    size = pair_of(taps + n % step if x.turn else min(n, 4 * step) for n in x.size)
    x = x._replace(size=size, taps=(taps, taps), stride=(step, step), dilation=(1, 1))
    return _padded(x._replace(channels=1 + x.channels % 4, padding="explicit" if x.turn else x.padding))


def _draw_outside(x: _Numbers) -> Geometry:
    """A window of enough taps, over a small image in its corner or beside it."""
    edges = [*_OUTSIDE, *[max(_OUTSIDE)] * 9]  # the last edge is one of all counters
    taps = _OUTSIDE[edges[x.edge % len(edges)]]
    taps = taps[::-1] if x.turn else taps
    size, dilation = pair_of(1 + n % 4 for n in x.size), _small(x.dilation)
    spans = _spans(x._replace(taps=taps, dilation=dilation))
    before = pair_of(span - 1 - n for span, n in zip(spans, x.before, strict=True))
    x = x._replace(size=size, taps=taps, stride=(1, 1), padding="explicit", before=_least(before, 0))
    return _padded(x._replace(dilation=dilation))


def _draw_strided_dilation(x: _Numbers) -> Geometry:
    """A small window along one axis, a large one along the other."""
    taps = (max(x.taps[0], 2), x.large[1]) if x.turn else (x.large[0], max(x.taps[1], 2))
    x = x._replace(
        taps=taps,
        stride=_bent(x, x.stride, lambda axis: 2 + x.stride[axis] % 3),
        dilation=_bent(x, _small(x.dilation), lambda axis: 2 + x.dilation[axis] % 2 * (taps[axis] < 10)),
    )
    return _around(x)


def _draw_one_side(x: _Numbers) -> Geometry:
    """Padding of up to a window, below more often than on the other sides."""
    x = x._replace(taps=_bent(x, x.taps, lambda axis: x.large[axis]), dilation=_small(x.dilation))
    side, more = ("below", "below", "above", "right", "left")[x.edge % 5], x.edge // 5
    axis = int(side in ("right", "left"))
    pads = [(1 + more % _spans(x)[axis]) * (n == axis) for n in (0, 1)]
    none = (0, 0)
    before, after = (none, pair_of(pads)) if side in ("below", "right") else (pair_of(pads), none)
    return _plain(x._replace(padding="explicit", before=before, after=after))


def _draw_at_a_power(x: _Numbers) -> Geometry:
    rows, columns, channels = _DRAWN_SUMS[x.edge % len(_DRAWN_SUMS)]
    x = x._replace(taps=(rows, columns), channels=channels, filters=1 + x.filters % 3, dilation=(1, 1))
    return _around(x._replace(size=pair_of(min(n, 5) for n in x.size), turn=True))


_KINDS: dict[str, tuple[Callable[[Geometry], bool], Callable[[_Numbers], Geometry]]] = {
    "no border": (_no_border, _draw_no_border),
    "1x1": (lambda g: g.filters[:2] == (1, 1), lambda x: _plain(x._replace(taps=(1, 1)))),
    "odd batch": (
        lambda g: g.images[0] % 2 == 1,
        lambda x: _plain(x if x.batch < 9 else x._replace(size=pair_of(min(n, 4) for n in x.size))),
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
"""The predicate and the recipe of each class of small windows."""

_MORE: dict[str, tuple[Callable[[Geometry], bool], Callable[[_Numbers], Geometry]]] = {
    "large window": (_large, _draw_large),
    "window of one line": (_line, _draw_line),
    "first layer": (_first_layer, _draw_first_layer),
    "many taps outside": (_outside, _draw_outside),
    "dilation and stride": (_strided_dilation, _draw_strided_dilation),
    "padding on one side": (_one_side, _draw_one_side),
    "sums at a power of two": (_at_a_power, _draw_at_a_power),
}
"""Those of large windows and of many products."""

SMALL_CLASSES: tuple[str, ...] = tuple(_KINDS)
LARGE_CLASSES: tuple[str, ...] = tuple(_MORE)
CLASSES: tuple[str, ...] = (*SMALL_CLASSES, *LARGE_CLASSES)
"""The classes, the one with the simplest members first."""


def _bent(x: _Numbers, pair: Pair, value: Callable[[int], int]) -> Pair:
    """Replace the values of a pair along the drawn axes."""
    return pair_of(value(axis) if axis in x.axes else pair[axis] for axis in (0, 1))


def _spans(x: _Numbers) -> Pair:
    """The numbers of rows and of columns that the dilated filter spans."""
    return pair_of((taps - 1) * dilation + 1 for taps, dilation in zip(x.taps, x.dilation, strict=True))


def pair_of(numbers: Iterable[int]) -> Pair:
    """Two numbers, for rows and for columns."""
    first, second = numbers
    return first, second


def _small(dilation: Pair) -> Pair:
    """A dilation of 1 or 2 in place of one of 1 to 3."""
    return pair_of(1 + n % 2 for n in dilation)


def _least(pair: Pair, least: int) -> Pair:
    return pair_of(max(n, least) for n in pair)
