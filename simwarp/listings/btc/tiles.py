"""The bit tensor core's operands, padded to tiles, and its output tiles, stored as sums or bits (listing 5).

Source: BTC (TPDS), section 5.1 (padding), 5.2, listing 5, and 6.2 (8 rows, 128 bits).
"""

# The arrays keep the paper's names.
# ruff: noqa: N802, N803, N806

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from reference.types import First, PackedBits, PackedTensor
from simwarp.lanes import brev
from simwarp.listings.btc.fragments import Fragment, Operation, store_matrix_sync
from simwarp.listings.btc.fsb import Words
from simwarp.listings.checks import check_choice
from simwarp.listings.fused import Fused, fuse
from simwarp.warp import GlobalArray, Warp

T = TypeVar("T")

TILE_SIDE = 8
TILE_SIZE = TILE_SIDE * TILE_SIDE


class Options(NamedTuple):
    """Parameters of the kernels that the listings do not have."""

    operation: Operation = "xor"  # the tensor core's operation on bits
    fused: Fused | None = None  # thresholds, if the output is bits
    first: First = "lsb"  # bit order of the output

    def shared(self, warps: int) -> dict[str, tuple[Any, int]]:
        """The shared memory that `store_tile` needs, for a block of these warps."""
        return {"Cs": (np.int32, TILE_SIZE * warps)} if self.fused else {}

    def output(self, name: str, shape: tuple[int, ...]) -> GlobalArray:
        """Allocate the output: int32 sums, or uint32 with 32 columns per word."""
        if self.fused:
            return GlobalArray(name, (*shape[:-1], shape[-1] // 32), np.uint32)
        return GlobalArray(name, shape, np.int32)

    @classmethod
    def of(
        cls,
        columns: int,
        *,
        thresholds: npt.ArrayLike | None = None,
        flip: npt.ArrayLike | None = None,
        operation: Operation = "xor",
        first: First = "lsb",
    ) -> Options:
        """Check the options of a product with ``columns`` columns."""
        check_choice("operation", operation, get_args(Operation))
        check_choice("first", first, get_args(First))
        return cls(operation, fuse(thresholds, flip, columns), first)


def store_tile(
    warp: Warp, C: GlobalArray, row: int, by: int, dots: Fragment, width: int, options: Options
) -> None:
    """Store an 8 × 8 tile of sums, or their bits, to C from row ``row`` and column ``8 * by`` on.

    C is (rows, width), int32; for bits (rows, width / 32), uint32, and the block's shared array ``Cs`` has
    64 int32 for each warp. The width is a multiple of 4, and of 32 for bits.

    Bits are stored by lines 16 to 22 of listing 5. The four bytes of a vote are four rows of the tile, row 0
    in the lowest byte, column 0 in its lowest bit. ``first="lsb"`` stores them unchanged. ``first="msb"``,
    the listing's, reverses the vote: then row 0 is the highest byte, and byte ``by`` of a row is byte
    ``FLIPBITS(by, 2)`` in memory.
    """
    if options.fused is None:
        store_matrix_sync(warp, C, row * width + by * TILE_SIDE, dots, ldm=width)
        return
    laneid, Cs, Cb = warp.lane, warp.shared["Cs"], C.view(np.uint8)
    own = warp.index * TILE_SIZE
    store_matrix_sync(warp, Cs, own, dots, ldm=TILE_SIDE)
    column = by * TILE_SIDE + laneid % TILE_SIDE
    p0 = options.fused.vote(warp, warp.load(Cs, own + laneid), column)
    p1 = options.fused.vote(warp, warp.load(Cs, own + laneid + 32), column)
    element = laneid
    if options.first == "msb":
        p0, p1, element, by = brev(p0), brev(p1), 3 - laneid, FLIPBITS(by, 2)
    with warp.where(laneid < 4):
        warp.store(Cb, (row + laneid) * (width // 8) + by, _byte(p0, element))
        warp.store(Cb, (row + 4 + laneid) * (width // 8) + by, _byte(p1, element))


def FLIPBITS(n: Any, b: int) -> Any:
    """Flip the last b bits of n: the index of a byte counted from the other end of its word.

    Other than in print: ``(1u<<(b))-1``; ``1u<<(b)-1`` would flip a single bit.

    >>> [FLIPBITS(n, 2) for n in range(6)]
    [3, 2, 1, 0, 7, 6]
    """
    return n ^ ((1 << b) - 1)


def _byte(word: npt.NDArray[np.uint32], element: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
    """The byte ``p.elements[element]`` of the listing's union; lanes with an element above 3 discard it."""
    return (word >> (8 * (element % 4)) & 0xFF).astype(np.uint8)


def most_significant_first(x: T) -> T:
    """Bit-reverse 32-bit words packed from the least significant bit; return other arrays unchanged."""
    if not isinstance(x, PackedBits | PackedTensor) or x.first != "lsb":
        return x
    on_host = isinstance(x.words, np.ndarray)
    words: npt.NDArray[Any] = x.words
    if not on_host or words.dtype != np.uint32:
        return x
    return replace(x, words=brev(words), first="msb")


def padded(rows: Words, multiple: int) -> Words:
    """Rows of words, (…, rows, words), zero-padded to a multiple of ``multiple`` rows and of 128 bits."""
    height, words = rows.shape[-2:]
    around = [(0, 0)] * (rows.ndim - 2) + [(0, -height % multiple), (0, -words % 4)]
    return np.pad(rows, around)
