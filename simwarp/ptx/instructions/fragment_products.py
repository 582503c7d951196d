"""Matrix products on registers: unpack the fragments, multiply, pack the result."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from simwarp import products
from simwarp.floats import Rounding
from simwarp.fragments import Layout, Shape, fragments_of

Words: TypeAlias = npt.NDArray[Any]
Capability: TypeAlias = tuple[int, int]
Types: TypeAlias = tuple[str, str, str, str]


class Multiplication(NamedTuple):
    """The fragment layouts and the product function of one matrix instruction.

    Attributes
    ----------
    a, b, c, d : Layout
        The layout of each matrix; bits in words of 32.
    product : callable
        Takes a compute capability and the raw words of A, B and C; returns those of D.
    """

    a: Layout
    b: Layout
    c: Layout
    d: Layout
    product: Callable[[Capability, Words, Words, Words], Words]


def multiply(opcode: str, cc: Capability, a: Words, b: Words, c: Words) -> Words:
    """Compute D = A B + C on registers (warps, 32, registers): uint32, or uint64 for f64."""
    plan = multiplication(opcode)
    return plan.d.pack(plan.product(cc, plan.a.unpack(a), plan.b.unpack(b), plan.c.unpack(c)))


def transpose(opcode: str, a: Words) -> Words:
    """Transpose an 8 × 8 matrix held in a warp's registers, as ``movmatrix`` does."""
    operands = fragments_of(opcode).operands
    return operands["d"].layout.pack(operands["a"].layout.unpack(a).swapaxes(-1, -2))


def multiply_tiles(opcode: str, cc: Capability, a: Words, b: Words, c: Words) -> Words:
    """Compute D = A B + C of a ``wgmma`` on the words of tiles; bits of A and B in words of 32."""
    return tile_product(opcode)(cc, a, b, c)


@cache
def tile_product(opcode: str) -> Callable[[Capability, Words, Words, Words], Words]:
    """The product of a ``wgmma``, on the words of tiles."""
    fragments, modifiers = fragments_of(opcode), opcode.split(".")
    d, a = (fragments.operands[name].type for name in "da")
    b = modifiers[modifiers.index(d) + 2]
    return _product((d, a, b, d), fragments.shape, modifiers)


@cache
def multiplication(opcode: str) -> Multiplication:
    """The fragment layouts and the product function of a matrix instruction."""
    fragments = fragments_of(opcode)
    d, a, b, c = (fragments.operands[name] for name in "dabc")
    types, modifiers = (d.type, a.type, b.type, c.type), opcode.split(".")
    left, right = a.layout, b.layout
    if a.type == "b1":
        left, right = left.words(), right.words()
    return Multiplication(left, right, c.layout, d.layout, _product(types, fragments.shape, modifiers))


def _product(
    types: Types, shape: Shape, modifiers: list[str]
) -> Callable[[Capability, Words, Words, Words], Words]:
    """A function of (cc, A, B, C) that computes the words of A B + C for these element types."""
    if types[1] == "b1":
        return partial(_bits, "xor" if "xor" in modifiers else "and")
    if types[1] == "f64":
        return partial(_doubles, _rounding(modifiers))
    if types[0] == "s32":
        return partial(_integers, types, "satfinite" in modifiers)
    return partial(_floats, types, shape)


_ROUNDINGS: tuple[Rounding, ...] = ("rz", "rm", "rp")


def _rounding(modifiers: list[str]) -> Rounding:
    """The rounding mode among an opcode's modifiers; "rn" without one."""
    written: list[Rounding] = [rounding for rounding in _ROUNDINGS if modifiers.count(rounding)]
    return written[0] if written else "rn"


def _bits(operation: Literal["and", "xor"], cc: Capability, a: Words, b: Words, c: Words) -> Words:
    return products.bits(a, b, c.view(np.int32), operation).view(np.uint32)


def _integers(types: Types, saturate: bool, cc: Capability, a: Words, b: Words, c: Words) -> Words:
    left, right = _numbers(a, types[1]), _numbers(b, types[2])
    return products.integers(left, right, c.view(np.int32), saturate).view(np.uint32)


def _doubles(rounding: Rounding, cc: Capability, a: Words, b: Words, c: Words) -> Words:
    left, right, addend = (words.view(np.float64) for words in (a, b, c))
    return products.doubles(left, right, addend, rounding).view(np.uint64)


def _floats(types: Types, shape: Shape, cc: Capability, a: Words, b: Words, c: Words) -> Words:
    return products.floats(a, b, c, types, products.rule_of(cc, types, shape))


def _numbers(words: Words, type_name: str) -> Words:
    """Elements of an integer type as numbers: bytes viewed as signed if the type is."""
    if type_name == "s4":
        return ((words ^ np.uint8(8)) - np.uint8(8)).view(np.int8)
    return words.view(np.int8) if type_name == "s8" else words
