"""Binarized networks as plain data, and their inference in exact integers."""

from reference.bnn.ensembles import run_ensemble
from reference.bnn.files import load, save
from reference.bnn.inference import run, values
from reference.bnn.keras_models import from_keras
from reference.bnn.networks import alexnet, lenet, mlp, resnet14, resnet18, vgg16, vgg_cifar
from reference.bnn.text_weights import from_text
from reference.types import layers, network
from reference.types.layers import *  # noqa: F403 - a layer is exported where it is defined
from reference.types.network import *  # noqa: F403

__all__ = [
    "alexnet",
    "from_keras",
    "from_text",
    "lenet",
    "load",
    "mlp",
    "resnet14",
    "resnet18",
    "run",
    "run_ensemble",
    "save",
    "values",
    "vgg16",
    "vgg_cifar",
]
__all__ += layers.__all__
__all__ += network.__all__


def __dir__() -> list[str]:
    return sorted(__all__)
