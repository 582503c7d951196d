"""Training of VGG16 out of core, within a memory budget, beside torch that has the whole card.

    python benchmarks/training.py [--rows ooc/vgg16/1024 …] [--steps N] [--json PATH] [--peers in-core]
    python benchmarks/training.py --merge PATH… --json PATH

Seconds of a step, the median, without the first one, on synthetic images with seeds. ``in-core`` is torch
with the same weights, images and optimizer: the largest part of the batch that fits the card, gradients
accumulated, images in the device's memory. The losses of all steps are compared: they are the same within
1e-3, in TF32 within 1e-2. ``ratio`` is our time over that of torch. Other peers are torch within the same
budget, in parts of the batch, of which one is timed: as it is, with ``save_on_cpu``, and with checkpoints of
activations. ``by_routine`` has the seconds of our routines by name, in a step whose operations are recorded.
"""

from __future__ import annotations

import gc
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
from common import Row, about_this_run, merged, parser_of, publish, show, write

import gpu
from gpu.outofcore import (
    SGD,
    AveragePool,
    BatchNorm,
    Conv,
    Dense,
    Flatten,
    MaxPool,
    Network,
    Trainer,
    TrainingOptions,
    vgg16,
)

OPTIMIZER = SGD(0.01, 0.9, 5e-4)
PARTS = (512, 256, 128, 64, 32)
"""Images of a part of torch's batch; the first size that fits is used."""
WORST = 1e-3
PEERS = ("in-core", "budget")
"""Torch with the whole card, and within the budget of ours."""


@dataclass(frozen=True)
class Case:
    """A row."""

    network: Callable[[], Network]
    batch: int
    budget: int
    target: float  # of the ratio
    accumulation: bool = False  # as in `TrainingOptions`
    math: Literal["fp32", "tf32"] = "fp32"  # as in `TrainingOptions`

    def trainer(self, machine: Any) -> Trainer:
        """A trainer on a machine."""
        return Trainer(
            self.network(),
            self.batch,
            device=machine,
            sgd=OPTIMIZER,
            memory_budget=self.budget,
            options=TrainingOptions(accumulation=self.accumulation, math=self.math),
        )


def convolutions(size: int) -> Network:
    """The convolutions of VGG16 for one image; the mean of the last result's pixels goes to ten classes."""
    layers = [layer for layer in vgg16().layers if isinstance(layer, Conv | MaxPool)]
    return Network((3, size, size), (*layers, AveragePool(size // 32), Flatten(), Dense(10)))


ROWS = {
    "ooc/vgg16/1024": Case(vgg16, 1024, 16 * 10**9, 1.1),
    "ooc/vgg16-accumulated/1024": Case(vgg16, 1024, 16 * 10**9, 1.1, accumulation=True),
    "ooc/vgg16-tf32/1024": Case(vgg16, 1024, 16 * 10**9, 1.6, math="tf32"),
    "ooc/vgg16bn/1024": Case(lambda: vgg16(norm=True), 1024, 16 * 10**9, 1.2),
    "ooc/image/1x8192x8192": Case(lambda: convolutions(8192), 1, 8 * 10**9, 1.2),
}


def images_of(case: Case, network: Network) -> tuple[Any, Any]:
    """Images and labels."""
    rng = np.random.default_rng(7)
    x = rng.random((case.batch, *network.image), np.float32)
    x -= np.float32(0.5)
    return x, rng.integers(0, network.classes, case.batch)


def ours(machine: Any, case: Case, steps: int) -> tuple[list[float], list[float], dict[str, Any]]:
    """Losses and seconds of steps, and facts."""
    x, labels = images_of(case, case.network())
    start = time.perf_counter()
    trainer = case.trainer(machine)
    planning = time.perf_counter() - start
    plan, losses, times = trainer.explain(), list[float](), list[float]()
    with trainer:
        for _ in range(steps):
            start = time.perf_counter()
            losses.append(trainer.step(x, labels))
            times.append(time.perf_counter() - start)
        counts = trainer.statistics
    facts = {
        "batch": case.batch,
        "budget": case.budget,
        "device_bytes": plan.device.nbytes,
        "plan": str(plan).splitlines(),
        "accumulates": plan.accumulates,
        "planning_seconds": round(planning, 2),
        "first_step_seconds": round(times[0], 3),
        "run_seconds": counts.seconds,
        "model_seconds": counts.predicted_seconds,
        "model_error": round(counts.model_error, 4),
        "model_in_core_seconds": plan.in_core_seconds,
        "model_by_routine": seconds_by_name([*plan.timeline]),
        "bytes_in": counts.bytes_in,
        "bytes_out": counts.bytes_out,
    }
    return losses, times, facts


def by_routine(case: Case) -> dict[str, Any]:
    """The seconds of a step by the names of routines and copies."""
    x, labels = images_of(case, case.network())
    with gpu.CudaMachine([0], record=True) as machine:
        with case.trainer(machine) as trainer:
            for _ in range(2):
                begin = len(machine.timeline)
                trainer.step(x, labels)
        records = [*machine.timeline][begin:]
    return seconds_by_name(records)


def seconds_by_name(records: Sequence[Any]) -> dict[str, float]:
    """The seconds of operations by their names, and those from the first start to the last end."""
    totals: dict[str, float] = defaultdict(float)
    for one in records:
        totals[one.name] += one.end - one.start
    totals["all"] = max(one.end for one in records) - min(one.start for one in records)
    return {name: round(seconds, 5) for name, seconds in sorted(totals.items())}


# --------------------------------------------------------------------------------------------------
# torch
# --------------------------------------------------------------------------------------------------


class Torch:
    """A network in torch with the first weights of ours."""

    def __init__(self, network: Network, math: str) -> None:
        import torch

        self.torch, self.network = torch, network
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = math == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = math == "tf32"
        self.model = torch.nn.Sequential(*self._layers()).cuda()
        sgd = {"lr": OPTIMIZER.rate, "momentum": OPTIMIZER.momentum, "weight_decay": OPTIMIZER.decay}
        self.optimizer = torch.optim.SGD(self.model.parameters(), **sgd)

    def _layers(self) -> Iterator[Any]:
        nn, number = self.torch.nn, 0
        first, shapes = self.network.initial(0), iter(self.network.stages)
        for layer in self.network.layers:
            if isinstance(layer, Flatten):
                yield nn.Flatten()
                continue
            number, stage = number + 1, next(shapes)
            if isinstance(layer, MaxPool):
                yield nn.MaxPool2d(layer.window)
                continue
            if isinstance(layer, AveragePool):
                yield nn.AvgPool2d(layer.window)
                continue
            made = self._made(layer, stage)
            with self.torch.no_grad():
                made.weight.copy_(self.torch.from_numpy(first[f"{stage.name}.w"]))
                made.bias.copy_(self.torch.from_numpy(first[f"{stage.name}.bias"]))
            yield made
            if layer.activation:
                yield nn.ReLU(inplace=True)

    def _made(self, layer: Any, stage: Any) -> Any:
        nn = self.torch.nn
        if isinstance(layer, Dense):
            return nn.Linear(stage.filters[1], stage.shape[0])
        if isinstance(layer, BatchNorm):
            return nn.BatchNorm2d(stage.shape[0], layer.epsilon, layer.momentum)
        return nn.Conv2d(stage.reads[0], stage.shape[0], 3, padding=1)

    def steps(self, x: Any, labels: Any, count: int) -> tuple[list[float], list[float], int]:
        """Losses and seconds of steps, and the images of a part."""
        torch, batch = self.torch, len(x)
        labels = torch.from_numpy(labels).cuda()
        for part in (size for size in (batch, *PARTS) if size <= max(PARTS[0], 1) or batch == 1):
            try:
                x_there = torch.from_numpy(x).cuda()
                self._step(x_there, labels, part, update=False)
            except torch.cuda.OutOfMemoryError:
                x_there = None
                self.optimizer.zero_grad(set_to_none=True)
                torch.cuda.empty_cache()
                continue
            break
        else:
            return [], [], 0
        losses, times = list[float](), list[float]()
        for _ in range(count):
            torch.cuda.synchronize()
            start = time.perf_counter()
            losses.append(self._step(x_there, labels, part, update=True))
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        return losses, times, part

    def within(self, budget: int, x: Any, labels: Any) -> dict[str, float]:
        """Seconds of a batch within a budget, by the treatment of activations."""
        torch, times = self.torch, dict[str, float]()
        _, total = torch.cuda.mem_get_info()
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(budget / total)
        for way in ("torch, within the budget", "save_on_cpu", "checkpoints"):
            for part in (128, 64, 32):
                if (seconds := self._seconds(way, x[:part], labels[:part])) is not None:
                    times[way] = seconds * len(x) / part
                    break
        torch.cuda.set_per_process_memory_fraction(1.0)
        return times

    def _seconds(self, way: str, x: Any, labels: Any) -> float | None:
        """The least time of a part whose images are on the host; None if it does not fit."""
        torch, times = self.torch, list[float]()
        try:
            x, labels = torch.from_numpy(x).pin_memory(), torch.from_numpy(labels).cuda()
            for _ in range(3):
                torch.cuda.synchronize()
                start = time.perf_counter()
                self._part(way, x.cuda(non_blocking=True), labels)
                torch.cuda.synchronize()
                times.append(time.perf_counter() - start)
        except torch.cuda.OutOfMemoryError as error:
            print(f"{way}, {len(x)} images: {str(error)[:200]}")
            return None
        finally:
            self.optimizer.zero_grad(set_to_none=True)
            gc.collect()  # a failure's frames hold activations
            torch.cuda.empty_cache()
        return min(times[1:])

    def _part(self, way: str, x: Any, labels: Any) -> None:
        """Both passes of a part."""
        from torch.utils.checkpoint import checkpoint_sequential

        if way == "checkpoints":
            logits = checkpoint_sequential(self.model, 5, x, use_reentrant=False)
            self.torch.nn.functional.cross_entropy(logits, labels).backward()
            return
        saved = self.torch.autograd.graph.save_on_cpu(pin_memory=True)
        with saved if way == "save_on_cpu" else nullcontext():
            self.torch.nn.functional.cross_entropy(self.model(x), labels).backward()

    def _step(self, x: Any, labels: Any, part: int, *, update: bool) -> float:
        """The loss of a batch, and the update."""
        self.optimizer.zero_grad(set_to_none=True)
        total = self.torch.zeros((), device="cuda", dtype=self.torch.float64)
        for first in range(0, len(x) if update else part, part):
            logits = self.model(x[first : first + part])
            loss = self.torch.nn.functional.cross_entropy(
                logits, labels[first : first + part], reduction="sum"
            )
            (loss / len(x)).backward()
            total += loss.detach()
        if update:
            self.optimizer.step()
        return float(total) / len(x)


# --------------------------------------------------------------------------------------------------
# Rows
# --------------------------------------------------------------------------------------------------


def rows_of(name: str, steps: int, peers: Sequence[str], *, records: bool) -> Iterator[Row]:
    """Yield a row once ours is measured and after each peer, so that an interrupted run keeps figures."""
    case, found = ROWS[name], dict[str, float]()
    network = case.network()
    with gpu.CudaMachine([0]) as machine:
        losses, times, facts = ours(machine, case, steps)
    seconds = median(times[1:])
    facts |= {"losses": losses, "runs": times}
    yield Row(name, facts, "s", "lower", seconds)
    if peers:
        peer, (x, labels) = Torch(network, case.math), images_of(case, network)
    if "in-core" in peers:
        there, torch_times, part = peer.steps(x, labels, steps)
        if there:
            error = max(abs(a / b - 1) for a, b in zip(losses, there, strict=True))
            found["in-core"] = median(torch_times[1:])
            facts |= {"torch_losses": there, "torch_part": part, "loss_error": error}
            facts["ratio"] = round(seconds / found["in-core"], 4)
    target = case.target * found["in-core"] if "in-core" in found else None
    yield Row(name, facts, "s", "lower", seconds, dict(found), target=target)
    if "budget" in peers and case.batch > 1:
        found |= peer.within(case.budget, x, labels)
        yield Row(name, facts, "s", "lower", seconds, dict(found), target=target)
    if records:
        facts["by_routine"] = by_routine(case)
        yield Row(name, facts, "s", "lower", seconds, dict(found), target=target)


def is_wrong(row: Row) -> bool:
    """True if losses differ; those of parts that torch normalizes by themselves are not compared."""
    case = ROWS[row.case]
    worst = WORST * (10 if case.math == "tf32" else 1)
    return not case.network().running and row.params.get("loss_error", 0) > worst


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=[*ROWS], help="measure these")
    parser.add_argument("--steps", type=int, default=20, help="steps of each row")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=PEERS, help="measure these, too")
    parser.add_argument("--no-records", action="store_true", help="leave out by_routine")
    parser.add_argument("--merge", nargs="+", type=Path, metavar="PATH", help="join these files instead")
    options = parser.parse_args()
    if options.merge:
        publish(options.json, *merged(options.merge))
        return
    with gpu.CudaMachine([0]) as machine:
        meta = about_this_run(gpu=machine.name(0), cudnn=machine.layers.cudnn.version)
    done: dict[str, Row] = {}
    for name in options.rows:
        for row in rows_of(name, options.steps, options.peers, records=not options.no_records):
            done[name] = row
            show([row])
            if options.json:
                write(options.json, meta, [*done.values()])
    if wrong := [row.case for row in done.values() if is_wrong(row)]:
        raise SystemExit(f"losses differ from those of torch: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
