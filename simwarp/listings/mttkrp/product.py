"""Which algorithm each part of a tensor needs for a mode, launched over its arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reference.errors import FormatError, ShapeError
from reference.types import BCsf, Fibers, MmCsf, PerMode
from reference.types.fields import check_fields
from simwarp.listings.mttkrp.algorithms import fiber_alg, nonzero_alg, opt_slice_alg, slice_alg
from simwarp.warp import GlobalArray, launch

THREADS = 64
"""Two warps a block."""
_ADVICE = "build the tensor anew, from a Coo"
FIBERS_IN_A_GROUP = 4


def mttkrp(
    tensor: MmCsf | Fibers | BCsf | PerMode, factors: Sequence[npt.NDArray[Any]], mode: int
) -> npt.NDArray[Any]:
    """The matricized tensor times the Khatri-Rao product, by the paper's algorithms.

    Answers the same question as `reference.mttkrp`.

    Parameters
    ----------
    tensor : MmCsf, or its part, Fibers
        By algorithms 6, 7 and 8: slice, fiber or nonzero, by the level that ``mode`` has in a partition.
    tensor : BCsf with ``mode`` at its root, or PerMode of such
        By algorithm 2.
    factors : one (dimension, R) array per mode, of the values' dtype
        That of ``mode`` is not read.
    mode : int

    Returns
    -------
    (dimension of the mode, R) array

    Raises
    ------
    FormatError
        For another format, or a BCsf of another mode.
    ShapeError
        For a mode that the tensor does not have, or factors that do not fit.

    Notes
    -----
    Source: MM-CSF (SC'19), algorithm 5 from line 18 on.

    Examples
    --------
    >>> of = np.array
    >>> fiber = Fibers((0, 1), of([[1]]), of([0, 2]), of([0, 2]), of([2.0, 3.0]), (2, 3), 128)
    >>> mttkrp(fiber, [np.ones((2, 1)), of([[1.0], [10.0], [100.0]])], 0).tolist()
    [[0.0], [302.0]]
    """
    _check(tensor, factors, mode)
    if isinstance(tensor, PerMode):
        tensor = tensor.tensors[mode]  # pyright: ignore[reportAssignmentType]
    out = GlobalArray.of("out", np.zeros_like(factors[mode]))
    rank = factors[mode].shape[1]
    matrices = [GlobalArray.of(f"factor {n}", factor, read_only=True) for n, factor in enumerate(factors)]
    if isinstance(tensor, BCsf):
        _root(tensor, matrices, mode, out, rank)
    elif isinstance(tensor, Fibers):
        _partition(tensor, matrices, mode, out, rank)
    elif isinstance(tensor, MmCsf):
        for partition in tensor.partitions:
            _partition(partition, matrices, mode, out, rank)
    return out.numpy()


def _check_parts(tensor: Any) -> None:
    """Refuse what is no such tensor; indices and pointers that lead astray are faults of the kernels."""
    if not isinstance(tensor, MmCsf | Fibers | BCsf | PerMode):
        raise FormatError(
            f"the listings do not take {type(tensor).__name__}\nthey take MmCsf, Fibers and BCsf\n"
            "convert it, or take reference.mttkrp"
        )
    check_fields(tensor)
    if isinstance(tensor, MmCsf | PerMode):
        parts: Sequence[Any] = tensor.partitions if isinstance(tensor, MmCsf) else tensor.tensors
        if isinstance(tensor, PerMode) and len(parts) != len(tensor.shape):
            raise FormatError(
                f"PerMode has {len(parts)} tensors\nshape {tensor.shape} has one for each mode\n{_ADVICE}"
            )
        for part in parts:
            _check_parts(part)
        return
    order, name = len(tensor.shape), type(tensor).__name__
    if sorted(tensor.modes) != [*range(order)]:
        raise FormatError(f"{name} has modes {tensor.modes}\neach of 0 to {order - 1} occurs once\n{_ADVICE}")
    upper = order - 1 if isinstance(tensor, Fibers) else order - 2
    flat = (
        ("pointers",)
        if isinstance(tensor, Fibers)
        else ("slices", "slice_pointers", "fiber_pointers", "order")
    )
    for field, axes in (("uppers", 2), *((field, 1) for field in (*flat, "leaves", "values"))):
        shape = getattr(tensor, field).shape
        if len(shape) != axes or (axes == 2 and shape[0] != upper):
            needed = f"({upper}, fibers)" if axes == 2 else "one axis"
            raise FormatError(f"{name}: {field} has shape {shape}\n{needed} is needed\n{_ADVICE}")


def _check(tensor: Any, factors: Sequence[npt.NDArray[Any]], mode: Any) -> None:
    _check_parts(tensor)
    shape = tensor.shape
    if isinstance(mode, bool) or not isinstance(mode, int | np.integer) or not 0 <= mode < len(shape):
        raise ShapeError(f"there is no mode {mode!r} in a tensor of shape {shape}\nmodes count from 0")
    if not all(hasattr(factor, "shape") for factor in factors):
        raise ShapeError("factors are not arrays\n(dimension, R) is needed\ngive one for each mode")
    sizes = [factor.shape for factor in factors]
    if len(sizes) != len(shape) or any(len(s) != 2 or s[0] != n for s, n in zip(sizes, shape, strict=True)):
        raise ShapeError(
            f"factors of shapes {sizes} do not fit a tensor of shape {shape}\n"
            "give (dimension, R) for each mode"
        )
    if len({size[1] for size in sizes}) != 1:
        raise ShapeError(
            f"factors of shapes {sizes} have different ranks\ngive all the same number of columns"
        )


def _root(tensor: BCsf, matrices: list[GlobalArray], mode: int, out: GlobalArray, rank: int) -> None:
    if tensor.modes[0] != mode:
        raise FormatError(
            f"this BCsf has mode {tensor.modes[0]} at its root, not {mode}\nalgorithm 2 writes to the root\n"
            "build one for the mode"
        )
    *middle, leaf = tensor.modes[1:]
    slices = _array("slicePtr", tensor.slice_pointers), _array("sliceInds", tensor.slices)
    tree = _array("fiberPtr", tensor.fiber_pointers), _indices(middle, tensor.uppers), *_nonzeros(tensor)
    of_nonzeros = [matrices[n] for n in middle], matrices[leaf]
    launch(slice_alg, len(tensor.slices), THREADS, *slices, *tree, *of_nonzeros, out, rank)


def _partition(tensor: Fibers, matrices: list[GlobalArray], mode: int, out: GlobalArray, rank: int) -> None:
    *uppers, leaf = tensor.modes
    level, inds = tensor.modes.index(mode), _indices(uppers, tensor.uppers)
    other_inds = [array for n, array in zip(uppers, inds, strict=True) if n != mode]
    other_matrices = [matrices[n] for n in uppers if n != mode]
    pointers, nonzeros = _array("fiberPtr", tensor.pointers), _nonzeros(tensor)
    fibers = len(tensor.pointers) - 1
    if level == len(uppers):
        launch(nonzero_alg, fibers, THREADS, pointers, inds, *nonzeros, other_matrices, out, rank)
    elif level == 0:
        tree = inds[0], pointers, other_inds, *nonzeros, other_matrices, matrices[leaf]
        groups = -(-fibers // FIBERS_IN_A_GROUP)
        launch(opt_slice_alg, groups, THREADS, *tree, out, rank, FIBERS_IN_A_GROUP)
    else:
        tree = pointers, other_inds, inds[level], *nonzeros, other_matrices, matrices[leaf]
        launch(fiber_alg, fibers, THREADS, *tree, out, rank)


def _indices(modes: Sequence[int], uppers: Any) -> list[GlobalArray]:
    return [_array(f"index {n}", indices) for n, indices in zip(modes, uppers, strict=True)]


def _nonzeros(tensor: BCsf | Fibers) -> tuple[GlobalArray, GlobalArray]:
    return _array("indK", tensor.leaves), _array("vals", tensor.values)


def _array(name: str, values: npt.NDArray[Any]) -> GlobalArray:
    return GlobalArray.of(name, values, read_only=True)
