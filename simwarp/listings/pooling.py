"""Pooling after the sign, in three ways: a warp for a window, with and without pruning, a warp for a pixel.

Pooled bits are the OR of a window's bits (max-pooling) or their AND (min-pooling). A warp that has a window
computes its pixels one after another; once all bits that it holds are decided, it may skip the other pixels.
A warp that has a pixel joins its bits to those of the window's other warps by an atomic operation.

>>> pixels = np.array([[[[-1.0], [1.0]], [[-1.0], [-1.0]]]])  # one image of 2 × 2 pixels
>>> filters = np.ones((1, 1, 1, 1))
>>> {way: int(conv_pool32(pixels, filters, [1], way=way).words[0, 0, 0, 0] >> 31) for way in WAYS}
{'window': 1, 'pruned': 1, 'atomic': 1}

Source: BSTC (SC'19), section 6.2 "Conv Intra-Layer Fusion", figure 7.
"""

# The kernels keep the paper's names.
# ruff: noqa: N802, N803

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from reference.errors import ShapeError
from reference.types import PackedTensor
from simwarp.lanes import WARP_SIZE
from simwarp.listings.bconv import Conv2d_32bit
from simwarp.listings.checks import check_choice
from simwarp.listings.conv_operands import (
    ConvLayerParam,
    ConvOperand,
    ConvOperands,
    Padding,
    Pair,
    conv_operands,
)
from simwarp.listings.costs import Costs, counted
from simwarp.listings.fused import Fused, fuse
from simwarp.warp import GlobalArray, Warp, launch

Way: TypeAlias = Literal["window", "pruned", "atomic"]
WAYS: tuple[Way, ...] = get_args(Way)
"""A warp has a window; it skips pixels once all bits are decided; a warp has a pixel."""
PoolKind: TypeAlias = Literal["or", "and"]


class Pool(NamedTuple):
    """A pooling of bits: what joins the bits of a window, its pixels, and how far windows are apart.

    Sizes are (vertical, horizontal).
    """

    kind: PoolKind = "or"
    window: tuple[int, int] = (2, 2)
    stride: tuple[int, int] = (2, 2)

    @property
    def neutral(self) -> np.uint32:
        """The word that changes nothing."""
        return np.uint32(0 if self.kind == "or" else 0xFFFFFFFF)

    @property
    def join(self) -> Callable[..., Any]:
        """The operation on words."""
        return np.bitwise_or if self.kind == "or" else np.bitwise_and

    def size(self, pixels: tuple[int, int]) -> tuple[int, int]:
        """How many windows lie in an image; ShapeError if none does."""
        axes = zip(pixels, self.window, self.stride, strict=True)
        sizes = [(n - w) // s + 1 if min(w, s) > 0 else 0 for n, w, s in axes]
        if min(sizes) < 1:
            raise ShapeError(
                f"a window of {self.window} with stride {self.stride}, in {pixels[0]} × {pixels[1]} pixels\n"
                "not one window lies in the image\ngive a window within it, and a stride of at least 1"
            )
        return sizes[0], sizes[1]


OR_2X2 = Pool()
"""The paper's: the maximum of 2 × 2 pixels."""
NO_POOL = Pool("or", (1, 1), (1, 1))


class Target(NamedTuple):
    """Where pooled words go: (batch, height, width, words), or as operand A of the next product.

    ``transposed`` is section 6.3's option: (height · width · words, batch), word i of all images together.
    """

    output: GlobalArray
    pool: Pool
    batch: int
    height: int
    width: int
    words: int
    transposed: bool = False

    def place(self, image: int, y: int, x: int, c: int) -> int:
        """The index of word c of a pooled pixel."""
        word = (y * self.width + x) * self.words + c
        pixels = self.height * self.width
        return word * self.batch + image if self.transposed else image * pixels * self.words + word


class _Window:
    """The pixels of one window, by one warp: `simwarp.listings.bconv.Pooled`."""

    def __init__(self, target: Target, block: tuple[int, int, int], out_channels: int) -> None:
        self.target, (self.x, self.y, self.image) = target, block
        self.out_channels = out_channels
        self.channels: Sequence[int] = range(0, out_channels, WARP_SIZE)
        self.words: dict[int, npt.NDArray[Any]] = {}

    def pixels(self) -> Iterator[tuple[int, int, int]]:
        """The blocks of the convolution that make the window."""
        (height, width), (down, across) = self.target.pool.window, self.target.pool.stride
        for dy, dx in product(range(height), range(width)):
            yield self.x * across + dx, self.y * down + dy, self.image

    def write(self, warp: Warp, c: int, C: npt.NDArray[Any]) -> None:
        """Section 6.2: ``output[…] |= C``, in a register that all lanes have."""
        self.words[c] = self.target.pool.join(self.words[c], C) if c in self.words else C

    def prune(self) -> None:
        """Leave out the channels whose bits are all decided: 1 for OR, 0 for AND."""
        open_bits = np.uint32(0xFFFFFFFF) ^ self.target.pool.neutral
        self.channels = [
            first
            for first in self.channels
            if int(self.words[first // WARP_SIZE][0] ^ open_bits) & self._valid(first)
        ]

    def store(self, warp: Warp) -> None:
        """Store the words of the window."""
        for c, word in self.words.items():
            warp.store(self.target.output, self.target.place(self.image, self.y, self.x, c), word)

    def _valid(self, first: int) -> int:
        """The bits of a word that are channels, the first in the most significant."""
        return 0xFFFFFFFF << max(0, WARP_SIZE - (self.out_channels - first)) & 0xFFFFFFFF


class _Pixel:
    """One pixel, whose bits an atomic operation joins to every window that has it."""

    def __init__(self, target: Target, block: tuple[int, int, int], out_channels: int) -> None:
        self.target, self.image = target, block[2]
        self.channels: Sequence[int] = range(0, out_channels, WARP_SIZE)
        (down, across), (height, width) = target.pool.stride, target.pool.window
        rows = _windows(block[1], height, down, target.height)
        self.windows = list(product(rows, _windows(block[0], width, across, target.width)))

    def write(self, warp: Warp, c: int, C: npt.NDArray[Any]) -> None:
        """Section 6.2: ``atomicOr(output[…], C)``."""
        atomic = warp.atomic_or if self.target.pool.kind == "or" else warp.atomic_and
        for y, x in self.windows:
            atomic(self.target.output, self.target.place(self.image, y, x, c), C)


def _windows(pixel: int, size: int, stride: int, count: int) -> range:
    """The windows along an axis that have a pixel."""
    return range(max(0, -(-(pixel - size + 1) // stride)), min(count, pixel // stride + 1))


def ConvPool32(
    warp: Warp,
    input: GlobalArray,
    bitfilter: GlobalArray,
    target: Target,
    p: ConvLayerParam,
    fused: Fused,
    way: Way,
) -> None:
    """BConv-32 with its thresholds and the pooling of their bits (section 6.2).

    Parameters
    ----------
    input, bitfilter, p, fused
        As of `simwarp.listings.Conv2d_32bit`.
    target : Target
        The pooled words; for "atomic" filled with the neutral word before.
    way : {"window", "pruned", "atomic"}
        Whether a warp has a window, of which it may skip pixels, or a pixel.

    Notes
    -----
    Other than in print: the pixels of a window are joined in a register and stored once, so that words need
    not be cleared, except for "atomic". Pruning is by words: a channel whose bit is decided is skipped with
    the other 31 of its word, since a warp executes an instruction as long as one lane needs it. Windows may
    overlap, and pixels may lie in none.

    Grid: (width, height, batch) of the pooled image, for "atomic" of the convolution's; blocks of one warp;
    shared ``Csub``: out_channels of uint32.
    """
    if way == "atomic":
        pixel = _Pixel(target, warp.block, p.out_channels)
        if pixel.windows:
            Conv2d_32bit(warp, input, bitfilter, target.output, p, fused, pixel)
        return
    window = _Window(target, warp.block, p.out_channels)
    for block in window.pixels():
        at = warp.as_block(block, (p.out_width, p.out_height, p.batch))
        Conv2d_32bit(at, input, bitfilter, target.output, p, fused, window)
        if way == "pruned":
            window.prune()
        if not window.channels:
            break
    with warp.where(warp.lane == 0):
        window.store(warp)


def conv_pool32(
    x: ConvOperand,
    w: ConvOperand,
    thresholds: npt.ArrayLike,
    flip: npt.ArrayLike | None = None,
    *,
    pool: Pool = OR_2X2,
    way: Way = "window",
    stride: Pair = 1,
    padding: Padding = "SAME",
) -> PackedTensor:
    """Convolution, thresholds and pooling of bits in one kernel: figure 7, by `ConvPool32`.

    Parameters
    ----------
    x, w, thresholds, flip, stride, padding
        As of `simwarp.listings.bconv32`.
    pool : Pool, default an OR of 2 × 2 pixels
    way : {"window", "pruned", "atomic"}
        All give the same bits.

    Returns
    -------
    PackedTensor
        (N, P, Q, O), ``layout="NHWC"``, ``word=32``, ``first="msb"``.

    Raises
    ------
    ShapeError, DtypeError, NotANumberError, FormatError, SchemeError
        As of `simwarp.listings.bconv32`; ShapeError if no window lies in the image.

    Notes
    -----
    Source: BSTC (SC'19), section 6.2.

    Examples
    --------
    >>> bits = conv_pool32(np.ones((1, 4, 4, 5)), np.ones((3, 3, 5, 1)), [30], pool=Pool("and"))
    >>> (bits.words[0, :, :, 0] >> 31).tolist()
    [[0, 0], [0, 0]]
    """
    return _pooled(ConvPool32, conv_operands(x, w, stride, padding), thresholds, flip, pool, way)


def pooling_costs(
    x: ConvOperand,
    w: ConvOperand,
    thresholds: npt.ArrayLike,
    *,
    pool: Pool = OR_2X2,
    way: Way = "window",
) -> Costs:
    """What the warps of `conv_pool32` execute: operations by kind, and the part of the lanes that is busy.

    Parameters
    ----------
    x, w, thresholds, pool, way
        As of `conv_pool32`; SAME padding.

    Returns
    -------
    Costs
        ``operations`` by "loads", "stores", "votes" and "atomics", ``steps``, their sum, and ``busy``.

    Raises
    ------
    ShapeError, DtypeError, NotANumberError, FormatError, SchemeError
        As of `conv_pool32`.

    Examples
    --------
    >>> image, filters = np.ones((1, 2, 2, 32)), np.ones((1, 1, 32, 32))
    >>> whole, pruned = (pooling_costs(image, filters, [0] * 32, way=way) for way in ("window", "pruned"))
    >>> pruned.steps / whole.steps < 0.3
    True
    """
    kernel, costs = counted(ConvPool32)
    _pooled(kernel, conv_operands(x, w), thresholds, None, pool, way)
    return costs


def _pooled(
    kernel: Callable[..., None],
    operands: ConvOperands,
    thresholds: npt.ArrayLike,
    flip: npt.ArrayLike | None,
    pool: Pool,
    way: Way,
) -> PackedTensor:
    """Launch a convolution with pooling, and download its bits."""
    check_choice("way", way, WAYS)
    check_choice("kind", pool.kind, get_args(PoolKind))
    input, bitfilter, p = operands
    fused = fuse(thresholds, flip, p.out_channels)
    target = pool_target(p, pool, way)
    grid = conv_pool_grid(target, p, way)
    shared = {"Csub": (np.uint32, p.out_channels)}
    launch(kernel, grid, WARP_SIZE, input, bitfilter, target, p, fused, way, shared=shared)
    shape = target.batch, target.height, target.width, p.out_channels
    return PackedTensor(target.output.numpy(), shape, "NHWC", 32, "msb")


def pool_target(p: ConvLayerParam, pool: Pool, way: Way, *, transposed: bool = False) -> Target:
    """The words of a pooled convolution; those of "atomic" begin as the neutral word."""
    height, width = pool.size((p.out_height, p.out_width))
    words = -(-p.out_channels // WARP_SIZE)
    shape = (height * width * words, p.batch) if transposed else (p.batch, height, width, words)
    output = GlobalArray("output", shape, np.uint32)
    if way == "atomic":
        output = GlobalArray.of("output", np.full(shape, pool.neutral))
    return Target(output, pool, p.batch, height, width, words, transposed)


def conv_pool_grid(target: Target, p: ConvLayerParam, way: Way) -> tuple[int, int, int]:
    """The blocks of `ConvPool32`."""
    return (p.out_width, p.out_height, p.batch) if way == "atomic" else (target.width, target.height, p.batch)
