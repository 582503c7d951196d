"""The pages of the papers: each item has its function, its test and its evidence, and all of these exist.

A page is ``docs/papers/NAME.md``. Its tables with the columns of `COLUMNS` list the items of the paper, and a
line says how many are whole, partial and absent, the last two with a reason. In backticks stand names of
functions or files of the tree, tests as ``path::test``, and files, folders or commands as evidence. Printed
numbers are functions of ``docs/page_papers.py``, which the page asks for by ``<!-- printed NAME ITEM -->``.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from simwarp.cli.commands import PANELS
from simwarp.verify import CASES
from support.pages import page_module
from support.sources import ROOT

PAGES = sorted((ROOT / "docs" / "papers").glob("*.md"))
COLUMNS = ["paper", "what", "function", "test", "evidence", "state"]
"""Those of the table of a page: what the paper has, and where it is."""
SHORTEST_REASON = 30
CODE = re.compile(r"`([^`]+)`")
COUNTS = re.compile(r"(\d+) items: (\d+) whole, (\d+) partial, (\d+) absent")
COMMANDS = {name for commands in PANELS.values() for name in commands}


def tables(page: str) -> Iterator[list[list[str]]]:
    """The tables of a page, line by line, the line below the header left out."""
    for block in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        lines = [re.split(r"(?<!\\)\|", line.strip())[1:-1] for line in block.splitlines()]
        yield [[cell.strip() for cell in line] for line in lines[:1] + lines[2:]]


def items(page: str) -> list[dict[str, str]]:
    """The rows of a page's tables of items, by column."""
    found = [table[1:] for table in tables(page) if table[0] == COLUMNS]
    return [dict(zip(COLUMNS, row, strict=True)) for table in found for row in table]


def problems(page: str) -> list[str]:
    """What a page names that does not exist, and items that lack something."""
    found = items(page)
    said = COUNTS.search(page)
    states = [item["state"].partition(":")[0] for item in found]
    counts = [len(found), *(states.count(state) for state in ("whole", "partial", "absent"))]
    wrong = [] if said and [*map(int, said.groups())] == counts else [f"the page does not say {counts}"]
    return [*wrong, *(problem for item in found for problem in problems_of(item))]


def problems_of(item: dict[str, str]) -> Iterator[str]:
    """What one item names that does not exist, and what it lacks."""
    name = f"{item['paper']}, {item['what']}"
    state, _, reason = item["state"].partition(":")
    if state != "whole" and (state not in ("partial", "absent") or len(reason) < SHORTEST_REASON):
        yield f"{name}: its state is {item['state']!r}"
    for column, exists in (("function", is_function), ("test", is_test), ("evidence", is_evidence)):
        named = CODE.findall(item[column])
        if not named and state == "whole":
            yield f"{name}: no {column}"
        yield from (f"{name}: there is no {column} {each}" for each in named if not exists(each))


def is_function(name: str) -> bool:
    """Whether a file of the tree, or an object of a module of ours, has the name."""
    if "/" in name:
        return (ROOT / name).is_file()
    path = name.partition("(")[0].split(".")
    for count in range(len(path), 0, -1):
        try:
            found = import_module(".".join(path[:count]))
        except ImportError:
            continue
        for attribute in path[count:]:
            found = getattr(found, attribute, None)
        return found is not None
    return False


def is_test(name: str) -> bool:
    """Whether a file of tests has a test of the name: ``path::test``."""
    path, _, test = name.partition("::")
    return test in names_in(ROOT / path)


@cache
def names_in(path: Path) -> frozenset[str]:
    """The tests of a file."""
    if not path.is_file():
        return frozenset()
    return frozenset(
        node.name
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


def is_evidence(text: str) -> bool:
    """Whether a file or a folder of the tree is named, or a command that there is."""
    words = shlex.split(text)
    if words[0] == "simwarp":
        cases = [words[at + 1] for at, word in enumerate(words[:-1]) if word == "--case"]
        return words[1] in COMMANDS and set(cases) <= CASES.keys()
    return (ROOT / (words[1] if words[0] == "python" else text)).exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_names_only_what_exists(page: Path) -> None:
    text = page.read_text()
    assert len(items(text)) >= 10
    assert problems(text) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_its_printed_numbers_and_its_commands(page: Path) -> None:
    papers, text = page_module("page_papers"), page.read_text()
    asked = papers.PRINTED_MARKER.findall(text)
    assert sorted(asked) == sorted(key for key in papers.PRINTED if key[0] == page.stem)
    rendered = papers.filled(text)
    assert papers.PRINTED_MARKER.search(rendered) is None
    assert all(len({len(line) for line in table}) == 1 for table in tables(rendered))
    assert re.search(r"^\$ simwarp ", text, re.MULTILINE)


def test_there_is_a_page() -> None:
    assert PAGES


def cells_of(name: str, row: str, paper: str = "mm-csf") -> list[str]:
    """The cells of one row of a printed table, by its first cell."""
    (table,) = tables(page_module("page_papers").PRINTED[paper, name]() + "\n")
    (found,) = [line for line in table if line[0] == row]
    return found[1:]


def test_the_numbers_of_mm_csf_follow_from_the_committed_results() -> None:
    folder = ROOT / "benchmarks" / "results"
    rows = {row["case"]: row for row in json.loads((folder / "h200" / "mttkrp.json").read_text())["rows"]}
    mixed, balanced, coo = (rows[f"mttkrp-{name}/nell2/r32-f32"] for name in ("mm-csf", "b-csf", "coo"))
    info = json.loads((folder / "tensors" / "nell2.json").read_text())
    seconds = mixed["ours"] / 1e3
    assert cells_of("table 7", "nell2")[2] == f"{37 / 29:.2f}, {balanced['ours'] / mixed['ours']:.2f}"
    assert cells_of("table 7", "nell2")[4] == f"{71 / 29:.2f}, {coo['ours'] / mixed['ours']:.2f}"
    reached = 9 * info["nonzeros"] * 32 / seconds
    assert cells_of("figure 8", "nell2")[1] == f"{reached / 1e9:,.0f}"
    assert cells_of("figure 8", "nell2")[3] == f"{100 * mixed['floor'] / mixed['ours']:.0f} %"
    by_mode = zip(balanced["params"]["modes_ms"], mixed["params"]["modes_ms"], strict=True)
    assert cells_of("figure 7", "nell2")[:3] == [f"{theirs / ours:.2f}" for theirs, ours in by_mode]
    held = next(row for row in info["storage"] if row["format"] == "mm-csf")["paper"]
    assert cells_of("table 8", "`mm-csf`")[0] == f"{303 * 2**20 / 77e6:.1f}, {held / info['nonzeros']:.1f}"


def test_the_numbers_of_bstc_follow_from_the_committed_results() -> None:
    def results(name: str) -> dict[str, dict[str, Any]]:
        rows = json.loads((ROOT / "benchmarks" / "results" / "h200" / name).read_text())["rows"]
        return {row["case"]: row for row in rows}

    products, convolutions, nets = map(results, ("bmm.json", "bconv.json", "networks.json"))
    bmm64 = cells_of("figures 9 to 12", "BMM64B", "bstc")
    assert bmm64 == [f"{products[f'bstc/bmm64b/{n}']['ours']:.0f}" for n in (1024, 2048, 4096, 8192)]
    narrow, wide = (convolutions[f"bconv/bconv{word}-bits/256"]["ours"] for word in (32, 64))
    assert cells_of("figures 13 to 20", "256", "bstc")[2] == f"{narrow / wide:.2f}"
    whole = nets["net/resnet18/8"]["peers"]['way="whole"']
    assert cells_of("tables 4 to 9", "resnet18", "bstc") == [
        "3.165",
        "1.906",
        f"{nets['net/resnet18/8']['ours']:.3f}",
        f"{whole:.3f}",
        "2,880",
        f"{nets['net/resnet18/512']['ours']:,.0f}",
    ]
    assert cells_of("section 5.1", "column-by-column", "bstc")[:3] == ["56K", "64", "0"]


ROW = (
    "1 items: 1 whole, 0 partial, 0 absent\n\n"
    "| paper | what | function | test | evidence | state |\n|---|---|---|---|---|---|\n"
    "| table 3 | work | `reference.sparse.mttkrp_work(by=1)`, `gpu/mttkrp/fibers.cu` "
    "| `tests/meta/test_papers.py::test_there_is_a_page` | `simwarp verify --case mttkrp`, `docs` | whole |\n"
)


def test_an_item_that_exists_has_no_problem() -> None:
    assert problems(ROW) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("mttkrp_work", "mttkrp_play", "there is no function reference.sparse.mttkrp_play"),
        ("reference.sparse", "no.such", "there is no function no.such.mttkrp_work"),
        ("fibers.cu", "fibres.cu", "there is no function gpu/mttkrp/fibres.cu"),
        ("::test_there", "::test_their", "there is no test tests/meta/test_papers.py::test_their_is_a_page"),
        ("test_papers.py", "test_pages.py", "there is no test tests/meta/test_pages.py"),
        ("--case mttkrp", "--case mttkrap", "there is no evidence simwarp verify --case mttkrap"),
        ("`docs`", "`dogs`", "there is no evidence dogs"),
        ("| whole |", "| absent |", "its state is 'absent'"),
        ("| whole |", "| partial: later |", "its state is 'partial: later'"),
        ("| whole |", "| absent: later |", "its state is 'absent: later'"),
        ("1 whole", "2 whole", "the page does not say [1, 1, 0, 0]"),
        ("`simwarp verify --case mttkrp`, `docs`", "read", "no evidence"),
    ],
)
def test_what_does_not_exist_is_reported(old: str, new: str, problem: str) -> None:
    assert old in ROW
    assert any(problem in found for found in problems(ROW.replace(old, new)))
