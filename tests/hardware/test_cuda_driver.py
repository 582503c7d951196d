"""`CudaDevice` without PyCUDA: the CUDA bindings stand in for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

PROGRAM = """
import sys
sys.modules["pycuda"] = None
import numpy as np
import gpu, reference, simwarp
from gpu.cuda import driver as cuda_driver

assert cuda_driver.load() is cuda_driver
device = gpu.CudaDevice()
rng = np.random.default_rng(3)
for side in (1, 33, 257):
    a, b = rng.standard_normal((2, side, side), np.float32)
    assert np.array_equal(gpu.bmm(a, b, device=device), reference.bmm(a, b)), side
host, stream = device.pinned((1000,), np.float64), device.stream()
host[:] = rng.standard_normal(1000)
array, back = device.allocate((1000,), np.float64), device.pinned((1000,), np.float64)
array.upload(host, stream)
array.copy_to(back, stream)
stream.synchronize()
assert np.array_equal(back, host)
try:
    device.allocate((1 << 50,), np.uint8)
except cuda_driver.MemoryError as error:
    print(error)
try:
    device.load(".version 8.0 .target sm_90 .address_size 64 .entry k() { nonsense; }")
except cuda_driver.LogicError as error:
    print(str(error).splitlines()[0])
"""


def test_a_device_without_pycuda_computes_copies_and_refuses():
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=root, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "cuMemAlloc failed: out of memory"
    assert "ptxas" in done.stdout.splitlines()[1]
