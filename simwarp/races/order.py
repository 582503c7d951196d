"""The happens-before order of the warps in flight.

Within a warp it is a `WarpOrder`; within a block, the time of the last barrier of all its threads; for
everything else (barriers of some warps, flags and locks with fences, clusters) a `VectorClock` per warp.

An *agent* performs asynchronous accesses: copies that one barrier counts, say, or the products of a warp. It
counts as one more warp of the launch, which nobody is ordered with until the accesses have been waited for.

Source: PTX ISA 9.0, sections 8.8 to 8.10 (release and acquire patterns, causality order).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simwarp.lanes import WARP_SIZE
from simwarp.races.shadow import THREAD, Entries, Shadow, is_set
from simwarp.races.vector_clocks import Fact, Publication, Signal, VectorClock
from simwarp.races.warp_order import WarpOrder

if TYPE_CHECKING:
    from simwarp.engine.events import Agent, Chunk

Warps = npt.NDArray[np.intp]
Offsets = npt.NDArray[np.int64]
_Place = tuple[object, bytes]
"""What holds signals, such as an allocation's shadow, and int64 offsets in bytes."""
_NEVER = 1 << 62
_FENCE = "proxy fence"
"""The word of an agent that stands for the proxy fences of one thread: a place in the clocks."""

_FEW = 4
"""Most different clocks that are searched for the oldest time."""
_MOST_REPEATED = 64
"""Most accesses that are known to change nothing if they are repeated."""
_MOST_GROUPS = 256
"""Most groups of offsets that a warp has read signals at, before they are split."""
_WARP_BITS = WARP_SIZE.bit_length() - 1


@dataclass(frozen=True, eq=False, slots=True)
class _PendingRead:
    """A warp's read of a signal at a group of offsets, which its next fence acquires.

    ``from_all`` and ``from_block`` are the clocks to acquire by a wide or narrow fence, ``before`` is the
    warp's clock at the read. ``includes``: the signal's clock includes it. ``signal`` is None if several were
    read. ``wide``: an access that is strong for all blocks read it.
    """

    signal: Signal | None
    from_all: VectorClock | None
    from_block: VectorClock | None
    before: VectorClock | None
    includes: bool
    wide: bool

    def is_again(self, signal: Signal, known: VectorClock | None, wide: bool) -> bool:
        """Whether another read, of a signal whose clocks have not changed, repeats this read."""
        same = self.signal is signal and signal.shared and self.before is known
        return same and self.from_block is not None and self.wide and wide


class Order:
    """The happens-before order of the warps of a chunk, by their numbers in the chunk.

    ``began`` is the time of its first access: agents of earlier chunks had the numbers of its own.

    Attributes
    ----------
    barrier : (warps,) int64
        The time when each warp last passed a barrier of its whole block.
    changes : int
        Grows with each change of a clock, a fence or a signal, except that a warp reads a signal again.
    """

    def __init__(self, chunk: Chunk, signals: bool, began: int = 1) -> None:
        self._signals, self._began = signals, began
        grid = chunk.launch.grid
        self._per_block = chunk.warps_per_block
        self._warps_of_launch = grid[0] * grid[1] * grid[2] * self._per_block
        self._launch_warp = chunk.thread[:, 0] >> _WARP_BITS
        count = self._launch_warp.size
        self.barrier = np.ones(count, np.int64)
        self._oldest_barrier = 1
        """The earliest time in ``barrier`` of a live warp."""
        self._live = np.ones(count, np.bool_)
        self.within_warps = WarpOrder(count)
        self._known = np.full(count, None, np.object_)
        self._advanced: set[int] = set()
        """Warps whose clocks advanced since the last barrier of their block."""
        self._some_known = self._stale = False
        self._past = 1
        self._pending: dict[int, dict[_Place, _PendingRead]] = {}
        """Warp → places of a signal → the read that waits for a fence."""
        self._most_groups: dict[int, int] = {}
        """Warp → number of groups at which they are split."""
        self._fence = np.zeros((2, count), np.int64)
        """The time of each warp's last fence: [0] of any scope, [1] wider than its block."""
        self._fence_barrier = np.zeros((2, count), np.int64)
        self._fence_known = np.full((2, count), None, np.object_)
        self._published: dict[tuple[int, int], Publication] = {}
        self._fenced = np.zeros(count, np.bool_)
        """Whether each warp has executed a fence that a strong write publishes."""
        self._at_fences = np.full((2, count), None, np.object_)
        """The signal of each warp's stores since its last fence: [0] narrow, [1] wide; or None."""
        self.changes = 0
        self._repeated: dict[Hashable, int] = {}
        """Accesses that would change nothing → the number of changes up to which they would not."""
        self._agents: dict[Agent, int] = {}
        """From agent to its number among the warps of the launch."""
        self._words: set[str] = set()
        self._agents_since = _NEVER
        """The time of the first access of an agent, which no barrier of a block orders by itself."""

    # ---- agents -------------------------------------------------------------------------------------

    def entry_of(self, agent: Agent, time: int) -> int:
        """The `Shadow` entry, an int64, for an asynchronous access by an agent at a time."""
        self._agents_since = min(self._agents_since, time)
        self._words.add(agent[0])
        number = self._agents.setdefault(agent, self._warps_of_launch + len(self._agents))
        return time << 32 | number << _WARP_BITS

    def are_agents(self, threads: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Whether thread numbers of `Shadow` entries belong to agents of asynchronous accesses."""
        return threads >> _WARP_BITS >= self._warps_of_launch

    def has_agents(self, word: str) -> bool:
        """Whether any agent of this kind, such as "mbarrier", has made an asynchronous access."""
        return word in self._words

    def are_of(self, word: str, threads: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Whether threads in `Shadow` entries are agents of this kind."""
        agents = [number for (of, _), number in self._agents.items() if of == word]
        return np.isin(threads >> _WARP_BITS, agents)

    def done(self, agent: Agent, time: int) -> VectorClock:
        """The clock of a warp that knows that an agent's accesses up to a time have ended."""
        number = self._agents[agent]
        return VectorClock(self._clock_size, (), ((number, number + 1, time + 1),))

    def learn(self, warps: list[int], clock: VectorClock) -> None:
        """Join a vector clock into the clocks of some warps; warps with equal clocks share the result."""
        self.changes += 1
        joined: dict[VectorClock | None, VectorClock] = {clock: clock}
        for warp in warps:
            known: VectorClock | None = self._known[warp]
            if known not in joined:
                joined[known] = clock.joined(known)
            self._known[warp] = joined[known]
        self._advanced.update(warps)
        self._some_known = self._stale = True

    def publish_done(self, signal: Signal, agent: Agent, time: int, block: int) -> None:
        """Add to the signal of a block of the chunk that an agent's accesses up to a time have ended."""
        self.changes += 1
        owner = int(self._launch_warp[block * self._per_block]) // self._per_block
        signal.publish(self._agents[agent], owner, Publication(self.done(agent, time)), wide=True)

    @property
    def _clock_size(self) -> int:
        return self._warps_of_launch + len(self._agents)

    # ---- proxy fences -------------------------------------------------------------------------------

    def proxy_fence(self, warp: int, lanes: npt.NDArray[np.intp], whole: bool, time: int) -> None:
        """Record that lanes of a warp, all of its live ones if ``whole``, execute ``fence.proxy.async``.

        What the other lanes wrote since the warp's lanes met does not count as fenced.
        """
        self.changes += 1
        known: VectorClock | None = self._known[warp]
        facts: list[Fact] = []
        launch_warp, own = int(self._launch_warp[warp]), time
        if not whole:
            own = max(int(self.barrier[warp]), self.within_warps.met(warp))
            for lane in lanes.tolist():
                agent = (_FENCE, launch_warp * WARP_SIZE + lane)
                number = self._agents.setdefault(agent, self._warps_of_launch + len(self._agents))
                facts.append((number, number + 1, time))
        block = launch_warp // self._per_block * self._per_block
        facts += [
            (block, block + self._per_block, int(self.barrier[warp])),
            (launch_warp, launch_warp + 1, own),
        ]
        parents = () if known is None else (known,)
        fence = VectorClock(self._clock_size, parents, tuple(facts))
        self._known[warp] = VectorClock(self._clock_size, parents, (), (fence,))
        self._advanced.add(warp)
        self._some_known = self._stale = True

    def fenced(
        self, warp: int, threads: npt.NDArray[np.int64], times: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Whether a proxy fence is between accesses of `Shadow` threads and a warp's next access."""
        known: VectorClock | None = self._known[warp]
        clock = np.zeros(0, np.int64) if known is None else known.fenced
        if not clock.size:
            return np.zeros(times.size, np.bool_)
        numbers = threads >> _WARP_BITS
        result = times < np.where(numbers < clock.size, clock[np.minimum(numbers, clock.size - 1)], 0)
        for at in np.flatnonzero(~result).tolist() if self._agents else ():
            lane = self._agents.get((_FENCE, int(threads[at])), clock.size)
            result[at] = lane < clock.size and times[at] < clock[lane]
        return result

    @property
    def is_simple(self) -> bool:
        """Whether barriers of blocks and of whole warps are all that has ordered them."""
        others = self._some_known, self._pending, self._advanced, self._agents, self._fenced.any()
        return self.within_warps.is_simple and not any(others)

    # ---- queries ------------------------------------------------------------------------------------

    def ordered(
        self, warps: npt.NDArray[np.int64], threads: npt.NDArray[np.int64], before: Entries
    ) -> npt.NDArray[np.bool_]:
        """Whether earlier accesses are ordered before the next accesses of these threads."""
        times, earlier = before >> 32, before & THREAD
        warp, earlier_warp = threads >> _WARP_BITS, earlier >> _WARP_BITS
        result = (times < self.barrier[warps]) & (earlier_warp // self._per_block == warp // self._per_block)
        near = np.flatnonzero(~result & (warp == earlier_warp))
        if near.size:
            lanes, others = threads[near] % WARP_SIZE, earlier[near] % WARP_SIZE
            result[near] = self.within_warps.ordered(warps[near], lanes, others, times[near])
        rest = np.flatnonzero(~result) if self._some_known else near
        if self._some_known and rest.size:
            of_others = (earlier_warp[rest] >= self._warps_of_launch) & (times[rest] < self._began)
            known = self._known_times(warps[rest], earlier_warp[rest])
            result[rest] = (times[rest] < known) & ~of_others
        return result

    def knows(self, warp: int, block: int) -> bool:
        """Whether something that a block of the chunk did is ordered before a warp's next access."""
        known: VectorClock | None = self._known[warp]
        warps = self._launch_warp[block * self._per_block : (block + 1) * self._per_block]
        return known is not None and bool(known.times[warps].any())

    def past(self, private: bool) -> int:
        """A time, at least 1: all accesses before it are ordered before all next accesses.

        It may be earlier than necessary. ``private`` is for accesses to one block's memory.
        """
        if private:
            return min(self._oldest_barrier, self._agents_since)
        if self._agents:
            return 1
        if self._stale:
            known = set(self._known[self._live].tolist())
            few = len(known) <= _FEW and None not in known
            self._past = max(1, min((int(one.times.min()) for one in known), default=1)) if few else 1
            self._stale = False
        return self._past

    def _known_times(
        self, warps: npt.NDArray[np.int64], launch_warps: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """The times that the clocks of ``warps`` hold for ``launch_warps``."""
        result = np.zeros(warps.size, np.int64)
        group_of_warp = np.full(self._known.size, -1)
        groups: dict[VectorClock, int] = {}
        asking = np.zeros(self._known.size, np.bool_)
        asking[warps] = True
        for warp in np.flatnonzero(asking).tolist():
            known: Any = self._known[warp]
            if isinstance(known, VectorClock):
                group_of_warp[warp] = groups.setdefault(known, len(groups))
        group = group_of_warp[warps]
        for known, number in groups.items():
            here, times = np.flatnonzero(group == number), known.times
            # a vector clock has no entry for agents that were added after it
            here = here[launch_warps[here] < times.size]
            result[here] = times[launch_warps[here]]
        return result

    # ---- barriers -----------------------------------------------------------------------------------

    def pass_whole(self, warps: Warps, live: npt.NDArray[np.bool_], time: int) -> None:
        """Record that whole blocks pass a barrier; ``live`` (warps,) marks warps that have not exited."""
        self.changes += 1
        self.barrier[warps] = time
        self.within_warps.forget(warps)
        left = self.barrier[live]
        self._oldest_barrier = int(left.min()) if left.size else time
        self._live, self._stale = live, self._some_known
        if self._signals and self._fenced[warps].any():
            self._forget_narrow_fences(warps)
        if self._pending or self._advanced:
            self._share(warps)

    def _forget_narrow_fences(self, warps: Warps) -> None:
        """Forget block-scope fences whose clocks all warps of the block know from a barrier."""
        self._fence[0, warps] = 0
        self._fenced[warps] = self._fence[1, warps] != 0
        self._forget_fence(0, warps)

    def _share(self, warps: Warps) -> None:
        """Join the clocks of the warps of each block that passes a barrier."""
        passing = set(warps.tolist())
        for warp in passing & self._pending.keys():
            self._complete(warp, list(self._pending[warp]), wide=False)
        together: dict[int, VectorClock] = {}
        for warp in self._advanced & passing:  # other warps still have the clock of the last barrier
            block = warp // self._per_block
            together[block] = self._known[warp].joined(together.get(block))
        self._advanced -= passing
        for block, known in together.items():
            self._known[block * self._per_block : (block + 1) * self._per_block] = known
        self._stale = True

    def pass_some(self, came: Warps, arrived: Iterable[tuple[int, Publication]], time: int) -> None:
        """Record that waiting warps pass a barrier: they acquire the clocks of all that waited or arrived."""
        signals: dict[int, Signal] = {}
        known = [(warp, self.now(warp, time)) for warp in came.tolist()]
        for warp, published in (*known, *arrived):
            self.publish(signals.setdefault(warp // self._per_block, Signal()), warp, published, wide=True)
        for warp in came.tolist():
            self.acquire(warp, signals[warp // self._per_block])

    # ---- signals ------------------------------------------------------------------------------------

    def was_repeated(self, access: Hashable) -> bool:
        """Whether nothing has changed since the same access, which itself changed nothing."""
        return self._repeated.get(access) == self.changes

    def note_repeated(self, access: Hashable) -> None:
        """Record that an access, such as the poll of a flag, changes nothing if it is repeated now."""
        if len(self._repeated) >= _MOST_REPEATED:
            self._repeated.clear()
        self._repeated[access] = self.changes

    def now(self, warp: int, time: int) -> Publication:
        """A warp's clock, including its own accesses so far."""
        return self._publication(warp, self._known[warp], time, int(self.barrier[warp]))

    def _publication(self, warp: int, known: VectorClock | None, time: int, barrier: int) -> Publication:
        launch_warp = int(self._launch_warp[warp])
        first = launch_warp // self._per_block * self._per_block
        facts = (first, first + self._per_block, barrier), (launch_warp, launch_warp + 1, time)
        knowledge = VectorClock(self._clock_size, () if known is None else (known,), facts)
        return Publication(knowledge, known)

    def at_fence(self, warp: int, wide: bool) -> list[tuple[Publication, bool]]:
        """A warp's clocks at its last fences, each with whether warps of all blocks may acquire it."""
        for_block, for_all = self._fence[:, warp].tolist()
        found: list[tuple[Publication, bool]] = []
        if wide and for_all:
            found.append((self._at_fence(1, warp), True))
        if for_block and (for_block > for_all or not wide):
            found.append((self._at_fence(0, warp), False))
        return found

    def _at_fence(self, scope: int, warp: int) -> Publication:
        if (scope, warp) not in self._published:
            time, barrier = int(self._fence[scope, warp]), int(self._fence_barrier[scope, warp])
            known = self._fence_known[scope, warp]
            self._published[scope, warp] = self._publication(warp, known, time, barrier)
        return self._published[scope, warp]

    def publish(self, signal: Signal, warp: int, publication: Publication, wide: bool) -> None:
        """Add the clock that a warp publishes to a signal, for its own block only unless ``wide``."""
        self.changes += 1
        launch_warp = int(self._launch_warp[warp])
        signal.publish(launch_warp, launch_warp // self._per_block, publication, wide)

    def acquire(self, warp: int, signal: Signal, wide: bool = True) -> None:
        """Join the clock of a signal into the clock of the warp that acquires it."""
        launch_warp = int(self._launch_warp[warp])
        heard, known = signal.acquired(launch_warp // self._per_block, wide), self._known[warp]
        if heard is not None:
            self._advance(warp, signal, heard, wide and signal.includes(launch_warp, known))

    def signals_at_fences(self, warps: Warps, wide: bool) -> npt.NDArray[Any]:
        """The signals of strong stores by these warps: their clocks at their last fences, or None."""
        signals = self._at_fences[int(wide)]
        for warp in np.unique(warps[self._fenced[warps] & ~is_set(signals[warps])]).tolist():
            if publications := self.at_fence(warp, wide):
                signals[warp] = self.signal_of(warp, publications)
        return signals[warps]

    def signal_of(self, warp: int, publications: Iterable[tuple[Publication, bool]]) -> Signal:
        """A new signal, for several offsets, with the publications of a warp, each block-wide or global."""
        signal = Signal()
        signal.shared = True
        for publication, wide in publications:
            self.publish(signal, warp, publication, wide)
        return signal

    def read(self, warp: int, owner: object, offsets: Offsets, signal: Signal, wide: bool) -> None:
        """Record that a warp reads an owner's signal at some offsets, which its next fence acquires."""
        launch_warp = int(self._launch_warp[warp])
        block, known = launch_warp // self._per_block, self._known[warp]
        pending, place = self._pending.setdefault(warp, {}), (owner, offsets.tobytes())
        old = pending.get(place)
        if old is not None and old.is_again(signal, known, wide):
            return
        from_block = signal.acquired(block, wide=False)
        from_all = signal.acquired(block, wide=True) if wide else from_block
        includes = wide and signal.includes(launch_warp, known)
        _add(pending, place, _PendingRead(signal, from_all, from_block, known, includes, wide))
        if len(pending) > self._most_groups.get(warp, _MOST_GROUPS):
            single: dict[_Place, _PendingRead] = {}
            for (there, group), read in pending.items():
                for offset in np.frombuffer(group, np.int64):
                    _add(single, (there, offset.tobytes()), read)
            self._pending[warp], self._most_groups[warp] = single, 2 * len(single) + _MOST_GROUPS

    def acquire_read(self, warp: int, shadow: Shadow, offsets: Offsets, wide: bool) -> None:
        """Acquire the signals that a warp read at some offsets before."""
        pending, found = self._pending.get(warp, {}), list[_Place]()
        for place in [place for place in pending if place[0] is shadow]:
            group = np.frombuffer(place[1], np.int64)
            here = np.isin(group, offsets)
            if here.all():
                found.append(place)
            elif here.any():
                heard, some = pending.pop(place), (shadow, group[here].tobytes())
                _add(pending, (shadow, group[~here].tobytes()), heard)
                _add(pending, some, heard)
                found.append(some)
        self._complete(warp, list(dict.fromkeys(found)), wide)

    def has_pending(self, warp: int) -> bool:
        """Whether a warp has read signals that no fence has acquired."""
        return warp in self._pending

    def have_pending(self, warps: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of these warps `has_pending`."""
        if not self._pending:
            return np.zeros(warps.size, np.bool_)
        return np.isin(warps, np.fromiter(self._pending, np.int64, len(self._pending)))

    def fence(self, warps: Warps, wide: bool, time: int) -> None:
        """Record that warps execute a fence; unless ``wide``, it orders accesses within the block only."""
        for warp in self._pending.keys() & set(warps.tolist()) if self._pending else ():
            self._complete(warp, list(self._pending[warp]), wide)
        self.changes += 1
        self._fence_at(0, warps, time)
        if wide:
            self._fence_at(1, warps, time)
        self._fenced[warps] = True

    def _fence_at(self, scope: int, warps: Warps, time: int) -> None:
        self._fence[scope, warps], self._fence_barrier[scope, warps] = time, self.barrier[warps]
        self._fence_known[scope, warps] = self._known[warps]
        self._forget_fence(scope, warps)

    def _forget_fence(self, scope: int, warps: Warps) -> None:
        """Discard the data derived from the last fence of a scope by these warps."""
        self._at_fences[:, warps] = None
        if self._published:
            for warp in warps.tolist():
                self._published.pop((scope, warp), None)

    def launch_warp(self, warp: int) -> int:
        """The number within the launch of a warp numbered in the chunk."""
        return int(self._launch_warp[warp])

    def has_fenced(self, warps: npt.NDArray[np.int64]) -> bool:
        """Whether any of these warps has executed a fence whose clock its block does not know yet."""
        return bool(self._fenced[warps].any())

    def _complete(self, warp: int, places: list[_Place], wide: bool) -> None:
        """Acquire the signals that a warp read at some places."""
        pending = self._pending.get(warp, {})
        self.changes += len(places)
        for place in places:
            heard = pending[place]
            if wide:
                del pending[place]
                if heard.from_all is not None:
                    includes = heard.includes and heard.before is self._known[warp]
                    self._advance(warp, heard.signal, heard.from_all, includes)
            elif heard.from_block is not None:
                pending[place] = replace(heard, from_block=None)
                self._advance(warp, heard.signal, heard.from_block, False)
        if not pending:
            self._pending.pop(warp, None)
            self._most_groups.pop(warp, None)

    def _advance(self, warp: int, signal: Signal | None, heard: VectorClock, includes: bool) -> None:
        """Join an acquired clock into a warp's clock, or replace the latter if the former includes it."""
        known: Any = self._known[warp]
        if heard is known:
            return
        now = heard if includes else heard.joined(known)
        if now is known:
            return
        self.changes += 1
        self._known[warp] = now
        if includes and signal is not None:
            signal.include(int(self._launch_warp[warp]), heard)
        self._advanced.add(warp)
        self._some_known = self._stale = True


def _add(pending: dict[_Place, _PendingRead], place: _Place, heard: _PendingRead) -> None:
    """Add a pending read of a signal; it replaces an earlier read of the same signal."""
    old = pending.get(place)
    if old is not None and (old.signal is None or old.signal is not heard.signal or old.wide > heard.wide):
        from_all, from_block = _join(heard.from_all, old.from_all), _join(heard.from_block, old.from_block)
        heard = replace(heard, signal=None, from_all=from_all, from_block=from_block)
    pending[place] = heard


def _join(one: VectorClock | None, other: VectorClock | None) -> VectorClock | None:
    return other if one is None else one.joined(other)
