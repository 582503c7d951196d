"""From the integers of a convolution back to bits: a threshold per output channel, and pooling."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reference.pooling import Pool, pool_bits
from reference.tensors import IMAGE_LAYOUTS, check_tensor_format, pack_tensor_bits
from reference.threshold import threshold_bits
from reference.types import First, PackedTensor, TensorLayout, Word


def threshold_tensor(
    dots: npt.ArrayLike,
    thresholds: npt.ArrayLike,
    flip: npt.ArrayLike | None = None,
    *,
    pool: Pool | None = None,
    layout: TensorLayout = "NHWC",
    word: Word = 32,
    first: First = "lsb",
) -> PackedTensor:
    """Binarize the integers of a convolution, pool the bits if asked, and pack them.

    The bit of (n, p, q, o) is 1 where ``dots[n, p, q, o] >= thresholds[o]``, and the opposite where
    ``flip[o]``; then `reference.pooling.pool_bits` joins 2×2 of them. It is what
    ``gpu.bconv2d(…, thresholds=, flip=, pool=)`` and the bit-output listings store: the next layer's images.

    Parameters
    ----------
    dots : integers in the range of int32, (N, P, Q, O)
    thresholds : integers in the range of int32, (O,)
        `reference.integer_thresholds` makes them of a batch normalisation.
    flip : bool, (O,), optional
        None for no channel.
    pool : {"or", "and"}, optional
        None keeps every pixel.
    layout : {"NHWC", "HWNC", "HWNC-FSB"}
    word, first
        The format; see `reference.types.PackedTensor`.

    Returns
    -------
    PackedTensor
        Of shape (N, P, Q, O), pooled (N, P // 2, Q // 2, O).

    Raises
    ------
    ShapeError
        If ``dots`` has not four dimensions, one of them is 0, O differs, or pooling leaves no pixel.
    DtypeError
        For other element types, or integers beyond int32.
    SchemeError
        For an unknown ``pool``, ``layout``, ``word`` or ``first``, or a layout of filters.

    Notes
    -----
    Source: BSTC (SC'19), equations 4 and 5; BTC (TPDS'20), section 6.1.

    Examples
    --------
    >>> dots = np.array([[3, -1], [-5, 1]], np.int32).reshape(1, 1, 2, 2)
    >>> threshold_tensor(dots, [0, 0], [False, True]).words.tolist()
    [[[[3], [0]]]]
    >>> threshold_tensor(np.tile(dots, (1, 2, 1, 1)), [0, 0], pool="or").words.tolist()
    [[[[3]]]]
    """
    check_tensor_format(layout, word, first, IMAGE_LAYOUTS)
    bits = threshold_bits(dots, thresholds, flip, ("N", "P", "Q", "O")).astype(np.uint8)
    return pack_tensor_bits(bits if pool is None else pool_bits(bits, pool), layout, word, first)
