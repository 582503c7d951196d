"""Numbers and structures as the parameters that take them: converted, and refused where they do not fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from simwarp.faults import LaunchError
from simwarp.program.link import size_of
from simwarp.ptx.mangled_names import readable
from simwarp.ptx.rows import DTYPES
from simwarp.ptx.syntax import Variable


class Parameters(Protocol):
    """What messages need to know of a kernel."""

    @property
    def name(self) -> str:
        """Its name in the PTX."""
        ...

    @property
    def parameters(self) -> Sequence[Variable]:
        """What it takes."""
        ...


def scalar(kernel: Parameters, position: int, value: Any) -> Any:
    """A number, or the bytes of a structure, as a NumPy scalar of its parameter's size.

    Parameters
    ----------
    kernel : Function or Program
    position : int
        Of the parameter.
    value : int, float, bool, bytes or NumPy scalar
        An integer must fit the parameter's bits, signed or unsigned: PTX does not say which it is.

    Raises
    ------
    LaunchError
        For what does not fit.

    Examples
    --------
    >>> from simwarp.ptx.syntax import Function
    >>> kernel = Function("f", [Variable("n", "param", "u32"), Variable("a", "param", "f32")], 1)
    >>> scalar(kernel, 0, -1), scalar(kernel, 1, 3)
    (np.uint32(4294967295), np.float32(3.0))
    >>> scalar(kernel, 0, 2**32)
    Traceback (most recent call last):
    ...
    simwarp.faults.LaunchError: kernel f(u32, f32): argument 0 is 4294967296, which does not fit a u32
    pass a number of at most 32 bits
    """
    parameter = kernel.parameters[position]
    if parameter.count > 1 or isinstance(value, bytes | np.void):
        return _structure(kernel, position, value)
    dtype = DTYPES[parameter.type]
    given: Any = value
    if parameter.type.startswith("b") and isinstance(value, np.generic) and given.nbytes == dtype.itemsize:
        return given  # the PTX does not say what the bits mean
    value = _python(value)
    if isinstance(value, int | float) and dtype.kind == "f":
        number = _rounded(value, dtype)
        if math.isinf(number) and value not in (math.inf, -math.inf):
            raise misfit(kernel, position, f"{value!r}, which is too large for an {parameter.type}")
        return number
    if isinstance(value, int):
        return _integer(kernel, position, value, dtype.itemsize)
    wanted = "a number" if dtype.kind == "f" else "an integer"
    pointer = ", or for a pointer an array" if is_pointer(parameter) else ""
    raise misfit(
        kernel, position, f"{value!r}; parameter {position} is of {parameter.type}", f"pass {wanted}{pointer}"
    )


def exactly(kernel: Parameters, position: int, value: Any) -> bytes:
    """The bytes of an argument of a launch: NumPy's have the parameter's size and kind, Python's fit.

    Raises
    ------
    LaunchError
        For what does not: nothing is taken bit for bit as something else.

    Examples
    --------
    >>> from simwarp.ptx.syntax import Function
    >>> kernel = Function("f", [Variable("n", "param", "u32")], 1)
    >>> exactly(kernel, 0, -1) == exactly(kernel, 0, np.int32(-1))
    True
    >>> exactly(kernel, 0, np.float32(2))
    Traceback (most recent call last):
    ...
    simwarp.faults.LaunchError: kernel f(u32): argument 0 is a float32 of 4 bytes; the parameter takes a u32
    pass a Python number, a NumPy scalar of the parameter's type, or for a pointer a device array
    """
    parameter = kernel.parameters[position]
    given: Any = value
    if isinstance(value, np.generic | np.ndarray):
        kind: str = given.dtype.kind
        of_bits = parameter.count > 1 or parameter.type.startswith("b") or kind == "V"
        alike = kind != "O" and (kind in "fc") == parameter.type.startswith("f")
        if given.nbytes == size_of(parameter) and (of_bits or alike):
            return given.tobytes()
        what = f"a {given.dtype} of {given.nbytes} bytes"
    elif isinstance(value, int | float | bytes):
        return scalar(kernel, position, given).tobytes()
    else:
        what = f"a {type(given).__name__}"
    takes = f"a {parameter.type}" if parameter.count == 1 else f"{size_of(parameter)} bytes"
    advice = "pass a Python number, a NumPy scalar of the parameter's type, or for a pointer a device array"
    raise misfit(kernel, position, f"{what}; the parameter takes {takes}", advice)


def is_pointer(parameter: Variable) -> bool:
    """Whether a parameter can hold an address.

    Examples
    --------
    >>> is_pointer(Variable("x", "param", "u64")), is_pointer(Variable("float2", "param", "b8", 8))
    (True, False)
    """
    return parameter.count == 1 and parameter.type in ("u64", "s64", "b64")


def signature(kernel: Parameters) -> str:
    """A kernel's name and the types of its parameters.

    Examples
    --------
    >>> from simwarp.ptx.syntax import Function
    >>> signature(Function("f", [Variable("x", "param", "u64"), Variable("s", "param", "b8", 12)], 1))
    'f(u64, 12 bytes)'
    """
    sized = (p.type if p.count == 1 else f"{size_of(p)} bytes" for p in kernel.parameters)
    return f"{readable(kernel.name)}({', '.join(sized)})"


def misfit(kernel: Parameters, position: int, what: str, advice: str = "") -> LaunchError:
    r"""The error for an argument that does not fit its parameter.

    Examples
    --------
    >>> from simwarp.ptx.syntax import Function
    >>> misfit(Function("f", [Variable("x", "param", "u64")], 1), 0, "nothing", "pass an array")
    LaunchError('kernel f(u64): argument 0 is nothing\npass an array')
    """
    first = f"kernel {signature(kernel)}: argument {position} is {what}"
    return LaunchError(f"{first}\n{advice}" if advice else first)


def _python(value: Any) -> Any:
    """A NumPy scalar as Python's own."""
    scalar: Any = value
    return scalar.item() if isinstance(value, np.generic) else scalar


def _rounded(value: float, dtype: np.dtype[Any]) -> Any:
    """A number as a float; infinity if it is too large."""
    with np.errstate(over="ignore"):
        try:
            return dtype.type(value)
        except OverflowError:
            return dtype.type(math.inf)


def _integer(kernel: Parameters, position: int, number: int, size: int) -> Any:
    bits = 8 * size
    if not -(1 << bits - 1) <= number < 1 << bits:
        what = f"{number}, which does not fit a {kernel.parameters[position].type}"
        raise misfit(kernel, position, what, f"pass a number of at most {bits} bits")
    return np.dtype(f"u{size}").type(number % (1 << bits))


def _structure(kernel: Parameters, position: int, value: Any) -> Any:
    parameter = kernel.parameters[position]
    data = value.tobytes() if isinstance(value, np.generic) else value
    if not isinstance(data, bytes) or len(data) != size_of(parameter):
        given = f"{len(data)} bytes" if isinstance(data, bytes) else f"{value!r}"
        raise misfit(
            kernel,
            position,
            f"{given}; the parameter takes {size_of(parameter)} bytes",
            "pass bytes, or a NumPy scalar of that size (of a structure: a dtype with align=True)",
        )
    return np.void(data) if parameter.count > 1 else np.frombuffer(data, DTYPES[parameter.type])[0]
