"""The cases of MTTKRP: every format, order, mode and rank, with atomics and without, on all kinds of tensors.

The number of an input determines all of these. The first 490 inputs of "mttkrp" cover every combination of
format, order and mode, and rank, with dtypes, kinds and ``deterministic`` in turn; so do the first 140 of
"mttkrp-trees", which has the formats that were added after hardware had answered the others. COO tensors are
unsorted and have repeated coordinates. The other formats are built by `gpu` for the kernels, by the reference
for the listings.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

import gpu
import reference
from gpu.compile import compile_file
from gpu.mttkrp import formats, mttkrp
from gpu.mttkrp.kernels import Setting
from reference import sparse
from reference.types import Coo, SparseTensor
from simwarp.device.device import Device
from simwarp.listings.mttkrp import mttkrp as listing
from simwarp.verify.case import Case
from simwarp.verify.draw import Draw
from simwarp.verify.tensors import KINDS, draw_factors, draw_tensor

TREES = ("fibers-all", "b-csf-one")
"""B-CSF for the algorithms of MM-CSF: one tree for all modes, and the optimized slice algorithm."""
FORMATS = tuple(name for name in formats.FORMATS if name not in TREES)
PROBLEMS = tuple((order, mode) for order in (2, 3, 4, 5) for mode in range(order))
"""All pairs of an order and a mode."""
LISTED = (*TREES, "b-csf")
"""The formats, besides MM-CSF, that the listings take."""
RANKS = (1, 7, 32, 33, 64)
DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class Input:
    """A tensor, its factors, the mode of the result, and the format of the tensor for the kernel."""

    tensor: Coo
    factors: tuple[npt.NDArray[Any], ...]
    mode: int
    format: str
    kind: str
    deterministic: bool = False

    @property
    def rank(self) -> int:
        """The number of columns of the factors and of the result."""
        return self.factors[0].shape[1]


def _draw(names: tuple[str, ...], draw: Draw) -> Input:
    """Draw a random MTTKRP: a sparse tensor, factor matrices and a mode."""
    # As 7 (or 2), 5 and 11 are coprime, k modulo each covers every triple of format, rank and kind.
    k, pairs = draw.k, len(names) * len(RANKS)
    name, rank, kind = names[k % len(names)], RANKS[k % len(RANKS)], KINDS[k % len(KINDS)]
    order, mode = PROBLEMS[(k // pairs + k % pairs) % len(PROBLEMS)]
    dtype, deterministic = DTYPES[k // 2 % 2], k // 4 % 2 == 1
    tensor = draw_tensor(draw, kind, order, dtype, rank=rank, repeats=name == "coo")
    return Input(tensor, draw_factors(draw, tensor.shape, mode, rank, dtype), mode, name, kind, deterministic)


# --------------------------------------------------------------------------------------------------
# Tiers
# --------------------------------------------------------------------------------------------------


def _by_reference(item: Input) -> npt.NDArray[Any]:
    return reference.mttkrp(item.tensor, item.factors, item.mode)


def _by_listing(item: Input) -> npt.NDArray[Any]:
    """The answer of the listings for a format that they take, of that of MM-CSF for all others."""
    tensor = sparse.coalesce(item.tensor)
    built: Any = sparse.FORMATS[item.format if item.format in LISTED else "mm-csf"](tensor)
    return listing(built, item.factors, item.mode)


def _by_gpu(item: Input, device: gpu.Device) -> npt.NDArray[Any]:
    return mttkrp(in_format(item), item.factors, item.mode, device=device, deterministic=item.deterministic)


def in_format(item: Input) -> SparseTensor:
    """Convert the tensor to the format of the input."""
    return item.tensor if item.format == "coo" else formats.FORMATS[item.format](item.tensor)


def differs(item: Input, expected: npt.NDArray[Any], got: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Mask of the elements that are NaN or differ by more than the bound on rounding errors."""
    bound = reference.mttkrp_bound(item.tensor, item.factors, item.mode, item.tensor.values.dtype)
    return ~(abs(got.astype(np.float64) - expected) <= bound)


# --------------------------------------------------------------------------------------------------
# Description of inputs and mismatches
# --------------------------------------------------------------------------------------------------


def _describe(item: Input) -> str:
    shape = " x ".join(map(str, item.tensor.shape))
    how = ", deterministic" if item.deterministic else ""
    return (
        f"{item.format}, mode {item.mode} of {shape} with {item.tensor.values.size} nonzeros ({item.kind}), "
        f"R = {item.rank}, {item.tensor.values.dtype}{how}"
    )


def _explain(item: Input, element: tuple[int, ...], _: int) -> str:
    """Describe an output: its index of the mode, its column, and the number of nonzeros in the sum."""
    row, column = element
    terms = int((item.tensor.coords[item.mode] == row).sum())
    return f"column {column} of index {row} of mode {item.mode}, a sum over {terms} nonzeros"


def _shape(item: Input) -> tuple[int, ...]:
    return (*item.tensor.shape, item.tensor.values.size, item.mode, item.rank)


_MACROS: dict[str, dict[str, str | int]] = {
    "clear.cu": {},
    "reduce.cu": {},
    **{entry.source: entry.macros for entry in formats.OF_TYPE.values() if entry.work},
}
"""The macros of each source, in addition to those of its setting."""


def _kernels(arch: tuple[int, int]) -> dict[str, str]:
    """Compile every source for order 3, with one and with several columns per thread."""
    device = Device(cc=arch)
    settings = [
        Setting(device, np.dtype(dtype), 3, rank, deterministic)
        for dtype in DTYPES
        for rank in (7, 32)
        for deterministic in (False, True)
    ]
    compiled = [
        compile_file(f"mttkrp/{source}", setting.defines | macros, arch)
        for source, macros in _MACROS.items()
        for setting in settings
        if setting.deterministic or source != "reduce.cu"
    ]
    return {ptx.name: ptx.sha256 for ptx in compiled}


CASES = [
    Case(
        name=name,
        draw=partial(_draw, names),
        shape=_shape,
        describe=_describe,
        answers={"reference": _by_reference, "listing": _by_listing, "gpu": _by_gpu},
        outputs={"gpu": "out", "listing": "out"},
        explain=_explain,
        lead=lambda item, bits: 0,  # the answers are floats, which have no differing bits
        kernels=_kernels,
        covering=len(names) * len(RANKS) * len(PROBLEMS),
        differs=differs,
    )
    for name, names in (("mttkrp", FORMATS), ("mttkrp-trees", TREES))
]
