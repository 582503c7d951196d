"""Training of binarized models: Adam, latent weights within -1 … 1, and checkpoints that can be resumed."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from reference.errors import InputFileError, MissingExtraError, SchemeError
from reference.files import write_output
from simwarp.torch.layers import clip_latent_weights
from simwarp.torch.pytorch import torch


class Epoch(NamedTuple):
    """The mean loss and accuracy of an epoch of training.

    Attributes
    ----------
    loss : float
        The mean cross-entropy of its batches, in nats.
    accuracy : float
        The share of its images whose class was right, before the step that they caused.
    """

    loss: float
    accuracy: float


def train(
    model: Any,
    data: Any,
    *,
    epochs: int,
    batch: int = 64,
    rate: float = 0.01,
    seed: int = 0,
    augment: Callable[[Any], Any] | None = None,
    checkpoint: Path | str | None = None,
    progress: bool = True,
) -> list[Epoch]:
    """Train a binarized model by Adam on the cross-entropy of its logits.

    The rate falls to 0 along a cosine; after each step the latent weights are limited to -1 … 1. Each epoch
    has a seed of its own, so that on one machine a resumed training ends like one that was not interrupted.

    Parameters
    ----------
    model : torch.nn.Module
        Changed; it is left in its state for evaluation, on the device where it was.
    data : pair of tensors, or torch.utils.data.Dataset
        Images and their classes (integers).
    epochs, batch : int
        Times that each image is seen; images of a step. A last, smaller batch is left out.
    rate : float
        Adam's first.
    seed : int
    augment : callable, optional
        Changes a batch of images. It may draw from torch's generator.
    checkpoint : path, optional
        Written whole after each epoch. If it is there, training goes on from it.
    progress : bool
        Whether to show a bar.

    Returns
    -------
    list of Epoch
        Those of a checkpoint included.

    Raises
    ------
    InputFileError
        For a checkpoint that cannot be read or written.
    SchemeError
        For a checkpoint of another model or other settings, or fewer images than a batch.

    Examples
    --------
    >>> import torch
    >>> from simwarp.torch import BinaryLinear, ImageSigns
    >>> _ = torch.manual_seed(0)
    >>> images = torch.tensor([[0], [1]], dtype=torch.uint8).repeat(8, 8)
    >>> model = torch.nn.Sequential(ImageSigns(1), BinaryLinear(8, 2), torch.nn.BatchNorm1d(2))
    >>> history = train(model, (images, images[:, 0].long()), epochs=5, batch=8, progress=False)
    >>> len(history), history[-1].loss < history[0].loss
    (5, True)
    """
    dataset = torch.utils.data.TensorDataset(*data) if isinstance(data, tuple) else data
    if len(dataset) < batch:
        raise SchemeError(
            f"there are {len(dataset)} images, fewer than a batch of {batch}: give a smaller batch"
        )
    settings = {"epochs": epochs, "batch": batch, "rate": rate, "seed": seed, "images": len(dataset)}
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    history = _resumed(checkpoint, model, optimiser, settings)
    with torch.random.fork_rng(), _bar(epochs, len(history), progress) as show:
        for epoch in range(len(history), epochs):
            torch.manual_seed(1_000_003 * seed + epoch)
            for group in optimiser.param_groups:
                group["lr"] = rate * (1 + math.cos(math.pi * epoch / epochs)) / 2
            loader = torch.utils.data.DataLoader(dataset, batch, shuffle=True, drop_last=True)
            history.append(_epoch(model, optimiser, loader, augment))
            _save(checkpoint, model, optimiser, settings, history)
            show(history[-1])
    model.eval()
    return history


def predict(model: Any, images: Any, *, batch: int = 1024) -> Any:
    """The classes of images, computed by a model in evaluation mode.

    Parameters
    ----------
    model : torch.nn.Module
        On whatever device; its state for training or evaluation is as before afterwards.
    images : tensor, (N, ...)
    batch : int
        Images at once.

    Returns
    -------
    tensor of int64, (N,)
        On the host.

    Examples
    --------
    >>> import torch
    >>> from simwarp.torch import ImageSigns
    >>> predict(ImageSigns(5), torch.tensor([[9, 1], [1, 9]], dtype=torch.uint8)).tolist()
    [0, 1]
    """
    training, _ = model.training, model.eval()
    device = _device(model)
    with torch.no_grad():
        parts = [model(part.to(device)).argmax(1).cpu() for part in images.split(batch)]
    model.train(training)
    return torch.cat(parts)


def _epoch(model: Any, optimiser: Any, loader: Any, augment: Callable[[Any], Any] | None) -> Epoch:
    """Train a model for one epoch: one optimiser step for each batch."""
    model.train()
    device, loss_sum, right, seen = _device(model), 0.0, 0, 0
    for images, classes in loader:
        given = images if augment is None else augment(images)
        expected = classes.to(device)
        logits = model(given.to(device))
        loss = torch.nn.functional.cross_entropy(logits, expected)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        clip_latent_weights(model)
        loss_sum += float(loss.detach()) * len(expected)
        right += int((logits.argmax(1) == expected).sum())
        seen += len(expected)
    return Epoch(loss_sum / seen, right / seen)


def _device(model: Any) -> Any:
    """The device of the model's first parameter or buffer; the CPU if it has none."""
    for tensor in (*model.parameters(), *model.buffers()):
        return tensor.device
    return torch.device("cpu")


def _save(path: Path | str | None, model: Any, optimiser: Any, settings: Any, history: list[Epoch]) -> None:
    if path is None:
        return
    content = BytesIO()
    state = {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "settings": settings}
    torch.save({**state, "history": [tuple(epoch) for epoch in history]}, content)
    write_output(path, lambda file: file.write(content.getvalue()))


def _resumed(path: Path | str | None, model: Any, optimiser: Any, settings: Any) -> list[Epoch]:
    """Load a checkpoint if the file exists; return the epochs trained before it."""
    if path is None or not Path(path).exists():
        return []
    try:
        state = torch.load(path, weights_only=True, map_location=_device(model))
        found, history = state["settings"], [Epoch(*epoch) for epoch in state["history"]]
    except Exception as error:
        raise InputFileError(
            f"{path} cannot be read as a checkpoint: {error}\ndelete it, or name another file"
        ) from None
    if found != settings:
        raise SchemeError(
            f"{path} is a checkpoint of {found}\nand this training has {settings}\nname another file"
        )
    try:
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
    except (RuntimeError, ValueError) as error:
        raise SchemeError(f"{path} is a checkpoint of another model\nname another file\n{error}") from None
    return history


@contextmanager
def _bar(epochs: int, done: int, shown: bool) -> Generator[Callable[[Epoch], None]]:
    """A bar of epochs, with the last one's loss and accuracy."""
    if not shown:
        yield lambda epoch: None
        return
    try:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError as error:
        raise MissingExtraError(
            f"the bar needs rich, which is not installed ({error})\n"
            "pip install 'simwarp[torch]', or pass progress=False",
            name="rich",
        ) from None
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns) as progress:
        task = progress.add_task("", total=epochs, completed=done)
        yield lambda epoch: progress.update(
            task, advance=1, description=f"loss {epoch.loss:.3f}, {epoch.accuracy:.1%} right"
        )
