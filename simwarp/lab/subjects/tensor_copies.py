"""Compares random copies through tensor maps on a device with the simulator, byte for byte.

A *case* is one map and `COPIES` copies through it: loads of tiles or of images, stores, or reductions, whose
coordinates may lie outside. Tests replay some without a GPU.

>>> case = drawn(7)
>>> case.kind, len(case.shape), case.options["swizzle"], case.coordinates.shape
('load', 4, 64, (8, 4))
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from reference.types.tensor_map import DATA_TYPES, Im2col
from simwarp import tensormaps
from simwarp.device.device import Device
from simwarp.lab.crew import Lost, perform
from simwarp.lab.recording import Answers, Asking, Subject
from simwarp.verify.draw import Draw

SEED, COUNT, COPIES = 17, 2600, 8
TOGETHER = 26
"""Cases in one task."""
SCHEDULES = ("lowest pc", "stack", "random")
_THREADS, _MOST_TILE = 128, 12 << 10
_TYPES = tuple(name for name in DATA_TYPES if "ftz" not in name and "tf" not in name)
"""The data types whose copies change no bits."""
_REDUCTIONS = {
    **dict.fromkeys(("uint32", "uint64"), ("add", "min", "max", "and", "or", "xor")),
    **dict.fromkeys(("int32", "int64"), ("min", "max", "and", "or", "xor")),
}
"""By data type, the reductions that no order of copies changes."""
_NONE = bytes(16)
"""Stands for the digest of a case without an answer."""

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Case:
    """A map, and copies through it; dimensions as those of an array, outermost first.

    Attributes
    ----------
    kind : str
        "load", "images", "store", or the operation of a reduction.
    shape, strides : tuple of int
    options : dict
        What else `Device.tensor_map` takes.
    coordinates, offsets : (copies, rank), (copies, rank - 2) int32
        Those of the instructions, innermost first.
    """

    number: int
    kind: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    options: dict[str, Any]
    coordinates: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int32]

    @property
    def size(self) -> int:
        """The bytes of the tensor."""
        return self.shape[0] * self.strides[0] if self.strides else self.row

    @property
    def row(self) -> int:
        """The bytes of a row, to the next multiple of 16."""
        return -(-self.shape[-1] * DATA_TYPES[self.options["data_type"]][0] // 16) * 16

    @property
    def loads(self) -> bool:
        """Whether copies go to shared memory."""
        return self.kind in ("load", "images")


# ---- what is drawn ----------------------------------------------------------------------------------


def drawn(number: int) -> Case:
    """Case ``number`` of the seed."""
    draw = Draw(SEED, "tensor copies", number)
    kind, rank = (
        draw.choice(("load",) * 5 + ("images",) * 2 + ("store",) * 2 + ("reduce",)),
        draw.integer(1, 5),
    )
    name = draw.choice(tuple(_REDUCTIONS) if kind == "reduce" else _TYPES)
    if kind == "reduce":
        kind = draw.choice(_REDUCTIONS[name])
    if kind == "images":
        rank = max(rank, 3)
    item = DATA_TYPES[name][0]
    outer = {1: 1, 2: 40, 3: 12, 4: 6, 5: 4}[rank]
    shape = (*(draw.integer(1, outer) for _ in range(rank - 1)), draw.integer(1, 400 // item))
    strides = [-(-shape[-1] * item // 16) * 16 + 16 * draw.choice((0, 0, 1, 5))]
    for extent in shape[-2:0:-1]:
        strides.insert(0, strides[0] * extent + 16 * draw.choice((0, 0, 1, 3)))
    swizzle = draw.choice((0, 32, 64, 128))
    options: dict[str, Any] = {
        "data_type": name,
        "swizzle": swizzle,
        "l2_promotion": draw.choice((0, 64, 128, 256)),
    }
    if "float" in name and kind in ("load", "images"):
        options["fill"] = draw.choice(("zeros", "nan"))
    # The innermost 16 bytes, as many as the swizzle allows.
    inner = 16 // item * draw.integer(1, min((swizzle or 256) // 16, 256 * item // 16, 16))
    steps = [draw.choice((1, 1, 1, 2, 3, 8)) for _ in shape[:-1]] + [1]
    if draw.integer(0, 1):
        steps = [1] * rank
    options["element_strides"] = tuple(steps)
    if kind == "images":
        return _images(draw, number, shape, tuple(strides[: rank - 1]), options, inner)
    box = [*(draw.integer(1, min(outer + 3, 256)) for _ in shape[:-1]), inner]
    while prod(box[:-1]) * max(swizzle, inner * item) > _MOST_TILE:
        box = [max(1, n // 2) for n in box[:-1]] + [inner]
    options["box"] = tuple(box)
    least = [0 if kind not in ("load",) else -n - 1 for n in box]
    columns = [[draw.integer(low, n + 1) for low, n in zip(least, shape, strict=True)] for _ in range(COPIES)]
    coordinates = _aligned(np.array(columns, np.int32), item)
    return Case(number, kind, shape, tuple(strides[: rank - 1]), options, coordinates, coordinates[:, :0])


def _images(
    draw: Draw,
    number: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    options: dict[str, Any],
    inner: int,
) -> Case:
    """Loads of the pixels that a filter meets."""
    item, spatial = DATA_TYPES[options["data_type"]][0], shape[1:-1]
    options["element_strides"] = (1, *options["element_strides"][1:])  # of images: no document tells
    lower = [draw.integer(-3, 2) for _ in spatial]
    upper = [max(draw.integer(-3, 2), low - n + 1) for n, low in zip(spatial, lower, strict=True)]
    pixels = draw.integer(1, min(80, _MOST_TILE // max(options["swizzle"], inner * item)))
    options["im2col"] = Im2col(tuple(lower), tuple(upper), inner, pixels)
    columns: list[list[int]] = []
    for _ in range(COPIES):
        at = [draw.integer(low, n - 1 + high) for n, low, high in zip(spatial, lower, upper, strict=True)]
        columns.append([draw.integer(-1, shape[0]), *at, draw.integer(-inner, shape[-1])])
    offsets = np.array([[draw.integer(0, 4) for _ in spatial] for _ in range(COPIES)], np.int32)
    coordinates = _aligned(np.array(columns, np.int32), item)
    return Case(number, "images", shape, strides, options, coordinates, offsets)


def _aligned(coordinates: npt.NDArray[np.int32], item: int) -> npt.NDArray[np.int32]:
    """Coordinates innermost first, the innermost at a multiple of 16 bytes."""
    found = coordinates[:, ::-1].copy()
    found[:, 0] = found[:, 0] // (16 // item) * (16 // item)
    return found


# ---- the kernels --------------------------------------------------------------------------------------


def kernel(kind: str, rank: int) -> str:
    """PTX of ``copy(map, tiles, coordinates, offsets, bytes, span)``: each block makes one copy."""
    at = ", ".join(f"%c{i}" for i in range(rank))
    spatial = rank - 2 if kind == "images" else 0
    lines = [
        ".version 8.7\n.target sm_90\n.address_size 64",
        ".visible .entry copy(.param .align 64 .b8 map[128], .param .u64 tiles, .param .u64 coordinates,",
        ".param .u64 offsets, .param .u32 bytes, .param .u32 span, .param .u32 first) {",
        ".reg .b64 %map, %global, %from; .reg .b32 %t, %block, %i, %w, %span, %bytes, %tile, %at, %c<5>;",
        ".reg .b16 %h<3>; .reg .pred %one, %done, %came;",
        f".shared .align 1024 .b8 tile[{_MOST_TILE + 256}]; .shared .align 8 .b64 bar;",
        "mov.u32 %t, %tid.x; mov.u32 %block, %ctaid.x; mov.u32 %tile, tile; setp.eq.u32 %one, %t, 0;",
        "ld.param.u32 %i, [first]; add.u32 %block, %block, %i;",
        "mov.b64 %map, map; cvta.param.u64 %map, %map;",
        "ld.param.u32 %span, [span]; ld.param.u32 %bytes, [bytes];",
        "ld.param.u64 %global, [tiles]; mad.wide.u32 %global, %block, %span, %global;",
        f"ld.param.u64 %from, [coordinates]; mad.wide.u32 %from, %block, {4 * rank}, %from;",
        *(f"ld.global.b32 %c{i}, [%from+{4 * i}];" for i in range(rank)),
    ]
    if spatial:
        lines.append(f"ld.param.u64 %from, [offsets]; mad.wide.u32 %from, %block, {4 * spatial}, %from;")
        lines += [f"ld.global.b32 %w, [%from+{4 * i}]; cvt.u16.u32 %h{i}, %w;" for i in range(spatial)]
    lines.append("@%one mbarrier.init.shared.b64 [bar], 1;")
    if kind in ("load", "images"):
        mode, more = ".tile", ""
        if spatial:
            mode, more = ".im2col", f", {{{', '.join(f'%h{i}' for i in range(spatial))}}}"
        opcode = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global{mode}.mbarrier::complete_tx::bytes"
        lines += [
            *_each_word("CLEAR", "st.shared.b32 [%at], 0;"),
            "fence.proxy.async; bar.sync 0;",
            "@%one mbarrier.arrive.expect_tx.shared.b64 _, [bar], %bytes;",
            f"@%one {opcode} [%tile], [%map, {{{at}}}], [bar]{more};",
            "mov.u32 %i, 0;",
            "AGAIN: mbarrier.try_wait.parity.shared.b64 %came, [bar], 0; add.u32 %i, %i, 1;",
            "setp.lt.u32 %done, %i, 20000; @%came bra ARRIVED; @%done bra AGAIN;",
            "ARRIVED: bar.sync 0;",
            *_each_word("DUMP", "ld.shared.b32 %w, [%at]; st.global.b32 [%from], %w;"),
        ]
    else:
        word, operation = ("cp.async.bulk", "") if kind == "store" else ("cp.reduce.async.bulk", f".{kind}")
        lines += [
            *_each_word("FILL", "ld.global.b32 %w, [%from]; st.shared.b32 [%at], %w;"),
            "fence.proxy.async; bar.sync 0;",
            f"@%one {word}.tensor.{rank}d.global.shared::cta{operation}.tile.bulk_group "
            f"[%map, {{{at}}}], [%tile];",
            "@%one cp.async.bulk.commit_group; @%one cp.async.bulk.wait_group 0; bar.sync 0;",
        ]
    return "\n".join([*lines, "ret; }", ""])


def _each_word(label: str, line: str) -> list[str]:
    """A loop over the words of the tile, at ``%at`` in shared memory and ``%from`` in global memory."""
    return [
        "shl.b32 %i, %t, 2;",
        f"{label}: setp.ge.u32 %done, %i, %span; @%done bra {label}_DONE;",
        "add.u32 %at, %tile, %i; cvt.u64.u32 %from, %i; add.u64 %from, %from, %global;",
        line,
        f"add.u32 %i, %i, {4 * _THREADS}; bra {label};",
        f"{label}_DONE:",
    ]


def answer(device: Any, case: Case) -> Bytes:
    """The tiles that copies load, or the tensor behind its copies."""
    bits = Draw(SEED, "tensors", case.number)
    tensor = device.upload(_octets(bits, case.size))
    tensor_map = device.tensor_map(tensor, shape=case.shape, strides=case.strides, **case.options)
    size, span = _extent(case)
    tiles = np.zeros((COPIES, span), np.uint8)
    if not case.loads:
        tiles = _octets(bits, tiles.size).reshape(tiles.shape)
    held = device.upload(tiles)
    coordinates = device.upload(case.coordinates)
    offsets = device.upload(case.offsets if case.offsets.size else np.zeros(1, np.int32))
    run = device.load(kernel(case.kind, len(case.shape))).kernel("copy")
    # Stores that overlap go one by one; what is left of reductions does not depend on their order.
    turns = [(1, first) for first in range(COPIES)] if case.kind == "store" else [(COPIES, 0)]
    for count, first in turns:
        run((count, 1, 1), (_THREADS, 1, 1), tensor_map, held, coordinates, offsets, size, span, first)
    found: Bytes = (held if case.loads else tensor).download()
    for array in (tensor, held, coordinates, offsets):
        array.free()
    return found


def _extent(case: Case) -> tuple[int, int]:
    """The bytes of a copy, and those of a tile and what is behind it, which a copy must leave alone."""
    device = _simulator(case)
    array = device.upload(np.zeros(case.size, np.uint8))
    tensor = device.tensor_map(array, shape=case.shape, strides=case.strides, **case.options)
    size, span = tensormaps.tile_bytes(tensormaps.decode(tensor))
    return size, -(-span // 128) * 128 + 128


def _simulator(case: Case) -> Device:
    return Device(schedule=SCHEDULES[case.number % len(SCHEDULES)])


def _octets(draw: Draw, count: int) -> Bytes:
    return draw.words(-(-count // 8)).astype("<u8").view(np.uint8)[:count].copy()


# ---- the campaign -------------------------------------------------------------------------------------


def simulated(case: Case) -> Bytes:
    """The simulator's answer, under the schedule whose turn it is."""
    return answer(_simulator(case), case)


def digest(found: Bytes) -> bytes:
    """The first 16 bytes of the SHA-256 of an answer."""
    return hashlib.sha256(found.tobytes()).digest()[: len(_NONE)]


def question(case: Case) -> bytes:
    """The SHA-256 of a case and its kernel."""
    words = (
        case.shape,
        case.strides,
        sorted(case.options.items()),
        case.coordinates.tolist(),
        case.offsets.tolist(),
    )
    return hashlib.sha256(f"{kernel(case.kind, len(case.shape))}{words}".encode()).digest()


def compare(chip: Any, numbers: Sequence[int]) -> tuple[list[tuple[bytes, bytes]], Counter[str], list[str]]:
    """Compare cases: digests of questions and answers, what was counted, and differences."""
    rows, counts, differences = list[tuple[bytes, bytes]](), Counter[str](), list[str]()
    for case in map(drawn, numbers):
        found, right = answer(chip, case), simulated(case)
        rows.append((question(case), digest(found)))
        kind = case.kind if case.loads or case.kind == "store" else "reduction"
        counts.update(
            {f"{kind}, {len(case.shape)} dimensions": COPIES, f"swizzle {case.options['swizzle']}": COPIES}
        )
        bad = np.flatnonzero((found != right).reshape(-1))
        if bad.size:
            at = int(bad[0])
            differences.append(
                f"case {case.number}: {bad.size} bytes differ; byte {at}: chip {found.flat[at]:#x}, "
                f"simulator {right.flat[at]:#x}\n{case}"
            )
    return rows, counts, differences


def ask(asking: Asking) -> Answers:
    """Compare the first cases of the seed, in parallel processes."""
    count = asking.number(COUNT, 12)
    batches: list[Sequence[int]] = [
        range(first, min(first + TOGETHER, count)) for first in range(0, count, TOGETHER)
    ]
    rows, counts = dict[int, tuple[bytes, bytes]](), Counter[str]()
    differences, lost = list[str](), list[str]()

    def perform_all(parts: Sequence[Sequence[int]]) -> list[int]:
        """Compare cases; returns those of the parts that were lost."""
        again: list[int] = []
        found = perform(asking.make, compare, [(part,) for part in parts], asking.processes)
        for part, one in zip(asking.each(parts), found, strict=True):
            if isinstance(one, Lost):
                again += part
                lost.append(f"{drawn(part[0])}: no answer\n{one.reason}")
                continue
            rows.update(zip(part, one[0], strict=True))
            counts.update(one[1])
            differences.extend(one[2])
        return again

    if alone := perform_all(batches):
        lost.clear()
        perform_all([[number] for number in alone])
    questions = [rows[k][0] if k in rows else question(drawn(k)) for k in range(count)]
    digests = [rows[k][1] if k in rows else _NONE for k in range(count)]
    arrays = {
        name: np.frombuffer(b"".join(parts), np.uint8).reshape(count, -1)
        for name, parts in (("questions", [one[:4] for one in questions]), ("digests", digests))
    }
    facts = {"seed": SEED, "cases": count, "copies": COPIES * len(rows), "mismatches": len(differences)}
    ptx = {"questions": hashlib.sha256(b"".join(questions)).hexdigest()}
    facts_of_kinds = {"lost": len(lost), "kinds": dict(sorted(counts.items()))}
    return Answers(facts | facts_of_kinds, arrays, ptx, [*lost, *differences])


SUBJECTS = [Subject("tensor-copies", "20,800 random copies through tensor maps, by digest", ask)]
