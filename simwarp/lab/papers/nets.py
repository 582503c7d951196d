"""Whole networks by scheme, and studies of them, for BSTC and BTC: counts, or times of a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import gpu.bnn
import simwarp
from reference import bnn
from reference.bnn import Network
from reference.types.layers import Conv, Dense
from reference.types.network_values import follow, multiply_adds, weights_of
from simwarp.lab import network_studies as studies
from simwarp.lab.network_studies import Counter, Facts, Timer
from simwarp.lab.papers.entries import Made, Maker, Making
from simwarp.lab.papers.measure import Meter, check

BSTC = {
    "SBNN-32": {"Conv": "bconv32", "Dense": "bmm32"},
    "SBNN-32-Fine": {"Conv": "bconv32", "Dense": "bmms32"},
    "SBNN-64": {"Conv": "bconv64", "Dense": "bmm64"},
    "SBNN-64-Fine": {"Conv": "bconv64", "Dense": "bmms64"},
}
"""The kernels of BSTC's schemes; section 7.3 names BMMS-32B for both of -Fine."""
BTC = {**BSTC, "BTC": {"Conv": "btc1", "Dense": "btc1"}, "BTC-FMT": {"Conv": "btc2", "Dense": "btc3"}}
Schemes = Mapping[str, Mapping[str, str]]
Options = Mapping[str, Any]
_WHOLE: Options = {}
SHORTCUTS = ("A", "B", "bireal", None)


class Subject(NamedTuple):
    """A network of the papers: how it is made, its data set, and the images of its throughput.

    ``small`` has the options of `make` for the simulator; without any the network is whole there, too.
    """

    make: Callable[..., Network]
    data: str
    many: int
    small: Mapping[str, Any]

    def options(self, making: Making, smaller: Options) -> Options:
        """What is smaller than in print on a device: nothing on a GPU."""
        return {**self.small, **smaller} if making.device is None else {}


SUBJECTS = {
    "mlp": Subject(bnn.mlp, "mnist", 1024, {}),
    "vgg-cifar": Subject(bnn.vgg_cifar, "cifar10", 1024, {"size": 16}),
    "resnet14": Subject(partial(bnn.resnet14, form="paper"), "cifar10", 1024, {"size": 16}),
    "alexnet": Subject(bnn.alexnet, "imagenet", 512, {"size": 32, "width": 2}),
    "alexnet, sc19": Subject(partial(bnn.alexnet, form="sc19"), "imagenet", 512, {"size": 32, "width": 2}),
    "vgg16": Subject(bnn.vgg16, "imagenet", 512, {"size": 32, "width": 2}),
    "resnet18": Subject(bnn.resnet18, "imagenet", 512, {"size": 32}),
}


def networks(names: Sequence[str], schemes: Schemes, images: int, smaller: Options = _WHOLE) -> Maker:
    """Networks by scheme: the latency of some images and, on a GPU, of the many of a throughput.

    ``smaller`` are options of the networks for the simulator, beside those of `SUBJECTS`.
    """

    def make(making: Making) -> Made:
        rows, runs = list[Facts](), [(name, scheme) for name in names for scheme in schemes]
        data = list[str]()
        for done, (name, scheme) in enumerate(runs):
            making.progress(done, len(runs))
            key = name, scheme, images, *smaller.items()
            if key not in making.kept:
                making.kept[key] = _network(making, name, schemes[scheme], images, smaller)
            cost, used = making.kept[key]
            rows.append({"network": name, "scheme": scheme, **cost})
            data.append(used)
        _relate(rows, next(iter(schemes)))
        return Made(rows, _sizes(making, names, images, smaller), "; ".join(dict.fromkeys(data)))

    return make


def _network(
    making: Making, name: str, schemes: Mapping[str, str], images: int, smaller: Options
) -> tuple[Facts, str]:
    """The cost of a network, whose answer to an image is the reference's; and its images."""
    subject, meter = SUBJECTS[name], Meter(making)
    network = subject.make(**subject.options(making, smaller))
    given, used = making.data.images(subject.data, tuple(network.input.shape), images)
    prepared = gpu.bnn.prepare(network, schemes=schemes, device=meter.device)
    answer, cost = _latency(meter, prepared, given)
    check(
        f"{name} by {schemes}", np.array_equal(answer.sums.download()[:1], bnn.run(network, given[:1]).sums)
    )
    if not meter.simulated:
        many, _ = making.data.images(subject.data, tuple(network.input.shape), subject.many)
        _, throughput = _latency(meter, prepared, many)
        cost["images/s"] = 1e3 * subject.many / throughput["ms"]
    return cost, used


def _latency(meter: Meter, prepared: Any, images: Any) -> tuple[Any, Facts]:
    """An answer and the counts of a run, or the milliseconds that a caller waits for it."""
    run = partial(prepared.run, meter.device.upload(images, "images"))
    if meter.simulated:
        return meter.cost(run)
    for _ in range(2):  # the first loads kernels, the second captures
        run()
    return run(), {"ms": 1e3 * Timer(meter.device).times(run)[1]}


def _relate(rows: Sequence[Facts], first: str) -> None:
    """Add to each row its cost beside that of the first scheme on the same network."""
    unit = "instructions" if "instructions" in rows[0] else "ms"
    of_first = {row["network"]: row[unit] for row in rows if row["scheme"] == first}
    for row in rows:
        row[f"to {first}"] = row[unit] / of_first[row["network"]]


def _sizes(making: Making, names: Sequence[str], images: int, smaller: Options) -> str:
    count = f"{images} image{'s' * (images > 1)}, random weights"
    if making.device is not None:
        return f"{count}, whole networks, {Meter(making).device.name}: what a caller waits for"
    options = {name: SUBJECTS[name].options(making, smaller) for name in names}
    small = ", ".join(f"{name} {_shown(of)}" for name, of in options.items() if of)
    return f"{count}{', ' * bool(small)}{small}; {Meter(making).about()}"


def _shown(options: Options) -> str:
    """What is smaller than in print.

    >>> _shown({"size": 32, "width": 2})
    'of 32 × 32 with channels / 2'
    """
    parts = [f"of {options['size']} × {options['size']}"] if "size" in options else []
    parts += [f"with channels / {options['width']}"] if "width" in options else []
    return " ".join(parts)


# --------------------------------------------------------------------------------------------------
# Studies
# --------------------------------------------------------------------------------------------------


def study(what: str, names: Sequence[str], images: int, smaller: Options = _WHOLE) -> Maker:
    """A study of `simwarp.lab.network_studies` on some networks: breakdown, sync, shortcut or batch."""

    def make(making: Making) -> Made:
        rows = list[Facts]()
        for name in names:
            meter: Any = Counter(simwarp.Device()) if making.device is None else Timer(making.device)
            subject: Any = _subject(making, what, name, smaller)
            found = getattr(studies, what)(subject, meter, images, making.progress)
            rows += [{"network": name, **_ROWS[what](found, row)} for row in found["rows"]]
        unit = "instructions of the simulator" if making.device is None else "seconds"
        return Made(rows, f"{unit}; {_sizes(making, names, images, smaller)}", "random images")

    return make


def _subject(making: Making, what: str, name: str, smaller: Options) -> Any:
    """The network of a study, or that of shortcut with each kind."""
    subject = SUBJECTS[name]
    make = partial(subject.make, **subject.options(making, smaller))
    return make() if what != "shortcut" else {str(kind): make(shortcut=kind) for kind in SHORTCUTS}


def _breakdown(found: Facts, row: Facts) -> Facts:
    cost = row[found["unit"]]
    first = row is found["rows"][0]
    return {
        "part": "first layer" if first else row["path"],
        "layers": row["layers"],
        "cost": cost,
        "percent": 100 * row["share"],
    }


def _sync(found: Facts, row: Facts) -> Facts:
    barriers = 100 * (1 - row["without_barriers"] / row["whole"]) if "without_barriers" in row else None
    costs = {name: row[name] for name in ("images", "layers", "whole")}
    return {**costs, "barriers": found["barriers"], "percent": barriers}


def _shortcut(found: Facts, row: Facts) -> Facts:
    unit = found["unit"]
    none = next(other for other in found["rows"] if other["shortcut"] == "None")
    more = {"percent": 100 * (row[unit] / none[unit] - 1)}
    return {"shortcut": row["shortcut"], "cost": row[unit], "residual bytes": row["residual_bytes"], **more}


def _batch(found: Facts, row: Facts) -> Facts:
    most = max(other["rate"] for other in found["rows"])
    return {
        "images": row["images"],
        "ms": 1e3 * row["waited"],
        "images/s": row["rate"],
        "of the most": row["rate"] / most,
    }


_ROWS: dict[str, Callable[[Facts, Facts], Facts]] = {
    "breakdown": _breakdown,
    "sync": _sync,
    "shortcut": _shortcut,
    "batch": _batch,
}


def structure(names: Sequence[str]) -> Maker:
    """The networks of a table, as printed: their layers of weights, bits, and images."""

    def make(making: Making) -> Made:
        rows = list[Facts]()
        for done, name in enumerate(names):
            making.progress(done, len(names))
            network = SUBJECTS[name].make()
            found = {"layers": 0, "weights": 0, "multiply-adds": 0}
            for _, layer, given in follow(network):
                if isinstance(layer, Conv | Dense):
                    found["layers"] += 1
                    found["weights"] += weights_of(layer)
                    found["multiply-adds"] += multiply_adds(layer, given)
            image = " × ".join(map(str, network.input.shape))
            rows.append({"network": name, "image": image, **found})
        return Made(rows, "the whole networks; nothing is run, and nothing is trained")

    return make
