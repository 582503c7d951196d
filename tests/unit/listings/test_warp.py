"""Kernels in Python: launch dimensions, divergence, barriers, warp operations, and the place of faults."""

import functools
import inspect
import math
from pathlib import Path

import numpy as np
import pytest

from reference.errors import DtypeError, SchemeError, ShapeError
from simwarp import faults
from simwarp.lanes import ALL_LANES, LANE
from simwarp.warp import GRID, GlobalArray, Warp, launch
from support.offenders import every_case

U32, I32 = np.uint32, np.int32
POISON = 0xA5A5A5A5


def lanes_of(kernel, *, threads=32):
    """Launch one warp of ``kernel(warp)`` and return the register that it returns."""
    kept = []

    def keep(warp):
        kept.append(kernel(warp))

    launch(keep, 1, threads)
    return kept[0]


def fault_of(kind, kernel, grid, block, *args, **options):
    """The fault that a launch raises."""
    with pytest.raises(kind) as caught:
        launch(kernel, grid, block, *args, **options)
    assert type(caught.value) is kind
    place = caught.value.place
    where = f"{Path(__file__).name}:{place.line}: " if place.line else ""
    assert str(caught.value).startswith(where)
    assert f"\nhelp: {caught.value.advice}" in str(caught.value)
    return caught.value


def line_of(kernel, text):
    """Number of the only line of a kernel that contains ``text``."""
    source, first = inspect.getsourcelines(kernel)
    (at,) = [i for i, line in enumerate(source) if text in line]
    return first + at


# --------------------------------------------------------------------------------------------------
# Geometry
# --------------------------------------------------------------------------------------------------


def test_every_thread_of_every_block_runs_once():
    grid, block = (2, 3, 2), (5, 4, 3)
    seen = GlobalArray.of("seen", np.zeros((*grid[::-1], *block[::-1]), I32))

    def kernel(warp, seen):
        number = 0
        for here, size in zip(warp.block[::-1], warp.grid[::-1], strict=True):
            number = number * size + here
        x, y, z = warp.thread
        width, height, depth = warp.block_dim
        index = ((number * depth + z) * height + y) * width + x
        warp.store(seen, index, warp.load(seen, index) + I32(1))

    launch(kernel, grid, block, seen)
    assert (seen.numpy() == 1).all()


def test_threads_are_numbered_x_first():
    kept = []
    launch(lambda warp: kept.append((warp.index, *warp.thread)), 1, (4, 3, 4))
    threads = [(x, y, z) for z in range(4) for y in range(3) for x in range(4)]
    assert [index for index, *_ in kept] == [0, 1]
    got = [tuple(int(n) for n in thread) for _, x, y, z in kept for thread in zip(x, y, z, strict=True)]
    assert got[:48] == threads


def test_blocks_run_in_linear_order():
    kept = []
    launch(lambda warp: kept.append(tuple(warp.block)), (2, 2, 2), 1)
    assert kept == [(x, y, z) for z in range(2) for y in range(2) for x in range(2)]


def test_the_last_warp_may_be_partial():
    kept = []
    launch(lambda warp: kept.append((warp.active.copy(), warp.alive.copy())), 1, 40)
    assert [int(active.sum()) for active, _ in kept] == [32, 8]
    assert [int(alive.sum()) for _, alive in kept] == [32, 8]


def test_index_registers_are_read_only():
    for register in (lambda w: w.lane, lambda w: w.thread.x, lambda w: w.active):
        array = lanes_of(register)
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize(
    ("grid", "block", "named"),
    [
        (0, 32, "grid is 0"),
        ((1, 65536), 32, "grid"),
        ((1, 1, 1, 1), 32, "grid"),
        ((), 32, "grid"),
        (1, 1025, "block"),
        (1, (32, 33), "1056 threads"),
        (1, (1, 1, 65), "block"),
        (1, (4, 0), "block"),
    ],
)
def test_launch_dimensions_that_cuda_refuses_are_refused(grid, block, named):
    with pytest.raises(faults.LaunchError, match=named):
        launch(lambda warp: None, grid, block)


def test_a_numpy_array_is_refused_as_an_argument():
    with pytest.raises(faults.LaunchError, match=r"argument 1 .*\n.*\n.*GlobalArray\.of"):
        launch(lambda warp, n, x: None, 1, 32, 5, np.zeros(3))


def test_launch_dimensions_may_be_numpy_integers():
    kept = []
    launch(lambda warp: kept.append(warp.grid), (np.int64(2), np.uint8(1)), np.int32(32))
    assert kept == [(2, 1, 1)] * 2


# --------------------------------------------------------------------------------------------------
# Memory
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [bool, "i1", "u2", "i4", "u8", "f2", "f4", "f8", ">f4", ">i8"])
def test_uploaded_arrays_are_downloaded_unchanged(dtype):
    values = np.arange(6).reshape(2, 3).astype(dtype)
    back = GlobalArray.of("x", values.T).numpy()
    np.testing.assert_array_equal(back, values.T)
    assert back.dtype == values.dtype.newbyteorder("=")


def test_scalars_and_empty_arrays_are_downloaded_unchanged():
    assert GlobalArray.of("x", np.float32(3)).numpy() == np.float32(3)
    assert GlobalArray.of("x", np.zeros((0, 4))).numpy().shape == (0, 4)


@pytest.mark.parametrize("dtype", ["c16", "U3", "O", "M8[s]", "g"])
def test_unsupported_element_types_are_refused(dtype):
    with pytest.raises(DtypeError, match="array x"):
        GlobalArray("x", 4, dtype)


def test_downloading_unwritten_elements_is_a_fault():
    def kernel(warp, x):
        with warp.where(warp.lane != 3):
            warp.store(x, warp.lane, warp.lane)

    x = GlobalArray("x", 32, U32)
    launch(kernel, 1, 32, x)
    with pytest.raises(faults.UninitialisedRead, match="byte 12 of x"):
        x.numpy()


def test_a_scalar_is_stored_by_every_lane():
    x = GlobalArray("x", 32, np.float32)
    launch(lambda warp, x: warp.store(x, warp.lane, 2), 1, 32, x)
    assert x.numpy().tolist() == [2.0] * 32


@pytest.mark.parametrize("values", [1.5, np.int64(1), LANE.astype(np.int64), np.ones(32)])
def test_a_store_of_another_type_is_refused(values):
    x = GlobalArray("x", 32, U32)
    with pytest.raises(DtypeError, match=r"to x\n.* uint32\n.*\.astype\(np\.uint32\)"):
        launch(lambda warp, x: warp.store(x, warp.lane, values), 1, 32, x)


def test_values_need_32_lanes_and_indices_must_be_integers():
    x = GlobalArray.of("x", np.zeros(64, U32))
    with pytest.raises(ShapeError, match=r"\(16,\)"):
        launch(lambda warp, x: warp.store(x, np.arange(16), 0), 1, 32, x)
    with pytest.raises(DtypeError, match="index into x is float64"):
        launch(lambda warp, x: warp.load(x, warp.lane / 2), 1, 32, x)
    with pytest.raises(DtypeError, match=r"ballot of uint32\na predicate is bool\n.* `x != 0`"):
        launch(lambda warp: warp.ballot(warp.lane), 1, 32)


def test_a_view_reads_the_same_bytes_as_another_type():
    words = GlobalArray.of("words", np.array([1, 2, 3, 4], U32))
    out = GlobalArray("out", 32, np.uint64)
    launch(
        lambda warp, w, out: warp.store(out, warp.lane, warp.load(w, warp.lane % 2)),
        1,
        32,
        words.view("u8"),
        out,
    )
    assert out.numpy()[:2].tolist() == [(2 << 32) | 1, (4 << 32) | 3]


def test_atomic_adds_to_one_element_accumulate():
    def kernel(warp, x):
        with warp.where(warp.lane != 3):
            warp.atomic_add(x, warp.lane % 3, warp.lane)

    x = GlobalArray.of("x", np.array([100, 0, 0, 7], U32))
    launch(kernel, 2, 32, x)
    turns = [2 * sum(lane for lane in range(first, 32, 3) if lane != 3) for first in range(3)]
    assert x.numpy().tolist() == [100 + turns[0], turns[1], turns[2], 7]


def test_float_atomic_adds_run_in_lane_order():
    large = np.float32(2**24)  # adding 1 to it has no effect in float32
    values = np.array([1] * 16 + [large] + [1] * 15, np.float32)
    x = GlobalArray.of("x", np.zeros(1, np.float32))
    launch(lambda warp, x: warp.atomic_add(x, 0, values), 1, 32, x)
    assert x.numpy()[0] == large + 16


@pytest.mark.parametrize(
    ("kind", "index"), [(faults.OutOfBounds, 10), (faults.ReadOnlyWrite, 0), (faults.UninitialisedRead, 0)]
)
def test_a_bad_atomic_add_is_a_fault(kind, index):
    if kind is faults.UninitialisedRead:
        x = GlobalArray("x", 32, U32)
    else:
        x = GlobalArray.of("x", np.zeros(32, U32), read_only=kind is faults.ReadOnlyWrite)

    def kernel(warp, x):
        warp.atomic_add(x, warp.lane + index, U32(1))

    fault = fault_of(kind, kernel, 1, 32, x)
    assert fault.place.lane == (22 if index else 0)


def test_an_atomic_add_of_another_type_is_refused():
    with pytest.raises(DtypeError, match=r"atomic_add of float64 to x\n.* uint32"):
        launch(
            lambda warp, x: warp.atomic_add(x, 0, np.full(32, 0.5)),
            1,
            32,
            GlobalArray.of("x", np.zeros(1, U32)),
        )


# --------------------------------------------------------------------------------------------------
# Memory faults: kind, place, values
# --------------------------------------------------------------------------------------------------


def read_at(warp, x, first):
    return warp.load(x, first + warp.thread.x)  # the load


@pytest.mark.parametrize(
    ("first", "lane", "offset"),
    [(41, 31, 288), (60, 12, 288), (72, 0, 288), (-3, 0, -12), (-1, 0, -4), (1 << 40, 0, 1 << 42)],
)
def test_an_index_out_of_bounds_is_a_fault(first, lane, offset):
    x = GlobalArray.of("x", np.zeros(72, U32))
    fault = fault_of(faults.OutOfBounds, read_at, (1, 2), 32, x, np.int64(first))
    assert fault.place == faults.Place(
        kernel="read_at",
        block=(0, 0, 0),
        warp=0,
        lane=lane,
        thread=(lane, 0, 0),
        line=(line := line_of(read_at, "# the load")),
        text=(text := "return warp.load(x, first + warp.thread.x)  # the load"),
        source_file="test_warp.py",
        source_line=line,
        source_text=text,
    )
    assert (fault.space, fault.allocation, fault.offset, fault.width) == ("global", "x", offset, 4)
    assert f"index {first + lane} into x, size 72" in str(fault)


def test_a_fault_names_warp_and_active_lane():
    def kernel(warp, x):
        with warp.where(warp.lane >= 5), warp.where(warp.lane != 6):
            warp.store(x, warp.block.y * 64 + warp.thread.y * 8 + warp.thread.x, U32(0))

    fault = fault_of(faults.OutOfBounds, kernel, (1, 3), (8, 8), GlobalArray("x", 64 + 32 + 7, U32))
    place = fault.place
    assert (place.block, place.warp, place.lane, place.thread) == ((0, 1, 0), 1, 7, (7, 4, 0))
    assert place.line == line_of(kernel, "warp.store")
    assert (fault.allocation, fault.offset) == ("x", 4 * 103)


def test_no_index_of_one_array_reaches_another():
    x, y = (GlobalArray.of(name, np.zeros(1024, U32)) for name in "xy")
    for index in range(-2048, 2048, 64):
        if not 0 <= index < 1024:
            fault = fault_of(faults.OutOfBounds, lambda warp, x, y: warp.load(x, index), 1, 32, x, y)  # noqa: B023
            assert fault.allocation == "x"


def test_inactive_lanes_may_hold_any_index():
    x = GlobalArray.of("x", np.arange(4, dtype=U32))

    def kernel(warp):
        with warp.where(warp.lane < 4):
            return warp.load(x, warp.lane)

    assert lanes_of(kernel).tolist() == [0, 1, 2, 3] + [POISON] * 28


def test_a_read_of_unwritten_memory_is_a_fault():
    def kernel(warp, x):
        with warp.where(warp.lane < 8):
            warp.store(x, warp.lane, warp.lane)
        warp.load(x, warp.lane)

    fault = fault_of(faults.UninitialisedRead, kernel, 1, 32, GlobalArray("x", 32, U32))
    assert (fault.place.lane, fault.place.line) == (8, line_of(kernel, "warp.load"))


def test_a_misaligned_view_is_a_fault():
    def kernel(warp, x):
        warp.load(x, warp.lane)

    x = GlobalArray.of("x", np.zeros(128, U32)).view(np.uint64, offset=1)
    fault = fault_of(faults.Misaligned, kernel, 1, 32, x)
    assert (fault.place.lane, fault.offset, fault.width) == (0, 4, 8)


def test_a_write_to_read_only_memory_is_a_fault():
    x = GlobalArray.of("x", np.zeros(32, U32), read_only=True)
    fault = fault_of(faults.ReadOnlyWrite, lambda warp, x: warp.store(x, warp.lane, warp.lane), 1, 32, x)
    assert (fault.place.kernel, fault.place.lane) == ("<lambda>", 0)


def helper(warp, x):
    return warp.load(x, 99)


def test_a_fault_in_a_helper_names_the_line_of_the_kernel():
    def kernel(warp, x):
        helper(warp, x)

    @functools.wraps(kernel)
    def wrapped(*args):
        return kernel(*args)

    x = GlobalArray.of("x", np.zeros(4, U32))
    for launched in (kernel, wrapped):
        fault = fault_of(faults.OutOfBounds, launched, 1, 32, x)
        assert fault.place.line == line_of(kernel, "helper(warp, x)")
        assert fault.place.text == "helper(warp, x)"


def test_a_callable_without_source_has_no_line():
    fault = fault_of(
        faults.OutOfBounds, functools.partial(Warp.load, index=9), 1, 1, GlobalArray("x", 4, U32)
    )
    assert (fault.place.kernel, fault.place.line, fault.place.lane) == ("partial", None, 0)


def test_a_kernel_may_raise_a_fault_with_its_place():
    def kernel(warp):
        raise warp.place(faults.Trap("trap", "values", "advice"), lane=3)

    fault = fault_of(faults.Trap, kernel, 1, 32)
    assert (fault.place.lane, fault.place.line) == (3, line_of(kernel, "raise"))


# --------------------------------------------------------------------------------------------------
# Divergence
# --------------------------------------------------------------------------------------------------


def test_where_nests_and_restores():
    def kernel(warp):
        seen = [warp.active]
        with warp.where(warp.lane < 8):
            seen.append(warp.active)
            with warp.where(warp.lane % 2 == 1):
                seen.append(warp.active)
            seen.append(warp.active)
        return [*seen, warp.active]

    masks = [sum(1 << i for i in np.flatnonzero(active)) for active in lanes_of(kernel)]
    assert masks == [ALL_LANES, 0xFF, 0xAA, 0xFF, ALL_LANES]


def test_where_restores_after_an_exception():
    def kernel(warp):
        with pytest.raises(KeyError), warp.where(warp.lane < 8):
            raise KeyError
        return warp.active

    assert lanes_of(kernel).all()


def test_where_runs_both_sides_of_a_branch():
    def kernel(warp):
        x = warp.lane * U32(0)
        with warp.where(warp.lane < 10):
            x = warp.select(1, x)
        with warp.where(~(warp.lane < 10)):
            x = warp.select(warp.lane, x)
        return x

    x = lanes_of(kernel)
    assert x.dtype == U32
    assert x.tolist() == [1] * 10 + list(range(10, 32))


def test_where_runs_a_loop_with_per_lane_trip_counts():
    """Collatz step counts of 1 … 32."""

    def kernel(warp):
        x, steps = warp.lane + U32(1), np.zeros(32, U32)
        while warp.any(x != 1):
            with warp.where(x != 1):
                x = warp.select(np.where(x % 2 == 0, x // 2, 3 * x + 1), x)
                steps = warp.select(steps + 1, steps)
        return steps

    def collatz(n):
        return 0 if n == 1 else 1 + collatz(n // 2 if n % 2 == 0 else 3 * n + 1)

    assert lanes_of(kernel).tolist() == [collatz(n) for n in range(1, 33)]


def test_operations_without_active_lanes_have_no_effect():
    x = GlobalArray.of("x", np.zeros(1, U32))

    def kernel(warp):
        with warp.where(False):
            warp.store(x, 999, U32(1))
            return [
                warp.load(x, -5),
                warp.ballot(True),
                warp.shfl(warp.lane, 40),
                warp.reduce("add", warp.lane),
            ]

    assert all(register.tolist() == [POISON] * 32 for register in lanes_of(kernel))
    assert x.numpy().tolist() == [0]


def test_poisoned_predicates_are_true():
    def kernel(warp):
        with warp.where(warp.lane < 1):
            return warp.shfl(np.zeros(32, bool), 0, mask=1)

    assert lanes_of(kernel).tolist() == [False] + [True] * 31


ATOMICS = {
    "atomic_min": min,
    "atomic_max": max,
    "atomic_and": lambda a, b: a & b,
    "atomic_or": lambda a, b: a | b,
    "atomic_xor": lambda a, b: a ^ b,
}


@pytest.mark.parametrize("name", ATOMICS)
@pytest.mark.parametrize("dtype", [np.int32, np.uint64])
def test_atomic_operations_of_lanes_and_blocks_all_count(name, dtype):
    rng = np.random.default_rng(7)
    initial, values = rng.integers(0, 99, 5).astype(dtype), rng.integers(0, 99, (3, 32)).astype(dtype)

    def kernel(warp, x):
        with warp.where(warp.lane != 4):
            getattr(warp, name)(x, warp.lane % 5, values[warp.block.x])

    x = GlobalArray.of("x", initial)
    launch(kernel, 3, 32, x)
    expected = [
        functools.reduce(
            ATOMICS[name],
            [int(values[b, lane]) for b in range(3) for lane in range(i, 32, 5) if lane != 4],
            int(initial[i]),
        )
        for i in range(5)
    ]
    assert x.numpy().tolist() == expected


@pytest.mark.parametrize("name", ["atomic_and", "atomic_or", "atomic_xor"])
def test_bits_of_floats_are_not_updated(name):
    x = GlobalArray.of("x", np.zeros(1, np.float32))
    with pytest.raises(DtypeError, match=rf"{name} to x\n.* float32"):
        launch(lambda warp: getattr(warp, name)(x, 0, np.float32(1)), 1, 32)


# --------------------------------------------------------------------------------------------------
# Barriers and shared memory
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 32, 40, 64, 1000, 1024])
def test_a_block_reverses_through_shared_memory(threads):
    def reverse(warp, x):
        tile = warp.shared["tile"]
        i, base = warp.thread.x, warp.block.x * warp.block_dim.x
        warp.store(tile, i, warp.load(x, base + i))
        yield
        warp.store(x, base + i, warp.load(tile, threads - 1 - i))

    values = np.arange(3 * threads, dtype=U32)
    x = GlobalArray.of("x", values)
    launch(reverse, 3, threads, x, shared={"tile": (U32, threads)})
    np.testing.assert_array_equal(x.numpy(), values.reshape(3, threads)[:, ::-1].reshape(-1))


def test_warps_run_in_turn_from_barrier_to_barrier():
    order = []

    def kernel(warp):
        for step in range(3):
            order.append((step, warp.index))
            yield

    launch(kernel, 1, 96)
    assert order == [(step, warp) for step in range(3) for warp in range(3)]


def test_without_the_barrier_the_other_warps_half_is_poison():
    def reverse(warp, x):
        tile = warp.shared["tile"]
        warp.store(tile, warp.thread.x, warp.load(x, warp.thread.x))
        warp.store(x, warp.thread.x, warp.load(tile, 63 - warp.thread.x))

    x = GlobalArray.of("x", np.zeros(64, U32))
    fault = fault_of(faults.UninitialisedRead, reverse, 1, 64, x, shared={"tile": (U32, 64)})
    assert (fault.space, fault.allocation, fault.place.warp, fault.place.lane) == ("shared", "tile", 0, 0)


def test_shared_memory_is_poison_in_every_block():
    def kernel(warp):
        if warp.block.x == 0:
            warp.store(warp.shared["s"], warp.lane, warp.lane)
        warp.load(warp.shared["s"], warp.lane)

    fault = fault_of(faults.UninitialisedRead, kernel, 2, 32, shared={"s": (U32, (4, 8))})
    assert fault.place.block == (1, 0, 0)


def test_a_barrier_that_some_warps_never_reach_is_a_fault():
    def kernel(warp):
        yield
        if warp.index in (1, 3):
            yield  # only two

    fault = fault_of(faults.BarrierFault, kernel, (2, 1), 128)
    assert "waiting: warps [1, 3]; ended: warps [0, 2]" in str(fault)
    place = fault.place
    assert (place.kernel, place.block, place.warp, place.lane) == ("kernel", (0, 0, 0), 1, None)
    assert (place.line, place.text) == (line_of(kernel, "# only two"), "yield  # only two")


def test_a_barrier_in_some_warps_only_is_a_fault():
    def waiting():
        yield

    fault = fault_of(faults.BarrierFault, lambda warp: waiting() if warp.index else None, 1, 64)
    assert "waiting: warps [1]; ended: warps [0]" in str(fault)


def test_a_barrier_in_divergent_code_is_a_fault():
    def kernel(warp):
        with warp.where(warp.lane != 9):
            yield

    fault = fault_of(faults.BarrierFault, kernel, 1, 32)
    assert (fault.place.warp, fault.place.lane, fault.place.line) == (0, 9, line_of(kernel, "yield"))
    assert "waiting 0xfffffdff, not exited 0xffffffff" in str(fault)


def test_a_barrier_reached_by_all_existing_lanes_completes():
    def kernel(warp):
        with warp.where(warp.thread.x < 40):
            yield

    launch(kernel, 1, 40)


# --------------------------------------------------------------------------------------------------
# Barriers of the grid
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [1, 5, (2, 3, 2)])
@pytest.mark.parametrize("threads", [32, 70])
def test_after_a_grid_barrier_every_block_sees_what_all_wrote(grid, threads):
    blocks = math.prod(np.atleast_1d(grid))
    partial, sums = GlobalArray("partial", blocks, I32), GlobalArray("sums", blocks, I32)

    def kernel(warp):
        x, y, z = warp.block
        number = x + warp.grid.x * (y + warp.grid.y * z)
        yield
        with warp.where(warp.thread.x == 0):
            warp.store(partial, number, I32(number + 1))
        yield GRID
        with warp.where(warp.thread.x == 0):
            warp.store(sums, number, sum(warp.load(partial, i) for i in range(blocks)))

    launch(kernel, grid, threads, cooperative=True)
    assert sums.numpy().tolist() == [blocks * (blocks + 1) // 2] * blocks


def test_a_grid_barrier_that_some_blocks_never_reach_is_a_fault():
    def kernel(warp):
        yield GRID
        if warp.block.x % 2:
            yield GRID  # odd ones only

    fault = fault_of(faults.BarrierFault, kernel, 5, 64, cooperative=True)
    assert str(fault).count("barrier of the grid that some blocks never reach") == 1
    assert "waiting: blocks (1, 0, 0), (3, 0, 0); ended: blocks (0, 0, 0), (2, 0, 0), (4, 0, 0)" in str(fault)
    place = fault.place
    assert (place.block, place.warp, place.line) == ((1, 0, 0), 0, line_of(kernel, "# odd ones only"))


def test_a_block_that_ends_at_once_leaves_the_others_waiting():
    def kernel(warp):
        if warp.block.x < 9:
            yield GRID

    fault = fault_of(faults.BarrierFault, kernel, 10, 32, cooperative=True)
    assert "waiting: 9 blocks, (0, 0, 0), (1, 0, 0), (2, 0, 0) …; ended: blocks (9, 0, 0)" in str(fault)


def test_warps_of_a_block_must_wait_at_the_same_barrier():
    def kernel(warp):
        yield GRID if warp.index else None

    fault = fault_of(faults.BarrierFault, kernel, 2, 96, cooperative=True)
    assert "for the grid: warps [1, 2]; for the block: warps [0]" in str(fault)


def test_a_grid_barrier_needs_a_cooperative_launch():
    def kernel(warp):
        yield GRID

    fault = fault_of(faults.NotCooperative, kernel, 2, 32)
    assert (fault.place.block, fault.place.line) == ((0, 0, 0), line_of(kernel, "yield GRID"))


def test_a_grid_barrier_in_divergent_code_is_a_fault():
    def kernel(warp):
        with warp.where(warp.lane != 9):
            yield GRID

    assert fault_of(faults.BarrierFault, kernel, 2, 32, cooperative=True).place.lane == 9


def test_without_the_grid_barrier_blocks_read_what_nobody_wrote():
    def kernel(warp, x):
        warp.store(x, warp.block.x, I32(1))
        warp.load(x, (warp.block.x + 1) % 3)
        yield GRID

    fault = fault_of(faults.UninitialisedRead, kernel, 3, 32, GlobalArray("x", 3, I32), cooperative=True)
    assert fault.place.block == (0, 0, 0)


# --------------------------------------------------------------------------------------------------
# Across lanes
# --------------------------------------------------------------------------------------------------


def test_votes_combine_the_active_lanes():
    def kernel(warp):
        odd = warp.lane % 2 == 1
        assert warp.ballot(odd).tolist() == [0xAAAAAAAA] * 32
        assert (warp.any(odd), warp.all(odd), warp.uni(odd)) == (True, False, False)
        with warp.where(odd):
            assert warp.ballot(True, mask=0xAAAAAAAA).tolist() == [POISON, 0xAAAAAAAA] * 16
            assert (warp.all(odd, 0xAAAAAAAA), warp.uni(~odd, 0xAAAAAAAA)) == (True, True)
            assert warp.any(~odd, 0xAAAAAAAA) is False

    lanes_of(kernel)


SHUFFLES = {
    "shfl": lambda lane, n, width: lane // width * width + n % width,
    "shfl_up": lambda lane, n, width: lane - n if lane % width >= n else lane,
    "shfl_down": lambda lane, n, width: lane + n if lane % width + n < width else lane,
    "shfl_xor": lambda lane, n, width: lane ^ n if (lane ^ n) < (lane // width + 1) * width else lane,
}


@every_case("name", SHUFFLES)
@every_case("width", [1, 2, 4, 8, 16, 32])
def test_shuffles_take_a_width_as_in_cuda(name, width):
    for n in (0, 1, 3, 8, 17, 31):
        got = lanes_of(lambda warp: getattr(warp, name)(warp.lane * 1.5, n, width=width))  # noqa: B023
        assert got.tolist() == [1.5 * SHUFFLES[name](lane, n, width) for lane in range(32)], n


def test_shfl_reads_a_different_source_in_each_lane():
    assert lanes_of(lambda warp: warp.shfl(warp.lane, 31 - warp.lane)).tolist() == list(range(31, -1, -1))


def test_a_width_that_is_not_a_power_of_two_is_refused():
    with pytest.raises(SchemeError, match="width=12"):
        lanes_of(lambda warp: warp.shfl_down(warp.lane, 1, width=12))


def test_the_result_of_a_shuffle_is_writable():
    def kernel(warp):
        x = warp.shfl(warp.lane, 5)
        x += U32(1)
        return x

    assert lanes_of(kernel).tolist() == [6] * 32


def test_matches_compare_bits():
    def kernel(warp):
        zeros = np.where(warp.lane % 2 == 0, 0.0, -0.0)
        nan = np.full(32, np.nan)
        return warp.match_any(zeros), warp.match_all(nan), warp.match_all(zeros), warp.match_all(True)

    any_, all_nan, all_zeros, all_true = lanes_of(kernel)
    assert any_.tolist() == [0x55555555, 0xAAAAAAAA] * 16
    assert all_nan.tolist() == all_true.tolist() == [ALL_LANES] * 32
    assert all_zeros.tolist() == [0] * 32


def test_reduce_combines_the_lanes_by_the_operation():
    def kernel(warp):
        signed = warp.lane.astype(I32) - I32(9)
        return [
            warp.reduce("add", warp.lane),
            warp.reduce("min", signed),
            warp.reduce("max", signed),
            warp.reduce("xor", warp.lane + U32(32)),
        ]

    add, low, high, xor = lanes_of(kernel)
    assert [r[0] for r in (add, low, high, xor)] == [496, -9, 22, 0]
    assert (add.dtype, low.dtype) == (U32, I32)
    with pytest.raises(DtypeError, match="float64"):
        lanes_of(lambda warp: warp.reduce("add", warp.lane * 1.0))


def test_reduce_under_disjoint_masks_sums_separately():
    """Lanes with equal keys form a group, each reduced under its own mask."""

    def kernel(warp):
        group = warp.match_any(warp.lane % 3)
        return warp.reduce("add", warp.lane, mask=group)

    assert lanes_of(kernel).tolist() == [sum(range(lane % 3, 32, 3)) for lane in range(32)]


def test_exited_lanes_do_not_block_warp_operations():
    def kernel(warp):
        return warp.ballot(True), warp.reduce("add", warp.lane), warp.shfl_xor(warp.lane, 1)

    ballot, total, swapped = lanes_of(kernel, threads=6)
    assert ballot.tolist() == [0x3F] * 6 + [POISON] * 26
    assert total[:6].tolist() == [15] * 6
    assert swapped[:6].tolist() == [1, 0, 3, 2, 5, 4]


# --------------------------------------------------------------------------------------------------
# Faults across lanes
# --------------------------------------------------------------------------------------------------

ACROSS = {
    "ballot": lambda warp, mask: warp.ballot(True, mask),
    "any": lambda warp, mask: warp.any(True, mask),
    "all": lambda warp, mask: warp.all(True, mask),
    "uni": lambda warp, mask: warp.uni(True, mask),
    "shfl": lambda warp, mask: warp.shfl(warp.lane, 0, mask=mask),
    "shfl_up": lambda warp, mask: warp.shfl_up(warp.lane, 1, mask=mask),
    "shfl_down": lambda warp, mask: warp.shfl_down(warp.lane, 1, mask=mask),
    "shfl_xor": lambda warp, mask: warp.shfl_xor(warp.lane, 1, mask=mask),
    "match_any": lambda warp, mask: warp.match_any(warp.lane, mask),
    "match_all": lambda warp, mask: warp.match_all(warp.lane, mask),
    "reduce": lambda warp, mask: warp.reduce("max", warp.lane, mask),
}


@pytest.mark.parametrize("name", ACROSS)
def test_a_lane_outside_its_mask_is_a_fault(name):
    def kernel(warp):
        if warp.index == 1:
            ACROSS[name](warp, 0xFFFFFFEF)

    fault = fault_of(faults.MemberMaskFault, kernel, (1, 1, 2), (16, 4))
    place = fault.place
    assert (place.block, place.warp, place.lane, place.thread) == ((0, 0, 0), 1, 4, (4, 2, 0))
    assert (place.line, place.text) == (line_of(kernel, "ACROSS"), "ACROSS[name](warp, 0xFFFFFFEF)")
    assert fault.what == f"{name} executed by a lane that is not in its own member mask"
    assert "mask 0xffffffef, executing 0xffffffff" in str(fault)


@pytest.mark.parametrize("name", ACROSS)
def test_an_inactive_lane_in_the_mask_is_a_fault(name):
    def kernel(warp):
        with warp.where(warp.lane < 16):
            ACROSS[name](warp, ALL_LANES)

    fault = fault_of(faults.MemberMaskFault, kernel, 1, 32)
    assert (fault.place.lane, fault.place.line) == (16, line_of(kernel, "ACROSS"))
    assert "mask 0xffffffff, executing 0x0000ffff" in str(fault)


def test_different_masks_in_one_group_are_a_fault():
    def kernel(warp):
        warp.ballot(True, np.where(warp.lane < 8, ALL_LANES, 0xFFFFFF00))

    fault = fault_of(faults.MemberMaskFault, kernel, 1, 32)
    assert "with another mask" in str(fault)
    assert fault.place.lane == 8


@pytest.mark.parametrize("source", [20, np.where(LANE == 3, 20, 0)], ids=["one", "each"])
def test_a_shuffle_from_an_inactive_lane_is_a_fault(source):
    def kernel(warp):
        with warp.where(warp.lane < 16):
            warp.shfl(warp.lane, source, mask=0xFFFF)

    fault = fault_of(faults.InactiveSource, kernel, 1, 32)
    assert fault.what == "shfl reads lane 20, which is inactive"
    assert (fault.place.lane, fault.place.line) == (
        0 if np.ndim(source) == 0 else 3,
        line_of(kernel, "warp.shfl"),
    )


def test_a_shuffle_from_a_lane_outside_the_mask_is_a_fault():
    def kernel(warp):
        group = np.where(warp.lane < 16, U32(0xFFFF), U32(0xFFFF0000))
        warp.shfl_down(warp.lane, 1, mask=group)

    fault = fault_of(faults.InactiveSource, kernel, 1, 32)
    assert "shfl_down reads lane 16, which is not in the mask" in str(fault)
    assert fault.place.lane == 15


def test_a_shuffle_from_an_exited_lane_is_a_fault():
    def kernel(warp):
        warp.shfl_down(warp.lane, 1)

    fault = fault_of(faults.InactiveSource, kernel, 1, 6)
    assert "reads lane 6, which has exited" in str(fault)
    assert fault.place.lane == 5
