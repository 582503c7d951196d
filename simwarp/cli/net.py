"""The command ``simwarp net``: show a binarized network, run it on images, and convert from other formats."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import DownloadColumn, MofNCompleteColumn
from rich.text import Text

from reference.errors import SchemeError
from simwarp.cli.output import (
    Json,
    as_options,
    cuda_device,
    print_json,
    table,
    total_bar,
    wide_console,
)
from simwarp.cli.study import study_command
from simwarp.draw.text import printable

if TYPE_CHECKING:
    import numpy.typing as npt

    from reference.bnn import Answer, Network
    from simwarp.cli.images import Images

net_app = typer.Typer(
    help="Look at binarized networks, run them on images, convert and study them.", no_args_is_help=True
)
net_app.command("study")(study_command)

File = Annotated[Path, typer.Argument(help="A .safetensors file that reference.bnn.save wrote.")]


class Tier(StrEnum):
    """Values of ``--device``."""

    reference = "reference"
    sim = "sim"
    cuda = "cuda"


class Model(StrEnum):
    """The networks of the papers by name; "keras" reads the network from the file."""

    mlp = "mlp"
    vgg_cifar = "vgg-cifar"
    resnet14 = "resnet14"
    alexnet = "alexnet"
    vgg16 = "vgg16"
    resnet18 = "resnet18"
    keras = "keras"


class Form(StrEnum):
    """Values of ``--form``."""

    code = "code"
    paper = "paper"
    sc19 = "sc19"


class Given(StrEnum):
    """Values of ``--images``."""

    floats = "floats"
    bytes = "bytes"


@net_app.command("info")
def info_command(file: File, as_json: Json = False) -> int:
    """Show the layers of a network: each one's output, weights and multiply-adds."""
    from reference import bnn

    network = bnn.load(file)
    facts = {"file": str(file), "bytes": file.stat().st_size, **_facts(network)}
    print_json(facts) if as_json else _show(facts)
    return 0


@net_app.command("run")
def run_command(
    file: File,
    images: Annotated[
        Path,
        typer.Argument(help="An image, a folder of images, or a .npy file (N, H, W, C) of uint8 or float32."),
    ],
    device: Annotated[Tier, typer.Option(help="What runs the network.")] = Tier.reference,
    top: Annotated[int, typer.Option(min=1, help="So many classes of each image, the best first.")] = 1,
    as_json: Json = False,
) -> int:
    """Classify images: the classes with the largest logits."""
    import numpy as np

    from reference import bnn
    from simwarp.cli.images import open_images

    network = bnn.load(file)
    given = open_images(images, network.input, most=8 if device is Tier.sim else 64)
    answer = _answer(_on(device, network), given, quiet=as_json)
    order = np.argsort(-answer.logits, axis=1, kind="stable")[:, :top]
    rows: list[dict[str, Any]] = [
        {"image": name, "classes": [_scored(network, answer, i, k) for k in best]}
        for i, (name, best) in enumerate(zip(given.names, order.tolist(), strict=True))
    ]
    if as_json:
        print_json({"network": network.name, "device": device.value, "images": rows})
    else:
        _show_classes(rows)
    return 0


@net_app.command("convert")
def convert_command(
    model: Annotated[Model, typer.Argument(help="Which of the papers' networks; or keras.")],
    source: Annotated[
        Path,
        typer.Argument(
            help="A text file of numbers, as the papers' programs read it; of keras an HDF5 file or a .npz."
        ),
    ],
    target: Annotated[Path, typer.Argument(help="A .safetensors file; replaced when all is done.")],
    form: Annotated[Form, typer.Option(help="As in the programs, or in the papers' tables.")] = Form.code,
    images: Annotated[
        Given,
        typer.Option(
            help="What it takes: normalised floats, or bytes, whose normalisation is rounded; "
            "of keras it is x / 127.5 - 1, exactly."
        ),
    ] = Given.floats,
    config: Annotated[
        Path | None, typer.Option(help="Of keras: the text of model.to_json(), for a file without it.")
    ] = None,
    fixed_point: Annotated[
        int | None, typer.Option(min=0, max=30, help="Of keras: binary digits of values that are rounded.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Write a network with the weights of the papers' programs, or of a Keras model with layers of larq."""
    from reference import bnn

    with as_options(form="--form", config="--config", fixed_point="--fixed-point"):
        if model is Model.keras:
            if form is not Form.code:
                raise SchemeError(f"there is no --form {form.value} of keras\nleave it out")
            network = bnn.from_keras(source, config=config, images=images.value, fixed_point=fixed_point)
        else:
            if config is not None or fixed_point is not None:
                raise SchemeError("--config and --fixed-point are for keras\nleave them out")
            with total_bar("reading", DownloadColumn(), quiet=as_json) as progress:
                network = bnn.from_text(
                    source, model.value, form=form.value, images=images.value, progress=progress
                )
    bnn.save(network, target)
    if as_json:
        print_json({"output": str(target), "bytes": target.stat().st_size, **_facts(network)})
    else:
        wide_console(stderr=True).print(Text(f"wrote {target}: {network.name}"))
    return 0


def _on(device: Tier, network: Network) -> Callable[[npt.NDArray[Any]], Any]:
    """The function that runs a network: the definition, or the production kernels on a device."""
    from reference import bnn

    if device is Tier.reference:
        return partial(bnn.run, network)
    import gpu.bnn
    import simwarp

    on = simwarp.Device() if device is Tier.sim else cuda_device()
    return gpu.bnn.prepare(network, device=on).run


def _answer(run: Callable[[npt.NDArray[Any]], Any], images: Images, *, quiet: bool) -> Answer:
    """Run a network on all images, with a progress bar."""
    import numpy as np

    from reference.bnn import Answer

    answers: list[Any] = []
    done = 0
    with total_bar("images", MofNCompleteColumn(), quiet=quiet) as progress:
        for part in images.parts():
            answers.append(run(part))
            done += len(part)
            progress(done, len(images.names))
    return Answer(*(np.concatenate(arrays) for arrays in zip(*answers, strict=True)))


def _scored(network: Network, answer: Answer, image: int, index: int) -> dict[str, Any]:
    return {
        "class": index,
        "name": network.classes[index] if network.classes else None,
        "logit": float(answer.logits[image, index]),
        "sum": int(answer.sums[image, index]),
    }


def _facts(network: Network) -> dict[str, Any]:
    """The layers and sizes of a network as a JSON object, without its weights."""
    from reference.bnn import Threshold
    from reference.types.network_values import follow, input_value, multiply_adds, weights_of

    rows: list[dict[str, Any]] = []
    for path, layer, given in follow(network):
        rows.append(
            {
                "path": path,
                "type": type(layer).__name__,
                "detail": layer.detail,
                "gives": given.kind,
                "shape": list(given.shape),
                "weights": weights_of(layer),
                "thresholds": given.shape[-1] if isinstance(layer, Threshold) else 0,
                "multiply_adds": multiply_adds(layer, given),
            }
        )
    first = input_value(network.input)
    return {
        "name": network.name,
        "about": network.about,
        "input": {"type": type(network.input).__name__, "gives": first.kind, "shape": list(first.shape)},
        "classes": network.scale.size,
        "names": list(network.classes),
        "weights": sum(row["weights"] for row in rows),
        "multiply_adds": sum(row["multiply_adds"] for row in rows),
        "layers": rows,
    }


def _show_classes(rows: list[dict[str, Any]]) -> None:
    shown = table("image", "class", numbers=("logit", "sum"))
    for row in rows:
        for place, one in enumerate(row["classes"]):
            name = Text("" if place else printable(row["image"]))
            label = Text(printable(one["name"] or str(one["class"])))
            shown.add_row(name, label, f"{one['logit']:.6g}", str(one["sum"]))
    wide_console(highlight=False).print(shown)


def _show(facts: dict[str, Any]) -> None:
    console = wide_console(highlight=False)
    first = facts["input"]
    for line in (
        f"{facts['file']}: {facts['name']}, {facts['classes']} classes, {facts['bytes']} bytes",
        facts["about"],
        f"{facts['weights']} weights, {facts['multiply_adds']} multiply-adds for an image",
    ):
        if line:
            console.print(Text(printable(line)))
    shown = table("layer", "type", "", "gives", numbers=("weights", "multiply-adds"))
    shown.add_row("input", first["type"], "", f"{first['gives']} {_product(first['shape'])}")
    for row in facts["layers"]:
        numbers = [str(row[name] or "") for name in ("weights", "multiply_adds")]
        shown.add_row(
            row["path"], row["type"], row["detail"], f"{row['gives']} {_product(row['shape'])}", *numbers
        )
    console.print(shown)


def _product(shape: list[int]) -> str:
    return "×".join(map(str, shape))
