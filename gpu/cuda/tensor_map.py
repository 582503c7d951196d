"""Tensor maps on a GPU: `reference.devices.tensor_map.TensorMap` encoded by the driver."""

from __future__ import annotations

import ctypes
from typing import Any

from gpu.chips import chip_of
from gpu.cuda.driver import bindings, value_of
from reference.devices.tensor_map import DATA_TYPES, FILLS, INTERLEAVES, PROMOTIONS, SWIZZLES, TensorMap
from reference.errors import NoGpuError, ShapeError

_SIZE = 128


def encoded(tensor: TensorMap, capability: tuple[int, int]) -> bytes:
    """The 128 bytes of a map, encoded by the driver.

    NoGpuError for a chip before sm_90, which has no copy engine for tensors; ShapeError if the driver refuses
    a map that passes `TensorMap.check`.
    """
    if not chip_of(capability).sm_90:
        raise NoGpuError(
            f"tensor maps need sm_90, the device is sm_{capability[0]}{capability[1]}\n"
            "run on a Hopper GPU or newer, or on simwarp.Device()"
        )
    found = value_of(_encode(bindings, tensor), _refused, tensor)
    return ctypes.string_at(int(found.getPtr()), _SIZE)


def _encode(driver: Any, tensor: TensorMap) -> Any:
    """Encode a tensor map with the driver; return its status and the map."""
    shape, strides = (
        [driver.cuuint64_t(n) for n in values] for values in (tensor.shape, tensor.strides or (16,))
    )
    box, steps = ([driver.cuuint32_t(n) for n in values] for values in (tensor.box, tensor.element_strides))
    modes = (
        driver.CUtensorMapInterleave(INTERLEAVES.index(tensor.interleave)),
        driver.CUtensorMapSwizzle(SWIZZLES.index(tensor.swizzle)),
        driver.CUtensorMapL2promotion(PROMOTIONS.index(tensor.l2_promotion)),
        driver.CUtensorMapFloatOOBfill(FILLS.index(tensor.fill)),
    )
    kind = driver.CUtensorMapDataType(list(DATA_TYPES).index(tensor.data_type))
    of_tensor = kind, tensor.rank, tensor.address, shape, strides
    if tensor.im2col is None:
        return driver.cuTensorMapEncodeTiled(*of_tensor, box, steps, *modes)
    lower, upper = list(tensor.im2col.lower), list(tensor.im2col.upper)
    sizes = tensor.im2col.channels, tensor.im2col.pixels
    return driver.cuTensorMapEncodeIm2col(*of_tensor, lower, upper, *sizes, steps, *modes)


def _refused(status: Any, tensor: TensorMap) -> ShapeError:
    """The error for a map that the driver refuses."""
    return ShapeError(
        f"tensor map: the driver refuses {tensor}\n{status.name}\n"
        "compare it with the driver's documentation of tensor maps"
    )
