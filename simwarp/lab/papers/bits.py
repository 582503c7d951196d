"""Products, convolutions and packing of bits, for BSTC and BTC: by scheme and size, on either device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

import gpu
import reference
from reference.types import PackedBits, PackedTensor
from simwarp.lab.bench.problems import Product
from simwarp.lab.network_studies import Facts
from simwarp.lab.papers.entries import Made, Maker, Making
from simwarp.lab.papers.measure import Meter, check
from simwarp.listings import approach_costs

Chip = tuple[int, int]

HOPPER: Chip = (9, 0)
TURING: Chip = (7, 5)
FILTER = 3
"""Taps of a filter along each axis."""
CHECKED = 3
"""Rows of pixels of an image that are compared; they depend on one row more."""
APPROACHES = ("row-by-row", "row-by-column", "column-by-row", "column-by-column")


def products(
    schemes: Sequence[str], sizes: Sequence[int], chip: Chip = HOPPER, *, real: bool = False
) -> Maker:
    """Square products by scheme and size: of packed operands to bits, or of float32 to int32."""

    def make(making: Making) -> Made:
        rows, runs = list[Facts](), [*product(sizes, schemes)]
        for done, (n, scheme) in enumerate(runs):
            making.progress(done, len(runs))
            if n not in making.kept:
                making.kept[n] = Product(n)
            rows.append(_product(Meter(making, chip), scheme, making.kept[n], real))
        to = "of float32 to int32" if real else "of packed bits to bits"
        return Made(rows, f"n up to {max(sizes):,}, {to}, {Meter(making, chip).about()}")

    return make


def _product(meter: Meter, scheme: str, problem: Product, real: bool) -> Facts:
    device, n = meter.device, problem.n
    if real:
        floats = [device.upload(x.astype(np.float32)) for x in (problem.a, problem.b)]
        answer, cost = meter.cost(partial(gpu.bmm, *floats, scheme=scheme), captured=False)
        right = problem.is_right(answer.download())
    else:
        given = [
            gpu.prepare(x, of, scheme=scheme, device=device) for x, of in ((problem.a, "a"), (problem.b, "b"))
        ]
        answer, cost = meter.cost(partial(gpu.bmm, *given, scheme=scheme, **_signs_as_bits(device, n)))
        whole = PackedBits(answer.words.download(), answer.shape, answer.layout, answer.word, answer.first)
        right = problem.has_signs(reference.unpack(whole))
    check(f"{scheme} of {n}", right)
    return {"scheme": scheme, "n": n, **cost, **_rate(cost, problem.operations)}


def convolutions(
    schemes: Sequence[str],
    channels: Sequence[tuple[int, int]],
    chip: Chip = HOPPER,
    *,
    images: int = 1,
    side: int = 8,
    real: bool = False,
) -> Maker:
    """Convolutions by scheme and numbers of channels and filters: to bits, or of float32 to int32."""

    def make(making: Making) -> Made:
        rows, runs = list[Facts](), [*product(channels, schemes)]
        for done, (sizes, scheme) in enumerate(runs):
            making.progress(done, len(runs))
            rows.append(_convolution(Meter(making, chip), scheme, (images, side, *sizes), real))
        shape = f"{images} image{'s' * (images > 1)} of {side} × {side}, filters of {FILTER} × {FILTER}"
        to = "float32 to int32" if real else "packed bits to bits"
        return Made(rows, f"{shape}, {to}, {Meter(making, chip).about()}")

    return make


def _convolution(meter: Meter, scheme: str, sizes: tuple[int, int, int, int], real: bool) -> Facts:
    images, side, channels, filters = sizes
    device, random = meter.device, np.random.default_rng(channels + filters)
    x, w = _signs(random, images, side, side, channels), _signs(random, FILTER, FILTER, channels, filters)
    expected = reference.bconv2d(x[-1:, : CHECKED + 1], w)[0, :CHECKED]
    if real:
        floats = [device.upload(each.astype(np.float32)) for each in (x, w)]
        answer, cost = meter.cost(partial(gpu.bconv2d, *floats, scheme=scheme), captured=False)
        right = np.array_equal(answer.download()[-1, :CHECKED], expected)
    else:
        given = [gpu.prepare(each, of, scheme=scheme, device=device) for each, of in ((x, "x"), (w, "w"))]
        call = partial(gpu.bconv2d, *given, scheme=scheme, **_signs_as_bits(device, filters))
        call()  # computes the addends of the border once
        answer, cost = meter.cost(call)
        whole = PackedTensor(answer.words.download(), answer.shape, answer.layout, answer.word, answer.first)
        right = np.array_equal(reference.unpack_tensor(whole)[-1, :CHECKED], expected >= 0)
    check(f"{scheme} of {channels} channels and {filters} filters", right)
    operations = 2.0 * images * side**2 * FILTER**2 * channels * filters
    return {"scheme": scheme, "channels": channels, "filters": filters, **cost, **_rate(cost, operations)}


def _signs(random: np.random.Generator, *shape: int) -> npt.NDArray[np.int8]:
    return 2 * random.integers(0, 2, shape, dtype=np.int8) - 1


def _signs_as_bits(device: Any, count: int) -> dict[str, Any]:
    """Thresholds of 0, which give the signs of dot products."""
    rule = {"thresholds": np.int32, "flip": np.uint8}
    return {name: device.upload(np.zeros(count, dtype)) for name, dtype in rule.items()}


def _rate(cost: Facts, operations: float) -> Facts:
    return {"TOPS": operations / cost["us"] / 1e6} if "us" in cost else {}


def approaches(making: Making) -> Made:
    """What a warp does to multiply two tiles of 32 × 32 bits, by each of BSTC's four approaches."""
    rows: list[Facts] = [{"approach": name, **approach_costs(name, 32, 32, 32)} for name in APPROACHES]
    for row in rows:
        row["votes and shuffles"] = row["votes"] + row["shuffles"]
        row["to row by row"] = row["votes and shuffles"] / rows[0]["votes and shuffles"]
    return Made(rows, "tiles of 32 × 32: operations of a warp of the listings")


def packing(making: Making) -> Made:
    """What the packing kernels do, by layout and word, for a ragged matrix of float32."""
    x, rows = np.random.default_rng(0).standard_normal((250, 333)).astype(np.float32), list[Facts]()
    for layout, word in product(("row", "column"), (32, 64)):
        meter = Meter(making)
        given = meter.device.upload(x)
        packed, cost = meter.cost(partial(gpu.pack, given, layout=layout, word=word), captured=False)
        expected = reference.pack(x, layout=layout, word=word)
        check(f"packing by {layout}", np.array_equal(packed.words.download(), expected.words))
        rows.append({"layout": layout, "word": word, **cost})
    return Made(rows, f"250 × 333 of float32, {Meter(making).about()}")
