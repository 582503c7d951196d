"""`CudaMachine` on a driver and a cuBLAS without a GPU, which find wrong uses of theirs."""

from __future__ import annotations

import gc
import mmap
import random
import re
from itertools import product as product_of
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.lib.array_utils import byte_bounds

import gpu
from gpu import device_tensor
from gpu.blas3 import execute as execution
from gpu.blas3.execute import execute
from gpu.blas3.plan import plan_of
from gpu.blas3.problem import Problem
from gpu.blas3.table import PREFIXES, ROWS
from gpu.cuda_machine import CudaMachine, DriverError, RoutineError, allocations, pins
from gpu.machine import Tile
from reference.errors import (
    CopyError,
    DeviceLostError,
    DeviceMemoryError,
    DtypeError,
    FormatError,
    FreedMemoryError,
    LaunchError,
    MachineError,
    NoGpuError,
    ShapeError,
    TileBoundsError,
    UnpinnedError,
)
from simwarp.verify.cases.blas3 import poison
from support.blas3_calls import Drawn, draw_call, draw_matrix, draw_options, judged, product
from support.fake_driver import DriverFaultError, FakeDriver
from support.fake_gpus import closed, gpus

__all__ = ["gpus"]


def compute(drawn: Drawn, machine: CudaMachine, tile: int, options: Any = None, budget: int = 1) -> float:
    """Compute a call, and give its error in units of the bound."""
    before = {name: x.copy() for name, x in drawn.matrices.items()}
    call = drawn.call()
    needed = plan_of(call.problem, tile, [1 << 30] * machine.devices, options or gpu.blas3.Options()).needed
    execute(call, machine, tile, max(needed, 1) * budget, options, None)
    return judged(drawn, before, drawn.matrices[drawn.result])


# --------------------------------------------------------------------------------------------------
# Answers
# --------------------------------------------------------------------------------------------------


@pytest.mark.at_most(2)
@pytest.mark.parametrize("routine", ROWS)
def test_drawn_calls_are_right_and_leave_nothing_behind(gpus, routine):
    draw = random.Random(f"gpus of {routine}")
    for seed in range(8):
        found = gpus(draw.choice([1, 2, 3]), seed, peers=draw.random() < 0.7)
        keep = draw.random() < 0.7, draw.random() < 0.5
        machine = CudaMachine(record=draw.random() < 0.3, keep_pinned=keep[0], keep_memory=keep[1])
        drawn, options = draw_call(draw, routine), draw_options(draw)
        error = compute(drawn, machine, draw.randint(1, 6), options, draw.choice([1, 1, 2, 100]))
        assert error <= 1, (drawn, options)
        assert not machine.pinned()
        machine.trim()
        assert not found.driver.allocations
        assert not found.driver.registrations
        machine.close()
        assert found.is_clean()


@pytest.mark.at_most(2)
@pytest.mark.parametrize("routine", ROWS)
@pytest.mark.parametrize("prefix", "sdcz")
def test_every_flag_of_every_routine_is_right(gpus, routine, prefix):
    if prefix not in ROWS[routine].prefixes:
        pytest.skip("real matrices are not Hermitian")
    gpus(2)
    machine, draw = CudaMachine(), random.Random(routine + prefix)
    row = ROWS[routine]
    letters = row.letters(is_real=prefix in "sd")
    given = [dict(zip(letters, chosen, strict=True)) for chosen in product_of(*letters.values())]
    # of the many, one half for each dtype
    for flags in given["sdcz".index(prefix) % 2 :: 2] if len(given) > 9 else given:
        n = 7 if row.is_triangle else 5
        k = {"L": 7, "R": n}.get(flags.get("side", ""), 4)
        problem = Problem(routine, np.dtype(PREFIXES[prefix]), 7, n, k, 0.7, 0.5, **cast("Any", flags))
        matrices = {name: draw_matrix(draw, shape, problem.dtype) for name, shape in problem.shapes.items()}
        poison(problem, matrices)
        assert compute(Drawn(prefix + routine, 0.7, 0.5, flags, matrices), machine, 3) <= 1, flags


@pytest.mark.parametrize("lower", [0, 1])
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_a_triangle_is_written_and_nothing_else(gpus, lower, beta):
    found = gpus(2)
    machine, draw = CudaMachine(), np.random.default_rng(lower)
    for order in range(1, 14):
        a, b, c = (np.asfortranarray(draw.standard_normal(s)) for s in ((order, 5), (order, 5), (order,) * 2))
        before, kept = c.copy(), np.tri(order, dtype=bool) if lower else np.tri(order, dtype=bool).T
        gpu.blas3.dgemmt(
            2.0, a, b, beta, c, trans_b=1, lower=lower, overwrite_c=1, device=machine, tile=1 + order * 3 // 4
        )
        np.testing.assert_allclose(c[kept], (2.0 * a @ b.T + beta * before)[kept], atol=1e-12)
        assert (c[~kept] == before[~kept]).all()
    machine.close()
    assert found.is_clean()


def test_results_are_those_of_one_device_bit_by_bit(gpus):
    results = []
    for devices in (1, 3):
        gpus(devices, seed=devices)
        drawn = product(21)
        compute(drawn, CudaMachine(), 4, budget=2)
        results.append(drawn.matrices["c"])
    assert (results[0] == results[1]).all()


# --------------------------------------------------------------------------------------------------
# Failures
# --------------------------------------------------------------------------------------------------


def survives(found, machine, drawn) -> type[BaseException] | None:
    """Run a call with a planted failure; what it raised, after everything was given back."""
    raised: BaseException | None = None
    try:
        with machine:
            execute(drawn.call(), machine, 4, 20_000, None, None)
            machine.pin(drawn.matrices["a"]), machine.unpin(drawn.matrices["a"])
    except MachineError as error:
        raised = error
    closed(machine)
    return type(raised) if raised else None


RELEASES = (
    "cuMemFree", "cuMemHostUnregister", "cuEventDestroy", "cuStreamDestroy", "cuDevicePrimaryCtxRelease"
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize("status", ["INVALID_VALUE", "OUT_OF_MEMORY", "ILLEGAL_ADDRESS"])
def test_each_failed_call_of_the_driver_is_one_typed_error(gpus, status):
    counted = gpus(2)
    assert survives(counted, CudaMachine(record=True), product(12)) is None
    assert counted.is_clean()
    kinds = set()
    for name, count in counted.driver.calls.items():
        if name.startswith("cuCtx") and name != "cuCtxEnablePeerAccess":
            continue
        for nth in {1, (count + 1) // 2, count}:
            found = gpus(2, failing=(name, nth, status))
            try:
                machine = CudaMachine(record=True)
            except (MachineError, NoGpuError):
                assert found.is_clean() or found.driver.lost, (name, nth)
                continue
            kind = survives(found, machine, product(12))
            has_failed = found.driver.calls.get(name, 0) >= nth  # registrations depend on addresses
            recovers = name in ("cuPointerGetAttribute", "cuMemHostRegister")
            if has_failed and not recovers and not found.driver.lost:
                assert kind is not None, (name, nth)
            assert kind is None or issubclass(kind, MachineError)
            kinds.add(kind)
            assert not found.driver.stack
            if not found.driver.lost and name not in RELEASES:
                assert found.is_clean(), (name, nth)
    assert {DriverError, CopyError, DeviceMemoryError} & kinds or DeviceLostError in kinds


@pytest.mark.parametrize("name", ["cublasCreate_v2", "cublasSetStream_v2", "cublasDgemm_v2_64"])
def test_a_routine_that_cublas_refuses_is_named(gpus, name):
    found = gpus(2, refused=(name, 2, 14))
    machine = CudaMachine()
    with pytest.raises(RoutineError, match="status 14") as caught:
        execute(product(12).call(), machine, 4, None, None, None)
    assert caught.value.routine in name
    machine.close()
    assert found.is_clean()


def test_a_lost_device_is_found_and_not_used_again(gpus):
    found = gpus(2, failing=("cuEventQuery", 5, "ECC_UNCORRECTABLE"))
    machine = CudaMachine()
    with pytest.raises(DeviceLostError, match=r"device [01] is lost") as caught:
        execute(product(24).call(), machine, 4, None, None, None)
    with pytest.raises(DeviceLostError, match="an earlier call"):
        machine.stream(caught.value.device)
    machine.close()
    assert not found.driver.stack


@pytest.mark.parametrize("name", ["cuMemHostRegister", "cuMemAlloc"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_ctrl_c_during_a_long_call_leaves_nothing_behind(gpus, monkeypatch, name, nth):
    """Python handles a signal as soon as it goes on, before the result of a call is stored."""
    found = gpus(3)
    machine, real = CudaMachine(), getattr(found.driver, name)

    def signalled(*args):
        result = real(*args)
        pending.extend([1] * (found.driver.calls[name] == nth))
        return result

    pending: list[int] = []
    monkeypatch.setattr(found.driver, name, signalled, raising=False)
    monkeypatch.setattr(pins if name == "cuMemHostRegister" else allocations, "map", raising(pending), False)
    with pytest.raises(KeyboardInterrupt):
        execute(product(24).call(), machine, 4, None, None, None)
    assert (machine.pinned(), machine.registered()) == (0, 0)
    assert not found.driver.allocations
    assert not found.driver.registrations
    assert not found.driver.stack


def raising(pending):
    """A `map` whose iterator is interrupted behind its only result if a signal is pending."""

    def mapped(function, *columns):
        yield function(*(column[0] for column in columns))
        if pending:
            raise KeyboardInterrupt

    return mapped


@pytest.mark.parametrize("after", [1, 7, 40])
def test_ctrl_c_leaves_nothing_behind(gpus, monkeypatch, after):
    found = gpus(2)
    machine, count = CudaMachine(), 0
    launch = machine.launch

    def interrupted(*args):
        nonlocal count
        count += 1
        if count == after:
            raise KeyboardInterrupt
        launch(*args)

    monkeypatch.setattr(machine, "launch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        execute(product(24).call(), machine, 4, None, None, None)
    assert (machine.pinned(), machine.registered()) == (0, 0)
    assert not found.driver.allocations
    assert not found.driver.registrations
    assert not any(stream.work for stream in found.driver.streams.values())


def test_a_failed_worker_ends_the_others_and_its_error_is_raised(gpus):
    gpus(1)
    machine, ended = CudaMachine(), []

    def waits():
        try:
            while True:
                yield machine.record(machine.stream(0))
        finally:
            ended.append("waits")

    def fails():
        yield machine.record(machine.stream(0))
        raise ZeroDivisionError("planted")

    with pytest.raises(ZeroDivisionError):
        machine.run([waits(), fails()])
    assert ended == ["waits"]
    with pytest.raises(DtypeError, match="worker 0 yielded a int"):
        machine.run([iter([1])])

    def nested():
        machine.run([])
        yield

    with pytest.raises(LaunchError, match="runs already"):
        machine.run([nested()])


# --------------------------------------------------------------------------------------------------
# Pinned memory
# --------------------------------------------------------------------------------------------------


def test_a_registration_is_kept_until_its_array_goes(gpus):
    found = gpus(1)
    machine, array = CudaMachine(), np.ones((512, 512))
    for _ in range(3):
        machine.pin(array), machine.unpin(array[:])
    assert found.driver.calls["cuMemHostRegister"] == 1
    assert (machine.pinned(), len(found.driver.registrations)) == (0, 1)
    view = array[3:]
    del array
    assert len(found.driver.registrations) == 1
    del view
    assert not found.driver.registrations
    with pytest.raises(UnpinnedError, match="not pinned"):
        machine.unpin(np.ones(3))


def test_a_machine_that_goes_leaves_no_page_locked(gpus):
    found = gpus(2)
    machine, array = CudaMachine(), np.ones((512, 512))
    machine.pin(array), machine.unpin(array)
    compute(product(12), machine, 4)
    del machine
    gc.collect()
    assert found.is_clean()


def test_a_registration_of_two_arrays_ends_with_the_first(gpus):
    found, page = gpus(1), mmap.PAGESIZE
    arrays = [np.ones(8) for _ in range(200)]
    pages = [x.ctypes.data // page for x in arrays if x.ctypes.data // page == (x.ctypes.data + 63) // page]
    shared = max(pages, key=pages.count)
    first, second = [x for x in arrays if x.ctypes.data // page == shared][:2]
    del arrays
    machine = CudaMachine()
    machine.pin(first), machine.pin(second), machine.unpin(first), machine.unpin(second)
    assert len(found.driver.registrations) == 1
    machine.pin(second)
    del first
    assert len(found.driver.registrations) == 1
    machine.unpin(second)
    assert not found.driver.registrations


def test_pins_of_one_array_are_counted(gpus):
    found = gpus(1)
    machine, array = CudaMachine(keep_pinned=False), np.ones(10_000)
    machine.pin(array), machine.pin(array)
    machine.unpin(array)
    assert machine.pinned() == len(found.driver.registrations) == 1
    machine.unpin(array)
    assert not found.driver.registrations


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_parts_of_one_array_that_share_a_page_are_pinned_together(gpus, order):
    found = gpus(1)
    machine, whole = CudaMachine(keep_pinned=False), np.ones(3000)
    parts = {"a": whole[:1000], "b": whole[1000:]}
    for name in order:
        machine.pin(parts[name])
        assert len(found.driver.registrations) == 1
    for name in order:
        copied(machine, parts[name].reshape(10, -1, order="F"))
    machine.unpin(parts["a"])
    copied(machine, parts["b"].reshape(10, -1, order="F"))
    machine.unpin(parts["b"])
    assert not found.driver.registrations


def copied(machine: CudaMachine, matrix: Any) -> None:
    """Copy a matrix in and out."""
    memory = machine.allocate(0, matrix.nbytes)
    tile, stream, before = memory.tile(*matrix.shape, matrix.dtype), machine.stream(0), matrix.copy()
    machine.copy_in(stream, matrix, tile)
    machine.run([])
    matrix[...] = 0
    machine.copy_out(stream, tile, matrix)
    machine.run([])
    np.testing.assert_array_equal(matrix, before)
    machine.free(memory)


def test_memory_that_others_have_locked_is_accepted_and_left(gpus):
    found = gpus(1)
    machine, array = CudaMachine(), np.ones((100, 100), order="F")
    at = array.ctypes.data
    found.driver.foreign.append((at, at + array.nbytes))
    machine.pin(array)
    copied(machine, array)
    machine.unpin(array)
    assert "cuMemHostRegister" not in found.driver.calls
    found.driver.foreign[:] = [(at + 40_000, at + 50_000)]
    with pytest.raises(DriverError, match=r"cannot be page-locked[\s\S]*locked by others"):
        machine.pin(array)
    assert machine.pinned() == 0


def test_what_is_kept_gives_way_where_the_driver_refuses_more(gpus):
    found = gpus(1, failing=("cuMemHostRegister", 2, "OUT_OF_MEMORY"))
    machine, whole = CudaMachine(), np.ones(100_000)
    first, second = whole[:10_000], whole[50_000:]
    machine.pin(first), machine.unpin(first)
    machine.pin(second)
    assert len(found.driver.registrations) == 1


# --------------------------------------------------------------------------------------------------
# Arguments, timelines, the default machine
# --------------------------------------------------------------------------------------------------


def test_wrong_arguments_are_refused_by_type(gpus):
    gpus(2, peers=False)
    machine, matrix = CudaMachine(budget=1 << 16), np.asfortranarray(np.ones((4, 5)))
    memory, stream = machine.allocate(0, 1000), machine.stream(0)
    tile = memory.tile(4, 5, float)
    with pytest.raises(UnpinnedError, match="not pinned"):
        machine.copy_in(stream, matrix, tile)
    machine.pin(matrix)
    with pytest.raises(ShapeError, match="strides"):
        machine.copy_in(stream, np.ones((4, 5)), tile)
    with pytest.raises(ShapeError, match=r"shape \(4, 4\)"):
        machine.copy_out(stream, tile, matrix[:, :4])
    with pytest.raises(TileBoundsError, match="bytes 960 to 1120"):
        machine.copy_in(stream, matrix, memory.tile(4, 5, float, offset=960))
    with pytest.raises(LaunchError, match="stream is of device 1"):
        machine.copy_in(machine.stream(1), matrix, tile)
    other = machine.allocate(1, 1000).tile(4, 5, float)
    with pytest.raises(LaunchError, match="do not reach"):
        machine.copy_peer(stream, other, tile)
    with pytest.raises(DtypeError, match="not of this machine"):
        machine.copy_in(stream, matrix, Tile(SimpleNamespace(device=0, nbytes=99), 0, 4, 5, 4, tile.dtype))
    with pytest.raises(LaunchError, match="only the host computes"):
        machine.launch(stream, SimpleNamespace(name="mine", operations=0.0, reads=(), writes=(tile,)))
    with pytest.raises(LaunchError, match="streams of its machine"):
        machine.record(CudaMachine().stream(0))
    with pytest.raises(LaunchError, match="its own machine"):
        machine.wait(stream, 3)
    matrix.flags.writeable = False
    with pytest.raises(ShapeError, match="read-only"):
        machine.copy_out(stream, tile, matrix)
    with pytest.raises(DeviceMemoryError, match="64536 bytes are free"):
        machine.allocate(0, 1 << 16)
    machine.free(memory)
    with pytest.raises(FreedMemoryError, match="freed already"):
        machine.free(memory)
    with pytest.raises(FreedMemoryError, match="memory is freed"):
        machine.copy_in(stream, matrix, tile)
    with pytest.raises(NoGpuError, match="2 found"):
        CudaMachine(devices=[2])
    machine.close()
    with pytest.raises(LaunchError, match="closed"):
        machine.allocate(0, 8)


def test_tiles_with_gaps_are_copied_between_devices(gpus):
    gpus(2)
    machine, matrix = CudaMachine(), np.asfortranarray(np.arange(60.0).reshape(6, 10))
    target = np.zeros((6, 10), order="F")
    machine.pin(matrix), machine.pin(target)
    tiles = [machine.allocate(device, 1200).tile(4, 6, float, 16, 9) for device in (0, 1)]
    streams = [machine.stream(device) for device in (0, 1)]
    machine.copy_in(streams[0], matrix[1:5, 2:8], tiles[0])
    machine.wait(streams[1], machine.record(streams[0]))
    machine.copy_peer(streams[1], tiles[0], tiles[1])
    machine.copy_out(streams[1], tiles[1], target[1:5, 2:8])
    machine.run([])
    np.testing.assert_array_equal(target[1:5, 2:8], matrix[1:5, 2:8])
    assert target.sum() == matrix[1:5, 2:8].sum()


def test_columns_too_far_apart_for_the_driver_are_copied_one_by_one(gpus, monkeypatch):
    found = gpus(1)
    monkeypatch.setattr(gpu.cuda_machine.copies, "_LARGEST_PITCH", 32)
    machine, matrix = CudaMachine(), np.asfortranarray(np.random.default_rng(0).random((6, 5)))
    machine.pin(matrix)
    copied(machine, matrix[:4])
    assert "cuMemcpy2DAsync" not in found.driver.calls
    assert found.driver.calls["cuMemcpyHtoDAsync"] == 5


def test_a_timeline_has_every_copy_and_routine(gpus):
    gpus(2)
    machine, statistics = CudaMachine(record=True), gpu.blas3.Statistics()
    execute(product(24).call(), machine, 6, None, None, statistics)
    timeline = machine.timeline
    for kind in ("in", "out", "peer"):
        assert timeline.nbytes(kind) == statistics.total(f"bytes_{kind}")
    assert sum(record.operations for record in timeline if record.name == "dgemm") == 2 * 24**3
    assert {record.name for record in timeline if record.kind == "routine"} == {"dgemm", "dgeam"}
    assert all(record.start < record.end for record in timeline)
    assert len({record.stream for record in timeline}) >= 8


def test_streams_and_handles_are_used_again(gpus):
    found = gpus(1)
    machine, made = CudaMachine(), set()
    for _ in range(3):
        compute(product(12), machine, 4)
        made.add(found.driver.calls["cuStreamCreate"])
    assert len(made) == 1
    assert found.cublas.calls["cublasCreate_v2"] <= 4


def test_the_callers_context_is_current_again(gpus):
    found = gpus(2)
    machine = CudaMachine()
    found.driver.stack.append(7)
    compute(product(12), machine, 4)
    assert found.driver.stack == [7]


def test_large_problems_use_all_gpus_by_default(gpus, monkeypatch):
    found = gpus(2)
    monkeypatch.setattr(execution, "default_machine", CudaMachine)
    a, b = np.ones((2, 1001)), np.ones((1001, 3))
    assert (gpu.blas3.dgemm(1.0, a, b, tile=100) == 1001).all()
    assert found.cublas.calls["cublasDgemm_v2_64"] == 11

    def none():
        raise NoGpuError("CUDA cannot start\ncheck nvidia-smi")

    monkeypatch.setattr(execution, "default_machine", none)
    with pytest.raises(NoGpuError, match="dgemm of 3 x 2, sums of 1001, needs a GPU: CUDA cannot start"):
        gpu.blas3.dgemm(1.0, a, b)


def arrays_of_one_page() -> list[Any]:
    """Two arrays that share a page, and nothing else."""
    pages: dict[int, list[Any]] = {}
    while True:
        array = np.ones(100)
        shared = pages.setdefault(array.ctypes.data // mmap.PAGESIZE, [])
        shared.append(array)
        if len(shared) == 2:
            return shared


def test_machines_share_the_pages_that_they_lock(gpus):
    """The driver refuses a page twice; on a GPU a second machine met one that the first had kept."""
    found = gpus(2)
    first, second = CudaMachine([0]), CudaMachine([1])
    left, right = arrays_of_one_page()
    first.pin(left), first.unpin(left)
    assert first.registered() == left.nbytes
    second.pin(right)  # the page that they share is only kept by the first
    assert first.registered() == 0
    first.pin(right)  # the second has locked it
    assert first.registered() == 0
    with pytest.raises(DriverError, match="another machine uses an array that shares a page"):
        first.pin(left)
    second.unpin(right), second.close()
    assert len(found.driver.registrations) == 1
    first.unpin(right)
    assert not found.driver.registrations
    assert compute(product(12), first, 4) <= 1


# --------------------------------------------------------------------------------------------------
# Memory that is kept
# --------------------------------------------------------------------------------------------------


def kept(found):
    """Bytes of each allocation of the driver."""
    return sorted(len(one.data) for one in found.driver.allocations)


def test_a_second_call_allocates_nothing(gpus):
    found, machine = gpus(2), CudaMachine()
    for _ in range(3):
        assert compute(product(24), machine, 4) <= 1
    assert found.driver.calls["cuMemAlloc"] == 2
    assert not any(map(machine.allocated, range(2)))


def test_the_largest_freed_memory_of_a_device_is_kept(gpus):
    found, machine = gpus(1), CudaMachine()
    small, large = machine.allocate(0, 1024), machine.allocate(0, 4096)
    machine.free(large), machine.free(small)
    assert kept(found) == [4096]
    assert machine.allocate(0, 2000).address != large.address  # it would leave more than half unused
    again = machine.allocate(0, 2048)
    assert (again.address, again.nbytes, again.freed, large.freed) == (large.address, 2048, False, True)
    with pytest.raises(FreedMemoryError, match="freed already"):
        machine.free(large)
    machine.free(again)
    assert kept(found) == [2000, 4096]
    machine.trim()
    assert kept(found) == [2000]


@pytest.mark.gate
def test_kept_memory_counts_as_free_and_makes_room(gpus):
    found = gpus(1)
    machine = CudaMachine()
    total = machine.budget(0)
    machine.free(machine.allocate(0, total * 3 // 4))
    assert machine.budget(0) == total
    small = machine.allocate(0, total // 3)
    assert kept(found) == [total // 3]
    machine.free(small)


def test_kept_memory_is_within_the_budget(gpus):
    found, machine = gpus(1), CudaMachine(budget=10_000)
    machine.free(machine.allocate(0, 8000))
    assert machine.budget(0) == 10_000
    first = machine.allocate(0, 5000)
    assert kept(found) == [5000]
    second = machine.allocate(0, 5000)
    machine.free(first), machine.free(second)
    assert kept(found) == [5000]
    assert machine.allocate(0, 5000).address == second.address


def test_a_failed_call_keeps_no_memory(gpus):
    found, machine = gpus(1), CudaMachine()
    first = machine.allocate(0, 4096)

    def fails():
        yield machine.record(machine.stream(0))
        raise ZeroDivisionError("planted")

    with pytest.raises(ZeroDivisionError):
        machine.run([fails()])
    assert kept(found) == [4096]  # it is in use
    machine.free(first)
    assert kept(found) == []


# --------------------------------------------------------------------------------------------------
# The replaced driver finds wrong uses
# --------------------------------------------------------------------------------------------------


def test_the_calls_are_those_of_the_bindings():
    real = pytest.importorskip("cuda.bindings.driver")
    calls = {name[1:]: call for name, call in vars(FakeDriver).items() if name.startswith("_cu")}
    assert len(calls) >= 30
    for name, call in calls.items():
        signature = getattr(real, name).__doc__.split("\n")[0].partition("(")[2].rpartition(")")[0]
        given = re.sub(r"\[[^]]*\]", "", signature).split(",") if signature else []
        assert call.__code__.co_argcount == 1 + len(given), name


def test_wrong_uses_of_the_driver_are_found(gpus):
    found = gpus(2)
    machine, matrix = CudaMachine(keep_memory=False), np.asfortranarray(np.ones((4, 4)))
    driver, memory = found.driver, machine.allocate(0, 128)
    machine.pin(matrix)
    stream = machine.stream(0)
    machine.copy_in(stream, matrix, memory.tile(4, 4, float))
    queue = stream.queue.stream
    with pytest.raises(DriverFaultError, match="queued work uses"):
        machine.free(memory)
    with pytest.raises(DriverFaultError, match="under a copy"):
        machine.unpin(matrix), machine._pins.forget()
    with pytest.raises(DriverFaultError, match="no context is current"):
        driver.cuMemcpyHtoDAsync(memory.address, matrix.ctypes.data, 8, queue)
    with machine._contexts.on(1), pytest.raises(DriverFaultError, match="another context"):
        driver.cuStreamSynchronize(queue)
    with machine._contexts.on(0):
        with pytest.raises(DriverFaultError, match="outside of allocations"):
            driver.cuMemsetD8Async(memory.address, 0, 129, queue)
        with pytest.raises(DriverFaultError, match="one registration does not hold"):
            driver.cuMemcpyHtoDAsync(memory.address, np.ones(4096).ctypes.data + (1 << 40), 8, queue)
        machine.run([])
        machine.trim()  # frees what the driver refused before
        with pytest.raises(DriverFaultError, match="outside of allocations"):
            driver.cuMemsetD8Async(memory.address, 0, 1, queue)
    other = machine._queues._new_event
    with machine._contexts.on(1):
        event = other(1)
    with machine._contexts.on(0), pytest.raises(DriverFaultError, match="different contexts"):
        driver.cuEventRecord(event, queue)


def test_devices_as_fast_as_the_host_share_the_work(gpus, monkeypatch):
    """On GPUs the first worker took all tasks, as none of its steps ever made it wait."""
    gpus(2)
    machine, counts = CudaMachine(), gpu.blas3.Statistics()
    monkeypatch.setattr(machine, "has_happened", lambda event: True)
    execute(product(60).call(), machine, 5, None, None, counts)
    assert min(device.tasks for device in counts.devices) > 30


class Shared:
    """Another library's array on a fake GPU."""

    def __init__(self, found, device, values):
        found.driver.stack.append(100 + device)
        status, address = found.driver.cuMemAlloc(values.nbytes)
        assert not status
        found.driver.stack.pop()
        self.ptr, self.shape, self.dtype, self.readonly = int(address), values.shape, values.dtype, False
        self.strides = tuple(stride // values.itemsize for stride in values.strides)
        self.data = found.driver.allocation(self.ptr, 1).data.view(values.dtype)
        self.data[:] = values.ravel(order="K")

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.ptr, False), "version": 3}


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_other_libraries_are_operands_where_they_lie(gpus, monkeypatch, order):
    found = gpus(2)
    monkeypatch.setattr(device_tensor, "view_of", lambda array: (array, array.dtype))
    rng = np.random.default_rng(1)
    a, b, c = (np.array(rng.standard_normal((20, 20)), order=order) for _ in range(3))
    with CudaMachine() as machine:
        left, result = Shared(found, 1, a), Shared(found, 0, c)
        got = gpu.blas3.dgemm(2.0, left, b, 0.5, result, overwrite_c=1, device=machine, tile=6)
        assert got is result
        assert not any(map(machine.allocated, range(2)))
        np.testing.assert_allclose(
            result.data.reshape(20, 20, order=order), 2 * a @ b + 0.5 * c, rtol=1e-13, atol=1e-13
        )
        with pytest.raises(LaunchError, match=r"of no GPU\nthe machine has the CUDA devices \[0, 1\]"):
            machine.borrow(4096, 8)
        result.readonly = True
        with pytest.raises(FormatError, match="read-only"):
            gpu.blas3.dgemm(2.0, left, b, 0.5, result, overwrite_c=1, device=machine)
    with CudaMachine([0]) as one, pytest.raises(LaunchError, match=r"of CUDA device 1\n.*devices \[0\]"):
        gpu.blas3.dgemm(1.0, left, b, device=one)


def test_a_registration_begins_and_ends_with_arrays(gpus):
    found = gpus()
    with CudaMachine() as machine:
        whole = np.zeros((300, 300))
        part = whole[10:200, 3:]
        machine.pin(part)
        assert [*found.driver.registrations.items()] == [byte_bounds(whole)]
        machine.unpin(part)
        assert [*found.driver.registrations.items()] == [byte_bounds(whole)]  # kept
        large = np.zeros((2000, 100))
        machine.pin(large[5:90])
        machine.unpin(large[5:90])
        assert [*found.driver.registrations.items()] == [byte_bounds(whole)]  # a small part is not kept
        buffer = np.zeros(5000)
        first, second = buffer[1:2000], buffer[2100:4000]
        for one in (first, second):
            machine.pin(one)
        assert byte_bounds(buffer) in found.driver.registrations.items()
        for one in (first, second):
            machine.unpin(one)
