"""From real matrices to lines of whole 128-bit pieces and their ones, in one kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu.bmm.stacks import matrices
from gpu.compile import Ptx, compile_file
from gpu.device import Array, Device, Dim, LaunchPlan, launch, planned
from gpu.host import ELEMENTS, element_of, nan_flag, to_device

MOST_WARPS = 8
"""Warps of a block that packs rows; they share a row if rows are few and long."""

BATCH = 1024
"""Elements of a row that a warp takes at a time."""

COLUMN_WARPS = 16
"""Warps of a block that packs columns, 32 rows each."""

LEAST_TURNS = 4
"""Turns of a block along its columns that are worth a launch more, to share them among blocks."""

_MOST_ROWS = 2**31 - 1
"""Rows that a kernel can count."""


def pack_lines(x: Any, name: str, axis: int, device: Device) -> tuple[tuple[int, ...], Array, Array]:
    """Pack a checked matrix, whose lines are counted along ``axis``; returns its shape, words and ones.

    Words are (lines, ceil(bits / 128), 4), with zeros past the edge; ones are (lines,). A stack has one more
    axis in front. The rows of all its matrices are packed at once, columns matrix by matrix.
    """
    source = to_device(x, name, device)
    *stack, rows, _ = shape = tuple(source.shape)
    lines, bits = shape[-2:] if axis == 0 else shape[:-3:-1]
    words: Array = device.allocate((*stack, lines, -(-bits // 128), 4), np.uint32, f"lines of {name}")
    ones: Array = device.allocate((*stack, lines), np.uint32, f"ones of {name}")
    parts = matrices(tuple(stack), source, words, ones)
    if stack and axis == 0 and (count := stack[0] * rows) <= _MOST_ROWS:
        parts = [tuple(x.view((count, *x.shape[2:])) for x in (source, words, ones))]
    for real, packed, counts in parts:
        _pack(real, packed, counts, axis, device)
    return shape, words, ones


def _pack(source: Array, words: Array, ones: Array, axis: int, device: Device) -> None:
    """Pack the rows or columns of one matrix into words of bits on the device."""
    rows, columns = source.shape
    key = ("lines", rows, columns, source.dtype, source.pointer % 16, axis)
    plan = planned(device.plans, key, lambda: _plan(source, axis, device))
    if plan.grid[1] > 1:  # blocks that share a line add to its ones
        lines = source.shape[axis]
        launch(device, ("clear", lines), lambda: clear_plan(lines, device.compute_capability), ones)
    device.launch(plan, (source, words, ones, nan_flag(device)))


def _plan(source: Array, axis: int, device: Device) -> LaunchPlan:
    name, grid, block = lines_plan(source, axis, device.multiprocessors)
    ptx = lines_ptx(element_of(source), device.compute_capability)
    sizes = source.shape[axis], source.shape[1 - axis]
    return LaunchPlan(ptx.text, name, grid, block, (None, None, None, *sizes, None))


def lines_plan(source: Array, axis: int, multiprocessors: int) -> tuple[str, Dim, Dim]:
    """The kernel that makes lines of a matrix, its grid and its block.

    The vector kernels need rows that start at multiples of what a lane loads: 16 bytes of a row, or the 32
    bits of neighbouring columns. Up to eight warps share a row, while there are fewer than 32 for each
    multiprocessor; blocks share long columns, while there are fewer than two for each.
    """
    rows, columns = source.shape
    size = np.dtype(source.dtype).itemsize
    if axis == 0:
        vector = columns * size % 16 == source.pointer % 16 == 0
        warps = 1
        while warps < min(MOST_WARPS, columns / BATCH) and rows * warps < 32 * multiprocessors:
            warps *= 2
        grid, block = (-(-rows * warps // MOST_WARPS), 1, 1), (32 * warps, MOST_WARPS // warps, 1)
    else:
        vector = columns * size % 4 == source.pointer % 4 == 0
        across = 32 * max(1, 4 // size) if vector else 32
        blocks, turns = -(-columns // across), -(-rows // (32 * COLUMN_WARPS))
        parts = min(turns, max(1, 2 * multiprocessors // blocks)) if turns >= LEAST_TURNS else 1
        grid, block = (blocks, parts, 1), (32 * COLUMN_WARPS, 1, 1)
    return f"lines_of_{('rows', 'columns')[axis]}{'_vector' if vector else ''}", grid, block


def clear_plan(words: int, arch: tuple[int, int]) -> LaunchPlan:
    """The launch that sets words to 0, before the blocks of a later one add to them."""
    ptx = compile_file("bmm/clear.cu", None, arch).text
    return LaunchPlan(ptx, "clear", (-(-words // 256), 1, 1), (256, 1, 1), (None, words))


def lines_ptx(element: str, arch: tuple[int, int]) -> Ptx:
    """The kernels that make lines, for one element type; compiled."""
    return compile_file(
        "bmm/lines.cu", {f"ELEMENT_{ELEMENTS[element]}": "", "WORD_32": "", "FIRST_LSB": ""}, arch
    )
