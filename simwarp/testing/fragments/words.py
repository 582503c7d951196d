"""Conversion of the elements of a fragment: numbers to words of the operand's type, words to text.

>>> words_of(np.array([1.0, -2.0]), "f16", 16).tolist(), words_of(np.array([-1, 7]), "s4", 4).tolist()
([15360, 49152], [15, 7])
>>> spelled(0xC000, "f16", 16), spelled(0xF, "s4", 4), spelled(1, "b1", 1)
('0xc000 (-2.0)', '0xf (-1)', '1')
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError
from simwarp.floats.formats import FORMATS, FormatName
from simwarp.floats.small_formats import narrow, widen

_NATIVE = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64), "b16": np.dtype(np.float16)}


def words_of(elements: npt.ArrayLike, kind: str, bits: int) -> npt.NDArray[Any]:
    """Convert elements to words: uint8 for up to 8 bits, else unsigned words as wide as an element."""
    given = np.asarray(elements)
    word = np.dtype(f"u{max(bits // 8, 1)}")
    if given.dtype.kind == "f":
        return _words_of_floats(given, kind, word)
    if given.dtype.kind == "b":
        given = given.astype(np.uint8)
    if given.dtype.kind != "u" and (given.dtype.kind != "i" or kind in FORMATS):
        raise DtypeError(
            f"elements of {given.dtype} for an operand of type {kind}\n"
            f"numbers of a float type must be floats, words unsigned integers\n"
            f"give floats, or the words as {word}"
        )
    least = 0 if given.dtype.kind == "u" else -(1 << bits - 1)
    if given.size and (int(given.min()) < least or int(given.max()) >= 1 << bits):
        raise DtypeError(
            f"elements from {given.min()} to {given.max()} for an operand of type {kind}\n"
            f"an element has {bits} bit{'s' * (bits > 1)}\ngive elements that fit"
        )
    mask = word.type((1 << bits) - 1)
    return given.astype(word) & mask


def _words_of_floats(given: npt.NDArray[Any], kind: str, word: np.dtype[Any]) -> npt.NDArray[Any]:
    """Convert floats to words; raise DtypeError unless the conversion is exact."""
    if kind in _NATIVE:
        native = given.astype(_NATIVE[kind])
        words, back = native.view(word), native
    elif kind in FORMATS:
        name = cast("FormatName", kind)
        words = narrow(given.astype(np.float64), name)
        back = widen(words, name)
    else:
        raise DtypeError(
            f"floats for an operand of type {kind}\nits elements are integers\ngive an array of integers"
        )
    changed = (back != given) & (given == given)
    if changed.any():
        raise DtypeError(
            f"{given[changed][0]} is not exact in {'f16' if kind == 'b16' else kind}\n"
            f"{np.count_nonzero(changed)} of {given.size} elements would be rounded\n"
            f"round them first, or give words as {word}"
        )
    return words


def decoded(word: int, kind: str, bits: int) -> int | float:
    """The number that a word of a PTX type represents."""
    if kind in ("f32", "f64"):
        return float(np.array(word, f"u{bits // 8}").view(_NATIVE[kind]))
    if kind in FORMATS:
        return float(widen(np.array(word, FORMATS[kind].word), cast("FormatName", kind)))
    return word - (1 << bits) if kind.startswith("s") and word >> bits - 1 else word


def spelled(word: int, kind: str, bits: int) -> str:
    """A word as text: hex and number; a single bit as 0 or 1, an untyped b16 also as f16."""
    if bits == 1:
        return str(word)
    number = f"{decoded(word, kind, bits)}"
    if kind == "b16":
        number += f"; as f16 {decoded(word, 'f16', bits)}"
    return f"0x{word:0{-(-bits // 4)}x} ({number})"
