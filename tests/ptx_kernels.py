"""A small kernel for every PTX instruction row: operands from arrays, the instruction, results to arrays.

The text depends on the row alone, so that the same text runs on any device, simulated or not. Thread i of the
grid takes element i of each operand and writes element i of each result; predicates are words, 0 or 1.
"""

import itertools
import re
from typing import NamedTuple

BLOCK = 128
"""Threads per block; the number of elements is a multiple of it."""
LOP3_TABLES = range(256)
CONTROL = ("branch", "exit", "trap", "barrier", "warp barrier")
"""Rows of these kinds compute nothing: `tests/unit/test_ptx_rows.py` holds their kernels."""

_PART = re.compile(r"\{([^}]*)\}|<([^>]*)>|(\.?[A-Za-z0-9_:]+)")
_SCOPES = {"cta", "cluster", "gpu", "sys"}
_STRONG = {"relaxed", "acquire", "release", "acq_rel"}


class Slot(NamedTuple):
    """An argument: an array with ``count`` words of ``type`` for each thread, or one value for all."""

    name: str
    type: str
    count: int = 1
    by_value: bool = False


class RowKernel(NamedTuple):
    """A module with one entry, ``row``, whose parameters are the operands and then the results.

    The kernel of a warp-wide row has one operand more, ``active``: lanes where it is 0 step aside.
    """

    text: str
    operands: tuple[Slot, ...]
    results: tuple[Slot, ...]


def opcodes(row):
    """The row's forms, and more spellings until every modifier and vector has been there for each space."""
    seen, chosen = set(), []
    for words in sorted(_spellings(row), key=len):
        if not _legal(words):
            continue
        if row.kind in ("load", "store", "atomic"):
            space = next(w for w in words if w in ("param", "global", "shared"))
            kind = words[-1]
            vector = next((w for w in words if w in ("v2", "v4")), "")
            operation = words[-2] if row.kind == "atomic" else ""
            facts = {(space, w) for w in words} | {(space, vector, operation, kind)}
            if facts <= seen:
                continue
            seen |= facts
        chosen.append(".".join(words))
    return chosen


def _spellings(row):
    parts = []
    for optional, required, word in _PART.findall(row.spelling):
        types = {".T": row.types, ".U": row.types_u}.get(word)
        if types:
            parts.append([f".{t}" for t in types])
        elif optional:
            parts.append(["", *optional.split("|")])
        else:
            parts.append(required.split("|") if required else [word])
    return ["".join(words).split(".") for words in itertools.product(*parts)]


def _legal(words):
    """What the PTX ISA forbids although each part of the spelling is a word of the instruction."""
    base, kind, has = words[0], words[-1], set(words)
    strong, scope = has & _STRONG, has & _SCOPES
    if "ftz" in has and kind != "f32":
        return False
    if base in ("ld", "st"):
        cached = has & {"ca", "cg", "cs", "lu", "cv", "wb", "wt"}
        if bool(strong) != bool(scope) or (cached and (strong or "volatile" in has)):
            return False
        if "param" in has and (strong or cached or has & {"weak", "volatile"}):
            return False
        if "nc" in has and ("global" not in has or strong or has & {"weak", "volatile", "lu", "cv"}):
            return False
        if "v4" in has and kind.endswith("64"):
            return False
    return True


def kernel_for(row, opcode, wide=False):
    """The kernel of one opcode of a row.

    Parameters
    ----------
    row : simwarp.ptx.rows.Row
    opcode : str
    wide : bool
        Keep operands of the opcode's types in 64-bit registers, as ``ld``, ``st`` and ``cvt`` allow.
    """
    form = row.match(opcode)
    write = {"load": _load, "store": _store, "atomic": _atomic}.get(row.kind, _compute)
    return write(_Text(wide and form.T not in ("f32", "f64")), row, form)


class _Text:
    """Writes a kernel: registers as they are named, lines as they come."""

    def __init__(self, wide):
        self.wide = wide
        self.registers, self.lines = {"%i": "b32", "%to": "b32", "%at": "b64"}, []
        self.operands, self.results, self.shared = [], [], ""

    def register(self, name, kind):
        bits = "pred" if kind == "pred" else f"b{max(16, int(kind[1:]))}"
        self.registers[name] = bits
        return bits

    def typed(self, kind):
        """The register for an operand of the opcode's type."""
        return "b64" if self.wide and kind != "pred" else kind

    def locate(self, array, size):
        self.lines += [
            f"ld.param.u64 %at, [{array}];",
            f"mul.wide.u32 %{array}_at, %i, {size};",
            f"add.u64 %{array}_at, %{array}_at, %at;",
        ]
        self.registers[f"%{array}_at"] = "b64"

    def take(self, name, kind):
        """Load an operand into ``%name``."""
        bits = self.register(f"%{name}", kind)
        words = "b32" if bits == "pred" else bits
        self.operands.append(Slot(name, words if bits != "pred" else "pred"))
        self.locate(name, int(words[1:]) // 8)
        if bits == "pred":
            self.registers["%word"] = "b32"
            self.lines += [f"ld.global.b32 %word, [%{name}_at];", f"setp.ne.u32 %{name}, %word, 0;"]
        else:
            self.lines.append(f"ld.global.{bits} %{name}, [%{name}_at];")

    def give(self, name, kind, registers=()):
        """Store ``%name``, or several registers, as a result."""
        registers = registers or [f"%{name}"]
        bits = self.register(registers[0], kind)
        for register in registers[1:]:
            self.register(register, kind)
        array = f"{name}_out"
        self.results.append(Slot(array, bits, len(registers)))
        words = "b32" if bits == "pred" else bits
        size = int(words[1:]) // 8
        self.locate(array, size * len(registers))
        for i, register in enumerate(registers):
            if bits == "pred":
                self.registers["%word"] = "b32"
                self.lines.append(f"selp.b32 %word, 1, 0, {register};")
                register = "%word"
            self.lines.append(f"st.global.{words} [%{array}_at+{i * size}], {register};")

    def kernel(self):
        parameters = [
            f"\t.param .align 16 .b8 {slot.name}[{_bytes(slot)}]"
            if slot.by_value
            else f"\t.param .u64 {slot.name}"
            for slot in (*self.operands, *self.results)
        ]
        declared = [f"\t.reg .{kind} {name};" for name, kind in self.registers.items()]
        index = [
            "mov.u32 %i, %ctaid.x;",
            "mov.u32 %to, %tid.x;",
            f"mad.lo.u32 %i, %i, {BLOCK}, %to;",
        ]
        head = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry row(\n"
        body = "\n".join(
            [
                *declared,
                *([self.shared] if self.shared else []),
                *(f"\t{line}" for line in index + self.lines),
            ]
        )
        text = head + ",\n".join(parameters) + f"\n)\n{{\n{body}\n\tret;\n}}\n"
        return RowKernel(text, tuple(self.operands), tuple(self.results))


def _bytes(slot):
    return int(slot.type[1:]) // 8 * slot.count


def _compute(text, row, form):
    sources = []
    for spec in row.sources:
        if spec.optional and not form.combines:
            continue
        if spec.name == "table":
            continue
        kind = form.resolve(spec.kind)
        text.take(spec.name, text.typed(kind) if row.base == "cvt" else kind)
        sources.append(f"%{spec.name}")
    wanted = [(spec.name, form.resolve(spec.kind)) for spec in row.destinations]
    if row.base == "cvt":
        wanted = [(name, text.typed(kind)) for name, kind in wanted]
    if row.base == "lop3":
        for table in LOP3_TABLES:
            text.register(f"%d{table}", "b32")
            text.lines.append(f"{form.opcode} %d{table}, {', '.join(sources)}, {table};")
        text.give("d", "b32", [f"%d{table}" for table in LOP3_TABLES])
        return text.kernel()
    if row.kind == "warp":
        text.take("active", "pred")
        text.lines.append("@!%active bra DONE;")
    text.lines.append(f"{form.opcode} {', '.join(['|'.join(f'%{name}' for name, _ in wanted), *sources])};")
    for name, kind in wanted:
        text.give(name, kind)
    if row.kind == "warp":
        text.lines.append("DONE:")
    return text.kernel()


def _shared(text, size):
    """Room for each thread of the block; ``%cell`` becomes its address."""
    text.shared = f"\t.shared .align 16 .b8 cells[{BLOCK * size}];"
    text.register("%cell", "b32")
    text.lines += ["mov.u32 %cell, cells;", f"mad.lo.u32 %cell, %to, {size}, %cell;"]


def _word(kind):
    """The unsigned type that moves the bits of a type."""
    return f"b{kind[1:]}"


def _load(text, row, form):
    size, kind = int(form.T[1:]) // 8, text.typed(form.T)
    loaded = [f"%d{i}" for i in range(form.vector)]
    for register in loaded:
        text.register(register, kind)
    target = f"{{{', '.join(loaded)}}}" if form.vector > 1 else loaded[0]
    if form.has("param"):
        text.operands.append(Slot("a", _word(form.T), form.vector, by_value=True))
        text.lines.append(f"{form.opcode} {target}, [a];")
    else:
        text.operands.append(Slot("a", _word(form.T), form.vector))
        text.locate("a", size * form.vector)
        base = "%a_at"
        if form.has("shared"):
            _shared(text, size * form.vector)
            text.register("%through", form.T)
            for i in range(form.vector):
                text.lines.append(f"ld.global.{_word(form.T)} %through, [%a_at+{i * size}];")
                text.lines.append(f"st.shared.{_word(form.T)} [%cell+{i * size}], %through;")
            base = "%cell"
        text.lines.append(f"{form.opcode} {target}, [{base}];")
    text.give("d", kind, loaded)
    return text.kernel()


def _store(text, row, form):
    size, kind = int(form.T[1:]) // 8, text.typed(form.T)
    stored = [f"b{i}" for i in range(form.vector)]
    for name in stored:
        text.take(name, kind)
    source = f"{{{', '.join(f'%{name}' for name in stored)}}}" if form.vector > 1 else "%b0"
    text.results.append(Slot("a", _word(form.T), form.vector))
    text.locate("a", size * form.vector)
    if not form.has("shared"):
        text.lines.append(f"{form.opcode} [%a_at], {source};")
        return text.kernel()
    _shared(text, size * form.vector)
    text.lines.append(f"{form.opcode} [%cell], {source};")
    text.register("%through", form.T)
    for i in range(form.vector):
        text.lines.append(f"ld.shared.{_word(form.T)} %through, [%cell+{i * size}];")
        text.lines.append(f"st.global.{_word(form.T)} [%a_at+{i * size}], %through;")
    return text.kernel()


def _atomic(text, row, form):
    """Each thread has a cell of its own: what it finds there, and what it leaves."""
    bits, size = _word(form.T), int(form.T[1:]) // 8
    space = "shared" if form.has("shared") else "global"
    text.take("cell0", bits)
    text.take("b", form.T)
    if space == "shared":
        _shared(text, size)
        text.lines.append(f"st.shared.{bits} [%cell], %cell0;")
    else:
        text.register("%cell", "b64")
        text.lines.append("mov.u64 %cell, %cell0_at;")
    text.register("%d", form.T)
    text.register("%new", form.T)
    text.lines += [f"{form.opcode} %d, [%cell], %b;", f"ld.{space}.{bits} %new, [%cell];"]
    text.give("d", form.T)
    text.give("new", form.T)
    return text.kernel()
