"""The command ``simwarp layout``: draw which word of a packed bit matrix holds each element."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from simwarp.cli.output import Svg, as_options, print_picture


def layout_command(
    layout: Annotated[str, typer.Argument(help="column or row.")],
    rows: Annotated[int, typer.Option(help="Rows of the matrix.")],
    cols: Annotated[int, typer.Option(help="Columns of the matrix.")],
    word: Annotated[int, typer.Option(help="Bits in a word: 32 or 64.")] = 32,
    first: Annotated[str, typer.Option(help="The bit of the first element in a word: msb or lsb.")] = "msb",
    svg: Svg = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the picture's data.")] = False,
) -> int:
    """Draw which word of a packed bit matrix holds each element."""
    from simwarp.draw.formats import layout_picture

    options: Any = {"word": word, "first": first}  # layout_picture refuses unknown values
    given: Any = layout
    with as_options(layout="layout", word="--word", first="--first", rows="--rows", columns="--cols"):
        picture = layout_picture(given, rows=rows, columns=cols, **options)
    print_picture(picture, svg, as_json, layout=layout, rows=rows, columns=cols, **options)
    return 0
