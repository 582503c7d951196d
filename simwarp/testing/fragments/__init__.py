"""Fragments held against matrices: which lane, register and bit of a tensor-core operand is wrong.

====================  ====================================================================================
`check_fragment`      compares the registers of an operand with the matrix that they should hold
`FragmentDifference`  what it raises: operand, lane, register, bit, element; what wrong ones have in common
`record_fragments`    takes these registers from a running kernel: here, operand A must be this tile
====================  ====================================================================================

The maps are those of `simwarp.fragments`. Source: PTX ISA 9.0, sections 9.7.14 and 9.7.15.
"""

from simwarp.testing.fragments.check import FragmentDifference, check_fragment
from simwarp.testing.fragments.recorder import Execution, FragmentRecorder, record_fragments

__all__ = ["Execution", "FragmentDifference", "FragmentRecorder", "check_fragment", "record_fragments"]
