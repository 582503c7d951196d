"""Sparse tensors in every format of the MM-CSF paper: their arrays and invariants.

A tensor of order d has *modes* 0 … d - 1 and M nonzeros, M < 2**32. A *fiber* fixes all indices except one, a
*slice* all except two. Indices count from 0 and are uint32 in all formats except `Coo`; pointers are uint32
unless stated otherwise. The arrays of a tensor are all on the host (NumPy) or all on one device.

Each format is canonical: a set of nonzeros determines its arrays.

Source: MM-CSF (SC'19), sections 3 and 4; F-COO (CLUSTER'17); HiCOO (SC'18); B-CSF (IPDPS'19).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, NotANumberError, ShapeError
from reference.types import fields
from reference.types.fields import LEAST_ORDER, MOST_NONZEROS, MOST_ORDER, refuse
from reference.values import compared, not_an_array, shortened

BLOCKS = tuple(2**bits for bits in range(1, 9))
"""The sides that a HiCoo's blocks may have: those whose offsets fit into a byte."""
FLAGS = 32
"""Flags per word of an FCoo."""


@not_an_array("pass its values; reference.sparse.to_coo(x) has coords and values of every format")
class SparseFormat:
    """Base class of the sparse formats: constituent tensors, and checks of invariants."""

    made_of: ClassVar[tuple[type, ...]] = ()

    @property
    def parts(self) -> tuple[Any, ...]:
        """The constituent tensors, each of a type in ``made_of``; () for most formats."""
        return ()

    def check_parts(self) -> None:
        """Raise FormatError unless the parts fit one another; reads no array."""

    def check_arrays(self) -> None:
        """Raise FormatError unless the host arrays fit one another; does not check the parts."""


@shortened
@compared
@dataclass(frozen=True, eq=False)
class Coo(SparseFormat):
    """Coordinates and values, the format that all others are built from and converted to.

    Nonzero z has the index ``coords[n, z]`` in mode n and the value ``values[z]``. Nonzeros may be in any
    order. If coordinates are repeated, the element is the sum of their values. The constructor accepts
    anything that NumPy converts to arrays, and checks it.

    Attributes
    ----------
    coords : (order, M) array of integers
        The order is 2 to 8.
    values : (M,) array of float32 or float64
        Lists and integers are converted to float64, other byte orders to the native one.
    shape : tuple of int
        The dimensions, each at least 1. Their product may be arbitrarily large.
    nonfinite : bool
        Whether NaN and infinite values are allowed.

    Raises
    ------
    ShapeError
        For another order, lengths that differ, a tensor without nonzeros, or an index outside its dimension.
    DtypeError
        For indices that are not integers, or values of another dtype.
    NotANumberError
        For a NaN or infinite value, unless ``nonfinite``.

    Examples
    --------
    >>> Coo([[0, 1], [2, 0]], [5.0, 7.0], (2, 3)).values
    array([5., 7.])
    >>> Coo([[0, 2], [2, 0]], [5.0, 7.0], (2, 3))
    Traceback (most recent call last):
    ...
    reference.errors.ShapeError: nonzero 1 has index 2 in mode 0, whose dimension is 2
    indices count from 0 to 1
    check the indices, or the shape (2, 3)
    """

    coords: Any
    values: Any
    shape: tuple[int, ...]
    nonfinite: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", _dimensions(self.shape))
        if hasattr(self.coords, "pointer"):  # arrays on a device were checked on the host
            return
        object.__setattr__(self, "coords", _indices(self.coords))
        object.__setattr__(self, "values", _values(self.values))
        _check_sizes(self)
        _check_indices(self)
        if not self.nonfinite and not np.isfinite(self.values).all():
            z = int(np.flatnonzero(~np.isfinite(self.values))[0])
            at = tuple(int(i) for i in self.coords[:, z])
            raise NotANumberError(
                f"nonzero {z}, at {at}, is {self.values[z]}\nremove it, or build the Coo with nonfinite=True"
            )


def _dimensions(given: Any) -> tuple[int, ...]:
    """Convert a shape to a tuple of ints."""
    try:
        shape = tuple(int(n) for n in given)
    except (TypeError, ValueError, OverflowError):
        shape = ()
    if not shape or shape != tuple(given):
        raise ShapeError(f"shape is {given!r}\na tuple of ints is needed\ngive the dimension of each mode")
    return shape


def _native(array: Any) -> Any:
    """Convert an array to C order and native byte order."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("="))


def _indices(given: Any) -> Any:
    """Convert coordinates to an array of integers."""
    coords = fields.as_array(given, "coords", "an (order, nonzeros) array of integers")
    if coords.size == 0 and coords.ndim == 2:
        coords = coords.astype(np.int64)
    if coords.dtype.kind not in "iu":
        raise DtypeError(f"coords is {coords.dtype}\nindices must be integers\nconvert them")
    return _native(coords)


def _values(given: Any) -> Any:
    """Convert values to an array of float32 or float64."""
    values = fields.as_array(given, "values", "one number for each nonzero")
    if values.dtype.kind in "iub" or (not isinstance(given, np.ndarray) and values.dtype.kind == "f"):
        values = values.astype(np.float64)
    if values.dtype.name not in ("float32", "float64"):
        raise DtypeError(f"values is {values.dtype}\nfloat32 and float64 are supported\nconvert them")
    return _native(values)


def _check_sizes(tensor: Coo) -> None:
    """Raise ShapeError unless shape, coordinates and values fit one another."""
    shape, coords, values = tensor.shape, tensor.coords, tensor.values
    order = len(shape)
    if not LEAST_ORDER <= order <= MOST_ORDER:
        raise ShapeError(
            f"shape {shape} has {order} modes\na sparse tensor has {LEAST_ORDER} to {MOST_ORDER}\n"
            "remove modes of dimension 1, or merge modes"
        )
    if min(shape) < 1:
        raise ShapeError(
            f"shape {shape} has a dimension below 1\nevery dimension must be at least 1\ncorrect the shape"
        )
    if coords.ndim != 2 or values.ndim != 1 or coords.shape != (order, values.size):
        raise ShapeError(
            f"coords {coords.shape} and values {values.shape} do not fit shape {shape}\n"
            f"coords must be ({order}, nonzeros), values (nonzeros,)\n"
            "check whether coords must be transposed"
        )
    if not 1 <= values.size <= MOST_NONZEROS:
        raise ShapeError(
            f"the tensor has {values.size} nonzeros\n1 to 2**32 - 1 are supported\ncheck the file or arrays"
        )


def _check_indices(tensor: Coo) -> None:
    """Raise ShapeError for the first index outside its dimension."""
    for mode, (indices, dimension) in enumerate(zip(tensor.coords, tensor.shape, strict=True)):
        if int(indices.min()) < 0 or int(indices.max()) >= dimension:
            z = int(np.flatnonzero((indices < 0) | (indices >= dimension))[0])
            raise ShapeError(
                f"nonzero {z} has index {int(indices[z])} in mode {mode}, whose dimension is {dimension}\n"
                f"indices count from 0 to {dimension - 1}\ncheck the indices, or the shape {tensor.shape}"
            )


@shortened
@compared
@dataclass(frozen=True, eq=False)
class Csf(SparseFormat):
    """Compressed sparse fibers: a tree with one level per mode, in which equal prefixes share nodes.

    Node n of level l has the index ``indices[l][n]`` in mode ``modes[l]``; its children are the nodes
    ``pointers[l][n]`` to ``pointers[l][n + 1] - 1`` of level l + 1. The last level's nodes are the
    nonzeros. Siblings are in ascending order, and so are the roots.

    Attributes
    ----------
    modes : tuple of int
        The mode of each level, from the root to the leaves.
    indices : tuple of (nodes of the level,) uint32, one per level
    pointers : tuple of (nodes of the level + 1,) uint32, one per level except the last
    values : (M,) array
    shape : tuple of int
        The dimension of each mode, in the order of modes, not of levels.

    Source: MM-CSF (SC'19), section 3.1 and figure 2(b).
    """

    modes: tuple[int, ...]
    indices: tuple[Any, ...]
    pointers: tuple[Any, ...]
    values: Any
    shape: tuple[int, ...]

    def check_arrays(self) -> None:
        """Raise FormatError unless the host arrays fit one another."""
        order, counts = len(self.shape), (len(self.indices), len(self.pointers))
        if counts != (order, order - 1):
            expected = f"order {order} needs {order} arrays of indices and {order - 1} of pointers"
            refuse(self, f"there are {counts[0]} arrays of indices, {counts[1]} of pointers", expected)
        nodes = [*(np.size(level) for level in self.indices[:-1]), fields.nonzeros(self)]
        for level, (mode, count) in enumerate(zip(self.modes, nodes, strict=True)):
            fields.check_indices(self, f"indices[{level}]", self.indices[level], count, mode)
        for level, pointers in enumerate(self.pointers):
            fields.check_pointers(self, f"pointers[{level}]", pointers, nodes[level], nodes[level + 1])


@shortened
@compared
@dataclass(frozen=True, eq=False)
class Fibers(SparseFormat):
    """Fibers along one mode, each with its indices in all other modes: kernels can start at any fiber.

    Fiber f has the index ``uppers[l, f]`` in mode ``modes[l]``, l < d - 1, and holds the nonzeros
    ``pointers[f]`` to ``pointers[f + 1] - 1``; nonzero z has the index ``leaves[z]`` in the last of
    ``modes``. Nonzeros are in lexicographic order of their indices by ``modes``. A fiber of more than
    ``split`` nonzeros is cut into pieces of at most ``split``; each piece counts as a fiber.

    Attributes
    ----------
    modes : tuple of int
    uppers : (d - 1, F) uint32
    pointers : (F + 1,) uint32
    leaves : (M,) uint32
    values : (M,) array
    shape : tuple of int
    split : int

    Source: MM-CSF (SC'19), section 5.1: an array of slice indices, one per fiber, instead of pointers.
    """

    modes: tuple[int, ...]
    uppers: Any
    pointers: Any
    leaves: Any
    values: Any
    shape: tuple[int, ...]
    split: int

    def check_arrays(self) -> None:
        """Raise FormatError unless the host arrays fit one another."""
        count = fields.nonzeros(self)
        fibers = fields.check_fibers(self, "pointers", self.pointers, count)
        fields.check_levels(self, "uppers", self.uppers, fibers, self.modes[:-1])
        fields.check_indices(self, "leaves", self.leaves, count, self.modes[-1])


@shortened
@compared
@dataclass(frozen=True, eq=False)
class MmCsf(SparseFormat):
    """Mixed-mode CSF: every nonzero is stored in the longest of its d fibers, in one partition per direction.

    Attributes
    ----------
    partitions : tuple of Fibers
        At most one per direction, none empty, sorted by leaf mode. In each, the modes above the leaf are
        sorted by dimension, the shortest first (the lower mode if equal).
    shape : tuple of int

    Source: MM-CSF (SC'19), section 4 and algorithm 5.
    """

    partitions: tuple[Fibers, ...]
    shape: tuple[int, ...]

    made_of = (Fibers,)

    @property
    def parts(self) -> tuple[Fibers, ...]:
        """The tensor's partitions, in order of their leaf modes."""
        return self.partitions

    def check_parts(self) -> None:
        """Raise FormatError unless the partitions are in the order of their leaf modes."""
        leaves = [part.modes[-1] for part in self.partitions]
        if not leaves or leaves != sorted(set(leaves)):
            found = f"the partitions have the leaf modes {leaves}"
            refuse(self, found, "at least one partition is needed, sorted by leaf mode")


@shortened
@compared
@dataclass(frozen=True, eq=False)
class BCsf(SparseFormat):
    """Balanced CSF: fibers cut into pieces of at most ``split`` nonzeros, slices binned by warps per slice.

    Slice s has the index ``slices[s]`` in mode ``modes[0]`` and the fibers ``slice_pointers[s]`` to
    ``slice_pointers[s + 1] - 1``; fiber f has the index ``uppers[l, f]`` in mode ``modes[1 + l]`` and the
    nonzeros ``fiber_pointers[f]`` to ``fiber_pointers[f + 1] - 1``, with ``leaves`` in the last mode. A
    slice of n nonzeros is in the first bin b with ``n <= share * 2**b``, where ``2**b`` warps work on it.
    Bin b has the slices ``order[bins[b] : bins[b + 1]]``, ascending.

    Attributes
    ----------
    modes : tuple of int
    slices : (S,) uint32
    slice_pointers : (S + 1,) uint32
    uppers : (d - 2, F) uint32
    fiber_pointers : (F + 1,) uint32
    leaves : (M,) uint32
    values : (M,) array
    order : (S,) uint32
    bins : tuple of int
        The bounds of the bins in ``order``, one more than bins; the last bin is not empty.
    shape : tuple of int
    split, share : int

    Source: MM-CSF (SC'19), section 3.1, figure 2(c) and algorithm 2; B-CSF (IPDPS'19).
    """

    modes: tuple[int, ...]
    slices: Any
    slice_pointers: Any
    uppers: Any
    fiber_pointers: Any
    leaves: Any
    values: Any
    order: Any
    bins: tuple[int, ...]
    shape: tuple[int, ...]
    split: int
    share: int

    def check_arrays(self) -> None:
        """Raise FormatError unless the host arrays fit one another."""
        count, slices = fields.nonzeros(self), np.size(self.slices)
        fibers = fields.check_fibers(self, "fiber_pointers", self.fiber_pointers, count)
        fields.check_indices(self, "slices", self.slices, slices, self.modes[0])
        fields.check_pointers(self, "slice_pointers", self.slice_pointers, slices, fibers)
        fields.check_levels(self, "uppers", self.uppers, fibers, self.modes[1:-1])
        fields.check_indices(self, "leaves", self.leaves, count, self.modes[-1])
        fields.check_array(self, "order", self.order, (slices,))
        fields.check_count(self, "share", self.share)
        lengths: npt.NDArray[np.int64] = np.diff(self.fiber_pointers[self.slice_pointers].astype(np.int64))
        bin_of = np.searchsorted(2 ** np.arange(33), -(-lengths // self.share)).astype(np.uint8)
        bins = (0, *np.cumsum(np.bincount(bin_of)).tolist())
        if self.bins != bins or not np.array_equal(self.order, np.argsort(bin_of, kind="stable")):
            found = f"order or bins {self.bins} does not match the nonzeros of the slices"
            refuse(self, found, f"bins must be {bins}, and the slices of a bin must ascend")


@shortened
@compared
@dataclass(frozen=True, eq=False)
class FCoo(SparseFormat):
    """Flagged COO: sorted by one mode, with a bit flag at each change of its index instead of the indices.

    Nonzero z has the index ``products[l, z]`` in mode ``modes[1 + l]``. Nonzeros are in lexicographic
    order by ``modes``. A *segment* is a run of nonzeros with the same index in ``modes[0]``: bit ``z % 32``
    (0 the least significant) of ``flags[z // 32]`` is 1 iff nonzero z begins one, and segment g has the
    index ``rows[g]``. Partition p is the nonzeros ``partition * p`` and following; the first of them
    belongs to segment ``first[p]``. Bits past M are 0.

    Attributes
    ----------
    modes : tuple of int
        The mode of the result, then the others.
    products : (d - 1, M) uint32
    values : (M,) array
    flags : (ceil(M / 32),) uint32
    rows : (segments,) uint32
    first : (ceil(M / partition),) uint32
    shape : tuple of int
    partition : int
        A multiple of 32.

    Source: MM-CSF (SC'19), sections 3 and 6.8; F-COO (CLUSTER'17): bit flag and start flag.
    """

    modes: tuple[int, ...]
    products: Any
    values: Any
    flags: Any
    rows: Any
    first: Any
    shape: tuple[int, ...]
    partition: int

    def check_arrays(self) -> None:
        """Raise FormatError unless the host arrays fit one another."""
        count, segments = fields.nonzeros(self), np.size(self.rows)
        fields.check_count(self, "partition", self.partition, FLAGS)
        fields.check_levels(self, "products", self.products, count, self.modes[1:])
        fields.check_indices(self, "rows", self.rows, segments, self.modes[0])
        if not (self.rows[1:] > self.rows[:-1]).all():
            refuse(self, "rows does not ascend", "each row must have one segment")
        fields.check_array(self, "flags", self.flags, (-(-count // FLAGS),))
        begins = flag_bits(self.flags)
        if not begins[0] or begins[count:].any() or np.count_nonzero(begins) != segments:
            found = f"flags begin {np.count_nonzero(begins)} segments, rows has {segments}"
            refuse(self, found, "flag 0 must be 1, and flags past the last nonzero 0")
        first = (np.cumsum(begins[:count]) - 1)[:: self.partition]
        fields.check_array(self, "first", self.first, first.shape)
        if not np.array_equal(self.first, first):
            expected = "it must hold the segment of each partition's first nonzero"
            refuse(self, "first does not match flags", expected)


@shortened
@compared
@dataclass(frozen=True, eq=False)
class HiCoo(SparseFormat):
    """Hierarchical COO: blocks with sides of ``block`` indices, and one byte per index within a block.

    Block b holds the nonzeros ``block_pointers[b]`` to ``block_pointers[b + 1] - 1``; nonzero z has the
    index ``block * block_coords[n, b] + offsets[n, z]`` in mode n. Blocks are in Z order (sorted by the
    interleaved bits of their coordinates, mode 0 first), nonzeros of a block in lexicographic order.

    Attributes
    ----------
    block_pointers : (blocks + 1,) uint64
    block_coords : (d, blocks) uint32
    offsets : (d, M) uint8
    values : (M,) array
    shape : tuple of int
    block : int
        A power of two, 2 to 256.

    Source: MM-CSF (SC'19), section 3; HiCOO (SC'18).
    """

    block_pointers: Any
    block_coords: Any
    offsets: Any
    values: Any
    shape: tuple[int, ...]
    block: int

    def check_arrays(self) -> None:
        """Raise FormatError unless the host arrays fit one another."""
        count, blocks, order = fields.nonzeros(self), np.size(self.block_pointers) - 1, len(self.shape)
        if self.block not in BLOCKS:
            refuse(self, f"block is {self.block}", f"it must be one of {', '.join(map(str, BLOCKS))}")
        fields.check_pointers(self, "block_pointers", self.block_pointers, blocks, count, np.uint64)
        fields.check_array(self, "block_coords", self.block_coords, (order, blocks))
        fields.check_array(self, "offsets", self.offsets, (order, count), np.uint8)
        lengths = np.diff(self.block_pointers.astype(np.int64))
        for mode, (corners, offsets) in enumerate(zip(self.block_coords, self.offsets, strict=True)):
            if int(offsets.max()) >= self.block:
                refuse(self, f"offsets[{mode}] has {offsets.max()}", f"offsets must be below {self.block}")
            indices = np.repeat(corners.astype(np.int64) * self.block, lengths) + offsets
            fields.check_below(self, f"block_coords[{mode}] with offsets", int(indices.max()), mode)


@shortened
@compared
@dataclass(frozen=True, eq=False)
class PerMode(SparseFormat):
    """A representation for each mode: the formats that the paper calls ``-ALL``, and F-COO.

    Attributes
    ----------
    tensors : tuple of Csf, of BCsf, of Fibers or of FCoo
        ``tensors[n].modes`` has mode n first, then the others by dimension, the shortest first.
    shape : tuple of int

    Source: MM-CSF (SC'19), section 3.2 and algorithm 3.
    """

    tensors: tuple[Csf, ...] | tuple[BCsf, ...] | tuple[Fibers, ...] | tuple[FCoo, ...]
    shape: tuple[int, ...]

    made_of = (Csf, BCsf, Fibers, FCoo)

    @property
    def parts(self) -> tuple[Any, ...]:
        """The tensor's representation for each mode."""
        return self.tensors

    def check_parts(self) -> None:
        """Raise FormatError unless there is one representation per mode, all of the same format."""
        firsts, every = [tensor.modes[0] for tensor in self.tensors], [*range(len(self.shape))]
        if firsts != every:
            refuse(self, f"its tensors have the first modes {firsts}", f"they must be {every}")
        kinds = sorted({type(tensor).__name__ for tensor in self.tensors})
        if len(kinds) > 1:
            refuse(self, f"its tensors are {' and '.join(kinds)}", "all must have one format")


def flag_bits(flags: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
    """Unpack the flags of an FCoo to one uint8 per nonzero, padded with zeros.

    >>> flag_bits(np.array([0b101], np.uint32))[:4]
    array([1, 0, 1, 0], dtype=uint8)
    """
    return np.unpackbits(np.ascontiguousarray(flags, "<u4").view(np.uint8), bitorder="little")


SparseTensor: TypeAlias = Coo | Csf | Fibers | MmCsf | BCsf | FCoo | HiCoo | PerMode
"""A sparse tensor in any format."""
