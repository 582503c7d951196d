"""MTTKRP by the paper's algorithms: the choice of the algorithm for each part of a tensor, and its launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reference.errors import FormatError, ShapeError
from reference.types import BCsf, Fibers, MmCsf, PerMode
from reference.types.arguments import check_factors, check_mode
from reference.types.fields import check_fields, refuse
from simwarp.listings.mttkrp.algorithms import fiber_alg, nonzero_alg, opt_slice_alg, slice_alg
from simwarp.warp import GlobalArray, launch

THREADS = 64
"""The threads of a block: two warps."""
FIBERS_IN_A_GROUP = 4


def mttkrp(
    tensor: MmCsf | Fibers | BCsf | PerMode, factors: Sequence[npt.NDArray[Any]], mode: int
) -> npt.NDArray[Any]:
    """The matricized tensor times Khatri-Rao product, by the paper's algorithms.

    Computes the same product as `reference.mttkrp`.

    Parameters
    ----------
    tensor : MmCsf, Fibers, BCsf or PerMode
        MmCsf, or one partition (Fibers): by algorithm 6, 7 or 8, if ``mode`` is the root, in the middle or
        the leaf of a partition. BCsf: by algorithm 2 if ``mode`` is at its root, else by 7 or 8. PerMode: by
        the algorithm of the root, 2 for BCsf and 6 for Fibers.
    factors : one (dimension, R) array per mode, of the values' dtype
        The factor of ``mode`` is not read.
    mode : int

    Returns
    -------
    (dimension of the mode, R) array

    Raises
    ------
    FormatError
        For another format.
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
    if isinstance(tensor, BCsf) and tensor.modes[0] == mode:
        _root(tensor, matrices, out, rank)
    elif isinstance(tensor, BCsf):
        _partition(_fibers_of(tensor), matrices, mode, out, rank)
    elif isinstance(tensor, Fibers):
        _partition(tensor, matrices, mode, out, rank)
    elif isinstance(tensor, MmCsf):
        for partition in tensor.partitions:
            _partition(partition, matrices, mode, out, rank)
    return out.numpy()


def _check(tensor: Any, factors: Sequence[npt.NDArray[Any]], mode: Any) -> None:
    """Refuse unsupported tensors and factors; wrong indices and pointers become faults of the kernels."""
    if isinstance(tensor, MmCsf | PerMode):
        check_fields(tensor)
    for part in getattr(tensor, "parts", ()) or (tensor,):
        if not isinstance(part, Fibers | BCsf):
            raise FormatError(
                f"tensor has a {type(part).__name__}\nthe listings take MmCsf, Fibers and BCsf\n"
                "convert it, or call reference.mttkrp"
            )
        check_fields(part)
        _check_axes(part)
    check_mode(mode, len(tensor.shape))
    if not all(hasattr(factor, "shape") for factor in factors):
        raise ShapeError("factors are not arrays\n(dimension, R) is needed\ngive one array for each mode")
    check_factors(factors, tensor.shape)


def _check_axes(tensor: Any) -> None:
    """Refuse arrays with another number of axes than the format has."""
    is_fibers = isinstance(tensor, Fibers)
    upper = len(tensor.shape) - (1 if is_fibers else 2)
    flat = ("pointers",) if is_fibers else ("slices", "slice_pointers", "fiber_pointers", "order")
    for field, axes in (("uppers", 2), *((field, 1) for field in (*flat, "leaves", "values"))):
        shape = getattr(tensor, field).shape
        if len(shape) != axes or (axes == 2 and shape[0] != upper):
            needed = f"({upper}, fibers)" if axes == 2 else "one axis"
            refuse(tensor, f"{field} has shape {shape}", f"{needed} is needed")


def _fibers_of(tensor: BCsf) -> Fibers:
    """The fibers of a balanced tree, each with the index of its slice."""
    uppers = np.vstack([np.repeat(tensor.slices, np.diff(tensor.slice_pointers)), tensor.uppers])
    arrays = uppers, tensor.fiber_pointers, tensor.leaves, tensor.values
    return Fibers(tensor.modes, *arrays, tensor.shape, tensor.split)


def _root(tensor: BCsf, matrices: list[GlobalArray], out: GlobalArray, rank: int) -> None:
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
