"""The machines that ``simwarp blas`` and ``simwarp ooc`` run on, by name."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import gpu
from reference.errors import LaunchError, MissingExtraError, NoGpuError
from simwarp.machine import Machine, Route, Shared, Topology
from simwarp.machine.topology import named


@dataclass(frozen=True)
class Host:
    """A machine, real or simulated, with its name and the names of its GPUs."""

    machine: Any  # a `gpu.machine.Machine` with a ``timeline``
    name: str
    gpus: tuple[str, ...]
    device: str = "sim"  # "sim" for a simulated one, or "cuda"


def host(topology: Topology, *, values: bool = False) -> Host:
    """A new simulated machine of a topology."""
    machine = Machine(topology, values=values)
    return Host(machine, topology.name, tuple(gpu.name for gpu in topology.gpus))


@contextmanager
def opened(
    device: str, topology: str, *, devices: int | None = None, values: bool = False, record: bool = True
) -> Generator[Host]:
    """Create a machine, simulated from a topology or, for "cuda", of GPUs; ``devices`` limits their number.

    With ``record`` GPUs have a timeline, too.
    """
    if device == "sim":
        yield host(topology_of(topology, devices), values=values)
        return
    try:
        machine = gpu.CudaMachine(None if devices is None else range(devices), record=record)
    except (MissingExtraError, NoGpuError) as error:
        why = str(error).splitlines()[0]
        raise NoGpuError(f"{why}\ngive --device sim to simulate a machine") from None
    with machine:
        names = tuple(map(machine.name, range(machine.devices)))
        yield Host(
            machine,
            " + ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names)),
            names,
            device,
        )


def topology_of(name: str, devices: int | None = None) -> Topology:
    """A topology by its name, with all or the first devices; raises SchemeError for an unknown name.

    >>> topology_of("everest", 2).name
    'Everest, 2 of 3 devices'
    """
    found = named(name)
    return found if devices is None else first(found, devices)


def allocating(topology: Topology, seconds: float) -> Topology:
    """A topology whose devices take so many seconds for each allocation, and for each free."""
    gpus = (replace(gpu, allocate_seconds=seconds, free_seconds=seconds) for gpu in topology.gpus)
    return replace(topology, gpus=tuple(gpus))


def first(topology: Topology, devices: int) -> Topology:
    """A topology of the first ``devices`` devices of another one, with the links between them."""
    whole = len(topology.gpus)
    if not 1 <= devices <= whole:
        raise LaunchError(f"{devices} devices of {topology.name}\nit has {whole}\ngive 1 to {whole}")
    if devices == whole:
        return topology
    return replace(
        topology,
        name=f"{topology.name}, {devices} of {whole} devices",
        gpus=topology.gpus[:devices],
        inward=topology.inward[:devices],
        outward=topology.outward[:devices],
        peers={pair: link for pair, link in topology.peers.items() if max(pair) < devices},
        shared=tuple(part for one in topology.shared if (part := _part(one, devices)).routes),
    )


def _part(shared: Shared, devices: int) -> Shared:
    """A bandwidth shared by routes, without the routes of devices from ``devices`` on."""

    def stays(route: Route) -> bool:
        return max(route.device, route.peer) < devices

    return replace(shared, routes=tuple(route for route in shared.routes if stays(route)))
