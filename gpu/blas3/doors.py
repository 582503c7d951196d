"""`dgemm` and the other routines, with SciPy's signatures, on all devices of a machine."""

from __future__ import annotations

from inspect import Parameter, Signature
from typing import Any, Protocol, cast

import numpy as np

from gpu.blas3.arguments import Array, call_of, operand, refuse, sizes_of
from gpu.blas3.descriptions import docstring
from gpu.blas3.device_matrix import DeviceMatrix
from gpu.blas3.execute import execute
from gpu.blas3.layouts import Call, Matrix, is_column_major
from gpu.blas3.table import LETTERS, PREFIXES, ROWS, Name, flag_of
from gpu.machine import check_machine
from reference.errors import FormatError, SchemeError

KEYWORDS = ("device", "tile", "memory_budget", "options", "statistics")
"""Arguments that SciPy does not have."""
_REQUIRED = ("alpha", "a", "b")
_DEFAULTS: dict[str, Any] = {"beta": 0.0, "c": None}
"""Of everything else the default is 0."""


class Door(Protocol):
    """A routine of BLAS with SciPy's signature."""

    __name__: str

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """The result: an array, or the caller's C or B if that is on a device."""
        ...


def door(routine: str) -> Door:
    """The function for a routine, with its signature and docstring."""
    signature = signature_of(routine[1:])

    def call(*arguments: Any, **keywords: Any) -> Any:
        bound = signature.bind(*arguments, **keywords)
        bound.apply_defaults()
        return _called(routine, bound.arguments)

    call.__name__ = call.__qualname__ = routine
    call.__module__ = "gpu.blas3"
    call.__doc__ = docstring(routine)
    cast("Any", call).__signature__ = signature
    return cast("Door", call)


def signature_of(kind: str) -> Signature:
    """SciPy's signature of a routine, and `KEYWORDS`.

    >>> str(signature_of("trsm")).partition(", *")[0]
    '(alpha, a, b, side=0, lower=0, trans_a=0, diag=0, overwrite_b=0'
    """
    parameters = [
        Parameter(
            name,
            Parameter.POSITIONAL_OR_KEYWORD,
            default=Parameter.empty if name in _REQUIRED else _DEFAULTS.get(name, 0),
        )
        for name in ROWS[kind].arguments
    ]
    parameters += [Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in KEYWORDS]
    return Signature(parameters)


def flags_of(routine: str, given: dict[str, Any]) -> dict[str, str]:
    """The flags' letters from SciPy's integers.

    >>> flags_of("dsymm", {"alpha": 1.0, "side": 1, "lower": 0})
    {'side': 'R', 'uplo': 'U'}
    """
    flags: dict[str, str] = {}
    for name, value in given.items():
        argument = flag_of(name)
        if argument not in LETTERS:
            continue
        letters = LETTERS[argument]
        if value not in range(len(letters)):
            meaning = ", ".join(f"{number} for {letter}" for number, letter in enumerate(letters))
            refuse(SchemeError, routine, argument, f"{name}={value!r}", meaning, "choose one of them")
        flags[argument] = letters[int(value)]
    return flags


def _called(routine: str, given: dict[str, Any]) -> Any:
    """Check the arguments, make the result, and compute it."""
    call, result = prepared(routine, given)
    execute(call, *(given[name] for name in KEYWORDS))
    return result.given if isinstance(result, DeviceMatrix) else result


def prepared(routine: str, given: dict[str, Any]) -> tuple[Call, Matrix]:
    """The checked call of all arguments except `KEYWORDS`, and its result, which `execute` computes in place.

    Raises ShapeError, DtypeError, FormatError or SchemeError with the argument's name and position.
    """
    row, flags = ROWS[routine[1:]], flags_of(routine, given)
    device = given.get("device")
    if device is not None:
        check_machine(device)
    matrices: dict[Name, Matrix] = {name: operand(routine, name, given[name], device) for name in row.inputs}
    beta = given.get("beta", 0.0)
    if row.result == "b":
        matrices["b"] = matrices["b"] if given["overwrite_b"] else _copied(routine, "b", matrices["b"])
    elif given["c"] is None:
        beta = 0.0
        matrices["c"] = _new(routine, matrices, flags)
    else:
        c = operand(routine, "c", given["c"], device)
        matrices["c"] = c if given["overwrite_c"] else _copied(routine, "c", c)
    call = call_of(routine, given["alpha"], beta, matrices, flags)
    return call, matrices[row.result]


def _copied(routine: str, name: Name, x: Matrix) -> Array:
    """A copy of a matrix that is not overwritten."""
    if isinstance(x, DeviceMatrix):
        found, needed = f"it lies on device {x.memory.device}", "a result there is computed in place"
        refuse(FormatError, routine, name, found, needed, f"copy it, and pass overwrite_{name}=1")
    return x.copy(order="K")


def _new(routine: str, matrices: dict[Name, Matrix], flags: dict[str, str]) -> Array:
    """A result in the layout of the last operand, with which no operand of that layout has to be copied."""
    row = ROWS[routine[1:]]
    shape = sizes_of(row, matrices, flags)[:2]
    order = "F" if is_column_major([*matrices.values()][-1]) else "C"
    make = np.zeros if row.is_triangle else np.empty
    return make(shape, PREFIXES[routine[0]], order=order)


__all__: list[str] = ["cgemm", "dgemm", "sgemm", "zgemm"]
sgemm = door("sgemm")
dgemm = door("dgemm")
cgemm = door("cgemm")
zgemm = door("zgemm")

__all__ += ["cgemmt", "dgemmt", "sgemmt", "zgemmt"]
sgemmt = door("sgemmt")
dgemmt = door("dgemmt")
cgemmt = door("cgemmt")
zgemmt = door("zgemmt")

__all__ += ["csymm", "dsymm", "ssymm", "zsymm"]
ssymm = door("ssymm")
dsymm = door("dsymm")
csymm = door("csymm")
zsymm = door("zsymm")

__all__ += ["chemm", "zhemm"]
chemm = door("chemm")
zhemm = door("zhemm")

__all__ += ["csyrk", "dsyrk", "ssyrk", "zsyrk"]
ssyrk = door("ssyrk")
dsyrk = door("dsyrk")
csyrk = door("csyrk")
zsyrk = door("zsyrk")

__all__ += ["cherk", "zherk"]
cherk = door("cherk")
zherk = door("zherk")

__all__ += ["csyr2k", "dsyr2k", "ssyr2k", "zsyr2k"]
ssyr2k = door("ssyr2k")
dsyr2k = door("dsyr2k")
csyr2k = door("csyr2k")
zsyr2k = door("zsyr2k")

__all__ += ["cher2k", "zher2k"]
cher2k = door("cher2k")
zher2k = door("zher2k")

__all__ += ["ctrmm", "dtrmm", "strmm", "ztrmm"]
strmm = door("strmm")
dtrmm = door("dtrmm")
ctrmm = door("ctrmm")
ztrmm = door("ztrmm")

__all__ += ["ctrsm", "dtrsm", "strsm", "ztrsm"]
strsm = door("strsm")
dtrsm = door("dtrsm")
ctrsm = door("ctrsm")
ztrsm = door("ztrsm")
