"""The types of packed bit matrices, images and filters, and the table of their formats.

A format is a layout of `LAYOUTS`, a word size of `WORDS` and a bit order of `FIRSTS`:

>>> words_shape("column", 64, (5, 200)), words_shape("column", 128, (5, 200))
((4, 5), (2, 5, 2))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from reference.errors import SchemeError
from reference.types.arguments import check_option
from reference.values import compared, not_an_array, shortened

Layout: TypeAlias = Literal["row", "column"]
Word: TypeAlias = Literal[32, 64, 128]
First: TypeAlias = Literal["msb", "lsb"]
ImageLayout: TypeAlias = Literal["NHWC", "HWNC", "HWNC-FSB"]
FilterLayout: TypeAlias = Literal["HWOI", "HWIO", "HWOI-FSB"]
TensorLayout: TypeAlias = Literal[ImageLayout, FilterLayout]

WORDS: tuple[Word, ...] = get_args(Word)
"""The word sizes. A word of more than 64 bits is several uint64 in a last axis, the lowest bits first."""
FIRSTS: tuple[First, ...] = get_args(First)
"""The orders of elements in a word."""
WORD_DTYPES = {word: np.dtype(f"uint{min(word, 64)}") for word in WORDS}
"""The dtype of the array of words, by word size."""
FSB_TILE = 8, 128
"""Lines and bits of a tile of the FSB layouts (BTC, section 5.1)."""


class Arrangement(NamedTuple):
    """The order in which a layout stores the axes of the values."""

    axes: str
    """The axes of the values, for messages."""
    order: tuple[int, ...]
    """Axis i of the words is axis ``order[i]`` of the values; then tiles cut the last two axes."""
    along: int
    """The axis of the values whose consecutive elements share a word."""
    tile: tuple[int, int] | None = None
    """Lines and bits of a tile."""
    words: tuple[Word, ...] = WORDS
    """The word sizes that the layout has."""


_MATRIX, _IMAGES, _FILTERS = "(rows, columns)", "(N, H, W, C)", "(R, S, C, O)"
LAYOUTS: dict[str, Arrangement] = {
    "row": Arrangement(_MATRIX, (0, 1), 0),
    "column": Arrangement(_MATRIX, (1, 0), 1),
    "NHWC": Arrangement(_IMAGES, (0, 1, 2, 3), 3),
    "HWNC": Arrangement(_IMAGES, (1, 2, 0, 3), 3),
    "HWNC-FSB": Arrangement(_IMAGES, (1, 2, 0, 3), 3, FSB_TILE, (32,)),
    "HWOI": Arrangement(_FILTERS, (0, 1, 3, 2), 2),
    "HWIO": Arrangement(_FILTERS, (0, 1, 2, 3), 2),
    "HWOI-FSB": Arrangement(_FILTERS, (0, 1, 3, 2), 2, FSB_TILE, (32,)),
}
"""The layouts of packed matrices, images and filters, by name."""

MATRIX_LAYOUTS: tuple[Layout, ...] = get_args(Layout)
IMAGE_LAYOUTS: tuple[TensorLayout, ...] = get_args(ImageLayout)
FILTER_LAYOUTS: tuple[TensorLayout, ...] = get_args(FilterLayout)
TENSOR_LAYOUTS = IMAGE_LAYOUTS + FILTER_LAYOUTS


def parts_of(word: Word) -> tuple[int, ...]:
    """The last axis of words that consist of several numbers: (2,) for 128 bits, () for 32 and 64."""
    return (word // 64,) if word > 64 else ()


def words_shape(layout: Layout | TensorLayout, word: Word, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the words of values of ``shape``; a stack of matrices has one more axis in front."""
    _, order, along, tile, _ = LAYOUTS[layout]
    stack, sizes = shape[: -len(order)], list(shape[-len(order) :])
    sizes[along] = -(-sizes[along] // word)
    *outer, lines, words = (sizes[axis] for axis in order)
    inner: tuple[int, ...] = lines, words
    if tile:
        height, width = tile[0], tile[1] // word
        inner = -(-lines // height), -(-words // width), height, width
    return *stack, *outer, *inner, *parts_of(word)


def check_format(
    layout: object, word: object, first: object, layouts: Sequence[str] = MATRIX_LAYOUTS
) -> None:
    """Raise SchemeError unless layout, word and first are a format of packed bits, in ``layouts``."""
    options = {"layout": (layout, layouts), "word": (word, WORDS), "first": (first, FIRSTS)}
    for option, (given, known) in options.items():
        check_option(option, given, known, "layout, word and first are the format of packed bits")
    form = LAYOUTS[str(layout)]
    if form.tile and word not in form.words:
        sizes = " or ".join(map(str, form.words))
        raise SchemeError(
            f"there is no layout={layout!r} with word={word}\n"
            f"a tile is {form.tile[0]} by {form.tile[1]} bits, in words of {sizes} bits\n"
            f"choose word={sizes}"
        )


@not_an_array("pass its words, or reference.unpack(x) for the numbers +1 and -1")
@shortened
@compared
@dataclass(frozen=True, eq=False)
class PackedBits:
    """A bit matrix packed into words of 32, 64 or 128 bits. Bit 1 means +1 and bit 0 means -1.

    With ``W`` the word size, element (r, c) of a (rows, columns) matrix is one bit:

    * ``layout="column"`` (BSTC column-major-W, figure 4): W consecutive elements of a *row* make a
      word; ``words`` has shape (ceil(columns / W), rows) and the bit is in ``words[c // W, r]``.
    * ``layout="row"`` (BSTC row-major-W, figure 4): W consecutive elements of a *column* make a
      word; ``words`` has shape (ceil(rows / W), columns) and the bit is in ``words[r // W, c]``.

    A stack of B matrices has one more axis in front: ``words[i]`` are those of matrix i. As NumPy has no
    integers of 128 bits, such a word is two uint64 in one more axis at the end, bits 0 to 63 in ``[..., 0]``.

    With ``i = c % W`` (column) or ``r % W`` (row), the bit, counted from the least significant,
    is ``W - 1 - i`` for ``first="msb"`` and ``i`` for ``first="lsb"``. Bits past the
    edge of the matrix are 0.

    Attributes
    ----------
    words : array of uint32, of uint64 for words of 64 and 128 bits, C order
        On the host (NumPy) or on a device.
    shape : tuple of int
        (rows, columns) of the matrix, without padding; (B, rows, columns) of a stack.
    layout, word, first
        The format, as above.

    Source: BSTC (SC'19), section 5.1 and figure 4.
    """

    words: Any
    shape: tuple[int, ...]
    layout: Layout
    word: Word = 32
    first: First = "msb"


@not_an_array("pass its words, or reference.unpack_tensor(x) for the numbers +1 and -1")
@shortened
@compared
@dataclass(frozen=True, eq=False)
class PackedTensor:
    """The bits of images or filters, 32, 64 or 128 channels to a word. Bit 1 means +1 and bit 0 means -1.

    Images have the shape (N, H, W, C), filters (R, S, C, O). With L the word size (``word``), channel c is in
    word ``k = c // L``. Its bit, counted from the least significant, is ``c % L`` for ``first="lsb"`` and
    ``L - 1 - c % L`` for ``first="msb"``. Word k of pixel (n, h, w), or of tap (r, s) of filter o, is:

    ============== ============================================= ========================================
    layout         shape of ``words``                            word
    ============== ============================================= ========================================
    ``NHWC``       (N, H, W, ceil(C / L))                        ``words[n, h, w, k]``
    ``HWNC``       (H, W, N, ceil(C / L))                        ``words[h, w, n, k]``
    ``HWNC-FSB``   (H, W, ceil(N / 8), ceil(C / 128), 8, 4)      ``words[h, w, n // 8, k // 4, n % 8, k % 4]``
    ``HWOI``       (R, S, O, ceil(C / L))                        ``words[r, s, o, k]``
    ``HWIO``       (R, S, ceil(C / L), O)                        ``words[r, s, k, o]``
    ``HWOI-FSB``   (R, S, ceil(O / 8), ceil(C / 128), 8, 4)      ``words[r, s, o // 8, k // 4, o % 8, k % 4]``
    ============== ============================================= ========================================

    A word of 128 bits is two uint64 in one more axis at the end, bits 0 to 63 first. The FSB layouts have
    32-bit words only, in tiles of 8 images or filters by 128 channels: 128 consecutive bytes. Bits past C,
    and in FSB tiles past N or O, are 0.

    Attributes
    ----------
    words : array of uint32, of uint64 for words of 64 and 128 bits, C order
        On the host (NumPy) or on a device.
    shape : tuple of int
        (N, H, W, C) of images, (R, S, C, O) of filters, without padding, whatever the layout.
    layout, word, first
        The format, as above.

    Source: BSTC (SC'19), section 5.2 (``HWIO``, its bitfilter); BTC (TPDS'20), sections 5.1 and 5.3 and
    figure 14 (``HWNC`` and the FSB tiles).
    """

    words: Any
    shape: tuple[int, int, int, int]
    layout: TensorLayout
    word: Word = 32
    first: First = "lsb"
