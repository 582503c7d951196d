"""Residuals of layer by layer runs: a convolution of bits that adds its shortcut, and makes bits of the sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gpu.bconv.convolution import Launch
from gpu.bconv.direct import ROWS, TEAMS
from gpu.bconv.geometry import ConvShape, conv_shape
from gpu.bconv.prepared import placed
from gpu.bconv.warpgroups import WARPGROUP_SCHEMES, sums_of
from gpu.bnn.launches import Site, convolution_scheme, fits_int16
from gpu.bnn.plan import Step
from gpu.bnn.weights import filters_along_c
from gpu.device import Array, planned
from gpu.preparation import prepare
from reference.types.network import Conv, Residual, Threshold

_SCHEME = WARPGROUP_SCHEMES["wgmma"]


def with_sums(steps: Iterable[Step], site: Site) -> list[Step]:
    """The steps, where convolutions of bits are joined with the residuals that alone take what they give."""
    made = list(steps)
    users = Counter(path for step in made for path in step.reads)
    users[made[-1].writes[-1]] += 1  # the answer
    for step in tuple(made):
        before = next((each for each in made if _adds(each, step, users, site)), None)
        if before is None:
            continue
        (given,) = before.writes
        (other,) = (path for path in step.reads if path != given)
        layers, paths = (*before.layers, *step.layers), (*before.paths, *step.paths)
        made[made.index(step)] = Step(layers, paths, (*before.reads, other), step.writes)
        made.remove(before)
    return made


def is_sum(step: Step) -> bool:
    """Whether a step is a convolution and a residual."""
    return isinstance(step.layers[0], Conv) and any(isinstance(layer, Residual) for layer in step.layers)


def _adds(before: Step, step: Step, users: Counter[str], site: Site) -> bool:
    """Whether one launch can do a convolution and a residual with its sum, and perhaps with a threshold."""
    values, kinds, given = site.values, [type(layer) for layer in step.layers], before.writes[0]
    if kinds not in ([Residual], [Residual, Threshold]) or len(before.layers) != 1 or users[given] != 1:
        return False
    (layer,) = before.layers
    if not isinstance(layer, Conv) or given not in step.reads or values[before.reads[0]].kind != "bits":
        return False
    shorts = *(path for path in step.reads if path != given), step.writes[0]
    if not all(values[path].kind == "integers" and fits_int16(values[path]) for path in shorts):
        return False
    image = values[before.reads[0]]
    if convolution_scheme(site, before.paths[0], layer, image, bits=False) != _SCHEME.name:
        return False
    chip = site.device.multiprocessors
    shape = _shape(layer, (ROWS * TEAMS * chip, *image.shape))  # each block has tiles for all warpgroups
    return sums_of(shape, _output(step), chip) is not None


@dataclass(eq=False)
class Sums:
    """A convolution of bits, plus integers; with a threshold there are bits of the sums, too."""

    site: Site
    step: Step

    def __post_init__(self) -> None:
        layer: Any = self.step.layers[0]
        self.layer: Conv = layer
        filters = filters_along_c(layer.filters)
        self.filters: Any = prepare(filters, "w", scheme=_SCHEME.name, device=self.site.device)
        last = self.step.layers[-1]
        self.rule = self.site.rule(last) if isinstance(last, Threshold) else ()

    def __call__(self, x: Any, other: Array) -> tuple[Any, ...]:
        """Launch the kernel."""
        site, output = self.site, _output(self.step)
        device = site.device
        shape = _shape(self.layer, x.shape)
        key = "bconv2d", _SCHEME.name, shape, "none", output
        chip = device.compute_capability, device.multiprocessors
        launch = planned(device.plans, key, lambda: Launch(_SCHEME, shape, "none", output, *chip))
        y = launch.output_on(device)
        bits = (site.bits(x.shape[0], site.values[self.step.writes[-1]]),) if self.rule else ()
        words: Any = (each.words for each in bits)
        images = placed(x, "x", _SCHEME, device)
        launch(device, images, self.filters, y, (other, *words, *self.rule))
        return (y, *bits)


def _output(step: Step) -> Any:
    return "sum and bits" if isinstance(step.layers[-1], Threshold) else "sum"


def _shape(layer: Conv, images: tuple[int, ...]) -> ConvShape:
    options = {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation}
    return conv_shape(images, layer.filters.shape, **options)
