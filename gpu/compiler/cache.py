"""Compiled PTX on disk. An entry is believed only where it holds the digest of its own content.

A digest finds what is damaged, cut, or put there under another key; it does not defend against somebody who
may write to the folder and means harm. Past the limit, the entries that were not used for longest go.
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
"""How many bytes each folder has by what this process knows."""

_FORM = b"simwarp-ptx-3"  # another number whenever the layout changes


@dataclass(frozen=True)
class Entry:
    """What the compiler made of one source.

    Attributes
    ----------
    text : str
        Normalised PTX.
    log : str
        What the compiler printed.
    elsewhere : tuple of str
        What CUDA's headers asked for and nobody had: the entry is of no use where somebody has it now.
    """

    text: str
    log: str = ""
    elsewhere: tuple[str, ...] = ()


def cache_folder() -> Path:
    """Where compiled PTX is kept: ``SIMWARP_CACHE``, or the user's cache folder.

    Examples
    --------
    >>> cache_folder().name
    'ptx'
    """
    chosen = os.environ.get("SIMWARP_CACHE")
    if chosen:
        return Path(chosen) / "ptx"
    from platformdirs import user_cache_path

    return user_cache_path("simwarp") / "ptx"


def read(key: str) -> Entry | None:
    """The entry of that key; None where there is none, or none that can be believed.

    Examples
    --------
    >>> read("no such key") is None
    True
    """
    content = _content(_path(key))
    if content is None:
        return None
    first, _, body = content.partition(b"\n")
    if first != _first_line(key, body):
        return None
    log, names, text = body.decode().split("\0", 2)
    return Entry(text, log, tuple(names.splitlines()))


def write(key: str, entry: Entry) -> None:
    """Keep an entry, and let old ones go; a cache that cannot be written is no error.

    Examples
    --------
    >>> import tempfile, unittest.mock
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with unittest.mock.patch.dict(os.environ, SIMWARP_CACHE=folder):
    ...         write("0" * 64, Entry("ret;"))
    ...         read("0" * 64), read("1" * 64)
    (Entry(text='ret;', log='', elsewhere=()), None)
    """
    path, most = _path(key), limit()
    body = "\0".join([entry.log, "\n".join(entry.elsewhere), entry.text]).encode()
    content = _first_line(key, body) + b"\n" + body
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_what_is_no_file(path)
        write_whole(path, lambda file: file.write(content), durable=False)  # the digest tells
        _trim(most, len(content))


def limit() -> int:
    """How many bytes all entries may take: ``SIMWARP_CACHE_MIB`` mebibytes, 256 by default.

    Raises
    ------
    SchemeError
        If that variable is not a number.

    Examples
    --------
    >>> limit() % 2**20
    0
    """
    chosen = os.environ.get(LIMIT_VARIABLE) or str(DEFAULT_MIB)
    if not (chosen.isascii() and chosen.isdigit()):
        raise SchemeError(
            f"{LIMIT_VARIABLE} is {chosen!r}, not a number of mebibytes\n"
            f"give 0 to keep nothing, or leave it out for {DEFAULT_MIB}"
        )
    return int(chosen) * 2**20


def usage() -> tuple[int, int]:
    """How many entries there are, and how many bytes they take.

    Examples
    --------
    >>> entries, size = usage()
    >>> size >= entries
    True
    """
    sizes = [size for _, size, _ in _entries()]
    return len(sizes), sum(sizes)


def clear() -> tuple[int, int]:
    """Remove every entry; returns how many they were, and their bytes.

    Examples
    --------
    >>> import tempfile, unittest.mock
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with unittest.mock.patch.dict(os.environ, SIMWARP_CACHE=folder):
    ...         write("0" * 64, Entry("ret;"))
    ...         clear()[0], usage()
    (1, (0, 0))
    """
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
    """Remove what was not used for longest, until the rest is small enough.

    The folder is read by the first entry that a process adds, and when its sum of what was there and what it
    has added passes the limit: reading thousands of entries for each new one would take as long as compiling.
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
        _remove_what_is_no_file(path)
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


def _remove_what_is_no_file(path: Path) -> None:
    """A folder, a link or a FIFO in the place of an entry gives way."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.is_symlink() or (path.exists() and not path.is_file()):
        path.unlink()
