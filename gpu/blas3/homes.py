"""Matrices that are on devices (their homes), and the links that a machine needs to use them."""

from __future__ import annotations

from gpu.blas3.blocks import Block
from gpu.blas3.device_matrix import DeviceMatrix
from gpu.blas3.layouts import Call
from gpu.blas3.options import Options
from gpu.blas3.table import Name
from gpu.machine import Machine, Tile
from reference.errors import LaunchError


def home_of(matrices: dict[Name, DeviceMatrix], block: Block) -> Tile | None:
    """The tile of a block in a matrix on a device; None if the matrix is on the host."""
    matrix = matrices.get(block.matrix)
    return None if matrix is None else matrix.part(block.rows, block.columns)


def check_homes(machine: Machine, call: Call, options: Options) -> None:
    """Raise LaunchError if a device cannot read or write a matrix on another device."""
    if not call.on_devices:
        return
    if options.on_device_loss == "continue":
        raise LaunchError(
            'on_device_loss="continue" with matrices on devices\nthey are lost with their device\n'
            "give them in the host's memory"
        )
    if options.peer == "none" and machine.devices > 1:
        raise LaunchError(
            'peer="none" with matrices on devices\nthe other devices would have to copy from there\n'
            "allow copies of peers, or pass a machine of one device"
        )
    for name, matrix in call.on_devices.items():
        home = matrix.memory.device
        for other in set(range(machine.devices)) - {home}:
            reads, writes = machine.reaches(other, home), machine.reaches(home, other)
            if not reads or (name == call.problem.result and not writes):
                raise LaunchError(
                    f"{name} lies on device {home}, which device {other} does not reach\n"
                    "without the host it cannot copy tiles of it\n"
                    "give it in the host's memory, or pass a machine of one device"
                )
