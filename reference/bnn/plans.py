"""The networks of the papers, layer by layer, before they have parameters.

Source: BSTC (SC'19), table 3; BTC (TPDS'20), table 5, and the programs that the papers publish.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from reference.bnn.builder import Builder, Source
from reference.errors import ShapeError
from reference.types.arguments import check_option
from reference.types.fields import is_integer
from reference.types.network import Network

Form: TypeAlias = Literal["code", "paper", "sc19"]
"""The published programs, the tables of the papers, or of two tables that differ that of SC'19."""
Shortcut: TypeAlias = Literal["A", "B", "bireal"] | None

_SHORTCUTS: dict[str | None, str] = {
    "A": "the largest of each 2×2 window, and channels of zeros, where the size changes",
    "B": "a 1×1 convolution of bits where the size changes",
    "bireal": "around each convolution, with batch normalisations in fixed point",
    None: "none",
}


_ALEXNETS: dict[str, tuple[tuple[int, ...], str]] = {
    "code": ((64, 192, 384, 256, 256), "the programs of SC'19 and TPDS'20"),
    "paper": ((128, 256, 256, 256, 256), "table 5 of TPDS'20"),
    "sc19": ((128, 256, 384, 384, 256), "table 3 of SC'19"),
}
"""The filters of each convolution, and where they stand."""


@dataclass(frozen=True)
class Plan:
    """A network before it has parameters.

    Attributes
    ----------
    name, about : str
    size, channels : int
        Of the square images.
    fill : function of a Builder
        Adds the layers.
    first : {"pixels", "signs"}
        What the input makes of bytes.
    """

    name: str
    about: str
    size: int
    channels: int
    fill: Callable[[Builder], None]
    first: Literal["pixels", "signs"] = "pixels"

    def network(self, source: Source) -> Network:
        """Build the network, with parameters from a source."""
        shape = self.size, self.size, self.channels
        given, mean, variance = source.input(shape, self.first)
        builder = Builder(source, shape, np.full(self.channels, mean), variance, source.one)
        self.fill(builder)
        logits = source.logits(builder.mean, builder.variance)
        return Network(self.name, given, tuple(builder.layers), *logits, about=self.about)


def plan_mlp(width: int = 1) -> Plan:
    """The plan (layers without parameters) of the network `mlp`."""
    _check(28, 28, width)

    def fill(to: Builder) -> None:
        to.flatten()
        _classifier(to, [1024 // width] * 3, 10)

    return Plan("mlp", "The MLP of SC'19 and TPDS'20 for MNIST.", 28, 1, fill, "signs")


def plan_lenet() -> Plan:
    """The plan (layers without parameters) of the network `lenet`."""

    def fill(to: Builder) -> None:
        for filters, padded in ((6, True), (16, False)):
            to.conv(filters, 5, padded=padded)
            to.threshold()
            to.pool()
        to.flatten()
        _classifier(to, [120, 84], 10)

    return Plan("lenet", "The LeNet of SC'19, figure 5, for MNIST.", 28, 1, fill, "signs")


def plan_vgg_cifar(size: int = 32, width: int = 1) -> Plan:
    """The plan (layers without parameters) of the network `vgg_cifar`."""
    _check(size, 8, width)
    groups = [[128, 128], [256, 256], [512, 512]]
    about = "The VGG of SC'19 and TPDS'20 for CIFAR-10."
    return Plan("vgg-cifar", about, size, 3, _vgg(groups, [1024, 1024], 10, width))


def plan_resnet14(form: Form = "code", shortcut: Shortcut = "A", size: int = 32, width: int = 1) -> Plan:
    """The plan (layers without parameters) of the network `resnet14`."""
    _check(size, 8, width, form)
    fill = _resnet((128, 3, 1 if form == "code" else 2), [128, 256, 512], 10, width, shortcut)
    about = (
        f"ResNet-14 of SC'19 and TPDS'20 for CIFAR-10, as in their {form}; shortcut: {_SHORTCUTS[shortcut]}."
    )
    return Plan("resnet14", about, size, 3, fill)


def plan_alexnet(form: Form = "code", size: int = 224, width: int = 1) -> Plan:
    """The plan (layers without parameters) of the network `alexnet`."""
    _check(size, 32, width, form, ("code", "paper", "sc19"))
    filters, source = _ALEXNETS[form]

    def fill(to: Builder) -> None:
        sizes = (11, 4, True), (5, 1, True), (3, 1, False), (3, 1, False), (3, 1, True)
        for outputs, (window, stride, pooled) in zip(filters, sizes, strict=True):
            to.conv(outputs // width, window, stride)
            to.threshold()
            if pooled:
                to.pool()
        to.flatten()
        _classifier(to, [4096 // width] * 2, 1000)

    return Plan("alexnet", f"AlexNet for ImageNet as in {source}.", size, 3, fill)


def plan_vgg16(size: int = 224, width: int = 1) -> Plan:
    """The plan (layers without parameters) of the network `vgg16`."""
    _check(size, 32, width)
    groups = [[64] * 2, [128] * 2, [256] * 3, [512] * 3, [512] * 3]
    return Plan("vgg16", "VGG-16 of TPDS'20 for ImageNet.", size, 3, _vgg(groups, [4096] * 2, 1000, width))


def plan_resnet18(shortcut: Shortcut = "A", size: int = 224, width: int = 1) -> Plan:
    """The plan (layers without parameters) of the network `resnet18`."""
    _check(size, 32, width)
    fill = _resnet((64, 7, 4), [64, 128, 256, 512], 1000, width, shortcut)
    about = f"ResNet-18 of SC'19 and TPDS'20 for ImageNet; shortcut: {_SHORTCUTS[shortcut]}."
    return Plan("resnet18", about, size, 3, fill)


def _vgg(groups: list[list[int]], hidden: list[int], classes: int, width: int) -> Callable[[Builder], None]:
    def fill(to: Builder) -> None:
        for group in groups:
            for filters in group:
                to.conv(filters // width, 3)
                to.threshold()
            to.pool()
        to.flatten()
        _classifier(to, [units // width for units in hidden], classes)

    return fill


def _classifier(to: Builder, hidden: list[int], classes: int) -> None:
    """Add the fully connected layers at the end of a network."""
    for units in hidden:
        to.dense(units)
        to.threshold()
    to.dense(classes)


def _resnet(
    first: tuple[int, int, int], stages: list[int], classes: int, width: int, shortcut: Shortcut
) -> Callable[[Builder], None]:
    """Add the stages of a ResNet: four convolutions of 3×3 each; later stages begin with stride 2."""
    check_option("shortcut", shortcut, tuple(_SHORTCUTS), "shortcuts are those of ResNets")
    filters, window, stride = first

    def fill(to: Builder) -> None:
        to.conv(filters // width, window, stride)
        if shortcut == "bireal":
            to.affine()
        for stage, outputs in enumerate(stages):
            for block in range(2):
                _block(to, outputs // width, 2 if stage and not block else 1, shortcut)
        to.threshold()
        to.flatten()
        _classifier(to, [512 // width], classes)

    return fill


def _block(to: Builder, filters: int, stride: int, shortcut: Shortcut) -> None:
    """Two convolutions, with one shortcut around both or, of Bi-Real's, around each."""
    if shortcut == "bireal":
        for step in (stride, 1):
            to.residual(_normalised(filters, step), _bireal(filters) if step > 1 else _nothing)
        return
    unit = to.unit

    def body(way: Builder) -> None:
        for step in (stride, 1):
            way.threshold()
            way.conv(filters, 3, step)
        way.in_unit(unit)

    def pooled(way: Builder) -> None:
        way.pool("max")
        way.pad_channels(filters - way.shape[2])

    def convolved(way: Builder) -> None:
        way.threshold()
        way.conv(filters, 1, stride)
        way.in_unit(unit)

    if shortcut is None:
        body(to)
    else:
        to.residual(body, _nothing if stride == 1 else pooled if shortcut == "A" else convolved)


def _normalised(filters: int, stride: int) -> Callable[[Builder], None]:
    def fill(to: Builder) -> None:
        to.threshold()
        to.conv(filters, 3, stride)
        to.affine()

    return fill


def _bireal(filters: int) -> Callable[[Builder], None]:
    """Average pooling and a 1×1 convolution, here of bits."""

    def fill(to: Builder) -> None:
        to.pool("sum")
        to.threshold()
        to.conv(filters, 1)
        to.affine()

    return fill


def _nothing(to: Builder) -> None:
    """Add no layers: the identity shortcut of a residual."""


def _check(
    size: int, multiple: int, width: int, form: str = "code", forms: tuple[str, ...] = ("code", "paper")
) -> None:
    check_option("form", form, forms, "the published programs, or the tables of the papers")
    if not is_integer(size) or size < 1 or size % multiple:
        raise ShapeError(
            f"size is {size!r}: pooling halves it again and again\ngive a multiple of {multiple}"
        )
    if not is_integer(width) or width not in (1, 2, 4, 8, 16, 32, 64):
        raise ShapeError(f"width is {width!r}: it divides the channels of all layers\ngive 1, 2, 4 … 64")
