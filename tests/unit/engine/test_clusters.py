"""Launches in clusters: the size that a launch gives and a kernel requires, on both devices."""

from __future__ import annotations

import numpy as np
import pytest

import simwarp
from gpu.cuda.graphs import BoundChain, BoundLaunch
from gpu.device import LaunchChain, LaunchPlan
from reference.errors import LaunchError
from simwarp.run import load, run
from support.cuda_driver import cuda_kernel
from support.small_kernels import text

__all__ = ["cuda_kernel"]

RANK = "mov.u32 %r3, %cluster_ctarank; mov.u32 %r4, %cluster_nctarank; mad.lo.u32 %r2, %r4, 1000, %r3;\n"
STORE = "st.global.u32 [%at], %r2; ret;"
EXPLICIT = "mov.pred %p1, %is_explicit_cluster; selp.u32 %r2, 1, 0, %p1;\n"


def ranks(cluster, grid=(4, 2, 1), directives="", cc=(9, 0), body=RANK):
    """The word of each block of one thread: 1000 times the cluster's size plus the block's rank."""
    device = simwarp.Device(cc)
    ptx = text(
        "mov.u32 %r5, %nctaid.x; mov.u32 %r6, %ctaid.y; mad.lo.u32 %i, %r5, %r6, %i;\n"
        "mul.wide.u32 %at, %i, 4; add.u64 %at, %at, %out;\n" + body + STORE,
        directives=directives,
    )
    ptx = ptx if cc == (9, 0) else ptx.replace("sm_90a", "sm_80")
    out = device.upload(np.zeros(int(np.prod(grid)), np.uint32))
    device.load(ptx).kernel("k")(grid, 1, out, out, cluster=cluster)
    return out.download().tolist()


def refused(*args, **options):
    with pytest.raises(LaunchError) as caught:
        ranks(*args, **options)
    return str(caught.value)


@pytest.mark.parametrize("cluster", [(1, 1, 1), 2, (2, 2), (4, 2, 1), (1, 2)])
def test_a_launch_gives_its_cluster(cluster):
    x, y, _ = (*((cluster,) if isinstance(cluster, int) else cluster), 1, 1)[:3]
    expected = [1000 * x * y + i % x + x * (j % y) for j in range(2) for i in range(4)]
    assert ranks(cluster) == expected


def test_a_cluster_of_sixteen_blocks_runs():
    assert ranks(16, grid=(32, 1, 1)) == [16000 + i % 16 for i in range(32)]


def test_a_launch_without_clusters_has_clusters_of_one_block():
    assert ranks(None) == [1000] * 8
    assert ranks(None, body=EXPLICIT) == [0] * 8
    assert ranks(1, body=EXPLICIT) == [1] * 8


@pytest.mark.parametrize("given", [None, 2, (2, 1), (2, 1, 1)])
def test_a_required_cluster_may_be_given_again_or_left_out(given):
    assert ranks(given, directives=".reqnctapercluster 2, 1, 1") == [2000, 2001] * 4


@pytest.mark.parametrize("given", [1, 4, (1, 2, 1)])
def test_another_cluster_than_the_kernel_requires_is_refused(given):
    message = refused(given, directives=".reqnctapercluster 2, 1, 1")
    assert "requires clusters of (2, 1, 1)" in message
    assert "a launch in clusters of" in message


@pytest.mark.parametrize(
    ("cluster", "grid", "expected"),
    [
        (3, (4, 2, 1), "a grid of (4, 2, 1) in clusters of (3, 1, 1)"),
        ((1, 1, 2), (4, 2, 1), "a multiple of the cluster in each dimension"),
        (17, (17, 1, 1), "at most 16 blocks"),
        ((4, 4, 2), (4, 4, 2), "32 blocks"),
        (0, (4, 2, 1), "0 blocks"),
        (-1, (4, 2, 1), "a cluster has"),
        ((-1, -1), (4, 2, 1), "a cluster has"),
        ((1, 1, 1, 1), (4, 2, 1), "up to three"),
        ("2", (4, 2, 1), "up to three"),
    ],
)
def test_a_cluster_that_does_not_fit_is_refused(cluster, grid, expected):
    assert expected in refused(cluster, grid=grid)


def test_chips_without_clusters_refuse_them():
    assert "compute capability 9.0" in refused(2, cc=(8, 0), body="mov.u32 %r2, 0;")
    assert "at most 8 blocks" in refused(16, grid=(16, 1, 1), cc=(12, 0), body="mov.u32 %r2, 0;")


def test_the_kernels_own_limit_of_a_cluster_holds():
    assert ranks(2, directives=".maxclusterrank 2") == [2000, 2001] * 4
    assert "at most 2 blocks" in refused(4, directives=".maxclusterrank 2")


def test_a_kernel_that_requires_some_cluster_refuses_a_launch_without():
    assert ranks(2, directives=".explicitcluster") == [2000, 2001] * 4
    assert "gives a cluster" in refused(None, directives=".explicitcluster")


def test_plans_hold_cluster_and_shared_memory():
    device = simwarp.Device()
    out = device.upload(np.zeros(4, np.uint32))
    before = ".extern .shared .align 4 .b8 all[];"
    body = RANK + "st.shared.u32 [all+1020], %r2; ld.shared.u32 %r2, [all+1020];" + STORE
    plan = LaunchPlan(
        text(body, before), "k", (4, 1, 1), (1, 1, 1), (None, None), shared=1024, cluster=(2, 1, 1)
    )
    device.launch_all(LaunchChain((plan,)), [(out, out)])
    assert out.download().tolist() == [2000, 2001] * 2


def test_run_takes_a_cluster(tmp_path):
    path = tmp_path / "k.ptx"
    path.write_text(text(RANK + STORE))
    out = np.zeros(4, np.uint32)
    result = run(load(path), grid=4, block=1, args=(out, out), cluster=4)
    assert result.outputs[0].tolist() == [4000, 4001, 4002, 4003]


# ---- the CUDA device, whose driver is replaced


def launched(driver):
    """The grid, the block, shared memory and the attributes of the driver's only launch."""
    ((config, _, _, _),) = driver.launched
    grid = config.gridDimX, config.gridDimY, config.gridDimZ
    return grid, config.blockDimX, config.sharedMemBytes, {a.id.name: a.value for a in config.attrs}


def test_cuda_launches_give_the_cluster_as_an_attribute(cuda_kernel):
    launch, driver = cuda_kernel()
    launch((4, 2), 32, shared=100, cluster=(2, 2))
    grid, block, shared, attributes = launched(driver)
    cluster = attributes["CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION"].clusterDim
    assert (grid, block, shared, driver.set) == ((4, 2, 1), 32, 100, [])
    assert (cluster.x, cluster.y, cluster.z) == (2, 2, 1)
    assert "CU_LAUNCH_ATTRIBUTE_COOPERATIVE" not in attributes


def test_cuda_launches_without_clusters_take_the_short_way(cuda_kernel):
    launch, driver = cuda_kernel()
    launch(4, 32)
    (call,) = driver.launched
    assert call[1:8] == (4, 1, 1, 32, 1, 1, 0)


def test_cuda_clusters_above_the_portable_size_are_opted_into_once(cuda_kernel):
    launch, driver = cuda_kernel()
    for _ in range(2):
        launch(16, 32, cluster=16)
    assert driver.set == [("CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1)]


def test_cuda_kernels_that_require_a_cluster_check_each_launch(cuda_kernel):
    launch, driver = cuda_kernel(required=(2, 1, 1))
    launch(4, 32)
    assert launched(driver)[3]["CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION"].clusterDim.x == 2
    for grid, cluster in ((3, None), (4, 4)):
        with pytest.raises(LaunchError, match=r"clusters of \([24], 1, 1\)"):
            launch(grid, 32, cluster=cluster)


def test_cuda_devices_without_clusters_and_too_large_ones_are_refused(cuda_kernel):
    for clusters, size, expected in ((0, 2, "compute capability 9.0"), (1, 17, "at most 16 blocks")):
        launch, _ = cuda_kernel(clusters=clusters)
        with pytest.raises(LaunchError, match=expected):
            launch(2 * size, 32, cluster=size)


def test_cuda_launches_ask_for_more_shared_memory_once(cuda_kernel):
    launch, driver = cuda_kernel()
    for shared in (1000, 48 * 1024, 200_000, 100_000, 227 * 1024):
        launch(1, 32, shared=shared)
    name = "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
    assert driver.set == [(name, 200_000), (name, 227 * 1024)]
    with pytest.raises(LaunchError, match="232449 bytes of dynamic shared memory"):
        launch(1, 32, shared=227 * 1024 + 1)


def test_a_graph_node_has_its_plans_cluster(cuda_kernel):
    launch, driver = cuda_kernel()
    plan = LaunchPlan("", "f", (4, 1, 1), (32, 1, 1), (), shared=100_000, cluster=(4, 1, 1))
    BoundChain([BoundLaunch(launch, plan)])
    ((node, which, value),) = driver.nodes
    assert (node, which) == ("node of 100000 bytes", "CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION")
    assert (value.clusterDim.x, value.clusterDim.y, value.clusterDim.z) == (4, 1, 1)
    assert driver.set == [("CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", 100_000)]


def test_a_cooperative_plan_is_launched_by_itself(cuda_kernel):
    launch, driver = cuda_kernel()
    chain = BoundChain(
        [BoundLaunch(launch, LaunchPlan("", "f", (4, 1, 1), (32, 1, 1), (), cooperative=True))]
    )
    chain([()])
    ((config, *_),) = driver.launched
    ((which, value),) = [(each.id.name, each.value.cooperative) for each in config.attrs]
    assert (which, value, config.gridDimX) == ("CU_LAUNCH_ATTRIBUTE_COOPERATIVE", 1, 4)
