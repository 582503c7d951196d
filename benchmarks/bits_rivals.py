"""Rivals of the products of bits that need no library: the product of 2016, and numbers of four bits.

They are the rows "xnor" and "u4" of tables 3 and 4 of BTC, in kernels of our own (`rivals.cu`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from bits_cases import Case, bits_of, integer_product, sets_of, some_of

from gpu.compile import compile

SOURCE = Path(__file__).with_name("rivals.cu")
XNOR_SIDE, XNOR_THREADS = 16, 256
U4_TILE, U4_THREADS = 128, 256


class BitProduct(Case):
    """A product of n lines of n bits by as many, whose entries count the bits of a & b."""

    bits = 1
    """Of a number in memory."""

    def __init__(self, what: str, n: int) -> None:
        self.n, self.operations = n, 2.0 * n**3
        random = np.random.default_rng()
        shape = (n, -(-n // 128) * 4)
        self.host = [
            [random.integers(0, 2**32, shape, dtype=np.uint32) for _ in "ab"]
            for _ in range(sets_of(8 * self.bits * shape[0] * shape[1]))
        ]
        super().__init__(f"{what}, {n} x {n}", list(self.on_device()))
        self.quick(n <= 4096)

    def on_device(self) -> Iterator[Any]:
        """The launch for each set of operands."""
        raise NotImplementedError

    def counts(self) -> tuple[Any, Any]:
        """The indices of some rows of the first set's product, and their counts."""
        rows, (a, b) = some_of(self.n), self.host[0]
        return rows, integer_product(*(bits_of(x, self.n).astype(np.int8) for x in (a[rows], b)))


class _Own(BitProduct):
    """A product by a kernel of `rivals.cu`, to int32."""

    def __init__(self, device: Any, what: str, name: str, n: int) -> None:
        text = compile(SOURCE.read_text(), SOURCE.name, {}, device.compute_capability)
        self.device, self.kernel = device, device.load(text).kernel(name)
        super().__init__(what, n)

    def _launch(self, operands: Any, sizes: Any, stream: Any, *, dependent: bool) -> None:
        self.kernel(self.grid, self.block, *operands, self.c, *map(np.uint32, sizes), stream=stream)


class Xnor(_Own):
    """The product of 2016: tiles of 16 x 16 words in shared memory, an element of C for each thread."""

    def __init__(self, device: Any, n: int) -> None:
        self.grid, self.block = (-(-n // XNOR_SIDE), -(-n // XNOR_SIDE)), XNOR_THREADS
        self.c = device.allocate((n, n), np.int32)
        super().__init__(device, "xnor", "xnor_gemm", n)

    def on_device(self) -> Iterator[Any]:
        """The launch for each set of operands; b lies with its lines as columns. Bits past n are 0."""
        valid = np.packbits(np.arange(self.host[0][0].shape[1] * 32) < self.n, bitorder="little").view(
            np.uint32
        )
        for a, b in self.host:
            operands = self.device.upload(a & valid), self.device.upload(np.ascontiguousarray((b & valid).T))
            sizes = self.n, self.n, valid.size, self.n
            yield partial(self._launch, operands, sizes)

    def is_right(self) -> bool:
        """Compare some rows: signs agree where both bits are 1 or both are 0."""
        rows, both = self.counts()
        a, b = (bits_of(x, self.n).sum(axis=1, dtype=np.int64) for x in self.host[0])
        differing = a[rows, None] + b - 2 * both
        return np.array_equal(self.c.download()[rows], self.n - 2 * differing)


class U4(_Own):
    """Bits as unsigned numbers of four bits, on tensor cores of integers; sizes are padded to its tile."""

    bits = 4

    def __init__(self, device: Any, n: int) -> None:
        self.padded = -(-n // U4_TILE) * U4_TILE
        self.grid, self.block = (self.padded // U4_TILE, self.padded // U4_TILE), U4_THREADS
        self.c = device.allocate((self.padded, self.padded), np.int32)
        super().__init__(device, "u4", "u4_gemm", n)

    def on_device(self) -> Iterator[Any]:
        """The launch for each set of operands."""
        for lines in self.host:
            operands = [self.device.upload(self._numbers(x)) for x in lines]
            yield partial(self._launch, operands, (self.padded, self.padded // 2))

    def _numbers(self, lines: Any) -> Any:
        """A number of four bits for each bit, two to a byte, the first in the lower half."""
        padded = np.zeros((self.padded, self.padded), np.uint8)
        padded[: self.n, : self.n] = bits_of(lines, self.n)
        return padded[:, ::2] | padded[:, 1::2] << 4

    def is_right(self) -> bool:
        """Compare some rows."""
        rows, counts = self.counts()
        return np.array_equal(self.c.download()[rows, : self.n], counts)
