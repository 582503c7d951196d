"""Public CUDA idioms give the right result without any fault, optimised and with ``-G``."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import simwarp
from gpu.compile import compile

FOLDER = Path(__file__).parents[2] / "idioms"
COMPILED = {"O3": (), "G": ("-G",)}
LARGE = ["O3", pytest.param("G", marks=pytest.mark.slow)]
TILE, PADDING = 256, 32
"""Items of a tile in cub_device.cu; CUB's descriptors in front of the first tile."""


@cache
def ptx_of(name, how):
    return compile((FOLDER / name).read_text(), name, folder=FOLDER, options=COMPILED[how]).text


class Kernels:
    """The kernels of a file, on a device that raises every fault."""

    def __init__(self, name, how, **device):
        self.device = simwarp.Device(**device)
        self.module = self.device.load(ptx_of(name, how))

    def __call__(self, kernel, grid, block, *arguments, **launch):
        self.module.kernel(kernel)((grid, 1, 1), (block, 1, 1), *arguments, **launch)

    def upload(self, array, dtype=np.int32):
        return self.device.upload(np.asarray(array, dtype))

    def empty(self, count, dtype=np.int32):
        return self.device.allocate((count,), dtype)

    def zeros(self, count, dtype=np.int32):
        return self.upload(np.zeros(count), dtype)

    def tiles(self, n, init):
        """Tile descriptors of a decoupled look-back over n items."""
        count = -(-n // TILE)
        memory = self.empty(4 * (count + PADDING), np.int64)
        self(init, -(-(count + PADDING) // 64), 64, memory, np.int32(count))
        return count, memory


def cub(how):
    return Kernels("cub_device.cu", how)


SIZES = (1, 255, 1500)


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize("how", LARGE)
@pytest.mark.parametrize("n", SIZES)
def test_cub_reduce_equals_numpy(how, n):
    k, x = cub(how), np.random.default_rng(n).integers(-99, 99, n)
    total = k.zeros(1)
    k("reduce", 3, 64, k.upload(x), total, np.int32(n))
    assert total.download()[0] == x.sum()


@pytest.mark.at_most(3)
@pytest.mark.parametrize("how", LARGE)
@pytest.mark.parametrize("n", SIZES)
def test_cub_scan_equals_numpy(how, n):
    k, x = cub(how), np.random.default_rng(n).integers(-99, 99, n)
    out = k.empty(n)
    count, tiles = k.tiles(n, "init")
    k("scan", count, 64, k.upload(x), out, tiles, np.int32(n))
    assert np.array_equal(out.download(), x.cumsum())


@pytest.mark.at_most(1)
@pytest.mark.parametrize("how", LARGE)
@pytest.mark.parametrize("n", SIZES)
def test_cub_select_equals_numpy(how, n):
    k, x = cub(how), np.random.default_rng(n).integers(0, 99, n)
    out, chosen = k.empty(n), k.empty(1)
    count, tiles = k.tiles(n, "init")
    k("select_odd", count, 64, k.upload(x), out, chosen, tiles, np.int32(n), np.int32(count))
    expected = x[x % 2 == 1]
    assert chosen.download()[0] == expected.size
    assert np.array_equal(out.download()[: expected.size], expected)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("how", LARGE)
@pytest.mark.parametrize("n", SIZES)
def test_cub_run_lengths_equal_numpy(how, n):
    k, x = cub(how), np.random.default_rng(n).integers(0, 2, n).repeat(1 + n // 100)[:n]
    offsets, lengths, found = k.empty(n), k.empty(n), k.empty(1)
    count, tiles = k.tiles(n, "init_runs")
    k("runs", count, 64, k.upload(x), offsets, lengths, found, tiles, np.int32(n), np.int32(count))
    starts = np.flatnonzero(np.diff(x, prepend=-1))
    sizes = np.diff(starts, append=n)
    starts, sizes = starts[sizes > 1], sizes[sizes > 1]  # runs of one item are not encoded
    assert found.download()[0] == starts.size
    assert np.array_equal(offsets.download()[: starts.size], starts)
    assert np.array_equal(lengths.download()[: starts.size], sizes)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("how", LARGE)
@pytest.mark.parametrize("n", SIZES)
def test_cub_histogram_equals_numpy(how, n):
    k, x, bins = cub(how), np.random.default_rng(n).integers(0, 50, n), 50
    out = k.zeros(bins)
    k("histogram", 3, 64, k.upload(x), out, np.int32(bins), np.int32(n), np.int32(-(-n // TILE)), k.zeros(2))
    assert np.array_equal(out.download(), np.bincount(x, minlength=bins))


@pytest.mark.at_most(1)
@pytest.mark.gate_cases("2500-O3")
@pytest.mark.parametrize("how", LARGE)
@pytest.mark.parametrize("n", [1, 300, 2500])
def test_cub_radix_sort_equals_numpy(how, n):
    k, keys = cub(how), np.random.default_rng(n).integers(0, 2**32, n, dtype=np.uint32)
    tile, digits = 1024, 256
    count = -(-n // tile)
    bins = k.zeros(4 * digits, np.uint32)
    k("sort_histogram", 2, 64, bins, k.upload(keys, np.uint32), np.uint32(n))
    k("sort_offsets", 4, digits, bins)
    starts = bins.download().reshape(4, digits)
    here, payload = k.upload(keys, np.uint32), k.upload(np.arange(n), np.uint32)
    for digit in range(4):
        there, moved = k.empty(n, np.uint32), k.empty(n, np.uint32)
        lookback, counter = k.zeros(count * digits), k.zeros(1)
        last = k.empty(digits, np.uint32)
        begin = k.upload(starts[digit], np.uint32)
        k(
            "sort_onesweep",
            count,
            256,
            lookback,
            counter,
            last,
            begin,
            there,
            here,
            moved,
            payload,
            np.int32(n),
            np.int32(8 * digit),
        )
        here, payload = there, moved
    assert np.array_equal(here.download(), np.sort(keys))
    assert np.array_equal(payload.download(), np.argsort(keys, kind="stable"))


# ---------------------------------------------------------------------------------------- cooperative groups


@pytest.mark.at_most(1)
@pytest.mark.gate_cases("512-G")
@pytest.mark.parametrize("how", COMPILED)
@pytest.mark.parametrize("size", [8, 32, 64, pytest.param(512, marks=pytest.mark.slow)])
def test_tiles_of_a_block_sum_separately(how, size):
    threads = max(size, 64)
    k, x = Kernels("groups.cu", how), np.arange(2 * threads) ** 2 % 101
    out = k.empty(x.size)
    k(f"tile{size}", 2, threads, k.upload(x), out)
    assert np.array_equal(out.download(), x.reshape(-1, size).sum(axis=1).repeat(size))


@pytest.mark.at_most(1)
@pytest.mark.parametrize("how", COMPILED)
def test_scratch_of_multi_warp_tiles_does_not_overlap_shared_variables(how):
    k = Kernels("groups.cu", how)
    out, sums = k.empty(128, np.uint32), k.empty(128)
    k("beside_shared", 1, 128, out, sums)
    assert (out.download() == 0xFFFFFFFF).all()
    assert np.array_equal(sums.download(), np.arange(128).reshape(2, 64).sum(axis=1).repeat(64))


@pytest.mark.parametrize("how", COMPILED)
def test_coalesced_threads_compact_an_array(how):
    k, n = Kernels("groups.cu", how), 300
    x = np.random.default_rng(3).integers(0, 99, n)
    out, count = k.empty(n), k.zeros(1)
    k("compact_odd", 3, 128, k.upload(x), out, count, np.int32(n))
    expected = x[x % 2 == 1]
    assert count.download()[0] == expected.size
    assert np.array_equal(np.sort(out.download()[: expected.size]), np.sort(expected))


@pytest.mark.parametrize("how", COMPILED)
def test_binary_and_labelled_partitions_sum_separately(how):
    k, x = Kernels("groups.cu", how), np.random.default_rng(4).integers(0, 9, 128)
    out = k.empty(128)
    k("partition", 2, 64, k.upload(x), out)
    warps = x.reshape(4, 32)
    sums = [
        [warp[warp % 2 == v % 2].sum() + 1000 * (warp % 3 == v % 3).sum() for v in warp] for warp in warps
    ]
    assert np.array_equal(out.download(), np.ravel(sums))


@pytest.mark.parametrize("how", COMPILED)
def test_a_warp_scan_equals_numpy(how):
    k, x = Kernels("groups.cu", how), np.arange(64) ** 2 % 101
    out = k.empty(64)
    k("scan_of_warp", 1, 64, k.upload(x), out)
    assert np.array_equal(out.download(), x.reshape(2, 32).cumsum(axis=1).ravel())


@pytest.mark.parametrize("how", COMPILED)
def test_grid_sync_orders_two_passes(how):
    k, n = Kernels("groups.cu", how), 192
    a, b = k.empty(n), k.empty(n)
    k("rotate_grid", 3, 64, a, b, cooperative=True)
    assert np.array_equal(b.download(), 3 * ((np.arange(n) + 37) % n))


# ------------------------------------------------------------------------------------------- without barriers


SCHEDULES = ("lowest pc", "random")


@pytest.mark.at_most(2)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("how", COMPILED)
def test_decoupled_look_back_equals_cumsum(how, schedule):
    k, n = Kernels("lock_free.cu", how, schedule=schedule), 700
    x = np.random.default_rng(5).integers(0, 99, n)
    out = k.empty(n)
    k("look_back", 6, 128, k.upload(x), out, k.zeros(6, np.uint64), k.zeros(1), np.int32(n))
    assert np.array_equal(out.download(), x.cumsum())


@pytest.mark.at_most(2)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("how", COMPILED)
def test_a_bounded_queue_delivers_each_item_once(how, schedule):
    k, size, pairs = Kernels("lock_free.cu", how, schedule=schedule), 3, 8
    taken = k.empty(pairs, np.uint32)
    k("queue", 4, 128, k.zeros(2 * size, np.uint32), k.zeros(2, np.uint32), taken, np.uint32(size))
    assert np.array_equal(np.sort(taken.download()), 100 + np.arange(pairs))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("how", COMPILED)
def test_the_last_block_sums_the_partial_results(how, schedule):
    k, x = Kernels("lock_free.cu", how, schedule=schedule), np.arange(999)
    out = k.empty(1)
    k("last_block", 4, 64, k.upload(x), k.empty(4), k.zeros(1, np.uint32), out, np.int32(x.size))
    assert out.download()[0] == x.sum()


@pytest.mark.at_most(2)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("how", COMPILED)
def test_a_spin_lock_excludes_other_threads(how, schedule):
    k = Kernels("lock_free.cu", how, schedule=schedule)
    count = k.zeros(1)
    k("locked", 3, 96, k.zeros(1), count)
    assert count.download()[0] == 9


@pytest.mark.parametrize("how", COMPILED)
def test_warp_aggregated_atomics_keep_every_element(how):
    k, n = Kernels("lock_free.cu", how), 333
    x = np.random.default_rng(6).integers(-9, 9, n)
    out, count = k.empty(n), k.zeros(1)
    k("aggregated", 3, 128, k.upload(x), out, count, np.int32(n))
    assert np.array_equal(np.sort(out.download()[: count.download()[0]]), np.sort(x[x > 0]))


@pytest.mark.parametrize("how", COMPILED)
def test_an_early_return_of_whole_warps_is_not_reported(how):
    k, n = Kernels("lock_free.cu", how), 160
    out = k.zeros(1)
    k("early_return", 2, 128, k.upload(np.arange(n)), out, np.int32(n))
    assert out.download()[0] == sum(range(n))


@pytest.mark.parametrize("n", [128, 160, 201])
@pytest.mark.parametrize("how", COMPILED)
def test_an_early_return_before_a_barrier_is_not_reported(how, n):
    k, x = Kernels("lock_free.cu", how), np.arange(n)
    out = k.empty(n)
    k("return_before_barrier", 2, 128, k.upload(x), out, np.int32(n))
    assert np.array_equal(out.download(), np.concatenate([x[:128][::-1], x[128:][::-1]]))


@pytest.mark.parametrize("how", COMPILED)
def test_halves_of_a_warp_alternate_by_syncwarp(how):
    k = Kernels("lock_free.cu", how)
    out = k.empty(32)
    k("ping_pong", 1, 32, out)
    assert np.array_equal(out.download(), np.tile(np.arange(16) + 20, 2))
