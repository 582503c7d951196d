"""The figures and tables of the five papers: what makes each, and what the paper prints; ``simwarp paper``.

=============  ==========================================================================
`bstc`         entries and printed numbers of BSTC
`btc`          the same of BTC
`mm_csf`       the same of MM-CSF
`blasx`        the same of BLASX
`ooc_cudnn`    the same of ooc_cuDNN
`entries`      what an entry is, and how one is found
`compare`      our rows beside printed numbers: ratios, and why they differ
`run`          makes entries, and keeps each in a file
`plots`        draws an entry by matplotlib
`bits`         products, convolutions and packing
`nets`         whole networks
`sparse`       tensors, their formats and their MTTKRP
`machines`     calls by the clock of simulated machines
`measure`      what a call costs: counts of the simulator, or seconds
`script`       entries that a script of the repository makes
`data`         tensors and images of a folder, or look-alikes
=============  ==========================================================================
"""

from __future__ import annotations

from importlib import import_module

from reference.errors import SchemeError
from simwarp.lab.papers.entries import Paper

NAMES = {name: name.replace("-", "_") for name in ("bstc", "btc", "mm-csf", "blasx", "ooc-cudnn")}
"""The papers, and their modules here."""


def paper(name: str) -> Paper:
    """A paper by its name; raises SchemeError for an unknown one.

    >>> paper("mm-csf").item("table", "8").title
    'bytes of indices and pointers for each nonzero'
    """
    if name not in NAMES:
        raise SchemeError(f"the paper {name!r} is unknown\nknown are {', '.join(NAMES)}\nchoose one of them")
    found: Paper = import_module(f"{__name__}.{NAMES[name]}").PAPER
    return found
