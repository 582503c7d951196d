"""Problems of the benchmark: random ±1 products and convolutions, our calls, checks of parts of answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

import gpu
from reference import unpack, unpack_tensor
from reference.errors import ShapeError
from reference.types import PackedBits, PackedTensor

Signs = npt.NDArray[np.int8]

_CHECKED = 16
"""Rows of a product that are compared."""
_EXACT = 2**24
"""Up to here float32 has every integer: the answers' dot products are computed in it."""
WINDOW = 3


@dataclass(frozen=True)
class Case:
    """A call of a library: its answer is checked, and its time measured."""

    who: str
    operands: str  # the operands' format on the device
    output: str  # the result's format
    call: Callable[[], Any]  # a function that queues the work and returns its result
    right: Callable[[Any], bool]  # a function that checks the result
    moved: float  # bytes of operands and output, each once
    meter: Any  # a Timer or Counter of the kernels alone; None if the call cannot be captured
    wait: Callable[[], None]  # a function that waits for all work


class Product:
    """The product of two int8 matrices of ±1, n x n; ``operations`` counts two for each pair of elements."""

    def __init__(self, n: int) -> None:
        _check_size(n, n)
        self.name, self.n, self.operations = f"bmm/{n}", n, 2.0 * n**3
        rng = np.random.default_rng(n)
        self.a, self.b = (_signs(rng, (n, n)) for _ in "ab")
        self._rows = np.unique(np.linspace(0, n - 1, _CHECKED).astype(int))
        self._dots = (self.a[self._rows].astype(np.float32) @ self.b.astype(np.float32)).astype(np.int32)

    def moved(self, bytes_in: float, bytes_out: float) -> float:
        """Bytes of operands and output, whose elements have ``bytes_in`` and ``bytes_out``."""
        return self.n**2 * (2 * bytes_in + bytes_out)

    def is_right(self, c: Any) -> bool:
        """Whether some rows of a result equal the expected product, rounded if they are floats."""
        return _agree(c[self._rows], self._dots)

    def has_signs(self, bits: Any) -> bool:
        """Whether some rows of bits are the signs of the product."""
        return np.array_equal(bits[self._rows], self._dots >= 0)

    def ours(self, device: Any, meter: Any) -> Iterator[Case]:
        """Our calls: prepared operands to dot products and to bits, and real ones, packed each time."""
        a, b = gpu.prepare(self.a, "a", device=device), gpu.prepare(self.b, "b", device=device)

        def signs(bits: PackedBits) -> Any:
            whole = PackedBits(bits.words.download(), bits.shape, bits.layout, bits.word, bits.first)
            return unpack(whole)

        def call(left: Any, right: Any, **rule: Any) -> Any:
            return gpu.bmm(left, right, **rule)

        real = [device.upload(x.astype(np.float16)) for x in (self.a, self.b)]
        yield from _ours(
            self,
            call,
            ((a, b), real),
            lambda bits: self.has_signs(signs(bits)),
            device,
            meter,
        )


class Convolution:
    """The convolution of images by as many filters as channels, of 3 x 3 taps, SAME.

    ``x`` is (N, H, W, C) and ``w`` (3, 3, C, C), int8; ``operations`` counts two for each pair of elements,
    the border counted like any other pixel.
    """

    def __init__(self, channels: int, images: int = 16, side: int = 64) -> None:
        _check_size(channels, WINDOW**2 * channels)
        self.name, self.channels, self.pixels = f"bconv/{channels}", channels, images * side**2
        self.operations = 2.0 * self.pixels * channels * WINDOW**2 * channels
        rng = np.random.default_rng(channels)
        self.x = _signs(rng, (images, side, side, channels))
        self.w = _signs(rng, (WINDOW, WINDOW, channels, channels))
        self._dots = self._first_rows()

    def _first_rows(self) -> npt.NDArray[np.int32]:
        """The expected first two rows of pixels of the last image, which include its border."""
        given = np.pad(self.x[-1, :3], ((1, 0), (1, 1), (0, 0))).astype(np.float32)
        windows = np.lib.stride_tricks.sliding_window_view(given, (WINDOW, WINDOW), axis=(0, 1))
        taps = windows[:2].transpose(0, 1, 3, 4, 2).reshape(-1, WINDOW**2 * self.channels)
        dots = taps @ self.w.reshape(-1, self.channels).astype(np.float32)
        return dots.astype(np.int32).reshape(2, -1, self.channels)

    def moved(self, bytes_in: float, bytes_out: float) -> float:
        """Bytes of operands and output, whose elements have ``bytes_in`` and ``bytes_out``."""
        return bytes_in * (self.x.size + self.w.size) + bytes_out * self.x.size

    def is_right(self, y: Any) -> bool:
        """Whether some pixels of a result equal the expected convolution, rounded if they are floats."""
        return _agree(y[-1, :2], self._dots)

    def ours(self, device: Any, meter: Any) -> Iterator[Case]:
        """Our calls: prepared operands to dot products and to bits, and real ones, packed each time."""
        x, w = gpu.prepare(self.x, "x", device=device), gpu.prepare(self.w, "w", device=device)

        def signs(bits: PackedTensor) -> Any:
            whole = PackedTensor(bits.words.download(), bits.shape, bits.layout, bits.word, bits.first)
            return unpack_tensor(whole)[-1, :2]

        def call(images: Any, filters: Any, **rule: Any) -> Any:
            return gpu.bconv2d(images, filters, **rule)

        real = [device.upload(each.astype(np.float16)) for each in (self.x, self.w)]
        yield from _ours(
            self,
            call,
            ((x, w), real),
            lambda bits: np.array_equal(signs(bits), self._dots >= 0),
            device,
            meter,
        )


def _ours(
    problem: Product | Convolution,
    call: Callable[..., Any],
    operands: Any,
    has_signs: Callable[[Any], bool],
    device: Any,
    meter: Any,
) -> Iterator[Case]:
    """Our calls for a problem, on prepared operands and on real ones."""
    prepared, real = operands
    n = prepared[1].shape[-1]
    thresholds, flip = (device.upload(np.zeros(n, dtype)) for dtype in (np.int32, np.uint8))
    rule = {"thresholds": thresholds, "flip": flip}  # thresholds of 0 give the signs of dot products as bits

    def has_dots(c: Any) -> bool:
        return problem.is_right(c.download())

    wait = device.synchronize
    for output, options, right, size in (("int32", {}, has_dots, 4), ("bits", rule, has_signs, 1 / 8)):
        work, moved = partial(call, *prepared, **options), problem.moved(1 / 8, size)
        yield Case("simwarp", "prepared", output, work, right, moved, meter, wait)
    yield Case("simwarp", "float16", "int32", partial(call, *real), has_dots, problem.moved(2, 4), None, wait)


def _check_size(size: int, k: int) -> None:
    if not 1 <= k < _EXACT:
        raise ShapeError(
            f"size {size}: dot products of {k} elements\nthe answers are checked in float32, up to {_EXACT}\n"
            "give other --sizes"
        )


def _signs(rng: np.random.Generator, shape: tuple[int, ...]) -> Signs:
    """Random signs, an array of ±1."""
    return 2 * rng.integers(0, 2, shape, dtype=np.int8) - 1


def _agree(found: Any, dots: npt.NDArray[np.int32]) -> bool:
    """True if numbers equal dot products; floats may differ by less than a step between dot products."""
    if found.dtype.kind == "i":
        return np.array_equal(found, dots)
    return bool((np.abs(found.astype(np.float64) - dots) <= 0.5 + np.abs(dots) / 1024).all())
