"""The grammar of PTX as the parser reads it, and the line that an error names."""

import re

import pytest

from simwarp.faults import PtxSyntaxError
from simwarp.ptx.parse import _tokens, parse
from simwarp.ptx.syntax import Address, Immediate, Pair, Register, SourceLine, Symbol, Vector

HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"


def entry(body, parameters="", directives=""):
    return parse(f"{HEAD}.visible .entry k({parameters}){directives}{{\n{body}\n}}").entries["k"]


def instruction(text):
    (only,) = entry(text).instructions
    return only


def operands(text):
    return instruction(f"op {text};").operands


def test_module_directives():
    module = parse(".version 8.7\n.target sm_90a, texmode_independent\n.address_size 64\n")
    assert (module.version, module.target, module.entries, module.variables) == ("8.7", "sm_90a", {}, [])
    assert parse("").entries == {}


def test_comments_are_blank():
    text = "add.u32 %r1, /* a, b; */ %r2, // %r3;\n /* two\nlines */ 3; ret;"
    first, second = entry(text).instructions
    assert first.operands == (Register("%r1"), Register("%r2"), Immediate(3))
    assert (first.line, second.line) == (5, 7)


def test_lines_and_texts():
    first, second = entry("  mov.u32 %r1, 0;\n\n\tret;").instructions
    assert (first.line, first.text) == (5, "mov.u32 %r1, 0;")
    assert (second.line, second.text) == (7, "ret;")


def test_labels():
    found = entry("A: mov.u32 %r1, 0;\n$L__BB0_2:\nB:\nret;\nEND:")
    assert found.labels == {"A": 0, "$L__BB0_2": 1, "B": 1, "END": 2}


@pytest.mark.parametrize(
    ("text", "guard"),
    [("@%p1 bra A;", Register("%p1")), ("@!%p2 bra A;", Register("%p2", negated=True)), ("bra A;", None)],
)
def test_guards(text, guard):
    found = instruction(text)
    assert (found.guard, found.opcode, found.operands) == (guard, "bra", (Symbol("A"),))


@pytest.mark.parametrize(
    ("text", "operand"),
    [
        ("%r1", Register("%r1")),
        ("%tid.x", Register("%tid.x")),
        ("!%p1", Register("%p1", negated=True)),
        ("cells", Symbol("cells")),
        ("_ZN3foo::bar$1", Symbol("_ZN3foo::bar$1")),
        ("12", Immediate(12)),
        ("12U", Immediate(12)),
        ("-1", Immediate(-1)),
        ("0xFFFFFFFF", Immediate(0xFFFFFFFF)),
        ("0XaBU", Immediate(0xAB)),
        ("-0x10", Immediate(-16)),
        ("010", Immediate(8)),
        ("0b101", Immediate(5)),
        ("0B11U", Immediate(3)),
        ("0", Immediate(0)),
        ("00", Immediate(0)),
        ("18446744073709551615", Immediate(2**64 - 1)),
        ("0f3F800000", Immediate(0x3F800000, 32)),
        ("0F7fc00000", Immediate(0x7FC00000, 32)),
        ("0d3FF0000000000000", Immediate(0x3FF0000000000000, 64)),
        ("0D8000000000000000", Immediate(1 << 63, 64)),
        ("[%rd1]", Address(Register("%rd1"))),
        ("[%rd1+4]", Address(Register("%rd1"), 4)),
        ("[%rd1 + 0x10]", Address(Register("%rd1"), 16)),
        ("[%rd1+-8]", Address(Register("%rd1"), -8)),
        ("[%rd1-8]", Address(Register("%rd1"), -8)),
        ("[param_0+12]", Address(Symbol("param_0"), 12)),
        ("[256]", Address(Immediate(256))),
        ("{%r1, %r2}", Vector((Register("%r1"), Register("%r2")))),
        (
            "{%r1, 0, -1, 0f00000000}",
            Vector((Register("%r1"), Immediate(0), Immediate(-1), Immediate(0, 32))),
        ),
        ("{%r1, _}", Vector((Register("%r1"), Register("_")))),
        ("%r1|%p1", Pair(Register("%r1"), Register("%p1"))),
        ("%r1 | _", Pair(Register("%r1"), None)),
        ("_|%p1", Pair(None, Register("%p1"))),
    ],
)
def test_operands(text, operand):
    assert operands(text) == (operand,)


def test_several_operands():
    assert operands("%r1, [%rd1], 3") == (Register("%r1"), Address(Register("%rd1")), Immediate(3))
    assert operands("") == ()


def test_registers():
    found = entry(".reg .pred %p<3>;\n.reg .b32 %r<2>, %x;\n.reg .f64 %fd1, %fd2; ret;")
    assert found.registers == {
        **{f"%p{i}": "pred" for i in range(3)},
        "%r0": "b32",
        "%r1": "b32",
        "%x": "b32",
        "%fd1": "f64",
        "%fd2": "f64",
    }


def test_parameters():
    parameters = (
        ".param .u64 a, .param .u64 .ptr .global .align 16 b,\n.param .align 8 .b8 c[24], .param .v4 .f32 d"
    )
    found = [(p.name, p.space, p.type, p.count, p.alignment) for p in entry("ret;", parameters).parameters]
    assert found == [
        ("a", "param", "u64", 1, 0),
        ("b", "param", "u64", 1, 16),
        ("c", "param", "b8", 24, 8),
        ("d", "param", "f32", 4, 0),
    ]
    assert parse(HEAD + ".entry k { ret; }").entries["k"].parameters == []


@pytest.mark.parametrize(
    ("directives", "threads"),
    [
        ("", None),
        ("\n.maxntid 128, 1, 1\n", 128),
        (".maxntid 16,8", 128),
        (".reqntid 32, 4, 2\n.minnctapersm 2", 256),
        (".minnctapersm 2 .maxnreg 64", None),
    ],
)
def test_performance_directives(directives, threads):
    assert entry("ret;", directives=directives).max_threads == threads


def test_variables():
    text = (
        HEAD + ".extern .shared .align 16 .b8 dynamic[];\n.shared .align 4 .f32 tile[32][33];\n"
        '.visible .entry k() { .shared .b32 one; .pragma "nounroll"; ret; }'
    )
    module = parse(text)
    found = [(v.name, v.space, v.type, v.count, v.alignment) for v in module.variables]
    assert found == [("dynamic", "shared", "b8", 0, 16), ("tile", "shared", "f32", 32 * 33, 4)]
    (one,) = module.entries["k"].variables
    assert (one.name, one.count) == ("one", 1)


def test_several_entries_and_braces_that_only_group():
    module = parse(HEAD + ".visible .entry a() { { mov.u32 %r1, 0; } ret; }\n.weak .entry b() { ret; }")
    assert {name: len(e.instructions) for name, e in module.entries.items()} == {"a": 2, "b": 1}


def test_registers_without_a_percent_sign():
    """As inline assembly declares them: ``{ .reg .pred p; … @p bra; }``."""
    found = entry("{ .reg .pred p; .reg .u32 t; setp.ne.u32 p, t, 0; @p bra A; }\nA: ret;")
    assert found.instructions[0].operands == (Register("p"), Register("t"), Immediate(0))
    assert found.instructions[1].guard == Register("p")


# --------------------------------------------------------------------------------- lines of CUDA C++


def sources(body, files='.file 1 "k.cu"\n.file 2 "include/shuffle.h", 123, 456\n'):
    text = f"{HEAD}.visible .entry k() {{\n{body}\n}}\n{files}"
    return [i.source for i in parse(text).entries["k"].instructions]


def test_locations_hold_until_the_next_one():
    body = "mov.u32 %r1, 0;\n.loc 1 10 5\nmov.u32 %r1, 1; mov.u32 %r1, 2;\n.loc\t1 12 0\nret;"
    assert sources(body) == [None, *[SourceLine("k.cu", 10)] * 2, SourceLine("k.cu", 12)]


def test_inlined_code_counts_as_the_line_of_the_kernel():
    body = ".loc 2 200 3, function_name $L__info_string0, inlined_at 1 21 9\nmov.u32 %r1, 0;\n"
    body += ".loc 2 200 3, function_name $L__info_string0+17, inlined_at 1 22 9\nret;"
    assert sources(body) == [SourceLine("k.cu", 21), SourceLine("k.cu", 22)]
    own = ".loc 1 7 3, function_name $L__info_string0, inlined_at 1 21 9\nret;"
    assert sources(own) == [SourceLine("k.cu", 7)]


def test_a_header_of_the_kernel_s_own_keeps_its_lines():
    body = ".loc 2 52 9, function_name $L__info_string0, inlined_at 1 21 9\nret;"
    files = '.file 1 "bmm/bmm.cu"\n.file 2 "bmm/output.cuh"\n'
    assert sources(body, files) == [SourceLine("bmm/output.cuh", 52)]


def test_locations_of_one_entry_do_not_reach_into_the_next():
    text = HEAD + '.entry a() { .loc 1 3 1\n ret; }\n.entry b() { ret; }\n.file 1 "k.cu"'
    entries = parse(text).entries
    assert entries["a"].instructions[0].source == SourceLine("k.cu", 3)
    assert entries["b"].instructions[0].source is None


def test_debug_sections_are_skipped():
    text = (
        HEAD
        + '.entry k() { ret; }\n.section .debug_str\n{\n$L__info:\n.b8 95,90,0\n{ .b8 1 }\n}\n.file 1 "k.cu"'
    )
    assert list(parse(text).entries) == ["k"]


# --------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("nonsense", 1, "directive"),
        (".version 9.0\n.bogus", 2, "directive"),
        (".version 9.0\n#pragma", 2, "is not PTX"),
        (".version 9.0\n.target sm_90\n.address_size 32\n", 3, "64-bit"),
        (HEAD + ".entry k() {\nadd.u32 %r1, %r2\nret;\n}", 6, "','"),
        (HEAD + ".entry k() {\nadd.u32 %r1 %r2;\n}", 5, "','"),
        (HEAD + ".entry k() {\nld.u32 %r1, [%rd1;\n}", 5, "']'"),
        (HEAD + ".entry k() {\nld.u32 %r1, [%rd1+];\n}", 5, "number"),
        (HEAD + ".entry k() {\nld.u32 %r1, [%rd1+%r2];\n}", 5, "number"),
        (HEAD + ".entry k() {\nmov.b64 %rd1, {%r1, cells};\n}", 5, "registers or numbers"),
        (HEAD + ".entry k() {\nmov.u32 %r1, -%r2;\n}", 5, "number"),
        (HEAD + ".entry k() {\nmov.u32 %r1, ;\n}", 5, "number"),
        (HEAD + ".entry k() {\nmov.u32 %r1, 1.5;\n}", 5, "1.5"),
        (HEAD + ".entry k() {\nmov.u32 %r1, 089;\n}", 5, "089"),
        (HEAD + ".entry k() {\n@ ;\n", 5, "name"),
        (HEAD + ".entry k() {\nret;\n", 6, "'}'"),
        (HEAD + ".entry k(.param .u64 a .param .u64 b) { ret; }", 4, "','"),
        (HEAD + ".entry k(.reg .u64 a) { ret; }", 4, "'.param'"),
        (HEAD + ".entry k() {\n.reg .b32 %r<x>;\n}", 5, "number"),
        (HEAD + ".entry k() {\n.loc 1 2 3, elsewhere 4\nret;\n}", 5, "inlined_at"),
        (HEAD + ".global .u32 table[2] = {1, 2};", 4, "initialised"),
        (HEAD + ".section .debug_str\n{\n.b8 1\n", 7, "'}'"),
        (HEAD + ".section .debug_str\n", 5, "more"),
        (HEAD + '.entry k() {\n.pragma "nounroll"\n', 6, "more"),
    ],
)
def test_errors_name_the_line(text, line, says):
    with pytest.raises(PtxSyntaxError) as caught:
        parse(text)
    assert re.match(rf"line {line}:", str(caught.value)), caught.value
    assert says in str(caught.value)


WHOLE = (
    HEAD + ".extern .shared .align 16 .b8 dynamic[];\n"
    ".visible .entry k(.param .u64 .ptr .align 4 a, .param .align 8 .b8 c[24])\n.maxntid 128, 1, 1\n{\n"
    ".reg .pred %p<2>;\n.reg .b32 %r<9>, %x;\n.loc 2 200 3, function_name $L__s+2, inlined_at 1 21 9\n"
    'A: @!%p1 shfl.sync.idx.b32 %r1|_, %r2, 0x1F, -1, 31U;\n.pragma "nounroll";\n'
    "ld.global.v2.u32 {%r1, %r2}, [%rd1+-4];\nbra A;\n}\n"
    '.section .debug_str\n{\n$L__s:\n.b8 95\n}\n.file 1 "k.cu"\n.file 2 "s.h", 1, 2\n'
)


def test_text_broken_anywhere_is_a_syntax_error_or_fine():
    """Cut off behind each token, and with each token left out or written twice: never another exception."""
    parse(WHOLE)
    spans, at = [], 0
    for token in list(_tokens(WHOLE))[:-1]:
        start = WHOLE.index(token.text, at)
        at = start + len(token.text)
        spans.append((start, at))
    errors = [error for start, end in spans for error in map(error_of, broken_at(start, end)) if error]
    assert len(errors) > len(spans)
    assert [error for error in errors if not re.match(r"line \d+: ", error)] == []


def broken_at(start, end):
    return WHOLE[:start], WHOLE[:start] + WHOLE[end:], WHOLE[:end] + " " + WHOLE[start:]


def error_of(text):
    try:
        parse(text)
    except PtxSyntaxError as error:
        return str(error)
    return ""
