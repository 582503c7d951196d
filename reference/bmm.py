"""The product of two matrices of +1 and -1: what `bmm` means, twice.

Small products are the definition, a sum of products. Large ones are equation 2 of BSTC on packed
words, ``n - 2 * popc(a xor b)``, in a loop that Numba compiles. The tests hold one against the other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.bits import Bits, pack_bits, real_array, sign_bits, unpack
from reference.errors import ShapeError
from reference.types import PackedBits

Product: TypeAlias = npt.NDArray[np.int32]

_LARGEST_K = 2**31 - 1
# Importing Numba and compiling the loop take as long as a float64 product of 2**34 terms, about 0.7 s.
_LARGE_PRODUCT = 1 << 34
# Eight bytes for an element that the loop holds in one bit: above 1 GiB no longer worth it.
_LARGE_OPERANDS = 1 << 27


def bmm(
    a: npt.ArrayLike | PackedBits,
    b: npt.ArrayLike | PackedBits,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Product:
    """The product op(a) · op(b) of two matrices, each element replaced by its sign, +1 or -1.

    ``c[i, j] = sum over k of s(op(a)[i, k]) * s(op(b)[k, j])`` with ``s(x) = +1`` where x >= 0, else
    -1. In bits, ``c[i, j] = K - 2 * popc(op(a)[i, :] xor op(b)[:, j])``. Exact integers.
    ``simwarp.listings.bmm32`` and ``gpu.bmm`` answer the same question.

    Parameters
    ----------
    a : array_like of float64, float32, float16 or int8, or PackedBits; (M, K), or (K, M) if transpose_a
        PackedBits may have any layout, word and bit order; their words lie on the host.
    b : likewise, (K, N), or (N, K) if transpose_b
        The element type or format need not be that of ``a``.
    transpose_a, transpose_b : bool
        Whether op transposes the operand.

    Returns
    -------
    array of int32, (M, N), C order

    Raises
    ------
    ShapeError
        If an operand is not a matrix, has a dimension of 0, the two K differ, or K > 2**31 - 1.
    DtypeError
        For an element type that is not in the list.
    NotANumberError
        For a NaN; names the operand and the first index.
    FormatError, SchemeError
        For PackedBits whose words do not fit their description.

    Notes
    -----
    Source: BSTC (SC'19), equations 1 and 2, section 5.1.

    Examples
    --------
    >>> bmm([[2.0, -3.0, 0.0]], [[1.0], [1.0], [-1.0]])
    array([[-1]], dtype=int32)
    """
    a = a if isinstance(a, PackedBits) else real_array(a, "a")
    b = b if isinstance(b, PackedBits) else real_array(b, "b")
    _check_shapes(a.shape, b.shape, transpose_a, transpose_b)
    bits_a, bits_b = _bits(a, "a"), _bits(b, "b")
    bits_a = bits_a.T if transpose_a else bits_a
    bits_b = bits_b.T if transpose_b else bits_b
    (m, k), n = bits_a.shape, bits_b.shape[1]
    if m * n * k < _LARGE_PRODUCT and (m + n) * k < _LARGE_OPERANDS:
        return _product_numpy(bits_a, bits_b)
    words_a = pack_bits(bits_a, "column", 64, "lsb").words
    words_b = pack_bits(bits_b, "row", 64, "lsb").words
    return _product_numba(words_a, words_b, k)


def _bits(operand: npt.NDArray[Any] | PackedBits, name: str) -> Bits:
    return unpack(operand) if isinstance(operand, PackedBits) else sign_bits(operand, name)


def _check_shapes(
    shape_a: tuple[int, ...], shape_b: tuple[int, ...], transpose_a: bool, transpose_b: bool
) -> None:
    given = f"a {shape_a}, transpose_a={transpose_a}, and b {shape_b}, transpose_b={transpose_b}"
    if len(shape_a) != 2 or len(shape_b) != 2 or min(*shape_a, *shape_b) < 1:
        raise ShapeError(f"{given}: give both the two dimensions of a matrix, each at least 1")
    k_of_a, k_of_b = shape_a[0 if transpose_a else 1], shape_b[1 if transpose_b else 0]
    if k_of_a != k_of_b:
        side_a, side_b = ("rows" if transpose_a else "columns"), ("columns" if transpose_b else "rows")
        raise ShapeError(
            f"{given} do not fit: the {side_a} of a ({k_of_a}) must be as many as the {side_b} of b "
            f"({k_of_b}); check transpose_a and transpose_b"
        )
    if k_of_a > _LARGEST_K:
        raise ShapeError(f"{given}: K = {k_of_a} exceeds {_LARGEST_K}, what an int32 sum can hold; split K")


def _product_numpy(bits_a: Bits, bits_b: Bits) -> Product:
    """The definition, on bits (M, K) and (K, N); every partial sum is an integer below 2**53."""
    return ((2.0 * bits_a - 1.0) @ (2.0 * bits_b - 1.0)).astype(np.int32, order="C")


def _product_numba(words_a: npt.NDArray[np.uint64], words_b: npt.NDArray[np.uint64], k: int) -> Product:
    """Equation 2, on words (ceil(K / 64), M) and (ceil(K / 64), N) whose padding is alike."""
    return _compiled()(words_a, words_b, k)


@cache
def _compiled() -> Callable[..., Product]:
    import numba

    return numba.njit(cache=False)(_xor_popc)


# Typed, because Numba adds a uint64 and a plain int as float64.
_PAIRS, _NIBBLES = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
_OCTETS, _SUM_OCTETS = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)
_1, _2, _4, _56 = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(56)


def _xor_popc(words_a: Any, words_b: Any, k: int) -> Any:
    (steps, m), n = words_a.shape, words_b.shape[1]
    differ = np.zeros((m, n), np.int32)
    for i in range(m):
        for step in range(steps):
            for j in range(n):
                x = words_a[step, i] ^ words_b[step, j]
                x = x - ((x >> _1) & _PAIRS)
                x = (x & _NIBBLES) + ((x >> _2) & _NIBBLES)
                x = (x + (x >> _4)) & _OCTETS
                differ[i, j] += np.int32((x * _SUM_OCTETS) >> _56)
        for j in range(n):
            differ[i, j] = k - 2 * differ[i, j]
    return differ
