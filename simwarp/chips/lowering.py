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

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

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


class _Fact(NamedTuple):
    """An entry of the table; ``parts`` are (count, instruction, kind of register or "")."""

    family: str
    variant: str
    first: Chip
    last: Chip
    parts: list[tuple[str, str, str]]
    native: bool
    note: str


# Paragraphs, each with a note on its products: "!" where the tensor core does not multiply them in their own
# type. A line: family, or family: variant | from sm to sm | instructions, once or for each register of a kind
_TABLE = """
b1 xor          | 75-89 | 1 BMMA.{shape}.XOR.POPC
b1 and          | 80-90 | 1 BMMA.{shape}.AND.POPC
s4 and u4       | 75-89 | 1 IMMA.{shape}.{a}.{b}{sat}
s8 and u8       | 75-90 | 1 IMMA.{shape}.{a}.{b}{sat}
wmma s8 and u8  | 75-75 | 4 IMMA.8816.{a}.{b}{sat}
wmma s8 and u8  | 80-90 | 2 IMMA.16816.{a}.{b}{sat}
e4m3 and e5m2   | 89-89 | 1 QMMA.{shape}.{d}.{a}.{b}
f16             | 75-90 | 1 HMMA.{shape}.{d}
bf16            | 80-90 | 1 HMMA.{shape}.F32.BF16
tf32            | 80-90 | 1 HMMA.{shape}.F32.TF32
f64             | 80-89 | 1 DMMA.{shape}{rounding}
f64             | 90-90 | 1 DMMA.{m}x{n}x{k}{rounding}
wmma f16        | 75-75 | 4 HMMA.1688.{d}
wmma f16        | 80-90 | 2 HMMA.16816.{d}
wmma bf16       | 80-90 | 2 HMMA.16816.F32.BF16
wmma tf32       | 80-90 | 4 HMMA.1684.F32.TF32
transposition   | 75-90 | 1 MOVM.16.MT88
m8n8k4 f16      | 75-75 | 1 HMMA.884.{d}.{c}.STEP per pair of accumulators

the sum is f32, and rounded to f16 in the end
wmma f16, c f32 | 75-75 | 4 HMMA.1688.F32, 8 F2F, 4 PRMT
wmma f16, c f32 | 80-90 | 2 HMMA.16816.F32, 4 F2FP

c is widened to f32 first
wmma f16, d f32 | 75-75 | 4 HMMA.1688.F32, 8 HADD2
wmma f16, d f32 | 80-90 | 2 HMMA.16816.F32, 8 HADD2

! two AND each; one would do: popc(a ^ b) = popc(a) + popc(b) - 2 popc(a & b)
b1 xor          | 90-90 | 2 BMMA.{shape}.AND.POPC, 1 LOP3 per operand, 1 IADD3 per accumulator

! unpacked to 8 bits, and two IMMA each; s8 and u8 are native
s4 and u4       | 90-90 | 2 IMMA.{half}.{a8}.{b8}, 15 LOP3 per s4, 15 SHF per s4, 2 LOP3 per u4, 1 SHF per u4,
    1 IADD3 per wrapping accumulator, 2 IADD3 per saturating accumulator, 2 PLOP3 per saturating accumulator,
    2 SEL per saturating accumulator

! unpacked to f16, two HMMA each, and the sum is added to c; wgmma is native
e4m3 and e5m2   | 90-90 | 2 HMMA.{half}.{d}, 2 F2FP per operand, 1 FADD per f32 accumulator,
    1 HADD2 per f16 accumulator

! no tensor core: shuffles and fused multiply-adds in f32; m16n8k8 is native
m8n8k4 f16: f16 f16 row.col | 80-90 | 4 F2FP, 16 FADD, 16 FFMA, 16 FMUL, 44 HADD2, 7 IADD3, 1 LOP3, 1 S2R,
    16 SHFL
m8n8k4 f16: f32 f16 row.col | 80-90 | 8 FADD, 32 FFMA, 32 HADD2, 5 IADD3, 1 ISETP, 5 LOP3, 2 S2R, 4 SEL,
    1 SHF, 16 SHFL
m8n8k4 f16: f32 f32 row.col | 80-90 | 8 FADD, 32 FFMA, 24 HADD2, 5 IADD3, 3 LOP3, 1 S2R, 12 SHFL
m8n8k4 f16: f16 f16 | 80-90 | 4 F2FP, 16 FADD, 16 FFMA, 16 FMUL, 44 HADD2, 7 IADD3, 2 ISETP, 5 LOP3, 6 PRMT,
    2 S2R, 8 SEL, 1 SHF, 24 SHFL
m8n8k4 f16: f32 f16 | 80-90 | 8 FADD, 32 FFMA, 32 HADD2, 5 IADD3, 3 ISETP, 9 LOP3, 6 PRMT, 3 S2R, 12 SEL,
    2 SHF, 24 SHFL
m8n8k4 f16: f32 f32 | 80-90 | 8 FADD, 32 FFMA, 24 HADD2, 5 IADD3, 2 ISETP, 7 LOP3, 6 PRMT, 2 S2R, 8 SEL,
    1 SHF, 20 SHFL
"""


def _read(table: str) -> Iterator[_Fact]:
    for paragraph in table.split("\n\n"):
        lines = paragraph.replace("\n    ", " ").strip().splitlines()
        note = lines.pop(0) if "|" not in lines[0] else ""
        for line in lines:
            head, chips, made = line.split("|")
            family, _, variant = head.strip().partition(": ")
            first, last = (divmod(int(sm), 10) for sm in chips.split("-"))
            parts = re.findall(r"(\d+) ([^ ,]+)(?: per ([^,]+))?", made)
            yield _Fact(family, variant, first, last, parts, not note.startswith("!"), note.lstrip("! "))


_FACTS = tuple(_read(_TABLE))


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
        For another instruction; for a chip that was not examined, or that lacks it.

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
    words, fragments = opcode.split("."), fragments_of(opcode)
    if words[0] not in ("mma", "movmatrix") and words[:2] != ["wmma", "mma"]:
        raise SchemeError(
            f"{opcode} has no lowering here\nwgmma, and what only moves fragments, is what PTX says it is\n"
            "ask for mma, wmma.mma or movmatrix"
        )
    types = {name: operand.type for name, operand in fragments.operands.items()}
    family, least = _family(words, fragments, types), _least(words, fragments, types["a"])
    accumulators = f"{types.get('d')} {types.get('c')}"
    variants = ("", f"{accumulators} row.col" if ".row.col." in opcode else accumulators)
    for fact in _FACTS:
        if fact.family == family and fact.variant in variants and max(fact.first, least) <= cc <= fact.last:
            return Lowering(family, _count(fact, words, fragments), fact.native, fact.note)
    raise SchemeError(
        f"what ptxas makes of {opcode} on {chip_name(cc)} is not known\n"
        f"sm_75 to sm_90 were examined; this instruction needs {chip_name(least)}\n"
        "give the compute capability of such a chip, as (9, 0)"
    )


def _family(words: list[str], fragments: Fragments, types: Mapping[str, str]) -> str:
    """The product in the words of the table."""
    a = types["a"]
    if words[0] == "movmatrix":
        return "transposition"
    if a == "b1":
        return "b1 xor" if "xor" in words else "b1 and"
    if fragments.shape == (8, 8, 4) and a == "f16":
        return "m8n8k4 f16"
    kind = next((pair for pair in ("s4 and u4", "s8 and u8", "e4m3 and e5m2") if a in pair.split()), a)
    if words[0] == "mma" or a in ("s4", "u4", "f64"):
        return kind
    odd = {("f16", "f32"): ", c f32", ("f32", "f16"): ", d f32"}
    return f"wmma {kind}{odd.get((types['d'], types['c']), '')}"


def _least(words: list[str], fragments: Fragments, a: str) -> Chip:
    """The first chip that has it (PTX ISA 9.0, target notes of 9.7.14.4.5 and 9.7.14.5.14)."""
    shape = fragments.shape
    if a in ("e4m3", "e5m2"):
        return ADA
    if a == "f64" and shape.m == 16:
        return HOPPER
    if a in ("bf16", "tf32", "f64") or "and" in words:
        return AMPERE
    return AMPERE if words[0] == "mma" and shape.m == 16 and shape.k > 8 else TURING


def _count(fact: _Fact, words: list[str], fragments: Fragments) -> dict[str, int]:
    """Fill in the names in braces, and multiply by the registers of each kind."""
    (m, n, k), saturates = fragments.shape, "satfinite" in words
    names = {"m": m, "n": n, "k": k, "shape": f"{m}{n}{k}", "half": f"{m}{n}{k // 2}"}
    rounding = "".join(f".{word.upper()}" for word in words if word in ("rz", "rm", "rp"))
    names |= {"rounding": rounding, "sat": ".SAT" * saturates}
    registers = Counter({"": 1})
    for name, operand in fragments.operands.items():
        kind, count = operand.type, operand.layout.registers
        names |= {name: kind.upper(), f"{name}8": kind.upper().replace("4", "8")}
        if name in "ab":
            registers.update({"operand": count, kind: count})
        elif name == "d":
            limits = "saturating" if saturates else "wrapping"
            each = "accumulator", f"{limits} accumulator", f"{kind} accumulator"
            registers.update(dict.fromkeys(each, count) | {"pair of accumulators": count // 2})
    found: Counter[str] = Counter()
    for count, name, each in fact.parts:
        found[name.format(**names)] += int(count) * registers[each]
    return {name: count for name, count in found.items() if count}


def chip_name(cc: Chip) -> str:
    """As the compiler spells it.

    Examples
    --------
    >>> chip_name((9, 0))
    'sm_90'
    """
    return f"sm_{cc[0]}{cc[1]}"
