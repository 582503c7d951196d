"""The policy by which devices share the work: the paper's, its parts as switches, and faster choices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from reference.errors import SchemeError
from reference.types.arguments import check_option

Peer: TypeAlias = Literal["arriving", "completed", "none"]
Order: TypeAlias = Literal["priority", "fifo"]
Queue: TypeAlias = Literal["squares", "rows"]
Allocation: TypeAlias = Literal["heap", "native"]
Advance: TypeAlias = Literal["stream", "batch"]
Copies: TypeAlias = Literal["ordered", "stream"]
Loss: TypeAlias = Literal["raise", "continue"]
Addend: TypeAlias = Literal["late", "first"]


@dataclass(frozen=True)
class Options:
    """Switches of the scheduler; the defaults are the fastest known.

    Every sum is computed by one device in one order. So only ``addend`` can change a result's bits, and on
    GPUs ``cpu``: their library adds in another order than the host's.

    Parameters
    ----------
    peer : {"arriving", "completed", "none"}
        Which tiles are copied from a peer instead of the host: those whose copy to the peer was queued,
        those that have arrived there, or none.
    cache : bool
        Whether tiles stay on a device for later use. False: each use is a copy from the host.
    order : {"priority", "fifo"}
        Of the tasks of a device: by equation 3, or by their number.
    queue : {"squares", "rows"}
        How the tasks of a product follow one another in the global queue: so that their operands fit into a
        device's memory and products start early, or row after row.
    steal : bool
        Whether a device without tasks takes one from the fullest reservation station.
    streams : int
        The number of streams of each device, 1 to 8.
    allocation : {"heap", "native"}
        One allocation for a call, or one of the driver's for each tile.
    advance : {"stream", "batch"}
        A stream gets its next task when it can start it, or when all streams have finished theirs.
    copies : {"ordered", "stream"}
        Each kind of copy has a stream of its own, in which tiles come in the order of their use, or copies
        are in the stream of their task.
    addend : {"late", "first"}
        Of the first tiles of a product, ``beta C`` is added behind the products, so that at the start of a
        call copies bring what products need; or the first product of each tile adds to it, as in the paper.
    ahead : int
        The steps that a stream may have queued with ``advance="stream"``.
    station : int
        The tasks of a reservation station.
    on_device_loss : {"raise", "continue"}
        What a call does that loses a device: it raises `DeviceLostError` and leaves some tiles of the result
        finished, or the other devices compute again what was not seen on the host, from a copy of the result
        that is made first. Without any device left the result is as before the call.
    cpu : bool
        Whether the host's cores take tasks, too: one at a time, from the queue or else a device's. They take
        none if a matrix lies on a device, or the machine has no cores that compute.
    progress : callable, optional
        Takes how many tiles of the result the host has, and of how many, whenever there are more. What it
        raises ends the call. After a lost device the counts are those of what is left.

    Raises
    ------
    SchemeError

    Notes
    -----
    Source: BLASX, sections IV.B to IV.E; `Options.paper` is its policy.

    Examples
    --------
    >>> Options(streams=2).streams, Options.paper().advance, Options.paper().cpu
    (2, 'batch', True)
    """

    peer: Peer = "arriving"
    cache: bool = True
    order: Order = "priority"
    queue: Queue = "squares"
    steal: bool = True
    streams: int = 4
    allocation: Allocation = "heap"
    advance: Advance = "stream"
    copies: Copies = "ordered"
    addend: Addend = "late"
    ahead: int = 2
    station: int = 4
    on_device_loss: Loss = "raise"
    cpu: bool = False
    progress: Callable[[int, int], object] | None = None

    def __post_init__(self) -> None:
        check_option("peer", self.peer, ("arriving", "completed", "none"), "which tiles peers give")
        check_option("order", self.order, ("priority", "fifo"), "the order of the tasks of a device")
        check_option("queue", self.queue, ("squares", "rows"), "the order of the global queue")
        check_option("allocation", self.allocation, ("heap", "native"), "who allocates tiles")
        check_option("advance", self.advance, ("stream", "batch"), "when a stream gets its next task")
        check_option("copies", self.copies, ("ordered", "stream"), "which streams copies are in")
        check_option("addend", self.addend, ("late", "first"), "when the first tiles add beta C")
        check_option("on_device_loss", self.on_device_loss, ("raise", "continue"), "what a lost device means")
        for name, number, most in (
            ("streams", self.streams, 8),
            ("ahead", self.ahead, 64),
            ("station", self.station, 1024),
        ):
            if not 1 <= number <= most:
                raise SchemeError(f"{name} is {number}\nit must be 1 to {most}\nchoose one of these numbers")

    @classmethod
    def paper(cls) -> Options:
        """The policy of the paper.

        Examples
        --------
        >>> Options.paper().peer
        'completed'
        """
        return cls(
            peer="completed",
            queue="rows",
            advance="batch",
            copies="stream",
            addend="first",
            station=8,
            cpu=True,
        )
