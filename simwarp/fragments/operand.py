"""The operands of a matrix instruction: their fragments, and their layout in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reference.values import not_an_array, shortened
from simwarp.fragments.digits import FragmentError
from simwarp.fragments.layout import Element, Layout


class Shape(NamedTuple):
    """The extents of a product: A is m x k, B is k x n, C and D are m x n.

    k is 0 for ``ldmatrix``, ``stmatrix`` and ``movmatrix``.

    Examples
    --------
    >>> str(Shape(16, 8, 256)), str(Shape(8, 8, 0))
    ('m16n8k256', 'm8n8')
    """

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"m{self.m}n{self.n}" + (f"k{self.k}" if self.k else "")


@shortened
@dataclass(frozen=True)
class Provenance:
    """The source of an operand's map, and the chips that confirmed it.

    Attributes
    ----------
    source : str
        A section, "PTX ISA 9.7.14.5.8"; "observed" if the PTX ISA leaves the map unspecified.
    confirmed : tuple of str
        The chips on which a probe confirmed it, ("sm_90",): see `simwarp.fragments.opcodes.confirmations`.
    """

    source: str
    confirmed: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.confirmed:
            return f"{self.source}, confirmed on {', '.join(self.confirmed)}"
        return f"{self.source}, {'not confirmed' if self.source == 'observed' else 'specified'}"


@not_an_array("pass what its layout gives")
@shortened
@dataclass(frozen=True)
class Operand:
    """One operand of a matrix instruction.

    Attributes
    ----------
    name : str
        "a", "b", "c" or "d"; "r" for ldmatrix and stmatrix.
    type : str
        The element type: "f16", "b1" …
    layout : Layout
    section : str
        The section of the PTX ISA.
    provenance : Provenance
    memory : str
        The order of the matrix in memory for wmma.load and wmma.store, "row" or "col"; else "".
    """

    name: str
    type: str
    layout: Layout
    section: str
    provenance: Provenance
    memory: str = ""

    @property
    def default_stride(self) -> int:
        """The default stride of wmma.load and wmma.store, in elements: a whole row or column.

        Source: PTX ISA 9.0, section 9.7.14.4.2.
        """
        return self.layout.columns if self._in_rows() else self.layout.rows

    @property
    def run(self) -> int:
        """The number of consecutive slots of a register that are adjacent in memory: all of them, or 1."""
        contiguous = "column" if self._in_rows() else "row"
        along = [d for d in self.layout.digits if d.source == "slot"]
        return self.layout.slots if all(d.target == contiguous and d.stride == 1 for d in along) else 1

    def addresses(self, stride: int | npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """The address of each element in wmma.load or wmma.store, in elements from the start of the matrix.

        Parameters
        ----------
        stride : int, or an array of int (…)
            The elements from one row (column) to the next; an array has one stride per warp.

        Returns
        -------
        int64 (…, lanes, registers, slots)
            ``row * stride + column`` for a row-major matrix, ``column * stride + row`` for a column-major
            one.

        Raises
        ------
        FragmentError
            For an operand of another instruction.

        Examples
        --------
        >>> from simwarp.fragments import fragments_of
        >>> a = fragments_of("wmma.load.a.sync.aligned.row.m16n16k16.bf16").operands["a"]
        >>> a.addresses(100)[4].tolist()
        [[100, 101], [900, 901], [108, 109], [908, 909]]
        """
        at = self._elements
        leading, within = (at.row, at.column) if self._in_rows() else (at.column, at.row)
        return np.asarray(stride, np.int64)[..., None, None, None] * leading + within

    @cached_property
    def _elements(self) -> Element:
        """The coordinates of each slot's element, as arrays (lanes, registers, slots)."""
        layout = self.layout
        lane, register, slot = np.ix_(*(range(n) for n in (layout.lanes, layout.registers, layout.slots)))
        return layout.element(lane, register, slot * layout.bits)

    def _in_rows(self) -> bool:
        if not self.memory:
            raise FragmentError(
                f"operand {self.name} does not have an order in memory\n"
                "only operands of wmma.load and wmma.store do\n"
                "use the operand of the wmma.load or wmma.store of the same shape and type"
            )
        return self.memory == "row"


def required_alignment(operand: Operand) -> int:
    """The alignment in bytes of the pointer and the stride of wmma.load and wmma.store.

    "The starting address of each instance of the leading dimension (row or column) must be aligned with the
    size of the corresponding fragment in bytes" (PTX ISA 9.0, section 9.7.14.4.2): the pointer and the stride
    in bytes must both be multiples of the size of one lane's fragment.

    The CUDA C++ Programming Guide (warp matrix functions) requires a pointer that is a multiple of 32 bytes
    and an ``ldm`` that is a multiple of 16 bytes, for every fragment.

    The H200 checks neither rule: it faults if one of the accesses that make up the instruction is misaligned.
    These have 16 bytes for A and B of up to 16 bits in shared memory, which is more than the PTX ISA requires
    of smaller fragments; otherwise the size in memory of neighbouring slots, or of a pair of registers.

    Examples
    --------
    Eight registers of f16; two of s8:

    >>> from simwarp.fragments import fragments_of
    >>> [required_alignment(fragments_of(f"wmma.load.a.sync.aligned.row.m16n16k16.{t}").operands["a"])
    ...  for t in ("f16", "s8")]
    [32, 8]
    """
    return operand.layout.registers * operand.layout.register_bits // 8


@not_an_array("pass what a layout of its operands gives")
@shortened
@dataclass(frozen=True)
class Fragments:
    """The fragments of a matrix instruction.

    Attributes
    ----------
    opcode : str
        The canonical spelling.
    shape : Shape
    operands : mapping of str to Operand
        In the order of the instruction: d, a, b, c.
    target : str
        The first architecture that has the instruction: "sm_80", "sm_90a".
    """

    opcode: str
    shape: Shape
    operands: Mapping[str, Operand]
    target: str

    @property
    def minimum_sm(self) -> int:
        """The number in the name ``target``, such as 90 for "sm_90a"."""
        return int(self.target[3:].rstrip("a"))
