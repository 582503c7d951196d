"""What a product gives: dot products, scaled ones, or bits by a threshold and a flip for each column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.bmm.choice import gives
from gpu.bmm.schemes import AnyScheme
from gpu.bmm.threshold import vector_on_device
from gpu.bmm.warpgroups import WarpgroupScheme
from gpu.device import Device
from gpu.host import unknown
from reference.errors import DtypeError, SchemeError
from reference.types.arguments import dtype_of
from reference.types.packed import WORD_DTYPES, words_shape

_NUMBERS = ("int32", "int16", "float16", "float32")


@dataclass(frozen=True)
class Output:
    """What a product gives.

    Attributes
    ----------
    kind : str
        The dtype of dot products; "words" for bits in words along the rows, as `PackedBits`; "lines" for
        bits as a prepared A; "answer" for dot products, logits and classes of a network, by "skinny".
    rule : tuple of device arrays
        For bits thresholds and flips; for floats the columns' scales, or nothing; for an answer scale and
        offset of logits.
    common : bool
        Whether what is given or compared is how many bits are 1 in both, not a dot product of signs.
    """

    kind: str = "int32"
    rule: tuple[Any, ...] = ()
    common: bool = False

    @property
    def is_bits(self) -> bool:
        """True if the kernel writes bits of thresholded dot products."""
        return self.kind in ("words", "lines")

    @property
    def is_scaled(self) -> bool:
        """True if the kernel multiplies dot products by scales."""
        return bool(self.rule) and self.kind.startswith("float")

    def allocate(
        self,
        sizes: tuple[int, int, int],
        scheme: AnyScheme,
        device: Device,
        stack: tuple[int, ...] = (),
    ) -> tuple[Any, ...]:
        """The arrays that the kernel writes for sizes (m, n, k), for each matrix of a stack.

        They are C; with lines their ones, unless the scheme leaves them to the next product; with an answer
        logits and classes.
        """
        m, n, k = sizes
        if self.kind == "lines":
            lines = device.allocate((*stack, m, -(-n // 128), 4), np.uint32, "c")
            if not isinstance(scheme, WarpgroupScheme):
                return (lines,)
            parts = scheme.parts(m, n, k, device.multiprocessors, *stack)
            ones = (*stack, m, parts) if parts > 1 else (*stack, m)
            return lines, device.allocate(ones, np.uint32, "ones of c")
        if self.kind == "answer":
            return (
                device.allocate((m, n), np.int32, "sums"),
                device.allocate((m, n), np.float32, "logits"),
                device.allocate((m,), np.int64, "classes"),
            )
        if self.is_bits:
            shape = words_shape("column", scheme.word, (*stack, m, n))
            return (device.allocate(shape, WORD_DTYPES[scheme.word], "c"),)
        return (device.allocate((*stack, m, n), DTYPES[self.kind], "c"),)


DTYPES = {name: np.dtype(name) for name in _NUMBERS}
"""The dtypes of dot products."""


def kind_of(dtype: Any, *, bits: bool, prepared: bool) -> str:
    """The kind of a product's output: its dtype's name, "words" or, if prepared, "lines" of bits."""
    if bits and dtype is not None:
        raise SchemeError("thresholds and dtype are given\nthe output is bits\nleave one out")
    if prepared and not bits:
        raise SchemeError("prepared=True without thresholds\nonly bits are an operand\ngive thresholds")
    kind = "int32" if dtype is None else dtype_of("dtype", dtype).name
    if bits:
        kind = "lines" if prepared else "words"
    if not bits and kind not in DTYPES:
        raise unknown("dtype", kind, DTYPES)
    return kind


def check_kind(kind: str, scheme: AnyScheme, n: int, k: int) -> None:
    """Refuse a kind of output that the scheme does not give, or that cannot hold dot products of length k."""
    if not gives(scheme, kind, n):
        what = "prepared=True" if kind == "lines" else f"dtype={kind}"
        raise SchemeError(
            f"{what} with scheme={scheme.name!r}\nit gives int32 and packed words only\n"
            "choose scheme='wgmma', on sm_90"
        )
    if kind == "int16" and k > np.iinfo(np.int16).max:
        raise DtypeError(f"K is {k}, dtype int16\na dot product may be as large as K\nchoose int32")


def scales_on_device(scales: Any, kind: str, n: int, device: Device) -> tuple[Any, ...]:
    """Upload the scales (float32) of ``n`` columns; () without scales."""
    if scales is None:
        return ()
    if not kind.startswith("float"):
        raise SchemeError(f"scales are given, and the output is {kind}\nchoose dtype float32 or float16")
    return (vector_on_device(scales, "scales", n, _scales, np.float32, device),)


def _scales(values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Check scales of the host, and convert them to float32."""
    if values.dtype.kind not in "fiu":
        raise DtypeError(f"scales are {values.dtype}\nreal numbers are needed\nconvert them first")
    return values.astype(np.float32)
