"""Float operations that one machine instruction computes, where NumPy needs many, or asks for values.

A row's function does the rest: `.ftz`, `.sat` and the bits of NaN are traced from it. Only rounding to
nearest is lowered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simwarp.compiled.expressions import UntraceableError, Value, cast
from simwarp.ptx.instructions import conversion, floating
from simwarp.ptx.instructions.float_formats import FORMATS, arithmetic, rounding, words
from simwarp.ptx.rows import Form, Row


def fused(a: Any, b: Any, c: Any) -> Value:
    """The sum a · b + c, rounded once."""
    dtype = next(x.dtype for x in (a, b, c) if isinstance(x, Value))
    return Value("fma", dtype, tuple(cast(x, dtype) for x in (a, b, c)))


_CORES: dict[Any, tuple[Callable[..., Any], tuple[int, ...]]] = {
    floating.add: (np.add, (1, 0)),
    floating.sub: (np.subtract, (1, 0)),
    floating.mul: (np.multiply, (1, 0)),
    floating.div: (np.divide, (0, 1)),
    floating.fma: (fused, (1, 2, 0)),
}
"""Function of a row → its core, and the order of the operands whose NaN an f64 result keeps, as there."""


def _arithmetic(core: Callable[..., Any], order: tuple[int, ...]) -> Callable[..., Any]:
    """The function of a row with its core in place of `simwarp.floats`."""

    def nearest(*given: Any) -> Any:
        *operands, _ = given  # the rounding
        return core(*operands)

    def function(form: Form, *operands: Any) -> Any:
        if rounding(form) != "rn":
            raise UntraceableError("another rounding")
        return arithmetic(form, nearest, *operands, first=tuple(operands[i] for i in order))

    return function


def _from_integer(form: Form, a: Any) -> Any:
    if rounding(form) != "rn":
        raise UntraceableError("another rounding")
    d = words(a.astype(form.dtype))
    return FORMATS[form.T].saturate(d) if form.has("sat") else d


def lowered(row: Row, form: Form) -> Callable[..., Any] | None:
    """The function that computes a form in place of its row's; None for the row's own."""
    if row.function in _CORES:
        return _arithmetic(*_CORES[row.function])
    if row.function is conversion.cvt_from_integer and form.T in ("f32", "f64"):
        return _from_integer
    return None
