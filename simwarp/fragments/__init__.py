"""Fragments: the lane and register that hold each element, for wmma, mma, ldmatrix, stmatrix and wgmma.

`fragments_of` returns the operands of an instruction. Each has a `Layout` with two inverse functions,
``element(lane, register, bit)`` and ``holder(row, column)``, which also converts registers to matrices and
back.
"""

from simwarp.fragments.digits import Digit, FragmentError
from simwarp.fragments.forms import TYPE_BITS
from simwarp.fragments.layout import Element, Holder, Layout
from simwarp.fragments.opcodes import all_opcodes, fragments_of
from simwarp.fragments.operand import Fragments, Operand, Provenance, Shape, required_alignment

__all__ = [
    "TYPE_BITS",
    "Digit",
    "Element",
    "FragmentError",
    "Fragments",
    "Holder",
    "Layout",
    "Operand",
    "Provenance",
    "Shape",
    "all_opcodes",
    "fragments_of",
    "required_alignment",
]


def __dir__() -> list[str]:
    return sorted(__all__)
