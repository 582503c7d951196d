"""Alternating least squares for a sparse tensor, all on a device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from gpu.cpd.kernels import LARGEST_RANK
from gpu.cpd.model import Matrix, Model
from gpu.cpd.residual import Residual
from gpu.device import Device, is_array
from gpu.host import choose_device
from gpu.mttkrp.checks import check_rank
from gpu.mttkrp.formats import coalesce
from gpu.mttkrp.plan import for_kernels, plan
from gpu.mttkrp.structure import check_tensor
from gpu.mttkrp.upload import arrays_of, download, on_device, to_device
from reference.errors import NotANumberError, ShapeError
from reference.types import Coo, Cpd, PerMode, SparseTensor
from reference.types.arguments import as_matrix, as_sequence, check_iterations, check_start

_ENOUGH = {"float32": 2.0**-8, "float64": 2.0**-13}
"""Where less is left of the terms of which ‖X - model‖² is the sum, their roundings show in the fit."""


def cpd_als(
    tensor: SparseTensor,
    rank: int,
    *,
    start: Sequence[Any] | None = None,
    seed: int = 0,
    iterations: int = 50,
    tolerance: float = 1e-5,
    device: Device | None = None,
    deterministic: bool = False,
    progress: Callable[[int, float], None] | None = None,
) -> Cpd:
    """Approximate a tensor by ``rank`` outer products, with alternating least squares on a device.

    Answers the same as `reference.cpd_als`. Factors are of the tensor's type; what is (rank, rank), and all
    sums over rows, is float64. Two numbers are copied back in each iteration: the fit, and how far its terms
    cancel. Where they leave less than 2**-13 of themselves (2**-8 for float32) the fit is computed anew from
    the nonzeros, in double-double arithmetic; for that, coordinates are put on the device when this is first
    needed. The pseudo-inverse takes over where a pivot of V falls to ``rank * eps`` of its diagonal element
    or below, ``eps`` being that of the factors' type.

    Parameters
    ----------
    tensor : any of `reference.types.SparseTensor`
        On the host or on a device. Of a Coo's values for one place the sum counts; it is formed on the host.
    rank : int, 1 to 2048
    start : sequence of (dimension, rank) arrays of finite real numbers, one per mode, optional
        The factors to begin with, rounded to the tensor's type. That of mode 0 is not read.
    seed : int, 0 to 2**64 - 1
        Which start is taken if none is given: in mode n, element (i, r) is
        ``(word >> 11) * 2**-53``, with ``word`` the (rank * i + r)-th of
        ``np.random.Philox(key=[seed, n]).random_raw``.
    iterations : int, at least 1
        No more than so many.
    tolerance : float
        From the second iteration on, a change of the fit below it ends the work.
    device : Device, optional
        Default: the tensor's own, or the first CUDA device.
    deterministic : bool
        Whether the same call gives the same bits each time. Without, MTTKRP may add in any order.
    progress : callable, optional
        Called after each iteration with its number, from 1 on, and the fit. May raise, to stop.

    Returns
    -------
    Cpd
        On the host: factors of the tensor's type, weights of float64.

    Raises
    ------
    ShapeError, DtypeError, FormatError, SchemeError, NoGpuError
    NotANumberError
        For a NaN or infinity in the tensor, the start or the tolerance; for values whose squares
        have no sum in float64; and if numbers become too large for the tensor's type on the way.

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
    """
    check_iterations(rank, seed, iterations, tolerance)
    if check_rank(rank) > LARGEST_RANK:
        raise ShapeError(f"rank is {rank}\n1 to {LARGEST_RANK} are possible\ngive another")
    check_tensor(tensor)
    device = choose_device(device, *arrays_of(tensor))
    tensor = _prepared(tensor)
    values = _values(tensor)
    square = _sum_of_squares(values, device)
    shape, dtype = tensor.shape, np.dtype(values[0].dtype)
    given = None if start is None else _checked(start, shape, rank)
    placed = on_device(tensor, device)
    mttkrps = [plan(placed, n, rank, dtype, device, deterministic) for n in range(len(shape))]
    model = Model(shape, rank, dtype, device)
    for n, dimension in enumerate(shape[1:], 1):
        factor = _seeded((dimension, rank), seed, n) if given is None else given[n]
        model.start(n, np.ascontiguousarray(factor, dtype))
    fits: list[float] = []
    residual: Residual | None = None
    converged = False
    while len(fits) < iterations and not converged:
        for n, mttkrp in enumerate(mttkrps):
            mttkrp(model.factors, model.factors[n])  # which it does not read
            model.solve(n)
        fit, left = model.fit(square)
        if _finite(fit, len(fits) + 1, dtype) and left < _ENOUGH[dtype.name]:
            residual = residual or Residual(download(tensor), square, model)
            fit = residual.fit()
        fits.append(fit)
        converged = len(fits) > 1 and abs(fits[-1] - fits[-2]) < tolerance
        if progress is not None:
            progress(len(fits), fits[-1])
    factors = tuple(factor.download() for factor in model.factors)
    return Cpd(model.weights.download(), factors, tuple(fits), converged)


def _prepared(tensor: SparseTensor) -> SparseTensor:
    """For the kernels, with all coordinates once; both steps are taken on the host."""
    return coalesce(download(tensor)) if isinstance(tensor, Coo) else for_kernels(tensor)


def _values(tensor: Any) -> list[Any]:
    """The arrays that hold each value once."""
    parts = tensor.tensors[:1] if isinstance(tensor, PerMode) else tensor.parts or (tensor,)
    return [part.values for part in parts]


def _sum_of_squares(values: list[Any], device: Device) -> float:
    hosts: list[Any] = [x if isinstance(x, np.ndarray) else to_device(x, device).download() for x in values]
    with np.errstate(over="ignore"):
        square = sum(float(np.square(part, dtype=np.float64).sum()) for part in _parts(hosts))
    if not any(host.any() for host in hosts):
        raise ShapeError(
            "all values of the tensor are 0: there is nothing to decompose\n"
            "at least one other value is needed\ncheck what was read"
        )
    if not (np.isfinite(square) and square > 0):
        raise NotANumberError(
            f"the squares of the tensor's values sum up to {square}\n"
            "values must be finite, with squares that float64 holds\nremove what is not, or scale the values"
        )
    return square


def _parts(arrays: list[Any]) -> Iterator[Any]:
    """A million numbers at a time."""
    for array in arrays:
        yield from (array[at : at + 2**20] for at in range(0, array.size, 2**20))


def _seeded(shape: tuple[int, int], seed: int, mode: int) -> Matrix:
    """Numbers from 0 up to but not including 1."""
    words = np.random.Philox(key=np.array([seed, mode], np.uint64)).random_raw(shape[0] * shape[1])
    return ((words >> np.uint64(11)) * 2.0**-53).reshape(shape)


def _checked(start: Sequence[Any], shape: tuple[int, ...], rank: int) -> list[Any]:
    arrays = [
        x.download() if is_array(x) else as_matrix(x, f"start[{n}]")
        for n, x in enumerate(as_sequence(start, "start"))
    ]
    check_start(arrays, shape, rank)
    return arrays


def _finite(fit: float, iteration: int, dtype: np.dtype[Any]) -> bool:
    if not math.isfinite(fit):
        largest = float(np.finfo(dtype).max)
        raise NotANumberError(
            f"the fit of iteration {iteration} is {fit}: numbers became too large for {dtype}\n"
            f"it holds up to {largest:.1e}\nscale the values, or take float64"
        )
    return True
