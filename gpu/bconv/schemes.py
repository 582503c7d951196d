"""The schemes of the ±1 convolution, and the choice between them (BSTC, section 5.2; BTC, section 5.3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from gpu.bconv import btc
from gpu.bconv.geometry import ConvShape, Pool, conv_shape
from gpu.bconv.warpgroups import MOST_TAPS, WARPGROUP_SCHEMES, WarpgroupScheme
from gpu.bmm.warpgroups import LARGEST_BITS
from gpu.compile import Ptx, compile_file
from gpu.device import Array, Device, Dim, LaunchPlan
from gpu.host import for_chip
from reference.types import PackedTensor, TensorLayout, Word
from reference.values import shortened

Defines: TypeAlias = dict[str, str | int]

WARPS_PER_BLOCK = 4

ENOUGH_WARPS = 1024
"""The number of warps that keep a large chip busy."""

FSB_LINES = 8
"""Images or filters of an FSB tile."""


@dataclass(frozen=True)
class Scheme:
    """A way to share the convolution among warps on CUDA cores.

    The kernel has the scheme's name. Its arguments are images and filters, their addends and `btc.Borders` if
    it needs any, the output, the `ConvShape` by value and, if the output is bits, thresholds and flips.

    Attributes
    ----------
    name : str
        The papers' name, also of the kernel.
    word : int
        Bits per packed word of the operands.
    images, filters : tuple of str
        Possible layouts of packed operands; real arrays are packed in the first one.
    lines_of_tile : int
        Filters of a tile, for the addends of `gpu.bconv.btc`; 0 if the kernel needs no addends.
    """

    name: str
    word: Word
    summary: str
    images: tuple[TensorLayout, ...] = ("NHWC",)
    filters: tuple[TensorLayout, ...] = ("HWOI",)
    lines_of_tile: int = 0

    source: ClassVar = "bconv/bstc.cu"
    """The file of the kernel, in ``gpu/``."""

    def arranged(self, packed: PackedTensor, device: Device) -> Array:
        """Rearrange packed images or filters on the device for the kernel."""
        return packed.words

    def addends(self, filters: Array, shape: ConvShape, device: Device) -> Array:
        """The addends of rearranged filters; see `gpu.bconv.btc.addends_of`."""
        return btc.addends_of(filters, shape, device, lines_of_tile=self.lines_of_tile)

    def operands(
        self, images: Any, filters: Any, shape: ConvShape, device: Device, kernel: str
    ) -> tuple[Array, ...]:
        """The kernel's arrays: words of images, words of filters and, for some schemes, addends."""
        addends = (filters.addends(shape, device),) if self.lines_of_tile else ()
        return images.words, filters.words, *addends

    def plan(
        self, shape: ConvShape, output: str, pool: Pool, arch: tuple[int, int], multiprocessors: int
    ) -> LaunchPlan:
        """The launch for a geometry; a call gives operands, output and rule."""
        ptx = convolution_ptx(self, shape, output, pool, arch).text
        beside = (None, btc.Borders.of(shape).argument) if self.lines_of_tile else ()
        rule = (None, None) if output == "bits" else ()
        args = (None, None, *beside, None, shape.argument, *rule)
        return LaunchPlan(ptx, self.name, *self.launch(shape, pool), args)

    def defines(self, shape: ConvShape) -> Defines:
        """The macros of the source; a lane loads up to 16 bytes of aligned channels at once."""
        words = -(-shape.channels // self.word)
        chunk = min(128 // self.word, 1 << (words - 1).bit_length())
        aligned: Defines = {"ALIGNED": ""} if words % chunk == 0 else {}
        rows, channels = self._tile(shape)
        tile: Defines = {"ROWS": rows, "CHANNELS": channels, "CHUNK": chunk}
        return {"SCHEME": self.name, f"WORD_{self.word}": "", **tile, **aligned}

    def launch(self, shape: ConvShape, pool: Pool) -> tuple[Dim, Dim]:
        """Grid and block: a warp for each tile of pixels and channels."""
        tiles = math.prod(-(-n // m) for n, m in zip(shape.outputs(pool), self._tile(shape), strict=True))
        return (-(-tiles // WARPS_PER_BLOCK), 1, 1), (WARPS_PER_BLOCK * 32, 1, 1)

    def _tile(self, shape: ConvShape) -> tuple[int, int]:
        """Pixels and channels of a warp's tile; with little work, more and smaller tiles are faster."""
        channels = 64 if shape.filters > 32 else 32
        for rows in (1024 // channels, 16):
            if -(-shape.pixels // rows) * -(-shape.filters // channels) >= ENOUGH_WARPS:
                return rows, channels
        return 8, channels


class TensorCoreScheme(Scheme):
    """A way to share the convolution among the warps that feed bit tensor cores."""

    source: ClassVar = "bconv/btc.cu"

    def arranged(self, packed: PackedTensor, device: Device) -> Array:
        """Rearrange packed images or filters into units of 128 channels, or into FSB tiles."""
        packed = btc.to_fsb(packed, device) if self.lines_of_tile == FSB_LINES else packed
        return btc.whole_units(packed.words, device)

    def defines(self, shape: ConvShape) -> Defines:
        """The macros that the kernel's source is compiled with for this geometry."""
        fsb: Defines = {"FSB": ""} if self.lines_of_tile == FSB_LINES else {}
        return {"SCHEME": self.name, **fsb, "TILE": btc.tile_of(shape)}

    def launch(self, shape: ConvShape, pool: Pool) -> tuple[Dim, Dim]:
        """Grid and block: a block for each tile of pixels and channels."""
        tile = btc.tile_of(shape)
        return (btc.blocks(shape.outputs(pool), tile), 1, 1), (2 * tile, 1, 1)


_COUNTS = "a warp for each tile of pixels and channels, population counts of"

SCHEMES = {
    scheme.name: scheme
    for scheme in (
        Scheme("bconv32", 32, f"{_COUNTS} 32-bit words"),
        Scheme("bconv64", 64, f"{_COUNTS} 64-bit words"),
        TensorCoreScheme("btc1", 32, "bit tensor cores on words in their ordinary order", lines_of_tile=1),
        TensorCoreScheme(
            "btc2",
            32,
            "bit tensor cores on tiles of 8 x 128 bits (FSB)",
            ("NHWC", "HWNC-FSB"),
            ("HWOI", "HWOI-FSB"),
            lines_of_tile=FSB_LINES,
        ),
    )
}
"""The schemes of `gpu.bconv2d` for CUDA cores, and for bit tensor cores from sm_75 on."""

AnyScheme: TypeAlias = Scheme | WarpgroupScheme

EVERY_SCHEME: dict[str, AnyScheme] = SCHEMES | WARPGROUP_SCHEMES
"""The schemes of `gpu.bconv2d`, by name."""

PREFERRED: dict[tuple[int, int], tuple[str, ...]] = {
    (0, 0): ("bconv64", "bconv32"),
    (7, 5): ("btc1", "bconv32"),
    (9, 0): ("wgmma", "btc1"),
    (10, 0): ("bconv64", "bconv32"),  # these chips emulate the bit tensor cores
}
"""Chip → the schemes for it and the chips up to the next one, the fastest first."""


@shortened
@dataclass(frozen=True)
class Plan:
    """The scheme that ``scheme="auto"`` chooses.

    Attributes
    ----------
    scheme : Scheme or WarpgroupScheme
    reason : str
        The reason of the choice, as a clause.
    """

    scheme: AnyScheme
    reason: str


def plan(
    x: tuple[int, ...],
    w: tuple[int, ...],
    *,
    stride: Any = 1,
    padding: Any = "SAME",
    dilation: Any = 1,
    groups: int = 1,
    layouts: tuple[str, str] = ("NHWC", "HWOI"),
    word: Word = 32,
    compute_capability: tuple[int, int] = (9, 0),
    bits: bool = False,
) -> Plan:
    """Choose a scheme for a convolution, as ``scheme="auto"`` does, and give the reason.

    Parameters
    ----------
    x : (N, H, W, C)
        The shape of the images.
    w : (R, S, C, O)
        The shape of the filters.
    stride, padding, dilation, groups
        As of `gpu.bconv2d`.
    layouts : (str, str)
        Layouts of packed images and filters; real ones are packed in the scheme's.
    word : 32 or 64
        Bits per word of packed operands.
    compute_capability : (int, int)
        The device's.
    bits : bool
        Whether the output is bits, by thresholds.

    Raises
    ------
    ShapeError, SchemeError

    Examples
    --------
    >>> found = plan((16, 64, 64, 128), (3, 3, 128, 128))
    >>> found.scheme.name, found.reason
    ('wgmma', 'sm_90 has warpgroups')
    >>> found = plan((16, 64, 64, 128), (3, 3, 128, 128), compute_capability=(8, 0))
    >>> found.scheme.name, found.reason
    ('btc1', 'sm_80 has bit tensor cores, and C = 128 fills their 128 bits by 100 %')
    """
    shape = conv_shape(x, w, stride=stride, padding=padding, dilation=dilation, groups=groups)
    return plan_shape(shape, layouts, word, compute_capability, bits=bits)


def plan_shape(
    shape: ConvShape,
    layouts: Sequence[str],
    word: Word,
    compute_capability: tuple[int, int],
    *,
    bits: bool = False,
) -> Plan:
    """Choose a scheme for a checked geometry; see `plan`."""
    if any(layout.endswith("FSB") for layout in layouts):
        return Plan(SCHEMES["btc2"], "an operand is packed in tiles of 8 x 128 bits, which only btc2 takes")
    if word == 64:
        return Plan(SCHEMES["bconv64"], "an operand is packed in words of 64 bits, which only bconv64 takes")
    reasons = (
        (name, _reason(name, shape, compute_capability, bits=bits))
        for name in for_chip(PREFERRED, compute_capability)
    )
    return next(Plan(EVERY_SCHEME[name], reason) for name, reason in reasons if reason)


def _reason(name: str, shape: ConvShape, capability: tuple[int, int], *, bits: bool) -> str:
    """The reason why a preferred scheme is for a geometry, or ""; the last of a chip is for every one."""
    chip = f"sm_{capability[0]}{capability[1]}"
    filled = 100 * shape.channels // (128 * -(-shape.channels // 128))
    if name == "wgmma":
        fits = max(shape.filter_height, shape.filter_width) <= MOST_TAPS
        return "" if not fits or (bits and shape.dot_length > LARGEST_BITS) else f"{chip} has warpgroups"
    if name == "btc1":
        has = f"{chip} has bit tensor cores, and C = {shape.channels} fills their 128 bits by {filled} %"
        return has if filled > 25 or capability >= (9, 0) else ""  # sm_90 has wgmma for few channels
    if (7, 5) <= capability < (10, 0):
        return f"C = {shape.channels} would fill the 128 bits of a bit tensor core by {filled} %"
    enough = name == "bconv32" or (shape.channels > 32 and shape.filters > 32)
    return f"{chip} {'has no' if capability < (7, 5) else 'emulates'} bit tensor cores" if enough else ""


def convolution_ptx(scheme: Scheme, shape: ConvShape, output: str, pool: Pool, arch: tuple[int, int]) -> Ptx:
    """The kernel of a scheme, compiled; the variant depends on the sizes, the geometry is an argument."""
    defines = scheme.defines(shape) | {f"OUTPUT_{output.upper()}": "", f"POOL_{pool.upper()}": ""}
    return compile_file(scheme.source, defines, arch)
