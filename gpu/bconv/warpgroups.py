"""The scheme of the ±1 convolution for the warpgroups of Hopper: its operands, maps and launch.

It is an implicit matrix product: rows are pixels of the output, columns filters, and k runs over the taps of
a window and their channels. Images are those of `gpu.bconv.btc`, with the ones of each pixel; filters are
lines of units of 128 channels. Of 33 to 64 channels, two pixels or taps share a unit where a patch can take
them so: the images' words are then as they are packed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from gpu.bconv.btc import Borders, addends_of, is_paired, lines_of_filters, paired_lines, whole_units
from gpu.bconv.direct import PAIRED, Direct, Sum, direct_of, pixel_of, plan_direct
from gpu.bconv.geometry import ConvShape, Pool
from gpu.bmm.lines import pack_lines
from gpu.bmm.warpgroups import (
    LARGEST_BITS,
    MOST_SHARED,
    OPTIONS,
    SPAN,
    Tile,
    fastest,
    map_of_lines,
    map_of_outputs,
)
from gpu.compile import compile_file
from gpu.device import Array, Device, LaunchPlan
from gpu.host import to_device
from reference.devices.tensor_map import Im2col, TensorMap
from reference.errors import SchemeError
from reference.types import PackedTensor, TensorLayout, Word

TILES: dict[str, tuple[Tile, ...]] = {
    "int32": (Tile(128, 256, 2, 3, 2), Tile(128, 128, 2, 5, 2, 2, 690), Tile(64, 64, 1, 6, 2)),
    "int16": (Tile(128, 256, 2, 3, 2), Tile(128, 128, 2, 5, 2, 2, 690), Tile(64, 64, 1, 6, 1)),
    "lines": (
        Tile(128, 256, 2, 4),
        Tile(128, 128, 2, 6, 0, 2, 690),
        Tile(64, 128, 1, 6),
        Tile(128, 64, 2, 6, 0, 2),
    ),
}
"""The tiles of each kind of output."""

_NOTES, _BETWEEN = 4400, 1500
"""Clocks on an H200: in which a tile's note is written, and between the tiles of a single team."""

COLUMNS = 768
"""A multiple of all tiles' columns, to whose multiples rows of addends are padded."""

KINDS = (1, 9, 25, 49)
"""How many tables of addends a kernel may have: for windows of 1, 3 x 3, 5 x 5 and 7 x 7 taps."""

KINDS_OF_OUTPUTS = {
    "int": "int32",
    "int16": "int16",
    "bits": "lines",
}
"""The kinds of a kernel's outputs, by what a launch gives."""

LEAST_STAGES = 3
"""Of a ring that keeps tensor cores busy; tables of addends may take the place of others."""

MOST_TAPS = 15
"""Down and across: a gathering lane has them as bits."""

_UNIT = 16
"""Bytes of 128 channels."""

_LARGE_PIXEL = 32
"""Bytes of a pixel, beyond which copies of windows are faster than loads from a patch."""

_MOST_CORNER, _MOST_OFFSET, _MOST_STRIDE = 128, 255, 8
"""Of im2col maps of images: corners lie below, taps up to that far away."""


@dataclass(frozen=True)
class WarpgroupScheme:
    """The convolution on the tensor cores of sm_90a, which warpgroups feed from shared memory.

    Attributes
    ----------
    name : str
        The name of the kernel: that of the instruction.
    group : int
        Tiles that follow one another down the pixels before the next tiles of filters. With 1 most blocks
        keep their filters, and the tables of their addends.
    """

    name: str = "wgmma"
    group: int = 1
    summary: str = (
        "a warpgroup for 64 pixels of a tile; windows of a patch in registers, or copied tap by tap"
    )

    source: ClassVar = "bconv/wgmma.cu"
    word: ClassVar[Word] = 32
    images: ClassVar[tuple[TensorLayout, ...]] = ("NHWC",)
    filters: ClassVar[tuple[TensorLayout, ...]] = ("HWOI",)

    def arranged(self, packed: PackedTensor, device: Device) -> Array:
        """Rearrange packed images into units of 128 channels, filters into lines of such units, or pairs."""
        _, _, width, channels = packed.shape
        if packed.layout == "NHWC":
            return packed.words if is_paired(channels, width) else whole_units(packed.words, device)
        arrange = paired_lines if is_paired(packed.shape[2]) else lines_of_filters
        return arrange(packed.words, device)

    def packed_images(self, x: Any, device: Device) -> tuple[tuple[int, int, int, int], Array, Array]:
        """Pack checked real images; returns their shape, arranged words and ones of each pixel."""
        source: Any = to_device(x, "x", device)
        n, h, w, c = source.shape
        _, words, ones = pack_lines(source.view((n * h * w, c)), "x", 0, device)
        return (n, h, w, c), words.view((n, h, w, -(-c // 128) * 4)), ones

    def operands(
        self, images: Any, filters: Any, shape: ConvShape, device: Device, kernel: str
    ) -> tuple[Array, ...]:
        """The operands of a kernel; ``shape`` has a batch of 1."""
        if kernel == "direct" and pixel_of(shape) == PAIRED:
            return images.words, filters.words, filters.addends(shape, device)
        ones = () if kernel == "direct" else (images.ones(device),)
        return images.units(device), *ones, filters.units(device), filters.addends(shape, device)

    def addends(self, filters: Array, shape: ConvShape, device: Device) -> Array:
        """The corrections that windows at the border add to their sums, for arranged filters."""
        return addends_of(filters, shape, device, lines_of_tile=1, columns=COLUMNS, for_warpgroups=True)

    def plan(
        self,
        shape: ConvShape,
        output: str | Sum,
        pool: Pool,
        arch: tuple[int, int],
        multiprocessors: int,
        *,
        tile: Tile | Direct | None = None,
        early: bool = False,
    ) -> LaunchPlan:
        """The launch for a geometry; a call gives operands, output and rule. ``tile`` overrides a choice.

        With ``early`` what belongs to the filters may be read before earlier launches end.
        """
        check_taps(shape)
        if isinstance(output, Sum):
            tile = sums_of(shape, output, multiprocessors)
            assert tile is not None
        kind = KINDS_OF_OUTPUTS[output] if isinstance(output, str) else "int16"
        check_length(shape, kind)
        pixel = -(-shape.channels // 128) * _UNIT
        line = shape.filter_height * shape.filter_width * pixel
        pixels, filters = shape.outputs(pool)
        pitch, borders = -(-filters // COLUMNS) * COLUMNS, Borders.of(shape)
        of_x = map_of_windows(shape) if pool == "none" else None
        if tile is None and (of_x is None or pixel <= _LARGE_PIXEL):
            tile = direct_of(shape, kind, pool, tables_of(borders.rows(shape)), multiprocessors)
        if isinstance(tile, Direct):
            return plan_direct(tile, shape, pool, pitch, multiprocessors, early=early)
        tile = tile or fastest(
            TILES[kind], (pixels, filters), -(-line // SPAN), kind, multiprocessors, clocks
        )
        tile, tables = with_tables(tile, kind, borders.rows(shape))
        of_x = of_x and of_x(tile.rows)
        of_y = map_of_outputs(pixels, filters, kind) if kind != "lines" and tile.boxes else None
        macros = tile.macros(kind, boxes=of_y is not None, group=self.group)
        macros |= {f"POOL_{pool.upper()}": "", "TABLES": tables or 1}
        macros |= {} if tables else {"OWN_COLUMNS": ""}
        macros |= {"IM2COL": of_x.swizzle} if of_x else {}
        ptx = compile_file(self.source, macros, arch, options=OPTIONS).text
        args = (
            *(of_x, None, map_of_lines(filters, tile.columns, line), None, of_y),
            *(shape.argument, borders.argument, *(() if of_x else (first_chunks(shape),))),
            *(line, pitch),
            *((None, None) if kind == "lines" else ()),
        )
        tiles = -(-pixels // tile.rows) * -(-filters // tile.columns)
        return LaunchPlan(
            ptx,
            self.name,
            (min(tiles, multiprocessors), 1, 1),
            (tile.threads, 1, 1),
            args,
            shared_of(tile, kind, tables),
            dependent=True,
        )


def sums_of(shape: ConvShape, output: Sum, multiprocessors: int) -> Direct | None:
    """The launch that adds to another array, if patches are faster than copied windows."""
    pixel = -(-shape.channels // 128) * _UNIT
    if max(shape.filter_height, shape.filter_width) > MOST_TAPS:
        return None
    if pixel > _LARGE_PIXEL and map_of_windows(shape) is not None:
        return None
    tables = tables_of(Borders.of(shape).rows(shape))
    return direct_of(shape, output, "none", tables, multiprocessors)


def clocks(tile: Tile, count: int, steps: int, kind: str) -> float:
    """An estimate for a block that computes so many tiles."""
    return max(tile.clocks(count, steps, kind), count * _NOTES) + count * (tile.teams == 1) * _BETWEEN


def map_of_windows(shape: ConvShape) -> Callable[[int], TensorMap] | None:
    """Make the map whose copies have a piece of a tap of so many windows; None where threads gather them.

    The copy engine needs 2 clocks for each pixel, so that pieces of 16 bytes take longer than threads do.
    """
    pixel = -(-shape.channels // 128) * _UNIT
    piece = next((piece for piece in (128, 64, 32) if pixel % piece == 0), 0)
    lower = (-shape.pad_left, -shape.pad_top)
    upper = (
        (shape.out_width - 1) * shape.stride_w - shape.pad_left - (shape.width - 1),
        (shape.out_height - 1) * shape.stride_h - shape.pad_top - (shape.height - 1),
    )
    reach = max((shape.filter_width - 1) * shape.dilation_w, (shape.filter_height - 1) * shape.dilation_h)
    corners = min(*lower, *upper) >= -_MOST_CORNER and max(upper) < _MOST_CORNER
    if not piece or not corners or reach > _MOST_OFFSET or max(shape.stride_w, shape.stride_h) > _MOST_STRIDE:
        return None
    return lambda rows: TensorMap(
        "uint8",
        0,
        (pixel, shape.width, shape.height, shape.batch),
        (pixel, shape.width * pixel, shape.height * shape.width * pixel),
        (),
        (1, shape.stride_w, shape.stride_h, 1),
        swizzle=piece,
        im2col=Im2col(lower, upper, piece, rows),
    )


def first_chunks(shape: ConvShape) -> np.void:
    """The first chunks of k as an argument: piece of channels, column and row of the filter of each."""
    numbers, pieces = np.arange(SPAN // _UNIT + 1), -(-shape.channels // 128)
    row, column = np.divmod(numbers // pieces, shape.filter_width)
    return np.void(np.stack((numbers % pieces, column, row), 1).astype(np.uint32).tobytes())


def shared_of(tile: Tile, kind: str, tables: int) -> int:
    """The bytes of shared memory of a block; without tables rows have columns of their own."""
    return tile.shared(kind, tables=tables or 1, own_columns=not tables)


def tables_of(kinds: int) -> int:
    """The number of threshold tables of a kernel for ``kinds`` kinds of windows; 0 if too many."""
    return next((tables for tables in KINDS if kinds <= tables), 0)


def with_tables(tile: Tile, kind: str, kinds: int) -> tuple[Tile, int]:
    """The tile with a table for each kind of windows, in place of stages; 0 if they are too many."""
    tables = tables_of(kinds)
    for stages in range(tile.stages, LEAST_STAGES - 1, -1):
        fewer = replace(tile, stages=stages)
        if tables and shared_of(fewer, kind, tables) <= MOST_SHARED:
            return fewer, tables
    return tile, 0


def check_taps(shape: ConvShape) -> None:
    """Refuse filters with more taps than a lane can have as bits."""
    if max(shape.filter_height, shape.filter_width) > MOST_TAPS:
        raise SchemeError(
            f"scheme='wgmma': filters of {shape.filter_height} x {shape.filter_width}\n"
            f"at most {MOST_TAPS} x {MOST_TAPS} taps are possible\nchoose btc1"
        )


def check_length(shape: ConvShape, kind: str) -> None:
    """Refuse dot products that are too long for thresholds."""
    if kind == "lines" and shape.dot_length > LARGEST_BITS:
        raise SchemeError(
            f"scheme='wgmma': dot products of {shape.dot_length} elements, compared with thresholds\n"
            f"at most {LARGEST_BITS} can be compared\nchoose btc1"
        )


WARPGROUP_SCHEMES = {scheme.name: scheme for scheme in (WarpgroupScheme(),)}
"""The scheme of `gpu.bconv2d` for sm_90a, by its name."""
