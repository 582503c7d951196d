"""PTX ISA 9.7.9: loads, stores, and addresses. How lanes reach memory is in `simwarp.engine.accesses`."""

from __future__ import annotations

from typing import Any

import numpy as np

from simwarp.ptx.instructions._table import row, where
from simwarp.ptx.rows import Form
from simwarp.ptx.spaces import BLOCK_BITS, from_generic, is_in, to_generic

_MEMORY = "b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64"
SCOPE = "{.cta|.cluster|.gpu|.sys}"
SHARED = ".shared|.shared::cta|.shared::cluster"
_EVICTION = "{.L1::evict_normal|.L1::evict_unchanged|.L1::evict_first|.L1::evict_last|.L1::no_allocate}"


@row(
    f"ld{{.mmio}}{{.weak|.volatile|.relaxed|.acquire}}{SCOPE}"
    f"{{.param|.param::entry|.param::func|.global|{SHARED}|.local|.const}}"
    f"{{.nc}}{{.ca|.cg|.cs|.lu|.cv}}{_EVICTION}{{.L2::64B|.L2::128B|.L2::256B}}{{.v2|.v4}}.T",
    "d:T = [a]",
    T=_MEMORY,
    kind="load",
    wider=True,
    section="9.7.9.8",
    summary="the value at an address; without a state space, at a generic address",
)
def ld(form: Form, a: Any) -> Any:
    return a


@row(
    "ldu{.global}{.v2|.v4}.T",
    "d:T = [a]",
    T=_MEMORY,
    kind="load",
    wider=True,
    section="9.7.9.10",
    summary="the value at an address that is the same for all lanes",
)
def ldu(form: Form, a: Any) -> Any:
    return a


@row(
    f"st{{.mmio}}{{.weak|.volatile|.relaxed|.release}}{SCOPE}{{.param|.param::func|.global|{SHARED}|.local}}"
    f"{{.wb|.cg|.cs|.wt}}{_EVICTION}{{.v2|.v4}}.T",
    "[a], b:T",
    T=_MEMORY,
    kind="store",
    wider=True,
    section="9.7.9.11",
    summary="write a value to an address; without a state space, to a generic one",
)
def st(form: Form, b: Any) -> Any:
    return b


@row(
    "prefetch{.global|.local}<.L1|.L2|.L2::evict_last|.L2::evict_normal>",
    "[a]",
    kind="fence",
    section="9.7.9.15",
    summary="a hint; changes nothing",
)
@row("prefetchu.L1", "[a]", kind="fence", section="9.7.9.15", summary="a hint; changes nothing")
@row(
    "applypriority{.global}.L2::evict_normal",
    "[a], size:number",
    kind="fence",
    section="9.7.9.16",
    summary="a hint; changes nothing",
)
def prefetch(form: Form) -> None:
    return None


@row(
    f"isspacep<.const|.global|.local|{SHARED}|.param|.param::entry>",
    "p:pred = a:u64, own:rank",
    section="9.7.9.19",
    name="isspacep",
    summary="whether a generic address lies in a state space",
)
def isspacep(form: Form, a: Any, own: Any) -> Any:
    inside = is_in(a, form.modifiers[0].partition("::")[0])
    return inside & (_rank(a, own) == own) if form.has("shared::cta") else inside


@row(
    f"cvta<.const|.global|.local|{SHARED}|.param|.param::entry>.T",
    "d:T = a:T",
    T="u64",
    section="9.7.9.20",
    name="cvta",
    summary="the generic address of an address in a state space",
)
def cvta(form: Form, a: Any) -> Any:
    return to_generic(a, form.modifiers[0].partition("::")[0])


@row(
    f"cvta.to<.const|.global|.local|{SHARED}|.param|.param::entry>.T",
    "d:T = a:T",
    T="u64",
    section="9.7.9.20",
    name="cvta.to",
    summary="the address in a state space of a generic address",
)
def cvta_to(form: Form, a: Any) -> Any:
    return from_generic(a, form.modifiers[0].partition("::")[0])


@row(
    "mapa{.shared::cluster}.T",
    "d:T = a:T, rank:u32",
    T="u32 u64",
    section="9.7.9.23",
    minimum_sm=90,
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
    summary="the rank of the block that a shared address belongs to",
)
def getctarank(form: Form, a: Any, own: Any) -> Any:
    return _rank(a, own)


def _rank(a: Any, own: Any) -> Any:
    """The rank that an address from ``mapa`` holds; else the block's own."""
    bits = np.bitwise_and(a, a.dtype.type(_BLOCK))
    rank = np.right_shift(bits, a.dtype.type(BLOCK_BITS)).astype(np.uint32)
    return where(rank > 0, rank - np.uint32(1), own)


_BLOCK = 0xFF << BLOCK_BITS
"""The bits of a shared address that name a block."""
