"""The public functions: a convolution and its gradients, in pieces that fit on a device."""

from __future__ import annotations

from typing import Any

from gpu.machine import Machine
from gpu.outofcore.arguments import check_bias, check_shape, operand, output, problem_of
from gpu.outofcore.networks.layers import AveragePool, MaxPool
from gpu.outofcore.options import Options
from gpu.outofcore.pieces import Pieces
from gpu.outofcore.problem import Activation, Layout
from gpu.outofcore.run import called, machine_for
from gpu.outofcore.statistics import Statistics

_GEOMETRY = ("stride", "padding", "dilation", "groups", "layout")


def conv2d(
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    device: Machine | None = None,
    activation: Activation | None = None,
    pool: MaxPool | AveragePool | None = None,
    stride: Any = 1,
    padding: Any = "SAME",
    dilation: Any = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
    out: Any = None,
    memory_budget: int | None = None,
    pieces: Pieces | None = None,
    options: Options | None = None,
    statistics: Statistics | None = None,
) -> Any:
    """Cross-correlate images with filters, piece by piece; the data need not fit on the device.

    Pieces are of some images, output rows, channels and filters. Sums over channels that are cut go on in the
    device's memory. Other cuts do not change a bit of the result.

    Parameters
    ----------
    x : array of float32, float16 or bfloat16, (N, C, H, W), or (N, H, W, C) with layout "NHWC"
        In C order; it may be a part of a larger array. A bfloat16 is that of ml_dtypes, or another dtype of
        this name. All arrays have one dtype; sums are in float32 or better.
        Each array, and ``out``, may also lie on the machine's first device, in C order without gaps: a
        `DeviceTensor`, or on GPUs an array of torch, CuPy or another library.
    w : array, (O, C / groups, R, S), or (O, R, S, C / groups)
    bias : array, (O,), optional
    device : Machine, optional
        Its first device computes; `gpu.CudaMachine` or `simwarp.Machine`. Default: the first GPU.
    activation : {"relu", "tanh", "sigmoid"}, optional
        Applied behind the bias on the device, without more copies.
    pool : MaxPool or AveragePool, optional
        Applied last on the device, so that only its result is copied: `reference.training.max_pool2d` or
        `reference.training.average_pool2d`. For float32 in NCHW.
    stride, dilation : int or (vertical, horizontal)
    padding : {"SAME", "VALID"}, int, (vertical, horizontal) or ((top, bottom), (left, right))
        The names are TensorFlow's; see `reference.conv_geometry`.
    groups : int
    layout : {"NCHW", "NHWC"}
    out : array, optional
        The result's memory. Default: a new array of the host.
    memory_budget : int, optional
        The bytes of the device that may be used beside arrays that lie there. Default: all that are free.
    pieces : Pieces, optional
        Default: what the planner chooses.
    options : Options, optional
    statistics : Statistics, optional
        Gets bytes and seconds, and the seconds that the model predicts.

    Returns
    -------
    array, (N, O, P, Q) or (N, P, Q, O); of ``pool``, if given
        ``out``, if given.

    Raises
    ------
    ShapeError
        For shapes that do not fit, and for stride, padding, dilation, groups or pieces out of range.
    DtypeError, FormatError
        For another dtype, another order of elements, and for ``out`` that is read-only or shares memory.
    FreedMemoryError
        For memory that is freed, or of another machine.
    SchemeError
        For an unknown name, and for ``pool`` with another dtype or layout.
    LaunchError
        For a budget that does not hold a piece of each tensor; the message has the least one. For an array on
        another device.
    NoGpuError
        If no ``device`` is given and no GPU can be used.
    MissingExtraError
        If the device is a `gpu.CudaMachine`, and cuDNN is not installed.
    MachineError
        If the machine fails. No memory stays allocated then, the operands are as before, and the result may
        hold some finished pieces; on the device also unfinished ones.

    Notes
    -----
    Source: ooc_cuDNN, sections 3.2, 4 and 5.

    Examples
    --------
    >>> import numpy as np
    >>> import simwarp
    >>> x, w = np.ones((2, 3, 8, 8), np.float32), np.ones((4, 3, 3, 3), np.float32)
    >>> conv2d(x, w, device=simwarp.Machine(), memory_budget=4000, activation="relu")[1, 3, 0]
    array([12., 18., 18., 18., 18., 18., 18., 12.], dtype=float32)
    """
    with machine_for(device, "conv2d") as machine:
        images = operand(x, "x", machine)
        operands = {"x": images, "w": operand(w, "w", machine, images.dtype)}
        operands |= {} if bias is None else {"bias": operand(bias, "bias", machine, images.dtype)}
        shapes, how = (images.shape, operands["w"].shape), (statistics, memory_budget, pieces, options)
        geometry = stride, padding, dilation, groups, layout
        return _computed("conv2d", shapes, geometry, operands, out, machine, how, activation, pool)


def conv2d_backward_data(
    gradient: Any,
    w: Any,
    shape: tuple[int, ...],
    *,
    device: Machine | None = None,
    stride: Any = 1,
    padding: Any = "SAME",
    dilation: Any = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
    out: Any = None,
    memory_budget: int | None = None,
    pieces: Pieces | None = None,
    options: Options | None = None,
    statistics: Statistics | None = None,
) -> Any:
    """Compute the gradient of a loss with respect to the images of `conv2d`, piece by piece.

    Pieces are of some images, rows of the images, channels and filters; sums are over filters.

    Parameters
    ----------
    gradient : array, of the shape of the convolution's result
    w : array, (O, C / groups, R, S), or (O, R, S, C / groups)
    shape : (N, C, H, W) or (N, H, W, C)
        The shape of the images.
    device, stride, padding, dilation, groups, layout, out, memory_budget, pieces, options, statistics
        As of `conv2d`.

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
    Source: ooc_cuDNN, section 3.2: by the same method.

    Examples
    --------
    >>> import numpy as np
    >>> import simwarp
    >>> dy, w = np.ones((1, 4, 8, 8), np.float32), np.ones((4, 3, 3, 3), np.float32)
    >>> conv2d_backward_data(dy, w, (1, 3, 8, 8), device=simwarp.Machine(), memory_budget=2000)[0, 0, 0]
    array([16., 24., 24., 24., 24., 24., 24., 16.], dtype=float32)
    """
    with machine_for(device, "conv2d_backward_data") as machine:
        dy = operand(gradient, "gradient", machine)
        operands = {"gradient": dy, "w": operand(w, "w", machine, dy.dtype)}
        shapes, how = (shape, operands["w"].shape), (statistics, memory_budget, pieces, options)
        geometry = stride, padding, dilation, groups, layout
        return _computed("conv2d_backward_data", shapes, geometry, operands, out, machine, how)


def conv2d_backward_filter(
    x: Any,
    gradient: Any,
    shape: tuple[int, ...],
    *,
    device: Machine | None = None,
    stride: Any = 1,
    padding: Any = "SAME",
    dilation: Any = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
    out: Any = None,
    memory_budget: int | None = None,
    pieces: Pieces | None = None,
    options: Options | None = None,
    statistics: Statistics | None = None,
) -> Any:
    """Compute the gradient of a loss with respect to the filters of `conv2d`, piece by piece.

    Pieces are of some images, output rows, channels and filters; sums are over images and rows, and stay on
    the device until they are complete.

    Parameters
    ----------
    x : array, (N, C, H, W) or (N, H, W, C)
    gradient : array, of the shape of the convolution's result
    shape : (O, C / groups, R, S) or (O, R, S, C / groups)
        The shape of the filters.
    device, stride, padding, dilation, groups, layout, out, memory_budget, pieces, options, statistics
        As of `conv2d`.

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
    Source: ooc_cuDNN, section 3.2: by the same method.

    Examples
    --------
    >>> import numpy as np
    >>> import simwarp
    >>> x, dy = np.ones((2, 3, 8, 8), np.float32), np.ones((2, 4, 8, 8), np.float32)
    >>> conv2d_backward_filter(x, dy, (4, 3, 3, 3), device=simwarp.Machine(), memory_budget=4000)[0, 0]
    array([[ 98., 112.,  98.],
           [112., 128., 112.],
           [ 98., 112.,  98.]], dtype=float32)
    """
    with machine_for(device, "conv2d_backward_filter") as machine:
        images = operand(x, "x", machine)
        operands = {"x": images, "gradient": operand(gradient, "gradient", machine, images.dtype)}
        shapes, how = (images.shape, shape), (statistics, memory_budget, pieces, options)
        geometry = stride, padding, dilation, groups, layout
        return _computed("conv2d_backward_filter", shapes, geometry, operands, out, machine, how)


def _computed(
    routine: str,
    shapes: tuple[Any, Any],
    geometry: tuple[Any, ...],
    operands: dict[str, Any],
    out: Any,
    machine: Machine,
    how: tuple[Any, ...],
    activation: Activation | None = None,
    pool: MaxPool | AveragePool | None = None,
) -> Any:
    """Compute a result from checked operands, for shapes of images and filters; ``how`` goes to `called`."""
    problem = problem_of(
        routine,
        *shapes,
        **dict(zip(_GEOMETRY, geometry, strict=True)),
        has_bias="bias" in operands,
        activation=activation,
        pool=pool,
        dtype=next(iter(operands.values())).dtype,
    )
    if "bias" in operands:
        check_bias(problem, operands["bias"])
    if "gradient" in operands:
        check_shape(problem, "y", operands["gradient"].shape, "gradient")
    result = output(out, problem, operands, machine)
    arrays = {"y" if name == "gradient" else name: x for name, x in operands.items()}
    called(problem, machine, {**arrays, problem.result: result}, *how)
    return result if out is None else out
