"""The gradients of bias, activation, pooling and dense layers as calls of their own, in pieces."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu.cuda_machine import CudaMachine
from gpu.machine import Machine
from gpu.outofcore.arguments import Operand, four, operand, pooling_of
from gpu.outofcore.doors import conv2d_backward_data, conv2d_backward_filter
from gpu.outofcore.layers import as_pixels, computed, result_of
from gpu.outofcore.map_run import called_map
from gpu.outofcore.maps import Map
from gpu.outofcore.networks.layers import AveragePool, MaxPool
from gpu.outofcore.networks.on_cuda import parts_bytes
from gpu.outofcore.options import Options
from gpu.outofcore.placement import copy
from gpu.outofcore.problem import ACTIVATIONS, FLOAT, Activation
from gpu.outofcore.run import machine_for
from gpu.outofcore.statistics import Statistics
from reference.errors import SchemeError, ShapeError
from reference.types.arguments import check_option


def conv2d_backward_bias(
    gradient: Any,
    *,
    device: Machine | None = None,
    out: Any = None,
    memory_budget: int | None = None,
    options: Options | None = None,
    statistics: Statistics | None = None,
) -> Any:
    """Compute the gradient with respect to the bias of `conv2d` and `add_bias`: the sum of each channel.

    Sums are in double precision on the device, and rounded once.

    Parameters
    ----------
    gradient : array of float32, (N, C, P, Q)
        By the result of the layer; on the host or the device, as of `conv2d`.
    device, out, memory_budget, options, statistics
        As of `conv2d`.

    Returns
    -------
    array, (C,)
        ``out``, if given.

    Raises
    ------
    ShapeError, DtypeError, FormatError, FreedMemoryError, SchemeError, LaunchError, NoGpuError, MachineError
        As `conv2d`.

    Notes
    -----
    Source: ooc_cuDNN, section 3.2: as ``cudnnConvolutionBackwardBias``.

    Examples
    --------
    >>> import simwarp
    >>> conv2d_backward_bias(np.ones((2, 3, 4, 5), np.float32), device=simwarp.Machine())
    array([40., 40., 40.], dtype=float32)
    """
    with machine_for(device, "conv2d_backward_bias") as machine:
        dy = _single(operand(gradient, "gradient", machine))
        images = four(dy.shape, "gradient", "NCHW", least_first=0)
        space = parts_bytes(images[1]) if isinstance(machine, CudaMachine) else 0
        of = Map("bias gradient", "NCHW", images, dy.dtype, ("gradient",), workspace=space)
        result = result_of(out, of, {"gradient": dy}, None, machine)
        sums = np.zeros(of.images[1])
        arrays = {"gradient": dy, "out": sums.view(np.float32)}
        called_map(of, machine, arrays, memory_budget, options, statistics)
        rounded = sums.astype(np.float32)
        if isinstance(result, np.ndarray):
            result[...] = rounded
        else:
            copy(rounded, result, device=machine)
        return result if out is None else out


def activate_backward(
    gradient: Any,
    y: Any,
    activation: Activation,
    *,
    device: Machine | None = None,
    out: Any = None,
    memory_budget: int | None = None,
    options: Options | None = None,
    statistics: Statistics | None = None,
) -> Any:
    """Compute the gradient with respect to the images of `activate`, from its result.

    Parameters
    ----------
    gradient : array of float32, (N, C, H, W) or (N, H, W, C)
        By the result; on the host or the device, as of `conv2d`.
    y : array, of the same shape
        The result of `activate`.
    activation : {"relu", "tanh", "sigmoid"}
    device, memory_budget, options, statistics
        As of `conv2d`.
    out : array, optional
        The result's memory; it may be ``gradient`` itself. Default: a new array of the host.

    Returns
    -------
    array, of that shape
        ``out``, if given.

    Raises
    ------
    ShapeError, DtypeError, FormatError, FreedMemoryError, SchemeError, LaunchError, NoGpuError, MachineError
        As `conv2d`.

    Notes
    -----
    Source: ooc_cuDNN, section 3.2: as ``cudnnActivationBackward``.

    Examples
    --------
    >>> import simwarp
    >>> dy, y = np.float32([[[[3, 4]]]]), np.float32([[[[0, 2]]]])
    >>> activate_backward(dy, y, "relu", device=simwarp.Machine())
    array([[[[0., 4.]]]], dtype=float32)
    """
    check_option("activation", activation, ACTIVATIONS, "what was applied to each number")
    with machine_for(device, "activate_backward") as machine:
        dy = _single(operand(gradient, "gradient", machine))
        result = operand(y, "y", machine, dy.dtype)
        _check_shape(result, "y", dy.shape)
        images = four(dy.shape, "gradient", "NCHW", least_first=0)
        of = Map(f"{activation} gradient", "NCHW", images, dy.dtype, ("gradient", "y"), activation=activation)
        arrays = {"gradient": dy, "y": result}
        return computed(of, machine, arrays, gradient, out, memory_budget, options, statistics)


def pool2d_backward(
    gradient: Any,
    x: Any,
    pool: MaxPool | AveragePool,
    *,
    device: Machine | None = None,
    out: Any = None,
    memory_budget: int | None = None,
    options: Options | None = None,
    statistics: Statistics | None = None,
) -> Any:
    """Compute the gradient with respect to the images of `pool2d`.

    Parameters
    ----------
    gradient : array of float32, of the shape of the pooling's result
        On the host or the device, as of `conv2d`.
    x : array of float32, (N, C, H, W)
        The images; those of `AveragePool` are not read, and their shape is enough.
    pool : MaxPool or AveragePool
        `reference.training.max_pool2d_backward` or `reference.training.average_pool2d_backward`.
    device, out, memory_budget, options, statistics
        As of `conv2d`.

    Returns
    -------
    array, (N, C, H, W)
        ``out``, if given.

    Raises
    ------
    ShapeError, DtypeError, FormatError, FreedMemoryError, SchemeError, LaunchError, NoGpuError, MachineError
        As `conv2d`.

    Notes
    -----
    Source: ooc_cuDNN, section 3.2: as ``cudnnPoolingBackward``.

    Examples
    --------
    >>> import simwarp
    >>> dy = np.full((1, 1, 1, 1), 8, np.float32)
    >>> pool2d_backward(dy, (1, 1, 2, 2), AveragePool(2), device=simwarp.Machine())[0, 0]
    array([[2., 2.],
           [2., 2.]], dtype=float32)
    """
    with machine_for(device, "pool2d_backward") as machine:
        dy = operand(gradient, "gradient", machine)
        is_shape = isinstance(x, tuple | list) and isinstance(pool, AveragePool)
        read: Any = None if is_shape else operand(x, "x", machine, dy.dtype)
        images = four(x if is_shape else read.shape, "the images", "NCHW", least_first=0)
        stage = pooling_of(pool, images[1:], "NCHW", dy.dtype)
        _check_shape(dy, "gradient", (*images[:2], *stage.shape[1:]))
        arrays = {"gradient": dy} if isinstance(pool, AveragePool) else {"gradient": dy, "x": read}
        of = Map(f"{stage.kind} gradient", "NCHW", images, dy.dtype, tuple(arrays), stage=stage)
        return computed(of, machine, arrays, None, out, memory_budget, options, statistics)


def dense_backward(
    gradient: Any,
    x: Any,
    w: Any,
    *,
    device: Machine | None = None,
    out: tuple[Any, Any, Any] = (None, None, None),
    memory_budget: int | None = None,
    options: Options | None = None,
    statistics: Statistics | None = None,
) -> tuple[Any, Any, Any]:
    """Compute the gradients with respect to the rows, the weights and the bias of `dense`: three calls.

    Parameters
    ----------
    gradient : array of float32, (N, O)
        By the result; on the host or the device, as of `conv2d`.
    x : array, (N, K)
    w : array, (O, K)
    device, memory_budget, options, statistics
        As of `conv2d`; the statistics are those of the three calls together.
    out : tuple of three arrays or None
        The memory of the results. Default: new arrays of the host.

    Returns
    -------
    arrays, (N, K), (O, K) and (O,)

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
    >>> dy, x, w = (np.float32([row]) for row in ([1], [1, 2], [3, 4]))
    >>> dense_backward(dy, x, w, device=simwarp.Machine())[1]
    array([[1., 2.]], dtype=float32)
    """
    with machine_for(device, "dense_backward") as machine:
        dy = _single(as_pixels(operand(gradient, "gradient", machine), "gradient"))
        rows = as_pixels(operand(x, "x", machine, dy.dtype), "x")
        weights = as_pixels(operand(w, "w", machine, dy.dtype), "w")
        _check_shape(weights, "w", (weights.shape[0], rows.shape[1], 1, 1))
        _check_shape(dy, "gradient", (rows.shape[0], weights.shape[0], 1, 1))
        counts = [Statistics() for _ in range(3)]
        how: list[dict[str, Any]] = [
            {"device": machine, "memory_budget": memory_budget, "options": options, "statistics": one}
            for one in counts
        ]
        into = [
            None if one is None else as_pixels(operand(one, "out", machine, dy.dtype), "out")
            for one in out[:2]
        ]
        dx = conv2d_backward_data(dy, weights, rows.shape, out=into[0], **how[0])
        dw = conv2d_backward_filter(rows, dy, weights.shape, out=into[1], **how[1])
        found = (
            dx[:, :, 0, 0] if out[0] is None else out[0],
            dw[:, :, 0, 0] if out[1] is None else out[1],
            conv2d_backward_bias(dy, out=out[2], **how[2]),
        )
    if statistics is not None:
        statistics.bytes_in = sum(one.bytes_in for one in counts)
        statistics.bytes_out = sum(one.bytes_out for one in counts)
        statistics.seconds = sum(one.seconds for one in counts)
        statistics.predicted_seconds = sum(one.predicted_seconds for one in counts)
    return found


# --------------------------------------------------------------------------------------------------
# Arguments
# --------------------------------------------------------------------------------------------------


def _single(x: Operand) -> Operand:
    """Check that a gradient is of float32, as the kernels are."""
    if x.dtype != FLOAT:
        raise SchemeError(
            f"a gradient of {x.dtype}\nthe kernels of these gradients are for float32\nconvert the arrays"
        )
    return x


def _check_shape(x: Operand, name: str, needed: tuple[int, ...]) -> None:
    """Raise ShapeError for an array of another shape than the call's other arrays need."""
    if x.shape != needed:
        raise ShapeError(
            f"{name} has shape {x.shape}\nthe other arrays need {needed}\n"
            "check the arrays, and the layer's options"
        )
