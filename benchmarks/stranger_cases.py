"""The kernels that `strangers.py` runs: their sources, our changes to them, and their known bugs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from stranger_problems import (
    block_product,
    brain_attention,
    brain_boxes,
    brain_product,
    brain_tiles,
    fragment_product,
    half_attention,
    half_product,
    normalised,
    scaled_product,
    single_product,
)
from stranger_sources import Bug, Case

SAMPLES = "NVIDIA/cuda-samples"
FEATURES = "Samples/3_CUDA_Features"
COPIES = f"{FEATURES}/globalToShmemAsyncCopy/globalToShmemAsyncCopy.cu"
OTHER_OPERAND = Bug(
    "tiles of B are addressed by the tile of A: right only if all elements of B are equal, as in the sample",
    (r"&B\[a(Stage)? \+ wA", r"&B[b\1 + wB"),
)
TOO_FAR_AHEAD = Bug(
    "five stages are loaded into four buffers, and a buffer is loaded again before all warps have read it",
    (r"<= a \+ aStep \* maxPipelineStages", "< a + aStep * (maxPipelineStages - 1)"),
)
EVERY_ROW = Bug(
    "the barrier is initialised by the threads of a column, once by each: blocks have two dimensions",
    (r"threadIdx\.x == 0(?=\) \{\s+init)", "threadIdx.x == 0 && threadIdx.y == 0"),
)
ORDERED_BY_A_VOTE = Bug(
    "libcu++: ~pipeline invalidates barriers that other lanes of its warp used, behind a "
    "match.sync, which orders no memory",
    (r"^(?=    if \(threadIdx\.y < consumer_row_count\) \{)", "    __syncwarp();"),
)


def sample(name: str, form: str, producers: int = 0, bugs: Sequence[Bug] = ()) -> Case:
    """A kernel of globalToShmemAsyncCopy."""
    problem = block_product(producers)
    after = f"template __global__ void {name}<16>(float*, const float*, const float*, int, int);"
    return Case(SAMPLES, COPIES, name, form, problem, after=after, bugs=bugs)


def tensor_sample(kind: str, name: str, tile: tuple[int, int], steps: int, shared: int) -> Case:
    """A kernel of …TensorCoreGemm; ``tile`` has its rows, and its columns along K."""
    problem = fragment_product(kind, tile, steps, shared)
    sizes = [(r"(#define [MN]_TILES) \d+", r"\1 8"), (r"(#define K_TILES) \d+", rf"\1 {steps}")]
    path = f"{FEATURES}/{kind}TensorCoreGemm/{kind}TensorCoreGemm.cu"
    host = ["__host__ void init_host_matrices"]
    return Case(SAMPLES, path, name, "cuda::pipeline of a thread, wmma", problem, host=host, edits=sizes)


CUDA_SAMPLES = [
    sample("MatrixMulAsyncCopySingleStage", "cuda::pipeline of a thread"),
    sample("MatrixMulAsyncCopyLargeChunk", "cuda::pipeline of a thread", bugs=[OTHER_OPERAND]),
    sample("MatrixMulAsyncCopyMultiStage", "cuda::pipeline of a thread, 4 stages", bugs=[TOO_FAR_AHEAD]),
    sample(
        "MatrixMulAsyncCopyMultiStageLargeChunk",
        "cuda::pipeline of a thread, 4 stages",
        bugs=[OTHER_OPERAND, TOO_FAR_AHEAD],
    ),
    sample(
        "MatrixMulAsyncCopyLargeChunkAWBarrier",
        "cuda::barrier",
        bugs=[OTHER_OPERAND, EVERY_ROW],
    ),
    sample(
        "MatrixMulAsyncCopyMultiStageSharedState",
        "cuda::pipeline of a block, producers",
        4,
        bugs=[ORDERED_BY_A_VOTE],
    ),
    Case(
        SAMPLES,
        "Samples/0_Introduction/simpleAWBarrier/simpleAWBarrier.cu",
        "normVecByDotProductAWBarrier",
        "cuda::barrier, grid sync",
        normalised,
    ),
    tensor_sample("bf16", "compute_bf16gemm_async_copy", (16, 16), 16, 73728),
    tensor_sample("tf32", "compute_tf32gemm_async_copy", (16, 8), 16, 73728),
    tensor_sample("dmma", "compute_dgemm_async_copy", (8, 4), 32, 69632),
]


def hgemm(file: str, name: str, form: str, shared: int) -> Case:
    """A kernel of Bruce-Lee-LY/cuda_hgemm: a tile of 256 x 128, B by columns."""
    problem = half_product((16, 1, 1), (256,), (256, 128, 160), np.uint64, shared=shared)
    return Case(
        "Bruce-Lee-LY/cuda_hgemm",
        f"src/{file}",
        name,
        form,
        problem,
        before="#include <cuda_fp16.h>\n#include <mma.h>\n"
        "__device__ inline size_t div_ceil(size_t a, size_t b) { return (a + b - 1) / b; }",
        edits=[(r'^#include "common.h"', '#include "ptx.h"')],
        include=["src/common"],
    )


CUDA_HGEMM = [
    hgemm("mma/mma_async.cu", "mmaAsyncKernel", "cp.async.cg, mma", 65536),
    hgemm("mma/mma_async_stage2.cu", "mmaAsyncStage2Kernel", "cp.async.cg, 2 stages, mma", 65536),
    hgemm("mma/mma_async_stage4.cu", "mmaAsyncStage4Kernel", "cp.async.cg, 4 stages, mma", 98304),
    hgemm("wmma/wmma_async_stage3.cu", "wmmaAsyncStage3Kernel", "cp.async.cg, 3 stages, wmma", 92160),
]

LEET = "xlite-dev/LeetCUDA"
LAST_BUFFER = Bug(
    "the last tile is taken from the second buffer: right only if the tiles along K are even in number",
    (r"(s_[ab])\[1\]\[tk\]", r"\1[((K + BK - 1) / BK - 1) & 1][tk]"),
)
LEET_CUDA = [
    Case(
        LEET,
        "kernels/hgemm/mma/basic/hgemm_mma_stage.cu",
        "hgemm_mma_m16n8k16_mma2x4_warp4x4_stages_kernel",
        "cp.async.cg, 3 stages, mma",
        half_product((1, 1, 1), (256,), (128, 128, 96), by_columns=""),
        after="template __global__ void hgemm_mma_m16n8k16_mma2x4_warp4x4_stages_kernel"
        "<16, 8, 16, 2, 4, 4, 4, 0, 0, 3, false>(half*, half*, half*, int, int, int);",
    ),
    Case(
        LEET,
        "kernels/hgemm/mma/swizzle/hgemm_mma_stage_swizzle.cu",
        "hgemm_mma_m16n8k16_mma2x4_warp4x4x2_stages_dsmem_swizzle_kernel",
        "cp.async.cg, 3 stages, swizzled, mma",
        half_product((1, 1, 1), (256,), (128, 128, 160), by_columns="", shared=98304),
        after="template __global__ void hgemm_mma_m16n8k16_mma2x4_warp4x4x2_stages_dsmem_swizzle_kernel"
        "<16, 8, 16, 2, 4, 4, 4, 2, 0, 0, 3, false, true>"
        "(const half*, const half*, half*, int, int, int);",
    ),
    Case(
        LEET,
        "kernels/hgemm/naive/hgemm_async.cu",
        "hgemm_t_8x8_sliced_k16_f16x8_pack_dbuf_async_kernel",
        "cp.async.cg, 2 stages",
        half_product((1, 1), (16, 16), (128, 128, 48), by_columns=""),
        after="template __global__ void hgemm_t_8x8_sliced_k16_f16x8_pack_dbuf_async_kernel"
        "<128, 128, 16, 8, 8, 8>(half*, half*, half*, int, int, int);",
        bugs=[LAST_BUFFER],
    ),
]


def fast(number: int, form: str, sizes: str, parameter: str, **more: Any) -> Case:
    """A kernel of pranjalssh/fast.cu."""
    types = f"int, int, int, bf16*, {parameter}, {parameter}"
    return Case(
        "pranjalssh/fast.cu",
        f"examples/matmul/matmul_{number}.cuh",
        f"matmulKernel{number}",
        form,
        before="#include <cuda.h>\n#include <cuda_bf16.h>\n#include <cuda/barrier>\n"
        "typedef __nv_bfloat16 bf16;",
        after=f"template __global__ void matmulKernel{number}<{sizes}>({types});\n}}",
        host=["void create_tensor_map", "__host__ static"],
        arch=(9, 0),
        options=["--gpu-architecture=compute_90a"],
        **more,
    )


ALIGNED_TO_A_ROW = Bug(
    "tiles are aligned to 128 bytes: descriptors of wgmma without a base offset need 1024, where the "
    "pattern of the swizzle begins",
    (r"__align__\(128\)(?= uint8_t smem)", "__align__(1024)"),
)
TENSOR_MAP = "const __grid_constant__ CUtensorMap"
LEARN = "gau-nernst/learn-cuda"
CASES = [
    *CUDA_SAMPLES,
    *CUDA_HGEMM,
    *LEET_CUDA,
    Case(
        LEET,
        "kernels/sgemm/sgemm_async.cu",
        "sgemm_t_8x4_sliced_k16_f32x4_bcf_dbuf_async_kernel",
        "cp.async.cg and .ca, 2 stages",
        single_product,
        after="template __global__ void sgemm_t_8x4_sliced_k16_f32x4_bcf_dbuf_async_kernel"
        "<64, 64, 16, 8, 4, 0>(float*, float*, float*, int, int, int);",
    ),
    Case(
        LEET,
        "kernels/flash-attn/mma/basic/flash_attn_mma_split_q.cu",
        "flash_attn_mma_stages_split_q_kernel",
        "cp.async.cg, 2 stages, mma",
        half_attention,
        include=["kernels/flash-attn/utils"],
        after="template __global__ void flash_attn_mma_stages_split_q_kernel"
        "<64, 16, 8, 16, 4, 1, 4, 1, 1, 8, 1, 8, 2, 8>(half*, half*, half*, half*, int, int);",
    ),
    Case(
        "siboehm/SGEMM_CUDA",
        "src/kernels/12_kernel_double_buffering.cuh",
        "runSgemmDoubleBuffering2",
        "cuda::barrier, 2 stages",
        scaled_product,
        before="const int WARPSIZE = 32;",
        after="template __global__ void runSgemmDoubleBuffering2<128, 128, 16, 64, 64, 4, 8, 4, 128>"
        "(int, int, int, float, float*, float*, float, float*);",
    ),
    Case(
        LEARN,
        "02b_matmul_sm80/matmul_v6.cu",
        "matmul_v6_kernel",
        "cp.async.cg, 3 stages, mma",
        brain_product,
        after="template __global__ void matmul_v6_kernel<64, 64, 64, 2, 2, 3, 0>"
        "(const nv_bfloat16*, const nv_bfloat16*, nv_bfloat16*, int, int, int);",
    ),
    Case(
        LEARN,
        "02c_matmul_sm120/matmul_v2.cu",
        "matmul_v2_kernel",
        "TMA, 3 stages, a producer, mma",
        brain_boxes,
        before="#include <cuda.h>\n#include <cuda/std/type_traits>\nnamespace std {\n"
        "using cuda::std::is_same_v;\n"
        "struct Log { template <class T> __device__ Log& operator<<(T) { return *this; } };\n"
        "__device__ Log cerr;\n__device__ int endl;\n}",
        after="template __global__ void matmul_v2_kernel<64, 64, 64, 2, 2, 3, nv_bfloat16, nv_bfloat16>"
        f"({TENSOR_MAP}, {TENSOR_MAP}, nv_bfloat16*, int, int, int);",
        arch=(9, 0),
    ),
    *(
        Case(
            LEARN,
            f"07_attention/attention_{version}.cu",
            f"attention_{version}_kernel",
            "cp.async.cg, mma",
            brain_attention,
            after=f"template __global__ void attention_{version}_kernel<64, 64, 64, 4>(const nv_bfloat16*, "
            "const nv_bfloat16*, const nv_bfloat16*, nv_bfloat16*, int, int, int);",
        )
        for version in ("v2", "v5")
    ),
    Case(
        "NVIDIA/cutlass",
        "examples/cute/tutorial/sgemm_sm80.cu",
        "gemm_tn",
        "CuTe: cp.async.ca, 3 stages, mma",
        half_product((1, 1), (128,), (128, 128, 192), by_columns="bc", shared=98304),
        entry="hgemm_tn",
        edits=[
            (r"^__global__ static$", "static __device__"),
            (r"^__launch_bounds__\(decltype.*$", ""),
            (r"^void$(?=\ngemm_[nt])", "__device__ void"),
            (r"cudaStream_t stream = 0", "int stream = 0"),
            (
                r"^  int smem_size = [\s\S]*?^\}",
                "  gemm_device(prob_shape, cta_tiler, A, dA, sA, copyA, s2r_atom_A, B, dB, sB, copyB, "
                "s2r_atom_B, C, dC, sC, mmaC, alpha, beta);\n}",
            ),
        ],
        after="using cute::half_t;\n"
        'extern "C" __global__ void hgemm_tn(const half_t* a, const half_t* b, half_t* c, int m, int n, '
        "int k)\n"
        "{ gemm_tn(m, n, k, half_t(1), a, k, b, k, half_t(0), c, m); }",
        include=["include"],
        bugs=[
            Bug(
                "threads exit before the copies that they start in the last steps have ended",
                (r"^  axpby\(", "  cp_async_wait<0>(); axpby("),
            )
        ],
    ),
    fast(
        2,
        "TMA, wgmma",
        "64, 64, 64, 64, 64, 16, 128",
        "const CUtensorMap*",
        problem=brain_tiles((128, 64, 192), (64, 64), 128),
    ),
    fast(
        6,
        "TMA, 3 stages, producers, wgmma",
        "128, 256, 64, 384, 3, 2",
        TENSOR_MAP,
        problem=brain_tiles((256, 256, 256), (128, 256), 384, shared=147456),
        edits=[(r"(Schedule<1, NUM_SM, BM, BN), 16, 8>(?= schedule)", r"\1, 1, 1>")],
        bugs=[ALIGNED_TO_A_ROW],
    ),
]
