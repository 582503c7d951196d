"""PTX ISA 9.7.9.21: ``cvt``, between integers and floats of every width.

A float narrower than f32 is first widened to f32, which is exact; the result is rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from simwarp import floats
from simwarp.ptx.instructions.float_formats import (
    DIRECTED,
    FORMATS,
    ROUNDED,
    narrow,
    pack,
    rounding,
    split,
    widen,
    words,
)
from simwarp.ptx.instructions.integer import INTEGERS
from simwarp.ptx.instructions.table import row, where
from simwarp.ptx.rows import DTYPES, Form

_INTEGERS = f"u8 s8 {INTEGERS}"
_INTEGRAL = ".rni|.rzi|.rmi|.rpi"
_LIMITS = ".relu|.satfinite|.relu.satfinite|.satfinite.relu"
_CUT = "a rounded to the narrower format"
_CUT_NAN = f"{_CUT}; a NaN keeps its sign and the top of its payload on an H200"


def _cvt(
    modifiers: str,
    to: str,
    source: str,
    summary: str,
    minimum_sm: int = 50,
    *,
    name: str = "",
    syntax: str = "d:T = a:U",
    **facts: Any,
) -> Any:
    return row(
        f"cvt{modifiers}.T.U",
        syntax,
        T=to,
        U=source,
        name=name or f"cvt.{to}.{source}",
        minimum_sm=minimum_sm,
        section="9.7.9.21",
        wider=True,
        special=True,
        traits="convert",
        summary=summary,
        **facts,
    )


# ------------------------------------------------------------------------------------------- integers


def _never_saturates(words: Sequence[str], to: str, source: str) -> bool:
    """Whether ``.sat`` is written although the result's type has all values of the operand's type."""
    bits, needed = int(to[1:]) - (to[0] == "s"), int(source[1:]) - (source[0] == "s")
    return "sat" in words and bits >= needed and (to[0] == "s" or source[0] == "u")


@_cvt(
    "{.sat}",
    _INTEGERS,
    _INTEGERS,
    "an integer cut, or widened by its sign; sat: clamped",
    name="cvt",
    bitwise=1,
    lacks=_never_saturates,
)
def cvt(form: Form, a: Any) -> Any:
    if form.has("sat"):
        to, source = np.iinfo(form.dtype), np.iinfo(a.dtype)
        a = np.clip(a, max(to.min, source.min), min(to.max, source.max))
    return a.astype(form.dtype)


_CLAMPED = "rounded and clamped; NaN is 0, as 64 bits 2^63"


@_cvt(f"<{_INTEGRAL}>{{.ftz}}{{.sat}}", _INTEGERS, "f32", _CLAMPED, name="cvt (f32 to integer)")
@_cvt(f"<{_INTEGRAL}>{{.sat}}", _INTEGERS, "f16", _CLAMPED, 53, name="cvt (f16 to integer)")
@_cvt(f"<{_INTEGRAL}>", _INTEGERS, "bf16", _CLAMPED, 90, name="cvt (bf16 to integer)")
@_cvt(
    f"<{_INTEGRAL}>{{.sat}}",
    _INTEGERS,
    "f64",
    "rounded and clamped; of NaN, the highest bit alone",
    name="cvt (f64 to integer)",
)
def cvt_to_integer(form: Form, a: Any) -> Any:
    x, highest = _number(form, a), form.dtype.itemsize * 8 - 1
    of_nan = np.uint64(1 << highest if form.U == "f64" or highest == 63 else 0).astype(form.dtype)
    d, nan = floats.to_integer(x, form.dtype, rounding(form)), np.isnan(x)
    return where(nan, of_nan, d) if of_nan and nan.any() else d


@_cvt(f"{DIRECTED}{{.ftz}}{{.sat}}", "f32", _INTEGERS, "a as a float", name="cvt (integer to f32)")
@_cvt(f"{DIRECTED}{{.sat}}", "f64", _INTEGERS, "a as a float", name="cvt (integer to f64)")
@_cvt(f"{DIRECTED}{{.sat}}", "f16", _INTEGERS, "a as a float", 53, name="cvt (integer to f16)")
@_cvt(DIRECTED, "bf16", _INTEGERS, "a as a float", 90, name="cvt (integer to bf16)")
def cvt_from_integer(form: Form, a: Any) -> Any:
    if form.T in ("f32", "f64"):
        d = words(floats.from_integer(a, form.dtype, rounding(form)))
    else:
        d = narrow(_sticky(a), form.T, rounding(form))
    return FORMATS[form.T].saturate(d) if form.has("sat") else d


def _sticky(a: Any) -> Any:
    """Integers as f64 rounded to odd (the last bit is 1 if bits are lost), for a second rounding."""
    if a.dtype.itemsize < 8:
        return a.astype(np.float64)
    cut = floats.from_integer(a, np.dtype(np.float64), "rz")
    inexact = np.not_equal(floats.to_integer(cut, a.dtype, "rz"), a)
    return np.bitwise_or(words(cut), inexact.astype(np.uint64)).view(np.float64)


# --------------------------------------------------------------------------------------------- floats

_MAYBE_INTEGRAL = f"{{{_INTEGRAL}}}"
_SAME = "a, as an integer if asked for"
_EXACT = "a, exactly; a NaN keeps its sign and payload on an H200"


@_cvt(f"{DIRECTED}{{.ftz}}{{.sat}}", "f32", "f64", _CUT_NAN)
@_cvt(f"{DIRECTED}{{.ftz}}{{.sat}}", "f16", "f32", f"{_CUT}; ftz: on an H200 nothing is flushed")
@_cvt(f"{DIRECTED}{{.sat}}", "f16", "f64", _CUT_NAN, 53)
@_cvt(f"{DIRECTED}{{.ftz}}", "bf16", "f32", _CUT, 80)
@_cvt(DIRECTED, "bf16", "f64", _CUT_NAN, 90)
@_cvt(ROUNDED, "bf16", "f16", _CUT, 90)
@_cvt(ROUNDED, "f16", "bf16", _CUT, 90)
@_cvt("{.ftz}{.sat}", "f32", "f16", "a, exactly")
@_cvt("{.ftz}{.sat}", "f64", "f32", _EXACT)
@_cvt("{.sat}", "f64", "f16", _EXACT, 53)
@_cvt(ROUNDED, "f64", "bf16", _EXACT, 90)
@_cvt(f"{_MAYBE_INTEGRAL}{{.ftz}}{{.sat}}", "f32", "f32", f"{_SAME}; without a modifier, the bits")
@_cvt(f"{_MAYBE_INTEGRAL}{{.sat}}", "f64", "f64", f"{_SAME}; without a modifier, the bits")
@_cvt(f"{_MAYBE_INTEGRAL}{{.sat}}", "f16", "f16", _SAME, 53)
@_cvt(_MAYBE_INTEGRAL, "bf16", "bf16", _SAME, 90)
def cvt_float(form: Form, a: Any) -> Any:
    if form.T == form.U and form.T in ("f32", "f64") and not form.modifiers:
        return words(a)
    x, to = _number(form, a), FORMATS[form.T]
    if form.modifiers and form.modifiers[0].endswith("i"):
        x = floats.round_integral(x, rounding(form))
    d, nan = _rounded(form, form.T, x), np.isnan(x)
    if nan.any():
        d = where(nan, _nan(form, a), d)
    if form.has("ftz") and form.T == "f32":
        d = to.flush(to.underflow(d, lambda: _rounded(form, "f32", x + x)))
    return to.saturate(d) if form.has("sat") else d


@_cvt(f"{ROUNDED}{{.ftz}}", "f32", "bf16", "a, exactly, also a NaN; ftz: flushed, and NaN 0x7fffffff", 80)
def cvt_f32_bf16(form: Form, a: Any) -> Any:
    f32 = FORMATS["f32"]
    d = np.left_shift(a.astype(np.uint32), np.uint32(16))
    return f32.canonical(f32.flush(d)) if form.has("ftz") else d


@_cvt(
    f"<.rn|.rz><{_LIMITS}>",
    "f16 bf16",
    "f32",
    f"{_CUT}; relu: negative is +0; satfinite: no larger than the largest number",
    80,
    name="cvt.f16.f32 (relu, satfinite)",
)
@_cvt("<.rn|.rz>{.relu}", "tf32", "f32", f"{_CUT}; relu: negative is +0", 90)
def cvt_limited(form: Form, a: Any) -> Any:
    return _element(form, form.T, a)


@_cvt(
    "<.rna>{.satfinite}",
    "tf32",
    "f32",
    "rounded to nearest, ties away from zero; an H200 only cuts a NaN, satfinite also counts it down",
    80,
    name="cvt.rna.tf32.f32",
)
def cvt_rna(form: Form, a: Any) -> Any:
    bits, infinity = words(a), FORMATS["f32"].infinity
    finite = np.bitwise_and(bits, infinity) != infinity
    d = np.bitwise_and(np.add(bits, finite * np.uint32(0x1000)), np.uint32(0xFFFFE000))
    if form.has("satfinite"):
        d = np.subtract(d, (np.bitwise_and(d, infinity) == infinity) * np.uint32(0x2000))
    return d


# ---------------------------------------------------------------------------------------------- pairs


@_cvt(
    f"<.rn|.rz>{{{_LIMITS}}}",
    "f16x2 bf16x2",
    "f32",
    "a rounded as the high half, b as the low half",
    80,
    name="cvt.f16x2.f32",
    syntax="d:T = a:U, b:U",
)
@_cvt(
    "<.rn><.satfinite|.satfinite.relu|.relu.satfinite>",
    "e4m3x2 e5m2x2",
    "f32",
    "a rounded as the high byte, b as the low byte; no larger than the largest number",
    89,
    name="cvt.e4m3x2.f32",
    syntax="d:T = a:U, b:U",
)
def cvt_pair(form: Form, a: Any, b: Any) -> Any:
    return _pair(form, a, b)


@_cvt(
    "<.rn><.satfinite|.satfinite.relu|.relu.satfinite>",
    "e4m3x2 e5m2x2",
    "f16x2",
    "each half rounded to a byte; no larger than the largest number",
    89,
    name="cvt.e4m3x2.f16x2",
)
def cvt_narrow_pair(form: Form, a: Any) -> Any:
    return _pair(form, *(widen(half, "f16") for half in split(a)))


@_cvt(
    "<.rn>{.relu}",
    "f16x2",
    "e4m3x2 e5m2x2",
    "each byte as a half, exactly; relu: negative is +0",
    89,
    name="cvt.f16x2.e4m3x2",
)
def cvt_wide_pair(form: Form, a: Any) -> Any:
    octets = np.right_shift(a, np.uint16(8)), np.bitwise_and(a, np.uint16(0xFF))
    return _pair(form, *(widen(o.astype(np.uint8), form.U.removesuffix("x2")) for o in octets))


# -------------------------------------------------------------------------------------- shared functions


def _number(form: Form, a: Any) -> Any:
    """The operand as f32 or f64, flushed for ``.ftz``."""
    if form.U in ("f16", "bf16"):
        return widen(words(a), form.U)
    return floats.flush(a) if form.has("ftz") and form.U == "f32" and form.T != "f16" else a


def _rounded(form: Form, kind: str, x: Any) -> Any:
    """Round an f32 or f64 to a word of another format."""
    if kind in ("f32", "f64"):
        return words(floats.convert(x, DTYPES[kind], rounding(form)))
    return narrow(x, kind, rounding(form), saturate_finite=".satfinite" in form.opcode)


def _element(form: Form, kind: str, x: Any) -> Any:
    """Round an f32 to a word of a narrower format, after ``.relu``; a NaN becomes the canonical one."""
    if ".relu" in form.opcode:
        x = np.add(np.maximum(x, x.dtype.type(0)), x.dtype.type(0))  # the sum is never -0
    return _rounded(form, kind, x)


def _pair(form: Form, high: Any, low: Any) -> Any:
    """Round two numbers to the high and the low half of a word."""
    kind = form.T.removesuffix("x2")
    high, low = _element(form, kind, high), _element(form, kind, low)
    if DTYPES[form.T].itemsize == 4:
        return pack(high, low)
    return np.bitwise_or(np.left_shift(high.astype(np.uint16), np.uint16(8)), low.astype(np.uint16))


def _nan(form: Form, a: Any) -> Any:
    """The result for a NaN operand: to or from f64, a quiet NaN with its sign and the top payload bits."""
    source, to = FORMATS[form.U], FORMATS[form.T]
    if "f64" not in (form.T, form.U):
        return to.nan
    bits = words(a)
    if form.has("ftz") and form.U == "f32":
        bits = source.canonical(bits)
    at_top = np.left_shift(bits.astype(np.uint64), np.uint64(52 - source.fraction))
    payload = np.right_shift(np.bitwise_and(at_top, np.uint64((1 << 52) - 1)), np.uint64(52 - to.fraction))
    sign = where(np.bitwise_and(bits, source.sign) != 0, to.sign, to.word.type(0))
    return np.bitwise_or(payload.astype(to.word), np.bitwise_or(sign, np.bitwise_or(to.infinity, to.quiet)))
