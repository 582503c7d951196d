"""Checks of the arguments of out-of-core convolutions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from gpu.bconv.geometry import conv_shape
from gpu.device_tensor import DeviceTensor, check_memory, in_order, is_on_gpu, share, tensor_of
from gpu.machine import Machine
from gpu.outofcore.networks.layers import AveragePool, MaxPool
from gpu.outofcore.networks.stages import Shape, Stage, stage_of
from gpu.outofcore.problem import ACTIVATIONS, DTYPES, FLOAT, FORMS, LAYOUTS, Problem, Tensor
from reference.errors import DtypeError, FormatError, LaunchError, SchemeError, ShapeError
from reference.types.arguments import check_option
from reference.types.fields import is_integer

Array = npt.NDArray[Any]
Operand: TypeAlias = Array | DeviceTensor


def problem_of(
    routine: str,
    images: Any,
    filters: Any,
    *,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: Any,
    layout: Any,
    has_bias: bool = False,
    activation: Any = None,
    pool: Any = None,
    dtype: np.dtype[Any] = FLOAT,
) -> Problem:
    """The problem of these shapes of images and filters, checked."""
    check_option("routine", routine, tuple(FORMS), "these are convolutions and their gradients")
    check_option("layout", layout, LAYOUTS, "where the channels of images and filters are")
    check_option("activation", activation, (None, *ACTIVATIONS), "it follows the bias")
    if routine != "conv2d" and (has_bias or activation or pool is not None):
        raise SchemeError(
            f"{routine} with a bias, an activation or pooling\nonly conv2d has them\n"
            "leave them out, or explain conv2d"
        )
    batch, channels, height, width = four(images, "the images", layout, least_first=0)
    count, of_filters, rows, columns = four(filters, "the filters", layout)
    if not is_integer(groups) or groups < 1 or channels != groups * of_filters or count % groups:
        raise ShapeError(
            f"the images have {channels} channels, the {count} filters have {of_filters}, groups={groups!r}\n"
            "a filter has the channels of one group, and groups must divide the number of filters\n"
            "check the layout, and the number of groups"
        )
    plane = conv_shape(
        (1, height, width, 1), (rows, columns, 1, 1), stride=stride, padding=padding, dilation=dilation
    )
    sizes = batch, channels, count, int(groups), plane
    problem = Problem(routine, layout, *sizes, has_bias, activation, dtype)
    if pool is None:
        return problem
    result = problem.filters, plane.out_height, plane.out_width
    return replace(problem, pool=pooling_of(pool, result, layout, dtype))


def pooling_of(pool: Any, shape: Shape, layout: str, dtype: np.dtype[Any]) -> Stage:
    """Check the pooling of images of (channels, rows, columns); return it as a stage."""
    if not isinstance(pool, MaxPool | AveragePool):
        raise SchemeError(
            f"pool is {pool!r}\nlargest pixels or means of windows are computed\n"
            "pass gpu.outofcore.MaxPool(...) or AveragePool(...)"
        )
    if layout != "NCHW" or dtype != FLOAT:
        raise SchemeError(
            f"pool of {dtype} in {layout}\nthe kernels of pooling are for float32 in NCHW\n"
            "convert the arrays, or pool the result"
        )
    kind = "max_pool" if isinstance(pool, MaxPool) else "average_pool"
    stride = pool.window if pool.stride is None else pool.stride
    return stage_of(2, kind, shape, shape[0], pool.window, stride, pool.padding)


def four(shape: Any, name: str, layout: str, least_first: int = 1) -> tuple[int, int, int, int]:
    """Check a 4D shape, and return it with the channels second."""
    known = tuple(shape)
    least = (least_first, 1, 1, 1)
    if len(known) != 4 or not all(is_integer(n) and n >= one for n, one in zip(known, least, strict=True)):
        axes = "four sizes, the channels second" if layout == "NCHW" else "four sizes, the channels last"
        empty = "" if least_first else ", except that a batch may be empty"
        raise ShapeError(
            f"{name} have shape {known}\n{axes} are needed, each at least 1{empty}\n"
            "reshape them, or leave the call out where there is nothing to compute"
        )
    first, second, third, last = map(int, known)
    return (first, second, third, last) if layout == "NCHW" else (first, last, second, third)


def operand(given: Any, name: str, device: Machine, dtype: np.dtype[Any] | None = None) -> Operand:
    """Check an operand: an array of the host or a tensor on the first device; of ``dtype`` unless None."""
    if isinstance(given, DeviceTensor) or is_on_gpu(given):
        return _on_device(given, name, device, dtype)
    if not isinstance(given, np.ndarray):
        raise DtypeError(
            f"{name} is a {type(given).__name__}\narrays of the host or the device are cut into pieces\n"
            "give a numpy.ndarray, an array on a GPU, or a DeviceTensor"
        )
    x = cast("Array", given)
    check_dtype(x.dtype, name, dtype)
    if not _is_in_order(x):
        raise FormatError(
            f"{name} has strides {x.strides} of shape {x.shape}\n"
            "elements must follow one another in C order, as they do in a part of a larger array\n"
            "copy it with numpy.ascontiguousarray"
        )
    return x


def _on_device(given: Any, name: str, device: Machine, dtype: np.dtype[Any] | None) -> DeviceTensor:
    """A tensor on the machine's first device; FormatError if its elements have gaps."""
    x = given if isinstance(given, DeviceTensor) else tensor_of(given, device)
    check_dtype(x.dtype, name, dtype)
    if x.size and any(
        size > 1 and stride != needed
        for size, stride, needed in zip(x.shape, x.strides, in_order(x.shape, x.itemsize), strict=True)
    ):
        raise FormatError(
            f"{name} has strides {x.strides} of shape {x.shape}\n"
            "elements on a device must follow one another in C order, without gaps\n"
            "make it contiguous; of images whose channels come last, pass a view that has them last, and"
            ' layout="NHWC"'
        )
    if given is x and x.given is None:  # else another library keeps the memory
        check_memory(x, f"{name} of shape {x.shape}", x.offset + x.size * x.itemsize, device)
    if x.memory.device != 0:
        raise LaunchError(
            f"{name} lies on device {x.memory.device}\nthe machine's first device computes\n"
            "copy it there, or pass a machine whose first device has it"
        )
    return x


def check_dtype(found: np.dtype[Any], name: str, dtype: np.dtype[Any] | None = None) -> None:
    """Raise DtypeError for a dtype without tile routines, or one that differs from the first operand's.

    A bfloat16 is recognised by its name: NumPy has none, but ml_dtypes and others have.
    """
    if found.name not in DTYPES or not found.isnative:
        listed = ", ".join(DTYPES)
        raise DtypeError(f"{name} is of {found}\nthe tile routines are for {listed}\nconvert it")
    if dtype is not None and found != dtype:
        raise DtypeError(f"{name} is of {found}, another array of {dtype}\nall have one dtype\nconvert it")


def _is_in_order(x: Array) -> bool:
    """True if the last axis is contiguous, and each other axis steps over the one behind it."""
    least = x.itemsize
    if not x.size:  # NumPy sets the strides of an empty array to 0
        return True
    for axis in reversed(range(x.ndim)):
        size, stride = x.shape[axis], x.strides[axis]
        if size > 1:
            if stride < least or (axis == x.ndim - 1 and stride != x.itemsize):
                return False
            least = size * stride
    return True


def check_shape(problem: Problem, tensor: Tensor, found: tuple[int, ...], name: str) -> None:
    """Raise ShapeError for an array of another shape than the problem has."""
    needed = problem.shape(tensor)
    if found != needed:
        raise ShapeError(
            f"{name} has shape {found}\nimages {problem.shape('x')} and filters {problem.shape('w')} need"
            f" {needed}\ncheck stride, padding, dilation and layout"
        )


def check_bias(problem: Problem, bias: Operand) -> None:
    """Raise ShapeError for a bias of another shape."""
    if bias.shape != (problem.filters,):
        raise ShapeError(
            f"bias has shape {bias.shape}\none number for each of {problem.filters} filters is needed\n"
            "reshape it"
        )


def output(given: Any, problem: Problem, operands: dict[str, Operand], device: Machine) -> Operand:
    """Check the array for the result, or allocate it on the host; it must not overlap an operand."""
    tensor = problem.result
    if given is None:
        return np.empty(problem.shape(tensor), problem.dtype)
    out = operand(given, "out", device, problem.dtype)
    check_shape(problem, tensor, out.shape, "out")
    check_written(out, "out", operands)
    return out


def check_written(out: Operand, name: str, operands: Mapping[str, Operand]) -> None:
    """Raise FormatError for an array that may not be written, or that shares memory with an operand."""
    if not (out.is_writeable if isinstance(out, DeviceTensor) else out.flags.writeable):
        raise FormatError(f"{name} is read-only\nit would be overwritten\npass a writeable array")
    for other, x in operands.items():
        if share(out, x):
            raise FormatError(
                f"{name} shares memory with {other}\n{other} is read while {name} is written\ncopy {other}"
            )
