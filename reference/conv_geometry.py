"""Geometry of a convolution: output size, padding, and the taps that are outside the image.

Source: the rules of TensorFlow's ``tf.nn.convolution`` ("SAME", "VALID"); BSTC (SC'19), section 5.2.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import SchemeError, ShapeError

PerAxis: TypeAlias = int | tuple[int, int]
"""One number for both axes, or (vertical, horizontal)."""
_Name: TypeAlias = Literal["SAME", "VALID", "same", "valid"]
Padding: TypeAlias = _Name | PerAxis | tuple[tuple[int, int], tuple[int, int]]
"""A rule of TensorFlow, pixels on all sides, (vertical, horizontal), or ((top, bottom), (left, right))."""

_Side: TypeAlias = Literal["SAME", "VALID"] | tuple[int, int]

LARGEST = 2**31 - 1
"""The most elements of a tensor, rows or columns of a padded image, and terms of a sum."""


@dataclass(frozen=True)
class ConvGeometry:
    """The sizes, padding, stride and dilation of a convolution, as numbers.

    Tap (r, s) of output pixel (p, q) reads image row ``p * stride_h - pad_top + r * dilation_h``
    and column ``q * stride_w - pad_left + s * dilation_w``, if both are inside the image.

    Attributes
    ----------
    batch, height, width, channels : int
        N, H, W, C of the images.
    filter_height, filter_width, filters : int
        R, S, O of the filters.
    out_height, out_width : int
        P, Q of the output.
    pad_top, pad_left : int
        Rows above and columns left of the image. Those below and on the right only affect P and Q.
    stride_h, stride_w, dilation_h, dilation_w : int
    """

    batch: int
    height: int
    width: int
    channels: int
    filter_height: int
    filter_width: int
    filters: int
    out_height: int
    out_width: int
    pad_top: int
    pad_left: int
    stride_h: int
    stride_w: int
    dilation_h: int
    dilation_w: int

    def rows(self, r: int) -> npt.NDArray[np.int64]:
        """The image row that filter row ``r`` reads for each output row; (P,).

        Examples
        --------
        >>> conv_geometry((1, 4, 4, 1), (3, 3, 1, 1)).rows(0)
        array([-1,  0,  1,  2])
        """
        return np.arange(self.out_height) * self.stride_h - self.pad_top + r * self.dilation_h

    def columns(self, s: int) -> npt.NDArray[np.int64]:
        """The image column that filter column ``s`` reads for each output column; (Q,).

        Examples
        --------
        >>> conv_geometry((1, 4, 4, 1), (3, 3, 1, 1)).columns(2)
        array([1, 2, 3, 4])
        """
        return np.arange(self.out_width) * self.stride_w - self.pad_left + s * self.dilation_w


def conv_geometry(
    x_shape: tuple[int, ...],
    w_shape: tuple[int, ...],
    *,
    stride: PerAxis = 1,
    padding: Padding = "SAME",
    dilation: PerAxis = 1,
    groups: int = 1,
) -> ConvGeometry:
    """Resolve the options of a convolution into numbers.

    The dilated filter spans ``window = (R - 1) * dilation + 1`` rows. For an image of H rows

    * ``"VALID"`` pads nothing, so windows are inside: ``P = (H - window) // stride + 1``;
    * ``"SAME"`` has ``P = ceil(H / stride)`` and pads ``max((P - 1) * stride + window - H, 0)`` rows,
      half of them above, the odd one below;
    * ``((top, bottom), (left, right))`` has ``P = (H + top + bottom - window) // stride + 1``;
    * ``(v, h)`` is ``((v, v), (h, h))``, and ``p`` is ``(p, p)``, as of PyTorch;

    and likewise for columns. The padding of "SAME" depends on the stride: it is not ``R // 2`` per side.

    Parameters
    ----------
    x_shape : (N, H, W, C)
    w_shape : (R, S, C, O)
    stride, dilation : int or (vertical, horizontal), at least 1
    padding : {"SAME", "VALID"}, int, (vertical, horizontal) or ((top, bottom), (left, right)), at least 0
        Names in capitals or small letters.
    groups : int
        C and O are shared by so many groups, and w has C / groups channels.

    Returns
    -------
    ConvGeometry
        With groups that of one: its channels and its filters.

    Raises
    ------
    ShapeError
        If a shape does not have four dimensions of at least 1, the two C differ, an option has a wrong
        length, is not of ints or is out of range, P or Q would be less than 1, or more than 2**31 - 1
        elements in x, w or y, terms in a sum (R * S * C), or rows or columns of the padded image.
    SchemeError
        For an unknown name of padding, or groups below 1.

    Notes
    -----
    Source: TensorFlow's ``tf.nn.convolution``, notes on padding.

    Examples
    --------
    >>> g = conv_geometry((1, 224, 224, 3), (7, 7, 3, 64), stride=4)
    >>> g.out_height, g.pad_top  # 3 rows in all, where 7 // 2 on either side would be 6
    (56, 1)
    """
    if type(groups) is not int or groups < 1:
        raise SchemeError(
            f"groups={groups!r}\nit is the number of groups of channels\ngive an int of 1 or more"
        )
    batch, height, width, channels = _four(x_shape, "x", "(N, H, W, C)")
    filter_height, filter_width, w_channels, filters = _four(w_shape, "w", "(R, S, C, O)")
    if groups > 1 and (channels != groups * w_channels or filters % groups):
        raise ShapeError(
            f"x {x_shape} and w {w_shape} do not fit in {groups} groups\n"
            f"each group has {w_channels} input channels of w, and as many filters as the others\n"
            f"give w as (R, S, C / {groups}, O), with C and O multiples of {groups}"
        )
    if channels != groups * w_channels:
        raise ShapeError(
            f"x {x_shape} and w {w_shape} do not fit\n"
            f"the channels of x ({channels}) must be the input channels of w ({w_channels})\n"
            "give x as (N, H, W, C) and w as (R, S, C, O); to_layout reorders the axes"
        )
    stride_h, stride_w = _per_axis(stride, "stride")
    dilation_h, dilation_w = _per_axis(dilation, "dilation")
    rows, columns = _padding(padding)
    window = (filter_height - 1) * dilation_h + 1, (filter_width - 1) * dilation_w + 1
    out_height, pad_top = _axis(height, window[0], stride_h, rows, "height")
    out_width, pad_left = _axis(width, window[1], stride_w, columns, "width")
    for name, count in (
        ("x", batch * height * width * channels),
        ("w", filter_height * filter_width * channels * filters),
        ("y", batch * out_height * out_width * filters),
        ("a sum, R * S * C,", filter_height * filter_width * w_channels),
    ):
        if count > LARGEST:
            raise ShapeError(
                f"x {x_shape}, w {w_shape} with the output {(batch, out_height, out_width, filters)}\n"
                f"{name} would have {count} elements, more than {LARGEST}, the largest int32\n"
                "split the batch or the output channels, or add the results of parts of the channels"
            )
    # A step larger than LARGEST is clipped: it is only ever multiplied by 0.
    steps = (min(step, LARGEST) for step in (stride_h, stride_w, dilation_h, dilation_w))
    return ConvGeometry(
        *(batch, height, width, w_channels, filter_height, filter_width, filters // groups),
        *(out_height, out_width, pad_top, pad_left, *steps),
    )


def excluded_taps(geometry: ConvGeometry) -> npt.NDArray[np.int64]:
    """Count the taps outside the image for each output pixel.

    The window of output pixel (0, 0), a 3×3 filter on a 4×4 image with padding "SAME"::

        · · ·              # tap inside the image: 4
        · # # o o          · tap outside: 5, they contribute nothing
        · # # o o          o pixel outside this window
          o o o o
          o o o o

    A zero bit means −1, so a padded zero is not neutral: a kernel that reads zero words outside the image
    and sums over all taps adds C wrong terms for each tap outside.

    Parameters
    ----------
    geometry : ConvGeometry
        As returned by `conv_geometry`.

    Returns
    -------
    array of int64, (P, Q)
        From 0 to R * S.

    Notes
    -----
    Source: BSTC (SC'19), section 5.2 and ``exclude`` of listing 6.

    Examples
    --------
    >>> excluded_taps(conv_geometry((1, 4, 4, 1), (3, 3, 1, 1)))
    array([[5, 3, 3, 5],
           [3, 0, 0, 3],
           [3, 0, 0, 3],
           [5, 3, 3, 5]])
    """
    g = geometry
    rows = sum(inside(g.rows(r), g.height) for r in range(g.filter_height))
    columns = sum(inside(g.columns(s), g.width) for s in range(g.filter_width))
    return g.filter_height * g.filter_width - np.multiply.outer(rows, columns)


def inside(positions: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.bool_]:
    """True for each row or column inside an image of ``size`` of them."""
    return (positions >= 0) & (positions < size)


def _axis(size: int, window: int, stride: int, padding: _Side, name: str) -> tuple[int, int]:
    """The size of the output along one axis, and the padding before the image."""
    if padding == "SAME":
        out = -(-size // stride)
        total = max((out - 1) * stride + window - size, 0)
        before, after = total // 2, total - total // 2
    else:
        before, after = (0, 0) if padding == "VALID" else padding
        out = (size + before + after - window) // stride + 1
    if out < 1:
        raise ShapeError(
            f"the output's {name} would be {max(out, 0)}: padding={padding!r}\n"
            f"the dilated filter spans {window}, the padded image {before} + {size} + {after}\n"
            'give more padding, e.g. "SAME", a smaller filter or less dilation'
        )
    if before + size + after > LARGEST:
        raise ShapeError(
            f"the padded image's {name} would be {before} + {size} + {after}\n"
            f"that is more than {LARGEST}, the largest int32\n"
            "give less padding or dilation"
        )
    return out, before


_PADDINGS = "'SAME', 'VALID', an int, (vertical, horizontal) or ((top, bottom), (left, right))"


def _padding(padding: Any) -> tuple[_Side, _Side]:
    """The padding of rows and of columns: a name for each, or (before, after)."""
    if isinstance(padding, str):
        rule = padding.upper()
        if rule == "SAME" or rule == "VALID":
            return rule, rule
        raise SchemeError(f"there is no padding={padding!r}\nthe names are TensorFlow's\nchoose {_PADDINGS}")
    try:
        axes = tuple(padding) if np.iterable(padding) else (padding, padding)
        rows, columns = axes if any(map(np.iterable, axes)) else ((size, size) for size in axes)
        sides = _two_whole(rows), _two_whole(columns)
    except (TypeError, ValueError):
        raise ShapeError(
            f"padding={padding!r} is neither an int nor two ints nor two pairs of ints\n"
            "each side has its own number of rows or columns\n"
            f"give {_PADDINGS}"
        ) from None
    if min(*sides[0], *sides[1]) < 0:
        raise ShapeError(
            f"padding={padding!r} has a negative entry\n"
            "padding adds rows and columns, at least 0 on each side\n"
            "crop x instead"
        )
    return sides


def _per_axis(given: Any, name: str) -> tuple[int, int]:
    """A stride or dilation as (vertical, horizontal)."""
    try:
        pair = _two_whole(given if np.iterable(given) else (given, given))
    except (TypeError, ValueError):
        raise ShapeError(
            f"{name}={given!r} is neither an int nor two ints\n"
            f"a convolution of images has one {name} per axis\n"
            "give one int for both axes, or (vertical, horizontal)"
        ) from None
    if min(pair) < 1:
        raise ShapeError(
            f"{name}={given!r} has an entry below 1\n"
            f"{name}=1 moves to the next pixel, so it is at least 1\n"
            f"give a {name} of 1 or more"
        )
    return pair


def _two_whole(pair: Any) -> tuple[int, int]:
    """Check that a value is a pair of ints; raise TypeError or ValueError otherwise."""
    first, second = pair
    return operator.index(first), operator.index(second)


def _four(shape: tuple[int, ...], name: str, axes: str) -> tuple[int, int, int, int]:
    """The four dimensions of a shape; raise ShapeError unless each is at least 1."""
    if len(shape) != 4 or min(shape) < 1:
        raise ShapeError(
            f"{name} has shape {shape}\n"
            f"it must have four dimensions {axes}, each at least 1\n"
            "add missing axes with reshape; where a dimension is 0, there is nothing to compute"
        )
    return shape[0], shape[1], shape[2], shape[3]
