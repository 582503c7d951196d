"""How far a result lies from the expected one, and whether a row's bound allows it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reference.errors import SchemeError
from simwarp.lab.evidence.operands import FLOATS, Words, width

Floats = npt.NDArray[np.float64]
_SMALLEST = {kind: 2.0 ** (2 - (1 << exponent - 1)) for kind, (exponent, _, _) in FLOATS.items()}
"""Of each type, the smallest normal number."""
_POWER = r"2\^(?P<power>-[\d.]+)"
_TEXT = re.compile(
    rf"(?P<ulp>\d+) ulp|{_POWER}(?P<relative> of it)?"
    r"(?: within (?P<turns>\d+) pi of 0)?(?:, of it outside (?P<low>[\d.]+) to (?P<high>[\d.]+))?"
)


@dataclass(frozen=True)
class Bound:
    """The largest error that the PTX ISA allows.

    Attributes
    ----------
    unit : str
        "ulp" (units in the last place), "relative" or "absolute".
    limit : float
        In that unit.
    domain : float
        Operands of a larger magnitude are not bounded.
    relative_outside : (low, high), optional
        For operands outside, an absolute limit is a relative one.
    """

    unit: str
    limit: float
    domain: float = math.inf
    relative_outside: tuple[float, float] | None = None


def parse_bound(text: str) -> Bound:
    """The bound that a row states in words.

    Raises
    ------
    SchemeError
        If it is not one of the forms below.

    Examples
    --------
    >>> parse_bound("2 ulp").limit, parse_bound("2^-3 of it").unit, parse_bound("2^-3").limit
    (2.0, 'relative', 0.125)
    >>> parse_bound("2^-20 within 2 pi of 0").domain == 2 * math.pi
    True
    >>> parse_bound("2^-22, of it outside 0.5 to 2").relative_outside
    (0.5, 2.0)
    """
    found = _TEXT.fullmatch(text)
    if not found:
        raise SchemeError(
            f'the bound "{text}" is not understood\n'
            'write "2 ulp", "2^-11" (absolute) or "2^-11 of it" (relative)'
        )
    if found["ulp"]:
        return Bound("ulp", float(found["ulp"]))
    domain = int(found["turns"]) * math.pi if found["turns"] else math.inf
    outside = (float(found["low"]), float(found["high"])) if found["low"] else None
    return Bound(
        "relative" if found["relative"] else "absolute", 2.0 ** float(found["power"]), domain, outside
    )


def measure(
    bound: Bound, kind: str, operand: Words, expected: Words, got: Words
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Errors in the bound's unit, and which of them it allows.

    Parameters
    ----------
    bound : Bound
    kind : str
        The PTX type of operand and results; of a packed pair the worse half counts.
    operand, expected, got : uint64 (n,)
        The expected result is the exact one, rounded; that much more is allowed.

    Returns
    -------
    (float64 (n,), bool (n,))
        Where one is NaN or infinite and the other is not, the error is infinite; where nothing is
        bounded, it is 0.

    Examples
    --------
    >>> one = np.array([0x3F800000], np.uint64)
    >>> measure(Bound("ulp", 2), "f32", one, one, one + np.uint64(2))
    (array([2.]), array([ True]))
    >>> measure(Bound("relative", 2**-23), "f32", one, one, one + np.uint64(2))
    (array([2.38418579e-07]), array([False]))
    """
    if kind in ("f16x2", "bf16x2"):
        mask = np.uint64(0xFFFF)
        low, high = (
            measure(bound, kind[:-2], *(x >> np.uint64(s) & mask for x in (operand, expected, got)))
            for s in (0, 16)
        )
        return np.maximum(low[0], high[0]), low[1] & high[1]
    if bound.unit == "ulp":
        error = ulps(kind, expected, got)
        return error, error <= bound.limit
    x, y, a = (values(kind, words) for words in (expected, got, operand))
    with np.errstate(all="ignore"):
        rounding = np.abs(values(kind, expected ^ np.uint64(1 << FLOATS[kind][2])) - x) / 2
        # Of a subnormal result even one unit in the last place can be more than a relative bound.
        rounding = np.where(np.abs(x) < _SMALLEST[kind], 2 * rounding, rounding)
        relative = np.full(len(x), bound.unit == "relative")
        if bound.relative_outside:
            low, high = bound.relative_outside
            relative |= (a < low) | (a > high)
        scale = np.where(relative & (x != 0), np.abs(x), 1.0)
        error = np.where(expected == got, 0.0, np.abs(x - y) / scale)
        odd = ~(np.isfinite(x) & np.isfinite(y))
        error = np.where(odd, np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.inf), error)
        error = np.where(np.abs(a) > bound.domain, 0.0, error)
        return error, (error == 0) | (error <= bound.limit + rounding / scale)


def ulps(kind: str, expected: Words, got: Words) -> Floats:
    """How many representable numbers lie between two results; infinite where only one is NaN.

    Examples
    --------
    >>> ulps("f32", np.array([1], np.uint64), np.array([0x80000001], np.uint64)).tolist()
    [2.0]
    """
    x, y = _ordered(kind, expected), _ordered(kind, got)
    nan = np.isnan(values(kind, expected)), np.isnan(values(kind, got))
    apart = np.abs(x.astype(np.float64) - y.astype(np.float64))  # x - y may overflow
    distance = np.where(apart < 1 << 62, np.abs(x - y).astype(np.float64), apart)
    return np.where(nan[0] | nan[1], np.where(nan[0] & nan[1], 0.0, np.inf), distance)


def values(kind: str, words: Words) -> Floats:
    """The numbers that bit patterns of a floating type stand for.

    Examples
    --------
    >>> values("bf16", np.array([0x3F80], np.uint64)).tolist()
    [1.0]
    """
    if kind == "bf16":
        kind, words = "f32", words << np.uint64(16)
    kind = "f32" if kind == "tf32" else kind
    size = width(kind) // 8
    with np.errstate(all="ignore"):
        floats: Any = words.astype(f"u{size}").view(f"f{size}")
        return floats.astype(np.float64)


def _ordered(kind: str, words: Words) -> npt.NDArray[np.int64]:
    """Bit patterns as integers in the order of the numbers; both zeros are 0."""
    unused = np.uint64(FLOATS[kind][2])
    sign = np.uint64(1 << (width(kind) - int(unused) - 1))
    words = words >> unused
    magnitude = (words & (sign - np.uint64(1))).astype(np.int64)
    return np.where(words & sign != 0, -magnitude, magnitude)
