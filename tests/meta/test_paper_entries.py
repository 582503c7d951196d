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
from simwarp.lab.papers.entries import Device, Item
from simwarp.lab.papers.script import Script
from support.pages import page_module
from support.sources import ROOT

RESULTS = ROOT / "benchmarks" / "results"
COMMITTED: dict[Device, Path] = {"sim": RESULTS / "sim" / "papers", "cuda": RESULTS / "h200" / "papers"}
"""What ``simwarp paper … --all --out`` wrote, by device."""
FILES = sorted(path for folder in COMMITTED.values() for path in folder.rglob("*.json"))
_SCRIPT = "a script makes it, whose own result is committed"
NOT_COMMITTED: dict[tuple[str, str, Device], str] = {
    ("blasx", "figure-10", "cuda"): "time: seven tiles by two policies had not ended when the lease did",
    ("mm-csf", "figure-6", "cuda"): "time: h200/mttkrp-directions.json has its numbers, from the script",
    ("mm-csf", "figure-8", "cuda"): _SCRIPT,
    ("mm-csf", "figure-11", "cuda"): _SCRIPT,
    ("ooc-cudnn", "figure-12", "cuda"): _SCRIPT,
    ("ooc-cudnn", "figure-14", "cuda"): _SCRIPT,
}
"""Entries that a device makes and that have no file, and why."""
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


def unexplained(item: Item, rows: list[dict[str, Any]], device: Device) -> list[str]:
    """The columns that differ from print without a reason."""
    return [column for column in differences(rows) if not item.reason(column, device)]


@pytest.mark.parametrize("device", COMMITTED)
@pytest.mark.parametrize("name", NAMES)
def test_committed_rows_are_those_of_the_entries_and_each_difference_has_a_reason(
    name: str, device: Device
) -> None:
    missing = {slug for paper_name, slug, on in NOT_COMMITTED if (paper_name, on) == (name, device)}
    items = {item.slug: item for item in paper(name).made_on(device)}
    assert missing <= set(items)
    assert {path.stem for path in (COMMITTED[device] / name).glob("*.json")} == set(items) - missing
    for slug in set(items) - missing:
        item = items[slug]
        facts: dict[str, Any] = json.loads((COMMITTED[device] / name / f"{slug}.json").read_text())
        assert (facts["paper"], facts["item"], facts["device"]) == (name, item.name, device)
        assert ("gpu" in facts["meta"]) == (device == "cuda"), slug
        assert facts["meta"]["commit"]
        assert not facts["meta"]["commit"].endswith("-dirty")
        ours = [
            {key: value for key, value in row.items() if key not in ("printed", "ratio")}
            for row in facts["rows"]
        ]
        rows = beside(item, ours)
        assert rows == facts["rows"], slug
        assert facts["reasons"] == {column: item.reason(column, device) for column in differences(rows)}, slug
        assert unexplained(item, rows, device) == [], slug
        matched = {tuple(row[key] for key in item.keys) for row in rows} & item.printed.keys()
        assert bool(matched) == bool(item.printed), slug


def test_a_column_that_differs_without_a_reason_is_found() -> None:
    item = Item("table", ("1",), "x", {}, ("n",), {(1,): {"ms": 1.0}}, reasons_on_gpu={"ms": "the chip"})
    rows = beside(item, [{"n": 1, "ms": 1.5}])
    assert [unexplained(item, rows, device) for device in COMMITTED] == [["ms"], []]


def test_entries_without_a_file_are_those_of_scripts_and_those_that_time_stopped() -> None:
    makers = {
        (name, item.slug, device): (item, item.makers[device])
        for name in NAMES
        for device in COMMITTED
        for item in paper(name).made_on(device)
    }
    scripts = {key: each for key, each in makers.items() if isinstance(each[1], Script)}
    assert set(scripts) == {key for key, why in NOT_COMMITTED.items() if why == _SCRIPT}
    assert all(why.startswith("time: ") for key, why in NOT_COMMITTED.items() if key not in scripts)
    for key, (item, script) in scripts.items():
        assert isinstance(script, Script)
        rows = beside(item, script.committed())
        assert rows, key
        assert unexplained(item, rows, "cuda") == [], key


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_committed_entries_are_small(path: Path) -> None:
    assert path.stat().st_size < 40_000


def test_a_page_shows_a_committed_entry_as_the_command_does() -> None:
    shown = page_module("page_papers").filled("<!-- made blasx table-IV -->")
    lines = shown.splitlines()
    assert lines[0] == "| route | GB/s, printed | GB/s, ours | ratio |"
    assert lines[2].startswith("| host and GPU | 6.54 | 6.54 | 1.00 |")
    with pytest.raises(FileNotFoundError):
        page_module("page_papers").filled("<!-- made blasx table-9 -->")


def test_a_page_shows_what_a_gpu_made_curves_and_single_numbers() -> None:
    filled = page_module("page_papers").filled
    table = filled("<!-- made btc figure-10-11-12-13 cuda: cycles over products -->").splitlines()
    assert table[0].startswith("| instruction | accumulators | products = 1 | products = 2 |")
    assert table[2].startswith(
        "| wmma.mma.and.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 | same | 44 |"
    )
    assert len(table) == 8
    assert table[-1].startswith("one warp alone; NVIDIA H200, 2026-11-30, commit 3f6f84f")
    one = "bstc table-5 cuda: ms of mlp; SBNN-64"
    assert filled(f"<!-- cell {one} -->, <!-- cell {one} over mlp; SBNN-32 -->") == "0.137, 2.35"
    for missing in ("made btc figure-25 cuda: us over images", "cell bstc table-5 cuda: ms of mlp; BTC"):
        with pytest.raises(LookupError, match="and a page shows"):
            filled(f"<!-- {missing} -->")
