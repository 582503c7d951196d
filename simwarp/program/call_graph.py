"""The call graph of a module, and the addresses of its functions."""

from __future__ import annotations

from functools import cached_property

from simwarp.program.graphs import reachable
from simwarp.ptx.instructions import TABLE
from simwarp.ptx.kinds import CALL
from simwarp.ptx.spaces import FUNCTIONS
from simwarp.ptx.syntax import Function, Module, Reference, Symbol


class CallGraph:
    """The call graph of a module: kernel or function → the functions that it calls.

    Attributes
    ----------
    addresses : dict of str to int
        The address of each function; an ``.alias`` has an address of its own.
    callees : dict of str to set of str
        The callees of each kernel and function; an indirect call may call each function of ``taken``.
    taken : set of str
        The functions whose address is taken: named other than by a direct call.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.addresses = {name: FUNCTIONS + 16 * i for i, name in enumerate(module.functions)}
        everything = {**module.functions, **module.entries}
        variables = [*module.variables, *(v for f in everything.values() for v in f.variables)]
        named = {value.name for v in variables for value in v.initial if isinstance(value, Reference)}
        direct = {name: self._called(function, named) for name, function in everything.items()}
        self.taken = {module.functions[name].name for name in named & set(module.functions)}
        self.callees = {
            name: called - {""} | self.taken if "" in called else called for name, called in direct.items()
        }

    @cached_property
    def cycles(self) -> list[list[str]]:
        """Strongly connected components of the call graph, callees before their callers."""
        below = {name: {name, *self.reached(name)} for name in self.callees}
        by_first_name: dict[str, list[str]] = {}
        for name in sorted(below, key=lambda name: len(below[name])):
            cycle = [other for other in below[name] if name in below[other]]
            by_first_name.setdefault(min(cycle), cycle)
        return list(by_first_name.values())

    @cached_property
    def recursive(self) -> set[str]:
        """The functions on a cycle of the call graph, which may be called again while they run."""
        return {
            name for cycle in self.cycles for name in cycle if len(cycle) > 1 or name in self.callees[name]
        }

    def reached(self, start: str) -> set[str]:
        """The functions called from ``start``, directly or not; with ``start`` only if it is recursive."""
        return reachable(self._callees_of(start), self._callees_of)

    def _callees_of(self, name: str) -> set[str]:
        """The functions that a function calls; empty for a function without a body."""
        return self.callees.get(name, set())

    def _called(self, function: Function, named: set[str]) -> set[str]:
        """The direct callees of a function, and "" for an indirect call; add other symbols to ``named``."""
        names, functions = set[str](), self.module.functions
        for instruction in function.instructions:
            symbols = [o.name for o in instruction.operands if isinstance(o, Symbol)]
            entry = TABLE.find(instruction.opcode)
            if entry is not None and entry[0].kind is CALL:
                names.add(functions[symbols[0]].name if symbols and symbols[0] in functions else "")
            else:
                named.update(symbols)
        return names
