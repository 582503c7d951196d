"""PTX ISA 9.7.15: asynchronous matrix products of a warpgroup.

`simwarp.fragments` has the forms, the maps of registers and the descriptors, `simwarp.products` the bit-exact
products; `simwarp.engine.tensor_core.warpgroups` executes them, and its neighbour `async_products` says when.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from simwarp.fragments.forms import GROUPS, SECTIONS, Group
from simwarp.ptx.instructions.fragment_products import multiply_tiles
from simwarp.ptx.instructions.table import nothing, row
from simwarp.ptx.kinds import WARPGROUP_ORDER, WARPGROUP_PRODUCT
from simwarp.ptx.rows import Form


def _product(form: Form, cc: tuple[int, int], a: Any, b: Any, c: Any) -> Any:
    """The words of D (…, 64, n), from the words of A (…, 64, k), B (…, k, n) and C."""
    return multiply_tiles(form.opcode, cc, a, b, c)


# The name of a group behind "wgmma." → its immediate operands, and its summary.
_SIGNS = ", scale_a:number, scale_b:number"
_TRANSPOSES = f"{_SIGNS}, trans_a:number*, trans_b:number"
_GROUPS = {
    "f16": (_TRANSPOSES, "d = a b + d in half precision, one fused sum, or d = a b"),
    "bf16": (_TRANSPOSES, "d = a b + d of bfloat16, one fused sum, or d = a b"),
    "tf32": (_SIGNS, "d = a b + d of tf32, one fused sum, or d = a b"),
    "f8": (_SIGNS, "d = a b + d of 8-bit floats, one sum with 13 fraction bits, or d = a b"),
    "s8": ("", "d = a b + d of bytes, or d = a b"),
    "s8.satfinite": ("", "d = a b + d of bytes, clamped, as CUTLASS writes it"),
    "b1": ("", "d plus how many bits a's row and b's column share, or these alone"),
}


def _declare(group: Group) -> None:
    """Declare the row of the PTX table for a group of ``wgmma`` instructions."""
    immediates, summary = _GROUPS[group.name.removeprefix("wgmma.")]
    row(
        group.spelling,
        f"d:fragment, a:matrix, b:b64, scale_d:pred{immediates}",
        name=group.name,
        kind=WARPGROUP_PRODUCT,
        fidelity="exact" if ".s32" in group.spelling else "open",
        section=SECTIONS[group.instruction],
        minimum_sm=group.minimum_sm,
        architecture=group.target,
        summary=summary,
    )(_product)


for _group in GROUPS:
    if _group.instruction == "wgmma":
        _declare(_group)

_order = partial(row, kind=WARPGROUP_ORDER, minimum_sm=90, architecture="sm_90a")
_order(
    "wgmma.fence.sync.aligned",
    "",
    section="9.7.15.7.1",
    summary="order accesses to registers before the warpgroup's next products",
)(nothing)
_order(
    "wgmma.commit_group.sync.aligned",
    "",
    section="9.7.15.7.2",
    summary="make a group of the warp's products since its last group",
)(nothing)
_order(
    "wgmma.wait_group.sync.aligned",
    "pending:number",
    section="9.7.15.7.3",
    summary="wait until at most that many of the warp's latest groups are pending",
)(nothing)
