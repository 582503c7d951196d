"""Plots of ``simwarp blas bench``: rates of each routine over sizes or tiles, a curve for each policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simwarp.draw import curves

_NAMED = {"variant": "{}", "devices": "{} GPUs", "tile": "tiles of {}", "n": "N = {}"}


def to_svg(data: Mapping[str, Any]) -> str:
    """The rates of a benchmark, the data of ``simwarp blas bench --json``, as one ``<svg>`` element.

    They are over N, or over the tile if there is one N. The name of a curve is what differs among them.

    >>> rows = [{"routine": "dgemm", "variant": "paper", "devices": 1, "tile": 256, "n": n, "rate": 1e12}
    ...     for n in (1024, 2048)]
    >>> to_svg({"machine": "Everest", "device": "sim", "rows": rows}).count("<polyline")
    1
    """
    return curves.to_svg(plot_of(data))


def plot_of(data: Mapping[str, Any]) -> curves.Plot:
    """The curves of a benchmark, one panel for each routine."""
    rows: Sequence[Mapping[str, Any]] = data["rows"]
    vary = [name for name in _NAMED if len({row[name] for row in rows}) > 1]
    across = "tile" if "tile" in vary and "n" not in vary else "n"
    named = [name for name in vary if name != across] or ["variant"]
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in rows:
        name = ", ".join(_NAMED[part].format(row[part]) for part in named)
        panels.setdefault(row["routine"], {}).setdefault(name, []).append((row[across], row["rate"]))
    where = "simulated " if data["device"] == "sim" else ""
    return curves.Plot(
        f"Rates on {where}{data['machine']}", panels, {"n": "N", "tile": "tile"}[across], "FLOP/s"
    )
