"""The kernels of the ±1 product, and which one a product gets (BSTC, section 5.1 and Table 2)."""

from __future__ import annotations

from dataclasses import dataclass

from gpu.compile import Ptx, compile_file
from reference.errors import SchemeError
from reference.types import First, Word


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


SCHEMES = {
    scheme.name: scheme
    for scheme in (
        Scheme("bmm32", 32, 32, "a warp for each tile of 32 x 32"),
        Scheme("bmm64", 64, 64, "a warp for each tile of 64 x 64, 16-bit counters", 2**16 - 1, "bmms64"),
        Scheme("bmms32", 32, 16, "two warps for each tile of 32 x 32"),
        Scheme("bmms64", 64, 16, "four warps for each tile of 64 x 64"),
    )
}
"""The schemes that `gpu.bmm` knows."""


def choose_scheme(name: str, k: int) -> Scheme:
    """The scheme that computes a product asked for by name.

    Parameters
    ----------
    name : str
    k : int
        The length of the dot products.

    Raises
    ------
    SchemeError
        For an unknown name.

    Examples
    --------
    >>> choose_scheme("bmm64", 65535).name, choose_scheme("bmm64", 65536).name
    ('bmm64', 'bmms64')
    """
    if name not in list(SCHEMES):  # which takes any object
        raise SchemeError(f"scheme={name!r} is unknown\nchoose one of {', '.join(SCHEMES)}")
    scheme = SCHEMES[name]
    if scheme.largest_k is not None and k > scheme.largest_k:
        return SCHEMES[scheme.fallback]
    return scheme


def product_ptx(scheme: Scheme, output: str, first: First, arch: tuple[int, int]) -> Ptx:
    """The kernel of a scheme.

    Parameters
    ----------
    scheme : Scheme
    output : "int" or "bits"
    first : "msb" or "lsb"
        Of the output's words; the operands' order does not matter to the kernel.
    arch : (int, int)
        The compute capability to compile for.

    Examples
    --------
    >>> ".entry bmm64" in product_ptx(SCHEMES["bmm64"], "bits", "msb", (9, 0)).text
    True
    """
    defines = {
        "SCHEME": scheme.name,
        f"WORD_{scheme.word}": "",
        "ROWS": scheme.rows,
        f"OUTPUT_{output.upper()}": "",
        f"FIRST_{first.upper()}": "",
    }
    return compile_file("bmm/bmm.cu", defines, arch)
