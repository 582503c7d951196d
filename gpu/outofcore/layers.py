"""The layers besides convolutions as calls of their own: bias, activation, pooling, dense.

Each copies its map in and its result out. `gpu.outofcore.conv2d` does bias, activation and pooling behind a
convolution on the device, without these copies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gpu.device_tensor import DeviceTensor
from gpu.machine import Machine
from gpu.outofcore.arguments import Operand, check_written, four, operand, pooling_of
from gpu.outofcore.doors import conv2d
from gpu.outofcore.map_run import called_map
from gpu.outofcore.maps import Map
from gpu.outofcore.networks.layers import AveragePool, MaxPool
from gpu.outofcore.options import Options
from gpu.outofcore.problem import ACTIVATIONS, LAYOUTS, Activation, Layout
from gpu.outofcore.run import machine_for
from gpu.outofcore.statistics import Statistics
from reference.errors import ShapeError
from reference.types.arguments import check_option


def add_bias(
    x: Any,
    bias: Any,
    *,
    device: Machine | None = None,
    layout: Layout = "NCHW",
    out: Any = None,
    memory_budget: int | None = None,
    options: Options | None = None,
    statistics: Statistics | None = None,
) -> Any:
    """Add a number to each channel of images, piece by piece; the images need not fit on the device.

    Parameters
    ----------
    x : array of float32, float16 or bfloat16, (N, C, H, W) or (N, H, W, C)
        On the host or the device, as of `conv2d`.
    bias : array, (C,)
    device, layout, memory_budget, options, statistics
        As of `conv2d`.
    out : array, optional
        The result's memory; it may be ``x`` itself. Default: a new array of the host.

    Returns
    -------
    array, of the shape of ``x``
        ``out``, if given.

    Raises
    ------
    ShapeError, DtypeError, FormatError, FreedMemoryError, SchemeError, LaunchError, NoGpuError, MachineError
        As `conv2d`.

    Notes
    -----
    Source: ooc_cuDNN, section 5: as ``cudnnAddTensor``.

    Examples
    --------
    >>> import simwarp
    >>> x, bias = np.zeros((1, 2, 1, 3), np.float32), np.array([1, -1], np.float32)
    >>> add_bias(x, bias, device=simwarp.Machine(), out=x)[0, :, 0]
    array([[ 1.,  1.,  1.],
           [-1., -1., -1.]], dtype=float32)
    """
    with machine_for(device, "add_bias") as machine:
        images = operand(x, "x", machine)
        added = operand(bias, "bias", machine, images.dtype)
        of = _map("add_bias", images, layout, has_bias=True)
        if added.shape != (of.images[1],):
            raise ShapeError(
                f"bias has shape {added.shape}\none number for each of {of.images[1]} channels is needed\n"
                "reshape it, or check the layout"
            )
        arrays = {"x": images, "bias": added}
        return computed(of, machine, arrays, x, out, memory_budget, options, statistics)


def activate(
    x: Any,
    activation: Activation,
    *,
    device: Machine | None = None,
    layout: Layout = "NCHW",
    out: Any = None,
    memory_budget: int | None = None,
    options: Options | None = None,
    statistics: Statistics | None = None,
) -> Any:
    """Apply an activation to images, piece by piece; they need not fit on the device.

    Parameters
    ----------
    x : array of float32, float16 or bfloat16, (N, C, H, W) or (N, H, W, C)
        On the host or the device, as of `conv2d`.
    activation : {"relu", "tanh", "sigmoid"}
    device, layout, memory_budget, options, statistics
        As of `conv2d`.
    out : array, optional
        The result's memory; it may be ``x`` itself. Default: a new array of the host.

    Returns
    -------
    array, of the shape of ``x``
        ``out``, if given.

    Raises
    ------
    ShapeError, DtypeError, FormatError, FreedMemoryError, SchemeError, LaunchError, NoGpuError, MachineError
        As `conv2d`.

    Notes
    -----
    Source: ooc_cuDNN, section 5: as ``cudnnActivationForward``.

    Examples
    --------
    >>> import simwarp
    >>> activate(np.float32([[[[-1, 2]]]]), "relu", device=simwarp.Machine())
    array([[[[0., 2.]]]], dtype=float32)
    """
    check_option("activation", activation, ACTIVATIONS, "what is applied to each number")
    with machine_for(device, "activate") as machine:
        images = operand(x, "x", machine)
        of = _map(activation, images, layout, activation=activation)
        return computed(of, machine, {"x": images}, x, out, memory_budget, options, statistics)


def pool2d(
    x: Any,
    pool: MaxPool | AveragePool,
    *,
    device: Machine | None = None,
    out: Any = None,
    memory_budget: int | None = None,
    options: Options | None = None,
    statistics: Statistics | None = None,
) -> Any:
    """Pool images, piece by piece; they need not fit on the device.

    Parameters
    ----------
    x : array of float32, (N, C, H, W)
        On the host or the device, as of `conv2d`.
    pool : MaxPool or AveragePool
        `reference.training.max_pool2d` or `reference.training.average_pool2d`.
    device, out, memory_budget, options, statistics
        As of `conv2d`.

    Returns
    -------
    array, (N, C, P, Q)
        ``out``, if given.

    Raises
    ------
    ShapeError, DtypeError, FormatError, FreedMemoryError, SchemeError, LaunchError, NoGpuError, MachineError
        As `conv2d`.

    Notes
    -----
    Source: ooc_cuDNN, section 3.2.

    Examples
    --------
    >>> import simwarp
    >>> x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    >>> pool2d(x, MaxPool(2), device=simwarp.Machine())[0, 0]
    array([[ 5.,  7.],
           [13., 15.]], dtype=float32)
    """
    with machine_for(device, "pool2d") as machine:
        images = operand(x, "x", machine)
        of = _map("pool", images, "NCHW")
        of = replace(of, stage=pooling_of(pool, of.images[1:], "NCHW", images.dtype))
        return computed(of, machine, {"x": images}, x, out, memory_budget, options, statistics)


def dense(
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    device: Machine | None = None,
    activation: Activation | None = None,
    out: Any = None,
    memory_budget: int | None = None,
    options: Options | None = None,
    statistics: Statistics | None = None,
) -> Any:
    """Multiply rows of numbers by weights, piece by piece: a convolution of images of one pixel.

    Parameters
    ----------
    x : array of float32, float16 or bfloat16, (N, K)
        On the host or the device, as of `conv2d`.
    w : array, (O, K)
    bias : array, (O,), optional
    device, activation, out, memory_budget, options, statistics
        As of `conv2d`.

    Returns
    -------
    array, (N, O)
        ``out``, if given.

    Raises
    ------
    ShapeError, DtypeError, FormatError, FreedMemoryError, SchemeError, LaunchError, NoGpuError, MachineError
        As `conv2d`.

    Notes
    -----
    Source: ooc_cuDNN, section 3.2.

    Examples
    --------
    >>> import simwarp
    >>> x, w = np.ones((1, 3), np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)
    >>> dense(x, w, device=simwarp.Machine())
    array([[ 3., 12.]], dtype=float32)
    """
    with machine_for(device, "dense") as machine:
        rows = as_pixels(operand(x, "x", machine), "x")
        weights = as_pixels(operand(w, "w", machine, rows.dtype), "w")
        if rows.shape[1] != weights.shape[1]:
            raise ShapeError(
                f"x has rows of {rows.shape[1]} numbers, w of {weights.shape[1]}\n"
                "each row of w has a weight for each number of a row of x\ncheck both shapes"
            )
        result = conv2d(
            rows,
            weights,
            bias,
            device=machine,
            activation=activation,
            out=None if out is None else as_pixels(operand(out, "out", machine, rows.dtype), "out"),
            memory_budget=memory_budget,
            options=options,
            statistics=statistics,
        )
        return result[:, :, 0, 0] if out is None else out


# --------------------------------------------------------------------------------------------------
# Arguments
# --------------------------------------------------------------------------------------------------


def as_pixels(x: Operand, name: str) -> Operand:
    """Rows of numbers as images of one pixel, or filters of one tap."""
    if x.ndim != 2:
        raise ShapeError(
            f"{name} has shape {x.shape}\na dense layer has two axes: rows, and their numbers\nreshape it"
        )
    if isinstance(x, DeviceTensor):
        return replace(x, shape=(*x.shape, 1, 1), strides=(*x.strides, x.itemsize, x.itemsize))
    return x[:, :, None, None]


def _map(name: str, x: Operand, layout: Layout, **of: Any) -> Map:
    check_option("layout", layout, LAYOUTS, "where the channels of images are")
    return Map(name, layout, four(x.shape, "the images", layout, least_first=0), x.dtype, **of)


def result_of(given: Any, of: Map, arrays: Mapping[str, Operand], first: Any, machine: Machine) -> Operand:
    """The result's array, checked; the first map's own in place."""
    if given is None:
        return np.empty(of.shape("out"), of.dtype)
    if given is first and of.is_in_place:
        name = of.reads[0]
        check_written(arrays[name], "out", {key: one for key, one in arrays.items() if key != name})
        return arrays[name]
    out = operand(given, "out", machine, of.dtype)
    if out.shape != of.shape("out"):
        raise ShapeError(
            f"out has shape {out.shape}\nthe result has shape {of.shape('out')}\n"
            "reshape it, or check the layout"
        )
    check_written(out, "out", arrays)
    return out


def computed(
    of: Map,
    machine: Machine,
    operands: dict[str, Operand],
    first: Any,
    out: Any,
    *how: Any,
) -> Any:
    """Compute a result from checked operands; ``how`` goes to `called_map`."""
    result = result_of(out, of, operands, first, machine)
    called_map(of, machine, {**operands, "out": result}, *how)
    return result if out is None else out
