"""Setting ``__constant__`` and ``__device__`` variables of a module from the host."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from reference.errors import SchemeError
from simwarp.device.parameters import scalar
from simwarp.faults import LaunchError
from simwarp.program.call_graph import CallGraph
from simwarp.program.link import size_of, symbol_of
from simwarp.ptx.mangled_names import choose, listed, readable
from simwarp.ptx.rows import DTYPES
from simwarp.ptx.syntax import Address, Function, Group, Module, Operand, Symbol, Variable
from simwarp.run.pointees import pointee, sixteen_bits
from simwarp.run.values import on_host


def settings(
    module: Module, given: Mapping[str, Any], type_of: Callable[[str], str] = lambda name: ""
) -> dict[str, npt.NDArray[np.uint8]]:
    """Convert the values of variables to bytes, by the variables' names in the PTX.

    ``type_of`` gives the type of a variable in the source, "" if it is not known.
    """
    known = {v.name: v for v in module.variables if v.space in ("global", "const")}
    found: dict[str, npt.NDArray[np.uint8]] = {}
    for name, value in given.items():
        meant = choose(name, known)
        if len(meant) != 1:
            called = (
                f"{len(meant)} variables are called {name!r}" if meant else f"there is no variable {name!r}"
            )
            there = listed(meant or known) or "none: the compiler removes variables that no kernel uses"
            raise LaunchError(f"{called}\nthere are {there}")
        if meant[0] in found:
            raise LaunchError(f"variable {readable(meant[0])} is set twice\ngive one value for it")
        found[meant[0]] = _bytes(known[meant[0]], value, type_of(meant[0]))
    return found


def _bytes(variable: Variable, value: Any, kind: str) -> npt.NDArray[np.uint8]:
    """Convert a value to the bytes of a variable; raise LaunchError if it does not fit."""
    name = readable(variable.name)
    host: Any = sixteen_bits(on_host(value, name), kind)
    elements = pointee(kind) if isinstance(host, np.ndarray) else None
    if elements is not None and not elements.holds(cast("npt.NDArray[Any]", host).dtype):
        dtype = cast("npt.NDArray[Any]", host).dtype
        raise LaunchError(
            f"variable {name} has elements of {kind.removesuffix('*')}; those given are {dtype}\n"
            f"{elements.cast(name, dtype)}"
        )
    if not isinstance(host, np.ndarray) and variable.count == 1:
        try:
            host = scalar(Function(name, [variable], 0), 0, host)
        except LaunchError:
            raise LaunchError(f"variable {name} is a .{variable.type}; {host!r} does not fit it") from None
    if not isinstance(host, np.ndarray | np.generic):
        raise LaunchError(
            f"variable {name} is an array of {size_of(variable)} bytes; {host!r} is not an array\ngive one"
        )
    data: npt.NDArray[Any] = np.ascontiguousarray(cast("Any", host)).reshape(-1)
    if data.nbytes != size_of(variable):
        given = f"{data.size} elements of {data.dtype} have {data.nbytes}"
        raise LaunchError(
            f"variable {name} has {size_of(variable)} bytes; {given}\n"
            "give an array of the variable's size and of its element type"
        )
    return data.view(np.uint8)


def put(module: Any, values: Mapping[str, npt.NDArray[np.uint8]]) -> None:
    """Copy bytes to the variables of a module that a simulated device has loaded."""
    for name, data in values.items():
        module.variable(name).upload(data)


def with_values(ptx: str, module: Module, values: Mapping[str, npt.NDArray[np.uint8]]) -> str:
    """PTX whose variables begin with these bytes, for a device that sets none.

    >>> from simwarp.ptx.parse import parse
    >>> text = ".version 9.0 .target sm_90 .const .align 4 .f32 c[2]; .visible .global .u16 n = 5;"
    >>> given = {"c": np.frombuffer(np.float32([1, 2]).tobytes(), np.uint8), "n": np.uint8([7, 1])}
    >>> with_values(text, parse(text), given)[27:]
    '.const .align 4 .f32 c[2] = {0f3f800000, 0f40000000}; .visible .global .u16 n = 263;'
    """
    known = {v.name: v for v in module.variables}
    for name, data in values.items():
        declared = re.compile(
            rf"(\.(?:const|global)\b[^;={{}}]*?(?<![\w$.%]){re.escape(name)}(?![\w$])(?:\s*\[\s*\d+\s*\])*)[^;]*;"
        )
        numbers = _literals(known[name], data)
        ptx, count = declared.subn(lambda found, to=numbers: f"{found[1]} = {to};", ptx, count=1)
        if not count:
            raise SchemeError(
                f"variable {readable(name)} cannot be set on this device\n"
                "its declaration in the PTX is not that of one variable with its size\n"
                "leave out the device, or pass it as an argument"
            )
    return ptx


def _literals(variable: Variable, data: npt.NDArray[np.uint8]) -> str:
    """The initial value of a variable in PTX."""
    unit = DTYPES[variable.type].itemsize
    words = [int.from_bytes(data[i : i + unit].tobytes(), "little") for i in range(0, data.size, unit)]
    form = {"f32": "0f{:08x}", "f64": "0d{:016x}"}.get(variable.type, "{}")
    texts = [form.format(word) for word in words]
    return f"{{{', '.join(texts)}}}" if variable.count != 1 else texts[0]


def unset(module: Module, kernel: Function, values: Mapping[str, Any]) -> list[str]:
    """The ``__constant__`` variables that a kernel or its callees read and that have no value."""
    empty = [
        v.name for v in module.variables if v.space == "const" and not v.initial and v.name not in values
    ]
    named = used(module, kernel) if empty else set[str]()
    return [readable(name) for name in empty if name in named]


def used(module: Module, kernel: Function) -> set[str]:
    """The symbols that a kernel and its callees name, and those of variables that they declare."""
    reached = [module.functions[name] for name in CallGraph(module).reached(kernel.name)]
    functions = (kernel, *reached)
    own = {symbol_of(variable, function) for function in functions for variable in function.variables}
    return own | {
        name
        for function in functions
        for instruction in function.instructions
        for operand in instruction.operands
        for name in _named(operand)
    }


def _named(operand: Operand) -> Iterator[str]:
    """The names of variables and functions in an operand."""
    if isinstance(operand, Symbol):
        yield operand.name
    elif isinstance(operand, Address):
        yield from _named(operand.base)
    elif isinstance(operand, Group):
        for element in operand.elements:
            yield from _named(element)
