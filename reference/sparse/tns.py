"""Reading and writing FROSTT's ``.tns`` text files: one line of indices and a value for each nonzero.

```text
# a 2 x 3 matrix; this line is a comment
1 1 2.5
2 3 -4
```

Fields are separated by blanks or tabs. ``#`` begins a comment; blank lines are skipped. Indices count from 1
or from 0. Files of MM-CSF and ParTI have a header of two lines: the order, then the dimensions. A file may be
compressed with gzip, whatever its name.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, ShapeError
from reference.files import write_output
from reference.sparse.formats.coo import coalesce
from reference.sparse.tns_lines import MOST_INDEX
from reference.sparse.tns_reading import Reading
from reference.types import Coo
from reference.types.arguments import check_host, check_option, dtype_of

Base: TypeAlias = Literal["auto", 0, 1]
Header: TypeAlias = Literal["auto", True, False]
Duplicates: TypeAlias = Literal["refuse", "sum", "keep"]
Progress: TypeAlias = Callable[[int, int], object]

_ROWS = 1 << 16


def read_tns(
    path: Path | str,
    *,
    base: Base = "auto",
    header: Header = "auto",
    shape: Sequence[int] | None = None,
    duplicates: Duplicates = "refuse",
    dtype: npt.DTypeLike = np.float64,
    nonfinite: bool = False,
    progress: Progress | None = None,
) -> Coo:
    r"""Read a ``.tns`` file, optionally gzipped.

    The text is read in chunks; only one of them is in memory at a time.

    Parameters
    ----------
    path : Path or str
    base : 0, 1 or "auto"
        The number from which indices count. "auto": from 0 if any is 0, else from 1.
    header : bool or "auto"
        Whether two lines name the order and the dimensions. "auto": if the first has a single field.
    shape : sequence of int, optional
        The dimensions. By default those of the header; without a header, the largest index of each mode
        plus 1.
    duplicates : "refuse", "sum" or "keep"
        The treatment of coordinates that occur several times. "sum" also sorts the nonzeros, as `coalesce`
        does; otherwise they keep the order of the file.
    dtype : float64 or float32
        The type of the values. Text is converted by `float`, then rounded to float32 if that is chosen.
    nonfinite : bool
        Whether NaN and infinite values are allowed.
    progress : callable, optional
        Called after each chunk with the bytes read so far and the size of the file.

    Returns
    -------
    Coo
        Indices are uint32, or int64 if a dimension is above 2**32.

    Raises
    ------
    InputFileError
        If the file cannot be read, or a line is invalid; the message names the file and the line.
    ShapeError
        If ``shape`` has another order than the file.
    SchemeError, DtypeError
        For an unknown option or dtype.

    Notes
    -----
    Source: FROSTT, file formats; MM-CSF (SC'19), artifact appendix (the header).

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "small.tns"
    ...     _ = path.write_text("# a comment\n1 1 2.5\n2 3 -4\n")
    ...     tensor = read_tns(path)
    >>> tensor.coords.tolist(), tensor.values.tolist(), tensor.shape
    ([[0, 1], [0, 2]], [2.5, -4.0], (2, 3))
    """
    check_option("base", base, ("auto", 0, 1), "it is the number from which indices count")
    check_option("header", header, ("auto", True, False), "it says whether the file has a header")
    check_option("duplicates", duplicates, ("refuse", "sum", "keep"), "coordinates may occur twice")
    reading = Reading(path, header, _value_type(dtype))
    reading.take_file(progress)
    coo = reading.tensor(base, shape, nonfinite)
    if duplicates == "sum":
        return coalesce(coo)
    if duplicates == "refuse":
        reading.refuse_repeated(coo)
    return coo


def write_tns(
    path: Path | str,
    coo: Coo,
    *,
    base: Literal[0, 1] = 1,
    header: bool = False,
    progress: Progress | None = None,
) -> None:
    """Write a ``.tns`` file atomically, gzipped if its name ends with ``.gz``.

    `read_tns` reads the same nonzeros back, bit for bit, except for the payload of a NaN.

    Parameters
    ----------
    path : Path or str
    coo : Coo
        The nonzeros are written in its order.
    base : 0 or 1
        The number from which indices count.
    header : bool
        Write the order and the dimensions first. Without a header, a reader takes the largest index of
        each mode for its dimension.
    progress : callable, optional
        Called with the bytes of the tensor's arrays written so far, and their total.

    Raises
    ------
    InputFileError
        If the file cannot be written.
    ShapeError
        If a dimension is too large for `read_tns`, about 2**63.
    DtypeError, FormatError
        If ``coo`` is not a Coo, or its arrays are on a device.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "small.tns"
    ...     write_tns(path, Coo([[0, 1], [0, 2]], [2.5, -4.0], (2, 3)), header=True)
    ...     print(path.read_text(), end="")
    2
    2 3
    1 1 2.5
    2 3 -4.0
    """
    check_host(coo)
    check_option("base", base, (0, 1), "it is the number from which indices count")
    if max(coo.shape) - 1 + max(base, header) > MOST_INDEX:  # the left side is the largest index in the file
        raise ShapeError(
            f"the largest dimension is {max(coo.shape)}\na .tns file has indices up to 2**63 - 1\n"
            "split the mode into two, or use write_tensor"
        )

    def write(file: IO[bytes]) -> None:
        if not str(path).endswith(".gz"):
            return _write_text(file, coo, base, header, progress)
        with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6, mtime=0) as packed:
            return _write_text(packed, coo, base, header, progress)

    write_output(path, write)


def _value_type(given: npt.DTypeLike) -> np.dtype[Any]:
    """The dtype of the values; raise DtypeError unless it is float32 or float64."""
    dtype = dtype_of("dtype", given)
    if dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise DtypeError(f"dtype is {given!r}\nfloat32 and float64 are supported\nchoose one of them")
    return dtype


# ---- writing -------------------------------------------------------------------------------------


def _write_text(file: Any, coo: Coo, base: int, header: bool, progress: Progress | None) -> None:
    """Write the lines of a tensor, `_ROWS` at a time."""
    order, size = len(coo.shape), coo.coords.nbytes + coo.values.nbytes
    if header:
        file.write(f"{order}\n{' '.join(map(str, coo.shape))}\n".encode())
    line = "%d " * order + "%s\n"
    for begin in range(0, coo.values.size, _ROWS):
        end = min(begin + _ROWS, coo.values.size)
        indices = coo.coords[:, begin:end].astype(np.uint64) + np.uint64(base)
        rows = zip(*indices.tolist(), _value_texts(coo.values[begin:end]), strict=True)
        file.write("".join(map(line.__mod__, rows)).encode())
        if progress:
            progress(size * end // coo.values.size, size)


def _value_texts(values: npt.NDArray[Any]) -> list[str]:
    """The shortest decimal text of each value that `read_tns` reads back bit for bit."""
    if values.dtype == np.float64:
        return [repr(value) for value in values.tolist()]
    texts = values.astype("U32")
    # Digits that identify a float32 may give another one when they are rounded to float64 first.
    lost = (texts.astype(np.float64).astype(np.float32) != values) & ~np.isnan(values)
    texts[lost] = [repr(value) for value in values[lost].tolist()]
    return texts.tolist()
