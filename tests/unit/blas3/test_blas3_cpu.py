"""The host's cores take tasks: on simulated machines, and on GPUs that a driver simulates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpu
from gpu.blas3 import Options, Statistics
from gpu.blas3.execute import execute
from gpu.blas3.on_cpu import compute_tile
from gpu.blas3.table import ROWS
from gpu.blas3.tasks import Kernel
from gpu.machine import HOST
from reference.errors import DeviceLostError
from simwarp.lab.blas.cpu_parts import cpu_parts
from simwarp.lab.blas.table import Grid, measured
from simwarp.machine import EVEREST, Cpu, DeviceLost, Gpu, H200x2, Link, Machine, Topology
from support.blas3_calls import product
from support.fake_gpus import gpus

__all__ = ["gpus"]

SLOW = Gpu("slow", 1 << 20, dict.fromkeys(("float64", "complex128"), 1e6))
CORES = Cpu("cores", dict.fromkeys(("float64", "complex128"), 1e6))
PAIR = Topology("pair with cores", (SLOW, SLOW), *2 * [2 * (Link(0.0, 1e9),)], cpu=CORES)
"""The host's cores are as fast as one GPU."""
N, TILE = 13, 3


def computed(routine: str, machine: Any, **options: Any) -> tuple[Any, Statistics]:
    """A call of a routine on drawn matrices, and its counts."""
    rng, counts = np.random.default_rng(5), Statistics()
    dtype = np.complex128 if routine[0] == "z" else np.float64
    a, b, c = (np.asfortranarray(rng.standard_normal((N, N)).astype(dtype)) for _ in range(3))
    a += N * np.eye(N)
    row = ROWS[routine[1:]]
    operands = [a, b][: len(row.inputs)] + ([0.5, c] if row.result == "c" else [])
    call = getattr(gpu.blas3, routine)
    result = call(2.0, *operands, device=machine, tile=TILE, options=Options(**options), statistics=counts)
    return result, counts


@pytest.mark.parametrize("routine", [("z" if row.hermitian else "d") + row.name for row in ROWS.values()])
def test_cores_take_tasks_and_the_bits_are_those_without_them(routine):
    without, alone = computed(routine, Machine(PAIR))
    found, counts = computed(routine, Machine(PAIR), cpu=True, station=1, streams=1)
    assert np.array_equal(found, without)
    assert alone.cpu.tasks == 0
    assert counts.cpu.tasks > 0
    assert counts.total("tasks") == alone.total("tasks")
    assert counts.cpu.tasks + sum(device.tasks for device in counts.devices) == counts.total("tasks")


def test_cores_as_fast_as_a_gpu_compute_a_third():
    _, counts = computed("dgemm", Machine(PAIR), cpu=True, station=1, streams=1)
    assert counts.cpu.tasks == pytest.approx(counts.total("tasks") / 3, abs=2)


def test_cores_steal_when_the_queue_is_empty():
    _, counts = computed("dgemm", Machine(PAIR), cpu=True, station=1024)
    assert counts.cpu.tasks == counts.cpu.stolen > 0
    _, counts = computed("dgemm", Machine(PAIR), cpu=True, station=1024, steal=False)
    assert counts.cpu.tasks == 0


def test_the_timeline_has_the_operations_of_the_cores():
    machine = Machine(PAIR)
    _, counts = computed("dgemm", machine, cpu=True)
    own = [one for one in machine.timeline if one.device == HOST]
    assert {(one.kind, one.name) for one in own} <= {("routine", "dgemm"), ("routine", "dgeam")}
    assert len(own) >= counts.cpu.tasks * 5  # a tile has five products
    assert machine.timeline.busy(HOST) == pytest.approx(sum(one.operations for one in own) / 1e6)


def test_cores_without_a_rate_or_with_matrices_on_devices_take_nothing():
    _, counts = computed("dgemm", Machine(replace(PAIR, cpu=None)), cpu=True)
    assert counts.cpu.tasks == 0
    machine, counts = Machine(H200x2), Statistics()
    memory = machine.allocate(0, 8 * N * N)
    a = np.asfortranarray(np.ones((N, N)))
    c = memory.tile(N, N, np.dtype("f8"))
    options = Options(cpu=True)
    gpu.blas3.dgemm(
        1.0, a, a, 0.0, c, overwrite_c=1, device=machine, tile=4, options=options, statistics=counts
    )
    assert counts.cpu.tasks == 0


@pytest.mark.parametrize("seconds", [0.0, 1e-4, 5e-4])
def test_lost_cores_are_a_typed_error_and_leave_nothing(seconds):
    machine = Machine(PAIR, injections=[DeviceLost(HOST, seconds)])
    with pytest.raises(DeviceLostError, match="the host's cores are lost") as caught:
        computed("dgemm", machine, cpu=True)
    assert caught.value.device == HOST
    assert machine.pinned() == machine.queued() == 0
    assert not any(machine.allocated(device) for device in range(2))


def test_the_devices_compute_what_lost_cores_have_left():
    expected, _ = computed("dgemm", Machine(PAIR))
    machine = Machine(PAIR, injections=[DeviceLost(HOST, 5e-4)])
    found, _ = computed("dgemm", machine, cpu=True, on_device_loss="continue")
    assert np.array_equal(found, expected)


def test_the_cores_compute_what_lost_devices_have_left():
    expected, _ = computed("dgemm", Machine(PAIR))
    machine = Machine(PAIR, injections=[DeviceLost(0, 2e-4), DeviceLost(1, 4e-4)])
    found, counts = computed("dgemm", machine, cpu=True, on_device_loss="continue")
    assert np.array_equal(found, expected)
    assert counts.cpu.tasks > 0
    with pytest.raises(DeviceLostError):
        computed("dgemm", Machine(PAIR, injections=[DeviceLost(0, 2e-4), DeviceLost(1, 4e-4)]))


# --------------------------------------------------------------------------------------------------
# Tiles
# --------------------------------------------------------------------------------------------------


def part(rng: Any, rows: int, columns: int) -> Any:
    """A part of a larger column-major matrix."""
    return np.asfortranarray(rng.standard_normal((rows + 5, columns + 3)))[2 : 2 + rows, 1 : 1 + columns]


@pytest.mark.parametrize("trans_a", "NT")
@pytest.mark.parametrize("trans_b", "NT")
def test_a_product_of_parts_is_that_of_numpy(trans_a, trans_b):
    rng = np.random.default_rng(1)
    a = part(rng, *((7, 13) if trans_a == "N" else (13, 7)))
    b = part(rng, *((13, 1) if trans_b == "N" else (1, 13)))
    output = np.asfortranarray(rng.standard_normal((7, 1)))
    expected = 0.5 * (a if trans_a == "N" else a.T) @ (b if trans_b == "N" else b.T) - 2 * output
    compute_tile(Kernel("gemm", 0.5, -2.0, trans_a=trans_a, trans_b=trans_b), (a, b), output)
    np.testing.assert_allclose(output, expected)


@pytest.mark.parametrize(("side", "shape"), [("L", (11, 3)), ("R", (3, 11))])
def test_triangles_of_parts_solve_and_multiply(side, shape):
    rng = np.random.default_rng(2)
    a, b = part(rng, 11, 11), part(rng, *shape)
    np.einsum("ii->i", a)[...] += 11
    output = np.full(shape, np.nan, order="F")
    compute_tile(Kernel("trmm", 2.0, 0.0, side=side, uplo="L", trans_a="T"), (a, b), output)
    upper = np.tril(a).T
    np.testing.assert_allclose(output, 2 * (upper @ b if side == "L" else b @ upper))
    compute_tile(Kernel("trsm", 0.5, 0.0, side=side, uplo="L", trans_a="T"), (a,), output)
    np.testing.assert_allclose(output, b)


# --------------------------------------------------------------------------------------------------
# GPUs
# --------------------------------------------------------------------------------------------------


def test_cores_beside_gpus_are_right_and_are_recorded(gpus):
    found, call, counts = gpus(2), product(18), Statistics()
    expected = call.matrices["a"] @ call.matrices["b"] + 0.5 * call.matrices["c"]
    with gpu.CudaMachine(record=True) as machine:
        execute(call.call(), machine, 4, None, Options(cpu=True), counts)
        own = [one for one in machine.timeline if one.device == HOST]
        assert [one.end for one in machine.timeline] == sorted(one.end for one in machine.timeline)
    np.testing.assert_allclose(call.matrices["c"], expected)
    assert counts.cpu.tasks > 0
    assert counts.total("tasks") == 25
    assert len(own) >= 5 * counts.cpu.tasks
    assert found.is_clean()


def test_cores_that_fail_are_a_typed_error_and_gpus_can_go_on(gpus, monkeypatch):
    found, call = gpus(2), product(18)
    expected = call.matrices["a"] @ call.matrices["b"] + 0.5 * call.matrices["c"]

    def fails(*_: Any) -> None:
        raise MemoryError("planted")

    monkeypatch.setattr("gpu.blas3.on_cpu.compute_tile", fails)
    with gpu.CudaMachine() as machine:
        with pytest.raises(
            DeviceLostError, match="the host's cores are lost: dgemm ended with MemoryError"
        ) as e:
            execute(product(18).call(), machine, 4, None, Options(cpu=True), None)
        assert e.value.device == HOST
        assert not machine.pinned()
        execute(call.call(), machine, 4, None, Options(cpu=True, on_device_loss="continue"), None)
    np.testing.assert_allclose(call.matrices["c"], expected)
    assert found.is_clean()


# --------------------------------------------------------------------------------------------------
# Figure 9
# --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_cpus_part_is_at_most_its_own_rate():
    grid = Grid("EVEREST", ("dgemm",), (8192,), None, (1024,), ("paper", "cpu"))
    (row,) = measured(grid, lambda done, of: None)["cpu_parts"]
    assert EVEREST.cpu is not None
    assert (row["n"], row["variant"], row["devices"]) == (8192, "paper", 3)
    assert row["rate"] == pytest.approx(EVEREST.cpu.rates["float64"])
    assert 0 < row["part"] == row["with"] - row["without"] <= row["rate"]
    assert row["share"] == pytest.approx(row["tasks"] / 64)


def test_rows_without_a_pair_have_no_part():
    row = {"routine": "dgemm", "n": 8, "devices": 1, "tile": 4, "rate": 1.0, "seconds": 1.0}
    assert cpu_parts([row | {"variant": "cpu"}, row | {"variant": "default"}]) == []
    (found,) = cpu_parts([row | {"variant": "cpu", "rate": 2.0}, row | {"variant": "paper"}])
    assert (found["part"], found["tasks"], found["rate"]) == (1.0, 0, 0.0)
