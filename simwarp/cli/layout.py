"""The command ``simwarp layout``: draw which word of a packed bit matrix holds each element."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from reference.errors import ShapeError
from simwarp.cli.output import Svg, as_options, integers, print_picture


def layout_command(
    layout: Annotated[str, typer.Argument(help="column or row.")],
    rows: Annotated[int | None, typer.Option(help="Rows of the matrix.")] = None,
    cols: Annotated[int | None, typer.Option(help="Columns of the matrix.")] = None,
    shape: Annotated[str, typer.Option(help="Both: 5x40, in place of --rows and --cols.")] = "",
    word: Annotated[int, typer.Option(help="Bits in a word.")] = 32,
    first: Annotated[str, typer.Option(help="The bit of the first element in a word: msb or lsb.")] = "msb",
    svg: Svg = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the picture's data.")] = False,
) -> int:
    """Draw which word of a packed bit matrix holds each element."""
    from simwarp.draw.formats import layout_picture

    options: Any = {"word": word, "first": first}  # layout_picture raises for unknown values
    given: Any = layout
    extent = integers(shape) if shape else tuple(one for one in (rows, cols) if one is not None)
    if len(extent) != 2 or (shape and (rows, cols) != (None, None)):
        what = f"--shape {shape}: " if shape else ""
        raise ShapeError(
            f"{what}rows and columns of the matrix are needed, once\n"
            "give --rows and --cols, or both as --shape 5x40"
        )
    rows, cols = extent
    with as_options(layout="layout", word="--word", first="--first", rows="--rows", columns="--cols"):
        picture = layout_picture(given, rows=rows, columns=cols, **options)
    print_picture(picture, svg, as_json, layout=layout, rows=rows, columns=cols, **options)
    return 0
