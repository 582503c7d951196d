"""The steps of a network on a device: its layers in order, those joined that one launch computes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from reference.types.network import (
    Conv,
    Dense,
    Input,
    Layer,
    Network,
    Pixels,
    Pool,
    Reals,
    Residual,
    Threshold,
)
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
        The paths of the values that it gives; for a residual with a threshold the sum, if it is needed, and
        the bits.
    """

    layers: tuple[Input | Layer, ...]
    paths: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]


def values_of(network: Network) -> Values:
    """What each layer gives for one image."""
    return {
        "input": input_value(network.input),
        **{path: value for path, _, value in follow(network)},
    }


def steps_of(network: Network, values: Values) -> list[Step]:
    """The steps of a network; the last one gives the sums."""
    plain = [
        Step((network.input,), ("input",), (IMAGES,), ("input",)),
        *_one_by_one(network.layers, "input", ""),
    ]
    users = Counter(path for step in plain for path in step.reads)
    users[plain[-1].writes[-1]] += 1  # the answer
    joined: list[Step] = []
    maker: dict[str, int] = {}
    for step in plain:
        at = maker.get(step.reads[0], -1)
        both = _joined(joined[at], step, users, values) if at >= 0 else None
        if both is None:
            at, both = len(joined), step
            joined.append(step)
        joined[at] = both
        maker |= dict.fromkeys(both.writes, at)
    return joined


def _one_by_one(layers: tuple[Layer, ...], given: str, prefix: str) -> Iterator[Step]:
    """A step for each layer; those of a residual come before it."""
    for i, layer in enumerate(layers):
        path, reads = f"{prefix}{i}", (given,)
        if isinstance(layer, Residual):
            ends: list[str] = []
            for name, way in (("body", layer.body), ("shortcut", layer.shortcut)):
                yield from _one_by_one(way, given, f"{path}.{name}.")
                ends.append(f"{path}.{name}.{len(way) - 1}" if way else given)
            reads = tuple(ends)
        yield Step((layer,), (path,), reads, (path,))
        given = path


def _joined(before: Step, step: Step, users: Counter[str], values: Values) -> Step | None:
    """Two steps as one, if one launch can do both: ``step`` takes what ``before`` gives."""
    given, last, layer = step.reads[0], before.layers[-1], step.layers[0]
    alone = users[given] == 1
    layers, paths = (*before.layers, layer), (*before.paths, *step.paths)
    match last, layer:
        case ((Pixels() | Reals()), (Conv() | Dense())) if alone:
            return Step(layers, paths, before.reads, step.writes)
        case ((Conv() | Dense()), Threshold()) if alone:
            return Step(layers, paths, before.reads, step.writes)
        case Residual(), Threshold():
            return Step(layers, paths, before.reads, step.writes if alone else (given, *step.writes))
        case Threshold(), Pool() if alone and _halves(layer) and _is_conv_of_bits(before, values):
            return Step(layers, paths, before.reads, step.writes)
        case _:
            return None


def _halves(pool: Pool) -> bool:
    """Whether a pool has the windows that an epilogue of convolutions joins."""
    return pool.window == pool.stride == (2, 2) and pool.padding == ((0, 0), (0, 0))


def _is_conv_of_bits(step: Step, values: Values) -> bool:
    return isinstance(step.layers[0], Conv) and values[step.reads[0]].kind == "bits"
