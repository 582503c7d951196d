"""A kernel whose lanes have different trip counts, and the expected counts, computed lane by lane.

Some blocks are not whole warps, few lanes go round for long (so that the executor runs their warps by
themselves), and not all blocks are in flight at a time.
"""

from types import SimpleNamespace

import simwarp
from simwarp.observe import Observer
from support import small_kernels as small

WARP = 32
BLOCK, GRID = 72, 11
LINE = SimpleNamespace(load=1, guarded=2, count=3, branch=4)
BODY = """
mov.u32 %r5, 0;
rem.u32 %r3, %i, 3; add.u32 %r3, %r3, 1;
rem.u32 %r4, %i, 97; setp.eq.u32 %p1, %r4, 5; @%p1 add.u32 %r3, %r3, 60;
and.b32 %r6, %i, 1; setp.eq.u32 %p2, %r6, 1;
ROUND:
.loc 1 1 1
ld.global.u32 %r7, [%in];
.loc 1 2 1
@%p2 add.u32 %r5, %r5, %r7;
.loc 1 3 1
add.u32 %r3, %r3, -1;
.loc 1 4 1
setp.ne.u32 %p3, %r3, 0;
@%p3 bra ROUND;
.loc 1 5 1
mov.u32 %r2, %r5;
"""
BEFORE = '.file 1 "loops.cu"'


def rounds(thread):
    """Trip count of a thread."""
    return thread % 3 + 1 + (60 if thread % 97 == 5 else 0)


def warps():
    """Trip counts of the lanes, for each warp of the grid."""
    for block in range(GRID):
        lanes = [rounds(block * BLOCK + thread) for thread in range(BLOCK)]
        yield from ([*enumerate(lanes)][first : first + WARP] for first in range(0, BLOCK, WARP))


class Parts(Observer):
    """Counts the compact copies of warps and the chunks of a launch."""

    def __init__(self):
        self.parts, self.chunks = 0, []

    def on_step(self, chunk, step, mask):
        self.parts += chunk.is_part
        if not chunk.is_part and not any(chunk is known for known in self.chunks):
            self.chunks.append(chunk)


def run(*names, launches=1):
    """Run the kernel on a device with several chunks and compact copies, and return the device."""
    parts = Parts()
    device = simwarp.Device(observe=names, observers=[parts], chunk_lanes=5 * 96)
    for _ in range(launches):
        words = small.run(BODY + small.STORE, BLOCK, GRID, [3], device, BEFORE)
        assert words == [3 * rounds(i) if i % 2 else 0 for i in range(BLOCK * GRID)]
    assert len(parts.chunks) == 3 * launches
    assert parts.parts > 0
    return device
