"""The device memory that tile routines on GPUs need besides their pieces."""

from __future__ import annotations

import math
from collections.abc import Mapping

from gpu.outofcore.halo import span
from gpu.outofcore.on_host import Window
from gpu.outofcore.padding import axes_of
from gpu.outofcore.problem import Problem, Tensor

ALIGNMENT = 256
IMAGES = 16
"""Images that one of Winograd's transforms covers, except for the gradient of filters."""
SMALL = 1 << 14
"""Bytes, for tables of engines that convert nothing."""


def workspace_of(
    problem: Problem, nbytes: Mapping[Tensor, int], planes: int, rows: int | None, images: int = IMAGES
) -> int:
    """The bytes of the workspace, computed unless the problem sets them.

    It holds a piece of each tensor in the other layout, into which cuDNN converts them for most engines,
    except those for float32 without TF32 in NCHW; a piece of each tensor behind transforms, if they are
    allowed; and a copy of the images if their padding is unequal: see `gpu.outofcore.on_cuda`. A piece of
    each tensor has ``nbytes``; its images are ``images``, its images times channels ``planes``, its rows
    ``rows`` (None for all): rows of the images for their gradient, else of the convolution's result.
    """
    if problem.workspace is not None:
        return aligned(problem.workspace)
    is_plain = problem.layout == "NCHW" and problem.dtype.itemsize == 4 and not problem.tf32
    converted = 0 if is_plain and problem.form.output != "w" else sum(nbytes.values())
    transformed = _transformed(problem, nbytes, images) if problem.transforms else 0
    return aligned(SMALL + max(converted, transformed)) + _padded(problem, planes, rows)


def aligned(nbytes: int) -> int:
    """Round bytes up to the next multiple of the alignment of tensors.

    >>> aligned(257)
    512
    """
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _transformed(problem: Problem, nbytes: Mapping[Tensor, int], images: int) -> int:
    """The bytes of one piece of each tensor after Winograd's transforms, or Fourier's for larger filters.

    Tiles overlap by the rows of the filters less 1, and may reach beyond the edges. Winograd's transforms
    fill up the images of a piece; fewer than half of them go to other engines, which are as fast.
    """
    plane = problem.plane
    taps = plane.filter_height, plane.filter_width
    largest = max(taps)
    if max(plane.stride_h, plane.stride_w, plane.dilation_h, plane.dilation_w) > 1 or not 3 <= largest <= 16:
        return 0
    tile, numbers = (6, 36) if largest == 3 else (32, 32 * 17 * 2)
    covered = 1.0
    for size, of in zip((plane.out_height, plane.out_width), taps, strict=True):
        covered *= -(-size // (tile - of + 1)) / size
    if largest == 3 and problem.form.output != "w":
        if images < IMAGES // 2:
            return 0
        covered *= -(-images // IMAGES) * IMAGES / images
    transformed = covered * numbers * (nbytes["x"] + nbytes["y"]) + numbers / math.prod(taps) * nbytes["w"]
    return math.ceil(transformed)


def _padded(problem: Problem, planes: int, rows: int | None) -> int:
    """The bytes of the padded copy of a piece's images; 0 if no piece needs one."""
    plane = problem.plane
    if rows is None and not _is_unequal(problem):
        return 0
    outputs = rows or plane.out_height
    if rows and problem.form.output == "x":
        outputs = min((rows + span(plane) - 2) // plane.stride_h + 1, plane.out_height)
    height = (outputs - 1) * plane.stride_h + span(plane)
    width = (plane.out_width - 1) * plane.stride_w + (plane.filter_width - 1) * plane.dilation_w + 1
    return aligned(planes * height * width * problem.dtype.itemsize)


def _is_unequal(problem: Problem) -> bool:
    """True if the padding of whole images differs between opposite sides."""
    plane = problem.plane
    strides, dilations = (plane.stride_h, plane.stride_w), (plane.dilation_h, plane.dilation_w)
    axes = axes_of(
        Window((plane.pad_top, plane.pad_left), strides, dilations, 1),
        (1, 1, plane.height, plane.width),
        (1, 1, plane.filter_height, plane.filter_width),
        (1, 1, plane.out_height, plane.out_width),
    )
    if axes is None:
        return False
    sizes = plane.height, plane.width
    return any(axis.before != axis.after or axis.size != size for axis, size in zip(axes, sizes, strict=True))
