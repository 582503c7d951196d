"""Measures errors of approximate results, and checks them against the bound of the row."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from reference.errors import SchemeError
from simwarp.floats.formats import FORMATS, FormatName
from simwarp.floats.small_formats import widen
from simwarp.lab.evidence.operands import Words

Floats = npt.NDArray[np.float64]
_POWER = r"2\^(?P<power>-[\d.]+)"
_TEXT = re.compile(
    rf"(?P<ulp>\d+) ulp|{_POWER}(?P<relative> of it)?"
    r"(?: within (?P<turns>\d+) pi of 0)?(?:, of it outside (?P<low>[\d.]+) to (?P<high>[\d.]+))?"
)


@dataclass(frozen=True)
class Bound:
    """The largest error that the PTX ISA allows for the results of an instruction.

    Attributes
    ----------
    unit : str
        "ulp" (units in the last place), "relative" or "absolute".
    limit : float
        The largest allowed error, in that unit.
    domain : float
        The largest magnitude of operands for which the limit holds.
    relative_outside : (low, high), optional
        For operands outside this interval, an absolute limit is a relative one.
    """

    unit: str
    limit: float
    domain: float = math.inf
    relative_outside: tuple[float, float] | None = None


def parse_bound(text: str) -> Bound:
    """Parse a row's bound, such as "2 ulp"; SchemeError if the text has another form."""
    found = _TEXT.fullmatch(text)
    if not found:
        raise SchemeError(
            f'the bound "{text}" has an unknown form\n'
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
    """Errors in the bound's unit, and whether each is allowed; a packed pair has the worse half's error.

    The expected result is the exact one, rounded, so that rounding is added to the bound. If only one
    result is NaN or infinite, the error is infinite; outside the bound's domain it is 0.
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
        rounding = np.abs(values(kind, expected ^ np.uint64(1 << FORMATS[kind].padding)) - x) / 2
        # For a subnormal result, one unit in the last place can exceed a relative bound.
        rounding = np.where(np.abs(x) < 2.0 ** FORMATS[kind].least_exponent, 2 * rounding, rounding)
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
    """Distances between results in units in the last place; infinite where only one is NaN."""
    x, y = _ordered(kind, expected), _ordered(kind, got)
    nan = np.isnan(values(kind, expected)), np.isnan(values(kind, got))
    apart = np.abs(x.astype(np.float64) - y.astype(np.float64))  # x - y may overflow
    distance = np.where(apart < 1 << 62, np.abs(x - y).astype(np.float64), apart)
    return np.where(nan[0] | nan[1], np.where(nan[0] & nan[1], 0.0, np.inf), distance)


def values(kind: str, words: Words) -> Floats:
    """The values of a float type's bit patterns, as float64."""
    typed = words.astype(FORMATS[kind].word)
    native = kind in ("f32", "f64")
    floats: Any = typed.view(f"f{typed.itemsize}") if native else widen(typed, cast("FormatName", kind))
    with np.errstate(all="ignore"):
        return floats.astype(np.float64)


def _ordered(kind: str, words: Words) -> npt.NDArray[np.int64]:
    """Map a float type's bit patterns to integers in the order of their values; both zeros are 0."""
    sign, padding = np.uint64(FORMATS[kind].sign), np.uint64(FORMATS[kind].padding)
    magnitude = (words % sign >> padding).astype(np.int64)
    return np.where(words & sign != 0, -magnitude, magnitude)
