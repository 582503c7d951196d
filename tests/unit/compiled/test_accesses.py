"""Both engines load, store, meet and exchange alike: bits, counts, findings and their texts."""

import numpy as np
import pytest

import simwarp
from simwarp.compiled import memory, run
from simwarp.faults import KernelFault
from support.access_programs import HEAD, Maker


def answer(engine, text, threads, grid, checks="raise"):
    """The memory, the count and the findings of a kernel."""
    device = simwarp.Device(engine=engine, checks=checks)
    out = device.upload(np.zeros(4096, np.uint32), "out")
    given = device.upload(np.arange(2048, dtype=np.uint32) % 97, "given")
    found = []
    try:
        device.load(text).kernel("kernel")((grid, 1, 1), (threads, 1, 1), out, given)
    except KernelFault as fault:
        found.append(str(fault))
    found += map(str, device.faults)
    return out.download().tobytes(), None if found else device.executed, found


@pytest.fixture
def steps(monkeypatch):
    """The steps that compiled code has executed, in one place."""
    counts, go = [0], run.Kernel.go

    def counted(self, scheduler, pc, before):
        spent = scheduler.launch.spent
        try:
            return go(self, scheduler, pc, before)
        finally:
            counts[0] += scheduler.launch.spent - spent - before

    monkeypatch.setattr(run.Kernel, "go", counted)
    return counts


def compare(seeds, checks):
    """Run random kernels on both engines; returns how many are clean."""
    clean = 0
    for seed in seeds:
        kernel = Maker(seed).kernel()
        expected = answer("numpy", *kernel, checks)
        assert answer("compiled", *kernel, checks) == expected, f"seed {seed}"
        clean += not expected[2]
    return clean


@pytest.mark.at_most(12)
@pytest.mark.parametrize("checks", ["raise", "report"])
def test_some_random_kernels_have_equal_answers(checks, steps):
    assert 2 < compare(range(8), checks) < 8
    assert steps[0] > 100


@pytest.mark.gate
@pytest.mark.parametrize("checks", ["raise", "report"])
@pytest.mark.parametrize("first", range(100, 1100, 50))
def test_1000_random_kernels_have_equal_answers(first, checks):
    assert compare(range(first, first + 50), checks)


LOOP = "L: {body} add.u32 %r6, %r6, 1; setp.lt.u32 %p5, %r6, 3; @%p5 bra L; ret; }}"
WHOLE = "mad.lo.u32 %r10, %r1, 4, %r5; st.shared.u32 [%r10], %r1; bar.sync 0;"
PLANTED = {
    "out of bounds: write of out": """
        add.u32 %r10, %r4, 4000; mul.wide.u32 %rd3, %r10, 4; add.s64 %rd3, %rd3, %rd1;
        st.global.u32 [%rd3], %r1;""",
    "misaligned read": """
        mad.lo.u32 %r10, %r1, 2, %r5; ld.shared.u32 %r20, [%r10];""",
    "uninitialised read": """
        mad.lo.u32 %r10, %r1, 4, %r5; ld.shared.u32 %r20, [%r10+2048]; st.global.u32 [%rd1], %r20;""",
    "outside shared memory": """
        mad.lo.u32 %r10, %r1, 4, %r5; ld.shared.u32 %r20, [%r10+4000];""",
    "a missing barrier": """
        xor.b32 %r11, %r1, 32; mad.lo.u32 %r11, %r11, 4, %r5; ld.shared.u32 %r20, [%r11];
        mad.lo.u32 %r10, %r1, 4, %r5;
        st.shared.u32 [%r10], %r20;""",
    "a missing bar.warp.sync": """
        xor.b32 %r11, %r1, 1; mad.lo.u32 %r11, %r11, 4, %r5; ld.shared.u32 %r20, [%r11];
        mad.lo.u32 %r10, %r1, 4, %r5;
        st.shared.u32 [%r10], %r20;""",
    "two lanes write": """
        shr.u32 %r11, %r1, 1; mad.lo.u32 %r10, %r11, 4, %r5; st.shared.u32 [%r10], %r1;""",
    "two blocks write": """
        mul.wide.u32 %rd3, %r1, 4; add.s64 %rd3, %rd3, %rd1; st.global.u32 [%rd3], %r4;""",
    "read of a lane that does not take part": """
        setp.gt.u32 %p1, %r1, 8; @%p1 bra S; shfl.sync.idx.b32 %r20, %r1, 20, 0x1f, 0x1ff; S:""",
    "a division by zero": """
        div.u32 %r20, %r1, %r6; mul.wide.u32 %rd3, %r20, 4; add.s64 %rd3, %rd3, %rd1;
        ld.global.u32 %r20, [%rd3];""",
    "lane outside its own member mask": """
        vote.sync.ballot.b32 %r20, %p3, 0xfffffff0;""",
}


@pytest.mark.at_most(4)
@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_have_equal_findings_and_memory(bug):
    text = HEAD + WHOLE + LOOP.format(body=PLANTED[bug])
    expected = answer("numpy", text, 96, 2)
    assert expected[2]
    assert answer("compiled", text, 96, 2) == expected


VARIABLES = ".const .align 4 .u32 primes[4] = {2, 3, 5, 7}; .global .align 4 .u32 table[3] = {1, 4, 9};\n"
CLEAN = {
    "the same value twice": """
        shr.u32 %r11, %r1, 1; mad.lo.u32 %r10, %r11, 4, %r5; bar.sync 0; st.shared.u32 [%r10], %r11;""",
    "reads behind bar.warp.sync": """
        bar.warp.sync 0xffffffff; xor.b32 %r11, %r1, 1; mad.lo.u32 %r11, %r11, 4, %r5;
        ld.shared.u32 %r20, [%r11];
        bar.warp.sync 0xffffffff; mad.lo.u32 %r10, %r1, 4, %r5; st.shared.u32 [%r10], %r20;""",
    "bytes, then words": """
        add.u32 %r10, %r1, %r5; st.shared.u8 [%r10+1024], %h1; bar.sync 0; and.b32 %r11, %r1, 15;
        mad.lo.u32 %r11, %r11, 4, %r5; ld.shared.u32 %r20, [%r11+1024]; bar.sync 0;""",
    "local memory": """
        .local .align 4 .b32 a[3]; mov.u32 %r11, a; mad.lo.u32 %r11, %r6, 4, %r11; st.local.u32 [%r11], %r1;
        ld.local.u32 %r20, [%r11];""",
    "generic addresses": """
        .local .align 4 .b32 a[3]; mov.u64 %rd5, s; cvta.shared.u64 %rd5, %rd5; mul.wide.u32 %rd6, %r1, 4;
        add.u64 %rd5, %rd5, %rd6; st.u32 [%rd5], %r6; ld.u32 %r20, [%rd5]; add.u64 %rd6, %rd8, %rd6;
        ld.u32 %r21, [%rd6]; add.u32 %r20, %r20, %r21; mov.u64 %rd7, a; cvta.local.u64 %rd7, %rd7;
        st.u32 [%rd7+4], %r20; setp.gt.u32 %p1, %r6, 1; add.u64 %rd5, %rd5, -4;
        selp.b64 %rd7, %rd7, %rd5, %p1;
        st.u32 [%rd7+4], %r20; ld.u32 %r21, [%rd7+4];""",
    "variables": """
        ld.const.u32 %r20, [primes+4]; mov.u64 %rd5, primes; and.b32 %r11, %r1, 3; mul.wide.u32 %rd6, %r11, 4;
        add.u64 %rd5, %rd5, %rd6; ld.const.u32 %r21, [%rd5]; add.u32 %r20, %r20, %r21;
        ld.global.u32 %r21, [table+8]; add.u32 %r20, %r20, %r21;""",
    "vectors": """
        mad.lo.u32 %r10, %r1, 16, %r5; bar.sync 0; st.shared.v4.u32 [%r10], {%r1, %r6, %r7, %r20}; bar.sync 0;
        ld.shared.v2.u64 {%rd5, %rd6}, [%r10]; cvt.u32.u64 %r20, %rd6;""",
}


@pytest.mark.at_most(4)
@pytest.mark.parametrize("kernel", CLEAN)
def test_clean_kernels_have_equal_answers_in_compiled_steps(kernel, steps):
    text = HEAD.replace(".visible", VARIABLES + ".visible") + WHOLE + LOOP.format(body=CLEAN[kernel])
    text = text.replace(
        "ret;", "mul.wide.u32 %rd4, %r4, 4; add.s64 %rd4, %rd4, %rd1; st.global.u32 [%rd4], %r20; ret;"
    )
    expected = answer("numpy", text, 96, 2)
    assert not expected[2]
    assert answer("compiled", text, 96, 2) == expected
    assert steps[0] > 15


def test_a_store_that_faults_in_a_later_warp_stores_nothing():
    text = HEAD + LOOP.format(body=PLANTED["out of bounds: write of out"])
    stored, _, found = answer("compiled", text, 128, 1)
    assert found
    assert not any(stored)


def test_reads_of_one_epoch_do_not_reach_the_shadows(monkeypatch):
    """Behind a barrier nobody asks who read before it."""
    settled = []
    settle = memory.Reads.settle
    monkeypatch.setattr(memory.Reads, "settle", lambda self: (settled.append(1), settle(self)))
    body = "ld.shared.u32 %r20, [%r5]; bar.sync 0; mad.lo.u32 %r10, %r1, 4, %r5;"
    body += "st.shared.u32 [%r10], %r1; bar.sync 0;"
    _, _, found = answer("compiled", HEAD + WHOLE + LOOP.format(body=body), 96, 2)
    assert not found
    assert not settled
