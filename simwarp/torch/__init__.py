"""Binarized networks in PyTorch: trainable layers of ±1, and their export to `reference.bnn`.

It needs the extra "torch".
"""

from simwarp.torch.ensembles import sum_over_ranks
from simwarp.torch.export import export
from simwarp.torch.images import ImagePixels, ImageReals, ImageSigns
from simwarp.torch.layers import BinaryConv2d, BinaryLinear, Sign, clip_latent_weights
from simwarp.torch.training import Epoch, predict, train

__all__ = [
    "BinaryConv2d",
    "BinaryLinear",
    "Epoch",
    "ImagePixels",
    "ImageReals",
    "ImageSigns",
    "Sign",
    "clip_latent_weights",
    "export",
    "predict",
    "sum_over_ranks",
    "train",
]


def __dir__() -> list[str]:
    return sorted(__all__)
