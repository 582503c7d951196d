"""What the pages take from the code: the table of PTX instructions and the list of modules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

ROWS_MARKER = "<!-- ptx rows -->"
MODULES_MARKER = re.compile(r"<!-- modules of (\w+) -->")
HEADER = "| instruction | PTX ISA | types | fidelity | from | what it does |\n|---|---|---|---|---|---|"
ROOT = Path(__file__).resolve().parents[1]


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the generated parts where a page asks for them (called by mkdocs for every page)."""
    if ROWS_MARKER in markdown:
        markdown = markdown.replace(ROWS_MARKER, table(import_module("simwarp.ptx.instructions").ROWS))
    return MODULES_MARKER.sub(lambda found: reference_of(found[1]), markdown)


def table(rows: Mapping[str, Any]) -> str:
    """One line for each row, in the rows' own order."""
    return "\n".join([HEADER, *(_line(name, row) for name, row in rows.items())])


def _line(name: str, row: Any) -> str:
    types = " ".join(f"`.{t}`" for t in row.types)
    cells = (f"`{name}`", row.section, types, row.fidelity, f"sm_{row.minimum_sm}", row.summary)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def reference_of(package: str) -> str:
    """A mkdocstrings block for each public module; the PTX rows have their own table."""
    return "\n\n".join(f"::: {module}" for module in modules(package))


def modules(package: str) -> list[str]:
    """The public modules of a package, without the ``__init__`` files, which only re-export."""
    paths = sorted((ROOT / package).rglob("[!_]*.py"))
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    return [name for name in names if "._" not in name and ".instructions." not in name]
