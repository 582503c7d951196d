"""Binding of instructions: each becomes a `Step` with its row's function and one closure per operand."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from simwarp.faults import PtxSyntaxError
from simwarp.fragments import fragments_of
from simwarp.program import refusals
from simwarp.program.operands import (
    Read,
    Registers,
    Write,
    careful_computation,
    computation,
    computation_with_gaps,
    constant_of,
    pack,
    register_reader,
    register_writer,
    unpack,
    write_each,
)
from simwarp.program.program import Routine, Step
from simwarp.program.steps import Argument, Call
from simwarp.ptx.instructions import TABLE
from simwarp.ptx.instructions.textures import geometry_of
from simwarp.ptx.kinds import CALL, EXIT, LOAD, MBARRIER, PURE, RETURN, STORE, SURFACE_LOAD
from simwarp.ptx.rows import DTYPES, Form, OperandSpec, Row, storage
from simwarp.ptx.spaces import space_of, to_generic
from simwarp.ptx.special_registers import TYPES
from simwarp.ptx.syntax import (
    Address,
    Function,
    Group,
    Immediate,
    Instruction,
    Module,
    Operand,
    Pair,
    Register,
    Symbol,
    Variable,
    Vector,
)

if TYPE_CHECKING:
    from simwarp.program.link import Layout


def target_number(module: Module) -> int:
    """The compute capability of a module's target, times ten."""
    return int("".join(filter(str.isdigit, module.target)) or 0)


class Binder:
    """Binds the parsed instructions of one function to executable steps."""

    def __init__(
        self,
        module: Module,
        function: Function,
        layout: Layout,
        is_entry: bool,
        routine: Routine,
        first_slot: int,
    ) -> None:
        self.module, self.function, self.layout = module, function, layout
        self.is_entry, self.routine, self.first_slot = is_entry, routine, first_slot
        self.target = target_number(module)
        self.types = dict(function.registers)
        self.row: Row | None = None
        """The row of the instruction being bound."""
        self.follows = False
        """Whether the operand being bound may be undefined, which makes the step's result undefined."""
        self.slots = {name: first_slot + i for i, name in enumerate(function.registers)}

    # ---- one instruction ---------------------------------------------------------------------------

    def step(self, instruction: Instruction) -> Step:
        """Bind an instruction of the function: resolve its row, registers, labels and memory."""
        entry = TABLE.find(instruction.opcode)
        if entry is None:
            raise refusals.without_a_row(instruction)
        row, form = entry
        if row.minimum_sm > self.target:
            message = f"needs sm_{row.minimum_sm}; this module is for {self.module.target}"
            advice = f"compile for sm_{row.minimum_sm} or newer (PTX ISA, section {row.section})"
            raise refusals.unsupported(instruction, f"{message}\n{advice}")
        if row.architecture and row.architecture != self.module.target:
            message = f"exists on {row.architecture} alone; this module is for {self.module.target}"
            advice = f"compile for {row.architecture} (PTX ISA, section {row.section})"
            raise refusals.unsupported(instruction, f"{message}\n{advice}")
        step = Step(instruction, row, form, partial(row.function, form), row.kind)
        self.row = row
        if row.kind is RETURN and self.is_entry:
            step.kind = EXIT
        if instruction.guard is not None:
            step.guard = self.reader(instruction, instruction.guard, "pred")
        if row.kind is CALL:
            step.call = self.call(step)
        else:
            self.operands(step)
        return step

    def end(self) -> Step:
        """A ``ret`` step, for a function whose last instruction is not a return."""
        return self.step(Instruction("ret", (), None, self.function.line, "}"))

    def operands(self, step: Step) -> None:
        """Bind the operands, in PTX order: destinations, then sources."""
        row, rest = step.row, list(step.instruction.operands)
        self.bind_destinations(step, rest)
        sources: list[Read] = []
        for i, spec in enumerate(row.sources):
            if spec.kind == "carry":
                self.follows = True
                sources.append(self.reader(step.instruction, self.carry(), "pred"))
                self.follows = False
                continue
            if spec.kind == "rank":
                sources.append(lambda chunk: chunk.special("%cluster_ctarank"))
                continue
            if spec.optional and not step.form.combines:
                break
            if spec.absent and len(rest) <= sum(not s.absent for s in row.sources[i + 1 :]):
                continue
            if spec.kind == "count" and len(rest) == 1 and step.form.has("L2::cache_hint"):
                continue
            if not rest:
                raise self.misfit(step)
            operand = rest.pop(0)
            if spec.name == "bar":
                step.barrier = Step(step.instruction, row, step.form, step.function, MBARRIER)
                self.address(step.barrier, operand, "shared" if space_of(step.form.modifiers) else "generic")
            elif spec.kind == "tensor":
                self.tensor(step, operand)
            elif spec.kind in ("texture", "surface", "handle"):
                self.texture(step, operand, spec)
            elif spec.kind == "gradient":
                self.vector(step, operand, _coordinates(step, layers=False), "f32")
            elif spec.kind == "offsets":
                step.offsets = self.vector(step, operand, self.dimensions(step) - 2, "u16")
            elif spec.memory and step.base is not None:
                step.source = Step(step.instruction, row, step.form, step.function, LOAD)
                self.address(step.source, operand, _source_space(step.form))
            elif spec.memory:
                self.address(step, operand)
            elif spec.kind == "label":
                step.target = self.label(step, operand)
            elif spec.kind == "labels":
                step.table = self.labels(step, operand)
            elif spec.is_fragment or (spec.kind == "matrix" and isinstance(operand, Vector)):
                sources.append(self.fragment(step, operand, replace(spec, kind="fragment")))
            else:
                self.follows = row.kind in (PURE, STORE) or (row.moves and not sources)
                sources.append(self.source(step, operand, spec))
                self.follows = False
        step.sources = tuple(sources)
        if row.kind is PURE and row.ignores is not None:
            ignores = partial(row.ignores, step.form)
            step.compute = careful_computation(
                step.function, ignores, sources, step.destinations, len(row.destinations)
            )
        elif row.kind is PURE and row.unspecified is not None:
            unspecified = partial(row.unspecified, step.form)
            step.compute = computation_with_gaps(step.function, unspecified, sources, step.destinations)
        elif row.kind is PURE:
            step.compute = computation(step.function, sources, step.destinations, len(row.destinations))
        if rest:
            raise self.misfit(step)

    def bind_destinations(self, step: Step, rest: list[Operand]) -> None:
        """Bind the destinations, and remove their operand from ``rest``."""
        specs = step.row.destinations
        given: list[Operand | None] = []
        if any(spec.kind != "carry" for spec in specs):
            first = rest.pop(0) if rest else None
            given = [first.first, first.second] if isinstance(first, Pair) else [first]
            given[0] = _alone(step, given[0])
            self.check_vector(step, given[0])
        if any(spec.kind == "carry" for spec in specs):
            given.append(self.carry())
        if len(given) > len(specs) or ("pair" in step.row.traits and not self.is_predicate(given[-1])):
            raise self.misfit(step)
        for operand, spec in zip(given, specs, strict=False):
            refusals.check_class(step, operand, spec, self.types)
        step.destinations = tuple(
            self.writer(step, operand, spec) for operand, spec in zip(given, specs, strict=False)
        )

    def source(self, step: Step, operand: Operand, spec: OperandSpec) -> Read:
        """A closure that reads a source operand in the executing lanes."""
        operand = _alone(step, operand)
        if step.form.resolve(spec.kind) == step.form.T:
            self.check_vector(step, operand)
        if spec.kind == "number" and not isinstance(operand, Immediate):
            raise self.misfit(step)
        if "generic" in step.row.traits:
            refusals.check_space(step, operand, self.layout.spaces, space_of(step.form.modifiers))
        if spec.kind == "count":
            spec = replace(spec, kind="pred" if self.is_predicate(operand) else "u32")
        refusals.check_class(step, operand, spec, self.types)
        refusals.check_barrier(step, operand, spec)
        refusals.check_copy(step, operand, spec)
        refusals.check_product(step, operand, spec)
        refusals.check_registers(step, operand)
        return self.reader(step.instruction, operand, step.form.resolve(spec.kind), step.form)

    def is_predicate(self, operand: Operand | None) -> bool:
        """Whether an operand is a predicate register."""
        return isinstance(operand, Register) and self.types.get(operand.name) == "pred"

    def fragment(self, step: Step, operand: Operand, spec: OperandSpec) -> Read:
        """A closure that reads the registers of a fragment, as a list."""
        kind = step.form.resolve(spec.kind)
        registers = self.fragment_registers(step, operand, spec)
        parts = [self.reader(step.instruction, register, kind) for register in registers]
        return lambda chunk: [part(chunk) for part in parts]

    def fragment_registers(self, step: Step, operand: Operand | None, spec: OperandSpec) -> list[Operand]:
        """The registers of a fragment operand, after a check of their number; one needs no braces."""
        given = list(operand.elements) if isinstance(operand, Vector) else [operand]
        wanted = fragments_of(step.instruction.opcode).operands[spec.name].layout.registers
        if len(given) != wanted or None in given:
            opcode = step.instruction.opcode
            message = f"has {len(given)} registers\na fragment of {opcode} has {wanted} in each lane"
            advice = f"`simwarp frag {opcode}` shows which element each one holds"
            raise refusals.misuse(step.instruction, f"{message}\n{advice}", f"operand {spec.name} of ")
        return [register for register in given if register is not None]

    def carry(self) -> Register:
        """The register that holds the condition code's carry flag (PTX ISA 9.7.2), made on first use."""
        if "%carry" not in self.slots:
            self.slots["%carry"] = self.first_slot + len(self.slots)
            self.types["%carry"] = "pred"
        return Register("%carry")

    def misfit(self, step: Step) -> PtxSyntaxError:
        """The error for operands that do not match the row."""
        row = step.row
        message = (
            f"do not fit `{row.spelling}  {row.syntax}`\ncompare them with the PTX ISA, section {row.section}"
        )
        return refusals.misuse(step.instruction, message, "operands of ")

    def check_vector(self, step: Step, operand: Operand | None) -> None:
        """Refuse a vector operand with a wrong number of registers, or with registers of several widths."""
        wanted = step.form.vector
        if wanted == 1:
            return
        if not isinstance(operand, Vector) or len(operand.elements) != wanted:
            raise self.misfit(step)
        names = [e.name for e in operand.elements if isinstance(e, Register)]
        if len({storage(self.types[name]) for name in names if name in self.types}) > 1:
            raise self.misfit(step)

    # ---- control -----------------------------------------------------------------------------------

    def label(self, step: Step, operand: Operand) -> int:
        """The number of the step that follows a label."""
        if not isinstance(operand, Symbol) or operand.name not in self.function.labels:
            known = ", ".join(self.function.labels) or "none"
            message = f"does not name a label of this function\nuse one of its labels: {known}"
            raise refusals.misuse(step.instruction, message)
        return self.routine.first + self.function.labels[operand.name]

    def labels(self, step: Step, operand: Operand) -> tuple[int, ...]:
        """The step numbers of a ``.branchtargets`` list."""
        names = self.function.tables.get(operand.name, ()) if isinstance(operand, Symbol) else ()
        if not names:
            known = ", ".join(self.function.tables) or "none"
            message = f"does not name a .branchtargets list\nuse one of this function: {known}"
            raise refusals.misuse(step.instruction, message)
        return tuple(self.label(step, Symbol(name)) for name in names)

    def call(self, step: Step) -> Call:
        """Bind ``call (returns), function, (arguments), prototype``; only the function is required."""
        instruction = step.instruction
        rest = list(instruction.operands)
        returns = rest.pop(0) if rest and isinstance(rest[0], Group) else Group(())
        target = rest.pop(0) if rest else None
        arguments = rest.pop(0) if rest and isinstance(rest[0], Group) else Group(())
        if not isinstance(returns, Group) or not isinstance(arguments, Group):
            raise self.misfit(step)
        call = Call(
            arguments=[self.argument(instruction, o) for o in arguments.elements],
            returns=[self.argument(instruction, o) for o in returns.elements],
        )
        if isinstance(target, Register):
            call.address = self.reader(instruction, target, "u64")
        elif isinstance(target, Symbol) and target.name in self.module.functions:
            call.function = self.module.functions[target.name].name
        else:
            known = ", ".join(self.module.functions) or "no functions"
            message = f"calls an undeclared function\nuse one of this module: {known}"
            raise refusals.misuse(instruction, message)
        return call

    def argument(self, instruction: Instruction, operand: Operand) -> Argument:
        """Bind an argument or result of a call on the caller's side."""
        if isinstance(operand, Symbol) and operand.name in self.layout.frame:
            return Argument(self.layout.frame[operand.name])
        if isinstance(operand, Register):
            kind = self.types.get(operand.name, "b32")
            slot = self.slot(instruction, operand)
            write = register_writer(slot, storage(kind))
            return Argument(
                read=self.reader(instruction, operand, f"b{storage(kind).itemsize * 8}"), write=write
            )
        if isinstance(operand, Immediate):
            return Argument(read=self.reader(instruction, operand, "b64"))
        message = "passes an operand that is neither a .param variable nor a register nor a number"
        raise refusals.misuse(instruction, message)

    def formal(self, variable: Variable) -> Argument:
        """Bind a parameter or return value on the side of this function."""
        size = DTYPES[variable.type].itemsize * variable.count
        if variable.name in self.layout.frame:
            return Argument(self.layout.frame[variable.name], size)
        slot, declared = self.slots[variable.name], storage(self.types[variable.name])
        return Argument(
            -1, size, register_reader(slot, declared, declared, False), register_writer(slot, declared)
        )

    # ---- addresses ---------------------------------------------------------------------------------

    def address(self, step: Step, operand: Operand, space: str = "") -> None:
        """Bind the address operand of a memory access: its state space, base and offset."""
        if not isinstance(operand, Address) or operand.more:
            raise self.misfit(step)
        step.space = space or space_of(step.form.modifiers) or "generic"
        refusals.check_space(step, operand, self.layout.spaces, step.space)
        base = operand.base
        if step.space == "param" and not (self.is_entry and self.is_parameter(base)):
            step.space = "param" if self.is_entry and isinstance(base, Register) else "local"
        if step.space == "param" and isinstance(base, Symbol):
            step.symbol, step.offset = base.name, base.offset + operand.offset
            width = step.form.dtype.itemsize * step.form.vector if step.form.T else 0
            room = self.layout.sizes[base.name] - width
            if not 0 <= step.offset <= room:
                raise self.misfit(step)
            return
        step.base = self.base(step, base, operand.offset)

    def tensor(self, step: Step, operand: Operand) -> None:
        """Bind ``[map, {coordinates}]``: the map's generic address, and one coordinate for each dimension."""
        if not isinstance(operand, Address) or len(operand.more) != 1 or operand.offset:
            raise self.misfit(step)
        step.coordinates = self.vector(step, operand.more[0], self.dimensions(step), "s32")
        access = step
        if step.base is not None:
            access = step.source = Step(step.instruction, step.row, step.form, step.function, LOAD)
        self.address(access, Address(operand.base), "global")

    def texture(self, step: Step, operand: Operand, spec: OperandSpec) -> None:
        """Bind ``[handle]`` or ``[handle, {coordinates}]``; a layer is the first coordinate."""
        if not isinstance(operand, Address) or operand.offset or len(operand.more) != (spec.kind != "handle"):
            raise self.misfit(step)
        step.handle, step.space = self.reader(step.instruction, operand.base, "u64"), "global"
        for given in operand.more:
            elements = given.elements if isinstance(given, Vector) else (given,)
            if len(elements) != _coordinates(step):
                raise self.misfit(step)
            kind = step.form.U or ("s32" if spec.kind == "surface" else "f32")
            layered = geometry_of(step.form).startswith("a")
            kinds = ["u32" if layered and i == 0 else kind for i in range(len(elements))]
            reads = zip(elements, kinds, strict=True)
            step.coordinates = tuple(self.reader(step.instruction, e, k) for e, k in reads)

    def dimensions(self, step: Step) -> int:
        """The dimensions of a tensor that the opcode names."""
        return int(step.form.modifiers[0].removesuffix("d"))

    def vector(self, step: Step, operand: Operand, count: int, kind: str) -> tuple[Read, ...]:
        """Closures that read the elements of a vector of ``count`` elements."""
        if not isinstance(operand, Vector) or len(operand.elements) != count:
            raise self.misfit(step)
        return tuple(self.reader(step.instruction, element, kind) for element in operand.elements)

    def is_parameter(self, base: Operand) -> bool:
        """Whether the base of an address is a kernel parameter."""
        return isinstance(base, Symbol) and base.name in self.layout.parameters

    def base(self, step: Step, base: Register | Symbol | Immediate, offset: int) -> Read:
        """A closure that reads base + offset, modulo the width of the base."""
        instruction = step.instruction
        if isinstance(base, Symbol):
            space, read = self.symbol(instruction, Symbol(base.name, base.offset + offset))
            if step.space == "generic":
                return lambda chunk: to_generic(read(chunk), space)
            return read
        if isinstance(base, Register) and self.types.get(base.name, "b64") in ("b32", "u32", "s32"):
            read, more = self.reader(instruction, base, "u32"), np.uint32(offset & 0xFFFFFFFF)
            return lambda chunk: np.add(read(chunk), more).astype(np.uint64)
        read, step_by = self.reader(instruction, base, "u64"), np.uint64(offset & 0xFFFF_FFFF_FFFF_FFFF)
        return (lambda chunk: np.add(read(chunk), step_by)) if offset else read

    def symbol(self, instruction: Instruction, operand: Symbol) -> tuple[str, Read]:
        """The state space of a symbol, and a closure that reads its address in that space."""
        name, layout = operand.name, self.layout
        if name in layout.frame:
            at = np.uint64(layout.frame[name] + operand.offset)
            return "local", (lambda _: at) if self.is_entry else (lambda chunk: np.add(chunk.frame, at))
        for space, places in (("shared", layout.shared), ("param", layout.parameters)):
            if name in places:
                return space, partial(_always, np.uint64(places[name] + operand.offset))
        if name in layout.functions:
            return "global", partial(_always, np.uint64(layout.functions[name]))
        if name in layout.globals:
            (space, key), more = layout.globals[name], np.uint64(operand.offset & 0xFFFF_FFFF_FFFF_FFFF)
            return space, lambda chunk: np.add(chunk.launch.symbols[key], more, dtype=np.uint64)
        message = f"names {name}, which is not declared\ndeclare it in this function or module"
        raise refusals.misuse(instruction, message)

    # ---- operands ----------------------------------------------------------------------------------

    def slot(self, instruction: Instruction, register: Register) -> int:
        """The slot of a register, the index of its values in a chunk."""
        if register.name not in self.slots:
            message = "is not declared\ndeclare it with .reg"
            raise refusals.misuse(instruction, message, f"register {register.name} of ")
        return self.slots[register.name]

    def reader(self, instruction: Instruction, operand: Operand, kind: str, form: Form | None = None) -> Read:
        """A closure that reads an operand as PTX type ``kind``."""
        if isinstance(operand, Immediate):
            if DTYPES[kind].kind == "f" and not operand.float_bits:
                wanted = f"where a {kind} literal such as 0f3F800000 is needed"
                raise refusals.misuse(instruction, f"has {operand.value} {wanted}")
            constant = constant_of(operand, kind)
            return lambda chunk: constant
        if isinstance(operand, Symbol):
            return self.named(instruction, operand, kind)
        if isinstance(operand, Vector):
            if form is not None and form.vector > 1:
                parts = [self.reader(instruction, e, kind) for e in operand.elements]
                return lambda chunk: [part(chunk) for part in parts]
            bits = self.piece(instruction, operand, kind)
            return pack([self.reader(instruction, e, f"b{bits}") for e in operand.elements], bits, kind)
        if not isinstance(operand, Register):
            message = "is not a value\ngive a register, a number or a name"
            raise refusals.misuse(instruction, message, "an operand of ")
        if operand.name not in self.slots and operand.name in TYPES:
            return self.special(instruction, operand.name, kind)
        slot = self.slot(instruction, operand)
        declared, wanted = storage(self.types[operand.name]), DTYPES[kind]
        self.check_width(instruction, operand, wanted)
        return register_reader(slot, declared, wanted, operand.negated, self.follows)

    def named(self, instruction: Instruction, operand: Symbol, kind: str) -> Read:
        """A closure that reads ``WARP_SZ``, or the address of a variable or function."""
        wanted = DTYPES[kind]
        if operand.name == "WARP_SZ":
            constant = wanted.type(32)
            return lambda chunk: constant
        _, address = self.symbol(instruction, operand)
        return lambda chunk: address(chunk).astype(wanted)

    def special(self, instruction: Instruction, name: str, kind: str) -> Read:
        """A closure that reads a special register; ``mov`` may truncate it, ``cvt`` may also widen it."""
        have, wanted = DTYPES[TYPES[name]], DTYPES[kind]
        row = self.row
        if row is None or not row.special or (have.itemsize < wanted.itemsize and not row.wider):
            message = f"cannot read {name}\nmove it to a register of its width first"
            raise refusals.misuse(instruction, message)
        if have.itemsize == wanted.itemsize:
            return lambda chunk: chunk.special(name)
        return lambda chunk: chunk.special(name).astype(wanted)

    def check_width(self, instruction: Instruction, register: Register, wanted: np.dtype[Any]) -> None:
        """Raise for a register whose width differs from the operand's, as ptxas does."""
        declared = storage(self.types[register.name])
        if declared.itemsize == wanted.itemsize and (declared.kind == "b") == (wanted.kind == "b"):
            return
        wider = self.row is not None and self.row.wider and declared.itemsize > wanted.itemsize
        if wider and np.bool_ not in (declared, wanted):
            return
        takes = "a .pred" if wanted == np.bool_ else f"{wanted.itemsize * 8} bits"
        message = f"is a .{self.types[register.name]}; the operand takes {takes}"
        advice = "declare it with the width that the instruction has, or convert it first"
        raise refusals.misuse(instruction, f"{message}\n{advice}", f"register {register.name} of ")

    def piece(self, instruction: Instruction, operand: Vector, kind: str) -> int:
        """The bits of each register of a ``{a, b}`` operand that makes one word."""
        bits, rest = divmod(DTYPES[kind].itemsize * 8, len(operand.elements))
        types = [self.types.get(e.name) for e in operand.elements if isinstance(e, Register)]
        if rest or any(t is not None and storage(t).itemsize * 8 != bits for t in types):
            raise refusals.misuse(instruction, f"together do not make a {kind}", "the pieces of ")
        return bits

    def writer(self, step: Step, operand: Operand | None, spec: OperandSpec) -> Write | None:
        """A closure that writes a value to a destination operand; None if the operand is ``_``."""
        if spec.is_fragment:
            kind = OperandSpec(spec.name, step.form.resolve(spec.kind))
            registers = self.fragment_registers(step, operand, spec)
            return partial(write_each, [self.writer(step, register, kind) for register in registers])
        if isinstance(operand, Vector):
            if step.form.vector > 1:
                return partial(write_each, [self.writer(step, e, spec) for e in operand.elements])
            bits = self.piece(step.instruction, operand, step.form.resolve(spec.kind))
            piece = OperandSpec(spec.name, f"b{bits}")
            return partial(unpack, [self.writer(step, e, piece) for e in operand.elements], bits)
        if operand is None or (isinstance(operand, Register | Symbol) and operand.name == "_"):
            return None
        if not isinstance(operand, Register):
            raise self.misfit(step)
        slot = self.slot(step.instruction, operand)
        self.check_width(step.instruction, operand, DTYPES[step.form.resolve(spec.kind)])
        return register_writer(slot, storage(self.types[operand.name]))


def _coordinates(step: Step, *, layers: bool = True) -> int:
    """The number of coordinates in an instruction on a texture or surface; PTX writes three as four."""
    geometry = geometry_of(step.form)
    count = 3 if "cube" in geometry else int(geometry.removeprefix("a")[0])
    count += layers and geometry.startswith("a")
    return 4 if count == 3 else count


def _alone(step: Step, operand: Any) -> Any:
    """The element of a one-element vector, as texture and surface instructions write them."""
    one = step.handle is not None or step.row.kind is SURFACE_LOAD
    return (
        operand.elements[0] if one and isinstance(operand, Vector) and len(operand.elements) == 1 else operand
    )


def _source_space(form: Form) -> str:
    """The state space that a copy reads: the last of two that the opcode names, or global memory."""
    spaces = [space for word in form.modifiers if (space := space_of([word]))]
    return spaces[-1] if len(spaces) > 1 else "global"


def _always(value: Any, chunk: Registers) -> Any:
    """Read a constant; bound to the constant by `functools.partial`."""
    return value
