"""Flagged COO: sorted for one mode, with a bit where its index changes; its kernel is ``f_coo.cu``."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.compile import compile_file
from gpu.device import Device
from gpu.mttkrp.formats.entry import Columns, Format, by_mode
from gpu.mttkrp.formats.nonzeros import Nonzeros, arranged, nonzeros_of, per_mode
from gpu.mttkrp.formats.runs import Depths, depths_of, starts_of
from gpu.mttkrp.formats.sort import Indices, gathered, taken
from gpu.mttkrp.kernels import THREADS, Setting, Work, pointers, rows_of
from reference.types import Coo, FCoo, PerMode
from reference.types.arguments import check_mode, check_number, root_first
from reference.types.sparse import FLAGS, flag_bits


def f_coo(coo: Coo, mode: int, *, partition: int = 64) -> FCoo:
    """Build an F-COO tensor: sorted and flagged for the result of one mode.

    A group takes ``partition`` nonzeros, a multiple of 32. FormatError if coordinates occur twice; ShapeError
    for another mode or partition, or a dimension above 2**32. Source: MM-CSF (SC'19), sections 3 and 6.8;
    F-COO (CLUSTER'17).

    >>> made = f_coo(Coo([[0, 0, 1], [1, 1, 0], [0, 4, 2]], [5.0, 6.0, 7.0], (2, 3, 5)), 0)
    >>> made.products.tolist(), bin(made.flags[0]), made.rows.tolist()
    ([[1, 1, 0], [0, 4, 2]], '0b101', [0, 1])
    """
    nonzeros = nonzeros_of(coo)
    modes = root_first(coo.shape, check_mode(mode, len(coo.shape)))
    return _flagged(arranged(nonzeros, modes), partition)


def f_coo_all(coo: Coo, *, partition: int = 64) -> PerMode:
    """Build one F-COO tensor for each mode; see `f_coo`.

    >>> copies = f_coo_all(Coo([[0, 0, 1], [1, 1, 0], [0, 4, 2]], [5.0, 6.0, 7.0], (2, 3, 5)))
    >>> [copy.rows.tolist() for copy in copies.tensors]
    [[0, 1], [0, 1], [0, 2, 4]]
    """
    return per_mode(coo, lambda nonzeros: _flagged(nonzeros, partition))


def _flagged(nonzeros: Nonzeros, partition: int) -> FCoo:
    """The F-COO tensor of sorted nonzeros, for the result of their first mode."""
    partition = check_number("partition", partition, FLAGS)
    coords, modes, order = nonzeros.coords, nonzeros.modes, nonzeros.order
    depths = depths_of(coords, modes, order)
    segments = starts_of(depths, 0)[:-1]
    begins = np.arange(0, order.size, partition, dtype=np.uint32)
    return FCoo(
        modes,
        gathered(coords, order, modes[1:]),
        taken(nonzeros.values, order),
        _flags(depths),
        taken(coords[modes[0]], taken(order, segments)),
        (np.searchsorted(segments, begins, side="right") - 1).astype(np.uint32),
        nonzeros.shape,
        partition,
    )


def _flags(depths: Depths) -> Indices:
    """One bit per nonzero, 1 if the nonzero begins a row of the result, from the least significant bit."""
    words = np.zeros(-(-depths.size // FLAGS), "<u4")
    bits = np.packbits(depths == 0, bitorder="little")
    words.view(np.uint8)[: bits.size] = bits
    return words.astype(np.uint32, copy=False)


def _columns(tensor: FCoo) -> Columns:
    rows = tensor.rows[np.cumsum(flag_bits(tensor.flags)[: tensor.values.size], dtype=np.int64) - 1]
    return by_mode([rows, *tensor.products], tensor.modes), tensor.values


def _work(tensor: FCoo, mode: int, setting: Setting) -> Work:
    """The launch of the F-COO kernel, which stores rows, and adds to rows at edges of partitions."""
    device, nonzeros = setting.device, tensor.values.shape[0]
    products = [_aligned(row, nonzeros, device) for row in rows_of(tensor.products)]
    values = _aligned(tensor.values.pointer, tensor.values.nbytes // 4, device)
    grid, copies = setting.grid(-(-nonzeros // tensor.partition)), (*products, values)
    arguments = pointers(*copies), tensor.flags, tensor.rows, tensor.first, nonzeros
    macros, modes = {"PARTITION": tensor.partition}, tensor.modes[1:]
    launch = setting.launch("f_coo.cu", "f_coo", grid, *arguments, modes=modes, keep=copies, defines=macros)
    slot_rows, rows = _slot_rows(tensor), tensor.rows.download()
    stored = np.delete(rows, np.searchsorted(rows, np.unique(slot_rows[slot_rows >= 0])))
    return Work((launch,), slot_rows if setting.deterministic else np.empty(0, np.int64), stored)


def _aligned(address: int, words: int, device: Device) -> Any:
    """The address if it is a multiple of 16, else an aligned copy of its words."""
    if address % 16 == 0:
        return address
    copied = device.allocate((words,), np.uint32, "aligned copy")
    copy = device.load(compile_file("mttkrp/copy.cu", arch=device.compute_capability).text).kernel("copy")
    copy((-(-words // THREADS), 1, 1), (THREADS, 1, 1), address, copied, words)
    return copied


def _slot_rows(tensor: FCoo) -> npt.NDArray[np.int64]:
    """The result row of each slot, -1 for slots never written.

    Slot 2p is for the segment that begins before partition p and ends in or after it, slot 2p + 1 for the one
    that begins in it and ends after it.
    """
    rows, first, flags = (x.download() for x in (tensor.rows, tensor.first, tensor.flags))
    # whether the first segment of each partition begins in an earlier partition
    goes_on = flags[:: tensor.partition // FLAGS] & 1 == 0
    slots: npt.NDArray[Any] = np.full((first.size, 2), -1, np.int64)
    slots[goes_on, 0] = rows[first[goes_on]]
    ends_later = np.append(goes_on[1:], False)
    begins_here = np.append(first[1:] > first[:-1], False) | ~goes_on
    last = np.flatnonzero(ends_later & begins_here)
    slots[last, 1] = rows[first[last + 1]]
    return slots.ravel()


FORMAT = Format(
    FCoo,
    _columns,
    builders={"f-coo": f_coo_all},
    work=_work,
    source="f_coo.cu",
    summary="a group for each partition, which stores the rows inside it",
    macros={"PARTITION": 64},
    is_for_one_mode=True,
)
