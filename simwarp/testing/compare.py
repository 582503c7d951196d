"""Comparison of two results, bit by bit or as convolutions, with a picture of what differs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError
from reference.types import PackedBits
from simwarp import draw
from simwarp.draw.formats import element
from simwarp.verify.geometries import Geometry, window_picture
from simwarp.verify.hypotheses import as_if, bugs_of_convolutions, in_words, listed


def assert_same_bits(expected: Any, got: Any) -> None:
    """Assert that two results have the same shape, dtype and bits.

    Floats are compared as words: 0.0 differs from -0.0, and a NaN equals one with the same bits.

    Parameters
    ----------
    expected, got : array_like of bool, integers or floats of up to 64 bits, device array, or PackedBits
        Device arrays are downloaded.

    Raises
    ------
    AssertionError
        If they differ; shows the first differing element, both values, the bits that differ, and a picture
        of the words. Also if there is nothing to compare.
    DtypeError
        For elements that are not numbers of up to 64 bits.

    Examples
    --------
    >>> assert_same_bits(np.uint32([5, 5]), np.uint32([5, 7]))
    Traceback (most recent call last):
    ...
    AssertionError: 1 of 2 elements differs; the first is [1]
    expected 5 (0x00000005), got 7 (0x00000007): bit 1 differs
    <BLANKLINE>
    1 of 2 words differs, in 1 bit
    <BLANKLINE>
            bit 31       23       15       7      0
    lane 1, got 00000000 00000000 00000000 00000111  0x00000007
                                                 ^
       expected 00000000 00000000 00000000 00000101  0x00000005
    """
    __tracebackhide__ = True
    message = difference(expected, got)
    if message:
        raise AssertionError(message)


class ConvolutionDifference(AssertionError):  # noqa: N818 - pytest prints the name as a headline
    """Two results of a convolution that differ; the message is made when it is read.

    Attributes
    ----------
    geometry : Geometry
        The shapes and options of the convolution.
    expected, got : int32 (N, P, Q, O)
        The results.
    operands : tuple, optional
        Images and filters.
    """

    def __init__(self, geometry: Geometry, expected: Any, got: Any, operands: tuple[Any, Any] | None) -> None:
        super().__init__(geometry, expected, got, operands)
        self.geometry, self.operands = geometry, operands
        self.expected, self.got = _host(expected), _host(got)

    @property
    def element(self) -> tuple[int, int, int, int] | None:
        """The index of the first wrong output (n, p, q, o); None if shapes or dtypes differ."""
        x, y = self.expected, self.got
        if (x.shape, x.dtype) != (y.shape, y.dtype) or not x.size:
            return None
        n, p, q, o = (int(i) for i in np.argwhere(x != y)[0])
        return n, p, q, o

    @property
    def meaning(self) -> str:
        """The simple bugs that give all of ``got``, as "as if …"; "" if none does."""
        if self.element is None:
            return ""
        bugs = bugs_of_convolutions(self.geometry, self.expected, self.operands)
        return as_if(bugs, lambda sums: np.array_equal(sums, self.got))

    def __str__(self) -> str:
        lines = [difference(self.expected, self.got).partition("\n\n")[0], self.meaning]
        parts = ["\n".join(filter(None, lines)), str(self.geometry)]
        if self.element is not None:
            right = int(self.expected[self.element])
            parts.append(draw.to_text(window_picture(self.geometry, self.element, right)))
        return "\n\n".join(parts)


def assert_same_convolution(
    of: Geometry | tuple[Any, Any, Geometry], expected: npt.NDArray[np.int32], got: npt.NDArray[np.int32]
) -> None:
    """Assert that two results of ``bconv2d`` are equal.

    Parameters
    ----------
    of : ConvOperands or Geometry
        What `simwarp.testing.strategies.conv_operands` drew, or only the geometry: without the operands fewer
        simple bugs can be recognised.
    expected, got : int32 (N, P, Q, O)

    Raises
    ------
    ConvolutionDifference
        If they differ, an AssertionError: it shows the first wrong output, by how much it is wrong, and the
        window over the image with the terms of its sum. Where a simple bug gives all of ``got``, it is named:
        "as if 32 bits a tap were counted, not 1". Also if there is nothing to compare.

    Examples
    --------
    >>> from simwarp.verify.geometries import Geometry
    >>> geometry = Geometry((1, 1, 1, 1), (1, 2, 1, 1), padding="SAME")
    >>> x, w = np.ones((1, 1, 1, 1)), np.ones((1, 2, 1, 1))
    >>> assert_same_convolution((x, w, geometry), np.int32([[[[1]]]]), np.int32([[[[0]]]]))
    Traceback (most recent call last):
    ...
    simwarp.testing.compare.ConvolutionDifference: 1 of 1 elements differs; the first is [0, 0, 0, 0]
    expected 1 (0x00000001), got 0 (0x00000000), 1 less: bit 0 differs
    as if the padding were -1, or the raw popc were the sum
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
    geometry, operands = (of, None) if isinstance(of, Geometry) else (of[2], (of[0], of[1]))
    if not _same(expected, got):
        raise ConvolutionDifference(geometry, expected, got, operands)


def difference(expected: Any, got: Any) -> str:
    """The message of `assert_same_bits`; "" if the results are the same."""
    if _same(expected, got):
        return ""
    kinds = _kind(expected), _kind(got)
    if kinds[0] != kinds[1]:
        return f"expected {kinds[0]}, got {kinds[1]}"
    packed = expected if isinstance(expected, PackedBits) else None
    x, y = _host(expected), _host(got)
    if (x.dtype, x.shape) != (y.dtype, y.shape):
        words = "words of " if packed else ""
        return f"expected {words}{x.dtype} of shape {x.shape}, got {words}{y.dtype} of shape {y.shape}"
    if not x.size:
        return f"nothing was compared: both have shape {x.shape}"
    return _describe(x, y, packed)


def _same(expected: Any, got: Any) -> bool:
    """Whether two results have the same kind, shape, dtype and bits, and some elements."""
    x, y = _host(expected), _host(got)
    alike = _kind(expected) == _kind(got) and (x.dtype, x.shape) == (y.dtype, y.shape) and x.size > 0
    return alike and np.array_equal(_words(x), _words(y))


def _describe(x: npt.NDArray[Any], y: npt.NDArray[Any], packed: PackedBits | None) -> str:
    """The message for two arrays of one shape and dtype that differ."""
    left, right = _words(x), _words(y)
    wrong = np.argwhere(left != right)
    at = tuple(int(i) for i in wrong[0])
    a, b = int(left[at]), int(right[at])
    bits = [i for i in range(x.dtype.itemsize * 8) if (a ^ b) >> i & 1]
    digits = x.dtype.itemsize * 2
    by = in_words(int(y[at]) - int(x[at])) if x.dtype.kind == "i" else ""
    what = "words" if packed else "elements"
    lines = [
        f"{len(wrong)} of {x.size} {what} differ{'s' * (len(wrong) == 1)}; the first is {list(at)}",
        f"expected {x[at]} (0x{a:0{digits}x}), got {y[at]} (0x{b:0{digits}x}){by}: "
        f"bit{'s' * (len(bits) > 1)} {listed(bits)} differ{'s' * (len(bits) == 1)}",
    ]
    if packed:
        lines.append(_element(packed, at, bits))
    wide = np.uint64 if x.dtype.itemsize == 8 else np.uint32
    picture = draw.words(np.atleast_1d(right.astype(wide)), np.atleast_1d(left.astype(wide)))
    return "\n".join(lines) + "\n\n" + picture


def _element(packed: PackedBits, at: tuple[int, ...], bits: list[int]) -> str:
    """The first matrix element among wrong bits of a word, which comes first."""
    bit = max(bits) if packed.first == "msb" else min(bits)
    found = element(at, bit, layout=packed.layout, word=packed.word, first=packed.first)
    if all(i < size for i, size in zip(found, packed.shape, strict=True)):
        return f"the first wrong matrix element is {found}"
    return f"the first wrong bit is padding, past the edge of the {packed.shape} matrix, and must be 0"


def _kind(x: Any) -> str:
    """The kind of a result, which must be the same for both."""
    if not isinstance(x, PackedBits):
        return "an array"
    return f"PackedBits {x.shape}, {x.layout}-major-{x.word}, first {x.first}"


def _host(x: Any) -> npt.NDArray[Any]:
    """A result, on the host or a device, as a NumPy array."""
    x = x.words if isinstance(x, PackedBits) else x
    return np.asarray(x.download() if hasattr(x, "download") else x)


def _words(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """View the elements of an array as unsigned words."""
    if x.dtype.kind not in "biuf" or x.dtype.itemsize > 8:
        raise DtypeError(
            f"elements of {x.dtype} cannot be compared as bits\ngive bool, integers or floats to 64 bits"
        )
    native = np.ascontiguousarray(x, x.dtype.newbyteorder("="))
    return native.reshape(x.shape).view(f"u{x.dtype.itemsize}")
