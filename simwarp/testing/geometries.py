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
    because a number that is in both ranges stays as it is.
    """

    def number(low: int, high: int, value_in: Callable[[Geometry], int]) -> int:
        return draw(st.integers(low, high) if known is None else st.integers(value := value_in(known), value))

    def pair(low: int, high: int, value_in: Callable[[Geometry], Pair]) -> Pair:
        return number(low, high, lambda g: value_in(g)[0]), number(low, high, lambda g: value_in(g)[1])

    batch = number(1, 9, lambda g: g.images[0])
    more = profiles.more_pixels()
    size = pair(1, _MOST_PIXELS + more, lambda g: (g.images[1], g.images[2]))
    taps = pair(1, 17, lambda g: (g.filters[0], g.filters[1]))
    channels = number(1, 5000, lambda g: g.filters[2])
    filters = number(1, 40, lambda g: g.filters[3])
    stride, dilation = pair(1, 64, lambda g: g.stride), pair(1, 64, lambda g: g.dilation)
    is_same = number(0, 1, lambda g: int(g.padding == "SAME")) == 1
    rows, columns = pair(0, 64, lambda g: g.pads[0]), pair(0, 64, lambda g: g.pads[1])
    padding = "SAME" if is_same else (rows, columns) if any((*rows, *columns)) else "VALID"
    geometry = Geometry((batch, *size, channels), (*taps, channels, filters), stride, padding, dilation)
    if known is None:
        if not is_same:  # an image that the window fits into
            fits = zip(size, geometry.spans, geometry.pads, strict=True)
            size = pair_of(max(n, span - sum(pads)) for n, span, pads in fits)
            geometry = replace(geometry, images=(batch, *size, channels))
        assume(max(*size, *geometry.out) <= _MOST_PIXELS + more)
        assume(taps_of_windows(geometry) <= MOST_LARGE_TAPS * (1 + more**2))
        assume(_work(geometry) <= _MOST_WORK * (1 + more**2))
    return geometry


def _work(geometry: Geometry) -> int:
    """The number of products of a convolution, and of elements of its operands."""
    windows = geometry.images[0] * prod(geometry.out)
    return windows * prod(geometry.filters) + prod(geometry.images) + prod(geometry.filters)


_SEED = [st.tuples(*[st.integers(0, 255)] * count) for count in range(1, 6) for _ in range(2)]
"""The bytes of a seed. Hypothesis makes most examples of another, by copying one of its parts over a second
of the same kind. Tuples of several lengths are several kinds, so that most such examples have a new seed."""
_HARD = (*LARGE_CLASSES[1:4], "window of one line", *LARGE_CLASSES[-1:] * 2)
"""Classes of which only a few members expose a bug."""
_MOST_PIXELS, _MOST_WORK = 40, 5 * 10**7
"""The limits of all classes: rows or columns of an image or an output, and work."""
