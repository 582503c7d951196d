"""The kernels of the ±1 product, and which one a product gets.

On CUDA cores as in BSTC, section 5.1 and Table 2; on bit tensor cores as in BTC, section 5.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from gpu.compile import Ptx, compile_file
from gpu.device import Dim
from gpu.host import unknown
from reference.types import First, Word

WARPS_PER_BLOCK = 4


@dataclass(frozen=True)
class Scheme:
    """A way to spread the product over warps.

    Attributes
    ----------
    name : str
        As in the paper; BMMS is the fine-grained variant.
    word : int
        Bits per packed word. A warp's tile has as many columns.
    rows : int
        Rows of a warp's tile.
    largest_k : int, optional
        Up to which K the kernel's counters are right.
    fallback : str
        The scheme that takes over beyond.
    """

    name: str
    word: Word
    rows: int
    summary: str
    largest_k: int | None = None
    fallback: str = ""

    first: ClassVar[First] = "msb"
    """How real operands are packed."""

    @property
    def form(self) -> str:
        """How operands lie in memory: packed words as they are."""
        return "words32" if self.word == 32 else "words64"

    def launch(self, m: int, n: int) -> tuple[Dim, Dim]:
        """Grid and block of a product of (m, n): a warp for each tile."""
        tiles = -(-m // self.rows) * -(-n // self.word)
        return (-(-tiles // WARPS_PER_BLOCK), 1, 1), (WARPS_PER_BLOCK * 32, 1, 1)


SCHEMES = {
    scheme.name: scheme
    for scheme in (
        Scheme("bmm32", 32, 32, "a warp for each tile of 32 x 32"),
        Scheme("bmm64", 64, 64, "a warp for each tile of 64 x 64, 16-bit counters", 2**16 - 1, "bmms64"),
        Scheme("bmms32", 32, 16, "two warps for each tile of 32 x 32"),
        Scheme("bmms64", 64, 16, "four warps for each tile of 64 x 64"),
    )
}
"""The schemes of `gpu.bmm` for CUDA cores: they count the bits that differ, word by word."""


@dataclass(frozen=True)
class TensorCoreScheme:
    """A way to spread the product over bit tensor cores.

    Attributes
    ----------
    name : str
        The paper's design.
    format : "lines" or "fsb"
        How operands lie in memory; see `gpu.bmm.fsb.arrange`.
    block_tile, warp_tile : (int, int)
        Rows and columns of C that a block, and one of its warps, computes.
    step : int
        How many pieces of 128 bits of K a block has in shared memory at once; 0 if it has none.
    """

    name: str
    format: Literal["lines", "fsb"]
    block_tile: tuple[int, int]
    warp_tile: tuple[int, int]
    step: int
    summary: str

    word: ClassVar[Word] = 32
    first: ClassVar[First] = "lsb"

    @property
    def form(self) -> str:
        """How operands lie in memory: its format, with the ones of each line."""
        return self.format

    def launch(self, m: int, n: int) -> tuple[Dim, Dim]:
        """Grid and block of a product of (m, n)."""
        (rows, columns), (down, across) = self.block_tile, self.warp_tile
        warps = rows // down * (columns // across)
        return (-(-m // rows) * -(-n // columns), 1, 1), (warps * 32, 1, 1)


TENSOR_CORE_SCHEMES = {
    scheme.name: scheme
    for scheme in (
        TensorCoreScheme("btc1", "lines", (64, 64), (32, 32), 0, "design 1: from global memory"),
        TensorCoreScheme("btc2", "lines", (128, 128), (64, 32), 4, "design 2: through shared memory"),
        TensorCoreScheme("btc3", "fsb", (128, 128), (32, 64), 4, "design 3: tiles of 8 x 128 bits"),
    )
}
"""The schemes of `gpu.bmm` for bit tensor cores, from sm_75 on. Words are of 32 bits, the first "lsb"."""


_ALL: dict[str, Scheme | TensorCoreScheme] = SCHEMES | TENSOR_CORE_SCHEMES


def choose_scheme(name: Any, k: int) -> Scheme | TensorCoreScheme:
    """The scheme of that name, or its fallback for dot products longer than its counters hold."""
    if not isinstance(name, str) or name not in _ALL:
        raise unknown("scheme", name, _ALL)
    scheme = _ALL[name]
    if isinstance(scheme, TensorCoreScheme):
        return scheme
    if scheme.largest_k is not None and k > scheme.largest_k:
        return SCHEMES[scheme.fallback]
    return scheme


def product_ptx(scheme: Scheme, output: str, first: First, arch: tuple[int, int]) -> Ptx:
    """The kernel of a scheme; ``first`` is of the output's words, the operands' order does not matter."""
    defines = {
        "SCHEME": scheme.name,
        f"WORD_{scheme.word}": "",
        "ROWS": scheme.rows,
        f"OUTPUT_{output.upper()}": "",
        f"FIRST_{first.upper()}": "",
    }
    return compile_file("bmm/bmm.cu", defines, arch)


def tensor_core_ptx(scheme: TensorCoreScheme, output: str, arch: tuple[int, int]) -> Ptx:
    """The kernel of a scheme for bit tensor cores, which count common bits or differing ones by ``arch``."""
    (rows, columns), (warp_rows, warp_columns) = scheme.block_tile, scheme.warp_tile
    defines = {
        "SCHEME": scheme.name,
        f"FORMAT_{scheme.format.upper()}": "",
        "ROWS": rows,
        "COLUMNS": columns,
        "WARP_ROWS": warp_rows,
        "WARP_COLUMNS": warp_columns,
        "STEP": scheme.step,
        "WORD_32": "",
        f"OUTPUT_{output.upper()}": "",
        "FIRST_LSB": "",
    }
    return compile_file("bmm/btc.cu", defines, arch)
