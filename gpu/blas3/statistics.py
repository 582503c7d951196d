"""What a call did on each device, and on the host's cores."""

from __future__ import annotations

from dataclasses import dataclass, field

from reference.values import shortened


@dataclass
class DeviceStatistics:
    """Counts of one device.

    Attributes
    ----------
    tasks, stolen : int
        The tasks that it computed, and how many of them it took from another device.
    hits, peer_hits, misses : int
        Uses of tiles that it had, that came from a peer, and that came from the host.
    bytes_in, bytes_out, bytes_peer : int
        Copied from the host, to the host, and from peers.
    evictions : int
    stalls : int
        How often it waited because all its tiles were in use.
    """

    tasks: int = 0
    stolen: int = 0
    hits: int = 0
    peer_hits: int = 0
    misses: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_peer: int = 0
    evictions: int = 0
    stalls: int = 0


@shortened
@dataclass
class Statistics:
    """Counts of a call.

    Attributes
    ----------
    devices : list of DeviceStatistics
    cpu : DeviceStatistics
        Of the host's cores: their tasks, and how many of them they took from a device.
    seconds : float
        By the machine's clock.

    Examples
    --------
    >>> Statistics([DeviceStatistics(bytes_in=3), DeviceStatistics(bytes_in=4)]).total("bytes_in")
    7
    """

    devices: list[DeviceStatistics] = field(default_factory=list[DeviceStatistics])
    seconds: float = 0.0
    cpu: DeviceStatistics = field(default_factory=DeviceStatistics)

    def total(self, name: str) -> int:
        """The sum of one count over all devices and the host's cores.

        Examples
        --------
        >>> Statistics([DeviceStatistics(tasks=2)]).total("tasks")
        2
        """
        return sum(getattr(device, name) for device in (*self.devices, self.cpu))
