"""Asks a device: many probes in one module, each launched with its operands."""

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
"""Kernels of one module, at most."""


def batches(probes: Sequence[Probe]) -> Iterator[list[Probe]]:
    """The probes in the modules that they are compiled in; what faults has one of its own.

    Examples
    --------
    >>> from simwarp.lab.evidence.catalogue import probe_of
    >>> [len(batch) for batch in batches([probe_of("popc.b32")] * 100)]
    [32, 32, 32, 4]
    """
    for faults, group in groupby(probes, lambda probe: probe.faults):
        together, size = list(group), 1 if faults else ENTRIES
        yield from (together[i : i + size] for i in range(0, len(together), size))


def ask(device: Any, probes: Sequence[Probe]) -> list[Words]:
    """What a device answers: for each probe uint64 (sets, results).

    Parameters
    ----------
    device : simwarp.Device or gpu.CudaDevice
    probes : sequence of Probe
        Of one batch.

    Examples
    --------
    >>> import simwarp
    >>> from simwarp.lab.evidence.catalogue import probe_of
    >>> probe = probe_of("popc.b32")
    >>> (answer,) = ask(simwarp.Device(), [probe])
    >>> operands_of(probe)[:3, 0].tolist(), answer[:3, 0].tolist()
    ([0, 4294967295, 4294967294], [0, 32, 31])
    """
    loaded = device.load(module(probes))
    return [
        launch(device, loaded.kernel(f"k{i}"), probe, operands_of(probe)) for i, probe in enumerate(probes)
    ]


def launch(device: Any, kernel: Any, probe: Probe, operands: Words) -> Words:
    """Run a probe's kernel on sets of operands, of which it takes any multiple of `BLOCK`.

    Parameters
    ----------
    device, kernel
        The device, and the kernel that it loaded.
    probe : Probe
    operands : uint64 (sets, operands)

    Returns
    -------
    uint64 (sets, results)

    Examples
    --------
    >>> import simwarp
    >>> from simwarp.lab.evidence.catalogue import probe_of
    >>> device, probe = simwarp.Device(), probe_of("popc.b32")
    >>> kernel = device.load(module([probe])).kernel("k0")
    >>> launch(device, kernel, probe, np.full((BLOCK, 1), 0b1011, np.uint64))[:2].tolist()
    [[3], [3]]
    """
    if probe.at_once:
        steps = range(0, len(operands), probe.at_once)
        return np.concatenate(
            [_by_value(device, kernel, probe, operands[k : k + probe.at_once]) for k in steps]
        )
    sets = len(operands)
    given = device.upload(np.zeros(1, np.uint64) if probe.packed or not operands.size else operands)
    memory = device.upload(_memory(probe, operands))
    results = device.upload(np.zeros((sets, len(probe.results)), np.uint64))
    with getattr(device, "checks", Checks()).without("division"):  # all operands count, a divisor of 0 too
        kernel((sets // BLOCK, 1, 1), (BLOCK, 1, 1), given, results, memory)
    return np.asarray(results.download())


def _by_value(device: Any, kernel: Any, probe: Probe, operands: Words) -> Words:
    data = _packed(operands, probe.packed).reshape(-1)
    value = np.zeros(1024, np.uint8)
    value[: data.size] = data
    results = device.upload(np.zeros((len(operands), len(probe.results)), np.uint64))
    memory = device.upload(np.zeros(ROOM, np.uint8))
    kernel((1, 1, 1), (len(operands), 1, 1), np.void(value.tobytes()), results, memory)
    return np.asarray(results.download())


def _memory(probe: Probe, operands: Words) -> npt.NDArray[np.uint8]:
    """The threads' memory: zeros, or the operands next to each other."""
    memory = np.zeros((len(operands), ROOM), np.uint8)
    if probe.packed and operands.size:
        data = _packed(operands, probe.packed)
        memory[:, : data.shape[1]] = data
    return memory


def _packed(operands: Words, size: int) -> npt.NDArray[np.uint8]:
    """The low ``size`` bytes of each operand of a set, one behind the other."""
    data = np.ascontiguousarray(operands.astype("<u8")).view(np.uint8).reshape(*operands.shape, 8)
    return data[:, :, :size].reshape(len(operands), -1)
