"""Tile routines as calls of cuDNN, made by `gpu.cuda_machine.layers`.

Padding may differ above and below a piece, as its halo is inside or outside of the images. Some engines read
it wrongly without saying so (cuDNN 9.19): so a copy of the images with zeros around them, in the workspace,
has no padding. The gradient of images is computed there, and copied from there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from gpu.cuda_machine.convolutions import Convolution, Four, View
from gpu.cuda_machine.memory import Place
from gpu.cuda_machine.pointwise import finish
from gpu.cuda_machine.queues import Queue, Volume
from gpu.machine import Tile
from gpu.outofcore.on_host import Window
from gpu.outofcore.padding import Axis, axes_of
from gpu.outofcore.problem import Layout
from gpu.outofcore.workspace import aligned
from reference.errors import LaunchError

if TYPE_CHECKING:
    from gpu.outofcore.routines import Finish, TileRoutine

_NAMES = {
    "conv2d": ("x", "w", "y"),
    "conv2d_backward_data": ("y", "w", "x"),
    "conv2d_backward_filter": ("x", "y", "w"),
}
"""The operands and the output of each routine."""
_ALIGNMENT = 16
"""The largest alignment of addresses; engines gain nothing from more."""


@dataclass(frozen=True)
class Padded:
    """A zero-padded copy of a piece's images, in the workspace."""

    view: View  # the view of the copied pixels
    pixels: tuple[Axis, Axis]  # the copied pixels, down and across
    nbytes: int


@dataclass(frozen=True)
class Call:
    """The cuDNN convolution that computes a tile routine."""

    convolution: Convolution
    start: int  # bytes from the images' first element to the first one under a window
    padded: Padded | None
    is_partial: bool  # whether windows leave out rows or columns of the images


def queue_routine(queue: Queue, routine: TileRoutine) -> None:
    """Queue a routine on pieces of the queue's device."""
    call, output = call_of(routine), routine.output
    if not routine.updates and (call is None or (call.is_partial and routine.name == "conv2d_backward_data")):
        item = output.dtype.itemsize
        place = Place(queue.address(output), output.stride * item)
        queue.clear(place, output.rows * item, output.columns)
    if call is not None:
        workspace = _workspace(queue, routine)
        if call.padded:
            workspace = _behind(workspace, call.padded)
            if routine.name != "conv2d_backward_data" or routine.updates:
                _copy_padded(queue, routine, call, call.padded)
        queue.layers.convolve(queue, call.convolution, _addresses(queue, routine, call), workspace)
        if call.padded and routine.name == "conv2d_backward_data":
            _copy_pixels(queue, routine, call, call.padded, is_back=True)
    if routine.bias or routine.activation:
        view = _view(routine.shapes[2], routine.layout)
        bias = queue.address(routine.bias) if routine.bias else 0
        finish(queue, view, output.dtype.name, queue.address(output), bias, routine.activation or "")


def queue_finish(queue: Queue, of: Finish) -> None:
    """Queue bias and activation of a piece."""
    bias, view = queue.address(of.bias) if of.bias else 0, _view(of.shape, of.layout)
    finish(queue, view, of.piece.dtype.name, queue.address(of.piece), bias, of.activation or "")


def choose_engine(queue: Queue, routine: TileRoutine) -> None:
    """Choose the engine of a routine, measured on the memory of its pieces: see `Layers.choose`."""
    call, workspace = call_of(routine), _workspace(queue, routine)
    if call is not None:
        if call.padded:
            workspace = _behind(workspace, call.padded)
        queue.layers.choose(queue, call.convolution, _addresses(queue, routine, call), workspace)


def call_of(routine: TileRoutine) -> Call | None:
    """The cuDNN call of a routine; None if no window covers a pixel, so that all sums are empty."""
    dtype, tiles = routine.output.dtype, (*routine.operands, routine.output)
    return _call(
        routine.name,
        dtype.name,
        dtype.itemsize,
        routine.tf32,
        routine.layout,
        routine.shapes,
        routine.window,
        routine.updates,
        routine.transforms,
        tuple(_columns(tile) for tile in tiles),
        tuple(_alignment(tile) for tile in tiles),
    )


@lru_cache(4096)
def _call(
    name: str,
    dtype: str,
    item: int,
    tf32: bool,
    layout: Layout,
    shapes: tuple[tuple[int, ...], ...],
    window: Window,
    updates: bool,
    transforms: bool,
    columns: tuple[tuple[int, int], ...],
    alignments: tuple[int, ...],
) -> Call | None:
    """Make the call for routines of one kind; cached, since a user's call has few kinds."""
    views = {
        tensor: _view(shape, layout, between, alignment)
        for tensor, shape, between, alignment in zip(_NAMES[name], shapes, columns, alignments, strict=True)
    }
    x = views["x"]
    axes = axes_of(window, x.sizes, views["w"].sizes, views["y"].sizes)
    if axes is None:
        return None
    down, across = axes
    begin = (down.first * x.strides[2] + across.first * x.strides[3]) * item
    aligned_to = x.alignment if begin % x.alignment == 0 else item
    convolution = Convolution(
        name,
        dtype,
        tf32,
        View((*x.sizes[:2], down.size, across.size), x.strides, aligned_to),
        views["w"],
        views["y"],
        before=(down.before, across.before),
        after=(down.after, across.after),
        stride=window.stride,
        dilation=window.dilation,
        updates=updates,
        transforms=transforms,
    )
    is_partial = (down.size, across.size) != x.sizes[2:]
    is_equal = convolution.before == convolution.after
    if is_equal and not (is_partial and name == "conv2d_backward_filter"):
        return Call(convolution, begin, None, is_partial)
    padded = _padded(convolution, axes, item, layout)
    convolution = replace(convolution, x=padded.view, before=(0, 0), after=(0, 0))
    is_covered = x.sizes[2:] == tuple(axis.size for axis in padded.pixels)
    return Call(convolution, begin, padded, is_partial or not is_covered)


def _padded(of: Convolution, axes: tuple[Axis, Axis], item: int, layout: Layout) -> Padded:
    """The padded copy of images: windows begin at its first pixel and end at its last."""
    height, width = (
        (of.y.sizes[axis + 2] - 1) * of.stride[axis] + (of.w.sizes[axis + 2] - 1) * of.dilation[axis] + 1
        for axis in (0, 1)
    )
    sizes = (*of.x.sizes[:2], height, width)
    down, across = (
        replace(axis, size=min(axis.size, size - axis.before))
        for axis, size in zip(axes, (height, width), strict=True)
    )
    nbytes = aligned(math.prod(sizes) * item)
    shape = sizes if layout == "NCHW" else (*sizes[:1], *sizes[2:], sizes[1])
    return Padded(_view(shape, layout), (down, across), nbytes)


def _addresses(queue: Queue, routine: TileRoutine, call: Call) -> dict[str, int]:
    """The device addresses of a routine's tensors x, w and y."""
    tiles = (*routine.operands, routine.output)
    addresses = {name: queue.address(tile) for name, tile in zip(_NAMES[routine.name], tiles, strict=True)}
    if call.padded:
        return {**addresses, "x": _workspace(queue, routine).address}
    return {**addresses, "x": addresses["x"] + call.start}


def _workspace(queue: Queue, routine: TileRoutine) -> Place:
    """The address and size of the workspace of a routine."""
    tile = routine.workspace
    return Place(queue.address(tile), tile.nbytes) if tile else Place(0, 0)


def _behind(workspace: Place, padded: Padded) -> Place:
    """The part of the workspace after a padded copy of the images."""
    left = workspace.pitch - padded.nbytes
    if left < 0:
        raise LaunchError(
            f"a workspace of {workspace.pitch} bytes; images with padding have {padded.nbytes}\n"
            "routines need it for pieces with unequal padding\n"
            "leave out Options(workspace=...), or give more"
        )
    return Place(workspace.address + padded.nbytes, left)


def _copy_padded(queue: Queue, routine: TileRoutine, call: Call, padded: Padded) -> None:
    """Queue the copy of the images with zeros around them, at the start of the workspace."""
    workspace = _workspace(queue, routine)
    queue.clear(Place(workspace.address, padded.nbytes), padded.nbytes, 1)
    _copy_pixels(queue, routine, call, padded)


def _copy_pixels(
    queue: Queue, routine: TileRoutine, call: Call, padded: Padded, *, is_back: bool = False
) -> None:
    """Queue a copy of the images into their padded copy, or back."""
    shape, source = _images(routine)
    item, last = source.dtype.itemsize, routine.layout == "NHWC"
    (images, channels, height, width), strides = padded.view.sizes, padded.view.strides
    x, row = _view(shape, routine.layout), shape[3] if not last else shape[2] * shape[3]
    rows = _columns(source)[1] // row or x.sizes[2]
    pixel, planes = (channels, images) if last else (1, images * channels)
    down, across = padded.pixels
    start = (down.before * strides[2] + across.before * strides[3]) * item
    outside = Place(queue.address(source) + call.start, row * item)
    inside = Place(_workspace(queue, routine).address + start, width * pixel * item)
    width_bytes = across.size * pixel * item
    if is_back:
        queue.copy_volume(inside, outside, width_bytes, Volume(planes, down.size, height, rows))
    else:
        queue.copy_volume(outside, inside, width_bytes, Volume(planes, down.size, rows, height))


def _images(routine: TileRoutine) -> tuple[tuple[int, ...], Tile]:
    """The shape of a routine's images, and their tile."""
    if routine.name == "conv2d_backward_data":
        return routine.shapes[2], routine.output
    return routine.shapes[0], routine.operands[0]


def _columns(tile: Tile) -> tuple[int, int]:
    """The number of elements of a column, and of those from one column to the next; (0, 0) without gaps."""
    return (tile.rows, tile.stride) if tile.columns > 1 and tile.stride > tile.rows else (0, 0)


def _alignment(tile: Tile) -> int:
    """The alignment in bytes of a tile's address: the engines' if the address has it, else an element's."""
    address = getattr(tile.memory, "address", 0) + tile.offset
    return tile.dtype.itemsize if address % _ALIGNMENT else _ALIGNMENT


def _view(
    shape: tuple[int, ...], layout: Layout, columns: tuple[int, int] = (0, 0), alignment: int = _ALIGNMENT
) -> View:
    """A piece as (N, C, H, W); ``columns`` are elements and stride of its columns, (0, 0) without gaps."""
    rows, apart = columns
    steps = [math.prod(shape[axis + 1 :]) for axis in range(4)]
    steps = [step // rows * apart if rows and step >= rows else step for step in steps]
    order = (0, 1, 2, 3) if layout == "NCHW" else (0, 3, 1, 2)
    sizes, strides = (tuple(of[axis] for axis in order) for of in (shape, steps))
    return View(cast("Four", sizes), cast("Four", strides), alignment)
