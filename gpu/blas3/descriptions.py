"""Docstrings of the doors, from one table."""

from __future__ import annotations

from gpu.blas3.problem import PREFIXES
from gpu.blas3.signatures import POSITIONAL

_COMPUTED = {
    "gemm": "alpha op(A) op(B) + beta C",
    "symm": "alpha A B + beta C, or alpha B A + beta C, with A symmetric",
    "hemm": "alpha A B + beta C, or alpha B A + beta C, with A Hermitian",
    "syrk": "one triangle of alpha A Aᵀ + beta C, or of alpha Aᵀ A + beta C",
    "herk": "one triangle of alpha A Aᴴ + beta C, or of alpha Aᴴ A + beta C",
    "syr2k": "one triangle of alpha (A Bᵀ + B Aᵀ) + beta C, or of the form with AᵀB",
    "her2k": "one triangle of alpha A Bᴴ + conj(alpha) B Aᴴ + beta C, or of the form with AᴴB",
    "trmm": "alpha op(A) B, or alpha B op(A), with A triangular",
    "trsm": "X of op(A) X = alpha B, or of X op(A) = alpha B, with A triangular",
}
_ARGUMENTS = {
    "alpha": "alpha : number",
    "a": "a : array of {dtype}\n"
    "    Row- or column-major, or a part of such a matrix; on the host, or on a device (`Tile`, torch …).",
    "b": "b : array of {dtype}",
    "beta": "beta : number\n    With 0, C is not read.",
    "c": "c : array of {dtype}, optional\n    Default: zeros.",
    "trans": "trans : {{0, 1, 2}}\n    A as it is, transposed, or transposed and conjugated.",
    "trans_a": "trans_a : {{0, 1, 2}}\n    A as it is, transposed, or transposed and conjugated.",
    "trans_b": "trans_b : {{0, 1, 2}}\n    The same of B.",
    "side": "side : {{0, 1}}\n    A is on the left or on the right.",
    "lower": "lower : {{0, 1}}\n    The upper or the lower triangle is stored; the other one is not read.",
    "diag": "diag : {{0, 1}}\n    1: the diagonal is ones, and not read.",
    "overwrite_c": "overwrite_c : {{0, 1}}\n    1: compute in C, as always on a device. 0: copy it first.",
    "overwrite_b": "overwrite_b : {{0, 1}}\n    1: compute in B, as always on a device. 0: copy it first.",
}
_OPERANDS = {
    "syrk": "[[1.0], [2.0]]",
    "herk": "[[1.0], [2.0]]",
    "trmm": "[[1.0, 2.0], [0.0, 4.0]], [[1.0], [1.0]]",
    "trsm": "[[1.0, 2.0], [0.0, 4.0]], [[4.0], [4.0]]",
    "syr2k": "[[1.0], [2.0]], [[3.0], [4.0]]",
    "her2k": "[[1.0], [2.0]], [[3.0], [4.0]]",
}
_RESULTS = {
    "gemm": "[4.0, 8.0]",
    "symm": "[4.0, 8.0]",
    "hemm": "[4.0, 8.0]",
    "syrk": "[2.0, 4.0, 0.0, 8.0]",
    "herk": "[2.0, 4.0, 0.0, 8.0]",
    "syr2k": "[12.0, 20.0, 0.0, 32.0]",
    "her2k": "[12.0, 20.0, 0.0, 32.0]",
    "trmm": "[6.0, 8.0]",
    "trsm": "[4.0, 2.0]",
}
_TEMPLATE = """Compute {computed}.

Parameters
----------
{parameters}
device : Machine, optional
    Whose devices compute it, tile by tile. Default: all GPUs, `gpu.CudaMachine`; SciPy for a small problem.
tile : int, optional
    Rows and columns of a tile. Default: chosen by sizes and budgets.
memory_budget : int or sequence of int, optional
    The bytes of each device that tiles may use. Default: all that are free.
options : Options, optional
statistics : Statistics, optional
    Filled with the counts of the call.

Returns
-------
array of {dtype}
    Or the matrix of a device that was given for the result.

Raises
------
ShapeError, DtypeError, FormatError, SchemeError
    For an argument, with its name and position; before anything is written.
LaunchError
    For a budget that does not hold one batch of tiles, and for a matrix on a device that others do not reach.
NoGpuError
    For a large problem without a machine, on a computer without a GPU.
MissingExtraError
    Without SciPy, on a simulated machine or for a small problem.

Notes
-----
Every sum is computed by one device in one order: results do not depend on the number of devices.
Source: BLASX, sections III and IV; the reference BLAS.

Examples
--------
>>> import gpu.blas3
>>> import simwarp
>>> result = gpu.blas3.{routine}(2.0, {operands}, device=simwarp.Machine())
>>> [float(x) for x in result.real.ravel()]
{result}
"""


def docstring(routine: str) -> str:
    """The docstring of a routine.

    >>> docstring("dtrmm").splitlines()[-1]
    '[6.0, 8.0]'
    """
    kind, dtype = routine[1:], PREFIXES[routine[0]]
    return _TEMPLATE.format(
        computed=_COMPUTED[kind],
        parameters="\n".join(_ARGUMENTS[name].format(dtype=dtype) for name in POSITIONAL[kind]),
        dtype=dtype,
        routine=routine,
        operands=_OPERANDS.get(kind, "[[2.0, 0.0], [0.0, 4.0]], [[1.0], [1.0]]"),
        result=_RESULTS[kind],
    )
