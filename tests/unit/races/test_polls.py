"""What the race detector does for a flag or lock that many warps poll does not grow with the warps.

Counted are calls of Python functions, not seconds.
"""

from types import SimpleNamespace

import numpy as np
import pytest

from simwarp.allocation import Allocation
from simwarp.lanes import WARP_SIZE
from simwarp.races.order import Order
from simwarp.races.release_acquire import StrongAccess
from simwarp.races.shadow import Shadow
from support.python_calls import calls_of

FEW, MANY = 8, 512
LOAD = {"reads": True, "writes": False, "replaces": False, "releases": False, "wide": True}
UPDATE = LOAD | {"writes": True}
STORE = {"reads": False, "writes": True, "replaces": True, "acquires": False, "releases": True, "wide": True}


class Warps:
    """The order of blocks of one warp, and words that they all access."""

    def __init__(self, count):
        threads = np.arange(count * WARP_SIZE).reshape(count, WARP_SIZE)
        launch = SimpleNamespace(grid=(count, 1, 1))
        self.order = Order(SimpleNamespace(launch=launch, warps_per_block=1, thread=threads), signals=True)
        self.shadow = Shadow(Allocation(0, 8 * count, "flags"), 4)
        self.all, self.time = np.arange(count), 1

    def access(self, warps, offsets, **how):
        self.time += 1
        access = StrongAccess(self.order, self.shadow, self.time, **how)
        access.exchange(np.array(warps), np.array(offsets))

    def known(self, warp, of):
        clock = self.order._known[warp]
        return 0 if clock is None else int(clock.times[of])


def wait(count, acquires):
    """Each warp polls a flag of its own, of which nobody has set one but the last."""
    warps = Warps(count)
    warps.access([0], [4 * count], **STORE)
    return calls_of(
        lambda: warps.access(warps.all, 4 * np.arange(count) + 4, acquires=acquires, **LOAD)
    ), warps


def spin(count, acquires):
    """All warps but the first poll the lock that the first one has released, for the third time."""
    warps = Warps(count)
    warps.access([0], [0], **STORE)

    def poll():
        warps.access(warps.all[1:], np.zeros(count - 1, np.int64), acquires=acquires, **UPDATE)

    poll()
    poll()
    return calls_of(poll), warps


@pytest.mark.parametrize("acquires", [False, True])
@pytest.mark.parametrize("poll", [wait, spin])
def test_a_poll_calls_as_many_functions_by_many_warps_as_by_few(poll, acquires):
    assert poll(MANY, acquires)[0] == poll(FEW, acquires)[0]


def test_a_poll_acquires_the_flag_that_was_set():
    warps = wait(FEW, acquires=True)[1]
    assert [warps.known(warp, 0) > 0 for warp in warps.all] == [False] * (FEW - 1) + [True]


@pytest.mark.parametrize("change", ["fence", "store"])
def test_a_repeated_poll_counts_once_something_has_changed(change):
    """A warp polls a lock by updates; then it fences, so that its next update publishes its clock."""
    warps = spin(4, acquires=False)[1]
    if change == "fence":
        warps.order.fence(np.array([1]), True, warps.time)
        warps.access([1, 2, 3], [0, 0, 0], acquires=False, **UPDATE)
        warps.access([3], [0], acquires=True, **LOAD)
        assert warps.known(3, 1) > 0
    else:
        warps.access([2], [0], **STORE)
        warps.access([1, 2, 3], [0, 0, 0], acquires=False, **UPDATE)
        warps.order.fence(np.array([3]), True, warps.time)
        assert warps.known(3, 2) > 0
