"""The small choices: opcodes, registers, numbers, places."""

from __future__ import annotations

from typing import Any

from simwarp.ptx.rows import DTYPES, Form, Row
from simwarp.testing.fuzz.memory import OWN, RECORD
from simwarp.testing.fuzz.program import POOLS, Operand, Place, Question, register_class
from simwarp.testing.fuzz.vocabulary import Purpose, Vocabulary
from simwarp.verify.draw import Draw

_EDGES = (0, 1, 2, 31, 32, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF)
_WIDE_EDGES = (0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x3F800000, 0x7F800000, 0x00000001, 0x007FFFFF)
_CLAMPS = (0x1F, 0x0, 0x1C1F, 0x181F, 0x1C00, 0x1800, 0x101F, 0x0F, 0x0A07)
_LITERALS = ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64")
"""The types that an operand may be written as a number of."""
_REGIONS = {"param": "numbers", "const": "table"}
"""What a state space is called here, where that is not its name."""


class Choices:
    """Draws the parts of statements.

    Attributes
    ----------
    draw : Draw
    vocabulary : Vocabulary
    """

    def __init__(self, draw: Draw, vocabulary: Vocabulary) -> None:
        self.draw, self.vocabulary = draw, vocabulary

    def chance(self, percent: int) -> bool:
        """True so often."""
        return self.draw.integer(1, 100) <= percent

    def opcode(self, purpose: Purpose) -> str:
        """An opcode for a purpose."""
        return self.vocabulary.draw(self.draw, purpose)

    def register(self, kind: str) -> str:
        """A register of a class."""
        return self.draw.choice(POOLS[kind])

    def registers(self, kind: str, count: int) -> tuple[str, ...]:
        """Different registers of a class."""
        pool = list(POOLS[kind])
        return tuple(pool.pop(self.draw.integer(0, len(pool) - 1)) for _ in range(count))

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
            negated = row.base in ("setp", "vote") and self.chance(30)
            return f"{'!' * negated}{self.register('pred')}"
        # ptxas takes no literals for conversions, packed pairs and video instructions, and the least one of
        # slct for a positive one.
        width = DTYPES[type_name].itemsize * 8
        bare = row.base in ("cvt", "slct") or row.base[0] == "v" or "x" in form.T
        plain = type_name in _LITERALS and not bare
        if plain and self.chance(18):
            # ptxas cuts the amounts of narrow shifts to 16 bits.
            return self.draw.integer(0, 70) if row.base in ("shl", "shr") else self.bits(width)
        return self.register(self.kind(type_name, row))

    def kind(self, type_name: str, row: Row) -> str:
        """The class of register for an operand: ``ld``, ``st`` and most ``cvt`` also take wider ones."""
        least = register_class(type_name)
        if row.base not in ("cvt", "ld", "ldu", "st") or "bf16" in (*row.types, *row.types_u):
            return least
        if not type_name[1:].isdigit() or type_name[0] == "f" or self.chance(60):
            return least
        return self.draw.choice([k for k in ("b16", "b32", "b64") if int(k[1:]) >= int(least[1:])])

    def clamp(self) -> int:
        """Operand c of a shuffle: the warp, segments, and odd ones."""
        return self.draw.choice(_CLAMPS) if self.chance(80) else self.draw.integer(0, 0x1FFF) & 0x1F1F

    def place(self, form: Form, *regions: Any) -> Place:
        """Somewhere in one of the regions, aligned for the access."""
        region = self.draw.choice(regions)
        size = DTYPES[form.T].itemsize * form.vector
        index = self.register("b32") if region != "numbers" and self.chance(30) else ""
        room = RECORD if region == "inputs" else size if index else OWN
        return Place(region, size * self.draw.integer(0, room // size - 1), index, not region_of(form))

    def own(self, form: Form, *generic: str) -> Place:
        """Somewhere in the thread's own memory; a generic address is one of some regions."""
        return self.place(form, *([region_of(form)] if region_of(form) else generic))

    def test(self, *kinds: Any) -> Question:
        """A question, one of some kinds."""
        kind = self.draw.choice(kinds or ("data", "data", "lane", "lane", "warp", "block"))
        if kind in ("data", "never"):
            what = self.register("pred" if kind == "data" else "b32")
        else:
            what = self.draw.integer(0, 4 if kind == "lane" else 0)
        return Question(kind, what, self.chance(30))


def region_of(form: Form) -> str:
    """The region that a form's state space is; "" if its address is generic.

    Examples
    --------
    >>> from simwarp.testing.fuzz.vocabulary import find
    >>> region_of(find("ld.param.u64")[1]), region_of(find("atom.shared.add.u32")[1])
    ('numbers', 'shared')
    """
    for modifier in form.modifiers:
        space = modifier.split("::")[0]
        region = _REGIONS.get(space, space)
        if region in ("global", "shared", "local", "numbers", "table"):
            return region
    return ""
