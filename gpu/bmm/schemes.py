"""The schemes of the ±1 product, each with its kernel, and the choice between them.

On CUDA cores as in BSTC, section 5.1 and Table 2; on bit tensor cores as in BTC, section 5.2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeAlias

from gpu.bmm.skinny import COMMON, SKINNY_SCHEMES, SkinnyScheme
from gpu.bmm.warpgroups import WARPGROUP_SCHEMES, WarpgroupScheme
from gpu.chips import chip_of
from gpu.compile import Ptx, compile_file
from gpu.device import Dim
from gpu.host import unknown
from reference.errors import SchemeError
from reference.types import First, Word

WARPS_PER_BLOCK = 4


@dataclass(frozen=True)
class Scheme:
    """A way to share the product among warps on CUDA cores.

    Attributes
    ----------
    name : str
        The paper's name, also of the kernel; BMMS is the fine-grained variant.
    word : int
        Bits per packed word, and columns of a warp's tile.
    rows : int
        Rows of a warp's tile.
    largest_k : int, optional
        The largest K that the kernel's counters can hold.
    fallback : str
        The scheme for a larger K.
    """

    name: str
    word: Word
    rows: int
    summary: str
    largest_k: int | None = None
    fallback: str = ""

    source: ClassVar = "bmm/bmm.cu"
    first: ClassVar[First] = "msb"
    """The bit order in which real operands are packed."""

    @property
    def form(self) -> str:
        """The layout of operands in memory: packed words, not rearranged."""
        return "words32" if self.word == 32 else "words64"

    def launch(self, m: int, n: int) -> tuple[Dim, Dim]:
        """Grid and block for an output of (m, n): a warp for each tile."""
        tiles = -(-m // self.rows) * -(-n // self.word)
        return (-(-tiles // WARPS_PER_BLOCK), 1, 1), (WARPS_PER_BLOCK * 32, 1, 1)

    @property
    def macros(self) -> dict[str, str | int]:
        """The macros of the source, except those of the output."""
        return {"SCHEME": self.name, f"WORD_{self.word}": "", "ROWS": self.rows}


SCHEMES = {
    scheme.name: scheme
    for scheme in (
        Scheme("bmm32", 32, 32, "a warp for each tile of 32 x 32"),
        Scheme("bmm64", 64, 64, "a warp for each tile of 64 x 64, 16-bit counters", 2**16 - 1, "bmms64"),
        Scheme("bmms32", 32, 16, "two warps for each tile of 32 x 32"),
        Scheme("bmms64", 64, 16, "four warps for each tile of 64 x 64"),
    )
}
"""The schemes of `gpu.bmm` for CUDA cores, which count differing bits word by word."""


@dataclass(frozen=True)
class TensorCoreScheme:
    """A way to share the product among the warps that feed bit tensor cores.

    Attributes
    ----------
    name : str
        The name of the kernel: BTC and the number of the paper's design.
    form : "lines" or "fsb"
        The layout of operands in memory; see `gpu.bmm.fsb.arrange`.
    block_tile, warp_tile : (int, int)
        Rows and columns of C that a block, and one of its warps, computes.
    step : int
        Pieces of 128 bits of K that a block keeps in shared memory at once; 0 if it uses none.
    stages : int
        As many times: the stages of a ring that asynchronous copies fill; 0 without one.
    smaller : TensorCoreScheme, optional
        The same with a smaller tile, for outputs with fewer tiles than the device has multiprocessors.
    """

    name: str
    form: Literal["lines", "fsb"]
    block_tile: tuple[int, int]
    warp_tile: tuple[int, int]
    step: int
    summary: str
    stages: int = 0
    smaller: TensorCoreScheme | None = None

    source: ClassVar = "bmm/btc.cu"
    word: ClassVar[Word] = 32
    first: ClassVar[First] = "lsb"
    largest_k: ClassVar = None
    fallback: ClassVar = ""

    def launch(self, m: int, n: int) -> tuple[Dim, Dim]:
        """Grid and block for an output of (m, n): a block for each tile."""
        (rows, columns), (down, across) = self.block_tile, self.warp_tile
        warps = rows // down * (columns // across)
        return (-(-m // rows) * -(-n // columns), 1, 1), (warps * 32, 1, 1)

    def fitted(self, m: int, n: int, multiprocessors: int) -> TensorCoreScheme:
        """The scheme with the tile for an output of (m, n)."""
        few = self.launch(m, n)[0][0] < multiprocessors
        return self.smaller if self.smaller is not None and few else self

    def check(self, capability: tuple[int, int]) -> None:
        """Refuse chips without asynchronous copies if the scheme needs them."""
        if self.stages and not chip_of(capability).sm_80:
            raise SchemeError(
                f"scheme={self.name!r} on sm_{capability[0]}{capability[1]}\n"
                "its asynchronous copies begin with sm_80\nchoose btc2"
            )

    @property
    def shared(self) -> int:
        """The bytes of dynamic shared memory of a block: its ring."""
        return self.stages * sum(self.block_tile) * self.step * 16

    @property
    def macros(self) -> dict[str, str | int]:
        """The macros of the source, except those of the output."""
        tiles = zip(
            ("ROWS", "COLUMNS", "WARP_ROWS", "WARP_COLUMNS"), self.block_tile + self.warp_tile, strict=True
        )
        named = {"SCHEME": self.name, f"FORMAT_{self.form.upper()}": ""}
        ring: dict[str, str | int] = {"STAGES": self.stages} if self.stages else {}
        return {**named, **dict(tiles), "STEP": self.step, "WORD_32": "", **ring}


TENSOR_CORE_SCHEMES = {
    scheme.name: scheme
    for scheme in (
        TensorCoreScheme("btc1", "lines", (64, 64), (32, 32), 0, "design 1: from global memory"),
        TensorCoreScheme("btc2", "lines", (128, 128), (64, 32), 4, "design 2: through shared memory"),
        TensorCoreScheme("btc3", "fsb", (128, 128), (32, 64), 4, "design 3: tiles of 8 x 128 bits"),
    )
}
"""The schemes of `gpu.bmm` for bit tensor cores, from sm_75 on: words of 32 bits, ``first="lsb"``."""

_MMA = TensorCoreScheme(
    "mma", "lines", (128, 128), (64, 32), 8, "lines through a ring of asynchronous copies", stages=3
)
RING_SCHEMES = {"mma": replace(_MMA, smaller=replace(_MMA, block_tile=(64, 64), warp_tile=(32, 32)))}
"""The scheme of `gpu.bmm` for bit tensor cores from sm_80 on, by its name: a ring that ``cp.async`` fills."""


AnyScheme: TypeAlias = Scheme | TensorCoreScheme | SkinnyScheme | WarpgroupScheme

EVERY_SCHEME: dict[str, AnyScheme] = (
    SCHEMES | TENSOR_CORE_SCHEMES | RING_SCHEMES | SKINNY_SCHEMES | WARPGROUP_SCHEMES
)
"""The schemes of `gpu.bmm`, by name."""


def choose_scheme(name: Any, k: int) -> AnyScheme:
    """The scheme of that name, or its fallback if its counters cannot hold K."""
    if not isinstance(name, str) or name not in EVERY_SCHEME:
        raise unknown("scheme", name, EVERY_SCHEME)
    scheme = EVERY_SCHEME[name]
    if scheme.largest_k is not None and k > scheme.largest_k:
        return EVERY_SCHEME[scheme.fallback]
    return scheme


def product_ptx(
    scheme: Scheme | TensorCoreScheme,
    output: str,
    first: First,
    arch: tuple[int, int],
    *,
    common: bool = False,
) -> Ptx:
    """The kernel of a scheme, compiled; ``first`` is the bit order of the output's words.

    The bit order of the operands does not matter. Bit tensor cores count common or differing bits. With
    ``common`` the product is of bits, how many are 1 in both, not of signs.
    """
    defines = {**scheme.macros, f"OUTPUT_{output.upper()}": "", f"FIRST_{first.upper()}": ""}
    defines |= COMMON if common else {}
    return compile_file(scheme.source, defines, arch)
