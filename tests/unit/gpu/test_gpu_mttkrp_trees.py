"""MTTKRP of fibers, MM-CSF and B-CSF on the simulator: every level, order and rank, and ragged ends."""

import functools
import importlib
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simwarp
from gpu.mttkrp.formats.b_csf import groups_of_short
from gpu.mttkrp.formats.fibers import aligned, run_of_group
from gpu.mttkrp.plan import plan
from reference.mttkrp import mttkrp, mttkrp_bound
from reference.sparse import b_csf, b_csf_all, fibers, fibers_all, mm_csf
from reference.types import Coo
from support import scattered_tensors as _shared

OF_FIBERS, OF_B_CSF = (importlib.import_module(f"gpu.mttkrp.formats.{name}") for name in ("fibers", "b_csf"))
numbers, scattered = _shared.numbers, _shared.scattered

DTYPES = ("float32", "float64")
SCHEDULES = (("lowest pc", 0), ("stack", 0), ("random", 1))


def of_lengths(slices, dtype="float32"):
    """An order-3 tensor with the given fiber lengths in each slice, along the last mode."""
    lengths = [(i, j, length) for i, slice in enumerate(slices) for j, length in enumerate(slice)]
    places = [(i, j, (k * 5 + j) % 997) for i, j, length in lengths for k in range(length)]
    shape = (len(slices) + 1, max(map(len, slices)) + 1, 997)
    return Coo(np.array(places).T, numbers(len(places), dtype=dtype), shape)


def product(tensor, coo, mode, rank, deterministic=False, device=None, seed=0):
    """The result and the expected one; unreferenced factor rows hold NaN."""
    device = device or simwarp.Device()
    dtype = coo.values.dtype
    clean = [numbers(n, rank, dtype=dtype.name, k=seed + m + 1) for m, n in enumerate(coo.shape)]
    given = [np.full_like(factor, np.nan) for factor in clean]
    for m, factor in enumerate(clean):
        if m != mode:
            used = np.unique(coo.coords[m])
            given[m][used] = factor[used]
    out = device.allocate((coo.shape[mode], rank), dtype, "out")
    plan(tensor, mode, rank, dtype, device, deterministic)([device.upload(x) for x in given], out)
    return out.download(), mttkrp(coo, clean, mode), mttkrp_bound(coo, clean, mode, dtype)


def assert_right(tensor, coo, rank, deterministic=False, modes=None, **how):
    for mode in range(len(coo.shape)) if modes is None else modes:
        y, expected, bound = product(tensor, coo, mode, rank, deterministic, **how)
        assert y.dtype == coo.values.dtype
        np.testing.assert_array_less(np.abs(y - expected), np.nextafter(bound, np.inf), f"mode {mode}")
        empty = np.setdiff1d(np.arange(coo.shape[mode]), coo.coords[mode])
        assert not y[empty].view(np.uint8).any()


@pytest.fixture
def long_runs(monkeypatch):
    """Make each group process several fibers, as for a large tensor."""
    monkeypatch.setattr(OF_FIBERS, "ENOUGH_GROUPS", 1)


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.slow_cases("1-float32")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rank", [1, 7, 16, 32, 33, 48, 64, 100])
def test_every_rank_equals_the_reference(rank, dtype, long_runs):
    coo = scattered((7, 11, 13), 120, dtype)
    deterministic = (rank % 2 == 0) == (dtype == "float32")
    assert_right(fibers(coo, (1, 0, 2), split=3), coo, rank, deterministic)
    assert_right(b_csf_all(coo, split=3, share=5), coo, rank, deterministic, modes=[rank % 3])


@pytest.mark.at_most(1)
@pytest.mark.slow_cases("5", "6", "7", "8")
@pytest.mark.parametrize("order", [2, 3, 4, 5, 6, 7, 8])
def test_every_order_equals_the_reference(order, long_runs):
    """The mode of the result is that of the slices, of the fibers, or of the leaves."""
    coo = scattered((9, 5, 6, 4, 3, 4, 2, 3)[:order], 80, DTYPES[order % 2])
    modes = (*range(1, order), 0)
    assert_right(fibers(coo, modes, split=2), coo, 6, order in (2, 5, 8), modes={1, order - 1, 0})
    assert_right(b_csf_all(coo, split=2, share=3), coo, 6, order in (3, 6, 8), modes=[order // 2])


@pytest.mark.at_most(2)
@pytest.mark.slow_cases("shape2*")
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("shape", [(30, 41), (12, 9, 17), (6, 7, 8, 5)])
def test_one_balanced_tree_gives_all_modes(shape, deterministic, long_runs):
    coo = scattered(shape, 150)
    assert_right(b_csf(coo, split=3, share=6), coo, 32, deterministic)
    assert_right(fibers_all(coo, split=3), coo, 32, deterministic)


def test_the_slice_algorithm_may_start_at_any_fiber():
    """B-CSF-ALL as fibers: algorithm 6 for every mode, whose result's mode is that of the slices."""
    coo = scattered((7, 9, 11), 60)
    for mode, part in enumerate(fibers_all(coo).tensors):
        assert part.modes[0] == mode
        launches = plan(fibers_all(coo), mode, 8, np.float32, simwarp.Device())._launches
        assert [launch.plan.name for launch in launches] == ["clear", "to_upper"]


@pytest.mark.slow
@pytest.mark.at_most(2)
@pytest.mark.slow_cases("shape3-True")
@pytest.mark.parametrize(
    ("shape", "deterministic"),
    [((30, 41), True), ((30, 41), False), ((12, 9, 17), False), ((6, 7, 8, 5), True)],
)
def test_mixed_modes_are_summed(shape, deterministic, long_runs):
    coo = scattered(shape, 150)
    tensor = mm_csf(coo, split=3)
    assert len(tensor.partitions) > 1
    assert_right(tensor, coo, 32, deterministic)


LENGTHS = {
    "one nonzero": [[1]],
    "one slice": [[3, 1, 4, 1, 5, 9, 2, 6]],
    "single nonzeros": [[1]] * 9 + [[1, 1]] * 5,
    "every start and length": [[n] for n in range(1, 21)] + [list(range(12, 0, -1))],
    "as long as can be": [[128], [128, 1], [127, 129], [260]],
    "long last": [[1, 1], [2], [260]],
    "long first": [[260], [2], [1, 1]],
    "a group's last fiber": [[4] * 4, [4] * 4, [4] * 4],
}


@pytest.mark.at_most(2)
@pytest.mark.parametrize("name", LENGTHS)
def test_every_fiber_length_equals_the_reference(name):
    coo = of_lengths(LENGTHS[name])
    assert_right(fibers(coo, (0, 1, 2)), coo, 32)
    assert_right(b_csf(coo, (0, 1, 2), share=64), coo, 32, modes=[0])


@pytest.mark.at_most(2)
@pytest.mark.parametrize("run", [1, 3])
@pytest.mark.parametrize("groups", [4, 32])
def test_fibers_at_the_ends_of_groups_warps_and_blocks_equal_the_reference(groups, run, monkeypatch):
    """Rank 32 has 4 groups per warp and 32 per block: exactly full, one less, and one more."""
    monkeypatch.setattr(OF_FIBERS, "run_of_group", lambda count, nonzeros: run)
    for more in (-1, 0, 1):
        count = groups * run + more
        for slices in ([[2] * (count - 1) + [5]], [[1]] * (count - 1) + [[5]], [[1] * (count - 1), [1]]):
            coo = of_lengths(slices)
            tensor = fibers(coo, (0, 1, 2))
            assert tensor.uppers.shape[1] == count
            assert_right(tensor, coo, 32, deterministic=more == 0, modes=[0])
        assert_right(tensor, coo, 32, deterministic=more == 0, modes=[2])


@pytest.mark.parametrize("short", [0, 1000])
@pytest.mark.parametrize("slices", [1, 4, 5, 31, 32, 33])
def test_slices_at_the_ends_of_bins_equal_the_reference(slices, short, monkeypatch):
    """Slices of one warp or group, alone or after slices of 2, 4 and 8 warps."""
    monkeypatch.setattr(OF_B_CSF, "SHORT", short)
    for others in ([], [[1] * 12, [2, 2], [3] * 4, [1] * 3]):
        coo = of_lengths([[1 + i % 2] for i in range(slices)] + others)
        tensor = b_csf(coo, (0, 1, 2), share=2)
        assert (groups_of_short(tensor, 8) == 1) == (short > 0)
        assert_right(tensor, coo, 32, deterministic=slices % 2 == 0, modes=[0])


def test_bins_may_be_empty():
    for slices in ([[8] * 4], [[1], [8] * 4], [[8] * 4, [4] * 3]):
        coo = of_lengths(slices)
        tensor = b_csf(coo, (0, 1, 2), share=4)
        assert 0 in np.diff(tensor.bins)
        for deterministic in (False, True):
            assert_right(tensor, coo, 32, deterministic, modes=[0])


@pytest.mark.at_most(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "build", [functools.partial(mm_csf, split=4), functools.partial(b_csf_all, split=4, share=6)]
)
def test_deterministic_results_are_the_same_under_every_schedule(build, long_runs):
    coo = scattered((5, 12, 40), 120)
    tensor = build(coo)
    for mode in range(3):
        results = [
            product(
                tensor,
                coo,
                mode,
                32,
                True,
                simwarp.Device(schedule=name, seed=seed, multiprocessors=1 + seed),
            )[0]
            for name, seed in SCHEDULES
        ]
        for other in results[1:]:
            np.testing.assert_array_equal(results[0].view(np.uint32), other.view(np.uint32))


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize(("name", "seed"), SCHEDULES[1:])
def test_sums_in_any_order_are_right(name, seed, long_runs):
    coo = scattered((5, 12, 40), 70)
    device = simwarp.Device(schedule=name, seed=seed)
    assert_right(mm_csf(coo, split=4), coo, 32, device=device)
    assert_right(b_csf_all(coo, split=4, share=6), coo, 32, device=device)


def test_arrays_may_have_any_alignment(monkeypatch):
    for module in (OF_FIBERS, OF_B_CSF):
        monkeypatch.setattr(module, "aligned", lambda tensor: {})
    coo = of_lengths(LENGTHS["every start and length"])
    assert_right(fibers(coo, (0, 1, 2)), coo, 32)
    assert_right(b_csf(coo, (0, 1, 2)), coo, 32, modes=[0])


@pytest.mark.parametrize(
    ("leaves", "values", "is_aligned"), [(32, 48, True), (36, 48, False), (32, 56, False)]
)
def test_alignment_is_detected_from_pointers(leaves, values, is_aligned):
    tensor = SimpleNamespace(leaves=SimpleNamespace(pointer=leaves), values=SimpleNamespace(pointer=values))
    assert bool(aligned(tensor)) == is_aligned


def test_infinite_and_nan_values_affect_only_their_rows():
    coo = of_lengths([[3, 1], [2], [5]])
    values = coo.values.copy()
    values[[0, 4]] = np.inf, np.nan
    coo = Coo(coo.coords, values, coo.shape, nonfinite=True)
    for tensor, deterministic in itertools.product(
        (fibers(coo, (0, 1, 2)), b_csf(coo, (0, 1, 2))), (False, True)
    ):
        y, expected, _ = product(tensor, coo, 0, 32, deterministic)
        np.testing.assert_array_equal(np.isfinite(y), np.isfinite(expected))
        np.testing.assert_array_equal(np.isnan(y), np.isnan(expected))


def test_the_fibers_per_group_depend_on_the_sizes():
    assert run_of_group(fibers=1, nonzeros=1) == 1
    assert run_of_group(fibers=200_000, nonzeros=20_000_000) == 1
    assert run_of_group(fibers=4_000_000, nonzeros=14_000_000) == 18
    assert run_of_group(fibers=100_000, nonzeros=100_000) == 1


@pytest.mark.slow
@settings(max_examples=10)
@given(
    st.lists(st.lists(st.integers(1, 11), min_size=1, max_size=9), min_size=1, max_size=9),
    st.integers(1, 5),
    st.integers(1, 9),
    st.integers(1, 4),
    st.booleans(),
)
def test_random_fiber_lengths_equal_the_reference(slices, split, share, run, deterministic):
    coo = of_lengths(slices)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OF_FIBERS, "run_of_group", lambda count, nonzeros: run)
        assert_right(fibers(coo, (0, 1, 2), split=split), coo, 32, deterministic, modes=[0, 2])
        assert_right(b_csf(coo, (0, 1, 2), split=split, share=share), coo, 32, deterministic, modes=[0])
