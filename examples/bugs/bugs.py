"""Bugs that are hard to see: `python examples/bugs/bugs.py` prints the simulator's report of each.

Twelve are here, those of asynchronous kernels in `asynchronous`.
"""

import argparse
import sys

import numpy as np
from asynchronous import BUGS as ASYNCHRONOUS
from planted import Bug, Unwritten

import simwarp
from simwarp.faults import KernelFault
from simwarp.verify import Draw

ELEMENTS = 1003  # no multiple of a warp, of a block, or of the bytes that an allocator hands out


def whole(name, n, end):
    """``n`` random integers from 0 to ``end`` - 1, uint32, from a seed per bug."""
    return (Draw(0, f"bugs {name}", 0).words(n) % np.uint64(end)).astype(np.uint32)


def filled(x, size, blocks):
    """The elements as (blocks, size), zero-padded at the end."""
    cells = np.zeros(blocks * size, x.dtype)
    cells[: x.size] = x
    return cells.reshape(blocks, size)


def sums(x, size, blocks):
    """The sums of each ``size`` elements, in the elements' type."""
    return filled(x, size, blocks).sum(axis=1, dtype=x.dtype)


def missing_barrier(n=ELEMENTS, threads=160, blocks=7):
    x = whole("missing_barrier", n, 1000)
    given = {"x": x, "sums": Unwritten((blocks,)), "n": np.uint32(n)}
    right = {"sums": sums(x, threads, blocks)}
    return Bug("missing_barrier", "missing barrier", "Race", blocks, threads, given, right)


def missing_syncwarp(n=ELEMENTS, blocks=2):
    x = whole("missing_syncwarp", n, 1000)
    given = {"x": x, "sums": Unwritten((blocks * 128,)), "n": np.uint32(n)}
    right = {"sums": sums(x, 4, blocks * 128)}
    return Bug("missing_syncwarp", "missing syncwarp", "Race", blocks, 128, given, right)


def wrong_mask(n=301, threads=96, blocks=4):
    x = whole("wrong_mask", n, 100).astype(np.int32) - 50
    warps = filled(x, 32, blocks * threads // 32)
    kept = np.zeros_like(warps)
    for row, numbers in zip(kept, warps, strict=True):
        positive = numbers[numbers > 0]
        row[: positive.size] = positive
    outputs = {"kept": np.zeros(kept.size, np.int32), "counts": Unwritten((len(warps),))}
    right = {"kept": kept.reshape(-1), "counts": (warps > 0).sum(axis=1).astype(np.uint32)}
    given = {"x": x, **outputs, "n": np.uint32(n)}
    return Bug("wrong_mask", "wrong mask", "MemberMaskFault", blocks, threads, given, right)


def misaligned_vector(rows=45, columns=37):
    x = whole("misaligned_vector", rows * columns, 1000).astype(np.float32)
    outputs = {"sums": Unwritten((rows,), np.float32)}
    given = {"x": x, **outputs, "rows": np.uint32(rows), "columns": np.uint32(columns)}
    right = {"sums": sums(x, columns, rows)}  # whole numbers below 2**24: no sum is rounded
    return Bug("misaligned_vector", "misaligned vector load", "Misaligned", 2, 32, given, right)


def off_by_one(n=ELEMENTS, threads=128, blocks=3):
    x = whole("off_by_one", n, 1000).astype(np.int32)
    given = {"x": x, "differences": Unwritten((n,), np.int32), "n": np.uint32(n)}
    right = {"differences": np.diff(x, append=x[-1:])}
    return Bug("off_by_one", "off by one", "OutOfBounds", blocks, threads, given, right)


def use_after_free(rows=5, columns=37):
    x = whole("use_after_free", rows * columns, 100).astype(np.float32) + np.float32(1)
    squares = x.reshape(rows, columns) ** 2
    given = {"x": x, "shares": Unwritten((rows * columns,), np.float32), "columns": np.uint32(columns)}
    right = {"shares": (squares / squares.sum(axis=1, keepdims=True)).reshape(-1)}
    return Bug("use_after_free", "use after free", "UseAfterFree", rows, 32, given, right)


def uninitialised_shared(n=ELEMENTS, blocks=8):
    x = whole("uninitialised_shared", n, 1000)
    around = np.pad(x, 1)
    given = {"x": x, "y": Unwritten((n,)), "n": np.uint32(n)}
    right = {"y": around[:-2] + 2 * x + around[2:]}
    return Bug("uninitialised_shared", "uninitialised shared", "UninitialisedRead", blocks, 128, given, right)


def divergent_barrier(n=ELEMENTS, blocks=11):
    x = whole("divergent_barrier", n, 1000)
    given = {"x": x, "sums": Unwritten((blocks,)), "n": np.uint32(n)}
    right = {"sums": sums(x, 96, blocks)}
    title = "divergent-barrier deadlock"
    return Bug("divergent_barrier", title, "Deadlock", blocks, 96, given, right)


def lost_atomic(n=ELEMENTS, threads=128, blocks=8):
    x = whole("lost_atomic", n, 1001).astype(np.float32) / np.float32(1000)
    bins = np.minimum((x * np.float32(16)).astype(np.uint32), 15)
    given = {"x": x, "counts": np.zeros(16, np.uint32), "n": np.uint32(n)}
    right = {"counts": np.bincount(bins, minlength=16).astype(np.uint32)}
    return Bug("lost_atomic", "lost atomic", "Race", blocks, threads, given, right)


def race_between_blocks(n=ELEMENTS, blocks=7):
    x = whole("race_between_blocks", n, 1000)
    zeros = {"sums": np.zeros(blocks, np.uint32), "tickets": np.zeros(1, np.uint32)}
    given = {"x": x, **zeros, "total": Unwritten((1,)), "n": np.uint32(n)}
    right = {"total": x.sum(keepdims=True, dtype=np.uint32)}
    return Bug("race_between_blocks", "race between blocks", "Race", blocks, 32, given, right)


def stale_shuffle(n=301, threads=96, blocks=4):
    x = np.sort(whole("stale_shuffle", n, 60))
    given = {"x": x, "ends": Unwritten((n,)), "n": np.uint32(n)}
    right = {"ends": np.append(x[:-1] != x[1:], True).astype(np.uint32)}
    return Bug("stale_shuffle", "stale shuffle source", "InactiveSource", blocks, threads, given, right)


def livelock(n=301, blocks=10):
    # All differ, and the first block has the largest: no other one is better, whichever is first.
    x = np.argsort(whole("livelock", n, 2**32), kind="stable").astype(np.uint32) + 1
    x[[5, x.argmax()]] = x[[x.argmax(), 5]]
    given = {"x": x, "lock": np.zeros(1, np.uint32), "best": np.zeros(2, np.uint32), "n": np.uint32(n)}
    right = {"best": np.array([n, 5], np.uint32), "lock": np.zeros(1, np.uint32)}
    return Bug("livelock", "lock that livelocks", "Livelock", blocks, 32, given, right)


MAKERS = (
    missing_barrier,
    missing_syncwarp,
    wrong_mask,
    misaligned_vector,
    off_by_one,
    use_after_free,
    uninitialised_shared,
    divergent_barrier,
    lost_atomic,
    race_between_blocks,
    stale_shuffle,
    livelock,
)
BUGS = {make.__name__: make() for make in MAKERS}


def main():
    """Print the reports of some bugs, or all; return 0 if each is found, and nothing in corrected twins."""
    bugs = BUGS | ASYNCHRONOUS
    parser = argparse.ArgumentParser(description="Runs kernels with a bug, then their corrected twins.")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(bugs)}; default: all")
    names = parser.parse_args().names or list(bugs)
    if unknown := [name for name in names if name not in bugs]:
        parser.error(f"no bug {unknown[0]!r}; choose among {', '.join(bugs)}")
    return max([show(bugs[name]) for name in names])


def show(bug):
    """Print the report of one bug; return 0 if it is found, and nothing in its corrected twin, else 1."""
    found = None
    try:
        bug.run(simwarp.Device())
    except KernelFault as fault:
        found = fault
    print(f"{bug.name}: {type(found).__name__ if found else 'nothing found'}\n{found or ''}")
    right = bug.is_right(bug.run(simwarp.Device(), fixed=True))
    print(f"corrected: {'right' if right else 'WRONG'}\n")
    return 0 if right and type(found).__name__ == bug.fault else 1


if __name__ == "__main__":
    sys.exit(main())
