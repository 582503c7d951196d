"""Devices, links and rates of machines, as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

from reference.errors import DtypeError, LaunchError, SchemeError, ShapeError
from reference.values import shortened

Kind = Literal["in", "out", "peer"]


HOST = -1
"""The host's number among those of devices."""


class Route(NamedTuple):
    """The route of a copy: from the host to a device, back, or from a peer.

    Attributes
    ----------
    kind : str
        "in", "out" or "peer".
    device : int
        The device that copies.
    peer : int
        The device that a "peer" copy reads; -1 for the host.
    """

    kind: Kind
    device: int
    peer: int = -1

    def __str__(self) -> str:
        source = f" from device {self.peer}" if self.kind == "peer" else ""
        return f"{self.kind} of device {self.device}{source}"


@shortened
@dataclass(frozen=True)
class Gpu:
    """The properties of a GPU: memory size, compute rates and launch time.

    Attributes
    ----------
    name : str
    memory_bytes : int
    rates : mapping of str to float
        Floating-point operations per second, by the name of the dtype that a routine writes.
    launch_seconds : float
        The time of each routine beside its operations.
    filters_step : int
        The time of a convolution is that of its number of filters, rounded up to a multiple of this.
    allocate_seconds, free_seconds : float
        For so long after an allocation or a free no operation of the device starts; running ones go on.
    """

    name: str
    memory_bytes: int
    rates: Mapping[str, float]
    launch_seconds: float = 0.0
    filters_step: int = 1
    allocate_seconds: float = 0.0
    free_seconds: float = 0.0

    def __post_init__(self) -> None:
        for name in ("allocate_seconds", "free_seconds"):
            seconds = getattr(self, name)
            if not 0 <= seconds < math.inf:
                raise LaunchError(
                    f"{self.name}: {name} is {seconds}\nit is a time in seconds\npass a number from 0 on"
                )

    def routine_seconds(self, operations: float, dtype: str, filters: int = 0) -> float:
        """The time of a routine; ``filters`` per group is for convolutions.

        Examples
        --------
        >>> Gpu("small", 1 << 30, {"float64": 1e12}, 0.25).routine_seconds(5e11, "float64")
        0.75
        """
        rate = _rate(self.name, self.rates, dtype)
        whole = -(-filters // self.filters_step) * self.filters_step
        return self.launch_seconds + operations * (whole / filters if filters else 1) / rate


@shortened
@dataclass(frozen=True)
class Cpu:
    """The cores of a host, which compute routines one after another.

    Attributes
    ----------
    name : str
    rates : mapping of str to float
        Floating-point operations per second of all cores together, by the name of the dtype.
    """

    name: str
    rates: Mapping[str, float]

    def routine_seconds(self, operations: float, dtype: str) -> float:
        """The time of a routine.

        Examples
        --------
        >>> Cpu("small", {"float64": 1e11}).routine_seconds(5e10, "float64")
        0.5
        """
        return operations / _rate(self.name, self.rates, dtype)


def _rate(name: str, rates: Mapping[str, float], dtype: str) -> float:
    """The rate of a GPU or of a host's cores for a dtype; LaunchError without one."""
    if dtype not in rates:
        raise LaunchError(
            f"{name}: no rate for {dtype}\nit has rates for {', '.join(rates)}\nadd one to its rates"
        )
    return rates[dtype]


@dataclass(frozen=True)
class Link:
    """One direction of a link: a copy takes the latency plus its bytes divided by the bandwidth.

    Attributes
    ----------
    latency_seconds, bytes_per_second : float
    """

    latency_seconds: float
    bytes_per_second: float


@shortened
@dataclass(frozen=True)
class Shared:
    """A bandwidth that several routes share; concurrent copies get equal parts of it.

    Attributes
    ----------
    routes : tuple of Route
    bytes_per_second : float
    """

    routes: tuple[Route, ...]
    bytes_per_second: float


@shortened
@dataclass(frozen=True)
class Topology:
    """The devices of a machine, and the links between them and the host.

    Attributes
    ----------
    name : str
    gpus : tuple of Gpu
    inward, outward : tuple of Link
        The link of each device from the host, and to it.
    peers : mapping of (int, int) to Link
        The link by which the first device copies from the second; a pair without one has no peer access.
    shared : tuple of Shared
        Bandwidths that are less than the sum of their links'.
    cpu : Cpu, optional
        The host's cores; without, they compute nothing.

    Raises
    ------
    ShapeError
        If there is no device, or not one link for each device.
    LaunchError
        For a route that the topology does not have, and for a number that is not positive.

    Examples
    --------
    >>> gpu = Gpu("small", 1 << 20, {"float64": 1e12})
    >>> pair = Topology("pair", (gpu, gpu), *2 * [2 * (Link(0, 1e9),)], {(1, 0): Link(0, 4e9)})
    >>> pair.link(Route("peer", 1, 0)).bytes_per_second
    4000000000.0
    """

    name: str
    gpus: tuple[Gpu, ...]
    inward: tuple[Link, ...]
    outward: tuple[Link, ...]
    peers: Mapping[tuple[int, int], Link] = field(default_factory=lambda: MappingProxyType({}))
    shared: tuple[Shared, ...] = ()
    cpu: Cpu | None = None

    def __post_init__(self) -> None:
        devices = len(self.gpus)
        if not devices or len(self.inward) != devices or len(self.outward) != devices:
            raise ShapeError(
                f"{self.name}: {devices} devices, {len(self.inward)} links in and {len(self.outward)} out\n"
                "each device has one link in and one link out\ngive as many links as devices, at least one"
            )
        routes = self.routes()
        if foreign := [route for one in self.shared for route in one.routes if route not in routes]:
            raise LaunchError(
                f"{self.name}: a shared bandwidth has the route {foreign[0]}\n"
                f"the topology has no such link; it has {devices} devices\nadd the link, or drop the route"
            )
        bandwidths = [
            *(link.bytes_per_second for link in routes.values()),
            *(one.bytes_per_second for one in self.shared),
            *(rate for gpu in self.gpus for rate in (*gpu.rates.values(), gpu.filters_step)),
            *(self.cpu.rates.values() if self.cpu else ()),
        ]
        if not all(value > 0 for value in bandwidths):
            raise LaunchError(
                f"{self.name}: a bandwidth, a rate or a step is {min(bandwidths)}\n"
                "bytes and operations per second, and steps of filters, are above 0\n"
                "leave out a link that does not exist"
            )

    def routes(self) -> dict[Route, Link]:
        """Route → its link, for all routes between the host and the devices."""
        found: dict[Route, Link] = {}
        for device, (inward, outward) in enumerate(zip(self.inward, self.outward, strict=True)):
            found[Route("in", device)], found[Route("out", device)] = inward, outward
        for (device, peer), link in self.peers.items():
            if device == peer or not (0 <= device < len(self.gpus) and 0 <= peer < len(self.gpus)):
                raise LaunchError(
                    f"{self.name}: a link from device {peer} to device {device}\n"
                    f"there are devices 0 to {len(self.gpus) - 1}\ngive pairs of two of them"
                )
            found[Route("peer", device, peer)] = link
        return found

    def link(self, route: Route) -> Link:
        """The link over which copies of a route go."""
        return self.routes()[route]

    def host_bandwidths(self, device: int) -> tuple[float, float, float]:
        """A device's bandwidths in bytes per second: from the host, to the host, and both ways together.

        Examples
        --------
        >>> H200.host_bandwidths(0), EVEREST.host_bandwidths(0)
        ((55200000000.0, 55500000000.0, 100500000000.0), (6540000000.0, 6540000000.0, inf))
        """
        into, out = Route("in", device), Route("out", device)
        return (
            min(self.inward[device].bytes_per_second, self._shared_by(into)),
            min(self.outward[device].bytes_per_second, self._shared_by(out)),
            self._shared_by(into, out),
        )

    def _shared_by(self, *routes: Route) -> float:
        """The least bandwidth shared by all these routes; infinite if they share none."""
        return min(
            (one.bytes_per_second for one in self.shared if {*routes} <= {*one.routes}), default=math.inf
        )


def host_group(devices: range, inward: float, outward: float, both: float) -> tuple[Shared, ...]:
    """The bandwidths that devices share on the host's side: in, out, and in sum, in bytes per second."""
    into = tuple(Route("in", device) for device in devices)
    out = tuple(Route("out", device) for device in devices)
    return Shared(into, inward), Shared(out, outward), Shared(into + out, both)


def _rates(double: float, single: float, half: float | None = None) -> dict[str, float]:
    """The rates of real and complex products, in real operations.

    Those of 16 bits are of convolutions in NCHW, with sums in float32, as measured on an H100; without tensor
    cores they are those of float32.
    """
    wide = {"float64": double, "float32": single, "complex128": double, "complex64": single}
    return wide | dict.fromkeys(("float16", "bfloat16"), half or single)


def all_pairs(devices: range, link: Link) -> dict[tuple[int, int], Link]:
    """The same link between every two devices, in both directions."""
    return {(device, peer): link for device in devices for peer in devices if device != peer}


# H200: measured on one, two and four of them. A copy and its latency, both directions at once, the four of
# one host together, a ring of four over NVLink. Rates are those of DGEMM and SGEMM in memory; the launch time
# is the difference of DGEMM at tiles of 1024 and 4096; the steps are those of cuDNN on float32.
_GB = 1e9
_IN, _OUT = Link(3e-6, 55.2 * _GB), Link(3e-6, 55.5 * _GB)
_NVLINK = Link(3e-6, 377 * _GB)
# Of the host: numpy.matmul of N = 6000 on the 16 cores beside an H100 (h100/blas3-small.json).
_CORES = Cpu("16 cores", _rates(0.574e12, 1.064e12))
_H200 = Gpu(
    "H200",
    139 << 30,
    _rates(59.5e12, 52.4e12, 350e12),
    6e-6,
    filters_step=64,
)


def _h200(name: str, devices: int, peers: bool) -> Topology:
    """The devices of an H200 host; up to four devices share the host's bandwidths."""
    groups = [range(first, min(first + 4, devices)) for first in range(0, devices, 4)]
    shared = [
        *(
            one
            for device in range(devices)
            for one in host_group(range(device, device + 1), 55.2e9, 55.5e9, 100.5e9)[2:]
        ),
        *(one for group in groups if len(group) > 1 for one in host_group(group, 200.7e9, 168.8e9, 208e9)),
    ]
    return Topology(
        name,
        (_H200,) * devices,
        (_IN,) * devices,
        (_OUT,) * devices,
        all_pairs(range(devices), _NVLINK) if peers else {},
        tuple(shared),
        _CORES,
    )


H200 = _h200("H200", 1, peers=False)
"""One H200 and its host."""
H200x2 = _h200("2 × H200", 2, peers=True)
"""Two H200s of one host, with NVLink."""
H200x4 = _h200("4 × H200", 4, peers=True)
"""Four H200s of one host, with NVLink."""
EIGHT = _h200("8 × H200 without peers", 8, peers=False)
"""Eight H200s without peer access, four on each of two host bridges."""

# H100, 80 GB: measured by `benchmarks/blas3_probe.py` on one GPU, and on two of one host. The rates are those
# of a warm chip.
_H100 = Gpu("H100", 79 << 30, _rates(54.3e12, 49.6e12, 350e12), 6e-6)


def _h100(name: str, devices: int) -> Topology:
    """A topology of H100 GPUs in one host, which share the host's bandwidths."""
    link, every = (Link(3e-6, 54.4 * _GB), Link(3e-6, 54.8 * _GB)), range(devices)
    own = [host_group(range(one, one + 1), 54.4 * _GB, 54.8 * _GB, 92.4 * _GB)[2:] for one in every]
    host = host_group(every, 108.6 * _GB, 96.8 * _GB, 132 * _GB) if devices > 1 else ()
    return Topology(
        name,
        (_H100,) * devices,
        (link[0],) * devices,
        (link[1],) * devices,
        all_pairs(every, Link(3e-6, 383 * _GB)),
        (*(shared for each in own for shared in each), *host),
        _CORES,
    )


H100 = _h100("H100", 1)
"""One H100 and its host."""
H100x2 = _h100("2 × H100", 2)
"""Two H100s of one host, with NVLink."""

# The machines of Wang et al., "BLASX: A High Performance Level-3 BLAS Library for Heterogeneous Multi-GPU
# Computing" (2016): bandwidths of its Table IV, rates of the vendor's data sheets. Its text does not give the
# latency, nor which pairs of Makalu have peer access: here those of one model. Cores have the rates of data
# sheets, too: 16 operations of a core and cycle in double precision.
_PCIE3, _PCIE3_PEER = Link(10e-6, 6.54 * _GB), Link(10e-6, 7.8 * _GB)
_K40 = Gpu("K40", 12 << 30, _rates(1.43e12, 4.29e12), 8e-6)
_TITAN_X = Gpu("TITAN X", 12 << 30, _rates(0.192e12, 6.14e12), 8e-6)

EVEREST = Topology(
    "Everest",
    (_K40,) * 3,
    (_PCIE3,) * 3,
    (_PCIE3,) * 3,
    {(1, 2): _PCIE3_PEER, (2, 1): _PCIE3_PEER},
    cpu=Cpu("2 × Xeon E5-4655 v3", _rates(16 * 12 * 2.9e9, 32 * 12 * 2.9e9)),
)
"""Three K40c, with peer access between the second and the third only."""
MAKALU = Topology(
    "Makalu",
    (_K40, _K40, _TITAN_X, _TITAN_X),
    (_PCIE3,) * 4,
    (_PCIE3,) * 4,
    {**all_pairs(range(2), _PCIE3_PEER), **all_pairs(range(2, 4), _PCIE3_PEER)},
    cpu=Cpu("2 × Xeon E5-1620 v3", _rates(16 * 8 * 3.5e9, 32 * 8 * 3.5e9)),
)
"""Two K40 and two TITAN X."""

# The machine of ooc_cuDNN (2017). From the paper: 16 GB, PCIe gen3 x16, the rate (the most that cuDNN
# reached, section 6.2), the steps of 32 filters (section 4.2). Fitted: both directions at once, to the best
# of row (3) of its table 4. Assumed: one direction alone, as PCIe gen3 x16 usually has, the latency, the
# launch time, and the rate of double precision, that of the data sheet.
_PCIE3_X16 = Link(10e-6, 12 * _GB)
_P100 = Gpu("P100", 16 << 30, _rates(4.7e12, 7.629e12), 8e-6, filters_step=32)
P100 = Topology(
    "P100",
    (_P100,),
    (_PCIE3_X16,),
    (_PCIE3_X16,),
    shared=host_group(range(1), 12 * _GB, 12 * _GB, 19 * _GB)[2:],
)
"""One P100 and its host."""

TOPOLOGIES = {
    "H100": H100,
    "H100x2": H100x2,
    "H200": H200,
    "H200x2": H200x2,
    "H200x4": H200x4,
    "EIGHT": EIGHT,
    "EVEREST": EVEREST,
    "MAKALU": MAKALU,
    "P100": P100,
}
"""The topologies by their names in `simwarp.machine`."""


def named(name: str) -> Topology:
    """A topology by its name; raises SchemeError for an unknown name.

    >>> named("everest").name
    'Everest'
    """
    found = {known.lower(): topology for known, topology in TOPOLOGIES.items()}.get(name.lower())
    if found is None:
        raise SchemeError(f"the topology {name!r} is unknown\nknown are {', '.join(TOPOLOGIES)}\nchoose one")
    return found


def topology_of(given: object) -> Topology:
    """Convert a name to its topology, and return a topology unchanged; raise DtypeError for anything else."""
    if isinstance(given, Topology):
        return given
    if isinstance(given, str):
        return named(given)
    name = _OF_COUNT.get(given, "H200x4") if isinstance(given, int) else "H200"
    is_plain = given is None or isinstance(given, int | float | type)
    shown = repr(given) if is_plain else f"a {type(given).__name__}"
    raise DtypeError(
        f"Machine: topology is {shown}\nit must be a Topology, or a name: {', '.join(TOPOLOGIES)}\n"
        f"pass Machine({name!r}) for {TOPOLOGIES[name].name}"
    )


_OF_COUNT = {1: "H200", 2: "H200x2", 4: "H200x4", 8: "EIGHT"}
"""Names by numbers of devices, for errors."""
