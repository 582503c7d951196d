"""The scheme of the ±1 product for the warpgroups of Hopper: its tiles, and the plan of its launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from gpu.bmm.skinny import COMMON
from gpu.chips import CHIPS
from gpu.compile import Ptx, compile_file
from gpu.device import LaunchPlan
from reference.devices.tensor_map import TensorMap
from reference.errors import SchemeError, ShapeError
from reference.types import First, Word

SPAN = 128
"""Bytes of a line in a step along k, and of a row of a box."""
_UNIT = 16
"""Bytes of which a line is a multiple."""
_WARPGROUP, _BOX_ROWS, _SIGNAL, _BANKS = 128, 16, 8, 8
OPTIONS = ("--gpu-architecture=compute_90a",)
"""Of the compiler: instructions of sm_90a alone."""


@dataclass(frozen=True)
class Tile:
    """How a block computes a tile of C.

    Attributes
    ----------
    rows, columns : int
    consumers : int
        The warpgroups that multiply.
    stages : int
        Steps along k, of 1024 bits, in shared memory.
    boxes : int
        Boxes of C of each warp in shared memory.
    teams : int
        Teams of warpgroups that take turns at tiles; the warpgroups of one share the rows of a tile.
    measured : int
        Clocks of a step, on an H200; 0 for the estimate of `step`.
    """

    rows: int
    columns: int
    consumers: int
    stages: int
    boxes: int = 0
    teams: int = 1
    measured: int = 0

    @property
    def step(self) -> float:
        """Clocks of one k step, as measured, or else the longer of its products' and its copies' time."""
        area, edge = self.rows * self.columns, self.rows + self.columns
        return self.measured or max(area * 8 * SPAN / _PRODUCT, edge * SPAN / _COPY)

    def clocks(self, count: int, steps: int, output: str) -> float:
        """An estimate for a block that computes so many tiles. Behind products, outputs leave for nothing."""
        products, leaving = steps * self.step, self.rows * self.columns * _STORE[output]
        if self.teams == 1:
            return count * (products + leaving / self.consumers)
        return count * max(products, (products + leaving) / 2) + leaving

    @property
    def threads(self) -> int:
        """The threads of a block: one more warpgroup serves."""
        return (self.consumers + 1) * _WARPGROUP

    @property
    def registers(self) -> bool:
        """True if the multiplying warpgroups need registers released by the producer warpgroup."""
        return self.teams > 1 or self.rows // self.consumers * self.columns // _WARPGROUP > 128

    def macros(self, output: str, *, boxes: bool, group: int) -> dict[str, str | int]:
        """The macros of ``warpgroup_tile.cuh``; ``boxes`` if C has a tensor map."""
        return {
            "ROWS": self.rows,
            "COLUMNS": self.columns,
            "STAGES": self.stages,
            "CONSUMERS": self.consumers,
            "TEAMS": self.teams,
            "GROUP": group,
            f"OUTPUT_{output.upper()}": "",
            **({} if output in BITS else {"BOXES": self.boxes if boxes else 0}),
            **({"SETMAXNREG": ""} if self.registers else {}),
        }

    def shared(self, output: str, *, scaled: bool = False, tables: int = 1, own_columns: bool = False) -> int:
        """The bytes of shared memory of a block; `Shared` in ``warpgroup_tile.cuh``."""
        return (
            self.stages * ((self.rows + self.columns) * SPAN + 2 * _SIGNAL)
            + self.boxes_of_warps
            + self.teams * _SIGNAL
            + 2 * (self.note(output, scaled=scaled, tables=tables, own_columns=own_columns) + 2 * _SIGNAL)
        )

    def note(self, output: str, *, scaled: bool = False, tables: int = 1, own_columns: bool = False) -> int:
        """The bytes in shared memory of the kernel's struct ``Notes``."""
        of_columns = self.columns // 32 if output in BITS else self.columns * scaled
        of_columns += self.columns if tables == 1 else tables * (self.columns + _BANKS) + self.rows
        return 4 * (2 + self.rows + of_columns) + 8 * self.rows * own_columns

    @property
    def boxes_of_warps(self) -> int:
        """The bytes in shared memory of all warps' output boxes."""
        return self.consumers * 4 * self.boxes * _BOX_ROWS * SPAN


LARGEST_BITS = 2**24 - 1
"""The longest dot product whose difference from a threshold fits 26 bits, with its sign."""

MOST_SHARED = 227 * 1024
"""Bytes of shared memory of a block."""

BITS = ("words", "lines")
"""The outputs that are bits."""
_FOR_BITS = (Tile(128, 192, 2, 5, 0, 2, 880), Tile(128, 128, 2, 6, 0, 2, 600), Tile(64, 128, 1, 6))
_FOR_HALVES = (Tile(128, 192, 2, 4, 3, 2, 880), Tile(128, 128, 2, 5, 2, 2, 600), Tile(64, 64, 1, 6, 1))
_FOR_WORDS = (Tile(128, 192, 2, 4, 2, 2, 880), Tile(128, 128, 2, 5, 2, 2, 600), Tile(64, 64, 1, 6, 2))
TILES: dict[str, tuple[Tile, ...]] = {
    "words": _FOR_BITS,
    "lines": _FOR_BITS,
    "int16": _FOR_HALVES,
    "float16": _FOR_HALVES,
    "int32": _FOR_WORDS,
    "float32": _FOR_WORDS,
}
"""The tiles of each kind of output, the largest first."""

_LEAST_SHARE = 4
"""Steps of the smallest share of k."""

_PRODUCT, _COPY = 32768, 54
"""Bits that a multiprocessor multiplies in a clock, and bytes that it receives."""
_STORE = {"words": 0.12, "lines": 0.12, "int16": 0.41, "float16": 0.41, "int32": 0.52, "float32": 0.52}
"""Clocks of a warpgroup for each output, from sums to memory."""


def fastest(
    tiles: tuple[Tile, ...],
    sizes: tuple[int, int],
    steps: int,
    output: str,
    multiprocessors: int,
    clocks: Callable[[Tile, int, int, str], float] = Tile.clocks,
    matrices: int = 1,
) -> Tile:
    """The tile with the least estimated time, for outputs of (m, n) by so many steps along k."""

    def of_block(tile: Tile) -> tuple[float, int]:
        count = matrices * -(-sizes[0] // tile.rows) * -(-sizes[1] // tile.columns)
        return clocks(tile, -(-count // multiprocessors), steps, output), tile.columns

    return min(tiles, key=of_block)


@dataclass(frozen=True)
class WarpgroupScheme:
    """The product on the tensor cores of sm_90a, which warpgroups feed from shared memory.

    Attributes
    ----------
    name : str
        The name of the kernel: that of the instruction.
    group : int
        Tiles that follow one another down the rows before the next column of tiles.
    """

    name: str = "wgmma"
    group: int = 4
    summary: str = "a warpgroup for 64 rows of a tile; lines through tensor maps"

    source: ClassVar = "bmm/wgmma.cu"
    form: ClassVar[Literal["lines"]] = "lines"
    word: ClassVar[Word] = 32
    first: ClassVar[First] = "lsb"
    largest_k: ClassVar[int | None] = LARGEST_BITS
    fallback: ClassVar = "btc2"

    def tile(self, m: int, n: int, k: int, output: str, multiprocessors: int, matrices: int = 1) -> Tile:
        """The tile with the least estimated time, for so many outputs of (m, n)."""
        steps = -(-k // (8 * SPAN))
        return fastest(TILES[output], (m, n), steps, output, multiprocessors, matrices=matrices)

    def parts(self, m: int, n: int, k: int, multiprocessors: int, matrices: int = 1) -> int:
        """The number of tiles in one row of tiles of C, each of which counts the ones of its columns."""
        bits = -(-n // (8 * _UNIT)) * 8 * _UNIT
        return -(-bits // self.tile(m, n, k, "lines", multiprocessors, matrices).columns)

    def shares(
        self, sizes: tuple[int, int, int], output: str, multiprocessors: int, matrices: int = 1
    ) -> int:
        """Into how many shares blocks split k, where there are too few tiles for them; 1 if they do not."""
        (m, n, k), small = sizes, TILES[output][-1]
        steps, count = -(-k // (8 * SPAN)), matrices * -(-m // small.rows) * -(-n // small.columns)
        most = min(multiprocessors // count, steps // _LEAST_SHARE)
        if output != "int32" or most < 2:
            return 1
        return -(-steps // -(-steps // most))

    def ptx(
        self,
        tile: Tile,
        output: str,
        *,
        boxes: bool,
        scaled: bool = False,
        splits: bool = False,
        parts: bool = False,
        stack: bool = False,
        common: bool = False,
    ) -> Ptx:
        """The kernel for a tile and a kind of output, compiled.

        ``boxes`` if C has a tensor map; ``parts`` if several numbers are the ones of a line of A; ``stack``
        for several matrices; ``common`` for the product of bits, not of signs.
        """
        macros = tile.macros(output, boxes=boxes, group=self.group) | ({"SCALED": ""} if scaled else {})
        macros |= ({"SPLIT_K": ""} if splits else {}) | ({"PARTS": ""} if parts else {})
        macros |= ({"STACK": ""} if stack else {}) | (COMMON if common else {})
        return compile_file(self.source, macros, (9, 0), options=OPTIONS)

    def plan(
        self,
        sizes: tuple[int, int, int],
        output: str,
        multiprocessors: int,
        *,
        scaled: bool = False,
        tile: Tile | None = None,
        parts: int = 1,
        early: bool = False,
        matrices: tuple[int, int] = (1, 1),
        common: bool = False,
    ) -> LaunchPlan:
        """The launch of a product of (m, k) and (k, n), for sizes (m, n, k).

        A call gives A, its ones, B, its ones, C, and what the output takes: ones of C with lines, in parts;
        thresholds and flips with bits; scales if scaled. ``tile`` overrides the choice. If blocks share k, C
        is 0 before. Ones of A have so many parts. With ``early`` the launch may overlap the one before, and
        leaves shared memory to the one behind if it has a tile for each block. ``matrices`` are those of A
        and of B, as many, or one of either.
        """
        (m, n, k), most = sizes, max(matrices)
        shares = 1 if tile else self.shares(sizes, output, multiprocessors, most)
        small = TILES[output][-1] if shares > 1 else None
        tile = tile or small or self.tile(m, n, k, output, multiprocessors, most)
        _check_stack(tile, m, n, most)
        pitch = -(-k // (8 * _UNIT)) * _UNIT
        of_stack = matrices if most > 1 else (None, None)
        of_a = map_of_lines(m, tile.rows, pitch, of_stack[0])
        of_b = map_of_lines(n, tile.columns, pitch, of_stack[1])
        extra = (None,) * ((output == "lines") + 2 * (output in BITS) + scaled)
        of_c = None if output in BITS or not tile.boxes else map_of_outputs(m, n, output, most)
        args = of_a, None, of_b, None, of_c, m, n, k, *extra, *((shares,) if shares > 1 else ())
        args = (*args, *((parts,) if parts > 1 else ()), *(matrices if most > 1 else ()))
        count = most * -(-m // tile.rows) * -(-n // tile.columns) * shares
        if early and count <= multiprocessors:
            tile = replace(tile, stages=min(tile.stages, max(2, -(-k // (8 * SPAN)))))
        boxes, splits = of_c is not None, shares > 1
        kind = {"boxes": boxes, "scaled": scaled, "splits": splits, "parts": parts > 1, "stack": most > 1}
        kind |= {"common": common}
        ptx = self.ptx(tile, output, **kind).text
        shared = tile.shared(output, scaled=scaled) + _SIGNAL * (most > 1)  # the matrix beside each note
        grid, block = (min(count, multiprocessors), 1, 1), (tile.threads, 1, 1)
        return LaunchPlan(ptx, self.name, grid, block, args, shared, dependent=early or splits)


WARPGROUP_SCHEMES = {scheme.name: scheme for scheme in (WarpgroupScheme(),)}
"""The scheme of `gpu.bmm` for sm_90a, by its name."""


def check_chip(scheme: Any, capability: tuple[int, int], other: str = "btc3") -> None:
    """Refuse a scheme on warpgroups, of products or convolutions, on a chip that lacks its instructions."""
    own = CHIPS.get(capability)  # what ends in a is on no other chip of the generation
    if scheme.name == "wgmma" and not (own and own.sm_90a):
        chip = f"sm_{capability[0]}{capability[1]}"
        raise SchemeError(
            f"scheme={scheme.name!r} on {chip}\nits instructions are those of sm_90a alone\nchoose {other}"
        )


def map_of_lines(lines: int, box: int, pitch: int, matrices: int | None = None) -> TensorMap:
    """The map of lines of bits, whose boxes are as many lines of a step along k; without its address.

    That of a stack has one more dimension: its matrices.
    """
    of_matrix = TensorMap("uint8", 0, (pitch, lines), (pitch,), (SPAN, box), (1, 1), swizzle=SPAN)
    return of_matrix if matrices is None else _of_stack(of_matrix, matrices)


def map_of_outputs(m: int, n: int, output: str, matrices: int = 1) -> TensorMap | None:
    """The map of C, whose boxes are 16 rows of `SPAN` bytes; None if its rows are not whole units."""
    size = np.dtype(output).itemsize
    if n * size % 16:
        return None
    data_type = "uint16" if output == "int16" else output
    box = (SPAN // size, _BOX_ROWS)
    of_matrix = TensorMap(data_type, 0, (n, m), (n * size,), box, (1, 1), swizzle=SPAN)
    return of_matrix if matrices == 1 else _of_stack(of_matrix, matrices)


def _check_stack(tile: Tile, m: int, n: int, matrices: int) -> None:
    """Raise an error for a stack with more lines than a launch can number."""
    lines = matrices * max(-(-m // tile.rows) * tile.rows, n)
    if matrices > 1 and lines >= 2**32:
        raise ShapeError(
            f"a stack of {matrices} products of {m} x {n}\n"
            f"up to whole tiles of {tile.rows} rows it has {lines} lines, and a launch counts below 2^32\n"
            "cut the stack"
        )


def _of_stack(of_matrix: TensorMap, matrices: int) -> TensorMap:
    """The map of matrices that lie one after the other; a box is of one of them."""
    shape, (pitch,) = of_matrix.shape, of_matrix.strides
    return replace(
        of_matrix,
        shape=(*shape, matrices),
        strides=(pitch, shape[1] * pitch),
        box=(*of_matrix.box, 1),
        element_strides=(1, 1, 1),
    )
