"""PTX ISA 9.7.9.25.5, 9.7.9.26 and 9.7.13.16: copies through tensor maps, and changes of these.

What they do is in `simwarp.engine.asynchronous.tensor_copies` and `simwarp.engine.asynchronous.tensor_maps`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from simwarp.ptx.instructions.asynchronous import COUNTED, GROUPED, POLICY, STORED
from simwarp.ptx.instructions.atomic import atom, atom_f32, atom_half
from simwarp.ptx.instructions.memory import hint
from simwarp.ptx.instructions.table import nothing, row
from simwarp.ptx.kinds import TENSOR_COPY, TENSOR_MAP, TENSOR_REDUCTION
from simwarp.ptx.rows import Form

_ANY, _IMAGES = "<.1d|.2d|.3d|.4d|.5d>", "<.3d|.4d|.5d>"
_SHARED, _CLUSTER = "<.shared::cluster|.shared::cta><.global>", "<.shared::cluster><.global>"
_TILES = "{.tile|.im2col_no_offs}"
_SCOPES = "<.cta|.cluster|.gpu|.sys>"
REDUCTIONS = {
    "add": "u32 s32 u64 f32 f16 bf16",
    **dict.fromkeys(("min", "max"), "u32 s32 u64 s64 f16 bf16"),
    **dict.fromkeys(("inc", "dec"), "u32"),
    **dict.fromkeys(("and", "or", "xor"), "u32 s32 u64"),
}
"""Operation → the types of elements that it reduces; an H200 refuses the bits of s64."""


def _flat_images(words: Sequence[str], _: str, __: str) -> bool:
    """Whether an ``im2col_no_offs`` opcode names fewer than three dimensions, which PTX forbids."""
    return "im2col_no_offs" in words and not {"1d", "2d"}.isdisjoint(words)


_copy = partial(row, kind=TENSOR_COPY, section="9.7.9.25.5", minimum_sm=90)
_copy(
    f"cp.async.bulk.tensor{_ANY}{_SHARED}{{.tile}}{COUNTED}{POLICY}",
    "[d], [map:tensor], [bar], policy:b64*",
    name="cp.async.bulk.tensor (tile)",
    summary="copy a box of a tensor to shared memory; an mbarrier counts its bytes",
)(nothing)
_copy(
    f"cp.async.bulk.tensor{_ANY}{_CLUSTER}{{.tile}}{COUNTED}<.multicast::cluster>{POLICY}",
    "[d], [map:tensor], [bar], blocks:b16, policy:b64*",
    name="cp.async.bulk.tensor (tile, multicast)",
    summary="copy a box of a tensor to the same place in several blocks; their mbarriers count its bytes",
)(nothing)
_copy(
    f"cp.async.bulk.tensor{_IMAGES}{_SHARED}<.im2col>{COUNTED}{POLICY}",
    "[d], [map:tensor], [bar], offsets:offsets, policy:b64*",
    name="cp.async.bulk.tensor (im2col)",
    summary="copy pixels of images, as one tap of a filter meets them; an mbarrier counts their bytes",
)(nothing)
_copy(
    f"cp.async.bulk.tensor{_IMAGES}{_CLUSTER}<.im2col>{COUNTED}<.multicast::cluster>{POLICY}",
    "[d], [map:tensor], [bar], offsets:offsets, blocks:b16, policy:b64*",
    name="cp.async.bulk.tensor (im2col, multicast)",
    summary="copy pixels of images to the same place in several blocks; their mbarriers count their bytes",
)(nothing)
_copy(
    f"cp.async.bulk.tensor{_ANY}{STORED}{_TILES}{GROUPED}{POLICY}",
    "[map:tensor], [a], policy:b64*",
    name="cp.async.bulk.tensor (store)",
    lacks=_flat_images,
    summary="copy a tile of shared memory to a box of a tensor; the thread waits for its bulk group",
)(nothing)
hint(
    f"cp.async.bulk.prefetch.tensor{_ANY}.L2<.global>{{.tile}}{POLICY}",
    "[map:tensor], policy:b64*",
    name="cp.async.bulk.prefetch.tensor (tile)",
    section="9.7.9.25.5",
    minimum_sm=90,
)(nothing)
hint(
    f"cp.async.bulk.prefetch.tensor{_IMAGES}.L2<.global><.im2col>{POLICY}",
    "[map:tensor], offsets:offsets, policy:b64*",
    name="cp.async.bulk.prefetch.tensor (im2col)",
    section="9.7.9.25.5",
    minimum_sm=90,
)(nothing)
hint(
    "prefetch{.param|.const}.tensormap",
    "[map]",
    name="prefetch.tensormap",
    section="9.7.9.15",
    minimum_sm=90,
)(nothing)


def _declare(operations: str) -> Any:
    """A decorator that declares a row of reductions into a tensor in the PTX table."""
    return row(
        f"cp.reduce.async.bulk.tensor{_ANY}{STORED}<{operations}>{_TILES}{GROUPED}{POLICY}",
        "[map:tensor], [a], policy:b64*",
        name=f"cp.reduce.async.bulk.tensor ({operations.replace('.', '').replace('|', ', ')})",
        kind=TENSOR_REDUCTION,
        section="9.7.9.25.5",
        minimum_sm=90,
        lacks=_flat_images,
        summary="combine a tile of shared memory with a box of a tensor; the thread waits for its bulk group",
    )


@_declare(".add")
@_declare(".min|.max")
@_declare(".inc|.dec")
@_declare(".and|.or|.xor")
def tensor_reduction(form: Form, old: Any, new: Any, kind: str) -> Any:
    """The elements of a PTX type after the reduction; the tensor map names the type.

    Subnormal numbers are kept, as bulk reductions on an H200 keep them.
    """
    function = {"f32": atom_f32, "f16": atom_half, "bf16": atom_half}.get(kind, atom)
    return function(Form(form.opcode, form.modifiers, kind), old, new, shared=True)


# ---- changes of tensor maps ---------------------------------------------------------------------------

_replace = partial(
    row,
    kind=TENSOR_MAP,
    section="9.7.9.26",
    minimum_sm=90,
    architecture="sm_90a",
    summary="replace a field of a tensor map",
)
_SPACES = "{.global|.shared::cta}.b1024"
_replace(
    f"tensormap.replace.tile<.global_address>{_SPACES}.b64",
    "[a], value:b64",
    name="tensormap.replace.global_address",
)(nothing)
_replace(
    f"tensormap.replace.tile<.rank>{_SPACES}.b32",
    "[a], value:b32",
    name="tensormap.replace.rank",
)(nothing)
_replace(
    f"tensormap.replace.tile<.global_stride>{_SPACES}.b64",
    "[a], ordinal:number, value:b64",
    name="tensormap.replace.global_stride",
)(nothing)
_replace(
    f"tensormap.replace.tile<.box_dim|.global_dim|.element_stride>{_SPACES}.b32",
    "[a], ordinal:number, value:b32",
    name="tensormap.replace (dimensions)",
)(nothing)
_replace(
    f"tensormap.replace.tile<.elemtype|.interleave_layout|.swizzle_mode|.fill_mode>{_SPACES}.b32",
    "[a], value:number",
    name="tensormap.replace (modes)",
)(nothing)
_fence = partial(row, kind=TENSOR_MAP, minimum_sm=90)
_fence(
    f"fence.proxy.tensormap::generic<.acquire>{_SCOPES}",
    "[a], size:number",
    name="fence.proxy.tensormap::generic.acquire",
    section="9.7.13.4",
    summary="let later copies see a tensor map as it was released",
)(nothing)
_fence(
    f"fence.proxy.tensormap::generic<.release>{_SCOPES}",
    "",
    name="fence.proxy.tensormap::generic.release",
    section="9.7.13.4",
    summary="release the block's changes of tensor maps",
)(nothing)
_fence(
    f"tensormap.cp_fenceproxy<.global><.shared::cta>.tensormap::generic.release{_SCOPES}.sync.aligned",
    "[d], [a], size:number",
    name="tensormap.cp_fenceproxy",
    section="9.7.13.16",
    summary="copy a tensor map from shared to global memory, and release it; by a whole warp",
)(nothing)
