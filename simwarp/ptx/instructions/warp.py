"""PTX ISA 9.7.13: votes, matches and reductions of the lanes of a warp."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from simwarp import lanes
from simwarp.ptx.instructions.table import row
from simwarp.ptx.kinds import WARP
from simwarp.ptx.rows import Form

_VOTES = {"any": lanes.vote_any, "all": lanes.vote_all, "uni": lanes.vote_uni}


_vote = partial(row, kind=WARP, section="9.7.13.9")
_match = partial(row, kind=WARP, section="9.7.13.10", T="b32 b64", minimum_sm=70)
_redux = partial(row, kind=WARP, section="9.7.13.12", minimum_sm=80)


@_vote(
    "vote.sync<.all|.any|.uni>.pred",
    "d:pred = a:pred, m:u32",
    summary="whether a holds in all members, in any, or alike in all",
)
@_vote(
    "vote<.all|.any|.uni>.sync.pred",
    "d:pred = a:pred, m:u32",
    name="vote.mode.sync.pred",
    summary="vote.sync, as CUB writes it",
)
def vote(form: Form, active: Any, a: Any, m: Any) -> Any:
    return _VOTES[form.modifiers[0]](a, m, active)


@_vote("vote.sync.ballot.b32", "d:u32 = a:pred, m:u32", summary="a word whose bit i is member i's predicate")
@_vote("vote.ballot.sync.b32", "d:u32 = a:pred, m:u32", summary="vote.sync.ballot, as CUB writes it")
def ballot(form: Form, active: Any, a: Any, m: Any) -> Any:
    return lanes.ballot(a, m, active)


@_match("match.any.sync.T", "d:u32 = a:T, m:u32", summary="the mask of the members that hold the same bits")
def match_any(form: Form, active: Any, a: Any, m: Any) -> Any:
    return lanes.match_any(a, m, active)


@_match(
    "match.all.sync.T",
    "d:u32 | p:pred = a:T, m:u32",
    summary="the members' mask if all hold the same bits, else 0; p: whether they do",
)
def match_all(form: Form, active: Any, a: Any, m: Any) -> Any:
    return lanes.match_all(a, m, active)


@row(
    "activemask.b32",
    "d:u32 =",
    kind=WARP,
    fidelity="open",
    section="9.7.13.11",
    summary="the lanes that execute this together; which ones they are is free",
)
def activemask(form: Form, active: Any) -> Any:
    return lanes.ballot(np.ones(lanes.WARP_SIZE, np.bool_), lanes.ALL_LANES, active)


@_redux(
    "redux.sync<.and|.or|.xor>.b32", "d:u32 = a:u32, m:u32", summary="and, or, exclusive-or over the members"
)
@_redux(
    "redux.sync<.add|.min|.max>.T",
    "d:T = a:T, m:u32",
    T="u32 s32",
    summary="sum, least or greatest over the members",
)
def redux(form: Form, active: Any, a: Any, m: Any) -> Any:
    return lanes.redux(form.modifiers[0], a, m, active)  # pyright: ignore[reportArgumentType]


@row(
    "elect.sync",
    "d:u32 | p:pred = m:u32",
    kind=WARP,
    traits="pair",
    fidelity="open",
    minimum_sm=90,
    section="9.7.13.14",
    summary="one member, the same each time; which one is free, here as on an H200 the first; p: who it is",
)
def elect(form: Form, active: Any, m: Any) -> Any:
    members, defined = lanes.ballot(np.ones(lanes.WARP_SIZE, np.bool_), m, active)
    leader = lanes.popc(~members & (members - 1))
    return leader, leader == lanes.LANE, defined
