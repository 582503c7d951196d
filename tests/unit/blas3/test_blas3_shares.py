"""The share of GEMM by routine and N: table I of the BLASX paper."""

from __future__ import annotations

import json

import pytest

from gpu.blas3 import explain
from simwarp.cli import main
from simwarp.lab.blas.gemm_shares import gemm_shares


@pytest.mark.parametrize("z", [1, 2, 7])
@pytest.mark.parametrize("tile", [3, 16])
def test_shares_are_the_closed_forms(z, tile):
    n = z * tile
    expected = {
        "dgemm": 1.0,
        "dsymm": 1 - tile / n,
        "dtrmm": 1 - tile / n,
        "dtrsm": 1 - tile / n,
        "dsyrk": 1 - (tile + 1) / (n + 1),
        "dsyr2k": 1 - (tile + 1) / (n + 1),
    }
    found = {row["routine"]: row["share"] for row in gemm_shares(expected, [n], tile)}
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.slow
def test_shares_of_the_paper_are_near_and_grow_with_n():
    rows = gemm_shares()
    assert [row["n"] for row in rows] == [5000, 10000, 20000] * 5
    for row in rows:
        assert 0 < row["share"] - row["printed"] < {5000: 0.12, 10000: 0.1, 20000: 0.06}[row["n"]]
    assert [row["tasks"] for row in gemm_shares(["dsyrk", "dtrsm"], [20000])] == [210, 20]


def test_the_command_shows_the_rows(capsys):
    assert main(["blas", "shares", "--sizes", "40,80", "--tile", "16", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == gemm_shares(sizes=[40, 80], tile=16)
    assert main(["blas", "shares", "--sizes", "5000"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["dsyrk", "5000", "15", "79.9%", "74.5%"]


def test_a_plan_says_its_share():
    assert str(explain("dtrsm", 8, tile=2)).splitlines()[-1] == "75.0 % of the operations are of GEMM"
    assert explain("dgemm", 8, alpha=0, beta=2.0, tile=4).gemm_share == 0
    assert explain("dgemm", 0).gemm_share == 0
