"""`dgemm` and its kin: SciPy's signatures, over all devices of a machine."""

from __future__ import annotations

from typing import Any, Protocol, cast

import numpy as np

from gpu.blas3.arguments import Array, call_of, operand, refuse, sizes_of
from gpu.blas3.descriptions import docstring
from gpu.blas3.device_matrix import DeviceMatrix
from gpu.blas3.execute import execute
from gpu.blas3.layouts import Call, Matrix, is_column_major
from gpu.blas3.problem import PREFIXES, RANK_K, TRIANGULAR, Name
from gpu.blas3.signatures import KEYWORDS, flags_of, signature_of
from gpu.machine import check_machine
from reference.errors import FormatError


class Door(Protocol):
    """A routine of BLAS with SciPy's signature."""

    __name__: str

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """The result: an array, or what was given as C or B if that lies on a device."""
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


def _called(routine: str, given: dict[str, Any]) -> Any:
    """Check the arguments, make the result, and compute it."""
    call, result = prepared(routine, given)
    execute(call, *(given[name] for name in KEYWORDS))
    return result.given if isinstance(result, DeviceMatrix) else result


def prepared(routine: str, given: dict[str, Any]) -> tuple[Call, Matrix]:
    """The checked call of all arguments but `KEYWORDS`, and its result, which `execute` computes in place.

    Raises ShapeError, DtypeError, FormatError or SchemeError with the argument's name and position.
    """
    kind = routine[1:]
    flags = flags_of(routine, given)
    names: tuple[Name, ...] = ("a", "b")
    device = given.get("device")
    if device is not None:
        check_machine(device)
    matrices: dict[Name, Matrix] = {
        name: operand(routine, name, given[name], device) for name in names if name in given
    }
    beta = given.get("beta", 0.0)
    if kind in TRIANGULAR:
        matrices["b"] = matrices["b"] if given["overwrite_b"] else _copied(routine, "b", matrices["b"])
    elif given["c"] is None:
        beta = 0.0
        matrices["c"] = _new(routine, matrices, flags)
    else:
        c = operand(routine, "c", given["c"], device)
        matrices["c"] = c if given["overwrite_c"] else _copied(routine, "c", c)
    call = call_of(routine, given["alpha"], beta, matrices, flags)
    return call, matrices["b" if kind in TRIANGULAR else "c"]


def _copied(routine: str, name: Name, x: Matrix) -> Array:
    """A copy of a matrix that is not overwritten."""
    if isinstance(x, DeviceMatrix):
        found, needed = f"it lies on device {x.memory.device}", "a result there is computed in place"
        refuse(FormatError, routine, name, found, needed, f"copy it, and pass overwrite_{name}=1")
    return x.copy(order="K")


def _new(routine: str, matrices: dict[Name, Matrix], flags: dict[str, str]) -> Array:
    """A result in the layout of the last operand, with which no operand of that layout has to be copied."""
    kind = routine[1:]
    shape = sizes_of(kind, matrices, flags)[:2]
    order = "F" if is_column_major([*matrices.values()][-1]) else "C"
    make = np.zeros if kind in RANK_K else np.empty
    return make(shape, PREFIXES[routine[0]], order=order)


sgemm = door("sgemm")
dgemm = door("dgemm")
cgemm = door("cgemm")
zgemm = door("zgemm")
ssymm = door("ssymm")
dsymm = door("dsymm")
csymm = door("csymm")
zsymm = door("zsymm")
chemm = door("chemm")
zhemm = door("zhemm")
ssyrk = door("ssyrk")
dsyrk = door("dsyrk")
csyrk = door("csyrk")
zsyrk = door("zsyrk")
cherk = door("cherk")
zherk = door("zherk")
ssyr2k = door("ssyr2k")
dsyr2k = door("dsyr2k")
csyr2k = door("csyr2k")
zsyr2k = door("zsyr2k")
cher2k = door("cher2k")
zher2k = door("zher2k")
strmm = door("strmm")
dtrmm = door("dtrmm")
ctrmm = door("ctrmm")
ztrmm = door("ztrmm")
strsm = door("strsm")
dtrsm = door("dtrsm")
ctrsm = door("ctrsm")
ztrsm = door("ztrsm")
