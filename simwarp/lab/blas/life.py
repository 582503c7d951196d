"""The steps of a call on its timeline: first tiles and routine, a peer copy, a stolen task, the end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from reference.types.timeline import Record, Timeline
from simwarp.draw.machine import Mark
from simwarp.lab.network_studies import Facts


def marks_of_report(facts: Facts) -> list[Mark]:
    """The steps of a call that `simwarp.lab.blas.report.traced` has run."""
    stolen = [part.get("stolen", 0) for part in facts["devices"]]
    return marks_of(Timeline.from_json(json.dumps(facts["timeline"])), stolen, facts["tasks"])


def marks_of(records: Iterable[Record], stolen: Sequence[int], tasks: int) -> list[Mark]:
    """The steps by their times.

    Parameters
    ----------
    records : iterable of Record
    stolen : sequence of int
        How many tasks each device took from another one.
    tasks : int
        The tasks of the call. The one that was stolen is shown if each task has one copy out.
    """
    ordered = sorted(records, key=lambda one: (one.end, one.start))
    found = [
        _mark(ordered, "in", "the first tile has arrived"),
        _first_routine(ordered),
        _mark(ordered, "peer", "a tile has come from another GPU instead of the host"),
        _stolen(ordered, stolen, tasks),
        _mark(ordered[::-1], "out", "the last tile is back on the host"),
    ]
    return sorted((mark for mark in found if mark is not None), key=lambda mark: mark.seconds)


def _mark(records: Iterable[Record], kind: str, text: str) -> Mark | None:
    """The end of the first record of a kind."""
    found = next((one for one in records if one.kind == kind), None)
    return None if found is None else Mark(found.end, found.device, found.stream, text)


def _first_routine(records: Iterable[Record]) -> Mark | None:
    """The begin of the first routine."""
    found = min((one for one in records if one.kind == "routine"), key=lambda one: one.start, default=None)
    return (
        None if found is None else Mark(found.start, found.device, found.stream, "the first routine begins")
    )


def _stolen(records: Sequence[Record], stolen: Sequence[int], tasks: int) -> Mark | None:
    """The begin of a stolen task: a device that steals has no other task left, so its last one is stolen."""
    thief = next((device for device, count in enumerate(stolen) if count), None)
    if thief is None or sum(1 for one in records if one.kind == "out") != tasks:
        return None
    begin = max(_begins([one for one in records if one.device == thief]), key=lambda one: one.start)
    return Mark(begin.start, thief, begin.stream, f"GPU {thief} begins a task that it took from another GPU")


def _begins(records: Sequence[Record]) -> Iterator[Record]:
    """The first record of each task: the one after a copy out of its stream."""
    is_new: dict[int, bool] = {}
    for one in sorted(records, key=lambda one: one.start):
        if is_new.get(one.stream, True):
            yield one
        is_new[one.stream] = one.kind == "out"
