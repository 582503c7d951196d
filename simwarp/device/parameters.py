"""Convert arguments to kernel parameters, and refuse those that do not fit."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from reference.devices.launch import number
from simwarp.faults import LaunchError
from simwarp.program.link import size_of
from simwarp.program.program import Program
from simwarp.ptx.mangled_names import readable
from simwarp.ptx.rows import DTYPES
from simwarp.ptx.syntax import Function, Variable

Parameters: TypeAlias = Program | Function
"""A kernel, with its name and parameters."""
_WORDS = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}


def scalar(kernel: Parameters, position: int, value: Any) -> Any:
    """Convert a number, or the bytes of a structure, to a NumPy scalar of its parameter's size."""
    parameter = kernel.parameters[position]
    if isinstance(value, np.ndarray):
        array: npt.NDArray[Any] = cast("Any", value)
        value = array.reshape(-1)[0] if array.size == 1 and array.dtype.kind != "V" else array.tobytes()
    if parameter.count > 1 or isinstance(value, bytes | np.void):
        return _structure(kernel, position, value)
    dtype = DTYPES[parameter.type]
    given: Any = value
    if parameter.type.startswith("b") and isinstance(value, np.generic) and given.nbytes == dtype.itemsize:
        return given  # PTX declares the parameter's width, not its type
    is_float = dtype.kind == "f"
    exact = isinstance(value, np.generic) and given.nbytes == dtype.itemsize and given.dtype.kind in "fiu"
    if exact and (given.dtype.kind == "f") == is_float:  # the usual case
        return given if is_float else given.view(_WORDS[dtype.itemsize])
    try:
        return number(value, dtype.itemsize, is_float=is_float)
    except OverflowError:
        misfits = "is too large for an" if is_float else "does not fit a"
        most = f"up to {np.finfo(dtype).max:.9g}" if is_float else f"of at most {8 * dtype.itemsize} bits"
        what, advice = f"{value!r}, which {misfits} {parameter.type}", f"pass a number {most}"
    except TypeError:
        what = f"{value!r:.60}; parameter {position} is of {parameter.type}"
        advice = "pass a number" if is_float else "pass an integer"
        advice += ", or for a pointer an array" * is_pointer(parameter)
    raise misfit(kernel, position, what, advice)


def is_pointer(parameter: Variable) -> bool:
    """Whether a kernel parameter can hold an address."""
    return parameter.count == 1 and parameter.type in ("u64", "s64", "b64")


def signature(kernel: Parameters) -> str:
    """A kernel's name and the types of its parameters, for messages."""
    sized = (p.type if p.count == 1 else f"{size_of(p)} bytes" for p in kernel.parameters)
    return f"{readable(kernel.name)}({', '.join(sized)})"


def misfit(kernel: Parameters, position: int, what: str, advice: str = "") -> LaunchError:
    """The `LaunchError` for an argument that does not fit its parameter."""
    first = f"kernel {signature(kernel)}: argument {position} is {what}"
    return LaunchError(f"{first}\n{advice}" if advice else first)


def _structure(kernel: Parameters, position: int, value: Any) -> Any:
    """Convert the bytes of a structure to a NumPy scalar."""
    parameter = kernel.parameters[position]
    data = value.tobytes() if isinstance(value, np.generic) else value
    if not isinstance(data, bytes) or len(data) != size_of(parameter):
        given = f"{len(data)} bytes" if isinstance(data, bytes) else f"{value!r}"
        raise misfit(
            kernel,
            position,
            f"{given}; the parameter takes {size_of(parameter)} bytes",
            "pass bytes, or a NumPy scalar of that size (of a structure: a dtype with align=True); "
            "on the command line bytes:0a0b, float16:1.5 or {int8:7,float64:2.5}",
        )
    return np.void(data) if parameter.count > 1 else np.frombuffer(data, DTYPES[parameter.type])[0]
