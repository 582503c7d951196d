"""The cases of the products of bits: every scheme, transpose and output, from full to almost empty matrices.

The number of an input determines scheme, transposes, output and kind of size, so that the first inputs cover
every combination: 540 for the schemes on CUDA cores and on bit tensor cores, 60 for that on warpgroups, which
is a case of its own. An operand has 2^-j of its bits, as drawn; every other left one is on the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

import gpu
import reference
from gpu.bmm.kinds import nonzero_ptx
from gpu.bmm.schemes import (
    RING_SCHEMES,
    SCHEMES,
    TENSOR_CORE_SCHEMES,
    AnyScheme,
    Scheme,
    TensorCoreScheme,
    product_ptx,
)
from gpu.bmm.skinny import SKINNY_SCHEMES, SkinnyScheme
from gpu.bmm.warpgroups import BITS, TILES, WARPGROUP_SCHEMES
from reference.types import PackedBits
from simwarp.verify.case import Case
from simwarp.verify.draw import DTYPES, Draw

Output: TypeAlias = Literal["and", "and to bits", "or"]
OUTPUTS: tuple[Output, ...] = ("and", "and to bits", "or")
EVERYWHERE: dict[str, AnyScheme] = {**SCHEMES, **TENSOR_CORE_SCHEMES, **RING_SCHEMES, **SKINNY_SCHEMES}
"""The schemes of the case "bmm-bits"."""
WARPGROUPS: dict[str, AnyScheme] = {**WARPGROUP_SCHEMES}
"""That of the case "bmm-bits-wgmma"."""
_RAREST = 7
"""The sparsest operands have one bit of 2^7."""


@dataclass(frozen=True)
class Input:
    """Operands with op(A) of (m, k) and op(B) of (k, n), scheme and output, for bits of "and" thresholds."""

    a: Any
    b: Any
    transpose_a: bool
    transpose_b: bool
    sizes: tuple[int, int, int]
    scheme: AnyScheme
    output: Output
    thresholds: npt.NDArray[np.int32] | None = None
    uploaded: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of both products."""
        kind = "or" if self.output == "or" else "and"
        return {"transpose_a": self.transpose_a, "transpose_b": self.transpose_b, "kind": kind}


def _draw(schemes: Mapping[str, AnyScheme], draw: Draw) -> Input:
    """Draw a random product of bits for one of the schemes."""
    number, which = divmod(draw.k // 5, len(schemes))  # the kind of size is draw.k % 5
    scheme, output = list(schemes.values())[which], OUTPUTS[number % 3]
    transpose_a, transpose_b = (bool(number // 3 >> i & 1) for i in range(2))
    m, n, k = draw.sizes(3)
    if isinstance(scheme, SkinnyScheme):
        m, n = (1 + m % scheme.most, n) if m < n else (m, 1 + n % scheme.most)
    a = _operand(draw, (m, k), transposed=transpose_a, scheme=scheme, along=1)
    b = _operand(draw, (k, n), transposed=transpose_b, scheme=scheme, along=0)
    thresholds = None
    if output == "and to bits":
        thresholds = np.array(
            [draw.integer(-1, 1 + k // 2 ** draw.integer(0, _RAREST)) for _ in range(n)], np.int32
        )
    uploaded = draw.k % 2 == 1 and not isinstance(a, PackedBits) and a.dtype.name in DTYPES
    return Input(a, b, transpose_a, transpose_b, (m, n, k), scheme, output, thresholds, uploaded)


def _operand(draw: Draw, shape: tuple[int, int], *, transposed: bool, scheme: AnyScheme, along: int) -> Any:
    """Draw op(operand) of a shape, as numbers or packed along its axis ``along``; the operand itself."""
    kind = draw.choice((*DTYPES, "bool", "uint8", "packed"))
    rows, columns = shape
    bits = np.ones(shape, np.bool_)
    for _ in range(draw.integer(0, _RAREST)):
        words = draw.bits(columns, rows, 64, "lsb").astype("<u8")
        each = np.unpackbits(words.T.copy().view(np.uint8), axis=1, bitorder="little")[:, :rows]
        bits &= each.T != 0
    bits = bits.T if transposed else bits
    if kind == "packed":
        signs = np.where(bits, 1, -1).astype(np.int8)
        return reference.pack(
            signs, layout="column" if along != transposed else "row", word=scheme.word, first=scheme.first
        )
    if kind in DTYPES:
        down, across = bits.shape
        values, (one, zero) = draw.matrix(down, across, kind), np.array([-1, 0], kind)
        zeros = zero if kind == "int8" else np.copysign(zero, values)
        return np.where(bits, np.where(values == 0, one, values), zeros)
    return bits.astype(kind)


def _describe(item: Input) -> str:
    def one(x: Any, transposed: bool) -> str:
        kind = "packed" if isinstance(x, PackedBits) else str(x.dtype)
        return f"{kind} {x.shape[0]} x {x.shape[1]}{' transposed' if transposed else ''}"

    operands = f"{one(item.a, item.transpose_a)} by {one(item.b, item.transpose_b)}"
    return f"{item.scheme.name}, {operands}: {item.output}{', a on the device' if item.uploaded else ''}"


def _by_reference(item: Input) -> npt.NDArray[Any]:
    answer = reference.bmm(item.a, item.b, **item.options)
    word, first = item.scheme.word, item.scheme.first
    if item.output == "or":
        return reference.threshold(
            answer.astype(np.int32), np.ones(item.sizes[1], np.int32), word=word, first=first
        ).words
    if item.thresholds is None:
        return answer
    return reference.threshold(answer, item.thresholds, word=word, first=first).words


def _by_gpu(item: Input, device: gpu.Device) -> npt.NDArray[Any]:
    a = device.upload(item.a) if item.uploaded else item.a
    options: dict[str, Any] = {**item.options, "thresholds": item.thresholds, "scheme": item.scheme.name}
    answer = gpu.bmm(a, item.b, **options, device=device)
    answer = answer.words if isinstance(answer, PackedBits) else answer
    return answer.download() if item.uploaded else answer


def _explain(item: Input, element: tuple[int, ...], bit: int) -> str:
    """Describe an output: the element of C that a value or a bit of a word holds."""
    if item.output == "and":
        return f"C{list(element)}"
    word = item.scheme.word
    column = element[0] * word + (word - 1 - bit if item.scheme.first == "msb" else bit)
    return f"bit of C{[element[1], column]}" + ("" if column < item.sizes[1] else ", which is padding")


def _lead(item: Input, bits: tuple[int, ...]) -> int:
    return min(bits) if item.output != "and" and item.scheme.first == "lsb" else max(bits)


def _kernels(arch: tuple[int, int]) -> dict[str, str]:
    """The kernels on CUDA cores and bit tensor cores, whichever tile a shape takes, and of numbers' bits."""
    tiled = [each for each in EVERYWHERE.values() if isinstance(each, Scheme | TensorCoreScheme)]
    tiled += [scheme.smaller for scheme in RING_SCHEMES.values() if scheme.smaller]
    products = [
        product_ptx(scheme, output, scheme.first, arch, common=True)
        for scheme in tiled
        for output in ("int", "bits")
    ]
    few = [
        scheme.ptx(few, warps, output, arch, swapped=swapped, common=True)
        for scheme in SKINNY_SCHEMES.values()
        for few in (8, 16)
        for warps in (4, 8)
        for output in ("int32", "words")
        for swapped in (False, True)
    ]
    numbers = [nonzero_ptx(dtype, arch) for dtype in DTYPES]
    return {ptx.name: ptx.sha256 for ptx in (*products, *few, *numbers)}


def _warpgroup_kernels(arch: tuple[int, int]) -> dict[str, str]:
    products = [
        WARPGROUP_SCHEMES["wgmma"].ptx(tile, output, boxes=boxes, common=True)
        for output in ("int32", "words")
        for tile in TILES[output]
        for boxes in ((False,) if output in BITS else (False, True))
    ]
    return {ptx.name: ptx.sha256 for ptx in (*products, *(nonzero_ptx(dtype, arch) for dtype in DTYPES))}


CASES = [
    Case(
        name=name,
        draw=partial(_draw, schemes),
        shape=lambda item: item.sizes,
        describe=_describe,
        answers={"reference": _by_reference, "gpu": _by_gpu},
        outputs={"gpu": "c"},
        explain=_explain,
        lead=_lead,
        kernels=kernels,
        covering=60 * len(schemes),
    )
    for name, schemes, kernels in (
        ("bmm-bits", EVERYWHERE, _kernels),
        ("bmm-bits-wgmma", WARPGROUPS, _warpgroup_kernels),
    )
]
