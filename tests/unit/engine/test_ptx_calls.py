"""Calls of device functions: arguments, results, recursion, indirect targets, and errors."""

import numpy as np
import pytest

import simwarp
from simwarp.faults import (
    KernelFault,
    OutOfBounds,
    PtxSyntaxError,
    UninitialisedRegister,
    UnsupportedInstruction,
)
from support import small_kernels as small

STORE, NOTHING = small.STORE, small.NOTHING
text, run, fault_of, line_of = small.text, small.run, small.fault_of, small.line_of


# ------------------------------------------------------------------------------ arguments and results

IN_REGISTERS = ".func (.reg .b32 r) f(.reg .b32 a, .reg .b32 b) { mad.lo.u32 r, a, 10, b; ret; }"
IN_MEMORY = """.func (.param .b32 r) f(.param .b32 a, .param .b32 b) {
.reg .b32 x, y; ld.param.u32 x, [a]; ld.param.u32 y, [b]; mad.lo.u32 x, x, 10, y; st.param.b32 [r], x; ret;
}"""
FROM_REGISTERS = "call (%r2), f, (%i, 3);\n"
FROM_MEMORY = """{ .param .b32 x; .param .b32 y; .param .b32 z;
st.param.b32 [x], %i; st.param.b32 [y], 3; call.uni (z), f, (x, y); ld.param.b32 %r2, [z]; }
"""


@pytest.mark.parametrize("function", [IN_REGISTERS, IN_MEMORY])
@pytest.mark.parametrize("call", [FROM_REGISTERS, FROM_MEMORY])
def test_calls_pass_arguments_and_results_in_registers_or_memory(function, call):
    assert run(call + STORE, block=40, before=function) == [10 * i + 3 for i in range(40)]


@pytest.mark.parametrize("function", [IN_REGISTERS, IN_MEMORY])
def test_a_predicated_call_runs_only_its_active_lanes(function):
    body = "setp.lt.u32 %p1, %lane, 5; mov.u32 %r2, 9;\n@%p1 " + FROM_REGISTERS + STORE
    assert run(body, before=function) == [10 * i + 3 if i < 5 else 9 for i in range(32)]
    body = f"setp.lt.u32 %p1, %lane, 5; mov.u32 %r2, 9; @!%p1 bra SKIP;\n{FROM_MEMORY}SKIP: " + STORE
    assert run(body, before=function) == [10 * i + 3 if i < 5 else 9 for i in range(32)]


def test_a_call_stores_its_result_in_a_param_variable():
    body = "{ .param .b32 z; call (z), f, (%i, 4); ld.param.b32 %r2, [z]; }\n" + STORE
    assert run(body, before=IN_REGISTERS) == [10 * i + 4 for i in range(32)]


def test_calls_pass_arguments_of_every_width():
    function = """.func (.param .b64 r) f(.param .b8 a, .param .b16 b, .param .b32 c, .param .b64 d) {
.reg .b16 s, t; .reg .b32 x, u; .reg .b64 y, z;
ld.param.s8 s, [a]; ld.param.u16 t, [b]; ld.param.b32 u, [c]; ld.param.b64 y, [d];
cvt.s64.s16 z, s; add.u64 y, y, z; cvt.u64.u16 z, t; add.u64 y, y, z; cvt.u64.u32 z, u; add.u64 y, y, z;
st.param.b64 [r], y; ret; }"""
    body = (
        """{ .param .b8 a; .param .b16 b; .param .b32 c; .param .b64 d; .param .b64 e;
st.param.b8 [a], -2; st.param.b16 [b], 300; st.param.b32 [c], %i; st.param.b64 [d], 0x500000000;
call (e), f, (a, b, c, d); ld.param.b64 %rd1, [e]; }
mov.b64 {%r3, %r4}, %rd1; mad.lo.u32 %r2, %r4, 1000, %r3;
"""
        + STORE
    )
    assert run(body, before=function) == [5000 + 298 + i for i in range(32)]


STRUCT = """.func (.param .align 8 .b8 r[24]) f(.param .align 8 .b8 s[24], .param .b32 n) {
.reg .b32 x, n1; .reg .b64 y; .reg .b16 c;
ld.param.u32 x, [s]; ld.param.u64 y, [s+8]; ld.param.u8 c, [s+16]; ld.param.u32 n1, [n];
add.u32 x, x, n1; add.u64 y, y, 5; add.u16 c, c, 1;
st.param.u32 [r], x; st.param.u64 [r+8], y; st.param.u8 [r+16], c; ret; }"""


def test_calls_pass_structs_by_value():
    body = (
        """{ .param .align 8 .b8 a[24]; .param .b32 n; .param .align 8 .b8 b[24]; .reg .b16 c;
mov.u64 %rd1, 0x200000001; cvt.u16.u32 c, %lane;
st.param.u32 [a], %i; st.param.u64 [a+8], %rd1; st.param.u8 [a+16], c; st.param.u32 [n], 7;
call (b), f, (a, n);
ld.param.u32 %r3, [b]; ld.param.v2.u32 {%r4, %r5}, [b+8]; ld.param.u8 c, [b+16]; cvt.u32.u16 %r6, c;
}
mad.lo.u32 %r2, %r3, 100, %r4; mad.lo.u32 %r2, %r2, 10, %r5; mad.lo.u32 %r2, %r2, 100, %r6;
"""
        + STORE
    )
    assert run(body, before=STRUCT) == [(((i + 7) * 100 + 6) * 10 + 2) * 100 + i + 1 for i in range(32)]


def test_a_function_without_arguments_and_results_is_called():
    function = """.global .u32 count;
.func f { .reg .b32 t; atom.global.add.u32 t, [count], 1; ret; }"""
    device = simwarp.Device()
    module = device.load(text("call f; call f; ret;", function))
    out = device.upload(np.zeros(1, np.uint32))
    module.kernel("k")((2, 1, 1), (40, 1, 1), out, out)
    assert module.variable("count").view((1,), np.uint32).download().tolist() == [160]


def test_a_call_counts_the_call_the_body_and_the_return():
    """Thread-instructions: the call, the executed body, and the return."""
    device = simwarp.Device()
    run("ret;", device=device)
    plain = device.executed
    run("call (%r2), f, (%i, 3); ret;", device=device, before=IN_REGISTERS)
    assert device.executed - 2 * plain == 32 * 3


# ------------------------------------------------------------------------------------ recursion

FACTORIAL = """.func (.param .b32 r) f(.param .b32 n) {
.reg .pred p; .reg .b32 x, y; ld.param.u32 x, [n]; setp.lt.u32 p, x, 2; mov.u32 y, 1; @p bra DONE;
sub.u32 y, x, 1;
{ .param .b32 a; .param .b32 b; st.param.b32 [a], y; call (b), f, (a); ld.param.b32 y, [b]; }
mul.lo.u32 y, y, x;
DONE: st.param.b32 [r], y; ret; }"""
FACTORIAL_IN_REGISTERS = """.func (.reg .b32 r) f(.reg .b32 x) {
.reg .pred p; .reg .b32 y; setp.lt.u32 p, x, 2; mov.u32 r, 1; @p ret;
sub.u32 y, x, 1; call (y), f, (y); mul.lo.u32 r, y, x; ret; }"""


def factorial(n):
    return 1 if n < 2 else n * factorial(n - 1) % 2**32


@pytest.mark.parametrize("function", [FACTORIAL, FACTORIAL_IN_REGISTERS])
@pytest.mark.parametrize("chunk", [32, 32768])
def test_lanes_recurse_to_different_depths(function, chunk):
    body = (
        "mul.lo.u32 %r3, %i, 7; rem.u32 %r3, %r3, 13; "
        "{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r3; call (b), f, (a); ld.param.b32 %r2, [b]; }\n"
    )
    got = run(body + STORE, block=40, grid=2, before=function, device=simwarp.Device(chunk_lanes=chunk))
    assert got == [factorial(7 * i % 13) for i in range(80)]


MUTUAL = """
.func (.reg .b32 r) odd(.reg .b32 n);
.func (.reg .b32 r) even(.reg .b32 n) {
.reg .pred p; .reg .b32 t, u; setp.eq.u32 p, n, 0; mov.u32 r, 1; @p ret;
sub.u32 t, n, 1; call (u), odd, (t); mad.lo.u32 r, u, 2, n; ret; }
.func (.reg .b32 r) odd(.reg .b32 n) {
.reg .pred p; .reg .b32 t, u; setp.eq.u32 p, n, 0; mov.u32 r, 7; @p ret;
sub.u32 t, n, 1; call (u), even, (t); mad.lo.u32 r, u, 3, n; ret; }
"""


def even(n):
    return 1 if n == 0 else (odd(n - 1) * 2 + n) % 2**32


def odd(n):
    return 7 if n == 0 else (even(n - 1) * 3 + n) % 2**32


def test_mutually_recursive_functions_run():
    assert run("call (%r2), even, (%lane);\n" + STORE, before=MUTUAL) == [even(i) for i in range(32)]
    body = """setp.lt.u32 %p1, %lane, 11; @%p1 bra LOW; call (%r2), even, (%lane); bra END;
LOW: call (%r2), odd, (%lane);
END: """
    assert run(body + STORE, before=MUTUAL) == [odd(i) if i < 11 else even(i) for i in range(32)]


FIBONACCI = """.func (.reg .b32 r) f(.reg .b32 n) {
.reg .pred p; .reg .b32 t, u, v; .local .b32 kept[2]; setp.lt.u32 p, n, 2; mov.u32 r, n; @p ret;
st.local.b32 [kept+4], n; sub.u32 t, n, 1; call (u), f, (t);
st.local.b32 [kept], u; ld.local.b32 t, [kept+4]; sub.u32 t, t, 2; call (v), f, (t);
ld.local.b32 u, [kept]; add.u32 r, u, v; ret; }"""


def test_each_activation_has_its_own_local_memory():
    fibonacci = [0, 1]
    while len(fibonacci) < 9:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    body = "rem.u32 %r3, %lane, 9; call (%r2), f, (%r3);\n"
    assert run(body + STORE, before=FIBONACCI) == [fibonacci[i % 9] for i in range(32)]


DEEP = """.func (.reg .b32 r) f(.reg .b32 n) {
.reg .pred p; .reg .b32 t; .local .b32 kept[64];
setp.eq.u32 p, n, 0; mov.u32 r, 0; @p ret;
st.local.b32 [kept], n; sub.u32 t, n, 1;
call (t), f, (t);
ld.local.b32 r, [kept]; add.u32 r, r, t; ret; }"""


def test_a_stack_overflow_names_the_lane_that_recursed_too_deep():
    body = "setp.eq.u32 %p1, %lane, 9; selp.b32 %r3, 100, 3, %p1; call (%r2), f, (%r3);\n"
    fault = fault_of(OutOfBounds, body + STORE, before=DEEP, device=simwarp.Device(stack=4096))
    assert (fault.place.block, fault.place.warp, fault.place.lane) == ((0, 0, 0), 0, 9)
    assert fault.place.line == line_of("call (t), f, (t)", body + STORE, DEEP)
    assert "stack=" in str(fault)
    got = run(body + STORE, before=DEEP, device=simwarp.Device(stack=65536))
    assert got == [5050 if i == 9 else 6 for i in range(32)]


def test_recursion_runs_until_the_stack_is_full():
    """Each activation takes the 256 bytes of ``kept``."""
    body = "call (%r2), f, (%r3);\n" + STORE
    for depth in range(20):
        try:
            run(f"mov.u32 %r3, {depth};" + body, block=1, before=DEEP, device=simwarp.Device(stack=1024))
        except OutOfBounds:
            break
    assert depth in (4, 5)


# ------------------------------------------------------------------------------------ indirect calls

TABLE = """
.func (.param .b32 r) one(.param .b32 a);
.func (.param .b32 r) two(.param .b32 a);
.func (.param .b32 r) three(.param .b32 a);
.global .align 8 .u64 table[4] = {one, two, three, 0};
.func (.param .b32 r) one(.param .b32 a) {
.reg .b32 x; ld.param.u32 x, [a]; add.u32 x, x, 100; st.param.b32 [r], x; ret; }
.func (.param .b32 r) two(.param .b32 a) {
.reg .b32 x; ld.param.u32 x, [a]; mul.lo.u32 x, x, 3; st.param.b32 [r], x; ret; }
.func (.param .b32 r) three(.param .b32 a) {
.reg .b32 x; ld.param.u32 x, [a]; shl.b32 x, x, 4; st.param.b32 [r], x; ret; }
"""
INDIRECT = """rem.u32 %r3, %lane, 3; mul.wide.u32 %rd1, %r3, 8; mov.u64 %rd2, table; add.u64 %rd1, %rd1, %rd2;
ld.global.u64 %rd3, [%rd1];
{ .param .b32 a; .param .b32 b; st.param.b32 [a], %i;
P: .callprototype (.param .b32 _) _ (.param .b32 _);
call (b), %rd3, (a), P; ld.param.b32 %r2, [b]; }
"""


def by_table(i):
    return [i + 100, 3 * i, i << 4][i % 32 % 3]


def test_lanes_call_different_functions_indirectly():
    got = run(INDIRECT + STORE, block=70, before=TABLE)
    assert got == [by_table(i) for i in range(70)]


def test_indirect_calls_accept_a_calltargets_table():
    body = INDIRECT.replace(
        "P: .callprototype (.param .b32 _) _ (.param .b32 _);", "T: .calltargets one, two, three;"
    )
    got = run(body.replace("(a), P", "(a), T") + STORE, block=70, before=TABLE)
    assert got == [by_table(i) for i in range(70)]


def test_a_function_address_in_a_register_is_called():
    body = (
        """mov.u64 %rd3, three; setp.lt.u32 %p1, %lane, 4; @%p1 mov.u64 %rd3, two;
"""
        + INDIRECT[INDIRECT.index("{ .param") :]
        + STORE
    )
    assert run(body, before=TABLE) == [3 * i if i < 4 else i << 4 for i in range(32)]


def test_an_indirect_call_to_a_non_function_address_is_a_fault():
    body = INDIRECT.replace("rem.u32 %r3, %lane, 3", "rem.u32 %r3, %lane, 4")
    fault = fault_of(KernelFault, body + STORE, before=TABLE)
    assert (fault.place.lane, fault.place.line) == (3, line_of("call (b), %rd3", body, TABLE))
    assert "0x0" in fault.values


VTABLES = """
.func (.param .b32 r) shape_area(.param .b64 self);
.func (.param .b32 r) square_area(.param .b64 self);
.global .align 8 .u64 shape[3] = {0, 0, shape_area};
.global .align 8 .u64 square[3] = {0, 0, square_area};
.func (.param .b32 r) shape_area(.param .b64 self) { st.param.b32 [r], 1; ret; }
.func (.param .b32 r) square_area(.param .b64 self) {
.reg .b64 s; .reg .b32 x; ld.param.u64 s, [self]; ld.u32 x, [s+8]; mul.lo.u32 x, x, x; st.param.b32 [r], x;
ret; }
"""


def test_virtual_functions_dispatch_through_their_table():
    """Objects in local memory point to a function table in global memory, as compiled by nvcc."""
    body = (
        """.local .align 8 .b8 object[16]; .reg .b64 self, v;
mov.u64 self, object; cvta.local.u64 self, self; and.b32 %r3, %lane, 1; setp.ne.u32 %p1, %r3, 0;
mov.u64 %rd1, shape; mov.u64 %rd2, square; selp.b64 %rd1, %rd2, %rd1, %p1; cvta.global.u64 %rd1, %rd1;
add.u64 %rd1, %rd1, 16; st.u64 [self], %rd1; st.u32 [self+8], %lane;
ld.u64 v, [self]; ld.u64 v, [v];
{ .param .b64 a; .param .b32 b; st.param.b64 [a], self;
P: .callprototype (.param .b32 _) _ (.param .b64 _);
call (b), v, (a), P; ld.param.b32 %r2, [b]; }
"""
        + STORE
    )
    assert run(body, before=VTABLES) == [i * i if i % 2 else 1 for i in range(32)]


# ------------------------------------------------------------------------------------ where calls stand

NESTED = """.func (.reg .b32 r) inner(.reg .b32 a) {
.reg .pred p; setp.gt.u32 p, a, 20; @p bra BIG; add.u32 r, a, 1; ret; BIG: add.u32 r, a, 1000; ret; }
.func (.reg .b32 r) f(.reg .b32 a) {
.reg .pred p; .reg .b32 t; and.b32 t, a, 1; setp.ne.u32 p, t, 0; @p bra ODD;
call (t), inner, (a); mul.lo.u32 r, t, 2; ret;
ODD: add.u32 t, a, 5; call (t), inner, (t); add.u32 r, t, 7; ret; }"""


def nested(a):
    def inner(a):
        return a + 1000 if a > 20 else a + 1

    return inner(a + 5) + 7 if a % 2 else inner(a) * 2


def test_nested_calls_run_in_divergent_code():
    assert run("call (%r2), f, (%lane);\n" + STORE, before=NESTED) == [nested(i) for i in range(32)]
    body = """setp.lt.u32 %p1, %lane, 13; @%p1 bra LOW; call (%r2), f, (%lane); bra END;
LOW: add.u32 %r3, %lane, 50; call (%r2), f, (%r3);
END: """
    assert run(body + STORE, before=NESTED) == [nested(i + 50 if i < 13 else i) for i in range(32)]


def test_calls_in_a_loop_with_per_lane_trip_counts_run():
    body = """mov.u32 %r2, 0; mov.u32 %r3, 0; rem.u32 %r4, %i, 7;
LOOP: setp.ge.u32 %p1, %r3, %r4; @%p1 bra END; add.u32 %r5, %r3, %lane;
call (%r6), f, (%r5); add.u32 %r2, %r2, %r6; add.u32 %r3, %r3, 1; bra LOOP;
END: """
    got = run(body + STORE, block=64, before=NESTED)
    assert got == [sum(nested(n + i % 32) for n in range(i % 7)) for i in range(64)]


def test_a_long_loop_of_few_warps_in_a_function_runs():
    function = """.func (.reg .b32 r) f(.reg .b32 n) {
.reg .pred p; .reg .b32 t; mov.u32 t, 0; mov.u32 r, 1;
L: setp.ge.u32 p, t, n; @p ret; mad.lo.u32 r, r, 3, t; add.u32 t, t, 1; bra L; }"""

    def f(n):
        r = 1
        for t in range(n):
            r = (r * 3 + t) % 2**32
        return r

    body = (
        "shr.u32 %r3, %i, 5; setp.eq.u32 %p1, %r3, 11; selp.b32 %r3, 200, 2, %p1; add.u32 %r3, %r3, %lane;\n"
    )
    body += "call (%r2), f, (%r3);\n"
    got = run(body + STORE, block=512, before=function)
    assert got == [f((200 if i // 32 == 11 else 2) + i % 32) for i in range(512)]


def test_warp_operations_and_barriers_work_inside_a_function():
    function = """.shared .u32 cell;
.func (.reg .b32 r) f(.reg .b32 a) {
.reg .pred p; .reg .b32 t; redux.sync.add.u32 t, a, 0xFFFFFFFF; setp.eq.u32 p, a, 33;
@p st.shared.u32 [cell], t; bar.sync 0; ld.shared.u32 r, [cell]; bar.sync 0; add.u32 r, r, a; ret; }"""
    got = run("call (%r2), f, (%i);\n" + STORE, block=64, before=function)
    assert got == [sum(range(32, 64)) + i for i in range(64)]


def test_exit_inside_a_function_ends_the_thread():
    function = """.func (.reg .b32 r) f(.reg .b32 a) {
.reg .pred p; setp.lt.u32 p, a, 6; @p exit; add.u32 r, a, 1; ret; }"""
    got = run("call (%r2), f, (%lane); call (%r2), f, (%r2);\n" + STORE, before=function)
    assert got == [NOTHING] * 6 + [i + 2 for i in range(6, 32)]
    all_of_them = function.replace("setp.lt.u32 p, a, 6", "setp.ge.u32 p, a, 0")
    assert run("call (%r2), f, (%lane);\n" + STORE, before=all_of_them) == [NOTHING] * 32


def test_falling_off_the_end_of_a_function_is_a_return():
    function = ".func (.reg .b32 r) f(.reg .b32 a) { add.u32 r, a, 1; }"
    assert run("call (%r2), f, (%lane);\n" + STORE, before=function) == [i + 1 for i in range(32)]
    function = """.func (.reg .b32 r) f(.reg .b32 a) {
.reg .pred p; setp.lt.u32 p, a, 9; mov.u32 r, 4; @p bra END; mov.u32 r, 5; ret;
END: }"""
    assert run("call (%r2), f, (%lane);\n" + STORE, before=function) == [4] * 9 + [5] * 23


def test_a_fault_inside_a_function_names_its_line():
    function = """.func (.reg .b32 r) f(.reg .b64 a) {
ld.global.u32 r, [a];
ret; }"""
    body = "setp.eq.u32 %p1, %i, 37; mov.u64 %rd1, %in; @%p1 mov.u64 %rd1, 16; call (%r2), f, (%rd1);\n"
    fault = fault_of(OutOfBounds, body + STORE, block=64, before=function)
    assert (fault.place.warp, fault.place.lane) == (1, 5)
    assert fault.place.line == line_of("ld.global.u32 r, [a]", body + STORE, function)


MAYBE = """.func (.reg .b32 r) f(.reg .b32 a) {
.reg .pred p; .reg .b32 t; setp.eq.u32 p, a, 0; @p mov.u32 t, 5;
add.u32 r, a, t; ret; }"""


def test_an_unwritten_register_of_a_function_is_reported():
    fault = fault_of(UninitialisedRegister, "call (%r2), f, (%lane);" + STORE, before=MAYBE)
    assert (fault.register, fault.place.lane) == ("t", 1)


def test_a_second_call_does_not_see_the_registers_of_the_first():
    fault = fault_of(UninitialisedRegister, "call (%r2), f, (0); call (%r2), f, (1);" + STORE, before=MAYBE)
    assert (fault.register, fault.place.lane) == ("t", 0)


# ------------------------------------------------------------------------------- what is refused when loaded


def test_a_call_to_an_undefined_function_is_refused():
    with pytest.raises(UnsupportedInstruction, match="elsewhere"):
        run("call elsewhere, (%i); ret;", before=".extern .func elsewhere(.reg .b32 a);")


def test_a_call_to_an_undeclared_function_is_a_syntax_error():
    body = "ret;\ncall elsewhere, (%i);"
    with pytest.raises(PtxSyntaxError, match=f"line {line_of('call', body)}"):
        run(body)


@pytest.mark.parametrize(
    "call", ["call (%r2), f, (%i);", "call (%r2), f, (%i, 1, 2);", "call f, (%i, 1);", "call (%r2), f;"]
)
@pytest.mark.parametrize("function", [IN_REGISTERS, IN_MEMORY])
def test_a_wrong_number_of_arguments_or_results_is_a_syntax_error(call, function):
    with pytest.raises(PtxSyntaxError, match=f"line {line_of(call, call, function)}"):
        run(call, before=function)


def test_variables_of_the_same_name_in_two_functions_are_distinct():
    functions = """
.func (.reg .b32 r) f(.reg .b32 a) {
.shared .b32 cell[4]; .global .u32 g = 5; .reg .b32 t;
st.volatile.shared.b32 [cell+12], a; ld.global.u32 t, [g]; add.u32 r, a, t; ret; }
.func (.reg .b32 r) h(.reg .b32 a) {
.shared .b32 cell[8]; .global .u32 g = 7; .reg .b32 t;
st.volatile.shared.b32 [cell+28], a; ld.global.u32 t, [g]; add.u32 r, a, t; ret; }"""
    body = "call (%r2), f, (%i); call (%r3), h, (7); mad.lo.u32 %r2, %r2, 1000, %r3;\n"
    assert run(body + STORE, before=functions) == [(i + 5) * 1000 + 14 for i in range(32)]
