"""The pipelines of clusters are right under all schedules; mutants without one of their steps are found."""

from functools import partial

import numpy as np
import pytest

import simwarp
from simwarp.faults import (
    BarrierFault,
    BlockLifetime,
    CopyInFlight,
    MissingProxyFence,
    Race,
    UninitialisedRead,
)
from simwarp.lab import recording as lab
from simwarp.testing import assert_same_bits
from support.pipeline_mutants import SCHEDULES, STUCK, TOO_EARLY, mostly_gate, plant

every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)
gate = partial(pytest.param, marks=pytest.mark.gate)
example = partial(lab.example, "pipelines")
multicast, stream_k = map(example, ("gemm_b1_multicast", "gemm_b1_stream_k"))


def operands(m, n, k, seed=5):
    numbers = np.random.default_rng(seed)
    return numbers.integers(0, 2, (m, k), np.uint8), numbers.integers(0, 2, (k, n), np.uint8)


def assert_right(gemm, shape, schedule="lowest pc", **options):
    a, b = operands(*shape)
    device = simwarp.Device((9, 0), schedule=schedule)
    assert_same_bits(a.astype(np.int32) @ b.astype(np.int32), gemm(device, a, b, **options))


# ---- multicast -----------------------------------------------------------------------------------------


@pytest.mark.at_most(1)
@mostly_gate
@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 65, 300), (33, 100, 1100), (65, 129, 513)])
def test_multicast_equals_numpy(shape, schedule):
    assert_right(multicast.gemm, shape, schedule)


@pytest.mark.at_most(1)
@mostly_gate
@pytest.mark.parametrize(("cluster", "stages"), [(1, 2), (2, 1), (2, 5), (4, 2), (8, 3)])
def test_multicast_takes_any_number_of_blocks_and_stages(cluster, stages, schedule):
    assert_right(multicast.gemm, (20, 40, 1000), schedule, cluster=cluster, stages=stages)


def test_multicast_reads_a_once_a_cluster():
    """Copies in global memory: 2 x 4 steps of 8 words of b, and 4 steps of 8 words of a for both blocks."""
    device = simwarp.Device((9, 0), observe="traffic")
    multicast.gemm(device, *operands(64, 128, 1024))
    words = 4 * 8 * 64
    assert device.report.traffic.loaded["global"] == 4 * (2 * words + words)


def test_multicast_has_no_bank_conflict():
    device = simwarp.Device((9, 0), observe="banks")
    multicast.gemm(device, *operands(33, 100, 600))
    assert device.report.bank_conflicts.total == 0


# ---- stream-K ------------------------------------------------------------------------------------------


@pytest.mark.at_most(1)
@mostly_gate
@pytest.mark.parametrize("shape", [(1, 1, 1), (40, 50, 1000), (130, 70, 513), (65, 129, 300)])
def test_stream_k_equals_numpy(shape, schedule):
    assert_right(stream_k.gemm, shape, schedule)


@pytest.mark.at_most(1)
@mostly_gate
@pytest.mark.parametrize(("cluster", "clusters"), [(1, 1), (2, 1), (2, 3), (4, 1), (8, 1), (8, 2)])
def test_stream_k_takes_any_number_of_blocks(cluster, clusters, schedule):
    """Six tiles of two steps, cut within tiles, at their edges, or with blocks left over."""
    assert_right(stream_k.gemm, (70, 130, 500), schedule, cluster=cluster, clusters=clusters)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("name", ["multicast", "stream_k"])
def test_pipelines_of_clusters_run_on_a_gpu_too(name, simwarp_device):
    assert_right_on(simwarp_device, {"multicast": multicast, "stream_k": stream_k}[name].gemm)


def assert_right_on(device, gemm):
    a, b = operands(70, 130, 300)
    assert_same_bits(a.astype(np.int32) @ b.astype(np.int32), gemm(device, a, b))


# ---- mutants -------------------------------------------------------------------------------------------


def assert_found(module, line, replacement, kinds, schedule, shape, monkeypatch, **options):
    plant(module, line, replacement, monkeypatch)
    device = simwarp.Device((9, 0), schedule=schedule, instruction_budget=200_000)
    with pytest.raises(kinds):
        module.gemm(device, *operands(*shape), **options)


@pytest.mark.at_most(1)
@pytest.mark.slow
@pytest.mark.singly
@every_schedule
@pytest.mark.parametrize(
    ("line", "replacement", "kinds"),
    [
        ("&full[at], stage_bytes);", "&full[at], stage_bytes - line_bytes);", (BarrierFault, *TOO_EARLY)),
        gate("&full[at], stage_bytes);", "&full[at], stage_bytes + line_bytes);", STUCK),
        ("wait(full[at], round % 2);", "", TOO_EARLY),
        gate("wait(full[at], round % 2);", "wait(full[at], (round + 1) % 2);", (*TOO_EARLY, *STUCK)),
        ("wait(released[at], (round + 1) % 2);", "", (BarrierFault, CopyInFlight)),
        gate("wait(released[at], (round + 1) % 2);", "wait(released[at], round % 2);", STUCK),
        ("&released[i], CLUSTER * warps)", "&released[i], CLUSTER * warps - 1)", Race),
        ("map_shared_rank(&released[at], lane)", "map_shared_rank(&released[at], rank)", CopyInFlight),
        ("if (lane < CLUSTER)", "if (false)", STUCK),
        ("everyone = (1 << CLUSTER) - 1", "everyone = 1 << rank", STUCK),
        ("cluster.sync();  // no block sends", "__syncthreads();  //", BlockLifetime),
        ("cluster.sync();  // no block exits", "//", BlockLifetime),
    ],
)
def test_a_mutant_of_multicast_is_found(line, replacement, kinds, schedule, monkeypatch):
    assert_found(multicast, line, replacement, kinds, schedule, (20, 70, 1100), monkeypatch)


STORED = "        ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());  // the last"
FENCED = "        ptx::fence_proxy_async(ptx::space_shared);\n        __syncthreads();"


@pytest.mark.at_most(1)
@pytest.mark.slow
@pytest.mark.singly
@every_schedule
@pytest.mark.parametrize(
    ("line", "replacement", "kinds"),
    [
        ("helpers * tile_bytes", "helpers * 4096", (BarrierFault, CopyInFlight)),
        gate("helpers * tile_bytes", "helpers * tile_bytes + 4", STUCK),
        ("if (split) wait(arrived, 0);", "", CopyInFlight),
        gate("if (split) wait(arrived, 0);", "if (split) wait(arrived, 1);", (CopyInFlight, *STUCK)),
        ("helped[i / tile][i % tile] = 0;", ";", UninitialisedRead),
        ("ptx::mbarrier_init(&arrived, 1);", "", BarrierFault),
        ("cluster.sync();  // no block sends", "__syncthreads();  //", BlockLifetime),
        (STORED, "// the last", CopyInFlight),
        ("__syncthreads();                ", "//", (CopyInFlight, MissingProxyFence)),
        (FENCED, "__syncthreads();", MissingProxyFence),
        (FENCED, "ptx::fence_proxy_async(ptx::space_shared);", (Race, MissingProxyFence)),
        (
            "    ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());  // shared",
            "    // shared",
            CopyInFlight,
        ),
    ],
)
def test_a_mutant_of_stream_k_is_found(line, replacement, kinds, schedule, monkeypatch):
    assert_found(stream_k, line, replacement, kinds, schedule, (70, 130, 500), monkeypatch, clusters=1)


@pytest.mark.gate
@mostly_gate
def test_a_sum_for_the_wrong_owner_is_found(schedule, monkeypatch):
    """With three helpers: the owner is not always the block before."""
    line, replacement = "const unsigned owner = start / share;", "const unsigned owner = rank - 1;"
    kinds = (*STUCK, CopyInFlight)
    assert_found(stream_k, line, replacement, kinds, schedule, (40, 50, 1000), monkeypatch)
