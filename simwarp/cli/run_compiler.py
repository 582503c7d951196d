"""The options of commands that compile a ``.cu`` file, and the file of its PTX.

>>> CompilerOptions(["N=4"], debug=True, fmad=False).for_file(Path("my.cu"))
{'defines': {'N': '4'}, 'include': [], 'options': ['-G', '-fmad=false']}
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from reference.errors import SchemeError
from simwarp.cli.output import write_text


class Standard(StrEnum):
    """Values of ``--std``."""

    cpp03 = "c++03"
    cpp11 = "c++11"
    cpp14 = "c++14"
    cpp17 = "c++17"
    cpp20 = "c++20"


Defines = Annotated[
    list[str] | None, typer.Option("-D", "--define", help="A macro: NAME, which is 1, NAME=VALUE or NAME=.")
]
Includes = Annotated[
    list[Path] | None, typer.Option("-I", "--include", help="A folder to search for headers.")
]
Debug = Annotated[
    bool, typer.Option("-G", "--debug", help="Compile without optimisation: finds uninitialised variables.")
]
Std = Annotated[Standard | None, typer.Option(help="The C++ standard; c++17 by default.")]
Fmad = Annotated[
    bool | None, typer.Option("--fmad/--no-fmad", help="Fuse a * b + c into one rounding, as nvcc does.")
]
MoreOptions = Annotated[
    list[str] | None, typer.Option(help="An option of NVRTC, as --option=--maxrregcount=32.")
]


@dataclass(frozen=True)
class CompilerOptions:
    """The values of ``-D``, ``-I``, ``-G``, ``--std``, ``--fmad`` and ``--option``."""

    define: list[str] = field(default_factory=list[str])
    include: list[Path] = field(default_factory=list[Path])
    debug: bool = False
    std: Standard | None = None
    fmad: bool | None = None
    option: list[str] = field(default_factory=list[str])

    def for_file(self, file: Path) -> dict[str, Any]:
        """The arguments of `simwarp.run.load`; raises SchemeError if there are any for PTX."""
        if file.suffix == ".ptx" and self._given:
            raise SchemeError(
                f"{', '.join(self._given)} with {file.name}\nPTX is compiled already\n"
                "leave them out, or pass them to nvcc"
            )
        macros = (text.partition("=") for text in self.define)
        return {
            "defines": {name: value if equals else "1" for name, equals, value in macros},
            "include": self.include,
            "options": [
                *(["-G"] if self.debug else []),
                *([f"-std={self.std}"] if self.std else []),
                *([] if self.fmad is None else [f"-fmad={str(self.fmad).lower()}"]),
                *self.option,
            ],
        }

    @property
    def _given(self) -> list[str]:
        """The names of the compiler options that the user gave."""
        given = {
            "-D": self.define,
            "-I": self.include,
            "-G": self.debug,
            "--std": self.std,
            "--fmad" if self.fmad else "--no-fmad": self.fmad is not None,
            "--option": self.option,
        }
        return [name for name, value in given.items() if value]


def write_ptx(file: Path, text: str, option: str) -> None:
    """Write PTX to the file of an option; another suffix is refused, as it may be a source's."""
    if file.suffix != ".ptx":
        raise SchemeError(
            f"{file} is to hold PTX\nits name ends in {file.suffix or 'nothing'}\nlet it end in .ptx"
        )
    write_text(file, text, option)
