"""The scheme that ``scheme="auto"`` of `gpu.bmm` takes: by chip, output, sizes and the operands' format."""

from __future__ import annotations

from typing import Literal, TypeAlias

from gpu.bmm.schemes import AnyScheme, Scheme, choose_scheme
from gpu.bmm.skinny import SkinnyScheme
from gpu.bmm.warpgroups import WarpgroupScheme
from gpu.host import for_chip

Format: TypeAlias = Literal["real", "lines", "lsb32", "msb32", "64"]
"""Real matrices, prepared lines with their ones, or packed words of 32 bits in either order or of 64."""

PREFERRED: dict[tuple[int, int], tuple[str, ...]] = {
    (0, 0): ("bmm32", "bmms64"),
    (7, 5): ("btc2", "bmm32", "bmms64"),
    (8, 0): ("skinny", "mma", "bmm32", "bmms64"),
    (9, 0): ("skinny", "wgmma", "btc2", "bmm32", "bmms64"),
    (10, 0): ("bmm32", "bmms64"),  # these chips emulate the bit tensor cores
}
"""Chip → the schemes for it and the chips up to the next one, the fastest first."""


def fastest_scheme(
    capability: tuple[int, int],
    sizes: tuple[int, int, int],
    output: str,
    form: Format,
    own: tuple[str, ...] = (),
) -> AnyScheme:
    """The first scheme that takes the format, suits sizes (m, n, k) and gives that kind of output.

    ``own`` is the scheme of a prepared operand, the last resort. If none gives the output, the first one that
    suits the sizes, which then refuses it.
    """
    names = (*for_chip(PREFERRED, capability), *own)
    taking = [scheme for scheme in (choose_scheme(name, 0) for name in names) if _takes(scheme, form)]
    suited = [scheme for scheme in taking if _suits(scheme, *sizes)] or taking
    return next((scheme for scheme in suited if gives(scheme, output, sizes[1])), suited[0])


def gives(scheme: AnyScheme, output: str, n: int = 1) -> bool:
    """True if a scheme can write an output of this kind with ``n`` columns; see `gpu.bmm.output.Output`."""
    if output == "answer":
        return isinstance(scheme, SkinnyScheme) and n <= scheme.most
    if output == "lines":
        return isinstance(scheme, WarpgroupScheme | SkinnyScheme)
    return output in ("int32", "words") or isinstance(scheme, WarpgroupScheme)


def _takes(scheme: AnyScheme, form: Format) -> bool:
    """True if a scheme reads operands of this format, or packs them itself."""
    if form == "real":
        return True
    if form == "lines":
        return scheme.form == "lines"
    if form == "lsb32":
        return scheme.word == 32
    return isinstance(scheme, Scheme) and scheme.word == (64 if form == "64" else 32)


def _suits(scheme: AnyScheme, m: int, n: int, k: int) -> bool:
    """True if a scheme supports outputs of shape (m, n) with dot products of length k."""
    few = not isinstance(scheme, SkinnyScheme) or min(m, n) <= scheme.most
    return few and (scheme.largest_k is None or k <= scheme.largest_k)
