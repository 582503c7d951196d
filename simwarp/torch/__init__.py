"""Binarized networks of PyTorch: layers of ±1 that train, and what `reference.bnn` runs made of them.

It needs the extra "torch".
"""

from simwarp.torch.export import export
from simwarp.torch.images import ImagePixels, ImageReals, ImageSigns
from simwarp.torch.layers import BinaryConv2d, BinaryLinear, Sign, clip_latent_weights

__all__ = [
    "BinaryConv2d",
    "BinaryLinear",
    "ImagePixels",
    "ImageReals",
    "ImageSigns",
    "Sign",
    "clip_latent_weights",
    "export",
]
