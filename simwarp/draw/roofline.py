"""Roofline plots as SVG: a chip's attainable rate by arithmetic intensity, and the point of a run.

Source: Williams, Waterman and Patterson, "Roofline" (CACM 2009), figure 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from reference.errors import ShapeError
from simwarp.draw.svg import STYLE, element, text_element

ROOFLINE_STYLE = """
.simwarp-picture .tick{stroke:var(--plain);stroke-width:1}
.simwarp-picture .roof{fill:none;stroke:var(--line);stroke-width:2.5}
.simwarp-picture .drop{stroke:var(--marked-one);stroke-dasharray:3 3}
.simwarp-picture .point{fill:var(--marked-one)}
.simwarp-picture .hollow{fill:var(--paper);stroke:var(--marked-one);stroke-width:2}
""".strip()
WIDTH, HEIGHT = 620.0, 400.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 90.0, 24.0, 60.0, 86.0
_DECADES_DOWN = 4
"""The least powers of ten between the axis and the chip's peak."""
_PREFIXES = {15: "P", 12: "T", 9: "G", 6: "M", 3: "k", 0: "", -3: "m", -6: "µ", -9: "n"}


def to_svg(data: Mapping[str, Any]) -> str:
    """A roofline, of ``device.report.roofline("H200").to_json()``, as one self-contained ``<svg>`` element.

    A full point marks the intensity of the compulsory bytes, a hollow point that of the requested bytes; both
    lie on the roof, the most operations per second that the chip can reach at that intensity. A run that
    computed nothing or moved no bytes has no intensity: ShapeError.

    >>> svg = to_svg({"chip": "H200", "pipe": "f32", "peak": 66.9e12, "bandwidth": 4.8e12, "binds": "memory",
    ...     "seconds": 2e-6, "intensity": 0.25, "intensity_requested": 0.125, "ridge": 13.9})
    >>> svg.count("<circle"), "H200: memory binds, 2 µs at least" in svg
    (2, True)
    """
    for name in ("intensity", "intensity_requested"):
        if not data[name]:
            raise ShapeError(
                f"a roofline needs operations and bytes: {name} is {data[name]}\n"
                f"on {data['chip']}, {data['binds']} takes {si(data['seconds'], 's')}\n"
                "draw a run that computes and accesses global memory"
            )
    title = f"{data['chip']}: {data['binds']} binds, {si(data['seconds'], 's')} at least"
    notes = (
        f"operations per byte: {data['intensity']:.3g} of compulsory bytes (full point),",
        f"{data['intensity_requested']:.3g} of requested bytes (hollow point)",
    )
    body = [
        text_element(title, 18, 32, "title"),
        *_position(data),
        *(text_element(note, 18, HEIGHT - 30 + 18 * i, "note") for i, note in enumerate(notes)),
    ]
    return element(title, notes, f"{STYLE}\n{ROOFLINE_STYLE}", (f"{WIDTH:g}", f"{HEIGHT:g}"), body)


def _position(data: Mapping[str, Any]) -> Iterator[str]:
    """The SVG elements of the roof, and of the points on it."""
    axes = Axes(data, [data[name] for name in ("intensity", "intensity_requested")])
    yield from axes.draw(f"{data['pipe']} operations per byte of global memory")
    for name, kind in (("intensity_requested", "hollow"), ("intensity", "point")):
        yield axes.drop(data[name], axes.roof(data[name]))
        yield axes.point(data[name], axes.roof(data[name]), kind)


class Axes:
    """The plot's axes: intensity to the right and operations per second upwards, both logarithmic.

    ``data`` has the roof: peak, bandwidth, and ridge; ``rates`` are of points below it.
    """

    def __init__(
        self, data: Mapping[str, Any], intensities: Iterable[float], rates: Iterable[float] = ()
    ) -> None:
        self.data = data
        shown = [math.log10(intensity) for intensity in (*intensities, data["ridge"])]
        self.x_range = math.floor(min(shown) - 0.3), math.ceil(max(shown) + 0.5)
        top = math.ceil(math.log10(data["peak"]))
        least = min(math.log10(data["bandwidth"]) + self.x_range[0], *map(math.log10, rates), top)
        self.y_range = min(math.floor(least), top - _DECADES_DOWN), top

    def x(self, intensity: float) -> float:
        """The x coordinate of an arithmetic intensity (operations per byte) in the picture."""
        low, high = self.x_range
        return _LEFT + (math.log10(intensity) - low) / (high - low) * (WIDTH - _LEFT - _RIGHT)

    def y(self, rate: float) -> float:
        """The vertical position of a rate in the picture."""
        low, high = self.y_range
        return HEIGHT - _BOTTOM - (math.log10(rate) - low) / (high - low) * (HEIGHT - _TOP - _BOTTOM)

    def roof(self, intensity: float) -> float:
        """The attainable operations per second at an arithmetic intensity, under the roofline."""
        return min(self.data["peak"], intensity * self.data["bandwidth"])

    def draw(self, name: str) -> Iterator[str]:
        """The SVG elements of the grid lines and the roof; ``name`` labels the horizontal axis."""
        yield from self._mesh(name)
        ends = [10.0 ** self.x_range[0], self.data["ridge"], 10.0 ** self.x_range[1]]
        corners = " ".join(f"{self.x(end):.1f},{self.y(self.roof(end)):.1f}" for end in ends)
        yield f'<polyline class="roof" points="{corners}"/>'

    def drop(self, intensity: float, rate: float) -> str:
        """A line from a point down to the axis."""
        x, y = self.x(intensity), self.y(rate)
        return f'<line class="drop" x1="{x:.1f}" y1="{y:.1f}" x2="{x:.1f}" y2="{HEIGHT - _BOTTOM:g}"/>'

    def point(self, intensity: float, rate: float, kind: str) -> str:
        """The SVG circle of a measurement; ``kind`` is "point" (full) or "hollow"."""
        return f'<circle class="{kind}" cx="{self.x(intensity):.1f}" cy="{self.y(rate):.1f}" r="5"/>'

    def _mesh(self, name: str) -> Iterator[str]:
        bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
        for power in range(self.x_range[0], self.x_range[1] + 1):
            x = self.x(10.0**power)
            yield f'<line class="tick" x1="{x:.1f}" y1="{_TOP:g}" x2="{x:.1f}" y2="{bottom:g}"/>'
            yield text_element(f"{10.0**power:g}", x, bottom + 16, "axis", "middle")
        for power in range(self.y_range[0], self.y_range[1] + 1):
            y = self.y(10.0**power)
            yield f'<line class="tick" x1="{_LEFT:g}" y1="{y:.1f}" x2="{right:g}" y2="{y:.1f}"/>'
            yield text_element(si(10.0**power, "op/s"), _LEFT - 6, y + 4, "axis", "end")
        yield text_element(name, right, bottom + 34, "axis", "end")


def si(value: float, unit: str) -> str:
    """A number with its unit and an SI prefix, such as "2 TFLOP/s".

    >>> si(2e-6, "s")
    '2 µs'
    """
    power = 0 if not value else min(15, max(-9, 3 * math.floor(math.log10(value) / 3 + 1e-9)))
    return f"{value / 10.0**power:.3g} {_PREFIXES[power]}{unit}"
