"""The ±1 product and convolution as PyTorch operators, which ``torch.compile`` supports.

Importing this module registers ``torch.ops.simwarp.bmm`` and ``torch.ops.simwarp.bconv2d`` for CUDA tensors;
it needs the extra "torch". They run in torch's current stream, in memory of torch's, and can be captured.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib import import_module
from typing import Any

from gpu.bconv import bconv2d as convolve
from gpu.bmm.product import bmm as multiply
from gpu.cuda import CudaDevice, default_device
from gpu.cuda.streams import TorchMemory
from reference.errors import MissingExtraError

__all__ = ["bconv2d", "bmm"]


def _import_torch() -> Any:
    try:
        return import_module("torch")
    except ImportError as error:
        raise MissingExtraError(
            f"operators of PyTorch need torch, which is not installed ({error})\npip install 'simwarp[torch]'"
        ) from None


torch: Any = _import_torch()


def _bmm(a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False, scheme: str = "auto") -> Any:
    """The product of the signs of two CUDA matrices or stacks, op(A) · op(B), as int32."""
    a, transpose_a = _dense(a, transpose_a)
    b, transpose_b = _dense(b, transpose_b)
    with _current(a.get_device()):
        c = multiply(
            a,
            b,
            transpose_a=transpose_a,
            transpose_b=transpose_b,
            scheme=scheme,
            device=_device(a.get_device()),
        )
        return _tensor(c)


def _bmm_fake(
    a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False, scheme: str = "auto"
) -> Any:
    """The shape, dtype and device of `_bmm`'s result."""
    m, k = a.shape[:-3:-1] if transpose_a else a.shape[-2:]
    k_of_b, n = b.shape[:-3:-1] if transpose_b else b.shape[-2:]
    torch._check(k == k_of_b, lambda: f"simwarp::bmm: K is {k} in a and {k_of_b} in b")
    return a.new_empty((*(a.shape[:-2] or b.shape[:-2]), m, n), dtype=torch.int32)


def _bconv2d(
    x: Any,
    w: Any,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    scheme: str = "auto",
) -> Any:
    """The convolution of the signs of images (N, C, H, W) with those of filters (O, C, R, S), as int32."""
    images, filters = _real(x).permute(0, 2, 3, 1).contiguous(), _real(w).permute(2, 3, 1, 0).contiguous()
    down, across = padding
    with _current(x.get_device()):
        y = convolve(
            images,
            filters,
            stride=tuple(stride),
            padding=((down, down), (across, across)),
            dilation=tuple(dilation),
            scheme=scheme,
            device=_device(x.get_device()),
        )
        return _tensor(y).permute(0, 3, 1, 2)


def _bconv2d_fake(
    x: Any,
    w: Any,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    scheme: str = "auto",
) -> Any:
    """The shape, strides, dtype and device of `_bconv2d`'s result."""
    torch._check(
        x.shape[1] == w.shape[1], lambda: f"simwarp::bconv2d: x has {x.shape[1]} channels, w {w.shape[1]}"
    )
    geometry = zip(x.shape[2:], w.shape[2:], stride, padding, dilation, strict=True)
    height, width = (
        (size + 2 * pad - step * (taps - 1) - 1) // by + 1 for size, taps, by, pad, step in geometry
    )
    y = x.new_empty((x.shape[0], height, width, w.shape[0]), dtype=torch.int32)
    return y.permute(0, 3, 1, 2)


def _real(x: Any) -> Any:
    """A tensor detached from its gradient."""
    return x.detach() if x.requires_grad else x


def _current(index: int) -> AbstractContextManager[Any]:
    """Make a GPU torch's current one, which takes 5 us if it is not."""
    return _AS_IT_IS if torch.cuda.current_device() == index else torch.cuda.device(index)


_AS_IT_IS = nullcontext()


def _dense(x: Any, transpose: bool) -> tuple[Any, bool]:
    """A contiguous matrix, and whether it is transposed, so that a transposed view is not copied."""
    x = _real(x)
    if x.ndim == 2 and not x.is_contiguous() and x.mT.is_contiguous():
        return x.mT, not transpose
    return x.contiguous(), transpose


def _tensor(array: Any) -> Any:
    """The tensor of a device array, which shares its memory."""
    if not isinstance(array.memory, TorchMemory):
        return torch.as_tensor(array, device="cuda")
    memory = array.memory.tensor
    if memory.numel() == array.nbytes:
        return memory.view(torch.int32).view(array.shape)
    # one of several results there: a view would share autograd's count of changes with the others
    offset = (array.pointer - memory.data_ptr()) // 4
    tensor = torch.empty(0, dtype=torch.int32, device=memory.device)
    return tensor.set_(memory.untyped_storage(), offset, array.shape)


@cache
def _device(index: int) -> Any:
    return default_device() if index == 0 else CudaDevice(index)


def _operator(name: str, schema: str, run: Any, fake: Any) -> Any:
    """Register a function as a torch operator, with its schema and shape function."""
    torch.library.define(name, schema)  # custom_op would add 30 us to each call
    torch.library.impl(name, "cuda", run)
    torch.library.register_fake(name, fake)
    space, _, short = name.partition("::")
    return getattr(getattr(torch.ops, space), short)


bmm: Any = _operator(
    "simwarp::bmm",
    '(Tensor a, Tensor b, bool transpose_a=False, bool transpose_b=False, str scheme="auto") -> Tensor',
    _bmm,
    _bmm_fake,
)
"""``torch.ops.simwarp.bmm(a, b, transpose_a=False, transpose_b=False, scheme="auto")``: see docs/gpu.md."""

bconv2d: Any = _operator(
    "simwarp::bconv2d",
    "(Tensor x, Tensor w, SymInt[2] stride=1, SymInt[2] padding=0, SymInt[2] dilation=1, "
    'str scheme="auto") -> Tensor',
    _bconv2d,
    _bconv2d_fake,
)
"""``torch.ops.simwarp.bconv2d(x, w, stride=1, padding=0, dilation=1, scheme="auto")``: see docs/gpu.md."""
