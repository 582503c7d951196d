"""Both engines give the same bits, counts and findings, and the compiled one is entered when it pays."""

import signal

import numpy as np
import pytest

import simwarp
from reference.errors import SchemeError
from simwarp.compiled import run
from simwarp.faults import KernelFault
from simwarp.lab import fuzz

HEAD = """
.version 9.0
.target sm_90
.address_size 64
.visible .entry kernel(.param .u64 out, .param .u32 n) {
    .reg .b32 %r<16>; .reg .b64 %rd<8>; .reg .pred %p<8>; .reg .f32 %f<4>;
    ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x; mov.u32 %r15, %ntid.x; mad.lo.u32 %r2, %r3, %r15, %r2;
    mul.wide.u32 %rd2, %r2, 4; add.s64 %rd3, %rd1, %rd2;
"""
DIVERGES = """
    mov.u32 %r4, %r2; mov.u32 %r5, 0;
L:  mad.lo.u32 %r4, %r4, 1664525, 1013904223; shr.u32 %r6, %r4, 29;
M:  add.u32 %r5, %r5, %r6; setp.ne.u32 %p1, %r6, 0; @%p1 sub.u32 %r6, %r6, 1; @%p1 bra M;
    and.b32 %r7, %r4, 0x1F0; setp.eq.u32 %p2, %r7, 0; @%p2 bra OUT;
    setp.lt.u32 %p3, %r5, %r1; @%p3 bra L;
OUT:
    atom.global.add.u32 %r8, [%rd1], 1; mad.lo.u32 %r5, %r5, 1024, %r8;
    st.global.u32 [%rd3+4], %r5; ret; }
"""
"""Lanes leave the loop at different times and draw a number: the order in which they do is in the answer."""
UNWRITTEN = """
    setp.gt.u32 %p1, %r2, 40; @%p1 bra L;
    mov.u32 %r5, 3;
L:  add.u32 %r4, %r2, 1; mad.lo.u32 %r4, %r4, 5, 1; mul.lo.u32 %r4, %r4, %r5;
    st.global.u32 [%rd3], %r4; ret; }
"""
ENDLESS = """
    mov.u32 %r4, 0;
L:  setp.ge.u32 %p1, %r4, 0; @%p1 bra L;
    st.global.u32 [%rd3], %r4; ret; }
"""


def answer(engine, body, threads=32, grid=1, n=1000, device=None, **options):
    """The memory, the count and the findings of a kernel."""
    device = device or simwarp.Device(engine=engine, **options)
    out = device.upload(np.zeros(threads * grid + 1, np.uint32), "out")
    try:
        device.load(HEAD + body).kernel("kernel")((grid, 1, 1), (threads, 1, 1), out, np.uint32(n))
        found = ""
    except KernelFault as fault:
        found = str(fault)
    return out.download().tolist(), device.executed, found


@pytest.mark.at_most(8)
@pytest.mark.parametrize(("threads", "grid"), [(1, 1), (33, 1), (96, 3), (512, 2), (64, 40)])
def test_divergent_loops_end_in_the_same_order(threads, grid):
    assert answer("compiled", DIVERGES, threads, grid, 300) == answer("numpy", DIVERGES, threads, grid, 300)


@pytest.mark.parametrize(
    ("body", "options"),
    [
        (UNWRITTEN, {"threads": 64}),
        (ENDLESS, {}),
        (DIVERGES, {"n": 10**9, "instruction_budget": 700}),
        (DIVERGES, {"n": 10**9, "instruction_budget": 707, "threads": 70}),
    ],
)
def test_findings_are_the_same(body, options):
    given = {name: options[name] for name in options.keys() - {"instruction_budget"}}
    limits = {name: options[name] for name in options.keys() & {"instruction_budget"}}
    *_, expected = answer("numpy", body, **given, **limits)
    *_, got = answer("compiled", body, **given, **limits)
    assert expected
    assert got == expected


@pytest.mark.at_most(10)
@pytest.mark.parametrize("first", range(0, 8, 4))
def test_some_fuzzed_programs_have_equal_outputs(first):
    compare(first, 4)


@pytest.mark.gate
@pytest.mark.parametrize("first", range(100, 400, 10))
def test_300_fuzzed_programs_have_equal_outputs(first):
    compare(first, 10)


def compare(first, count):
    """Run generated programs on both engines."""
    programs = [fuzz.generate(7, k) for k in range(first, first + count)]
    one, other = (simwarp.Device(engine=engine) for engine in ("numpy", "compiled"))
    expected, got = (list(map(fuzz.digest, fuzz.answers(device, programs))) for device in (one, other))
    assert got == expected
    assert one.executed == other.executed


def test_auto_compiles_a_kernel_whose_loop_runs_long(monkeypatch):
    monkeypatch.setattr(run, "_KERNELS", made := {})
    assert answer("auto", DIVERGES, n=200) == answer("numpy", DIVERGES, n=200)
    assert not made
    monkeypatch.setattr("simwarp.engine.launch._HOT", 500)
    monkeypatch.setattr("simwarp.engine.launch._HOT_PER_STEP", 0)
    assert answer("auto", DIVERGES, n=10_000) == answer("numpy", DIVERGES, n=10_000)
    assert len(made) == 1


def test_without_llvmlite_numpy_runs_all(monkeypatch):
    monkeypatch.setattr(run, "_KERNELS", {})
    monkeypatch.setattr(run, "llvm", lambda: None)
    assert answer("compiled", DIVERGES) == answer("numpy", DIVERGES)


@pytest.mark.parametrize("what", ["the kernel", "what kernels share"])
def test_a_kernel_that_llvm_refuses_stays_with_numpy(monkeypatch, what):
    monkeypatch.setattr(run, "_KERNELS", made := {})
    if what == "the kernel":
        monkeypatch.setattr(run, "module", lambda *_: "define broken")
    else:
        monkeypatch.setattr(run, "shared_code", lambda: run.code_of("define broken"))
    assert answer("compiled", DIVERGES) == answer("numpy", DIVERGES)
    (kernel,) = made.values()
    assert not kernel.every


def test_a_signal_ends_compiled_code():
    class AlarmError(Exception):
        pass

    def ring(*_):
        raise AlarmError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(AlarmError):
            answer(
                "compiled",
                ENDLESS.replace("0;\nL:", "0;\nL: add.u32 %r4, %r4, 1;"),
                instruction_budget=10**10,
            )
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_an_observer_of_steps_sees_all(monkeypatch):
    reports = []
    for engine in ("numpy", "compiled"):
        device = simwarp.Device(engine=engine, observe="divergence")
        answer(engine, DIVERGES, device=device)
        reports.append(device.report.divergence.total)
    assert reports[0] == reports[1]


def test_an_unknown_engine_is_refused():
    with pytest.raises(SchemeError, match="no engine 'fast'"):
        simwarp.Device(engine="fast")
