"""Which functions of a module call which, and where each function's address lies."""

from __future__ import annotations

from simwarp.ptx.spaces import FUNCTIONS
from simwarp.ptx.syntax import Function, Instruction, Module, Reference, Symbol


class CallGraph:
    """The calls of a module's kernels and functions.

    Attributes
    ----------
    addresses : dict of str to int
        Of each function; a name that ``.alias`` adds has one of its own.
    callees : dict of str to set of str
        What each kernel and function may call; an indirect call may call every function whose
        address something names.

    Examples
    --------
    >>> from simwarp.ptx.parse import parse
    >>> module = parse('''.version 9.0 .target sm_90
    ... .func odd(); .func even() { call odd; ret; } .func odd() { call even; ret; }
    ... .entry start() { call even; ret; }''')
    >>> sorted(CallGraph(module).reached("start")), "even" in CallGraph(module).reached("even")
    (['even', 'odd'], True)
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.addresses = {name: FUNCTIONS + 16 * i for i, name in enumerate(module.functions)}
        everything = {**module.functions, **module.entries}
        taken = self._addresses_taken()
        self.callees = {name: self._called(function, taken) for name, function in everything.items()}

    def reached(self, start: str) -> set[str]:
        """What is called from ``start``, directly or not; itself only if it is called again."""
        todo, seen = list(self.callees.get(start, ())), set[str]()
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo += self.callees.get(name, ())
        return seen

    def _called(self, function: Function, taken: set[str]) -> set[str]:
        names: set[str] = set()
        for instruction in filter(_is_call, function.instructions):
            target = next((o for o in instruction.operands if isinstance(o, Symbol)), None)
            is_direct = target is not None and target.name in self.module.functions
            names |= {self.module.functions[target.name].name} if target and is_direct else taken
        return names

    def _addresses_taken(self) -> set[str]:
        """The functions that something other than a call names."""
        functions = [*self.module.functions.values(), *self.module.entries.values()]
        variables = [*self.module.variables, *(v for f in functions for v in f.variables)]
        names = {value.name for v in variables for value in v.initial if isinstance(value, Reference)}
        for instruction in (i for f in functions for i in f.instructions if not _is_call(i)):
            names |= {o.name for o in instruction.operands if isinstance(o, Symbol)}
        return {self.module.functions[name].name for name in names & set(self.module.functions)}


def _is_call(instruction: Instruction) -> bool:
    return instruction.opcode.split(".")[0] == "call"
