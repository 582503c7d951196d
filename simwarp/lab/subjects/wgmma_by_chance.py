"""Random products of warpgroups: their operands, their layouts in shared memory, and kernels for them.

A block multiplies one tile, 64 x n x k, by one instruction. It copies A and B to shared memory in chunks of
16 bytes, to places that the host computes from a random descriptor; A may be in registers instead.

>>> form = Form("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16")
>>> len(form.variants), form.types, form.size
(6, {'a': 'f16', 'b': 'f16', 'c': 'f32'}, 17408)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simwarp.fragments import Layout, fragments_of
from simwarp.fragments.descriptors import CHUNK, Descriptors, descriptor
from simwarp.fragments.swizzles import SWIZZLES
from simwarp.lab.evidence.styles import styles_of
from simwarp.verify.draw import Draw

LANES, ROWS, K_BYTES = 128, 64, 32
_ROOM_OF_A = 10 << 10
_SPARE = 6 << 10
LAYOUTS = 31
"""Layouts in a chunk of tiles; prime to the numbers of styles, so that each style meets each layout."""
_TRIES = 20

Array = npt.NDArray[Any]


class Variant(NamedTuple):
    """The choices of an instruction besides its opcode: A in shared memory or registers, majors, signs."""

    shared: bool
    k_major: tuple[bool, bool]
    signs: tuple[int, int]

    def __str__(self) -> str:
        majors = " and ".join("K" if major else "MN" for major in self.k_major)
        return f"A in {'shared memory' if self.shared else 'registers'}, {majors}-major, signs {self.signs}"


@dataclass(frozen=True)
class Form:
    """A ``wgmma`` opcode with its types, shapes and variants."""

    opcode: str

    @cached_property
    def types(self) -> dict[str, str]:
        """The types of A, B and C, as in the opcode."""
        words, d = self.opcode.split("."), fragments_of(self.opcode).operands["d"].type
        at = words.index(d)
        return {"a": words[at + 1], "b": words[at + 2], "c": d}

    @cached_property
    def n(self) -> int:
        """The number of columns of B."""
        return fragments_of(self.opcode).shape.n

    @cached_property
    def layouts(self) -> dict[str, Layout]:
        """The layouts of the accumulators, and of A in registers; bits are packed in 32-bit words."""
        operands = fragments_of(self.opcode).operands
        a = operands["a"].layout
        return {"d": operands["d"].layout, "a": a.words() if self.types["a"] == "b1" else a}

    @cached_property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """The shapes of A and C, and of B's columns, in words."""
        k = self.layouts["a"].columns
        return {"a": (ROWS, k), "b": (self.n, k), "c": (ROWS, self.n)}

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """All variants of a form: A in shared memory and in registers, all majors; signs depend on n."""
        halves = self.types["a"] in ("f16", "bf16")
        whole = self.types["c"] == "s32"
        majors = [(True, True)] if whole else [(True, True)] * 2
        if halves:
            majors = [(a, b) for a in (True, False) for b in (True, False)]
        places = [(True, major) for major in majors]
        places += [(False, major) for major in majors if major[0]]
        signs = [(1, 1)] if whole else [(a, b) for a in (1, -1) for b in (1, -1)]
        return tuple(
            Variant(*place, signs[(self.n // 8 + number) % len(signs)]) for number, place in enumerate(places)
        )

    @property
    def size(self) -> int:
        """The bytes of shared memory that a block needs."""
        return _ROOM_OF_A + self.n * SWIZZLES[-1] + _SPARE


class Tiles(NamedTuple):
    """Operand tiles, descriptors and scale-d flags of some blocks, one ``wgmma`` each."""

    words: dict[str, Array]  # rows of A (blocks, 64, k), columns of B (blocks, n, k), and C (blocks, 64, n)
    descriptors: Array  # descriptors of A and B, (blocks, 2) uint64, for shared memory that begins at 0
    places: Array  # addresses of the chunks of A and B, (blocks, 128 + 2 n) uint32
    keeps: Array  # (blocks,) bool: whether C is added

    def some(self, which: Array) -> Tiles:
        """The tiles of the blocks that an index array or mask selects."""
        words = {name: word[which] for name, word in self.words.items()}
        return Tiles(words, self.descriptors[which], self.places[which], self.keeps[which])


def drawn(form: Form, variant: Variant, draw: Draw, each: int) -> Tiles:
    """Random operand tiles for a variant, ``each`` of every style in turn."""
    kinds = {name: "b32" if kind == "b1" else kind for name, kind in form.types.items()}
    styles = styles_of(kinds["a"])
    words: dict[str, Array] = {}
    for name, shape in form.shapes.items():
        word = np.dtype("u2" if kinds[name] == "f16" else "u4") if name == "c" else _word(form)
        count = each * int(np.prod(shape))
        made = [style(draw, name, kinds[name], count).astype(word) for style in styles]
        words[name] = np.stack([one.reshape(each, *shape) for one in made], axis=1).reshape(-1, *shape)
    laid = [_laid_out(form, variant, draw, number) for number in range(LAYOUTS)]
    which = np.arange(each * len(styles)) % LAYOUTS
    descriptors, places = (np.array([one[i] for one in laid])[which] for i in range(2))
    return Tiles(words, descriptors, places, draw.words(len(which)) % np.uint64(4) != 0)


def _word(form: Form) -> np.dtype[Any]:
    """The unsigned integer type that holds an element of A or B."""
    return np.dtype(f"u{form.layouts['a'].bits // 8}")


# ---- layouts in shared memory -----------------------------------------------------------------------


def _laid_out(form: Form, variant: Variant, draw: Draw, number: int) -> tuple[Array, Array]:
    """A random layout: the descriptors of A and B, and the addresses of their chunks."""
    rooms = [_ROOM_OF_A, form.size - _ROOM_OF_A]
    starts = (0, rooms[0]) if draw.integer(0, 1) else (rooms[1], 0)
    spans = SWIZZLES[number % 4], SWIZZLES[number // 4 % 4]
    parts = [
        _placed(draw, extent, major, span, start, start + room)
        for extent, major, span, start, room in zip(
            (ROWS, form.n), variant.k_major, spans, starts, rooms, strict=True
        )
    ]
    words, places = zip(*parts, strict=True)
    return np.array(words, np.uint64), np.concatenate(places).astype(np.uint32)


def _placed(
    draw: Draw, extent: int, k_major: bool, span: int, start: int, end: int
) -> tuple[int, npt.NDArray[np.uint64]]:
    """A matrix between two addresses: a random descriptor, and the addresses of its chunks."""
    for gaps in (*[True] * _TRIES, False):
        word = (_k_major if k_major else _mn_major)(draw, extent, span, start, gaps)
        along = K_BYTES // CHUNK if k_major else K_BYTES // 2
        at = Descriptors.of(np.array([word], np.uint64)).chunks(extent, along, k_major).ravel()
        if int(at.max()) + CHUNK <= end and len(np.unique(at)) == len(at):
            break
    else:
        raise AssertionError("a matrix without gaps has room")
    return word, at


def _k_major(draw: Draw, extent: int, span: int, start: int, gaps: bool) -> int:
    """A descriptor of rows along k; with a swizzle, of one 32-byte slice of the swizzle's span."""
    if not span:
        return _plain(draw, extent, start, gaps)
    stride = 8 * span * (draw.integer(1, 3) if gaps else 1)
    begin = start + K_BYTES * draw.integer(0, span // K_BYTES - 1)
    first = begin + 8 * span * (draw.integer(0, 3) if gaps else 0)
    unused = CHUNK * draw.choice((0, 1, 8, 77))
    return descriptor(first, unused, stride, span)


def _mn_major(draw: Draw, extent: int, span: int, start: int, gaps: bool) -> int:
    """A random descriptor of an MN-major operand."""
    if not span:
        return _plain(draw, extent, start, gaps)
    core, many = 8 * span, -(-2 * extent // span)
    extra = core * draw.integer(0, 2) if gaps else 0
    if draw.integer(0, 1):
        return descriptor(start + extra, 2 * core, core, span)
    return descriptor(start, core, many * core + extra, span)


def _plain(draw: Draw, extent: int, start: int, gaps: bool) -> int:
    """A descriptor without a swizzle: core matrices of 128 bytes, two along k."""
    core, gap = 8 * CHUNK, (CHUNK * draw.integer(0, 5) if gaps else 0)
    start += CHUNK * draw.integer(0, 9) if gaps else 0
    if draw.integer(0, 1):
        return descriptor(start, core + gap, 2 * (core + gap) + gap)
    return descriptor(start, extent // 8 * (core + gap), core + gap)


# ---- kernels -------------------------------------------------------------------------------------------


def module(form: Form) -> str:
    """PTX with one kernel ``variant<number>`` for each variant of a form."""
    kernels = [_kernel(form, variant, f"variant{number}") for number, variant in enumerate(form.variants)]
    return "\n".join([".version 8.7\n.target sm_90a\n.address_size 64", *kernels])


def _kernel(form: Form, variant: Variant, name: str) -> str:
    """A kernel (a, b, d, places, descriptors, keeps): a block multiplies a tile, and adds to d."""
    count, chunks = form.layouts["d"].registers, 2 * form.n
    vector = 4 if count % 4 == 0 else 2
    parts = [
        (f"{{{', '.join(f'%d{i + j}' for j in range(vector))}}}", f"[%sums+{4 * i}]")
        for i in range(0, count, vector)
    ]
    parameters = ", ".join(f".param .u64 {p}" for p in ("a", "b", "d", "places", "descriptors", "keeps"))
    row = 4 * (LANES + chunks)
    lines = [
        f".visible .entry {name}({parameters}) {{",
        f".reg .b32 %d<{count}>, %w<4>, %thread, %block, %at, %tiles, %chunk; .reg .pred %more, %some;",
        ".reg .b64 %from, %sums, %to, %left, %right, %begin;",
        f".shared .align 1024 .b8 tiles[{form.size}];",
        "mov.u32 %thread, %tid.x; mov.u32 %block, %ctaid.x; mov.u32 %tiles, tiles;",
        f"ld.param.u64 %to, [places]; mad.wide.u32 %to, %block, {row}, %to;",
        "mad.wide.u32 %to, %thread, 4, %to;",
        f"ld.param.u64 %from, [b]; mad.lo.u32 %chunk, %block, {chunks}, %thread;",
        "mad.wide.u32 %from, %chunk, 16, %from;",
    ]
    for first in range(0, chunks, LANES):
        guard = ""
        if chunks - first < LANES:
            guard = "@%some "
            lines.append(f"setp.lt.u32 %some, %thread, {chunks - first};")
        lines += _chunk_to_shared("%from", CHUNK * first, LANES + first, guard)
    lines += [
        f"mad.lo.u32 %chunk, %block, {LANES}, %thread; ld.param.u64 %from, [a];",
        "mad.wide.u32 %from, %chunk, 16, %from;",
        *(_chunk_to_shared("%from", 0, 0, "") if variant.shared else [_load("%from", 0, "")]),
        "fence.proxy.async; bar.sync 0;",
        "ld.param.u64 %from, [descriptors]; mad.wide.u32 %from, %block, 16, %from;",
        "ld.global.b64 %left, [%from]; ld.global.b64 %right, [%from+8];",
        "cvt.u64.u32 %begin, %tiles; shr.u64 %begin, %begin, 4;",
        "add.u64 %left, %left, %begin; add.u64 %right, %right, %begin;",
        "ld.param.u64 %from, [keeps]; mad.wide.u32 %from, %block, 4, %from;",
        "ld.global.b32 %at, [%from]; setp.ne.u32 %more, %at, 0;",
        f"ld.param.u64 %sums, [d]; mad.wide.u32 %sums, %chunk, {4 * count}, %sums;",
        *(f"ld.global.v{vector}.b32 {registers}, {place};" for registers, place in parts),
        "wgmma.fence.sync.aligned;",
        _product(form, variant),
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
        *(f"st.global.v{vector}.b32 {place}, {registers};" for registers, place in parts),
        "ret; }",
    ]
    return "\n".join(lines)


def _load(source: str, offset: int, guard: str) -> str:
    return f"{guard}ld.global.v4.b32 {{%w0, %w1, %w2, %w3}}, [{source}+{offset}];"


def _chunk_to_shared(source: str, offset: int, number: int, guard: str) -> list[str]:
    """PTX lines that copy a chunk to the shared address in the kernel's table."""
    return [
        _load(source, offset, guard),
        f"{guard}ld.global.b32 %at, [%to+{4 * number}]; {guard}add.u32 %at, %at, %tiles;",
        f"{guard}st.shared.v4.b32 [%at], {{%w0, %w1, %w2, %w3}};",
    ]


def _product(form: Form, variant: Variant) -> str:
    """The PTX of the ``wgmma`` instruction for a variant."""
    count = form.layouts["d"].registers
    immediates: list[int] = [] if form.types["c"] == "s32" else [*variant.signs]
    if form.types["a"] in ("f16", "bf16"):
        immediates += [int(not major) for major in variant.k_major[0 if variant.shared else 1 :]]
    left = "%left" if variant.shared else "{%w0, %w1, %w2, %w3}"
    accumulators = ", ".join(f"%d{i}" for i in range(count))
    return f"{form.opcode} {{{accumulators}}}, {left}, %right, {', '.join(map(str, ['%more', *immediates]))};"


def answers(device: Any, form: Form, number: int, tiles: Tiles) -> Array:
    """Multiply tiles by variant ``number`` on a device; the accumulators, (blocks, 128, registers)."""
    variant, words = form.variants[number], tiles.words
    left = _chunks(words["a"], variant.k_major[0]) if variant.shared else form.layouts["a"].pack(words["a"])
    operands = (
        left,
        _chunks(words["b"], variant.k_major[1]),
        form.layouts["d"].pack(words["c"]),
        tiles.places,
        tiles.descriptors,
        tiles.keeps.astype(np.uint32),
    )
    arrays = [device.upload(np.ascontiguousarray(one)) for one in operands]
    device.load(module(form)).kernel(f"variant{number}")((len(left), 1, 1), (LANES, 1, 1), *arrays)
    sums: Array = arrays[2].download()
    for array in arrays:
        array.free()
    return sums


def _chunks(words: Array, k_major: bool) -> Array:
    """The bytes of matrices, chunk by chunk in the order of `Descriptors.chunks`."""
    if not k_major:
        blocks, extent, k = words.shape
        words = words.reshape(blocks, extent // 8, 8, k).swapaxes(-1, -2)
    return np.ascontiguousarray(words).view(np.uint8).reshape(len(words), -1)
