"""The routines of training on GPUs: kernels of this folder, and the gradient of filters by cuDNN.

Kernels compute what the routines' ``compute`` does, in double precision too. Sums over pixels have another
order, which depends on sizes alone.
"""

from __future__ import annotations

import math
from dataclasses import replace
from struct import pack
from typing import TYPE_CHECKING

import numpy as np

from gpu.cuda_machine.kernels import THREADS, Argument, over_pixels
from gpu.cuda_machine.pointwise import ACTIVATIONS
from gpu.cuda_machine.queues import Queue
from gpu.machine import Tile
from gpu.outofcore.on_cuda import choose_engine, queue_routine
from gpu.outofcore.routines import Move, TileRoutine
from gpu.outofcore.workspace import aligned
from reference.errors import LaunchError

if TYPE_CHECKING:
    from gpu.outofcore.networks import routines

BLOCKS = 2048
"""The blocks that share sums, or fewer for fewer images."""
_PAIR = 16
"""Bytes of two sums."""
_MOST_PARTS = 65535
_LARGEST, _MOST_PIXELS = 1 << 30, (1 << 31) - (1 << 25)
"""The most pixels of joined planes, and of any plane: kernels count in 32 bits, a step beyond the last."""


def parts_bytes(channels: int) -> int:
    """The bytes for sums of parts of the images."""
    return aligned(_PAIR * (BLOCKS + channels))


# --------------------------------------------------------------------------------------------------
# Pooling
# --------------------------------------------------------------------------------------------------


def queue_pool(queue: Queue, of: routines.Pool) -> None:
    """Queue a pooling kernel."""
    x, y = _planes(queue, of.reads[0], of.shapes[0]), _planes(queue, of.writes[0], of.shapes[1])
    images = (_images(of),) if of.stage.kind == "average_pool" else ()
    _over_pixels(queue, "pooling", of.stage.kind, of.writes[0], *x, *y, _windows(of), *images)


def queue_max_pool_gradient(queue: Queue, of: routines.MaxPoolGradient) -> None:
    """Queue the gradient of max pooling."""
    tiles = zip((*of.reads, *of.writes), of.shapes, strict=True)
    arrays = [one for tile, shape in tiles for one in _planes(queue, tile, shape)]
    (_, _, rows, columns), dx, relu = of.shapes[0], of.shapes[2], int(of.of_relu)
    is_even = all(tile.stride % 2 == tile.offset % 8 == 0 for tile in (of.reads[1], of.writes[0]))
    is_apart = of.window.stride == of.stage.filters[2:] == (2, 2) and of.window.offset == (0, 0)
    if is_apart and is_even and of.skip == 0 and (2 * rows, 2 * columns) == dx[2:]:
        _over_pixels(queue, "pooling", "max_pool_gradient_of_pairs", of.reads[0], *arrays, relu)
    else:
        last = _windows(of), relu, of.skip
        _over_pixels(queue, "pooling", "max_pool_gradient", of.writes[0], *arrays, *last)


def queue_average_pool_gradient(queue: Queue, of: routines.AveragePoolGradient) -> None:
    """Queue the gradient of average pooling."""
    dy, dx = _planes(queue, of.reads[0], of.shapes[0]), _planes(queue, of.writes[0], of.shapes[1])
    _over_pixels(queue, "pooling", "average_pool_gradient", of.writes[0], *dy, *dx, _windows(of), _images(of))


def _windows(of: routines.Pool | routines.MaxPoolGradient | routines.AveragePoolGradient) -> bytes:
    """Pack the kernel argument ``Windows``: filter size, stride and offset."""
    plane, window = of.stage.plane, of.window
    return pack("<6i", plane.filter_height, plane.filter_width, *window.stride, *window.offset)


def _images(of: routines.Pool | routines.AveragePoolGradient) -> bytes:
    """Pack the kernel argument ``Images``: height, width, padding and first output row."""
    plane = of.stage.plane
    return pack("<5i", plane.height, plane.width, plane.pad_top, plane.pad_left, of.outputs.start)


# --------------------------------------------------------------------------------------------------
# Gradients of activations, filters and biases
# --------------------------------------------------------------------------------------------------


def queue_activation_gradient(queue: Queue, of: routines.ActivationGradient) -> None:
    """Queue the gradient of an activation."""
    tiles = [_joined(tile, of.reads) for tile in (of.writes[0], of.reads[1])]
    arrays = (one for tile in tiles for one in _planes(queue, tile, (1, 1, 1, tile.rows)))
    number = ACTIVATIONS[of.activation]
    _over_pixels(queue, "steps", "activation_gradient", tiles[0], *arrays, number)


def _joined(tile: Tile, tiles: tuple[Tile, ...]) -> Tile:
    """Join columns of a tile into longer ones, unless the tile has gaps, to give blocks enough work."""
    count = math.gcd(tile.columns, 4096)
    if any(one.stride != one.rows for one in tiles) or count * tile.rows >= _LARGEST:
        return tile
    return replace(tile, rows=count * tile.rows, columns=tile.columns // count, stride=count * tile.rows)


def queue_filter_gradient(queue: Queue, of: routines.FilterGradient) -> None:
    """Queue the gradients of the filters, in float32, and of the bias; both are added to sums."""
    weights, bias = of.writes
    terms, dy, engine = _terms(of)
    if dy is not of.reads[1]:
        Move(of.reads[1], dy).queue_on(queue)
    queue_routine(queue, engine)
    count = terms.rows
    where = queue.address(terms), queue.address(weights)
    _over_elements(queue, "add_terms", count, *map(np.uint64, where), np.int64(count), int(of.starts))
    _sum_biases(queue, of, of.reads[1], of.shapes[1], bias)


def queue_bias_gradient(queue: Queue, of: routines.BiasGradient) -> None:
    """Queue the gradient of a bias, which is added to sums."""
    _sum_biases(queue, of, of.reads[0], of.shapes[0], of.writes[0])


def _sum_biases(
    queue: Queue,
    of: routines.FilterGradient | routines.BiasGradient,
    dy: Tile,
    shape: tuple[int, int, int, int],
    bias: Tile,
) -> None:
    """Queue the sums of each channel's pixels."""
    _sum(queue, of, "bias_gradient", shape, _planes(queue, dy, shape), (queue.address(bias), 0))


def choose_filter_gradient(queue: Queue, of: routines.FilterGradient) -> None:
    """Choose the cuDNN engine that computes the gradient with respect to filters."""
    choose_engine(queue, _terms(of)[2])


def _terms(of: routines.FilterGradient) -> tuple[Tile, Tile, TileRoutine]:
    """Workspace for a piece's terms, dy copied there without gaps, and the routine that computes the terms.

    For planes with gaps, those of strips of rows, engines take up to twice as long.
    """
    filters, space, dy = of.stage.filters, of.workspace, of.reads[1]
    assert space is not None
    count = math.prod(filters)
    terms = replace(space, rows=count, stride=count)
    start = aligned(terms.nbytes)
    if dy.stride != dy.rows and dy.columns > 1:
        place = space.offset + start
        dy = replace(dy, memory=space.memory, offset=place, stride=dy.rows)
        start += aligned(dy.nbytes)
    rest = (space.nbytes - start) // space.dtype.itemsize
    engine = TileRoutine(
        name="conv2d_backward_filter",
        window=of.window,
        layout="NCHW",
        operands=(of.reads[0], dy),
        output=terms,
        shapes=(of.shapes[0], of.shapes[1], filters),
        updates=False,
        bias=None,
        activation=None,
        operations=of.operations,
        transforms=of.transforms,
        tf32=of.tf32,
        workspace=replace(space, offset=space.offset + start, rows=rest, stride=rest),
    )
    return terms, dy, engine


# --------------------------------------------------------------------------------------------------
# Batch normalization
# --------------------------------------------------------------------------------------------------


def queue_moments(queue: Queue, of: routines.Moments) -> None:
    """Queue the sums of pixels and of their squares."""
    sums, channels = queue.address(of.writes[0]), of.shapes[0][1]
    x = _planes(queue, of.reads[0], of.shapes[0])
    _sum(queue, of, "moments", of.shapes[0], x, (sums, sums + 8 * channels))


def queue_norm(queue: Queue, of: routines.Norm) -> None:
    """Queue batch normalization."""
    x, y = _planes(queue, of.reads[0], of.shapes[0]), _planes(queue, of.writes[0], of.shapes[1])
    sums, gamma, beta = (np.uint64(queue.address(tile)) for tile in of.reads[1:])
    last = of.shapes[0][1], ACTIVATIONS[of.stage.activation or ""]
    _over_pixels(queue, "norms", "batch_norm", of.writes[0], *x, *y, sums, _batch(of), gamma, beta, *last)


def queue_norm_parameter_gradient(queue: Queue, of: routines.NormParameterGradient) -> None:
    """Queue the gradients of batch normalization's parameters."""
    x, dy = (_planes(queue, tile, shape) for tile, shape in zip(of.reads[:2], of.shapes, strict=True))
    first, second, kept = (queue.address(tile) for tile in of.writes)
    arguments = *x, *dy, np.uint64(queue.address(of.reads[2])), _batch(of)
    weight = queue.address(of.reads[3]), kept
    _sum(queue, of, "norm_parameter_gradient", of.shapes[0], arguments, (first, second), weight)


def queue_norm_gradient(queue: Queue, of: routines.NormGradient) -> None:
    """Queue the gradient with respect to the input of batch normalization."""
    tiles = zip((*of.reads[:2], *of.writes), of.shapes, strict=True)
    arrays = (one for tile, shape in tiles for one in _planes(queue, tile, shape))
    sums, *others = (np.uint64(queue.address(tile)) for tile in of.reads[2:])
    last = *others, of.shapes[0][1]
    _over_pixels(queue, "norms", "batch_norm_gradient", of.writes[0], *arrays, sums, _batch(of), *last)


def _batch(of: routines.Norm | routines.NormParameterGradient | routines.NormGradient) -> bytes:
    """Pack the kernel argument ``Batch``: elements per channel and epsilon."""
    return pack("<2d", of.count, of.stage.epsilon)


# --------------------------------------------------------------------------------------------------
# Loss and update
# --------------------------------------------------------------------------------------------------


def queue_loss(queue: Queue, of: routines.Loss) -> None:
    """Queue the cross-entropy and its gradient."""
    logits, labels = of.reads
    where = (queue.address(tile) for tile in (logits, labels, *of.writes))
    sizes = logits.rows, float(of.batch)
    queue.launch(
        _source("steps"),
        "cross_entropy",
        (logits.columns, 1, 1),
        (THREADS, 1, 1),
        *map(np.uint64, where),
        *sizes,
    )


def queue_update(queue: Queue, of: routines.Update) -> None:
    """Queue a step of gradient descent."""
    where = (np.uint64(queue.address(tile)) for tile in of.reads[:3])
    count, descent = of.writes[0].rows, pack("<3d", of.rate, of.momentum, of.decay)
    _over_elements(queue, "sgd", count, *where, np.int64(count), descent)


# --------------------------------------------------------------------------------------------------
# Launches
# --------------------------------------------------------------------------------------------------


def _planes(queue: Queue, tile: Tile, shape: tuple[int, int, int, int]) -> tuple[np.uint64, bytes]:
    """The device address of a tile's planes, and the packed kernel argument ``Rows``."""
    if tile.rows >= _MOST_PIXELS:
        raise LaunchError(
            f"planes of {tile.rows} pixels in a piece\nkernels count fewer than {_MOST_PIXELS}\n"
            "cut the images into strips of rows, by a smaller memory_budget or TrainingOptions(segments=...)"
        )
    return np.uint64(queue.address(tile)), pack("<q2i", tile.stride, *shape[2:])


def _over_pixels(queue: Queue, source: str, name: str, written: Tile, *args: Argument) -> None:
    """Queue a kernel whose blocks divide the planes, and if they are large their pixels."""
    grid, block = over_pixels(written.columns, written.rows)
    queue.launch(_source(source), name, grid, block, *args)


def _over_elements(queue: Queue, name: str, count: int, *args: Argument) -> None:
    """Queue a kernel with a thread for each element."""
    queue.launch(_source("steps"), name, (-(-count // THREADS), 1, 1), (THREADS, 1, 1), *args)


def _sum(
    queue: Queue,
    of: routines.FilterGradient | routines.BiasGradient | routines.Moments | routines.NormParameterGradient,
    name: str,
    shape: tuple[int, int, int, int],
    arguments: tuple[Argument, ...],
    sums: tuple[int, int],
    weight: tuple[int, int] = (0, 0),
) -> None:
    """Queue the sums of each channel: partial sums go to the workspace and are added in a fixed order."""
    images, channels, rows, columns = shape
    assert of.workspace is not None
    pixels, most = rows * columns, -(-BLOCKS // channels)
    parts, across = np.uint64(queue.address(of.workspace)), min(1 << (pixels - 1).bit_length(), THREADS)
    of_images = max(min(images, most, _MOST_PARTS), 1)
    of_pixels = max(min(most // of_images, pixels // THREADS), 1)
    grid, block = (channels, of_images, of_pixels), (across, THREADS // across, 1)
    queue.launch(_source("norms"), name, grid, block, *arguments, images, parts)
    where, more = map(np.uint64, sums), map(np.uint64, weight)
    grid, last = (-(-channels // THREADS), 1, 1), (channels, int(of.starts), *more)
    count = of_images * of_pixels
    queue.launch(_source("norms"), "add_parts", grid, (THREADS, 1, 1), parts, count, *where, *last)


def _source(name: str) -> str:
    return f"outofcore/networks/{name}.cu"
