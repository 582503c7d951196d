"""Convolutions of bits in a network, by `gpu.bconv2d` or on warpgroups, with or without a residual's sum."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gpu.bconv.convolution import Launch as Convolution
from gpu.bconv.convolution import bconv2d, convolved_in_groups, filters_of_groups
from gpu.bconv.direct import ROWS, TEAMS, Sum
from gpu.bconv.geometry import ConvShape, Pool, conv_shape
from gpu.bconv.prepared import placed
from gpu.bconv.schemes import EVERY_SCHEME, plan
from gpu.bconv.warpgroups import WARPGROUP_SCHEMES, sums_of
from gpu.bmm.warpgroups import check_chip
from gpu.bnn.plan import Step
from gpu.bnn.site import Launch, Site, fits_int16, of_layer
from gpu.bnn.stages import view_of
from gpu.bnn.weights import filters_along_c
from gpu.bnn.words import in_words
from gpu.device import planned
from gpu.host import unknown
from gpu.preparation import prepare
from reference.types import PackedTensor, Word
from reference.types.layers import Conv, Residual, Threshold
from reference.types.layers import Pool as PoolLayer
from reference.types.network_values import Value

WGMMA = WARPGROUP_SCHEMES["wgmma"]


def convolution_of_bits(site: Site, step: Step) -> Launch:
    """The launch of a convolution of bits, by a scheme that supports it."""
    layer: Any = step.layers[0]
    kinds: dict[type, Any] = {type(each): each for each in step.layers[1:]}
    bits = Threshold in kinds and Residual not in kinds
    scheme = convolution_scheme(site, step.paths[0], layer, site.values[step.reads[0]], bits=bits)
    if layer.groups > 1:
        return InGroups(site, step, scheme)
    filters: Any = prepare(filters_along_c(layer.filters), "w", scheme=scheme, device=site.device)
    if scheme == WGMMA.name:
        return OnWarpgroups(site, step, filters)
    options: dict[str, Any] = {"device": site.device, **_options(layer)}
    if bits:
        options["thresholds"], options["flip"] = site.rule(kinds[Threshold])
    if PoolLayer in kinds:
        options["pool"] = kinds[PoolLayer].kind
    return partial(_convolution, site, EVERY_SCHEME[scheme].word, filters, options)


def _convolution(site: Site, word: Word, filters: Any, options: dict[str, Any], x: Any) -> tuple[Any]:
    return (bconv2d(in_words(x, word, site), filters, **options),)


@dataclass(eq=False)
class InGroups:
    """A convolution of bits in groups; one launch joins the groups, thresholds and pools."""

    site: Site
    step: Step
    scheme: str

    def __post_init__(self) -> None:
        site, kinds = self.site, {type(each): each for each in self.step.layers}
        layer: Any = kinds[Conv]
        rule, pool = kinds.get(Threshold), kinds.get(PoolLayer)
        scheme, words = EVERY_SCHEME[self.scheme], filters_along_c(layer.filters)
        self.filters = filters_of_groups(words, layer.groups, scheme, site.device)
        self.rule = site.rule(rule) if isinstance(rule, Threshold) else ()
        self.pool: Any = pool.kind if isinstance(pool, PoolLayer) else "none"
        self.layer, self.options = layer, {**_options(layer), "groups": layer.groups}

    def __call__(self, x: Any) -> tuple[Any]:
        """Launch the convolution's kernels; return the output array."""
        shape = conv_shape(x.shape, self.layer.filters.shape, **self.options)
        output = "bits" if self.rule else "int"
        y = convolved_in_groups(x, self.filters, shape, self.pool, output, self.rule, self.site.device)
        if not self.rule:
            return (y,)
        return (PackedTensor(y, (*y.shape[:3], self.layer.filters.shape[3]), "NHWC", 32, "lsb"),)


@dataclass(eq=False)
class OnWarpgroups:
    """A convolution of bits to integers or bits; or a residual sum, to integers and optionally bits.

    What it needs of the filters is made now, so that a launch reads it before earlier ones end.
    """

    site: Site
    step: Step
    filters: Any

    def __post_init__(self) -> None:
        shape, _, _ = launched(self.step, self.site, 1)
        self.filters.units(self.site.device)
        self.filters.addends(shape, self.site.device)
        rule = next((each for each in self.step.layers if isinstance(each, Threshold)), None)
        self.rule = self.site.rule(rule) if rule else ()

    def __call__(self, x: Any, *other: Any) -> tuple[Any, ...]:
        """Launch the convolution's kernel; return its output arrays."""
        site, device = self.site, self.site.device
        shape, pool, output = launched(self.step, site, x.shape[0])
        chip = device.compute_capability, device.multiprocessors
        key = "bconv2d", WGMMA.name, shape, pool, output, "early"
        launch = planned(
            device.plans, key, lambda: Convolution(WGMMA, shape, pool, output, *chip, early=True)
        )
        y, images = launch.output_on(device), placed(x, "x", WGMMA, device)
        if not isinstance(output, Sum):
            launch(device, images, self.filters, y, self.rule)
            if not self.rule:
                return (y,)
            n, p, q, _ = launch.size
            return (PackedTensor(y, (n, p, q, shape.filters), "NHWC", 32, "lsb"),)
        bits = (site.bits(x.shape[0], site.values[self.step.writes[-1]]),) if self.rule else ()
        words: Any = (each.words for each in bits)
        launch(device, images, self.filters, y, (*other, *words, *self.rule))
        return (y, *bits)


def launched(step: Step, site: Site, batch: int) -> tuple[ConvShape, Pool, Any]:
    """The geometry, the pooling and the output of a step on warpgroups."""
    x, *others = (site.values[path] for path in step.reads)
    layer: Any = step.layers[0]
    kinds: dict[type, Any] = {type(each): each for each in step.layers}
    shape = conv_shape((batch, *x.shape), layer.filters.shape, **_options(layer))
    if others:
        pool, before = view_of(step.layers)
        return shape, "none", Sum(others[0].shape[-1], before, Threshold in kinds, pool is not None)
    if Threshold in kinds:
        return shape, kinds[PoolLayer].kind if PoolLayer in kinds else "none", "bits"
    return shape, "none", "int16" if fits_int16(site.values[step.writes[0]]) else "int"


def has_sum(step: Step, site: Site) -> bool:
    """True if a launch can add a step's residual for every batch size, so that all warpgroups have tiles."""
    shape, _, output = launched(step, site, 1)
    enough = -(-ROWS * TEAMS // (shape.out_height * shape.out_width))
    return sums_of(replace(shape, batch=enough), output, 1) is not None


def _options(layer: Conv) -> dict[str, Any]:
    return {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation}


def convolution_scheme(site: Site, path: str, layer: Conv, given: Value, *, bits: bool) -> str:
    """The scheme of a convolution of bits; "auto" takes one that reads words of 32 bits where they are."""
    name = site.scheme(path, layer)
    if name == "auto":
        name = plan(
            (1, *given.shape),
            layer.filters.shape,
            stride=layer.stride,
            padding=layer.padding,
            dilation=layer.dilation,
            groups=layer.groups,
            compute_capability=site.device.compute_capability,
            bits=bits and layer.groups == 1,
        ).scheme.name
        if layer.groups > 1:
            return name
        odd = -(-given.shape[2] // 32) % 2
        # a word of bconv64 is two words of the images, so their number must be even
        return "bconv32" if name == "bconv64" and odd else name
    if name not in EVERY_SCHEME:
        raise unknown(f"scheme of layer {path}", name, (*EVERY_SCHEME, "auto"))
    with of_layer(path, layer):
        check_chip(EVERY_SCHEME[name], site.device.compute_capability, "btc1")
    return name
