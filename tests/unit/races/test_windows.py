"""A shared variable ends where the next one starts; local memory ends with the stack frame."""

import numpy as np
import pytest

import simwarp
from gpu.compile import compile
from simwarp.faults import OutOfBounds
from support import small_kernels as small

run, fault_of, STORE = small.run, small.fault_of, small.STORE

TWO = ".shared .align 4 .b32 low[32]; .shared .align 4 .b32 high[32]; .extern .shared .align 4 .b32 more[];\n"
FILL = """mov.u32 %r3, low; mov.u32 %r4, high; shl.b32 %r5, %lane, 2;
add.u32 %r6, %r3, %r5; add.u32 %r7, %r4, %r5; st.shared.u32 [%r6], 1; st.shared.u32 [%r7], 2; bar.sync 0;
"""


@pytest.mark.parametrize(
    ("body", "variable", "lanes"),
    [
        ("ld.shared.u32 %r2, [%r6+64];", "low", 16),
        ("st.shared.u32 [%r7+-4], 3; mov.u32 %r2, 0;", "high", 1),
        ("atom.shared.add.u32 %r2, [%r6+128], 3;", "low", 32),
        ("cvt.u64.u32 %rd1, %r6; cvta.shared.u64 %rd1, %rd1; ld.u32 %r2, [%rd1+124];", "low", 31),
        ("ld.shared.v2.u32 {%r2, %r8}, [low+124];", "low", 32),
        ("mov.u32 %r8, more; ld.shared.u32 %r2, [%r8-4];", "more", 32),
    ],
)
def test_an_overflow_into_the_next_shared_variable_is_reported(body, variable, lanes):
    if "v2" in body:
        body, whole = body.replace("124", "120"), body.replace("low+124", "low+128")
        assert run(FILL + body + STORE, before=TWO, shared=64) == [1] * 32
        body = whole
    fault = fault_of(OutOfBounds, FILL + body + STORE, before=TWO, shared=64)
    assert fault.what.endswith(f"outside {variable}")
    assert (fault.allocation, fault.space, fault.count) == (variable, "shared", lanes)
    assert "index within the array" in str(fault)


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("ld.shared.u32 %r2, [%r6];", [1] * 32),
        ("sub.u32 %r8, %r4, %r3; add.u32 %r8, %r6, %r8; ld.shared.u32 %r2, [%r8];", [2] * 32),
        (
            "setp.lt.u32 %p1, %lane, 8; selp.u32 %r8, %r6, %r7, %p1; ld.shared.u32 %r2, [%r8];",
            [1] * 8 + [2] * 24,
        ),
        ("mov.u32 %r8, 128; add.u32 %r8, %r8, %r5; ld.shared.u32 %r2, [%r8];", [2] * 32),
        ("mov.u32 %r8, more; st.shared.u32 [%r8+60], 7; bar.sync 0; ld.shared.u32 %r2, [%r8+60];", [7] * 32),
        ("add.u32 %r8, %r6, -128; add.u32 %r8, %r8, 128; ld.shared.u32 %r2, [%r8];", [1] * 32),
    ],
)
def test_accesses_within_their_variables_are_not_reported(body, left):
    assert run(FILL + body + STORE, before=TWO, shared=64) == left


def test_a_reported_overflow_leaves_the_next_variable_unchanged():
    there = simwarp.Device(checks="report")
    body = "st.shared.u32 [%r6+64], 9; bar.sync 0; ld.shared.u32 %r2, [%r7];"
    assert run(FILL + body + STORE, before=TWO, shared=64, device=there) == [2] * 32
    ((fault),) = there.faults
    assert (type(fault), fault.count) == (OutOfBounds, 16)
    there = simwarp.Device(checks={"bounds": "off", "races": "off"})
    assert run(FILL + body + STORE, before=TWO, shared=64, device=there) == [9] * 16 + [2] * 16


SOURCE = """
extern "C" __global__ void k(int* out, int shift) {
    __shared__ int row[32];
    __shared__ int column[32];
    int t = threadIdx.x;
    row[t] = t; column[t] = 2 * t;
    __syncthreads();
    out[t] = row[t + shift] + column[31 - t];
}"""


def test_an_overflow_in_a_cuda_kernel_names_its_variable():
    there = simwarp.Device()
    out = there.upload(np.zeros(32, np.int32), "out")
    kernel = there.load(compile(SOURCE, "k.cu").text).kernel("k")
    kernel((1, 1, 1), (32, 1, 1), out, np.int32(0))
    assert out.download().tolist() == [t + 2 * (31 - t) for t in range(32)]
    shifts = {}
    for shift in (1, -1):
        with pytest.raises(OutOfBounds) as caught:
            kernel((1, 1, 1), (32, 1, 1), out, np.int32(shift))
        shifts[shift] = caught.value.allocation, caught.value.place.lane, caught.value.place.source_line
    assert "row" in (shifts[1][0], shifts[-1][0])
    assert {lane for _, lane, line in shifts.values() if line == 8} == {0, 31}


# ------------------------------------------------------------------------------------------------ frames

RETURNED = """
.func (.param .b64 at) kept(.param .b32 n) {
    .reg .b32 %n; .reg .b64 %a; .local .align 4 .b32 mine[4];
    ld.param.u32 %n, [n]; st.local.u32 [mine+4], %n; mov.u64 %a, mine; cvta.local.u64 %a, %a;
    st.param.b64 [at], %a; ret; }
.func (.param .b32 sum) through(.param .b64 from) {
    .reg .b32 %n; .reg .b64 %a;
    ld.param.u64 %a, [from]; ld.u32 %n, [%a+4]; st.param.b32 [sum], %n; ret; }
"""
CALL = """{ .param .b32 n; .param .b64 at; st.param.b32 [n], %lane;
call (at), kept, (n); ld.param.b64 %rd1, [at]; }
"""


@pytest.mark.parametrize(
    "access", ["ld.u32 %r2, [%rd1+4];", "cvta.to.local.u64 %rd1, %rd1; ld.local.u32 %r2, [%rd1+4];"]
)
def test_access_to_a_returned_stack_frame_is_a_fault(access):
    fault = fault_of(OutOfBounds, CALL + access + STORE, before=RETURNED)
    assert (fault.space, fault.place.lane, fault.count) == ("local", 0, 32)
    assert "stack frame" in fault.what
    assert "has returned" in str(fault)


def test_a_function_reaches_the_variables_of_its_callers():
    body = """.local .align 8 .b32 words[4]; .param .b64 from; .param .b32 sum; mov.u64 %rd1, words;
        st.local.u32 [words+4], %lane; cvta.local.u64 %rd1, %rd1; st.param.b64 [from], %rd1;
        call (sum), through, (from); ld.param.b32 %r2, [sum];"""
    assert run(body + STORE, before=RETURNED) == list(range(32))


def test_a_local_array_is_bounded_by_its_stack_frame():
    body = ".local .align 4 .b32 words[4]; mov.u64 %rd1, words; mov.u32 %r2, 1;\n" + CALL.replace(
        "%rd1", "%rd2"
    )
    body += "mad.wide.u32 %rd1, %lane, 4, %rd1; st.local.u32 [%rd1], %r2;"
    assert run(body + STORE, before=RETURNED, block=4) == [1] * 4
    assert "stack frame" in fault_of(OutOfBounds, body + STORE, before=RETURNED, block=32).what


# ------------------------------------------------------------------------------------------- local variables

NEIGHBOURS = """
__device__ __noinline__ int neighbours(int* x, int k, int from) {
    int a[4]; int b[4]; int sum = 0;
    for (int i = 0; i < 4; i++) { a[i] = x[i]; b[i] = i + x[i + 1]; }
    a[k] = 7;
    for (int i = 0; i < 4; i++) sum += a[i] + b[i ^ from];
    return sum;
}
extern "C" __global__ void k(int* x, int* out, int k, int from) {
    int mine[4];
    for (int i = 0; i < 4; i++) mine[(i + from) & 3] = i;
    out[threadIdx.x] = neighbours(x, k, from) + mine[k & 3];
}"""
HOW = [pytest.param([], id="O3"), pytest.param(["-G"], id="G")]


@pytest.mark.parametrize("how", HOW)
def test_an_overflow_into_the_next_local_variable_is_reported(how):
    there = simwarp.Device()
    x, out = (there.upload(np.zeros(32, np.int32), name) for name in ("x", "out"))
    kernel = there.load(compile(NEIGHBOURS, "k.cu", options=how).text).kernel("k")
    kernel((1, 1, 1), (32, 1, 1), x, out, np.int32(3), np.int32(1))
    assert out.download().tolist() == [7 + 6 + 2] * 32
    for index in (4, -1):  # one is the next variable, the other is in another frame or outside
        with pytest.raises(OutOfBounds) as caught:
            kernel((1, 1, 1), (32, 1, 1), x, out, np.int32(index), np.int32(1))
        fault = caught.value
        assert (fault.space, fault.count, fault.place.source_line) == ("local", 32, 5)
        assert "outside the local variable in bytes 0 to 15 of the function's stack frame" in fault.what
        assert "index within the array" in str(fault)


LAWFUL = """
struct Five { int head; int u[3]; int w[5]; __device__ int& operator[](int i) { return w[i]; } };
struct Stack { int top; short small[6]; double d[2]; Stack* next; };
__device__ __noinline__ int sum(const int* p, int n) {
    int s = 0;
    for (const int* end = p + n; end != p;) s += *--end;
    return s;
}
extern "C" __global__ void k(const int* x, int* out, int n) {
    int a[8], b[8], c[8], grid[3][4]; Five five[3], one; Stack s1, s2; char bytes[13];
    int *p = a, *q = b, acc = 0, t = threadIdx.x;
    for (int i = 0; i < 8; i++) { a[i] = x[i] + t; b[i] = i; c[(i * 3 + n) & 7] = i; }
    for (int r = 0; r < n; r++) {
        for (int i = 0; i < 8; i++) q[i] = p[(i + r) & 7] + 1;
        int* other = p; p = q; q = other;
    }
    one.head = 4;
    for (int i = 0; i < 5; i++) { one[i] = i * n; one.u[i % 3] = i; }
    for (int k = 0; k < 3; k++) { five[k] = one; five[k].w[n % 5] = k; five[(k + n) % 3 & k].head = k; }
    s1.next = &s2; s2.next = &s1; s1.top = s2.top = 0;
    for (int i = 0; i < 6; i++) {
        Stack* s = i & 1 ? &s1 : &s2;
        s->small[s->top] = x[i]; s->top = (s->top + n) % 6; s->d[i & 1] = s->d[1 - (i & 1)] = i;
    }
    for (int i = 0; i < 13; i++) bytes[12 - i] = x[i & 7] >> (i & 3);
    memcpy(grid, a, 32); memcpy(&grid[2][0], b, 16);
    acc += sum(a, n) + sum(b + n, 8 - n) + sum(grid[n % 3], 4) + (int)s1.next->d[n & 1];
    { int early[5]; for (int i = 0; i < 5; i++) early[(i + n) % 5] = i + acc; acc += early[n % 5]; }
    { double late[3]; for (int i = 0; i < 3; i++) late[(i + n) % 3] = acc + i; acc += (int)late[n % 3]; }
    { int big[20]; for (int i = 0; i < 20; i++) big[(i + n) % 20] = i; acc += big[19 - n] + big[2 * n]; }
    for (int i = 0; i < 12; i++) acc += (&grid[0][0])[(i * n) % 12] * bytes[(i + n) % 13];
    int *last = c + 7, *chosen = (acc & 1) ? a : c, *low = a - 1;
    for (int i = 0; i < 8; i++) acc ^= *(last - ((i + n) & 7)) + low[i + 1];
    for (int i = n; i < 7; i++) acc += a[i + 1] - a[i - 1] + five[i % 3][i % 5] + five[n % 3].u[i % 3];
    out[t] = acc + chosen[n & 7] + (p - a == 0 ? a[n & 7] : b[n & 7]);
}"""


@pytest.mark.slow
def test_pointers_within_their_local_variables_are_not_reported():
    answers = set()
    for how in ([], ["-G"]):
        there = simwarp.Device()
        x, out = (
            there.upload(np.arange(8, dtype=np.int32) * 5 + 1, "x"),
            there.allocate((32,), np.int32, "out"),
        )
        kernel = there.load(compile(LAWFUL, "k.cu", options=how).text).kernel("k")
        left = []
        for n in (1, 3, 7):
            kernel((1, 1, 1), (32, 1, 1), x, out, np.int32(n))
            left += out.download().tolist()
        answers.add(tuple(left))
    assert len(answers) == 1


def test_members_of_a_structure_are_one_local_variable():
    source = """extern "C" __global__ void k(int* out, int n) {
        struct { int low[4]; int high[4]; } both; int more[4];
        for (int i = 0; i < 4; i++) { both.low[i] = 1; both.high[i] = 2; more[i] = 3; }
        out[threadIdx.x] = both.low[n] + more[n & 3]; }"""
    there = simwarp.Device()
    out, kernel = there.allocate((32,), np.int32, "out"), there.load(compile(source, "k.cu").text).kernel("k")
    kernel((1, 1, 1), (32, 1, 1), out, np.int32(5))
    assert out.download().tolist() == [5] * 32
    with pytest.raises(OutOfBounds):
        kernel((1, 1, 1), (32, 1, 1), out, np.int32(8))


def test_an_overflow_of_a_named_local_variable_names_it():
    body = ".local .align 4 .b32 low[4]; .local .align 4 .b32 high[4]; st.local.u32 [low+12], 7;"
    body += "mov.u64 %rd1, low; mad.wide.u32 %rd1, %lane, 0, %rd1; ld.local.u32 %r2, [%rd1+OFFSET];"
    assert run(body.replace("OFFSET", "12") + STORE) == [7] * 32
    fault = fault_of(OutOfBounds, body.replace("OFFSET", "16") + STORE)
    assert fault.what == "access of 4 bytes outside low of the function's stack frame"
