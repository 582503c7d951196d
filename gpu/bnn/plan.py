"""The steps of a network on a device: layers in order; layers that one launch computes form one step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from gpu.bnn.stages import COMPUTED_AS, ORDER, STAGES
from reference.types.layers import Affine, Clip, Conv, Dense, Flatten, Layer, Pool, Residual, Threshold
from reference.types.network import BitPlanes, Input, Network, Pixels, Reals, Signs
from reference.types.network_values import Value, follow, input_value

Values: TypeAlias = dict[str, Value]
"""What each layer gives, by its path; the input has the path "input"."""

IMAGES = "images"
"""The name of what the first step reads."""


@dataclass(frozen=True, eq=False)
class Step:
    """Layers that one launch computes.

    Attributes
    ----------
    layers : tuple
        An input, or a layer; then those that are joined to it.
    paths : tuple of str
        Their paths.
    reads : tuple of str
        The paths of the values that it takes; two for a residual.
    writes : tuple of str
        The paths of the values that it gives; for integers with a threshold the integers, if they are
        needed, and the bits.
    """

    layers: tuple[Input | Layer, ...]
    paths: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]


class Launched(NamedTuple):
    """A step of a network, with what launches it and the values on the device that this takes."""

    step: Step
    launch: Callable[..., Any]
    given: tuple[Any, ...]


def values_of(network: Network) -> Values:
    """The shape and kind of each layer's output for one image."""
    return {
        "input": input_value(network.input),
        **{path: value for path, _, value in follow(network)},
    }


def steps_of(network: Network, values: Values) -> list[Step]:
    """The steps of a network; the last one computes the sums of the classes."""
    plain = [
        Step((network.input,), ("input",), (IMAGES,), ("input",)),
        *_one_by_one(network.layers, "input", "", values),
    ]
    users = Counter(path for step in plain for path in step.reads)
    users[plain[-1].writes[-1]] += 1  # the answer is used by the caller
    joined: list[Step] = []
    maker: dict[str, Step] = {}
    for step in plain:
        for given in step.reads:
            before = maker.get(given)
            if before is None or (both := _joined(before, step, given, users[given] == 1, values)) is None:
                continue
            if len(both.writes) > len(
                step.writes
            ):  # the first layer's output has other readers, so it keeps its position
                joined[joined.index(before)] = both
            else:
                joined.remove(before)
            step = both
        if step not in joined:
            joined.append(step)
        maker |= dict.fromkeys(step.writes, step)
    return joined


def _one_by_one(layers: tuple[Layer, ...], given: str, prefix: str, values: Values) -> Iterator[Step]:
    """One step per layer; the steps inside a residual come before the residual's."""
    for i, layer in enumerate(layers):
        path, reads = f"{prefix}{i}", (given,)
        if isinstance(layer, Residual):
            ends: list[str] = []
            for name, way in (("body", layer.body), ("shortcut", layer.shortcut)):
                yield from _one_by_one(way, given, f"{path}.{name}.", values)
                ends.append(f"{path}.{name}.{len(way) - 1}" if way else given)
            reads = tuple(ends)
        computed = COMPUTED_AS.get(type(layer))
        layer = computed(layer, values[path].shape[-1]) if computed else layer
        yield Step((layer,), (path,), reads, (path,))
        given = path


def _joined(before: Step, step: Step, given: str, alone: bool, values: Values) -> Step | None:
    """Two steps as one, if one launch can compute both; ``alone``: only ``step`` reads ``given``."""
    last, layer = before.layers[-1], step.layers[-1]
    if _is_chain(before, values) and _is_chain(step, values):
        return _chained(before, step, given, alone)
    layers, paths = (*before.layers, layer), (*before.paths, *step.paths)
    if isinstance(before.layers[0], Signs | BitPlanes) and isinstance(layer, Flatten) and alone:
        return Step(layers, paths, before.reads, step.writes)
    match last, layer:
        case ((Pixels() | Reals()), (Conv() | Dense())) if alone:
            return Step(layers, paths, before.reads, step.writes)
        case ((Conv() | Dense()), Threshold()) if alone:
            return Step(layers, paths, before.reads, step.writes)
        case ((Conv() | Dense()), Threshold()) if len(before.writes) == 1 and _is_of_integers(before, values):
            return Step(layers, paths, before.reads, (given, *step.writes))
        case Threshold(), Pool() if alone and is_halved(layer) and _is_conv_of_bits(before, values):
            return Step(layers, paths, before.reads, step.writes)
        case _:
            return None


def _is_chain(step: Step, values: Values) -> bool:
    """True if one launch computes all layers of a step: layers on integers, in the order of `STAGES`."""
    return type(step.layers[0]) in ORDER and values[step.reads[0]].kind == "integers"


def _chained(before: Step, step: Step, given: str, alone: bool) -> Step | None:
    """A chain of layers on integers, extended by the layers of the next step; None if they do not chain.

    A residual takes in windows and zeros of its shortcut, and an affine step and a clip of its body.
    """
    stages = [ORDER[type(layer)] for layer in (*before.layers, step.layers[-1])]
    if stages != sorted(set(stages)):
        return None
    is_threshold = stages[-1] == ORDER[Threshold]
    if not alone and not is_threshold:
        return None
    if isinstance(step.layers[-1], Residual):
        body = given == step.reads[0]
        if any((stage >= ORDER[Affine]) != body for stage in stages[:-1]):
            return None
    layers, paths = zip(
        *sorted(
            zip((*before.layers, *step.layers), (*before.paths, *step.paths), strict=True),
            key=lambda each: ORDER[type(each[0])],
        ),
        strict=True,
    )
    reads = tuple(path for each in step.reads for path in (before.reads if each == given else (each,)))
    return Step(layers, paths, reads, step.writes if alone else (given, *step.writes))


def is_halved(pool: Pool) -> bool:
    """True if a pool has the 2×2 windows that a convolution's epilogue can pool."""
    return pool.window == pool.stride == (2, 2) and pool.padding == ((0, 0), (0, 0))


def _is_of_integers(step: Step, values: Values) -> bool:
    return step.reads[0] == IMAGES or values[step.reads[0]].kind == "integers"


def _is_conv_of_bits(step: Step, values: Values) -> bool:
    return isinstance(step.layers[0], Conv) and values[step.reads[0]].kind == "bits"


def fused(steps: Sequence[Step]) -> list[Step]:
    """Steps joined into one if one operation does both: products with their thresholds, images with signs."""
    users = Counter(path for step in steps for path in step.reads)
    users[steps[-1].writes[-1]] += 1  # the answer is used by the caller
    made: list[Step] = []
    for step in steps:
        before = next((each for each in made if _goes_into(each, step, users)), None)
        if before is None:
            made.append(step)
            continue
        given = before.writes[-1]
        others = [path for path in step.reads if path != given]
        kept = () if users[given] == 1 else (given,)
        both = Step(
            (*before.layers, *step.layers),
            (*before.paths, *step.paths),
            (*before.reads, *others),
            (*kept, *step.writes),
        )
        at = made.index(before) if kept else len(made) - 1  # a value with other readers keeps its position
        made.remove(before)
        made.insert(at, both)
    return made


def _goes_into(before: Step, step: Step, users: Counter[str]) -> bool:
    """Whether an operation can do both steps.

    Windows and channels of zeros are those of the addend, an affine step and a clip those of the products.
    Sums that others take, too, are kept beside their bits.
    """
    given, kinds = before.writes[-1], {type(layer) for layer in step.layers}
    if given not in step.reads or len(before.writes) > 1:
        return False
    alone = users[given] == 1
    match before.layers, step.layers:
        case [*_, Conv() | Dense()], [Threshold()]:
            return True
        case [*_, Conv() | Dense()], _ if kinds <= STAGES.keys() and Residual in kinds:
            return alone and (given == step.reads[0] or kinds <= {Residual, Threshold})
        case [*_, Conv() | Dense()], _:
            return alone and kinds <= {Affine, Clip, Threshold}
        case [*_, Conv(), Threshold()], [Pool() as pool]:
            return alone and is_halved(pool)
        case _:
            return False
