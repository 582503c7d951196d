"""Functions that the CUDA runtime provides to kernels: printf, assert, malloc and free."""

import io
import math
from weakref import WeakSet

import numpy as np
import pytest

import simwarp
from simwarp.faults import (
    AssertionFailed,
    DoubleFree,
    KernelFault,
    MemoryFault,
    OutOfBounds,
    UninitialisedRead,
)
from simwarp.races import detector
from simwarp.races.shadow import Shadow
from support import small_kernels as small
from support.offenders import every_case

STORE, NOTHING = small.STORE, small.NOTHING
text, run, fault_of, line_of = small.text, small.run, small.fault_of, small.line_of


EXTERN = """
.extern .func (.param .b32 r) vprintf(.param .b64 format, .param .b64 arguments);
.extern .func (.param .b64 r) malloc(.param .b64 size);
.extern .func free(.param .b64 pointer);
.extern .func __assertfail(.param .b64 m, .param .b64 file, .param .b32 line, .param .b64 f,
.param .b64 size);
"""


def string(name, value, space="global"):
    data = [*value.encode(), 0]
    return f".{space} .align 1 .b8 {name}[{len(data)}] = {{{', '.join(map(str, data))}}};\n"


PRINT = """{ .param .b64 a; .param .b64 b; .param .b32 c;
st.param.b64 [a], %rd1; st.param.b64 [b], %rd2; call.uni (c), vprintf, (a, b); ld.param.b32 %r2, [c]; }
"""
BUFFER = (
    ".local .align 8 .b8 buffer[64]; .reg .b64 b; .reg .f64 d; mov.u64 b, buffer; cvta.local.u64 %rd2, b;\n"
)
FORMAT = "mov.u64 %rd1, format; cvta.global.u64 %rd1, %rd1;\n"


def printed(body, before, **options):
    """The output of a kernel."""
    stdout = io.StringIO()
    run(BUFFER + body, before=EXTERN + before, device=simwarp.Device(stdout=stdout), **options)
    return stdout.getvalue()


def bits(value):
    return f"0d{int(np.float64(value).view(np.uint64)):016X}"


def printf(form, *values):
    """The output of printf for a format and ints, floats and strings, stored as by nvcc."""
    stores, before, at = [], string("format", form), 0
    for i, value in enumerate(values):
        size = 4 if isinstance(value, int) and -(2**31) <= value < 2**32 else 8
        at = -(-at // size) * size
        if isinstance(value, str):
            before += string(f"text{i}", value)
            stores.append(
                f"mov.u64 %rd3, text{i}; cvta.global.u64 %rd3, %rd3; st.local.u64 [b+{at}], %rd3;\n"
            )
        elif isinstance(value, float):
            stores.append(f"mov.f64 d, {bits(value)}; st.local.f64 [b+{at}], d;\n")
        elif size == 4:
            stores.append(f"st.local.u32 [b+{at}], {value};\n")
        else:
            stores.append(f"mov.u64 %rd3, {value}; st.local.u64 [b+{at}], %rd3;\n")
        at += size
    return printed("".join(stores) + FORMAT + PRINT + "ret;", before, block=1)


BIG = 1 << 40
INF, NAN = math.inf, math.nan


@every_case(
    ("form", "values", "expected"),
    [
        ("no conversion, 100%%\n", (), "no conversion, 100%\n"),
        ("%d %i %u", (-5, 7, 2**32 - 1), "-5 7 4294967295"),
        ("%u", (-1,), "4294967295"),
        ("%x %X %#x %#X %#x", (255, 255, 255, 255, 0), "ff FF 0xff 0XFF 0"),
        ("%o %#o %#o %#.0o", (8, 8, 0, 0), "10 010 0 0"),
        ("%x %o", (-1, -1), "ffffffff 37777777777"),
        ("[%5d|%-5d|%05d|%+d|% d]", (42, 42, 42, 42, 42), "[   42|42   |00042|+42| 42]"),
        ("[%5d|%-5d|%05d|%+d|% d]", (-42, -42, -42, -42, -42), "[  -42|-42  |-0042|-42|-42]"),
        ("[%+u|% x|%+ d|%-05d]", (1, 1, 1, 1), "[1|1|+1|1    ]"),
        ("[%.3d|%6.3d|%06.3d|%-6.3d|%+.3d]", (7, 7, 7, 7, 7), "[007|   007|   007|007   |+007]"),
        ("[%.0d|%.d|%.0d|%5.0d|%.0u]", (0, 0, 1, 0, 0), "[||1|     |]"),
        ("[%#6x|%#06x|%#.4x|%#8.4x]", (255, 255, 255, 255), "[  0xff|0x00ff|0x00ff|  0x00ff]"),
        ("[%*d|%-*d|%*d]", (5, 42, 5, 42, -5, 42), "[   42|42   |42   ]"),
        ("[%.*d|%.*d|%*.*d]", (4, 42, -1, 0, 6, 3, 7), "[0042|0|   007]"),
        ("%hd %hu %hhd %hhu %hhx", (70000, 70000, 200, 300, -1), "4464 4464 -56 44 ff"),
        (
            "%ld %lu %lld %llu %lx",
            (-BIG, BIG, BIG + 1, 2**64 - BIG, BIG),
            f"{-BIG} {BIG} {BIG + 1} {2**64 - BIG} {BIG:x}",
        ),
        ("%zu %jd %td", (BIG, -BIG, BIG), f"{BIG} {-BIG} {BIG}"),
        ("%d %ld %d %s %d", (1, BIG, 2, "x", 3), f"1 {BIG} 2 x 3"),
        ("%f %F %.2f %.0f %#.0f", (1.5, 1.5, 2.345, 2.5, 2.5), "1.500000 1.500000 2.35 2 2."),
        ("[%8.2f|%-8.2f|%08.2f|%+.1f|% .1f]", (3.14159,) * 5, "[    3.14|3.14    |00003.14|+3.1| 3.1]"),
        ("%f %.1f %+f", (-0.0, -2.25, -0.0), "-0.000000 -2.2 -0.000000"),
        ("%e %E %.0e %.2e", (12345.678, 1e-10, 5.5, 0.0), "1.234568e+04 1.000000E-10 6e+00 0.00e+00"),
        (
            "%g %g %g %G %#g %.3g",
            (0.0001, 1e-5, 1e6, 1e-7, 1.0, 1234.0),
            "0.0001 1e-05 1e+06 1E-07 1.00000 1.23e+03",
        ),
        ("[%f|%F|%5e|%-5g|%+f]", (INF, INF, INF, INF, INF), "[inf|INF|  inf|inf  |+inf]"),
        ("[%f|%06f|%G|%06.2f]", (-INF, -INF, -INF, INF), "[-inf|  -inf|-INF|   inf]"),
        ("[%f|%E|%05f|%5g]", (NAN, NAN, NAN, NAN), "[nan|NAN|  nan|  nan]"),
        ("%a %A %a %a %a", (1.0, 1.0, -2.5, 0.0, 0.1), "0x1p+0 0X1P+0 -0x1.4p+1 0x0p+0 0x1.999999999999ap-4"),
        (
            "[%.2a|%.0a|%.15a|%10a|%-10a|%010a]",
            (0.1, 1.5, 1.5, 1.0, 1.0, 1.0),
            "[0x1.9ap-4|0x2p+0|0x1.800000000000000p+0|    0x1p+0|0x1p+0    |0x00001p+0]",
        ),
        (
            "%a %.3a %a",
            (5e-324, 0.0, 1.7976931348623157e308),
            "0x0.0000000000001p-1022 0x0.000p+0 0x1.fffffffffffffp+1023",
        ),
        ("[%c%c|%3c|%-3c]", (65, 0x142, 67, 68), "[AB|  C|D  ]"),
        ("[%s|%6s|%-6s|%.2s|%6.2s|%.0s]", ("abc",) * 6, "[abc|   abc|abc   |ab|    ab|]"),
        ("[%*s|%.*s|%.*s]", (5, "abc", 1, "abc", -1, "abc"), "[  abc|a|abc]"),
        ("[%s]", ("",), "[]"),
        ("%p", (0x7F0012345678,), "0x7f0012345678"),
        ("[%20p|%-20p]", (0x7F0012345678, 0x7F0012345678), "[      0x7f0012345678|0x7f0012345678      ]"),
        ("%d%%%d%%", (1, 2), "1%2%"),
    ],
)  # fmt: skip
def test_printf_conversions_equal_those_of_c(form, values, expected):
    assert printf(form, *values) == expected


@pytest.mark.parametrize(
    ("form", "values"),
    [
        ("%99999999999d", (1,)),
        ("%65536d", (1,)),
        ("%" + "9" * 5000 + "d", (1,)),
        ("%.2147483648f", (1.0,)),
        ("%.65536f", (1.0,)),
        ("%.99999999999s", ("x",)),
        ("%*d", (2**31 - 1, 1)),
        ("%*d", (-(2**31), 1)),
        ("%.*f", (2**31 - 1, 1.0)),
    ],
    ids=lambda x: str(x)[:20],
)
def test_printf_refuses_too_wide_fields(form, values):
    with pytest.raises(KernelFault, match=r"printf with a width or a precision above 65535") as caught:
        printf(form, *values)
    assert caught.value.place.lane == 0
    assert max(map(len, str(caught.value).splitlines())) < 300


def test_printf_prints_the_widest_field():
    assert printf("%65535d", 7) == "7".rjust(65535)
    assert printf("%.65535f", 0.5) == "0.5".ljust(65537, "0")


@pytest.mark.parametrize(
    ("form", "values", "number", "wanted"),
    [
        ("%d %d %d %d %d", (7,), 2, 5),
        ("%d %s", (7,), 2, 2),
        ("%f", (), 1, 1),
        ("%d%% %*d", (1, 2), 3, 3),
        ("%c", (), 1, 1),
    ],
)
def test_printf_names_missing_arguments(form, values, number, wanted):
    with pytest.raises(
        UninitialisedRead, match=rf"printf takes argument {number}, which nothing wrote"
    ) as caught:
        printf(form, *values)
    assert f"{form!r} takes {wanted}" in str(caught.value)
    assert caught.value.place.lane == 0


def test_missing_printf_arguments_are_reported_under_checks_report():
    stdout = io.StringIO()
    device = simwarp.Device(stdout=stdout, checks={"uninitialised": "report"})
    run(
        BUFFER + "st.local.u32 [b], 7;" + FORMAT + PRINT + "ret;",
        before=EXTERN + string("format", "%d %x"),
        device=device,
        block=1,
    )
    assert stdout.getvalue() == "7 a5a5a5a5"
    (fault,) = device.faults
    assert isinstance(fault, UninitialisedRead)


def test_printf_hexadecimal_floats_are_exact():
    """``%a`` prints a float exactly, so reading it back gives the same number."""
    values = [1 / 3, math.pi, 2.0**-1060, 1e300, 6.02e23]
    assert [float.fromhex(printf("%a", v)) for v in values] == values


def test_printf_output_is_in_lane_and_block_order():
    body = "st.local.u32 [b], %i; setp.ne.u32 %p1, %lane, 3;\n" + FORMAT
    body += "@!%p1 bra END;\n" + PRINT + "END: ret;"
    before = string("format", "%d,")
    got = printed(body, before, block=34, grid=3)
    assert got == "".join(f"{i}," for i in range(102) if i % 34 % 32 != 3)


def test_two_printf_calls_print_in_execution_order():
    body = "st.local.u32 [b], %i;\n" + FORMAT + PRINT + "st.local.u32 [b], -1;\n" + PRINT + "ret;"
    assert printed(body, string("format", "%d;"), block=3) == "0;1;2;-1;-1;-1;"


def test_printf_reads_strings_in_local_memory():
    body = (
        """.local .align 1 .b8 word[4]; .reg .b64 w; .reg .b16 h; mov.u64 w, word; cvt.u16.u32 h, %lane;
add.u16 h, h, 97;
st.local.u8 [w], h; st.local.u8 [w+1], 33; st.local.u8 [w+2], 0; cvta.local.u64 w, w; st.local.u64 [b], w;
"""
        + FORMAT
        + PRINT
        + "ret;"
    )
    assert printed(body, string("format", "%s "), block=5) == "a! b! c! d! e! "


def test_printf_reads_formats_and_strings_in_constant_memory():  # where Numba keeps them
    body = "mov.u64 %rd1, word; cvta.const.u64 %rd1, %rd1; st.local.u64 [b], %rd1;\n"
    body += FORMAT.replace("global", "const") + PRINT + "ret;"
    before = string("format", "<%s>", "const") + string("word", "constant", "const")
    assert printed(body, before, block=2) == "<constant><constant>"


def test_lanes_may_pass_different_printf_formats():
    body = "mov.u64 %rd1, format; mov.u64 %rd3, other; setp.lt.u32 %p1, %lane, 2;\n"
    body += "selp.b64 %rd1, %rd1, %rd3, %p1;\n"
    body += "st.local.u32 [b], %lane;\n" + PRINT + "ret;"
    before = string("format", "low %d\n") + string("other", "high %x\n")
    assert printed(body, before, block=3) == "low 0\nlow 1\nhigh 2\n"


def test_printf_returns_the_number_of_arguments():
    body = BUFFER + "st.local.v2.u32 [b], {1, 2};\n" + FORMAT + PRINT + STORE
    device = simwarp.Device(stdout=io.StringIO())
    before = EXTERN + string("format", "%d%% of %d")
    assert run(body, block=2, before=before, device=device) == [2, 2]


def test_output_printed_before_a_fault_is_kept():
    stdout = io.StringIO()
    body = BUFFER + FORMAT + PRINT + "ld.global.u32 %r2, [%in+400]; ret;"
    before = EXTERN + string("format", "here")
    fault_of(OutOfBounds, body, block=1, before=before, device=simwarp.Device(stdout=stdout))
    assert stdout.getvalue() == "here"


def test_an_unreadable_printf_string_is_a_fault():
    body = BUFFER + "setp.eq.u32 %p1, %lane, 4; @!%p1 ret; mov.u64 %rd3, 4096; st.local.u64 [b], %rd3;\n"
    body += FORMAT + PRINT + "ret;"
    before = EXTERN + string("format", "%s")
    fault = fault_of(MemoryFault, body, before=before)
    assert (fault.place.lane, fault.place.line) == (4, line_of("call.uni (c), vprintf", body, before))
    assert "0x1000" in str(fault)


def test_printf_works_in_a_loop_with_per_lane_trip_counts():
    body = "mov.u32 %r5, 0;\nL: st.local.v2.u32 [b], {%lane, %r5};\n" + FORMAT + PRINT
    body += "add.u32 %r5, %r5, 1; setp.le.u32 %p1, %r5, %lane; @%p1 bra L; ret;"
    got = printed(body, string("format", "%d.%d "), block=4)
    assert got == "0.0 1.0 2.0 3.0 1.1 2.1 3.1 2.2 3.2 3.3 "


# ------------------------------------------------------------------------------------------ assert

ASSERT = """mov.u64 %rd1, what; mov.u64 %rd2, file; mov.u64 %rd3, function;
{ .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;
st.param.b64 [a], %rd1; st.param.b64 [b], %rd2; st.param.b32 [c], 23; st.param.b64 [d], %rd3;
st.param.b64 [e], 1;
call.uni __assertfail, (a, b, c, d, e); }
"""
WORDS = EXTERN + string("what", "n > 0") + string("file", "demo.cu") + string("function", "void k(int)")


def test_a_failed_assertion_is_a_fault():
    body = "setp.eq.u32 %p1, %i, 41; mov.u32 %r2, 1; @!%p1 bra END;\n" + ASSERT + "END: " + STORE
    fault = fault_of(AssertionFailed, body, block=64, grid=2, before=WORDS)
    assert (fault.place.kernel, fault.place.block, fault.place.warp, fault.place.lane) == (
        "k",
        (0, 0, 0),
        1,
        9,
    )
    assert (fault.place.thread, fault.place.line) == (
        (41, 0, 0),
        line_of("call.uni __assertfail", body, WORDS),
    )
    assert "n > 0" in fault.what
    assert "demo.cu:23" in fault.values
    assert "void k(int)" in fault.values
    assert all(part in str(fault) for part in (fault.what, fault.values, fault.advice))


def test_a_true_assertion_has_no_effect():
    body = "setp.eq.u32 %p1, %i, 999; mov.u32 %r2, 1; @!%p1 bra END;\n" + ASSERT + "END: " + STORE
    assert run(body, before=WORDS) == [1] * 32


# ---------------------------------------------------------------------------------- malloc and free

MALLOC = """{ .param .b64 a; .param .b64 b; st.param.b64 [a], %rd1; call.uni (b), malloc, (a);
ld.param.b64 %rd2, [b]; }
"""
FREE = "{ .param .b64 a; st.param.b64 [a], %rd2; call.uni free, (a); }\n"


def test_malloc_gives_each_lane_its_own_memory():
    body = (
        "mov.u64 %rd1, 16;\n"
        + MALLOC
        + "st.u32 [%rd2+12], %i; bar.sync 0; ld.global.u32 %r2, [%rd2+12];\n"
        + FREE
    )
    device = simwarp.Device()
    before = len(device.memory.allocations)
    assert run(body + STORE, block=50, grid=3, before=EXTERN, device=device) == list(range(150))
    assert len(device.memory.allocations) <= before + 2  # the two arrays of `run`
    assert device.heap.used == 0


def test_freed_malloc_memory_leaves_nothing_behind(monkeypatch):
    """Counted are the shadows that the race detector holds: threads free 768 blocks during the launch."""
    shadows, most = WeakSet(), 0

    def shadow(allocation, width):
        nonlocal most
        shadows.add(made := Shadow(allocation, width))
        most = max(most, len(shadows))
        return made

    monkeypatch.setattr(detector, "Shadow", shadow)
    body = "mov.u64 %rd1, 16;\n" + MALLOC + "st.u32 [%rd2], %i; ld.u32 %r2, [%rd2];\n" + FREE
    run(body + STORE, block=128, grid=6, before=EXTERN, device=simwarp.Device(chunk_lanes=128))
    assert 128 < most < 600


def test_malloc_memory_is_uninitialised_and_bounded():
    body = "mov.u64 %rd1, 16;\n" + MALLOC
    fault = fault_of(MemoryFault, body + "ld.u32 %r2, [%rd2];" + STORE, before=EXTERN)
    assert "nothing wrote" in str(fault)
    fault = fault_of(OutOfBounds, body + "st.u32 [%rd2+16], %i;", before=EXTERN)
    assert (fault.allocation, fault.offset, fault.place.lane) == ("malloc(16)", 16, 0)


def test_malloc_returns_null_when_the_heap_is_full():
    body = "mov.u64 %rd1, 100;\n" + MALLOC + "setp.ne.u64 %p1, %rd2, 0; selp.u32 %r2, 1, 0, %p1;\n" + STORE
    got = run(body, before=EXTERN, device=simwarp.Device(heap=1050))
    assert got == [1] * 10 + [0] * 22
    body = body.replace(STORE, FREE + STORE)
    device = simwarp.Device(heap=1050)
    for _ in range(2):  # freed heap memory is available again
        assert run(body, before=EXTERN, device=device) == [1] * 10 + [0] * 22


def test_malloc_memory_survives_the_launch():
    device = simwarp.Device()
    out = device.upload(np.zeros(4, np.uint64))
    first = (
        "mov.u64 %rd1, 8;\n"
        + MALLOC
        + "mov.u64 %rd3, 77; st.u64 [%rd2], %rd3; st.global.u64 [%out], %rd2; ret;"
    )
    second = "ld.global.u64 %rd2, [%in]; ld.u64 %rd3, [%rd2]; st.global.u64 [%out+8], %rd3;\n" + FREE + "ret;"
    for body in (first, second):
        device.load(text(body, EXTERN)).kernel("k")((1, 1, 1), (1, 1, 1), out, out)
    assert out.download()[1] == 77
    with pytest.raises(OutOfBounds) as caught:
        device.load(text(second, EXTERN)).kernel("k")((1, 1, 1), (1, 1, 1), out, out)
    assert caught.value.allocation == "malloc(8) (freed)"


def test_double_free_and_free_of_foreign_memory_are_faults():
    body = (
        "mov.u64 %rd1, 24;\n"
        + MALLOC
        + "setp.eq.u32 %p1, %lane, 6;\n"
        + FREE
        + "@!%p1 ret;\n"
        + FREE
        + "ret;"
    )
    fault = fault_of(DoubleFree, body, block=64, before=EXTERN)
    assert (fault.place.warp, fault.place.lane) == (0, 6)
    fault = fault_of(DoubleFree, "mov.u64 %rd2, %out;\n" + FREE, before=EXTERN)
    assert (fault.place.lane, fault.address) == (0, fault.address)
    fault = fault_of(
        DoubleFree, "mov.u64 %rd1, 24;\n" + MALLOC + "add.u64 %rd2, %rd2, 8;\n" + FREE, before=EXTERN
    )
    assert fault.place.lane == 0


def test_an_invalid_free_is_reported_under_checks_report():
    device = simwarp.Device(checks={"freed": "report"})
    run("mov.u64 %rd2, %out; mov.u32 %r2, 4;\n" + FREE + STORE, before=EXTERN, device=device)
    (fault,) = device.faults
    assert (type(fault), fault.count, fault.place.lane) == (DoubleFree, 32, 0)


def test_a_free_of_null_does_nothing():
    assert run("mov.u64 %rd2, 0; mov.u32 %r2, 3;\n" + FREE + STORE, before=EXTERN) == [3] * 32


def test_use_after_free_of_heap_memory_is_a_fault():
    body = (
        "mov.u64 %rd1, 40;\n" + MALLOC + "st.u32 [%rd2+8], %i;\n" + FREE + "ld.u32 %r2, [%rd2+8];\n" + STORE
    )
    fault = fault_of(OutOfBounds, body, before=EXTERN)
    assert (fault.allocation, fault.offset, fault.place.lane) == ("malloc(40) (freed)", 8, 0)
    assert fault.place.line == line_of("ld.u32 %r2", body, EXTERN)


def test_a_module_may_define_its_own_malloc():
    """The simulator's ``malloc`` is used only if the module does not define one."""
    function = ".func (.reg .b32 r) malloc(.reg .b32 a) { add.u32 r, a, 1; ret; }"
    assert run("call (%r2), malloc, (%i);" + STORE, before=function) == [i + 1 for i in range(32)]
