"""Random copies through tensor maps: maps, coordinates, contents, and kernels for them.

A block makes one copy, through a map of its own: from its tensor to shared memory, or back. A row of the
table holds what the instruction needs beside the map.

>>> len(KERNELS), sum(kernel.copies for kernel in KERNELS)
(80, 21504)
>>> drawn(KERNELS[0], 0).tensor.rank
1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reference.devices.tensor_map import DATA_TYPES, FILLS, PROMOTIONS, SWIZZLES, Im2col, TensorMap, extent_of
from reference.errors import ShapeError
from simwarp.ptx.instructions.tensor_maps import REDUCTIONS
from simwarp.tensormaps import tile_bytes
from simwarp.verify.draw import Draw

SEED = 17
TOGETHER = 64
"""Copies in one launch."""
ROOM, TILE = 10 << 10, 8 << 10
"""Bytes of shared memory of a block, and the most that a tile spans."""
THREADS, CHUNK = 128, 16
_MOST = 32 << 10
"""About the most bytes of a tensor."""
_COLUMNS, _OFFSETS, _START, _BYTES, _DONE = 12, 5, 8, 9, 10
"""Of a row of the table: its size, and where the coordinates are followed by im2col offsets, the tile's
start, the bytes of a load, and the mark that the copy has completed."""
_FAR = (-(1 << 31), -(1 << 30), 1 << 30, (1 << 31) - 512)
_PLAIN = [name for name in DATA_TYPES if "_ftz" not in name and "tfloat" not in name]
_COUNTED = "mbarrier::complete_tx::bytes"

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Kernel:
    """An operation ("load", "store", or a reduction's), images or tiles, a rank, and how many copies."""

    operation: str
    images: bool
    rank: int
    copies: int

    @property
    def name(self) -> str:
        """The kernel's operation, mode and rank, such as "load im2col 4d"."""
        return f"{self.operation} {'im2col' if self.images else 'tile'} {self.rank}d"

    @property
    def types(self) -> list[str]:
        """The data types that tensor maps of this kernel may have."""
        kinds = REDUCTIONS.get(self.operation, "").split()
        return [name for name in _PLAIN if not kinds or DATA_TYPES[name][1] in kinds]


_LAUNCHES = {"load": 18, "store": 8}
KERNELS = tuple(
    Kernel(operation, images, rank, TOGETHER * _LAUNCHES.get(operation, 2))
    for operation in ("load", "store", *REDUCTIONS)
    for images in (False, True)
    for rank in range(3 if images else 1, 6)
)


class Copy(NamedTuple):
    """One tensor copy; ``memory`` and ``shared`` are the bytes of the tensor and shared memory before it."""

    tensor: TensorMap  # the map of a tensor at address 0
    coordinates: tuple[int, ...]
    offsets: tuple[int, ...]
    start: int  # offset of the tile in shared memory
    memory: Array
    shared: Array


def drawn(kernel: Kernel, number: int) -> Copy:
    """Random copy ``number`` of a kernel, always the same: map, coordinates and initial bytes."""
    draw = Draw(SEED, f"tensor maps, {kernel.name}", number)
    tensor = (_images if kernel.images else _tiled)(draw, kernel)
    tensor.check()
    coordinates, offsets = _place(draw, kernel, tensor)
    start = 128 * draw.integer(0, 7)
    size = -(-extent_of(tensor) // CHUNK) * CHUNK
    near = kernel.operation in REDUCTIONS and draw.integer(0, 1)
    memory, shared = (_contents(draw, n, tensor.data_type if near else "") for n in (size, ROOM))
    return Copy(tensor, coordinates, offsets, start, memory, shared)


def _contents(draw: Draw, size: int, kind: str) -> Array:
    """Random bytes; of "float32" and "bfloat16", numbers of like size, so that sums round."""
    words = draw.words(-(-size // 8)).astype("<u8")
    if kind == "float32":
        words = words & np.uint64(0x83FFFFFF_83FFFFFF) | np.uint64(0x3C000000_3C000000)
    if kind == "bfloat16":
        words = words & np.uint64(0x83FF83FF_83FF83FF) | np.uint64(0x3C003C00_3C003C00)
    return words.view(np.uint8)[:size]


# ---- maps ----------------------------------------------------------------------------------------------


def _tiled(draw: Draw, kernel: Kernel) -> TensorMap:
    """A tiled map: a box, and a tensor of about the same size."""
    kind, swizzle, inner = _row(draw, kernel)
    rows = TILE // (swizzle or inner * DATA_TYPES[kind][0])
    box, steps = [inner], [draw.choice((1, 1, 1, 8))]
    for _ in range(1, kernel.rank):
        step = draw.choice((1, 1, 1, draw.integer(2, 8)))
        count = draw.integer(1, min(rows, draw.choice((2, 4, 8, 256)), 256 // step))
        rows //= count
        box.append(count * step - draw.integer(0, step - 1))
        steps.append(step)
    shape, strides = _tensor(draw, kernel, kind, [n + draw.choice((0, 3, n)) for n in box])
    return TensorMap(kind, 0, shape, strides, tuple(box), tuple(steps), 0, swizzle, *_modes(draw, kind))


def _images(draw: Draw, kernel: Kernel) -> TensorMap:
    """An im2col map: images, and the corners between which a filter moves."""
    kind, swizzle, inner = _row(draw, kernel)
    pixels = draw.integer(
        1, min(draw.choice((8, 64, 1024)), TILE // (swizzle or inner * DATA_TYPES[kind][0]))
    )
    spatial = kernel.rank - 2
    largest = [2 * inner, *(draw.choice((3, 6, 12)) for _ in range(spatial)), 4]
    shape, strides = _tensor(draw, kernel, kind, largest)
    room = (-3, 2, -3, 3) if kernel.operation == "load" else (0, 2, -2, 0)
    lower, upper = list[int](), list[int]()
    for extent in shape[1:-1]:
        low, high = draw.integer(*room[:2]), draw.integer(*room[2:])
        fits = low <= extent - 1 + high
        lower.append(low if fits else 0)
        upper.append(high if fits else 0)
    steps = (1, *(draw.choice((1, 1, 2, draw.integer(1, 8))) for _ in range(spatial)), 1)
    box = Im2col(tuple(lower), tuple(upper), inner, pixels)
    return TensorMap(kind, 0, shape, strides, (), steps, 0, swizzle, *_modes(draw, kind), box)


def _row(draw: Draw, kernel: Kernel) -> tuple[str, int, int]:
    """A data type, a swizzle, and the elements of a row of the box."""
    kind, swizzle = draw.choice(kernel.types), draw.choice(SWIZZLES)
    chunks = draw.integer(1, (swizzle or 256) // CHUNK)
    return kind, swizzle, chunks * CHUNK // DATA_TYPES[kind][0]


def _tensor(
    draw: Draw, kernel: Kernel, kind: str, largest: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A shape, and strides with gaps, each a multiple of the one before."""
    shape = [draw.integer(-(-largest[0] // 2), largest[0])]
    stride = -(-shape[0] * DATA_TYPES[kind][0] // CHUNK) * CHUNK + CHUNK * draw.choice((0, 0, 1, 5))
    strides = list[int]()
    for extent in largest[1:]:
        strides.append(stride)
        most = max(1, min(extent, _MOST // stride))
        shape.append(draw.integer(-(-most // 2), most))
        stride *= shape[-1] + draw.choice((0, 0, 1, 2))
    return tuple(shape), tuple(strides)


def _modes(draw: Draw, kind: str) -> tuple[int, str]:
    """A random L2 promotion and a random fill of a tensor map."""
    return draw.choice(PROMOTIONS), draw.choice(FILLS) if "float" in kind else FILLS[0]


def _place(draw: Draw, kernel: Kernel, tensor: TensorMap) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Coordinates inside, across an edge or outside, and im2col offsets."""
    loads, unit = kernel.operation == "load", CHUNK // tensor.itemsize
    style = draw.integer(0, 2)
    extents = (tensor.inner, *(1 for _ in tensor.shape[1:])) if tensor.im2col else tensor.box
    found = list[int]()
    for i, (n, span) in enumerate(zip(tensor.shape, extents, strict=True)):
        low, high = (-span, n + 1) if style == 2 else (1 - span, n - 1)
        if style == 0:
            low, high = 0, max(0, n - span)
        at = draw.integer(low if loads else max(low, 0), max(high, 0))
        found.append(at // unit * unit if i == 0 else at)
    offsets: tuple[int, ...] = ()
    if tensor.im2col:
        box = tensor.im2col
        ends = zip(box.lower, box.upper, tensor.shape[1:-1], strict=True)
        found[1:-1] = [draw.integer(low, n - 1 + high) for low, high, n in ends]
        offsets = tuple(draw.integer(0, 4) for _ in box.lower) if loads else ()
    elif loads and draw.integer(0, 31) == 0:
        found[draw.integer(0, kernel.rank - 1)] = draw.choice(_FAR)
    return tuple(found), offsets


# ---- kernels -------------------------------------------------------------------------------------------


def module(kernel: Kernel) -> str:
    """PTX of ``copy(maps, table, shared, tiles)``: a block copies, and writes its shared memory to tiles."""
    coordinates = ", ".join(f"%c{i}" for i in range(kernel.rank))
    place, mode = f"[%map, {{{coordinates}}}]", "im2col" if kernel.images else "tile"
    if kernel.operation == "load":
        offsets = ", ".join(f"%h{i}" for i in range(kernel.rank - 2)) if kernel.images else ""
        suffix = f", {{{offsets}}}" * kernel.images
        opcode = f"cp.async.bulk.tensor.{kernel.rank}d.shared::cluster.global.{mode}.{_COUNTED}"
        issue = [
            "mbarrier.arrive.expect_tx.shared.b64 _, [bar], %bytes;",
            f"{opcode} [%tile], {place}, [bar]{suffix};",
            "WAIT:",
        ]
        wait = [
            "AGAIN: mbarrier.try_wait.parity.shared.b64 %done, [bar], 0; add.u32 %tries, %tries, 1;",
            "@%done bra ARRIVED; setp.lt.u32 %more, %tries, 100000; @%more bra AGAIN; bra MISSED;",
            f"ARRIVED: @%one st.global.b32 [%table+{4 * _DONE}], 1;",
        ]
    else:
        reduces = kernel.operation in REDUCTIONS
        words = f"{'im2col_no_offs' if kernel.images else mode}.bulk_group"
        what = f"cp.{'reduce.' * reduces}async.bulk.tensor.{kernel.rank}d.global.shared::cta"
        issue = [
            f"{what}{f'.{kernel.operation}' * reduces}.{words} {place}, [%tile];",
            "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
            f"st.global.b32 [%table+{4 * _DONE}], 1;",
            "WAIT:",
        ]
        wait = []
    return "\n".join([_HEAD, *issue, "bar.sync 0;", *wait, *_moved(to_tile=False), "MISSED: ret; }"])


def _moved(to_tile: bool) -> list[str]:
    """PTX lines that copy all of a block's shared memory to global memory, or back."""
    registers, lines = "{%w0, %w1, %w2, %w3}", list[str]()
    for at in range(0, ROOM, THREADS * CHUNK):
        if to_tile:
            lines += [
                f"ld.global.v4.b32 {registers}, [%shared+{at}];",
                f"st.shared.v4.b32 [%at+{at}], {registers};",
            ]
        else:
            lines += [
                f"ld.shared.v4.b32 {registers}, [%at+{at}];",
                f"st.global.v4.b32 [%tiles+{at}], {registers};",
            ]
    return lines


_HEAD = "\n".join(
    [
        ".version 8.7\n.target sm_90a\n.address_size 64",
        ".visible .entry copy(.param .u64 maps, .param .u64 table, .param .u64 shared, .param .u64 tiles) {",
        ".reg .b64 %map, %table, %shared, %tiles, %to; .reg .b16 %h<3>; .reg .pred %one, %done, %more;",
        ".reg .b32 %thread, %block, %tile, %at, %bytes, %tries, %number, %c<5>, %w<4>;",
        f".shared .align 1024 .b8 tile[{ROOM}]; .shared .align 8 .b64 bar;",
        "mov.u32 %thread, %tid.x; mov.u32 %block, %ctaid.x; mov.u32 %tries, 0; mov.u32 %tile, tile;",
        f"ld.param.u64 %table, [table]; mad.wide.u32 %table, %block, {4 * _COLUMNS}, %table;",
        "ld.param.u64 %map, [maps]; mad.wide.u32 %map, %block, 128, %map;",
        f"mul.lo.u32 %number, %block, {ROOM}; mad.lo.u32 %number, %thread, {CHUNK}, %number;",
        "cvt.u64.u32 %to, %number; ld.param.u64 %shared, [shared]; add.u64 %shared, %shared, %to;",
        "ld.param.u64 %tiles, [tiles]; add.u64 %tiles, %tiles, %to;",
        f"mad.lo.u32 %at, %thread, {CHUNK}, %tile; setp.eq.u32 %one, %thread, 0;",
        *_moved(to_tile=True),
        "@%one mbarrier.init.shared.b64 [bar], 1;",
        "fence.proxy.async; bar.sync 0; @!%one bra WAIT;",
        *(f"ld.global.b32 %c{i}, [%table+{4 * i}];" for i in range(5)),
        *(f"ld.global.u16 %h{i}, [%table+{4 * (_OFFSETS + i)}];" for i in range(3)),
        f"ld.global.b32 %number, [%table+{4 * _START}]; add.u32 %tile, %tile, %number;",
        f"ld.global.b32 %bytes, [%table+{4 * _BYTES}];",
        # Maps of earlier launches may have been at the same address.
        "fence.proxy.tensormap::generic.acquire.sys [%map], 128;",
    ]
)


def answers(device: Any, kernel: Kernel, copies: Sequence[Copy]) -> list[Array | str]:
    """The bytes after each copy, of shared memory by a load and of the tensor otherwise.

    A text stands for a map that the driver refuses, or a copy that did not complete.
    """
    arrays = [device.upload(copy.memory) for copy in copies]
    maps = [_map(device, array, copy.tensor) for array, copy in zip(arrays, copies, strict=True)]
    found: list[Array | str] = [one if isinstance(one, str) else "" for one in maps]
    which = [i for i, one in enumerate(maps) if not isinstance(one, str)]
    if which:
        encoded = b"".join(one for one in maps if not isinstance(one, str))
        shared = np.stack([copies[i].shared for i in which])
        given = (np.frombuffer(encoded, np.uint8), _table([copies[i] for i in which]), shared, shared)
        arguments = [device.upload(np.ascontiguousarray(one)) for one in given]
        device.load(module(kernel)).kernel("copy")((len(which), 1, 1), (THREADS, 1, 1), *arguments)
        tiles, done = arguments[3].download(), arguments[1].download()[:, _DONE]
        for row, i in enumerate(which):
            moved = tiles[row] if kernel.operation == "load" else arrays[i].download()
            found[i] = moved if done[row] else "the bytes of the copy were not counted as expected"
        arrays += arguments
    for array in arrays:
        array.free()
    return found


def _map(device: Any, array: Any, tensor: TensorMap) -> bytes | str:
    """A device's tensor map of an array, or the reason why the device refuses it."""
    box = tensor.im2col
    images = box and Im2col(box.lower[::-1], box.upper[::-1], box.channels, box.pixels)
    try:
        return device.tensor_map(
            array,
            tensor.box[::-1] or None,
            shape=tensor.shape[::-1],
            strides=tensor.strides[::-1],
            element_strides=tensor.element_strides[::-1],
            data_type=tensor.data_type,
            swizzle=tensor.swizzle,
            l2_promotion=tensor.l2_promotion,
            fill=tensor.fill,
            im2col=images,
        )
    except ShapeError as error:
        return str(error)


def _table(copies: Sequence[Copy]) -> npt.NDArray[np.int32]:
    """The operands of the instructions besides the maps: coordinates, offsets, start and bytes."""
    table = np.zeros((len(copies), _COLUMNS), np.int32)
    for row, copy in zip(table, copies, strict=True):
        row[: len(copy.coordinates)] = copy.coordinates
        row[_OFFSETS : _OFFSETS + len(copy.offsets)] = copy.offsets
        row[_START], row[_BYTES] = copy.start, tile_bytes(copy.tensor)[0]
    return table
