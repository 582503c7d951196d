"""``simwarp cache``: how much compiled PTX is kept, where, and how to throw it away.

Examples
--------
>>> info_command()  # doctest: +ELLIPSIS
folder   ...ptx
entries  ...
size     ... MiB of ... MiB (SIMWARP_CACHE_MIB)
0
"""

from __future__ import annotations

import sys
from typing import Any

import typer

from gpu.compiler import cache
from simwarp.cli.output import Json, print_json

cache_app = typer.Typer(help="Compiled kernels on disk.", no_args_is_help=True)


@cache_app.command("info")
def info_command(as_json: Json = False) -> int:
    """Where compiled kernels are kept, how many, and how much room they may take."""
    entries, size = cache.usage()
    facts = {
        "folder": str(cache.cache_folder()),
        "entries": entries,
        "bytes": size,
        "limit": cache.limit(),
    }
    text = (
        f"folder   {facts['folder']}\n"
        f"entries  {entries}\n"
        f"size     {_mebibytes(size)} of {_mebibytes(cache.limit())} "
        f"({cache.LIMIT_VARIABLE})"
    )
    return _report(facts, text, as_json)


@cache_app.command("clear")
def clear_command(as_json: Json = False) -> int:
    """Remove all compiled kernels; they are compiled anew when they are next needed."""
    entries, size = cache.clear()
    left, _ = cache.usage()
    folder = str(cache.cache_folder())
    facts = {"folder": folder, "removed": entries, "bytes": size, "left": left}
    text = f"removed {entries} entries, {_mebibytes(size)}, from {folder}"
    _report(facts, text + (f"; {left} cannot be removed" if left else ""), as_json)
    return 1 if left else 0


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


def _report(facts: dict[str, Any], text: str, as_json: bool) -> int:
    print_json(facts) if as_json else sys.stdout.write(f"{text}\n")
    return 0
