"""Comparison of tensor-core fragments with matrices: which lane, register and bit of an operand is wrong.

====================  ====================================================================================
`check_fragment`      compares the registers of an operand with the matrix that they should hold
`FragmentDifference`  its exception: operand, lane, register, bit, element; the pattern of wrong elements
`record_fragments`    records the registers of the operands of matrix instructions while a kernel runs
====================  ====================================================================================

The maps are those of `simwarp.fragments`. Source: PTX ISA 9.0, sections 9.7.14 and 9.7.15.
"""

from simwarp.testing.fragments.check import FragmentDifference, check_fragment
from simwarp.testing.fragments.recorder import Execution, FragmentRecorder, record_fragments

__all__ = ["Execution", "FragmentDifference", "FragmentRecorder", "check_fragment", "record_fragments"]
