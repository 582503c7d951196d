"""The scheme of the ±1 product for few rows of A or few columns of B: many lines stream by them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from gpu.chips import chip_of
from gpu.compile import Ptx, compile_file
from gpu.device import LaunchPlan
from reference.errors import SchemeError
from reference.types import First, Word

COMMON = {"COMMON": ""}
"""The macro of each scheme's source for the product of bits, not of signs (``sums.cuh``)."""

_ROWS = 16
"""Lines of the longer operand in a block."""
_STEP = 512
"""Bits of k that a warp takes at a time."""
OUTPUTS = {
    "int32": ("OUTPUT_INT",),
    "words": ("OUTPUT_BITS",),
    "lines": ("OUTPUT_BITS", "LINES"),
    "answer": ("OUTPUT_INT", "ANSWER"),
}
"""The kinds of outputs, and their macros; see `gpu.bmm.output.Output`."""
_BLOCKS = {"words": 2, "lines": 8}
"""Blocks that make a word, or a piece of a line, also where some are empty."""


@dataclass(frozen=True)
class SkinnyScheme:
    """The product on bit tensor cores where one operand has few lines: the other one is read once.

    Attributes
    ----------
    name : str
        Also of the kernel.
    most : int
        The largest number of rows of A, or else of columns of B.
    """

    name: str = "skinny"
    most: int = 16
    summary: str = "up to 16 rows or columns; the warps of a block share K"

    source: ClassVar = "bmm/skinny.cu"
    form: ClassVar[Literal["lines"]] = "lines"
    word: ClassVar[Word] = 32
    first: ClassVar[First] = "lsb"
    largest_k: ClassVar = None
    fallback: ClassVar = ""

    def check(self, m: int, n: int, capability: tuple[int, int]) -> None:
        """Refuse outputs of (m, n) with too many rows and columns, and chips without the instruction."""
        if not chip_of(capability).sm_80:
            raise SchemeError(
                f"scheme={self.name!r} on sm_{capability[0]}{capability[1]}\n"
                "its products of 16 x 8 x 256 bits begin with sm_80\nchoose btc1"
            )
        if min(m, n) > self.most:
            raise SchemeError(
                f"scheme={self.name!r} for a product of {m} rows and {n} columns\n"
                f"it takes up to {self.most} rows, or up to {self.most} columns\nchoose btc2"
            )

    def macros(self, few: int, warps: int, output: str, *, swapped: bool) -> dict[str, str | int]:
        """The macros that the kernel's source is compiled with."""
        named = {"FEW": few, "WARPS": warps, "FORMAT_LINES": "", "WORD_32": "", "FIRST_LSB": ""}
        return {**named, **dict.fromkeys(OUTPUTS[output], ""), **({"SWAPPED": ""} if swapped else {})}

    def ptx(
        self,
        few: int,
        warps: int,
        output: str,
        arch: tuple[int, int],
        *,
        swapped: bool,
        common: bool = False,
    ) -> Ptx:
        """The kernel for a kind of output, compiled; ``swapped`` if B has the few lines.

        With ``common`` the product is of bits, not of signs.
        """
        macros = self.macros(few, warps, output, swapped=swapped) | (COMMON if common else {})
        return compile_file(self.source, macros, arch)

    def plan(
        self,
        sizes: tuple[int, int, int],
        output: str,
        arch: tuple[int, int],
        multiprocessors: int,
        *,
        early: bool = False,
        common: bool = False,
    ) -> LaunchPlan:
        """The launch of a product of (m, k) and (k, n), for sizes (m, n, k).

        A call gives A, B, the ones of B, and what the output is and takes. Eight warps share K where it is
        long and there are few blocks, else four. With ``early`` the launch may overlap the one before.
        """
        m, n, k = sizes
        swapped = m > self.most
        many, few = (m, n) if swapped else (n, m)
        blocks = -(-many // _ROWS)
        if output in _BLOCKS and not swapped:
            blocks += -blocks % _BLOCKS[output]
        warps = 8 if k > 4 * _STEP and blocks <= 4 * multiprocessors else 4
        ptx = self.ptx(8 if few <= 8 else 16, warps, output, arch, swapped=swapped, common=common)
        args = (None,) * 4 + (m, n, k) + (None,) * {"words": 2, "lines": 2, "answer": 4}.get(output, 0)
        return LaunchPlan(ptx.text, self.name, (blocks, 1, 1), (warps * 32, 1, 1), args, dependent=early)


SKINNY_SCHEMES = {scheme.name: scheme for scheme in (SkinnyScheme(),)}
"""The scheme of `gpu.bmm` for few rows or columns, by its name."""
