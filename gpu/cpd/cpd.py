"""CP decomposition by alternating least squares (CPD-ALS): arguments, start, iterations and convergence."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np

from gpu.cpd.kernels import LARGEST_RANK
from gpu.cpd.model import Matrix, Model
from gpu.cpd.residual import Residual
from gpu.device import Device, is_array
from gpu.host import choose_device, moved_to
from gpu.mttkrp.checks import check_rank, check_tensor
from gpu.mttkrp.formats import coalesce
from gpu.mttkrp.plan import Plan, for_kernels
from gpu.mttkrp.upload import arrays_of, download, on_device, scaled
from reference.errors import NotANumberError, ShapeError
from reference.types import Coo, Cpd, PerMode, SparseTensor
from reference.types.arguments import as_matrix, as_sequence, check_iterations, check_start

_ENOUGH = {"float32": 2.0**-8, "float64": 2.0**-13}
"""The least share of the terms of ‖X - model‖² that may remain in their sum, by type; with less, rounding
errors of the terms are visible in the fit."""

_SHORT = 1.0
"""Seconds before a call shows its progress."""
_PLAIN = {"float32": 32, "float64": 256}
"""Tensors whose largest value is within 2 to the power of plus or minus this are not scaled, by type."""


def cpd_als(
    tensor: Any,
    rank: int,
    *,
    start: Sequence[Any] | None = None,
    seed: int = 0,
    iterations: int = 50,
    tolerance: float = 1e-5,
    device: Device | None = None,
    deterministic: bool = False,
    progress: Callable[[int, float], None] | Literal[False] | None = None,
) -> Cpd:
    """Approximate a tensor by ``rank`` outer products, with alternating least squares on a device.

    The definition is `reference.cpd_als`. Factors have the tensor's type; (rank, rank) matrices and sums over
    rows are float64. Each iteration copies two numbers to the host: the fit, and the share of its terms that
    remains after they cancel. If that is less than 2**-13 (2**-8 for float32), the fit is computed again from
    the nonzeros in double-double arithmetic, for which their coordinates are uploaded once. The pseudo-
    inverse of V replaces its inverse if a pivot is at most ``rank * eps`` of its diagonal element, with the
    ``eps`` of the factors' type.

    Parameters
    ----------
    tensor : any of `reference.types.SparseTensor`
        On the host or on a device. Coordinates that a Coo repeats have the sum of their values, which is
        computed on the host. Or a sparse tensor of SciPy, pydata/sparse, PyTorch (on the host) or pyttb, in
        any of their formats, which is read into a Coo.
    rank : int, 1 to 2048
    start : sequence of (dimension, rank) arrays of finite real numbers, one per mode, optional
        The initial factors, rounded to the tensor's type. That of mode 0 is not read.
    seed : int, 0 to 2**64 - 1
        The seed of the initial factors if there is no ``start``: in mode n, element (i, r) is
        ``(word >> 11) * 2**-53``, with ``word`` the (rank * i + r)-th of
        ``np.random.Philox(key=[seed, n]).random_raw``.
    iterations : int, at least 1
        The most iterations.
    tolerance : float
        From the second iteration on, a smaller change of the fit ends the iterations.
    device : Device, optional
        Default: the tensor's own, or the first CUDA device.
    deterministic : bool
        Whether the same call gives the same bits each time. If False, MTTKRP may add in any order.
    progress : callable or False, optional
        Called after each iteration with its number, from 1 on, and the fit. May raise, to stop. Default: a
        line on stderr if that is a terminal and the call takes more than a second; False: none.

    Returns
    -------
    Cpd
        On the host: factors of the tensor's type, weights of float64.

    Raises
    ------
    ShapeError, DtypeError, FormatError, SchemeError, NoGpuError
    NotANumberError
        For a NaN or infinity in the tensor, the start or the tolerance; for a weight that float64 cannot
        hold; and if factors become too large for the tensor's type.

    Notes
    -----
    Source: MM-CSF (SC'19), section 2.2 and algorithm 1, for any order.

    Examples
    --------
    >>> import simwarp
    >>> places = np.indices((2, 2, 2)).reshape(3, 8)
    >>> values = np.einsum("i,j,k->ijk", [1, 2], [3, 4], [2, 1]).reshape(8)
    >>> model = cpd_als(Coo(places, values, (2, 2, 2)), 1, device=simwarp.Device())
    >>> model.converged, round(model.fits[-1], 6), round(float(model.weights[0] ** 2))
    (True, 1.0, 625)

    The same from pydata/sparse:

    >>> import sparse
    >>> again = cpd_als(sparse.COO(places, values, shape=(2, 2, 2)), 1, device=simwarp.Device())
    >>> again.fits == model.fits
    True
    """
    check_iterations(rank, seed, iterations, tolerance)
    check_rank(rank, LARGEST_RANK)
    tensor = check_tensor(tensor)
    device = choose_device(device, *arrays_of(tensor))
    tensor = _prepared(tensor)
    values = _values(tensor, device)
    exponent = _exponent(values)
    if exponent:  # the scaling is exact, and changes only the weights
        tensor = scaled(tensor, -exponent)
        values = _values(tensor, device)
    square = sum(float(np.square(part, dtype=np.float64).sum()) for part in _parts(values))
    shape, dtype = tensor.shape, np.dtype(values[0].dtype)
    given = None if start is None else _checked(start, shape, rank)
    placed = on_device(tensor, device)
    mttkrps = [Plan(placed, n, rank, dtype, device, deterministic, checked=True) for n in range(len(shape))]
    model = Model(shape, rank, dtype, device)
    for n, dimension in enumerate(shape[1:], 1):
        factor = _seeded((dimension, rank), seed, n) if given is None else given[n]
        model.start(n, np.ascontiguousarray(factor, dtype))
    fits: list[float] = []
    residual: Residual | None = None
    converged = False
    with _reporting(progress, iterations) as report:
        while len(fits) < iterations and not converged:
            for n, mttkrp in enumerate(mttkrps):
                mttkrp(model.factors, model.factors[n])  # an MTTKRP does not read the factor of its own mode
                model.solve(n)
            fit, left = model.fit(square)
            _check_finite(fit, len(fits) + 1, dtype)
            if left < _ENOUGH[dtype.name]:
                residual = residual or Residual(download(tensor), square, model)
                fit = residual.fit()
            fits.append(fit)
            converged = len(fits) > 1 and abs(fits[-1] - fits[-2]) < tolerance
            report(len(fits), fits[-1])
    factors = tuple(factor.download() for factor in model.factors)
    weights = model.weights.download()
    return Cpd(_scaled_back(weights, exponent) if exponent else weights, factors, tuple(fits), converged)


@contextmanager
def _reporting(
    progress: Callable[[int, float], None] | Literal[False] | None, iterations: int
) -> Generator[Callable[[int, float], None]]:
    """The progress callback of each iteration; the default one prints a line on a terminal."""
    begin, written = time.monotonic(), False

    def show(done: int, fit: float) -> None:
        nonlocal written
        if time.monotonic() - begin >= _SHORT:
            sys.stderr.write(f"\rcpd_als: iteration {done} of at most {iterations}, fit {fit:.6f}\x1b[K")
            sys.stderr.flush()
            written = True

    try:
        is_shown = progress is None and sys.stderr.isatty()
        yield progress or (show if is_shown else lambda done, fit: None)
    finally:
        if written:
            sys.stderr.write("\r\x1b[K")


def _prepared(tensor: SparseTensor) -> SparseTensor:
    """Convert a tensor on the host, if needed: sum repeated coordinates, or build a format with a kernel."""
    return coalesce(download(tensor)) if isinstance(tensor, Coo) else for_kernels(tensor)


def _values(tensor: Any, device: Device) -> list[Any]:
    """Host arrays that together contain each value of a tensor once."""
    parts = tensor.tensors[:1] if isinstance(tensor, PerMode) else tensor.parts or (tensor,)
    values = [part.values for part in parts]
    return [x if isinstance(x, np.ndarray) else moved_to(x, device).download() for x in values]


def _exponent(values: list[Any]) -> int:
    """The binary exponent of the largest magnitude, or 0 if its square can neither overflow nor underflow.

    Refuses values that are not finite, and tensors without another value than 0.
    """
    wrong = next((x for part in _parts(values) for x in part[~np.isfinite(part)][:1]), None)
    if wrong is not None:
        raise NotANumberError(
            f"a value of the tensor is {wrong}\nonly finite numbers have a decomposition\n"
            "remove NaNs and infinities, and repeated coordinates whose values have no sum in its type"
        )
    largest = max(float(np.abs(part).max()) for part in _parts(values))
    if not largest:
        raise ShapeError(
            "all values of the tensor are 0: there is nothing to decompose\n"
            "at least one nonzero value is needed\ncheck the tensor's source"
        )
    exponent = math.frexp(largest)[1]
    return exponent if abs(exponent) > _PLAIN[values[0].dtype.name] else 0


def _scaled_back(weights: Matrix, exponent: int) -> Matrix:
    """The weights of the caller's tensor, before its values were scaled."""
    with np.errstate(over="ignore"):
        scaled = np.ldexp(weights, exponent)
    if not np.isfinite(scaled).all():
        raise NotANumberError(
            f"a weight is {float(weights.max()):.6g} * 2**{exponent}, more than float64 holds\n"
            f"its largest number is {float(np.finfo(np.float64).max):.1e}\n"
            "divide the values by a power of two, and multiply the weights by it"
        )
    return scaled


def _parts(arrays: list[Any]) -> Iterator[Any]:
    """Pieces of the arrays, of at most 2**20 numbers each."""
    for array in arrays:
        yield from (array[at : at + 2**20] for at in range(0, array.size, 2**20))


def _seeded(shape: tuple[int, int], seed: int, mode: int) -> Matrix:
    """The initial factor of a mode: random numbers in [0, 1)."""
    words = np.random.Philox(key=np.array([seed, mode], np.uint64)).random_raw(shape[0] * shape[1])
    return ((words >> np.uint64(11)) * 2.0**-53).reshape(shape)


def _checked(start: Sequence[Any], shape: tuple[int, ...], rank: int) -> list[Any]:
    """Check the initial factors, and download those on a device."""
    arrays = [
        x.download() if is_array(x) else as_matrix(x, f"start[{n}]")
        for n, x in enumerate(as_sequence(start, "start"))
    ]
    check_start(arrays, shape, rank)
    return arrays


def _check_finite(fit: float, iteration: int, dtype: np.dtype[Any]) -> None:
    """Refuse a fit that is infinite or NaN, because factors overflowed."""
    if not math.isfinite(fit):
        largest = float(np.finfo(dtype).max)
        raise NotANumberError(
            f"the fit of iteration {iteration} is {fit}: numbers became too large for {dtype}\n"
            f"its largest number is {largest:.1e}\nscale the values, or use float64"
        )
