"""Operands of the matrix products, matrices or packed bits: checks, packing and upload.

Source: BSTC (SC'19), section 5.1.
"""

# The arrays keep the paper's names.
# ruff: noqa: N806

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy.typing as npt

from reference.errors import ShapeError
from reference.types import First, Layout, PackedBits, Word
from simwarp.listings.checks import check_alike, checked
from simwarp.listings.packing import pack
from simwarp.warp import GlobalArray

Operand: TypeAlias = npt.ArrayLike | PackedBits


class Operands(NamedTuple):
    """Two packed operands in global memory, their bit order, and the sizes of (m, k) · (k, n)."""

    A: GlobalArray
    B: GlobalArray
    m: int
    k: int
    n: int
    first: First


def row_by_row(a: Operand, b: Operand, transpose_a: bool, transpose_b: bool, word: Word) -> Operands:
    """Check, pack along K and upload the operands of a row-by-row product."""
    layouts: tuple[Layout, Layout] = "row" if transpose_a else "column", "column" if transpose_b else "row"
    return operands(a, b, layouts, (transpose_a, transpose_b), word)


def operands(
    a: Operand, b: Operand, layouts: tuple[Layout, Layout], transposes: tuple[bool, bool], word: Word
) -> Operands:
    """Check both operands, pack real matrices, and upload the words."""
    a, b = (
        checked(x, PackedBits, name, layout, word)
        for x, name, layout in zip((a, b), "ab", layouts, strict=True)
    )
    (m, k), (k_of_b, n) = (x.shape[:: -1 if t else 1] for x, t in zip((a, b), transposes, strict=True))
    if k != k_of_b:
        raise ShapeError(
            f"a {a.shape} and b {b.shape} with transpose_a={transposes[0]}, transpose_b={transposes[1]}: "
            f"K is {k} in a and {k_of_b} in b\nboth must have the same K\ncheck shapes and transpositions"
        )
    packed = [
        x if isinstance(x, PackedBits) else pack(x, layout, word)
        for x, layout in zip((a, b), layouts, strict=True)
    ]
    check_alike("ab", packed[0].first, packed[1].first)
    A, B = (GlobalArray.of(name, x.words, read_only=True) for name, x in zip("AB", packed, strict=True))
    return Operands(A, B, m, k, n, packed[0].first)
