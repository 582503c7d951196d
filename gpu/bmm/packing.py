"""Packing real matrices into bits on a device (BSTC, section 4 and figure 4)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.bmm.schemes import WARPS_PER_BLOCK
from gpu.bmm.stacks import matrices
from gpu.compile import Ptx, compile_file
from gpu.device import Array, Device, LaunchPlan, launch
from gpu.host import (
    ELEMENTS,
    adopted,
    choose_device,
    downloaded,
    element_of,
    in_stream,
    nan_flag,
    on_device,
    signs,
    to_device,
)
from gpu.recording import Call, call_of, made_or_recorded, play
from reference.errors import ShapeError
from reference.types import First, Layout, PackedBits, Word
from reference.types.packed import WORD_DTYPES, check_format, parts_of, words_shape

LARGEST = 2**31 - 1
"""The largest dimension of a matrix, because kernels count in 32 bits."""


def pack(
    x: Any,
    *,
    layout: Layout = "row",
    word: Word = 32,
    first: First = "msb",
    device: Device | None = None,
) -> PackedBits:
    """Binarize a real matrix and pack it into words, on a device; the definition is `reference.pack`.

    Parameters
    ----------
    x : (rows, columns), or a stack (B, rows, columns), of float64, float32, float16, bfloat16 or int8
        A host array, or a device array (this device's, or any with a CUDA array interface or DLPack).
    layout, word, first
        The format; see `reference.types.PackedBits`.
    device : Device, optional
        Default: the operand's own, or the first CUDA device.

    Returns
    -------
    PackedBits
        With words on the host for a host array, on the device for a device array.

    Raises
    ------
    ShapeError, DtypeError, SchemeError, NoGpuError
    NotANumberError
        At once for a host array; for a device array at the device's next synchronisation.

    Notes
    -----
    Source: BSTC (SC'19), section 5.1, listings 1 and 2.

    Examples
    --------
    >>> import simwarp
    >>> hex(pack([[1.0, -1.0, -0.0]], layout="column", device=simwarp.Device()).words[0, 0])
    '0xa0000000'
    """
    call: Call | None = None
    if layout.__class__ is first.__class__ is str and word.__class__ is int:
        call = call_of(("pack", layout, word, first), (x,), device, None)
        known = play(call)
        if known is not None:
            return known
    check_format(layout, word, first)
    device, _, (x,) = adopted(device, None, x)
    if call is not None:
        shape = tuple(x.shape)

        def make(device: Device) -> Any:
            return pack_on_device(matrix(x, "x", stacks=True), "x", layout, word, first, device).words

        finish = partial(PackedBits, shape=shape, layout=layout, word=word, first=first)
        return made_or_recorded(call.device.plans, call, make, finish)
    x = matrix(x, "x", stacks=True)
    device = in_stream(choose_device(device, x), None, x)
    packed = pack_on_device(x, "x", layout, word, first, device)
    return packed if on_device(x) else replace(packed, words=downloaded(packed.words, x=x))


def pack_on_device(x: Any, name: str, layout: Layout, word: Word, first: First, device: Device) -> PackedBits:
    """Pack a checked matrix or stack; the words stay on the device."""
    source = to_device(x, name, device)
    *stack, rows, columns = source.shape
    shape = words_shape(layout, word, tuple(source.shape))
    words: Array = device.allocate(shape, WORD_DTYPES[word], f"words of {name}")
    for real, packed in matrices(tuple(stack), source, words):
        launch(
            device,
            ("pack", rows, columns, real.dtype, real.pointer % 16, layout, word, first),
            partial(_plan, real, layout, word, first, device),
            *(real, packed, nan_flag(device)),
        )
    return PackedBits(words, (*stack, rows, columns), layout, word, first)


def _plan(source: Array, layout: Layout, word: Word, first: First, device: Device) -> LaunchPlan:
    name, warps = packing_plan(source, layout, word, device.multiprocessors)
    ptx = packing_ptx(element_of(source), word, first, device.compute_capability)
    grid, block = (-(-warps // WARPS_PER_BLOCK), 1, 1), (WARPS_PER_BLOCK * 32, 1, 1)
    return LaunchPlan(ptx.text, name, grid, block, (None, None, *source.shape, None))


def packing_plan(source: Array, layout: Layout, word: Word, multiprocessors: int) -> tuple[str, int]:
    """The name of the kernel that packs a matrix, and its number of warps.

    The vector kernels, whose lanes load 16 bytes at once, need rows that start at multiples of 16 bytes, and
    work for eight warps on each multiprocessor; with less work, more warps that each do less are faster.
    """
    rows, columns = source.shape
    per_vector = 16 // np.dtype(source.dtype).itemsize
    of_warp = 32 * per_vector
    # A word is pieces of 32 bits for the kernel, even if some lie past the edge.
    down = -(-rows // (word if layout == "row" else 32)) * (word // 32 if layout == "row" else 1)
    whole = max(word, of_warp) if layout == "column" else of_warp
    across = -(-columns // whole) * (whole // of_warp)
    if columns % per_vector == 0 and source.pointer % 16 == 0 and down * across >= 8 * multiprocessors:
        return f"pack_{layout}_vector", down * across
    across = -(-columns // word) * (word // 32) if layout == "column" else -(-columns // 32)
    return f"pack_{layout}", down * across


def packing_ptx(element: str, word: Word, first: First, arch: tuple[int, int]) -> Ptx:
    """The packing kernels for one element type and word format, compiled."""
    size = {"WORD": word} if parts_of(word) else {f"WORD_{word}": ""}
    defines = {f"ELEMENT_{ELEMENTS[element]}": "", **size, f"FIRST_{first.upper()}": ""}
    return compile_file("bmm/pack.cu", defines, arch)


def numbers_of(x: PackedBits, word: Word) -> npt.NDArray[Any]:
    """Cut words on the host into numbers of ``word`` bits, (…, along, lines), in the order of elements."""
    words = np.ascontiguousarray(x.words, WORD_DTYPES[x.word].newbyteorder("<"))
    whole = words if parts_of(x.word) else words[..., None]
    numbers = whole.view(f"<u{word // 8}")[..., :: -1 if x.first == "msb" else 1]
    *outer, count, lines, each = numbers.shape
    return np.ascontiguousarray(numbers.swapaxes(-1, -2)).reshape(*outer, count * each, lines)


def matrix(x: Any, name: str, *, stacks: bool = False) -> Any:
    """Check a real matrix; a host array gets the native byte order, a device array stays as it is."""
    return signs(x, name, "a matrix (rows, columns)", partial(check_shape, stacks=stacks))


def check_shape(shape: tuple[int, ...], name: str, *, stacks: bool = False) -> None:
    """Refuse shapes that are not a matrix's, are empty, or are larger than kernels can count."""
    if len(shape) not in ((2, 3) if stacks else (2,)) or min(shape) < 1 or max(shape) > LARGEST:
        raise ShapeError(
            f"{name} has shape {shape}\na matrix with both dimensions from 1 to {LARGEST} is needed\n"
            "reshape it, multiply it in parts, or leave the call out where there is nothing to compute"
        )
