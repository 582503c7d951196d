"""The applications of section V.C of the BLASX paper, routed through `patched`."""

from __future__ import annotations

import numpy as np
import pytest

from simwarp.cli import main
from simwarp.lab.blas import applications
from simwarp.lab.blas.applications import APPLICATIONS, Product


@pytest.mark.parametrize("one", APPLICATIONS, ids=lambda one: f"{one.name}-{one.dtype}")
def test_an_application_has_the_products_that_it_says(one):
    found = list[Product]()

    def noted(a, b):
        found.append(Product(a.shape[0], b.shape[1], a.shape[1]))
        return np.matmul(a, b)

    one.compute(64, np.dtype(one.dtype).type, noted)
    assert sorted(found) == sorted(one.products(64))


def test_routed_applications_give_numpys_answers():
    rows = {(row["application"], row["dtype"]): row for row in applications.routed(64, above=16, tile=24)}
    assert len(rows) == 6
    for row in rows.values():
        assert row["error"] < (1e-4 if row["dtype"] == "float32" else 1e-12)
        assert row["routed"] + row["passed"] == row["calls"]
        assert 0 < row["time"] <= 1
    assert rows["A*B", "float64"]["routed"] == 1
    assert rows["lsqlin", "float64"]["passed"] == 10 + 1  # vectors
    assert rows["lsqlin", "float64"]["operations"] == pytest.approx(64 / (64 + 11))
    assert rows["network", "float32"]["routed"] == 3  # of eight: those between the wide layers


def test_least_squares_falls_and_factors_fit():
    rng = np.random.default_rng(3)
    c, d = rng.standard_normal((64, 64)), rng.standard_normal((64, 1))
    x = applications._least_squares(64, np.float64, np.matmul)
    assert np.linalg.norm(c @ x - d) < np.linalg.norm(d)
    a = np.random.default_rng(2).random((64, 64))
    assert np.linalg.norm(a - applications._factorize(64, np.float64, np.matmul)) < 0.6 * np.linalg.norm(a)


def test_a_product_is_faster_by_at_most_the_ratio_of_the_rates():
    (row,) = applications.predicted([one._replace(size=2048) for one in APPLICATIONS[2:3]], tile=512)
    assert row["cpu_seconds"] == pytest.approx(2 * 2048**3 / 556.8e9)
    assert 1 < row["speedup"] < 3 * 1.43e12 / 556.8e9
    assert (row["products"], row["printed"]) == (1, "8.27")


@pytest.mark.slow
def test_the_command_shows_the_routed_share(capsys):
    assert main(["blas", "applications", "--size", "32", "--above", "8"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown[1:]] == ["network", "A*B", "A*B", "nnmf", "nnmf", "lsqlin"]
