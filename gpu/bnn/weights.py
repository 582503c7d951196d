"""Conversion of weights from any packed format to the formats that kernels read."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gpu.bconv.packing import lines_of
from gpu.bmm.packing import numbers_of
from gpu.device import is_array
from reference.types import First, PackedBits, PackedTensor, Word
from reference.types.layers import Conv, Dense
from reference.types.packed import WORD_DTYPES

Bits: TypeAlias = npt.NDArray[np.uint8]


def matrix_along_k(weights: PackedBits, word: Word = 32) -> PackedBits:
    """Weights (F, O) as words of 32 or 64 bits along F, the first bit lowest: `gpu.bmm`'s b."""
    if (weights.layout, weights.word, weights.first) == ("row", word, "lsb"):
        return weights
    return PackedBits(_words_along_k(_bits_of_matrix(weights), word), weights.shape, "row", word, "lsb")


def filters_along_c(filters: PackedTensor) -> PackedTensor:
    """Filters as words of 32 bits along their channels, the first bit lowest: `gpu.bconv2d`'s w."""
    if (filters.layout, filters.word, filters.first) == ("HWOI", 32, "lsb"):
        return filters
    return packed_filters(_bits_of_filters(filters))


def packed_filters(filters: Bits) -> PackedTensor:
    """Bits (R, S, C, O) as words of 32 bits along C, the first bit lowest."""
    shape, bits = filters.shape, np.moveaxis(filters, 2, 0)  # (C, R, S, O)
    words = _words_along_k(bits.reshape(len(bits), -1)).reshape(-1, *bits.shape[1:])
    return PackedTensor(np.ascontiguousarray(np.moveaxis(words, 0, 3)), shape, "HWOI", 32, "lsb")


def signs_of(layer: Conv | Dense) -> npt.NDArray[np.int8]:
    """The weights of a layer as 1 and -1, (K, O); in groups, 0 for channels of other groups."""
    if isinstance(layer, Dense):
        return 2 * _bits_of_matrix(layer.weights).astype(np.int8) - 1
    signs = 2 * _bits_of_filters(layer.filters).astype(np.int8) - 1
    rows, columns, channels, outputs = signs.shape
    groups, each = layer.groups, np.arange(layer.groups)
    whole = np.zeros((rows * columns, groups, channels, groups, outputs // groups), np.int8)
    whole[:, each, :, each] = np.moveaxis(signs.reshape(rows * columns, channels, groups, -1), 2, 0)
    return whole.reshape(-1, outputs)


def shape_of(layer: Conv) -> tuple[int, int, int, int]:
    """The shape of filters over the channels of all groups."""
    rows, columns, channels, outputs = layer.filters.shape
    return rows, columns, channels * layer.groups, outputs


def _words_along_k(bits: Bits, word: Word = 32) -> npt.NDArray[Any]:
    """Bits (K, O) as words (ceil(K / word), O), the first bit lowest, 0 past K."""
    k, outputs = bits.shape
    padded = np.zeros((-(-k // word) * word, outputs), np.uint8)
    padded[:k] = bits
    eights = np.packbits(padded, axis=0, bitorder="little").reshape(-1, word // 8, outputs)
    words = np.ascontiguousarray(eights.transpose(0, 2, 1)).view(f"<u{word // 8}")[..., 0]
    return words.astype(WORD_DTYPES[word])


def _bits_of_matrix(weights: PackedBits) -> Bits:
    """Unpack weights to a matrix (F, O) of bits."""
    rows, columns = weights.shape
    along = rows if weights.layout == "row" else columns
    host = PackedBits(_on_host(weights.words), weights.shape, weights.layout, weights.word, weights.first)
    bits = _bits_of_numbers(numbers_of(host, 32), weights.first).swapaxes(1, 2)  # (numbers, bits, lines)
    lines = bits.reshape(-1, bits.shape[2])[:along]
    return lines if weights.layout == "row" else lines.T


def _bits_of_filters(filters: PackedTensor) -> Bits:
    """The bits (R, S, C, O) of packed filters."""
    _, _, channels, outputs = filters.shape
    host = PackedTensor(_on_host(filters.words), filters.shape, filters.layout, filters.word, filters.first)
    bits = _bits_of_numbers(lines_of(host)[:, :, :outputs], filters.first)
    return bits.reshape(*bits.shape[:3], -1)[..., :channels].swapaxes(2, 3)


def _bits_of_numbers(numbers: npt.NDArray[Any], first: First) -> Bits:
    """The bits of unsigned numbers, in a new last dimension, the first one first."""
    little = np.ascontiguousarray(numbers, numbers.dtype.newbyteorder("<"))[..., None].view(np.uint8)
    bits = np.unpackbits(little, axis=-1, bitorder="little")
    return bits if first == "lsb" else bits[..., ::-1]


def _on_host(words: Any) -> Any:
    return words.download() if is_array(words) else words
