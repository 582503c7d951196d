"""Compiled PTX on disk. An entry is valid only with the digest of its own content.

A digest finds entries that are damaged, cut or under another key; it does not defend against an attacker who
can write to the folder. Past the limit, the least recently used entries go.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from reference.errors import SchemeError
from reference.files import write_whole

LIMIT_VARIABLE = "SIMWARP_CACHE_MIB"
DEFAULT_MIB = 256
_ENTRY = re.compile(r"\.?[0-9a-f]{64}\.ptx(\.[0-9a-f]{16}\.tmp)?")
_totals: dict[Path, int] = {}
"""Bytes of each folder, as far as this process has seen it."""

_FORM = b"simwarp-ptx-3"  # another number whenever the layout changes


@dataclass(frozen=True)
class Entry:
    """The compiler's output for one source.

    Attributes
    ----------
    text : str
        Normalised PTX.
    log : str
        The compiler's messages.
    elsewhere : tuple of str
        Files that CUDA's headers asked for and that did not exist: the entry is void once one of them does.
    """

    text: str
    log: str = ""
    elsewhere: tuple[str, ...] = ()


def cache_folder() -> Path:
    """Where compiled PTX is kept: ``SIMWARP_CACHE``, or the user's cache folder."""
    chosen = os.environ.get("SIMWARP_CACHE")
    if chosen:
        return Path(chosen) / "ptx"
    from platformdirs import user_cache_path

    return user_cache_path("simwarp") / "ptx"


def read(key: str) -> Entry | None:
    """The entry of that key; None without a valid one."""
    content = _content(_path(key))
    if content is None:
        return None
    first, _, body = content.partition(b"\n")
    if first != _first_line(key, body):
        return None
    log, names, text = body.decode().split("\0", 2)
    return Entry(text, log, tuple(names.splitlines()))


def write(key: str, entry: Entry) -> None:
    """Keep an entry, and remove old ones; a cache that cannot be written is not an error."""
    path, most = _path(key), limit()
    body = "\0".join([entry.log, "\n".join(entry.elsewhere), entry.text]).encode()
    content = _first_line(key, body) + b"\n" + body
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_other_kinds(path)
        write_whole(path, lambda file: file.write(content), durable=False)  # the digest finds a damaged entry
        _trim(most, len(content))


def limit() -> int:
    """The most bytes of all entries: ``SIMWARP_CACHE_MIB`` mebibytes, 256 by default."""
    chosen = os.environ.get(LIMIT_VARIABLE) or str(DEFAULT_MIB)
    if not (chosen.isascii() and chosen.isdigit()):
        raise SchemeError(
            f"{LIMIT_VARIABLE} is {chosen!r}, not a number of mebibytes\n"
            f"give 0 to keep nothing, or leave it out for {DEFAULT_MIB}"
        )
    return int(chosen) * 2**20


def usage() -> tuple[int, int]:
    """The number of entries, and their bytes."""
    sizes = [size for _, size, _ in _entries()]
    return len(sizes), sum(sizes)


def clear() -> tuple[int, int]:
    """Remove every entry; returns their number and bytes."""
    found = _entries()
    removed = [size for path, size, _ in found if _remove(path)]
    return len(removed), sum(removed)


def _entries() -> list[tuple[Path, int, float]]:
    """Path, size and time of use of every entry, and of what killed programs left beside them."""
    found: list[tuple[Path, int, float]] = []
    with suppress(OSError), os.scandir(cache_folder()) as entries:
        for entry in entries:
            if _ENTRY.fullmatch(entry.name):
                with suppress(OSError):
                    seen = entry.stat(follow_symlinks=False)
                    found.append((Path(entry.path), seen.st_size, seen.st_mtime))
    return found


def _trim(most: int, added: int) -> None:
    """Remove the least recently used entries, until the rest is small enough.

    The folder is read by the first entry that a process adds, and when the old and added bytes pass the
    limit: reading thousands of entries for each new one would take as long as compiling.
    """
    folder = cache_folder()
    _totals[folder] = _totals.get(folder, most) + added
    if _totals[folder] <= most:
        return
    found = _entries()
    total = sum(size for _, size, _ in found)
    for path, size, _ in sorted(found, key=lambda one: one[2]):
        if total <= most:
            break
        if _remove(path):
            total -= size
    _totals[folder] = total


def _remove(path: Path) -> bool:
    """Whether the entry is gone now; one that cannot be removed stays."""
    try:
        _remove_other_kinds(path)
        path.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def _path(key: str) -> Path:
    return cache_folder() / f"{key}.ptx"


def _first_line(key: str, body: bytes) -> bytes:
    return _FORM + b" " + hashlib.sha256(key.encode() + b"\n" + body).hexdigest().encode()


def _content(path: Path) -> bytes | None:
    """The bytes of a regular file. A FIFO is not waited for, and a device not read."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except OSError:
        return None
    try:
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return None
            with suppress(OSError):
                os.utime(path)  # used now
            return file.read()
    except OSError:
        return None


def _remove_other_kinds(path: Path) -> None:
    """A folder, a link or a FIFO in the place of an entry gives way."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.is_symlink() or (path.exists() and not path.is_file()):
        path.unlink()
