"""Plots of studies of networks as SVG: bars of launches, shortcuts and schemes, curves over batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from simwarp.draw.roofline import si
from simwarp.draw.svg import STYLE, element, text_element
from simwarp.draw.text import printable

_STYLE = """
.simwarp-picture .tick{stroke:var(--plain);stroke-width:1}
.simwarp-picture .curve{fill:none;stroke:var(--line);stroke-width:2.5}
.simwarp-picture .second{stroke:var(--marked-one)}
.simwarp-picture .third{stroke:var(--soft);stroke-dasharray:4 3}
""".strip()
_CHARACTER = 7.3
_EDGE, _TOP, _LINE = 18.0, 60.0, 20.0
_BAR, _BESIDE = 320.0, 220.0
"""The length of the longest bar, and the room for numbers behind it."""
_WIDTH, _LEFT, _PANEL = 620.0, 90.0, 240.0
"""Of a plot with curves: its width, the place of the axis, and the height of a panel."""
_UP_TO = ("sync", "batch")
_KINDS = ("first", "second", "third")
_UNITS = {"seconds": "s", "instructions": ""}


class Bar(NamedTuple):
    """A bar with its label, or only a text if there is no number."""

    label: str
    value: float | None
    note: str = ""
    kind: str = "one"


class Panel(NamedTuple):
    """A panel of curves, each a sequence of (batch size, value)."""

    name: str
    unit: str
    curves: Mapping[str, Sequence[tuple[int, float]]]


def to_svg(data: Mapping[str, Any]) -> str:
    """A study of a network, the data of ``simwarp net study --json``, as one ``<svg>`` element.

    >>> row = {"path": "0", "layers": ["Conv"], "seconds": 2e-6, "share": 1.0}
    >>> data = {"study": "breakdown", "network": "small", "device": "H200", "images": 8, "unit": "seconds",
    ...     "measured": {"runs_timed": 5, "bursts": 5, "idle_seconds": 0.01}, "sum": 2e-6, "together": 3e-6,
    ...     "rows": [row]}
    >>> "2 µs" in to_svg(data)
    True
    """
    images = data["images"]
    count = f"{'up to ' * (data['study'] in _UP_TO)}{images} image{'s' * (images != 1)}"
    title = printable(f"{data['network']}: {data['study']}, {count} on {data['device']}")
    shown, notes = _CHARTS[data["study"]](data), [_measured(data)]
    if isinstance(shown[0], Panel):
        width, height, body = _WIDTH, _TOP + _PANEL * len(shown), list(_panels(shown))
    else:
        label = max(len(bar.label) for bar in shown) * _CHARACTER
        width, height = _EDGE + label + 10 + _BAR + _BESIDE, _TOP + _LINE * len(shown) + 12
        body = list(_bars(shown, _EDGE + label, _UNITS[data["unit"]]))
    notes = [*_NOTES.get(data["study"], lambda _: [])(data), *notes]
    width = max(width, _EDGE * 2 + len(title) * 9.2, _EDGE * 2 + max(map(len, notes)) * _CHARACTER)
    texts = [text_element(note, _EDGE, height + 16 * i, "note") for i, note in enumerate(notes)]
    body = [text_element(title, _EDGE, 32, "title"), *body, *texts]
    size = f"{width:.0f}", f"{height + 16 * len(notes) + 4:.0f}"
    return element(title, notes, f"{STYLE}\n{_STYLE}", size, body)


def _measured(data: Mapping[str, Any]) -> str:
    """A note below the chart: the number of timed runs and bursts, or the simulator's count."""
    if data["unit"] != "seconds":
        return "instructions of threads that the simulator executed"
    how = data["measured"]
    return (
        f"medians of {how['bursts']} bursts of {how['runs_timed']} runs, "
        f"each burst behind {si(how['idle_seconds'], 's')} without work"
    )


# --------------------------------------------------------------------------------------------------
# What each study shows
# --------------------------------------------------------------------------------------------------


def _breakdown(data: Mapping[str, Any]) -> list[Any]:
    return [
        Bar(f"{row['path']} {' '.join(row['layers'])}".strip(), row[data["unit"]], f"{row['share']:.1%}")
        for row in data["rows"]
    ]


def _shortcut(data: Mapping[str, Any]) -> list[Any]:
    return [
        Bar(row["shortcut"], row[data["unit"]], f"{si(row['residual_bytes'], 'B')} of residual data")
        for row in data["rows"]
    ]


def _scheme(data: Mapping[str, Any]) -> list[Any]:
    return [
        Bar(
            f"{row['path']} {row['layers'][0]} {row['scheme']}",
            row[data["unit"]],
            "refused" if row[data["unit"]] is None else "",
            "marked-one" if row["scheme"] == "auto" else "one",
        )
        for row in data["rows"]
    ]


def _blocks(data: Mapping[str, Any]) -> list[Any]:
    return [Bar(f"{row['kernel']} {row['blocks']}", row[data["unit"]]) for row in data["rows"]]


def _sync(data: Mapping[str, Any]) -> list[Any]:
    names = {
        "layers": "a launch for each step",
        "whole": "one launch",
        "without_barriers": "without barriers",
    }
    curves = {
        label: [(row["images"], row[name]) for row in data["rows"]]
        for name, label in names.items()
        if name in data["rows"][0]
    }
    return [Panel(f"{data['unit']}, by images of a batch", _UNITS[data["unit"]], curves)]


def _batch(data: Mapping[str, Any]) -> list[Any]:
    rows = data["rows"]
    times = {
        label: [(row["images"], row[name]) for row in rows]
        for name, label in (("waited", "the caller waits"), ("seconds", "the device works"))
    }
    rates = {"images in a second": [(row["images"], row["rate"]) for row in rows]}
    return [Panel("latency, by images of a batch", "s", times), Panel("throughput", "/s", rates)]


_CHARTS: dict[str, Callable[[Mapping[str, Any]], list[Any]]] = {
    "breakdown": _breakdown,
    "sync": _sync,
    "shortcut": _shortcut,
    "batch": _batch,
    "scheme": _scheme,
    "blocks": _blocks,
}
_NOTES: dict[str, Callable[[Mapping[str, Any]], list[str]]] = {
    "breakdown": lambda data: [
        f"sum {si(data['sum'], _UNITS[data['unit']])}, together {si(data['together'], _UNITS[data['unit']])}"
    ],
    "sync": lambda data: [f"{data['steps']} steps; one launch has {data['barriers']} barriers"],
    "batch": lambda data: [data["ended"]] if data["ended"] else [],
}


# --------------------------------------------------------------------------------------------------
# Elements
# --------------------------------------------------------------------------------------------------


def _bars(bars: Sequence[Bar], left: float, unit: str) -> Iterator[str]:
    """Bars below one another, with labels on the left and numbers on the right."""
    longest = max((bar.value or 0.0 for bar in bars), default=0.0) or 1.0
    for i, bar in enumerate(bars):
        y, length = _TOP + _LINE * i, (bar.value or 0.0) / longest * _BAR
        words = [bar.note] if bar.value is None else [si(bar.value, unit), bar.note]
        yield text_element(bar.label, left, y + 12, "axis", "end")
        if bar.value is not None:
            yield f'<rect class="{bar.kind}" x="{left + 10:.1f}" y="{y:g}" width="{length:.1f}" height="15"/>'
        yield text_element(", ".join(filter(None, words)), left + 16 + length, y + 12, "label")


def _panels(panels: Sequence[Panel]) -> Iterator[str]:
    """Yield the SVG elements of all panels, one below another."""
    for i, panel in enumerate(panels):
        yield from _curves(panel, _TOP + _PANEL * i + 12, _TOP + _PANEL * (i + 1) - 56)


def _curves(panel: Panel, top: float, bottom: float) -> Iterator[str]:
    """Yield the SVG elements of a panel: its curves, logarithmic axes and legend."""
    points = [point for curve in panel.curves.values() for point in curve]
    right = max(1, math.ceil(math.log2(max(x for x, _ in points))))
    low, high = _decades(y for _, y in points)

    def place(x: float, y: float) -> tuple[float, float]:
        across = math.log2(x) / right * (_WIDTH - _LEFT - 24)
        return _LEFT + across, bottom - (math.log10(y) - low) / (high - low) * (bottom - top)

    for power in range(right + 1):
        x, _ = place(2.0**power, 10.0**low)
        yield f'<line class="tick" x1="{x:.1f}" y1="{top:g}" x2="{x:.1f}" y2="{bottom:g}"/>'
        yield text_element(f"{2**power}", x, bottom + 16, "axis", "middle")
    for power in range(low, high + 1):
        _, y = place(1.0, 10.0**power)
        yield f'<line class="tick" x1="{_LEFT:g}" y1="{y:.1f}" x2="{_WIDTH - 24:g}" y2="{y:.1f}"/>'
        yield text_element(si(10.0**power, panel.unit), _LEFT - 6, y + 4, "axis", "end")
    yield text_element(panel.name, _LEFT, top - 8, "grid-title")
    for i, (kind, (name, curve)) in enumerate(zip(_KINDS, panel.curves.items(), strict=False)):
        corners = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in curve)
        yield f'<polyline class="curve {kind}" points="{corners}"/>'
        x, y = _LEFT + 170 * i, bottom + 32
        yield f'<line class="curve {kind}" x1="{x:g}" y1="{y:g}" x2="{x + 20:g}" y2="{y:g}"/>'
        yield text_element(name, x + 26, y + 4, "axis")


def _decades(values: Iterable[float]) -> tuple[int, int]:
    """The exponents of the powers of ten just below and above positive values."""
    logarithms = [math.log10(value) for value in values]
    low = math.floor(min(logarithms))
    return low, max(low + 1, math.ceil(max(logarithms)))
