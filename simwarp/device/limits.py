"""Limits of a launch: those of the chip, of the kernel, and of blocks resident together.

Sources: CUDA C++ Programming Guide 13.0, "Compute Capabilities"; PTX ISA 9.0, 11.4 (performance directives)
and 11.7 (clusters); CUDA Runtime API, ``cudaLaunchCooperativeKernel``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from reference.devices.launch import Dim, Extent, cluster_of
from simwarp.chips.chips import LOCAL, Chip
from simwarp.engine.sync.register_pool import at_entry
from simwarp.faults import LaunchError
from simwarp.lanes import WARP_SIZE
from simwarp.observe.occupancy import Occupancy, occupancy, registers_of
from simwarp.program.program import Program
from simwarp.ptx.mangled_names import readable

_MAX_GRID = (2**31 - 1, 65535, 65535)
_MAX_BLOCK = (1024, 1024, 64)
_UNIT = 8
"""Registers per thread are given in multiples of this."""


class LimitError(LaunchError):
    """A launch beyond a limit of the chip or of the kernel.

    ``limit`` is "block", "grid", "local memory", "shared memory", "registers", "cluster" or "cooperative".
    """

    def __init__(self, message: str, limit: str) -> None:
        super().__init__(message)
        self.limit = limit


@dataclass(frozen=True)
class Geometry:
    """The grid, block and shared memory that a launch requests."""

    grid: Dim
    block: Dim
    shared: int = 0  # bytes of dynamic shared memory per block
    cooperative: bool = False
    cluster: Extent | None = None

    @property
    def threads(self) -> int:
        """The number of threads per block."""
        return math.prod(self.block)


def check_launch(program: Program, asked: Geometry, chip: Chip, multiprocessors: int) -> Dim | None:
    """Raise LimitError for a launch that CUDA refuses; return its cluster extent, None without clusters.

    Registers are a low estimate, see `registers_of_thread`.
    """
    name = readable(program.name)
    _check_block(program, name, asked, chip)
    if any(not 1 <= g <= most for g, most in zip(asked.grid, _MAX_GRID, strict=True)):
        raise LimitError(
            f"kernel {name}: a grid of {asked.grid}\ngive each dimension at least 1, at most {_MAX_GRID}",
            "grid",
        )
    _check_memory(program, name, asked, chip)
    cluster = _check_cluster(program, name, asked, chip)
    if asked.cooperative:
        _check_cooperative(program, name, asked, chip, multiprocessors)
    return cluster


def resident(program: Program, chip: Chip, threads: int, shared: int) -> Occupancy:
    """The blocks of a kernel that are resident together on a multiprocessor; LaunchError if not one fits."""
    return occupancy(chip, threads, registers_of_thread(program, chip), program.shared_size + shared)


def registers_of_thread(program: Program, chip: Chip) -> int:
    """The registers of a thread: a low estimate, see `simwarp.observe.registers`, within ptxas's bounds.

    These are the chip's, ``.maxnreg``, and the registers with which ``.minnctapersm`` blocks of ``.maxntid``
    or ``.reqntid`` threads fit.
    """
    bounds = [chip.registers_per_thread, _estimate(program)]
    if program.max_registers is not None:
        bounds.append(program.max_registers)
    if program.max_threads is not None:
        unit = chip.warp_granularity * WARP_SIZE
        threads = -(-program.max_threads // unit) * unit * (program.min_blocks or 1)
        bounds.append(max(chip.registers_per_block // threads // _UNIT * _UNIT, _UNIT))
    return min(bounds)


_estimate = lru_cache(maxsize=64)(registers_of)


def _check_block(program: Program, name: str, asked: Geometry, chip: Chip) -> None:
    """Raise for a block that is too large, or whose size differs from the one that the kernel requires."""
    block, required = asked.block, program.required_block
    most = min(program.max_threads or chip.threads_per_block, chip.threads_per_block)
    if min(block) < 1 or not 1 <= asked.threads <= most:
        raise LimitError(
            f"kernel {name}: a block of {block} has {asked.threads} threads; it takes 1 to {most}", "block"
        )
    if block[2] > _MAX_BLOCK[2]:
        raise LimitError(
            f"kernel {name}: a block of {block}\nits dimensions are at most {_MAX_BLOCK}\n"
            "exchange z with x or y",
            "block",
        )
    if required is not None and block != required:
        raise LimitError(
            f"kernel {name}: a block of {block}\n"
            f"the kernel requires blocks of {required} (__block_size__, .reqntid)\nlaunch it with these",
            "block",
        )
    entry = at_entry(program, chip) if program.changes_register_counts else None
    unit = chip.warp_granularity * WARP_SIZE
    registers = (entry or 0) * (-(-asked.threads // unit) * unit)
    if registers > chip.registers_per_block:
        raise LimitError(
            f"kernel {name}: {asked.threads} threads begin with {entry} registers each, {registers} in all\n"
            f"a block has at most {chip.registers_per_block}\n"
            "launch fewer threads, or give the kernel fewer registers (.maxnreg, __launch_bounds__)",
            "registers",
        )


def _check_memory(program: Program, name: str, asked: Geometry, chip: Chip) -> None:
    """Refuse more local or shared memory than there is."""
    if program.local_size > LOCAL:
        raise LimitError(
            f"kernel {name}: {program.local_size} bytes of local memory in each thread, "
            f"{LOCAL} at most\nkeep large arrays in global memory",
            "local memory",
        )
    most = chip.shared_per_block - program.shared_size
    if not 0 <= asked.shared <= most:
        raise LimitError(
            f"kernel {name}: {asked.shared} bytes of dynamic shared memory; it takes 0 to {most}",
            "shared memory",
        )


def _check_cluster(program: Program, name: str, asked: Geometry, chip: Chip) -> Dim | None:
    """The cluster extent of a launch, or None; raises LaunchError if the chip or kernel does not allow it."""
    most = chip.blocks_per_cluster
    if program.max_cluster is not None:
        most = min(most, program.max_cluster)
    try:
        cluster = cluster_of(name, asked.grid, asked.cluster, program.cluster, most)
    except LaunchError as error:
        raise LimitError(str(error), "cluster") from None
    if cluster is None and program.explicit_cluster:
        raise LimitError(
            f"kernel {name}: a launch without clusters\n"
            "the kernel requires that each launch gives a cluster (.explicitcluster)\n"
            "launch it with cluster=, or simwarp run --cluster",
            "cluster",
        )
    return cluster


def _check_cooperative(
    program: Program, name: str, asked: Geometry, chip: Chip, multiprocessors: int
) -> None:
    """Refuse a cooperative launch of more blocks than are resident together."""
    blocks = math.prod(asked.grid)
    if blocks <= multiprocessors:  # each multiprocessor holds one block, however many registers it has
        return
    try:
        found = resident(program, chip, asked.threads, asked.shared)
        each, limits = found.blocks, f", limited by {' and '.join(found.limits)}"
    except LaunchError:
        each, limits = 0, ""
    most = each * multiprocessors
    if blocks > most:
        raise LimitError(
            f"kernel {name}: a cooperative launch of {blocks} blocks of {asked.threads} threads\n"
            f"{most} are resident together: {each} on each of {multiprocessors} multiprocessors{limits}\n"
            f"launch at most {most}, and let each block do more; or simulate Device(multiprocessors=…)",
            "cooperative",
        )
