"""PTX ISA 9.7.13: barriers and what the lanes of a warp compute together."""

from __future__ import annotations

from typing import Any

import numpy as np

from simwarp import lanes
from simwarp.ptx.instructions._table import row
from simwarp.ptx.instructions.movement import SCOPE
from simwarp.ptx.rows import Form

_ATOMIC: dict[str, Any] = {
    "add": np.add,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "min": np.minimum,
    "max": np.maximum,
    "exch": lambda old, b: b,  # pyright: ignore[reportUnknownLambdaType]
}
_ATOM = f"atom{{.relaxed|.acquire|.release|.acq_rel}}{SCOPE}<.global|.shared>"
_VOTES = {"any": lanes.vote_any, "all": lanes.vote_all, "uni": lanes.vote_uni}


@row(
    "bar.sync",
    "barrier:u32",
    kind="barrier",
    section="9.7.13.1",
    summary="wait for every thread of the block that has not exited",
)
def bar_sync(form: Form) -> None:
    return None


@row(
    "barrier.sync{.aligned}",
    "barrier:u32",
    kind="barrier",
    section="9.7.13.1",
    summary="wait for every thread of the block that has not exited",
)
def barrier_sync(form: Form) -> None:
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
    f"{_ATOM}.add.T",
    "d:T = [a], b:T",
    T="u32 u64 s32",
    name="atom.add",
    kind="atomic",
    section="9.7.13.5",
    fidelity="open",
    summary="add b to the value at an address and return the old one; the order of the lanes is free",
)
@row(
    f"{_ATOM}<.min|.max>.T",
    "d:T = [a], b:T",
    T="u32 u64 s32 s64",
    name="atom (min, max)",
    kind="atomic",
    section="9.7.13.5",
    fidelity="open",
    summary="keep the smaller or the larger one at an address and return the old one; as free",
)
@row(
    f"{_ATOM}<.and|.or|.xor|.exch>.T",
    "d:T = [a], b:T",
    T="b32 b64",
    name="atom (bits)",
    kind="atomic",
    section="9.7.13.5",
    fidelity="open",
    summary="combine b with the bits at an address, or exchange them, and return the old ones; as free",
)
def atom(form: Form, old: Any, b: Any) -> Any:
    return _ATOMIC[form.opcode.split(".")[-2]](old, b)


@row(
    "vote.sync<.all|.any|.uni>.pred",
    "d:pred = a:pred, m:u32",
    kind="warp",
    section="9.7.13.9",
    summary="whether a holds in all members, in any, or alike in all",
)
def vote(form: Form, active: Any, a: Any, m: Any) -> Any:
    return _VOTES[form.modifiers[0]](a, m, active)


@row(
    "vote.sync.ballot.b32",
    "d:u32 = a:pred, m:u32",
    kind="warp",
    section="9.7.13.9",
    summary="a word whose bit i is member i's predicate",
)
def ballot(form: Form, active: Any, a: Any, m: Any) -> Any:
    return lanes.ballot(a, m, active)


@row(
    "match.any.sync.T",
    "d:u32 = a:T, m:u32",
    T="b32 b64",
    kind="warp",
    minimum_sm=70,
    section="9.7.13.10",
    summary="the mask of the members that hold the same bits",
)
def match_any(form: Form, active: Any, a: Any, m: Any) -> Any:
    return lanes.match_any(a, m, active)


@row(
    "match.all.sync.T",
    "d:u32 | p:pred = a:T, m:u32",
    T="b32 b64",
    kind="warp",
    minimum_sm=70,
    section="9.7.13.10",
    summary="the members' mask if all hold the same bits, else 0; p: whether they do",
)
def match_all(form: Form, active: Any, a: Any, m: Any) -> Any:
    return lanes.match_all(a, m, active)


@row(
    "activemask.b32",
    "d:u32 =",
    kind="warp",
    fidelity="open",
    section="9.7.13.11",
    summary="the lanes that execute this together; which ones they are is free",
)
def activemask(form: Form, active: Any) -> Any:
    return lanes.ballot(np.ones(lanes.WARP_SIZE, np.bool_), lanes.ALL_LANES, active)


@row(
    "redux.sync<.add|.min|.max>.T",
    "d:T = a:T, m:u32",
    T="u32 s32",
    kind="warp",
    minimum_sm=80,
    section="9.7.13.12",
    summary="sum, least or greatest over the members",
)
def redux(form: Form, active: Any, a: Any, m: Any) -> Any:
    return lanes.redux(form.modifiers[0], a, m, active)  # pyright: ignore[reportArgumentType]


@row(
    "redux.sync<.and|.or|.xor>.b32",
    "d:u32 = a:u32, m:u32",
    kind="warp",
    minimum_sm=80,
    section="9.7.13.12",
    summary="and, or, exclusive-or over the members",
)
def redux_bits(form: Form, active: Any, a: Any, m: Any) -> Any:
    return lanes.redux(form.modifiers[0], a, m, active)  # pyright: ignore[reportArgumentType]
