"""Faulty ends of kernels: code assumed unreachable, grid sync, and endless recursion."""

import re
from functools import cache

import numpy as np
import pytest

import simwarp
from gpu.compile import compile
from simwarp.faults import KernelFault, NotCooperative, OutOfBounds, Trap, Unreachable
from support import small_kernels as small

run, fault_of, line_of, NOTHING = small.run, small.fault_of, small.line_of, small.NOTHING


@cache
def compiled(source, *options):
    return compile(source, "ends.cu", options=options).text


def outcome(text, name, *words, grid=1, block=32, checks="raise", **launch):
    """The fault of a kernel, or None, and its array afterwards."""
    device = simwarp.Device(checks=checks)
    out = device.upload(np.array(words, np.int32), "out")
    try:
        device.load(text).kernel(name)((grid, 1, 1), (block, 1, 1), out, **launch)
    except KernelFault as fault:
        return fault, out.download().tolist()
    return (device.faults or [None])[0], out.download().tolist()


# ---- what a compiler holds for impossible ------------------------------------------------------------------

IMPOSSIBLE = """extern "C" {
__global__ void null(int* y) {
    int* p = y[0] ? y : nullptr;
    *p = 1;
}
__device__ __noinline__ int small(int x) {
    if (x < 5) return x + 1;
    __builtin_unreachable();
}
__global__ void called(int* y) {
    y[0] = small(y[0]);
}
__global__ void ends(int* y) {
    if (y[0] == 0) return;
    y[0] = 7;
}
}"""


@pytest.mark.parametrize(
    ("name", "wrong", "line", "function", "right", "left"),
    [("null", 0, 3, "null", 4, 1), ("called", 9, 7, "small", 2, 3)],
)
def test_reaching_code_the_compiler_assumed_unreachable_is_reported(name, wrong, line, function, right, left):
    text = compiled(IMPOSSIBLE)
    fault, words = outcome(text, name, wrong, block=1)
    assert (type(fault), fault.place.source_line, words) == (Unreachable, line, [wrong])
    assert fault.what.endswith(function) or function in fault.what
    assert outcome(text, name, right, block=1) == (None, [left])


@pytest.mark.parametrize("option", ["-O3", "-G"])
def test_kernels_that_end_with_a_return_are_not_reported(option):
    text = compiled(IMPOSSIBLE, *(["-G"] if option == "-G" else []))
    for word, left in ((0, 0), (3, 7)):
        assert outcome(text, "ends", word, block=1) == (None, [left])


def test_running_off_the_end_of_a_compiled_kernel_is_reported():
    body = """setp.lt.u32 %p1, %lane, 5; mov.u32 %r2, 5;
@%p1 bra $L__BB0_1;
st.global.u32 [%at], %r2; ret;
$L__BB0_1:"""
    fault = fault_of(Unreachable, body)
    assert (fault.count, fault.place.lane, fault.place.line) == (5, 0, line_of("@%p1 bra", body))
    assert run(body.replace("$L__BB0_1", "END")) == [NOTHING] * 5 + [5] * 27  # written by hand
    assert run(body, device=simwarp.Device(checks={"unreachable": "off"})) == [NOTHING] * 5 + [5] * 27


# ---- grid sync --------------------------------------------------------------------------------------------

GRID = """#include <cooperative_groups.h>
extern "C" __global__ void rotate(int* y) {
    auto grid = cooperative_groups::this_grid();
    y[grid.thread_rank()] = threadIdx.x;
    grid.sync();
    if (threadIdx.x == 0) y[grid.thread_rank()] += y[(blockIdx.x + 1) % gridDim.x * blockDim.x + 7];
}
extern "C" __global__ void own_trap(int* y) {
    auto grid = cooperative_groups::this_grid();
    if (y[grid.thread_rank()] == 9) __trap();
    y[grid.thread_rank()] = 1;
}
"""


@pytest.mark.at_most(1)
@pytest.mark.parametrize("option", ["-O3", "-G", "without lines"])
def test_grid_sync_needs_a_cooperative_launch(option):
    text = compiled(GRID, *(["-G"] if option == "-G" else []))
    if option == "without lines":
        text = re.sub(r"^\s*\.loc.*$", "", text, flags=re.MULTILINE)
    words = [0] * 128
    fault, _ = outcome(text, "rotate", *words, grid=2, block=64)
    assert type(fault) is NotCooperative
    assert "cooperative=True" in str(fault)
    fault, after = outcome(text, "rotate", *words, grid=2, block=64, cooperative=True)
    assert (fault, after[64], after[65]) == (None, 7, 1)
    fault, _ = outcome(text, "own_trap", *words[:5], 9, *words[6:], grid=2, block=64)
    assert type(fault) is Trap
    assert outcome(text, "own_trap", *words, grid=2, block=64) == (None, [1] * 128)


# ---- recursion --------------------------------------------------------------------------------------------

COUNTDOWN = """.func (.reg .b32 r) f(.reg .b32 n) {
.reg .pred p; .reg .b32 t; setp.eq.u32 p, n, 0; mov.u32 r, 0; @p ret;
sub.u32 t, n, 1; call (t), f, (t); add.u32 r, t, 2; ret; }"""


def test_recursion_without_local_memory_overflows_the_stack():
    """Each activation stores a return address, on a chip in 16 bytes of stack or more."""
    call = "setp.eq.u32 %p1, %lane, 3; selp.b32 %r3, {}, 5, %p1;\ncall (%r2), f, (%r3);\n" + small.STORE
    fault = fault_of(OutOfBounds, call.format(-1), before=COUNTDOWN)
    assert (fault.place.lane, "call (t), f, (t)" in fault.place.text) == (3, True)
    assert "the stack is full" in fault.what
    assert "Device(stack=" in fault.advice
    got = run(call.format(40), before=COUNTDOWN)
    assert got == [80 if i == 3 else 10 for i in range(32)]
