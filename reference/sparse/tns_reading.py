"""The nonzeros of a ``.tns`` file, taken part by part, and what a line can be blamed for."""

from __future__ import annotations

import codecs
import gzip
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from reference.errors import InputFileError, ShapeError
from reference.sparse.files import open_input
from reference.sparse.places import first_repeated
from reference.sparse.tns_lines import (
    MOST_INDEX,
    LineError,
    check_order,
    parse_index,
    parse_lines,
    split_line,
)
from reference.types import Coo
from reference.types.fields import LEAST_ORDER, MOST_ORDER

_CHUNK = 8 << 20
_GZIP = b"\x1f\x8b"
_BLANK_LINES = re.compile(rb"\s*\n")
_ADVICE = "give a .tns file: a line of indices and a value for each nonzero"


class _Part(NamedTuple):
    """Nonzeros that came in one chunk; indices as written."""

    indices: npt.NDArray[Any]
    values: npt.NDArray[Any]


class _Skipped(NamedTuple):
    """Blank and comment lines of one chunk: how many there are before a nonzero and after the one before."""

    nonzeros: npt.NDArray[np.int64]
    lines: npt.NDArray[np.int64]


class Reading:
    r"""What has been read so far of one file.

    Examples
    --------
    >>> reading = Reading("small.tns", "auto", np.dtype(np.float64))
    >>> reading.take([b"2\n2 3\n1 1 2.5\n", b"2 3 -4\n"])
    >>> reading.tensor("auto", None, nonfinite=False).coords.tolist()
    [[0, 1], [0, 2]]
    """

    def __init__(self, path: Path | str, header: Literal["auto", True, False], dtype: np.dtype[Any]) -> None:
        self._path, self._header, self._dtype = path, header, dtype
        self._announced = self._order = 0  # the order: by the header's first line, and once it is sure
        self._shape: tuple[int, ...] | None = None
        self._lines = self._nonzeros = 0
        self._skipped: list[_Skipped] = []
        self._parts: list[_Part] = []
        self._least, self._most = MOST_INDEX, np.zeros(MOST_ORDER, np.int64)

    def take_file(self, progress: Callable[[int, int], object] | None) -> None:
        """Take the whole file."""
        with open_input(self._path, _ADVICE) as file:
            try:
                self.take(_texts(file, progress))
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise InputFileError(
                    f"{self._path} is damaged after line {self._lines}: {error}\n"
                    "it begins as a gzip file and does not go on as one\nfetch it or pack it again"
                ) from None
            except OSError as error:
                reason = error.strerror or error
                raise InputFileError(f"{self._path} cannot be read: {reason}\n{_ADVICE}") from None

    def take(self, texts: Iterator[bytes] | Sequence[bytes]) -> None:
        """Take texts of whole lines, each of which ends with a newline."""
        try:
            for text in texts:
                begin = 0 if self._order else self._take_header(text)
                if begin < len(text):
                    self._take_nonzeros(text[begin:] if begin else text)
        except LineError as error:
            raise self._wrong(self._lines + error.line + 1, str(error)) from None

    def _take_header(self, text: bytes) -> int:
        """Take lines until the order is known; returns where the first nonzero begins."""
        begin, before = 0, self._lines
        while begin < len(text) and not self._order:
            if blank := _BLANK_LINES.match(text, begin):
                self._lines, begin = self._lines + blank[0].count(b"\n"), blank.end()
                continue
            end = text.index(b"\n", begin) + 1
            fields = split_line(text[begin:end])
            if fields and self._announced:
                self._take_dimensions(fields)
            elif fields and (not self._header or (self._header == "auto" and len(fields) != 1)):
                self._order = _order_of(fields)
                break
            elif fields:
                self._announced = _announced_order(fields)
            self._lines, begin = self._lines + 1, end
        self._skipped.append(_Skipped(np.zeros(1, np.int64), np.array([self._lines - before])))
        return begin

    def _take_dimensions(self, fields: list[bytes]) -> None:
        if len(fields) != self._announced:
            raise LineError(
                f"{len(fields)} fields, expected {self._announced}",
                f"the header says that there are {self._announced} modes; next come their dimensions",
            )
        self._shape = tuple(map(parse_index, fields))
        if not min(self._shape):
            raise LineError("a dimension is 0", "every dimension is at least 1")
        self._order = self._announced

    def _take_nonzeros(self, text: bytes) -> None:
        indices, values, skipped = parse_lines(text, self._order)
        self._skipped.append(_Skipped(*np.unique(skipped + self._nonzeros, return_counts=True)))
        self._lines += values.size + skipped.size
        self._nonzeros += values.size
        if values.size:
            largest = indices.max(axis=1)
            self._least = min(self._least, int(indices.min()))
            self._most[: self._order] = np.maximum(self._most[: self._order], largest)
            kind = np.uint32 if largest.max() < 2**32 else np.int64
            with np.errstate(over="ignore"):
                self._parts.append(_Part(indices.astype(kind), values.astype(self._dtype)))

    # ---- what came of it -------------------------------------------------------------------------

    def tensor(self, base: Literal["auto", 0, 1], shape: Sequence[int] | None, nonfinite: bool) -> Coo:
        """The tensor, in the order of the file; what was taken is given away.

        Raises
        ------
        InputFileError
            If there is nothing, or an index or a value is wrong: names the line.
        ShapeError
            If ``shape`` has another order.
        """
        if not self._nonzeros:
            raise InputFileError(
                f"{self._path} has no nonzeros\n"
                f"it has {self._lines} lines, all blank, comments or header\n{_ADVICE}"
            )
        least = (1 if self._least else 0) if base == "auto" else base
        dimensions = self._dimensions(shape, least)
        self._check_indices(least, dimensions)
        if not nonfinite:
            self._check_values()
        coords = np.empty((self._order, self._nonzeros), np.uint32 if max(dimensions) <= 2**32 else np.int64)
        values = np.empty(self._nonzeros, self._dtype)
        end = self._nonzeros
        while self._parts:  # from the last one on, so that their memory becomes free
            part = self._parts.pop()
            begin = end - part.values.size
            np.subtract(part.indices, least, out=coords[:, begin:end], casting="unsafe")
            values[begin:end] = part.values
            end = begin
        return Coo(coords, values, dimensions, nonfinite)

    def _dimensions(self, shape: Sequence[int] | None, least: int) -> tuple[int, ...]:
        if shape is None:
            return self._shape or tuple(int(most) + 1 - least for most in self._most[: self._order])
        if len(shape) != self._order:
            raise ShapeError(
                f"shape {tuple(shape)} has {len(shape)} modes\n{self._path} has {self._order}\n"
                "give as many dimensions, or none"
            )
        return tuple(int(dimension) for dimension in shape)

    def _check_indices(self, least: int, dimensions: tuple[int, ...]) -> None:
        if self._least < least:
            _, _, nonzero = self._first(lambda part: (part.indices == 0).any(axis=0))
            raise self._wrong(self._line(nonzero), "the index 0\nwith base=1, indices count from 1")
        for mode, dimension in enumerate(dimensions):
            limit = dimension + least
            if int(self._most[mode]) >= limit:
                part, at, nonzero = self._first(lambda part, m=mode, n=limit: part.indices[m] >= n)
                raise self._wrong(
                    self._line(nonzero),
                    f"the index {part.indices[mode, at]} in mode {mode}, whose dimension is {dimension}\n"
                    f"indices count from {least} to {limit - 1}",
                )

    def _check_values(self) -> None:
        if all(np.isfinite(part.values).all() for part in self._parts):
            return
        part, at, nonzero = self._first(lambda part: ~np.isfinite(part.values))
        raise self._wrong(
            self._line(nonzero),
            f"the value is {part.values[at]} as {self._dtype}\nnonfinite=True takes it, if it is meant",
        )

    def _first(self, wrong: Callable[[_Part], npt.NDArray[np.bool_]]) -> tuple[_Part, int, int]:
        """The first nonzero of which something is true: its part, its number there, and in the file."""
        before = 0
        for part in self._parts:
            found = np.flatnonzero(wrong(part))
            if found.size:
                return part, int(found[0]), before + int(found[0])
            before += part.values.size
        raise LookupError("nothing is wrong")

    def refuse_repeated(self, tensor: Coo) -> None:
        """Raise InputFileError if two lines have the same place; names both."""
        found = first_repeated(tensor.coords, tensor.shape)
        if found is not None:
            before, line = map(self._line, found)
            place = tuple(int(index) for index in tensor.coords[:, found[1]])
            raise InputFileError(
                f"{self._path}, line {line}: line {before} has the same place, {place} counted from 0\n"
                "duplicates='sum' adds the values, 'keep' keeps them all\nchoose one, or remove a line"
            )

    def _line(self, nonzero: int) -> int:
        """On which line a nonzero is, from 1 on."""
        return nonzero + 1 + sum(int(part.lines[part.nonzeros <= nonzero].sum()) for part in self._skipped)

    def _wrong(self, line: int, what: str) -> InputFileError:
        return InputFileError(f"{self._path}, line {line}: {what}\ncorrect the line, or remove it")


def _order_of(fields: list[bytes]) -> int:
    if not LEAST_ORDER <= len(fields) - 1 <= MOST_ORDER:
        raise LineError(
            f"{len(fields)} field{'s' * (len(fields) != 1)}",
            f"a nonzero has {LEAST_ORDER} to {MOST_ORDER} indices and a value; "
            "a header has the order on one line and the dimensions on the next",
        )
    return len(fields) - 1


def _announced_order(fields: list[bytes]) -> int:
    if len(fields) != 1:
        raise LineError(f"{len(fields)} fields, expected 1", "a header begins with the order alone")
    order = parse_index(fields[0])
    check_order(order)
    return order


def _texts(file: BufferedReader, progress: Callable[[int, int], object] | None) -> Iterator[bytes]:
    """The text in parts of whole lines, each of which ends with a newline."""
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
