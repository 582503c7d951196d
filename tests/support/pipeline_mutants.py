"""Kernels of `examples/pipelines` with one mistake, the faults it leads to, and schedules to run it on."""

from functools import cache

import pytest

from simwarp.faults import CopyInFlight, Livelock, NeedsIndependentProgress, UninitialisedRead
from simwarp.lab import recording as lab

SCHEDULES = ["lowest pc", "stack", "random"]
mostly_gate = pytest.mark.parametrize(
    "schedule", ["lowest pc", *(pytest.param(name, marks=pytest.mark.gate) for name in SCHEDULES[1:])]
)
STUCK = (Livelock, NeedsIndependentProgress)
"""A wait without an end; lanes below the top of a stack may be the cause."""
TOO_EARLY = (CopyInFlight, UninitialisedRead)
"""A read of what a copy brings, in flight or not yet issued."""


def plant(module, line, replacement, monkeypatch):
    """Replace one text of the kernel that a module's host code launches."""
    monkeypatch.setattr(
        module,
        "ptx",
        lambda name, arch, defines: _mutant(name, line, replacement, arch, tuple(defines.items())),
    )


@cache
def _mutant(name, line, replacement, arch, defines):
    """The PTX of a kernel with one text replaced."""
    source = (lab.examples("pipelines") / f"{name}.cu").read_text()
    assert source.count(line) == 1
    pipelines = lab.example("pipelines", "pipelines")
    return pipelines.compiled(source.replace(line, replacement), "mutant.cu", arch, dict(defines))
