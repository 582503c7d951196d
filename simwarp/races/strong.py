"""Which accesses are strong: they may happen at the same time as other strong ones (PTX ISA 9.0, 8.4)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simwarp.program.program import Step

WEAK, FOR_BLOCK, STRONG = range(3)
"""Not strong, strong among the threads of a block (``.cta``), strong among all."""

_STRONG = {"volatile", "relaxed", "acquire", "release", "mmio"}


def strength(step: Step) -> int:
    """How strong an instruction's accesses are: `WEAK`, `FOR_BLOCK` or `STRONG`.

    Examples
    --------
    >>> from simwarp.program.link import link
    >>> from simwarp.ptx.parse import parse
    >>> module = parse('''.version 9.0 .target sm_90 .entry k() { .reg .b32 %r; .reg .b64 %a; mov.b64 %a, 0;
    ... ld.global.u32 %r, [%a]; ld.relaxed.cta.global.u32 %r, [%a]; red.global.add.u32 [%a], 1; ret; }''')
    >>> [strength(step) for step in link(module, module.entries["k"]).steps[1:4]]
    [0, 1, 2]
    """
    return _strength(step.kind, step.form.modifiers)


@cache
def _strength(kind: str, modifiers: tuple[str, ...]) -> int:
    if kind not in ("atomic", "reduction") and not _STRONG.intersection(modifiers):
        return WEAK
    return FOR_BLOCK if "cta" in modifiers else STRONG
