"""LLVM's text of segments, and of the driver that runs them in the order of the scheduler.

A register is a vector of 32 lanes. Within a segment values are in SSA form; at its end the registers that a
later step may read are stored, in the executing lanes alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from simwarp.compiled.accesses import INTRINSICS, gather, scatter
from simwarp.compiled.driver import DRIVER
from simwarp.compiled.expressions import Value
from simwarp.compiled.meetings import Meeting
from simwarp.compiled.segments import Access, Key, Segment
from simwarp.compiled.tables import Context
from simwarp.lanes import WARP_SIZE
from simwarp.ptx.rows import DTYPES
from simwarp.ptx.special_registers import TYPES

_COMPARED = {
    "equal": ("eq", "eq", "oeq"),
    "not_equal": ("ne", "ne", "une"),
    "less": ("slt", "ult", "olt"),
    "less_equal": ("sle", "ule", "ole"),
    "greater": ("sgt", "ugt", "ogt"),
    "greater_equal": ("sge", "uge", "oge"),
}
"""ufunc → LLVM's comparison of signed, unsigned and float operands."""
_PLAIN = {
    "add": ("add", "fadd"),
    "subtract": ("sub", "fsub"),
    "multiply": ("mul", "fmul"),
    "divide": ("", "fdiv"),
    "floor_divide": ("udiv", ""),
    "remainder": ("urem", ""),
    "bitwise_and": ("and", ""),
    "bitwise_or": ("or", ""),
    "bitwise_xor": ("xor", ""),
    "logical_and": ("and", ""),
    "logical_or": ("or", ""),
    "logical_xor": ("xor", ""),
}
"""ufunc → LLVM's instruction on integers and on floats."""
_INTRINSICS = {"sqrt": "sqrt", "rint": "roundeven", "floor": "floor", "ceil": "ceil", "trunc": "trunc"}
_FLOATS = {4: "float", 8: "double"}


def element(dtype: np.dtype[Any]) -> str:
    """LLVM's type of an element."""
    if dtype == np.bool_:
        return "i1"
    return _FLOATS[dtype.itemsize] if dtype.kind == "f" else f"i{dtype.itemsize * 8}"


def vector(dtype: np.dtype[Any]) -> str:
    """LLVM's type of a value in all lanes."""
    return f"<{WARP_SIZE} x {element(dtype)}>"


def _stored(dtype: np.dtype[Any]) -> str:
    """LLVM's type of a register in memory, where a predicate is a byte."""
    return f"<{WARP_SIZE} x i{dtype.itemsize * 8}>"


class _Body:
    """The text of one segment's function."""

    def __init__(self, types: Sequence[Any], inputs: dict[Key, int]) -> None:
        self.lines: list[str] = []
        self.declared: set[str] = set()
        self._types, self._inputs = types, inputs
        self._count = 0
        self._registers: dict[int, str] = {}
        self._memory: dict[Any, str] = {}
        self._addresses: dict[Any, str] = {}
        self._done: dict[Value, str] = {}
        self.loaded: list[str] = []
        """The elements that the segment's load loaded."""
        self.dirty: dict[int, None] = {}
        self._bad: list[str] = []
        """Conditions under which NumPy must look at the lanes."""

    def emit(self, text: str) -> str:
        """Add an instruction; returns the name of its result."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def call(self, intrinsic: str, dtype: np.dtype[Any], *arguments: str, extra: str = "") -> str:
        """A call of an intrinsic on vectors of one type."""
        kind = vector(dtype)
        prefix = "f" if dtype.kind == "f" else "i"
        name = f"@llvm.{intrinsic}.v{WARP_SIZE}{prefix}{dtype.itemsize * 8}"
        given = ", ".join([f"{kind} {x}" for x in arguments])
        self.declared.add(f"declare {kind} {name}({', '.join([kind] * len(arguments))})")
        return self.emit(f"call {kind} {name}({given}{extra})")

    # ---- registers and inputs ------------------------------------------------------------------------

    def _address(self, table: str, number: int, dtype: np.dtype[Any]) -> str:
        """The address of this warp's lanes of a register or input."""
        key = table, number
        if key not in self._addresses:
            place = self.emit(f"getelementptr ptr, ptr {table}, i64 {number}")
            base = self.emit(f"load ptr, ptr {place}, !invariant.load !0")
            self._addresses[key] = self.emit(f"getelementptr {_stored(dtype)}, ptr {base}, i64 %w")
        return self._addresses[key]

    def _load(self, table: str, number: int, dtype: np.dtype[Any]) -> str:
        key = table, number
        if key not in self._memory:
            at = self._address(table, number, dtype)
            found = self.emit(f"load {_stored(dtype)}, ptr {at}, align {dtype.itemsize}")
            if dtype == np.bool_:
                found = self.emit(f"icmp ne <32 x i8> {found}, zeroinitializer")
            self._memory[key] = found
        return self._memory[key]

    def read(self, key: Key) -> str:
        """The present value of an input."""
        kind, which = key
        if kind != "register":
            number = self._inputs[key]
            dtype = np.dtype(np.uint64) if kind == "symbol" else DTYPES[TYPES[which]]
            return self._load("%inputs", number, dtype)
        return self._registers.get(which) or self._load("%slots", which, self._types[which])

    def write(self, slot: int, value: str, guard: str | None) -> None:
        """Give a register a value, under a guard in its lanes alone."""
        if guard is not None:
            kind, old = vector(self._types[slot]), self.read(("register", slot))
            value = self.emit(f"select <32 x i1> {guard}, {kind} {value}, {kind} {old}")
        self._registers[slot] = value
        self.dirty[slot] = None

    def flush(self, needed: int) -> None:
        """Store the written registers that later steps may read, in the executing lanes."""
        for slot in self.dirty:
            if not needed >> slot & 1:
                continue
            dtype = self._types[slot]
            kind, old = vector(dtype), self._load("%slots", slot, dtype)
            new = self.emit(f"select <32 x i1> %mask, {kind} {self._registers[slot]}, {kind} {old}")
            if dtype == np.bool_:
                new = self.emit(f"zext <32 x i1> {new} to <32 x i8>")
            at = self._address("%slots", slot, dtype)
            self.lines.append(f"  store {_stored(dtype)} {new}, ptr {at}, align {dtype.itemsize}")

    def count(self, guard: str) -> str:
        """The executing lanes whose guard is true, as a word; they are counted."""
        both = self.emit(f"and <32 x i1> {guard}, %mask")
        word = self.emit(f"bitcast <32 x i1> {both} to i32")
        number = self.emit(f"call i32 @llvm.ctpop.i32(i32 {word})")
        wide, before = self.emit(f"zext i32 {number} to i64"), self.emit("load i64, ptr %ctx")
        self.lines.append(f"  store i64 {self.emit(f'add i64 {before}, {wide}')}, ptr %ctx")
        return word

    # ---- memory ----------------------------------------------------------------------------------------

    def access(self, access: Access) -> None:
        """Execute an access, whose addresses were checked and are those of this process."""
        masks = self.emit(f"load ptr, ptr {self._word(Context.MASKS)}")
        lanes = self.emit(f"load i32, ptr {self.emit(f'getelementptr i32, ptr {masks}, i64 %w')}")
        mask = self.emit(f"bitcast i32 {lanes} to <32 x i1>")
        table = self.emit(f"load ptr, ptr {self._word(Context.AT)}")
        at = self.emit(f"getelementptr <32 x i64>, ptr {table}, i64 %w")
        words = self.emit(f"load <32 x i64>, ptr {at}, align 8")
        size, stored = access.dtype.itemsize, [self.value(x) for x in access.stored]
        for i in range(access.count):
            here = self.emit(f"add <32 x i64> {words}, splat (i64 {i * size})") if i else words
            hosts = self.emit(f"inttoptr <32 x i64> {here} to <32 x ptr>")
            kind = element(access.stored[i].dtype if stored else access.dtype)
            self.declared |= set(INTRINSICS)
            if stored:
                scatter(self, stored[i], hosts, mask, kind)
            else:
                self.loaded.append(gather(self, hosts, mask, kind))

    def address(self, access: Access, guard: Value | None) -> None:
        """Note the lanes that execute an access, and their addresses."""
        mask = "%mask" if guard is None else self.emit(f"and <32 x i1> %mask, {self.value(guard)}")
        lanes = self.emit(f"bitcast <32 x i1> {mask} to i32")
        masks = self.emit(f"load ptr, ptr {self._word(Context.MASKS)}")
        self.do(f"store i32 {lanes}, ptr {self.emit(f'getelementptr i32, ptr {masks}, i64 %w')}")
        table = self.emit(f"load ptr, ptr {self._word(Context.AT)}")
        at = self.emit(f"getelementptr <32 x i64>, ptr {table}, i64 %w")
        self.do(f"store <32 x i64> {self.value(access.address)}, ptr {at}, align 8")

    def come(self) -> None:
        """Note the lanes that come to a barrier."""
        masks = self.emit(f"load ptr, ptr {self._word(Context.MASKS)}")
        self.do(f"store i32 %m, ptr {self.emit(f'getelementptr i32, ptr {masks}, i64 %w')}")

    def meet(self, met: Meeting) -> None:
        """Return 1 for lanes that do not meet as they should."""
        assert met.members is not None
        bad = self._bad
        bad.append(self.emit(f"icmp eq i64 {self._loaded_word(Context.MEETS_WARP)}, 0"))
        members = self.value(met.members)
        lane = self.emit("call i32 @llvm.cttz.i32(i32 %m, i1 true)")
        word = self.emit(f"extractelement <32 x i32> {members}, i32 {lane}")
        differ = self.emit(f"icmp ne <32 x i32> {members}, {self.splat(word)}")
        defined = self.value(met.defined)
        bad += [self._any(differ), self._any(self.emit(f"xor <32 x i1> {defined}, splat (i1 true)"))]
        table = self.emit(f"load ptr, ptr {self._word(Context.LIVE)}")
        live = self.emit(f"load i32, ptr {self.emit(f'getelementptr i32, ptr {table}, i64 %w')}")
        absent = self.emit("xor i32 %m, -1")
        named = live if met.all_of_warp else self.emit(f"and i32 {live}, {word}")
        outside = self.emit(f"and i32 %m, {self.emit(f'xor i32 {word}, -1')}")
        for lanes in (self.emit(f"and i32 {named}, {absent}"), outside):
            bad.append(self.emit(f"icmp ne i32 {lanes}, 0"))

    def refuse(self, lanes: Value, guard: Value | None) -> None:
        """Return 1 where a lane is among some."""
        found = self.value(lanes)
        if guard is not None:
            found = self.emit(f"and <32 x i1> {found}, {self.value(guard)}")
        self._bad.append(self._any(found))

    def leave(self, guard: Value | None, which: frozenset[bool]) -> None:
        """Return 1 where lanes leave the others for good."""
        if guard is None:
            return
        taken = self.value(guard)
        for value in which:
            lanes = taken if value else self.emit(f"xor <32 x i1> {taken}, splat (i1 true)")
            self._bad.append(self._any(lanes))

    def found(self) -> str:
        """Whether NumPy must look at the lanes, as a word."""
        if not self._bad:
            return "0"
        found = self._bad[0]
        for one in self._bad[1:]:
            found = self.emit(f"or i1 {found}, {one}")
        return self.emit(f"zext i1 {found} to i32")

    def splat(self, word: str) -> str:
        """A word of 32 bits in all lanes."""
        first = self.emit(f"insertelement <32 x i32> poison, i32 {word}, i64 0")
        return self.emit(f"shufflevector <32 x i32> {first}, <32 x i32> poison, <32 x i32> zeroinitializer")

    def _any(self, lanes: str) -> str:
        """Whether an executing lane is among some."""
        both = self.emit(f"and <32 x i1> {lanes}, %mask")
        return self.emit(f"icmp ne i32 {self.emit(f'bitcast <32 x i1> {both} to i32')}, 0")

    def do(self, text: str) -> None:
        """Add an instruction without a result."""
        self.lines.append(f"  {text}")

    def _loaded_word(self, word: Context) -> str:
        return self.emit(f"load i64, ptr {self._word(word)}")

    def _word(self, word: Context) -> str:
        return self.emit(f"getelementptr i64, ptr %ctx, i64 {int(word)}")

    # ---- expressions -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a step: its inputs are the registers as they are now."""
        self._done = {}

    def value(self, x: Value) -> str:
        """The name of an expression's value."""
        if x not in self._done:
            self._done[x] = self._value(x)
        return self._done[x]

    def _value(self, x: Value) -> str:
        if x.name == "input":
            return self.read(x.about)
        if x.name == "constant":
            return self._constant(x)
        if x.name == "loaded":
            return self.loaded[int(x.about)]
        given = [self.value(a) for a in x.arguments]
        of = x.arguments[0].dtype if x.arguments else x.dtype
        kind = vector(of)
        if x.name in _COMPARED:
            signed, unsigned, real = _COMPARED[x.name]
            how = f"fcmp {real}" if of.kind == "f" else f"icmp {signed if of.kind == 'i' else unsigned}"
            return self.emit(f"{how} {kind} {given[0]}, {given[1]}")
        if x.name in _PLAIN:
            return self.emit(f"{_PLAIN[x.name][of.kind == 'f']} {kind} {given[0]}, {given[1]}")
        if x.name in _INTRINSICS:
            return self.call(_INTRINSICS[x.name], of, *given)
        return _SPECIAL[x.name](self, x, given)

    def _constant(self, x: Value) -> str:
        if x.dtype == np.bool_:
            return f"splat (i1 {'true' if x.about else 'false'})"
        if x.dtype.kind == "f":
            bits = int(np.asarray(x.about, x.dtype).view(f"u{x.dtype.itemsize}"))
            word = f"<32 x i{x.dtype.itemsize * 8}>"
            return self.emit(f"bitcast {word} splat (i{x.dtype.itemsize * 8} {bits}) to {vector(x.dtype)}")
        return f"splat ({element(x.dtype)} {int(x.about)})"


def _cast(body: _Body, x: Value, given: list[str]) -> str:
    of, to = x.arguments[0].dtype, x.dtype
    kind, wanted = vector(of), vector(to)
    if to == np.bool_:
        return body.emit(f"icmp ne {kind} {given[0]}, zeroinitializer")
    if of.kind == "f":
        return body.emit(
            f"{'fpext' if to.itemsize > of.itemsize else 'fptrunc'} {kind} {given[0]} to {wanted}"
        )
    if to.kind == "f":
        return body.emit(f"{'sitofp' if of.kind == 'i' else 'uitofp'} {kind} {given[0]} to {wanted}")
    if of != np.bool_ and of.itemsize == to.itemsize:
        return given[0]
    if of != np.bool_ and of.itemsize > to.itemsize:
        return body.emit(f"trunc {kind} {given[0]} to {wanted}")
    return body.emit(f"{'sext' if of.kind == 'i' else 'zext'} {kind} {given[0]} to {wanted}")


def _view(body: _Body, x: Value, given: list[str]) -> str:
    of = x.arguments[0].dtype
    if of.kind != "f" and x.dtype.kind != "f":
        return given[0]
    return body.emit(f"bitcast {vector(of)} {given[0]} to {vector(x.dtype)}")


def _where(body: _Body, x: Value, given: list[str]) -> str:
    kind = vector(x.dtype)
    return body.emit(f"select <32 x i1> {given[0]}, {kind} {given[1]}, {kind} {given[2]}")


def _shift(body: _Body, x: Value, given: list[str]) -> str:
    """NumPy's shift: by the width or more it gives zeros, or the sign."""
    kind, width = vector(x.dtype), x.dtype.itemsize * 8
    limit = f"splat (i{width} {width - 1})"
    within = body.emit(f"icmp ule {kind} {given[1]}, {limit}")
    by = body.emit(f"select <32 x i1> {within}, {kind} {given[1]}, {kind} {limit}")
    if x.name == "right_shift" and x.dtype.kind == "i":
        return body.emit(f"ashr {kind} {given[0]}, {by}")
    shifted = body.emit(f"{'shl' if x.name == 'left_shift' else 'lshr'} {kind} {given[0]}, {by}")
    return body.emit(f"select <32 x i1> {within}, {kind} {shifted}, {kind} zeroinitializer")


def _invert(body: _Body, x: Value, given: list[str]) -> str:
    ones = "true" if x.dtype == np.bool_ else "-1"
    return body.emit(f"xor {vector(x.dtype)} {given[0]}, splat ({element(x.dtype)} {ones})")


def _negative(body: _Body, x: Value, given: list[str]) -> str:
    kind = vector(x.dtype)
    return body.emit(
        f"fneg {kind} {given[0]}" if x.dtype.kind == "f" else f"sub {kind} zeroinitializer, {given[0]}"
    )


def _extreme(body: _Body, x: Value, given: list[str]) -> str:
    a, b = given
    kind, of = vector(x.dtype), x.dtype.kind
    less = x.name == "minimum"
    if of == "f":  # a NaN stays
        first = body.emit(f"fcmp {'olt' if less else 'ogt'} {kind} {a}, {b}")
        nan = body.emit(f"fcmp uno {kind} {a}, zeroinitializer")
        first = body.emit(f"or <32 x i1> {first}, {nan}")
    else:
        how = ("s" if of == "i" else "u") + ("lt" if less else "gt")
        first = body.emit(f"icmp {how} {kind} {a}, {b}")
    return body.emit(f"select <32 x i1> {first}, {kind} {a}, {kind} {b}")


def _is_nan(body: _Body, x: Value, given: list[str]) -> str:
    return body.emit(f"fcmp uno {vector(x.arguments[0].dtype)} {given[0]}, zeroinitializer")


def _bitwise_count(body: _Body, x: Value, given: list[str]) -> str:
    of = x.arguments[0].dtype
    counted = body.call("ctpop", of, given[0])
    return counted if of.itemsize == 1 else body.emit(f"trunc {vector(of)} {counted} to <32 x i8>")


def _byteswap(body: _Body, x: Value, given: list[str]) -> str:
    return body.call("bswap", x.dtype, given[0])


def _fma(body: _Body, x: Value, given: list[str]) -> str:
    return body.call("fma", x.dtype, *given)


def _lane(body: _Body, x: Value, given: list[str]) -> str:
    return f"<{', '.join(f'i32 {lane}' for lane in range(WARP_SIZE))}>"


def _executing(body: _Body, x: Value, given: list[str]) -> str:
    return body.splat("%m")


def _ballot(body: _Body, x: Value, given: list[str]) -> str:
    votes = body.emit(f"and <32 x i1> {given[0]}, %mask")
    return body.splat(body.emit(f"bitcast <32 x i1> {votes} to i32"))


def _permute(body: _Body, x: Value, given: list[str]) -> str:
    kind = vector(x.dtype)
    if x.about is not None:
        lanes = ", ".join(f"i32 {lane}" for lane in x.about)
        return body.emit(f"shufflevector {kind} {given[0]}, {kind} poison, <32 x i32> <{lanes}>")
    space = body.emit(f"alloca {kind}")
    body.do(f"store {kind} {given[0]}, ptr {space}, align 8")
    hosts = body.emit(f"getelementptr {element(x.dtype)}, ptr {space}, <32 x i32> {given[1]}")
    body.declared |= set(INTRINSICS)
    return gather(body, hosts, "splat (i1 true)", element(x.dtype))


def _reduce(body: _Body, x: Value, given: list[str]) -> str:
    kind, operation = vector(x.dtype), x.about
    if operation in ("min", "max"):
        operation = ("s" if x.dtype.kind == "i" else "u") + operation
    name = f"@llvm.vector.reduce.{operation}.v32i32"
    body.declared.add(f"declare i32 {name}({kind})")
    return body.splat(body.emit(f"call i32 {name}({kind} {given[0]})"))


_SPECIAL: dict[str, Any] = {
    "lane": _lane,
    "executing": _executing,
    "ballot": _ballot,
    "permute": _permute,
    "reduce": _reduce,
    "cast": _cast,
    "view": _view,
    "where": _where,
    "left_shift": _shift,
    "right_shift": _shift,
    "invert": _invert,
    "logical_not": _invert,
    "negative": _negative,
    "minimum": _extreme,
    "maximum": _extreme,
    "isnan": _is_nan,
    "bitwise_count": _bitwise_count,
    "byteswap": _byteswap,
    "fma": _fma,
}


_GIVEN = "ptr noalias %slots, ptr noalias %inputs, i64 %w, i32 %m, ptr %ctx"


def _look(segment: Segment, types: Sequence[Any], inputs: dict[Key, int]) -> tuple[list[str], set[str]]:
    """The function that looks at a warp before any warp executes the first step; 1 if it is NumPy's."""
    if not segment.looks:
        return [], set()
    body, access = _Body(types, inputs), segment.access
    if access is not None:
        body.address(access, segment.traced[0].guard)
    elif segment.prepared is not None:
        body.come()
    if segment.refused is not None:
        body.refuse(segment.refused, segment.traced[0].guard)
    if segment.leaves:
        body.leave(segment.traced[0].guard, segment.leaves)
    for met in segment.meetings:
        if met.members is not None:
            body.meet(met)
    found = body.found()
    head = f"define internal i32 @look{segment.number}({_GIVEN}) #0 {{"
    start, end = "  %mask = bitcast i32 %m to <32 x i1>", f"  ret i32 {found}"
    return [head, start, *body.lines, end, "}"], body.declared


def _segment(segment: Segment, types: Sequence[Any], inputs: dict[Key, int]) -> tuple[list[str], set[str]]:
    """The function of one segment: it returns the executing lanes that its branch sends to the label."""
    body = _Body(types, inputs)
    taken = "%m"
    for one in segment.traced:
        body.begin()
        guard = None if one.guard is None else body.value(one.guard)
        is_branch = segment.branch is not None and one is segment.traced[-1]
        if guard is not None:
            word = body.count(guard)
            taken = word if is_branch else taken
        if one.access is not None:
            body.access(one.access)
        written = {slot: body.value(value) for slot, value in one.writes.items()}
        for slot, value in written.items():
            body.write(slot, value, guard)
    body.flush(segment.later)
    head = f"define internal i32 @segment{segment.number}({_GIVEN}) #0 {{"
    start = "  %mask = bitcast i32 %m to <32 x i1>"
    return [head, start, *body.lines, f"  ret i32 {taken}", "}"], body.declared


def module(segments: Sequence[Segment], types: Sequence[Any], inputs: dict[Key, int]) -> str:
    """The text of a kernel: its segments, tables and driver."""
    lines, declared = list[str](), {"declare i32 @llvm.ctpop.i32(i32)", "declare i32 @llvm.cttz.i32(i32, i1)"}
    for segment in segments:
        if segment.foreign:
            continue
        made = _segment(segment, types, inputs), _look(segment, types, inputs)
        for text, more in made:
            lines += text
            declared |= more
    return "\n".join([*_tables(segments), *sorted(declared), *lines, DRIVER, "!0 = !{}", ""])


def _tables(segments: Sequence[Segment]) -> list[str]:
    """What the driver knows of each segment."""
    at = {segment.first: segment.number for segment in segments}

    def number(pc: int) -> int:
        return at.get(pc, len(segments))

    rows: dict[str, list[int]] = {name: [] for name in ("kind", "steps", "counted", "target", "next", "back")}
    for s in segments:
        branch = s.branch
        unguarded = sum(one.guard is None for one in s.traced)
        rows["kind"].append(0 if s.foreign else 1 if branch is None else 2 if branch.guard is None else 3)
        rows["steps"].append(s.end - s.first)
        rows["counted"].append(unguarded)
        rows["target"].append(0 if branch is None else number(branch.target))
        rows["next"].append(number(s.end))
        back = 0
        if branch is not None and branch.target <= branch.number:
            back = 1 | branch.meets << 1 | branch.polls << 2
        rows["back"].append(back)
    n = len(segments)
    lines = [f"@{name} = internal constant [{n} x i64] [{_listed(row)}]" for name, row in rows.items()]
    numbers = iter(range(n))
    prepared = [-1 if s.prepared is None else next(numbers) for s in segments]
    looks = ", ".join(f"ptr @look{s.number}" if s.looks else "ptr null" for s in segments)
    functions = ", ".join("ptr null" if s.foreign else f"ptr @segment{s.number}" for s in segments)
    return [
        *lines,
        f"@prepared = internal constant [{n} x i64] [{_listed(prepared)}]",
        f"@looks = internal constant [{n} x ptr] [{looks}]",
        f"@functions = internal constant [{n} x ptr] [{functions}]",
        f"@count = internal constant i64 {n}",
        'attributes #0 = { nounwind "prefer-vector-width"="512" }',
    ]


def _listed(row: Sequence[int]) -> str:
    return ", ".join(f"i64 {x}" for x in row)
