"""Out-of-core convolutions, gradients and training: data need not fit on the device (ooc_cuDNN)."""

from gpu.device_tensor import DeviceTensor
from gpu.outofcore.doors import conv2d, conv2d_backward_data, conv2d_backward_filter
from gpu.outofcore.explain import explain
from gpu.outofcore.layer_gradients import (
    activate_backward,
    conv2d_backward_bias,
    dense_backward,
    pool2d_backward,
)
from gpu.outofcore.layers import activate, add_bias, dense, pool2d
from gpu.outofcore.networks.layers import (
    SGD,
    AveragePool,
    BatchNorm,
    Conv,
    Dense,
    Flatten,
    MaxPool,
    Network,
    vgg16,
)
from gpu.outofcore.networks.options import TrainingOptions
from gpu.outofcore.networks.phases import Cut
from gpu.outofcore.networks.plan import Segment, TrainingPlan
from gpu.outofcore.networks.trainer import Trainer, TrainingProgress
from gpu.outofcore.options import Options
from gpu.outofcore.pieces import Pieces
from gpu.outofcore.placement import allocate, copy, free
from gpu.outofcore.plan import Plan
from gpu.outofcore.rates import Rates
from gpu.outofcore.statistics import Statistics

__all__ = [
    "SGD",
    "AveragePool",
    "BatchNorm",
    "Conv",
    "Cut",
    "Dense",
    "DeviceTensor",
    "Flatten",
    "MaxPool",
    "Network",
    "Options",
    "Pieces",
    "Plan",
    "Rates",
    "Segment",
    "Statistics",
    "Trainer",
    "TrainingOptions",
    "TrainingPlan",
    "TrainingProgress",
    "activate",
    "activate_backward",
    "add_bias",
    "allocate",
    "conv2d",
    "conv2d_backward_bias",
    "conv2d_backward_data",
    "conv2d_backward_filter",
    "copy",
    "dense",
    "dense_backward",
    "explain",
    "free",
    "pool2d",
    "pool2d_backward",
    "vgg16",
]


def __dir__() -> list[str]:
    return sorted(__all__)
