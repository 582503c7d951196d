"""What callers may pass as a matrix, and how it gets onto a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast
from weakref import ref

import numpy as np

from gpu.cuda import default_device
from gpu.device import Array, Device, is_array, is_foreign
from reference.errors import DtypeError, NotANumberError, ShapeError
from reference.types import PackedBits, PackedTensor

ELEMENTS = {"float64": "FLOAT64", "float32": "FLOAT32", "float16": "FLOAT16", "int8": "INT8"}
"""The element types that can be packed, and what the kernels' source calls them."""

_DTYPES = frozenset(map(np.dtype, ELEMENTS))
"""Those of this machine's byte order: a dtype is found faster than its name."""

LARGEST = 2**31 - 1
"""The largest dimension: kernels count in 32 bits."""


class Prepared:
    """An operand that lies on a device as kernels take it; `gpu.prepare` makes one.

    Attributes
    ----------
    words : device array
        Its bits; of a sparse tensor, its values.
    """

    words: Any


_PACKED = (PackedBits, PackedTensor, Prepared)


def on_device(x: Any) -> bool:
    """Whether a matrix, packed or not, lies on a device.

    Examples
    --------
    >>> on_device([[1.0]])
    False
    """
    x = x.words if isinstance(x, _PACKED) else x
    return is_array(x) or is_foreign(x)


def choose_device(device: Device | None, *operands: Any) -> Device:
    """The given device, else that of the first operand on one, else the first CUDA device.

    Examples
    --------
    >>> import simwarp
    >>> device = simwarp.Device()
    >>> choose_device(None, [[1.0]], device.upload(np.ones((1, 1)))) is device
    True
    """
    arrays = (x.words if isinstance(x, _PACKED) else x for x in operands if x is not None)
    homes: list[Device] = [x.device for x in arrays if is_array(x)]
    chosen = device or (homes[0] if homes else default_device())
    for home in homes:
        if home is not chosen and _memory(home) != _memory(chosen):
            raise DtypeError(
                f"an operand lies on {home.name}, the work is for {chosen.name}, another device\n"
                "download it first, or leave out device="
            )
    return chosen


def _memory(device: Any) -> Any:
    """What several objects for one GPU have in common."""
    return getattr(device, "ordinal", device)


def matrix(x: Any, name: str) -> Any:
    """A real matrix, checked: a host array in native byte order, or a device array as it is.

    Raises
    ------
    DtypeError, ShapeError
        Naming the argument.

    Examples
    --------
    >>> matrix([[1.0, -2.0]], "a").shape
    (1, 2)
    """
    if not is_array(x) and not is_foreign(x):
        try:
            x = np.asarray(x)
        except ValueError as error:
            raise ShapeError(f"{name} is not a matrix: {error}\ngive every row the same length") from None
        check_matrix(x, name)
        return np.ascontiguousarray(x, dtype=x.dtype.newbyteorder("="))
    if is_foreign(x):  # in its library's words for element types: these are checked once adopted
        check_shape(tuple(x.shape), name)
    else:
        check_matrix(x, name)
    return x


def check_matrix(x: Any, name: str) -> None:
    """Refuse what is not a real matrix.

    Examples
    --------
    >>> check_matrix(np.ones((2, 3), np.float16), "a")
    """
    if np.dtype(x.dtype) not in _DTYPES and np.dtype(x.dtype).name not in ELEMENTS:
        raise DtypeError(
            f"{name} has elements of {x.dtype}; the signs of {', '.join(ELEMENTS)} can be packed\n"
            f"convert it first, e.g. {name}.astype(np.float32)"
        )
    check_shape(tuple(x.shape), name)


def check_shape(shape: tuple[int, ...], name: str) -> None:
    """Refuse shapes that are no matrix, empty, or past what kernels count.

    Examples
    --------
    >>> check_shape((3, 0), "a")
    Traceback (most recent call last):
    ...
    reference.errors.ShapeError: a has shape (3, 0)
    a matrix with both dimensions from 1 to 2147483647 is needed
    """
    if len(shape) != 2 or min(shape) < 1 or max(shape) > LARGEST:
        raise ShapeError(
            f"{name} has shape {shape}\na matrix with both dimensions from 1 to {LARGEST} is needed"
        )


def to_device(x: Any, name: str, device: Device) -> Array:
    """The matrix on the device: adopted, uploaded, or as it is.

    Examples
    --------
    >>> import simwarp
    >>> to_device(np.ones((2, 3)), "a", simwarp.Device()).shape
    (2, 3)
    """
    if is_array(x):
        return x
    if is_foreign(x):
        adopted = device.adopt(x)
        check_matrix(adopted, name)
        return adopted
    return device.upload(x, name)


def refuse_nan(**operands: Any) -> None:
    """Refuse operands of the host that hold a NaN; packed ones cannot, and those on a device tell later.

    Parameters
    ----------
    **operands
        By the names of the caller's arguments.

    Raises
    ------
    NotANumberError
        Naming the first NaN.

    Examples
    --------
    >>> refuse_nan(a=np.array([[1.0, np.nan]]))
    Traceback (most recent call last):
    ...
    reference.errors.NotANumberError: a[0, 1] is NaN, which is neither >= 0 nor < 0
    replace it first
    """
    for name, x in operands.items():
        if isinstance(x, _PACKED) or on_device(x) or not np.isnan(x).any():
            continue
        at = [int(i) for i in np.argwhere(np.isnan(x))[0]]
        raise NotANumberError(f"{name}{at} is NaN, which is neither >= 0 nor < 0\nreplace it first")


def downloaded(output: Any, **operands: Any) -> Any:
    """An array on the host; where packing met a NaN, the error names the operand that holds it.

    Raises
    ------
    NotANumberError

    Examples
    --------
    >>> import simwarp
    >>> downloaded(simwarp.Device().upload(np.arange(2)), a=np.ones((1, 2)))
    array([0, 1])
    """
    try:
        return output.download()
    except NotANumberError as error:
        try:
            refuse_nan(**operands)
        except NotANumberError as named:
            raise named from None
        raise error  # it was another operand, packed on this device before


def nan_flag(device: Device) -> Array:
    """The device's flag that packing kernels raise at a NaN; read at the next synchronisation.

    Examples
    --------
    >>> import simwarp
    >>> int(nan_flag(simwarp.Device()).download()[0])
    0
    """
    pending = device.plans.get(_FLAG)
    flag: Array | None = None if pending is None else pending()
    if flag is None:
        flag = cast("Array", device.flag())
        device.plans[_FLAG] = ref(
            flag
        )  # weak, as an array holds its device; the deferred check holds the flag
        device.defer(_check_flag(device, flag))
    return flag


_FLAG = "nan flag"


def _check_flag(device: Device, flag: Array) -> Callable[[], None]:
    def check() -> None:
        device.plans.pop(_FLAG, None)
        if flag.download()[0]:
            flag.upload(np.zeros(1, np.int32))
            raise NotANumberError(
                "a matrix that was packed holds a NaN, which is neither >= 0 nor < 0\n"
                "replace NaNs before packing"
            )

    return check
