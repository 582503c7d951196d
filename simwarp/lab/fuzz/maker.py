"""Draws programs' parts: statements, opcodes, registers, numbers, addresses.

Examples
--------
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
from simwarp.lab.fuzz.program import POOLS, Address, Body, Condition, Operand, Statement, register_class
from simwarp.lab.fuzz.vocabulary import Purpose, Vocabulary, size_of
from simwarp.ptx.rows import DTYPES, Form, Row
from simwarp.verify.draw import Draw

_EDGES = (0, 1, 2, 31, 32, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF)
_WIDE_EDGES = (0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x3F800000, 0x7F800000, 0x00000001, 0x007FFFFF)
_LITERALS = ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64")
"""The types that an operand may be written as a number of."""
_REGIONS = {
    **{space: space for space in ("global", "shared", "local")},
    **{"param": "numbers", "const": "table"},
}
"""The region of each state space."""


@dataclass(frozen=True)
class Scope:
    """The surroundings of a statement to be drawn."""

    depth: int = 3  # how many more statements may be nested
    block: bool = True  # whether all threads of the block are sure to come here
    flat: bool = False  # whether only flat statements may stand here
    tally: str = ""  # the opcode that updates the enclosing tally
    top: bool = False  # whether lanes may end here

    def inside(self, **facts: Any) -> Scope:
        """One level deeper."""
        return replace(self, depth=self.depth - 1, top=False, **facts)


@dataclass(frozen=True)
class Maker:
    """Draws statements of some kinds, and their parts."""

    draw: Draw
    vocabulary: Vocabulary
    kinds: Sequence[type[Statement]]

    def body(self, scope: Scope, count: int) -> Body:
        """So many statements."""
        return tuple(self.statement(scope) for _ in range(count))

    def statement(self, scope: Scope) -> Statement:
        """One statement, of a kind that may stand in the scope."""
        kinds = [kind for kind in self.kinds if kind.purpose in self.vocabulary and kind.fits(scope)]
        ends = list(accumulate(kind.weight for kind in kinds))
        return kinds[bisect_left(ends, self.draw.integer(1, ends[-1]))].draw(self, scope)

    def chance(self, percent: int) -> bool:
        """True so often."""
        return self.draw.integer(1, 100) <= percent

    def opcode(self, purpose: Purpose, fits: Callable[[str], bool] = bool) -> str:
        """An opcode for a purpose that fits, each row as likely as another."""
        while True:
            opcode = self.draw.choice(self.draw.choice(list(self.vocabulary[purpose].values())))
            if fits(opcode):
                return opcode

    def register(self, kind: str) -> str:
        """A register of a class."""
        return self.draw.choice(POOLS[kind])

    def registers(self, kind: str, count: int) -> tuple[str, ...]:
        """Different registers of a class."""
        pool = list(POOLS[kind])
        return tuple(pool.pop(self.draw.integer(0, len(pool) - 1)) for _ in range(count))

    def vector(self, kind: str, count: int) -> tuple[str, ...]:
        """Registers of a class, perhaps the same."""
        return tuple(self.register(kind) for _ in range(count))

    def predicate(self) -> str:
        """A predicate register, at times negated."""
        return f"{'!' * self.chance(30)}{self.register('pred')}"

    def bits(self, width: int) -> int:
        """A number: an edge, a small one, or any."""
        turn = self.draw.integer(0, 3)
        if turn == 0:
            number = self.draw.choice(_EDGES)
        elif turn == 1:
            number = self.draw.choice(_WIDE_EDGES) << 32 * (width == 64)
        else:
            number = self.draw.integer(0, 2**62) if turn == 2 else self.draw.integer(0, 40)
        return number % 2**width

    def operand(self, type_name: str, row: Row, form: Form) -> Operand:
        """A source operand of a type: a register, at times wider than the type, or a literal."""
        if type_name == "pred":
            return self.predicate() if row.base in ("setp", "vote") else self.register("pred")
        # ptxas takes no literals for conversions, packed pairs and video instructions, and the least one of
        # slct for a positive one.
        bare = row.base in ("cvt", "slct") or row.base[0] == "v" or "x" in form.T
        if type_name in _LITERALS and not bare and self.chance(18):
            # ptxas cuts the amounts of narrow shifts to 16 bits.
            shift = row.base in ("shl", "shr")
            return self.draw.integer(0, 70) if shift else self.bits(DTYPES[type_name].itemsize * 8)
        return self.register(self.kind(type_name, row))

    def kind(self, type_name: str, row: Row) -> str:
        """The class of register for an operand: ``ld``, ``st`` and most ``cvt`` also take wider ones."""
        least = register_class(type_name)
        if row.base not in ("cvt", "ld", "ldu", "st") or "bf16" in (*row.types, *row.types_u):
            return least
        if not type_name[1:].isdigit() or type_name[0] == "f" or self.chance(60):
            return least
        return self.draw.choice([k for k in ("b16", "b32", "b64") if int(k[1:]) >= int(least[1:])])

    def address(self, form: Form, *regions: Any) -> Address:
        """An address in one of the regions, aligned for the access."""
        region = self.draw.choice(regions)
        size = size_of(form)
        index = self.register("b32") if region != "numbers" and self.chance(30) else ""
        room = RECORD if region == "inputs" else size if index else OWN
        return Address(region, size * self.draw.integer(0, room // size - 1), index, not region_of(form))

    def own(self, form: Form, *generic: str) -> Address:
        """An address in the thread's own memory; a generic one is in one of some regions."""
        return self.address(form, *([region_of(form)] if region_of(form) else generic))

    def condition(self, *kinds: Any) -> Condition:
        """A condition, one of some kinds."""
        kind = self.draw.choice(kinds or ("data", "data", "lane", "lane", "warp", "block"))
        if kind in ("data", "never"):
            what = self.register("pred" if kind == "data" else "b32")
        else:
            what = self.draw.integer(0, 4 if kind == "lane" else 0)
        return Condition(kind, what, self.chance(30))


def region_of(form: Form) -> str:
    """The region that a form's state space is; "" if its address is generic."""
    spaces = (modifier.split("::")[0] for modifier in form.modifiers)
    return next((_REGIONS[space] for space in spaces if space in _REGIONS), "")
