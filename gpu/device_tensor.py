"""Tensors on a device: in memory of a machine, or other libraries' arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.cuda.views import view_of
from gpu.cuda_machine import DEFAULT_LOCK, default_machine
from gpu.device import is_array, is_foreign
from gpu.host_memory import overlap
from gpu.machine import Machine, Memory
from reference.errors import DtypeError, FreedMemoryError, ShapeError
from reference.values import not_an_array, shortened


@not_an_array("copy it to the host with copy_out of its machine")
@shortened
@dataclass(frozen=True, eq=False)
class DeviceTensor:
    """A tensor in the memory of one of a machine's devices.

    Parameters
    ----------
    memory : Memory
        What ``allocate`` of the machine gave.
    shape : tuple of int
    dtype : dtype
    offset : int
        Bytes from the start of the memory to the first element.
    strides : tuple of int, optional
        In bytes, as of NumPy's arrays. Default: C order without gaps.
    given : object, optional
        Another library's array, which keeps the memory.
    is_writeable : bool

    Examples
    --------
    >>> import simwarp
    >>> memory = simwarp.Machine().allocate(0, 1 << 10)
    >>> DeviceTensor(memory, (2, 3, 4, 5), np.float32, offset=64).strides
    (240, 80, 20, 4)
    """

    memory: Memory
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int = 0
    strides: tuple[int, ...] = ()
    given: object = None
    is_writeable: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", np.dtype(self.dtype))
        object.__setattr__(self, "shape", tuple(int(size) for size in self.shape))
        if not self.strides:
            object.__setattr__(self, "strides", in_order(self.shape, self.itemsize))

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """The bytes of one element of the tensor."""
        return self.dtype.itemsize

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def outline(self) -> npt.NDArray[Any]:
        """An array with the tensor's addresses, for `overlap` and slices; its elements must not be read."""
        address = getattr(self.memory, "address", 1 << 20) + self.offset
        described = {"shape": self.shape, "strides": self.strides, "typestr": self.dtype.str, "version": 3}
        outline: Any = type("Outline", (), {"__array_interface__": described | {"data": (address, True)}})()
        return np.asarray(outline)


def in_order(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """The strides of C order without gaps, in bytes.

    >>> in_order((2, 3, 4), 4)
    (48, 16, 4)
    """
    return tuple(itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def is_on_gpu(given: object) -> bool:
    """True if an operand is an array on a GPU, of this package or of another library."""
    return is_array(given) or is_foreign(given)


def tensor_of(given: Any, device: Machine | None) -> DeviceTensor:
    """A GPU array as a tensor of the machine ``device``, by default of a machine of all GPUs.

    Raises DtypeError for an array that cannot be taken or a machine without GPUs, LaunchError for one of
    another GPU.
    """
    if device is not None and not hasattr(device, "borrow"):
        raise DtypeError(
            f"an array on a GPU is given to a {type(device).__name__}\nonly gpu.CudaMachine computes there\n"
            "copy it to the host, or describe memory that the machine has allocated"
        )
    view, dtype = view_of(given)
    shape, item = tuple(int(size) for size in view.shape), dtype.itemsize
    strides = in_order(shape, item)
    if view.strides is not None:
        strides = tuple(int(step) * item for step in view.strides)
    span = sum(max((size - 1) * stride, 0) for size, stride in zip(shape, strides, strict=True)) + item
    memory = _borrowed(int(view.ptr), span, device) if math.prod(shape) else _Nowhere()
    return DeviceTensor(memory, shape, dtype, 0, strides, given, not view.readonly)


@dataclass(frozen=True)
class _Nowhere:
    """An empty memory for a tensor without elements."""

    device: int = 0
    nbytes: int = 0


def _borrowed(address: int, nbytes: int, device: Any) -> Memory:
    """Wrap another library's device memory, by its address and size in bytes."""
    if device is not None:
        return device.borrow(address, nbytes)
    with DEFAULT_LOCK:
        return default_machine().borrow(address, nbytes)


def check_memory(of: Any, what: str, end: int, device: Machine) -> None:
    """Raise FreedMemoryError or ShapeError unless a tile or tensor is within memory of a machine."""
    memory, number = of.memory, getattr(of.memory, "device", -1)
    if not 0 <= number < device.devices or all(one is not memory for one in device.allocated(number)):
        raise FreedMemoryError(
            f"{what} in {memory!r}",
            "the memory is freed, or of another machine",
            "allocate it with allocate() of the machine that is passed as device=",
        )
    if of.offset < 0 or of.offset % of.dtype.itemsize or end > memory.nbytes:
        raise ShapeError(
            f"{what} at byte {of.offset}, up to byte {end}\n"
            f"its memory has {memory.nbytes} bytes, an element {of.dtype.itemsize}\n"
            "put it into its memory, at a multiple of an element"
        )


def share(x: npt.NDArray[Any] | DeviceTensor, y: npt.NDArray[Any] | DeviceTensor) -> bool:
    """True if two arrays have an element in common."""
    if isinstance(x, DeviceTensor) and isinstance(y, DeviceTensor):
        is_one_space = x.memory is y.memory or hasattr(x.memory, "address")
        same = x.memory.device == y.memory.device and is_one_space
        return same and bool(x.size and y.size) and overlap(x.outline(), [y.outline()])
    if isinstance(x, DeviceTensor) or isinstance(y, DeviceTensor):
        return False
    return overlap(x, [y])
