"""A convolution or one of its gradients: sizes, and the axes along which pieces are cut.

Five loops go over pieces: images (n), blocks of groups (g), channels c_X (c), filters c_Y (f) and rows (h).
Rows are those of the result y, of the gradient of data those of x, with pooling those of its result z. Each
routine is these loops in another order: those of its output outside, those of its sums inside (ooc_cuDNN,
section 3.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from gpu.bconv.geometry import ConvShape

if TYPE_CHECKING:
    from gpu.outofcore.networks.stages import Stage

Layout: TypeAlias = Literal["NCHW", "NHWC"]
Tensor: TypeAlias = Literal["x", "w", "y", "z"]
Activation: TypeAlias = Literal["relu", "tanh", "sigmoid"]
FLOAT = np.dtype(np.float32)
DTYPES = ("float32", "float16", "bfloat16")
LAYOUTS = ("NCHW", "NHWC")
ACTIVATIONS = ("relu", "tanh", "sigmoid")

AXES: dict[Tensor, str] = {"x": "ngch", "w": "gfc", "y": "ngfh", "z": "ngfh"}
"""The loops that each tensor's pieces depend on; x and y stand for their gradients, too."""


@dataclass(frozen=True)
class Form:
    """The operands and the output of a routine, and its loops over pieces, outermost first."""

    operands: tuple[Tensor, Tensor]
    output: Tensor
    outer: str  # the order of the loops over pieces of the output
    inner: str  # the order of the loops over the terms of an output piece's sums


FORMS = {
    "conv2d": Form(("x", "w"), "y", "ngfh", "c"),
    "conv2d_backward_data": Form(("y", "w"), "x", "ngch", "f"),
    "conv2d_backward_filter": Form(("x", "y"), "w", "gfc", "nh"),
}
"""All routines."""


@dataclass(frozen=True)
class Problem:
    """The shapes and options of one convolution call, without its arrays."""

    routine: str  # a name of `FORMS`
    layout: Layout
    batch: int
    channels: int
    filters: int
    groups: int
    plane: ConvShape  # the convolution of one image of one channel
    has_bias: bool = False
    activation: Activation | None = None
    dtype: np.dtype[Any] = FLOAT  # dtype of all arrays: float32, float16 or bfloat16
    tf32: bool = False  # whether float32 operands may be rounded to TF32
    workspace: int | None = 0  # bytes besides the pieces; None: the bytes that GPUs need, see `workspace_of`
    transforms: bool = False  # whether GPUs may use Winograd's and Fourier transforms
    on_device: frozenset[str] = frozenset()  # names of tensors, or "bias", that the caller has on the device
    pool: Stage | None = None  # the pooling of y to z; None without pooling

    @property
    def form(self) -> Form:
        """The operands, the output and the loops of its routine."""
        return FORMS[self.routine]

    @property
    def result(self) -> Tensor:
        """The tensor that the call computes."""
        return "z" if self.pool else self.form.output

    @property
    def group_channels(self) -> int:
        """The number of input channels in a group, which each filter reads."""
        return self.channels // self.groups

    @property
    def group_filters(self) -> int:
        """The number of filters in a group."""
        return self.filters // self.groups

    @property
    def rows(self) -> int:
        """The number of rows along which outputs are cut into pieces."""
        if self.pool:
            return self.pool.plane.out_height
        return self.plane.height if self.form.output == "x" else self.plane.out_height

    @property
    def operations(self) -> int:
        """Floating-point operations, taps outside the images included."""
        outputs = self.batch * self.filters * self.plane.out_height * self.plane.out_width
        return 2 * outputs * self.group_channels * self.plane.filter_height * self.plane.filter_width

    def shape(self, tensor: Tensor) -> tuple[int, int, int, int]:
        """The shape of a tensor in the call's layout (NCHW or NHWC)."""
        plane, pooled = self.plane, self.pool.plane if self.pool else self.plane
        first, channels, rows, columns = {
            "x": (self.batch, self.channels, plane.height, plane.width),
            "w": (self.filters, self.group_channels, plane.filter_height, plane.filter_width),
            "y": (self.batch, self.filters, plane.out_height, plane.out_width),
            "z": (self.batch, self.filters, pooled.out_height, pooled.out_width),
        }[tensor]
        return (first, channels, rows, columns) if self.layout == "NCHW" else (first, rows, columns, channels)
