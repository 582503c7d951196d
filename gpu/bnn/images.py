"""Images for a network: checks of their type, shape and values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.device import is_array, is_foreign
from reference.errors import DtypeError, NotANumberError, RangeError, ShapeError
from reference.types.fields import as_array
from reference.types.network import BitPlanes, Input, Pixels, Reals, Signs

INT16_MIN, INT16_MAX = -(2**15), 2**15 - 1
_DTYPES = {
    Pixels: ("uint8",),
    Reals: ("float32",),
    Signs: ("uint8", "float32"),
    BitPlanes: ("uint8",),
}


def checked_images(given: Input, images: Any) -> Any:
    """Images as an array (N, *shape) on the host or a device; raise unless the input layer accepts them."""
    if is_foreign(images):
        raise DtypeError(
            f"images are a {type(images).__name__} of another library\n"
            "give a NumPy array, or an array of the device: device.adopt(images)"
        )
    array = images if is_array(images) else as_array(images, "images", "an array of images")
    names = dtypes_of(given)
    if np.dtype(array.dtype).name not in names:
        raise DtypeError(
            f"images are of {array.dtype}, and {type(given).__name__} takes {' or '.join(names)}\n"
            "convert them as the network's training did"
        )
    shape = tuple(array.shape)
    if len(shape) != len(given.shape) + 1 or shape[1:] != given.shape or shape[0] == 0:
        raise ShapeError(
            f"images have shape {shape}: the network takes (N, {', '.join(map(str, given.shape))})"
        )
    return array


def dtypes_of(given: Input) -> tuple[str, ...]:
    """The dtypes of images that an input layer accepts."""
    return _DTYPES[type(given)]


def can_be_strange(given: Input, images: Any) -> bool:
    """True if images may contain numbers that are refused: NaN, infinity, or beyond int16."""
    return isinstance(given, Reals | Signs) and np.dtype(images.dtype) == np.float32


def refuse_strange(given: Input, images: npt.NDArray[Any], first: int = 0) -> None:
    """Raise for the first number that is not finite, else for the first beyond int16.

    ``first`` is the number of the first image.
    """
    strange = ~np.isfinite(images)
    if strange.any():
        at, place = _first(strange, first)
        raise NotANumberError(f"images[{place}] is {images[at]}: give finite numbers")
    if not isinstance(given, Reals):
        return
    numbers = np.rint(np.ldexp(images.astype(np.float64), given.fraction))
    beyond = (numbers < INT16_MIN) | (numbers > INT16_MAX)
    if beyond.any():
        at, place = _first(beyond, first)
        raise RangeError(
            f"images[{place}] is {images[at]}: with fraction={given.fraction} it is "
            f"beyond {INT16_MIN} … {INT16_MAX}\nnormalise the images, or give the input a smaller fraction"
        )


def _first(found: npt.NDArray[np.bool_], image: int) -> tuple[tuple[int, ...], str]:
    """The index of the first True element, and its position among all images as text."""
    at = tuple(map(int, np.argwhere(found)[0]))
    return at, ", ".join(map(str, (at[0] + image, *at[1:])))
