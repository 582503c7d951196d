"""The table of chips: the kernels that production prefers on each, and the instructions that these may use.

An entry is for its compute capability and those up to the next entry's.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Chip:
    """What production prefers and may use on a generation of chips."""

    products: tuple[str, ...]  # the schemes of `gpu.bmm`, the fastest first
    convolutions: tuple[str, ...]  # those of `gpu.bconv2d`; the last one is for every geometry
    bit_tensor_cores: str  # "has", "has no", or "emulates" by other instructions
    sm_80: bool = True  # asynchronous copies, and products of 16 x 8 x 256 bits
    sm_90: bool = True  # tensor maps, and launches that begin before the one before has ended
    sm_90a: bool = False  # warpgroups


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
