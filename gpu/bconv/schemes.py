"""The kernels of the bit convolution, and which one it gets (BSTC, section 5.2; BTC, section 5.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from gpu.bconv import btc
from gpu.bconv.geometry import ConvShape, conv_shape
from gpu.compile import Ptx, compile_file
from gpu.device import Array, Device, Dim
from reference.types import PackedTensor, TensorLayout, Word

Pool: TypeAlias = Literal["none", "or", "and"]
Defines: TypeAlias = dict[str, str | int]

WARPS_PER_BLOCK = 4

ENOUGH_WARPS = 1024
"""As many warps keep a large chip busy."""


@dataclass(frozen=True)
class Scheme:
    """A way to spread the convolution over warps.

    Its kernel has the scheme's name and takes what `operands` gives, then the output, the `ConvShape` by
    value and, for bits, thresholds and flips.

    Attributes
    ----------
    name : str
        As in the papers.
    word : int
        Bits per packed word of the operands.
    source : str
        The kernel's file, in ``gpu/``.
    images, filters : tuple of str
        The layouts that `operands` takes; real arrays are packed in the first one.
    arranged : callable
        (packed images or filters, device) → the device array that the kernel takes for them.
    lines_of_tile : int
        Of filters, for their addends; 0 if the kernel takes none.
    defines : callable
        (shape, compute capability) → the macros that the scheme's source needs.
    launch : callable
        (shape, pool) → grid and block.
    """

    name: str
    word: Word
    source: str
    summary: str
    images: tuple[TensorLayout, ...]
    filters: tuple[TensorLayout, ...]
    arranged: Callable[[PackedTensor, Device], Array]
    lines_of_tile: int
    defines: Callable[[ConvShape, tuple[int, int]], Defines]
    launch: Callable[[ConvShape, Pool], tuple[Dim, Dim]]

    def operands(
        self, images: PackedTensor, filters: PackedTensor, shape: ConvShape, device: Device
    ) -> tuple[Any, ...]:
        """What the kernel gets for packed operands on the device.

        Examples
        --------
        >>> import numpy as np, simwarp, reference
        >>> device, shape = simwarp.Device(), conv_shape((2, 4, 6, 40), (3, 3, 40, 9))
        >>> def packed(size, layout):
        ...     host = reference.pack_tensor(np.ones(size, np.int8), layout=layout)
        ...     return PackedTensor(device.upload(host.words), host.shape, layout)
        >>> images, filters = packed((2, 4, 6, 40), "NHWC"), packed((3, 3, 40, 9), "HWOI")
        >>> operands = SCHEMES["btc2"].operands(images, filters, shape, device)
        >>> [operand.shape for operand in operands[:3]]
        [(4, 6, 1, 1, 8, 4), (3, 3, 2, 1, 8, 4), (9, 10)]
        """
        arranged = self.arranged(images, device), self.arranged(filters, device)
        if not self.lines_of_tile:
            return arranged
        addends = self.addends(arranged[1], shape, device)
        return *arranged, addends, btc.Borders.of(shape).argument

    def addends(self, filters: Array, shape: ConvShape, device: Device) -> Array:
        """What each filter, as the kernel takes it, adds to dot products; see `gpu.bconv.btc`."""
        return btc.addends_of(filters, shape, device, lines_of_tile=self.lines_of_tile)


def _words(packed: PackedTensor, _: Device) -> Array:
    return packed.words


def _bstc_tile(shape: ConvShape) -> tuple[int, int]:
    """Pixels and channels of a warp's tile: with little work, more warps with less to do are faster."""
    channels = 64 if shape.filters > 32 else 32
    for rows in (1024 // channels, 16):
        if -(-shape.pixels // rows) * -(-shape.filters // channels) >= ENOUGH_WARPS:
            return rows, channels
    return 8, channels


def _bstc_defines(shape: ConvShape, word: Word) -> Defines:
    """A lane loads up to 16 bytes of channels at once, in one go where every pixel starts at a multiple."""
    words = -(-shape.channels // word)
    chunk = min(128 // word, 1 << (words - 1).bit_length())
    aligned: Defines = {"ALIGNED": ""} if words % chunk == 0 else {}
    rows, channels = _bstc_tile(shape)
    tile: Defines = {"ROWS": rows, "CHANNELS": channels, "CHUNK": chunk}
    return {"SCHEME": f"bconv{word}", f"WORD_{word}": "", **tile, **aligned}


def _bstc_launch(shape: ConvShape, pool: Pool) -> tuple[Dim, Dim]:
    """A warp for each tile of pixels and channels."""
    rows, channels = _bstc_tile(shape)
    pixels = shape.pixels if pool == "none" else 4 * shape.windows
    tiles = -(-pixels // rows) * -(-shape.filters // channels)
    return (-(-tiles // WARPS_PER_BLOCK), 1, 1), (WARPS_PER_BLOCK * 32, 1, 1)


SCHEMES = {
    scheme.name: scheme
    for scheme in (
        Scheme(
            "bconv32",
            32,
            "bconv/bstc.cu",
            "a warp for each tile of pixels and channels, population counts of 32-bit words",
            ("NHWC",),
            ("HWOI",),
            _words,
            0,
            lambda shape, _: _bstc_defines(shape, 32),
            _bstc_launch,
        ),
        Scheme(
            "bconv64",
            64,
            "bconv/bstc.cu",
            "a warp for each tile of pixels and channels, population counts of 64-bit words",
            ("NHWC",),
            ("HWOI",),
            _words,
            0,
            lambda shape, _: _bstc_defines(shape, 64),
            _bstc_launch,
        ),
        Scheme(
            "btc1",
            32,
            "bconv/btc.cu",
            "bit tensor cores on words in their ordinary order",
            ("NHWC",),
            ("HWOI",),
            btc.units_of,
            1,
            btc.btc1_defines,
            btc.btc1_launch,
        ),
        Scheme(
            "btc2",
            32,
            "bconv/btc.cu",
            "bit tensor cores on tiles of 8 x 128 bits (FSB)",
            ("NHWC", "HWNC-FSB"),
            ("HWOI", "HWOI-FSB"),
            btc.tiles_of,
            8,
            btc.btc2_defines,
            btc.btc2_launch,
        ),
    )
}
"""The schemes that `gpu.bconv2d` knows."""


@dataclass(frozen=True)
class Plan:
    """What ``scheme="auto"`` chose.

    Attributes
    ----------
    scheme : Scheme
    reason : str
        Why, in words.
    """

    scheme: Scheme
    reason: str


def plan(
    x: tuple[int, ...],
    w: tuple[int, ...],
    *,
    stride: Any = 1,
    padding: Any = "SAME",
    dilation: Any = 1,
    layouts: tuple[str, str] = ("NHWC", "HWOI"),
    word: Word = 32,
    compute_capability: tuple[int, int] = (9, 0),
) -> Plan:
    """Which scheme ``scheme="auto"`` takes, and why.

    Parameters
    ----------
    x : (N, H, W, C)
        The shape of the images.
    w : (R, S, C, O)
        The shape of the filters.
    stride, padding, dilation
        As of `gpu.bconv2d`.
    layouts : (str, str)
        Of packed images and filters; real ones are packed as the scheme needs them.
    word : 32 or 64
        Of packed operands.
    compute_capability : (int, int)
        Of the device.

    Raises
    ------
    ShapeError, SchemeError

    Examples
    --------
    >>> found = plan((16, 64, 64, 128), (3, 3, 128, 128))
    >>> found.scheme.name, found.reason
    ('btc1', 'sm_90 has bit tensor cores, and C = 128 fills their 128 bits by 100 %')
    >>> plan((1, 32, 32, 16), (3, 3, 16, 128)).scheme.name
    'bconv32'
    """
    shape = conv_shape(x, w, stride=stride, padding=padding, dilation=dilation)
    return plan_shape(shape, layouts, word, compute_capability)


def plan_shape(
    shape: ConvShape, layouts: Sequence[str], word: Word, compute_capability: tuple[int, int]
) -> Plan:
    """The plan for a geometry that is known; see `plan`.

    Examples
    --------
    >>> shape = conv_shape((1, 8, 8, 65), (3, 3, 65, 8))
    >>> plan_shape(shape, ("NHWC", "HWOI-FSB"), 32, (9, 0)).reason
    'an operand is packed in tiles of 8 x 128 bits, which only btc2 takes'
    """
    major, minor = compute_capability
    units = -(-shape.channels // 128)
    filled = 100 * shape.channels // (128 * units)
    if any(layout.endswith("FSB") for layout in layouts):
        return Plan(SCHEMES["btc2"], "an operand is packed in tiles of 8 x 128 bits, which only btc2 takes")
    if word == 64:
        return Plan(SCHEMES["bconv64"], "an operand is packed in words of 64 bits, which only bconv64 takes")
    if compute_capability < (7, 5):
        name = "bconv64" if shape.channels > 32 and shape.filters > 32 else "bconv32"
        return Plan(SCHEMES[name], f"sm_{major}{minor} has no bit tensor cores")
    if filled <= 25:
        reason = f"C = {shape.channels} would fill the 128 bits of a bit tensor core by {filled} %"
        return Plan(SCHEMES["bconv32"], reason)
    reason = (
        f"sm_{major}{minor} has bit tensor cores, and C = {shape.channels} fills their 128 bits by {filled} %"
    )
    return Plan(SCHEMES["btc1"], reason)


def convolution_ptx(scheme: Scheme, shape: ConvShape, output: str, pool: Pool, arch: tuple[int, int]) -> Ptx:
    """The kernel of a scheme, for a geometry.

    Parameters
    ----------
    scheme : Scheme
    shape : ConvShape
        Sizes only choose between variants of the kernel; it takes the geometry as an argument.
    output : "int" or "bits"
    pool : "none", "or" or "and"
    arch : (int, int)
        The compute capability to compile for.

    Examples
    --------
    >>> shape = conv_shape((1, 8, 8, 65), (3, 3, 65, 8))
    >>> ".entry bconv64" in convolution_ptx(SCHEMES["bconv64"], shape, "bits", "or", (9, 0)).text
    True
    """
    defines = {
        **scheme.defines(shape, arch),
        f"OUTPUT_{output.upper()}": "",
        f"POOL_{pool.upper()}": "",
    }
    return compile_file(scheme.source, defines, arch)
