"""Conversion of arguments of launches, allocations and uploads, for every kind of device.

>>> three("grid", 4), three("block", (8, 8)), shape_of("x", 5)
((4, 1, 1), (8, 8, 1), (5,))
>>> number(-1, 4, is_float=False), number(3, 4, is_float=True)
(np.uint32(4294967295), np.float32(3.0))
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, LaunchError, ShapeError, SimwarpError

Extent: TypeAlias = int | Sequence[int]
"""A size or a sequence of sizes: up to three, (x, y, z), for a grid or a block."""

Dim: TypeAlias = tuple[int, int, int]


def sizes(extent: Extent) -> tuple[int, ...]:
    """Convert an int or a sequence of ints to a tuple; TypeError for anything else."""
    several = isinstance(extent, Sequence | np.ndarray)
    return tuple(map(operator.index, extent if several else (extent,)))  # pyright: ignore[reportArgumentType]


def three(what: str, extent: Extent, error: type[SimwarpError] = ShapeError) -> Dim:
    """Convert one to three ints to (x, y, z), with 1 for omitted ones; ``what`` names them in the error."""
    try:
        given = sizes(extent)
    except TypeError:
        given = ()
    if not 1 <= len(given) <= 3:
        raise error(f"{what} is {extent!r}\ngive an int, or up to three: (x, y, z)")
    return cast("Dim", (*given, 1, 1)[:3])


def cluster_of(kernel: str, grid: Dim, given: Extent | None, required: Dim | None, most: int) -> Dim | None:
    """The cluster of a launch, from the caller or from the kernel; None for a launch without clusters.

    LaunchError if the two differ, the grid is not a multiple, or it has more than ``most`` blocks.
    """
    cluster = required if given is None else three(f"kernel {kernel}: cluster", given, LaunchError)
    if cluster is None:
        return None
    if required is not None and cluster != required:
        raise LaunchError(
            f"kernel {kernel}: a launch in clusters of {cluster}\n"
            f"the kernel requires clusters of {required} (__cluster_dims__, .reqnctapercluster)\n"
            "launch it with these, or leave cluster out"
        )
    blocks = math.prod(cluster)
    if min(cluster) < 1 or blocks > most:
        holds = (
            f"at most {most} blocks here" if most else "no blocks here: clusters need compute capability 9.0"
        )
        raise LaunchError(
            f"kernel {kernel}: clusters of {cluster}, {blocks} blocks\na cluster has {holds}\n"
            "give a smaller cluster"
        )
    if any(g % c for g, c in zip(grid, cluster, strict=True)):
        raise LaunchError(
            f"kernel {kernel}: a grid of {grid} in clusters of {cluster}\n"
            "the grid is a multiple of the cluster in each dimension\nround the grid up to whole clusters"
        )
    return cluster


def shape_of(what: str, given: Extent) -> tuple[int, ...]:
    """Convert a number of elements, or one size per dimension, to the shape of an array."""
    try:
        shape = sizes(given)
    except TypeError:
        shape = (-1,)
    if any(extent < 0 for extent in shape):
        raise ShapeError(
            f"{what}: {given!r} is not a shape\ngive a number of elements, or one size per dimension"
        )
    return shape


def host_array(given: Any, name: str) -> Any:
    """Convert any array on the host to NumPy, a 0-d one to a scalar; return other values as they are."""
    kind = cast("type[object]", type(given))
    if issubclass(kind, list | tuple | range):
        raise DtypeError(
            f"{name} is a {kind.__name__}\nconvert it to an array with a dtype: np.array(…, dtype)"
        )
    if np.ma.is_masked(given):
        raise DtypeError(
            f"{name} has a mask, which a kernel cannot see\nfill the masked elements: {name}.filled(…)"
        )
    foreign = hasattr(given, "__dlpack__") or hasattr(given, "__array_interface__")
    if issubclass(kind, np.generic) or not foreign:
        return given
    try:
        in_place = issubclass(kind, np.ndarray) or not hasattr(given, "__dlpack__")
        array: npt.NDArray[Any] = np.asarray(given) if in_place else np.from_dlpack(given)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise DtypeError(
            f"{name} is a {kind.__name__} that NumPy cannot read: {error}\n"
            "convert it to a NumPy array first, e.g. tensor.detach().cpu().numpy()"
        ) from None
    return array if array.ndim else array[()]


def uploadable(given: Any, name: str) -> Any:
    """Convert a value to the NumPy array or scalar that an upload copies; raise DtypeError for others."""
    host = host_array(given, name)
    if not isinstance(host, np.ndarray | np.generic):
        raise DtypeError(
            f"{name} is a {type(given).__name__}\nconvert it to an array with a dtype: np.array(…, dtype)"
        )
    return cast("Any", host)


def number(value: Any, size: int, *, is_float: bool) -> Any:
    """Convert a number to a NumPy scalar of ``size`` bytes; an integer may be signed or unsigned.

    PTX does not declare whether a parameter is signed. OverflowError for a number that does not fit,
    TypeError for anything else.
    """
    if isinstance(value, np.generic):
        value = cast("Any", value).item()
    if isinstance(value, int | float) and is_float:
        rounded = _rounded(value, np.dtype(f"f{size}"))
        if math.isinf(rounded) and value not in (math.inf, -math.inf):
            raise OverflowError
        return rounded
    if not isinstance(value, int):
        raise TypeError
    bits = 8 * size
    if not -(1 << bits - 1) <= value < 1 << bits:
        raise OverflowError
    return np.dtype(f"u{size}").type(value % (1 << bits))


def _rounded(value: float, dtype: np.dtype[Any]) -> Any:
    """Round a number to a float type; infinity if it is too large."""
    with np.errstate(over="ignore"):
        try:
            return dtype.type(value)
        except OverflowError:
            return dtype.type(math.inf)
