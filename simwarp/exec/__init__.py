"""Whole CUDA programs without a GPU: their CUDA runtime is replaced by one that calls a simulated device."""

from simwarp.exec.held_launches import HeldLaunch, HeldLaunches
from simwarp.exec.program import check_program, execute
from simwarp.exec.report import Report

__all__ = ["HeldLaunch", "HeldLaunches", "Report", "check_program", "execute"]


def __dir__() -> list[str]:
    return sorted(__all__)
