"""From Python values to what a kernel takes: each argument becomes its parameter's type, or an array."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from gpu.device import is_array, is_foreign
from reference.errors import DtypeError, ShapeError
from simwarp.device.parameters import is_pointer, misfit, scalar
from simwarp.ptx.mangled_names import parameter_types
from simwarp.ptx.syntax import Function
from simwarp.run.binding import Arguments, Given, bind

Host: TypeAlias = npt.NDArray[Any]

ELEMENTS = {
    "bool": np.dtype(np.bool_),
    "char": np.dtype(np.int8),
    "signed char": np.dtype(np.int8),
    "unsigned char": np.dtype(np.uint8),
    "short": np.dtype(np.int16),
    "unsigned short": np.dtype(np.uint16),
    "int": np.dtype(np.int32),
    "unsigned int": np.dtype(np.uint32),
    "long long": np.dtype(np.int64),
    "unsigned long long": np.dtype(np.uint64),
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
    "__half": np.dtype(np.float16),
}
"""The NumPy type of what a pointer of C++ points to."""


@dataclass(frozen=True)
class Out:
    """An array that the kernel is to fill: until it does, reading an element is a fault.

    What it left unwritten at its end is in `Result.unwritten`.

    Parameters
    ----------
    dtype : dtype
    shape : int or tuple of int
    name : str
        How outputs and faults speak of it.

    Raises
    ------
    DtypeError, ShapeError
        For a type that there is not, or a shape that is none.

    Examples
    --------
    >>> Out("float32", 1024)
    Out(dtype=dtype('float32'), shape=(1024,), name='')
    """

    dtype: Any
    shape: Any
    name: str = ""

    def __post_init__(self) -> None:
        dtype = _dtype(self.dtype)
        _check_elements(self.name or "Out", dtype)
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "shape", _shape(self.shape))


@dataclass
class Argument:
    """An argument as a launch takes it.

    Attributes
    ----------
    position : int
    name : str
    value
        A device array, or a NumPy scalar of the parameter's size.
    before : array, optional
        Of an array: what it held before the launch, if it held anything.
    to_fill : bool
        Whether the kernel is to write every element: it was an `Out`.
    """

    position: int
    name: str
    value: Any
    before: Host | None = None
    to_fill: bool = False

    @property
    def is_array(self) -> bool:
        """Whether the kernel may have changed it."""
        return is_array(self.value)


def convert(device: Any, kernel: Function, args: Arguments, names: Sequence[str] = ()) -> list[Argument]:
    """What the launch of a kernel on a device takes; arrays are copied there.

    Parameters
    ----------
    device
        As `gpu.device.Device` says.
    kernel : Function
        The kernel, for its parameters.
    args : sequence, or mapping by name or position
        NumPy arrays, what has ``__array_interface__`` or ``__dlpack__``, device arrays, `Out`, Python
        numbers, NumPy scalars, bytes of structures. An array that is given twice is one array.
    names : sequence of str
        Of the parameters; empty if they are not known.

    Raises
    ------
    LaunchError
        If they do not fit the parameters, see `bind`, or one of them does not fit its own.
    DtypeError
        For an array of elements that a kernel cannot have.

    Examples
    --------
    >>> import simwarp
    >>> from simwarp.run.source import from_ptx
    >>> kernel = from_ptx(
    ...     ".version 9.0 .target sm_90 .address_size 64 .entry f(.param .u64 x, .param .f32 a) { ret; }"
    ... ).kernel("f")
    >>> args = {"a": 2, "x": np.zeros(3)}
    >>> [found.name for found in convert(simwarp.Device(), kernel, args, names=("x", "a"))]
    ['x', 'a']
    >>> convert(simwarp.Device(), kernel, (2.5, np.zeros(3)))
    Traceback (most recent call last):
    ...
    simwarp.faults.LaunchError: kernel f(u64, f32): argument 0 is 2.5; parameter 0 is of u64
    pass an integer, or for a pointer an array
    """
    converter = _Converter(device, kernel)
    return [converter.argument(i, given) for i, given in enumerate(bind(kernel, names, args))]


class _Converter:
    """Converts the arguments of one launch."""

    def __init__(self, device: Any, kernel: Function) -> None:
        self.device, self.kernel = device, kernel
        self.types = parameter_types(kernel.name)
        self.known: dict[int, Argument] = {}

    def argument(self, position: int, bound: Given) -> Argument:
        """One argument; the same array again is the same array on the device."""
        given: Any = bound.value
        name = bound.label or (given.name if isinstance(given, Out) else "") or f"arg{position}"
        known = self.known.get(id(given))
        if known is not None:
            return replace(known, position=position, name=name)
        found = Argument(position, name, *self._place(position, name, given), isinstance(given, Out))
        if found.is_array:
            self.known[id(given)] = found
            self._check_pointer(position, name, found.value.dtype)
        return found

    def _check_pointer(self, position: int, name: str, dtype: np.dtype[Any]) -> None:
        """Refuse an array where there is no pointer, or one to elements of another type."""
        if not is_pointer(self.kernel.parameters[position]):
            what = f"{name}, an array; parameter {position} is no pointer"
            raise misfit(self.kernel, position, what, "pass a number, or for a structure its bytes")
        pointer = self.types[position] if position < len(self.types) else ""
        wanted = ELEMENTS.get(pointer.removesuffix("*").removesuffix(" const"))
        if wanted is not None and dtype.kind in "biuf" and not _alike(dtype, wanted):
            what = f"{name}, elements of {dtype}; parameter {position} is a {pointer}"
            raise misfit(
                self.kernel,
                position,
                what,
                f"convert it to {wanted}, e.g. {name}.astype(np.{wanted}) in Python",
            )

    def _place(self, position: int, name: str, given: Any) -> tuple[Any, Host | None]:
        """What the launch takes for an argument, and what it held before."""
        if isinstance(given, Out):
            return self.device.allocate(given.shape, given.dtype, name), None
        if is_array(given):
            return given, None
        if is_foreign(given):
            return self.device.adopt(given), None
        host = on_host(given, name)
        if isinstance(host, np.ndarray):
            before: Host = np.array(cast("Any", host))
            return self.device.upload(before, name), before
        return scalar(self.kernel, position, host), None


def _alike(dtype: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Whether the bits mean the same, apart from their sign."""
    return dtype.itemsize == wanted.itemsize and (dtype.kind == "f") == (wanted.kind == "f")


def on_host(given: Any, name: str) -> Any:
    """A NumPy array of what is one; of an array without dimensions its element; anything else as it is.

    Raises
    ------
    DtypeError
        For lists, masked elements, and arrays of what a kernel cannot have.

    Examples
    --------
    >>> on_host(np.array(3), "n"), on_host("five", "n")
    (np.int64(3), 'five')
    """
    kind = cast("type[object]", type(given))
    if issubclass(kind, list | tuple | range):
        raise DtypeError(f"{name} is a {kind.__name__}\nsay of which elements: np.array(…, dtype)")
    if np.ma.is_masked(given):
        raise DtypeError(
            f"{name} has a mask, which a kernel cannot see\nfill what it hides: {name}.filled(…)"
        )
    foreign = hasattr(given, "__dlpack__") or hasattr(given, "__array_interface__")
    if issubclass(kind, np.generic) or not foreign:
        return given
    try:
        in_place = issubclass(kind, np.ndarray) or not hasattr(given, "__dlpack__")
        array: Host = np.asarray(given) if in_place else np.from_dlpack(given)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise DtypeError(
            f"{name} is a {kind.__name__} that NumPy cannot read: {error}\n"
            "convert it to a NumPy array first, e.g. tensor.detach().cpu().numpy()"
        ) from None
    _check_elements(name, array.dtype)
    return array if array.ndim else array[()]


def _dtype(given: Any) -> np.dtype[Any]:
    try:
        return np.dtype(given)
    except TypeError:
        raise DtypeError(f"there is no element type {given!r}\ngive one of NumPy's, e.g. float32") from None


def _check_elements(name: str, dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "biufcV" or dtype.hasobject or not dtype.isnative or dtype.char in "gG":
        raise DtypeError(
            f"{name} has elements of {dtype}, which a kernel cannot have\n"
            "convert it with astype to bool, integers, floats to 64 bits, or a structure of these"
        )


def _shape(given: int | Sequence[int]) -> tuple[int, ...]:
    try:
        shape = tuple(map(operator.index, given if isinstance(given, Sequence) else (given,)))
    except TypeError:
        shape = (-1,)
    if any(extent < 0 for extent in shape):
        raise ShapeError(f"{given!r} is no shape\ngive a number of elements, or one for each dimension")
    return shape
