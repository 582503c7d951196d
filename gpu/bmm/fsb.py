"""Bit matrices in layouts for bit tensor cores: tiles of 8 × 128 bits (FSB), or lines (BTC, section 5.1)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np

from gpu.bmm.packing import matrix, pack_on_device
from gpu.bmm.stacks import matrices
from gpu.compile import Ptx, compile_file
from gpu.device import Array, Device, LaunchPlan, launch
from gpu.host import choose_device, unknown
from reference.types import Layout, PackedBits
from reference.types.packed import FSB_TILE, words_shape
from reference.values import not_an_array, shortened

Order: TypeAlias = Literal["row", "column"]
Format: TypeAlias = Literal["fsb", "lines"]

TILE_LINES, TILE_BITS = FSB_TILE
_WORDS = TILE_BITS // 32
_LAYOUTS: dict[Order, Layout] = {"row": "column", "column": "row"}
"""BSTC's layout of words that run along rows or columns: words along rows are column-major."""


@not_an_array("pass words.download() of it, or gpu.bmm.unpack_fsb(x) for words along lines")
@shortened
@dataclass(frozen=True, eq=False)
class FsbBits:
    """A bit matrix in tiles of 8 lines × 128 bits, on a device. Bit 1 means +1 and bit 0 means -1.

    A line is a row of the matrix with ``order="row"``, a column with ``order="column"``. Tiles are
    ordered along the lines, then by groups of eight lines; a tile is stored line by line. Bit i of line l is

        words[l // 8, i // 128, l % 8, i % 128 // 32] >> (i % 32) & 1

    (the first in the least significant place). Lines and bits past the edge are 0.

    Attributes
    ----------
    words : (ceil(lines / 8), ceil(bits / 128), 8, 4) uint32
        On a device.
    ones : (lines,) uint32
        The number of 1 bits in each line; on a device.
    shape : tuple of int
        (rows, columns) of the matrix, without padding.
    order : "row" or "column"

    Source: BTC (TPDS), section 5.1 and figure 14.
    """

    words: Any
    ones: Any
    shape: tuple[int, int]
    order: Order = "row"


def pack_fsb(x: Any, *, order: Order = "row", device: Device | None = None) -> FsbBits:
    """Binarize a real matrix and pack it into FSB tiles, on a device.

    Parameters
    ----------
    x : (rows, columns) of float64, float32, float16, bfloat16 or int8
        On the host or on a device.
    order : "row" or "column"
        "row" for the left operand of a product, "column" for the right one.
    device : Device, optional
        Default: the operand's own, or the first CUDA device.

    Raises
    ------
    ShapeError, DtypeError, SchemeError, NoGpuError
    NotANumberError
        At the device's next synchronisation.

    Notes
    -----
    Source: BTC (TPDS), section 5.1 and figure 14.

    Examples
    --------
    >>> import simwarp
    >>> packed = pack_fsb(np.ones((9, 130)), device=simwarp.Device())
    >>> packed.words.shape, hex(packed.words.download()[1, 1, 0, 0]), packed.ones.download()[8]
    ((2, 2, 8, 4), '0x3', np.uint32(130))
    """
    if order not in _LAYOUTS:
        raise unknown("order", order, map(repr, _LAYOUTS))
    x = matrix(x, "x")
    device = choose_device(device, x)
    packed = pack_on_device(x, "x", _LAYOUTS[order], 32, "lsb", device)
    words, ones = arrange(packed, "x", "fsb", device)
    rows, columns = packed.shape
    return FsbBits(words, ones, (rows, columns), order)


def unpack_fsb(packed: FsbBits) -> PackedBits:
    """Unpack FSB tiles into words along their lines, on the device.

    Parameters
    ----------
    packed : FsbBits

    Returns
    -------
    PackedBits
        ``layout="column"`` for ``order="row"``, else "row"; ``word=32``, ``first="lsb"``.

    Notes
    -----
    Source: BTC (TPDS), section 5.1.

    Examples
    --------
    >>> import simwarp
    >>> tiles = pack_fsb([[1.0, -1.0, 1.0]], device=simwarp.Device())
    >>> unpack_fsb(tiles).words.download()
    array([[5]], dtype=uint32)
    """
    device: Device = packed.words.device
    lines, bits = packed.shape if packed.order == "row" else packed.shape[::-1]
    layout = _LAYOUTS[packed.order]
    words: Array = device.allocate(words_shape(layout, 32, packed.shape), np.uint32, "words")
    plan = partial(_plan, "restore", "fsb", lines, (None, None, lines, bits), device)
    launch(device, ("restore", lines, bits), plan, packed.words, words)
    return PackedBits(words, packed.shape, layout, 32, "lsb")


def arrange(packed: PackedBits, name: str, format: Format, device: Device) -> tuple[Array, Array]:
    """Rearrange 32-bit words for tensor cores, and count the ones of each line.

    FSB tiles are (ceil(lines / 8), ceil(bits / 128), 8, 4), lines (lines, ceil(bits / 128), 4), with zeros
    past the edge; a stack of matrices has one more axis in front.
    """
    stack, of_one = packed.shape[:-2], packed.shape[-2:]
    lines, bits = of_one if packed.layout == "column" else of_one[::-1]
    pieces, tiles = -(-bits // TILE_BITS), -(-lines // TILE_LINES)
    shape = (tiles, pieces, TILE_LINES, _WORDS) if format == "fsb" else (lines, pieces, _WORDS)
    words: Array = device.allocate((*stack, *shape), np.uint32, f"tiles of {name}")
    ones: Array = device.allocate((*stack, lines), np.uint32, f"ones of {name}")
    sizes = lines, tiles * TILE_LINES if format == "fsb" else lines, bits
    plan = partial(_plan, "arrange", format, lines, (None, None, None, *sizes), device)
    for each in matrices(stack, packed.words, words, ones):
        launch(device, ("arrange", format, lines, bits), plan, *each)
    return words, ones


def fsb_ptx(format: Format, arch: tuple[int, int]) -> Ptx:
    """The kernels that arrange packed words, and restore them from tiles; compiled."""
    return compile_file("bmm/fsb.cu", {f"FORMAT_{format.upper()}": "", "WORD_32": "", "FIRST_LSB": ""}, arch)


def _plan(name: str, format: Format, lines: int, args: tuple[Any, ...], device: Device) -> LaunchPlan:
    ptx = fsb_ptx(format, device.compute_capability).text
    return LaunchPlan(ptx, name, (-(-lines // 32), 1, 1), (256, 1, 1), args)
