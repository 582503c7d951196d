"""`gpu.CudaMachine` on real GPUs: the answers of level-3 BLAS, and what the driver and cuBLAS do."""

from __future__ import annotations

import gc
import random
import signal
import threading
import time

import numpy as np
import pytest

import gpu
from gpu.blas3.execute import execute
from gpu.blas3.plan import plan_of
from gpu.blas3.table import ROWS
from gpu.cuda_machine import DriverError, default_machine
from reference.errors import DeviceMemoryError
from support.blas3_calls import draw_call, draw_options, judged, product

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", params=[1, 2], ids=["one", "two"])
def machine(request):
    whole = default_machine()
    if whole.devices < request.param:
        pytest.skip(f"needs {request.param} GPUs, {whole.devices} found")
    with gpu.CudaMachine(range(request.param)) as made:
        yield made


def is_clean(machine):
    return not machine.pinned() and not any(map(machine.allocated, range(machine.devices)))


@pytest.mark.parametrize("largest", [13, 300])
@pytest.mark.parametrize("routine", ROWS)
def test_drawn_calls_are_right(machine, routine, largest):
    draw = random.Random(f"hardware {routine} {largest}")
    for _ in range(60 if largest == 13 else 6):
        drawn, options = draw_call(draw, routine, largest), draw_options(draw)
        before = {name: x.copy() for name, x in drawn.matrices.items()}
        call, tile = drawn.call(), draw.randint(1, 6) if largest == 13 else draw.randint(32, 150)
        needed = plan_of(call.problem, tile, [1 << 30] * machine.devices, options).needed
        execute(call, machine, tile, max(needed, 1) * draw.choice([1, 1, 2, 100]), options, None)
        assert judged(drawn, before, drawn.matrices[drawn.result]) <= 1, (drawn, options)
        assert is_clean(machine)


def test_a_large_product_is_right_by_default():
    rng = np.random.default_rng(0)
    a, b, c = (np.asfortranarray(rng.standard_normal((3000, 3000))) for _ in range(3))
    got = gpu.blas3.dgemm(2.0, a, b, -0.5, c)
    rows = rng.integers(0, 3000, 20)
    np.testing.assert_allclose(got[rows], 2.0 * a[rows] @ b - 0.5 * c[rows], rtol=1e-9, atol=1e-9)


def test_results_are_those_of_one_device_bit_by_bit(machine):
    results = []
    for _ in range(3):
        drawn = product(1500)
        execute(drawn.call(), machine, 256, None, None, None)
        results.append(drawn.matrices["c"])
    with gpu.CudaMachine([0]) as alone:
        drawn = product(1500)
        execute(drawn.call(), alone, 256, None, None, None)
    for result in results:
        np.testing.assert_array_equal(result, drawn.matrices["c"])


def test_the_hosts_cores_take_tasks_beside_gpus(machine):
    drawn, counts = product(2000), gpu.blas3.Statistics()
    expected = drawn.matrices["a"] @ drawn.matrices["b"] + 0.5 * drawn.matrices["c"]
    execute(drawn.call(), machine, 100, None, gpu.blas3.Options(cpu=True), counts)
    np.testing.assert_allclose(drawn.matrices["c"], expected, rtol=1e-9, atol=1e-9)
    assert counts.cpu.tasks > 0
    assert counts.total("tasks") == 400
    assert is_clean(machine)


def test_single_precision_has_no_tf32(machine):
    a = np.full((64, 64), 1 + 2.0**-20, np.float32, order="F")
    got = gpu.blas3.sgemm(1.0, a, np.eye(64, dtype=np.float32, order="F"), device=machine, tile=32)
    assert (got == a).all()


def test_registrations_end_with_their_arrays(machine):
    gc.collect()
    before, array = machine.registered(), np.ones((2000, 2000), order="F")
    machine.pin(array)
    machine.unpin(array)
    assert machine.registered() >= before + array.nbytes
    del array
    assert machine.registered() == before


def test_arrays_that_share_pages_are_pinned_together(machine):
    whole = np.ones(100_000)
    parts = whole[:50_001], whole[50_001:]
    for part in parts:
        machine.pin(part)
    assert machine.pinned() == 2
    memory, stream = machine.allocate(0, 50_001 * 8), machine.stream(0)
    for part in parts:
        tile = memory.tile(len(part), 1, part.dtype)
        machine.copy_in(stream, part.reshape(-1, 1), tile)
        machine.copy_out(stream, tile, part.reshape(-1, 1))
    machine.run([])
    assert (whole == 1).all()
    machine.free(memory)
    for part in parts:
        machine.unpin(part)


def test_page_locked_memory_of_others_is_accepted(machine):
    pinned = gpu.CudaDevice().pinned((300, 300), np.float64)
    pinned[...] = np.arange(300)
    before = machine.registered()
    got = gpu.blas3.dgemm(1.0, pinned.T, np.eye(300, order="F"), device=machine, tile=128)
    np.testing.assert_array_equal(got, pinned.T)
    assert machine.registered() - before <= got.nbytes + 300 * 300 * 8 + 16384


def test_what_cannot_be_page_locked_is_refused_by_type(machine, tmp_path):
    mapped = np.memmap(tmp_path / "matrix", np.float64, "w+", shape=(512, 512), order="F")
    mapped.flush()
    reader = np.memmap(tmp_path / "matrix", np.float64, "r", shape=(512, 512), order="F")
    try:
        machine.pin(reader)
    except DriverError:
        return
    machine.unpin(reader)
    assert machine.pinned() == 0


def test_an_allocation_beyond_the_device_is_refused(machine):
    with pytest.raises(DeviceMemoryError):
        machine.allocate(0, 1 << 42)
    machine.free(machine.allocate(0, 1 << 20))


@pytest.mark.parametrize("delay", [0.01, 0.1, 0.4, 0.8])
def test_ctrl_c_leaves_nothing_behind(machine, delay):
    drawn = product(6000)
    timer = threading.Timer(delay, signal.raise_signal, [signal.SIGINT])
    timer.start()
    end = time.monotonic() + 30
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - in whichever call it comes
        while time.monotonic() < end:
            execute(drawn.call(), machine, 512, None, None, None)
    timer.join()
    assert is_clean(machine)
    execute(product(100).call(), machine, 32, None, None, None)


def test_a_timeline_agrees_with_the_clock(machine):
    with gpu.CudaMachine(machine.ordinals, record=True) as recorded:
        execute(product(2000).call(), recorded, 512, None, None, None)
        recorded.timeline.clear()
        statistics = gpu.blas3.Statistics()
        begin = time.perf_counter()
        execute(product(2000).call(), recorded, 512, None, None, statistics)
        end = time.perf_counter()
        timeline = recorded.timeline
    assert sum(record.operations for record in timeline if record.name == "dgemm") == 2 * 2000**3
    for kind in ("in", "out", "peer"):
        assert timeline.nbytes(kind) == statistics.total(f"bytes_{kind}")
    assert begin - 1e-3 < min(record.start for record in timeline)
    assert max(record.end for record in timeline) < end + 1e-3
    for device in range(machine.devices):
        assert 0 < timeline.busy(device) <= timeline.seconds


def test_host_time_of_a_step_is_short(machine, record_property):
    """Tiles of one element: the time is that of the host alone."""
    n, times = 24, []
    for _ in range(3):
        begin = time.perf_counter()
        execute(product(n).call(), machine, 2, None, None, None)
        times.append((time.perf_counter() - begin) / (n // 2) ** 3)
    record_property("microseconds per step", 1e6 * min(times))
    assert min(times) < 500e-6


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_matrices_of_other_libraries_are_used_where_they_lie(machine, library):
    module = pytest.importorskip(library)
    rng = np.random.default_rng(3)
    a, b, c = (rng.standard_normal((700, 700)) for _ in range(3))
    upload = (lambda x: module.from_numpy(x).cuda()) if library == "torch" else module.asarray
    left, result = upload(a), upload(c)
    counts = gpu.blas3.Statistics()
    got = gpu.blas3.dgemm(
        2.0, left, b, -0.5, result, overwrite_c=1, device=machine, tile=256, statistics=counts
    )
    assert got is result
    host = result.cpu().numpy() if library == "torch" else result.get()
    expected = gpu.blas3.dgemm(2.0, a, b, -0.5, c, device=machine, tile=256)
    np.testing.assert_array_equal(host, expected)
    assert counts.total("bytes_out") == 0
    assert counts.total("bytes_in") <= machine.devices * b.nbytes
    solved = upload(c)
    gpu.blas3.dtrsm(1.0, a + 700 * np.eye(700), solved, lower=1, overwrite_b=1, device=machine, tile=128)
    found = solved.cpu().numpy() if library == "torch" else solved.get()
    np.testing.assert_allclose(np.tril(a + 700 * np.eye(700)) @ found, c, rtol=0, atol=1e-10)
    assert is_clean(machine)


def test_other_libraries_copy_arrays_beside_ours(machine):
    """Pages were locked up to their ends: CUDA refused a copy that began behind ours, and went on."""
    torch = pytest.importorskip("torch")
    arrays = [np.full(3000, number, np.float64) for number in range(40)]
    for array in arrays[::2]:
        machine.pin(array)
    for number, array in enumerate(arrays):
        assert (torch.from_numpy(array).cuda().cpu().numpy() == number).all()
    whole = np.arange(200_000.0)
    machine.pin(whole[:100_000])
    assert (torch.from_numpy(whole).cuda().cpu().numpy() == whole).all()
    for array in (*arrays[::2], whole[:100_000]):
        machine.unpin(array)
    assert (torch.from_numpy(whole).cuda().cpu().numpy() == whole).all()
