"""The cases of binarized networks: random small ones, compared launch by launch.

GPUs have been recorded with what ``bnn`` draws, so that stays as it is; ``bnn-layers`` draws from a table
with a line for each layer; ``bnn-words`` draws wider layers of bits, each with a scheme of its own, on words
of 32 or 64 bits. ``bnn-whole-words`` and ``bnn-whole-fsb`` draw either for one launch, on CUDA cores and in
FSB.

An answer is one vector: what each launch gives, one after the other, then sums, logits and classes, all as
int64. So the first element that differs is of the first launch that is wrong.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

import gpu.bnn
import reference.bnn
from gpu.bnn.forms import MACROS, blocks_at_once
from gpu.bnn.plan import Step, fused, steps_of, values_of
from gpu.bnn.site import macros
from gpu.chips import chip_of
from gpu.compile import compile_file
from reference.bnn import (
    Affine,
    BitPlanes,
    Clip,
    Conv,
    Dense,
    Flatten,
    Input,
    Layer,
    Network,
    PadChannels,
    Pixels,
    Pool,
    Reals,
    Residual,
    Signs,
    Threshold,
)
from reference.errors import RangeError, ShapeError
from reference.types import PackedBits, PackedTensor
from reference.types.network_values import Value, after, follow, input_value
from simwarp.verify.case import Case
from simwarp.verify.draw import Draw

Shape: TypeAlias = tuple[int, ...]

_CONV, _DENSE = ("bconv32", "bconv32", "btc1", "btc2", "auto"), ("bmm32", "bmms32", "btc1", "mma", "auto")

_CONV_WORDS = ("bconv64", "bconv64", "bconv32", "btc1", "auto")
_DENSE_WORDS = ("bmm64", "bmms64", "bmms64", "bmm32", "btc1", "auto")
_MOST_BITS = 140
"""Of a pixel or a vector of ``bnn-words``: more than two words of 64."""


@dataclass(frozen=True)
class Item:
    """A network with images for it, the schemes of its binary layers, and the way it is run."""

    network: Network
    images: npt.NDArray[Any]
    schemes: Mapping[str, str]
    way: str
    whole: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of one launch that are not the chip's, which every chip can take."""

    def steps(self) -> dict[str, Step]:
        """The steps of the way, by the paths of the values that they give, in order."""
        steps = steps_of(self.network, values_of(self.network))
        steps = fused(steps) if self.way == "whole" else steps
        inner = _inside_launches(steps)
        return {path: step for step in steps for path in step.writes if path not in inner}


def _inside_launches(steps: Sequence[Step]) -> set[str]:
    """Values that no launch gives on some chips: integers that only a residual adds, sums before a pool."""
    users = Counter(path for step in steps for path in step.reads)
    residuals = [step for step in steps if any(isinstance(layer, Residual) for layer in step.layers)]
    sums = {step.writes[0] for step in residuals}
    added = {path for step in residuals for path in step.reads}
    convolved = {step.writes[0] for step in steps if [type(layer) for layer in step.layers] == [Conv]}
    pooled = {step.reads[-1] for step in steps if isinstance(step.layers[0], Pool) and len(step.layers) > 1}
    return {path for path in (added & convolved) | (sums & pooled) if users[path] == 1}


# --------------------------------------------------------------------------------------------------
# Networks
# --------------------------------------------------------------------------------------------------


def _draw(network_of: Callable[[Draw], Network], draw: Draw) -> Item:
    """Draw a network; one whose integers might leave int32 is drawn again."""
    while True:
        try:
            network = network_of(draw)
        except RangeError:
            continue
        shape = (draw.integer(1, 3), *network.input.shape)
        schemes = {"Conv": draw.choice(_CONV), "Dense": draw.choice(_DENSE)}
        images = _images(draw, network.input, shape)
        return Item(network, images, schemes, draw.choice(("layers", "layers", "whole")))


def _draw_words(draw: Draw) -> Item:
    """Draw a network of bits, and for each of its layers a scheme: so words of 32 meet words of 64."""
    network = _network_of_words(draw)
    images = _images(draw, network.input, (draw.integer(1, 3), *network.input.shape))
    schemes = {
        path: draw.choice(_CONV_WORDS if isinstance(layer, Conv) else _DENSE_WORDS)
        for path, layer, _ in follow(network)
        if isinstance(layer, Conv | Dense)
    }
    return Item(network, images, schemes, "layers")


def _draw_whole(forms: Mapping[tuple[str, ...], tuple[int, ...]], draw: Draw) -> Item:
    """Draw a network for one launch, of lines or of wide bits, with a scheme for each of its layers.

    ``forms`` has the threads of a block by the schemes between which layers are drawn.
    """
    item = _draw_words(draw) if draw.integer(0, 1) else _draw(_network_of_lines, draw)
    names = draw.choice(tuple(forms))
    schemes = {
        path: draw.choice([name for name in names if name.startswith(_STARTS[type(layer)])] or ["auto"])
        for path, layer, _ in follow(item.network)
        if isinstance(layer, Conv | Dense)
    }
    options = {"blocks": draw.choice((None, None, None, 1, 2)), "threads": draw.choice(forms[names])}
    return replace(item, schemes=schemes, way="whole", whole=options)


_STARTS: dict[type, tuple[str, ...]] = {Conv: ("bconv", "btc2"), Dense: ("bmm", "btc3")}
_SBNN = ("bconv32", "bmm32"), ("bconv32", "bmms32"), ("bconv64", "bmm64"), ("bconv64", "bmms64")
_WORDS = dict.fromkeys((*_SBNN, ("bconv32", "bconv64", "bmm32", "bmm64", "bmms32", "bmms64")), (32, 128))
"""Networks on CUDA cores: SBNN-32, -32-Fine, -64, -64-Fine, and words of both sizes."""
_FSB = {("btc2", "btc3"): (32, 256)}


def _network_of_words(draw: Draw) -> Network:
    """Draw convolutions, pools and dense layers of up to 140 bits, with thresholds between."""
    images = draw.integer(0, 2) > 0
    shape: Shape = (draw.integer(1, 5), draw.integer(1, 5)) if images else ()
    shape = (*shape, draw.integer(1, _MOST_BITS))
    given = Signs(shape, _numbers(draw, shape[-1], 9).astype(np.float32) / 4)
    layers: list[Layer] = []
    for _ in range(draw.integer(0, 3) if images else 0):
        if draw.integer(0, 3) == 0:
            layer, shape, _ = _pool(draw, shape, draw.choice(("or", "and")), bits=True)
            layers.append(layer)
            continue
        layer, shape = _conv(draw, shape, draw.integer(1, _MOST_BITS))
        layers += [layer, _threshold(draw, shape[-1])]
    layers += [Flatten()] if images else []
    bits = math.prod(shape)
    for _ in range(draw.integer(0, 3)):
        outputs = draw.integer(1, _MOST_BITS)
        layers += [_dense(draw, bits, outputs), _threshold(draw, outputs)]
        bits = outputs
    classes = draw.integer(1, 70)
    layers.append(_dense(draw, bits, classes))
    return Network("drawn", given, tuple(layers), *_scales(draw, classes))


def _network(draw: Draw) -> Network:
    given = _input(draw)
    layers: list[Layer] = []
    shape, bits = given.shape, isinstance(given, Signs | BitPlanes)
    if isinstance(given, BitPlanes):
        shape = (*shape[:-1], 8 * shape[-1])
    for _ in range(draw.integer(1, 6)):
        layer, shape, bits = _layer(draw, shape, bits)
        layers.append(layer)
    if len(shape) == 3:
        layers.append(Flatten())
    classes = draw.integer(1, 40)
    layers.append(_dense(draw, math.prod(shape), classes))
    scale, offset = _scales(draw, classes)
    return Network("drawn", given, tuple(layers), scale, offset)


def _network_of_lines(draw: Draw) -> Network:
    """Draw a network layer by layer; a layer that does not fit the shape before it is left out."""
    given = _input(draw)
    value, layers = input_value(given), list[Layer]()
    for _ in range(draw.integer(2, 9)):
        try:
            layer = draw.choice(LINES if draw.integer(0, 1) else LINES[:2])(draw, value)
            value = after(layer, value)
        except ShapeError:
            continue
        layers.append(layer)
    flat, classes = math.prod(value.shape), draw.integer(1, 40)
    layers += [Flatten()] * (len(value.shape) == 3) + [_dense(draw, flat, classes)]
    return Network("drawn", given, tuple(layers), *_scales(draw, classes))


def _scales(draw: Draw, classes: int) -> tuple[Any, Any]:
    """Draw scale and offset of logits: by turns eighths, and numbers whose products round."""
    most, unit = (16, 8) if draw.k % 2 else (2**23, 2**20)
    scale, offset = (_numbers(draw, classes, most).astype(np.float32) / np.float32(unit) for _ in range(2))
    return scale, offset


def _input(draw: Draw) -> Input:
    """Draw an input for images, and sometimes for vectors."""
    kind = draw.integer(0, 4)
    channels = draw.integer(1, 40) if kind == 2 else draw.integer(1, 4)
    shape: Shape = (draw.integer(2, 9), draw.integer(2, 9), channels)
    shape = shape if draw.integer(0, 5) else (draw.integer(1, 70),)
    if kind == 0:
        return Reals(shape, draw.integer(0, 12))
    if kind == 1:
        return BitPlanes(shape)
    if kind == 2:
        return Signs(shape, _numbers(draw, shape[-1], 9).astype(np.float32) / 4)
    return Pixels(shape, _numbers(draw, shape[-1], 3), _numbers(draw, shape[-1], 300))


def _images(draw: Draw, given: Input, shape: Shape) -> npt.NDArray[Any]:
    """Draw bytes; for floats eighths of bytes around zero."""
    count = math.prod(shape)
    images = draw.words(-(-count // 8)).astype("<u8").view(np.uint8)[:count].reshape(shape)
    if isinstance(given, Reals) or (isinstance(given, Signs) and draw.integer(0, 1)):
        return ((images.astype(np.float32) - 128) / 32).astype(np.float32)
    return images.copy()


def _layer(draw: Draw, shape: Shape, bits: bool) -> tuple[Layer, Shape, bool]:
    """Draw a layer for an input shape; returns it with the shape and kind of its output."""
    if len(shape) == 1:
        outputs = draw.integer(1, 70)
        if bits:
            return _dense(draw, shape[0], outputs), (outputs,), False
        kind = draw.integer(0, 5)
        if kind == 0:
            return _dense(draw, shape[0], outputs), (outputs,), False
        return _of_integers(draw, shape, kind)
    kind = draw.integer(0, 9)
    if kind == 0:
        return Flatten(), (math.prod(shape),), bits
    if kind <= 2:
        return _pool(draw, shape, draw.choice(("or", "and") if bits else ("max", "sum")), bits)
    if kind <= 4 and not bits:
        return _residual(draw, shape)
    if bits or kind == 5:
        layer, shape = _conv(draw, shape, draw.integer(1, 40))
        return layer, shape, False
    return _of_integers(draw, shape, kind)


def _of_integers(draw: Draw, shape: Shape, kind: int) -> tuple[Layer, Shape, bool]:
    """A layer of integers of any shape; most are thresholds."""
    if kind == 1:
        return Clip(draw.choice((None, -40, 0)), draw.choice((None, 9, 300))), shape, False
    if kind == 2:
        return Affine(_numbers(draw, shape[-1], 5), _numbers(draw, shape[-1], 99)), shape, False
    return _threshold(draw, shape[-1]), shape, True


def _residual(draw: Draw, shape: Shape) -> tuple[Layer, Shape, bool]:
    """A residual with each kind of shortcut: none, type A, type B, or an affine stream."""
    kind, channels = draw.integer(0, 3), shape[2]
    rule = _threshold(draw, channels)
    if kind == 1 and min(shape[:2]) >= 2:
        before, after = draw.integer(0, 3), draw.integer(0, 3)
        outputs = channels + before + after
        size = tuple(n // 2 for n in shape[:2])
        padding = ((1, 0), (1, 0)) if draw.integer(0, 1) else ((0, 0), (0, 0))
        filters = _filters(draw, (2 + padding[0][0], 2 + padding[1][0], channels, outputs))
        body = (rule, Conv(filters, (2, 2), padding))
        return Residual(body, (Pool("max"), PadChannels(before, after))), (*size, outputs), False
    filters = _filters(draw, (3, 3, channels, channels))
    body = (rule, Conv(filters, padding=((1, 1), (1, 1))))
    if kind == 2:
        other = _threshold(draw, channels)
        return Residual(body, (other, Conv(_filters(draw, (1, 1, channels, channels))))), shape, False
    if kind == 3:
        stream = Affine(_numbers(draw, channels, 4), _numbers(draw, channels, 50))
        return Residual((*body, stream), (Clip(-1000, 1000),)), shape, False
    return Residual(body), shape, False


def _conv(draw: Draw, shape: Shape, outputs: int) -> tuple[Conv, Shape]:
    """Draw a convolution layer that fits an image of this shape; returns it and the shape of its output."""
    stride, padding = (draw.integer(1, 3), draw.integer(1, 3)), _padding(draw, 2)
    taps, gaps, size = list[int](), list[int](), list[int]()
    for n, step, pads in zip(shape[:2], stride, padding, strict=True):
        count = draw.integer(1, min(4, n))
        gap = draw.integer(1, max(1, min(3, (n - 1) // max(1, count - 1))))
        taps.append(count)
        gaps.append(gap)
        size.append((n + sum(pads) - (count - 1) * gap - 1) // step + 1)
    filters = _filters(draw, (taps[0], taps[1], shape[2], outputs))
    return Conv(filters, stride, padding, (gaps[0], gaps[1])), (*size, outputs)


def _line_of_convolutions(draw: Draw, value: Value) -> Layer:
    """Draw a convolution, often in groups that share the channels evenly."""
    shape = _of_image(value)
    groups = draw.choice([1, *(n for n in (2, 3, 4, shape[2]) if shape[2] % n == 0)])
    channels, outputs = shape[2] // groups, groups * draw.integer(1, max(1, 40 // groups))
    layer, _ = _conv(draw, (*shape[:2], channels), outputs)
    return replace(layer, groups=groups)


def _pool(draw: Draw, shape: Shape, kind: Any, bits: bool) -> tuple[Layer, Shape, bool]:
    """Draw a pool, half of the time with 2 x 2 windows, which a launch joins to its convolution."""
    if draw.integer(0, 1) and min(shape[:2]) >= 2:
        return Pool(kind), (shape[0] // 2, shape[1] // 2, shape[2]), bits
    window = (draw.integer(1, min(3, shape[0])), draw.integer(1, min(3, shape[1])))
    stride = (draw.integer(1, 3), draw.integer(1, 3))
    padding = tuple((draw.integer(0, n - 1), draw.integer(0, n - 1)) for n in window)
    size = (
        (n + sum(pads) - span) // step + 1
        for n, pads, span, step in zip(shape[:2], padding, window, stride, strict=True)
    )
    return Pool(kind, window, stride, (padding[0], padding[1])), (*size, shape[2]), bits


def _of_image(value: Value) -> Shape:
    """The shape (H, W, C) of a value that is an image; ShapeError for a vector."""
    if len(value.shape) != 3:
        raise ShapeError(f"a vector of {value.shape}: images are needed")
    return value.shape


def _line_of_pools(draw: Draw, value: Value) -> Layer:
    bits = value.kind == "bits"
    return _pool(draw, _of_image(value), draw.choice(("or", "and") if bits else ("max", "sum")), bits)[0]


LINES: tuple[Callable[[Draw, Value], Layer], ...] = (
    _line_of_convolutions,
    lambda draw, value: _threshold(draw, value.shape[-1]),
    lambda draw, value: _dense(draw, value.shape[0], draw.integer(1, 70)),
    lambda draw, value: Affine(*(_numbers(draw, value.shape[-1], most) for most in (5, 99))),
    lambda draw, value: Clip(draw.choice((None, -40, 0)), draw.choice((None, 9, 300))),
    lambda draw, value: PadChannels(draw.integer(0, 9), draw.integer(0, 9)),
    lambda draw, value: Flatten(),
    lambda draw, value: _residual(draw, _of_image(value))[0],
    _line_of_pools,
)
"""A line for each layer: draws one for a value, or has a ShapeError. The first two are drawn most."""


def _padding(draw: Draw, most: int) -> tuple[tuple[int, int], tuple[int, int]]:
    top, bottom, left, right = (draw.integer(0, most) for _ in range(4))
    return (top, bottom), (left, right)


def _threshold(draw: Draw, channels: int) -> Threshold:
    """Draw a batch normalisation with gamma of both signs and 0; sometimes after a ReLU."""
    gamma, beta, mean = (_numbers(draw, channels, most) / 2 for most in (3, 9, 12))
    variance = np.array([draw.integer(1, 9) for _ in range(channels)]) / 4
    rule = reference.integer_thresholds(gamma, beta, mean, variance, relu=draw.integer(0, 3) == 0)
    return Threshold(rule.thresholds, rule.flip)


def _dense(draw: Draw, features: int, outputs: int) -> Dense:
    word, first = draw.choice((32, 64)), draw.choice(("msb", "lsb"))
    return Dense(
        PackedBits(draw.bits(outputs, features, word, first), (features, outputs), "row", word, first)
    )


def _filters(draw: Draw, shape: tuple[int, int, int, int]) -> PackedTensor:
    rows, columns, channels, outputs = shape
    words = draw.bits(rows * columns * outputs, channels, 32, "lsb").T.reshape(rows, columns, outputs, -1)
    return PackedTensor(np.ascontiguousarray(words), shape, "HWOI", 32, "lsb")


def _numbers(draw: Draw, count: int, most: int) -> npt.NDArray[np.int32]:
    return np.array([draw.integer(-most, most) for _ in range(count)], np.int32)


# --------------------------------------------------------------------------------------------------
# Tiers
# --------------------------------------------------------------------------------------------------


def _by_reference(item: Item) -> npt.NDArray[np.int64]:
    values = dict(reference.bnn.values(item.network, item.images))
    answer = reference.bnn.run(item.network, item.images)
    return _joined([values[path] for path in item.steps()], answer)


def _by_gpu(item: Item, device: gpu.Device) -> npt.NDArray[np.int64]:
    """Each step's values, and the answer of a captured run after a run by launches.

    Of the case ``bnn`` networks run whole from sm_80 on; before it their layers give these values, too.
    """
    whole = item.way == "whole" and chip_of(device.compute_capability).sm_80
    options: dict[str, Any] = {"way": "whole"} if whole else {"schemes": item.schemes}
    if item.whole:
        options = {"way": "whole", "schemes": item.schemes, **item.whole}
    prepared = gpu.bnn.prepare(item.network, device=device, **options)
    values = dict(prepared.values(item.images))
    prepared.run(item.images)
    return _joined([values[path] for path in item.steps()], prepared.run(item.images))


def _joined(values: list[Any], answer: Any) -> npt.NDArray[np.int64]:
    """All values as one vector; logits as their bits."""
    parts = [*values, answer.sums, np.ascontiguousarray(answer.logits).view(np.int32), answer.classes]
    return np.concatenate([np.asarray(part, np.int64).ravel() for part in parts])


# --------------------------------------------------------------------------------------------------
# Description
# --------------------------------------------------------------------------------------------------


def _describe(item: Item) -> str:
    names = ", ".join(type(layer).__name__ for layer in item.network.layers)
    words = [] if item.way == "whole" and not item.whole else [*item.schemes.values()]
    words = [*(["whole"] if item.way == "whole" else []), *words]
    schemes = " and ".join(words) + "".join(f", {name}={value}" for name, value in item.whole.items())
    given = f"{type(item.network.input).__name__} {item.network.input.shape}"
    return f"{len(item.images)} images of {given}: {names}; {schemes}"


def _explain(item: Item, element: tuple[int, ...], bit: int) -> str:
    """The layer of an element and the element's position in the layer's output, as text."""
    network, batch, at = item.network, len(item.images), element[0]
    values = values_of(network)
    for path, step in item.steps().items():
        shape = (batch, *values[path].shape)
        if at < math.prod(shape):
            names = " + ".join(type(layer).__name__ for layer in step.layers)
            place = [int(i) for i in np.unravel_index(at, shape)]
            return f"{values[path].kind} {place} of layer {path} ({names})"
        at -= math.prod(shape)
    count = batch * len(network.scale)
    return f"{('sum', 'logit', 'class')[at // count]} {at % count} of the answer"


def _shape(item: Item) -> tuple[int, ...]:
    return (*item.images.shape, *(n for value in values_of(item.network).values() for n in value.shape))


def _kernels(arch: tuple[int, int]) -> dict[str, str]:
    """The PTX of the kernels of gpu/bnn, without the products and convolutions of other cases."""
    sources = [
        "SOURCE_PIXELS PLANES=1",
        "SOURCE_REALS PLANES=2",
        "GIVEN_INT16 PLANES=2",
        "GIVEN_INT32 PLANES=4",
    ]
    outputs = ["MADE_INT16", "MADE_INT32", "OUTPUT_BITS", "OUTPUT_BITS FAR VECTORS"]
    forms = ["BLOCKS=4 REGION STEPS=2 HELD ALIGNED", "BLOCKS=3 ALIGNED"]
    found: list[tuple[str, tuple[str, ...]]] = [
        ("dots", ("ROW_TILES=1", "PASSES=1", *f"{source} {output} {form}".split()))
        for form in forms
        for source, output in zip(sources, outputs, strict=True)
    ]
    images = itertools.product(("SOURCE_PIXELS", "SOURCE_REALS"), ("MADE_INT16", "MADE_INT32"))
    found += [("images", defines) for defines in images]
    kinds = ("UINT8", "UINT8 FOURS", "FLOAT32", "FLOAT32 FOURS", "PLANES")
    for kind, aligned, form in itertools.product(kinds, ("", "ALIGNED"), ("", "VECTORS", "LINES")):
        found.append(("images", tuple(f"IMAGES_{kind} {aligned} {form}".split())))
    steps = [("OTHER_INT16", "MADE_INT16", "BITS"), ("OTHER_INT32", "VIEWED", *_HALVES, "MADE_INT32", "BITS")]
    steps += [("BITS",), ("VIEWED", *_HALVES, "MADE_INT16"), ("AFFINE", "CLIP", "MADE_INT32")]
    for given, step, aligned in itertools.product(("GIVEN_INT16", "GIVEN_INT32"), steps, ((), ("ALIGNED",))):
        found.append(("integers", (given, *step, *aligned)))
    found += [("pool", (f"POOL_{kind}",)) for kind in ("OR", "AND")]
    found += [("answer", ("GIVEN_INT16",)), ("answer", ("GIVEN_INT32",)), ("flatten", ())]
    compiled = [compile_file(f"bnn/{name}.cu", macros(defines), arch) for name, defines in found]
    if arch >= (8, 0):
        compiled.append(compile_file("bnn/whole.cu", MACROS, arch))
    return {ptx.name: ptx.sha256 for ptx in compiled}


def _kernels_of_words(arch: tuple[int, int]) -> dict[str, str]:
    """The PTX of the kernels that make words of another size."""
    defines = itertools.product(("TO_32", "TO_64"), ((), ("VECTORS",)))
    compiled = (compile_file("bnn/words.cu", macros((to, *form)), arch) for to, form in defines)
    return {ptx.name: ptx.sha256 for ptx in compiled}


def _kernels_of_whole(
    source: str,
    forms: Mapping[Any, tuple[int, ...]],
    macros: Sequence[Mapping[str, str]],
    arch: tuple[int, int],
) -> dict[str, str]:
    """The PTX of a kernel of whole networks, with every macro and number of threads that is drawn."""
    threads = sorted({each for several in forms.values() for each in several})
    compiled = [
        compile_file(
            f"bnn/{source}.cu", {"THREADS": each, "BLOCKS_AT_ONCE": blocks_at_once(each), **words}, arch
        )
        for each, words in itertools.product(threads, macros)
    ]
    return {ptx.name: ptx.sha256 for ptx in compiled}


_OF_WORDS = tuple(dict.fromkeys(words, "") for words in ((), ("NARROW",), ("WIDE",), ("NARROW", "WIDE")))
_HALVES = ("POOL_MAX", "WINDOW_H=2", "WINDOW_W=2")


CASES = [
    Case(
        name=name,
        draw=draw,
        shape=_shape,
        describe=_describe,
        answers={"reference": _by_reference, "gpu": _by_gpu},
        outputs={"gpu": ""},
        explain=_explain,
        lead=lambda item, bits: min(bits),
        kernels=kernels,
    )
    for name, draw, kernels in (
        ("bnn", partial(_draw, _network), _kernels),
        ("bnn-layers", partial(_draw, _network_of_lines), _kernels),
        ("bnn-words", _draw_words, _kernels_of_words),
        (
            "bnn-whole-words",
            partial(_draw_whole, _WORDS),
            partial(_kernels_of_whole, "whole_words", _WORDS, _OF_WORDS),
        ),
        ("bnn-whole-fsb", partial(_draw_whole, _FSB), partial(_kernels_of_whole, "whole_fsb", _FSB, ({},))),
    )
]
"""The cases of the harness."""
