"""Milestones of a call on its timeline: first tile and routine, a peer copy, first and last write-back."""

from __future__ import annotations

import json
from collections.abc import Iterable

from reference.devices.timeline import Record, Timeline
from simwarp.draw.machine import Mark
from simwarp.lab.network_studies import Facts


def marks_of_report(facts: Facts) -> list[Mark]:
    """The steps of a call that `simwarp.lab.blas.report.traced` has run."""
    return marks_of(Timeline.from_json(json.dumps(facts["timeline"])))


def marks_of(records: Iterable[Record]) -> list[Mark]:
    """The milestones of a call on its timeline, such as the first arrived tile, in order of time."""
    ordered = sorted(records, key=lambda one: (one.end, one.start))
    found = [
        _mark(ordered, "in", "the first tile has arrived"),
        _first_routine(ordered),
        _mark(ordered, "peer", "a tile has come from another GPU instead of the host"),
        _mark(ordered, "out", "the first tile of the result is on the host"),
        _mark(ordered[::-1], "out", "the last tile of the result is on the host"),
    ]
    return sorted((mark for mark in found if mark is not None), key=lambda mark: mark.seconds)


def _mark(records: Iterable[Record], kind: str, text: str) -> Mark | None:
    """The end of the first record of a kind."""
    found = next((one for one in records if one.kind == kind), None)
    return None if found is None else Mark(found.end, found.device, found.stream, text)


def _first_routine(records: Iterable[Record]) -> Mark | None:
    """The start of the first routine, as a mark; None if no routine ran."""
    found = min((one for one in records if one.kind == "routine"), key=lambda one: one.start, default=None)
    return (
        None if found is None else Mark(found.start, found.device, found.stream, "the first routine begins")
    )
