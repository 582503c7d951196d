"""The data sets of the papers: files of a folder where they are, look-alikes until then."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reference.errors import InputFileError
from reference.types import Coo

ROOT = Path(__file__).resolve().parents[3]
"""The repository, if this is a checkout."""
_SUFFIXES = (".tns", ".tns.gz", ".npz")
IMAGES = {"mnist": (28, 28, 1), "cifar10": (32, 32, 3), "imagenet": (224, 224, 3)}
WANTED = (
    "NAME.tns, NAME.tns.gz or NAME.npz for nell2, darpa, fr_s, flick4d and uber4d (FROSTT, HaTen2);\n"
    "mnist.npy, cifar10.npy and imagenet.npy, uint8 of (N, H, W, C) with 28 × 28 × 1, 32 × 32 × 3 and "
    "224 × 224 × 3"
)
"""What a folder of ``--data`` holds; each file is optional."""


@dataclass(frozen=True)
class Data:
    """Tensors and images by name, from a folder or made up."""

    folder: Path | None = None

    def check(self) -> None:
        """Raise InputFileError unless the folder exists and has a file that is looked for."""
        if self.folder is None:
            return
        names = [f"{name}.npy" for name in IMAGES]
        if not self.folder.is_dir() or not any(
            path.name in names or path.name.endswith(_SUFFIXES) for path in self.folder.iterdir()
        ):
            raise InputFileError(
                f"{self.folder} is not a folder with data of the papers\nput there:\n{WANTED}"
            )

    def tensor(self, name: str, scale: float) -> tuple[Coo, str]:
        """A tensor in float32 and its origin; ``scale`` is that of the look-alike's nonzeros."""
        from reference.sparse import read_tensor, read_tns

        for suffix in _SUFFIXES if self.folder is not None else ():
            assert self.folder is not None
            path = self.folder / f"{name}{suffix}"
            if path.exists():
                found = read_tensor(path) if suffix == ".npz" else read_tns(path)
                return Coo(
                    found.coords, found.values.astype(np.float32), found.shape
                ), f"{name} of {path.name}"
        found = _look_alike(name, scale)
        return found, f"a look-alike of {name}, {found.values.size:,} nonzeros"

    def images(self, name: str, shape: tuple[int, ...], count: int) -> tuple[npt.NDArray[np.uint8], str]:
        """Images of a network's input shape and their origin; random ones without a file of that shape."""
        path = None if self.folder is None else self.folder / f"{name}.npy"
        if path is None or not path.exists() or IMAGES[name] != shape:
            images = np.random.default_rng(0).integers(0, 256, (count, *shape), dtype=np.uint8)
            return images, f"random images for {name}"
        try:
            found: Any = np.load(path, allow_pickle=False, mmap_mode="r")
            right = found.dtype == np.uint8 and found.shape[1:] == shape and len(found) >= count
        except (OSError, ValueError, EOFError) as error:
            raise InputFileError(f"{path} cannot be read: {error}\nput there:\n{WANTED}") from None
        if not right:
            raise InputFileError(
                f"{path} has {found.dtype} {found.shape}\nuint8 (N, {', '.join(map(str, shape))}) with N of "
                f"{count} or more is needed\nput there:\n{WANTED}"
            )
        return np.ascontiguousarray(found[:count]), f"images of {path.name}"


def _look_alike(name: str, scale: float) -> Coo:
    """A tensor of ``benchmarks/tensors.py``, which has the shape of the paper's."""
    script = ROOT / "benchmarks" / "tensors.py"
    if not script.is_file():
        raise InputFileError(
            f"{name}: the look-alikes are made by benchmarks/tensors.py of simwarp's repository, which this "
            f"installation does not have\nrun it there, or give --data FOLDER and put there:\n{WANTED}"
        )
    sys.path.insert(0, str(script.parent))
    try:
        made: Coo = import_module("tensors").make(name, scale)
    finally:
        sys.path.remove(str(script.parent))
    return made
