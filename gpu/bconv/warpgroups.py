"""The scheme of the ±1 convolution for the warpgroups of Hopper: its operands, maps and launch.

It is an implicit matrix product: rows are pixels of the output, columns filters, and k runs over the taps of
a window and their channels. Operands are those of `gpu.bconv.btc`, with the ones of each pixel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from gpu.bconv.btc import Borders, addends_of, ones_of, whole_units
from gpu.bconv.geometry import ConvShape, Pool
from gpu.bmm.lines import pack_lines
from gpu.bmm.warpgroups import LARGEST_BITS, MOST_SHARED, OPTIONS, SPAN, Tile, fastest, map_of_outputs
from gpu.bmm.warpgroups import TILES as OF_PRODUCTS
from gpu.compile import compile_file
from gpu.device import Array, Device, LaunchPlan
from gpu.host import to_device
from reference.errors import SchemeError
from reference.types import PackedTensor, TensorLayout, Word
from reference.types.tensor_map import Im2col, TensorMap

TILES: dict[str, tuple[Tile, ...]] = {
    "int32": OF_PRODUCTS["int32"],
    "lines": (Tile(128, 256, 2, 4), Tile(128, 128, 2, 6), Tile(128, 64, 2, 6), Tile(64, 128, 1, 6)),
}
"""The tiles of each kind of output."""

MOST_COLUMNS = 256
"""Columns of the widest tile, to whose multiples rows of addends are padded."""

LEAST_STAGES = 3
"""Of a ring that keeps tensor cores busy; tables of addends may take the place of others."""

_CORNER, _MOST_STEP, _MOST_OFFSET = 128, 8, 255
"""Of an im2col map of images: corners lie within ±128; the steps of windows; the offset of a tap."""


@dataclass(frozen=True)
class WarpgroupScheme:
    """The convolution on the tensor cores of sm_90a, which warpgroups feed from shared memory.

    Attributes
    ----------
    name : str
        The name of the kernel: that of the instruction.
    group : int
        Tiles that follow one another down the pixels before the next tiles of filters.
    """

    name: str = "wgmma"
    group: int = 4
    summary: str = "a warpgroup for 64 pixels of a tile; taps of windows through tensor maps"

    source: ClassVar = "bconv/wgmma.cu"
    word: ClassVar[Word] = 32
    images: ClassVar[tuple[TensorLayout, ...]] = ("NHWC",)
    filters: ClassVar[tuple[TensorLayout, ...]] = ("HWOI",)

    def arranged(self, packed: PackedTensor, device: Device) -> Array:
        """Rearrange packed images or filters into units of 128 channels."""
        return whole_units(packed.words, device)

    def ones(self, images: Array, device: Device) -> Array:
        """The ones of each pixel of arranged images."""
        return ones_of(images, int(np.prod(images.shape[:3], dtype=np.int64)), device)

    def packed_images(self, x: Any, device: Device) -> tuple[tuple[int, int, int, int], Array, Array]:
        """Pack checked real images; returns their shape, arranged words and ones of each pixel."""
        source: Any = to_device(x, "x", device)
        n, h, w, c = source.shape
        _, words, ones = pack_lines(source.view((n * h * w, c)), "x", 0, device)
        return (n, h, w, c), words.view((n, h, w, -(-c // 128) * 4)), ones

    def operands(self, images: Any, filters: Any, shape: ConvShape, device: Device) -> tuple[Array, ...]:
        """The kernel's operands; ``shape`` has a batch of 1."""
        return images.words, images.ones, filters.words, filters.addends(shape, device)

    def addends(self, filters: Array, shape: ConvShape, device: Device) -> Array:
        """The addends of arranged filters, of windows along the border relative to those inside."""
        return addends_of(filters, shape, device, lines_of_tile=1, columns=MOST_COLUMNS, relative=True)

    def plan(
        self,
        shape: ConvShape,
        output: str,
        pool: Pool,
        arch: tuple[int, int],
        multiprocessors: int,
        *,
        tile: Tile | None = None,
    ) -> LaunchPlan:
        """The launch for a geometry; a call gives operands, output and rule. ``tile`` overrides a choice."""
        kind = "int32" if output == "int" else "lines"
        check_limits(shape, kind, pool)
        bytes_of_pixel = -(-shape.channels // 128) * 16
        span = span_of(bytes_of_pixel)
        steps = -(-shape.filter_height * shape.filter_width * -(-bytes_of_pixel // span) * span // SPAN)
        pixels, filters = shape.outputs(pool)
        borders = Borders.of(shape)
        tile = tile or fastest(TILES[kind], (pixels, filters), steps, kind, multiprocessors)
        meeting = 0 if pool == "none" else 2 * tile.rows * tile.columns // 8
        tile, tables = with_tables(tile, kind, borders.rows(shape), meeting)
        of_y = map_of_outputs(pixels, filters, kind) if kind == "int32" and tile.boxes else None
        macros = tile.macros(kind, boxes=of_y is not None, group=self.group)
        macros |= {"SPAN": span, f"POOL_{pool.upper()}": "", "TABLES": tables or 1}
        macros |= {} if tables else {"OWN_COLUMNS": ""}
        ptx = compile_file(self.source, macros, arch, options=OPTIONS).text
        args = (
            *(map_of_images(shape, pool, span, tile.rows), None),
            *(map_of_filters(shape, span, tile.columns), None, of_y),
            *(shape.argument, borders.argument, -(-filters // MOST_COLUMNS) * MOST_COLUMNS),
            *((None, None) if kind == "lines" else ()),
        )
        tiles = -(-pixels // tile.rows) * -(-filters // tile.columns)
        shared = tile.shared(kind, tables=tables or 1, own_columns=not tables) + meeting
        return LaunchPlan(
            ptx, self.name, (min(tiles, multiprocessors), 1, 1), (tile.threads, 1, 1), args, shared
        )


def with_tables(tile: Tile, kind: str, kinds: int, meeting: int) -> tuple[Tile, int]:
    """The tile with a table for each kind of windows, in place of stages; 0 if they are too many."""
    for stages in range(tile.stages, LEAST_STAGES - 1, -1):
        fewer = replace(tile, stages=stages)
        if fewer.shared(kind, tables=kinds) + meeting <= MOST_SHARED:
            return fewer, kinds
    return tile, 0


def span_of(bytes_of_pixel: int) -> int:
    """The bytes of a pixel that one copy brings: a span of a swizzle, or a unit."""
    return next((span for span in (16, 32, 64) if bytes_of_pixel <= span), SPAN)


def windows_of(shape: ConvShape, pool: Pool) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """How tiles visit windows down and across: (corner of the first, that of the last, step).

    With pooling only the first of each two windows is visited; offsets lead to the others.
    """
    every = 1 if pool == "none" else 2

    def along(size: int, pad: int, stride: int, outputs: int) -> tuple[int, int, int]:
        count = outputs // every
        step = stride * every if count > 1 else 1
        return -pad, (count - 1) * step - pad - (size - 1), step

    return (
        along(shape.height, shape.pad_top, shape.stride_h, shape.out_height),
        along(shape.width, shape.pad_left, shape.stride_w, shape.out_width),
    )


def map_of_images(shape: ConvShape, pool: Pool, span: int, rows: int) -> TensorMap:
    """The map of images, whose boxes are a tap of as many windows; without its address."""
    (top, bottom, step_h), (left, right, step_w) = windows_of(shape, pool)
    pitch = -(-shape.channels // 128) * 16
    box = Im2col((left, top), (right, bottom), span, rows if pool == "none" else rows // 4)
    sizes = (pitch, shape.width, shape.height, shape.batch)
    strides = (pitch, shape.width * pitch, shape.height * shape.width * pitch)
    return TensorMap(
        "uint8", 0, sizes, strides, (), (1, step_w, step_h, 1), swizzle=span if span > 16 else 0, im2col=box
    )


def map_of_filters(shape: ConvShape, span: int, columns: int) -> TensorMap:
    """The map of filters, whose boxes are a tap of as many filters; without its address."""
    pitch, taps = -(-shape.channels // 128) * 16, shape.filter_height * shape.filter_width
    sizes, strides = (pitch, shape.filters, taps), (pitch, shape.filters * pitch)
    return TensorMap(
        "uint8", 0, sizes, strides, (span, columns, 1), (1, 1, 1), swizzle=span if span > 16 else 0
    )


def check_limits(shape: ConvShape, kind: str, pool: Pool) -> None:
    """Refuse a geometry that an im2col map cannot describe, and dot products too long for thresholds."""
    down, across = windows_of(shape, pool)
    for axis, (first, last, step), taps, dilation, stride in (
        ("rows", down, shape.filter_height, shape.dilation_h, shape.stride_h),
        ("columns", across, shape.filter_width, shape.dilation_w, shape.stride_w),
    ):
        farthest = (taps - 1) * dilation + (stride if pool != "none" else 0)
        for what, given, low, high in (
            ("the first window begins at {} of", first, -_CORNER, _CORNER - 1),
            ("the last window begins {} from the end of", last, -_CORNER, _CORNER - 1),
            ("windows, or pairs of pooled ones, are {} apart along", step, 1, _MOST_STEP),
            ("taps, or those of a pooled window, reach over {}", farthest, 0, _MOST_OFFSET),
        ):
            if not low <= given <= high:
                raise SchemeError(
                    f"scheme='wgmma': {what.format(given)} {axis}\n"
                    f"an im2col tensor map can have {low} to {high}\nchoose btc1"
                )
    if kind == "lines" and shape.dot_length > LARGEST_BITS:
        raise SchemeError(
            f"scheme='wgmma': dot products of {shape.dot_length} elements, compared with thresholds\n"
            f"at most {LARGEST_BITS} can be compared\nchoose btc1"
        )


WARPGROUP_SCHEMES = {scheme.name: scheme for scheme in (WarpgroupScheme(),)}
"""The scheme of `gpu.bconv2d` for sm_90a, by its name."""
