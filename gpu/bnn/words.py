"""Bits between layers in the words that a scheme takes: of 32 bits, or of 64 (BSTC, section 7.3)."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TypeVar

from gpu.bnn.site import Site, blocks_of
from reference.types import PackedBits, PackedTensor
from reference.types.packed import WORD_DTYPES, Word, words_shape

Bits = TypeVar("Bits", PackedBits, PackedTensor)


def in_words(x: Bits, word: Word, site: Site) -> Bits:
    """The same bits in words of 32 or 64: a view of pixels that fill words of 64, else converted."""
    if x.word == word:
        return x
    shape, dtype = words_shape(x.layout, word, x.shape), WORD_DTYPES[word]
    *outer, bits = x.shape
    narrow = -(-bits // 32)
    if len(outer) > 1 and narrow % 2 == 0:
        return replace(x, words=x.words.view(shape, dtype), word=word)
    words = site.device.allocate(shape, dtype, "bits")
    defines = (f"TO_{word}", *(("VECTORS",) if len(outer) == 1 else ()))
    site.launch("words", "to_words", defines, blocks_of(prod(shape)), x.words, words, prod(outer), narrow)
    return replace(x, words=words, word=word)
