"""Hypothesis strategies for the operands of convolutions, packed tensors and pools.

Needs Hypothesis: ``pip install 'simwarp[test]'``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

import reference
from reference.tensors import to_tiles
from reference.types import PackedTensor, TensorLayout, Word
from reference.types.arguments import check_option
from simwarp.testing import parts
from simwarp.testing.geometries import conv_geometries
from simwarp.verify.draw import DTYPES, Draw
from simwarp.verify.geometries import Geometry

Pool: TypeAlias = Literal["or", "and"]
_WORDS: tuple[Word, ...] = (32, 64)
_MANY = 2**14
"""Products of a sum whose largest value is worth a try more often than others."""
_LAYOUTS: tuple[TensorLayout, ...] = ("NHWC", "HWOI")


class ConvOperands(NamedTuple):
    """The arguments of ``bconv2d``: ``bconv2d(x, w, **geometry.options)``."""

    x: Any
    w: Any
    geometry: Geometry


def conv_operands(
    geometries: st.SearchStrategy[Geometry] | None = None,
    *,
    dtypes: Sequence[npt.DTypeLike] = DTYPES,
    packed: bool = True,
) -> st.SearchStrategy[ConvOperands]:
    """Images and filters of a convolution. Shrinks to zeros of the smallest geometry.

    Filters shrink to 0 and -1 by turns, as on a chessboard, and exchanged where a word of channels begins: a
    tap or word in the place of another is seen.

    Each operand is independently real or packed. Often all products of a filter have one sign, so that a sum
    is as large as it can be; most often where it has many products.

    Parameters
    ----------
    geometries : strategy for Geometry, optional
        By default `conv_geometries`.
    dtypes : sequence
        The dtypes of real operands; empty for packed operands only.
    packed : bool
        Whether operands may be packed, NHWC and HWOI in words of 32 or 64 bits.

    Raises
    ------
    DtypeError
        As `simwarp.testing.strategies.real_matrices`.

    Examples
    --------
    >>> from hypothesis import find
    >>> found = find(conv_operands(), lambda drawn: drawn.geometry.excluded.any())
    >>> found.x.tolist(), found.w.tolist(), found.geometry.pads
    ([[[[0.0]]]], [[[[0.0]]]], ((0, 0), (0, 1)))
    """
    kinds = [*parts.checked_dtypes(dtypes, may_be_empty=packed), *["packed"] * packed]
    drawn = conv_geometries() if geometries is None else geometries

    @st.composite
    def operands(draw: st.DrawFn) -> ConvOperands:
        geometry = draw(drawn)
        many = prod(geometry.filters[:3]) >= _MANY
        sign = draw(st.sampled_from((0, 1, -1, 1, -1) if many else (0, 0, 0, 1, -1)))
        x, w = (
            _operand(draw, shape, layout, draw(st.sampled_from(kinds)), sign)
            for shape, layout in zip((geometry.images, geometry.filters), _LAYOUTS, strict=True)
        )
        return ConvOperands(x, w, geometry)

    return operands()


def packed_tensors(
    shape: Sequence[int], *, layout: TensorLayout = "NHWC", word: Word | None = None
) -> st.SearchStrategy[PackedTensor]:
    """Packed tensors (N, H, W, C) or (R, S, C, O), padded with zeros. Shrinks to bits 0 in words of 32.

    Parameters
    ----------
    shape : sequence of four int
    layout : {"NHWC", "HWOI", "HWNC-FSB", "HWOI-FSB"}
        Tiles of 8 × 128 bits, FSB, have words of 32 bits.
    word : {32, 64}, optional
        By default both.

    Raises
    ------
    SchemeError
        For an unknown layout or word.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(packed_tensors((1, 1, 1, 40)), lambda x: True).words
    array([[[[0, 0]]]], dtype=uint32)
    """
    check_option("layout", layout, (*_LAYOUTS, "HWNC-FSB", "HWOI-FSB"), "it is that of the drawn tensors")
    check_option("word", word or 32, _WORDS, "it is that of the drawn tensors")
    words: tuple[Word, ...] = (32,) if layout.endswith("FSB") else _WORDS if word is None else (word,)

    @st.composite
    def tensors(draw: st.DrawFn) -> PackedTensor:
        return _packed(draw, shape, layout, draw(st.sampled_from(words)))

    return tensors()


def pools(geometry: Geometry) -> st.SearchStrategy[Pool | None]:
    """The values of ``pool`` that ``bconv2d`` takes for a geometry. Shrinks to None.

    Windows of 2 × 2 pixels are pooled, so that a smaller output has None only.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(pools(Geometry((1, 3, 3, 1), (2, 2, 1, 1))), lambda pool: pool is not None)
    'or'
    """
    several: tuple[Pool | None, ...] = (None, "or", "and")
    return st.sampled_from(several if min(geometry.out) > 1 else (None,))


def _operand(
    draw: st.DrawFn, shape: tuple[int, int, int, int], layout: TensorLayout, kind: str, sign: int
) -> Any:
    """Draw images or filters; with a sign, an image has it or its opposite throughout, a filter its own.

    What a sign replaces is drawn all the same, so that shrinking can drop the sign and keep the rest.
    """
    *outer, last = shape
    images = layout == "NHWC"  # of signs by turns, so that a pixel of another image is a wrong one
    signs = (
        np.where(np.arange(shape[0]) % 2, -sign, sign)[:, None, None, None] if images else draw(_signs(last))
    )
    alike = np.broadcast_to(signs, shape)
    if kind == "packed":
        packed = draw(packed_tensors(shape, layout=layout))
        if not sign and (images or packed.words.any()):
            return packed
        signs = alike.astype(np.int8) if sign else -1 - _by_turns(shape)
        return reference.pack_tensor(signs, layout=layout, word=packed.word)
    real = parts.real(draw, (prod(outer), last), kind).reshape(shape)
    if sign:
        return alike.astype(kind)
    return real if images or real.any() else _by_turns(shape).astype(kind)


def _by_turns(shape: Sequence[int]) -> npt.NDArray[np.int8]:
    """Filters (R, S, C, O) of 0 and -1: by turns over taps, exchanged where a word of channels begins."""
    rows, columns, channels = np.indices(shape[:3])
    begins = (channels > 0) & (channels % 32 == 0)
    return np.broadcast_to(-((rows + columns + begins) % 2)[..., None], shape).astype(np.int8)


def _signs(count: int) -> st.SearchStrategy[npt.NDArray[np.int8]]:
    """Signs drawn from a seed; seed 0 makes all of them 1."""

    def of_seed(seed: int) -> npt.NDArray[np.int8]:
        negative = Draw(seed, "signs", 0).words(count) % np.uint64(2) == 1 if seed else np.zeros(count, bool)
        return np.where(negative, -1, 1).astype(np.int8)

    return parts.SEEDS.map(of_seed)


def _packed(draw: st.DrawFn, shape: Sequence[int], layout: TensorLayout, word: Word) -> PackedTensor:
    """Draw bits along the channels; the FSB layouts are tiled from NHWC and HWOI."""
    if layout in ("NHWC", "HWNC-FSB"):
        (*outer, channels), lines = shape, 0
    else:
        height, width, channels, filters = shape
        outer, lines = [height, width, filters], 2
    matrix = parts.packed(draw, (channels, prod(outer)), {"layout": "row", "word": word, "first": "lsb"})
    words = matrix.words.T.reshape(*outer, -1)
    if layout.endswith("FSB"):
        words = to_tiles(np.moveaxis(words, lines, 2), 8, 4)
    return PackedTensor(np.ascontiguousarray(words), (*shape,), layout, word, "lsb")  # pyright: ignore[reportArgumentType]
