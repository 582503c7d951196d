"""Bias and activation in place, by cuDNN's older calls, whose tensors have fewer than 2**31 elements."""

from __future__ import annotations

import ctypes
from collections.abc import Generator
from contextlib import contextmanager
from math import prod

from gpu.cuda_machine.convolutions import DATA_TYPES, Four, View
from gpu.cuda_machine.cudnn import Cudnn

_ACTIVATIONS = {"sigmoid": 0, "relu": 1, "tanh": 2}
_PROPAGATE_NAN = 1
_LARGEST = 2**31 - 1
_ONE, _ZERO = (ctypes.c_float * 1)(1.0), (ctypes.c_float * 1)(0.0)


def finish(
    cudnn: Cudnn, handle: int, device: int, of: View, dtype: str, result: int, bias: int, activation: str
) -> None:
    """Queue the addition of a bias, unless its address is 0, and an activation unless ""."""
    images, at_once = of.sizes[0], max(_LARGEST // prod(of.sizes[1:]), 1)
    channels, item = of.sizes[1], 4 if dtype == "float32" else 2
    for first in range(0, images, at_once):
        sizes = (min(at_once, images - first), *of.sizes[1:])
        y = result + first * of.strides[0] * item
        with _tensor(cudnn, sizes, of.strides, dtype) as target:
            if bias:
                with _tensor(cudnn, (1, channels, 1, 1), (channels, 1, 1, 1), dtype) as source:
                    operands = _ONE, source, bias, _ONE, target, y
                    cudnn.call("cudnnAddTensor", handle, *operands, device=device)
            if activation:
                with _made(cudnn, "Activation") as how:
                    mode = _ACTIVATIONS[activation]
                    cudnn.call("cudnnSetActivationDescriptor", how, mode, _PROPAGATE_NAN, 0.0, device=device)
                    operands = _ONE, target, y, _ZERO, target, y
                    cudnn.call("cudnnActivationForward", handle, how, *operands, device=device)


@contextmanager
def _tensor(cudnn: Cudnn, sizes: Four, strides: Four, dtype: str) -> Generator[int]:
    """The descriptor of a tensor."""
    with _made(cudnn, "Tensor") as made:
        four = (ctypes.c_int * 4)(*sizes), (ctypes.c_int * 4)(*strides)
        cudnn.call("cudnnSetTensorNdDescriptor", made, DATA_TYPES[dtype], 4, *four)
        yield made


@contextmanager
def _made(cudnn: Cudnn, kind: str) -> Generator[int]:
    """A descriptor of a kind, destroyed at the end."""
    made = ctypes.c_void_p()
    cudnn.call(f"cudnnCreate{kind}Descriptor", ctypes.byref(made))
    try:
        yield made.value or 0
    finally:
        cudnn.call(f"cudnnDestroy{kind}Descriptor", made.value)
