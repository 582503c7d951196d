"""Several devices and their host, simulated: streams, events, copies and tile routines on a clock.

`Machine` implements the protocol of `gpu.machine` in NumPy.
"""

from reference.devices.timeline import Profile, Record, Timeline
from simwarp.machine.faults import (
    AccessError,
    CopyError,
    DeviceLostError,
    DeviceMemoryError,
    FreedMemoryError,
    MachineError,
    MemoryInUseError,
    TileBoundsError,
    TileRaceError,
    UnpinnedError,
    UnwrittenTileError,
    WorkerDeadlockError,
)
from simwarp.machine.injections import AllocationFails, CopyFails, DeviceLost, Injection, Slow, SlowLink
from simwarp.machine.machine import Machine
from simwarp.machine.memory import DeviceMemory, Tile
from simwarp.machine.operations import Event, Stream
from simwarp.machine.topology import (
    EIGHT,
    EVEREST,
    H100,
    H200,
    MAKALU,
    P100,
    Cpu,
    Gpu,
    H100x2,
    H200x2,
    H200x4,
    Link,
    Route,
    Shared,
    Topology,
)

__all__ = [
    "EIGHT",
    "EVEREST",
    "H100",
    "H200",
    "MAKALU",
    "P100",
    "AccessError",
    "AllocationFails",
    "CopyError",
    "CopyFails",
    "Cpu",
    "DeviceLost",
    "DeviceLostError",
    "DeviceMemory",
    "DeviceMemoryError",
    "Event",
    "FreedMemoryError",
    "Gpu",
    "H100x2",
    "H200x2",
    "H200x4",
    "Injection",
    "Link",
    "Machine",
    "MachineError",
    "MemoryInUseError",
    "Profile",
    "Record",
    "Route",
    "Shared",
    "Slow",
    "SlowLink",
    "Stream",
    "Tile",
    "TileBoundsError",
    "TileRaceError",
    "Timeline",
    "Topology",
    "UnpinnedError",
    "UnwrittenTileError",
    "WorkerDeadlockError",
]


def __dir__() -> list[str]:
    return sorted(__all__)
