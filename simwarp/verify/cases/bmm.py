"""The cases of the ±1 matrix product: every scheme, transpose and output, with mixed dtypes and packing.

The number of an input determines scheme, transposes, output and kind of size, so that the first inputs cover
every combination: 160 for the schemes on CUDA cores, 120 for those on bit tensor cores, 40 each for that on
warpgroups, the one for few rows or columns, and the one through a ring. Each of the five is a case.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

import gpu
import reference
from gpu.bmm.fsb import fsb_ptx
from gpu.bmm.lines import lines_ptx
from gpu.bmm.packing import packing_ptx
from gpu.bmm.schemes import (
    RING_SCHEMES,
    SCHEMES,
    TENSOR_CORE_SCHEMES,
    AnyScheme,
    Scheme,
    choose_scheme,
    product_ptx,
)
from gpu.bmm.skinny import OUTPUTS, SKINNY_SCHEMES, SkinnyScheme
from gpu.bmm.warpgroups import BITS, TILES, WARPGROUP_SCHEMES
from reference.types import First, Layout, PackedBits, Word
from simwarp import lanes, listings
from simwarp.verify.case import Case
from simwarp.verify.draw import DTYPES, Draw
from simwarp.verify.hypotheses import as_if, bugs_of_products

_FIRSTS: tuple[First, First] = ("msb", "lsb")
_ALL: dict[str, AnyScheme] = {
    **SCHEMES,
    **TENSOR_CORE_SCHEMES,
    **WARPGROUP_SCHEMES,
    **SKINNY_SCHEMES,
    **RING_SCHEMES,
}

LISTINGS: dict[str, Callable[..., Any]] = {
    "bmm32": listings.bmm32,
    "bmm64": listings.bmm64,
    "bmms32": listings.bmms32,
    "bmms64": listings.bmms64,
    "btc1": listings.btc_bmm1,
    "btc2": listings.btc_bmm2,
    "btc3": listings.btc_bmm3,
    "wgmma": listings.wgmma_bmm,
    "skinny": listings.skinny_bmm,
    "mma": listings.mma_bmm,
}
"""The listing of each scheme."""


@dataclass(frozen=True)
class Input:
    """Operands with op(A) of (m, k) and op(B) of (k, n), scheme, and for bit output thresholds and flips."""

    a: Any
    b: Any
    transpose_a: bool
    transpose_b: bool
    sizes: tuple[int, int, int]
    scheme: str = "bmm32"
    thresholds: npt.NDArray[np.int32] | None = None
    flip: npt.NDArray[np.bool_] | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of the listings and of `gpu.bmm`."""
        transposes = {"transpose_a": self.transpose_a, "transpose_b": self.transpose_b}
        return {**transposes, "thresholds": self.thresholds, "flip": self.flip}


def _draw(schemes: Mapping[str, AnyScheme], draw: Draw) -> Input:
    """Draw a random matrix product of ±1 for one of the schemes."""
    number, which = divmod(draw.k // 5, len(schemes))  # the kind of size is draw.k % 5
    scheme = schemes[list(schemes)[which]]
    transpose_a, transpose_b, bits = (bool(number >> i & 1) for i in range(3))
    m, n, k = draw.sizes(3)
    if isinstance(scheme, SkinnyScheme):
        m, n = (1 + m % scheme.most, n) if m < n else (m, 1 + n % scheme.most)
    largest = scheme.largest_k if isinstance(scheme, Scheme) else None
    if largest and draw.k % 260 == 9:  # near the scheme's bound on K, in turn for every transpose and output
        m, n, k = draw.integer(1, 3), draw.integer(1, 3), largest + draw.integer(-2, 2)
    kinds = [draw.choice((*DTYPES, "packed", "packed")) for _ in "ab"]
    # Real operands are packed in the scheme's bit order; a packed one beside them must have the same.
    free = kinds == ["packed", "packed"] and scheme.name in SCHEMES
    first = draw.choice(_FIRSTS) if free else scheme.first
    word = scheme.word
    a = _operand(draw, kinds[0], (k, m) if transpose_a else (m, k), int(not transpose_a), word, first)
    b = _operand(draw, kinds[1], (n, k) if transpose_b else (k, n), int(transpose_b), word, first)
    thresholds = flip = None
    if bits:
        spread = int(np.sqrt(k)) + 1
        thresholds = np.array([draw.integer(-spread, spread) for _ in range(n)], np.int32)
        flip = np.array([draw.integer(0, 1) for _ in range(n)], np.bool_)
    return Input(a, b, transpose_a, transpose_b, (m, n, k), scheme.name, thresholds, flip)


def _operand(draw: Draw, kind: str, shape: tuple[int, int], k_axis: int, word: Word, first: First) -> Any:
    """Draw a real matrix, or one packed along its axis ``k_axis``."""
    if kind != "packed":
        return draw.matrix(*shape, kind)
    layout: Layout = "column" if k_axis else "row"
    return PackedBits(draw.bits(shape[1 - k_axis], shape[k_axis], word, first), shape, layout, word, first)


def _describe(item: Input) -> str:
    def one(x: Any, transposed: bool) -> str:
        kind = "packed" if isinstance(x, PackedBits) else str(x.dtype)
        return f"{kind} {x.shape[0]} x {x.shape[1]}{' transposed' if transposed else ''}"

    output = "int32" if item.thresholds is None else "bits"
    return f"{item.scheme}, {one(item.a, item.transpose_a)} by {one(item.b, item.transpose_b)} to {output}"


def _first(item: Input) -> First:
    """The bit order of packed operands, or else of the scheme."""
    return item.a.first if isinstance(item.a, PackedBits) else _ALL[item.scheme].first


def _dots(item: Input) -> npt.NDArray[np.int32]:
    return reference.bmm(item.a, item.b, transpose_a=item.transpose_a, transpose_b=item.transpose_b)


def _by_reference(item: Input) -> npt.NDArray[Any]:
    return _output(item, _dots(item))


def _output(item: Input, dots: npt.NDArray[np.int32]) -> npt.NDArray[Any]:
    """The output of an input for its dot products: these, or words of bits."""
    if item.thresholds is None:
        return dots
    word = _ALL[item.scheme].word
    return reference.threshold(dots, item.thresholds, item.flip, word=word, first=_first(item)).words


def _as_if(item: Input, expected: npt.NDArray[Any], got: npt.NDArray[Any]) -> str:
    """The bugs of a product that would give the whole output."""
    bugs = bugs_of_products(item.sizes[2], _dots(item))
    return as_if(bugs, lambda sums: np.array_equal(_output(item, sums.astype(np.int32)), got))


def _by_listing(item: Input) -> npt.NDArray[Any]:
    listing = LISTINGS[choose_scheme(item.scheme, item.sizes[2]).name]
    answer = _words(listing(item.a, item.b, **item.options))
    if item.thresholds is None or item.scheme not in SCHEMES or _first(item) == "msb":
        return answer
    return lanes.brev(answer)  # the listings of BSTC output bits in the paper's order, "msb"


def _by_gpu(item: Input, device: gpu.Device) -> npt.NDArray[Any]:
    return _words(gpu.bmm(item.a, item.b, **item.options, scheme=item.scheme, device=device))


def _words(answer: Any) -> npt.NDArray[Any]:
    """An answer as an array: the words of a packed matrix, else the answer itself."""
    return answer.words if isinstance(answer, PackedBits) else answer


def _explain(item: Input, element: tuple[int, ...], bit: int) -> str:
    """Describe an output: the element of C that a value or a bit of a word holds."""
    if item.thresholds is None:
        return f"C{list(element)}"
    word = _ALL[item.scheme].word
    column = element[0] * word + (word - 1 - bit if _first(item) == "msb" else bit)
    return f"bit of C{[element[1], column]}" + ("" if column < item.sizes[1] else ", which is padding")


def _lead(item: Input, bits: tuple[int, ...]) -> int:
    return min(bits) if item.thresholds is not None and _first(item) == "lsb" else max(bits)


def _kernels(arch: tuple[int, int]) -> dict[str, str]:
    products = [
        product_ptx(scheme, output, first, arch)
        for scheme in SCHEMES.values()
        for output in ("int", "bits")
        for first in _FIRSTS
    ]
    packings = [packing_ptx(dtype, word, "msb", arch) for dtype in DTYPES for word in (32, 64)]
    return {ptx.name: ptx.sha256 for ptx in (*products, *packings)}


def _tensor_core_kernels(arch: tuple[int, int]) -> dict[str, str]:
    products = [
        product_ptx(scheme, output, "lsb", arch)
        for scheme in TENSOR_CORE_SCHEMES.values()
        for output in ("int", "bits")
    ]
    packings = [packing_ptx(dtype, 32, "lsb", arch) for dtype in DTYPES]
    return {p.name: p.sha256 for p in (*products, *packings, fsb_ptx("lines", arch), fsb_ptx("fsb", arch))}


def _warpgroup_kernels(arch: tuple[int, int]) -> dict[str, str]:
    """The kernels for int32 and for bits, whichever tile a shape takes; sm_90a's are the only ones."""
    scheme = WARPGROUP_SCHEMES["wgmma"]
    products = [
        scheme.ptx(tile, output, boxes=boxes)
        for output in ("int32", "words")
        for tile in TILES[output]
        for boxes in ((False,) if output in BITS else (False, True))
    ]
    packings = [lines_ptx(dtype, arch) for dtype in DTYPES]
    return {ptx.name: ptx.sha256 for ptx in (*products, *packings, fsb_ptx("lines", arch))}


def _skinny_kernels(arch: tuple[int, int]) -> dict[str, str]:
    options = itertools.product(SKINNY_SCHEMES.values(), (8, 16), (4, 8), OUTPUTS, (False, True))
    products = [
        scheme.ptx(few, warps, output, arch, swapped=swapped)
        for scheme, few, warps, output, swapped in options
    ]
    packings = [lines_ptx(dtype, arch) for dtype in DTYPES]
    return {ptx.name: ptx.sha256 for ptx in (*products, *packings, fsb_ptx("lines", arch))}


def _ring_kernels(arch: tuple[int, int]) -> dict[str, str]:
    """The kernels of both tiles, whichever a shape takes."""
    tiles = [tile for scheme in RING_SCHEMES.values() for tile in (scheme, scheme.smaller) if tile]
    products = [product_ptx(tile, output, "lsb", arch) for tile in tiles for output in ("int", "bits")]
    packings = [lines_ptx(dtype, arch) for dtype in DTYPES]
    return {ptx.name: ptx.sha256 for ptx in (*products, *packings, fsb_ptx("lines", arch))}


CASES = [
    Case(
        name=name,
        draw=partial(_draw, schemes),
        shape=lambda item: item.sizes,
        describe=_describe,
        answers={"reference": _by_reference, **listing, "gpu": _by_gpu},
        outputs={"gpu": "c", "listing": "C"},
        explain=_explain,
        lead=_lead,
        kernels=kernels,
        covering=40 * len(schemes),
        as_if=_as_if,
    )
    for name, schemes, kernels, listing in (
        ("bmm", SCHEMES, _kernels, {"listing": _by_listing}),
        ("bmm-btc", TENSOR_CORE_SCHEMES, _tensor_core_kernels, {"listing": _by_listing}),
        ("bmm-wgmma", WARPGROUP_SCHEMES, _warpgroup_kernels, {"listing": _by_listing}),
        ("bmm-skinny", SKINNY_SCHEMES, _skinny_kernels, {"listing": _by_listing}),
        ("bmm-mma", RING_SCHEMES, _ring_kernels, {"listing": _by_listing}),
    )
]
