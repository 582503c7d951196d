"""The types of packed bit matrices, images and filters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from reference.values import compared, not_an_array, shortened

Layout: TypeAlias = Literal["row", "column"]
Word: TypeAlias = Literal[32, 64]
First: TypeAlias = Literal["msb", "lsb"]
TensorLayout: TypeAlias = Literal["NHWC", "HWNC", "HWNC-FSB", "HWOI", "HWIO", "HWOI-FSB"]


@not_an_array("pass its words, or reference.unpack(x) for the numbers +1 and -1")
@shortened
@compared
@dataclass(frozen=True, eq=False)
class PackedBits:
    """A bit matrix packed into words of 32 or 64 bits. Bit 1 means +1 and bit 0 means -1.

    With ``W`` the word size, element (r, c) of a (rows, columns) matrix is one bit:

    * ``layout="column"`` (BSTC column-major-W, figure 4): W consecutive elements of a *row* make a
      word; ``words`` has shape (ceil(columns / W), rows) and the bit is in ``words[c // W, r]``.
    * ``layout="row"`` (BSTC row-major-W, figure 4): W consecutive elements of a *column* make a
      word; ``words`` has shape (ceil(rows / W), columns) and the bit is in ``words[r // W, c]``.

    A stack of B matrices has one more axis in front: ``words[i]`` are those of matrix i.

    With ``i = c % W`` (column) or ``r % W`` (row), the bit, counted from the least significant,
    is ``W - 1 - i`` for ``first="msb"`` and ``i`` for ``first="lsb"``. Bits past the
    edge of the matrix are 0.

    Attributes
    ----------
    words : array of uint32 or uint64, C order
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
    """The bits of images or filters, 32 or 64 channels to a word. Bit 1 means +1 and bit 0 means -1.

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

    The FSB layouts have 32-bit words only, in tiles of 8 images or filters by 128 channels: 128 consecutive
    bytes. Bits past C, and in FSB tiles past N or O, are 0.

    Attributes
    ----------
    words : array of uint32 or uint64, C order
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
