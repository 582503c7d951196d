"""Functions shared by the rows of all float formats: flushing, saturation, order and NaN bits.

`simwarp.floats` does the arithmetic and leaves the bits of a NaN open. Here they become those of an NVIDIA
H200: one canonical NaN in every format except f64, where the payload of an operand is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from simwarp import floats
from simwarp.ptx.instructions.table import where
from simwarp.ptx.rows import Form

_LINEAR = {"mul": (0,), "fma": (0, 2), "mad": (0, 2), "div": (0,), "rcp": (0,)}
"""Instruction with inexact subnormal results → indices of operands that, doubled, double the result."""

DIRECTED = "<.rn|.rz|.rm|.rp>"
ROUNDED = "{.rn|.rz|.rm|.rp}"


@dataclass(frozen=True)
class Format:
    """A float format, with the words of its special numbers; ``nan`` is the result of an invalid operation.

    `numpy.where` costs as much as twenty other operations, so rare cases are tested for first.
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
        """Words of floats, viewed as signed integers."""
        return x.view(f"i{self.word.itemsize}")

    def magnitude(self, x: Any) -> Any:
        """Words of floats with the sign bit cleared."""
        return np.bitwise_and(x, np.invert(self.sign))

    def is_nan(self, x: Any) -> Any:
        """Whether each word of a float is a NaN."""
        return np.greater(self.magnitude(x), self.infinity)

    def flush(self, x: Any) -> Any:
        """Words with subnormal numbers replaced by zeros of their sign."""
        one = self.word.type(1)
        subnormal = np.subtract(self.magnitude(x), one) < np.subtract(self.normal, one)
        return where(subnormal, np.bitwise_and(x, self.sign), x) if subnormal.any() else x

    def order(self, x: Any) -> Any:
        """Map words to signed integers in the order of the floats, -0 before +0; its own inverse."""
        x = self.signed(x)
        negative = np.right_shift(x, x.dtype.type(self.word.itemsize * 8 - 1))
        return np.bitwise_xor(x, np.bitwise_and(negative, self.signed(np.invert(self.sign))))

    def canonical(self, x: Any) -> Any:
        """Words with every NaN replaced by the canonical one."""
        return self.replaced(x, self.is_nan(x), self.nan)

    def replaced(self, x: Any, lanes: Any, value: Any) -> Any:
        """Words of floats, with ``value`` in the given lanes."""
        return where(lanes, value, x) if lanes.any() else x

    def saturate(self, x: Any) -> Any:
        """Words of floats clamped to [+0, 1]; NaN becomes +0."""
        clamped = np.clip(self.signed(x), 0, int(self.one)).view(self.word)
        return self.replaced(clamped, self.is_nan(x), self.word.type(0))

    def finish(self, form: Form, x: Any) -> Any:
        """Apply ``.ftz``, ``.sat`` and ``.relu`` to result words, if the form has them."""
        if form.has("ftz"):
            x = self.flush(x)
        if form.has("sat"):
            return self.saturate(x)
        positive = np.maximum(self.signed(x), 0).view(self.word) if form.has("relu") else x
        return self.replaced(positive, self.is_nan(x), self.nan)

    def result(self, form: Form, compute: Any, *operands: Any) -> Any:
        """Compute result words, with the form's modifiers applied to operands and result."""
        if not form.has("ftz"):
            return self.finish(form, compute(*operands))
        operands = tuple(self.flush(x) for x in operands)
        d, linear = compute(*operands), _LINEAR.get(form.opcode.split(".")[0], ())

        def twice() -> Any:
            return compute(*(self.double(x) if i in linear else x for i, x in enumerate(operands)))

        return self.finish(form, self.underflow(d, twice) if linear else d)

    def underflow(self, d: Any, twice: Any) -> Any:
        """Flush results that were rounded up to the least normal number but are subnormal for ``.ftz``.

        A result counts as subnormal if it is subnormal when rounded with unlimited exponents. ``twice()``
        computes the doubled results, which shows that.
        """
        least = self.magnitude(d) == self.normal
        if not least.any():
            return d
        below = least & (self.magnitude(twice()) < self.double(self.normal))
        return where(below, np.bitwise_and(d, self.sign), d)

    def double(self, x: Any) -> Any:
        """Words of 2 x, for x a normal number or zero."""
        return where(self.magnitude(x) == 0, x, np.add(x, self.normal))

    def negative(self, form: Form, a: Any) -> Any:
        """The words of -a, as ``neg`` computes them."""
        return self.finish(form, np.bitwise_xor(a, self.sign))

    def absolute(self, form: Form, a: Any) -> Any:
        """The words of |a|, as ``abs`` computes them."""
        return self.finish(form, self.magnitude(a))

    def minimum(self, form: Form, a: Any, b: Any) -> Any:
        """The words of the smaller of a and b, as ``min`` computes them."""
        return self._extreme(form, a, b, np.minimum)

    def maximum(self, form: Form, a: Any, b: Any) -> Any:
        """The words of the larger of a and b, as ``max`` computes them."""
        return self._extreme(form, a, b, np.maximum)

    def _extreme(self, form: Form, a: Any, b: Any, function: Any) -> Any:
        """The words of ``min`` or ``max``, with ``.xorsign.abs`` and ``.NaN``."""
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
        """The smaller or larger of two numbers, -0 below +0."""
        size = self.word.itemsize
        if size == 2:  # NumPy computes slowly in f16, and does not have bf16
            return self.order(function(self.order(a), self.order(b))).view(self.word)
        d = words(function(a.view(f"f{size}"), b.view(f"f{size}")))
        zeros = self.magnitude(np.bitwise_or(a, b)) == 0
        sign = np.bitwise_or if function is np.minimum else np.bitwise_and
        return self.replaced(d, zeros, sign(a, b))


def _format(name: str, exponent: int, fraction: int, nan: int) -> Format:
    """The format with these numbers of exponent and fraction bits."""
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
"""PTX type → its format."""

narrow: Callable[..., Any] = floats.narrow
widen: Callable[..., Any] = floats.widen
"""`simwarp.floats.narrow` and `widen`, typed to accept any string as the format."""


def rounding(form: Form) -> Any:
    """The rounding mode in an opcode, also for ``.rni`` and similar; ``rn`` by default."""
    modes = (m.removesuffix("i") for m in form.modifiers)
    return next((mode for mode in modes if mode in ("rn", "rz", "rm", "rp")), "rn")


def words(x: Any) -> Any:
    """The bits of floats, as unsigned integers of the same width."""
    return x.view(f"u{x.dtype.itemsize}")


def split(pair: Any) -> tuple[Any, Any]:
    """The high and the low half of packed pairs, as uint16."""
    low = np.bitwise_and(pair, np.uint32(0xFFFF)).astype(np.uint16)
    return np.right_shift(pair, np.uint32(16)).astype(np.uint16), low


def pack(high: Any, low: Any) -> Any:
    """Pack two uint16 words into one uint32, ``high`` in its upper half."""
    return np.bitwise_or(np.left_shift(high.astype(np.uint32), np.uint32(16)), low.astype(np.uint32))


def keep_payload(d: Any, *operands: Any) -> Any:
    """An f64 result with each NaN replaced by the first NaN operand, made quiet, as hardware does."""
    nan = np.isnan(d)
    if not nan.any():
        return d
    f64 = FORMATS["f64"]
    bits = f64.nan
    for x in reversed(operands):
        bits = where(np.isnan(x), np.bitwise_or(words(x), f64.quiet), bits)
    return where(nan, bits, words(d)).view(np.float64)


def arithmetic(form: Form, function: Any, *operands: Any, first: tuple[Any, ...]) -> Any:
    """An operation of `simwarp.floats` on f32 or f64; an f64 result keeps the first NaN of ``first``."""
    mode = rounding(form)
    if form.T == "f64":
        return keep_payload(function(*operands, mode), *first)

    def compute(*x: Any) -> Any:
        return words(function(*(word.view(np.float32) for word in x), mode))

    return FORMATS["f32"].result(form, compute, *map(words, operands))
