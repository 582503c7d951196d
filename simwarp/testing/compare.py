"""Bit-by-bit comparison of two results, with a picture of the words that differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError
from reference.types import PackedBits
from simwarp import draw
from simwarp.draw.formats import element


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


def difference(expected: Any, got: Any) -> str:
    """The message of `assert_same_bits`; "" if the results are the same."""
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
    return "" if np.array_equal(_words(x), _words(y)) else _describe(x, y, packed)


def _describe(x: npt.NDArray[Any], y: npt.NDArray[Any], packed: PackedBits | None) -> str:
    """The message for two arrays of one shape and dtype that differ."""
    left, right = _words(x), _words(y)
    wrong = np.argwhere(left != right)
    at = tuple(int(i) for i in wrong[0])
    a, b = int(left[at]), int(right[at])
    bits = [i for i in range(x.dtype.itemsize * 8) if (a ^ b) >> i & 1]
    digits = x.dtype.itemsize * 2
    what = "words" if packed else "elements"
    lines = [
        f"{len(wrong)} of {x.size} {what} differ{'s' * (len(wrong) == 1)}; the first is {list(at)}",
        f"expected {x[at]} (0x{a:0{digits}x}), got {y[at]} (0x{b:0{digits}x}): "
        f"bit{'s' * (len(bits) > 1)} {', '.join(map(str, bits))} differ{'s' * (len(bits) == 1)}",
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
