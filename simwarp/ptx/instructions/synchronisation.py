"""PTX ISA 9.7.13: barriers and fences. Who waits for whom is in `simwarp.engine.schedule`."""

from __future__ import annotations

from simwarp.ptx.instructions._table import row
from simwarp.ptx.rows import Form

_SCOPE = "<.cta|.cluster|.gpu|.sys>"


@row(
    "bar{.cta}.sync",
    "barrier:u32, threads:u32*",
    kind="barrier",
    aligned=True,
    section="9.7.13.1",
    name="bar.sync",
    summary="wait for every thread of the block that has not exited, or for as many as named",
)
@row(
    "barrier{.cta}.sync{.aligned}",
    "barrier:u32, threads:u32*",
    kind="barrier",
    section="9.7.13.1",
    name="barrier.sync",
    summary="wait for every thread of the block that has not exited, or for as many as named",
)
@row(
    "bar{.cta}<.arrive>",
    "barrier:u32, threads:u32",
    kind="barrier",
    aligned=True,
    section="9.7.13.1",
    name="bar.arrive",
    summary="be counted at a barrier without waiting",
)
@row(
    "barrier{.cta}<.arrive>{.aligned}",
    "barrier:u32, threads:u32",
    kind="barrier",
    section="9.7.13.1",
    name="barrier.arrive",
    summary="be counted at a barrier without waiting",
)
@row(
    "bar{.cta}<.red><.popc>.u32",
    "d:u32 = barrier:u32, threads:u32*, c:pred",
    kind="barrier",
    aligned=True,
    section="9.7.13.1",
    name="bar.red.popc",
    summary="wait at a barrier; of all who came, in how many c holds",
)
@row(
    "barrier{.cta}<.red>{.aligned}<.popc>.u32",
    "d:u32 = barrier:u32, threads:u32*, c:pred",
    kind="barrier",
    section="9.7.13.1",
    name="barrier.red.popc",
    summary="wait at a barrier; of all who came, in how many c holds",
)
@row(
    "bar{.cta}<.red><.and|.or>.pred",
    "d:pred = barrier:u32, threads:u32*, c:pred",
    kind="barrier",
    aligned=True,
    section="9.7.13.1",
    name="bar.red",
    summary="wait at a barrier; whether c holds in all who came, or in any",
)
@row(
    "barrier{.cta}<.red>{.aligned}<.and|.or>.pred",
    "d:pred = barrier:u32, threads:u32*, c:pred",
    kind="barrier",
    section="9.7.13.1",
    name="barrier.red",
    summary="wait at a barrier; whether c holds in all who came, or in any",
)
def barrier(form: Form) -> None:
    return None


@row(
    "bar.warp.sync",
    "m:u32",
    kind="warp barrier",
    section="9.7.13.2",
    summary="wait for the lanes of the mask that have not exited",
)
def bar_warp_sync(form: Form) -> None:
    return None


@row(
    "barrier.cluster<.arrive>{.release|.relaxed}{.aligned}",
    "",
    kind="cluster barrier",
    section="9.7.13.3",
    minimum_sm=90,
    name="barrier.cluster.arrive",
    summary="be counted at the barrier of the cluster",
)
@row(
    "barrier.cluster<.wait>{.acquire}{.aligned}",
    "",
    kind="cluster barrier",
    section="9.7.13.3",
    minimum_sm=90,
    name="barrier.cluster.wait",
    summary="wait until every thread of the cluster that has not exited has arrived",
)
def barrier_cluster(form: Form) -> None:
    return None


@row(
    "membar<.cta|.gl|.sys>",
    "",
    kind="fence",
    section="9.7.13.4",
    summary="order memory accesses; here they are in order already",
)
@row(
    f"fence{{.sc|.acq_rel|.acquire|.release}}{_SCOPE}",
    "",
    kind="fence",
    section="9.7.13.4",
    minimum_sm=70,
    summary="order memory accesses; here they are in order already",
)
@row(
    "fence.proxy<.alias|.async|.async.global|.async.shared::cta|.async.shared::cluster>",
    "",
    kind="fence",
    section="9.7.13.4",
    minimum_sm=70,
    summary="order the accesses of several proxies; there is one here",
)
@row(
    "fence.mbarrier_init.release.cluster",
    "",
    kind="fence",
    section="9.7.13.4",
    minimum_sm=90,
    summary="order memory accesses; here they are in order already",
)
def fence(form: Form) -> None:
    return None


@row(
    "griddepcontrol<.launch_dependents|.wait>",
    "",
    kind="fence",
    section="9.7.13.13",
    minimum_sm=90,
    summary="where dependent grids may start, and wait for the ones before; launches here run one by one",
)
def griddepcontrol(form: Form) -> None:
    return None
