"""The first layer of a model: it converts images to the numbers that the exported network receives."""

from __future__ import annotations

from typing import Any

from reference.errors import DtypeError, RangeError, SchemeError, ShapeError
from simwarp.torch.pytorch import torch


class ImagePixels(torch.nn.Module):
    """uint8 images as ``(scale * x + offset) / 2**fraction``, which is exact in float32.

    The network's input is `reference.bnn.Pixels`.

    Parameters
    ----------
    scale, offset : int or sequence of int
        One for each channel of images (N, C, H, W), or feature of vectors (N, F); or one for all.
    fraction : int
        Binary digits after the point.

    Examples
    --------
    >>> import torch
    >>> ImagePixels(scale=2, offset=-255, fraction=8)(torch.tensor([[0, 255]], dtype=torch.uint8))
    tensor([[-0.9961,  0.9961]])
    """

    def __init__(self, scale: Any = 1, offset: Any = 0, *, fraction: int = 0) -> None:
        torch.nn.Module.__init__(self)
        scales, offsets = _integers(scale, "scale"), _integers(offset, "offset")
        ends = torch.stack(torch.broadcast_tensors(offsets, offsets + 255 * scales))
        low, high = int(ends.min()), int(ends.max())
        if low < -(2**15) or high >= 2**15:
            raise RangeError(f"pixels become {low} … {high}: beyond int16\ngive a smaller fraction")
        self.fraction: int = fraction
        self.register_buffer("scale", scales)
        self.register_buffer("offset", offsets)
        self.register_buffer("unit", torch.tensor(2.0**-fraction))

    @classmethod
    def normalised(cls, mean: Any, std: Any, *, fraction: int = 10) -> ImagePixels:
        """``(x / 255 - mean) / std`` with scale and offset rounded to ``2**-fraction``.

        >>> import torch
        >>> pixels = ImagePixels.normalised([0.5], [0.25], fraction=10)
        >>> pixels.scale.tolist(), pixels.offset.tolist()
        ([16], [-2048])
        """
        mean, std = (torch.as_tensor(x, dtype=torch.float64) for x in (mean, std))
        one = 2.0**fraction
        return cls((one / (255 * std)).round(), (-one * mean / std).round(), fraction=fraction)

    def forward(self, x: Any) -> Any:
        """Convert images of uint8 to floats: scale and offset each channel."""
        if x.dtype != torch.uint8:
            raise DtypeError(f"images are of {x.dtype}, and ImagePixels takes torch.uint8")
        numbers = x.int() * _along_channels(self.scale, x) + _along_channels(self.offset, x)
        return numbers.to(self.unit.dtype) * self.unit


class ImageReals(torch.nn.Module):
    """Images of floats, rounded to multiples of ``2**-fraction``, ties to even.

    The network's input is `reference.bnn.Reals`: numbers beyond ±2**(15 - fraction) are refused there.

    Parameters
    ----------
    fraction : int
        0 to 15.

    Examples
    --------
    >>> import torch
    >>> ImageReals(fraction=1)(torch.tensor([[0.25, 0.75]]))
    tensor([[0., 1.]])
    """

    def __init__(self, fraction: int = 10) -> None:
        torch.nn.Module.__init__(self)
        if fraction not in range(16):
            raise SchemeError(f"fraction is {fraction!r}: give 0 to 15 binary digits after the point")
        self.fraction: int = fraction
        self.register_buffer("unit", torch.tensor(2.0**-fraction))

    def forward(self, x: Any) -> Any:
        """Round images to multiples of ``2**-fraction``, ties to even."""
        if not x.is_floating_point():
            raise DtypeError(
                f"images are of {x.dtype}, and ImageReals takes floats: use ImagePixels for bytes"
            )
        return (x.to(self.unit.dtype) / self.unit).round() * self.unit


class ImageSigns(torch.nn.Module):
    """Images as signs: +1 where ``x >= thresholds``, else -1.

    The network's input is `reference.bnn.Signs`.

    Parameters
    ----------
    thresholds : float or sequence of float
        One for each channel of images (N, C, H, W), or feature of vectors (N, F); or one for all.

    Examples
    --------
    >>> import torch
    >>> ImageSigns(128)(torch.tensor([[7, 200]], dtype=torch.uint8))
    tensor([[-1.,  1.]])
    """

    def __init__(self, thresholds: Any = 0.0) -> None:
        torch.nn.Module.__init__(self)
        self.register_buffer(
            "thresholds", _at_most_one_axis(torch.as_tensor(thresholds).float(), "thresholds")
        )

    def forward(self, x: Any) -> Any:
        """Compare images with the thresholds: +1 or -1 for each pixel and channel."""
        thresholds = _along_channels(self.thresholds, x)
        return torch.where(x.to(thresholds.dtype) >= thresholds, 1, -1).to(thresholds.dtype)


def _integers(given: Any, name: str) -> Any:
    """A number or a vector of integers, as int32."""
    tensor = _at_most_one_axis(torch.as_tensor(given), name)
    if not bool((tensor == tensor.round()).all() if tensor.is_floating_point() else True):
        raise DtypeError(f"{name} has a number that is not an integer: give a larger fraction, and integers")
    return tensor.to(torch.int32)


def _at_most_one_axis(tensor: Any, name: str) -> Any:
    if tensor.ndim > 1:
        raise ShapeError(f"{name} has shape {tuple(tensor.shape)}: give one number for each channel")
    return tensor


def _along_channels(vector: Any, x: Any) -> Any:
    """A vector, or one number, in the shape that broadcasts along axis 1 of ``x``."""
    return vector.reshape(-1, *(1,) * (x.ndim - 2))
