"""The ±1 matrix product: all transposes, element types mixed, operands packed or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

import gpu
import reference
import simwarp
from gpu.bmm.packing import packing_ptx
from gpu.bmm.product import product_ptx
from reference.types import Layout, PackedBits
from simwarp.verify.case import Case
from simwarp.verify.draw import DTYPES, Draw


@dataclass(frozen=True)
class Input:
    """Two operands, op(A) of (m, k) and op(B) of (k, n)."""

    a: Any
    b: Any
    transpose_a: bool
    transpose_b: bool
    sizes: tuple[int, int, int]


def _draw(draw: Draw) -> Input:
    m, n, k = draw.sizes(3)
    transpose_a, transpose_b = draw.choice((False, True)), draw.choice((False, True))
    a = _operand(draw, m, k, transposed=transpose_a, rows_run_along_k=not transpose_a)
    b = _operand(draw, k, n, transposed=transpose_b, rows_run_along_k=transpose_b)
    return Input(a, b, transpose_a, transpose_b, (m, n, k))


def _operand(draw: Draw, rows: int, columns: int, *, transposed: bool, rows_run_along_k: bool) -> Any:
    if transposed:
        rows, columns = columns, rows
    kind = draw.choice((*DTYPES, *DTYPES, "packed"))
    if kind != "packed":
        return draw.matrix(rows, columns, kind)
    layout: Layout = "column" if rows_run_along_k else "row"
    k, lines = (columns, rows) if rows_run_along_k else (rows, columns)
    return PackedBits(draw.bits(-(-k // 32), lines, k), (rows, columns), layout)


def _describe(item: Input) -> str:
    def one(x: Any, transposed: bool) -> str:
        kind = "packed" if isinstance(x, PackedBits) else str(x.dtype)
        return f"{kind} {x.shape[0]} x {x.shape[1]}{' transposed' if transposed else ''}"

    return f"{one(item.a, item.transpose_a)} by {one(item.b, item.transpose_b)}"


def _by_reference(item: Input) -> npt.NDArray[Any]:
    return reference.bmm(item.a, item.b, transpose_a=item.transpose_a, transpose_b=item.transpose_b)


def _by_listing(item: Input) -> npt.NDArray[Any]:
    return simwarp.listings.bmm32(item.a, item.b, transpose_a=item.transpose_a, transpose_b=item.transpose_b)


def _by_gpu(item: Input, device: gpu.Device) -> npt.NDArray[Any]:
    return gpu.bmm(item.a, item.b, transpose_a=item.transpose_a, transpose_b=item.transpose_b, device=device)


def _kernels(arch: tuple[int, int]) -> dict[str, str]:
    compiled = [product_ptx(arch), *(packing_ptx(dtype, "msb", arch) for dtype in DTYPES)]
    return {ptx.name: ptx.sha256 for ptx in compiled}


CASES = [
    Case(
        name="bmm32",
        draw=_draw,
        shape=lambda item: item.sizes,
        describe=_describe,
        answers={"reference": _by_reference, "listing": _by_listing, "gpu": _by_gpu},
        outputs={"gpu": "c", "listing": "C"},
        explain=lambda item, element, bits: f"C{list(element)}",
        kernels=_kernels,
    )
]
