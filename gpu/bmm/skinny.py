"""The scheme of the ±1 product for few rows of A or few columns of B: many lines stream by them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from gpu.compile import Ptx, compile_file
from gpu.device import LaunchPlan
from reference.errors import SchemeError
from reference.types import First, Word

_ROWS = 16
"""Lines of the longer operand in a block."""
_STEP = 512
"""Bits of k that a warp takes at a time."""


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
        if capability < (8, 0):
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
        """The macros of the source."""
        named = {"FEW": few, "WARPS": warps, "FORMAT_LINES": "", "WORD_32": "", "FIRST_LSB": ""}
        return {**named, f"OUTPUT_{output.upper()}": "", **({"SWAPPED": ""} if swapped else {})}

    def ptx(self, few: int, warps: int, output: str, arch: tuple[int, int], *, swapped: bool) -> Ptx:
        """The kernel, compiled. ``output`` is "int" or "bits"; ``swapped`` if B has the few lines."""
        return compile_file(self.source, self.macros(few, warps, output, swapped=swapped), arch)

    def plan(
        self, sizes: tuple[int, int, int], output: str, arch: tuple[int, int], multiprocessors: int
    ) -> LaunchPlan:
        """The launch of a product of (m, k) and (k, n), for sizes (m, n, k).

        Eight warps share K where it is long and there are few blocks, else four.
        """
        m, n, k = sizes
        swapped = m > self.most
        many, few = (m, n) if swapped else (n, m)
        blocks = -(-many // _ROWS)
        if output == "bits" and not swapped:
            blocks += blocks % 2  # two of them make a word, also where the second is empty
        warps = 8 if k > 4 * _STEP and blocks <= 4 * multiprocessors else 4
        ptx = self.ptx(8 if few <= 8 else 16, warps, output, arch, swapped=swapped)
        args = (None,) * 5 + (m, n, k) + (None,) * (2 * (output == "bits"))
        return LaunchPlan(ptx.text, self.name, (blocks, 1, 1), (warps * 32, 1, 1), args)


SKINNY_SCHEMES = {scheme.name: scheme for scheme in (SkinnyScheme(),)}
"""The scheme of `gpu.bmm` for few rows or columns, by its name."""
