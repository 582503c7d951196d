"""PTX that writes what a warp computes to a buffer: registers, addresses, stored values, guards of branches.

The buffer is one more parameter of the kernel. Its header says which warp, and which of the records of each
lane; a record is the number of an instruction, and a value. The same text serves every warp and window.

>>> from simwarp.run.source import from_ptx
>>> text = '''.version 9.0
... .target sm_90
... .entry k(.param .u64 x) { .reg .b32 %r<2>; mov.u32 %r1, 5; ret; }'''
>>> source = from_ptx(text)
>>> [(point.instruction.opcode, [part.what for part in point.parts]) for point in points_of(source, "k")]
[('mov.u32', ['register']), ('ret', ['taken'])]
>>> "st.global.v2.u64" in instrumented(source, "k")
True
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from simwarp.lanes import WARP_SIZE
from simwarp.program.call_graph import CallGraph
from simwarp.program.liveness import registers_in
from simwarp.ptx.instructions import TABLE
from simwarp.ptx.kinds import ATOMIC, BRANCH, EXIT, LOAD, REDUCTION, RETURN, STORE, WARPGROUP_PRODUCT
from simwarp.ptx.rows import DTYPES, Form, Row
from simwarp.ptx.syntax import (
    Address,
    Function,
    Group,
    Immediate,
    Instruction,
    Operand,
    Pair,
    Register,
    Vector,
)
from simwarp.run.planting import located, without_comments
from simwarp.run.source import Source

FIRST, MANY, BLOCK, WARP, WRITER, COUNTS = 1, 2, 3, 4, 6, 8
"""Words of the header: the first record and how many, the block and warp, the last writer, lanes' counts."""
HEADER = COUNTS + WARP_SIZE
"""Words before the records; a record has two."""
EXECUTED, PART = 32, 40
"""Bits of a record's first word: whether the guard held, and where the number of the part begins."""
THREAD = 10
"""The bits of a writer that are its thread in the block; those above are the block."""
NOBODY = (1 << 64) - 1
"""The writer of an element that nothing wrote; and the block of a launch that traces no warp."""

_BITS = {"pred": 1, **{kind: DTYPES[kind].itemsize * 8 for kind in DTYPES if kind != "pred"}}
_LEAVES = (BRANCH, RETURN, EXIT)
_ACCESSES = (LOAD, STORE, ATOMIC, REDUCTION)


class Part(NamedTuple):
    """A value that is recorded at an instruction.

    ``what`` is "taken", for the guard of a branch, "address", "stored" or "register"; ``name`` the register
    in the text, or the digits of a literal; ``type`` the register's declared one, "" for a literal.
    """

    what: str
    name: str
    type: str


@dataclass(frozen=True)
class Point:
    """An instruction, and what is recorded there, in the order of the records."""

    number: int
    function: str
    instruction: Instruction
    row: Row | None
    form: Form | None
    parts: tuple[Part, ...]
    start: int  # of its text, guard included
    end: int

    @property
    def before(self) -> tuple[Part, ...]:
        """What is recorded before it executes."""
        return tuple(part for part in self.parts if part.what != "register")

    @property
    def after(self) -> tuple[Part, ...]:
        """The registers that it writes, which are recorded behind it."""
        return tuple(part for part in self.parts if part.what == "register")

    @cached_property
    def writes(self) -> frozenset[str]:
        """The names of the registers that it writes, as they are recorded."""
        return frozenset(part.name for part in self.after)

    @cached_property
    def reads(self) -> frozenset[str]:
        """The names of the registers that decide its results, those of an address aside."""
        operands = self.instruction.operands[1:] if self.after else self.instruction.operands
        return frozenset(map(_plain, registers_in([o for o in operands if not isinstance(o, Address)])))

    @cached_property
    def address_registers(self) -> frozenset[str]:
        """The names of the registers in its address."""
        addresses = [o for o in self.instruction.operands if isinstance(o, Address)]
        return frozenset(map(_plain, registers_in(addresses)))

    @property
    def guard(self) -> str:
        """The name of its guard's register, "" without one."""
        return "" if self.instruction.guard is None else _plain(self.instruction.guard.name)


def points_of(source: Source, kernel: str) -> list[Point]:
    """All instructions of a kernel and of the functions that it calls, in the order of the text."""
    functions = _functions(source, kernel)
    return [
        _point(number, function, instruction, match)
        for number, (function, instruction, match) in enumerate(located(source.ptx, functions))
    ]


def _functions(source: Source, kernel: str) -> list[Function]:
    called = [source.module.functions[name] for name in CallGraph(source.module).reached(kernel)]
    return [source.entries[kernel], *(f for f in called if not f.extern)]


def _point(number: int, function: Function, instruction: Instruction, match: re.Match[str]) -> Point:
    row, form = TABLE.find(instruction.opcode) or (None, None)
    parts = tuple(_parts(function, instruction, row))
    return Point(number, function.name, instruction, row, form, parts, match.start(), match.end())


def _parts(function: Function, instruction: Instruction, row: Row | None) -> Iterator[Part]:
    """What is recorded at an instruction."""
    operands, kind = instruction.operands, None if row is None else row.kind
    if kind in _LEAVES:
        yield Part("taken", "" if instruction.guard is None else _plain(instruction.guard.name), "pred")
        return
    if row is None or kind is None or kind is WARPGROUP_PRODUCT:  # its registers are in flight
        return
    if kind in _ACCESSES and ".param" not in instruction.opcode:
        for operand in operands:
            if isinstance(operand, Address) and isinstance(operand.base, Register):
                yield Part("address", _plain(operand.base.name), _type(function, operand.base))
    if kind in (STORE, ATOMIC, REDUCTION) and ".param" not in instruction.opcode:
        first = 2 if kind is ATOMIC else 1
        yield from (_of(function, "stored", x) for operand in operands[first:] for x in _elements(operand))
    if any(spec.kind != "carry" for spec in row.destinations) and operands:
        yield from (
            part for x in _elements(operands[0]) if (part := _of(function, "register", x)).type in _BITS
        )
    elif operands and isinstance(operands[0], Group):
        yield from (_of(function, "register", x) for x in _elements(operands[0]) if isinstance(x, Register))


def _elements(operand: Operand | None) -> Iterator[Register | Immediate]:
    """The registers and literals of an operand, not those of an address."""
    if isinstance(operand, Register | Immediate):
        yield operand
    elif isinstance(operand, Vector | Group):
        for element in operand.elements:
            if isinstance(element, Register | Immediate):
                yield element
    elif isinstance(operand, Pair):
        yield from _elements(operand.first)
        yield from _elements(operand.second)


def _of(function: Function, what: str, operand: Register | Immediate) -> Part:
    if isinstance(operand, Immediate):
        return Part(what, str(operand.value & (1 << 64) - 1), "")
    return Part(what, _plain(operand.name), _type(function, operand))


def _type(function: Function, register: Register) -> str:
    """The declared type of a register; "?" for one that is not recorded, such as ``%tid.x``."""
    return function.registers.get(register.name, "?")


def _plain(name: str) -> str:
    """A register's name in the text: the parser adds the number of its scope."""
    return name.partition("@")[0]


# ---- the text --------------------------------------------------------------------------------------------


_REGISTERS = ".reg .b64 ~<11>; .reg .b32 ~w<3>; .reg .b16 ~h; .reg .pred ~me, ~q, ~g;"
"""Registers of the inserted text; ``~`` stands for ``%simwarp_``.

~0 is the buffer, ~1 the watched address, ~2 and ~3 the first record and how many, ~4 the block, ~5 and ~6
where the lane's count and its records are, ~7 a value, ~8 and ~9 scratch, ~10 the first word of a record; ~w0
is the thread in its block; ~me whether its warp is traced, ~g whether the guard holds.
"""
_PROLOGUE = f"""
ld.global.u64 ~1, [~0]; ld.global.u64 ~2, [~0+{8 * FIRST}];
ld.global.u64 ~3, [~0+{8 * MANY}];
mov.u32 ~w0, %ctaid.z; mov.u32 ~w1, %nctaid.y; mul.wide.u32 ~4, ~w0, ~w1;
mov.u32 ~w0, %ctaid.y; cvt.u64.u32 ~8, ~w0; add.u64 ~4, ~4, ~8;
mov.u32 ~w0, %nctaid.x; cvt.u64.u32 ~8, ~w0; mul.lo.u64 ~4, ~4, ~8;
mov.u32 ~w0, %ctaid.x; cvt.u64.u32 ~8, ~w0; add.u64 ~4, ~4, ~8;
mov.u32 ~w0, %tid.z; mov.u32 ~w1, %ntid.y; mul.lo.u32 ~w0, ~w0, ~w1;
mov.u32 ~w1, %tid.y; add.u32 ~w0, ~w0, ~w1;
mov.u32 ~w1, %ntid.x; mul.lo.u32 ~w0, ~w0, ~w1;
mov.u32 ~w1, %tid.x; add.u32 ~w0, ~w0, ~w1;
ld.global.u64 ~8, [~0+{8 * BLOCK}]; setp.eq.u64 ~me, ~4, ~8;
shr.u32 ~w1, ~w0, 5; cvt.u64.u32 ~7, ~w1;
ld.global.u64 ~8, [~0+{8 * WARP}];
setp.eq.and.u64 ~me, ~7, ~8, ~me;
and.b32 ~w1, ~w0, 31; cvt.u64.u32 ~8, ~w1;
shl.b64 ~5, ~8, 3; add.u64 ~5, ~5, ~0;
mul.lo.u64 ~8, ~8, ~3; shl.b64 ~8, ~8, 4;
add.u64 ~6, ~0, ~8; mov.u64 ~8, 0;
"""
_RECORD = f"""
@~me ld.global.u64 ~8, [~5+{8 * COUNTS}];
sub.u64 ~9, ~8, ~2;
setp.lt.and.u64 ~q, ~9, ~3, ~me;
shl.b64 ~9, ~9, 4; add.u64 ~9, ~9, ~6;
@~q st.global.v2.u64 [~9+{8 * HEADER}], {{~10, ~7}};
add.u64 ~8, ~8, 1;
@~me st.global.u64 [~5+{8 * COUNTS}], ~8;
"""


def instrumented(source: Source, kernel: str, threads: int = 0) -> str:
    """The PTX of a source with a kernel that takes the buffer as its last argument, and fills it.

    It has the registers that a block of so many ``threads`` can have, as those that it adds may be too many.
    """
    functions = _functions(source, kernel)
    text, insertions = without_comments(source.ptx), list[tuple[int, str]]()
    shared = len(functions) > 1  # then device functions find the buffer in a variable
    for function in functions:
        head = re.search(
            rf"\.(?:entry|func)\b[^;{{]*?(?<![\w$.%]){re.escape(function.name)}(?![\w$])[^;{{]*\{{", text
        )
        assert head is not None  # the parser has read it there
        if function.name == kernel:
            insertions.append(_parameter(text, head, kernel))
            if threads and not re.search(r"\.(maxntid|reqntid)\b", head[0]):
                insertions.append((head.end() - 1, f".maxntid {threads}\n"))
            buffer = "ld.param.u64 ~0, [simwarp_dump];"
            buffer += " st.relaxed.gpu.global.u64 [simwarp_at], ~0;" if shared else ""
        else:
            buffer = "ld.relaxed.gpu.global.u64 ~0, [simwarp_at];"
        insertions.append((head.end(), f"\n{_REGISTERS}\n{buffer}{_PROLOGUE}"))
    insertions += _records(points_of(source, kernel))
    if shared:
        target = re.search(r"\.target\s+\w+(\s*,\s*\w+)*(\s*\.address_size\s+\d+)?", text)
        assert target is not None
        insertions.append((target.end(), "\n.global .align 8 .u64 simwarp_at;\n"))
    return _with(text, insertions)


def _with(text: str, insertions: list[tuple[int, str]]) -> str:
    """A text with others inserted at their offsets, and their registers named."""
    parts, at = list[str](), 0
    for offset, more in sorted(insertions, key=lambda one: one[0]):
        parts += [text[at:offset], more.replace("~", "%simwarp_")]
        at = offset
    return "".join([*parts, text[at:]])


def _parameter(text: str, head: re.Match[str], kernel: str) -> tuple[int, str]:
    """The insertion of the buffer behind the parameters of the kernel."""
    parameter = ".param .u64 simwarp_dump"
    name = head.start() + re.search(rf"(?<![\w$.%]){re.escape(kernel)}(?![\w$])", head[0]).end()  # pyright: ignore[reportOptionalMemberAccess]
    opening = re.match(r"\s*\(", text[name:])
    if opening is None:
        return name, f"({parameter})"
    closing = text.index(")", name)
    return closing, f", {parameter}" if text[name + opening.end() : closing].strip() else parameter


def _records(points: list[Point]) -> Iterator[tuple[int, str]]:
    """The insertions that record what the instructions do.

    Between the ``ld.param`` of the results of a call nothing may stand, so their records follow the last one.
    """
    waiting, at = "", 0
    for point in points:
        before, after = _code(point)
        collects = point.instruction.opcode.startswith("ld.param")
        if waiting and not collects:
            yield at, waiting
            waiting = ""
        if before:
            yield point.start, before
        if collects:
            waiting, at = waiting + after, point.end
        elif after:
            yield point.end, after
    if waiting:
        yield at, waiting


def _code(point: Point) -> tuple[str, str]:
    """The text in front of an instruction and behind it, which records its parts."""
    guard = point.instruction.guard
    if not point.parts:
        return "", ""
    before = ""
    guarded = guard is not None and point.parts[0].what != "taken"
    if guard is not None and guarded:
        before += f"\n{'not' if guard.negated else 'mov'}.pred ~g, {_plain(guard.name)};"
    texts = ["", ""]
    for number, part in enumerate(point.parts):
        word = point.number | number << PART
        held = word | 1 << EXECUTED
        first = f"mov.u64 ~10, {held};"
        if guarded:
            first += f" @!~g mov.u64 ~10, {word};"
        value = _value(point, part, "@~g " if guarded else "")
        watch = _watch(point, guarded) if part.what == "address" else ""
        texts[part.what == "register"] += f"\n{value}\n{first}{_RECORD}{watch}"
    return before + texts[0], texts[1]


def _value(point: Point, part: Part, guard: str) -> str:
    """The text that puts a value into ``~7``; 0 where the guard does not hold."""
    zero = "mov.u64 ~7, 0; " if guard else ""
    if part.what == "taken":
        negated = point.instruction.guard is not None and point.instruction.guard.negated
        taken = (0, 1) if negated else (1, 0)
        return f"selp.u64 ~7, {taken[0]}, {taken[1]}, {part.name};" if part.name else _SURE
    if not part.type:
        return f"{zero}{guard}mov.u64 ~7, {part.name};"
    bits = _BITS.get(part.type, 0)
    if bits == 1:
        text = f"{zero}{guard}selp.u64 ~7, 1, 0, {part.name};"
    elif bits == 64:
        text = f"{zero}{guard}mov.b64 ~7, {part.name};"
    elif bits in (16, 32):
        scratch = {16: "~h", 32: "~w2"}[bits]
        text = f"{zero}{guard}mov.b{bits} {scratch}, {part.name}; {guard}cvt.u64.u{bits} ~7, {scratch};"
    elif bits == 8:
        text = f"{zero}{guard}cvt.u64.u8 ~7, {part.name};"
    else:
        text = "mov.u64 ~7, 0;"  # a special register, or 128 bits
    if part.what == "address" and (offset := _offset(point)):
        text += f" {guard}add.u64 ~7, ~7, {offset};"
    return text


_SURE = "mov.u64 ~7, 1;"


def _offset(point: Point) -> int:
    """The offset in an instruction's address."""
    return next(o.offset for o in point.instruction.operands if isinstance(o, Address))


def _watch(point: Point, guarded: bool) -> str:
    """The text that keeps the thread, if the access writes the watched byte; the address is in a register."""
    row, form = point.row, point.form
    words = set(point.instruction.opcode.replace("::", ".").split("."))
    if row is None or form is None or row.kind is LOAD or words & {"shared", "local", "param", "const"}:
        return ""
    width = form.dtype.itemsize * form.vector
    test = f"sub.u64 ~9, ~1, ~7; setp.lt.u64 ~q, ~9, {width};"
    test += " and.pred ~q, ~q, ~g;" if guarded else ""
    thread = f"cvt.u64.u32 ~9, ~w0; shl.b64 ~10, ~4, {THREAD}; or.b64 ~9, ~9, ~10;"
    return f"{test} {thread}\n@~q atom.global.exch.b64 ~9, [~0+{8 * WRITER}], ~9;\n"
