"""The command ``simwarp new case``: a file to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reference.errors import InputFileError
from simwarp.cli.output import Json, print_json

new_app = typer.Typer(help="Write a file to begin with: a case of your own.", no_args_is_help=True)


@new_app.callback()
def new_command() -> None:
    """Write a file to begin with: a case of your own."""


@new_app.command("case")
def case_command(
    file: Annotated[Path, typer.Argument(help="The file to write.")] = Path("my_case.py"),
    as_json: Json = False,
) -> int:
    """Write a case of your own: what to draw, what is right, and the kernel that `simwarp verify` tries."""
    from reference.files import write_output
    from simwarp.verify.own import TEMPLATE

    if file.exists():
        raise InputFileError(f"{file} is there already\nit is not overwritten\ngive another name")
    text = TEMPLATE.replace("FILE", str(file))
    write_output(file, lambda handle: handle.write(text.encode()))
    if as_json:
        print_json({"file": str(file), "run": f"simwarp verify {file}"})
    else:
        typer.echo(f"{file} is written; run it: simwarp verify {file}")
    return 0
