"""Small networks for tests of out-of-core training, and their training by definition in double precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu.outofcore import (
    SGD,
    AveragePool,
    BatchNorm,
    Conv,
    Cut,
    Dense,
    Flatten,
    MaxPool,
    Network,
    Segment,
    Trainer,
    TrainingOptions,
)
from reference import training

NETWORKS = {
    "mixed": Network(
        (2, 9, 8),
        (
            Conv(4, activation="relu"),
            MaxPool(3, 2, "SAME"),
            Conv(6, padding="VALID", activation="tanh"),
            AveragePool(2, 1),
            Conv(4, groups=2, dilation=2, activation="sigmoid"),
            Flatten(),
            Dense(7, "relu"),
            Dense(5),
        ),
    ),
    "strided": Network(
        (1, 11, 7),
        (
            Conv(3, (5, 3), stride=(3, 2), padding=((1, 4), (2, 0)), activation="relu"),
            AveragePool((2, 3), (1, 2), "SAME"),
            Conv(4, 1),
            MaxPool(2, 1),
            Flatten(),
            Dense(3, "tanh"),
        ),
    ),
    "gaps": Network(
        (1, 9, 5), (Conv(2, 2, stride=4, padding="VALID", activation="tanh"), MaxPool(1), Flatten(), Dense(4))
    ),
    "normalized": Network(
        (2, 7, 6),
        (
            Conv(3),
            BatchNorm(activation="relu"),
            MaxPool(3, 2, "SAME"),
            Conv(4, 3, activation="tanh"),
            BatchNorm(0.1, activation="sigmoid"),
            BatchNorm(1e-3),
            Flatten(),
            Dense(4),
        ),
    ),
    "tiled": Network(
        (2, 8, 8),
        (Conv(3, activation="relu"), MaxPool(), Conv(4, activation="relu"), MaxPool(), Flatten(), Dense(3)),
    ),
    "dense": Network((3, 2, 2), (Flatten(), Dense(6, "sigmoid"), Dense(6, "relu"), Dense(3))),
}


OPTIMIZER = SGD(0.1, 0.9, 1e-3)


@dataclass(frozen=True)
class Sample:
    """A batch for a network."""

    network: Network
    batch: int = 6
    sgd: SGD = OPTIMIZER

    @property
    def x(self) -> Any:
        rng = np.random.default_rng(7)
        return rng.standard_normal((self.batch, *self.network.image)).astype(np.float32)

    @property
    def labels(self) -> Any:
        return np.random.default_rng(8).integers(0, self.network.classes, self.batch)

    def few_segments(self, cut: Cut) -> tuple[Segment, ...]:
        """As few segments as the network can have."""
        count = len(self.network.stages)
        ends = [number - 1 for number in range(2, count + 1) if self.network.normalizes(number)] + [count]
        starts = [1, *(end + 1 for end in ends)]
        return tuple(Segment(first, last, cut, cut) for first, last in zip(starts, ends, strict=False))

    def trained(
        self, machine: Any, steps: int = 2, budget: int | None = None, **options: Any
    ) -> dict[str, Any]:
        """Weights, velocities and losses after some steps; the machine must be clean then."""
        with self.trainer(machine, budget, **options) as trainer:
            losses = [trainer.step(self.x, self.labels) for _ in range(steps)]
            found = state_of(trainer) | {"losses": np.array(losses)}
        assert is_clean(machine)
        return found

    def trainer(self, machine: Any, budget: int | None = None, **options: Any) -> Trainer:
        chosen = TrainingOptions(**options)
        return Trainer(
            self.network, self.batch, device=machine, sgd=self.sgd, memory_budget=budget, options=chosen
        )


def passing(results: tuple[Any, ...], kept: frozenset[int], tops: tuple[int, ...]) -> tuple[Segment, ...]:
    """Segments of "normalized" that compute again what others have computed."""
    ends, images = ((1, 1), (2, 4), (5, 5)), (2, 3, 4)
    found = [
        Segment(
            first, last, Cut(size, 99), Cut(5 - size, 99), kept & {*range(first, last + 1)}, result, above
        )
        for (first, last), size, result, above in zip(ends, images, results, tops, strict=True)
    ]
    return (*found, Segment(6, 7, Cut(99, 99), Cut(2, 99)))


def state_of(trainer: Trainer) -> dict[str, Any]:
    """Copies of parameters and velocities."""
    pairs = trainer._states().items()
    return {
        f"{name} {of}": array.copy() for name, pair in pairs for of, array in zip("wv", pair, strict=True)
    }


def is_clean(machine: Any) -> bool:
    return not machine.pinned() and not machine.allocated(0) and not machine.queued()


def same_bits(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    return all(found[name].tobytes() == expected[name].tobytes() for name in expected)


# ------------------------------------------------------------------------------------------- definition


def by_definition(sample: Sample, steps: int = 2) -> dict[str, Any]:
    """The same training with `reference.training` alone, in double precision."""
    weights: dict[str, Any] = {k: v.astype(float) for k, v in sample.network.initial(0).items()}
    velocity = {name: np.zeros_like(w) for name, w in weights.items()}
    losses = []
    for _ in range(steps):
        loss, gradients = gradients_of(sample, weights)
        losses.append(loss)
        for name, w in weights.items():
            gradient = gradients[name] + sample.sgd.decay * w
            step = training.sgd(
                w, gradient, velocity[name], rate=sample.sgd.rate, momentum=sample.sgd.momentum
            )
            weights[name], velocity[name] = step
    return (
        {"losses": np.array(losses)}
        | {f"{name} w": w for name, w in weights.items()}
        | {f"{name} v": v for name, v in velocity.items()}
    )


def gradients_of(sample: Sample, weights: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    """The loss and its gradients by all parameters."""
    tape = tape_of(sample.network, weights, sample.x)
    x = tape[-1][3]
    loss = training.cross_entropy(x, sample.labels)
    gradient, gradients = training.cross_entropy_backward(x, sample.labels), dict[str, Any]()
    for name, layer, x, y in reversed(tape):
        gradient, found = backward(layer, gradient, x, y, weights, name)
        gradients |= found
    return loss, gradients


def tape_of(network: Network, weights: dict[str, Any], x: Any) -> list[tuple[str, Any, Any, Any]]:
    """For each layer the start of its parameters' names, itself, its input and its result."""
    tape: list[tuple[str, Any, Any, Any]] = []
    x, number = x.astype(float), 0
    for layer in network.layers:
        number += not isinstance(layer, Flatten)
        y, name = forward(layer, x, weights, number)
        tape.append((name, layer, x, y))
        x = y
    return tape


def forward(layer: Any, x: Any, weights: dict[str, Any], number: int) -> tuple[Any, str]:
    """A layer's result, and the start of its parameters' names."""
    if isinstance(layer, Flatten):
        return x.reshape(len(x), -1), ""
    if isinstance(layer, MaxPool | AveragePool):
        pool = training.max_pool2d if isinstance(layer, MaxPool) else training.average_pool2d
        return pool(x, layer.window, stride=layer.stride, padding=layer.padding), ""
    if isinstance(layer, BatchNorm):
        name = f"batch_norm{number}"
        y = training.batch_norm(x, weights[f"{name}.w"], weights[f"{name}.bias"], epsilon=layer.epsilon)
        return training.ACTIVATIONS[layer.activation][0](y) if layer.activation else y, name
    name = f"{'dense' if isinstance(layer, Dense) else 'conv'}{number}"
    w, bias = weights[f"{name}.w"], weights[f"{name}.bias"]
    y = training.dense(x, w, bias) if isinstance(layer, Dense) else training.conv2d(x, w, bias, **taps(layer))
    return training.ACTIVATIONS[layer.activation][0](y) if layer.activation else y, name


def backward(
    layer: Any, gradient: Any, x: Any, y: Any, weights: dict[str, Any], name: str
) -> tuple[Any, dict[str, Any]]:
    """The gradients of a layer by its input and by its parameters."""
    if isinstance(layer, Flatten):
        return gradient.reshape(x.shape), {}
    if isinstance(layer, MaxPool):
        given = {"stride": layer.stride, "padding": layer.padding}
        return training.max_pool2d_backward(gradient, x, layer.window, **given), {}
    if isinstance(layer, AveragePool):
        given = {"stride": layer.stride, "padding": layer.padding}
        return training.average_pool2d_backward(gradient, x.shape, layer.window, **given), {}
    if layer.activation:
        gradient = training.ACTIVATIONS[layer.activation][1](gradient, y)
    w = weights[f"{name}.w"]
    if isinstance(layer, BatchNorm):
        norm = training.batch_norm_backward(gradient, x, w, epsilon=layer.epsilon)
        return norm.x, {f"{name}.w": norm.gamma, f"{name}.bias": norm.beta}
    if isinstance(layer, Dense):
        found = training.dense_backward(gradient, x, w)
        return found.x, {f"{name}.w": found.w, f"{name}.bias": found.bias}
    dw = training.conv2d_backward_filter(x, gradient, w.shape, **taps(layer))
    bias = training.conv2d_backward_bias(gradient)
    dx = training.conv2d_backward_data(gradient, w, x.shape, **taps(layer))
    return dx, {f"{name}.w": dw, f"{name}.bias": bias}


def taps(layer: Conv) -> dict[str, Any]:
    return {name: getattr(layer, name) for name in ("stride", "padding", "dilation", "groups")}
