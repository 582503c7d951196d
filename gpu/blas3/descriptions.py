"""Docstrings of the doors, from the table of routines."""

from __future__ import annotations

from gpu.blas3.table import PREFIXES, ROWS

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
_OF_C = {
    "lower": "lower : {{0, 1}}\n    Compute the upper or the lower triangle of C; the other one is kept."
}
"""What differs where one triangle of C is written."""
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
Every sum is computed by one device in one order: results do not depend on the number of devices. On GPUs
with ``Options(cpu=True)`` their bits do depend on which tiles the host's cores have computed.
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
    row, dtype = ROWS[routine[1:]], PREFIXES[routine[0]]
    arguments = _ARGUMENTS | _OF_C if row.is_triangle else _ARGUMENTS
    return _TEMPLATE.format(
        computed=row.computed,
        parameters="\n".join(arguments[name].format(dtype=dtype) for name in row.arguments),
        dtype=dtype,
        routine=routine,
        operands=row.example,
        result=row.answer,
    )
