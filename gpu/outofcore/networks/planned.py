"""The interface of a plan for the steps of training, and the offsets of parameters."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, NamedTuple, Protocol, TypeAlias

from gpu.outofcore.networks.engines import Engines
from gpu.outofcore.networks.layers import Network
from gpu.outofcore.networks.lifetimes import Packed
from gpu.outofcore.networks.phases import Key, Phase


class Parameter(NamedTuple):
    """Offsets of a weight or a bias in a block of parameters, in bytes: itself, velocity, gradient.

    The gradient is of double precision. Some blocks have less: see `Parts`.
    """

    elements: int
    w: int
    velocity: int
    gradient: int


Parts: TypeAlias = Literal["w", "state", "all"]
"""The contents of a block of parameters: weights and biases; with velocities; with gradients, too."""


class Planned(Protocol):
    """The part of `gpu.outofcore.networks.plan.TrainingPlan` that kernels, memory and work use."""

    @property
    def network(self) -> Network: ...
    @property
    def batch(self) -> int: ...
    @property
    def segments(self) -> tuple[object, ...]: ...
    @property
    def resident(self) -> bool: ...
    @property
    def engines(self) -> Engines: ...
    @cached_property
    def phases(self) -> tuple[Phase, ...]: ...
    @cached_property
    def forward(self) -> tuple[Phase, ...]: ...
    @cached_property
    def device(self) -> Packed[Key | int | str]: ...
    @cached_property
    def host(self) -> Packed[Key]: ...
    @cached_property
    def moments(self) -> tuple[dict[int, int], int]: ...
    @cached_property
    def updates(self) -> tuple[tuple[str, ...], ...]: ...

    def loaded(self, phase: Phase) -> tuple[dict[str, Parameter], int]:
        """The parameters that a phase loads, from the start of its block, and their bytes."""
        ...

    def names(self, phase: Phase) -> tuple[str, ...]:
        """The names of the parameters of a phase's segment."""
        ...

    def names_again(self, phase: Phase) -> tuple[str, ...]:
        """The names of other segments' parameters that a phase needs to recompute their results."""
        ...

    def parameters(
        self, names: tuple[str, ...], parts: Parts = "all", start: int = 0
    ) -> tuple[dict[str, Parameter], int]:
        """The named parameters in a block, and their bytes; without a loss they have no velocities."""
        ...
