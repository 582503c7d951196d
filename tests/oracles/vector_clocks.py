"""Data races by their definition, in plain Python: a vector clock per thread, and every access kept.

Slow and literal, a twin for `simwarp.races`. Happens-before is Lamport's (1978), kept by vector clocks as in
FastTrack (Flanagan and Freund, 2009), but with all accesses kept instead of the last ones. What orders
threads, and when two accesses are *morally strong*, is in the PTX ISA 9.0, sections 8.7 to 8.9:

- A barrier orders what its threads did before it, those that only arrive included, before what those that
  wait do after it.
- A *release pattern* on a location is a release operation on it, or one followed by a strong write to it, or
  a fence followed by a strong write to it.
- An *acquire pattern* is an acquire operation, or a strong read followed by one, or by a fence.
- A write is *observed* by a strong read that sees it, or that sees the last of a chain of atomic operations
  that begins with it, if their scopes include each other. It happens before later operations of the reader.
- A release pattern *synchronises* with an acquire pattern that observes it: all that was done before the
  first happens before all that is done after the second.

``fence.sc`` counts as ``fence.acq_rel``: a program cannot choose the order of such fences.

One exception, a common idiom: a write that does not change the bits does not race with earlier writes. Nor
do threads that write equal bits by one instruction.

Examples
--------
>>> clocks = VectorClocks({"t": 0, "u": 0})
>>> clocks.write("t", 1, {0: 5})
>>> clocks.barrier(["t", "u"])
>>> clocks.read("u", 2, [0])
>>> clocks.write("t", 3, {0: 6})
>>> clocks.races
{Race(lines=(2, 3), threads=('u', 't'), location=0)}
>>> clocks.lines()
{(2, 3): {0}}
"""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import permutations
from typing import NamedTuple

WEAK, RELAXED, ACQUIRE, RELEASE, ACQ_REL = "weak", "relaxed", "acquire", "release", "acq_rel"
ACQUIRES, RELEASES = (ACQUIRE, ACQ_REL), (RELEASE, ACQ_REL)


class Race(NamedTuple):
    """Two unordered accesses of one location, the earlier one first."""

    lines: tuple
    threads: tuple
    location: object


@dataclass(frozen=True, eq=False)
class Operation:
    """An operation of a thread, with what decides whether it is morally strong with another one.

    Attributes
    ----------
    thread, block, line
    strong : bool
    scope : str
        "cta", or one that holds all blocks: "gpu", "sys".
    epoch : int
        Its thread's own clock at that moment.
    reads, writes : bool
    """

    thread: object
    block: object
    line: object
    strong: bool
    scope: str
    epoch: int
    reads: bool = False
    writes: bool = False

    def includes(self, other):
        return self.scope != "cta" or self.block == other.block

    def morally_strong(self, other):
        return self.strong and other.strong and self.includes(other) and other.includes(self)


@dataclass(frozen=True, eq=False)
class Release:
    """The first operation of a release pattern, and the vector clock that it publishes."""

    operation: Operation
    clock: dict


@dataclass(frozen=True, eq=False)
class Publication:
    """The writes of a location that its next strong read observes.

    Attributes
    ----------
    writer : Operation
    chain : tuple of Operation
        The writer, and the writes that its atomic operation observed.
    releases : tuple of Release
        Those of all these.
    """

    writer: Operation
    chain: tuple
    releases: tuple


@dataclass
class Thread:
    """The state of a thread: its vector clock.

    Attributes
    ----------
    clock : dict
        Of each thread, up to which epoch its operations happened before what this thread does now; and
        single operations that did.
    fences : dict of scope to Release
        The last fence of each scope.
    releases : dict of location to Release
        The last release operation on a location: strong writes to it that follow carry it along.
    observed : dict of location to list of Release
        What strong reads of a location saw and acquire operations may still make use of.
    """

    clock: dict
    fences: dict = field(default_factory=dict)
    releases: dict = field(default_factory=dict)
    observed: dict = field(default_factory=lambda: defaultdict(list))


class VectorClocks:
    """Receives the operations of all threads in execution order and finds the data races.

    Parameters
    ----------
    blocks : dict of thread to block

    Attributes
    ----------
    races : set of Race
    excused : set of locations
        Where writes that nothing orders are no race, as they leave the bits as they are.
    values : dict of location to value
        What was last written.
    """

    def __init__(self, blocks):
        self.blocks = blocks
        self.threads = {thread: Thread({thread: 1}) for thread in blocks}
        self.history = defaultdict(list)
        self.published = {}
        self.values = {}
        self.races = set()
        self.excused = set()

    def lines(self):
        """The lines of racing accesses, with the locations on which they race."""
        found = defaultdict(set)
        for race in self.races:
            found[race.lines].add(race.location)
        return dict(found)

    # ---- accesses ------------------------------------------------------------------------------------

    def read(self, thread, line, locations, order=WEAK, scope="sys"):
        operation = self._operation(thread, line, order, scope, reads=True)
        for location in locations:
            self._meet(location, operation)
            self.history[location].append(operation)
        self._observe(operation, order, locations)

    def write(self, thread, line, values, order=WEAK, scope="sys"):
        """Write ``values``, a dict of location to value."""
        self.write_together(line, {thread: values}, order, scope)

    def write_together(self, line, values, order=WEAK, scope="sys"):
        """Write by one instruction of several threads; of ``values`` by thread, the last remain."""
        operations = {thread: self._operation(thread, line, order, scope, writes=True) for thread in values}
        for thread, operation in operations.items():
            for location, value in values[thread].items():
                self._meet(location, operation, changes=self.values.get(location) != value)
        for one, other in permutations(operations.values(), 2):
            for location in values[one.thread].keys() & values[other.thread].keys():
                changes = values[one.thread][location] != values[other.thread][location]
                self._compare(location, one, other, changes)
        for thread, operation in operations.items():
            for location in values[thread]:
                self.history[location].append(operation)
            self.values |= values[thread]
            self._publish(operation, order, values[thread], {})

    def atomic(self, thread, line, values, order=RELAXED, scope="gpu"):
        """Read-modify-write: ``values`` are the new values of the locations."""
        operation = self._operation(thread, line, order, scope, reads=True, writes=True)
        for location in values:
            self._meet(location, operation)
            self.history[location].append(operation)
        self.values |= values
        before = {location: self._visible(operation, location) for location in values}
        self._observe(operation, order, values)
        self._publish(operation, order, values, before)

    def _operation(self, thread, line, order, scope, **access):
        epoch = self.threads[thread].clock[thread]
        return Operation(thread, self.blocks[thread], line, order != WEAK, scope, epoch, **access)

    def _meet(self, location, later, changes=True):
        """Compare an access with all earlier accesses of the same location."""
        for earlier in self.history[location]:
            self._compare(location, earlier, later, changes)

    def _compare(self, location, earlier, later, changes):
        clock = self.threads[later.thread].clock
        conflict = (later.writes or earlier.writes) and not earlier.morally_strong(later)
        if not conflict or clock.get(earlier.thread, 0) >= earlier.epoch or earlier in clock:
            return
        if earlier.reads or later.reads or changes:
            lines, threads = (earlier.line, later.line), (earlier.thread, later.thread)
            self.races.add(Race(lines, threads, location))
        else:
            self.excused.add(location)

    # ---- release and acquire ---------------------------------------------------------------------------

    def fence(self, thread, scope="sys"):
        operation, state = self._operation(thread, None, ACQ_REL, scope), self.threads[thread]
        for location in state.observed:
            self._acquire(operation, location)
        state.fences[scope] = Release(operation, self._pass_on(thread))

    def _publish(self, operation, order, locations, before):
        """Record at the locations the publication that their next strong read observes."""
        state = self.threads[operation.thread]
        release = Release(operation, self._pass_on(operation.thread)) if order in RELEASES else None
        for location in locations:
            self.published.pop(location, None)
            if not operation.strong:
                continue
            if release is not None:
                state.releases[location] = release
            own = [
                *state.fences.values(),
                *([state.releases[location]] if location in state.releases else []),
            ]
            chain, releases = [operation], own
            for publication in before.get(location, ()):
                chain, releases = [*publication.chain, *chain], [*publication.releases, *releases]
            self.published[location] = Publication(operation, tuple(chain), tuple(dict.fromkeys(releases)))

    def _visible(self, operation, location):
        """The publications (none or one) that a strong read observes."""
        publication = self.published.get(location)
        if publication is None or not publication.writer.morally_strong(operation):
            return []
        return [publication]

    def _observe(self, operation, order, locations):
        state = self.threads[operation.thread]
        for location in locations:
            for publication in self._visible(operation, location):
                join(state.clock, dict.fromkeys(publication.chain, 1))
                state.observed[location] += publication.releases
            if order in ACQUIRES:
                self._acquire(operation, location)

    def _acquire(self, operation, location):
        """Synchronise with the observed releases of a location that are morally strong with it."""
        state, rest = self.threads[operation.thread], []
        for release in dict.fromkeys(state.observed[location]):
            if release.operation.morally_strong(operation):
                join(state.clock, release.clock)
            else:
                rest.append(release)
        state.observed[location] = rest

    # ---- barriers --------------------------------------------------------------------------------------

    def arrive(self, thread):
        """The vector clock that a thread contributes to a barrier at which it does not wait."""
        return self._pass_on(thread)

    def barrier(self, threads, arrived=()):
        """Let threads pass a barrier together, joined with the clocks of threads that only arrived."""
        together = {}
        for clock in [*arrived, *map(self._pass_on, threads)]:
            join(together, clock)
        for thread in threads:
            join(self.threads[thread].clock, together)

    def _pass_on(self, thread):
        """A copy of a thread's clock, without later operations of the thread."""
        clock = self.threads[thread].clock
        copy = dict(clock)
        clock[thread] += 1
        return copy


def join(clock, other):
    """Join the vector clock ``other`` into ``clock``."""
    for key, epoch in other.items():
        if clock.get(key, 0) < epoch:
            clock[key] = epoch
