"""Atomic writing of files, and opening for reading."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import IO

from reference.errors import InputFileError

try:
    import fcntl
except ImportError:  # pragma: no cover - not a POSIX system
    fcntl = None

_LONGEST_NAME = 255
_REST = re.compile(r"[0-9a-f]{16}\.tmp")
_STALE_SECONDS = 60.0
"""A younger file may belong to a program that has not locked it yet."""


def write_whole(path: Path, write: Callable[[IO[bytes]], object], *, durable: bool = True) -> None:
    """Write to a temporary name beside ``path``, then rename it: a killed program leaves no partial file.

    An interrupt leaves no temporary file. A killed program leaves one; the next writer to that path removes
    it after a minute. If ``path`` is a link, its target is written. Without ``durable`` the file may have the
    wrong content after a power failure.
    """
    target = _target(path)
    start = _temporary_start(target.name)
    _remove_stale(target.parent, start)
    temporary = target.parent / f"{start}{secrets.token_hex(8)}.tmp"
    try:
        try:  # entered before the file exists, so that no interrupt can leave the file behind
            with temporary.open("xb") as file:
                _lock(file)
                write(file)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
                temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    finally:  # once more: an interrupt may have come during the inner finally
        temporary.unlink(missing_ok=True)


def write_output(
    path: Path | str, write: Callable[[IO[bytes]], object], advice: str = "choose another file"
) -> None:
    """Write a file atomically; raise an InputFileError that ends with ``advice`` if that fails.

    >>> write_output("no-such-folder/x.tns", lambda file: file.write(b"1 1 1.0"))
    Traceback (most recent call last):
    ...
    reference.errors.InputFileError: no-such-folder/x.tns cannot be written: No such file or directory
    choose another file
    """
    try:
        write_whole(Path(path), write)
    except OSError as error:
        raise InputFileError(f"{path} cannot be written: {error.strerror or error}\n{advice}") from None


def check_output(path: Path | str, advice: str = "choose another file") -> None:
    """Raise the InputFileError that `write_output` would raise now; leave no file behind.

    >>> check_output("no-such-folder/x.tns")
    Traceback (most recent call last):
    ...
    reference.errors.InputFileError: no-such-folder/x.tns cannot be written: No such file or directory
    choose another file
    """
    try:
        with tempfile.TemporaryFile(dir=_target(Path(path)).parent):
            pass
    except OSError as error:
        raise InputFileError(f"{path} cannot be written: {error.strerror or error}\n{advice}") from None


def open_input(path: Path | str, advice: str) -> BufferedReader:
    """Open a file for reading; raise an InputFileError that ends with ``advice`` if that fails.

    >>> open_input("no-such-file.tns", "give a .tns file")
    Traceback (most recent call last):
    ...
    reference.errors.InputFileError: no-such-file.tns cannot be read: No such file or directory
    give a .tns file
    """
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise InputFileError(f"{path} cannot be read: {error.strerror or error}\n{advice}") from None


def _target(path: Path) -> Path:
    """The file to replace, with links resolved; raise unless it is a regular file or does not exist."""
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return target
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise InputFileError(
            f"{path} is a FIFO, a device or a socket, which cannot be written whole or not at all\n"
            "name a regular file"
        )
    return target


def _temporary_start(name: str) -> str:
    """The prefix of temporary names for a file: its name, or for a long name a part and a digest."""
    room = _LONGEST_NAME - len(".." + "0" * 16 + ".tmp")
    if len(os.fsencode(name)) > room:
        digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
        name = os.fsencode(name)[: room - 20].decode(errors="ignore") + digest
    return f".{name}."


def _lock(file: IO[bytes]) -> None:
    """Lock the file; the system releases the lock when this program ends, even if it is killed."""
    if fcntl is not None:
        with suppress(OSError):  # the file system may not support locks
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove_stale(folder: Path, start: str) -> None:
    """Remove the temporary files of killed programs, which no process has locked."""
    for path in _old_files(folder, start):
        with suppress(OSError), path.open("rb") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


def _old_files(folder: Path, start: str) -> Iterator[Path]:
    """Temporary files with a prefix that are older than a minute."""
    with suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208 - Path objects are slow for the thousands of files of a cache
            if name.startswith(start) and _REST.fullmatch(name, len(start)):
                seen = (folder / name).lstat()
                if stat.S_ISREG(seen.st_mode) and time.time() - seen.st_mtime > _STALE_SECONDS:
                    yield folder / name
