"""The tolerance of a float output: the difference that the roundings of the run explain.

A sum of n terms of one sign is off by at most n roundings of itself. Where terms cancel, it is off by about
the square root of n roundings of its partial sums, for which the largest expected element stands.

Source: Higham and Mary, "A New Approach to Probabilistic Rounding Error Analysis", SIAM J. Sci.
Comput. 41, 2019.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import sqrt
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from simwarp.engine.events import Observer
from simwarp.ptx.kinds import MATRIX, WARPGROUP_PRODUCT

if TYPE_CHECKING:
    import numpy.typing as npt

    from simwarp.engine.state import Chunk, Mask
    from simwarp.program.program import Step

_UNITS = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-53, "approximate": 2.0**-22}
"""Half of the distance of neighbours, relative to a number, by type of arithmetic."""
_RTOL, _MOST_RTOL, _ATOL = 1e-5, 2.5e-4, 1e-8
_SAFETY = 2
_LANES_OF_PRODUCTS = {MATRIX: 32, WARPGROUP_PRODUCT: 128}
_ASSUMED = {"f32": 1024}
"""Operations for an element of an output on hardware, which counts none."""


class FloatOperations(Observer):
    """Counts the floating-point operations of a run by type, including tensor cores and atomics."""

    def __init__(self) -> None:
        self.numbers: Counter[str] = Counter()

    def on_step(self, chunk: Chunk, step: Step, mask: Mask) -> None:
        """Count the floating-point operations that the lanes of ``mask`` executed in a step."""
        kind, number = _of_step(step)
        if kind in _UNITS:
            self.numbers[kind] += int(number * np.count_nonzero(mask))


def _of_step(step: Step) -> tuple[str, float]:
    """The type of a step's operations on floats, and how many one lane executes."""
    from simwarp.observe.traffic import operations

    if step.kind.is_atomic:
        return step.form.T.removesuffix("x2"), 1
    if step.kind in _LANES_OF_PRODUCTS:
        return _of_product(step.instruction.opcode, _LANES_OF_PRODUCTS[step.kind])
    found = operations(step.row, step.form.T)
    return ("", 0) if found is None else found


@cache
def _of_product(opcode: str, lanes: int) -> tuple[str, float]:
    """The type of a matrix instruction's sums, and its operations for each of its lanes."""
    from simwarp.fragments import fragments_of

    shape = fragments_of(opcode).shape
    kind = next((part for part in opcode.split(".") if part in _UNITS), "")
    return kind, 2 * shape.m * shape.n * shape.k / lanes


@dataclass(frozen=True)
class Tolerance:
    """Floats may differ by ``atol + rtol * |expected|``; ``reason`` is the origin of ``atol``."""

    atol: float
    rtol: float
    reason: str = ""

    @classmethod
    def of(
        cls,
        got: npt.NDArray[Any],
        expected: npt.NDArray[Any],
        operations: Mapping[str, int] | None,
        rtol: float | None = None,
        atol: float | None = None,
    ) -> Self:
        """The tolerance of an output, from the run's ``operations`` by type (None: not counted).

        A given ``rtol`` or ``atol`` counts instead of what follows from the operations.
        """
        largest = float(np.abs(expected[np.isfinite(expected)]).max(initial=0))
        each = {
            kind: number if operations is None else max(number / got.size, 1)
            for kind, number in (_ASSUMED if operations is None else operations).items()
        }
        linear = min(sum(number * _UNITS[kind] for kind, number in each.items()), _MOST_RTOL)
        squares = {kind: number * _UNITS[kind] ** 2 for kind, number in each.items()}
        sizes = [float(np.finfo(a.dtype).eps) for a in (got, expected) if a.dtype.kind in "fc"]
        rtol = max(_RTOL, linear, *sizes) if rtol is None else rtol
        if atol is not None:
            return cls(atol, rtol)
        if not squares or not largest:
            return cls(0.0 if largest else _ATOL, rtol)
        main = max(squares, key=lambda kind: squares[kind])
        reason = f"{_SAFETY} * sqrt({each[main]:.0f}) roundings of {main} at {largest:.3g}"
        return cls(_SAFETY * sqrt(sum(squares.values())) * largest, rtol, reason)

    def __str__(self) -> str:
        """The tolerance as text, for a message."""
        reason = f" = {self.reason}" if self.reason else ""
        absolute = f"{self.atol:.3g}{reason}" if self.atol else ""
        relative = f"{self.rtol:.3g} of each element" if self.rtol else ""
        return " plus ".join(filter(None, (absolute, relative))) or "nothing"


def errors(got: npt.NDArray[Any], want: npt.NDArray[Any], tolerance: Tolerance | None) -> tuple[Any, Any]:
    """A mask of wrong elements, and the absolute error of each: exact integers, or infinite beside a NaN."""
    if tolerance is None:
        wrong = got != want
        return wrong, np.abs(got.astype(object) - want.astype(object)) if wrong.any() else np.zeros(got.shape)
    wide = np.result_type(got, want, np.float64)
    one, other = got.astype(wide), want.astype(wide)
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(one - other)
        near = np.isfinite(other) & (off <= tolerance.atol + tolerance.rtol * np.abs(other))
    return ~(same | near), np.where(same, 0.0, np.where(np.isnan(off), np.inf, off))
