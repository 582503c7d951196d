"""Packed words of any size as Python integers."""

import numpy as np


def as_integers(packed):
    """The words of packed bits as an array of ints; those of several numbers are joined."""
    numbers = packed.words.astype(object)
    if packed.word <= 64:
        return numbers
    return sum(numbers[..., i] << 64 * i for i in range(packed.word // 64))


def dtype_of(word):
    """The dtype of the array of words."""
    return np.dtype(np.uint32 if word == 32 else np.uint64)
