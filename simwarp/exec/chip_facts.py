"""Properties of the simulated chip, and of its memory, that a program can query."""

from __future__ import annotations

import os
import struct

from simwarp.chips.chips import CHIPS, CONSTANTS, chip_of
from simwarp.device.device import Device

_FACTS = struct.Struct("=14iQ64s")
_CLOCK = 1.98e9
_SHARE = 4
"""One part of so many of this machine's memory is the device's: a byte there takes two here."""


def memory_limit() -> int:
    """The bytes of simulated device memory: a fixed share of this machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _SHARE


def pack_facts(device: Device, memory: int) -> bytes:
    """The ``struct facts`` that the runtime library expects: a device's properties, packed."""
    major, minor = device.compute_capability
    chip = chip_of((major, minor))
    clock = next((one.clock for one in CHIPS.values() if one.cc == (major, minor)), _CLOCK)
    return _FACTS.pack(
        major,
        minor,
        device.multiprocessors,
        int(clock / 1000),
        chip.shared_per_block,
        chip.shared_per_multiprocessor,
        chip.shared_reserved,
        chip.threads_per_block,
        chip.warps,
        chip.blocks,
        chip.registers_per_block,
        chip.registers,
        chip.blocks_per_cluster,
        CONSTANTS,
        memory,
        device.name.encode()[:63],
    )
