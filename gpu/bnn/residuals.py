"""Residuals in one launch: a convolution of bits that adds its shortcut, and thresholds the sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gpu.bnn.convolutions import WGMMA, convolution_scheme, has_sum
from gpu.bnn.plan import Step, is_halved
from gpu.bnn.site import Site, fits_int16
from reference.types.layers import Conv, PadChannels, Pool, Residual, Threshold


def with_sums(steps: Iterable[Step], site: Site) -> list[Step]:
    """The steps, with each residual joined to its convolution of bits if only the residual reads that.

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
    """True if a step is a convolution followed by a residual sum."""
    return {Conv, Residual} <= {type(layer) for layer in step.layers}


_NOTHING = Step((), (), (), ())


def _users(steps: Iterable[Step]) -> Counter[str]:
    """The number of steps that read each value; the answer also reads the last value."""
    some = [step for step in steps if step is not _NOTHING]
    return Counter((*(path for step in some for path in step.reads), some[-1].writes[-1]))


def _move_pool(steps: list[Step], i: int, site: Site) -> None:
    """Move the pool of step i to the previous step, if that computes a sum that only step i reads."""
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
    if _users(steps)[given] != 1 or not has_sum(both, site):
        return
    steps[at] = both
    steps[i] = Step(step.layers[1:], step.paths[1:], (*step.reads[:-1], made), step.writes)


def _adds(before: Step, step: Step, users: Counter[str], site: Site) -> bool:
    """True if one launch can compute a convolution, the residual sum after it, and an optional threshold."""
    values, kinds = site.values, [type(layer) for layer in step.layers]
    if [kind for kind in kinds if kind not in (PadChannels, Threshold)] != [Residual]:
        return False
    if (
        len(before.layers) != 1
        or not isinstance(before.layers[0], Conv)
        or before.layers[0].groups > 1
        or before.writes[0] not in step.reads
    ):
        return False
    given, image = before.writes[0], values[before.reads[0]]
    if image.kind != "bits" or users[given] != 1 or (kinds[0] is PadChannels and given != step.reads[0]):
        return False
    shorts = *(path for path in step.reads if path != given), step.writes[0]
    if not all(values[path].kind == "integers" and fits_int16(values[path]) for path in shorts):
        return False
    if convolution_scheme(site, before.paths[0], before.layers[0], image, bits=False) != WGMMA.name:
        return False
    other = (path for path in step.reads if path != given)
    both = Step((*before.layers, *step.layers), (), (*before.reads, *other), step.writes)
    return has_sum(both, site)
