"""Conversion of Python values to kernel arguments: device arrays, or scalars of the parameter's type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from gpu.device import is_array, is_foreign
from simwarp.device.parameters import is_pointer, misfit, scalar
from simwarp.ptx.syntax import Function
from simwarp.run.binding import Arguments, Given, bind
from simwarp.run.pointees import pointee, sixteen_bits
from simwarp.run.values import Out, Surface, Texture, on_host

Host: TypeAlias = npt.NDArray[Any]


@dataclass
class Argument:
    """An argument of a launch, converted for the device."""

    position: int
    name: str
    value: Any  # a device array, or a NumPy scalar of the parameter's size
    before: Host | None = None  # content of an array of the host before the launch
    to_fill: bool = False  # true for an `Out`, of which the kernel should write every element
    parameter: str = ""  # name in the source, if it is known

    @property
    def is_array(self) -> bool:
        """True if it is an array, which the kernel may change."""
        return is_array(self.value)


def convert(
    device: Any, kernel: Function, args: Arguments, names: Sequence[str] = (), types: Sequence[str] = ()
) -> list[Argument]:
    """Convert all arguments of a launch, and copy arrays to the device.

    ``names`` and ``types`` are those of the parameters in the source, as far as they are known.
    """
    converter = _Converter(device, kernel, names, types)
    return [converter.argument(i, given) for i, given in enumerate(bind(kernel, names, args))]


class _Converter:
    """The state of one conversion: the device, the kernel, and the arrays converted so far."""

    def __init__(self, device: Any, kernel: Function, names: Sequence[str], types: Sequence[str]) -> None:
        self.device, self.kernel, self.names, self.types = device, kernel, names, types
        self.known: dict[int, Argument] = {}

    def argument(self, position: int, bound: Given) -> Argument:
        """Convert one argument; an array given twice becomes one array on the device."""
        given: Any = bound.value
        parameter = self.names[position] if position < len(self.names) else ""
        name = bound.label or (given.name if isinstance(given, Out) else "") or parameter or f"arg{position}"
        known = self.known.get(id(given))
        if known is None:
            placed = self._place(position, name, given)
            found = Argument(position, name, *placed, isinstance(given, Out), parameter)
        else:
            found = replace(known, position=position, name=name, parameter=parameter)
        if found.is_array:
            self.known[id(given)] = found
        if found.is_array and not isinstance(given, Surface):
            self._check_pointer(position, name, found.value)
        return found

    def _check_pointer(self, position: int, name: str, array: Any) -> None:
        """Raise LaunchError unless the parameter is a pointer to elements of an array's dtype."""
        if not is_pointer(self.kernel.parameters[position]):
            what = f"{name}, an array; parameter {position} is not a pointer"
            raise misfit(self.kernel, position, what, "pass a number, or for a structure its bytes")
        pointer = self.types[position] if position < len(self.types) else ""
        wanted, dtype, shape = pointee(pointer), np.dtype(array.dtype), tuple(array.shape)
        if wanted is None:
            return
        if not wanted.holds(dtype):
            what = f"{name}, elements of {dtype}; parameter {position} is a {pointer}"
            raise misfit(self.kernel, position, what, wanted.cast(name, dtype))
        if not wanted.fits(dtype, shape):
            what = f"{name}, {shape} elements of {dtype}; parameter {position} is a {pointer}"
            advice = f"give {wanted.lanes} numbers along the last axis, or a flat array: {name}.reshape(-1)"
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
            before: Host = np.asarray(cast("Any", host))  # not a copy: it may be large
            return self.device.upload(before, in_source), before
        return scalar(self.kernel, position, self._sixteen_bits(position, name, host)), None

    def _sixteen_bits(self, position: int, name: str, value: Any) -> Any:
        """A number for a parameter of type half or bfloat16, which PTX passes as bytes; others unchanged."""
        kind = self.types[position] if position < len(self.types) else ""
        try:
            return sixteen_bits(value, kind)
        except OverflowError:
            what = f"{name}, {value!r}, which is too large for a {kind}"
            raise misfit(self.kernel, position, what, "pass a smaller number, or inf") from None
