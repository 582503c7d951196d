"""Timelines of machines as SVG: a row per stream of each device; several runs share one time axis."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from reference.devices.timeline import Record, Timeline
from simwarp.draw.roofline import si
from simwarp.draw.svg import STYLE, element, text_element
from simwarp.draw.text import printable

TIMELINE_STYLE = """
.simwarp-picture .tick{stroke:var(--soft);stroke-width:.5}
.simwarp-picture .lane{fill:var(--plain)}
.simwarp-picture .in{fill:#56b4e9}
.simwarp-picture .out{fill:#d55e00}
.simwarp-picture .peer{fill:#cc79a7}
.simwarp-picture .routine{fill:#009e73}
.simwarp-picture .mark{fill:var(--ink)}
.simwarp-picture .on{font-weight:bold}
""".strip()
HOST = -1
"""The device of operations of the host's cores."""
_KINDS = {"in": "copy in", "out": "copy out", "peer": "peer copy", "routine": "routine"}
_LEFT, _WIDTH, _EDGE = 96.0, 800.0, 18.0
_LANE, _GAP, _LINE = 14.0, 3.0, 20.0
_MERGED = 0.3
"""Operations of one kind closer than so much of the picture are one shape, to keep the file small."""


class Mark(NamedTuple):
    """A numbered point on a row, and its note below the picture."""

    seconds: float
    device: int
    stream: int
    text: str


def to_svg(runs: Sequence[Mapping[str, Any]], marks: Iterable[Mark] = ()) -> str:
    """The timelines of runs, the first on top, as one ``<svg>`` element; marks are times in the last run.

    Runs are the data of ``simwarp blas trace --json``, or with a ``call`` in place of routine and sizes. The
    ``device`` of a timeline that a model predicts is "model".

    >>> record = {"device": 0, "peer": -1, "stream": 3, "kind": "in", "name": "copy in", "nbytes": 8,
    ...     "start": 0.0, "end": 2e-6, "operations": 0.0}
    >>> run = {"routine": "dgemm", "m": 1, "n": 1, "k": 1, "tile": 1, "device": "sim", "machine": "one",
    ...     "gpus": ["H200"], "seconds": 2e-6, "rate": 1e6, "timeline": [record]}
    >>> svg = to_svg([run])
    >>> svg.count('<path class="in"'), "GPU 0, H200" in svg
    (1, True)
    """
    timelines = [Timeline.from_json(json.dumps(run["timeline"])) for run in runs]
    axis = _Axis(max((timeline.seconds for timeline in timelines), default=0.0))
    body, top = list[str](), 34.0
    rows: _Rows = {}
    for run, timeline in zip(runs, timelines, strict=True):
        body.append(text_element(_title(run), _EDGE, top, "title"))
        rows = _rows(run, timeline, top + 12)
        body += _run(run, timeline, rows, axis)
        top = max([place + _LANE for place in rows.values()], default=top) + 14
        body += axis.labels(top)
        top += 34
    body += _legend(top - 8)
    begin = min((one.start for one in timelines[-1]), default=0.0) if timelines else 0.0
    notes = list[str]()
    for number, mark in enumerate(marks, 1):
        body += _mark(number, axis.x(mark.seconds - begin), rows[mark.device, mark.stream])
        notes.append(printable(f"{number}: {mark.text}"))
    top += 16
    body += [text_element(note, _EDGE, top + _LINE * i, "note") for i, note in enumerate(notes)]
    size = f"{_LEFT + _WIDTH + 60:g}", f"{top + _LINE * len(notes):g}"
    titles = [_title(run) for run in runs]
    return element("; ".join(titles), notes, f"{STYLE}\n{TIMELINE_STYLE}", size, body)


_Rows = dict[tuple[int, int], float]


def _title(run: Mapping[str, Any]) -> str:
    """The title of a run: call, machine and speed."""
    where = {"sim": "simulated ", "model": "the model of "}.get(run["device"], "")
    call = run["call"] if "call" in run else "{routine} {m} × {n} × {k}, tiles of {tile}".format(**run)
    speed = f"{si(run['seconds'], 's')}, {si(run['rate'], 'FLOP/s')}"
    return printable(f"{call}, {where}{run['machine']}: {speed}")


def _rows(run: Mapping[str, Any], timeline: Timeline, top: float) -> _Rows:
    """The vertical position of each row; a line of text is above the rows of each device."""
    rows: _Rows = {}
    for device in (*range(len(run["gpus"])), HOST):
        streams = {one.stream for one in timeline if one.device == device}
        top += _LINE if streams or device != HOST else 0
        for stream in sorted(streams):
            rows[device, stream] = top
            top += _LANE + _GAP
    return rows


def _run(run: Mapping[str, Any], timeline: Timeline, rows: _Rows, axis: _Axis) -> Iterator[str]:
    """The rows of a run; above each device's rows, its profile."""
    begin = min((one.start for one in timeline), default=0.0)
    for device, gpu in (*enumerate(run["gpus"]), (HOST, "")):
        own = [place for (of, _), place in rows.items() if of == device]
        if not own:
            continue
        shares = zip(("COMPT", "COMM", "OTHER"), timeline.profile(device), strict=True)
        parts = ", ".join(f"{name} {part / (timeline.seconds or 1):.1%}" for name, part in shares)
        name = printable(f"GPU {device}, {gpu}: {parts}" if device != HOST else f"CPU: {parts}")
        yield text_element(name, _EDGE, min(own) - 5, "grid-title")
    names = _stream_names(rows)
    for (device, stream), y in rows.items():
        yield text_element(names[device, stream], _LEFT - 8, y + 11, "axis", "end")
        yield f'<rect class="lane" x="{_LEFT:g}" y="{y:g}" width="{_WIDTH:g}" height="{_LANE:g}"/>'
        operations = [one for one in timeline if (one.device, one.stream) == (device, stream)]
        for kind in _KINDS:
            if path := _shapes((one for one in operations if one.kind == kind), begin, y, axis):
                yield f'<path class="{kind}" d="{path}"/>'
    if rows:
        yield from axis.ticks(min(rows.values()), max(rows.values()) + _LANE)


def _stream_names(rows: _Rows) -> dict[tuple[int, int], str]:
    """(device, stream) → the label "stream 0", "stream 1", …, counted per device."""
    names: dict[tuple[int, int], str] = {}
    for device, stream in rows:
        number = sum(1 for of, _ in names if of == device)
        names[device, stream] = f"stream {number}"
    return names


def _shapes(operations: Iterable[Record], begin: float, y: float, axis: _Axis) -> str:
    """The outline of all operations of a kind on a row."""
    joined: list[tuple[float, float]] = []
    for one in sorted(operations, key=lambda one: one.start):
        start, end = axis.x(one.start - begin), axis.x(one.end - begin)
        if joined and start - joined[-1][1] < _MERGED:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return "".join(
        f"M{start:.1f} {y:g}h{max(end - start, 0.2):.1f}v{_LANE:g}H{start:.1f}z" for start, end in joined
    )


def _legend(y: float) -> Iterator[str]:
    """Yield the SVG legend: a coloured square and a label for each kind of operation."""
    for i, (kind, name) in enumerate(_KINDS.items()):
        x = _LEFT + 130 * i
        yield f'<rect class="{kind}" x="{x:g}" y="{y - 10:g}" width="12" height="12"/>'
        yield text_element(name, x + 18, y, "axis")


def _mark(number: int, x: float, y: float) -> Iterator[str]:
    """Yield the SVG elements of a numbered circle on a timeline row, at (x, y)."""
    yield f'<circle class="mark" cx="{x:.1f}" cy="{y + _LANE / 2:g}" r="8"/>'
    yield text_element(f"{number}", x, y + _LANE / 2 + 4, "on", "middle")


class _Axis:
    """The horizontal axis of a timeline: seconds, linear, from 0 on the left."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds or 1.0
        self._step = nice_step(self._seconds / 8)

    def x(self, seconds: float) -> float:
        """The x coordinate of a time in the picture."""
        return _LEFT + seconds / self._seconds * _WIDTH

    def ticks(self, top: float, bottom: float) -> Iterator[str]:
        """Yield vertical SVG lines at the axis's round times."""
        for time in self._times():
            x = self.x(time)
            yield f'<line class="tick" x1="{x:.1f}" y1="{top:g}" x2="{x:.1f}" y2="{bottom:g}"/>'

    def labels(self, y: float) -> Iterator[str]:
        """Yield the SVG labels of the axis's round times, at height ``y``."""
        for time in self._times():
            yield text_element(si(time, "s"), self.x(time), y, "axis", "middle")

    def _times(self) -> Iterator[float]:
        return (self._step * i for i in range(int(self._seconds / self._step * (1 + 1e-9)) + 1))


def nice_step(least: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is at least a positive number.

    >>> nice_step(0.03), nice_step(51.0)
    (0.05, 100.0)
    """
    power = 10.0 ** math.floor(math.log10(least))
    found = next(factor for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))
    return float(f"{found * power:.3g}")
