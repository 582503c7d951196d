"""Binarized networks as plain data, and their answers in exact integers."""

from reference.bnn.inference import Answer, run, values
from reference.types.network import (
    Affine,
    BitPlanes,
    Clip,
    Conv,
    Dense,
    Flatten,
    Input,
    Layer,
    Network,
    PadChannels,
    Pixels,
    Pool,
    Reals,
    Residual,
    Signs,
    Threshold,
)

__all__ = [
    "Affine",
    "Answer",
    "BitPlanes",
    "Clip",
    "Conv",
    "Dense",
    "Flatten",
    "Input",
    "Layer",
    "Network",
    "PadChannels",
    "Pixels",
    "Pool",
    "Reals",
    "Residual",
    "Signs",
    "Threshold",
    "run",
    "values",
]
