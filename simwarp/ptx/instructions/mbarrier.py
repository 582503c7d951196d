"""PTX ISA 9.7.13.15: mbarriers, barriers in shared memory; `simwarp.engine.sync.mbarriers` executes them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from simwarp.ptx.instructions.table import nothing, row
from simwarp.ptx.kinds import MBARRIER

PENDING_BITS = 20
"""The low bits of a state word, which hold the pending count; PTX leaves the layout open."""
_OWN = "{.shared|.shared::cta}"
_ANY = "{.shared|.shared::cta|.shared::cluster}"
_SCOPES = "{.cta|.cluster}"


def _half_ordered(words: Sequence[str], _: str, __: str) -> bool:
    """Memory order and scope are written together or not at all."""
    has = set(words[1:])
    return bool(has & {"release", "relaxed", "acquire"}) != bool(has & {"cta", "cluster"})


_row = partial(row, kind=MBARRIER, section="9.7.13.15", minimum_sm=80, lacks=_half_ordered)
_sm_90 = partial(_row, minimum_sm=90)

_row(
    f"mbarrier<.init>{_OWN}.b64",
    "[a], count:u32",
    name="mbarrier.init",
    summary="make a barrier in shared memory that expects so many arrivals in each phase",
)(nothing)
_row(
    f"mbarrier<.inval>{_OWN}.b64",
    "[a]",
    name="mbarrier.inval",
    summary="end a barrier, so that its memory may hold something else",
)(nothing)
for _word, _summary in (
    ("expect_tx", "let the phase wait for so many bytes more"),
    ("complete_tx", "count so many bytes of the phase as arrived"),
):
    _sm_90(
        f"mbarrier<.{_word}>{{.relaxed}}{_SCOPES}{_ANY}.b64",
        "[a], bytes:u32",
        name=f"mbarrier.{_word}",
        summary=_summary,
    )(nothing)
for _word, _summary in (
    ("arrive", "count an arrival, or as many as named; the state before it"),
    ("arrive_drop", "count an arrival, and expect one fewer in every later phase; the state before it"),
):
    _row(
        f"mbarrier<.{_word}>{{.release|.relaxed}}{_SCOPES}{_ANY}.b64",
        "d:b64 = [a], count:u32*",
        name=f"mbarrier.{_word}",
        summary=_summary,
    )(nothing)
    _sm_90(
        f"mbarrier<.{_word}><.expect_tx>{{.release|.relaxed}}{_SCOPES}{_ANY}.b64",
        "d:b64 = [a], bytes:u32",
        name=f"mbarrier.{_word}.expect_tx",
        summary=f"expect bytes, then {_summary.partition(',')[0]}; the state before it",
    )(nothing)
    _row(
        f"mbarrier<.{_word}><.noComplete>{{.release}}{{.cta}}{_OWN}.b64",
        "d:b64 = [a], count:u32",
        name=f"mbarrier.{_word}.noComplete",
        summary=f"{_summary.partition(',')[0]} that may not complete the phase; the state before it",
    )(nothing)
for _word, _hint, _declare, _summary in (
    ("test_wait", "", _row, "whether a phase is complete"),
    ("try_wait", ", hint:u32*", _sm_90, "whether a phase is complete; a chip may wait for it a while"),
):
    _declare(
        f"mbarrier<.{_word}>{{.acquire|.relaxed}}{_SCOPES}{_OWN}.b64",
        f"p:pred = [a], state:b64{_hint}",
        name=f"mbarrier.{_word}",
        summary=f"{_summary}: that of a state",
    )(nothing)
    _declare(
        f"mbarrier<.{_word}><.parity>{{.acquire|.relaxed}}{_SCOPES}{_OWN}.b64",
        f"p:pred = [a], parity:u32{_hint}",
        name=f"mbarrier.{_word}.parity",
        summary=f"{_summary}: the last one of a parity",
    )(nothing)
_row(
    "mbarrier<.pending_count>.b64",
    "d:u32 = state:b64",
    name="mbarrier.pending_count",
    summary="the arrivals that were pending when a state was taken",
)(nothing)
