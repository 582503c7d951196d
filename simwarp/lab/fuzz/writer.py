r"""Writes programs as PTX; each kind of statement writes itself with the help of `Writer`.

Before lanes diverge, a ballot stores in a register the mask of the lanes on each side. So the member mask of
each ``.sync`` instruction names exactly the lanes that will execute it, whatever the scheduling.

The lanes of one side of a branch synchronise:

>>> from simwarp.lab.fuzz.statements import Sync
>>> writer = Writer(Program(0, 0, (), veiled=False))
>>> yes, no = writer.split_mask("%p0", FULL)
>>> writer.body([Sync(("bar.warp.sync",))], yes)
>>> [line.strip() for line in writer.lines if yes in line]
['vote.sync.ballot.b32 %t0, %p0, 0xFFFFFFFF;', 'xor.b32 %t1, %t0, 0xFFFFFFFF;', 'bar.warp.sync %t0;']

>>> print(module_text([Program(0, 0, (), outputs=("%r0",))]).replace("\t", "  "))  # doctest: +ELLIPSIS
.version 9.0
.target sm_90
...
.visible .entry fuzz_0(
  .param .align 16 .b8 numbers[32],
  .param .u64 inputs,
  .param .u64 outputs,
  .param .u64 memory
)
{
...
  st.global.b32 [%outputs+32], %r0;
  ret;
}
<BLANKLINE>
>>> literal("f32", 0x3F800000), literal("s16", 0xFFFF), literal("u32", 0xFFFF)
('0f3F800000', '-1', '0xFFFF')
>>> vector(("%r0", "%r1")), vector(("%r0",)), vector("%r0")
('{%r0, %r1}', '%r0', '%r0')
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from simwarp.lab.fuzz.memory import BASES, OWN, PARAMETERS, RECORD, SET, SETS, TABLE, needed, variables
from simwarp.lab.fuzz.program import Address, Condition, Operand, Program, Statement
from simwarp.lab.fuzz.registers import CLASS, REGISTERS, register_class
from simwarp.lab.fuzz.vocabulary import find
from simwarp.ptx.kinds import BARRIER, WARP_BARRIER
from simwarp.ptx.rows import Form, OperandSpec
from simwarp.verify.draw import Draw

HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"
FULL = "0xFFFFFFFF"
"""The member mask of a whole warp."""


class Writer:
    """Writes one program: first the body, then the initialisation of the registers that the body uses."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.registers: dict[str, str] = {}  # register to class
        self.lines: list[str] = []
        self.guard = ""  # the guard predicate of the next instructions
        self.used: set[str] = set()  # registers of `BASES` to initialise even if the body does not use them
        self.functions: set[str] = set()  # the PTX of device functions that the body calls
        self._labels = 0

    # ---- lines ---------------------------------------------------------------------------------------

    def write(self, text: str) -> None:
        """Append an instruction, under the guard if there is one."""
        self.lines.append(f"\t{f'@{self.guard} ' if self.guard else ''}{text};")

    def mark(self, label: str) -> None:
        """Append a label to the PTX."""
        self.lines.append(f"{label}:")

    def label(self) -> str:
        """A new label name, unused so far."""
        self._labels += 1
        return f"L{self._labels}"

    def new(self, kind: str) -> str:
        """Declare a new register of a class, such as "b32"; returns its name."""
        name = f"%{'q' if kind == 'pred' else 't'}{len(self.registers)}"
        self.registers[name] = kind
        return name

    def result(self, opcode: str, *sources: object) -> str:
        """Append an instruction whose result goes to a new register; return the register."""
        base, *_, kind = opcode.split(".")
        target = self.new("pred" if base == "setp" else "b64" if ".wide." in opcode else register_class(kind))
        self.write(f"{opcode} {target}, {', '.join(map(str, sources))}")
        return target

    def sync(self, opcode: str, mask: str) -> None:
        """Append an instruction without a result, with the operand that it requires."""
        row, _ = find(opcode)
        operand = {WARP_BARRIER: f" {mask}", BARRIER: " 0"}.get(row.kind, " 5" * bool(row.sources))
        self.write(opcode + operand)

    # ---- programs ------------------------------------------------------------------------------------

    def entry(self, name: str) -> str:
        """The PTX of the program's kernel, ``name``."""
        self.body(self.program.body, FULL)
        self.end("ret")
        body, self.lines = self.lines, []
        used = self.used.union(re.findall(r"%\w+", "\n".join(body)))
        own = [register for register in REGISTERS if register in used]
        used = needed(used | {"%own_inputs"} if own else used)
        self.initialise(used)
        for register in own:
            self.registers[register] = CLASS[register]
            self.load_input(register)
        declared = [f"\t.reg .{kind} {register};" for register, kind in self.registers.items()]
        whole = "\n".join([*variables(used, self.program.block), *declared, *self.lines, *body])
        return f"\n.visible .entry {name}(\n{PARAMETERS}\n)\n{{\n{self.renamed(whole)}\n}}\n"

    def initialise(self, used: set[str]) -> None:
        """Initialise the used registers of `BASES`, and clear a thread's own shared and local memory."""
        for name, (kind, lines) in BASES.items():
            if name in used:
                self.registers[name] = kind
                for line in lines.split("; "):
                    self.write(line.format(name, block=self.program.block))
        for space in ("%shared", "%local"):
            if space in used:
                zero = self.result("mov.b64", 0)
                for at in range(0, OWN, 16):
                    self.write(f"st.{space[1:]}.v2.b64 [{space}+{at}], {{{zero}, {zero}}}")

    def renamed(self, text: str) -> str:
        """The text with the registers renamed, if the program has a seed for names."""
        if not self.program.names:
            return text
        draw, left = Draw(self.program.names, "names", 0), list(self.registers)
        for i in range(len(left) - 1, 0, -1):
            j = draw.integer(0, i)
            left[i], left[j] = left[j], left[i]
        other = {name: f"%w{i}" for i, name in enumerate(left)}
        return re.sub(r"%\w+", lambda found: other.get(found[0], found[0]), text)

    def body(self, body: Sequence[Statement], mask: str) -> None:
        """Write statements in order, for the lanes of a mask."""
        for statement in body:
            mask = statement.write(self, mask) or mask
            if self.program.veiled:
                for register in sorted(statement.touched()[1]):
                    self.veil(register)

    def end(self, opcode: str) -> None:
        """Store the program's outputs, and append the final instruction."""
        for register in self.program.outputs:
            self.store_output(register)
        self.write(opcode)

    # ---- values --------------------------------------------------------------------------------------

    def veil(self, register: str, source: str = "") -> None:
        """Set a register to its own value, or that of ``source``, hidden from the compiler.

        It is combined by xor with a word of the outputs, which is zero at the start, unknown to the compiler.
        """
        kind = CLASS.get(register) or self.registers[register]
        zero = "%never" if kind == "pred" else f"%zero{kind[1:]}"
        self.write(f"xor.{kind} {register}, {source or register}, {zero}")

    def load_input(self, register: str) -> None:
        """Write a load of a register's initial value from the thread's inputs."""
        at = f"[%own_inputs+{8 * REGISTERS.index(register)}]"
        if CLASS[register] != "pred":
            return self.write(f"ld.global.{CLASS[register]} {register}, {at}")
        bit = self.result("and.b32", self.result("ld.global.b32", at), 1)
        return self.write(f"setp.ne.u32 {register}, {bit}, 0")

    def store_output(self, register: str) -> None:
        """Write a store of a register to the thread's outputs."""
        kind, value = CLASS[register], register
        if kind == "pred":
            kind, value = "b32", self.result("selp.b32", 1, 0, register)
        self.write(f"st.global.{kind} [%outputs+{8 * REGISTERS.index(register)}], {value}")

    def address(self, address: Address, size: int) -> str:
        """The PTX of an address operand, ``[…]``, for an access of ``size`` bytes."""
        if address.region == "numbers":
            return f"[numbers+{address.offset}]"
        name = "own_inputs" if address.region == "inputs" and not address.index else address.region
        base = f"%{'generic_' if address.generic else ''}{name}"
        if not address.index:
            return f"[{base}+{address.offset}]"
        whole = {"inputs": (self.program.threads, RECORD), "tallies": (SETS, SET), "tally": (4, 8)}
        records, record = whole.get(address.region, (OWN // size, size))
        chosen = self.result("and.b32", address.index, records - 1)
        mad = "mad.wide.u32" if BASES[base][0] == "b64" else "mad.lo.u32"
        return f"[{self.result(mad, chosen, record, base)}+{address.offset}]"

    # ---- conditions and masks ------------------------------------------------------------------------

    def condition(self, test: Condition) -> str:
        """Compute a condition into a predicate register; return the register."""
        if test.kind == "data":
            answer = self.result("not.pred" if test.negated else "mov.pred", test.what)
            if self.program.veiled:
                self.veil(answer)
            return answer
        if test.kind == "never":
            bit = self.result("and.b32", self.result("mad.lo.u32", test.what, test.what, test.what), 1)
        else:
            number = {"lane": "%lane", "warp": "%here", "block": "%cta"}[test.kind]
            bit = self.result("and.b32", number, 1 << int(test.what) << 5 * (test.kind == "warp"))
        return self.result(f"setp.{'eq' if test.negated else 'ne'}.u32", bit, 0)

    def split_mask(self, holds: str, mask: str) -> list[str]:
        """Split a mask by a predicate: the lanes where it holds, then the other lanes of the mask."""
        yes = self.result("vote.sync.ballot.b32", holds, mask)
        return [yes, self.result("xor.b32", yes, mask)]

    def is_member(self, lane: str, mask: str) -> str:
        """Compute whether a lane is in a mask; return the predicate register."""
        bit = self.result("and.b32", self.result("shr.u32", mask, lane), 1)
        return self.result("setp.ne.u32", bit, 0)


def module_text(programs: Sequence[Program]) -> str:
    """A PTX module with the programs as entries ``fuzz_0``, ``fuzz_1`` …."""
    writers = [Writer(program) for program in programs]
    entries = "".join(writer.entry(f"fuzz_{i}") for i, writer in enumerate(writers))
    functions = sorted(set[str]().union(*(writer.functions for writer in writers)))
    return "".join([HEAD, TABLE if ", table;" in entries else "", *functions, entries])


def literal(kind: str, bits: int) -> str:
    """A PTX literal with the given bits, for an operand of a type."""
    if kind in ("f32", "f64"):
        return f"0f{bits:08X}" if kind == "f32" else f"0d{bits:016X}"
    if kind[0] == "s" and bits >> int(kind[1:]) - 1:
        return str(bits - (1 << int(kind[1:])))  # ptxas reads 0x80000000 as a positive s32
    return str(bits) if bits < 10 else f"0x{bits:X}"


def written(operand: Operand, form: Form, spec: OperandSpec) -> str:
    """A source operand as PTX text, in an operand slot of a form."""
    if isinstance(operand, int):
        return literal(form.T if spec.kind == "B" else form.resolve(spec.kind), operand)
    return vector(operand)


def vector(operand: Operand) -> str:
    """Format a register, or a vector in braces, as PTX text."""
    listed = operand if isinstance(operand, tuple) else (str(operand),)
    return f"{{{', '.join(listed)}}}" if len(listed) > 1 else "".join(listed)
