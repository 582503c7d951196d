"""Images as a network's first value: bits or integers.

>>> import numpy as np
>>> from reference.types.network import Reals
>>> first_value(Reals((2,), fraction=1), np.array([[0.25, 0.75]], np.float32))
array([[0, 2]], dtype=int32)
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, NotANumberError, RangeError, ShapeError
from reference.types.fields import as_array
from reference.types.network import BitPlanes, Input, Pixels, Reals, Signs

Array: TypeAlias = npt.NDArray[Any]

INT16_MIN, INT16_MAX = -(2**15), 2**15 - 1
_DTYPES = {
    Pixels: (np.uint8,),
    Reals: (np.float32,),
    Signs: (np.uint8, np.float32),
    BitPlanes: (np.uint8,),
}


def checked_images(given: Input, images: npt.ArrayLike) -> Array:
    """The images as an array (N, *shape); raise unless an input takes them."""
    array = as_array(images, "images", "an array of images")
    dtypes = _DTYPES[type(given)]
    if array.dtype not in dtypes:
        names = " or ".join(str(np.dtype(dtype)) for dtype in dtypes)
        raise DtypeError(
            f"images are of {array.dtype}, and {type(given).__name__} takes {names}\n"
            "convert them as the network's training did"
        )
    if array.ndim != len(given.shape) + 1 or array.shape[1:] != given.shape or len(array) == 0:
        raise ShapeError(
            f"images have shape {array.shape}: the network takes (N, {', '.join(map(str, given.shape))})"
        )
    if array.dtype == np.float32:
        strange = ~np.isfinite(array)
        if strange.any():
            at = tuple(map(int, np.argwhere(strange)[0]))
            raise NotANumberError(f"images[{', '.join(map(str, at))}] is {array[at]}: give finite numbers")
    return array


def first_value(given: Input, images: Array) -> Array:
    """The input layer's output for checked images: bits as uint8, integers as int32."""
    match given:
        case Pixels(scale=scale, offset=offset):
            return images.astype(np.int32) * scale + offset
        case Reals(fraction=fraction):
            return _fixed_point(images, fraction)
        case Signs(thresholds=thresholds):
            return (images.astype(np.float32) >= thresholds).astype(np.uint8)
        case BitPlanes():
            return np.unpackbits(images, axis=-1)


def _fixed_point(images: Array, fraction: int) -> npt.NDArray[np.int32]:
    """``x * 2**fraction``, rounded to the nearest integer; float64 holds the product exactly."""
    numbers = np.rint(np.ldexp(images.astype(np.float64), fraction))
    beyond = (numbers < INT16_MIN) | (numbers > INT16_MAX)
    if beyond.any():
        at = tuple(map(int, np.argwhere(beyond)[0]))
        raise RangeError(
            f"images[{', '.join(map(str, at))}] is {images[at]}: with fraction={fraction} it is "
            f"beyond {INT16_MIN} … {INT16_MAX}\nnormalise the images, or give the input a smaller fraction"
        )
    return numbers.astype(np.int32)
