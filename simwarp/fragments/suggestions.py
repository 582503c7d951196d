"""What to say of an instruction that does not exist: what does, and what may have been meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from simwarp.fragments.digits import FragmentError
from simwarp.fragments.forms import SECTIONS, SHAPE, TYPE_BITS


def no_such_instruction(opcode: str, forms: Iterable[str]) -> FragmentError:
    """The error for an opcode that none of the forms spells."""
    name = _name(opcode)
    relatives = [form for form in forms if _name(form) == name]
    if not relatives:
        return FragmentError(
            f"there is no matrix instruction {opcode}\n"
            f"there are {', '.join(SECTIONS)}; PTX ISA 9.0, sections 9.7.14 and 9.7.15\n"
            "spell one in full, such as mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
        )
    exists, alike = _what_exists(opcode, relatives)
    section = next(section for start, section in SECTIONS.items() if name.startswith(start))
    return FragmentError(
        f"there is no instruction {opcode}\n"
        f"{exists}; PTX ISA 9.0, section {section}\n"
        f"did you mean {_nearest(opcode, relatives, alike)}?"
    )


def _what_exists(opcode: str, relatives: list[str]) -> tuple[str, list[str]]:
    """The choices there are where the opcode first leaves all forms, and the forms it had in common."""
    who = _name(opcode)
    for what, choice in (
        ("types", _multiplicand),
        ("shapes", _shape),
        ("types of operands", _types),
        ("layouts", _layouts),
        ("modifiers", _modifiers),
    ):
        alike = [form for form in relatives if choice(form) == choice(opcode)]
        if not alike:
            return f"{who} has the {what} {_listed(map(choice, relatives))}", relatives
        relatives = alike
        who += {"types": f" for {choice(opcode)}", "shapes": f", {choice(opcode)},"}.get(what, "")
    return f"{who} is spelled {relatives[0]}", relatives


def _nearest(opcode: str, relatives: list[str], alike: list[str]) -> str:
    """The form with the same words in another order, else one whose shape and spelling are closest."""
    words = sorted(opcode.split("."))
    reordered = [form for form in relatives if sorted(form.split(".")) == words]
    if reordered:
        return reordered[0]

    def distance(form: str) -> tuple[int, float]:
        apart = sum(
            abs(a - b) for a, b in zip(_numbers(_shape(form)), _numbers(_shape(opcode)), strict=False)
        )
        return apart, -difflib.SequenceMatcher(None, form, opcode).ratio()

    return min(alike, key=distance)


def _listed(names: Iterable[str]) -> str:
    """Each name once, those with numbers in their order; of very many, some."""
    distinct = sorted(dict.fromkeys(names), key=_numbers)
    if len(distinct) > 12:
        distinct[4:-1] = ["…"]
    return ", ".join(distinct)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def _name(opcode: str) -> str:
    """What an instruction is called: ``mma``, ``wmma.mma``, ``wmma.load.a`` and so on."""
    words = opcode.split(".")
    if words[0] != "wmma":
        return words[0]
    return ".".join(words[:3] if words[1:2] in (["load"], ["store"]) else words[:2])


def _types(opcode: str) -> str:
    return ".".join(word for word in opcode.split(".") if word in TYPE_BITS)


def _multiplicand(opcode: str) -> str:
    """The type that an instruction is known by: that of A, or the only one."""
    types = _types(opcode).split(".")
    if _name(opcode) == "wmma.mma" and len(types) == 2:
        return "f16"
    return types[1] if len(types) > 2 else types[0]


def _shape(opcode: str) -> str:
    return next((word for word in opcode.split(".") if re.fullmatch(SHAPE, word)), "")


def _layouts(opcode: str) -> str:
    return ".".join(word for word in opcode.split(".") if word in ("row", "col"))


def _modifiers(opcode: str) -> str:
    name = _name(opcode).split(".")
    known = {*_types(opcode).split("."), _shape(opcode), "row", "col"}
    return ".".join(word for word in opcode.split(".")[len(name) :] if word not in known)
