"""Out-of-core convolutions with operands of small shapes, and their distance from the definition."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import gpu.outofcore
from gpu.outofcore import AveragePool, MaxPool, Pieces, explain
from reference.training import average_pool2d, conv2d, error_of, max_pool2d
from simwarp.machine import Machine
from support.device_tensors import placed

WHOLE = Pieces(99, 99, 99, 99)
NAMES = {
    "conv2d": ("x", "w"),
    "conv2d_backward_data": ("gradient", "w"),
    "conv2d_backward_filter": ("x", "gradient"),
}
"""The operands of each routine."""


@dataclass(frozen=True)
class Layer:
    """A convolution: images of (N, C, H, W), filters of (O, C / groups, R, S), and its options."""

    images: tuple[int, int, int, int] = (3, 4, 7, 6)
    filters: tuple[int, int, int, int] = (6, 4, 3, 2)
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    seed: int = 0
    dtype: Any = np.float32

    def operands(self) -> tuple[Any, Any, Any]:
        """x, w and the gradient by the result, in the layout."""
        rng = np.random.default_rng(self.seed)
        x, w = (rng.standard_normal(shape).astype(self.dtype) for shape in (self.images, self.filters))
        if self.options.get("layout") == "NHWC":
            x, w = (np.ascontiguousarray(np.moveaxis(a, 1, -1)) for a in (x, w))
        y = conv2d(x, w, **self.options)
        return x, w, rng.standard_normal(y.shape).astype(self.dtype)

    def arguments(self, routine: str) -> tuple[Any, ...]:
        """The arguments of a routine."""
        x, w, dy = self.operands()
        return {
            "conv2d": (x, w),
            "conv2d_backward_data": (dy, w, x.shape),
            "conv2d_backward_filter": (x, dy, w.shape),
        }[routine]

    def run(self, routine: str, machine: Any, *, on_device: Collection[str] = (), **call: Any) -> Any:
        """Run a routine into memory full of NaN; the arguments named in ``on_device`` lie on the device."""
        x, w, y = self.operands()
        like = {"conv2d": y, "conv2d_backward_data": x, "conv2d_backward_filter": w}[routine]
        if call.get("pool"):
            like = pooled(call["pool"], y)
        out = np.full_like(like, np.nan)
        with placed(machine, on_device) as (put, get):
            first, second, *shape = self.arguments(routine)
            operands = (put(name, x) for name, x in zip(NAMES[routine], (first, second), strict=True))
            given = {"device": machine, "out": put("out", out), **self.options, **call}
            if "bias" in given:
                given["bias"] = put("bias", given["bias"])
            return get(getattr(gpu.outofcore, routine)(*operands, *shape, **given))

    def error(self, routine: str, result: Any, **fused: Any) -> float:
        """The error of a result, as a share of its bound."""
        return error_of(routine, result, *self.arguments(routine), **self.options, **fused)


def pooled(pool: MaxPool | AveragePool, y: Any) -> Any:
    """The definition of pooling, rounded once."""
    define = max_pool2d if isinstance(pool, MaxPool) else average_pool2d
    return define(y, pool.window, stride=pool.stride, padding=pool.padding).astype(y.dtype)


def bfloat16() -> Any:
    """The dtype of ml_dtypes, or the test is skipped."""
    return pytest.importorskip("ml_dtypes").bfloat16


def parts_of(routine: str, layer: Layer, pieces: Pieces) -> int:
    """Into how many parts the sums of a routine are cut."""
    plan = explain(
        routine, *(x.shape for x in layer.operands()[:2]), device=Machine(), pieces=pieces, **layer.options
    )
    return max(len(task.steps) for task in plan.tasks())


def is_whole(routine: str, pieces: Pieces, layer: Layer) -> bool:
    """True if the sums of a routine are not cut."""
    groups = layer.options.get("groups", 1)
    return {
        "conv2d": pieces.channels >= layer.images[1] // groups,
        "conv2d_backward_data": pieces.filters >= layer.filters[0] // groups,
        "conv2d_backward_filter": pieces.images >= layer.images[0] and pieces.rows >= 99,
    }[routine]


LAYERS = {
    "plain": Layer(),
    "stride": Layer(options={"stride": 2}),
    "asymmetric": Layer(options={"stride": 2, "padding": ((0, 3), (4, 1)), "dilation": (1, 2)}),
    "strides beyond filters": Layer(options={"stride": 4, "padding": "VALID"}),
    "windows outside": Layer(options={"padding": ((5, 4), (0, 0)), "dilation": 2}),
    "groups": Layer((2, 6, 5, 4), (9, 2, 3, 3), {"groups": 3}),
    "depthwise": Layer((2, 4, 6, 5), (4, 1, 3, 3), {"groups": 4, "stride": 2}),
    "channels last": Layer(options={"layout": "NHWC", "stride": (1, 2)}),
    "groups, channels last": Layer((2, 6, 5, 4), (9, 2, 3, 3), {"groups": 3, "layout": "NHWC"}),
    "one pixel": Layer((1, 1, 1, 1), (1, 1, 1, 1)),
}
"""Layers of all kinds, by what is special about them."""
