"""Plots of benchmarks as SVG: measured rates of calls and kernels under the roofline for products of bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reference.errors import SchemeError
from simwarp.draw.roofline import HEIGHT, ROOFLINE_STYLE, WIDTH, Axes, si
from simwarp.draw.svg import STYLE, element, text_element
from simwarp.draw.text import printable

_EDGE, _LINE = 18.0, 18.0


def to_svg(data: Mapping[str, Any]) -> str:
    """A benchmark, the data of ``simwarp bench --json``, as one self-contained ``<svg>`` element.

    A full point is the speed of the kernels alone, a hollow one that of a call with its result. Without
    times, from the simulator, hollow points lie on the roof. SchemeError if the chip's limits are not known.

    >>> roof = {"chip": "H200", "peak": 17e15, "bandwidth": 4.2e12, "ridge": 4048.0}
    >>> row = {"case": "bmm/1024", "who": "simwarp", "operands": "prepared", "output": "int32",
    ...     "intensity": 482.0, "rate": 1e14, "kernels_rate": 1e15}
    >>> svg = to_svg({"bench": "bmm", "device": "H200", "unit": "seconds", "roof": roof, "rows": [row]})
    >>> svg.count("<circle"), "1: bmm/1024, simwarp, prepared to int32" in svg
    (2, True)
    """
    check_roof(data["roof"], data["device"])
    rows = data["rows"]
    speeds = [speed for row in rows for speed in _speeds(row) if speed]
    axes = Axes(data["roof"], [row["intensity"] for row in rows], speeds)
    roof = data["roof"]
    title = printable(f"{data['bench']} on {data['device']}")
    limits = f"the roof: {roof['chip']}, {si(roof['peak'], 'op/s')} on bits, {si(roof['bandwidth'], 'B/s')}"
    kinds = "; full: kernels, hollow: calls" if speeds else ""
    notes = [printable(limits + kinds), *(f"{i}: {_words(row)}" for i, row in enumerate(rows, 1))]
    body = [
        text_element(title, _EDGE, 32, "title"),
        *axes.draw("operations per byte of operands and output"),
        *(part for i, row in enumerate(rows, 1) for part in _points(axes, i, row)),
        *(text_element(note, _EDGE, HEIGHT - 14 + _LINE * i, "note") for i, note in enumerate(notes)),
    ]
    size = f"{WIDTH:g}", f"{HEIGHT - 22 + _LINE * len(notes):g}"
    return element(title, notes, f"{STYLE}\n{ROOFLINE_STYLE}", size, body)


def check_roof(roof: Mapping[str, Any] | None, device: str) -> None:
    """Refuse a picture without the limits of a chip."""
    if roof is None:
        raise SchemeError(
            f"the limits of {device} are not known\na roofline needs those of its bit tensor cores\n"
            "give --chip, e.g. H200 or A100"
        )


def _speeds(row: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Operations per second of a call, and of its kernels alone."""
    return row.get("rate"), row.get("kernels_rate")


def _points(axes: Axes, number: int, row: Mapping[str, Any]) -> Iterator[str]:
    """The points of a row's call and kernels; the upper point gets the row's number."""
    intensity, (call, kernels) = row["intensity"], _speeds(row)
    top = kernels or call or axes.roof(intensity)
    yield axes.point(intensity, call or axes.roof(intensity), "hollow")
    if kernels:
        yield axes.point(intensity, kernels, "point")
    yield text_element(f"{number}", axes.x(intensity) + 8, axes.y(top) + 4, "label")


def _words(row: Mapping[str, Any]) -> str:
    """One line of text for a benchmark row: case, implementation, operands and rates."""
    call, kernels = _speeds(row)
    speeds = [
        f"{si(speed, 'op/s')} {of}" for speed, of in ((call, "a call"), (kernels, "its kernels")) if speed
    ]
    return printable(", ".join([row["case"], row["who"], f"{row['operands']} to {row['output']}", *speeds]))
