"""Bandwidth: copies on links, and the pipes that they share.

A route runs one copy at a time, in the order in which copies become ready. Copies of several routes that
share a bandwidth have equal parts of it, and each runs at the smallest part that it gets, its own link's
included. So a rate changes when a copy begins or ends, and only then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from simwarp.machine.operations import Operation
from simwarp.machine.topology import Route, Topology


class Flow:
    """The bytes of a copy in transit; ``end`` is called when all have arrived.

    ``remaining`` is the bytes at the time ``since``, and ``rate`` the bytes per second from then on.
    ``version`` counts the changes of the rate; a predicted end holds for one version.
    """

    __slots__ = ("end", "operation", "pipes", "rate", "remaining", "since", "version")

    def __init__(self, operation: Operation, nbytes: float, end: Callable[[], None]) -> None:
        self.operation, self.remaining, self.end = operation, nbytes, end
        self.rate, self.since, self.version = 0.0, 0.0, 0
        self.pipes: tuple[Pipe, ...] = ()


class Pipe:
    """A bandwidth in bytes per second, and the copies that share it."""

    def __init__(self, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        self.flows: dict[Flow, None] = {}


class Links:
    """The bandwidths and latencies of a topology's links.

    >>> from simwarp.machine.topology import H200
    >>> Links(H200).latency(Route("in", 0))
    3e-06
    """

    def __init__(self, topology: Topology) -> None:
        self._links = topology.routes()
        pipes = {route: [Pipe(link.bytes_per_second)] for route, link in self._links.items()}
        for shared in topology.shared:
            pipe = Pipe(shared.bytes_per_second)
            for route in shared.routes:
                pipes[route].append(pipe)
        self._pipes = {route: tuple(of_route) for route, of_route in pipes.items()}

    def __contains__(self, route: Route) -> bool:
        return route in self._links

    def latency(self, route: Route) -> float:
        """The latency of a route in seconds."""
        return self._links[route].latency_seconds

    def begin(self, flow: Flow, now: float) -> Iterator[tuple[Flow, float]]:
        """Begin to move bytes; yield the copies whose end time changes, with the new end."""
        assert flow.operation.route is not None
        flow.pipes, flow.since = self._pipes[flow.operation.route], now
        for pipe in flow.pipes:
            pipe.flows[flow] = None
        return _settled(flow.pipes, now)

    def end(self, flow: Flow, now: float) -> Iterator[tuple[Flow, float]]:
        """End a copy; yield the other copies whose end time changes, with the new end."""
        for pipe in flow.pipes:
            del pipe.flows[flow]
        return _settled(flow.pipes, now)


def _settled(pipes: tuple[Pipe, ...], now: float) -> Iterator[tuple[Flow, float]]:
    """Share the pipes' bandwidth among their copies; yield each copy whose end changes, with the new end."""
    for flow in {flow: None for pipe in pipes for flow in pipe.flows}:
        rate = min(pipe.bytes_per_second / len(pipe.flows) for pipe in flow.pipes)
        if rate != flow.rate:
            flow.remaining = max(0.0, flow.remaining - flow.rate * (now - flow.since))
            flow.rate, flow.since = rate, now
            flow.version += 1
            yield flow, now + flow.remaining / rate
