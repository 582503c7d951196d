"""A kernel that calls CUDA C++, which Numba compiles by NVRTC, and has constants; PTX for no device."""

import tempfile
from pathlib import Path

import numpy as np
from numba import cuda, int32

SOURCE = """
extern "C" __device__ int twice(int *result, int x)
{
    *result = 2 * x;
    return 0;
}
"""
TABLE = np.arange(10, dtype=np.int32)
twice = cuda.declare_device("twice", "int32(int32)")


def main():
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "twice.cu")
        source.write_text(SOURCE)

        @cuda.jit((int32[:],), link=[str(source)])
        def kernel(x):
            i = cuda.grid(1)
            x[i] = twice(cuda.const.array_like(TABLE)[i])

    ptx, _ = cuda.compile_ptx(lambda a: a + 1, (int32,), device=True)
    assert ".target sm_75" in ptx
    x = np.zeros(10, np.int32)
    kernel[1, 10](x)
    assert (x == 2 * TABLE).all()
    (compiled,) = kernel.overloads.values()
    assert compiled.const_mem_size == TABLE.nbytes


if __name__ == "__main__":
    main()
