"""The command ``simwarp ooc train``: training of a network within a memory budget, on a simulated device."""

from __future__ import annotations

import sys
from dataclasses import asdict
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import MofNCompleteColumn
from rich.text import Text

from reference.errors import MissingExtraError, SchemeError
from simwarp.cli.output import Json, as_options, print_json, total_bar, wide_console
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
        Net, typer.Argument(help="A small one for scikit-learn's digits; VGG16 is only planned.")
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
    """Train a network whose activations do not fit the budget, on a simulated device."""
    from gpu.outofcore import SGD, Trainer, TrainingOptions, vgg16
    from simwarp.lab.machines import topology_of
    from simwarp.machine import Machine

    if net is not Net.digits and not explain:
        raise SchemeError(f"training of {net} would take days here\nits plan takes a second\ngive --explain")
    network = digits_network() if net is Net.digits else vgg16(norm=net is Net.vgg16bn)
    machine = Machine(topology_of(topology), values=not explain)
    with as_options(**_NAMES):
        trainer = Trainer(
            network,
            (64 if net is Net.digits else 1024) if batch is None else batch,
            device=machine,
            sgd=SGD(rate, momentum, decay),
            memory_budget=(100_000 if net is Net.digits else 16 * 10**9) if budget is None else budget,
            options=TrainingOptions(depth, accumulation, parameters),  # type: ignore[arg-type]
            seed=seed,
        )
    facts = (
        planned(trainer, machine) if explain else trained(trainer, epochs, checkpoint, resume, quiet=as_json)
    )
    if as_json:
        print_json({"network": net.value, "topology": topology, **facts})
    else:
        _show(facts)
    return 0


def digits_network() -> Network:
    """A small network for images of 8 x 8."""
    from gpu.outofcore import Conv, Dense, Flatten, MaxPool, Network

    layers = Conv(8, activation="relu"), MaxPool(), Conv(16, activation="relu"), Flatten(), Dense(10)
    return Network((1, 8, 8), layers)


def planned(trainer: Trainer, machine: Any) -> dict[str, Any]:
    """The plan, and a step of it on the clock of a machine without values."""
    from gpu.outofcore.networks.rehearsal import rehearse

    return _plan(trainer) | {"seconds": rehearse(trainer.explain(), machine)}


def trained(
    trainer: Trainer, epochs: int, checkpoint: Path | None, resume: Path | None, *, quiet: bool
) -> dict[str, Any]:
    """The plan, what training it took, and how many of the digits held back are recognised."""
    images, labels = _digits()
    rest = [index for index in range(len(labels)) if index % HELD_BACK]
    if resume is not None:
        trainer.load(resume)
    with trainer, total_bar("steps", MofNCompleteColumn(), quiet=quiet) as show:
        losses = trainer.train(
            images[rest],
            labels[rest],
            epochs=epochs,
            progress=lambda at: show(at.step, at.steps),
            checkpoint=checkpoint,
        )
        found = trainer.logits(images[::HELD_BACK]).argmax(1)
    return _plan(trainer) | {
        "epochs": epochs,
        "steps": trainer.steps,
        "loss": losses[-1] if losses else None,
        "accuracy": float((found == labels[::HELD_BACK]).mean()),
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


def _digits() -> tuple[Any, Any]:
    """Scikit-learn's digits, from 0 to 1."""
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
    """Print a report for readers."""
    console = wide_console(highlight=False)
    for line in facts["plan"]:
        console.print(Text(line))
    if facts["seconds"]:
        error = facts["predicted_seconds"] / facts["seconds"] - 1
        ratio = facts["seconds"] / facts["in_core_seconds"]
        text = f"a step: {si(facts['seconds'], 's')} on the simulated device, {ratio:.3f} times"
        console.print(Text(f"{text} the routines in core; the model {error:+.1%}"))
    if "accuracy" in facts:
        loss = "" if facts["loss"] is None else f", loss {facts['loss']:.4f}"
        sys.stdout.write(
            f"{facts['steps']} steps{loss}; {facts['accuracy']:.1%} of the digits held back are recognised\n"
        )
