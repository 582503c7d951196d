"""Bit fragments in kernels written in Python: ``load_matrix_sync``, ``bmma_sync``, ``store_matrix_sync``.

A fragment is an array (registers, 32): ``fragment[i]`` is CUDA's ``fragment.x[i]``, one value per lane.
One register holds 32 bits of A or of B, two hold sums; which ones, `simwarp.fragments` says.

>>> def product(warp, A, B, C):
...     a_frag = load_matrix_sync(warp, "matrix_a", A, 0, ldm=128)
...     b_frag = load_matrix_sync(warp, "matrix_b", B, 0, ldm=128)
...     c_frag = bmma_sync(warp, a_frag, b_frag, fill_fragment(0))
...     store_matrix_sync(warp, C, 0, c_frag, ldm=8)
>>> from simwarp.warp import GlobalArray, launch
>>> A = GlobalArray.of("A", np.full((8, 4), 0b111, np.uint32))
>>> B = GlobalArray.of("B", np.full((8, 4), 0b110, np.uint32))
>>> C = GlobalArray("C", (8, 8), np.int32)
>>> launch(product, 1, 32, A, B, C)
>>> C.numpy()[0].tolist()
[4, 4, 4, 4, 4, 4, 4, 4]

Source: BTC (TPDS), section 4, listings 1 and 2; PTX ISA 9.0, sections 9.7.14.4.3 to 9.7.14.4.5; CUDA C++
Programming Guide, warp matrix functions, sub-byte operations.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from simwarp.faults import MemberMaskFault
from simwarp.fragments import FragmentError, fragments_of
from simwarp.products import bits
from simwarp.warp import Array, Warp

Fragment: TypeAlias = npt.NDArray[Any]
"""A row for each register: (registers, 32)."""
Operation: TypeAlias = Literal["xor", "and"]
Use: TypeAlias = Literal["matrix_a", "matrix_b"]

_PRODUCT = fragments_of("wmma.mma.xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32").operands
_A, _B = _PRODUCT["a"].layout.words(), _PRODUCT["b"].layout.words()
_C = _PRODUCT["c"].layout
_LOADS = {
    "matrix_a": fragments_of("wmma.load.a.sync.aligned.row.m8n8k128.b1").operands["a"],
    "matrix_b": fragments_of("wmma.load.b.sync.aligned.col.m8n8k128.b1").operands["b"],
}
_STORE = fragments_of("wmma.store.d.sync.aligned.row.m8n8k128.s32").operands["d"]
_LEADING_BITS = 128
"""``ldm`` is a multiple of 16 bytes."""


def fill_fragment(value: int) -> Fragment:
    """Sums that are all ``value``: int32 (2, 32).

    Examples
    --------
    >>> fill_fragment(7).shape, int(fill_fragment(7).sum())
    ((2, 32), 448)
    """
    return np.full((_C.registers, _C.lanes), value, np.int32)


def load_matrix_sync(warp: Warp, use: Use, array: Array, mptr: int, ldm: int) -> Fragment:
    """Load a bit tile: 8 rows of A (row major) or 8 columns of B (column major), 128 bits of each.

    Parameters
    ----------
    warp : Warp
    use : "matrix_a" or "matrix_b"
    array : GlobalArray or SharedArray of uint32
    mptr : int
        The word where the tile begins.
    ldm : int
        In bits, from one row of A (column of B) to the next.

    Returns
    -------
    uint32 (1, 32)
        Bit i is element ``32 * (lane % 4) + i`` of row (column) ``lane // 4``.

    Raises
    ------
    FragmentError
        If ``ldm`` is no multiple of 128.
    MemberMaskFault
        If a lane of the warp does not execute it.
    OutOfBounds, UninitialisedRead
        For the first lane that may not read there.

    Notes
    -----
    ``mptr`` should be 256-bit aligned, says the paper after CUDA's guide; the PTX ISA asks for the size of
    a lane's fragment, 4 bytes, which is a word, and listings 3 and 5 rely on that.

    Source: BTC (TPDS), section 4.1; PTX ISA 9.0, section 9.7.14.4.3.

    Examples
    --------
    >>> from simwarp.warp import GlobalArray, launch
    >>> kept, A = [], GlobalArray.of("A", np.arange(64, dtype=np.uint32))
    >>> launch(lambda warp: kept.append(load_matrix_sync(warp, "matrix_a", A, 4, ldm=256)), 1, 32)
    >>> kept[0][0, :9].tolist()
    [4, 5, 6, 7, 12, 13, 14, 15, 20]
    """
    _together(warp, "load_matrix_sync")
    _check_leading("load_matrix_sync", ldm, _LEADING_BITS)
    return warp.load(array, mptr + _words(use, ldm))[None]


def bmma_sync(
    warp: Warp, a_frag: Fragment, b_frag: Fragment, c_frag: Fragment, operation: Operation = "xor"
) -> Fragment:
    """Add to each sum how many bits of a row of A xor (and) a column of B are set.

    Parameters
    ----------
    warp : Warp
    a_frag, b_frag : uint32 (1, 32)
    c_frag : int32 (2, 32)
    operation : "xor" or "and"
        ``bmmaBitOpXOR``, which Hopper's tensor cores lack, or ``bmmaBitOpAND``, which Turing's lack.

    Returns
    -------
    int32 (2, 32)
        Registers 0 and 1 hold columns ``2 * (lane % 4)`` and the next of row ``lane // 4``.

    Raises
    ------
    SchemeError
        For another operation.
    MemberMaskFault
        If a lane of the warp does not execute it.

    Notes
    -----
    Source: BTC (TPDS), section 4.3; PTX ISA 9.0, section 9.7.14.4.5.

    Examples
    --------
    >>> from simwarp.warp import launch
    >>> a, b, kept = np.full((1, 32), 0b1100, np.uint32), np.full((1, 32), 0b1010, np.uint32), []
    >>> launch(lambda warp: kept.append(bmma_sync(warp, a, b, fill_fragment(1), "and")), 1, 32)
    >>> kept[0][:, 0].tolist()
    [5, 5]
    """
    _together(warp, "bmma_sync")
    a, b, c = _A.unpack(a_frag.T), _B.unpack(b_frag.T), _C.unpack(c_frag.view(np.uint32).T)
    return _C.pack(bits(a, b, c.view(np.int32), operation)).view(np.int32).T


def store_matrix_sync(warp: Warp, array: Array, mptr: int, c_frag: Fragment, ldm: int) -> None:
    """Store a tile of 8 × 8 sums to rows, ``mem_row_major``.

    Parameters
    ----------
    warp : Warp
    array : GlobalArray or SharedArray of int32
    mptr : int
        The element where the tile begins.
    c_frag : int32 (2, 32)
    ldm : int
        In elements, from one row to the next.

    Raises
    ------
    FragmentError
        If ``ldm`` is no multiple of 4.
    MemberMaskFault
        If a lane of the warp does not execute it.
    OutOfBounds
        For the first lane that may not write there.

    Notes
    -----
    Source: BTC (TPDS), section 4.2; PTX ISA 9.0, section 9.7.14.4.4.

    Examples
    --------
    >>> from simwarp.warp import GlobalArray, launch
    >>> C, lanes = GlobalArray("C", (8, 8), np.int32), np.arange(32, dtype=np.int32)
    >>> launch(lambda warp: store_matrix_sync(warp, C, 0, np.stack([lanes, -lanes]), ldm=8), 1, 32)
    >>> C.numpy()[1].tolist()
    [4, -4, 5, -5, 6, -6, 7, -7]
    """
    _together(warp, "store_matrix_sync")
    _check_leading("store_matrix_sync", ldm, _LEADING_BITS // _C.bits)
    places = _STORE.addresses(ldm)[..., 0]
    for i, register in enumerate(c_frag):
        warp.store(array, mptr + places[:, i], register)


@cache
def _words(use: Use, ldm: int) -> npt.NDArray[np.int64]:
    """The word that each lane loads, from the start of the tile."""
    operand = _LOADS[use]
    return operand.addresses(ldm)[:, 0, 0] // operand.layout.slots


def _check_leading(name: str, ldm: int, multiple: int) -> None:
    if ldm < 1 or ldm % multiple:
        raise FragmentError(
            f"{name} has ldm={ldm}\nrows of a tile are a multiple of 16 bytes apart, {multiple} elements\n"
            f"pad the rows to {-(-max(ldm, 1) // multiple) * multiple} elements"
        )


def _together(warp: Warp, name: str) -> None:
    """``.aligned``: all 32 lanes of the warp execute the instruction."""
    if not warp.active.all():
        lane = int(warp.active.argmin())
        fault = MemberMaskFault(
            f"{name} without all 32 lanes of the warp",
            f"{int(warp.active.sum())} lanes execute it",
            "move it out of the `where`, and give blocks whole warps",
        )
        raise warp.place(fault, lane)
