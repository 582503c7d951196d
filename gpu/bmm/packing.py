"""Packing real matrices into bits on a device (BSTC, section 4 and figure 4)."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu.bmm.operands import (
    ELEMENTS,
    choose_device,
    has_nan,
    matrix,
    name_first_nan,
    nan_flag,
    on_device,
    to_device,
)
from gpu.compile import Ptx, compile_file
from gpu.device import Array, Device
from reference.errors import NotANumberError, SchemeError
from reference.types import First, Layout, PackedBits, Word

WARPS_PER_BLOCK = 4
TILE = 32
"""A warp works on a tile of 32 x 32."""


def pack(
    x: Any,
    *,
    layout: Layout = "row",
    word: Word = 32,
    first: First = "msb",
    device: Device | None = None,
) -> PackedBits:
    """Binarize a real matrix and pack it, on a device. Answers the same as `reference.pack`.

    Parameters
    ----------
    x : (rows, columns) of float64, float32, float16 or int8
        A host array, or a device array (this device's, or any with a CUDA array interface or DLPack).
    layout, word, first
        The format; see `reference.types.PackedBits`. ``word`` is 32.
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
    check_format(layout, word, first)
    x = matrix(x, "x")
    device = choose_device(device, x)
    packed = pack_on_device(x, "x", layout, first, device)
    if on_device(x):
        return packed
    try:
        words = packed.words.download()
    except NotANumberError:
        if has_nan(x):
            raise name_first_nan(x, "x") from None
        raise  # it was another matrix, packed on this device before
    return PackedBits(words, packed.shape, layout, 32, first)


def pack_on_device(x: Any, name: str, layout: Layout, first: First, device: Device) -> PackedBits:
    """Pack a checked matrix; the words stay on the device.

    Examples
    --------
    >>> import simwarp
    >>> pack_on_device(np.ones((2, 3)), "x", "row", "msb", simwarp.Device()).words.download()
    array([[3221225472, 3221225472, 3221225472]], dtype=uint32)
    """
    source = to_device(x, name, device)
    rows, columns = source.shape
    down, across = -(-rows // TILE), -(-columns // TILE)
    shape = (across, rows) if layout == "column" else (down, columns)
    words: Array = device.allocate(shape, np.uint32, f"words of {name}")
    ptx = packing_ptx(np.dtype(source.dtype).name, first, device.compute_capability)
    kernel = device.load(ptx.text).kernel(f"pack_{layout}")
    blocks = -(-(down * across) // WARPS_PER_BLOCK)
    kernel(
        (blocks, 1, 1),
        (WARPS_PER_BLOCK * TILE, 1, 1),
        source,
        words,
        np.uint32(rows),
        np.uint32(columns),
        nan_flag(device),
    )
    return PackedBits(words, (rows, columns), layout, 32, first)


def packing_ptx(element: str, first: First, arch: tuple[int, int]) -> Ptx:
    """The packing kernels for one element type and bit order.

    Examples
    --------
    >>> packing_ptx("float32", "msb", (9, 0)).name
    'bmm/pack.cu -DELEMENT_FLOAT32 -DFIRST_MSB'
    """
    return compile_file(
        "bmm/pack.cu", {f"ELEMENT_{ELEMENTS[element]}": "", f"FIRST_{first.upper()}": ""}, arch
    )


def check_format(layout: str, word: int, first: str) -> None:
    """Refuse formats that do not exist, or that no kernel packs.

    Examples
    --------
    >>> check_format("row", 64, "msb")
    Traceback (most recent call last):
    ...
    reference.errors.SchemeError: word=64 is not packed on a device in this version; use word=32
    """
    for what, value, known in (("layout", layout, ("row", "column")), ("first", first, ("msb", "lsb"))):
        if value not in known:
            raise SchemeError(f"{what}={value!r} is unknown; choose {known[0]!r} or {known[1]!r}")
    if word != 32:
        raise SchemeError(f"word={word!r} is not packed on a device in this version; use word=32")
