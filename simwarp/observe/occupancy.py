"""Occupancy: the warps resident on a multiprocessor, and the resource that limits them.

Source: the CUDA occupancy calculator (``cuda_occupancy.h`` of the toolkit states the same rules), and the
CUDA C++ Programming Guide 13.0, "Multiprocessor Level".
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from reference.values import shortened
from simwarp.chips.chips import Chip, chip
from simwarp.faults import LaunchError
from simwarp.lanes import WARP_SIZE
from simwarp.observe.registers import registers_of

__all__ = ["Occupancy", "occupancy", "registers_of"]


@shortened
@dataclass(frozen=True)
class Occupancy:
    """The blocks and warps resident on one multiprocessor."""

    chip: str
    blocks: int  # most blocks that can be resident on a multiprocessor
    warps: int
    fraction: float  # ``warps`` over the chip's limit of resident warps
    limits: tuple[str, ...]
    """Those that bind: "warps", "blocks", "registers", "shared memory"; several if equal."""
    blocks_by: dict[str, int]  # the blocks that each resource alone would allow

    def to_json(self) -> dict[str, Any]:
        """The fields as a JSON object."""
        return {**asdict(self), "limits": list(self.limits)}


def occupancy(name: str | Chip, threads: int, registers: int, shared: int = 0) -> Occupancy:
    """The occupancy of a kernel on the chip ``name``.

    ``registers`` are per thread, as ``ptxas -v`` prints them; ``shared`` counts static and dynamic bytes per
    block.
    """
    one = chip(name)
    warps = -(-threads // WARP_SIZE)
    by_limit = {
        "warps": one.warps // max(warps, 1),
        "blocks": one.blocks,
        "registers": _by_registers(one, warps, registers),
        "shared memory": one.shared_per_multiprocessor
        // _round_up(max(shared + one.shared_reserved, 1), one.shared_granularity),
    }
    _check_block(one, threads, warps, registers, shared)
    blocks = min(by_limit.values())
    return Occupancy(
        one.name,
        blocks,
        blocks * warps,
        blocks * warps / one.warps,
        tuple(limit for limit, allowed in by_limit.items() if allowed == blocks),
        by_limit,
    )


def _registers_per_warp(one: Chip, registers: int) -> int:
    return _round_up(max(registers, 1) * WARP_SIZE, one.register_granularity)


def _by_registers(one: Chip, warps: int, registers: int) -> int:
    """The blocks that the register file allows: each of its partitions holds whole warps."""
    partition = one.registers // one.warp_granularity
    resident = partition // _registers_per_warp(one, registers) * one.warp_granularity
    return resident // max(warps, 1)


def _check_block(one: Chip, threads: int, warps: int, registers: int, shared: int) -> None:
    """Refuse a block that does not fit an empty multiprocessor."""
    taken = _registers_per_warp(one, registers) * _round_up(warps, one.warp_granularity)
    for what, given, least, most in (
        ("threads per block", threads, 1, one.threads_per_block),
        ("registers per thread", registers, 0, one.registers_per_thread),
        ("registers per block", taken, 0, one.registers_per_block),
        ("bytes of shared memory per block", shared, 0, one.shared_per_block),
    ):
        if not least <= given <= most:
            raise LaunchError(
                f"a block with {given} {what} cannot run on {one.name}\n"
                f"the chip allows {least} to {most}\nuse {'more' if given < least else 'fewer'}"
            )


def _round_up(value: int, granularity: int) -> int:
    return -(-value // granularity) * granularity
