"""Checks of the listings' operands: arrays of real numbers, whose signs are packed, and packed bits.

Source: BSTC (SC'19), sections 5.1 and 5.2.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, FormatError, NotANumberError, SchemeError, ShapeError
from reference.types import PackedBits, PackedTensor, Word
from reference.types.packed import FIRSTS, LAYOUTS, WORD_DTYPES, words_shape

Array: TypeAlias = npt.NDArray[Any]
Packed = TypeVar("Packed", PackedBits, PackedTensor)

MAX_ELEMENTS = 2**31 - 1
"""The most elements of a tensor: the kernels' indices are ``int``."""

_REAL = (np.float64, np.float32, np.float16, np.int8)


class _Format(NamedTuple):
    """A layout of packed bits in messages: its axes, a word's contents, the scheme that needs it."""

    axes: str
    unit: str
    scheme: str


FORMATS = {
    "column": _Format("(rows, columns)", "columns", "BMM"),
    "row": _Format("(rows, columns)", "rows", "BMM"),
    "NHWC": _Format("(batch, height, width, channels)", "channels", "BConv"),
    "HWIO": _Format("(height, width, in_channels, out_channels)", "channels", "BConv"),
}


def checked(x: Any, kind: type[Packed], name: str, layout: str, word: Word) -> Array | Packed:
    """Check an operand: packed bits of this kind, layout and word size, or an array of real numbers."""
    if not isinstance(x, kind):
        return real(x, name, layout)
    check_packed(x, name, layout, word)
    return x


def real(x: npt.ArrayLike, name: str, layout: str = "row") -> Array:
    """Check an array of real numbers without NaN, and return it uncast; ``name`` is for messages."""
    axes = FORMATS[layout].axes
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise ShapeError(f"{name} is not an array\n{error}\ngive {axes}, rows of the same length") from error
    if array.dtype.type not in _REAL:
        raise DtypeError(
            f"{name} has elements of {array.dtype}\nonly the signs of real numbers are packed\n"
            "give float64, float32, float16 or int8, or packed bits"
        )
    _check_shape(name, array.shape, axes)
    missing = np.isnan(array)
    if missing.any():
        at = ", ".join(str(i) for i in np.argwhere(missing)[0])
        raise NotANumberError(
            f"{name}[{at}] is NaN\na NaN is neither >= 0 nor < 0, so it has no sign\n"
            f"replace it first, for instance with np.nan_to_num({name})"
        )
    return array


def check_packed(
    packed: PackedBits | PackedTensor, name: str, layout: str, word: Word, *, to_multiply: bool = True
) -> None:
    """Raise unless packed bits have this layout, fitting words and, ``to_multiply``, zeros past the edge."""
    form, shape = FORMATS[layout], tuple(packed.shape)
    scheme = f"{form.scheme}-{word}" if to_multiply else "this listing"
    if (packed.layout, packed.word) != (layout, word) or packed.first not in FIRSTS:
        raise FormatError(
            f"{name} is packed layout={packed.layout!r}, word={packed.word}, first={packed.first!r}\n"
            f"{scheme} needs layout={layout!r}, word={word}, first='msb' (or 'lsb' in both operands)\n"
            f"repack {name} with that layout{f', or check transpose_{name}' * scheme.startswith('BMM')}"
        )
    _check_shape(name, shape, form.axes)
    on_host = isinstance(packed.words, np.ndarray)
    if not on_host:
        raise FormatError(
            f"{name} has words that are not a NumPy array\nlistings run on the host\ncopy the words there"
        )
    words: Array = packed.words
    along = LAYOUTS[layout].along
    length, dtype, expected = shape[along], WORD_DTYPES[word], words_shape(packed.layout, word, shape)
    if words.dtype != dtype or words.shape != expected:
        raise FormatError(
            f"{name} has words {words.dtype} {words.shape}, but a shape of {shape} needs {dtype} {expected}\n"
            f"with layout={layout!r}, word={word}\ncorrect the shape, or repack {name}"
        )
    padding = -length % word
    past_the_edge = ((1 << padding) - 1) << (word - padding if packed.first == "lsb" else 0)
    last = words.take(-1, LAYOUTS[layout].order.index(along))
    if to_multiply and np.any(last & dtype.type(past_the_edge)):
        raise FormatError(
            f"{name} has bits past its {length} {form.unit} that are not 0\n"
            "they would count wherever the operands differ in them\n"
            f"clear them, or repack {name}"
        )


def check_choice(option: str, given: object, known: tuple[object, ...]) -> None:
    """Raise SchemeError unless an option has one of the known values."""
    if given not in known:
        raise SchemeError(f"there is no {option}={given!r}: choose one of {', '.join(map(repr, known))}")


def check_alike(names: str, first: str, of_other: str) -> None:
    """Raise FormatError unless both operands of a product have the same bit order."""
    if first != of_other:
        raise FormatError(
            f"{names[0]} has first={first!r} and {names[1]} has first={of_other!r}\n"
            "both operands need the same bit order\n"
            "repack one of them; real numbers are packed with first='msb'"
        )


def check_size(name: str, shape: tuple[int, ...]) -> None:
    """Raise ShapeError for arrays that are too large for 32-bit indices."""
    elements = math.prod(shape)
    if elements > MAX_ELEMENTS:
        raise ShapeError(
            f"{name} has shape {shape}, {elements} elements\nindices are 32-bit integers\n"
            f"give at most {MAX_ELEMENTS} elements: split the batch or the channels"
        )


def _check_shape(name: str, shape: tuple[int, ...], axes: str) -> None:
    count = axes.count(",") + 1
    if len(shape) != count or min(shape) < 1:
        raise ShapeError(
            f"{name} has shape {shape}\n{count} axes are needed, none of size 0\ngive {axes}, each at least 1"
        )
    if count == 4:
        check_size(name, shape)
