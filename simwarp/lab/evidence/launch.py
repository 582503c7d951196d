"""Launches probes on a device, many in one module, each with its operands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from simwarp.checks import Checks
from simwarp.lab.evidence.catalogue import operands_of
from simwarp.lab.evidence.operands import Words
from simwarp.lab.evidence.probe import BLOCK, ROOM, Probe, module

ENTRIES = 32
"""The largest number of kernels in one module."""


def batches(probes: Sequence[Probe]) -> Iterator[list[Probe]]:
    """Group probes into modules, by target; a probe that faults has a module of its own."""
    for (faults, _), group in groupby(probes, lambda probe: (probe.faults, probe.target)):
        together, size = list(group), 1 if faults else ENTRIES
        yield from (together[i : i + size] for i in range(0, len(together), size))


def ask(device: Any, probes: Sequence[Probe]) -> list[Words]:
    """Run the probes of one module on a device; return the results of each, uint64 (tuples, results)."""
    kernel = device.load(module(probes)).kernel
    return [launch(device, kernel(f"k{i}"), probe, operands_of(probe)) for i, probe in enumerate(probes)]


def launch(device: Any, kernel: Any, probe: Probe, operands: Words) -> Words:
    """Launch a probe's kernel on a multiple of `BLOCK` operand tuples; return the result tuples."""
    if probe.at_once:
        parts = [operands[k : k + probe.at_once] for k in range(0, len(operands), probe.at_once)]
        return np.concatenate([_by_value(device, kernel, probe, part) for part in parts])
    sets = len(operands)
    given = device.upload(np.zeros(1, np.uint64) if probe.packed or not operands.size else operands)
    memory = device.upload(_memory(probe, operands))
    results = device.upload(np.zeros((sets, len(probe.results)), np.uint64))
    # a probe divides by 0, and a relaxed arrival leaves accesses unordered: neither is a fault here
    unlooked = "races" if "relaxed" in probe.form.split(".") else "division"
    with getattr(device, "checks", Checks()).without(unlooked):
        maps = () if probe.tensor is None else (probe.tensor.of(device, given, memory),)
        pictures = () if probe.picture is None else (probe.picture.of(device),)
        kernel((sets // BLOCK, 1, 1), (BLOCK, 1, 1), given, results, memory, *maps, *pictures)
        device.synchronize()
    return np.asarray(results.download())


def _by_value(device: Any, kernel: Any, probe: Probe, operands: Words) -> Words:
    value = _packed(operands, probe.packed).tobytes().ljust(1024, b"\0")
    results = device.upload(np.zeros((len(operands), len(probe.results)), np.uint64))
    memory = device.upload(np.zeros(ROOM, np.uint8))
    kernel((1, 1, 1), (len(operands), 1, 1), np.void(value), results, memory)
    return np.asarray(results.download())


def _memory(probe: Probe, operands: Words) -> npt.NDArray[np.uint8]:
    """The initial memory of a probe's threads: zeros, or the packed operands."""
    if not probe.packed or not operands.size:
        return np.zeros((len(operands), ROOM), np.uint8)
    packed = _packed(operands, probe.packed)
    return np.pad(packed, ((0, 0), (0, ROOM - packed.shape[1])))


def _packed(operands: Words, size: int) -> npt.NDArray[np.uint8]:
    """The low ``size`` bytes of each operand, next to each other: uint8 (tuples, operands · size)."""
    return operands.astype(f"<u{size}", order="C").view(np.uint8)
