"""Sequential networks as plain data: layers, the network, and the optimizer."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from gpu.outofcore.networks.stages import Shape, Stage, norm_of, stage_of
from gpu.outofcore.problem import Activation
from reference.errors import SchemeError, ShapeError
from reference.types.arguments import check_option
from reference.types.fields import is_integer
from reference.values import shortened

PerAxis: TypeAlias = int | tuple[int, int]


@shortened
@dataclass(frozen=True)
class Conv:
    """A convolution with a bias, followed by an activation.

    Parameters
    ----------
    filters : int
    window : int or (vertical, horizontal)
    stride, padding, dilation, groups, activation
        As of `gpu.outofcore.conv2d`.

    Examples
    --------
    >>> Conv(64, activation="relu").window
    3
    """

    filters: int
    window: PerAxis = 3
    stride: PerAxis = 1
    padding: Any = "SAME"
    dilation: PerAxis = 1
    groups: int = 1
    activation: Activation | None = None


@shortened
@dataclass(frozen=True)
class MaxPool:
    """The largest pixel of each window: `reference.training.max_pool2d`.

    Parameters
    ----------
    window : int or (vertical, horizontal)
    stride : likewise, optional
        Default: the window.
    padding : {"SAME", "VALID"}, int, (vertical, horizontal) or ((top, bottom), (left, right))

    Examples
    --------
    >>> MaxPool().window
    2
    """

    window: PerAxis = 2
    stride: PerAxis | None = None
    padding: Any = "VALID"


@shortened
@dataclass(frozen=True)
class AveragePool:
    """The mean of the pixels of each window that are inside: `reference.training.average_pool2d`.

    Parameters
    ----------
    window, stride, padding
        As of `MaxPool`.

    Examples
    --------
    >>> AveragePool(3, stride=2).stride
    2
    """

    window: PerAxis = 2
    stride: PerAxis | None = None
    padding: Any = "VALID"


@dataclass(frozen=True)
class Flatten:
    """Reads images as rows of numbers, for `Dense`; moves no data.

    Examples
    --------
    >>> Flatten()
    Flatten()
    """


@dataclass(frozen=True)
class Dense:
    """A fully connected layer with a bias, followed by an activation; comes after `Flatten` or `Dense`.

    Parameters
    ----------
    outputs : int
    activation : {"relu", "tanh", "sigmoid"}, optional

    Examples
    --------
    >>> Dense(10).outputs
    10
    """

    outputs: int
    activation: Activation | None = None


@dataclass(frozen=True)
class BatchNorm:
    """Batch normalization over all images of a step, followed by an activation.

    It is `reference.training.batch_norm`, over the whole batch whatever the pieces.
    `Trainer.logits` normalizes by running means of the batches' means and variances instead.

    Parameters
    ----------
    epsilon : float, above 0
        Added to variances.
    momentum : float, 0 to 1
        The part of a batch in the running means.
    activation : {"relu", "tanh", "sigmoid"}, optional

    Examples
    --------
    >>> BatchNorm(activation="relu").momentum
    0.1
    """

    epsilon: float = 1e-5
    momentum: float = 0.1
    activation: Activation | None = None


Layer: TypeAlias = Conv | MaxPool | AveragePool | BatchNorm | Flatten | Dense


@shortened
@dataclass(frozen=True)
class Network:
    """A sequential network; its loss is the softmax cross-entropy of the last layer's result.

    Parameters
    ----------
    image : (channels, height, width)
    layers : tuple of Conv, MaxPool, AveragePool, BatchNorm, Flatten, Dense
        The first one is not `BatchNorm`. With a loss the last one is `Dense`, without one any that has no
        activation.
    loss : {"cross_entropy"}, optional
        None if gradients by the last layer's result come from elsewhere; `Trainer` needs one.
    image_gradient : bool
        Whether a backward pass computes the gradient with respect to the images, too; without a loss.

    Raises
    ------
    ShapeError, SchemeError
        For layers that do not fit one another.

    Examples
    --------
    >>> net = Network((1, 8, 8), (Conv(8, activation="relu"), MaxPool(), Flatten(), Dense(10)))
    >>> net.parameters
    {'conv1.w': (8, 1, 3, 3), 'conv1.bias': (8,), 'dense3.w': (10, 128), 'dense3.bias': (10,)}
    """

    image: tuple[int, int, int]
    layers: tuple[Layer, ...]
    loss: Literal["cross_entropy"] | None = "cross_entropy"
    image_gradient: bool = False

    def __post_init__(self) -> None:
        if len(self.image) != 3 or not all(is_integer(size) and size >= 1 for size in self.image):
            raise ShapeError(f"image is {self.image}\nit is (channels, height, width)\ngive three sizes")
        check_option("loss", self.loss, ("cross_entropy", None), "it follows the last layer")
        if not self.stages:
            raise SchemeError("the network has no layers\nthere is nothing to compute\ngive one or more")
        if self.loss and self.image_gradient:
            raise SchemeError(
                "image_gradient=True with a loss\n"
                "a training step does not return the gradient of the images\npass loss=None"
            )
        if self.loss is None and self.stages[-1].activation:
            raise SchemeError(
                "the last layer has an activation, and no loss follows\n"
                "the caller passes the gradient of the result before its activation\n"
                "apply the activation to the result"
            )
        if self.loss and self.stages[-1].kind != "dense":
            raise SchemeError(
                "the last layer is not Dense\nthe loss takes one number for each class\nend with Dense"
            )
        if self.normalizes(1):
            raise SchemeError(
                "the first layer is BatchNorm\nimages have no phase that would sum them up\n"
                "normalize images before the training"
            )

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The layers that compute something, with their sizes; `Flatten` does not."""
        stages: list[Stage] = []
        shape, is_flat = self.image, False
        for layer in self.layers:
            if isinstance(layer, Flatten):
                is_flat = True
            else:
                stage = _stage(len(stages) + 1, layer, shape, is_flat)
                stages.append(stage)
                shape = stage.shape
        return tuple(stages)

    @property
    def classes(self) -> int:
        """The number of classes, the outputs of the last layer."""
        return self.stages[-1].shape[0]

    @property
    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Parameter name → shape, for each weight and bias."""
        return {
            f"{stage.name}.{name}": shape for stage in self.stages for name, shape in stage.parameters.items()
        }

    @property
    def running(self) -> dict[str, tuple[int, ...]]:
        """Name → shape of the running mean and variance of each `BatchNorm`."""
        norms = [stage for stage in self.stages if stage.kind == "batch_norm"]
        return {f"{stage.name}.running": (stage.shape[0],) for stage in norms}

    def normalizes(self, number: int) -> bool:
        """True if stage ``number`` exists and is a `BatchNorm`."""
        return 1 <= number <= len(self.stages) and self.stages[number - 1].kind == "batch_norm"

    def pools_relu(self, tensor: int) -> bool:
        """True if a max pooling reads the result of relu, so that its gradient includes relu's."""
        stages = self.stages
        is_pooled = 1 <= tensor < len(stages) and stages[tensor].kind == "max_pool"
        return is_pooled and stages[tensor - 1].activation == "relu"

    @property
    def digest(self) -> str:
        """A hash of the network's description, for checkpoints."""
        layers = [{"layer": type(layer).__name__, **asdict(layer)} for layer in self.layers]
        text = json.dumps({"image": self.image, "layers": layers}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def shape(self, tensor: int) -> Shape:
        """The shape of a tensor for one image: 0 is the image, n the result of stage n."""
        return self.stages[tensor - 1].shape if tensor else self.image

    def initial(self, seed: int = 0) -> dict[str, npt.NDArray[np.float32]]:
        """Draw weights with the variance 2 / fan-in; biases are 0, and weights of `BatchNorm` 1.

        Source: He et al., Delving Deep into Rectifiers, section 2.2.
        """
        rng = np.random.default_rng(seed)
        return {
            name: (
                np.full(shape, float(name.endswith(".w")))
                if len(shape) == 1
                else rng.standard_normal(shape) * math.sqrt(2 / math.prod(shape[1:]))
            ).astype(np.float32)
            for name, shape in self.parameters.items()
        }


def _stage(number: int, layer: Layer, shape: Shape, is_flat: bool) -> Stage:
    """The stage of a layer that reads images of a shape."""
    if isinstance(layer, Dense):
        if not is_flat:
            raise SchemeError(
                f"layer {number}: Dense follows a layer of images\nit needs rows\nput Flatten before it"
            )
        size = math.prod(shape)
        return stage_of(
            number, "dense", (size, 1, 1), layer.outputs, 1, 1, "VALID", activation=layer.activation
        )
    if is_flat or isinstance(layer, Flatten):
        raise SchemeError(
            f"layer {number}: {type(layer).__name__} behind Flatten\nit needs images\nput it before Flatten"
        )
    if isinstance(layer, Conv):
        return stage_of(
            number,
            "conv",
            shape,
            layer.filters,
            layer.window,
            layer.stride,
            layer.padding,
            dilation=layer.dilation,
            groups=layer.groups,
            activation=layer.activation,
        )
    if isinstance(layer, BatchNorm):
        return norm_of(number, shape, layer.epsilon, layer.momentum, layer.activation)
    kind = "max_pool" if isinstance(layer, MaxPool) else "average_pool"
    stride = layer.window if layer.stride is None else layer.stride
    return stage_of(number, kind, shape, shape[0], layer.window, stride, layer.padding)


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent: ``v = momentum v + (gradient + decay w)``, then ``w - rate v``.

    Parameters
    ----------
    rate, momentum, decay : float
        Of weight decay also for biases, as in ``torch.optim.SGD``.

    Raises
    ------
    SchemeError
        For a number below 0 or not finite.

    Examples
    --------
    >>> SGD(0.1, momentum=0.9).decay
    0.0
    """

    rate: float = 0.01
    momentum: float = 0.0
    decay: float = 0.0

    def __post_init__(self) -> None:
        settings: Mapping[str, float] = asdict(self)
        for name, value in settings.items():
            if not (math.isfinite(value) and value >= 0):
                raise SchemeError(
                    f"{name} is {value}\nit must be finite and at least 0\nchoose another value"
                )


def vgg16(classes: int = 1000, *, norm: bool = False) -> Network:
    """VGG16, for images of 224 x 224; with ``norm``, batch normalization follows each convolution.

    Source: Simonyan and Zisserman, Very Deep Convolutional Networks, configuration D.

    Examples
    --------
    >>> sum(math.prod(shape) for shape in vgg16().parameters.values())
    138357544
    """
    layers: list[Layer] = []
    for filters, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        convolution: list[Layer] = [Conv(filters, activation="relu")]
        if norm:
            convolution = [Conv(filters), BatchNorm(activation="relu")]
        layers += convolution * count + [MaxPool()]
    layers += [Flatten(), Dense(4096, "relu"), Dense(4096, "relu"), Dense(classes)]
    return Network((3, 224, 224), tuple(layers))
