"""A Hypothesis strategy for geometries of convolutions, and a comparison that draws the wrong window.

Needs Hypothesis: ``pip install 'simwarp[test]'``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from reference.errors import MissingExtraError
from reference.types.arguments import check_option
from simwarp.draw import to_text
from simwarp.testing.compare import difference
from simwarp.verify.geometries import CLASSES, Geometry, draw_geometry, window_picture

try:
    from hypothesis import strategies as st
except ImportError as error:
    raise MissingExtraError(
        f"simwarp.testing.geometries needs Hypothesis, which is not installed ({error})\n"
        "pip install 'simwarp[test]'"
    ) from None

T = TypeVar("T")


def conv_geometries(*classes: str) -> st.SearchStrategy[Geometry]:
    """Geometries of convolutions. Shrinks to one image of 1 × 1, one channel, one filter of one tap.

    They belong to ``classes`` of `simwarp.verify.geometries.classes_of`, by default to any, and have at most
    about 9 × 9 pixels, 130 channels, 40 filters and 9 images, as simulators need. ``images`` (N, H, W, C) and
    ``filters`` (R, S, C, O) are the shapes of the operands, ``options`` the other arguments:
    ``bconv2d(x, w, **geometry.options)``. An unknown class raises SchemeError.

    >>> from hypothesis import find
    >>> print(find(conv_geometries(), lambda g: True))
    1 x 1 x 1 x 1 by 1 x 1 to 1 channels, padding VALID, stride 1,1, dilation 1,1
    """
    for name in classes:
        check_option("class", name, CLASSES, "geometries are drawn by the names of their classes")
    wanted = classes or CLASSES

    @st.composite
    def geometries(draw: st.DrawFn) -> Geometry:
        return draw_geometry(_Hypothesis(draw), draw(st.sampled_from(wanted)))

    return geometries()


class _Hypothesis:
    """A `simwarp.verify.geometries.Chooser` whose numbers and choices Hypothesis draws and shrinks."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def choice(self, options: Sequence[T]) -> T:
        return self._draw(st.sampled_from(options))


def assert_same_convolution(
    geometry: Geometry, expected: npt.NDArray[np.int32], got: npt.NDArray[np.int32]
) -> None:
    """Assert that two results of ``bconv2d``, int32 (N, P, Q, O), are equal; else draw the first difference.

    The AssertionError shows the message of `simwarp.testing.assert_same_bits`, the window over the image, the
    taps outside, the raw popc, the correction, and the result.

    >>> geometry = Geometry((1, 1, 1, 1), (1, 2, 1, 1), padding="SAME")
    >>> assert_same_convolution(geometry, np.int32([[[[1]]]]), np.int32([[[[0]]]]))
    Traceback (most recent call last):
    ...
    AssertionError: 1 of 1 elements differs; the first is [0, 0, 0, 0]
    expected 1 (0x00000001), got 0 (0x00000000): bit 0 differs
    <BLANKLINE>
    1 x 1 x 1 x 1 by 1 x 2 to 1 channels, padding SAME, stride 1,1, dilation 1,1
    <BLANKLINE>
    1 × 2 filter over 1 × 1 pixels: output pixel (0, 0)
    <BLANKLINE>
        the window, and the image         taps outside, for each output pixel
    row    0     1                   p, q    0
        +-----+-----+                     +-----+
      0 | 0,0 |  ×  |                   0 | [1] |
        +-----+-----+                     +-----+
    <BLANKLINE>
    Tap r,s of output pixel (p, q) is on row p + r and column q + s of the image.
    1 of 2 taps are outside and contribute nothing.
    correction: (2 - 1) taps x 1 channels = 1 products
    raw popc: 0 of them are -1, where the bits differ
    result: 1 - 2 x 0 = 1
    """
    __tracebackhide__ = True
    message = difference(expected, got)
    if not message:
        return
    parts = [message.partition("\n\n")[0], str(geometry)]
    if expected.size and expected.shape == got.shape and expected.dtype == got.dtype:
        first = tuple(int(i) for i in np.argwhere(expected != got)[0])
        parts.append(to_text(window_picture(geometry, first, int(expected[first]))))
    raise AssertionError("\n\n".join(parts))
