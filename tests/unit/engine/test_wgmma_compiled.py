"""Products of warpgroups in CUDA C++ with inline PTX, compiled by NVRTC: whole kernels, on every schedule."""

import numpy as np
import pytest

import simwarp
from gpu.compile import compile
from simwarp.faults import CopyInFlight, MissingProxyFence, ProductInFlight

SCHEDULES = ["lowest pc", "stack", "random"]
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)
HELPERS = """
__device__ unsigned long long describe(const void* p, unsigned leading, unsigned stride, unsigned swizzle) {
    unsigned long long start = ((unsigned)__cvta_generic_to_shared(p) & 0x3FFFF) >> 4;
    return start | (unsigned long long)(leading >> 4) << 16 | (unsigned long long)(stride >> 4) << 32
           | (unsigned long long)swizzle << 62;
}
#define FENCE asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define COMMIT asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define WAIT(n) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory")
#define PROXY asm volatile("fence.proxy.async;" ::: "memory")
"""
F16 = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"
B1 = "wgmma.mma_async.sync.aligned.m64n32k256.s32.b1.b1.and.popc"


def product(name, opcode, count, letter, signs):
    """A device function that multiplies into ``count`` registers."""
    registers = ", ".join(f"%{i}" for i in range(count))
    operands = ", ".join(f'"+{letter}"(d[{i}])' for i in range(count))
    kind = {"f": "float", "r": "int"}[letter]
    return f"""
__device__ void {name}({kind}* d, unsigned long long a, unsigned long long b, int adds) {{
    asm volatile("{{.reg .pred p; setp.ne.b32 p, %{count + 2}, 0;\\n"
        "{opcode} {{{registers}}}, %{count}, %{count + 1}, p{signs};}}\\n"
        : {operands} : "l"(a), "l"(b), "r"(adds));
}}"""


GEMM = (
    "#include <cuda_fp16.h>"
    + HELPERS
    + product("multiply", F16, 32, "f", ", 1, 1, 0, 0")
    + """
// C (M x N) = A (M x K) B (N x K) transposed: tiles of 64 x 64, two stages of 64 k, swizzle of 128 bytes.
extern "C" __global__ void gemm(const __half* A, const __half* B, float* C, int N, int K) {
    __shared__ __align__(1024) char tiles[2][2][64 * 128];
    int t = threadIdx.x, row = blockIdx.y * 64, column = blockIdx.x * 64;
    float d[32];
    for (int k = 0, s = 0; k < K; k += 64, s ^= 1) {
        for (int i = t; i < 64 * 8; i += 128) {
            int r = i / 8, at = r * 128 + ((i % 8) ^ (r % 8)) * 16, from = k + i % 8 * 8;
            *(uint4*)&tiles[s][0][at] = *(const uint4*)&A[(row + r) * K + from];
            *(uint4*)&tiles[s][1][at] = *(const uint4*)&B[(column + r) * K + from];
        }
        PROXY_FENCE;
        __syncthreads();
        FENCE_REGISTERS;
#pragma unroll
        for (int step = 0; step < 4; step++)
            multiply(d, describe(&tiles[s][0][32 * step], 16, 1024, 1),
                     describe(&tiles[s][1][32 * step], 16, 1024, 1), k + step > 0);
        COMMIT;
        WAIT(PENDING);
    }
    AT_THE_END;
    int r = row + t / 32 * 16 + t % 32 / 4, c = column + t % 4 * 2;
    for (int j = 0; j < 8; j++)
        for (int h = 0; h < 2; h++)
            for (int i = 0; i < 2; i++)
                C[(r + 8 * h) * N + c + 8 * j + i] = d[4 * j + 2 * h + i];
}
"""
)
CORRECT = {"PROXY_FENCE": "PROXY", "FENCE_REGISTERS": "FENCE", "PENDING": 0, "AT_THE_END": "WAIT(0)"}
BITS = (
    HELPERS
    + product("multiply", B1, 16, "r", "")
    + """
extern "C" __global__ void shared_bits(const unsigned* A, const unsigned* B, int* C) {
    __shared__ __align__(128) unsigned a[64 * 8], b[32 * 8];
    int t = threadIdx.x, d[16];
    // Core matrices of 8 rows of 16 bytes; the two along k are neighbours.
    for (int i = t; i < 64 * 8; i += 128) a[i / 64 * 64 + i % 8 / 4 * 32 + i / 8 % 8 * 4 + i % 4] = A[i];
    for (int i = t; i < 32 * 8; i += 128) b[i / 64 * 64 + i % 8 / 4 * 32 + i / 8 % 8 * 4 + i % 4] = B[i];
    PROXY;
    __syncthreads();
    FENCE;
    multiply(d, describe(a, 128, 256, 0), describe(b, 128, 256, 0), 0);
    COMMIT;
    WAIT(0);
    for (int i = 0; i < 16; i++)
        C[(t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8) * 32 + i / 4 * 8 + t % 4 * 2 + i % 2] = d[i];
}
"""
)


def compiled(source, name, defines=None):
    return compile(source, f"{name}.cu", defines, options=["--gpu-architecture=compute_90a"]).text


def gemm(m, n, k, schedule="lowest pc", **changes):
    """C of the kernel, and the exact product."""
    random = np.random.default_rng(m + n + k)
    a, b = (random.integers(-4, 5, (rows, k)).astype(np.float16) for rows in (m, n))
    device = simwarp.Device(schedule=schedule)
    kernel = device.load(compiled(GEMM, "gemm", CORRECT | changes)).kernel("gemm")
    c = device.allocate((m, n), np.float32, "C")
    given = device.upload(a, "A"), device.upload(b, "B"), c, np.int32(n), np.int32(k)
    kernel((n // 64, m // 64, 1), (128, 1, 1), *given)
    return c.download(), a.astype(np.float64) @ b.T.astype(np.float64)


@pytest.mark.at_most(3)
@every_schedule
@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 64), (128, 64, 192)])
def test_a_gemm_of_halves(m, n, k, schedule):
    found, expected = gemm(m, n, k, schedule)
    assert np.array_equal(found, expected)


@every_schedule
def test_a_gemm_whose_products_overlap_with_the_next_loads(schedule):
    """The wait leaves a group pending; two turns later, behind a barrier, its stage is written again."""
    found, expected = gemm(64, 64, 256, schedule, PENDING=1, AT_THE_END="WAIT(0)")
    assert np.array_equal(found, expected)


@pytest.mark.at_most(2)
@every_schedule
@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"FENCE_REGISTERS": ""}, ProductInFlight),
        ({"PENDING": 1, "AT_THE_END": ""}, ProductInFlight),
        ({"PENDING": 2}, CopyInFlight),
        ({"PROXY_FENCE": ""}, MissingProxyFence),
    ],
    ids=["no wgmma.fence", "no wait at the end", "stage overwritten", "no fence.proxy.async"],
)
def test_mistakes_in_the_gemm_are_named_with_their_line(change, kind, schedule):
    with pytest.raises(kind) as caught:
        gemm(64, 64, 256, schedule, **change)
    assert caught.value.place.source_file == "gemm.cu"


def bits(threads, changes, schedule):
    """The result of `BITS` with parts replaced, 64 rows for each warpgroup, and the exact product."""
    source = BITS
    for old, new in changes.items():
        assert old in source
        source = source.replace(old, new)
    random = np.random.default_rng(8)
    a, b = (random.integers(0, 2**32, (rows, 8), dtype=np.uint32) for rows in (64, 32))
    device = simwarp.Device(schedule=schedule)
    kernel = device.load(compiled(source, "shared_bits")).kernel("shared_bits")
    c = device.allocate((threads // 128 * 64, 32), np.int32, "C")
    kernel((1, 1, 1), (threads, 1, 1), device.upload(a, "A"), device.upload(b, "B"), c)
    return c.download(), np.bitwise_count(a[:, None] & b).sum(axis=-1)


@every_schedule
def test_a_product_of_bits(schedule):
    found, expected = bits(128, {}, schedule)
    assert np.array_equal(found, expected)


@every_schedule
def test_a_wait_of_one_warp_ends_the_product_of_its_warpgroup(schedule):
    """Warp 0 waits, a fifth warp overwrites the tiles, and only then the last warp of the warpgroup waits."""
    changes = {
        "+= 128)": "+= 128) if (t < 128)",
        "    FENCE;": """    if (t >= 128) {
        asm volatile("barrier.sync 1, 64;" ::: "memory");
        for (int i = t % 32; i < 64 * 8; i += 32) a[i] = b[i / 2] = 0;
        asm volatile("barrier.arrive 2, 64;" ::: "memory");
        return;
    }
    FENCE;""",
        "    WAIT(0);": """    if (t / 32 == 3) asm volatile("barrier.sync 2, 64;" ::: "memory");
    WAIT(0);
    if (t / 32 == 0) asm volatile("barrier.arrive 1, 64;" ::: "memory");""",
    }
    found, expected = bits(160, changes, schedule)
    assert np.array_equal(found, expected)
