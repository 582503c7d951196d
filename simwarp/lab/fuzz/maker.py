"""Draws the parts of programs: statements, opcodes, registers, numbers, addresses.

>>> from simwarp.lab.fuzz.vocabulary import find
>>> region_of(find("ld.param.u64")[1]), region_of(find("atom.shared.add.u32")[1])
('numbers', 'shared')
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from simwarp.lab.fuzz.memory import OWN, RECORD
from simwarp.lab.fuzz.program import Address, Body, Condition, Operand, Statement
from simwarp.lab.fuzz.registers import POOLS, register_class
from simwarp.lab.fuzz.vocabulary import Purpose, Vocabulary, size_of
from simwarp.ptx.rows import DTYPES, Form, Row
from simwarp.verify.draw import Draw

_EDGES = (0, 1, 2, 31, 32, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF)
_WIDE_EDGES = (0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x3F800000, 0x7F800000, 0x00000001, 0x007FFFFF)
_LITERALS = ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64")
"""The types whose operands may be literals."""
_REGIONS = {"global": "global", "shared": "shared", "local": "local", "param": "numbers", "const": "table"}
"""By state space, the region of a program's memory in it."""


@dataclass(frozen=True)
class Scope:
    """The surroundings of a statement to be drawn; they limit the kinds of statement."""

    depth: int = 3  # the number of further levels of nesting
    block: bool = True  # whether all threads of the block certainly execute the statement
    flat: bool = False  # whether only flat statements are allowed
    tally: str = ""  # the opcode that updates the enclosing tally; "" outside a tally
    top: bool = False  # whether lanes may exit

    def inside(self, **facts: Any) -> Scope:
        """The scope for statements nested one level deeper, with other fields changed."""
        return replace(self, depth=self.depth - 1, top=False, **facts)


@dataclass(frozen=True)
class Maker:
    """Draws statements and their parts, from a vocabulary and the kinds of statement."""

    draw: Draw
    vocabulary: Vocabulary
    kinds: Sequence[type[Statement]]

    def body(self, scope: Scope, count: int) -> Body:
        """Draw ``count`` statements that the scope allows."""
        return tuple(self.statement(scope) for _ in range(count))

    def statement(self, scope: Scope) -> Statement:
        """Draw a statement of a kind that the scope allows."""
        kinds = [kind for kind in self.kinds if kind.purpose in self.vocabulary and kind.fits(scope)]
        ends = list(accumulate(kind.weight for kind in kinds))
        return kinds[bisect_left(ends, self.draw.integer(1, ends[-1]))].draw(self, scope)

    def chance(self, percent: int) -> bool:
        """True with a probability of ``percent`` in 100."""
        return self.draw.integer(1, 100) <= percent

    def opcode(self, purpose: Purpose, fits: Callable[[str], bool] = bool) -> str:
        """Draw an opcode for a purpose that satisfies ``fits``; all rows are equally likely."""
        while True:
            opcode = self.draw.choice(self.draw.choice(list(self.vocabulary[purpose].values())))
            if fits(opcode):
                return opcode

    def register(self, kind: str) -> str:
        """Draw a register of a class, such as "b32"."""
        return self.draw.choice(POOLS[kind])

    def registers(self, kind: str, count: int) -> tuple[str, ...]:
        """Draw ``count`` different registers of a class, such as "b32"."""
        pool = list(POOLS[kind])
        return tuple(pool.pop(self.draw.integer(0, len(pool) - 1)) for _ in range(count))

    def vector(self, kind: str, count: int) -> tuple[str, ...]:
        """Draw ``count`` registers of a class, with repetition."""
        return tuple(self.register(kind) for _ in range(count))

    def predicate(self) -> str:
        """Draw a predicate register as a guard, sometimes negated."""
        return f"{'!' * self.chance(30)}{self.register('pred')}"

    def bits(self, width: int) -> int:
        """Draw a number of some bits: an edge value, a small one, or any."""
        turn = self.draw.integer(0, 3)
        if turn == 0:
            number = self.draw.choice(_EDGES)
        elif turn == 1:
            number = self.draw.choice(_WIDE_EDGES) << 32 * (width == 64)
        else:
            number = self.draw.integer(0, 2**62) if turn == 2 else self.draw.integer(0, 40)
        return number % 2**width

    def operand(self, type_name: str, row: Row, form: Form) -> Operand:
        """Draw a source operand of a type: a register, sometimes wider than the type, or a literal."""
        if type_name == "pred":
            return self.predicate() if row.base in ("setp", "vote") else self.register("pred")
        # ptxas refuses literals in conversions, packed pairs and video instructions, and reads the most
        # negative literal of slct as positive.
        bare = row.base in ("cvt", "slct") or row.base[0] == "v" or "x" in form.T
        if type_name in _LITERALS and not bare and self.chance(18):
            # ptxas truncates the amounts of narrow shifts to 16 bits.
            shift = row.base in ("shl", "shr")
            return self.draw.integer(0, 70) if shift else self.bits(DTYPES[type_name].itemsize * 8)
        return self.register(self.kind(type_name, row))

    def kind(self, type_name: str, row: Row) -> str:
        """Draw the register class of an operand; ``ld``, ``st`` and most ``cvt`` allow wider registers."""
        least = register_class(type_name)
        if row.base not in ("cvt", "ld", "ldu", "st") or "bf16" in (*row.types, *row.types_u):
            return least
        if not type_name[1:].isdigit() or type_name[0] == "f" or self.chance(60):
            return least
        return self.draw.choice([k for k in ("b16", "b32", "b64") if int(k[1:]) >= int(least[1:])])

    def address(self, form: Form, *regions: Any) -> Address:
        """Draw an address in one of the regions, aligned for the access."""
        return self.place(size_of(form), *regions, generic=not region_of(form))

    def place(self, size: int, *regions: Any, generic: bool = False) -> Address:
        """Draw an address of ``size`` aligned bytes in one of the regions."""
        region = self.draw.choice(regions)
        index = self.register("b32") if region != "numbers" and self.chance(30) else ""
        room = RECORD if region == "inputs" else size if index else OWN
        return Address(region, size * self.draw.integer(0, room // size - 1), index, generic)

    def own(self, form: Form, *generic: str) -> Address:
        """Draw an address in the thread's own memory; a generic one is in a region of ``generic``."""
        return self.address(form, *([region_of(form)] if region_of(form) else generic))

    def condition(self, *kinds: Any) -> Condition:
        """Draw a condition of one of the given kinds, or of any."""
        kind = self.draw.choice(kinds or ("data", "data", "lane", "lane", "warp", "block"))
        register = {"data": "pred", "never": "b32"}.get(kind)
        what = self.register(register) if register else self.draw.integer(0, 4 * (kind == "lane"))
        return Condition(kind, what, self.chance(30))


def region_of(form: Form) -> str:
    """The region of a form's state space; "" for a generic address."""
    spaces = (modifier.split("::")[0] for modifier in form.modifiers)
    return next((_REGIONS[space] for space in spaces if space in _REGIONS), "")
