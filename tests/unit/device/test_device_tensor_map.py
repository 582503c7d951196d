"""`Device.tensor_map`: the arguments of both devices, and those that the driver receives."""

import types

import numpy as np
import pytest

import simwarp
from gpu.cuda import tensor_map as of_gpu
from reference.devices import Im2col, TensorMap
from reference.errors import DtypeError, NoGpuError, SchemeError, ShapeError
from simwarp import tensormaps
from support.cuda_driver import replace_driver

DEVICE = simwarp.Device()


def made(array, *args, **options):
    return tensormaps.decode(DEVICE.tensor_map(array, *args, **options))


def test_a_dense_array_is_described_innermost_first():
    array = DEVICE.upload(np.zeros((4, 6, 32), np.float32))
    assert made(array, (1, 3, 8), swizzle=32, fill="nan", l2_promotion=128) == TensorMap(
        *("float32", array.pointer, (32, 6, 4), (128, 768), (8, 3, 1), (1, 1, 1)),
        *(0, 32, 128, "nan"),
    )


def test_a_pitched_tensor_lies_within_the_array():
    array = DEVICE.upload(np.zeros(1000, np.uint8))
    assert made(array, (4, 16), shape=(9, 100), strides=[112], element_strides=(2, 1)) == TensorMap(
        *("uint8", array.pointer, (100, 9), (112,), (16, 4), (1, 2))
    )
    with pytest.raises(ShapeError, match="spans 1108 bytes, the array has 1000"):
        made(array, (4, 16), shape=(10, 100), strides=[112])


def test_a_vector_has_no_strides():
    array = DEVICE.upload(np.zeros(100, np.float16))
    assert made(array, 8, data_type="bfloat16").strides == ()
    assert made(array, (8,), data_type="bfloat16").data_type == "bfloat16"


def test_images_have_an_im2col_map():
    array = DEVICE.upload(np.zeros((2, 5, 6, 8), np.float16))
    tensor = made(array, im2col=Im2col(lower=(-1, -2), upper=(1, 0), channels=8, pixels=30))
    assert tensor.im2col == Im2col((-2, -1), (0, 1), 8, 30)
    assert (tensor.shape, tensor.box) == ((8, 6, 5, 2), ())


def test_slices_of_channels_need_shape_and_strides():
    array = DEVICE.upload(np.zeros((2, 3, 5, 6, 8), np.float16))
    shape, strides = (2, 5, 6, 3), (1440, 96, 480)
    assert made(array, (1, 2, 2, 3), shape=shape, strides=strides, interleave=16).interleave == 16
    with pytest.raises(SchemeError, match="without shape and strides"):
        made(array, (1, 2, 2, 3), interleave=16)


WRONG = {
    "no box": (SchemeError, "neither box nor im2col", {}),
    "two boxes": (SchemeError, "box and im2col", {"box": (1, 8), "im2col": Im2col((), (), 8, 8)}),
    "box of floats": (ShapeError, "not a shape", {"box": (1.5, 8)}),
    "odd row": (ShapeError, "multiple of 16", {"box": (1, 8), "shape": (3, 6)}),
    "unknown type": (DtypeError, "float8", {"box": (1, 8), "data_type": "float8"}),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_refused(name):
    kind, words, options = WRONG[name]
    with pytest.raises(kind, match=words):
        DEVICE.tensor_map(DEVICE.upload(np.zeros((4, 8), np.float16)), **options)


def test_a_complex_array_is_refused():
    with pytest.raises(DtypeError, match="bits as uint8"):
        DEVICE.tensor_map(DEVICE.upload(np.zeros((4, 8), np.complex64)), (1, 8))


# ---------------------------------------------------------------------------------- the driver's call


class Driver:
    """Stands for `cuda.bindings.driver`: keeps what the encoding functions receive."""

    CUresult = types.SimpleNamespace(CUDA_SUCCESS=0)

    def __init__(self, status=0):
        self.status, self.calls = status, []
        for name in ("DataType", "Interleave", "Swizzle", "L2promotion", "FloatOOBfill"):
            setattr(self, f"CUtensorMap{name}", lambda number, name=name: (name, number))
        self.cuuint64_t, self.cuuint32_t = (lambda n: ("u64", n)), (lambda n: ("u32", n))

    def _encode(self, *args):
        self.calls.append(args)
        found = np.arange(16, dtype=np.uint64)
        self.kept = found
        status = types.SimpleNamespace(name="CUDA_ERROR_INVALID_VALUE") if self.status else 0
        return status, types.SimpleNamespace(getPtr=lambda: found.ctypes.data)

    cuTensorMapEncodeTiled = cuTensorMapEncodeIm2col = _encode  # noqa: N815 - the driver's names


@pytest.fixture
def driver(monkeypatch):
    driver = Driver()
    replace_driver(monkeypatch, driver)
    return driver


def test_the_driver_receives_a_tiled_map(driver):
    tensor = TensorMap("bfloat16", 4096, (64, 9), (128,), (64, 4), (1, 2), 0, 128, 256, "nan")
    assert of_gpu.encoded(tensor, (9, 0)) == np.arange(16, dtype=np.uint64).tobytes()
    ((kind, rank, address, shape, strides, box, steps, *modes),) = driver.calls
    assert (kind, rank, address) == (("DataType", 9), 2, 4096)
    assert shape == [("u64", 64), ("u64", 9)]
    assert strides == [("u64", 128)]
    assert box == [("u32", 64), ("u32", 4)]
    assert steps == [("u32", 1), ("u32", 2)]
    assert modes == [("Interleave", 0), ("Swizzle", 3), ("L2promotion", 3), ("FloatOOBfill", 1)]


def test_the_driver_receives_an_im2col_map(driver):
    box = Im2col((-1, -2), (1, 0), 8, 30)
    of_gpu.encoded(TensorMap("float16", 0, (8, 6, 5, 2), (16, 96, 480), (), (1,) * 4, im2col=box), (9, 0))
    assert driver.calls[0][5:9] == ([-1, -2], [1, 0], 8, 30)


def test_what_the_driver_refuses_is_reported(driver):
    driver.status = 1
    tensor = TensorMap("uint8", 0, (64,), (), (64,), (1,))
    with pytest.raises(ShapeError, match="CUDA_ERROR_INVALID_VALUE"):
        of_gpu.encoded(tensor, (9, 0))
    with pytest.raises(NoGpuError, match="need sm_90, the device is sm_80"):
        of_gpu.encoded(tensor, (8, 0))
