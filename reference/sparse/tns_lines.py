"""Lines of a ``.tns`` file: what each says, twice.

`parse_line` is the definition, one line in plain Python. Texts of some length go through a loop that Numba
compiles; it takes the lines it can do exactly and leaves every other, wrong ones too, to the definition.
The tests hold one against the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reference.types.fields import LEAST_ORDER, MOST_ORDER

MOST_INDEX = 2**63 - 1
"""The largest index, as the file has it: what an int64 holds."""

# Importing Numba and compiling the loop take as long as 5 MiB of lines in plain Python, 2 s.
_LONG_TEXT = 2 << 20
_HARD_WIDTH = 32

_INTEGER = re.compile(rb"[+-]?\d+")
_FINITE = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_NONFINITE = re.compile(rb"[+-]?(nan|inf|infinity)", re.IGNORECASE)


class LineError(ValueError):
    """A line that says no nonzero.

    Attributes
    ----------
    line : int
        How many lines of the same text come before it.
    """

    def __init__(self, what: str, advice: str, line: int = 0) -> None:
        super().__init__(f"{what}\n{advice}")
        self.line = line


class Lines(NamedTuple):
    """What a text says.

    Attributes
    ----------
    indices : (order, nonzeros) int64
        As written, whether they count from 0 or from 1.
    values : (nonzeros,) float64
    skipped : (blank and comment lines,) int64
        How many nonzeros come before each of them.
    """

    indices: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]
    skipped: npt.NDArray[np.int64]


def split_line(line: bytes) -> list[bytes]:
    r"""The fields of a line, without its comment.

    Examples
    --------
    >>> split_line(b"2 3\t-1.5  # said twice\r\n")
    [b'2', b'3', b'-1.5']
    """
    return line.partition(b"#")[0].split()


def parse_index(field: bytes) -> int:
    """An index or a dimension.

    Raises
    ------
    LineError
        If it is not an integer, negative, or above `MOST_INDEX`.

    Examples
    --------
    >>> parse_index(b"007")
    7
    """
    if not _INTEGER.fullmatch(field):
        raise LineError(f"{_shown(field)} is not an integer", "an index is written in decimal digits")
    digits = field.lstrip(b"+-").lstrip(b"0") or b"0"
    if field.startswith(b"-") and digits != b"0":
        raise LineError(f"the index {_shown(field)} is negative", "indices count from 0 or from 1")
    if len(digits) > len(str(MOST_INDEX)) or int(digits) > MOST_INDEX:
        raise LineError(f"the index {_shown(field)} is too large", "indices go up to 2**63 - 1")
    return int(digits)


def parse_line(line: bytes, order: int) -> tuple[list[int], float] | None:
    """The indices and the value of a line; None if it is blank or a comment.

    A value is what `float` makes of it; decimal digits, ``nan``, ``inf`` and ``infinity`` are values.

    Raises
    ------
    LineError
        If it says anything else.

    Examples
    --------
    >>> parse_line(b"1 2 0.25", 2)
    ([1, 2], 0.25)
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
    """Refuse orders that sparse tensors do not have.

    Raises
    ------
    LineError

    Examples
    --------
    >>> check_order(3)
    """
    if not LEAST_ORDER <= order <= MOST_ORDER:
        raise LineError(f"the order is {order}", f"a sparse tensor has {LEAST_ORDER} to {MOST_ORDER} modes")


def parse_lines(text: bytes, order: int) -> Lines:
    r"""What all lines of a text say; each ends with a newline.

    Raises
    ------
    LineError
        For the first line that `parse_line` refuses.

    Examples
    --------
    >>> parse_lines(b"1 2 0.5\n# the rest\n4 1 -2\n", 2)
    Lines(indices=array([[1, 4],
           [2, 1]]), values=array([ 0.5, -2. ]), skipped=array([1]))
    """
    return _parse_plain(text, order) if len(text) < _LONG_TEXT else _parse_compiled(text, order)


def _shown(field: bytes) -> str:
    return ascii((field if len(field) <= 40 else field[:37] + b"...").decode("latin-1"))


# ---- plain Python --------------------------------------------------------------------------------


def _parse_plain(text: bytes, order: int) -> Lines:
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


# ---- compiled ------------------------------------------------------------------------------------


def _parse_compiled(text: bytes, order: int) -> Lines:
    """Let the loop run to the line that it leaves to `parse_line`, then on from the next one."""
    scan, data, lines = _compiled(), np.frombuffer(text, np.uint8), text.count(b"\n")
    most = min(
        lines, len(text) // (2 * order + 2) + 1
    )  # a field has a byte and a separator; one may be wrong
    found = Lines(np.empty((order, most), np.int64), np.empty(most), np.empty(lines, np.int64))
    hard, hard_rows = np.zeros((most, _HARD_WIDTH), np.uint8), np.empty(most, np.int64)
    at = rows = gaps = hards = 0
    while at < len(text):
        at, rows, gaps, hards = scan(data, at, rows, gaps, hards, *found, hard, hard_rows)
        if at == len(text):
            break
        end = text.index(b"\n", at)
        try:
            parsed = parse_line(text[at:end], order)
        except LineError as error:
            error.line = rows + gaps
            raise
        if parsed is None:
            found.skipped[gaps], gaps = rows, gaps + 1
        else:
            found.indices[:, rows], found.values[rows], rows = *parsed, rows + 1
        at = end + 1
    found.values[hard_rows[:hards]] = hard[:hards].view(f"S{_HARD_WIDTH}").ravel().astype(np.float64)
    return Lines(found.indices[:, :rows], found.values[:rows], found.skipped[:gaps])


@cache
def _compiled() -> Callable[..., tuple[int, int, int, int]]:
    import numba
    from numba.extending import register_jitable

    for part in (_past_blanks, _past_line, _digits, _number):
        register_jitable(part)
    return numba.njit(cache=False)(_scan)


_TAB, _NEWLINE, _RETURN, _SPACE, _HASH, _POINT, _0, _9 = 9, 10, 13, 32, 35, 46, 48, 57
_PLUS, _MINUS, _CAPITAL_E, _SMALL_E = 43, 45, 69, 101
_EXACT = 1 << 53
_POWERS = np.array([float(10**power) for power in range(23)])
"""A double holds the integers up to the first, and these powers of ten."""


def _past_blanks(text: Any, p: int) -> int:
    while text[p] == _SPACE or (_TAB <= text[p] <= _RETURN and text[p] != _NEWLINE):
        p += 1
    return p


def _past_line(text: Any, p: int) -> int:
    while text[p] != _NEWLINE:
        p += 1
    return p + 1


def _digits(text: Any, p: int, number: int) -> Any:
    """Where the digits end, and the number that they continue; it stops growing once beyond `_EXACT`."""
    while _0 <= text[p] <= _9:
        if number <= _EXACT:
            number = 10 * number + (text[p] - _0)
        p += 1
    return p, number


def _number(text: Any, p: int) -> Any:
    """A number without its sign, as mantissa and power of ten, and where it ends: -1 if it is none."""
    begin = p
    p, mantissa = _digits(text, p, 0)
    digits, fraction = p - begin, 0
    if text[p] == _POINT:
        begin = p + 1
        p, mantissa = _digits(text, begin, mantissa)
        fraction = p - begin
    power = 0
    if text[p] == _CAPITAL_E or text[p] == _SMALL_E:
        negative = text[p + 1] == _MINUS
        begin = p + 2 if negative or text[p + 1] == _PLUS else p + 1
        p, power = _digits(text, begin, 0)
        if p == begin:
            return -1, mantissa, power
        power = -power if negative else power
    return p if digits + fraction > 0 else -1, mantissa, power - fraction


def _scan(
    text: Any,
    at: int,
    row: int,
    gaps: int,
    hards: int,
    indices: Any,
    values: Any,
    skipped: Any,
    hard: Any,
    hard_rows: Any,
) -> Any:
    """Take lines from ``at`` on; returns where the first one begins that it cannot take.

    An integer up to 2**53 times or over an exact power of ten has one rounding, the right one (Clinger,
    PLDI'90). Other values are copied to ``hard``, as written.
    """
    while at < text.size:
        p = _past_blanks(text, at)
        if text[p] == _NEWLINE or text[p] == _HASH:
            skipped[gaps] = row
            gaps, at = gaps + 1, _past_line(text, p)
            continue
        for mode in range(indices.shape[0]):
            begin = p
            end, index = _digits(text, begin, 0)
            p = _past_blanks(text, end)
            if end == begin or p == end or index > _EXACT:
                return at, row, gaps, hards
            indices[mode, row] = index
        begin = p
        negative = text[p] == _MINUS
        end, mantissa, power = _number(text, p + 1 if negative or text[p] == _PLUS else p)
        if end < 0 or end - begin > hard.shape[1]:
            return at, row, gaps, hards
        p = _past_blanks(text, end)
        if text[p] != _NEWLINE and text[p] != _HASH:
            return at, row, gaps, hards
        if mantissa <= _EXACT and -_POWERS.size < power < _POWERS.size:
            value = mantissa / _POWERS[-power] if power < 0 else mantissa * _POWERS[power]
            values[row] = -value if negative else value
        else:
            for k in range(end - begin):
                hard[hards, k] = text[begin + k]
            hard_rows[hards] = row
            hards += 1
        row, at = row + 1, _past_line(text, p)
    return at, row, gaps, hards
