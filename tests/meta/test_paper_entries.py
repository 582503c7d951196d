"""Entries of ``simwarp paper``, the pages of the papers, and committed rows fit one another."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simwarp.lab.papers import NAMES, paper
from simwarp.lab.papers.compare import beside, differences
from support.pages import page_module
from support.sources import ROOT

COMMITTED = ROOT / "benchmarks" / "results" / "sim" / "papers"
"""What ``simwarp paper … --all --out`` wrote."""
_NUMBER = r"(?:\d+|[IVX]+)\b"
NAMED = re.compile(
    rf"\b(fig|table)(?:s?\.|ures?|s)?\s+({_NUMBER}(?:(?:,|–| to| and|, and)\s*{_NUMBER})*)", re.IGNORECASE
)
"""Figures or tables of a page, with one number or several."""
_ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII")


def named(text: str) -> Iterator[tuple[str, str]]:
    """The figures and tables that a text names, each with its kind.

    A range names its ends and all between.
    """
    for kind, numbers in NAMED.findall(text):
        for first, last in re.findall(rf"({_NUMBER})(?:(?:–| to)\s*({_NUMBER}))?", numbers):
            for number in _between(first, last) if last else [first]:
                yield "figure" if kind.lower() == "fig" else "table", number


def _between(first: str, last: str) -> list[str]:
    if first in _ROMAN:
        return list(_ROMAN[_ROMAN.index(first) : _ROMAN.index(last) + 1])
    return [str(number) for number in range(int(first), int(last) + 1)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("| figs. 9–12 | x |", ["figure 9", "figure 10", "figure 11", "figure 12"]),
        ("§3, fig. 1; table 7, fig. 9", ["figure 1", "table 7", "figure 9"]),
        ("figs. 3, 5, listing 9", ["figure 3", "figure 5"]),
        ("### Figures 9 to 11: x", ["figure 9", "figure 10", "figure 11"]),
        ("Tables 6 and 7, figure 9", ["table 6", "table 7", "figure 9"]),
        ("tables II, IV and table III", ["table II", "table IV", "table III"]),
        ("a table of 5 rows, the table lists 7", []),
    ],
)
def test_figures_and_tables_of_a_text_are_found(text: str, found: list[str]) -> None:
    assert [" ".join(each) for each in named(text)] == found


@pytest.mark.parametrize("name", NAMES)
def test_each_figure_and_table_of_a_page_is_an_entry(name: str) -> None:
    text = (ROOT / "docs" / "papers" / f"{name}.md").read_text()
    found = set(named(text))
    known = {(item.kind, number) for item in paper(name).items for number in item.numbers}
    assert len(found) > 10
    assert found - known == set()
    assert f"$ simwarp paper {name} --all" in text


@pytest.mark.parametrize("name", NAMES)
def test_committed_rows_are_those_of_the_entries_and_each_difference_has_a_reason(name: str) -> None:
    items = {item.slug: item for item in paper(name).made_on("sim")}
    assert {path.stem for path in (COMMITTED / name).glob("*.json")} == set(items)
    for slug, item in items.items():
        facts: dict[str, Any] = json.loads((COMMITTED / name / f"{slug}.json").read_text())
        assert facts["meta"]["commit"]
        assert not facts["meta"]["commit"].endswith("-dirty")
        ours = [
            {key: value for key, value in row.items() if key not in ("printed", "ratio")}
            for row in facts["rows"]
        ]
        rows = beside(item, ours)
        assert rows == facts["rows"], slug
        assert facts["reasons"] == {column: item.reasons[column] for column in differences(rows)}, slug
        assert [column for column in differences(rows) if not item.reasons.get(column)] == [], slug
        matched = {tuple(row[key] for key in item.keys) for row in rows} & item.printed.keys()
        assert bool(matched) == bool(item.printed), slug


@pytest.mark.parametrize("path", sorted(COMMITTED.rglob("*.json")), ids=lambda path: path.stem)
def test_committed_entries_are_small(path: Path) -> None:
    assert path.stat().st_size < 40_000


def test_a_page_shows_a_committed_entry_as_the_command_does() -> None:
    shown = page_module("page_papers").filled("<!-- made blasx table-IV -->")
    lines = shown.splitlines()
    assert lines[0] == "| route | GB/s, printed | GB/s, ours | ratio |"
    assert lines[2].startswith("| host and GPU | 6.54 | 6.54 | 1.00 |")
    with pytest.raises(FileNotFoundError):
        page_module("page_papers").filled("<!-- made blasx table-9 -->")
