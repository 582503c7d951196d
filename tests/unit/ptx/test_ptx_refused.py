"""Loader and launch refuse what ptxas 13.0 and chips refuse: sizes, literals, registers and state spaces."""

import numpy as np
import pytest

import simwarp
from simwarp.engine.launch import Chunks
from simwarp.faults import LaunchError, PtxSyntaxError, UnsupportedInstruction
from support.offenders import every_case

HEAD = """.version {version}
.target {target}
.address_size 64
.global .u32 g; .const .u32 c; .shared .u32 s;
{before}
.visible .entry k({parameters}) {{
.reg .pred %p<9>; .reg .b16 %h<9>; .reg .u16 %hu<9>; .reg .f16 %hf<9>; .reg .b32 %r<9>; .reg .u32 %u<9>;
.reg .s32 %i<9>; .reg .f32 %f<9>; .reg .b64 %d<9>; .reg .s64 %di<9>; .reg .f64 %df<9>; .local .u32 l;
"""


def load(body="", before="", parameters=".param .u64 p", version="9.0", target="sm_90", **device):
    head = HEAD.format(version=version, target=target, before=before, parameters=parameters)
    return simwarp.Device(**device).load(f"{head}{body} ret; }}").kernel("k")


def refused(*args, **options):
    with pytest.raises(PtxSyntaxError) as caught:
        load(*args, **options)
    return str(caught.value)


# ---- sizes -----------------------------------------------------------------------------------------------


def test_too_much_static_shared_memory_is_refused():
    load(".shared .b8 a[49152];")
    load(".shared .b8 a[40000];", before=".shared .b8 b[40000];")  # which the kernel does not name
    assert "line 6: the static shared memory of kernel k has 49153 bytes, 49152 at most" in refused(
        ".shared .b8 a[49153];"
    )
    use = "mov.u64 %d1, b; st.shared.u8 [a], 1;"
    assert "80000 bytes, 49152 at most" in refused(
        use + ".shared .b8 a[40000];", before=".shared .b8 b[40000];"
    )
    assert "1099511627776 bytes" in refused(f".shared .b8 a[{1 << 40}];")
    function = ".func f() { .shared .b8 a[49152]; ret; }"
    load(before=function)
    refused("call f; st.shared.u32 [s], 1;", before=function)


def test_too_much_constant_memory_is_refused():
    load(before=".const .b8 a[65532];")
    assert "has 65537 bytes, 65536 at most" in refused(before=".const .b8 a[65533];")
    assert "has 2147483652 bytes" in refused(before=f".const .b8 a[{1 << 31}];")


@pytest.mark.parametrize(
    ("version", "target", "most"),
    [("8.0", "sm_90", 4352), ("8.1", "sm_90", 32764), ("9.0", "sm_75", 32764), ("9.0", "sm_61", 4352)],
)
def test_too_long_parameter_lists_are_refused(version, target, most):
    load(parameters=f".param .b8 a[{most}]", version=version, target=target)
    message = refused(parameters=f".param .b8 a[{most + 1}]", version=version, target=target)
    assert f"line 6: the parameter list of kernel k has {most + 1} bytes, {most} at most" in message


DYNAMIC = """.version 8.0 .target sm_{target} .address_size 64 .extern .shared .b8 more[];
.visible .entry k() {{ .shared .b8 own[{own}]; st.shared.u8 [own], 1; st.shared.u8 [more], 1; ret; }}"""


@pytest.mark.parametrize(
    ("cc", "most"),
    [((7, 0), 96), ((7, 5), 64), ((8, 0), 163), ((8, 6), 99), ((8, 7), 163), ((8, 9), 99), ((9, 0), 227)],
)
@pytest.mark.parametrize("own", [16, 1024])
def test_dynamic_shared_memory_is_limited_by_the_chip(cc, most, own):
    kernel = simwarp.Device(cc).load(DYNAMIC.format(target=70, own=own)).kernel("k")
    kernel((1, 1, 1), (1, 1, 1), shared=most * 1024 - own)
    with pytest.raises(LaunchError, match=f"it takes 0 to {most * 1024 - own}"):
        kernel((1, 1, 1), (1, 1, 1), shared=most * 1024 - own + 1)


# ---- numbers, registers, state spaces --------------------------------------------------------------------

TAKEN = """
bar.sync 15;
bar.sync 0, 64;
bar.sync %r1;
bar.arrive 1, 32;
add.u32 %r1, %i1, %u1;
add.f32 %f1, %r1, %f2;
mov.b32 %r1, %f1;
mov.b32 %f1, %u1;
and.b32 %f1, %f2, %u1;
selp.b32 %f1, %r1, %u2, %p1;
ld.global.b32 %f1, [%d1];
add.f16 %h1, %hf1, %h2;
shfl.sync.bfly.b32 %f1, %f2, 1, 31, -1;
prmt.b32 %f1, %f2, %u1, 0;
atom.global.exch.b32 %f1, [%d1], %f2;
popc.b32 %r1, %f1;
cvt.rn.f32.u32 %f1, %i1;
setp.lt.f64 %p1, %d1, %df1;
vote.sync.ballot.b32 %f1, %p1, -1;
ld.u32 %r1, [g];
ld.u32 %r1, [s];
ld.u32 %r1, [l];
ld.shared.u32 %r1, [s];
ld.local.u32 %r1, [l];
ld.const.u32 %r1, [c];
ld.param.u64 %d1, [p];
st.global.u32 [g], 1;
mov.u64 %d1, s;
cvta.shared.u64 %d1, s;
cvta.const.u64 %d1, c;
cvta.param.u64 %d1, p;
cvta.to.shared.u64 %d1, %d2;
{ .param .b32 a; st.param.b32 [a], %r1; call f, (a); }
"""
REFUSED = """
bar.sync -1;
bar.sync 16;
barrier.sync 4294967295;
bar.sync 0, 33;
bar.red.popc.u32 %r1, 16, %p1;
add.u32 %f1, %r1, 1;
add.u32 %r1, %f1, 1;
add.s64 %di1, %df1, 1;
mul.lo.u32 %r1, %r2, %f1;
add.f32 %u1, %f1, %f2;
add.f32 %f1, %i1, %f2;
add.f64 %df1, %di1, %df1;
add.f16 %hf1, %hu1, %hf2;
mov.u32 %f1, %r1;
mov.f32 %f1, %u1;
ld.global.u32 %f1, [%d1];
ld.global.f32 %u1, [%d1];
st.global.u32 [%d1], %f1;
atom.global.add.u32 %r1, [%d1], %f1;
red.global.add.f32 [%d1], %u1;
setp.lt.u32 %p1, %f1, %r1;
cvt.rn.f32.u32 %f1, %f2;
cvt.rzi.u32.f32 %f1, %f2;
selp.u32 %r1, %f1, %r2, %p1;
ld.shared.u32 %r1, [g];
ld.global.u32 %r1, [s+4];
ld.const.u32 %r1, [g];
ld.u32 %r1, [c];
ld.shared.u64 %d1, [p];
ld.u64 %d1, [p];
ld.local.u32 %r1, [s];
st.shared.u32 [g], 1;
ld.param.u32 %r1, [l];
atom.shared.add.u32 %r1, [g], 1;
cvta.shared.u64 %d1, g;
cvta.global.u64 %d1, p;
{ .param .b32 a; ld.local.u32 %r1, [a]; }
"""
FUNCTION = ".func f(.param .b32 x) { .reg .b32 %r; ld.param.b32 %r, [x]; ret; }"


@every_case("instruction", TAKEN.strip().splitlines())
def test_instructions_that_ptxas_accepts_are_loaded(instruction):
    load("\n" + instruction, before=FUNCTION)


@every_case("instruction", REFUSED.strip().splitlines())
def test_instructions_that_ptxas_refuses_are_refused(instruction):
    assert refused("\n" + instruction, before=FUNCTION).startswith("line 10: ")


def test_function_parameters_are_accessed_in_param_space_only():
    function = ".func f(.param .b32 x) {{ .reg .b32 %r; ld{}.b32 %r, [x]; ret; }}"
    load("call f, (1);".replace("(1)", "(%r1)"), before=function.format(".param"))
    for space in ("", ".local", ".shared"):
        assert "x lies in .param" in refused("call f, (%r1);", before=function.format(space))


@pytest.mark.parametrize("space", [".param", ".reg"])
def test_ptr_parameters_refuse_param_and_reg_spaces(space):
    load(parameters=".param .u64 .ptr .shared .align 4 p")
    refused(parameters=f".param .u64 .ptr {space} p")


# ---- more than a machine has -----------------------------------------------------------------------------


def no_memory(*args, **options):
    raise MemoryError


def test_a_variable_larger_than_host_memory_is_refused(monkeypatch):
    monkeypatch.setattr("simwarp.memory.Allocation", no_memory)
    with pytest.raises(LaunchError, match="variable g has 4 bytes, more than this machine has left"):
        load()


def test_too_much_local_memory_is_refused():
    kernel = load(f".local .b8 big[{1 << 31}];", parameters="")
    with pytest.raises(LaunchError, match="bytes of local memory in each thread, 524288 at most"):
        kernel((1, 1, 1), (1, 1, 1))


def test_more_blocks_in_flight_than_host_memory_holds_are_refused(monkeypatch):
    kernel = load(parameters="")
    monkeypatch.setattr("simwarp.engine.launch.Chunk", no_memory)
    with pytest.raises(LaunchError, match="all blocks are in flight at once"):
        kernel((7, 1, 1), (1024, 1, 1), cooperative=True)


def test_a_huge_grid_takes_no_memory_before_it_runs():
    """A kernel on the largest grid traps in its first blocks."""
    kernel = load("trap;", parameters="")
    with pytest.raises(simwarp.faults.Trap):
        kernel((2**31 - 1, 65535, 65535), (32, 1, 1))
    chunks = Chunks((2**31 - 1, 1, 1), (1, 1, 1), 1024)
    assert (len(chunks), chunks[2**21 - 1].tolist()[-1]) == (2**21, 2**31 - 2)


def test_a_chunk_holds_whole_clusters():
    rng = np.random.default_rng(2)
    for _ in range(30):
        cluster = tuple(rng.integers(1, 4, 3).tolist())
        grid = tuple(int(n) * c for n, c in zip(rng.integers(1, 4, 3), cluster, strict=True))
        size = int(np.prod(cluster))
        chunks = Chunks(grid, cluster, size * int(rng.integers(1, 4)))
        blocks = np.concatenate(list(chunks))
        assert sorted(blocks.tolist()) == list(range(int(np.prod(grid))))
        z, y, x = np.unravel_index(blocks, grid[::-1])
        for at, c in zip((x, y, z), cluster, strict=True):
            assert (at.reshape(-1, size) // c == at[::size, None] // c).all()
        rank = x % cluster[0] + cluster[0] * (y % cluster[1] + cluster[1] * (z % cluster[2]))
        assert (rank.reshape(-1, size) == np.arange(size)).all()


# ---- messages --------------------------------------------------------------------------------------------


def test_errors_quote_a_very_long_line_in_part():
    padding = "add.u32 %r1, %r2, %r3; " * 700
    for wrong in ("add.u32 %r1, %r2;", "ld.shared.u32 %r1, [g];", "add.u32 %r1 %r2;", "sured.p.2d.add.u32;"):
        with pytest.raises((PtxSyntaxError, UnsupportedInstruction)) as caught:
            load("\n" + padding + wrong + padding)
        assert "line 10" in str(caught.value)
        assert wrong.split()[0].rstrip(";") in str(caught.value)
        assert len(str(caught.value)) < 2000
    with pytest.raises(UnsupportedInstruction) as caught:
        load("x" * 100_000)
    assert len(str(caught.value)) < 2000


SOURCE = """.version 9.0 .target sm_90 .address_size 64
.visible .entry k() {{ .reg .b32 %r<3>;
{}
sured.p.2d.add.u32;
ret; }}
.file 1 "folder/some.cu"
"""


def test_an_unsupported_instruction_names_its_cuda_line():
    with pytest.raises(UnsupportedInstruction) as caught:
        simwarp.Device().load(SOURCE.format(".loc 1 42 7"))
    assert (caught.value.source_file, caught.value.source_line) == ("folder/some.cu", 42)
    with pytest.raises(UnsupportedInstruction) as caught:
        simwarp.Device().load(SOURCE.format(""))
    assert (caught.value.source_file, caught.value.source_line) == (None, None)


def test_a_call_to_an_undefined_function_names_its_cuda_line():
    call = ".loc 1 7 3\ncall elsewhere;"
    text = SOURCE.format(call).replace(".visible .entry", ".extern .func elsewhere();\n.visible .entry")
    with pytest.raises(UnsupportedInstruction, match="calls elsewhere") as caught:
        simwarp.Device().load(text.replace("sured.p.2d.add.u32;", ""))
    assert (caught.value.source_file, caught.value.source_line) == ("folder/some.cu", 7)
