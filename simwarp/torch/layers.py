"""Layers of ±1 for PyTorch: a sign with a gradient, and convolutions and products with signs as weights."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from reference.errors import DtypeError, SchemeError
from reference.types.arguments import check_option
from reference.types.fields import is_integer
from simwarp.torch import bits
from simwarp.torch.pytorch import torch

Gradient: TypeAlias = Literal["clip", "identity", "polynomial"]
Products: TypeAlias = Literal["floats", "bits"]

GRADIENTS: tuple[Gradient, ...] = ("clip", "identity", "polynomial")
PRODUCTS: tuple[Products, ...] = ("floats", "bits")


class _SignWithGradient(torch.autograd.Function):
    """±1, with the gradient of a function that resembles the sign."""

    @staticmethod
    def forward(context: Any, x: Any, gradient: Gradient) -> Any:
        context.save_for_backward(x)
        context.gradient = gradient
        return torch.where(x >= 0, 1, -1).to(x.dtype)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        (x,), (above,) = context.saved_tensors, gradients
        if context.gradient == "clip":
            above = above * (x.abs() <= 1)
        elif context.gradient == "polynomial":
            above = above * (2 - 2 * x.abs()).clamp(min=0)
        return above, None


class Sign(torch.nn.Module):
    """+1 where x >= 0 (so for -0.0 too), else -1; straight-through in the backward pass.

    Parameters
    ----------
    gradient : {"clip", "identity", "polynomial"}
        What the gradient is multiplied by: 1 for x in -1 … 1, else 0; always 1; or Bi-Real's 2 - 2 abs(x)
        where positive.

    Examples
    --------
    >>> import torch
    >>> Sign()(torch.tensor([-2.0, -0.0, 3.0]))
    tensor([-1.,  1.,  1.])
    """

    def __init__(self, gradient: Gradient = "clip") -> None:
        torch.nn.Module.__init__(self)
        check_option("gradient", gradient, GRADIENTS, "the sign has the gradient of one of these")
        self.gradient: Gradient = gradient

    def forward(self, x: Any) -> Any:
        """The signs of a float tensor, ±1; the backward pass uses the layer's gradient rule."""
        if not x.is_floating_point():
            raise DtypeError(
                f"Sign takes floats, not {x.dtype}: begin the model with ImageSigns or ImagePixels"
            )
        return _SignWithGradient.apply(x, self.gradient)

    def extra_repr(self) -> str:
        """The layer's gradient rule, for ``repr`` of the model."""
        return repr(self.gradient)


class BinaryConv2d(torch.nn.Conv2d):
    """A convolution (N, C, H, W) whose weights are the signs of latent floats.

    It does not take the signs of its input: put `Sign` before it.

    Parameters
    ----------
    in_channels, out_channels, kernel_size, stride, padding, dilation, groups
        As for ``torch.nn.Conv2d``.
    bias : bool
        False by default: a batch normalisation has its own.
    padding_value : {0, -1, 1}
        What pixels outside the image are. 0 leaves them out, as `reference.bconv2d` does.
    products : {"floats", "bits"}
        How the forward pass computes; the gradients are the same. "bits" is for inputs ±1, which it checks.

    Examples
    --------
    >>> import torch
    >>> corner = BinaryConv2d(1, 1, 3, padding=1)(torch.ones(1, 1, 1, 1))
    >>> corner.abs().tolist()
    [[[[1.0]]]]
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] | Literal["same", "valid"] = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        bias: bool = False,
        *,
        padding_value: Literal[0, -1, 1] = 0,
        products: Products = "floats",
    ) -> None:
        if not is_integer(groups) or groups < 1 or in_channels % groups or out_channels % groups:
            raise SchemeError(
                f"groups is {groups!r}, with {in_channels} channels and {out_channels} filters\n"
                "groups must divide the number of channels and the number of filters\n"
                "give a number that divides both"
            )
        if padding_value not in (0, -1, 1):
            raise SchemeError(f"padding_value is {padding_value!r}: choose 0, -1 or 1")
        torch.nn.Conv2d.__init__(
            self,
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
            bias=bias,
        )
        check_option("products", products, PRODUCTS, "the forward pass computes with one of these")
        self.padding_value: Literal[0, -1, 1] = padding_value
        self.products: Products = products

    @property
    def sides(self) -> tuple[int, int, int, int]:
        """The pixels of padding on each side: left, right, top, bottom."""
        return tuple(self._reversed_padding_repeated_twice)

    def forward(self, x: Any) -> Any:
        """Cross-correlate a tensor with the signs of the weights."""
        weight = _SignWithGradient.apply(self.weight, "identity")
        is_bits, sides = self.products == "bits", self.sides
        if not is_bits or self.padding_value:
            x, sides = torch.nn.functional.pad(x, sides, value=float(self.padding_value)), (0, 0, 0, 0)
        if is_bits:
            y = bits.conv2d(x, weight, bits.Window(self.stride, sides, self.dilation, self.groups))
            return y if self.bias is None else y + self.bias[:, None, None]
        return torch.nn.functional.conv2d(x, weight, self.bias, self.stride, 0, self.dilation, self.groups)

    def extra_repr(self) -> str:
        """The layer's sizes and options, for ``repr`` of the model."""
        value = f", padding_value={self.padding_value}" if self.padding_value else ""
        return f"{torch.nn.Conv2d.extra_repr(self)}{value}{_written(self.products)}"


class BinaryLinear(torch.nn.Linear):
    """A product (N, F) whose weights are the signs of latent floats.

    Parameters
    ----------
    in_features, out_features
        As for ``torch.nn.Linear``.
    bias : bool
        False by default: a batch normalisation has its own.
    products : {"floats", "bits"}
        As for `BinaryConv2d`.

    Examples
    --------
    >>> import torch
    >>> layer = BinaryLinear(2, 1)
    >>> with torch.no_grad():
    ...     _ = layer.weight.copy_(torch.tensor([[0.25, -0.5]]))
    >>> layer(torch.tensor([[5.0, 3.0]])).tolist()
    [[2.0]]
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = False, *, products: Products = "floats"
    ) -> None:
        torch.nn.Linear.__init__(self, in_features, out_features, bias=bias)
        check_option("products", products, PRODUCTS, "the forward pass computes with one of these")
        self.products: Products = products

    def forward(self, x: Any) -> Any:
        """Multiply vectors (N, F) by the signs of the weights."""
        weight = _SignWithGradient.apply(self.weight, "identity")
        if self.products == "floats":
            return torch.nn.functional.linear(x, weight, self.bias)
        product = bits.linear(x, weight)
        return product if self.bias is None else product + self.bias

    def extra_repr(self) -> str:
        """The layer's sizes and options, for ``repr`` of the model."""
        return f"{torch.nn.Linear.extra_repr(self)}{_written(self.products)}"


def _written(products: Products) -> str:
    return "" if products == "floats" else f", products={products!r}"


def clip_latent_weights(model: Any) -> None:
    """Limit the latent weights of all binary layers to -1 … 1, after each step of the optimiser.

    A weight far from 0 would no longer change its sign.

    Examples
    --------
    >>> import torch
    >>> layer = BinaryLinear(1, 1)
    >>> _ = torch.nn.init.constant_(layer.weight, 5.0)
    >>> clip_latent_weights(layer)
    >>> layer.weight.item()
    1.0
    """
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, (BinaryConv2d, BinaryLinear)):
                module.weight.clamp_(-1, 1)
