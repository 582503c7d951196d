"""Models of Keras with layers of larq, as networks of `reference.bnn`.

The layers come from the JSON that ``model.save`` writes beside the weights.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import partial, reduce
from math import prod
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from reference.bnn.chains import linear
from reference.bnn.keras_files import open_keras, parsed, read_config, take, whole_or_error
from reference.bnn.keras_layers import RULES, Part, Take, advice_for, is_softmax, takes_signs
from reference.bnn.streams import Builder, Node, Stream
from reference.errors import ExportError, FormatError, SchemeError, SimwarpError
from reference.types.fields import is_integer
from reference.types.network import Input, Network, Pixels, Reals, Signs
from reference.types.network_values import input_value

Images: TypeAlias = Literal["floats", "bytes"]

_FRACTION = 10
"""Binary digits after the point of an image of floats."""
_LARGEST_IMAGE, _MOST_CHANNELS = 1 << 22, 1 << 16
_BYTES = 255
"""With ``(2 x - 255) / 255`` a byte x lies within ±1, as larq's examples have it."""


def from_keras(
    path: Path | str,
    *,
    config: Path | str | None = None,
    images: Images | Input = "floats",
    unit: Fraction | float = 1,
    classes: Sequence[str] = (),
    about: str = "",
    fixed_point: int | None = None,
) -> Network:
    """Read a Keras model with layers of larq, and turn it into a network of exact integers.

    The model computes with ``QuantConv2D`` and ``QuantDense`` whose ``kernel_quantizer`` is a sign; latent
    weights of 0 and -0.0 count as +1. Between them may be batch normalisations, maxima, averages, ReLU, and
    sums of branches. Parameters are taken as the rational numbers that they hold, and each bit is that of
    exact arithmetic: Keras itself may round to the other bit where its floats are within rounding of 0.

    Parameters
    ----------
    path : Path or str
        An HDF5 file of ``model.save``, or of ``save_weights`` together with ``config``; or a ``.npz`` file
        with the arrays ``<layer>/<weight>`` and the text ``model_config``.
    config : Path or str, optional
        A file with the text of ``model.to_json()``; replaces the one in the file.
    images : {"floats", "bytes"}, Pixels, Reals or Signs
        What the network takes: floats as the model does, each rounded to 2**-10; bytes x, for a model that
        was trained on ``x / 127.5 - 1``, exactly; or an input of `reference.bnn`.
    unit : Fraction or float
        For an input `Pixels`: what one of its integers is in numbers of the model.
    classes : sequence of str
        Names of the classes.
    about : str
        What the network is; how values were rounded is added.
    fixed_point : int, optional
        Binary digits after the point for values that have to be rounded: those of a batch normalisation
        that flow on without a sign. Without it such a model is refused.

    Returns
    -------
    Network
        Scale and offset of its logits are rounded to float32. A softmax at the end is left out.

    Raises
    ------
    InputFileError
        For a file that is not whole, or whose arrays do not fit the layers.
    ExportError
        For a layer that a network cannot express; names the layer and its class.
    ShapeError, RangeError
        For layers that do not fit, or integers beyond int32.
    MissingExtraError
        Without the package h5py, for an HDF5 file.

    Notes
    -----
    A .npz file may come from anyone. The HDF5 library, which takes HDF5 files apart, may crash on a broken
    one.

    Examples
    --------
    >>> import json, tempfile
    >>> import numpy as np
    >>> layer = {"name": "classes", "units": 2, "use_bias": False, "kernel_quantizer": "ste_sign"}
    >>> layers = [{"class_name": "QuantDense", "config": layer | {"batch_input_shape": [None, 3]}}]
    >>> model = {"class_name": "Sequential", "config": {"name": "small", "layers": layers}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     arrays = {"classes/kernel": np.array([[0.5, -0.5], [0.25, 0.0], [-1.0, 1.0]])}
    ...     np.savez(Path(folder) / "small.npz", model_config=json.dumps(model), **arrays)
    ...     network = from_keras(Path(folder) / "small.npz")
    >>> from reference.bnn import run
    >>> run(network, np.array([[1.0, 2.0, 4.0]], np.float32)).logits
    array([[-1.,  5.]], dtype=float32)
    """
    known = read_config(config) if config is not None else None
    with whole_or_error(path), open_keras(path) as file:
        model = _model(known if config is not None else parsed(file.config()))
        builder = Builder(fixed_point)
        given, step = _input(images, unit, model.shape)
        start = Stream(Node(input_value(given)), step)
        last, scale, offset = _walk(model, builder, start, partial(take, file))
    if builder.error:
        rounding = f"Values that flow on are multiples of 2**-{fixed_point}, rounded by up to"
        about = f"{about}\n{rounding} {float(builder.error):.3g} at a time.".strip()
    return Network(model.name, given, last.layers_from(None), scale, offset, tuple(classes), about)


def _input(
    images: Images | Input, unit: Fraction | float, shape: tuple[int | None, ...]
) -> tuple[Input, Any]:
    """The network's input, and the step from its integers to the model's numbers."""
    if isinstance(images, (Pixels, Reals, Signs)):
        sizes = tuple(have if want is None else want for have, want in zip(images.shape, shape, strict=False))
        if len(images.shape) != len(shape) or images.shape != sizes:
            raise ExportError(f"the model takes images {shape}, and the input has shape {images.shape}")
        if isinstance(images, Signs):
            return images, ()
        one = Fraction(unit) if isinstance(images, Pixels) else Fraction(1, 2**images.fraction)
        return images, (linear([one] * images.shape[-1]),)
    if images not in ("floats", "bytes"):
        raise SchemeError(f"images is {images!r}: give 'floats', 'bytes', Pixels, Reals or Signs")
    whole = tuple(size for size in shape if size is not None)
    if len(whole) < len(shape):
        raise ExportError(f"the model takes images {shape} of any size\npass images=Reals((H, W, C))")
    if images == "floats":
        return Reals(whole, _FRACTION), (linear([Fraction(1, 2**_FRACTION)] * whole[-1]),)
    scale, offset = (np.full(whole[-1], number, np.int32) for number in (2, -_BYTES))
    return Pixels(whole, scale, offset), (linear([Fraction(1, _BYTES)] * whole[-1]),)


# --------------------------------------------------------------------------------------------------
# The layers of the JSON
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Model:
    """The layers of a model in order, without the input; ``last`` names the layer that gives the logits."""

    name: str
    shape: tuple[int | None, ...]
    source: str
    parts: tuple[Part, ...]
    last: str


def _model(json: Any) -> _Model:
    """Read a sequential or a functional model from its JSON."""
    kind, settings = _class_of(json, "the model")
    if kind not in ("Sequential", "Functional", "Model"):
        raise FormatError(f"its model is a {kind!a:.99}: a Sequential or Functional one is needed")
    listed = settings.get("layers")
    if not isinstance(listed, list) or not listed:
        raise FormatError("its model has no layers")
    parts = [_part(one, kind) for one in cast("list[Any]", listed)]
    if kind == "Sequential":
        parts = _in_sequence(parts)
    names = [part.name for part in parts]
    if len(set(names)) < len(names):
        raise FormatError(f"two layers have the name {max(names, key=names.count)!a}")
    first, *others = parts
    if first.kind != "InputLayer" or any(part.kind == "InputLayer" for part in others):
        raise ExportError("the model has no input, or two\ngive a model of one tensor of images")
    last = parts[-1].name if kind == "Sequential" else _only_output(settings)
    shape = first.settings.get("batch_input_shape", first.settings.get("batch_shape"))
    return _Model(str(settings.get("name", "model")), _image_shape(shape), first.name, tuple(others), last)


def _class_of(json: Any, what: str) -> tuple[str, Mapping[str, Any]]:
    """The class name without its package, and the settings, of a model or a layer."""
    fields = cast("dict[str, Any]", json) if isinstance(json, dict) else {}
    kind, settings = fields.get("class_name"), fields.get("config")
    if not isinstance(kind, str) or not isinstance(settings, dict):
        raise FormatError(f"its JSON has no class_name and config of {what}")
    return kind.rpartition(">")[2], cast("dict[str, Any]", settings)


def _part(json: Any, of: str) -> Part:
    kind, settings = _class_of(json, "a layer")
    name = settings.get("name")
    if not isinstance(name, str) or not name:
        raise FormatError(f"its JSON has a layer {kind!a:.99} without a name")
    inputs = () if of == "Sequential" else _inputs(json.get("inbound_nodes"), name)
    return Part(name, kind, settings, inputs)


def _inputs(nodes: Any, name: str) -> tuple[str, ...]:
    """The layers that a functional model's layer is given, in the form of Keras 2."""
    if nodes == []:
        return ()
    if not isinstance(nodes, list) or len(cast("list[Any]", nodes)) != 1:
        raise ExportError(f"layer {name} is used more than once\ngive each use its own layer", name)
    try:
        return tuple(_source(*one) for one in cast("list[list[Any]]", nodes[0]))
    except (TypeError, ValueError, KeyError):
        raise FormatError(f"inbound_nodes of layer {name!a} are not those of Keras 2") from None


def _source(layer: Any, node: Any, tensor: Any, arguments: Any = None) -> str:
    if not isinstance(layer, str) or (node, tensor) != (0, 0) or arguments:
        raise ValueError
    return layer


def _in_sequence(parts: list[Part]) -> list[Part]:
    """Connect layers in sequence: each reads the previous one's output; an input layer is put in front."""
    if parts[0].kind != "InputLayer":
        parts = [Part("<input>", "InputLayer", parts[0].settings, ()), *parts]
    names = [part.name for part in parts]
    return [parts[0]] + [
        Part(part.name, part.kind, part.settings, (before,))
        for before, part in zip(names, parts[1:], strict=False)
    ]


def _only_output(settings: Mapping[str, Any]) -> str:
    outputs: Any = settings.get("output_layers")
    try:
        if isinstance(outputs[0], str):
            outputs = [outputs]
        ((name, _, _),) = outputs
    except (TypeError, ValueError, KeyError, IndexError):
        raise ExportError("the model does not give one tensor of logits") from None
    return str(name)


def _image_shape(given: Any) -> tuple[int | None, ...]:
    """The shape of the images, with None for a dimension of any size."""
    sizes = cast("list[Any]", given) if isinstance(given, list) else []
    known = [1 if size is None else size for size in sizes[1:]]
    if len(sizes) not in (2, 4) or not all(is_integer(size) and size > 0 for size in known):
        raise ExportError(
            f"the model takes {given!r:.99}\ngive one of images (N, H, W, C), or of vectors (N, F)"
        )
    if prod(known) > _LARGEST_IMAGE or known[-1] > _MOST_CHANNELS:
        raise FormatError(f"its images are {tuple(sizes[1:])}: up to {_LARGEST_IMAGE} numbers are read")
    return tuple(sizes[1:])


# --------------------------------------------------------------------------------------------------
# Layer by layer
# --------------------------------------------------------------------------------------------------


def _walk(model: _Model, builder: Builder, start: Stream, arrays: Take) -> tuple[Node, Any, Any]:
    """Convert all layers in order; return the last node, with scale and offset of the logits."""
    values = {model.source: start}
    users: dict[str, list[Part]] = {}
    for part in model.parts:
        for name in part.inputs:
            users.setdefault(name, []).append(part)
    for part in model.parts:
        with _naming(part):
            missing = [name for name in part.inputs if name not in values]
            if missing or not part.inputs:
                raise FormatError(f"layer {part} reads {missing[:1]!a:.99}, which is not an earlier layer")
            after = users.get(part.name, [])
            values[part.name] = _apply(part, [values[name] for name in part.inputs], after, builder, arrays)
    if model.last not in values or users.get(model.last):
        raise ExportError(f"the logits of {model.last!a:.99} are not the output of the last layer")
    try:
        return builder.logits(values[model.last])
    except ExportError as error:
        raise ExportError(f"the output, of layer {model.last}: {error}", model.last) from None


def _apply(part: Part, given: list[Stream], users: list[Part], builder: Builder, arrays: Take) -> Stream:
    """Convert one Keras layer, and return its output stream."""
    if part.kind == "Add":
        return reduce(builder.sum, given)
    if part.kind not in RULES and not is_softmax(part):
        raise ExportError(advice_for(part.kind), part.name)
    if len(given) != 1:
        raise FormatError(f"layer {part} has {len(given)} inputs, not one")
    (x,) = given
    if is_softmax(part):
        if users:
            raise ExportError("a softmax before other layers\nput it last, or remove it", part.name)
        return x
    if part.kind == "Flatten" and users and all(map(takes_signs, users)):
        # the same bits as after Flatten, in the order in which convolutions and pools store them
        x = builder.sign(x)
    return RULES[part.kind](builder, x, part, arrays)


@contextmanager
def _naming(part: Part) -> Generator[None]:
    """Add the layer's name to errors that are raised inside."""
    try:
        yield
    except FormatError:
        raise
    except ExportError as error:
        raise ExportError(f"layer {part}: {error}", part.name) from None
    except SimwarpError as error:
        raise type(error)(f"layer {part}: {error}") from None
