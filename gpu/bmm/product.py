"""The ±1 matrix product on a device (BSTC, section 5.1)."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu.bmm.operands import check_shape, choose_device, has_nan, matrix, name_first_nan, on_device
from gpu.bmm.packing import TILE, WARPS_PER_BLOCK, check_format, pack_on_device
from gpu.compile import Ptx, compile_file
from gpu.device import Device, is_array
from reference.errors import FormatError, NotANumberError, SchemeError, ShapeError
from reference.types import Layout, PackedBits

SCHEMES = ("bmm32",)
"""The schemes that `bmm` knows."""


def bmm(
    a: Any,
    b: Any,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    scheme: str = "bmm32",
    device: Device | None = None,
) -> Any:
    """The product of the signs of two real matrices, op(A) · op(B), on a device.

    Answers the same as `reference.bmm`, bit for bit.

    Parameters
    ----------
    a : (M, K), or (K, M) with ``transpose_a``
    b : (K, N), or (N, K) with ``transpose_b``
        Real matrices (float64, float32, float16, int8) on the host or on a device, or `PackedBits`
        whose words run along K: ``layout="column"`` for A and ``"row"`` for B, the other one where
        transposed; both with the same ``first``.
    scheme : str
        "bmm32".
    device : Device, optional
        Default: the operands' own, or the first CUDA device.

    Returns
    -------
    (M, N) int32
        A NumPy array; a device array if an operand lies on a device.

    Raises
    ------
    ShapeError, DtypeError, FormatError, SchemeError, NoGpuError
    NotANumberError
        At once for host arrays; for device arrays at the device's next synchronisation.

    Notes
    -----
    Source: BSTC (SC'19), equation 2, section 5.1 and listing 4.

    Examples
    --------
    >>> import simwarp
    >>> bmm([[1.0, -2.0, 3.0]], [[1.0], [1.0], [1.0]], device=simwarp.Device())
    array([[1]], dtype=int32)
    """
    if scheme not in SCHEMES:
        raise SchemeError(f"scheme={scheme!r} is unknown; choose one of {', '.join(SCHEMES)}")
    a, b = _operand(a, "a"), _operand(b, "b")
    m, k = a.shape[::-1] if transpose_a else a.shape
    k_of_b, n = b.shape[::-1] if transpose_b else b.shape
    if k != k_of_b:
        raise ShapeError(
            f"a is {tuple(a.shape)}{' transposed' if transpose_a else ''} and "
            f"b is {tuple(b.shape)}{' transposed' if transpose_b else ''}: "
            f"K is {k} in one and {k_of_b} in the other\n"
            "the columns of op(A) must be as many as the rows of op(B)"
        )
    device = choose_device(device, a, b)
    stays = on_device(a) or on_device(b)
    if stays:  # nothing is downloaded here that would tell of a NaN in the other operand
        _refuse_nan(a, b)
    left = _packed(a, "a", "row" if transpose_a else "column", device)
    right = _packed(b, "b", "column" if transpose_b else "row", device)
    if left.first != right.first:
        raise FormatError(
            f"a is packed with first={left.first!r} and b with first={right.first!r}\npack both alike"
        )
    c = device.allocate((m, n), np.int32, "c")
    tiles = -(-m // TILE) * -(-n // TILE)
    kernel = device.load(product_ptx(device.compute_capability).text).kernel("bmm32")
    kernel(
        (-(-tiles // WARPS_PER_BLOCK), 1, 1),
        (WARPS_PER_BLOCK * TILE, 1, 1),
        left.words,
        right.words,
        c,
        np.uint32(m),
        np.uint32(n),
        np.uint32(k),
    )
    if stays:
        return c
    try:
        return c.download()
    except NotANumberError:
        _refuse_nan(a, b)
        raise  # it was another matrix, packed on this device before


def product_ptx(arch: tuple[int, int]) -> Ptx:
    """The kernel of BMM-32.

    Examples
    --------
    >>> ".entry bmm32" in product_ptx((9, 0)).text
    True
    """
    return compile_file("bmm/bmm32.cu", None, arch)


def _operand(x: Any, name: str) -> Any:
    """An operand, checked."""
    if not isinstance(x, PackedBits):
        return matrix(x, name)
    check_shape(x.shape, name)
    check_format(x.layout, 32, x.first)
    if not (is_array(x.words) or issubclass(type(x.words), np.ndarray)):
        raise FormatError(
            f"the words of {name} are a {type(x.words).__name__}\n"
            "give a NumPy array or an array of this device"
        )
    if x.word != 32 or np.dtype(x.words.dtype) != np.uint32:
        raise FormatError(
            f"{name} is packed in words of {x.word} bits ({x.words.dtype}); bmm32 takes uint32 words"
        )
    rows, columns = x.shape
    expected = (-(-columns // 32), rows) if x.layout == "column" else (-(-rows // 32), columns)
    if tuple(x.words.shape) != expected:
        raise FormatError(
            f"{name} is packed {x.layout}-major with words of shape {tuple(x.words.shape)}; "
            f"a {rows} x {columns} matrix has {expected}"
        )
    return x


def _packed(x: Any, name: str, layout: Layout, device: Device) -> PackedBits:
    """The operand with its words along K, on the device."""
    if not isinstance(x, PackedBits):
        return pack_on_device(x, name, layout, "msb", device)
    if x.layout != layout:
        raise FormatError(
            f"{name} is packed with layout={x.layout!r}, whose words do not run along K\n"
            f"pack it with layout={layout!r}, or transpose it"
        )
    if is_array(x.words):
        return x
    words = device.upload(np.ascontiguousarray(x.words), f"words of {name}")
    return PackedBits(words, x.shape, x.layout, x.word, x.first)


def _refuse_nan(a: Any, b: Any) -> None:
    for x, name in ((a, "a"), (b, "b")):
        if has_nan(x):
            raise name_first_nan(x, name) from None
