"""The cases of bit packing: each layout, word size and bit order; lines for tensor cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

import gpu
import reference
from gpu.bmm.lines import lines_ptx, pack_lines
from gpu.bmm.packing import packing_ptx
from reference.types import First, Layout, Word
from reference.types.packed import FIRSTS, WORDS, parts_of
from simwarp import lanes
from simwarp.draw.formats import element
from simwarp.listings.checks import real
from simwarp.listings.packing import pack
from simwarp.verify.case import Answer, Case
from simwarp.verify.draw import DTYPES, Draw


@dataclass(frozen=True)
class Input:
    """A matrix and the format to pack it in."""

    x: npt.NDArray[Any]
    layout: Layout
    first: First = "msb"
    word: Word = 32


_PAPERS: tuple[Word, ...] = (32, 64)
"""The word sizes that share cases; every other one has its own, so that their recordings stay as they are."""


def _draw(layout: Layout, draw: Draw) -> Input:
    rows, columns = draw.sizes(2)
    if draw.integer(0, 1):  # kernels have a variant for rows aligned to 16 bytes
        columns = -(-columns // 16) * 16
    return Input(draw.matrix(rows, columns, draw.choice(DTYPES)), layout, "msb", _PAPERS[draw.k // 5 % 2])


def _draw_lsb(draw: Draw) -> Input:
    layouts: tuple[Layout, Layout] = ("column", "row")
    layout = draw.choice(layouts)
    return replace(_draw(layout, draw), first="lsb")


def _draw_long(word: Word, draw: Draw) -> Input:
    return replace(_draw_lsb(draw), word=word, first=draw.choice(FIRSTS))


def _draw_lines(draw: Draw) -> Input:
    """Lines along rows ("column": words hold elements of a row), or along columns."""
    return replace(_draw_lsb(draw), word=32)


def _describe(item: Input) -> str:
    rows, columns = item.x.shape
    return f"{item.x.dtype} {rows} x {columns}, {item.layout}-major-{item.word}, first {item.first}"


def _by_reference(item: Input) -> npt.NDArray[Any]:
    return reference.pack(item.x, layout=item.layout, word=item.word, first=item.first).words


def _by_listing(item: Input) -> npt.NDArray[Any]:
    words = pack(real(item.x, "x"), item.layout, item.word).words  # in the paper's order, "msb"
    return words if item.first == "msb" else lanes.brev(words)[..., :: -1 if parts_of(item.word) else 1]


def _by_gpu(item: Input, device: gpu.Device) -> npt.NDArray[Any]:
    return gpu.pack(item.x, layout=item.layout, word=item.word, first=item.first, device=device).words


def _explain(item: Input, index: tuple[int, ...], bit: int) -> str:
    """Describe an output: the matrix element that a bit of a word holds."""
    row, column = element(index, bit, layout=item.layout, word=item.word, first=item.first)
    inside = row < item.x.shape[0] and column < item.x.shape[1]
    return f"element ({row}, {column})" + (f" = {item.x[row, column]}" if inside else ", which is padding")


def _lead(item: Input, bits: tuple[int, ...]) -> int:
    return max(bits) if item.first == "msb" else min(bits)


def _kernels(firsts: tuple[First, ...], words: tuple[Word, ...], arch: tuple[int, int]) -> dict[str, str]:
    compiled = [
        packing_ptx(dtype, word, first, arch) for dtype in DTYPES for word in words for first in firsts
    ]
    return {ptx.name: ptx.sha256 for ptx in compiled}


def _lines_by_reference(item: Input) -> npt.NDArray[Any]:
    """The packed words of each line, by the definition, padded with zeros to a multiple of 128 bits."""
    words = _by_reference(item).T
    return np.pad(words, ((0, 0), (0, -words.shape[1] % 4)))


def _lines_by_gpu(item: Input, device: gpu.Device) -> npt.NDArray[Any]:
    words = pack_lines(item.x, "x", int(item.layout == "row"), device)[1]
    return words.download().reshape(words.shape[0], -1)


def _explain_lines(item: Input, index: tuple[int, ...], bit: int) -> str:
    return _explain(item, index[::-1], bit)


def _kernels_of_lines(arch: tuple[int, int]) -> dict[str, str]:
    compiled = [lines_ptx(dtype, arch) for dtype in DTYPES]
    return {ptx.name: ptx.sha256 for ptx in compiled}


_OUTPUTS = {"gpu": "words of x", "listing": "B"}
_ANSWERS = {"reference": _by_reference, "listing": _by_listing, "gpu": _by_gpu}
_LSB_ANSWERS = {"reference": _by_reference, "gpu": _by_gpu}  # the listings have only the paper's bit order


def _case(
    name: str,
    draw: Callable[[Draw], Input],
    answers: Mapping[str, Answer],
    *firsts: First,
    words: tuple[Word, ...] = _PAPERS,
) -> Case:
    kernels = partial(_kernels, firsts, words)
    shape = attrgetter("x.shape")
    return Case(name, draw, shape, _describe, answers, _OUTPUTS, _explain, _lead, kernels)


CASES = [
    _case("pack-column", partial(_draw, "column"), _ANSWERS, "msb"),
    _case("pack-row", partial(_draw, "row"), _ANSWERS, "msb"),
    _case("pack-lsb", _draw_lsb, _LSB_ANSWERS, "lsb"),
    *(
        _case(f"pack-{word}", partial(_draw_long, word), _ANSWERS, *FIRSTS, words=(word,))
        for word in WORDS
        if word not in _PAPERS
    ),
    Case(
        "pack-lines",
        _draw_lines,
        attrgetter("x.shape"),
        _describe,
        {"reference": _lines_by_reference, "gpu": _lines_by_gpu},
        {"gpu": "lines of x"},
        _explain_lines,
        _lead,
        _kernels_of_lines,
    ),
]
