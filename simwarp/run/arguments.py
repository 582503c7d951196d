"""Conversion of Python values to kernel arguments: device arrays, or scalars of the parameter's type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from gpu.device import is_array, is_foreign
from simwarp.device.parameters import is_pointer, misfit, scalar
from simwarp.ptx.mangled_names import parameter_types
from simwarp.ptx.syntax import Function
from simwarp.run.binding import Arguments, Given, bind
from simwarp.run.values import Out, Surface, Texture, on_host

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
"""The NumPy dtype of the elements of a C++ pointer."""


@dataclass
class Argument:
    """An argument of a launch, converted for the device.

    Attributes
    ----------
    position : int
    name : str
    value
        A device array, or a NumPy scalar of the parameter's size.
    before : array, optional
        The content of an array before the launch, if it came from the host.
    to_fill : bool
        Whether it was an `Out`, of which the kernel should write every element.
    """

    position: int
    name: str
    value: Any
    before: Host | None = None
    to_fill: bool = False

    @property
    def is_array(self) -> bool:
        """Whether it is an array, which the kernel may change."""
        return is_array(self.value)


def convert(device: Any, kernel: Function, args: Arguments, names: Sequence[str] = ()) -> list[Argument]:
    """Convert all arguments of a launch, and copy arrays to the device."""
    converter = _Converter(device, kernel, names)
    return [converter.argument(i, given) for i, given in enumerate(bind(kernel, names, args))]


class _Converter:
    """The state of one conversion: the device, the kernel, and the arrays converted so far."""

    def __init__(self, device: Any, kernel: Function, names: Sequence[str]) -> None:
        self.device, self.kernel, self.names = device, kernel, names
        self.types = parameter_types(kernel.name)
        self.known: dict[int, Argument] = {}

    def argument(self, position: int, bound: Given) -> Argument:
        """Convert one argument; an array given twice becomes one array on the device."""
        given: Any = bound.value
        name = bound.label or (given.name if isinstance(given, Out) else "") or f"arg{position}"
        known = self.known.get(id(given))
        if known is not None:
            return replace(known, position=position, name=name)
        found = Argument(position, name, *self._place(position, name, given), isinstance(given, Out))
        if found.is_array:
            self.known[id(given)] = found
        if found.is_array and not isinstance(given, Surface):
            self._check_pointer(position, name, found.value.dtype)
        return found

    def _check_pointer(self, position: int, name: str, dtype: np.dtype[Any]) -> None:
        """Raise LaunchError unless the parameter is a pointer to elements of this dtype."""
        if not is_pointer(self.kernel.parameters[position]):
            what = f"{name}, an array; parameter {position} is not a pointer"
            raise misfit(self.kernel, position, what, "pass a number, or for a structure its bytes")
        pointer = self.types[position] if position < len(self.types) else ""
        wanted = ELEMENTS.get(pointer.removesuffix("*").removesuffix(" const"))
        if wanted is not None and dtype.kind in "biuf" and not _alike(dtype, wanted):
            what = f"{name}, elements of {dtype}; parameter {position} is a {pointer}"
            advice = f"convert it to {wanted}, e.g. {name}.astype(np.{wanted}) in Python"
            raise misfit(self.kernel, position, what, advice)

    def _place(self, position: int, name: str, given: Any) -> tuple[Any, Host | None]:
        """The device array or scalar for a value, and the content of an array from the host."""
        in_source = (self.names[position] if position < len(self.names) else "") or name
        if isinstance(given, Out):
            return self.device.allocate(given.shape, given.dtype, in_source), None
        if isinstance(given, Texture):
            return given.on(self.device, in_source), None
        if isinstance(given, Surface):
            return given.on(self.device, in_source)
        if is_array(given):
            return given, None
        if is_foreign(given):
            return self.device.adopt(given), None
        host = on_host(given, name)
        if isinstance(host, np.ndarray):
            before: Host = np.array(cast("Any", host))
            return self.device.upload(before, in_source), before
        return scalar(self.kernel, position, host), None


def _alike(dtype: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Whether two dtypes have equal sizes, and both or neither are floats."""
    return dtype.itemsize == wanted.itemsize and (dtype.kind == "f") == (wanted.kind == "f")
