"""Plots of ``simwarp ooc bench``: rates over channels and over batches, as in the paper on ooc_cuDNN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simwarp.draw import curves
from simwarp.draw.roofline import si

_ACROSS = {"figure 9": ("channels", "channels and filters"), "figure 12": ("batch", "images")}
_TITLES = {
    "figure 9": "A convolution of one image of 1024 × 1024",
    "figure 12": "Convolutions of VGG16, forward and backward",
}
_CURVES = {"in core": "in_core", "out of core": "out_of_core"}


def to_svg(data: Mapping[str, Any], figure: str) -> str:
    """One ``<svg>`` element of "figure 9" or "figure 12" in the data of ``simwarp ooc bench --json``.

    >>> row = {"figure": "figure 9", "channels": 64, "in_core": None, "out_of_core": 1e12}
    >>> to_svg({"machine": "P100", "rows": [row]}, "figure 9").count("<polyline")
    1
    """
    return curves.to_svg(plot_of(data, figure))


def plot_of(data: Mapping[str, Any], figure: str) -> curves.Plot:
    """The curves of a figure of the paper, one panel for each computing rate of the device."""
    name, across = _ACROSS[figure]
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    rows: Sequence[Mapping[str, Any]] = [row for row in data["rows"] if row["figure"] == figure]
    for row in rows:
        panel = panels.setdefault(f"routines at {si(row['rate'], 'FLOP/s')}" if "rate" in row else "", {})
        for curve, of in _CURVES.items():
            if row[of] is not None:
                panel.setdefault(curve, []).append((row[name], row[of]))
    return curves.Plot(f"{_TITLES[figure]}, simulated {data['machine']}", panels, across, "FLOP/s")
