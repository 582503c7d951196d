"""A cache of compiled PTX on disk; an entry is valid only if its digest matches its content.

The digest detects entries that are damaged, truncated or under another key; it does not defend against an
attacker who can write to the folder. Above the size limit, the least recently used entries are removed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from reference.errors import SchemeError
from reference.files import write_whole

LIMIT_VARIABLE = "SIMWARP_CACHE_MIB"
DEFAULT_MIB = 256
_ENTRY = re.compile(r"\.?[0-9a-f]{64}\.ptx(\.[0-9a-f]{16}\.tmp)?")
_totals: dict[Path, int] = {}
"""The size of each cache folder in bytes, as this process last computed it."""

_FORM = b"simwarp-ptx-5"  # the version of the entries' file format


@dataclass(frozen=True)
class Entry:
    """An entry of the cache: the compiler's output for one source."""

    text: str  # normalised PTX
    log: str = ""
    # files that CUDA's headers looked for and did not find; once one exists, the entry is invalid
    elsewhere: tuple[str, ...] = ()


def cache_folder(kind: str = "ptx") -> Path:
    """The folder of a cache: in ``SIMWARP_CACHE``, or in the user's cache folder."""
    chosen = os.environ.get("SIMWARP_CACHE")
    if chosen:
        return Path(chosen) / kind
    from platformdirs import user_cache_path

    return user_cache_path("simwarp") / kind


def read(key: str) -> Entry | None:
    """The entry of a key; None if it is missing or invalid."""
    content = _content(_path(key))
    if content is None:
        return None
    first, _, body = content.partition(b"\n")
    if first != _first_line(key, body):
        return None
    log, names, text = zlib.decompress(body).decode().split("\0", 2)
    return Entry(text, log, tuple(names.splitlines()))


def write(key: str, entry: Entry) -> None:
    """Store an entry, and remove old ones; a folder that cannot be written is not an error."""
    path, most = _path(key), limit()
    whole = "\0".join([entry.log, "\n".join(entry.elsewhere), entry.text])
    body = zlib.compress(whole.encode(), level=1)  # PTX becomes seven times smaller
    content = _first_line(key, body) + b"\n" + body
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_other_kinds(path)
        write_whole(
            path, lambda file: file.write(content), durable=False
        )  # the digest detects a damaged entry
        _trim(most, len(content))


def limit() -> int:
    """The size limit of the cache in bytes: ``SIMWARP_CACHE_MIB`` mebibytes, 256 by default."""
    chosen = os.environ.get(LIMIT_VARIABLE) or str(DEFAULT_MIB)
    if not (chosen.isascii() and chosen.isdigit()):
        raise SchemeError(
            f"{LIMIT_VARIABLE} is {chosen!r}\na whole number of mebibytes is needed\n"
            f"set 0 to keep nothing, or unset it for {DEFAULT_MIB}"
        )
    return int(chosen) * 2**20


def usage() -> tuple[int, int]:
    """The number of entries, and their size in bytes."""
    sizes = [size for _, size, _ in _entries()]
    return len(sizes), sum(sizes)


def clear() -> tuple[int, int]:
    """Remove every entry, and return the number and bytes of those removed."""
    entries = _entries()
    removed = [size for path, size, _ in entries if _remove(path)]
    return len(removed), sum(removed)


def _entries() -> list[tuple[Path, int, float]]:
    """Path, size and time of last use of every entry, and of temporary files that killed programs left."""
    files: list[tuple[Path, int, float]] = []
    with suppress(OSError), os.scandir(cache_folder()) as entries:
        for entry in entries:
            if _ENTRY.fullmatch(entry.name):
                with suppress(OSError):
                    seen = entry.stat(follow_symlinks=False)
                    files.append((Path(entry.path), seen.st_size, seen.st_mtime))
    return files


def _trim(most: int, added: int) -> None:
    """If the cache exceeds its limit, remove the least recently used entries down to seven eighths of it.

    The folder is scanned only when a process adds its first entry, and when its known size passes the limit:
    a scan of thousands of entries for each new one would take as long as compiling. For that reason room is
    made for many entries at a time.
    """
    folder = cache_folder()
    _totals[folder] = _totals.get(folder, most) + added
    if _totals[folder] <= most:
        return
    found = _entries()
    total = sum(size for _, size, _ in found)
    left = most - most // 8 if total > most else most
    for path, size, _ in sorted(found, key=lambda one: one[2]):
        if total <= left:
            break
        if _remove(path):
            total -= size
    _totals[folder] = total


def _remove(path: Path) -> bool:
    """Remove an entry; return False if it still exists."""
    try:
        _remove_other_kinds(path)
        path.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def _path(key: str) -> Path:
    """The path of the cache file for a key."""
    return cache_folder() / f"{key}.ptx"


def _first_line(key: str, body: bytes) -> bytes:
    """The first line of an entry: the version of its layout, and the digest of its key and body."""
    return _FORM + b" " + hashlib.sha256(key.encode() + b"\n" + body).hexdigest().encode()


def _content(path: Path) -> bytes | None:
    """The bytes of a regular file, which is marked as used; None for a FIFO, a device or a missing file."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return None
            with suppress(OSError):
                os.utime(path)
            return file.read()
    except OSError:
        return None


def _remove_other_kinds(path: Path) -> None:
    """Remove a folder, a link or a FIFO that is at the path of an entry."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.is_symlink() or (path.exists() and not path.is_file()):
        path.unlink()
