"""Compilation and launch of the MTTKRP kernels (rows.cuh is the device side).

A format's module turns a tensor on the device into `Work`: launches that want only the factors and the
result, and, for the deterministic variant, the row of every slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from struct import Struct
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.compile import compile_file
from gpu.device import Array, Device, Dim, fixed

THREADS = 256
"""Of a block, in all kernels."""

WARP = 32

MOST_PASSES = 65535
"""What a grid's second dimension holds."""

_SINK = 24
"""Bytes of the structure ``Sink``."""

_C_TYPES = {"float32": "float", "float64": "double"}


@dataclass(frozen=True)
class Setting:
    """The configuration shared by the kernels of a plan.

    Attributes
    ----------
    device : Device
    dtype : dtype
        Of values, factors and result: float32 or float64.
    order, rank : int
    deterministic : bool
        Whether sums of rows go to slots.
    vector : bool
        Whether rows may be read and written 16 bytes at a time: their matrices start at multiples of 16.

    Examples
    --------
    >>> import simwarp
    >>> setting = Setting(simwarp.Device(), np.dtype(np.float32), order=3, rank=48)
    >>> setting.vec, setting.lanes, setting.passes
    (4, 16, 1)
    """

    device: Device
    dtype: np.dtype[Any]
    order: int
    rank: int
    deterministic: bool = False
    vector: bool = True

    @property
    def vec(self) -> int:
        """Columns per lane."""
        whole = 16 // self.dtype.itemsize
        return whole if self.vector and self.rank % whole == 0 else 1

    @property
    def lanes(self) -> int:
        """Lanes per group: enough for all columns, at most a warp."""
        return min(WARP, 1 << (self.rank // self.vec - 1).bit_length())

    @property
    def passes(self) -> int:
        """Passes of a group over the rank."""
        return -(-self.rank // (self.vec * self.lanes))

    @property
    def defines(self) -> dict[str, str | int]:
        """The macros of rows.cuh and sink.cuh."""
        macros: dict[str, str | int] = {"SCALAR": _C_TYPES[self.dtype.name]}
        macros |= {"VEC": self.vec, "LANES": self.lanes, "ORDER": self.order}
        return macros | ({"DETERMINISTIC": ""} if self.deterministic else {})

    def grid(self, groups: int) -> Dim:
        """The grid for ``groups`` groups, in blocks of `THREADS`."""
        return (-(-groups // (THREADS // self.lanes)), self.passes, 1)

    def kernel(self, source: str, name: str, **defines: str | int) -> Any:
        """A kernel of a source in ``gpu/mttkrp/``, compiled and loaded."""
        macros = self.defines | defines
        ptx = compile_file(f"mttkrp/{source}", macros, self.device.compute_capability)
        return self.device.kernel(ptx.text, name)


@dataclass(frozen=True)
class Launch:
    """A launch, complete except for the factors and the result.

    The kernel's first parameters are ``Factors``, unless it takes none, and ``Sink`` by value, then what
    `arguments` holds.

    Attributes
    ----------
    kernel : Kernel
    grid : (int, int, int)
    modes : tuple of int
        Whose factors it takes, in this order.
    arguments : tuple
        Device arrays and NumPy scalars.
    keep : tuple of device arrays
        Those that `arguments` have the addresses of, beside the tensor's own.
    """

    kernel: Any
    grid: Dim
    modes: tuple[int, ...]
    arguments: tuple[Any, ...]
    keep: tuple[Any, ...] = ()

    def __call__(self, addresses: Sequence[int], sink: tuple[int, int, int], stream: Any = None) -> None:
        """Launch with the addresses of all factors and a `sink_of`."""
        self.fixed(self.first(addresses, sink), stream)

    def first(self, addresses: Sequence[int], sink: tuple[int, int, int]) -> bytes:
        """The first parameters."""
        return self._first.pack(*[addresses[mode] for mode in self.modes], *sink)

    @cached_property
    def fixed(self) -> Callable[[bytes, Any], None]:
        """The launch, which takes its first parameters and a stream."""
        leading = (8 * len(self.modes), _SINK) if self.modes else (_SINK,)
        return fixed(self.kernel, self.grid, (THREADS, 1, 1), leading, self.arguments)

    @cached_property
    def _first(self) -> Struct:
        """``Factors`` and ``Sink``."""
        return Struct(f"<{len(self.modes)}Q QQI4x")


@dataclass(frozen=True)
class Work:
    """The launches for one mode of a tensor or of a part of it.

    Attributes
    ----------
    launches : tuple of Launch
    slot_rows : (slots,) int64
        The row of the result that each slot belongs to, -1 for those never written. Empty unless
        deterministic.
    stored : (rows,) integers
        The rows that launches store, for which it does not matter what was there before.
    """

    launches: tuple[Launch, ...]
    slot_rows: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    stored: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0, np.int64))


def pointers(*arrays: Any) -> np.void:
    """A struct of pointers, as a by-value kernel argument.

    Parameters
    ----------
    *arrays : device arrays, or addresses as integers

    Examples
    --------
    >>> pointers(1, 2).nbytes
    16
    """
    return np.void(np.array([getattr(a, "pointer", a) for a in arrays], np.uint64).tobytes())


def sink_of(out: Array, partial: int, rank: int) -> tuple[int, int, int]:
    """The members of ``Sink``: the result's address, that of the launch's first slot or 0, and the rank.

    Examples
    --------
    >>> import simwarp
    >>> sink_of(simwarp.Device().allocate((2, 3), np.float32), 0, 3)[1:]
    (0, 3)
    """
    return out.pointer, partial, rank


def rows_of(matrix: Array) -> list[int]:
    """The address of each row of a device array.

    Examples
    --------
    >>> import simwarp
    >>> first, second = rows_of(simwarp.Device().allocate((2, 3), np.uint32))
    >>> second - first
    12
    """
    step = matrix.nbytes // matrix.shape[0]
    return [matrix.pointer + n * step for n in range(matrix.shape[0])]
