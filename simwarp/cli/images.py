"""Images for a network: from an image file, a folder of them, or an array in a .npy file, part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.bnn import Input, Reals
from reference.errors import InputFileError, MissingExtraError
from simwarp.cli.files import read_array

Array: TypeAlias = npt.NDArray[Any]

_AT_ONCE = 1 << 22
"""Elements of the images of one part."""
_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


@dataclass(frozen=True)
class Images:
    """The input images of a network, read from their files part by part."""

    names: list[str]  # name of each image: its file, or its index in the array
    part: Callable[[range], Array]  # function that reads a range of images, (N, *shape)
    at_once: int  # images of one part

    def parts(self) -> Iterator[Array]:
        """Yield all images as arrays of at most ``at_once`` images."""
        count = len(self.names)
        for start in range(0, count, self.at_once):
            yield self.part(range(start, min(start + self.at_once, count)))


def open_images(path: Path, given: Input, most: int = 64) -> Images:
    """The images of a file or folder for a network's input, read at most ``most`` at a time."""
    at_once = max(1, min(most, _AT_ONCE // int(np.prod(given.shape))))
    if path.suffix == ".npy":
        array = _array(path, given.shape)
        names = [str(i) for i in range(len(array))]
        return Images(names, lambda part: array[part.start : part.stop], at_once)
    paths = _files(path)
    if len(given.shape) != 3 or isinstance(given, Reals):
        needed = f"float32 (N, {', '.join(map(str, given.shape))})"
        needed = needed if isinstance(given, Reals) else needed.replace("float32", "uint8")
        raise InputFileError(
            f"{path} has images of bytes, and the network takes {needed}\n"
            "prepare them as its training did, and give a .npy file"
        )
    return Images(
        [str(one) for one in paths],
        lambda part: np.stack([_read(paths[i], given.shape) for i in part]),
        at_once,
    )


def _array(path: Path, shape: tuple[int, ...]) -> Array:
    """The images in a .npy file; the network checks their elements."""
    array = read_array(path)
    if array.shape[1:] != shape or array.ndim == 0 or len(array) == 0:
        one = "; add an axis, images[None]" if array.shape == shape else ""
        raise InputFileError(
            f"{path} holds an array {array.shape}, and the network takes (N, {', '.join(map(str, shape))})\n"
            f"crop and scale images as the network's training did{one}"
        )
    return array


def _files(path: Path) -> list[Path]:
    """The image files of a folder in the order of their names, or one file."""
    if not path.is_dir():
        return [path]
    found = sorted(one for one in path.iterdir() if one.suffix.lower() in _SUFFIXES and one.is_file())
    if not found:
        raise InputFileError(f"{path} has no images\nknown are {', '.join(_SUFFIXES)}")
    return found


def _read(path: Path, shape: tuple[int, ...]) -> Array:
    """An image as bytes (H, W, C); its size is checked before its pixels are decoded."""
    pillow = _pillow()
    height, width, channels = shape
    if channels not in (1, 3):
        raise InputFileError(
            f"{path}: the network takes {channels} channels, and images have 1 or 3\ngive a .npy file"
        )
    try:
        with pillow.open(path) as image:
            if image.size != (width, height):
                found = " × ".join(map(str, image.size))
                raise InputFileError(
                    f"{path} is {found} pixels, and the network takes {width} × {height}\n"
                    "crop and scale it as the network's training did"
                )
            pixels = image.convert("L" if channels == 1 else "RGB")
            return np.asarray(pixels, np.uint8).reshape(shape)
    except InputFileError:
        raise
    except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise InputFileError(
            f"{path} cannot be read as an image: {reason}\ngive an image, a folder of them, or a .npy file"
        ) from None


def _pillow() -> Any:
    try:
        return import_module("PIL.Image")
    except ImportError as error:
        raise MissingExtraError(
            f"image files need pillow, which is not installed ({error})\npip install 'simwarp[net]'"
        ) from None
