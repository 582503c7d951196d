"""Host code that all operations share: the choice of a device, checks of operands, uploads, and NaN."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast
from weakref import ref

import numpy as np
import numpy.typing as npt

from gpu.cuda import default_device
from gpu.cuda.streams import torch_stream_of
from gpu.cuda.views import BFLOAT16
from gpu.device import Array, Device, check_device, is_array, is_foreign
from reference.errors import CaptureError, DtypeError, FormatError, NotANumberError, SchemeError, ShapeError
from reference.types import PackedBits, PackedTensor
from reference.types.packed import WORD_DTYPES
from reference.values import not_an_array

ELEMENTS = {name: name.upper() for name in ("float64", "float32", "float16", "bfloat16", "int8")}
"""The element types that can be packed, and their names in the macros of the kernels."""

_NAMES = {np.dtype(name): name for name in ELEMENTS if name != "bfloat16"} | {BFLOAT16: "bfloat16"}
"""The same types in this machine's byte order; a dtype is looked up faster than its name."""

Packed = TypeVar("Packed", PackedBits, PackedTensor)


@not_an_array("pass words.download() of it, or the operand that was prepared")
class Prepared:
    """An operand on a device, ready for kernels: a result of `gpu.prepare`."""

    words: Any  # the operand's bits, or a sparse tensor's values, on the device
    arrays: Any = None  # a tuple of all that a recorded call takes, if any call does


_PACKED = (PackedBits, PackedTensor, Prepared)


def on_device(x: Any) -> bool:
    """True if an operand, packed or not, is on a device."""
    x = x.words if isinstance(x, _PACKED) else x
    return is_array(x) or is_foreign(x)


def choose_device(device: Device | None, *operands: Any) -> Device:
    """The given device, else that of the first operand that has one, else the first CUDA device."""
    if device is not None:
        check_device(device)
    chosen = device
    for operand in operands:
        if operand is None:
            continue
        x = operand.words if isinstance(operand, _PACKED) else operand
        if not is_array(x):
            continue
        home: Device = x.device
        if chosen is None:
            chosen = home
        if home is not chosen and key_of_memory(home) != key_of_memory(chosen):
            raise DtypeError(
                f"an operand is on {home.name}, and the call is for {chosen.name}, another device\n"
                "all operands must be on one device\ndownload it first, or leave out device="
            )
    return default_device() if chosen is None else chosen


def in_stream(device: Device, stream: Any, *operands: Any) -> Device:
    """The device for a call in a stream: the given one, else torch's current one if an operand is torch's."""
    if stream is None and operands and hasattr(device, "ordinal"):
        stream = torch_stream_of(*operands)
    return device if stream is None else cast("Device", device.in_stream(stream))


def adopted(device: Device | None, stream: Any, *operands: Any) -> tuple[Any, Any, tuple[Any, ...]]:
    """Device, stream and operands of a call; arrays of other libraries are wrapped as the device's own.

    The device is then that of the call's stream, and the stream None.
    """
    foreign: list[Any] = []
    for x in operands:
        if x.__class__ in _OWN:
            continue
        if is_foreign(x):
            foreign.append(x)
        elif isinstance(x, _PACKED) or is_array(x):
            _OWN.add(x.__class__)
    if not foreign:
        return device, stream, operands
    device = in_stream(choose_device(device, *operands), stream, *foreign)
    arrays = {id(x): device.adopt(x) for x in foreign}
    return device, None, tuple([arrays.get(id(x), x) for x in operands])


_OWN: set[type] = {type(None), np.ndarray}
"""Classes of operands that are not other libraries' device arrays, so that a warm call need not ask."""


def key_of_memory(device: Any) -> Any:
    """A key of a device's memory, equal for several objects of one GPU."""
    return getattr(device, "ordinal", device)


def signs(x: Any, name: str, what: str, check_shape: Callable[[tuple[int, ...], str], object]) -> Any:
    """Check real numbers; a host array gets the native byte order, a device array stays as it is."""
    if is_array(x):
        check_elements(x, name)
    elif not is_foreign(x):  # a foreign array's element type is checked after adoption
        try:
            x = np.asarray(x)
        except DtypeError as error:  # of a value that describes numbers
            raise DtypeError(f"{name}: {error}") from None
        except TypeError as error:  # of a bfloat16 tensor of torch on the host
            raise DtypeError(
                f"{name} is not an array of NumPy: {error}\n"
                f"the signs of {', '.join(ELEMENTS)} can be packed\nconvert it first, e.g. to float32"
            ) from None
        except ValueError as error:
            raise ShapeError(
                f"{name} is not an array: {error}\n{what} is needed\ngive every row the same length"
            ) from None
        check_elements(x, name)
    check_shape(tuple(x.shape), name)
    if isinstance(x, np.ndarray):
        return np.ascontiguousarray(x, dtype=cast("npt.NDArray[Any]", x).dtype.newbyteorder("="))
    return x


def check_elements(x: Any, name: str) -> None:
    """Refuse element types whose signs cannot be packed."""
    if element_of(x) not in ELEMENTS:
        raise DtypeError(
            f"{name} has elements of {x.dtype}\nthe signs of {', '.join(ELEMENTS)} can be packed\n"
            f"convert it first, e.g. {name}.astype(np.float32)"
        )


def element_of(x: Any) -> str:
    """The name of the type of an array's elements; bfloat16 is that of torch, of ml_dtypes or another."""
    dtype = np.dtype(x.dtype)
    return _NAMES.get(dtype) or dtype.name


def moved_to(x: Any, device: Device, name: str = "") -> Array:
    """Move an array to the device: adopt a foreign one, upload a host array in native byte order."""
    if is_array(x):
        return x
    if is_foreign(x):
        return device.adopt(x)
    return device.upload(np.ascontiguousarray(x, x.dtype.newbyteorder("=")), name)


def to_device(x: Any, name: str, device: Device) -> Array:
    """Move checked numbers to the device; see `moved_to`."""
    if is_array(x):
        return x
    moved = moved_to(x, device, name)
    if is_foreign(x):
        check_elements(moved, name)
    return moved


def check_words(x: PackedBits | PackedTensor, name: str, shape: tuple[int, ...], described: str) -> None:
    """Refuse packed words whose kind of array, shape or type does not fit their description."""
    dtype = WORD_DTYPES[x.word]
    if not (is_array(x.words) or issubclass(type(x.words), np.ndarray)):
        raise FormatError(
            f"the words of {name} are a {type(x.words).__name__}\n"
            f"{described} has {dtype} {shape}\ngive a NumPy array or an array of this device"
        )
    if tuple(x.words.shape) != shape or x.words.dtype != dtype:
        raise FormatError(
            f"{name} has words of {x.words.dtype} {tuple(x.words.shape)}\n"
            f"{described} has {dtype} {shape}\nrepack it, or correct its description"
        )


def words_to_device(x: Packed, name: str, device: Device) -> Packed:
    """Move packed bits to the device."""
    if is_array(x.words):
        return x
    return replace(x, words=device.upload(np.ascontiguousarray(x.words), f"words of {name}"))


def unknown(option: str, given: Any, known: Iterable[object]) -> SchemeError:
    """The error for an unknown value of an option."""
    names = [str(name) for name in known]
    choice = " or ".join(names) if len(names) == 2 else f"one of {', '.join(names)}"
    return SchemeError(f"{option}={given!r}\nthis {option} is unknown\nchoose {choice}")


def check_role(x: Any, name: str, kind: type[Any], needed: str) -> None:
    """Refuse an operand that was prepared for another function, or for another argument of this one."""
    if not isinstance(x, kind) or x.role != name:
        origin = f"was prepared as {x.role!r}" if isinstance(x, kind) else f"is a {type(x).__name__}"
        raise FormatError(f"{name} {origin}\n{needed}\nprepare it with role={name!r}")


def prepared_for(x: Any, name: str, scheme: str) -> SchemeError:
    """The error for an operand that was prepared for a scheme with another form of operands."""
    return SchemeError(
        f"{name} was prepared for {x.scheme}\n{scheme} takes operands in another form\n"
        f"prepare it with scheme={scheme!r}, or leave out scheme="
    )


def refuse_nan(**operands: Any) -> None:
    """Refuse host operands that contain a NaN; for device operands see `nan_flag`."""
    for name, x in operands.items():
        if isinstance(x, _PACKED) or on_device(x):
            continue
        with np.errstate(invalid="ignore"):  # ml_dtypes warns of a signaling NaN
            missing = np.isnan(x)
        if not missing.any():
            continue
        at = [int(i) for i in np.argwhere(missing)[0]]
        raise NotANumberError(f"{name}{at} is NaN\na NaN is neither >= 0 nor < 0\nreplace it first")


def downloaded(output: Any, **operands: Any) -> Any:
    """Download an output; an error for a NaN that a packing kernel met names the operand."""
    try:
        return output.download()
    except NotANumberError as error:
        try:
            refuse_nan(**operands)
        except NotANumberError as named:
            raise named from None
        raise error  # the NaN is in an operand of an earlier call on this device


def nan_flag(device: Device) -> Array:
    """The device's flag that packing kernels set if they meet a NaN; it is read at each synchronisation."""
    pending = device.plans.get(_FLAG)
    known: Array | None = None if pending is None else pending()
    if known is not None and not device.capturing:
        return known
    try:
        flag = cast("Array", device.flag())
    except CaptureError:
        raise CaptureError(
            "an operand is packed in a capture\nthe host would not hear of a NaN in it\n"
            "prepare it before the with block, with gpu.prepare"
        ) from None
    if flag is not known:
        # Weak, as an array holds its device; the deferred check keeps the flag alive.
        device.plans[_FLAG] = ref(flag)
        # The plans alone: a device that stands for a stream or a recording holds a call's arrays.
        device.defer(partial(_check_flag, device.plans, flag))
    return flag


_FLAG = "nan flag"


def _check_flag(plans: dict[Any, Any], flag: Array) -> None:
    """Raise an error if the flag is set, and clear it."""
    plans.pop(_FLAG, None)
    if flag.download()[0]:
        flag.upload(np.zeros(1, np.int32))
        raise NotANumberError(
            "an operand that was packed on the device contains a NaN\n"
            "a NaN is neither >= 0 nor < 0\nreplace NaNs before packing"
        )
