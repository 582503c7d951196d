"""The ±1 convolution with excluded padding: packing and schemes (BSTC, section 5.2; BTC, section 5.3)."""

from gpu.bconv.convolution import bconv2d
from gpu.bconv.packing import pack_tensor
from gpu.bconv.schemes import SCHEMES, Plan, plan
from gpu.bconv.warpgroups import WARPGROUP_SCHEMES

__all__ = ["SCHEMES", "WARPGROUP_SCHEMES", "Plan", "bconv2d", "pack_tensor", "plan"]


def __dir__() -> list[str]:
    return sorted(__all__)
