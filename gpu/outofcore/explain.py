"""The plan of a call, made without running it and without its arrays."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.machine import Machine
from gpu.outofcore.arguments import check_dtype, problem_of
from gpu.outofcore.networks.layers import AveragePool, MaxPool
from gpu.outofcore.options import Options
from gpu.outofcore.pieces import Pieces
from gpu.outofcore.plan import Plan
from gpu.outofcore.problem import Activation, Layout, Problem
from gpu.outofcore.run import machine_for, planned
from reference.types.arguments import check_option


def explain(
    routine: str,
    images: tuple[int, ...],
    filters: tuple[int, ...],
    *,
    device: Machine | None = None,
    bias: bool = False,
    activation: Activation | None = None,
    pool: MaxPool | AveragePool | None = None,
    stride: Any = 1,
    padding: Any = "SAME",
    dilation: Any = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
    memory_budget: int | None = None,
    pieces: Pieces | None = None,
    options: Options | None = None,
    dtype: npt.DTypeLike = np.float32,
    on_device: Collection[str] = (),
) -> Plan:
    """Plan a call: its pieces, their buffers, the copied bytes, and the predicted timeline.

    Parameters
    ----------
    routine : {"conv2d", "conv2d_backward_data", "conv2d_backward_filter"}
    images : (N, C, H, W) or (N, H, W, C)
    filters : (O, C / groups, R, S) or (O, R, S, C / groups)
    device : Machine, optional
        The model has the rates of its topology, or those measured on a GPU, by default the first one.
    bias : bool
        Whether `conv2d` adds one.
    dtype : dtype
        Of all arrays.
    on_device : collection of str
        The arguments that lie on the device: some of "x", "w", "bias", "gradient" and "out".
    activation, pool, stride, padding, dilation, groups, layout, memory_budget, pieces, options
        As of `conv2d`.

    Returns
    -------
    Plan

    Raises
    ------
    ShapeError, SchemeError, LaunchError, NoGpuError
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
        pool=pool,
        dtype=np.dtype(dtype),
    )
    here = frozenset(_tensor(name, problem) for name in on_device)
    with machine_for(device, "explain") as machine:
        return planned(replace(problem, on_device=here), machine, memory_budget, pieces, options)


def _tensor(name: str, problem: Problem) -> str:
    """The tensor (x, w or y) behind the name of a routine's argument or result."""
    form = problem.form
    named = {"gradient" if one == "y" else one: one for one in form.operands}
    known = {**named, "out": problem.result, **({"bias": "bias"} if problem.has_bias else {})}
    check_option("on_device", name, tuple(known), f"these are the arrays of this {problem.routine}")
    return known[name]
