"""Bias and activation of a convolution's results, in place."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gpu.cuda_machine.convolutions import View
from gpu.cuda_machine.kernels import over_pixels

if TYPE_CHECKING:
    from gpu.cuda_machine.queues import Queue

ACTIVATIONS = {"": 0, "relu": 1, "tanh": 2, "sigmoid": 3}
"""The number of each activation in kernels."""
_ROW = 4096
"""The fewest elements of a line, of whole pixels, with channels last."""


def finish(queue: Queue, of: View, dtype: str, result: int, bias: int, activation: str) -> None:
    """Queue the addition of a bias, unless its address is 0, and an activation unless ""."""
    (_, channels, height, width), count = of.sizes, math.prod(of.sizes)
    is_last = of.strides[1] == 1 and channels > 1
    length = channels * -(-_ROW // channels) if is_last else height * width
    grid, block = over_pixels(-(-count // length), length)
    sizes = np.int64(count), length, channels, int(is_last), ACTIVATIONS[activation]
    queue.launch(
        "cuda_machine/pointwise.cu",
        "finish",
        grid,
        block,
        np.uint64(result),
        np.uint64(bias),
        *sizes,
        define=f"ELEMENT_{dtype.upper()}",
    )
