"""Switches of out-of-core training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from gpu.outofcore.networks.phases import Key
from gpu.outofcore.networks.plan import Segment
from gpu.outofcore.options import DEEPEST, Math
from gpu.outofcore.rates import Rates
from reference.errors import SchemeError
from reference.types.arguments import check_option
from reference.values import shortened

Where: TypeAlias = Literal["auto", "device", "host"]


@shortened
@dataclass(frozen=True)
class TrainingOptions:
    """Options for planning a step of training.

    Parameters
    ----------
    depth : int
        The most buffers of what is copied, 1 to 16. With one, copies and computation do not overlap.
    accumulation : bool
        Whether the plan may cut the batch alone, over the whole network.
    parameters : {"auto", "device", "host"}
        Where parameters are between their uses: "auto" is the device if they fit.
    segments : tuple of Segment, optional
        Default: what the planner chooses.
    on_device : frozenset of Key
        With ``segments``, what stays on the device for the whole batch.
    rates : Rates, optional
        Default: those of the machine's topology; of GPUs, measured ones.
    math : {"fp32", "tf32"}
        How products are computed: see `Options`.
    transforms : bool
        Whether GPUs may convolve by Winograd's and FFT transforms, as other libraries do by default: see
        `Options`.

    Raises
    ------
    SchemeError

    Examples
    --------
    >>> TrainingOptions(accumulation=False).depth
    2
    """

    depth: int = 2
    accumulation: bool = True
    parameters: Where = "auto"
    segments: tuple[Segment, ...] | None = None
    on_device: frozenset[Key] = frozenset()
    rates: Rates | None = None
    math: Math = "fp32"
    transforms: bool = True

    def __post_init__(self) -> None:
        check_option(
            "parameters", self.parameters, ("auto", "device", "host"), "where they are between their uses"
        )
        check_option("math", self.math, ("fp32", "tf32"), "how products are computed")
        if not 1 <= self.depth <= DEEPEST:
            raise SchemeError(
                f"depth is {self.depth}\nit must be 1 to {DEEPEST}\nchoose one of these numbers"
            )
