"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write to a temporary name beside ``path``, then rename: a killed program leaves no half file.

    Parameters
    ----------
    path : Path
    write : callable
        Writes to the binary file that it is given.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "note"
    ...     write_whole(path, lambda file: file.write(b"all of it"))
    ...     path.read_text()
    'all of it'
    """
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        temporary = Path(file.name)
        try:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            mask = os.umask(0)
            os.umask(mask)
            temporary.chmod(0o666 & ~mask)  # the rights of any new file; a temporary one is private
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
