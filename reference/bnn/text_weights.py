"""The text files of weights that the papers' programs read: numbers in the order of the layers.

For each layer its weights, (R, S, C, O) or (F, O), whose signs count; then a threshold for each output, the
bit being sum >= threshold; for the last layer the scales and the offsets of the classes instead. A file does
not name its network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.bnn import plans
from reference.bnn.plans import Form, Plan
from reference.bnn.random_parameters import RandomParameters
from reference.errors import InputFileError, SchemeError
from reference.files import open_input
from reference.threshold import integer_thresholds
from reference.types.arguments import check_option
from reference.types.layers import Affine, Conv, Dense, Threshold
from reference.types.network import Input, Network, Pixels, Reals, Signs
from reference.types.network_values import follow

Array: TypeAlias = npt.NDArray[Any]
Model: TypeAlias = Literal["mlp", "vgg-cifar", "resnet14", "alexnet", "vgg16", "resnet18"]
Images: TypeAlias = Literal["floats", "bytes"]
Progress: TypeAlias = Callable[[int, int], object]

MODELS: tuple[Model, ...] = ("mlp", "vgg-cifar", "resnet14", "alexnet", "vgg16", "resnet18")
_FRACTION = 13
"""Binary digits after the point of a normalised image, which lies within ±4."""
_MNIST = (0.1307,), (0.3081,)
_CIFAR = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_NORMALISATIONS = {"mlp": _MNIST, "vgg-cifar": _CIFAR, "resnet14": _CIFAR}
"""Mean and deviation of each channel that the programs subtract and divide by."""
_CHUNK = 1 << 20
_ADVICE = "give a text file of numbers, as the papers' programs read it"
_LONGEST = 64
"""Characters of a number."""


def from_text(
    path: Path | str,
    model: Model,
    *,
    form: Form = "code",
    images: Images = "floats",
    progress: Progress | None = None,
) -> Network:
    """Read the weights of one of the papers' networks from a text file of their programs.

    The file has numbers, separated by blanks and line ends, as many as the network needs.

    Parameters
    ----------
    path : Path or str
    model : {"mlp", "vgg-cifar", "resnet14", "alexnet", "vgg16", "resnet18"}
    form : {"code", "paper", "sc19"}
        Of ``resnet14`` and ``alexnet``; the last one of ``alexnet`` only.
    images : {"floats", "bytes"}
        What the network takes: images normalised as the programs do it, each number rounded to 2**-13, or
        bytes, with the normalisation in integers, up to 2**-6 off. The MLP takes bytes.
    progress : callable, optional
        Called with the bytes read and the bytes of the file.

    Returns
    -------
    Network

    Raises
    ------
    InputFileError
        For a file that has fewer or more numbers, or anything else.
    SchemeError
        For an unknown model, form or kind of images.

    Notes
    -----
    The programs cut the first layer's float sums to integers where they enter a shortcut. Here they stay as
    they are, and the sums of bits that they meet are multiplied by 2**13.

    Examples
    --------
    >>> from_text("no-such-file.csv", "mlp")
    Traceback (most recent call last):
    ...
    reference.errors.InputFileError: no-such-file.csv cannot be read: No such file or directory
    give a text file of numbers, as the papers' programs read it
    """
    plan = _plan(model, form)
    check_option("images", images, ("floats", "bytes"), "a network takes one of them")
    numbers = _Numbers(Path(path), plan, progress)
    network = plan.network(_TextParameters(numbers, images, *_NORMALISATIONS.get(model, _IMAGENET)))
    numbers.end()
    return network


def _plan(model: Model, form: Form) -> Plan:
    check_option("model", model, MODELS, "the networks of the papers")
    if model in ("resnet14", "alexnet"):
        return plans.plan_resnet14(form) if model == "resnet14" else plans.plan_alexnet(form)
    if form != "code":
        raise SchemeError(
            f"there is no form={form!r} of {model}\nonly resnet14 and alexnet have two forms\nleave form out"
        )
    alone = {
        "mlp": plans.plan_mlp,
        "vgg-cifar": plans.plan_vgg_cifar,
        "vgg16": plans.plan_vgg16,
        "resnet18": plans.plan_resnet18,
    }
    return alone[model]()


class _TextParameters:
    """A `reference.bnn.builder.Source` that reads parameters from a text file."""

    def __init__(
        self, numbers: _Numbers, images: Images, means: tuple[float, ...], deviations: tuple[float, ...]
    ) -> None:
        self._numbers, self._images = numbers, images
        self._means, self._deviations = np.array(means), np.array(deviations)
        self.one = 1

    def input(self, shape: tuple[int, int, int], kind: str) -> tuple[Input, float, float]:
        """Signs of bytes, or normalised images in fixed point."""
        if kind == "signs":
            return Signs(shape, (255 * self._means).astype(np.float32)), 0.0, 1.0
        self.one = 2**_FRACTION
        if self._images == "floats":
            return Reals(shape, _FRACTION), 0.0, 1.0
        scale = np.rint(self.one / (255 * self._deviations)).astype(np.int32)
        return (
            Pixels(shape, scale, np.rint(-self.one * self._means / self._deviations).astype(np.int32)),
            0.0,
            1.0,
        )

    def weights(self, *shape: int) -> Array:
        """Read numbers whose signs are the layer's weights."""
        return self._numbers.take(prod(shape)).reshape(shape)

    def threshold(self, mean: Array, variance: float, unit: int) -> Threshold:
        """``sum >= threshold``, with the threshold in the unit of the sums."""
        limits = self._numbers.take(mean.size).astype(np.float64) * unit
        one = np.ones(mean.size)
        return Threshold(*integer_thresholds(one, np.zeros(mean.size), limits, one))

    def affine(self, mean: Array, variance: float) -> Affine:
        """Not supported: text files have no such layers."""
        raise NotImplementedError

    def logits(self, mean: Array, variance: float) -> tuple[Array, Array]:
        """Read the scale and offset of each class."""
        return self._numbers.take(mean.size), self._numbers.take(mean.size)


class _Numbers:
    """The numbers of a text file, which are read when they are needed."""

    def __init__(self, path: Path, plan: Plan, progress: Progress | None) -> None:
        self._path, self._plan, self._progress = path, plan, progress
        self._parts = self._read()
        self._ready = np.empty(0, np.float32)
        self._taken = 0

    def take(self, count: int) -> Array:
        """Read the next ``count`` numbers; raise InputFileError if the file has fewer."""
        parts = [self._ready]
        missing = count - self._ready.size
        while missing > 0 and (part := next(self._parts, None)) is not None:
            parts.append(part)
            missing -= part.size
        whole = np.concatenate(parts)
        if missing > 0:
            held, needed = self._taken + whole.size, _numbers_of(self._plan)
            raise InputFileError(
                f"{self._path} has {held} numbers, and {self._plan.name} needs {needed}: "
                f"{needed - held} are missing\n{_ADVICE}"
            )
        self._ready = whole[count:]
        self._taken += count
        return whole[:count]

    def end(self) -> None:
        """Raise InputFileError if the file has further numbers."""
        left = self._ready.size + sum(part.size for part in self._parts)
        if left:
            raise InputFileError(
                f"{self._path} has {self._taken + left} numbers, and {self._plan.name} needs {self._taken}: "
                f"it is for another network\n{_ADVICE}"
            )

    def _read(self) -> Iterator[Array]:
        """The numbers of each chunk; a number that a chunk cuts belongs to the next."""
        with open_input(self._path, _ADVICE) as file:
            size, cut, before = self._path.stat().st_size, b"", 0
            while chunk := file.read(_CHUNK):
                words = (cut + chunk).split()
                cut = words.pop() if words and not chunk[-1:].isspace() else b""
                yield self._parsed(words, before)
                before += len(words)
                if len(cut) > _LONGEST:
                    self._parsed([cut], before)
                if self._progress:
                    self._progress(file.tell(), size)
            yield self._parsed([cut] if cut else [], before)

    def _parsed(self, words: list[bytes], before: int) -> Array:
        numbers = _finite(words)
        if numbers is None:
            at = next(i for i, word in enumerate(words) if _finite([word]) is None)
            shown = ascii(words[at][:20])[1:]
            message = f"{self._path}: number {before + at} is {shown}, not a finite number\n{_ADVICE}"
            raise InputFileError(message)
        return numbers


def _finite(words: list[bytes]) -> Array | None:
    """Convert words to float32; None if a number is not finite."""
    if any(len(word) > _LONGEST for word in words):
        return None
    try:
        with np.errstate(over="ignore"):
            numbers = np.array(words, "S1" if not words else None).astype(np.float32)
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() else None


def _numbers_of(plan: Plan) -> int:
    """The number of values in the text file of a network."""
    network = plan.network(RandomParameters(0))
    numbers = 2 * network.scale.size
    for _, layer, _ in follow(network):
        match layer:
            case Conv(filters=weights) | Dense(weights=weights):
                numbers += prod(weights.shape)
            case Threshold(thresholds=thresholds):
                numbers += thresholds.size
            case _:
                pass
    return numbers
