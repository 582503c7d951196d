"""Costs of lines that are known without a run, against the counters of a run."""

from collections import Counter

import numpy as np
import pytest

import simwarp
from gpu.compile import compile
from simwarp.observe.static_costs import line_costs
from simwarp.ptx.parse import parse

STRAIGHT = """
__device__ double half_of(double x) { return x * 0.5; }
extern "C" __global__ void f(float4* x, double* y, int* counts) {
    __shared__ float t[32];
    int i = threadIdx.x;
    float4 v = x[i];
    t[i] = v.x * v.y + v.z;
    __syncthreads();
    y[i] = half_of(t[31 - i]) + y[i];
    x[i] = make_float4(v.w, v.w, v.x, v.x);
    atomicAdd(counts, i);
}
"""
LANES = 32


def summed(costs, name):
    return sum((getattr(cost, name) for cost in costs), Counter())


def test_straight_code_costs_what_a_run_of_one_warp_counts():
    ptx = compile(STRAIGHT, "f.cu").text
    device = simwarp.Device(observe="traffic")
    arrays = (
        device.upload(np.ones((LANES, 4), np.float32)),
        device.upload(np.ones(LANES)),
        device.upload(np.zeros(1, np.int32)),
    )
    device.load(ptx).kernel("f")((1, 1, 1), (LANES, 1, 1), *arrays)
    costs = line_costs(parse(ptx).entries["f"].instructions)
    traffic = device.report.traffic
    for name in ("loaded", "stored", "atomics", "operations"):
        times_32 = Counter({key: LANES * count for key, count in summed(costs, name).items()})
        assert times_32 == getattr(traffic, name), name
    assert LANES * sum(len(cost.instructions) for cost in costs) == device.executed
    assert traffic.loaded["global"] == LANES * (16 + 8)


def test_each_line_has_its_own_bytes():
    found = {
        cost.line: cost
        for cost in line_costs(parse(compile(STRAIGHT, "f.cu").text).entries["f"].instructions)
    }
    assert dict(found["f.cu:6"].loaded) == {"global": 16}
    assert dict(found["f.cu:7"].stored) == {"shared": 4}
    assert dict(found["f.cu:9"].loaded) == {"shared": 4, "global": 8}
    assert dict(found["f.cu:11"].atomics) == {"global": 1}
    assert found["f.cu:2"].operations["f64"] == 1


@pytest.mark.parametrize(
    ("text", "loaded"),
    [
        ("ld.v2.u64 {%a, %b}, [%a];", {"generic": 16}),
        ("ld.param.u64 %a, [x];", {}),
        ("ld.const.u64 %a, [%b];", {"const": 8}),
        ("nothing.known.u64 %a, %b;", {}),
    ],
)
def test_spaces_and_instructions_without_bytes(text, loaded):
    head = ".version 9.0 .target sm_90 .address_size 64 .entry f(.param .u64 x)"
    ptx = f"{head} {{ .reg .b64 %a, %b;\n{text}\nret; }}"
    found = line_costs(parse(ptx).entries["f"].instructions)
    assert [len(cost.instructions) for cost in found] == [1, 1]
    assert dict(found[0].loaded) == loaded
