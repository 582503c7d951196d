"""The host's side of dots.cu: the pixels that a tile reads, and filters in the order of lanes."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gpu.bconv.geometry import ConvShape
from reference.types.layers import Threshold
from reference.types.network_values import INT16_MAX, INT16_MIN, INT32_MAX, Value

Numbers: TypeAlias = npt.NDArray[np.int64]

THREADS = 128
_WARPS = 4
FILTERS = 64
"""Filters of a block."""
_STEP, _GROUP = 16, 4
"""Numbers of a step along k, and those of a lane."""
_HELD = 4
"""Steps whose filters fit into registers."""
_SHARED = 48 * 1024
"""Bytes of shared memory that every device gives a block."""
_BYTES_OF_WINDOW = 256 + 16
_SMALLEST = _WARPS * 16
"""Pixels of the smallest tile."""
_FORMS = (1, 1), (2, 1), (2, 2), (2, 4)
"""16 pixels of a warp, and passes: tiles from the smallest to the largest."""
_ENOUGH_TILES = 8
"""Tiles of a multiprocessor that are worth larger ones."""


@dataclass(frozen=True, eq=False)
class Order:
    """The order of k, in groups of four numbers that lie together in shared memory.

    Attributes
    ----------
    numbers : (steps * 16,)
        The number of each in the window, r, s, c; -1 where there is none.
    lines, bytes : (steps * 4,)
        Where each group lies, from its window's first number on; none where a window lies by itself.
    pixel_bytes : int
    """

    numbers: Numbers
    lines: Numbers
    bytes: Numbers
    pixel_bytes: int

    @property
    def steps(self) -> int:
        """The number of k steps of the MMA in one window."""
        return len(self.numbers) // _STEP

    @property
    def groups(self) -> npt.NDArray[np.uint32]:
        """The packed positions of a window's groups (line << 16 | offset), as the kernel reads them."""
        return (self.lines << 16 | self.bytes // _GROUP).astype(np.uint32)


@dataclass(frozen=True)
class Region:
    """Lines of an image that a tile of pixels reads, and the tiles of an output; staging.cuh has its twin."""

    lines: int
    line_bytes: int
    pixel_bytes: int
    column_bits: int
    tiles_across: int
    tiles_down: int

    @property
    def bytes(self) -> int:
        """The bytes of one plane of the region in shared memory."""
        return self.lines * self.line_bytes


@dataclass(frozen=True, eq=False)
class Tiles:
    """The tile sizes with which a launch computes its pixels.

    Attributes
    ----------
    defines : tuple of str
    grid : (int, int, int)
    shared : int
    region : np.void, optional
        The kernel's argument, if it has one.
    """

    defines: tuple[str, ...]
    grid: tuple[int, int, int]
    shared: int
    region: Any


def planes_of(value: Value) -> tuple[int, bool]:
    """The number of bytes that hold each integer of a value, and whether the highest byte is unsigned."""
    if value.low >= 0 and value.high <= 255:
        return 1, True
    if value.low >= -128 and value.high <= 127:
        return 1, False
    return (2 if value.low >= INT16_MIN and value.high <= INT16_MAX else 4), False


def order_of(shape: ConvShape, planes: int) -> Order:
    """The order of k: memory order, in regions if those of the smallest tile fit in shared memory."""
    order = _order_in_regions(shape)
    if any(region.bytes * planes <= _SHARED for region in _regions(shape, order, _SMALLEST)):
        return order
    padded = np.full(-(-shape.dot_length // _STEP) * _STEP, -1)
    padded[: shape.dot_length] = np.arange(shape.dot_length)
    return Order(padded, np.empty(0, np.int64), np.empty(0, np.int64), 0)


def pieces_of(weights: npt.NDArray[np.int8], order: Order) -> npt.NDArray[np.int8]:
    """Filters (K, O) of ±1 and 0 in pieces: for 64 filters and each step two of each lane."""
    blocks = -(-weights.shape[1] // FILTERS)
    signs = np.zeros((len(weights) + 1, blocks * FILTERS), np.int8)  # the last line is number -1
    signs[:-1, : weights.shape[1]] = weights
    # (step, quad's lane, number, block, word, filter's quad, tile, filter of two)
    parts = signs[order.numbers].reshape(-1, 4, _GROUP, blocks, FILTERS // 32, 4, 4, 2)
    return np.ascontiguousarray(parts.transpose(3, 0, 4, 5, 7, 1, 6, 2))


def is_far(largest: int) -> bool:
    """True if a sum in [-largest, largest] minus a threshold may overflow int32."""
    return largest >= 2**30


def rule_of(threshold: Threshold, largest: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Thresholds and flip bits, padded to whole blocks of filters; padding filters give 0."""
    count = len(threshold.thresholds)
    most = INT32_MAX if is_far(largest) else largest + 1
    limits = np.full(-(-count // FILTERS) * FILTERS, most, np.int32)
    flips = np.zeros(len(limits), np.bool_)
    limits[:count], flips[:count] = threshold.thresholds, threshold.flip
    return limits.clip(-most, most), np.packbits(flips, bitorder="little")


def tiles_of(shape: ConvShape, order: Order, planes: int, multiprocessors: int) -> Tiles:
    """The tiles of a launch: large ones, unless there are few or they need too much shared memory."""
    filter_blocks = -(-shape.filters // FILTERS)
    made = None
    for row_tiles, passes in _FORMS[: None if order.pixel_bytes else 2]:
        pixels = _WARPS * row_tiles * 16 * passes
        if order.pixel_bytes:
            region = _best_region(shape, order, pixels, planes)
            if region is None:
                break
            tiles = shape.batch * region.tiles_across * region.tiles_down
            shared, argument = planes * region.bytes, np.void(np.array(astuple(region), np.uint32).tobytes())
            defines = ("REGION", f"STEPS={order.steps}", *(("HELD",) if order.steps <= _HELD else ()))
            defines = (*defines, *(("ALIGNED",) if _is_aligned(shape, order) else ()))
        else:
            tiles, shared, argument = -(-shape.pixels // pixels), pixels * _BYTES_OF_WINDOW, None
            defines = ("ALIGNED",)
        if made and tiles * filter_blocks < _ENOUGH_TILES * multiprocessors:
            break
        blocks = _blocks(row_tiles, order)
        of_block = -(-tiles * filter_blocks // (blocks * multiprocessors))
        grid = (-(-tiles // of_block), filter_blocks, 1)
        form = f"ROW_TILES={row_tiles}", f"PASSES={passes}", f"BLOCKS={blocks}"
        made = Tiles((*form, *defines), grid, shared, argument)
    assert made
    return made


def _blocks(row_tiles: int, order: Order) -> int:
    """The number of blocks whose registers fit on a multiprocessor."""
    return 4 if row_tiles == 1 or (order.pixel_bytes and order.steps <= _HELD) else 3


def _order_in_regions(shape: ConvShape) -> Order:
    """The order of k in groups within a run: a row of the window, or one pixel if pixels have gaps."""
    channels, width = shape.channels, shape.filter_width
    together = channels < _STEP and (shape.dilation_w == 1 or width == 1)
    gap = -channels % _GROUP if channels < _STEP else (-channels - 16) % 32  # windows in different banks
    pixel_bytes = channels + (0 if together else gap)
    runs, length = (1, width * channels) if together else (width, channels)
    numbers: list[Numbers] = []
    lines: list[Numbers] = []
    places: list[Numbers] = []
    for run in range(shape.filter_height * runs):
        line, tap = divmod(run, runs)
        inside = np.arange(-(-length // _GROUP) * _GROUP)
        numbers.append(np.where(inside < length, run * length + inside, -1))
        places.append(tap * shape.dilation_w * pixel_bytes + inside[::_GROUP])
        lines.append(np.full(len(inside) // _GROUP, line * shape.dilation_h))
    padding = -sum(map(len, lines)) % (_STEP // _GROUP)
    none = np.zeros(padding, np.int64)
    return Order(
        np.concatenate([*numbers, np.full(padding * _GROUP, -1)]),
        np.concatenate([*lines, none]),
        np.concatenate([*places, none]),
        pixel_bytes,
    )


def _is_aligned(shape: ConvShape, order: Order) -> bool:
    """True if every window begins at a word boundary of shared memory."""
    return shape.stride_w * order.pixel_bytes % _GROUP == 0


def _regions(shape: ConvShape, order: Order, pixels: int) -> list[Region]:
    """The regions of tiles of a number of pixels."""
    made: list[Region] = []
    columns = 8  # columns that the quads of a lane hold
    while columns <= pixels:
        rows = pixels // columns
        reach = (columns - 1) * shape.stride_w * order.pixel_bytes + int(order.bytes.max()) + _GROUP
        line_bytes = -(-reach // 4) * 4 + (0 if _is_aligned(shape, order) else 4)
        lines = (rows - 1) * shape.stride_h + int(order.lines.max()) + 1
        tiles = -(-shape.out_width // columns), -(-shape.out_height // rows)
        made.append(Region(lines, line_bytes, order.pixel_bytes, columns.bit_length() - 1, *tiles))
        columns *= 2
    return made


def _best_region(shape: ConvShape, order: Order, pixels: int, planes: int) -> Region | None:
    """The region whose tiles cost least: products, plus bytes to stage."""

    def cost(region: Region) -> int:
        return region.tiles_across * region.tiles_down * (8 * pixels * order.steps + region.bytes)

    fit = (region for region in _regions(shape, order, pixels) if planes * region.bytes <= _SHARED)
    return min(fit, key=cost, default=None)
