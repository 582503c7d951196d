"""Train the papers' MLP on MNIST or VGG on CIFAR-10, from a folder of yours, and test the exported network.

    python examples/networks/accuracy.py mnist FOLDER [--epochs N] [--bits]
    python examples/networks/accuracy.py cifar10 FOLDER [--epochs N] [--bits]

FOLDER has MNIST's four files (``train-images-idx3-ubyte`` …, also ``.gz``), or those of CIFAR-10's binary
version (``data_batch_1.bin`` … ``test_batch.bin``). The network is written there, and tested in exact
integers by `gpu.bnn` if there is a GPU, else by `reference.bnn`. ``--bits`` counts bits in training, too.
"""

import argparse
import gzip
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Images = npt.NDArray[np.uint8]
"""uint8 (N, H, W, C)."""
Part = tuple[Images, npt.NDArray[np.int64]]
"""Images and their classes."""

PRINTED = {"mnist": 97.6, "cifar10": 88.7}
"""Percent, of the binarized networks of table 3 of BSTC and table 5 of BTC."""
NAMES = {
    "mnist": [*"0123456789"],
    "cifar10": ["plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"],
}
_PIXELS = 3 * 32 * 32


def _bytes(folder: Path, name: str) -> bytes:
    """The bytes of a file, which may be compressed."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    sys.exit(f"{folder} has no {name}\nput the files of the data set there")


def idx(folder: Path, name: str) -> Images:
    """An array of bytes in the format of MNIST: its dimensions, as big-endian numbers, and its elements."""
    data = _bytes(folder, name)
    count = data[3] if data[:3] == b"\0\0\x08" else 0
    shape = np.frombuffer(data, ">u4", count, 4) if len(data) >= 4 + 4 * count > 4 else np.zeros(0, ">u4")
    elements = np.frombuffer(data, np.uint8, offset=4 + 4 * count) if shape.size else np.zeros(0, np.uint8)
    if not shape.size or elements.size != np.prod(shape.astype(object)):
        sys.exit(f"{name} is not an array of bytes in the format IDX, or is cut off")
    return elements.reshape(shape.tolist())


def mnist(folder: Path) -> tuple[Part, Part]:
    """The images to train with, and those to test with."""
    train, test = (
        (idx(folder, f"{part}-images-idx3-ubyte")[..., None], idx(folder, f"{part}-labels-idx1-ubyte"))
        for part in ("train", "t10k")
    )
    return (train[0], train[1].astype(np.int64)), (test[0], test[1].astype(np.int64))


def cifar10(folder: Path) -> tuple[Part, Part]:
    """The images to train with, and those to test with."""
    parts = [[f"data_batch_{number}.bin" for number in range(1, 6)], ["test_batch.bin"]]
    train, test = (_records(b"".join(_bytes(folder, name) for name in names)) for names in parts)
    return train, test


def _records(data: bytes) -> Part:
    """Images (C, H, W) of CIFAR-10, each behind the byte of its class."""
    if not data or len(data) % (1 + _PIXELS):
        sys.exit("the files are not records of CIFAR-10's binary version, or are cut off")
    rows = np.frombuffer(data, np.uint8).reshape(-1, 1 + _PIXELS)
    images = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), rows[:, 0].astype(np.int64)


READERS: dict[str, Callable[[Path], tuple[Part, Part]]] = {"mnist": mnist, "cifar10": cifar10}


def model_of(name: str, products: Any, width: int = 1) -> Any:
    """The MLP of 1024FC-1024FC-1024FC, or the VGG of table 3; ``width`` divides their sizes."""
    from torch import nn

    from simwarp.torch import BinaryConv2d, BinaryLinear, ImagePixels, Sign

    layers: list[Any] = [ImagePixels(scale=2, offset=-255, fraction=8)]

    def dense(given: int, made: int) -> list[Any]:
        how = products if len(layers) > 2 else "floats"  # the first layer has pixels
        return [BinaryLinear(given, made, products=how), nn.BatchNorm1d(made), Sign()]

    size, features = 28, 28 * 28
    if name == "cifar10":
        size, given = 32, 3
        for channels in (128 // width, 256 // width, 512 // width):
            for pool in (False, True):
                how = products if len(layers) > 1 else "floats"
                layers.append(BinaryConv2d(given, channels, 3, padding=1, products=how))
                layers += [nn.MaxPool2d(2)] if pool else []
                layers += [nn.BatchNorm2d(channels), Sign()]
                given = channels
            size //= 2
        features = given * size * size
    layers.append(nn.Flatten())
    for made in [1024 // width] * (3 if name == "mnist" else 2):
        layers += dense(features, made)
        features = made
    layers += [BinaryLinear(features, 10, products=products), nn.BatchNorm1d(10)]
    return nn.Sequential(*layers)


def right(network: Any, images: Images, classes: npt.NDArray[np.int64]) -> float:
    """The percentage of images whose class an exported network names, in exact integers."""
    import gpu.bnn
    import reference
    import reference.bnn

    try:
        run: Any = gpu.bnn.prepare(network).run
    except reference.NoGpuError:
        run = lambda part: reference.bnn.run(network, part)  # noqa: E731
    parts = [run(images[first : first + 500]).classes for first in range(0, len(images), 500)]
    return 100 * float((np.concatenate([np.asarray(each) for each in parts]) == classes).mean())


def main(arguments: list[str]) -> None:
    """Train, export, test, and print the accuracy beside the papers'."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", choices=READERS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--width", type=int, default=1, help="divides the sizes of layers")
    parser.add_argument("--bits", action="store_true", help="count bits in the forward pass of the training")
    given = parser.parse_args(arguments)
    (images, classes), (unseen, truth) = READERS[given.data](given.folder)
    import torch

    import reference.bnn
    from simwarp.torch import export, train

    torch.manual_seed(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = model_of(given.data, "bits" if given.bits else "floats", given.width).to(device)
    known = torch.from_numpy(images.transpose(0, 3, 1, 2).copy()).to(device)
    path = given.folder / f"{given.data}.safetensors"
    train(
        model,
        (known, torch.from_numpy(classes).to(device)),
        epochs=given.epochs,
        checkpoint=path.with_suffix(".pt"),
        progress=sys.stderr.isatty(),
    )
    about = f"Trained by examples/networks/accuracy.py for {given.epochs} epochs."
    example = known[:1].cpu()
    network = export(model.double().cpu(), example, name=given.data, classes=NAMES[given.data], about=about)
    reference.bnn.save(network, path)
    percent = right(network, unseen, truth)
    print(f"{given.data}: {percent:.2f} % of {len(truth):,} are right, printed {PRINTED[given.data]} %")


if __name__ == "__main__":
    main(sys.argv[1:])
