r"""Incremental reading of ``.tns`` files, with the line numbers of invalid nonzeros.

>>> reading = Reading("small.tns", "auto", np.dtype(np.float64))
>>> reading.take([b"2\n2 3\n1 1 2.5\n", b"2 3 -4\n"])
>>> reading.tensor("auto", None, nonfinite=False).coords.tolist()
[[0, 1], [0, 2]]
"""

from __future__ import annotations

import codecs
import gzip
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from reference.errors import InputFileError, ShapeError
from reference.files import open_input
from reference.sparse.coordinates import first_repeated
from reference.sparse.tns_lines import LineError, check_order, parse_index, parse_lines, split_line
from reference.types import Coo
from reference.types.fields import LEAST_ORDER, MOST_ORDER

_CHUNK = 8 << 20
_GZIP = b"\x1f\x8b"
_BLANK_LINES = re.compile(rb"\s*\n")
_WORDS = (b"sptensor", b"tensor", b"ktensor", b"matrix", b"sumtensor", b"ttensor")
"""The first lines of files of the Tensor Toolbox and of pyttb."""
_ADVICE = "give a .tns file: a line of indices and a value for each nonzero"


class Reading:
    """The state of a reader: the nonzeros and the skipped lines that it has read so far."""

    def __init__(self, path: Path | str, header: Literal["auto", True, False], dtype: np.dtype[Any]) -> None:
        self._path, self._header, self._dtype = path, header, dtype
        # the order that the header's first line announces; the order, once known
        self._announced = self._order = 0
        self._shape: tuple[int, ...] | None = None
        # whether the header begins with "sptensor": a count then follows the dimensions
        self._is_toolbox = False
        self._count: tuple[int, int] | None = None  # the count of nonzeros in the header, and its line
        self._lines = self._nonzeros = 0
        self._parts: list[tuple[npt.NDArray[Any], npt.NDArray[Any]]] = []  # indices as written, values
        self._skipped: list[
            tuple[int, int]
        ] = []  # counts of skipped lines, each with the nonzeros before them

    def take_file(self, progress: Callable[[int, int], object] | None) -> None:
        """Read and parse the whole .tns file."""
        with open_input(self._path, _ADVICE) as file:
            try:
                self.take(_texts(file, progress))
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise InputFileError(
                    f"{self._path} is damaged after line {self._lines}: {error}\n"
                    "it begins as a gzip file, and the rest is invalid\ndownload or compress it again"
                ) from None
            except OSError as error:
                reason = error.strerror or error
                raise InputFileError(f"{self._path} cannot be read: {reason}\n{_ADVICE}") from None

    def take(self, texts: Iterable[bytes]) -> None:
        """Parse texts of whole lines, each of which ends with a newline."""
        try:
            for text in texts:
                begin = 0 if self._order else self._take_header(text)
                if begin < len(text):
                    self._take_nonzeros(text[begin:] if begin else text)
        except LineError as error:
            raise self._wrong(self._lines + error.line + 1, str(error)) from None

    def _take_header(self, text: bytes) -> int:
        """Parse lines until the order is known; return the offset of the first nonzero in the text."""
        begin, before = 0, self._lines
        while begin < len(text) and not self._order:
            if blank := _BLANK_LINES.match(text, begin):
                self._lines, begin = self._lines + blank[0].count(b"\n"), blank.end()
                continue
            end = text.index(b"\n", begin) + 1
            fields = split_line(text[begin:end])
            if fields and self._is_toolbox and self._shape:
                self._take_count(fields)
            elif fields and self._announced:
                self._take_dimensions(fields)
            elif fields and self._header and not self._is_toolbox and fields[0] in _WORDS:
                self._is_toolbox = _is_sparse(fields[0])
            elif fields and (not self._header or (self._header == "auto" and len(fields) != 1)):
                self._order = _order_of(fields)
                break
            elif fields:
                self._announced = _announced_order(fields)
            self._lines, begin = self._lines + 1, end
        self._skipped.append((self._lines - before, 0))
        return begin

    def _take_dimensions(self, fields: list[bytes]) -> None:
        if len(fields) != self._announced:
            raise LineError(
                f"{len(fields)} fields, expected {self._announced}",
                f"the header announces {self._announced} modes; this line has their dimensions",
            )
        self._shape = tuple(map(parse_index, fields))
        if not min(self._shape):
            raise LineError("a dimension is 0", "every dimension is at least 1")
        self._order = 0 if self._is_toolbox else self._announced

    def _take_count(self, fields: list[bytes]) -> None:
        if len(fields) != 1:
            raise LineError(f"{len(fields)} fields, expected 1", "this line has the number of nonzeros")
        self._count = parse_index(fields[0]), self._lines + 1
        self._order = self._announced

    def _take_nonzeros(self, text: bytes) -> None:
        indices, values, skipped = parse_lines(text, self._order)
        before, lines = np.unique(skipped + self._nonzeros, return_counts=True)
        self._skipped += zip(lines.tolist(), before.tolist(), strict=True)
        self._lines += values.size + skipped.size
        self._nonzeros += values.size
        if values.size:
            kind = np.uint32 if int(indices.max()) < 2**32 else np.int64
            with np.errstate(over="ignore"):
                self._parts.append((indices.astype(kind), values.astype(self._dtype)))

    # ---- the tensor ------------------------------------------------------------------------------

    def tensor(self, base: Literal["auto", 0, 1], shape: Sequence[int] | None, nonfinite: bool) -> Coo:
        """The tensor, in the order of the file; call once. Raise InputFileError or ShapeError if invalid."""
        if not self._nonzeros:
            raise InputFileError(
                f"{self._path} has no nonzeros\n"
                f"it has {self._lines} lines, all blank, comments or header\n{_ADVICE}"
            )
        if self._count is not None and self._count[0] != self._nonzeros:
            what = f"{self._count[0]} nonzeros are announced, {self._nonzeros} follow"
            raise self._wrong(self._count[1], f"{what}\nthe fourth line of an sptensor counts them")
        indices, values = self._joined()
        base = 1 if self._is_toolbox and base == "auto" else base
        least = min(1, int(indices.min())) if base == "auto" else base
        dimensions = self._dimensions(shape, [int(level.max()) + 1 - least for level in indices])
        self._check(indices, values, least, dimensions, nonfinite)
        indices -= indices.dtype.type(least)
        kind = np.uint32 if max(dimensions) <= 2**32 else np.int64
        return Coo(indices.astype(kind, copy=False), values, dimensions, nonfinite)

    def _joined(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """All indices as written, and all values; frees each part when it is copied."""
        kind = np.result_type(*{indices.dtype for indices, _ in self._parts})
        joined, values = np.empty((self._order, self._nonzeros), kind), np.empty(self._nonzeros, self._dtype)
        end = self._nonzeros
        while self._parts:
            indices, some = self._parts.pop()
            begin = end - some.size
            joined[:, begin:end], values[begin:end] = indices, some
            end = begin
        return joined, values

    def _dimensions(self, shape: Sequence[int] | None, least: Sequence[int]) -> tuple[int, ...]:
        """The caller's dimensions, else the header's, else the least that hold the indices."""
        if shape is None:
            return self._shape or tuple(least)
        if len(shape) != self._order:
            raise ShapeError(
                f"shape {tuple(shape)} has {len(shape)} modes\n{self._path} has {self._order}\n"
                "give as many dimensions, or none"
            )
        return tuple(int(dimension) for dimension in shape)

    def _check(self, indices: Any, values: Any, least: int, shape: tuple[int, ...], nonfinite: bool) -> None:
        """Raise InputFileError for the first index 0 with base 1, index outside the shape, or NaN or inf."""
        if least and not indices.all():
            zero = int(np.argmin(indices.all(axis=0)))
            raise self._wrong(self._line(zero), "the index 0\nwith base=1, indices count from 1")
        for mode, (level, dimension) in enumerate(zip(indices, shape, strict=True)):
            limit = dimension + least
            if int(level.max()) >= limit:
                z = int(np.argmax(level >= limit))
                what = f"the index {level[z]} in mode {mode}, whose dimension is {dimension}"
                raise self._wrong(self._line(z), f"{what}\nindices count from {least} to {limit - 1}")
        if not nonfinite and not np.isfinite(values).all():
            z = int(np.argmin(np.isfinite(values)))
            what = f"the value is {values[z]} as {self._dtype}"
            raise self._wrong(self._line(z), f"{what}\npass nonfinite=True if it is meant")

    def refuse_repeated(self, tensor: Coo) -> None:
        """Raise InputFileError, with both line numbers, if two lines have the same coordinates."""
        pair = first_repeated(tensor.coords, tensor.shape)
        if pair is not None:
            before, line = map(self._line, pair)
            coordinates = tuple(int(index) for index in tensor.coords[:, pair[1]])
            raise InputFileError(
                f"{self._path}, line {line}: line {before} has the same coordinates, {coordinates} from 0\n"
                "duplicates='sum' adds the values, 'keep' keeps them all\nchoose one, or remove a line"
            )

    def _line(self, nonzero: int) -> int:
        """The line number of a nonzero, counted from 1."""
        return nonzero + 1 + sum(lines for lines, before in self._skipped if before <= nonzero)

    def _wrong(self, line: int, what: str) -> InputFileError:
        return InputFileError(f"{self._path}, line {line}: {what}\ncorrect the line, or remove it")


def _is_sparse(word: bytes) -> bool:
    """True for "sptensor"; raise for other types of the Tensor Toolbox."""
    if word != b"sptensor":
        raise LineError(
            f"a {word.decode()} of the Tensor Toolbox or pyttb",
            "only its sptensor files are read here; read this one with pyttb.import_data",
        )
    return True


def _order_of(fields: list[bytes]) -> int:
    """The order of a tensor, from the fields of its first nonzero."""
    if not LEAST_ORDER <= len(fields) - 1 <= MOST_ORDER:
        raise LineError(
            f"{len(fields)} field{'s' * (len(fields) != 1)}",
            f"a nonzero has {LEAST_ORDER} to {MOST_ORDER} indices and a value; "
            "a header has the order on one line and the dimensions on the next",
        )
    return len(fields) - 1


def _announced_order(fields: list[bytes]) -> int:
    """The order of a tensor, from the first line of a header."""
    if len(fields) != 1:
        raise LineError(f"{len(fields)} fields, expected 1", "a header begins with the order alone")
    order = parse_index(fields[0])
    check_order(order)
    return order


def _texts(file: BufferedReader, progress: Callable[[int, int], object] | None) -> Iterator[bytes]:
    """Read a file in chunks of whole lines, decompressed if it is gzip; each line ends with a newline."""
    size, seekable = os.fstat(file.fileno()).st_size, file.seekable()
    packed = file.peek(len(_GZIP)).startswith(_GZIP)
    source: Any = gzip.GzipFile(fileobj=file) if packed else file
    rest = source.read(len(codecs.BOM_UTF8)).removeprefix(codecs.BOM_UTF8)
    while block := source.read(_CHUNK):
        end = block.rfind(b"\n") + 1
        if not end and len(rest) + len(block) > _CHUNK:
            raise LineError(f"it has more than {_CHUNK} bytes", _ADVICE)
        if end:
            yield rest + block[:end]
            rest = b""
        rest += block[end:]
        if progress:
            progress(file.tell() if seekable else 0, size)
    if rest:
        yield rest.removesuffix(b"\n") + b"\n"
