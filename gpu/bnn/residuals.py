"""Residuals in one launch: a convolution of bits that adds its shortcut, and makes bits of the sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from gpu.bconv.convolution import Launch
from gpu.bconv.direct import ROWS, TEAMS, Sum
from gpu.bconv.geometry import ConvShape, conv_shape
from gpu.bconv.prepared import placed
from gpu.bconv.warpgroups import WARPGROUP_SCHEMES, sums_of
from gpu.bnn.launches import Site, convolution_scheme, fits_int16
from gpu.bnn.plan import Step, is_halved
from gpu.bnn.weights import filters_along_c
from gpu.device import Array, planned
from gpu.preparation import prepare
from reference.types.network import Conv, PadChannels, Pool, Residual, Threshold

_SCHEME = WARPGROUP_SCHEMES["wgmma"]


def with_sums(steps: Iterable[Step], site: Site) -> list[Step]:
    """The steps, where convolutions of bits are joined with the residuals that alone take what they give.

    The pool of a shortcut goes to the step whose sum it takes.
    """
    made = list(steps)
    for i in range(len(made)):
        _move_pool(made, i, site)
        step, users = made[i], _users(made)
        before = next((each for each in made if _adds(each, step, users, site)), None)
        if before is not None:
            (given,) = before.writes
            (other,) = (path for path in step.reads if path != given)
            layers, paths = (*before.layers, *step.layers), (*before.paths, *step.paths)
            made[i] = Step(layers, paths, (*before.reads, other), step.writes)
            made[made.index(before)] = _NOTHING
    return [step for step in made if step is not _NOTHING]


def is_sum(step: Step) -> bool:
    """Whether a step is a convolution and a residual."""
    return {Conv, Residual} <= {type(layer) for layer in step.layers}


_NOTHING = Step((), (), (), ())


def _users(steps: Iterable[Step]) -> Counter[str]:
    """How many steps take each value; the last one gives the answer."""
    some = [step for step in steps if step is not _NOTHING]
    return Counter((*(path for step in some for path in step.reads), some[-1].writes[-1]))


def _move_pool(steps: list[Step], i: int, site: Site) -> None:
    """Move the pool of step i to the step before, if that gives a sum which nothing else takes."""
    step = steps[i]
    if not step.layers or not isinstance(step.layers[0], Pool) or len(step.layers) == 1:
        return
    pool, given = step.layers[0], step.reads[-1]
    at = next((k for k, each in enumerate(steps) if is_sum(each) and each.writes[0] == given), None)
    height, width, _ = site.values[given].shape
    if at is None or pool.kind != "max" or not is_halved(pool) or height % 2 or width % 2:
        return
    before = steps[at]
    made = step.paths[0]
    both = Step((*before.layers, pool), (*before.paths, made), before.reads, (made, *before.writes[1:]))
    if _users(steps)[given] != 1 or not _can_launch(both, site):
        return
    steps[at] = both
    steps[i] = Step(step.layers[1:], step.paths[1:], (*step.reads[:-1], made), step.writes)


def _adds(before: Step, step: Step, users: Counter[str], site: Site) -> bool:
    """Whether one launch can do a convolution and a residual with its sum, and perhaps with a threshold."""
    values, kinds = site.values, [type(layer) for layer in step.layers]
    if [kind for kind in kinds if kind not in (PadChannels, Threshold)] != [Residual]:
        return False
    if (
        len(before.layers) != 1
        or not isinstance(before.layers[0], Conv)
        or before.writes[0] not in step.reads
    ):
        return False
    given, image = before.writes[0], values[before.reads[0]]
    if image.kind != "bits" or users[given] != 1 or (kinds[0] is PadChannels and given != step.reads[0]):
        return False
    shorts = *(path for path in step.reads if path != given), step.writes[0]
    if not all(values[path].kind == "integers" and fits_int16(values[path]) for path in shorts):
        return False
    if convolution_scheme(site, before.paths[0], before.layers[0], image, bits=False) != _SCHEME.name:
        return False
    other = (path for path in step.reads if path != given)
    both = Step((*before.layers, *step.layers), (), (*before.reads, *other), step.writes)
    return _can_launch(both, site)


def _can_launch(step: Step, site: Site) -> bool:
    """Whether a step has a launch for any batch: for one that gives all warpgroups of one block tiles."""
    shape, output = _launched(step, site, 1)
    enough = -(-ROWS * TEAMS // (shape.out_height * shape.out_width))
    return sums_of(replace(shape, batch=enough), output, 1) is not None


def _launched(step: Step, site: Site, batch: int) -> tuple[ConvShape, Sum]:
    """The geometry and the output of a step."""
    x, other = (site.values[path] for path in step.reads)
    layer: Any = step.layers[0]
    kinds: dict[type, Any] = {type(each): each for each in step.layers}
    before = int(getattr(kinds.get(PadChannels), "before", 0))
    options = {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation}
    shape = conv_shape((batch, *x.shape), layer.filters.shape, **options)
    return shape, Sum(other.shape[-1], before, Threshold in kinds, Pool in kinds)


@dataclass(eq=False)
class Sums:
    """A convolution of bits, plus integers; with a threshold there are bits of the sums, too."""

    site: Site
    step: Step

    def __post_init__(self) -> None:
        layer: Any = self.step.layers[0]
        filters = filters_along_c(layer.filters)
        self.filters: Any = prepare(filters, "w", scheme=_SCHEME.name, device=self.site.device)
        last = next((each for each in self.step.layers if isinstance(each, Threshold)), None)
        self.rule = self.site.rule(last) if last else ()

    def __call__(self, x: Any, other: Array) -> tuple[Any, ...]:
        """Launch the kernel."""
        site, device = self.site, self.site.device
        shape, output = _launched(self.step, site, x.shape[0])
        chip = device.compute_capability, device.multiprocessors
        key = "bconv2d", _SCHEME.name, shape, "none", output
        launch = planned(device.plans, key, lambda: Launch(_SCHEME, shape, "none", output, *chip))
        y = launch.output_on(device)
        bits = (site.bits(x.shape[0], site.values[self.step.writes[-1]]),) if self.rule else ()
        words: Any = (each.words for each in bits)
        images = placed(x, "x", _SCHEME, device)
        launch(device, images, self.filters, y, (other, *words, *self.rule))
        return (y, *bits)
