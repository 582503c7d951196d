"""The ±1 convolution on a device (BSTC, section 5.2; BTC, section 5.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu.bconv.geometry import ConvShape, conv_shape
from gpu.bconv.packing import MEANINGS, check_packed, pack_on_device, regrouped, tensor
from gpu.bconv.schemes import SCHEMES, Pool, Scheme, convolution_ptx, plan_shape
from gpu.bmm.operands import choose_device, downloaded, on_device, refuse_nan
from gpu.bmm.rule import rule_on_device
from gpu.device import Device, is_array
from reference.errors import FormatError, SchemeError, ShapeError
from reference.types import PackedTensor


def bconv2d(
    x: Any,
    w: Any,
    *,
    stride: Any = 1,
    padding: Any = "SAME",
    dilation: Any = 1,
    groups: int = 1,
    scheme: str = "auto",
    thresholds: Any = None,
    flip: Any = None,
    pool: str | None = None,
    device: Device | None = None,
) -> Any:
    """The convolution of the signs of images with the signs of filters, on a device.

    Taps outside the image are excluded: they contribute nothing. Answers the same as `reference.bconv2d`,
    and with thresholds as `reference.threshold_tensor` of it.

    Parameters
    ----------
    x : (N, H, W, C)
    w : (R, S, C, O)
        Real tensors (float64, float32, float16, int8) on the host or on a device, or `PackedTensor` with
        ``first="lsb"`` in a layout that the scheme takes: NHWC and HWOI all do.
    stride, dilation : int or (int, int)
        Down and across.
    padding : "SAME", "VALID" or ((top, bottom), (left, right))
        As in TensorFlow.
    groups : int
        Only 1.
    scheme : str
        "bconv32", "bconv64", "btc1", "btc2", or "auto"; see `gpu.bconv.plan` for what that is.
    thresholds : (O,) integers, optional
        Make the output bits: 1 where the dot product is at least its channel's threshold.
    flip : (O,) bool, optional
        The channels whose bits are turned over: those with a negative γ.
    pool : "or" or "and", optional
        Pool the bits over windows of 2 x 2; a last odd row or column is dropped.
    device : Device, optional
        Default: the operands' own, or the first CUDA device.

    Returns
    -------
    (N, P, Q, O) int32, or PackedTensor
        On the host; on the device if an operand lies there. Bits are packed NHWC in words of 32 with
        ``first="lsb"``, ready to be the next convolution's x.

    Raises
    ------
    ShapeError, DtypeError, FormatError, SchemeError, NoGpuError
    NotANumberError
        At once for host arrays; for device arrays at the device's next synchronisation.

    Notes
    -----
    Source: BSTC (SC'19), section 5.2 and listing 6; BTC (TPDS'20), section 5.3 and listing 6.

    Examples
    --------
    >>> import simwarp
    >>> ones = np.ones((1, 3, 3, 1), np.int8)
    >>> bconv2d(ones, np.ones((3, 3, 1, 1), np.int8), device=simwarp.Device())[0, :, :, 0]
    array([[4, 6, 4],
           [6, 9, 6],
           [4, 6, 4]], dtype=int32)
    """
    x, w = _operand(x, "x"), _operand(w, "w")
    shape = conv_shape(x.shape, w.shape, stride=stride, padding=padding, dilation=dilation, groups=groups)
    pooling = _pooling(pool, thresholds, shape)
    device = choose_device(device, *map(_data, (x, w)), thresholds, flip)
    chosen = _scheme(scheme, x, w, shape, device)
    stays = on_device(_data(x)) or on_device(_data(w))
    if stays:  # nothing is downloaded here that would tell of a NaN in the other operand
        refuse_nan(x=x, w=w)
    rule = rule_on_device(thresholds, flip, shape.filters, device)
    images, filters = _packed(x, "x", chosen, device), _packed(w, "w", chosen, device)
    launch = Launch(chosen, shape, pooling, device)
    y = launch.output(bits=bool(rule))
    launch(images, filters, y, rule)
    result = y if stays else downloaded(y, x=x, w=w)
    if not rule:
        return result
    height, width = (shape.out_height, shape.out_width) if pooling == "none" else launch.pooled_size
    return PackedTensor(result, (shape.batch, height, width, shape.filters), "NHWC", 32, "lsb")


@dataclass(frozen=True)
class Launch:
    """A convolution of packed operands on a device, to be launched as often as wanted.

    Attributes
    ----------
    scheme : Scheme
    shape : ConvShape
    pool : "none", "or" or "and"
        With "or" and "and" the output is bits.
    device : Device

    Examples
    --------
    >>> import simwarp
    >>> device = simwarp.Device()
    >>> launch = Launch(SCHEMES["bconv32"], conv_shape((1, 2, 2, 1), (2, 2, 1, 1)), "none", device)
    >>> images = pack_on_device(np.ones((1, 2, 2, 1)), "x", "NHWC", 32, device)
    >>> filters = pack_on_device(np.ones((2, 2, 1, 1)), "w", "HWOI", 32, device)
    >>> y = launch.output(bits=False)
    >>> launch(images, filters, y)
    >>> y.download().ravel()
    array([4, 2, 2, 1], dtype=int32)
    """

    scheme: Scheme
    shape: ConvShape
    pool: Pool
    device: Device

    @property
    def pooled_size(self) -> tuple[int, int]:
        """Height and width of pooled bits."""
        return self.shape.out_height // 2, self.shape.out_width // 2

    def output(self, *, bits: bool) -> Any:
        """An array for the output; what it holds does not matter."""
        shape = self.shape
        size = (shape.out_height, shape.out_width) if self.pool == "none" else self.pooled_size
        if bits:
            return self.device.allocate((shape.batch, *size, -(-shape.filters // 32)), np.uint32, "y")
        return self.device.allocate((shape.batch, *size, shape.filters), np.int32, "y")

    def __call__(
        self, images: PackedTensor, filters: PackedTensor, y: Any, rule: tuple[Any, ...] = ()
    ) -> None:
        """Launch; operands as the scheme takes them, thresholds and flips on the device for bits."""
        arch = self.device.compute_capability
        ptx = convolution_ptx(self.scheme, self.shape, "bits" if rule else "int", self.pool, arch)
        operands = self.scheme.operands(images, filters, self.shape, self.device)
        kernel = self.device.load(ptx.text).kernel(self.scheme.name)
        kernel(*self.scheme.launch(self.shape, self.pool), *operands, y, self.shape.argument, *rule)


def _operand(x: Any, name: str) -> Any:
    """An operand, checked."""
    if not isinstance(x, PackedTensor):
        return tensor(x, name, MEANINGS[name])
    check_packed(x, name)
    return x


def _data(x: Any) -> Any:
    return x.words if isinstance(x, PackedTensor) else x


def _pooling(pool: str | None, thresholds: Any, shape: ConvShape) -> Pool:
    if pool is None:
        return "none"
    if pool not in ("or", "and"):
        raise SchemeError(f"pool={pool!r} is unknown\n'or' and 'and' are known\nchoose one, or None")
    if thresholds is None:
        raise SchemeError(f"pool={pool!r} is given without thresholds\nonly bits are pooled\ngive thresholds")
    if shape.windows == 0:
        raise ShapeError(
            f"pool={pool!r}: the convolution has {shape.out_height} x {shape.out_width} pixels\n"
            "no window of 2 x 2 fits, and the output would be empty\nleave out pool="
        )
    return "or" if pool == "or" else "and"


def _scheme(name: str, x: Any, w: Any, shape: ConvShape, device: Device) -> Scheme:
    """The scheme that was asked for, or that the plan chooses."""
    if name in list(SCHEMES):  # which takes any object
        return SCHEMES[name]
    if name != "auto":
        raise SchemeError(
            f"scheme={name!r} is unknown\n{', '.join(SCHEMES)} and auto are known\nchoose one of them"
        )
    images = x.layout if isinstance(x, PackedTensor) else "NHWC"
    filters = w.layout if isinstance(w, PackedTensor) else "HWOI"
    of_64_bits = any(isinstance(operand, PackedTensor) and operand.word == 64 for operand in (x, w))
    return plan_shape(shape, (images, filters), 64 if of_64_bits else 32, device.compute_capability).scheme


def _packed(x: Any, name: str, scheme: Scheme, device: Device) -> PackedTensor:
    """The operand as the scheme takes it, on the device."""
    layouts = scheme.images if name == "x" else scheme.filters
    if not isinstance(x, PackedTensor):
        return pack_on_device(x, name, layouts[0], scheme.word, device)
    if x.layout not in layouts or x.first != "lsb":
        raise FormatError(
            f"{name} of {MEANINGS[name]} = {x.shape} is packed with layout={x.layout!r}, first={x.first!r}\n"
            f"{scheme.name} takes layout={' or '.join(map(repr, layouts))} with first='lsb'\n"
            "pack it so, or choose another scheme"
        )
    x = regrouped(x, name, scheme.word)
    if is_array(x.words):
        return x
    words = device.upload(np.ascontiguousarray(x.words), f"words of {name}")
    return PackedTensor(words, x.shape, x.layout, x.word, x.first)
