"""Switches of out-of-core convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from gpu.outofcore.rates import Rates
from reference.errors import SchemeError
from reference.types.arguments import check_option

Planner: TypeAlias = Literal["greedy", "steepest", "exhaustive"]
FilterBuffers: TypeAlias = Literal["resident", "streamed"]
Math: TypeAlias = Literal["fp32", "tf32"]
PLANNERS = ("greedy", "steepest", "exhaustive")
DEEPEST = 16


@dataclass(frozen=True)
class Options:
    """Options for planning and buffering pieces.

    Parameters
    ----------
    planner : {"greedy", "steepest", "exhaustive"}
        How the sizes of pieces are searched: one axis after the other, step by step from the whole problem,
        or among all combinations.
    depth : int
        The most buffers for pieces of each tensor, 1 to 16. With one, copies and computation do not overlap.
    filters : {"resident", "streamed"}
        Whether all pieces of the filters stay on the device if they fit beside the other buffers.
    reuse : bool
        Whether a piece that is still in a buffer is not copied again. False, as in the paper: each use of a
        piece is a copy, also of filters.
    rates : Rates, optional
        Default: those of the machine's topology; of GPUs, measured ones.
    math : {"fp32", "tf32"}
        How GPUs multiply float32: in float32, or on tensor cores, with operands rounded to TF32. A simulated
        machine rounds them, too. Other dtypes are not affected.
    workspace : int, optional
        The bytes for routines of GPUs beside their pieces. Default: what engines need that convert pieces to
        another layout, which can be 100 times as fast, or that transform them; on simulated machines none.
    transforms : bool
        Whether GPUs may compute float32 without TF32 by Winograd's and Fourier transforms. They are faster,
        but errors are bounded by the largest terms of a result, not by those of each number:
        `reference.training.error_of` with ``transforms=True``. Other dtypes and TF32 are not affected. The
        default workspace holds what Winograd's need for filters of 3 x 3, about as much as four pieces.

    Raises
    ------
    SchemeError

    Notes
    -----
    Source: ooc_cuDNN, sections 3.2 and 4.4; the paper has three buffers, one for each stream, and
    ``reuse=False``.

    Examples
    --------
    >>> Options(depth=2).planner
    'greedy'
    """

    planner: Planner = "greedy"
    depth: int = 3
    filters: FilterBuffers = "resident"
    rates: Rates | None = None
    math: Math = "fp32"
    workspace: int | None = None
    transforms: bool = False
    reuse: bool = True

    def __post_init__(self) -> None:
        check_option("planner", self.planner, PLANNERS, "how the sizes of pieces are searched")
        check_option(
            "filters", self.filters, ("resident", "streamed"), "where filters are between their uses"
        )
        check_option("math", self.math, ("fp32", "tf32"), "how GPUs multiply float32")
        if self.workspace is not None and self.workspace < 0:
            raise SchemeError(
                f"workspace is {self.workspace}\nit must be a number of bytes, 0 or more\n"
                "leave it out, or give 0"
            )
        if not 1 <= self.depth <= DEEPEST:
            raise SchemeError(
                f"depth is {self.depth}\nit must be 1 to {DEEPEST}\nchoose one of these numbers"
            )
