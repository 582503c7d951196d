"""The kinds of products beside that of signs, and the bits that real operands have for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu.bmm.fsb import FsbBits
from gpu.bmm.packing import matrix
from gpu.bmm.threshold import rule_on_device
from gpu.compile import Ptx, compile_file
from gpu.device import Device, LaunchPlan, launch
from gpu.host import ELEMENTS, Prepared, element_of, nan_flag, on_device, to_device
from reference.errors import DtypeError, FormatError, NotANumberError, SchemeError
from reference.types import PackedBits
from reference.types.arguments import Kind, check_kind

_PACKED = (PackedBits, FsbBits, Prepared)
_THREADS = 256


def check_outputs(kind: Kind, thresholds: Any, flip: Any, dtype: Any, scales: Any) -> None:
    """Refuse an unknown kind of product, and what the Boolean one does not have."""
    check_kind(kind)
    given = {"thresholds": thresholds, "flip": flip, "dtype": dtype, "scales": scales}
    for name, value in given.items():
        if kind == "or" and value is not None:
            raise SchemeError(
                f"{name} with kind='or'\na Boolean product is bits, 1 where any pair of bits is 1 in both\n"
                f"leave {name} out, or say kind='and' for how many pairs are"
            )


def check_bits(kind: Kind, **operands: Any) -> None:
    """Refuse operands that were prepared as signs for a product of bits."""
    for name, x in operands.items():
        if kind != "xnor" and getattr(x, "of_signs", False):
            raise FormatError(
                f"{name} was prepared as the signs of numbers\n"
                f"a product with kind={kind!r} takes bits, 1 for what is not 0\nprepare it with kind={kind!r}"
            )


def rule_of_any(n: int, device: Device) -> tuple[Any, ...]:
    """Thresholds and flips of the Boolean product: a common 1 is enough."""
    return rule_on_device(np.ones(n, np.int32), None, n, device)


def bits_on_host(x: Any, name: str) -> Any:
    """Numbers of the host as int8 whose signs are their bits: 0 where one is not 0, else -1.

    Operands on a device, packed or prepared ones stay as they are.
    """
    if isinstance(x, _PACKED) or on_device(x):
        return x
    try:
        array = np.asarray(x)
        x = array.view(np.int8) if array.dtype.name in ("bool", "uint8") else array
    except (ValueError, DtypeError):
        pass  # `matrix` has the words for it
    numbers = matrix(x, name, stacks=True)
    if np.isnan(numbers).any():
        at = [int(i) for i in np.argwhere(np.isnan(numbers))[0]]
        raise NotANumberError(f"{name}{at} is NaN\na NaN is neither 0 nor 1\nreplace it first")
    return np.subtract(numbers != 0, 1, dtype=np.int8)


def bits_on_device(x: Any, name: str, device: Device) -> Any:
    """Numbers on a device as `bits_on_host` has them, made by a kernel; other operands as they are."""
    if isinstance(x, _PACKED) or not on_device(x):
        return x
    source = to_device(x, name, device)
    signs = device.allocate(tuple(source.shape), np.int8, f"bits of {name}")
    element, count = element_of(source), int(np.prod(source.shape, dtype=np.int64))

    def plan() -> LaunchPlan:
        ptx = nonzero_ptx(element, device.compute_capability)
        grid, block = (-(-count // _THREADS), 1, 1), (_THREADS, 1, 1)
        return LaunchPlan(ptx.text, "nonzero", grid, block, (None, None, count, None))

    launch(device, ("nonzero", element, count), plan, source, signs, nan_flag(device))
    return signs


def nonzero_ptx(element: str, arch: tuple[int, int]) -> Ptx:
    """The kernel that makes the signs of one element type's bits, compiled."""
    return compile_file("bmm/nonzero.cu", {f"ELEMENT_{ELEMENTS[element]}": ""}, arch)
