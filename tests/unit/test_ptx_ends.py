"""How a kernel may end that must not: ends that its compiler holds for impossible, grid sync, recursion."""

from functools import cache
from runpy import run_path

import numpy as np
import pytest

import simwarp
from gpu.compile import compile
from simwarp.faults import KernelFault, Unreachable

small = run_path("tests/small_kernels.py")
run, fault_of, line_of, NOTHING = small["run"], small["fault_of"], small["line_of"], small["NOTHING"]


@cache
def compiled(source, *options):
    return compile(source, "ends.cu", options=options).text


def outcome(text, name, *words, grid=1, block=32, checks="raise", **launch):
    """The fault of a kernel, if there is one, and the words it was given as they are behind it."""
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
def test_an_end_that_its_compiler_holds_for_impossible(name, wrong, line, function, right, left):
    text = compiled(IMPOSSIBLE)
    fault, words = outcome(text, name, wrong, block=1)
    assert (type(fault), fault.place.source_line, words) == (Unreachable, line, [wrong])
    assert fault.what.endswith(function) or function in fault.what
    assert outcome(text, name, right, block=1) == (None, [left])


@pytest.mark.parametrize("option", ["-O3", "-G"])
def test_compiled_ends_with_a_return_are_silent(option):
    text = compiled(IMPOSSIBLE, *(["-G"] if option == "-G" else []))
    for word, left in ((0, 0), (3, 7)):
        assert outcome(text, "ends", word, block=1) == (None, [left])


def test_some_lanes_run_off_the_end():
    body = """setp.lt.u32 %p1, %lane, 5; mov.u32 %r2, 5;
@%p1 bra $L__BB0_1;
st.global.u32 [%at], %r2; ret;
$L__BB0_1:"""
    fault = fault_of(Unreachable, body)
    assert (fault.count, fault.place.lane, fault.place.line) == (5, 0, line_of("@%p1 bra", body))
    assert run(body.replace("$L__BB0_1", "END")) == [NOTHING] * 5 + [5] * 27  # written by hand
    assert run(body, device=simwarp.Device(checks={"unreachable": "off"})) == [NOTHING] * 5 + [5] * 27
