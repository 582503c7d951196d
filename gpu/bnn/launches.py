"""The launches of a network's steps; each maps device arrays to device arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from gpu.bconv.geometry import ConvShape, conv_shape
from gpu.bmm.choice import fastest_scheme, gives
from gpu.bmm.fsb import TILE_BITS
from gpu.bmm.output import Output
from gpu.bmm.prepared import PreparedMatrix, placed, scheme_for
from gpu.bmm.product import check_scheme, multiply
from gpu.bmm.schemes import EVERY_SCHEME as PRODUCTS
from gpu.bmm.schemes import choose_scheme
from gpu.bnn.convolutions import convolution_of_bits
from gpu.bnn.dots import THREADS, is_far, order_of, pieces_of, planes_of, rule_of, tiles_of
from gpu.bnn.plan import Step
from gpu.bnn.site import Launch, Site, blocks_of, of_layer, vectors, width
from gpu.bnn.stages import STAGES, view_of
from gpu.bnn.weights import matrix_along_k, shape_of, signs_of
from gpu.bnn.words import in_words
from gpu.device import Array, Dim
from gpu.host import unknown
from gpu.preparation import prepare
from reference.types import PackedBits, PackedTensor, Word
from reference.types.layers import Conv, Dense, Flatten, Pool, Threshold
from reference.types.network import Answer, BitPlanes, Pixels, Reals, Signs
from reference.types.network_values import Value

_THREADS = 256
_FEW_THREADS = 128
"""Threads of a block of images.cu that has several rows."""
_EIGHT, _BLOCKS = 8, 8
"""Channels of a thread of integers.cu, and blocks of it on a multiprocessor."""


def lined(steps: Iterable[Step], site: Site) -> frozenset[str]:
    """The paths of vectors of bits that only products on lines read."""
    return _vectors_for(_takes_lines, steps, site)


def widened(steps: Iterable[Step], site: Site) -> frozenset[str]:
    """The paths of vectors of bits that only products on words of 64 bits read."""
    return _vectors_for(_takes_wide_words, steps, site)


def _vectors_for(
    takes: Callable[[Site, str, Dense], bool], steps: Iterable[Step], site: Site
) -> frozenset[str]:
    """The paths of vectors of bits that only products of some schemes read."""
    takers = dict[str, list[Step]]()
    for step in steps:
        for path in step.reads:
            takers.setdefault(path, []).append(step)

    def is_theirs(path: str) -> bool:
        return all(
            is_theirs(step.writes[0])
            if isinstance(step.layers[0], Flatten)
            else isinstance(step.layers[0], Dense) and takes(site, step.paths[0], step.layers[0])
            for step in takers.get(path, ())
        )

    bits = (path for path, value in site.values.items() if value.kind == "bits" and len(value.shape) == 1)
    return frozenset(path for path in bits if path in takers and is_theirs(path))


def _takes_lines(site: Site, path: str, layer: Dense) -> bool:
    """True if a product's scheme reads its operand as lines of bits for every batch size."""
    name, (k, n) = _product_scheme(site, path, layer), layer.weights.shape
    if name != "auto":
        return choose_scheme(name, k).form == "lines"
    return fastest_scheme(site.device.compute_capability, (1, n, k), "words", "lsb32").form == "lines"


def _takes_wide_words(site: Site, path: str, layer: Dense) -> bool:
    """True if a product's scheme reads words of 64 bits."""
    return _word_of(_product_scheme(site, path, layer)) == 64


def launch_of(step: Step, site: Site) -> Launch:
    """The launch of a step, chosen by its first layer; uploads its weights."""
    return LAUNCHES[type(step.layers[0])](site, step)


def _of_numbers(site: Site, step: Step) -> Launch:
    """The launch that converts images to integers, with the products that follow if it computes them."""
    images: Any = step.layers[0]
    if len(step.layers) == 1:
        return Integers(site, images)
    layer: Any = step.layers[1]
    return Dots(site, layer, site.values["input"], _gives(site, step), step.layers[2:], images)


def _products(site: Site, step: Step) -> Launch:
    """A convolution or a dense layer, of integers or of bits."""
    layer: Any = step.layers[0]
    given = site.values[step.reads[0]]
    if given.kind == "integers":
        return Dots(site, layer, given, _gives(site, step), step.layers[1:], None)
    if isinstance(layer, Dense):
        return Products(site, layer, step, step.layers[1:])
    return convolution_of_bits(site, step)


def _gives(site: Site, step: Step) -> tuple[Value, ...]:
    return tuple(site.values[path] for path in step.writes)


def _pool(site: Site, step: Step) -> Launch:
    """Windows of bits, or of integers with the layers after it."""
    pool: Any = step.layers[0]
    return Pools(site, pool, _gives(site, step)[0]) if pool.kind in ("or", "and") else Chain(site, step)


def _source(site: Site, images: Pixels | Reals) -> tuple[str, tuple[Any, ...]]:
    """The macro of source.cuh for an input, and its arguments after the images."""
    if isinstance(images, Pixels):
        return "SOURCE_PIXELS", (site.vector(images.scale, "scale"), site.vector(images.offset, "offset"))
    return "SOURCE_REALS", (np.float32(2.0**images.fraction), site.flag)


# --------------------------------------------------------------------------------------------------
# Products
# --------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Products:
    """A dense layer of bits; its output is sums or the network's answer, or with a threshold bits."""

    site: Site
    layer: Dense
    step: Step
    rest: Any

    def __post_init__(self) -> None:
        site, made = self.site, self.step.writes[0]
        self.name = _product_scheme(site, self.step.paths[0], self.layer)
        weights = matrix_along_k(self.layer.weights, _word_of(self.name))
        self.weights: Any = prepare(weights, "b", scheme=self.name, device=site.device)
        rule = site.rule(self.rest[0]) if self.rest else ()
        self.outputs = [Output("words", rule) if rule else Output()]
        if made in site.lined:
            self.outputs.insert(0, Output("lines", rule))
        elif made in site.answers:
            self.outputs.insert(0, Output("answer", site.answers[made]))

    def __call__(self, x: Any) -> tuple[Any]:
        """Launch the kernel of the scheme for the batch, which reads weights before earlier launches end."""
        device, (m, k), (_, n) = self.site.device, x.shape, self.weights.shape
        output, scheme = next(
            (output, scheme)
            for output in self.outputs
            for scheme in (scheme_for(self.name, device, (m, n, k), output.kind, x, self.weights),)
            if gives(scheme, output.kind, n)
        )
        check_scheme(scheme, (m, n, k), output.kind, device.compute_capability)
        x = in_words(x, scheme.word, self.site) if isinstance(x, PackedBits) else x
        a, b = placed(x, "a", False, scheme, device), placed(self.weights, "b", False, scheme, device)
        made = output.allocate((m, n, k), scheme, device)
        multiply(a, b, made, scheme, output, device, early=True)
        if output.kind == "answer":
            return (Answer(*made),)
        if output.kind == "lines":
            words, ones = made if len(made) == 2 else (*made, None)
            return (PreparedMatrix(words, ones, (m, n), "a", False, scheme.name, "lines", "lsb"),)
        if not self.rest:
            return (made[0],)
        bits = PackedBits(made[0], (m, n), "column", scheme.word, "lsb")
        return (bits if self.step.writes[0] in self.site.wide else in_words(bits, 32, self.site),)


def _product_scheme(site: Site, path: str, layer: Dense) -> str:
    """The scheme that the user chose for a product, if the chip has it, or "auto"."""
    name, (k, n) = site.scheme(path, layer), layer.weights.shape
    if name == "auto":
        return name
    if name not in PRODUCTS:
        raise unknown(f"scheme of layer {path}", name, (*PRODUCTS, "auto"))
    with of_layer(path, layer):
        check_scheme(choose_scheme(name, k), (1, n, k), "int32", site.device.compute_capability)
    return name


def _word_of(name: str) -> Word:
    """The words that a scheme of products, or "auto", reads between layers."""
    return PRODUCTS[name].word if name in PRODUCTS else 32


@dataclass(eq=False)
class Dots:
    """Sums of integers times ±1, also of images; a threshold adds or replaces an output of bits."""

    site: Site
    layer: Conv | Dense
    given: Value
    gives: tuple[Value, ...]
    rest: Any
    images: Pixels | Reals | None

    def __post_init__(self) -> None:
        site, shape = self.site, self._shape(1)
        self.planes, unsigned = planes_of(self.given)
        self.order = order_of(shape, self.planes)
        self.filters = site.device.upload(pieces_of(signs_of(self.layer), self.order), "filters")
        in_regions = bool(self.order.pixel_bytes)
        self.groups = (site.vector(self.order.groups, "groups"),) if in_regions else ()
        largest = shape.dot_length * max(-self.given.low, self.given.high)
        rule = rule_of(self.rest[0], largest) if self.rest else ()
        self.rule = tuple(site.vector(each, "rule") for each in rule)
        macro, self.source = _source(site, self.images) if self.images else (None, ())
        self.defines = (
            *((macro,) if macro else ()),
            f"PLANES={self.planes}",
            *(("UNSIGNED",) if unsigned else ()),
            *(("OUTPUT_BOTH" if len(self.gives) == 2 else "OUTPUT_BITS",) if self.rest else ()),
            *(("FAR",) if is_far(largest) else ()),
            *vectors(self.gives[-1]),
        )

    def __call__(self, x: Array) -> tuple[Any, ...]:
        """Launch the kernel of this step; return its output arrays."""
        site, batch = self.site, x.shape[0]
        sums = tuple(site.integers(batch, value) for value in self.gives if value.kind == "integers")
        bits = tuple(site.bits(batch, value) for value in self.gives if value.kind == "bits")
        shape = self._shape(batch)
        tiles = tiles_of(shape, self.order, self.planes, site.device.multiprocessors)
        defines = (
            *self.defines,
            *tiles.defines,
            *(() if self.images else (width("GIVEN", x),)),
            *(("WORDS",) if x.pointer % 4 == 0 and prod(x.shape[1:]) % 4 == 0 else ()),
            *(width("MADE", each) for each in sums),
        )
        region = (tiles.region,) if self.groups else ()
        words: Any = (each.words for each in bits)
        made = *words, *sums
        args = (x, *self.source, self.filters, *self.groups, *region, *self.rule, *made, shape.argument)
        site.launch("dots", "dots", defines, (tiles.grid, (THREADS, 1, 1)), *args, shared=tiles.shared)
        return (*sums, *bits)

    def _shape(self, batch: int) -> ConvShape:
        layer = self.layer
        if isinstance(layer, Dense):
            features, outputs = layer.weights.shape
            return conv_shape((batch, 1, 1, features), (1, 1, features, outputs), padding="VALID")
        options = {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation}
        return conv_shape((batch, *self.given.shape), shape_of(layer), **options)


# --------------------------------------------------------------------------------------------------
# Inputs
# --------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Integers:
    """The launch that converts images to integers."""

    site: Site
    images: Pixels | Reals

    def __post_init__(self) -> None:
        self.macro, self.source = _source(self.site, self.images)

    def __call__(self, x: Array) -> tuple[Any]:
        """Launch the kernel of this step; return its output array."""
        y = self.site.integers(x.shape[0], self.site.values["input"])
        count = prod(x.shape)
        args = (x, *self.source, y, count, x.shape[-1])
        defines = self.macro, width("MADE", y)
        self.site.launch("images", "integers_of_images", defines, blocks_of(count), *args)
        return (y,)


@dataclass(eq=False)
class Bits:
    """The launch that packs images as bits, of pixels or of vectors."""

    site: Site
    step: Step

    def __post_init__(self) -> None:
        images: Any = self.step.layers[0]
        self.images: Signs | BitPlanes = images
        self.path = self.step.writes[0]
        self.gives, self.rule, self.fours = self.site.values[self.path], (), ()
        if isinstance(self.images, Signs):
            self.rule = (self.site.vector(self.images.thresholds, "thresholds"),)
            self.fours = ("FOURS",) if self.images.shape[-1] % 4 == 0 else ()

    def __call__(self, x: Array) -> tuple[Any]:
        """Launch the kernel: one thread per word of a row, several rows per block."""
        site, batch, channels = self.site, x.shape[0], x.shape[-1]
        rows = batch * prod(self.gives.shape[:-1])
        count = prod(x.shape) // rows
        bits: Any = (site.lines if self.path in site.lined else site.bits)(batch, self.gives)
        made = bits.arrays if isinstance(bits, PreparedMatrix) else (bits.words,)
        words = prod(bits.words.shape) // rows
        vector, source = (4, "IMAGES_PLANES") if not self.rule else (16, f"IMAGES_{x.dtype.name.upper()}")
        aligned = x.pointer % vector == count * x.dtype.itemsize % vector == 0
        flag = (site.flag,) if source == "IMAGES_FLOAT32" else ()
        form = ("LINES",) if len(made) == 2 else vectors(self.gives)
        defines = (source, *self.fours, *(("ALIGNED",) if aligned else ()), *form)
        across = min(words, _THREADS)
        down = min(rows, max(1, _FEW_THREADS // across))
        shape = (-(-rows // down), 1, 1), (across, down, 1)
        site.launch(
            "images",
            "bits_of_images",
            defines,
            shape,
            *(x, *self.rule, *flag, *made),
            *(rows, words, count, channels),
        )
        return (bits,)


# --------------------------------------------------------------------------------------------------
# Layers on integers
# --------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Chain:
    """Layers on integers, in the order of `gpu.bnn.stages.STAGES`, of each at most one."""

    site: Site
    step: Step

    def __post_init__(self) -> None:
        site, step = self.site, self.step
        layers: dict[type, Any] = {type(layer): layer for layer in step.layers}
        self.numbers, self.gives = (site.values[path] for path in (step.writes[0], step.writes[-1]))
        self.kept, self.has_bits = self.numbers.kind == "integers", self.gives.kind == "bits"
        found = [(STAGES[type(layer)], layer) for layer in step.layers]
        self.defines = tuple(stage.macro for stage, _ in found if stage.macro)
        self.arguments = tuple(
            site.vector(each, name) if isinstance(each, np.ndarray) else each
            for stage, layer in found
            for name, each in stage.arguments(layer).items()
        )
        self.rule = site.rule(layers[Threshold]) if self.has_bits else ()
        self.defines += ("BITS", *vectors(self.gives)) if self.has_bits else ()
        eights = [site.values[path].shape[-1] for path in (*step.reads, step.writes[-1])]
        self.view = ()
        given, (pool, before) = site.values[step.reads[-1]], view_of(step.layers)
        if pool or given.shape[-1] != self.gives.shape[-1]:
            pool = pool or Pool("max", (1, 1), (1, 1))
            eights.append(before)
            self.defines += ("VIEWED", f"POOL_{pool.kind.upper()}", *_window(pool))
            self.view = (_view(pool, before, given, self.gives),)
        self.defines += ("ALIGNED",) if all(count % _EIGHT == 0 for count in eights) else ()

    def __call__(self, x: Array, *other: Array) -> tuple[Any, ...]:
        """Launch the kernel of this step; return its output arrays."""
        site, batch = self.site, x.shape[0]
        made = (site.integers(batch, self.numbers),) if self.kept else ()
        bits = (site.bits(batch, self.gives),) if self.has_bits else ()
        arrays = {"GIVEN": (x,), "OTHER": other, "MADE": made}
        widths = (width(what, array) for what, some in arrays.items() for array in some)
        rows, channels = batch * prod(self.gives.shape[:-1]), self.gives.shape[-1]
        words: Any = (*self.rule, *(each.words for each in bits))
        args = (x, *self.arguments, *other, *self.view, *made, *words, rows, channels)
        site.launch("integers", "integers", (*self.defines, *widths), self._shape(rows, channels), *args)
        return (*made, *bits)

    def _shape(self, rows: int, channels: int) -> tuple[Dim, Dim]:
        """The grid and block: groups of eight channels across, rows down; as many blocks as are resident."""
        eights = -(-channels // 32) * 4 if self.has_bits else -(-channels // _EIGHT)
        beside = -(-eights // _THREADS)
        across = -(-eights // beside)
        down = min(_THREADS // across, rows)
        most = max(1, self.site.device.multiprocessors * _BLOCKS // beside)
        return (min(-(-rows // down), most), beside, 1), (across, down, 1)


def _window(pool: Pool) -> tuple[str, str]:
    """The macros for a pooling window's height and width."""
    return f"WINDOW_H={pool.window[0]}", f"WINDOW_W={pool.window[1]}"


def _view(pool: Pool, before: int, given: Value, gives: Value) -> np.void:
    """The kernel argument of type `View` (see integers.cu): sizes, stride and padding of the windows."""
    (top, _), (left, _) = pool.padding
    sizes = (*given.shape, before, *gives.shape[:2], *_stride(pool, gives), top, left)
    return np.void(np.array(sizes, np.uint32).tobytes())


def _stride(pool: Pool, gives: Value) -> tuple[int, ...]:
    """The stride of a pool; 1 along an axis with one window, so that no offset exceeds 32 bits."""
    return tuple(step if size > 1 else 1 for step, size in zip(pool.stride, gives.shape[:2], strict=True))


# --------------------------------------------------------------------------------------------------
# Bits to bits
# --------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Pools:
    """The launch that pools packed pixels over windows."""

    site: Site
    layer: Pool
    gives: Value

    def __call__(self, x: Any) -> tuple[Any]:
        """Launch the kernel of this step; return its output array."""
        y: Any = self.site.bits(x.shape[0], self.gives)
        (top, _), (left, _) = self.layer.padding
        stride = _stride(self.layer, self.gives)
        sizes = (*x.words.shape, *self.gives.shape[:2], *self.layer.window, *stride, top, left)
        shape = np.void(np.array(sizes, np.uint32).tobytes())
        defines, blocks = (f"POOL_{self.layer.kind.upper()}",), blocks_of(prod(y.words.shape))
        self.site.launch("pool", "pool", defines, blocks, x.words, y.words, shape)
        return (y,)


@dataclass(eq=False)
class Flattened:
    """Flattened images: integers unchanged, bits packed without gaps between pixels.

    Words that are all full are the lines of a product already.
    """

    site: Site
    step: Step

    def __call__(self, x: Any) -> tuple[Any]:
        """Launch the kernel."""
        (made,) = self.step.writes
        gives = self.site.values[made]
        if isinstance(x, PackedBits | PreparedMatrix):
            return (x,)
        if not isinstance(x, PackedTensor):
            return (x.view((x.shape[0], *gives.shape)),)
        batch, height, width, channels = x.shape
        (count,) = gives.shape
        if made in self.site.lined and channels % 32 == count % TILE_BITS == 0:
            lines = x.words.view((batch, count // TILE_BITS, TILE_BITS // 32))
            return (PreparedMatrix(lines, None, (batch, count), "a", False, "btc2", "lines", "lsb"),)
        bits = self.site.bits(batch, gives)
        shape = blocks_of(prod(bits.words.shape))
        args = (x.words, bits.words, batch, height * width, channels)
        self.site.launch("flatten", "flatten", (), shape, *args)
        return (bits,)


LAUNCHES: dict[type, Callable[[Site, Step], Launch]] = {
    Pixels: _of_numbers,
    Reals: _of_numbers,
    Signs: Bits,
    BitPlanes: Bits,
    Conv: _products,
    Dense: _products,
    Flatten: Flattened,
    **dict.fromkeys(STAGES, Chain),
    Pool: _pool,
}
"""What launches a step, by its first layer."""
