"""What strong accesses of many lanes publish and acquire equals what they do lane by lane."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.warp_signals import WarpSignals
from simwarp.races import order as order_module
from simwarp.races.order import Order
from simwarp.races.release_acquire import StrongAccess
from simwarp.races.shadow import Shadow

BLOCKS, PER_BLOCK = 2, 2
WARPS = BLOCKS * PER_BLOCK
KINDS = {
    "load": (True, False, False),
    "store": (False, True, True),
    "atomic": (True, True, False),
    "reduction": (False, True, False),
}
"""Whether it reads, writes, and replaces what is published there."""


def operations(random):
    """Fences, barriers and accesses of lanes: kind, lanes, and whether it acquires, releases, is wide.

    A lane is its warp and word. Most accesses are relaxed and wide, to few words, so that they meet.
    """
    words = random.integers(1, 5)
    for _ in range(40):
        which = random.random()
        if which < 0.25:
            yield "fence", int(random.integers(WARPS)), bool(random.random() < 0.6), False, False
        elif which < 0.3:
            yield "barrier", int(random.integers(BLOCKS)), False, False, False
        else:
            lanes = random.integers(0, [WARPS, words], (random.integers(1, 7), 2)).tolist()
            lanes = sorted(lanes) if random.random() < 0.5 else lanes
            if random.random() < 0.4:
                lanes = [[lanes[0][0], word] for word in range(words)]
            acquires, releases, wide = random.random(3) < [0.15, 0.15, 0.7]
            yield str(random.choice([*KINDS])), lanes, bool(acquires), bool(releases), bool(wide)


def known_times(order, last):
    """For each warp and each warp: before which time the first one knows the second one's accesses."""
    times = np.arange(1, last + 1)
    result = {}
    for warp in range(WARPS):
        for other in range(WARPS):
            threads = np.full(last, warp * 32 + 1)  # lane 1 of one warp, lane 0 of the other
            ordered = order.ordered(np.full(last, warp), threads, times << 32 | other * 32)
            assert (ordered[:-1] >= ordered[1:]).all()
            result[warp, other] = int(ordered.sum()) + 1
    return result


def access(order, shadow, twin, time, operation):
    kind, lanes, acquires, releases, wide = operation
    reads, writes, replaces = KINDS[kind]
    facts = {"reads": reads, "writes": writes, "replaces": replaces, "wide": wide}
    facts |= {"acquires": acquires and reads, "releases": releases and writes}
    warps, words = (np.array(part, np.int64) for part in zip(*lanes, strict=True))
    StrongAccess(order, shadow, time, **facts).exchange(warps, 4 * words)
    for warp, word in lanes:
        twin.lane(warp, 4 * word, time, **facts)


@pytest.mark.gate
@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from([1, 256]))
def test_lanes_together_order_what_they_order_one_by_one(seed, groups):
    thread = np.arange(WARPS * 32).reshape(WARPS, 32)
    launch = SimpleNamespace(grid=(BLOCKS, 1, 1))
    order = Order(SimpleNamespace(launch=launch, warps_per_block=PER_BLOCK, thread=thread), signals=True)
    shadow = Shadow(SimpleNamespace(size=16), 4)
    twin = WarpSignals(BLOCKS, PER_BLOCK)
    before = order_module._MOST_GROUPS
    order_module._MOST_GROUPS = groups  # 1: offsets that were read are soon kept one by one
    try:
        for time, operation in enumerate(operations(np.random.default_rng(seed)), 2):
            if operation[0] == "fence":
                order.fence(np.array([operation[1]]), operation[2], time)
                twin.fence(operation[1], operation[2], time)
            elif operation[0] == "barrier":
                block = operation[1]
                warps = np.arange(block * PER_BLOCK, (block + 1) * PER_BLOCK)
                order.pass_whole(warps, np.ones(WARPS, np.bool_), time)
                twin.barrier(block, time)
            else:
                access(order, shadow, twin, time, operation)
            expected = {
                (warp, other): max(1, twin.clock[warp].get(other, 0))
                for warp in range(WARPS)
                for other in range(WARPS)
            }
            assert known_times(order, time + 1) == expected
    finally:
        order_module._MOST_GROUPS = before
