"""From registers to matrices, to their product, and back."""

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
    """How one opcode multiplies.

    Attributes
    ----------
    a, b, c, d : Layout
        Who holds what; of bits, words of 32.
    product : callable
        Takes a chip's compute capability and the three matrices' raw words; returns D's.
    """

    a: Layout
    b: Layout
    c: Layout
    d: Layout
    product: Callable[[Capability, Words, Words, Words], Words]


def multiply(opcode: str, cc: Capability, a: Words, b: Words, c: Words) -> Words:
    """D = A B + C, from registers to registers.

    Parameters
    ----------
    opcode : str
        Of ``mma.sync`` or ``wmma.mma``.
    cc : (int, int)
        The compute capability of the chip, whose rules floats follow.
    a, b, c : uint32 (warps, 32, registers), or uint64 for f64

    Returns
    -------
    uint32 (warps, 32, registers), or uint64

    Examples
    --------
    A row of ones in A, all bits set in B: 256 of them meet in each column.

    >>> opcode = "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc"
    >>> a, b, c = (np.zeros((1, 32, n), np.uint32) for n in (4, 2, 4))
    >>> a[0, :4, 0] = a[0, :4, 2] = b[...] = 0xFFFFFFFF
    >>> multiply(opcode, (9, 0), a, b, c)[0, :6].tolist()
    [[256, 256, 0, 0], [256, 256, 0, 0], [256, 256, 0, 0], [256, 256, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    """
    plan = multiplication(opcode)
    return plan.d.pack(plan.product(cc, plan.a.unpack(a), plan.b.unpack(b), plan.c.unpack(c)))


def transpose(opcode: str, a: Words) -> Words:
    """What ``movmatrix`` does.

    Examples
    --------
    >>> a = np.arange(32, dtype=np.uint32).reshape(1, 32, 1)  # element (row, 2 n) is 4 row + n, others are 0
    >>> transpose("movmatrix.sync.aligned.m8n8.trans.b16", a)[0, :2, 0].tolist()
    [262144, 786440]
    """
    operands = fragments_of(opcode).operands
    return operands["d"].layout.pack(operands["a"].layout.unpack(a).swapaxes(-1, -2))


@cache
def multiplication(opcode: str) -> Multiplication:
    """How an opcode multiplies.

    Examples
    --------
    >>> plan = multiplication("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")
    >>> (plan.a.rows, plan.a.columns), (plan.b.rows, plan.b.columns)
    ((16, 32), (32, 8))
    """
    fragments = fragments_of(opcode)
    d, a, b, c = (fragments.operands[name] for name in "dabc")
    types, modifiers = (d.type, a.type, b.type, c.type), opcode.split(".")
    left, right = a.layout, b.layout
    if a.type == "b1":
        left, right = left.words(), right.words()
        product = partial(_bits, "xor" if "xor" in modifiers else "and")
    elif a.type == "f64":
        product = partial(_doubles, _rounding(modifiers))
    elif d.type == "s32":
        product = partial(_integers, types, "satfinite" in modifiers)
    else:
        product = partial(_floats, types, fragments.shape)
    return Multiplication(left, right, c.layout, d.layout, product)


_ROUNDINGS: tuple[Rounding, ...] = ("rz", "rm", "rp")


def _rounding(modifiers: list[str]) -> Rounding:
    """The rounding that is written; else to nearest."""
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
    """Raw elements as numbers; those of 4 bits with their sign."""
    if type_name == "s4":
        return ((words ^ np.uint8(8)) - np.uint8(8)).view(np.int8)
    return words.view(np.int8) if type_name == "s8" else words
