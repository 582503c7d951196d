"""Bit fragments in kernels written in Python: ``load_matrix_sync``, ``bmma_sync``, ``store_matrix_sync``.

A fragment is an array (registers, 32): ``fragment[i]`` is CUDA's ``fragment.x[i]``, one value per lane.
One register holds 32 bits of A or of B, two hold sums, in the maps of `simwarp.fragments`.

Turing's tensor cores count the bits in which two vectors differ (XOR), as equation 2 needs. Hopper's count
the bits that both vectors have (AND); the lanes count the bits of each vector, and
``popc(a ^ b) = popc(a) + popc(b) - 2 * popc(a & b)``.

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
Programming Guide, warp matrix functions, sub-byte operations; BTC, section 5.2, equation 2.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from simwarp.faults import MemberMaskFault
from simwarp.fragments import FragmentError, fragments_of
from simwarp.lanes import popc
from simwarp.products import bits
from simwarp.warp import Array, Warp

Fragment: TypeAlias = npt.NDArray[Any]
"""The registers of a warp, (registers, 32)."""
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
"""``ldm`` must be a multiple of these bits, 16 bytes."""


def fill_fragment(value: int) -> Fragment:
    """An accumulator filled with ``value``: int32 (2, 32)."""
    return np.full((_C.registers, _C.lanes), value, np.int32)


def load_matrix_sync(warp: Warp, use: Use, array: Array, mptr: int, ldm: int) -> Fragment:
    """Load a bit tile: 8 rows of A (row major) or 8 columns of B (column major), 128 bits of each.

    The tile starts at word ``mptr`` of an array of uint32; ``ldm``, a multiple of 128, is the stride in bits
    between rows of A (columns of B). Bit i of the result, uint32 (1, 32), is element ``32 * (lane % 4) + i``
    of row (column) ``lane // 4``.

    The paper and CUDA's guide require an ``mptr`` aligned to 256 bits; the PTX ISA requires the size of a
    lane's fragment, 4 bytes, which is a word, and listings 3 and 5 rely on that.

    Source: BTC (TPDS), section 4.1; PTX ISA 9.0, section 9.7.14.4.3.
    """
    _together(warp, "load_matrix_sync")
    _check_leading("load_matrix_sync", ldm, _LEADING_BITS)
    return warp.load(array, mptr + _words(use, ldm))[None]


def bmma_sync(
    warp: Warp, a_frag: Fragment, b_frag: Fragment, c_frag: Fragment, operation: Operation = "xor"
) -> Fragment:
    """Add ``popc(A's row xor B's column)``, or with ``and``, to each accumulator element, int32 (2, 32).

    Hopper's tensor cores lack ``bmmaBitOpXOR``, Turing's ``bmmaBitOpAND``. Registers 0 and 1
    hold columns ``2 * (lane % 4)`` and the next of row ``lane // 4``.

    Source: BTC (TPDS), section 4.3; PTX ISA 9.0, section 9.7.14.4.5.
    """
    _together(warp, "bmma_sync")
    a, b, c = _A.unpack(a_frag.T), _B.unpack(b_frag.T), _C.unpack(c_frag.view(np.uint32).T)
    return _C.pack(bits(a, b, c.view(np.int32), operation)).view(np.int32).T


def store_matrix_sync(warp: Warp, array: Array, mptr: int, c_frag: Fragment, ldm: int) -> None:
    """Store 8 × 8 sums at ``mptr``, row major, with a row stride of ``ldm`` elements, a multiple of 4.

    Source: BTC (TPDS), section 4.2; PTX ISA 9.0, section 9.7.14.4.4.
    """
    _together(warp, "store_matrix_sync")
    _check_leading("store_matrix_sync", ldm, _LEADING_BITS // _C.bits)
    places = _STORE.addresses(ldm)[..., 0]
    for i, register in enumerate(c_frag):
        warp.store(array, mptr + places[:, i], register)


@cache
def _words(use: Use, ldm: int) -> npt.NDArray[np.int64]:
    """The offset of each lane's word from the start of the tile, in words."""
    operand = _LOADS[use]
    return operand.addresses(ldm)[:, 0, 0] // operand.layout.slots


def _check_leading(name: str, ldm: int, multiple: int) -> None:
    if ldm < 1 or ldm % multiple:
        raise FragmentError(
            f"{name} has ldm={ldm}\nldm is a positive multiple of 16 bytes, here {multiple} elements\n"
            f"pad the rows to {-(-max(ldm, 1) // multiple) * multiple} elements"
        )


def _together(warp: Warp, name: str) -> None:
    """Raise MemberMaskFault unless all 32 lanes of the warp execute the instruction (``.aligned``)."""
    if not warp.active.all():
        lane = int(warp.active.argmin())
        fault = MemberMaskFault(
            f"{name} without all 32 lanes of the warp",
            f"{int(warp.active.sum())} lanes execute it",
            "move it out of the `where`, and launch blocks of whole warps",
        )
        raise warp.place(fault, lane)


class Tile:
    """A warp's 8 × 8 accumulator tile, for either operation of the tensor core."""

    def __init__(self, warp: Warp, operation: Operation = "xor") -> None:
        self.warp = warp
        self.operation: Operation = operation
        self.c_frag = fill_fragment(0)
        self._of_a = self._of_b = np.zeros(32, np.int32)

    def bmma(self, a_frag: Fragment, b_frag: Fragment) -> None:
        """Accumulate the product of two fragments, 128 bits along K."""
        self.c_frag = bmma_sync(self.warp, a_frag, b_frag, self.c_frag, self.operation)
        if self.operation == "and":
            self._of_a = self._of_a + popc(a_frag[0]).astype(np.int32)
            self._of_b = self._of_b + popc(b_frag[0]).astype(np.int32)

    def dots(self, n: int) -> Fragment:
        """The ±1 dot products of vectors of n elements, int32 (2, 32): ``n - 2 * popc(a ^ b)``."""
        return np.int32(n) - 2 * self._differing()

    def _differing(self) -> Fragment:
        """The number of differing bits of each element's row of A and column of B, int32 (2, 32).

        Four neighbouring lanes hold a row of A, or a column of B. A lane's elements lie in the row that it
        holds, and in two columns whose counts other lanes hold.
        """
        if self.operation == "xor":
            return self.c_frag
        of_a, of_b = _sum_of_four(self.warp, self._of_a), _sum_of_four(self.warp, self._of_b)
        column = 2 * (self.warp.lane % 4)
        of_columns = np.stack([self.warp.shfl(of_b, 4 * (column + i)) for i in range(len(self.c_frag))])
        return of_a + of_columns - 2 * self.c_frag


def _sum_of_four(warp: Warp, counts: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Add up the counts of each four neighbouring lanes."""
    for distance in (1, 2):
        counts = counts + warp.shfl_xor(counts, distance)
    return counts
