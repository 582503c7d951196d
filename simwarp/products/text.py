"""LLVM's text of products of floats: the sums of `simwarp.products.floating`, of finite numbers.

The function ``product`` takes tiles one after another. It decodes A and B into values and exponents, and
then computes each row of D, `LANES` columns at a time. A tile with an infinity or a NaN, among its operands
or between two sums, is marked in ``outside``; what it gives there means nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from simwarp.floats.formats import FORMATS, Format
from simwarp.products.format_text import (
    BIT,
    INT,
    INTRINSICS,
    LANES,
    REAL,
    WIDE,
    decoding,
    encoding,
    splat,
    word,
    words,
)
from simwarp.products.rules import Rule, Types

_COUNTERS = ("tile", "a.at", "b.at", "row", "column")


def module(types: Types, rule: Rule) -> str:
    """The text of a product: the functions of its formats, and ``product``."""
    k = sum(map(len, rule.groups))
    accumulator = FORMATS[rule.accumulator]
    names = sorted({*types, rule.accumulator, *filter(None, [rule.operands])})
    functions = [decoding(FORMATS[name]) for name in names]
    functions += [
        encoding(f"to.{name}", FORMATS[name], "rn", FORMATS[name].fraction_bits, signed_zeros=True)
        for name in names
        if name in {types[0], rule.accumulator, rule.operands}
    ]
    functions.append(encoding("round", accumulator, rule.rounding, rule.output_bits, signed_zeros=False))
    counters = "\n".join(f"  %{name}.counter = alloca i64" for name in _COUNTERS)
    return f"""{INTRINSICS}{"".join(functions)}
define void @product(
    ptr noalias %a, ptr noalias %b, ptr noalias %c, ptr noalias %d,
    ptr noalias %scratch, ptr noalias %outside, i64 %tiles, i64 %m, i64 %n
) #0 {{
  %marks = alloca {BIT}
{counters}
  %a.count = mul i64 %m, {k}
  %b.count = mul i64 %n, {k}
  %d.count = mul i64 %m, %n
  %b.values = getelementptr double, ptr %scratch, i64 %a.count
  %a.exponents = getelementptr double, ptr %b.values, i64 %b.count
  %b.exponents = getelementptr i32, ptr %a.exponents, i64 %a.count
{_loop("tile", "%tiles", 1, _tile(types, rule, k))}
  ret void
}}
attributes #0 = {{ nounwind "prefer-vector-width"="512" }}
"""


def _loop(name: str, count: str, step: int, body: str) -> str:
    return f"""
  store i64 0, ptr %{name}.counter
  br label %{name}.test
{name}.test:
  %{name} = load i64, ptr %{name}.counter
  %{name}.more = icmp ult i64 %{name}, {count}
  br i1 %{name}.more, label %{name}.body, label %{name}.end
{name}.body:
{body}
  %{name}.next = add i64 %{name}, {step}
  store i64 %{name}.next, ptr %{name}.counter
  br label %{name}.test
{name}.end:"""


def _tile(types: Types, rule: Rule, k: int) -> str:
    columns = _loop("column", "%n", LANES, _Body().columns(types, rule))
    rows = f"""
  %a.row = mul i64 %row, {k}
  %a.values.row = getelementptr double, ptr %scratch, i64 %a.row
  %a.exponents.row = getelementptr i32, ptr %a.exponents, i64 %a.row
  %row.offset = mul i64 %row, %n
  %d.row = add i64 %d.start, %row.offset{columns}"""
    return f"""
  %a.start = mul i64 %tile, %a.count
  %b.start = mul i64 %tile, %b.count
  %d.start = mul i64 %tile, %d.count
  store {BIT} zeroinitializer, ptr %marks
{_decoded("a", "%scratch", types[1], rule)}
{_decoded("b", "%b.values", types[2], rule)}
{_loop("row", "%m", 1, rows)}
  %marks.last = load {BIT}, ptr %marks
  %marked = call i1 @llvm.vector.reduce.or.v{LANES}i1({BIT} %marks.last)
  %mark = zext i1 %marked to i8
  %outside.at = getelementptr i8, ptr %outside, i64 %tile
  store i8 %mark, ptr %outside.at"""


def _decoded(side: str, values: str, name: str, rule: Rule) -> str:
    """The loop that decodes a tile of A or B."""
    body = _Body(f"%{side}.")
    given, format = FORMATS[name], FORMATS[rule.operands or name]
    place = body.emit(f"add i64 %{side}.start, %{side}.at")
    words_of = body.load(given, f"%{side}", place)
    body.mark(words_of, given)
    words_of = body.convert(words_of, given, format)
    value, exponent = body.decode(words_of, format)
    for kind, element, array in ((f"{REAL} {value}", "double", values), (f"{INT} {exponent}", "i32", "")):
        to = body.emit(f"getelementptr {element}, ptr {array or f'%{side}.exponents'}, i64 %{side}.at")
        body.lines.append(f"  store {kind}, ptr {to}, align 4")
    return _loop(f"{side}.at", f"%{side}.count", LANES, "\n".join(body.lines))


class _Body:
    """Instructions of one loop, in SSA form."""

    def __init__(self, prefix: str = "%x") -> None:
        self.lines: list[str] = []
        self._prefix = prefix
        self._operands: dict[tuple[str, int], str] = {}

    def emit(self, text: str) -> str:
        """Add an instruction; returns the name of its result."""
        name = f"{self._prefix}{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def load(self, format: Format, array: str, place: str) -> str:
        at = self.emit(f"getelementptr {word(format)}, ptr {array}, i64 {place}")
        return self.emit(f"load {words(format)}, ptr {at}, align {format.word.itemsize}")

    def mark(self, x: str, format: Format) -> None:
        """Mark the tile if some words are infinities or NaN."""
        outside = self.emit(f"call {BIT} @outside.{format.name}({words(format)} {x})")
        before = self.emit(f"load {BIT}, ptr %marks")
        both = self.emit(f"or {BIT} {before}, {outside}")
        self.lines.append(f"  store {BIT} {both}, ptr %marks")

    def value(self, x: str, format: Format) -> str:
        return self.emit(f"call {REAL} @value.{format.name}({words(format)} {x})")

    def decode(self, x: str, format: Format) -> tuple[str, str]:
        exponent = self.emit(f"call {INT} @exponent.{format.name}({words(format)} {x})")
        return self.value(x, format), exponent

    def convert(self, x: str, source: Format, target: Format) -> str:
        """Convert words to another format, rounded to nearest."""
        if source == target:
            return x
        return self.emit(f"call {words(target)} @to.{target.name}({REAL} {self.value(x, source)})")

    # ---- sums ------------------------------------------------------------------------------------------

    def columns(self, types: Types, rule: Rule) -> str:
        """Some columns of a row of D."""
        result, accumulator, given = FORMATS[types[0]], FORMATS[rule.accumulator], FORMATS[types[3]]
        place = self.emit("add i64 %d.row, %column")
        c = self.load(given, "%c", place)
        self.mark(c, given)
        c = self.convert(c, given, accumulator)
        total = c if rule.addend == "first" else "zeroinitializer"
        for i, group in enumerate(rule.groups):
            if i:
                self.mark(total, accumulator)
            total = self.sum(group, total, rule)
        if rule.addend == "last":
            self.mark(total, accumulator)
            x, y = self.value(total, accumulator), self.value(c, accumulator)
            both = self.emit(f"fadd {REAL} {x}, {y}")  # in double, rounded again: as if rounded once
            total = self.emit(f"call {words(accumulator)} @to.{accumulator.name}({REAL} {both})")
        total = self.convert(total, accumulator, result)
        to = self.emit(f"getelementptr {word(result)}, ptr %d, i64 {place}")
        self.lines.append(f"  store {words(result)} {total}, ptr {to}, align {result.word.itemsize}")
        return "\n".join(self.lines)

    def sum(self, group: tuple[int, ...], total: str, rule: Rule) -> str:
        """One fused sum: the products of a group and the total before, as words."""
        accumulator, bits = FORMATS[rule.accumulator], rule.fraction_bits
        addend, largest = self.decode(total, accumulator)
        largest = self._greater(largest, splat("i32", rule.floor))
        for k in group:
            x, y = self._of_a("exponents", k), self._of_b("exponents", k)
            largest = self._greater(largest, self.emit(f"add {INT} {x}, {y}"))
        wide = self.emit(f"sext {INT} {largest} to {WIDE}")
        up = self.emit(f"sub {WIDE} {splat('i64', 1023 + bits)}, {wide}")
        down = self.emit(f"sub {WIDE} {splat('i64', 2 * 1023)}, {up}")
        scale = self._power(up)
        added = self._truncated(addend, scale)
        for k in group:
            product = self.emit(f"fmul {REAL} {self._of_a('values', k)}, {self._of_b('values', k)}")
            added = self.emit(f"fadd {REAL} {added}, {self._truncated(product, scale)}")
        number = self.emit(f"fmul {REAL} {added}, {self._power(down)}")
        return self.emit(f"call {words(accumulator)} @round({REAL} {number})")

    def _greater(self, x: str, y: str) -> str:
        return self.emit(f"call {INT} @llvm.smax.v{LANES}i32({INT} {x}, {INT} {y})")

    def _power(self, field: str) -> str:
        """The power of two with this exponent field."""
        placed = self.emit(f"shl {WIDE} {field}, {splat('i64', 52)}")
        return self.emit(f"bitcast {WIDE} {placed} to {REAL}")

    def _truncated(self, x: str, scale: str) -> str:
        scaled = self.emit(f"fmul {REAL} {x}, {scale}")
        return self.emit(f"call {REAL} @llvm.trunc.v{LANES}f64({REAL} {scaled})")

    def _of_a(self, array: str, k: int) -> str:
        """The element of A in this row and column k, in all lanes."""

        def made() -> str:
            one, many = _ELEMENTS[array]
            at = self.emit(f"getelementptr {one}, ptr %a.{array}.row, i64 {k}")
            first = self.emit(
                f"insertelement {many} poison, {one} {self.emit(f'load {one}, ptr {at}')}, i64 0"
            )
            return self.emit(f"shufflevector {many} {first}, {many} poison, {INT} zeroinitializer")

        return self._once(f"a {array}", k, made)

    def _of_b(self, array: str, k: int) -> str:
        """The elements of B in row k and these columns."""

        def made() -> str:
            one, many = _ELEMENTS[array]
            row = self.emit(f"mul i64 %n, {k}")
            place = self.emit(f"add i64 {row}, %column")
            at = self.emit(f"getelementptr {one}, ptr %b.{array}, i64 {place}")
            return self.emit(f"load {many}, ptr {at}, align 4")

        return self._once(f"b {array}", k, made)

    def _once(self, name: str, k: int, made: Callable[[], str]) -> str:
        if (name, k) not in self._operands:
            self._operands[name, k] = made()
        return self._operands[name, k]


_ELEMENTS = {"values": ("double", REAL), "exponents": ("i32", INT)}
"""Array of decoded operands → LLVM's types of one element, and of several."""
