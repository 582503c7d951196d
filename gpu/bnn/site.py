"""The surroundings of a network's steps, shared by their launches: arrays, kernels of this folder, macros."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import numpy as np

from gpu.bmm.fsb import TILE_BITS
from gpu.bmm.prepared import PreparedMatrix
from gpu.bnn.plan import Values
from gpu.chips import chip_of
from gpu.compile import compile_file
from gpu.device import Array, Device, Dim, LaunchPlan, is_array, launch
from reference.errors import SchemeError
from reference.types import PackedBits, PackedTensor
from reference.types.layers import Conv, Dense, Threshold
from reference.types.network_values import INT16_MAX, INT16_MIN, Value

Launch: TypeAlias = Callable[..., tuple[Any, ...]]
"""Takes what a step reads, returns what it writes: packed bits, or an array of int16 or int32."""

_THREADS = 256


@dataclass(frozen=True, eq=False)
class Site:
    """The surroundings of a step: device, values of the network, and schemes.

    Attributes
    ----------
    schemes : dict
        Schemes by the path of a layer, or by "Conv" and "Dense".
    flag : device array of one int32
        What kernels raise for a number of the images that is not finite, or beyond int16.
    lined : set of str
        The paths of bits that only products of lines take: they are made as such a product's A.
    wide : set of str
        The paths of bits that only products on words of 64 bits take: these pass them on as they are.
    answers : dict
        Scale and offset of logits, by the path of the sums that they are of: a product may give all three.
    """

    device: Device
    values: Values
    schemes: dict[str, str]
    flag: Array
    lined: frozenset[str] = frozenset()
    wide: frozenset[str] = frozenset()
    answers: dict[str, tuple[Array, Array]] = field(default_factory=dict[str, tuple[Array, Array]])

    def launch(
        self,
        source: str,
        name: str,
        defines: tuple[str, ...],
        shape: tuple[Dim, Dim],
        *args: Any,
        shared: int = 0,
    ) -> None:
        """Launch a kernel of this folder; arguments are arrays, numbers and structures."""
        arrays = [each for each in args if is_array(each)]
        fixed = tuple(None if is_array(each) else each for each in args)
        key = tuple(each.tobytes() if isinstance(each, np.void) else each for each in fixed)

        def made() -> LaunchPlan:
            ptx = compile_file(f"bnn/{source}.cu", macros(defines), self.device.compute_capability)
            overlaps = chip_of(self.device.compute_capability).sm_90
            return LaunchPlan(ptx.text, name, *shape, fixed, shared, dependent=overlaps)

        launch(self.device, ("bnn", source, name, defines, shape, shared, key), made, *arrays)

    def integers(self, batch: int, value: Value) -> Array:
        """Allocate the integers of one value for ``batch`` images."""
        dtype = np.int16 if fits_int16(value) else np.int32
        return self.device.allocate((batch, *value.shape), dtype, "integers")

    def bits(self, batch: int, value: Value) -> PackedBits | PackedTensor:
        """Allocate the packed bits of one value for ``batch`` images."""
        words = -(-value.shape[-1] // 32)
        if len(value.shape) == 1:
            array = self.device.allocate((words, batch), np.uint32, "bits")
            return PackedBits(array, (batch, value.shape[0]), "column", 32, "lsb")
        height, width, channels = value.shape
        array = self.device.allocate((batch, height, width, words), np.uint32, "bits")
        return PackedTensor(array, (batch, height, width, channels), "NHWC", 32, "lsb")

    def lines(self, batch: int, value: Value) -> PreparedMatrix:
        """Allocate vectors of bits as the operand A of a product that reads lines."""
        (bits,) = value.shape
        words = self.device.allocate((batch, -(-bits // TILE_BITS), TILE_BITS // 32), np.uint32, "lines")
        ones = self.device.allocate((batch,), np.uint32, "ones")
        return PreparedMatrix(words, ones, (batch, bits), "a", False, "btc2", "lines", "lsb")

    def rule(self, threshold: Threshold) -> tuple[Array, Array]:
        """Upload a threshold layer's thresholds and flips."""
        return (
            self.device.upload(np.ascontiguousarray(threshold.thresholds), "thresholds"),
            self.device.upload(np.asarray(threshold.flip).astype(np.uint8), "flip"),
        )

    def vector(self, given: Any, name: str) -> Array:
        """A vector with one number for each channel, on the device."""
        return self.device.upload(np.ascontiguousarray(given), name)

    def scheme(self, path: str, layer: Conv | Dense) -> str:
        """The scheme that the user chose for a layer, or "auto"."""
        return self.schemes.get(path, self.schemes.get(type(layer).__name__, "auto"))


@contextmanager
def of_layer(path: str, layer: Conv | Dense) -> Generator[None]:
    """Name the layer in the refusal of its scheme."""
    try:
        yield
    except SchemeError as error:
        raise SchemeError(f"layer {path} ({type(layer).__name__}): {error}") from None


def macros(defines: Iterable[str]) -> dict[str, str]:
    """Macro definitions for the compiler: names, some with ``=`` and a value."""
    return {name: value for name, _, value in (define.partition("=") for define in defines)}


def blocks_of(count: int, of_block: int = _THREADS, threads: int = _THREADS) -> tuple[Dim, Dim]:
    """The grid and block of a launch with one thread per element."""
    return (-(-count // of_block), 1, 1), (threads, 1, 1)


def bytes_of(value: Value) -> int:
    """The bytes of one image's value on the device."""
    if value.kind == "integers":
        return prod(value.shape) * (2 if fits_int16(value) else 4)
    return prod(value.shape[:-1]) * -(-value.shape[-1] // 32) * 4


def fits_int16(value: Value) -> bool:
    """True if integers between layers are stored as int16."""
    return value.low >= INT16_MIN and value.high <= INT16_MAX


def width(what: str, array: Array) -> str:
    """The macro of widths.cuh for an array's integer width; ``what`` is GIVEN, OTHER or MADE."""
    return f"{what}_{np.dtype(array.dtype).name.upper()}"


def vectors(value: Value) -> tuple[str, ...]:
    """The macro of bits.cuh for values that are one row per image."""
    return ("VECTORS",) if len(value.shape) == 1 else ()
