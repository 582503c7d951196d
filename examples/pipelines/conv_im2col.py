"""A convolution on warpgroups; pixels arrive through an im2col tensor map: `conv_im2col.cu`.

A shape is (N, H, W, C, K, R, S, stride, padding of H, padding of W).
"""

import math
import sys

import numpy as np
from pipelines import Example, divide_up, eighths, main, pitched, ptx

from reference.devices.tensor_map import Im2col
from simwarp.verify import Draw

ARCH = (9, 0)
TILE, CHANNELS, THREADS, STAGES = 64, 64, 160, 4
SPAN = 2 * CHANNELS
"""Bytes of a row of a tile, and of the swizzle."""
SIGNAL = 16
"""Bytes of the two mbarriers of a stage."""


def conv2d(device, images, filters, stride=1, padding=(0, 0), stages=STAGES):
    """The convolution of float16 images (N, H, W, C) with filters (K, R, S, C) → float32 (N, P, Q, K).

    The padding is that of H and of W, on either side. There are at least two stages.
    """
    (n, *sizes, c), (k, *taps, _) = images.shape, filters.shape
    p, q = ((size + 2 * pad - tap) // stride + 1 for size, pad, tap in zip(sizes, padding, taps, strict=True))
    lower = tuple(-pad for pad in padding)
    upper = tuple(pad - tap + 1 for pad, tap in zip(padding, taps, strict=True))
    kernel = device.load(ptx("conv_im2col", ARCH, {"STAGES": stages}).text).kernel("conv_im2col")
    given = device.upload(pitched(images), "images"), device.upload(pitched(filters), "filters")
    result = device.allocate((n, p, q, k), np.float32, "result")
    box = Im2col(lower, upper, channels=CHANNELS, pixels=TILE)
    kernel(
        (divide_up(n * p * q, TILE), divide_up(k, TILE), 1),
        (THREADS, 1, 1),
        mapped(device, given[0], c, im2col=box, element_strides=(1, stride, stride, 1)),
        mapped(device, given[1], c, box=(TILE, 1, 1, CHANNELS)),
        result,
        np.array((n, p, q, k, *taps, c, stride, *padding), np.int32).tobytes(),
        shared=stages * (2 * TILE * SPAN + SIGNAL),
    )
    return result.download()


def mapped(device, tensor, channels, **box):
    """A tensor map of the channels of a pitched tensor."""
    strides = [tensor.dtype.itemsize * math.prod(tensor.shape[i:]) for i in (1, 2, 3)]
    shape = (*tensor.shape[:3], channels)
    return device.tensor_map(tensor, shape=shape, strides=strides, swizzle=SPAN, **box)


def draw(shape, seed):
    (n, height, width, c, k, r, s, *_), source = shape, Draw(seed, "conv_im2col", 0)
    return [eighths(source, *x).astype(np.float16) for x in ((n, height, width, c), (k, r, s, c))]


def run(device, shape, seed):
    return conv2d(device, *draw(shape, seed), stride=shape[7], padding=shape[8:])


def expected(shape, seed):
    images, filters = (x.astype(np.float64) for x in draw(shape, seed))
    stride, (pad_h, pad_w), (r, s) = shape[7], shape[8:], filters.shape[1:3]
    padded = np.pad(images, ((0, 0), (pad_h, pad_h), (pad_w, pad_w), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (r, s), (1, 2))[:, ::stride, ::stride]
    return np.einsum("npqcrs,krsc->npqk", windows, filters).astype(np.float32) + np.float32(0)  # no -0


SHAPES = ((2, 9, 7, 24, 40, 3, 3, 1, 1, 1), (3, 8, 9, 24, 70, 5, 3, 2, 2, 1), (2, 6, 7, 72, 9, 1, 1, 1, 0, 0))
EXAMPLE = Example("conv_im2col", ARCH, SHAPES, run, expected)

if __name__ == "__main__":
    sys.exit(main(EXAMPLE))
