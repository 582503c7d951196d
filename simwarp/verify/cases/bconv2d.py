"""The cases of the ±1 convolution: every scheme, class of geometry, output and kind of operand.

The number of an input determines all four, so that the first 704 inputs cover every combination, or the first
176 of the scheme on warpgroups, a case of its own, as convolutions in groups and large windows are. For a
pooled output, geometries of the class are drawn until one has at least 2 × 2 output pixels.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

import gpu
import reference
from gpu.bconv import SCHEMES
from gpu.bconv.geometry import conv_shape
from gpu.bconv.groups import groups_ptx
from gpu.bconv.packing import packing_ptx
from gpu.bconv.schemes import EVERY_SCHEME, AnyScheme, Pool, convolution_ptx
from gpu.bconv.warpgroups import MOST_TAPS, WARPGROUP_SCHEMES
from gpu.bmm.lines import lines_ptx
from reference.tensors import to_tiles
from reference.threshold import INT32_MAX, INT32_MIN, pool_bits
from reference.types import PackedTensor, TensorLayout, Word
from simwarp import listings
from simwarp.draw import to_text
from simwarp.listings import btc
from simwarp.verify.case import Case
from simwarp.verify.draw import DTYPES, Draw
from simwarp.verify.geometries import Geometry, window_picture
from simwarp.verify.geometry_classes import LARGE_CLASSES, SMALL_CLASSES, draw_geometry
from simwarp.verify.hypotheses import as_if, bugs_of_convolutions

OUTPUTS = ("int32", "bits", "or", "and")
"""The outputs: dot products, bits, and bits pooled over 2 × 2 pixels by OR or AND."""
_KINDS = (("real", "real"), ("packed", "packed"), ("real", "packed"), ("packed", "real"))

_LISTINGS = {
    "bconv32": listings.bconv32,
    "bconv64": listings.bconv64,
    "btc1": btc.btc_bconv1,
    "btc2": btc.btc_bconv2,
    "wgmma": listings.wgmma_bconv,
}
"""The listing of each scheme."""


@dataclass(frozen=True)
class Input:
    """Images and filters, geometry, scheme, and for bit output thresholds, flips and pooling."""

    x: Any
    w: Any
    geometry: Geometry
    scheme: str = "bconv32"
    thresholds: npt.NDArray[np.int32] | None = None
    flip: npt.NDArray[np.bool_] | None = None
    pool: Literal["or", "and"] | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of the listings and of `gpu.bconv2d`."""
        return {**self.geometry.options, "thresholds": self.thresholds, "flip": self.flip}


def _draw(schemes: Mapping[str, AnyScheme], draw: Draw) -> Input:
    """Draw an input of the small classes for one of the schemes."""
    # As 4 and 11 are coprime, k modulo both covers every pair of scheme and class.
    number, which = divmod(draw.k, len(schemes))
    return _of_class(draw, SMALL_CLASSES[draw.k % 11], list(schemes)[which], number)


def _draw_large_window(draw: Draw) -> Input:
    """Draw an input of the large classes for any scheme."""
    number, which = divmod(draw.k, len(EVERY_SCHEME))
    number, of_class = divmod(number, len(LARGE_CLASSES))
    name = LARGE_CLASSES[of_class]
    groups = 1 if name == "sums at a power of two" else draw.choice(_GROUPS)  # which are of all channels
    return _of_class(draw, name, list(EVERY_SCHEME)[which], number, groups)


_GROUPS = (1, 1, 1, 2, 3)
"""Groups of large windows."""


def _of_class(draw: Draw, name: str, scheme: str, number: int, groups: int = 1) -> Input:
    """Draw an input of a class for a scheme; its number gives output and operands."""
    output, kinds = OUTPUTS[number % 4], _KINDS[number // 4 % 4]
    pooled = output in ("or", "and")
    geometry = draw_geometry(draw, name)
    while (pooled and min(geometry.out) < 2) or max(geometry.filters[:2]) > _most_taps(scheme):
        geometry = draw_geometry(draw, name)
    layouts = EVERY_SCHEME[scheme].images, EVERY_SCHEME[scheme].filters
    if groups > 1:
        geometry, layouts = _in_groups(geometry, groups, draw.choice(_MOST_OF_A_GROUP)), _LAYOUTS_OF_GROUPS
    x = _operand(draw, kinds[0], geometry.images, layouts[0])
    w = _operand(draw, kinds[1], geometry.filters, layouts[1])
    if output == "int32":
        return Input(x, w, geometry, scheme)
    thresholds, flip = _rule(draw, geometry)
    return Input(x, w, geometry, scheme, thresholds, flip, output if pooled else None)  # pyright: ignore[reportArgumentType]


def _most_taps(scheme: str) -> int:
    """The most rows or columns of taps that a scheme takes, as far as inputs have them."""
    return MOST_TAPS if scheme in WARPGROUP_SCHEMES else 17


def _draw_in_groups(draw: Draw) -> Input:
    """Draw a grouped convolution, sometimes depthwise (one channel and filter per group)."""
    number, which = divmod(draw.k, len(EVERY_SCHEME))
    output, kinds = OUTPUTS[number % 4], _KINDS[number // 4 % 4]
    one = draw_geometry(draw, SMALL_CLASSES[draw.k % 11])
    while output in ("or", "and") and min(one.out) < 2:
        one = draw_geometry(draw, SMALL_CLASSES[draw.k % 11])
    geometry = _in_groups(one, draw.choice((2, 3, 5)), draw.choice(_MOST_OF_A_GROUP))
    x, w = (
        _operand(draw, kinds[0], geometry.images, _LAYOUTS_OF_GROUPS[0]),
        _operand(draw, kinds[1], geometry.filters, _LAYOUTS_OF_GROUPS[1]),
    )
    rule = (None, None) if output == "int32" else _rule(draw, geometry)
    pool: Any = output if output in ("or", "and") else None
    return Input(x, w, geometry, list(EVERY_SCHEME)[which], *rule, pool)


_MOST_OF_A_GROUP = (1, 8, 33)
_LAYOUTS_OF_GROUPS: tuple[tuple[TensorLayout, ...], tuple[TensorLayout, ...]] = ("NHWC",), ("HWOI",)


def _in_groups(one: Geometry, groups: int, most: int) -> Geometry:
    """The geometry in groups, each with its channels and filters, but at most so many."""
    channels, filters = (min(count, most) for count in one.filters[2:])
    images, taps = (*one.images[:3], groups * channels), (*one.filters[:2], channels, groups * filters)
    return replace(one, images=images, filters=taps, groups=groups)


def _rule(draw: Draw, geometry: Geometry) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    """Draw thresholds near typical dot products, sometimes the least or largest int32; and flips."""
    spread = int(np.sqrt(np.prod(geometry.filters[:3]))) + 1

    def one() -> int:
        return (
            draw.choice((INT32_MIN, INT32_MAX)) if draw.integer(0, 15) == 0 else draw.integer(-spread, spread)
        )

    filters = range(geometry.filters[3])
    return np.array([one() for _ in filters], np.int32), np.array([draw.integer(0, 1) for _ in filters], bool)


def _operand(
    draw: Draw, kind: str, shape: tuple[int, int, int, int], layouts: tuple[TensorLayout, ...]
) -> Any:
    """Draw images or filters, real or packed along their channels."""
    if kind == "real":
        n, h, w, c = shape
        return draw.matrix(n * h * w, c, draw.choice(DTYPES)).reshape(shape)
    layout = draw.choice(layouts)
    words: tuple[Word, Word] = (32, 64)
    return _packed(draw, shape, layout, 32 if layout.endswith("FSB") else draw.choice(words))


def _packed(draw: Draw, shape: tuple[int, int, int, int], layout: TensorLayout, word: Word) -> PackedTensor:
    """Draw random bits in a layout; the FSB layouts are tiled from NHWC and HWOI."""
    if layout in ("NHWC", "HWNC-FSB"):
        (*outer, channels), lines = shape, 0
    else:
        height, width, channels, filters = shape
        outer, lines = [height, width, filters], 2
    words = draw.bits(int(np.prod(outer)), channels, word, "lsb").T.reshape(*outer, -1)
    if layout.endswith("FSB"):
        words = to_tiles(np.moveaxis(words, lines, 2), 8, 4)
    return PackedTensor(np.ascontiguousarray(words), shape, layout, word, "lsb")


# --------------------------------------------------------------------------------------------------
# Tiers
# --------------------------------------------------------------------------------------------------


def dots(item: Input) -> npt.NDArray[np.int32]:
    """The dot products of an input, by the reference."""
    return reference.bconv2d(item.x, item.w, **item.geometry.options)


def _by_reference(item: Input) -> npt.NDArray[Any]:
    return _output(item, dots(item))


def _output(item: Input, sums: npt.NDArray[np.int32]) -> npt.NDArray[Any]:
    """The output of an input for its dot products: these, or words of bits."""
    if item.thresholds is None:
        return sums
    return reference.threshold_tensor(sums, item.thresholds, item.flip, pool=item.pool).words


def _as_if(item: Input, expected: npt.NDArray[Any], got: npt.NDArray[Any]) -> str:
    """The bugs of a convolution that would give the whole output."""
    bugs = bugs_of_convolutions(item.geometry, dots(item), (item.x, item.w))
    return as_if(bugs, lambda sums: np.array_equal(_output(item, sums.astype(np.int32)), got))


def _by_listing(item: Input) -> npt.NDArray[Any]:
    word: Word = 64 if item.scheme == "bconv64" else 32
    answers: list[Any] = []
    for group in _groups_of(item):  # one after another: the listings know none
        x, w = _in_the_papers_order(group.x, "NHWC", word), _in_the_papers_order(group.w, "HWIO", word)
        answers.append(_LISTINGS[item.scheme](x, w, **group.options))
    if item.thresholds is None:
        return np.concatenate(answers, axis=-1)
    bits = np.concatenate([reference.unpack_tensor(answer) for answer in answers], axis=-1)
    bits = bits if item.pool is None else pool_bits(bits, item.pool)  # here, as the listings do not pool
    return reference.pack_tensor(_signs(bits), layout="NHWC").words


def _groups_of(item: Input) -> list[Input]:
    """The convolutions of the groups of an input, with real operands; of one group the input itself."""
    geometry = item.geometry
    groups, (channels, filters) = (
        geometry.groups,
        (geometry.filters[2], geometry.filters[3] // geometry.groups),
    )
    if groups == 1:
        return [item]
    images, taps = (*geometry.images[:3], channels), (*geometry.filters[:3], filters)
    one = replace(geometry, images=images, filters=taps, groups=1)
    x, w = (
        _signs(reference.unpack_tensor(a)) if isinstance(a, PackedTensor) else a for a in (item.x, item.w)
    )

    def part(array: Any, group: int, size: int) -> Any:
        return None if array is None else array[..., group * size : (group + 1) * size]

    return [
        replace(
            item,
            x=part(x, group, channels),
            w=part(w, group, filters),
            geometry=one,
            thresholds=part(item.thresholds, group, filters),
            flip=part(item.flip, group, filters),
        )
        for group in range(groups)
    ]


def _in_the_papers_order(x: Any, layout: TensorLayout, word: Word) -> Any:
    """Repack a packed operand in the layout of the listings, which pack real ones themselves."""
    if not isinstance(x, PackedTensor):
        return x
    return reference.pack_tensor(_signs(reference.unpack_tensor(x)), layout=layout, word=word, first="msb")


def _signs(bits: npt.NDArray[np.uint8]) -> npt.NDArray[np.int8]:
    """Convert bits 0 and 1 to -1 and +1."""
    return 2 * bits.astype(np.int8) - 1


def _by_gpu(item: Input, device: gpu.Device) -> npt.NDArray[Any]:
    how: dict[str, Any] = {"scheme": item.scheme, "pool": item.pool, "device": device}
    answer = gpu.bconv2d(item.x, item.w, **item.options, **how)
    return answer.words if isinstance(answer, PackedTensor) else answer


# --------------------------------------------------------------------------------------------------
# Description of inputs and mismatches
# --------------------------------------------------------------------------------------------------


def _describe(item: Input) -> str:
    def one(x: Any) -> str:
        return f"packed {x.layout}" if isinstance(x, PackedTensor) else str(x.dtype)

    output = (
        "int32" if item.thresholds is None else "bits" if item.pool is None else f"bits pooled by {item.pool}"
    )
    return f"{item.scheme}, {one(item.x)} by {one(item.w)} to {output}: {item.geometry}"


def meaning(item: Input, element: tuple[int, ...], bit: int) -> tuple[int, int, int, int]:
    """The output (n, p, q, o) of a value or a bit; the first of the window for a pooled one."""
    n, p, q, o = element
    step = 1 if item.pool is None else 2
    return n, p * step, q * step, o if item.thresholds is None else o * 32 + bit


def _explain(item: Input, element: tuple[int, ...], bit: int) -> str:
    """Describe an output: pixel and channel, taps outside the image, and the terms of the sum."""
    n, p, q, o = meaning(item, element, bit)
    geometry = item.geometry
    if o >= geometry.filters[3]:
        return f"bit of channel {o} of output pixel ({p}, {q}) of image {n}, which is padding"
    taps, outside = geometry.filters[0] * geometry.filters[1], int(geometry.excluded[p, q])
    dot = int(dots(item)[n, p, q, o])
    products = (taps - outside) * geometry.filters[2]
    text = (
        f"channel {o} of output pixel ({p}, {q}) of image {n}: {outside} of {taps} taps outside, "
        f"popc {(products - dot) // 2} of {products}, so {dot}"
    )
    if item.thresholds is None or item.flip is None:
        return text
    window = "" if item.pool is None else f", the first of 2 x 2 pooled by {item.pool}"
    return f"bit of {text}; threshold {item.thresholds[o]}{' flipped' * bool(item.flip[o])}{window}"


def picture(item: Input, element: tuple[int, ...], bit: int) -> str:
    """Draw the window of an output over the image, as text."""
    n, p, q, o = meaning(item, element, bit)
    o = min(o, item.geometry.filters[3] - 1)
    return to_text(window_picture(item.geometry, (n, p, q, o), int(dots(item)[n, p, q, o])))


def _lead(item: Input, bits: tuple[int, ...]) -> int:
    return max(bits) if item.thresholds is None else min(bits)


def _shape(item: Input) -> tuple[int, ...]:
    geometry = item.geometry
    pads = (pad for pair in geometry.pads for pad in pair)
    return *geometry.images, *geometry.filters, *geometry.stride, *geometry.dilation, *pads


def _kernels(arch: tuple[int, int]) -> dict[str, str]:
    pools: tuple[Pool, ...] = ("none", "or", "and")
    outputs: list[tuple[str, Pool]] = [("int", "none"), *(("bits", pool) for pool in pools)]
    # Kernels have variants for one, two, three and more words of channels.
    shapes = [conv_shape((1, 8, 8, channels), (3, 3, channels, 40)) for channels in (32, 64, 96, 128)]
    compiled = [
        convolution_ptx(scheme, shape, output, pool, arch)
        for scheme in SCHEMES.values()
        for shape in shapes
        for output, pool in outputs
    ]
    return {ptx.name: ptx.sha256 for ptx in (*compiled, *(packing_ptx(dtype, arch) for dtype in DTYPES))}


def _warpgroup_kernels(arch: tuple[int, int]) -> dict[str, str]:
    """The kernels of small convolutions, with int32 in boxes and in pairs, and bits."""
    scheme, found = WARPGROUP_SCHEMES["wgmma"], dict[str, str]()
    outputs: list[tuple[str, Pool]] = [("int", "none"), ("bits", "none"), ("bits", "or"), ("bits", "and")]
    every = 64, 128, 256, 512, 1024, 1100
    for channels, filters, (output, pool) in itertools.product(every, (40, 41), outputs):
        if output == "int" or filters == 40:
            shape = conv_shape((1, 8, 8, channels), (3, 3, channels, filters))
            plan = scheme.plan(shape, output, pool, arch, 1)
            name = f"bconv/{plan.name}.cu, {channels} channels, {filters} filters, {output}, {pool}"
            found[name] = hashlib.sha256(plan.ptx.encode()).hexdigest()
    return found | {ptx.name: ptx.sha256 for ptx in (lines_ptx(dtype, arch) for dtype in DTYPES)}


def _group_kernels(arch: tuple[int, int]) -> dict[str, str]:
    """The kernels that cut operands and join outputs; those between belong to other cases."""
    pools: tuple[Pool, ...] = ("none", "or", "and")
    compiled = [groups_ptx("int", pool, arch) for pool in pools]
    return {ptx.name: ptx.sha256 for ptx in compiled}


def _window_kernels(arch: tuple[int, int]) -> dict[str, str]:
    """Those of all schemes, and of groups."""
    return _kernels(arch) | _warpgroup_kernels(arch) | _group_kernels(arch)


CASES = [
    Case(
        name=name,
        draw=draw,
        shape=_shape,
        describe=_describe,
        answers={"reference": _by_reference, **listing, "gpu": _by_gpu},
        outputs={"gpu": "y", "listing": "output"},
        explain=_explain,
        lead=_lead,
        kernels=kernels,
        covering=covering,
        picture=picture,
        as_if=_as_if,
    )
    for name, draw, covering, kernels, listing in (
        ("bconv2d", partial(_draw, SCHEMES), 704, _kernels, {"listing": _by_listing}),
        (
            "bconv2d-wgmma",
            partial(_draw, WARPGROUP_SCHEMES),
            176,
            _warpgroup_kernels,
            {"listing": _by_listing},
        ),
        ("bconv2d-groups", _draw_in_groups, 80, _group_kernels, {}),
        ("bconv2d-windows", _draw_large_window, 560, _window_kernels, {"listing": _by_listing}),
    )
]
