"""Provenance of addresses: the kernel parameters and variables that a register's value is derived from.

The analysis ignores paths: each register has one set of *origins* for all values that it ever holds.

========================  ========================================================================
``"parameter NAME"``      a kernel parameter, or a value computed from it
``"variable NAME"``       the address of a variable in global or constant memory
``"shared"``              the address of a shared or local variable
``"symbol NAME"``         with "shared": the name of the shared variable
``"frame NAME"``          with "shared": the name of the local variable
``"grid barrier"``        the grid barrier's workspace of a cooperative launch
``"anything"``            a 64-bit value loaded from memory, returned by a call or packed from pieces
========================  ========================================================================

A number that is not an address has no origin, or that of a parameter that is not a pointer.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, TypeAlias

from simwarp.program.frames import start_of
from simwarp.program.liveness import registers_in
from simwarp.ptx.kinds import CALL, STORE
from simwarp.ptx.rows import DTYPES
from simwarp.ptx.syntax import Address, Immediate, Operand, Register, Symbol, Vector

if TYPE_CHECKING:
    from simwarp.program.program import Program, Step

Origins: TypeAlias = frozenset[str]

ANYTHING: Origins = frozenset({"anything"})
SHARED: Origins = frozenset({"shared"})
GRID_BARRIER: Origins = frozenset({"grid barrier"})
NOTHING: Origins = frozenset()
_POINTER = 8


def known_origins(program: Program, variables: Container[str]) -> dict[int, Origins]:
    """Step number → origins of its access's address; ``variables`` are the module's variables."""
    return _known(program, variables)[0]


def lending_steps(program: Program, variables: Container[str]) -> frozenset[int]:
    """The stores that may write an address in shared or local memory for other blocks or threads to load.

    Empty if no address of a shared or local variable is ever stored.
    """
    return _known(program, variables)[1]


def _known(program: Program, variables: Container[str]) -> tuple[dict[int, Origins], frozenset[int]]:
    """The results of `known_origins` and `lending_steps` for a program, computed once."""
    known = vars(program)
    if "_origins" not in known:
        origins = _Origins(program, variables)
        known["_origins"] = origins.of_addresses(), origins.of_lent()
    return known["_origins"]


def symbols_of(origins: Origins, kind: str = "symbol") -> list[str]:
    """The names of the shared variables among origins; with kind "frame", of the local variables."""
    return [name for what, _, name in (origin.partition(" ") for origin in origins) if what == kind]


class _Origins:
    """For each register of a program, the variables whose addresses it may hold."""

    def __init__(self, program: Program, variables: Container[str]) -> None:
        self.program, self.variables = program, variables
        self.registers: dict[str, Origins] = {}
        self.function, self.beyond = "", NOTHING
        """Prefix of the current function's registers, and the origins of registers that it never writes."""
        self.local: Container[str] = ()
        """The current function's local variables."""
        while sum(self.follow(step) for step in program.steps):
            pass

    def follow(self, step: Step) -> bool:
        """Add the origins of the registers that a step writes; returns whether any is new."""
        changed = False
        self.enter(step)
        for name, origins in self.given(step):
            known = self.registers.get(self.function + name)
            if known is None or not origins <= known:
                self.registers[self.function + name], changed = (known or NOTHING) | origins, True
        return changed

    def enter(self, step: Step) -> None:
        """Make the function of a step the current one; register names then belong to it."""
        routine = self.program.routine_at(step.number)
        self.function, self.local = f"{routine.name} ", routine.local_variables
        self.beyond = NOTHING if routine.name == self.program.name else ANYTHING

    def of_addresses(self) -> dict[int, Origins]:
        """Step number → origins of the memory access's address."""
        by_step: dict[int, Origins] = {}
        for step in self.program.steps:
            if step.base is not None:
                self.enter(step)
                addresses = [o for o in step.instruction.operands if isinstance(o, Address)]
                accesses = [one for one in (step, step.source, step.barrier) if one is not None]
                for access, address in zip(accesses, addresses, strict=False):
                    by_step[access.number] = ANYTHING if address.more else self.of((address,))
        return by_step

    def of_lent(self) -> frozenset[int]:
        """The numbers of the stores that may store an address in shared or local memory."""
        stores, lends = set[int](), False
        for step in self.program.steps:
            if step.kind is STORE and DTYPES[step.form.T] in ("u8", "i8"):
                self.enter(step)
                value = self.of(step.instruction.operands[1:])
                lends |= value >= SHARED
                if value & (SHARED | ANYTHING):
                    stores.add(step.number)
        return frozenset(stores if lends else ())

    def given(self, step: Step) -> list[tuple[str, Origins]]:
        """The registers that a step writes, and the origins of their values."""
        operands = step.instruction.operands
        if step.kind is CALL:
            return [(name, ANYTHING) for name in registers_in(operands)]
        if not step.row.destinations or not operands:
            return []
        if step.symbol:
            origins: Origins = frozenset({f"parameter {step.symbol}"})
        elif step.base is not None:
            origins = ANYTHING if _loaded_bytes(step) >= _POINTER else NOTHING
        elif (start := start_of(step.instruction)) is not None:
            origins = frozenset(_at(start, self.of(operands[1:])))
        else:
            origins = self.of(operands[1:])
        return [(name, origins) for name in registers_in(operands[:1])]

    def of(self, operands: Iterable[Operand]) -> Origins:
        """The origins of a value that is computed from operands."""
        origins = NOTHING
        for operand in operands:
            if isinstance(operand, Register):
                known = self.registers.get(self.function + operand.name, self.beyond)
                origins |= GRID_BARRIER if operand.name.startswith("%envreg") else known
            elif isinstance(operand, Symbol):
                origins |= self.of_symbol(operand.name)
            elif isinstance(operand, Address):
                origins |= self.of((operand.base,))
            elif isinstance(operand, Vector):
                origins |= self.of_pieces(operand)
        return origins

    def of_pieces(self, vector: Vector) -> Origins:
        """The origins of a word packed from two halves, which form an address only if both were loaded."""
        pieces = [self.of((e,)) for e in vector.elements if not isinstance(e, Immediate)]
        return NOTHING.union(*pieces) if all(pieces) else ANYTHING.union(*pieces)

    def of_symbol(self, name: str) -> Origins:
        """The origins of the address of a parameter, variable or function."""
        if name in self.program.parameter_offsets:
            return frozenset({f"parameter {name}"})
        known = [key for key in (f"{self.program.name}:{name}", name) if key in self.variables]
        if known:
            return frozenset({f"variable {known[0]}"})
        if name in self.program.shared_variables:
            return SHARED | {f"symbol {name}"}
        return SHARED | {f"frame {name}"} if name in self.local else SHARED


def _at(start: int, base: Origins) -> list[str]:
    """The origins of a local variable's address, given the origins of the frame's base."""
    return [f"{origin}+{start}" if origin.startswith("frame ") else origin for origin in base]


def _loaded_bytes(step: Step) -> int:
    """The bytes that a load writes to each destination register."""
    return DTYPES[step.form.resolve(step.row.destinations[0].kind)].itemsize
