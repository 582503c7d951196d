"""Steps that lanes execute together: barriers, and operations of warps.

A barrier passes, and an operation of a warp is executed, where all lanes that it names have come to it at the
same step; NumPy parks lanes that are early. `Meeting.defined` are the lanes whose result has a meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from simwarp.compiled.expressions import UntraceableError, Value, cast, where
from simwarp.lanes import ALL_LANES, WARP_SIZE, mask_word, shuffle_source
from simwarp.program.steps import Step
from simwarp.ptx.instructions import movement, warp
from simwarp.ptx.kinds import BARRIER, WARP, WARP_BARRIER
from simwarp.ptx.rows import Form

KINDS = (WARP, WARP_BARRIER, BARRIER)
_WORD, _SIGNED, _TRUTH = np.dtype(np.uint32), np.dtype(np.int32), np.dtype(np.bool_)
_NEUTRAL: dict[str, Callable[[Any], int]] = {
    "min": lambda dtype: np.iinfo(dtype).max,
    "max": lambda dtype: np.iinfo(dtype).min,
    "and": lambda dtype: np.invert(dtype.type(0)),
}
"""Reduction → what lanes outside of the mask contribute, where it is not 0."""


@dataclass
class Meeting:
    """A step that lanes execute together.

    Attributes
    ----------
    members : Value or None
        The lanes of its warp that each lane names; None at a barrier of the block.
    defined : Value
        The lanes whose result has a meaning.
    all_of_warp : bool
        Whether all live lanes of the warp must have come, named or not.
    key : hashable, or None
        What decides whether they have come, if that is known from the lanes that execute it alone: two
        meetings with one key have one answer. None if registers decide.
    """

    step: Step
    members: Value | None
    defined: Value
    all_of_warp: bool
    key: Any = None


def meeting(step: Step, recorder: Any) -> Meeting:
    """What the lanes of a step meet for; the results are written."""
    if step.guard is not None:
        raise UntraceableError("a guarded meeting")
    true = cast(True, _TRUTH)
    if step.kind is BARRIER:
        return Meeting(step, None, true, True)
    sources = [read(recorder) for read in step.sources]
    if step.kind is WARP_BARRIER:
        return Meeting(step, cast(sources[-1], _WORD), true, True)
    members = cast(sources[-1], _WORD) if sources else cast(ALL_LANES, _WORD)
    *results, defined = _ROWS[step.row.function](step.form, *sources)
    known = members.name == "constant" and not any(isinstance(x, Value) for x in sources[1:])
    key = (int(members.about), *(x for x in _lanes_of(step, sources))) if known else None
    for write, value in zip(step.destinations, results, strict=False):
        if write is not None:
            write(recorder, value)
    return Meeting(step, members if sources else _executing(), defined, False, key)


def _lanes_of(step: Step, sources: list[Any]) -> list[int]:
    """The lanes that a shuffle reads, if they are known."""
    if step.row.function is not movement.shfl:
        return []
    _, b, c, _ = sources
    mode: Any = step.form.modifiers[0]
    return np.broadcast_to(shuffle_source(b, c, mode)[0], (WARP_SIZE,)).tolist()


def _lane() -> Value:
    return Value("lane", _WORD)


def _executing() -> Value:
    """The lanes of the warp that execute the step, as a word."""
    return Value("executing", _WORD)


def _ballot(predicate: Any, members: Any) -> Value:
    return Value("ballot", _WORD, (cast(predicate, _TRUTH),)) & cast(members, _WORD)


def _shfl(form: Form, a: Any, b: Any, c: Any, m: Any) -> tuple[Any, ...]:
    mode: Any = form.modifiers[0]
    value, members = cast(a, _WORD), cast(m, _WORD)
    present = members & _executing()
    if not isinstance(b, Value) and not isinstance(c, Value):
        source, in_range = shuffle_source(b, c, mode)
        lanes = np.broadcast_to(source, (WARP_SIZE,)).tolist()
        result = Value("permute", _WORD, (value,), about=tuple(lanes))
        bits = Value("permute", _WORD, (present >> _lane(),), about=tuple(lanes))
        word = int(mask_word(np.broadcast_to(in_range, (WARP_SIZE,)))[0])
        within = (cast(word, _WORD) >> _lane()) & np.uint32(1)
        return result, within != np.uint32(0), (bits & np.uint32(1)) != np.uint32(0)
    source, within = _source(cast(b, _WORD), cast(c, _WORD), mode)
    result = Value("permute", _WORD, (value, source))
    return result, within, ((present >> source) & np.uint32(1)) != np.uint32(0)


def _source(b: Value, c: Value, mode: str) -> tuple[Value, Value]:
    """The source lane of each lane, and whether it is in range; see `simwarp.lanes.shuffle_source`."""
    lane = cast(_lane(), _SIGNED)
    b, c = cast(b & np.uint32(31), _SIGNED), cast(c, _SIGNED)
    clamp, segment = c & np.int32(31), (c >> np.int32(8)) & np.int32(31)
    lowest = lane & segment
    highest = lowest | (clamp & ~segment)
    if mode == "up":
        source = lane - b
        within = source >= highest
    else:
        moves = {"down": lane + b, "bfly": lane ^ b, "idx": lowest | (b & ~segment)}
        source = moves[mode]
        within = source <= highest
    return cast(where(within, source, lane), _WORD), within


def _vote(form: Form, a: Any, m: Any) -> tuple[Any, ...]:
    zero = np.uint32(0)
    some, others = _ballot(a, m), _ballot(~cast(a, _TRUTH), m)
    held = {"any": some != zero, "all": others == zero, "uni": (some == zero) | (others == zero)}
    return held[form.modifiers[0]], _is_named(m)


def _is_named(m: Any) -> Value:
    return ((cast(m, _WORD) >> _lane()) & np.uint32(1)) != np.uint32(0)


def _vote_ballot(form: Form, a: Any, m: Any) -> tuple[Any, ...]:
    return _ballot(a, m), _is_named(m)


def _active(form: Form) -> tuple[Any, ...]:
    return _executing(), cast(True, _TRUTH)


def _redux(form: Form, a: Any, m: Any) -> tuple[Any, ...]:
    operation, value = form.modifiers[0], cast(a, a.dtype)
    neutral = _NEUTRAL.get(operation, lambda _: 0)(value.dtype)
    here = (((cast(m, _WORD) & _executing()) >> _lane()) & np.uint32(1)) != np.uint32(0)
    terms = where(here, value, cast(value.dtype.type(neutral), value.dtype))
    return Value("reduce", value.dtype, (terms,), about=operation), _is_named(m)


_ROWS: dict[Any, Callable[..., tuple[Any, ...]]] = {
    movement.shfl: _shfl,
    warp.vote: _vote,
    warp.ballot: _vote_ballot,
    warp.activemask: _active,
    warp.redux: _redux,
}
"""Function of a row → its results, and the lanes where they are defined."""
