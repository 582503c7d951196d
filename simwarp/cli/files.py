"""Read and write arrays, tensors and pictures: errors with advice, and atomic writes."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

from reference.errors import InputFileError, NotANumberError
from reference.files import write_output

if TYPE_CHECKING:
    import numpy.typing as npt

    from reference.types import Coo

ADVICE = "choose another output with -o"
"""The advice for an output that cannot be written."""
_MAGIC = b"\x93NUMPY"
_NOT_AN_ARRAY = (ValueError, EOFError, BadZipFile, TokenError, OverflowError, MemoryError)
"""The errors of `numpy.load` for other file types and damaged headers."""


def read_array(path: Path) -> npt.NDArray[Any]:
    """The array in a ``.npy`` file; raises InputFileError for any other file."""
    import numpy as np

    advice = "give a .npy file, as numpy.save writes it"
    try:
        with path.open("rb") as file:  # numpy.load of a path leaves an unreadable file open
            begin = file.peek(len(_MAGIC))[: len(_MAGIC)]
            if begin not in (_MAGIC, b"") and not begin.startswith(b"PK"):
                raise ValueError(f"it begins with {begin!r}, and a .npy file with {_MAGIC!r}")
            array: Any = np.load(file, allow_pickle=False)
    except OSError as error:
        raise InputFileError(f"{path}: {error.strerror or error}\n{advice}") from None
    except _NOT_AN_ARRAY as error:
        if isinstance(error, MemoryError) and _needed(error) <= path.stat().st_size:
            raise InputFileError(
                f"{path}: the memory of this machine ended: {error}\ngive a smaller array"
            ) from None
        reason = (
            str(error).partition(" If you trust")[0].replace(" cannot be loaded when allow_pickle=False", "")
        )
        raise InputFileError(f"{path} does not hold an array: {reason}\n{advice}") from None
    if isinstance(array, np.lib.npyio.NpzFile):
        raise InputFileError(f"{path} holds several arrays\n{advice}")
    return array


def _needed(error: MemoryError) -> int:
    """The bytes of an array for which NumPy lacks memory; a truncated file has fewer."""
    shape, dtype = getattr(error, "shape", ()), getattr(error, "dtype", None)
    return math.prod(shape) * dtype.itemsize if dtype is not None else 0


def write_array(path: Path, array: npt.NDArray[Any]) -> None:
    """Write an array to a ``.npy`` file."""
    import numpy as np

    write_output(path, lambda file: np.save(file, array), ADVICE)


def write_svg(path: Path, text: str) -> None:
    """Write an SVG picture to a file."""
    write_output(path, lambda file: file.write(text.encode()), "choose another file with --svg")


class Values(StrEnum):
    """The value types of a sparse tensor."""

    float32 = "float32"
    float64 = "float64"


def typed(tensor: Coo, dtype: Values | None) -> Coo:
    """A tensor with its values converted to a type, or unchanged; raises NotANumberError on overflow."""
    import numpy as np

    from reference.types import Coo

    if dtype is None:
        return tensor
    with np.errstate(over="ignore"):
        values = tensor.values.astype(dtype.value)
    try:
        return Coo(tensor.coords, values, tensor.shape, tensor.nonfinite)
    except NotANumberError as error:
        what = str(error).splitlines()[0]
        raise NotANumberError(f"{what} as {dtype.value}\nleave --dtype {dtype.value} out") from None
