"""The command ``simwarp ooc train``: training of a network within a memory budget."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import MofNCompleteColumn
from rich.text import Text

from reference.errors import MissingExtraError, SchemeError
from simwarp.cli.output import Json, OneDevice, as_options, print_json, total_bar, wide_console
from simwarp.draw.roofline import si

if TYPE_CHECKING:
    from gpu.outofcore import Network, Trainer

HELD_BACK = 4
"""Every so many images are not trained on."""
_NAMES = {"memory_budget": "--budget", "batch": "--batch", "rate": "--rate", "momentum": "--momentum"} | {
    name: f"--{name}" for name in ("decay", "depth", "parameters")
}


class Net(StrEnum):
    """The networks that can be trained or planned."""

    digits = "digits"
    vgg16 = "vgg16"
    vgg16bn = "vgg16bn"


def train_command(
    net: Annotated[
        Net, typer.Argument(help="A small one for scikit-learn's digits, or VGG16 for drawn images.")
    ] = Net.digits,
    batch: Annotated[int | None, typer.Option(help="Images of a step; by default 64, of VGG16 1024.")] = None,
    budget: Annotated[
        int | None,
        typer.Option(metavar="BYTES", help="Of the device; by default 100000, of VGG16 16000000000."),
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="How often each image is seen.")] = 3,
    rate: Annotated[float, typer.Option(help="Of descent.")] = 0.1,
    momentum: Annotated[float, typer.Option(help="Of descent.")] = 0.9,
    decay: Annotated[float, typer.Option(help="Of weights.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Of first weights and the order of images.")] = 0,
    depth: Annotated[int, typer.Option(help="The most buffers of what is copied.")] = 2,
    parameters: Annotated[str, typer.Option(help="auto, device or host: where they stay.")] = "auto",
    accumulation: Annotated[
        bool, typer.Option(help="Whether the plan may cut the batch alone, over the whole network.")
    ] = True,
    device: Annotated[
        OneDevice, typer.Option(help="A simulated one, on which VGG16 is only planned, or a GPU.")
    ] = OneDevice.sim,
    images: Annotated[
        int | None, typer.Option(min=1, help="Drawn for VGG16; by default those of one step.")
    ] = None,
    topology: Annotated[str, typer.Option(help="H100, H200, or another one of simwarp.machine.")] = "H200",
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the plan and its clock; train nothing.")
    ] = False,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Written at the end of each epoch.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Go on from a checkpoint of the same settings.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Train a network whose activations do not fit the budget, on a simulated device or a GPU."""
    from gpu.outofcore import SGD, Trainer, TrainingOptions, vgg16
    from simwarp.lab import machines

    is_small, is_simulated = net is Net.digits, device is OneDevice.sim
    if not (is_small or explain) and is_simulated:
        raise SchemeError(
            f"training of {net} on a simulated device would take days\nits plan takes seconds\n"
            "give --explain, or --device cuda"
        )
    if is_small and images is not None:
        raise SchemeError("--images with the digits\nthere are 1,797 of them\nleave it out, or choose vgg16")
    count = (64 if is_small else 1024) if batch is None else batch
    devices = None if is_simulated else 1
    with machines.opened(device.value, topology, devices=devices, values=not explain, record=False) as on:
        with as_options(**_NAMES):
            trainer = Trainer(
                digits_network() if is_small else vgg16(norm=net is Net.vgg16bn),
                count,
                device=on.machine,
                sgd=SGD(rate, momentum, decay),
                memory_budget=(100_000 if is_small else 16 * 10**9) if budget is None else budget,
                options=TrainingOptions(depth, accumulation, parameters),  # type: ignore[arg-type]
                seed=seed,
            )
        if explain:
            facts = planned(trainer, on.machine if is_simulated else None)
        else:
            sample = digits() if is_small else drawn(trainer, count if images is None else images, seed)
            facts = trained(trainer, sample, epochs, checkpoint, resume, quiet=as_json)
    facts = {"network": net.value, "device": device.value, "machine": on.name, **facts}
    if as_json:
        print_json(facts)
    else:
        _show(facts)
    return 0


def digits_network() -> Network:
    """A small network for images of 8 x 8."""
    from gpu.outofcore import Conv, Dense, Flatten, MaxPool, Network

    layers = Conv(8, activation="relu"), MaxPool(), Conv(16, activation="relu"), Flatten(), Dense(10)
    return Network((1, 8, 8), layers)


def planned(trainer: Trainer, machine: Any) -> dict[str, Any]:
    """The plan of a training, and the timeline of one step on a simulated machine without values."""
    from gpu.outofcore.networks.rehearsal import rehearse

    plan = trainer.explain()
    return _plan(trainer) | {"seconds": rehearse(plan, machine) if machine else None}


@dataclass(frozen=True)
class Sample:
    """Images and labels for training, and a test set that may be empty."""

    images: Any
    labels: Any
    others: Any
    answers: Any


def trained(
    trainer: Trainer,
    sample: Sample,
    epochs: int,
    checkpoint: Path | None,
    resume: Path | None,
    *,
    quiet: bool,
) -> dict[str, Any]:
    """Train, and report the plan, the steps, the loss, and the share of test images that are recognised."""
    if resume is not None:
        trainer.load(resume)
    with trainer, total_bar("steps", MofNCompleteColumn(), quiet=quiet) as show:
        losses = trainer.train(
            sample.images,
            sample.labels,
            epochs=epochs,
            progress=lambda at: show(at.step, at.steps),
            checkpoint=checkpoint,
        )
        right = None
        if len(sample.others):
            right = float((trainer.logits(sample.others).argmax(1) == sample.answers).mean())
    return _plan(trainer) | {
        "epochs": epochs,
        "steps": trainer.steps,
        "loss": losses[-1] if losses else None,
        "accuracy": right,
        **asdict(trainer.statistics),
    }


def _plan(trainer: Trainer) -> dict[str, Any]:
    plan = trainer.explain()
    timeline = plan.timeline
    return {
        "batch": plan.batch,
        "budget": plan.budget,
        "device_bytes": plan.device.nbytes,
        "accumulates": plan.accumulates,
        "segments": len(plan.segments),
        "bytes_in": timeline.nbytes("in"),
        "bytes_out": timeline.nbytes("out"),
        "predicted_seconds": timeline.seconds,
        "in_core_seconds": plan.in_core_seconds,
        "plan": str(plan).splitlines(),
    }


def digits() -> Sample:
    """Scikit-learn's handwritten digits as training images; every `HELD_BACK`-th one is for testing."""
    images, labels = _digits()
    rest = [index for index in range(len(labels)) if index % HELD_BACK]
    return Sample(images[rest], labels[rest], images[::HELD_BACK], labels[::HELD_BACK])


def drawn(trainer: Trainer, count: int, seed: int) -> Sample:
    """``count`` images of random noise with random labels, in the sizes of the trainer's network."""
    import numpy as np

    network, rng = trainer.explain().network, np.random.default_rng(seed)
    images = rng.random((count, *network.image), np.float32)
    return Sample(images, rng.integers(0, network.classes, count), images[:0], np.zeros(0, np.int64))


def _digits() -> tuple[Any, Any]:
    """Scikit-learn's digits: images (N, 1, 8, 8) float32 from 0 to 1, and labels."""
    try:
        datasets: Any = import_module("sklearn.datasets")
    except ImportError as error:
        raise MissingExtraError(
            f"the digits need scikit-learn, which is not installed ({error})\npip install 'simwarp[test]'"
        ) from None
    import numpy as np

    found, labels = datasets.load_digits(return_X_y=True)
    return (found.reshape(-1, 1, 8, 8) / 16).astype(np.float32), labels


def _show(facts: dict[str, Any]) -> None:
    """Print the plan of a training, and its measured and predicted times, as text."""
    console = wide_console(highlight=False)
    for line in facts["plan"]:
        console.print(Text(line))
    if facts["seconds"]:
        error = facts["predicted_seconds"] / facts["seconds"] - 1
        ratio = facts["seconds"] / facts["in_core_seconds"]
        on = "the simulated device" if facts["device"] == "sim" else facts["machine"]
        text = f"a step: {si(facts['seconds'], 's')} on {on}, {ratio:.3f} times"
        console.print(Text(f"{text} the routines in core; the model {error:+.1%}"))
    if "steps" in facts:
        loss = "" if facts["loss"] is None else f", loss {facts['loss']:.4f}"
        sys.stdout.write(f"{facts['steps']} steps{loss}")
        if facts["accuracy"] is not None:
            sys.stdout.write(f"; {facts['accuracy']:.1%} of the digits held back are recognised")
        sys.stdout.write("\n")
