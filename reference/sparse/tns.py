"""Sparse tensors as text: FROSTT's ``.tns``, a line of indices and a value for each nonzero.

```text
# a 2 x 3 matrix; this line is a comment
1 1 2.5
2 3 -4
```

Fields are separated by blanks or tabs. ``#`` begins a comment; blank lines count for nothing. Indices
count from 1, or from 0. Some files, MM-CSF's and ParTI's, have a header of two lines: the order, and the
dimensions. A file may be packed with gzip, whatever its name.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, SchemeError, ShapeError
from reference.sparse._tns_lines import MOST_INDEX
from reference.sparse._tns_reading import Reading
from reference.sparse.files import write_output
from reference.sparse.formats.coo import coalesce
from reference.types import Coo
from reference.types.arguments import check_host

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

    Only a part of the text is in memory at a time.

    Parameters
    ----------
    path : Path or str
    base : 0, 1 or "auto"
        The number from which indices count. "auto": from 0 if any is 0, else from 1.
    header : bool or "auto"
        Whether two lines name the order and the dimensions. "auto": if the first has a single field.
    shape : sequence of int, optional
        The dimensions. Without it the header's; without one, of each mode the largest index and 1.
    duplicates : "refuse", "sum" or "keep"
        The treatment of coordinates that occur again. "sum" sorts the nonzeros too, as `coalesce` does;
        otherwise they are in the order of the file.
    dtype : float64 or float32
        Of the values. A number is read as `float` reads it, and then rounded to float32.
    nonfinite : bool
        Whether NaN and infinite values are meant.
    progress : callable, optional
        Called now and then with how many bytes of the file are read, and how many it has.

    Returns
    -------
    Coo
        Indices are uint32, or int64 if a dimension is above 2**32.

    Raises
    ------
    InputFileError
        If the file cannot be read, or a line is wrong: names the file, the line and what is wrong.
    ShapeError
        If ``shape`` has another order than the file.
    SchemeError, DtypeError
        For other options.

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
    _check_choice("base", base, ("auto", 0, 1))
    _check_choice("header", header, ("auto", True, False))
    _check_choice("duplicates", duplicates, ("refuse", "sum", "keep"))
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

    `read_tns` gives the same nonzeros, with the same bits. (Of a NaN, only that it is one.)

    Parameters
    ----------
    path : Path or str
    coo : Coo
        Its order of nonzeros is kept.
    base : 0 or 1
        The number from which indices count.
    header : bool
        Write the order and the dimensions first. Without them the file does not say how large the
        dimensions are beyond the largest index.
    progress : callable, optional
        Called now and then with how many bytes of the tensor's arrays are written, and how many it has.

    Raises
    ------
    InputFileError
        If the file cannot be written.
    ShapeError
        If a dimension is too large for `read_tns`, about 2**63.
    DtypeError, FormatError
        If ``coo`` is not a Coo, or lies on a device.

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
    _check_choice("base", base, (0, 1))
    if max(coo.shape) - 1 + max(base, header) > MOST_INDEX:  # the largest number of the file
        raise ShapeError(
            f"the largest dimension is {max(coo.shape)}\na .tns file has indices up to 2**63 - 1\n"
            "split the mode, or use write_tensor"
        )
    write_output(path, lambda file: _write(file, coo, base, header, str(path).endswith(".gz"), progress))


def _check_choice(name: str, given: object, known: tuple[object, ...]) -> None:
    if given not in known:
        raise SchemeError(f"{name} is {given!r}\nknown are {', '.join(map(repr, known))}\nchoose one of them")


def _value_type(given: npt.DTypeLike) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = np.dtype(given)
    except TypeError:
        dtype = np.dtype(np.void)
    if dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise DtypeError(f"dtype is {given!r}\nfloat32 and float64 are known\nchoose one of them")
    return dtype


# ---- writing -------------------------------------------------------------------------------------


def _write(
    file: IO[bytes], coo: Coo, base: int, header: bool, packed: bool, progress: Progress | None
) -> None:
    if packed:
        with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6, mtime=0) as inner:
            _write_text(inner, coo, base, header, progress)
    else:
        _write_text(file, coo, base, header, progress)


def _write_text(file: Any, coo: Coo, base: int, header: bool, progress: Progress | None) -> None:
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
    # A double that lies between two floats may be what the shortest digits become first.
    lost = (texts.astype(np.float64).astype(np.float32) != values) & ~np.isnan(values)
    texts[lost] = [repr(value) for value in values[lost].tolist()]
    return texts.tolist()
