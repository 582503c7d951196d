"""PTX ISA 9.7.13: barriers and fences; how lanes wait at them is in `simwarp.engine.sync`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from simwarp.ptx.instructions._table import row
from simwarp.ptx.rows import Form, Function


def _barrier(name: str, operation: str, syntax: str, summary: str) -> Callable[[Function], Function]:
    """The rows ``bar``, which takes a warp as a whole, and ``barrier``."""
    operation, _, result = operation.partition(" ")

    def declare(function: Function) -> Function:
        for base, aligned in (("barrier", "{.aligned}"), ("bar", "")):
            row(
                f"{base}{{.cta}}{operation}{aligned}{result}",
                syntax,
                kind="barrier",
                aligned=not aligned,
                section="9.7.13.1",
                name=f"{base}.{name}",
                summary=summary,
            )(function)
        return function

    return declare


_SYNC = "wait for every thread of the block that has not exited, or for as many as named"
_HOLDS = "barrier:u32, threads:u32*, c:pred"


@_barrier("sync", ".sync", "barrier:u32, threads:u32*", _SYNC)
@_barrier("arrive", "<.arrive>", "barrier:u32, threads:u32", "be counted at a barrier without waiting")
@_barrier(
    "red.popc",
    "<.red> <.popc>.u32",
    f"d:u32 = {_HOLDS}",
    "wait at a barrier; of all who came, in how many c holds",
)
@_barrier(
    "red",
    "<.red> <.and|.or>.pred",
    f"d:pred = {_HOLDS}",
    "wait at a barrier; whether c holds in all who came, or in any",
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


_cluster = partial(row, kind="cluster barrier", section="9.7.13.3", minimum_sm=90)


@_cluster(
    "barrier.cluster<.arrive>{.release|.relaxed}{.aligned}",
    "",
    name="barrier.cluster.arrive",
    summary="be counted at the barrier of the cluster",
)
@_cluster(
    "barrier.cluster<.wait>{.acquire}{.aligned}",
    "",
    name="barrier.cluster.wait",
    summary="wait until every thread of the cluster that has not exited has arrived",
)
def barrier_cluster(form: Form) -> None:
    return None


_fence = partial(row, kind="fence", section="9.7.13.4", traits="fence")
_ORDER = "order memory accesses; here they are in order already"


@_fence("membar<.cta|.gl|.sys>", "", summary=_ORDER)
@_fence("fence{.sc|.acq_rel|.acquire|.release}<.cta|.cluster|.gpu|.sys>", "", minimum_sm=70, summary=_ORDER)
@_fence(
    "fence.proxy<.alias|.async|.async.global|.async.shared::cta|.async.shared::cluster>",
    "",
    minimum_sm=70,
    summary="order the accesses of several proxies; there is one here",
)
@_fence("fence.mbarrier_init.release.cluster", "", minimum_sm=90, summary=_ORDER)
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
