"""Policies by name: the default, the paper's on GPUs alone, and the paper's with one part changed."""

from __future__ import annotations

from dataclasses import replace

from gpu.blas3 import Options
from reference.errors import SchemeError

_PAPER = replace(Options.paper(), cpu=False)
"""Its figures and tables are of GPUs alone, except figure 9."""

VARIANTS: dict[str, Options] = {
    "default": Options(),
    "paper": _PAPER,
    "no-peer": replace(_PAPER, peer="none"),
    "no-cache": replace(_PAPER, cache=False, peer="none"),
    "fifo": replace(_PAPER, order="fifo"),
    "no-steal": replace(_PAPER, steal=False),
    "streams-1": replace(_PAPER, streams=1),
    "streams-2": replace(_PAPER, streams=2),
    "streams-8": replace(_PAPER, streams=8),
    "native": replace(_PAPER, allocation="native"),
    "squares": replace(_PAPER, queue="squares"),
    "ordered": replace(_PAPER, copies="ordered"),
    "late": replace(_PAPER, addend="late"),
    "cpu": Options.paper(),
    "default-cpu": Options(cpu=True),
}
"""All after "paper" but the last are its policy with one part changed; without a cache no peer has tiles."""


def variant(name: str) -> Options:
    """The options of a variant by its name; raises SchemeError for an unknown name.

    >>> variant("fifo").order, variant("fifo").advance
    ('fifo', 'batch')
    """
    if name not in VARIANTS:
        raise SchemeError(f"the variant {name!r} is unknown\nknown are {', '.join(VARIANTS)}\nchoose one")
    return VARIANTS[name]
