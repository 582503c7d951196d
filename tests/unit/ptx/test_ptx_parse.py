"""The PTX grammar of the parser, and the lines named by its errors."""

import re
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simwarp.faults import PtxSyntaxError
from simwarp.ptx.grammar.tokens import Cursor
from simwarp.ptx.parse import parse
from simwarp.ptx.syntax import (
    Address,
    Group,
    Immediate,
    Module,
    Pair,
    Reference,
    Register,
    SourceLine,
    Symbol,
    Vector,
)
from support.offenders import every_case

HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"


def entry(body, parameters="", directives=""):
    return parse(f"{HEAD}.visible .entry k({parameters}){directives}{{\n{body}\n}}").entries["k"]


def instruction(text):
    (only,) = entry(text).instructions
    return only


def operands(text, opcode="op"):
    return instruction(f"{opcode} {text};").operands


def variable(text):
    (only,) = parse(HEAD + text).variables
    return only


def error_of(text):
    try:
        parse(text)
    except PtxSyntaxError as error:
        return str(error)
    return ""


# -------------------------------------------------------------------------------------------- modules


def test_module_directives_are_parsed():
    module = parse(".version 8.7\n.target sm_90a, texmode_independent, debug\n.address_size 64\n")
    assert (module.version, module.target, module.entries, module.variables) == ("8.7", "sm_90a", {}, [])
    assert parse(".version 6.0\n.target sm_50\n").target == "sm_50"


@pytest.mark.parametrize("target", ["sm_75", "sm_88", "sm_90a", "sm_100", "sm_100a", "sm_103f", "sm_121f"])
def test_targets_are_parsed(target):
    assert parse(f".version 9.0 .target {target}").target == target


def test_comments_are_skipped():
    text = "add.u32 %r1, /* a, b; */ %r2, // %r3; é\n /* two\nlines */ 3; ret; // the end"
    first, second = entry(text).instructions
    assert first.operands == (Register("%r1"), Register("%r2"), Immediate(3))
    assert (first.line, second.line) == (5, 7)


def test_instructions_keep_their_line_and_text():
    first, second = entry("  mov.u32 %r1, 0;\n\n\tret;").instructions
    assert (first.line, first.text) == (5, "mov.u32 %r1, 0;")
    assert (second.line, second.text) == (7, "ret;")


def test_tokens_may_touch_and_opcodes_may_contain_spaces():
    """Inline assembly often has ``.reg.pred p``."""
    found = parse(
        HEAD + ".visible.entry k(.param.u64 a){.reg.pred p;.reg.b32 t;add .u32 t,t,1;ret;}"
    ).entries["k"]
    assert found.registers == {"p": "pred", "t": "b32"}
    assert [i.opcode for i in found.instructions] == ["add.u32", "ret"]


def test_several_entries_and_pragmas_are_parsed():
    module = parse(
        HEAD + '.pragma "a";\n.visible .entry a() { { mov.u32 %r1, 0; } ret; }\n'
        '.weak .entry b() .pragma "b"; { .pragma "nounroll", "used_bytes_mask 15"; ret; }'
    )
    assert {name: len(e.instructions) for name, e in module.entries.items()} == {"a": 2, "b": 1}


# ------------------------------------------------------------------------------------------- operands


@pytest.mark.parametrize(
    ("text", "guard"),
    [("@%p1 bra A;", Register("%p1")), ("@!%p2 bra A;", Register("%p2", negated=True)), ("bra A;", None)],
)
def test_guards_are_parsed(text, guard):
    found = instruction(text)
    assert (found.guard, found.opcode, found.operands) == (guard, "bra", (Symbol("A"),))


def double(value):
    return Immediate(struct.unpack("<Q", struct.pack("<d", value))[0], 64)


@every_case(
    ("text", "operand"),
    [
        ("%r1", Register("%r1")),
        ("%tid.x", Register("%tid.x")),
        ("!%p1", Register("%p1", negated=True)),
        ("_", Register("_")),
        ("cells", Symbol("cells")),
        ("cells+4", Symbol("cells", 4)),
        ("cells + 4*(1+2)", Symbol("cells", 12)),
        ("cells-8+4", Symbol("cells", -4)),
        ("WARP_SZ", Symbol("WARP_SZ")),
        ("WARP_SZ*2", Immediate(64)),
        ("_ZN3foo::bar$1", Symbol("_ZN3foo::bar$1")),
        ("12", Immediate(12)),
        ("12U", Immediate(12)),
        ("-1", Immediate(-1)),
        ("!0", Immediate(1)),
        ("0xFFFFFFFF", Immediate(0xFFFFFFFF)),
        ("0XaBU", Immediate(0xAB)),
        ("-0x10", Immediate(-16)),
        ("010", Immediate(8)),
        ("0b101", Immediate(5)),
        ("0B11U", Immediate(3)),
        ("0", Immediate(0)),
        ("00", Immediate(0)),
        ("18446744073709551615", Immediate(2**64 - 1)),
        ("(1+2)*4", Immediate(12)),
        ("1 ? 2 : 3", Immediate(2)),
        ("0f3F800000", Immediate(0x3F800000, 32)),
        ("0F7fc00000", Immediate(0x7FC00000, 32)),
        ("0d3FF0000000000000", Immediate(0x3FF0000000000000, 64)),
        ("0D8000000000000000", Immediate(1 << 63, 64)),
        ("1.0", double(1.0)),
        ("-2.5e3", double(-2500.0)),
        (".5", double(0.5)),
        ("1.", double(1.0)),
        ("1e-5", double(1e-5)),
        ("1.5*2.0", double(3.0)),
        ("1.0/3.0 - 1.0", double(1.0 / 3.0 - 1.0)),
        ("-0.0", Immediate(1 << 63, 64)),
        ("[%rd1]", Address(Register("%rd1"))),
        ("[%rd1+4]", Address(Register("%rd1"), 4)),
        ("[%rd1 + 0x10]", Address(Register("%rd1"), 16)),
        ("[%rd1+ -8]", Address(Register("%rd1"), -8)),
        ("[%rd1-8]", Address(Register("%rd1"), -8)),
        ("[%rd1+(1+2)*4]", Address(Register("%rd1"), 12)),
        ("[%rd1+WARP_SZ]", Address(Register("%rd1"), 32)),
        ("[param_0+12]", Address(Symbol("param_0"), 12)),
        ("[256]", Address(Immediate(256))),
        ("[%rd1, %f1]", Address(Register("%rd1"), 0, (Register("%f1"),))),
        (
            "[%rd1+8, {%r2, %r3}, 4]",
            Address(Register("%rd1"), 8, (Vector((Register("%r2"), Register("%r3"))), Immediate(4))),
        ),
        ("{%r1, %r2}", Vector((Register("%r1"), Register("%r2")))),
        (
            "{%r1, 0, ~0, 0f00000000}",
            Vector((Register("%r1"), Immediate(0), Immediate(-1), Immediate(0, 32))),
        ),
        ("{%r1, _}", Vector((Register("%r1"), Register("_")))),
        ("%r1|%p1", Pair(Register("%r1"), Register("%p1"))),
        ("%r1 | _", Pair(Register("%r1"), None)),
        ("_|%p1", Pair(None, Register("%p1"))),
    ],
)
def test_operands_are_parsed(text, operand):
    assert operands(text) == (operand,)


def test_operand_lists_are_parsed():
    assert operands("%r1, [%rd1], 3") == (Register("%r1"), Address(Register("%rd1")), Immediate(3))
    assert operands("") == ()


def test_long_opcodes_are_parsed():
    text = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    found = instruction(f"{text} [%r9], [%rd1, {{%r19, %r20}}], [%r9];")
    assert found.opcode == text
    assert [type(o) for o in found.operands] == [Address, Address, Address]
    assert instruction("cp.async.cg.shared.global.L2::128B [%r9], [%rd1], 16;").opcode.endswith(".L2::128B")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("name", (Symbol("name"),)),
        ("name, ()", (Symbol("name"), Group(()))),
        ("(r), name", (Group((Symbol("r"),)), Symbol("name"))),
        (
            "(r0),\nname,\n(\np0,\np1\n)",
            (Group((Symbol("r0"),)), Symbol("name"), Group((Symbol("p0"), Symbol("p1")))),
        ),
        (
            "(r), %rd1, (%r1, 5, -1), proto",
            (
                Group((Symbol("r"),)),
                Register("%rd1"),
                Group((Register("%r1"), Immediate(5), Immediate(-1))),
                Symbol("proto"),
            ),
        ),
        ("%rd1, proto", (Register("%rd1"), Symbol("proto"))),
        (
            "(_, %r1), f, (2+3)",
            (Group((Register("_"), Register("%r1"))), Symbol("f"), Group((Immediate(5),))),
        ),
    ],
)
def test_calls_are_parsed(text, found):
    assert operands(text, "call") == found
    assert operands(text, "call.uni") == found


# ------------------------------------------------------------------------------- constant expressions


@every_case(
    ("text", "value"),
    [
        # Memory contents by ptxas 13.0 for `.global .b64 x = …;`.
        ("-1 < 2U", 0),
        ("-1 < 2", 1),
        ("-8 >> 1", -4),
        ("-8U >> 1", 0x7FFFFFFFFFFFFFFC),
        ("1 << 64", 1),
        ("1 << 65", 2),
        ("1 << -1", 1 << 63),
        ("-1 >> 64", -1),
        ("-7/2", -3),
        ("-7 / 2U", 0x7FFFFFFFFFFFFFFC),
        ("-7 % 3", 0),
        ("7 % -3", 7),
        ("~0", -1),
        ("!5", 0),
        ("2 && 0", 0),
        ("5 || 0", 1),
        ("5 ^ 3 | 8 & 12", 14),
        ("1 + 2 << 3", 24),
        ("1 | 2 ^ 3 & 4 == 4 < 5 << 6 - 7 * 8", 3),
        ("0 ? 1 : 0 ? 2 : 3", 3),
        ("9223372036854775807 + 1", 1 << 63),
        ("(.s64) 18446744073709551615 / 2", 0),
        ("18446744073709551615 / 2", (1 << 63) - 1),
        ("(.u64) -8 >> 1", 0x7FFFFFFFFFFFFFFC),
        ("1.5 < 2.5 ? 3 : 4", 3),
        ("9223372036854775808 / -1", 0),
        ("- - 5", 5),
        ("-~5", 6),
        ("5 == 5U", 1),
        ("(1 ? -8 : 2U) >> 1", -4),
        ("(1 < 2U) - 2 < 0", 1),
    ],
)
def test_constant_expressions_are_evaluated(text, value):
    (found,) = operands(text)
    assert (found.value - value) % 2**64 == 0
    assert found.float_bits == 0


@given(st.recursive(
    st.integers(0, 2**63 - 1).map(str),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from("-~"), inner).map(lambda t: f"{t[0]}({t[1]})"),
        st.tuples(inner, st.sampled_from(["+", "-", "*", "&", "|", "^"]), inner).map(" ".join),
        inner.map("({})".format),
    ),
    max_leaves=8,
))  # fmt: skip
def test_constant_integer_arithmetic_wraps_to_64_bits(text):
    """Python has the same operator precedence; signs do not matter modulo 2^64."""
    (found,) = operands(text)
    assert (found.value - eval(text)) % 2**64 == 0
    assert -(2**63) <= found.value < 2**64


# ------------------------------------------------------------------------------------------ variables


def test_variables_are_parsed():
    text = (
        HEAD + ".extern .shared .align 16 .b8 dynamic[];\n.shared .align 4 .f32 tile[32][33];\n"
        ".visible .const .b64 a, b[WARP_SZ];\n.weak .global .v4 .f32 v[2];\n.global .texref t;\n"
        ".global .attribute(.managed) .align 4 .b32 m;\n.visible .attribute(.managed) .global .b32 n;\n"
        ".visible .entry k() { .shared .b32 one; .local .align 16 .b8 depot[80]; ret; }"
    )
    module = parse(text)
    assert [(v.name, v.space, v.type, v.count, v.alignment, v.extern) for v in module.variables] == [
        ("dynamic", "shared", "b8", 0, 16, True),
        ("tile", "shared", "f32", 32 * 33, 4, False),
        ("a", "const", "b64", 1, 0, False),
        ("b", "const", "b64", 32, 0, False),
        ("v", "global", "f32", 8, 16, False),
        ("t", "global", "texref", 1, 0, False),
        ("m", "global", "b32", 1, 4, False),
        ("n", "global", "b32", 1, 0, False),
    ]
    found = [(v.name, v.space, v.count, v.alignment) for v in module.entries["k"].variables]
    assert found == [("one", "shared", 1, 0), ("depot", "local", 80, 16)]


def test_a_definition_replaces_extern_declarations():
    found = variable(".extern .global .b32 x;\n.visible .global .b32 x = 3;\n.extern .global .b32 x;")
    assert (found.extern, found.initial) == (False, (Immediate(3),))


def single(value):
    return Immediate(struct.unpack("<I", struct.pack("<f", value))[0], 32)


@every_case(
    ("text", "count", "initial"),
    [
        (".b32 x = 5", 1, [Immediate(5)]),
        (".u64 x = -1", 1, [Immediate(-1)]),
        (".b8 x[4] = {1, 0xFF, 2+3}", 4, [Immediate(1), Immediate(255), Immediate(5)]),
        (".b8 x[] = {1, 2, 3}", 3, [Immediate(1), Immediate(2), Immediate(3)]),
        (".b8 x[4] = {}", 4, []),
        (".u32 x[3][2] = {{1, 2}, {3}}", 6, [Immediate(v) for v in (1, 2, 3)]),
        (".u32 x[3][2] = {{1}, {3}, {5, 6}}", 6, [Immediate(v) for v in (1, 0, 3, 0, 5, 6)]),
        (".u32 x[][2] = {{1}, {3}}", 4, [Immediate(v) for v in (1, 0, 3)]),
        (".u32 x[][2] = {{1, 2}, {}}", 4, [Immediate(v) for v in (1, 2)]),
        (".u8 x[2][2][2] = {{{1}}, {{2, 3}, {4}}}", 8, [Immediate(v) for v in (1, 0, 0, 0, 2, 3, 4)]),
        (".f32 x[3] = {1.5, 0f3F800000, -.1}", 3, [single(1.5), single(1.0), single(-0.1)]),
        (".f32 x = 16777217.000000001", 1, [single(16777216.0)]),
        (".f32 x = 1.0e39", 1, [single(float("inf"))]),
        (".f64 x[2] = {1.5, 0d3FF0000000000000}", 2, [double(1.5), double(1.0)]),
        (".b32 x = 1.5", 1, [single(1.5)]),
        (".f64 x = 0f3FC00000", 1, [Immediate(0x3FC00000, 64)]),  # ptxas keeps the bits
        (".v2 .f32 x[2] = {{1.0}, {2.0, 3.0}}", 4, [single(1), Immediate(0), single(2), single(3)]),
        (".u64 x = y", 1, [Reference("y")]),
        (".u64 x[2] = {y+8, 7}", 2, [Reference("y", 8), Immediate(7)]),
        (".u64 x[2] = {generic(y), generic($y)+(1+2)*4}", 2,
         [Reference("y", generic=True), Reference("$y", 12, generic=True)]),
        (".u8 x[3] = {0xFF(y), 0XFF00(y+8), 0xFF0000(generic(y)+4)}", 3,
         [Reference("y", mask=0xFF), Reference("y", 8, mask=0xFF00), Reference("y", 4, True, 0xFF0000)]),
    ],
)  # fmt: skip
def test_initial_values_are_parsed(text, count, initial):
    found = variable(f".global .align 8 {text};")
    assert (found.count, list(found.initial)) == (count, initial)


def test_register_declarations_are_parsed():
    found = entry(".reg .pred %p<3>;\n.reg .b32 %r<2>, %x;\n.reg .f64 %fd1, %fd2; .reg .f16 h; ret;")
    assert found.registers == {
        **{f"%p{i}": "pred" for i in range(3)},
        "%r0": "b32",
        "%r1": "b32",
        "%x": "b32",
        "%fd1": "f64",
        "%fd2": "f64",
        "h": "f16",
    }


# ------------------------------------------------------------------------------------------ functions


def test_parameters_are_parsed():
    """The target of a pointer may be aligned more strictly than the pointer itself."""
    parameters = (
        ".param .u64 a, .param .u64 .ptr .global .align 16 b,\n.param .align 8 .b8 c[24], .param .v4 .f32 d, "
        ".param .b64 .ptr.shared e"
    )
    found = [(p.name, p.space, p.type, p.count, p.alignment) for p in entry("ret;", parameters).parameters]
    assert found == [
        ("a", "param", "u64", 1, 0),
        ("b", "param", "u64", 1, 0),
        ("c", "param", "b8", 24, 8),
        ("d", "param", "f32", 4, 16),
        ("e", "param", "b64", 1, 0),
    ]
    assert parse(HEAD + ".entry k { ret; }").entries["k"].parameters == []


@pytest.mark.parametrize(
    ("directives", "threads", "cluster"),
    [
        ("", None, None),
        ("\n.maxntid 128, 1, 1\n", 128, None),
        (".maxntid 16,8", 128, None),
        (".reqntid 32, 4, 2\n.minnctapersm 2", 256, None),
        (".minnctapersm 2 .maxnreg 64", None, None),
        (".maxntid 128, 1, 1 .minnctapersm 2 .explicitcluster .reqnctapercluster 2, 1, 1", 128, (2, 1, 1)),
        (".blocksareclusters .reqntid 32 .reqnctapercluster 4", 32, (4, 1, 1)),
        (".explicitcluster .maxclusterrank 8", None, None),
    ],
)
def test_performance_directives_are_parsed(directives, threads, cluster):
    found = entry("ret;", directives=directives)
    assert (found.max_threads, found.cluster) == (threads, cluster)


def test_device_functions_are_parsed():
    module = parse(
        HEAD + ".func (.reg .b32 q) square(.reg .b32 a, .reg .pred w) { mul.lo.s32 q, a, a; ret; }\n"
        ".weak .func (.param .align 8 .b8 r[32]) many(.param .b32 a, .param .align 4 .b8 rest[]) { ret; }\n"
        ".func .attribute(.unified(19, 95)) nothing .noreturn { trap; }\n"
    )
    square, many, nothing = module.functions.values()
    assert square.registers == {"q": "b32", "a": "b32", "w": "pred"}
    assert [(p.name, p.space) for p in (*square.returns, *square.parameters)] == [
        ("q", "reg"), ("a", "reg"), ("w", "reg"),
    ]  # fmt: skip
    assert square.instructions[0].operands == (Register("q"), Register("a"), Register("a"))
    assert [(p.name, p.count, p.alignment) for p in (*many.returns, *many.parameters)] == [
        ("r", 32, 8), ("a", 1, 0), ("rest", 0, 4),
    ]  # fmt: skip
    assert (nothing.name, nothing.parameters, nothing.extern) == ("nothing", [], False)
    assert module.entries == {}


def test_function_declarations_are_parsed():
    """``later`` is defined after its declaration, ``vprintf`` never."""
    module = parse(
        HEAD + ".extern .func (.param .b32 r) vprintf\n(\n.param .b64 a,\n.param .b64 b\n)\n;\n"
        ".func later\n()\n;\n.func later();\n.func later() { ret; }\n.visible .entry k(.param .u64 p);\n"
        ".visible .func second();\n.alias second, later;\n.visible .entry k(.param .u64 p) { ret; }\n"
        ".extern .entry far(.param .b32 n);\n"
    )
    assert {name: (f.extern, f.line) for name, f in module.functions.items()} == {
        "vprintf": (True, 4), "later": (False, 14), "second": (False, 14), "far": (True, 19),
    }  # fmt: skip
    assert module.functions["second"] is module.functions["later"]
    assert [p.name for p in module.functions["vprintf"].parameters] == ["a", "b"]
    assert [(name, e.extern) for name, e in module.entries.items()] == [("k", False)]


def test_call_prototypes_are_parsed():
    found = entry(
        "P : .callprototype (.param .b32 _) _ (.param .b64 _, .param .align 8 .b8 _[16]) ;\n"
        "Q: .callprototype _ () .noreturn; call (r), %rd1, (a, b), P;"
    )
    assert [(p.type, p.count, p.alignment) for p in found.prototypes["P"].parameters] == [
        ("b64", 1, 0), ("b8", 16, 8),
    ]  # fmt: skip
    assert [p.type for p in found.prototypes["P"].returns] == ["b32"]
    assert (found.prototypes["Q"].parameters, found.prototypes["Q"].returns) == ([], [])
    assert found.labels == {}


def test_branch_and_call_target_tables_are_parsed():
    found = entry(
        "ts: .branchtargets A, B, N<2>;\nbrx.idx %r1, ts;\nA: B: N0: N1: ret;\nfs: .calltargets f, g;\n"
        "call (r), %rd1, (), fs;"
    )
    assert found.tables == {"ts": ("A", "B", "N0", "N1"), "fs": ("f", "g")}
    assert found.labels == {"A": 1, "B": 1, "N0": 1, "N1": 1}
    assert found.instructions[0].operands == (Register("%r1"), Symbol("ts"))


# --------------------------------------------------------------------------------------------- scopes


def test_labels_are_parsed():
    found = entry("A: mov.u32 %r1, 0;\n$L__BB0_2:\nB:\nret;\nEND:")
    assert found.labels == {"A": 0, "$L__BB0_2": 1, "B": 1, "END": 2}


def test_registers_need_no_percent_sign():
    """Inline assembly declares them so: ``{ .reg .pred p; … @p bra; }``."""
    found = entry("{ .reg .pred p; .reg .u32 t; setp.ne.u32 p, t, 0; @p bra A; @!p bra A; }\nA: ret;")
    assert found.instructions[0].operands == (Register("p"), Register("t"), Immediate(0))
    assert [i.guard for i in found.instructions[1:3]] == [Register("p"), Register("p", negated=True)]


def test_a_register_redeclared_in_an_inner_scope_is_distinct():
    found = entry(
        ".reg .b32 %r<2>;\nmov.b32 %r1, 0;\n"
        "{ .reg .b64 %r1; mov.b64 %r1, 1; { .reg .b16 %r1, t; mov.b16 %r1, t; } mov.b64 %r1, 2; }\n"
        "{ .reg .b32 t; mov.b32 %r1, t; }"
    )
    assert found.registers == {
        "%r0": "b32", "%r1": "b32", "%r1@2": "b64", "%r1@3": "b16", "t": "b16", "t@2": "b32",
    }  # fmt: skip
    written = [i.operands[0].name for i in found.instructions]
    assert written == ["%r1", "%r1@2", "%r1@3", "%r1@2", "%r1"]
    assert [i.operands[1] for i in found.instructions][2::2] == [Register("t"), Register("t@2")]


def test_a_name_refers_to_the_outer_register_until_redeclared():
    found = entry(".reg .b32 t; { mov.b32 t, 1; .reg .b32 t; mov.b32 t, 2; }")
    assert [i.operands[0].name for i in found.instructions] == ["t", "t@2"]


LOOP = """{
 .reg .pred p;
 mov.b32 %r1, 0;
LOOP:
 setp.gt.s32 p, %r1, 0;
 @p bra LOOP;
 bra DONE;
DONE:
}
"""


def test_repeated_inline_assembly_has_its_own_labels():
    found = entry(LOOP + LOOP + "LOOP: bra LOOP; bra DONE;")
    assert found.labels == {"LOOP": 1, "DONE": 4, "LOOP@2": 5, "DONE@2": 8, "LOOP@3": 8}
    targets = [i.operands[0].name for i in found.instructions if i.opcode == "bra"]
    assert targets == ["LOOP", "DONE", "LOOP@2", "DONE@2", "LOOP@3", "DONE"]
    assert [i.guard.name for i in found.instructions if i.guard] == ["p", "p@2"]


def test_an_inner_label_hides_the_outer_one_in_its_whole_scope():
    found = entry("A: { bra A; { bra A; } A: } { bra A; }")
    assert [i.operands[0].name for i in found.instructions] == ["A@2", "A@2", "A"]


def test_tables_and_prototypes_belong_to_their_scope():
    body = "{ ts: .branchtargets A, B; brx.idx %r1, ts; A: P: .callprototype _ (); call %rd1, P; }\n"
    found = entry(body + body + "B: ret;")
    assert found.tables == {"ts": ("A", "B"), "ts@2": ("A@2", "B")}
    assert list(found.prototypes) == ["P", "P@2"]
    assert [i.operands[1].name for i in found.instructions[:-1]] == ["ts", "P", "ts@2", "P@2"]


def test_param_variables_of_call_sequences_are_parsed():
    sequence = """{ // callseq 0, 0
    .reg .b32 temp_param_reg;
    .param .b64 param0;
    st.param.b64 [param0+8], %rd1;
    .param .b32 retval0;
    call.uni (retval0), f, (param0);
    ld.param.b32 %r1, [retval0+0];
    }
    """
    found = entry(sequence * 2)
    assert [v.name for v in found.variables] == ["param0", "retval0", "param0@2", "retval0@2"]
    store, call, load = found.instructions[3:]
    assert store.operands[0] == Address(Symbol("param0@2"), 8)
    assert call.operands == (Group((Symbol("retval0@2"),)), Symbol("f"), Group((Symbol("param0@2"),)))
    assert load.operands[1] == Address(Symbol("retval0@2"))
    assert list(found.registers) == ["temp_param_reg", "temp_param_reg@2"]


def test_initial_values_refer_to_variables_of_their_scope():
    found = entry("{ .global .u32 x; } { .global .u32 x; .global .u64 at[2] = {x+4, 1}; }")
    assert found.variables[2].initial == (Reference("x@2", 4), Immediate(1))


def test_functions_have_separate_names():
    module = parse(
        HEAD + ".func f() { .reg .b32 t; L: bra L; }\n.entry k() { .reg .b32 t; mov.b32 t, L; L: }"
    )
    assert module.entries["k"].registers == {"t": "b32"}
    assert list(module.entries["k"].labels) == ["L"]


# --------------------------------------------------------------------------------- lines of CUDA C++


def sources(body, files='.file 1 "k.cu"\n.file 2 "include/shuffle.h", 123, 456\n'):
    text = f"{HEAD}.visible .entry k() {{\n{body}\n}}\n{files}"
    return [i.source for i in parse(text).entries["k"].instructions]


def test_a_loc_directive_holds_until_the_next():
    body = "mov.u32 %r1, 0;\n.loc 1 10 5\nmov.u32 %r1, 1; mov.u32 %r1, 2;\n.loc\t1 12 0\nret;"
    assert sources(body) == [None, *[SourceLine("k.cu", 10)] * 2, SourceLine("k.cu", 12)]


def test_inlined_code_has_the_line_of_its_call():
    body = ".loc 2 200 3, function_name $L__info_string0, inlined_at 1 21 9\nmov.u32 %r1, 0;\n"
    body += ".loc 2 200 3, function_name $L__info_string0+17, inlined_at 1 22 9\nret;"
    assert sources(body) == [SourceLine("k.cu", 21), SourceLine("k.cu", 22)]
    own = ".loc 1 7 3, function_name $L__info_string0, inlined_at 1 21 9\nret;"
    assert sources(own) == [SourceLine("k.cu", 7)]


def test_code_inlined_through_several_headers_has_the_line_in_the_kernel():
    body = (
        ".loc 2 261 5, function_name $L__a, inlined_at 1 30 2\n"
        ".loc 3 92 9, function_name $L__b, inlined_at 2 261 5\n"
        ".loc 3 66 9, function_name $L__c, inlined_at 3 92 9\nret;\n.loc 3 4 5, inlined_at 2 7 7\nret;"
    )
    files = '.file 1 "k.cu"\n.file 2 "include/groups.h"\n.file 3 "include/sync.h"\n'
    assert sources(body, files) == [SourceLine("k.cu", 30), SourceLine("include/groups.h", 7)]


def test_code_inlined_from_a_project_header_keeps_its_line():
    body = ".loc 2 52 9, function_name $L__info_string0, inlined_at 1 21 9\nret;"
    files = '.file 1 "bmm/bmm.cu"\n.file 2 "bmm/output.cuh"\n'
    assert sources(body, files) == [SourceLine("bmm/output.cuh", 52)]


def test_loc_line_0_means_no_source_line():
    assert sources(".loc 1 10 5\n.loc 1 0 0\nret;") == [None]


def test_loc_directives_end_with_their_entry():
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


# --------------------------------------------------------------------------- what nvcc 13.0 writes

PRINTF = """
.extern .func  (.param .b32 func_retval0) vprintf
(
    .param .b64 vprintf_param_0,
    .param .b64 vprintf_param_1
)
;
.extern .func __assertfail
(
    .param .b64 __assertfail_param_0,
    .param .b32 __assertfail_param_1
)
;
.global .align 1 .b8 $str[4] = {37, 100, 10};

.visible .entry k(
    .param .u32 k_param_0
)
{
    .local .align 8 .b8 __local_depot0[24];
    .reg .b64 %SP;
    .reg .b64 %SPL;
    .reg .b32 %r<4>;
    .reg .b64 %rd<9>;


    mov.u64 %SPL, __local_depot0;
    cvta.local.u64 %SP, %SPL;
    add.u64 %rd3, %SP, 0;
    mov.u64 %rd7, $str;
    cvta.global.u64 %rd8, %rd7;
    { // callseq 0, 0
    .reg .b32 temp_param_reg;
    .param .b64 param0;
    st.param.b64 [param0+0], %rd8;
    .param .b64 param1;
    st.param.b64 [param1+0], %rd3;
    .param .b32 retval0;
    call.uni (retval0),
    vprintf,
    (
    param0,
    param1
    );
    ld.param.b32 %r3, [retval0+0];
    } // callseq 0
    ret;

}
"""


def test_compiled_printf_and_assert_are_parsed():
    module = parse(HEAD + PRINTF)
    (text,) = module.variables
    assert (text.name, text.count, [v.value for v in text.initial]) == ("$str", 4, [37, 100, 10])
    call = next(i for i in module.entries["k"].instructions if i.opcode == "call.uni")
    passed = Group((Symbol("param0"), Symbol("param1")))
    assert call.operands == (Group((Symbol("retval0"),)), Symbol("vprintf"), passed)
    assert call.line == (HEAD + PRINTF).splitlines().index("    call.uni (retval0),") + 1
    assert all(module.functions[name].extern for name in ("vprintf", "__assertfail"))


VIRTUAL = """
.func  (.param .b32 func_retval0) _ZN2D11fEi
(
    .param .b64 _ZN2D11fEi_param_0
)
;
.func _ZN2D1D0Ev
(
    .param .b64 _ZN2D1D0Ev_param_0
)
;
.global .align 8 .u64 _ZTV2D1[4] = {0, 0, _ZN2D11fEi, _ZN2D1D0Ev};

.func  (.param .b32 func_retval0) _ZN2D11fEi(
    .param .b64 _ZN2D11fEi_param_0
)
{
    .reg .b32 %r<2>;


    st.param.b32 [func_retval0+0], %r1;
    ret;

}
.func _ZN2D1D0Ev(
    .param .b64 _ZN2D1D0Ev_param_0
)
{


    ret;

}
.visible .entry v()
{
    .reg .b32 %r<5>;
    .reg .b64 %rd<5>;


    { // callseq 4, 0
    .reg .b32 temp_param_reg;
    .param .b64 param0;
    st.param.b64 [param0+0], %rd1;
    .param .b32 retval0;
    prototype_4 : .callprototype (.param .b32 _) _ (.param .b64 _);
    call (retval0),
    %rd4,
    (
    param0
    )
    , prototype_4;
    ld.param.b32 %r4, [retval0+0];
    } // callseq 4
    ret;

}
"""


def test_compiled_virtual_function_tables_are_parsed():
    module = parse(HEAD + VIRTUAL)
    (table,) = module.variables
    assert table.initial == (Immediate(0), Immediate(0), Reference("_ZN2D11fEi"), Reference("_ZN2D1D0Ev"))
    assert not any(f.extern for f in module.functions.values())
    found = module.entries["v"]
    returned, passed = Group((Symbol("retval0"),)), Group((Symbol("param0"),))
    assert found.instructions[1].operands == (returned, Register("%rd4"), passed, Symbol("prototype_4"))
    assert [p.type for p in found.prototypes["prototype_4"].parameters] == ["b64"]


RECURSION = """
.visible .func  (.param .align 8 .b8 func_retval0[32]) many(
    .param .align 8 .b8 many_param_0[32],
    .param .b32 many_param_1
)
{
    .reg .b16 %rs<9>;
    .reg .b32 %r<2>;
    .loc 1 2 0
$L__func_begin0:
    .loc 1 2 0


    ld.param.v4.u8 {%rs5, %rs6, %rs7, %rs8}, [many_param_0+28];
    st.param.v4.b8 [func_retval0+28], {%rs8, %rs7, %rs6, %rs5};
    { // callseq 0, 0
    .reg .b32 temp_param_reg;
    .param .align 8 .b8 param0[32];
    st.param.b32 [param0+24], %r1;
    .param .b32 param1;
    st.param.f32 [param1+0], 0f40000000;
    .param .align 8 .b8 retval0[32];
    call.uni (retval0),
    many,
    (
    param0,
    param1
    );
    } // callseq 0
    ret;
$L__tmp1:
$L__func_end0:

}
    .file 1 "c.cu"
"""


def test_compiled_recursion_and_structures_are_parsed():
    found = parse(HEAD + RECURSION).functions["many"]
    end = len(found.instructions)
    assert found.labels == {"$L__func_begin0": 0, "$L__tmp1": end, "$L__func_end0": end}
    assert [(v.name, v.count, v.alignment) for v in (*found.returns, *found.variables)] == [
        ("func_retval0", 32, 8),
        ("param0", 32, 8),
        ("param1", 1, 0),
        ("retval0", 32, 8),
    ]
    assert found.instructions[0].operands[1] == Address(Symbol("many_param_0"), 28)
    assert {i.source for i in found.instructions} == {SourceLine("c.cu", 2)}


DATA = """
.visible .const .align 4 .b8 coef[20] = {0, 0, 0, 63, 0, 0, 160, 191};
.visible .global .align 4 .b8 arr[40] = {1, 0, 0, 0};
.visible .global .align 8 .u64 ptr = generic(arr)+12;
.visible .global .align 8 .u64 ptrs[3] = {generic(arr), 0, generic(arr)+20};
.visible .global .align 1 .u8 pk[3] = {97, 0XFF(generic(arr)+4), 0xFF00(generic(arr)+4)};
.visible .global .attribute(.managed) .align 4 .u32 man = 7;
.visible .global .align 8 .u64 big = -1;
"""


def test_compiled_initialised_data_is_parsed():
    found = {v.name: v for v in parse(HEAD + DATA).variables}
    assert (found["coef"].space, found["coef"].count, len(found["coef"].initial)) == ("const", 20, 8)
    assert found["ptr"].initial == (Reference("arr", 12, generic=True),)
    assert found["ptrs"].initial[1:] == (Immediate(0), Reference("arr", 20, generic=True))
    assert found["pk"].initial[2] == Reference("arr", 4, True, 0xFF00)
    assert (found["man"].initial, found["big"].initial) == ((Immediate(7),), (Immediate(-1),))


DYNAMIC_PARALLELISM = """
.extern .func  (.param .b64 func_retval0) __cudaCDP2GetParameterBufferV2
(
    .param .b64 p0,
    .param .align 4 .b8 p1[12]
)
;
.extern .shared .align 16 .b8 smem[];
.visible .entry child(
    .param .align 8 .b8 child_param_0[32]
)
.maxntid 256, 1, 1
{
    .reg .b64 %rd<2>;


    ld.param.f64 %fd1, [child_param_0+24];
    mov.u64 %rd1, smem;
    ret;

}
.visible .entry parent()
{
    .reg .b64 %rd<2>;


    mov.u64 %rd1, child;
    // begin inline asm
    alloca.u64 %rd1, 16;
    // end inline asm
    ret;

}
"""


def test_compiled_dynamic_parallelism_is_parsed():
    module = parse(HEAD + DYNAMIC_PARALLELISM)
    assert list(module.entries) == ["child", "parent"]
    assert (module.variables[0].count, module.variables[0].extern) == (0, True)
    assert module.entries["child"].max_threads == 256
    assert module.entries["parent"].instructions[0].operands[1] == Symbol("child")


ASSEMBLY = """
    { .reg .b64 %tmp;
      cvta.to.shared.u64 %tmp, %rd1;
      cvt.u32.u64 %r9, %tmp; }
    // begin inline asm
    { .reg .pred P1; WAIT: mbarrier.try_wait.parity.shared::cta.b64 P1, [%r9], %r12;
    @P1 bra DONE; bra WAIT; DONE: }
    // end inline asm
    // begin inline asm
    { .reg .pred P1; WAIT: mbarrier.try_wait.parity.shared::cta.b64 P1, [%r9], %r12;
    @P1 bra DONE; bra WAIT; DONE: }
    // end inline asm
    // begin inline asm
    { .reg .f16 h; cvt.rn.f16.f32 h, %f2; cvt.f32.f16 %f1, h; }
    // end inline asm
    barrier.cluster.arrive;
    barrier.cluster.wait;
    bar.sync 0;
    wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%rd1], %r9;
    cp.async.cg.shared.global.L2::128B [%r9], [%rd1], 16; cp.async.commit_group; cp.async.wait_group 0;
"""


def test_compiled_inline_assembly_is_parsed():
    found = entry(ASSEMBLY)
    assert found.labels == {"WAIT": 2, "DONE": 5, "WAIT@2": 5, "DONE@2": 8}
    assert found.registers == {"%tmp": "b64", "P1": "pred", "P1@2": "pred", "h": "f16"}
    branches = [i for i in found.instructions if i.opcode == "bra"]
    assert [i.operands[0].name for i in branches] == ["DONE", "WAIT", "DONE@2", "WAIT@2"]
    assert [i.guard and i.guard.name for i in branches] == ["P1", None, "P1@2", None]
    fragment = next(i for i in found.instructions if i.opcode.startswith("wmma"))
    assert len(fragment.operands[0].elements) == 8
    assert [i.opcode for i in found.instructions[-2:]] == ["cp.async.commit_group", "cp.async.wait_group"]


# --------------------------------------------------------------------------------------------- errors


def in_body(text):
    return f"{HEAD}.entry k() {{\n{text}\n}}"


@every_case(
    ("text", "line", "part"),
    [
        ("", 1, ".version 6.0 to 9.0"),
        ("nonsense", 1, ".version 6.0 to 9.0"),
        (".target sm_90", 1, "6.0 to 9.0"),
        ("\n.version 9.1\n.target sm_90\n", 2, "from 9.0 down to 6.0"),
        (".version 5.0\n.target sm_90\n", 1, "from 9.0 down to 6.0"),
        (".version 6.6\n.target sm_90\n", 1, "6.6"),
        (".version 9.0\n", 2, ".target"),
        (".version 9.0\n.address_size 64\n", 2, ".target"),
        (".version 9.0\n.target sm_35\n", 2, "sm_50"),
        (".version 9.0\n.target sm_91\n", 2, "sm_91"),
        (".version 9.0\n.target sm_80a\n", 2, "sm_90a"),
        (".version 9.0\n.target sm_90, fast\n", 2, "texmode_unified"),
        (".version 9.0\n.target sm_90\n.address_size 32\n", 3, "64-bit"),
        (HEAD + ".bogus", 4, "directive"),
        (HEAD + ".visible .bogus", 4, "directive"),
        (HEAD + ".visible .file 1", 4, "directive"),
        (HEAD + ".local .b8 x;", 4, "directive"),
        (HEAD + "#pragma", 4, "ASCII"),
        (HEAD + "/* no end", 4, "directive"),
        (HEAD + '.pragma "no end;', 4, "ASCII"),
        (HEAD + ".entry k() { ré; }", 4, "ASCII"),
        (in_body("add.u32 %r1, %r2\nret;"), 6, "','"),
        (in_body("add.u32 %r1 %r2;"), 5, "','"),
        (in_body("add.u32 %r1,, %r2;"), 5, "number"),
        (in_body("ld.u32 %r1, [%rd1;"), 5, "']'"),
        (in_body("ld.u32 %r1, [%rd1+];"), 5, "number"),
        (in_body("ld.u32 %r1, [%rd1+%r2];"), 5, "number"),
        (in_body("ld.u32 %r1, [%rd1+1.5];"), 5, "integer"),
        (in_body("ld.u32 %r1, [1.5];"), 5, "integer"),
        (in_body("ld.u32 %r1, [[%rd1]];"), 5, "number"),
        (in_body("mov.b64 %rd1, {%r1, cells};"), 5, "registers or numbers"),
        (in_body("mov.b64 %rd1, {%r1, %r2,};"), 5, "number"),
        (in_body("mov.b64 %rd1, {%r1 %r2};"), 5, "'}'"),
        (in_body("mov.b64 %rd1, {};"), 5, "number"),
        (in_body("mov.u32 %r1|4, %r2;"), 5, "both sides"),
        (in_body("mov.u32 %r1, -%r2;"), 5, "number"),
        (in_body("mov.u32 %r1, ;"), 5, "number"),
        (in_body("mov.u32 %r1, 089;"), 5, "089"),
        (in_body("mov.u32 %r1, 18446744073709551616;"), 5, "number"),
        (in_body(f"mov.u32 %r1, {'9' * 5000};"), 5, "number"),
        (in_body("mov.f32 %f1, -0f3F800000;"), 5, "number"),
        (in_body("mov.f32 %f1, 0f3F8;"), 5, "','"),
        (in_body("mov.f64 %fd1, 1.0e999;"), 5, "number"),
        (in_body("mov.f64 %fd1, 1e300*1e300;"), 5, "overflows"),
        (in_body("mov.f64 %fd1, 1.0/0.0;"), 5, "divides by zero"),
        (in_body("mov.f64 %fd1, 1.5+1;"), 5, "mixes"),
        (in_body("mov.f64 %fd1, 1.5&2.5;"), 5, "integers only"),
        (in_body("mov.f64 %fd1, ~1.5;"), 5, "integer"),
        (in_body("mov.f64 %fd1, (.s64)1.5;"), 5, "integer"),
        (in_body("mov.u32 %r1, 1.5 ? 2 : 3;"), 5, "condition"),
        (in_body("mov.u32 %r1, 1 ? 2;"), 5, "':'"),
        (in_body("mov.u32 %r1, 10 % 0;"), 5, "divides by zero"),
        (in_body("mov.u32 %r1, (1;"), 5, "')'"),
        (in_body(f"mov.u32 %r1, {'(' * 60}1{')' * 60};"), 5, "levels"),
        (in_body(f"mov.u32 %r1, {'-' * 9000}1;"), 5, "levels"),
        (in_body("@ ;"), 5, "predicate"),
        (in_body("@5 ret;"), 5, "predicate"),
        (in_body(".shared .b32 s; @s ret;"), 5, "predicate"),
        (in_body("@%p1 { ret; }"), 5, "instruction"),
        (in_body("Add.u32 %r1, 1;"), 5, "instruction"),
        (in_body(";"), 5, "instruction"),
        (in_body("5: ret;"), 5, "name"),
        (in_body(".add.u32 %r1, 1;"), 5, ".reg or .shared"),
        (in_body(".5 ret;"), 5, ".reg or .shared"),
        (in_body(".func f() { ret; }"), 5, ".reg or .shared"),
        (HEAD + ".entry k() {\nret;\n", 6, "'}'"),
        (HEAD + ".entry k() {\n{ ret;\n}\n", 7, "'}'"),
        (HEAD + ".entry k() { ret; } }", 4, "directive"),
        (in_body("call (r) f;"), 5, "','"),
        (in_body("call (r, f;"), 5, "')'"),
        (in_body("call f, (a b);"), 5, "')'"),
        (in_body("call 5, (a);"), 5, "function"),
        (in_body("call f, (a), (b);"), 5, "name"),
        (in_body("call f, (a), P, Q;"), 5, "';'"),
        (in_body("P: .callprototype (.param .b32 _) f ();"), 5, "'_'"),
        (in_body("P: .callprototype _ ()"), 6, "';'"),
        (in_body("P: .branchtargets A B;"), 5, "','"),
        (in_body("P: .branchtargets A<99999999>;"), 5, "at most"),
        (HEAD + ".entry k(.param .u64 a .param .u64 b) { ret; }", 4, "','"),
        (HEAD + ".entry k(.reg .u64 a) { ret; }", 4, "'.param'"),
        (HEAD + ".entry k(.param .u64 a[1.5]) { ret; }", 4, "integer"),
        (HEAD + ".entry k(.param a) { ret; }", 4, "type"),
        (HEAD + ".func f(.shared .u64 a) { ret; }", 4, "'.param' or '.reg'"),
        (HEAD + ".func f(.reg .u64 a[2]) { ret; }", 4, "single register"),
        (HEAD + ".entry k() .bogus { ret; }", 4, ".maxntid"),
        (HEAD + ".entry k() .maxntid { ret; }", 4, "integer"),
        (HEAD + ".entry k() .maxntid 1,1,1,1 { ret; }", 4, "'{'"),
        (HEAD + ".func f() { ret; }\n.alias g, h;", 5, "'h'"),
        (HEAD + ".func f() { ret; }\n.func g() { ret; }\n.alias g, f;", 6, "'g'"),
        (in_body(".reg .b32 %r<x>;"), 5, "integer"),
        (in_body(".reg .b32 %r<1000000000>;"), 5, "at most"),
        (in_body(".reg .b32 %r<3;"), 5, "'>'"),
        (in_body(".reg .b32 %r %s;"), 5, "','"),
        (in_body(".reg .v2 .f32 v;"), 5, "declare each element"),
        (in_body(".reg .bf16 h;"), 5, "type"),
        (in_body(".reg %r1;"), 5, "type"),
        (in_body(".reg .b32 v; mov.f32 %f1, v.x;"), 5, "special registers only"),
        (in_body(".loc 1 2 3, elsewhere 4\nret;"), 5, "inlined_at"),
        (in_body(".loc 1 2;\nret;"), 5, "integer"),
        (HEAD + ".global .u32 x[2] = {1, 2, 3};", 4, "2 values already"),
        (HEAD + ".global .u32 x[2][2] = {1, 2};", 4, "'{'"),
        (HEAD + ".global .u32 x[2] = 5;", 4, "'{'"),
        (HEAD + ".global .u32 x = {5};", 4, "number"),
        (HEAD + ".global .u32 x[2] = {1 2};", 4, "','"),
        (HEAD + ".global .u32 x[2] = {1, };", 4, "number"),
        (HEAD + ".global .u32 x = 1.5;", 4, ".u32"),
        (HEAD + ".global .f32 x = 1;", 4, ".f32"),
        (HEAD + ".global .f16 x = 1.5;", 4, ".f16"),
        (HEAD + '.global .b8 x[6] = "hello";', 4, "no string initialisers"),
        (HEAD + ".global .u8 x = 0xF0(y);", 4, "mask"),
        (HEAD + ".global .u8 x = 0xFF(y;", 4, "')'"),
        (HEAD + ".global .u64 x = generic(y;", 4, "')'"),
        (HEAD + ".shared .u32 x = 5;", 4, ".global and .const"),
        (HEAD + ".extern .global .u32 x = 5;", 4, ".global and .const"),
        (HEAD + ".global .samplerref x = {filter_mode = nearest};", 4, ".global and .const"),
        (HEAD + ".shared .u32 x[];", 4, ".extern"),
        (HEAD + ".global .u32 x[] = {};", 4, "at least one value"),
        (HEAD + ".global .u32 x[0];", 4, "at least one element"),
        (HEAD + ".global .u32 x[2][];", 4, "integer"),
        (HEAD + ".global .u32 x[9999999999][9999999999];", 4, "memory"),
        (HEAD + ".global .u32 x[2][9999999] = {{1}, {2}, {3}};", 4, "2 values"),
        (HEAD + ".global .u32 x[3][99999999] = {{1}, {2}, {3}};", 4, "values"),
        (HEAD + f".global .u32 x{'[1]' * 999} = {'{' * 999}", 4, "dimensions"),
        (HEAD + ".global .align 3 .b32 x;", 4, "power of two"),
        (HEAD + ".global .bogus x;", 4, "type"),
        (HEAD + ".global .b32 .b64 x;", 4, "one type"),
        (HEAD + ".global .b32 x y;", 4, "';'"),
        (HEAD + ".global .attribute(.managed .b32 x;", 4, "another token"),
        (HEAD + ".section .debug_str\n{\n.b8 1\n", 7, "'}'"),
        (HEAD + ".section .debug_str\n", 5, "another token"),
        (HEAD + ".file 1 k.cu", 4, "string"),
        (in_body('.pragma "nounroll"\n'), 7, "';'"),
    ],
)
def test_syntax_errors_name_their_line(text, line, part):
    error = error_of(text)
    assert re.match(rf"line {line}:", error), error
    assert part in error


@pytest.mark.parametrize(
    ("text", "first", "second", "name"),
    [
        (in_body(".reg .b32 %r<4>;\n.reg .b32 %r3;"), 5, 6, "%r3"),
        (in_body(".reg .b32 x;\n\n.shared .b32 x;"), 5, 7, "x"),
        (in_body("{ .reg .b32 t;\n.reg .pred t; }"), 5, 6, "t"),
        (in_body("L: ret;\nL: ret;"), 5, 6, "L"),
        (in_body(".reg .b32 L;\nL: ret;"), 5, 6, "L"),
        (in_body("ts: .branchtargets L;\nts: .callprototype _ ();"), 5, 6, "ts"),
        (HEAD + ".entry k(.param .b32 a)\n{\n.reg .b32 a; }", 4, 6, "a"),
        (HEAD + ".func (.param .b32 a) f(.param .b32 a) { ret; }", 4, 4, "a"),
        (HEAD + ".global .b32 x;\n.global .b32 x;", 4, 5, "x"),
        (HEAD + ".func f() { ret; }\n.func f() { ret; }", 4, 5, "f"),
        (HEAD + ".entry f() { ret; }\n.func f() { ret; }", 4, 5, "f"),
        (HEAD + ".func f() { ret; }\n.entry f();", 4, 5, "f"),
        (HEAD + ".global .b32 f;\n.func f() { ret; }", 4, 5, "f"),
    ],
)
def test_a_duplicate_declaration_names_both_lines(text, first, second, name):
    error = error_of(text)
    assert re.match(rf"line {second}: {re.escape(name)} is .* line {first}:", error), error


WHOLE = """.version 9.0
.target sm_90, debug
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.extern .shared .align 16 .b8 dynamic[];
.visible .const .align 8 .b8 coefficients[8] = {1, 2, 0xFF};
.global .u32 table[2][3] = {{1, 2}, {3}};
.global .f32 floats[] = {1.5, 0f3F800000, -2.5e3};
.global .u64 places[3] = {generic(table)+4, table, 7};
.global .attribute(.managed) .align 1 .u8 bytes[3] = {97, 0xFF(generic(table)+4), 0xFF00(table)};
.weak .global .v4 .f32 vector = {1.0, 2.0, 3.0, 4.0};
.func (.reg .b32 q) square(.reg .b32 a) { mul.lo.s32 q, a, a; ret; }
.visible .func stop();
.visible .func stop() .noreturn { trap; }
.visible .func halt();
.alias halt, stop;
.visible .entry k(.param .u64 .ptr .global .align 16 a, .param .align 8 .b8 s[24])
.maxntid 128, 1, 1 .minnctapersm 2
{
.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<4>; .reg .f32 %f<5>;
.local .align 16 .b8 depot[32];
.shared .b32 tile[4], one;
.loc 2 200 3, function_name $L__s+2, inlined_at 1 21 9
ld.param.u64 %rd1, [a]; ld.param.b32 %r1, [s+(1+2)*4];
mov.u32 %r2, ~0 + 1 << 2; mov.pred %p1, -1; mov.u32 %r3, WARP_SZ;
mov.u64 %rd2, table+4;
{ .reg .pred p, %p<2>; LOOP: setp.ne.and.b32 p|%p1, %r1, 0, !%p2; @p bra LOOP; @!%p1 bra DONE; DONE: }
{ .reg .pred p; LOOP: @p bra LOOP; }
{ .param .b64 param0; st.param.b64 [param0+0], %rd1; .param .b64 param1; .param .b32 ret0;
call.uni (ret0), vprintf, (param0, param1); ld.param.b32 %r3, [ret0+0]; }
{ .param .b64 param0; call (%r4), square, (%r3); call stop;
proto : .callprototype (.param .b32 _) _ (.param .b64 _); call (%r4), %rd1, (param0), proto; }
@%p1 shfl.sync.idx.b32 %r1|%p2, %r2, 0x1F, 31U, -1;
st.global.v4.b32 [%rd1+-16], {%r1, 1, -2, %r2};
mov.b64 {%r1, _}, %rd1;
tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, {%f1, %f2}];
.pragma "nounroll";
ts: .branchtargets L0, L1;
L0: brx.idx %r1, ts;
L1: ret;
}
.file 1 "k.cu"
.file 2 "include/shuffle.h", 123, 456
.section .debug_str { $L__s: .b8 95, 0 }
"""
TOKENS = Cursor(WHOLE).texts[:-2]
OTHERS = [*"{}()[];:,@!|<>=+-*/%~?&_", "0", "99999999999999999999", "1.5e300", "&&", "generic", '"text"']


def is_module_or_syntax_error(tokens):
    text = "\n".join(tokens)
    try:
        return isinstance(parse(text), Module)
    except PtxSyntaxError as error:
        return re.match(r"line \d+: .*expected", str(error)) is not None


@pytest.mark.slow
def test_text_broken_at_any_token_parses_or_is_a_syntax_error():
    """Truncated after each token, and with each token removed or doubled."""
    assert parse(WHOLE).entries["k"].max_threads == 128
    for i in range(len(TOKENS)):
        assert is_module_or_syntax_error(TOKENS[:i])
        assert is_module_or_syntax_error(TOKENS[:i] + TOKENS[i + 1 :])
        assert is_module_or_syntax_error(TOKENS[: i + 1] + TOKENS[i:])
    refused = [i for i in range(len(TOKENS)) if error_of(" ".join(TOKENS[:i] + TOKENS[i + 1 :]))]
    assert len(refused) > len(TOKENS) / 2


@given(st.lists(
    st.tuples(
        st.sampled_from(["delete", "duplicate", "swap", "replace"]),
        st.integers(0, len(TOKENS) - 1),
        st.integers(0, len(TOKENS) - 1),
        st.sampled_from(OTHERS + sorted(set(TOKENS))),
    ),
    min_size=1,
    max_size=6,
))  # fmt: skip
def test_randomly_edited_text_parses_or_is_a_syntax_error(edits):
    tokens = list(TOKENS)
    for edit, i, j, other in edits:
        i, j = i % len(tokens), j % len(tokens)
        if edit == "delete":
            del tokens[i]
        elif edit == "duplicate":
            tokens.insert(i, tokens[i])
        elif edit == "swap":
            tokens[i], tokens[j] = tokens[j], tokens[i]
        else:
            tokens[i] = other
    assert is_module_or_syntax_error(tokens)


@given(st.text(st.characters(max_codepoint=0x2FF), max_size=40), st.integers(0, len(WHOLE)))
def test_inserted_characters_parse_or_are_a_syntax_error(characters, at):
    assert is_module_or_syntax_error([WHOLE[:at] + characters + WHOLE[at:]])
