"""Convolutions and their gradients of arrays that a device does not hold (ooc_cuDNN)."""

from gpu.outofcore.doors import conv2d, conv2d_backward_data, conv2d_backward_filter
from gpu.outofcore.explain import explain
from gpu.outofcore.options import Options
from gpu.outofcore.pieces import Pieces
from gpu.outofcore.plan import Plan
from gpu.outofcore.rates import Rates
from gpu.outofcore.statistics import Statistics

__all__ = [
    "Options",
    "Pieces",
    "Plan",
    "Rates",
    "Statistics",
    "conv2d",
    "conv2d_backward_data",
    "conv2d_backward_filter",
    "explain",
]
