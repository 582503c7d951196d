"""PTX ISA 9.7.13.5 and 9.7.13.6: atomic operations; PTX leaves the order of lanes open, here it is ascending.

The functions take the old value in memory, the operands, and whether the memory is shared memory: ``add``
of f32 flushes subnormal operands and results in global memory but not in shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from simwarp import floats
from simwarp.ptx.instructions.float_formats import FORMATS, keep_payload, pack, split, words
from simwarp.ptx.instructions.memory import ORDERS, SCOPE, SCOPES, SHARED
from simwarp.ptx.instructions.table import row, where
from simwarp.ptx.kinds import ATOMIC, REDUCTION
from simwarp.ptx.rows import Form, Function
from simwarp.ptx.same_address import Runs

_ORDER = f"{{.relaxed|.acquire|.release|.acq_rel}}{SCOPE}"
_WEAK_ORDER = f"{{.relaxed|.release}}{SCOPE}"
_SPACE = f"{{.global|{SHARED}}}{SCOPE}"
_GLOBAL = f"{{.global}}{SCOPE}"
"""CUDA's headers also write the scope after the state space, and the order after the operation."""
_CHOICE = "the order of the lanes is free"
_LONG = 16
"""Least number of lanes that share an address for `_adding_floats` to compute their sum."""


def _increment(old: Any, b: Any) -> Any:
    return where(old >= b, old.dtype.type(0), old + old.dtype.type(1))


def _decrement(old: Any, b: Any) -> Any:
    return where((old == 0) | (old > b), b, old - old.dtype.type(1))


def _exchange(old: Any, b: Any) -> Any:
    return b


_ATOMIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "min": np.minimum,
    "max": np.maximum,
    "inc": _increment,
    "dec": _decrement,
    "exch": _exchange,
}


def _operation(form: Form) -> str:
    """The operation that an ``atom`` or ``red`` opcode names, such as "add"."""
    return next(m for m in form.modifiers if m in _ATOMIC)


def _clash(words: Sequence[str]) -> bool:
    """Whether an opcode has two scopes, two orders, or a vector in shared memory."""
    if sum(word in SCOPES for word in words) > 1 or sum(word in ORDERS for word in words) > 1:
        return True
    vector = not {"v2", "v4", "v8"}.isdisjoint(words)
    return vector and any(word.startswith("shared") for word in words)


_atomic = partial(row, fidelity="open", clash=_clash)


def _both(
    operation: str, name: str, what: str, *, kinds: str = ".T", space: str = _SPACE, **facts: Any
) -> Callable[[Function], Function]:
    """A decorator that declares ``atom`` and ``red`` of one operation."""
    alone, summary = operation.replace("|.exch", ""), f"{what} at an address; {_CHOICE}"

    def declare(function: Function) -> Function:
        _atomic(
            f"red{_WEAK_ORDER}{space}{alone}{_WEAK_ORDER}{kinds}",
            "[a], b:T",
            kind=REDUCTION,
            section="9.7.13.6",
            name=f"red ({name})",
            summary=summary,
            **facts,
        )(function)
        return _atomic(
            f"atom{_ORDER}{space}{operation}{_ORDER}{kinds}",
            "d:T = [a], b:T",
            kind=ATOMIC,
            section="9.7.13.5",
            name=f"atom ({name})",
            summary=f"{summary}; d: what was there before",
            **facts,
        )(function)

    return declare


# ---- old values of lanes that share an address, computed without turns ---------------------------------


def _after(left: Any, runs: Runs, start: Any) -> tuple[Any, Any]:
    """The value in memory after each lane's predecessor in its run (at first ``start``), and all True."""
    old = np.empty_like(left)
    old[1:] = left[:-1]
    old[runs.starts] = start
    return old, np.ones(old.size, np.bool_)


def _associative(form: Form, start: Any, runs: Runs, b: Any, *, shared: bool) -> tuple[Any, Any]:
    """Old values of associative operations: additions, minima, maxima, exchanges and bitwise operations."""
    operation = _ATOMIC[_operation(form)]
    return _after(operation(start[runs.of], runs.scan(operation, b)), runs, start)


def _counting(form: Form, start: Any, runs: Runs, b: Any, *, shared: bool) -> tuple[Any, Any]:
    """Old values of ``inc`` and ``dec``, exact in runs whose lanes have the same bound."""
    period, first, rank = b.astype(np.int64) + 1, start[runs.of].astype(np.int64), runs.rank
    outside = first >= period
    if form.has("inc"):
        old = where(outside, rank - 1, first + rank) % period
    else:
        old = where(outside, b - (rank - 1), first - rank) % period
    return where(outside & (rank == 0), first, old).astype(b.dtype), runs.all_equal(b)[runs.of]


def _comparing(form: Form, start: Any, runs: Runs, b: Any, c: Any, *, shared: bool) -> tuple[Any, Any]:
    """Old values of ``cas``, exact in runs whose lanes compare with the same value.

    The first lane that writes another value is the last one that finds b.
    """
    places: Any = np.arange(runs.of.size)
    changing = np.minimum.reduceat(where(c != b, places, b.size), runs.starts)
    put = c[np.minimum(changing, b.size - 1)][runs.of]
    first = start[runs.of]
    return where((first == b) & (places > changing[runs.of]), put, first), runs.all_equal(b)[runs.of]


def _adding_floats(form: Form, start: Any, runs: Runs, b: Any, *, shared: bool) -> tuple[Any, Any]:
    """Old values of float additions in lane order; exact in long runs of finite numbers, none subnormal."""
    old, known = np.empty_like(b), np.zeros(b.size, np.bool_)
    for run in np.flatnonzero(runs.ends - runs.starts >= _LONG).tolist():
        places = slice(runs.starts[run], runs.ends[run] + 1)
        values = np.concatenate([start[run : run + 1], b[places]])
        totals = np.add.accumulate(values)
        seen = np.concatenate([values, totals])
        small = (np.abs(seen) < np.finfo(seen.dtype).tiny) & (seen != 0)
        if np.isfinite(totals[-1]) and not small.any():
            old[places], known[places] = totals[:-1], True
    return old, known


@_both("<.add>", "add", "add b to the value", T="u32 u64 s32", together=_associative)
@_both(
    "<.inc|.dec>", "inc, dec", "count up to b, or down from b, around the end", T="u32", together=_counting
)
@_both(
    "<.min|.max>",
    "min, max",
    "keep the smaller or the larger one",
    T="u32 u64 s32 s64",
    together=_associative,
)
@_both(
    "<.and|.or|.xor|.exch>",
    "bits",
    "combine b with the bits, or exchange them",
    T="b32 b64",
    together=_associative,
)
def atom(form: Form, old: Any, b: Any, *, shared: bool) -> Any:
    return _ATOMIC[_operation(form)](old, b)


@_both("<.add>", "add, f32", "add b to the value", T="f32", together=_adding_floats)
@_both(
    "<.add>",
    "add, f32 vector",
    "add each element",
    T="f32",
    minimum_sm=90,
    kinds="<.v2|.v4>.T",
    space=_GLOBAL,
    together=_adding_floats,
)
def atom_f32(form: Form, old: Any, b: Any, *, shared: bool) -> Any:
    total = np.add(old, b) if shared else floats.flush(np.add(floats.flush(old), floats.flush(b)))
    return where(np.isnan(total), FORMATS["f32"].nan.view(np.float32), total)


@_both("<.add>", "add, f64", "add b to the value", T="f64", minimum_sm=60, together=_adding_floats)
def atom_f64(form: Form, old: Any, b: Any, *, shared: bool) -> Any:
    total = np.add(old, b)
    if shared:
        return keep_payload(total, old, b)
    of_numbers = where(np.isnan(total), FORMATS["f64"].nan.view(np.float64), total)
    # the H200 returns a NaN unchanged, without making it quiet
    return where(np.isnan(b), b, where(np.isnan(old), old, of_numbers))


_of_halves = partial(_both, "<.add>", what="add b to the value, or to each half of it", kinds=".noftz.T")
_of_vectors = partial(_both, "<.add|.min|.max>", minimum_sm=90, space=_GLOBAL)
_KEEP = "or keep the smaller or the larger one"


@_of_halves("add, half", T="f16 f16x2", minimum_sm=70)
@_of_halves("add, bf16", T="bf16 bf16x2", minimum_sm=90)
@_of_vectors("half vector", f"add each element, {_KEEP}", kinds=".noftz<.v2|.v4|.v8>.T", T="f16 bf16")
@_of_vectors(
    "packed vector", f"add each half of each element, {_KEEP}", kinds=".noftz<.v2|.v4>.T", T="f16x2 bf16x2"
)
def atom_half(form: Form, old: Any, b: Any, *, shared: bool) -> Any:
    kind = form.T.removesuffix("x2")
    format = FORMATS[kind]

    def one(x: Any, y: Any) -> Any:
        if form.has("add"):
            return format.canonical(floats.half("add", x, y, format=format.name))
        return format.minimum(form, x, y) if form.has("min") else format.maximum(form, x, y)

    if kind == form.T:
        return one(words(old), words(b)).view(form.dtype)
    return pack(*(one(x, y) for x, y in zip(split(old), split(b), strict=True)))


@_atomic(
    f"atom{_ORDER}{_SPACE}<.cas>{_ORDER}.T",
    "d:T = [a], b:T, c:T",
    T="b16 b32 b64",
    kind=ATOMIC,
    section="9.7.13.5",
    name="atom (cas)",
    together=_comparing,
    summary=f"put c at an address if b is there; d: what was there before; {_CHOICE}",
)
def cas(form: Form, old: Any, b: Any, c: Any, *, shared: bool) -> Any:
    return where(old == b, c, old)
