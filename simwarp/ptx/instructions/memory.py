"""PTX ISA 9.7.9: loads, stores and address conversions; `simwarp.engine.memory.accesses` executes them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from simwarp.ptx.instructions.table import nothing, operand, row, where
from simwarp.ptx.kinds import FENCE, LOAD, STORE
from simwarp.ptx.rows import Form
from simwarp.ptx.spaces import BLOCK_BITS, from_generic, is_in, space_of, to_generic

_MEMORY = "b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64"
SCOPE = "{.cta|.cluster|.gpu|.sys}"
SHARED = ".shared|.shared::cta|.shared::cluster"
SCOPES = {"cta", "cluster", "gpu", "sys"}
ORDERS = {"relaxed", "acquire", "release", "acq_rel"}
_KEPT = ("evict_normal", "evict_unchanged", "evict_first", "evict_last", "no_allocate")
_EVICTIONS = {f"L1::{kept}" for kept in _KEPT}
_NOT_MMIO = {"weak", "volatile", "acquire", "release", "cta", "cluster", "gpu", "nc", "v2", "v4"}
_CACHED = {"ca", "cg", "cs", "lu", "cv", "wb", "wt"}
_EVICTION = f"{{{'|'.join(f'.L1::{kept}' for kept in _KEPT)}}}"


def _access_clash(words: Sequence[str]) -> bool:
    """Whether modifiers of a load or store exclude each other (PTX ISA 9.7.9.8 and 9.7.9.11)."""
    has = set(words[1:])
    strong, scoped, cached = has & ORDERS, has & SCOPES, has & _CACHED
    space = space_of(words)
    hints = {word for word in has if word.startswith(("L1::", "L2::"))}
    ordered = strong or has & {"weak", "volatile"}
    if bool(scoped) > bool(strong) or (strong and not scoped and words[-1] not in strong | {"mmio"}):
        return True
    if "mmio" in has and (has & _NOT_MMIO or space not in ("", "global") or hints or cached):
        return True
    if "mmio" in has and "relaxed" not in has and words[-1] != "mmio":
        return True
    if cached and (strong or "volatile" in has or hints & _EVICTIONS):
        return True
    if "volatile" in has and hints:
        return True
    if space in ("const", "local", "param", "shared") and (hints or "nc" in has):
        return True
    if space in ("const", "local", "param") and ordered:
        return True
    if space == "param" and cached:
        return True
    return "nc" in has and (space != "global" or bool(ordered or has & {"lu", "cv"}))


def wide_vector(words: Sequence[str], kind: str, _: str) -> bool:
    """Whether a vector operand is wider than 128 bits."""
    return "v4" in words and kind.endswith("64")


def _narrow_generic(words: Sequence[str], kind: str, _: str) -> bool:
    """Whether an address is generic but has only 32 bits."""
    return kind == "u32" and "shared::cluster" not in words


row(
    f"ld{{.mmio}}{{.weak|.volatile|.relaxed|.acquire}}{SCOPE}"
    f"{{.param|.param::entry|.param::func|.global|{SHARED}|.local|.const}}"
    f"{{.nc}}{{.ca|.cg|.cs|.lu|.cv}}{_EVICTION}{{.L2::64B|.L2::128B|.L2::256B}}{{.v2|.v4}}.T",
    "d:T = [a]",
    T=_MEMORY,
    kind=LOAD,
    wider=True,
    clash=_access_clash,
    lacks=wide_vector,
    section="9.7.9.8",
    summary="the value at an address; without a state space, at a generic address",
)(operand)
row(
    "ldu{.global}{.v2|.v4}.T",
    "d:T = [a]",
    T=_MEMORY,
    kind=LOAD,
    traits="constant",
    wider=True,
    lacks=wide_vector,
    section="9.7.9.10",
    summary="the value at an address that is the same for all lanes",
)(operand)
row(
    f"st{{.mmio}}{{.weak|.volatile|.relaxed|.release}}{SCOPE}{{.param|.param::func|.global|{SHARED}|.local}}"
    f"{{.wb|.cg|.cs|.wt}}{_EVICTION}{{.v2|.v4}}.T",
    "[a], b:T",
    T=_MEMORY,
    kind=STORE,
    wider=True,
    clash=_access_clash,
    lacks=wide_vector,
    section="9.7.9.11",
    summary="write a value to an address; without a state space, to a generic one",
)(operand)


def _prefetch_clash(words: Sequence[str]) -> bool:
    """Whether an eviction priority is given for local memory (PTX ISA 9.7.9.15)."""
    return "local" in words and not {"L2::evict_last", "L2::evict_normal"}.isdisjoint(words)


hint = partial(row, kind=FENCE, summary="a hint; changes nothing")

hint("applypriority{.global}.L2::evict_normal", "[a], size:number", section="9.7.9.16")(nothing)
hint("prefetchu.L1", "[a]", section="9.7.9.15")(nothing)
hint(
    "prefetch{.global|.local}<.L1|.L2|.L2::evict_last|.L2::evict_normal>",
    "[a]",
    section="9.7.9.15",
    clash=_prefetch_clash,
)(nothing)


@row(
    f"isspacep<.const|.global|.local|{SHARED}|.param|.param::entry>",
    "p:pred = a:u64, own:rank",
    section="9.7.9.19",
    name="isspacep",
    summary="whether a generic address lies in a state space",
)
def isspacep(form: Form, a: Any, own: Any) -> Any:
    inside = is_in(a, space_of(form.modifiers))
    return inside & (_rank(a, own) == own) if form.has("shared::cta") else inside


def _cvta(name: str, summary: str) -> Any:
    """A decorator that declares a row of ``cvta`` or ``cvta.to`` in the PTX table."""
    return row(
        f"{name}<.const|.global|.local|{SHARED}|.param|.param::entry>.T",
        "d:T = a:T",
        T="u64",
        section="9.7.9.20",
        name=name,
        traits="generic",
        summary=summary,
    )


@_cvta("cvta", "the generic address of an address in a state space")
def cvta(form: Form, a: Any) -> Any:
    return to_generic(a, space_of(form.modifiers))


@_cvta("cvta.to", "the address in a state space of a generic address")
def cvta_to(form: Form, a: Any) -> Any:
    return from_generic(a, space_of(form.modifiers))


@row(
    "mapa{.shared::cluster}.T",
    "d:T = a:T, rank:u32",
    T="u32 u64",
    section="9.7.9.23",
    minimum_sm=90,
    traits="remote",
    lacks=_narrow_generic,
    summary="the address of the same shared variable in another block of the cluster",
)
def mapa(form: Form, a: Any, rank: Any) -> Any:
    block = np.left_shift(rank.astype(form.dtype) + form.dtype.type(1), form.dtype.type(BLOCK_BITS))
    within = np.bitwise_and(a, np.invert(form.dtype.type(_BLOCK)))
    return np.bitwise_or(within, block)


@row(
    "getctarank{.shared::cluster}.T",
    "d:u32 = a:T, own:rank",
    T="u32 u64",
    section="9.7.9.24",
    minimum_sm=90,
    lacks=_narrow_generic,
    summary="the rank of the block that a shared address belongs to",
)
def getctarank(form: Form, a: Any, own: Any) -> Any:
    return _rank(a, own)


def _rank(a: Any, own: Any) -> Any:
    """The block rank in a shared address made by ``mapa``; the block's own rank for another address."""
    bits = np.bitwise_and(a, a.dtype.type(_BLOCK))
    rank = np.right_shift(bits, a.dtype.type(BLOCK_BITS)).astype(np.uint32)
    return where(rank > 0, rank - np.uint32(1), own)


_BLOCK = 0xFF << BLOCK_BITS
"""The bits of a shared address that hold a block's rank + 1."""
