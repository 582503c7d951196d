"""Link a kernel and the functions it calls into a `Program`, with every name resolved.

`link` finds the functions and lays out the memory of the program; `simwarp.program.bind` turns each
instruction into a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from simwarp.chips.chips import STATIC_SHARED, check_size, most_parameters
from simwarp.faults import PtxSyntaxError, UnsupportedInstruction
from simwarp.program.bind import Binder, target_number
from simwarp.program.call_graph import CallGraph
from simwarp.program.frames import local_variables
from simwarp.program.program import HOST_FUNCTIONS, Program, Routine, Step
from simwarp.program.refusals import with_source
from simwarp.ptx.kinds import BRANCH, INDEXED_BRANCH
from simwarp.ptx.rows import DTYPES
from simwarp.ptx.spaces import WINDOW as WHOLE_WINDOW
from simwarp.ptx.syntax import Address, Function, Group, Instruction, Module, Operand, Symbol, Variable

_GLOBAL = ("global", "const")
_LEAST_FRAME = 16
"""Least bytes of local memory per call of a recursive function: its aligned return address."""


def link(module: Module, entry: Function, graph: CallGraph | None = None) -> Program:
    """Link a kernel of a module into a program."""
    return _Linker(module, entry, graph or CallGraph(module)).program()


def size_of(variable: Variable) -> int:
    """The size in bytes of a variable or parameter."""
    return DTYPES[variable.type].itemsize * variable.count


def _lay_out(variables: Iterable[Variable]) -> tuple[list[tuple[Variable, int]], int]:
    """Lay variables out in order, aligned: the offset of each, and the end of the last."""
    placed: list[tuple[Variable, int]] = []
    end = 0
    for variable in variables:
        alignment = max(variable.alignment, DTYPES[variable.type].itemsize)
        start = -(-end // alignment) * alignment
        placed.append((variable, start))
        end = start + size_of(variable)
    return placed, end


def symbol_of(variable: Variable, function: Function | None = None) -> str:
    """The name of a variable, unique in its module: functions may declare variables of the same name."""
    return f"{function.name}:{variable.name}" if function else variable.name


@dataclass
class Layout:
    """The addresses and offsets of the names in one function.

    Attributes
    ----------
    shared, parameters, frame : dict of str to int
        Offsets of shared variables, of kernel parameters, and of variables in the function's frame.
    functions : dict of str to int
        Addresses of functions.
    globals : dict of str to (str, str)
        State space and unique name of each variable in global and constant memory; the launch has the
        addresses.
    sizes : dict of str to int
        Bytes of each parameter, and of each variable of the frame.
    spaces : dict of str to str
        The state space that each variable and parameter was declared in.
    """

    shared: dict[str, int] = field(default_factory=dict[str, int])
    parameters: dict[str, int] = field(default_factory=dict[str, int])
    frame: dict[str, int] = field(default_factory=dict[str, int])
    functions: dict[str, int] = field(default_factory=dict[str, int])
    globals: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    spaces: dict[str, str] = field(default_factory=dict[str, str])


class _Linker:
    """Links one kernel of a module with the functions that it calls."""

    def __init__(self, module: Module, entry: Function, graph: CallGraph) -> None:
        self.module, self.entry = module, entry
        self.shared: dict[str, dict[str, int]] = {}
        self.graph = graph
        self.reached = graph.reached(entry.name)

    def program(self) -> Program:
        functions = [
            f for name, f in self.module.functions.items() if name == f.name in self.reached and not f.extern
        ]
        self.check_defined()
        shared_size, dynamic_at = self.place_shared(functions)
        program = Program(
            self.entry.name,
            [],
            [],
            self.entry.parameters,
            shared_size=shared_size,
            dynamic_shared_at=dynamic_at,
            max_threads=self.entry.max_threads,
            required_block=self.entry.required_block,
            cluster=self.entry.cluster,
            max_cluster=self.entry.max_cluster,
            explicit_cluster=self.entry.explicit_cluster,
            max_registers=self.entry.max_registers,
            min_blocks=self.entry.min_blocks,
            addresses={at: self.module.functions[name].name for name, at in self.graph.addresses.items()},
            shared_variables=self.extents,
            debug=self.module.debug,
        )
        self.place_parameters(program)
        for function in [*functions, self.entry]:
            self.add(program, function)
        self.check_calls(program)
        program.start = program.routines[self.entry.name].first
        program.local_size = self.depth(program)
        for i, step in enumerate(program.steps):
            step.number = i
            if step.source is not None:
                step.source.number = ~i
            if step.barrier is not None:
                step.barrier.number = ~(len(program.steps) + i)
        self.mark_loops(program)
        return program

    def mark_loops(self, program: Program) -> None:
        """Mark backward branches of loops that poll memory or have a barrier, directly or in a callee."""
        polling, meeting = (self.steps_that(program, does) for does in (_polls, _meets))
        for i, step in enumerate(program.steps):
            if step.kind in (BRANCH, INDEXED_BRANCH):
                start = min(step.table, default=step.target)
                step.polls = polling[i] > polling[min(start, i)]
                step.meets = meeting[i] > meeting[min(start, i)]

    def steps_that(self, program: Program, does: Callable[[Step], bool]) -> list[int]:
        """Prefix sums over steps: the number for which ``does`` is true, here or in a called function."""
        doing = [does(step) for step in program.steps]
        names = {program.routine_at(i).name for i, itself in enumerate(doing) if itself}
        for cycle in self.graph.cycles:
            if any(name in names or self.graph.callees[name] & names for name in cycle):
                names.update(cycle)
        for i, call in ((i, s.call) for i, s in enumerate(program.steps) if s.call is not None):
            doing[i] = bool(({call.function} if call.function else self.graph.taken) & names)
        return [0, *accumulate(doing)]

    def check_defined(self) -> None:
        """Raise for a call of a function that is neither defined in the module nor a host function."""
        for name in self.reached:
            function = self.module.functions.get(name)
            if function is not None and function.extern and name not in HOST_FUNCTIONS:
                error = UnsupportedInstruction(
                    f"kernel {self.entry.name} calls {name} (declared at line {function.line}), "
                    "which this module does not define\n"
                    f"without a body, these can be called: {', '.join(sorted(HOST_FUNCTIONS))}\n"
                    "link the functions into one module (-rdc=false), or write the function"
                )
                raise with_source(error, self.call_of(name).source)

    def call_of(self, name: str) -> Instruction:
        """The first instruction, of the kernel or a function it reaches, that names a function."""
        callers = (
            self.entry,
            *(self.module.functions[f] for f in self.reached if f in self.module.functions),
        )
        instructions = (i for caller in callers for i in caller.instructions)
        return next(i for i in instructions if name in _named(i))

    def check_calls(self, program: Program) -> None:
        """Raise for a call whose numbers of arguments or results differ from those of its function."""
        for step in program.steps:
            call = step.call
            if call is None or call.function == "":
                continue
            host, routine = HOST_FUNCTIONS.get(call.function), program.routines.get(call.function)
            wanted: tuple[Sequence[object], Sequence[object]] = (), ()
            if routine is not None:
                wanted = routine.parameters, routine.returns
            elif host is not None:
                wanted = host.arguments, host.returns if call.returns else ()
            if [len(call.arguments), len(call.returns)] != [len(part) for part in wanted]:
                raise PtxSyntaxError(
                    f"line {step.instruction.line}: `{step.instruction.text}`\n"
                    f"passes {len(call.arguments)} arguments and takes {len(call.returns)} results; "
                    f"{call.function} has {len(wanted[0])} and {len(wanted[1])}"
                )

    def add(self, program: Program, function: Function) -> None:
        """Bind a function and append its steps to the program."""
        is_entry = function is self.entry
        _check_types(function)
        layout = self.layout(program, function)
        recursive = function.name in self.graph.recursive and not is_entry
        frame = max(_frame_size(layout), _LEAST_FRAME if recursive else 0)
        routine = Routine(function.name, len(program.steps), frame, recursive=recursive)
        routine.local_variables = local_variables(function, layout.frame, layout.sizes)
        binder = Binder(self.module, function, layout, is_entry, routine, len(program.registers))
        steps = [binder.step(instruction) for instruction in function.instructions]
        if not _ends(steps) or len(steps) in function.labels.values():
            end = binder.end()
            end.runs_off = is_compiled(function)
            steps.append(end)
        program.steps += steps
        program.registers += list(binder.slots)
        program.types += [binder.types[name] for name in binder.slots]
        routine.slots = range(binder.first_slot, binder.first_slot + len(binder.slots))
        if not is_entry:
            routine.parameters = [binder.formal(v) for v in function.parameters]
            routine.returns = [binder.formal(v) for v in function.returns]
        program.routines[function.name] = routine

    # ---- where things lie --------------------------------------------------------------------------

    def layout(self, program: Program, function: Function) -> Layout:
        """The layout of the names that a function's instructions may use."""
        layout = Layout(self.shared[""] | self.shared[function.name], functions=self.graph.addresses)
        everywhere = [(v, None) for v in self.module.variables] + [(v, function) for v in function.variables]
        layout.globals = {
            v.name: (v.space, symbol_of(v, inside)) for v, inside in everywhere if v.space in _GLOBAL
        }
        held = [*function.parameters, *function.returns, *function.variables]
        layout.spaces = {v.name: v.space for v in [*self.module.variables, *held] if v.space != "reg"}
        if function is self.entry:
            layout.parameters = program.parameter_offsets
            layout.sizes = {v.name: size_of(v) for v in function.parameters}
            held = function.variables
        held = [v for v in held if v.space in ("param", "local")]
        layout.frame = {v.name: at for v, at in _lay_out(held)[0]}
        layout.sizes |= {v.name: size_of(v) for v in held}
        return layout

    def place_parameters(self, program: Program) -> None:
        """Set the offsets of the kernel's parameters, and check their size."""
        places, end = _lay_out(self.entry.parameters)
        program.parameter_offsets = {v.name: at for v, at in places}
        most = most_parameters(self.module.version or "9.0", target_number(self.module))
        advice = "pass large structures by a pointer"
        check_size(self.entry.line, f"the parameter list of kernel {self.entry.name}", end, most, advice)

    def place_shared(self, functions: list[Function]) -> tuple[int, int]:
        """Set the offsets of shared variables; all arrays without a size start after the others.

        Variables of the module that neither the kernel nor its functions name take no memory. Returns the
        size of static shared memory and the offset of the dynamic part.
        """
        functions = [*functions, self.entry]
        named = set[str]().union(*map(_names, functions))
        common = [v for v in self.module.variables if v.space != "shared" or v.name in named]
        everywhere = {"": common} | {f.name: f.variables for f in functions}
        variables = [(where, v) for where, some in everywhere.items() for v in some]
        for _, v in variables:
            if v.space not in ("shared", "global", "const", "local", "param"):
                raise UnsupportedInstruction(
                    f"kernel {self.entry.name}: variable {v.name} in .{v.space}, a state space that is not "
                    "simulated\nuse .global, .shared, .const or .local memory"
                )
        self.shared = {where: {} for where in everywhere}
        self.extents: dict[str, tuple[int, int]] = {}
        shared = [(where, v) for where, v in variables if v.space == "shared"]
        places, end = _lay_out(v for _, v in shared if v.count)
        static = [where for where, v in shared if v.count]
        for where, (v, at) in zip(static, places, strict=True):
            self.shared[where][v.name] = at
            self.extents[v.name] = self.extents.get(v.name, (at, 0))[0], at + size_of(v)
        what = f"the static shared memory of kernel {self.entry.name}"
        advice = "declare it extern __shared__, and give its size to the launch (shared=, --shared)"
        check_size(self.entry.line, what, end, STATIC_SHARED, advice)
        alignment = max([16, *(v.alignment for _, v in shared if not v.count)])
        dynamic_at = -(-end // alignment) * alignment
        for where, v in shared:
            if not v.count:
                self.shared[where][v.name] = dynamic_at
                self.extents[v.name] = dynamic_at, WHOLE_WINDOW
        return end, dynamic_at

    def depth(self, program: Program) -> int:
        """The most bytes of local memory that the kernel and its callees need, without recursion."""
        routines, deepest = program.routines, dict[str, int]()
        for cycle in self.graph.cycles:
            if cycle[0] in routines:
                below = {callee for name in cycle for callee in self.graph.callees[name]} - set(cycle)
                most = max((deepest.get(callee, 0) for callee in below), default=0)
                deepest |= dict.fromkeys(cycle, most + sum(routines[name].frame for name in cycle))
        return deepest[self.entry.name]


def _frame_size(layout: Layout) -> int:
    """Bytes of a function's frame, a multiple of 16."""
    end = max((at + layout.sizes[name] for name, at in layout.frame.items()), default=0)
    return -(-end // 16) * 16


def _ends(steps: list[Step]) -> bool:
    """Whether the last step ends the function in all lanes."""
    return bool(steps) and steps[-1].guard is None and bool(steps[-1].kind.ends)


def is_compiled(function: Function) -> bool:
    """Whether LLVM generated a function: then its end lacks a ``ret`` only if it is unreachable."""
    if any(instruction.source is not None for instruction in function.instructions):
        return True
    return any(label.startswith("$L__BB") for label in function.labels)


def _polls(step: Step) -> bool:
    """Whether a step reads memory that other threads may write at the same time."""
    return step.kind.polls or any(map(step.form.has, ("volatile", "relaxed", "acquire")))


def _meets(step: Step) -> bool:
    """Whether lanes wait for other warps at a step."""
    return step.kind.together not in ("", "warp")


def _names(function: Function) -> set[str]:
    """The variables, functions and labels that a function's instructions name."""
    return set[str]().union(*map(_named, function.instructions))


def _named(instruction: Instruction) -> set[str]:
    """The symbols that an instruction names."""
    operands = list[Operand](instruction.operands)
    operands += [part for o in operands if isinstance(o, Group) for part in o.elements]
    operands += [o.base for o in operands if isinstance(o, Address)]
    return {o.name for o in operands if isinstance(o, Symbol)}


def _check_types(function: Function) -> None:
    """Refuse registers and variables of types that are not simulated."""
    declared = [*function.registers.items(), *((v.name, v.type) for v in function.variables)]
    for name, kind in declared:
        if kind not in DTYPES:
            raise UnsupportedInstruction(
                f"{function.name} (line {function.line}): {name} is a .{kind}, a type that is not simulated\n"
                "use words of 64 bits or fewer"
            )
