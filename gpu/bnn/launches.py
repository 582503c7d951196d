"""The launches of a network's steps: each takes arrays of the device and gives others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, TypeAlias

import numpy as np

from gpu.bconv.convolution import bconv2d
from gpu.bconv.geometry import conv_shape
from gpu.bconv.schemes import EVERY_SCHEME, plan
from gpu.bmm.product import bmm
from gpu.bmm.schemes import choose_scheme
from gpu.bnn.plan import Step, Values
from gpu.bnn.weights import filters_along_c, matrix_along_k, words_of_filters, words_of_matrix
from gpu.compile import compile_file
from gpu.device import Array, Device, Dim, LaunchPlan, is_array, launch
from gpu.host import unknown
from gpu.preparation import prepare
from reference.errors import SchemeError
from reference.types import PackedBits, PackedTensor
from reference.types.network import (
    Affine,
    BitPlanes,
    Clip,
    Conv,
    Dense,
    Flatten,
    PadChannels,
    Pixels,
    Pool,
    Reals,
    Residual,
    Signs,
    Threshold,
)
from reference.types.network_values import INT16_MAX, INT16_MIN, INT32_MAX, INT32_MIN, Value

Launch: TypeAlias = Callable[..., tuple[Any, ...]]
"""Takes what a step reads, returns what it writes: packed bits, or an array of int32."""

_THREADS = 256
_WORDS_OF_BLOCK = 32
"""Words that a block of threshold.cu makes."""
_PIXELS_OF_BLOCK = _FILTERS_OF_BLOCK = 32
"""The tile of a block of dots.cu."""


@dataclass(frozen=True, eq=False)
class Site:
    """Where a step runs: a device, the values of the network, and what to use for it.

    Attributes
    ----------
    schemes : dict
        Schemes by the path of a layer, or by "Conv" and "Dense".
    flag : device array of one int32
        What kernels raise for a number of the images that is not finite, or beyond int16.
    """

    device: Device
    values: Values
    schemes: dict[str, str]
    flag: Array

    def launch(
        self, source: str, name: str, defines: tuple[str, ...], shape: tuple[Dim, Dim], *args: Any
    ) -> None:
        """Launch a kernel of this folder; arguments are arrays, numbers and structures."""
        arrays = [each for each in args if is_array(each)]
        fixed = tuple(None if is_array(each) else each for each in args)
        key = tuple(each.tobytes() if isinstance(each, np.void) else each for each in fixed)

        def made() -> LaunchPlan:
            path, macros = f"bnn/{source}.cu", dict.fromkeys(defines, "")
            return LaunchPlan(
                compile_file(path, macros, self.device.compute_capability).text, name, *shape, fixed
            )

        launch(self.device, ("bnn", source, name, defines, shape, key), made, *arrays)

    def integers(self, batch: int, value: Value) -> Array:
        """Allocate integers of some images."""
        return self.device.allocate((batch, *value.shape), np.int32, "integers")

    def bits(self, batch: int, value: Value) -> PackedBits | PackedTensor:
        """Allocate bits of some images."""
        words = -(-value.shape[-1] // 32)
        if len(value.shape) == 1:
            array = self.device.allocate((words, batch), np.uint32, "bits")
            return PackedBits(array, (batch, value.shape[0]), "column", 32, "lsb")
        height, width, channels = value.shape
        array = self.device.allocate((batch, height, width, words), np.uint32, "bits")
        return PackedTensor(array, (batch, height, width, channels), "NHWC", 32, "lsb")

    def rule(self, threshold: Threshold) -> tuple[Array, Array]:
        """Thresholds and flips on the device."""
        return (
            self.device.upload(np.ascontiguousarray(threshold.thresholds), "thresholds"),
            self.device.upload(np.asarray(threshold.flip).astype(np.uint8), "flip"),
        )

    def vector(self, given: Any, name: str) -> Array:
        """A vector with one number for each channel, on the device."""
        return self.device.upload(np.ascontiguousarray(given), name)

    def scheme(self, path: str, layer: Conv | Dense) -> str:
        """The scheme that the user chose for a layer, or "auto"."""
        return self.schemes.get(path, self.schemes.get(type(layer).__name__, "auto"))


def launch_of(step: Step, site: Site) -> Launch:
    """The launch of a step; uploads its weights."""
    made, values = step.writes, site.values
    given = values.get(step.reads[0])
    match step.layers:
        case [(Pixels() | Reals()) as images, (Conv() | Dense()) as layer, *rule]:
            return Dots(site, layer, values["input"], values[made[0]], rule, images)
        case [(Conv() | Dense()) as layer, *rest]:
            assert given is not None
            if given.kind == "integers":
                return Dots(site, layer, given, values[made[0]], rest, None)
            return _of_bits(site, layer, step.paths[0], given, rest)
        case [Residual(), *rule]:
            return Sum(site, values[made[0]], rule, kept=len(made) == 2)
        case [Pixels() | Reals() | Signs() | BitPlanes() as images]:
            return Images(site, images)
        case [Threshold() as threshold]:
            return Bits(site, threshold, values[made[0]])
        case [Pool() as pool]:
            assert given is not None
            return Pools(site, pool, given, values[made[0]])
        case [Flatten()]:
            return Flattened(site, values[made[0]])
        case [layer]:
            assert given is not None
            return Integers(site, layer, given, values[made[0]])
        case _:
            raise AssertionError(step)


def blocks_of(count: int, of_block: int = _THREADS, threads: int = _THREADS) -> tuple[Dim, Dim]:
    """Grid and block for a number of elements."""
    return (-(-count // of_block), 1, 1), (threads, 1, 1)


def _vectors(value: Value) -> tuple[str, ...]:
    return ("VECTORS",) if len(value.shape) == 1 else ()


def _source(site: Site, images: Any) -> tuple[str, tuple[Any, ...]]:
    """The macro of source.cuh for an input, and its arguments after the images."""
    if isinstance(images, Pixels):
        return "SOURCE_PIXELS", (site.vector(images.scale, "scale"), site.vector(images.offset, "offset"))
    if isinstance(images, Reals):
        return "SOURCE_REALS", (np.float32(2.0**images.fraction), site.flag)
    return "SOURCE_INT32", ()


# --------------------------------------------------------------------------------------------------
# Convolutions and products
# --------------------------------------------------------------------------------------------------


def _of_bits(site: Site, layer: Conv | Dense, path: str, given: Value, rest: Any) -> Launch:
    """A convolution or product of bits, by `gpu.bconv2d` or `gpu.bmm`."""
    options: dict[str, Any] = {"device": site.device}
    if rest:
        options["thresholds"], options["flip"] = site.rule(rest[0])
    if isinstance(layer, Dense):
        options["scheme"] = _product_scheme(site, path, layer)
        weights: Any = prepare(
            matrix_along_k(layer.weights), "b", scheme=options["scheme"], device=site.device
        )
        return partial(_product, weights, options)
    scheme = _convolution_scheme(site, path, layer, given, bits=bool(rest))
    filters: Any = prepare(filters_along_c(layer.filters), "w", scheme=scheme, device=site.device)
    options |= {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation}
    if len(rest) == 2:
        options["pool"] = rest[1].kind
    return partial(_convolution, filters, options)


def _product(weights: Any, options: dict[str, Any], x: Any) -> tuple[Any]:
    return (bmm(x, weights, **options),)


def _convolution(filters: Any, options: dict[str, Any], x: Any) -> tuple[Any]:
    return (bconv2d(x, filters, **options),)


def _convolution_scheme(site: Site, path: str, layer: Conv, given: Value, *, bits: bool) -> str:
    """The scheme of a convolution, which takes words of 32 bits."""
    name = site.scheme(path, layer)
    if name == "auto":
        name = plan(
            (1, *given.shape),
            layer.filters.shape,
            stride=layer.stride,
            padding=layer.padding,
            dilation=layer.dilation,
            compute_capability=site.device.compute_capability,
            bits=bits,
        ).scheme.name
        odd = -(-given.shape[2] // 32) % 2
        return "bconv32" if name == "bconv64" and odd else name  # its words are pairs of the images' words
    if name not in EVERY_SCHEME:
        raise unknown(f"scheme of layer {path}", name, (*EVERY_SCHEME, "auto"))
    return name


def _product_scheme(site: Site, path: str, layer: Dense) -> str:
    """The scheme of a product, which takes words of 32 bits."""
    name = site.scheme(path, layer)
    if name != "auto" and choose_scheme(name, layer.weights.shape[0]).word != 32:
        raise SchemeError(
            f"layer {path} (Dense): {name} takes words of 64 bits\nbits between layers are words of 32\n"
            "choose bmm32, bmms32 or a scheme for bit tensor cores"
        )
    return name


@dataclass(eq=False)
class Dots:
    """Sums of integers times ±1, of images too; with a threshold they leave as bits."""

    site: Site
    layer: Conv | Dense
    given: Value
    gives: Value
    rest: Any
    images: Pixels | Reals | None

    def __post_init__(self) -> None:
        site, layer = self.site, self.layer
        words = words_of_filters(layer.filters) if isinstance(layer, Conv) else words_of_matrix(layer.weights)
        self.filters = site.device.upload(words, "filters")
        self.rule = site.rule(self.rest[0]) if self.rest else ()
        source, self.source = _source(site, self.images)
        wide = self.given.low < INT16_MIN or self.given.high > INT16_MAX
        self.defines = (
            source,
            *(("WIDE",) if wide else ()),
            "OUTPUT_BITS" if self.rest else "OUTPUT_INT",
            *_vectors(self.gives),
        )

    def __call__(self, x: Array) -> tuple[Any]:
        """Launch the kernel."""
        batch = x.shape[0]
        y: Any = (self.site.bits if self.rest else self.site.integers)(batch, self.gives)
        shape = self._shape(batch)
        grid = (-(-shape.pixels // _PIXELS_OF_BLOCK), -(-shape.filters // _FILTERS_OF_BLOCK), 1)
        made = y.words if self.rest else y
        args = (x, *self.source, self.filters, *self.rule, made, shape.argument)
        self.site.launch("dots", "dots", self.defines, (grid, (128, 1, 1)), *args)
        return (y,)

    def _shape(self, batch: int) -> Any:
        layer = self.layer
        if isinstance(layer, Dense):
            features, outputs = layer.weights.shape
            return conv_shape((batch, 1, 1, features), (1, 1, features, outputs), padding="VALID")
        options = {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation}
        return conv_shape((batch, *self.given.shape), layer.filters.shape, **options)


# --------------------------------------------------------------------------------------------------
# Inputs, bits of integers
# --------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Images:
    """Images as bits or integers."""

    site: Site
    images: Any

    def __post_init__(self) -> None:
        self.gives = self.site.values["input"]
        self.source: tuple[Any, ...] = ()
        if isinstance(self.images, Signs):
            self.source = (self.site.vector(self.images.thresholds, "thresholds"),)
        elif not isinstance(self.images, BitPlanes):
            self.macro, self.source = _source(self.site, self.images)

    def __call__(self, x: Array) -> tuple[Any]:
        """Launch the kernel."""
        site, batch, channels = self.site, x.shape[0], x.shape[-1]
        rows = prod(x.shape[:-1])
        if self.gives.kind == "integers":
            y = site.integers(batch, self.gives)
            count = rows * channels
            args = (x, *self.source, y, count, channels)
            site.launch("images", "integers_of_images", (self.macro,), blocks_of(count), *args)
            return (y,)
        bits = site.bits(batch, self.gives)
        count = prod(bits.words.shape)
        if isinstance(self.images, BitPlanes):
            args = (x, bits.words, rows, channels)
            site.launch("images", "planes_of_images", _vectors(self.gives), blocks_of(count), *args)
            return (bits,)
        numbers = np.dtype(x.dtype).name
        flag = (site.flag,) if numbers == "float32" else ()
        defines = (f"NUMBERS_{numbers.upper()}", *_vectors(self.gives))
        args = (x, *self.source, *flag, bits.words, rows, channels)
        site.launch("threshold", "threshold", defines, blocks_of(count, _WORDS_OF_BLOCK, 128), *args)
        return (bits,)


@dataclass(eq=False)
class Bits:
    """Bits of integers."""

    site: Site
    layer: Threshold
    gives: Value

    def __post_init__(self) -> None:
        self.rule = self.site.rule(self.layer)

    def __call__(self, x: Array) -> tuple[Any]:
        """Launch the kernel."""
        return (_bits(self.site, ("NUMBERS_INT32",), self.gives, x.shape[0], (x, *self.rule)),)


@dataclass(eq=False)
class Sum:
    """The sum of two ways; with a threshold its bits, and the sum itself if it is needed."""

    site: Site
    gives: Value
    rest: Any
    kept: bool

    def __post_init__(self) -> None:
        self.rule = self.site.rule(self.rest[0]) if self.rest else ()

    def __call__(self, x: Array, y: Array) -> tuple[Any, ...]:
        """Launch the kernel."""
        site, batch = self.site, x.shape[0]
        value = Value("integers", self.gives.shape)
        if self.rest and not self.kept:
            return (_bits(site, ("NUMBERS_SUM",), value, batch, (x, y, *self.rule)),)
        sums = site.integers(batch, value)
        if self.rest:
            args = (x, y, sums, *self.rule)
            return sums, _bits(site, ("NUMBERS_SUM", "KEEP_SUM"), value, batch, args)
        count = prod(sums.shape)
        site.launch("integers", "add", (), blocks_of(count), x, y, sums, count)
        return (sums,)


def _bits(site: Site, defines: tuple[str, ...], value: Value, batch: int, given: tuple[Any, ...]) -> Any:
    """Launch threshold.cu on integers."""
    bits = site.bits(batch, value)
    rows, channels = batch * prod(value.shape[:-1]), value.shape[-1]
    shape = blocks_of(prod(bits.words.shape), _WORDS_OF_BLOCK, 128)
    site.launch(
        "threshold", "threshold", (*defines, *_vectors(value)), shape, *given, bits.words, rows, channels
    )
    return bits


# --------------------------------------------------------------------------------------------------
# Everything else
# --------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Integers:
    """A layer that takes integers to integers, one by one."""

    site: Site
    layer: Any
    given: Value
    gives: Value

    def __post_init__(self) -> None:
        self.vectors: tuple[Array, ...] = ()
        if isinstance(self.layer, Affine):
            scale, offset = self.layer.scale, self.layer.offset
            self.vectors = self.site.vector(scale, "scale"), self.site.vector(offset, "offset")

    def __call__(self, x: Array) -> tuple[Any]:
        """Launch the kernel."""
        site, layer = self.site, self.layer
        y = site.integers(x.shape[0], self.gives)
        count, channels = prod(y.shape), self.given.shape[-1]
        shape = blocks_of(count)
        match layer:
            case Affine():
                site.launch("integers", "affine", (), shape, x, *self.vectors, y, count, channels)
            case Clip(low=low, high=high):
                low, high = (
                    (INT32_MIN if low is None else int(low)),
                    (INT32_MAX if high is None else int(high)),
                )
                site.launch("integers", "clip", (), shape, x, y, count, low, high)
            case PadChannels(before=before):
                args = (count, self.gives.shape[-1], int(before), channels)
                site.launch("integers", "pad_channels", (), shape, x, y, *args)
            case _:
                raise AssertionError(layer)
        return (y,)


@dataclass(eq=False)
class Pools:
    """Windows of pixels as one pixel."""

    site: Site
    layer: Pool
    given: Value
    gives: Value

    def __call__(self, x: Any) -> tuple[Any]:
        """Launch the kernel."""
        packed = isinstance(x, PackedTensor)
        source: Any = x.words if packed else x
        y: Any = (self.site.bits if packed else self.site.integers)(source.shape[0], self.gives)
        made = y.words if packed else y
        (top, _), (left, _) = self.layer.padding
        height, width = self.gives.shape[:2]
        stride = tuple(
            step if size > 1 else 1 for step, size in zip(self.layer.stride, (height, width), strict=True)
        )
        sizes = (*source.shape, height, width, *self.layer.window, *stride, top, left)
        shape = np.void(np.array(sizes, np.uint32).tobytes())
        defines = (f"POOL_{self.layer.kind.upper()}",)
        self.site.launch("pool", "pool", defines, blocks_of(prod(made.shape)), source, made, shape)
        return (y,)


@dataclass(eq=False)
class Flattened:
    """Vectors of pixels: integers as they are, bits without gaps between pixels."""

    site: Site
    gives: Value

    def __call__(self, x: Any) -> tuple[Any]:
        """Launch the kernel."""
        if isinstance(x, PackedBits):
            return (x,)
        if not isinstance(x, PackedTensor):
            return (x.view((x.shape[0], *self.gives.shape)),)
        batch, height, width, channels = x.shape
        bits = self.site.bits(batch, self.gives)
        shape = blocks_of(prod(bits.words.shape))
        args = (x.words, bits.words, batch, height * width, channels)
        self.site.launch("flatten", "flatten", (), shape, *args)
        return (bits,)
