"""Listings 3, 4 and 5: the three designs of bit matrix product on the bit tensor core.

Each warp multiplies 8 rows of A with 8 columns of B, 128 bits in a step. Design 1 loads its tiles from
matrices in global memory; in design 2 one warp of 16 copies them into shared memory; design 3 has the
matrices in FSB format, where the rows of a tile are contiguous.

>>> A = GlobalArray.of("A", np.zeros((16, 4), np.uint32))  # 16 rows of -1
>>> B = GlobalArray.of("B", np.full((8, 4), 1, np.uint32))  # 8 columns, four +1 in each
>>> C = GlobalArray("C", (16, 8), np.int32)
>>> launch(BMM, (1, 1), (32, 2), A, B, C, 128, 8, 128, Options())
>>> int(C.numpy()[15, 7])
120

Source: BTC (TPDS), section 5.2, listings 3 to 5, equation 2.
"""

# The kernels keep the paper's names.
# ruff: noqa: N802, N803, N806

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, Unpack

import numpy as np

from reference.types import First, PackedBits
from simwarp.lanes import WARP_SIZE, brev
from simwarp.listings.btc.fragments import Operation, Tile, load_matrix_sync
from simwarp.listings.btc.fsb import rows_to_fsb
from simwarp.listings.btc.tiles import TILE_SIDE, Options, most_significant_first, padded, store_tile
from simwarp.listings.fused import ProductOptions
from simwarp.listings.operands import Operand, row_by_row
from simwarp.warp import GlobalArray, Warp, launch


def BMM(
    warp: Warp,
    A: GlobalArray,
    B: GlobalArray,
    C: GlobalArray,
    A_width: int,
    B_width: int,
    n: int,
    options: Options,
) -> None:
    """Listing 3, design 1: each warp loads its tiles from rows of A and columns of B.

    A is uint32 (A_height, A_width / 32), B uint32 (B_width, A_width / 32), column by column, C int32
    (A_height, B_width), or uint32 (A_height, B_width / 32) with thresholds. A_width is in bits, a multiple of
    128, B_width a multiple of 8, for bits of 32; n is the length of the products without padding.

    Other than in print: ``bx`` is ``blockIdx.x*blockDim.y+threadIdx.y``, the warp's number; with
    ``threadIdx.x`` it would be the thread's, and the lanes of a warp would load from 32 addresses. Products
    are products (``A+bx*8*A_width/32``, ``C+(bx*8*B_width+by*8)``), where the text we have shows minus signs.
    The amendment ``A_width-2*c_frag.x[i]`` and the store follow the loop over i; inside it, every step would
    amend and store partial sums. A_height is not used and left out; n is added, since with A_width padding
    would count as equal elements. With thresholds, bits are stored as in listing 5.

    Grid: (A_height / 16, B_width / 8), blocks of 32 × 2: two warps.
    """
    bx, by = warp.block.x * warp.block_dim.y + warp.index, warp.block.y
    c = Tile(warp, options.operation)
    for i in range(A_width // 128):
        a_frag = load_matrix_sync(warp, "matrix_a", A, bx * 8 * A_width // 32 + i * 128 // 32, A_width)
        b_frag = load_matrix_sync(warp, "matrix_b", B, by * 8 * A_width // 32 + i * 128 // 32, A_width)
        c.bmma(a_frag, b_frag)
    store_tile(warp, C, bx * 8, by, c.dots(n), B_width, options)


def BMMs(
    warp: Warp,
    A: GlobalArray,
    B: GlobalArray,
    C: GlobalArray,
    A_width: int,
    B_width: int,
    n: int,
    options: Options,
) -> Generator[None]:
    """Listing 4, design 2: one warp loads 32 × 128 bits of A and of B for the 16 warps of its block.

    The operands are those of `BMM`; A_height and B_width are multiples of 32.

    Other than in print, where its name is BMM, too: the loop has ``A_width/128`` steps, not ``A_width/32``,
    and rows of A and of B are as many ``uint4`` apart (``[(bx*32+laneid)*(A_width/128)+k]``), not A_width and
    B_width. The amendment is ``n-2*c_frag.x[i]``, not ``A_width/128-…``, and it and the store follow the
    loop. A block is ``dim3(32,4,4)``, which gives 16 warps and a ``threadIdx.z``. The store has a product
    instead of a minus sign, as in `BMM`.

    Grid: (A_height / 32, B_width / 32), blocks of 32 × 4 × 4: 16 warps. Shared: As and Bs, 32 rows of 128
    bits each.
    """
    laneid, (bx, by, _) = warp.lane, warp.block
    wx, wy = int(warp.thread.y[0]), int(warp.thread.z[0])  # wx and wy are the same in all lanes
    As, Bs = warp.shared["As"], warp.shared["Bs"]
    c = Tile(warp, options.operation)
    for k in range(A_width // 128):
        if wx == 0 and wy == 0:  # one warp loads data for the 16 of the block
            for word in range(4):  # for each 32-bit word of a uint4
                a = warp.load(A, ((bx * 32 + laneid) * (A_width // 128) + k) * 4 + word)
                b = warp.load(B, ((by * 32 + laneid) * (A_width // 128) + k) * 4 + word)
                warp.store(As, laneid * 4 + word, a)
                warp.store(Bs, laneid * 4 + word, b)
        yield  # for respecting RAW dependency
        a_frag = load_matrix_sync(warp, "matrix_a", As, wx * 8 * 4, 128)
        b_frag = load_matrix_sync(warp, "matrix_b", Bs, wy * 8 * 4, 128)
        c.bmma(a_frag, b_frag)
        yield  # for respecting WAR dependency
    store_tile(warp, C, (bx * 4 + wx) * 8, by * 4 + wy, c.dots(n), B_width, options)


def BMMb(
    warp: Warp,
    A: GlobalArray,
    B: GlobalArray,
    C: GlobalArray,
    A_width: int,
    B_width: int,
    n: int,
    options: Options,
) -> None:
    """Listing 5, design 3: both operands in FSB format, the output in bits.

    A is uint32 (A_height / 8, A_width / 128, 8, 4), and B, the transpose of (K, N), uint32 (B_width / 8,
    A_width / 128, 8, 4); the rest is as in `BMM`.

    Other than in print: the loads in print are those of listing 3, not of the FSB format: here tile i of tile
    row bx is 32 words, ``A+(bx*A_width/128+i)*8*128/32``, and ``ldm`` is 128. ``bx``, the products, the
    amendment and n are as in `BMM`.

    The output follows the loop over i. ``Cs`` has 64 integers for each warp; with 64 for both, the warps
    would overwrite each other's. Its rows are 8 apart, not B_width. The amendment is made once, not twice
    (line 15 and lines 18 and 19). ``__ballot`` takes a member mask today (``__ballot_sync``), and the store
    to ``Cs`` needs a ``__syncwarp()`` after it, which warps here do not. The comparison is of signed
    integers: with the unsigned A_width of the authors' program no difference is negative, and all bits are 1.
    ``>= 0`` is a threshold for each column. ``Cb`` is ``(uchar*)C``, declared in the scope where it is used;
    ``-laneid`` is inside the index, ``p0.elements[3-laneid]``. That and ``FLIPBITS`` are for words with the
    first bit in the most significant place; print lacks the reversal of the votes (``__brev``).

    Grid: (A_height / 16, B_width / 8), blocks of 32 × 2: two warps. Shared: Cs.
    """
    bx, by = warp.block.x * warp.block_dim.y + warp.index, warp.block.y
    c = Tile(warp, options.operation)
    for i in range(A_width // 128):
        a_frag = load_matrix_sync(warp, "matrix_a", A, (bx * A_width // 128 + i) * 8 * 128 // 32, 128)
        b_frag = load_matrix_sync(warp, "matrix_b", B, (by * A_width // 128 + i) * 8 * 128 // 32, 128)
        c.bmma(a_frag, b_frag)
    store_tile(warp, C, bx * 8, by, c.dots(n), B_width, options)


class TensorCoreOptions(ProductOptions, total=False):
    """Keyword arguments of the bit tensor core's products: see `simwarp.listings.btc_bmm1`."""

    operation: Operation
    first: First


class _Design(NamedTuple):
    """A design's kernel, the tiles of C per block (down, across), and the threads of a block."""

    kernel: Callable[..., object]
    down: int
    across: int
    block: tuple[int, ...]
    fsb: bool = False
    shared: tuple[str, ...] = ()
    """Names of shared arrays of 32 rows of 128 bits."""


_DESIGN_1 = _Design(BMM, 2, 1, (WARP_SIZE, 2))
_DESIGN_2 = _Design(BMMs, 4, 4, (WARP_SIZE, 4, 4), shared=("As", "Bs"))
_DESIGN_3 = _Design(BMMb, 2, 1, (WARP_SIZE, 2), fsb=True)


def btc_bmm1(a: Operand, b: Operand, **options: Unpack[TensorCoreOptions]) -> Any:
    """The ±1 product op(a) · op(b) of the signs of two matrices, by BTC's design 1.

    ``c[i, j] = K - 2 * popc(op(a)[i, :] xor op(b)[:, j])``, exact. The kernel pads rows to a multiple of 8,
    columns to 8 (32 for bits) and K to 128.

    Parameters
    ----------
    a : array_like of float64, float32, float16 or int8, or PackedBits; (M, K), or (K, M) if transpose_a
        PackedBits have 32-bit words along K, ``layout="column"``, or "row" if transpose_a, in either bit
        order.
    b : likewise, (K, N), or (N, K) if transpose_b
        PackedBits have ``layout="row"``, or "column" if transpose_b.
    transpose_a, transpose_b : bool, default False
    thresholds : integers in the range of int32, (N,), optional
        Return bits (listing 5): bit (i, j) is 1 where ``c[i, j] >= thresholds[j]``.
    flip : bool, (N,), optional
        The columns whose bits are inverted.
    operation : "xor" or "and", default "xor"
        The operation of the tensor core, Turing's or Hopper's; the product is the same.
    first : "lsb" or "msb", default "lsb"
        The bit order of the kernel's words and of the output. "msb" is the listing's.

    Returns
    -------
    array of int32, (M, N)
        With ``thresholds`` PackedBits instead, ``layout="column"``, ``word=32`` and the given ``first``:
        element (i, j) is bit ``j % 32`` of ``words[j // 32, i]`` for "lsb", bit ``31 - j % 32`` for "msb".
        They are the left operand of the next product.

    Raises
    ------
    ShapeError
        If an operand is not a matrix or has a dimension of 0, if the two K differ, or if there is not one
        threshold and flip per column.
    DtypeError
        For any other element type.
    NotANumberError
        For a NaN; the message names the first.
    FormatError
        For PackedBits in another layout or word size, or whose words do not fit their shape.
    SchemeError
        For ``flip`` without ``thresholds``, or an unknown ``operation`` or ``first``.

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
    """The ±1 product op(a) · op(b) by BTC's design 2, with tiles in shared memory.

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
    """The ±1 product op(a) · op(b) by BTC's design 3, with operands in FSB format.

    Parameters, returns and errors are those of `btc_bmm1`: PackedBits have its layouts and are converted to
    FSB, and bits are returned in its layout, not in FSB as in the listing.

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
    """Pad the operands, launch a block per group of tiles of C, download, and crop."""
    ready = row_by_row(most_significant_first(a), most_significant_first(b), transpose_a, transpose_b, 32)
    options = Options.of(ready.n, **more)
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
    C = options.output("C", (A_height, B_width))
    shared = dict.fromkeys(design.shared, (np.uint32, 32 * 4)) | options.shared(warps)
    grid = A_height // down, B_width // across
    launch(design.kernel, grid, design.block, A, B, C, A_width, B_width, ready.k, options, shared=shared)
    if not options.fused:
        return C.numpy()[: ready.m, : ready.n].copy()
    bits = C.numpy()[: ready.m, : -(-ready.n // WARP_SIZE)]
    return PackedBits(np.ascontiguousarray(bits.T), (ready.m, ready.n), "column", 32, options.first)
