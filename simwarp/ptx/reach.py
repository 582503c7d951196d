"""Which allocations each access of a launch may reach: those that its address was computed from.

A pointer that runs past the end of its array may well land in another one, however far that lies. So an
access is judged by the allocations that its pointers lie in, where these are known: of a kernel without
device functions, by the arguments and variables that flow into the address (`simwarp.races.provenance`). An
address that was loaded from memory may be any.

Examples
--------
>>> import simwarp
>>> device = simwarp.Device()
>>> kernel = device.load('''
... .version 9.0
... .target sm_90
... .visible .entry shift(.param .u64 x, .param .u64 y, .param .u64 by) {
...     .reg .b64 %a<4>; .reg .b32 %r;
...     ld.param.u64 %a1, [x]; ld.param.u64 %a2, [y]; ld.param.u64 %a3, [by];
...     ld.global.u32 %r, [%a2]; add.u64 %a1, %a1, %a3; st.global.u32 [%a1], %r; ret; }
... ''').kernel("shift")
>>> import numpy as np
>>> x, y = (device.upload(np.zeros(4, np.uint32), name) for name in "xy")
>>> try:
...     kernel((1, 1, 1), (1, 1, 1), x, y, np.uint64(y.pointer - x.pointer))
... except simwarp.faults.OutOfBounds as fault:
...     print(fault.what, fault.allocation)
write of 4 bytes outside x, in y x
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simwarp.races.provenance import ANYTHING, Origins, addresses_of, known_origins

if TYPE_CHECKING:
    from simwarp.allocation import Allocation
    from simwarp.memory import Memory
    from simwarp.ptx.execute import Launch

_MALLOC = "malloc("


class Reach(dict[int, "Memory"]):
    """By the number of a step: the global memory that it may access."""

    def __init__(self, launch: Launch) -> None:
        super().__init__()
        self._launch = launch
        self._origins: dict[int, Origins] = {}
        if launch.checks.action("bounds") != "off":
            self._origins = known_origins(launch.program, launch.symbols)
        self._known: dict[Origins, Memory] = {}

    def __missing__(self, number: int) -> Memory:
        origins = self._origins.get(number, ANYTHING)
        if origins not in self._known:
            found = None if origins >= ANYTHING else self._allocations(origins)
            memory = self._launch.memory
            self._known[origins] = memory.part(found) if found else memory
        self[number] = self._known[origins]
        return self[number]

    def _allocations(self, origins: Origins) -> list[Allocation] | None:
        """Those that addresses of some origins lie in; None if they may lie in any."""
        launch, found = self._launch, set["Allocation"]()
        for origin in origins:
            for address in addresses_of(launch, origin):
                beside = launch.memory.around(address)
                if any(allocation.name.startswith(_MALLOC) for allocation in beside):
                    return None  # the kernel itself may free it
                found |= set(beside)
        return sorted(found, key=lambda allocation: allocation.base)
