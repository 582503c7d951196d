"""PTX ISA 9.7.9.25.3: asynchronous copies; when they happen is in `simwarp.engine.async_copies`."""

from __future__ import annotations

from functools import partial

from simwarp.ptx.instructions._table import row
from simwarp.ptx.rows import Form


@row(
    "cp.async<.ca|.cg><.shared|.shared::cta>.global{.L2::cache_hint}{.L2::64B|.L2::128B|.L2::256B}",
    "[d], [a], size:number, count:count*, policy:b64*",
    name="cp.async",
    kind="async copy",
    section="9.7.9.25.3",
    minimum_sm=80,
    summary="copy 4, 8 or 16 bytes to shared memory at a moment before a wait for the copy ends",
)
def cp_async(form: Form) -> None:
    return None


_groups = partial(row, kind="async group", minimum_sm=80)


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
