"""Functions for the rows of all float formats: words, flushing, order, and the NaN a chip writes.

Arithmetic is `simwarp.floats`; it leaves the bits of a NaN open. Here they become those of an NVIDIA
H200: one canonical NaN in every format but f64, where the payload of an operand goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from simwarp import floats
from simwarp.ptx.instructions._table import where
from simwarp.ptx.rows import Form

_LINEAR = {"mul": (0,), "fma": (0, 2), "mad": (0, 2), "div": (0,), "rcp": (0,)}
"""The operands that double the result when they double, where a result may be inexact below the normal
numbers."""

DIRECTED = "<.rn|.rz|.rm|.rp>"
ROUNDED = "{.rn|.rz|.rm|.rp}"


@dataclass(frozen=True)
class Format:
    """A float format by the words of its special numbers; ``nan`` is that of an invalid operation.

    `numpy.where` costs as much as twenty other operations: rare cases are tested for first.
    """

    name: Any
    word: np.dtype[Any]
    fraction: int
    sign: Any
    normal: Any
    one: Any
    infinity: Any
    nan: Any

    @property
    def quiet(self) -> Any:
        """The bit that is 1 in a quiet NaN and 0 in a signalling one."""
        return self.word.type(1 << (self.fraction - 1))

    def signed(self, x: Any) -> Any:
        """Words as signed integers."""
        return x.view(f"i{self.word.itemsize}")

    def magnitude(self, x: Any) -> Any:
        """Words without their signs."""
        return np.bitwise_and(x, np.invert(self.sign))

    def is_nan(self, x: Any) -> Any:
        """Whether words are NaN."""
        return np.greater(self.magnitude(x), self.infinity)

    def flush(self, x: Any) -> Any:
        """Subnormal words → zeros of their sign."""
        one = self.word.type(1)
        subnormal = np.subtract(self.magnitude(x), one) < np.subtract(self.normal, one)
        return where(subnormal, np.bitwise_and(x, self.sign), x) if subnormal.any() else x

    def order(self, x: Any) -> Any:
        """Words → signed integers in the order of the floats, with -0 before +0; and back."""
        x = self.signed(x)
        negative = np.right_shift(x, x.dtype.type(self.word.itemsize * 8 - 1))
        return np.bitwise_xor(x, np.bitwise_and(negative, self.signed(np.invert(self.sign))))

    def canonical(self, x: Any) -> Any:
        """Words with each NaN the one that arithmetic writes."""
        return self.replaced(x, self.is_nan(x), self.nan)

    def replaced(self, x: Any, lanes: Any, value: Any) -> Any:
        """Words, but ``value`` in these lanes."""
        return where(lanes, value, x) if lanes.any() else x

    def saturate(self, x: Any) -> Any:
        """Words clamped to [+0, 1]; NaN becomes +0."""
        clamped = np.clip(self.signed(x), 0, int(self.one)).view(self.word)
        return self.replaced(clamped, self.is_nan(x), self.word.type(0))

    def finish(self, form: Form, x: Any) -> Any:
        """Words after ``.ftz``, ``.sat`` and ``.relu``, as written."""
        if form.has("ftz"):
            x = self.flush(x)
        if form.has("sat"):
            return self.saturate(x)
        positive = np.maximum(self.signed(x), 0).view(self.word) if form.has("relu") else x
        return self.replaced(positive, self.is_nan(x), self.nan)

    def result(self, form: Form, compute: Any, *operands: Any) -> Any:
        """The words of ``compute(*words)``, with the modifiers applied to operands and result."""
        if not form.has("ftz"):
            return self.finish(form, compute(*operands))
        operands = tuple(self.flush(x) for x in operands)
        d, linear = compute(*operands), _LINEAR.get(form.opcode.split(".")[0], ())

        def twice() -> Any:
            return compute(*(self.double(x) if i in linear else x for i, x in enumerate(operands)))

        return self.finish(form, self.underflow(d, twice) if linear else d)

    def underflow(self, d: Any, twice: Any) -> Any:
        """Results for ``.ftz``, of which ``twice()`` gives the double, where that is a normal number.

        A result is subnormal if it is so when rounded as though exponents had no end: one that was
        rounded up to the least normal number may be.
        """
        least = self.magnitude(d) == self.normal
        if not least.any():
            return d
        below = least & (self.magnitude(twice()) < self.double(self.normal))
        return where(below, np.bitwise_and(d, self.sign), d)

    def double(self, x: Any) -> Any:
        """Twice a normal number, or zero."""
        return where(self.magnitude(x) == 0, x, np.add(x, self.normal))

    def negative(self, form: Form, a: Any) -> Any:
        """``neg``."""
        return self.finish(form, np.bitwise_xor(a, self.sign))

    def absolute(self, form: Form, a: Any) -> Any:
        """``abs``."""
        return self.finish(form, self.magnitude(a))

    def minimum(self, form: Form, a: Any, b: Any) -> Any:
        """``min``."""
        return self._extreme(form, a, b, np.minimum)

    def maximum(self, form: Form, a: Any, b: Any) -> Any:
        """``max``."""
        return self._extreme(form, a, b, np.maximum)

    def _extreme(self, form: Form, a: Any, b: Any, function: Any) -> Any:
        sign = self.word.type(0)
        if form.has("ftz"):
            a, b = self.flush(a), self.flush(b)
        if form.has("xorsign.abs"):
            sign = np.bitwise_and(np.bitwise_xor(a, b), self.sign)
            a, b = self.magnitude(a), self.magnitude(b)
        d = self._pick(a, b, function)
        a_nan, b_nan = self.is_nan(a), self.is_nan(b)
        if form.has("NaN"):
            d = self.replaced(d, a_nan | b_nan, self.nan)
        else:
            d = self.replaced(self.replaced(d, b_nan, a), a_nan, b)
        return self.canonical(np.bitwise_or(d, sign))

    def _pick(self, a: Any, b: Any, function: Any) -> Any:
        """The smaller or the larger one of two numbers."""
        size = self.word.itemsize
        if size == 2:  # NumPy is slow in f16, and has no bf16
            return self.order(function(self.order(a), self.order(b))).view(self.word)
        d = words(function(a.view(f"f{size}"), b.view(f"f{size}")))
        zeros = self.magnitude(np.bitwise_or(a, b)) == 0
        sign = np.bitwise_or if function is np.minimum else np.bitwise_and
        return self.replaced(d, zeros, sign(a, b))


def _format(name: str, exponent: int, fraction: int, nan: int) -> Format:
    word = np.dtype(f"u{(1 + exponent + fraction) // 8}")
    one, infinity = ((1 << exponent - 1) - 1) << fraction, ((1 << exponent) - 1) << fraction
    special = (1 << exponent + fraction, 1 << fraction, one, infinity, nan)
    return Format(name, word, fraction, *map(word.type, special))


FORMATS = {
    "f16": _format("f16", 5, 10, 0x7FFF),
    "bf16": _format("bf16", 8, 7, 0x7FFF),
    "f32": _format("f32", 8, 23, 0x7FFFFFFF),
    "f64": _format("f64", 11, 52, 0xFFF8 << 48),
}
"""By PTX type."""

narrow: Callable[..., Any] = floats.narrow
widen: Callable[..., Any] = floats.widen
"""Of `simwarp.floats`, with the format as any string."""


def rounding(form: Form) -> Any:
    """The rounding that an opcode asks for, also as ``.rni`` and so on; ``rn`` if it does not."""
    modes = (m.removesuffix("i") for m in form.modifiers)
    return next((mode for mode in modes if mode in ("rn", "rz", "rm", "rp")), "rn")


def words(x: Any) -> Any:
    """The bits of a float operand."""
    return x.view(f"u{x.dtype.itemsize}")


def split(pair: Any) -> tuple[Any, Any]:
    """The high and the low uint16 word of packed pairs."""
    low = np.bitwise_and(pair, np.uint32(0xFFFF)).astype(np.uint16)
    return np.right_shift(pair, np.uint32(16)).astype(np.uint16), low


def pack(high: Any, low: Any) -> Any:
    """Two uint16 words as one uint32."""
    return np.bitwise_or(np.left_shift(high.astype(np.uint32), np.uint32(16)), low.astype(np.uint32))


def keep_payload(d: Any, *operands: Any) -> Any:
    """A result of the f64 unit: where it is NaN, the first NaN among the operands, made quiet."""
    nan = np.isnan(d)
    if not nan.any():
        return d
    f64 = FORMATS["f64"]
    bits = f64.nan
    for x in reversed(operands):
        bits = where(np.isnan(x), np.bitwise_or(words(x), f64.quiet), bits)
    return where(nan, bits, words(d)).view(np.float64)


def arithmetic(form: Form, function: Any, *operands: Any, first: tuple[Any, ...]) -> Any:
    """An operation of `simwarp.floats` on f32 or f64; ``first``: whose NaN an f64 result takes."""
    mode = rounding(form)
    if form.T == "f64":
        return keep_payload(function(*operands, mode), *first)

    def compute(*x: Any) -> Any:
        return words(function(*(word.view(np.float32) for word in x), mode))

    return FORMATS["f32"].result(form, compute, *map(words, operands))
