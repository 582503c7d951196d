"""The threshold epilogue: dot products become bits by a threshold and a flip for each column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.device import Device, is_array, is_foreign
from reference.errors import DtypeError, SchemeError, ShapeError


def rule_on_device(thresholds: Any, flip: Any, n: int, device: Device) -> tuple[Any, ...]:
    """Thresholds (int32) and flips (uint8) of ``n`` columns on the device; empty if the output is int32."""
    if thresholds is None:
        if flip is not None:
            raise SchemeError("flip is given without thresholds\ngive both, or neither")
        return ()
    flips = np.zeros(n, np.bool_) if flip is None else flip
    return (
        _vector(thresholds, "thresholds", n, _thresholds, np.int32, device),
        _vector(flips, "flip", n, _flips, np.uint8, device),
    )


def _vector(
    given: Any, name: str, n: int, of_host: Callable[[npt.NDArray[Any]], Any], dtype: Any, device: Device
) -> Any:
    """Numbers on the device, one for each column."""
    advice = f"give one for each of the {n} columns"
    vector: Any = device.adopt(given) if is_foreign(given) else given
    if not is_array(vector):
        try:
            vector = of_host(np.asarray(vector))
        except ValueError as error:
            raise ShapeError(f"{name} is not a vector: {error}\n{advice}") from None
    if tuple(vector.shape) != (n,):
        raise ShapeError(f"{name} has shape {tuple(vector.shape)}\n{advice}")
    if np.dtype(vector.dtype) != dtype:
        raise DtypeError(f"{name} on the device is {vector.dtype}\nupload {np.dtype(dtype)}")
    return vector if is_array(vector) else device.upload(vector, name)


def _thresholds(values: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Host thresholds as int32."""
    if values.dtype.kind not in "iu":
        raise DtypeError(
            f"thresholds are {values.dtype}\n"
            "give integers; reference.integer_thresholds makes them from a batch normalisation"
        )
    limits = np.iinfo(np.int32)
    if values.size and not limits.min <= int(values.min()) <= int(values.max()) <= limits.max:
        raise DtypeError("thresholds do not fit int32\nno dot product lies outside, so clip them")
    return values.astype(np.int32)


def _flips(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Host flips as bytes."""
    if values.dtype != np.bool_ and not (values.dtype.kind in "iu" and np.isin(values, (0, 1)).all()):
        raise DtypeError(f"flip is {values.dtype}\ngive bool, True where the bit is turned over")
    return values.astype(np.uint8)
