"""Integer division by zero is a fault if its result is used, but not if it is only speculated."""

from functools import cache

import numpy as np
import pytest

import simwarp
from gpu.compile import compile
from simwarp.faults import DivisionByZero
from support import small_kernels as small

run, fault_of, line_of, STORE = small.run, small.fault_of, small.line_of, small.STORE

SOURCE = """
extern "C" __global__ void divide(int* y, int n) {
    int t = threadIdx.x;
    y[t] = 100 / (t - n);
}
extern "C" __global__ void modulo(int* y, int n) {
    int t = threadIdx.x;
    y[t] = y[t] % n;
}
extern "C" __global__ void wide(int* y, int n) {
    int t = threadIdx.x;
    y[t] = (int)(1000000007ll * (t + 1) / (long long)(t - n));
}
extern "C" __global__ void branch(int* y, int n) {
    int t = threadIdx.x;
    if ((unsigned)y[t] / (unsigned)(t - n) > 3) y[t] = 1;
}
extern "C" __global__ void address(int* y, int n) {
    int t = threadIdx.x;
    y[(200 / (t - n)) & 31] = 1;
}
extern "C" __global__ void checked(int* y, int n) {
    int t = threadIdx.x, d = t - n;
    y[t] = d != 0 ? 100 / d : 7;
}
extern "C" __global__ void dropped(int* y, int n) {
    int t = threadIdx.x, d = t - n;
    int q = 100 / d, r = 100 % d;
    y[t] = d != 0 ? q + r : 7;
}
extern "C" __global__ void returned(int* y, int n) {
    int t = threadIdx.x;
    if (t == n) return;
    y[t] = 100 / (t - n);
}
"""
options = pytest.mark.parametrize("option", ["-O3", "-G"])


@cache
def compiled(option):
    return compile(SOURCE, "division.cu", options=["-G"] if option == "-G" else []).text


def launch(name, option, n, device=None):
    device = device or simwarp.Device(checks={"races": "off"})
    y = device.upload(np.arange(32, dtype=np.int32), "y")
    device.load(compiled(option)).kernel(name)((1, 1, 1), (32, 1, 1), y, np.int32(n))
    return y.download().tolist()


@options
@pytest.mark.parametrize(
    ("name", "n", "line", "lane"),
    [
        ("divide", 9, 4, 9),
        ("modulo", 0, 8, 0),
        ("wide", 3, 12, 3),
        ("branch", 31, 16, 31),
        ("address", 2, 20, 2),
    ],
)
def test_a_used_quotient_of_a_division_by_zero_is_reported(name, n, line, lane, option):
    with pytest.raises(DivisionByZero) as caught:
        launch(name, option, n)
    place, use = caught.value.place, caught.value.use
    assert place.source_line in (line, None)  # 64-bit divisions are split in two, of which one has no line
    assert (use.source_line, place.lane, use.lane) == (line, lane, lane)
    assert place.text.startswith(("div", "rem"))
    assert launch(name, option, 40)  # no thread divides by zero
    assert launch(name, option, n, simwarp.Device(checks={"division": "off", "races": "off"}))


@options
@pytest.mark.parametrize(("name", "at_n"), [("checked", 7), ("dropped", 7), ("returned", 5)])
def test_an_unused_quotient_of_a_division_by_zero_is_not_reported(name, at_n, option):
    truncated = [int(100 / (t - 5)) if t != 5 else at_n for t in range(32)]
    if name == "dropped":
        truncated = [q + 100 - (t - 5) * q if t != 5 else at_n for t, q in enumerate(truncated)]
    assert launch(name, option, 5) == truncated


def test_inactive_lanes_may_hold_zero_divisors():
    body = """sub.u32 %r3, %lane, 4; setp.ne.u32 %p1, %r3, 0; mov.u32 %r2, 9; mov.u32 %r4, 60;
@%p1 div.u32 %r2, %r4, %r3;
shr.u32 %r2, %r2, 29;
"""
    assert run(body + STORE) == [0] * 32


def test_an_overwritten_quotient_is_not_reported():
    body = (
        "mov.u32 %r3, 0; div.s32 %r2, 5, %r3; setp.lt.u32 %p1, %lane, 8;\n@%p1 bra ON;\nmov.u32 %r2, 1;\nON: "
    )
    assert fault_of(DivisionByZero, body + STORE).count == 8
    assert run(body.replace("%lane, 8", "%lane, 0") + STORE) == [1] * 32


def test_a_reported_division_by_zero_gives_the_result_of_an_h200():
    device = simwarp.Device(checks="report")
    body = "sub.s32 %r3, %lane, 30; rem.s32 %r4, 7, %r3; add.u32 %r2, %r4, 1;\n"
    left = run(body + STORE, device=device)
    assert left[30] == 0
    (fault,) = device.faults
    assert (type(fault), fault.place.line, fault.use.line) == (
        DivisionByZero,
        line_of("rem.s32", body + STORE),
        line_of(STORE, body + STORE),
    )
