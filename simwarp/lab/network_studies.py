"""Studies of binarized networks on a device: what each launch, barrier, shortcut, batch and scheme costs.

Source: BSTC (SC'19), section 7, and BTC (TPDS'20), section 7: the figures and tables of whole networks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from statistics import median
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

import gpu.bnn
from gpu.bconv.schemes import EVERY_SCHEME as CONVOLUTIONS
from gpu.bmm.schemes import EVERY_SCHEME as PRODUCTS
from gpu.bnn.launches import launch_of
from gpu.bnn.plan import Step, steps_of, values_of
from gpu.bnn.residuals import is_sum
from gpu.bnn.site import Site, bytes_of
from reference.errors import DtypeError, FormatError, LaunchError, SchemeError, ShapeError
from reference.types.layers import Conv, Dense, Residual
from reference.types.network import Network, Reals

Work: TypeAlias = Callable[[], Any]
Facts: TypeAlias = dict[str, Any]
Progress: TypeAlias = Callable[[int, int], None]
"""Takes what is done, and all that is to be done."""

GAP, WARM, RUNS, BURSTS = 0.01, 2, 5, 5
"""A burst: seconds without work, runs that do not count, runs that do; and the bursts."""
_REFUSALS = (SchemeError, ShapeError, FormatError, DtypeError, LaunchError)
"""The errors by which a layer refuses a scheme."""
KERNELS: dict[str, dict[str, str]] = {
    "the chip's": {},
    "SBNN-32": {"Conv": "bconv32", "Dense": "bmm32"},
    "SBNN-32-Fine": {"Conv": "bconv32", "Dense": "bmms32"},
    "SBNN-64": {"Conv": "bconv64", "Dense": "bmm64"},
    "SBNN-64-Fine": {"Conv": "bconv64", "Dense": "bmms64"},
    "FSB": {"Conv": "btc2", "Dense": "btc3"},
}
"""The kernels of a whole network, and the schemes that choose them."""
_RESIDUALS: tuple[tuple[str, str, Any], ...] = (
    ("A", "one launch", "both"),
    ("A", "save only", "save"),
    ("A", "fetch only", "fetch"),
    ("None", "one launch", "both"),
)
"""Of figure 26: a kind of shortcut, a case, and what is done with residuals."""
TOGETHER = 10
"""Launches of one step in a graph."""


class Meter(Protocol):
    """An instrument that measures work on a device, in ``unit``: "seconds" or "instructions"."""

    device: Any
    unit: str

    def cost(self, work: Work, together: int = 1) -> Facts:
        """The cost of a call; ``together`` calls are measured in one go."""
        ...

    def about(self) -> Facts:
        """The measuring method, as fields of a study's report."""
        ...


class Timer:
    """Measures seconds, by events around a graph of launches, in bursts."""

    unit = "seconds"

    def __init__(self, device: Any) -> None:
        self.device = device

    def cost(self, work: Work, together: int = 1) -> Facts:
        """The median of the seconds that the device works."""
        work()  # the first run loads kernels, which must not happen in a capture
        with self.device.capture() as graph:
            for _ in range(together):
                work()
        on_device, _ = self.times(graph.launch)
        return {"seconds": on_device / together}

    def times(self, work: Work) -> tuple[float, float]:
        """The medians of the seconds that the device works, and that a caller waits."""
        on_device, waited = list[float](), list[float]()
        for _ in range(BURSTS):
            time.sleep(GAP)
            for run in range(WARM + RUNS):
                start, end = self.device.event(), self.device.event()
                begin = time.perf_counter()
                start.record()
                work()
                end.record()
                end.synchronize()
                if run >= WARM:
                    waited.append(time.perf_counter() - begin)
                    on_device.append(end.seconds_since(start))
        return median(on_device), median(waited)

    def about(self) -> Facts:
        """The method of measuring: bursts, runs per burst and idle seconds between them."""
        return {
            "idle_seconds": GAP,
            "runs_not_counted": WARM,
            "runs_timed": RUNS,
            "bursts": BURSTS,
            "statistic": "median",
            "synchronised": "after each run",
            "clock": "events of the device around a graph of launches",
        }


class Counter:
    """Counts the thread-instructions and launches that the simulator executes, in place of seconds."""

    unit = "instructions"

    def __init__(self, device: Any) -> None:
        self.device = device

    def cost(self, work: Work, together: int = 1) -> Facts:
        """The thread-instructions and launches of one call."""
        launches, executed = self.device.launches, self.device.executed
        work()
        return {
            "instructions": self.device.executed - executed,
            "launches": self.device.launches - launches,
        }

    def about(self) -> Facts:
        """The counting method, as fields of a study's report."""
        return {"instructions": "of threads whose predicate held", "runs": 1}


# --------------------------------------------------------------------------------------------------
# The studies
# --------------------------------------------------------------------------------------------------


def breakdown(network: Network, meter: Meter, images: int, progress: Progress) -> Facts:
    """Measure each launch of a network alone, its share of the sum, and all launches together."""
    with _room(images):
        prepared = gpu.bnn.prepare(network, device=meter.device)
        given = _upload(network, meter, images)
        found = prepared.launches(given)
        rows: list[Facts] = []
        for done, (step, launch, values) in enumerate(found):
            progress(done, len(found) + 1)
            rows.append(_about_step(step) | meter.cost(partial(launch, *values), TOGETHER))
        whole = meter.cost(partial(prepared.run, given))
    total = sum(row[meter.unit] for row in rows)
    for row in rows:
        row["share"] = row[meter.unit] / total if total else 0.0
    return _facts("breakdown", network.name, meter, images, rows, sum=total, together=whole[meter.unit])


def sync(network: Network, meter: Meter, images: int, progress: Progress) -> Facts:
    """Compare one launch per step with one launch for all, for batches 1, 2, 4 …; and cost its barriers.

    A barrier's cost is the time saved by not waiting for barriers, over their number.
    """
    layers, whole = (gpu.bnn.prepare(network, way=way, device=meter.device) for way in ("layers", "whole"))
    assert whole.whole is not None
    barriers, batches, launches = whole.whole.barriers, _doubled(images), 0
    rows: list[Facts] = []
    for done, count in enumerate(batches):
        progress(done, len(batches))
        with _room(count):
            batch_images = _upload(network, meter, count)
            launches = launches or len(layers.launches(batch_images))
            row: Facts = {"images": count}
            for name, prepared in (("layers", layers), ("whole", whole)):
                row[name] = meter.cost(partial(prepared.run, batch_images))[meter.unit]
            if meter.unit == "seconds":  # a run without barriers is a race, which the simulator would report
                apart = meter.cost(partial(whole.whole.run, batch_images, waits=False))["seconds"]
                row |= {"without_barriers": apart, "barrier": (row["whole"] - apart) / max(barriers, 1)}
        rows.append(row)
    return _facts("sync", network.name, meter, images, rows, steps=launches, barriers=barriers)


def shortcut(networks: Mapping[str, Network], meter: Meter, images: int, progress: Progress) -> Facts:
    """Measure a residual network with each kind of shortcut: its cost, and the bytes of its residuals.

    Then the four cases of BTC's figure 26, in one launch in FSB: A, only saved, only fetched, and none.
    """
    rows: list[Facts] = []
    cases = [
        (f"{name}, {case}", networks[name], residuals)
        for name, case, residuals in _RESIDUALS
        if name in networks
    ]
    count = len(networks) + len(cases)
    for done, (name, network) in enumerate(networks.items()):
        progress(done, count)
        with _room(images):
            prepared = gpu.bnn.prepare(network, device=meter.device)
            work = partial(prepared.run, _upload(network, meter, images))
            rows.append(
                {"shortcut": name, **meter.cost(work), "residual_bytes": images * residual_bytes(network)}
            )
    for done, (name, network, residuals) in enumerate(cases):
        progress(len(networks) + done, count)
        with _room(images):
            whole = gpu.bnn.prepare(network, way="whole", schemes=KERNELS["FSB"], device=meter.device).whole
            assert whole is not None
            work = partial(whole.run, _upload(network, meter, images), residuals=residuals)
            moved = images * whole.residual_bytes(residuals)
            rows.append({"shortcut": name, **meter.cost(work), "residual_bytes": moved})
    return _facts("shortcut", next(iter(networks.values())).name, meter, images, rows)


def blocks(network: Network, meter: Meter, images: int, progress: Progress) -> Facts:
    """Measure one launch of each kernel on 1, 2, 4 … blocks, up to those that are resident or have tasks."""
    given = _upload(network, meter, images)
    rows: list[Facts] = []
    for done, (kernel, schemes) in enumerate(KERNELS.items()):
        progress(done, len(KERNELS))
        prepare = partial(gpu.bnn.prepare, network, way="whole", schemes=schemes, device=meter.device)
        most = prepare().whole
        assert most is not None
        for count in _doubled(most.blocks(given)):
            with _room(images):
                whole = prepare(blocks=count).whole
                assert whole is not None
                cost = meter.cost(partial(whole.run, given))
            about = {"kernel": kernel, "source": whole.form.source, "threads": whole.geometry.threads}
            rows.append({**about, "blocks": count, **cost})
    return _facts("blocks", network.name, meter, images, rows)


def batch(network: Network, meter: Meter, images: int, progress: Progress) -> Facts:
    """Latency and images in a second for batches 1, 2, 4 …, until memory or 32-bit counters end."""
    if not isinstance(meter, Timer):
        raise SchemeError(
            "study batch on the simulator: latency and images in a second are times\n"
            "a simulator has none\ngive --device cuda, or study breakdown or sync"
        )
    prepared = gpu.bnn.prepare(network, device=meter.device)
    rows: list[Facts] = []
    batches, ended = _doubled(images), None
    for done, count in enumerate(batches):
        progress(done, len(batches))
        try:
            with _room(count):
                work = partial(prepared.run, _upload(network, meter, count))
                for _ in range(2):  # the first loads kernels, the second captures
                    work()
                seconds, waited = meter.times(work)
        except ShapeError as error:
            ended = _why(error)
            break
        rows.append({"images": count, "seconds": seconds, "waited": waited, "rate": count / waited})
    return _facts("batch", network.name, meter, images, rows, ended=ended)


def scheme(network: Network, meter: Meter, images: int, progress: Progress) -> Facts:
    """Measure each scheme of `gpu.bconv2d` and `gpu.bmm` for each binary layer, or record its refusal."""
    values = values_of(network)
    with _room(images):
        words = {"Dense": "bmm32"}  # every scheme can use words; some can also use lines
        prepared = gpu.bnn.prepare(network, schemes=words, device=meter.device)
        launches = prepared.launches(_upload(network, meter, images))
        cases = [
            (_alone(step), name, operands)
            for step, _, operands in launches
            if step.layers
            and isinstance(step.layers[0], Conv | Dense)
            and values[step.reads[0]].kind == "bits"
            for name in ("auto", *(CONVOLUTIONS if isinstance(step.layers[0], Conv) else PRODUCTS))
        ]
        rows: list[Facts] = []
        for done, (step, name, operands) in enumerate(cases):
            progress(done, len(cases))
            row = {**_about_step(step), "path": step.paths[0], "scheme": name, meter.unit: None}
            flag = meter.device.upload(np.zeros(1, np.int32))
            try:
                launch = launch_of(step, Site(meter.device, values, {step.paths[0]: name}, flag))
                row |= meter.cost(partial(launch, *operands[: len(step.reads)]), TOGETHER)
            except _REFUSALS as error:
                row["refused"] = _why(error)
            rows.append(row)
    return _facts("scheme", network.name, meter, images, rows)


def _alone(step: Step) -> Step:
    """A convolution without the residual that is fused into it, which most schemes cannot add."""
    if not is_sum(step):
        return step
    return Step(step.layers[:1], step.paths[:1], step.reads[:1], step.paths[:1])


def residual_bytes(network: Network) -> int:
    """Bytes of integers per image that residual connections read and write; 0 without residuals."""
    values = values_of(network)
    total = 0
    for step in steps_of(network, values):
        if any(isinstance(layer, Residual) for layer in step.layers):
            moved = [values[path] for path in (*step.reads, *step.writes)]
            total += sum(bytes_of(value) for value in moved if value.kind == "integers")
    return total


# --------------------------------------------------------------------------------------------------
# What they share
# --------------------------------------------------------------------------------------------------


def _facts(study: str, network: str, meter: Meter, images: int, rows: list[Facts], **others: Any) -> Facts:
    """The results of a study as a JSON object: network, device, method and rows."""
    cc = "sm_{}{}".format(*meter.device.compute_capability)
    about = {"study": study, "network": network, "device": meter.device.name, "chip": cc, "images": images}
    return {**about, "unit": meter.unit, "measured": meter.about(), **others, "rows": rows}


def _why(error: Exception) -> str:
    """An error's message in one line, without the advice in its last line."""
    return "; ".join(str(error).splitlines()[:-1])


def _about_step(step: Step) -> Facts:
    """The layers that a step of a network computes, as fields of a row."""
    return {
        "path": step.paths[-1],
        "layers": [type(layer).__name__ for layer in step.layers],
        "paths": list(step.paths),
    }


def _doubled(most: int) -> list[int]:
    """The powers of two below ``most``, and ``most``."""
    return [*(2**i for i in range((most - 1).bit_length())), most]


def _upload(network: Network, meter: Meter, count: int) -> Any:
    """Upload ``count`` random images in the input format of a network."""
    rng = np.random.default_rng(0)
    shape = (count, *network.input.shape)
    if isinstance(network.input, Reals):
        largest = min(1.0, 2.0 ** (14 - network.input.fraction))
        images: npt.NDArray[Any] = rng.uniform(-largest, largest, shape).astype(np.float32)
    else:
        images = rng.integers(0, 256, shape, dtype=np.uint8)
    return meter.device.upload(images, "images")


@contextmanager
def room(what: str, advice: str) -> Generator[None]:
    """Raise ShapeError with ``advice`` if the block runs out of memory on the host or device."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ != "MemoryError" and "OUT_OF_MEMORY" not in str(error):
            raise
        raise ShapeError(f"{what}: there is no memory for them\n{advice}") from None


def _room(images: int) -> AbstractContextManager[None]:
    """Raise ShapeError if the memory does not suffice for a batch of images."""
    return room(f"{images} images", "give fewer by --images")
