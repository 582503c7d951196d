"""Products of matrices of ±1 by the three designs: operands padded and packed, blocks launched, C cropped.

Source: BTC (TPDS), section 5.2, listings 3 to 5, equation 2.
"""

# The arrays keep the paper's names.
# ruff: noqa: N806

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Unpack

import numpy as np

from reference.types import First, PackedBits
from simwarp.lanes import WARP_SIZE, brev
from simwarp.listings.btc.designs import BMM, BMMb, BMMs
from simwarp.listings.btc.fragments import Operation
from simwarp.listings.btc.fsb import rows_to_fsb
from simwarp.listings.btc.operands import most_significant_first, padded
from simwarp.listings.btc.output import TILE_SIDE, options_of, output_array
from simwarp.listings.fused import ProductOptions
from simwarp.listings.operands import Operand, row_by_row
from simwarp.warp import GlobalArray, launch


class TensorCoreOptions(ProductOptions, total=False):
    """The keyword arguments of the designs: see `simwarp.listings.btc_bmm1`."""

    operation: Operation
    first: First


class _Design(NamedTuple):
    """A kernel, the tiles of C in a block, down and across, and the block's threads."""

    kernel: Callable[..., object]
    down: int
    across: int
    block: tuple[int, ...]
    fsb: bool = False
    shared: tuple[str, ...] = ()
    """Arrays of 32 rows of 128 bits."""


_DESIGN_1 = _Design(BMM, 2, 1, (WARP_SIZE, 2))
_DESIGN_2 = _Design(BMMs, 4, 4, (WARP_SIZE, 4, 4), shared=("As", "Bs"))
_DESIGN_3 = _Design(BMMb, 2, 1, (WARP_SIZE, 2), fsb=True)


def btc_bmm1(a: Operand, b: Operand, **options: Unpack[TensorCoreOptions]) -> Any:
    """The ±1 product op(a) · op(b) of the signs of two matrices, by design 1 on the bit tensor core.

    ``c[i, j] = K - 2 * popc(op(a)[i, :] xor op(b)[:, j])``, exact. Rows are padded to 8, columns to 8, of
    bits to 32, and K to 128.

    Parameters
    ----------
    a : array_like of float64, float32, float16 or int8, or PackedBits; (M, K), or (K, M) if transpose_a
        PackedBits of 32-bit words along K, either bit first: ``layout="column"``, or "row" if transpose_a.
    b : likewise, (K, N), or (N, K) if transpose_b
        PackedBits have ``layout="row"``, or "column" if transpose_b.
    transpose_a, transpose_b : bool, default False
    thresholds : integers in the range of int32, (N,), optional
        Ask for bits (listing 5): bit (i, j) is 1 where ``c[i, j] >= thresholds[j]``.
    flip : bool, (N,), optional
        The columns whose bits are reversed.
    operation : "xor" or "and", default "xor"
        Of the tensor core, Turing's or Hopper's; the product is the same.
    first : "lsb" or "msb", default "lsb"
        The order of the bits in the words of operands and output inside. "msb" is the listing's.

    Returns
    -------
    array of int32, (M, N)
        With ``thresholds`` PackedBits instead, ``layout="column"``, ``word=32``, ``first`` as asked for:
        bit (i, j) is in ``words[j // 32, i]``, for "lsb" at ``j % 32`` from the least significant, for
        "msb" at ``31 - j % 32``. They are the left operand of a next product.

    Raises
    ------
    ShapeError
        If an operand is not a matrix, has a dimension of 0, the two K differ, or there is not one
        threshold and flip per column.
    DtypeError
        For any other element type.
    NotANumberError
        For a NaN; names the first.
    FormatError
        For PackedBits in another layout or word size, or whose words do not fit them.
    SchemeError
        For ``flip`` without ``thresholds``, another operation or another order of bits.

    Notes
    -----
    Source: BTC (TPDS), section 5.2, listing 3 (and listing 5, for bits); equations 1 and 2.

    Examples
    --------
    >>> btc_bmm1([[2.0, -3.0, 0.0]], [[1.0], [1.0], [-1.0]])
    array([[-1]], dtype=int32)
    >>> btc_bmm1([[2.0, -3.0, 0.0]], [[1.0], [1.0], [-1.0]], thresholds=[-1]).words
    array([[1]], dtype=uint32)
    """
    return _run(_DESIGN_1, a, b, **options)


def btc_bmm2(a: Operand, b: Operand, **options: Unpack[TensorCoreOptions]) -> Any:
    """The ±1 product op(a) · op(b) by design 2, with tiles in shared memory.

    Parameters, returns and errors are those of `btc_bmm1`. Rows and columns are padded to 32.

    Notes
    -----
    Source: BTC (TPDS), section 5.2, listing 4 (and listing 5, for bits); equations 1 and 2.

    Examples
    --------
    >>> btc_bmm2([[2.0, -3.0, 0.0]], [[1.0], [1.0], [-1.0]], operation="and")
    array([[-1]], dtype=int32)
    """
    return _run(_DESIGN_2, a, b, **options)


def btc_bmm3(a: Operand, b: Operand, **options: Unpack[TensorCoreOptions]) -> Any:
    """The ±1 product op(a) · op(b) by design 3, with operands in FSB format.

    Parameters, returns and errors are those of `btc_bmm1`: PackedBits come in its layouts and become FSB
    inside, and bits are returned in its layout, not in FSB as in the listing.

    Notes
    -----
    Source: BTC (TPDS), sections 5.1 and 5.2, listing 5; equations 1 and 2.

    Examples
    --------
    >>> btc_bmm3([[2.0, -3.0, 0.0]], [[1.0], [1.0], [-1.0]], thresholds=[-1], first="msb").words
    array([[2147483648]], dtype=uint32)
    """
    return _run(_DESIGN_3, a, b, **options)


def _run(
    design: _Design,
    a: Operand,
    b: Operand,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    **more: Any,
) -> Any:
    """Pad, launch a block for each group of tiles of C, download, and crop."""
    ready = row_by_row(most_significant_first(a), most_significant_first(b), transpose_a, transpose_b, 32)
    options = options_of(ready.n, **more)
    warps = math.prod(design.block) // WARP_SIZE
    down, across = TILE_SIDE * design.down, TILE_SIDE * design.across
    words = (brev(x.numpy().T) if options.first == "lsb" else x.numpy().T for x in ready[:2])
    multiples = down, WARP_SIZE if options.fused else across
    rows, columns = (padded(x, multiple) for x, multiple in zip(words, multiples, strict=True))
    A_height, B_width, A_width = len(rows), len(columns), rows.shape[1] * WARP_SIZE
    A, B = (
        GlobalArray.of(name, rows_to_fsb(x) if design.fsb else x, read_only=True)
        for name, x in (("A", rows), ("B", columns))
    )
    C = output_array("C", (A_height, B_width), options)
    shared = dict.fromkeys(design.shared, (np.uint32, 32 * 4)) | options.shared(warps)
    grid = A_height // down, B_width // across
    launch(design.kernel, grid, design.block, A, B, C, A_width, B_width, ready.k, options, shared=shared)
    if not options.fused:
        return C.numpy()[: ready.m, : ready.n].copy()
    bits = C.numpy()[: ready.m, : -(-ready.n // WARP_SIZE)]
    return PackedBits(np.ascontiguousarray(bits.T), (ready.m, ready.n), "column", 32, options.first)
