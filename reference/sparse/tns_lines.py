r"""Parser for the lines of a ``.tns`` file.

`parse_line` defines the format, one line at a time in plain Python. `parse_lines` is the fast path: it calls
`numpy.loadtxt`, and falls back to `parse_line` for a text that loadtxt rejects. The tests compare the two.

>>> parse_lines(b"1 2 0.5\n# the rest\n4 1 -2\n", 2)
Lines(indices=array([[1, 4],
       [2, 1]]), values=array([ 0.5, -2. ]), skipped=array([1]))
"""

from __future__ import annotations

import re
import warnings
from io import BytesIO
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reference.types.fields import LEAST_ORDER, MOST_ORDER

MOST_INDEX = 2**63 - 1
"""The largest index that a file may have: the maximum of an int64."""

_INTEGER = re.compile(rb"[+-]?\d+")
_FINITE = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_NONFINITE = re.compile(rb"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_BLANKS = b" \t\v\f\r"
_ALIKE = bytes(b" "[0] if n in _BLANKS else n if n == 10 or 32 < n < 127 else b"?"[0] for n in range(256))
"""Translation table: "?" for bytes that loadtxt would take for blanks or line ends, or cannot decode."""


class LineError(ValueError):
    """An invalid line; ``line`` is the number of lines before it in the text."""

    def __init__(self, what: str, advice: str, line: int = 0) -> None:
        super().__init__(f"{what}\n{advice}")
        self.line = line


class Lines(NamedTuple):
    """Indices (order, M) as written, values, and for each skipped line the number of nonzeros before it."""

    indices: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]
    skipped: npt.NDArray[np.int64]


def split_line(line: bytes) -> list[bytes]:
    """Split a line into its fields, without its comment."""
    return line.partition(b"#")[0].split()


def parse_index(field: bytes) -> int:
    """An index or a dimension; raise LineError unless it is an integer from 0 to `MOST_INDEX`."""
    if not _INTEGER.fullmatch(field):
        raise LineError(f"{_shown(field)} is not an integer", "an index is written in decimal digits")
    digits = field.lstrip(b"+-").lstrip(b"0") or b"0"
    if field.startswith(b"-") and digits != b"0":
        raise LineError(f"the index {_shown(field)} is negative", "indices count from 0 or from 1")
    if len(digits) > len(str(MOST_INDEX)) or int(digits) > MOST_INDEX:
        raise LineError(f"the index {_shown(field)} is too large", "indices go up to 2**63 - 1")
    return int(digits)


def parse_line(line: bytes, order: int) -> tuple[list[int], float] | None:
    """The indices and the value of a line, or None for a blank line or a comment; raise LineError if invalid.

    A value is a decimal number, ``nan``, ``inf`` or ``infinity``, converted by `float`.
    """
    fields = split_line(line)
    if not fields:
        return None
    if len(fields) != order + 1:
        raise LineError(
            f"{len(fields)} fields, expected {order + 1}",
            f"the tensor has {order} modes: a line has {order} indices and a value",
        )
    if not _FINITE.fullmatch(fields[-1]) and not _NONFINITE.fullmatch(fields[-1]):
        raise LineError(f"{_shown(fields[-1])} is not a number", "the last field of a line is the value")
    return [parse_index(field) for field in fields[:-1]], float(fields[-1])


def check_order(order: int) -> None:
    """Raise LineError unless a sparse tensor can have this order."""
    if not LEAST_ORDER <= order <= MOST_ORDER:
        raise LineError(f"the order is {order}", f"a sparse tensor has {LEAST_ORDER} to {MOST_ORDER} modes")


def parse_lines(text: bytes, order: int) -> Lines:
    """Parse a text whose lines all end with a newline; raises LineError as `parse_line` does."""
    row = np.dtype([("indices", np.int64, (order,)), ("value", np.float64)])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # an index written as a real number is an error
            warnings.filterwarnings("ignore", "loadtxt: input contained no data")
            rows = np.loadtxt(BytesIO(text.translate(_ALIKE)), row, ndmin=1, encoding="ascii")
    except (ValueError, Warning):
        return parse_plain(text, order)
    if rows.size and rows["indices"].min() < 0:
        return parse_plain(text, order)
    return Lines(np.ascontiguousarray(rows["indices"].T), rows["value"].copy(), _skipped(text, rows.size))


def _skipped(text: bytes, nonzeros: int) -> npt.NDArray[np.int64]:
    """The number of nonzeros before each blank or comment line."""
    if text.count(b"\n") == nonzeros:
        return np.empty(0, np.int64)
    lines = np.flatnonzero([line.lstrip()[:1] in (b"", b"#") for line in text.split(b"\n")[:-1]])
    return lines - np.arange(lines.size)


def _shown(field: bytes) -> str:
    """A field as a Python literal, cut to 40 characters."""
    return ascii((field if len(field) <= 40 else field[:37] + b"...").decode("latin-1"))


def parse_plain(text: bytes, order: int) -> Lines:
    """`parse_lines` without the fast path: calls `parse_line` for each line."""
    rows: list[list[int]] = []
    values: list[float] = []
    skipped: list[int] = []
    for line in text.split(b"\n")[:-1]:
        try:
            parsed = parse_line(line, order)
        except LineError as error:
            error.line = len(rows) + len(skipped)
            raise
        if parsed is None:
            skipped.append(len(rows))
        else:
            rows.append(parsed[0])
            values.append(parsed[1])
    indices = np.array(rows, np.int64).reshape(len(rows), order)
    return Lines(np.ascontiguousarray(indices.T), np.array(values, np.float64), np.array(skipped, np.int64))
