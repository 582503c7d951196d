"""Models of PyTorch as networks of `reference.bnn`.

The model is traced by ``torch.fx``, which keeps its modules, so that an error names one by its path;
``torch.export`` would take it apart to operators first.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from reference.bnn.streams import Builder, Node, Stream
from reference.errors import ExportError, SimwarpError
from reference.types.network import Input, Network
from reference.types.network_values import input_value
from simwarp.torch.modules import FUNCTIONS, IMAGES, METHODS, MODULES, Image, advice_for
from simwarp.torch.pytorch import torch

_BATCH = object()
"""The size of a batch, where a model asks for it."""


def export(
    model: Any,
    example: Any,
    *,
    name: str,
    classes: Sequence[str] = (),
    about: str = "",
    fixed_point: int | None = None,
) -> Network:
    """Turn a model of PyTorch into a network of exact integers.

    The model begins with `ImagePixels`, `ImageReals` or `ImageSigns` and computes with `BinaryConv2d`,
    `BinaryLinear` and `Sign`; between them may be batch normalisations (in their state for evaluation), ReLU,
    Hardtanh, clamps, maxima and averages, sums of two branches, and channels of zeros. Parameters are
    taken as the rational numbers that they hold, and each bit is that of exact arithmetic: the model itself
    may round to the other bit where its floats are within rounding of 0.

    Parameters
    ----------
    model : torch.nn.Module
        Not changed. Dropout is left out.
    example : tensor, (N, C, H, W) or (N, F)
        Only its shape is looked at. The network takes images (N, H, W, C).
    name : str
        The network's.
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
        Scale and offset of its logits are rounded to float32.

    Raises
    ------
    ExportError
        For a module or function that a network cannot express; names it by its path in the model.
    ShapeError, RangeError
        For layers that do not fit, or integers beyond int32.

    Examples
    --------
    >>> import torch
    >>> from reference.bnn import run
    >>> from simwarp.torch import BinaryLinear, ImagePixels, Sign
    >>> model = torch.nn.Sequential(ImagePixels(offset=-128), BinaryLinear(4, 3), Sign(), BinaryLinear(3, 2))
    >>> x = torch.tensor([[3, 1, 255, 7]], dtype=torch.uint8)
    >>> network = export(model, x, name="small")
    >>> [type(layer).__name__ for layer in network.layers]
    ['Dense', 'Threshold', 'Dense']
    >>> bool((run(network, x.numpy()).logits == model(x).detach().numpy()).all())
    True
    """
    if type(model) in MODULES or type(model) in IMAGES:
        model = torch.nn.Sequential(model)
    graph = _traced(model)
    builder = Builder(fixed_point)
    walk = _Walk(dict(model.named_modules()), builder, _image(example))
    for node in graph.nodes:
        with _naming(node, walk.modules):
            walk.visit(node)
    assert walk.input is not None
    assert walk.result is not None
    last, scale, offset = walk.result
    if builder.error:
        rounding = f"Values that flow on are multiples of 2**-{fixed_point}, rounded by up to"
        about = f"{about}\n{rounding} {float(builder.error):.3g} at a time.".strip()
    return Network(name, walk.input, last.layers_from(None), scale, offset, tuple(classes), about)


class _Walk:
    """Converts a traced model node by node, and keeps the value of each."""

    def __init__(self, modules: dict[str, Any], builder: Builder, image: Image) -> None:
        self.modules = modules
        self.builder = builder
        self.image = image
        self.input: Input | None = None
        self.first: Node | None = None
        self.result: tuple[Node, Any, Any] | None = None
        self.values: dict[Any, Any] = {}

    def visit(self, node: Any) -> None:
        """Convert one node of the traced graph, and keep its value for later nodes."""
        args = torch.fx.node.map_arg(node.args, self.values.__getitem__)
        kwargs = torch.fx.node.map_arg(node.kwargs, self.values.__getitem__)
        self.values[node] = getattr(self, f"_{node.op}")(node, args, kwargs)

    def _placeholder(self, node: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if any(isinstance(value, Image) for value in self.values.values()):
            raise ExportError("the model has a second input\ngive the model one tensor of images")
        return self.image

    def _output(self, node: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not isinstance(args[0], Stream):
            raise ExportError("the model does not give one tensor of logits")
        self.result = self.builder.logits(args[0])

    def _get_attr(self, node: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        raise ExportError("a parameter is used outside of a layer\nuse a batch normalisation")

    def _call_module(self, node: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        module = self.modules[node.target]
        if type(module) in IMAGES:
            return self._start(module, args[0])
        return self._apply(module, args[0])

    def _start(self, module: Any, image: Any) -> Stream:
        """The stream after the module that encodes the network's input images."""
        if not isinstance(image, Image):
            raise ExportError("this module must read the images themselves, not the result of a layer")
        given, step = IMAGES[type(module)](module, image.shape)
        if self.input is not None:
            raise ExportError("the images are used twice\nlet the branches begin after one layer for images")
        self.input, self.first = given, Node(input_value(given))
        return Stream(self.first, step)

    def _apply(self, module: Any, x: Any) -> Any:
        rule = MODULES.get(type(module))
        if rule is None:
            raise ExportError(advice_for(module))
        if isinstance(x, Image) and rule is not MODULES[torch.nn.Identity]:
            raise ExportError(
                "the layer reads the images directly\n"
                "begin the model with simwarp.torch.ImagePixels, ImageReals or ImageSigns"
            )
        if not isinstance(x, (Stream, Image)):
            raise ExportError("its input is not one tensor")
        return rule(self.builder, x, module)

    def _call_function(self, node: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not any(isinstance(x, (Stream, Image)) for x in (*args, *kwargs.values())):
            return node.target(*args, **kwargs)  # a computation with sizes
        return self._function(FUNCTIONS.get(node.target), args, kwargs)

    def _call_method(self, node: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if node.target == "size":
            sizes = self._sizes(args[0])
            return sizes[args[1]] if len(args) > 1 else sizes
        if node.target in ("view", "reshape"):
            return self._view(args[0], args[1] if isinstance(args[1], tuple) else args[1:])
        return self._function(METHODS.get(node.target), args, kwargs)

    def _function(self, rule: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if rule is None:
            raise ExportError("networks of ±1 do not have this function\nuse modules of simwarp.torch")
        if rule == "shape":
            return self._sizes(args[0])
        if not isinstance(rule, type):
            return rule(self.builder, *args, **kwargs)
        first, *others = args or (kwargs.pop("input"),)
        try:
            module = rule(*others, **kwargs)  # the module that does the same as the function
        except TypeError as error:
            raise ExportError(f"{error}\nuse torch.nn.{rule.__name__}") from None
        return self._apply(module, first)

    def _sizes(self, x: Any) -> tuple[Any, ...]:
        shape: tuple[int, ...] = x.shape
        return (_BATCH, shape[-1], *shape[:-1])

    def _view(self, x: Stream, shape: Any) -> Any:
        size = int(np.prod(x.shape))
        if list(shape) not in ([_BATCH, -1], [-1, size], [_BATCH, size]):
            raise ExportError("the shape of a view is not (N, -1)\nuse torch.nn.Flatten")
        return self._apply(torch.nn.Flatten(), x)


class _Tracer(torch.fx.Tracer):
    """A tracer that keeps simwarp's modules whole, as torch's own."""

    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        """Whether the tracer keeps a module as one node, without tracing inside."""
        if type(m) in MODULES or type(m) in IMAGES:
            return True
        return torch.fx.Tracer.is_leaf_module(self, m, module_qualified_name)


def _traced(model: Any) -> Any:
    """The ``torch.fx`` graph of a model's forward pass; ExportError if it cannot be traced."""
    try:
        return _Tracer().trace(model)
    except SimwarpError:
        raise
    except Exception as error:
        raise ExportError(
            f"{type(model).__name__}.forward cannot be traced: {error}\n"
            "what it does must not depend on the values of tensors"
        ) from error


def _image(example: Any) -> Image:
    """The images' shape in the order of a network."""
    shape = tuple(int(size) for size in example.shape[1:])
    if len(shape) not in (1, 3):
        raise ExportError(f"example has shape {tuple(example.shape)}: give (N, C, H, W), or (N, F)")
    return Image((*shape[1:], shape[0]))


@contextmanager
def _naming(node: Any, modules: dict[str, Any]) -> Generator[None]:
    """Prefix the errors of the block with the path and type of a graph node's module."""
    try:
        yield
    except SimwarpError as error:
        if node.op == "call_module":
            path, kind = str(node.target), type(modules[node.target]).__name__
        else:
            stack: dict[str, Any] = node.meta.get("nn_module_stack") or {}
            path, kind = next(reversed(stack), ""), str(getattr(node.target, "__name__", node.target))
        message = f"{path or 'the model'} ({kind}): {error}"
        if isinstance(error, ExportError):
            raise ExportError(message, path) from None
        raise type(error)(message) from None
