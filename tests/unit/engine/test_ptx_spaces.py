"""State spaces: generic addresses, local arrays, constants, parameters, and accesses outside them."""

import numpy as np
import pytest

import simwarp
from simwarp.faults import (
    LaunchError,
    MemoryFault,
    Misaligned,
    OutOfBounds,
    PtxSyntaxError,
    ReadOnlyWrite,
    UninitialisedRead,
)
from support import small_kernels as small

STORE, NOTHING = small.STORE, small.NOTHING
text, run, fault_of, line_of = small.text, small.run, small.fault_of, small.line_of


SPACES = ".shared .align 16 .b32 cells[64]; .global .align 16 .b32 words[64];"
PICK = """.local .align 16 .b32 mine[4]; .reg .b64 s, l, g; .reg .b32 t;
mov.u64 s, cells; mov.u64 l, mine; mov.u64 g, words; cvta.shared.u64 s, s; cvta.local.u64 l, l;
cvta.global.u64 g, g;
mul.wide.u32 %rd1, %r1, 4; add.u64 s, s, %rd1; add.u64 g, g, %rd1;
rem.u32 t, %lane, 3; setp.eq.u32 %p1, t, 0; setp.eq.u32 %p2, t, 1; selp.b64 %rd1, s, g, %p1;
selp.b64 %rd1, l, %rd1, %p2;
"""
"""``%rd1``: a generic address, in shared, local or global memory by the lane."""

# ----------------------------------------------------------------------------------- generic addresses


def test_one_generic_access_reaches_different_spaces():
    body = PICK + "add.u32 %r3, %i, 7; st.u32 [%rd1], %r3; ld.u32 %r2, [%rd1]; bar.sync 0;\n"
    assert run(body + STORE, block=64, before=SPACES) == [i + 7 for i in range(64)]
    own = "setp.eq.u32 %p3, t, 2; @%p1 ld.shared.u32 %r2, [cells+12]; @%p3 ld.global.u32 %r2, [words+8];\n"
    got = run(body + own + "@%p2 ld.local.u32 %r2, [mine];" + STORE, block=32, before=SPACES)
    assert got == [(3 + 7, i + 7, 2 + 7)[i % 3] for i in range(32)]


def test_one_generic_vector_access_reaches_different_spaces():
    before = SPACES.replace("[64]", "[256]")
    body = PICK.replace("%r1, 4", "%r1, 16") + "mov.u32 %r3, 5; mov.u32 %r4, 6; mov.u32 %r5, 8;\n"
    body += "st.v4.u32 [%rd1], {%r3, %r4, %i, %r5}; ld.v2.u32 {%r6, %r7}, [%rd1+8]; "
    body += "ld.v2.u32 {%r8, %r9}, [%rd1];\n"
    body += "mad.lo.u32 %r2, %r6, 10, %r7; mad.lo.u32 %r2, %r2, 10, %r8; mad.lo.u32 %r2, %r2, 10, %r9;\n"
    assert run(body + STORE, block=64, before=before) == [1000 * i + 856 for i in range(64)]


def test_one_generic_atomic_reaches_different_spaces():
    body = """.reg .b64 s, g; .reg .b32 t; mov.u64 s, cells; mov.u64 g, words; cvta.shared.u64 s, s;
cvta.global.u64 g, g;
setp.eq.u32 %p1, %r1, 0; mov.u32 %r3, 100; @%p1 st.shared.u32 [cells], %r3; bar.sync 0;
and.b32 t, %r1, 1; setp.ne.u32 %p2, t, 0; selp.b64 %rd1, s, g, %p2;
atom.add.u32 %r4, [%rd1], %r1; bar.sync 0; ld.shared.u32 %r5, [cells]; ld.volatile.global.u32 %r6, [words];
@%p2 mov.u32 %r2, %r5; @!%p2 mov.u32 %r2, %r6;
"""
    odd, even = 100 + sum(range(1, 40, 2)), sum(range(0, 40, 2))
    assert run(body + STORE, block=40, before=SPACES) == [odd if i % 2 else even for i in range(40)]


def test_cvta_and_cvta_to_are_inverse():
    body = """.local .b32 mine[8]; .reg .b64 a, b, c;
mov.u64 a, mine; add.u64 a, a, 12; cvta.local.u64 b, a; cvta.to.local.u64 c, b; sub.u64 c, c, a;
mov.b64 {%r3, %r4}, c;
mov.u64 a, cells; add.u64 a, a, 20; cvta.shared.u64 b, a; cvta.to.shared.u64 c, b; sub.u64 c, c, a;
mov.b64 {%r5, %r6}, c;
cvta.to.global.u64 c, %out; cvta.global.u64 c, c; sub.u64 c, c, %out; mov.b64 {%r7, %r8}, c;
or.b32 %r2, %r3, %r4; or.b32 %r2, %r2, %r5; or.b32 %r2, %r2, %r6; or.b32 %r2, %r2, %r7; or.b32 %r2, %r2, %r8;
"""
    assert run(body + STORE, before=SPACES) == [0] * 32


def test_isspacep_tells_the_space_of_an_address():
    body = """.local .b32 mine[8]; .reg .b64 s, l;
mov.u64 s, cells; cvta.shared.u64 s, s; mov.u64 l, mine; cvta.local.u64 l, l;
setp.eq.u32 %p4, %lane, 0; setp.eq.u32 %p5, %lane, 1; selp.b64 %rd1, s, %out, %p4;
selp.b64 %rd1, l, %rd1, %p5;
isspacep.shared %p1, %rd1; isspacep.local %p2, %rd1; isspacep.global %p3, %rd1; isspacep.const %p6, %rd1;
selp.u32 %r2, 1, 0, %p1; selp.u32 %r3, 2, 0, %p2; selp.u32 %r4, 4, 0, %p3; selp.u32 %r5, 8, 0, %p6;
or.b32 %r2, %r2, %r3; or.b32 %r2, %r2, %r4; or.b32 %r2, %r2, %r5;
"""
    assert run(body + STORE, block=4, before=SPACES) == [1, 2, 4, 4]


def test_isspacep_recognises_constant_memory():
    body = """mov.u64 %rd1, table; cvta.const.u64 %rd1, %rd1; isspacep.const %p1, %rd1;
isspacep.global %p2, %rd1;
selp.u32 %r2, 1, 0, %p1; @%p2 add.u32 %r2, %r2, 2;
"""
    assert run(body + STORE, block=2, before=".const .u32 table[2] = {7, 8};") == [1, 1]


def test_isspacep_recognises_shared_memory_of_another_block():
    body = """mov.u32 %r3, cells; mapa.shared::cluster.u32 %r4, %r3, 1; cvt.u64.u32 %rd1, %r4;
cvta.shared::cluster.u64 %rd1, %rd1; isspacep.shared::cta %p1, %rd1; isspacep.shared::cluster %p2, %rd1;
selp.u32 %r2, 1, 0, %p1; @%p2 add.u32 %r2, %r2, 2;
"""
    got = run(body + STORE, block=1, grid=2, before=SPACES, directives=".reqnctapercluster 2, 1, 1")
    assert got == [2, 3]


def test_shared_addresses_of_32_bits_wrap_around():
    body = """mov.u32 %r3, cells; sub.u32 %r4, %r3, 8; setp.eq.u32 %p1, %r1, 0;
@%p1 st.shared.u32 [cells+4], %r0;
bar.sync 0; ld.shared.u32 %r2, [%r4+12];
"""
    assert run(body + STORE, block=64, before=SPACES) == [64] * 64
    body = "mov.u32 %r3, cells; sub.u32 %r4, %r3, 8;\nld.shared.u32 %r2, [%r4+4]; ret;"
    fault = fault_of(OutOfBounds, body, before=SPACES)
    assert (fault.space, fault.offset, fault.place.line) == (
        "shared",
        0xFFFFFFFC,
        line_of("[%r4+4]", body, SPACES),
    )


# ----------------------------------------------------------------------------------------- local memory


def test_a_local_array_is_indexed_by_a_computed_value():
    body = """.local .align 4 .b32 mine[8]; .reg .b64 a; mov.u64 a, mine; mov.u32 %r3, 0;
FILL: mul.wide.u32 %rd1, %r3, 4; add.u64 %rd1, a, %rd1; mad.lo.u32 %r4, %r3, 100, %i;
st.local.u32 [%rd1], %r4;
add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 8; @%p1 bra FILL;
and.b32 %r3, %i, 7; mul.wide.u32 %rd1, %r3, 4; add.u64 %rd1, a, %rd1; ld.local.u32 %r2, [%rd1];
"""
    for chunk in (32, 32768):
        got = run(body + STORE, block=40, grid=3, device=simwarp.Device(chunk_lanes=chunk))
        assert got == [i % 8 * 100 + i for i in range(120)]


def test_each_thread_has_its_own_local_memory():
    body = ".local .b32 mine; .reg .b64 a; mov.u64 a, mine; cvta.local.u64 a, a; st.u32 [a], %i; "
    body += "bar.sync 0; ld.u32 %r2, [a];\n"
    assert run(body + STORE, block=96, grid=2) == list(range(192))


def test_a_local_array_is_read_and_written_by_bytes():
    body = """.local .align 8 .b8 mine[16]; mov.u32 %r3, 0x01020304; st.local.u32 [mine+4], %r3;
ld.local.u8 %r4, [mine+5]; ld.local.s8 %r5, [mine+7]; mov.u32 %r3, 0x0000FF00; st.local.u32 [mine+4], %r3;
ld.local.s8 %r6, [mine+5]; add.u32 %r2, %r4, %r5; mad.lo.u32 %r2, %r2, 100, %r6;
"""
    assert run(body + STORE, block=3) == [399] * 3


def test_bad_local_accesses_are_reported():
    before = {"block": 64}
    body = """.local .align 16 .b32 mine[4]; .reg .b64 a; mov.u64 a, mine; setp.eq.u32 %p1, %i, 45;
selp.u32 %r3, {bad}, 0, %p1; cvt.u64.u32 %rd1, %r3; add.u64 %rd1, %rd1, a;
{access}
ret;"""
    for access in ("st.local.u32 [%rd1], %i;", "ld.local.u32 %r2, [%rd1];"):
        fault = fault_of(OutOfBounds, body.format(bad=16, access=access), **before)
        whole = body.format(bad=16, access=access)
        assert (fault.place.warp, fault.place.lane, fault.place.line) == (1, 13, line_of(access, whole))
        assert (fault.space, fault.offset) == ("local", 16)
    access = "st.local.u32 [%rd1], %i;"
    fault = fault_of(Misaligned, body.format(bad=2, access=access), **before)
    assert (fault.space, fault.place.warp, fault.place.lane) == ("local", 1, 13)
    access = "st.local.u32 [mine], %i; ld.local.u32 %r2, [%rd1];" + STORE
    fault = fault_of(UninitialisedRead, body.format(bad=4, access=access), **before)
    assert (fault.space, fault.place.warp, fault.place.lane) == ("local", 1, 13)


# ------------------------------------------------------------------------------------------- constants

CONSTANTS = """.const .align 4 .u32 four[4] = {10, 20, 30, 40};
.const .align 8 .f64 half = 0d3FE0000000000000;
.global .align 4 .u32 cell = 5;
.global .align 8 .u64 pointer = generic(cell);
.const .align 8 .u64 behind[2] = {four + 8, generic(cell)};
.global .align 1 .u8 spelt[8] = {0xFF(cell), 0xFF00(cell), 0xFF0000(cell), 0xFF000000(cell),
0xFF00000000(cell),
0xFF0000000000(cell), 0xFF000000000000(cell), 0xFF00000000000000(cell)};
.global .align 2 .u16 short[2][2] = {{1, 2}, {3}};
.global .align 4 .f32 zero[3];
"""


def test_constants_have_their_initial_values():
    body = """and.b32 %r3, %lane, 3; mul.wide.u32 %rd1, %r3, 4; mov.u64 %rd2, four; add.u64 %rd1, %rd1, %rd2;
ld.const.u32 %r2, [%rd1]; ld.const.u32 %r4, [four+12]; add.u32 %r2, %r2, %r4;
"""
    assert run(body + STORE, before=CONSTANTS) == [(i % 4 + 1) * 10 + 40 for i in range(32)]
    body = "ld.const.f64 %rd1, [half]; mov.b64 {%r3, %r2}, %rd1;\n"
    assert run(body + STORE, before=CONSTANTS, block=2) == [0x3FE00000] * 2


def test_a_constant_is_loaded_through_a_generic_address():
    body = "mov.u64 %rd1, four; cvta.const.u64 %rd1, %rd1; ld.v2.u32 {%r3, %r4}, [%rd1+8]; "
    body += "mad.lo.u32 %r2, %r3, 100, %r4;\n"
    assert run(body + STORE, block=2, before=CONSTANTS) == [3040, 3040]


def test_initial_values_may_be_pointers_to_other_variables():
    body = """ld.global.u64 %rd1, [pointer]; ld.u32 %r3, [%rd1]; ld.const.u64 %rd2, [behind];
ld.const.u32 %r4, [%rd2];
ld.const.u64 %rd3, [behind+8]; sub.u64 %rd3, %rd3, %rd1; mov.b64 {%r5, %r6}, %rd3;
mad.lo.u32 %r2, %r4, 10, %r3;
add.u32 %r2, %r2, %r5;
"""
    assert run(body + STORE, block=2, before=CONSTANTS) == [305, 305]


def test_initial_bytes_may_spell_an_address():
    body = """mov.u64 %rd1, 0; mov.u32 %r3, 7; mov.u64 %rd2, spelt; add.u64 %rd2, %rd2, 7;
NEXT: ld.global.u8 %rd3, [%rd2]; shl.b64 %rd1, %rd1, 8; or.b64 %rd1, %rd1, %rd3; add.u64 %rd2, %rd2, -1;
sub.u32 %r3, %r3, 1; setp.ne.u32 %p1, %r3, -1; @%p1 bra NEXT; ld.global.u32 %r2, [%rd1];
"""
    assert run(body + STORE, block=2, before=CONSTANTS) == [5, 5]


def test_the_host_reads_and_writes_module_variables():
    device = simwarp.Device()
    module = device.load(
        text("ld.global.u32 %r3, [cell]; add.u32 %r3, %r3, 1; st.global.u32 [cell], %r3; ret;", CONSTANTS)
    )
    out = device.upload(np.zeros(1, np.uint32))

    def values(name, dtype, *shape):
        return module.variable(name).view(shape, dtype).download().tolist()

    assert values("four", np.uint32, 4) == [10, 20, 30, 40]
    assert values("short", np.uint16, 2, 2) == [[1, 2], [3, 0]]
    assert values("zero", np.float32, 3) == [0, 0, 0]
    assert values("pointer", np.uint64, 1) == [module.variable("cell").pointer]
    module.variable("cell").view((1,), np.uint32).upload(np.array([41], np.uint32))
    module.kernel("k")((1, 1, 1), (1, 1, 1), out, out)
    assert values("cell", np.uint32, 1) == [42]
    with pytest.raises(LaunchError, match="nothing"):
        module.variable("nothing")


def test_each_loaded_module_has_its_own_variables():
    device = simwarp.Device()
    modules = [device.load(text("ret;", CONSTANTS)) for _ in range(2)]
    cells = [m.variable("cell").view((1,), np.uint32) for m in modules]
    cells[0].upload(np.array([9], np.uint32))
    assert [c.download().tolist() for c in cells] == [[9], [5]]


def test_each_variable_has_its_own_bounds():
    body = "ld.global.u32 %r3, [cell];\nld.global.u32 %r2, [cell+4]; ret;"
    fault = fault_of(OutOfBounds, body, before=CONSTANTS)
    assert (fault.allocation, fault.offset) == ("variable cell", 4)
    assert fault.place.line == line_of("[cell+4]", body, CONSTANTS)


# ------------------------------------------------------------------------------------------ parameters

PARAMETERS = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out, .param .align 8 .b8 table[32], .param .u16 small, .param .f64 last) {{
.reg .pred %p<4>; .reg .b16 %rs<4>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f64 %fd<2>; .reg .b32 %t;
mov.u32 %t, %tid.x; ld.param.u64 %rd1, [out]; mul.wide.u32 %rd2, %t, 8; add.u64 %rd1, %rd1, %rd2;
{body}
}}"""


def parameters(body, block=8):
    device = simwarp.Device()
    out = device.upload(np.zeros(block, np.uint64))
    table = np.arange(100, 108, dtype=np.uint32)
    kernel = device.load(PARAMETERS.format(body=body)).kernel("k")
    kernel((1, 1, 1), (block, 1, 1), out, table, np.uint16(65535), np.float64(2.5))
    return out.download().tolist()


def test_parameters_are_read_at_a_computed_address():
    body = """mov.u64 %rd3, table; mul.wide.u32 %rd4, %t, 4; add.u64 %rd3, %rd3, %rd4;
ld.param.u32 %r1, [%rd3]; cvt.u64.u32 %rd5, %r1; st.global.u64 [%rd1], %rd5; ret;"""
    assert parameters(body) == list(range(100, 108))


def test_parameters_are_read_in_parts():
    body = """ld.param.v4.u32 {%r1, %r2, %r3, %r4}, [table+16]; ld.param.s16 %r5, [small];
ld.param.u8 %r6, [table+8];
ld.param.b64 %rd6, [last]; add.u32 %r1, %r1, %r4; add.u32 %r1, %r1, %r5; mad.lo.u32 %r1, %r1, 1000, %r6;
shr.u64 %rd6, %rd6, 32; cvt.u64.u32 %rd5, %r1; shl.b64 %rd5, %rd5, 32; or.b64 %rd5, %rd5, %rd6;
st.global.u64 [%rd1], %rd5; ret;"""
    assert parameters(body, 2) == [((104 + 107 - 1) * 1000 + 102) << 32 | 0x40040000] * 2


def test_misaligned_parameter_reads_are_reported():
    body = "mov.u64 %rd3, table; ld.param.u32 %r1, [%rd3+2]; ret;"
    with pytest.raises(Misaligned):
        parameters(body)
    with pytest.raises(PtxSyntaxError, match="line"):
        parameters("ld.param.u64 %rd3, [table+32]; ret;")


# ------------------------------------------------------------------------------------- shared memory

SHARED = """.shared .align 8 .b8 first[6]; .shared .align 16 .b32 second[4];
.extern .shared .align 8 .b8 dynamic[];
.extern .shared .align 16 .b8 again[];
"""


def test_dynamic_shared_arrays_start_after_the_static_ones():
    """All dynamic arrays start at one address, after the disjoint static ones."""
    body = """setp.eq.u32 %p1, %r1, 0; mov.u32 %r3, dynamic; shl.b32 %r4, %r1, 2; add.u32 %r3, %r3, %r4;
mov.u32 %r5, 11; mov.u16 %rs1, 3; @%p1 st.shared.u16 [first+4], %rs1; @%p1 st.shared.u32 [second+12], %r5;
st.shared.u32 [%r3], %i; bar.sync 0; mov.u32 %r6, again; xor.b32 %r4, %r4, 4; add.u32 %r6, %r6, %r4;
ld.shared.u32 %r2, [%r6]; ld.shared.u16 %rs2, [first+4]; ld.shared.u32 %r7, [second+12];
cvt.u32.u16 %r8, %rs2;
mad.lo.u32 %r2, %r2, 100, %r7; add.u32 %r2, %r2, %r8;
"""
    for chunk in (32, 32768):
        got = run(
            body + STORE,
            block=40,
            grid=2,
            before=SHARED,
            shared=160,
            device=simwarp.Device(chunk_lanes=chunk),
        )
        assert got == [(i // 40 * 40 + (i % 40 ^ 1)) * 100 + 14 for i in range(80)]


@pytest.mark.parametrize("alignment", [4, 16, 64, 128, 1024])
def test_dynamic_shared_arrays_have_the_alignment_that_they_declare(alignment):
    before = f".shared .b8 first[6];\n.extern .shared .align {alignment} .b8 dynamic[];\n"
    body = "mov.u32 %r3, first; st.shared.u8 [%r3], 0; mov.u32 %r2, dynamic; st.shared.u32 [%r2], 0;\n"
    got = run(body + STORE, block=1, grid=2, before=before, shared=4)
    assert got == [max(alignment, 16)] * 2


def test_bad_shared_accesses_are_reported():
    body = "mov.u32 %r3, dynamic; shl.b32 %r4, %r1, 2; add.u32 %r3, %r3, %r4;\nst.shared.u32 [%r3], %i; ret;"
    fault = fault_of(OutOfBounds, body, block=64, grid=2, before=SHARED, shared=160)
    assert (fault.place.block, fault.place.warp, fault.place.lane) == ((0, 0, 0), 1, 8)
    assert (fault.space, fault.place.line) == ("shared", line_of("st.shared", body, SHARED))
    body = "mov.u32 %r3, second; setp.eq.u32 %p1, %r1, 33; "
    body += "@%p1 add.u32 %r3, %r3, 2;\nld.shared.u32 %r2, [%r3]; ret;"
    store = "st.volatile.shared.u32 [second], %i;"
    fault = fault_of(Misaligned, store + body, block=64, before=SHARED)
    assert (fault.space, fault.place.warp, fault.place.lane) == ("shared", 1, 1)
    body = "mov.u32 %r3, second; ld.shared.u32 %r2, [%r3];"
    fault = fault_of(UninitialisedRead, body + STORE, block=64, before=SHARED)
    assert (fault.space, fault.place.warp, fault.place.lane) == ("shared", 0, 0)


@pytest.mark.parametrize("space", ["shared", "global", "local", "param"])
def test_a_generic_address_outside_its_space_is_a_fault(space):
    """One lane of the second warp leaves the space, the others access global memory."""
    body = """.local .align 4 .b32 mine[4]; .reg .b64 w; mov.u64 w, {name}; cvta.{space}.u64 w, w;
add.u64 w, w, 65536;
setp.eq.u32 %p1, %i, 50; selp.b64 %rd1, w, %at, %p1;
{access}
ret;"""
    name = {"shared": "cells", "global": "words", "local": "mine", "param": "in"}[space]
    for access in ("ld.u32 %r2, [%rd1];", "st.u32 [%rd1], %i;", "atom.add.u32 %r2, [%rd1], 1;"):
        whole = body.format(name=name, space=space, access=access)
        fault = fault_of(OutOfBounds, whole, block=64, before=SPACES)
        assert (fault.place.warp, fault.place.lane) == (1, 18)
        assert (fault.space, fault.place.line) == (space, line_of(access, whole, SPACES))


def test_vectors_are_loaded_and_stored_in_every_space():
    body = """.local .align 16 .b32 mine[4]; mov.u32 %r3, 5; mov.u32 %r4, 6; mov.u32 %r5, 7;
setp.eq.u32 %p1, %r1, 0;
st.local.v4.u32 [mine], {%r3, %i, %r4, %r5}; ld.local.v2.u32 {%r6, %r7}, [mine];
@%p1 st.shared.v4.b32 [cells], {%r6, %r7, %r3, %r3}; bar.sync 0; ld.shared.v2.b32 {%r8, %r9}, [cells];
@%p1 st.global.v2.u32 [words+8], {%r8, %r5}; bar.sync 0; ld.global.v4.u32 {_, _, %r10, %r11}, [words];
ld.shared.v2.u64 {%rd1, %rd2}, [cells]; mov.b64 {%r12, %r13}, %rd2;
mad.lo.u32 %r2, %r10, 10, %r11; mad.lo.u32 %r2, %r2, 10, %r12; mad.lo.u32 %r2, %r2, 100, %r7;
"""
    got = run(body + STORE, block=40, before=SPACES)
    assert got == [57500 + i for i in range(40)]
    for access in (
        "ld.local.v2.u32 {%r6, %r7}, [mine+4];",
        "st.shared.v4.u32 [cells+8], {%r0, %r0, %r0, %r0};",
    ):
        fault = fault_of(Misaligned, ".local .align 16 .b32 mine[4];" + access, before=SPACES)
        assert fault.place.lane == 0
    body = ".local .align 16 .b32 mine[4]; .reg .b64 a; mov.u64 a, mine; add.u64 a, a, 8; "
    body += "st.local.v4.u32 [a], {%r0, %r0, %r0, %r0};"
    assert fault_of((OutOfBounds, Misaligned), body).space == "local"


def test_a_write_to_a_parameter_is_a_fault():
    body = "mov.u64 %rd1, in; cvta.param.u64 %rd1, %rd1; st.u32 [%rd1], %i;"
    assert fault_of(ReadOnlyWrite, body).space == "param"


def test_an_access_through_a_null_pointer_is_a_fault():
    fault = fault_of(
        MemoryFault, "setp.eq.u32 %p1, %lane, 30; selp.b64 %rd1, 0, %at, %p1; st.u32 [%rd1], %i;"
    )
    assert (fault.place.lane, fault.address, fault.space) == (30, 0, "global")


# ------------------------------------------------------------------------------- widths of registers


@pytest.mark.parametrize(
    "instruction",
    [
        "add.u32 %r2, %rd1, 1;",
        "add.u64 %rd1, %r2, 1;",
        "add.u32 %rd1, %r2, 1;",
        "add.u16 %rs1, %r2, 1;",
        "add.f32 %f1, %f1, %rd1;",
        "setp.eq.u32 %r2, %r3, 1;",
        "selp.u32 %r2, 1, 0, %r3;",
        "@%r2 ret;",
        "add.u32 %r2, %p1, 1;",
        "ld.global.u64 %r2, [%out];",
        "ld.global.u32 %rs1, [%out];",
        "st.global.u64 [%out], %r2;",
        "cvt.u64.u32 %r2, %r3;",
        "mov.u64 %r2, %tid.x;",
        "mul.wide.u32 %r2, %r3, %r4;",
        "atom.global.add.u64 %rd1, [%out], %r2;",
        "shl.b64 %rd1, %rd1, %rd2;",
        "vote.sync.any.pred %r2, %p1, -1;",
    ],
)
def test_registers_of_the_wrong_width_are_refused(instruction):
    body = "mov.u32 %r3, 0;\n" + instruction
    with pytest.raises(PtxSyntaxError, match=f"line {line_of(instruction, body)}"):
        simwarp.Device().load(text(body))


def test_loads_extend_into_wider_registers_and_stores_truncate():
    """A load extends by zeros or by sign; a store takes the low bits."""
    body = """mov.u32 %r3, 0x1234FF80; st.global.u8 [%at], %r3; st.global.u16 [%at+2], %r3;
ld.global.s8 %r4, [%at];
ld.global.u8 %rd1, [%at]; ld.global.s16 %rd2, [%at+2]; mov.b64 {%r5, %r6}, %rd2; mov.b64 {%r7, %r8}, %rd1;
add.u32 %r2, %r4, %r5; add.u32 %r2, %r2, %r6; add.u32 %r2, %r2, %r7; add.u32 %r2, %r2, %r8;
"""
    assert run(body + STORE, block=2) == [(-128 - 128 - 1 + 128) % 2**32] * 2
