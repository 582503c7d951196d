"""Uninitialised values may be loaded, copied and split into bits, but not used."""

import io

import numpy as np
import pytest

import simwarp
from gpu.compile import compile
from simwarp import faults
from support import small_kernels as small

run, fault_of, line_of, STORE = small.run, small.fault_of, small.line_of, small.STORE

WORD = ".local .align 16 .b8 mine[32];\nmov.u64 %rd1, mine; mov.u32 %r3, 0x01020304; mov.u32 %r2, 7;\n"
CELLS = ".shared .align 16 .b32 cells[64];"
SELECT = "setp.lt.u32 %p1, %lane, 16;\n"


def device(**checks):
    return simwarp.Device(instruction_budget=500_000, checks={"races": "off", **checks})


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("ld.local.u32 %r4, [mine]; add.u32 %r4, %r4, 1;", 7),
        ("ld.local.v4.u32 {%r4, %r5, %r6, %r7}, [mine]; selp.u32 %r2, %r2, %r4, %p0;", 7),
        ("ld.local.u32 %r4, [mine]; st.local.u32 [mine+8], %r4; ld.local.u32 %r5, [mine+8];", 7),
        ("ld.local.u32 %r4, [mine]; and.b32 %r4, %r4, -8; or.b32 %r4, %r4, 5; st.local.u32 [mine], %r4;"
         "ld.local.u32 %r5, [mine]; and.b32 %r2, %r5, 7;", 5),
        ("ld.local.u32 %r4, [mine]; bfi.b32 %r4, 9, %r4, 4, 8; st.local.u32 [mine], %r4;"
         "ld.local.u32 %r5, [mine]; bfe.u32 %r2, %r5, 4, 8;", 9),
        ("ld.local.u32 %r4, [mine]; and.b32 %r4, %r4, 0xFF00; or.b32 %r4, %r4, 3; st.local.u8 [mine], %r4;"
         "ld.local.u8 %r2, [mine];", 3),
        ("st.local.u8 [mine], %r2; ld.local.u32 %r4, [mine]; prmt.b32 %r2, %r4, 0, 0x4440;", 7),
        ("st.local.u8 [mine], %r2; ld.local.u32 %r4, [mine]; shl.b32 %r4, %r4, 24; shr.u32 %r2, %r4, 24;", 7),
        ("st.local.u8 [mine], %r2; ld.local.u32 %r4, [mine]; cvt.u32.u8 %r2, %r4;", 7),
        ("st.local.u8 [mine], %r2; ld.local.u32 %r4, [mine]; xor.b32 %r4, %r4, -1;"
         "lop3.b32 %r4, %r4, 0xFF, 0, 0xC0; xor.b32 %r2, %r4, 0xFF;", 7),
        ("st.local.u32 [mine+4], %r3; ld.local.u64 %rd2, [mine]; shr.u64 %rd2, %rd2, 32;"
         "cvt.u32.u64 %r2, %rd2;", 0x01020304),
        ("st.local.u32 [mine+4], %r3; ld.local.u64 %rd2, [mine]; mov.b64 {%r4, %r2}, %rd2;", 0x01020304),
        ("st.local.u32 [mine+4], %r3; ld.local.u32 %r4, [mine]; ld.local.u32 %r5, [mine+4];"
         "mov.b64 %rd2, {%r4, %r5}; mov.b64 {%r6, %r2}, %rd2;", 0x01020304),
    ],
)  # fmt: skip
def test_unused_uninitialised_values_are_not_reported(body, left):
    assert run(WORD + "setp.eq.u32 %p0, %r2, 7;" + body + STORE, device=device()) == [left] * 32


@pytest.mark.parametrize(
    ("body", "use", "offset"),
    [
        ("ld.local.u32 %r4, [mine+4];\nadd.u32 %r2, %r4, 1;\n", "st.global", 4),
        ("ld.local.u32 %r4, [mine];\nsetp.eq.u32 %p2, %r4, 3;\n@%p2 bra END;\nEND:", "bra END", 0),
        ("ld.local.u64 %rd2, [mine+8];\nadd.u64 %rd2, %rd2, %in;\nld.global.u32 %r2, [%rd2];\n",
         "ld.global", 8),
        ("ld.local.u32 %r4, [mine];\natom.global.add.u32 %r2, [%in], %r4;\n", "atom", 0),
        ("ld.local.u32 %r4, [mine];\nst.local.u32 [mine+16], %r4;\nld.local.u32 %r2, [mine+16];\n",
         "st.global", 0),
        ("st.local.u8 [mine], %r2; ld.local.u32 %r4, [mine];\nand.b32 %r4, %r4, 0x1FF;"
         "setp.eq.u32 %p2, %r4, 3;\n@%p2 bra END;\nEND:", "bra END", 0),
        ("ld.local.u8 %r4, [mine+1];\nshl.b32 %r2, %r4, 4;\n", "st.global", 1),
        ("ld.local.u32 %r4, [mine];\nshr.u32 %r2, %r4, 8;\n", "st.global", 0),
        ("ld.local.u32 %r4, [mine];\nxor.b32 %r2, %r4, %r4;\n", "st.global", 0),
        ("ld.local.s8 %r4, [mine];\nshr.s32 %r2, %r4, 31;\n", "st.global", 0),
    ],
)  # fmt: skip
def test_a_used_uninitialised_value_names_its_load_and_its_use(body, use, offset):
    fault = fault_of(faults.UninitialisedRead, WORD + body + "\n" + STORE, given=[7] * 9, device=device())
    assert (fault.space, fault.offset, fault.place.lane, fault.count) == ("local", offset, 0, 32)
    assert fault.allocation == "local memory of kernel k"
    assert fault.place.text.endswith(body.split("\n")[0].rsplit("; ", 1)[-1].rstrip(";") + ";")
    assert use in fault.use.text
    assert fault.use.line > fault.place.line
    assert f"byte {offset} of the thread's local memory" in fault.values
    assert [note.place for note in fault.notes] == [fault.use]


def test_only_lanes_that_use_the_value_are_reported():
    body = (
        SELECT
        + "@%p1 st.local.u32 [mine], %r3;\nld.local.u32 %r2, [mine];\nselp.u32 %r2, %r2, {other}, %p1;\n"
    )
    assert run(WORD + body.format(other=1) + STORE) == [0x01020304] * 16 + [1] * 16
    fault = fault_of(faults.UninitialisedRead, WORD + body.format(other="%r2") + STORE)
    assert (fault.place.lane, fault.use.lane, fault.count) == (16, 16, 16)


def test_an_exchange_initialises_and_only_its_first_lane_holds_an_unwritten_value():
    exchange = "mov.u32 %r2, 7;\nand.b32 %r4, %lane, 1; mul.wide.u32 %rd2, %r4, 4; mov.u64 %rd3, cells;"
    exchange += "add.u64 %rd2, %rd2, %rd3;\natom.shared.exch.b32 %r4, [%rd2], %lane;\n"
    assert run(exchange + "ld.shared.u32 %r2, [cells+4];" + STORE, before=CELLS, device=device()) == [31] * 32
    later = "setp.gt.u32 %p1, %lane, 1; selp.u32 %r2, %r4, %r2, %p1;\n"
    assert run(exchange + later + STORE, before=CELLS, device=device()) == [7, 7, *range(30)]
    fault = fault_of(faults.UninitialisedRead, exchange + "add.u32 %r2, %r4, 1;\n" + STORE, before=CELLS)
    assert (fault.place.lane, fault.offset, fault.count) == (0, 0, 2)
    assert "exch" in fault.place.text
    assert "st.global" in fault.use.text


@pytest.mark.parametrize("source", ["shared", "global"])
def test_uninitialised_shared_and_global_values_are_tracked(source):
    there = device()
    fresh = there.allocate((32,), np.uint32, "fresh")
    address = {"shared": "mov.u64 %rd3, cells;", "global": "mov.u64 %rd3, %in;"}[source]
    body = f"{address} mul.wide.u32 %rd2, %lane, 4; add.u64 %rd2, %rd2, %rd3; mov.u32 %r2, 1;\n"
    load = f"ld.{source}.u32 %r4, [%rd2];\n"
    out = there.allocate((32,), np.uint32)

    def launch(choose):
        kernel = there.load(small.text(body + load + SELECT + choose + STORE, CELLS)).kernel("k")
        kernel((1, 1, 1), (32, 1, 1), out, fresh)

    launch("setp.ne.u32 %p2, %r2, 1; selp.u32 %r2, %r4, %r2, %p2;\n")
    assert out.download().tolist() == [1] * 32
    with pytest.raises(faults.UninitialisedRead) as caught:
        launch("selp.u32 %r2, %r4, %r2, %p1;\n")
    assert caught.value.allocation == {"shared": "shared memory of kernel k", "global": "fresh"}[source]
    assert (caught.value.offset, caught.value.count) == (0, 16)


@pytest.mark.parametrize("value", ["%r9", "%r4"])
def test_uninitialised_values_are_tracked_through_shared_memory(value):
    """A store is not a use; the use by another lane is."""
    body = WORD + "ld.local.u32 %r4, [mine];\nmov.u32 %r5, cells; mad.lo.u32 %r5, %lane, 4, %r5;\n"
    body += f"st.shared.u32 [%r5], {value};\nbar.sync 0; xor.b32 %r6, %lane, 1; mov.u32 %r5, cells;"
    body += "mad.lo.u32 %r5, %r6, 4, %r5; ld.shared.u32 %r7, [%r5];\n"
    assert run(body + STORE, before=CELLS) == [7] * 32
    kind = faults.UninitialisedRead if value == "%r4" else faults.UninitialisedRegister
    fault = fault_of(kind, body + "add.u32 %r2, %r2, %r7;\n" + STORE, before=CELLS)
    assert {"%r4": "ld.local", "%r9": "st.shared"}[value] in fault.place.text
    assert "st.global" in fault.use.text


def test_an_uninitialised_register_stored_to_local_memory_is_named():
    body = WORD + "st.local.u32 [mine], %r9;\nld.local.u32 %r2, [mine];\n"
    fault = fault_of(faults.UninitialisedRegister, body + STORE)
    assert (fault.register, fault.place.text.split()[0]) == ("%r9", "st.local.u32")


def test_padding_may_be_copied_but_not_used():
    """Words 0 and 2 are members, 1 and 3 padding; the copy stays uninitialised in global memory."""
    fill = WORD + "st.local.u32 [mine], %r3; st.local.u8 [mine+8], %r2;\n"
    loads = "".join(f"ld.local.u32 %r{4 + i}, [mine+{4 * i}];\n" for i in range(4))
    stores = "".join(f"st.global.u32 [%in+{4 * i}], %r{4 + i};\n" for i in range(4))
    there = device()
    out, to = there.allocate((1,), np.uint32, "out"), there.upload(np.zeros(4, np.uint32), "to")
    there.load(small.text(fill + loads + stores + STORE)).kernel("k")((1, 1, 1), (1, 1, 1), out, to)
    written = to._allocation.written
    assert written.tolist() == [True] * 4 + [False] * 4 + [True] + [False] * 7
    for load in (loads.splitlines()[1], "ld.local.u32 %r4, [mine+16];"):
        one = load + "\nst.global.u32 [%in], %r{};\n".format(load.split("%r")[1][0])
        fault = fault_of(faults.UninitialisedRead, fill + one + STORE, given=[1] * 4, block=1)
        assert fault.place.text == load
    computed = loads + "add.u32 %r5, %r5, 1;\n" + stores
    fault_of(faults.UninitialisedRead, fill + computed + STORE, given=[1] * 4, block=1)


@pytest.mark.parametrize(
    ("update", "counts"),
    [
        ("and.b32 %r4, %r4, -16; or.b32 %r4, %r4, %lane;", False),
        ("bfi.b32 %r4, %lane, %r4, 3, 5;", False),
        ("or.b32 %r4, %r4, 7;", False),
        ("or.b32 %r4, %r4, %lane;", True),
        ("shl.b32 %r4, %r4, 3;", True),
    ],
)
def test_bit_fields_of_uninitialised_global_memory_may_be_set(update, counts):
    """Accumulating by ``|=`` is not setting a bit field, since its bits are not a literal."""
    there = device()
    out, fresh = there.allocate((4,), np.uint32, "out"), there.allocate((4,), np.uint32, "fresh")
    body = "mul.wide.u32 %rd2, %lane, 4; add.u64 %rd2, %rd2, %in;\nld.global.u32 %r4, [%rd2];\n"
    body += update + "\nst.global.u32 [%rd2], %r4; mov.u32 %r2, 1;"
    kernel = there.load(small.text(body + STORE)).kernel("k")
    if not counts:
        kernel((1, 1, 1), (4, 1, 1), out, fresh)
        return
    with pytest.raises(faults.UninitialisedRead, match="byte 0 of fresh"):
        kernel((1, 1, 1), (4, 1, 1), out, fresh)


def test_an_unwritten_array_is_not_padding():
    loads = "".join(f"ld.local.u32 %r{4 + i}, [mine+{4 * i}];\n" for i in range(4))
    stores = "".join(f"st.global.u32 [%in+{4 * i}], %r{4 + i};\n" for i in range(4))
    fault = fault_of(faults.UninitialisedRead, WORD + loads + stores + STORE, given=[1] * 4, block=1)
    assert (fault.offset, "st.global.u32 [%in+0]" in fault.use.text) == (0, True)


def test_an_unwritten_last_vector_element_is_padding():
    body = "mov.u32 %r2, 3; st.global.v2.u32 [%in], {%r2, %r9};"
    assert run(body + STORE, given=[0, 0], block=1) == [3]
    partly = "setp.eq.u32 %p1, %lane, 0; @%p1 mov.u32 %r9, 1;\n"
    fault_of(faults.UninitialisedRegister, partly + body + STORE, given=[0, 0], block=2)


def test_a_reported_uninitialised_read_returns_poison():
    body = "ld.local.u32 %r2, [mine];\n"
    there = simwarp.Device(checks="report")
    assert run(WORD + body + STORE, device=there) == [0xA5A5A5A5] * 32
    ((fault),) = there.faults
    assert (type(fault), fault.count) == (faults.UninitialisedRead, 32)
    there = simwarp.Device(checks={"uninitialised": "off"})
    assert run(WORD + body + STORE, device=there) == [0xA5A5A5A5] * 32


def test_uninitialised_bits_are_tracked_in_a_compact_copy():
    """One of eight warps stays in a loop; its bit field is unchanged before and after."""
    body = """setp.ge.u32 %p2, %i, 32; ld.local.u32 %r4, [mine]; bfi.b32 %r4, %lane, %r4, 0, 6;
        mov.u32 %r5, 0; @%p2 bra END;
        AGAIN: add.u32 %r5, %r5, 1; bfi.b32 %r4, %r5, %r4, 6, 7; setp.lt.u32 %p3, %r5, 100; @%p3 bra AGAIN;
        END: bfe.u32 %r2, %r4, 0, {width};"""
    left = [lane + (100 << 6) for lane in range(32)]
    assert run(WORD + body.format(width=6) + STORE, block=256) == [i % 32 for i in range(256)]
    assert run(WORD + body.format(width=13) + STORE, block=32) == left
    fault = fault_of(faults.UninitialisedRead, WORD + body.format(width=13) + STORE, block=256)
    assert fault.place.warp == 1


# ---------------------------------------------------------------------------------------- what compilers do

SPECULATED = """
struct P { int a, b; float c, d; };
__device__ __noinline__ bool pop(P* data, int n, P& e) {
    if (n > 0) { e = data[n - 1]; return true; }
    return false;
}
extern "C" __global__ void k(int* out, P* data) {
    P v;
    if (pop(data, 2 - (int)threadIdx.x, v)) out[threadIdx.x] = v.a; else out[threadIdx.x] = -1;
}"""
FUNCTOR = """
struct Plus { __device__ int operator()(int a, int b) const { return a + b; } };
template <class F> __device__ __noinline__ int apply(F f, int a, int b) { return f(a, b); }
extern "C" __global__ void k(int* out, int* data) { Plus p; out[threadIdx.x] = apply(p, threadIdx.x, 3); }"""
STRUCTURES = """
struct A { char c; int i; double d; short s; };
struct __align__(16) B { float4 v; int k; };
struct Big { char c; int x[40]; char d; };
struct Bits { unsigned a : 3, b : 9, c : 12; };
struct All { A a; B b; Big big; Bits bits, more; };
extern "C" __global__ void k(int* out, All* all) {
    int t = threadIdx.x;
    A x; x.c = t; x.i = t; x.d = t; x.s = t; all[t].a = x;
    B y; y.v = make_float4(1, 2, 3, t); y.k = t; all[t].b = y;
    Big z; z.c = t; for (int i = 0; i < 40; ++i) z.x[i] = i; z.d = 2; all[t].big = z;
    Bits w; w.a = t; w.b = t; w.c = 5; all[t].bits = w;
    all[t].more.a = 3; all[t].more.c = t;
    __syncthreads();
    All o = all[t ^ 1];
    out[t] = o.a.c + o.a.i + o.a.s + o.b.k + o.big.c + o.big.x[t] + o.big.d + o.bits.b + o.more.c + o.more.a;
}"""
GROUPS = """
#include <cooperative_groups.h>
extern "C" __global__ void k(int* out, int* data) {
    auto block = cooperative_groups::this_thread_block();
    auto tile = cooperative_groups::tiled_partition<16>(block);
    out[threadIdx.x] = tile.shfl(threadIdx.x, 3) + tile.meta_group_rank() + block.size();
}"""


LEFT = {
    SPECULATED: [4, 0, *[-1] * 30],
    FUNCTOR: [t + 3 for t in range(32)],
    STRUCTURES: [5 * (t ^ 1) + t + 2 + (t ^ 1) + (t ^ 1) + 3 for t in range(32)],
    GROUPS: [t // 16 * 16 + 3 + t // 16 + 32 for t in range(32)],
}


@pytest.mark.at_most(2)
@pytest.mark.slow_cases("groups -G")
@pytest.mark.parametrize(
    ("source", "options"),
    [
        pytest.param(source, options, id=" ".join([name, *options]))
        for name, source in zip(("speculated", "functor", "structures", "groups"), LEFT, strict=True)
        for options in ([], ["-G"])
        if options or source is not GROUPS
    ],
)
def test_correct_kernels_are_not_reported(source, options):
    there = simwarp.Device()
    out, data = there.allocate((32,), np.int32, "out"), there.allocate((32 * 288,), np.uint8, "data")
    if source is SPECULATED:
        data = there.upload(np.arange(8, dtype=np.int32), "data")
    there.load(compile(source, "k.cu", options=options).text).kernel("k")((1, 1, 1), (32, 1, 1), out, data)
    assert out.download().tolist() == LEFT[source]


@pytest.mark.parametrize("options", [[], ["-G"]], ids=["-O3", "-G"])
def test_use_of_an_unset_struct_member_is_reported(options):
    source = SPECULATED.replace("else out[threadIdx.x] = -1", "else out[threadIdx.x] = v.b")
    there = simwarp.Device()
    out, data = there.allocate((32,), np.int32, "out"), there.upload(np.arange(8, dtype=np.int32), "data")
    with pytest.raises(faults.UninitialisedRead) as caught:
        there.load(compile(source, "k.cu", options=options).text).kernel("k")(
            (1, 1, 1), (32, 1, 1), out, data
        )
    assert (caught.value.space, caught.value.place.lane, caught.value.use.source_line) == ("local", 2, 9)


@pytest.mark.parametrize("given", [True, False])
def test_printing_an_uninitialised_value_is_reported(given):
    before = """.extern .func (.param .b32 r) vprintf(.param .b64 format, .param .b64 arguments);
.global .b8 text[] = {37, 100, 10, 0};"""
    body = WORD + "{} ld.local.u32 %r4, [mine+8];\nst.local.u32 [mine], %r4;\n".format(
        "st.local.u32 [mine+8], %r2;" if given else ""
    )
    body += """.param .b64 format, arguments; .param .b32 r;
        cvta.local.u64 %rd1, %rd1; st.param.b64 [arguments], %rd1;
        mov.u64 %rd2, text; cvta.global.u64 %rd2, %rd2; st.param.b64 [format], %rd2;
        call (r), vprintf, (format, arguments);\n"""
    printed = io.StringIO()
    there = simwarp.Device(stdout=printed)
    if given:
        run(body + STORE, before=before, block=2, device=there)
        assert printed.getvalue() == "7\n7\n"
        return
    fault = fault_of(faults.UninitialisedRead, body + STORE, before=before, block=2, device=there)
    assert (fault.offset, fault.place.line, "vprintf" in fault.use.text) == (
        8,
        line_of("ld.local", body, before),
        True,
    )
