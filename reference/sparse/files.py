"""What both forms of tensor files share: how an input is opened, and how an output appears."""

from __future__ import annotations

from collections.abc import Callable
from io import BufferedReader
from pathlib import Path
from typing import IO

import numpy as np

from reference.errors import DtypeError, FormatError, InputFileError
from reference.files import write_whole
from reference.types import Coo


def open_input(path: Path | str, advice: str) -> BufferedReader:
    """Open a file for reading.

    Raises
    ------
    InputFileError
        If that is not possible; ends with the advice.

    Examples
    --------
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


def write_output(path: Path | str, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file, whole or not at all.

    Raises
    ------
    InputFileError
        If it cannot be written.

    Examples
    --------
    >>> write_output("no-such-folder/x.tns", lambda file: file.write(b"1 1 1.0"))
    Traceback (most recent call last):
    ...
    reference.errors.InputFileError: no-such-folder/x.tns cannot be written: No such file or directory
    choose another file
    """
    try:
        write_whole(Path(path), write)
    except OSError as error:
        raise InputFileError(
            f"{path} cannot be written: {error.strerror or error}\nchoose another file"
        ) from None


def check_writable(coo: object) -> None:
    """Raise unless ``coo`` is a Coo on the host.

    Examples
    --------
    >>> check_writable([1, 2])
    Traceback (most recent call last):
    ...
    reference.errors.DtypeError: coo is a list
    files hold a Coo
    give Coo(coords, values, shape), or to_coo(tensor) of another format
    """
    if not isinstance(coo, Coo):
        raise DtypeError(
            f"coo is a {type(coo).__name__}\nfiles hold a Coo\n"
            "give Coo(coords, values, shape), or to_coo(tensor) of another format"
        )
    if not isinstance(coo.coords, np.ndarray) or not isinstance(coo.values, np.ndarray):
        raise FormatError("coo lies on a device\nfiles are written from the host\ndownload its arrays")
