"""The kernels that compute a whole network in one launch, and the choice between them by schemes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.bconv.geometry import ConvShape
from gpu.bmm.schemes import choose_scheme
from gpu.bnn.operations import KINDS, Constants, Lowering, Operation
from gpu.bnn.tiles import (
    UNIT,
    border_of,
    taps_of_pieces,
    taps_of_window,
    tiles_of_bits,
    words_of_bits,
    words_of_shorts,
)
from gpu.chips import chip_of
from gpu.device import Device
from gpu.host import unknown
from reference.errors import SchemeError
from reference.types.layers import Conv, Dense
from reference.types.network import Network
from reference.types.network_values import Value, follow

THREADS = 256
BLOCKS_AT_ONCE = 2
"""Threads of a block, and blocks of a multiprocessor, of the kernel on bit tensor cores, by default."""
RESIDENT = THREADS * BLOCKS_AT_ONCE
"""Threads of a multiprocessor: 65,536 registers leave 128 for each."""
MACROS: dict[str, str | int] = {"THREADS": THREADS, "BLOCKS_AT_ONCE": BLOCKS_AT_ONCE}
"""The macros of that kernel by default."""
BLOCK_SIZES = (32, 64, 128, 256, 512)
"""Threads that a block may have: a warp has 2 KiB of the 48 KiB of shared memory that every chip gives."""

KINDS_OF_LAYERS = (
    *KINDS,
    *("numbers_by_bytes", "products_of_tiles", "bmm32", "bmm64", "bmms32", "bmms64", "bconv32", "bconv64"),
)
"""The names of step.cuh and, behind them, of layer.cuh, in their order."""

_OF_ARENA = ("x", "addend", "numbers", "lines")
_OF_CONSTANTS = ("weights", "taps", "border", "border_rows", "border_columns", "affine", "rule")
PLACES = (*_OF_ARENA, *_OF_CONSTANTS)
"""Fields of a step that are places in memory."""
_FIELDS = [
    *((name, "<u4") for name in ("kind", "waits", "tasks", "first_block", *PLACES)),
    *((name, "<u4") for name in ("bytes_of_weights", "batch", "out_height", "out_width", "out_channels")),
    *((name, "<u4") for name in ("height", "width", "units", "pad_top", "pad_left", "stride_h", "stride_w")),
    *((name, "<u4") for name in ("pool", "tiles", "tiles_of_columns", "steps_of_k", "parts_of_k")),
    *((name, "<u4") for name in ("planes", "plane", "seen_height", "seen_width", "seen_channels")),
    *((name, "<u4") for name in ("before", "join", "window_h", "window_w", "step_h", "step_w")),
    *((name, "<u4") for name in ("above", "beside", "source")),
    *((name, kind) for name, kind in (("low", "<i4"), ("high", "<i4"), ("unit", "<f4"))),
]
_OF_LAYER = [(name, "<u4") for name in ("window_taps", "channels", "words", "columns")]

_ROWS_BY_WORDS = {"bmm32": 32, "bmm64": 64, "bmms32": 16, "bmms64": 16, "bconv32": 8, "bconv64": 8}
"""The rows of a warp's tile by scheme; whole_words.cu has them too."""
_ROWS_BY_BYTES = 8
_ROWS_BY_MMA = 16

FSB_LINES, FSB_BITS = 8, 128
"""Images and channels of a tile."""


class Form:
    """A kernel that computes a whole network: its source, its steps, its tiles, and its layout of bits.

    Attributes
    ----------
    source : str
        The name of the kernel, and of its file.
    threads, fewest : int
        Threads of a block by default, and the fewest.
    splits : bool
        Whether the warps of a block may share a tile's k.
    batch_unit : int
        The number of images to whose multiples memory is padded.
    lowering : type
        Makes the operations.
    """

    source = "whole"
    threads, fewest = THREADS, 64
    splits = True
    batch_unit = 1
    lowering: type[Lowering] = Lowering
    step = np.dtype(_FIELDS)
    """The kernel's structure: step.cuh, or layer.cuh."""

    def __init__(self, schemes: Mapping[str, str], device: Device) -> None:
        self.schemes, self.device = schemes, device

    def macros(self, threads: int, operations: list[Operation]) -> dict[str, str | int]:
        """The macros of the source, for blocks of so many threads."""
        return {"THREADS": threads, "BLOCKS_AT_ONCE": blocks_at_once(threads)}

    def lower(self, values: Mapping[str, Value], steps: Any) -> Lowering:
        """The operations of a network's steps."""
        return self.lowering(dict(values), steps, self.schemes)

    def tiles(self, operation: Operation, batch: int) -> int:
        """The number of tiles of products, of which a warp takes one at a time."""
        rows = _ROWS_BY_MMA
        return -(-batch * operation.count // rows) * operation.fields["tiles_of_columns"]

    def bits(self, memory: npt.NDArray[np.uint8], value: Value, batch: int) -> Any:
        """A value of bits in memory, in the format of `reference.bnn.values`."""
        pixels, channels = int(np.prod(value.shape[:-1])), value.shape[-1]
        wide = -(-channels // UNIT) * UNIT
        lines = memory[: batch * pixels * wide // 8].reshape(batch, *value.shape[:-1], wide // 8)
        return np.unpackbits(lines, axis=-1, bitorder="little")[..., :channels]


class _OnCudaCores(Lowering):
    """Products of integers by dot products of four bytes, which every chip has."""

    def of_numbers(
        self, signs: npt.NDArray[np.int8], shape: ConvShape
    ) -> tuple[str, dict[str, Any], Constants]:
        """The kind, the fields and the constants of products of integers."""
        weights, taps = words_of_shorts(signs, shape), taps_of_window(shape)
        fields = {"window_taps": len(taps), "columns": weights.shape[-1]}
        return "numbers_by_bytes", fields, {"weights": weights, "taps": taps}


class _WordsLowering(_OnCudaCores):
    """Products of bits by population counts, on words of 32 or 64 bits."""

    def of_bits(
        self, path: str, layer: Conv | Dense, bits: npt.NDArray[np.uint8], shape: ConvShape
    ) -> tuple[str, dict[str, Any], Constants]:
        """The kind, the fields and the constants of products of bits: the kind is the scheme."""
        kind = self.schemes.get(path, "bconv64" if isinstance(layer, Conv) else "bmms64")
        if isinstance(layer, Dense):
            kind = choose_scheme(kind, shape.channels).name
        word = 64 if kind.endswith("64") else 32
        weights, taps = words_of_bits(bits, word), taps_of_window(shape)
        fields = {
            "window_taps": len(taps),
            "channels": shape.channels,
            "units": -(-shape.channels // UNIT),
            "words": -(-shape.channels // word),
            "columns": weights.shape[-1],
        }
        if word == 64:
            fields["tiles_of_columns"] = -(-shape.filters // 64)
        return kind, fields, {"weights": weights, "taps": taps}


class OnWords(Form):
    """On CUDA cores, by words of 32 and 64 bits, with a warp as a block (BSTC, section 6)."""

    source = "whole_words"
    threads, fewest = 32, 32
    splits = False
    lowering = _WordsLowering
    step = np.dtype(_FIELDS + _OF_LAYER)

    def macros(self, threads: int, operations: list[Operation]) -> dict[str, str | int]:
        """The macros of the source, with the words that its layers are on."""
        kinds = {operation.kind for operation in operations} & _ROWS_BY_WORDS.keys()
        made = super().macros(threads, operations)
        for macro, word in (("NARROW", "32"), ("WIDE", "64")):
            if any(kind.endswith(word) for kind in kinds):
                made[macro] = ""
        return made

    def tiles(self, operation: Operation, batch: int) -> int:
        """The number of tiles: the rows of one depend on the scheme."""
        rows = _ROWS_BY_WORDS.get(operation.kind, _ROWS_BY_BYTES)
        return -(-batch * operation.count // rows) * operation.fields["tiles_of_columns"]


class _FsbLowering(_OnCudaCores):
    """Products of tiles of 8 × 128 bits."""

    unit = FSB_BITS
    common = False
    """Whether the chip's products count common bits, else different ones."""

    def of_bits(
        self, path: str, layer: Conv | Dense, bits: npt.NDArray[np.uint8], shape: ConvShape
    ) -> tuple[str, dict[str, Any], Constants]:
        """The kind, the fields and the constants of products of bits."""
        border = border_of(bits, shape)
        if not self.common:
            border["border"][..., : shape.filters] += 2 * bits.sum(axis=(0, 1, 2), dtype=np.int32)
        weights = tiles_of_bits(bits)
        fields = {
            "channels": shape.channels,
            "units": -(-shape.channels // UNIT),
            "words": -(-shape.channels // FSB_BITS),
            "steps_of_k": weights.shape[1],
        }
        return "products_of_tiles", fields, {"weights": weights, "taps": taps_of_pieces(shape), **border}

    def is_flat(self, given: Value) -> bool:
        """True if an image's bits lie as those of a vector do: only if it is one, or has one pixel."""
        return given.shape[:-1] in ((), (1, 1))


class _FsbLoweringOfCommonBits(_FsbLowering):
    common = True


class InTiles(Form):
    """On bit tensor cores, with FSB between layers (BTC, section 6.2)."""

    source = "whole_fsb"
    fewest = 32
    splits = False
    batch_unit = FSB_LINES
    lowering = _FsbLowering
    step = np.dtype(_FIELDS + _OF_LAYER)

    def __init__(self, schemes: Mapping[str, str], device: Device) -> None:
        super().__init__(schemes, device)
        chip = chip_of(device.compute_capability)
        self.lowering = _FsbLoweringOfCommonBits if chip.sm_90 else _FsbLowering
        self._row_tiles = 2 if chip.sm_80 else 1

    def tiles(self, operation: Operation, batch: int) -> int:
        """The number of tiles: those of products of bits have the images of groups, pixel by pixel."""
        columns = operation.fields["tiles_of_columns"]
        if operation.kind == "numbers_by_bytes":
            return -(-batch * operation.count // _ROWS_BY_BYTES) * columns
        row_tiles = operation.count * -(-batch // FSB_LINES)
        return -(-row_tiles // (4 if operation.fields["pool"] else self._row_tiles)) * columns

    def bits(self, memory: npt.NDArray[np.uint8], value: Value, batch: int) -> Any:
        """A value of bits in memory, in the format of `reference.bnn.values`."""
        pixels, channels = int(np.prod(value.shape[:-1])), value.shape[-1]
        groups, units = -(-batch // FSB_LINES), -(-channels // FSB_BITS)
        shape = pixels, groups, units, FSB_LINES, FSB_BITS // 8
        tiles = memory[: int(np.prod(shape))].reshape(shape).transpose(1, 3, 0, 2, 4)
        lines = np.ascontiguousarray(tiles).reshape(groups * FSB_LINES, *value.shape[:-1], -1)[:batch]
        return np.unpackbits(lines, axis=-1, bitorder="little")[..., :channels]


class _Family:
    """Schemes that one kernel has, by the type of a layer."""

    def __init__(self, form: type[Form], where: str, conv: tuple[str, ...], dense: tuple[str, ...]) -> None:
        self.form, self.where = form, where
        self.names = {"Conv": conv, "Dense": dense}


_FAMILIES = (
    _Family(OnWords, "on CUDA cores", ("bconv32", "bconv64"), ("bmm32", "bmm64", "bmms32", "bmms64")),
    _Family(InTiles, "in tiles of 8 x 128 bits", ("btc2",), ("btc3",)),
)


def form_of(network: Network, schemes: Mapping[str, str], device: Device) -> Form:
    """The kernel for a network: that of the schemes which the caller chose, or the chip's."""
    chosen: dict[str, str] = {}
    first: tuple[_Family, str] | None = None
    for path, layer, _ in follow(network):
        if not isinstance(layer, Conv | Dense):
            continue
        kind = type(layer).__name__
        name = schemes.get(path, schemes.get(kind, "auto"))
        if name == "auto":
            continue
        family = next((each for each in _FAMILIES if name in each.names[kind]), None)
        if family is None:
            known = [each for family in _FAMILIES for each in family.names[kind]]
            raise unknown(f'scheme of layer {path} with way="whole"', name, (*known, "auto"))
        first = first or (family, f"layer {path} has {name!r}")
        if family is not first[0]:
            raise SchemeError(
                f'layer {path} ({kind}): scheme={name!r} with way="whole", where {first[1]}\n'
                f"one kernel computes all layers: {first[0].where} or {family.where}\n"
                f"choose {', '.join((*first[0].names[kind], 'auto'))}"
            )
        chosen[path] = name
    if first is not None:
        return first[0].form(chosen, device)
    return (Form if chip_of(device.compute_capability).sm_80 else OnWords)(chosen, device)


def blocks_at_once(threads: int) -> int:
    """The blocks of so many threads that a multiprocessor has at once."""
    return RESIDENT // threads


@dataclass(frozen=True)
class Geometry:
    """Threads of a block, and the most blocks of the grid."""

    threads: int
    blocks: int


def geometry_of(form: Form, blocks: int | None, threads: int | None) -> Geometry:
    """Check the caller's numbers of blocks and threads, or take the kernel's."""
    device = form.device
    if threads is not None and (threads not in BLOCK_SIZES or threads < form.fewest):
        choice = [each for each in BLOCK_SIZES if each >= form.fewest]
        raise unknown("threads", threads, choice)
    of_block = threads or form.threads
    most = device.multiprocessors * blocks_at_once(of_block)
    if blocks is not None and (type(blocks) is not int or not 1 <= blocks <= most):
        raise SchemeError(
            f"blocks={blocks!r} of {of_block} threads: blocks wait for one another, so all must be resident\n"
            f"{device.name} has {device.multiprocessors} multiprocessors, "
            f"each with {blocks_at_once(of_block)} such blocks at once\ngive 1 to {most}"
        )
    return Geometry(of_block, blocks or most)
