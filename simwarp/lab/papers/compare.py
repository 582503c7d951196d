"""Rows of an entry beside its printed numbers: both, their ratio, and why they differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from simwarp.lab.network_studies import Facts
from simwarp.lab.papers.entries import Item

LARGEST_DIFFERENCE = 0.2
"""Of a ratio of ours to the printed number from 1; a larger one needs a reason."""
_MARKS = {"printed": "printed", "ratio": "ratio"}


def beside(item: Item, rows: Iterable[Facts]) -> list[Facts]:
    """The rows, each with what is printed for it and the ratio of ours to that.

    >>> item = Item("table", ("1",), "times", keys=("n",), printed={(8,): {"ms": 2.0, "GHz": 1.5}})
    >>> beside(item, [{"n": 8, "ms": 3.0}, {"n": 9, "ms": 3.0}])
    [{'n': 8, 'ms': 3.0, 'printed': {'ms': 2.0, 'GHz': 1.5}, 'ratio': {'ms': 1.5}}, {'n': 9, 'ms': 3.0}]
    """
    found: list[Facts] = []
    for row in rows:
        printed = item.printed.get(tuple(row.get(key) for key in item.keys), {})
        both = {
            name: row[name] / value for name, value in printed.items() if row.get(name) is not None and value
        }
        more = {"printed": dict(printed), "ratio": both}
        found.append({**row, **{name: value for name, value in more.items() if value}})
    return found


def differences(rows: Sequence[Facts]) -> dict[str, tuple[float, float]]:
    """The columns with a ratio that is further from 1 than allowed, and the smallest and largest ratio."""
    ratios: dict[str, list[float]] = {}
    for row in rows:
        for name, ratio in row.get("ratio", {}).items():
            ratios.setdefault(name, []).append(ratio)
    ends = {name: (min(of), max(of)) for name, of in ratios.items()}
    return {
        name: end
        for name, end in ends.items()
        if end[0] < 1 - LARGEST_DIFFERENCE or end[1] > 1 + LARGEST_DIFFERENCE
    }


def columns(rows: Sequence[Facts]) -> list[tuple[str, str]]:
    """The columns of a table: (name, which) with which "ours", "printed" or "ratio"."""
    names = list(dict.fromkeys(name for row in rows for name in row if name not in _MARKS))
    printed = {name for row in rows for name in row.get("printed", {})}
    compared = {name for row in rows for name in row.get("ratio", {})}
    found = [(name, "printed") for name in sorted(printed - {*names})]
    for name in names:
        found += [(name, "printed")] * (name in printed)
        found.append((name, "ours"))
        found += [(name, "ratio")] * (name in compared)
    keys = [each for each in found if each[1] == "ours"]
    first = next((i for i, (name, _) in enumerate(keys) if _is_number(rows, name)), len(keys))
    labels = keys[:first]
    return [*labels, *(each for each in found if each not in labels)]


def _is_number(rows: Sequence[Facts], name: str) -> bool:
    return any(isinstance(row.get(name), int | float) and not isinstance(row.get(name), bool) for row in rows)


def heads(of: Sequence[tuple[str, str]]) -> list[str]:
    """The headers of columns: ours is named only beside a printed one.

    >>> heads([("n", "ours"), ("ms", "printed"), ("ms", "ours"), ("ms", "ratio")])
    ['n', 'ms, printed', 'ms, ours', 'ratio']
    """
    beside = {name for name, which in of if which == "printed"}
    shown: list[str] = []
    for name, which in of:
        words = name.replace("_", " ")
        shown.append(
            "ratio"
            if which == "ratio"
            else f"{words}, {which}"
            if which == "printed" or name in beside
            else words
        )
    return shown


def cell(row: Mapping[str, Any], name: str, which: str) -> str:
    """The text of a cell.

    >>> row = {"ms": 1234.5, "printed": {"ms": 1200}, "ratio": {"ms": 1.02875}, "scheme": "bmm32"}
    >>> [cell(row, "ms", which) for which in ("printed", "ours", "ratio")], cell(row, "scheme", "ours")
    (['1,200', '1,234', '1.03'], 'bmm32')
    """
    value = row.get(name) if which == "ours" else row.get(which, {}).get(name)
    if which == "ratio" and value is not None:
        return f"{value:.2f}"
    return text_of(value)


def text_of(value: Any) -> str:
    """A value as text: three digits of small numbers, whole large ones."""
    if value is None:
        return "–"
    if isinstance(value, list):
        return ", ".join(map(text_of, cast("list[Any]", value)))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 1000 else f"{value:.3g}"
