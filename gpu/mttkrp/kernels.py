"""Compilation and launch of the MTTKRP kernels (rows.cuh is the device side).

The module of a format turns a tensor on the device into `Work`: launches that lack only factors and result,
and, for the deterministic variant, the result row of every slot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from struct import Struct
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.compile import compile_file
from gpu.device import Array, Device, Dim, LaunchPlan

THREADS = 256
"""Threads of a block, in all kernels."""

WARP = 32

MOST_PASSES = 65535
"""The largest second dimension of a grid."""

C_TYPES = {"float32": "float", "float64": "double"}
"""The names of the element types in CUDA C++."""


_SINK = Struct("<QQI4x")
"""The layout of the structure ``Sink``."""


@dataclass(frozen=True)
class Setting:
    """The configuration shared by the kernels of a plan.

    >>> import simwarp
    >>> setting = Setting(simwarp.Device(), np.dtype(np.float32), order=3, rank=48)
    >>> setting.vec, setting.lanes, setting.passes
    (4, 16, 1)
    """

    device: Device
    dtype: np.dtype[Any]  # dtype of values, factors and result: float32 or float64
    order: int
    rank: int
    deterministic: bool = False  # whether partial sums of a row go to slots, which are added in a fixed order
    vector: bool = True  # whether rows are accessed 16 bytes at a time: matrices start at multiples of 16

    @property
    def vec(self) -> int:
        """The number of columns that a lane reads in one access."""
        whole = 16 // self.dtype.itemsize
        return whole if self.vector and self.rank % whole == 0 else 1

    @property
    def lanes(self) -> int:
        """The number of lanes that share a nonzero: enough for all columns, at most a warp."""
        return min(WARP, 1 << (self.rank // self.vec - 1).bit_length())

    @property
    def passes(self) -> int:
        """The number of passes in which a thread group covers all columns of the factors."""
        return -(-self.rank // (self.vec * self.lanes))

    @property
    def defines(self) -> dict[str, str | int]:
        """The macros that rows.cuh and sink.cuh need."""
        macros: dict[str, str | int] = {"SCALAR": C_TYPES[self.dtype.name]}
        macros |= {"VEC": self.vec, "LANES": self.lanes, "ORDER": self.order}
        return macros | ({"DETERMINISTIC": ""} if self.deterministic else {})

    def grid(self, groups: int) -> Dim:
        """The grid for ``groups`` groups, in blocks of `THREADS`."""
        return (-(-groups // (THREADS // self.lanes)), self.passes, 1)

    def launch(
        self,
        source: str,
        name: str,
        grid: Dim,
        *arguments: Any,
        modes: tuple[int, ...] = (),
        keep: tuple[Any, ...] = (),
        defines: Mapping[str, str | int] | None = None,
    ) -> Launch:
        """Compile and load a kernel of a source in ``gpu/mttkrp/``, and fix its grid and arguments."""
        macros = {**self.defines, **(defines or {})}
        ptx = compile_file(f"mttkrp/{source}", macros, self.device.compute_capability).text
        structures = (None, None) if modes else (None,)
        plan = LaunchPlan(ptx, name, grid, (THREADS, 1, 1), (*structures, *arguments))
        return Launch(self.device.kernel(ptx, name), plan, modes, keep)


@dataclass(frozen=True)
class Launch:
    """A launch of an MTTKRP, complete except for the addresses of factors and result.

    The first parameters of the plan are open, both by value: ``Factors``, unless the kernel takes none, and
    ``Sink``.
    """

    kernel: Any
    plan: LaunchPlan
    modes: tuple[int, ...]  # mode of each factor in ``Factors``
    # arrays, besides the tensor's own, whose addresses are in the plan's structures
    keep: tuple[Any, ...] = ()

    def __call__(self, structures: Sequence[bytes], stream: Any = None) -> None:
        """Launch the kernel with structures of `factors_of` and `sink_of`."""
        plan = self.plan
        self.kernel(plan.grid, plan.block, *structures, *plan.args[len(structures) :], stream=stream)


@dataclass(frozen=True)
class Work:
    """The launches for one mode of a tensor, or of a part of it."""

    launches: tuple[Launch, ...]
    # result row of each slot, -1 for slots never written; empty unless deterministic
    slot_rows: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    # result rows that the launches store instead of adding to: they need no zero fill
    stored: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0, np.int64))


def pointers(*arrays: Any) -> np.void:
    """Device arrays, or addresses, as a by-value kernel argument: a structure of pointers.

    >>> pointers(1, 2).nbytes
    16
    """
    return np.void(np.array([getattr(a, "pointer", a) for a in arrays], np.uint64).tobytes())


def factors_of(modes: Sequence[int]) -> Callable[[Sequence[int]], tuple[bytes, ...]]:
    """A function of the addresses of all factors: the structure ``Factors`` of some of them, in a tuple.

    Without modes the kernel takes none, and the tuple is empty.

    >>> factors_of((2, 0))([16, 32, 48])[0].hex()
    '30000000000000001000000000000000'
    """
    if len(modes) < 2:
        return lambda addresses: tuple(Struct("<Q").pack(addresses[n]) for n in modes)
    pack, pick = Struct(f"<{len(modes)}Q").pack, itemgetter(*modes)
    return lambda addresses: (pack(*pick(addresses)),)


def sink_of(out: Array, partial: int, rank: int) -> bytes:
    """The structure ``Sink``: the result's address, that of the launch's first slot or 0, and the rank."""
    return _SINK.pack(out.pointer, partial, rank)


def rows_of(matrix: Array) -> list[int]:
    """The address of each row of a device array.

    >>> import simwarp
    >>> first, second = rows_of(simwarp.Device().allocate((2, 3), np.uint32))
    >>> second - first
    12
    """
    step = matrix.nbytes // matrix.shape[0]
    return [matrix.pointer + n * step for n in range(matrix.shape[0])]
