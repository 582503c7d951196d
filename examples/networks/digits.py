"""Train two binarized networks on handwritten digits, export them, and write them beside this file.

The digits are scikit-learn's: 1797 images of 8 × 8 bytes, 0 to 16. Every fourth is held back. The exported
networks compute in exact integers, and must give the class that PyTorch gives for every image.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import reference.bnn
from simwarp.torch import BinaryConv2d, BinaryLinear, ImagePixels, Sign, export, predict, train

FOLDER = Path(__file__).parent


def binary(*layers: nn.Module, channels: int) -> list[nn.Module]:
    """Layers, and the sign of their normalised sums."""
    norm = nn.BatchNorm2d if isinstance(layers[0], BinaryConv2d) else nn.BatchNorm1d
    return [*layers, norm(channels), Sign()]


def mlp() -> nn.Module:
    return nn.Sequential(
        ImagePixels(offset=-8, fraction=3),
        nn.Flatten(),
        *binary(BinaryLinear(64, 256), channels=256),
        *binary(BinaryLinear(256, 256), channels=256),
        BinaryLinear(256, 10),
        nn.BatchNorm1d(10),
    )


def conv() -> nn.Module:
    return nn.Sequential(
        ImagePixels(offset=-8, fraction=3),
        *binary(BinaryConv2d(1, 64, 3, padding=1), channels=64),
        *binary(BinaryConv2d(64, 64, 3, padding=1), nn.MaxPool2d(2), channels=64),
        *binary(BinaryConv2d(64, 128, 3, padding=1), nn.MaxPool2d(2), channels=128),
        nn.Flatten(),
        BinaryLinear(128 * 2 * 2, 10),
        nn.BatchNorm1d(10),
    )


def moved(images: torch.Tensor) -> torch.Tensor:
    """A batch, all of it moved by up to one pixel in each direction."""
    padded = nn.functional.pad(images, (1, 1, 1, 1))
    down, across = torch.randint(0, 3, (2,)).tolist()
    return padded[:, :, down : down + 8, across : across + 8]


digits, classes = load_digits(return_X_y=True)
images = torch.from_numpy(digits.astype(np.uint8).reshape(-1, 1, 8, 8))
held_back = torch.arange(len(images)) % 4 == 3
known = images[~held_back], torch.from_numpy(classes)[~held_back]
results = {}
for name, make, epochs, augment in (("digits-mlp", mlp, 60, None), ("digits-conv", conv, 30, moved)):
    torch.manual_seed(1)
    model = make()
    train(model, known, epochs=epochs, augment=augment, progress=sys.stderr.isatty())
    guesses = predict(model.double(), images).numpy()
    accuracy = (guesses == classes)[held_back].mean()
    how = f"{epochs} epochs{', moved by up to a pixel' if augment else ''}"
    network = export(
        model,
        images[:1],
        name=name,
        classes=list("0123456789"),
        about="Handwritten digits of scikit-learn, bytes 0 to 16. Trained by examples/networks/digits.py "
        f"on three in four for {how}; {accuracy:.1%} of the others are right.",
    )
    answer = reference.bnn.run(network, images.numpy().transpose(0, 2, 3, 1))
    if not np.array_equal(answer.classes, guesses):
        sys.exit(f"{name}: {(answer.classes != guesses).sum()} classes DIFFER from PyTorch's")
    reference.bnn.save(network, FOLDER / f"{name}.safetensors")
    results[name] = guesses[held_back.numpy()].tolist()
    print(f"{name}: {accuracy:.1%} of {len(results[name])} digits held back are right, as in PyTorch")
(FOLDER / "digits.json").write_text(json.dumps(results, separators=(",", ":")) + "\n")
