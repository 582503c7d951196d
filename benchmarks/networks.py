"""The six binarized networks of the papers: the latency of few images, and images in a second.

    python benchmarks/networks.py [--rows alexnet mlp …] [--compile] [--no-peers] [--json PATH]
    python benchmarks/networks.py --kernels [--rows alexnet-sc19 lenet …] [--json PATH]
    python benchmarks/networks.py --merge PATH… --json PATH

``net/NAME/N`` is what a caller waits for: N random images lie on the device, and the time goes from the call
of `PreparedNetwork.run` to the end of the device's work, layer by layer; ``device`` in the parameters is the
device's part of it, by events, and the whole network in one kernel stands beside it. It is the median of the
runs of several bursts: the chip is idle, two runs do not count, and five do, one at a time. Few images are a
latency in milliseconds, many a rate. The weights are random. Sums and classes of some images are compared
with `reference.bnn.run`.

``net/nothing`` is a graph of one empty kernel, launched and waited for in the same way: what host, driver and
chip take beside any work.

``net/NAME/N-host`` is `PreparedNetwork.stream` on batches in page-locked memory of the host: all images of
`STREAMED` batches, from the call to the last answer on the host. Its target is 90 % of what the link or the
device allows, whichever is less: `LINK` bytes in a second, or the rate of images on the device. Beside it are
both; `PreparedNetwork.run` on one batch, where the first copy and the last launches have nothing beside them,
in as many pieces as it takes by itself and in other numbers; one batch in ordinary memory; and in the
parameters the bandwidth that a plain copy of the same images had.

``whole/NAME/N``, with ``--kernels``, is one launch of SBNN-64-Fine, and beside it the other kernels of a
whole network and the layers by themselves: BSTC's tables 4 to 7, and with one image tables 8 and 9. The rates
are of `WHOLE_MANY` images.

The peers are torch's networks of the same layers in float16, channels last, replayed from a CUDA graph, and
with ``--compile`` those of ``torch.compile``, which take a minute each.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import Row, about_this_run, merged, parser_of, publish, show, write
from networks_peers import BURSTS, FloatNetworks, bursts

import gpu
import gpu.bnn
from gpu.compile import compile, compiler_version
from gpu.device import LaunchPlan
from reference.bnn import Network, alexnet, lenet, mlp, resnet14, resnet18, run, vgg16, vgg_cifar
from simwarp.lab.network_studies import KERNELS


class Subject(NamedTuple):
    """A network, its numbers of images, and its targets: milliseconds, and images per second."""

    make: Callable[[], Network]
    few: int
    latency: float | None
    many: int
    rate: float | None


NETWORKS = {
    "mlp": Subject(mlp, 8, 0.008, 1024, 60e6),
    "vgg-cifar": Subject(vgg_cifar, 8, 0.050, 1024, 900e3),
    "resnet14": Subject(resnet14, 8, 0.090, 1024, 500e3),
    "alexnet": Subject(alexnet, 8, 0.084, 512, 700e3),
    "vgg16": Subject(vgg16, 8, 0.26, 512, 59e3),
    "resnet18": Subject(resnet18, 8, 0.097, 512, 350e3),
    "lenet": Subject(lenet, 8, None, 1024, None),
    "alexnet-sc19": Subject(partial(alexnet, form="sc19"), 8, None, 512, None),
}
"""The last two, of BSTC, are measured only if they are named."""
WHOLE_MANY = 128
"""Images of a rate in one launch: CUDA cores take seconds for more of VGG-16."""
CHECKED = 2
"""Images that are compared."""
LINK = 55e9
"""The expected speed of copies of page-locked memory, in bytes per second."""
PIECES = (1, 2, 4, 8, 16)
"""Numbers of pieces beside the default one."""
STREAMED, BUFFERS = 24, 4
"""Batches of a stream, and the arrays that they use in turn."""


class Times(NamedTuple):
    """Medians in seconds: until the caller goes on, and of the device's work."""

    waited: float
    device: float


def times_of(device: Any, work: Callable[[], Any]) -> Times:
    """Time work on the default stream, for the host and, in runs of their own, by events."""

    def waited() -> float:
        begin = time.perf_counter()
        work()
        device.synchronize()
        return time.perf_counter() - begin

    def on_device() -> float:
        start, end = device.event(), device.event()
        start.record()
        work()
        end.record()
        end.synchronize()
        return end.seconds_since(start)

    return Times(*(statistics.median(bursts(run)) for run in (waited, on_device)))


def check(network: Network, prepared: Any, images: np.ndarray, on_device: Any, expected: Any = None) -> None:
    """Compare sums and classes of the first images, also where others follow them."""
    expected, answer = expected or run(network, images[:CHECKED]), prepared.run(on_device)
    sums, classes = (each.download()[:CHECKED] for each in (answer.sums, answer.classes))
    if not (np.array_equal(sums, expected.sums) and np.array_equal(classes, expected.classes)):
        raise SystemExit(f"{network.name}: the answer is wrong")


def seconds_of(work: Callable[[], Any]) -> float:
    """The median time that a caller waits for some work."""

    def run() -> float:
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin

    return statistics.median(bursts(run))


def row_of_host(case: str, prepared: Any, images: np.ndarray, on_device: Any, seconds: float) -> Row:
    """The row of images in page-locked memory; the device needs these seconds for images of its own."""
    device, stream, count = prepared.device, prepared.device.stream(independent=True), len(images)
    batches = [device.pinned(images.shape, images.dtype) for _ in range(BUFFERS)]
    for i, batch in enumerate(batches):
        batch[...] = np.roll(images, i, axis=0)
    pinned, expected = batches[0], prepared.run(on_device).sums.download()
    streamed = [answer.sums for answer in prepared.stream(batches)]
    right = all(np.array_equal(sums, np.roll(expected, i, axis=0)) for i, sums in enumerate(streamed))
    if not (right and np.array_equal(prepared.run(pinned).sums, expected)):
        raise SystemExit(f"{case}: the answer is wrong")

    def copy() -> None:
        on_device.upload(pinned, stream)
        stream.synchronize()

    def through() -> None:
        for _ in prepared.stream(islice(cycle(batches), STREAMED)):
            pass

    link, run = images.nbytes / LINK, partial(prepared.run, pinned)
    beside = {f"run, pieces={n}": seconds_of(partial(run, pieces=n)) for n in PIECES}
    beside |= {"run": seconds_of(run), "run, ordinary memory": seconds_of(partial(prepared.run, images))}
    rates = {
        name: round(count / each) for name, each in {"link": link, "on device": seconds, **beside}.items()
    }
    params = {
        "images": count,
        "batches": STREAMED,
        "bytes": images.nbytes,
        "link": LINK,
        "copy": round(images.nbytes / seconds_of(copy)),
        "bursts": BURSTS,
    }
    ours = round(STREAMED * count / seconds_of(through))
    return Row(
        case, params, "images/s", "higher", ours, rates, target=round(0.9 * count / max(link, seconds))
    )


def row_of_nothing(device: Any) -> Row:
    """The row of a graph without work."""
    ptx = compile('extern "C" __global__ void nothing() {}', "nothing.cu", {}, device.compute_capability)
    with device.capture() as graph:
        device.launch(LaunchPlan(ptx.text, "nothing", (1, 1, 1), (32, 1, 1), ()), ())
    times = times_of(device, graph.launch)
    params = {"device": round(times.device * 1e3, 4), "bursts": BURSTS}
    return Row("net/nothing", params, "ms", "lower", round(times.waited * 1e3, 4))


def rows_of(device: Any, names: list[str], peers: FloatNetworks | None = None) -> Iterator[Row]:
    """Three rows for each network: few images, many, and many of the host."""
    for name in names:
        subject = NETWORKS[name]
        network = subject.make()
        ways = {way: gpu.bnn.prepare(network, way=way, device=device) for way in ("layers", "whole")}
        for count in (subject.few, subject.many):
            images = np.random.default_rng().integers(0, 256, (count, *network.input.shape), dtype=np.uint8)
            on_device = device.upload(images)
            found: dict[str, Times] = {}
            for way, prepared in ways.items():
                found[way] = times_of(device, partial(prepared.run, on_device))
                check(network, prepared, images, on_device)
            beside = {'way="whole"': found["whole"].waited, **(peers.times(network, count) if peers else {})}
            yield row_of(f"net/{name}/{count}", subject, count, found["layers"], beside)
            if count == subject.many:
                case = f"net/{name}/{count}-host"
                yield row_of_host(case, ways["layers"], images, on_device, found["layers"].waited)


def rows_of_kernels(device: Any, names: list[str]) -> Iterator[Row]:
    """Three rows for each network in one launch: one image, few, and many."""
    for name in names:
        subject = NETWORKS[name]
        network = subject.make()
        ways = {
            kernel: gpu.bnn.prepare(network, way="whole", schemes=schemes, device=device)
            for kernel, schemes in KERNELS.items()
        }
        ways["layers"] = gpu.bnn.prepare(network, device=device)
        for count in (1, subject.few, WHOLE_MANY):
            images = np.random.default_rng().integers(0, 256, (count, *network.input.shape), dtype=np.uint8)
            on_device, expected = device.upload(images), run(network, images[:CHECKED])
            found: dict[str, Times] = {}
            for way, prepared in ways.items():
                check(network, prepared, images, on_device, expected)
                found[way] = times_of(device, partial(prepared.run, on_device))
            beside = {way: times.waited for way, times in found.items()}
            subject_of_row = Subject(subject.make, count if count < WHOLE_MANY else 0, None, count, None)
            ours = found["SBNN-64-Fine"]
            del beside["SBNN-64-Fine"]
            yield row_of(f"whole/{name}/{count}", subject_of_row, count, ours, beside)


def row_of(case: str, subject: Subject, count: int, found: Times, beside: dict[str, float]) -> Row:
    """The row of a latency, or of a rate."""
    params = {"images": count, "device": round(found.device * 1e3, 4), "bursts": BURSTS}
    if count == subject.few:
        peers = {name: round(seconds * 1e3, 4) for name, seconds in beside.items()}
        return Row(case, params, "ms", "lower", round(found.waited * 1e3, 4), peers, target=subject.latency)
    peers = {name: round(count / seconds) for name, seconds in beside.items()}
    rate = round(count / found.waited)
    return Row(case, params, "images/s", "higher", rate, peers, target=subject.rate)


def main() -> None:
    parser = parser_of(__doc__)
    timed = [name for name, subject in NETWORKS.items() if subject.latency is not None]
    parser.add_argument("--rows", nargs="+", choices=NETWORKS, default=timed, help="measure these")
    parser.add_argument("--kernels", action="store_true", help="every kernel of a whole network instead")
    parser.add_argument("--merge", nargs="+", type=Path, metavar="PATH", help="join these files instead")
    parser.add_argument("--compile", action="store_true", help="torch.compile's networks, too")
    parser.add_argument("--no-peers", action="store_true", help="measure ours only")
    options = parser.parse_args()
    if options.merge:
        publish(options.json, *merged(options.merge))
        return
    device = gpu.CudaDevice()
    meta = about_this_run(gpu=device.name, driver=device.driver_version, nvrtc=compiler_version())
    if options.kernels:
        found = rows_of_kernels(device, options.rows)
    else:
        peers = None if options.no_peers else FloatNetworks(compiled=options.compile)
        found = rows_of(device, options.rows, peers)
    rows: list[Row] = []
    for row in chain([row_of_nothing(device)], found):
        rows.append(row)  # written one by one: an interrupted run leaves its rows
        show([row])
        if options.json:
            write(options.json, meta, rows)


if __name__ == "__main__":
    main()
