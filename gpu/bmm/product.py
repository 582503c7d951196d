"""The ±1 matrix product on a device (BSTC, section 5.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.bmm.operands import (
    check_shape,
    choose_device,
    has_nan,
    matrix,
    name_first_nan,
    on_device,
)
from gpu.bmm.packing import WARPS_PER_BLOCK, check_format, pack_on_device
from gpu.bmm.schemes import Scheme, choose_scheme, product_ptx
from gpu.device import Device, is_array, is_foreign
from reference.errors import DtypeError, FormatError, NotANumberError, SchemeError, ShapeError
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
        "bmm32", "bmm64", "bmms32" or "bmms64". Where K is more than a scheme's counters hold, another
        one with the same words takes over; see `gpu.bmm.schemes`.
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
    Source: BSTC (SC'19), equations 2 and 5, section 5.1, listings 4, 5 and 7.

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
        _refuse_nan(a, b)
    rule = _rule(thresholds, flip, n, device)
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
    ptx = product_ptx(chosen, "bits" if rule else "int", left.first, device.compute_capability)
    tiles = -(-m // chosen.rows) * -(-n // chosen.word)
    device.load(ptx.text).kernel(chosen.name)(
        (-(-tiles // WARPS_PER_BLOCK), 1, 1),
        (WARPS_PER_BLOCK * 32, 1, 1),
        left.words,
        right.words,
        c,
        np.uint32(m),
        np.uint32(n),
        np.uint32(k),
        *rule,
    )
    result = c if stays else _downloaded(c, a, b)
    return PackedBits(result, (m, n), "column", chosen.word, left.first) if rule else result


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


def _packed(x: Any, name: str, layout: Layout, scheme: Scheme, device: Device) -> PackedBits:
    """The operand with its words along K, on the device."""
    if not isinstance(x, PackedBits):
        return pack_on_device(x, name, layout, scheme.word, "msb", device)
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
    if is_array(x.words):
        return x
    words = device.upload(np.ascontiguousarray(x.words), f"words of {name}")
    return PackedBits(words, x.shape, x.layout, x.word, x.first)


def _rule(thresholds: Any, flip: Any, n: int, device: Device) -> tuple[Any, ...]:
    """Thresholds and flips on the device; empty if the output is int32."""
    if thresholds is None:
        if flip is not None:
            raise SchemeError("flip is given without thresholds\ngive both, or neither")
        return ()
    flips = np.zeros(n, np.bool_) if flip is None else flip
    return (
        _vector(thresholds, "thresholds", n, _thresholds, np.int32, device),
        _vector(flips, "flip", n, _flips, np.uint8, device),
    )


def _vector(
    given: Any, name: str, n: int, of_host: Callable[[npt.NDArray[Any]], Any], dtype: Any, device: Device
) -> Any:
    """Numbers on the device, one for each column."""
    vector: Any = device.adopt(given) if is_foreign(given) else given
    if not is_array(vector):
        try:
            vector = of_host(np.asarray(vector))
        except ValueError as error:
            raise ShapeError(f"{name} is no vector: {error}\ngive one for each of the {n} columns") from None
    if tuple(vector.shape) != (n,):
        raise ShapeError(f"{name} has shape {tuple(vector.shape)}\ngive one for each of the {n} columns")
    if np.dtype(vector.dtype) != dtype:
        raise DtypeError(f"{name} on the device is {vector.dtype}\nupload {np.dtype(dtype)}")
    return vector if is_array(vector) else device.upload(vector, name)


def _thresholds(values: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Host thresholds as int32."""
    if values.dtype.kind not in "iu":
        raise DtypeError(
            f"thresholds are {values.dtype}\n"
            "give integers; reference.integer_thresholds makes them from a batch normalisation"
        )
    limits = np.iinfo(np.int32)
    if values.size and not limits.min <= int(values.min()) <= int(values.max()) <= limits.max:
        raise DtypeError("thresholds do not fit int32\nno dot product lies outside, so clip them")
    return values.astype(np.int32)


def _flips(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Host flips as bytes."""
    if values.dtype != np.bool_ and not (values.dtype.kind in "iu" and np.isin(values, (0, 1)).all()):
        raise DtypeError(f"flip is {values.dtype}\ngive bool, True where the bit is turned over")
    return values.astype(np.uint8)


def _downloaded(c: Any, a: Any, b: Any) -> Any:
    try:
        return c.download()
    except NotANumberError:
        _refuse_nan(a, b)
        raise  # it was another matrix, packed on this device before


def _refuse_nan(a: Any, b: Any) -> None:
    for x, name in ((a, "a"), (b, "b")):
        if has_nan(x):
            raise name_first_nan(x, name) from None
