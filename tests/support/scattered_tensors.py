"""Sparse tensors and numbers for tests of MTTKRP kernels."""

import functools

import numpy as np

from reference.types import Coo
from simwarp.verify.draw import Draw


@functools.cache
def numbers(*shape, dtype="float32", k=0):
    """Numbers between -1 and 1 with full mantissas and different neighbours."""
    draw = Draw(0, "numbers", k)
    words = np.array([draw.integer(-(2**62), 2**62) for _ in range(97)]) / 2.0**62
    x = np.resize(words, int(np.prod(shape)) + k)[k:].reshape(shape).astype(dtype)
    x.flags.writeable = False
    return x


@functools.cache
def scattered(shape, nonzeros, dtype="float32"):
    """A tensor with more nonzeros at low indices, some empty rows, and unsorted coordinates."""
    draw = Draw(1, "scattered", len(shape))
    places = {tuple(draw.integer(0, draw.integer(0, n - 1)) for n in shape) for _ in range(nonzeros)}
    coords = np.array(sorted(places, key=lambda place: place[::-1])).T
    return Coo(coords, numbers(coords.shape[1], dtype=dtype), shape)
