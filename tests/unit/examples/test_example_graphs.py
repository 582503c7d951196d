"""The graphs of examples/graphs.py: their answers on small graphs by hand, and a wrong product is told."""

from __future__ import annotations

import importlib.util
import runpy
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import gpu
import simwarp

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "graphs.py"
EDGES = [(0, 1), (1, 2), (2, 0), (2, 3), (4, 5)]
"""A triangle with a tail, and an edge apart."""


@pytest.fixture(scope="module")
def graphs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("example_graphs", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def edges() -> Any:
    matrix = np.zeros((6, 6), bool)
    for one, other in EDGES:
        matrix[one, other] = matrix[other, one] = True
    return matrix


def test_a_triangle_is_counted_once(graphs: ModuleType, edges: Any) -> None:
    assert graphs.triangles(edges, simwarp.Device()) == 1
    edges[0, 3] = edges[3, 0] = True
    assert graphs.triangles(edges, simwarp.Device()) == 2


def test_levels_are_distances(graphs: ModuleType, edges: Any) -> None:
    found = graphs.levels(edges, np.eye(6, dtype=bool)[[0, 4]], simwarp.Device())
    away = np.inf
    assert found.tolist() == [[0, 1, 1, 2, away, away], [away, away, away, away, 0, 1]]


def test_a_closure_has_what_paths_connect(graphs: ModuleType, edges: Any) -> None:
    found = graphs.closure(np.triu(edges), simwarp.Device())
    assert found.astype(int).tolist() == [
        [1, 1, 1, 1, 0, 0],
        [0, 1, 1, 1, 0, 0],
        [0, 0, 1, 1, 0, 0],
        [0, 0, 0, 1, 0, 0],
        [0, 0, 0, 0, 1, 1],
        [0, 0, 0, 0, 0, 1],
    ]


@pytest.mark.slow
def test_the_example_reports_a_wrong_product(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    honest = gpu.bmm

    def lying(*operands: Any, **options: Any) -> Any:
        product = honest(*operands, **options)
        return product + 6 if options["kind"] == "and" else product

    monkeypatch.setattr(gpu, "bmm", lying)
    monkeypatch.setattr("sys.argv", ["graphs.py"])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert stopped.value.code == 1
    printed = capsys.readouterr().out
    assert printed.count("DIFFER FROM") == 1
    assert "triangles DIFFER FROM" in printed
