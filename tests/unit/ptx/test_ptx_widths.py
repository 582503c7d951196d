"""Register widths (PTX ISA 9.4.1): the linker accepts and refuses the same as ptxas 13.0."""

import pytest

import simwarp
from simwarp.faults import PtxSyntaxError
from support.offenders import every_case

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 o) {
.reg .pred %p; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %d<9>; .shared .align 16 .b8 s[64];
ld.param.u64 %d1, [o];
"""
TAKEN = [
    "ld.global.u32 %d2, [%d1];",
    "ldu.global.u32 %d2, [%d1];",
    "st.global.u32 [%d1], %d2;",
    "cvt.u32.u16 %d2, %r1;",
    "cvt.u16.u32 %r2, %r1;",
    "cvt.f32.f16 %d2, %r1;",
    "ld.global.b8 %h1, [%d1];",
    "cvt.u64.u32 %d2, %tid.x;",
    "mov.u16 %h1, %tid.x;",
    "atom.global.cas.b16 %h1, [%d1], %h1, %h2;",
    "cvt.s8.s32 %h1, %r1;",
    "ld.param.u32 %d2, [o];",
]
REFUSED = [
    "mov.u32 %d2, %d3;",
    "mov.b16 %r1, %r2;",
    "mov.b32 %r1, %h1;",
    "mov.b32 %d2, %r1;",
    "mov.b32 %d2, 5;",
    "add.u32 %d2, %d3, 1;",
    "atom.global.add.u32 %d2, [%d1], 1;",
    "atom.global.add.u32 %r2, [%d1], %d3;",
    "red.global.add.u32 [%d1], %d3;",
    "set.eq.u32.u32 %d2, %r1, %r2;",
    "set.eq.f16.f16 %r1, %h1, %h2;",
    "set.eq.u32.u16 %r1, %r2, %h2;",
    "selp.b32 %d2, %r1, %r2, %p;",
    "popc.b32 %d2, %r1;",
    "shl.b32 %r1, %r2, %d3;",
    "ld.global.v2.u16 {%r1, %d2}, [%d1];",
    "st.global.v2.u8 [%d1], {%r1, %d2};",
    "add.u32 %r1, %tid.x, 1;",
    "mov.u64 %d2, %tid.x;",
    "set.eq.u32.f32 %d2, %r1, %r2;",
    "shfl.sync.idx.b32 %d2, %r1, 0, 31, -1;",
    "bfe.u32 %r1, %r2, %h1, 4;",
    "mov.b64 %d2, {%r1, %h1};",
    "prmt.b32 %r1, %r2, %d3, 0;",
    "mov.u32 %h1, %r1;",
    "atom.global.cas.b16 %r1, [%d1], %h1, %h2;",
    "nanosleep.u32 %d2;",
    "bar.sync %d2;",
    "bar.warp.sync %d2;",
    "slct.u32.s32 %d2, %r1, %r2, %r1;",
    "vote.sync.ballot.b32 %d2, %p, -1;",
    "add.f16 %r1,%h1,%h2;",
    "setp.eq.u16 %p, %r1, %h1;",
    "mul.wide.u16 %d2, %h1, %h2;",
    "and.b32 %d2, %d3, %r1;",
]


@pytest.mark.parametrize("instruction", TAKEN)
def test_register_widths_that_ptxas_accepts_are_linked(instruction):
    simwarp.Device().load(f"{HEAD}{instruction} ret; }}")


@every_case("instruction", REFUSED)
def test_register_widths_that_ptxas_refuses_are_refused(instruction):
    with pytest.raises(PtxSyntaxError, match="line 7"):
        simwarp.Device().load(f"{HEAD}{instruction} ret; }}")
