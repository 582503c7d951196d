"""The table of source lines of ``simwarp run --observe``."""

from pathlib import Path

import numpy as np
import pytest

from simwarp.cli import main
from simwarp.cli.run_lines import line_shares

# Line 4 reads one sector per lane, line 5 writes a sector for eight lanes.
SOURCE = """__global__ void f(const float* x, float* y) {
    __shared__ float t[32];
    int i = threadIdx.x;
    t[i] = x[8 * i]; __syncthreads();
    y[i] = t[31 - i] * 2;
}
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("f.cu").write_text(SOURCE)
    np.save("x.npy", np.ones(256, np.float32))


def run(*options):
    arguments = ["--arg", "x.npy", "--arg", "y=out:float32:32"]
    return main(["run", "f.cu", "--grid", "1", "--block", "32", *arguments, *options])


def rows(printed):
    """The rows of the first table, by line."""
    table = printed[: printed.index("\n\n")].splitlines()
    return table[0].split(), {row.split()[0]: row for row in table[1:]}


def test_lines_stand_beside_their_source_with_shares(capsys):
    assert run("--observe", "sectors,banks") == 0
    header, found = rows(capsys.readouterr().out)
    assert header == ["line", "source", "sectors", "%", "wavefronts", "%"]
    assert list(found) == ["f.cu:4", "f.cu:5", "total"]
    assert "t[i] = x[8 * i]; __syncthreads();" in found["f.cu:4"]
    assert found["f.cu:4"].split()[-4:] == ["32", "88.9", "1", "50.0"]
    assert found["f.cu:5"].split()[-4:] == ["4", "11.1", "1", "50.0"]
    assert found["total"].split() == ["total", "36", "2"]


def test_top_shows_the_dearest_lines_first(capsys):
    assert run("--observe", "sectors", "--top", "1") == 0
    _, found = rows(capsys.readouterr().out)
    assert list(found) == ["f.cu:4", "and", "total"]
    assert "and 1 more lines" in found["and"]
    assert run("--observe", "all", "--top", "1") == 0


def test_top_needs_counts_of_lines(capsys):
    assert run("--observe", "traffic", "--top", "3") == 2
    assert capsys.readouterr().err.splitlines() == [
        "--top 3 without counts of lines",
        "divergence, sectors, banks count by line",
        "give for example --observe sectors",
    ]


def test_without_counts_of_lines_there_is_no_table(capsys):
    assert run() == 0
    assert capsys.readouterr().out == ""
    assert run("--observe", "traffic") == 0
    assert capsys.readouterr().out.startswith("Traffic")


def test_shares_add_up_and_a_total_of_0_has_none():
    lines = {"b.cu:2": {"sectors": 3}, "a.cu:10": {"sectors": 1}, "a.cu:9": {"sectors": 0}}
    report = {"sectors": {"lines": lines, "total": {"sectors": 4}}}
    found = line_shares(report, {"b.cu": "first\n  second"})
    assert [row.line for row in found] == ["a.cu:9", "a.cu:10", "b.cu:2"]
    assert [row.source for row in found] == ["", "", "second"]
    assert sum(row.shares["sectors"] for row in found) == 1
    assert [row.line for row in line_shares(report, {}, top=2)] == ["b.cu:2", "a.cu:10"]
    nothing = {"sectors": {"lines": {"a.cu:9": {"sectors": 0}}, "total": {"sectors": 0}}}
    assert line_shares(nothing, {})[0].shares == {"sectors": 0.0}
