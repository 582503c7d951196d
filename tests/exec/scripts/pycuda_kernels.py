"""A script of PyCUDA: a module of CUDA C++, arrays, a stream, a prepared call, and a write out of bounds."""

import sys

import numpy as np
import pycuda.autoinit  # noqa: F401 - it makes the context
import pycuda.driver as cuda
from pycuda import gpuarray
from pycuda.compiler import SourceModule

module = SourceModule(
    """
__constant__ float factor;
__global__ void scale(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= factor;
}
__global__ void fill(float* x) {
    x[threadIdx.x] = 1;
}
"""
)
address, size = module.get_global("factor")
cuda.memcpy_htod(address, np.float32(3))
scale = module.get_function("scale")
host = np.arange(100, dtype=np.float32)
scale(cuda.InOut(host), np.int32(100), block=(64, 1, 1), grid=(2, 1))
assert (host == 3 * np.arange(100)).all()
array = gpuarray.to_gpu(host)
stream = cuda.Stream()
scale.prepare("Pi")
scale.prepared_async_call((2, 1), (64, 1, 1), stream, array.gpudata, 100)
stream.synchronize()
assert ((array + 1).get() == 3 * host + 1).all()
sys.stdout.write("pycuda_kernels: right\n")
small = gpuarray.zeros(50, np.float32)
try:
    module.get_function("fill")(small, block=(64, 1, 1))
    cuda.Context.synchronize()
except cuda.Error as error:
    sys.stdout.write(type(error).__name__)
