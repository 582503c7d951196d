"""The error for an unknown matrix instruction, with the known choices and the nearest form."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from functools import cache

from simwarp.fragments.digits import FragmentError
from simwarp.fragments.forms import SECTIONS, SHAPE, TYPE_BITS


def no_such_instruction(opcode: str, forms: Iterable[str]) -> FragmentError:
    """The error for an opcode that is not a spelling of any form."""
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
    """The choices for the first word that makes an opcode unknown, and the forms with the words before it."""
    name = _name(opcode)
    for what, choice in _choices(opcode).items():
        alike = [form for form in relatives if _choices(form)[what] == choice]
        if not alike:
            return f"{name} has the {what} {_listed(_choices(form)[what] for form in relatives)}", relatives
        relatives = alike
        name += {"types": f" for {choice}", "shapes": f", {choice},"}.get(what, "")
    return f"{name} is spelled {relatives[0]}", relatives


@cache
def _choices(opcode: str) -> dict[str, str]:
    """The choices of an opcode: the type of A (or the only one), the shape, all types, layouts, modifiers."""
    words = opcode.split(".")
    types = [word for word in words if word in TYPE_BITS]
    shape = next((word for word in words if re.fullmatch(SHAPE, word)), "")
    name = _name(opcode)
    main = types[1:2] if len(types) > 2 else ["f16"] if (name, len(types)) == ("wmma.mma", 2) else types[:1]
    known = {*types, shape, "row", "col"}
    return {
        "types": "".join(main),
        "shapes": shape,
        "types of operands": ".".join(types),
        "layouts": ".".join(word for word in words if word in ("row", "col")),
        "modifiers": ".".join(word for word in words[name.count(".") + 1 :] if word not in known),
    }


def _nearest(opcode: str, relatives: list[str], alike: list[str]) -> str:
    """The form with the same words in another order, else the form with the closest shape and spelling."""
    words = sorted(opcode.split("."))
    reordered = [form for form in relatives if sorted(form.split(".")) == words]
    if reordered:
        return reordered[0]

    shape = _numbers(_choices(opcode)["shapes"])

    def distance(form: str) -> int:
        return sum(abs(a - b) for a, b in zip(_numbers(_choices(form)["shapes"]), shape, strict=False))

    least = min(map(distance, alike))
    closest = [form for form in alike if distance(form) == least]
    return max(closest, key=lambda form: difflib.SequenceMatcher(None, form, opcode).ratio())


def _listed(names: Iterable[str]) -> str:
    """List each name once, sorted by the numbers in it; a list of more than 12 is shortened to five."""
    distinct = sorted(dict.fromkeys(names), key=_numbers)
    if len(distinct) > 12:
        distinct[4:-1] = ["…"]
    return ", ".join(distinct)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def _name(opcode: str) -> str:
    """The name of an opcode's instruction: ``mma``, ``wmma.mma``, ``wmma.load.a`` and so on."""
    words = opcode.split(".")
    if words[0] != "wmma":
        return words[0]
    return ".".join(words[:3] if words[1:2] in (["load"], ["store"]) else words[:2])
