"""Diagrams of a convolution's padding: the taps outside the image, and the products that remain."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from reference.errors import ShapeError
from simwarp.draw.picture import Cell, Grid, Picture, boxes, with_gaps

Pair: TypeAlias = tuple[int, int]

_MOST = 12
"""The most rows and columns of an image or output that are all shown."""
_OUTSIDE = "×"


def exclude_picture(
    image: Pair,
    filter: Pair,
    out: Pair,
    *,
    pad: Pair = (0, 0),
    stride: Pair = (1, 1),
    dilation: Pair = (1, 1),
    pixel: Pair = (0, 0),
    channels: int | None = None,
    popc: int | None = None,
) -> Picture:
    """Draw the window of an output pixel, and count the taps outside the image for every output pixel.

    A tap inside the image is labelled with its row and column in the filter. A tap outside is ``×``, and adds
    nothing to the dot product, where a bit 0 would add -1.

    Parameters
    ----------
    image, filter, out : (rows, columns)
        The sizes of the image, the filter and the output.
    pad : (top, left)
        The rows above the image and the columns left of it in the first window.
    stride, dilation : (vertical, horizontal)
    pixel : (p, q)
        The output pixel.
    channels : int, optional
        Channels of the image; if given, the notes count the products of the dot product.
    popc : int, optional
        The number of bits inside the image in which window and filter differ; if given, the notes compute the
        dot product.

    Returns
    -------
    Picture
        For `to_text` and `to_svg`. Of a large image or output, only a part is shown.

    Raises
    ------
    ShapeError
        For a pixel outside the output, or a number out of range.

    Notes
    -----
    Source: BSTC (SC'19), section 5.2 and ``exclude`` of listing 6.

    Examples
    --------
    >>> from simwarp.draw import to_text
    >>> picture = exclude_picture((3, 3), (3, 3), (3, 3), pad=(1, 1), channels=64, popc=100)
    >>> print(to_text(picture))
    3 × 3 filter over 3 × 3 pixels: output pixel (0, 0)
    <BLANKLINE>
        the window, and the image               taps outside, for each output pixel
    row   -1     0     1     2     3       p, q    0     1     2
        +-----+-----+-----+-----+-----+         +-----+-----+-----+
     -1 |  ×  |  ×  |  ×  |     |     |       0 | [5] |  3  |  5  |
      0 |  ×  | 1,1 | 1,2 |  ·  |     |       1 |  3  |  0  |  3  |
      1 |  ×  | 2,1 | 2,2 |  ·  |     |       2 |  5  |  3  |  5  |
      2 |     |  ·  |  ·  |  ·  |     |         +-----+-----+-----+
      3 |     |     |     |     |     |
        +-----+-----+-----+-----+-----+
    <BLANKLINE>
    Tap r,s of output pixel (p, q) is on row p - 1 + r and column q - 1 + s of the image.
    5 of 9 taps are outside and contribute nothing.
    correction: (9 - 5) taps x 64 channels = 256 products
    raw popc: 100 of them are -1, where the bits differ
    result: 256 - 2 x 100 = 56
    """
    sizes: dict[str, tuple[int, ...]] = {"image": image, "filter": filter, "out": out, "stride": stride}
    sizes |= {"dilation": dilation, "pad": pad, "pixel": pixel}
    _check(**sizes, channels=(1 if channels is None else channels,), popc=(popc or 0,))
    if any(i >= size for i, size in zip(pixel, out, strict=True)):
        raise ShapeError(
            f"pixel={pixel} is not in the output\n"
            f"the output has {out[0]} rows and {out[1]} columns\n"
            f"give (p, q) from (0, 0) to ({out[0] - 1}, {out[1] - 1})"
        )
    down, across = map(_Axis, image, filter, out, pad, stride, dilation, pixel)
    total = filter[0] * filter[1]
    outside = total - down.inside(pixel[0]) * across.inside(pixel[1])
    notes = [
        f"Tap r,s of output pixel (p, q) is on row {down.place('p', 'r')} "
        f"and column {across.place('q', 's')} of the image.",
        f"{outside} of {total} taps are outside and contribute nothing.",
    ]
    if channels is not None:
        products = (total - outside) * channels
        notes.append(f"correction: ({total} - {outside}) taps x {channels} channels = {products} products")
        if popc is not None:
            notes.append(f"raw popc: {popc} of them are -1, where the bits differ")
            notes.append(f"result: {products} - 2 x {popc} = {products - 2 * popc}")
    return Picture(
        f"{filter[0]} × {filter[1]} filter over {image[0]} × {image[1]} pixels: "
        f"output pixel ({pixel[0]}, {pixel[1]})",
        ((_window(down, across), _counts(down, across)),),
        tuple(notes),
    )


class _Axis(NamedTuple):
    """The geometry of a convolution along one axis: sizes, padding, stride and dilation."""

    size: int
    filter: int
    out: int
    pad: int
    stride: int
    dilation: int
    pixel: int

    def taps(self, pixel: int) -> range:
        """The image coordinates of the taps of one output row or column."""
        first = pixel * self.stride - self.pad
        return range(first, first + self.filter * self.dilation, self.dilation)

    def inside(self, pixel: int) -> int:
        """The number of filter taps of an output pixel that lie inside the image, not in its padding."""
        return sum(0 <= tap < self.size for tap in self.taps(pixel))

    def place(self, pixel: str, tap: str) -> str:
        """The formula of a tap's image coordinate, such as "2p - 1 + t", from the names of two indices."""
        stride = pixel if self.stride == 1 else f"{self.stride}{pixel}"
        dilation = tap if self.dilation == 1 else f"{self.dilation}{tap}"
        return f"{stride}{f' - {self.pad}' if self.pad else ''} + {dilation}"

    def shown(self) -> list[int | None]:
        """The indices of the image and its padding to draw along this axis, with None for each gap."""
        last = max(self.size - 1, self.taps(self.out - 1)[-1])
        return _shortened(range(min(0, -self.pad), last + 1), [0, self.size - 1, *self.taps(self.pixel)])

    def shown_pixels(self) -> list[int | None]:
        """The indices of the output to draw along this axis, with None for each gap."""
        return _shortened(range(self.out), [self.pixel])


def _window(down: _Axis, across: _Axis) -> Grid:
    """A grid of the image and its padding, with the taps of one window."""
    rows, columns = down.taps(down.pixel), across.taps(across.pixel)

    def cell(row: int, column: int) -> Cell:
        inside = 0 <= row < down.size and 0 <= column < across.size
        if row in rows and column in columns:
            name = f"{rows.index(row)},{columns.index(column)}"
            return Cell(name, "tint") if inside else Cell(_OUTSIDE, "padding")
        return Cell("·") if inside else Cell("", "gap")

    title = "the window, and the image"
    return boxes(down.shown(), across.shown(), cell, title=title, corner="row", least=3)


def _counts(down: _Axis, across: _Axis) -> Grid:
    """A grid of the number of taps outside the image, for every output pixel."""

    def cell(p: int, q: int) -> Cell:
        outside = str(down.filter * across.filter - down.inside(p) * across.inside(q))
        return Cell(f"[{outside}]", "tint") if (p, q) == (down.pixel, across.pixel) else Cell(outside)

    shown, title = (down.shown_pixels(), across.shown_pixels()), "taps outside, for each output pixel"
    return boxes(*shown, cell, title=title, corner="p, q", least=3)


def _shortened(whole: range, about: list[int]) -> list[int | None]:
    """All indices of a short range; else those at its ends and near ``about``, with None for each gap."""
    near = {i + d for i in (whole[0], whole[-1], *about) for d in (-1, 0, 1)}
    return list(whole) if len(whole) <= _MOST else with_gaps(sorted(i for i in near if i in whole))


def _check(**sizes: tuple[int, ...]) -> None:
    for name, numbers in sizes.items():
        least = int(name not in ("pad", "pixel", "popc"))
        if min(numbers) < least:
            raise ShapeError(
                f"{name}={numbers[0] if len(numbers) == 1 else numbers}\n"
                "sizes, strides and dilations are at least 1, other arguments at least 0\n"
                f"give {name} whole numbers of at least {least}"
            )
