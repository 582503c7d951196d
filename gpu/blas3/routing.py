"""The calls of NumPy and SciPy that `gpu.blas3` can compute with the same result, and their routing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from inspect import Signature
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from gpu.blas3.arguments import Array, is_whole, sizes_of
from gpu.blas3.doors import KEYWORDS, flags_of, prepared, signature_of
from gpu.blas3.layouts import Call
from gpu.blas3.problem import PREFIX_OF
from gpu.blas3.table import PREFIXES, ROWS
from reference.errors import DtypeError, FormatError, SchemeError, ShapeError

Reason: TypeAlias = Literal["arguments", "layout", "operands", "size"]
"""Why a call is not routed.

``arguments``: `gpu.blas3` refuses them or does not have them; ``layout``: neither rows nor columns are
contiguous; ``operands``: not plain matrices of the dtype; ``size``: small.
"""
Found: TypeAlias = tuple[Call, Array] | Reason
"""A checked call with its result, or the reason why there is none."""


def product_of(arguments: tuple[Any, ...], keywords: Mapping[str, Any], above: int) -> Found:
    """Check a call of `numpy.matmul` or `numpy.dot`; the result is row-major, as NumPy's is."""
    if keywords or len(arguments) != 2:
        return "arguments"
    a, b = arguments
    if not all(_is_plain(x, getattr(a, "dtype", None)) for x in arguments) or a.dtype not in PREFIX_OF:
        return "operands"
    (m, k), n = a.shape, b.shape[1]
    if m * n * k <= above**3:
        return "size"
    given = {"alpha": 1.0, "a": a, "b": b, "trans_a": 0, "trans_b": 0, "beta": 0.0, "overwrite_c": 1}
    return _checked(PREFIX_OF[a.dtype] + "gemm", {**given, "c": np.empty((m, n), a.dtype)})


def routine_of(routine: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any], above: int) -> Found:
    """A call of SciPy's routine; the result is column-major, as SciPy's is."""
    row = ROWS[routine[1:]]
    try:
        bound = _signature(row.name).bind(*arguments, **keywords)
    except TypeError:
        return "arguments"
    bound.apply_defaults()
    given = bound.arguments
    operands = {name: given[name] for name in "abc" if name in given}
    if operands.get("c", 0) is None:
        del operands["c"]
    if not all(_is_plain(x, np.dtype(PREFIXES[routine[0]])) for x in operands.values()):
        return "operands"
    if not all(_is_usual(routine, name, x) for name, x in given.items() if name not in ("a", "b", "c")):
        return "arguments"
    m, n, k = sizes_of(row, cast("Any", operands), flags_of(routine, given))
    if m * n * k <= above**3:
        return "size"
    written = row.result
    if given[written] is None:
        make = np.zeros if row.is_triangle else np.empty
        given |= {"beta": 0.0, "c": make((m, n), PREFIXES[routine[0]], order="F")}
    elif not (given[f"overwrite_{written}"] and given[written].flags.f_contiguous):
        given[written] = np.array(given[written], order="F")  # SciPy overwrites only this argument
    return _checked(routine, {**given, f"overwrite_{written}": 1})


@cache
def _signature(kind: str) -> Signature:
    """SciPy's signature, without the arguments that only `gpu.blas3` has."""
    signature = signature_of(kind)
    return signature.replace(parameters=[p for p in signature.parameters.values() if p.name not in KEYWORDS])


def _is_plain(x: Any, dtype: Any) -> bool:
    """True if an operand is a two-dimensional ``numpy.ndarray`` of this dtype, not of a subclass."""
    kind: Any = x.__class__
    return kind is np.ndarray and x.ndim == 2 and x.dtype == dtype and x.flags.aligned


def _is_usual(routine: str, name: str, value: Any) -> bool:
    """True if a scalar argument is a number, or a valid integer flag, that SciPy accepts unchanged."""
    if name not in ("alpha", "beta"):
        return is_whole(value) and value in range(3 if name.startswith("trans") else 2)
    is_real = routine[0] in "sd" or name in ROWS[routine[1:]].real
    kinds = (int, float, np.integer, np.floating)
    return isinstance(value, kinds if is_real else (*kinds, complex, np.complexfloating))


def _checked(routine: str, given: dict[str, Any]) -> Found:
    """The checked call; the original handles calls that `gpu.blas3` refuses, and raises their errors."""
    try:
        call, result = prepared(routine, given)
        return call, cast("Array", result)  # all operands are NumPy arrays
    except FormatError:
        return "layout"
    except (DtypeError, SchemeError, ShapeError):
        return "arguments"
