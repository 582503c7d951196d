"""Hierarchical COO: blocks in Z order, one byte per index within a block; its kernel is ``hi_coo.cu``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpu.mttkrp.formats.coo import CHUNK, others, runs_of
from gpu.mttkrp.formats.entry import Columns, Format
from gpu.mttkrp.formats.nonzeros import nonzeros_of
from gpu.mttkrp.formats.runs import depths_of, starts_of
from gpu.mttkrp.formats.sort import Indices, gathered, sorted_by, taken
from gpu.mttkrp.kernels import Setting, Work, pointers, rows_of
from reference.types import Coo, HiCoo
from reference.types.arguments import check_block


def hi_coo(coo: Coo, *, block: int = 128) -> HiCoo:
    """Build a HiCOO tensor: its nonzeros in cubic blocks of side ``block``, a power of two from 2 to 256.

    FormatError if coordinates occur twice; ShapeError for another block or dimensions above 2**32. Source:
    HiCOO (SC'18); MM-CSF (SC'19), section 3.

    >>> made = hi_coo(Coo([[0, 5, 1], [4, 1, 0]], [5.0, 6.0, 7.0], (6, 6)), block=4)
    >>> made.block_coords.tolist(), made.offsets.tolist(), made.values.tolist()
    ([[0, 0, 1], [0, 1, 0]], [[1, 0, 1], [0, 0, 1]], [7.0, 5.0, 6.0])
    """
    nonzeros = nonzeros_of(coo)
    within = check_block(block).bit_length() - 1
    order = sorted_by(nonzeros.coords, _z_order(nonzeros.coords, within), nonzeros.order)
    blocks = nonzeros.coords >> np.uint32(within)
    starts = starts_of(depths_of(blocks, nonzeros.modes, order), len(blocks) - 1)
    firsts = taken(order, starts[:-1])
    offsets = (nonzeros.coords & np.uint32(block - 1)).astype(np.uint8)
    return HiCoo(
        starts.astype(np.uint64),
        gathered(blocks, firsts),
        gathered(offsets, order),
        taken(nonzeros.values, order),
        coo.shape,
        int(block),
    )


def _z_order(coords: Indices, within: int) -> list[tuple[int, int]]:
    """The bits of the blocks' Morton codes, as (mode, bit), from the most significant one."""
    lengths = [int(indices.max()).bit_length() for indices in coords]
    return [
        (n, bit)
        for bit in reversed(range(within, max(lengths)))
        for n, length in enumerate(lengths)
        if bit < length
    ]


def _columns(tensor: HiCoo) -> Columns:
    lengths = np.diff(tensor.block_pointers).astype(np.int64)
    blocks = np.repeat(tensor.block_coords, lengths, axis=1)
    return blocks * np.uint32(tensor.block) + tensor.offsets, tensor.values


def _work(tensor: HiCoo, mode: int, setting: Setting) -> Work:
    """The launch of the HiCOO kernel, which adds atomically at each change of row."""
    device, nonzeros = setting.device, int(tensor.values.shape[0])
    modes = others(mode, setting.order)
    bounds: npt.NDArray[np.int64] = tensor.block_pointers.download().astype(np.int64)
    first_blocks = np.searchsorted(bounds, np.arange(0, nonzeros, CHUNK), side="right") - 1
    slot_rows, first_slots = np.empty(0, np.int64), 0
    if setting.deterministic:
        corners = tensor.block_coords.download()[mode].astype(np.int64) * tensor.block
        rows = np.repeat(corners, np.diff(bounds)) + tensor.offsets.download()[mode]
        slot_rows, firsts = runs_of(rows)
        first_slots = device.upload(firsts, "first slots")
    blocks, offsets = rows_of(tensor.block_coords), rows_of(tensor.offsets)
    indices = pointers(*(rows[n] for rows in (blocks, offsets) for n in (mode, *modes)))
    of_chunks = device.upload(first_blocks.astype(np.uint32), "first blocks")
    arguments = indices, tensor.block_pointers, of_chunks, tensor.values, tensor.block, nonzeros, first_slots
    grid = setting.grid(-(-nonzeros // CHUNK))
    launch = setting.launch("hi_coo.cu", "hi_coo", grid, *arguments, modes=modes, defines={"CHUNK": CHUNK})
    return Work((launch,), slot_rows)


FORMAT = Format(
    HiCoo,
    _columns,
    builders={"hicoo": hi_coo},
    work=_work,
    source="hi_coo.cu",
    summary="as for COO, with indices from blocks and offsets",
    macros={"CHUNK": CHUNK},
)
