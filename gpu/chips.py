"""The table of chips: the kernels that production prefers on each, and the instructions that these may use.

An entry is for its compute capability and those up to the next entry's.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Chip:
    """The preferred schemes of a generation of chips, and the features that kernels may use."""

    products: tuple[str, ...]  # the schemes of `gpu.bmm` for the chip, the fastest first
    # the schemes of `gpu.bconv2d` for the chip; the last one takes every geometry
    convolutions: tuple[str, ...]
    bit_tensor_cores: str  # "has", "has no", or "emulates": other instructions compute the products
    sm_80: bool = True  # whether it has asynchronous copies, and products of 16 x 8 x 256 bits
    sm_90: bool = True  # whether it has tensor maps, and launches that may overlap the launch before
    sm_90a: bool = False  # whether it has products by warpgroups


CHIPS: dict[tuple[int, int], Chip] = {
    (0, 0): Chip(("bmm32", "bmms64"), ("bconv64", "bconv32"), "has no", sm_80=False, sm_90=False),
    (7, 5): Chip(("btc2", "bmm32", "bmms64"), ("btc1", "bconv32"), "has", sm_80=False, sm_90=False),
    (8, 0): Chip(("skinny", "mma", "bmm32", "bmms64"), ("btc1", "bconv32"), "has", sm_90=False),
    (9, 0): Chip(("skinny", "wgmma", "btc2", "bmm32", "bmms64"), ("wgmma", "btc1"), "has", sm_90a=True),
    (10, 0): Chip(("bmm32", "bmms64"), ("bconv64", "bconv32"), "emulates"),
}


def chip_of(capability: tuple[int, int]) -> Chip:
    """The entry of the largest compute capability up to this one."""
    return CHIPS[max(chip for chip in CHIPS if chip <= capability)]
