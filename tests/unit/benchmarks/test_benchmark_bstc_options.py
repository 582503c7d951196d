"""The benchmark of BSTC's options, on the simulator: every variant is right, and is the variant it says."""

import json
import re

import numpy as np
import pytest

import simwarp
from benchmark_scripts import scripts
from support.pages import page_module

options, common = scripts("bstc_options", "common")
VARIANTS = [
    *({"filter": load} for load in ("plain", *options.FILTERS)),
    {"COUNTER": "unsigned short"},
    {"WARPS": 4},
    {"COUNTER": "unsigned short", "WARPS": 4, "filter": "cg"},
]


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr(options, "SETS", 1)
    return simwarp.Device((9, 0))


@pytest.mark.at_most(3)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_every_convolution_equals_the_reference(device, variant):
    options.Convolution(device, 3, 40, 33, **variant).check()


@pytest.mark.singly
@pytest.mark.parametrize("name", options.APPROACHES)
@pytest.mark.parametrize("warps", [1, 4])
def test_every_approach_equals_the_reference(device, name, warps):
    a, b, _ = options.APPROACHES[name]
    product = options.Product(device, (33, 40, 45), A_COLUMNS=a, B_COLUMNS=b, WARPS=warps)
    product.check()
    assert product.cycles() > 0


def test_a_wrong_answer_is_not_timed(device):
    convolution = options.Convolution(device, 3, 4, 5)
    convolution.host[0][2][:] += 5
    with pytest.raises(SystemExit, match="a convolution is wrong"):
        options.timed(device, convolution)
    product = options.Product(device, (3, 4, 5))
    product.host[0][0][0] ^= 1
    with pytest.raises(SystemExit, match="a product is wrong"):
        product.check()


@pytest.mark.parametrize(
    ("load", "instruction"),
    [
        ("plain", r"ld\.global\.(u|b)32"),
        ("nc", r"ld\.global\.nc\.(u|b)32"),
        ("cg", r"ld\.global\.cg\.(u|b)32"),
        ("no_allocate", r"ld\.global\.L1::no_allocate\.b32"),
    ],
)
def test_filters_are_loaded_as_named_and_images_plainly(load, instruction, monkeypatch):
    texts = []
    monkeypatch.setattr(
        options, "compile", lambda *args: texts.append(simwarp.compile(*args).text) or texts[-1]
    )
    options.kernel(simwarp.Device((9, 0)), "bconv", filter=load)
    loads = set(re.findall(r"ld\.global\S*", texts[0]))
    others = {each for each in loads if not re.fullmatch(instruction, each)}
    assert len(others) < len(loads)
    assert all(re.fullmatch(r"ld\.global\.(u|b)32", each) for each in others)


def test_short_counters_and_warps_change_the_shared_memory_of_a_block(device):
    wide, short, four = (
        options.Convolution(device, 3, 4, 33, **each)
        for each in ({}, {"COUNTER": "unsigned short"}, {"WARPS": 4})
    )
    assert (wide.shared, short.shared, four.shared) == (132, 66, 528)
    assert (wide.grid, four.grid, four.block) == (9, 3, 128)


def test_rows_and_the_page_have_a_verdict(device, monkeypatch, tmp_path):
    times = iter(np.tile([50e-6, 100e-6], 99))
    monkeypatch.setattr(options, "seconds", lambda *_, **__: next(times))
    for name, value in (
        ("CHANNELS", (4,)),
        ("MANY_FILTERS", (5,)),
        ("SIZES", (8,)),
        ("SIDE", 2),
        ("DEPTH", 40),
    ):
        monkeypatch.setattr(options, name, value)
    rows = list(options.rows(device))
    assert [row.case for row in rows[:6]] == [
        *(f"bypass/4-{load}" for load in options.FILTERS),
        *("warps/bconv-4-4", "counters/5-short", "warps/bmm-8-4"),
    ]
    assert (rows[0].ours, rows[0].peers) == (pytest.approx(50), {"plain": pytest.approx(100)})
    made = page_module("page_microbenchmarks")
    monkeypatch.setattr(made, "OPTIONS", tmp_path / "options.json")
    assert "Not recorded yet" in made.filled("<!-- bstc options bypass -->")
    common.write(tmp_path / "options.json", {}, rows)
    assert made.filled("<!-- bstc options bypass -->").endswith(
        "| `4-no_allocate` | 50.0 µs | 100.0 µs | 50% faster |"
    )
    approaches = made.filled("<!-- bstc options approach -->").splitlines()
    assert len(approaches) == 6
    assert "| 28,000 | 1.40 |" in approaches[2]
    assert json.loads((tmp_path / "options.json").read_text())["rows"]
