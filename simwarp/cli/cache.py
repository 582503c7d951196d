"""The commands ``simwarp cache info`` and ``clear``: show and delete what was compiled, on disk.

>>> info_command()  # doctest: +ELLIPSIS
folder   ...ptx
entries  ...
size     ... MiB of ... MiB (SIMWARP_CACHE_MIB)
runtimes ... of simwarp exec, ... MiB
0
"""

from __future__ import annotations

import shutil
from pathlib import Path

import typer

from simwarp.cli.output import Json, print_report

cache_app = typer.Typer(help="Compiled kernels on disk.", no_args_is_help=True)


@cache_app.command("info")
def info_command(as_json: Json = False) -> int:
    """Show the folder, number, size and size limit of the compiled kernels, and the runtimes of exec."""
    from gpu.compiler import cache

    entries, size = cache.usage()
    facts = {
        "folder": str(cache.cache_folder()),
        "entries": entries,
        "bytes": size,
        "limit": cache.limit(),
    }
    runtimes = _runtimes()
    facts |= {"runtimes": len(runtimes), "runtime_bytes": sum(map(_size, runtimes))}
    text = (
        f"folder   {facts['folder']}\n"
        f"entries  {entries}\n"
        f"size     {_mebibytes(size)} of {_mebibytes(cache.limit())} "
        f"({cache.LIMIT_VARIABLE})\n"
        f"runtimes {len(runtimes)} of simwarp exec, {_mebibytes(sum(map(_size, runtimes)))}"
    )
    print_report(facts, text, as_json)
    return 0


@cache_app.command("clear")
def clear_command(as_json: Json = False) -> int:
    """Delete all compiled kernels, and the runtimes of exec; the next use compiles them again."""
    from gpu.compiler import cache

    runtimes = _runtimes()
    entries, size = cache.clear()
    size += sum(map(_size, runtimes))
    for runtime in runtimes:
        shutil.rmtree(runtime, ignore_errors=True)
    kept = len(_runtimes())
    entries += len(runtimes) - kept
    left = cache.usage()[0] + kept
    folder = str(cache.cache_folder())
    facts = {"folder": folder, "removed": entries, "bytes": size, "left": left}
    text = f"removed {entries} entries, {_mebibytes(size)}, from {folder}"
    print_report(facts, text + (f"; {left} cannot be removed" if left else ""), as_json)
    return 1 if left else 0


def _runtimes() -> list[Path]:
    """The folders of the runtimes that simwarp exec built."""
    from gpu.compiler.cache import cache_folder

    home = cache_folder("exec")
    return sorted(home.iterdir()) if home.is_dir() else []


def _size(folder: Path) -> int:
    """The total size of a folder's files, in bytes."""
    return sum(file.stat().st_size for file in folder.iterdir() if not file.is_symlink())


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
