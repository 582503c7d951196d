"""Random programs on `simwarp.Machine`: ordered by events they give NumPy's answer under every timing.

A program is a list of copies and routines on tiles of two devices and on the blocks of two host matrices.
Each operation waits for the earlier ones that it conflicts with: by the order of its stream, by an event, or
through the host. Its result must be that of the same program in NumPy, one operation after the other. Without
one of its waits a program has a race, unless other waits replace it, and the machine must report that race
under every timing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simwarp
from simwarp.machine import Link, Route, Shared, TileRaceError, Topology
from simwarp.machine.footprints import Footprint, footprint, overlap
from support.machines import Function, pinned, small

DEVICES, TILES, STREAMS, BLOCKS = 2, 3, 2, 4
"""Devices, tiles and streams of each, and blocks of rows of each host matrix."""
ROWS, COLUMNS = 2, 3
TOPOLOGY: Topology = small(
    DEVICES,
    peers={(0, 1): Link(0.5, 32.0), (1, 0): Link(0.5, 32.0)},
    shared=(Shared((Route("in", 0), Route("in", 1), Route("out", 1)), 20.0),),
)

Place = tuple[str, int, int]
"""A tile ("tile", device, number), or a block ("host", matrix, number)."""


@dataclass(frozen=True)
class Step:
    """An operation in a stream: a copy to a place, or a routine that adds to it."""

    device: int
    stream: int
    reads: tuple[Place, ...]
    writes: Place

    def conflicts(self, other: Step) -> bool:
        """Whether the order of two steps matters."""
        mine, theirs = {*self.reads, self.writes}, {*other.reads, other.writes}
        return self.writes in theirs or other.writes in mine


@st.composite
def steps(draw: st.DrawFn) -> Step:
    device, stream = draw(st.integers(0, DEVICES - 1)), draw(st.integers(0, STREAMS - 1))
    tile = st.integers(0, TILES - 1)
    mine = ("tile", device, draw(tile))
    host = ("host", draw(st.integers(0, 1)), draw(st.integers(0, BLOCKS - 1)))
    kind = draw(st.sampled_from(["in", "out", "peer", "routine"]))
    if kind == "in":
        return Step(device, stream, (host,), mine)
    if kind == "out":
        return Step(device, stream, (mine,), host)
    if kind == "peer":
        return Step(device, stream, (("tile", 1 - device, draw(tile)),), mine)
    return Step(device, stream, (("tile", device, draw(tile)), mine), mine)


def initial() -> dict[Place, Any]:
    """The host matrices, and zeros in the tiles."""
    values: dict[Place, Any] = {}
    for matrix in range(2):
        for block in range(BLOCKS):
            values["host", matrix, block] = np.arange(ROWS * COLUMNS, dtype=float).reshape(ROWS, COLUMNS) + (
                100.0 * matrix + 10 * block
            )
    for device in range(DEVICES):
        for number in range(TILES):
            values["tile", device, number] = np.full((ROWS, COLUMNS), float(device + number))
    return values


def expected(program: list[Step]) -> dict[Place, Any]:
    """The program in NumPy."""
    values = initial()
    for step in program:
        values[step.writes] = sum((values[place] for place in step.reads), np.zeros((ROWS, COLUMNS)))
    return values


class Run:
    """A program on a machine; ``dropped`` is the number of a wait that is left out."""

    def __init__(self, machine: Any, program: list[Step], dropped: int | None = None) -> None:
        self.machine, self.program, self.dropped = machine, program, dropped
        self.matrices = [np.zeros((ROWS * BLOCKS, COLUMNS), order="F") for _ in range(2)]
        pinned(machine, *self.matrices)
        self.streams = [[machine.stream(d) for _ in range(STREAMS)] for d in range(DEVICES)]
        memories = [machine.allocate(d, 8 * ROWS * TILES * COLUMNS) for d in range(DEVICES)]
        self.tiles = {
            ("tile", d, t): memories[d].tile(ROWS, COLUMNS, np.float64, 8 * ROWS * t, ROWS * TILES)
            for d in range(DEVICES)
            for t in range(TILES)
        }
        self.waits: list[tuple[int, int]] = []
        self.fill()

    def block(self, place: Place) -> Any:
        _, matrix, number = place
        return self.matrices[matrix][ROWS * number : ROWS * (number + 1)]

    def fill(self) -> None:
        scratch = np.zeros((ROWS, COLUMNS), order="F")
        self.machine.pin(scratch)
        for place, values in initial().items():
            if place[0] == "host":
                self.block(place)[...] = values
            else:
                scratch[...] = values
                self.machine.copy_in(self.streams[place[1]][0], scratch, self.tiles[place])
                self.machine.run([])

    def queue(self, step: Step) -> None:
        stream, (first, *_) = self.streams[step.device][step.stream], step.reads
        if len(step.reads) == 2:
            tiles = tuple(self.tiles[place] for place in step.reads)
            self.machine.launch(stream, Function(_add, tiles, (self.tiles[step.writes],), 10.0))
        elif first[0] == "host":
            self.machine.copy_in(stream, self.block(first), self.tiles[step.writes])
        elif step.writes[0] == "host":
            self.machine.copy_out(stream, self.tiles[first], self.block(step.writes))
        else:
            self.machine.copy_peer(stream, self.tiles[first], self.tiles[step.writes])

    def worker(self, host_waits: set[int]) -> Any:
        """Queue all steps; those in ``host_waits`` are ordered by the host, the others by events."""
        events: list[Any] = []
        for number, step in enumerate(self.program):
            for earlier in needed(self.program, number):
                self.waits.append((earlier, number))
                if len(self.waits) - 1 == self.dropped:
                    continue
                if number in host_waits:
                    yield events[earlier]
                else:
                    self.machine.wait(self.streams[step.device][step.stream], events[earlier])
            self.queue(step)
            events.append(self.machine.record(self.streams[step.device][step.stream]))

    def values(self) -> dict[Place, Any]:
        found = {place: tile.memory.view(tile) for place, tile in self.tiles.items()}
        for matrix in range(2):
            found |= {place: self.block(place) for b in range(BLOCKS) if (place := ("host", matrix, b))}
        return found


def _add(reads: Any, writes: Any) -> None:
    writes[0][...] = reads[0] + reads[1]


def needed(program: list[Step], number: int) -> list[int]:
    """The earlier steps of other streams that a step conflicts with."""
    step = program[number]
    return [
        earlier
        for earlier, other in enumerate(program[:number])
        if step.conflicts(other) and (other.device, other.stream) != (step.device, step.stream)
    ]


def ordered_without(program: list[Step], dropped: tuple[int, int]) -> bool:
    """Whether the other waits, and the order of streams, still order the two steps of a dropped wait."""
    edges = {
        (earlier, later)
        for later, step in enumerate(program)
        for earlier, other in enumerate(program[:later])
        if (other.device, other.stream) == (step.device, step.stream)
        or (step.conflicts(other) and (earlier, later) != dropped)
    }
    reached = {dropped[0]}
    for later in range(dropped[0] + 1, len(program)):
        if any((earlier, later) in edges for earlier in reached):
            reached.add(later)
    return dropped[1] in reached


def machine(seed: int | None, jitter: float) -> Any:
    return simwarp.Machine(TOPOLOGY, seed=seed, jitter=jitter)


SEEDS = st.none() | st.integers(0, 1 << 20)
JITTER = st.sampled_from([0.0, 0.3, 3.0])


@pytest.mark.slow
@given(st.lists(steps(), max_size=14), st.sets(st.integers(0, 13), max_size=3), SEEDS, JITTER)
def test_an_ordered_program_gives_the_answer_of_numpy(program, host_waits, seed, jitter) -> None:
    run = Run(machine(seed, jitter), program)
    run.machine.run([run.worker(host_waits)])
    values = run.values()
    for place, value in expected(program).items():
        assert (values[place] == value).all(), place


@pytest.mark.slow
@given(st.lists(steps(), min_size=2, max_size=14), st.integers(0), SEEDS, JITTER)
def test_a_dropped_wait_is_a_race_unless_other_waits_order_the_two(program, which, seed, jitter) -> None:
    waits = [(earlier, later) for later in range(len(program)) for earlier in needed(program, later)]
    if not waits:
        return
    dropped = which % len(waits)
    run = Run(machine(seed, jitter), program, dropped)
    if ordered_without(program, waits[dropped]):
        run.machine.run([run.worker(set())])
        assert all((run.values()[place] == value).all() for place, value in expected(program).items())
    else:
        with pytest.raises(TileRaceError):
            run.machine.run([run.worker(set())])


@settings(max_examples=5)
@given(st.integers(0, 1 << 20))
def test_most_dropped_waits_are_found(seed: int) -> None:
    """In random programs of 12 steps a quarter of the waits or more is not replaced by others."""
    luck, found, tried = random.Random(seed), 0, 0
    while tried < 20:
        program = [_step(luck) for _ in range(12)]
        waits = [(earlier, later) for later in range(12) for earlier in needed(program, later)]
        if not waits:
            continue
        run = Run(machine(luck.randrange(1 << 20), 0.5), program, luck.randrange(len(waits)))
        tried += 1
        try:
            run.machine.run([run.worker(set())])
        except TileRaceError:
            found += 1
    assert found >= 5


def _step(luck: random.Random) -> Step:
    device, stream = luck.randrange(DEVICES), luck.randrange(STREAMS)
    mine = ("tile", device, luck.randrange(TILES))
    host = ("host", luck.randrange(2), luck.randrange(BLOCKS))
    other = ("tile", luck.randrange(DEVICES), luck.randrange(TILES))
    if other[1] != device:
        return Step(device, stream, (other,), mine)
    return luck.choice(
        [
            Step(device, stream, (host,), mine),
            Step(device, stream, (mine,), host),
            Step(device, stream, (other, mine), mine),
        ]
    )


# --------------------------------------------------------------------------------------------- footprints


def _bytes(of: Footprint) -> set[int]:
    return {of.start + run * of.pitch + byte for run in range(of.runs) for byte in range(of.width)}


@st.composite
def footprints(draw: st.DrawFn) -> Footprint:
    width = draw(st.integers(1, 6))
    pitch = draw(st.integers(width, 12))
    return footprint(draw(st.integers(0, 40)), width, pitch, draw(st.integers(1, 5)))


@settings(max_examples=150)
@given(footprints(), footprints())
def test_footprints_overlap_where_they_have_a_common_byte(a: Footprint, b: Footprint) -> None:
    assert overlap(a, b) == overlap(b, a) == bool(_bytes(a) & _bytes(b))
    assert min(_bytes(a)) == a.start
    assert max(_bytes(a)) == a.end - 1
