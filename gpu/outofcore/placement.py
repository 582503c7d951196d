"""Where arrays lie: on the device while it has room, else on the host, whole on one of them.

Source: ooc_cuDNN, section 3.1: its allocation and its copy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from gpu.cleanup import leaving_nothing
from gpu.device_tensor import DeviceTensor
from gpu.machine import Machine, Tile
from gpu.outofcore.arguments import Operand, check_dtype, check_written, operand
from gpu.outofcore.matrices import matrices_of, packed
from gpu.outofcore.routines import Move
from gpu.outofcore.run import machine_for
from reference.errors import (
    DeviceMemoryError,
    DtypeError,
    HostMemoryError,
    LaunchError,
    ShapeError,
)
from reference.types.fields import is_integer

Array = npt.NDArray[Any]


def allocate(
    shape: tuple[int, ...],
    dtype: npt.DTypeLike = np.float32,
    *,
    device: Machine | None = None,
    reserve: int = 0,
) -> Any:
    """Allocate an array on the device while it has room, else in page-locked memory of the host.

    An array is never spread over both. Every function of this package takes it, wherever it lies.

    Parameters
    ----------
    shape : tuple of int
    dtype : dtype
        float32, float16 or bfloat16.
    device : Machine, optional
        As of `conv2d`.
    reserve : int
        The bytes of the device that stay free, for the pieces of arrays on the host.

    Returns
    -------
    DeviceTensor or ndarray
        Its elements are undefined. `free` returns its memory.

    Raises
    ------
    ShapeError, DtypeError
        For a size below 0, and for another dtype.
    LaunchError
        For a reserve below 0.
    HostMemoryError
        If neither the device nor the host has room.
    NoGpuError, MachineError
        As `conv2d`.

    Notes
    -----
    Source: ooc_cuDNN, section 3.1.

    Examples
    --------
    >>> import simwarp
    >>> machine = simwarp.Machine("P100")
    >>> maps = [allocate((64, 64, 448, 448), device=machine, reserve=1 << 30) for _ in range(5)]
    >>> [type(one).__name__ for one in maps]
    ['DeviceTensor', 'DeviceTensor', 'DeviceTensor', 'DeviceTensor', 'ndarray']
    >>> for one in maps:
    ...     free(one, device=machine)
    >>> machine.allocated(0), machine.pinned()
    ((), 0)
    """
    sizes, kind = tuple(shape), np.dtype(dtype)
    check_dtype(kind, "dtype")
    if not all(is_integer(size) and size >= 0 for size in sizes):
        raise ShapeError(
            f"the shape is {sizes}\nit is a number of elements for each axis\ngive ints of 0 or more"
        )
    if not is_integer(reserve) or reserve < 0:
        raise LaunchError(f"reserve is {reserve!r}\nit is a number of bytes\npass an int of 0 or more")
    nbytes = math.prod(sizes) * kind.itemsize
    with machine_for(device, "allocate") as machine:
        if 0 < nbytes <= machine.budget(0) - reserve:
            try:
                return DeviceTensor(machine.allocate(0, nbytes), sizes, kind)
            except DeviceMemoryError:  # a device may have no room in one place, or lend it to others
                pass
        return _on_host(sizes, kind, machine)


def free(x: Any, *, device: Machine | None = None) -> None:
    """Return the memory of an array that `allocate` made.

    Parameters
    ----------
    x : DeviceTensor or ndarray
    device : Machine, optional
        That of `allocate`.

    Raises
    ------
    DtypeError
        For anything else.
    FreedMemoryError, UnpinnedError
        If it is freed already, or of another machine.

    Examples
    --------
    >>> import simwarp
    >>> machine = simwarp.Machine()
    >>> free(allocate((2, 3), device=machine), device=machine)
    """
    with machine_for(device, "free") as machine:
        if isinstance(x, DeviceTensor):
            machine.free(x.memory)
        elif not isinstance(x, np.ndarray):
            raise DtypeError(
                f"free of a {type(x).__name__}\nfree takes what allocate() returned\npass that array"
            )
        elif x.size:
            machine.unpin(cast("Array", x))


def copy(source: Any, target: Any, *, device: Machine | None = None) -> Any:
    """Copy one array to another, wherever both lie; the direction need not be told.

    Parameters
    ----------
    source, target : array, of one shape and dtype
        On the host or on the machine's first device, as operands of `conv2d`.
    device : Machine, optional
        As of `conv2d`.

    Returns
    -------
    array
        ``target``.

    Raises
    ------
    ShapeError, DtypeError
        For two shapes or dtypes.
    FormatError
        For arrays that share memory, a read-only target, and another order of elements.
    LaunchError, FreedMemoryError, NoGpuError, MachineError
        As `conv2d`.

    Notes
    -----
    Source: ooc_cuDNN, section 3.1: ``cudaMemcpyDefault``.

    Examples
    --------
    >>> import simwarp
    >>> machine = simwarp.Machine()
    >>> x = allocate((2, 3), device=machine)
    >>> there = copy(np.arange(6, dtype=np.float32).reshape(2, 3), x, device=machine)
    >>> copy(x, np.empty((2, 3), np.float32), device=machine)
    array([[0., 1., 2.],
           [3., 4., 5.]], dtype=float32)
    """
    with machine_for(device, "copy") as machine:
        x = operand(source, "source", machine)
        y = operand(target, "target", machine, x.dtype)
        if x.shape != y.shape:
            raise ShapeError(
                f"source has shape {x.shape}, target {y.shape}\na copy has one shape\nreshape one of them"
            )
        check_written(y, "target", {"source": x})
        if x.size:
            _copied(x, y, machine)
    return target


def _copied(x: Operand, y: Operand, machine: Machine) -> None:
    """Copy checked arrays that have elements."""
    if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
        y[...] = x
        return
    with leaving_nothing(machine, [one for one in (x, y) if isinstance(one, np.ndarray)]):
        stream = machine.stream(0)
        if isinstance(x, np.ndarray):
            for matrix, tile in _tiles(x, y):
                machine.copy_in(stream, matrix, tile)
        elif isinstance(y, np.ndarray):
            for matrix, tile in _tiles(y, x):
                machine.copy_out(stream, tile, matrix)
        else:
            source, target = (Tile(one.memory, one.offset, x.size, 1, x.size, x.dtype) for one in (x, y))
            machine.launch(stream, Move(source, target))
        machine.run([])


def _tiles(host: Array, there: Operand) -> Iterator[tuple[Array, Tile]]:
    """The matrices of a host array, and the tiles of a device tensor that have the same elements."""
    assert isinstance(there, DeviceTensor)
    return packed(there.memory, there.offset, matrices_of(host), there.dtype)


def _on_host(shape: tuple[int, ...], dtype: np.dtype[Any], machine: Machine) -> Array:
    """An array in page-locked memory of the host."""
    try:
        found = np.empty(shape, dtype)
    except MemoryError:
        raise HostMemoryError(
            f"an array of shape {shape} and {dtype}\nneither the device nor the host has room for it\n"
            "free others, or cut it into several arrays"
        ) from None
    if found.size:
        machine.pin(found)
    return found
