"""The photograph of examples/edges.py: its edges equal NumPy's, without a frame, and errors are detected."""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import gpu
import reference
import simwarp
from support.pages import page_module

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "edges.py"


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def edges() -> ModuleType:
    return load(EXAMPLE)


@pytest.mark.slow
def test_the_filters_are_signs_with_zero_sum(edges: ModuleType) -> None:
    assert edges.x.shape == (1, 85, 128, 24)
    assert edges.w.shape == (4, 4, 24, 4)
    assert set(np.unique(edges.w)) == {-1, 1}
    assert (edges.w.sum(axis=(0, 1), dtype=int) == 0).all()
    assert len({filter_.tobytes() for filter_ in np.moveaxis(edges.w, 3, 0)}) == 4


@pytest.mark.slow
def test_the_reference_has_the_same_edges(edges: ModuleType) -> None:
    assert np.array_equal(reference.bconv2d(edges.x, edges.w), edges.convolve(border=0))


def test_zero_padding_as_bits_changes_only_the_border(edges: ModuleType) -> None:
    right, wrong = (np.abs(edges.convolve(border)[0]).max(axis=2) for border in (0, -1))
    inside = np.s_[1:-2, 1:-2]
    assert np.array_equal(right[inside], wrong[inside])
    sky = np.s_[0, 70:110]  # the first row; one row of four taps is excluded, each of 24 channels
    assert not right[sky].any()
    assert (wrong[sky] == 4 * 24).all()


def test_the_picture_shows_the_photograph_and_both_edge_maps(edges: ModuleType) -> None:
    shades = np.asarray(edges.picture(edges.convolve(border=0)))
    assert shades.shape == (85, 3 * 128)
    photograph, right, wrong = np.hsplit(shades, 3)
    assert photograph.std() > 40
    assert right[0, 70:110].max() < wrong[0, 70:110].min()


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *arguments])
    runpy.run_path(str(EXAMPLE), run_name="__main__")


@pytest.mark.gate
def test_the_script_saves_the_edges_of_a_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], edges: ModuleType
) -> None:
    run(monkeypatch, "--device", "sim", "--save", str(tmp_path / "edges.png"))
    assert capsys.readouterr().out == f"{simwarp.Device().name}: edges equal NumPy's\n"
    edges.picture(edges.convolve(border=0)).save(tmp_path / "expected.png")
    assert (tmp_path / "edges.png").read_bytes() == (tmp_path / "expected.png").read_bytes()


def test_the_script_reports_a_wrong_edge(monkeypatch: pytest.MonkeyPatch, edges: ModuleType) -> None:
    def lying(*operands: Any, **options: Any) -> Any:
        response = edges.convolve(border=0)
        response[0, 7, 9, 2] += 2
        return response

    monkeypatch.setattr(gpu, "bconv2d", lying, raising=False)
    with pytest.raises(SystemExit, match="DIFFER"):
        run(monkeypatch)


@pytest.mark.gate  # `make docs` makes the page
def test_the_page_shows_the_edges_of_the_simulator() -> None:
    hooks = page_module()
    page = hooks.on_page_markdown(f"# Edges\n\n{page_module('page_pictures').EDGES_MARKER}\n")
    assert '<img alt="A photograph' in page
    assert 'src="data:image/png;base64,iVBOR' in page


def test_the_page_shows_window_positions() -> None:
    tensorflow, pytorch = page_module("page_pictures").same_of(8, 3, 2).split("PyTorch")
    assert "0 before, 1 after" in tensorflow
    assert "padding=1: 1 before, 1 after" in pytorch
    assert tensorflow.count("pad |") == pytorch.count("pad |") == 1
