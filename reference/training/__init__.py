"""Layers of convolutional networks and their gradients by definition, in double precision."""

from reference.training.activations import (
    ACTIVATIONS,
    relu,
    relu_backward,
    sigmoid,
    sigmoid_backward,
    tanh,
    tanh_backward,
)
from reference.training.bounds import CONVOLUTIONS, bounded, error_of
from reference.training.convolution import (
    conv2d,
    conv2d_backward_bias,
    conv2d_backward_data,
    conv2d_backward_filter,
)
from reference.training.dense import DenseGradients, dense, dense_backward
from reference.training.layouts import Layout
from reference.training.loss import cross_entropy, cross_entropy_backward, softmax
from reference.training.normalization import BatchNormGradients, batch_norm, batch_norm_backward
from reference.training.optimizer import Step, sgd
from reference.training.pooling import (
    average_pool2d,
    average_pool2d_backward,
    max_pool2d,
    max_pool2d_backward,
)

__all__ = [
    "ACTIVATIONS",
    "CONVOLUTIONS",
    "BatchNormGradients",
    "DenseGradients",
    "Layout",
    "Step",
    "average_pool2d",
    "average_pool2d_backward",
    "batch_norm",
    "batch_norm_backward",
    "bounded",
    "conv2d",
    "conv2d_backward_bias",
    "conv2d_backward_data",
    "conv2d_backward_filter",
    "cross_entropy",
    "cross_entropy_backward",
    "dense",
    "dense_backward",
    "error_of",
    "max_pool2d",
    "max_pool2d_backward",
    "relu",
    "relu_backward",
    "sgd",
    "sigmoid",
    "sigmoid_backward",
    "softmax",
    "tanh",
    "tanh_backward",
]


def __dir__() -> list[str]:
    return sorted(__all__)
