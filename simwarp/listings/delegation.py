"""Listings 8 and 9: a whole network in one kernel, whose blocks take the tasks of each layer in turn.

However many blocks run, each takes every so-manieth task of a layer, and computes what the block of that
number would in a launch of the layer alone (warp delegation, elastic blocks). A barrier of the grid stands
between layers.

>>> layers = FC(np.ones((5, 3)), [0, 1, 9]), FC(np.ones((3, 2)))
>>> signs = np.array([[1.0, -1.0, 1.0, 1.0, -1.0]])  # sums to 1: bits 1, 1, 0
>>> [sbnn32(signs, layers, blocks=blocks).tolist() for blocks in (1, 7)]
[[[1, 1]], [[1, 1]]]

Source: BSTC (SC'19), section 6.3, listings 8 and 9.
"""

# The kernels keep the paper's names.
# ruff: noqa: N802, N806

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import SchemeError, ShapeError
from reference.values import not_an_array, shortened
from simwarp.lanes import WARP_SIZE
from simwarp.listings.bmm import BMM32_Arow_Brow
from simwarp.listings.checks import real
from simwarp.listings.conv_operands import Padding, Pair, layer, pack_filter
from simwarp.listings.fused import fuse
from simwarp.listings.packing import PackTo32Col, pack
from simwarp.listings.pooling import NO_POOL, ConvPool32, Pool, Way, conv_pool_grid, pool_target
from simwarp.warp import GRID, Barrier, GlobalArray, Warp, launch


@not_an_array("pass its weights")
@shortened
class FC(NamedTuple):
    """A fully connected layer: weights (F, O), whose signs count; the last layer has no thresholds."""

    weights: npt.ArrayLike
    thresholds: npt.ArrayLike | None = None
    flip: npt.ArrayLike | None = None


@not_an_array("pass its weights")
@shortened
class ConvPool(NamedTuple):
    """A convolution with filters (R, S, C, O), thresholds and a pooling of their bits."""

    weights: npt.ArrayLike
    thresholds: npt.ArrayLike
    flip: npt.ArrayLike | None = None
    pool: Pool = NO_POOL
    stride: Pair = 1
    padding: Padding = "SAME"
    way: Way = "window"


SbnnLayer: TypeAlias = FC | ConvPool


class Task(NamedTuple):
    """A kernel of the network, the grid of its launch alone, and its arguments: a parameter object."""

    kernel: Callable[..., None]
    grid: tuple[int, int, int]
    args: tuple[Any, ...]


def tasks(warp: Warp, grid: tuple[int, int, int]) -> Iterator[Warp]:
    """Lines 4 to 8 of listing 8: the warp as each block of ``grid`` that is its to compute.

    Other than in print: ``bid`` is increased, ``bid += gridDim.x``, where the text we have multiplies it.
    """
    width, height, _ = grid
    for bid in range(warp.block.x, prod(grid), warp.grid.x):
        bz, rest = divmod(bid, width * height)
        yield warp.as_block((rest % width, rest // width, bz), grid)


def SBNN32(warp: Warp, network: Sequence[Task]) -> Generator[Barrier]:
    """Listing 9: all layers in one kernel, with a barrier of the grid after each.

    Parameters
    ----------
    network : sequence of Task
        The layers' kernels, in order.

    Notes
    -----
    Other than in print: layers are a list and not statements, since the network is an argument.

    Grid: any number of blocks of one warp, in a cooperative launch; shared ``Csub``: as many uint32 as the
    convolution with the most filters has.
    """
    for kernel, grid, args in network:
        for task in tasks(warp, grid):
            kernel(task, *args)
        yield GRID


def sbnn32(images: npt.ArrayLike, layers: Sequence[SbnnLayer], *, blocks: int = 4) -> npt.NDArray[np.int32]:
    """The last layer's sums of a binarized network, in one launch, by listings 4 and 6 to 9.

    Parameters
    ----------
    images : array_like of float64, float32, float16 or int8, (N, F) or (N, H, W, C)
        Their signs are the network's input.
    layers : sequence of FC and ConvPool
        Convolutions first; pixels are flattened for the first `FC`. The last is an `FC` without thresholds,
        every other layer has thresholds.
    blocks : int, at least 1
        How many run; the answer does not depend on it.

    Returns
    -------
    array of int32, (N, O)

    Raises
    ------
    ShapeError, DtypeError, NotANumberError
        For layers that do not fit, and as of `simwarp.listings.bconv32`.
    SchemeError
        For layers in another order, or thresholds where there are none, and the other way round.
    LaunchError
        For a number of blocks that CUDA would refuse.

    Notes
    -----
    Source: BSTC (SC'19), section 6.3, listings 8 and 9.

    Examples
    --------
    >>> convolution = ConvPool(np.ones((2, 2, 1, 1)), [3], pool=Pool(), padding="VALID")
    >>> sbnn32(np.ones((1, 3, 3, 1)), [convolution, FC(-np.ones((1, 2)))]).tolist()
    [[-1, -1]]
    """
    _check_order(layers)
    shape = np.shape(images)
    signs = real(images, "images", "NHWC" if len(shape) == 4 else "row")
    network: list[Task] = []
    data = GlobalArray.of("images", signs, read_only=True)
    convolutions = [each for each in layers if isinstance(each, ConvPool)]
    dense = [each for each in layers if isinstance(each, FC)]
    for i, each in enumerate(convolutions):
        last = i == len(convolutions) - 1
        data, shape = _conv(network, data, shape, each, transposed=last)
    if not convolutions:
        data = _packed(network, data, shape)
    pixels = shape[1:3] if convolutions else (1, 1)
    for each in dense:
        data, shape = _fc(network, data, shape, each, prod(pixels))
        pixels = (1, 1)
    most = max((np.shape(each.weights)[3] for each in convolutions), default=1)
    launch(SBNN32, blocks, WARP_SIZE, network, shared={"Csub": (np.uint32, most)}, cooperative=True)
    return data.numpy()


def _check_order(layers: Sequence[SbnnLayer]) -> None:
    if not layers or not isinstance(layers[-1], FC) or layers[-1].thresholds is not None:
        raise SchemeError("the last layer is not an FC without thresholds\nits sums are the answer\nadd one")
    for i, (before, after) in enumerate(pairwise(layers)):
        if before.thresholds is None:
            raise SchemeError(f"layer {i} has no thresholds\nlayers pass bits on\ngive thresholds=")
        if isinstance(before, FC) and isinstance(after, ConvPool):
            raise SchemeError(
                f"layer {i + 1} is a convolution after a fully connected layer\nvectors have no pixels\n"
                "put the convolutions first"
            )


def _conv(
    network: list[Task], data: GlobalArray, shape: tuple[int, ...], each: ConvPool, *, transposed: bool
) -> tuple[GlobalArray, tuple[int, ...]]:
    """Add a convolution of the network; its output and the shape of that, in elements."""
    if len(shape) != 4:
        raise ShapeError(f"images have shape {shape}\na convolution needs pixels\ngive (N, H, W, C)")
    filters = real(each.weights, "weights", "HWIO")
    p = layer(shape, filters.shape, each.stride, each.padding, 1)
    bitfilter = GlobalArray.of("bitfilter", pack_filter(filters, 32).words, read_only=True)
    target = pool_target(p, each.pool, each.way, transposed=transposed)
    fused = fuse(each.thresholds, each.flip, p.out_channels)
    args = data, bitfilter, target, p, fused, each.way
    network.append(Task(ConvPool32, conv_pool_grid(target, p, each.way), args))
    return target.output, (p.batch, target.height, target.width, p.out_channels)


def _packed(network: list[Task], data: GlobalArray, shape: tuple[int, ...]) -> GlobalArray:
    """Add listing 1, which packs the vectors of a network without convolutions."""
    batch, features = shape[0], prod(shape[1:])
    words = -(-features // WARP_SIZE)
    bits = GlobalArray("bits", (words, batch), np.uint32)
    network.append(Task(PackTo32Col, (-(-batch // WARP_SIZE), words, 1), (data, bits, batch, features)))
    return bits


def _fc(
    network: list[Task], data: GlobalArray, shape: tuple[int, ...], each: FC, pixels: int
) -> tuple[GlobalArray, tuple[int, ...]]:
    """Add a fully connected layer; words do not cross pixels, so that weights are packed pixel by pixel."""
    weights = real(each.weights, "weights")
    batch, features = shape[0], prod(shape[1:])
    if weights.shape[0] != features:
        raise ShapeError(
            f"weights has shape {weights.shape}, for {features} features\n"
            f"a weight is needed for each feature and output\ngive ({features}, outputs)"
        )
    outputs = weights.shape[1]
    words = [pack(part, "row", 32).words for part in np.split(weights, pixels)]
    B = GlobalArray.of("B", np.concatenate(words), read_only=True)
    fused = fuse(each.thresholds, each.flip, outputs)
    columns = -(-outputs // WARP_SIZE)
    C = (
        GlobalArray("C", (columns, batch), np.uint32)
        if fused
        else GlobalArray("C", (batch, outputs), np.int32)
    )
    args = data, B, C, batch, B.shape[0], outputs, features, fused
    network.append(Task(BMM32_Arow_Brow, (-(-batch // WARP_SIZE), columns, 1), args))
    return C, (batch, outputs)
