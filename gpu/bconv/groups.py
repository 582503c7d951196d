"""Convolutions in groups: images and filters cut into the operands of each, and their outputs joined."""

from __future__ import annotations

from math import prod
from typing import Any, Literal

import numpy as np

from gpu.bconv.geometry import Pool
from gpu.bconv.packing import MEANINGS, pack_on_device
from gpu.bconv.prepared import PreparedTensor
from gpu.compile import Ptx, compile_file
from gpu.device import Array, Device, LaunchPlan, launch
from gpu.host import words_to_device
from reference.errors import FormatError, SchemeError
from reference.types import PackedTensor, TensorLayout, Word
from reference.types.packed import WORD_DTYPES, words_shape

_THREADS = 256
_PART = 16
"""Bytes by which the parts of groups begin, as kernels load 16 at once."""
_LAYOUTS: dict[str, TensorLayout] = {"x": "NHWC", "w": "HWOI"}


def split(x: Any, name: Literal["x", "w"], groups: int, word: Word, device: Device) -> list[PackedTensor]:
    """The operand of each group, of a checked one: channels of images, or filters."""
    packed, layout = _words(x, name, device), _LAYOUTS[name]
    *outer, last = packed.shape
    channels = last // groups if name == "x" else packed.shape[2]
    shape: Any = (*outer, last // groups)
    lines = prod(outer) if name == "x" else prod(packed.shape[:2])
    filters = last // groups if name == "w" else 1
    words = -(-channels // word) * (word // 32)
    of_line = packed.words.nbytes // 4 // (prod(outer) if name == "x" else lines * last)
    count = lines * filters * words
    part = _rounded(count, 4)
    parts = device.allocate((groups, part), np.uint32, f"{name} in groups")
    kernel = "split_images" if name == "x" else "split_filters"
    sizes = (lines, of_line, channels if name == "x" else filters, words, groups, part)
    _launch(device, kernel, groups * count, (None, None, *sizes), packed.words, parts)
    of_part = words_shape(layout, word, shape), WORD_DTYPES[word]
    return [
        PackedTensor(parts.view(*of_part, offset=4 * part * group), shape, layout, word, "lsb")
        for group in range(groups)
    ]


def parts_of_output(
    size: tuple[int, ...], dtype: Any, groups: int, device: Device
) -> tuple[Array, list[Any]]:
    """An array for what all groups give, and the view of each."""
    itemsize = np.dtype(dtype).itemsize
    part = _rounded(prod(size), itemsize)
    whole = device.allocate((groups, part), dtype, "y in groups")
    return whole, [whole.view(size, offset=itemsize * part * group) for group in range(groups)]


def joined(parts: Array, size: tuple[int, ...], rule: tuple[Any, ...], pool: Pool, device: Device) -> Array:
    """Join the groups' outputs of shape ``size`` along channels; with thresholds (``rule``), as bits."""
    groups, part = parts.shape
    images, height, width, filters = size
    element = {2: "short", 4: "int"}[np.dtype(parts.dtype).itemsize]
    if not rule:
        y = device.allocate((images, height, width, filters * groups), parts.dtype, "y")
        sizes = (images * height * width, filters, groups, part)
        _launch(device, "join_numbers", prod(y.shape), (None, None, *sizes), parts, y, element=element)
        return y
    half = 1 + (pool != "none")
    y = device.allocate((images, height // half, width // half, -(-filters * groups // 32)), np.uint32, "y")
    args = (None, None, images, height, width, filters, groups, part, None, None)
    _launch(device, "join_bits", prod(y.shape), args, parts, y, *rule, element=element, pool=pool)
    return y


def groups_ptx(element: str, pool: Pool, arch: tuple[int, int]) -> Ptx:
    """The kernels for dot products of a type, and a pool of bits, compiled."""
    return compile_file("bconv/groups.cu", {"ELEMENT": element, f"POOL_{pool.upper()}": ""}, arch)


def _rounded(count: int, itemsize: int) -> int:
    """Elements of a part, so that the next one begins where kernels may load 16 bytes."""
    of_part = _PART // itemsize
    return -(-count // of_part) * of_part


def _words(x: Any, name: Literal["x", "w"], device: Device) -> PackedTensor:
    """A checked operand as words on the device, along its channels."""
    layout = _LAYOUTS[name]
    if isinstance(x, PreparedTensor):
        raise SchemeError(
            f"{name} is prepared, and groups is not 1\n"
            "it is arranged for a convolution over all of its channels\ngive the tensor, or a PackedTensor"
        )
    if not isinstance(x, PackedTensor):
        return pack_on_device(x, name, layout, 32, device)
    if x.layout != layout or x.first != "lsb":
        raise FormatError(
            f"{name} of {MEANINGS[name]} = {x.shape} is packed with layout={x.layout!r}, first={x.first!r}\n"
            f"groups are cut from layout={layout!r} with first='lsb'\nrepack it with that layout and order"
        )
    return words_to_device(x, name, device)


def _launch(
    device: Device,
    kernel: str,
    count: int,
    args: tuple[Any, ...],
    *arrays: Any,
    element: str = "int",
    pool: Pool = "none",
) -> None:
    """Launch a kernel of groups.cu: a thread for each element."""

    def plan() -> LaunchPlan:
        ptx = groups_ptx(element, pool, device.compute_capability).text
        return LaunchPlan(ptx, kernel, (-(-count // _THREADS), 1, 1), (_THREADS, 1, 1), args)

    launch(device, ("groups", kernel, args, element, pool), plan, *arrays)
