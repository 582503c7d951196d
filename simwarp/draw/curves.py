"""Curves as SVG, in panels one below another, with a legend: rates over sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from simwarp.draw.machine import nice_step
from simwarp.draw.roofline import si
from simwarp.draw.svg import STYLE, element, text_element
from simwarp.draw.text import printable

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999933")
_DASHES = ("", "6 3", "2 3")
_WIDTH, _LEFT, _HEIGHT, _EDGE, _LINE = 620.0, 90.0, 200.0, 18.0, 18.0
_STYLE = """
.simwarp-picture .tick{stroke:var(--plain);stroke-width:1}
.simwarp-picture .curve{fill:none;stroke-width:2}
""".strip()

Points: TypeAlias = Sequence[tuple[float, float]]


class Plot(NamedTuple):
    """A figure of curves: panels one below another, with a common horizontal axis."""

    title: str
    panels: Mapping[str, Mapping[str, Points]]  # panel name → curve name → points
    across: str  # the quantity on the horizontal axis
    unit: str  # unit of the values on the vertical axis
    notes: Sequence[str] = ()


def to_svg(plot: Plot) -> str:
    """A plot as one self-contained ``<svg>`` element; the vertical axis begins at 0, a single point is a dot.

    >>> svg = to_svg(Plot("rates", {"dgemm": {"paper": [(1024, 1e12), (2048, 2e12)]}}, "N", "FLOP/s"))
    >>> svg.count("<polyline"), ">2 TFLOP/s<" in svg
    (1, True)
    """
    body, top = [text_element(printable(plot.title), _EDGE, 32, "title")], 64.0
    names = list(dict.fromkeys(name for curves in plot.panels.values() for name in curves))
    for name, curves in plot.panels.items():
        body.append(text_element(printable(name), _LEFT, top - 8, "grid-title"))
        body += _Panel(curves, top).draw(plot, names)
        top += _HEIGHT + 56
    for i, name in enumerate(names):
        x, y = _LEFT + 250 * (i % 2), top - 4 + _LINE * (i // 2)
        body.append(f'<path class="curve" {_stroke(i)} d="M{x:g} {y - 4:g}h26"/>')
        body.append(text_element(printable(name), x + 34, y, "axis"))
    top += _LINE * -(-len(names) // 2) + 8
    body += [
        text_element(printable(note), _EDGE, top + _LINE * i, "note") for i, note in enumerate(plot.notes)
    ]
    size = f"{_WIDTH:g}", f"{top + _LINE * len(plot.notes) + 4:g}"
    return element(printable(plot.title), plot.notes, f"{STYLE}\n{_STYLE}", size, body)


class _Panel:
    """Curves with their axes, both linear and from 0."""

    def __init__(self, curves: Mapping[str, Points], top: float) -> None:
        points = [point for curve in curves.values() for point in curve]
        self._curves, self._top = curves, top
        self._most = max((x for x, _ in points), default=1.0) or 1.0
        self._step = nice_step((max((y for _, y in points), default=1.0) or 1.0) / 5)
        self._lines = max(1, -int(-max((y for _, y in points), default=1.0) // self._step))

    def draw(self, plot: Plot, names: Sequence[str]) -> Iterator[str]:
        """Yield the SVG elements of the panel: grid lines, axis labels and curves."""
        bottom, right = self._top + _HEIGHT, _WIDTH - 30
        for i in range(self._lines + 1):
            _, y = self._place(0, i * self._step)
            yield f'<line class="tick" x1="{_LEFT:g}" y1="{y:.1f}" x2="{right:g}" y2="{y:.1f}"/>'
            yield text_element(si(i * self._step, plot.unit), _LEFT - 6, y + 4, "axis", "end")
        for size in self._sizes():
            x, _ = self._place(size, 0)
            yield f'<line class="tick" x1="{x:.1f}" y1="{self._top:g}" x2="{x:.1f}" y2="{bottom:g}"/>'
            yield text_element(f"{size:g}", x, bottom + 16, "axis", "middle")
        yield text_element(plot.across, right, bottom + 32, "axis", "end")
        for name, curve in self._curves.items():
            stroke = _stroke(names.index(name))
            corners = " ".join("{:.1f},{:.1f}".format(*self._place(*point)) for point in sorted(curve))
            yield f'<polyline class="curve" {stroke} points="{corners}"/>'
            if len(curve) == 1:
                x, y = self._place(*curve[0])
                yield f'<circle class="curve" {stroke} cx="{x:.1f}" cy="{y:.1f}" r="3"/>'

    def _place(self, x: float, y: float) -> tuple[float, float]:
        across = x / self._most * (_WIDTH - 30 - _LEFT)
        return _LEFT + across, self._top + _HEIGHT * (1 - y / (self._lines * self._step))

    def _sizes(self) -> list[float]:
        """The sizes with a label: each is far enough from the one before."""
        shown: list[float] = []
        for size in sorted({x for curve in self._curves.values() for x, _ in curve}):
            if not shown or size - shown[-1] >= self._most / 12:
                shown.append(size)
        return shown


def _stroke(number: int) -> str:
    """The SVG attributes for the colour and the dashes of a curve, given its number."""
    colour, dashes = COLOURS[number % len(COLOURS)], _DASHES[number // len(COLOURS) % len(_DASHES)]
    return f'stroke="{colour}"' + (f' stroke-dasharray="{dashes}"' if dashes else "")
