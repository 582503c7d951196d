"""The cases of `bits.py`: launches on random operands that take turns, and the check of their answers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from hopper import seconds

import reference
from gpu.bconv.geometry import conv_shape
from gpu.bconv.prepared import placed
from gpu.bconv.schemes import EVERY_SCHEME
from gpu.bmm.lines import clear_plan, lines_plan, lines_ptx
from gpu.bmm.output import Output
from gpu.bmm.skinny import SKINNY_SCHEMES
from gpu.bmm.warpgroups import BITS, WARPGROUP_SCHEMES, Tile
from gpu.compile import compile
from gpu.cuda.tensor_map import encoded
from gpu.device import LaunchPlan
from reference.devices.tensor_map import TensorMap
from reference.types import PackedTensor

WGMMA, SKINNY, WGMMA_OF_IMAGES = WARPGROUP_SCHEMES["wgmma"], SKINNY_SCHEMES["skinny"], EVERY_SCHEME["wgmma"]
CHIP = (9, 0)
CHECKED = 64
"""Rows of a product that are compared."""
MEASUREMENTS, SAMPLES, WARM = 3, 11, 2
"""Measurements of a case; samples of a measurement, and the samples before that do not count."""
BATCH, SIDE, WINDOW = 16, 64, 3
_COLD = 192 << 20
_LEAST = 3
"""The fewest launches of a graph."""

Launch = Callable[..., None]
"""Called with a stream, and by name with ``dependent``."""


class Case:
    """A timed case: launches that take turns, each with operands of its own.

    ``operations`` of a launch are two for each bit. A ``dependent`` launch overlaps the end of the one
    before. The chip is idle for ``gap`` seconds before a sample.
    """

    operations = 0.0
    dependent = False
    gap = 0.3

    def __init__(self, what: str, launches: list[Launch]) -> None:
        self.what, self.launches = what, launches
        self._turn = itertools.cycle(launches)

    @property
    def inner(self) -> int:
        """The launches of a sample: whole turns through all sets, at least `_LEAST` launches."""
        return len(self.launches) * -(-_LEAST // len(self.launches))

    def launch(self, stream: Any, *, dependent: bool = False) -> None:
        """Launch with the next set of operands."""
        next(self._turn)(stream, dependent=dependent)

    def check(self) -> None:
        """Launch the first set, and compare its result."""
        self._turn = itertools.cycle(self.launches)
        self.launch(None)
        if not self.is_right():
            raise SystemExit(f"{self.what}: the answer is wrong")

    def is_right(self) -> bool:
        """True if the first set's answer is right."""
        raise NotImplementedError

    def quick(self, short: bool, *, dependent: bool = False) -> None:
        """A launch of some microseconds: the chip needs short gaps only, and launches may overlap."""
        if short:
            self.gap, self.dependent = 0.06, dependent


class Product(Case):
    """A product of lines with their ones, to some output."""

    def __init__(
        self,
        device: Any,
        sizes: tuple[int, int, int],
        output: str,
        tile: Tile | None = None,
        scheme: Any = WGMMA,
    ) -> None:
        m, n, k = self.sizes = sizes
        self.output, self.operations = output, 2.0 * m * n * k
        random = np.random.default_rng()
        pieces = -(-k // 128)
        self.host = [
            [random.integers(0, 2**32, (lines, pieces * 4), dtype=np.uint32) for lines in (m, n)]
            for _ in range(sets_of((m + n) * pieces * 16))
        ]
        self.rule_of_host = thresholds(random, n, k)
        rule = tuple(map(device.upload, self.rule_of_host)) if output in BITS else ()
        self.made = Output(output, rule).allocate(sizes, scheme, device)
        if scheme is SKINNY:
            plan = SKINNY.plan(sizes, output, CHIP, device.multiprocessors)
        else:
            plan = WGMMA.plan(sizes, output, device.multiprocessors, tile=tile)

        def given(one: Any) -> tuple[Any, ...]:
            of_a, ones_of_a, *of_b = lines_on(device, one)
            ones = () if scheme is SKINNY else (ones_of_a,)  # few rows are counted by the product
            return of_a, *ones, *of_b, *self.made, *rule

        launches = [launch_of(device, plan, given(one)) for one in self.host]
        super().__init__(f"{sizes} to {output}", launches)
        self.quick(m <= 4096, dependent=scheme is WGMMA)

    def is_right(self) -> bool:
        """Compare some rows with a product of integers."""
        m, n, k = self.sizes
        rows = some_of(m)
        a, b = (signs(lines, k) for lines in (self.host[0][0][rows], self.host[0][1]))
        dots, result = integer_product(a, b), self.made[0].download()
        if self.output not in BITS:
            return np.array_equal(result[rows], dots)
        words = result.reshape(m, -1)[rows] if self.output == "lines" else result.T[rows]
        limit, flip = self.rule_of_host
        return np.array_equal(bits_of(words, n), (dots >= limit) != (flip != 0))


class Convolution(Case):
    """A convolution of packed images, with the ones of their pixels, to int32 or bits."""

    def __init__(
        self,
        device: Any,
        channels: int,
        output: str,
        tile: Tile | None = None,
        images: tuple[int, int, int] = (BATCH, SIDE, SIDE),
    ) -> None:
        random, words = np.random.default_rng(), channels // 32
        self.images, self.filters = (*images, channels), (WINDOW, WINDOW, channels, channels)
        self.output, shape = output, conv_shape(self.images, self.filters)
        self.operations = 2.0 * np.prod(self.images, dtype=float) * np.prod(self.filters[:3])
        self.host = [
            random.integers(0, 2**32, (*images, words), dtype=np.uint32)
            for _ in range(sets_of(4 * int(np.prod(images)) * words))
        ]
        self.weights = random.integers(0, 2**32, (WINDOW, WINDOW, channels, words), dtype=np.uint32)
        self.rule_of_host = thresholds(random, channels, WINDOW**2 * channels)
        rule = tuple(map(device.upload, self.rule_of_host)) if output == "bits" else ()
        last, dtype = (words, np.uint32) if output == "bits" else (channels, np.int32)
        self.y = device.allocate((*images, last), dtype)
        plan = WGMMA_OF_IMAGES.plan(shape, output, "none", CHIP, device.multiprocessors, tile=tile)
        w = placed(
            PackedTensor(device.upload(self.weights), self.filters, "HWOI"), "w", WGMMA_OF_IMAGES, device
        )

        def of(one: Any) -> Launch:
            x = placed(PackedTensor(device.upload(one), self.images, "NHWC"), "x", WGMMA_OF_IMAGES, device)
            operands = WGMMA_OF_IMAGES.operands(x, w, replace(shape, batch=1), device, plan.name)
            return launch_of(device, plan, (*operands, self.y, *rule))

        super().__init__(f"images of {self.images} to {output}", [of(one) for one in self.host])
        self.quick(channels <= 512, dependent=True)

    def is_right(self) -> bool:
        """Compare an image with the reference."""
        i = self.images[0] - 1
        image = PackedTensor(self.host[0][i : i + 1], (1, *self.images[1:]), "NHWC")
        answer: Any = reference.bconv2d(image, PackedTensor(self.weights, self.filters, "HWOI"))
        if self.output == "bits":
            limit, flip = self.rule_of_host
            answer = reference.threshold_tensor(answer, limit, flip != 0).words
        return np.array_equal(self.y.download()[i : i + 1], answer)


class Packing(Case):
    """The packing of a real matrix into lines along an axis, and the counts of their ones."""

    def __init__(self, device: Any, dtype: Any, side: int, axis: int = 0) -> None:
        self.host, self.axis = reals((side, side), dtype), axis
        x = device.upload(self.host)
        self.words = device.allocate((side, -(-side // 128), 4), np.uint32)
        self.ones = device.allocate((side,), np.uint32)
        self.moved = x.nbytes + self.words.nbytes + self.ones.nbytes
        kernel, grid, block = lines_plan(x, axis, device.multiprocessors)
        ptx, flag = lines_ptx(np.dtype(dtype).name, CHIP), device.upload(np.zeros(1, np.int32))
        plan = LaunchPlan(ptx.text, kernel, grid, block, (None, None, None, side, side, None))
        pack = launch_of(device, plan, (x, self.words, self.ones, flag))
        clear = launch_of(device, clear_plan(side, CHIP), (self.ones,)) if grid[1] > 1 else None

        def launch(stream: Any, *, dependent: bool) -> None:
            if clear is not None:  # blocks that share a line add to its ones
                clear(stream, dependent=dependent)
            pack(stream, dependent=dependent)

        super().__init__(f"{side} x {side} of {np.dtype(dtype).name} to lines", [launch])
        self.gap = 0.1

    def is_right(self) -> bool:
        """Compare some lines and their ones with the signs."""
        lines = some_of(len(self.host))
        right = np.take(self.host, lines, self.axis) >= 0
        right = right.T if self.axis else right
        bits = bits_of(self.words.download()[lines].reshape(len(lines), -1), len(self.host))
        return np.array_equal(bits, right) and np.array_equal(self.ones.download()[lines], right.sum(axis=1))


class Whole(Case):
    """A product of real matrices to int32, packing included; B's lines are along ``axis``."""

    def __init__(self, device: Any, dtype: Any, side: int, axis: int) -> None:
        a, b = self.packings = Packing(device, dtype, side), Packing(device, dtype, side, axis)
        self.operations = 2.0 * side**3
        (self.c,) = Output("int32").allocate((side, side, side), WGMMA, device)
        plan = WGMMA.plan((side, side, side), "int32", device.multiprocessors)
        multiply = launch_of(device, plan, (a.words, a.ones, b.words, b.ones, self.c))

        def launch(stream: Any, *, dependent: bool) -> None:
            a.launch(stream)
            b.launch(stream)
            multiply(stream, dependent=dependent)

        super().__init__(f"{side} x {side} of {np.dtype(dtype).name} to int32", [launch])

    def is_right(self) -> bool:
        """Compare some rows with a product of integers."""
        a, b = (np.where(each.host >= 0, 1, -1).astype(np.int8) for each in self.packings)
        rows = some_of(len(a))
        dots = integer_product(a[rows], b.T if self.packings[1].axis else b)
        return np.array_equal(self.c.download()[rows], dots)


class Copy(Case):
    """A copy kernel that moves as many bytes as another case."""

    def __init__(self, device: Any, moved: int) -> None:
        pieces, per_thread, threads = moved // 32, 4, 256
        self.host = np.random.default_rng().integers(0, 2**32, (pieces, 4), dtype=np.uint32)
        source, self.to = device.upload(self.host), device.allocate((pieces, 4), np.uint32)
        text = (Path(__file__).parent / "copy.cu").read_text()
        ptx = compile(text, "copy.cu", {"PER_THREAD": per_thread}, CHIP).text
        blocks = min(-(-pieces // (per_thread * threads)), 8 * device.multiprocessors)
        plan = LaunchPlan(ptx, "copy", (blocks, 1, 1), (threads, 1, 1), (None, None, np.uint64(pieces)))
        super().__init__(f"a copy of {16 * pieces} bytes", [launch_of(device, plan, (source, self.to))])
        self.gap = 0.1

    def is_right(self) -> bool:
        """Compare all bytes."""
        return np.array_equal(self.to.download(), self.host)


def burst(device: Any, case: Case, measurements: int = 0) -> list[float]:
    """The median time of one launch in the burst protocol, of each measurement; and check the answer."""
    launch = partial(case.launch, dependent=case.dependent)
    protocol: dict[str, Any] = {"inner": case.inner, "samples": SAMPLES, "gap": case.gap, "warm": WARM}
    times = [seconds(device, launch, **protocol) for _ in range(measurements or MEASUREMENTS)]
    case.check()
    return times


def sets_of(size: int) -> int:
    """The number of sets of ``size`` bytes that together are far larger than L2."""
    return max(1, -(-_COLD // size))


def lines_on(device: Any, host: Any) -> tuple[Any, ...]:
    """Lines of both operands on a device, each with the counts of its ones."""
    return tuple(
        device.upload(x)
        for lines in host
        for x in (lines, np.bitwise_count(lines).sum(axis=1, dtype=np.uint32))
    )


def launch_of(device: Any, plan: LaunchPlan, arrays: tuple[Any, ...]) -> Launch:
    """The launch of a plan with its arrays on a stream, with tensor maps made once."""
    given = iter(arrays)
    args = [
        encoded(value.at(next(given).pointer), CHIP)
        if isinstance(value, TensorMap)
        else next(given)
        if value is None
        else value
        for value in plan.args
    ]
    kernel = device.kernel(plan.ptx, plan.name)

    def launch(stream: Any, *, dependent: bool, kept: tuple[Any, ...] = arrays) -> None:
        """Launch; a map holds an address, so the arrays are ``kept``."""
        kernel(plan.grid, plan.block, *args, shared=plan.shared, stream=stream, dependent=dependent)

    return launch


def thresholds(random: np.random.Generator, columns: int, k: int) -> tuple[Any, Any]:
    """Random thresholds of the size of dot products of ``k`` signs, and flips."""
    spread = int(k**0.5)
    limit = random.integers(-spread, spread, columns).astype(np.int32)
    return limit, random.integers(0, 2, columns).astype(np.uint8)


def reals(shape: tuple[int, ...], dtype: Any) -> Any:
    """Random floats of either sign, of every magnitude below 2."""
    bits = 8 * np.dtype(dtype).itemsize
    words = np.random.default_rng().integers(0, 2**bits, shape, dtype=f"u{bits // 8}")
    words &= np.array(~(1 << bits - 2) & 2**bits - 1, words.dtype)
    return words.view(dtype)


def some_of(lines: int) -> Any:
    """The numbers of the lines that are compared."""
    return np.unique(np.linspace(0, lines - 1, CHECKED).astype(int))


def bits_of(lines: Any, k: int) -> Any:
    """The bits of lines, as 0 and 1 of uint8."""
    return np.unpackbits(np.ascontiguousarray(lines).view(np.uint8), axis=1, bitorder="little")[:, :k]


def signs(lines: Any, k: int) -> Any:
    """Lines of bits as ±1, int8."""
    return 2 * bits_of(lines, k).astype(np.int8) - 1


def integer_product(a: Any, b: Any) -> Any:
    """The product of small integers, exact: by torch where it can, else by NumPy."""
    try:
        import torch
    except ImportError:
        return (a.astype(np.float32) @ b.astype(np.float32).T).astype(np.int32)
    if len(a) <= 16 or a.shape[1] % 8 or len(b) % 8:
        return (a.astype(np.float32) @ b.astype(np.float32).T).astype(np.int32)
    a, b = (torch.from_numpy(np.ascontiguousarray(each)).cuda() for each in (a, b))
    return torch._int_mm(a, b.t()).cpu().numpy()
