"""The product of two matrices of +1 and -1, or of bits: the definition in NumPy, and a Numba version.

The Numba version, for large products, computes equation 2 of BSTC on packed words, ``n - 2 * popc(a xor b)``.
The tests compare the two.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.bits import (
    Bits,
    add_differences,
    compiled,
    nonzero_bits,
    pack_bits,
    real_array,
    sign_bits,
    unpack,
)
from reference.errors import ShapeError
from reference.types import PackedBits
from reference.types.arguments import Kind, check_kind

Product: TypeAlias = npt.NDArray[np.int32]

_LARGEST_K = 2**31 - 1
# With fewer terms, the float64 product takes less time than importing Numba and compiling the loop, 0.7 s.
_LARGE_PRODUCT = 1 << 34
# With more elements, float64 operands would take more than 1 GiB; packed words need one bit for each.
_LARGE_OPERANDS = 1 << 27


def bmm(
    a: npt.ArrayLike | PackedBits,
    b: npt.ArrayLike | PackedBits,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    kind: Kind = "xnor",
) -> npt.NDArray[Any]:
    """Multiply two matrices, op(a) · op(b), each element replaced by its sign, +1 or -1, or by a bit.

    ``c[i, j] = sum over k of s(op(a)[i, k]) * s(op(b)[k, j])`` with ``s(x) = +1`` where x >= 0, else
    -1. In bits, ``c[i, j] = K - 2 * popc(op(a)[i, :] xor op(b)[:, j])``. Exact integers.
    ``simwarp.listings.bmm32`` and ``gpu.bmm`` answer the same question.

    With ``kind="and"`` an element is a bit t(x), 1 where x is not 0, and ``c[i, j] = popc(op(a)[i, :] and
    op(b)[:, j])``: of 0/1 matrices the product in integers. With ``kind="or"`` c[i, j] is whether that is
    not 0, the Boolean product. Bits of PackedBits are taken as they are.

    Parameters
    ----------
    a : (M, K), or (K, M) if transpose_a
        Numbers of float64, float32, float16, bfloat16 or int8, for the kinds "and" and "or" also of bool or
        uint8, or PackedBits. PackedBits may have any layout, word and bit order; their words must be on the
        host. Either operand may be a stack of B matrices, with an axis of B in front; both then have the same
        B.
    b : likewise, (K, N), or (N, K) if transpose_b
        Its dtype or format may differ from that of ``a``.
    transpose_a, transpose_b : bool
        Whether op transposes the operand.
    kind : {"xnor", "and", "or"}
        The product of signs, of bits, or of truth values.

    Returns
    -------
    array of int32, or of bool for "or"; (M, N), or (B, M, N) if an operand is a stack; C order

    Raises
    ------
    ShapeError
        If an operand is neither a matrix nor a stack or has a dimension of 0, if the two K or the two B
        differ, or K > 2**31 - 1.
    DtypeError
        For another dtype.
    NotANumberError
        For a NaN; names the operand and the first index.
    FormatError, SchemeError
        For PackedBits whose words do not fit their shape or format, and for another kind.

    Notes
    -----
    Source: BSTC (SC'19), equations 1 and 2, section 5.1; the products of bits: BTC (TPDS), section 3.3 (the
    0/1 product of Cutlass) and section 8 (graphs).

    Examples
    --------
    >>> bmm([[2.0, -3.0, 0.0]], [[1.0], [1.0], [-1.0]])
    array([[-1]], dtype=int32)
    >>> bmm([[True, False, True]], [[True], [True], [True]], kind="and")
    array([[2]], dtype=int32)
    """
    check_kind(kind)
    of_bits = kind != "xnor"
    a = a if isinstance(a, PackedBits) else real_array(a, "a", of_bits=of_bits)
    b = b if isinstance(b, PackedBits) else real_array(b, "b", of_bits=of_bits)
    _check_shapes(a.shape, b.shape, transpose_a, transpose_b)
    bits_a, bits_b = _bits(a, "a", transpose_a, of_bits), _bits(b, "b", transpose_b, of_bits)
    if bits_a.ndim == bits_b.ndim == 2:
        return _product(bits_a, bits_b, kind)
    if bits_b.ndim == 2:
        return _product(bits_a.reshape(-1, bits_a.shape[-1]), bits_b, kind).reshape(*bits_a.shape[:2], -1)
    return np.stack(
        [_product(bits_a if bits_a.ndim == 2 else bits_a[i], each, kind) for i, each in enumerate(bits_b)]
    )


def _product(bits_a: Bits, bits_b: Bits, kind: Kind) -> npt.NDArray[Any]:
    """The product of bits (M, K) and (K, N)."""
    (m, k), n = bits_a.shape, bits_b.shape[1]
    if m * n * k < _LARGE_PRODUCT and (m + n) * k < _LARGE_OPERANDS:
        product = _product_numpy(bits_a, bits_b) if kind == "xnor" else _common_numpy(bits_a, bits_b)
    else:
        words_a = pack_bits(bits_a, "column", 64, "lsb").words
        words_b = pack_bits(bits_b, "row", 64, "lsb").words
        product = _product_numba(words_a, words_b, k)
        if kind != "xnor":
            product = _common_of(product, bits_a, bits_b)
    return product > 0 if kind == "or" else product


def _bits(operand: npt.NDArray[Any] | PackedBits, name: str, transpose: bool, of_bits: bool) -> Bits:
    """The bits of op(operand), unpacked or taken from numbers: from their signs, or from what is not 0."""
    if isinstance(operand, PackedBits):
        bits = unpack(operand)
    else:
        bits = nonzero_bits(operand, name) if of_bits else sign_bits(operand, name)
    return bits.swapaxes(-1, -2) if transpose else bits


def _check_shapes(
    shape_a: tuple[int, ...], shape_b: tuple[int, ...], transpose_a: bool, transpose_b: bool
) -> None:
    """Raise ShapeError unless op(a) and op(b) are matrices with a common K, or stacks with a common B."""
    given = f"a {shape_a}, transpose_a={transpose_a}, and b {shape_b}, transpose_b={transpose_b}"
    if not {len(shape_a), len(shape_b)} <= {2, 3} or min(*shape_a, *shape_b) < 1:
        raise ShapeError(
            f"{given}: give each the two dimensions of a matrix, or three of a stack, at least 1"
        )
    if len(shape_a) == len(shape_b) == 3 and shape_a[0] != shape_b[0]:
        raise ShapeError(
            f"{given} do not fit: give stacks of the same number of matrices, or a single matrix for one "
            "of them"
        )
    k_of_a, k_of_b = shape_a[-2 if transpose_a else -1], shape_b[-1 if transpose_b else -2]
    if k_of_a != k_of_b:
        side_a, side_b = ("rows" if transpose_a else "columns"), ("columns" if transpose_b else "rows")
        raise ShapeError(
            f"{given} do not fit: the {side_a} of a ({k_of_a}) must be as many as the {side_b} of b "
            f"({k_of_b}); check transpose_a and transpose_b"
        )
    if k_of_a > _LARGEST_K:
        raise ShapeError(f"{given}: K = {k_of_a} exceeds {_LARGEST_K}, the largest int32 sum; split K")


def _product_numpy(bits_a: Bits, bits_b: Bits) -> Product:
    """The product of bits (M, K) and (K, N) by definition; exact, as every partial sum is below 2**53."""
    return ((2.0 * bits_a - 1.0) @ (2.0 * bits_b - 1.0)).astype(np.int32, order="C")


def _common_numpy(bits_a: Bits, bits_b: Bits) -> Product:
    """The 0/1 product of bits (M, K) and (K, N) by definition; exact likewise."""
    return (1.0 * bits_a @ (1.0 * bits_b)).astype(np.int32, order="C")


def _common_of(product: Product, bits_a: Bits, bits_b: Bits) -> Product:
    """The 0/1 product from that of signs: 4 popc(a and b) = product - k + 2 popc(a) + 2 popc(b)."""
    ones = bits_a.sum(1, dtype=np.int64)[:, None] + bits_b.sum(0, dtype=np.int64)
    return ((product - bits_a.shape[1] + 2 * ones) // 4).astype(np.int32)


def _product_numba(words_a: npt.NDArray[np.uint64], words_b: npt.NDArray[np.uint64], k: int) -> Product:
    """The product by equation 2, on words (ceil(K / 64), M) and (ceil(K / 64), N) with equal padding bits."""
    return compiled(_xor_popc)(words_a, words_b, k)


def _xor_popc(words_a: Any, words_b: Any, k: int) -> Any:
    """The Numba-compiled loops of `_product_numba`, over rows, columns and words."""
    (steps, m), n = words_a.shape, words_b.shape[1]
    product = np.zeros((m, n), np.int32)
    for i in range(m):
        differ = product[i]
        for step in range(steps):
            add_differences(words_a[step, i], words_b[step], differ)
        for j in range(n):
            differ[j] = k - 2 * differ[j]
    return product
