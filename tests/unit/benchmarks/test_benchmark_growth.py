"""``benchmarks/growth.py``: its rows, at their smallest, and the exponent that they show."""

from types import SimpleNamespace

import pytest

from benchmark_scripts import scripts

(growth,) = scripts("growth")
QUICK = {
    "launch-among-arrays": 3,
    "launch-beside-bytes": 100,
    "allocate-and-free": 3,
    "variables": 3,
    "trainer": 2,
    "explain": 1024,
    "unordered-reads": 3,
    "first-mttkrp": 100,
}
"""Those that neither compile a kernel with libcu++ nor a function with Numba."""


@pytest.mark.parametrize("name", QUICK)
def test_a_row_does_its_work(name):
    growth.CASES[name].prepare(QUICK[name])()


def test_the_exponent_is_that_of_the_last_two_sizes():
    row = growth.row_of("explain", {10: (9.0, 1.0), 100: (0.5, 2.04), 1000: (50.0, 30.0)})
    assert (row.case, row.unit, row.ours, row.target) == ("growth/explain", "exponent", 2.0, 3.0)
    assert row.params["megabytes"] == [1.0, 2.0, 30.0]


def test_a_size_that_fails_is_named(monkeypatch):
    failed = SimpleNamespace(returncode=1, stdout="", stderr="ShapeError: no\n")
    monkeypatch.setattr(growth.subprocess, "run", lambda command, **options: failed)
    with pytest.raises(
        SystemExit, match=r"growth/explain failed at -5:\nShapeError: no\nrun .*--serve explain -5"
    ):
        growth.measure("explain", -5)
