"""`gpu.CudaDevice` on a real GPU: what the simulator cannot stand in for."""

from __future__ import annotations

import numpy as np
import pytest

import gpu
import reference
from gpu.compile import compile
from reference.errors import DtypeError, NotANumberError, ShapeError

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device():
    return gpu.CudaDevice()


def _matrix(rows, columns, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(dtype)


def test_default_device_is_the_gpu():
    a, b = _matrix(33, 70), _matrix(70, 9, seed=1)
    np.testing.assert_array_equal(gpu.bmm(a, b), reference.bmm(a, b))


@pytest.mark.parametrize("sizes", [(2048, 2048, 2048), (4099, 1031, 8191), (1, 70001, 3), (3, 5, 1000003)])
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_large(device, sizes, transpose_a, transpose_b):
    m, n, k = sizes
    a = _matrix(*((k, m) if transpose_a else (m, k)))
    b = _matrix(*((n, k) if transpose_b else (k, n)), seed=1)
    options = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    np.testing.assert_array_equal(gpu.bmm(a, b, **options, device=device), reference.bmm(a, b, **options))


def test_device_arrays_in_device_array_out(device):
    a, b = _matrix(65, 130, np.float16), _matrix(130, 31, np.float16, 1)
    c = gpu.bmm(device.upload(a), device.upload(b))
    assert isinstance(c, type(device.upload(a)))
    np.testing.assert_array_equal(c.download(), reference.bmm(a, b))


def test_packed_on_the_device(device):
    a, b = _matrix(65, 130), _matrix(130, 31, seed=1)
    packed = gpu.pack(device.upload(a), layout="column")
    expected = reference.pack(a, layout="column")
    np.testing.assert_array_equal(packed.words.download(), expected.words)
    np.testing.assert_array_equal(
        gpu.bmm(packed, gpu.pack(device.upload(b))).download(), reference.bmm(a, b)
    )


def test_nan_of_a_device_array_is_told_at_the_next_synchronisation(device):
    bad = _matrix(40, 40)
    bad[7, 9] = np.nan
    x = device.upload(bad)
    packed = gpu.pack(x)
    with pytest.raises(NotANumberError):
        device.synchronize()
    device.synchronize()  # told once
    gpu.pack(device.upload(_matrix(40, 40))).words.download()
    assert packed.shape == (40, 40)


def test_nan_of_a_host_array_is_told_with_its_index(device):
    bad = _matrix(40, 50)
    bad[7, 9] = np.nan
    with pytest.raises(NotANumberError, match=r"b\[7, 9\]"):
        gpu.bmm(_matrix(3, 40), bad, device=device)


def test_torch_and_cupy_arrays_without_a_copy(device):
    torch = pytest.importorskip("torch")
    a, b = _matrix(37, 61), _matrix(61, 45, seed=1)
    expected = reference.bmm(a, b)
    c = gpu.bmm(torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda(), device=device)
    np.testing.assert_array_equal(c.download(), expected)
    assert torch.as_tensor(c, device="cuda").cpu().numpy().tolist() == expected.tolist()
    with pytest.raises(ShapeError, match="contiguous"):
        gpu.bmm(torch.from_numpy(a.T.copy()).cuda().T, torch.from_numpy(b).cuda(), device=device)
    cupy = pytest.importorskip("cupy")
    c = gpu.bmm(cupy.asarray(a), cupy.asarray(b), device=device)
    np.testing.assert_array_equal(c.download(), expected)


def test_a_wrong_dtype_on_the_device(device):
    with pytest.raises(DtypeError, match="int32"):
        gpu.pack(device.upload(np.zeros((3, 3), np.int32)))


SHIFT = """
#include <cooperative_groups.h>
extern "C" __global__ void shift(unsigned* words, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned mine = words[i];
    cooperative_groups::this_grid().sync();
    words[(i + 1) % n] = mine;
}
"""


def test_cooperative_launch(device):
    n = 64 * 128
    words = device.upload(np.arange(n, dtype=np.uint32))
    kernel = device.load(compile(SHIFT, "shift.cu", arch=device.compute_capability).text).kernel("shift")
    kernel((64, 1, 1), (128, 1, 1), words, np.uint32(n), cooperative=True)
    np.testing.assert_array_equal(words.download(), np.roll(np.arange(n, dtype=np.uint32), 1))


def test_streams_and_events(device):
    stream, start, end = device.stream(), device.event(), device.event()
    host = np.arange(1 << 20, dtype=np.uint32)
    start.record(stream)
    array = device.allocate(host.shape, host.dtype)
    array.upload(host, stream)
    np.testing.assert_array_equal(array.download(stream), host)
    end.record(stream)
    end.synchronize()
    assert end.seconds_since(start) > 0
    np.testing.assert_array_equal(array.view((1 << 10, 1 << 10)).download(), host.reshape(1 << 10, 1 << 10))
    with pytest.raises(ShapeError):
        array.view((1 << 21,))


def test_arguments_must_be_numpy_scalars(device):
    kernel = device.load(compile('extern "C" __global__ void f(unsigned n) {}', "f.cu").text).kernel("f")
    with pytest.raises(DtypeError, match="argument 0"):
        kernel((1, 1, 1), (1, 1, 1), 5)
