"""What a device does in a second: the constants of the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpu.machine import Machine
from reference.errors import LaunchError


@dataclass(frozen=True)
class Rates:
    """The constants of copies and routines: alpha + bytes / bandwidth, and alpha + operations / rate.

    Attributes
    ----------
    in_seconds, in_bytes_per_second : float
        Of a copy to the device.
    out_seconds, out_bytes_per_second : float
        Of a copy to the host.
    launch_seconds, operations_per_second : float
        Of a routine on float32.

    Examples
    --------
    >>> Rates(1e-6, 5e10, 1e-6, 5e10, 5e-6, 5e13).into(nbytes=50_000, copies=2)
    3e-06
    """

    in_seconds: float
    in_bytes_per_second: float
    out_seconds: float
    out_bytes_per_second: float
    launch_seconds: float
    operations_per_second: float

    def into(self, nbytes: float, copies: float = 1) -> float:
        """The seconds of copies to the device.

        Examples
        --------
        >>> Rates(1.0, 10.0, 1.0, 10.0, 1.0, 10.0).into(20)
        3.0
        """
        return copies * self.in_seconds + nbytes / self.in_bytes_per_second

    def out(self, nbytes: float, copies: float = 1) -> float:
        """The seconds of copies to the host.

        Examples
        --------
        >>> Rates(1.0, 10.0, 1.0, 10.0, 1.0, 10.0).out(20)
        3.0
        """
        return copies * self.out_seconds + nbytes / self.out_bytes_per_second

    def routine(self, operations: float) -> float:
        """The seconds of a routine.

        Examples
        --------
        >>> Rates(1.0, 10.0, 1.0, 10.0, 1.0, 10.0).routine(20)
        3.0
        """
        return self.launch_seconds + operations / self.operations_per_second


def rates_of(machine: Machine) -> Rates:
    """The rates of a machine's first device, from its topology, which simulated machines have."""
    topology: Any = getattr(machine, "topology", None)
    if topology is None:
        raise LaunchError(
            f"a {type(machine).__name__} has no topology, from which the planner takes its rates\n"
            "without rates nothing can be planned\npass Options(rates=Rates(...))"
        )
    gpu, into, out = topology.gpus[0], topology.inward[0], topology.outward[0]
    launch = gpu.routine_seconds(0.0, "float32")  # refuses a device without a rate for float32
    return Rates(
        into.latency_seconds,
        into.bytes_per_second,
        out.latency_seconds,
        out.bytes_per_second,
        launch,
        gpu.rates["float32"],
    )
