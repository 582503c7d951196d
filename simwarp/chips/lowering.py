"""What ``ptxas`` makes of a matrix instruction on a chip: the instructions of the machine, counted.

A tensor core multiplies some types itself; for others ``ptxas`` makes do with what there is. On sm_90 a b1
``.xor`` product is two ``.and`` products, s4 is unpacked to s8, e4m3 to f16, and the m8n8k4 product of f16
uses no tensor core at all. Bits and integers come out the same, at another cost; floats are rounded
wherever these steps round.

Every number here was seen: one kernel for each form, with and without the instruction between its loads and
stores, was assembled by ptxas 13.0.88 for sm_75, sm_80, sm_86, sm_87, sm_88, sm_89, sm_90 and sm_90a, and
the difference of the two counted in what cuobjdump showed. Not counted are moves, calls, returns and
addresses. An addition or a shift counts as one (``IADD3``, ``SHF``) where ptxas writes it as a
multiplication, as it does where it finds the other unit free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from reference.errors import SchemeError
from simwarp.fragments import Fragments, fragments_of

Chip: TypeAlias = tuple[int, int]
TURING, AMPERE, ADA, HOPPER = (7, 5), (8, 0), (8, 9), (9, 0)


@dataclass(frozen=True)
class Lowering:
    """What one matrix instruction becomes.

    Attributes
    ----------
    family : str
        What is multiplied: "b1 xor", "s4 and u4" …
    instructions : mapping of str to int
        Instructions of the chip, how many of each: those of the tensor core with all their modifiers,
        others by their first name.
    native : bool
        Whether the tensor core multiplies the operands in their own type.
    note : str
        What it costs, and what costs less, in words; "" where there is nothing to say.
    """

    family: str
    instructions: Mapping[str, int]
    native: bool = True
    note: str = ""


@dataclass(frozen=True)
class _Fact:
    """How a family of products is made on the chips from ``first`` to ``last``.

    ``parts`` says how many instructions there are of each kind: once, or for each register of an
    operand or of the accumulators.
    """

    family: str
    first: Chip
    last: Chip
    parts: tuple[tuple[int, str, str], ...]
    note: str = ""
    native: bool = field(default=True, kw_only=True)


def _native(family: str, first: Chip, last: Chip, name: str, count: int = 1) -> _Fact:
    return _Fact(family, first, last, ((count, name, "instruction"),))


_PAIRS = ("s4 and u4", "s8 and u8", "e4m3 and e5m2")
"""Types that share a family."""
_XOR = "two AND each; one would do: popc(a ^ b) = popc(a) + popc(b) - 2 popc(a & b)"
_NIBBLES = "unpacked to 8 bits, and two IMMA each; s8 and u8 are native"
_FP8 = "unpacked to f16, two HMMA each, and the sum is added to c; wgmma is native"
_QUADS = "no tensor core: shuffles and fused multiply-adds in f32; m16n8k8 is native"
_ROUNDED = "the sum is f32, and rounded to f16 in the end"
_WIDENED = "c is widened to f32 first"

_FACTS = (
    _native("b1 xor", TURING, ADA, "BMMA.{shape}.XOR.POPC"),
    _native("b1 and", AMPERE, HOPPER, "BMMA.{shape}.AND.POPC"),
    _Fact(
        "b1 xor",
        HOPPER,
        HOPPER,
        (
            (2, "BMMA.{shape}.AND.POPC", "instruction"),
            (1, "LOP3", "operand"),
            (1, "IADD3", "accumulator"),
        ),
        _XOR,
        native=False,
    ),
    _native("s4 and u4", TURING, ADA, "IMMA.{shape}.{a}.{b}{sat}"),
    _Fact(
        "s4 and u4",
        HOPPER,
        HOPPER,
        (
            (2, "IMMA.{half}.{a8}.{b8}", "instruction"),
            (15, "LOP3", "s4"),
            (15, "SHF", "s4"),
            (2, "LOP3", "u4"),
            (1, "SHF", "u4"),
            (1, "IADD3", "wrapping accumulator"),
            (2, "IADD3", "saturating accumulator"),
            (2, "PLOP3", "saturating accumulator"),
            (2, "SEL", "saturating accumulator"),
        ),
        _NIBBLES,
        native=False,
    ),
    _native("s8 and u8", TURING, HOPPER, "IMMA.{shape}.{a}.{b}{sat}"),
    _native("wmma s8 and u8", TURING, TURING, "IMMA.8816.{a}.{b}{sat}", 4),
    _native("wmma s8 and u8", AMPERE, HOPPER, "IMMA.16816.{a}.{b}{sat}", 2),
    _native("e4m3 and e5m2", ADA, ADA, "QMMA.{shape}.{d}.{a}.{b}"),
    _Fact(
        "e4m3 and e5m2",
        HOPPER,
        HOPPER,
        (
            (2, "HMMA.{half}.{d}", "instruction"),
            (2, "F2FP", "operand"),
            (1, "FADD", "f32 accumulator"),
            (1, "HADD2", "f16 accumulator"),
        ),
        _FP8,
        native=False,
    ),
    _native("f16", TURING, HOPPER, "HMMA.{shape}.{d}"),
    _native("bf16", AMPERE, HOPPER, "HMMA.{shape}.F32.BF16"),
    _native("tf32", AMPERE, HOPPER, "HMMA.{shape}.F32.TF32"),
    _native("f64", AMPERE, ADA, "DMMA.{shape}{rounding}"),
    _native("f64", HOPPER, HOPPER, "DMMA.{m}x{n}x{k}{rounding}"),
    _native("wmma f16", TURING, TURING, "HMMA.1688.{d}", 4),
    _native("wmma f16", AMPERE, HOPPER, "HMMA.16816.{d}", 2),
    _Fact(
        "wmma f16, c f32",
        TURING,
        TURING,
        ((4, "HMMA.1688.F32", "instruction"), (8, "F2F", "instruction"), (4, "PRMT", "instruction")),
        _ROUNDED,
    ),
    _Fact(
        "wmma f16, c f32",
        AMPERE,
        HOPPER,
        ((2, "HMMA.16816.F32", "instruction"), (4, "F2FP", "instruction")),
        _ROUNDED,
    ),
    _Fact(
        "wmma f16, d f32",
        TURING,
        TURING,
        ((4, "HMMA.1688.F32", "instruction"), (8, "HADD2", "instruction")),
        _WIDENED,
    ),
    _Fact(
        "wmma f16, d f32",
        AMPERE,
        HOPPER,
        ((2, "HMMA.16816.F32", "instruction"), (8, "HADD2", "instruction")),
        _WIDENED,
    ),
    _native("wmma bf16", AMPERE, HOPPER, "HMMA.16816.F32.BF16", 2),
    _native("wmma tf32", AMPERE, HOPPER, "HMMA.1684.F32.TF32", 4),
    _native("transposition", TURING, HOPPER, "MOVM.16.MT88"),
    _Fact("m8n8k4 f16", TURING, TURING, ((1, "HMMA.884.{d}.{c}.STEP", "pair of accumulators"),)),
)

_QUAD_PAIRS: dict[tuple[bool, str, str], dict[str, int]] = {
    (True, "f16", "f16"): {
        **{"F2FP": 4, "FADD": 16, "FFMA": 16, "FMUL": 16, "HADD2": 44, "IADD3": 7},
        **{"LOP3": 1, "S2R": 1, "SHFL": 16},
    },
    (True, "f32", "f16"): {
        **{"FADD": 8, "FFMA": 32, "HADD2": 32, "IADD3": 5, "ISETP": 1, "LOP3": 5},
        **{"S2R": 2, "SEL": 4, "SHF": 1, "SHFL": 16},
    },
    (True, "f32", "f32"): {
        **{"FADD": 8, "FFMA": 32, "HADD2": 24, "IADD3": 5, "LOP3": 3},
        **{"S2R": 1, "SHFL": 12},
    },
    (False, "f16", "f16"): {
        **{"F2FP": 4, "FADD": 16, "FFMA": 16, "FMUL": 16, "HADD2": 44, "IADD3": 7, "ISETP": 2},
        **{"LOP3": 5, "PRMT": 6, "S2R": 2, "SEL": 8, "SHF": 1, "SHFL": 24},
    },
    (False, "f32", "f16"): {
        **{"FADD": 8, "FFMA": 32, "HADD2": 32, "IADD3": 5, "ISETP": 3},
        **{"LOP3": 9, "PRMT": 6, "S2R": 3, "SEL": 12, "SHF": 2, "SHFL": 24},
    },
    (False, "f32", "f32"): {
        **{"FADD": 8, "FFMA": 32, "HADD2": 24, "IADD3": 5, "ISETP": 2},
        **{"LOP3": 7, "PRMT": 6, "S2R": 2, "SEL": 8, "SHF": 1, "SHFL": 20},
    },
}
"""m8n8k4 of f16 from sm_80 on, by: whether A is row-major and B column-major, the types of D and C."""


def lowering(opcode: str, cc: Chip) -> Lowering:
    """What ``ptxas`` 13.0 makes of a matrix instruction on a chip.

    Parameters
    ----------
    opcode : str
        ``mma``, ``wmma.mma`` or ``movmatrix``, in full.
    cc : (int, int)
        The chip's compute capability: (7, 5) to (9, 0).

    Raises
    ------
    FragmentError
        For an opcode that does not exist.
    SchemeError
        For another instruction; for a chip that was not looked at, or that lacks it.

    Notes
    -----
    Source: the top of this module. The counts are those of an instruction that stands alone.

    Examples
    --------
    >>> xor = "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc"
    >>> lowering(xor, (8, 0)).instructions
    {'BMMA.168256.XOR.POPC': 1}
    >>> lowering(xor, (9, 0)).instructions, lowering(xor, (9, 0)).native
    ({'BMMA.168256.AND.POPC': 2, 'LOP3': 6, 'IADD3': 4}, False)
    >>> lowering("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", (9, 0)).instructions
    {'HMMA.16816.F32': 1}
    """
    product = _Product(tuple(opcode.split(".")), fragments_of(opcode))
    if product.words[0] not in ("mma", "movmatrix") and product.words[:2] != ("wmma", "mma"):
        raise SchemeError(
            f"{opcode} has no lowering here\nwgmma, and what only moves fragments, is what PTX says it is\n"
            "ask for mma, wmma.mma or movmatrix"
        )
    if product.family == "m8n8k4 f16" and AMPERE <= cc <= HOPPER:
        return Lowering(product.family, _QUAD_PAIRS[product.quad_pairs], False, _QUADS)
    facts = (fact for fact in _FACTS if fact.family == product.family and fact.first <= cc <= fact.last)
    fact = next(facts, None)
    if fact is None or cc < product.least:
        raise SchemeError(
            f"what ptxas makes of {opcode} on {chip_name(cc)} is not known\n"
            f"sm_75 to sm_90 were looked at; this instruction needs {chip_name(product.least)}\n"
            "give the compute capability of such a chip, as (9, 0)"
        )
    return Lowering(fact.family, product.count(fact), fact.native, fact.note)


@dataclass(frozen=True)
class _Product:
    """An instruction as the table sees it: the words of its opcode, and its fragments."""

    words: tuple[str, ...]
    fragments: Fragments

    @cached_property
    def types(self) -> dict[str, str]:
        return {name: operand.type for name, operand in self.fragments.operands.items()}

    @cached_property
    def family(self) -> str:
        """What is multiplied, in the words of the table."""
        base, a = self.words[0], self.types["a"]
        if base == "movmatrix":
            return "transposition"
        if a == "b1":
            return "b1 xor" if "xor" in self.words else "b1 and"
        if self.fragments.shape == (8, 8, 4) and a == "f16":
            return "m8n8k4 f16"
        kind = next((pair for pair in _PAIRS if a in pair.split(" and ")), a)
        if base == "mma" or a in ("s4", "u4", "f64"):
            return kind
        accumulators = self.types["d"], self.types["c"]
        odd = {("f16", "f32"): ", c f32", ("f32", "f16"): ", d f32"}
        return f"wmma {kind}{odd.get(accumulators, '')}"

    @cached_property
    def least(self) -> Chip:
        """The first chip that has it (PTX ISA 9.0, target notes of 9.7.14.4.5 and 9.7.14.5.14)."""
        a, shape = self.types["a"], self.fragments.shape
        if a in ("e4m3", "e5m2"):
            return ADA
        if a == "f64" and shape.m == 16:
            return HOPPER
        if a in ("bf16", "tf32", "f64") or "and" in self.words:
            return AMPERE
        return AMPERE if self.words[0] == "mma" and shape.m == 16 and shape.k > 8 else TURING

    @cached_property
    def quad_pairs(self) -> tuple[bool, str, str]:
        """The key of `_QUAD_PAIRS`."""
        layouts = [word for word in self.words if word in ("row", "col")]
        return layouts == ["row", "col"], self.types["d"], self.types["c"]

    def count(self, fact: _Fact) -> dict[str, int]:
        """The instructions that a line of the table stands for."""
        names, registers = self._names(), self._registers()
        found: Counter[str] = Counter()
        for count, name, each in fact.parts:
            found[name.format(**names)] += count * registers[each]
        return {name: count for name, count in found.items() if count}

    def _names(self) -> dict[str, str]:
        """What stands for the names in braces of the table."""
        m, n, k = self.fragments.shape
        types = {name: kind.upper() for name, kind in self.types.items()}
        rounding = next((f".{word.upper()}" for word in self.words if word in ("rz", "rm", "rp")), "")
        return {
            **types,
            **{f"{name}8": kind.replace("4", "8") for name, kind in types.items()},
            **{"m": str(m), "n": str(n), "k": str(k), "rounding": rounding},
            "shape": f"{m}{n}{k}",
            "half": f"{m}{n}{k // 2}",
            "sat": ".SAT" if "satfinite" in self.words else "",
        }

    def _registers(self) -> Counter[str]:
        """How many there are of what the table multiplies by."""
        found = Counter(instruction=1)
        for name, operand in self.fragments.operands.items():
            registers = operand.layout.registers
            if name in "ab":
                found.update({"operand": registers, operand.type: registers})
            elif name == "d":
                limits = "saturating" if "satfinite" in self.words else "wrapping"
                for kind in ("accumulator", f"{limits} accumulator", f"{operand.type} accumulator"):
                    found[kind] += registers
                found["pair of accumulators"] = registers // 2
        return found


def chip_name(cc: Chip) -> str:
    """As the compiler spells it.

    Examples
    --------
    >>> chip_name((9, 0))
    'sm_90'
    """
    return f"sm_{cc[0]}{cc[1]}"
