"""A variable in shared memory ends where the next one starts, local memory with the function's frame."""

from runpy import run_path

import numpy as np
import pytest

import simwarp
from gpu.compile import compile
from simwarp.faults import OutOfBounds

small = run_path("tests/small_kernels.py")
run, fault_of, STORE = small["run"], small["fault_of"], small["STORE"]

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
def test_an_overflow_into_the_neighbour_is_named(body, variable, lanes):
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
def test_what_stays_within_its_variables_is_silent(body, left):
    assert run(FILL + body + STORE, before=TWO, shared=64) == left


def test_collected_the_neighbour_keeps_its_value():
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


def test_a_kernel_of_cuda_names_its_variable():
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
def test_a_local_variable_is_gone_when_its_function_returned(access):
    fault = fault_of(OutOfBounds, CALL + access + STORE, before=RETURNED)
    assert (fault.space, fault.place.lane, fault.count) == ("local", 0, 32)
    assert "stack frame" in fault.what
    assert "has returned" in str(fault)


def test_a_function_reaches_the_variables_of_its_callers():
    body = """.local .align 8 .b32 words[4]; .param .b64 from; .param .b32 sum; mov.u64 %rd1, words;
        st.local.u32 [words+4], %lane; cvta.local.u64 %rd1, %rd1; st.param.b64 [from], %rd1;
        call (sum), through, (from); ld.param.b32 %r2, [sum];"""
    assert run(body + STORE, before=RETURNED) == list(range(32))


def test_an_array_ends_with_the_frame_although_the_stack_goes_on():
    body = ".local .align 4 .b32 words[4]; mov.u64 %rd1, words; mov.u32 %r2, 1;\n" + CALL.replace(
        "%rd1", "%rd2"
    )
    body += "mad.wide.u32 %rd1, %lane, 4, %rd1; st.local.u32 [%rd1], %r2;"
    assert run(body + STORE, before=RETURNED, block=4) == [1] * 4
    assert "stack frame" in fault_of(OutOfBounds, body + STORE, before=RETURNED, block=32).what
