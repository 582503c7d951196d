"""Products and convolutions of ±1 by counting bits, with the gradients of those of floats.

They are operations of the forward pass in training (BSTC, section 6.4). CUDA tensors are computed by `gpu`,
tensors of the CPU by `reference`. The backward pass is in floats.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gpu
import reference
from reference.errors import DtypeError, FormatError, RangeError
from simwarp.torch.pytorch import torch


class Window(NamedTuple):
    """The options of a convolution; ``sides`` are the pixels on the left, right, top and bottom."""

    stride: tuple[int, int]
    sides: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int


def linear(x: Any, weight: Any) -> Any:
    """The product of ±1 (…, K) by ±1 (N, K), in x's dtype."""
    _check_signs(x)
    return _Linear.apply(x, weight)


def conv2d(x: Any, weight: Any, window: Window) -> Any:
    """The convolution of ±1 (N, C, H, W) by ±1 (O, C / groups, R, S), without the pixels outside."""
    _check_signs(x)
    return _Conv2d.apply(x, weight, window)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Any, weight: Any) -> Any:
        context.save_for_backward(x, weight)
        rows, columns = x.detach().reshape(-1, x.shape[-1]).contiguous(), weight.detach().contiguous()
        if x.is_cuda:
            product = _tensor(gpu.bmm(rows, columns, transpose_b=True), x)
        else:
            product = _tensor(reference.bmm(_array(rows), _array(columns), transpose_b=True), x)
        return product.reshape(*x.shape[:-1], weight.shape[0])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context: Any, *gradients: Any) -> Any:
        (x, weight), (above,) = context.saved_tensors, gradients
        of_weight = above.reshape(-1, above.shape[-1]).mT @ x.reshape(-1, x.shape[-1])
        return above @ weight, of_weight


class _Conv2d(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Any, weight: Any, window: Window) -> Any:
        context.save_for_backward(x, weight)
        context.window = window
        left, right, top, bottom = window.sides
        images, filters = (
            x.detach().permute(0, 2, 3, 1).contiguous(),
            weight.detach().permute(2, 3, 1, 0).contiguous(),
        )
        options: dict[str, Any] = {
            "stride": window.stride,
            "padding": ((top, bottom), (left, right)),
            "dilation": window.dilation,
            "groups": window.groups,
        }
        if x.is_cuda:
            y = gpu.bconv2d(images, filters, **options)
        else:
            y = reference.bconv2d(_array(images), _array(filters), **options)
        return _tensor(y, x).permute(0, 3, 1, 2)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context: Any, *gradients: Any) -> Any:
        (x, weight), (above,) = context.saved_tensors, gradients
        window: Window = context.window
        padded = torch.nn.functional.pad(x, window.sides)
        options = {"stride": window.stride, "dilation": window.dilation, "groups": window.groups}
        of_padded = torch.nn.grad.conv2d_input(padded.shape, weight, above, **options)
        of_weight = torch.nn.grad.conv2d_weight(padded, weight.shape, above, **options)
        return torch.nn.functional.pad(of_padded, [-side for side in window.sides]), of_weight, None


def _check_signs(x: Any) -> None:
    """Raise an error unless a tensor is of floats ±1, on a device that can compute with it."""
    if not x.is_floating_point():
        raise DtypeError(f"a layer of bits takes floats ±1, not {x.dtype}\nput Sign before it")
    if x.device.type not in ("cpu", "cuda"):
        raise FormatError(f"products='bits' are for tensors of the CPU and of CUDA, not of {x.device.type}")
    if x.is_cuda and torch.cuda.is_current_stream_capturing():
        return  # a check waits for the device
    if not bool((x.abs() == 1).all()):
        raise RangeError(
            "the input of a layer of bits is not ±1\nput Sign before it, or leave products='bits' out"
        )


def _array(x: Any) -> Any:
    return x.detach().float().numpy()


def _tensor(sums: Any, like: Any) -> Any:
    """Sums of int32 as a tensor of another's dtype, on its device."""
    return torch.as_tensor(sums, device=like.device).to(like.dtype)
