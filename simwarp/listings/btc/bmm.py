"""Listings 3, 4 and 5: the three designs of bit matrix product on the bit tensor core.

Each warp multiplies 8 rows of A with 8 columns of B, 128 bits in a step. Design 1 loads its tiles from
the matrices in global memory; in design 2 one warp of 16 fetches them into shared memory; design 3 has
the matrices in FSB format, where the rows of a tile are neighbours.

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
    """Design 1, listing 3: each warp loads its tiles from rows of A and columns of B.

    Parameters
    ----------
    A : (A_height, A_width / 32), uint32
    B : (B_width, A_width / 32), uint32
        Column by column.
    C : (A_height, B_width), int32; with thresholds (A_height, B_width / 32), uint32
    A_width : int
        In bits, a multiple of 128.
    B_width : int
        A multiple of 8, of bits 32.
    n : int
        The length of the products, without padding.
    options : Options

    Notes
    -----
    Other than in print: ``bx`` is ``blockIdx.x*blockDim.y+threadIdx.y``, the warp's number; with
    ``threadIdx.x`` it would be the thread's, and the lanes of a warp would load from 32 places. Products
    are products (``A+bx*8*A_width/32``, ``C+(bx*8*B_width+by*8)``), where the text we have shows minus
    signs. The amendment ``A_width-2*c_frag.x[i]`` and the store follow the loop over i, in which a step
    would amend what the steps before it had amended, and store every partial sum. A_height, which is not
    used, is left out, n is added: with A_width padding would count as equal elements. Bits, for which
    there are thresholds, leave as in listing 5.

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
    """Design 2, listing 4: one warp fetches 32 × 128 bits of A and of B for the 16 warps of its block.

    Parameters
    ----------
    A, B, C, A_width, B_width, n, options
        As of `BMM`; A_height and B_width are multiples of 32.

    Notes
    -----
    Other than in print, where its name is BMM, too: the loop has ``A_width/128`` steps, not
    ``A_width/32``, and as many ``uint4`` lie between the rows that are fetched, also of B
    (``[(bx*32+laneid)*(A_width/128)+k]``), not A_width and B_width. The amendment is
    ``n-2*c_frag.x[i]``, not of ``A_width/128``, and it and the store follow the loop. A block is
    ``dim3(32,4,4)``, else there are no 16 warps and no ``threadIdx.z``. The store has a product for a
    minus sign, as in `BMM`.

    Grid: (A_height / 32, B_width / 32), blocks of 32 × 4 × 4: 16 warps. Shared: As and Bs, 32 rows of
    128 bits each.
    """
    laneid, (bx, by, _), (_x, wx, wy) = warp.lane, warp.block, _indices(warp)
    As, Bs = warp.shared["As"], warp.shared["Bs"]
    c = Tile(warp, options.operation)
    for k in range(A_width // 128):
        if wx == 0 and wy == 0:  # one warp fetches data for the 16 of the block
            for word in range(4):  # of a uint4
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
    """Design 3, listing 5: both operands in FSB format, the product in bits.

    Parameters
    ----------
    A : (A_height / 8, A_width / 128, 8, 4), uint32
    B : (B_width / 8, A_width / 128, 8, 4), uint32
        (K, N) in tiles of 128 × 8, in columns: its transpose in tiles of 8 × 128, in rows.
    C, A_width, B_width, n, options
        As of `BMM`.

    Notes
    -----
    Other than in print: the loads in print are listing 3's, though the listing is that of the new format:
    tile i of tile row bx is 32 words, ``A+(bx*A_width/128+i)*8*128/32``, and ``ldm`` is 128. ``bx``, the
    products, the amendment and n as in `BMM`.

    Of the output: it follows the loop over i. ``Cs`` is 64 integers for each warp, not one for both, who
    would overwrite one another's; its rows are 8 apart, not B_width. The amendment is not made twice
    (line 15 and lines 18 and 19). ``__ballot`` takes a member mask today (``__ballot_sync``), and after
    the store to ``Cs`` a ``__syncwarp()``, which warps here do not need. The comparison is of signed
    integers: with an unsigned A_width, which the authors' program has, no difference is negative and all
    bits are 1. ``>= 0`` is a threshold for each column. ``Cb`` is ``(uchar*)C``, declared where lanes
    need it; ``-laneid`` stands inside of the index, ``p0.elements[3-laneid]``. That and ``FLIPBITS``, see
    there, are for words with the first bit in the most significant place, where a reversal of the votes
    is missing (``__brev``).

    Grid: (A_height / 16, B_width / 8), blocks of 32 × 2: two warps. Shared: Cs.
    """
    bx, by = warp.block.x * warp.block_dim.y + warp.index, warp.block.y
    c = Tile(warp, options.operation)
    for i in range(A_width // 128):
        a_frag = load_matrix_sync(warp, "matrix_a", A, (bx * A_width // 128 + i) * 8 * 128 // 32, 128)
        b_frag = load_matrix_sync(warp, "matrix_b", B, (by * A_width // 128 + i) * 8 * 128 // 32, 128)
        c.bmma(a_frag, b_frag)
    store_tile(warp, C, bx * 8, by, c.dots(n), B_width, options)


def _indices(warp: Warp) -> tuple[int, int, int]:
    """ThreadIdx of the warp's first thread; y and z are uniform across the warp."""
    x, y, z = (int(axis[0]) for axis in warp.thread)
    return x, y, z


class TensorCoreOptions(ProductOptions, total=False):
    """Keyword arguments of the designs: see `simwarp.listings.btc_bmm1`."""

    operation: Operation
    first: First


class _Design(NamedTuple):
    """A kernel, the tiles of C per block (rows, columns), and the threads of a block."""

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
    """Pad, launch a block per group of tiles of C, download, and crop."""
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
