"""Reading and writing sparse tensors as ``.npz`` files; opening of any tensor file.

A ``.npz`` file holds the arrays ``coords`` (order, M), ``values`` (M,) and ``shape`` (order,), and the flag
``nonfinite``, true if NaN and infinite values are allowed.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile

import numpy as np

from reference.errors import FormatError, InputFileError, ShapeError, SimwarpError
from reference.files import open_input, write_output
from reference.types import Coo
from reference.types.arguments import check_host

ZIP, _FORMER = b"PK", b"\x93SWT"
_LARGEST_DIMENSION = 2**64 - 1
_ADVICE = "give a .npz file that write_tensor wrote"
_NAMES = ["coords", "nonfinite", "shape", "values"]
_DAMAGED = (
    *(OSError, EOFError, MemoryError, ValueError, TypeError, SyntaxError, RuntimeError, OverflowError),
    *(BadZipFile, KeyError, TokenError, zlib.error),
)
"""Exceptions that `numpy.load` raises for a damaged file, or for a file that is not a .npz."""


def write_tensor(path: Path | str, coo: Coo) -> None:
    """Write a ``.npz`` file atomically; equal tensors make equal files.

    Parameters
    ----------
    path : Path or str
    coo : Coo
        The order of its nonzeros and its dtypes are kept.

    Raises
    ------
    InputFileError
        If the file cannot be written.
    ShapeError
        If a dimension is above 2**64 - 1.
    DtypeError, FormatError
        If ``coo`` is not a Coo, or its arrays are on a device.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "small.npz"
    ...     write_tensor(path, Coo([[0, 1], [0, 2]], [2.5, -4.0], (2, 3)))
    ...     np.load(path)["coords"].tolist()
    [[0, 1], [0, 2]]
    """
    check_host(coo)
    if max(coo.shape) > _LARGEST_DIMENSION:
        raise ShapeError(
            f"the largest dimension is {max(coo.shape)}\na .npz file has dimensions up to 2**64 - 1\n"
            "split the mode into two"
        )
    arrays: dict[str, Any] = {"coords": coo.coords, "values": coo.values}
    arrays |= {"shape": np.array(coo.shape, np.uint64), "nonfinite": np.array(coo.nonfinite)}
    write_output(path, lambda file: np.savez(file, **arrays))


def read_tensor(path: Path | str) -> Coo:
    """Read a ``.npz`` file of `write_tensor`, and check every array in it.

    Parameters
    ----------
    path : Path or str

    Returns
    -------
    Coo
        With the order and the dtypes that were written.

    Raises
    ------
    InputFileError
        If the file cannot be read, or does not hold a whole tensor.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "small.npz"
    ...     write_tensor(path, Coo([[0, 1], [0, 2]], [2.5, -4.0], (2, 3)))
    ...     tensor = read_tensor(path)
    >>> tensor.values, tensor.shape
    (array([ 2.5, -4. ]), (2, 3))
    """
    with open_input(path, _ADVICE) as file:
        begin = file.peek(8)[:8]
        if begin.startswith(_FORMER):
            raise InputFileError(
                f"{path} is a .swt file\nsimwarp no longer reads these; tensors are stored as .npz files\n"
                "convert the .tns file again: simwarp tensor convert SOURCE.tns TARGET.npz"
            )
        try:
            if not begin.startswith(ZIP):
                raise FormatError(f"it begins with {begin!r}, not with {ZIP!r}")
            with np.load(file, allow_pickle=False) as held:
                if sorted(held.files) != _NAMES:
                    raise FormatError(f"it has the arrays {sorted(held.files)}, not {_NAMES}")
                coords, nonfinite, shape, values = (held[name] for name in _NAMES)
            return Coo(coords, values, shape.tolist(), bool(nonfinite))
        except (SimwarpError, *_DAMAGED) as error:
            reason = str(error).partition("\n")[0]
            raise InputFileError(f"{path} does not hold a sparse tensor: {reason}\n{_ADVICE}") from None
