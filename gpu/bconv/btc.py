"""The ±1 convolution on bit tensor cores (BTC, section 5.3): operands and tiles of its kernels.

A dot product has only the taps inside the image. A count of the tensor cores becomes a dot product by adding
a number of the filter, its addend. All windows inside the image share a row of addends, one per filter;
windows along the border have rows of their own.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from functools import partial
from typing import Any

import numpy as np

from gpu.bconv.geometry import ConvShape
from gpu.compile import compile_file
from gpu.device import Array, Device, LaunchPlan, launch
from reference.errors import ShapeError
from reference.types import PackedTensor

TILES = (128, 64, 32)
"""The possible sides of a block's tile, in pixels and in channels."""

ENOUGH_BLOCKS = 128
"""The number of blocks below which a smaller tile is faster, as it keeps more multiprocessors busy."""

UNIT_WORDS = 4
"""32-bit words of a unit: the 128 channels that a bit tensor core takes at once."""

PAIRED_WORDS = 2
"""32-bit words of a pixel or tap that shares a unit with its neighbour."""

LARGEST_OFFSET = 2**32
"""The most units of a tensor, because kernels count them in 32 bits."""

_THREADS = 128

_WAITING = ("to_units", "count_ones")
"""The kernels that wait for earlier launches by themselves, on chips that can."""


@dataclass(frozen=True)
class Borders:
    """The range of output pixels whose windows lie inside the image with all their taps.

    Attributes
    ----------
    top, bottom, left, right : int
        Windows of the output rows [top, bottom) have all rows of the filter inside the image, those of the
        columns [left, right) all columns. If there are none, both ends are the output's size.
    """

    top: int
    bottom: int
    left: int
    right: int

    @classmethod
    def of(cls, shape: ConvShape) -> Borders:
        """The output rows and columns whose windows have all taps inside the image, for a geometry."""
        s = shape
        down = _whole(s.height, s.filter_height, s.pad_top, s.stride_h, s.dilation_h, s.out_height)
        across = _whole(s.width, s.filter_width, s.pad_left, s.stride_w, s.dilation_w, s.out_width)
        return cls(*down, *across)

    def rows(self, shape: ConvShape) -> int:
        """The number of rows of addends: one for the inside, one for each combination of border lines."""
        down = self.top + 1 + shape.out_height - self.bottom
        return down * (self.left + 1 + shape.out_width - self.right)

    @property
    def argument(self) -> np.void:
        """The borders as a by-value argument of kernels: four uint32 numbers in the order of the fields."""
        return np.void(np.array(astuple(self), np.uint32).tobytes())


def _whole(size: int, taps: int, pad: int, stride: int, dilation: int, outputs: int) -> tuple[int, int]:
    """The range of windows along one dimension whose taps are all inside the image."""
    begin = min(-(-pad // stride), outputs)
    last = (size - 1 + pad - (taps - 1) * dilation) // stride
    end = min(last + 1, outputs)
    return (begin, end) if begin < end else (outputs, outputs)


def tile_of(shape: ConvShape) -> int:
    """The side of a block's tile: the largest with enough channels and blocks."""
    for tile in TILES[:-1]:
        if shape.filters > tile // 2 and blocks(shape.outputs("none"), tile) >= ENOUGH_BLOCKS:
            return tile
    return TILES[-1]


def blocks(outputs: tuple[int, int], tile: int) -> int:
    """The number of blocks for an output of (pixels, channels): one for each tile."""
    pixels, channels = outputs
    return -(-pixels // tile) * -(-channels // tile)


def addends_of(
    filters: Array,
    shape: ConvShape,
    device: Device,
    *,
    lines_of_tile: int,
    columns: int = 2,
    for_warpgroups: bool = False,
) -> Array:
    """The addends of each filter: the numbers that turn counts into dot products, a row per kind of window.

    An addend is C for each tap inside the image, minus twice the filter's ones at these taps (if tensor cores
    count common ones), or plus twice its ones at the other taps (if they count differences). ``filters`` are
    units of 128 bits (R, S, O, units, 4), or FSB tiles (R, S, ceil(O / 8), units, 8, 4). A row is padded to a
    multiple of ``columns``. For warpgroups filters are lines (O, R, S, units, 4), and rows along the border
    have the difference from the inside one; of 33 to 64 channels they are `paired_lines`.
    """
    height, width, count = shape.filter_height, shape.filter_width, shape.filters
    prefix = device.allocate((height + 1, width + 1, count), np.uint32, "prefix sums of the filters' ones")
    sizes = "addends", shape, lines_of_tile, columns, for_warpgroups
    pitch, of_tap = -(-count // columns) * columns, -(-shape.channels // 128) * UNIT_WORDS
    steps = of_tap, -(-count // lines_of_tile) * lines_of_tile * of_tap
    if for_warpgroups:
        of_tap = PAIRED_WORDS if is_paired(shape.channels) else of_tap
        steps = filters.nbytes // (4 * count), of_tap

    def sums() -> LaunchPlan:
        args = (None, None, shape.argument, of_tap, lines_of_tile, *steps)
        return _plan("sum_filters", count * 32, args, device)

    launch(device, ("sum_filters", *sizes), sums, filters, prefix)
    borders = Borders.of(shape)
    addends: Array = device.allocate((borders.rows(shape), pitch), np.int32, "addends")

    def adds() -> LaunchPlan:
        args = (None, None, shape.argument, borders.argument, pitch, int(for_warpgroups))
        return _plan("add_borders", addends.nbytes // 4, args, device)

    launch(device, ("add_borders", *sizes), adds, prefix, addends)
    return addends


def to_fsb(packed: PackedTensor, device: Device) -> PackedTensor:
    """Rearrange packed words into FSB tiles of 8 images or filters by 128 channels; tiles are not copied.

    Source: BTC (TPDS'20), section 5.1 and figure 14.
    """
    if packed.layout in ("HWNC-FSB", "HWOI-FSB"):
        return packed
    down, across, lines, words = packed.words.shape
    layout, place_step, line_step = "HWOI-FSB", lines * words, words
    if packed.layout == "NHWC":
        lines, down, across, words = packed.words.shape
        layout, place_step, line_step = "HWNC-FSB", words, down * across * words
    shape = (down, across, -(-lines // 8), -(-words // UNIT_WORDS), 8, UNIT_WORDS)
    if int(np.prod(shape, dtype=object)) > LARGEST_OFFSET * UNIT_WORDS:
        raise ShapeError(
            f"{packed.layout} {packed.shape} would be {shape[0] * shape[1]} x {shape[2]} x {shape[3]} tiles "
            f"of 8 x 128 bits\nbtc2 can count {LARGEST_OFFSET // 8}\nchoose scheme='btc1'"
        )
    sizes = (down * across, lines, words, 8)
    tiles = _to_units(packed.words, shape, sizes, (place_step, line_step), device)
    return PackedTensor(tiles, packed.shape, layout)


def whole_units(words: Array, device: Device) -> Array:
    """Pad words to units of 128 bits at multiples of 16 bytes; words that are such units are not copied."""
    *others, count = words.shape
    if count % UNIT_WORDS == 0 and words.pointer % 16 == 0:
        return words
    lines = int(np.prod(others, dtype=np.int64))
    shape = (*others, -(-count // UNIT_WORDS) * UNIT_WORDS)
    return _to_units(words, shape, (1, lines, count, 1), (0, count), device)


def lines_of_filters(words: Array, device: Device) -> Array:
    """Rearrange packed filters (R, S, O, words) into lines of units, (O, R, S, 4 units)."""
    height, width, filters, count = words.shape
    shape = (filters, height, width, -(-count // UNIT_WORDS) * UNIT_WORDS)
    return _to_units(words, shape, (filters, height * width, count, 1), (count, filters * count), device)


def is_paired(channels: int, width: int = 0) -> bool:
    """Whether two pixels of a line, or two taps, can share a unit: each fills half of it."""
    return -(-channels // 32) == PAIRED_WORDS and width % 2 == 0


def paired_lines(words: Array, device: Device) -> Array:
    """Rearrange packed filters (R, S, O, 2 words) into lines of units of two taps, (O, ceil(R S / 2), 4)."""
    height, width, filters, _ = words.shape
    units = device.allocate((filters, -(-height * width // 2), UNIT_WORDS), np.uint32, "units")
    plan = partial(_plan, "to_pairs", units.nbytes // 16, (None, None, filters, height * width), device)
    launch(device, ("to_pairs", words.shape), plan, words, units)
    return units


def unpaired_lines(pairs: Array, taps: int, device: Device) -> Array:
    """`paired_lines` with a unit for each tap, (O, R S, 4)."""
    filters, units, _ = pairs.shape
    steps = units * UNIT_WORDS, PAIRED_WORDS
    return _to_units(pairs, (filters, taps, UNIT_WORDS), (filters, taps, PAIRED_WORDS, 1), steps, device)


def ones_of(units: Array, lines: int, device: Device) -> Array:
    """The ones of each line of units, (lines,) of uint32."""
    ones: Array = device.allocate((lines,), np.uint32, "ones of lines")
    units_of_line = units.nbytes // (16 * lines)
    plan = partial(_plan, "count_ones", lines, (None, None, lines, units_of_line), device)
    launch(device, ("count_ones", lines, units_of_line), plan, units, ones)
    return ones


def _to_units(
    words: Array, shape: tuple[int, ...], sizes: tuple[int, ...], steps: tuple[int, ...], device: Device
) -> Array:
    """Copy words into an array of units; sizes and steps are arguments of the kernel ``to_units``."""
    units: Array = device.allocate(shape, np.uint32, "units")
    plan = partial(_plan, "to_units", units.nbytes // 16, (None, None, *sizes, *steps), device)
    launch(device, ("to_units", shape, sizes, steps), plan, words, units)
    return units


def _plan(name: str, threads: int, args: tuple[Any, ...], device: Device) -> LaunchPlan:
    ptx = compile_file("bconv/btc_operands.cu", arch=device.compute_capability).text
    grid, overlaps = (-(-threads // _THREADS), 1, 1), name in _WAITING and device.compute_capability >= (9, 0)
    return LaunchPlan(ptx, name, grid, (_THREADS, 1, 1), args, dependent=overlaps)
