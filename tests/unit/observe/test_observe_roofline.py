"""Rooflines and chips, compared with hand-computed values and published peaks."""

import json
import math
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from reference.errors import SchemeError, ShapeError
from simwarp.chips.chips import CHIPS, Chip, chip
from simwarp.draw import roofline as draw
from simwarp.observe.roofline import roofline
from simwarp.observe.traffic import Traffic

SIMPLE = Chip(
    (9, 0),
    1024,
    1024,
    4,
    4,
    {"f32": 32, "f64": 1, "integer": 16, "f16": 64, "bf16": 64, "approximate": 4},
    name="simple",
    multiprocessors=10,
    clock=1e9,
    bandwidth=100e9,
)
"""640 GFLOP/s in f32, 20 in f64, 320 Gop/s in 32-bit integers, 100 GB/s."""


class Made(Traffic):
    """Traffic of a given size."""

    compulsory, requested = 0, 0

    def __init__(self, compulsory, requested, **operations):
        super().__init__()
        self.compulsory, self.requested = compulsory, requested
        self.operations.update(operations)


@pytest.mark.parametrize(
    ("name", "kind", "published"),
    [
        ("H200", "f32", 66.9),
        ("H200", "f64", 33.5),
        ("H100 SXM", "f16", 133.8),
        ("A100 SXM 80GB", "f32", 19.5),
        ("A100 SXM 80GB", "f64", 9.7),
        ("A100 SXM 80GB", "f16", 78.0),
        ("A100 SXM 80GB", "bf16", 39.0),
        ("L40S", "f32", 91.6),
        ("RTX 4090", "f32", 82.6),
        ("RTX 4090", "f64", 1.29),
    ],
)
def test_peaks_equal_the_data_sheets(name, kind, published):
    assert CHIPS[name].peak(kind) / 1e12 == pytest.approx(published, rel=0.006)


def test_an_approximate_instruction_counts_as_one_operation():
    assert SIMPLE.peak("approximate") == 4 * 10 * 1e9


def test_chips_are_found_by_name():
    assert chip("h200") is CHIPS["H200"]
    assert chip("rtx") is CHIPS["RTX 4090"]
    assert chip(SIMPLE) is SIMPLE
    for name in ("H", "", "TPU"):
        with pytest.raises(SchemeError, match="H100 SXM"):
            chip(name)


def test_memory_bound_kernels_are_recognised():
    found = roofline(Made(1000, 4000, f32=800), SIMPLE)
    assert (found.binds, found.pipe) == ("memory", "f32")
    assert found.memory_seconds == found.seconds == pytest.approx(1e-8)
    assert found.operation_seconds == {"f32": pytest.approx(800 / 640e9)}
    assert (found.intensity, found.intensity_requested) == (0.8, 0.2)
    assert found.ridge == pytest.approx(6.4)
    assert found.copy_seconds is None


def test_the_busiest_pipe_sets_the_bound():
    found = roofline(Made(10, 10, f32=6400, f64=400, i32=3), SIMPLE)
    assert (found.binds, found.operations) == ("f64", 400)
    assert found.seconds == pytest.approx(400 / 20e9)


def test_integers_of_all_widths_share_a_pipe():
    found = roofline(Made(1, 1, i16=100, i32=100, i64=100), SIMPLE)
    assert found.operations == 350
    assert found.operation_seconds["integer"] == pytest.approx(350 / 320e9)


def test_a_measured_copy_is_slower_than_the_peak_bandwidth():
    found = roofline(Made(4_200_000, 1), "H200")
    assert found.copy_seconds == pytest.approx(1e-6)
    assert found.memory_seconds == pytest.approx(4.2e6 / 4.8e12)


@pytest.mark.parametrize(
    ("traffic", "binds", "intensity"), [(Made(0, 0), "memory", 0), (Made(0, 0, f32=5), "f32", math.inf)]
)
def test_kernels_without_bytes_or_operations_are_handled(traffic, binds, intensity):
    found = roofline(traffic, SIMPLE)
    assert (found.binds, found.intensity) == (binds, intensity)
    assert json.loads(json.dumps(found.to_json()))["intensity"] == (None if intensity else 0)
    with pytest.raises(ShapeError, match=r"needs operations and bytes.*\non simple"):
        draw.to_svg(found.to_json())


@pytest.mark.parametrize("operations", [1, 800, 10**9])
def test_the_points_of_the_picture_lie_on_the_roof(operations):
    data = roofline(Made(1000, 4000, f32=operations), SIMPLE).to_json()
    svg = draw.to_svg(data)
    root = ElementTree.fromstring(svg)
    tag = "{http://www.w3.org/2000/svg}"
    points = {c.get("class"): (float(c.get("cx")), float(c.get("cy"))) for c in root.iter(f"{tag}circle")}
    roof = [tuple(map(float, p.split(","))) for p in root.find(f"{tag}polyline").get("points").split()]
    (x0, y0), (x1, y1), (x2, y2) = roof
    assert x0 < x1 < x2 <= 600
    assert y0 > y1 == y2 >= 60
    assert points["hollow"][0] < points["point"][0]
    for x, y in points.values():
        on_roof = y1 if x >= x1 else y0 + (y1 - y0) * (x - x0) / (x1 - x0)
        assert y == pytest.approx(on_roof, abs=0.3)
    assert svg == draw.to_svg(data)
    assert f"<title>simple: {data['binds']} binds" in svg


def test_the_title_of_the_picture_is_escaped():
    data = roofline(Made(1000, 4000, f32=800), replace(SIMPLE, name="<b>")).to_json()
    assert "&lt;b&gt;" in draw.to_svg(data)
    assert "<b>" not in draw.to_svg(data)
