"""`gpu.mttkrp` on the simulator: coordinates, HiCOO, F-COO, partial sums, plans, and invalid arguments."""

import gc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simwarp
from gpu.mttkrp import FORMATS, KERNELS, Plan, download, formats, mttkrp, plan, upload
from gpu.mttkrp.checks import check_rank
from gpu.mttkrp.formats.coo import CHUNK, runs_of
from gpu.mttkrp.formats.csf import fibers_of
from gpu.mttkrp.kernels import Setting
from gpu.mttkrp.reduction import SHORT
from gpu.mttkrp.upload import arrays_of
from reference import mttkrp as reference_mttkrp
from reference import mttkrp_bound
from reference.errors import DtypeError, FormatError, ShapeError
from reference.sparse import b_csf, csf, csf_all, f_coo, f_coo_all, fibers, hi_coo, mm_csf, to_coo
from reference.types import Coo, MmCsf, PerMode
from support import scattered_tensors as _shared
from support.offenders import every_case

numbers, scattered = _shared.numbers, _shared.scattered

DTYPES = ("float32", "float64")
RANKS = (1, 7, 16, 32, 33, 48, 64, 100)
SCHEDULES = (("stack", 0), ("random", 1))
FLAT = {
    "coo": lambda coo: coo,
    "hicoo": lambda coo: hi_coo(to_coo(coo), block=4),
    "f-coo": lambda coo: f_coo_all(to_coo(coo), partition=32),
}
"""The formats that have no tree, small enough that edges of blocks and partitions are everywhere."""


def of_rows(lengths, dtype="float32"):
    """An order-3 tensor with the given numbers of nonzeros in the odd rows of mode 0 and empty even rows."""
    places = [(2 * n + 1, z % 3, z // 3) for n, length in enumerate(lengths) for z in range(length)]
    return Coo(np.array(places).T, numbers(len(places), dtype=dtype), (2 * len(lengths) + 2, 3, max(lengths)))


def clean_factors(coo, rank, seed=0):
    dtype = coo.values.dtype.name
    return [numbers(n, rank, dtype=dtype, k=seed + m + 1) for m, n in enumerate(coo.shape)]


def dirty_factors(coo, rank, mode):
    """Factors with NaN and infinity in unreferenced rows and all over the factor of the mode."""
    dirty = []
    for m, factor in enumerate(clean_factors(coo, rank)):
        given = np.full_like(factor, np.nan)
        given[::2] = np.inf
        if m != mode:
            used = np.unique(coo.coords[m])
            given[used] = factor[used]
        dirty.append(given)
    return dirty


def assert_within(y, coo, rank, mode):
    clean = clean_factors(coo, rank)
    expected, bound = reference_mttkrp(coo, clean, mode), mttkrp_bound(coo, clean, mode, coo.values.dtype)
    assert type(y) is np.ndarray
    assert (y.shape, y.dtype) == (expected.shape, coo.values.dtype)
    assert (abs(y - expected) <= bound).all()
    empty = np.setdiff1d(np.arange(coo.shape[mode]), coo.coords[mode])
    assert not y[empty].view(np.uint8).any()


def assert_right(tensor, coo, rank, *, device=None, deterministic=False, modes=None):
    for mode in range(len(coo.shape)) if modes is None else modes:
        factors = dirty_factors(coo, rank, mode)
        device = device or simwarp.Device()
        assert_within(
            mttkrp(tensor, factors, mode, device=device, deterministic=deterministic), coo, rank, mode
        )


def bits(x):
    return np.ascontiguousarray(x).view(np.uint8)


# --------------------------------------------------------------------------------------------------
# Right, for every format, order, rank and type
# --------------------------------------------------------------------------------------------------


def test_values_distinguish_rows_and_columns():
    """Constant factors would hide a wrong index."""
    x = numbers(7, 5, k=2)
    assert np.unique(x).size == x.size
    assert not np.array_equal(x, numbers(7, 5, k=3))


@pytest.mark.at_most(2)
@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("name", FLAT)
def test_every_rank_equals_the_reference(name, rank):
    k = RANKS.index(rank) + list(FLAT).index(name)
    coo = scattered((9, 5, 14), 100, DTYPES[k % 2])
    assert_right(FLAT[name](coo), coo, rank, deterministic=k // 2 % 2 == 0, modes=[k % 3])


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.slow_cases(but=("coo-shape0", "hicoo-shape0", "f-coo-shape1"))
@pytest.mark.parametrize("shape", [(40, 3), (2, 9, 4, 5), (3, 2, 5, 3, 4)])
@pytest.mark.parametrize("name", FLAT)
def test_every_order_equals_the_reference(name, shape):
    for mode in range(len(shape)):
        coo = scattered(shape, 80, DTYPES[mode // 2 % 2])
        assert_right(FLAT[name](coo), coo, 8, deterministic=mode % 2 == 1, modes=[mode])


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.slow_cases("hicoo")
@pytest.mark.parametrize("name", FLAT)
def test_the_highest_order_equals_the_reference(name):
    coo = scattered((2, 3, 1, 2, 4, 2, 3, 2), 50)
    assert_right(FLAT[name](coo), coo, 4, modes=[1])
    assert_right(FLAT[name](coo), coo, 4, deterministic=True, modes=[7])


@pytest.mark.at_most(2)
@pytest.mark.slow_cases("f-coo")
@pytest.mark.parametrize("name", FORMATS)
def test_formats_of_the_builders_equal_the_reference(name):
    coo = to_coo(scattered((9, 5, 14), 80))
    tensor = FORMATS[name](coo)
    for mode in range(3):
        assert_right(tensor, coo, 16, deterministic=mode == 1, modes=[mode])


@pytest.mark.at_most(3)
@pytest.mark.slow_cases("f-coo-cc1")
@pytest.mark.parametrize("cc", [(7, 5), (8, 0)])
@pytest.mark.parametrize("name", FLAT)
def test_older_chips_equal_the_reference(name, cc):
    coo = scattered((9, 5, 14), 80)
    assert_right(FLAT[name](coo), coo, 16, device=simwarp.Device(cc), modes=[1])


@pytest.mark.at_most(2)
@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i4"])
def test_coordinates_may_have_any_integer_type(dtype):
    coo = scattered((9, 5, 14), 60)
    assert_right(Coo(coo.coords.astype(dtype), coo.values, coo.shape), coo, 4, modes=[2])


def test_factors_may_have_foreign_byte_order():
    coo = scattered((9, 5, 14), 60, "float64")
    factors = [x.astype(">f8") for x in clean_factors(coo, 4)]
    assert_within(mttkrp(coo, factors, 1, device=simwarp.Device()), coo, 4, 1)


@pytest.mark.slow_cases("False")
@pytest.mark.parametrize("deterministic", [False, True])
def test_duplicate_coordinates_add_up(deterministic):
    once = scattered((6, 4, 5), 50, "float64")
    thrice = Coo(np.tile(once.coords, 3), np.tile(once.values, 3), once.shape)
    assert_right(thrice, thrice, 6, deterministic=deterministic, modes=[1])


# --------------------------------------------------------------------------------------------------
# Edges of chunks and partitions
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("lengths", [[1], [31, 2, 30, 33], [32, 64, 1], [30, 130, 5], [7] * 20])
def test_segments_may_cross_partitions_anywhere(lengths, deterministic):
    coo = of_rows(lengths)
    assert_right(f_coo(coo, 0, partition=32), coo, 8, deterministic=deterministic, modes=[0])


@pytest.mark.at_most(1)
@pytest.mark.parametrize("deterministic", [False, True])
def test_runs_may_cross_chunks_anywhere(deterministic):
    coo = of_rows([31, 2, 30, 33, 64, 1])
    for tensor in (coo, hi_coo(coo, block=2)):
        assert_right(tensor, coo, 8, deterministic=deterministic, modes=[0])


@pytest.mark.slow
@given(
    lengths=st.lists(st.integers(1, 70), min_size=1, max_size=6),
    partition=st.sampled_from([32, 64, 128]),
    deterministic=st.booleans(),
)
@settings(max_examples=8)
def test_random_segments_equal_the_reference(lengths, partition, deterministic):
    coo = of_rows(lengths)
    assert_right(f_coo(coo, 0, partition=partition), coo, 4, deterministic=deterministic, modes=[0])


@pytest.mark.parametrize("nonzeros", [1, 2, 3, 5, 8])
def test_lists_may_have_any_alignment(nonzeros):
    """Rows of `products` are aligned to four bytes only."""
    coo = Coo(np.arange(nonzeros) % np.array([[7], [3], [4]]), numbers(nonzeros), (7, 3, 4))
    assert_right(f_coo_all(to_coo(coo)), coo, 4, modes=[1])


def test_each_run_has_a_partial_sum_per_chunk():
    rows = np.repeat([4, 9, 4, 2], [CHUNK - 1, 2, CHUNK, 1])
    slot_rows, first_slots = runs_of(rows)
    assert slot_rows.tolist() == [4, 9, 9, 4, 4, 2]
    assert first_slots.tolist() == [0, 2, 4]


@pytest.mark.slow
def test_long_lists_of_partial_sums_add_up():
    """Nonzeros of alternating rows each get a partial sum; some rows have more than one group sums."""
    nonzeros = 5 * SHORT + 3
    coords = np.stack([np.arange(nonzeros) % 2, np.arange(nonzeros) % 5, np.arange(nonzeros) // 5])
    coords[0, 4::8] = 3
    coo = Coo(coords, numbers(nonzeros), (4, 5, 70))
    for rank in (1, 12, 64):
        assert_right(coo, coo, rank, deterministic=True, modes=[0])


# --------------------------------------------------------------------------------------------------
# Schedules, plans
# --------------------------------------------------------------------------------------------------


@pytest.mark.at_most(2)
@pytest.mark.parametrize("name", FORMATS)
def test_deterministic_results_do_not_depend_on_the_schedule(name):
    coo, mode = to_coo(scattered((9, 5, 14), 100)), list(FORMATS).index(name) % 3
    tensor, factors = FORMATS[name](coo), clean_factors(coo, 12)
    first = mttkrp(tensor, factors, mode, device=simwarp.Device(), deterministic=True)
    assert_within(first, coo, 12, mode)
    for schedule, seed in SCHEDULES:
        device = simwarp.Device(schedule=schedule, seed=seed)
        again = mttkrp(tensor, factors, mode, device=device, deterministic=True)
        np.testing.assert_array_equal(bits(first), bits(again))


@pytest.mark.at_most(1)
@pytest.mark.parametrize("name", FLAT)
def test_atomics_are_right_under_every_schedule(name):
    coo = scattered((9, 5, 14), 100)
    for schedule, seed in SCHEDULES:
        assert_right(FLAT[name](coo), coo, 12, device=simwarp.Device(schedule=schedule, seed=seed), modes=[0])


@pytest.mark.at_most(1)
@pytest.mark.slow_cases(but=("coo-False",))
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("name", FLAT)
def test_a_plan_clears_its_output_at_every_call(name, deterministic):
    coo, device = of_rows([3, 40, 1, 7, 30, 2]), simwarp.Device()
    launch = plan(FLAT[name](coo), 0, 8, np.float32, device, deterministic)
    gc.collect()  # the plan keeps its kernels' inputs alive
    out = device.upload(np.full((coo.shape[0], 8), np.nan, np.float32))
    factors = [device.upload(x) for x in dirty_factors(coo, 8, 0)]
    allocated = len(device.memory.allocations)
    for _ in range(2):
        launch(factors, out, device.stream())
        assert_within(out.download(), coo, 8, 0)
    assert len(device.memory.allocations) == allocated
    if deterministic:
        first = out.download()
        launch(factors, out)
        np.testing.assert_array_equal(bits(out.download()), bits(first))


def test_only_rows_that_are_not_stored_are_cleared():
    """All six segments of a partition are stored; only the rows between them are cleared."""
    device = simwarp.Device()
    coo = Coo(np.stack([np.arange(6) + np.arange(6) // 3, np.arange(6)]), numbers(6), (8, 6))
    launch = Plan(f_coo(coo, 0), 0, 4, np.float32, device)
    (clear,) = launch._clearing
    assert clear.plan.args[1].download().tolist() == [3, 7]
    full = Coo(np.stack([np.arange(6), np.arange(6)]), numbers(6), (6, 6))
    assert Plan(f_coo(full, 0), 0, 4, np.float32, device)._clearing == ()
    assert_right(f_coo(full, 0), full, 4, modes=[0])


def test_work_is_distributed_over_lanes_as_documented():
    spread = {}
    for dtype, rank in [("float32", r) for r in (1, 7, 16, 32, 33, 48, 100, 300)] + [("float64", 32)]:
        setting = Setting(simwarp.Device(), np.dtype(dtype), 3, rank)
        spread[dtype, rank] = setting.vec, setting.lanes, setting.passes
        assert setting.vec * setting.lanes * (setting.passes - 1) < rank
        assert setting.vec * setting.lanes * setting.passes >= rank
    assert spread["float32", 32] == (4, 8, 1)
    assert spread["float64", 32] == (2, 16, 1)
    assert spread["float32", 33] == (1, 32, 2)
    assert spread["float32", 300] == (4, 32, 3)
    assert set(KERNELS) == {type(x) for x in _one_of_each(to_coo(scattered((5, 4, 6), 40)))}


def _one_of_each(coo):
    return coo, hi_coo(coo), f_coo(coo, 0), b_csf(coo, (0, 1, 2)), fibers(coo, (0, 1, 2))


# --------------------------------------------------------------------------------------------------
# Arrays of the host and of the device
# --------------------------------------------------------------------------------------------------


@pytest.mark.at_most(2)
@pytest.mark.parametrize("name", [*FLAT, "csf"])
def test_device_arrays_stay_on_the_device(name):
    coo, device = scattered((9, 5, 14), 80), simwarp.Device()
    tensor = csf_all(to_coo(coo)) if name == "csf" else FLAT[name](coo)
    there = upload(tensor, device)
    assert type(there) is type(tensor)
    assert all(array.device is device for array in arrays_of(there))
    for here, back in zip(arrays_of(tensor), arrays_of(download(there)), strict=True):
        np.testing.assert_array_equal(here, back)
    factors = [device.upload(x) for x in clean_factors(coo, 8)]
    y = mttkrp(there, factors, 1)
    assert y.device is device
    assert_within(y.download(), coo, 8, 1)
    assert_within(mttkrp(there, clean_factors(coo, 8), 1), coo, 8, 1)
    assert mttkrp(tensor, [factors[0], *clean_factors(coo, 8)[1:]], 1).device is device


def test_factors_may_be_lists():
    coo = Coo([[0, 1, 1], [0, 0, 2]], [2.0, 3.0, 4.0], (2, 3))
    y = mttkrp(coo, [[[1.0, 2.0], [3.0, 4.0]], [[1.0, 1.0]] * 3], 1, device=simwarp.Device())
    assert y.tolist() == [[11.0, 16.0], [0.0, 0.0], [12.0, 16.0]]


class Shifted:
    """A device array whose address is a multiple of 16 plus 4."""

    def __init__(self, device, x):
        self.whole = device.upload(np.concatenate([np.zeros(1, x.dtype), x.ravel()]))
        self.device, self.shape, self.dtype, self.nbytes = device, x.shape, x.dtype, x.nbytes
        self.pointer = self.whole.pointer + x.itemsize

    def download(self):
        return self.whole.download()[1:].reshape(self.shape)


def test_factors_may_have_any_alignment():
    coo, device = scattered((9, 5, 14), 80), simwarp.Device()
    factors = [Shifted(device, x) for x in clean_factors(coo, 8)]
    assert factors[0].pointer % 16 == 4
    assert_within(mttkrp(coo, factors, 1).download(), coo, 8, 1)
    out = device.allocate((5, 8), np.float32)
    with pytest.raises(ShapeError, match=r"factors\[0\] is at address 0x.*\n.*16.*\n.*vector=False"):
        plan(coo, 1, 8, np.float32, device)(factors, out)
    launch = Plan(coo, 1, 8, np.float32, device, vector=False)
    launch(factors, out)
    assert_within(out.download(), coo, 8, 1)


def test_trees_convert_to_fibers():
    long = of_rows([400, 3, 130], "float64")
    for coo, modes in (
        (long, (0, 1, 2)),
        (long, (1, 0, 2)),
        (to_coo(scattered((9, 5, 14, 3), 170)), (2, 0, 3, 1)),
    ):
        got, expected = fibers_of(csf(coo, modes)), fibers(coo, modes)
        assert (got.modes, got.shape, got.split) == (expected.modes, expected.shape, expected.split)
        for ours, theirs in zip(arrays_of(got), arrays_of(expected), strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)
    matrix = to_coo(scattered((40, 300), 900))
    np.testing.assert_array_equal(fibers_of(csf(matrix)).pointers, fibers(matrix, (0, 1)).pointers)


# --------------------------------------------------------------------------------------------------
# What is refused
# --------------------------------------------------------------------------------------------------


COO = Coo([[0, 1, 1, 2], [0, 0, 2, 1], [3, 1, 0, 2]], [2.0, 3.0, 4.0, 5.0], (3, 3, 4))
ONES = [np.ones((n, 2)) for n in COO.shape]


@pytest.mark.parametrize("mode", [-1, 3, 1.5, None])
def test_invalid_modes_are_refused(mode):
    with pytest.raises(ShapeError, match=r"mode=.*\nmodes count from 0 to 2\n"):
        mttkrp(COO, ONES, mode, device=simwarp.Device())


@pytest.mark.parametrize(
    ("factors", "error", "match"),
    [
        (ONES[:2], ShapeError, "factors has 2 matrices\nthe tensor has 3 modes"),
        ([*ONES[:2], np.ones((3, 2))], ShapeError, r"factors\[2\] has shape \(3, 2\)\n\(4, 2\) is needed"),
        ([*ONES[:2], np.ones((4, 3))], ShapeError, r"factors\[2\] has shape \(4, 3\)\n\(4, 2\) is needed"),
        ([np.ones(3), *ONES[1:]], ShapeError, r"factors\[0\] has shape \(3,\)"),
        ([np.ones((n, 0)) for n in COO.shape], ShapeError, r"factors\[0\] has shape \(3, 0\)"),
        ([*ONES[:2], ONES[2].astype("f4")], DtypeError, r"factors\[2\] is float32\nfactors\[0\] is float64"),
        ([x.astype("f4") for x in ONES], DtypeError, "factors are float32, the tensor's values are float64"),
        ([x.astype("f2") for x in ONES], DtypeError, "factors are float16"),
        ([x.astype(int) for x in ONES], DtypeError, "factors are int64"),
        ([[[1.0], [2.0, 3.0]], *ONES[1:]], ShapeError, r"factors\[0\] is not an array"),
    ],
)
def test_unsuitable_factors_are_refused(factors, error, match):
    with pytest.raises(error, match=match) as caught:
        mttkrp(COO, factors, 0, device=simwarp.Device())
    assert str(caught.value).count("\n") == 2


def test_plans_refuse_other_arrays():
    device = simwarp.Device()
    launch = plan(COO, 0, 2, np.float64, device)
    factors, out = [device.upload(x) for x in ONES], device.allocate((3, 2), np.float64)
    with pytest.raises(ShapeError, match="there are 2 factors"):
        launch(factors[:2], out)
    with pytest.raises(ShapeError, match=r"factors\[1\] has shape \(4, 2\)\nthe plan is for \(3, 2\)"):
        launch([factors[0], factors[2], factors[2]], out)
    with pytest.raises(ShapeError, match=r"out has shape \(2, 3\)"):
        launch(factors, out.view((2, 3)))
    with pytest.raises(DtypeError, match="out is int64\nthe plan is for float64"):
        launch(factors, out.view((3, 2), np.int64))
    launch([None, *factors[1:]], out)  # the factor of the mode is not checked
    assert out.download()[:, 0].tolist() == [2.0, 7.0, 5.0]
    for rank in (0, -1, 65535 * 32 + 1, 2.0):
        with pytest.raises(ShapeError, match=r"rank .* is not possible\nranks are 1 to 2097120\n"):
            plan(COO, 0, rank, np.float64, device)
    assert check_rank(65535 * 32) == 65535 * 32
    with pytest.raises(DtypeError, match="factors are float32"):
        plan(COO, 0, 2, np.float32, device)


def test_formats_built_for_another_mode_are_refused():
    tensor = f_coo(COO, 1)
    with pytest.raises(FormatError, match=r"was made for mode 1, not for mode 0\n.*\n.*PerMode"):
        mttkrp(tensor, ONES, 0, device=simwarp.Device())
    mttkrp(tensor, ONES, 1, device=simwarp.Device())


def test_operands_of_two_devices_are_refused():
    with pytest.raises(DtypeError, match="another device"):
        mttkrp(upload(COO, simwarp.Device()), ONES, 0, device=simwarp.Device())


def u32(*x):
    return np.array(x, np.uint32)


FCOO, HICOO, CSF = f_coo(COO, 0), hi_coo(COO, block=2), csf(COO, (0, 1, 2))
FIBERS, BCSF = fibers(COO, (0, 1, 2)), b_csf(COO, (0, 1, 2))
BROKEN = [
    (np.ones(3), "expected a sparse tensor, got ndarray"),
    (replace(FIBERS, shape=(3,)), "2 to 8 modes"),
    (replace(FIBERS, shape=(3, 3, 2**32 + 1)), "2\\*\\*32"),
    (replace(FIBERS, modes=(0, 1, 1)), "modes is \\(0, 1, 1\\)"),
    (replace(FIBERS, values=[1.0, 2.0, 3.0, 4.0]), "values is \\[1.0, 2.0, 3.0, 4.0\\]\nan array is needed"),
    (
        replace(FIBERS, values=np.ones(4, np.float16)),
        "values is an array \\(4,\\) of float16\na host array of float32 or float64",
    ),
    (replace(FIBERS, values=np.ones((4, 1))), "values is an array \\(4, 1\\) of float64\n\\(M,\\)"),
    (replace(FIBERS, values=np.ones(3)), "pointers does not ascend from 0 to 3"),
    (replace(FIBERS, pointers=FIBERS.pointers[::-1]), "pointers does not ascend"),
    (replace(FIBERS, pointers=u32(0, 3, 2, 3, 4)), "pointers does not ascend"),
    (replace(FIBERS, pointers=u32(0)), "pointers does not ascend"),
    (
        replace(FIBERS, leaves=u32(0, 1, 2)),
        "leaves is an array \\(3,\\) of uint32\na host array \\(4,\\) of uint32",
    ),
    (
        replace(FIBERS, leaves=FIBERS.leaves.astype(int)),
        "leaves is an array \\(4,\\) of int64\na host array \\(4,\\) of uint32 is needed",
    ),
    (replace(FIBERS, leaves=u32(0, 1, 2, 4)), "leaves has the index 4 in mode 2"),
    (replace(FIBERS, uppers=FIBERS.uppers[:1]), "uppers is an array \\(1, 4\\)"),
    (
        replace(FIBERS, uppers=FIBERS.uppers + np.uint32(2)),
        "uppers\\[0\\] has the index 4 in mode 0",
    ),
    (
        MmCsf((), COO.shape),
        "MmCsf: the partitions have the leaf modes \\[\\]\nat least one partition is needed",
    ),
    (MmCsf((COO,), COO.shape), "MmCsf: a part is a Coo\nparts must be Fibers"),
    (MmCsf((FIBERS,), (3, 3, 5)), "a part has \\(3, 3, 4\\)"),
    (
        MmCsf((FIBERS, replace(FIBERS, values=np.ones(4, "f4"))), COO.shape),
        "a part has values of float32, the first of float64",
    ),
    (MmCsf((replace(FIBERS, leaves=u32(0, 1, 2, 4)),), COO.shape), "leaves has the index 4"),
    (PerMode((FCOO, FCOO, FCOO), COO.shape), "the first modes \\[0, 0, 0\\]"),
    (PerMode((HICOO,), COO.shape), "PerMode: a part is a HiCoo\nparts must be Csf, BCsf, Fibers, FCoo"),
    (replace(CSF, indices=CSF.indices[:2]), "2 arrays of indices, 2 of pointers"),
    (replace(CSF, indices=(*CSF.indices[:2], u32(9, 9, 9, 9))), "indices\\[2\\] has the index 9"),
    (replace(CSF, pointers=(u32(0, 4, 4, 4), CSF.pointers[1])), "pointers\\[0\\] does not ascend"),
    (replace(FCOO, partition=48), "partition is 48"),
    (replace(FCOO, products=FCOO.products + np.uint32(3)), "products\\[0\\] has the index 5"),
    (replace(FCOO, rows=u32(0, 2, 1)), "rows does not ascend"),
    (replace(FCOO, rows=u32(0, 1, 3)), "rows has the index 3"),
    (replace(FCOO, flags=u32(0)), "flags begin 0 segments"),
    (replace(FCOO, flags=u32(0b11111)), "flags begin 5 segments, rows has 3"),
    (replace(FCOO, flags=u32(0b1110)), "flags begin 3 segments"),
    (replace(FCOO, first=u32(1)), "first does not match flags"),
    (replace(FCOO, first=u32(0, 1)), "first is an array \\(2,\\)"),
    (replace(HICOO, block=3), "block is 3"),
    (replace(HICOO, offsets=HICOO.offsets * 3), "offsets\\[0\\] has 3"),
    (
        replace(HICOO, block_coords=HICOO.block_coords + np.uint32(1)),
        "block_coords\\[0\\] with offsets has the index 4 in mode 0",
    ),
    (
        replace(HICOO, block_pointers=HICOO.block_pointers.astype("u4")),
        "block_pointers is an array .* of uint32\na host array .* of uint64 is needed",
    ),
    (
        replace(BCSF, order=u32(0, 0, 1)),
        "order or bins \\(0, 3\\) does not match the nonzeros of the slices",
    ),
    (replace(BCSF, bins=(0, 2)), "or bins \\(0, 2\\) does not match.*\nbins must be \\(0, 3\\)"),
    (replace(BCSF, slices=u32(0, 1, 7)), "slices has the index 7"),
    (replace(BCSF, slice_pointers=u32(0, 1, 3, 9)), "slice_pointers does not ascend from 0 to 4"),
]


@every_case(("tensor", "match"), BROKEN)
def test_tensors_with_wrong_arrays_are_refused(tensor, match):
    device = simwarp.Device()
    with pytest.raises(FormatError, match=match) as caught:
        upload(tensor, device)
    assert str(caught.value).count("\n") == 2
    with pytest.raises(FormatError, match=match):
        mttkrp(tensor, ONES, 0, device=device)
    assert device.launches == 0


def test_intact_tensors_are_accepted():
    for tensor in (COO, FCOO, HICOO, CSF, FIBERS, BCSF, mm_csf(COO), f_coo_all(COO), csf_all(COO)):
        assert_within(mttkrp(tensor, clean_factors(COO, 2), 0, device=simwarp.Device()), COO, 2, 0)
    assert set(formats.FORMATS) == set(FORMATS)
