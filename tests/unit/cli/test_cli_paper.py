"""The command ``simwarp paper``: its lists, tables, files and errors."""

import json

import pytest

from reference.errors import SchemeError
from simwarp.cli import commands
from simwarp.lab.papers import NAMES, paper
from simwarp.lab.papers.entries import Item, Made, Paper


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def papers(*arguments):
    return commands.run(["paper", *arguments])


def test_without_options_every_entry_is_listed_with_its_device(capsys):
    assert papers() == 0
    shown = capsys.readouterr().out
    for name in NAMES:
        each = paper(name)
        assert f"{name}: {each.title}" in shown
        part = shown.partition(f"{name}: {each.title}")[2].partition("\n\n")[0].splitlines()[2:]
        listed = [line.split("  ") for line in part]
        assert [words[0] for words in listed] == [item.name for item in each.items]
        devices = [next(word.strip() for word in words[1:] if word.strip()) for words in listed]
        assert devices == [", ".join(item.makers) or "–" for item in each.items]
    assert "nell2, darpa, fr_s" in shown
    assert papers("btc", "--json") == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert [entry["devices"] for entry in listed["entries"]] == [
        [*item.makers] for item in paper("btc").items
    ]


def test_an_entry_is_shown_beside_print_with_its_reason(capsys, tmp_path):
    assert papers("bstc", "--section", "5.1", "--out", str(tmp_path)) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("bstc, section 5.1: ")
    assert shown[1].startswith("what the simulator makes of it: ")
    row = next(line.split() for line in shown if line.startswith("column-by-column"))
    assert row[1:3] == ["56", "64"]
    assert row[-3:] == ["2.8", "2", "0.71"]
    reason = paper("bstc").item("section", "5.1").reasons["to row by row"]
    assert f"to row by row: more than 20 % from print; {reason}" in shown
    kept = json.loads((tmp_path / "bstc" / "section-5.1.json").read_text())
    assert kept["meta"].keys() >= {"commit", "versions", "date", "seconds", "core_seconds", "data"}


def test_json_has_the_whole_entry(capsys):
    assert papers("blasx", "--table", "IV", "--json") == 0
    printed = capsys.readouterr()
    facts = json.loads(printed.out)
    assert (facts["paper"], facts["item"], facts["device"]) == ("blasx", "table IV", "sim")
    assert [row["ratio"]["GB/s"] for row in facts["rows"]] == [pytest.approx(1, abs=0.01)] * 2
    assert printed.err == ""


def test_a_plot_has_its_numbers_beside_it(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "figure.svg"
    assert papers("blasx", "--table", "4", "--svg", str(picture)) == 0
    assert "<svg" in picture.read_text()
    assert json.loads((tmp_path / "figure.json").read_text())["item"] == "table IV"
    assert f"wrote {picture}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bstcc", "--all"), "the paper 'bstcc' is unknown"),
        (("--table", "5"), "--table with 5 papers"),
        (("bstc", "--table", "5", "--all"), "--table with --all"),
        (("bstc", "--figure", "99"), "bstc has no figure 99"),
        (("bstc", "--figure", "1"), "no device makes it: a drawing"),
        (("btc", "--figure", "25"), "sim does not make it, cuda does"),
        (("bstc", "--all", "--svg", "x.svg"), "a file has one plot"),
        (("bstc", "--table", "3", "--data", "no-such-folder"), "no-such-folder is not a folder"),
    ],
)
def test_wrong_options_are_refused(capsys, arguments, message):
    assert papers(*arguments) == 2
    assert message in capsys.readouterr().err


def test_ctrl_c_ends_a_run_that_goes_on_from_there(capsys, monkeypatch, tmp_path):
    made = []

    def first(given):
        made.append(1)
        return Made([{"n": 1}], "one")

    def second(given):
        made.append(2)
        if made.count(2) == 1:
            raise KeyboardInterrupt
        return Made([{"n": 2}], "two")

    toy = Paper(
        "toy",
        "a toy",
        [Item("figure", ("1",), "x", {"sim": first}), Item("figure", ("2",), "y", {"sim": second})],
    )
    monkeypatch.setattr("simwarp.lab.papers.paper", lambda name: toy)
    monkeypatch.setattr("simwarp.testing.golden.commit", lambda: "c0ffee")
    assert papers("toy", "--all", "--out", str(tmp_path)) == 130
    printed = capsys.readouterr()
    assert printed.err == "stopped\n"
    assert "toy, figure 1: x" in printed.out
    assert papers("toy", "--all", "--out", str(tmp_path)) == 0
    assert made == [1, 2, 2]
    assert sorted(path.name for path in (tmp_path / "toy").iterdir()) == ["figure-1.json", "figure-2.json"]


def test_an_error_of_an_entry_ends_the_run(monkeypatch, capsys):
    def wrong(given):
        raise SchemeError("a scheme\nis wrong\nchoose another")

    toy = Paper("toy", "a toy", [Item("figure", ("1",), "x", {"sim": wrong})])
    monkeypatch.setattr("simwarp.lab.papers.paper", lambda name: toy)
    assert papers("toy", "--figure", "1") == 2
    assert capsys.readouterr().err == "a scheme\nis wrong\nchoose another\n"
