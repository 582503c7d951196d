"""The applications of the BLASX paper's section V.C: a network's training step, A B, nnmf and lsqlin.

Each is NumPy code whose products are calls of `numpy.matmul`, so that `gpu.blas3.patched` routes them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from gpu.blas3 import Options, patched
from gpu.blas3.on_host import LARGEST
from simwarp.lab.blas.report import run
from simwarp.lab.blas.request import Request
from simwarp.lab.machines import host, topology_of
from simwarp.lab.network_studies import Facts
from simwarp.machine import Machine

Array: TypeAlias = npt.NDArray[Any]
Multiply: TypeAlias = Callable[[Array, Array], Array]


class Product(NamedTuple):
    """Sizes of a product: rows and columns of the result, and the length of its sums."""

    m: int
    n: int
    k: int


class Application(NamedTuple):
    """An application: its code, its products in order, and what the paper prints."""

    name: str
    dtype: str
    compute: Callable[[int, Any, Multiply], Array]  # of a size, a dtype and the product → what it finds
    products: Callable[[int], list[Product]]
    size: int  # where the paper gives one, else 8192
    machine: str
    printed: str


def _train(size: int, dtype: Any, multiply: Multiply) -> Array:
    """A step of stochastic gradient descent: 3072 → size → size → 10, a batch of size / 16 images."""
    rng, batch = np.random.default_rng(0), size // 16
    widths = (3072 * size // 16384, size, size, 10)
    layers = [rng.normal(0, (2 / a) ** 0.5, (a, b)).astype(dtype) for a, b in pairwise(widths)]
    maps, labels = [rng.standard_normal((batch, widths[0])).astype(dtype)], rng.integers(0, 10, batch)
    for number, weights in enumerate(layers):
        found = multiply(maps[-1], weights)
        maps.append(found if number == len(layers) - 1 else np.maximum(found, 0))
    exponents = np.exp(maps[-1] - maps[-1].max(1, keepdims=True))
    gradient = exponents / exponents.sum(1, keepdims=True)
    gradient[np.arange(batch), labels] -= 1
    for number in (2, 1, 0):
        before, weights = maps[number], layers[number]
        behind = multiply(gradient, weights.T) * (before > 0) if number else gradient
        layers[number] = weights - dtype(0.01 / batch) * multiply(before.T, gradient)
        gradient = behind
    return np.concatenate([x.ravel() for x in layers])


def _train_products(size: int) -> list[Product]:
    batch, (a, b, c, d) = size // 16, (3072 * size // 16384, size, size, 10)
    forward = [Product(batch, b, a), Product(batch, c, b), Product(batch, d, c)]
    of_maps = [Product(batch, c, d), Product(batch, b, c)]
    return [*forward, *of_maps, Product(c, d, batch), Product(b, c, batch), Product(a, b, batch)]


def _multiply(size: int, dtype: Any, multiply: Multiply) -> Array:
    """``A * B``."""
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((size, size)).astype(dtype) for _ in range(2))
    return multiply(a, b)


def _multiply_products(size: int) -> list[Product]:
    return [Product(size, size, size)]


def _factorize(size: int, dtype: Any, multiply: Multiply) -> Array:
    """``nnmf``: nonnegative factors W and H of a rank of size / 8, by two multiplicative updates of both."""
    rng, rank = np.random.default_rng(2), size // 8
    a, w, h = (rng.random(shape).astype(dtype) for shape in ((size, size), (size, rank), (rank, size)))
    for _ in range(2):
        h = h * multiply(w.T, a) / multiply(multiply(w.T, w), h)
        w = w * multiply(a, h.T) / multiply(w, multiply(h, h.T))
    return multiply(w, h)


def _factorize_products(size: int) -> list[Product]:
    rank = size // 8
    wide, square = Product(rank, size, size), Product(rank, rank, size)
    tall = Product(size, rank, size)
    once = [wide, square, Product(rank, size, rank), tall, square, Product(size, rank, rank)]
    return [*once, *once, Product(size, size, rank)]


def _least_squares(size: int, dtype: Any, multiply: Multiply) -> Array:
    """``lsqlin``: least squares with bounds, by the normal equations and ten projected gradients."""
    rng = np.random.default_rng(3)
    c, d = rng.standard_normal((size, size)).astype(dtype), rng.standard_normal((size, 1)).astype(dtype)
    square, right, x = multiply(c.T, c), multiply(c.T, d), np.zeros((size, 1), dtype)
    step = dtype(1) / np.abs(square).sum(1).max()
    for _ in range(10):
        x = np.clip(x - step * (multiply(square, x) - right), -1, 1)
    return x


def _least_squares_products(size: int) -> list[Product]:
    return [Product(size, size, size), *[Product(size, 1, size)] * 11]


APPLICATIONS = (
    Application("network", "float32", _train, _train_products, 16384, "MAKALU", "62.3 (Caffe on the CPU)"),
    Application("A*B", "float32", _multiply, _multiply_products, 8192, "EVEREST", "12.75"),
    Application("A*B", "float64", _multiply, _multiply_products, 8192, "EVEREST", "8.27"),
    Application("nnmf", "float32", _factorize, _factorize_products, 8192, "EVEREST", "6.72"),
    Application("nnmf", "float64", _factorize, _factorize_products, 8192, "EVEREST", "5.83"),
    Application("lsqlin", "float64", _least_squares, _least_squares_products, 8192, "EVEREST", "3.09"),
)
"""Table VI prints two figures of nnmf, here taken as of both precisions, and no sizes."""


@dataclass
class _Clocked:
    """`numpy.matmul`, with the seconds of the calls that `patched` would route, and of all."""

    above: int
    routed: float = 0.0
    products: list[Product] = field(default_factory=list[Product])

    def __call__(self, a: Array, b: Array) -> Array:
        begin = time.perf_counter()
        result = np.matmul(a, b)
        product = Product(a.shape[0], b.shape[1], a.shape[1])
        if _volume(product) > self.above**3:
            self.routed += time.perf_counter() - begin
        self.products.append(product)
        return result


def _volume(product: Product) -> int:
    return product.m * product.n * product.k


def routed(size: int = 512, above: int = 100, machine: str = "H200x2", tile: int = 128) -> list[Facts]:
    """A row for each application, run small: how much of it `patched` routes to a simulated machine.

    ``calls``, ``routed`` and ``operations`` are its products, those that were routed, and the share of their
    operations; ``time`` is the share of the routed products in the seconds of the whole with NumPy alone;
    ``error`` the largest difference of the two answers over the largest number.
    """
    rows = list[Facts]()
    for one in APPLICATIONS:
        dtype, clocked = np.dtype(one.dtype).type, _Clocked(above)
        begin = time.perf_counter()
        expected = one.compute(size, dtype, clocked)
        seconds = time.perf_counter() - begin
        with patched(Machine(machine), above=above, tile=tile) as routing:
            found = one.compute(size, dtype, lambda a, b: np.matmul(a, b))
        large = [product for product in clocked.products if _volume(product) > above**3]
        rows.append(
            {
                "application": one.name,
                "dtype": one.dtype,
                "size": size,
                "calls": len(clocked.products),
                "routed": routing.routed["numpy.matmul"],
                "passed": sum(routing.passed.values()),
                "operations": sum(map(_volume, large)) / sum(map(_volume, clocked.products)),
                "time": clocked.routed / seconds,
                "error": float(np.abs(found - expected).max() / np.abs(expected).max()),
            }
        )
    return rows


def predicted(applications: Sequence[Application] = APPLICATIONS, tile: int = 1024) -> list[Facts]:
    """A row for each application at the paper's sizes: its products on a simulated machine and on its CPU.

    ``seconds`` are of all products by the clock of the machine, small ones at the rate of its cores,
    ``cpu_seconds`` of all at that rate, ``speedup`` is the ratio, and ``printed`` that of the paper.
    """
    rows = list[Facts]()
    for one in applications:
        topology = topology_of(one.machine)
        assert topology.cpu is not None
        seconds = alone = 0.0
        products = one.products(one.size)
        for product in products:
            on_cpu = topology.cpu.routine_seconds(2.0 * _volume(product), one.dtype)
            alone += on_cpu
            if _volume(product) <= LARGEST**3:
                seconds += on_cpu
                continue
            request = Request.of("sgemm" if one.dtype == "float32" else "dgemm", *product, beta=0.0)
            seconds += run(request, tile, host(topology), Options())["seconds"]
        rows.append(
            {
                "application": one.name,
                "dtype": one.dtype,
                "size": one.size,
                "machine": topology.name,
                "products": len(products),
                "operations": 2.0 * sum(map(_volume, products)),
                "seconds": seconds,
                "cpu_seconds": alone,
                "speedup": alone / seconds,
                "printed": one.printed,
            }
        )
    return rows
