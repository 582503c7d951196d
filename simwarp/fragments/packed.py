"""Splitting of words into elements of 1 to 64 bits, and joining of elements into words."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, ShapeError

Words: TypeAlias = npt.NDArray[Any]


def split(words: Words, bits: int) -> Words:
    """Split words into elements along the last axis, the lowest bits first."""
    if bits == 1:
        return np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little")
    if bits == 4:
        octets = words.view(np.uint8)
        return np.stack([octets & 0xF, octets >> 4], axis=-1).reshape(
            *octets.shape[:-1], 2 * octets.shape[-1]
        )
    return words.view(f"u{bits // 8}")


def join(elements: Words, bits: int, word_bits: int) -> Words:
    """Join elements, or the low bits of elements narrower than a byte, to words."""
    if bits == 1:
        elements = np.packbits(elements & 1, axis=-1, bitorder="little")
    if bits == 4:
        elements = elements[..., 0::2] & 0xF | elements[..., 1::2] << 4
    return elements.view(f"u{word_bits // 8}")


def unsigned_words(array: Words, shape: tuple[int, ...], bits: int, what: str) -> Words:
    """View an array as contiguous unsigned words; refuse other shapes and widths."""
    array = np.asarray(array)
    if array.shape[-len(shape) :] != shape:
        raise ShapeError(
            f"{what} of shape {array.shape}\nthe last axes of this operand's {what} are {shape}\n"
            "move the axes of more warps to the front"
        )
    if array.dtype.itemsize * 8 != bits or array.dtype.kind not in "uif":
        raise DtypeError(
            f"{what} of type {array.dtype}\nthis operand's {what} are words of {bits} bits\n"
            f"convert them to uint{bits}, or view them as uint{bits}"
        )
    return np.ascontiguousarray(array).view(f"u{bits // 8}")
