"""The command ``simwarp frag``: show which lane and register hold each element of a matrix operand.

>>> frag_command("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", element=["a:3,2"], holder=["d:14,1"])
a: row 3, column 2 is held by lane 14, register 0, bits 0–63
d: lane 14, register 1, bit 0 holds row 3, column 5
0
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from reference.errors import SchemeError
from simwarp.cli.output import Json, print_json, print_picture, table, wide_console

if TYPE_CHECKING:
    from simwarp.chips.lowering import Lowering
    from simwarp.fragments import Fragments, Operand

Many = list[str] | None
_SIZES = ("rows", "columns", "matrices", "copies", "lanes", "registers", "register_bits")
"""The sizes of a fragment map that ``--json`` prints."""


def frag_command(
    instruction: Annotated[str | None, typer.Argument(help="The whole opcode, as in PTX.")] = None,
    operand: Annotated[str | None, typer.Option(help="Only a, b, c, d or r.")] = None,
    element: Annotated[
        Many, typer.Option(help="Find its lane: OPERAND:ROW,COLUMN[,MATRIX], as a:3,5.", metavar="PLACE")
    ] = None,
    holder: Annotated[
        Many,
        typer.Option(help="Find its element: OPERAND:LANE,REGISTER[,BIT], as a:5,1,16.", metavar="PLACE"),
    ] = None,
    registers: Annotated[
        bool, typer.Option("--registers", help="Draw the registers, not the matrix.")
    ] = False,
    list_maps: Annotated[bool, typer.Option("--list", help="List every map.")] = False,
    svg: Annotated[Path | None, typer.Option(help="Write the picture as SVG.", metavar="FILE")] = None,
    as_json: Json = False,
) -> int:
    """Show which lane, register and bit hold each element of a matrix instruction's operands."""
    from simwarp.cli.frag_picture import chosen, picture_of
    from simwarp.fragments import fragments_of

    if list_maps:
        _list(as_json)
        return 0
    if instruction is None:
        raise SchemeError(
            "no instruction to show\ngive an opcode, as mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32\n"
            "simwarp frag --list shows them all"
        )
    found = fragments_of(instruction)
    answers = [*_holders(found, element or []), *_elements(found, holder or [])]
    operands = chosen(found, operand)
    if as_json:
        print_json(_report(instruction, found, operands, answers), indent=1)
    elif answers:
        sys.stdout.write("".join(f"{answer['text']}\n" for answer in answers))
    elif svg is None:
        _show_facts(instruction, found)
        sys.stdout.write("\n")
    if svg is not None or not (as_json or answers):
        print_picture(picture_of(instruction, operand, registers=registers), svg)
    return 0


# ---- places -----------------------------------------------------------------------------------


def _holders(found: Fragments, questions: Sequence[str]) -> Iterator[dict[str, Any]]:
    """For each ``--element``, the lane, register and bits of each copy."""
    for question in questions:
        operand, numbers = _parsed(found, question, "--element", "a:3,5")
        row, column, matrix = (*numbers, 0)[:3]
        layout = operand.layout
        of = f" of matrix {matrix}" if layout.matrices > 1 else ""
        for copy in range(layout.copies):
            lane, register, bit = layout.holder(row, column, matrix, copy)
            bits = f"bit {bit}" if layout.bits == 1 else f"bits {bit}–{bit + layout.bits - 1}"
            yield {
                "text": f"{operand.name}: row {row}, column {column}{of} is held by lane {lane}, "
                f"register {register}, {bits}",
                **_place(operand, row, column, matrix, lane, register, bit),
            }


def _elements(found: Fragments, questions: Sequence[str]) -> Iterator[dict[str, Any]]:
    """For each ``--holder``, the element that contains the bit."""
    for question in questions:
        operand, numbers = _parsed(found, question, "--holder", "a:5,1,16")
        lane, register, bit = (*numbers, 0)[:3]
        row, column, matrix = operand.layout.element(lane, register, bit)
        of = f" of matrix {matrix}" if operand.layout.matrices > 1 else ""
        yield {
            "text": f"{operand.name}: lane {lane}, register {register}, bit {bit} "
            f"holds row {row}, column {column}{of}",
            **_place(operand, row, column, matrix, lane, register, bit),
        }


def _place(operand: Operand, *numbers: int) -> dict[str, Any]:
    """A matrix element and the lane, register and bit that hold it, as a JSON object."""
    names = ("row", "column", "matrix", "lane", "register", "bit")
    return {"operand": operand.name, **dict(zip(names, numbers, strict=True))}


def _parsed(found: Fragments, question: str, option: str, example: str) -> tuple[Operand, list[int]]:
    """Parse a question such as A:3,4 into an operand and two or three numbers."""
    name, colon, rest = question.partition(":")
    parts = [part.strip() for part in rest.split(",")]
    if not colon or len(parts) not in (2, 3) or not all(part.isdecimal() for part in parts):
        raise SchemeError(
            f"{option} {question} is not a position in an operand\n"
            "give an operand, a colon and two or three numbers with commas between them\n"
            f"as {option} {example}"
        )
    from simwarp.cli.frag_picture import chosen

    return chosen(found, name)[0], [int(part) for part in parts]


# ---- reports -------------------------------------------------------------------------------------


def _report(
    instruction: str, found: Fragments, operands: list[Operand], answers: list[dict[str, Any]]
) -> dict[str, Any]:
    """The instruction, its lowerings and operands as plain data; without ``answers``, all elements, too."""
    return {
        "instruction": found.opcode,
        "shape": found.shape._asdict(),
        "first": found.target,
        "chips": [{"chips": chips, **asdict(made)} for chips, made in _lowerings(instruction)],
        "operands": [_facts(operand) | ({} if answers else _tables(operand)) for operand in operands],
        "answers": answers,
    }


def _facts(operand: Operand) -> dict[str, Any]:
    """The shape, map and provenance of an operand as plain data."""
    layout = operand.layout
    return {
        "operand": operand.name,
        "type": operand.type,
        **{name: getattr(layout, name) for name in _SIZES},
        "elements_in_a_register": layout.slots,
        "map": str(layout),
        "section": operand.section,
        "provenance": operand.provenance.source,
        "confirmed": list(operand.provenance.confirmed),
    }


def _tables(operand: Operand) -> dict[str, Any]:
    """The holders of each element [copy][matrix][row][column], the elements [lane][register][slot]."""
    import numpy as np

    from simwarp.draw.fragment import held_of

    layout, held = operand.layout, held_of(operand)
    holders = np.stack(np.broadcast_arrays(held.lane, held.register, held.bit), axis=-1)
    lane, register, slot = np.ix_(*map(range, (layout.lanes, layout.registers, layout.slots)))
    elements = layout.element(lane, register, slot * layout.bits)
    return {
        "holders": holders.tolist(),
        "elements": np.stack(np.broadcast_arrays(*elements), axis=-1).tolist(),
    }


def _lowerings(instruction: str) -> list[tuple[str, Lowering]]:
    """The lowering of an instruction on each chip, as ranges of chips with equal lowerings."""
    from simwarp.chips.chips import CAPABILITIES
    from simwarp.chips.lowering import lowering

    made: list[tuple[str, Lowering]] = []
    for cc, chip in CAPABILITIES.items():
        with suppress(SchemeError):  # the chip lacks the instruction
            made.append((chip.name, lowering(instruction, cc)))
    grouped = [list(group) for _, group in groupby(made, lambda one: one[1])]
    return [
        (group[0][0] + (f" to {group[-1][0]}" if len(group) > 1 else ""), group[0][1]) for group in grouped
    ]


def _show_facts(instruction: str, found: Fragments) -> None:
    """Print the shapes, operands and lowerings of an instruction."""
    console = wide_console()
    console.print(Text(f"{found.opcode}: from {found.target} on"))
    if found.shape.k:
        m, n, k = found.shape
        console.print(f"D = A B + C; A is {m} × {k}, B {k} × {n}, C and D {m} × {n}")
    console.print(_operand_table(found))
    for chips, made in _lowerings(instruction):
        instructions = ", ".join(f"{count} {name}" for name, count in made.instructions.items())
        note = f" ({made.note})" if made.note else ""
        console.print(Text(f"{chips}: {instructions}{note}"))


def _operand_table(found: Fragments) -> Table:
    shown = table("operand", "type", "matrix", "registers", "elements in each", "map", "source")
    for operand in found.operands.values():
        layout = operand.layout
        many = f"{layout.matrices} of " * (layout.matrices > 1)
        shown.add_row(
            operand.name,
            operand.type,
            f"{many}{layout.rows} × {layout.columns}",
            f"{layout.registers} of {layout.register_bits} bits",
            str(layout.slots),
            str(layout),
            str(operand.provenance),
        )
    return shown


def _list(as_json: bool) -> None:
    """Print one row for each operand of each instruction."""
    from simwarp.fragments import all_opcodes, fragments_of

    rows = [
        {"instruction": opcode, "shape": str(found.shape), **_facts(operand)}
        for opcode in all_opcodes()
        for found in (fragments_of(opcode),)
        for operand in found.operands.values()
    ]
    if as_json:
        print_json({"rows": rows}, indent=1)
        return
    shown = table("instruction", "operand", "type", "matrix", "registers", "source", "confirmed on")
    for row in rows:
        matrix = f"{row['rows']} × {row['columns']}"
        words = row["instruction"], row["operand"], row["type"], matrix, str(row["registers"])
        shown.add_row(*words, row["provenance"], ", ".join(row["confirmed"]))
    wide_console().print(shown)
    sys.stdout.write(f"{len(all_opcodes())} instructions, {len(rows)} maps\n")
