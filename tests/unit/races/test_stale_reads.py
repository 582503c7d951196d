"""Reads through caches that do not see what the same launch writes: found in any order."""

import numpy as np
import pytest

import simwarp
from gpu.compile import compile
from simwarp.faults import CopyInFlight, StaleRead

SCHEDULES = [("lowest pc", 0), ("stack", 0), *(("random", seed) for seed in range(3))]
COPIES = """
#include <cuda/ptx>
namespace ptx = cuda::ptx;"""
HEAD = """
extern "C" __global__ void k(int* x, int* y, int* z)
{
    const int t = threadIdx.x, b = blockIdx.x, i = b * blockDim.x + t;
    extern __shared__ __align__(16) int s[];
"""
BULK = """s[t] = t; ptx::fence_proxy_async(); __syncthreads();
    if (t == 0 && b == 0) { ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, x, s, 128);
        ptx::cp_async_bulk_commit_group(); ptx::cp_async_bulk_wait_group(ptx::n32_t<0>{}); }
    __syncthreads();"""
LATER = "__syncthreads();"
WRONG = {
    "barrier": "x[t] = t; __syncthreads(); y[i] = __ldg(x + 63 - t);",
    "own write": "x[i] = t; y[i] = __ldg(x + i);",
    "write after": f"y[i] = __ldg(x + i); {LATER} x[i] = 1;",
    "vectors": "reinterpret_cast<int4*>(x)[t] = make_int4(1, 2, 3, 4); __syncthreads(); y[i] = __ldg(x + t);",
    "wide load": "((char*)x)[5] = 1; __syncthreads(); int4 v = __ldg((int4*)x); y[i] = v.x + v.y;",
    "atomic": "atomicAdd(x + t, 1); __syncthreads(); y[i] = __ldg(x + t);",
    "atomic after": f"y[i] = __ldcg(x + 128 + t) + __ldg(x + t); {LATER} atomicAdd(x + 63 - t, 1);",
    "other block": "if (b == 0) x[t] = t; else y[i] = __ldg(x + t);",
    "other block after": "if (b == 1) x[t] = t; else y[i] = __ldg(x + t);",
    "hint": 'x[i] = t; int v; asm volatile("ld.global.nc.L1::no_allocate.L2::128B.b32 %0, [%1];"'
    ' : "=r"(v) : "l"(x + i)); y[i] = v;',
    "uniform load": 'x[t] = t; __syncthreads(); int v; asm volatile("ldu.global.b32 %0, [%1];"'
    ' : "=r"(v) : "l"(x)); y[i] = v;',
    "bulk copy": BULK + "y[i] = __ldg(x + t);",
    "bulk copy after": f"y[i] = __ldg(x + t); {LATER}" + BULK,
    "memset": "for (int j = 0; j < 4; j++) x[j * 64 + t] = 0; __syncthreads(); y[i] = __ldg(x + t);",
}
RIGHT = {
    "plain load": "x[i] = t; __syncthreads(); y[i] = x[i];",
    "neighbours": "x[128 + i] = t; __syncthreads(); y[i] = __ldg(x + t);",
    "neighbouring bytes": "((char*)x)[4 * i + 1] = 1; y[i] = __ldg((const unsigned char*)x + 4 * i);",
    "another array": "z[i] = t; __syncthreads(); y[i] = __ldg(x + t);",
    "bulk copy beside": BULK + "y[i] = __ldg(x + 128 + t);",
}


def faults_of(body, checks="report", launches=1, grid=2, **options):
    device = simwarp.Device(checks=checks, **options)
    x, y, z = (device.upload(np.zeros(512, np.int32), name) for name in "xyz")
    kernel = device.load(compile(COPIES * ("ptx::" in body) + HEAD + body + "}", "stale.cu")).kernel("k")
    for _ in range(launches):
        kernel(grid, 64, x, y, z, shared=256)
    return device.faults


@pytest.mark.at_most(4)
@pytest.mark.parametrize("name", WRONG)
def test_a_read_only_load_of_what_the_launch_writes_is_found_under_every_schedule(name):
    chunks = (64, 32768) if "block" in name or "bulk" in name else (32768,)
    for schedule, seed in SCHEDULES:
        for chunk in chunks:
            found = faults_of(WRONG[name], schedule=schedule, seed=seed, chunk_lanes=chunk)
            assert [type(fault) for fault in found] == [StaleRead]
            assert (found[0].check, found[0].allocation) == ("races", "x")
            assert "ld" in found[0].place.text
            assert not found[0].other.text.startswith("ld")


@pytest.mark.at_most(2)
@pytest.mark.parametrize("name", RIGHT)
def test_reads_of_bytes_that_the_launch_does_not_write_are_silent(name):
    for schedule, seed in SCHEDULES:
        assert faults_of(RIGHT[name], schedule=schedule, seed=seed) == []


def test_what_an_earlier_launch_wrote_is_read():
    device = simwarp.Device()
    x, y = (device.upload(np.zeros(64, np.int32), name) for name in "xy")
    module = device.load(
        compile(
            """extern "C" __global__ void write(int* x) { x[threadIdx.x] = threadIdx.x; }
            extern "C" __global__ void read(const int* __restrict__ x, int* __restrict__ y)
            { y[threadIdx.x] = x[63 - threadIdx.x]; }""",
            "two.cu",
        )
    )
    module.kernel("write")(1, 64, x)
    module.kernel("read")(1, 64, x, y)
    assert y.download()[:2].tolist() == [63, 62]
    with pytest.raises(StaleRead, match="read-only load of x") as caught:
        module.kernel("read")(1, 64, x, x)
    assert "__restrict__" in str(caught.value)


SURFACES = """extern "C" __global__ void k(cudaSurfaceObject_t s, cudaTextureObject_t t, int* out) {
    int i = threadIdx.x, b = blockIdx.x, v = 0;
    BODY
    out[b * 32 + i] = v;
}"""


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ("surf1Dwrite(i, s, i * 4); __syncthreads(); v = tex1D<int>(t, i);", True),
        ("surf1Dwrite(i, s, i * 4); __syncthreads(); surf1Dread(&v, s, (31 - i) * 4);", False),
        ("surf1Dread(&v, s, i * 4); surf1Dwrite(v + 1, s, i * 4);", False),
        ("v = tex1D<int>(t, i); __syncthreads(); surf1Dwrite(i, s, i * 4);", False),
        ("if (b == 0) surf1Dwrite(i, s, i * 4); else surf1Dread(&v, s, i * 4);", True),
    ],
)
def test_texels_that_the_launch_wrote(body, wrong):
    two = "b ==" in body
    for schedule, seed in SCHEDULES if not two else SCHEDULES[:2]:
        chunk = 32 if two else 32768
        device = simwarp.Device(checks="report", schedule=schedule, seed=seed, chunk_lanes=chunk)
        image = device.upload_image(np.zeros(32, np.int32), "image")
        out = device.upload(np.zeros(64, np.int32), "out")
        kernel = device.load(compile(SURFACES.replace("BODY", body), "surfaces.cu")).kernel("k")
        kernel(1 + two, 32, device.surface(image), device.texture(image), out)
        assert [type(fault) for fault in device.faults] == [StaleRead] * wrong


def test_a_bulk_copy_of_another_chunk_is_named_at_its_issue():
    body = BULK.replace("b == 0", "b == 0 && z") + "if (b) y[t] = x[t];"
    found = faults_of(body, chunk_lanes=64)
    assert {type(fault) for fault in found} == {CopyInFlight}
    assert (found[0].place.block, found[0].copy.block) == ((1, 0, 0), (0, 0, 0))
