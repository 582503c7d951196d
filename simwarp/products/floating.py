"""Products of floats: the forms of mma, wmma and wgmma with float accumulators.

The sums are not IEEE's. All addends of a sum are aligned to the largest exponent among them and truncated,
and the sum is rounded once, by the chip's rule (`simwarp.products.rules`). NumPy computes them here; once it
pays, machine code does, of finite numbers and to the same bits (`simwarp.products.machine_code`).

All steps before that rounding are exact in float64; of f16 and eight-bit floats the products, up to their
truncation to integers, in float32. A product has at most 22 significant bits and is between
2^-266 and 2^256, and the largest exponent is between -133 and 254, so a product times 2^(25 - largest) is in
the range of float64. Truncated, each is an integer below 2^27, and at most 33 of them are added.

Source: MMA-Sim, arXiv 2511.10909, corrected where a chip of sm_90 differs (`Rule.floor`, eight-bit floats,
signs of zeros); PTX ISA 9.0, sections 9.7.14.4.5 (wmma.mma) and 9.7.14.5.14 (mma).
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any, cast

import numpy as np

from simwarp.floats import FormatName, fma, widen
from simwarp.floats.formats import FORMATS
from simwarp.products.machine_code import kind_of
from simwarp.products.operands import Numbers, decode
from simwarp.products.rules import Rule, Types
from simwarp.products.warps import Tiles, check, count_tiles, each_tile, few_tiles, flat, warps_last

BLOCK = 1 << 19
"""Bytes of the products per block, which stay in the second-level cache."""


def floats(a: Tiles, b: Tiles, c: Tiles, types: Types, rule: Rule) -> Tiles:
    """Compute a · b + c by the rule of an architecture.

    Parameters
    ----------
    a : uint8, uint16 or uint32 (…, m, k)
        The words; the low 13 bits of tf32 words are ignored.
    b : (…, k, n)
    c : uint16 or uint32 (…, m, n)
    types : (str, str, str, str)
        The types of d, a, b and c, as in the opcode: ``("f32", "e4m3", "e5m2", "f32")``.
    rule : Rule

    Returns
    -------
    uint16 or uint32 (…, m, n)
        The words of d. Any NaN is 0x7FFF or 0x7FFFFFFF.

    Raises
    ------
    ShapeError, DtypeError
        For operands of shapes that do not multiply, or of other words than their types have.

    Examples
    --------
    Eight products of 1, and eight of 2^-26, which Hopper truncates beside them:

    >>> from simwarp.products import rule_of
    >>> types, shape = ("f32", "f16", "f16", "f32"), (1, 1, 16)
    >>> a, b = np.float16([[1] * 8 + [2**-13] * 8]), np.float16([[1]] * 8 + [[2**-13]] * 8)
    >>> c, rule = np.array([[0]], np.uint32), rule_of((9, 0), types, shape)
    >>> floats(a.view(np.uint16), b.view(np.uint16), c, types, rule).view(np.float32).item()
    8.0
    """
    a_word, b_word, c_word = (FORMATS[name].word for name in types[1:])
    check(a, b, c, a_word.name, b_word.name, c_word.name)
    kind = kind_of(types, rule)
    (m, k), n = a.shape[-2:], b.shape[-1]
    if not kind.pays(count_tiles(a, b, c), m, n, k):
        return in_numpy(a, b, c, types, rule)
    leading, tiles = flat(a, b, c)
    a, b, c = (np.ascontiguousarray(x) for x in tiles)
    d, outside = kind.multiply(a, b, c)
    if outside.any():
        d[outside] = in_numpy(a[outside], b[outside], c[outside], types, rule)
    return d.reshape(leading + c.shape[-2:])


@np.errstate(all="ignore")
def in_numpy(a: Tiles, b: Tiles, c: Tiles, types: Types, rule: Rule) -> Tiles:
    """The products of `floats` in NumPy, whatever the operands are."""
    d_word = FORMATS[types[0]].word
    m, n = c.shape[-2:]
    longest = max(len(group) for group in rule.groups)
    if rule.fraction_bits == 0:
        return warps_last(
            partial(_chains, types, rule), a, b, c, d_word, max(1, BLOCK // (8 * m * n * longest))
        )
    if few_tiles(a, b, c):
        rows = max(1, BLOCK // (8 * n * longest))
        return each_tile(partial(_fused, types, rule, rows), a, b, c, d_word)
    block = max(1, BLOCK // (8 * m * n * longest))
    return warps_last(partial(_fused, types, rule, m), a, b, c, d_word, block)


def _fused(
    types: Types, rule: Rule, rows: int, a: Tiles, b: Tiles, c: Tiles, out: Tiles | None = None
) -> Tiles:
    """The product of a (m, k, …), b (k, n, …) and c (m, n, …), ``rows`` rows at a time."""
    left, right = (
        _factors(x, t, rule) for x, t in ((a.swapaxes(0, 1)[:, :, None], types[1]), (b[:, None], types[2]))
    )
    parts = [slice(start, start + rows) for start in range(0, len(c), rows)]
    done = [_added_up(types, rule, _some(left, (slice(None), part)), right, c[part]) for part in parts]
    return done[0] if len(done) == 1 and out is None else np.concatenate(done, out=out)


def _added_up(types: Types, rule: Rule, left: Numbers, right: Numbers, c: Tiles) -> Tiles:
    accumulator = c if types[3] == rule.accumulator else _convert(c, types[3], rule.accumulator)
    total = accumulator if rule.addend == "first" else np.zeros_like(accumulator)
    for group in rule.groups:
        k = slice(None) if len(group) == len(left.value) else list(group)
        total = _sum(_some(left, k), _some(right, k), decode(total, rule.accumulator), rule)
    if rule.addend == "last":
        total = _added(total, accumulator, rule.accumulator)
    return total if types[0] == rule.accumulator else _convert(total, rule.accumulator, types[0])


def _factors(words: Tiles, name: str, rule: Rule) -> Numbers:
    """Decode the factors, as float32 (which is faster) if float32 can hold their products exactly."""
    if rule.operands == "f16":
        words, name = _halves(name)[words], "f16"
    numbers = decode(np.ascontiguousarray(words), name)
    return numbers._replace(value=numbers.value.astype(np.float32)) if name in _NARROW else numbers


@cache
def _halves(name: str) -> Tiles:
    """A table: word of an eight-bit format → the equal f16 word."""
    values = widen(np.arange(256, dtype=np.uint8), cast("FormatName", name))
    return values.astype(np.float16).view(np.uint16)


def _sum(a: Numbers, b: Numbers, c: Numbers, rule: Rule) -> Tiles:
    """Compute one fused sum, c plus the products over k, as words of the accumulator."""
    products = np.multiply(a.value, b.value)
    exponent = np.add(a.exponent, b.exponent).max(axis=0)
    np.maximum(exponent, c.exponent, out=exponent)
    np.maximum(exponent, rule.floor, out=exponent)
    scale = _power_of_two(rule.fraction_bits - exponent)
    if products.dtype == np.float32:
        # Where the exponent reaches the limit, all products are zero.
        products *= _single_power_of_two(np.minimum(rule.fraction_bits - exponent, 127))
        fits = len(products) <= 1 << (29 - rule.fraction_bits)
        total = products.astype(np.int32).sum(axis=0, dtype=np.int32 if fits else np.int64).astype(np.float64)
    else:
        products *= scale
        np.trunc(products, out=products)
        total = products.sum(axis=0)
    total += np.trunc(c.value * scale)
    total *= _power_of_two(exponent - rule.fraction_bits)
    words = _round(total, rule)
    special = _special(a, b, c)
    if special is not None:
        outside = ~np.isfinite(special)
        words[outside] = _round(special[outside], rule)
    return words


def _special(a: Numbers, b: Numbers, c: Numbers) -> Tiles | None:
    """The sums that infinities or NaN determine, by IEEE's rules; None if there are no such values."""
    if a.special is None and b.special is None and c.special is None:
        return None
    left, right, addend = (x.value if x.special is None else x.value + x.special for x in (a, b, c))
    return (left * right).sum(axis=0) + addend


def _round(x: Tiles, rule: Rule) -> Tiles:
    """Round float64 sums to words of the accumulator; every zero is +0."""
    format = FORMATS[rule.accumulator]
    nearest = x.astype(np.float16 if rule.accumulator == "f16" else np.float32)
    words = nearest.view(format.word)
    if rule.rounding == "rz":
        # A result rounded away from zero loses one unit, except an infinity from beyond the greatest
        # exponent.
        words -= (np.abs(nearest) > np.abs(x)) & (np.abs(x) < 2.0 ** (format.greatest_exponent + 1))
    cut = format.fraction_bits - rule.output_bits
    words &= words.dtype.type(2 * format.sign - (1 << cut))
    words[words == format.sign] = 0
    words[np.isnan(x)] = format.nan
    return words


def _chains(types: Types, rule: Rule, a: Tiles, b: Tiles, c: Tiles) -> Tiles:
    """Add chains of fma.rn.f32 to c; a single chain starts with fma(a, b, +0), each of several with a · b."""
    left, right, total = (_float32(x, t) for x, t in ((a, types[1]), (b, types[2]), (c, types[3])))
    start = np.float32(0.0 if len(rule.groups) == 1 else -0.0)
    for group in rule.groups:
        chain: Any = np.full(c.shape, start)
        for k in group:
            chain = fma(left[:, None, k], right[k], chain)
        total = total + chain
    words = _canonical(total, "f32")
    return words if types[0] == "f32" else _convert(words, "f32", types[0])


def _added(x: Tiles, y: Tiles, name: str) -> Tiles:
    """Add words of f16 or f32, rounded to nearest."""
    dtype = np.float16 if name == "f16" else np.float32
    return _canonical(x.view(dtype) + y.view(dtype), name)


def _convert(words: Tiles, source: str, target: str) -> Tiles:
    """Convert words of f16 to f32, or of f32 to f16, rounded to nearest."""
    number = _float32(words, source)
    return _canonical(number if target == "f32" else number.astype(np.float16), target)


def _canonical(values: Tiles, name: str) -> Tiles:
    """The words of floats, in place, with the canonical NaN of the format."""
    words = values.view(FORMATS[name].word)
    words[np.isnan(values)] = FORMATS[name].nan
    return words


def _float32(words: Tiles, name: str) -> Tiles:
    return words.view(np.float16).astype(np.float32) if name == "f16" else words.view(np.float32)


def _some(numbers: Numbers, which: Any) -> Numbers:
    """The numbers that an index array, slice or mask selects."""
    special = None if numbers.special is None else numbers.special[which]
    return Numbers(numbers.value[which], numbers.exponent[which], special)


def _power_of_two(exponent: Tiles) -> Tiles:
    """2^exponent as float64, for exponents of normal float64 numbers."""
    return ((exponent.astype(np.int64) + 1023) << 52).view(np.float64)


def _single_power_of_two(exponent: Tiles) -> Tiles:
    """2^exponent as float32, for exponents of normal float32 numbers."""
    return ((exponent.astype(np.int32) + 127) << 23).view(np.float32)


_NARROW = ("f16", "e4m3", "e5m2")
"""Formats whose products are float32 numbers, also when they are scaled."""
