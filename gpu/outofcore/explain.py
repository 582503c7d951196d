"""What a call will do, before it is done and without its arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.machine import Machine
from gpu.outofcore.arguments import check_dtype, problem_of
from gpu.outofcore.options import Options
from gpu.outofcore.pieces import Pieces
from gpu.outofcore.plan import Plan
from gpu.outofcore.problem import Activation, Layout
from gpu.outofcore.run import planned


def explain(
    routine: str,
    images: tuple[int, ...],
    filters: tuple[int, ...],
    *,
    device: Machine,
    bias: bool = False,
    activation: Activation | None = None,
    stride: Any = 1,
    padding: Any = "SAME",
    dilation: Any = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
    memory_budget: int | None = None,
    pieces: Pieces | None = None,
    options: Options | None = None,
    dtype: npt.DTypeLike = np.float32,
) -> Plan:
    """Plan a call: its pieces, their buffers, the bytes that are copied, and the predicted timeline.

    Parameters
    ----------
    routine : {"conv2d", "conv2d_backward_data", "conv2d_backward_filter"}
    images : (N, C, H, W) or (N, H, W, C)
    filters : (O, C / groups, R, S) or (O, R, S, C / groups)
    device : Machine
        The model has the rates of its topology; nothing runs on it.
    bias : bool
        Whether `conv2d` adds one.
    dtype : dtype
        Of all arrays.
    activation, stride, padding, dilation, groups, layout, memory_budget, pieces, options
        As of `conv2d`.

    Returns
    -------
    Plan

    Raises
    ------
    ShapeError, SchemeError, LaunchError
        As `conv2d`.

    Notes
    -----
    Source: ooc_cuDNN, section 4.

    Examples
    --------
    A layer of VGG16 whose images and results have 26 GB:

    >>> import simwarp
    >>> layer = (1024, 64, 224, 224), (64, 64, 3, 3)
    >>> plan = explain("conv2d", *layer, device=simwarp.Machine(), memory_budget=4 << 30)
    >>> plan.bytes_in, plan.bytes_out
    (13153484800, 13153337344)
    """
    check_dtype(np.dtype(dtype), "dtype")
    problem = problem_of(
        routine,
        images,
        filters,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
        has_bias=bias,
        activation=activation,
        dtype=np.dtype(dtype),
    )
    return planned(problem, device, memory_budget, pieces, options)
