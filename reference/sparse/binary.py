"""Sparse tensors as bytes: our own file format, ``.swt``, mapped into memory instead of parsed.

All numbers are little-endian. The file is a header of 128 bytes and two arrays, each from a multiple of 64
bytes on, with zeros before it; it ends with the second. One tensor has one file.

====== ===== ========= ===========================================================================
offset bytes type      what
====== ===== ========= ===========================================================================
0      8     bytes     ``93 53 57 54 0D 0A 1A 0A``: the magic, ``SWT`` with what text modes spoil
8      4     uint32    version: 1
12     4     uint32    order d: 2 to 8
16     4     ASCII     type of the indices: ``i1 i2 i4 i8 u1 u2 u4 u8``, then zeros
20     4     ASCII     type of the values: ``f4`` or ``f8``, then zeros
24     4     uint32    1 if NaN and infinite values are meant, else 0
28     4     uint32    CRC-32 of the 128 bytes of the header, with 0 here
32     8     uint64    M: the number of nonzeros
40     8     uint64    where the indices begin: 128
48     8     uint64    where the values begin
56     8     uint64    bytes of the file
64     64    8 uint64  the dimensions, those past d are 0
128    …     …         indices, (d, M) in C order: all of mode 0, then all of mode 1, …
…      …     …         values, (M,)
====== ===== ========= ===========================================================================
"""

from __future__ import annotations

import os
import struct
import zlib
from io import BufferedReader
from mmap import ACCESS_READ
from mmap import mmap as map_file
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from reference.errors import FormatError, InputFileError, ShapeError, SimwarpError
from reference.sparse.files import check_writable, open_input, write_output
from reference.types import Coo
from reference.types.fields import LEAST_ORDER, MOST_NONZEROS, MOST_ORDER

MAGIC, VERSION = b"\x93SWT\r\n\x1a\n", 1
_HEADER = struct.Struct("<8sII4s4sII4Q8Q")
_CRC_AT = 28
_ALIGNMENT = 64
_INDEX_TYPES = {f"{kind}{n}".encode(): np.dtype(f"<{kind}{n}") for kind in "iu" for n in (1, 2, 4, 8)}
_VALUE_TYPES = {b"f4": np.dtype("<f4"), b"f8": np.dtype("<f8")}
_LARGEST_DIMENSION = 2**64 - 1
_ADVICE = "give a file that write_tensor wrote"


class _Layout(NamedTuple):
    """What a header says, and what follows from it."""

    shape: tuple[int, ...]
    nonzeros: int
    index_type: np.dtype[Any]
    value_type: np.dtype[Any]
    nonfinite: bool

    @property
    def coords_at(self) -> int:
        return _HEADER.size

    @property
    def coords_end(self) -> int:
        return self.coords_at + len(self.shape) * self.nonzeros * self.index_type.itemsize

    @property
    def values_at(self) -> int:
        return -(-self.coords_end // _ALIGNMENT) * _ALIGNMENT

    @property
    def size(self) -> int:
        return self.values_at + self.nonzeros * self.value_type.itemsize


def write_tensor(path: Path | str, coo: Coo) -> None:
    """Write a ``.swt`` file, whole or not at all; equal tensors make equal files.

    Parameters
    ----------
    path : Path or str
    coo : Coo
        The order of its nonzeros and its types are kept.

    Raises
    ------
    InputFileError
        If it cannot be written.
    ShapeError
        If a dimension is above 2**64 - 1.
    DtypeError, FormatError
        For what is no Coo, or lies on a device.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "small.swt"
    ...     write_tensor(path, Coo([[0, 1], [0, 2]], [2.5, -4.0], (2, 3)))
    ...     path.stat().st_size
    208
    """
    check_writable(coo)
    if max(coo.shape) > _LARGEST_DIMENSION:
        raise ShapeError(
            f"the largest dimension is {max(coo.shape)}\na .swt file has dimensions up to 2**64 - 1\n"
            "split the mode into two"
        )
    coords = np.ascontiguousarray(coo.coords, coo.coords.dtype.newbyteorder("<"))
    values = np.ascontiguousarray(coo.values, coo.values.dtype.newbyteorder("<"))
    layout = _Layout(coo.shape, values.size, coords.dtype, values.dtype, bool(coo.nonfinite))

    def write(file: IO[bytes]) -> None:
        file.write(_header(layout))
        file.write(coords.data)
        file.write(bytes(layout.values_at - file.tell()))
        file.write(values.data)

    write_output(path, write)


def read_tensor(path: Path | str, *, mmap: bool = True) -> Coo:
    """Read a ``.swt`` file. Nothing in it is believed: it may come from a stranger.

    Parameters
    ----------
    path : Path or str
    mmap : bool
        Map the file into memory: the arrays are read-only, and pages of it are loaded when they are
        needed. Nobody may shorten the file while they live; `write_tensor` to the same path does not.
        Otherwise they are copies.

    Returns
    -------
    Coo
        As it was written.

    Raises
    ------
    InputFileError
        If the file cannot be read, or is no whole tensor: says what is wrong.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "small.swt"
    ...     write_tensor(path, Coo([[0, 1], [0, 2]], [2.5, -4.0], (2, 3)))
    ...     tensor = read_tensor(path)
    >>> tensor.values, tensor.shape
    (array([ 2.5, -4. ]), (2, 3))
    """
    with open_input(path, _ADVICE) as file:
        try:
            layout = _layout(file.read(_HEADER.size), os.fstat(file.fileno()).st_size)
            data = _mapped(file, layout) if mmap else _copied(file, layout)
            if any(data[layout.coords_end : layout.values_at]):
                raise FormatError("there is something between its arrays")
            order, nonzeros = len(layout.shape), layout.nonzeros
            coords = np.frombuffer(data, layout.index_type, order * nonzeros, layout.coords_at)
            values = np.frombuffer(data, layout.value_type, nonzeros, layout.values_at)
            return Coo(coords.reshape(order, nonzeros), values, layout.shape, layout.nonfinite)
        except (OSError, MemoryError) as error:
            raise InputFileError(f"{path} cannot be read: {error}\n{_ADVICE}") from None
        except SimwarpError as error:
            what = str(error).splitlines()[0]
            raise InputFileError(f"{path} holds no sparse tensor: {what}\n{_ADVICE}") from None


def _header(layout: _Layout) -> bytes:
    shape = (*layout.shape, *[0] * (MOST_ORDER - len(layout.shape)))
    types = (dtype.str[1:].encode() for dtype in (layout.index_type, layout.value_type))
    sizes = (layout.nonzeros, layout.coords_at, layout.values_at, layout.size)
    header = _HEADER.pack(MAGIC, VERSION, len(layout.shape), *types, layout.nonfinite, 0, *sizes, *shape)
    return _with_crc(header)


def _with_crc(header: bytes) -> bytes:
    cleared = header[:_CRC_AT] + bytes(4) + header[_CRC_AT + 4 :]
    return header[:_CRC_AT] + zlib.crc32(cleared).to_bytes(4, "little") + header[_CRC_AT + 4 :]


def _layout(header: bytes, size: int) -> _Layout:
    """What the header says, in Python's integers, once it agrees with itself and with the file's size.

    Raises
    ------
    FormatError
    """
    if len(header) < _HEADER.size or not header.startswith(MAGIC):
        raise FormatError(f"it begins with {header[: len(MAGIC)]!r}, not with {MAGIC!r}")
    _, version, order, index_type, value_type, nonfinite, _, nonzeros, *rest = _HEADER.unpack(header)
    if version != VERSION:
        raise FormatError(f"it has version {version}, and only {VERSION} is known")
    if header != _with_crc(header):
        raise FormatError("its header is damaged")
    if not LEAST_ORDER <= order <= MOST_ORDER or any(rest[3 + order :]):
        raise FormatError(f"it has order {order}, and {LEAST_ORDER} to {MOST_ORDER} are possible")
    index, value = _INDEX_TYPES.get(index_type.rstrip(b"\0")), _VALUE_TYPES.get(value_type.rstrip(b"\0"))
    if index is None or value is None or nonfinite > 1:
        raise FormatError(f"its types are {index_type!r} and {value_type!r}, flags {nonfinite}")
    if not 1 <= nonzeros <= MOST_NONZEROS:
        raise FormatError(f"it has {nonzeros} nonzeros, and 1 to 2**32 - 1 are possible")
    layout = _Layout(tuple(rest[3 : 3 + order]), nonzeros, index, value, bool(nonfinite))
    if rest[:3] != [layout.coords_at, layout.values_at, layout.size]:
        raise FormatError(
            f"its arrays and its end are not where {nonzeros} nonzeros of order {order} have them"
        )
    if size != layout.size:
        raise FormatError(f"it has {size} bytes, and says that it has {layout.size}")
    return layout


def _mapped(file: BufferedReader, layout: _Layout) -> map_file:
    return map_file(file.fileno(), layout.size, access=ACCESS_READ)


def _copied(file: BufferedReader, layout: _Layout) -> bytearray:
    data = bytearray(layout.size)
    file.seek(0)
    if file.readinto(data) != layout.size:
        raise FormatError("it became shorter while it was read")
    return data
