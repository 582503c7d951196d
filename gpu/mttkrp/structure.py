"""Which sparse tensors are what their format says.

A kernel follows indices and pointers wherever they lead, so arrays of the host are looked through before
they go to a device. Arrays that lie on one already are taken as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpu.device import is_foreign
from reference.errors import DtypeError, FormatError, ShapeError
from reference.types import BCsf, Coo, Csf, FCoo, Fibers, HiCoo, MmCsf, PerMode
from reference.types.fields import check_fields
from reference.types.sparse import LEAST_ORDER, MOST_NONZEROS, MOST_ORDER

MOST_ROWS = 2**32
"""Of a factor: kernels count its rows in 32 bits."""


def check_tensor(tensor: Any) -> None:
    """Refuse what is not a sparse tensor, and host arrays that are not what their format says.

    Raises
    ------
    DtypeError, ShapeError, FormatError
        Naming the array.

    Examples
    --------
    >>> pointers = np.array([0, 2], np.uint32)
    >>> one_fiber = np.array([[0]], np.uint32), pointers, np.array([1, 3], np.uint32), np.ones(2)
    >>> check_tensor(Fibers((0, 1), *one_fiber, shape=(1, 4), split=128))
    >>> check_tensor(Fibers((0, 1), *one_fiber, shape=(1, 3), split=128))
    Traceback (most recent call last):
    ...
    reference.errors.ShapeError: Fibers: leaves has the index 3 in mode 1, whose dimension is 3
    indices count from 0 to 2
    build the tensor anew, with the shape that it has
    """
    check_kind(tensor)
    if isinstance(tensor, PerMode | MmCsf):
        for part in tensor.tensors if isinstance(tensor, PerMode) else tensor.partitions:
            check_tensor(part)
    elif _on_host(tensor.values):
        _check_values(tensor)
        _CONTENTS[type(tensor)](tensor)


def check_kind(tensor: Any) -> None:
    """Refuse what is not a sparse tensor, or has other parts than its format; no array is read.

    Raises
    ------
    DtypeError, ShapeError, FormatError

    Examples
    --------
    >>> check_kind(np.ones(3))
    Traceback (most recent call last):
    ...
    reference.errors.FormatError: a ndarray is not a sparse tensor
    Coo, Csf, Fibers, BCsf, FCoo, HiCoo, MmCsf, PerMode are known
    build one, e.g. reference.types.Coo(coords, values, shape)
    """
    name, known = type(tensor).__name__, (*_CONTENTS, MmCsf, PerMode)
    if type(tensor) not in known:
        raise FormatError(
            f"a {name} is not a sparse tensor\n{', '.join(one.__name__ for one in known)} are known\n"
            "build one, e.g. reference.types.Coo(coords, values, shape)"
        )
    if type(tensor) is not Coo:  # its constructor has looked at them
        check_fields(tensor)
    shape = tensor.shape
    if not LEAST_ORDER <= len(shape) <= MOST_ORDER or not all(1 <= n <= MOST_ROWS for n in shape):
        raise ShapeError(
            f"{name}: shape {shape} is not possible\n{LEAST_ORDER} to {MOST_ORDER} modes of 1 to 2**32 are\n"
            "merge modes, or give the true dimensions"
        )
    if isinstance(tensor, Csf | Fibers | BCsf | FCoo) and sorted(tensor.modes) != list(range(len(shape))):
        raise FormatError(
            f"{name} has modes {tensor.modes}\neach of 0 to {len(shape) - 1} occurs once\n{_ADVICE}"
        )
    if isinstance(tensor, MmCsf):
        _check_parts(tensor, tensor.partitions, (Fibers,))
    if isinstance(tensor, PerMode):
        _check_parts(tensor, tensor.tensors, (Csf, BCsf, FCoo))
        firsts = tuple(part.modes[0] for part in tensor.tensors)
        if firsts != tuple(range(len(shape))):
            raise FormatError(
                f"PerMode: its tensors have the modes {firsts} first\n"
                f"those of 0 to {len(shape) - 1} are needed, in this order\n{_ADVICE}"
            )


def _check_coo(tensor: Coo) -> None:
    """Its constructor has looked through it."""


def _check_csf(tensor: Csf) -> None:
    if len(tensor.indices) != len(tensor.shape) or len(tensor.pointers) != len(tensor.shape) - 1:
        raise FormatError(
            f"Csf: {len(tensor.indices)} arrays of indices, {len(tensor.pointers)} of pointers\n"
            f"order {len(tensor.shape)} has one for each level, pointers for each but the last\n{_ADVICE}"
        )
    nodes = tuple(np.size(indices) for indices in tensor.indices)
    _check_array(tensor, "indices[-1]", tensor.indices[-1], (tensor.values.size,))
    for level, (mode, indices) in enumerate(zip(tensor.modes, tensor.indices, strict=True)):
        _check_indices(tensor, f"indices[{level}]", indices, nodes[level : level + 1], mode)
    for level, pointers in enumerate(tensor.pointers):
        _check_pointers(tensor, f"pointers[{level}]", pointers, nodes[level], nodes[level + 1])


def _check_fibers(tensor: Fibers) -> None:
    count = np.size(tensor.pointers) - 1
    _check_pointers(tensor, "pointers", tensor.pointers, count, tensor.values.size)
    _check_uppers(tensor, tensor.modes[:-1], count)
    _check_indices(tensor, "leaves", tensor.leaves, (tensor.values.size,), tensor.modes[-1])


def _check_b_csf(tensor: BCsf) -> None:
    slices, fibers = np.size(tensor.slices), np.size(tensor.fiber_pointers) - 1
    _check_indices(tensor, "slices", tensor.slices, (slices,), tensor.modes[0])
    _check_pointers(tensor, "slice_pointers", tensor.slice_pointers, slices, fibers)
    _check_pointers(tensor, "fiber_pointers", tensor.fiber_pointers, fibers, tensor.values.size)
    _check_uppers(tensor, tensor.modes[1:-1], fibers)
    _check_indices(tensor, "leaves", tensor.leaves, (tensor.values.size,), tensor.modes[-1])
    _check_array(tensor, "order", tensor.order, (slices,))
    if not np.array_equal(np.sort(tensor.order), np.arange(slices)):
        raise FormatError(f"BCsf: order does not name every slice once\nslices 0 to {slices - 1}\n{_ADVICE}")
    bins = tensor.bins
    if len(bins) < 2 or bins[0] != 0 or bins[-1] != slices or any(np.diff(bins) < 0):
        raise FormatError(f"BCsf: bins are {bins}\nthey ascend from 0 to {slices}, the slices\n{_ADVICE}")


def _check_f_coo(tensor: FCoo) -> None:
    if tensor.partition < 32 or tensor.partition % 32:
        raise FormatError(f"FCoo: partition is {tensor.partition}\nit is a multiple of 32\n{_ADVICE}")
    nonzeros, segments = tensor.values.size, np.size(tensor.rows)
    _check_array(tensor, "products", tensor.products, (len(tensor.shape) - 1, nonzeros))
    for level, mode in enumerate(tensor.modes[1:]):
        _check_indices(tensor, f"products[{level}]", tensor.products[level], (nonzeros,), mode)
    _check_indices(tensor, "rows", tensor.rows, (segments,), tensor.modes[0])
    if (tensor.rows[1:] <= tensor.rows[:-1]).any():
        raise FormatError(f"FCoo: rows do not ascend\neach row has one segment\n{_ADVICE}")
    _check_array(tensor, "flags", tensor.flags, (-(-nonzeros // 32),))
    _check_array(tensor, "first", tensor.first, (-(-nonzeros // tensor.partition),))
    begins = np.unpackbits(np.ascontiguousarray(tensor.flags).astype("<u4").view(np.uint8), bitorder="little")
    segment = np.cumsum(begins, dtype=np.int64) - 1
    if begins[0] != 1 or begins[nonzeros:].any() or segment[-1] != segments - 1:
        raise FormatError(
            f"FCoo: flags begin {int(segment[-1]) + 1} segments, rows has {segments}\n"
            f"the first nonzero begins one, and bits past the last are 0\n{_ADVICE}"
        )
    if not np.array_equal(segment[: nonzeros : tensor.partition], tensor.first):
        raise FormatError(f"FCoo: first is not what flags say\nthe segment of each partition\n{_ADVICE}")


def _check_hi_coo(tensor: HiCoo) -> None:
    if not 2 <= tensor.block <= 256 or tensor.block & (tensor.block - 1):
        raise FormatError(f"HiCoo: block is {tensor.block}\nit is a power of two, 2 to 256\n{_ADVICE}")
    order, nonzeros, blocks = len(tensor.shape), tensor.values.size, np.size(tensor.block_pointers) - 1
    _check_pointers(tensor, "block_pointers", tensor.block_pointers, blocks, nonzeros, np.uint64)
    _check_array(tensor, "block_coords", tensor.block_coords, (order, blocks))
    _check_array(tensor, "offsets", tensor.offsets, (order, nonzeros), np.uint8)
    lengths = np.diff(tensor.block_pointers.astype(np.int64))
    for mode, dimension in enumerate(tensor.shape):
        offset = int(tensor.offsets[mode].max())
        if offset >= tensor.block:
            raise FormatError(
                f"HiCoo: offsets[{mode}] has {offset}\noffsets are below block, {tensor.block}\n{_ADVICE}"
            )
        corners = np.repeat(tensor.block_coords[mode].astype(np.int64) * tensor.block, lengths)
        largest = int((corners + tensor.offsets[mode]).max())
        if largest >= dimension:
            _refuse_index("HiCoo", f"block_coords[{mode}]", largest, mode, dimension)


def _check_parts(tensor: Any, parts: Sequence[Any], known: tuple[type, ...]) -> None:
    name = type(tensor).__name__
    if not parts:
        raise FormatError(f"{name} has no parts\nat least one is needed\n{_ADVICE}")
    for part in parts:
        if type(part) not in known:
            names = " or ".join(one.__name__ for one in known)
            raise FormatError(f"{name} holds a {type(part).__name__}\nit is made of {names}\n{_ADVICE}")
        if part.shape != tensor.shape:
            raise ShapeError(f"{name} has shape {tensor.shape}\na part has {part.shape}\n{_ADVICE}")
        if part.values.dtype != parts[0].values.dtype:
            raise DtypeError(
                f"{name} has values of {parts[0].values.dtype}\na part has {part.values.dtype}\n{_ADVICE}"
            )
        check_kind(part)


def _on_host(array: Any) -> bool:
    return not hasattr(array, "pointer") and not is_foreign(array)


def _kind(array: Any) -> str:
    """The element type of an array, else what it is instead."""
    if issubclass(type(array), np.ndarray):
        return str(array.dtype)
    return type(array).__name__


def _check_values(tensor: Any) -> None:
    """Values are the array that all others are measured by."""
    name, values = type(tensor).__name__, tensor.values
    if _kind(values) not in ("float32", "float64"):
        raise DtypeError(
            f"{name}: values is {_kind(values)}\na NumPy array of float32 or float64 is needed\nconvert it"
        )
    if values.ndim != 1 or not 1 <= values.size <= MOST_NONZEROS:
        raise ShapeError(f"{name}: values has shape {values.shape}\n(M,) with M >= 1 is needed\n{_ADVICE}")


def _check_array(
    tensor: Any,
    what: str,
    array: Any,
    shape: tuple[int, ...],
    dtype: type[np.unsignedinteger[Any]] = np.uint32,
) -> None:
    name = type(tensor).__name__
    if _kind(array) != str(np.dtype(dtype)):
        raise DtypeError(f"{name}: {what} is {_kind(array)}\n{np.dtype(dtype)} is needed\n{_ADVICE}")
    if array.shape != shape:
        raise ShapeError(f"{name}: {what} has shape {array.shape}\n{shape} is needed\n{_ADVICE}")


def _check_indices(tensor: Any, what: str, indices: Any, shape: tuple[int, ...], mode: int) -> None:
    _check_array(tensor, what, indices, shape)
    if indices.size and int(indices.max()) >= tensor.shape[mode]:
        _refuse_index(type(tensor).__name__, what, int(indices.max()), mode, tensor.shape[mode])


def _check_uppers(tensor: Fibers | BCsf, modes: Sequence[int], fibers: int) -> None:
    _check_array(tensor, "uppers", tensor.uppers, (len(modes), fibers))
    for level, mode in enumerate(modes):
        _check_indices(tensor, f"uppers[{level}]", tensor.uppers[level], (fibers,), mode)


def _check_pointers(
    tensor: Any,
    what: str,
    pointers: Any,
    count: int,
    end: int,
    dtype: type[np.unsignedinteger[Any]] = np.uint32,
) -> None:
    """Pointers lead from 0 to the end of what they point into, and nobody is without children."""
    _check_array(tensor, what, pointers, (count + 1,), dtype)
    ends = [int(pointer) for pointer in (*pointers[:1], *pointers[-1:])]
    if count < 1 or ends != [0, end] or (pointers[1:] <= pointers[:-1]).any():
        raise FormatError(
            f"{type(tensor).__name__}: {what} does not lead from 0 to {end}\n"
            f"each pointer is above the one before; first and last are {ends}\n{_ADVICE}"
        )


def _refuse_index(name: str, what: str, index: int, mode: int, dimension: int) -> None:
    raise ShapeError(
        f"{name}: {what} has the index {index} in mode {mode}, whose dimension is {dimension}\n"
        f"indices count from 0 to {dimension - 1}\nbuild the tensor anew, with the shape that it has"
    )


_ADVICE = "build the tensor anew"

_CONTENTS: dict[type, Callable[[Any], None]] = {
    Coo: _check_coo,
    Csf: _check_csf,
    Fibers: _check_fibers,
    BCsf: _check_b_csf,
    FCoo: _check_f_coo,
    HiCoo: _check_hi_coo,
}
