"""Binarized networks as plain data: an input, layers, and the scale of the last sums.

Two kinds of value flow from layer to layer: *bits* (1 means +1, 0 means -1) and *integers* (int32). An input
and a `Threshold` make bits of numbers, `Conv` and `Dense` make integers of bits. Nothing is rounded after the
input, so all tiers agree to the last bit. `reference.types.network_values` follows shapes and ranges.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from reference.types.layer_values import OF_FLOAT32, OF_INT32
from reference.types.layers import Layer
from reference.values import not_an_array, shortened

__all__ = [
    "Answer",
    "BitPlanes",
    "EnsembleAnswer",
    "Input",
    "Network",
    "Pixels",
    "Reals",
    "Signs",
]
"""What `reference.bnn` exports."""


@not_an_array("pass its scale or its offset")
@shortened
@dataclass(frozen=True, eq=False)
class Pixels:
    """Images of bytes as integers: ``scale[c] * x[n, h, w, c] + offset[c]``.

    A normalisation (x / 255 - mean) / deviation becomes exact in units of 2**-f with integers near
    ``2**f / (255 * deviation)`` and ``-2**f * mean / deviation``.

    Attributes
    ----------
    shape : (H, W, C), or (F,) for vectors
    scale, offset : array of int32, (C,) or (F,)
        The integers must lie within int16.
    """

    shape: tuple[int, ...]
    scale: Any = field(metadata=OF_INT32)
    offset: Any = field(metadata=OF_INT32)


@shortened
@dataclass(frozen=True, eq=False)
class Reals:
    """Images of float32 as integers: ``x * 2**fraction`` rounded to the nearest integer, ties to even.

    Attributes
    ----------
    shape : (H, W, C), or (F,) for vectors
    fraction : int
        0 to 15. An integer beyond int16 is an error.
    """

    shape: tuple[int, ...]
    fraction: int = 10


@not_an_array("pass its thresholds")
@shortened
@dataclass(frozen=True, eq=False)
class Signs:
    """Images of bytes or float32 as bits: ``x[n, h, w, c] >= thresholds[c]``.

    Attributes
    ----------
    shape : (H, W, C), or (F,) for vectors
    thresholds : array of float32, (C,) or (F,)
    """

    shape: tuple[int, ...]
    thresholds: Any = field(metadata=OF_FLOAT32)


@shortened
@dataclass(frozen=True, eq=False)
class BitPlanes:
    """Images of bytes as bits: channel ``8 * c + b`` is bit 7 - b of ``x[n, h, w, c]``.

    Attributes
    ----------
    shape : (H, W, C), or (F,) for vectors
    """

    shape: tuple[int, ...]


@not_an_array("pass its logits or its classes")
@shortened
class Answer(NamedTuple):
    """The logits and classes that a network computes for N images, as NumPy or device arrays.

    Attributes
    ----------
    sums : array of int32, (N, K)
        The exact integers of the last layer.
    logits : array of float32, (N, K)
    classes : array of int64, (N,)
        The first class with the largest logit.
    """

    sums: Any
    logits: Any
    classes: Any


@not_an_array("pass its logits or its classes")
@shortened
class EnsembleAnswer(NamedTuple):
    """The logits and classes that an ensemble of M networks computes for N images; NumPy arrays.

    Attributes
    ----------
    members : array of float32, (M, N, K)
        The logits of each network.
    logits : array of float32, (N, K)
        Their sum, from the first one on; each addition rounds.
    classes : array of int64, (N,)
        The first class with the largest logit.
    """

    members: Any
    logits: Any
    classes: Any


Input: TypeAlias = Pixels | Reals | Signs | BitPlanes


@not_an_array("pass an array of its layers")
@shortened
@dataclass(frozen=True, eq=False)
class Network:
    """A binarized network: from images to one integer and one logit for each class.

    The last layer gives integers (N, K), the *sums*. Logit (n, k) is ``float32(sums[n, k]) * scale[k] +
    offset[k]``, two operations that each round to float32. The class is the first with the largest logit.

    Attributes
    ----------
    name : str
    input : Pixels, Reals, Signs or BitPlanes
    layers : tuple of layers
    scale, offset : array of float32, (K,)
    classes : tuple of str, optional
        The names of the K classes.
    about : str, optional
        What it is, and where it comes from.

    Raises
    ------
    ShapeError, DtypeError, SchemeError, RangeError
        For a layer that does not fit the one before it, or whose integers may exceed int32; names the layer.
    """

    name: str
    input: Input
    layers: tuple[Layer, ...]
    scale: Any = field(metadata=OF_FLOAT32)
    offset: Any = field(metadata=OF_FLOAT32)
    classes: tuple[str, ...] = ()
    about: str = ""

    def __post_init__(self) -> None:
        from reference.types.network_values import check_network

        check_network(self)
