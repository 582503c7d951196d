"""Where the memories of a program lie, and how its text reaches them."""

from __future__ import annotations

from simwarp.ptx.rows import DTYPES
from simwarp.testing.fuzz.lines import Lines, vector
from simwarp.testing.fuzz.program import CLASS, REGISTERS, Atomic, Load, Operand, Place, Program, Store
from simwarp.testing.fuzz.vocabulary import FINITE, find

RECORD = 8 * len(REGISTERS)
"""Bytes of a thread's inputs, and of its outputs: 8 for each register."""
OWN = 32
"""Bytes of each memory that a thread has for itself; also of the parameter and of the constants."""
SETS, SET = 8, 256
"""The tallies in global memory: so many sets of so many bytes, in front of the threads' own memory."""
CELL = 16
"""Bytes of a thread's cell of shared memory, by which threads exchange what they have."""
TALLIES: tuple[str, ...] = (
    *(f"{operation}.b{bits}" for operation in ("add", "and", "or", "xor") for bits in (32, 64)),
    *(f"{end}.{sign}{bits}" for end in ("min", "max") for sign in "us" for bits in (32, 64)),
)
"""What each word of a set is updated by: operations whose order does not matter, one for each word."""

PARAMETERS = (
    f"\t.param .align 16 .b8 numbers[{OWN}],\n"
    "\t.param .u64 inputs,\n\t.param .u64 outputs,\n\t.param .u64 memory"
)
"""In this order no parameter needs padding before it."""
TABLE = f".const .align 16 .b8 table[{OWN}] = {{{', '.join(str(37 * i % 256) for i in range(OWN))}}};\n"

_TO_GLOBAL = "cvta.to.global.u64 {0}, {0}"
_BASES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "%lane": ("b32", "", ("mov.u32 {0}, %laneid",)),
    "%lane_bit": ("b32", "", ("mov.u32 {0}, %lanemask_eq",)),
    "%here": ("b32", "", ("mov.u32 {0}, %tid.x",)),
    "%cta": ("b32", "", ("mov.u32 {0}, %ctaid.x",)),
    "%thread": ("b32", "%here %cta", ("mad.lo.u32 {0}, %cta, {block}, %here",)),
    "%inputs": ("b64", "", ("ld.param.u64 {0}, [inputs]", _TO_GLOBAL)),
    "%own_inputs": ("b64", "%thread %inputs", (f"mad.wide.u32 {{0}}, %thread, {RECORD}, %inputs",)),
    "%outputs": (
        "b64",
        "%thread",
        ("ld.param.u64 {0}, [outputs]", _TO_GLOBAL, f"mad.wide.u32 {{0}}, %thread, {RECORD}, {{0}}"),
    ),
    "%zero64": ("b64", "%outputs", ("ld.volatile.global.b64 {0}, [%outputs]",)),
    "%zero32": ("b32", "%zero64", ("cvt.u32.u64 {0}, %zero64",)),
    "%zero16": ("b16", "%zero64", ("cvt.u16.u64 {0}, %zero64",)),
    "%never": ("pred", "%zero64", ("setp.ne.u64 {0}, %zero64, 0",)),
    "%tallies": ("b64", "", ("ld.param.u64 {0}, [memory]", _TO_GLOBAL)),
    "%global": (
        "b64",
        "%thread %tallies",
        (f"mad.wide.u32 {{0}}, %thread, {OWN}, %tallies", f"add.u64 {{0}}, {{0}}, {SETS * SET}"),
    ),
    "%cells": ("b32", "", ("mov.u32 {0}, cells",)),
    "%tally": ("b32", "", ("mov.u32 {0}, tally",)),
    "%shared": ("b32", "%here", ("mov.u32 {0}, shared", f"mad.lo.u32 {{0}}, %here, {OWN}, {{0}}")),
    "%local": ("b64", "", ("mov.u64 {0}, local",)),
    "%table": ("b64", "", ("mov.u64 {0}, table",)),
    "%wide_shared": ("b64", "%shared", ("cvt.u64.u32 {0}, %shared",)),
    "%generic_global": ("b64", "%global", ("cvta.global.u64 {0}, %global",)),
    "%generic_inputs": ("b64", "%inputs", ("cvta.global.u64 {0}, %inputs",)),
    "%generic_own_inputs": ("b64", "%own_inputs", ("cvta.global.u64 {0}, %own_inputs",)),
    "%generic_tallies": ("b64", "%tallies", ("cvta.global.u64 {0}, %tallies",)),
    "%generic_shared": ("b64", "%shared", ("cvt.u64.u32 {0}, %shared", "cvta.shared.u64 {0}, {0}")),
    "%generic_tally": ("b64", "%tally", ("cvt.u64.u32 {0}, %tally", "cvta.shared.u64 {0}, {0}")),
    "%generic_local": ("b64", "%local", ("cvta.local.u64 {0}, %local",)),
    "%generic_table": ("b64", "%table", ("cvta.const.u64 {0}, %table",)),
}
"""Registers that hold a number or a place: their class, the others they need, how they get their value."""


def tally_of(opcode: str) -> str:
    """Which of `TALLIES` an atomic instruction updates; "" if its order matters, or its result.

    Examples
    --------
    >>> tally_of("atom.relaxed.gpu.global.add.s32"), tally_of("atom.shared.exch.b32")
    ('add.b32', '')
    """
    words = opcode.split(".")
    kind = words[-1]
    operation = next((word for word in words if word in ("add", "and", "or", "xor", "min", "max")), "")
    if operation in ("add", "and", "or", "xor") and kind[0] in "bsu":
        kind = f"b{kind[1:]}"
    name = f"{operation}.{kind}"
    return name if name in TALLIES else ""


def own_at(thread: int) -> int:
    """The offset in bytes of a thread's own global memory.

    Examples
    --------
    >>> own_at(0), own_at(2)
    (2048, 2112)
    """
    return SETS * SET + OWN * thread


class Memory:
    """The registers that lead a program to its memories: those that it uses, and no others."""

    def __init__(self, program: Program, text: Lines) -> None:
        self.program, self.text = program, text
        self.used: set[str] = set()

    def base(self, name: str) -> str:
        """Ask for a register of `_BASES`."""
        if name not in self.used:
            self.used.add(name)
            for other in _BASES[name][1].split():
                self.base(other)
        return name

    def prologue(self) -> None:
        """Give the registers their values, and a thread's own shared and local memory zeros."""
        text = self.text
        for name, (kind, _, lines) in _BASES.items():
            if name in self.used:
                text.registers[name] = kind
                for line in lines:
                    text.write(line.format(name, block=self.program.block))
        for space in ("shared", "local"):
            if f"%{space}" in self.used:
                zero = text.give("mov.b64", "b64", 0)
                for at in range(0, OWN, 16):
                    text.write(f"st.{space}.v2.b64 [%{space}+{at}], {{{zero}, {zero}}}")

    def variables(self) -> list[str]:
        """Declarations of the memories that are used."""
        block = self.program.block
        sizes = {"cells": CELL * block, "tally": OWN, "shared": OWN * block, "local": OWN}
        return [
            f"\t.{'local' if name == 'local' else 'shared'} .align 16 .b8 {name}[{size}];"
            for name, size in sizes.items()
            if f"%{name}" in self.used
        ]

    def veil(self, register: str, source: str = "") -> None:
        """Give a register its own value, or that of another, in a way that a compiler does not see through.

        Outputs are zero at the start; a compiler does not know.
        """
        kind = CLASS.get(register) or self.text.registers[register]
        zero = self.base("%never" if kind == "pred" else f"%zero{kind[1:]}")
        self.text.write(f"xor.{kind} {register}, {source or register}, {zero}")

    def first_value(self, register: str) -> None:
        """Load a register from the thread's inputs."""
        text, at = self.text, f"[{self.base('%own_inputs')}+{8 * REGISTERS.index(register)}]"
        if CLASS[register] != "pred":
            return text.write(f"ld.global.{CLASS[register]} {register}, {at}")
        word = text.give("ld.global.b32", "b32", at)
        bit = text.give("and.b32", "b32", word, 1)
        return text.write(f"setp.ne.u32 {register}, {bit}, 0")

    def last_value(self, register: str) -> None:
        """Store a register to the thread's outputs."""
        text, at = self.text, f"[{self.base('%outputs')}+{8 * REGISTERS.index(register)}]"
        kind, value = CLASS[register], register
        if kind == "pred":
            kind, value = "b32", text.give("selp.b32", "b32", 1, 0, register)
        text.write(f"st.global.{kind} {at}, {value}")

    def access(self, statement: Load | Store | Atomic) -> None:
        """A load, a store or an atomic operation."""
        _, form = find(statement.opcode)
        address = self.address(statement.place, DTYPES[form.T].itemsize * form.vector)
        match statement:
            case Load():
                operands = [vector(statement.destinations), address]
            case Store():
                operands = [address, vector(statement.sources)]
            case Atomic():
                sources = [self.summand(form.T, source) for source in statement.sources]
                operands = [*map(vector, filter(None, [statement.destination])), address, *sources]
        self.text.write(f"{statement.opcode} {', '.join(operands)}")

    def summand(self, kind: str, source: Operand) -> str:
        """What an atomic operation adds: no NaN of 64 bits, since the sum of two may be either."""
        if kind == "f64":
            return self.text.give("and.b64", "b64", source, FINITE[kind])
        return vector(source)

    def address(self, place: Place, size: int) -> str:
        """``[…]`` of a place, for an access of so many bytes."""
        if place.region == "numbers":
            return f"[numbers+{place.offset}]"
        name = "own_inputs" if place.region == "inputs" and not place.index else place.region
        base = self.base(f"%{'generic_' if place.generic else ''}{name}")
        if not place.index:
            return f"[{base}+{place.offset}]"
        threads = self.program.blocks * self.program.block
        whole = {"inputs": (threads, RECORD), "tallies": (SETS, SET), "tally": (4, 8)}
        records, record = whole.get(place.region, (OWN // size, size))
        chosen = self.text.give("and.b32", "b32", place.index, records - 1)
        kind = _BASES[base][0]
        at = self.text.give("mad.wide.u32" if kind == "b64" else "mad.lo.u32", kind, chosen, record, base)
        return f"[{at}+{place.offset}]"
