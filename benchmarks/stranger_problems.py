"""The launches of `strangers.py`: operands, and what NumPy says of them.

Elements are small integers wherever a kernel only adds and multiplies: each result is exact in the types of
the kernel and in NumPy, and the two are compared bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Generator = np.random.Generator


@dataclass(frozen=True)
class Out:
    """An argument that the kernel writes."""

    expected: Array  # by NumPy; of bfloat16 as float32
    bound: float = 0.0  # largest distance from it; 0 is equal
    before: Array | None = None  # contents before the launch; uninitialised without it
    bfloat16: bool = False

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements on the device."""
        return np.dtype(np.uint16) if self.bfloat16 else self.expected.dtype

    def agrees(self, result: Array) -> bool:
        """True if every element lies within the bound."""
        if self.bfloat16:
            result = (result.astype(np.uint32) << 16).view(np.float32)
        return bool(np.all(np.abs(result.astype(np.float64) - self.expected) <= self.bound))


@dataclass(frozen=True)
class Tiles:
    """An argument that is a tensor map: of a bfloat16 matrix, in boxes that are swizzled by 128 bytes."""

    array: Array
    box: tuple[int, int]
    by_pointer: bool = False


@dataclass(frozen=True)
class Problem:
    """A launch: geometry, arguments (arrays, numbers, `Tiles`, and an `Out` for each result)."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: Sequence[Any]
    shared: int = 0
    cooperative: bool = False


def integers(random: Generator, *shape: int, dtype: npt.DTypeLike = np.float32) -> Array:
    """Random integers from -2 to 2."""
    return random.integers(-2, 3, shape).astype(dtype)


def bfloat16(x: Array) -> Array:
    """The bits of float32 numbers that are bfloat16 exactly."""
    return (x.view(np.uint32) >> 16).astype(np.uint16)


def product(a: Array, b: Array) -> Array:
    """The exact product."""
    return a.astype(np.float64) @ b.astype(np.float64)


def rounded(x: Array) -> Array:
    """Numbers rounded to bfloat16, ties to even, as float32."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def block_product(producers: int) -> Callable[[Generator], Problem]:
    """C = A B in float32, by blocks of 16 x 16 threads and ``producers`` more rows of threads that copy."""

    def problem(random: Generator) -> Problem:
        m, n, k, side = 32, 48, 128, 16
        a, b = integers(random, m, k), integers(random, k, n)
        arguments = [Out(product(a, b).astype(np.float32)), a, b, np.int32(k), np.int32(n)]
        return Problem((n // side, m // side), (side, side + producers), arguments)

    return problem


def fragment_product(
    kind: str, tile: tuple[int, int], steps: int, shared: int
) -> Callable[[Generator], Problem]:
    """D = 2 A B + C, by one block for 8 x 8 tiles of ``tile`` rows and columns; B by columns."""

    def problem(random: Generator) -> Problem:
        dtype = np.float64 if kind == "dmma" else np.float32
        side, k = 8 * tile[0], steps * tile[1]
        a, b = (integers(random, side, k, dtype=dtype) for _ in range(2))
        c = integers(random, side, side, dtype=dtype)
        d = Out((2 * product(a, b.T) + c).astype(dtype))
        operands = [bfloat16(a), bfloat16(b)] if kind == "bf16" else [a, b]
        return Problem((1,), (256,), [*operands, c, d, dtype(2), dtype(1)], shared)

    return problem


def normalised(random: Generator) -> Problem:
    """Two vectors divided by the root of their dot product, by three blocks that wait for one another."""
    blocks, threads = 3, 64
    a, b = (random.integers(1, 5, 1000).astype(np.float32) for _ in range(2))
    root = np.sqrt(np.dot(a.astype(np.float64), b.astype(np.float64)))
    vectors = [Out((x.astype(np.float64) / root).astype(np.float32), before=x) for x in (a, b)]
    partial = Out(np.zeros(blocks), np.inf)
    return Problem(
        (blocks,), (threads,), [*vectors, partial, np.int32(1000)], 8 * (threads // 32 + 1), cooperative=True
    )


def half_product(
    grid: tuple[int, ...],
    block: tuple[int, ...],
    shape: tuple[int, int, int],
    size: type[np.integer[Any]] = np.int32,
    by_columns: str = "b",
    shared: int = 0,
) -> Callable[[Generator], Problem]:
    """C = A B in float16; matrices named in ``by_columns`` are column-major, the others row-major."""

    def problem(random: Generator) -> Problem:
        m, n, k = shape
        a, b = integers(random, m, k, dtype=np.float16), integers(random, k, n, dtype=np.float16)
        c = product(a, b).astype(np.float16)
        b, c = (np.ascontiguousarray(x.T) if name in by_columns else x for name, x in (("b", b), ("c", c)))
        return Problem(grid, block, [a, b, Out(c), *map(size, shape)], shared)

    return problem


def single_product(random: Generator) -> Problem:
    """C = A B in float32, and 2 A B - C for kernels with factors."""
    m, n, k = 64, 128, 64
    a, b = integers(random, m, k), integers(random, k, n)
    return Problem((2, 1), (16, 8), [a, b, Out(product(a, b).astype(np.float32)), *map(np.int32, (m, n, k))])


def scaled_product(random: Generator) -> Problem:
    """C = 2 A B - C in float32, one tile of 128 x 128."""
    m, n, k = 128, 128, 48
    a, b, c = integers(random, m, k), integers(random, k, n), integers(random, m, n)
    out = Out((2 * product(a, b) - c).astype(np.float32), before=c)
    return Problem((1, 1), (128,), [*map(np.int32, (m, n, k)), np.float32(2), a, b, np.float32(-1), out])


def brain_product(random: Generator) -> Problem:
    """C = A B in bfloat16, with B by columns: two tiles of 64 x 64."""
    m, n, k = 128, 64, 256
    a, b = integers(random, m, k), integers(random, n, k)
    c = Out(rounded(product(a, b.T)), bfloat16=True)
    return Problem((2,), (128,), [bfloat16(a), bfloat16(b), c, *map(np.int32, (m, n, k))], 49152)


def brain_boxes(random: Generator) -> Problem:
    """C = A B in bfloat16, A and B as tensor maps with boxes of 64 x 64, by four warps and a producer."""
    m, n, k = 128, 64, 320
    a, b = integers(random, m, k), integers(random, n, k)
    maps = [Tiles(bfloat16(x), (64, 64)) for x in (a, b)]
    c = Out(rounded(product(a, b.T)), bfloat16=True)
    return Problem((2,), (160,), [*maps, c, *map(np.int32, (m, n, k))], 3 * (2 * 64 * 64 * 2 + 16))


def attention(random: Generator, queries: int, keys: int, width: int) -> tuple[list[Array], Array, float]:
    """Queries, keys, values, softmax(Q K^T / sqrt(width)) V, and the sum of the magnitudes it adds up."""
    q, k, v = (random.integers(-8, 9, (rows, width)).astype(np.float32) / 8 for rows in (queries, keys, keys))
    scores = product(q, k.T) / np.sqrt(width)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return [q, k, v], weights @ v, float((weights @ np.abs(v)).max())


def brain_attention(random: Generator) -> Problem:
    """Attention of 64 queries and 192 keys of 64 elements in bfloat16."""
    operands, expected, size = attention(random, 64, 192, 64)
    out = Out(expected.astype(np.float32), 2.0**-7 * size, bfloat16=True)
    sizes = map(np.int32, (1, 64, 192))
    return Problem((1,), (128,), [*map(bfloat16, operands), out, *sizes], 3 * 64 * 64 * 2)


def half_attention(random: Generator) -> Problem:
    """Attention of 128 queries and 128 keys of 64 elements in float16, sums in float16."""
    operands, expected, size = attention(random, 128, 128, 64)
    out = Out(expected.astype(np.float16), 2.0**-6 * size)
    arguments = [*(x.astype(np.float16) for x in operands), out, np.int32(128), np.int32(1)]
    return Problem((2, 1), (128,), arguments, (64 + 3 * 64) * 72 * 2)


def brain_tiles(
    shape: tuple[int, int, int], rows: tuple[int, int], threads: int, shared: int = 0
) -> Callable[[Generator], Problem]:
    """C = A B in bfloat16 by two blocks, A and B as tensor maps with ``rows`` in a box; C by columns."""

    def problem(random: Generator) -> Problem:
        m, n, k = shape
        operands = integers(random, m, k), integers(random, n, k)
        c = Out(rounded(product(operands[1], operands[0].T)), bfloat16=True)
        boxes = [(height, 64) for height in rows]
        maps = [Tiles(bfloat16(x), box, not shared) for x, box in zip(operands, boxes, strict=True)]
        return Problem((2,), (threads,), [*map(np.int32, shape), c, *maps], shared)

    return problem
