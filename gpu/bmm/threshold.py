"""Operands of the threshold epilogue: a threshold and a flip per column turn dot products into bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.device import Device, is_array, is_foreign
from reference.errors import DtypeError, NotANumberError, SchemeError, ShapeError


def rule_on_device(thresholds: Any, flip: Any, n: int, device: Device) -> tuple[Any, ...]:
    """Upload thresholds (int32) and flips (uint8) of ``n`` columns; () without thresholds."""
    if thresholds is None:
        if flip is not None:
            raise SchemeError("flip is given without thresholds\ngive both, or neither")
        return ()
    flips = np.zeros(n, np.bool_) if flip is None else flip
    return (
        vector_on_device(thresholds, "thresholds", n, _thresholds, np.int32, device),
        vector_on_device(flips, "flip", n, _flips, np.uint8, device),
    )


def vector_on_device(
    given: Any, name: str, n: int, of_host: Callable[[npt.NDArray[Any]], Any], dtype: Any, device: Device
) -> Any:
    """Check a vector with one number for each column, and upload it."""
    advice = f"give one for each of the {n} columns"
    vector: Any = device.adopt(given) if is_foreign(given) else given
    if not is_array(vector):
        try:
            vector = np.asarray(vector)
        except ValueError as error:
            raise ShapeError(f"{name} is not a vector: {error}\n{advice}") from None
        vector = of_host(vector)
    if tuple(vector.shape) != (n,):
        raise ShapeError(f"{name} has shape {tuple(vector.shape)}\n{advice}")
    if np.dtype(vector.dtype) != dtype:
        raise DtypeError(
            f"{name} on the device is {vector.dtype}\n{np.dtype(dtype)} is needed\nconvert it first"
        )
    return vector if is_array(vector) else device.upload(vector, name)


def _thresholds(values: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Check thresholds of the host, and convert them to int32; a dot product is >= x if it is >= ceil(x)."""
    limits = np.iinfo(np.int32)
    if values.dtype.kind == "f":
        if np.isnan(values).any():
            raise NotANumberError("thresholds have a NaN\nno dot product is >= NaN or < NaN\nreplace it")
        return np.clip(np.ceil(values.astype(np.float64)), limits.min, limits.max).astype(np.int32)
    if values.dtype.kind not in "iu":
        raise DtypeError(
            f"thresholds are {values.dtype}\n"
            "give numbers; reference.integer_thresholds makes them from a batch normalisation"
        )
    if values.size and not limits.min <= int(values.min()) <= int(values.max()) <= limits.max:
        raise DtypeError("thresholds do not fit int32\nno dot product lies outside\nclip them to int32")
    return values.astype(np.int32)


def _flips(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Check flips of the host, and convert them to one byte per column: 1 where the bit is inverted."""
    if values.dtype != np.bool_ and not (values.dtype.kind in "iu" and np.isin(values, (0, 1)).all()):
        raise DtypeError(
            f"flip is {values.dtype}\nbool is needed, True where the bit is inverted\nconvert it first"
        )
    return values.astype(np.uint8)
