"""The error codes of CUDA, and the code that each fault causes on hardware.

Source: ``enum cudaError`` of CUDA 13.0's ``driver_types.h``.
"""

from __future__ import annotations

from enum import IntEnum

from simwarp.device.limits import LimitError
from simwarp.faults import (
    AssertionFailed,
    Deadlock,
    KernelFault,
    LaunchError,
    Misaligned,
    NotClustered,
    OutOfBounds,
    ReadOnlyWrite,
    RunawayKernel,
)


class Error(IntEnum):
    """The error codes that the server returns; the runtime's ``errors.inc`` has all codes and texts."""

    Success = 0
    InvalidValue = 1
    MemoryAllocation = 2
    InvalidConfiguration = 9
    InvalidSymbol = 13
    InvalidDeviceFunction = 98
    InvalidKernelImage = 200
    NoKernelImageForDevice = 209
    IllegalAddress = 700
    LaunchOutOfResources = 701
    LaunchTimeout = 702
    HostMemoryAlreadyRegistered = 712
    Assert = 710
    IllegalInstruction = 715
    MisalignedAddress = 716
    LaunchFailure = 719
    CooperativeLaunchTooLarge = 720
    NotSupported = 801
    InvalidClusterSize = 912


STOPPING = ("bounds", "alignment", "freed", "deadlock", "runaway", "unreachable")
"""Kinds of `simwarp.checks` at which a launch ends, as on a chip; the others are collected."""

_CODES: tuple[tuple[type[KernelFault], Error], ...] = (
    (Misaligned, Error.MisalignedAddress),
    (OutOfBounds, Error.IllegalAddress),
    (ReadOnlyWrite, Error.IllegalAddress),
    (AssertionFailed, Error.Assert),
    (NotClustered, Error.IllegalInstruction),
    (Deadlock, Error.LaunchTimeout),
    (RunawayKernel, Error.LaunchTimeout),
)


_LIMITS = {
    "cluster": Error.InvalidClusterSize,
    "cooperative": Error.CooperativeLaunchTooLarge,
    "registers": Error.LaunchOutOfResources,
}


def error_of_launch(refused: LaunchError) -> Error:
    """The CUDA error for a launch that CUDA refuses."""
    limit = refused.limit if isinstance(refused, LimitError) else ""
    return _LIMITS.get(limit, Error.InvalidConfiguration)


def error_of(fault: KernelFault) -> Error:
    """The CUDA error for a fault that ended a launch.

    >>> error_of(OutOfBounds("read of 4 bytes")).name
    'IllegalAddress'
    """
    return next((code for kind, code in _CODES if isinstance(fault, kind)), Error.LaunchFailure)
