"""An entry as a plot, by matplotlib: curves over the sizes of its rows, or bars."""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any

from reference.errors import MissingExtraError, SchemeError
from simwarp.lab.network_studies import Facts

_ACROSS = ("n", "channels", "filters", "tile", "images", "batch", "ldm", "products")
"""Columns that are sizes: the horizontal axis of curves."""
_BEST = ("TOPS", "GFLOPS", "TFLOP/s", "images/s", "ms", "us", "MB", "bytes", "percent", "instructions")
"""Columns that are drawn rather than others."""


def to_svg(facts: Facts) -> str:
    """An entry that `simwarp.lab.papers.run` made, as SVG; MissingExtraError without matplotlib."""
    try:
        backend = import_module("matplotlib")
        figure: Any = import_module("matplotlib.figure").Figure(figsize=(8, 5), layout="constrained")
    except ImportError as error:
        raise MissingExtraError(
            f"plots need matplotlib, which is not installed ({error})\npip install 'simwarp[plots]'"
        ) from None
    rows, axes = facts["rows"], figure.subplots()
    value = _value(facts)
    across = next((name for name in _ACROSS if len({row.get(name) for row in rows} - {None}) > 1), None)
    (_curves if across else _bars)(axes, rows, across or "", value)
    axes.set_ylabel(value)
    axes.set_title(f"{facts['paper']}, {facts['item']}: {facts['title']}", wrap=True, fontsize=9)
    figure.text(0.01, 0.005, f"{facts['sizes']} {facts['data']}"[:160], fontsize=6)
    written = io.StringIO()
    with backend.rc_context({"svg.hashsalt": "simwarp", "svg.fonttype": "none"}):
        figure.savefig(written, format="svg", metadata={"Date": None})
    return written.getvalue()


def _value(facts: Facts) -> str:
    """The column that is drawn."""
    rows = facts["rows"]
    numbers = [
        name
        for name in dict.fromkeys(name for row in rows for name in row)
        if all(isinstance(row.get(name), int | float | None) for row in rows) and name not in _ACROSS
    ]
    compared = [name for name in numbers if any(name in row.get("ratio", {}) for row in rows)]
    ordered = [*compared, *(name for name in _BEST if name in numbers), *numbers]
    if not ordered:
        raise SchemeError(
            f"{facts['item']} of {facts['paper']} has no numbers to draw\nprint it without --svg"
        )
    return ordered[0]


def _label(row: Facts) -> str:
    return ", ".join(str(value) for value in row.values() if isinstance(value, str))


def _curves(axes: Any, rows: list[Facts], across: str, value: str) -> None:
    curves: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row.get(value) is not None:
            curves.setdefault(_label(row), []).append((row[across], row[value]))
    for name, points in curves.items():
        axes.plot(*zip(*sorted(points), strict=True), marker="o", label=name or value)
    axes.set_xlabel(across)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7)


def _bars(axes: Any, rows: list[Facts], across: str, value: str) -> None:
    drawn = [row for row in rows if row.get(value) is not None]
    printed = [row.get("printed", {}).get(value) for row in drawn]
    places = range(len(drawn))
    if any(number is not None for number in printed):
        axes.bar([at - 0.2 for at in places], [number or 0 for number in printed], 0.4, label="printed")
        axes.bar([at + 0.2 for at in places], [row[value] for row in drawn], 0.4, label="ours")
        axes.legend(fontsize=7)
    else:
        axes.bar(places, [row[value] for row in drawn])
    labels = [_label(row) or str(next(iter(row.values()))) for row in drawn]
    axes.set_xticks(places, labels, rotation=90, fontsize=6)
