"""PTX ISA 9.7.9.25: asynchronous copies.

When those of a thread happen is in `simwarp.engine.asynchronous.copies`, when those of the asynchronous proxy
do in `simwarp.engine.asynchronous.transfers`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from simwarp.ptx.instructions.atomic import atom, atom_f32, atom_f64, atom_half
from simwarp.ptx.instructions.memory import hint, wide_vector
from simwarp.ptx.instructions.table import nothing, row
from simwarp.ptx.kinds import ASYNC_COPY, ASYNC_GROUP, BULK_COPY, BULK_GROUP, BULK_REDUCTION
from simwarp.ptx.rows import Form, Function


@row(
    "cp.async<.ca|.cg><.shared|.shared::cta>.global{.L2::cache_hint}{.L2::64B|.L2::128B|.L2::256B}",
    "[d], [a], size:number, count:count*, policy:b64*",
    name="cp.async",
    kind=ASYNC_COPY,
    section="9.7.9.25.3",
    minimum_sm=80,
    summary="copy 4, 8 or 16 bytes to shared memory at a moment before a wait for the copy ends",
)
def cp_async(form: Form) -> None:
    return None


row(
    "cp.async.mbarrier.arrive<.noinc>{.shared|.shared::cta}.b64",
    "[a]",
    name="cp.async.mbarrier.arrive.noinc",
    kind=ASYNC_GROUP,
    section="9.7.13.15",
    minimum_sm=80,
    summary="let the end of the thread's copies so far be one of the arrivals that a barrier expects",
)(nothing)
row(
    "cp.async.mbarrier.arrive{.shared|.shared::cta}.b64",
    "[a]",
    name="cp.async.mbarrier.arrive",
    kind=ASYNC_GROUP,
    section="9.7.13.15",
    minimum_sm=80,
    summary="let a phase of a barrier wait for the thread's copies so far, too",
)(nothing)
_groups = partial(row, kind=ASYNC_GROUP, minimum_sm=80)


@_groups(
    "cp.async.commit_group",
    "",
    section="9.7.9.25.3",
    summary="make a group of the thread's copies since its last group",
)
@_groups(
    "cp.async.wait_group",
    "pending:number",
    section="9.7.9.25.3",
    summary="wait until at most that many of the thread's latest groups are pending",
)
@_groups(
    "cp.async.wait_all",
    "",
    section="9.7.9.25.3",
    summary="wait for all of the thread's copies",
)
def group(form: Form) -> None:
    return None


# ---- the asynchronous proxy -------------------------------------------------------------------------------

COUNTED, GROUPED = ".mbarrier::complete_tx::bytes", ".bulk_group"
STORED, POLICY = "<.global><.shared::cta>", "{.L2::cache_hint}"
"""Words of spellings: who waits for a copy, where a store reads and writes, and that L2 is given a policy."""
_bulk = partial(row, kind=BULK_COPY, section="9.7.9.25.4", minimum_sm=90)
_bulk(
    f"cp.async.bulk<.shared::cluster><.global>{COUNTED}<.multicast::cluster>{POLICY}",
    "[d], [a], size:u32, [bar], blocks:b16, policy:b64*",
    name="cp.async.bulk (multicast)",
    summary="copy bytes to the same place in several blocks of the cluster; their mbarriers count them",
)(nothing)
_bulk(
    f"cp.async.bulk<.shared::cluster|.shared::cta><.global>{COUNTED}{POLICY}",
    "[d], [a], size:u32, [bar], policy:b64*",
    name="cp.async.bulk (load)",
    summary="copy bytes to shared memory; an mbarrier counts them",
)(nothing)
_bulk(
    f"cp.async.bulk<.shared::cluster><.shared::cta>{COUNTED}",
    "[d], [a], size:u32, [bar]",
    name="cp.async.bulk (cluster)",
    summary="copy bytes to another block of the cluster; its mbarrier counts them",
)(nothing)
_bulk(
    f"cp.async.bulk{STORED}{GROUPED}{POLICY}",
    "[d], [a], size:u32, policy:b64*",
    name="cp.async.bulk (store)",
    summary="copy bytes from shared to global memory; the thread waits for its bulk group",
)(nothing)
hint(
    f"cp.async.bulk.prefetch.L2.global{POLICY}",
    "[a], size:u32, policy:b64*",
    section="9.7.9.25.4",
    minimum_sm=90,
)(nothing)
for _word, _syntax, _summary in (
    ("commit_group", "", "make a bulk group of the thread's bulk copies since its last one"),
    (
        "wait_group",
        "pending:number",
        "wait until at most that many of the thread's latest bulk groups are pending",
    ),
    ("wait_group<.read>", "pending:number", "the same, until the others have read what they copy"),
):
    row(
        f"cp.async.bulk.{_word}",
        _syntax,
        name=f"cp.async.bulk.{_word}".replace("<.read>", ".read"),
        kind=BULK_GROUP,
        section="9.7.9.25.4",
        minimum_sm=90,
        summary=_summary,
    )(nothing)

_reduce = partial(row, kind=BULK_REDUCTION, section="9.7.9.25.4", minimum_sm=90)


def _reductions(
    name: str, kinds: str, types: str, function: Function, cluster_types: str | None = None
) -> None:
    """Declare ``cp.reduce.async.bulk`` of some operations, in global memory and in the cluster."""
    summary = "combine elements of shared memory with those at an address"
    if cluster_types:
        _reduce(
            f"cp.reduce.async.bulk<.shared::cluster><.shared::cta>{COUNTED}{kinds}.T",
            "[d], [a], size:u32, [bar]",
            T=cluster_types,
            name=f"cp.reduce.async.bulk (cluster, {name})",
            summary=f"{summary} in another block of the cluster; its mbarrier counts the bytes",
        )(function)
        _reduce(
            f"red.async<.relaxed><.cluster>{{.shared::cluster}}{COUNTED}{kinds}.T",
            "[d], b:T, [bar]",
            T=cluster_types + (" s64" if name == "add" else ""),
            name=f"red.async ({name})",
            summary="combine a value with one in another block of the cluster; its mbarrier counts the bytes",
        )(function)
    _reduce(
        f"cp.reduce.async.bulk{STORED}{GROUPED}{POLICY}{kinds}.T",
        "[d], [a], size:u32, policy:b64*",
        T=types,
        name=f"cp.reduce.async.bulk ({name})",
        summary=f"{summary} in global memory; the thread waits for its bulk group",
    )(function)


def _add_f32(form: Form, old: Any, b: Any, *, shared: bool) -> Any:
    """Add f32 values as a bulk reduction, which keeps subnormal numbers on an H200, unlike ``red.global``."""
    return atom_f32(form, old, b, shared=True)


_reductions("add", "<.add>", "u32 s32 u64", atom, "u32 s32 u64")
_reductions("inc, dec", "<.inc|.dec>", "u32", atom, "u32")
_reductions("min, max", "<.min|.max>", "u32 s32 u64 s64", atom, "u32 s32")
_reductions("bits", "<.and|.or|.xor>", "b32 b64", atom, "b32")
_reductions("add, f32", "<.add>", "f32", _add_f32)
_reductions("add, f64", "<.add>", "f64", atom_f64)
_reductions("add, half", "<.add>.noftz", "f16 bf16", atom_half)
_reductions("min, max, half", "<.min|.max>", "f16 bf16", atom_half)


row(
    f"st.async{{.weak}}{{.shared::cluster|.shared::cta}}{COUNTED}{{.v2|.v4}}.T",
    "[d], b:T, [bar]",
    T="b32 b64 u32 u64 s32 s64 f32 f64",
    name="st.async",
    kind=BULK_COPY,
    section="9.7.9.12",
    minimum_sm=90,
    lacks=wide_vector,
    summary="write a value to another block of the cluster; its mbarrier counts the bytes",
)(nothing)
