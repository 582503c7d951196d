"""The rules by which each architecture's tensor cores sum products: alignment, truncation and rounding.

No manual specifies it. The rules come from published measurements (MMA-Sim, arXiv 2511.10909), from ptxas'
lowering of instructions that a chip lacks, and, where `Rule.confirmed`, from our own comparison with the
chip.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

from reference.errors import SchemeError
from reference.values import shortened
from simwarp.chips.chips import Sums, chip_of
from simwarp.floats.formats import FORMATS

Groups: TypeAlias = tuple[tuple[int, ...], ...]
Types: TypeAlias = tuple[str, str, str, str]
Accumulator: TypeAlias = Literal["f16", "f32"]


@shortened
@dataclass(frozen=True)
class Rule:
    """The rule by which one instruction sums its products.

    The exponent of a product is the sum of the stored exponents of its factors (for a subnormal number, the
    least exponent of its format). The largest exponent of all addends other than 0, products and accumulator,
    is found, or `floor` if that is larger. Each addend is truncated to ``fraction_bits`` below it; the
    truncated addends are added exactly, and the sum is rounded once. A sum of 0 is +0, and a NaN has all bits
    set except the sign.

    Attributes
    ----------
    groups : tuple of tuple of int
        The k of the products of each sum; a sum is an addend of the next.
    fraction_bits : int
        0 where the sums are chains of ``fma.rn.f32`` instead (m8n8k4 on chips that lack it).
    accumulator : "f16" or "f32"
        The type of every sum; converted, to nearest, if the instruction returns another.
    rounding : "rz" or "rn"
        The rounding of every sum. An overflow is infinite, also with "rz".
    output_bits : int
        The fraction bits of a sum.
    operands : "" or "f16"
        The type that a and b are converted to before they are multiplied.
    addend : "first" or "last"
        Whether c is an addend of the first sum, or is added to the last sum by another instruction.
    confirmed : bool
        Whether we compared the rule with a chip.
    source : str

    Examples
    --------
    >>> rule = rule_of((9, 0), ("f32", "f16", "f16", "f32"), (16, 8, 16))
    >>> rule.fraction_bits, len(rule.groups), rule.rounding, rule.confirmed
    (25, 1, 'rz', True)
    """

    groups: Groups
    fraction_bits: int
    accumulator: Accumulator
    rounding: Literal["rz", "rn"]
    output_bits: int
    operands: Literal["", "f16"] = ""
    addend: Literal["first", "last"] = "first"
    confirmed: bool = False
    source: str = "MMA-Sim, arXiv 2511.10909"

    @property
    def floor(self) -> int:
        """The least value of the largest exponent: 7 below the least exponent of the accumulator.

        Measured on sm_90 (visible only where c is 0), assumed for other chips.
        """
        return FORMATS[self.accumulator].least_exponent - 7


@cache
def rule_of(cc: tuple[int, int], types: Types, shape: tuple[int, int, int]) -> Rule:
    """The rule by which an architecture computes a form with float accumulators.

    Parameters
    ----------
    cc : (int, int)
        Compute capability.
    types : (str, str, str, str)
        The types of d, a, b and c, as in the opcode.
    shape : (int, int, int)
        m, n and k.

    Raises
    ------
    SchemeError
        For types that no form of the instruction has, or a chip without tensor cores.

    Examples
    --------
    >>> [len(rule_of((8, 0), ("f32", "bf16", "bf16", "f32"), (16, 8, k)).groups) for k in (8, 16)]
    [1, 2]
    """
    _check(types)
    sums = _sums(cc)
    if shape == (8, 8, 4) and cc >= (8, 0):
        return _without_tensor_core(sums, types[0])
    accumulator: Accumulator = "f32" if "f32" in (types[0], types[3]) else "f16"
    eight = types[1] in _EIGHT_BITS
    if eight and sums.eight_as_f16 and shape[0] != _WGMMA_ROWS:
        return _as_f16(sums, accumulator, shape[2])
    bits = sums.eight_bits if eight else sums.fraction_bits
    # wmma with tf32 is two instructions of k = 4, also on a chip that sums more products at once.
    sum_bytes = 16 if types[1] == "tf32" and shape == (16, 16, 8) else sums.sum_bytes
    groups = _in_order(shape[2], sum_bytes // _BYTES.get(types[1], 2))
    return Rule(groups, bits, accumulator, *_rounding(accumulator, bits), confirmed=sums.confirmed)


def _without_tensor_core(sums: Sums, d: str) -> Rule:
    groups = ((0, 1, 2, 3),) if d == "f32" else ((0, 1), (2, 3))
    source = "ptxas 13.0: FFMA, then FADD"
    return Rule(groups, 0, "f32", "rn", 23, confirmed=sums.confirmed, source=source)


def _as_f16(sums: Sums, accumulator: Accumulator, k: int) -> Rule:
    """The rule of eight-bit floats as two f16 instructions, each for two of a register's four elements."""
    groups = tuple(tuple(i for i in range(k) if i % 4 in half) for half in ((0, 1), (2, 3)))
    bits = sums.fraction_bits
    source = "ptxas 13.0: two HMMA from 0, then FADD or HADD2"
    return Rule(
        groups, bits, accumulator, *_rounding(accumulator, bits), "f16", "last", sums.confirmed, source
    )


def _in_order(k: int, products: int) -> Groups:
    return tuple(tuple(range(start, min(start + products, k))) for start in range(0, k, products))


def _rounding(accumulator: Accumulator, fraction_bits: int) -> tuple[Literal["rz", "rn"], int]:
    return ("rn", 10) if accumulator == "f16" else ("rz", min(fraction_bits, 23))


def _sums(cc: tuple[int, int]) -> Sums:
    sums = chip_of(cc).sums
    if sums is None:
        raise SchemeError(
            f"a chip of compute capability {cc[0]}.{cc[1]} does not have tensor cores\n"
            "choose compute capability 7.0 or higher"
        )
    return sums


def _check(types: Types) -> None:
    d, a, b, c = types
    eight = a in _EIGHT_BITS and b in _EIGHT_BITS
    f16_too = a == b == "f16" or eight
    accumulators = {d, c} <= ({"f16", "f32"} if f16_too else {"f32"})
    if not accumulators or not (eight or (a == b and a in ("f16", "bf16", "tf32"))):
        raise SchemeError(
            f"there is no product with d {d}, a {a}, b {b} and c {c}\n"
            "a and b are both f16, bf16 or tf32, or each is e4m3 or e5m2\n"
            "c and d are f32, or f16 where a is not bf16 or tf32 (PTX ISA 9.7.14.5)"
        )


_EIGHT_BITS = ("e4m3", "e5m2")
_BYTES = {"tf32": 4, "e4m3": 1, "e5m2": 1}
_WGMMA_ROWS = 64
