"""Random tiles for matrix products, in classes that each expose a different mistake.

A class draws the words of a, b and c, (matrices, rows, columns), for many products at once. `CLASSES` has
the classes of floats, of integers and of bits.

>>> list(classes_of("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32"))
['anything', 'sparse', 'alike', 'near the ends']
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from simwarp.floats.formats import FORMATS, Format
from simwarp.floats.packing import join
from simwarp.fragments import fragments_of
from simwarp.lab.evidence.bounds import values
from simwarp.verify.draw import Draw

Array: TypeAlias = npt.NDArray[Any]
Words: TypeAlias = dict[str, Array]
"""The words of a, b and c, by name."""

WIDTHS = np.array([0, 1, 2, 4, 8, 16, 30])
"""The ranges of exponents that the numbers of one operand may have: largest less smallest."""


class Operands(NamedTuple):
    """The types of a, b and c, and their shapes (matrices, rows, columns)."""

    types: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, int, int]]

    def format(self, name: str) -> Format:
        """The format of an operand of a float type."""
        return FORMATS[self.types[name]]

    def word(self, name: str) -> np.dtype[Any]:
        """The unsigned dtype that holds an element of an operand."""
        kind = self.types[name]
        return FORMATS[kind].word if kind in FORMATS else np.dtype(np.uint32 if kind == "s32" else np.uint8)


Maker: TypeAlias = Callable[[Draw, Operands], Words]


def classes_of(opcode: str) -> dict[str, Maker]:
    """By name, the classes of tiles for an instruction."""
    kind = fragments_of(opcode).operands["a"].type
    return CLASSES["floats" if kind in FORMATS else "bits" if kind == "b1" else "integers"]


def tiles(opcode: str, draw: Draw, count: int) -> Words:
    """The words of ``count`` tiles of a, b and c, (count, rows, columns); the classes of tiles alternate.

    If a tile has four matrices, the shape is (count, matrices, rows, columns).
    """
    operands = {name: fragments_of(opcode).operands[name] for name in "abc"}
    classes = classes_of(opcode)
    each = count // len(classes)
    shapes = {n: (each * x.layout.matrices, x.layout.rows, x.layout.columns) for n, x in operands.items()}
    form = Operands({name: operand.type for name, operand in operands.items()}, shapes)
    made = [maker(draw, form) for maker in classes.values()]
    tile = {name: operand.layout.shape for name, operand in operands.items()}
    parts = {name: [one[name].reshape(each, *shape) for one in made] for name, shape in tile.items()}
    return {name: np.stack(parts[name], axis=1).reshape(-1, *shape) for name, shape in tile.items()}


def uniform(draw: Draw, low: Any, high: Any, shape: tuple[int, ...]) -> Array:
    """An array of random integers from ``low`` to ``high``, both included."""
    span = np.asarray(high - low + 1).astype(np.uint64)
    return low + (draw.words(int(np.prod(shape))).reshape(shape) % span).astype(np.int64)


def anything(draw: Draw, form: Operands) -> Words:
    """Tiles a, b and c of random bits."""
    made: Words = {}
    for name, shape in form.shapes.items():
        word, count = form.word(name), int(np.prod(shape))
        raw = draw.words(-(-count * word.itemsize // 8)).astype("<u8").view(word.newbyteorder("<"))
        made[name] = raw[:count].astype(word).reshape(shape) & word.type(ones(form.types[name]))
    return made


def ones(kind: str) -> int:
    """The word with all bits of an element set."""
    return (1 << FORMATS[kind].word.itemsize * 8) - 1 if kind in FORMATS else (1 << int(kind[1:])) - 1


# ------------------------------------------------------------------------------- integers and bits


def near_the_ends(draw: Draw, form: Operands) -> Words:
    """Random bits, with c near the end of its type, so that sums overflow or almost do."""
    made = anything(draw, form)
    made["c"] = (2**31 + uniform(draw, -(1 << 12), 1 << 12, form.shapes["c"])).astype(np.uint32)
    return made


def alike(draw: Draw, form: Operands) -> Words:
    """Tiles of the largest products, all of one sign, with c near an end of its type."""
    made = near_the_ends(draw, form)
    for name in "ab":
        top = ones(form.types[name])
        choices = np.array([top, top // 2, top // 2 + 1], made[name].dtype)
        chosen = choices[uniform(draw, 0, 2, (len(made[name]), 1, 1))]
        made[name] = np.broadcast_to(chosen, made[name].shape)
    return made


def sparse(draw: Draw, form: Operands) -> Words:
    """Tiles whose a and b are mostly zeros."""
    made = anything(draw, form)
    for name in "ab":
        made[name] = made[name] * (uniform(draw, 0, 7, made[name].shape) == 0).astype(made[name].dtype)
    return made


def dense(draw: Draw, form: Operands) -> Words:
    """Tiles in which most bits of a and b are 1."""
    made = sparse(draw, form)
    return made | {name: made[name] ^ 1 for name in "ab"}


# ------------------------------------------------------------------------------------------- floats


def floats(draw: Draw, form: Operands, name: str, exponent: Any, width: Any) -> Array:
    """Random floats with exponents from exponent - width to exponent, clipped to the type or subnormal."""
    format, shape = form.format(name), form.shapes[name]
    field = exponent - uniform(draw, 0, width, shape) - (format.least_exponent - 1)
    field = np.clip(field, 0, format.largest >> format.fraction_bits)
    full = (1 << format.fraction_bits) - 1
    fraction = uniform(draw, 0, full, shape)
    plain = uniform(draw, 0, 7, shape)
    fraction = np.where(plain == 0, 0, np.where(plain == 1, full, fraction))
    if not format.has_infinity:  # the last fraction of the last exponent is NaN
        fraction = np.minimum(fraction, np.where(field > field.max() - 1, full - 1, full))
    below = uniform(draw, 0, (1 << format.padding) - 1, shape) if format.padding else 0
    words = join(uniform(draw, 0, 1, shape) == 1, field << format.fraction_bits | fraction, format)
    return words | np.asarray(below).astype(format.word)


def window(draw: Draw, form: Operands, least: int, greatest: int) -> Words:
    """Random floats, in each tile from a different range of exponents.

    A tile's products have a largest exponent drawn from least to greatest, clipped to the types.
    """
    a, b = form.format("a"), form.format("b")
    count, top = (form.shapes["a"][0], 1, 1), a.greatest_exponent + b.greatest_exponent
    least = min(least, top)
    product = uniform(draw, least, max(least, min(greatest, top)), count)
    low = np.maximum(least_of(a), product - b.greatest_exponent)
    high = np.maximum(np.minimum(a.greatest_exponent, product - least_of(b)), low)
    left = uniform(draw, low, high, count)
    tops = {"a": left, "b": product - left, "c": product + uniform(draw, -32, 4, count)}
    widths = {name: WIDTHS[uniform(draw, 0, len(WIDTHS) - 1, count)] for name in tops}
    return {name: floats(draw, form, name, tops[name], widths[name]) for name in tops}


def least_of(format: Format) -> int:
    """The exponent of a format's least positive (subnormal) number."""
    return format.least_exponent - format.fraction_bits


def reach(form: Operands) -> tuple[int, int]:
    """The least and greatest exponents of products whose sums neither underflow nor overflow c's type."""
    a, b, c = (form.format(name) for name in "abc")
    least = max(least_of(a) + least_of(b), least_of(c) - 12)
    return least, min(a.greatest_exponent + b.greatest_exponent, c.greatest_exponent)


def usual(draw: Draw, form: Operands) -> Words:
    """Tiles whose products are near 1."""
    return window(draw, form, -2, 2)


def anywhere(draw: Draw, form: Operands) -> Words:
    """Tiles whose products have any magnitude that c's type can hold."""
    return window(draw, form, *reach(form))


def large(draw: Draw, form: Operands) -> Words:
    """Tiles whose sums are near overflow."""
    greatest = reach(form)[1]
    return window(draw, form, greatest - 6, greatest)


def small(draw: Draw, form: Operands) -> Words:
    """Sums near underflow, with zeros in c of every other tile."""
    least = reach(form)[0]
    made = window(draw, form, least, least + 30)
    made["c"][::2] &= made["c"].dtype.type(form.format("c").sign)
    return made


def in_pairs(draw: Draw, form: Operands, made: Words) -> Words:
    """Replace some products of each tile, at random k, by the negatives of other products."""
    count, _, k = form.shapes["a"]
    order = np.argsort(draw.words(count * k).reshape(count, k), axis=1)
    first, second = order[:, 0::2], order[:, 1::2]
    paired = np.arange(k // 2) < uniform(draw, 1, k // 2, (count, 1))
    partner, negative = np.tile(np.arange(k), (count, 1)), np.zeros((count, k), bool)
    np.put_along_axis(partner, second, np.where(paired, first, second), axis=1)
    np.put_along_axis(negative, second, paired, axis=1)
    signs = negative.astype(made["a"].dtype) * made["a"].dtype.type(form.format("a").sign)
    a = np.take_along_axis(made["a"], partner[:, None, :], axis=2) ^ signs[:, None, :]
    return made | {"a": a, "b": np.take_along_axis(made["b"], partner[:, :, None], axis=1)}


def cancelling(draw: Draw, form: Operands) -> Words:
    """Tiles whose products cancel in pairs, of any magnitude."""
    return in_pairs(draw, form, anywhere(draw, form))


def cancelling_large(draw: Draw, form: Operands) -> Words:
    """Products that cancel in pairs, near overflow and above."""
    return in_pairs(draw, form, window(draw, form, reach(form)[1] - 2, 1 << 12))


def cancelling_small(draw: Draw, form: Operands) -> Words:
    """Products that cancel in pairs, near underflow and below."""
    return in_pairs(draw, form, small(draw, form))


def cancelling_c(draw: Draw, form: Operands) -> Words:
    """C that cancels the product of the last k, as exactly as its type allows."""
    made = anywhere(draw, form)

    def numbers(name: str) -> Array:
        padding = form.format(name).padding
        words: Array = made[name] >> padding << padding
        return values(form.types[name], words)

    with np.errstate(all="ignore"):
        products = -numbers("a")[:, :, -1:] * numbers("b")[:, -1:, :]
        c = products.astype({"f16": "f2", "f32": "f4", "f64": "f8"}[form.types["c"]])
    return made | {"c": c.view(form.word("c"))}


def powers(draw: Draw, form: Operands) -> Words:
    """Powers of two and zeros, whose sums are often halfway between two numbers or nearly so."""
    made = anywhere(draw, form)
    for name, elements in made.items():
        format = form.format(name)
        word, fraction = elements.dtype.type, (1 << format.fraction_bits + format.padding) - 1
        power, zero = word(ones(form.types[name]) - fraction), word(format.sign)
        made[name] = elements & np.where(uniform(draw, 0, 1, elements.shape), power, zero)
    return made


def zeros(draw: Draw, form: Operands) -> Words:
    """Tiles of mostly zeros, of both signs."""
    made = anywhere(draw, form)
    for name, elements in made.items():
        sign = elements.dtype.type(form.format(name).sign)
        made[name] = np.where(uniform(draw, 0, 3, elements.shape) == 0, elements, elements & sign)
    return made


def special(draw: Draw, form: Operands) -> Words:
    """Tiles with infinities, NaN, largest and least numbers, rare in some tiles and frequent in others."""
    made = anywhere(draw, form)
    for name, elements in made.items():
        format = form.format(name)
        beyond = format.largest + 1 << format.padding
        ends = (format.largest << format.padding, 1 << format.padding, format.nan, 0, beyond, beyond + 1)
        pool = np.array([end & format.nan | sign for end in ends for sign in (0, format.sign)], np.uint64)
        rare = WIDTHS[uniform(draw, 3, 6, (len(elements), 1, 1))] * 4
        chosen = uniform(draw, 0, rare, elements.shape) == 0
        picked = pool[uniform(draw, 0, len(pool) - 1, elements.shape)].astype(elements.dtype)
        made[name] = np.where(chosen, picked, elements)
    return made


def _named(*functions: Maker) -> dict[str, Maker]:
    return {function.__name__.replace("_", " "): function for function in functions}


CLASSES = {
    "bits": _named(anything, sparse, dense, near_the_ends),
    "integers": _named(anything, sparse, alike, near_the_ends),
    "floats": _named(
        *(anything, usual, anywhere, large, small, powers, zeros, special),
        *(cancelling, cancelling_large, cancelling_small, cancelling_c),
    ),
}
"""By kind of number, the classes by name."""
