"""PTX ISA 9.7.9: data movement."""

from __future__ import annotations

from typing import Any

from simwarp import lanes
from simwarp.ptx.instructions.table import operand, row
from simwarp.ptx.kinds import WARP
from simwarp.ptx.rows import Form

row(
    "mov.T",
    "d:B = a:B",
    T="pred b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64",
    section="9.7.9.3",
    traits="move",
    bitwise=1,
    special=True,
    summary="a; also a special register, an address, and {a, b} to or from one word",
)(operand)


@row(
    "shfl.sync<.idx|.up|.down|.bfly>.b32",
    "d:b32 | p:pred = a:b32, b:u32, c:u32, m:u32",
    kind=WARP,
    moves=True,
    section="9.7.9.6",
    summary="another lane's a; p: whether the source lane is in range",
)
def shfl(form: Form, active: Any, a: Any, b: Any, c: Any, m: Any) -> Any:
    return lanes.shfl(a, b, c, form.modifiers[0], m, active)  # pyright: ignore[reportArgumentType]


@row(
    "prmt.b32{.f4e|.b4e|.rc8|.ecl|.ecr|.rc16}",
    "d:u32 = a:u32, b:u32, c:u32",
    section="9.7.9.7",
    traits="insert",
    bitwise=2,
    summary="four bytes picked out of the eight of {b, a}",
)
def prmt(form: Form, a: Any, b: Any, c: Any) -> Any:
    mode: Any = form.modifiers[0] if form.modifiers else "default"
    return lanes.prmt(a, b, c, mode)
