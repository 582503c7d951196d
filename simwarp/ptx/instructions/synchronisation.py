"""PTX ISA 9.7.13: barriers and fences, which `simwarp.engine.sync.waiting` executes."""

from __future__ import annotations

from functools import partial

from simwarp.ptx.instructions.table import nothing, row
from simwarp.ptx.kinds import BARRIER, CLUSTER_BARRIER, FENCE, WARP_BARRIER


def _barrier(name: str, operation: str, syntax: str, summary: str) -> None:
    """Declare the rows of ``bar``, which requires whole warps, and of ``barrier``."""
    operation, _, result = operation.partition(" ")
    for base, aligned in (("barrier", "{.aligned}"), ("bar", "")):
        row(
            f"{base}{{.cta}}{operation}{aligned}{result}",
            syntax,
            kind=BARRIER,
            aligned=not aligned,
            section="9.7.13.1",
            name=f"{base}.{name}",
            summary=summary,
        )(nothing)


_SYNC = "wait for every thread of the block that has not exited, or for as many as named"
_HOLDS = "barrier:u32, threads:u32*, c:pred"
_ALL, _COUNT = "whether c holds in all who came, or in any", "of all who came, in how many c holds"
_barrier("red", "<.red> <.and|.or>.pred", f"d:pred = {_HOLDS}", f"wait at a barrier; {_ALL}")
_barrier("red.popc", "<.red> <.popc>.u32", f"d:u32 = {_HOLDS}", f"wait at a barrier; {_COUNT}")
_barrier("arrive", "<.arrive>", "barrier:u32, threads:u32", "be counted at a barrier without waiting")
_barrier("sync", ".sync", "barrier:u32, threads:u32*", _SYNC)

row(
    "bar.warp.sync",
    "m:u32",
    kind=WARP_BARRIER,
    section="9.7.13.2",
    summary="wait for the lanes of the mask that have not exited",
)(nothing)

_cluster = partial(row, kind=CLUSTER_BARRIER, section="9.7.13.3", minimum_sm=90)
_cluster(
    "barrier.cluster<.wait>{.acquire}{.aligned}",
    "",
    name="barrier.cluster.wait",
    summary="wait until every thread of the cluster that has not exited has arrived",
)(nothing)
_cluster(
    "barrier.cluster<.arrive>{.release|.relaxed}{.aligned}",
    "",
    name="barrier.cluster.arrive",
    summary="be counted at the barrier of the cluster",
)(nothing)

_fence = partial(row, kind=FENCE, section="9.7.13.4", traits="fence")
_order = partial(_fence, summary="order memory accesses; here they are in order already")
_order("fence.mbarrier_init.release.cluster", "", minimum_sm=90, traits="fence initialisation")(nothing)
_fence(
    "fence.proxy.alias", "", minimum_sm=70, summary="order accesses of several addresses of the same memory"
)(nothing)
_fence(
    "fence.proxy<.async|.async.global|.async.shared::cta|.async.shared::cluster>",
    "",
    name="fence.proxy.async",
    minimum_sm=90,
    summary="order accesses of instructions and of the asynchronous proxy",
)(nothing)
_restricted = partial(
    _fence,
    minimum_sm=90,
    summary="order accesses to mbarriers of the cluster; here they are in order already",
)
for _proxy in ("", ".proxy.async::generic"):
    _restricted(f"fence{_proxy}.acquire.sync_restrict::shared::cluster.cluster", "")(nothing)
    _restricted(f"fence{_proxy}.release.sync_restrict::shared::cta.cluster", "")(nothing)
_order("fence{.sc|.acq_rel|.acquire|.release}<.cta|.cluster|.gpu|.sys>", "", minimum_sm=70)(nothing)
_order("membar<.cta|.gl|.sys>", "")(nothing)

row(
    "griddepcontrol<.launch_dependents|.wait>",
    "",
    kind=FENCE,
    section="9.7.13.13",
    minimum_sm=90,
    traits="grid",
    summary="allow dependent grids to start, or wait until the grids before have ended and can be seen",
)(nothing)
