"""The ±1 matrix product on a device (BSTC, section 5.1; BTC, section 5.2)."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu.bmm.btc import multiply_on_tensor_cores
from gpu.bmm.operands import (
    check_shape,
    choose_device,
    downloaded,
    matrix,
    on_device,
    refuse_nan,
)
from gpu.bmm.packing import WARPS_PER_BLOCK, check_format, pack_on_device
from gpu.bmm.rule import rule_on_device
from gpu.bmm.schemes import Scheme, TensorCoreScheme, choose_scheme, product_ptx
from gpu.device import Device, is_array
from reference.errors import FormatError, ShapeError
from reference.types import Layout, PackedBits


def bmm(
    a: Any,
    b: Any,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    scheme: str = "bmm32",
    thresholds: Any = None,
    flip: Any = None,
    device: Device | None = None,
) -> Any:
    """The product of the signs of two real matrices, op(A) · op(B), on a device.

    Answers the same as `reference.bmm`, and with thresholds as `reference.threshold` of it.

    Parameters
    ----------
    a : (M, K), or (K, M) with ``transpose_a``
    b : (K, N), or (N, K) with ``transpose_b``
        Real matrices (float64, float32, float16, int8) on the host or on a device, or `PackedBits`
        of the scheme's word size whose words run along K: ``layout="column"`` for A and ``"row"``
        for B, the other one where transposed; both with the same ``first``.
    scheme : str
        "bmm32", "bmm64", "bmms32" or "bmms64" on CUDA cores. Where K is more than a scheme's counters
        hold, another one with the same words takes over; see `gpu.bmm.schemes`.
        "btc1", "btc2" or "btc3" on bit tensor cores: the paper's designs, the last one the fastest.
        Their words have 32 bits and ``first="lsb"``, those of operands and of the output.
    thresholds : (N,) integers, optional
        Make the output bits: 1 where the dot product is at least its column's threshold.
    flip : (N,) bool, optional
        The columns whose bits are turned over: those with a negative γ.
    device : Device, optional
        Default: the operands' own, or the first CUDA device.

    Returns
    -------
    (M, N) int32, or PackedBits
        On the host; on the device if an operand lies there. Bits are packed ``layout="column"``, in
        words of the scheme's size, ready to be the next product's A.

    Raises
    ------
    ShapeError, DtypeError, FormatError, SchemeError, NoGpuError
    NotANumberError
        At once for host arrays; for device arrays at the device's next synchronisation.

    Notes
    -----
    Source: BSTC (SC'19), equations 2 and 5, section 5.1, listings 4, 5 and 7; BTC (TPDS), section 5.2,
    listings 3, 4 and 5.

    Examples
    --------
    >>> import simwarp
    >>> bmm([[1.0, -2.0, 3.0]], [[1.0], [1.0], [1.0]], device=simwarp.Device())
    array([[1]], dtype=int32)
    """
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
    chosen = choose_scheme(scheme, k)
    device = choose_device(device, a, b, thresholds, flip)
    stays = on_device(a) or on_device(b)
    if stays:  # nothing is downloaded here that would tell of a NaN in the other operand
        refuse_nan(a=a, b=b)
    rule = rule_on_device(thresholds, flip, n, device)
    left = _packed(a, "a", "row" if transpose_a else "column", chosen, device)
    right = _packed(b, "b", "column" if transpose_b else "row", chosen, device)
    if left.first != right.first:
        raise FormatError(
            f"a is packed with first={left.first!r} and b with first={right.first!r}\npack both alike"
        )
    if rule:
        c = device.allocate((-(-n // chosen.word), m), f"u{chosen.word // 8}", "c")
    else:
        c = device.allocate((m, n), np.int32, "c")
    if isinstance(chosen, TensorCoreScheme):
        multiply_on_tensor_cores(left, right, c, k, chosen, rule, device)
    else:
        _multiply(left, right, c, (m, n, k), chosen, rule, device)
    result = c if stays else downloaded(c, a=a, b=b)
    return PackedBits(result, (m, n), "column", chosen.word, left.first) if rule else result


def _multiply(
    a: PackedBits,
    b: PackedBits,
    c: Any,
    sizes: tuple[int, int, int],
    scheme: Scheme,
    rule: tuple[Any, ...],
    device: Device,
) -> None:
    """Launch the kernel of a scheme for CUDA cores."""
    ptx = product_ptx(scheme, "bits" if rule else "int", a.first, device.compute_capability)
    tiles = -(-sizes[0] // scheme.rows) * -(-sizes[1] // scheme.word)
    device.load(ptx.text).kernel(scheme.name)(
        (-(-tiles // WARPS_PER_BLOCK), 1, 1),
        (WARPS_PER_BLOCK * 32, 1, 1),
        a.words,
        b.words,
        c,
        *(np.uint32(size) for size in sizes),
        *rule,
    )


def _operand(x: Any, name: str) -> Any:
    """An operand, checked."""
    if not isinstance(x, PackedBits):
        return matrix(x, name)
    check_shape(x.shape, name)
    check_format(x.layout, x.word, x.first)
    if not (is_array(x.words) or issubclass(type(x.words), np.ndarray)):
        raise FormatError(
            f"the words of {name} are a {type(x.words).__name__}\n"
            "give a NumPy array or an array of this device"
        )
    rows, columns = x.shape
    along, lines = (columns, rows) if x.layout == "column" else (rows, columns)
    expected = (-(-along // x.word), lines)
    if tuple(x.words.shape) != expected or np.dtype(x.words.dtype) != np.dtype(f"u{x.word // 8}"):
        raise FormatError(
            f"{name} has words of {x.words.dtype} {tuple(x.words.shape)}\n"
            f"a {rows} x {columns} matrix packed {x.layout}-major-{x.word} has uint{x.word} {expected}"
        )
    if not is_array(x.words):
        _refuse_padding(x, name, -along % x.word)
    return x


def _refuse_padding(x: PackedBits, name: str, spare: int) -> None:
    """Bits past the edge count like any other: they must be 0 in both operands."""
    ones = (1 << spare) - 1
    past = np.dtype(x.words.dtype).type(ones if x.first == "msb" else ones << (x.word - spare))
    if spare and (x.words[-1] & past).any():
        raise FormatError(f"{name} has bits past the edge of its {x.shape} matrix that are not 0\nclear them")


def _packed(
    x: Any, name: str, layout: Layout, scheme: Scheme | TensorCoreScheme, device: Device
) -> PackedBits:
    """The operand with its words along K, on the device."""
    if not isinstance(x, PackedBits):
        return pack_on_device(x, name, layout, scheme.word, scheme.first, device)
    if x.layout != layout:
        raise FormatError(
            f"{name} is packed with layout={x.layout!r}, whose words do not run along K\n"
            f"pack it with layout={layout!r}, or transpose it"
        )
    if x.word != scheme.word:
        raise FormatError(
            f"{name} is packed in words of {x.word} bits, {scheme.name} takes {scheme.word}\n"
            f"pack it with word={scheme.word}, or take a scheme for {x.word}"
        )
    if isinstance(scheme, TensorCoreScheme) and x.first != scheme.first:
        raise FormatError(
            f"{name} is packed with first={x.first!r}, {scheme.name} takes {scheme.first!r}\n"
            f"pack it with first={scheme.first!r}, or take a scheme for CUDA cores"
        )
    if is_array(x.words):
        return x
    words = device.upload(np.ascontiguousarray(x.words), f"words of {name}")
    return PackedBits(words, x.shape, x.layout, x.word, x.first)
