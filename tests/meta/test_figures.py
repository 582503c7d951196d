"""Measured figures in the sentences of the pages come from the files of results."""

import re

import pytest

from support.pages import page_module
from support.sources import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MEASURED = re.compile(r"\d (?:µs|ms|s|TOPS|GB/s|TFLOPS)(?![\w/])|\d times (?:as|the|faster)\b")
BY_HAND = {
    "README.md": 2,
    "benchmarks.md": 11,
    "blas3.md": 4,
    "hopper.md": 1,
    "networks.md": 1,
    "outofcore.md": 10,
    "training.md": 2,
}
"""Figures by hand in each page's sentences; a number may only become smaller."""


def by_hand(page: str) -> int:
    """How many figures of time, speed or ratio stand in the sentences of a page."""
    prose = re.sub(r"^```.*?^```|^\|.*?$|`[^`\n]*`|<!--.*?-->", "", page, flags=re.MULTILINE | re.DOTALL)
    return len(MEASURED.findall(prose))


def test_figures_by_hand_only_become_fewer() -> None:
    counts = {page.name: by_hand(page.read_text()) for page in PAGES}
    assert {name: count for name, count in counts.items() if count} == BY_HAND


def test_the_figures_of_the_pages_have_rows() -> None:
    made = page_module("page_results")
    text = "\n".join(page.read_text() for page in PAGES)
    figures, ratios = made.FIGURE_MARKER.findall(text), made.RATIO_MARKER.findall(text)
    assert all(re.match(r"[-\d,.]+ \S", made.figure(*marker)) for marker in figures)
    assert all(re.fullmatch(r"[\d,.]+(?: %)?", made.ratio(*marker)) for marker in ratios)
    assert len(re.findall("<!-- (?:figure|ratio) ", text)) == len(figures) + len(ratios) >= 5


def test_a_figure_has_its_unit_and_a_missing_row_is_an_error() -> None:
    made = page_module("page_results")
    peer, ours = "bmm-bits/8192 ,.0f of fp-cuda", "first-call .1f"
    marked = f"<!-- figure h200/bits.json {peer} -->, <!-- figure h200/bits.json {ours} -->"
    assert made.filled(marked) == "7,428 TOPS, 0.6 s"
    assert made.figure("h200/bits.json", "first-call", ".1f", "target") == "1.0 s"
    for missing in ("none .0f", "first-call .0f of nobody", "bmm-lines/2048 .0f of target"):
        with pytest.raises(LookupError, match="a page shows one"):
            made.filled(f"<!-- figure h200/bits.json {missing} -->")


def test_parameters_are_figures_with_the_unit_of_their_name() -> None:
    made = page_module("page_results")
    row = "h100/outofcore.json", "ooc/conv5_3"
    assert made.figure(*row, ".4f", "copy_seconds") == "0.0044 s"
    assert made.figure(*row, ".3f", "exact.seconds") == "0.013 s"
    assert made.figure("h200/networks.json", "net/mlp/1024", ".3f", "device") == "0.027 ms"
    with pytest.raises(LookupError, match="1 rows ooc/conv5_3"):
        made.figure(*row, ".0f", "images")


def test_a_ratio_is_of_a_peer_to_ours() -> None:
    made = page_module("page_results")
    row = "cpu/ptx.json ptx/popc"
    assert made.filled(f"<!-- ratio {row} ,.0f of numba cudasim -->") == "853"
    assert made.filled("<!-- ratio h100/outofcore.json ooc/conv1_2 .0% of bound_seconds -->") == "83 %"
    with pytest.raises(LookupError, match="nobody"):
        made.filled(f"<!-- ratio {row} .0f of nobody -->")


def test_figures_by_hand_are_counted_in_sentences_alone() -> None:
    page = "It takes 3 µs, 2.5 times as long.\n\n| 4 ms |\n\n```\n5 s\n```\n"
    assert by_hand(f"{page}<!-- figure a 1 s -->, `6 s`, 7 sizes\n") == 2
