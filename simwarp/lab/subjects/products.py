"""Compares ±1 matrix products of Hopper's schemes on a device with NumPy's, element for element.

Each product has a random shape, scheme and kind of output, and is computed twice: both answers must be right,
and so be the same. The recording has the counts and a digest of the small products, which tests replay on
the simulator.

>>> drawn(6).sizes, drawn(6).kind, drawn(6).output
((31, 26, 2), 'tiny', 'int32')
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import gpu
from simwarp.lab.crew import Lost, perform
from simwarp.lab.recording import Answers, Asking, Subject
from simwarp.verify.draw import Draw

SEED = 18
PRODUCTS, CHUNK = 5376, 64
"""Products in all, and those of a task."""
KINDS = ("plain", "edges", "plain", "few", "many tiles", "long", "tiny", "edges")
OUTPUTS = ("int32", "int16", "float16", "float32", "words", "lines")
REPLAYED = tuple(n for n in range(4 * len(KINDS) * len(OUTPUTS)) if KINDS[n % len(KINDS)] == "tiny")
"""The numbers of the products that tests replay."""
_LARGEST_INT16 = 2**15 - 1
_SHOWN = 5
"""Differences that are described for one task."""

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Item:
    """A product: sizes (m, n, k), scheme, and kind of output."""

    number: int
    kind: str
    sizes: tuple[int, int, int]
    scheme: str
    output: str

    def __str__(self) -> str:
        m, n, k = self.sizes
        return f"product {self.number}, {self.kind}: {m} x {k} by {k} x {n} to {self.output}, {self.scheme}"


def drawn(number: int) -> Item:
    """The product with a number; kinds of sizes and of outputs alternate."""
    draw = Draw(SEED, "products", number)
    kind = KINDS[number % len(KINDS)]
    output = OUTPUTS[number // len(KINDS) % len(OUTPUTS)]
    if kind == "few":
        sizes = draw.integer(1, 16), draw.integer(1, 2000), draw.integer(1, 6000)
    elif kind == "many tiles":
        sizes = draw.integer(1500, 3000), draw.integer(1500, 3000), draw.integer(1, 1500)
    elif kind == "long":
        sizes = draw.integer(1, 150), draw.integer(1, 150), draw.integer(_LARGEST_INT16 + 1, 80_000)
    elif kind == "edges":
        tiles = (64, 128, 192, 256, 512)
        m, n = (draw.choice(tiles) + draw.integer(-1, 1) for _ in "mn")
        sizes = m, n, draw.choice((128, 256, 1024, 2048)) + draw.integer(-1, 1)
    else:
        most = 40 if kind == "tiny" else 700
        sizes = (
            draw.integer(1, most),
            draw.integer(1, most),
            draw.integer(1, most if kind == "tiny" else 4000),
        )
    if output == "int16" and sizes[2] > _LARGEST_INT16:
        output = "int32"
    skinny = kind == "few" and output in ("int32", "words") and draw.integer(0, 1)
    return Item(number, kind, sizes, "skinny" if skinny else "wgmma", output)


def operands(item: Item) -> tuple[Array, Array, dict[str, Array]]:
    """Signs of A and B, int8, and the vectors of the output."""
    (m, n, k), draw = item.sizes, Draw(SEED, "operands", item.number)
    bits = np.unpackbits(draw.words((m + n) * k // 64 + 1).view(np.uint8))[: (m + n) * k]
    signs = (2 * bits.astype(np.int8) - 1).reshape(m + n, k)
    spread = int(np.sqrt(k)) + 1
    if item.output in ("words", "lines"):
        words = draw.words(n)
        thresholds = (words % np.uint64(2 * spread + 1)).astype(np.int32) - spread
        return signs[:m], signs[m:].T, {"thresholds": thresholds, "flip": words >> np.uint64(63) > 0}
    if item.output.startswith("float"):
        return signs[:m], signs[m:].T, {"scales": (1 + np.arange(n) % 7).astype(np.float32) / 8}
    return signs[:m], signs[m:].T, {}


def expected(item: Item) -> Array:
    """The product computed by NumPy: sums of up to 80,000 signs are exact in float32."""
    a, b, vectors = operands(item)
    dots = a.astype(np.float32) @ b.astype(np.float32)
    if "thresholds" in vectors:
        ones = (dots >= vectors["thresholds"]) != vectors["flip"]
        width = 32 * (4 if item.output == "lines" else 1)
        padded = np.pad(ones, ((0, 0), (0, -ones.shape[1] % width)))
        words = np.packbits(padded, axis=1, bitorder="little").view("<u4")
        return words if item.output == "lines" else words.T
    return (dots * vectors.get("scales", np.float32(1))).astype(item.output)


def answer(device: Any, item: Item) -> Array:
    """The product computed by a device, through the public call."""
    a, b, vectors = operands(item)
    options: dict[str, Any] = dict(vectors)
    if item.output == "lines":
        options["prepared"] = True
    elif item.output not in ("words", "int32"):
        options["dtype"] = item.output
    placed = (device.upload(np.ascontiguousarray(x), name) for x, name in ((a, "a"), (b, "b")))
    made = gpu.bmm(*placed, scheme=item.scheme, **options)
    if item.output == "words":
        return made.words.download()
    if item.output != "lines":
        return made.download()
    words = made.words.download().reshape(len(a), -1)
    ones = made.ones.download().reshape(len(a), -1).sum(axis=1)
    if not np.array_equal(ones, np.bitwise_count(words).sum(axis=1)):
        raise ArithmeticError(f"{item}: the count of ones in a line is not that of its words")
    return words


def compare(chip: Any, first: int, small: bool) -> tuple[Counter[str], list[str]]:
    """Compare a chip's products of a task with the expected ones; return counts and differences."""
    counts, differences = Counter[str](), list[str]()
    for number in range(first, first + CHUNK):
        item = drawn(number)
        if small and item.kind != "tiny":
            continue
        right, found = expected(item), [answer(chip, item) for _ in range(2)]
        counts.update(["products", f"{item.kind} shapes", f"to {item.output}", f"by {item.scheme}"])
        wrong = [int(np.count_nonzero(each != right)) for each in found]
        if any(wrong):
            counts["mismatches"] += 1
            at = np.argwhere((found[0] != right) | (found[1] != right))[0].tolist()
            values = f"{found[0][tuple(at)]} and {found[1][tuple(at)]} instead of {right[tuple(at)]}"
            differences.append(f"{item}: {wrong} elements differ, the first at {at}: {values}")
    return counts, differences[:_SHOWN]


def digest(device: Any, count: int = len(REPLAYED)) -> str:
    """The digest of a device's results for the products that tests replay, or for the first ``count``."""
    found = hashlib.sha256()
    for number in REPLAYED[:count]:
        found.update(np.ascontiguousarray(answer(device, drawn(number))).tobytes())
    return found.hexdigest()


def ask(asking: Asking) -> Answers:
    """Compare every matrix product of the hardware with the simulator's, in parallel processes."""
    tasks = [(first, asking.small) for first in range(0, asking.number(PRODUCTS, CHUNK), CHUNK)]
    counts, differences, lost = Counter[str](mismatches=0), list[str](), 0
    asked = perform(asking.make, compare, tasks, asking.processes)
    for (first, _), found in zip(asking.each(tasks), asked, strict=True):
        if isinstance(found, Lost):
            lost += 1
            differences.append(f"products from {first} on: no answer\n{found.reason}")
            continue
        counts.update(found[0])
        differences += found[1]
    first = digest(asking.device, asking.number(len(REPLAYED), 2))
    facts = {"seed": SEED, "lost": lost, **dict(sorted(counts.items())), "first": first}
    return Answers(facts, differences=differences)


SUBJECTS = [Subject("products", "thousands of ±1 products of random shapes, on Hopper's kernels", ask)]
