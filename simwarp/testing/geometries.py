"""A Hypothesis strategy for geometries of convolutions.

Needs Hypothesis: ``pip install 'simwarp[test]'``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from zlib import crc32

from reference.errors import MissingExtraError
from reference.types.arguments import check_option
from simwarp.testing import profiles
from simwarp.verify.draw import Draw
from simwarp.verify.geometries import Geometry, Pair
from simwarp.verify.geometry_classes import (
    CLASSES,
    LARGE_CLASSES,
    MOST_LARGE_TAPS,
    classes_of,
    draw_geometry,
    pair_of,
    taps_of_windows,
)

try:
    from hypothesis import assume
    from hypothesis import strategies as st
except ImportError as error:
    raise MissingExtraError(
        f"simwarp.testing.geometries needs Hypothesis, which is not installed ({error})\n"
        "pip install 'simwarp[test]'"
    ) from None


def conv_geometries(*classes: str, groups: bool = False) -> st.SearchStrategy[Geometry]:
    """Geometries of convolutions. Shrinks to one image of 1 × 1, one channel, one filter of one tap.

    They belong to ``classes`` of `simwarp.verify.geometry_classes.classes_of`, by default to any: windows of
    up to 17 × 17 taps, inside, over and beside the image; up to 256 taps outside; 2ⁿ - 1 to 2ⁿ + 1 products.
    As simulators need, at most about 9 × 9 pixels lie around a window, in up to 9 images; with the profiles
    `nightly` and `gpu` images are larger.

    Parameters
    ----------
    *classes : str
        The names of classes, `simwarp.verify.geometry_classes.CLASSES`.
    groups : bool
        Whether channels may be in 1, 2, 3 or 5 groups: ``options`` then has ``groups``.

    Returns
    -------
    strategy for Geometry
        ``images`` (N, H, W, C) and ``filters`` (R, S, C, O) are the shapes of the operands, ``options`` the
        other arguments: ``bconv2d(x, w, **geometry.options)``.

    Raises
    ------
    SchemeError
        For an unknown class.

    Examples
    --------
    >>> from hypothesis import find
    >>> print(find(conv_geometries(), lambda g: True))
    1 x 1 x 1 x 1 by 1 x 1 to 1 channels, padding VALID, stride 1,1, dilation 1,1
    >>> print(find(conv_geometries(), lambda g: g.excluded.any()))
    1 x 1 x 1 x 1 by 1 x 1 to 1 channels, padding ((0,0),(0,1)), stride 1,1, dilation 1,1
    """
    for name in classes:
        check_option("class", name, CLASSES, "geometries are drawn by the names of their classes")
    wanted = classes or (*CLASSES, *LARGE_CLASSES, *_HARD * 2)  # most bugs hide in large windows

    @st.composite
    def geometries(draw: st.DrawFn) -> Geometry:
        by_class, seed = draw(st.integers(0, 31)) > 0, [n for part in _SEED for n in draw(part)]
        chooser = Draw(crc32(bytes(seed)), "conv_geometries", 0)
        geometry = _by_number(draw, _of_class(chooser.choice(wanted), chooser) if by_class else None)
        count = draw(st.sampled_from((1, 2, 3, 5))) if groups else 1
        images, filters = geometry.images, geometry.filters
        return replace(
            geometry,
            images=(*images[:3], images[3] * count),
            filters=(*filters[:3], filters[3] * count),
            groups=count,
        )

    drawn = geometries()
    return drawn.filter(lambda geometry: bool({*classes} & {*classes_of(geometry)})) if classes else drawn


def _of_class(name: str, draw: Draw) -> Geometry:
    """Draw a geometry of a class, as `simwarp verify` does; with some profiles its image is larger."""
    geometry = draw_geometry(draw, name)
    n, h, w, c = geometry.images
    more = profiles.more_pixels()
    larger = replace(geometry, images=(n, h + draw.integer(0, more), w + draw.integer(0, more), c))
    return larger if name in classes_of(larger) else geometry


def _by_number(draw: st.DrawFn, known: Geometry | None) -> Geometry:
    """Draw the numbers of a geometry one by one, or those of a known one.

    Hypothesis shrinks a failing geometry of a class by first drawing the same numbers without the class,
    because a number that is in both ranges stays as it is. It then lowers one number at a time. What a bug
    needs stays while another number is lowered, because columns follow from rows and taps, channels from
    products, and padding from its kind.
    """

    def number(low: int, high: int, value_in: Callable[[Geometry], int]) -> int:
        return draw(st.integers(low, high) if known is None else st.integers(value := value_in(known), value))

    def pair(low: int, high: int, value_in: Callable[[Geometry], Pair]) -> Pair:
        return number(low, high, lambda g: value_in(g)[0]), number(low, high, lambda g: value_in(g)[1])

    batch = number(1, 9, lambda g: g.images[0])
    kind = _KINDS[number(0, len(_KINDS) - 1, _kind_of)]
    more = profiles.more_pixels()
    size = pair(1, _MOST_PIXELS + more, lambda g: (g.images[1], g.images[2]))
    rows = number(1, _MOST_TAPS, lambda g: g.filters[0])
    taps = number(1, _MOST_TAPS**2, lambda g: prod(g.filters[:2]))
    products = number(1, _MOST_TAPS**2 * _MOST_CHANNELS, lambda g: prod(g.filters[:3]))
    filters = number(1, 40, lambda g: g.filters[3])
    stride, dilation = pair(1, 64, lambda g: g.stride), pair(1, 64, lambda g: g.dilation)
    pads = pair(0, 64, lambda g: g.pads[0]), pair(0, 64, lambda g: g.pads[1])
    if known is not None:
        return known
    rows, columns, channels = _filters(kind, rows, taps, products)
    shape = rows, columns, channels, filters
    same = Geometry((batch, *size, channels), shape, stride, "SAME", dilation)
    geometry = _padded(same, kind, pads)
    assume(max(*geometry.images[1:3], *geometry.out) <= _MOST_PIXELS + more)
    assume(taps_of_windows(geometry) <= MOST_LARGE_TAPS * (1 + more**2))
    assume(_work(geometry) <= _MOST_WORK * (1 + more**2))
    return geometry


_KINDS = ("VALID", "many products", "small window", "beside the image", "SAME", "explicit")
"""Kinds of windows and padding, the simplest first.

``many products`` is the smallest window of one row for the products, without padding; ``small window`` any
padding about few taps; ``beside the image`` as many columns on the right as the window has, which has as few
rows as it can: one window is wholly outside. Numbers that a kind does not use stay large enough for kinds
before it.
"""
_SMALL_WINDOW, _MANY_PRODUCTS = 4, 2**14


def _kind_of(geometry: Geometry) -> int:
    taps, products = prod(geometry.filters[:2]), prod(geometry.filters[:3])
    if geometry.padding == "SAME":
        kind = "SAME"
    elif any(map(any, geometry.pads)):
        kind = "small window" if taps <= _SMALL_WINDOW else "explicit"
    else:
        kind = "VALID" if products <= _MANY_PRODUCTS else "explicit"
    return _KINDS.index(kind)


def _filters(kind: str, rows: int, taps: int, products: int) -> tuple[int, int, int]:
    """The rows, columns and channels of filters."""
    assume(taps >= rows)
    columns = min(taps // rows, _MOST_TAPS)
    if kind == "VALID":
        assume(products <= _MANY_PRODUCTS)
    elif kind == "small window":
        assume(rows * columns <= _SMALL_WINDOW)
    elif kind == "beside the image":
        fewest = -(-taps // _MOST_TAPS)
        assume(fewest <= rows)
        rows, columns = fewest, -(-taps // fewest)
    elif kind == "many products":
        fewest = -(-products // _MOST_CHANNELS)
        assume(fewest <= min(_MOST_TAPS, taps))
        return 1, fewest, -(-products // fewest)
    return rows, columns, min(max(products // (rows * columns), 1), _MOST_CHANNELS)


def _padded(same: Geometry, kind: str, pads: tuple[Pair, Pair]) -> Geometry:
    """A geometry with padding of a kind, over an image that the window fits into."""
    if kind == "SAME":
        assume(_covers(pads, same.pads) or _covers(pads[::-1], same.pads))
        return same
    if kind == "beside the image":
        assume(any(map(any, pads)))
        pads = (0, 0), (0, same.spans[1])
    elif kind in ("VALID", "many products"):
        pads = (0, 0), (0, 0)
    fits = zip(same.images[1:3], same.spans, pads, strict=True)
    size = pair_of(max(n, span - sum(around)) for n, span, around in fits)
    batch, _, _, channels = same.images
    return replace(same, images=(batch, *size, channels), padding=pads if any(map(any, pads)) else "VALID")


def _covers(pads: tuple[Pair, ...], others: tuple[Pair, ...]) -> bool:
    """Whether there is padding on each side where there is some of others."""
    sides = zip((*pads[0], *pads[1]), (*others[0], *others[1]), strict=True)
    return all(n > 0 or other == 0 for n, other in sides)


def _work(geometry: Geometry) -> int:
    """The number of products of a convolution, and of elements of its operands."""
    windows = geometry.images[0] * prod(geometry.out)
    return windows * prod(geometry.filters) + prod(geometry.images) + prod(geometry.filters)


_SEED = [st.tuples(*[st.integers(0, 255)] * count) for count in range(1, 6) for _ in range(2)]
"""The bytes of a seed. Hypothesis makes most examples of another, by copying one of its parts over a second
of the same kind. Tuples of several lengths are several kinds, so that most such examples have a new seed."""
_HARD = (*LARGE_CLASSES[1:4], "window of one line", *LARGE_CLASSES[-1:] * 2)
"""Classes of which only a few members expose a bug."""
_MOST_PIXELS, _MOST_WORK, _MOST_TAPS, _MOST_CHANNELS = 40, 5 * 10**7, 17, 5000
"""The limits of all classes: rows or columns of an image or an output, work, rows or columns of taps."""
