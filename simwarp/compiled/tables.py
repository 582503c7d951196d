"""The tables that Python and compiled code share, as words of 64 bits: what stands where."""

from __future__ import annotations

from enum import IntEnum, auto


class _Word(IntEnum):
    """The number of a word in its table, from 0 on."""

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[int]) -> int:
        return count


class Context(_Word):
    """What a run of the driver needs and returns.

    ``EXECUTED`` thread-instructions and ``STEPS`` are counted; ``QUOTA`` warps-times-steps may be run before
    the driver returns, ``BUDGET`` steps at most; ``SPLITS`` is 1 where a sparse group runs on a compact copy.
    The rest is for accesses to memory: addresses of the tables below, and of space for a step's lanes.
    """

    EXECUTED = auto()
    STEPS = auto()
    QUOTA = auto()
    BUDGET = auto()
    SEGMENT = auto()
    REASON = auto()
    LOOPS = auto()
    WARPS = auto()
    SPLITS = auto()
    PREPARE = auto()
    """The address of `simwarp.compiled.accesses`' function."""
    ACCESSES = auto()
    LISTS = auto()
    """Records that the accesses may reach, one list behind the other."""
    RECORDS = auto()
    ROWS = auto()
    AT = auto()
    """(warps, 32): the addresses of a step's lanes; once they are checked, those of this process."""
    MASKS = auto()
    """(warps,) words of 32 bits: the lanes that execute the access."""
    UNITS = auto()
    """(warps, 32): the shadow's unit that each lane accesses first."""
    REACHED = auto()
    """(warps,): the record that each warp accesses."""
    OLD = auto()
    """(warps, MOST_PIECES, 32): entries that a step replaces."""
    BEST = auto()
    """Likewise: the second reader that each lane proposes."""
    WORTH = auto()
    """Likewise: how far it is from the last one."""
    TIME = auto()
    """The time of the next access that the race detector records."""
    TIMES = auto()
    """The step of each such access since the driver was entered."""
    TICKS = auto()
    MOST_TICKS = auto()
    READS = auto()
    """Reads that are not in the shadows yet."""
    COUNT_OF_READS = auto()
    MOST_READS = auto()
    PER_BLOCK = auto()
    """Warps of a block."""
    LIVE = auto()
    """(warps,) words of 32 bits: the lanes that have not exited."""
    COUNT_OF_RECORDS = auto()
    MEETS_BLOCK = auto()
    """1: a barrier of all threads passes where all have come; 0: NumPy executes it."""
    MEETS_WARP = auto()
    """Likewise for operations of warps."""
    DETECTS = auto()
    """1: there is a race detector."""
    PASSED = auto()
    """1: a barrier of all threads was passed."""
    MET = auto()
    """1: all lanes of a warp have met."""


LOADS, STORES, MEETS_BLOCK, MEETS_WARP = range(4)
"""What a step does that all its warps are prepared for."""


class Access(_Word):
    """A load, store or barrier of the kernel in this launch.

    A step has `LINES` lines: of a generic address, one for each state space that it may point to, in order;
    else the first one alone. A window has the bytes from ``FIRST`` on; ``LIMIT`` is the last address in it
    where an access fits. ``MOVE`` is the word of a row that holds the window's place in its memory,
    ``STRIDE`` the distance of two lanes' windows; generic addresses of the window start at ``START``.
    """

    KIND = auto()
    WIDTH = auto()
    STEP = auto()
    FOREIGN = auto()
    """1: NumPy executes it."""
    WATCHED = auto()
    """1: the race detector records it."""
    FIRST = auto()
    LIMIT = auto()
    MOVE = auto()
    STRIDE = auto()
    START = auto()
    GENERIC = auto()
    """1: the address's window selects the line."""
    LIST = auto()
    COUNT = auto()
    CAME = auto()
    """1: the barrier was passed since the driver was entered."""


class Record(_Word):
    """An allocation, and the race detector's shadow of it."""

    BASE = auto()
    SIZE = auto()
    DATA = auto()
    MARKS = auto()
    """The marks of written bits; 0 if all are written."""
    READ_ONLY = auto()
    UNFIT = auto()
    """1: the allocation has no shadow, or one with entries that compiled code does not read."""
    SHIFT = auto()
    """The shadow's unit has 2 ** SHIFT bytes."""
    WRITTEN = auto()
    WRITTEN_ALSO = auto()
    READ = auto()
    READ_ALSO = auto()
    PAST = auto()
    """Entries below are ordered before all accesses."""
    LAST_WRITE = auto()
    LAST_ALSO = auto()
    LAST_READ = auto()
    """Entries: the last ones, in READ or still among the reads of the context."""
    LAST_KNOWN = auto()
    """The last one in READ."""
    PENDING = auto()
    """1: reads of it are noted."""
    PRIVATE = auto()
    """1: a barrier of the block orders all accesses before it."""


class Row(_Word):
    """A warp."""

    NOTHING = auto()
    SHARED = auto()
    LOCAL = auto()
    THREAD = auto()
    """The number in the launch of its first thread."""
    BLOCK = auto()
    """The number in the launch of its block's first warp."""
    BARRIER = auto()
    """The time of the block's last barrier."""
    MET = auto()
    """The time of the warp's last barrier of all its lanes."""


class Read(_Word):
    """A read by a warp; the units of its lanes follow, as 32 bits each."""

    TIME = auto()
    RECORD = auto()
    PIECES = auto()
    WARP = auto()
    LANES = auto()


LINES = 3
"""Global, shared and local memory, by the number of the window, if that is a small one."""
MOST_PIECES = 4
"""Units that an access covers at most; a wider one is NumPy's."""
WORDS_OF_READ = len(Read) + 16
