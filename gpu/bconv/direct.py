"""The convolution for the warpgroups of Hopper from patches of images: its tiles, and the plan of its launch.

A tile is a box of outputs in some images, and its patch what their windows cover. All filters of a tile's
columns stay in shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np

from gpu.bconv.btc import Borders, is_paired
from gpu.bconv.geometry import ConvShape, Pool
from gpu.bmm.warpgroups import BITS, MOST_SHARED, OPTIONS, SPAN, Tile, map_of_lines
from gpu.compile import compile_file
from gpu.device import LaunchPlan
from reference.devices.tensor_map import TensorMap

ROWS, COLUMNS, TEAMS = 64, (128, 64), 4
"""Outputs of a tile, filters of a block, and its warpgroups, if it has tiles for them."""

MOST_PIXEL, PAIRED = 128, 8
"""Bytes of a pixel, and of one that shares 16 bytes with its neighbour."""

_MOST_STEPS = 16
_MOST_BOX = 256
_ATOM, _UNIT, _SIGNAL = 1024, 16, 8
_BOXES = 2, 1

_LINES = 16
"""Outputs in a box of a warp."""

_PRODUCT, _COPY = {128: 116, 64: 97}, 2
"""Clocks on an H200 of a product of 64 outputs by so many filters, and of a pixel of a patch. Two that share
16 bytes count as one: no more, as a line of them is copied as a whole; how much less is not measured."""


@dataclass(frozen=True)
class Sum:
    """The output of dot products plus another array, both int16.

    Attributes
    ----------
    channels : int
        Of the other array; others are zeros.
    before : int
        The filter whose outputs its first channel is added to.
    bits : bool
        Whether there are bits of the sums, too.
    pooled : bool
        Whether of the sums the largest of 2 x 2 pixels are stored.
    """

    channels: int
    before: int = 0
    bits: bool = False
    pooled: bool = False

    @property
    def macros(self) -> dict[str, str]:
        """The macros that the kernel is compiled with to add a residual to its sums."""
        has = {"ADDED": True, "ADDED_BITS": self.bits, "POOL_MAX": self.pooled}
        return {name: "" for name, given in has.items() if given}

    @property
    def pool(self) -> str:
        """The pooling that the kernel does, "max" or "none"."""
        return "max" if self.pooled else "none"


Kind: TypeAlias = str | Sum
"""A dtype, "lines" for bits, or a sum."""


@dataclass(frozen=True)
class Patch:
    """The outputs of a tile, and the pixels of the images that they need.

    Attributes
    ----------
    images, down, across : int
        Of the outputs.
    height, width : int
        Of the pixels in each image; of paired ones an even number across, so that copies may begin at a pair.
    tiles_down, tiles_across, tiles : int
        How many tiles there are.
    """

    images: int
    down: int
    across: int
    height: int
    width: int
    tiles_down: int
    tiles_across: int
    tiles: int

    @classmethod
    def of(cls, shape: ConvShape, pool: str, images: int, down: int, across: int) -> Patch:
        """The patch of so many outputs of a geometry."""
        reach_h = (shape.filter_height - 1) * shape.dilation_h
        reach_w = (shape.filter_width - 1) * shape.dilation_w
        side = 1 if pool == "none" else 2
        width = (across - 1) * shape.stride_w + reach_w + 1
        if pixel_of(shape) == PAIRED:
            skips = shape.pad_left % 2 or across * shape.stride_w % 2
            width = (width + skips + 1) // 2 * 2
        tiles_down = -(-(shape.out_height // side * side) // down)
        tiles_across = -(-(shape.out_width // side * side) // across)
        return cls(
            *(images, down, across),
            *((down - 1) * shape.stride_h + reach_h + 1, width),
            *(tiles_down, tiles_across, tiles_down * tiles_across * -(-shape.batch // images)),
        )

    @property
    def pixels(self) -> int:
        """The number of pixels of a patch over all of its images."""
        return self.images * self.height * self.width

    def of_block(self, filters: int, columns: int, multiprocessors: int) -> int:
        """The most tiles of a block, of as many columns of filters."""
        return -(-self.tiles // max(1, multiprocessors // -(-filters // columns)))

    def bytes(self, pixel: int) -> int:
        """Bytes in shared memory, whole atoms of the swizzle."""
        return -(-self.pixels * pixel // _ATOM) * _ATOM

    def argument(self, pixel: int, before: int) -> np.void:
        """The patch as the kernel's struct of uint32 sizes."""
        sizes = self.images, self.down, self.across, self.height, self.width, self.bytes(pixel)
        tiles = self.tiles_down, self.tiles_across, self.tiles
        return np.void(np.array((*sizes, *tiles, before), np.uint32).tobytes())


@dataclass(frozen=True)
class Direct:
    """A launch: its patch, its tile, its output, and how many patches and tables are in shared memory."""

    patch: Patch
    tile: Tile
    kind: Kind
    patches: int
    tables: int
    shared: int

    def clocks(self, shape: ConvShape, multiprocessors: int) -> tuple[float, int]:
        """The estimated clocks of a multiprocessor, and the pixels of all patches, which decide a tie."""
        count = self.patch.of_block(shape.filters, self.tile.columns, multiprocessors)
        copied = self.patch.pixels * min(pixel_of(shape), _UNIT) / _UNIT
        clocks = max(-(-line_of(shape) // 32) * _PRODUCT[self.tile.columns], _COPY * copied)
        return count * clocks, self.patch.tiles * self.patch.pixels


def pixel_of(shape: ConvShape) -> int:
    """The bytes of a pixel in a patch: whole units, or half a one where two share it."""
    return PAIRED if is_paired(shape.channels, shape.width) else -(-shape.channels // 128) * _UNIT


def line_of(shape: ConvShape) -> int:
    """The bytes of one filter, rounded up to whole units."""
    return -(-shape.filter_height * shape.filter_width * pixel_of(shape) // _UNIT) * _UNIT


def direct_of(shape: ConvShape, kind: Kind, pool: Pool, tables: int, multiprocessors: int) -> Direct | None:
    """The best launch, or None if the pixels, the filters or the patches are too large."""
    if pixel_of(shape) > MOST_PIXEL or line_of(shape) > _MOST_STEPS * SPAN or not tables:
        return None
    found = [
        made
        for columns in COLUMNS
        for patch in _patches(shape, kind.pool if isinstance(kind, Sum) else pool)
        if (made := _fitting(patch, columns, shape, kind, tables, multiprocessors)) is not None
    ]
    return min(found, key=lambda each: each.clocks(shape, multiprocessors), default=None)


def plan_direct(
    made: Direct, shape: ConvShape, pool: Pool, pitch: int, multiprocessors: int, *, early: bool = False
) -> Any:
    """The launch; a call gives images, filters, addends, output, and thresholds and flips with bits.

    What sums are of comes after the output, and their bits, if there are any, before thresholds.
    """
    patch, tile, kind, pixel, line = made.patch, made.tile, made.kind, pixel_of(shape), line_of(shape)
    added = kind if isinstance(kind, Sum) else None
    name = "int16" if isinstance(kind, Sum) else kind
    macros = tile.macros(name, boxes=bool(tile.boxes), group=1)
    macros |= added.macros if added else {f"POOL_{pool.upper()}": ""}
    macros |= {"EARLY": ""} if early else {}
    macros |= {"TABLES": made.tables, "PIXEL": pixel, "PATCHES": made.patches}
    del macros["STAGES"]
    ptx = compile_file("bconv/direct.cu", macros, (9, 0), options=OPTIONS).text
    has_map = tile.boxes and not (added and added.pooled)
    args = (
        *(_map_of_images(shape, patch, pixel), map_of_lines(shape.filters, tile.columns, line), None),
        _map_of_outputs(shape, patch, name) if has_map else None,
        *((_map_of_outputs(shape, patch, name, added),) if added else ()),
        *(shape.argument, Borders.of(shape).argument),
        *(patch.argument(pixel, added.before if added else 0), line, pitch),
        *((None,) if added and added.bits else ()),
        *((None, None) if (added.bits if added else name in BITS) else ()),
    )
    across = -(-shape.filters // tile.columns)
    blocks = across * min(patch.tiles, max(1, multiprocessors // across))
    return LaunchPlan(ptx, "direct", (blocks, 1, 1), (tile.threads, 1, 1), args, made.shared, dependent=True)


def _patches(shape: ConvShape, pool: str) -> list[Patch]:
    """The patches of input pixels, one for each size of output box that a warp may have."""
    least = 1 if pool == "none" else 2
    sides = [2**i for i in range(7)]
    patches = [
        Patch.of(shape, pool, ROWS // (down * across), down, across)
        for down in sides
        for across in sides
        if down * across <= ROWS and min(down, across) >= least
    ]
    return [patch for patch in patches if max(patch.height, patch.width) <= _MOST_BOX]


def _fitting(
    patch: Patch,
    columns: int,
    shape: ConvShape,
    kind: Kind,
    tables: int,
    multiprocessors: int,
) -> Direct | None:
    """A launch with as many patches and boxes as fit shared memory."""
    count = patch.of_block(shape.filters, columns, multiprocessors)
    teams = next(teams for teams in (TEAMS, 2, 1) if count >= teams)
    pixel, line = pixel_of(shape), line_of(shape)
    for boxes in _boxes(kind, shape.filters, columns):
        tile = Tile(ROWS, columns, teams, 1, boxes, teams)
        room = _UNIT + teams * _note(tile, kind, tables) + (_MOST_STEPS + 4 * teams + 1) * _SIGNAL
        rest = MOST_SHARED - -(-line // SPAN) * columns * SPAN - tile.boxes_of_warps - room
        patches = min(2 * teams, rest // (patch.bytes(pixel) + 2 * _SIGNAL))
        if patches >= teams:
            shared = MOST_SHARED - rest + patches * (patch.bytes(pixel) + 2 * _SIGNAL)
            return Direct(patch, tile, kind, patches, tables, shared)
    return None


def _boxes(kind: Kind, filters: int, columns: int) -> tuple[int, ...]:
    """The numbers of boxes that a warp may have; residual sums need a box for each of its outputs."""
    if isinstance(kind, Sum):
        whole = (
            filters % 8 == kind.channels % 8 == kind.before % 8 == 0
        )  # lines and places in them, for the copies
        return (columns * 2 // SPAN,) if whole else ()
    return _BOXES if kind not in BITS and filters * np.dtype(kind).itemsize % 16 == 0 else (0,)


def _note(tile: Tile, kind: Kind, tables: int) -> int:
    """The bytes of a note; a sum's bits need thresholds and flips."""
    if not isinstance(kind, Sum):
        return tile.note(kind, tables=tables)
    return tile.note("int16", tables=tables) + 4 * (tile.columns + tile.columns // 32) * kind.bits


def _map_of_images(shape: ConvShape, patch: Patch, pixel: int) -> TensorMap:
    """The map whose boxes are patches; those of paired pixels have whole lines of them as rows."""
    if pixel == PAIRED:
        sizes, box = (shape.width, shape.height, shape.batch, 1), (patch.width, patch.height, patch.images, 1)
        strides = tuple(prod(sizes[: i + 1]) * PAIRED for i in range(3))
        return TensorMap("uint64", 0, sizes, strides, box, (1,) * 4)
    sizes = pixel, shape.width, shape.height, shape.batch
    strides = pixel, shape.width * pixel, shape.height * shape.width * pixel
    box = pixel, patch.width, patch.height, patch.images
    swizzle = pixel if pixel in (32, 64, 128) else 0
    return TensorMap("uint8", 0, sizes, strides, box, (1,) * 4, swizzle=swizzle)


def _map_of_outputs(shape: ConvShape, patch: Patch, kind: str, added: Sum | None = None) -> TensorMap:
    """The map whose boxes are 16 outputs of a warp, `SPAN` bytes of each; or what is added to them."""
    size, sides = np.dtype(kind).itemsize, 2 if added and added.pooled else 1
    sizes = added.channels if added else shape.filters, shape.out_width, shape.out_height, shape.batch
    strides = tuple(prod(sizes[: i + 1]) * size for i in range(3))
    across = min(_LINES // sides, patch.across)
    down = min(_LINES // across, patch.down)
    box = SPAN // size, across, down, _LINES // (across * down)
    data_type = "uint16" if kind == "int16" else kind
    return TensorMap(data_type, 0, sizes, strides, box, (1,) * 4, swizzle=SPAN)
