"""Flags and locks by PTX ISA 9.0, section 8.8, lane by lane, with one clock per warp.

A twin for `simwarp.races`. A clock is a dict from warp to time: accesses of that warp before that time are
known. A strong write publishes what its warp knew at its last fence (``fence`` or a barrier of its block), or
knows now if it releases, or knew at its last release at that offset. A strong read takes what is published at
its offset: at once if it acquires, else at the next fence. What is narrow reaches the block only.
"""

from collections import defaultdict


def joined(*clocks):
    """The maximum of clocks."""
    result = defaultdict(int)
    for clock in clocks:
        for warp, time in clock.items():
            result[warp] = max(result[warp], time)
    return dict(result)


class WarpSignals:
    """The clocks of all warps, and what they published at each offset of one allocation."""

    def __init__(self, blocks, per_block):
        self.per_block = per_block
        warps = range(blocks * per_block)
        self.clock = {warp: {} for warp in warps}
        self.fences = {warp: {} for warp in warps}
        """Warp → whether wide → its clock at its last fence of that kind."""
        self.releases = {}
        self.places = defaultdict(list)
        """Offset → what is published there: clock, block, whether wide."""
        self.heard = {warp: [] for warp in warps}
        """What strong reads found: offset, clock from the own block, clock from all."""

    def block(self, warp):
        return warp // self.per_block

    def now(self, warp, time):
        return joined(self.clock[warp], {warp: time})

    def fence(self, warp, wide, time):
        self._complete(warp, None, wide)
        for scope in {False, wide}:
            self.fences[warp][scope] = self.now(warp, time)

    def barrier(self, block, time):
        warps = range(block * self.per_block, (block + 1) * self.per_block)
        for warp in warps:
            self._complete(warp, None, wide=False)
        together = joined(*(self.clock[warp] for warp in warps), dict.fromkeys(warps, time))
        for warp in warps:
            self.clock[warp] = together
            self.fences[warp][False] = together

    def lane(self, warp, offset, time, *, reads, writes, replaces, acquires, releases, wide):
        """The access of one lane; the arguments are those of `StrongAccess`."""
        if reads:
            own, every = self._found(warp, offset, wide)
            self.heard[warp].append((offset, own, every))
            if acquires:
                self._complete(warp, offset, wide)
        if writes:
            published = self._published(warp, offset, time, releases, wide)
            self.places[offset] = published if replaces else self.places[offset] + published

    def _published(self, warp, offset, time, releases, wide):
        block = self.block(warp)
        if releases:
            self.releases[warp, offset] = self.now(warp, time), wide
            return [(self.now(warp, time), block, wide)]
        clocks = [(clock, scope and wide) for scope, clock in self.fences[warp].items()]
        if (warp, offset) in self.releases:
            clock, scope = self.releases[warp, offset]
            clocks.append((clock, scope and wide))
        return [(clock, block, scope) for clock, scope in clocks]

    def _found(self, warp, offset, wide):
        """What a strong read finds: from the own block, and from all if it is wide."""
        own = [clock for clock, block, _ in self.places[offset] if block == self.block(warp)]
        every = [clock for clock, _, scope in self.places[offset] if scope and wide]
        return joined(*own), joined(*own, *every)

    def _complete(self, warp, offset, wide):
        """Acquire what was read at an offset, or anywhere."""
        for at, own, every in self.heard[warp]:
            if offset in (None, at):
                self.clock[warp] = joined(self.clock[warp], every if wide else own)
