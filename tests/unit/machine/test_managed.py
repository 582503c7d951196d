"""Managed memory: pages, faults, prefetches, and the blocks that leave a full device."""

import numpy as np
import pytest

from reference.errors import LaunchError, ShapeError
from simwarp.machine.managed import BLOCK, PAGE, PAGES, ManagedMemory, Moved, faulted


def of_blocks(room, allocated):
    memory = ManagedMemory(room * BLOCK)
    memory.allocate(allocated * BLOCK)
    return memory


def test_a_block_comes_in_migrations_that_double():
    """Ganguly et al., section 3: 64, 64, 128, 256, 512 and 1024 KB."""
    memory, sizes = of_blocks(1, 1), []
    for page in range(PAGES):
        moved = memory.access(page * PAGE, page * PAGE + 1)
        sizes += [moved.bytes_in >> 10] * moved.migrations
    assert sizes == [64, 64, 128, 256, 512, 1024]


def test_a_page_alone_brings_no_other():
    assert faulted(0, 1 << 17) == (1 << 17, 1)
    assert faulted(0, 1 | 1 << 31) == (1 | 1 << 31, 2)


def test_more_than_half_of_a_part_brings_the_rest():
    """Three pages of four, in any order, and five of eight, in halves that are apart."""
    for pages in (0b111, 0b1011, 0b1101, 0b1110):
        after, _ = faulted(0, pages)
        assert after == 0b1111
    assert faulted(0b10001111, 0b100000) == (0b11111111, 1)
    assert faulted(0b0101, 0) == (0b0101, 0)


def test_pages_move_once_and_back_by_the_same_rule():
    memory = of_blocks(4, 4)
    assert memory.access(0, 3 * BLOCK) == Moved(18, 3 * BLOCK, 0)
    assert memory.access(0, 3 * BLOCK) == Moved()
    assert memory.access_by_host(0, 3 * BLOCK) == Moved(18, 0, 3 * BLOCK)
    assert memory.access_by_host(0, 3 * BLOCK) == Moved()
    assert memory.resident(0, 4 * BLOCK) == 0


def test_a_prefetch_is_one_call_and_moves_absent_pages_alone():
    memory = of_blocks(4, 4)
    memory.access(PAGE, 2 * PAGE)
    assert memory.prefetch(10, 5 * PAGE + 1) == Moved(1, 5 * PAGE, 0)
    assert memory.access(0, 6 * PAGE) == Moved()
    assert memory.prefetch_to_host(0, 2 * BLOCK) == Moved(1, 0, 6 * PAGE)


def test_the_block_used_least_recently_leaves_a_full_device():
    memory = of_blocks(2, 3)
    for block in (0, 1, 0):
        memory.access(block * BLOCK, block * BLOCK + PAGE)
    assert memory.access(2 * BLOCK, 3 * BLOCK) == Moved(6, BLOCK, PAGE)
    assert [memory.resident(block * BLOCK, (block + 1) * BLOCK) for block in range(3)] == [PAGE, 0, BLOCK]


def test_a_pass_over_more_than_the_device_finds_nothing_again():
    memory = of_blocks(7, 8)
    memory.access(0, 8 * BLOCK)
    assert memory.access(0, 8 * BLOCK) == Moved(48, 8 * BLOCK, 8 * BLOCK)


def test_what_came_and_did_not_leave_is_there():
    rng = np.random.default_rng(1)
    memory, total = of_blocks(5, 9), 0
    moves = memory.access, memory.access_by_host, memory.prefetch, memory.prefetch_to_host
    for _ in range(300):
        start, end = sorted(int(at) for at in rng.choice(9 * BLOCK, 2, replace=False))
        move = moves[rng.integers(4)]
        moved = move(start, end)
        total += moved.bytes_in - moved.bytes_out
        assert memory.resident(0, 9 * BLOCK) == total <= 5 * BLOCK
        if move in moves[1::2]:
            assert memory.resident(start, end) == 0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ManagedMemory(BLOCK - 1), LaunchError, "managed memory on a device with 2097151 bytes free"),
        (lambda: ManagedMemory(BLOCK).allocate(0), ShapeError, "allocation of 0 bytes"),
        (lambda: of_blocks(1, 1).access(0, BLOCK + 1), LaunchError, "bytes 0 to 2097153 of managed memory"),
        (lambda: of_blocks(1, 1).prefetch(5, 5), LaunchError, "bytes 5 to 5 of managed memory"),
    ],
)
def test_wrong_ranges_are_refused(call, error, message):
    with pytest.raises(error) as found:
        call()
    assert str(found.value).startswith(message)
    assert len(str(found.value).splitlines()) == 3
