"""The commands ``simwarp cache info`` and ``clear``: show and delete the compiled PTX on disk.

Examples
--------
>>> info_command()  # doctest: +ELLIPSIS
folder   ...ptx
entries  ...
size     ... MiB of ... MiB (SIMWARP_CACHE_MIB)
0
"""

from __future__ import annotations

import typer

from simwarp.cli.output import Json, print_report

cache_app = typer.Typer(help="Compiled kernels on disk.", no_args_is_help=True)


@cache_app.command("info")
def info_command(as_json: Json = False) -> int:
    """Show the folder, number, size and size limit of the compiled kernels."""
    from gpu.compiler import cache

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
    print_report(facts, text, as_json)
    return 0


@cache_app.command("clear")
def clear_command(as_json: Json = False) -> int:
    """Delete all compiled kernels; the next use compiles them again."""
    from gpu.compiler import cache

    entries, size = cache.clear()
    left, _ = cache.usage()
    folder = str(cache.cache_folder())
    facts = {"folder": folder, "removed": entries, "bytes": size, "left": left}
    text = f"removed {entries} entries, {_mebibytes(size)}, from {folder}"
    print_report(facts, text + (f"; {left} cannot be removed" if left else ""), as_json)
    return 1 if left else 0


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
