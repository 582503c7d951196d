"""Compiled PTX on disk. An entry is believed only where it holds the digest of its own content.

A digest finds what is damaged, cut, or put there under another key; it is no defence against somebody who may
write to the folder and means harm.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from reference.files import write_whole

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
    """Keep an entry; a cache that cannot be written is no error."""
    path = _path(key)
    body = "\0".join([entry.log, "\n".join(entry.elsewhere), entry.text]).encode()
    content = _first_line(key, body) + b"\n" + body
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_what_is_no_file(path)
        write_whole(path, lambda file: file.write(content), durable=False)  # the digest tells


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
            return file.read() if stat.S_ISREG(os.fstat(handle).st_mode) else None
    except OSError:
        return None


def _remove_what_is_no_file(path: Path) -> None:
    """A folder, a link or a FIFO in the place of an entry gives way."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.is_symlink() or (path.exists() and not path.is_file()):
        path.unlink()
