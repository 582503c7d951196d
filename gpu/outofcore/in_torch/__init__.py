"""Training of PyTorch models that the device does not hold, with torch's autograd and optimizers.

It needs the extra "torch".
"""

from gpu.outofcore.in_torch.module import OutOfCore, outofcore

__all__ = ["OutOfCore", "outofcore"]


def __dir__() -> list[str]:
    return sorted(__all__)
