"""Arrays in global or shared memory, for kernels written in Python.

Source: PTX ISA 9.0, chapter 5 (state spaces).
"""

from __future__ import annotations

import copy
import math
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from reference.devices.launch import Extent, sizes
from reference.errors import DtypeError
from simwarp.memory import Memory


class Array:
    """An array in simulated memory, which a kernel accesses with `Warp.load` and `Warp.store`.

    Each array has its own address space, so that no index of one array can reach another.

    Parameters
    ----------
    name : str
        For faults.
    shape : int or tuple of int
        For the host; a kernel sees flat, C-order indices.
    dtype : bool, integer or float, up to 8 bytes
    read_only : bool
        As CUDA's ``const``: a store is a fault.

    Attributes
    ----------
    size : int
        The number of elements.
    """

    space: ClassVar[str] = "global"

    def __init__(self, name: str, shape: Extent, dtype: npt.DTypeLike, *, read_only: bool = False) -> None:
        self.name, self.dtype = name, _element_type(name, dtype)
        self.shape = sizes(shape)
        self.size = math.prod(self.shape)
        self.memory = Memory(self.space)
        self.allocation = self.memory.allocate(self.size * self.dtype.itemsize, name, read_only)
        self.base = self.allocation.base

    def addresses(self, index: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
        """The address of each index, also of an index out of bounds.

        Examples
        --------
        >>> a = GlobalArray("a", 4, np.uint32)
        >>> (a.addresses(np.array([0, 3, -1])) - np.uint64(a.base)).view(np.int64).tolist()
        [0, 12, -4]
        """
        offset = index.astype(np.int64).view(np.uint64) * np.uint64(self.dtype.itemsize)
        return np.uint64(self.base) + offset

    def view(self, dtype: npt.DTypeLike, offset: int = 0) -> Array:
        """The same memory as elements of another type: ``reinterpret_cast<dtype*>(&array[offset])``.

        Examples
        --------
        >>> words = GlobalArray.of("words", np.array([1, 2, 3, 4], np.uint32))
        >>> words.view(np.uint64).size
        2
        """
        other = copy.copy(self)
        other.dtype = _element_type(self.name, dtype)
        other.base = self.base + offset * self.dtype.itemsize
        other.size = (self.allocation.base + self.allocation.size - other.base) // other.dtype.itemsize
        other.shape = (other.size,)
        return other


class GlobalArray(Array):
    """An `Array` in global memory; ``GlobalArray(name, shape, dtype)`` is uninitialised.

    Examples
    --------
    >>> GlobalArray.of("A", np.eye(2, dtype=np.int8)).numpy().tolist()
    [[1, 0], [0, 1]]
    """

    @classmethod
    def of(cls, name: str, values: npt.ArrayLike, *, read_only: bool = False) -> GlobalArray:
        """Copy a NumPy array to global memory."""
        host: npt.NDArray[Any] = np.asarray(values)
        array = cls(name, host.shape, host.dtype, read_only=read_only)
        array.allocation.fill(np.ascontiguousarray(host, array.dtype).reshape(-1).view(np.uint8))
        return array

    def numpy(self) -> npt.NDArray[Any]:
        """Copy the array to the host. An element that no kernel wrote raises `UninitialisedRead`."""
        return self.memory.load(self.addresses(np.arange(self.size)), self.dtype).reshape(self.shape)


class SharedArray(Array):
    """An `Array` in the shared memory of one block; `launch` allocates it, uninitialised.

    Attributes
    ----------
    space : str
        "shared".
    """

    space: ClassVar[str] = "shared"


def _element_type(name: str, dtype: npt.DTypeLike) -> np.dtype[Any]:
    dtype = np.dtype(dtype)
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise DtypeError(
            f"array {name} has elements of {dtype.name}\nkernels have numbers of up to 8 bytes\n"
            "give bool, integers or floats"
        )
    return dtype.newbyteorder("=")
